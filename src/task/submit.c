/* submit.c - how a call comes to be: what was asked for is checked, the values of its
 * arguments are taken, the call and its results are allocated and tied to the objects
 * that it uses, and it is queued (calls.c). What fails on the way becomes the failure of
 * its results. The lock is held everywhere, and given away where the daemon must be
 * asked: for the place of a group, and for memory for large arguments. */
#include "task/call.h"

#include <string.h>

#include "base/mem.h"
#include "task/actor_link.h"
#include "task/incoming.h"
#include "task/needs.h"
#include "task/nested.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/runtime.h"
#include "task/sizes.h"
#include "task/stream.h"
#include "task/value.h"

/* The values of the arguments that are no references; large ones become
 * objects, for which the lock may be given away. */
static manta_status take_values(call_arg *to, int n, const manta_arg *args, size_t *bytes)
{
    size_t total = 0;

    *bytes = 0;
    for (int i = 0; i < n; i++) {
        value *v = &to[i].v;
        to[i] = (call_arg){0};
        if (args[i].kind == MANTA_KIND_REF) continue;
        TRY(value_of(&args[i], v));
        total += (size_t)v->size + 64;
        if (value_is_word(v->kind) || v->kind == MANTA_KIND_NONE) continue;
        if (v->size > VALUE_INLINE || total > SUBMIT_INLINE) {
            object *o;
            total -= (size_t)v->size;
            TRY(object_make(&args[i], v, true, &o)); /* else its bytes would be in the message all the same */
            o->pins++;
            to[i].o = o;
            continue;
        }
        *bytes += ((size_t)v->size + 7) / 8 * 8;
    }
    return MANTA_OK;
}

static manta_status pin_inner(const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t i = 0; i < n; i++)
        if (!object_find(ids[i]))
            return manta_fail(MANTA_EINVAL, "an argument holds a reference that is none, or was released");
    for (uint64_t i = 0; i < n; i++) {
        object *o = object_find(ids[i]);
        o->pins++;
        object_export(o);
    }
    return MANTA_OK;
}

/* Copies what is inside the message behind the arguments, and ties the call to
 * the objects it uses. On failure *done arguments are tied. */
static manta_status tie_arguments(call *c, const manta_arg *args, int *done)
{
    char *at = (char *)&c->args[c->n_args];

    for (int i = 0; i < c->n_args; i++) {
        call_arg *x = &c->args[i];
        if (args[i].kind == MANTA_KIND_REF) {
            object *o = object_find(args[i].as.id);
            if (!o)
                return manta_fail(MANTA_EINVAL, "argument %d is a reference that is none, or was released",
                                  i);
            if (o->unsealed)
                return manta_fail(MANTA_EINVAL, "argument %d is an object that is not sealed yet", i);
            x->o = o;
            o->pins++;
        } else if (!x->o) {
            value *v = &x->v;
            if (!value_is_word(v->kind) && v->kind != MANTA_KIND_NONE) {
                value_copy(&args[i], v, at);
                v->at = at;
                at += (v->size + 7) / 8 * 8;
            }
            TRY(pin_inner(v));
        } else if (x->o->v.kind == MANTA_KIND_REFS) {
            object_export(x->o); /* and with it what it contains */
        }
        *done = i + 1;
    }
    return MANTA_OK;
}

static void fail_results(uint64_t id, int n, failure *f)
{
    for (int i = 0; i < n; i++) object_fail(object_find(id + (uint64_t)i), failure_ref(f));
}

static int retries_of(int given, int otherwise)
{
    return given == 0 ? otherwise : given == MANTA_NONE ? 0 : given;
}

/* Undoes what a submit that failed had done; `tied` arguments are whole. Takes f. */
static void give_up(call *c, const manta_arg *args, int tied, failure *f)
{
    uint64_t id = c->id;
    int n = c->results;

    for (int i = tied; i < c->n_args; i++) /* not tied: there are only the objects made for it */
        if (args[i].kind == MANTA_KIND_REF || !c->args[i].o) c->args[i] = (call_arg){0};
    call_free(c);
    fail_results(id, n, f);
    failure_unref(f);
}

