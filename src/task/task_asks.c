/* task_asks.c - what a function asks of the call that it runs: arguments, names, the actor's
 * own state. Everything was read before the function began: no lock is needed. */
#include <string.h>

#include "base/args.h"
#include "task/exec_task.h"
#include "task/packed.h"

int manta_args(const manta_task *t)
{
    REFUSE_NULL_OR(t, 0);
    return t->n_args;
}

manta_kind manta_arg_kind(const manta_task *t, int i)
{
    REFUSE_NULL_OR(t, 0);
    return i >= 0 && i < t->n_args ? t->args[i].kind : MANTA_KIND_NONE;
}

static manta_status find_arg(const manta_task *t, int i, manta_kind kind, const value **out)
{
    if (i < 0 || i >= t->n_args)
        return manta_fail(MANTA_EINVAL, "%s: argument %d is asked for, %d are given", t->name, i, t->n_args);
    if (t->args[i].kind != kind)
        return manta_fail(MANTA_EINVAL, "%s: argument %d is %s, not %s", t->name, i,
                          value_kind_name(t->args[i].kind), value_kind_name(kind));
    *out = &t->args[i];
    return MANTA_OK;
}

manta_status manta_arg_f64(const manta_task *t, int i, double *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);

    const value *v = NULL;

    TRY(find_arg(t, i, MANTA_KIND_F64, &v));
    memcpy(out, &v->word, 8);
    return MANTA_OK;
}

manta_status manta_arg_i64(const manta_task *t, int i, int64_t *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);

    const value *v = NULL;

    TRY(find_arg(t, i, MANTA_KIND_I64, &v));
    *out = (int64_t)v->word;
    return MANTA_OK;
}

manta_status manta_arg_bool(const manta_task *t, int i, bool *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);

    const value *v = NULL;

    TRY(find_arg(t, i, MANTA_KIND_BOOL, &v));
    *out = v->word != 0;
    return MANTA_OK;
}

manta_status manta_arg_str(const manta_task *t, int i, const char **out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);

    const value *v = NULL;

    TRY(find_arg(t, i, MANTA_KIND_STR, &v));
    *out = v->at;
    return MANTA_OK;
}

manta_status manta_arg_bytes(const manta_task *t, int i, const void **at, size_t *n)
{
    REFUSE_NULL(t);
    REFUSE_NULL(at);
    REFUSE_NULL(n);

    const value *v = NULL;

    TRY(find_arg(t, i, MANTA_KIND_BYTES, &v));
    *at = v->at;
    *n = (size_t)v->size;
    return MANTA_OK;
}

manta_status manta_arg_array(const manta_task *t, int i, manta_array *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);

    const value *v = NULL;

    TRY(find_arg(t, i, MANTA_KIND_ARRAY, &v));
    *out = manta_array_of(v->dtype, v->ndim, v->shape, (void *)(uintptr_t)v->at);
    return MANTA_OK;
}

manta_status manta_arg_refs(const manta_task *t, int i, const manta_ref **out, size_t *n)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);
    REFUSE_NULL(n);

    const value *v = NULL;

    TRY(find_arg(t, i, MANTA_KIND_REFS, &v));
    *out = v->at;
    *n = (size_t)v->size / sizeof(manta_ref);
    return MANTA_OK;
}

manta_status manta_arg_actor(const manta_task *t, int i, manta_actor *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);

    const value *v = NULL;

    TRY(find_arg(t, i, MANTA_KIND_ACTOR, &v));
    out->id = v->word;
    return MANTA_OK;
}

manta_status manta_arg_packed(const manta_task *t, int i, manta_packed *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);

    const value *v = NULL;

    TRY(find_arg(t, i, MANTA_KIND_PACKED, &v));
    if (!v->index) t->args[i].index = packed_index_new(v->at, v->size);
    packed_view(v->index, v->at, out);
    return MANTA_OK;
}

int manta_results(const manta_task *t)
{
    REFUSE_NULL_OR(t, 0);
    return t->n_results;
}

const char *manta_task_name(const manta_task *t)
{
    REFUSE_NULL_OR(t, NULL);
    return t->name;
}

uint64_t manta_task_id(const manta_task *t)
{
    REFUSE_NULL_OR(t, 0);
    return t->id;
}

int manta_task_attempt(const manta_task *t)
{
    REFUSE_NULL_OR(t, 0);
    return t->attempt;
}

bool manta_task_is_cancelled(const manta_task *t)
{
    REFUSE_NULL_OR(t, false);
    return atomic_load(&t->call->cancelled);
}

bool exec_caller_lives(const manta_task *t)
{
    return !t->caller || !t->caller->is_dead;
}

void exec_context(const manta_task *t, manta_context *out)
{
    out->task = t->id;
    memcpy(out->function, t->name, sizeof out->function);
    memcpy(out->name, t->label, sizeof out->name);
    out->attempt = t->attempt;
    out->is_cancelled = atomic_load(&t->call->cancelled);
    out->actor.id = t->actor;
}

void *manta_self(const manta_task *t)
{
    REFUSE_NULL_OR(t, NULL);
    return t->self ? t->self->self : NULL;
}

void manta_set_self(manta_task *t, void *self, void (*end)(void *self))
{
    REFUSE_NULL_AND_RETURN(t);

    if (!t->self) return;
    t->self->self = self;
    t->self->end = end;
}
