/* copy.c - a loop nest over views, made as short as their strides allow.
 *
 * First axes are dropped (size 1), put in the order of dst's strides, largest
 * first, and merged where neighbours lie one after the other in every view.
 * What remains is an outer part, whose index is cut into tasks, and an inner
 * axis, along which dst is contiguous in all ordinary cases. A transpose, whose
 * source is contiguous along another axis, is done in square blocks of the two,
 * so that every cache line of both sides is used whole. */
#include "tensor/copy.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/convert.h"
#include "tensor/sizes.h"

enum { VIEWS = 3 };

typedef struct nest nest;
struct nest {
    int ndim, views;
    int64_t shape[MANTA_MAX_DIMS];
    int64_t stride[VIEWS][MANTA_MAX_DIMS]; /* view 0 is dst */
    char *data[VIEWS];
    size_t size[VIEWS]; /* of an element */
    manta_dtype dtype[VIEWS];
    int64_t inner, stride_in[VIEWS]; /* the innermost axis, taken out of shape[] */
    int64_t outer, outer_per_task;
    int64_t columns, column_stride; /* of a transpose (see nest_transpose), else 0 */
    kern_binary op;
    void (*run)(const nest *n, char *const *at, int64_t count);
};

static int64_t magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

static void nest_swap(nest *n, int a, int b)
{
    int64_t t = n->shape[a];

    n->shape[a] = n->shape[b];
    n->shape[b] = t;
    for (int v = 0; v < n->views; v++) {
        t = n->stride[v][a];
        n->stride[v][a] = n->stride[v][b];
        n->stride[v][b] = t;
    }
}

static bool nest_mergeable(const nest *n, int a)
{
    for (int v = 0; v < n->views; v++)
        if (n->stride[v][a] != n->stride[v][a + 1] * n->shape[a + 1]) return false;
    return true;
}

static void nest_drop(nest *n, int a)
{
    n->ndim--;
    for (int i = a; i < n->ndim; i++) {
        n->shape[i] = n->shape[i + 1];
        for (int v = 0; v < n->views; v++) n->stride[v][i] = n->stride[v][i + 1];
    }
}

/* Whether axis a belongs outside of b: by dst's stride, then by the source's. */
static bool nest_outside(const nest *n, int a, int b)
{
    for (int v = 0; v < n->views; v++) {
        int64_t x = magnitude(n->stride[v][a]), y = magnitude(n->stride[v][b]);
        if (x != y) return x > y;
    }
    return true;
}

/* Simplifies the axes; leaves at least one. */
static void nest_simplify(nest *n)
{
    for (int a = n->ndim - 1; a >= 0; a--)
        if (n->shape[a] == 1) nest_drop(n, a);
    for (int a = 1; a < n->ndim; a++) /* insertion sort of at most eight */
        for (int b = a; b > 0 && !nest_outside(n, b - 1, b); b--) nest_swap(n, b - 1, b);
    for (int a = n->ndim - 2; a >= 0; a--)
        if (nest_mergeable(n, a)) {
            n->shape[a + 1] *= n->shape[a];
            nest_drop(n, a);
        }
    if (n->ndim == 0) {
        n->ndim = 1;
        n->shape[0] = 1;
        for (int v = 0; v < n->views; v++) n->stride[v][0] = 1;
    }
}

/* The addresses that outer index i begins at. */
static void nest_at(const nest *n, int64_t i, char **at)
{
    for (int v = 0; v < n->views; v++) at[v] = n->data[v];
    for (int a = n->ndim - 1; a >= 0; a--) {
        int64_t k = i % n->shape[a];
        i /= n->shape[a];
        for (int v = 0; v < n->views; v++) at[v] += k * n->stride[v][a] * (int64_t)n->size[v];
    }
}

static void nest_task(void *ctx, int task, int thread)
{
    const nest *n = ctx;
    int64_t i = task * n->outer_per_task, end = i + n->outer_per_task;
    char *at[VIEWS];
    (void)thread;

    if (end > n->outer) end = n->outer;
    for (; i < end; i++) {
        int64_t count = n->inner;
        if (n->columns) {
            int64_t left = n->columns - i % n->shape[n->ndim - 1] * COPY_SQUARE;
            count = left < COPY_SQUARE ? left : COPY_SQUARE;
        }
        nest_at(n, i, at);
        n->run(n, at, count);
    }
}

