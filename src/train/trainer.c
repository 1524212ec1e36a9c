/* trainer.c - the driver of a trainer: starts the workers, takes their reports,
 * commits their checkpoints, and begins again when one is lost.
 *
 * An attempt is one start of all workers. The driver looks every few
 * milliseconds, or when a worker wakes it: reports out of the rings, parts of
 * checkpoints that are complete, workers that have ended. It keeps nothing of a
 * report but what the run's folder holds, so its memory does not grow. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <manta/task.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/cpu.h"
#include "os/file.h"
#include "os/sys.h"
#include "os/thread.h"
#include "train/manifest.h"
#include "train/retention.h"
#include "train/run_folder.h"
#include "train/trainer_shared.h"

enum { LOOK_NS = 5000000, MOST_DATASETS = 16, MOST_COLUMNS = 16, END_MS = 10000 };

typedef struct driver {
    const manta_trainer_options *o;
    int world;
    manta_run *run;
    trainer_memory mem;
    trainer_dataset *datasets;
    manta_ref *columns[MOST_DATASETS]; /* of datasets in the store */
    int attempt;
    manta_actor actors[TRAINER_RANKS];
    manta_ref loops[TRAINER_RANKS];
    bool ended[TRAINER_RANKS];
    int64_t reports[TRAINER_RANKS]; /* of the whole run */
    int64_t parts[TRAINER_RANKS]; /* of this attempt: parts of checkpoints seen */
    int64_t done_parts; /* rounds committed */
    trainer_report *part_reports; /* rank 0's of the rounds not committed, a ring */
    manta_metrics last; /* rank 0's */
    int64_t last_epoch;
    bool stopped; /* on request */
    int failed_rank;
    char error[600];
    manta_status status;
} driver;

char *trainer_part(const char *run, int64_t round, int rank)
{
    return mem_printf("%s/.parts/round-%lld.rank-%d", run, (long long)round, rank);
}

/* ---- files on their way ---- */

manta_status trainer_move_files(const char *from, const char *to)
{
    file_names names = {0};
    manta_status st = file_list(from, &names);

    for (size_t i = 0; i < names.n && !st; i++) {
        char *a = run_inner(from, names.at[i]), *b = run_inner(to, names.at[i]);
        file_info info;
        if (!(st = file_stat(a, &info)) && info.is_folder) {
            if (!(st = file_mkdirs(b))) st = trainer_move_files(a, b);
        } else if (!st && file_stat(b, &info) && file_rename(a, b)) { /* not there yet, another file system */
            void *data = NULL;
            size_t n;
            if (!(st = file_read(a, SIZE_MAX / 2, &data, &n))) st = file_replace(b, data, n);
            mem_try_free(data);
        }
        mem_free(a);
        mem_free(b);
    }
    file_names_release(&names);
    return st;
}

static char *parts_folder(const driver *d)
{
    return run_inner(manta_run_path(d->run), ".parts");
}

static void sweep_parts(const driver *d)
{
    char *path = parts_folder(d);
    manta_status st = file_remove_tree(path);

    if (st && st != MANTA_ENOENT) log_warn("files of unfinished checkpoints stay", LOG_STR("path", path));
    mem_free(path);
}

/* ---- checkpoints ---- */

static manta_status commit(driver *d, const char *folder, const trainer_report *r)
{
    manta_checkpoint_info info = {.epoch = r->epoch, .step = r->step, .iterations = r->iterations};

    char reports[32];
    manta_note note = {RUN_REPORTS, reports};

    snprintf(reports, sizeof reports, "%lld", (long long)d->reports[0] + 1);
    info.n_notes = 1;
    info.notes = &note;
    info.metrics.n = r->n;
    memcpy(info.metrics.value, r->value, sizeof r->value);
    memcpy(info.metrics.name, r->name, sizeof r->name);
    return manta_checkpoints_add(manta_run_checkpoints(d->run), folder, &info);
}

/* Files of all ranks in one folder; of one name the lowest rank's. */
static manta_status commit_parts(driver *d, int64_t round)
{
    char *all = trainer_part(manta_run_path(d->run), round, TRAINER_RANKS);
    const trainer_report *r = &d->part_reports[round % TRAINER_RING];
    manta_status st = file_mkdirs(all);

    for (int rank = 0; rank < d->world && !st; rank++) {
        char *part = trainer_part(manta_run_path(d->run), round, rank);
        file_info info;
        if (!file_stat(part, &info)) {
            st = trainer_move_files(part, all);
            if (!st) st = file_remove_tree(part);
        }
        mem_free(part);
    }
    if (!st) st = commit(d, all, r);
    mem_free(all);
    return st;
}

