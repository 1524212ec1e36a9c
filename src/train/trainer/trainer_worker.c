/* trainer_worker.c - a worker of a trainer: what its loop may ask, and the actor that runs it.
 *
 *   manta_trainer_loop(task, config, datasets...)      a call of the driver's, in an actor
 *     read_arguments()     names become functions; what this program has not got fails here
 *     attach_memory()      the driver's memory, through /proc
 *     redirect_output()    from here on what is printed goes to the rank's log
 *     state = RUNNING
 *     the loop
 *     worker_saves_end()   the files of its last reports are on disk
 *     state = ENDED        nobody waits for this rank any more
 *
 * A loop that fails leaves its rank RUNNING: the others go on waiting for it until the driver,
 * which has the failure as the result of this call, sets `over` and ends them. So a meeting is
 * never held without a rank that should have been there.
 *
 * Who writes what: a worker is its loop's thread's, but for what trainer_save.c shares with a
 * thread of its own. Of the shared memory it writes its own rank, ring and slots, and nothing
 * of another's. What it was told (w->t) is never changed, and has no address in it: the driver
 * may be another program.
 *
 * Why that is safe: ENDED is stored after the last report is in the ring and its files are
 * there. Who reads ENDED, and the ring after that, has seen all that this rank will ever say. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <manta/task.h>
#include <manta/version.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"
#include "os/file.h"
#include "os/spawner.h"
#include "os/sys.h"
#include "train/run/run_folder.h"
#include "train/run/run_parts.h"
#include "train/trainer/trainer_worker.h"

manta_status worker_is_over(const manta_worker *w)
{
    if (!atomic_load(&w->mem.c->over)) return MANTA_OK;
    return manta_fail(MANTA_EDIED, "another worker of the run is gone, or the run has ended");
}

/* ---- what a loop may ask ---- */

int manta_worker_rank(const manta_worker *w)
{
    REFUSE_NULL_OR(w, 0);
    return w->t.rank;
}

int manta_worker_world_size(const manta_worker *w)
{
    REFUSE_NULL_OR(w, 0);
    return w->t.world;
}

int manta_worker_local_rank(const manta_worker *w)
{
    REFUSE_NULL_OR(w, 0);
    return w->t.rank; /* one host */
}

int manta_worker_local_world_size(const manta_worker *w)
{
    REFUSE_NULL_OR(w, 0);
    return w->t.world;
}

int manta_worker_node_rank(const manta_worker *w)
{
    REFUSE_NULL_OR(w, 0);

    (void)w;
    return 0;
}

const char *manta_worker_run_name(const manta_worker *w)
{
    REFUSE_NULL_OR(w, NULL);
    return w->t.name;
}

const char *manta_worker_storage(const manta_worker *w)
{
    REFUSE_NULL_OR(w, NULL);
    return w->t.run;
}

int manta_worker_attempt(const manta_worker *w)
{
    REFUSE_NULL_OR(w, 0);
    return w->t.attempt;
}

const void *manta_worker_config(const manta_worker *w, size_t *size)
{
    REFUSE_NULL_OR(w, NULL);

    if (size) *size = w->config_size;
    return w->config;
}

const manta_checkpoint *manta_worker_checkpoint(const manta_worker *w)
{
    REFUSE_NULL_OR(w, NULL);
    return w->checkpoint;
}

int64_t manta_worker_epoch(const manta_worker *w)
{
    REFUSE_NULL_OR(w, 0);
    return w->checkpoint ? manta_checkpoint_get(w->checkpoint)->epoch : 0;
}

int64_t manta_worker_step(const manta_worker *w)
{
    REFUSE_NULL_OR(w, 0);

    const char *told = w->checkpoint ? manta_checkpoint_note(w->checkpoint, RUN_WORKERS) : NULL;
    int64_t step = w->checkpoint ? manta_checkpoint_get(w->checkpoint)->step : 0;
    int64_t workers = told ? strtoll(told, NULL, 10) : 0, all;

    /* A step takes as many samples as there are workers, times the batch. */
    if (workers < 1 || workers > TRAINER_RANKS || __builtin_mul_overflow(step, workers, &all)) return step;
    return all / w->t.world;
}

bool manta_worker_should_stop(const manta_worker *w)
{
    REFUSE_NULL_OR(w, false);

    _Atomic uint32_t *listens = &w->mem.c->ranks[w->t.rank].listens;

    if (!atomic_load_explicit(listens, memory_order_relaxed)) atomic_store(listens, 1);
    return atomic_load(&w->mem.c->stop) != 0;
}

/* ---- the actor ---- */

static manta_status attach_memory(manta_worker *w)
{
    char path[64];
    size_t head = trainer_head(w->t.most);

    snprintf(path, sizeof path, "/proc/%d/fd/%d", w->t.driver, w->t.fd);
    w->mem.world = w->t.most;
    do w->mem.fd = os->open(path, O_RDWR | O_CLOEXEC, 0);
    while (w->mem.fd < 0 && errno == EINTR);
    if (w->mem.fd < 0) return file_fail(errno, "opening the trainer's memory", path);
    w->mem.c = os->mmap(NULL, head, PROT_READ | PROT_WRITE, MAP_SHARED, w->mem.fd, 0);
    if (w->mem.c == MAP_FAILED) return file_fail(errno, "mapping", path);
    w->mem.rings = (trainer_ring *)(void *)((char *)w->mem.c + trainer_round_up(sizeof(trainer_control)));
    w->mem.mapped = head;
    return MANTA_OK;
}

