/* generate.c - the program of a seed.
 *
 * A program is of one sort, which decides its node and which operations it may have: most
 * are plain, so that each of their results must come; others have kills, few files, a small
 * store, or no other process. Sizes are log-uniform, and often beside a threshold. */
#include <string.h>

#include "program.h"

/* ---- numbers ---- */

/* Sizes at which the runtime changes its ways: inside a message or in a segment (8,192),
 * arguments inside one message (16,000), the longest message (32 KiB), copies without the
 * lock (64 KiB), a ring (128 KiB), the first segment (1 MiB) and the largest (64 MiB). The
 * values have heads of their own, so sizes some bytes below count too. */
static const int64_t thresholds[] = {8,        64,        4096,    8192,    16000,   32 << 10,
                                     64 << 10, 128 << 10, 1 << 20, 4 << 20, 64 << 20};

static int64_t log_uniform(uint64_t *s, int64_t most)
{
    int bits = 0;

    while (most >> bits) bits++;
    int64_t x = (int64_t)1 << soak_below(s, bits);
    x += soak_below(s, x);
    return x > most ? most : x;
}

static int64_t size_within(uint64_t *s, int64_t most)
{
    int64_t at = thresholds[soak_below(s, sizeof thresholds / sizeof thresholds[0])];

    switch (soak_below(s, 4)) {
    case 0: return 0;
    case 1: at += soak_below(s, 3) - 1; break;
    case 2: at -= soak_below(s, 200); break;
    default: at = log_uniform(s, most);
    }
    return at < 0 ? 0 : at > most ? most : at;
}

static bool one_in(uint64_t *s, int64_t n)
{
    return soak_below(s, n) == 0;
}

/* ---- operations ---- */

typedef struct maker {
    uint64_t s; /* of the random numbers */
    soak_program *p;
    int next_id;
    int64_t bytes_left; /* that the rest of the program may move */
    int64_t most_size; /* of one object */
    bool kills, inside, small, few_files;
    int values[SOAK_SLOTS], n_values; /* slots by what they hold */
    int calls[SOAK_SLOTS], n_calls;
    int actors[SOAK_SLOTS], n_actors;
    int streams[SOAK_SLOTS], n_streams;
} maker;

static int any(maker *m, const int *of, int n)
{
    /* The last ones more often. */
    int64_t back = log_uniform(&m->s, n) - 1;

    return of[n - 1 - (back < n ? back : n - 1)];
}

static soak_op *add_op(maker *m, soak_kind kind)
{
    soak_op *op = &m->p->op[m->p->n++];

    *op = (soak_op){.kind = kind};
    if (soak_kind_fills(kind)) op->id = m->next_id++;
    return op;
}

static void add_arg(soak_op *op, int slot)
{
    if (op->n_args < SOAK_ARGS) op->args[op->n_args++] = slot;
}

/* How many calls of so many bytes each. */
static int64_t count_within(maker *m, int64_t bytes, int64_t most)
{
    int64_t share = m->bytes_left / 4;
    int64_t n = log_uniform(&m->s, most);

    if (bytes > 0 && n * bytes > share) n = share / bytes;
    if (n < 1) n = 1;
    m->bytes_left -= n * bytes;
    return n;
}

static int64_t size_left(maker *m)
{
    int64_t most = m->bytes_left / 4;

    if (most > m->most_size) most = m->most_size;
    return size_within(&m->s, most < 64 ? 64 : most);
}

/* Sizes, numbers and values of calls and methods. */
static void fill_call(maker *m, soak_op *op, int64_t most)
{
    op->f[SOAK_SIZE] = one_in(&m->s, 2) ? size_left(m) : soak_below(&m->s, 64);
    op->f[SOAK_RESULT] = one_in(&m->s, 2) ? size_left(m) : soak_below(&m->s, 64);
    if (one_in(&m->s, 5)) {
        op->f[SOAK_DEPTH] = 1 + soak_below(&m->s, 3);
        op->f[SOAK_WIDTH] = 1 + soak_below(&m->s, 4);
        if (op->f[SOAK_SIZE] > 10000) op->f[SOAK_SIZE] %= 10000;
        if (op->f[SOAK_RESULT] > 10000) op->f[SOAK_RESULT] %= 10000;
        most = 8;
    }
    if (one_in(&m->s, 8)) op->f[SOAK_REFS] = 1 + log_uniform(&m->s, op->f[SOAK_RESULT] > 1000 ? 8 : 300);
    op->f[SOAK_N] = count_within(m, op->f[SOAK_SIZE] + op->f[SOAK_RESULT] * (op->f[SOAK_REFS] + 1), most);
    if (op->f[SOAK_REFS] * op->f[SOAK_N] > 500) op->f[SOAK_N] = 500 / op->f[SOAK_REFS];
    if (one_in(&m->s, 4)) op->f[SOAK_SLEEP] = log_uniform(&m->s, op->f[SOAK_N] > 50 ? 200 : 5000);
    if (one_in(&m->s, 12)) op->f[SOAK_FAIL] = 1;
    op->f[SOAK_HOW] = soak_below(&m->s, 8);
    while (m->n_values > 0 && op->n_args < SOAK_ARGS && one_in(&m->s, 2))
        add_arg(op, any(m, m->values, m->n_values));
    if (m->kills) op->f[SOAK_RETRIES] = soak_below(&m->s, 2) ? -2 : 0;
}

