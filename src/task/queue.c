/* queue.c - a queue between processes (manta/task.h): an actor that holds
 * references, and runs calls on several threads, so that those who wait for room
 * or for items do not keep the others out. All but the last of its threads may
 * wait; who comes then is told so, and tries again. */

#include <manta/queue.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <manta/actor.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "task/incoming.h"
#include "task/object.h"
#include "task/runtime.h"
#include "task/sizes.h"

#define THREADS  32
#define RETRY_NS 2000000

/* ---- in the actor ---- */

typedef struct queue {
    size_t capacity; /* 0: no bound */
    int waiting; /* calls; the runtime's lock guards it all */
    VEC(manta_ref) items; /* from `first` on */
    size_t first;
} queue;

typedef struct wish {
    const manta_task *t;
    queue *q;
    size_t n; /* items, or room for them */
} wish;

static size_t queue_length(const queue *q)
{
    return q->items.n - q->first;
}

static bool has_room(void *ctx)
{
    const wish *w = ctx;

    return w->q->capacity == 0 || queue_length(w->q) + w->n <= w->q->capacity || !exec_caller_lives(w->t);
}

static bool has_items(void *ctx)
{
    const wish *w = ctx;

    return queue_length(w->q) >= w->n || !exec_caller_lives(w->t);
}

static manta_status wait_until(wish *w, bool (*done)(void *ctx), int64_t timeout_ms, const char *what)
{
    manta_status st = MANTA_OK;

    if (!done(w) && timeout_ms != 0 && w->q->waiting == THREADS - 1)
        return manta_fail(MANTA_EBUSY, "%d calls wait already", THREADS - 1);
    bool is_timed = timeout_ms >= 0; /* a limit of the caller's, which counts it (rt_question_begin()) */
    w->q->waiting++;
    rt->timed -= is_timed;
    if (!done(w)) st = rt_await(done, NULL, w, timeout_ms);
    rt->timed += is_timed;
    w->q->waiting--;
    if (st == MANTA_ETIMEDOUT)
        return manta_fail(MANTA_ETIMEDOUT, "the queue is %s after %lld ms (%zu of %zu items)", what,
                          (long long)timeout_ms, queue_length(w->q), w->q->capacity);
    if (!st && !exec_caller_lives(w->t))
        return manta_fail(MANTA_EDIED, "the call of the queue is given up: its caller is dead");
    return st;
}

static void queue_free(void *self)
{
    queue *q = self;

    for (size_t i = q->first; i < q->items.n; i++) manta_release(q->items.at[i]);
    vec_release(&q->items);
    mem_free(q);
}

/* capacity */
static manta_status queue_open(manta_task *t)
{
    int64_t capacity;

    TRY(manta_arg_i64(t, 0, &capacity));
    queue *q = mem_new(sizeof *q);
    q->capacity = (size_t)capacity;
    manta_set_self(t, q, queue_free);
    return MANTA_OK;
}

/* items, timeout_ms: all of them or none */
static manta_status queue_put(manta_task *t)
{
    wish w = {.t = t, .q = manta_self(t)};
    const manta_ref *in;
    int64_t timeout_ms;

    TRY(manta_arg_refs(t, 0, &in, &w.n));
    TRY(manta_arg_i64(t, 1, &timeout_ms));
    mutex_lock(&rt->lock);
    manta_status st = wait_until(&w, has_room, timeout_ms, "full");
    for (size_t i = 0; i < w.n && !st; i++) {
        object_find(in[i].id)->refs++; /* the argument holds it meanwhile */
        vec_push(&w.q->items, in[i]);
    }
    if (!st) rt_changed();
    mutex_unlock(&rt->lock);
    return st;
}

