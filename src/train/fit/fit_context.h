/* train/fit/fit_context.h - a fit under way, as its callbacks see it.
 *
 * fit.c tells it what has happened; it runs the hooks, then takes the
 * checkpoints they asked for, so that a checkpoint holds what every callback
 * remembers of that moment. */
#ifndef TRAIN_FIT_FIT_CONTEXT_H
#define TRAIN_FIT_FIT_CONTEXT_H

#include <manta/callback.h>

#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoints.h"
#include "train/log/rank_logs.h"

#define FIT_HOOKS(X)                                                                                         \
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

typedef enum fit_hook {
#define X(name) HOOK_##name,
    FIT_HOOKS(X)
#undef X
        FIT_HOOK_COUNT
} fit_hook;

/* Takes a checkpoint of the session with what the callbacks remember. */
typedef manta_status fit_save_fn(void *ctx, manta_fit_context *f, const manta_checkpoint_info *info,
                                 blobs *callbacks);

typedef struct fit_wish {
    manta_checkpoints *to; /* NULL: `save` knows where */
    fit_save_fn *save; /* NULL: it is taken to `to` */
    void *ctx;
    bool must;
} fit_wish;

struct manta_fit_context {
    manta_session *s;
    const manta_fit_options *o;
    int64_t epochs, epoch, batch, steps;
    manta_metrics *logs; /* fit's own */
    char *stop; /* why; NULL: go on */
    /* where to begin; set by manta_fit_context_restore() */
    bool resumed;
    train_position first;
    /* where a checkpoint taken now would go on */
    train_position next;
    VEC(fit_wish) wishes;
    VEC(manta_checkpoints *) used; /* whose writers read the session */
    bool logging; /* fit_context_log_to() was called */
    int log_level; /* of this thread, before that */
};

void fit_context_init(manta_fit_context *f, manta_session *s, const manta_fit_options *o);

/* As manta_fit_context_checkpoint(), to somewhere else. */
void fit_context_checkpoint_by(manta_fit_context *f, fit_save_fn *save, void *ctx);

/* In before_fit: what workers of this fit print goes there, and this thread logs by
 * its level until fit_context_release(). Borrowed till then. */
void fit_context_log_to(manta_fit_context *f, rank_logs *logs);
/* Waits for all checkpoints to be written; fails when one could not be. */
manta_status fit_context_wait(manta_fit_context *f) MANTA_MUST_USE;
/* Waits too: after it the session may go. */
void fit_context_release(manta_fit_context *f);

/* Whether any callback has this hook, one of batches, and needs it. */
bool fit_context_needs(const manta_fit_context *f, fit_hook h);

/* Runs the hook of all callbacks; fails with the first that does. Checkpoints
 * wait for fit_context_settle(). */
manta_status fit_context_run(manta_fit_context *f, fit_hook h) MANTA_MUST_USE;
/* Takes the checkpoints asked for. A full disk is no reason to stop; a failure
 * is told by manta_checkpoints_wait(). */
manta_status fit_context_settle(manta_fit_context *f) MANTA_MUST_USE;

#endif
