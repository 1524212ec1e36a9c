/* cases.h - every collective, type, reduction and some sizes against plain
 * loops; one table for all implementations. */
#ifndef TESTS_COMM_CASES_H
#define TESTS_COMM_CASES_H

#include <math.h>

#include "base/half.h"
#include "comm/ranks.h"

enum { SEVEN = MANTA_DTYPE_U8 + 1 };

/* What rank r has at i: small enough that products of four stay finite, with
 * signs, fractions, some NaNs, infinities and zeros of both signs. */
static inline double case_value(int r, int64_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)r * 40503u;

    h ^= h >> 13;
    h *= 0x5bd1e995u;
    h ^= h >> 15;
    return (double)(int32_t)(h % 2001) / 64.0 - 15.0;
}

static inline void case_put(manta_dtype t, void *at, int64_t k, int r, int64_t i)
{
    double x = case_value(r, i);
    float f = (float)x;

    if (i % 97 == 5 && r == (int)(i / 97 % 4)) f = (float)NAN;
    if (i % 89 == 7) f = r % 2 ? -0.0f : 0.0f;
    if (i % 101 == 11) f = (float)INFINITY;
    switch (t) {
    case MANTA_DTYPE_F32: ((float *)at)[k] = f; break;
    case MANTA_DTYPE_F64: ((double *)at)[k] = (double)f * 1.0000000001; break;
    case MANTA_DTYPE_F16: ((uint16_t *)at)[k] = f16_from_f32(f); break;
    case MANTA_DTYPE_BF16: ((uint16_t *)at)[k] = bf16_from_f32(f); break;
    case MANTA_DTYPE_I32: ((int32_t *)at)[k] = (int32_t)(x * 1e8); break;
    case MANTA_DTYPE_I64: ((int64_t *)at)[k] = (int64_t)(x * 1e17); break;
    default: ((uint8_t *)at)[k] = (uint8_t)(int)(x * 8); break;
    }
}

typedef union number {
    float f;
    double d;
    int64_t i;
    uint64_t u;
} number;

static inline number case_load(manta_dtype t, const void *at, int64_t k)
{
    number x = {.u = 0};

    switch (t) {
    case MANTA_DTYPE_F32: x.f = ((const float *)at)[k]; break;
    case MANTA_DTYPE_F64: x.d = ((const double *)at)[k]; break;
    case MANTA_DTYPE_F16: x.f = f16_to_f32(((const uint16_t *)at)[k]); break;
    case MANTA_DTYPE_BF16: x.f = bf16_to_f32(((const uint16_t *)at)[k]); break;
    case MANTA_DTYPE_I32: x.i = ((const int32_t *)at)[k]; break;
    case MANTA_DTYPE_I64: x.i = ((const int64_t *)at)[k]; break;
    default: x.i = ((const uint8_t *)at)[k]; break;
    }
    return x;
}

#define COMBINE(r, a, b)                                                                                     \
    ((r) == MANTA_REDUCE_MIN       ? (a) != (a) || (b) != (b) ? ((a) != (a) ? (a) : (b))                     \
                                     : (b) < (a)              ? (b)                                          \
                                                              : (a)                                          \
           : (r) == MANTA_REDUCE_MAX ? (a) != (a) || (b) != (b) ? ((a) != (a) ? (a) : (b))                   \
                                       : (b) > (a)              ? (b)                                        \
                                                                : (a)                                        \
           : (r) == MANTA_REDUCE_PRODUCT ? (a) * (b)                                                         \
                                   : (a) + (b))

/* The tree of numerics.md, one element at a time. Integers are combined modulo
 * 2^64 and cut afterwards, which is the same as wrapping; but not for MIN and
 * MAX, which do not wrap, and MEAN, whose sum must be exact. */
static inline number case_tree(manta_dtype t, manta_reduce r, void *const *src, int64_t k, int lo, int hi)
{
    number a, b, out = {.u = 0};
    int p = 1;

    if (hi - lo == 1) return case_load(t, src[lo], k);
    while (2 * p < hi - lo) p *= 2;
    a = case_tree(t, r, src, k, lo, lo + p);
    b = case_tree(t, r, src, k, lo + p, hi);
    if (t == MANTA_DTYPE_F64) {
        out.d = COMBINE(r, a.d, b.d);
    } else if (t == MANTA_DTYPE_F32 || t == MANTA_DTYPE_F16 || t == MANTA_DTYPE_BF16) {
        out.f = COMBINE(r, a.f, b.f);
    } else if (r == MANTA_REDUCE_MIN || r == MANTA_REDUCE_MAX) {
        out.i = COMBINE(r, a.i, b.i);
    } else {
        out.u = COMBINE(r, a.u, b.u);
    }
    return out;
}

