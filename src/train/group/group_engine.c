/* group_engine.c - the workers of one host as an engine (session/engine.h): which of them there are
 * for a session, and group.h's calls in the order that fit wants.
 *
 *     open, memory      the session's: crew, shared memory, of which the state is buffer 0
 *       begin           forks the workers (group_open()), before this process has threads
 *         train         group_begin() opens the steps of an epoch; group_follow() returns when there
 *                       is something to tell, which is every step only when somebody must see every
 *                       one (every_step()): else the workers go on by themselves
 *         evaluate      the same workers, with the other feed
 *       end             group_close()
 *
 * An epoch that the watch ends early is cut: the workers stay for the validation, unless the step
 * that they had begun has failed; then they are closed and others are forked.
 *
 * What a step is and what happens when a worker dies is group.c's; nothing of it is decided here. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "os/cpu.h"
#include "train/group/group.h"
#include "train/session/lockstep.h"

/* Of a call. */
typedef struct group_job {
    feed_source feeds[2]; /* training first, if there is any */
    int n;
    group *g; /* NULL: closed, since training has ended early and nothing is to be evaluated */
} group_job;

/* ---- with the session ---- */

static manta_status open_crew(const manta_session_options *o, engine_share *out, void **ctx)
{
    int cores = cpu_cores(), n = o->workers, threads = o->threads;
    group_crew *crew;

    if (threads <= 0) threads = cores > n ? cores / n : 1;
    *out = (engine_share){
        .shards = o->shards > 0 ? o->shards : n, .threads = threads, .here = threads * n, .replicas = n};
    if (n > SHARED_WORKERS)
        return manta_fail(MANTA_EINVAL, "%d workers, expected 1 to %d", n, SHARED_WORKERS);
    if (o->min_workers > n)
        return manta_fail(MANTA_EINVAL, "min_workers is %d, expected at most %d, the number of workers",
                          o->min_workers, n);
    if (out->shards < n)
        return manta_fail(MANTA_EINVAL, "%d shards for %d workers, expected one or more for each worker",
                          out->shards, n);
    snprintf(out->about, sizeof out->about, "%d workers of ", n);
    crew = mem_new(sizeof *crew);
    *crew = (group_crew){
        .workers = n, .least = o->min_workers > 0 ? o->min_workers : n, .wanted = n, .threads = threads};
    *ctx = crew;
    return MANTA_OK;
}

static manta_status make_memory(void *ctx, const manta_session *s, void **state)
{
    group_crew *crew = ctx;

    TRY(shared_new(&s->l, s->a.n_segments, s->meets ? lockstep_size(s->m, s->shards) : 0, crew->workers,
                   s->shards, apply_needs_norms(&s->a), &crew->memory));
    *state = shared_buffer(crew->memory, 0);
    return MANTA_OK;
}

static void close_crew(void *ctx)
{
    group_crew *crew = ctx;

    if (crew) shared_free(crew->memory);
    mem_free(crew);
}

static manta_status resize_crew(void *ctx, int workers)
{
    group_crew *crew = ctx;

    if (workers < crew->least || workers > crew->workers)
        return manta_fail(MANTA_EINVAL, "%d workers, expected %d to %d", workers, crew->least, crew->workers);
    crew->wanted = workers;
    return MANTA_OK;
}

static int workers_wanted(const void *ctx)
{
    return ((const group_crew *)ctx)->wanted;
}

static double seconds_of(const _Atomic int64_t *ns)
{
    return (double)atomic_load_explicit(ns, memory_order_relaxed) / 1e9;
}

static bool work_of(const void *ctx, int rank, manta_worker_work *out)
{
    const control *c = ((const group_crew *)ctx)->memory->c;
    const shared_worker *w;

    if (rank < 0 || rank >= c->workers) return false;
    w = &c->worker[rank];
    out->samples = atomic_load_explicit(&w->samples, memory_order_relaxed);
    out->seconds = seconds_of(&w->busy_ns);
    out->data_seconds = seconds_of(&w->data_ns);
    out->update_seconds = seconds_of(&w->update_ns);
    out->wait_seconds = seconds_of(&w->wait_ns);
    return true;
}

/* ---- a call ---- */

