/* manta/train.h - training a model, in this process or in several.
 *
 * A session is a model with its losses, metrics and optimizer and with a
 * state: weights, statistics, optimizer arrays, counters. fit, evaluate and
 * predict run whole datasets through it; the calls below them do one batch,
 * or one half of a step, for programs that exchange weights or gradients
 * themselves.
 *
 * For one seed and number of shards the result does not depend on the number
 * of threads (docs/numerics.md).
 *
 * Threads: a session is used by one thread at a time; it computes with its
 * own pool. */
#ifndef MANTA_TRAIN_H
#define MANTA_TRAIN_H

#include <manta/array.h>
#include <manta/cluster.h>
#include <manta/data.h>
#include <manta/file.h>
#include <manta/loss.h>
#include <manta/model.h>
#include <manta/optimizer.h>
#include <manta/option.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_session manta_session;

/* What to minimise and how: Keras's compile. Zero losses: predict only. */
typedef struct manta_compile {
    const manta_optimizer *optimizer; /* NULL: rmsprop, as Keras */
    int n_losses; /* one per output of the model */
    const manta_loss *losses;
    int n_metrics;
    const manta_metric *metrics;
} manta_compile;

/* What becomes of the statistics of batch norm, of which the shards of a step
 * have their own: which moving ones are kept. */
typedef enum manta_statistics {
    MANTA_STATISTICS_MEAN, /* their mean, added up in shard order: TensorFlow's way */
    MANTA_STATISTICS_FIRST, /* shard 0's: PyTorch's DistributedDataParallel saves rank 0's */
    MANTA_STATISTICS_SYNC /* the shards go in lockstep and normalise with the statistics of all of
                             them, as if the batch were not cut: PyTorch's SyncBatchNorm */
} manta_statistics;

/* How workers train together. */
typedef enum manta_strategy_kind {
    MANTA_STRATEGY_SYNC, /* every step is everybody's: docs/training-step.md */
    MANTA_STRATEGY_PARAMETER_SERVER /* nobody waits: workers pull weights from servers and push
                                       gradients; docs/parameter-server.md */
} manta_strategy_kind;

/* With several workers manta_fit() and manta_evaluate() fork that many
 * processes, which share the state and may be killed at any time without
 * changing the result (docs/training-step.md); all other calls compute in this
 * process. The program should not hold locks of its own in other threads while
 * it calls them, if data or operations that it has written itself take them. */
typedef struct manta_session_options {
    int threads; /* of each worker; 0: as many as this process may use, divided by the workers */
    uint64_t seed;
    int shards; /* V: a batch is cut into so many, summed in a fixed tree; 0: as many as workers */
    manta_statistics statistics;
    manta_strategy_kind strategy;
    int servers; /* parameter servers; 0: 1 */
    int64_t staleness; /* parameter servers: the weights of a step lack the updates of at most so
                          many steps before it; MANTA_ZERO: of none; 0: no bound */
    int workers; /* 0 or 1: this process computes */
    int min_workers; /* as few as that will do: manta_session_resize() may ask for less than `workers`,
                        and a worker that fails over and over is given up; 0: all of them */
    manta_cluster *cluster; /* fit and evaluate run together with its other processes; NULL: alone. A
                               batch counts for each process, as for each worker. Borrowed */
    const char *kernels; /* "auto" (NULL), "reference", "avx2", "avx512", "onednn" */
    const char
        *precision; /* "exact" (NULL on a processor): products of floats, in the order of docs/numerics.md;
                              "float32" (NULL on a GPU): the same on a processor, products of tf32 numbers on
                              a GPU; "mixed_bfloat16": products and activations in bfloat16, sums, weights and
                              the optimizer in float32 */
    const char *
        device; /* "cpu" (NULL); "gpu": an NVIDIA GPU computes, in this process, in precision "exact" with the
                           same bits as the processor; "auto": a GPU where there is one that can compute this, else the processor */
    bool debug; /* node by node on the reference kernels (unless told otherwise); names the first NaN */
    bool blank; /* weights begin as zeros: a state is going to be restored, and random numbers take time */
    bool no_fusion; /* keep gradients in memory instead of updating where they are made */
} manta_session_options;