/* least, most, timeout_ms: the items */
static manta_status queue_get(manta_task *t)
{
    queue *q = manta_self(t);
    int64_t least, most, timeout_ms;
    manta_ref *out = NULL;
    size_t n = 0;

    TRY(manta_arg_i64(t, 0, &least));
    TRY(manta_arg_i64(t, 1, &most));
    TRY(manta_arg_i64(t, 2, &timeout_ms));
    wish w = {.t = t, .q = q, .n = (size_t)least};
    mutex_lock(&rt->lock);
    manta_status st = wait_until(&w, has_items, timeout_ms, "empty");
    if (!st) {
        n = queue_length(q) < (size_t)most ? queue_length(q) : (size_t)most;
        out = mem_new((n + 1) * sizeof *out);
        for (size_t i = 0; i < n; i++) out[i] = q->items.at[q->first++];
        if (q->first > 1000 && q->first * 2 > q->items.n) {
            memmove(q->items.at, q->items.at + q->first, queue_length(q) * sizeof *q->items.at);
            q->items.n -= q->first;
            q->first = 0;
        }
        rt_changed();
    }
    mutex_unlock(&rt->lock);
    if (st) return st;
    st = manta_return(t, 0, manta_refs(out, n));
    manta_release_all(out, n);
    mem_free(out);
    return st;
}

static manta_status queue_size(manta_task *t)
{
    const queue *q = manta_self(t);

    mutex_lock(&rt->lock);
    size_t n = queue_length(q);
    mutex_unlock(&rt->lock);
    return manta_return_i64(t, 0, (int64_t)n);
}

__attribute__((constructor)) static void register_queue(void)
{
    manta_register("manta.queue", queue_open);
    manta_register("manta.queue_put", queue_put);
    manta_register("manta.queue_get", queue_get);
    manta_register("manta.queue_size", queue_size);
}

/* ---- its users ---- */

manta_status manta_queue_new(size_t capacity, const manta_task_options *options, manta_queue *out)
{
    REFUSE_NULL(out);

    manta_task_options o = options ? *options : (manta_task_options){0};

    o.max_concurrency = THREADS;
    if (capacity > (size_t)INT64_MAX)
        return manta_fail(MANTA_EINVAL, "a queue of %zu items was asked for, at most %lld are possible",
                          capacity, (long long)INT64_MAX);
    manta_arg a = manta_i64((int64_t)capacity);
    manta_actor actor = manta_actor_start("manta.queue", &o, 1, &a);
    manta_status st = manta_actor_ready(actor, MANTA_FOREVER);
    if (st)
        manta_actor_release(actor); /* nobody else knows it: the node would remember it for ever */
    else
        out->actor = actor;
    return st;
}

void manta_queue_release(manta_queue q)
{
    manta_actor_release(q.actor);
}

static bool is_settled(void *ctx)
{
    return ((const object *)ctx)->state != OBJECT_PENDING;
}

/* The call that waits here was cancelled, or its wait interrupted. What it asked of the queue may be
 * done already, or not, and must not happen later: it is cancelled too, and awaited. */
static manta_status cancel_and_await(manta_ref r, manta_status why)
{
    (void)!manta_cancel(r, 0); /* else it has ended, which is awaited as well */
    mutex_lock(&rt->lock);
    object *o = object_find(r.id);
    if (o) {
        o->pins++;
        manta_status st = rt_wait(is_settled, o, CLOCK_NEVER);
        (void)st; /* without other processes it is settled */
        object_unpin(o);
    }
    mutex_unlock(&rt->lock);
    manta_status st = manta_get(r, 0);
    if (st == MANTA_ECANCELLED && why == MANTA_EINTERRUPTED)
        return manta_fail(why, "the wait for the queue was interrupted");
    return st;
}

typedef struct question {
    manta_queue q;
    const char *method;
    manta_arg *args;
    int n;
    int timeout_at; /* which of the arguments is the time limit; -1: none is */
    rt_question asked;
} question;

static void note_sent(question *x)
{
    if (!rt) return; /* the call has failed */
    mutex_lock(&rt->lock);
    rt_question_sent(&x->asked);
    mutex_unlock(&rt->lock);
}

/* One call of the queue's actor; again while all its threads wait. *out is not
 * set on failure. */
static manta_status ask_actor(question *x, manta_ref *out)
{
    int64_t timeout_ms = x->timeout_at < 0 ? 0 : x->args[x->timeout_at].as.i64;
    int64_t deadline = clock_deadline(timeout_ms);

    for (;;) {
        manta_ref r = manta_actor_submit_one(x->q.actor, x->method, x->n, x->args);
        note_sent(x);
        manta_status st = manta_get(r, MANTA_FOREVER);
        if (st == MANTA_ECANCELLED || st == MANTA_EINTERRUPTED) st = cancel_and_await(r, st);
        if (!st) {
            *out = r;
            return MANTA_OK;
        }
        manta_release(r);
        if (st != MANTA_EBUSY || timeout_ms == 0) return st;
        int64_t left = deadline == CLOCK_NEVER ? timeout_ms : (deadline - clock_now_ns()) / 1000000;
        if (timeout_ms > 0 && left <= 0)
            return manta_fail(MANTA_ETIMEDOUT,
                              "more calls wait for the queue than it has threads, and none went on in time");
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
        x->args[x->timeout_at].as.i64 = left;
    }
}

