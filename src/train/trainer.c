/* trainer.c - the driver of a trainer: starts the workers, takes their reports,
 * commits their checkpoints, and begins again when one is lost.
 *
 * An attempt is one start of all workers. The driver looks every few
 * milliseconds, or when a worker wakes it: reports out of the rings, checkpoints
 * that are complete (trainer_parts.h), workers that have ended. It keeps nothing of a
 * report but what the run's folder holds, so its memory does not grow. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
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
#include "train/checkpoints.h"
#include "train/manifest.h"
#include "train/retention.h"
#include "train/run_folder.h"
#include "train/storage.h"
#include "train/trainer_given.h"
#include "train/trainer_parts.h"
#include "train/trainer_places.h"
#include "train/trainer_shared.h"

enum { LOOK_NS = 5000000, END_MS = 10000, SAY_AFTER_MS = 5000 };

typedef struct driver {
    const manta_trainer_options *o;
    trainer_places places;
    int world; /* of this attempt */
    manta_run *run;
    trainer_memory mem;
    trainer_parts parts;
    trainer_given given; /* datasets */
    manta_checkpoint *first; /* resume_from_checkpoint; NULL: none, or the run may have its own */
    int attempt;
    manta_actor actors[TRAINER_RANKS];
    manta_ref loops[TRAINER_RANKS];
    bool ended[TRAINER_RANKS];
    int64_t before[TRAINER_RANKS]; /* reports up to this attempt's checkpoint */
    int64_t reports[TRAINER_RANKS]; /* of the whole run */
    int64_t epochs[TRAINER_RANKS]; /* of each rank's last report */
    int64_t committed; /* checkpoints of this attempt */
    manta_metrics last; /* rank 0's */
    bool stopped; /* on request */
    int64_t stopped_at; /* with so many committed */
    bool node_lost; /* no attempt can follow, and no rank is to blame */
    int failed_rank;
    trainer_loss loss;
    manta_error trouble; /* the first line or checkpoint that could not be written; code 0: none */
    char error[600];
    manta_status status;
} driver;

/* ---- reports ---- */

/* A disk that is full, or gone, ends no training: it is said now, and once more
 * at the end, when the run counts as failed. */
static void note_trouble(driver *d)
{
    manta_error e;

    manta_error_get(&e);
    if (d->trouble.code) return;
    d->trouble = e;
    log_warn("the run's record is not complete", LOG_STR("run", manta_run_name(d->run)),
             LOG_STR("why", e.text));
}

/* What comes from a ring may be anything. */
static manta_status check_report(int rank, trainer_report *r)
{
    bool fine = r->n >= 0 && r->n <= MANTA_MAX_METRICS;

    fine = fine && (r->kind == REPORT_METRICS || r->kind == REPORT_CHIEF || r->kind == REPORT_PART);
    if (!fine) return manta_fail(MANTA_ECORRUPT, "a report of rank %d", rank);
    for (int i = 0; i < r->n; i++) r->name[i][sizeof r->name[0] - 1] = '\0';
    return MANTA_OK;
}

/* Makes a checkpoint of what `rank` has given alone. What the others have reported
 * by then is kept when the run goes on from it, be it taken out of their rings or
 * not; what they report later they will report again. */
static bool commit_own(driver *d, int rank, const trainer_report *r)
{
    int64_t counts[TRAINER_RANKS];

    for (int i = 0; i < d->world; i++)
        counts[i] = i == rank ? d->reports[i] : d->before[i] + (int64_t)(r->others[i] & INT64_MAX >> 1);
    if (parts_commit_own(&d->parts, rank, r, counts)) {
        note_trouble(d);
        return false;
    }
    d->committed++;
    return true;
}

/* The loops are asked to end. One that never asks whether it should is ended by
 * the next checkpoint (is_enough()). */
static void stop(driver *d)
{
    if (d->stopped) return;
    d->stopped = true;
    d->stopped_at = d->committed + d->parts.committed;
    atomic_store(&d->mem.c->stop, 1);
}

/* The checkpoint that was committed last; NULL: none. */
static const char *last_checkpoint(const driver *d)
{
    manta_checkpoints *all = manta_run_checkpoints(d->run);
    const char *path = NULL;

    (void)manta_checkpoints_at(all, manta_checkpoints_count(all) - 1, &path, NULL);
    return path;
}

