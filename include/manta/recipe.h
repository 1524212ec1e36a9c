/* manta/recipe.h - a training from words.
 *
 * A setting is what a command line calls an option: a name and a text, such as
 * "learning-rate" and "0.01". A recipe holds settings and a model, and makes of
 * them what a training needs: optimizer, schedule, loss and metrics, datasets,
 * options of the session and of the fit, callbacks, the weights to begin with.
 * What no setting says comes from what the model's file was compiled with, or
 * from the defaults of the zoo. `manta train` is made of these calls, so the
 * same words give the same bytes here (docs/recipe.md):
 *
 *     manta_recipe *r = manta_recipe_new(NULL);
 *     manta_dataset *data = NULL, *validation = NULL;
 *     manta_session *s = NULL;
 *     manta_fit_options fit;
 *     manta_status st;
 *     if ((st = manta_recipe_set(r, "data", "mnist")) ||
 *         (st = manta_recipe_set(r, "optimizer", "sgd")) ||
 *         (st = manta_recipe_add(r, "momentum=0.9")) ||
 *         (st = manta_recipe_open(r, "mnist-cnn")) ||         // or "model.keras"
 *         (st = manta_recipe_datasets(r, &data, &validation)) ||
 *         (st = manta_recipe_fit_options(r, &fit)) ||
 *         (st = manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s)) ||
 *         (st = manta_fit(s, data, &fit, NULL)))
 *         fprintf(stderr, "%s\n", manta_error_text());
 *     manta_session_close(s);
 *     manta_dataset_unref(data);
 *     manta_dataset_unref(validation);
 *     manta_recipe_free(r);
 *     return st;
 *
 * What cannot be is a status and one sentence, and nothing ends the process.
 * manta_recipe_fault() then names the setting that is to blame, if one is.
 *
 * Names of settings are written with hyphens or with underscores, and as Keras
 * writes them: lr, ema_momentum, gradient_accumulation_steps.
 *
 * Threads: a recipe is used by one thread at a time. */
#ifndef MANTA_RECIPE_H
#define MANTA_RECIPE_H

#include <manta/callback.h>
#include <manta/checkpoint.h>
#include <manta/data_file.h>
#include <manta/file.h>
#include <manta/run.h>
#include <manta/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what can be set ---- */

typedef enum manta_setting_kind {
    MANTA_SETTING_FLAG, /* yes or no */
    MANTA_SETTING_TEXT, /* a text that is not empty */
    MANTA_SETTING_INT, /* a whole number, 0 or more */
    MANTA_SETTING_COUNT, /* a whole number, 1 or more */
    MANTA_SETTING_REAL /* a finite number */
} manta_setting_kind;

typedef struct manta_setting {
    const char *name; /* "learning-rate" */
    manta_setting_kind kind;
    const char *value; /* what help texts call its value, "X"; NULL for a flag */
    const char *help; /* what it does, for people; other settings are written as on the command line */
} manta_setting;

/* The i-th setting that a recipe knows; NULL past the last. Static. */
MANTA_API const manta_setting *manta_setting_at(int i);
/* The setting of that name, in any of its spellings; NULL when there is none. Static. */
MANTA_API const manta_setting *manta_setting_find(const char *name);
/* Whether `text` is a value of the setting's kind; also for a setting of the program's own, of
 * which name and kind are looked at. MANTA_EINVAL says what is wrong, and calls the setting
 * `prefix` and its name: "--" on a command line. */
MANTA_API manta_status manta_setting_check(const manta_setting *s, const char *prefix,
                                           const char *text) MANTA_MUST_USE;

/* ---- a recipe ---- */

typedef struct manta_recipe manta_recipe;

/* A recipe without settings. `prefix` stands before the names of settings in
 * sentences, so that a person reads what they would write: "--" on a command
 * line; NULL: nothing. It is copied. Owned by the caller, manta_recipe_free(). */
MANTA_API manta_recipe *manta_recipe_new(const char *prefix);
/* Gives back the recipe and what it owns: model, file, compile, callbacks. Close
 * the session before. Accepts NULL. */
MANTA_API void manta_recipe_free(manta_recipe *r);

/* Sets `name` to a copy of `text`, in place of what it was; NULL: as if it had
 * never been set. A flag is "yes" or "no" ("true", "false" too).
 * MANTA_ENOENT no setting is called so, with the nearest; MANTA_EINVAL the text is
 * no value of it. */
MANTA_API manta_status manta_recipe_set(manta_recipe *r, const char *name, const char *text) MANTA_MUST_USE;
/* Sets what one word says: "lr=0.001", or "nesterov" alone for a flag. */
MANTA_API manta_status manta_recipe_add(manta_recipe *r, const char *word) MANTA_MUST_USE;
/* The text of a setting; NULL: it is not set, or none is called so. Borrowed until it is set
 * again. */
MANTA_API const char *manta_recipe_get(const manta_recipe *r, const char *name);
/* The name of the setting that the last call of this recipe has failed because of: what was
 * written is wrong. NULL: it did not fail, or something else is to blame (a file, data).
 * Borrowed until the next call. */
