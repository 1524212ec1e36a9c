/* trainer_worker.c - a worker of a trainer: what its loop can call.
 *
 * The loop runs as a method of an actor. What it reports goes to a ring; what
 * it adds up with others, through slots (trainer_shared.h). Waiting ends with
 * what was waited for, or when the driver says that the attempt is over. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <manta/task.h>

#include "base/clock.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "os/file.h"
#include "os/sys.h"
#include "os/thread.h"
#include "train/checkpoint.h"
#include "train/feed.h"
#include "train/fitting.h"
#include "train/trainer_shared.h"

enum { MOST_DATASETS = 16, MOST_COLUMNS = 16 };

typedef struct slot {
    char *at;
    size_t size;
} slot;

struct manta_worker {
    trainer_task t;
    const void *config;
    size_t config_size;
    trainer_memory mem;
    slot slots[TRAINER_RANKS][2];
    size_t slot_size; /* bytes mapped of each */
    uint64_t meetings;
    int64_t rounds, parts, temps;
    manta_checkpoint *checkpoint;
    int n_datasets;
    trainer_dataset datasets[MOST_DATASETS];
    manta_array columns[MOST_DATASETS][MOST_COLUMNS];
    const float *flat; /* scratch of train_step */
    float *gradients, *sum;
    int64_t n_gradients;
};

/* A slot: how many samples stand behind it, numbers, then gradients. */
typedef struct slot_head {
    double count;
    double numbers[TRAINER_NUMBERS];
} slot_head;

static trainer_ring *ring_of(const manta_worker *w)
{
    return &w->mem.rings[w->t.rank];
}

static manta_status is_over(const manta_worker *w)
{
    if (!atomic_load(&w->mem.c->over)) return MANTA_OK;
    return manta_fail(MANTA_EDIED, "another worker of the run is gone, or the run has ended");
}

/* ---- what a loop may ask ---- */

int manta_worker_rank(const manta_worker *w)
{
    return w->t.rank;
}

int manta_worker_world_size(const manta_worker *w)
{
    return w->t.world;
}

int manta_worker_local_rank(const manta_worker *w)
{
    return w->t.rank; /* one host */
}

int manta_worker_local_world_size(const manta_worker *w)
{
    return w->t.world;
}

int manta_worker_node_rank(const manta_worker *w)
{
    (void)w;
    return 0;
}

const char *manta_worker_run_name(const manta_worker *w)
{
    return w->t.name;
}

const char *manta_worker_storage(const manta_worker *w)
{
    return w->t.run;
}

int manta_worker_attempt(const manta_worker *w)
{
    return w->t.attempt;
}

const void *manta_worker_config(const manta_worker *w, size_t *size)
{
    if (size) *size = w->config_size;
    return w->config;
}

const manta_checkpoint *manta_worker_checkpoint(const manta_worker *w)
{
    return w->checkpoint;
}

int64_t manta_worker_epoch(const manta_worker *w)
{
    return w->checkpoint ? manta_checkpoint_get(w->checkpoint)->epoch : 0;
}

int64_t manta_worker_step(const manta_worker *w)
{
    return w->checkpoint ? manta_checkpoint_get(w->checkpoint)->step : 0;
}

bool manta_worker_should_stop(const manta_worker *w)
{
    return atomic_load(&w->mem.c->stop) != 0;
}

/* ---- reports ---- */

static void wake_driver(manta_worker *w)
{
    trainer_control *c = w->mem.c;

    atomic_fetch_add(&c->pulse, 1);
    if (atomic_load(&c->driver_asleep)) futex_wake(&c->pulse, 1, true);
}

static manta_status send_report(manta_worker *w, const manta_metrics *m, trainer_report head)
{
    trainer_ring *r = ring_of(w);
    uint64_t at = atomic_load_explicit(&r->written, memory_order_relaxed);
    trainer_report *to = &r->at[at % TRAINER_RING];

    if (m && (m->n < 0 || m->n > MANTA_MAX_METRICS)) {
        return manta_fail(MANTA_EINVAL, "a report of %d metrics, expected up to %d", m->n, MANTA_MAX_METRICS);
    }
    /* Full: the driver is behind. Nothing is dropped, and no rank is waited for. */
    while (at - atomic_load_explicit(&r->taken, memory_order_acquire) >= TRAINER_RING) {
        uint32_t seen = atomic_load(&w->mem.c->meeting);
        TRY(is_over(w));
        wake_driver(w);
        (void)futex_wait(&w->mem.c->meeting, seen, clock_now_ns() + 1000000, true);
    }
    to->kind = head.kind;
    to->round = head.round;
    to->epoch = head.epoch;
    to->step = head.step;
    to->iterations = head.iterations;
    to->has_files = head.has_files;
    to->n = m ? m->n : 0;
    for (int i = 0; i < to->n; i++) {
        to->value[i] = m->value[i];
        memcpy(to->name[i], m->name[i], sizeof to->name[i]);
        to->name[i][sizeof to->name[i] - 1] = '\0';
    }
    atomic_store_explicit(&r->written, at + 1, memory_order_release);
    /* Metrics can wait for the driver's next look, a few milliseconds away. */
    if (head.kind != REPORT_METRICS) wake_driver(w);
    return is_over(w);
}

