/* bench_comm.c - times collectives between two processes, and all-reduce fused
 * with the optimizer, beside what the machine itself can do: a pass over the
 * same bytes, and a bare exchange over the same kind of socket.
 *
 * Each row is a pair of processes of its own: this one is rank 0, a child rank
 * 1. As the peers' own benchmarks do: three rounds to warm up, a barrier, then
 * the mean over a number of rounds. What was timed is checked. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <manta/comm.h>
#include <manta/tool_bench.h>
#include <manta/train.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/key.h"
#include "net/tcp.h"
#include "os/sys.h"
#include "os/spawner.h"
#include "tensor/kernel.h"
#include "tensor/update.h"

enum { RANKS = 2, WARM = 3, ARRAYS = 4, CHECKED = 16, EXCHANGE = 256 << 10, LOOK_NS = 200000 };

typedef enum bench_what { ALL_REDUCE, FUSED, UPDATE_ALONE, PASS } bench_what;

typedef struct bench_case {
    bench_what what;
    const char *name, *over; /* for people */
    manta_comm_kind implementation;
    bool plain;
    update_rule rule; /* of FUSED, UPDATE_ALONE and PASS */
    int64_t n;
    int rounds;
} bench_case;

/* What a rank of a pair knows. */
typedef struct bench_pair {
    const bench_case *c;
    manta_group *g;
    int rank, socket; /* socket: of the bare exchange; -1: none */
    double ms, exchange_ms;
} bench_pair;

static const kernels *best_kernels(void)
{
    for (int f = KERN_AVX512; f > KERN_REFERENCE; f--)
        if (kernels_of((kern_family)f)) return kernels_of((kern_family)f);
    return kernels_of(KERN_REFERENCE);
}

/* Calls round() as often as the case says, all ranks beginning together. */
static manta_status time_rounds(bench_pair *p, manta_status (*round)(void *ctx, int i), void *ctx)
{
    int64_t begin = 0;

    for (int i = -WARM; i < p->c->rounds; i++) {
        if (i == 0) {
            if (p->g) TRY(manta_group_barrier(p->g));
            begin = clock_now_ns();
        }
        TRY(round(ctx, i + WARM));
    }
    p->ms = (double)(clock_now_ns() - begin) / 1e6 / p->c->rounds;
    return MANTA_OK;
}

/* ---- as many bytes to and fro as an all-reduce of two ranks sends ---- */

static manta_status socket_failed(const char *doing)
{
    return manta_fail(MANTA_EIO, "%s a bare exchange: %s", doing, strerror(errno));
}

