/* daemon.c - the node daemon: places, watches, and holds the life of objects.
 *
 * One thread, one loop. It decides nothing itself: leases and workers are
 * sched.c's, references refs.c's; this file turns messages into their events
 * and their actions into messages. It is not on the path of a call.
 *
 * Rules that the rest relies on:
 *  1. It never waits for a client: what a client does not take at once is
 *     queued (client.outbox).
 *  2. It makes every shared memory itself and maps none.
 *  3. A client that is dead is drained (what it had sent is read) before
 *     anything is taken from it, and its end is told to its peers with the
 *     reason.
 *  4. Nothing is freed before one pass over all connections (refs.h). */
#include "task/node.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "net/loop.h"
#include "os/proc.h"
#include "os/shm.h"
#include "os/socket.h"
#include "os/spawn.h"
#include "os/sys.h"
#include "store/refs.h"
#include "task/proto.h"
#include "task/ring.h"
#include "task/value.h"

#define REAP_WAIT_NS   50000000 /* how long to wait for the reason of a death */
#define STATUS_UNKNOWN (-1)
#define MOST_STILLBORN 8 /* workers in a row that may die before they are ready */

typedef struct letter { /* a message that a client has not taken yet */
    buf bytes;
    int fds[SOCKET_MAX_FDS], n_fds;
} letter;

typedef struct client {
    uint32_t id;
    pid_t pid;
    int fd, pidfd, bell_fd;
    bool is_worker, dying, ended; /* its pidfd is readable; its end has been dealt with */
    bool is_ready; /* a worker that has started */
    bool blocked;
    int status;
    int64_t died_ns;
    uint64_t actor; /* that lives in this worker */
    VEC(letter) outbox;
    MAP_U64(char) peers; /* clients with which it shares a channel */
} client;

typedef struct segment {
    int fd;
    size_t size;
    uint32_t writer; /* 0: dead */
    int64_t objects;
    VEC(uint32_t) openers;
} segment;

typedef enum object_state { PROMISED, READY, BROKEN } object_state;

typedef struct object {
    object_state state;
    uint32_t maker;
    value v; /* its bytes, when small, are ours */
    manta_failure *failure;
    VEC(uint32_t) wanters;
} object;

typedef enum actor_state { ACTOR_WAITING, ACTOR_STARTING, ACTOR_ALIVE, ACTOR_DEAD } actor_state;

typedef struct actor {
    uint64_t id;
    actor_state state;
    char name[64];
    bool detached, ending;
    int restarts, retries; /* left; calls under way when it dies */
    int concurrency, most_pending;
    sched_shape shape;
    buf call; /* of the constructor */
    uint32_t worker;
    manta_failure failure;
    VEC(uint32_t) wanters;
} actor;

typedef struct node {
    node_config config;
    loop *loop;
    sched *sched;
    refs_book *refs;
    buf out; /* the message being written */
    char *in; /* the message being read */
    pid_t driver, keeper, zygote;
    int keeper_pidfd, zygote_fd, zygote_pidfd, self_pidfd;
    int forks; /* asked of the zygote and not yet answered */
    int stillborn; /* workers in a row that died before they were ready */
    uint32_t next_client;
    uint64_t next_segment, store_used;
    MAP_U64(client *) clients;
    MAP_U64(segment *) segments;
    MAP_U64(object *) objects;
    VEC(uint64_t) unknown; /* wanted, and nobody has said yet that it makes them */
    MAP_U64(actor *) actors;
    MAP(uint64_t) names;
    bool stop;
} node;

static void act(node *d, sched_event e);
static void kill_client(node *d, uint32_t id);

/* ---- sending ---- */

static void on_client(void *ctx, int fd, bool readable, bool writable);

static client *find_client(node *d, uint32_t id)
{
    client **c = map_u64_find(&d->clients, id);
    return c ? *c : NULL;
}

/* Sends d->out; the descriptors stay ours. */
static void send_fds(node *d, client *c, const int *fds, int n_fds)
{
    manta_status st = MANTA_EBUSY;
    if (c->fd < 0) return;
    if (c->outbox.n == 0) st = socket_send(c->fd, d->out.at, d->out.n, fds, n_fds, false);
    if (st != MANTA_EBUSY) return; /* sent, or it is dead, which its pidfd tells */
    letter l = {.n_fds = 0};
    buf_add(&l.bytes, d->out.at, d->out.n);
    for (int i = 0; i < n_fds; i++) {
        int copy = dup(fds[i]);
        if (copy >= 0) l.fds[l.n_fds++] = copy;
    }
    vec_push(&c->outbox, l);
    if (loop_watch(d->loop, c->fd, true, on_client, d)) log_error("a client cannot be written to");
}

static void send_to(node *d, client *c)
{
    send_fds(d, c, NULL, 0);
}

static void letter_release(letter *l)
{
    buf_release(&l->bytes);
    socket_close_all(l->fds, l->n_fds);
}

static void flush_outbox(node *d, client *c)
{
    while (c->outbox.n > 0) {
        letter *l = &c->outbox.at[0];
        manta_status st = socket_send(c->fd, l->bytes.at, l->bytes.n, l->fds, l->n_fds, false);
        if (st == MANTA_EBUSY) return;
        letter_release(l);
        vec_remove(&c->outbox, 0);
    }
    if (loop_watch(d->loop, c->fd, false, on_client, d)) log_error("a client cannot be watched");
}