manta_status manta_report(manta_worker *w, const manta_metrics *m)
{
    return send_report(w, m, (trainer_report){.kind = REPORT_METRICS});
}

manta_status manta_worker_temp_folder(manta_worker *w, char **out)
{
    char *path =
        mem_printf("%s/.parts/temp-%d.%d.%lld", w->t.run, w->t.rank, w->t.attempt, (long long)w->temps++);
    manta_status st = file_mkdirs(path);

    if (!st) *out = strdup(path);
    mem_free(path);
    return st;
}

/* Moves the folder to where the driver finds it. */
static manta_status hand_over(const manta_worker *w, const char *folder, int64_t round)
{
    char *to = trainer_part(w->t.run, round, w->t.rank);
    manta_status st = file_remove_tree(to); /* of an attempt that failed */

    if (st == MANTA_ENOENT) st = MANTA_OK;
    if (!st) st = file_rename(folder, to);
    mem_free(to);
    return st;
}

static trainer_report report_of(report_kind kind, int64_t round, const manta_checkpoint_info *info)
{
    trainer_report r = {.kind = kind, .round = round};

    if (info) {
        r.epoch = info->epoch;
        r.step = info->step;
        r.iterations = info->iterations;
    }
    return r;
}

manta_status manta_report_checkpoint(manta_worker *w, const manta_metrics *m, const char *folder,
                                     const manta_checkpoint_info *info)
{
    trainer_report r = report_of(REPORT_PART, w->parts++, info);
    char *copy = NULL;
    manta_status st = MANTA_OK;

    r.has_files = folder != NULL;
    if (folder && (st = hand_over(w, folder, r.round)) && st != MANTA_ENOENT) {
        /* From another file system: by way of a checkpoint's own mover. */
        manta_error why;
        manta_error_get(&why);
        if ((st = manta_worker_temp_folder(w, &copy))) goto out;
        if ((st = trainer_move_files(folder, copy))) goto out;
        st = hand_over(w, copy, r.round);
    }
    if (!st) st = send_report(w, m, r);
out:
    free(copy);
    return st;
}

/* Rank 0 writes what `fill` says into a folder and hands it over. */
typedef manta_status fill_fn(const char *folder, const void *ctx);

static manta_status report_chief(manta_worker *w, const manta_metrics *m, const manta_checkpoint_info *info,
                                 fill_fn *fill, const void *ctx)
{
    trainer_report r = report_of(REPORT_CHIEF, -1 - w->rounds, info);
    char *folder;
    manta_status st;

    if (w->t.rank) return manta_report(w, m);
    w->rounds++;
    r.has_files = true;
    TRY(manta_worker_temp_folder(w, &folder));
    if (!(st = fill(folder, ctx)) && !(st = hand_over(w, folder, r.round))) st = send_report(w, m, r);
    free(folder);
    return st;
}

static manta_status fill_session(const char *folder, const void *ctx)
{
    const manta_session *s = ctx;
    blobs none = {0};
    file_sum sum;

    return checkpoint_write_state(s, s->state, &none, folder, &sum);
}

manta_status manta_report_session(manta_worker *w, const manta_metrics *m, const manta_session *s,
                                  int64_t epoch, int64_t step)
{
    manta_checkpoint_info info = {.epoch = epoch, .step = step, .iterations = manta_session_iterations(s)};

    return report_chief(w, m, &info, fill_session, s);
}

typedef struct array_list {
    int n;
    const manta_column *at;
} array_list;

