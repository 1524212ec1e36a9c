/* tfrecord_data.c - Examples in TFRecord files as the columns of a dataset. */
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "data/source.h"
#include "format/codec/input.h"
#include "format/codec/shard.h"
#include "format/image/picture.h"
#include "format/tfrecord/example.h"
#include "format/tfrecord/tfrecord.h"

/* A feature and the column it becomes. */
typedef struct wanted {
    char *feature; /* owned */
    size_t feature_n;
    char name[MANTA_COLUMN_NAME];
    /* as the specification declares it */
    bool has_dtype, has_shape;
    manta_dtype dtype;
    int ndim;
    int64_t shape[MANTA_MAX_DIMS];
    /* as the first record completes it */
    example_kind kind;
    bool picture, resize;
    int64_t count; /* elements of a sample */
    int twin; /* the next column of the same feature, -1: none */
    bool later; /* an earlier column is of the same feature */
} wanted;

typedef struct examples {
    tfrecord *t;
    int n;
    wanted columns[MANTA_MAX_COLUMNS];
    bool allow_nan;
} examples;

static void examples_free(void *ctx)
{
    examples *e = ctx;

    for (int i = 0; i < e->n; i++) mem_free(e->columns[i].feature);
    tfrecord_free(e->t);
    mem_free(e);
}

/* ---- the specification ----------------------------------------------------------------- */

/* Where the columns begin: behind the colon that a name and = follow. */
static const char *mapping_of(const char *text)
{
    for (const char *p = text; (p = strchr(p, ':')); p++) {
        const char *q = p + 1;
        while (isalnum((unsigned char)*q) || *q == '_') q++;
        if (q > p + 1 && *q == '=') return p;
    }
    return NULL;
}

bool tfrecord_is_spec(const char *text)
{
    const char *columns = mapping_of(text), *hit = strstr(text, ".tfrecord");

    return hit && hit > text && (!columns || hit < columns);
}

static manta_status bad_spec(const char *text, const char *what)
{
    return manta_fail(MANTA_EINVAL,
                      "dataset '%s': %s, expected FILES:COLUMN=FEATURE,... as in "
                      "data-*.tfrecord:x=image@28x28x1,y=label",
                      text, what);
}

/* "28x28x1" of n bytes. */
static bool parse_shape(const char *s, size_t n, wanted *w)
{
    const char *end = s + n;

    w->has_shape = true;
    while (s < end) {
        char *stop;
        errno = 0;
        long long v = strtoll(s, &stop, 10);
        if (stop == s || errno || v < 1 || w->ndim == MANTA_MAX_DIMS || !isdigit((unsigned char)*s))
            return false;
        w->shape[w->ndim++] = v;
        if (stop == end) return true;
        if (*stop != 'x') return false;
        s = stop + 1;
    }
    return false;
}

/* COLUMN=FEATURE[@[DTYPE:]SHAPE] of n bytes. */
static manta_status parse_column(const char *text, const char *s, size_t n, examples *e)
{
    const char *eq = memchr(s, '=', n), *end = s + n;

    if (!eq || eq == s) return bad_spec(text, "a column without a name");
    if ((size_t)(eq - s) >= MANTA_COLUMN_NAME) return bad_spec(text, "a column's name is too long");
    if (e->n == MANTA_MAX_COLUMNS) return bad_spec(text, "too many columns");
    wanted *w = &e->columns[e->n];
    *w = (wanted){0};
    memcpy(w->name, s, (size_t)(eq - s));
    const char *at = memrchr(eq, '@', (size_t)(end - eq));
    w->feature = mem_strndup(eq + 1, (size_t)((at ? at : end) - eq - 1));
    w->feature_n = strlen(w->feature);
    e->n++;
    if (!w->feature_n) return bad_spec(text, "a column without a feature");
    if (!at) return MANTA_OK;
    const char *shape = at + 1, *colon = memchr(shape, ':', (size_t)(end - shape));
    bool word = shape < end && isalpha((unsigned char)*shape);
    if (colon || word) {
        char *name = mem_strndup(shape, (size_t)((colon ? colon : end) - shape));
        manta_status st = manta_dtype_parse(name, &w->dtype);
        mem_free(name);
        if (st) return st;
        w->has_dtype = true;
        shape = colon ? colon + 1 : end;
        if (!colon) return MANTA_OK;
    }
    return parse_shape(shape, (size_t)(end - shape), w) ? MANTA_OK : bad_spec(text, "a shape that cannot be");
}

