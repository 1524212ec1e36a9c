/* runtime_wait.c - waiting for something to change in this process, and saying that it has.
 *
 *     rt_wait:   look ──▶ spin ──▶ sleep on rt->bell ──▶ look again
 *                 │        ▲                │
 *                 │        └────────────────┘ rt_changed() rings, peers ring, the hook is asked
 *                 ▼
 *               done, or the time is over
 *     rt_await:  the same for a program: a call that is found meanwhile is run on this stack (nested.h)
 *
 * Why no wake is lost: a waiter looks at its condition, at the rings and at rt->changes
 * under the lock, and once more after it has said that it sleeps (eventcount_wait()). Whoever
 * changes something rings the bell afterwards.
 *
 * What may be changed: how long to spin (waits), how often a driver says that it sleeps, and after what time
 * one that polls does. */
#include "task/runtime.h"

#include <sched.h>
#include <unistd.h>

#include "base/clock.h"
#include "task/call.h"
#include "task/deadlock.h"
#include "task/hooks.h"
#include "task/incoming.h"
#include "task/leader.h"
#include "task/nested.h"
#include "task/peer.h"
#include "task/proto.h"

/* Sleeping and waking cost some 60 us on a virtual machine: it pays to spin for
 * about as long. After so many looks a spinner gives way at each turn, so that
 * with more runnable threads than cores the others come first. */
static const spin_policy waits = {
    .clock_every = 16, .alone_turns = 200, .alone_ns = SPIN_ANY_TIME, .limit_ns = 60000};

#define ASK_NS    50000000 /* from one question to the program's hook to the next */
#define HUNGER_NS 500000000 /* from one word to the daemon that a driver sleeps to the next */
#define IDLE_NS   20000000000 /* to the first, of one that might do something else at any time */
#define POLLS     2 /* waits that end for nothing, after which a driver is taken to do nothing else */

/* ---- waking others ---- */

void rt_changed(void)
{
    rt->changes++;
    if (rt->bell) eventcount_notify(rt->bell);
}

void rt_nudge(void)
{
    uint64_t one = 1;

    if (!rt->watcher_idles) return;
    rt->watcher_idles = false;
    (void)!write(rt->nudge_fd, &one, sizeof one);
}

/* ---- waiting ---- */

static bool look_again(void *ctx)
{
    mutex_lock(&rt->lock);
    bool yes = rt->changes != *(uint64_t *)ctx || peers_have_work();
    mutex_unlock(&rt->lock);
    return yes;
}

/* When a wait asks the program's hook whether it is to be ended. A signal that comes just before
 * the thread sleeps, or to another thread, ends no sleep: so no sleep is long. */
typedef struct asking {
    bool on;
    int64_t at; /* when it is time; 0: not known yet */
} asking;

/* Whether the hook ends the wait; the lock is given away while it is asked. */
static bool asked_to_end(asking *a, int64_t now)
{
    if (!a->on || now == 0) return false;
    if (a->at == 0) a->at = now + ASK_NS;
    if (now < a->at) return false;
    mutex_unlock(&rt->lock);
    bool ends = hooks_interrupted();
    mutex_lock(&rt->lock);
    a->at = clock_now_ns() + ASK_NS;
    return ends;
}

/* Sleeps, without the lock, until something has changed, the time is over or the hook is to be asked. */
static void sleep_until_changed(asking *a, int64_t deadline)
{
    uint64_t seen = rt->changes;

    rt_flush_drops();
    mutex_unlock(&rt->lock);
    if (a->on && a->at < deadline) deadline = a->at;
    if (eventcount_wait_signal(rt->bell, look_again, &seen, deadline) == MANTA_EINTERRUPTED) a->at = 1;
    mutex_lock(&rt->lock);
}

/* Who waits. */
typedef enum waiter {
    WAITER_INSIDE, /* a thread of the runtime, or for an answer of the daemon */
    WAITER_PROGRAM,
    WAITER_LOOP, /* the thread of a watch, while the program is in its event loop */
} waiter;

static void say_starved(void)
{
    uint64_t told = rt->told;

    proto_begin(&rt->out, PROTO_STARVED);
    rt_tell();
    rt->told = told; /* who says this does nothing */
}

/* A driver that sleeps without a time limit says so, again and again as long as nothing comes, since it
 * may be that nothing ever will (daemon_starved.c). */
typedef struct hunger {
    int64_t at; /* when it is said next; 0: not known yet */
    uint64_t heard; /* rt->heard when the time to it began */
} hunger;

/* Says it, if it is time. When to look again. */
static int64_t tell_hunger(hunger *h, int64_t now)
{
    if (h->at == 0 || h->heard != rt->heard) {
        h->heard = rt->heard;
        h->at = now + HUNGER_NS;
    } else if (now >= h->at) {
        say_starved();
        h->at = now + HUNGER_NS;
    }
    return h->at;
}

/* A driver that is in its event loop, or waits again and again with a time limit, might do something else
 * at any time. It says the same when for IDLE_NS nothing has come and it has done nothing that another
 * could notice. One wait with a time limit, however long, is none of this: what the program does when it
 * is over is not known yet. When to look again. */
static int64_t tell_idleness(bool is_loop, int64_t now)
{
    idleness *i = &rt->idle;

    if (i->at == 0 || i->heard != rt->heard || i->told != rt->told) {
        *i = (idleness){.heard = rt->heard, .told = rt->told, .at = now + IDLE_NS};
    } else if (now >= i->at && (i->polls >= POLLS || (is_loop && rt->timed == 0))) {
        say_starved();
        i->at = now + HUNGER_NS;
    }
    return now < i->at ? i->at : CLOCK_NEVER;
}

