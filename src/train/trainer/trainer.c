/* trainer.c - the driver of a trainer: starts the workers, watches them, and begins again when
 * one is lost.
 *
 *   manta_trainer_fit()
 *     prepare_run()         options that can be, the run's folder, the memory that all share
 *     run_attempts()        one attempt after the other, until one ends well or no more may follow:
 *       find_places()         room for the workers, waited for
 *       find_checkpoint()     what the attempt begins from; the record is taken back to it
 *       wipe_memory()         nothing of the attempt before is left
 *       start_rank()          an actor for each rank, and in it the call that is its loop
 *       watch_workers()       until all loops have ended, one has failed, the run is to end, or
 *                             there is room for more workers
 *       end_attempt()         all waits end; files that are being written; then the processes
 *       begins_again()        who is to blame, and whether another attempt may follow
 *     manta_run_finish()    the result, in the run's folder
 *
 * An attempt is running until `over` is set, and never again. A rank is STARTING, RUNNING from
 * where its loop is called, and ENDED when that has returned well (trainer_shared.h); these
 * three are for the other ranks and for messages. Whether a loop has ended, well or not, the
 * driver has from the runtime alone: the result of the call (look_at_loops()), which is there
 * when the call has returned or its process is dead.
 *
 * Who writes what: of the shared memory the driver writes `over`, `stop`, `driver_asleep` and
 * how much it has taken out of each ring; a worker its own rank and its own ring; `wake` and
 * `meeting` are counted up by whoever has changed something. The run's folder is the driver's:
 * workers write below a hidden folder of it (trainer_save.c), and the driver alone makes
 * checkpoints of that (trainer_checkpoint_parts.c). Of a report it keeps nothing but what the
 * folder holds, so its memory does not grow.
 *
 * Why that is safe: the loops are looked at before the rings, so that a loop seen to have ended
 * has all of its reports in the ring when that is drained. The memory is wiped only after
 * end_attempt() has killed what goes on and waited for the result of every call: nobody else
 * writes then. The first failure seen before `over` is to blame; what fails later was made to.
 * A wake that comes between a look and the sleep changes the word that the sleep is for, and a
 * look every LOOK_NS finds what died without one.
 *
 * What may be changed: how often it looks, how long it waits for files and ends, which failures
 * are worth another attempt. What may not: draining before looking at the loops, or using the
 * memory again before every call has a result. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <manta/actor.h>
#include <manta/failure.h>
#include <manta/task.h>
#include <manta/version.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/cpu.h"
#include "os/file.h"
#include "os/sys.h"
#include "train/checkpoint/checkpoints.h"
#include "train/checkpoint/manifest.h"
#include "train/run/run_folder.h"
#include "train/storage/storage.h"
#include "train/trainer/trainer_driver.h"

enum { LOOK_NS = 5000000, END_MS = 10000, SAY_AFTER_MS = 5000, ROOM_NS = 100000000 };

/* ---- an attempt ---- */

static void wipe_memory(trainer_driver *d)
{
    uint32_t stop = atomic_load(&d->mem.c->stop);

    memset(d->mem.c, 0, d->mem.mapped);
    d->mem.c->world = d->world;
    atomic_store(&d->mem.c->stop, stop);
}