static manta_status parse_columns(const char *text, const char *s, examples *e)
{
    for (;;) {
        size_t n = strcspn(s, ",");
        TRY(parse_column(text, s, n, e));
        for (int i = 0; i + 1 < e->n; i++) {
            if (!strcmp(e->columns[i].name, e->columns[e->n - 1].name))
                return bad_spec(text, "a column twice");
        }
        if (!s[n]) return MANTA_OK;
        s += n + 1;
    }
}

/* Names that match the last part of a pattern, in their order. */
static manta_status add_matching(const char *pattern, file_names *out)
{
    const char *slash = strrchr(pattern, '/'), *last = slash ? slash + 1 : pattern;

    char *folder =
        slash ? mem_strndup(pattern, slash == pattern ? 1 : (size_t)(slash - pattern)) : mem_strdup(".");
    file_names names = {0};
    size_t before = out->n;
    manta_status st = file_list(folder, &names);

    for (size_t i = 0; i < names.n && !st; i++) {
        if (fnmatch(last, names.at[i], FNM_PERIOD)) continue;
        vec_push(out, slash ? mem_printf("%.*s%s", (int)(last - pattern), pattern, names.at[i])
                            : mem_strdup(names.at[i]));
    }
    if (!st && out->n == before) st = manta_fail(MANTA_ENOENT, "%s: no file has such a name", pattern);
    file_names_release(&names);
    mem_free(folder);
    return st;
}

static manta_status parse_files(const char *text, const char *end, file_names *out)
{
    for (const char *s = text;;) {
        const char *comma = memchr(s, ',', (size_t)(end - s)), *stop = comma ? comma : end;
        file_info info;
        if (stop == s) return bad_spec(text, "a file without a name");
        char *path = mem_strndup(s, (size_t)(stop - s));
        /* a file whose name holds a star is meant as it is */
        if (strpbrk(path, "*?[") && file_stat(path, &info)) {
            manta_status st = add_matching(path, out);
            mem_free(path);
            if (st) return st;
        } else {
            vec_push(out, path);
        }
        if (!comma) return MANTA_OK;
        s = comma + 1;
    }
}

/* ---- what the first record says -------------------------------------------------------- */

static manta_status fail_damaged(const examples *e, int64_t i)
{
    char text[512];

    return manta_fail(MANTA_ECORRUPT, "%s is no Example", tfrecord_place(e->t, i, text, sizeof text));
}

static bool is_picture(const uint8_t *p, size_t n)
{
    return (n >= 8 && !memcmp(p, "\x89PNG\r\n\x1a\n", 8)) || (n >= 3 && !memcmp(p, "\xff\xd8\xff", 3));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const wanted *)a)->name, ((const wanted *)b)->name);
}

