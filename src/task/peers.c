/* peers.c - a peer from its beginning to its end: taking it in, sending, reading the rings.
 * See peer.h for what one is. The lock is held everywhere.
 *
 *     PROTO_PEER ──▶ alive ──── PROTO_GONE ────▶ dead ──── no call runs any more ────▶ freed
 *        │             │        rt_peer_end()    in rt->graves
 *        │             └─ its ring holds what cannot be: is_broken. Nothing more is read from it,
 *        │                and the daemon is told to end it, which brings its GONE
 *        └─ it cannot be reached: never alive. The daemon is told (rt_unreachable()), and rt->refused
 *           has its number until GONE
 *
 * Sending. peer_send() says whether there was room, and a call stays in its queue when there was
 * none. An answer must not be lost: peer_answer() keeps a copy in the outbox, and from then on
 * everything for that peer goes behind it, so that nothing overtakes. Outboxes are emptied by
 * rt_pump(), or by the watcher while all threads are in functions of the program.
 *
 * Who writes what: of a channel's two rings each process writes one (ring.h); `claimed` has the
 * words of the peer's page that calls of ours use (claim.h). rt->unsent counts what all outboxes
 * hold.
 *
 * What may be changed: when rings are looked at. What may not: that what a dead peer had published
 * is read before its calls are decided; and that the daemon is told of new objects (rt_flush_adds())
 * before a message that refers to them goes out. */
#include "task/peer.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "os/proc.h"
#include "os/shm.h"
#include "os/socket.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/deadlock.h"
#include "task/incoming.h"
#include "task/runtime.h"
#include "task/stream.h"

/* ---- sending ---- */

peer *find_peer(uint32_t id)
{
    peer **p = map_u64_find(&rt->peers, id);

    return p ? *p : NULL;
}

bool peer_send(peer *p, const buf *b)
{
    rt_flush_adds(); /* what the message refers to */
    if (p->is_dead || p->outbox.n > 0 || !channel_send(p->channel, b->at, b->n)) return false;
    eventcount_notify(p->bell);
    rt->told++;
    return true;
}

/* Sends what waits in the outbox, as far as there is room. Whether any of it went. */
static bool peer_flush(peer *p)
{
    size_t done = 0, left;

    while (done < p->outbox.n && channel_send(p->channel, p->outbox.at[done].at, p->outbox.at[done].n))
        buf_release(&p->outbox.at[done++]);
    if (done == 0) return false;
    left = p->outbox.n - done;
    memmove(p->outbox.at, p->outbox.at + done, left * sizeof *p->outbox.at);
    p->outbox.n = left;
    rt->unsent -= done;
    eventcount_notify(p->bell);
    return true;
}

/* Who sends what did not fit: a thread that waits, woken by the reader's bell
 * (ring.h); while all threads are in functions of the program, the watcher. */
void peer_answer(peer *p, const buf *b)
{
    rt_flush_adds();
    if (p->is_dead) return;
    if (p->outbox.n > 0) (void)peer_flush(p);
    if (peer_send(p, b)) return;
    buf copy = {0};
    buf_add(&copy, b->at, b->n);
    vec_push(&p->outbox, copy);
    rt->unsent++;
    if (rt->waiters == 0) rt_nudge();
}

static void peer_drop_outbox(peer *p)
{
    for (size_t i = 0; i < p->outbox.n; i++) buf_release(&p->outbox.at[i]);
    rt->unsent -= p->outbox.n;
    vec_release(&p->outbox);
}

static void peer_free(peer *p)
{
    peer_drop_outbox(p);
    channel_free(p->channel);
    shm_unmap(p->bell, shm_page());
    mem_free(p);
}

void rt_unreachable(uint32_t id, bool no_room)
{
    proto_begin(&rt->out, PROTO_UNREACHABLE);
    wire_put_u32(&rt->out, id);
    wire_put_u32(&rt->out, no_room);
    wire_put_text(&rt->out, manta_error_text());
    rt_tell();
    *map_u64_put(&rt->refused, id) = 1;
}

