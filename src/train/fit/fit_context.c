/* fit_context.c - a fit under way, as its callbacks see it: their hooks, what they remember, the
 * checkpoints that they ask for, and the wish to stop.
 *
 *     fit_events_happen() ──▶ fit_context_run()     the hook of each callback, in their order; the
 *                                │                  first that fails ends the fit
 *                                ├ ..._checkpoint()   a wish: noted
 *                                ├ ..._stop()         noted; the fit ends after this batch or epoch
 *                                ▼
 *                             fit_context_settle()  the checkpoints, with what all callbacks remember
 *
 * A checkpoint is taken after all hooks of a moment and never within one, so that what the
 * callbacks remember in it is of one moment, whichever of them asked. What a callback remembers is
 * kept under its place in the list and its name, and a fit that goes on gives it to the callback
 * which has both: who changes the list loses what has changed, and nothing else.
 *
 * Checkpoints are written by threads that may read the session: fit_context_release() waits for
 * them, and the session may go only after it. */
#include "train/fit/fit_context.h"

#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"

static const char *const hook_names[FIT_HOOK_COUNT] = {
#define X(name) [HOOK_##name] = #name,
    FIT_HOOKS(X)
#undef X
};

static manta_hook *hook_of(const manta_callback_ops *ops, fit_hook h)
{
    switch (h) {
#define X(name)                                                                                              \
    case HOOK_##name: return ops->name;
        FIT_HOOKS(X)
#undef X
    case FIT_HOOK_COUNT: break;
    }
    return NULL;
}

void fit_context_init(manta_fit_context *f, manta_session *s, const manta_fit_options *o)
{
    *f = (manta_fit_context){.s = s, .o = o, .epochs = o->epochs ? o->epochs : 1, .steps = -1};
    f->first.epoch = o->initial_epoch;
}

manta_status fit_context_wait(manta_fit_context *f)
{
    manta_status first = MANTA_OK;

    for (size_t i = 0; i < f->used.n; i++) {
        manta_status st = manta_checkpoints_wait(f->used.at[i]);
        if (!first) first = st;
    }
    return first;
}

void fit_context_log_to(manta_fit_context *f, rank_logs *logs)
{
    if (!f->logging) f->log_level = log_use_level(rank_logs_level(logs));
    f->s->logs = logs;
    f->logging = true;
}

void fit_context_release(manta_fit_context *f)
{
    if (f->logging) { /* and not a fit around this evaluation */
        rank_logs_settle(f->s->logs);
        f->s->logs = NULL;
        (void)log_use_level(f->log_level);
    }
    for (size_t i = 0; i < f->used.n; i++) checkpoints_await(f->used.at[i]);
    vec_release(&f->used);
    mem_free(f->stop);
    vec_release(&f->wishes);
}

bool fit_context_needs(const manta_fit_context *f, fit_hook h)
{
    for (int i = 0; i < f->o->n_callbacks; i++) {
        const manta_callback *c = f->o->callbacks[i];
        if (hook_of(c->ops, h) && (!c->ops->needs_batches || c->ops->needs_batches(c->self))) return true;
    }
    return false;
}

manta_status fit_context_run(manta_fit_context *f, fit_hook h)
{
    for (int i = 0; i < f->o->n_callbacks; i++) {
        const manta_callback *c = f->o->callbacks[i];
        manta_hook *hook = hook_of(c->ops, h);
        manta_status st = hook ? hook(c->self, f) : MANTA_OK;
        if (st) {
            char why[360];
            snprintf(why, sizeof why, "%s", manta_error_text());
            return manta_fail(st, "callback %s, %s: %s", c->ops->name, hook_names[h],
                              *why ? why : "it failed without saying why");
        }
    }
    return MANTA_OK;
}

/* ---- checkpoints ---- */

/* "callback/0/early_stopping" */
static char *blob_name(int i, const manta_callback *c)
{
    return mem_printf("callback/%d/%s", i, c->ops->name);
}

static void collect_memories(const manta_fit_context *f, blobs *out)
{
    for (int i = 0; i < f->o->n_callbacks; i++) {
        const manta_callback *c = f->o->callbacks[i];
        blob b = {0};
        if (!c->ops->save) continue;
        b.name = blob_name(i, c);
        c->ops->save(c->self, &b.data);
        buf_add_char(&b.data, '\0'); /* an empty array has no address */
        vec_push(out, b);
    }
}

static void note_use(manta_fit_context *f, manta_checkpoints *to)
{
    for (size_t i = 0; i < f->used.n; i++) {
        if (f->used.at[i] == to) return;
    }
    vec_push(&f->used, to);
}

