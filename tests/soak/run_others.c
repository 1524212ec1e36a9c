/* run_others.c - kills, streams, queues, maps, groups and threads of a program; see run.h. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/context.h>
#include <manta/map.h>
#include <manta/queue.h>
#include <manta/stream.h>

#include "run.h"

static int number(const soak_op *op, soak_field f)
{
    return op->f[f] > 0 ? (int)op->f[f] : 1;
}

/* Work that is `n` things of op->result bytes. */
static soak_work plain_work(const soak_op *op, int key, int n)
{
    return (soak_work){.key = soak_mix((uint64_t)op->kind << 32 | (uint32_t)key),
                       .size = -1,
                       .result = op->f[SOAK_RESULT],
                       .results = 1,
                       .width = n};
}

static soak_expect plain_expect(const soak_work *w)
{
    soak_expect e = soak_expect_of(0);

    e.retries = 3;
    e.needs_core = true;
    e.tag = SOAK_PART(soak_work_sum(w, NULL, 0), 0);
    e.size = w->result;
    return e;
}

/* ---- kills ---- */

void soak_do_kill(soak_run *r, const soak_op *op)
{
    manta_node_info info;

    if (r->inside) return;
    if (manta_node_get(&info)) soak_wrong("the node says nothing: %s", manta_error_text());
    if (info.n_worker_pids == 0) return;
    kill(info.worker_pids[op->f[SOAK_N] % info.n_worker_pids], SIGKILL);
    r->kills++;
}

void soak_do_zygote(soak_run *r, const soak_op *op)
{
    manta_node_info info;

    (void)op;
    if (r->inside) return;
    if (manta_node_get(&info)) soak_wrong("the node says nothing: %s", manta_error_text());
    if (info.zygote_pid > 1) kill(info.zygote_pid, SIGKILL);
}

/* ---- streams ---- */

void soak_do_stream(soak_run *r, const soak_op *op)
{
    soak_slot *a = soak_slot_of(r, op, 0, SOAK_ACTORS), *s;
    int n = number(op, SOAK_N);
    soak_work w = plain_work(op, op->id, n);
    manta_task_options o = soak_call_options(r, op);
    manta_arg arg = manta_bytes(&w, sizeof w);

    w.sleep_us = (int32_t)op->f[SOAK_SLEEP];
    /* While a stream is not read the calls behind it wait, so there may be none of others. */
    if (op->n_args > 0 && (!a || a->is_streaming || a->has_others)) return;
    s = soak_slot_fill(r, op, SOAK_ITEMS, n);
    s->work = w;
    s->items = soak_expect_of(op->id);
    s->items.needs_core = !a && op->f[SOAK_CPUS] >= 0;
    s->items.retries = a ? SOAK_UNLIMITED : op->f[SOAK_RETRIES] <= -2 ? SOAK_UNLIMITED : 3;
    if (op->f[SOAK_RETRIES] == -1 && !a) s->items.retries = 0;
    if (op->f[SOAK_RETRIES] > 0 && !a) s->items.retries = (int)op->f[SOAK_RETRIES];
    if (a) {
        soak_expect_add(&s->items, &a->actor);
        if (a->is_ended) s->items.failures |= MANTA_ON(MANTA_EDIED);
        a->is_streaming = true;
        s->stream_of = op->args[0];
        s->stream = manta_actor_stream_start(a->actors[0], "soak_items", NULL, 1, &arg);
    } else {
        s->stream = manta_stream_start("soak_items", &o, 1, &arg);
    }
}

static void stream_over(soak_run *r, soak_slot *s)
{
    if (s->stream_of) r->slots[s->stream_of].is_streaming = false;
    soak_slot_clear(s);
}

void soak_do_next(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_ITEMS);

    if (!s) return;
    if (s->items.needs_core) soak_let_go(r);
    for (int64_t i = 0; i < number(op, SOAK_N); i++) {
        manta_ref ref;
        manta_status st = manta_stream_next(s->stream, &ref, MANTA_FOREVER);
        if (st == MANTA_ENOENT && s->taken != s->n)
            soak_wrong("a stream ends after %d items of %d", s->taken, s->n);
        if (st && st != MANTA_ENOENT) soak_check_failure(r, &s->items, st, "an item");
        if (st) {
            stream_over(r, s);
            return;
        }
        if (s->taken == s->n) soak_wrong("more than %d items", s->n);
        soak_expect e = s->items;
        e.tag = SOAK_PART(s->work.key, s->taken++);
        e.size = s->work.result;
        (void)soak_check(r, ref, &e, MANTA_FOREVER);
        manta_release(ref);
        if (op->f[SOAK_SLEEP]) usleep((useconds_t)op->f[SOAK_SLEEP]);
    }
}

