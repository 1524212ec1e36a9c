/* daemon_actors.c - where actors live, and what becomes of them when their
 * process or their last handle goes. */
#include "task/daemon.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "os/spawn.h"

static actor *find_actor(node *d, uint64_t id)
{
    actor **a = map_u64_find(&d->actors, id);
    return a ? *a : NULL;
}

static void forget_name(node *d, actor *a)
{
    if (a->name[0]) map_remove(&d->names, a->name);
    a->name[0] = 0;
}

static void actor_place(node *d, actor *a)
{
    a->state = ACTOR_WAITING;
    a->worker = 0;
    daemon_act(d,
               (sched_event){.kind = SCHED_ACTOR, .client = a->id, .job = a->job, .shape = a->shape, .n = 1});
}

/* Tells one client where the actor is, or that it is no more. */
static void tell_actor(node *d, actor *a, client *c)
{
    client *w = daemon_client(d, a->worker);
    /* Callers that do not wait for a restart are told when it is over. */
    if (a->state == ACTOR_STARTING && a->restarted > 0 && (a->flags & PROTO_ACTOR_AWAY)) return;
    if (a->state == ACTOR_DEAD) {
        proto_begin(&d->out, PROTO_ACTOR_DEAD);
        wire_put_u64(&d->out, a->id);
        failure_put(&d->out, &a->failure);
        daemon_send(d, c);
    } else if (w && c != w && !daemon_connect(d, c, w)) {
        if (!c->ended && !w->ended) daemon_refuse_actor(d, a->id, manta_error_text());
    } else if (w) {
        proto_begin(&d->out, PROTO_ACTOR_AT);
        wire_put_u64(&d->out, a->id);
        wire_put_u32(&d->out, w->id);
        wire_put_u32(&d->out, (uint32_t)w->pid);
        wire_put_u32(&d->out, (uint32_t)a->retries);
        wire_put_u32(&d->out, (uint32_t)a->most_pending);
        wire_put_u32(&d->out, a->flags);
        daemon_send(d, c);
    }
}

static void tell_wanters(node *d, actor *a)
{
    for (size_t i = 0; i < a->wanters.n; i++) {
        client *c = daemon_client(d, a->wanters.at[i]);
        if (c) tell_actor(d, a, c);
    }
}

static void actor_dead(node *d, actor *a, const manta_failure *f)
{
    if (a->state == ACTOR_DEAD) return;
    daemon_act(d, (sched_event){.kind = SCHED_ACTOR_CANCEL, .client = a->id});
    a->state = ACTOR_DEAD;
    a->failure = *f;
    forget_name(d, a);
    if (a->detached) daemon_refs(d, REFS_DROP, a->id, 0, 0);
    a->detached = false;
    tell_wanters(d, a);
    daemon_kill(d, a->worker);
    a->worker = 0;
}

/* The worker finishes its calls and leaves. */
void daemon_end_actor(node *d, actor *a)
{
    client *w = daemon_client(d, a->worker);
    daemon_act(d, (sched_event){.kind = SCHED_ACTOR_CANCEL, .client = a->id});
    const job *j = daemon_job(d, a->job);
    forget_name(d, a);
    if (w && j && j->driver) {
        w->actor = 0;
        proto_begin(&d->out, PROTO_EXIT);
        daemon_send(d, w);
    } else if (w) { /* nobody awaits what it does any more */
        w->actor = 0;
        daemon_kill(d, w->id);
    }
    map_u64_remove(&d->actors, a->id);
    buf_release(&a->call);
    vec_release(&a->wanters);
    mem_free(a);
}

void daemon_place_actor(node *d, const sched_action *x)
{
    actor *a = find_actor(d, x->client);
    client *w = daemon_client(d, x->worker);
    if (!w || w->ended) return; /* its end is on the way, and will place the actor again */
    if (!a) {
        daemon_kill(d, w->id);
        return;
    }
    a->worker = w->id;
    a->state = ACTOR_STARTING;
    w->actor = a->id;
    proto_begin(&d->out, PROTO_CONSTRUCT);
    wire_put_u64(&d->out, a->id);
    wire_put_u32(&d->out, (uint32_t)a->concurrency);
    wire_put_bytes(&d->out, a->call.at, a->call.n);
    daemon_send(d, w);
    tell_wanters(d, a);
}