static void start_rank(trainer_driver *d, int rank, const char *checkpoint)
{
    const manta_trainer_options *o = d->o;
    const manta_bundle *need = &d->scaling.need;
    manta_task_options how = {.num_cpus = need->num_cpus > 0 ? need->num_cpus : MANTA_NONE,
                              .resources = need->resources};
    trainer_task t = {.rank = rank,
                      .world = d->world,
                      .most = d->scaling.most,
                      .attempt = d->attempt,
                      .driver = getpid(),
                      .fd = d->mem.fd,
                      .threads = o->scaling.threads_per_worker,
                      .seed = o->seed};
    VEC(manta_arg) args = {0};

    how.placement_group = scaling_of(&d->scaling, rank, &how.bundle);
    if (rank_logs_expect(run_logs(d->run), "rank", rank, &t.log))
        log_warn("a worker's log is its file alone", LOG_INT("rank", rank),
                 LOG_STR("why", manta_error_text()));
    if (!t.threads) t.threads = cpu_cores() > d->world ? cpu_cores() / d->world : 1;
    snprintf(t.version, sizeof t.version, "%s", manta_version());
    snprintf(t.loop, sizeof t.loop, "%s", d->loop);
    snprintf(t.name, sizeof t.name, "%s", manta_run_name(d->run));
    snprintf(t.run, sizeof t.run, "%s", manta_run_path(d->run));
    snprintf(t.local, sizeof t.local, "%s", run_local(d->run));
    if (checkpoint) snprintf(t.checkpoint, sizeof t.checkpoint, "%s", checkpoint);
    vec_push(&args, manta_bytes(&t, sizeof t));
    vec_push(&args, manta_bytes(o->config ? o->config : "", o->config ? o->config_size : 0));
    for (int i = 0; i < d->datasets.n; i++) {
        const trainer_dataset *dataset = &d->datasets.all[i];
        const manta_named_dataset *from = &o->datasets[i];
        vec_push(&args, manta_bytes(dataset, sizeof *dataset));
        if (*dataset->maker)
            vec_push(&args, manta_bytes(from->user ? from->user : "", from->user ? from->user_size : 0));
        for (int k = 0; k < dataset->n_columns; k++) vec_push(&args, manta_of_ref(d->datasets.columns[i][k]));
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

static void blame_rank(trainer_driver *d, int rank)
{
    manta_failure f;

    if (d->failed_rank >= 0 || atomic_load(&d->mem.c->over)) return; /* over: it was made to end */
    manta_failure_get(d->loops[rank], &f);
    leave_out_ours(f.text);
    d->failed_rank = rank;
    d->loss.died = f.kind == MANTA_FAILURE_WORKER || f.kind == MANTA_FAILURE_ACTOR ||
                   f.kind == MANTA_FAILURE_UNKNOWN || f.kind == MANTA_FAILURE_LOST ||
                   f.kind == MANTA_FAILURE_MEMORY;
    d->node_lost = f.kind == MANTA_FAILURE_NODE;
    d->status = d->loss.died || !f.code ? MANTA_EDIED : f.code;
    d->loss.began = atomic_load(&d->mem.c->ranks[rank].state) != RANK_STARTING;
    snprintf(d->what, sizeof d->what, "%s", *f.text ? f.text : "its process is gone");
    if (d->node_lost) {
        snprintf(d->error, sizeof d->error, "%s; resumed, the run goes on from its last checkpoint", f.text);
    } else {
        snprintf(d->error, sizeof d->error, "rank %d of %d: %s", rank, d->world, d->what);
    }
}

/* Takes note of loops that have ended; the first that failed is to blame.
 * True when none is left. */
static bool look_at_loops(trainer_driver *d)
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
        if (st) blame_rank(d, i);
    }
    return left == 0;
}

/* Whether a rank that lives has reported a checkpoint that it is still writing. */
static bool is_writing(const trainer_driver *d)
{
    for (int rank = 0; rank < d->world; rank++) {
        const trainer_ring *ring = &d->mem.rings[rank];
        if (!d->ended[rank] && atomic_load(&ring->taken) != atomic_load(&ring->written)) return true;
    }
    return false;
}

/* Until a worker wakes the driver, but no longer than to its next look. */
static void driver_sleep(trainer_driver *d, uint32_t seen)
{
    trainer_control *c = d->mem.c;

    (void)eventword_sleep(&c->wake, seen, &c->driver_asleep, clock_now_ns() + LOOK_NS, true);
}

/* What was reported before the failure is not lost with the attempt. */
static manta_status await_files(trainer_driver *d)
{
    int64_t deadline = clock_now_ns() + (int64_t)END_MS * 1000000;

    while (is_writing(d) && clock_now_ns() < deadline) {
        uint32_t seen = atomic_load(&d->mem.c->wake);
        (void)look_at_loops(d);
        TRY(driver_drain(d));
        if (!is_writing(d)) break;
        driver_sleep(d, seen);
    }
    return MANTA_OK;
}

static manta_status end_attempt(trainer_driver *d)
{
    manta_status st;

    atomic_store(&d->mem.c->over, 1);
    trainer_wake_ranks(d->mem.c);
    st = await_files(d);
    for (int i = 0; i < d->world; i++) {
        if (!d->ended[i]) (void)!manta_actor_kill(d->actors[i], true); /* a failure shows below */
    }
    for (int i = 0; i < d->world; i++) { /* nobody may write to the memory that is used again */
        d->ended[i] = manta_get(d->loops[i], END_MS) != MANTA_ETIMEDOUT;
        if (!d->ended[i]) log_warn("a worker has not ended", LOG_INT("rank", i));
        manta_release(d->loops[i]);
        manta_actor_release(d->actors[i]);
    }
    return st ? st : driver_drain(d); /* what they had reported by then, with files that will not come */
}

static atomic_int terminated; /* how often: SIGTERM, SIGINT; in whatever thread */

static void on_term(int number)
{
    (void)number;
    atomic_fetch_add(&terminated, 1);
}

/* Whether a run that is to end can be ended from here, its loops being where they
 * are: somebody said so a second time, or there is a checkpoint from after the
 * request and no loop has ever asked whether it should stop. */
static bool is_enough(const trainer_driver *d)
{
    if (!d->stopped) return false;
    if (atomic_load(&terminated) > 1) return true;
    for (int i = 0; i < d->world; i++) {
        if (atomic_load(&d->mem.c->ranks[i].listens)) return false;
    }
    return d->committed + d->parts.committed > d->stopped_at;
}

