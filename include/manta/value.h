/* manta/value.h - references, handles, and values on their way to a remote function.
 *
 * A value is what a call takes and returns: a number, a text, bytes, an array, references, a handle of an
 * actor, or several of these packed together (manta/packed.h). manta_f64() .. manta_handle() make one
 * for manta_remote() and its relatives; manta/object.h makes one an object.
 *
 * Threads: any. */
#ifndef MANTA_VALUE_H
#define MANTA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/array.h>
#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_FOREVER (-1) /* a timeout that never comes */

typedef struct manta_ref {
    uint64_t id; /* 0: no reference */
} manta_ref;

typedef struct manta_actor {
    uint64_t id; /* 0: no actor */
} manta_actor;

typedef enum manta_kind {
    MANTA_KIND_NONE = 0,
    MANTA_KIND_F64,
    MANTA_KIND_I64,
    MANTA_KIND_BOOL,
    MANTA_KIND_STR,
    MANTA_KIND_BYTES,
    MANTA_KIND_ARRAY,
    MANTA_KIND_REFS, /* references that stay references */
    MANTA_KIND_ACTOR, /* a handle */
    MANTA_KIND_REF, /* an argument only: resolved before the call */
    MANTA_KIND_PACKED /* bytes, blocks, references and handles together: manta/packed.h */
} manta_kind;

struct manta_packed;

/* A value on its way; it owns nothing and must be used at once. */
typedef struct manta_arg {
    manta_kind kind;
    union {
        double f64;
        int64_t i64;
        uint64_t id;
        struct {
            const void *at;
            size_t n; /* bytes, or references */
        } bytes;
        const manta_array *array;
        const struct manta_packed *packed;
    } as;
} manta_arg;

static inline manta_arg manta_f64(double x)
{
    manta_arg a;

    a.kind = MANTA_KIND_F64;
    a.as.f64 = x;
    return a;
}

static inline manta_arg manta_i64(int64_t x)
{
    manta_arg a;

    a.kind = MANTA_KIND_I64;
    a.as.i64 = x;
    return a;
}

static inline manta_arg manta_bool(bool x)
{
    manta_arg a;

    a.kind = MANTA_KIND_BOOL;
    a.as.i64 = x;
    return a;
}

static inline manta_arg manta_bytes(const void *at, size_t n)
{
    manta_arg a;

    a.kind = MANTA_KIND_BYTES;
    a.as.bytes.at = at;
    a.as.bytes.n = n;
    return a;
}

MANTA_API manta_arg manta_str(const char *s);

/* The elements of *a are copied when the call is made; strides may be any. */
static inline manta_arg manta_elements(const manta_array *array)
{
    manta_arg a;

    a.kind = MANTA_KIND_ARRAY;
    a.as.array = array;
    return a;
}

/* n references that the function receives as references. */
static inline manta_arg manta_refs(const manta_ref *refs, size_t n)
{
    manta_arg a;

    a.kind = MANTA_KIND_REFS;
    a.as.bytes.at = refs;
    a.as.bytes.n = n;
    return a;
}

static inline manta_arg manta_handle(manta_actor actor)
{
    manta_arg a;

    a.kind = MANTA_KIND_ACTOR;
    a.as.id = actor.id;
    return a;
}

static inline manta_arg manta_of_ref(manta_ref r)
{
    manta_arg a;

    a.kind = MANTA_KIND_REF;
    a.as.id = r.id;
    return a;
}

static inline manta_arg manta_of_arg(manta_arg a)
{
    return a;
}

/* ---- behind the macros ---- */

#define MANTA_NAME_(fn, ...)                                                #fn
#define MANTA_COUNT_(...)                                                   MANTA_16TH_(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, )
#define MANTA_16TH_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, N, ...) N

#ifdef __cplusplus
}
static inline manta_arg manta_any(manta_ref r)
{
    return manta_of_ref(r);
}
static inline manta_arg manta_any(manta_arg a)
{
    return a;
}
struct manta_arg_list { /* C++ has no compound literals */
    manta_arg at[16];
};
#define MANTA_ANY_(x)    manta_any(x)
#define MANTA_LIST_(...) (manta_arg_list{{manta_i64(0) MANTA_EACH_(__VA_ARGS__)}}.at)
#else
#define MANTA_ANY_(x) _Generic((x), manta_ref : manta_of_ref, manta_arg : manta_of_arg)(x)
#define MANTA_LIST_(...)                                                                                     \
    ((const manta_arg[MANTA_COUNT_(__VA_ARGS__)]){{MANTA_KIND_NONE, {0}} MANTA_EACH_(__VA_ARGS__)})
#endif

#define MANTA_EACH_(...)      MANTA_EACH_N_(MANTA_COUNT_(__VA_ARGS__), __VA_ARGS__)
#define MANTA_EACH_N_(n, ...) MANTA_EACH_M_(n, __VA_ARGS__)
#define MANTA_EACH_M_(n, ...) MANTA_EACH_##n##_(__VA_ARGS__, )
#define MANTA_EACH_1_(f, ...)
#define MANTA_EACH_2_(f, a, ...)  , MANTA_ANY_(a)
#define MANTA_EACH_3_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_2_(f, __VA_ARGS__)
#define MANTA_EACH_4_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_3_(f, __VA_ARGS__)
#define MANTA_EACH_5_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_4_(f, __VA_ARGS__)
#define MANTA_EACH_6_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_5_(f, __VA_ARGS__)
#define MANTA_EACH_7_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_6_(f, __VA_ARGS__)
#define MANTA_EACH_8_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_7_(f, __VA_ARGS__)
#define MANTA_EACH_9_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_8_(f, __VA_ARGS__)
#define MANTA_EACH_10_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_9_(f, __VA_ARGS__)
#define MANTA_EACH_11_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_10_(f, __VA_ARGS__)
#define MANTA_EACH_12_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_11_(f, __VA_ARGS__)
#define MANTA_EACH_13_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_12_(f, __VA_ARGS__)
#define MANTA_EACH_14_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_13_(f, __VA_ARGS__)
#define MANTA_EACH_15_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_14_(f, __VA_ARGS__)
#define MANTA_EACH_16_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_15_(f, __VA_ARGS__)

#endif
