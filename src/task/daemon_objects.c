/* daemon_objects.c - objects: who made them, where they lie, who waits for
 * them. Who holds them is refs.c's to know. */
#include "task/daemon.h"

#include <string.h>

#include "base/mem.h"
#include "os/spawn.h"

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
    daemon_send(d, c);
}

static void object_settled(node *d, uint64_t id, object *o)
{
    for (size_t i = 0; i < o->wanters.n; i++) {
        client *c = daemon_client(d, o->wanters.at[i]);
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

void daemon_refs(node *d, refs_kind kind, uint64_t object_id, uint64_t inner, uint32_t who)
{
    refs_actions none = {0};
    refs_step(d->refs, (refs_event){.kind = kind, .object = object_id, .inner = inner, .client = who}, &none);
    vec_release(&none);
}

static bool add_one(node *d, client *c, wire *w)
{
    uint64_t id = wire_u64(w);
    uint32_t holder = wire_u32(w);
    value v;
    value_take(w, &v);
    uint64_t n = wire_u64(w);
    const void *inner = n < SOCKET_MAX_MESSAGE / 8 ? wire_take(w, (size_t)n * 8) : NULL;
    if (!inner) return false;
    object *o = object_put(d, id);
    if (o->state != PROMISED) return true; /* said twice */
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
    daemon_refs(d, REFS_ADD, id, 0, c->id);
    if (holder) daemon_refs(d, REFS_HOLD, id, 0, holder);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, (const char *)inner + i * 8, 8);
        daemon_refs(d, REFS_CONTAIN, id, x, 0);
    }
    object_settled(d, id, o);
    return true;
}

static void on_add(node *d, client *c, wire *w)
{
    while (w->at < w->end && add_one(d, c, w)) {}
}

void daemon_promise(node *d, uint64_t id, uint32_t maker)
{
    object *o = object_put(d, id);
    if (o->maker) return;
    o->maker = maker;
    daemon_refs(d, REFS_ADD, id, 0, maker);
    daemon_refs(d, REFS_HOLD, id, 0, maker);
}

void daemon_fulfil(node *d, uint64_t id)
{
    object **o = map_u64_find(&d->objects, id);
    if (!o || (*o)->state != PROMISED) return;
    (*o)->state = READY;
    object_settled(d, id, *o);
}

void daemon_break(node *d, uint64_t id, const manta_failure *f)
{
    object **o = map_u64_find(&d->objects, id);
    if (o) object_break(d, id, *o, f);
}

static void on_promise(node *d, client *c, wire *w)
{
    uint64_t id = wire_u64(w);
    if (!wire_end(w, "promise")) daemon_promise(d, id, c->id);
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
        daemon_refs(d, kind, x, 0, who);
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

/* Nobody holds the object any more. */
static void object_free(node *d, refs_freed f)
{
    actor **a = map_u64_find(&d->actors, f.object);
    object **p = map_u64_find(&d->objects, f.object), *o = p ? *p : NULL;
    if (a) daemon_end_actor(d, *a);
    if (!o) return;
    if (o->state == PROMISED && o->wanters.n > 0) {
        manta_failure lost = failure_make(MANTA_FAILED_LOST, MANTA_ENOENT, NULL, 0, "the object is released");
        object_break(d, f.object, o, &lost);
    }
    if (o->state == READY && o->v.place.segment) {
        segment **g = map_u64_find(&d->segments, o->v.place.segment);
        client *maker = daemon_client(d, o->maker);
        if (maker) {
            proto_begin(&d->out, PROTO_FREE);
            wire_put_u64(&d->out, f.object);
            daemon_send(d, maker);
        }
        if (g && --(*g)->objects == 0 && !(*g)->writer) daemon_drop_segment(d, o->v.place.segment);
    } else if (o->state == READY) {
        mem_free((void *)(uintptr_t)o->v.at);
    }
    mem_free(o->failure);
    vec_release(&o->wanters);
    mem_free(o);
    map_u64_remove(&d->objects, f.object);
}

void daemon_settle(node *d)
{
    refs_actions freed = {0};
    VEC(uint64_t) unknown = {.at = d->unknown.at, .n = d->unknown.n, .cap = d->unknown.cap};
    d->unknown.at = NULL;
    d->unknown.n = d->unknown.cap = 0;
    if (refs_has_candidates(d->refs) || unknown.n > 0) {
        daemon_drain_all(d);
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

void daemon_break_promises(node *d, const client *c)
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

bool daemon_objects_message(node *d, client *c, proto_kind kind, wire *w)
{
    switch (kind) {
    case PROTO_ADD: on_add(d, c, w); return true;
    case PROTO_PROMISE: on_promise(d, c, w); return true;
    case PROTO_FAIL: on_fail(d, w); return true;
    case PROTO_HOLD: {
        uint32_t who = wire_u32(w);
        (void)wire_u32(w);
        on_counts(d, w, REFS_HOLD, who);
        return true;
    }
    case PROTO_DROP: on_counts(d, w, REFS_DROP, c->id); return true;
    case PROTO_WANT: on_want(d, c, w); return true;
    default: return false;
    }
}
