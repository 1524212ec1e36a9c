/* task_actors.c - the public calls about actors (manta/actor.h): start, call, find, end. Each
 * takes the lock, does its work through the other files of this folder, and gives it back.
 *
 * A start, which is most of this file:
 *
 *     check_start()          options, amounts, the name, concurrency groups
 *     encode_constructor()   the constructor's call as bytes, which the daemon keeps for restarts
 *     tell_start()           ACTOR_NEW to the daemon; only an actor with a name is waited for, since
 *                            another may have it. Without other processes: run_constructor(), here
 *
 * The number of an actor is given out here, before anybody is asked, and its handle is an object
 * of that number: calls may be made at once, and wait in the actor's link (actor_link.h) until the
 * daemon says where it is. A start that fails leaves a dead actor behind, of which every call fails
 * with the reason.
 *
 * References among the constructor's arguments are held once more until the daemon has been told
 * that the actor contains them (`done`, release_start()); it drops them with the actor. */
#include <manta/actor.h>
#include <manta/failure.h>
#include <manta/task.h>

#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/call_head.h"
#include "task/concurrency.h"
#include "task/incoming.h"
#include "task/needs.h"
#include "task/object.h"
#include "task/proto.h"
#include "task/ring.h"
#include "task/runtime.h"
#include "task/value.h"

/* The daemon says that an actor has this number: it must not be that of an
 * object of another kind. */
static manta_status may_be_handle(uint64_t id)
{
    const object *o = object_find(id);

    TRY(object_may_be(id));
    if (o && (o->maker || o->unsealed || o->v.kind != MANTA_KIND_NONE))
        return manta_fail(MANTA_ECORRUPT, "the daemon says that object %llu is an actor, which it is not",
                          (unsigned long long)id);
    return MANTA_OK;
}

/* The constructor's call as bytes, its arguments resolved as far as they are
 * there; what it refers to goes to *inner. *done arguments are held once more. */
static manta_status encode_constructor(const char *name, const char *groups, uint64_t id, int n,
                                       const manta_arg *args, buf *b, manta_ref *inner, uint64_t *n_inner,
                                       int *done)
{
    proto_begin(b, PROTO_CALL);
    call_head_put(b, &(call_head){.actor = id, .has_group = groups[0] != 0});
    wire_put_text(b, name);
    wire_put_text(b, "");
    if (groups[0]) wire_put_text(b, groups);
    wire_put_u32(b, (uint32_t)n);
    for (int i = 0; i < n; i++) {
        object *o = NULL;
        value v;
        const uint64_t *ids;
        if (args[i].kind == MANTA_KIND_REF) {
            manta_status st = object_await((manta_ref){args[i].as.id}, 0, false, &o);
            if (st == MANTA_ETIMEDOUT) { /* not there yet: the constructor's process waits for it */
                o = object_find(args[i].as.id);
                o->pins++;
                st = MANTA_OK;
            }
            if (st) return st;
        } else {
            TRY(value_of(&args[i], &v));
            TRY(object_make(&args[i], &v, false, &o));
            o->pins++;
        }
        if (o->state == OBJECT_PENDING) {
            object_export(o);
            inner[(*n_inner)++].id = o->id;
        } else if (o->v.place.segment || o->v.kind == MANTA_KIND_REFS || o->v.kind == MANTA_KIND_PACKED) {
            object_export(o);
            inner[(*n_inner)++].id = o->id;
        } else if (value_inner(&o->v, &ids) > 0) {
            inner[(*n_inner)++].id = ids[0];
        }
        if (o->state == OBJECT_PENDING)
            value_put_ref(b, o->id);
        else
            value_put(b, &o->v);
        if (b->n > RING_MESSAGE) {
            object_unpin(o);
            return manta_fail(MANTA_EINVAL, "the small arguments of %s are too many", name);
        }
        o->refs++; /* until the daemon has been told that the actor contains it */
        object_unpin(o);
        if (args[i].kind != MANTA_KIND_REF) inner[n + i].id = o->id;
        *done = i + 1;
    }
    return MANTA_OK;
}

