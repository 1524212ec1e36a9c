/* daemon_actors.c - actors in the daemon: messages into events of the registry, and its actions
 * into messages, channels and kills.
 *
 *     client ── ACTOR_NEW, _WANT, _FIND, _UP, _FAILED, _KILL ──▶ on_...() ──▶ registry_event ─┐
 *     a worker has died, or cannot be had ──▶ daemon_actor_lost(), daemon_refuse_actor() ─────┤
 *     the scheduler has placed it ──▶ daemon_place_actor() ───────────────────────────────────┤
 *                                                                                             ▼
 *     DO_PLACE ──▶ the scheduler        DO_CONSTRUCT, DO_EXIT ──▶ its worker         registry_step()
 *     DO_KILL  ──▶ daemon_kill()        DO_TELL_AT, DO_TELL_DEAD, DO_ANSWER ──▶ clients     (registry.c)
 *
 * Nothing is decided here: which state an actor is in, whether it begins again and who is told is
 * the registry's (registry.h has the picture), and where it runs is the scheduler's. What is here
 * is what a pure function cannot have: clients that may be gone by now, channels that cannot be
 * made, and sentences. An action whose client is gone is let go, because the end of that client is
 * an event of its own. */
#include "task/daemon.h"

#include <stdio.h>
#include <string.h>

#include "os/spawner.h"
#include "task/call_head.h"

/* ---- what the registry says is to be done ---- */

/* Why an actor is dead, in words; a NULL: it is not there. */
static failure *failure_of(const registry_actor *a)
{
    if (!a)
        return failure_make(MANTA_FAILURE_ACTOR, MANTA_ENOENT, NULL, 0, "there is no such actor any more");
    if (a->death == DEATH_OF_GROUP)
        return failure_make(MANTA_FAILURE_PLACEMENT_GROUP, MANTA_ENOENT, NULL, 0,
                            "the placement group was removed");
    if (a->death == DEATH_OF_JOB)
        return failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, 0,
                            "the actor is dead: the program it belongs to has ended");
    if (a->death == DEATH_OF_MAKER)
        return failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, 0,
                            "the actor is dead: the actor that made it has ended, and it with that");
    if (!a->failure) return failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, 0, "the actor is dead");
    return failure_ref(a->failure);
}

static void do_tell_dead(node *d, const registry_action *x)
{
    client *c = daemon_client(d, x->client);

    if (!c) return;
    failure *f = failure_of(registry_find_actor(d->registry, x->id));
    proto_begin(&d->out, PROTO_ACTOR_DEAD);
    wire_put_u64(&d->out, x->id);
    failure_put(&d->out, f);
    failure_unref(f);
    daemon_send(d, c);
}

static void do_tell_at(node *d, const registry_action *x)
{
    const registry_actor *a = registry_find_actor(d->registry, x->id);
    client *c = daemon_client(d, x->client), *w = daemon_client(d, x->worker);

    if (!a || !c || !w) return; /* the end of one of them is on the way */
    if (c != w && !daemon_connect(d, c, w)) {
        if (!c->ended && !w->ended) daemon_refuse_actor(d, a->id, manta_error_text());
        return;
    }
    proto_begin(&d->out, PROTO_ACTOR_AT);
    wire_put_u64(&d->out, a->id);
    wire_put_u32(&d->out, w->id);
    wire_put_u32(&d->out, (uint32_t)w->pid);
    wire_put_u32(&d->out, (uint32_t)a->retries);
    wire_put_u32(&d->out, (uint32_t)a->most_pending);
    wire_put_u32(&d->out, a->flags);
    daemon_send(d, c);
}

static void do_construct(node *d, const registry_action *x)
{
    const registry_actor *a = registry_find_actor(d->registry, x->id);
    client *w = daemon_client(d, x->worker);

    if (!a || !w) return;
    proto_begin(&d->out, PROTO_CONSTRUCT);
    wire_put_u64(&d->out, a->id);
    wire_put_u32(&d->out, (uint32_t)a->concurrency);
    wire_put_bytes(&d->out, a->call.at, a->call.n);
    daemon_send(d, w);
}

