/* tensor.c - reference-counted storage. */
#include <manta/tensor.h>

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "tensor/convert.h"
#include "tensor/copy.h"

struct manta_tensor {
    _Atomic int64_t refs;
    manta_array view;
    size_t size;
    void (*release)(void *ctx, void *data); /* NULL when nobody wants to know */
    void *ctx;
};

/* The bytes of a shape, refusing what no memory could hold. */
static manta_status shape_size(manta_dtype t, int ndim, const int64_t *shape, size_t *out)
{
    size_t size = manta_dtype_size(t);
    bool empty = false, too_large = false;

    if (size == 0)
        return manta_fail(MANTA_EINVAL, "tensor: %d is no dtype, expected 0 to %d", (int)t,
                          MANTA_DTYPE_COUNT - 1);
    if (ndim < 0 || ndim > MANTA_MAX_DIMS)
        return manta_fail(MANTA_EINVAL, "tensor: %d axes asked for, expected 0 to %d", ndim, MANTA_MAX_DIMS);
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return manta_fail(MANTA_EINVAL, "tensor: axis %d has size %lld, expected at least 0", i,
                              (long long)shape[i]);
        empty |= shape[i] == 0;
        too_large |= __builtin_mul_overflow(size, (size_t)shape[i], &size) || size > PTRDIFF_MAX;
    }
    if (empty)
        size = 0;
    else if (too_large) {
        char text[128];
        return manta_fail(MANTA_ENOMEM, "tensor: an array of shape %s has more bytes than can be addressed",
                          manta_shape_text(ndim, shape, text, sizeof text));
    }
    *out = size;
    return MANTA_OK;
}

manta_status manta_tensor_wrap(manta_dtype t, int ndim, const int64_t *shape, void *data,
                               void (*release)(void *ctx, void *data), void *ctx, manta_tensor **out)
{
    REFUSE_ARRAY(ndim, shape);
    REFUSE_NULL(out);

    size_t size;

    TRY(shape_size(t, ndim, shape, &size));
    if (!data && size > 0)
        return manta_fail(MANTA_EINVAL, "tensor: no memory was given to wrap, expected %zu bytes of it",
                          size);
    manta_tensor *n = mem_new(sizeof *n);
    atomic_init(&n->refs, 1);
    n->view = manta_array_of(t, ndim, shape, data);
    n->size = size;
    n->release = release;
    n->ctx = ctx;
    *out = n;
    return MANTA_OK;
}

static void release_own(void *ctx, void *data)
{
    (void)ctx;
    mem_try_free(data);
}

manta_status manta_tensor_new(manta_dtype t, int ndim, const int64_t *shape, manta_tensor **out)
{
    REFUSE_ARRAY(ndim, shape);
    REFUSE_NULL(out);

    size_t size;

    TRY(shape_size(t, ndim, shape, &size));
    void *data = mem_try(size > 0 ? size : 1); /* an empty array has an address too */
    if (!data) return manta_fail(MANTA_ENOMEM, "tensor: no memory for %zu bytes", size);
    manta_status st = manta_tensor_wrap(t, ndim, shape, data, release_own, NULL, out);
    if (st) mem_try_free(data);
    return st;
}

manta_status manta_tensor_from_bytes(manta_dtype t, int ndim, const int64_t *shape, const void *bytes,
                                     size_t size, manta_tensor **out)
{
    REFUSE_ARRAY(ndim, shape);
    if (size > 0) REFUSE_NULL(bytes);
    REFUSE_NULL(out);

    size_t need;
    manta_tensor *n;

    TRY(shape_size(t, ndim, shape, &need));
    if (size != need) {
        char text[128];
        return manta_fail(MANTA_EINVAL, "%zu bytes do not make a %s array of shape %s, which takes %zu", size,
                          manta_dtype_name(t), manta_shape_text(ndim, shape, text, sizeof text), need);
    }
    TRY(manta_tensor_new(t, ndim, shape, &n));
    if (size > 0) memcpy(n->view.data, bytes, size);
    *out = n;
    return MANTA_OK;
}

manta_status manta_tensor_from_array(const manta_array *a, manta_dtype t, manta_tensor **out)
{
    REFUSE_BAD_ARRAY(a);
    REFUSE_NULL(out);

    manta_tensor *n;

    TRY(manta_tensor_new(t, a->ndim, a->shape, &n));
    manta_status st = copy_strided(NULL, &n->view, a, false);
    if (st)
        manta_tensor_unref(n);
    else
        *out = n;
    return st;
}

manta_tensor *manta_tensor_ref(manta_tensor *t)
{
    REFUSE_NULL_OR(t, NULL);

    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void manta_tensor_unref(manta_tensor *t)
{
    /* Release: what this thread wrote comes before the end; acquire: the end sees what all wrote. */
    if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) > 1) return;
    if (t->release) t->release(t->ctx, t->view.data);
    mem_free(t);
}

manta_array manta_tensor_array(const manta_tensor *t)
{
    REFUSE_NULL_OR(t, (manta_array){0});
    return t->view;
}

void *manta_tensor_data(const manta_tensor *t)
{
    REFUSE_NULL_OR(t, NULL);
    return t->view.data;
}

manta_dtype manta_tensor_dtype(const manta_tensor *t)
{
    REFUSE_NULL_OR(t, 0);
    return t->view.dtype;
}

int64_t manta_tensor_count(const manta_tensor *t)
{
    REFUSE_NULL_OR(t, 0);
    return manta_array_count(&t->view);
}

size_t manta_tensor_size(const manta_tensor *t)
{
    REFUSE_NULL_OR(t, 0);
    return t->size;
}

manta_status manta_array_copy(const manta_array *dst, const manta_array *src)
{
    REFUSE_BAD_ARRAY(dst);
    REFUSE_BAD_ARRAY(src);
    return copy_strided(NULL, dst, src, false);
}

manta_status manta_array_fill(const manta_array *dst, double value)
{
    REFUSE_BAD_ARRAY(dst);
    return copy_fill(NULL, dst, value);
}