/* An actor that is being started: what it was asked for, and what is made of that. */
typedef struct actor_start {
    const char *name; /* of its constructor */
    const manta_task_options *o; /* may be NULL */
    int n;
    const manta_arg *args;
    uint64_t id;
    sched_shape amount;
    char full[PROTO_NAME], groups[CONCURRENCY_TEXT]; /* "": it has no name; it has no groups */
    buf bytes; /* the constructor's call */
    manta_ref *inner; /* 2 n and one more: what the call refers to, and the objects made of its arguments */
    uint64_t n_inner;
    int done; /* arguments that are held once more */
} actor_start;

static bool start_is_named(const actor_start *s)
{
    return s->o && s->o->name;
}

/* Checks the options and takes from them what the actor needs. */
static manta_status check_start(actor_start *s)
{
    manta_failure_kind kind;

    TRY(shape_of(s->o, true, &s->amount, &kind));
    if (strlen(s->name) > 63)
        return manta_fail(MANTA_EINVAL, "the constructor's name has %zu bytes, at most 63 are allowed",
                          strlen(s->name));
    if (s->o && (s->o->concurrency_groups || s->o->method_groups))
        TRY(concurrency_join(s->o->concurrency_groups, s->o->method_groups, s->groups));
    return start_is_named(s) ? actor_full_name(s->o->name_space, s->o->name, s->full) : MANTA_OK;
}

/* Without a daemon the name is looked for here. *taken: the actor that has it and is wanted, else NULL. */
static manta_status find_taken(const actor_start *s, const actor_link **taken)
{
    const actor_link *found = start_is_named(s) && rt->is_local ? actor_named(s->full) : NULL;

    *taken = found && s->o->get_if_exists ? found : NULL;
    return found && !*taken ? manta_fail(MANTA_EEXIST, "an actor is called %s already", s->full) : MANTA_OK;
}

static void run_constructor(const actor_start *s)
{
    buf answer = {0};
    incoming *in = incoming_of(NULL, s->bytes.at, s->bytes.n), *outer = rt_current;

    in->is_own = true;
    rt_current = in;
    (void)exec_run(in, &answer); /* a constructor is not deferred */
    rt_current = outer;
    incoming_free(in);
    buf_release(&answer);
}

/* Tells the daemon, which answers when the actor has a name: *out is then the number of the actor that has it. */
static manta_status tell_start(const actor_start *s, uint64_t *out)
{
    const manta_task_options *o = s->o;
    reply r;
    uint64_t request = rt_request_begin(PROTO_ACTOR_NEW);

    if (!start_is_named(s)) memset(rt->out.at + 8, 0, 8); /* no answer is awaited */
    wire_put_u64(&rt->out, s->id);
    wire_put_u32(&rt->out, (o && o->detached ? PROTO_ACTOR_DETACHED : 0u) |
                               (o && o->get_if_exists ? PROTO_ACTOR_GET : 0u) |
                               (o && o->fail_away ? PROTO_ACTOR_AWAY : 0u) |
                               (o && o->out_of_order ? PROTO_ACTOR_ANY_ORDER : 0u) |
                               (o && o->with_maker ? PROTO_ACTOR_WITH_MAKER : 0u));
    wire_put_u32(&rt->out, (uint32_t)(o ? o->max_restarts == MANTA_UNLIMITED ? -1 : o->max_restarts : 0));
    wire_put_u32(&rt->out, (uint32_t)(o ? o->max_task_retries : 0));
    wire_put_u32(&rt->out, (uint32_t)(o && o->max_concurrency > 1 ? o->max_concurrency : 1));
    wire_put_u32(&rt->out, (uint32_t)(o && o->max_pending_calls > 0 ? o->max_pending_calls : 0));
    buf_add(&rt->out, &s->amount, sizeof s->amount);
    wire_put_text(&rt->out, s->full);
    wire_put_bytes(&rt->out, s->bytes.at, s->bytes.n);
    wire_put_u64(&rt->out, s->n_inner);
    buf_add(&rt->out, s->inner, (size_t)s->n_inner * 8);
    if (!start_is_named(s)) {
        rt_tell();
        return MANTA_OK;
    }
    TRY(rt_request(request, &r));
    TRY(may_be_handle(r.id));
    *out = r.id;
    return MANTA_OK;
}

static void release_start(actor_start *s)
{
    for (int i = 0; i < s->done; i++) {
        object *o = object_find(s->args[i].kind == MANTA_KIND_REF ? s->args[i].as.id : s->inner[s->n + i].id);
        if (o) object_unref(o);
    }
    mem_free(s->inner);
    buf_release(&s->bytes);
}

