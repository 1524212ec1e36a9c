/* manta/callback.h - what happens around training: Keras's callbacks.
 *
 * A callback is a table of hooks and a state of its own. manta_fit() calls the
 * hooks of all callbacks in the order given, in the controlling process, never
 * in workers, between committed steps. What a callback must remember it writes
 * in `save`; that goes into every checkpoint and comes back through `load`, so
 * that a run that goes on after a crash behaves as if nothing had been.
 *
 *     manta_callback *c[] = {
 *         manta_early_stopping(&(manta_early_stopping_options){.monitor = "val_loss", .patience = 3}),
 *         manta_csv_logger("log.csv", NULL),
 *     };
 *     manta_fit_options o = {.epochs = 10, .n_callbacks = 2, .callbacks = c};
 *     manta_status st = manta_fit(s, d, &o, NULL);
 *     for (int i = 0; i < 2; i++) manta_callback_free(c[i]);
 *     return st;
 *
 * A hook that fails ends the training; the sentence names callback and hook. */
#ifndef MANTA_CALLBACK_H
#define MANTA_CALLBACK_H

#include <manta/checkpoint.h>
#include <manta/option.h>
#include <manta/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one's own ---- */

typedef struct manta_fit_context manta_fit_context; /* a fit, evaluate or predict under way */
typedef manta_status manta_hook(void *self, manta_fit_context *f);

/* Every entry may be NULL. */
typedef struct manta_callback_ops {
    const char *name; /* "early_stopping": also of its state in checkpoints */
    manta_hook *before_fit; /* nothing is opened yet: the place for restoring a state */
    manta_hook *train_begin, *train_end;
    manta_hook *epoch_begin, *epoch_end; /* epoch_end: logs have val_ metrics too, and may be added to */
    manta_hook *train_batch_begin, *train_batch_end; /* logs are the epoch's so far */
    manta_hook *test_begin, *test_end, *test_batch_begin, *test_batch_end;
    manta_hook *predict_begin, *predict_end, *predict_batch_begin, *predict_batch_end;
    /* Whether the hooks of batches are needed for every batch; NULL: they are. When no
     * callback needs them, workers are not held up between two steps, and the hooks are
     * run for those steps that the event function sees. Asked before each epoch. */
    bool (*needs_batches)(void *self);
    manta_hook *interrupted; /* stopped on request, between two steps; logs as they are */
    void (*save)(void *self, void *out); /* manta_blob_put(out, ...) */
    manta_status (*load)(void *self, const void *data, size_t n);
    void (*free)(void *self);
} manta_callback_ops;

typedef struct manta_callback {
    const manta_callback_ops *ops;
    void *self;
} manta_callback;

MANTA_API void manta_blob_put(void *out, const void *data, size_t n);

/* A callback of the caller's own; `self` goes to ops->free with it. */
MANTA_API manta_callback *manta_callback_new(const manta_callback_ops *ops, void *self);
MANTA_API void manta_callback_free(manta_callback *c); /* accepts NULL */

MANTA_API manta_session *manta_fit_context_session(manta_fit_context *f);
MANTA_API int64_t manta_fit_context_epoch(const manta_fit_context *f); /* 0-based */
MANTA_API int64_t manta_fit_context_epochs(const manta_fit_context *f); /* planned; of a fit */
MANTA_API int64_t manta_fit_context_batch(const manta_fit_context *f); /* 0-based, of the batch hooks */
MANTA_API int64_t manta_fit_context_steps(const manta_fit_context *f); /* of an epoch; -1: not known */
MANTA_API manta_metrics *manta_fit_context_logs(
    manta_fit_context *f); /* may be added to: later callbacks see it */
/* Ends the training after this batch or epoch, as Keras's stop_training; why
 * is for people, and copied. */
MANTA_API void manta_fit_context_stop(manta_fit_context *f, const char *why);
MANTA_API const char *manta_fit_context_stopped(const manta_fit_context *f); /* NULL: it goes on */
/* Takes a checkpoint once all callbacks have had this hook, so that it holds
 * what they remember of it; in the background (manta_checkpoints_save()). */
MANTA_API void manta_fit_context_checkpoint(manta_fit_context *f, manta_checkpoints *to, bool must);
/* In before_fit: the session and the callbacks take the state of `c`, and the
 * fit begins where it stood. */
