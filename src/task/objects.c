/* objects.c - the objects this process knows: how entries come, become ready, are told to others, are read, and
 * go. What the fields mean is in object.h.
 *
 *     object_make ─────────────────────────────────────▶ READY ◀── object_set, object_kept
 *     object_new, object_adopt ──▶ PENDING ──────────────┘ │
 *                                     │                    └─ lost, and made again (rebuild.c): PENDING
 *                                     └── object_fail ──▶ FAILED
 *     object_free: when nothing refers to the entry, uses it, makes it or waits for it
 *
 *     of our own objects:  private ──object_export──▶ exported: the daemon was told (ADD, or PROMISE and later ADD
 *                          or FAIL), and counts a hold of ours, which is dropped with the entry
 *     of others' objects:  exported from the beginning; `held` says how many holds the daemon counts for us
 *
 * Who writes what: every entry under rt->lock. object_make() and object_map() may give it away for a while: then
 * the new object has no entry yet, or the entry is pinned. Bytes in a segment are written by their maker until
 * object_sealed() and by nobody after; but a reader does not count on that: what others could still change is
 * copied when it is checked (check_mapped()).
 *
 * Invariants
 * 1. What a value contains is counted once for as long as the value is here: adopt_inner() or object_hold_inner()
 *    when it comes, forget_inner() when it goes.
 * 2. Before another process hears of an object the daemon does: object_export_inner() comes before the message that
 *    has the value, and rt_flush_adds() before any other message.
 * 3. A number in a message is looked at (object_may_be(), object_may_hold()) before an entry is made for it: one of
 *    ours that was not given out yet would take the place of the object that gets it.
 *
 * What may be changed: from which size on the lock is given away for a copy, and how many ADDs wait for company
 * (sizes.h). */
#include "task/object.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "os/socket.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/inner.h"
#include "task/packed.h"
#include "task/proto.h"
#include "task/rebuild.h"
#include "task/runtime.h"
#include "task/sizes.h"
#include "task/value.h"
#include "task/watch.h"

object *object_find(uint64_t id)
{
    object **o = map_u64_find(&rt->objects, id);

    return o ? *o : NULL;
}

object *object_new(uint64_t id)
{
    assert(!object_find(id)); /* it would be lost; object_may_be() keeps strangers from it */
    object *o = spares_take(&rt->spare_objects, sizeof *o);
    o->id = id;
    *map_u64_put(&rt->objects, id) = o;
    return o;
}

uint64_t object_id(int n)
{
    uint64_t first = ((uint64_t)rt->client << CLIENT_SHIFT) + rt->next_id + 1;

    rt->next_id += (uint64_t)n;
    return first;
}

manta_status object_may_be(uint64_t id)
{
    uint64_t count = id & ((1ULL << CLIENT_SHIFT) - 1);

    if (id >> CLIENT_SHIFT != rt->client || (count > 0 && count <= rt->next_id)) return MANTA_OK;
    return manta_fail(MANTA_ECORRUPT, "a message names object %llu of process %d, which has made only %llu",
                      (unsigned long long)count, (int)getpid(), (unsigned long long)rt->next_id);
}

manta_status object_may_hold(const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t i = 0; i < n; i++) TRY(object_may_be(ids[i]));
    return MANTA_OK;
}

object *object_adopt(uint64_t id, bool told)
{
    object *o = object_find(id);

    if (!o) {
        o = object_new(id);
        o->exported = true;
        o->held++;
        if (!told) vec_push(&rt->holds, id);
    } else if (told) {
        o->held++;
    }
    return o;
}

void object_give(const object_gift *to, const uint64_t *ids, uint64_t n)
{
    buf b = {0}; /* an answer may be half written in rt->out */

    rt_flush_adds();
    proto_begin(&b, PROTO_GIVE);
    wire_put_u32(&b, to->client);
    wire_put_u32(&b, 0);
    wire_put_u64(&b, to->task);
    wire_put_u64(&b, to->item);
    wire_put_u64(&b, n);
    buf_add(&b, ids, (size_t)n * 8);
    rt_tell_bytes(b.at, b.n);
    buf_release(&b);
}

void object_tell_add(uint64_t id, object_gift to, const value *v, const void *inner, uint64_t n)
{
    buf *b = &rt->adds;

    if (b->n + n * 8 > SOCKET_MAX_MESSAGE - 2 * ADDS_MOST) rt_flush_adds();
    if (b->n == 0) proto_begin(b, PROTO_ADD);
    wire_put_u64(b, id);
    wire_put_u32(b, to.client);
    wire_put_u64(b, to.task);
    wire_put_u64(b, to.item);
    value_put(b, v);
    wire_put_u64(b, n);
    buf_add(b, inner, (size_t)n * 8);
    if (b->n > ADDS_MOST) rt_flush_adds();
}

/* ---- values of our own ---- */

/* The block of our own object is written: it may leave memory until somebody
 * reads it. References stay readable, because we follow them ourselves. */
