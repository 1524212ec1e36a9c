/* augment.c - images made larger, smaller, turned, and of other colours.
 *
 * A column is (H, W) or (H, W, C) of f32 or u8. Each operation reads a whole image from scratch memory and
 * writes another. All arithmetic is in float with the order that is written here, and the sine is our
 * own, so that an image is the same to the bit on every machine. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "data/random.h"
#include "data/stage.h"

typedef struct augment augment;
typedef void augment_fn(const augment *a, random_stream *random, const void *from, void *to);

struct augment {
    augment_fn *apply;
    int column;
    manta_dtype dtype;
    int64_t h, w, c; /* of the input */
    int64_t oh, ow; /* of the output */
    double degrees;
    double brightness, contrast, saturation;
};

/* ---- elements ---- */

static float element_at(const augment *a, const void *from, int64_t i)
{
    return a->dtype == MANTA_DTYPE_F32 ? ((const float *)from)[i] : (float)((const uint8_t *)from)[i];
}

static void put_element(const augment *a, void *to, int64_t i, float v)
{
    if (a->dtype == MANTA_DTYPE_F32) {
        ((float *)to)[i] = v;
    } else {
        ((uint8_t *)to)[i] = (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : (int)(v + 0.5f));
    }
}

static float mix_values(float a, float b, float share)
{
    return a + (b - a) * share;
}

/* ---- resize ---- */

/* The two points that output point i lies between, and how far it is from the first. */
static float find_place(int64_t i, int64_t from, int64_t to, int64_t *low, int64_t *high)
{
    float scale = (float)from / (float)to, at = ((float)i + 0.5f) * scale - 0.5f, below = floorf(at);

    *low = below < 0 ? 0 : (int64_t)below;
    *high = (int64_t)below + 1 < from ? (int64_t)below + 1 : from - 1;
    return at - below;
}

static void resize_image(const augment *a, random_stream *random, const void *from, void *to)
{
    int64_t out = 0;

    (void)random;
    for (int64_t y = 0; y < a->oh; y++) {
        int64_t y0, y1, x0, x1;
        float fy = find_place(y, a->h, a->oh, &y0, &y1);
        for (int64_t x = 0; x < a->ow; x++) {
            float fx = find_place(x, a->w, a->ow, &x0, &x1);
            for (int64_t k = 0; k < a->c; k++) {
                float top = mix_values(element_at(a, from, (y0 * a->w + x0) * a->c + k),
                                       element_at(a, from, (y0 * a->w + x1) * a->c + k), fx);
                float bottom = mix_values(element_at(a, from, (y1 * a->w + x0) * a->c + k),
                                          element_at(a, from, (y1 * a->w + x1) * a->c + k), fx);
                put_element(a, to, out++, mix_values(top, bottom, fy));
            }
        }
    }
}

static void crop_middle(const augment *a, random_stream *random, const void *from, void *to)
{
    size_t pixel = (size_t)a->c * manta_dtype_size(a->dtype), row = (size_t)a->ow * pixel;
    int64_t top = (a->h - a->oh) / 2, left = (a->w - a->ow) / 2;

    (void)random;
    for (int64_t y = 0; y < a->oh; y++)
        memcpy((char *)to + (size_t)y * row, (const char *)from + (size_t)((top + y) * a->w + left) * pixel,
               row);
}

/* ---- rotation ---- */

/* The sine of an angle in [-2 pi, 2 pi]: Taylor's series, less than 1e-12 from the truth. */
static double sine_of(double x)
{
    static const double pi = 3.14159265358979323846;
    double square, sum = 0;

    while (x > pi) x -= 2 * pi;
    while (x < -pi) x += 2 * pi;
    square = x * x;
    for (int k = 14; k > 0; k--) sum = (1 + sum) * -square / (double)((2 * k) * (2 * k + 1));
    return x * (1 + sum);
}

static float point_at(const augment *a, const void *from, int64_t y, int64_t x, int64_t k)
{
    bool inside = y >= 0 && y < a->h && x >= 0 && x < a->w;

    return inside ? element_at(a, from, (y * a->w + x) * a->c + k) : 0;
}

