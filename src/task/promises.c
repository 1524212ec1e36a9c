/* promises.c - references to values that this process gives later (manta_promise()).
 *
 * A promise is an object of ours without a value: whoever waits for it waits, and the daemon is told
 * of it as of the result of a call (object_export()). It is settled once. */
#include <manta/failure.h>
#include <manta/object.h>
#include <manta/value.h>

#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/mem.h"
#include "task/object.h"
#include "task/packed.h"
#include "task/runtime.h"
#include "task/sizes.h"

manta_ref manta_promise(void)
{
    manta_ref r = {0};

    if (!rt) {
        (void)rt_none();
        return r;
    }
    mutex_lock(&rt->lock);
    object *o = object_new(object_id(1));
    o->refs = 1;
    o->promised = true;
    r.id = o->id;
    mutex_unlock(&rt->lock);
    return r;
}

static manta_status find_promise(manta_ref ref, object **out)
{
    *out = object_find(ref.id);
    if (*out && (*out)->promised) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "the reference is no promise, or was settled or released before");
}

/* A copy of the value of an object whose bytes can be read, in memory of our own; nobody holds what it
 * refers to yet. */
static manta_status copy_value(const value *from, object *o)
{
    void *at = NULL;

    o->v = *from;
    o->v.index = NULL;
    o->v.place = (store_place){0};
    if (value_is_word(from->kind) || from->kind == MANTA_KIND_NONE) return MANTA_OK;
    if (from->size > VALUE_INLINE) {
        TRY(store_take(rt->store, (size_t)from->size, &o->v.place, &at));
        o->is_own = true;
    } else {
        at = mem_new((size_t)from->size + 1);
        o->on_heap = true;
    }
    if (from->size > 0) memcpy(at, from->at, (size_t)from->size);
    o->v.at = at;
    if (o->is_own && from->kind == MANTA_KIND_PACKED) o->v.index = packed_index_new(at, from->size);
    return MANTA_OK;
}

/* `as` is pinned, and its bytes can be read. */
static manta_status keep_promise(object *o, const object *as)
{
    manta_status st = copy_value(&as->v, o);

    if (st) {
        o->v = (value){0};
        return st;
    }
    object_hold_inner(&o->v);
    if (o->is_own) object_sealed(o);
    object_kept(o);
    return MANTA_OK;
}

manta_status manta_promise_settle(manta_ref promise, manta_ref as)
{
    object *o = NULL, *from = NULL;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = find_promise(promise, &o);
    if (!st) {
        o->pins++;
        st = object_await(as, 0, true, &from);
        const object *failed = object_find(as.id);
        if (st && failed && failed->state == OBJECT_FAILED) {
            object_fail(o, failure_ref(failed->failure));
            st = MANTA_OK;
        } else if (!st) {
            st = keep_promise(o, from);
            object_unmap(from);
            object_unpin(from);
        }
        object_unpin(o);
    }
    rt_flush_drops();
    if (rt->waiters > 0) rt_changed();
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_promise_break(manta_ref promise, manta_status code, const char *text)
{
    REFUSE_NULL(text);

    object *o = NULL;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = find_promise(promise, &o);
    if (!st)
        object_fail(o, failure_make(MANTA_FAILURE_TASK, code, "manta.promise", (int)getpid(), "%s", text));
    if (rt->waiters > 0) rt_changed();
    mutex_unlock(&rt->lock);
    return st;
}