static void add_put(maker *m)
{
    soak_op *op = add_op(m, SOAK_PUT);

    op->f[SOAK_SIZE] = size_left(m);
    op->f[SOAK_HOW] = soak_below(&m->s, 2);
    m->bytes_left -= op->f[SOAK_SIZE];
    m->values[m->n_values++] = op->id;
}

static void add_call(maker *m)
{
    soak_op *op = add_op(m, SOAK_CALL);

    fill_call(m, op, 400);
    if (one_in(&m->s, 6)) op->f[SOAK_RESULTS] = 2 + soak_below(&m->s, 4);
    if (one_in(&m->s, 4)) op->f[SOAK_CPUS] = one_in(&m->s, 3) ? -1 : 25 * (1 + soak_below(&m->s, 8));
    if (op->f[SOAK_CPUS] < 0 && op->f[SOAK_N] > 30) op->f[SOAK_N] = 30; /* each is a process */
    if (one_in(&m->s, 6)) op->f[SOAK_TOKENS] = 1 + soak_below(&m->s, 3);
    m->values[m->n_values++] = op->id;
    m->calls[m->n_calls++] = op->id;
}

static void add_actor(maker *m)
{
    soak_op *op = add_op(m, SOAK_ACTOR);

    op->f[SOAK_N] = one_in(&m->s, 6) ? 33 + soak_below(&m->s, 16) : log_uniform(&m->s, 6);
    op->f[SOAK_PARALLEL] = one_in(&m->s, 3) ? 2 + soak_below(&m->s, 6) : 0;
    op->f[SOAK_NAMED] = one_in(&m->s, 3);
    op->f[SOAK_CPUS] = one_in(&m->s, 4) ? 50 : 0;
    if (one_in(&m->s, 3)) op->f[SOAK_RESTARTS] = op->f[SOAK_RETRIES] = -2;
    m->actors[m->n_actors++] = op->id;
    if (one_in(&m->s, 2)) add_arg(add_op(m, SOAK_READY), op->id);
}

static void add_method(maker *m)
{
    soak_op *op = add_op(m, SOAK_METHOD);

    add_arg(op, any(m, m->actors, m->n_actors));
    fill_call(m, op, 200);
    m->values[m->n_values++] = op->id;
    m->calls[m->n_calls++] = op->id;
}

static void add_via(maker *m)
{
    soak_op *op = add_op(m, SOAK_VIA);

    add_arg(op, any(m, m->actors, m->n_actors));
    op->f[SOAK_RESULT] = size_within(&m->s, 40000);
    op->f[SOAK_WIDTH] = count_within(m, op->f[SOAK_RESULT], 60);
    op->f[SOAK_N] = 1 + soak_below(&m->s, 4);
    m->values[m->n_values++] = op->id;
}

static void add_stream(maker *m)
{
    soak_op *op = add_op(m, SOAK_STREAM);

    op->f[SOAK_RESULT] = size_left(m);
    op->f[SOAK_N] = count_within(m, op->f[SOAK_RESULT], 60);
    if (one_in(&m->s, 4)) op->f[SOAK_SLEEP] = log_uniform(&m->s, 1000);
    if (m->n_actors > 0 && one_in(&m->s, 3)) add_arg(op, any(m, m->actors, m->n_actors));
    m->streams[m->n_streams++] = op->id;
}

/* ---- what is done with them ---- */

static void use_value(maker *m)
{
    static const soak_kind kinds[] = {SOAK_GET, SOAK_GET, SOAK_GET, SOAK_WAIT, SOAK_WAIT, SOAK_DROP};
    soak_op *op = add_op(m, kinds[soak_below(&m->s, 6)]);

    add_arg(op, any(m, m->values, m->n_values));
    if (one_in(&m->s, 3)) op->f[SOAK_TIMEOUT] = log_uniform(&m->s, 20);
    if (op->kind == SOAK_WAIT) op->f[SOAK_MOST] = log_uniform(&m->s, 100);
    if (op->kind == SOAK_GET) op->f[SOAK_HOW] = soak_below(&m->s, 3);
}

static void use_call(maker *m)
{
    soak_op *op = add_op(m, SOAK_CANCEL);

    add_arg(op, any(m, m->calls, m->n_calls));
    op->f[SOAK_HOW] = soak_below(&m->s, 4);
}

static void use_actor(maker *m)
{
    static const soak_kind kinds[] = {SOAK_READY, SOAK_COUNT, SOAK_COUNT,      SOAK_FIND, SOAK_FIND,
                                      SOAK_END,   SOAK_LEAVE, SOAK_KILL_ACTOR, SOAK_READY};
    soak_op *op = add_op(m, kinds[soak_below(&m->s, 9)]);

    add_arg(op, any(m, m->actors, m->n_actors));
    if (op->kind == SOAK_KILL_ACTOR) op->f[SOAK_HOW] = soak_below(&m->s, 2);
    if (op->kind == SOAK_READY && one_in(&m->s, 4)) op->f[SOAK_TIMEOUT] = log_uniform(&m->s, 20);
}