/* Commits the rounds that every rank still in its loop has given its part of. */
static manta_status settle_parts(driver *d)
{
    for (;;) {
        int64_t most = 0;
        bool waits = false;
        for (int i = 0; i < d->world; i++) {
            if (d->parts[i] > most) most = d->parts[i];
            if (d->parts[i] <= d->done_parts && atomic_load(&d->mem.c->ranks[i].state) != RANK_ENDED)
                waits = true;
        }
        if (waits || most <= d->done_parts) return MANTA_OK;
        TRY(commit_parts(d, d->done_parts));
        d->done_parts++;
    }
}

/* ---- reports ---- */

static manta_status take_report(driver *d, int rank, const trainer_report *r)
{
    manta_metrics m = {.n = r->n};
    const char *checkpoint = NULL;
    manta_checkpoints *all = manta_run_checkpoints(d->run);

    if (r->n < 0 || r->n > MANTA_MAX_METRICS) return manta_fail(MANTA_ECORRUPT, "a report of rank %d", rank);
    memcpy(m.value, r->value, sizeof m.value);
    memcpy(m.name, r->name, sizeof m.name);
    for (int i = 0; i < m.n; i++) m.name[i][sizeof m.name[0] - 1] = '\0';
    if (rank == 0) d->last = m;
    if (r->kind == REPORT_CHIEF) {
        char *part = trainer_part(manta_run_path(d->run), r->round, rank);
        manta_status st = commit(d, part, r);
        mem_free(part);
        if (st) return st;
        (void)manta_checkpoints_at(all, manta_checkpoints_count(all) - 1, &checkpoint, NULL);
    } else if (r->kind == REPORT_PART) {
        if (d->parts[rank] - d->done_parts >= TRAINER_RING) {
            return manta_fail(MANTA_EINVAL,
                              "rank %d has reported %d checkpoints that another rank has no part in", rank,
                              TRAINER_RING);
        }
        if (rank == 0 || d->parts[0] <= r->round) d->part_reports[d->parts[rank] % TRAINER_RING] = *r;
        d->parts[rank]++;
    }
    TRY(manta_run_report(d->run, r->epoch ? r->epoch : d->reports[rank] + 1, d->reports[rank] + 1, rank, &m));
    d->reports[rank]++;
    if (d->o->run.report) {
        manta_report_event e = {d->reports[rank] - 1, rank, &m, checkpoint};
        if (!d->o->run.report(d->o->run.user, &e)) atomic_store(&d->mem.c->stop, 1), d->stopped = true;
    }
    return MANTA_OK;
}

static manta_status drain(driver *d)
{
    bool some = false;

    for (int rank = 0; rank < d->world; rank++) {
        trainer_ring *ring = &d->mem.rings[rank];
        uint64_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed);
        uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
        if (written - at > TRAINER_RING) return manta_fail(MANTA_ECORRUPT, "the reports of rank %d", rank);
        for (; at < written; at++) {
            trainer_report r = ring->at[at % TRAINER_RING]; /* copied, then looked at */
            TRY(take_report(d, rank, &r));
            atomic_store_explicit(&ring->taken, at + 1, memory_order_release);
            some = true;
        }
    }
    if (some) { /* one that found its ring full may go on */
        atomic_fetch_add(&d->mem.c->meeting, 1);
        futex_wake(&d->mem.c->meeting, INT_MAX, true);
    }
    return settle_parts(d);
}

/* ---- an attempt ---- */

static void wipe_memory(driver *d)
{
    uint32_t stop = atomic_load(&d->mem.c->stop);

    memset(d->mem.c, 0, d->mem.mapped);
    d->mem.c->world = d->world;
    atomic_store(&d->mem.c->stop, stop);
}

