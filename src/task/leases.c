/* leases.c - see lease.h: which worker gets the next call of a shape, and which go back.
 *
 *     queue of a shape ── shape_pick_worker() ──▶ peers that are leased for it
 *            │                                        ▲           │
 *            │ more than they take                    │ GRANT     │ RECLAIM: asked for
 *            ▼                                        │           ▼
 *     DEMAND n ──────────▶ daemon (sched.h) ──────────┘     RETURN, with the last answer
 *
 * A shape asks the daemon for as many workers as it has calls waiting (DEMAND, an absolute
 * number, so that saying it twice is harmless) and keeps those it was granted until it is
 * asked for one (RECLAIM). What was asked for and not granted yet is demand.h's.
 *
 * What may be changed: how much is sent ahead and how a worker is picked (retry.h). */
#include "task/lease.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/incoming.h"
#include "task/nested.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/retry.h"
#include "task/runtime.h"

/* ---- shapes ---- */

shape *shape_find(const sched_shape *amount)
{
    for (size_t i = 0; i < rt->shapes.n; i++)
        if (!memcmp(&rt->shapes.at[i]->amount, amount, sizeof *amount)) return rt->shapes.at[i];
    shape *s = mem_new(sizeof *s);
    s->amount = *amount;
    s->lends = nested_lendable(amount);
    int missing;
    s->is_infeasible = !amount->group && !sched_feasible(&rt->total, amount, &missing);
    call_order_init(&s->queue);
    vec_push(&rt->shapes, s);
    return s;
}

void lease_return(peer *p)
{
    shape *s = p->shape;

    for (size_t i = 0; i < s->workers.n; i++) {
        if (s->workers.at[i] != p) continue;
        vec_remove(&s->workers, i);
        break;
    }
    p->shape = NULL;
    p->give_back = false;
    if (p->is_dead) return;
    proto_begin(&rt->out, PROTO_RETURN);
    wire_put_u32(&rt->out, p->id);
    rt_tell();
}

static void shape_demand(shape *s, int64_t n)
{
    /* What will be asked for again is not worth taking back: the watcher does when it is quiet. */
    if (n < s->demand.owed && rt_current && rt->nests) return;
    if (!demand_wants(&s->demand, n)) return;
    proto_begin(&rt->out, PROTO_DEMAND);
    buf_add(&rt->out, &s->amount, sizeof s->amount);
    wire_put_i64(&rt->out, n);
    wire_put_u64(&rt->out, s->demand.number);
    rt_tell();
}

static peer *shape_pick_worker(shape *s, const call *c)
{
    spread_worker w[LEASE_MOST_WANTED];
    peer *usable[LEASE_MOST_WANTED];
    int n = 0;

    for (size_t i = 0; i < s->workers.n && n < LEASE_MOST_WANTED; i++) {
        peer *p = s->workers.at[i];
        if (p->is_waiting || p->is_dead || p->is_broken || p->give_back) continue;
        w[n] = (spread_worker){.usable = true, .in_flight = p->in_flight, .load_ns = p->load_ns};
        usable[n++] = p;
    }
    int at = spread_pick(w, n, c->apart ? -1 : c->fn->est_ns, LEASE_BUDGET_NS, LEASE_MOST_SENT);
    return at < 0 ? NULL : usable[at];
}

void shape_dispatch(shape *s)
{
    for (call *c; (c = call_order_first(&s->queue));) {
        peer *p = shape_pick_worker(s, c);
        if (!p || !call_send(c, p)) break;
        s->queued--;
        rt->queued--;
    }
    shape_demand(s, s->queued < LEASE_MOST_WANTED ? s->queued : LEASE_MOST_WANTED);
}

void calls_dispatch(void)
{
    for (size_t i = 0; i < rt->shapes.n; i++)
        if (rt->shapes.at[i]->queued > 0 || rt->shapes.at[i]->demand.owed > 0)
            shape_dispatch(rt->shapes.at[i]);
    for (size_t i = 0; i < rt->actors.n; i++)
        if (rt->actors.at[i].value->queued > 0) actor_dispatch(rt->actors.at[i].value);
    if (rt->queued > 0) rt_nudge();
}

/* ---- leases come and go ---- */

void calls_grant(peer *p, const sched_shape *amount, uint64_t number)
{
    shape *s = shape_find(amount);

    demand_granted(&s->demand, number);
    if (p) { /* else it could not be reached: ask again */
        p->shape = s;
        vec_push(&s->workers, p);
    }
    shape_dispatch(s);
}

void calls_no_worker(const sched_shape *amount, const failure *f)
{
    shape *s = shape_find(amount);

    demand_void(&s->demand);
    rt_pump(); /* which of ours wait is known then */
    for (size_t i = 0; i < s->workers.n; i++) {
        const peer *p = s->workers.at[i];
        if (p->is_waiting || p->is_dead || p->is_broken) continue;
        shape_dispatch(s); /* it came meanwhile, or goes on */
        return;
    }
    for (call *c; (c = call_order_first(&s->queue));) {
        failure *of = failure_as(f, f->is.kind, f->is.code);
        snprintf(of->is.function, sizeof of->is.function, "%s", c->fn->name);
        call_withdraw(c);
        call_abandon(c, of);
    }
}

void calls_group_gone(uint64_t group, failure *f)
{
    for (size_t i = 0; i < rt->shapes.n; i++) {
        shape *s = rt->shapes.at[i];
        if (s->amount.group != group) continue;
        for (call *c; (c = call_order_first(&s->queue));) {
            call_withdraw(c);
            call_abandon(c, failure_ref(f));
        }
        demand_void(&s->demand);
    }
}

void calls_reclaim(peer *p)
{
    shape *s = p->shape;

    if (!s) return;
    p->give_back = true;
    if (p->in_flight > 0) return; /* with its last answer */
    lease_return(p);
    shape_dispatch(s);
}

bool calls_return_idle(void)
{
    bool found = false;

    for (size_t i = 0; i < rt->shapes.n; i++) {
        shape *s = rt->shapes.at[i];
        if (s->queued) continue;
        shape_demand(s, 0);
        for (size_t k = s->workers.n; k-- > 0;) {
            peer *p = s->workers.at[k];
            if (p->in_flight > 0 || p->is_dead) continue;
            lease_return(p);
            found = true;
        }
    }
    return found;
}

void shapes_release(void)
{
    for (size_t i = 0; i < rt->shapes.n; i++) {
        call_order_release(&rt->shapes.at[i]->queue);
        vec_release(&rt->shapes.at[i]->workers);
        mem_free(rt->shapes.at[i]);
    }
    vec_release(&rt->shapes);
}