/* Says what is to be said of a wait that is about to sleep until `deadline`. When it is to wake. */
static int64_t tell_sleep(waiter who, hunger *h, int64_t now, int64_t deadline)
{
    int64_t at = CLOCK_NEVER;

    if (rt->is_worker || who == WAITER_INSIDE) return deadline;
    if (who == WAITER_LOOP || deadline != CLOCK_NEVER || rt->questions > 0)
        at = tell_idleness(who == WAITER_LOOP, now);
    else if (rt->timed == 0)
        at = tell_hunger(h, now);
    return at < deadline ? at : deadline;
}

/* A wait of the program has ended, as its time was over. */
static void note_poll(void)
{
    if (rt->is_worker || rt->is_local) return;
    (void)tell_idleness(false, clock_now_ns());
    if (rt->idle.polls < POLLS) rt->idle.polls++;
}

/* What has come and gone since q->heard and q->told was the question's own, and no sign of life. Had anything else
 * come or gone before, the time of idleness begins anew. */
static void forget_question(rt_question *q)
{
    idleness *i = &rt->idle;

    if (i->heard == q->heard && i->told == q->told) {
        i->heard = rt->heard;
        i->told = rt->told;
    }
    q->heard = rt->heard;
    q->told = rt->told;
}

void rt_question_begin(rt_question *q, bool is_timed)
{
    rt->questions += is_timed;
    *q = (rt_question){.is_timed = is_timed, .heard = rt->heard, .told = rt->told};
}

void rt_question_sent(rt_question *q)
{
    forget_question(q);
}

void rt_question_end(rt_question *q, bool in_vain)
{
    rt->questions -= q->is_timed;
    if (!in_vain) return;
    forget_question(q);
    note_poll();
}

static manta_status wait_for(bool (*done)(void *ctx), void *ctx, int64_t deadline, bool asks, waiter who)
{
    manta_status st = MANTA_OK;
    spin s = {0};
    asking a = {.on = asks};
    hunger h = {0};
    bool blocked = false;

    rt->waiters++;
    rt->timed += deadline != CLOCK_NEVER;
    rt->waiting_calls += rt_current != NULL;
    for (;;) {
        rt_end_if_cut();
        if (rt_pump()) {
            s = (spin){0};
            if (rt->waiters > 1) rt_changed();
        }
        if (done(ctx)) break;
        leader_call_waits();
        if (rt->is_local) { /* nobody else will ever do anything */
            st = MANTA_ETIMEDOUT;
            break;
        }
        spin_turn turn = spin_next(&s, &waits);
        if (s.now >= deadline) {
            st = MANTA_ETIMEDOUT;
            break;
        }
        if (asked_to_end(&a, s.now)) {
            st = MANTA_EINTERRUPTED;
            break;
        }
        if (turn == SPIN_OVER) {
            if (rt_current && !rt->blocked && rt->threads == 0) {
                blocked = true;
                exec_block(true);
                deadlock_ask();
            }
            sleep_until_changed(&a, tell_sleep(who, &h, s.now, deadline));
            s = (spin){0};
            continue;
        }
        mutex_unlock(&rt->lock);
        if (turn == SPIN_YIELD) {
            sched_yield();
        } else {
            spin_pause();
        }
        mutex_lock(&rt->lock);
    }
    rt->waiters--;
    rt->timed -= deadline != CLOCK_NEVER;
    rt->waiting_calls -= rt_current != NULL;
    if (blocked) exec_block(false);
    if (st == MANTA_ETIMEDOUT && who == WAITER_PROGRAM) note_poll();
    if (rt->unsent > 0 && rt->waiters == 0) rt_nudge();
    return st;
}

manta_status rt_wait(bool (*done)(void *ctx), void *ctx, int64_t deadline)
{
    return wait_for(done, ctx, deadline, false, WAITER_INSIDE);
}

void rt_wait_in_loop(bool (*done)(void *ctx), void *ctx)
{
    (void)wait_for(done, ctx, CLOCK_NEVER, false, WAITER_LOOP);
}

typedef struct patience {
    bool (*done)(void *ctx);
    rt_find *find; /* NULL: nothing is to be run */
    void *ctx;
    nested_terms terms;
    call *found;
} patience;

static bool is_cancelled(void)
{
    return rt_current && !rt_current->is_calm && atomic_load(&rt_current->cancelled);
}

/* What a wait of a program ends with, for the time being: also with a call that this thread
 * is to run itself. */
static bool patience_ends(void *ctx)
{
    patience *p = ctx;

    if (p->done(p->ctx) || is_cancelled()) return true;
    p->found = p->find ? p->find(p->ctx, p->terms) : NULL;
    return p->found != NULL;
}

static nested_terms terms_until(int64_t deadline)
{
    return (nested_terms){deadline == CLOCK_NEVER ? INT64_MAX : deadline - clock_now_ns()};
}

manta_status rt_await(bool (*done)(void *ctx), rt_find *find, void *ctx, int64_t timeout_ms)
{
    int64_t deadline = timeout_ms == 0 ? 0 : clock_deadline(timeout_ms);
    patience p = {.done = done, .find = timeout_ms == 0 || !rt_current ? NULL : find, .ctx = ctx};

    for (;;) {
        if (p.find) p.terms = terms_until(deadline);
        if (rt->queued > 0 && rt_current && !patience_ends(&p)) calls_dispatch();
        manta_status st =
            wait_for(patience_ends, &p, deadline, timeout_ms != 0 && hooks.interrupted, WAITER_PROGRAM);
        if (st == MANTA_EINTERRUPTED) return manta_fail(st, "the wait was interrupted");
        if (st) return st;
        if (done(ctx)) return MANTA_OK;
        if (is_cancelled()) return manta_fail(MANTA_ECANCELLED, "the call that waits was cancelled");
        nested_run(p.found);
    }
}