/* Opens a session with freshly initialised weights. The model must be built;
 * it is borrowed until manta_session_close(); all else is copied.
 * options may be NULL. */
MANTA_API manta_status manta_session_open(const manta_model *m, const manta_compile *c,
                                          const manta_session_options *options,
                                          manta_session **out) MANTA_MUST_USE;
MANTA_API void manta_session_close(manta_session *s); /* accepts NULL */
MANTA_API const manta_model *manta_session_model(const manta_session *s);
/* How many workers fit and evaluate are to have from the next step on, between
 * min_workers and workers of the session's options; also from within an event.
 * The result does not depend on it. MANTA_EINVAL. */
MANTA_API manta_status manta_session_resize(manta_session *s, int workers) MANTA_MUST_USE;
MANTA_API int manta_session_workers(const manta_session *s); /* as asked for, less those given up */
/* What the workers of a rank have trained since the session was opened, so that rates can
 * be made of the difference of two looks; from within an event of a fit. Without workers
 * this process is rank 0. False: no fit is under way, none has that rank, or the strategy
 * does not measure it (a cluster, parameter servers). */
typedef struct manta_worker_work {
    int64_t samples; /* those of a step that was done again count again */
    double seconds; /* seconds that the samples took, without waiting for others */
    double data_seconds; /* seconds of these that were spent waiting for samples to be read and decoded */
    double update_seconds; /* seconds of these that were spent on norms and the new state; 0 without workers,
                              where parameters are updated during the backward pass */
    double wait_seconds; /* seconds besides these, within steps, that were spent waiting for other workers */
} manta_worker_work;
MANTA_API bool manta_session_worker_work(const manta_session *s, int rank, manta_worker_work *out);
/* Threads and kernels in use, as a line for people: "2 threads, avx512 kernels", and the precision unless it is
 * "exact". */
MANTA_API const char *manta_session_about(const manta_session *s);
/* What it computes in: "exact", "float32" (on a GPU) or "mixed_bfloat16". */
MANTA_API const char *manta_session_precision(const manta_session *s);

/* ---- metrics ---- */

#define MANTA_MAX_METRICS 32

/* Named numbers: "loss" first, then the losses of several outputs, then the
 * metrics, in the order given to compile. */
typedef struct manta_metrics {
    int n;
    char name[MANTA_MAX_METRICS][64];
    double value[MANTA_MAX_METRICS];
} manta_metrics;

/* The value called `name`; NAN when there is none. */
MANTA_API double manta_metrics_get(const manta_metrics *m, const char *name);

/* ---- weights ---- */

/* The variable called `name` (as in manta_variable_info): a view of the
 * session's memory, valid until the next call that trains. */
MANTA_API manta_status manta_session_weight(manta_session *s, const char *name,
                                            manta_array *out) MANTA_MUST_USE;
/* Copies `value` (same shape; any dtype) into the variable. */
MANTA_API manta_status manta_session_set_weight(manta_session *s, const char *name,
                                                const manta_array *value) MANTA_MUST_USE;

/* All trainable variables as one vector, in model order without padding. */
MANTA_API int64_t manta_session_params(const manta_session *s);
MANTA_API void manta_session_get_flat(const manta_session *s, float *out);
MANTA_API void manta_session_set_flat(manta_session *s, const float *in);

/* Writes weights, statistics, optimizer state and counters to a file that
 * appears whole or not at all; reads them back. The ending chooses the format:
 * .keras, .npz, .safetensors, ... (manta/file.h); one that has no place for
 * the optimizer (.weights.h5) keeps the weights alone. Loading asks for every
 * variable of the model by name and shape; optimizer state is taken when it is
 * there and fits and `weights_only` is not set. */
