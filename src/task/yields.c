/* yields.c - room for the items of streams that run here.
 *
 *     made ──▶ sent (yielded) ──▶ taken by the caller
 *       └─ promised: room was given for it, and it was not sent yet
 *
 * Of one stream at most `window` items are sent and not taken. Several streams of one process
 * may share a limit besides: what is promised, or sent and not taken, in all of them together.
 * Both numbers lie in the call (incoming.h), so that one look at rt->running adds them up. A
 * stream whose caller has left it counts for nothing and waits for nothing: its caller says that
 * it has taken more than there is.
 *
 * Who wakes whom: TAKEN comes in by a ring, and whoever reads it rings rt->bell; a call that
 * ends in this process, and a promise that is given back, change things here (rt_changed()). */
#include <manta/stream.h>
#include <manta/task.h>

#include "base/args.h"
#include "base/clock.h"
#include "task/exec_task.h"
#include "task/runtime.h"

static bool is_over(const manta_task *t)
{
    return atomic_load(&t->call->cancelled) || (t->caller && t->caller->is_dead);
}

bool yield_is_due(void *task)
{
    const manta_task *t = task;

    return t->window == UINT32_MAX || t->yielded - t->call->taken < t->window ||
           t->yielded < t->call->taken || is_over(t);
}

static uint64_t ahead_of(const incoming *c)
{
    if (c->taken > c->yielded) return 0;
    return c->promised + c->yielded - c->taken;
}

static uint64_t ahead_together(void)
{
    uint64_t n = 0;

    for (list *l = rt->running.next; l != &rt->running; l = l->next)
        n += ahead_of(LIST_ITEM(l, incoming, link));
    return n;
}

typedef struct room {
    manta_task *t;
    uint64_t limit; /* of all streams together; 0: none */
} room;

static bool has_room(void *ctx)
{
    const room *r = ctx;

    if (!yield_is_due(r->t)) return false;
    if (r->limit == 0 || is_over(r->t) || r->t->yielded < r->t->call->taken) return true;
    return ahead_together() < r->limit;
}

static bool are_all_taken(void *task)
{
    const manta_task *t = task;

    return t->yielded <= t->call->taken || is_over(t);
}

static manta_status fail_over(const manta_task *t)
{
    return manta_fail(MANTA_ECANCELLED, "%s: nobody takes the items any more", t->name);
}

static manta_status wait_until(bool (*done)(void *), void *ctx, const manta_task *t, int64_t timeout_ms)
{
    if (rt->is_local || done(ctx)) return is_over(t) ? fail_over(t) : MANTA_OK;
    if (rt_wait(done, ctx, timeout_ms < 0 ? CLOCK_NEVER : clock_deadline(timeout_ms)))
        return manta_fail(MANTA_ETIMEDOUT, "%s: its items were not taken for %lld ms", t->name,
                          (long long)timeout_ms);
    return is_over(t) ? fail_over(t) : MANTA_OK;
}

manta_status manta_yield_room(manta_task *t, uint64_t n, uint64_t limit, int64_t timeout_ms)
{
    REFUSE_NULL(t);

    room r = {t, limit};

    if (!rt) return rt_none();
    if (!t->is_stream) return manta_fail(MANTA_EINVAL, "%s was not called as a stream", t->name);
    mutex_lock(&rt->lock);
    manta_status st = wait_until(has_room, &r, t, timeout_ms);
    if (!st && limit > 0) t->call->promised += n;
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_yield_taken(manta_task *t, int64_t timeout_ms)
{
    REFUSE_NULL(t);

    if (!rt) return rt_none();
    if (!t->is_stream) return manta_fail(MANTA_EINVAL, "%s was not called as a stream", t->name);
    mutex_lock(&rt->lock);
    if (t->call->promised > 0) rt_changed(); /* others wait for that room */
    t->call->promised = 0;
    manta_status st = wait_until(are_all_taken, t, t, timeout_ms);
    mutex_unlock(&rt->lock);
    return st;
}