void object_sealed(object *o)
{
    if (o->v.kind == MANTA_KIND_REFS) {
        o->is_pinned = true;
        return;
    }
    o->v.at = NULL;
    store_seal(rt->store, o->v.place);
}

void object_hold_inner(const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t i = 0; i < n; i++) {
        object *inner = object_find(ids[i]);
        if (inner) inner->refs++;
    }
}

void object_fill(const manta_arg *a, const value *v, void *to)
{
    bool alone = v->size >= FILL_ALONE;

    if (alone) mutex_unlock(&rt->lock);
    value_copy(a, v, to);
    if (alone) mutex_lock(&rt->lock);
}

manta_status object_make(const manta_arg *a, const value *given, bool apart, object **out)
{
    value v = *given;
    void *at = NULL;
    bool own = false;

    if (v.kind == MANTA_KIND_REFS && v.size / 8 > MANTA_PACKED_INNER)
        return manta_fail(MANTA_EINVAL, "a value has %llu references, at most %d are allowed",
                          (unsigned long long)(v.size / 8), MANTA_PACKED_INNER);
    if (v.kind != MANTA_KIND_ACTOR && !inner_exists(a))
        return manta_fail(MANTA_EINVAL, "a value holds a reference that is none, or was released");
    inner_pin(a);
    if (!value_is_word(v.kind) && v.kind != MANTA_KIND_NONE) {
        if (v.size > VALUE_INLINE || (apart && v.size > 0)) {
            manta_status st = store_take(rt->store, v.size, &v.place, &at);
            if (st) {
                inner_unpin(a);
                return st;
            }
            own = true;
        } else {
            at = mem_new((size_t)v.size + 1);
        }
        object_fill(a, &v, at);
        v.at = at;
        if (own && v.kind == MANTA_KIND_PACKED) v.index = packed_index_new(at, v.size);
    }
    object *o = object_new(object_id(1)); /* nobody can name it before it is whole */
    o->state = OBJECT_READY;
    o->v = v;
    o->is_own = own;
    o->on_heap = at && !own;
    object_hold_inner(&o->v);
    inner_unpin(a);
    if (own) object_sealed(o);
    *out = o;
    return MANTA_OK;
}

/* ---- becoming ready ---- */

void object_export_inner(const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t i = 0; i < n; i++) {
        object *inner = object_find(ids[i]);
        if (inner) object_export(inner);
    }
}

/* Tells the daemon of an object that others may ask for. */
static void tell_add(object *o, uint32_t holder)
{
    const uint64_t *ids;
    uint64_t n = value_inner(&o->v, &ids);

    object_export_inner(&o->v);
    object_tell_add(o->id, (object_gift){.client = holder}, &o->v, ids, n);
    if (o->is_own) *map_u64_put(&rt->given, o->id) = o->v.place;
}

static void tell_fail(const object *o)
{
    payload_pass_on(o->failure->payload, NULL); /* the daemon's object is to contain it */
    buf *b = proto_begin(&rt->out, PROTO_FAIL);
    wire_put_u64(b, o->id);
    failure_put(b, o->failure);
    rt_tell();
}

static void object_settled(object *o)
{
    rt->settled++;
    /* A call that is ready may be sent at once, and that may end others, which leave the list (call_abandon()):
     * who has been told is in it no more, so that nobody who has not been told moves to a place before i. */
    for (size_t i = 0; i < o->waiting.n; i++) {
        call *c = o->waiting.at[i];
        o->waiting.at[i] = NULL;
        call_argument_ready(c);
    }
    vec_release(&o->waiting);
    o->maker = NULL;
    if (o->watched) watch_settled(o);
    o->pins++; /* the last of these may have been its last user */
    object_unpin(o);
}

/* References inside a value that has come are counted once each. */
static void adopt_inner(const value *v, bool told)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t i = 0; i < n; i++) object_adopt(ids[i], told)->refs++;
}

static void forget_inner(const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t i = 0; i < n; i++) {
        object *inner = object_find(ids[i]);
        if (inner) object_unref(inner);
    }
}

void object_set(object *o, const value *v, object_source from)
{
    bool was_promised = o->exported && o->maker, told = from == OBJECT_FROM_PEER, counted = false;
    const value before = o->v; /* of an object that was lost: it holds what it referred to until now */

    if (object_may_hold(v)) {
        object_fail(o, failure_make(MANTA_FAILURE_TASK, MANTA_ECORRUPT, NULL, (int)getpid(), "%s",
                                    manta_error_text()));
        return;
    }
    o->v = *v;
    o->state = OBJECT_READY;
    if (v->place.segment) {
        o->v.at = NULL;
        if (from == OBJECT_FROM_HERE) {
            o->is_own = true;
            counted = v->kind == MANTA_KIND_REFS || v->kind == MANTA_KIND_PACKED;
            if (counted && object_map(o)) /* holds what it refers to */
                log_error("references cannot be read", LOG_STR("why", manta_error_text()));
            object_unmap(o);
        } else {
            was_promised = false;
            if (told) o->held++;
            o->exported = true;
        }
    } else if (v->at) {
        void *copy = mem_new((size_t)v->size + 1);
        if (v->size > 0) memcpy(copy, v->at, (size_t)v->size);
        o->v.at = copy;
        o->on_heap = true;
    }
    if (!counted) adopt_inner(&o->v, told);
    if (before.index) forget_inner(&before);
    mem_free(before.index);
    if (was_promised) tell_add(o, 0);
    object_settled(o);
}