static void use_stream(maker *m)
{
    soak_op *op = add_op(m, one_in(&m->s, 4) ? SOAK_CLOSE : SOAK_NEXT);

    add_arg(op, any(m, m->streams, m->n_streams));
    if (op->kind == SOAK_NEXT) op->f[SOAK_N] = log_uniform(&m->s, 60);
    if (op->kind == SOAK_NEXT && one_in(&m->s, 3)) op->f[SOAK_SLEEP] = log_uniform(&m->s, 2000);
}

/* What stands alone. */
static void add_alone(maker *m)
{
    static const soak_kind kinds[] = {SOAK_QUEUE, SOAK_MAP, SOAK_GROUP, SOAK_HOLD, SOAK_HOLD, SOAK_THREADS};
    soak_op *op = add_op(m, kinds[soak_below(&m->s, 6)]);

    op->f[SOAK_WIDTH] = 1 + soak_below(&m->s, 4);
    op->f[SOAK_RESULT] = one_in(&m->s, 2) ? size_within(&m->s, 40000) : soak_below(&m->s, 64);
    op->f[SOAK_N] = count_within(m, op->f[SOAK_RESULT] * op->f[SOAK_WIDTH], 100);
    if (op->kind == SOAK_QUEUE || op->kind == SOAK_MAP) op->f[SOAK_MOST] = soak_below(&m->s, 20);
    if (op->kind == SOAK_GROUP || op->kind == SOAK_MAP) op->f[SOAK_HOW] = soak_below(&m->s, 2);
    if (op->kind == SOAK_GROUP) op->f[SOAK_CPUS] = 50 * (1 + soak_below(&m->s, 4));
    if (op->kind == SOAK_GROUP) op->f[SOAK_TOKENS] = soak_below(&m->s, 2);
    if (op->kind != SOAK_HOLD) return;
    memset(op->f, 0, sizeof op->f);
    op->f[SOAK_N] = 1 + soak_below(&m->s, 6);
}

static void add_any(maker *m)
{
    int64_t k = soak_below(&m->s, m->kills ? 26 : 22);

    if (k < 2) add_put(m);
    if (k >= 2 && k < 7) add_call(m);
    if (k >= 7 && k < 9) add_actor(m);
    if (k >= 9 && k < 12 && m->n_actors > 0) add_method(m);
    if (k == 12 && m->n_actors > 0) add_via(m);
    if (k == 13) add_stream(m);
    if (k >= 14 && k < 17 && m->n_values > 0) use_value(m);
    if (k == 17 && m->n_calls > 0) use_call(m);
    if (k == 18 && m->n_actors > 0) use_actor(m);
    if (k == 19 && m->n_streams > 0) use_stream(m);
    if (k >= 20 && k < 22) add_alone(m);
    if (k >= 22 && k < 25) add_op(m, SOAK_KILL)->f[SOAK_N] = soak_below(&m->s, 64);
    if (k == 25) add_op(m, SOAK_ZYGOTE);
}

static void add_node(maker *m)
{
    soak_op *node = add_op(m, SOAK_NODE);
    int64_t sort = soak_below(&m->s, 20);

    node->f[SOAK_CPUS] = 1 + soak_below(&m->s, 4);
    node->f[SOAK_TOKENS] = 1 + soak_below(&m->s, 4);
    if (node->f[SOAK_CPUS] > 1) node->f[SOAK_ACTOR_CPUS] = soak_below(&m->s, 2);
    m->kills = sort >= 10 && sort < 14;
    m->small = sort == 14 || sort == 15;
    m->inside = sort == 16;
    node->f[SOAK_INSIDE] = m->inside;
    m->few_files = sort == 17;
    if (m->few_files) node->f[SOAK_FILES] = 100 + soak_below(&m->s, 200);
    if (m->small) node->f[SOAK_STORE] = 1024 << soak_below(&m->s, 5);
    if (m->small && one_in(&m->s, 2)) node->f[SOAK_SPILL] = 1024 << soak_below(&m->s, 5);
    m->bytes_left = one_in(&m->s, 40) ? 280 << 20 : 16 << 20; /* a quarter may be one object */
    m->most_size = m->bytes_left;
    /* More than the store holds, in parts that are far from filling it: each call that finds it full
     * waits for seconds, and rightly. */
    if (m->small) m->bytes_left = node->f[SOAK_STORE] << 12;
    if (m->small) m->most_size = node->f[SOAK_STORE] << 6;
}

void soak_program_make(soak_program *p, uint64_t seed)
{
    maker m = {.s = soak_mix(seed), .p = p, .next_id = 1};

    p->n = 0;
    add_node(&m);
    int n = 3 + (int)soak_below(&m.s, SOAK_OPS - 6);
    while (p->n < n && m.next_id < SOAK_SLOTS - 1) add_any(&m);
}