static manta_status fill_arrays(const char *folder, const void *ctx)
{
    const array_list *l = ctx;
    char *path = mem_printf("%s/" CHECKPOINT_STATE, folder);
    manta_status st = safetensors_write(path, l->n, l->at, 0, NULL);

    mem_free(path);
    return st;
}

manta_status manta_report_arrays(manta_worker *w, const manta_metrics *m, int n, const manta_column *arrays,
                                 int64_t epoch, int64_t step)
{
    manta_checkpoint_info info = {.epoch = epoch, .step = step};
    array_list l = {n, arrays};

    return report_chief(w, m, &info, fill_arrays, &l);
}

/* ---- a callback that reports ---- */

typedef struct reporter {
    manta_worker *w;
    int64_t every;
} reporter;

static manta_status reporter_epoch(void *self, manta_fitting *f)
{
    reporter *r = self;

    if (manta_worker_should_stop(r->w)) manta_fitting_stop(f, "the run is to end");
    if (r->every && ((f->epoch + 1) % r->every == 0 || f->stop))
        return manta_report_session(r->w, f->logs, f->s, f->epoch + 1, 0);
    return manta_report(r->w, f->logs);
}

static const manta_callback_ops reporter_ops = {
    .name = "report_checkpoint", .epoch_end = reporter_epoch, .free = mem_free};

manta_callback *manta_report_callback(manta_worker *w, int64_t checkpoint_every)
{
    reporter *r = mem_new(sizeof *r);

    r->w = w;
    r->every = checkpoint_every;
    return manta_callback_new(&reporter_ops, r);
}

/* ---- meetings ---- */

/* Maps the slots so that each holds n bytes. The own ones are reserved: memory
 * that is not there is an error now, not a signal later. */
static manta_status map_slots(manta_worker *w, size_t n)
{
    n = trainer_round_up(n);
    if (n <= w->slot_size) return MANTA_OK;
    if (n > TRAINER_SLOT) return manta_fail(MANTA_EUNSUPPORTED, "gradients of %zu bytes", n);
    for (int rank = 0; rank < w->t.world; rank++) {
        for (int turn = 0; turn < 2; turn++) {
            slot *s = &w->slots[rank][turn];
            off_t at = (off_t)trainer_slot_at(w->t.world, rank, turn);
            if (rank == w->t.rank && os->fallocate(w->mem.fd, 0, at, (off_t)n))
                return file_fail(errno, "reserving", "memory for gradients");
            if (s->at) os->munmap(s->at, s->size);
            s->at = os->mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, w->mem.fd, at);
            s->size = n;
            if (s->at == MAP_FAILED) {
                s->at = NULL;
                return manta_fail(MANTA_ENOMEM, "mapping %zu bytes for gradients", n);
            }
        }
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
        TRY(is_over(w));
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
static manta_status combine(manta_worker *w, double *values, int n, bool greatest)
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
    return combine(w, values, n, false);
}

/* ---- data ---- */

static manta_status find_dataset(const manta_worker *w, const char *name, int *out)
{
    for (int i = 0; i < w->n_datasets; i++) {
        if (strcmp(w->datasets[i].name, name) != 0) continue;
        *out = i;
        return MANTA_OK;
    }
    return manta_fail(MANTA_ENOENT, "the trainer was given no dataset called '%s'", name);
}

/* All of it, as this rank gets it, not divided yet. */
static manta_status open_dataset(manta_worker *w, int i, manta_dataset **out)
{
    const trainer_dataset *d = &w->datasets[i];
    manta_column columns[MOST_COLUMNS];

    if (d->make) {
        *out = d->make(w, d->user);
        return *out ? manta_dataset_status(*out)
                    : manta_fail(MANTA_EINVAL, "the function that makes dataset '%s' gave none", d->name);
    }
    if (*d->spec) return manta_dataset_open(d->spec, NULL, out);
    for (int k = 0; k < d->n_columns; k++) columns[k] = (manta_column){d->columns[k], w->columns[i][k]};
    *out = manta_dataset_arrays(d->n_columns, columns, MANTA_BORROW);
    return manta_dataset_status(*out);
}

static bool is_divided(const trainer_dataset *d)
{
    return !d->whole && !d->make;
}

manta_status manta_worker_dataset(manta_worker *w, const char *name, manta_dataset **out)
{
    manta_dataset *d;
    int i = 0;

    TRY(find_dataset(w, name, &i));
    TRY(open_dataset(w, i, &d));
    if (w->datasets[i].shuffle) d = manta_dataset_shuffle(d, 0, w->t.seed);
    if (is_divided(&w->datasets[i])) d = manta_dataset_shard(d, w->t.world, w->t.rank);
    *out = d;
    return manta_dataset_status(d);
}