void soak_do_close(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_ITEMS);

    if (s) stream_over(r, s);
}

/* ---- queues ---- */

static void check_item(soak_run *r, const soak_op *op, manta_ref ref, int64_t *next, int producers)
{
    const char *at;
    size_t n;
    int64_t who, i;
    soak_expect e = soak_expect_of(0);

    e.mortal = true;
    manta_status st = manta_get_bytes(ref, (const void **)&at, &n, MANTA_FOREVER);
    if (st) {
        soak_check_failure(r, &e, st, "an item of a queue");
        return;
    }
    if ((int64_t)n != op->f[SOAK_RESULT] + SOAK_ITEM_HEAD) soak_wrong("an item of %zu bytes", n);
    memcpy(&who, at, 8);
    memcpy(&i, at + 8, 8);
    if (who < 0 || who >= producers) soak_wrong("an item of producer %lld", (long long)who);
    if (i != next[who]++) soak_wrong("item %lld of producer %lld out of turn", (long long)i, (long long)who);
    soak_work w = plain_work(op, (int)who, number(op, SOAK_N));
    if (soak_digest_of(at + SOAK_ITEM_HEAD, w.result) != soak_digest(SOAK_PART(w.key, i), w.result))
        soak_wrong("other bytes in an item of a queue");
}

/* Whether a producer, or the queue, has failed, which it may. */
static bool has_failed(const soak_run *r, const manta_ref *producers, int n)
{
    soak_expect e = soak_expect_of(0);

    e.mortal = true;
    e.retries = 3;
    for (int i = 0; i < n; i++) {
        manta_status st = manta_get(producers[i], 0);
        if (!st || st == MANTA_ETIMEDOUT) continue;
        soak_check_failure(r, &e, st, "a producer");
        return true;
    }
    return false;
}

/* Takes all items; false when the queue or a producer has failed. */
static bool consume(soak_run *r, const soak_op *op, manta_queue q, const manta_ref *producers,
                    int n_producers)
{
    int64_t left = (int64_t)n_producers * number(op, SOAK_N), *next = calloc((size_t)n_producers, 8);
    soak_expect e = soak_expect_of(0);
    bool ok = true;

    e.mortal = true;
    while (ok && left > 0) {
        manta_ref ref;
        manta_status st = manta_queue_get(q, &ref, 200);
        if (st == MANTA_ETIMEDOUT) {
            ok = !has_failed(r, producers, n_producers);
            continue;
        }
        if (st) soak_check_failure(r, &e, st, "a queue");
        if (st) ok = false;
        if (st) continue;
        check_item(r, op, ref, next, n_producers);
        manta_release(ref);
        left--;
    }
    free(next);
    return ok;
}

void soak_do_queue(soak_run *r, const soak_op *op)
{
    enum { MOST = 8 };
    int n = number(op, SOAK_WIDTH) < MOST ? number(op, SOAK_WIDTH) : MOST;
    manta_ref producers[MOST];
    manta_queue q;
    soak_expect e = soak_expect_of(0);

    if (r->inside) return; /* who puts would wait for who takes */
    soak_let_go(r);
    e.mortal = true;
    e.retries = 3;
    manta_status st = manta_queue_new((size_t)op->f[SOAK_MOST], NULL, &q);
    if (st) soak_check_failure(r, &e, st, "a new queue");
    if (st) return;
    for (int i = 0; i < n; i++) {
        soak_work w = plain_work(op, i, number(op, SOAK_N));
        producers[i] =
            manta_remote(soak_produce, manta_handle(q.actor), manta_bytes(&w, sizeof w), manta_i64(i));
    }
    bool ok = consume(r, op, q, producers, n);
    for (int i = 0; ok && i < n; i++) {
        st = manta_get(producers[i], MANTA_FOREVER);
        if (st) soak_check_failure(r, &e, st, "a producer");
    }
    manta_release_all(producers, (size_t)n);
    manta_queue_release(q);
}

/* ---- maps ---- */

typedef struct inputs {
    const soak_op *op;
    soak_work work;
} inputs;

static manta_status next_input(void *user, size_t i, manta_arg *out)
{
    inputs *in = user;

    if (i == (size_t)number(in->op, SOAK_N)) return manta_fail(MANTA_ENOENT, "no more");
    in->work = plain_work(in->op, (int)i, 0);
    *out = manta_bytes(&in->work, sizeof in->work);
    return MANTA_OK;
}