/* *out: the number that the actor is to have, and then has, or that of the one which has its name. */
static manta_status start_actor(const char *name, const manta_task_options *o, int n, const manta_arg *args,
                                uint64_t *out)
{
    actor_start s = {.name = name, .o = o, .n = n, .args = args, .id = *out};
    const actor_link *taken;

    TRY(check_start(&s));
    TRY(find_taken(&s, &taken));
    if (taken) {
        *out = taken->id;
        return MANTA_OK;
    }
    s.inner = mem_new((size_t)n * 2 * sizeof *s.inner + 8);
    manta_status st =
        encode_constructor(name, s.groups, s.id, n, args, &s.bytes, s.inner, &s.n_inner, &s.done);
    if (!st && rt->is_local)
        run_constructor(&s);
    else if (!st)
        st = tell_start(&s, out);
    release_start(&s);
    return st;
}

/* Why an actor could not be started. That an argument of its constructor has failed is passed on with
 * all that it carries. */
static failure *start_failure(manta_status st, const char *name, int n, const manta_arg *args)
{
    failure *f = failure_here(MANTA_FAILURE_ACTOR, st, name);

    for (int i = 0; i < n && !f->payload; i++) {
        const object *o = args[i].kind == MANTA_KIND_REF ? object_find(args[i].as.id) : NULL;
        if (o && o->state == OBJECT_FAILED && o->failure->is.code == st)
            f->payload = payload_ref(o->failure->payload);
    }
    return f;
}

manta_actor manta_actor_start(const char *constructor, const manta_task_options *options, int n_args,
                              const manta_arg *args)
{
    REFUSE_NULL_OR(constructor, (manta_actor){0});
    if (n_args > 0) REFUSE_NULL_OR(args, (manta_actor){0});

    manta_actor a = {0};

    if (!rt) {
        (void)rt_none();
        return a;
    }
    mutex_lock(&rt->lock);
    uint64_t id = object_id(1), made = id;
    manta_status st =
        rt->is_dead ? failure_raise(rt->death) : start_actor(constructor, options, n_args, args, &made);
    object *handle = object_find(made);
    if (!handle) handle = object_new(made);
    handle->refs++;
    if (!st) handle->held++; /* the daemon counted it for us */
    handle->exported = true;
    handle->state = OBJECT_READY;
    a.id = made;
    actor_link *link = actor_find_link(made);
    link->retries = options ? options->max_task_retries : 0;
    link->most_pending = options ? options->max_pending_calls : 0;
    link->fail_away = options && options->fail_away;
    link->any_order = options && options->out_of_order;
    if (!st && rt->is_local && made == id) {
        char full[PROTO_NAME];
        link->group = options ? options->placement_group.id : 0;
        if (options && options->name && !actor_full_name(options->name_space, options->name, full))
            link->name = mem_strdup(full);
    }
    if (st) actor_died(made, start_failure(st, constructor, n_args, args));
    rt_flush_drops();
    mutex_unlock(&rt->lock);
    return a;
}

void manta_actor_submit_with(manta_actor actor, const char *method, const manta_task_options *options,
                             int n_args, const manta_arg *args, int results, manta_ref *out)
{
    REFUSE_NULL_AND_RETURN(method);
    if (n_args > 0) REFUSE_NULL_AND_RETURN(args);
    if (results > 0) REFUSE_NULL_AND_RETURN(out);

    for (int i = 0; i < results; i++) out[i].id = 0;
    if (!rt) {
        (void)rt_none();
        return;
    }
    mutex_lock(&rt->lock);
    if (!object_find(actor.id)) {
        for (int i = 0; i < results; i++)
            out[i] = object_failed(MANTA_FAILURE_SUBMIT,
                                   manta_fail(MANTA_EINVAL, "the actor is none, or its handle was released"));
    } else {
        call_submit(method, options, actor_find_link(actor.id), n_args, args, results, out);
    }
    rt_flush_drops();
    mutex_unlock(&rt->lock);
}

void manta_actor_submit(manta_actor actor, const char *method, int n_args, const manta_arg *args, int results,
                        manta_ref *out)
{
    REFUSE_NULL_AND_RETURN(method);
    if (n_args > 0) REFUSE_NULL_AND_RETURN(args);
    if (results > 0) REFUSE_NULL_AND_RETURN(out);
    manta_actor_submit_with(actor, method, NULL, n_args, args, results, out);
}