static void answer_found(node *d, client *c, uint64_t request, manta_status st, uint64_t id)
{
    proto_begin(&d->out, PROTO_FOUND);
    wire_put_u64(&d->out, request);
    wire_put_u32(&d->out, (uint32_t)st);
    wire_put_u64(&d->out, id);
    wire_put_text(&d->out, st ? manta_error_text() : "");
    daemon_send(d, c);
}

/* The constructor's name, out of the call that is kept for restarts. */
static void name_function(actor *a, const void *call, size_t n)
{
    wire w = wire_of(call, n);
    char name[64];
    (void)proto_kind_of(&w);
    (void)wire_u64(&w);
    (void)wire_u64(&w);
    (void)wire_u32(&w);
    (void)wire_u32(&w);
    wire_text(&w, name, sizeof name);
    if (!w.broken) memcpy(a->function, name, sizeof a->function - 1);
}

static void on_actor_new(node *d, client *c, wire *w)
{
    char name[PROTO_NAME];
    uint64_t request = wire_u64(w), id = wire_u64(w);
    uint32_t flags = wire_u32(w);
    int restarts = (int)wire_u32(w), retries = (int)wire_u32(w);
    int concurrency = (int)wire_u32(w), most_pending = (int)wire_u32(w);
    sched_shape shape = daemon_take_shape(w);
    size_t n_call;
    wire_text(w, name, sizeof name);
    const void *call = wire_bytes(w, &n_call);
    uint64_t n = wire_u64(w);
    const void *inner = n < SOCKET_MAX_MESSAGE / 8 ? wire_take(w, (size_t)n * 8) : NULL;
    if (!inner || wire_end(w, "actor")) return;
    uint64_t *taken = name[0] ? map_find(&d->names, name) : NULL;
    if (taken) {
        bool get = flags & PROTO_ACTOR_GET;
        manta_status st = get ? MANTA_OK : manta_fail(MANTA_EEXIST, "an actor is called %s already", name);
        if (get) daemon_refs(d, REFS_HOLD, *taken, 0, c->id);
        answer_found(d, c, request, st, *taken);
        return;
    }
    actor *a = mem_new(sizeof *a);
    *a = (actor){.id = id,
                 .job = c->job,
                 .restarts = restarts,
                 .retries = retries,
                 .concurrency = concurrency,
                 .most_pending = most_pending,
                 .shape = shape,
                 .flags = flags,
                 .detached = flags & PROTO_ACTOR_DETACHED};
    memcpy(a->name, name, sizeof name);
    name_function(a, call, n_call);
    buf_add(&a->call, call, n_call);
    *map_u64_put(&d->actors, id) = a;
    daemon_refs(d, REFS_ADD, id, 0, c->id);
    daemon_refs(d, REFS_HOLD, id, 0, c->id);
    if (a->detached) daemon_refs(d, REFS_HOLD, id, 0, 0);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, (const char *)inner + i * 8, 8);
        daemon_refs(d, REFS_CONTAIN, id, x, 0);
    }
    if (name[0]) *map_put(&d->names, name) = id;
    if (request) answer_found(d, c, request, MANTA_OK, id);
    actor_place(d, a);
}

static void on_actor_want(node *d, client *c, wire *w)
{
    uint64_t id = wire_u64(w);
    if (wire_end(w, "actor")) return;
    actor *a = find_actor(d, id);
    if (!a) {
        manta_failure f =
            failure_make(MANTA_FAILURE_ACTOR, MANTA_ENOENT, NULL, 0, "there is no such actor any more");
        proto_begin(&d->out, PROTO_ACTOR_DEAD);
        wire_put_u64(&d->out, id);
        failure_put(&d->out, &f);
        daemon_send(d, c);
        return;
    }
    bool known = false;
    for (size_t i = 0; i < a->wanters.n; i++) known = known || a->wanters.at[i] == c->id;
    if (!known) vec_push(&a->wanters, c->id);
    tell_actor(d, a, c);
}