/* ---- segments ---- */

static void segment_drop(node *d, uint64_t id)
{
    segment **p = map_u64_find(&d->segments, id), *g = p ? *p : NULL;
    if (!g) return;
    proto_begin(&d->out, PROTO_SEGMENT_GONE);
    wire_put_u64(&d->out, id);
    for (size_t i = 0; i < g->openers.n; i++) {
        client *c = find_client(d, g->openers.at[i]);
        if (c) send_to(d, c);
    }
    d->store_used -= g->size;
    close(g->fd);
    vec_release(&g->openers);
    mem_free(g);
    map_u64_remove(&d->segments, id);
}

static void answer_segment(node *d, client *c, uint64_t request, manta_status st, uint64_t id, int fd)
{
    proto_begin(&d->out, PROTO_SEGMENT);
    wire_put_u64(&d->out, request);
    wire_put_u32(&d->out, (uint32_t)st);
    wire_put_u64(&d->out, id);
    wire_put_text(&d->out, st ? manta_error_text() : "");
    send_fds(d, c, &fd, fd >= 0 ? 1 : 0);
}

static void on_segment_new(node *d, client *c, wire *w)
{
    uint64_t request = wire_u64(w), size = wire_u64(w);
    manta_status st = MANTA_OK;
    int fd = -1;
    if (wire_end(w, "segment")) return;
    if (size == 0 || size > d->config.store_limit || size > d->config.store_limit - d->store_used)
        st = manta_fail(MANTA_ENOSPC, "the store is full: %llu of %llu bytes are taken, %llu more are wanted",
                        (unsigned long long)d->store_used, (unsigned long long)d->config.store_limit,
                        (unsigned long long)size);
    if (!st) st = shm_new("manta-segment", shm_round(size), &fd);
    uint64_t id = st ? 0 : ++d->next_segment;
    answer_segment(d, c, request, st, id, fd);
    if (st) return;
    segment *g = mem_new(sizeof *g);
    *g = (segment){.fd = fd, .size = shm_round(size), .writer = c->id};
    d->store_used += g->size;
    *map_u64_put(&d->segments, id) = g;
}

static void on_segment_open(node *d, client *c, wire *w)
{
    uint64_t request = wire_u64(w), id = wire_u64(w);
    segment **g = map_u64_find(&d->segments, id);
    manta_status st = MANTA_OK;
    if (wire_end(w, "segment")) return;
    if (!g) st = manta_fail(MANTA_ENOENT, "segment %llu is gone", (unsigned long long)id);
    /* The writer seals when it has mapped; one that did not yet is made to. */
    if (!st && !shm_is_sealed((*g)->fd)) st = shm_seal_writes((*g)->fd);
    if (!st) vec_push(&(*g)->openers, c->id);
    answer_segment(d, c, request, st, id, st ? -1 : (*g)->fd);
}

/* ---- objects ---- */

static object *object_put(node *d, uint64_t id)
{
    object **p = map_u64_put(&d->objects, id);
    if (!*p) *p = mem_new(sizeof(object));
    return *p;
}

static void tell_object(node *d, uint64_t id, const object *o, client *c)
{
    if (o->state == READY) {
        proto_begin(&d->out, PROTO_OBJECT);
        wire_put_u64(&d->out, id);
        value_put(&d->out, &o->v);
    } else {
        proto_begin(&d->out, PROTO_OBJECT_FAILED);
        wire_put_u64(&d->out, id);
        failure_put(&d->out, o->failure);
    }
    send_to(d, c);
}

static void object_settled(node *d, uint64_t id, object *o)
{
    for (size_t i = 0; i < o->wanters.n; i++) {
        client *c = find_client(d, o->wanters.at[i]);
        if (c) tell_object(d, id, o, c);
    }
    vec_release(&o->wanters);
}

static void object_break(node *d, uint64_t id, object *o, const manta_failure *f)
{
    if (o->state != PROMISED) return;
    o->state = BROKEN;
    o->failure = mem_new(sizeof *f);
    *o->failure = *f;
    object_settled(d, id, o);
}

static void refs_do(node *d, refs_kind kind, uint64_t object_id, uint64_t inner, uint32_t who)
{
    refs_actions none = {0};
    refs_step(d->refs, (refs_event){.kind = kind, .object = object_id, .inner = inner, .client = who}, &none);
    vec_release(&none);
}

static void on_add(node *d, client *c, wire *w)
{
    uint64_t id = wire_u64(w);
    uint32_t holder = wire_u32(w);
    value v;
    value_take(w, &v);
    uint64_t n = wire_u64(w);
    const void *inner = n < SOCKET_MAX_MESSAGE / 8 ? wire_take(w, (size_t)n * 8) : NULL;
    if (!inner || wire_end(w, "object")) return;
    object *o = object_put(d, id);
    if (o->state != PROMISED) return; /* said twice */
    o->maker = c->id;
    o->state = READY;
    o->v = v;
    if (v.place.segment) {
        segment **g = map_u64_find(&d->segments, v.place.segment);
        if (g) (*g)->objects++;
    } else if (v.at && v.size > 0) {
        void *copy = mem_new((size_t)v.size);
        memcpy(copy, v.at, (size_t)v.size);
        o->v.at = copy;
    }
    refs_do(d, REFS_ADD, id, 0, c->id);
    if (holder) refs_do(d, REFS_HOLD, id, 0, holder);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, (const char *)inner + i * 8, 8);
        refs_do(d, REFS_CONTAIN, id, x, 0);
    }
    object_settled(d, id, o);
}