static void do_place(node *d, const registry_action *x)
{
    const registry_actor *a = registry_find_actor(d->registry, x->id);
    int missing;

    if (!a || (!a->shape.group && !sched_feasible(&d->config.total, &a->shape, &missing)))
        return; /* it waits for what the node does not have: its maker wants that (wait_infeasible) */
    daemon_act(d,
               (sched_event){.kind = SCHED_ACTOR, .client = a->id, .job = a->job, .shape = a->shape, .n = 1});
}

void daemon_answer_found(node *d, client *c, uint64_t request, manta_status st, uint64_t id)
{
    proto_begin(&d->out, PROTO_FOUND);
    wire_put_u64(&d->out, request);
    wire_put_u32(&d->out, (uint32_t)st);
    wire_put_u64(&d->out, id);
    wire_put_text(&d->out, st ? manta_error_text() : "");
    daemon_send(d, c);
}

/* The sentence of a failure is found by what was asked; a group that cannot be made has
 * been told why already (daemon_groups.c). */
static void do_answer(node *d, const registry_event *e, const registry_action *x)
{
    client *c = daemon_client(d, x->client);

    if (!c) return;
    if (x->status == MANTA_ENOENT && e->kind == REGISTRY_ACTOR_FIND)
        (void)!manta_fail(MANTA_ENOENT, "no actor is called %s", e->name);
    if (x->status == MANTA_EEXIST && e->kind == REGISTRY_ACTOR_NEW)
        (void)!manta_fail(MANTA_EEXIST, "an actor is called %s already", e->name);
    if (x->status == MANTA_EEXIST && e->kind == REGISTRY_GROUP_NEW)
        (void)!manta_fail(MANTA_EEXIST, "a placement group is called %s already", e->name);
    daemon_answer_found(d, c, x->request, x->status, x->id);
}

static void do_exit(node *d, const registry_action *x)
{
    client *w = daemon_client(d, x->worker);

    if (!w) return;
    proto_begin(&d->out, PROTO_EXIT);
    daemon_send(d, w);
}

bool daemon_actors_action(node *d, const registry_event *e, const registry_action *a)
{
    switch (a->kind) {
    case REGISTRY_DO_PLACE: do_place(d, a); return true;
    case REGISTRY_DO_UNPLACE:
        daemon_act(d, (sched_event){.kind = SCHED_ACTOR_CANCEL, .client = a->id});
        return true;
    case REGISTRY_DO_CONSTRUCT: do_construct(d, a); return true;
    case REGISTRY_DO_EXIT: do_exit(d, a); return true;
    case REGISTRY_DO_KILL: daemon_kill(d, a->worker); return true;
    case REGISTRY_DO_TELL_AT: do_tell_at(d, a); return true;
    case REGISTRY_DO_TELL_DEAD: do_tell_dead(d, a); return true;
    case REGISTRY_DO_ANSWER: do_answer(d, e, a); return true;
    default: return false;
    }
}

/* ---- what happens to actors ---- */

void daemon_place_actor(node *d, const sched_action *x)
{
    /* A worker that dies now is no exception: its end is told to the scheduler and to the registry
     * together, and the registry then places the actor again. */
    daemon_registry(d, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = x->client, .worker = x->worker});
}

void daemon_actor_lost(node *d, const client *w)
{
    char why[96];
    registry_event e = {.kind = REGISTRY_WORKER_GONE, .worker = w->id};

    if (registry_actor_in(d->registry, w->id)) {
        e.failure = w->memory.why ? failure_memory(NULL, (int)w->pid, &w->memory)
                                  : failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, (int)w->pid,
                                                 "the actor is dead: process %d %s", (int)w->pid,
                                                 spawn_status_text(w->status, why, sizeof why));
    }
    daemon_registry(d, e);
}

void daemon_refuse_actor(node *d, uint64_t id, const char *why)
{
    const registry_actor *a = registry_find_actor(d->registry, id);

    if (!a) return;
    daemon_registry(
        d, (registry_event){.kind = REGISTRY_ACTOR_REFUSED,
                            .id = id,
                            .failure = failure_make(MANTA_FAILURE_ACTOR, MANTA_ENOSPC, a->function, 0,
                                                    "the actor %s cannot be started: %s", a->function, why)});
}

/* ---- messages ---- */

/* The constructor's name, out of the call that is kept for restarts. */
static void read_function(const void *call, size_t n, char function[64])
{
    wire w = wire_of(call, n);
    call_head h;

    (void)proto_kind_of(&w);
    call_head_take(&w, &h);
    wire_text(&w, function, 64);
    if (w.broken) function[0] = 0;
}

