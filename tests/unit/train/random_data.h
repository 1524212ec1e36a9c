/* random_data.h - the data of a random training: in memory, or in files of all kinds that datasets are made of,
 * with stages that have chance (keyed by the seed) or memory behind it. */
#ifndef TEST_RANDOM_DATA_H
#define TEST_RANDOM_DATA_H

#include <math.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "format/parquet_rows.h"
#include "format/picture_maker.h"
#include "format/tfrecord/example.h"
#include "format/tfrecord/tfrecord.h"
#include "train/random_training.h"

enum {
    MOST_NUMBERS = MOST_SIDE * MOST_SIDE * 3,
    MOST_PICTURE_SIDE = MOST_SIDE + 3, /* of one that is resized when it is read */
    PICTURE_BYTES = 8192 /* a file of it has less */
};

/* ---- the numbers ---- */

typedef struct numbers {
    int64_t each; /* numbers of a sample */
    float x[MOST_SAMPLES * MOST_NUMBERS], y[MOST_SAMPLES];
    uint8_t bytes[MOST_SAMPLES * MOST_NUMBERS]; /* x as bytes of a picture */
    int64_t label[MOST_SAMPLES];
} numbers;

/* Valid until the next call. */
static inline numbers *numbers_of(const training *t)
{
    static numbers n;
    rng_key k = rng_make(t->seed, 3);

    n.each = t->images ? (int64_t)t->side * t->side * t->channels : t->features;
    for (int64_t i = 0; i < t->samples * n.each; i++) {
        n.x[i] = rng_uniform(rng_at(k, (uint64_t)i).w[0]) - 0.5f;
        n.bytes[i] = (uint8_t)((n.x[i] + 0.5f) * 255);
    }
    for (int64_t i = 0; i < t->samples; i++) {
        const float *x = n.x + i * n.each;
        n.y[i] = x[0] * 2 - x[n.each - 1];
        n.label[i] = x[0] > 0.1f ? 2 : x[0] > -0.2f;
    }
    return &n;
}

/* The samples as two columns. */
static inline void columns_of(const training *t, numbers *n, bool bytes, manta_column out[2])
{
    int64_t dims[4] = {t->samples, t->images ? t->side : t->features, t->side, t->channels};
    int64_t ys[2] = {t->samples, 1};

    out[0] = (manta_column){"x", manta_array_of(bytes ? MANTA_DTYPE_U8 : MANTA_DTYPE_F32, t->images ? 4 : 2,
                                                dims, bytes ? (void *)n->bytes : (void *)n->x)};
    out[1] = (manta_column){"y", t->classes ? manta_array_of(MANTA_DTYPE_I64, 1, ys, n->label)
                                            : manta_array_of(MANTA_DTYPE_F32, 2, ys, n->y)};
}

/* ---- files ---- */

/* The path of `name` in the training's folder; one of four buffers in turn. */
static inline const char *data_path(const training *t, const char *name)
{
    static char paths[4][400];
    static int next;
    char *p = paths[next++ % 4];

    snprintf(p, sizeof paths[0], "%s/%s", t->folder, name);
    return p;
}

static inline void write_bytes(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
}

static inline void write_arrays(training *t, numbers *n, dice *d)
{
    manta_column c[2];

    columns_of(t, n, t->images && flip(d), c);
    t->open.raw = true;
    if (t->source == SOURCE_NPZ) {
        must(manta_arrays_save(data_path(t, "data.npz"), 2, c));
        snprintf(t->spec, sizeof t->spec, "%s:x,y", data_path(t, "data.npz"));
        return;
    }
    must(manta_arrays_save(data_path(t, "x.npy"), 1, &c[0]));
    must(manta_arrays_save(data_path(t, "y.npy"), 1, &c[1]));
    snprintf(t->spec, sizeof t->spec, "%s,%s", data_path(t, "x.npy"), data_path(t, "y.npy"));
}