static void start_rank(driver *d, int rank, const char *checkpoint)
{
    const manta_trainer_options *o = d->o;
    manta_task_options how = {.num_cpus = MANTA_NONE, .resources = o->scaling.resources_per_worker};
    trainer_task t = {.loop = o->loop,
                      .rank = rank,
                      .world = d->world,
                      .attempt = d->attempt,
                      .driver = getpid(),
                      .fd = d->mem.fd,
                      .threads = o->scaling.threads_per_worker,
                      .seed = o->seed,
                      .verbose = o->run.verbose};
    VEC(manta_arg) args = {0};

    if (!t.threads) t.threads = cpu_cores() > d->world ? cpu_cores() / d->world : 1;
    snprintf(t.name, sizeof t.name, "%s", manta_run_name(d->run));
    snprintf(t.run, sizeof t.run, "%s", manta_run_path(d->run));
    if (checkpoint) snprintf(t.checkpoint, sizeof t.checkpoint, "%s", checkpoint);
    vec_push(&args, manta_bytes(&t, sizeof t));
    vec_push(&args, manta_bytes(o->config ? o->config : "", o->config ? o->config_size : 0));
    for (int i = 0; i < o->n_datasets; i++) {
        vec_push(&args, manta_bytes(&d->datasets[i], sizeof d->datasets[i]));
        for (int k = 0; k < d->datasets[i].n_columns; k++) vec_push(&args, manta_of_ref(d->columns[i][k]));
    }
    d->actors[rank] = manta_actor_start("manta_trainer_actor", &how, 0, NULL);
    d->loops[rank] = manta_actor_submit_one(d->actors[rank], "manta_trainer_loop", (int)args.n, args.at);
    vec_release(&args);
}

static void blame(driver *d, int rank)
{
    manta_failure f;

    if (d->failed_rank >= 0) return;
    manta_failure_get(d->loops[rank], &f);
    d->failed_rank = rank;
    d->status = f.code ? f.code : MANTA_EDIED;
    snprintf(d->error, sizeof d->error, "rank %d of %d: %s", rank, d->world,
             *f.text ? f.text : "its process is gone");
}

/* Takes note of loops that have ended; the first that failed is to blame.
 * True when none is left. */
static bool look_at_loops(driver *d)
{
    int left = 0;

    for (int i = 0; i < d->world; i++) {
        manta_status st;
        if (d->ended[i]) continue;
        st = manta_get(d->loops[i], 0);
        if (st == MANTA_ETIMEDOUT) {
            left++;
            continue;
        }
        d->ended[i] = true;
        if (st) blame(d, i);
    }
    return left == 0;
}

static void end_attempt(driver *d)
{
    atomic_store(&d->mem.c->over, 1);
    atomic_fetch_add(&d->mem.c->meeting, 1);
    futex_wake(&d->mem.c->meeting, INT_MAX, true);
    for (int i = 0; i < d->world; i++) {
        if (!d->ended[i]) (void)manta_actor_kill(d->actors[i], true);
    }
    for (int i = 0; i < d->world; i++) { /* nobody may write to the memory that is used again */
        if (manta_get(d->loops[i], END_MS) == MANTA_ETIMEDOUT)
            log_warn("a worker has not ended", LOG_INT("rank", i));
        manta_release(d->loops[i]);
        manta_actor_release(d->actors[i]);
    }
}

static volatile sig_atomic_t terminated;

static void on_term(int number)
{
    (void)number;
    terminated = 1;
}

static manta_status watch(driver *d)
{
    trainer_control *c = d->mem.c;

    for (;;) {
        uint32_t seen = atomic_load(&c->pulse);
        bool none_left = look_at_loops(d); /* before the last look into the rings */
        TRY(drain(d));
        if (terminated && !d->stopped) {
            d->stopped = true;
            atomic_store(&c->stop, 1);
        }
        if (none_left || d->failed_rank >= 0) return MANTA_OK;
        atomic_store(&c->driver_asleep, 1);
        (void)futex_wait(&c->pulse, seen, clock_now_ns() + LOOK_NS, true);
        atomic_store(&c->driver_asleep, 0);
    }
}

/* The checkpoint that an attempt begins from; NULL: none. Owned by the caller.
 * *own: it is of this run. */
static manta_status find_checkpoint(driver *d, manta_checkpoint **out, bool *own)
{
    manta_status st = MANTA_ENOENT;

    *out = NULL;
    if (d->attempt || d->o->run.resume)
        st = manta_checkpoints_latest(manta_run_checkpoints(d->run), out, NULL);
    if (st && st != MANTA_ENOENT) return st;
    *own = !st;
    return st && d->o->resume_from_checkpoint ? manta_checkpoint_open(d->o->resume_from_checkpoint, out)
                                              : MANTA_OK;
}