manta_status manta_prepare_loader(manta_worker *w, const char *name, const manta_loader_options *o,
                                  manta_loader **out, int64_t *steps)
{
    manta_loader_options lo = o ? *o : (manta_loader_options){0};
    manta_dataset *d = NULL;
    double most;
    int i = 0;
    manta_status st;

    TRY(find_dataset(w, name, &i));
    TRY(open_dataset(w, i, &d));
    if (is_divided(&w->datasets[i]) && !manta_dataset_is_batched(d)) {
        lo.sampler = MANTA_SAMPLER_DISTRIBUTED;
        lo.replicas = w->t.world;
        lo.rank = w->t.rank;
        lo.shuffle = w->datasets[i].shuffle;
        lo.seed = w->t.seed;
    } else {
        if (w->datasets[i].shuffle) d = manta_dataset_shuffle(d, 0, w->t.seed);
        if (is_divided(&w->datasets[i])) d = manta_dataset_shard(d, w->t.world, w->t.rank);
    }
    st = manta_loader_open(d, &lo, out);
    manta_dataset_unref(d);
    if (st) return st;
    most = (double)manta_loader_steps(*out);
    if ((st = combine(w, &most, 1, true))) {
        manta_loader_close(*out);
        *out = NULL;
        return st;
    }
    if (steps) *steps = (int64_t)most;
    return MANTA_OK;
}

/* ---- the model ---- */

static manta_status peers_step(void *ctx, manta_session *s, const manta_feed *f)
{
    manta_worker *w = ctx;
    manta_feed own = *f;

    own.first = f->first * w->t.world + w->t.rank; /* chance is another in each rank */
    return manta_worker_train_step(w, s, &own);
}

static manta_status peers_most(void *ctx, double *value)
{
    return combine(ctx, value, 1, true);
}

static manta_status peers_sum(void *ctx, double *values, int n)
{
    return combine(ctx, values, n, false);
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
    st =
        map_slots(w, sizeof(slot_head) + (size_t)(manta_session_params(s) + s->l.stats_size) * sizeof(float));
    if (!st && w->checkpoint) {
        st = manta_session_from_checkpoint(s, w->checkpoint, false);
        if (st == MANTA_ENOENT) st = MANTA_OK; /* a checkpoint of the loop's own files */
    }
    if (st) {
        manta_session_close(s);
        return st;
    }
    s->peers = (session_peers){w, peers_step, peers_most, peers_sum};
    *out = s;
    return MANTA_OK;
}

static manta_status own_gradients(manta_worker *w, manta_session *s, const manta_feed *f, int64_t n)
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
    memcpy(g + n, layout_stats(&s->l, s->state), (size_t)s->l.stats_size * sizeof(float));
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
        const float *g = (const float *)(const void *)(h + 1);
        float share = h ? (float)(h->count / total) : 0;
        if (!h || h->count <= 0) continue;
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
        const float *v = (const float *)(const void *)(o + 1);
        if (!o || o->count <= 0) continue;
        for (int64_t i = 0; i < n; i++) stats[i] += (float)(o->count / total) * v[i];
    }
    s->touched = true;
    return MANTA_OK;
}

