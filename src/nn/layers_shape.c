/* layers_shape.c - layers that rearrange: Flatten, Reshape, Permute, ZeroPadding2D, UpSampling2D. */
#include <string.h>

#include "base/args.h"
#include "nn/layer.h"
#include "nn/ops.h"

#define MAP "(batch, height, width, channels)"

/* Elements of one sample. */
static int64_t sample_count(const manta_array *a)
{
    int64_t n = 1;

    for (int i = 1; i < a->ndim; i++) n *= a->shape[i];
    return n;
}

/* ---- Flatten ---- */

static manta_status flatten_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                 manta_value *out)
{
    op_reshape_attrs attrs = {.ndim = 2, .shape = {-1}};
    manta_array a;

    (void)options;
    TRY(layer_expect_inputs(n_in, 1));
    a = manta_layer_shape(l, in[0]);
    attrs.shape[1] = sample_count(&a);
    *out = manta_layer_apply(l, &op_reshape, &attrs, 1, in);
    return MANTA_OK;
}

const manta_layer_class layer_flatten = {"Flatten", 0, NULL, 0, flatten_call};

manta_layer *manta_flatten(manta_model *m)
{
    REFUSE_NULL_OR(m, NULL);
    return manta_layer_new(m, &layer_flatten, NULL, NULL);
}

/* ---- Reshape ---- */

/* The target with its one -1 worked out. */
static manta_status reshape_target(const manta_reshape_options *o, const manta_array *a,
                                   op_reshape_attrs *attrs)
{
    int64_t known = 1, n = sample_count(a);
    int open = -1;
    char text[96], target[96];

    if (o->ndim < 0 || o->ndim >= MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EINVAL, "expected a target_shape of at most %d dimensions, given %d",
                          MANTA_MAX_DIMS - 1, o->ndim);
    }
    *attrs = (op_reshape_attrs){.ndim = o->ndim + 1, .shape = {-1}};
    for (int i = 0; i < o->ndim; i++) {
        attrs->shape[i + 1] = o->shape[i];
        if (o->shape[i] == -1 && open < 0) {
            open = i + 1;
        } else if (o->shape[i] < 1 || known > INT64_MAX / o->shape[i]) {
            return manta_fail(MANTA_EINVAL,
                              "expected a target_shape of positive numbers and at most one -1, given %s",
                              manta_shape_text(o->ndim, o->shape, target, sizeof target));
        } else {
            known *= o->shape[i];
        }
    }
    if (open >= 0) {
        if (n % known) {
            return manta_fail(MANTA_EINVAL,
                              "expected a multiple of %lld elements per sample for %s, given %s",
                              (long long)known, manta_shape_text(o->ndim, o->shape, target, sizeof target),
                              op_shape_text(a, text, sizeof text));
        }
        attrs->shape[open] = n / known;
    }
    return MANTA_OK;
}

static manta_status reshape_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                 manta_value *out)
{
    op_reshape_attrs attrs;
    manta_array a;

    TRY(layer_expect_inputs(n_in, 1));
    a = manta_layer_shape(l, in[0]);
    TRY(reshape_target(options, &a, &attrs));
    *out = manta_layer_apply(l, &op_reshape, &attrs, 1, in);
    return MANTA_OK;
}

static const manta_field reshape_fields[] = {
    LAYER_FIELD_EXTRA(manta_reshape_options, "target_shape", INTS, shape, ndim)};

const manta_layer_class layer_reshape = {"Reshape", sizeof(manta_reshape_options), reshape_fields, 1,
                                         reshape_call};

manta_layer *manta_reshape(manta_model *m, manta_reshape_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_reshape, &o, &o.name);
}

/* ---- Permute ---- */