static void on_actor_find(node *d, client *c, wire *w)
{
    char name[PROTO_NAME];
    uint64_t request = wire_u64(w);
    wire_text(w, name, sizeof name);
    if (wire_end(w, "actor")) return;
    uint64_t *id = map_find(&d->names, name);
    if (id) daemon_refs(d, REFS_HOLD, *id, 0, c->id);
    answer_found(d, c, request, id ? MANTA_OK : manta_fail(MANTA_ENOENT, "no actor is called %s", name),
                 id ? *id : 0);
}

static void on_actor_kill(node *d, wire *w)
{
    uint64_t id = wire_u64(w);
    uint32_t how = wire_u32(w);
    actor *a = find_actor(d, id);
    if (wire_end(w, "actor") || !a) return;
    client *c = daemon_client(d, a->worker);
    if (how == PROTO_KILL_RESTART) {
        daemon_kill(d, a->worker);
        return;
    }
    manta_failure f = failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, c ? (int)c->pid : 0,
                                   how == PROTO_KILL ? "the actor was killed" : "the actor has ended");
    if (how == PROTO_KILL_END && c && a->state != ACTOR_DEAD) {
        a->worker = 0; /* so that it is not killed */
        c->actor = 0;
        proto_begin(&d->out, PROTO_EXIT);
        daemon_send(d, c);
    }
    actor_dead(d, a, &f);
    daemon_refs(d, REFS_HOLD, id, 0, c ? c->id : 0); /* a no-op pair: makes it a candidate again */
    daemon_refs(d, REFS_DROP, id, 0, c ? c->id : 0);
}

static void on_actor_up(node *d, client *c, wire *w, bool failed)
{
    manta_failure f;
    uint64_t id = wire_u64(w);
    if (failed) failure_take(w, &f);
    if (wire_end(w, "actor")) return;
    actor *a = find_actor(d, id);
    if (!a || a->worker != c->id) return;
    if (failed)
        actor_dead(d, a, &f);
    else if (a->state == ACTOR_STARTING) {
        a->state = ACTOR_ALIVE;
        if (a->flags & PROTO_ACTOR_AWAY) tell_wanters(d, a);
    }
}

void daemon_actor_lost(node *d, client *w)
{
    actor *a = find_actor(d, w->actor);
    char why[96];
    if (!a || a->worker != w->id || a->state == ACTOR_DEAD) return;
    if (a->restarts != 0 && daemon_job(d, a->job)) {
        if (a->restarts > 0) a->restarts--;
        a->restarted++;
        actor_place(d, a);
        return;
    }
    manta_failure f =
        failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, (int)w->pid, "the actor is dead: process %d %s",
                     (int)w->pid, spawn_status_text(w->status, why, sizeof why));
    if (w->memory.why) f = failure_memory(NULL, (int)w->pid, &w->memory);
    actor_dead(d, a, &f);
}

void daemon_refuse_actor(node *d, uint64_t id, const char *why)
{
    actor *a = find_actor(d, id);
    if (!a) return;
    manta_failure f = failure_make(MANTA_FAILURE_ACTOR, MANTA_ENOSPC, a->function, 0,
                                   "the actor %s cannot be started: %s", a->function, why);
    actor_dead(d, a, &f);
}

void daemon_end_actors_of(node *d, uint64_t group, const manta_failure *f)
{
    for (size_t i = 0; i < d->actors.n; i++)
        if (d->actors.at[i].value->shape.group == group) actor_dead(d, d->actors.at[i].value, f);
}

void daemon_job_actors_lost(node *d, uint32_t id)
{
    manta_failure f = failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, 0,
                                   "the actor is dead: the program it belongs to has ended");
    for (size_t i = 0; i < d->actors.n; i++)
        if (d->actors.at[i].value->job == id) actor_dead(d, d->actors.at[i].value, &f);
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