static inline void case_reduce(manta_dtype t, manta_reduce r, void *const *src, int size, int64_t k,
                               void *out)
{
    number x = case_tree(t, r, src, k, 0, size);
    bool mean = r == MANTA_REDUCE_MEAN;

    if (mean) {
        x.f = t == MANTA_DTYPE_F32 || t == MANTA_DTYPE_F16 || t == MANTA_DTYPE_BF16 ? x.f / (float)size : x.f;
        if (t == MANTA_DTYPE_F64) x.d /= (double)size;
        if (t >= MANTA_DTYPE_I32) x.i /= size;
    }
    switch (t) {
    case MANTA_DTYPE_F32: ((float *)out)[k] = x.f; break;
    case MANTA_DTYPE_F64: ((double *)out)[k] = x.d; break;
    case MANTA_DTYPE_F16: ((uint16_t *)out)[k] = f16_from_f32(x.f); break;
    case MANTA_DTYPE_BF16: ((uint16_t *)out)[k] = bf16_from_f32(x.f); break;
    case MANTA_DTYPE_I32: ((int32_t *)out)[k] = (int32_t)x.u; break;
    case MANTA_DTYPE_I64: ((int64_t *)out)[k] = x.i; break;
    default: ((uint8_t *)out)[k] = (uint8_t)x.u; break;
    }
}

/* Which bytes of a NaN come out of an operation is the processor's choice. */
static inline bool case_same(manta_dtype t, const void *a, const void *b, int64_t n)
{
    size_t e = manta_dtype_size(t);

    if (n == 0 || !memcmp(a, b, (size_t)n * e)) return true;
    if (t >= MANTA_DTYPE_I32) return false;
    for (int64_t k = 0; k < n; k++) {
        number x = case_load(t, a, k), y = case_load(t, b, k);
        bool both = t == MANTA_DTYPE_F64 ? isnan(x.d) && isnan(y.d) : isnan(x.f) && isnan(y.f);
        if (!both && memcmp((const char *)a + (size_t)k * e, (const char *)b + (size_t)k * e, e))
            return false;
    }
    return true;
}

typedef struct case_memory {
    void *in[16]; /* what every rank has, parts and all */
    void *got, *want;
} case_memory;

static inline case_memory case_new(manta_dtype t, int size, int64_t n)
{
    case_memory m;
    size_t bytes = (size_t)n * (size_t)size * manta_dtype_size(t) + 64;

    for (int r = 0; r < size; r++) {
        m.in[r] = malloc(bytes);
        for (int64_t k = 0; k < n * size; k++) case_put(t, m.in[r], k, r, k);
    }
    m.got = malloc(bytes);
    m.want = malloc(bytes);
    return m;
}

static inline void case_free(case_memory *m, int size)
{
    for (int r = 0; r < size; r++) free(m->in[r]);
    free(m->got);
    free(m->want);
}

/* One all-reduce, reduce and reduce-scatter, each out of place and in place. */
static inline int case_reductions(manta_group *g, manta_dtype t, manta_reduce r, int64_t n)
{
    int size = manta_group_size(g), me = manta_group_rank(g), root = size - 1;
    size_t e = manta_dtype_size(t), bytes = (size_t)n * e;
    case_memory m = case_new(t, size, n);
    void *parts[16];

    for (int64_t k = 0; k < n; k++) case_reduce(t, r, m.in, size, k, m.want);
    memset(m.got, 0xA5, bytes);
    OK(!manta_group_all_reduce(g, m.in[me], m.got, n, t, r));
    OK(case_same(t, m.got, m.want, n));
    memcpy(m.got, m.in[me], bytes);
    OK(!manta_group_all_reduce(g, m.got, m.got, n, t, r));
    OK(case_same(t, m.got, m.want, n));
    memset(m.got, 0xA5, bytes);
    OK(!manta_group_reduce(g, m.in[me], m.got, n, t, r, root));
    OK(me != root || case_same(t, m.got, m.want, n));
    for (size_t i = 0; me != root && i < bytes; i++) OK(((unsigned char *)m.got)[i] == 0xA5);

    for (int i = 0; i < size; i++) parts[i] = (char *)m.in[i] + (size_t)me * bytes;
    for (int64_t k = 0; k < n; k++) case_reduce(t, r, parts, size, k, m.want);
    OK(!manta_group_reduce_scatter(g, m.in[me], m.got, n, t, r));
    OK(case_same(t, m.got, m.want, n));
    OK(!manta_group_reduce_scatter(g, m.in[me], (char *)m.in[me] + (size_t)me * bytes, n, t, r));
    OK(case_same(t, (char *)m.in[me] + (size_t)me * bytes, m.want, n));
    case_free(&m, size);
    return 0;
}