/* Every feature of the record, when the specification names none. */
static manta_status take_all(examples *e, const uint8_t *data, size_t n)
{
    example_reader r = example_read(data, n);
    example_feature f;
    proto_step s;

    while ((s = example_next(&r, &f)) == PROTO_FIELD) {
        wanted w = {.feature_n = f.name_n};
        bool known = false;
        if (f.kind == EXAMPLE_NOTHING) continue;
        for (int i = 0; i < e->n && !known; i++) {
            known = e->columns[i].feature_n == f.name_n && !memcmp(e->columns[i].feature, f.name, f.name_n);
        }
        if (known) continue;
        if (f.name_n == 0 || f.name_n >= MANTA_COLUMN_NAME || memchr(f.name, 0, f.name_n) ||
            e->n == MANTA_MAX_COLUMNS) {
            return manta_fail(
                MANTA_EINVAL,
                "the first record has a feature whose name cannot be a column's, or more than %d "
                "features; say which are wanted, as in f.tfrecord:x=image,y=label",
                MANTA_MAX_COLUMNS);
        }
        w.feature = mem_strndup(f.name, f.name_n);
        memcpy(w.name, f.name, f.name_n);
        e->columns[e->n++] = w;
    }
    if (s == PROTO_BAD) return fail_damaged(e, 0);
    if (!e->n) return manta_fail(MANTA_EINVAL, "the first record has no features");
    qsort(e->columns, (size_t)e->n, sizeof e->columns[0], by_name);
    return MANTA_OK;
}

/* Record i, which is data[0..n), lacks a feature: says which there are, and the nearest. */
static manta_status no_feature(const examples *e, int64_t i, const wanted *w, const uint8_t *data, size_t n)
{
    manta_suggestion near = manta_suggestion_for(w->feature);
    example_reader r = example_read(data, n);
    char text[512], best[SUGGEST_NAME], hint[SUGGEST_TEXT];
    example_feature f;
    buf there = {0};

    while (example_next(&r, &f) == PROTO_FIELD) {
        if (f.kind == EXAMPLE_NOTHING) continue;
        suggest_offer_part(&near, f.name, f.name_n, best);
        if (there.n < 160)
            buf_printf(&there, "%s%.*s", there.n ? ", " : "", (int)(f.name_n < 60 ? f.name_n : 60), f.name);
    }
    manta_status st = manta_fail(
        MANTA_ENOENT, "%s has no feature '%s'; it has: %s%s", tfrecord_place(e->t, i, text, sizeof text),
        w->feature, there.n ? buf_text(&there) : "none", manta_suggestion_text(&near, hint, sizeof hint));
    buf_release(&there);
    return st;
}

/* An image's size, from the options or the first image. */
static manta_status settle_picture(wanted *w, const manta_open_options *o, const uint8_t *at, size_t n)
{
    picture p = {0};

    if (o->image_height < 0 || o->image_width < 0 || (o->image_height > 0) != (o->image_width > 0) ||
        o->image_height > PICTURE_MAX_SIDE || o->image_width > PICTURE_MAX_SIDE ||
        (o->image_channels != 0 && o->image_channels != 1 && o->image_channels != 3)) {
        return manta_fail(MANTA_EINVAL,
                          "feature '%s': images of %d x %d with %d channels, expected both sides or neither, "
                          "and 1 or 3 channels",
                          w->feature, o->image_height, o->image_width, o->image_channels);
    }
    TRY(picture_size(w->feature, at, n, &p));
    if (!w->has_shape) {
        w->ndim = 3;
        w->shape[0] = o->image_height ? o->image_height : p.height;
        w->shape[1] = o->image_width ? o->image_width : p.width;
        w->shape[2] = o->image_channels ? o->image_channels : p.channels;
    } else if (w->ndim != 3 || w->shape[0] > PICTURE_MAX_SIDE || w->shape[1] > PICTURE_MAX_SIDE ||
               (w->shape[2] != 1 && w->shape[2] != 3)) {
        return manta_fail(MANTA_EINVAL,
                          "feature '%s' is an image, expected a shape of height x width x 1 or 3",
                          w->feature);
    }
    w->resize = o->image_height > 0 || w->has_shape;
    w->picture = true;
    w->dtype = MANTA_DTYPE_U8;
    return MANTA_OK;
}

