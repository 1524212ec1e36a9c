/* array_test.c - dtypes and views, with shapes as a hostile file may give them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include <manta/array.h>

#include "ok.h"

static void dtypes_have_sizes_and_names(void **state)
{
    (void)state;
    static const size_t sizes[MANTA_DTYPE_COUNT] = {4, 8, 2, 2, 4, 8, 1, 1};
    for (int t = 0; t < MANTA_DTYPE_COUNT; t++) {
        manta_dtype back = MANTA_DTYPE_COUNT;
        assert_int_equal(manta_dtype_size((manta_dtype)t), sizes[t]);
        assert_int_equal(manta_dtype_parse(manta_dtype_name((manta_dtype)t), &back), MANTA_OK);
        assert_int_equal(back, t);
    }
    assert_int_equal(manta_dtype_size(MANTA_DTYPE_COUNT), 0);
    assert_int_equal(manta_dtype_size((manta_dtype)-1), 0);
    assert_string_equal(manta_dtype_name((manta_dtype)99), "?");
    assert_string_equal(manta_dtype_name(MANTA_DTYPE_BF16), "bfloat16");
    manta_dtype t = MANTA_DTYPE_I64;
    assert_int_equal(manta_dtype_parse("complex64", &t), MANTA_EINVAL);
    assert_int_equal(t, MANTA_DTYPE_I64);
    assert_error_says("complex64");
    assert_int_equal(manta_dtype_parse("flaot32", &t), MANTA_EINVAL);
    assert_error_says("did you mean float32?");
}

static void views_are_row_major(void **state)
{
    (void)state;
    int64_t shape[] = {2, 3, 4};
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 3, shape, NULL);
    assert_int_equal(a.strides[0], 12);
    assert_int_equal(a.strides[1], 4);
    assert_int_equal(a.strides[2], 1);
    assert_int_equal(manta_array_count(&a), 24);
    assert_int_equal(manta_array_bytes(&a), 96);
    assert_true(manta_array_is_contiguous(&a));
    a.strides[1] = 8;
    assert_false(manta_array_is_contiguous(&a));
    a.shape[1] = 1; /* its stride no longer matters, but the outer one does */
    assert_false(manta_array_is_contiguous(&a));
    a.strides[0] = 4;
    assert_true(manta_array_is_contiguous(&a));
    a.strides[2] = 0;
    assert_false(manta_array_is_contiguous(&a));
    manta_array scalar = manta_array_of(MANTA_DTYPE_F64, 0, NULL, NULL);
    assert_int_equal(manta_array_count(&scalar), 1);
    assert_int_equal(manta_array_bytes(&scalar), 8);
    assert_true(manta_array_is_contiguous(&scalar));
}

static void impossible_shapes_never_look_small(void **state)
{
    (void)state;
    int64_t huge[] = {INT64_MAX / 2, 3, 2}, wrap[] = {(int64_t)1 << 32, (int64_t)1 << 32},
            empty[] = {wrap[0], wrap[0], 0};
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 3, huge, NULL);
    assert_true(manta_array_count(&a) == INT64_MAX);
    assert_true(manta_array_bytes(&a) == SIZE_MAX);
    a = manta_array_of(MANTA_DTYPE_F32, 2, wrap, NULL);
    assert_true(manta_array_count(&a) == INT64_MAX);
    a = manta_array_of(MANTA_DTYPE_F64, 1, (int64_t[]){INT64_MAX / 2}, NULL);
    assert_true(manta_array_bytes(&a) == SIZE_MAX); /* the count fits, the bytes do not */
    a = manta_array_of(MANTA_DTYPE_F32, 3, empty, NULL);
    assert_int_equal(manta_array_count(&a), 0);
    assert_int_equal(manta_array_bytes(&a), 0);
    assert_true(manta_array_is_contiguous(&a));
    a = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){-1, 5}, NULL);
    assert_int_equal(manta_array_count(&a), 0);
}

static void shapes_are_written_as_python_does(void **state)
{
    (void)state;
    char b[32];
    int64_t shape[] = {60000, 28, 28};
    assert_string_equal(manta_shape_text(3, shape, b, sizeof b), "(60000, 28, 28)");
    assert_string_equal(manta_shape_text(1, shape, b, sizeof b), "(60000,)");
    assert_string_equal(manta_shape_text(0, shape, b, sizeof b), "()");
    for (size_t size = 1; size < 16; size++) { /* cut to fit, never beyond */
        memset(b, '#', sizeof b);
        manta_shape_text(3, shape, b, size);
        assert_int_equal(strlen(b), size - 1);
        assert_memory_equal(b, "(60000, 28, 28)", size - 1);
        assert_int_equal(b[size], '#');
    }
    b[0] = '#';
    assert_ptr_equal(manta_shape_text(3, shape, b, 0), b);
    assert_int_equal(b[0], '#');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_sizes_and_names),
        cmocka_unit_test(views_are_row_major),
        cmocka_unit_test(impossible_shapes_never_look_small),
        cmocka_unit_test(shapes_are_written_as_python_does),
    };

    return cmocka_run_group_tests_name("base/array", tests, NULL, NULL);
}
