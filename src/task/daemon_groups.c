/* daemon_groups.c - placement groups: messages into events of the registry, and its
 * actions into messages and events of the scheduler.
 *
 *     client          here              registry            here              scheduler
 *     GROUP_NEW ───▶ group_check() ───▶ GROUP_NEW ───▶ DO_GROUP_PLACE ───▶ SCHED_GROUP
 *                                       GROUP_PLACED ◀── daemon_act() ◀─── DO_GROUP, when there is room
 *     the group's object is there ◀─── DO_GROUP_READY
 *     GROUP_REMOVE ───────────────────▶ GROUP_REMOVE: DO_GROUP_TELL_GONE, to all clients;
 *                                       DO_GROUP_BREAK, who waits for it; DO_GROUP_UNPLACE ───▶
 *                                       SCHED_GROUP_REMOVE, with which its workers end
 *
 * The registry knows which groups there are and who owns them, the scheduler what they hold; this file
 * keeps nothing. A group is an object with the same number: who waits for one waits for that. One that
 * the node could never place is refused when it is made, not left to wait. */
#include "task/daemon.h"

#include <string.h>

/* ---- what the registry says is to be done ---- */

static void do_place(node *d, const registry_action *x)
{
    const registry_group *g = registry_find_group(d->registry, x->id);

    if (!g) return;
    daemon_promise(d, g->id, x->client);
    daemon_act(d, (sched_event){.kind = SCHED_GROUP, .client = g->id, .bundles = g->size, .n = g->n});
}

static void do_tell_gone(node *d, uint64_t id)
{
    proto_begin(&d->out, PROTO_GROUP_GONE);
    wire_put_u64(&d->out, id);
    for (size_t i = 0; i < d->clients.n; i++) daemon_send(d, d->clients.at[i].value);
}

static void do_break(node *d, uint64_t id)
{
    daemon_break(d, id,
                 failure_make(MANTA_FAILURE_PLACEMENT_GROUP, MANTA_ENOENT, NULL, 0,
                              "the placement group was removed"));
}

bool daemon_groups_action(node *d, const registry_action *a)
{
    switch (a->kind) {
    case REGISTRY_DO_GROUP_PLACE: do_place(d, a); return true;
    case REGISTRY_DO_GROUP_READY: daemon_fulfil(d, a->id); return true;
    case REGISTRY_DO_GROUP_TELL_GONE: do_tell_gone(d, a->id); return true;
    case REGISTRY_DO_GROUP_BREAK: do_break(d, a->id); return true;
    case REGISTRY_DO_GROUP_UNPLACE:
        daemon_act(d, (sched_event){.kind = SCHED_GROUP_REMOVE, .client = a->id});
        return true;
    default: return false;
    }
}

/* ---- messages ---- */

/* Whether the node could ever have these bundles. */
static manta_status group_check(const node *d, uint32_t how, uint32_t n, const sched_shape *size)
{
    sched_shape sum = {0};
    int missing;

    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < SCHED_RESOURCES; k++) {
            if (size[i].amount[k] < 0 ||
                __builtin_add_overflow(sum.amount[k], size[i].amount[k], &sum.amount[k]))
                return manta_fail(MANTA_EINVAL,
                                  "bundle %u asks for a negative amount, or the bundles together for more "
                                  "than can be counted",
                                  i);
        }
    if (how > MANTA_PLACEMENT_STRICT_SPREAD)
        return manta_fail(MANTA_EINVAL, "no placement has the number %u", how);
    if ((how == MANTA_PLACEMENT_STRICT_SPREAD && n > 1) ||
        !sched_feasible(&d->config.total, &sum, &missing) || !sched_gpus_fit(&d->config.total, size, (int)n))
        return manta_fail(MANTA_EUNSUPPORTED, "the placement group can never be placed");
    return MANTA_OK;
}

static void on_group_new(node *d, client *c, wire *w)
{
    char name[64];
    sched_shape size[GROUP_BUNDLES];
    uint64_t request = wire_u64(w), id = wire_u64(w);
    uint32_t how = wire_u32(w);

    wire_text(w, name, sizeof name);
    uint32_t n = wire_u32(w);
    if (n < 1 || n > GROUP_BUNDLES) return;
    for (uint32_t i = 0; i < n; i++) {
        size[i] = daemon_take_shape(w);
        size[i].group = 0;
        size[i].bundle = 0;
    }
    if (wire_end(w, "group")) return;
    daemon_registry(d, (registry_event){.kind = REGISTRY_GROUP_NEW,
                                        .client = c->id,
                                        .request = request,
                                        .id = id,
                                        .how = how,
                                        .name = name,
                                        .bundles = size,
                                        .n = (int)n,
                                        .status = group_check(d, how, n, size)});
}

static void on_group_find(node *d, client *c, wire *w)
{
    char name[64];
    uint64_t request = wire_u64(w), id = wire_u64(w);

    wire_text(w, name, sizeof name);
    if (wire_end(w, "group")) return;
    const registry_group *g =
        id ? registry_find_group(d->registry, id) : registry_group_named(d->registry, name);
    manta_status st = g    ? MANTA_OK
                      : id ? manta_fail(MANTA_ENOENT, "the placement group was removed")
                           : manta_fail(MANTA_ENOENT, "no placement group is called %s", name);
    buf *b = proto_begin(&d->out, PROTO_ANSWER);
    wire_put_u64(b, request);
    wire_put_u32(b, (uint32_t)st);
    wire_put_text(b, st ? manta_error_text() : "");
    wire_put_u64(b, g ? g->id : 0);
    wire_put_u32(b, g ? g->how : 0);
    wire_put_u32(b, g && g->placed);
    wire_put_text(b, g ? g->name : "");
    wire_put_u32(b, g ? (uint32_t)g->n : 0);
    if (g) buf_add(b, g->size, (size_t)g->n * sizeof g->size[0]);
    daemon_send(d, c);
}

/* What the worker that asks holds, and who lives in it. */
static void on_context(node *d, client *c, wire *w)
{
    sched_shape held = {0};
    uint64_t request = wire_u64(w);

    if (wire_end(w, "context")) return;
    const registry_actor *a = registry_actor_in(d->registry, c->id);
    (void)sched_held(d->sched, c->id, &held);
    buf *b = proto_begin(&d->out, PROTO_ANSWER);
    wire_put_u64(b, request);
    daemon_put_shape(b, &held);
    wire_put_u64(b, registry_number_in(d->registry, c->id));
    wire_put_text(b, a ? a->name : "");
    wire_put_u32(b, a ? (uint32_t)a->restarted : 0);
    wire_put_u32(b, sched_devices(d->sched, c->id));
    daemon_send(d, c);
}

bool daemon_groups_message(node *d, client *c, proto_kind kind, wire *w)
{
    switch (kind) {
    case PROTO_GROUP_NEW: on_group_new(d, c, w); return true;
    case PROTO_GROUP_FIND: on_group_find(d, c, w); return true;
    case PROTO_GROUP_REMOVE: {
        uint64_t id = wire_u64(w);
        if (!wire_end(w, "group"))
            daemon_registry(d, (registry_event){.kind = REGISTRY_GROUP_REMOVE, .id = id});
        return true;
    }
    case PROTO_CONTEXT: on_context(d, c, w); return true;
    default: return false;
    }
}
