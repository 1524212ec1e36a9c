/* cluster_feed.c - the samples of this rank's shards, read before they are needed.
 *
 * Every rank reads the rows of its own shards from its own copy of the data. Which these
 * are follows from place and rank alone, so a thread reads the next ones while the shard
 * at hand is computed (session/read_ahead.h). After a loss the cluster may go on at
 * another place: what was expected is then dropped, and read when it is asked for. */
#include "train/cluster/cluster.h"

/* Which pass over the data: every evaluation has the samples of the first, be it
 * repeated or cut short, as it has without a cluster. */
static int64_t data_epoch(const manta_cluster *c)
{
    return c->at.phase == CLUSTER_TRAIN ? c->at.epoch : 0;
}

manta_status cluster_count_samples(manta_cluster *c, int64_t *count)
{
    return feed_reader_count(c->readers[c->at.phase], data_epoch(c), c->at.step, count);
}

/* The step after `at` that reads this phase's data, of this epoch or the next; false: the
 * call has none. */
static bool next_step(const manta_cluster *c, train_position *at)
{
    if (++at->step < c->steps[c->at.phase]) return true;
    at->step = 0;
    if (c->at.phase == CLUSTER_TRAIN) return ++at->epoch < c->epochs;
    return c->at.epoch + 1 < c->epochs;
}

/* What this rank will read after `shard` of the step at hand, if nobody is lost. */
static void expect_next(manta_cluster *c, int64_t shard)
{
    const feed_source *f = c->readers[c->at.phase]->from;
    read_range next[READ_AHEAD_MOST], to = {.at = {data_epoch(c), c->at.step}, .hi = INT64_MAX};
    int64_t v = shard + 1, end = cluster_first_shard(c, c->rank + 1);
    int n = 0;

    if (f->batched) v = end; /* each step is read whole, and this one has been */
    for (int steps = 0; steps <= READ_AHEAD_MOST; steps++) { /* in some we may have no rows */
        for (; v < end && n < READ_AHEAD_MOST; v++) {
            int64_t count = f->batched ? 0 : feed_source_count(f, to.at.epoch, to.at.step);
            if (!f->batched) {
                to.lo = session_shard_begin(c->s, count, (int)v);
                to.hi = session_shard_begin(c->s, count, (int)v + 1);
            }
            if (to.lo < to.hi) next[n++] = to;
            if (f->batched) break;
        }
        if (n == READ_AHEAD_MOST || !next_step(c, &to.at)) break;
        v = cluster_first_shard(c, c->rank);
    }
    feed_reader_expect(c->readers[c->at.phase], next, n);
}

manta_status cluster_fetch_shard(manta_cluster *c, int64_t count, int shard, manta_feed *f)
{
    int64_t lo = session_shard_begin(c->s, count, shard), hi = session_shard_begin(c->s, count, shard + 1);

    TRY(feed_reader_rows(c->readers[c->at.phase], data_epoch(c), c->at.step, lo, hi, f));
    expect_next(c, shard);
    return session_check_feed(c->s, f, true);
}