/* Tells the program of the n-th report of a rank, from 1. */
static void tell_program(driver *d, int rank, int64_t n, const manta_metrics *m, const char *checkpoint)
{
    manta_report_event e = {n - 1, rank, m, checkpoint};

    if (d->o->run.report && !d->o->run.report(d->o->run.user, &e)) stop(d);
}

static void get_metrics(const trainer_report *r, manta_metrics *out)
{
    out->n = r->n;
    memcpy(out->value, r->value, sizeof out->value);
    memcpy(out->name, r->name, sizeof out->name);
}

/* Commits what all ranks have given their part of. True: there is a checkpoint more. */
static bool settle_with_all(driver *d)
{
    static const bool nobody[TRAINER_RANKS];
    trainer_round round;
    manta_status st = parts_settle(&d->parts, d->reports, nobody, &round);

    if (st) note_trouble(d);
    return round.committed;
}

/* The same where nobody is left who could give more. The reports of such a round
 * were told when it was not complete: its lowest rank's is told once more. */
static void settle_without(driver *d, const bool *gone)
{
    trainer_round round;

    do {
        manta_metrics m;
        manta_status st = parts_settle(&d->parts, d->reports, gone, &round);
        if (st) note_trouble(d);
        if (!round.committed) continue;
        get_metrics(round.report, &m);
        tell_program(d, round.rank, round.count, &m, last_checkpoint(d));
    } while (round.settled);
}

static manta_status take_reports(driver *d, int rank, uint64_t until, bool *some);

/* The record comes before the checkpoint: one that a run goes on from has all the
 * lines that it counts, whenever this process is killed. Lines that it does not
 * count are dropped then. */
static manta_status keep_report(driver *d, int rank, const trainer_report *r, const manta_metrics *m)
{
    run_place p = {r->epoch, d->reports[rank], r->has_place ? r->step : -1};
    bool some;

    if (run_report(d->run, p, rank, m)) note_trouble(d);
    for (int i = 1; i < d->world && r->kind == REPORT_CHIEF && rank == 0; i++)
        TRY(take_reports(d, i, r->others[i], &some));
    return MANTA_OK;
}

static manta_status take_report(driver *d, int rank, trainer_report *r, bool lost)
{
    manta_metrics m;
    bool committed = false;

    TRY(check_report(rank, r));
    get_metrics(r, &m);
    if (rank == 0) d->last = m;
    if (!r->has_place) r->epoch = d->epochs[rank] + 1;
    d->epochs[rank] = r->epoch;
    d->reports[rank]++;
    TRY(keep_report(d, rank, r, &m));
    if (r->kind == REPORT_CHIEF) {
        committed = !lost && commit_own(d, rank, r);
    } else if (r->kind == REPORT_PART) {
        TRY(parts_add(&d->parts, rank, r, d->reports[rank], lost));
        committed = settle_with_all(d);
    }
    tell_program(d, rank, d->reports[rank], &m, committed ? last_checkpoint(d) : NULL);
    return MANTA_OK;
}

/* Of the files of a report. Those of a rank whose loop has ended come no more. */
static report_files files_of(const driver *d, int rank, uint64_t at)
{
    uint32_t files = atomic_load_explicit(&d->mem.rings[rank].files[at % TRAINER_RING], memory_order_acquire);

    if (files == FILES_COMING) return d->ended[rank] ? FILES_LOST : FILES_COMING;
    return files == FILES_NONE || files == FILES_THERE ? files : FILES_LOST;
}

/* Whether all reports that a checkpoint counts can be taken before it. */
static bool is_countable(const driver *d, int rank, const trainer_report *r)
{
    for (int i = 1; i < d->world && r->kind == REPORT_CHIEF && rank == 0; i++) {
        const trainer_ring *ring = &d->mem.rings[i];
        uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
        for (uint64_t at = atomic_load(&ring->taken); at < written && at < r->others[i]; at++) {
            if (files_of(d, i, at) == FILES_COMING) return false;
        }
    }
    return true;
}

/* Takes what is in a rank's ring, of the first `until` reports of the attempt.
 * *some: there was one. */
