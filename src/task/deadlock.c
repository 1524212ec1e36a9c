/* deadlock.c - see deadlock.h.
 *
 *     A waits for x ──PROBE(A, x)──▶ B has x, waits for y ──PROBE(A, y)──▶ C ...  ──▶ A: a circle
 *
 * A process that begins to sleep, without a time limit, in a call that another has to answer sends
 * a probe to that one. Who gets a probe, has the call it names unanswered, and sleeps in the same
 * way, passes it on to where its own call is, with the name of what it runs added; any other drops it.
 * When it comes back to its origin, and the origin still sleeps for what it slept for, nobody in the circle
 * can ever go on: the call of the origin fails, with the names, and that of the call which cannot begin.
 *
 * Why that is so: each of them has one thread and said that it sleeps and has not answered the
 * one before. The first to go on after it has said so would need an answer of the next, which
 * would have gone on before. Why no circle is missed: the last to begin its sleep sends its probe
 * when all others sleep already.
 *
 * rt->awaits is written by the thread that waits (deadlock_awaits()). */
#include "task/deadlock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "task/actor_link.h"
#include "task/call.h"
#include "task/incoming.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/runtime.h"
#include "task/value.h"

/* Whether what this thread waits for is what the whole process waits for. */
static bool awaits_counts(void)
{
    return rt_current && rt->is_worker && rt->threads == 0;
}

uint64_t deadlock_awaits(const object *o, int64_t timeout_ms)
{
    uint64_t outer = rt->awaits;

    if (awaits_counts()) rt->awaits = o && timeout_ms < 0 ? o->id : 0;
    return outer;
}

void deadlock_awaited(uint64_t outer)
{
    if (awaits_counts()) rt->awaits = outer;
}

void deadlock_awaits_next(const object *o)
{
    if (rt->awaits && awaits_counts()) rt->awaits = o->id;
}

#define CHAIN 192 /* bytes of the names */

/* The call that the whole process sleeps for; NULL: it does not sleep, or for something else. */
static call *awaited_call(void)
{
    const object *o = rt->blocked && rt->awaits && rt->threads == 0 ? object_find(rt->awaits) : NULL;
    call *c = o && o->state == OBJECT_PENDING ? o->maker : NULL;

    return c && c->is_sent && c->at && !c->at->is_dead ? c : NULL;
}

/* Whether the call is here and not answered. Those of no actor that have not begun go back to their
 * callers while this process sleeps. */
static bool has_call(uint64_t task)
{
    for (list *l = rt->running.next; l != &rt->running; l = l->next)
        if (LIST_ITEM(l, incoming, link)->task == task) return true;
    for (list *l = rt->calls.next; l != &rt->calls; l = l->next)
        if (LIST_ITEM(l, incoming, link)->task == task && LIST_ITEM(l, incoming, link)->actor) return true;
    return false;
}

/* Sends a probe of `origin`, which waits for its call `first`, to where c is. */
static void send_probe(const call *c, uint32_t origin, uint64_t first, const char *chain)
{
    char longer[CHAIN], name[CHAIN];
    buf b = {0};
    const incoming *me = list_is_empty(&rt->running) ? NULL : LIST_ITEM(rt->running.prev, incoming, link);

    snprintf(longer, sizeof longer, "%s%s%s", chain, *chain ? " > " : "", me && me->name ? me->name : "?");
    snprintf(name, sizeof name, "%s", c->fn->name);
    proto_begin(&b, PROTO_PROBE);
    wire_put_u64(&b, c->id);
    wire_put_u64(&b, first);
    wire_put_u32(&b, origin);
    wire_put_u32(&b, 0);
    wire_put_text(&b, longer);
    wire_put_text(&b, name);
    peer_answer(c->at, &b);
    buf_release(&b);
}

void deadlock_ask(void)
{
    const call *c = awaited_call();

    if (c) send_probe(c, rt->client, c->id, "");
}

void deadlock_heard(wire *w)
{
    char chain[CHAIN], name[CHAIN]; /* name: of the call `task` */
    uint64_t task = wire_u64(w), first = wire_u64(w);
    uint32_t origin = wire_u32(w);

    (void)wire_u32(w);
    wire_text(w, chain, sizeof chain);
    wire_text(w, name, sizeof name);
    if (wire_end(w, "probe") || !has_call(task)) return;
    call *c = awaited_call();
    if (!c) return;
    if (origin != rt->client) {
        if (strlen(chain) < CHAIN - 1)
            send_probe(c, origin, first, chain); /* else it goes round without us */
        return;
    }
    if (c->id != first) return;
    call_give_up(c, failure_make(MANTA_FAILURE_ACTOR, MANTA_EBUSY, c->fn->name, (int)getpid(),
                                 "calls wait for each other in a circle, for ever: %s > %s", chain, name));
    rt_changed();
}
