/* strategy_values.c - values that replicas leave for the caller of their run. */
#include <stdio.h>
#include <string.h>

#include <manta/strategy.h>

#include "base/args.h"
#include "base/status.h"
#include "comm/reduce.h"
#include "train/trainer/strategy_memory.h"

enum { NAME = 64 };

/* In a replica's area, one after the other. */
typedef struct value {
    char name[NAME];
    manta_array array; /* data: bytes from this head on */
    size_t size; /* of head and data, rounded */
} value;

static value *find_value(const manta_strategy *s, int rank, const char *name)
{
    size_t used = atomic_load(&commits_of(s)->end[rank].used);

    for (size_t at = 0; at < used;) {
        value *v = (value *)(void *)(values_of(s, rank) + at);
        if (!strcmp(v->name, name)) return v;
        at += v->size;
    }
    return NULL;
}

manta_status manta_replica_leave(manta_replica *r, const char *name, const manta_array *array)
{
    REFUSE_NULL(r);
    REFUSE_NULL(name);
    if (!array) return args_fail_null(__func__, "value");

    epitaph *e = &commits_of(r->s)->end[r->rank];
    size_t bytes = manta_array_bytes(array),
           size = strategy_round_up(sizeof(value)) + strategy_round_up(bytes), used = e->used;
    value *v = find_value(r->s, r->rank, name);

    if (strlen(name) >= NAME)
        return manta_fail(MANTA_EINVAL, "value '%.20s...': its name has %zu bytes, expected up to %d", name,
                          strlen(name), NAME - 1);
    if (!manta_array_is_contiguous(array))
        return manta_fail(MANTA_EINVAL, "value '%s' has strides of its own, expected a row-major array",
                          name);
    if (v && v->size != size)
        return manta_fail(MANTA_EINVAL, "value '%s' has %zu bytes, expected %zu as when it was left before",
                          name, bytes, manta_array_bytes(&v->array));
    if (!v && size > r->s->value_size - used) {
        return manta_fail(
            MANTA_ENOSPC,
            "value '%s' of %zu bytes has no room: of value_bytes, %zu are left for it and its head", name,
            bytes, r->s->value_size - used);
    }
    if (!v) v = (value *)(void *)(values_of(r->s, r->rank) + used);
    snprintf(v->name, sizeof v->name, "%s", name);
    v->array = *array;
    v->array.data = NULL; /* an address of this process; the bytes lie behind the head */
    v->size = size;
    memcpy((char *)v + strategy_round_up(sizeof *v), array->data, bytes);
    if (v == (value *)(void *)(values_of(r->s, r->rank) + used)) atomic_store(&e->used, used + size);
    return MANTA_OK;
}

manta_status manta_strategy_value(const manta_strategy *s, int rank, const char *name, manta_array *out)
{
    REFUSE_NULL(s);
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    value *v;

    if (rank < 0 || rank >= s->n)
        return manta_fail(MANTA_EINVAL, "strategy: a value of replica %d is asked for, expected 0 to %d",
                          rank, s->n - 1);
    v = s->memory ? find_value(s, rank, name) : NULL;
    if (!v) return manta_fail(MANTA_ENOENT, "replica %d has left no value '%s'", rank, name);
    *out = v->array;
    out->data = (char *)v + strategy_round_up(sizeof *v);
    return MANTA_OK;
}

manta_status manta_strategy_reduce(const manta_strategy *s, const char *name, manta_reduce how,
                                   const manta_array *out)
{
    REFUSE_NULL(s);
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    const void *from[MANTA_GROUP_MAX];

    for (int i = 0; i < s->n; i++) {
        manta_array a;
        TRY(manta_strategy_value(s, i, name, &a));
        if (a.dtype != out->dtype || manta_array_count(&a) != manta_array_count(out)) {
            return manta_fail(MANTA_EINVAL,
                              "value '%s' of replica %d has %lld elements of %s, expected %lld of %s", name,
                              i, (long long)manta_array_count(&a), manta_dtype_name(a.dtype),
                              (long long)manta_array_count(out), manta_dtype_name(out->dtype));
        }
        from[i] = a.data;
    }
    reduce_run(out->dtype, how, from, s->n, out->data, manta_array_count(out));
    return MANTA_OK;
}

manta_status manta_strategy_gather(const manta_strategy *s, const char *name, void *out, size_t size)
{
    REFUSE_NULL(s);
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    size_t at = 0;

    for (int i = 0; i < s->n; i++) {
        manta_array a;
        TRY(manta_strategy_value(s, i, name, &a));
        if (manta_array_bytes(&a) > size - at)
            return manta_fail(MANTA_ENOSPC,
                              "value '%s' of replicas 0 to %d has %zu bytes, expected up to %zu for all",
                              name, i, at + manta_array_bytes(&a), size);
        memcpy((char *)out + at, a.data, manta_array_bytes(&a));
        at += manta_array_bytes(&a);
    }
    return MANTA_OK;
}
