/* actors.c - actors as their callers see them. The lock is held. */
#include "task/runtime.h"

#include <string.h>

#include "base/mem.h"

#define MOST_SENT 256

actor_link *actor_find_link(uint64_t id)
{
    actor_link **known = map_u64_find(&rt->actors, id);
    if (known) return *known;
    actor_link *a = mem_new(sizeof *a);
    a->id = id;
    list_init(&a->queue);
    *map_u64_put(&rt->actors, id) = a;
    return a;
}

static void fail_queue(actor_link *a)
{
    while (!list_is_empty(&a->queue)) {
        call *c = LIST_ITEM(a->queue.next, call, link);
        list_remove(&c->link);
        a->queued--;
        rt->queued--;
        call_abandon(c, &a->failure);
    }
}

void actor_dispatch(actor_link *a)
{
    if (!a->wanted && a->state != ACTOR_DEAD) {
        a->wanted = true;
        proto_begin(&rt->out, PROTO_ACTOR_WANT);
        wire_put_u64(&rt->out, a->id);
        rt_tell();
    }
    if (a->state == ACTOR_DEAD) fail_queue(a);
    while (a->state == ACTOR_AT && !list_is_empty(&a->queue)) {
        call *c = LIST_ITEM(a->queue.next, call, link);
        if (c->missing > 0 || a->at->in_flight >= MOST_SENT || !call_send(c, a->at)) return;
        a->queued--;
        rt->queued--;
    }
}

void actor_at(uint64_t id, uint32_t client, int pid, int retries, int most_pending)
{
    actor_link *a = actor_find_link(id);
    peer *p = find_peer(client);
    if (a->state == ACTOR_DEAD || !p) return; /* it died meanwhile: the daemon will say more */
    if (a->at == p) return;
    a->at = p;
    a->pid = pid;
    a->retries = retries;
    a->most_pending = most_pending;
    a->state = ACTOR_AT;
    actor_dispatch(a);
}

void actor_died(uint64_t id, const manta_failure *f)
{
    actor_link *a = actor_find_link(id);
    a->state = ACTOR_DEAD;
    a->failure = *f;
    a->at = NULL;
    a->pid = 0;
    fail_queue(a);
}

void actor_peer_died(peer *p)
{
    for (size_t i = 0; i < rt->actors.n; i++) {
        actor_link *a = rt->actors.at[i].value;
        if (a->at != p) continue;
        a->at = NULL;
        a->pid = 0;
        if (a->state != ACTOR_DEAD) a->state = ACTOR_LOST;
    }
}

void actors_release(void)
{
    for (size_t i = 0; i < rt->actors.n; i++) mem_free(rt->actors.at[i].value);
    map_u64_release(&rt->actors);
}
