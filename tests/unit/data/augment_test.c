/* augment_test.c - images resized, cut, turned and of other colours: against plain arithmetic, and the same
 * whoever asks and in whatever order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>
#include <manta/data.h>

#include "ok.h"

enum { N = 24, H = 5, W = 7, C = 3 };

static float pictures[N][H][W][C];
static uint8_t bytes[N][H][W];

static void fill_pictures(void)
{
    for (int i = 0; i < N * H * W * C; i++) ((float *)pictures)[i] = (float)(i * 7919 % 1000) / 1000;
    for (int i = 0; i < N * H * W; i++) ((uint8_t *)bytes)[i] = (uint8_t)(i * 37);
}

static manta_dataset *of_floats(void)
{
    int64_t shape[] = {N, H, W, C};
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 4, shape, pictures)};

    return manta_dataset_arrays(1, &c, MANTA_OWNERSHIP_BORROW);
}

static manta_dataset *of_bytes(void)
{
    int64_t shape[] = {N, H, W};
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_U8, 3, shape, bytes)};

    return manta_dataset_arrays(1, &c, MANTA_OWNERSHIP_BORROW);
}

/* All images of an epoch, in a batch that lives as long as *l. Takes d. */
static const manta_array *all_of(manta_dataset *d, int64_t epoch, manta_loader **l)
{
    static manta_batch b;

    assert_ok(manta_loader_open(d, &(manta_loader_options){.batch_size = N}, l));
    manta_dataset_unref(d);
    assert_ok(manta_loader_fetch(*l, epoch, 0, 0, N, &b));
    return manta_batch_find(&b, "x");
}

/* ---- resize ---- */

/* The place of output point i among `from`, cut to where there are points. */
static double place_of(int i, int from, int to)
{
    double at = (i + 0.5) * from / to - 0.5;

    return at < 0 ? 0 : at > from - 1 ? from - 1 : at;
}

static double between(int n, double y, double x, int c)
{
    int y0 = (int)y, x0 = (int)x, y1 = y0 + 1 < H ? y0 + 1 : y0, x1 = x0 + 1 < W ? x0 + 1 : x0;
    double fy = y - y0, fx = x - x0;

    return (1 - fy) * ((1 - fx) * (double)pictures[n][y0][x0][c] + fx * (double)pictures[n][y0][x1][c]) +
           fy * ((1 - fx) * (double)pictures[n][y1][x0][c] + fx * (double)pictures[n][y1][x1][c]);
}

static void resizing_is_bilinear_between_middles(void **state)
{
    static const int sizes[][2] = {{H, W}, {10, 14}, {3, 4}, {1, 1}, {50, 2}};

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int h = sizes[k][0], w = sizes[k][1];
        manta_loader *l;
        const manta_array *a = all_of(manta_dataset_resize(of_floats(), "x", h, w), 0, &l);
        const float *x = a->data;
        assert_int_equal(a->shape[1], h);
        assert_int_equal(a->shape[2], w);
        for (int i = 0; i < N * h * w * C; i++) {
            double want =
                between(i / (h * w * C), place_of(i / (w * C) % h, H, h), place_of(i / C % w, W, w), i % C);
            assert_true(fabs((double)x[i] - want) < 1e-5);
            if (h == H && w == W) assert_true(x[i] == ((const float *)pictures)[i]);
        }
        manta_loader_close(l);
    }
}

/* 0 and 255 side by side, twice as wide: a quarter and three quarters between, rounded. */
static void bytes_are_rounded(void **state)
{
    static const uint8_t want[] = {0, 64, 191, 255};
    uint8_t two[2] = {0, 255};
    int64_t shape[] = {1, 1, 2};
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_U8, 3, shape, two)};
    manta_loader *l;
    manta_batch b;

    (void)state;
    manta_dataset *d = manta_dataset_resize(manta_dataset_arrays(1, &c, MANTA_OWNERSHIP_COPY), "x", 1, 4);
    assert_ok(manta_loader_open(d, NULL, &l));
    manta_dataset_unref(d);
    assert_ok(manta_loader_fetch(l, 0, 0, 0, 1, &b));
    assert_memory_equal(manta_batch_find(&b, "x")->data, want, 4);
    manta_loader_close(l);
}

