/* value.c - see value.h. */
#include "task/value.h"

#include <string.h>

#include "task/packed.h"

enum { AT_MESSAGE = 0, AT_PLACE = 1 };

static const char *const kind_names[] = {"nothing",  "a number (f64)", "an integer",    "a truth value",
                                         "a text",   "bytes",          "an array",      "references",
                                         "an actor", "a reference",    "a packed value"};

const char *value_kind_name(manta_kind k)
{
    return (unsigned)k < sizeof kind_names / sizeof kind_names[0] ? kind_names[k] : "?";
}

bool value_is_word(manta_kind k)
{
    return k == MANTA_KIND_F64 || k == MANTA_KIND_I64 || k == MANTA_KIND_BOOL || k == MANTA_KIND_ACTOR;
}

uint64_t value_inner_listed(const value *v, const uint64_t **ids)
{
    if (v->kind == MANTA_KIND_PACKED && v->index) return packed_index_inner(v->index, ids);
    if (v->kind == MANTA_KIND_PACKED && v->at) return packed_inner(v->at, ids);
    *ids = v->kind == MANTA_KIND_ACTOR ? &v->word : v->at;
    if (v->kind == MANTA_KIND_ACTOR) return 1;
    return v->kind == MANTA_KIND_REFS && v->at ? v->size / sizeof **ids : 0;
}

static manta_status array_of(const manta_array *a, value *v)
{
    if (!a) return manta_fail(MANTA_EINVAL, "an argument is an array at NULL, expected its address");
    if (a->ndim < 0 || a->ndim > MANTA_MAX_DIMS || manta_dtype_size(a->dtype) == 0)
        return manta_fail(MANTA_EINVAL,
                          "an array has type %d and %d dimensions, expected a known type and at most %d",
                          (int)a->dtype, a->ndim, MANTA_MAX_DIMS);
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] < 0)
            return manta_fail(MANTA_EINVAL, "dimension %d of an array is %lld, expected 0 or more", i,
                              (long long)a->shape[i]);
    v->dtype = a->dtype;
    v->ndim = a->ndim;
    memcpy(v->shape, a->shape, sizeof v->shape);
    v->size = manta_array_bytes(a);
    v->at = manta_array_is_contiguous(a) ? a->data : NULL;
    return MANTA_OK;
}

manta_status value_of(const manta_arg *a, value *out)
{
    *out = (value){.kind = a->kind};
    switch (a->kind) {
    case MANTA_KIND_NONE: return MANTA_OK;
    case MANTA_KIND_F64: memcpy(&out->word, &a->as.f64, 8); break;
    case MANTA_KIND_I64:
    case MANTA_KIND_BOOL: out->word = (uint64_t)a->as.i64; break;
    case MANTA_KIND_ACTOR: out->word = a->as.id; break;
    case MANTA_KIND_STR:
        if (!a->as.bytes.at)
            return manta_fail(MANTA_EINVAL, "an argument is a text at NULL, expected its bytes");
        out->size = a->as.bytes.n + 1;
        out->at = a->as.bytes.at;
        return MANTA_OK;
    case MANTA_KIND_BYTES:
    case MANTA_KIND_REFS:
        if (!a->as.bytes.at && a->as.bytes.n > 0)
            return manta_fail(MANTA_EINVAL, "an argument is %zu bytes at NULL, expected their address",
                              a->as.bytes.n);
        out->size = a->as.bytes.n * (a->kind == MANTA_KIND_REFS ? sizeof(manta_ref) : 1);
        out->at = a->as.bytes.at;
        return MANTA_OK;
    case MANTA_KIND_ARRAY: return array_of(a->as.array, out);
    case MANTA_KIND_PACKED: return packed_measure(a->as.packed, false, &out->size);
    case MANTA_KIND_REF:
    default:
        return manta_fail(MANTA_EINVAL, "an argument has kind %d, which cannot be a value", (int)a->kind);
    }
    out->size = 8;
    return MANTA_OK;
}

/* Gathers a strided array, innermost dimension by hand. */
static char *gather_elements(const manta_array *a, int d, const char *from, size_t item, char *to)
{
    if (d == a->ndim) {
        memcpy(to, from, item);
        return to + item;
    }
    for (int64_t i = 0; i < a->shape[d]; i++)
        to = gather_elements(a, d + 1, from + i * a->strides[d] * (int64_t)item, item, to);
    return to;
}

void value_copy(const manta_arg *a, const value *v, void *to)
{
    if (a->kind == MANTA_KIND_PACKED)
        packed_copy(a->as.packed, to);
    else if (a->kind == MANTA_KIND_ARRAY && !v->at && v->size > 0)
        gather_elements(a->as.array, 0, a->as.array->data, manta_dtype_size(v->dtype), to);
    else if (v->size > 0)
        memcpy(to, value_is_word(v->kind) ? (const void *)&v->word : v->at, v->size);
}

