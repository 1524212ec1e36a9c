/* trainer_meet.c - what the ranks of a trainer do together: meetings, sums, and
 * the steps of a model whose gradients are added up. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "os/file.h"
#include "os/sys.h"
#include "os/thread.h"
#include "train/session/feed.h"
#include "train/session/session.h"
#include "train/trainer/trainer_worker.h"

/* A slot: how many samples stand behind it, numbers, then gradients or statistics. */
typedef struct slot_head {
    double count;
    double numbers[TRAINER_NUMBERS];
} slot_head;

/* ---- meetings ---- */

static manta_status reserve(const manta_worker *w, off_t at, size_t n)
{
    int rc;

    do rc = os->fallocate(w->mem.fd, 0, at, (off_t)n);
    while (rc && errno == EINTR);
    return rc ? file_fail(errno, "reserving", "memory for gradients") : MANTA_OK;
}

/* What was mapped before stays until there is more. */
static manta_status map_slot(manta_worker *w, int rank, int turn, size_t n)
{
    slot *s = &w->slots[rank][turn];
    off_t at = (off_t)trainer_slot_at(w->mem.world, rank, turn);
    void *fresh;

    if (rank == w->t.rank) TRY(reserve(w, at, n));
    fresh = os->mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, w->mem.fd, at);
    if (fresh == MAP_FAILED) return manta_fail(MANTA_ENOMEM, "mapping %zu bytes for gradients", n);
    if (s->at) os->munmap(s->at, s->size);
    *s = (slot){fresh, n};
    return MANTA_OK;
}

/* Maps the slots so that each holds n bytes. The own ones are reserved: memory
 * that is not there is an error now, not a signal later. */
static manta_status map_slots(manta_worker *w, size_t n)
{
    if (n > TRAINER_SLOT) return manta_fail(MANTA_EUNSUPPORTED, "gradients of %zu bytes", n);
    n = trainer_round_up(n);
    if (n <= w->slot_size) return MANTA_OK;
    for (int rank = 0; rank < w->t.world; rank++) {
        for (int turn = 0; turn < 2; turn++) TRY(map_slot(w, rank, turn, n));
    }
    w->slot_size = n;
    return MANTA_OK;
}

/* Of the meeting that comes next. */
static slot_head *own_slot(manta_worker *w)
{
    return (slot_head *)(void *)w->slots[w->t.rank][(w->meetings + 1) & 1].at;
}

/* A rank's slot of the meeting just held; NULL: it did not come. */
static slot_head *slot_of(manta_worker *w, int rank)
{
    if (atomic_load(&w->mem.c->ranks[rank].meetings) < w->meetings) return NULL;
    return (slot_head *)(void *)w->slots[rank][w->meetings & 1].at;
}

/* Whether this rank has come to meeting k, or never will. */
static bool is_settled(const trainer_rank *r, uint64_t k)
{
    return atomic_load(&r->meetings) >= k || atomic_load(&r->state) == RANK_ENDED;
}

/* Comes to the next meeting with what is in the own slot, and waits for all. */
static manta_status meet(manta_worker *w)
{
    trainer_control *c = w->mem.c;
    uint64_t k = ++w->meetings;
    int64_t spin_until = clock_now_ns() + 100000;

    atomic_store(&c->ranks[w->t.rank].meetings, k);
    atomic_fetch_add(&c->meeting, 1);
    futex_wake(&c->meeting, INT_MAX, true);
    for (int i = 0; i < w->t.world;) {
        uint32_t seen = atomic_load(&c->meeting);
        if (is_settled(&c->ranks[i], k)) {
            i++;
            continue;
        }
        TRY(worker_is_over(w));
        if (clock_now_ns() > spin_until) {
            (void)futex_wait(&c->meeting, seen, clock_now_ns() + 20000000, true);
        } else {
            sched_yield();
        }
    }
    return MANTA_OK;
}

manta_status manta_worker_barrier(manta_worker *w)
{
    TRY(map_slots(w, sizeof(slot_head)));
    return meet(w);
}

/* Adds up, or takes the greatest of, n numbers over the ranks. */
manta_status worker_combine(manta_worker *w, double *values, int n, bool greatest)
{
    bool first = true;

    if (n < 0 || n > TRAINER_NUMBERS) {
        return manta_fail(MANTA_EINVAL, "%d numbers to add up, expected up to %d", n, TRAINER_NUMBERS);
    }
    TRY(map_slots(w, sizeof(slot_head)));
    memcpy(own_slot(w)->numbers, values, (size_t)n * sizeof *values);
    TRY(meet(w));
    for (int rank = 0; rank < w->t.world; rank++) {
        const slot_head *h = slot_of(w, rank);
        if (!h) continue;
        for (int i = 0; i < n; i++) {
            if (first) {
                values[i] = h->numbers[i];
            } else {
                values[i] = greatest ? fmax(values[i], h->numbers[i]) : values[i] + h->numbers[i];
            }
        }
        first = false;
    }
    return MANTA_OK;
}

