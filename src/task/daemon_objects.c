/* daemon_objects.c - objects: messages into events of directory.c, and back. Who holds them
 * is refs.c's to know.
 *
 *     ADD, PROMISE, FAIL, WANT, MISSED ──▶ directory ──▶ tell, take, rebuild, break, leave, forget
 *     HOLD, DROP, deaths ────────────────▶ refs ───────▶ freed ──▶ directory, registry
 *
 * The daemon has the bytes of small objects (object.v.at, its own copy) and the places of
 * large ones; it maps no segment. Only do_take() and do_break() write an object; do_leave()
 * and do_forget() clear it.
 *
 * Freeing is done in daemon_settle() and nowhere else: the counts that are zero before a
 * pass over all connections, and that nothing in the pass has changed, are zero for ever
 * (refs.h has the argument). An object that was wanted and that nobody has announced is
 * answered after such a pass as well: its announcement would have been read in it. */
#include "task/daemon.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "os/spawner.h"
#include "os/sys.h"

/* What came with an event and may become the object's. */
typedef struct arrival {
    const value *v;
    failure *failure;
    const void *inner; /* n numbers */
    uint64_t n;
    uint32_t holder;
    uint64_t task, item; /* with which it comes to its holder (gifts.h) */
} arrival;

static object *object_of(node *d, uint64_t id)
{
    void **data = directory_data(d->objects, id);

    if (data && !*data) *data = mem_new(sizeof(object));
    return data ? *data : NULL;
}

static void object_clear(object *o)
{
    mem_free((void *)(uintptr_t)o->v.at);
    failure_unref(o->failure);
    *o = (object){0};
}

/* Takes f. */
static void object_fails(object *o, failure *f)
{
    object_clear(o);
    o->failure = f;
}

void daemon_refs(node *d, refs_kind kind, uint64_t object_id, uint64_t inner, uint32_t who)
{
    refs_actions none = {0};

    refs_step(d->refs, (refs_event){.kind = kind, .object = object_id, .inner = inner, .client = who}, &none);
    vec_release(&none);
}

/* ---- what the directory says is to be done ---- */

static void do_tell(node *d, const directory_action *a)
{
    client *c = daemon_client(d, a->client);
    const object *o = object_of(d, a->object);

    if (!c || !o) return;
    proto_begin(&d->out, o->failure ? PROTO_OBJECT_FAILED : PROTO_OBJECT);
    wire_put_u64(&d->out, a->object);
    if (o->failure)
        failure_put(&d->out, o->failure);
    else
        value_put(&d->out, &o->v);
    daemon_send(d, c);
}

static void do_take(node *d, const directory_action *a, const arrival *x)
{
    object *o = object_of(d, a->object);

    if (x->failure) {
        const payload *p = x->failure->payload;
        if (p && p->object) daemon_refs(d, REFS_CONTAIN, a->object, p->object, 0);
        object_fails(o, failure_ref(x->failure));
        return;
    }
    object_clear(o);
    o->v = *x->v;
    if (o->v.place.segment) {
        segment **g = map_u64_find(&d->segments, o->v.place.segment);
        if (g) (*g)->objects++;
    } else if (o->v.at) {
        void *copy = mem_new((size_t)o->v.size);
        memcpy(copy, o->v.at, (size_t)o->v.size);
        o->v.at = copy;
    }
}

/* `to` holds an object that `from` has given it, and hears of it with an answer. */
static void give_object(node *d, uint32_t from, uint64_t id, const arrival *x)
{
    daemon_refs(d, REFS_HOLD, id, 0, x->holder);
    if (x->task && x->holder != from && daemon_client(d, x->holder))
        gifts_add(d->gifts, from, x->holder, x->task, x->item, id);
}

static void do_hold(node *d, const directory_action *a, const arrival *x)
{
    daemon_refs(d, REFS_ADD, a->object, 0, a->client);
    if (x->holder) give_object(d, a->client, a->object, x);
    for (uint64_t i = 0; i < x->n; i++) {
        uint64_t id;
        memcpy(&id, (const char *)x->inner + i * 8, 8);
        daemon_refs(d, REFS_CONTAIN, a->object, id, 0);
    }
}

