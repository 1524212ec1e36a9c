/* streams.c - results that come one by one.
 *
 *     worker: ITEM 0, 1, 2, ...  ──▶  ready  ──▶ manta_stream_next()
 *             waits when WINDOW ahead ◀── TAKEN n ──┘
 *             DONE or FAILED ──▶ the end object
 *
 * A stream is a call with one result, which stands for its end, and items that the worker
 * sends while the function runs. The worker may be STREAM_WINDOW items (sizes.h) ahead of what the
 * caller has taken; then it waits. Items are numbered, and an item is taken only when its
 * number is the next (received): a call that is tried again sends those the caller has once
 * more, and they are dropped without harm.
 *
 * Items that were received come before the end, also before a failure: the end is looked at
 * only when `ready` is empty. Closing a stream drops what was not taken and cancels the call;
 * leaving it drops that too, and says that all was taken, so that the function goes on unheld.
 * The lock is held except where a public function takes it. */
#include "task/stream.h"

#include <string.h>
#include <unistd.h>

#include <manta/failure.h>
#include <manta/stream.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/incoming.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/runtime.h"
#include "task/value.h"

struct stream {
    uint64_t id; /* of the call, and of its result */
    uint64_t received, taken;
    VEC(uint64_t) ready; /* objects, from `first` on */
    size_t first;
};

static stream *stream_find(uint64_t id)
{
    stream **s = map_u64_find(&rt->streams, id);

    return s ? *s : NULL;
}

#define ALL_OF_THEM UINT64_MAX /* taken by whoever left the stream: nothing holds its function back */

static void send_taken(peer *to, uint64_t task, uint64_t n)
{
    buf *b = proto_begin(&rt->out, PROTO_TAKEN);

    wire_put_u64(b, task);
    wire_put_u64(b, n);
    peer_answer(to, b);
}

/* Tells whoever runs the call how many items its caller has taken. */
static void tell_taken(uint64_t task, uint64_t n)
{
    object *end = object_find(task);
    call *c = end ? end->maker : NULL;

    for (list *l = rt->running.next; c && c->is_here && l != &rt->running; l = l->next)
        if (LIST_ITEM(l, incoming, link)->task == task) LIST_ITEM(l, incoming, link)->taken = n;
    if (c && c->is_here) rt_changed();
    if (c && c->is_sent && c->at) send_taken(c->at, task, n);
}

/* An item that is an object of its maker's: nobody knew of it before. */
static manta_status check_number(uint64_t id)
{
    if (!id) return MANTA_OK;
    TRY(object_may_be(id));
    return object_find(id)
               ? manta_fail(MANTA_ECORRUPT, "an item has the number of an object that process %d has already",
                            (int)getpid())
               : MANTA_OK;
}

/* An item that nobody takes: of a stream that was closed or left, or sent before by an earlier attempt. */
static void refuse_item(peer *from, uint64_t task, const stream *s)
{
    if (s)
        tell_taken(task, s->taken);
    else if (from)
        send_taken(from, task, ALL_OF_THEM);
    else
        tell_taken(task, ALL_OF_THEM);
}

void stream_item(peer *from, wire *w)
{
    uint64_t task = wire_u64(w), index = wire_u64(w), id = wire_u64(w);
    value v;

    value_take(w, &v);
    if (wire_end(w, "item")) return;
    stream *s = stream_find(task);
    if (!s || index != s->received) {
        object_drop_value(id, &v);
        refuse_item(from, task, s);
        return;
    }
    manta_status st = check_number(id);
    object *o = object_new(id && !st ? id : object_id(1));
    o->refs = 1;
    s->received++;
    vec_push(&s->ready, o->id);
    if (st) { /* the item fails, and the stream goes on */
        object_fail(o, failure_make(MANTA_FAILURE_TASK, st, NULL, (int)getpid(), "%s", manta_error_text()));
        return;
    }
    object_set(o, &v, rt->is_local ? OBJECT_FROM_HERE : OBJECT_FROM_PEER);
}

static manta_stream stream_start(actor_link *actor, const char *name, const manta_task_options *options,
                                 int n_args, const manta_arg *args)
{
    manta_ref end;
    /* The items may come before the call is submitted to the end, so the number is known first. */
    stream *s = mem_new(sizeof *s);

    call_submit_stream(s, name, options, actor, n_args, args, &end);
    if (!s->id) stream_open(s, end.id); /* it failed at once */
    rt_flush_drops();
    return (manta_stream){end.id};
}

manta_stream manta_stream_start(const char *name, const manta_task_options *options, int n_args,
                                const manta_arg *args)
{
    REFUSE_NULL_OR(name, (manta_stream){0});
    if (n_args > 0) REFUSE_NULL_OR(args, (manta_stream){0});

    if (!rt) {
        (void)rt_none();
        return (manta_stream){0};
    }
    mutex_lock(&rt->lock);
    manta_stream s = stream_start(NULL, name, options, n_args, args);
    mutex_unlock(&rt->lock);
    return s;
}