static void rotate_image(const augment *a, random_stream *random, const void *from, void *to)
{
    static const double degree = 3.14159265358979323846 / 180;
    double angle = (2 * random_uniform(random) - 1) * a->degrees * degree;
    float s = (float)sine_of(angle), c = (float)sine_of(angle + 90 * degree);
    float my = (float)(a->h - 1) / 2, mx = (float)(a->w - 1) / 2;
    int64_t out = 0;

    for (int64_t y = 0; y < a->h; y++) {
        for (int64_t x = 0; x < a->w; x++) {
            float dy = (float)y - my, dx = (float)x - mx;
            float sy = my + (s * dx + c * dy), sx = mx + (c * dx - s * dy);
            float y0 = floorf(sy), x0 = floorf(sx);
            int64_t iy = (int64_t)y0, ix = (int64_t)x0;
            for (int64_t k = 0; k < a->c; k++) {
                float top =
                    mix_values(point_at(a, from, iy, ix, k), point_at(a, from, iy, ix + 1, k), sx - x0);
                float bottom = mix_values(point_at(a, from, iy + 1, ix, k),
                                          point_at(a, from, iy + 1, ix + 1, k), sx - x0);
                put_element(a, to, out++, mix_values(top, bottom, sy - y0));
            }
        }
    }
}

/* ---- colour ---- */

static float draw_factor(random_stream *random, double v)
{
    double low = v < 1 ? 1 - v : 0;

    return (float)(low + random_uniform(random) * (1 + v - low));
}

static float cut_value(const augment *a, float v)
{
    float most = a->dtype == MANTA_DTYPE_F32 ? 1 : 255;

    return v < 0 ? 0 : v > most ? most : v;
}

static float grey_of(const augment *a, const void *image, int64_t pixel)
{
    int64_t at = pixel * a->c;

    if (a->c != 3) return element_at(a, image, at);
    return 0.2989f * element_at(a, image, at) + 0.587f * element_at(a, image, at + 1) +
           0.114f * element_at(a, image, at + 2);
}

/* The image is in `to` and stays there. What a blend with 0 is to brightness, one with the mean grey is to
 * contrast, and one with each point's own grey to saturation. */
static void color_image(const augment *a, random_stream *random, const void *from, void *to)
{
    int64_t pixels = a->h * a->w, n = pixels * a->c;
    float brightness = draw_factor(random, a->brightness), contrast = draw_factor(random, a->contrast);
    float saturation = draw_factor(random, a->saturation);
    double sum = 0;

    for (int64_t i = 0; i < n; i++) put_element(a, to, i, cut_value(a, element_at(a, from, i) * brightness));
    for (int64_t i = 0; i < pixels; i++) sum += (double)grey_of(a, to, i);
    float mean = (float)(sum / (double)pixels);
    for (int64_t i = 0; i < n && contrast != 1; i++)
        put_element(a, to, i, cut_value(a, contrast * element_at(a, to, i) + (1 - contrast) * mean));
    for (int64_t i = 0; i < pixels && a->c == 3 && saturation != 1; i++) {
        float grey = grey_of(a, to, i);
        for (int64_t k = 3 * i; k < 3 * i + 3; k++)
            put_element(a, to, k, cut_value(a, saturation * element_at(a, to, k) + (1 - saturation) * grey));
    }
}

/* ---- as a stage ---- */

static manta_status augment_open(reader *r)
{
    return reader_scratch(r, r->d->in[0], ((const augment *)r->d->state)->column);
}

static manta_status augment_fetch(reader *r, visit *v)
{
    const augment *a = r->d->state;
    void *out[MANTA_MAX_COLUMNS];
    void *const *wanted = v->out;
    void *to = wanted[a->column];

    memcpy(out, wanted, (size_t)r->d->n * sizeof out[0]);
    if (to) out[a->column] = r->scratch[a->column];
    v->out = out;
    manta_status st = reader_fetch(r->in[0], v);
    v->out = wanted;
    if (st || v->end || !to) return st;
    random_stream random = random_begin(r->d->seed, v->key_epoch, v->key_sample);
    a->apply(a, &random, r->scratch[a->column], to);
    return MANTA_OK;
}

static void augment_release(manta_dataset *d)
{
    mem_free(d->state);
}

static const stage_class augment_class = {
    .name = "augment", .fetch = augment_fetch, .open = augment_open, .release = augment_release};

