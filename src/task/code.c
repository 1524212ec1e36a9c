/* code.c - code by key (manta/code.h), as a process of the program sees it.
 *
 *     put:  an object of bytes ── ADD, CODE_PUT key, object ──▶ daemon: the program holds it
 *     get:  CODE_GET key ──▶ daemon ── object, held for us ──▶ read as any object, and kept
 *
 * The bytes are an object like others, so they are in shared memory once, may go to disk, and
 * survive who made them. What a process has read, or put, stays in rt->codes with its
 * reference until the runtime ends. Putting waits for the daemon's answer: whoever learns of a key
 * afterwards, over whatever way, finds it. */
#include <manta/code.h>

#include <stdio.h>

#include "base/args.h"
#include "base/mem.h"
#include "task/object.h"
#include "task/proto.h"
#include "task/runtime.h"

static void name_key(const void *key, char name[2 * MANTA_CODE_KEY + 1])
{
    const unsigned char *k = key;

    for (size_t i = 0; i < MANTA_CODE_KEY; i++) snprintf(name + 2 * i, 3, "%02x", k[i]);
}

/* Asks the daemon; *id is the object under the key. */
static manta_status ask_daemon(proto_kind kind, const void *key, uint64_t put, uint64_t *id)
{
    reply r;

    if (rt->is_dead) return failure_raise(rt->death);
    uint64_t request = rt_request_begin(kind);
    buf_add(&rt->out, key, MANTA_CODE_KEY);
    if (kind == PROTO_CODE_PUT) wire_put_u64(&rt->out, put);
    TRY(rt_request(request, &r));
    *id = r.id;
    return MANTA_OK;
}

/* The lock is held; o is the object of the bytes, with a reference for rt->codes. */
static void keep_code(const char *name, object *o)
{
    if (map_find(&rt->codes, name))
        object_unref(o); /* another thread was faster */
    else
        *map_put(&rt->codes, name) = o->id;
}

static manta_status put_code(const void *key, const char *name, const manta_arg *a)
{
    value v;
    object *o = NULL;

    if (map_find(&rt->codes, name)) return MANTA_OK;
    TRY(value_of(a, &v));
    TRY(object_make(a, &v, false, &o));
    o->refs = 1;
    uint64_t mine = o->id, known = mine;
    if (!rt->is_local) {
        object_export(o);
        manta_status st = ask_daemon(PROTO_CODE_PUT, key, mine, &known);
        if (st || known != mine) { /* another process was faster */
            object_unref(o);
            return st;
        }
    }
    keep_code(name, o);
    return MANTA_OK;
}

manta_status manta_code_put(const void *key, const void *bytes, size_t n)
{
    REFUSE_NULL(key);
    if (n > 0) REFUSE_NULL(bytes);

    char name[2 * MANTA_CODE_KEY + 1];
    const manta_arg a = manta_bytes(bytes, n);

    if (!rt) return rt_none();
    name_key(key, name);
    mutex_lock(&rt->lock);
    manta_status st = put_code(key, name, &a);
    rt_flush_drops();
    mutex_unlock(&rt->lock);
    return st;
}

/* Finds the object under the key, here or by asking. */
static manta_status find_code(const void *key, const char *name, uint64_t *id)
{
    const uint64_t *known = map_find(&rt->codes, name);

    if (known) {
        *id = *known;
        return MANTA_OK;
    }
    if (rt->is_local) return manta_fail(MANTA_ENOENT, "no code was put under the key %s", name);
    TRY(ask_daemon(PROTO_CODE_GET, key, 0, id));
    TRY(object_may_be(*id));
    object *o = object_adopt(*id, true);
    o->refs++;
    keep_code(name, o);
    return MANTA_OK;
}

manta_status manta_code_get(const void *key, const void **at, size_t *n)
{
    REFUSE_NULL(key);
    REFUSE_NULL(at);
    REFUSE_NULL(n);

    char name[2 * MANTA_CODE_KEY + 1];
    uint64_t id = 0;
    object *o = NULL;

    if (!rt) return rt_none();
    name_key(key, name);
    mutex_lock(&rt->lock);
    manta_status st = find_code(key, name, &id);
    if (!st) st = object_await((manta_ref){id}, MANTA_FOREVER, true, &o);
    if (!st) {
        if (o->v.kind != MANTA_KIND_BYTES)
            st = manta_fail(MANTA_ECORRUPT, "what lies under the key %s is %s, expected %s", name,
                            value_kind_name(o->v.kind), value_kind_name(MANTA_KIND_BYTES));
        o->is_read = o->is_read || !st; /* it stays where it is */
        *at = o->v.at;
        *n = (size_t)o->v.size;
        object_unmap(o);
        object_unpin(o);
    }
    mutex_unlock(&rt->lock);
    return st;
}