manta_status manta_worker_sum(manta_worker *w, double *values, int n)
{
    return worker_combine(w, values, n, false);
}

/* The size first: who comes with another would read what is not there. */
manta_status manta_worker_broadcast(manta_worker *w, void *data, size_t n)
{
    const slot_head *chief;
    bool same = true;

    TRY(map_slots(w, sizeof(slot_head)));
    own_slot(w)->numbers[0] = (double)n;
    TRY(meet(w));
    for (int rank = 0; rank < w->t.world; rank++) {
        const slot_head *h = slot_of(w, rank);
        same = same && (!h || h->numbers[0] == (double)n);
    }
    if (!same)
        return manta_fail(MANTA_EINVAL, "a broadcast of %zu bytes: other ranks expect another size", n);
    TRY(map_slots(w, n < TRAINER_SLOT ? sizeof(slot_head) + n : n));
    if (w->t.rank == 0 && n) memcpy(own_slot(w) + 1, data, n);
    TRY(meet(w));
    chief = slot_of(w, 0);
    if (!chief) return manta_fail(MANTA_EDIED, "a broadcast: rank 0 has ended its loop");
    if (w->t.rank && n) memcpy(data, chief + 1, n);
    return MANTA_OK;
}

/* ---- the model ---- */

manta_status worker_step(manta_worker *w, manta_session *s, const manta_feed *f)
{
    manta_feed own = *f;

    own.first = f->first * w->t.world + w->t.rank; /* chance is another in each rank */
    return manta_worker_train_step(w, s, &own);
}

/* Bytes of a slot: gradients, or statistics. */
static size_t slot_room(const manta_session *s)
{
    int64_t n = manta_session_params(s), stats = s->l.stats_size;

    return sizeof(slot_head) + (size_t)(n > stats ? n : stats) * sizeof(float);
}

manta_status manta_prepare_model(manta_worker *w, const manta_model *m, const manta_compile *c,
                                 const manta_session_options *o, manta_session **out)
{
    manta_session_options so = o ? *o : (manta_session_options){.seed = w->t.seed};
    manta_session *s;
    manta_status st;

    so.workers = so.shards = 1;
    so.no_fusion = true; /* gradients must come to memory to be added up */
    if (!so.threads) so.threads = w->t.threads;
    TRY(manta_session_open(m, c, &so, &s));
    st = map_slots(w, slot_room(s));
    if (!st && w->checkpoint) {
        st = manta_session_from_checkpoint(s, w->checkpoint, false);
        w->restored = !st;
        if (st == MANTA_ENOENT) st = MANTA_OK; /* a checkpoint of the loop's own files */
    }
    if (st) {
        manta_session_close(s);
        return st;
    }
    s->engine = (engine){.ops = &engine_ranks, .ctx = w};
    worker_saves_expect(w, s);
    *out = s;
    return MANTA_OK;
}

static manta_status own_gradients(manta_worker *w, manta_session *s, const manta_feed *f)
{
    slot_head *h = own_slot(w);
    float *g = (float *)(void *)(h + 1);
    double loss;

    h->count = 0;
    if (!f || f->count < 1) return MANTA_OK;
    TRY(manta_session_loss(s, f, &loss));
    TRY(manta_session_backward(s, f));
    TRY(manta_session_gradients(s, g));
    h->count = (double)f->count;
    return MANTA_OK;
}

/* The mean over all samples of the ranks' mean gradients. */
static double add_gradients(manta_worker *w, int64_t n)
{
    double total = 0;

    for (int rank = 0; rank < w->t.world; rank++) {
        const slot_head *h = slot_of(w, rank);
        total += h ? h->count : 0;
    }
    memset(w->sum, 0, (size_t)n * sizeof *w->sum);
    for (int rank = 0; total > 0 && rank < w->t.world; rank++) {
        const slot_head *h = slot_of(w, rank);
        const float *g;
        float share;
        if (!h || h->count <= 0) continue;
        g = (const float *)(const void *)(h + 1);
        share = (float)(h->count / total);
        for (int64_t i = 0; i < n; i++) w->sum[i] += share * g[i];
    }
    return total;
}