/* A table as people have them: other delimiters, quotes, categories, dates, and values that are missing. */
static inline void write_csv(training *t, numbers *n, dice *d)
{
    static const char *const kinds[] = {"red", "light green", "blue, dark"}, *const classes[] = {"a", "b",
                                                                                                 "c"};
    static const char *const rules[] = {"mean", "zero", "drop"};
    char delimiter = ",;\t"[roll(d, 3)];
    bool has_kinds = flip(d), has_days = flip(d), misses = flip(d), names_classes = flip(d);
    buf b = {0};

    for (int k = 0; k < t->features; k++) buf_printf(&b, "f%d%c", k, delimiter);
    if (has_kinds) buf_printf(&b, "kind%c", delimiter);
    if (has_days) buf_printf(&b, "day%c", delimiter);
    buf_printf(&b, "y\n");
    for (int i = 0; i < t->samples; i++) {
        for (int k = 0; k < t->features; k++) {
            const char *quote = roll(d, 8) ? "" : "\"";
            if (!misses || i < 2 || roll(d, 16))
                buf_printf(&b, "%s%.9g%s", quote, (double)n->x[i * n->each + k], quote);
            buf_add_char(&b, delimiter);
        }
        if (has_kinds) buf_printf(&b, "\"%s\"%c", kinds[roll(d, 3)], delimiter);
        if (has_days) buf_printf(&b, "1970-01-%02d%c", between(d, 1, 9), delimiter);
        if (!t->classes) {
            buf_printf(&b, "%.9g\n", (double)n->y[i]);
        } else if (names_classes) {
            buf_printf(&b, "%s\n", classes[n->label[i]]);
        } else {
            buf_printf(&b, "%d\n", (int)n->label[i]);
        }
    }
    write_bytes(data_path(t, "data.csv"), b.at, b.n);
    buf_release(&b);
    snprintf(t->spec, sizeof t->spec, "%s:y=y%s%s", data_path(t, "data.csv"), misses ? ",missing=" : "",
             misses ? rules[roll(d, 3)] : "");
}

/* The file of picture i: PNG or JPEG, and its size. */
static inline size_t picture_of(const training *t, const numbers *n, int i, int height, int width,
                                int channels, bool jpeg, uint8_t *out)
{
    uint8_t pixels[MOST_PICTURE_SIDE * MOST_PICTURE_SIDE * 3];

    for (int p = 0; p < height * width * channels; p++)
        pixels[p] = n->bytes[(i * n->each + p) % (t->samples * n->each)];
    return jpeg ? make_jpeg(width, height, channels, pixels, out, PICTURE_BYTES)
                : make_png(width, height, channels, pixels, out, PICTURE_BYTES);
}

/* A folder for each class that there is; pictures of one size, or of any that are resized. */
static inline void write_pictures(training *t, numbers *n, dice *d)
{
    int channels = flip(d) ? 3 : 1;
    bool resized = flip(d);
    uint8_t bytes[PICTURE_BYTES];

    t->open.raw = flip(d);
    t->open.image_channels = roll(d, 3) ? 0 : 4 - channels;
    if (resized) {
        t->open.image_height = between(d, 3, MOST_SIDE);
        t->open.image_width = between(d, 3, MOST_SIDE);
    }
    for (int i = 0; i < t->samples; i++) {
        int height = resized ? between(d, 1, MOST_PICTURE_SIDE) : t->side;
        int width = resized ? between(d, 1, MOST_PICTURE_SIDE) : t->side;
        bool jpeg = flip(d);
        char name[80];
        size_t size = picture_of(t, n, i, height, width, channels, jpeg, bytes);
        snprintf(name, sizeof name, "pictures/class-%d", (int)n->label[i]);
        mkdir(data_path(t, "pictures"), 0700);
        mkdir(data_path(t, name), 0700);
        snprintf(name, sizeof name, "pictures/class-%d/%03d.%s", (int)n->label[i], i, jpeg ? "jpg" : "png");
        write_bytes(data_path(t, name), bytes, size);
    }
    snprintf(t->spec, sizeof t->spec, "%s", data_path(t, "pictures"));
}

typedef enum example_x { X_FLOATS, X_BYTES, X_PICTURES } example_x;

static inline void add_example(const training *t, const numbers *n, example_x kind, int i, buf *b)
{
    example_writer e = example_begin(b);
    uint8_t bytes[PICTURE_BYTES];
    int channels = t->channels == 2 ? 1 : t->channels;

    switch (kind) {
    case X_FLOATS: example_add_floats(&e, "image", n->each, n->x + i * n->each); break;
    case X_BYTES: example_add_bytes(&e, "image", n->bytes + i * n->each, (size_t)n->each); break;
    case X_PICTURES: {
        size_t size = picture_of(t, n, i, t->side, t->side, channels, i % 2, bytes);
        example_add_bytes(&e, "image", bytes, size);
    }
    }
    if (t->classes) {
        example_add_ints(&e, "label", 1, &n->label[i]);
    } else {
        example_add_floats(&e, "label", 1, &n->y[i]);
    }
    example_end(&e);
}