/* Looks whether a range can have more of its workers, when a new checkpoint lets all of
 * them begin again at little cost. */
static bool has_more_room(trainer_driver *d)
{
    int64_t now = clock_now_ns(), with = d->committed + d->parts.committed;

    if (d->stopped || d->scaling.n >= d->scaling.limit || with == d->room_with || now < d->room_ns)
        return false;
    for (int i = 0; i < d->world; i++) {
        if (d->ended[i]) return false; /* it is about to end as it is */
    }
    d->room_with = with;
    d->room_ns = now + ROOM_NS;
    return !scaling_grow(&d->scaling, &d->grows) && d->grows;
}

static manta_status watch_workers(trainer_driver *d)
{
    trainer_control *c = d->mem.c;

    for (;;) {
        uint32_t seen = atomic_load(&c->wake);
        bool none_left = look_at_loops(d); /* before the last look into the rings */
        TRY(driver_drain(d));
        if (atomic_load(&terminated)) driver_stop(d);
        if (none_left || d->failed_rank >= 0 || is_enough(d) || has_more_room(d)) return MANTA_OK;
        driver_sleep(d, seen);
    }
}

/* The checkpoint that an attempt begins from; NULL: none. *own: it is of this run,
 * and the caller's to close. */
static manta_status find_checkpoint(trainer_driver *d, manta_checkpoint **out, bool *own)
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
static manta_status find_places(trainer_driver *d)
{
    int64_t began = clock_now_ns(), waits_ms = d->o->scaling.start_timeout_ms;
    bool taken, more, said = false;

    for (;;) {
        int64_t passed = clock_now_ns() - began;
        TRY(scaling_take(&d->scaling, &taken));
        if (taken && d->attempt && !d->grows) TRY(scaling_grow(&d->scaling, &more));
        d->world = d->scaling.n;
        if (taken) return MANTA_OK;
        if (atomic_load(&terminated)) {
            d->stopped = true;
            return manta_fail(MANTA_ECANCELLED,
                              "run '%s' was ended on request, before there was room for its workers",
                              manta_run_name(d->run));
        }
        if (waits_ms > 0 && passed / 1000000 > waits_ms) {
            return manta_fail(MANTA_ETIMEDOUT,
                              "there is no room for %d workers after %lld ms: others hold what they ask for",
                              d->scaling.least, (long long)waits_ms);
        }
        if (!said && passed > (int64_t)SAY_AFTER_MS * 1000000) {
            log_warn("waiting for room: others hold what the workers ask for",
                     LOG_STR("run", manta_run_name(d->run)), LOG_INT("workers", d->scaling.least));
            said = true;
        }
        driver_sleep(d, atomic_load(&d->mem.c->wake));
    }
}

/* All that an attempt counts begins where its checkpoint stands. */
static void begin_counts(trainer_driver *d, const manta_checkpoint *from, bool own)
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

static manta_status run_attempt(trainer_driver *d)
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
    checkpoint_parts_begin(&d->parts, d->world, d->attempt);
    d->grows = false;
    d->room_with = d->parts.committed;
    wipe_memory(d);
    for (int i = 0; i < d->world; i++) start_rank(d, i, from ? manta_checkpoint_path(from) : NULL);
    st = watch_workers(d);
    ended = end_attempt(d);
    if (own) manta_checkpoint_close(from);
    if (st || (st = ended)) return st;
    return d->failed_rank >= 0 ? manta_fail(d->status, "%s", d->error) : MANTA_OK;
}

/* ---- before and after ---- */

static manta_status make_memory(trainer_driver *d)
{
    trainer_memory *m = &d->mem;
    size_t head = trainer_head(d->scaling.most);
    int rc;

    m->world = d->scaling.most;
    m->fd = os->memfd_create("manta-trainer", MFD_CLOEXEC);
    if (m->fd < 0) return file_fail(errno, "making", "the trainer's memory");
    rc = os->ftruncate(m->fd, (off_t)trainer_slot_at(m->world, m->world, 0));
    while (!rc && (rc = os->fallocate(m->fd, 0, 0, (off_t)head)) && errno == EINTR) rc = 0;
    if (rc) return file_fail(errno, "reserving", "the trainer's memory");
    m->c = os->mmap(NULL, head, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->c == MAP_FAILED) {
        m->c = NULL;
        return file_fail(errno, "mapping", "the trainer's memory");
    }
    m->mapped = head;
    m->rings = (trainer_ring *)(void *)((char *)m->c + trainer_round_up(sizeof(trainer_control)));
    return MANTA_OK;
}