MANTA_API const char *manta_recipe_fault(const manta_recipe *r);

/* ---- the model ---- */

/* Opens a model by a word: a file that holds one (.keras, a Keras config.json,
 * .h5), or a name of the zoo. *out: built, owned by the caller, manta_model_free().
 * *saved (may be NULL): what the file holds beside it, owned too, manta_saved_free();
 * NULL for a model of the zoo. MANTA_ENOENT no such file or model, with the
 * nearest; MANTA_EINVAL the file holds weights only. */
MANTA_API manta_status manta_model_open(const char *name, manta_saved **saved,
                                        manta_model **out) MANTA_MUST_USE;

/* Opens a model as manta_model_open() does and keeps it in the recipe, with its file, in the
 * place of the one before, of which no session may be open. */
MANTA_API manta_status manta_recipe_open(manta_recipe *r, const char *name) MANTA_MUST_USE;
/* Takes a model of the program's own instead, which is built and stays the program's. */
MANTA_API manta_status manta_recipe_use(manta_recipe *r, manta_model *m) MANTA_MUST_USE;
/* The model, and what was saved beside it; NULL: none. Borrowed. */
MANTA_API manta_model *manta_recipe_model(const manta_recipe *r);
MANTA_API manta_saved *manta_recipe_saved(const manta_recipe *r);

/* What a model of the zoo is trained with when nothing is set. */
typedef struct manta_recipe_defaults {
    const char *model;
    const char *loss, *metrics, *optimizer; /* as the settings of these names are written */
    const char *normalize; /* NULL: samples stay as the data has them */
    bool from_logits; /* the model gives logits, not probabilities */
    bool target_is_input; /* the target of a sample is the sample */
} manta_recipe_defaults;

/* NULL: it has none. Static. */
MANTA_API const manta_recipe_defaults *manta_recipe_defaults_of(const char *model);

/* ---- what to minimise, and how ---- */

/* The schedule that a text names, which begins at `rate`: cosine:steps=1000,warmup=100,
 * exponential, inverse-time, polynomial or piecewise:1000=0.01,2000=0.001, or Keras's
 * CosineDecay, ExponentialDecay, InverseTimeDecay, PolynomialDecay,
 * PiecewiseConstantDecay with Keras's names of arguments (decay_steps=1000).
 * MANTA_EINVAL with what can be written. */
MANTA_API manta_status manta_schedule_named(const char *text, double rate,
                                            manta_schedule *out) MANTA_MUST_USE;

/* What a model is wanted for, and so what has to be known about it. */
typedef enum manta_purpose {
    MANTA_PURPOSE_TRAIN, /* optimizer, loss and metrics */
    MANTA_PURPOSE_EVALUATE, /* loss and metrics */
    MANTA_PURPOSE_PREDICT /* none of them */
} manta_purpose;

/* Optimizer, loss and metrics for the recipe's model, as far as the purpose needs them.
 * What is not set comes from the model's file, else from the zoo's defaults, else it is
 * Keras's (rmsprop, mean squared error, no metric). For a training, the layers that
 * "freeze" names are frozen, and stay so. Whether a loss or a metric of that name is there, and fits the
 * model, is found when a session is opened.
 * *out: borrowed, valid until something is set or opened, or manta_recipe_free().
 * MANTA_EUNSUPPORTED the file names what Manta has not, and no setting says otherwise. */
MANTA_API manta_status manta_recipe_compile(manta_recipe *r, manta_purpose purpose,
                                            const manta_compile **out) MANTA_MUST_USE;

/* Whether the loss that was compiled compares with class numbers, and not with one number per
 * prediction. */
MANTA_API bool manta_recipe_is_sparse(const manta_recipe *r);

/* ---- data ---- */

/* Opens the dataset that `spec` names (manta_dataset_open()) and shapes it: "raw",
 * "scale", "resize", "crop", "channels", "normalize" (or the model's own), and with `targets` what the loss needs:
 * class numbers that are checked, or the samples themselves. *out: owned,
 * manta_dataset_unref(). */
MANTA_API manta_status manta_recipe_dataset(manta_recipe *r, const char *spec, bool targets,
                                            manta_dataset **out) MANTA_MUST_USE;
/* The datasets of "data", and of "validation" or of "validation-split": the last part of the
 * data, before anything is shuffled. "augment" is for the first alone. *validation: NULL when neither is set. Both owned. */
MANTA_API manta_status manta_recipe_datasets(manta_recipe *r, manta_dataset **data,
                                             manta_dataset **validation) MANTA_MUST_USE;
/* The inputs of a prediction: one dataset by any spec for a model of one input, or
 * NAME=SPEC,NAME=SPEC. Columns that are no input are left out. *out: owned. MANTA_EINVAL,
 * MANTA_ENOENT an input that is missing, given twice, or not the model's; sentences call
 * what was given "input". */
MANTA_API manta_status manta_recipe_inputs(manta_recipe *r, const char *specs,
                                           manta_dataset **out) MANTA_MUST_USE;