MANTA_API manta_status manta_session_save(const manta_session *s, const char *path) MANTA_MUST_USE;
MANTA_API manta_status manta_session_load(manta_session *s, const char *path,
                                          bool weights_only) MANTA_MUST_USE;
/* Loads the state from what manta_file_read() gave, which is copied, as
 * manta_session_load() does from a file. */
MANTA_API manta_status manta_session_restore(manta_session *s, const manta_saved *saved,
                                             bool weights_only) MANTA_MUST_USE;

MANTA_API double manta_session_learning_rate(const manta_session *s); /* of the next step */
/* MANTA_EINVAL when a schedule rules it. */
MANTA_API manta_status manta_session_set_learning_rate(manta_session *s, double rate) MANTA_MUST_USE;
MANTA_API int64_t manta_session_iterations(const manta_session *s);

/* ---- one batch ---- */

/* Arrays of one batch: one per input, one target per output, and optionally
 * one weight per sample for each output. */
typedef struct manta_feed {
    int64_t count; /* samples */
    int n_inputs, n_targets;
    manta_array inputs[8], targets[8];
    const float *weights[8]; /* NULL: 1 */
    int64_t first; /* position of sample 0 in the global batch */
} manta_feed;

/* Predictions; outputs are views valid until the next call. `training` runs
 * dropout and batch statistics as training does. Targets are not looked at. */
MANTA_API manta_status manta_session_forward(manta_session *s, const manta_feed *f, bool training,
                                             int n_outputs, manta_array *outputs) MANTA_MUST_USE;
/* Forward and loss in training mode; the loss (regularisers included) into *loss. */
MANTA_API manta_status manta_session_loss(manta_session *s, const manta_feed *f, double *loss) MANTA_MUST_USE;
/* Gradients of the manta_session_loss() just computed. */
MANTA_API manta_status manta_session_backward(manta_session *s, const manta_feed *f) MANTA_MUST_USE;
/* The mean gradient as one vector in manta_session_get_flat()'s order. */
MANTA_API manta_status manta_session_gradients(const manta_session *s, float *out) MANTA_MUST_USE;
/* Applies the gradients just computed, or (g not NULL) these mean gradients. */
MANTA_API manta_status manta_session_apply(manta_session *s, const float *g) MANTA_MUST_USE;

/* One whole training step, or one evaluation, on a batch. */
MANTA_API manta_status manta_session_step(manta_session *s, const manta_feed *f) MANTA_MUST_USE;
MANTA_API manta_status manta_session_evaluate_step(manta_session *s, const manta_feed *f) MANTA_MUST_USE;
/* Mean of loss and metrics over the steps since manta_session_reset_metrics(). */
MANTA_API void manta_session_metrics(const manta_session *s, manta_metrics *out);
MANTA_API void manta_session_reset_metrics(manta_session *s);

/* ---- whole datasets ---- */

typedef enum manta_event_kind {
    MANTA_EVENT_BEGIN, /* planned and ready, before the first step */
    MANTA_EVENT_EPOCH_BEGIN,
    MANTA_EVENT_STEP, /* a step is committed; metrics are the epoch's so far */
    MANTA_EVENT_VALIDATE, /* validation begins */
    MANTA_EVENT_VALIDATE_STEP,
    MANTA_EVENT_EPOCH_END, /* metrics carry val_ ones too */
    MANTA_EVENT_END,
    MANTA_EVENT_WORKER, /* a worker process was started, or started again: rank, pid */
    MANTA_EVENT_RECOVERED, /* the step that a worker's death had held up is committed: rank, pid, ms, cause */
    MANTA_EVENT_WORKER_LEFT, /* a worker has ended and is not replaced: rank, pid, cause */
    MANTA_EVENT_WAITING /* other processes of the cluster are waited for: rank, ms so far, cause: who and why;
                           again every now and then */
} manta_event_kind;