/* One to three files, each plain or packed. */
static inline void write_tfrecord(training *t, numbers *n, dice *d)
{
    example_x kind = t->images ? (example_x)roll(d, 3) : X_FLOATS;
    int files = between(d, 1, t->samples < 3 ? t->samples : 3);
    char shape[40] = "";
    buf b = {0};

    for (int k = 0; k < files; k++) {
        tfrecord_writer *w;
        char name[40];
        snprintf(name, sizeof name, "data-%d.tfrecord", k);
        must(tfrecord_writer_open(data_path(t, name), (tfrecord_packing)roll(d, 3), &w));
        for (int i = t->samples * k / files; i < t->samples * (k + 1) / files; i++) {
            buf_cut(&b, 0);
            add_example(t, n, kind, i, &b);
            must(tfrecord_writer_add(w, b.at, b.n));
        }
        must(tfrecord_writer_commit(w));
        tfrecord_writer_free(w);
    }
    buf_release(&b);
    t->open.raw = flip(d);
    if (!t->images) {
        snprintf(shape, sizeof shape, "@%d", t->features); /* one number would be a scalar */
    } else if (kind != X_PICTURES) {
        snprintf(shape, sizeof shape, "@%s%dx%dx%d", kind == X_BYTES ? "uint8:" : "", t->side, t->side,
                 t->channels);
    }
    snprintf(t->spec, sizeof t->spec, "%s:x=image%s,y=label", data_path(t, "data-*.tfrecord"), shape);
}

/* Pictures in a column, or numbers in a column each, some of which are missing. */
static inline void write_parquet(training *t, numbers *n, dice *d)
{
    parquet_rows_column c[MOST_SIDE * 2];
    buf pictures[MOST_SAMPLES] = {0}, b = {0};
    char names[MOST_SIDE * 2][16];
    int channels = t->channels == 2 ? 1 : t->channels, columns = 0;
    bool table = !t->images && flip(d), misses = table && flip(d);
    uint8_t bytes[PICTURE_BYTES];

    if (t->images) {
        for (int i = 0; i < t->samples; i++) {
            size_t size = picture_of(t, n, i, t->side, t->side, channels, flip(d), bytes);
            buf_add(&pictures[i], bytes, size);
        }
        c[columns++] = (parquet_rows_column){"image", PARQUET_BYTE_ARRAY, pictures, sizeof pictures[0]};
    }
    for (int k = 0; !t->images && k < t->features; k++) {
        snprintf(names[k], sizeof names[k], "f%d", k);
        c[columns++] =
            (parquet_rows_column){names[k], PARQUET_FLOAT, n->x + k, (size_t)n->each * sizeof *n->x};
    }
    for (int i = 2; misses && i < t->samples; i++)
        if (!roll(d, 4)) n->x[i * n->each + roll(d, t->features)] = NAN;
    c[columns++] = t->classes ? (parquet_rows_column){"label", PARQUET_INT64, n->label, sizeof n->label[0]}
                              : (parquet_rows_column){"label", PARQUET_FLOAT, n->y, sizeof n->y[0]};
    parquet_rows(&b, columns, c, t->samples, between(d, 1, t->samples));
    write_bytes(data_path(t, "data.parquet"), b.at, b.n);
    buf_release(&b);
    for (int i = 0; i < t->samples; i++) buf_release(&pictures[i]);
    t->open.raw = flip(d);
    snprintf(t->spec, sizeof t->spec, "%s:%s=label%s", data_path(t, "data.parquet"), table ? "y" : "label",
             misses ? ",missing=mean" : "");
}

/* Writes what the training reads into its folder, and says in it how that is opened. */
static inline void write_data(training *t)
{
    dice d = {.key = rng_make(t->seed, 4)};
    numbers *n = numbers_of(t);

    switch (t->source) {
    case SOURCE_NPY:
    case SOURCE_NPZ: write_arrays(t, n, &d); break;
    case SOURCE_CSV: write_csv(t, n, &d); break;
    case SOURCE_TFRECORD: write_tfrecord(t, n, &d); break;
    case SOURCE_PARQUET: write_parquet(t, n, &d); break;
    case SOURCE_PICTURES: write_pictures(t, n, &d); break;
    case SOURCE_ARRAYS:
    case SOURCES: break;
    }
}