/* What a call was asked for with, from the public function to the queue. */
typedef struct submission {
    const char *name;
    const manta_task_options *options; /* NULL: none */
    actor_link *actor; /* NULL: a task */
    stream *opens; /* the stream whose call it is; NULL: none */
    int n_args, results;
    const manta_arg *args;
    sched_shape amount; /* of a task: what it needs */
    manta_failure_kind kind; /* what it fails with, if it does */
} submission;

/* Whether any call may be made here now. What ends calls does not see one that is not queued yet: it is asked again
 * when the lock was given away. */
static manta_status submission_may_go(submission *s)
{
    if (rt->is_dead) {
        s->kind = MANTA_FAILURE_NODE;
        return failure_raise(rt->death);
    }
    if (rt_current && rt_current->task && atomic_load(&rt_current->ends)) {
        s->kind = MANTA_FAILURE_CANCELLED;
        return manta_fail(MANTA_ECANCELLED, "the call that calls %s was cancelled", s->name);
    }
    return MANTA_OK;
}

/* Whether this call, which counts as pending, is one more than the actor takes at once. */
static bool is_too_many(const actor_link *a)
{
    return a && a->most_pending > 0 && a->pending > a->most_pending;
}

/* Whether the call may be made at all; nothing was done for it yet, but that its actor is held. */
static manta_status submission_check(submission *s)
{
    const manta_task_options *o = s->options;

    TRY(submission_may_go(s));
    /* That calls have ended is read by whoever waits, and maybe nobody does. */
    if (is_too_many(s->actor) && rt_pump() && rt->waiters > 0) rt_changed();
    if (is_too_many(s->actor))
        return manta_fail(MANTA_EBUSY,
                          "%d calls of the actor are pending already, and no more are allowed at once",
                          s->actor->pending - 1);
    if (strlen(s->name) >= sizeof((manta_failure *)0)->function)
        return manta_fail(MANTA_EINVAL, "the function's name has %zu bytes, at most 63 are allowed",
                          strlen(s->name));
    if (o && o->stream_window < 0 && o->stream_window != MANTA_UNLIMITED)
        return manta_fail(MANTA_EINVAL,
                          "stream_window of a call of %s is %d, expected 0 or more, or MANTA_UNLIMITED",
                          s->name, o->stream_window);
    if (o && o->max_calls < 0)
        return manta_fail(MANTA_EINVAL, "max_calls of a call of %s is %d, expected 0 or more", s->name,
                          o->max_calls);
    if (o && o->name && strlen(o->name) > 63)
        return manta_fail(MANTA_EINVAL, "the name of a call of %s has %zu bytes, at most 63 are allowed",
                          s->name, strlen(o->name));
    if (o && o->concurrency_group && strlen(o->concurrency_group) > 63)
        return manta_fail(
            MANTA_EINVAL,
            "the concurrency group of a call of %s has a name of %zu bytes, at most 63 are allowed", s->name,
            strlen(o->concurrency_group));
    return MANTA_OK;
}

/* The actor of a call cannot go while the call is there, which counts as pending;
 * call_release() takes both back. */
static void submission_hold_actor(const submission *s)
{
    object *handle = s->actor ? object_find(s->actor->id) : NULL;

    if (handle) handle->pins++;
    if (s->actor) s->actor->pending++;
}

/* Finds what the call needs and takes the values of its arguments; the lock may be
 * given away for both. */
static manta_status submission_take(submission *s, call_arg *values, size_t *bytes)
{
    if (!s->actor) TRY(shape_of(s->options, false, &s->amount, &s->kind));
    manta_status st = take_values(values, s->n_args, s->args, bytes);
    s->kind = st == MANTA_ENOSPC ? MANTA_FAILURE_FULL : MANTA_FAILURE_SUBMIT;
    return st ? st : submission_may_go(s);
}