void soak_do_map(soak_run *r, const soak_op *op)
{
    inputs in = {.op = op};
    manta_map_options o = {.chunk = (size_t)op->f[SOAK_MOST], .unordered = op->f[SOAK_HOW] & 1};
    manta_map *m;
    manta_ref ref;
    size_t i, taken = 0;
    manta_status st;

    if (o.chunk > 256) o.chunk = 256;
    soak_let_go(r);
    if (manta_map_start("soak_work_do", &o, next_input, &in, &m)) soak_wrong("map: %s", manta_error_text());
    while (!(st = manta_map_next(m, &i, &ref, MANTA_FOREVER))) {
        if (!o.unordered && i != taken) soak_wrong("result %zu in place of %zu", i, taken);
        soak_work w = plain_work(op, (int)i, 0);
        soak_expect e = plain_expect(&w);
        (void)soak_check(r, ref, &e, MANTA_FOREVER);
        manta_release(ref);
        taken++;
    }
    if (st != MANTA_ENOENT) soak_wrong("map: status %d: %s", st, manta_error_text());
    if (taken != (size_t)number(op, SOAK_N)) soak_wrong("%zu results of %d", taken, number(op, SOAK_N));
    manta_map_free(m);
}

/* ---- placement groups ---- */

/* n calls in the group; HOW: it is removed before they are waited for. */
static void call_in_group(soak_run *r, const soak_op *op, manta_placement_group g, double cpus)
{
    int n = number(op, SOAK_N);
    manta_task_options o = {.num_cpus = cpus, .placement_group = g};
    manta_ref *refs = calloc((size_t)n, sizeof *refs);

    for (int i = 0; i < n; i++) {
        soak_work w = plain_work(op, i, 0);
        w.sleep_us = (int32_t)op->f[SOAK_SLEEP];
        refs[i] = manta_remote_with(&o, soak_work_do, manta_bytes(&w, sizeof w));
    }
    r->ends++;
    if (op->f[SOAK_HOW]) manta_placement_group_remove(g);
    for (int i = 0; i < n; i++) {
        soak_work w = plain_work(op, i, 0);
        soak_expect e = plain_expect(&w);
        if (op->f[SOAK_HOW]) e.failures |= MANTA_ON(MANTA_ENOENT);
        (void)soak_check(r, refs[i], &e, MANTA_FOREVER);
    }
    manta_release_all(refs, (size_t)n);
    free(refs);
    manta_placement_group_remove(g);
}

void soak_do_group(soak_run *r, const soak_op *op)
{
    enum { MOST = 8 };
    manta_bundle bundles[MOST] = {0};
    int n = number(op, SOAK_WIDTH) < MOST ? number(op, SOAK_WIDTH) : MOST,
        free_cores = r->cores - r->actor_cores;
    int64_t each = op->f[SOAK_CPUS] > 0 ? op->f[SOAK_CPUS] : 100;
    manta_placement_group g;

    if (each * n > 100 * free_cores) each = 100 * free_cores / n;
    for (int i = 0; i < n; i++) bundles[i].num_cpus = (double)each / 100;
    if (op->f[SOAK_TOKENS]) bundles[0].resources = "token=1";
    soak_let_go(r);
    if (manta_placement_group_new(bundles, n, MANTA_PLACEMENT_PACK, NULL, &g) ||
        manta_placement_group_wait(g, MANTA_FOREVER))
        soak_wrong("a group: %s", manta_error_text());
    call_in_group(r, op, g, (double)each / 100);
}

/* ---- threads of the program ---- */

typedef struct thread_of {
    soak_run *run;
    const soak_op *op;
    int first;
} thread_of;

static void *call_from_thread(void *user)
{
    const thread_of *t = user;
    int n = number(t->op, SOAK_N);
    manta_ref *refs = calloc((size_t)n, sizeof *refs);

    for (int i = 0; i < n; i++) {
        soak_work w = plain_work(t->op, t->first + i, 0);
        refs[i] = manta_remote(soak_work_do, manta_bytes(&w, sizeof w));
    }
    for (int i = 0; i < n; i++) {
        soak_work w = plain_work(t->op, t->first + i, 0);
        soak_expect e = plain_expect(&w);
        e.needs_core = false; /* none is held */
        (void)soak_check(t->run, refs[i], &e, MANTA_FOREVER);
    }
    manta_release_all(refs, (size_t)n);
    free(refs);
    return NULL;
}

void soak_do_threads(soak_run *r, const soak_op *op)
{
    enum { MOST = 8 };
    int n = number(op, SOAK_WIDTH) < MOST ? number(op, SOAK_WIDTH) : MOST;
    pthread_t threads[MOST];
    thread_of of[MOST];

    soak_let_go(r);
    for (int i = 0; i < n; i++) {
        of[i] = (thread_of){r, op, i * 10000};
        if (pthread_create(&threads[i], NULL, call_from_thread, &of[i]))
            soak_wrong("a thread cannot be started");
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}