static void the_middle_is_cut_out(void **state)
{
    manta_loader *l;
    const manta_array *a = all_of(manta_dataset_center_crop(of_bytes(), "x", 3, 4), 0, &l);
    const uint8_t *x = a->data;

    (void)state;
    for (int i = 0; i < N * 12; i++)
        assert_int_equal(x[i], bytes[i / 12][1 + i / 4 % 3][1 + i % 4]); /* (5 - 3) / 2, (7 - 4) / 2 */
    manta_loader_close(l);
}

/* ---- rotation ---- */

static void no_degrees_change_nothing(void **state)
{
    manta_loader *l;
    const manta_array *a = all_of(manta_dataset_random_rotation(of_floats(), "x", 0, 1), 0, &l);

    (void)state;
    assert_memory_equal(a->data, pictures, sizeof pictures);
    manta_loader_close(l);
}

/* One bright point beside the middle of a square: it goes around, and its light stays. */
static void a_point_goes_around_the_middle(void **state)
{
    enum { SIDE = 21, MANY = 200 };
    static float square[MANY][SIDE][SIDE];
    int64_t shape[] = {MANY, SIDE, SIDE};
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 3, shape, square)};
    manta_loader *l;
    manta_batch b;
    double left = 90, right = -90;

    (void)state;
    for (int i = 0; i < MANY; i++) square[i][10][17] = 1;
    manta_dataset *d =
        manta_dataset_random_rotation(manta_dataset_arrays(1, &c, MANTA_OWNERSHIP_BORROW), "x", 40, 9);
    assert_ok(manta_loader_open(d, &(manta_loader_options){.batch_size = MANY}, &l));
    manta_dataset_unref(d);
    assert_ok(manta_loader_fetch(l, 0, 0, 0, MANY, &b));
    const float *x = manta_batch_find(&b, "x")->data;
    for (int i = 0; i < MANY; i++) {
        double sum = 0, sy = 0, sx = 0;
        for (int k = 0; k < SIDE * SIDE; k++) {
            double v = (double)x[i * SIDE * SIDE + k];
            sum += v;
            sy += v * (k / SIDE - 10);
            sx += v * (k % SIDE - 10);
        }
        double angle = atan2(sy, sx) * 180 / acos(-1.0);
        assert_true(sum > 0.8 && sum < 1.2);
        assert_true(fabs(hypot(sy, sx) / sum - 7) < 0.3);
        assert_true(fabs(angle) < 41);
        left = fmin(left, angle);
        right = fmax(right, angle);
    }
    assert_true(left < -30 && right > 30);
    manta_loader_close(l);
}

/* ---- colour ---- */

static void colors_stay_within_their_bounds(void **state)
{
    manta_loader *l;
    const manta_array *a = all_of(manta_dataset_random_color(of_floats(), "x", 0.5, 0, 0, 3), 0, &l);
    const float *x = a->data;
    double least = 9, most = 0;

    (void)state;
    for (int n = 0; n < N; n++) { /* one factor for the whole image, cut at 1 */
        const float *from = (const float *)pictures[n], *to = x + n * H * W * C;
        double factor = 0;
        for (int i = 0; i < H * W * C; i++) {
            if (from[i] > 0.2f && to[i] < 1) factor = (double)to[i] / (double)from[i];
        }
        for (int i = 0; i < H * W * C; i++)
            assert_true(fabs((double)to[i] - fmin(1, factor * (double)from[i])) < 1e-6);
        assert_true(factor >= 0.5 && factor <= 1.5);
        least = fmin(least, factor);
        most = fmax(most, factor);
    }
    assert_true(least < 0.8 && most > 1.2);
    manta_loader_close(l);
}

/* Contrast keeps the mean grey, saturation the grey of each point, as long as nothing is cut. */
static void contrast_and_saturation_keep_their_grey(void **state)
{
    static float dim[N][H][W][C];
    int64_t shape[] = {N, H, W, C};
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 4, shape, dim)};

    (void)state;
    for (int i = 0; i < N * H * W * C; i++) ((float *)dim)[i] = 0.4f + 0.2f * ((float *)pictures)[i];
    for (int kind = 0; kind < 2; kind++) {
        manta_dataset *d = manta_dataset_arrays(1, &c, MANTA_OWNERSHIP_BORROW);
        manta_loader *l;
        d = manta_dataset_random_color(d, "x", 0, kind ? 0 : 0.6, kind ? 0.6 : 0, 5);
        const float *x = all_of(d, 0, &l)->data;
        for (int n = 0; n < N; n++) {
            double before = 0, after = 0;
            for (int i = 0; i < H * W; i++) {
                const float *p = (const float *)dim[n] + 3 * i, *q = x + (n * H * W + i) * 3;
                double a = 0.2989 * (double)p[0] + 0.587 * (double)p[1] + 0.114 * (double)p[2];
                double b = 0.2989 * (double)q[0] + 0.587 * (double)q[1] + 0.114 * (double)q[2];
                if (kind) assert_true(fabs(a - b) < 1e-4);
                before += a;
                after += b;
            }
            assert_true(fabs(before - after) / (H * W) < 1e-4);
        }
        assert_memory_not_equal(x, dim, sizeof dim);
        manta_loader_close(l);
    }
}