static void on_promise(node *d, client *c, wire *w)
{
    uint64_t id = wire_u64(w);
    if (wire_end(w, "promise")) return;
    object *o = object_put(d, id);
    if (o->maker) return;
    o->maker = c->id;
    refs_do(d, REFS_ADD, id, 0, c->id);
    refs_do(d, REFS_HOLD, id, 0, c->id);
}

static void on_fail(node *d, wire *w)
{
    manta_failure f;
    uint64_t id = wire_u64(w);
    failure_take(w, &f);
    if (wire_end(w, "failure")) return;
    object_break(d, id, object_put(d, id), &f);
}

static void on_counts(node *d, wire *w, refs_kind kind, uint32_t who)
{
    uint64_t n = wire_u64(w);
    const void *ids = n < SOCKET_MAX_MESSAGE / 8 ? wire_take(w, (size_t)n * 8) : NULL;
    if (!ids || wire_end(w, "counts")) return;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, (const char *)ids + i * 8, 8);
        refs_do(d, kind, x, 0, who);
    }
}

static void on_want(node *d, client *c, wire *w)
{
    uint64_t id = wire_u64(w);
    if (wire_end(w, "want")) return;
    object *o = object_put(d, id);
    if (o->state != PROMISED) {
        tell_object(d, id, o, c);
        return;
    }
    vec_push(&o->wanters, c->id);
    if (!o->maker) vec_push(&d->unknown, id);
}

static void actor_end(node *d, actor *a);

/* Nobody holds the object any more. */
static void object_free(node *d, refs_freed f)
{
    actor **a = map_u64_find(&d->actors, f.object);
    object **p = map_u64_find(&d->objects, f.object), *o = p ? *p : NULL;
    if (a) actor_end(d, *a);
    if (!o) return;
    if (o->state == PROMISED && o->wanters.n > 0) {
        manta_failure lost = failure_make(MANTA_FAILED_LOST, MANTA_ENOENT, NULL, 0, "the object is released");
        object_break(d, f.object, o, &lost);
    }
    if (o->state == READY && o->v.place.segment) {
        segment **g = map_u64_find(&d->segments, o->v.place.segment);
        client *maker = find_client(d, o->maker);
        if (maker) {
            proto_begin(&d->out, PROTO_FREE);
            wire_put_u64(&d->out, f.object);
            send_to(d, maker);
        }
        if (g && --(*g)->objects == 0 && !(*g)->writer) segment_drop(d, o->v.place.segment);
    } else if (o->state == READY) {
        mem_free((void *)(uintptr_t)o->v.at);
    }
    mem_free(o->failure);
    vec_release(&o->wanters);
    mem_free(o);
    map_u64_remove(&d->objects, f.object);
}

static void drain_all(node *d);

/* Frees what nobody holds, and answers those who wait for what nobody makes,
 * after one pass over all connections. */
static void settle(node *d)
{
    refs_actions freed = {0};
    VEC(uint64_t) unknown = {.at = d->unknown.at, .n = d->unknown.n, .cap = d->unknown.cap};
    d->unknown.at = NULL;
    d->unknown.n = d->unknown.cap = 0;
    if (refs_has_candidates(d->refs) || unknown.n > 0) {
        drain_all(d);
        refs_step(d->refs, (refs_event){.kind = REFS_SETTLE}, &freed);
    }
    for (size_t i = 0; i < freed.n; i++) object_free(d, freed.at[i]);
    for (size_t i = 0; i < unknown.n; i++) {
        object **o = map_u64_find(&d->objects, unknown.at[i]);
        if (!o || (*o)->maker || (*o)->state != PROMISED) continue;
        manta_failure lost = failure_make(MANTA_FAILED_LOST, MANTA_ENOENT, NULL, 0,
                                          "no object of that number exists any more");
        object_break(d, unknown.at[i], *o, &lost);
        object_free(d, (refs_freed){.object = unknown.at[i]});
    }
    vec_release(&freed);
    vec_release(&unknown);
}

/* ---- channels and leases ---- */

/* A worker could not start, or not be reached. After some in a row the next
 * would fare no better, and calls would wait for ever. */
static void note_stillborn(node *d)
{
    if (++d->stillborn < MOST_STILLBORN) return;
    log_error("workers cannot start: the node ends");
    d->stop = true;
}

/* Gives both clients a channel to each other, once. */
static bool connect_clients(node *d, client *a, client *b)
{
    int fd;
    if (a == b || a->ended || b->ended) return false;
    if (map_u64_find(&a->peers, b->id)) return true;
    if (shm_new("manta-channel", channel_size(), &fd)) {
        log_error("no channel", LOG_STR("why", manta_error_text()));
        note_stillborn(d);
        return false;
    }
    client *ends[2] = {a, b};
    for (int side = 0; side < 2; side++) {
        client *to = ends[side], *peer = ends[!side];
        proto_begin(&d->out, PROTO_PEER);
        wire_put_u32(&d->out, peer->id);
        wire_put_u32(&d->out, (uint32_t)peer->pid);
        wire_put_u32(&d->out, (uint32_t)side);
        send_fds(d, to, (int[]){fd, peer->bell_fd, peer->pidfd}, 3);
        *map_u64_put(&to->peers, peer->id) = 1;
    }
    close(fd);
    return true;
}