static manta_status take_reports(driver *d, int rank, uint64_t until, bool *some)
{
    trainer_ring *ring = &d->mem.rings[rank];
    uint64_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);

    if (written - at > TRAINER_RING) return manta_fail(MANTA_ECORRUPT, "the reports of rank %d", rank);
    for (; at < written && at < until; at++) {
        report_files files = files_of(d, rank, at);
        trainer_report r = ring->at[at % TRAINER_RING]; /* copied, then looked at */
        if (files == FILES_COMING || !is_countable(d, rank, &r)) break; /* and what is behind it waits too */
        TRY(take_report(d, rank, &r, files == FILES_LOST));
        atomic_store_explicit(&ring->taken, at + 1, memory_order_release);
        *some = true;
    }
    return MANTA_OK;
}

static manta_status drain(driver *d)
{
    bool some = false, gone[TRAINER_RANKS] = {false};

    for (int rank = 0; rank < d->world; rank++) {
        const trainer_ring *ring = &d->mem.rings[rank];
        /* Looked at before the ring: its last report is in there then. */
        bool ended = atomic_load(&d->mem.c->ranks[rank].state) == RANK_ENDED;
        TRY(take_reports(d, rank, UINT64_MAX, &some));
        gone[rank] = ended && atomic_load(&ring->taken) == atomic_load(&ring->written);
    }
    if (some) { /* one that found its ring full may go on */
        atomic_fetch_add(&d->mem.c->meeting, 1);
        futex_wake(&d->mem.c->meeting, INT_MAX, true);
    }
    settle_without(d, gone);
    return MANTA_OK;
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
    const manta_bundle *need = &d->places.need;
    manta_task_options how = {.num_cpus = need->num_cpus > 0 ? need->num_cpus : MANTA_NONE,
                              .resources = need->resources,
                              .group = d->places.group,
                              .bundle = d->places.group.id ? rank + 1 : 0};
    trainer_task t = {.loop = o->loop,
                      .rank = rank,
                      .world = d->world,
                      .most = d->places.most,
                      .attempt = d->attempt,
                      .driver = getpid(),
                      .fd = d->mem.fd,
                      .threads = o->scaling.threads_per_worker,
                      .seed = o->seed};
    VEC(manta_arg) args = {0};

    if (rank_logs_expect(run_logs(d->run), "rank", rank, &t.log))
        log_warn("a worker's log is its file alone", LOG_INT("rank", rank),
                 LOG_STR("why", manta_error_text()));
    if (!t.threads) t.threads = cpu_cores() > d->world ? cpu_cores() / d->world : 1;
    snprintf(t.name, sizeof t.name, "%s", manta_run_name(d->run));
    snprintf(t.run, sizeof t.run, "%s", manta_run_path(d->run));
    snprintf(t.local, sizeof t.local, "%s", run_local(d->run));
    if (checkpoint) snprintf(t.checkpoint, sizeof t.checkpoint, "%s", checkpoint);
    vec_push(&args, manta_bytes(&t, sizeof t));
    vec_push(&args, manta_bytes(o->config ? o->config : "", o->config ? o->config_size : 0));
    for (int i = 0; i < d->given.n; i++) {
        const trainer_dataset *given = &d->given.all[i];
        vec_push(&args, manta_bytes(given, sizeof *given));
        for (int k = 0; k < given->n_columns; k++) vec_push(&args, manta_of_ref(d->given.columns[i][k]));
    }
    d->actors[rank] = manta_actor_start("manta_trainer_actor", &how, 0, NULL);
    d->loops[rank] = manta_actor_submit_one(d->actors[rank], "manta_trainer_loop", (int)args.n, args.at);
    vec_release(&args);
}

/* Which function of ours a process ran when it died is no news to the user. */
static void leave_out_ours(char *text)
{
    char *at = strstr(text, " while it ran manta_trainer_");

    if (at) *at = '\0';
}