static manta_status exchange_bytes(int fd, const char *in, char *out, size_t size)
{
    size_t sent = 0, got = 0;
    int64_t since = 0;

    while (sent < size || got < size) {
        bool moved = false;
        size_t few = size - sent < EXCHANGE ? size - sent : EXCHANGE;
        ssize_t k = few ? send(fd, in + sent, few, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (k < 0 && errno != EAGAIN && errno != EINTR) return socket_failed("sending");
        if (k > 0) sent += (size_t)k, moved = true;
        few = size - got < EXCHANGE ? size - got : EXCHANGE;
        k = few ? recv(fd, out + got, few, MSG_DONTWAIT) : 0;
        if (k < 0 && errno != EAGAIN && errno != EINTR) return socket_failed("receiving");
        if (few && k == 0) return manta_fail(MANTA_EDIED, "the other side of a bare exchange is gone");
        if (k > 0) got += (size_t)k, moved = true;
        int64_t now = clock_now_ns();
        if (moved || !since) since = now;
        if (now - since < LOOK_NS) continue; /* as a group does: being woken would be most of it */
        struct pollfd p = {.fd = fd, .events = (short)((sent < size ? POLLOUT : 0) | POLLIN)};
        (void)os->poll(&p, 1, -1);
    }
    return MANTA_OK;
}

/* ---- all-reduce ---- */

typedef struct plain_memory {
    float *in, *out, *other; /* other: what the exchange brings */
} plain_memory;

/* The rounds. Where there is a bare exchange to compare with, each round does
 * one of each, because what a virtual machine's cores share changes from one
 * second to the next. */
static manta_status time_reduce(bench_pair *p, const plain_memory *m)
{
    int64_t reducing = 0, exchanging = 0, n = p->c->n;

    for (int i = -WARM; i < p->c->rounds; i++) {
        if (i == 0) {
            TRY(manta_group_barrier(p->g));
            reducing = exchanging = 0;
        }
        int64_t begin = clock_now_ns(), middle;
        TRY(manta_group_all_reduce(p->g, m->in, m->out, n, MANTA_DTYPE_F32, MANTA_REDUCE_SUM));
        middle = clock_now_ns();
        reducing += middle - begin;
        if (p->socket < 0) continue;
        TRY(exchange_bytes(p->socket, (const char *)m->in, (char *)m->other, (size_t)n * sizeof(float)));
        exchanging += clock_now_ns() - middle;
    }
    p->ms = (double)reducing / 1e6 / p->c->rounds;
    p->exchange_ms = (double)exchanging / 1e6 / p->c->rounds;
    return MANTA_OK;
}

static manta_status check_reduced(const bench_pair *p, const plain_memory *m)
{
    for (int64_t i = 0; i < p->c->n; i++) {
        if (m->out[i] != (float)(2 * (i % 1000) + 1))
            return manta_fail(MANTA_EINTERNAL, "the all-reduce that was timed is wrong at %lld",
                              (long long)i);
        if (p->socket >= 0 && m->other[i] != (float)(i % 1000 + 1 - p->rank))
            return manta_fail(MANTA_EINTERNAL, "the exchange that was timed is wrong at %lld", (long long)i);
    }
    return MANTA_OK;
}

static manta_status time_all_reduce(bench_pair *p)
{
    plain_memory m = {NULL, NULL, NULL};
    manta_status st = mem_try_array(p->c->n, sizeof *m.in, "a vector", (void **)&m.in);

    if (!st) st = mem_try_array(p->c->n, sizeof *m.out, "a vector", (void **)&m.out);
    if (!st) st = mem_try_array(p->c->n, sizeof *m.other, "a vector", (void **)&m.other);
    for (int64_t i = 0; !st && i < p->c->n; i++) m.in[i] = (float)(i % 1000 + p->rank);
    if (!st) st = time_reduce(p, &m);
    if (!st) st = check_reduced(p, &m);
    mem_try_free(m.in);
    mem_try_free(m.out);
    mem_try_free(m.other);
    return st;
}

/* ---- all-reduce and update in one pass ---- */

static update_scalars scalars_of(update_rule rule, float divisor)
{
    return (update_scalars){.rule = rule,
                            .lr = 0.01f,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .eps = 1e-7f,
                            .alpha = 0.001f,
                            .divisor = divisor,
                            .clip_factor = 1};
}

/* Elements from one array of a side to the next: as in a state, each begins with
 * a line of the cache. */
static int64_t stride_of(const bench_case *c)
{
    return (c->n + 15) / 16 * 16;
}

/* The arrays of a side, one behind the other: gradient of the rank whose
 * memory it is, weights, and Adam's two. */
static float *array_of(const bench_pair *p, int side, int k)
{
    return (float *)manta_group_memory(p->g, side) + k * stride_of(p->c);
}

static float gradient_at(int rank, int64_t i)
{
    return (float)(i % 64 - 31 + rank) * 0.01f;
}

typedef struct fused_memory {
    bench_pair *p;
    update_scalars s;
    const kernels *k;
    int side; /* that is read */
} fused_memory;

static manta_status update_range(void *ctx, int64_t begin, int64_t end)
{
    fused_memory *m = ctx;
    const bench_pair *p = m->p;
    int from = m->side, to = 1 - from;
    const float *grads[RANKS];
    bool adam = p->c->rule == UPDATE_ADAM;

    for (int r = 0; r < RANKS; r++) grads[r] = array_of(p, r, 0) + begin;
    update_run r = {.s = &m->s, .n = end - begin, .grads = grads, .n_grads = RANKS};
    r.w = array_of(p, from, 1) + begin;
    r.w_new = array_of(p, to, 1) + begin;
    if (adam) {
        r.s0 = array_of(p, from, 2) + begin;
        r.s0_new = array_of(p, to, 2) + begin;
        r.s1 = array_of(p, from, 3) + begin;
        r.s1_new = array_of(p, to, 3) + begin;
    }
    m->k->update(&r);
    return MANTA_OK;
}

static manta_status fused_round(void *ctx, int i)
{
    fused_memory *m = ctx;

    m->side = i % 2;
    return manta_group_fused(m->p->g, m->p->c->n, update_range, m);
}

/* Some elements again, by the reference loops. */
static manta_status check_fused(const fused_memory *m, int rounds)
{
    float g[RANKS][CHECKED], s[3][CHECKED] = {{0}};
    const float *grads[RANKS] = {g[0], g[1]};
    int64_t at = m->p->c->n / 2;

    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < CHECKED; i++) g[r][i] = gradient_at(r, at + i);
    update_run run = {.s = &m->s, .n = CHECKED, .grads = grads, .n_grads = RANKS};
    run.w = run.w_new = s[0];
    if (m->s.rule == UPDATE_ADAM) {
        run.s0 = run.s0_new = s[1];
        run.s1 = run.s1_new = s[2];
    }
    for (int i = 0; i < rounds; i++) kernels_of(KERN_REFERENCE)->update(&run);
    const float *got = array_of(m->p, rounds % 2, 1) + at;
    for (int i = 0; i < CHECKED; i++)
        if (got[i] != s[0][i]) return manta_fail(MANTA_EINTERNAL, "the fused update that was timed is wrong");
    return MANTA_OK;
}

