/* image.c - random crop and flip of an image column (H, W) or (H, W, C). */
#include <string.h>

#include "base/mem.h"
#include "data/random.h"
#include "data/stage.h"

typedef struct image {
    bool flip;
    int column;
    double p; /* flip: how likely */
    int64_t pad; /* crop: zeros added on each side */
    int64_t h, w; /* of the input */
    int64_t oh, ow; /* of the output */
    size_t pixel; /* bytes */
} image;

static manta_status image_open(reader *r)
{
    return reader_scratch(r, r->d->in[0], ((const image *)r->d->state)->column);
}

static void flip_image(const image *s, const char *from, char *to)
{
    for (int64_t y = 0; y < s->h; y++) {
        const char *row = from + (size_t)(y * s->w) * s->pixel;
        for (int64_t x = s->w; x-- > 0; to += s->pixel) memcpy(to, row + (size_t)x * s->pixel, s->pixel);
    }
}

/* The window whose corner lies at (top, left) of the image without padding;
 * what lies outside is zero. */
static void crop_image(const image *s, const char *from, int64_t top, int64_t left, char *to)
{
    int64_t x0 = left < 0 ? -left : 0;
    int64_t x1 = s->w - left < s->ow ? s->w - left : s->ow;

    for (int64_t y = 0; y < s->oh; y++, to += (size_t)s->ow * s->pixel) {
        int64_t iy = top + y;
        if (iy < 0 || iy >= s->h || x0 >= x1) {
            memset(to, 0, (size_t)s->ow * s->pixel);
            continue;
        }
        memset(to, 0, (size_t)x0 * s->pixel);
        memcpy(to + (size_t)x0 * s->pixel, from + (size_t)(iy * s->w + left + x0) * s->pixel,
               (size_t)(x1 - x0) * s->pixel);
        memset(to + (size_t)x1 * s->pixel, 0, (size_t)(s->ow - x1) * s->pixel);
    }
}

static manta_status image_fetch(reader *r, visit *v)
{
    const image *s = r->d->state;
    void *out[MANTA_MAX_COLUMNS];

    void *const *wanted = v->out;
    char *to = wanted[s->column];

    memcpy(out, wanted, (size_t)r->d->n * sizeof out[0]);
    if (to) out[s->column] = r->scratch[s->column];
    v->out = out;
    manta_status st = reader_fetch(r->in[0], v);
    v->out = wanted;
    if (st || v->end || !to) return st;

    const char *from = r->scratch[s->column];
    random_stream random = random_begin(r->d->seed, v->key_epoch, v->key_sample);
    if (!s->flip) {
        int64_t top = (int64_t)random_below(&random, (uint64_t)(s->h + 2 * s->pad - s->oh + 1)) - s->pad;
        int64_t left = (int64_t)random_below(&random, (uint64_t)(s->w + 2 * s->pad - s->ow + 1)) - s->pad;
        crop_image(s, from, top, left, to);
    } else if (random_uniform(&random) < s->p) {
        flip_image(s, from, to);
    } else {
        memcpy(to, from, (size_t)(s->h * s->w) * s->pixel);
    }
    return MANTA_OK;
}

static void image_release(manta_dataset *d)
{
    mem_free(d->state);
}

static const stage_class image_class = {
    .name = "image", .fetch = image_fetch, .open = image_open, .release = image_release};

static manta_status describe_image(const manta_dataset *d, const char *who, const char *column, image *s)
{
    TRY(stage_need_column(d, column, &s->column));
    const manta_column_spec *c = &d->columns[s->column];
    if (d->batch)
        return manta_fail(MANTA_EINVAL,
                          "%s: the dataset holds batches, expected samples; put it before batch()", who);
    if (c->ndim != 2 && c->ndim != 3) {
        char text[96];
        return manta_fail(MANTA_EINVAL,
                          "%s: column '%s' has the shape %s, expected an image (H, W) or (H, W, C)", who,
                          column, manta_shape_text(c->ndim, c->shape, text, sizeof text));
    }
    s->h = c->shape[0];
    s->w = c->shape[1];
    s->pixel = manta_dtype_size(c->dtype) * (size_t)(c->ndim == 3 ? c->shape[2] : 1);
    return MANTA_OK;
}

static manta_dataset *image_stage(manta_dataset *in, const char *who, const char *column, uint64_t seed,
                                  image **state)
{
    bool ok;
    manta_dataset *d = stage_new(&image_class, in, &ok);

    *state = NULL;
    if (!ok) return d;
    image *s = mem_new(sizeof *s);
    d->state = s;
    d->seed = seed;
    manta_status st = describe_image(d, who, column, s);
    if (st) return stage_fail(d, st);
    *state = s;
    return d;
}

manta_dataset *manta_dataset_random_crop(manta_dataset *in, const char *column, int pad, int height,
                                         int width, uint64_t seed)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");

    image *s;
    manta_dataset *d = image_stage(in, "random_crop", column, seed, &s);

    if (!s) return d;
    s->pad = pad;
    s->oh = height;
    s->ow = width;
    if (pad < 0 || height < 1 || width < 1 || height > s->h + 2 * s->pad || width > s->w + 2 * s->pad) {
        return stage_fail(d,
                          manta_fail(MANTA_EINVAL,
                                     "random_crop: %d x %d does not fit into images of %lld x %lld with %d "
                                     "zeros around",
                                     height, width, (long long)s->h, (long long)s->w, pad));
    }
    d->columns[s->column].shape[0] = height;
    d->columns[s->column].shape[1] = width;
    return d;
}

manta_dataset *manta_dataset_random_flip(manta_dataset *in, const char *column, double p, uint64_t seed)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");

    image *s;
    manta_dataset *d = image_stage(in, "random_flip", column, seed, &s);

    if (!s) return d;
    s->flip = true;
    s->p = p;
    if (!(p >= 0 && p <= 1)) {
        return stage_fail(d,
                          manta_fail(MANTA_EINVAL, "random_flip: a probability of %g, expected 0 to 1", p));
    }
    return d;
}
