/* daemon_groups.c - placement groups: who made them, who must know of their end. */
#include "task/daemon.h"

#include <string.h>

#include "base/mem.h"

static daemon_group *find_group(node *d, uint64_t id)
{
    daemon_group **g = map_u64_find(&d->groups, id);
    return g ? *g : NULL;
}

static daemon_group *find_named(node *d, const char *name)
{
    for (size_t i = 0; i < d->groups.n; i++)
        if (name[0] && !strcmp(d->groups.at[i].value->name, name)) return d->groups.at[i].value;
    return NULL;
}

static void answer(node *d, client *c, uint64_t request, manta_status st, uint64_t id)
{
    proto_begin(&d->out, PROTO_FOUND);
    wire_put_u64(&d->out, request);
    wire_put_u32(&d->out, (uint32_t)st);
    wire_put_u64(&d->out, id);
    wire_put_text(&d->out, st ? manta_error_text() : "");
    daemon_send(d, c);
}

static manta_status group_check(node *d, uint64_t id, const char *name, uint32_t how, uint32_t n,
                                const sched_shape *size)
{
    sched_shape sum = {0};
    int missing;
    if (find_group(d, id) || find_named(d, name))
        return manta_fail(MANTA_EEXIST, "a placement group is called %s already", name);
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < SCHED_RESOURCES; k++) {
            if (size[i].amount[k] < 0 ||
                __builtin_add_overflow(sum.amount[k], size[i].amount[k], &sum.amount[k]))
                return manta_fail(MANTA_EINVAL, "a bundle of a negative or endless amount");
        }
    if (how > MANTA_PLACEMENT_STRICT_SPREAD) return manta_fail(MANTA_EINVAL, "an unknown placement");
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
    manta_status st = group_check(d, id, name, how, n, size);
    answer(d, c, request, st, id);
    if (st) return;
    daemon_group *g = mem_new(sizeof *g + n * sizeof *size);
    g->id = id;
    g->owner = c->id;
    g->how = how;
    g->n = (int)n;
    memcpy(g->name, name, sizeof name);
    memcpy(g->size, size, n * sizeof *size);
    *map_u64_put(&d->groups, id) = g;
    daemon_promise(d, id, c->id);
    daemon_act(d, (sched_event){.kind = SCHED_GROUP, .client = id, .bundles = g->size, .n = g->n});
}

void daemon_group_placed(node *d, uint64_t id)
{
    daemon_group *g = find_group(d, id);
    if (!g) return;
    g->placed = true;
    daemon_fulfil(d, id);
}

/* Callers are told first, so that they know why the workers die. */
static void group_end(node *d, daemon_group *g)
{
    uint64_t id = g->id;
    manta_failure f =
        failure_make(MANTA_FAILURE_PLACEMENT_GROUP, MANTA_ENOENT, NULL, 0, "the placement group was removed");
    map_u64_remove(&d->groups, id);
    mem_free(g);
    proto_begin(&d->out, PROTO_GROUP_GONE);
    wire_put_u64(&d->out, id);
    for (size_t i = 0; i < d->clients.n; i++) daemon_send(d, d->clients.at[i].value);
    daemon_break(d, id, &f);
    daemon_end_actors_of(d, id, &f);
    daemon_act(d, (sched_event){.kind = SCHED_GROUP_REMOVE, .client = id});
}

static void on_group_find(node *d, client *c, wire *w)
{
    char name[64];
    uint64_t request = wire_u64(w), id = wire_u64(w);
    wire_text(w, name, sizeof name);
    if (wire_end(w, "group")) return;
    const daemon_group *g = id ? find_group(d, id) : find_named(d, name);
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
    actor **a = c->actor ? map_u64_find(&d->actors, c->actor) : NULL;
    (void)sched_held(d->sched, c->id, &held);
    buf *b = proto_begin(&d->out, PROTO_ANSWER);
    wire_put_u64(b, request);
    daemon_put_shape(b, &held);
    wire_put_u64(b, c->actor);
    wire_put_text(b, a ? (*a)->name : "");
    wire_put_u32(b, a ? (uint32_t)(*a)->restarted : 0);
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
        daemon_group *g = find_group(d, id);
        if (!wire_end(w, "group") && g) group_end(d, g);
        return true;
    }
    case PROTO_CONTEXT: on_context(d, c, w); return true;
    default: return false;
    }
}

/* A group ends with the process that made it. */
void daemon_groups_lost(node *d, const client *c)
{
    for (size_t i = 0; i < d->groups.n;)
        if (d->groups.at[i].value->owner == c->id) {
            group_end(d, d->groups.at[i].value);
            i = 0;
        } else {
            i++;
        }
}