/* What the loop prints goes to the log of its rank, or to where the driver wants it. */
static void redirect_output(const manta_worker *w)
{
    rank_log_task log = w->t.log;
    char *folder = run_inner(w->t.local, "log"), path[64];

    if (log.pipe >= 0) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", w->t.driver, log.pipe);
        do log.pipe = os->open(path, O_WRONLY | O_CLOEXEC, 0);
        while (log.pipe < 0 && errno == EINTR);
    }
    fflush(stdout);
    rank_logs_follow(folder, &log, "rank", w->t.rank);
    if (log.pipe >= 0) os->close(log.pipe);
    mem_free(folder);
}

/* A driver of another version would mean other fields. */
static manta_status read_task(const manta_task *t, manta_worker *w)
{
    char version[sizeof w->t.version] = "";
    const void *at;
    size_t n;

    TRY(manta_arg_bytes(t, 0, &at, &n));
    if (n >= sizeof version) memcpy(version, at, sizeof version - 1);
    if (n == sizeof w->t && !strcmp(version, manta_version())) {
        memcpy(&w->t, at, n);
        return MANTA_OK;
    }
    return manta_fail(MANTA_EUNSUPPORTED,
                      "the trainer's driver has Manta '%s' and a task of %zu bytes; this worker's program "
                      "expected '%s' and %zu",
                      version, n, manta_version(), sizeof w->t);
}

/* The dataset that is described by argument *arg, with what follows it. */
static manta_status read_dataset(const manta_task *t, manta_worker *w, int *arg)
{
    trainer_dataset *d = &w->datasets[w->n_datasets];
    worker_maker *m = &w->makers[w->n_datasets];
    const void *at;
    size_t n;

    TRY(manta_arg_bytes(t, (*arg)++, &at, &n));
    if (n != sizeof *d)
        return manta_fail(MANTA_EINTERNAL,
                          "the description of a trainer's dataset has %zu bytes, expected %zu", n, sizeof *d);
    memcpy(d, at, n);
    if (*d->maker) {
        any_function *fn;
        TRY(functions_find(FUNCTION_MAKER, d->maker, &fn));
        m->fn = (manta_dataset_maker *)fn;
        TRY(manta_arg_bytes(t, (*arg)++, &m->user, &m->size));
    }
    for (int k = 0; k < d->n_columns; k++) TRY(manta_arg_array(t, (*arg)++, &w->columns[w->n_datasets][k]));
    w->n_datasets++;
    return MANTA_OK;
}

/* Arguments: task, config, then for each dataset its description and what follows it. */
static manta_status read_arguments(const manta_task *t, manta_worker *w)
{
    any_function *fn;
    int arg = 2;

    TRY(read_task(t, w));
    TRY(functions_find(FUNCTION_LOOP, w->t.loop, &fn));
    w->loop = (manta_loop_fn *)fn;
    TRY(manta_arg_bytes(t, 1, &w->config, &w->config_size));
    while (arg < manta_args(t)) {
        if (w->n_datasets == TRAINER_DATASETS)
            return manta_fail(MANTA_EINTERNAL, "a trainer's worker has more than %d datasets",
                              TRAINER_DATASETS);
        TRY(read_dataset(t, w, &arg));
    }
    return MANTA_OK;
}

static void worker_release(manta_worker *w)
{
    worker_saves_release(w);
    for (int i = 0; i < w->t.world; i++) {
        for (int turn = 0; turn < 2; turn++) {
            if (w->slots[i][turn].at) os->munmap(w->slots[i][turn].at, w->slots[i][turn].size);
        }
    }
    if (w->mem.mapped) os->munmap(w->mem.c, w->mem.mapped);
    if (w->mem.fd > 0) os->close(w->mem.fd);
    manta_checkpoint_close(w->checkpoint);
    worker_drop_notes(w);
    mem_free(w->parts_folder);
    mem_free(w);
}

/* Only a loop that has come to its end is not waited for any more; the driver
 * hears of one that failed, and ends the others. */
static void say_ended(manta_worker *w)
{
    atomic_store(&w->mem.c->ranks[w->t.rank].state, RANK_ENDED);
    trainer_wake_ranks(w->mem.c);
    worker_wake_driver(w);
}

static manta_status run_loop(manta_worker *w)
{
    manta_status st;

    spawn_ignore_requests(); /* the driver tells its loops */
    TRY(attach_memory(w));
    redirect_output(w);
    w->parts_folder = run_parts_folder(w->t.local, w->t.driver, w->t.attempt);
    manta_error_origin(NULL, w->t.rank);
    if (*w->t.checkpoint) TRY(manta_checkpoint_open(w->t.checkpoint, &w->checkpoint));
    atomic_store(&w->mem.c->ranks[w->t.rank].pid, (uint32_t)getpid());
    atomic_store(&w->mem.c->ranks[w->t.rank].state, RANK_RUNNING);
    st = w->loop(w);
    if (st) {
        manta_error why;
        manta_error_get(&why);
        worker_saves_await(w); /* the loop's own failure is the first */
        (void)!manta_error_raise(&why);
    } else {
        st = worker_saves_end(w);
    }
    fflush(stdout);
    rank_log_settle();
    if (!st) say_ended(w);
    if (st) worker_wake_driver(w);
    return st;
}

static manta_status manta_trainer_loop(manta_task *t)
{
    manta_worker *w = mem_new(sizeof *w);
    manta_status st = read_arguments(t, w);

    worker_saves_init(w);
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