/* Cuts the inner axis too when it is all there is, then runs. */
static void nest_run(pool *p, nest *n)
{
    int last = n->ndim - 1;

    n->inner = n->shape[last];
    for (int v = 0; v < n->views; v++) n->stride_in[v] = n->stride[v][last];
    n->ndim = last;
    n->outer = 1;
    for (int a = 0; a < last; a++) n->outer *= n->shape[a];
    if (n->outer == 1 && !n->columns && n->inner >= 2 * COPY_GRAIN && n->inner % 2 == 0) {
        int64_t parts = 2;
        while (n->inner / parts > COPY_GRAIN && n->inner % (parts * 2) == 0) parts *= 2;
        n->ndim = 1;
        n->shape[0] = n->outer = parts;
        n->inner /= parts;
        for (int v = 0; v < n->views; v++) n->stride[v][0] = n->stride_in[v] * n->inner;
    }
    n->outer_per_task = COPY_GRAIN / (n->inner * (n->columns ? COPY_SQUARE : 1));
    if (n->outer_per_task < 1) n->outer_per_task = 1;
    int tasks = (int)((n->outer + n->outer_per_task - 1) / n->outer_per_task);
    if (p) {
        pool_run(p, tasks, nest_task, n);
    } else {
        for (int t = 0; t < tasks; t++) nest_task(n, t, 0);
    }
}

/* ---- checks ---- */

static manta_status same_shape(const manta_array *a, const manta_array *b)
{
    bool same = a->ndim == b->ndim;

    for (int i = 0; same && i < a->ndim; i++) same = a->shape[i] == b->shape[i];
    if (same) return MANTA_OK;
    char x[128], y[128];
    return manta_fail(MANTA_EINVAL, "arrays of shape %s and %s cannot be matched element by element",
                      manta_shape_text(a->ndim, a->shape, x, sizeof x),
                      manta_shape_text(b->ndim, b->shape, y, sizeof y));
}

static manta_status check_writable(const manta_array *a)
{
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] > 1 && a->strides[i] == 0)
            return manta_fail(MANTA_EINVAL,
                              "axis %d of the array to be written repeats its elements, expected each to "
                              "have memory of its own",
                              i);
    return MANTA_OK;
}

static void nest_init(nest *n, int views, const manta_array *const *a)
{
    *n = (nest){.ndim = a[0]->ndim, .views = views};
    memcpy(n->shape, a[0]->shape, sizeof n->shape);
    for (int v = 0; v < views; v++) {
        memcpy(n->stride[v], a[v]->strides, sizeof n->stride[v]);
        n->data[v] = a[v]->data;
        n->dtype[v] = a[v]->dtype;
        n->size[v] = manta_dtype_size(a[v]->dtype);
    }
    nest_simplify(n);
}

/* ---- copying ---- */

#define STRIDED(type)                                                                                        \
    do {                                                                                                     \
        type *d = (type *)(void *)to;                                                                        \
        const type *s = (const type *)(const void *)from;                                                    \
        for (int64_t i = 0; i < count; i++) d[i * ds] = s[i * ss];                                           \
    } while (0)

/* `count` elements of `size` bytes, ds and ss elements apart. */
static void move_run(size_t size, char *to, int64_t ds, const char *from, int64_t ss, int64_t count)
{
    if (ds == 1 && ss == 1) {
        if (to != from) memcpy(to, from, (size_t)count * size);
        return;
    }
    switch (size) {
    case 1: STRIDED(uint8_t); break;
    case 2: STRIDED(uint16_t); break;
    case 4: STRIDED(uint32_t); break;
    default: STRIDED(uint64_t); break;
    }
}

static void copy_run(const nest *n, char *const *at, int64_t count)
{
    move_run(n->size[0], at[0], n->stride_in[0], at[1], n->stride_in[1], count);
}

static void add_run(const nest *n, char *const *at, int64_t count)
{
    float *d = (float *)(void *)at[0];
    const float *s = (const float *)(const void *)at[1];
    int64_t ds = n->stride_in[0], ss = n->stride_in[1];

    if (ds == 1 && ss == 1) {
        for (int64_t i = 0; i < count; i++) d[i] += s[i];
    } else {
        for (int64_t i = 0; i < count; i++) d[i * ds] += s[i * ss];
    }
}

