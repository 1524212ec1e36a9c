/* trainer_engine.c - the ranks of a trainer as an engine (engine.h): a loop that calls
 * manta_fit() on its session trains it together with the loops of the other ranks,
 * which do the same, each with data of its own. */
#include "train/session/session.h"
#include "train/trainer/trainer_worker.h"

static manta_worker *worker_of(const engine_call *c)
{
    return ((const worker_model *)c->e.ctx)->w;
}

/* Whether it has ended in any rank. */
static manta_status settle_epoch(engine_call *c, int64_t epoch, bool *stop, const char **why)
{
    double most = *stop ? 1 : 0;

    (void)epoch;
    TRY(worker_combine(worker_of(c), &most, 1, true));
    *stop = most > 0;
    *why = "another rank has ended it";
    return MANTA_OK;
}

static manta_status agree_to_stop(engine_call *c)
{
    const engine_watch *w = &c->watch;
    bool stop = w->stops(w->ctx);
    const char *why;

    TRY(settle_epoch(c, 0, &stop, &why));
    if (stop && !w->stops(w->ctx)) w->stop(w->ctx, why);
    return MANTA_OK;
}

/* Steps that all ranks take together: as many as the one that has most. */
static manta_status train_epoch(engine_call *c, int64_t epoch, int64_t first, int64_t *done)
{
    const engine_watch *w = &c->watch;
    feed_pass *p = c->train;
    double most = (double)p->steps;
    int64_t at, seek = p->steps >= 0 && first > p->steps ? p->steps : first;
    bool more = true;

    *done = first;
    TRY(worker_combine(worker_of(c), &most, 1, true));
    if (p->steps < 0)
        return manta_fail(MANTA_EINVAL,
                          "the length of the data must be known to train with other ranks: give "
                          "steps_per_epoch");
    TRY(manta_loader_seek(p->reader.loader, epoch, seek));
    for (int64_t step = first; step < (int64_t)most; step++) {
        manta_feed f = {0};
        if (more) TRY(feed_pass_next(p, step, &f, &at, &more));
        if (!more) f = (manta_feed){0};
        TRY(agree_to_stop(c));
        if (w->stops(w->ctx)) break;
        TRY(w->begins(w->ctx, PLAN_TRAIN, step));
        f.first = worker_first(worker_of(c), p->reader.loader);
        TRY(manta_worker_train_step(worker_of(c), c->s, &f));
        *done = step + 1;
        TRY(w->done(w->ctx, PLAN_TRAIN, step));
    }
    return MANTA_OK;
}

/* Within a fit validation is everybody's, also of a rank that has no data. */
static manta_status evaluate_data(engine_call *c, int64_t epoch, int64_t *steps)
{
    TRY(engine_evaluate_here(c, epoch, steps));
    if (!c->train) return MANTA_OK;
    if (!*steps) *steps = 1;
    return worker_combine(worker_of(c), c->s->eval_sums, c->s->l.n_sums + 1, false);
}

const engine_ops engine_ranks = {
    .train = train_epoch, .evaluate = evaluate_data, .settle = settle_epoch, .close = worker_model_free};
