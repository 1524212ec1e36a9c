/* copy_test.c - strided copies, fills, arithmetic and conversions, each against
 * a loop over single elements. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "ok.h"
#include "tensor/convert.h"
#include "tensor/copy.h"

static pool *threads2;

static int start(void **state)
{
    (void)state;
    return pool_new(2, KERN_SCRATCH, &threads2) != MANTA_OK;
}

static int stop(void **state)
{
    (void)state;
    pool_free(threads2);
    return 0;
}

/* Offset, in elements, of the element with number i in row-major order. */
static int64_t offset(const manta_array *a, int64_t i)
{
    int64_t at = 0;

    for (int d = a->ndim - 1; d >= 0; d--) {
        at += i % a->shape[d] * a->strides[d];
        i /= a->shape[d];
    }
    return at;
}

static float *numbers(int64_t n, int seed)
{
    float *p = malloc((size_t)(n + 1) * sizeof *p);

    for (int64_t i = 0; i < n; i++) p[i] = (float)((i * 7919 + seed) % 10007) * 0.25f;
    return p;
}

/* Copies src to a view of a larger array and checks every element, inside and outside. */
static void check_copy(const manta_array *src, const manta_array *dst, float *memory, int64_t n, bool add)
{
    for (int with_pool = 0; with_pool < 2; with_pool++) {
        float *want = numbers(n, 3);
        memcpy(memory, want, (size_t)n * sizeof *want);
        int64_t base = (float *)dst->data - memory;
        for (int64_t i = 0; i < manta_array_count(dst); i++) {
            float v = ((const float *)src->data)[offset(src, i)];
            want[base + offset(dst, i)] = add ? want[base + offset(dst, i)] + v : v;
        }
        assert_int_equal(copy_strided(with_pool ? threads2 : NULL, dst, src, add), MANTA_OK);
        assert_memory_equal(memory, want, (size_t)n * sizeof *want);
        free(want);
    }
}

static void axes_are_permuted(void **state)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 1},   {2, 3, 4, 5},   {33, 1, 65, 2},
                                        {7, 40, 3, 32}, {4, 64, 64, 8}, {0, 3, 4, 5}};
    static const int axes[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 3, 1, 2},
                                  {0, 2, 3, 1}, {1, 0, 3, 2}, {2, 3, 0, 1}};
    (void)state;

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t p = 0; p < sizeof axes / sizeof *axes; p++)
            for (int add = 0; add < 2; add++) {
                int64_t shape[4];
                manta_array a = manta_array_of(MANTA_DTYPE_F32, 4, shapes[s], NULL);
                int64_t n = manta_array_count(&a);
                float *x = numbers(n, 1), *y = malloc((size_t)(n + 1) * sizeof *y);
                a.data = x;
                manta_array view = copy_permuted(&a, axes[p]);
                for (int d = 0; d < 4; d++) shape[d] = view.shape[d];
                manta_array b = manta_array_of(MANTA_DTYPE_F32, 4, shape, y);
                check_copy(&view, &b, y, n, add);
                free(x), free(y);
            }
}

/* Padding, slicing and concatenating: into the middle of a larger array; and backwards. */
static void slices_are_copied_both_ways(void **state)
{
    int64_t large[3] = {9, 50, 70}, small[3] = {4, 20, 33};
    float *big = malloc(9 * 50 * 70 * sizeof *big), *x = numbers((int64_t)4 * 20 * 33, 5);
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 3, large, big),
                b = manta_array_of(MANTA_DTYPE_F32, 3, small, x), v;
    (void)state;

    assert_int_equal(copy_slice(&a, 0, 3, 4, &v), MANTA_OK);
    assert_int_equal(copy_slice(&v, 1, 30, 20, &v), MANTA_OK);
    assert_int_equal(copy_slice(&v, 2, 1, 33, &v), MANTA_OK);
    check_copy(&b, &v, big, 9 * 50 * 70, false);
    check_copy(&b, &v, big, 9 * 50 * 70, true);
    b.data = x + 32; /* the last axis reversed */
    b.strides[2] = -1;
    check_copy(&b, &v, big, 9 * 50 * 70, false);
    assert_int_equal(copy_slice(&a, 0, 6, 4, &v), MANTA_EINVAL);
    assert_int_equal(copy_slice(&a, 3, 0, 1, &v), MANTA_EINVAL);
    assert_int_equal(copy_slice(&a, 0, -1, 1, &v), MANTA_EINVAL);
    assert_int_equal(copy_slice(&a, 0, 9, 0, &v), MANTA_OK);
    assert_int_equal(copy_strided(NULL, &a, &b, false), MANTA_EINVAL);
    assert_error_says("(9, 50, 70)");
    free(big), free(x);
}

