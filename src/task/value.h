/* value.h - a value as it travels: what it is, and its bytes or their place.
 *
 * In a message: kind, dtype, ndim (u8 each), where (u8), the shape (i64 each),
 * the number of bytes (u64), then the bytes, from the next multiple of 8, or
 * segment and offset (u64 each). Numbers, truth values and actors are 8 bytes. */
#ifndef TASK_VALUE_H
#define TASK_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/value.h>

#include "base/buf.h"
#include "net/wire.h"
#include "store/store.h"
#include "task/proto.h"
#include "task/sizes.h"

typedef struct value {
    manta_kind kind;
    manta_dtype dtype; /* of an array */
    int ndim;
    int64_t shape[MANTA_MAX_DIMS];
    uint64_t size; /* bytes */
    uint64_t word; /* of a number, truth value or actor */
    const void *at; /* the bytes; NULL when they are at `place` */
    store_place place; /* segment 0: inside the message */
    struct packed_index
        *index; /* of a packed value (packed.h); NULL: it is read from `at`, which is private */
} value;

/* The value of an argument; MANTA_EINVAL it cannot be one. The bytes are the
 * argument's own: for an array that is not contiguous `at` is NULL and
 * value_copy() must gather it. */
manta_status value_of(const manta_arg *a, value *out) MANTA_MUST_USE;

/* Copies the bytes of an argument to `to` (v.size bytes). */
void value_copy(const manta_arg *a, const value *v, void *to);

/* What a value of any kind is, as an argument that points to its bytes; *array is the
 * array if it is one. Of a packed value only the kind is given. */
void value_view(const value *v, manta_arg *out, manta_array *array);

bool value_is_word(manta_kind k); /* its bytes are `word` */

uint64_t value_inner_listed(const value *v, const uint64_t **ids); /* of a kind that may have some */

/* Counts the objects that the value refers to; *ids points to their numbers, which lie in
 * the value or its index. 0 also when there is no index, and `at` does not point to its bytes. */
static inline uint64_t value_inner(const value *v, const uint64_t **ids)
{
    if (v->kind >= MANTA_KIND_REFS) return value_inner_listed(v, ids);
    *ids = NULL;
    return 0;
}

void value_put(buf *b, const value *v);
/* Reads a value; pointers lie in the message. Checks everything a reader could
 * stumble over: kinds, dtypes, shapes against sizes, texts for their end. */
void value_take(wire *w, value *out);

/* A reference that its reader resolves: only among the arguments of a
 * constructor. */
void value_put_ref(buf *b, uint64_t id);
bool value_take_ref(wire *w, uint64_t *id); /* false: something else is next */

const char *value_kind_name(manta_kind k);

/* In the place of a value: a failure follows. */
#define VALUE_FAILED 0xFFu
bool value_is_failure(const wire *w); /* a failure is next, and not a value */

#endif