static manta_status queue_ask(question *x, manta_ref *out)
{
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    rt_question_begin(&x->asked, x->timeout_at >= 0 && x->args[x->timeout_at].as.i64 >= 0);
    mutex_unlock(&rt->lock);
    manta_status st = ask_actor(x, out);
    if (!rt) return st;
    mutex_lock(&rt->lock);
    rt_question_end(&x->asked, st == MANTA_ETIMEDOUT);
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_queue_put_all(manta_queue q, const manta_arg *items, size_t n, int64_t timeout_ms)
{
    if (n > 0) REFUSE_NULL(items);

    manta_ref done;
    manta_status st = MANTA_OK;

    if (n > QUEUE_ITEMS_MOST)
        return manta_fail(MANTA_EINVAL, "%zu items are put at once, at most %d fit into a call", n,
                          QUEUE_ITEMS_MOST);
    manta_ref *refs = mem_new((n + 1) * sizeof *refs);
    for (size_t i = 0; i < n; i++) {
        refs[i] = items[i].kind == MANTA_KIND_REF ? (manta_ref){items[i].as.id} : manta_put(items[i]);
        /* What could not be put is refused; what fails later is an item like others. */
        if (!st && items[i].kind != MANTA_KIND_REF) st = manta_get(refs[i], 0);
    }
    if (!st) {
        manta_arg args[2] = {manta_refs(refs, n), manta_i64(timeout_ms)};
        question x = {.q = q, .method = "manta.queue_put", .args = args, .n = 2, .timeout_at = 1};
        st = queue_ask(&x, &done);
        if (!st) manta_release(done);
    }
    for (size_t i = 0; i < n; i++)
        if (items[i].kind != MANTA_KIND_REF) manta_release(refs[i]);
    mem_free(refs);
    return st;
}

manta_status manta_queue_put(manta_queue q, manta_arg item, int64_t timeout_ms)
{
    return manta_queue_put_all(q, &item, 1, timeout_ms);
}

manta_status manta_queue_get_many(manta_queue q, size_t least, size_t most, manta_ref *out, size_t *n,
                                  int64_t timeout_ms)
{
    REFUSE_NULL(out);
    REFUSE_NULL(n);

    manta_ref r;
    const manta_ref *in;

    if (least > most || most > QUEUE_ITEMS_MOST)
        return manta_fail(MANTA_EINVAL, "%zu to %zu items were asked for, at most %d can be had at once",
                          least, most, QUEUE_ITEMS_MOST);
    manta_arg args[3] = {manta_i64((int64_t)least), manta_i64((int64_t)most), manta_i64(timeout_ms)};
    question x = {.q = q, .method = "manta.queue_get", .args = args, .n = 3, .timeout_at = 2};
    TRY(queue_ask(&x, &r));
    manta_status st = manta_get_refs(r, &in, n, MANTA_FOREVER);
    for (size_t i = 0; !st && i < *n; i++) {
        st = manta_retain(in[i]);
        out[i] = in[i];
    }
    manta_release(r);
    return st;
}

manta_status manta_queue_get(manta_queue q, manta_ref *out, int64_t timeout_ms)
{
    REFUSE_NULL(out);

    size_t n;

    return manta_queue_get_many(q, 1, 1, out, &n, timeout_ms);
}

manta_status manta_queue_size(manta_queue q, size_t *out)
{
    REFUSE_NULL(out);

    manta_ref r;
    int64_t n = 0;

    question x = {.q = q, .method = "manta.queue_size", .timeout_at = -1};
    TRY(queue_ask(&x, &r));
    manta_status st = manta_get_i64(r, &n, MANTA_FOREVER);
    manta_release(r);
    *out = (size_t)n;
    return st;
}