static inline int case_moves(manta_group *g, manta_dtype t, int64_t n)
{
    int size = manta_group_size(g), me = manta_group_rank(g);
    size_t bytes = (size_t)n * manta_dtype_size(t);
    case_memory m = case_new(t, size, n);

    for (int root = 0; root < size; root++) {
        memcpy(m.got, m.in[me], bytes);
        OK(!manta_group_broadcast(g, m.got, n, t, root));
        OK(!memcmp(m.got, m.in[root], bytes));
    }
    for (int i = 0; i < size; i++) memcpy((char *)m.want + (size_t)i * bytes, m.in[i], bytes);
    OK(!manta_group_all_gather(g, m.in[me], m.got, n, t));
    OK(!memcmp(m.got, m.want, bytes * (size_t)size));
    memset(m.got, 0, bytes * (size_t)size);
    memcpy((char *)m.got + (size_t)me * bytes, m.in[me], bytes);
    OK(!manta_group_all_gather(g, (char *)m.got + (size_t)me * bytes, m.got, n, t));
    OK(!memcmp(m.got, m.want, bytes * (size_t)size));
    for (int i = 0; i < size; i++)
        memcpy((char *)m.want + (size_t)i * bytes, (char *)m.in[i] + (size_t)me * bytes, bytes);
    OK(!manta_group_all_to_all(g, m.in[me], m.got, n, t));
    OK(!memcmp(m.got, m.want, bytes * (size_t)size));
    memcpy(m.got, m.in[me], bytes * (size_t)size);
    OK(!manta_group_all_to_all(g, m.got, m.got, n, t));
    OK(!memcmp(m.got, m.want, bytes * (size_t)size));
    OK(!manta_group_barrier(g));
    /* around: to the next, from the one before */
    int next = (me + 1) % size, before = (me + size - 1) % size;
    if (size > 1) {
        manta_work *w;
        OK(!manta_group_start(
            g,
            &(manta_collective){
                .kind = MANTA_COLLECTIVE_SEND, .in = m.in[me], .n = n, .dtype = t, .peer = next},
            &w));
        OK(!manta_group_receive(g, m.got, n, t, before));
        OK(!memcmp(m.got, m.in[before], bytes));
        OK(!manta_work_wait(w));
    }
    case_free(&m, size);
    return 0;
}

typedef struct case_sizes {
    const int64_t *n; /* ends with -1 */
    bool some; /* one reduction for each type, and three types moved: what large sizes are about */
} case_sizes;

static inline int case_all(manta_group *g, void *ctx)
{
    const case_sizes *s = ctx;

    for (const int64_t *n = s->n; *n >= 0; n++)
        for (int t = 0; t < SEVEN; t++) {
            for (int r = 0; r < MANTA_REDUCE_COUNT; r++) {
                if (s->some && t % MANTA_REDUCE_COUNT != r) continue;
                int bad = case_reductions(g, (manta_dtype)t, (manta_reduce)r, *n);
                if (bad)
                    fprintf(stderr, "%s of %lld %s\n", manta_reduce_name((manta_reduce)r), (long long)*n,
                            manta_dtype_name((manta_dtype)t));
                if (bad) return bad;
            }
            if (s->some && t % 3) continue;
            int bad = case_moves(g, (manta_dtype)t, *n);
            if (bad) fprintf(stderr, "moving %lld %s\n", (long long)*n, manta_dtype_name((manta_dtype)t));
            if (bad) return bad;
        }
    return 0;
}

#endif