typedef struct manta_event {
    manta_event_kind kind;
    int64_t epoch, epochs; /* 0-based; planned */
    int64_t step, steps; /* done in this epoch; -1 when the number is not known */
    int64_t samples; /* seen in this epoch */
    double seconds; /* of this epoch so far */
    double samples_per_s; /* of this epoch's training steps */
    const manta_metrics *metrics;
    int rank; /* rank of the worker, or number of the parameter server, that the event is about */
    bool server; /* whether it is about a parameter server; of those only RECOVERED is told */
    int64_t pid; /* process that is new, or process that died */
    double ms; /* from seeing the death to the commit */
    const char *cause; /* "killed by signal 9 (Killed)" */
    const char *stopped; /* EPOCH_END, END: why a callback has ended the training; NULL: it has not */
} manta_event;

/* Runs on the calling thread between steps; false ends training after the
 * current step (MANTA_ECANCELLED). May read and write the session. It sees every
 * step, for which workers wait; or less often, see event_interval_ms. */
typedef bool (*manta_event_fn)(void *user, manta_session *s, const manta_event *e);

typedef struct manta_fit_options {
    int64_t epochs; /* 0: 1 */
    int64_t initial_epoch;
    int64_t batch; /* samples of a step and worker; 0: 32; not with a dataset that has batches of its own */
    int64_t global_batch; /* samples of a step over all workers, instead; also of validation */
    int64_t steps_per_epoch; /* 0: a whole pass */
    bool no_shuffle; /* samples are shuffled anew every epoch unless this is set */
    manta_dataset *validation; /* NULL: none */
    int64_t validation_batch, validation_steps; /* 0: as batch; all */
    const float *class_weight; /* per class of output 0's sparse labels, or NULL */
    int n_classes;
    int64_t worker_deadline_ms; /* a worker that neither moves nor computes for so long, or is
                                   stopped, is replaced; 0: 5000; MANTA_NONE: never */
    int max_failures; /* a worker that dies so often in a row without finishing a step ends the
                         run; 0: 3 */
    manta_event_fn event;
    void *user;
    int64_t event_interval_ms; /* 0: `event` sees every step. Else, with workers, a step about so often,
                                  the last of an epoch always, and one soon after a signal; between
                                  them the workers do not wait for anybody */
    int n_callbacks; /* manta/callback.h: hooks run before `event`, in this order */
    struct manta_callback *const *callbacks; /* borrowed for the call */
} manta_fit_options;

/* Trains on d. Columns named as the model's inputs and outputs are fed to
 * them; with one input and one output "x" and "y" (or the first two columns)
 * will do; "sample_weight" weights the samples. The metrics of the last epoch
 * go to *out (may be NULL). */
MANTA_API manta_status manta_fit(manta_session *s, manta_dataset *d, const manta_fit_options *o,
                                 manta_metrics *out) MANTA_MUST_USE;
MANTA_API manta_status manta_evaluate(manta_session *s, manta_dataset *d, const manta_fit_options *o,
                                      manta_metrics *out) MANTA_MUST_USE;
/* Calls `take` with each batch's outputs, in order. */
typedef manta_status (*manta_take_fn)(void *user, int64_t first, int64_t count, int n_outputs,
                                      const manta_array *outputs);
MANTA_API manta_status manta_predict(manta_session *s, manta_dataset *d, const manta_fit_options *o,
                                     manta_take_fn take, void *user) MANTA_MUST_USE;

/* ---- profile ---- */

typedef struct manta_profile_row {
    const char *layer, *op;
    char shape[64];
    bool relu;
    double forward_ms, backward_ms; /* of one step */
    double forward_gflops, backward_gflops; /* rate; 0 when nothing is counted */
} manta_profile_row;

/* Turns on timing of every node; with trace_path every call is kept too, and
 * written as a Chrome trace by manta_session_profile_end(). */
MANTA_API manta_status manta_session_profile(manta_session *s, const char *trace_path) MANTA_MUST_USE;
/* Calls `row` for each node of the plan for `batch`, in order, and turns timing off. */
MANTA_API manta_status manta_session_profile_end(manta_session *s, int64_t batch,
                                                 void (*row)(void *user, const manta_profile_row *r),
                                                 void *user) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