manta_status manta_worker_train_step(manta_worker *w, manta_session *s, const manta_feed *f)
{
    int64_t n = manta_session_params(s);
    double total, count = f ? (double)f->count : 0;

    TRY(is_over(w));
    if (n > w->n_gradients) {
        mem_try_free(w->sum);
        w->sum = NULL;
        w->n_gradients = 0;
        TRY(mem_try_array(n, sizeof *w->sum, "the gradients of all ranks", (void **)&w->sum));
        w->n_gradients = n;
    }
    TRY(map_slots(w, sizeof(slot_head) + (size_t)(n + s->l.stats_size) * sizeof(float)));
    TRY(own_gradients(w, s, f, n));
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
    TRY(combine(w, sums, n, false));
    memset(m, 0, sizeof *m);
    session_metrics_of(s, sums, "", m);
    return MANTA_OK;
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
    TRY(combine(w, &steps, 1, true));
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

/* ---- the actor ---- */

static manta_status attach(manta_worker *w)
{
    char path[64];
    size_t head = trainer_head(w->t.world);

    snprintf(path, sizeof path, "/proc/%d/fd/%d", w->t.driver, w->t.fd);
    w->mem.world = w->t.world;
    do w->mem.fd = os->open(path, O_RDWR | O_CLOEXEC, 0);
    while (w->mem.fd < 0 && errno == EINTR);
    if (w->mem.fd < 0) return file_fail(errno, "opening the trainer's memory", path);
    w->mem.c = os->mmap(NULL, head, PROT_READ | PROT_WRITE, MAP_SHARED, w->mem.fd, 0);
    if (w->mem.c == MAP_FAILED) return file_fail(errno, "mapping", path);
    w->mem.rings = (trainer_ring *)(void *)((char *)w->mem.c + trainer_round_up(sizeof(trainer_control)));
    w->mem.mapped = head;
    return MANTA_OK;
}

/* What the loop prints goes to the log of its rank. */
static void redirect(const manta_worker *w)
{
    char *path = mem_printf("%s/log/rank-%d.txt", w->t.run, w->t.rank);
    int fd = os->open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

    mem_free(path);
    if (fd < 0) return;
    fflush(stdout);
    if (dup2(fd, 1) < 0 || dup2(fd, 2) < 0) fprintf(stderr, "manta: the log of rank %d is lost\n", w->t.rank);
    setvbuf(stdout, NULL, _IOLBF, 0);
    os->close(fd);
}

/* Arguments: task, config, then for each dataset its description and arrays. */
static manta_status read_arguments(const manta_task *t, manta_worker *w)
{
    const void *at;
    size_t n;
    int arg = 2;

    TRY(manta_arg_bytes(t, 0, &at, &n));
    if (n != sizeof w->t) return manta_fail(MANTA_EINTERNAL, "a worker's task of %zu bytes", n);
    memcpy(&w->t, at, n);
    TRY(manta_arg_bytes(t, 1, &w->config, &w->config_size));
    while (arg < manta_args(t)) {
        trainer_dataset *d = &w->datasets[w->n_datasets];
        TRY(manta_arg_bytes(t, arg++, &at, &n));
        if (n != sizeof *d || w->n_datasets == MOST_DATASETS) return manta_fail(MANTA_EINTERNAL, "a dataset");
        memcpy(d, at, n);
        for (int k = 0; k < d->n_columns; k++) TRY(manta_arg_array(t, arg++, &w->columns[w->n_datasets][k]));
        w->n_datasets++;
    }
    return MANTA_OK;
}

static void worker_release(manta_worker *w)
{
    for (int i = 0; i < w->t.world; i++) {
        for (int turn = 0; turn < 2; turn++) {
            if (w->slots[i][turn].at) os->munmap(w->slots[i][turn].at, w->slots[i][turn].size);
        }
    }
    if (w->mem.mapped) os->munmap(w->mem.c, w->mem.mapped);
    if (w->mem.fd > 0) os->close(w->mem.fd);
    manta_checkpoint_close(w->checkpoint);
    mem_try_free(w->sum);
    mem_free(w);
}

/* Only a loop that has come to its end is not waited for any more; the driver
 * hears of one that failed, and ends the others. */
static void say_ended(manta_worker *w)
{
    atomic_store(&w->mem.c->ranks[w->t.rank].state, RANK_ENDED);
    atomic_fetch_add(&w->mem.c->meeting, 1);
    futex_wake(&w->mem.c->meeting, INT_MAX, true);
    wake_driver(w);
}

static manta_status run_loop(manta_worker *w)
{
    manta_status st;

    TRY(attach(w));
    if (!w->t.verbose) redirect(w);
    manta_error_origin(NULL, w->t.rank);
    if (*w->t.checkpoint) TRY(manta_checkpoint_open(w->t.checkpoint, &w->checkpoint));
    atomic_store(&w->mem.c->ranks[w->t.rank].pid, (uint32_t)getpid());
    atomic_store(&w->mem.c->ranks[w->t.rank].state, RANK_RUNNING);
    st = w->t.loop(w);
    fflush(stdout);
    if (!st) say_ended(w);
    if (st) wake_driver(w);
    return st;
}

static manta_status manta_trainer_loop(manta_task *t)
{
    manta_worker *w = mem_new(sizeof *w);
    manta_status st = read_arguments(t, w);

    if (!st) st = run_loop(w);
    worker_release(w);
    return st;
}
MANTA_REMOTE(manta_trainer_loop)

static manta_status manta_trainer_actor(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(manta_trainer_actor)
