/* task_failure.c - the public functions about failures: failing with more than a sentence, and reading
 * why something failed. */
#include <manta/failure.h>
#include <manta/task.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "task/exec_task.h"
#include "task/object.h"
#include "task/runtime.h"

/* ---- failing ---- */

/* A text that does not fit says so at its end. */
static void cut_text(manta_failure *is, const char *text)
{
    int n = snprintf(is->text, sizeof is->text, "%s", text);

    if (n >= (int)sizeof is->text) memcpy(is->text + sizeof is->text - 4, "...", 4);
}

/* What does not fit into the failure cannot be kept: the end of the text says so. */
static void say_lost(manta_failure *is)
{
    char why[160];
    size_t keep = strlen(is->text), n;

    n = (size_t)snprintf(why, sizeof why, " (what it carries is lost: %.90s)", manta_error_text());
    if (keep + n >= sizeof is->text) keep = sizeof is->text - 1 - n;
    memcpy(is->text + keep, why, n + 1);
}

/* A failure of t with what it carries. */
static failure *failure_with(const manta_task *t, manta_status code, const char *text, const void *bytes,
                             size_t size)
{
    failure *f = failure_make(MANTA_FAILURE_TASK, code, t->name, (int)getpid(), "%s", "");
    bool is_long = strlen(text) >= sizeof f->is.text;

    cut_text(&f->is, text);
    if (is_long || size > 0) {
        mutex_lock(&rt->lock);
        if (payload_make(is_long ? text : NULL, bytes, size, &f->payload)) say_lost(&f->is);
        mutex_unlock(&rt->lock);
    }
    return f;
}

manta_status manta_fail_with(manta_task *t, manta_status code, const char *text, const void *bytes,
                             size_t size)
{
    REFUSE_NULL(t);
    REFUSE_NULL(text);
    if (size > 0 && !bytes) return args_fail_null(__func__, "payload");

    if (code == MANTA_OK) code = MANTA_EINVAL;
    failure *f = failure_with(t, code, text, bytes, size);
    failure_unref(t->failure);
    t->failure = f;
    return manta_fail(code, "%s", text);
}

manta_status manta_return_failure(manta_task *t, int i, manta_status code, const char *text,
                                  const void *bytes, size_t size)
{
    REFUSE_NULL(t);
    REFUSE_NULL(text);
    if (size > 0 && !bytes) return args_fail_null(__func__, "payload");

    if (i < 0 || i >= t->n_results)
        return manta_fail(MANTA_EINVAL, "%s: result %d fails, expected one of %d", t->name, i, t->n_results);
    failure *f = failure_with(t, code == MANTA_OK ? MANTA_EINVAL : code, text, bytes, size);
    failure_unref(t->results[i].failure);
    t->results[i].failure = f;
    return MANTA_OK;
}

/* ---- reading ---- */

void manta_failure_get(manta_ref ref, manta_failure *out)
{
    REFUSE_NULL_AND_RETURN(out);

    *out = (manta_failure){0};
    if (!rt) return;
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (o && o->state == OBJECT_FAILED) *out = o->failure->is;
    mutex_unlock(&rt->lock);
}

/* Whole text and payload of what is wrong with an object. */
static manta_status read_failure(manta_ref ref, const char **text, const void **at, size_t *n)
{
    object *o = object_find(ref.id);

    if (!o) return manta_fail(MANTA_EINVAL, "the reference is none, or was released");
    if (o->state != OBJECT_FAILED)
        return manta_fail(MANTA_EINVAL, "the object has not failed, and has no failure to be read");
    failure *f = failure_ref(o->failure); /* reading may give the lock away */
    const char *whole = NULL;
    manta_status st = f->payload ? payload_read(f->payload, &whole, at, n) : MANTA_OK;
    *text = whole ? whole : f->is.text;
    failure_unref(f);
    return st;
}

manta_status manta_failure_payload(manta_ref ref, const void **at, size_t *n)
{
    REFUSE_NULL(at);
    REFUSE_NULL(n);

    const char *text;
    const void *bytes = NULL;
    size_t size = 0;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = read_failure(ref, &text, &bytes, &size);
    mutex_unlock(&rt->lock);
    if (st) return st;
    *at = bytes;
    *n = size;
    return MANTA_OK;
}

manta_status manta_failure_text(manta_ref ref, const char **out)
{
    REFUSE_NULL(out);

    const char *text = NULL;
    const void *bytes = NULL;
    size_t n = 0;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = read_failure(ref, &text, &bytes, &n);
    mutex_unlock(&rt->lock);
    if (!st) *out = text;
    return st;
}