manta_ref manta_actor_submit_one_with(manta_actor actor, const char *method,
                                      const manta_task_options *options, int n_args, const manta_arg *args)
{
    REFUSE_NULL_OR(method, (manta_ref){0});
    if (n_args > 0) REFUSE_NULL_OR(args, (manta_ref){0});

    manta_ref r;

    manta_actor_submit_with(actor, method, options, n_args, args, 1, &r);
    return r;
}

manta_ref manta_actor_submit_one(manta_actor actor, const char *method, int n_args, const manta_arg *args)
{
    REFUSE_NULL_OR(method, (manta_ref){0});
    if (n_args > 0) REFUSE_NULL_OR(args, (manta_ref){0});

    manta_ref r;

    manta_actor_submit(actor, method, n_args, args, 1, &r);
    return r;
}

manta_status manta_actor_ready(manta_actor actor, int64_t timeout_ms)
{
    manta_ref r = manta_actor_submit_one(actor, "manta.ready", 0, NULL);
    manta_status st = manta_get(r, timeout_ms);

    manta_release(r);
    return st;
}

manta_status manta_actor_find(const char *name, manta_actor *out)
{
    REFUSE_NULL(name);
    REFUSE_NULL(out);
    return manta_actor_find_in(NULL, name, out);
}

manta_status manta_actor_find_in(const char *name_space, const char *name, manta_actor *out)
{
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    reply r;
    char full[PROTO_NAME];

    if (!rt) return rt_none();
    TRY(actor_full_name(name_space, name, full));
    mutex_lock(&rt->lock);
    if (rt->is_local) {
        const actor_link *a = actor_named(full);
        if (a) {
            object_find(a->id)->refs++;
            out->id = a->id;
        }
        mutex_unlock(&rt->lock);
        return a ? MANTA_OK : manta_fail(MANTA_ENOENT, "no actor is called %s", full);
    }
    uint64_t request = rt_request_begin(PROTO_ACTOR_FIND);
    wire_put_text(&rt->out, full);
    manta_status st = rt->is_dead ? failure_raise(rt->death) : rt_request(request, &r);
    if (!st) st = may_be_handle(r.id);
    if (!st) {
        object *handle = object_find(r.id);
        if (!handle) handle = object_new(r.id);
        handle->exported = true;
        handle->state = OBJECT_READY;
        handle->held++;
        handle->refs++;
        out->id = r.id;
    }
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_actor_end(manta_actor actor)
{
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    /* A call like others, so that it comes behind those made before. */
    manta_ref r;
    manta_status st = MANTA_OK;
    if (!rt->is_local && map_u64_find(&rt->selves, actor.id)) { /* from inside */
        proto_begin(&rt->out, PROTO_ACTOR_KILL);
        wire_put_u64(&rt->out, actor.id);
        wire_put_u32(&rt->out, PROTO_KILL_END);
        rt_tell();
    } else if (object_find(actor.id)) {
        call_submit("manta.end", NULL, actor_find_link(actor.id), 0, NULL, 1, &r);
        object_unref(object_find(r.id));
    } else {
        st = manta_fail(MANTA_EINVAL, "the actor is none, or its handle was released");
    }
    rt_flush_drops();
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_actor_kill(manta_actor actor, bool no_restart)
{
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    buf *b = proto_begin(&rt->out, PROTO_ACTOR_KILL);
    wire_put_u64(b, actor.id);
    wire_put_u32(b, no_restart ? PROTO_KILL : PROTO_KILL_RESTART);
    rt_tell();
    /* Calls made from now on must not reach the process that is about to die. */
    if (object_find(actor.id)) {
        actor_link *a = actor_find_link(actor.id);
        if (no_restart)
            actor_died(actor.id,
                       failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, a->pid, "the actor was killed"));
        else if (a->state == ACTOR_AT)
            a->state = ACTOR_LOST;
    }
    mutex_unlock(&rt->lock);
    return MANTA_OK;
}

void manta_actor_release(manta_actor actor)
{
    manta_release((manta_ref){actor.id});
}

int manta_actor_pid(manta_actor actor)
{
    int pid = 0;

    if (!rt) return 0;
    mutex_lock(&rt->lock);
    if (object_find(actor.id)) pid = actor_find_link(actor.id)->pid;
    mutex_unlock(&rt->lock);
    return pid;
}
