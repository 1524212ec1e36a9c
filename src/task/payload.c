/* payload.c - see payload.h. */
#include "task/payload.h"

#include <string.h>

#include "base/mem.h"
#include "task/object.h"
#include "task/packed.h"
#include "task/runtime.h"
#include "task/value.h"

/* HELD: who reads it holds the object. */
enum { PAYLOAD_NONE = 0, PAYLOAD_HERE = 1, PAYLOAD_OBJECT = 2, PAYLOAD_OBJECT_HELD = 3 };

/* Whoever takes some takes all, so that nobody ever looks at one that another has. */
_Atomic(payload *) payloads_gone;

/* ---- counting ---- */

static payload *payload_new(uint64_t id, size_t size)
{
    payload *p = mem_new(sizeof *p + size);

    atomic_init(&p->refs, 1);
    p->object = id;
    p->size = size;
    return p;
}

payload *payload_ref(payload *p)
{
    if (p) atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

static void payload_free(payload *p)
{
    mem_free(p->index);
    mem_free(p);
}

void payload_unref(payload *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) > 1) return;
    if (!p->adopted) {
        payload_free(p);
        return;
    }
    p->next = atomic_load(&payloads_gone);
    while (!atomic_compare_exchange_weak(&payloads_gone, &p->next, p)) {}
}

static void let_all_go(bool with_objects)
{
    for (payload *p = atomic_exchange(&payloads_gone, NULL), *next; p; p = next) {
        next = p->next;
        object *o = with_objects ? object_find(p->object) : NULL;
        if (o) object_unref(o);
        payload_free(p);
    }
}

void payloads_let_go(void)
{
    while (atomic_load(&payloads_gone)) let_all_go(true); /* one may hold another */
}

void payloads_forget(void)
{
    let_all_go(false);
}

/* ---- making ---- */

/* The value as an object of ours, which the payload holds. */
static manta_status make_object(const manta_packed *p, payload **out)
{
    const manta_arg a = manta_pack(p);
    value v;
    object *o = NULL;

    TRY(value_of(&a, &v));
    TRY(object_make(&a, &v, false, &o));
    o->refs = 1;
    *out = payload_new(o->id, 0);
    (*out)->adopted = true;
    return MANTA_OK;
}

manta_status payload_make(const char *text, const void *bytes, size_t n, payload **out)
{
    const manta_packed_block block = {bytes, n};
    const manta_packed p = {
        .head = text, .head_size = text ? strlen(text) + 1 : 0, .blocks = &block, .n_blocks = n > 0};
    uint64_t size;

    TRY(packed_measure(&p, false, &size));
    if (size > VALUE_INLINE) return make_object(&p, out);
    *out = payload_new(0, (size_t)size);
    packed_copy(&p, (*out)->bytes);
    return MANTA_OK;
}

/* What is here, without changing p: whoever has it may read it at the same time. */
static void view_bytes(const payload *p, packed_index **index, manta_packed *out)
{
    *index = packed_index_new(p->bytes, p->size);
    packed_view(*index, p->bytes, out);
}

manta_status payload_move_out(const payload *p, payload **out)
{
    packed_index *index = NULL;
    manta_packed view;

    view_bytes(p, &index, &view);
    manta_status st = make_object(&view, out);
    mem_free(index);
    return st;
}

/* ---- in messages ---- */

size_t payload_length(const payload *p)
{
    return p ? 16 + p->size : 4;
}

void payload_put(buf *b, const payload *p, bool held)
{
    wire_put_u32(b, !p           ? PAYLOAD_NONE
                    : !p->object ? PAYLOAD_HERE
                    : held       ? PAYLOAD_OBJECT_HELD
                                 : PAYLOAD_OBJECT);
    if (p && p->object)
        wire_put_u64(b, p->object);
    else if (p)
        wire_put_bytes(b, p->bytes, p->size);
}

/* Whether private bytes are a packed value as payload_make() makes it. */
static bool is_payload(const void *at, size_t size)
{
    manta_packed view;

    if (!packed_is_sound(at, size)) return false;
    packed_index *index = packed_index_new(at, size);
    packed_view(index, at, &view);
    bool yes = view.n_refs == 0 && view.n_actors == 0 && view.n_blocks <= 1 &&
               (view.head_size == 0 || ((const char *)view.head)[view.head_size - 1] == 0);
    mem_free(index);
    return yes;
}

static payload *take_bytes(wire *w)
{
    size_t n;
    const void *at = wire_bytes(w, &n);

    if (!at || n > VALUE_INLINE) {
        w->broken = true;
        return NULL;
    }
    payload *p = payload_new(0, n);
    if (n > 0) memcpy(p->bytes, at, n);
    if (is_payload(p->bytes, n)) return p;
    payload_free(p);
    w->broken = true;
    return NULL;
}

payload *payload_take(wire *w)
{
    uint32_t form = wire_u32(w);

    if (form == PAYLOAD_HERE) return take_bytes(w);
    uint64_t id = form == PAYLOAD_OBJECT || form == PAYLOAD_OBJECT_HELD ? wire_u64(w) : 0;
    if (form > PAYLOAD_OBJECT_HELD || (form != PAYLOAD_NONE && !id)) w->broken = true;
    if (w->broken || !id) return NULL;
    payload *p = payload_new(id, 0);
    p->told = form == PAYLOAD_OBJECT_HELD;
    return p;
}

/* ---- objects ---- */

bool payload_adopt(payload *p)
{
    if (!p || !p->object || p->adopted) return true;
    if (object_may_be(p->object)) return false;
    object_adopt(p->object, p->told)->refs++;
    p->adopted = true;
    return true;
}

void payload_pass_on(const payload *p, const object_gift *to)
{
    object *o = p && p->object ? object_find(p->object) : NULL;

    if (!o) return;
    object_export(o);
    if (to) object_give(to, &p->object, 1);
}

/* ---- reading ---- */

static manta_status read_object(const payload *p, manta_packed *out)
{
    object *o = NULL;

    TRY(object_await((manta_ref){p->object}, MANTA_FOREVER, true, &o));
    manta_status st = MANTA_OK;
    if (o->v.kind != MANTA_KIND_PACKED)
        st = manta_fail(MANTA_ECORRUPT, "what a failure carries is %s, expected %s",
                        value_kind_name(o->v.kind), value_kind_name(MANTA_KIND_PACKED));
    if (!st) {
        if (!o->v.index) o->v.index = packed_index_new(o->v.at, o->v.size);
        packed_view(o->v.index, o->v.at, out);
        o->is_read = true; /* it stays where it is as long as p holds it */
    }
    object_unmap(o);
    object_unpin(o);
    return st;
}

manta_status payload_read(payload *p, const char **text, const void **bytes, size_t *n)
{
    manta_packed view = {0};

    if (p->object) {
        TRY(read_object(p, &view));
        if (view.head_size > 0 && ((const char *)view.head)[view.head_size - 1] != 0)
            return manta_fail(MANTA_ECORRUPT, "the text of a failure does not end as one");
    } else {
        if (!p->index) p->index = packed_index_new(p->bytes, p->size);
        packed_view(p->index, p->bytes, &view);
    }
    *text = view.head_size > 0 ? view.head : NULL;
    *bytes = view.n_blocks > 0 ? view.blocks[0].at : NULL;
    *n = view.n_blocks > 0 ? view.blocks[0].size : 0;
    return MANTA_OK;
}
