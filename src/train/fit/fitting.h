/* train/fit/fitting.h - a fit under way, as its callbacks see it.
 *
 * fit.c tells it what has happened; it runs the hooks, then takes the
 * checkpoints they asked for, so that a checkpoint holds what every callback
 * remembers of that moment. */
#ifndef TRAIN_FIT_FITTING_H
#define TRAIN_FIT_FITTING_H

#include <manta/callback.h>

#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoints.h"
#include "train/log/rank_logs.h"

#define FITTING_HOOKS(X)                                                                                     \
    X(before_fit)                                                                                            \
    X(train_begin)                                                                                           \
    X(train_end)                                                                                             \
    X(epoch_begin)                                                                                           \
    X(epoch_end)                                                                                             \
    X(train_batch_begin)                                                                                     \
    X(train_batch_end)                                                                                       \
    X(test_begin)                                                                                            \
    X(test_end)                                                                                              \
    X(test_batch_begin)                                                                                      \
    X(test_batch_end)                                                                                        \
    X(predict_begin)                                                                                         \
    X(predict_end)                                                                                           \
    X(predict_batch_begin)                                                                                   \
    X(predict_batch_end)                                                                                     \
    X(interrupted)

typedef enum fitting_hook {
#define X(name) HOOK_##name,
    FITTING_HOOKS(X)
#undef X
        FITTING_HOOK_COUNT
} fitting_hook;

/* Takes a checkpoint of the session with what the callbacks remember. */
typedef manta_status fitting_save_fn(void *ctx, manta_fitting *f, const manta_checkpoint_info *info,
                                     blobs *callbacks);

typedef struct fitting_wish {
    manta_checkpoints *to; /* or else: */
    fitting_save_fn *save;
    void *ctx;
    bool must;
} fitting_wish;

struct manta_fitting {
    manta_session *s;
    const manta_fit_options *o;
    int64_t epochs, epoch, batch, steps;
    manta_metrics *logs; /* fit's own */
    char *stop; /* why; NULL: go on */
    /* where to begin; set by manta_fitting_restore() */
    bool resumed;
    int64_t first_epoch, first_step;
    /* where a checkpoint taken now would go on */
    int64_t next_epoch, next_step;
    VEC(fitting_wish) wishes;
    VEC(manta_checkpoints *) used; /* whose writers read the session */
    bool logging; /* fitting_log_to() was called */
    int log_level; /* of this thread, before that */
};

void fitting_init(manta_fitting *f, manta_session *s, const manta_fit_options *o);

/* As manta_fitting_checkpoint(), to somewhere else. */
void fitting_checkpoint_by(manta_fitting *f, fitting_save_fn *save, void *ctx);

/* In before_fit: what workers of this fit print goes there, and this thread logs by
 * its level until fitting_release(). Borrowed till then. */
void fitting_log_to(manta_fitting *f, rank_logs *logs);
/* Waits for all checkpoints to be written; fails when one could not be. */
manta_status fitting_wait(manta_fitting *f) MANTA_MUST_USE;
/* Waits too: after it the session may go. */
void fitting_release(manta_fitting *f);

/* Whether any callback has this hook, one of batches, and needs it. */
bool fitting_needs(const manta_fitting *f, fitting_hook h);

/* Runs the hook of all callbacks; fails with the first that does. Checkpoints
 * wait for fitting_settle(). */
manta_status fitting_run(manta_fitting *f, fitting_hook h) MANTA_MUST_USE;
/* Takes the checkpoints asked for. A full disk is no reason to stop; a failure
 * is told by manta_checkpoints_wait(). */
manta_status fitting_settle(manta_fitting *f) MANTA_MUST_USE;

#endif