static void convert_nest_run(const nest *n, char *const *at, int64_t count)
{
    uint64_t near[COPY_RUN], far[COPY_RUN]; /* room for the widest element */
    size_t ds = n->size[0], ss = n->size[1];

    for (int64_t i = 0; i < count; i += COPY_RUN) {
        int64_t m = count - i < COPY_RUN ? count - i : COPY_RUN;
        char *to = at[0] + i * n->stride_in[0] * (int64_t)ds;
        const char *from = at[1] + i * n->stride_in[1] * (int64_t)ss;
        move_run(ss, (char *)near, 1, from, n->stride_in[1], m);
        convert_run(n->dtype[1], near, n->dtype[0], far, m);
        move_run(ds, to, n->stride_in[0], (const char *)far, 1, m);
    }
}

/* Columns [0, count) of a transpose: along them src is contiguous, along the inner axis dst. */
#define SQUARES(type)                                                                                        \
    do {                                                                                                     \
        type *d = (type *)(void *)at[0];                                                                     \
        const type *s = (const type *)(const void *)at[1];                                                   \
        for (int64_t j0 = 0; j0 < n->inner; j0 += COPY_SQUARE) {                                             \
            int64_t j1 = j0 + COPY_SQUARE < n->inner ? j0 + COPY_SQUARE : n->inner;                          \
            for (int64_t i = 0; i < count; i++)                                                              \
                for (int64_t j = j0; j < j1; j++) d[i * ds + j] = s[i + j * ss];                             \
        }                                                                                                    \
    } while (0)

static void transpose_run(const nest *n, char *const *at, int64_t count)
{
    int64_t ds = n->column_stride, ss = n->stride_in[1];

    switch (n->size[0]) {
    case 1: SQUARES(uint8_t); break;
    case 2: SQUARES(uint16_t); break;
    case 4: SQUARES(uint32_t); break;
    default: SQUARES(uint64_t); break;
    }
}

/* Where dst is contiguous along the last axis and src along the one before: makes the latter an axis
 * of blocks of COPY_SQUARE columns. */
static void nest_transpose(nest *n)
{
    int last = n->ndim - 1, col = last - 1;

    if (n->ndim < 2 || n->stride[0][last] != 1 || n->stride[1][last] == 1 || n->stride[1][last] == 0 ||
        n->stride[1][col] != 1)
        return;
    n->columns = n->shape[col];
    n->column_stride = n->stride[0][col];
    n->shape[col] = (n->columns + COPY_SQUARE - 1) / COPY_SQUARE;
    for (int v = 0; v < n->views; v++) n->stride[v][col] *= COPY_SQUARE;
    n->run = transpose_run;
}

manta_status copy_strided(pool *p, const manta_array *dst, const manta_array *src, bool add)
{
    nest n;

    TRY(same_shape(dst, src));
    if (manta_array_count(dst) > 0) TRY(check_writable(dst)); /* strides of an empty array say nothing */
    if (add && (dst->dtype != MANTA_DTYPE_F32 || src->dtype != MANTA_DTYPE_F32))
        return manta_fail(MANTA_EINVAL, "adding %s to %s elements, expected float32 on both sides",
                          manta_dtype_name(src->dtype), manta_dtype_name(dst->dtype));
    if (manta_array_count(dst) == 0) return MANTA_OK;
    nest_init(&n, 2, (const manta_array *const[]){dst, src});
    n.run = add ? add_run : dst->dtype == src->dtype ? copy_run : convert_nest_run;
    if (n.run == copy_run) nest_transpose(&n);
    nest_run(p, &n);
    return MANTA_OK;
}

/* ---- filling ---- */

manta_status copy_fill(pool *p, const manta_array *dst, double value)
{
    uint64_t element = 0;
    manta_array one = manta_array_of(dst->dtype, 0, NULL, &element);

    convert_run(MANTA_DTYPE_F64, &value, dst->dtype, &element, 1);
    one.ndim = dst->ndim;
    memcpy(one.shape, dst->shape, sizeof one.shape);
    memset(one.strides, 0, sizeof one.strides);
    return copy_strided(p, dst, &one, false);
}

/* ---- arithmetic ---- */

