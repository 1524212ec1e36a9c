/* loss_target.c - targets of every dtype, checked as they are read. */
#include "nn/loss_target.h"

#include <inttypes.h>
#include <math.h>

#include "base/half.h"
#include "base/status.h"

static const float SHARE_SLACK = 1e-5f;

static bool holds_classes(manta_dtype t)
{
    switch (t) {
    case MANTA_DTYPE_U8:
    case MANTA_DTYPE_BOOL:
    case MANTA_DTYPE_I32:
    case MANTA_DTYPE_I64:
    case MANTA_DTYPE_F32:
    case MANTA_DTYPE_F64: return true;
    default: return false;
    }
}

manta_status loss_target_fits(const manta_loss_call *c, const char *what, bool sparse)
{
    const manta_array *t = &c->target;
    char shape[128];

    if (sparse ? !holds_classes(t->dtype) : manta_dtype_size(t->dtype) == 0)
        return manta_fail(MANTA_EINVAL, "%s: targets of dtype %s cannot be compared with%s", what,
                          manta_dtype_name(t->dtype), sparse ? "; expected integers" : "");
    int64_t want = c->rows;
    if (!sparse && __builtin_mul_overflow(c->rows, c->classes, &want)) want = -1;
    bool row_major = manta_array_is_contiguous(t);
    if (manta_array_count(t) == want && row_major) return MANTA_OK;
    manta_shape_text(t->ndim, t->shape, shape, sizeof shape);
    if (!row_major)
        return manta_fail(MANTA_EINVAL, "%s: the target of shape %s is not row-major without gaps", what,
                          shape);
    if (sparse)
        return manta_fail(MANTA_EINVAL,
                          "%s: expected one integer for each of %" PRId64 " rows, given a target of shape %s",
                          what, c->rows, shape);
    return manta_fail(MANTA_EINVAL,
                      "%s: expected a target of shape (%" PRId64 ", %" PRId64
                      ") as the predictions, given %s",
                      what, c->rows, c->classes, shape);
}

manta_status loss_target_class(const manta_loss_call *c, const char *what, int64_t row, int64_t *out)
{
    const void *data = c->target.data;
    int64_t label;
    double real = 0;

    switch (c->target.dtype) {
    case MANTA_DTYPE_U8:
    case MANTA_DTYPE_BOOL: label = ((const uint8_t *)data)[row]; break;
    case MANTA_DTYPE_I32: label = ((const int32_t *)data)[row]; break;
    case MANTA_DTYPE_I64: label = ((const int64_t *)data)[row]; break;
    default:
        real = c->target.dtype == MANTA_DTYPE_F64 ? ((const double *)data)[row]
                                                  : (double)((const float *)data)[row];
        /* The range first: a float that no integer holds must not be converted. */
        if (!(real >= 0 && real < (double)c->classes) || real != trunc(real))
            return manta_fail(isnan(real) ? MANTA_ENAN : MANTA_EINVAL,
                              "%s: the label of row %" PRId64
                              " is %g; expected an integer from 0 to %" PRId64,
                              what, row, real, c->classes - 1);
        label = (int64_t)real;
    }
    if (label < 0 || label >= c->classes)
        return manta_fail(MANTA_EINVAL,
                          "%s: the label of row %" PRId64 " is %" PRId64
                          "; expected an integer from 0 to %" PRId64,
                          what, row, label, c->classes - 1);
    *out = label;
    return MANTA_OK;
}

static void convert_target(const manta_array *t, int64_t first, int n, float *out)
{
    switch (t->dtype) {
    case MANTA_DTYPE_F32:
        for (int i = 0; i < n; i++) out[i] = ((const float *)t->data)[first + i];
        break;
    case MANTA_DTYPE_F64:
        for (int i = 0; i < n; i++) out[i] = (float)((const double *)t->data)[first + i];
        break;
    case MANTA_DTYPE_F16:
        for (int i = 0; i < n; i++) out[i] = f16_to_f32(((const uint16_t *)t->data)[first + i]);
        break;
    case MANTA_DTYPE_BF16:
        for (int i = 0; i < n; i++) out[i] = bf16_to_f32(((const uint16_t *)t->data)[first + i]);
        break;
    case MANTA_DTYPE_I32:
        for (int i = 0; i < n; i++) out[i] = (float)((const int32_t *)t->data)[first + i];
        break;
    case MANTA_DTYPE_I64:
        for (int i = 0; i < n; i++) out[i] = (float)((const int64_t *)t->data)[first + i];
        break;
    default: /* u8 and bool: loss_target_fits() let nothing else through */
        for (int i = 0; i < n; i++) out[i] = (float)((const uint8_t *)t->data)[first + i];
        break;
    }
}

static manta_status refuse_target(const manta_loss_call *c, const char *what, int64_t at, float value,
                                  const char *expected)
{
    return manta_fail(isnan(value) ? MANTA_ENAN : MANTA_EINVAL,
                      "%s: the target of row %" PRId64 ", column %" PRId64 " is %g; expected %s", what,
                      at / c->classes, at % c->classes, (double)value, expected);
}

manta_status loss_target_read(const manta_loss_call *c, const char *what, loss_range range, int64_t first,
                              int n, float *out)
{
    float low = range == LOSS_SHARE ? -SHARE_SLACK : -3.40282347e38f;
    float high = range == LOSS_SHARE ? 1.0f + SHARE_SLACK : 3.40282347e38f;
    unsigned bad = 0;

    convert_target(&c->target, first, n, out);
    for (int i = 0; i < n; i++) bad |= (unsigned)!(out[i] >= low && out[i] <= high); /* true for NaN */
    for (int i = 0; bad && i < n; i++)
        if (!(out[i] >= low && out[i] <= high))
            return refuse_target(c, what, first + i, out[i],
                                 range == LOSS_SHARE ? "a number from 0 to 1" : "a finite number");
    return MANTA_OK;
}
