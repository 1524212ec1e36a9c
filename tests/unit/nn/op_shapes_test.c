/* op_shapes_test.c - shapes and types that cannot be: each is refused, and the sentence
 * says what was expected. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "nn/op_cases.h"

typedef struct bad_case {
    const manta_op *op;
    const void *attrs;
    int n_in;
    dims in[3];
    manta_status status;
    const char *sentence;
} bad_case;

static const op_pool_attrs pool_wide = {3, 3, 1, 1, 3, 0, 0, 0, false},
                           pool_huge = {17, 16, 1, 1, 0, 0, 0, 0, false};
static const op_conv_attrs conv_none = {0, 1, 1, 1, 0, 0, 0, 0, 1};
static const op_permute_attrs permute_twice = {3, {0, 1, 1}};
static const op_concat_attrs concat_batch = {0};
static const op_dropout_attrs drop_all = {.rate = 1};
static const op_pad_attrs pad_less = {-1, 0, 0, 0};
static const op_upsample_attrs up_none = {0, 1, false};

#define B -1

/* clang-format off */
static const bad_case bad_cases[] = {
    {&op_dense, NULL, 2, {S2(B, 5), S2(4, 3)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., 4), given (batch, 5)"},
    {&op_dense, NULL, 2, {S1(B), S2(4, 3)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., features), given (batch,)"},
    {&op_dense, NULL, 3, {S2(B, 4), S2(4, 3), S1(4)}, MANTA_EINVAL,
     "expected a bias of shape (3,), given (4,)"},
    {&op_dense, NULL, 1, {S2(B, 4)}, MANTA_EINVAL, "expected 2 to 3 inputs, given 1"},
    {&op_conv2d, &conv_valid, 2, {S3(B, 28, 28), S4(3, 3, 1, 4)}, MANTA_EINVAL,
     "expected an input of shape (batch, height, width, channels), given (batch, 28, 28)"},
    {&op_conv2d, &conv_valid, 2, {S4(B, 28, 28, 3), S4(3, 3, 1, 4)}, MANTA_EINVAL,
     "expected an input whose channels suit a kernel of shape (3, 3, 1, 4) in 1 group, given (batch, 28, 28, 3)"},
    {&op_conv2d, &conv_valid, 2, {S4(B, 2, 28, 1), S4(3, 3, 1, 4)}, MANTA_EINVAL,
     "expected a padded height and width of at least 3 and 3, given (batch, 2, 28, 1)"},
    {&op_conv2d, &conv_none, 2, {S4(B, 5, 5, 1), S4(3, 3, 1, 4)}, MANTA_EINVAL,
     "expected strides, dilation and groups of at least 1, given (0, 1), (1, 1) and 1"},
    {&op_conv2d_transpose, &up_valid, 2, {S4(B, 4, 3, 5), S4(3, 3, 4, 2)}, MANTA_EINVAL,
     "expected an input of shape (batch, height, width, 2), given (batch, 4, 3, 5)"},
    {&op_add, NULL, 2, {S3(B, 3, 5), S3(B, 3, 4)}, MANTA_EINVAL,
     "expected inputs of one shape, given (batch, 3, 5) and (batch, 3, 4)"},
    {&op_add, NULL, 2, {S2(B, 3), S1(3)}, MANTA_EINVAL,
     "expected inputs of one shape, given (batch, 3) and (3,)"},
    {&op_softmax, NULL, 1, {S1(B)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., classes), given (batch,)"},
    {&op_normalize, &normal, 1, {S2(B, 4)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., 3), given (batch, 4)"},
    {&op_dropout, &drop_all, 1, {S2(B, 4)}, MANTA_EINVAL,
     "expected a rate of at least 0 and below 1, given 1"},
    {&op_reshape, &reshape, 1, {S3(B, 5, 5)}, MANTA_EINVAL,
     "expected 24 elements per sample, as (batch, 4, 6) has, given (batch, 5, 5) with 25"},
    {&op_permute, &permute, 1, {S3(B, 5, 5)}, MANTA_EINVAL,
     "expected an input of 4 dimensions, the batch among them, given (batch, 5, 5)"},
    {&op_permute, &permute_twice, 1, {S3(B, 5, 5)}, MANTA_EINVAL,
     "expected each of the dimensions 1 to 2 once, given 1"},
    {&op_concatenate, &concat_first, 2, {S3(B, 2, 5), S3(B, 2, 4)}, MANTA_EINVAL,
     "expected inputs of one shape but for axis 1, given (batch, 2, 5) and (batch, 2, 4)"},
    {&op_concatenate, &concat_batch, 2, {S2(B, 5), S2(B, 5)}, MANTA_EINVAL,
     "expected an axis from 1 to 1 for (batch, 5), given 0"},
    {&op_zero_pad, &pad, 1, {S3(B, 5, 5)}, MANTA_EINVAL,
     "expected an input of shape (batch, height, width, channels), given (batch, 5, 5)"},
    {&op_zero_pad, &pad_less, 1, {S4(B, 5, 5, 1)}, MANTA_EINVAL,
     "expected padding of at least 0, given ((-1, 0), (0, 0))"},
    {&op_upsample, &up_none, 1, {S4(B, 5, 5, 1)}, MANTA_EINVAL,
     "expected a size of at least (1, 1), given (0, 1)"},
    {&op_max_pool, &pool2, 1, {S4(B, 1, 5, 1)}, MANTA_EINVAL,
     "expected a padded height and width of at least 2 and 2, given (batch, 1, 5, 1)"},
    {&op_max_pool, &pool_wide, 1, {S4(B, 5, 5, 1)}, MANTA_EINVAL,
     "expected padding smaller than the window (3, 3), given ((3, 0), (0, 0))"},
    {&op_max_pool, &pool_huge, 1, {S4(B, 20, 20, 1)}, MANTA_EUNSUPPORTED,
     "expected a window of at most 256 elements, given (17, 16)"},
    {&op_global_avg_pool, &flat, 1, {S2(B, 5)}, MANTA_EINVAL,
     "expected an input of shape (batch, height, width, channels), given (batch, 5)"},
    {&op_batch_norm, &bn_bare, 3, {S2(B, 5), S1(4), S1(4)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., 4), given (batch, 5)"},
    {&op_layer_norm, &ln_beta, 2, {S2(B, 5), S1(4)}, MANTA_EINVAL,
     "expected an input that ends in the dimensions (4,), given (batch, 5)"},
};
/* clang-format on */

static void shapes_that_cannot_be_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const bad_case *b = &bad_cases[i];
        manta_array in[3];
        manta_op_shape s = {.attrs = b->attrs, .n_in = b->n_in, .in = in, .n_out = 1};
        for (int k = 0; k < b->n_in; k++)
            in[k] = manta_array_of(MANTA_DTYPE_F32, b->in[k].n, b->in[k].d, NULL);
        s.out[0] = in[0];
        assert_int_equal(b->op->shape(&s), b->status);
        assert_string_equal(manta_error_text(), b->sentence);
    }
}

static void other_types_are_named(void **state)
{
    (void)state;
    manta_array in[2] = {manta_array_of(MANTA_DTYPE_U8, 2, (int64_t[]){-1, 4}, NULL),
                         manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){4, 3}, NULL)};
    manta_op_shape s = {.n_in = 2, .in = in, .n_out = 1};
    assert_int_equal(op_dense.shape(&s), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "expected an input of type float32, given uint8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_that_cannot_be_are_named),
        cmocka_unit_test(other_types_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
