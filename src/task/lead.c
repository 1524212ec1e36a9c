/* lead.c - which thread of an actor that runs several calls at once takes the next.
 *
 * One of them leads: it alone waits for calls and takes them. The others sleep, so
 * that a message wakes one thread and not all.
 *   - Before a call that takes its time (by what calls of that function took), and
 *     when a call begins to wait for something in the runtime, the lead is passed on,
 *     and another thread takes the next call meanwhile.
 *   - A short call is run without that: to wake another thread takes longer, and what
 *     the runtime does for a call is done under one lock in any case.
 *   - A call that was thought short and is not loses the lead to the watcher, which
 *     looks every millisecond as long as there are calls.
 * A thread that has lost the lead takes it again when it is free, else it sleeps.
 * The lock is held everywhere. Without further threads all of this is a comparison. */
#include "task/lead.h"

#include "base/clock.h"
#include "task/call.h"
#include "task/incoming.h"
#include "task/runtime.h"

#define SHORT_NS 2000 /* a call that takes less is short */
#define SAMPLE_NS                                                                                            \
    20000 /* no call counts for more: one in which the system did something else proves little */

static _Thread_local uint64_t turn; /* the last in which this thread has led */
static _Thread_local bool waited; /* its call has passed the lead on */

static bool leads(void)
{
    return turn != 0 && rt->lead.turn == turn;
}

bool lead_is_mine(void)
{
    return leads() || rt->exiting;
}

void lead_take(void)
{
    while (rt->lead.turn != 0 && !lead_is_mine()) cond_wait(&rt->lead.free, &rt->lock, CLOCK_NEVER);
    if (rt->lead.turn == 0) rt->lead.turn = turn = ++rt->lead.turns;
}

static void pass_on(void)
{
    rt->lead.turn = 0;
    rt->lead.runs = false;
    cond_signal(&rt->lead.free);
}

void lead_waits(void)
{
    if (rt->threads == 0 || !rt_current || !leads()) return;
    waited = true;
    pass_on();
}

void lead_begin(const function *f)
{
    waited = false;
    if (!leads()) return;
    if (f->run_ns < 0 || f->run_ns >= SHORT_NS) {
        pass_on();
        return;
    }
    rt->lead.runs = true;
    rt->lead.begun++;
    rt_nudge();
}

void lead_end(function *f, int64_t ns)
{
    if (leads()) rt->lead.runs = false;
    if (waited) return; /* it says itself when it does not run */
    if (ns > SAMPLE_NS) ns = SAMPLE_NS;
    f->run_ns = f->run_ns < 0 ? ns : f->run_ns + (ns - f->run_ns) / 8;
}

bool lead_is_watched(void)
{
    return rt->lead.runs || rt->lead.begun != rt->lead.seen;
}

void lead_watch(void)
{
    if (rt->lead.runs && rt->lead.begun == rt->lead.seen) pass_on();
    rt->lead.seen = rt->lead.begun;
}

void lead_stop(void)
{
    rt->exiting = true;
    cond_broadcast(&rt->lead.free);
}
