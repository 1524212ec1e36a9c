/* engine.c - what all engines have in common, and the one that is this process. */
#include "train/session/engine.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/option.h"
#include "os/cpu.h"
#include "train/session/session.h"

/* ---- calls ---- */

engine engine_for(const manta_session *s, plan_mode mode)
{
    if (mode == PLAN_PREDICT || s->busy) return (engine){.ops = &engine_local};
    return s->engine;
}

engine_reading engine_reads(const manta_session *s, plan_mode mode)
{
    const engine_ops *ops = engine_for(s, mode).ops;

    return mode == PLAN_TRAIN ? ops->reads_training : ops->reads_evaluation;
}

manta_status engine_begin(engine_call *c)
{
    TRY(option_or_none("worker_deadline_ms", c->worker_deadline_ms));
    if (c->max_failures < 0)
        return manta_fail(MANTA_EINVAL, "max_failures is %d, expected 0 or more", c->max_failures);
    c->e = engine_for(c->s, c->train ? PLAN_TRAIN : PLAN_EVALUATE);
    c->nested = c->s->busy;
    c->s->busy = true;
    return c->e.ops->begin ? c->e.ops->begin(c) : MANTA_OK;
}

manta_status engine_finish(engine_call *c, manta_status st)
{
    return c->e.ops && c->e.ops->finish ? c->e.ops->finish(c, st) : st;
}

void engine_end(engine_call *c)
{
    if (!c->e.ops) return;
    if (c->e.ops->end) c->e.ops->end(c);
    c->s->busy = c->nested;
    c->e.ops = NULL;
}

manta_status engine_tell(const engine_call *c, worker_events *q)
{
    manta_status first = MANTA_OK;
    worker_event e;

    while (worker_events_take(q, &e)) {
        manta_status st = c->watch.worker_event(c->watch.ctx, &e, e.cause);
        if (!first) first = st;
    }
    return first;
}

void engine_reset_sums(const manta_session *s)
{
    memset(s->eval_sums, 0, ((size_t)s->l.n_sums + 1) * sizeof(double));
}

/* ---- this process ---- */

/* What it has trained: manta_worker_work's, over the life of the session. */
typedef struct local_work {
    int64_t samples, busy_ns, data_ns;
} local_work;

static manta_status open_here(const manta_session_options *o, engine_share *out, void **ctx)
{
    int threads = o->threads > 0 ? o->threads : cpu_cores();

    *out = (engine_share){
        .shards = o->shards > 0 ? o->shards : 1, .threads = threads, .here = threads, .replicas = 1};
    *ctx = mem_new(sizeof(local_work));
    return MANTA_OK;
}

static void close_here(void *ctx)
{
    mem_free(ctx);
}

static bool work_here(const void *ctx, int rank, manta_worker_work *out)
{
    const local_work *w = ctx;

    if (rank != 0) return false;
    *out = (manta_worker_work){
        .samples = w->samples, .seconds = (double)w->busy_ns / 1e9, .data_seconds = (double)w->data_ns / 1e9};
    return true;
}

/* A step has been done: its samples were asked for at `begin`, and were there at `read`. */
static void count_work(local_work *w, int64_t samples, int64_t begin, int64_t read)
{
    w->samples += samples;
    w->busy_ns += clock_now_ns() - begin;
    w->data_ns += read - begin;
}

static manta_status train_here(engine_call *c, int64_t epoch, int64_t first, int64_t *done)
{
    const engine_watch *w = &c->watch;
    local_work *work = c->e.ctx;
    manta_feed f;
    int64_t at;
    bool more;

    *done = first;
    TRY(manta_loader_seek(c->train->reader.loader, epoch, first));
    for (int64_t step = first; !w->stops(w->ctx); step++) {
        int64_t begin = clock_now_ns(), read;
        TRY(feed_pass_next(c->train, step, &f, &at, &more));
        read = clock_now_ns();
        if (!more) return MANTA_OK;
        TRY(w->begins(w->ctx, PLAN_TRAIN, step));
        TRY(manta_session_step(c->s, &f));
        if (work) count_work(work, f.count, begin, read); /* a call from within another's event has none */
        *done = step + 1;
        TRY(w->done(w->ctx, PLAN_TRAIN, step));
    }
    return MANTA_OK;
}

manta_status engine_evaluate_here(engine_call *c, int64_t epoch, int64_t *steps)
{
    const engine_watch *w = &c->watch;
    manta_feed f;
    int64_t first;
    bool more;

    (void)epoch;
    engine_reset_sums(c->s);
    TRY(manta_loader_seek(c->evaluate->reader.loader, 0, 0));
    for (*steps = 0;; (*steps)++) {
        TRY(feed_pass_next(c->evaluate, *steps, &f, &first, &more));
        if (!more) return MANTA_OK;
        TRY(w->begins(w->ctx, PLAN_EVALUATE, *steps));
        TRY(manta_session_evaluate_step(c->s, &f));
        TRY(w->done(w->ctx, PLAN_EVALUATE, *steps));
    }
}

const engine_ops engine_local = {.open = open_here,
                                 .close = close_here,
                                 .work = work_here,
                                 .train = train_here,
                                 .evaluate = engine_evaluate_here};