static void put_shape(buf *b, const sched_shape *s)
{
    buf_add(b, s->amount, sizeof s->amount);
}

static sched_shape take_shape(wire *w)
{
    sched_shape s = {0};
    const void *p = wire_take(w, sizeof s.amount);
    if (p) memcpy(s.amount, p, sizeof s.amount);
    for (int i = 0; i < SCHED_RESOURCES; i++)
        if (s.amount[i] < 0) s.amount[i] = 0;
    return s;
}

static void do_grant(node *d, const sched_action *a)
{
    client *c = find_client(d, (uint32_t)a->client), *w = find_client(d, a->worker);
    bool reached = c && w && connect_clients(d, c, w);
    if (c) { /* one that cannot be reached is a worker the client does not know: it asks again */
        proto_begin(&d->out, PROTO_GRANT);
        wire_put_u32(&d->out, reached ? a->worker : 0);
        put_shape(&d->out, &a->shape);
        send_to(d, c);
    }
    if (!reached) act(d, (sched_event){.kind = SCHED_RETURN, .client = a->client, .worker = a->worker});
}

static void ask_fork(node *d)
{
    proto_begin(&d->out, PROTO_FORK);
    d->forks++;
    /* A zygote that is dead is replaced, and asked again for what is open. */
    if (d->zygote_fd >= 0 && socket_send(d->zygote_fd, d->out.at, d->out.n, NULL, 0, true)) return;
}

static void kill_client(node *d, uint32_t id)
{
    client *c = find_client(d, id);
    if (c) spawn_signal(c->pidfd, SIGKILL);
}

static void do_actor(node *d, const sched_action *a);

/* Applies an event to the scheduler and does what follows. */
static void act(node *d, sched_event e)
{
    sched_actions out = {0};
    sched_step(d->sched, &e, &out);
    for (size_t i = 0; i < out.n; i++) {
        const sched_action *a = &out.at[i];
        client *c;
        switch (a->kind) {
        case SCHED_DO_GRANT: do_grant(d, a); break;
        case SCHED_DO_ACTOR: do_actor(d, a); break;
        case SCHED_DO_START: ask_fork(d); break;
        case SCHED_DO_STOP:
        case SCHED_DO_KILL: kill_client(d, a->worker); break;
        case SCHED_DO_RECLAIM:
            if (!(c = find_client(d, (uint32_t)a->client))) break;
            proto_begin(&d->out, PROTO_RECLAIM);
            wire_put_u32(&d->out, a->worker);
            send_to(d, c);
            break;
        }
    }
    vec_release(&out);
}

/* ---- actors ---- */

static actor *find_actor(node *d, uint64_t id)
{
    actor **a = map_u64_find(&d->actors, id);
    return a ? *a : NULL;
}

static void actor_place(node *d, actor *a)
{
    a->state = ACTOR_WAITING;
    a->worker = 0;
    act(d, (sched_event){.kind = SCHED_ACTOR, .client = a->id, .shape = a->shape, .n = 1});
}

/* Tells one client where the actor is, or that it is no more. */
static void tell_actor(node *d, actor *a, client *c)
{
    client *w = find_client(d, a->worker);
    if (a->state == ACTOR_DEAD) {
        proto_begin(&d->out, PROTO_ACTOR_DEAD);
        wire_put_u64(&d->out, a->id);
        failure_put(&d->out, &a->failure);
        send_to(d, c);
    } else if (w && c != w && !connect_clients(d, c, w)) {
        if (!c->ended) kill_client(d, w->id); /* a death everyone knows how to deal with */
    } else if (w) {
        proto_begin(&d->out, PROTO_ACTOR_AT);
        wire_put_u64(&d->out, a->id);
        wire_put_u32(&d->out, w->id);
        wire_put_u32(&d->out, (uint32_t)w->pid);
        wire_put_u32(&d->out, (uint32_t)a->retries);
        wire_put_u32(&d->out, (uint32_t)a->most_pending);
        send_to(d, c);
    }
}

static void tell_wanters(node *d, actor *a)
{
    for (size_t i = 0; i < a->wanters.n; i++) {
        client *c = find_client(d, a->wanters.at[i]);
        if (c) tell_actor(d, a, c);
    }
}

static void actor_dead(node *d, actor *a, const manta_failure *f)
{
    if (a->state == ACTOR_DEAD) return;
    act(d, (sched_event){.kind = SCHED_ACTOR_CANCEL, .client = a->id});
    a->state = ACTOR_DEAD;
    a->failure = *f;
    if (a->name[0]) map_remove(&d->names, a->name);
    a->name[0] = 0;
    tell_wanters(d, a);
    kill_client(d, a->worker);
    a->worker = 0;
}