/* The call and the objects of its results, one reference each, which go to *out. */
static call *call_allocate(const submission *s, const call_arg *values, size_t bytes, manta_ref *out)
{
    call *c = mem_new(sizeof *c + (size_t)s->n_args * sizeof *values + bytes);

    list_init(&c->link);
    c->id = object_id(s->results > 0 ? s->results : 1);
    c->results = s->results;
    c->n_args = s->n_args;
    c->actor = s->actor;
    memcpy(c->args, values, (size_t)s->n_args * sizeof *values);
    for (int i = 0; i < s->results; i++) {
        object *o = object_new(c->id + (uint64_t)i);
        o->refs = 1;
        out[i].id = o->id;
    }
    return c;
}

static void call_set_options(call *c, const submission *s)
{
    const manta_task_options none = {0}, *o = s->options ? s->options : &none;

    c->fn = function_find(s->name);
    c->max_retries =
        c->actor ? retries_of(o->max_task_retries, c->actor->retries) : retries_of(o->max_retries, 3);
    c->as_actor = c->actor && o->max_task_retries == 0;
    c->retry_errors = o->retry_errors;
    c->retry_on = o->retry_on;
    if (!c->actor) c->max_calls = (uint32_t)o->max_calls;
    if (s->opens) c->window = o->stream_window == MANTA_UNLIMITED ? UINT32_MAX : (uint32_t)o->stream_window;
    c->apart = o->strategy == MANTA_CALL_STRATEGY_SPREAD;
    c->parent = rt_current ? rt_current->task : 0;
    c->chain = rt_current ? nested_chain(rt_current) : 0;
    if (o->name) c->label = mem_strdup(o->name);
    if (o->concurrency_group && c->actor) c->group = mem_strdup(o->concurrency_group);
    if (!c->actor) c->shape = shape_find(&s->amount);
}

/* The call is whole: it waits for its arguments, or is sent. Calls of an actor have
 * their place in its queue from now on, whether their arguments are there or not. */
static void call_enqueue(call *c, stream *opens)
{
    c->is_stream = opens != NULL;
    if (opens) stream_open(opens, c->id);
    for (int i = 0; i < c->results; i++) object_find(c->id + (uint64_t)i)->maker = c;
    if (c->actor && !rt->is_local) call_queue(c, false);
    call_resume(c);
}

static void submit_call(submission *s, manta_ref *out)
{
    size_t bytes = 0;
    int tied = 0;
    call_arg few[SUBMIT_FEW],
        *values = s->n_args <= SUBMIT_FEW ? few : mem_new((size_t)s->n_args * sizeof *values);

    for (int i = 0; i < s->n_args; i++) values[i] = (call_arg){0};
    submission_hold_actor(s);
    manta_status st = submission_check(s);
    if (!st) st = submission_take(s, values, &bytes);
    call *c = call_allocate(s, values, bytes, out);
    if (values != few) mem_free(values);
    if (!st) st = tie_arguments(c, s->args, &tied);
    if (st) {
        give_up(c, s->args, tied, failure_here(s->kind, st, s->name));
        return;
    }
    call_set_options(c, s);
    call_enqueue(c, s->opens);
}

void call_submit(const char *name, const manta_task_options *options, actor_link *actor, int n_args,
                 const manta_arg *args, int results, manta_ref *out)
{
    submission s = {.name = name,
                    .options = options,
                    .actor = actor,
                    .n_args = n_args,
                    .results = results,
                    .args = args,
                    .kind = MANTA_FAILURE_SUBMIT};

    submit_call(&s, out);
}

void call_submit_stream(stream *opens, const char *name, const manta_task_options *options, actor_link *actor,
                        int n_args, const manta_arg *args, manta_ref *out)
{
    submission s = {.name = name,
                    .options = options,
                    .actor = actor,
                    .opens = opens,
                    .n_args = n_args,
                    .results = 1,
                    .args = args,
                    .kind = MANTA_FAILURE_SUBMIT};

    submit_call(&s, out);
}
