/* rank_steps.h - what manta_fit() does, in a loop of one's own that several ranks run together: each takes its
 * rows of every batch, and a step is that of all. */
#ifndef TEST_RANK_STEPS_H
#define TEST_RANK_STEPS_H

#include "train/session/feed.h"
#include "train/session/position.h"
#include "train/session/session.h"

typedef struct rank_steps {
    manta_session *s;
    manta_loader *l; /* of all samples; the batches are those of all ranks together */
    int rank, ranks;
    void *who;
    manta_status (*step)(void *who, manta_session *s, const manta_feed *f);
    manta_status (*stepped)(void *who, manta_session *s, train_position next); /* NULL: nobody is told */
} rank_steps;

static inline manta_status rank_steps_epoch(const rank_steps *r, const feed_map *map, train_position at)
{
    manta_session *s = r->s;
    manta_batch b;

    position_set(layout_run(&s->l, s->state), at);
    if (!at.step) manta_session_reset_metrics(s);
    TRY(manta_loader_seek(r->l, at.epoch, at.step));
    while (manta_loader_next(r->l, &b)) {
        manta_feed f = feed_of(map, &b);
        int64_t lo = f.count * r->rank / r->ranks, hi = f.count * (r->rank + 1) / r->ranks;
        f = session_feed_rows(&f, lo, hi);
        f.first = lo;
        TRY(r->step(r->who, s, &f));
        at.step++;
        if (r->stepped) TRY(r->stepped(r->who, s, at));
    }
    return manta_loader_status(r->l);
}

/* From `at` on until so many epochs are done. */
static inline manta_status rank_steps_run(const rank_steps *r, train_position at, int64_t epochs)
{
    const manta_column_spec *columns;
    int n = manta_loader_columns(r->l, &columns);
    feed_map map;

    TRY(feed_map_init(&map, r->s->m, true, n, columns));
    for (; at.epoch < epochs; at = position_after_epoch(at)) TRY(rank_steps_epoch(r, &map, at));
    apply_average(&r->s->l, &r->s->opt, r->s->state);
    return MANTA_OK;
}

#endif
