/* task_packed.c - the public functions of manta/packed.h about objects; results.c and task_asks.c
 * have those about calls. */
#include <manta/packed.h>

#include "base/args.h"
#include "task/inner.h"
#include "task/object.h"
#include "task/packed.h"
#include "task/runtime.h"
#include "task/value.h"

/* The object's bytes can be read. */
static manta_status view_object(object *o, manta_packed *out)
{
    if (o->v.kind != MANTA_KIND_PACKED)
        return manta_fail(MANTA_EINVAL, "the object is %s, not %s", value_kind_name(o->v.kind),
                          value_kind_name(MANTA_KIND_PACKED));
    if (!o->v.index) o->v.index = packed_index_new(o->v.at, o->v.size);
    packed_view(o->v.index, o->v.at, out);
    o->is_read = true;
    return MANTA_OK;
}

manta_status manta_get_packed(manta_ref ref, manta_packed *out, int64_t timeout_ms)
{
    REFUSE_NULL(out);

    object *o = NULL;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = object_await(ref, timeout_ms, true, &o);
    if (!st) {
        st = view_object(o, out);
        object_unmap(o); /* when it is of another kind */
        object_unpin(o);
    }
    mutex_unlock(&rt->lock);
    return st;
}

/* What `a` refers to is pinned. */
static manta_status create_object(const manta_arg *a, value *v, void **at, manta_ref *ref)
{
    TRY(store_take(rt->store, (size_t)v->size, &v->place, at));
    object_fill(a, v, *at);
    v->at = *at;
    v->index = packed_index_new(*at, v->size);
    object *o = object_new(object_id(1));
    o->v = *v;
    o->is_own = o->unsealed = true;
    o->refs = 1;
    object_hold_inner(&o->v);
    ref->id = o->id;
    return MANTA_OK;
}

manta_status manta_create_packed(const manta_packed *p, void **head, void **blocks, manta_ref *ref)
{
    REFUSE_NULL(p);
    if (p->n_blocks > 0) REFUSE_NULL(blocks);
    REFUSE_NULL(ref);

    value v = {.kind = MANTA_KIND_PACKED};
    const manta_arg a = manta_pack(p);
    void *at = NULL;
    manta_status st;

    if (!rt) return rt_none();
    TRY(packed_measure(p, true, &v.size));
    mutex_lock(&rt->lock);
    if (inner_exists(&a)) {
        inner_pin(&a);
        st = create_object(&a, &v, &at, ref);
        inner_unpin(&a);
    } else {
        st = manta_fail(MANTA_EINVAL, "a packed value holds a reference that is none, or was released");
    }
    mutex_unlock(&rt->lock);
    if (!st) packed_places(p, at, head, blocks);
    return st;
}