manta_stream manta_actor_stream_start(manta_actor actor, const char *method,
                                      const manta_task_options *options, int n_args, const manta_arg *args)
{
    REFUSE_NULL_OR(method, (manta_stream){0});
    if (n_args > 0) REFUSE_NULL_OR(args, (manta_stream){0});

    manta_stream s = {0};

    if (!rt) {
        (void)rt_none();
        return s;
    }
    mutex_lock(&rt->lock);
    if (object_find(actor.id))
        s = stream_start(actor_find_link(actor.id), method, options, n_args, args);
    else
        (void)!manta_fail(MANTA_EINVAL, "the actor of the stream is none, or its handle was released");
    mutex_unlock(&rt->lock);
    return s;
}

void stream_open(stream *s, uint64_t id)
{
    s->id = id;
    *map_u64_put(&rt->streams, id) = s;
}

/* By its number: another thread may close the stream meanwhile. */
static bool has_item(void *id)
{
    const stream *s = stream_find(*(const uint64_t *)id);
    const object *end = s ? object_find(s->id) : NULL;

    return !end || s->first < s->ready.n || end->state != OBJECT_PENDING;
}

/* Waits until the stream has an item, or has ended. */
static manta_status await_item(uint64_t id, int64_t timeout_ms, stream **out)
{
    if (!stream_find(id)) return manta_fail(MANTA_EINVAL, "the stream is none, or was closed");
    manta_status st = rt_await(has_item, NULL, &id, timeout_ms);
    if (st == MANTA_ETIMEDOUT)
        return manta_fail(MANTA_ETIMEDOUT, "the stream has given no item for %lld ms", (long long)timeout_ms);
    if (st) return st;
    *out = stream_find(id);
    return *out ? MANTA_OK : manta_fail(MANTA_EINVAL, "the stream was closed while it was waited for");
}

static manta_status take_item(uint64_t id, manta_ref *out, int64_t timeout_ms)
{
    stream *s = NULL;

    TRY(await_item(id, timeout_ms, &s));
    if (s->first < s->ready.n) {
        out->id = s->ready.at[s->first++];
        if (s->first == s->ready.n) {
            s->first = 0;
            vec_clear(&s->ready);
        }
        s->taken++;
        tell_taken(id, s->taken);
        return MANTA_OK;
    }
    const object *end = object_find(id);
    if (end && end->state == OBJECT_FAILED) return failure_raise(end->failure);
    return manta_fail(MANTA_ENOENT, "the stream has ended");
}

manta_status manta_stream_next(manta_stream s, manta_ref *out, int64_t timeout_ms)
{
    REFUSE_NULL(out);

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = take_item(s.id, out, timeout_ms);
    mutex_unlock(&rt->lock);
    return st;
}

/* As manta_stream_wait(). */
static manta_status look_for_item(uint64_t id, int64_t timeout_ms)
{
    stream *s = NULL;

    TRY(await_item(id, timeout_ms, &s));
    const object *end = object_find(id);
    if (s->first < s->ready.n || (end && end->state == OBJECT_FAILED)) return MANTA_OK;
    return manta_fail(MANTA_ENOENT, "the stream has ended");
}

manta_status manta_stream_wait(manta_stream x, int64_t timeout_ms)
{
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = look_for_item(x.id, timeout_ms);
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_stream_end(manta_stream x, manta_ref *out)
{
    REFUSE_NULL(out);

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    object *end = stream_find(x.id) ? object_find(x.id) : NULL;
    if (end) {
        end->refs++;
        out->id = x.id;
    }
    mutex_unlock(&rt->lock);
    return end ? MANTA_OK : manta_fail(MANTA_EINVAL, "the stream is none, or was closed");
}

static void stream_free(stream *s)
{
    vec_release(&s->ready);
    mem_free(s);
}

/* Drops the items that were not taken, and the stream. */
static void stream_drop(stream *s)
{
    for (size_t i = s->first; i < s->ready.n; i++) {
        object *o = object_find(s->ready.at[i]);
        if (o) object_unref(o);
    }
    map_u64_remove(&rt->streams, s->id);
    stream_free(s);
}

static void stream_give_back(uint64_t id, bool cancels)
{
    stream *s = stream_find(id);
    object *end = object_find(id);

    if (!s) return;
    stream_drop(s);
    if (!cancels)
        tell_taken(id, ALL_OF_THEM);
    else if (end && end->maker)
        (void)call_cancel(end->maker, 0);
    if ((end = object_find(id))) object_unref(end);
    rt_flush_drops();
    if (rt->waiters > 0) rt_changed(); /* another thread may wait for an item */
}

void manta_stream_close(manta_stream s)
{
    if (!rt) return;
    mutex_lock(&rt->lock);
    stream_give_back(s.id, true);
    mutex_unlock(&rt->lock);
}

void manta_stream_leave(manta_stream s)
{
    if (!rt) return;
    mutex_lock(&rt->lock);
    stream_give_back(s.id, false);
    mutex_unlock(&rt->lock);
}

void streams_release(void)
{
    for (size_t i = 0; i < rt->streams.n; i++) stream_free(rt->streams.at[i].value);
    map_u64_release(&rt->streams);
}