static manta_status time_fused(bench_pair *p)
{
    fused_memory m = {.p = p, .s = scalars_of(p->c->rule, RANKS), .k = best_kernels()};

    for (int k = 0; k < ARRAYS; k++)
        for (int64_t i = 0; i < p->c->n; i++) array_of(p, p->rank, k)[i] = k ? 0.0f : gradient_at(p->rank, i);
    TRY(manta_group_barrier(p->g));
    TRY(time_rounds(p, fused_round, &m));
    return check_fused(&m, p->c->rounds + WARM);
}

/* ---- the update by itself, as each rank does it after a plain all-reduce ---- */

typedef struct own_memory {
    update_run r;
    const kernels *k;
} own_memory;

static manta_status update_round(void *ctx, int i)
{
    own_memory *m = ctx;
    (void)i;

    m->k->update(&m->r);
    return MANTA_OK;
}

static manta_status time_update(bench_pair *p)
{
    update_scalars s = scalars_of(p->c->rule, RANKS);
    own_memory m = {.r = {.s = &s, .n = p->c->n, .n_grads = 1}, .k = best_kernels()};
    bool adam = p->c->rule == UPDATE_ADAM;
    float *a[ARRAYS] = {NULL};
    const float *grads[1];
    manta_status st = MANTA_OK;

    for (int k = 0; !st && k < (adam ? 4 : 2); k++) {
        st = mem_try_array(p->c->n, sizeof(float), "a vector", (void **)&a[k]);
        for (int64_t i = 0; !st && k == 0 && i < p->c->n; i++) a[k][i] = gradient_at(0, i);
    }
    grads[0] = a[0];
    m.r.grads = grads;
    m.r.w = m.r.w_new = a[1];
    if (adam) {
        m.r.s0 = m.r.s0_new = a[2];
        m.r.s1 = m.r.s1_new = a[3];
    }
    if (!st) st = time_rounds(p, update_round, &m);
    for (int k = 0; k < ARRAYS; k++) mem_try_free(a[k]);
    return st;
}

/* ---- a pass over as many bytes as the fused update reads and writes ---- */

static manta_status pass_round(void *ctx, int i)
{
    bench_pair *p = ctx;
    int64_t begin, end;
    int from = i % 2, to = 1 - from;

    manta_group_range(p->c->n, RANKS, p->rank, &begin, &end);
    const float *g0 = array_of(p, 0, 0), *g1 = array_of(p, 1, 0);
    for (int k = 1; k < (p->c->rule == UPDATE_ADAM ? ARRAYS : 2); k++) {
        const float *a = array_of(p, from, k);
        float *b = array_of(p, to, k);
        if (k == 1)
            for (int64_t j = begin; j < end; j++) b[j] = a[j] + g0[j] + g1[j];
        else
            for (int64_t j = begin; j < end; j++) b[j] = a[j] + 1.0f;
    }
    return MANTA_OK;
}

static manta_status time_pass(bench_pair *p)
{
    for (int64_t i = 0; i < ARRAYS * stride_of(p->c); i++) array_of(p, p->rank, 0)[i] = 0.0f;
    return time_rounds(p, pass_round, p);
}

/* ---- two processes ---- */

/* How the two meet; made before the fork. */
typedef struct bench_meeting {
    manta_group_plan *plan;
    int listener, pair[2];
    char address[64], key[64];
} bench_meeting;