static manta_status permute_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                 manta_value *out)
{
    const manta_permute_options *o = options;
    op_permute_attrs attrs = {.ndim = o->ndim + 1};
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    if (o->ndim < 1 || o->ndim >= MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EINVAL, "expected dims of 1 to %d numbers, given %d", MANTA_MAX_DIMS - 1,
                          o->ndim);
    }
    for (int i = 0; i < o->ndim; i++) {
        if (o->dims[i] < 1 || o->dims[i] > o->ndim) {
            return manta_fail(MANTA_EINVAL, "expected each of the dimensions 1 to %d once, given %lld",
                              o->ndim, (long long)o->dims[i]);
        }
        attrs.axes[i + 1] = (int)o->dims[i];
    }
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, &op_permute, &attrs, 1, &x);
    return MANTA_OK;
}

static const manta_field permute_fields[] = {
    LAYER_FIELD_EXTRA(manta_permute_options, "dims", INTS, dims, ndim)};

const manta_layer_class layer_permute = {"Permute", sizeof(manta_permute_options), permute_fields, 1,
                                         permute_call};

manta_layer *manta_permute(manta_model *m, manta_permute_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_permute, &o, &o.name);
}

/* ---- ZeroPadding2D ---- */

static manta_status zero_padding_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                      manta_value *out)
{
    const manta_zero_padding2d_options *o = options;
    op_pad_attrs attrs = {o->padding[0][0], o->padding[0][1], o->padding[1][0], o->padding[1][1]};
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_ndim(l, in[0], 4, MAP));
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, &op_zero_pad, &attrs, 1, &x);
    return MANTA_OK;
}

static const manta_field zero_padding_fields[] = {
    LAYER_FIELD(manta_zero_padding2d_options, "padding", PAIRS, padding)};

const manta_layer_class layer_zero_padding2d = {"ZeroPadding2D", sizeof(manta_zero_padding2d_options),
                                                zero_padding_fields, 1, zero_padding_call};

manta_layer *manta_zero_padding2d(manta_model *m, manta_zero_padding2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_zero_padding2d, &o, &o.name);
}

/* ---- Cropping2D ---- */

static manta_status cropping_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                  manta_value *out)
{
    const manta_cropping2d_options *o = options;
    op_pad_attrs attrs = {o->cropping[0][0], o->cropping[0][1], o->cropping[1][0], o->cropping[1][1]};
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_ndim(l, in[0], 4, MAP));
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, &op_crop, &attrs, 1, &x);
    return MANTA_OK;
}

static const manta_field cropping_fields[] = {
    LAYER_FIELD(manta_cropping2d_options, "cropping", PAIRS, cropping)};

const manta_layer_class layer_cropping2d = {"Cropping2D", sizeof(manta_cropping2d_options), cropping_fields,
                                            1, cropping_call};

manta_layer *manta_cropping2d(manta_model *m, manta_cropping2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_cropping2d, &o, &o.name);
}

/* ---- UpSampling2D ---- */

static manta_status upsampling_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                    manta_value *out)
{
    const manta_upsampling2d_options *o = options;
    const char *how = o->interpolation ? o->interpolation : "nearest";
    op_upsample_attrs attrs = {.sh = layer_or_int(o->size[0], 2),
                               .sw = layer_or_int(o->size[1], 2),
                               .bilinear = !strcmp(how, "bilinear")};
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_ndim(l, in[0], 4, MAP));
    if (!attrs.bilinear && strcmp(how, "nearest")) {
        return manta_fail(MANTA_EUNSUPPORTED, "expected interpolation 'nearest' or 'bilinear', given '%s'",
                          how);
    }
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, &op_upsample, &attrs, 1, &x);
    return MANTA_OK;
}

static const manta_field upsampling_fields[] = {
    LAYER_FIELD(manta_upsampling2d_options, "size", PAIR, size),
    LAYER_FIELD(manta_upsampling2d_options, "interpolation", TEXT, interpolation),
};

const manta_layer_class layer_upsampling2d = {"UpSampling2D", sizeof(manta_upsampling2d_options),
                                              upsampling_fields, 2, upsampling_call};

manta_layer *manta_upsampling2d(manta_model *m, manta_upsampling2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_upsampling2d, &o, &o.name);
}