/* What can never come true fails here, before there is a run whose name is taken. */
static manta_status check_feasible(trainer_driver *d)
{
    const char *from = d->o->resume_from_checkpoint;
    bool taken;

    TRY(driver_check_options(d));
    TRY(scaling_take(&d->scaling, &taken));
    return from && !d->o->run.resume ? manta_checkpoint_open(from, &d->first) : MANTA_OK;
}

static manta_status prepare_run(trainer_driver *d)
{
    const manta_run_config *r = &d->o->run;
    char *config;
    manta_status st;

    TRY(check_feasible(d));
    TRY(driver_check_kind(r));
    if (!(config = driver_config_text(d)))
        return manta_fail(MANTA_EINVAL, "a name or path among the trainer's options is not UTF-8, expected "
                                        "what its config.json can hold");
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
    TRY(datasets_read(&d->datasets, d->o->datasets));
    TRY(make_memory(d));
    checkpoint_parts_init(&d->parts, d->run);
    return MANTA_OK;
}

static void release_driver(trainer_driver *d)
{
    if (d->parts.run) checkpoint_parts_sweep(&d->parts);
    checkpoint_parts_release(&d->parts);
    scaling_release(&d->scaling);
    datasets_release(&d->datasets);
    manta_checkpoint_close(d->first);
    if (d->mem.c) os->munmap(d->mem.c, d->mem.mapped);
    if (d->mem.fd > 0) os->close(d->mem.fd);
    manta_run_close(d->run);
}

/* Whether there is another attempt, and with how many workers. */
static bool begins_again(trainer_driver *d)
{
    int most = driver_most_failures(d);
    manta_attempt_event e = {d->attempt, d->node_lost ? -1 : d->failed_rank, d->world, d->error};
    bool may = !d->stopped && !d->node_lost && !driver_is_incurable(d);
    bool again = may && (most == MANTA_UNLIMITED || d->failures < most), fewer;

    manta_run_log(d->run, d->failed_rank, d->error);
    if (d->o->run.failed && !d->o->run.failed(d->o->run.user, &e)) again = false;
    if (!again) return false;
    d->loss.progressed = d->committed > 0 || d->parts.done > 0;
    fewer = scaling_lost(&d->scaling, d->loss);
    if (fewer) {
        char line[96];
        snprintf(line, sizeof line, "rank %d cannot be replaced: the run goes on with %d workers",
                 d->failed_rank, d->scaling.limit);
        manta_run_log(d->run, d->failed_rank, line);
    }
    driver_tell_again(d, fewer);
    d->failures++;
    return true;
}

static manta_status run_attempts(trainer_driver *d)
{
    for (;; d->attempt++) {
        manta_status st = run_attempt(d);
        if (!st && d->grows && !d->stopped) {
            log_info("there is room for more workers; all begin again", LOG_INT("workers", d->scaling.n),
                     LOG_INT("before", d->world));
            continue;
        }
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

    atomic_store(&terminated, 0);
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
    REFUSE_NULL(o);
    REFUSE_NULL(out);

    trainer_driver d = {.o = o, .failed_rank = -1, .mem = {.fd = -1}};
    signals before;
    int level = log_own_level();
    manta_error why = {0};
    manta_status st, late;
    char *path = NULL;

    *out = NULL;
    if ((st = prepare_run(&d))) goto out;
    (void)log_use_level(rank_logs_level(run_logs(d.run)));
    take_signals(&before);
    st = run_attempts(&d);
    give_signals_back(&before);
    if (!st && d.stopped)
        st = manta_fail(MANTA_ECANCELLED, "run '%s' was ended on request", manta_run_name(d.run));
    if (!st && d.trouble.code) st = manta_error_raise(&d.trouble);
    if (st) manta_error_get(&why);
    run_set_outcome(d.run, &(run_outcome){st, d.failed_rank, d.failures, d.world});
    late = manta_run_finish(d.run,
                            !st         ? "done"
                            : d.stopped ? "interrupted"
                                        : "failed",
                            &d.last, st ? why.text : NULL);
    if (!st && late) {
        st = late;
        manta_error_get(&why);
    }
    if (st && !d.stopped) driver_tell_end(&d, why.text);
    path = mem_strdup(manta_run_path(d.run));
out:
    if (st && !why.code) manta_error_get(&why);
    release_driver(&d);
    (void)log_use_level(level);
    late = path ? manta_result_read(path, out) : MANTA_OK;
    if (late && !st) { /* done, and what was done cannot be told */
        st = late;
        manta_error_get(&why);
    }
    if (*out) {
        (*out)->status = st;
        if (d.last.n) (*out)->metrics = d.last; /* the folder may have had no room for them */
        (*out)->failures = d.failures;
        (*out)->workers = d.world;
        (*out)->error_rank = d.node_lost ? -1 : d.failed_rank;
    }
    mem_free(path);
    return st ? manta_error_raise(&why) : MANTA_OK;
}
