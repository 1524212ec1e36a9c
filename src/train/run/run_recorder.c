/* run_recorder.c - the callback that keeps a fit's record in a run's folder.
 *
 * It restores what the run goes on from, reports every epoch, and hands all
 * moments at which checkpoints are taken to a callback of their own,
 * manta_checkpointing(), which it owns. */
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/fit/fit_context.h"
#include "train/run/run_writer.h"

/* A disk that is full ends no training: it is said now, and once more at the end. */
static void note_failure(manta_run *r)
{
    manta_error e;

    manta_error_get(&e);
    log_warn("the run's record is not complete", LOG_STR("run", r->name), LOG_STR("why", e.text));
    if (!r->failure.code) r->failure = e;
}

typedef struct recorder {
    manta_run *r;
    manta_callback *saver; /* manta_checkpointing() */
} recorder;

static manta_status recorder_restore(void *self, manta_fit_context *f)
{
    recorder *c = self;

    fit_context_log_to(f, c->r->logs);
    return c->r->from ? manta_fit_context_restore(f, c->r->from) : MANTA_OK;
}

static manta_status recorder_begin(void *self, manta_fit_context *f)
{
    recorder *c = self;

    return c->saver->ops->train_begin(c->saver->self, f);
}

static manta_status recorder_batch(void *self, manta_fit_context *f)
{
    recorder *c = self;

    return c->saver->ops->train_batch_end(c->saver->self, f);
}

static manta_status recorder_epoch(void *self, manta_fit_context *f)
{
    recorder *c = self;

    if (manta_run_report(c->r, f->epoch + 1, manta_session_iterations(f->s), 0, f->logs)) note_failure(c->r);
    return c->saver->ops->epoch_end(c->saver->self, f);
}

static manta_status recorder_end(void *self, manta_fit_context *f)
{
    recorder *c = self;

    (void)f;
    checkpoints_await(c->r->checkpoints); /* a failure is manta_run_finish()'s to tell */
    return MANTA_OK;
}

static manta_status recorder_cut(void *self, manta_fit_context *f)
{
    recorder *c = self;

    return c->saver->ops->interrupted(c->saver->self, f);
}

static void recorder_free(void *self)
{
    recorder *c = self;

    manta_callback_free(c->saver);
    mem_free(c);
}

static bool recorder_needs_batches(void *self)
{
    recorder *c = self;

    return c->saver->ops->needs_batches(c->saver->self);
}

static const manta_callback_ops recorder_ops = {.name = "run_recorder",
                                                .before_fit = recorder_restore,
                                                .train_begin = recorder_begin,
                                                .train_batch_end = recorder_batch,
                                                .epoch_end = recorder_epoch,
                                                .train_end = recorder_end,
                                                .needs_batches = recorder_needs_batches,
                                                .interrupted = recorder_cut,
                                                .free = recorder_free};

manta_callback *manta_run_recorder(manta_run *r, const manta_checkpointing_options *o)
{
    REFUSE_NULL_OR(r, NULL);

    recorder *c = mem_new(sizeof *c);

    c->r = r;
    c->saver = manta_checkpointing(r->checkpoints, o);
    return manta_callback_new(&recorder_ops, c);
}