static manta_status describe_image(const manta_dataset *d, const char *who, const char *column, augment *a)
{
    char text[96];

    TRY(stage_need_column(d, column, &a->column));
    const manta_column_spec *c = &d->columns[a->column];
    if (d->batch)
        return manta_fail(MANTA_EINVAL,
                          "%s: the dataset holds batches, expected samples; put it before batch()", who);
    if ((c->ndim != 2 && c->ndim != 3) || (c->dtype != MANTA_DTYPE_F32 && c->dtype != MANTA_DTYPE_U8)) {
        return manta_fail(
            MANTA_EINVAL,
            "%s: column '%s' is %s %s, expected an image (H, W) or (H, W, C) of float32 or uint8", who,
            column, manta_dtype_name(c->dtype), manta_shape_text(c->ndim, c->shape, text, sizeof text));
    }
    a->dtype = c->dtype;
    a->h = a->oh = c->shape[0];
    a->w = a->ow = c->shape[1];
    a->c = c->ndim == 3 ? c->shape[2] : 1;
    return MANTA_OK;
}

/* A stage that does `how` to a column; its state is a copy of it, completed. *a: NULL, it has failed. */
static manta_dataset *add_stage(manta_dataset *in, const char *who, const char *column, uint64_t seed,
                                const augment *how, augment **a)
{
    bool ok;
    manta_dataset *d = stage_new(&augment_class, in, &ok);
    augment *state;

    *a = NULL;
    if (!ok) return d;
    d->state = state = mem_new(sizeof *state);
    *state = *how;
    d->seed = seed;
    manta_status st = describe_image(d, who, column, state);
    if (st) return stage_fail(d, st);
    *a = state;
    return d;
}

static manta_dataset *set_size(manta_dataset *d, augment *a, int height, int width)
{
    a->oh = d->columns[a->column].shape[0] = height;
    a->ow = d->columns[a->column].shape[1] = width;
    return d;
}

enum { SIDE_MOST = 1 << 16 };

manta_dataset *manta_dataset_resize(manta_dataset *in, const char *column, int height, int width)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");

    augment *a;
    manta_dataset *d = add_stage(in, "resize", column, 0, &(augment){.apply = resize_image}, &a);

    if (!a) return d;
    if (height < 1 || width < 1 || height > SIDE_MOST || width > SIDE_MOST || a->h < 1 || a->w < 1) {
        return stage_fail(d, manta_fail(MANTA_EINVAL,
                                        "resize: images of %lld x %lld to %d x %d, expected sides of 1 to %d",
                                        (long long)a->h, (long long)a->w, height, width, SIDE_MOST));
    }
    return set_size(d, a, height, width);
}

manta_dataset *manta_dataset_center_crop(manta_dataset *in, const char *column, int height, int width)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");

    augment *a;
    manta_dataset *d = add_stage(in, "center_crop", column, 0, &(augment){.apply = crop_middle}, &a);

    if (!a) return d;
    if (height < 1 || width < 1 || height > a->h || width > a->w) {
        return stage_fail(d, manta_fail(MANTA_EINVAL,
                                        "center_crop: %d x %d does not lie in images of %lld x %lld", height,
                                        width, (long long)a->h, (long long)a->w));
    }
    return set_size(d, a, height, width);
}

manta_dataset *manta_dataset_random_rotation(manta_dataset *in, const char *column, double degrees,
                                             uint64_t seed)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");

    augment *a, how = {.apply = rotate_image, .degrees = degrees};
    manta_dataset *d = add_stage(in, "random_rotation", column, seed, &how, &a);

    if (!a || (degrees >= 0 && degrees <= 180)) return d;
    return stage_fail(
        d, manta_fail(MANTA_EINVAL, "random_rotation: up to %g degrees, expected 0 to 180", degrees));
}

manta_dataset *manta_dataset_random_color(manta_dataset *in, const char *column, double brightness,
                                          double contrast, double saturation, uint64_t seed)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");

    augment *a,
        how = {
            .apply = color_image, .brightness = brightness, .contrast = contrast, .saturation = saturation};
    manta_dataset *d = add_stage(in, "random_color", column, seed, &how, &a);
    bool fine = brightness >= 0 && contrast >= 0 && saturation >= 0 && brightness <= 100 && contrast <= 100 &&
                saturation <= 100;

    if (!a || fine) return d;
    return stage_fail(
        d, manta_fail(MANTA_EINVAL,
                      "random_color: brightness %g, contrast %g and saturation %g, expected 0 to 100",
                      brightness, contrast, saturation));
}
