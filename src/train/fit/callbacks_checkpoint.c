/* callbacks_checkpoint.c - callbacks that save checkpoints, from which a run can go on.
 *
 *     checkpointing        into a folder that the program has opened, as it was asked for
 *     backup and restore   into a folder of its own; a fit that begins goes on from it by itself, and
 *                          one that ends well removes it. Keras's BackupAndRestore
 *
 * Both save after so many calls of the optimizer, or so many epochs, and when the fit is stopped on
 * request. They count by the run and not by this process, so a run that is taken up saves at the
 * same steps as one that was never cut off. Both only say that they wish for a checkpoint:
 * fit_context_settle() takes it after all hooks have run, and a thread writes it. One that is due
 * after a batch and waits to be written gives its place to a later one; those at the end of an
 * epoch or of the fit do not (`must`, checkpoints_writer.c).
 *
 * Two backups are kept, so that one which a disk has spoiled is not the only one. */
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/file.h"
#include "train/checkpoint/run_config.h"
#include "train/fit/fit_context.h"

/* ---- every so often ---- */

typedef struct pace {
    int64_t every_steps, every_epochs;
} pace;

/* Whether a checkpoint is due after this step of the run; by the optimizer's
 * calls, so that a run that was taken up saves at the same steps. */
static bool due_after_batch(const pace *p, manta_fit_context *f)
{
    int64_t calls = manta_session_iterations(f->s);

    return p->every_steps && calls % p->every_steps == 0;
}

static bool due_after_epoch(const pace *p, const manta_fit_context *f)
{
    if (f->epoch + 1 == f->epochs || f->stop) return true;
    return p->every_epochs && (f->epoch + 1) % p->every_epochs == 0;
}

typedef struct checkpointing {
    pace pace;
    manta_checkpoints *to; /* borrowed */
} checkpointing;

static manta_status checkpointing_begin(void *self, manta_fit_context *f)
{
    checkpoints_expect(((checkpointing *)self)->to, f->s);
    return MANTA_OK;
}

static manta_status checkpointing_batch(void *self, manta_fit_context *f)
{
    checkpointing *c = self;

    if (due_after_batch(&c->pace, f)) manta_fit_context_checkpoint(f, c->to, false);
    return MANTA_OK;
}

static manta_status checkpointing_epoch(void *self, manta_fit_context *f)
{
    checkpointing *c = self;

    if (due_after_epoch(&c->pace, f)) manta_fit_context_checkpoint(f, c->to, true);
    return MANTA_OK;
}

static manta_status checkpointing_cut(void *self, manta_fit_context *f)
{
    checkpointing *c = self;

    manta_fit_context_checkpoint(f, c->to, true);
    return MANTA_OK;
}

static manta_status checkpointing_end(void *self, manta_fit_context *f)
{
    checkpointing *c = self;

    (void)f;
    return manta_checkpoints_wait(c->to);
}

static bool checkpointing_needs_batches(void *self)
{
    return ((checkpointing *)self)->pace.every_steps > 0;
}

static const manta_callback_ops checkpointing_ops = {.name = "checkpointing",
                                                     .train_begin = checkpointing_begin,
                                                     .train_batch_end = checkpointing_batch,
                                                     .epoch_end = checkpointing_epoch,
                                                     .train_end = checkpointing_end,
                                                     .needs_batches = checkpointing_needs_batches,
                                                     .interrupted = checkpointing_cut,
                                                     .free = mem_free};

manta_callback *manta_checkpointing(manta_checkpoints *to, const manta_checkpointing_options *o)
{
    REFUSE_NULL_OR(to, NULL);

    checkpointing *c = mem_new(sizeof *c);

    c->to = to;
    if (o) c->pace = (pace){o->every_steps, o->every_epochs};
    if (!c->pace.every_steps && !c->pace.every_epochs) c->pace.every_epochs = 1;
    return manta_callback_new(&checkpointing_ops, c);
}

/* ---- backup and restore ---- */

typedef struct backup {
    pace pace;
    char *folder;
    char *config; /* NULL: none is kept */
    bool keep;
    manta_checkpoints *to;
} backup;

