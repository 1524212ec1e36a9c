/* task_asks.c - what a function asks of the call that it runs: arguments, names, the actor's
 * own state. Everything was read before the function began: no lock is needed. */
#include <string.h>

#include <manta/actor.h>
#include <manta/context.h>

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

/* Argument i, which is to be of a kind, in the form in which the public function of that kind gives it:
 * this is the only place that knows it. *out is what that function has first, *n its size, if it has one. */
static manta_status read_arg(const manta_task *t, int i, manta_kind kind, void *out, size_t *n)
{
    if (i < 0 || i >= t->n_args)
        return manta_fail(MANTA_EINVAL, "%s: argument %d is asked for, %d are given", t->name, i, t->n_args);
    if (t->args[i].kind != kind)
        return manta_fail(MANTA_EINVAL, "%s: argument %d is %s, not %s", t->name, i,
                          value_kind_name(t->args[i].kind), value_kind_name(kind));
    value *v = &t->args[i];
    switch (kind) {
    case MANTA_KIND_F64: memcpy(out, &v->word, sizeof(double)); break;
    case MANTA_KIND_I64: *(int64_t *)out = (int64_t)v->word; break;
    case MANTA_KIND_BOOL: *(bool *)out = v->word != 0; break;
    case MANTA_KIND_ACTOR: ((manta_actor *)out)->id = v->word; break;
    case MANTA_KIND_STR: *(const char **)out = v->at; break;
    case MANTA_KIND_BYTES:
        *(const void **)out = v->at;
        *n = (size_t)v->size;
        break;
    case MANTA_KIND_REFS:
        *(const manta_ref **)out = v->at;
        *n = (size_t)v->size / sizeof(manta_ref);
        break;
    case MANTA_KIND_ARRAY:
        *(manta_array *)out = manta_array_of(v->dtype, v->ndim, v->shape, (void *)(uintptr_t)v->at);
        break;
    case MANTA_KIND_PACKED:
        if (!v->index) v->index = packed_index_new(v->at, v->size);
        packed_view(v->index, v->at, out);
        break;
    case MANTA_KIND_NONE:
    case MANTA_KIND_REF: break; /* no argument is one, and nobody asks for one */
    }
    return MANTA_OK;
}

manta_status manta_arg_f64(const manta_task *t, int i, double *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);
    return read_arg(t, i, MANTA_KIND_F64, out, NULL);
}

manta_status manta_arg_i64(const manta_task *t, int i, int64_t *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);
    return read_arg(t, i, MANTA_KIND_I64, out, NULL);
}

manta_status manta_arg_bool(const manta_task *t, int i, bool *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);
    return read_arg(t, i, MANTA_KIND_BOOL, out, NULL);
}

manta_status manta_arg_str(const manta_task *t, int i, const char **out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);
    return read_arg(t, i, MANTA_KIND_STR, out, NULL);
}

manta_status manta_arg_array(const manta_task *t, int i, manta_array *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);
    return read_arg(t, i, MANTA_KIND_ARRAY, out, NULL);
}

manta_status manta_arg_actor(const manta_task *t, int i, manta_actor *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);
    return read_arg(t, i, MANTA_KIND_ACTOR, out, NULL);
}

manta_status manta_arg_packed(const manta_task *t, int i, manta_packed *out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);
    return read_arg(t, i, MANTA_KIND_PACKED, out, NULL);
}

manta_status manta_arg_bytes(const manta_task *t, int i, const void **at, size_t *n)
{
    REFUSE_NULL(t);
    REFUSE_NULL(at);
    REFUSE_NULL(n);
    return read_arg(t, i, MANTA_KIND_BYTES, at, n);
}

manta_status manta_arg_refs(const manta_task *t, int i, const manta_ref **out, size_t *n)
{
    REFUSE_NULL(t);
    REFUSE_NULL(out);
    REFUSE_NULL(n);
    return read_arg(t, i, MANTA_KIND_REFS, out, n);
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

const char *manta_task_label(const manta_task *t)
{
    REFUSE_NULL_OR(t, NULL);
    return t->label;
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

void manta_task_stay_calm(manta_task *t)
{
    REFUSE_NULL_AND_RETURN(t);
    t->call->is_calm = true;
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