static manta_status listen_here(bench_meeting *m)
{
    tcp_place here;
    int port;

    TRY(tcp_resolve("127.0.0.1:0", &here));
    TRY(tcp_listen(&here, &m->listener));
    TRY(tcp_port(m->listener, &port));
    snprintf(m->address, sizeof m->address, "127.0.0.1:%d", port);
    return MANTA_OK;
}

/* Two ends of a TCP connection. */
static manta_status connect_here(bench_meeting *m)
{
    tcp_place here;
    char from[TCP_TEXT];

    TRY(listen_here(m));
    TRY(tcp_resolve(m->address, &here));
    TRY(tcp_connect(&here, 0, &m->pair[1]));
    for (;;) {
        struct pollfd p = {.fd = m->listener, .events = POLLIN};
        (void)os->poll(&p, 1, 1000);
        manta_status st = tcp_accept(m->listener, &m->pair[0], from);
        if (st && st != MANTA_EBUSY) return st;
        if (!st) break;
    }
    os->close(m->listener);
    m->listener = -1;
    for (int i = 0; i < RANKS; i++) {
        tcp_tune(m->pair[i], 6000);
        tcp_widen(m->pair[i]);
    }
    return MANTA_OK;
}

static manta_status prepare_case(const bench_case *c, bench_meeting *m)
{
    if (c->implementation == MANTA_COMM_RING) {
        if (c->plain) TRY(connect_here(m));
        TRY(listen_here(m));
        snprintf(m->key, sizeof m->key, "/tmp/manta-bench-%d.key", (int)getpid());
        return key_make(m->key);
    }
    bool shared = c->what == FUSED || c->what == PASS;
    return manta_group_plan_new(
        RANKS,
        &(manta_group_options){.shared_bytes = shared ? (size_t)stride_of(c) * sizeof(float) * ARRAYS : 0},
        &m->plan);
}

static void clean_up(bench_meeting *m)
{
    manta_group_plan_free(m->plan);
    if (m->listener >= 0) os->close(m->listener);
    for (int i = 0; i < RANKS; i++)
        if (m->pair[i] >= 0) os->close(m->pair[i]);
    if (*m->key) (void)os->unlink(m->key);
}

static manta_status run_rank(const bench_case *c, const bench_meeting *m, int rank, double ms[2])
{
    bench_pair p = {.c = c, .rank = rank, .socket = m->pair[rank]};
    manta_status st = MANTA_OK;

    if (m->plan) {
        TRY(manta_group_join(m->plan, rank, &p.g));
    } else {
        manta_group_options o = {.implementation = c->implementation,
                                 .insecure_bulk = c->plain,
                                 .key_file = m->key,
                                 .listener = m->listener};
        TRY(manta_group_open(m->address, rank, RANKS, &o, &p.g));
    }
    switch (c->what) {
    case ALL_REDUCE: st = time_all_reduce(&p); break;
    case FUSED: st = time_fused(&p); break;
    case UPDATE_ALONE: st = time_update(&p); break;
    case PASS: st = time_pass(&p); break;
    }
    manta_group_close(p.g);
    ms[0] = p.ms;
    ms[1] = p.exchange_ms;
    return st;
}

/* The other rank, in a process of its own. */
typedef struct bench_other {
    const bench_case *c;
    const bench_meeting *m;
} bench_other;

static void run_other(void *ctx)
{
    const bench_other *o = ctx;
    double ms[2];

    _exit(run_rank(o->c, o->m, 1, ms) ? 1 : 0);
}

/* ms[0]: of the case; ms[1]: of the bare exchange beside it. */
static manta_status run_case(const bench_case *c, double ms[2])
{
    bench_meeting m = {.listener = -1, .pair = {-1, -1}};
    bench_other other = {.c = c, .m = &m};
    spawn_child child = {0};
    manta_status st = prepare_case(c, &m);

    if (!st)
        st = spawn_start(&(spawn_options){.run = run_other, .ctx = &other, .dies_with_parent = true}, &child);
    if (!st) st = run_rank(c, &m, 0, ms);
    if (st) spawn_signal(&child, SIGKILL);
    (void)spawn_wait(&child);
    clean_up(&m);
    return st;
}

/* ---- the rows ---- */

#define KI       ((int64_t)1024)
#define LARGE    ((int64_t)2779658) /* parameters of a ResNet-18 with a quarter of its channels */
#define VERY     ((int64_t)11181642) /* parameters of ResNet-18 */
#define SHM_ROWS MANTA_COMM_SHM, false
#define TCP_ROWS MANTA_COMM_RING, true
#define TLS_ROWS MANTA_COMM_RING, false

