/* daemon_leases.c - what the scheduler decides, done: workers for callers, and
 * a channel between the two.
 *
 *   message, death ──▶ daemon_act(event) ──▶ sched_step() ──▶ actions, each done here or handed on
 *
 *     GRANT    the client gets a channel to the worker and is told; where there can be none the
 *              worker is given back at once, and the client asks again
 *     RECLAIM  a client is asked for a worker that it does not use
 *     STOP     an idle worker that is one too many                 into d->stops
 *     KILL     a worker whose caller or group is gone              into d->kills
 *     CAP, REFUSE, REFUSE_CAPPED     nobody can come: said to who waits
 *     ACTOR, GROUP, START            to daemon_actors, the registry, daemon_forks
 *
 * Workers do not end within daemon_act(): daemon_end_workers() does it between two rounds of the
 * loop, after all that was sent has been read. A worker may have told us of objects that it is to make,
 * and whoever gave it back has told us sooner, over another connection.
 *
 *     stopped, makes nothing                         killed
 *     stopped, is to make something                  it stays, or lingers until it has made it
 *     killed, others want what it is to make         it holds nothing any more, and ends by itself
 *
 * The scheduler is written by daemon_act() alone, and an action may cause another event (a grant that
 * does not reach its client): actions of the outer one are a list of their own by then. */
#include "task/daemon.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "os/shm.h"
#include "task/ring.h"

bool daemon_connect(node *d, client *a, client *b)
{
    int fd;

    if (a == b || a->ended || b->ended) return false;
    if (map_u64_find(&a->peers, b->id)) return true;
    if (shm_new("manta-channel", channel_size(), &fd)) {
        log_error("two processes cannot be given a channel", LOG_INT("pid", a->pid), LOG_INT("peer", b->pid),
                  LOG_STR("why", manta_error_text()));
        return false;
    }
    client *ends[2] = {a, b};
    for (int side = 0; side < 2; side++) {
        client *to = ends[side], *peer = ends[!side];
        proto_begin(&d->out, PROTO_PEER);
        wire_put_u32(&d->out, peer->id);
        wire_put_u32(&d->out, (uint32_t)peer->pid);
        wire_put_u32(&d->out, (uint32_t)side);
        daemon_send_fds(d, to, (int[]){fd, peer->bell_fd}, 2);
        *map_u64_put(&to->peers, peer->id) = 1;
    }
    close(fd);
    return true;
}

void daemon_put_shape(buf *b, const sched_shape *s)
{
    buf_add(b, s, sizeof *s);
}

sched_shape daemon_take_shape(wire *w)
{
    sched_shape s = {0};
    const void *p = wire_take(w, sizeof s);

    if (p) memcpy(&s, p, sizeof s);
    for (int i = 0; i < SCHED_RESOURCES; i++)
        if (s.amount[i] < 0) s.amount[i] = 0;
    if (s.place < 0) s.place = 0;
    if (s.place > SCHED_NEVER) s.place = SCHED_NEVER; /* the place is added to the cores */
    if (s.amount[0] > SCHED_NEVER) s.amount[0] = SCHED_NEVER;
    return s;
}

static void do_grant(node *d, const sched_action *a)
{
    client *c = daemon_client(d, (uint32_t)a->client), *w = daemon_client(d, a->worker);
    bool reached = c && w && daemon_connect(d, c, w);

    /* A worker that asked for another may be the one that is free: it asks again. */
    if (c && w && c != w && !reached && !c->ended && !w->ended) daemon_note_stillborn(d, w->job);
    if (c) { /* one that cannot be reached is a worker the client does not know: it asks again */
        proto_begin(&d->out, PROTO_GRANT);
        wire_put_u32(&d->out, reached ? a->worker : 0);
        daemon_put_shape(&d->out, &a->shape);
        wire_put_u64(&d->out, a->demand);
        daemon_send(d, c);
    }
    if (!reached)
        daemon_act(d, (sched_event){.kind = SCHED_RETURN, .client = a->client, .worker = a->worker});
}

static void say_cap(node *d, const sched_action *a)
{
    log_warn("calls wait: their program has as many workers as it may, most of them in calls that wait; "
             "max_workers of the node's options is that number",
             LOG_INT("workers", d->config.max_workers), LOG_INT("program", (int)a->job));
}