MANTA_API manta_status manta_fit_context_restore(manta_fit_context *f,
                                                 const manta_checkpoint *c) MANTA_MUST_USE;

/* ---- Keras's ---- */

/* Ends when `monitor` has not improved for `patience` epochs. */
typedef struct manta_early_stopping_options {
    const char *monitor; /* NULL: "val_loss" */
    double min_delta;
    int64_t patience;
    const char *mode; /* "min", "max"; NULL: "auto" */
    double baseline; /* what it must do better than; 0: none; MANTA_ZERO: 0 */
    bool restore_best_weights;
    int64_t start_from_epoch;
} manta_early_stopping_options;
MANTA_API manta_callback *manta_early_stopping(const manta_early_stopping_options *o);

/* Multiplies the learning rate by `factor` when `monitor` has not improved for `patience` epochs. */
typedef struct manta_reduce_lr_options {
    const char *monitor; /* NULL: "val_loss" */
    double factor; /* 0: 0.1 */
    int64_t patience; /* 0: 10 */
    const char *mode;
    double min_delta; /* 0: 1e-4; MANTA_ZERO: 0 */
    int64_t cooldown;
    double min_lr;
} manta_reduce_lr_options;
MANTA_API manta_callback *manta_reduce_lr_on_plateau(const manta_reduce_lr_options *o);

/* Sets the rate at the beginning of every epoch. */
typedef double manta_lr_fn(void *user, int64_t epoch, double rate);
MANTA_API manta_callback *manta_learning_rate_scheduler(manta_lr_fn *fn, void *user);

/* A line per epoch: "epoch", then the metrics by name. */
typedef struct manta_csv_logger_options {
    char separator; /* 0: ',' */
    bool append;
} manta_csv_logger_options;
MANTA_API manta_callback *manta_csv_logger(const char *path, const manta_csv_logger_options *o);

/* Event files in log_dir/train and log_dir/validation, under the tags Keras uses. */
typedef struct manta_tensorboard_options {
    int64_t update_freq; /* 0: every epoch; N: the metrics of every N-th batch too */
    int64_t histogram_freq; /* epochs between histograms of the weights; 0: none */
    bool no_graph;
} manta_tensorboard_options;
MANTA_API manta_callback *manta_tensorboard(const char *log_dir, const manta_tensorboard_options *o);

/* Ends the training when the loss is no number. */
MANTA_API manta_callback *manta_terminate_on_nan(void);

/* Saves the model to a file while it trains. In the path {epoch}, {epoch:02d},
 * {batch} and {val_loss:.2f}, for any metric, are filled in; folders that are
 * missing are made. */
typedef struct manta_model_checkpoint_options {
    const char *monitor; /* NULL: "val_loss" */
    const char *mode;
    bool save_best_only;
    int64_t every_steps; /* 0: every epoch */
    double threshold; /* initial_value_threshold; 0: none; MANTA_ZERO: 0 */
} manta_model_checkpoint_options;
MANTA_API manta_callback *manta_model_checkpoint(const char *path, const manta_model_checkpoint_options *o);

/* Saves checkpoints to a folder of them: every so many steps or epochs, in the
 * background, and at the end (also when interrupted). Borrows `to`. */
typedef struct manta_checkpointing_options {
    int64_t every_steps; /* of the run, counted by the optimizer's calls; 0: not by steps */
    int64_t every_epochs; /* 0 and no every_steps: 1 */
} manta_checkpointing_options;
MANTA_API manta_callback *manta_checkpointing(manta_checkpoints *to, const manta_checkpointing_options *o);

/* Takes up a training that was cut off from where it was last backed up, data
 * position and random state included, and removes the backup when fit ends well. */
typedef struct manta_backup_options {
    int64_t every_steps; /* 0: every epoch */
    bool keep; /* do not remove it (delete_checkpoint=False) */
    const char *config; /* text of a JSON object, kept beside the backups as config.json and removed
                           with them; NULL: none */
} manta_backup_options;
MANTA_API manta_callback *manta_backup_and_restore(const char *folder, const manta_backup_options *o);

#ifdef __cplusplus
}
#endif
#endif
