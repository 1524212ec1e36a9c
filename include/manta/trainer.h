/* manta/trainer.h - a training loop of one's own, run by several workers.
 *
 *     static manta_status loop(manta_worker *w)
 *     {
 *         const settings *c = manta_worker_config(w, NULL);
 *         manta_session *s;
 *         manta_loader *l;
 *         manta_metrics m;
 *         MANTA_TRY(manta_prepare_model(w, model, &compile, NULL, &s));
 *         MANTA_TRY(manta_prepare_loader(w, "train", &loading, &l, NULL));
 *         for (int64_t e = manta_worker_epoch(w); e < c->epochs; e++) {
 *             MANTA_TRY(manta_worker_train_epoch(w, s, l, e, &m));
 *             MANTA_TRY(manta_report_session(w, &m, s, e + 1, 0));        // metrics and a checkpoint
 *         }
 *         return MANTA_OK;
 *     }
 *     MANTA_LOOP(loop)
 *
 *     int main(int argc, char **argv)
 *     {
 *         if (manta_init(&argc, &argv, NULL)) return 1;
 *         settings c = {.epochs = 5};
 *         manta_trainer_options o = {
 *             .loop = loop, .config = &c, .config_size = sizeof c,
 *             .scaling = {.num_workers = 2},
 *             .run = {.name = "mine", .failure = {.max_failures = 3}, .checkpoints = {.keep = 2}},
 *             .n_datasets = 1, .datasets = &(manta_named_dataset){.name = "train", .spec = "mnist"}};
 *         manta_result *r;
 *         manta_status st = manta_trainer_fit(&o, &r);
 *         manta_result_free(r);
 *         return st != MANTA_OK;
 *     }
 *
 * Workers are actors of the runtime (manta/task.h): processes forked from this
 * program as it was at manta_init(). The loop runs once in each, and is told to them by
 * its name (MANTA_LOOP). When a worker
 * dies, or its loop fails, all of them are ended and, up to max_failures times,
 * started again from the last checkpoint; loops begin where
 * manta_worker_checkpoint() says. When the node itself is gone, the run ends; it
 * can be resumed. A failure shows one block on standard error, or is one record of the
 * log where that is for programs (manta/log.h): which worker, what, where, what now.
 *
 * Reports of metrics are a stream: each rank reports as often as it likes, and
 * nobody waits for anybody. A checkpoint is one for the group and is committed
 * by the driver, behind the loops' backs: a session or arrays from rank 0 alone,
 * at once; folders from several ranks when every rank that is still in its loop
 * has given its n-th, and their files come to lie in one folder. A rank whose
 * loop has ended is not waited for, and no loop waits for another's report. */
#ifndef MANTA_TRAINER_H
#define MANTA_TRAINER_H

#include <manta/data.h>
#include <manta/run.h>
#include <manta/task.h>
#include <manta/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what to run ---- */

typedef struct manta_worker manta_worker; /* a worker, as its loop sees it */
typedef manta_status manta_loop_fn(manta_worker *w);
/* Makes the dataset of one worker, in that worker. `user` has the `size` bytes of the
 * named dataset's options, and is valid until the loop ends. NULL: it failed, and said
 * why with manta_fail(). The result is the caller's. */
typedef manta_dataset *manta_dataset_maker(manta_worker *w, const void *user, size_t size);

/* Loops and dataset makers go to the workers by name, as remote functions do. A worker need
 * not be this program at these addresses: all that it is told is a name and bytes.
 *
 * MANTA_LOOP(fn) and MANTA_DATASET_MAKER(fn) register `fn` under its own name; one line at
 * file scope, no semicolon needed. The options of a trainer then take the function or
 * its name. A name that two functions are registered under, in two files say, names
 * neither, and a trainer that asks for either is refused: MANTA_EEXIST.
 *
 * A function that is registered nowhere serves as well, while its workers run the same
 * file as the driver, as they do when they are forked from it: it goes by the build id of
 * that file and its place therein. A worker that is another program finds nothing
 * there, and says so. */