void value_view(const value *v, manta_arg *out, manta_array *array)
{
    *out = (manta_arg){.kind = v->kind};
    if (v->kind == MANTA_KIND_F64) memcpy(&out->as.f64, &v->word, 8);
    if (v->kind == MANTA_KIND_I64 || v->kind == MANTA_KIND_BOOL) out->as.i64 = (int64_t)v->word;
    if (v->kind == MANTA_KIND_ACTOR) out->as.id = v->word;
    if (v->kind == MANTA_KIND_STR || v->kind == MANTA_KIND_BYTES || v->kind == MANTA_KIND_REFS) {
        out->as.bytes.at = v->at;
        out->as.bytes.n = v->kind == MANTA_KIND_STR    ? (size_t)v->size - 1
                          : v->kind == MANTA_KIND_REFS ? (size_t)v->size / sizeof(manta_ref)
                                                       : (size_t)v->size;
    }
    if (v->kind != MANTA_KIND_ARRAY) return;
    *array = manta_array_of(v->dtype, v->ndim, v->shape, (void *)(uintptr_t)v->at);
    out->as.array = array;
}

void value_put(buf *b, const value *v)
{
    static const char zeros[8];
    unsigned char head[4] = {(unsigned char)v->kind, (unsigned char)v->dtype, (unsigned char)v->ndim,
                             v->place.segment ? AT_PLACE : AT_MESSAGE};

    buf_add(b, head, 4);
    buf_add(b, v->shape, (size_t)v->ndim * 8);
    wire_put_u64(b, v->size);
    if (v->place.segment) {
        wire_put_u64(b, v->place.segment);
        wire_put_u64(b, v->place.at);
    } else if (value_is_word(v->kind)) {
        wire_put_u64(b, v->word);
    } else {
        buf_add(b, zeros, (8 - b->n % 8) % 8);
        buf_add(b, v->at, (size_t)v->size);
    }
}

void value_put_ref(buf *b, uint64_t id)
{
    const unsigned char head[4] = {MANTA_KIND_REF, 0, 0, AT_MESSAGE};

    buf_add(b, head, 4);
    wire_put_u64(b, 8);
    wire_put_u64(b, id);
}

bool value_take_ref(wire *w, uint64_t *id)
{
    if (w->broken || w->end - w->at < 4 || w->at[0] != MANTA_KIND_REF) return false;
    (void)wire_u32(w);
    if (wire_u64(w) != 8) w->broken = true;
    *id = wire_u64(w);
    return true;
}

/* Whether the shape of an array is possible and has v->size bytes. */
static bool shape_fits(const value *v)
{
    uint64_t n = manta_dtype_size(v->dtype);

    if (n == 0 || v->ndim > MANTA_MAX_DIMS) return false;
    for (int i = 0; i < v->ndim; i++)
        if (v->shape[i] < 0 || __builtin_mul_overflow(n, (uint64_t)v->shape[i], &n)) return false;
    return n == v->size;
}

static bool is_sound(const value *v)
{
    switch (v->kind) {
    case MANTA_KIND_NONE: return v->size == 0;
    case MANTA_KIND_F64:
    case MANTA_KIND_I64:
    case MANTA_KIND_BOOL:
    case MANTA_KIND_ACTOR: return v->size == 8 && !v->place.segment;
    case MANTA_KIND_STR: return v->size > 0 && (!v->at || ((const char *)v->at)[v->size - 1] == 0);
    case MANTA_KIND_BYTES: return true;
    case MANTA_KIND_REFS: return v->size % sizeof(manta_ref) == 0;
    case MANTA_KIND_ARRAY: return shape_fits(v);
    case MANTA_KIND_PACKED: /* what lies in a segment is looked at where it is mapped */
        return v->at ? packed_is_sound(v->at, v->size) : v->place.at % MANTA_PACKED_ALIGN == 0;
    case MANTA_KIND_REF:
    default: return false;
    }
}

void value_take(wire *w, value *out)
{
    value v = {0};
    const unsigned char *head = wire_take(w, 4);

    *out = v;
    if (!head) return;
    v.kind = (manta_kind)head[0];
    v.dtype = (manta_dtype)head[1];
    v.ndim = head[2];
    const void *shape = v.ndim <= MANTA_MAX_DIMS ? wire_take(w, (size_t)v.ndim * 8) : NULL;
    if (!shape) goto broken;
    memcpy(v.shape, shape, (size_t)v.ndim * 8);
    v.size = wire_u64(w);
    if (head[3] == AT_PLACE) {
        v.place.segment = wire_u64(w);
        v.place.at = wire_u64(w);
        if (v.place.segment == 0) goto broken;
    } else if (value_is_word(v.kind)) {
        v.word = wire_u64(w);
    } else {
        /* The bytes are aligned within the message, whose start is. */
        wire_take(w, (8 - (size_t)((uintptr_t)w->at % 8)) % 8);
        v.at = wire_take(w, (size_t)v.size);
    }
    if (w->broken || !is_sound(&v)) goto broken;
    *out = v;
    return;
broken:
    w->broken = true;
}

bool value_is_failure(const wire *w)
{
    return !w->broken && w->end - w->at >= 4 && w->at[0] == VALUE_FAILED;
}