/* The last handle is gone: the worker finishes its calls and leaves. */
static void actor_end(node *d, actor *a)
{
    client *w = find_client(d, a->worker);
    act(d, (sched_event){.kind = SCHED_ACTOR_CANCEL, .client = a->id});
    if (a->name[0]) map_remove(&d->names, a->name);
    if (w) {
        w->actor = 0;
        proto_begin(&d->out, PROTO_EXIT);
        send_to(d, w);
    }
    map_u64_remove(&d->actors, a->id);
    buf_release(&a->call);
    vec_release(&a->wanters);
    mem_free(a);
}

static void do_actor(node *d, const sched_action *x)
{
    actor *a = find_actor(d, x->client);
    client *w = find_client(d, x->worker);
    if (!w || w->ended) return; /* its end is on the way, and will place the actor again */
    if (!a) {
        kill_client(d, w->id);
        return;
    }
    a->worker = w->id;
    a->state = ACTOR_STARTING;
    w->actor = a->id;
    proto_begin(&d->out, PROTO_CONSTRUCT);
    wire_put_u64(&d->out, a->id);
    wire_put_u32(&d->out, (uint32_t)a->concurrency);
    wire_put_bytes(&d->out, a->call.at, a->call.n);
    send_to(d, w);
    tell_wanters(d, a);
}

static void answer_found(node *d, client *c, uint64_t request, manta_status st, uint64_t id)
{
    proto_begin(&d->out, PROTO_FOUND);
    wire_put_u64(&d->out, request);
    wire_put_u32(&d->out, (uint32_t)st);
    wire_put_u64(&d->out, id);
    wire_put_text(&d->out, st ? manta_error_text() : "");
    send_to(d, c);
}

static void on_actor_new(node *d, client *c, wire *w)
{
    char name[64];
    uint64_t request = wire_u64(w), id = wire_u64(w);
    uint32_t flags = wire_u32(w);
    int restarts = (int)wire_u32(w), retries = (int)wire_u32(w);
    int concurrency = (int)wire_u32(w), most_pending = (int)wire_u32(w);
    sched_shape shape = take_shape(w);
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
        if (get) refs_do(d, REFS_HOLD, *taken, 0, c->id);
        answer_found(d, c, request, st, *taken);
        return;
    }
    actor *a = mem_new(sizeof *a);
    *a = (actor){.id = id,
                 .restarts = restarts,
                 .retries = retries,
                 .concurrency = concurrency,
                 .most_pending = most_pending,
                 .shape = shape,
                 .detached = flags & PROTO_ACTOR_DETACHED};
    memcpy(a->name, name, sizeof name);
    buf_add(&a->call, call, n_call);
    *map_u64_put(&d->actors, id) = a;
    refs_do(d, REFS_ADD, id, 0, c->id);
    refs_do(d, REFS_HOLD, id, 0, c->id);
    if (a->detached) refs_do(d, REFS_HOLD, id, 0, 0);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, (const char *)inner + i * 8, 8);
        refs_do(d, REFS_CONTAIN, id, x, 0);
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
            failure_make(MANTA_FAILED_ACTOR, MANTA_ENOENT, NULL, 0, "there is no such actor any more");
        proto_begin(&d->out, PROTO_ACTOR_DEAD);
        wire_put_u64(&d->out, id);
        failure_put(&d->out, &f);
        send_to(d, c);
        return;
    }
    bool known = false;
    for (size_t i = 0; i < a->wanters.n; i++) known = known || a->wanters.at[i] == c->id;
    if (!known) vec_push(&a->wanters, c->id);
    tell_actor(d, a, c);
}

static void on_actor_find(node *d, client *c, wire *w)
{
    char name[64];
    uint64_t request = wire_u64(w);
    wire_text(w, name, sizeof name);
    if (wire_end(w, "actor")) return;
    uint64_t *id = map_find(&d->names, name);
    if (id) refs_do(d, REFS_HOLD, *id, 0, c->id);
    answer_found(d, c, request, id ? MANTA_OK : manta_fail(MANTA_ENOENT, "no actor is called %s", name),
                 id ? *id : 0);
}

static void on_actor_kill(node *d, wire *w)
{
    uint64_t id = wire_u64(w);
    uint32_t no_restart = wire_u32(w);
    actor *a = find_actor(d, id);
    if (wire_end(w, "actor") || !a) return;
    if (no_restart) {
        client *c = find_client(d, a->worker);
        manta_failure f =
            failure_make(MANTA_FAILED_ACTOR, MANTA_EDIED, NULL, c ? (int)c->pid : 0, "the actor was killed");
        actor_dead(d, a, &f);
        refs_do(d, REFS_HOLD, id, 0, c ? c->id : 0); /* a no-op pair: makes it a candidate again */
        refs_do(d, REFS_DROP, id, 0, c ? c->id : 0);
    } else {
        kill_client(d, a->worker);
    }
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
    else if (a->state == ACTOR_STARTING)
        a->state = ACTOR_ALIVE;
}

/* An actor's process is dead. */
static void actor_lost(node *d, client *w)
{
    actor *a = find_actor(d, w->actor);
    char why[96];
    if (!a || a->worker != w->id || a->state == ACTOR_DEAD) return;
    if (a->restarts != 0) {
        if (a->restarts > 0) a->restarts--;
        actor_place(d, a);
        return;
    }
    manta_failure f =
        failure_make(MANTA_FAILED_ACTOR, MANTA_EDIED, NULL, (int)w->pid, "the actor is dead: process %d %s",
                     (int)w->pid, spawn_status_text(w->status, why, sizeof why));
    actor_dead(d, a, &f);
}