static manta_status settle_bytes(examples *e, wanted *w, const manta_open_options *o,
                                 const example_feature *f, int64_t *values)
{
    const uint8_t *at = NULL;
    size_t n = 0;
    int64_t count = example_bytes(f, &at, &n);

    if (count < 0) return fail_damaged(e, 0);
    if (count != 1) {
        return manta_fail(MANTA_EUNSUPPORTED, "feature '%s' has %lld byte strings, expected one", w->feature,
                          (long long)count);
    }
    if (!w->has_dtype && is_picture(at, n)) {
        TRY(settle_picture(w, o, at, n));
        *values = w->shape[0] * w->shape[1] * w->shape[2];
        return MANTA_OK;
    }
    if (!w->has_dtype) w->dtype = MANTA_DTYPE_U8;
    size_t size = manta_dtype_size(w->dtype);
    if (n % size) {
        return manta_fail(MANTA_EINVAL,
                          "feature '%s' has %zu bytes, which are no whole number of %s elements", w->feature,
                          n, manta_dtype_name(w->dtype));
    }
    *values = (int64_t)(n / size);
    return MANTA_OK;
}

/* Completes a column from its feature in the first record. */
static manta_status complete_column(examples *e, wanted *w, const manta_open_options *o,
                                    const example_feature *f)
{
    manta_dtype natural = f->kind == EXAMPLE_FLOATS ? MANTA_DTYPE_F32 : MANTA_DTYPE_I64;
    int64_t values = 0;
    size_t bytes;

    w->kind = f->kind;
    if (f->kind == EXAMPLE_BYTES) {
        TRY(settle_bytes(e, w, o, f, &values));
    } else {
        if ((values = example_count(f)) < 0) return fail_damaged(e, 0);
        if (w->has_dtype && w->dtype != natural) {
            return manta_fail(MANTA_EINVAL, "feature '%s' holds %s, not %s; a dtype is for features of bytes",
                              w->feature, manta_dtype_name(natural), manta_dtype_name(w->dtype));
        }
        w->dtype = natural;
    }
    if (!w->has_shape && !w->picture) {
        w->ndim = values == 1 ? 0 : 1;
        w->shape[0] = values;
    }
    if (!input_bytes(w->ndim, w->shape, manta_dtype_size(w->dtype), &bytes) || bytes > (size_t)INT32_MAX) {
        return manta_fail(MANTA_EINVAL, "feature '%s' has a shape of more than 2 GiB", w->feature);
    }
    w->count = (int64_t)(bytes / manta_dtype_size(w->dtype));
    if (values == 0) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "feature '%s' is empty in the first record: nothing says its shape", w->feature);
    }
    return MANTA_OK;
}

static manta_status discover_columns(examples *e, const manta_open_options *o)
{
    tfrecord_reader *reader = tfrecord_reader_new(e->t);
    const uint8_t *data;
    size_t n;
    manta_status st = tfrecord_read(reader, 0, &data, &n);

    if (!st && !e->n) st = take_all(e, data, n);
    for (int i = 0; i < e->n && !st; i++) {
        wanted *w = &e->columns[i];
        example_reader r = example_read(data, n);
        example_feature f, last = {0};
        proto_step s;
        while ((s = example_next(&r, &f)) == PROTO_FIELD) {
            if (f.name_n == w->feature_n && !memcmp(f.name, w->feature, f.name_n)) last = f;
        }
        if (s == PROTO_BAD) {
            st = fail_damaged(e, 0);
        } else if (last.kind == EXAMPLE_NOTHING) {
            st = no_feature(e, 0, w, data, n);
        } else {
            st = complete_column(e, w, o, &last);
        }
    }
    tfrecord_reader_free(reader);
    return st;
}

/* ---- reading a sample ------------------------------------------------------------------ */