static manta_status fork_workers(engine_call *c)
{
    group_options o = {.deadline_ms = c->worker_deadline_ms, .max_failures = c->max_failures};
    group_job *j = c->job;

    TRY(group_open(c->s, j->feeds, j->n, &o, &j->g));
    return engine_tell(c, group_worker_events(j->g));
}

static manta_status begin_fit(engine_call *c)
{
    group_job *j = mem_new(sizeof *j);

    if (c->train) j->feeds[j->n++] = c->train->source;
    if (c->evaluate) j->feeds[j->n++] = c->evaluate->source;
    c->job = j;
    return fork_workers(c);
}

static void end_fit(engine_call *c)
{
    group_job *j = c->job;

    if (j) group_close(j->g);
    mem_free(j);
    c->job = NULL;
}

/* Tells what happened to workers until so many steps were done. */
static manta_status tell_workers(engine_call *c, int64_t steps)
{
    const group_job *j = c->job;

    c->watch.reached(c->watch.ctx, steps - 1);
    return engine_tell(c, group_worker_events(j->g));
}

/* The watch has ended the epoch. Validation is the same workers', unless the step that
 * they had begun has failed, which is of no interest any more. */
static manta_status end_early(engine_call *c)
{
    group_job *j = c->job;

    if (c->evaluate && !group_cut(j->g)) return MANTA_OK;
    group_close(j->g);
    j->g = NULL;
    return c->evaluate ? fork_workers(c) : MANTA_OK;
}

/* The workers are held up between two steps only when somebody must see every one. */
static manta_status train_epoch(engine_call *c, int64_t epoch, int64_t first, int64_t *done)
{
    const engine_watch *w = &c->watch;
    group_job *j = c->job;
    int64_t steps = c->train->steps;

    *done = first;
    if (first >= steps) return MANTA_OK;
    TRY(w->begins(w->ctx, PLAN_TRAIN, first));
    group_begin(j->g, 0, epoch, first, steps, w->every_step(w->ctx, PLAN_TRAIN));
    for (int64_t at = first; at < steps;) {
        TRY(group_follow(j->g, w->next_look(w->ctx), &at));
        TRY(tell_workers(c, at));
        *done = at;
        TRY(w->done(w->ctx, PLAN_TRAIN, at - 1));
        if (w->stops(w->ctx) && at < steps) return end_early(c);
        if (at < steps) TRY(w->begins(w->ctx, PLAN_TRAIN, at));
        group_next(j->g);
    }
    return MANTA_OK;
}

static manta_status evaluate_data(engine_call *c, int64_t epoch, int64_t *steps)
{
    const engine_watch *w = &c->watch;
    manta_session *s = c->s;
    group_job *j = c->job;
    int64_t all = c->evaluate->steps;

    (void)epoch; /* every evaluation has the samples of the first pass */
    *steps = 0;
    engine_reset_sums(s);
    if (!all) return MANTA_OK;
    TRY(w->begins(w->ctx, PLAN_EVALUATE, 0));
    group_begin(j->g, j->n - 1, 0, 0, all, w->every_step(w->ctx, PLAN_EVALUATE));
    while (*steps < all) {
        TRY(group_follow(j->g, w->next_look(w->ctx), steps));
        memcpy(s->eval_sums, group_eval_sums(j->g), ((size_t)s->l.n_sums + 1) * sizeof(double));
        TRY(tell_workers(c, *steps));
        TRY(w->done(w->ctx, PLAN_EVALUATE, *steps - 1));
        if (*steps < all) TRY(w->begins(w->ctx, PLAN_EVALUATE, *steps));
        group_next(j->g);
    }
    return MANTA_OK;
}

const engine_ops engine_group = {.reads_training = ENGINE_READS_ELSEWHERE,
                                 .reads_evaluation = ENGINE_READS_ELSEWHERE,
                                 .forks = true,
                                 .open = open_crew,
                                 .memory = make_memory,
                                 .close = close_crew,
                                 .resize = resize_crew,
                                 .workers = workers_wanted,
                                 .work = work_of,
                                 .begin = begin_fit,
                                 .train = train_epoch,
                                 .evaluate = evaluate_data,
                                 .end = end_fit};