/* ---- stages ---- */

static inline manta_status add_noise(manta_sample *s, void *user)
{
    const float *in = s->in[0].array.data;
    float *out = s->out[0].array.data;
    (void)user;

    for (int64_t i = 0; i < manta_array_count(&s->in[0].array); i++)
        out[i] = in[i] + 0.1f * (float)manta_sample_normal(s);
    memcpy(s->out[1].array.data, s->in[1].array.data, manta_array_bytes(&s->in[1].array));
    return MANTA_OK;
}

/* The first column, x: valid while d lives. */
static inline const manta_column_spec *x_of(const manta_dataset *d)
{
    const manta_column_spec *columns;

    must(manta_dataset_status(d));
    (void)manta_dataset_columns(d, &columns);
    return columns;
}

/* One that leaves the shape of x as it is. */
static inline manta_dataset *add_stage(manta_dataset *d, const training *t, dice *luck, buf *words)
{
    int which = roll(luck, 4);
    const manta_column_spec *x = x_of(d);

    if (which == 0 && x->dtype == MANTA_DTYPE_F32) {
        manta_column_spec same[2] = {x[0], x[1]};
        buf_printf(words, " noise");
        return manta_dataset_map(d, add_noise, NULL, t->seed + 7, 2, same);
    }
    if (which < 2) {
        int room = between(luck, 0, t->samples + 2);
        buf_printf(words, " shuffle(%d)", room);
        return manta_dataset_shuffle(d, room, t->seed + 5);
    }
    buf_printf(words, which == 2 ? " cache" : " prefetch");
    return which == 2 ? manta_dataset_cache(d) : manta_dataset_prefetch(d, between(luck, 1, 4));
}

static inline manta_dataset *add_image_stage(manta_dataset *d, const training *t, dice *luck, buf *words)
{
    static const char *const names[] = {"flip", "crop", "turn", "colour", "resize", "centre"};
    const manta_column_spec *x = x_of(d);
    int h = (int)x->shape[0], w = (int)x->shape[1], which = roll(luck, 6);
    uint64_t seed = t->seed + (uint64_t)roll(luck, 100);

    if (which == 3 && x->shape[2] == 2) which = 2; /* two channels are no colour */
    buf_printf(words, " %s", names[which]);
    switch (which) {
    case 0: return manta_dataset_random_flip(d, "x", 0.5, seed);
    case 1: {
        int pad = between(luck, 0, 2), height = between(luck, 1, h), width = between(luck, 1, w);
        return manta_dataset_random_crop(d, "x", pad, height, width, seed);
    }
    case 2: return manta_dataset_random_rotation(d, "x", 40, seed);
    case 3: return manta_dataset_random_color(d, "x", 0.4, 0.3, 0.5, seed);
    case 4: {
        int height = between(luck, 1, MOST_SIDE), width = between(luck, 1, MOST_SIDE);
        return manta_dataset_resize(d, "x", height, width);
    }
    default: return manta_dataset_center_crop(d, "x", (h + 1) / 2, (w + 1) / 2);
    }
}

/* The dataset, equal in all processes that ask for it. Bytes become numbers at its end. */
static inline manta_dataset *dataset_of(const training *t, buf *words)
{
    dice luck = {.key = rng_make(t->seed, 5)};
    manta_dataset *d;

    if (t->source == SOURCE_ARRAYS) {
        manta_column c[2];
        columns_of(t, numbers_of(t), t->images && flip(&luck), c);
        d = manta_dataset_arrays(2, c, MANTA_OWNERSHIP_COPY);
    } else {
        must(manta_dataset_open(t->spec, &t->open, &d));
    }
    buf_printf(words, "; stages:");
    for (int n = between(&luck, 0, 3); n > 0; n--)
        d = x_of(d)->ndim == 3 && roll(&luck, 3) ? add_image_stage(d, t, &luck, words)
                                                 : add_stage(d, t, &luck, words);
    if (x_of(d)->dtype == MANTA_DTYPE_U8) d = manta_dataset_scale(d, "x", 255);
    must(manta_dataset_status(d));
    return d;
}

#endif
