/* actors.c - actors as their callers see them. The lock is held. actor_link.h has the states.
 *
 *     call_submit() ──▶ link->queue ── actor_dispatch() ──▶ AT: sent to its process, in order
 *                                                          LOST: waits, or fails with fail_away
 *                                                          DEAD: fails with link->failure
 *                                                          UNKNOWN: the daemon is asked, once
 *
 * Calls of one caller reach an actor in the order in which they were made. So the queue stops at
 * the first call whose arguments are not there, unless the actor takes them in any order; and what
 * comes back when its process has died goes to the front again (retry.c).
 *
 * Who writes what: the state is changed by what the daemon says (actor_at(), actor_died()) and by
 * the end of the actor's process (actor_peer_died()); rt->queued and link->queued go with the queue;
 * link->pending counts the calls of ours that have no outcome yet (call.h). */
#include "task/actor_link.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "task/call.h"
#include "task/incoming.h"
#include "task/nested.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/runtime.h"
#include "task/value.h"

#define MOST_SENT 4096 /* calls of one caller that may wait for each other in an actor */

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

/* A link lives as long as its handle, and the end of a call may be the end of
 * the last: whoever goes on with a link after one has ended pins the handle. */
static object *handle_pin(const actor_link *a)
{
    object *handle = object_find(a->id);

    if (handle) handle->pins++;
    return handle;
}

static void handle_unpin(object *handle)
{
    if (handle) object_unpin(handle);
}

/* Takes f. */
static void set_failure(actor_link *a, failure *f)
{
    failure_unref(a->failure);
    a->failure = f;
}

static void fail_queue(actor_link *a)
{
    object *handle = handle_pin(a);

    while (!list_is_empty(&a->queue)) {
        call *c = LIST_ITEM(a->queue.next, call, link);
        list_remove(&c->link);
        a->queued--;
        rt->queued--;
        call_abandon(c, failure_ref(a->failure));
    }
    handle_unpin(handle);
}

/* The call that comes next, if it is ready; NULL: none. */
static call *next_to_send(const actor_link *a)
{
    for (list *l = a->queue.next; l != &a->queue; l = l->next) {
        call *c = LIST_ITEM(l, call, link);
        if (c->missing == 0) return c;
        if (!a->any_order) return NULL;
    }
    return NULL;
}

void actor_dispatch(actor_link *a)
{
    if (a->state == ACTOR_LOST && a->fail_away)
        set_failure(a, failure_make(MANTA_FAILURE_UNAVAILABLE, MANTA_EBUSY, NULL, 0,
                                    "the actor is being restarted; the call was not made"));
    if (a->state == ACTOR_DEAD || (a->state == ACTOR_LOST && a->fail_away)) {
        fail_queue(a);
        return;
    }
    if (!a->wanted) {
        a->wanted = true;
        proto_begin(&rt->out, PROTO_ACTOR_WANT);
        wire_put_u64(&rt->out, a->id);
        rt_tell();
    }
    object *handle = handle_pin(a);
    for (call *c; a->state == ACTOR_AT && (c = next_to_send(a));) {
        if (!a->is_here && (a->at->in_flight >= MOST_SENT || !call_send(c, a->at))) break;
        if (a->is_here) nested_queue(c);
        a->queued--;
        rt->queued--;
    }
    handle_unpin(handle);
}

void actor_at(uint64_t id, uint32_t client, int pid, int retries, int most_pending, uint32_t flags)
{
    actor_link **known = map_u64_find(&rt->actors, id), *a = known ? *known : NULL;
    peer *p = find_peer(client);

    bool here = client == rt->client;

    if (!a || a->state == ACTOR_DEAD || (!p && !here))
        return; /* it died meanwhile: the daemon will say more */
    if (here ? a->is_here : a->at == p) return;
    a->is_here = here;
    a->at = here ? NULL : p;
    a->pid = pid;
    a->retries = retries;
    for (list *l = a->queue.next; l != &a->queue; l = l->next) {
        call *c = LIST_ITEM(l, call, link);
        if (c->as_actor) c->max_retries = retries;
    }
    a->most_pending = most_pending;
    a->fail_away = flags & PROTO_ACTOR_AWAY;
    a->any_order = flags & PROTO_ACTOR_ANY_ORDER;
    a->state = ACTOR_AT;
    actor_dispatch(a);
}

void actor_died(uint64_t id, failure *f)
{
    actor_link **known = map_u64_find(&rt->actors, id), *a = known ? *known : NULL;

    if (!a) {
        failure_unref(f);
        return;
    }
    a->state = ACTOR_DEAD;
    set_failure(a, f);
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
        if (a->fail_away) actor_dispatch(a);
    }
}

void actor_forget(uint64_t id)
{
    actor_link **a = rt->actors.n > 0 ? map_u64_find(&rt->actors, id) : NULL;

    if (!a || (*a)->pending > 0) return;
    if (rt->is_local) exec_end_self(id);
    failure_unref((*a)->failure);
    mem_free((*a)->name);
    mem_free(*a);
    map_u64_remove(&rt->actors, id);
}

void actors_group_gone(uint64_t group, failure *f)
{
    for (size_t i = 0; i < rt->actors.n; i++)
        if (rt->actors.at[i].value->group == group) actor_died(rt->actors.at[i].value->id, failure_ref(f));
}

actor_link *actor_named(const char *full)
{
    for (size_t i = 0; i < rt->actors.n; i++) {
        actor_link *a = rt->actors.at[i].value;
        if (a->name && a->state != ACTOR_DEAD && !strcmp(a->name, full)) return a;
    }
    return NULL;
}

manta_status actor_full_name(const char *space, const char *name, char full[PROTO_NAME])
{
    if (!space) space = rt_space;
    if (strlen(name) > 63 || strlen(space) > 63)
        return manta_fail(MANTA_EINVAL,
                          "the actor's name or name space has more than 63 bytes: \"%.80s\" in \"%.80s\"",
                          name, space);
    if (strchr(space, '/')) return manta_fail(MANTA_EINVAL, "the name space \"%s\" has a '/'", space);
    snprintf(full, PROTO_NAME, "%s/%s", space, name);
    return MANTA_OK;
}

void actors_release(void)
{
    for (size_t i = 0; i < rt->actors.n; i++) {
        failure_unref(rt->actors.at[i].value->failure);
        mem_free(rt->actors.at[i].value->name);
        mem_free(rt->actors.at[i].value);
    }
    map_u64_release(&rt->actors);
}