static manta_status run_attempt(driver *d)
{
    manta_checkpoint *from = NULL;
    bool own = false;
    manta_status st;

    TRY(find_checkpoint(d, &from, &own));
    if (d->attempt && (st = run_rewind(d->run, own ? from : NULL))) {
        manta_checkpoint_close(from);
        return st;
    }
    for (int i = 0; i < d->world; i++) d->reports[i] = own ? run_reports(from) : 0;
    sweep_parts(d);
    wipe_memory(d);
    memset(d->ended, 0, sizeof d->ended);
    memset(d->parts, 0, sizeof d->parts);
    d->done_parts = 0;
    d->failed_rank = -1;
    d->status = MANTA_OK;
    *d->error = '\0';
    for (int i = 0; i < d->world; i++) start_rank(d, i, from ? manta_checkpoint_path(from) : NULL);
    st = watch(d);
    end_attempt(d);
    manta_checkpoint_close(from);
    if (st) return st;
    return d->failed_rank >= 0 ? manta_fail(d->status, "%s", d->error) : drain(d);
}

/* ---- before and after ---- */

static manta_status make_memory(driver *d)
{
    trainer_memory *m = &d->mem;
    size_t head = trainer_head(d->world);

    m->world = d->world;
    m->fd = os->memfd_create("manta-trainer", MFD_CLOEXEC);
    if (m->fd < 0) return file_fail(errno, "making", "the trainer's memory");
    if (os->ftruncate(m->fd, (off_t)trainer_slot_at(d->world, d->world, 0)) ||
        os->fallocate(m->fd, 0, 0, (off_t)head))
        return file_fail(errno, "reserving", "the trainer's memory");
    m->c = os->mmap(NULL, head, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->c == MAP_FAILED) {
        m->c = NULL;
        return file_fail(errno, "mapping", "the trainer's memory");
    }
    m->mapped = head;
    m->rings = (trainer_ring *)(void *)((char *)m->c + trainer_round_up(sizeof(trainer_control)));
    return MANTA_OK;
}

/* Reads a dataset whole and puts its columns into the store. */
static manta_status put_dataset(driver *d, int i, manta_dataset *from)
{
    trainer_dataset *t = &d->datasets[i];
    int64_t n = manta_dataset_count(from);
    manta_loader *l = NULL;
    manta_batch b;
    manta_status st;

    TRY(manta_dataset_status(from));
    if (n <= 0 || manta_dataset_is_batched(from)) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "dataset '%s' %s: give the trainer its description (spec), or a function that makes it", t->name,
            n <= 0 ? "has no known length" : "has batches of its own");
    }
    TRY(manta_loader_open(from, &(manta_loader_options){.batch_size = n, .readers = -1}, &l));
    if (!manta_loader_next(l, &b)) {
        st = manta_loader_status(l);
        manta_loader_close(l);
        return st ? st : manta_fail(MANTA_EINVAL, "dataset '%s' is empty", t->name);
    }
    if (b.n > MOST_COLUMNS) {
        manta_loader_close(l);
        return manta_fail(MANTA_EUNSUPPORTED, "dataset '%s' has more than %d columns", t->name, MOST_COLUMNS);
    }
    d->columns[i] = mem_new((size_t)b.n * sizeof *d->columns[i]);
    for (; t->n_columns < b.n; t->n_columns++) {
        snprintf(t->columns[t->n_columns], sizeof t->columns[0], "%s", b.columns[t->n_columns].name);
        d->columns[i][t->n_columns] = manta_put(manta_elements(&b.columns[t->n_columns].array));
    }
    manta_loader_close(l);
    return MANTA_OK;
}

static manta_status describe_datasets(driver *d)
{
    const manta_trainer_options *o = d->o;

    if (o->n_datasets > MOST_DATASETS) {
        return manta_fail(MANTA_EINVAL, "%d datasets, expected up to %d", o->n_datasets, MOST_DATASETS);
    }
    d->datasets = mem_new((size_t)(o->n_datasets + 1) * sizeof *d->datasets);
    for (int i = 0; i < o->n_datasets; i++) {
        const manta_named_dataset *from = &o->datasets[i];
        trainer_dataset *t = &d->datasets[i];
        if (!from->name || strlen(from->name) >= sizeof t->name) {
            return manta_fail(MANTA_EINVAL, "dataset %d has no name, or one that is too long", i);
        }
        snprintf(t->name, sizeof t->name, "%s", from->name);
        t->make = from->make;
        t->user = from->user;
        t->whole = from->whole;
        t->shuffle = from->shuffle;
        if (from->make) continue;
        if (from->spec) {
            if (strlen(from->spec) >= sizeof t->spec)
                return manta_fail(MANTA_EINVAL, "the description of dataset '%s' is too long", from->name);
            snprintf(t->spec, sizeof t->spec, "%s", from->spec);
        } else if (from->dataset) {
            TRY(put_dataset(d, i, from->dataset));
        } else {
            return manta_fail(MANTA_EINVAL, "dataset '%s' is neither given nor described", from->name);
        }
    }
    return MANTA_OK;
}