/* ---- the other requests ---- */

static void on_cancel(node *d, wire *w)
{
    uint32_t worker = wire_u32(w);
    uint64_t task = wire_u64(w);
    uint32_t force = wire_u32(w);
    client *c = find_client(d, worker);
    if (wire_end(w, "cancel") || !c || !c->is_worker) return;
    if (force) {
        kill_client(d, worker);
        return;
    }
    proto_begin(&d->out, PROTO_CANCEL_TASK);
    wire_put_u64(&d->out, task);
    send_to(d, c);
}

static void on_info(node *d, client *c, wire *w)
{
    uint64_t request = wire_u64(w);
    sched_shape total = sched_total(d->sched), left = sched_left(d->sched);
    uint32_t n = 0;
    if (wire_end(w, "info")) return;
    buf *b = proto_begin(&d->out, PROTO_INFO_IS);
    wire_put_u64(b, request);
    wire_put_u32(b, (uint32_t)getpid());
    wire_put_u32(b, (uint32_t)d->keeper);
    wire_put_u32(b, (uint32_t)d->zygote);
    put_shape(b, &total);
    put_shape(b, &left);
    wire_put_u32(b, (uint32_t)sched_workers(d->sched));
    wire_put_u32(b, (uint32_t)d->actors.n);
    wire_put_u32(b, (uint32_t)sched_leases(d->sched));
    wire_put_u64(b, d->objects.n);
    wire_put_u64(b, d->config.store_limit);
    wire_put_u64(b, d->store_used);
    for (size_t i = 0; i < d->clients.n; i++) n += d->clients.at[i].value->is_worker;
    wire_put_u32(b, n);
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->is_worker) wire_put_u32(b, (uint32_t)d->clients.at[i].value->pid);
    send_to(d, c);
}

static void on_message(node *d, client *c, wire *w)
{
    proto_kind kind = proto_kind_of(w);
    switch (kind) {
    case PROTO_DEMAND: {
        sched_shape shape = take_shape(w);
        int64_t n = wire_i64(w);
        if (!wire_end(w, "demand"))
            act(d, (sched_event){.kind = SCHED_DEMAND, .client = c->id, .shape = shape, .n = n});
        break;
    }
    case PROTO_RETURN: {
        uint32_t worker = wire_u32(w);
        if (!wire_end(w, "return"))
            act(d, (sched_event){.kind = SCHED_RETURN, .client = c->id, .worker = worker});
        break;
    }
    case PROTO_BLOCKED: {
        uint32_t on = wire_u32(w);
        if (!wire_end(w, "blocked"))
            act(d, (sched_event){.kind = on ? SCHED_BLOCKED : SCHED_RUNNING, .worker = c->id});
        break;
    }
    case PROTO_SEGMENT_NEW: on_segment_new(d, c, w); break;
    case PROTO_SEGMENT_OPEN: on_segment_open(d, c, w); break;
    case PROTO_SEGMENT_FREE: {
        uint64_t id = wire_u64(w);
        segment **g = map_u64_find(&d->segments, id);
        if (!wire_end(w, "segment") && g && (*g)->writer == c->id) segment_drop(d, id);
        break;
    }
    case PROTO_ADD: on_add(d, c, w); break;
    case PROTO_PROMISE: on_promise(d, c, w); break;
    case PROTO_FAIL: on_fail(d, w); break;
    case PROTO_HOLD: {
        uint32_t who = wire_u32(w);
        (void)wire_u32(w);
        on_counts(d, w, REFS_HOLD, who);
        break;
    }
    case PROTO_DROP: on_counts(d, w, REFS_DROP, c->id); break;
    case PROTO_WANT: on_want(d, c, w); break;
    case PROTO_ACTOR_NEW: on_actor_new(d, c, w); break;
    case PROTO_ACTOR_WANT: on_actor_want(d, c, w); break;
    case PROTO_ACTOR_FIND: on_actor_find(d, c, w); break;
    case PROTO_ACTOR_UP: on_actor_up(d, c, w, false); break;
    case PROTO_ACTOR_FAILED: on_actor_up(d, c, w, true); break;
    case PROTO_ACTOR_KILL: on_actor_kill(d, w); break;
    case PROTO_CANCEL: on_cancel(d, w); break;
    case PROTO_INFO: on_info(d, c, w); break;
    case PROTO_SHUTDOWN: d->stop = c->pid == d->driver; break;
    case PROTO_READY:
        c->is_ready = true;
        d->stillborn = 0;
        break;
    default: log_warn("a message of unknown kind", LOG_INT("kind", kind), LOG_INT("pid", c->pid)); break;
    }
}

/* Reads all that a client has sent. */
static void drain(node *d, client *c)
{
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;
    while (c->fd >= 0) {
        manta_status st = socket_recv(c->fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);
        if (st == MANTA_ECORRUPT) continue;
        if (st) return; /* nothing more, or closed: then its pidfd speaks */
        socket_close_all(fds, n_fds); /* no client has a descriptor to give */
        wire w = wire_of(d->in, n);
        on_message(d, c, &w);
    }
}