#define BINARY(op)                                                                                           \
    do {                                                                                                     \
        if (ds == 1 && as == 1 && bs == 1) {                                                                 \
            for (int64_t i = 0; i < count; i++) d[i] = a[i] op b[i];                                         \
        } else if (ds == 1 && as == 1 && bs == 0) {                                                          \
            float v = b[0];                                                                                  \
            for (int64_t i = 0; i < count; i++) d[i] = a[i] op v;                                            \
        } else if (ds == 1 && as == 0 && bs == 1) {                                                          \
            float v = a[0];                                                                                  \
            for (int64_t i = 0; i < count; i++) d[i] = v op b[i];                                            \
        } else {                                                                                             \
            for (int64_t i = 0; i < count; i++) d[i * ds] = a[i * as] op b[i * bs];                          \
        }                                                                                                    \
    } while (0)

static void binary_run(const nest *n, char *const *at, int64_t count)
{
    float *d = (float *)(void *)at[0];
    const float *a = (const float *)(const void *)at[1], *b = (const float *)(const void *)at[2];
    int64_t ds = n->stride_in[0], as = n->stride_in[1], bs = n->stride_in[2];

    switch (n->op) {
    case KERN_ADD: BINARY(+); break;
    case KERN_SUB: BINARY(-); break;
    case KERN_MUL:
    case KERN_BINARIES: BINARY(*); break;
    }
}

manta_status copy_binary(pool *p, kern_binary op, const manta_array *dst, const manta_array *a,
                         const manta_array *b)
{
    nest n;

    TRY(same_shape(dst, a));
    TRY(same_shape(dst, b));
    if (manta_array_count(dst) > 0) TRY(check_writable(dst));
    if (dst->dtype != MANTA_DTYPE_F32 || a->dtype != MANTA_DTYPE_F32 || b->dtype != MANTA_DTYPE_F32)
        return manta_fail(MANTA_EINVAL, "arithmetic on arrays is for float32 only, not %s, %s, %s",
                          manta_dtype_name(dst->dtype), manta_dtype_name(a->dtype),
                          manta_dtype_name(b->dtype));
    if (manta_array_count(dst) == 0) return MANTA_OK;
    nest_init(&n, 3, (const manta_array *const[]){dst, a, b});
    n.op = op;
    n.run = binary_run;
    nest_run(p, &n);
    return MANTA_OK;
}

/* ---- views ---- */

manta_status copy_broadcast(const manta_array *a, int ndim, const int64_t *shape, manta_array *out)
{
    manta_array v = {.data = a->data, .dtype = a->dtype, .ndim = ndim};
    bool fits = ndim >= a->ndim && ndim <= MANTA_MAX_DIMS;

    for (int i = ndim - 1, k = a->ndim - 1; fits && i >= 0; i--, k--) {
        v.shape[i] = shape[i];
        if (k >= 0 && a->shape[k] == shape[i])
            v.strides[i] = a->strides[k];
        else
            fits = k < 0 || a->shape[k] == 1;
    }
    if (!fits) {
        char x[128], y[128];
        return manta_fail(MANTA_EINVAL, "an array of shape %s cannot be repeated to %s",
                          manta_shape_text(a->ndim, a->shape, x, sizeof x),
                          manta_shape_text(ndim, shape, y, sizeof y));
    }
    *out = v;
    return MANTA_OK;
}

manta_array copy_permuted(const manta_array *a, const int *axis)
{
    manta_array v = *a;

    for (int i = 0; i < a->ndim; i++) {
        v.shape[i] = a->shape[axis[i]];
        v.strides[i] = a->strides[axis[i]];
    }
    return v;
}

manta_status copy_slice(const manta_array *a, int axis, int64_t start, int64_t n, manta_array *out)
{
    if (axis < 0 || axis >= a->ndim || start < 0 || n < 0 || start > a->shape[axis] ||
        n > a->shape[axis] - start) {
        char x[128];
        return manta_fail(
            MANTA_EINVAL,
            "slice: %lld elements from %lld on along axis %d asked for, the array has the shape %s",
            (long long)n, (long long)start, axis, manta_shape_text(a->ndim, a->shape, x, sizeof x));
    }
    *out = *a;
    out->shape[axis] = n;
    out->data = (char *)a->data + start * a->strides[axis] * (int64_t)manta_dtype_size(a->dtype);
    return MANTA_OK;
}