static manta_status check_options(driver *d)
{
    const manta_trainer_options *o = d->o;

    d->world = o->scaling.num_workers ? o->scaling.num_workers : 1;
    if (!o->loop) return manta_fail(MANTA_EINVAL, "a trainer without a loop");
    if (!manta_is_initialized()) return manta_fail(MANTA_EINVAL, "call manta_init() before a trainer's fit");
    if (d->world < 1 || d->world > TRAINER_RANKS) {
        return manta_fail(MANTA_EINVAL, "%d workers, expected 1 to %d", d->world, TRAINER_RANKS);
    }
    if (o->scaling.use_gpu)
        return manta_fail(MANTA_EUNSUPPORTED, "use_gpu: workers compute on processors only, so far");
    return MANTA_OK;
}

static manta_status prepare(driver *d)
{
    const manta_run_config *r = &d->o->run;

    TRY(check_options(d));
    TRY(manta_run_open(&(manta_run_options){.storage = r->storage,
                                            .name = r->name,
                                            .stem = "train",
                                            .resume = r->resume,
                                            .checkpoints = r->checkpoints},
                       &d->run));
    d->part_reports = mem_new(TRAINER_RING * sizeof *d->part_reports);
    TRY(describe_datasets(d));
    return make_memory(d);
}

static void release(driver *d)
{
    if (d->run) sweep_parts(d);
    for (int i = 0; d->datasets && i < d->o->n_datasets; i++) {
        for (int k = 0; d->columns[i] && k < d->datasets[i].n_columns; k++) manta_release(d->columns[i][k]);
        mem_free(d->columns[i]);
    }
    mem_free(d->datasets);
    mem_free(d->part_reports);
    if (d->mem.c) os->munmap(d->mem.c, d->mem.mapped);
    if (d->mem.fd > 0) os->close(d->mem.fd);
    manta_run_close(d->run);
}

static manta_status run_attempts(driver *d)
{
    int most = d->o->run.failure.max_failures;

    if (most == 0) most = 3;
    if (most == MANTA_NONE) most = 0;
    for (;; d->attempt++) {
        manta_status st = run_attempt(d);
        char line[700];
        if (!st || d->failed_rank < 0) return st;
        snprintf(line, sizeof line, "%s", d->error);
        manta_run_log(d->run, d->failed_rank, line);
        if (d->stopped || (most != MANTA_UNLIMITED && d->attempt >= most)) return st;
        log_warn("a worker is lost; all begin again from the last checkpoint",
                 LOG_INT("rank", d->failed_rank), LOG_INT("attempt", d->attempt + 1),
                 LOG_STR("why", d->error));
    }
}

manta_status manta_trainer_fit(const manta_trainer_options *o, manta_result **out)
{
    driver d = {.o = o, .failed_rank = -1, .mem = {.fd = -1}};
    struct sigaction ours = {.sa_handler = on_term, .sa_flags = SA_RESTART}, before;
    bool handles = false;
    manta_error why = {0};
    manta_status st, late;
    char *path = NULL;

    *out = NULL;
    if ((st = prepare(&d))) goto out;
    terminated = 0;
    sigemptyset(&ours.sa_mask);
    if (!sigaction(SIGTERM, NULL, &before) && before.sa_handler == SIG_DFL)
        handles = !sigaction(SIGTERM, &ours, &before);
    st = run_attempts(&d);
    if (handles) sigaction(SIGTERM, &before, NULL);
    if (!st && d.stopped)
        st = manta_fail(MANTA_ECANCELLED, "run '%s' was ended on request", manta_run_name(d.run));
    if (st) manta_error_get(&why);
    late = manta_run_finish(d.run,
                            !st         ? "done"
                            : d.stopped ? "interrupted"
                                        : "failed",
                            &d.last, st ? why.text : NULL);
    if (!st && late) {
        st = late;
        manta_error_get(&why);
    }
    path = mem_strdup(manta_run_path(d.run));
out:
    if (st && !why.code) manta_error_get(&why);
    release(&d);
    if (path && !manta_result_read(path, out)) {
        (*out)->status = st;
        (*out)->failures = d.attempt;
        (*out)->error_rank = d.failed_rank;
    }
    mem_free(path);
    return st ? manta_error_raise(&why) : MANTA_OK;
}