static void blame(driver *d, int rank)
{
    manta_failure f;

    if (d->failed_rank >= 0 || atomic_load(&d->mem.c->over)) return; /* over: it was made to end */
    manta_failure_get(d->loops[rank], &f);
    leave_out_ours(f.text);
    d->failed_rank = rank;
    d->loss.died = f.kind == MANTA_FAILED_WORKER || f.kind == MANTA_FAILED_ACTOR ||
                   f.kind == MANTA_FAILED_UNKNOWN || f.kind == MANTA_FAILED_LOST ||
                   f.kind == MANTA_FAILED_MEMORY;
    d->node_lost = f.kind == MANTA_FAILED_NODE;
    d->status = d->loss.died || !f.code ? MANTA_EDIED : f.code;
    d->loss.began = atomic_load(&d->mem.c->ranks[rank].state) != RANK_STARTING;
    if (d->node_lost) {
        snprintf(d->error, sizeof d->error, "%s; resumed, the run goes on from its last checkpoint", f.text);
    } else {
        snprintf(d->error, sizeof d->error, "rank %d of %d: %s", rank, d->world,
                 *f.text ? f.text : "its process is gone");
    }
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

/* Whether a rank that lives has reported a checkpoint that it is still writing. */
static bool is_writing(const driver *d)
{
    for (int rank = 0; rank < d->world; rank++) {
        const trainer_ring *ring = &d->mem.rings[rank];
        if (!d->ended[rank] && atomic_load(&ring->taken) != atomic_load(&ring->written)) return true;
    }
    return false;
}

/* What was reported before the failure is not lost with the attempt. */
static manta_status await_files(driver *d)
{
    int64_t deadline = clock_now_ns() + (int64_t)END_MS * 1000000;

    while (is_writing(d) && clock_now_ns() < deadline) {
        uint32_t seen = atomic_load(&d->mem.c->pulse);
        (void)look_at_loops(d);
        TRY(drain(d));
        if (!is_writing(d)) break;
        (void)futex_wait(&d->mem.c->pulse, seen, clock_now_ns() + LOOK_NS, true);
    }
    return MANTA_OK;
}

static manta_status end_attempt(driver *d)
{
    manta_status st;

    atomic_store(&d->mem.c->over, 1);
    atomic_fetch_add(&d->mem.c->meeting, 1);
    futex_wake(&d->mem.c->meeting, INT_MAX, true);
    st = await_files(d);
    for (int i = 0; i < d->world; i++) {
        if (!d->ended[i]) (void)manta_actor_kill(d->actors[i], true);
    }
    for (int i = 0; i < d->world; i++) { /* nobody may write to the memory that is used again */
        d->ended[i] = manta_get(d->loops[i], END_MS) != MANTA_ETIMEDOUT;
        if (!d->ended[i]) log_warn("a worker has not ended", LOG_INT("rank", i));
        manta_release(d->loops[i]);
        manta_actor_release(d->actors[i]);
    }
    return st ? st : drain(d); /* what they had reported by then, with files that will not come */
}

static volatile sig_atomic_t terminated; /* how often: SIGTERM, SIGINT */

static void on_term(int number)
{
    (void)number;
    terminated++;
}

/* Whether a run that is to end can be ended from here, its loops being where they
 * are: somebody said so a second time, or there is a checkpoint from after the
 * request and no loop has ever asked whether it should stop. */
static bool is_enough(const driver *d)
{
    if (!d->stopped) return false;
    if (terminated > 1) return true;
    for (int i = 0; i < d->world; i++) {
        if (atomic_load(&d->mem.c->ranks[i].listens)) return false;
    }
    return d->committed + d->parts.committed > d->stopped_at;
}

static manta_status watch(driver *d)
{
    trainer_control *c = d->mem.c;

    for (;;) {
        uint32_t seen = atomic_load(&c->pulse);
        bool none_left = look_at_loops(d); /* before the last look into the rings */
        TRY(drain(d));
        if (terminated) stop(d);
        if (none_left || d->failed_rank >= 0 || is_enough(d)) return MANTA_OK;
        atomic_store(&c->driver_asleep, 1);
        (void)futex_wait(&c->pulse, seen, clock_now_ns() + LOOK_NS, true);
        atomic_store(&c->driver_asleep, 0);
    }
}

/* The checkpoint that an attempt begins from; NULL: none. *own: it is of this run,
 * and the caller's to close. */
static manta_status find_checkpoint(driver *d, manta_checkpoint **out, bool *own)
{
    manta_status st = MANTA_ENOENT;

    *out = NULL;
    if (d->attempt || d->o->run.resume)
        st = manta_checkpoints_latest(manta_run_checkpoints(d->run), out, NULL);
    if (st && st != MANTA_ENOENT) return st;
    *own = !st;
    if (*own || !d->o->resume_from_checkpoint) return MANTA_OK;
    if (!d->first) TRY(manta_checkpoint_open(d->o->resume_from_checkpoint, &d->first));
    *out = d->first;
    return MANTA_OK;
}

/* Waits for room for the workers; *d->world says for how many. */
static manta_status find_places(driver *d)
{
    int64_t began = clock_now_ns(), waits = d->o->scaling.start_timeout_ms * 1000000;
    bool taken, said = false;

    for (;;) {
        int64_t passed = clock_now_ns() - began;
        TRY(places_take(&d->places, &taken));
        d->world = d->places.n;
        if (taken) return MANTA_OK;
        if (terminated) {
            d->stopped = true;
            return manta_fail(MANTA_ECANCELLED, "ended on request, before there was room for its workers");
        }
        if (waits > 0 && passed > waits) {
            return manta_fail(MANTA_ETIMEDOUT,
                              "there is no room for %d workers after %lld ms: others hold what they ask for",
                              d->places.least, (long long)d->o->scaling.start_timeout_ms);
        }
        if (!said && passed > (int64_t)SAY_AFTER_MS * 1000000) {
            log_warn("waiting for room: others hold what the workers ask for",
                     LOG_STR("run", manta_run_name(d->run)), LOG_INT("workers", d->places.least));
            said = true;
        }
        (void)futex_wait(&d->mem.c->pulse, atomic_load(&d->mem.c->pulse), clock_now_ns() + LOOK_NS, true);
    }
}

/* All that an attempt counts begins where its checkpoint stands. */
static void begin_counts(driver *d, const manta_checkpoint *from, bool own)
{
    for (int i = 0; i < TRAINER_RANKS; i++) {
        int64_t told = own ? run_reports(from, i) : 0, kept = own ? run_kept(d->run, i) : 0;
        d->before[i] = d->reports[i] = kept > told ? kept : told;
        d->epochs[i] = from ? manta_checkpoint_get(from)->epoch : 0;
    }
    memset(d->ended, 0, sizeof d->ended);
    d->committed = 0;
    d->loss = (trainer_loss){0};
    d->failed_rank = -1;
    d->status = MANTA_OK;
    *d->error = '\0';
}

static manta_status run_attempt(driver *d)
{
    manta_checkpoint *from = NULL;
    bool own = false;
    file_info there;
    manta_status st, ended;

    d->failed_rank = -1;
    if (storage_look(manta_run_path(d->run), &there))
        return manta_fail(MANTA_ENOENT, "the run's folder %s is gone", manta_run_path(d->run));
    TRY(find_places(d));
    TRY(find_checkpoint(d, &from, &own));
    if (d->attempt && (st = run_rewind(d->run, own ? from : NULL))) {
        if (own) manta_checkpoint_close(from);
        return st;
    }
    begin_counts(d, from, own);
    parts_begin(&d->parts, d->world, d->attempt);
    wipe_memory(d);
    for (int i = 0; i < d->world; i++) start_rank(d, i, from ? manta_checkpoint_path(from) : NULL);
    st = watch(d);
    ended = end_attempt(d);
    if (own) manta_checkpoint_close(from);
    if (st || (st = ended)) return st;
    return d->failed_rank >= 0 ? manta_fail(d->status, "%s", d->error) : MANTA_OK;
}

/* ---- before and after ---- */

static manta_status make_memory(driver *d)
{
    trainer_memory *m = &d->mem;
    size_t head = trainer_head(d->places.most);

    m->world = d->places.most;
    m->fd = os->memfd_create("manta-trainer", MFD_CLOEXEC);
    if (m->fd < 0) return file_fail(errno, "making", "the trainer's memory");
    if (os->ftruncate(m->fd, (off_t)trainer_slot_at(m->world, m->world, 0)) ||
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

static int most_failures(const manta_trainer_options *o)
{
    int told = o->run.failure.max_failures;

    return told == 0 ? 3 : told == MANTA_NONE ? 0 : told;
}

static manta_status check_options(driver *d)
{
    const manta_trainer_options *o = d->o;
    manta_context here;

    if (!o->loop) return manta_fail(MANTA_EINVAL, "a trainer without a loop");
    if (!manta_is_initialized()) return manta_fail(MANTA_EINVAL, "call manta_init() before a trainer's fit");
    TRY(manta_context_get(NULL, &here));
    if (here.in_process)
        return manta_fail(MANTA_EUNSUPPORTED, "a trainer needs processes for its workers: not in-process");
    if (o->run.failure.max_failures < MANTA_UNLIMITED)
        return manta_fail(MANTA_EINVAL, "max_failures: %d, expected 1 or more, MANTA_NONE or MANTA_UNLIMITED",
                          o->run.failure.max_failures);
    TRY(checkpoints_check(&o->run.checkpoints));
    TRY(given_init(&d->given, o->n_datasets, o->datasets));
    return places_init(&d->places, &o->scaling);
}

/* What can never come true fails here, before there is a run whose name is taken. */
static manta_status check_feasible(driver *d)
{
    const char *from = d->o->resume_from_checkpoint;
    bool taken;

    TRY(check_options(d));
    TRY(places_take(&d->places, &taken));
    return from && !d->o->run.resume ? manta_checkpoint_open(from, &d->first) : MANTA_OK;
}

static json_t *logging_json(const manta_logging_config *c)
{
    static const char *const to[] = {"file", "output", "both"};
    json_t *o = json_pack("{s:s?, s:b, s:I, s:i}", "level", c->level, "stamp", c->stamp, "max_size",
                          (json_int_t)c->max_size, "parts", c->parts);

    if (c->to >= MANTA_LOG_TO_FILE && c->to <= MANTA_LOG_TO_BOTH)
        json_object_set_new(o, "to", json_string(to[c->to]));
    return o;
}

/* What was asked for, as the run's config.json. Owned by the caller: free(). */
static char *config_text(const driver *d)
{
    const manta_trainer_options *o = d->o;
    const manta_checkpoints_options *c = &o->run.checkpoints;
    json_t *datasets = json_array();
    json_t *all = json_pack(
        "{s:i, s:i, s:i, s:f, s:s?, s:i, s:I, s:i, s:s?, s:s?, s:s?}", "workers", d->places.most,
        "min_workers", d->places.least, "threads_per_worker", o->scaling.threads_per_worker,
        "cpus_per_worker", d->places.need.num_cpus, "resources_per_worker", o->scaling.resources_per_worker,
        "max_failures", most_failures(o), "seed", (json_int_t)o->seed, "keep", c->keep, "keep_best", c->score,
        "keep_order", c->order, "resume_from_checkpoint", o->resume_from_checkpoint);
    char *text;

    for (int i = 0; i < o->n_datasets; i++)
        json_array_append_new(datasets, json_string(o->datasets[i].name ? o->datasets[i].name : ""));
    if (all) {
        json_object_set_new(all, "datasets", datasets);
        json_object_set_new(all, "logging", logging_json(&o->run.logging));
    }
    text = all ? json_dumps(all, JSON_INDENT(1)) : NULL; /* NULL: a text that is not UTF-8 */
    json_decref(all);
    return text;
}

/* A run that `manta train` began is of a model and options, which this would write
 * over: it is not gone on with here. */
static manta_status check_kind(const manta_run_config *r)
{
    char *folder, *text = NULL;
    json_t *config;
    bool other;

    if (!r->resume || !r->name) return MANTA_OK;
    folder = run_inner(r->storage ? r->storage : manta_run_storage(), r->name);
    config = manta_run_read_config(folder, &text) ? NULL : json_loads(text, 0, NULL);
    other = json_object_get(config, "model") && !json_object_get(config, "datasets");
    json_decref(config);
    free(text);
    mem_free(folder);
    if (!other) return MANTA_OK;
    return manta_fail(
        MANTA_EINVAL,
        "run '%s' was begun by 'manta train', not by a trainer: 'manta train --resume %s' goes on "
        "with it, or choose another name",
        r->name, r->name);
}

static manta_status prepare(driver *d)
{
    const manta_run_config *r = &d->o->run;
    char *config;
    manta_status st;

    TRY(check_feasible(d));
    TRY(check_kind(r));
    config = config_text(d);
    st = manta_run_open(&(manta_run_options){.storage = r->storage,
                                             .name = r->name,
                                             .stem = "train",
                                             .resume = r->resume,
                                             .config = config,
                                             .checkpoints = r->checkpoints,
                                             .logging = r->logging},
                        &d->run);
    free(config);
    if (st) return st;
    TRY(given_read(&d->given, d->o->datasets));
    TRY(make_memory(d));
    parts_init(&d->parts, d->run);
    return MANTA_OK;
}

static void release(driver *d)
{
    if (d->parts.run) parts_sweep(&d->parts);
    parts_release(&d->parts);
    places_release(&d->places);
    given_release(&d->given);
    manta_checkpoint_close(d->first);
    if (d->mem.c) os->munmap(d->mem.c, d->mem.mapped);
    if (d->mem.fd > 0) os->close(d->mem.fd);
    manta_run_close(d->run);
}

/* Whether there is another attempt, and with how many workers. */
static bool begins_again(driver *d)
{
    int most = most_failures(d->o);
    manta_attempt_event e = {d->attempt, d->node_lost ? -1 : d->failed_rank, d->world, d->error};
    bool again = !d->stopped && !d->node_lost && (most == MANTA_UNLIMITED || d->attempt < most);

    manta_run_log(d->run, d->failed_rank, d->error);
    if (d->o->run.failed && !d->o->run.failed(d->o->run.user, &e)) again = false;
    if (!again) return false;
    d->loss.progressed = d->committed > 0 || d->parts.done > 0;
    if (places_lost(&d->places, d->loss)) {
        char line[96];
        snprintf(line, sizeof line, "rank %d cannot be replaced: the run goes on with %d workers",
                 d->failed_rank, d->places.limit);
        manta_run_log(d->run, d->failed_rank, line);
        log_warn("a worker cannot be replaced; the others begin again from the last checkpoint",
                 LOG_INT("rank", d->failed_rank), LOG_INT("workers", d->places.limit),
                 LOG_STR("why", d->error));
    } else {
        const char *from = last_checkpoint(d);
        log_warn(d->loss.died ? "a worker is lost; all begin again" : "a loop has failed; all begin again",
                 LOG_INT("rank", d->failed_rank), LOG_STR("why", d->error),
                 LOG_INT("epoch", d->epochs[d->failed_rank]), LOG_INT("attempt", d->attempt + 1),
                 LOG_STR("from", from ? from : "the beginning"));
    }
    return true;
}

static manta_status run_attempts(driver *d)
{
    for (;; d->attempt++) {
        manta_status st = run_attempt(d);
        if (!st || d->failed_rank < 0) return st;
        if (begins_again(d)) continue;
        if (!d->stopped || !d->loss.died) return manta_fail(d->status, "%s", d->error);
        d->failed_rank = -1; /* the request to end has come to a worker that had not begun, too */
        return MANTA_OK;
    }
}

/* Signals that ask for an end, taken where the program has not done so itself. */
typedef struct signals {
    bool taken[2];
    struct sigaction before[2];
} signals;

static const int asking[2] = {SIGTERM, SIGINT};

static void take_signals(signals *s)
{
    struct sigaction ours = {.sa_handler = on_term, .sa_flags = SA_RESTART};

    terminated = 0;
    sigemptyset(&ours.sa_mask);
    for (int i = 0; i < 2; i++) {
        s->taken[i] = !sigaction(asking[i], NULL, &s->before[i]) && s->before[i].sa_handler == SIG_DFL &&
                      !sigaction(asking[i], &ours, NULL);
    }
}

static void give_signals_back(const signals *s)
{
    for (int i = 0; i < 2; i++) {
        if (s->taken[i]) sigaction(asking[i], &s->before[i], NULL);
    }
}

manta_status manta_trainer_fit(const manta_trainer_options *o, manta_result **out)
{
    driver d = {.o = o, .failed_rank = -1, .mem = {.fd = -1}};
    signals before;
    int level = log_own_level();
    manta_error why = {0};
    manta_status st, late;
    char *path = NULL;

    *out = NULL;
    if ((st = prepare(&d))) goto out;
    (void)log_use_level(rank_logs_level(run_logs(d.run)));
    take_signals(&before);
    st = run_attempts(&d);
    give_signals_back(&before);
    if (!st && d.stopped)
        st = manta_fail(MANTA_ECANCELLED, "run '%s' was ended on request", manta_run_name(d.run));
    if (!st && d.trouble.code) st = manta_error_raise(&d.trouble);
    if (st) manta_error_get(&why);
    run_set_outcome(d.run, &(run_outcome){st, d.failed_rank, d.attempt, d.world});
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
    (void)log_use_level(level);
    if (path && !manta_result_read(path, out)) {
        (*out)->status = st;
        (*out)->failures = d.attempt;
        (*out)->workers = d.world;
        (*out)->error_rank = d.node_lost ? -1 : d.failed_rank;
    }
    mem_free(path);
    return st ? manta_error_raise(&why) : MANTA_OK;
}