static const bench_case cases[] = {
    {ALL_REDUCE, "all-reduce", "shm", SHM_ROWS, 0, KI, 20000},
    {ALL_REDUCE, "all-reduce", "shm", SHM_ROWS, 0, 256 * KI, 500},
    {ALL_REDUCE, "all-reduce", "shm", SHM_ROWS, 0, LARGE, 60},
    {ALL_REDUCE, "all-reduce", "shm", SHM_ROWS, 0, VERY, 30},
    {FUSED, "all-reduce + sgd, fused", "shm", SHM_ROWS, UPDATE_SGD, LARGE, 60},
    {FUSED, "all-reduce + sgd, fused", "shm", SHM_ROWS, UPDATE_SGD, VERY, 30},
    {FUSED, "all-reduce + adam, fused", "shm", SHM_ROWS, UPDATE_ADAM, LARGE, 60},
    {FUSED, "all-reduce + adam, fused", "shm", SHM_ROWS, UPDATE_ADAM, VERY, 30},
    {PASS, "a pass over sgd's bytes", "shm", SHM_ROWS, UPDATE_SGD, LARGE, 60},
    {PASS, "a pass over sgd's bytes", "shm", SHM_ROWS, UPDATE_SGD, VERY, 30},
    {PASS, "a pass over adam's bytes", "shm", SHM_ROWS, UPDATE_ADAM, LARGE, 60},
    {PASS, "a pass over adam's bytes", "shm", SHM_ROWS, UPDATE_ADAM, VERY, 30},
    {UPDATE_ALONE, "sgd alone, each rank all", "shm", SHM_ROWS, UPDATE_SGD, LARGE, 60},
    {UPDATE_ALONE, "sgd alone, each rank all", "shm", SHM_ROWS, UPDATE_SGD, VERY, 30},
    {UPDATE_ALONE, "adam alone, each rank all", "shm", SHM_ROWS, UPDATE_ADAM, LARGE, 60},
    {UPDATE_ALONE, "adam alone, each rank all", "shm", SHM_ROWS, UPDATE_ADAM, VERY, 30},
    {ALL_REDUCE, "all-reduce", "tcp", TCP_ROWS, 0, KI, 2000},
    {ALL_REDUCE, "all-reduce", "tcp", TCP_ROWS, 0, 256 * KI, 200},
    {ALL_REDUCE, "all-reduce", "tcp", TCP_ROWS, 0, LARGE, 40},
    {ALL_REDUCE, "all-reduce", "tcp", TCP_ROWS, 0, VERY, 20},
    {ALL_REDUCE, "all-reduce", "tls", TLS_ROWS, 0, KI, 2000},
    {ALL_REDUCE, "all-reduce", "tls", TLS_ROWS, 0, 256 * KI, 200},
    {ALL_REDUCE, "all-reduce", "tls", TLS_ROWS, 0, LARGE, 40},
    {ALL_REDUCE, "all-reduce", "tls", TLS_ROWS, 0, VERY, 20},
};

static void tell_time(const bench_case *c, const char *name, double ms, manta_bench_comm_fn *row, void *user)
{
    manta_bench_comm_row r = {.floats = c->n, .ms = ms};

    snprintf(r.row, sizeof r.row, "%s", name);
    snprintf(r.over, sizeof r.over, "%s", c->over);
    r.gb_per_s = (double)c->n * (double)sizeof(float) / ms / 1e6;
    row(user, &r);
}

static bool is_wanted(const bench_case *c, const char *only)
{
    return !only || strstr(c->name, only) || strcmp(c->over, only) == 0;
}

manta_status manta_bench_comm(const char *only, int rounds, manta_bench_comm_fn *row, void *user)
{
    bool any = false;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench_case c = cases[i];
        double ms[2] = {0, 0};
        if (!is_wanted(&c, only)) continue;
        any = true;
        if (rounds > 0) c.rounds = rounds;
        TRY(run_case(&c, ms));
        tell_time(&c, c.name, ms[0], row, user);
        if (ms[1] > 0) tell_time(&c, "bare exchange", ms[1], row, user);
    }
    if (!any)
        return manta_fail(MANTA_EINVAL,
                          "bench comm: no row has '%s' in its name, nor is any over it (shm, tcp, tls)",
                          only);
    return MANTA_OK;
}
