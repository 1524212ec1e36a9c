/* leader.c - which thread of an actor that runs several calls at once takes the next.
 *
 * One of them leads: it alone waits for calls and takes them. The others sleep, so
 * that a message wakes one thread and not all.
 *   - Before a call that takes its time (by what calls of that function took), and
 *     when a call begins to wait for something in the runtime, the leadership is passed on,
 *     and another thread takes the next call meanwhile.
 *   - A short call is run without that: to wake another thread takes longer, and what
 *     the runtime does for a call is done under one lock in any case.
 *   - A call that was thought short and is not loses the leadership to the watcher, which
 *     looks every millisecond as long as there are calls.
 * A thread that has lost the leadership takes it again when it is free, else it sleeps.
 * The lock is held everywhere. Without further threads all of this is a comparison. */
#include "task/leader.h"

#include "base/clock.h"
#include "task/call.h"
#include "task/incoming.h"
#include "task/runtime.h"

#define SHORT_NS 2000 /* a call that takes less is short */
#define SAMPLE_NS                                                                                            \
    20000 /* no call counts for more: one in which the system did something else proves little */

static _Thread_local uint64_t turn; /* the last in which this thread has led */
static _Thread_local bool waited; /* its call has passed the leadership on */

static bool thread_leads(void)
{
    return turn != 0 && rt->leader.turn == turn;
}

bool leader_is_me(void)
{
    return thread_leads() || rt->exiting;
}

void leader_become(void)
{
    while (rt->leader.turn != 0 && !leader_is_me()) cond_wait(&rt->leader.free, &rt->lock, CLOCK_NEVER);
    if (rt->leader.turn == 0) rt->leader.turn = turn = ++rt->leader.turns;
}

static void leadership_pass_on(void)
{
    rt->leader.turn = 0;
    rt->leader.runs = false;
    cond_signal(&rt->leader.free);
}

void leader_call_waits(void)
{
    if (rt->threads == 0 || !rt_current || !thread_leads()) return;
    waited = true;
    leadership_pass_on();
}

void leader_call_begins(const function *f)
{
    waited = false;
    if (!thread_leads()) return;
    if (f->run_ns < 0 || f->run_ns >= SHORT_NS) {
        leadership_pass_on();
        return;
    }
    rt->leader.runs = true;
    rt->leader.begun++;
    rt_nudge();
}

void leader_call_ends(function *f, int64_t ns)
{
    if (thread_leads()) rt->leader.runs = false;
    if (waited) return; /* it says itself when it does not run */
    if (ns > SAMPLE_NS) ns = SAMPLE_NS;
    f->run_ns = f->run_ns < 0 ? ns : f->run_ns + (ns - f->run_ns) / 8;
}

bool leader_is_watched(void)
{
    return rt->leader.runs || rt->leader.begun != rt->leader.seen;
}

void leader_watch(void)
{
    if (rt->leader.runs && rt->leader.begun == rt->leader.seen) leadership_pass_on();
    rt->leader.seen = rt->leader.begun;
}

void leader_stop_all(void)
{
    rt->exiting = true;
    cond_broadcast(&rt->leader.free);
}