void object_drop_value(uint64_t id, const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    if (rt->is_local) return;
    if (id) {
        vec_push(&rt->drops, id);
        return;
    }
    for (uint64_t i = 0; i < n; i++) vec_push(&rt->drops, ids[i]);
}

void object_fail(object *o, failure *f)
{
    o->state = OBJECT_FAILED;
    o->failure = f;
    if (o->exported && (o->maker || o->promised)) tell_fail(o);
    o->promised = false;
    object_settled(o);
}

void object_kept(object *o)
{
    o->promised = false;
    o->state = OBJECT_READY;
    if (o->exported) tell_add(o, 0);
    object_settled(o);
}

void object_export(object *o)
{
    if (o->exported || rt->is_local) return;
    o->exported = true;
    o->held++;
    if (o->state == OBJECT_READY) {
        tell_add(o, rt->client);
        return;
    }
    buf *b = proto_begin(&rt->out, PROTO_PROMISE);
    wire_put_u64(b, o->id);
    rt_tell();
    if (o->state == OBJECT_FAILED) tell_fail(o);
}

void object_want(object *o)
{
    if (o->state != OBJECT_PENDING || o->maker || o->wanted || o->unsealed || o->promised) return;
    o->wanted = true;
    buf *b = proto_begin(&rt->out, PROTO_WANT);
    wire_put_u64(b, o->id);
    rt_tell();
}

/* ---- reading ---- */

/* Checks bytes in a segment, where their writer can still change them: what is counted on
 * later is copied to seen->index. */
static manta_status check_mapped(const object *o, value *seen)
{
    if (seen->kind == MANTA_KIND_STR && ((const char *)seen->at)[seen->size - 1] != 0)
        return manta_fail(MANTA_ECORRUPT, "object %llu is a text, and its bytes do not end as one",
                          (unsigned long long)o->id);
    if (seen->kind == MANTA_KIND_PACKED && !seen->index) {
        seen->index = packed_index_new(seen->at, seen->size);
        if (!seen->index)
            return manta_fail(MANTA_ECORRUPT, "object %llu is a packed value, and its parts do not lie in it",
                              (unsigned long long)o->id);
    }
    return object_may_hold(seen);
}

manta_status object_map(object *o)
{
    const void *at;
    value *v = &o->v;

    if (v->at || !v->place.segment) return MANTA_OK;
    o->pins++; /* opening a segment may give the lock away */
    manta_status st = store_pin(rt->store, v->place, (size_t)v->size, &at);
    value seen = *v;
    seen.at = at;
    if (!st && v->at) {
        store_unpin(rt->store, v->place); /* another thread was faster */
    } else if (!st && (st = check_mapped(o, &seen))) {
        store_unpin(rt->store, v->place);
        if (seen.index != v->index) mem_free(seen.index);
    } else if (!st) {
        bool counted = v->index != NULL; /* when it was mapped before, or made */
        *v = seen;
        o->is_pinned = true;
        if (!counted) adopt_inner(v, false);
    }
    o->pins--;
    return st;
}

void object_unmap(object *o)
{
    if (!o->is_pinned || o->is_read || o->kept > 0 || o->v.kind == MANTA_KIND_REFS) return;
    o->is_pinned = false;
    o->v.at = NULL;
    store_unpin(rt->store, o->v.place);
}

/* ---- the end ---- */

static void object_free(object *o)
{
    if (o->refs > 0 || o->pins > 0 || o->maker || o->waiting.n > 0) return;
    map_u64_remove(&rt->objects, o->id);
    if (o->state == OBJECT_READY || o->v.index) forget_inner(&o->v);
    for (int32_t i = 0; i < o->held; i++) vec_push(&rt->drops, o->id);
    if (o->on_heap) mem_free((void *)(uintptr_t)o->v.at);
    if (o->is_pinned || o->unsealed) store_unpin(rt->store, o->v.place);
    if (o->is_own && !o->exported) store_give(rt->store, o->v.place);
    mem_free(o->v.index);
    actor_forget(o->id);
    rebuild_dropped(o->id);
    failure_unref(o->failure);
    vec_release(&o->waiting);
    spares_give(&rt->spare_objects, o);
}

void object_unref(object *o)
{
    if (o->refs > 0) o->refs--;
    object_free(o);
}

void object_unpin(object *o)
{
    if (o->pins > 0) o->pins--;
    object_free(o);
}