static void small_shapes_are_broadcast(void **state)
{
    int64_t shape[3] = {40, 30, 50}, from[][3] = {{50}, {30, 1}, {40, 1, 50}, {1, 30, 50}, {1}, {40, 30, 50}};
    int ndim[] = {1, 2, 3, 3, 1, 3};
    int64_t n = 40 * 30 * 50;
    float *x = numbers(n, 1), *y = malloc((size_t)n * sizeof *y), *z = numbers(n, 9);
    manta_array out = manta_array_of(MANTA_DTYPE_F32, 3, shape, y),
                full = manta_array_of(MANTA_DTYPE_F32, 3, shape, z);
    (void)state;

    for (int k = 0; k < 6; k++) {
        manta_array a = manta_array_of(MANTA_DTYPE_F32, ndim[k], from[k], x), v;
        assert_int_equal(copy_broadcast(&a, 3, shape, &v), MANTA_OK);
        check_copy(&v, &out, y, n, false);
        for (int op = 0; op < KERN_BINARIES; op++)
            for (int side = 0; side < 2; side++) {
                assert_int_equal(
                    copy_binary(threads2, (kern_binary)op, &out, side ? &v : &full, side ? &full : &v),
                    MANTA_OK);
                for (int64_t i = 0; i < n; i++) {
                    float p = x[offset(&v, i)], q = z[i];
                    float l = side ? p : q, r = side ? q : p;
                    assert_true(y[i] == (op == KERN_ADD ? l + r : op == KERN_SUB ? l - r : l * r));
                }
            }
    }
    int64_t wrong[2] = {31, 50};
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 2, wrong, x), v;
    assert_int_equal(copy_broadcast(&a, 3, shape, &v), MANTA_EINVAL);
    assert_error_says("(31, 50)");
    assert_int_equal(copy_broadcast(&out, 2, shape, &v), MANTA_EINVAL);
    /* A repeated element cannot be written. */
    int64_t row[1] = {50};
    a = manta_array_of(MANTA_DTYPE_F32, 1, row, x);
    assert_int_equal(copy_broadcast(&a, 3, shape, &v), MANTA_OK);
    assert_int_equal(copy_strided(NULL, &v, &out, true), MANTA_EINVAL);
    free(x), free(y), free(z);
}

static void every_dtype_is_filled(void **state)
{
    (void)state;
    for (int t = 0; t < MANTA_DTYPE_COUNT; t++) {
        unsigned char bytes[8 * 6 * 8], one[8];
        int64_t shape[2] = {6, 8};
        manta_array a = manta_array_of((manta_dtype)t, 2, shape, bytes), v;
        size_t size = manta_dtype_size((manta_dtype)t);
        double value = 1.75;
        memset(bytes, 0xee, sizeof bytes);
        assert_int_equal(copy_slice(&a, 1, 2, 3, &v), MANTA_OK);
        assert_int_equal(copy_fill(threads2, &v, value), MANTA_OK);
        convert_run(MANTA_DTYPE_F64, &value, (manta_dtype)t, one, 1);
        for (int i = 0; i < 48; i++) {
            bool inside = i % 8 >= 2 && i % 8 < 5;
            for (size_t k = 0; k < size; k++)
                assert_int_equal(bytes[(size_t)i * size + k], inside ? one[k] : 0xee);
        }
    }
}

/* ---- conversions ---- */

/* Every half there is, to float and back, and every float near a rounding edge of one. */
static void every_half_is_converted_there_and_back(void **state)
{
    static uint16_t all[65536], back[65536];
    static float wide[65536], up[65536], down[65536];
    (void)state;

    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (int t = 0; t < 2; t++) {
        manta_dtype h = t ? MANTA_DTYPE_BF16 : MANTA_DTYPE_F16;
        convert_run(h, all, MANTA_DTYPE_F32, wide, 65536);
        for (int i = 0; i < 65536; i++) {
            float one = t ? bf16_to_f32(all[i]) : f16_to_f32(all[i]);
            assert_memory_equal(&one, &wide[i], sizeof one);
            up[i] = nextafterf(wide[i], INFINITY);
            if (i < 0x7c00)
                up[i] =
                    0.5f * (wide[i] + (t ? bf16_to_f32((uint16_t)(i + 1)) : f16_to_f32((uint16_t)(i + 1))));
            down[i] = nextafterf(up[i], -INFINITY);
        }
        const float *from[] = {wide, up, down};
        for (int k = 0; k < 3; k++) {
            convert_run(MANTA_DTYPE_F32, from[k], h, back, 65531); /* a tail as well */
            for (int i = 0; i < 65531; i++)
                assert_int_equal(back[i], t ? bf16_from_f32(from[k][i]) : f16_from_f32(from[k][i]));
        }
    }
}