static void drain_all(node *d)
{
    for (size_t i = 0; i < d->clients.n; i++) drain(d, d->clients.at[i].value);
}

static void on_client(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    client *c = NULL;
    for (size_t i = 0; i < d->clients.n && !c; i++)
        if (d->clients.at[i].value->fd == fd) c = d->clients.at[i].value;
    if (!c) return;
    if (writable) flush_outbox(d, c);
    if (!readable) return;
    drain(d, c);
    /* A closed connection stays readable: stop looking, the pidfd follows. */
    char probe;
    if (recv(fd, &probe, 1, MSG_PEEK | MSG_DONTWAIT) == 0) loop_forget(d->loop, fd);
}

/* ---- the life of clients ---- */

static void on_death(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    (void)readable;
    (void)writable;
    for (size_t i = 0; i < d->clients.n; i++) {
        client *c = d->clients.at[i].value;
        if (c->pidfd != fd || c->dying) continue;
        c->dying = true;
        c->died_ns = clock_now_ns();
    }
    loop_forget(d->loop, fd);
}

static void client_add(node *d, pid_t pid, int fd, int pidfd, bool is_worker)
{
    client *c = mem_new(sizeof *c);
    *c = (client){.id = ++d->next_client,
                  .pid = pid,
                  .fd = fd,
                  .pidfd = pidfd,
                  .bell_fd = -1,
                  .is_worker = is_worker,
                  .status = STATUS_UNKNOWN};
    *map_u64_put(&d->clients, c->id) = c;
    if (shm_new("manta-bell", shm_page(), &c->bell_fd) || loop_watch(d->loop, fd, false, on_client, d) ||
        loop_watch(d->loop, pidfd, false, on_death, d)) {
        log_error("a process cannot be taken in", LOG_STR("why", manta_error_text()));
        if (is_worker) {
            spawn_signal(pidfd, SIGKILL);
            act(d, (sched_event){.kind = SCHED_START_FAILED});
        } else {
            d->stop = true; /* without its driver a node is of no use; the driver is told by the end */
        }
        return;
    }
    buf *b = proto_begin(&d->out, PROTO_WELCOME);
    wire_put_u32(b, c->id);
    wire_put_u32(b, (uint32_t)getpid());
    put_shape(b, &d->config.total);
    for (int i = 0; i < SCHED_RESOURCES; i++) wire_put_text(b, d->config.names[i]);
    send_fds(d, c, &c->bell_fd, 1);
    if (is_worker) act(d, (sched_event){.kind = SCHED_WORKER_UP, .worker = c->id});
}

static void break_promises(node *d, const client *c)
{
    char why[96];
    manta_failure f = failure_make(MANTA_FAILED_LOST, MANTA_EDIED, NULL, (int)c->pid,
                                   "process %d, which was to make the object, %s", (int)c->pid,
                                   spawn_status_text(c->status, why, sizeof why));
    for (size_t i = 0; i < d->objects.n; i++) {
        object *o = d->objects.at[i].value;
        if (o->maker == c->id && o->state == PROMISED) object_break(d, d->objects.at[i].key, o, &f);
    }
}

static void leave_segments(node *d, const client *c)
{
    VEC(uint64_t) empty = {0};
    for (size_t i = 0; i < d->segments.n; i++) {
        segment *g = d->segments.at[i].value;
        if (g->writer != c->id) continue;
        g->writer = 0;
        if (g->objects == 0) vec_push(&empty, d->segments.at[i].key);
    }
    for (size_t i = 0; i < empty.n; i++) segment_drop(d, empty.at[i]);
    vec_release(&empty);
}

static void kill_stranger(void *ctx, pid_t child)
{
    node *d = ctx;
    if (child == d->zygote) return;
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->pid == child) return;
    os->kill(child, SIGKILL);
}

/* Everything that follows from the death of a client. */
static void client_end(node *d, client *c)
{
    drain(d, c);
    c->ended = true;
    proto_begin(&d->out, PROTO_GONE);
    wire_put_u32(&d->out, c->id);
    wire_put_u32(&d->out, (uint32_t)c->status);
    for (size_t i = 0; i < c->peers.n; i++) {
        client *peer = find_client(d, (uint32_t)c->peers.at[i].key);
        if (!peer) continue;
        send_to(d, peer);
        map_u64_remove(&peer->peers, c->id);
    }
    break_promises(d, c);
    leave_segments(d, c);
    refs_do(d, REFS_GONE, 0, 0, c->id);
    loop_forget(d->loop, c->fd);
    loop_forget(d->loop, c->pidfd);
    map_u64_remove(&d->clients, c->id);
    if (c->is_worker && !c->is_ready) note_stillborn(d);
    if (c->is_worker && !d->stop) {
        act(d, (sched_event){.kind = SCHED_WORKER_GONE, .worker = c->id});
        actor_lost(d, c);
        spawn_children(kill_stranger, d); /* what it had started itself */
    }
    act(d, (sched_event){.kind = SCHED_CLIENT_GONE, .client = c->id});
    if (c->pid == d->driver) d->stop = true;
    socket_close_all((int[]){c->fd, c->pidfd, c->bell_fd}, 3);
    for (size_t i = 0; i < c->outbox.n; i++) letter_release(&c->outbox.at[i]);
    vec_release(&c->outbox);
    map_u64_release(&c->peers);
    mem_free(c);
}