/* The calls would wait for ever, or as long as all others do. */
static void refuse_capped(node *d, const sched_action *a)
{
    client *c = daemon_client(d, (uint32_t)a->client);

    if (!c) return;
    failure *f = failure_make(MANTA_FAILURE_WORKER, MANTA_ENOSPC, NULL, 0,
                              "no worker can be started for the call: there are %d, which is as many as "
                              "there may be, and all are in calls that wait; max_workers of "
                              "manta_node_options raises it",
                              d->config.max_workers);
    proto_begin(&d->out, PROTO_NO_WORKER);
    daemon_put_shape(&d->out, &a->shape);
    failure_put(&d->out, f);
    failure_unref(f);
    daemon_send(d, c);
}

/* Notes who is to make an object that others know of: a call of its own, whose reference it has
 * handed on; and whether any of these is still there. All objects are looked at, once for however many
 * workers are to be stopped. */
static void find_makers(node *d)
{
    for (size_t i = 0; i < d->clients.n; i++)
        d->clients.at[i].value->is_maker = d->clients.at[i].value->is_wanted = false;
    for (size_t i = 0; i < directory_count(d->objects); i++) {
        uint64_t made = directory_at(d->objects, i);
        if (directory_state_of(d->objects, made) != DIRECTORY_PROMISED) continue;
        client *c = daemon_client(d, directory_maker(d->objects, made));
        if (!c) continue;
        c->is_maker = true;
        if (refs_beside(d->refs, made, c->id) > 0) c->is_wanted = true;
    }
}

/* One that takes no more calls cannot stay for others: it ends itself when it has made what it is to make. */
static void let_linger(node *d, client *c)
{
    proto_begin(&d->out, PROTO_EXIT);
    daemon_send(d, c);
}

static void stop_worker(node *d, uint32_t id)
{
    client *c = daemon_client(d, id);

    if (c && c->is_maker && c->is_retired)
        let_linger(d, c);
    else if (c && c->is_maker)
        daemon_act(d,
                   (sched_event){
                       .kind = SCHED_STAYS, .worker = c->id, .job = c->job, .environment = c->environment});
    else
        daemon_kill(d, id);
}

/* Its caller or its group is gone. The worker may have been in other hands before, and be to make what
 * others wait for: only it knows whether it is in a call, with which it ends, or in none. Either way it
 * holds nothing any more, since what it is to make may need that. What its caller alone held nobody waits for. */
static void kill_worker(node *d, uint32_t id)
{
    client *c = daemon_client(d, id);

    if (!c || !c->is_wanted) {
        daemon_kill(d, id);
        return;
    }
    daemon_act(d, (sched_event){.kind = SCHED_WORKER_GONE, .worker = id});
    proto_begin(&d->out, PROTO_ABANDONED);
    daemon_send(d, c);
}

/* What a worker is to make it has told us before its caller could give it back, over another
 * connection: what all have said is read first, which may be that others are to be ended, too. */
void daemon_end_workers(node *d)
{
    if (d->stops.n == 0 && d->kills.n == 0) return;
    daemon_drain_all(d);
    find_makers(d);
    for (size_t i = 0; i < d->stops.n; i++) stop_worker(d, d->stops.at[i]);
    vec_clear(&d->stops);
    for (size_t i = 0; i < d->kills.n; i++) kill_worker(d, d->kills.at[i]);
    vec_clear(&d->kills);
}

void daemon_act(node *d, sched_event e)
{
    sched_actions out = {0};

    sched_step(d->sched, &e, &out);
    for (size_t i = 0; i < out.n; i++) {
        const sched_action *a = &out.at[i];
        client *c;
        switch (a->kind) {
        case SCHED_DO_GRANT: do_grant(d, a); break;
        case SCHED_DO_ACTOR: daemon_place_actor(d, a); break;
        case SCHED_DO_GROUP:
            daemon_registry(d, (registry_event){.kind = REGISTRY_GROUP_PLACED, .id = a->client});
            break;
        case SCHED_DO_START: daemon_ask_fork(d, a->job, (uint32_t)a->environment); break;
        case SCHED_DO_REFUSE:
        case SCHED_DO_REFUSE_ACTOR: daemon_refuse(d, a); break;
        case SCHED_DO_CAP: say_cap(d, a); break;
        case SCHED_DO_REFUSE_CAPPED: refuse_capped(d, a); break;
        case SCHED_DO_STOP: vec_push(&d->stops, a->worker); break;
        case SCHED_DO_KILL: vec_push(&d->kills, a->worker); break;
        case SCHED_DO_RECLAIM:
            if (!(c = daemon_client(d, (uint32_t)a->client))) break;
            proto_begin(&d->out, PROTO_RECLAIM);
            wire_put_u32(&d->out, a->worker);
            daemon_send(d, c);
            break;
        }
    }
    vec_release(&out);
}