static manta_status wrong_count(const examples *e, int64_t i, const wanted *w, int64_t given)
{
    char text[512], shape[96];

    return manta_fail(
        MANTA_EINVAL, "%s: feature '%s' has %lld %s, expected %lld for shape %s",
        tfrecord_place(e->t, i, text, sizeof text), w->feature, (long long)given,
        w->kind == EXAMPLE_BYTES ? "bytes" : "values",
        (long long)(w->kind == EXAMPLE_BYTES ? w->count * (int64_t)manta_dtype_size(w->dtype) : w->count),
        manta_shape_text(w->ndim, w->shape, shape, sizeof shape));
}

static manta_status read_picture(const examples *e, int64_t i, const wanted *w, const uint8_t *at, size_t n,
                                 void *out)
{
    char text[512];
    picture p = {0};
    manta_status st;

    tfrecord_place(e->t, i, text, sizeof text);
    TRY(picture_decode(text, at, n, (int)w->shape[2], &p));
    if (!w->resize && (p.height != w->shape[0] || p.width != w->shape[1])) {
        st = manta_fail(
            MANTA_EINVAL,
            "%s: the image has %d x %d points, expected %lld x %lld as the first; give a size to resize to",
            text, p.height, p.width, (long long)w->shape[0], (long long)w->shape[1]);
    } else {
        picture_resize(&p, (int)w->shape[0], (int)w->shape[1], out);
        st = MANTA_OK;
    }
    picture_release(&p);
    return st;
}

static manta_status check_nan(const examples *e, int64_t i, const wanted *w, const void *out)
{
    char text[512];
    int64_t nan = e->allow_nan ? -1 : input_find_nan(out, w->dtype, w->count);

    if (nan < 0) return MANTA_OK;
    return manta_fail(MANTA_ENAN, "%s: element %lld of feature '%s' is NaN, expected a number",
                      tfrecord_place(e->t, i, text, sizeof text), (long long)nan, w->feature);
}

static manta_status read_feature(const examples *e, int64_t i, const wanted *w, const example_feature *f,
                                 void *out)
{
    const uint8_t *at = NULL;
    size_t n = 0;
    int64_t count;

    if (f->kind != w->kind) {
        char text[512];
        return manta_fail(MANTA_EINVAL, "%s: feature '%s' is of another kind than in the first record",
                          tfrecord_place(e->t, i, text, sizeof text), w->feature);
    }
    switch (w->kind) {
    case EXAMPLE_INTS:
        count = example_ints(f, w->count, out);
        if (count < 0) return fail_damaged(e, i);
        return count == w->count ? MANTA_OK : wrong_count(e, i, w, count);
    case EXAMPLE_FLOATS:
        count = example_floats(f, w->count, out);
        if (count < 0) return fail_damaged(e, i);
        return count == w->count ? check_nan(e, i, w, out) : wrong_count(e, i, w, count);
    default: break;
    }
    if ((count = example_bytes(f, &at, &n)) < 0) return fail_damaged(e, i);
    if (w->picture && count == 1) return read_picture(e, i, w, at, n, out);
    if (count != 1 || n != (size_t)w->count * manta_dtype_size(w->dtype))
        return wrong_count(e, i, w, (int64_t)n);
    memcpy(out, at, n);
    return check_nan(e, i, w, out);
}

static manta_status open_reader(void *ctx, void **state)
{
    const examples *e = ctx;

    *state = tfrecord_reader_new(e->t);
    return MANTA_OK;
}

static void close_reader(void *ctx, void *state)
{
    (void)ctx;
    tfrecord_reader_free(state);
}

/* Records of a file have their features in the same order nearly always, so
 * the search begins behind the last one found. */
static int find_column(const examples *e, const example_feature *f, int from)
{
    for (int k = 0, c = from; k < e->n; k++, c = c + 1 == e->n ? 0 : c + 1) {
        const wanted *w = &e->columns[c];
        if (!w->later && w->feature_n == f->name_n && !memcmp(w->feature, f->name, f->name_n)) return c;
    }
    return -1;
}