#define MANTA_LOOP(fn)                                                                                       \
    __attribute__((constructor)) static void manta_registers_loop_##fn(void)                                 \
    {                                                                                                        \
        manta_register_loop(#fn, fn);                                                                        \
    }
#define MANTA_DATASET_MAKER(fn)                                                                              \
    __attribute__((constructor)) static void manta_registers_dataset_maker_##fn(void)                        \
    {                                                                                                        \
        manta_register_dataset_maker(#fn, fn);                                                               \
    }
/* Register a function under a name of 1 to 127 bytes that does not begin with '@', which
 * is copied: before manta_init(), since workers have what was registered then. */
MANTA_API void manta_register_loop(const char *name, manta_loop_fn *fn);
MANTA_API void manta_register_dataset_maker(const char *name, manta_dataset_maker *fn);

/* How many workers, and what each asks the node for. What they ask for is
 * reserved for all of them together before the first one starts.
 *
 * With min_workers the number is a range: an attempt begins with as many as
 * have room at that moment, and waits only while there is none for min_workers. When
 * there is room for more later, all are ended after the next checkpoint and begin
 * again from it with so many, which is no failure. A
 * worker that cannot be replaced (it dies before its loop begins, or workers die
 * in two attempts in a row with no checkpoint in between) is given up, and the
 * next attempt has one less. The loop sees the number of its own attempt:
 * manta_worker_world_size(), shards, samplers and steps of an epoch follow from
 * it, the state comes from the checkpoint, and a step in the middle of an epoch
 * is converted (manta_worker_step()). The number never changes during an attempt. */
typedef struct manta_scaling_config {
    int num_workers; /* 0: 1; of a range: the most */
    int min_workers; /* 0: all of them */
    int threads_per_worker; /* 0: the cores divided by the workers */
    double cpus_per_worker; /* reserved; 0: none, of a range threads_per_worker or 1; MANTA_NONE: none */
    const char *resources_per_worker; /* "disk=1"; besides the processors */
    manta_placement placement;
    int64_t start_timeout_ms; /* how long an attempt waits for room, then MANTA_ETIMEDOUT; 0: for ever */
    bool use_gpu; /* MANTA_EUNSUPPORTED: said at fit */
} manta_scaling_config;

typedef struct manta_failure_config {
    /* Starts after the first. MANTA_NONE: none; MANTA_UNLIMITED; 0: 3, but none when a loop
     * fails with MANTA_ENOSPC, since a full disk stays full. */
    int max_failures;
} manta_failure_config;

/* What happened, for the program's own account; false ends the run. A checkpoint of
 * folders comes with the report that made it complete. When that was no report, but a
 * rank with no part in it that has left its loop, the report of the lowest rank that
 * has one comes once more. */
typedef struct manta_report_event {
    int64_t index; /* number of the report of this rank, from 0 */
    int rank;
    const manta_metrics *metrics;
    const char *checkpoint; /* folder, when one was committed with it; else NULL */
} manta_report_event;
typedef bool manta_report_fn(void *user, const manta_report_event *e);

/* An attempt has failed; false: no other one, whatever max_failures says. */
typedef struct manta_attempt_event {
    int attempt; /* the attempt that failed, from 0; those that ended for growth count too */
    int rank; /* to blame; -1: none, the node is gone */
    int workers; /* workers that the attempt had */
    const char *error; /* the rank's own sentence */
} manta_attempt_event;
typedef bool manta_attempt_fn(void *user, const manta_attempt_event *e);

typedef struct manta_run_config {
    const char *name, *storage; /* NULL: "train" numbered; NULL: manta_run_storage() */
    bool resume; /* a run of that name goes on from its last checkpoint */
    manta_failure_config failure;
    manta_checkpoints_options checkpoints; /* num_to_keep, score, order */
    manta_report_fn *report; /* called in this process, as reports come; may be NULL */
    manta_attempt_fn *failed; /* called in this process, for attempts that failed; may be NULL */
    void *user; /* handed to both functions */
    manta_logging_config logging; /* manta/run.h */
} manta_run_config;

/* A dataset as workers get it: given by `dataset`, by `spec`, or by a function that makes
 * it (`make`, or `maker` by its name). */
typedef struct manta_named_dataset {
    const char *name; /* of the dataset, for manta_worker_dataset() */
    manta_dataset *dataset; /* read once and put into the store, where all workers share it */
    const char *spec; /* for manta_dataset_open() in the worker */
    manta_dataset_maker *make; /* called in the worker; already sharded, if at all */
    const char *maker; /* the name that it was registered under, instead of `make` */
    const void *user; /* for make: copied to the workers; no pointers in it */
    size_t user_size; /* bytes of it */
    bool whole; /* every worker gets all of it; else a shard of its own. make: always its own */
    bool shuffle; /* before it is divided, anew every epoch, by the trainer's seed */
} manta_named_dataset;

typedef struct manta_trainer_options {
    manta_loop_fn *loop; /* what each worker runs */
    const char *loop_name; /* the name that it was registered under, instead of `loop` */
    const void *config; /* copied to the workers; no pointers in it */
    size_t config_size;
    manta_scaling_config scaling;
    manta_run_config run;
    int n_datasets;
    const manta_named_dataset *datasets;
    const char *resume_from_checkpoint; /* folder of a checkpoint to begin from; NULL: none */
    uint64_t seed; /* of sessions made by manta_prepare_model() without one */
} manta_trainer_options;

/* ---- how it ended ---- */

typedef struct manta_result {
    char *path; /* path of the run's folder */
    manta_status status;
    char *error; /* the sentence of the rank that failed, with its number; NULL */
    int error_rank; /* -1: none is to blame */
    int failures; /* failures that the run recovered from */
    int workers; /* of the last attempt; 0: not known, of a run that was killed or is running */
    manta_metrics metrics; /* rank 0's last report */
    char *checkpoint; /* folder of the last one; NULL: none */
    int n_checkpoints; /* those that were kept, the latest first (manta_result_best()) */
    char **checkpoints;
    manta_metrics *checkpoint_metrics;
    int n_series; /* the whole history of rank 0, metric by metric */
    manta_run_series *series;
} manta_result;

/* Runs the loop in all workers and waits for the end. manta_init() was called.
 * SIGTERM and SIGINT, where the program has not taken them itself, end the run after
 * a checkpoint (manta_worker_should_stop()): MANTA_ECANCELLED, and a run of that name
 * with `resume` goes on. What can never come true (options, room, a checkpoint to
 * begin from) fails before there is a run.
 * *out: owned, manta_result_free(); also set when the run has failed (then the
 * status is that of the failure), NULL when it never began or its folder is gone. */
MANTA_API manta_status manta_trainer_fit(const manta_trainer_options *o, manta_result **out) MANTA_MUST_USE;
/* Reads the result of the run in `folder`, at any time after its fit. A run of which no
 * result is there has been killed (MANTA_EUNKNOWN) or is running (MANTA_EBUSY): its
 * status says so, and metrics and checkpoints are those so far. */
MANTA_API manta_status manta_result_read(const char *folder, manta_result **out) MANTA_MUST_USE;
MANTA_API void manta_result_free(manta_result *r); /* accepts NULL */
/* The kept checkpoint that is best by a metric ("max", "min" or NULL: by its
 * name); NULL: none has it. Borrowed. */
MANTA_API const char *manta_result_best(const manta_result *r, const char *metric, const char *order);

/* ---- in the loop ---- */

MANTA_API int manta_worker_rank(const manta_worker *w); /* world rank */
MANTA_API int manta_worker_world_size(const manta_worker *w);
MANTA_API int manta_worker_local_rank(const manta_worker *w);
MANTA_API int manta_worker_local_world_size(const manta_worker *w);
MANTA_API int manta_worker_node_rank(const manta_worker *w);
MANTA_API const char *manta_worker_run_name(const manta_worker *w); /* the experiment's */
MANTA_API const char *manta_worker_storage(const manta_worker *w); /* the run's folder */
MANTA_API int manta_worker_attempt(const manta_worker *w); /* 0, and more after failures, or growth */
MANTA_API const void *manta_worker_config(const manta_worker *w, size_t *size); /* size may be NULL */

/* The checkpoint to begin from: the run's last, else resume_from_checkpoint;
 * NULL: none. Borrowed until the loop ends. */
MANTA_API const manta_checkpoint *manta_worker_checkpoint(const manta_worker *w);
/* Where to begin: of that checkpoint; 0 without one. A step that another number
 * of workers had come to is the last one here that leaves no sample out: some
 * may come twice. */
MANTA_API int64_t manta_worker_epoch(const manta_worker *w);
MANTA_API int64_t manta_worker_step(const manta_worker *w);

/* Whether the run is to end (SIGTERM, Ctrl-C, `manta stop`, a report function that
 * said so): report a checkpoint and return. Loops that never ask are ended when
 * their next checkpoint is committed. A second signal ends any loop at once. */
MANTA_API bool manta_worker_should_stop(const manta_worker *w);

/* Reports. Files of one are brought to disk behind the loop's back, by a thread of this
 * worker's, in the order of the reports; the checkpoint is committed when those of all
 * ranks are there. One is written and one waits: who reports a third checkpoint waits
 * for the first, and who makes 128 reports behind one that is being written waits for
 * it. The end of the loop waits for all of them. What could not be written is told by
 * the next report of this rank, of any kind, which does nothing else then; and by the
 * end of the loop, when no report has told it or the last checkpoint is the lost one.
 * MANTA_EDIED the run has ended. */

/* Metrics alone: goes into a ring in shared memory and returns; never waits
 * for others. NaN is allowed. In the run's record it counts as an epoch more
 * than the report before, unless that one or this one says another. */
MANTA_API manta_status manta_report(manta_worker *w, const manta_metrics *m) MANTA_MUST_USE;
/* Metrics and files: what lies in `folder` (made by this rank, NULL: it has
 * none this time) becomes part of the group's checkpoint, which is committed when
 * every rank has given its part and all of it is on the disk. From a call that
 * succeeds on the folder is Manta's: it is moved away, at once, by a rename, and its name
 * is free for the next one. (One of another file system than the run's is copied
 * later, from a hidden name beside its own.) The loop has closed what it wrote there.
 * What a checkpoint cannot keep (manta_checkpoints_add()) is refused, and stays.
 * The same name from two ranks is the lower rank's. info may be NULL: a report stands
 * for an epoch; else rank 0's says where a loop that begins from it goes on, and its
 * notes are the checkpoint's (metrics and sequence are set by the driver). */
MANTA_API manta_status manta_report_checkpoint(manta_worker *w, const manta_metrics *m, const char *folder,
                                               const manta_checkpoint_info *info) MANTA_MUST_USE;
/* Metrics and the state of a prepared session, which is the same in all ranks:
 * rank 0's is taken, the others' calls only report metrics. (epoch, step): where
 * a loop that begins from it goes on. Only the copy in memory is waited for. */
MANTA_API manta_status manta_report_session(manta_worker *w, const manta_metrics *m, const manta_session *s,
                                            int64_t epoch, int64_t step) MANTA_MUST_USE;
/* Reports metrics and a checkpoint of named arrays, kept as state.safetensors. The arrays
 * are copied; (epoch, step) as manta_report_session() takes them. */
MANTA_API manta_status manta_report_arrays(manta_worker *w, const manta_metrics *m, int n,
                                           const manta_column *arrays, int64_t epoch,
                                           int64_t step) MANTA_MUST_USE;
/* A note for the next checkpoint that this rank reports, in whatever way; both
 * are copied. Of a checkpoint of folders rank 0's notes are taken.
 * manta_checkpoint_note() reads it. MANTA_EINVAL "reports" and "workers" are
 * Manta's own. All notes of a checkpoint have up to 1 MiB: its report says so. */
MANTA_API manta_status manta_worker_note(manta_worker *w, const char *name, const char *text) MANTA_MUST_USE;
/* An empty folder of this rank's own, removed with the run's end. Owned: free(). */
MANTA_API manta_status manta_worker_temp_folder(manta_worker *w, char **out) MANTA_MUST_USE;

/* This rank's part of the dataset called `name`. Owned: manta_dataset_unref(). */
MANTA_API manta_status manta_worker_dataset(manta_worker *w, const char *name,
                                            manta_dataset **out) MANTA_MUST_USE;
/* Its loader, with a sampler that divides it (o's sampler, seed, rank and
 * replicas are set here). *steps (may be NULL): of the rank that has most; one
 * that runs out before takes part with batches of none. All ranks call it. */
MANTA_API manta_status manta_prepare_loader(manta_worker *w, const char *name, const manta_loader_options *o,
                                            manta_loader **out, int64_t *steps) MANTA_MUST_USE;
/* A session of which every rank has the same state: manta_worker_train_step()
 * trains it with the batches of all ranks. What a rank changes in it between steps,
 * all are to change alike. It takes the state of the checkpoint, if there is one.
 * *out: owned, manta_session_close(). */
MANTA_API manta_status manta_prepare_model(manta_worker *w, const manta_model *m, const manta_compile *c,
                                           const manta_session_options *o,
                                           manta_session **out) MANTA_MUST_USE;
/* One step of all ranks on a prepared session, each with a batch of its own (count 0: it
 * has none): the step of a session with as many shards, so that all ranks end with the
 * bytes of one process. f's `first` is where its samples lie in the batch of all.
 * MANTA_EDIED a rank is gone. MANTA_EINVAL the session was not prepared. */
MANTA_API manta_status manta_worker_train_step(manta_worker *w, manta_session *s,
                                               const manta_feed *f) MANTA_MUST_USE;
/* A whole epoch of such steps over a prepared loader. The epoch manta_worker_epoch()
 * begins at manta_worker_step(), where the checkpoint left it, and every other one
 * at step 0. *m (may be NULL) gets loss and metrics over all ranks. */
MANTA_API manta_status manta_worker_train_epoch(manta_worker *w, manta_session *s, manta_loader *l,
                                                int64_t epoch, manta_metrics *m) MANTA_MUST_USE;
/* manta_evaluate() of a prepared session, each rank with a shard of its own (none:
 * d NULL); *m: loss and metrics over all samples of all ranks, the same in each.
 * (manta_evaluate() itself counts this rank's samples, and waits for nobody.)
 * All ranks call it, also one that fails. */
MANTA_API manta_status manta_worker_evaluate(manta_worker *w, manta_session *s, manta_dataset *d,
                                             const manta_fit_options *o, manta_metrics *m) MANTA_MUST_USE;
/* Loss and metrics of the steps since manta_session_reset_metrics(), over all ranks. */
MANTA_API manta_status manta_worker_metrics(manta_worker *w, const manta_session *s,
                                            manta_metrics *m) MANTA_MUST_USE;
/* Waits for all ranks whose loop is running. */
MANTA_API manta_status manta_worker_barrier(manta_worker *w) MANTA_MUST_USE;
/* Sums n numbers over all ranks, in the order of ranks. */
MANTA_API manta_status manta_worker_sum(manta_worker *w, double *values, int n) MANTA_MUST_USE;
/* Rank 0's n bytes become everybody's. All ranks whose loop is running call it.
 * MANTA_EINVAL they come with different sizes; MANTA_EDIED rank 0's loop has ended. */
MANTA_API manta_status manta_worker_broadcast(manta_worker *w, void *data, size_t n) MANTA_MUST_USE;

/* manta_fit() of a prepared session, with a shard that manta_worker_dataset()
 * gave, trains all ranks together: every rank calls it with the same options, a
 * step is everybody's, the metrics of an epoch are those of all. This callback
 * reports them, with a checkpoint at every `checkpoint_every`-th (0: none) that holds
 * what all callbacks remember; a fit whose initial_epoch is manta_worker_epoch()
 * gives it back to them. */
MANTA_API manta_callback *manta_report_callback(manta_worker *w, int64_t checkpoint_every);

#ifdef __cplusplus
}
#endif
#endif