static void do_rebuild(node *d, const directory_action *a)
{
    client *owner = daemon_client(d, a->client);

    if (!owner) return; /* its end is on the way, and breaks the object */
    proto_begin(&d->out, PROTO_REBUILD);
    wire_put_u64(&d->out, a->object);
    wire_put_text(&d->out, d->spill_error);
    daemon_send(d, owner);
}

static void do_break(node *d, const directory_action *a)
{
    const client *c = daemon_client(d, a->client);
    int pid = c ? (int)c->pid : 0;
    char why[96];
    failure *f = NULL;

    switch (a->why) {
    case DIRECTORY_MAKER_DIED:
        f = failure_make(MANTA_FAILURE_LOST, MANTA_EDIED, NULL, pid,
                         "process %d, which was to make the object, %s", pid,
                         spawn_status_text(c ? c->status : -1, why, sizeof why));
        break;
    case DIRECTORY_OWNER_DIED:
        f = failure_make(MANTA_FAILURE_LOST, MANTA_EDIED, NULL, pid,
                         "the object is lost (%s), and its owner, client %u, is dead", d->spill_error,
                         a->client);
        break;
    case DIRECTORY_RELEASED:
        f = failure_make(MANTA_FAILURE_LOST, MANTA_ENOENT, NULL, 0, "the object is released");
        break;
    case DIRECTORY_UNKNOWN:
        f = failure_make(MANTA_FAILURE_LOST, MANTA_ENOENT, NULL, 0,
                         "no object of that number exists any more");
        break;
    }
    object_fails(object_of(d, a->object), f);
}

/* The maker may use the block again; a dead one's segment goes with its last object. */
static void do_leave(node *d, const directory_action *a)
{
    segment **g = map_u64_find(&d->segments, a->place.segment);
    client *maker = daemon_client(d, a->client);

    if (maker) {
        proto_begin(&d->out, PROTO_FREE);
        wire_put_u64(&d->out, a->object);
        daemon_send(d, maker);
    }
    object *o = object_of(d, a->object);
    bool counted = o && o->v.place.segment == a->place.segment && o->v.place.at == a->place.at;
    if (counted) o->v = (value){0}; /* also when a client says twice that it is there */
    if (counted && g && --(*g)->objects == 0 && !(*g)->writer) daemon_drop_segment(d, a->place.segment);
}

static void do_forget(node *d, uint64_t id)
{
    void **data = directory_data(d->objects, id);

    if (data && *data) {
        object_clear(*data);
        mem_free(*data);
    }
    directory_end(d->objects, id);
}

/* Applies an event to the directory and does what follows. */
static void directory_do(node *d, const directory_event *e, const arrival *x)
{
    directory_actions out = {0};

    directory_step(d->objects, e, &out);
    for (size_t i = 0; i < out.n; i++) {
        const directory_action *a = &out.at[i];
        switch (a->kind) {
        case DIRECTORY_DO_TELL: do_tell(d, a); break;
        case DIRECTORY_DO_TAKE: do_take(d, a, x); break;
        case DIRECTORY_DO_HOLD: do_hold(d, a, x); break;
        case DIRECTORY_DO_REBUILD: do_rebuild(d, a); break;
        case DIRECTORY_DO_BREAK: do_break(d, a); break;
        case DIRECTORY_DO_LEAVE: do_leave(d, a); break;
        case DIRECTORY_DO_FORGET: do_forget(d, a->object); break;
        }
    }
    vec_release(&out);
}

/* Takes f. */
static void fail_object(node *d, uint64_t id, failure *f)
{
    directory_do(d, &(directory_event){.kind = DIRECTORY_FAIL, .object = id}, &(arrival){.failure = f});
    failure_unref(f);
}

/* ---- messages ---- */

/* Whether the client is dead, also when we have not been told yet: whoever runs
 * its call again has seen its pidfd. */