static manta_status keep_config(const backup *c)
{
    char *path = c->config ? mem_printf("%s/config.json", c->folder) : NULL;
    char *text = path ? run_config_seal(c->config) : NULL;
    manta_status st = path ? file_replace(path, text, strlen(text)) : MANTA_OK;

    mem_free(text);
    mem_free(path);
    return st;
}

static manta_status remove_config(const backup *c)
{
    char *path = c->config ? mem_printf("%s/config.json", c->folder) : NULL;
    manta_status st = path ? file_remove(path) : MANTA_OK;

    mem_free(path);
    return st == MANTA_ENOENT ? MANTA_OK : st;
}

/* Two are kept, so that one that a disk has spoiled is not the only one. */
static manta_status backup_restore(void *self, manta_fit_context *f)
{
    backup *c = self;
    manta_checkpoint *last = NULL;
    char *damaged = NULL;
    manta_status st;

    manta_checkpoints_close(c->to);
    c->to = NULL;
    TRY(manta_checkpoints_open(c->folder, &(manta_checkpoints_options){.keep = 2}, &c->to));
    TRY(keep_config(c));
    st = manta_checkpoints_latest(c->to, &last, &damaged);
    if (damaged) log_warn("a backup is passed over", LOG_STR("why", damaged));
    free(damaged);
    if (st == MANTA_ENOENT) return MANTA_OK; /* nothing to go on from */
    if (st) return st;
    st = manta_fit_context_restore(f, last);
    if (!st)
        log_info("training goes on from a backup", LOG_STR("path", manta_checkpoint_path(last)),
                 LOG_INT("epoch", f->first.epoch + 1), LOG_INT("step", f->first.step));
    manta_checkpoint_close(last);
    return st;
}

static manta_status backup_begin(void *self, manta_fit_context *f)
{
    checkpoints_expect(((backup *)self)->to, f->s);
    return MANTA_OK;
}

static manta_status backup_batch(void *self, manta_fit_context *f)
{
    backup *c = self;

    if (due_after_batch(&c->pace, f)) manta_fit_context_checkpoint(f, c->to, false);
    return MANTA_OK;
}

static manta_status backup_epoch(void *self, manta_fit_context *f)
{
    backup *c = self;

    if (due_after_epoch(&c->pace, f)) manta_fit_context_checkpoint(f, c->to, true);
    return MANTA_OK;
}

static manta_status backup_cut(void *self, manta_fit_context *f)
{
    backup *c = self;

    manta_fit_context_checkpoint(f, c->to, true);
    return MANTA_OK;
}

static manta_status backup_end(void *self, manta_fit_context *f)
{
    backup *c = self;
    manta_status st = manta_checkpoints_wait(c->to);

    (void)f;
    if (!st && !c->keep) st = remove_config(c);
    if (!st && !c->keep) st = manta_checkpoints_clear(c->to);
    return st;
}

static void backup_free(void *self)
{
    backup *c = self;

    manta_checkpoints_close(c->to);
    mem_free(c->config);
    mem_free(c->folder);
    mem_free(c);
}

static bool backup_needs_batches(void *self)
{
    return ((backup *)self)->pace.every_steps > 0;
}

static const manta_callback_ops backup_ops = {.name = "backup_and_restore",
                                              .before_fit = backup_restore,
                                              .train_begin = backup_begin,
                                              .train_batch_end = backup_batch,
                                              .epoch_end = backup_epoch,
                                              .train_end = backup_end,
                                              .needs_batches = backup_needs_batches,
                                              .interrupted = backup_cut,
                                              .free = backup_free};

manta_callback *manta_backup_and_restore(const char *folder, const manta_backup_options *o)
{
    REFUSE_NULL_OR(folder, NULL);

    backup *c = mem_new(sizeof *c);

    c->folder = mem_strdup(folder);
    if (o) {
        c->pace.every_steps = o->every_steps;
        c->keep = o->keep;
        c->config = o->config ? mem_strdup(o->config) : NULL;
    }
    if (!c->pace.every_steps) c->pace.every_epochs = 1;
    return manta_callback_new(&backup_ops, c);
}