static manta_status check_peer(uint32_t id, int n_fds, uint32_t side)
{
    if (n_fds == SOCKET_FDS_LOST) return proc_fail_files("a worker cannot be reached");
    if (n_fds != 2 || side > 1)
        return manta_fail(MANTA_ECORRUPT,
                          "the daemon gave %d descriptors and side %u, expected 2, and side 0 or 1", n_fds,
                          side);
    return find_peer(id) ? manta_fail(MANTA_ECORRUPT, "the daemon gave the number %u out twice", id)
                         : MANTA_OK;
}

void rt_take_peer(wire *w, int *fds, int n_fds)
{
    uint32_t id = wire_u32(w);
    int pid = (int)wire_u32(w);
    uint32_t side = wire_u32(w);
    void *at = NULL;
    peer *p = mem_new(sizeof *p);

    *p = (peer){.id = id, .pid = pid, .status = -1};
    list_init(&p->sent);
    if (map_u64_find(&rt->refused, id)) { /* its end is on the way, and no call is to get there before */
        peer_free(p);
        socket_close_all(fds, n_fds);
        return;
    }
    if (wire_end(w, "peer") || check_peer(id, n_fds, side) || channel_open(fds[0], (int)side, &p->channel) ||
        shm_map(fds[1], shm_page(), true, &at)) {
        /* Calls would wait in a channel that one side does not see. A death is
         * something that everyone knows how to deal with. */
        if (rt->is_worker) {
            log_error("a peer cannot be reached", LOG_INT("pid", pid), LOG_STR("why", manta_error_text()));
            _exit(1);
        }
        rt_unreachable(id, n_fds == SOCKET_FDS_LOST);
        peer_free(p);
        socket_close_all(fds, n_fds);
        return;
    }
    p->bell = at;
    close(fds[0]);
    close(fds[1]);
    *map_u64_put(&rt->peers, id) = p;
}

/* ---- reading the rings ---- */

static void on_call(peer *p)
{
    incoming *c = incoming_of(p, rt->in.at, rt->in.n);

    if (!c) {
        log_error("a call that cannot be read", LOG_INT("pid", p->pid));
        return;
    }
    list_push(&rt->calls, &c->link);
    if (rt->blocked) exec_block(true); /* gives back what it cannot begin */
}

/* The caller of a stream that runs here has taken items. */
static void on_taken(wire *w)
{
    uint64_t task = wire_u64(w), n = wire_u64(w);

    if (w->broken) return;
    for (list *l = rt->running.next; l != &rt->running; l = l->next)
        if (LIST_ITEM(l, incoming, link)->task == task) LIST_ITEM(l, incoming, link)->taken = n;
}

void rt_peer_message(peer *p)
{
    wire w = wire_of(rt->in.at, rt->in.n);
    proto_kind kind = proto_kind_of(&w);

    rt->heard++;
    switch (kind) {
    case PROTO_CALL: on_call(p); break;
    case PROTO_DONE:
    case PROTO_FAILED:
    case PROTO_RETURNED: call_finish(p, &w, kind); break;
    case PROTO_ITEM: {
        wire head = w;
        uint64_t task = wire_u64(&head);
        call_item_came(p, task, wire_u64(&head));
        stream_item(p, &w);
        break;
    }
    case PROTO_TAKEN: on_taken(&w); break;
    case PROTO_PROBE: deadlock_heard(&w); break;
    case PROTO_WAITS:
        p->is_waiting = wire_u32(&w) != 0;
        if (!p->is_waiting) calls_dispatch();
        break;
    default: log_error("a message of unknown kind", LOG_INT("kind", kind), LOG_INT("pid", p->pid)); break;
    }
}