static void on_actor_new(node *d, const client *c, wire *w)
{
    char name[PROTO_NAME], function[64];
    registry_event e = {.kind = REGISTRY_ACTOR_NEW, .client = c->id, .job = c->job};

    e.request = wire_u64(w);
    e.id = wire_u64(w);
    e.flags = wire_u32(w);
    e.restarts = (int)wire_u32(w);
    e.retries = (int)wire_u32(w);
    e.concurrency = (int)wire_u32(w);
    e.most_pending = (int)wire_u32(w);
    e.shape = daemon_take_shape(w);
    wire_text(w, name, sizeof name);
    e.call = wire_bytes(w, &e.n_call);
    e.n_inner = wire_u64(w);
    e.inner = e.n_inner < SOCKET_MAX_MESSAGE / 8 ? wire_take(w, (size_t)e.n_inner * 8) : NULL;
    if (!e.inner || wire_end(w, "actor") || !daemon_has_environment(d, c->job, e.shape.environment)) return;
    read_function(e.call, e.n_call, function);
    e.name = name;
    e.function = function;
    daemon_registry(d, e);
}

static void on_actor_want(node *d, const client *c, wire *w)
{
    uint64_t id = wire_u64(w);

    if (wire_end(w, "actor")) return;
    registry_event want = {.kind = REGISTRY_ACTOR_WANT, .client = c->id, .id = id};
    if (registry_find_actor(d->registry, id)) {
        daemon_registry(d, want);
        return;
    }
    /* Its maker has told us of it before anybody could want it, over another connection:
     * what all have said is read before the actor is said to be none. */
    vec_push(&d->wants, want);
    if (d->is_looking) return;
    d->is_looking = true;
    daemon_drain_all(d);
    d->is_looking = false;
    for (size_t i = 0; i < d->wants.n; i++) daemon_registry(d, d->wants.at[i]);
    vec_clear(&d->wants);
}

static void on_actor_find(node *d, const client *c, wire *w)
{
    char name[PROTO_NAME];
    uint64_t request = wire_u64(w);

    wire_text(w, name, sizeof name);
    if (wire_end(w, "actor")) return;
    daemon_registry(
        d, (registry_event){.kind = REGISTRY_ACTOR_FIND, .client = c->id, .request = request, .name = name});
}

static void on_actor_kill(node *d, wire *w)
{
    uint64_t id = wire_u64(w);
    uint32_t how = wire_u32(w);
    const registry_actor *a = registry_find_actor(d->registry, id);

    if (wire_end(w, "actor") || !a) return;
    const client *c = daemon_client(d, a->worker);
    const char *what = how == PROTO_KILL        ? "the actor was killed"
                       : how == PROTO_KILL_EXIT ? "the actor has ended: it has called manta_exit_actor()"
                                                : "the actor has ended";
    daemon_registry(d, (registry_event){.kind = REGISTRY_ACTOR_KILL,
                                        .id = id,
                                        .how = how == PROTO_KILL_EXIT ? PROTO_KILL_END : how,
                                        .failure = failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL,
                                                                c ? (int)c->pid : 0, "%s", what)});
}

static void on_actor_up(node *d, const client *c, wire *w, bool failed)
{
    registry_event e = {.kind = failed ? REGISTRY_ACTOR_FAILED : REGISTRY_ACTOR_UP, .worker = c->id};

    e.id = wire_u64(w);
    if (failed) e.failure = failure_take(w);
    if (wire_end(w, "actor"))
        failure_unref(e.failure);
    else
        daemon_registry(d, e);
}

bool daemon_actors_message(node *d, client *c, proto_kind kind, wire *w)
{
    switch (kind) {
    case PROTO_ACTOR_NEW: on_actor_new(d, c, w); return true;
    case PROTO_ACTOR_WANT: on_actor_want(d, c, w); return true;
    case PROTO_ACTOR_FIND: on_actor_find(d, c, w); return true;
    case PROTO_ACTOR_UP: on_actor_up(d, c, w, false); return true;
    case PROTO_ACTOR_FAILED: on_actor_up(d, c, w, true); return true;
    case PROTO_ACTOR_KILL: on_actor_kill(d, w); return true;
    default: return false;
    }
}