static bool is_dead(node *d, uint32_t id)
{
    const client *c = daemon_client(d, id);

    if (!c || c->dying) return true;
    struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
    return os->poll(&p, 1, 0) > 0;
}

/* A large value lies where its maker says: in a segment it writes. */
static bool is_placed_well(node *d, const client *c, const value *v)
{
    if (!v->place.segment) return true;
    segment **g = map_u64_find(&d->segments, v->place.segment);
    return g && (*g)->writer == c->id && v->place.at <= (*g)->size && v->size <= (*g)->size - v->place.at;
}

static bool add_one(node *d, client *c, wire *w)
{
    uint64_t id = wire_u64(w);
    uint32_t holder = wire_u32(w);
    uint64_t task = wire_u64(w), item = wire_u64(w);
    value v;

    value_take(w, &v);
    uint64_t n = wire_u64(w);
    const void *inner = n < SOCKET_MAX_MESSAGE / 8 ? wire_take(w, (size_t)n * 8) : NULL;
    if (!inner) return false;
    if (!is_placed_well(d, c, &v)) {
        log_error("an object outside its memory", LOG_INT("pid", c->pid));
        fail_object(d, id,
                    failure_make(MANTA_FAILURE_LOST, MANTA_ECORRUPT, NULL, (int)c->pid,
                                 "process %d made an object outside its memory", (int)c->pid));
        return true;
    }
    bool again = directory_state_of(d->objects, id) == DIRECTORY_READY;
    bool is_late = directory_state_of(d->objects, id) == DIRECTORY_BROKEN;
    bool is_orphan = again && is_dead(d, directory_maker(d->objects, id));
    const arrival x = {.v = &v, .holder = holder, .task = task, .item = item, .inner = inner, .n = n};
    directory_do(d,
                 &(directory_event){.kind = DIRECTORY_ADD,
                                    .object = id,
                                    .client = c->id,
                                    .place = v.place,
                                    .maker_is_dead = is_orphan},
                 &x);
    /* The caller has not heard of the first, says so (UNHEARD), and holds it no more. */
    if (is_orphan && holder && task) give_object(d, c->id, id, &x);
    /* The caller has heard of this one and let it go, since the call was cancelled: what it said of that, and that
     * the object has failed, was read before this. Its drop is of the hold that comes with this one. */
    if (is_late && holder) give_object(d, c->id, id, &x);
    return true;
}

static void on_add(node *d, client *c, wire *w)
{
    while (w->at < w->end && add_one(d, c, w)) {}
}

void daemon_promise(node *d, uint64_t id, uint32_t maker)
{
    /* The process that runs the call may have been heard first, over its own connection, and the
     * object be there. The one that promised it holds it all the same, and will drop that hold. */
    daemon_refs(d, REFS_HOLD, id, 0, maker);
    if (directory_maker(d->objects, id)) return;
    daemon_refs(d, REFS_ADD, id, 0, maker);
    directory_do(d, &(directory_event){.kind = DIRECTORY_PROMISE, .object = id, .client = maker}, NULL);
}

void daemon_fulfil(node *d, uint64_t id)
{
    value none = {0};

    if (directory_state_of(d->objects, id) != DIRECTORY_PROMISED) return;
    directory_do(
        d, &(directory_event){.kind = DIRECTORY_ADD, .object = id, .client = directory_maker(d->objects, id)},
        &(arrival){.v = &none});
}

void daemon_break(node *d, uint64_t id, failure *f)
{
    if (directory_state_of(d->objects, id) == DIRECTORY_PROMISED)
        fail_object(d, id, f);
    else
        failure_unref(f);
}

static void on_fail(node *d, wire *w)
{
    uint64_t id = wire_u64(w);
    failure *f = failure_take(w);

    if (wire_end(w, "failure"))
        failure_unref(f);
    else
        fail_object(d, id, f);
}