/* ---- all of them ---- */

static manta_dataset *every_stage(uint64_t seed)
{
    manta_dataset *d = manta_dataset_random_rotation(of_floats(), "x", 20, seed);

    d = manta_dataset_random_color(d, "x", 0.3, 0.3, 0.3, seed + 1);
    return manta_dataset_center_crop(manta_dataset_resize(d, "x", 9, 9), "x", 8, 8);
}

/* Keyed by seed, epoch and sample: any order, any batch, any number of readers. */
static void an_image_is_the_same_whoever_asks(void **state)
{
    enum { PIXELS = 8 * 8 * C };
    static float kept[N][PIXELS];
    manta_loader *l;
    manta_batch b;

    (void)state;
    memcpy(kept, all_of(every_stage(7), 2, &l)->data, sizeof kept);
    manta_loader_close(l);
    for (int readers = 1; readers <= 3; readers += 2) {
        manta_dataset *d = every_stage(7);
        assert_ok(manta_loader_open(d, &(manta_loader_options){.batch_size = 5, .readers = readers}, &l));
        manta_dataset_unref(d);
        assert_ok(manta_loader_seek(l, 2, 0));
        while (manta_loader_next(l, &b))
            assert_memory_equal(manta_batch_find(&b, "x")->data, kept[b.step * 5],
                                (size_t)b.count * sizeof kept[0]);
        assert_ok(manta_loader_status(l));
        manta_loader_close(l);
    }
    assert_memory_not_equal(all_of(every_stage(8), 2, &l)->data, kept, sizeof kept);
    manta_loader_close(l);
    assert_memory_not_equal(all_of(every_stage(7), 3, &l)->data, kept, sizeof kept);
    manta_loader_close(l);
}

static void refuse(manta_dataset *d, const char *word)
{
    assert_fails_with(manta_dataset_status(d), MANTA_EINVAL, word);
    manta_dataset_unref(d);
}

static void what_cannot_be_is_refused(void **state)
{
    int64_t shape[] = {N, 5};
    manta_column flat = {"x", manta_array_of(MANTA_DTYPE_F32, 2, shape, pictures)};

    (void)state;
    refuse(manta_dataset_resize(of_floats(), "x", 0, 4), "1 to 65536");
    refuse(manta_dataset_resize(of_floats(), "x", 4, 65537), "1 to 65536");
    refuse(manta_dataset_resize(of_floats(), "z", 4, 4), "'z'");
    refuse(manta_dataset_resize(manta_dataset_arrays(1, &flat, MANTA_OWNERSHIP_BORROW), "x", 4, 4), "image");
    refuse(manta_dataset_resize(manta_dataset_cast(of_bytes(), "x", MANTA_DTYPE_I64), "x", 4, 4),
           "float32 or uint8");
    refuse(manta_dataset_resize(manta_dataset_batch(of_floats(), 2, false), "x", 4, 4), "before batch");
    refuse(manta_dataset_center_crop(of_floats(), "x", 6, 2), "6 x 2");
    refuse(manta_dataset_random_rotation(of_floats(), "x", 181, 0), "0 to 180");
    refuse(manta_dataset_random_rotation(of_floats(), "x", (double)NAN, 0), "0 to 180");
    refuse(manta_dataset_random_color(of_floats(), "x", -1, 0, 0, 0), "0 to 100");
    refuse(manta_dataset_random_color(of_floats(), "x", 0, 0, (double)INFINITY, 0), "0 to 100");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizing_is_bilinear_between_middles),
        cmocka_unit_test(bytes_are_rounded),
        cmocka_unit_test(the_middle_is_cut_out),
        cmocka_unit_test(no_degrees_change_nothing),
        cmocka_unit_test(a_point_goes_around_the_middle),
        cmocka_unit_test(colors_stay_within_their_bounds),
        cmocka_unit_test(contrast_and_saturation_keep_their_grey),
        cmocka_unit_test(an_image_is_the_same_whoever_asks),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    fill_pictures();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
