/* strategy_step.c - one step of data-parallel training by the replicas of a strategy. */
#include <string.h>

#include <manta/strategy.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"
#include "comm/reduce.h"
#include "train/session/session.h"
#include "train/trainer/strategy_memory.h"

enum { TILES = 1 << 20 }; /* bytes of all replicas' tiles together */

/* The replicas that have samples in a step, in the order of ranks. Those without are no
 * leaves of the tree: a zero in its place would shift the pairs of all others. */
typedef struct turnout {
    int n, rank[MANTA_GROUP_MAX];
} turnout;

static manta_status count_turnout(manta_replica *r, bool samples, turnout *t)
{
    uint8_t mine = samples, all[MANTA_GROUP_MAX];

    TRY(manta_group_all_gather(r->g, &mine, all, 1, MANTA_DTYPE_U8));
    t->n = 0;
    for (int i = 0; i < r->s->n; i++) {
        if (all[i]) t->rank[t->n++] = i;
    }
    return t->n ? MANTA_OK
                : manta_fail(MANTA_EINVAL, "a training step: none of %d replicas has samples, expected one",
                             r->s->n);
}

/* Some have no samples: all parts come to everybody, tile by tile, and the tree is that of
 * those who have. That is n times the bytes, in the few steps that end an epoch. */
static manta_status add_tiles(manta_replica *r, const turnout *t, char *at, int64_t n, manta_dtype type)
{
    size_t size = manta_dtype_size(type);
    int64_t tile = (int64_t)(TILES / size) / r->s->n;
    const void *from[MANTA_GROUP_MAX];
    char *all = mem_new(TILES);
    manta_status st = MANTA_OK;

    for (int64_t done = 0; done < n && !st; done += tile) {
        int64_t k = n - done < tile ? n - done : tile;
        char *part = at + (size_t)done * size;
        for (int i = 0; i < t->n; i++) from[i] = all + (size_t)(t->rank[i] * k) * size;
        if (!(st = manta_group_all_gather(r->g, part, all, k, type)))
            reduce_run(type, MANTA_REDUCE_SUM, from, t->n, part, k);
    }
    mem_free(all);
    return st;
}

/* n numbers become their sum over the replicas that have samples, by the shard tree. */
static manta_status add_parts(manta_replica *r, const turnout *t, void *at, int64_t n, manta_dtype type)
{
    if (t->n == r->s->n) return manta_group_all_reduce(r->g, at, at, n, type, MANTA_REDUCE_SUM);
    return add_tiles(r, t, at, n, type);
}

/* Statistics that the replicas propose: their mean, or what the first one says. */
static manta_status settle_statistics(manta_replica *r, const turnout *t, manta_session *s)
{
    const layout *l = &s->l;
    float *stats = layout_slot_stats(l, s->slots[0]);

    if (!l->stats_size) return MANTA_OK;
    if (s->statistics == MANTA_STATISTICS_FIRST)
        return manta_group_broadcast(r->g, stats, l->stats_size, MANTA_DTYPE_F32, t->rank[0]);
    TRY(add_parts(r, t, stats, l->stats_size, MANTA_DTYPE_F32));
    for (int64_t i = 0; i < l->stats_size; i++) stats[i] /= (float)t->n;
    return MANTA_OK;
}

/* The slot becomes that of all replicas: what one process has after it has added the
 * slots of as many shards. */
static manta_status add_slots(manta_replica *r, manta_session *s, bool samples)
{
    const layout *l = &s->l;
    void *slot = s->slots[0];
    turnout t;

    TRY(count_turnout(r, samples, &t));
    TRY(add_parts(r, &t, layout_slot_sums(l, slot), l->n_sums, MANTA_DTYPE_F64));
    TRY(add_parts(r, &t, layout_slot_grads(l, slot), l->params_size, MANTA_DTYPE_F32));
    return settle_statistics(r, &t, s);
}

manta_status manta_replica_train_step(manta_replica *r, manta_session *s, const manta_feed *f)
{
    REFUSE_NULL(r);
    REFUSE_NULL(s);

    bool samples = f && f->count > 0;
    double loss;

    TRY(session_local(s));
    if (samples) {
        TRY(manta_session_loss(s, f, &loss));
        TRY(manta_session_backward(s, f));
    } else {
        memset(s->slots[0], 0, s->l.slot_size);
    }
    TRY(add_slots(r, s, samples));
    s->used[0] = s->slots[0];
    s->n_used = 1;
    s->phase = SESSION_BACKWARD;
    return manta_session_apply(s, NULL);
}