static bool pump_peer(peer *p)
{
    bool any = false;

    while (!p->is_broken) {
        buf_reserve(&rt->in, 8);
        buf_cut(&rt->in, 0);
        manta_status st = channel_recv(p->channel, &rt->in);
        if (st == MANTA_EBUSY) break;
        any = true;
        if (st) {
            /* It writes what cannot be: the only safe thing is to be rid of it. */
            log_error("a peer's ring is broken", LOG_INT("pid", p->pid), LOG_STR("why", manta_error_text()));
            p->is_broken = true;
            rt_unreachable(p->id, false);
            break;
        }
        rt_peer_message(p);
        if (channel_writer_waits(p->channel)) eventcount_notify(p->bell);
    }
    return any;
}

/* There is room again for what did not fit: answers that wait go first, then calls. */
static bool take_room(peer *p)
{
    if (!channel_has_room(p->channel)) return false;
    channel_end_wait(p->channel);
    if (p->outbox.n > 0) (void)peer_flush(p);
    return true;
}

bool rt_pump(void)
{
    bool any = false;

    for (size_t i = 0; i < rt->peers.n; i++) {
        peer *p = rt->peers.at[i].value;
        any |= take_room(p);
        if (!p->is_broken && channel_ready(p->channel)) any |= pump_peer(p);
    }
    if (any) calls_dispatch();
    return any;
}

bool peers_have_work(void)
{
    for (size_t i = 0; i < rt->peers.n; i++) {
        const peer *p = rt->peers.at[i].value;
        if ((!p->is_broken && channel_ready(p->channel)) || channel_has_room(p->channel)) return true;
    }
    return false;
}

bool rt_has_input(void)
{
    for (size_t i = 0; i < rt->peers.n; i++) {
        const peer *p = rt->peers.at[i].value;
        if (!p->is_broken && channel_ready(p->channel)) return true;
    }
    return false;
}

/* ---- the end ---- */

/* A peer is dead, and why is known as well as it will be. What it had
 * published is read first: it is whole. */
void rt_peer_end(peer *p)
{
    if (p->is_dead) return;
    pump_peer(p);
    p->is_dead = true;
    calls_unheard(p); /* before a call is tried again: what is made then is given again */
    calls_peer_died(p);
    actor_peer_died(p);
    for (list *l = rt->calls.next; l != &rt->calls;) {
        incoming *c = LIST_ITEM(l, incoming, link);
        l = l->next;
        if (c->from == p) incoming_free(c);
    }
    peer_drop_outbox(p);
    map_u64_remove(&rt->peers, p->id);
    vec_push(&rt->graves, p); /* a call that runs may still point to it */
    if (list_is_empty(&rt->running)) {
        for (size_t i = 0; i < rt->graves.n; i++) peer_free(rt->graves.at[i]);
        vec_clear(&rt->graves);
    }
}

void peers_flush(void)
{
    for (size_t i = 0; rt->unsent > 0 && i < rt->peers.n; i++) (void)take_room(rt->peers.at[i].value);
}

void peers_release(void)
{
    for (size_t i = 0; i < rt->peers.n; i++) peer_free(rt->peers.at[i].value);
    for (size_t i = 0; i < rt->graves.n; i++) peer_free(rt->graves.at[i]);
    map_u64_release(&rt->peers);
    map_u64_release(&rt->refused);
    vec_release(&rt->graves);
}

/* ---- claims ---- */

uint32_t peer_claim(peer *p)
{
    for (int i = 0; i < CLAIM_SLOTS; i++) {
        uint32_t n = ++p->claims;
        uint64_t *bits = &p->claimed[n % CLAIM_SLOTS / 64], bit = 1ULL << n % 64;
        if (n == 0 || *bits & bit) continue;
        *bits |= bit;
        claim_send(p->bell, rt->client, n);
        return n;
    }
    return 0;
}

void peer_unclaim(peer *p, uint32_t claim)
{
    if (claim) p->claimed[claim % CLAIM_SLOTS / 64] &= ~(1ULL << claim % 64);
}