/* The mapping that makes numbers of tables (manta/table.h): learnt from the first table that the recipe
 * opened, or kept beside the model and found there: FILE.table.json of "weights" or of the model's
 * file, table.json of a run. NULL: none, as no table was opened or one of numbers alone. Borrowed until
 * another model is opened or manta_recipe_free(). */
MANTA_API const manta_table *manta_recipe_table(const manta_recipe *r);
/* Keeps the mapping beside what was saved: as PATH.table.json of a file, as PATH/table.json of a folder. Without
 * a mapping one of an earlier training is removed from there. */
MANTA_API manta_status manta_recipe_keep_table(const manta_recipe *r, const char *path) MANTA_MUST_USE;

/* ---- session and fit ---- */

#define MANTA_RECIPE_BATCH 32 /* samples of a step and worker when nothing is set */

/* What "workers", "threads-per-worker", "seed", "shards", "strategy", "servers", "staleness",
 * "batch-norm", "kernels", "precision", "device" and "debug" say. Texts are borrowed until they are set again. */
MANTA_API manta_status manta_recipe_session_options(manta_recipe *r,
                                                    manta_session_options *out) MANTA_MUST_USE;
/* What "epochs", "initial-epoch", "batch", "global-batch", "steps-per-epoch",
 * "validation-steps", "no-shuffle", "class-weight" and "max-failures" say, and whether
 * what is said of validation fits together; all else is zero. The weights of classes
 * are borrowed until the next call or manta_recipe_free(). */
MANTA_API manta_status manta_recipe_fit_options(manta_recipe *r, manta_fit_options *out) MANTA_MUST_USE;

/* Opens a session of the recipe's model: compiles, opens, loads. options: instead of
 * those of manta_recipe_session_options() (NULL). *out: owned, manta_session_close();
 * the recipe must outlive it. */
MANTA_API manta_status manta_recipe_session(manta_recipe *r, const manta_session_options *options,
                                            manta_purpose purpose, manta_session **out) MANTA_MUST_USE;

/* Whether manta_recipe_load() will replace all weights, so that a session may be opened blank. */
MANTA_API bool manta_recipe_has_weights(const manta_recipe *r);
/* Takes the state of "weights" (a file, a checkpoint's folder or a run), or else of the
 * model's own file, whose arrays are then given back: weights and, for a training and
 * unless "reset-optimizer" is set, the optimizer's state. A learning rate or optimizer
 * that is set wins over the state's. Nothing happens where there is no such state. */
MANTA_API manta_status manta_recipe_load(manta_recipe *r, manta_session *s,
                                         manta_purpose purpose) MANTA_MUST_USE;

/* The callbacks of "terminate-on-nan", "reduce-lr", "early-stop", "csv-log", "tensorboard" and
 * "save-best", in this order, for manta_fit_options.callbacks. validated: there is a validation,
 * whose loss "save-best" then goes by. *out: owned by the recipe, valid until the next call
 * or manta_recipe_free(). */
MANTA_API manta_status manta_recipe_callbacks(manta_recipe *r, bool validated, int *n,
                                              manta_callback *const **out) MANTA_MUST_USE;
/* Whether the session has the metrics that "keep-best", "early-stop" and "reduce-lr" go by.
 * MANTA_EINVAL names those there are, and the nearest. */
MANTA_API manta_status manta_recipe_check_metrics(manta_recipe *r, const manta_session *s,
                                                  bool validated) MANTA_MUST_USE;

/* ---- what is kept ---- */

/* What "name", "storage", "run-dir", "keep", "keep-best", "log-level", "log-to", "log-stamp" and
 * "log-size" say of a run, and "checkpoint-every" of its recorder. `stem` is the model's name. Texts
 * are borrowed until something is set or the next call. */
MANTA_API manta_status manta_recipe_run_options(manta_recipe *r, manta_run_options *out,
                                                manta_checkpointing_options *pace) MANTA_MUST_USE;
/* The model and all settings but for those that say where a run lies, as a JSON object for
 * manta_run_options.config: with it `manta train --resume NAME` goes on with a run that a
 * program began. *out: borrowed until the next call. MANTA_EINVAL a text is not UTF-8. */
MANTA_API manta_status manta_recipe_config(manta_recipe *r, const char **out) MANTA_MUST_USE;

/* Where the state lies that `given` means: the folder of a checkpoint, whose every
 * byte is checked; a run, by its folder or by its name, for its last checkpoint; and
 * anything else for itself. Of a checkpoint it is state.safetensors, or else its only
 * file. *path: owned, free(). *from (may be NULL): the checkpoint, owned,
 * manta_checkpoint_close(); NULL: it is none. */
MANTA_API manta_status manta_state_find(const char *given, char **path,
                                        manta_checkpoint **from) MANTA_MUST_USE;

/* Whether a file of that name could be written, and its ending is one of the
 * space-separated `endings` (NULL: of those that a state can be written to): to be told
 * before the work, not after it. MANTA_EINVAL, MANTA_ENOENT, MANTA_EPERM. */
MANTA_API manta_status manta_output_check(const char *path, const char *endings) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