/* Ends the clients that are dead and whose reason is known, or was awaited
 * long enough. Returns whether some are left. */
static bool bury(node *d)
{
    int64_t now = clock_now_ns();
    bool left = false;
    for (size_t i = 0; i < d->clients.n;) {
        client *c = d->clients.at[i].value;
        if (c->dying && (c->status != STATUS_UNKNOWN || !c->is_worker || now - c->died_ns > REAP_WAIT_NS)) {
            client_end(d, c);
            i = 0;
            continue;
        }
        left = left || c->dying;
        i++;
    }
    return left;
}

/* ---- the zygote ---- */

static void start_zygote(node *d);

static void on_zygote(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;
    (void)readable;
    (void)writable;
    for (;;) {
        manta_status st = socket_recv(fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);
        if (st == MANTA_EBUSY) return;
        if (st) break;
        wire w = wire_of(d->in, n);
        proto_kind kind = proto_kind_of(&w);
        pid_t pid = (pid_t)wire_u32(&w);
        int status = kind == PROTO_REAPED ? (int)wire_u32(&w) : 0;
        if (kind == PROTO_FORKED && n_fds == 2) {
            d->forks--;
            client_add(d, pid, fds[0], fds[1], true);
            continue;
        }
        socket_close_all(fds, n_fds);
        if (kind == PROTO_FORKED) {
            d->forks--;
            note_stillborn(d);
            act(d, (sched_event){.kind = SCHED_START_FAILED});
            continue;
        }
        for (size_t i = 0; i < d->clients.n; i++)
            if (d->clients.at[i].value->pid == pid) d->clients.at[i].value->status = status;
    }
    spawn_signal(d->zygote_pidfd, SIGKILL);
    loop_forget(d->loop, fd);
    socket_close_all((int[]){d->zygote_fd, d->zygote_pidfd}, 2);
    d->zygote_fd = d->zygote_pidfd = -1;
    d->zygote = 0;
    spawn_children(kill_stranger, d); /* a worker it had forked and not told of */
    if (!d->stop) start_zygote(d);
}

static void start_zygote(node *d)
{
    int pair[2];
    pid_t pid;
    if (socket_pair(pair) || spawn_fork(&pid)) {
        log_error("no zygote", LOG_STR("why", manta_error_text()));
        d->stop = true;
        return;
    }
    if (pid == 0) {
        /* Not a fresh program: give up what is the daemon's alone. */
        prctl(PR_SET_CHILD_SUBREAPER, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        node_close_others((int[]){pair[1], d->self_pidfd}, 2);
        zygote_main(pair[1], d->self_pidfd);
    }
    close(pair[1]);
    d->zygote = pid;
    d->zygote_fd = pair[0];
    int asked = d->forks;
    d->forks = 0;
    if (proc_pidfd_open(pid, &d->zygote_pidfd) || loop_watch(d->loop, d->zygote_fd, false, on_zygote, d))
        d->stop = true;
    for (int i = 0; i < asked; i++) ask_fork(d);
}

/* A child of ours has ended: an adopted worker, whose status its peers want to
 * know, the zygote, or an orphan that nobody else waits for. */
static void on_child(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    struct signalfd_siginfo info;
    pid_t pid;
    int status;
    (void)readable;
    (void)writable;
    (void)!read(fd, &info, sizeof info);
    while ((pid = os->waitpid(-1, &status, __WALL | WNOHANG)) > 0)
        for (size_t i = 0; i < d->clients.n; i++)
            if (d->clients.at[i].value->pid == pid) d->clients.at[i].value->status = status;
}

static int watch_children(void)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void on_keeper(void *ctx, int fd, bool readable, bool writable)
{
    (void)fd;
    (void)readable;
    (void)writable;
    ((node *)ctx)->stop = true;
}

_Noreturn void daemon_main(const node_config *config, int driver_fd, pid_t driver, int driver_pidfd,
                           int keeper_pidfd, pid_t keeper)
{
    node *d = mem_new(sizeof *d);
    d->config = *config;
    d->driver = driver;
    d->keeper = keeper;
    d->keeper_pidfd = keeper_pidfd;
    d->in = mem_new(SOCKET_MAX_MESSAGE);
    prctl(PR_SET_NAME, "manta-daemon");
    spawn_reset_signals();
    int children = watch_children();
    d->sched = sched_new(config->total, config->prestart > 0 ? config->prestart : 1);
    d->refs = refs_new();
    if (spawn_adopt_orphans() || proc_pidfd_open(getpid(), &d->self_pidfd) || loop_new(&d->loop) ||
        loop_watch(d->loop, keeper_pidfd, false, on_keeper, d) ||
        loop_watch(d->loop, children, false, on_child, d))
        _exit(1);
    start_zygote(d);
    client_add(d, driver, driver_fd, driver_pidfd, false);
    for (int i = 0; i < config->prestart && !d->stop; i++) ask_fork(d);
    bool waiting = false;
    while (!d->stop) {
        if (loop_run(d->loop, waiting ? 2 : -1)) break;
        waiting = bury(d);
        settle(d);
    }
    spawn_end_all();
    _exit(0);
}