static void on_missed(node *d, client *c, wire *w)
{
    directory_event e = {.kind = DIRECTORY_MISSED, .object = wire_u64(w), .client = c->id};

    e.place.segment = wire_u64(w);
    e.place.at = wire_u64(w);
    if (wire_end(w, "object")) return;
    segment **g = map_u64_find(&d->segments, e.place.segment);
    e.is_lost = !g || spill_is_lost(d->spill, e.place.segment);
    directory_do(d, &e, NULL);
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

static void on_give(node *d, const client *c, wire *w)
{
    arrival x = {.holder = wire_u32(w)};

    (void)wire_u32(w);
    x.task = wire_u64(w);
    x.item = wire_u64(w);
    uint64_t n = wire_u64(w);
    const void *ids = n < SOCKET_MAX_MESSAGE / 8 ? wire_take(w, (size_t)n * 8) : NULL;
    if (!ids || wire_end(w, "gift")) return;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t id;
        memcpy(&id, (const char *)ids + i * 8, 8);
        give_object(d, c->id, id, &x);
    }
}

/* A client has read what a dead worker has answered, and names the calls that have no answer: what was
 * given to it with one is not its any more. */
static void on_unheard(node *d, const client *c, wire *w)
{
    gifts_objects lost = {0};
    uint32_t from = wire_u32(w), zero = wire_u32(w);
    uint64_t n = wire_u64(w);
    (void)zero;

    for (uint64_t i = 0; i < n && !w->broken; i++) {
        uint64_t task = wire_u64(w), items = wire_u64(w);
        if (!w->broken) gifts_unheard(d->gifts, from, c->id, task, items, &lost);
    }
    for (size_t i = 0; i < lost.n; i++) daemon_refs(d, REFS_DROP, lost.at[i], 0, c->id);
    if (!wire_end(w, "calls without an answer")) gifts_settled(d->gifts, from, c->id);
    vec_release(&lost);
}

/* Nobody holds the object any more. */
static void object_free(node *d, refs_freed f)
{
    if (registry_find_actor(d->registry, f.object))
        daemon_registry(d, (registry_event){.kind = REGISTRY_ACTOR_RELEASED, .id = f.object});
    directory_do(d, &(directory_event){.kind = DIRECTORY_FREE, .object = f.object}, NULL);
}

bool daemon_settle(node *d)
{
    refs_actions freed = {0};
    uint64_t changes = refs_changes(d->refs);
    size_t unknown = directory_unknown(d->objects);

    if (refs_candidates(d->refs) == 0 && unknown == 0) return false;
    daemon_drain_all(d);
    refs_step(d->refs, (refs_event){.kind = REFS_SETTLE, .changes = changes}, &freed);
    for (size_t i = 0; i < freed.n; i++) object_free(d, freed.at[i]);
    directory_do(d, &(directory_event){.kind = DIRECTORY_PASS, .n = unknown}, NULL);
    vec_release(&freed);
    return refs_candidates(d->refs) > 0 || directory_unknown(d->objects) > 0;
}

void daemon_break_promises(node *d, const client *c)
{
    directory_do(d, &(directory_event){.kind = DIRECTORY_GONE, .client = c->id}, NULL);
}

bool daemon_objects_message(node *d, client *c, proto_kind kind, wire *w)
{
    uint64_t id;

    switch (kind) {
    case PROTO_ADD: on_add(d, c, w); return true;
    case PROTO_PROMISE:
        id = wire_u64(w);
        if (!wire_end(w, "promise")) daemon_promise(d, id, c->id);
        return true;
    case PROTO_FAIL: on_fail(d, w); return true;
    case PROTO_HOLD: {
        uint32_t who = wire_u32(w);
        (void)wire_u32(w);
        on_counts(d, w, REFS_HOLD, who);
        return true;
    }
    case PROTO_GIVE: on_give(d, c, w); return true;
    case PROTO_UNHEARD: on_unheard(d, c, w); return true;
    case PROTO_DROP: on_counts(d, w, REFS_DROP, c->id); return true;
    case PROTO_WANT:
        id = wire_u64(w);
        if (!wire_end(w, "want"))
            directory_do(d, &(directory_event){.kind = DIRECTORY_WANT, .object = id, .client = c->id}, NULL);
        return true;
    case PROTO_MISSED: on_missed(d, c, w); return true;
    default: return false;
    }
}