static manta_status read_sample(void *ctx, void *state, int64_t i, void *const *out)
{
    const examples *e = ctx;
    const uint8_t *data;
    unsigned seen = 0;
    size_t n;
    int from = 0;

    TRY(tfrecord_read(state, i, &data, &n));
    example_reader r = example_read(data, n);
    example_feature f;
    proto_step s;
    while ((s = example_next(&r, &f)) == PROTO_FIELD) {
        int first = f.kind == EXAMPLE_NOTHING ? -1 : find_column(e, &f, from);
        if (first >= 0) from = first + 1 == e->n ? 0 : first + 1;
        for (int c = first; c >= 0; c = e->columns[c].twin) {
            if (out[c]) TRY(read_feature(e, i, &e->columns[c], &f, out[c]));
            seen |= 1u << c;
        }
    }
    if (s == PROTO_BAD) return fail_damaged(e, i);
    for (int c = 0; c < e->n; c++) {
        if (!(seen >> c & 1)) return no_feature(e, i, &e->columns[c], data, n);
    }
    return MANTA_OK;
}

/* ---- opening --------------------------------------------------------------------------- */

/* Chains the columns of one feature, as x and y of an autoencoder are. */
static void link_twins(examples *e)
{
    for (int i = 0; i < e->n; i++) {
        e->columns[i].twin = -1;
        for (int k = i - 1; k >= 0; k--) {
            if (strcmp(e->columns[k].feature, e->columns[i].feature)) continue;
            e->columns[k].twin = i;
            e->columns[i].later = true;
            break;
        }
    }
}

static manta_status prepare_columns(const char *text, examples *e, const manta_open_options *o,
                                    size_t *n_files)
{
    const char *columns = mapping_of(text), *end = columns ? columns : text + strlen(text);
    file_names files = {0};
    manta_status st;

    e->allow_nan = o->allow_nan;
    if (columns) TRY(parse_columns(text, columns + 1, e));
    st = parse_files(text, end, &files);
    *n_files = files.n;
    if (!st) st = shard_files(o, text, &files);
    if (!st) st = tfrecord_open(files.n, files.at, &e->t);
    file_names_release(&files);
    if (st) return st;
    if (tfrecord_count(e->t) == 0) {
        return manta_fail(MANTA_EINVAL,
                          "dataset '%s': there is no record, and so nothing that says what columns are",
                          text);
    }
    TRY(discover_columns(e, o));
    link_twins(e);
    return MANTA_OK;
}

manta_status tfrecord_open_spec(const char *text, const manta_open_options *options, manta_dataset **out)
{
    static const manta_open_options none;
    const manta_open_options *o = options ? options : &none;
    examples *e = mem_new(sizeof *e);
    size_t n_files = 0;
    manta_status st = prepare_columns(text, e, o, &n_files);

    if (st) {
        examples_free(e);
        return st;
    }
    source_indexed s = {.count = tfrecord_count(e->t),
                        .n = e->n,
                        .ctx = e,
                        .open = open_reader,
                        .close = close_reader,
                        .read = read_sample,
                        .release = examples_free};
    char pictures[MANTA_MAX_COLUMNS][MANTA_COLUMN_NAME];
    int n_pictures = 0;
    for (int i = 0; i < e->n; i++) {
        const wanted *w = &e->columns[i];
        s.columns[i] = (manta_column_spec){.dtype = w->dtype, .ndim = w->ndim};
        memcpy(s.columns[i].name, w->name, sizeof w->name);
        memcpy(s.columns[i].shape, w->shape, (size_t)w->ndim * sizeof w->shape[0]);
        if (w->picture) memcpy(pictures[n_pictures++], w->name, sizeof w->name);
    }
    manta_dataset *d = source_from_reader(&s); /* takes e */
    for (int i = 0; i < n_pictures && !o->raw; i++) d = manta_dataset_scale(d, pictures[i], 255);
    d = shard_samples(o, n_files, d);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}