/* Statistics, as batch norm keeps them, are the samples' mean over ranks. */
static manta_status share_statistics(manta_worker *w, manta_session *s, double count)
{
    int64_t n = s->l.stats_size;
    float *stats = layout_stats(&s->l, s->state);
    slot_head *h = own_slot(w);
    double total = 0;

    if (!n) return MANTA_OK;
    h->count = count;
    memcpy(h + 1, stats, (size_t)n * sizeof *stats);
    TRY(meet(w));
    for (int rank = 0; rank < w->t.world; rank++) {
        const slot_head *o = slot_of(w, rank);
        total += o ? o->count : 0;
    }
    if (total <= 0) return MANTA_OK;
    memset(stats, 0, (size_t)n * sizeof *stats);
    for (int rank = 0; rank < w->t.world; rank++) {
        const slot_head *o = slot_of(w, rank);
        const float *v;
        if (!o || o->count <= 0) continue;
        v = (const float *)(const void *)(o + 1);
        for (int64_t i = 0; i < n; i++) stats[i] += (float)(o->count / total) * v[i];
    }
    s->touched = true;
    return MANTA_OK;
}

manta_status manta_worker_train_step(manta_worker *w, manta_session *s, const manta_feed *f)
{
    int64_t n = manta_session_params(s);
    double total, count = f ? (double)f->count : 0;

    TRY(worker_is_over(w));
    if (n > w->n_gradients) {
        mem_try_free(w->sum);
        w->sum = NULL;
        w->n_gradients = 0;
        TRY(mem_try_array(n, sizeof *w->sum, "the gradients of all ranks", (void **)&w->sum));
        w->n_gradients = n;
    }
    TRY(map_slots(w, slot_room(s)));
    TRY(own_gradients(w, s, f));
    TRY(meet(w));
    total = add_gradients(w, n);
    if (total <= 0) return MANTA_OK;
    TRY(manta_session_apply(s, w->sum));
    return share_statistics(w, s, count);
}

manta_status manta_worker_metrics(manta_worker *w, const manta_session *s, manta_metrics *m)
{
    double sums[TRAINER_NUMBERS];
    int n = s->l.n_sums + 1;

    if (n > TRAINER_NUMBERS) return manta_fail(MANTA_EUNSUPPORTED, "%d sums of metrics", n);
    memcpy(sums, s->evaluated ? s->eval_sums : session_sums(s), (size_t)n * sizeof *sums);
    TRY(worker_combine(w, sums, n, false));
    memset(m, 0, sizeof *m);
    session_metrics_of(s, sums, "", m);
    return MANTA_OK;
}

manta_status manta_worker_evaluate(manta_worker *w, manta_session *s, manta_dataset *d,
                                   const manta_fit_options *o, manta_metrics *m)
{
    if (d && manta_dataset_count(d) != 0) {
        TRY(manta_evaluate(s, d, o, NULL));
    } else {
        memset(s->eval_sums, 0, ((size_t)s->l.n_sums + 1) * sizeof *s->eval_sums);
        s->evaluated = true;
    }
    return manta_worker_metrics(w, s, m);
}

manta_status manta_worker_train_epoch(manta_worker *w, manta_session *s, manta_loader *l, int64_t epoch,
                                      manta_metrics *m)
{
    const manta_column_spec *columns;
    int n_columns = manta_loader_columns(l, &columns);
    int64_t first = epoch == manta_worker_epoch(w) ? manta_worker_step(w) : 0;
    double steps = (double)manta_loader_steps(l);
    feed_map map;

    TRY(feed_map_init(&map, manta_session_model(s), true, n_columns, columns));
    TRY(worker_combine(w, &steps, 1, true));
    if (steps < 0)
        return manta_fail(MANTA_EINVAL, "the length of the data is not known: drive the steps yourself");
    TRY(manta_loader_seek(l, epoch, first < manta_loader_steps(l) ? first : manta_loader_steps(l)));
    manta_session_reset_metrics(s);
    for (int64_t step = first; step < (int64_t)steps; step++) {
        manta_feed f = {0};
        manta_batch b;
        if (step < manta_loader_steps(l)) {
            if (manta_loader_next(l, &b)) {
                f = feed_of(&map, &b);
            } else {
                TRY(manta_loader_status(l));
                b.first = 0;
            }
            f.first = b.first * w->t.world + w->t.rank; /* chance is another in each rank */
        }
        TRY(manta_worker_train_step(w, s, &f));
    }
    return m ? manta_worker_metrics(w, s, m) : MANTA_OK;
}