/* Rounded once: just above the middle between two halves, by less than a float shows. */
static void doubles_are_rounded_once(void **state)
{
    double d[4] = {1.0 + 0x1p-11 + 0x1p-40, 1.0 + 0x1p-11, 1.0 + 0x1p-11 - 0x1p-40, 65520.0 - 0x1p-30};
    uint16_t h[4];
    (void)state;

    convert_run(MANTA_DTYPE_F64, d, MANTA_DTYPE_F16, h, 4);
    assert_int_equal(h[0], 0x3c01); /* by way of float it would be 0x3c00 */
    assert_int_equal(h[1], 0x3c00);
    assert_int_equal(h[2], 0x3c00);
    assert_int_equal(h[3], 0x7bff); /* 65504, not infinity */
    double b[2] = {1.0 + 0x1p-8 + 0x1p-40, 1.0 + 0x1p-8};
    convert_run(MANTA_DTYPE_F64, b, MANTA_DTYPE_BF16, h, 2);
    assert_int_equal(h[0], 0x3f81);
    assert_int_equal(h[1], 0x3f80);
}

static void integers_are_cut_and_saturated(void **state)
{
    double d[] = {1.9, -1.9, 300, -5, NAN, INFINITY, -INFINITY, 3e9, 1e19, 0.5, -0.0};
    int32_t i32[11], want32[] = {1, -1, 300, -5, 0, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MAX, 0, 0};
    int64_t i64[11], want64[] = {1, -1, 300, -5, 0, INT64_MAX, INT64_MIN, 3000000000, INT64_MAX, 0, 0};
    uint8_t u8[11], want8[] = {1, 0, 255, 0, 0, 255, 0, 255, 255, 0, 0}, yes[11],
                    want[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0};
    (void)state;

    convert_run(MANTA_DTYPE_F64, d, MANTA_DTYPE_I32, i32, 11);
    convert_run(MANTA_DTYPE_F64, d, MANTA_DTYPE_I64, i64, 11);
    convert_run(MANTA_DTYPE_F64, d, MANTA_DTYPE_U8, u8, 11);
    convert_run(MANTA_DTYPE_F64, d, MANTA_DTYPE_BOOL, yes, 11);
    assert_memory_equal(i32, want32, sizeof i32);
    assert_memory_equal(i64, want64, sizeof i64);
    assert_memory_equal(u8, want8, sizeof u8);
    assert_memory_equal(yes, want, sizeof yes);
    int64_t big[] = {257, -1, (int64_t)1 << 33, 16777217};
    float f[4], wantf[] = {257, -1, 8589934592.0f, 16777216.0f};
    uint8_t low[4], want_low[] = {1, 255, 0, 1}, truth[3] = {0, 7, 255}, clean[3], want_clean[] = {0, 1, 1};
    convert_run(MANTA_DTYPE_I64, big, MANTA_DTYPE_U8, low, 4);
    convert_run(MANTA_DTYPE_I64, big, MANTA_DTYPE_F32, f, 4);
    convert_run(MANTA_DTYPE_BOOL, truth, MANTA_DTYPE_BOOL, clean, 3);
    assert_memory_equal(low, want_low, sizeof low);
    assert_memory_equal(f, wantf, sizeof f);
    assert_memory_equal(clean, want_clean, sizeof clean);
}

/* Small whole numbers survive every pair of dtypes, in strided arrays and at awkward lengths. */
static void every_pair_of_dtypes_is_converted(void **state)
{
    (void)state;
    for (int from = 0; from < MANTA_DTYPE_COUNT; from++)
        for (int to = 0; to < MANTA_DTYPE_COUNT; to++) {
            enum { N = 1100 };
            static double a[N], d[N];
            static uint64_t x[N], y[N];
            bool boolean = from == MANTA_DTYPE_BOOL || to == MANTA_DTYPE_BOOL;
            for (int i = 0; i < N; i++) a[i] = boolean ? i % 2 : i % 128;
            convert_run(MANTA_DTYPE_F64, a, (manta_dtype)from, x, N);
            manta_array s = {
                .data = x, .dtype = (manta_dtype)from, .ndim = 2, .shape = {10, 110}, .strides = {1, 10}};
            manta_array t = {
                .data = y, .dtype = (manta_dtype)to, .ndim = 2, .shape = {10, 110}, .strides = {110, 1}};
            assert_int_equal(copy_strided(threads2, &t, &s, false), MANTA_OK);
            convert_run((manta_dtype)to, y, MANTA_DTYPE_F64, d, N);
            for (int i = 0; i < N; i++) assert_true(d[i] == a[i / 110 + i % 110 * 10]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_are_permuted),
        cmocka_unit_test(slices_are_copied_both_ways),
        cmocka_unit_test(small_shapes_are_broadcast),
        cmocka_unit_test(every_dtype_is_filled),
        cmocka_unit_test(every_half_is_converted_there_and_back),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(integers_are_cut_and_saturated),
        cmocka_unit_test(every_pair_of_dtypes_is_converted),
    };

    return cmocka_run_group_tests_name("tensor/copy", tests, start, stop);
}