manta_status fit_context_settle(manta_fit_context *f)
{
    manta_checkpoint_info info = {.epoch = f->next.epoch, .step = f->next.step};
    manta_status st = MANTA_OK;

    info.iterations = manta_session_iterations(f->s);
    if (f->logs) info.metrics = *f->logs;
    for (size_t i = 0; i < f->wishes.n && !st; i++) {
        const fit_wish *wish = &f->wishes.at[i];
        blobs extra = {0};
        collect_memories(f, &extra);
        if (wish->save) {
            st = wish->save(wish->ctx, f, &info, &extra);
        } else {
            note_use(f, wish->to);
            st = checkpoints_save(wish->to, f->s, &info, &extra, wish->must);
        }
        blobs_release(&extra);
    }
    vec_clear(&f->wishes);
    return st;
}

void manta_fit_context_checkpoint(manta_fit_context *f, manta_checkpoints *to, bool must)
{
    REFUSE_NULL_AND_RETURN(f);
    REFUSE_NULL_AND_RETURN(to);

    for (size_t i = 0; i < f->wishes.n; i++) {
        if (f->wishes.at[i].save || f->wishes.at[i].to != to) continue;
        f->wishes.at[i].must |= must;
        return;
    }
    vec_push(&f->wishes, ((fit_wish){.to = to, .must = must}));
}

void fit_context_checkpoint_by(manta_fit_context *f, fit_save_fn *save, void *ctx)
{
    vec_push(&f->wishes, ((fit_wish){.save = save, .ctx = ctx}));
}

/* What the callbacks of then remember goes to those of now that have the same
 * place and name; a list that was changed loses only what has changed. */
static manta_status restore_callbacks(manta_fit_context *f, const manta_saved *saved)
{
    for (int i = 0; i < f->o->n_callbacks; i++) {
        const manta_callback *c = f->o->callbacks[i];
        char *name = c->ops->load ? blob_name(i, c) : NULL;
        const void *data;
        size_t n;
        manta_status st = MANTA_OK;
        if (name && checkpoint_find_blob(saved, name, &data, &n) && n > 0) {
            st = c->ops->load(c->self, data, n - 1);
        }
        mem_free(name);
        if (st) return st;
    }
    return MANTA_OK;
}

manta_status manta_fit_context_restore(manta_fit_context *f, const manta_checkpoint *c)
{
    REFUSE_NULL(f);
    REFUSE_NULL(c);

    const manta_checkpoint_info *info = manta_checkpoint_get(c);
    manta_saved *saved = NULL;
    manta_status st;

    TRY(manta_checkpoint_arrays(c, &saved));
    st = checkpoint_restore(f->s, c, saved, false);
    if (!st) st = restore_callbacks(f, saved);
    manta_saved_free(saved);
    if (st) return st;
    f->resumed = true;
    f->first.epoch = info->epoch;
    f->first.step = info->step;
    return MANTA_OK;
}

/* ---- what a hook may ask ---- */

void manta_blob_put(void *out, const void *data, size_t n)
{
    REFUSE_NULL_AND_RETURN(out);
    if (n > 0) REFUSE_NULL_AND_RETURN(data);
    buf_add(out, data, n);
}

manta_callback *manta_callback_new(const manta_callback_ops *ops, void *self)
{
    REFUSE_NULL_OR(ops, NULL);

    manta_callback *c = mem_new(sizeof *c);

    c->ops = ops;
    c->self = self;
    return c;
}

void manta_callback_free(manta_callback *c)
{
    if (!c) return;
    if (c->ops->free) c->ops->free(c->self);
    mem_free(c);
}

manta_session *manta_fit_context_session(manta_fit_context *f)
{
    REFUSE_NULL_OR(f, NULL);
    return f->s;
}

int64_t manta_fit_context_epoch(const manta_fit_context *f)
{
    REFUSE_NULL_OR(f, 0);
    return f->epoch;
}

int64_t manta_fit_context_epochs(const manta_fit_context *f)
{
    REFUSE_NULL_OR(f, 0);
    return f->epochs;
}

int64_t manta_fit_context_batch(const manta_fit_context *f)
{
    REFUSE_NULL_OR(f, 0);
    return f->batch;
}

int64_t manta_fit_context_steps(const manta_fit_context *f)
{
    REFUSE_NULL_OR(f, 0);
    return f->steps;
}

manta_metrics *manta_fit_context_logs(manta_fit_context *f)
{
    REFUSE_NULL_OR(f, NULL);
    return f->logs;
}

void manta_fit_context_stop(manta_fit_context *f, const char *why)
{
    REFUSE_NULL_AND_RETURN(f);

    if (!f->stop) f->stop = mem_strdup(why ? why : "a callback asked for it");
}

const char *manta_fit_context_stopped(const manta_fit_context *f)
{
    REFUSE_NULL_OR(f, NULL);
    return f->stop;
}
