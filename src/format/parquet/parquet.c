/* parquet.c - datasets out of Parquet files. */
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "data/source.h"
#include "format/image/image_size.h"
#include "format/parquet/parquet.h"
#include "format/parquet/parquet_column.h"
#include "os/eventcount.h"

/* A row group in memory. `state` is EMPTY, READY or, while a thread of process
 * p is at it, p << 2 | BUSY. A forked process sees its parent's claim, whose
 * thread it has not, and takes it over: the memory is its own copy. */
enum { EMPTY = 0, READY = 1, BUSY = 2 };

typedef struct block {
    _Atomic uint32_t state; /* an event word */
    _Atomic uint32_t sleepers; /* threads that wait for it to change */
    void *x; /* rows of x, or all bytes */
    uint64_t *offsets; /* of bytes */
    void *y;
} block;

typedef enum kind { NUMBERS, BYTES, IMAGES } kind;

typedef struct table {
    seek_file f;
    parquet_meta m;
    block *blocks; /* one per row group */
    bool allow_nan;
    int n_x;
    int *x; /* leaves */
    int64_t *x_length; /* values that each gives to a row; -1: not known yet */
    int y; /* leaf, or -1 */
    int64_t y_length;
    manta_dtype x_dtype, y_dtype;
    kind kind;
    int64_t width; /* elements of a row of x */
    image_size image;
} table;

static void block_clear(block *b)
{
    mem_try_free(b->x);
    mem_try_free(b->offsets);
    mem_try_free(b->y);
    b->x = b->y = b->offsets = NULL;
}

static void table_free(void *ctx)
{
    table *t = ctx;

    for (int i = 0; t->blocks && i < t->m.n_groups; i++) block_clear(&t->blocks[i]);
    mem_free(t->blocks);
    mem_free(t->x);
    mem_free(t->x_length);
    parquet_meta_release(&t->m);
    seek_close(&t->f);
    mem_free(t);
}

/* ---- row groups -------------------------------------------------------------------------- */

static manta_status check_length(const table *t, int leaf, int64_t *planned, const parquet_values *v)
{
    if (*planned < 0) *planned = v->length;
    if (v->length < 0 || v->length == *planned) return MANTA_OK;
    return manta_fail(MANTA_EINVAL,
                      "%s: column '%s': a list has %lld values, expected %lld as in the first row", t->f.path,
                      t->m.leaves[leaf].name, (long long)v->length, (long long)*planned);
}

static manta_status load_y(table *t, int g, block *b)
{
    parquet_values v = {0};

    TRY(parquet_column_read(&t->f, &t->m, g, t->y, t->y_dtype, t->allow_nan && t->y_dtype == MANTA_DTYPE_F32,
                            &v));
    manta_status st = check_length(t, t->y, &t->y_length, &v);
    if (!st) {
        b->y = v.data;
        v.data = NULL;
    }
    parquet_values_release(&v);
    return st;
}

/* Values of one leaf, `length` a row, into their places among `width`. */
static void place_values(const parquet_values *v, size_t size, int64_t width, int64_t at, void *to)
{
    if (v->length == 1 && size == sizeof(float)) { /* a table of plain columns */
        const float *from = v->data;
        float *out = (float *)to + at;
        for (int64_t r = 0; r < v->rows; r++) out[r * width] = from[r];
        return;
    }
    size_t n = (size_t)v->length * size;
    for (int64_t r = 0; r < v->rows && n; r++) {
        memcpy((char *)to + (size_t)(r * width + at) * size, (const char *)v->data + (size_t)r * n, n);
    }
}

static manta_status load_single(table *t, int g, block *b)
{
    parquet_values v = {0};

    TRY(parquet_column_read(&t->f, &t->m, g, t->x[0], t->x_dtype, t->allow_nan, &v));
    manta_status st = check_length(t, t->x[0], &t->x_length[0], &v);
    if (!st) {
        b->x = v.data;
        b->offsets = v.offsets;
        v.data = v.offsets = NULL;
    }
    parquet_values_release(&v);
    return st;
}

static manta_status load_many(table *t, int g, block *b)
{
    int64_t at = 0, total;
    manta_status st = MANTA_OK;
    parquet_values *v = mem_new((size_t)t->n_x * sizeof *v);

    /* All are read before there is a place for them: their real number of rows
     * is what memory is asked for. */
    for (int i = 0; i < t->n_x && !st; i++) {
        st = parquet_column_read(&t->f, &t->m, g, t->x[i], t->x_dtype, t->allow_nan, &v[i]);
        if (!st) st = check_length(t, t->x[i], &t->x_length[i], &v[i]);
        if (!st && v[i].length > 0) at += v[i].length;
    }
    if (!st && __builtin_mul_overflow(at, t->m.groups[g].rows, &total)) {
        st = manta_fail(MANTA_ENOMEM, "%s: the size of a row group overflows", t->f.path);
    }
    if (!st)
        st = mem_try_array(total + 1, manta_dtype_size(t->x_dtype), "a row group of a Parquet file", &b->x);
    int64_t width = at;
    at = 0;
    for (int i = 0; i < t->n_x; i++) {
        if (!st) place_values(&v[i], manta_dtype_size(t->x_dtype), width, at, b->x);
        at += v[i].length;
        parquet_values_release(&v[i]);
    }
    mem_free(v);
    return st;
}

static manta_status load_group(table *t, int g, block *b)
{
    TRY(t->n_x == 1 ? load_single(t, g, b) : load_many(t, g, b));
    return t->y >= 0 ? load_y(t, g, b) : MANTA_OK;
}

/* Makes sure that row group g is there. */
static manta_status need_group(table *t, int g)
{
    block *b = &t->blocks[g];
    uint32_t mine = (uint32_t)getpid() << 2 | BUSY;

    for (;;) {
        uint32_t seen = atomic_load_explicit(&b->state, memory_order_acquire);
        if (seen == READY) return MANTA_OK;
        if (seen == mine) {
            (void)eventword_sleep(&b->state, mine, &b->sleepers, CLOCK_NEVER, false);
        } else if (atomic_compare_exchange_strong(&b->state, &seen, mine)) {
            break;
        }
    }
    block_clear(b);
    manta_status st = load_group(t, g, b);
    if (st) block_clear(b);
    atomic_store(&b->state, st ? EMPTY : READY);
    (void)eventword_wake(&b->state, &b->sleepers, INT_MAX, false);
    return st;
}

/* The row group that row i lies in: the last that begins at or before it. */
static int find_group(const table *t, int64_t i)
{
    int lo = 0, hi = t->m.n_groups - 1;

    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;
        if (t->m.groups[mid].first <= i) {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    return lo; /* an empty group that begins at the same row comes before it */
}

/* ---- samples ------------------------------------------------------------------------------- */

static manta_status read_bytes(const table *t, const block *b, int64_t row, int64_t i, void *out)
{
    const uint8_t *at = (const uint8_t *)b->x + b->offsets[row];
    size_t n = (size_t)(b->offsets[row + 1] - b->offsets[row]);
    const char *column = t->m.leaves[t->x[0]].name;

    if (t->kind == IMAGES) {
        char name[400];
        snprintf(name, sizeof name, "%s: column '%.60s', row %lld", t->f.path, column, (long long)i);
        return image_size_decode(&t->image, name, at, n, out);
    }
    if ((int64_t)n != t->width) {
        return manta_fail(MANTA_EINVAL, "%s: column '%s': row %lld has %zu bytes, expected %lld as the first",
                          t->f.path, column, (long long)i, n, (long long)t->width);
    }
    memcpy(out, at, n);
    return MANTA_OK;
}

static manta_status read_row(void *ctx, void *state, int64_t i, void *const *out)
{
    table *t = ctx;
    int g = find_group(t, i);

    (void)state;
    TRY(need_group(t, g));
    const block *b = &t->blocks[g];
    int64_t row = i - t->m.groups[g].first;
    if (out[0] && t->kind == NUMBERS) {
        size_t n = (size_t)t->width * manta_dtype_size(t->x_dtype);
        memcpy(out[0], (const char *)b->x + (size_t)row * n, n);
    } else if (out[0]) {
        TRY(read_bytes(t, b, row, i, out[0]));
    }
    if (t->y >= 0 && out[1]) {
        size_t n = (size_t)t->y_length * manta_dtype_size(t->y_dtype);
        memcpy(out[1], (const char *)b->y + (size_t)row * n, n);
    }
    return MANTA_OK;
}

/* ---- which columns --------------------------------------------------------------------------- */

static manta_status find_leaf(const table *t, const char *name, size_t n, int *out)
{
    buf all = {0};

    for (int i = 0; i < t->m.n_leaves; i++) {
        const char *is = t->m.leaves[i].name;
        if (strlen(is) == n && memcmp(is, name, n) == 0) {
            *out = i;
            buf_release(&all);
            return MANTA_OK;
        }
        if (all.n < 200) buf_printf(&all, "%s%s", i ? ", " : "", is);
    }
    char *typed = mem_strndup(name, n < 100 ? n : 100), hint[SUGGEST_TEXT];
    manta_suggestion near = manta_suggestion_for(typed);
    for (int i = 0; i < t->m.n_leaves; i++) manta_suggestion_offer(&near, t->m.leaves[i].name);
    manta_status st = manta_fail(MANTA_ENOENT, "%s: there is no column '%s'; there are: %s%s", t->f.path,
                                 typed, buf_text(&all), manta_suggestion_text(&near, hint, sizeof hint));
    mem_free(typed);
    buf_release(&all);
    return st;
}

static manta_status choose_x(table *t, const char *x)
{
    if (!x) {
        for (int i = 0; i < t->m.n_leaves; i++) {
            if (i != t->y) t->x[t->n_x++] = i;
        }
        if (t->n_x) return MANTA_OK;
        return manta_fail(MANTA_EINVAL, "%s: nothing is left beside the label, expected a column of numbers",
                          t->f.path);
    }
    for (;;) {
        size_t n = strcspn(x, "+");
        if (t->n_x == t->m.n_leaves) {
            return manta_fail(MANTA_EINVAL, "%s: x names more columns than there are", t->f.path);
        }
        TRY(find_leaf(t, x, n, &t->x[t->n_x]));
        t->n_x++;
        if (!x[n]) return MANTA_OK;
        x += n + 1;
    }
}

static bool is_whole(const parquet_leaf *leaf)
{
    return leaf->meaning == PARQUET_SIGNED || leaf->meaning == PARQUET_UNSIGNED ||
           leaf->type == PARQUET_BOOLEAN;
}

/* A refusal of one column, with what to do about it. */
static manta_status pick_others(manta_status code, const char *text)
{
    manta_error e;

    manta_error_get(&e);
    return manta_fail(code, "%s%s", e.text, text);
}

static manta_status decide_types(table *t, bool given)
{
    manta_dtype d;

    for (int i = 0; i < t->n_x; i++) {
        const parquet_leaf *leaf = &t->m.leaves[t->x[i]];
        manta_status st = parquet_leaf_dtype(t->f.path, leaf, &d);
        if (st) return given ? st : pick_others(st, "; choose columns, as in f.parquet:x=A+B,label=C");
        if (d == MANTA_DTYPE_COUNT && t->n_x > 1) {
            return manta_fail(
                MANTA_EUNSUPPORTED,
                "%s: column '%s' is bytes (%s), which can be x only alone; choose columns, as in "
                "f.parquet:x=A+B,label=C",
                t->f.path, leaf->name, parquet_type_name(leaf->type));
        }
        t->x_length[i] = leaf->max_rep ? -1 : 1;
        t->x_dtype = t->n_x == 1 && leaf->max_rep ? d : MANTA_DTYPE_F32;
        if (d == MANTA_DTYPE_COUNT) t->kind = BYTES;
    }
    if (t->y < 0) return MANTA_OK;
    const parquet_leaf *y = &t->m.leaves[t->y];
    TRY(parquet_leaf_dtype(t->f.path, y, &d));
    if (d == MANTA_DTYPE_COUNT) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: the label '%s' is bytes (%s), expected numbers", t->f.path,
                          y->name, parquet_type_name(y->type));
    }
    t->y_dtype = is_whole(y) ? MANTA_DTYPE_I64 : MANTA_DTYPE_F32;
    t->y_length = y->max_rep ? -1 : 1;
    return MANTA_OK;
}

/* Reads the first row group that has rows: it says how long lists and bytes are. */
static manta_status decide_shape(table *t, const manta_open_options *o)
{
    int g = 0;

    while (g < t->m.n_groups && t->m.groups[g].rows == 0) g++;
    if (g < t->m.n_groups) TRY(need_group(t, g));
    t->width = 0;
    for (int i = 0; i < t->n_x; i++) {
        if (t->x_length[i] < 0 || (t->kind == BYTES && g == t->m.n_groups)) {
            return manta_fail(MANTA_EINVAL, "%s: column '%s': without a row its length is not known",
                              t->f.path, t->m.leaves[t->x[i]].name);
        }
        t->width += t->x_length[i];
    }
    if (t->y >= 0 && t->y_length < 0) {
        return manta_fail(MANTA_EINVAL, "%s: column '%s': without a row its length is not known", t->f.path,
                          t->m.leaves[t->y].name);
    }
    if (t->kind == NUMBERS) return MANTA_OK;
    const block *b = &t->blocks[g];
    size_t n = (size_t)(b->offsets[1] - b->offsets[0]);
    t->width = (int64_t)n;
    t->x_dtype = MANTA_DTYPE_U8;
    if (!image_is_png_or_jpeg(b->x, n)) return MANTA_OK;
    t->kind = IMAGES;
    return image_size_decide(o, t->f.path, b->x, n, &t->image);
}

static manta_status build_table(table *t, const char *x, const char *label, const manta_open_options *o)
{
    TRY(parquet_meta_read(&t->f, &t->m));
    t->blocks = mem_new((size_t)(t->m.n_groups + 1) * sizeof *t->blocks);
    t->x = mem_new((size_t)t->m.n_leaves * sizeof *t->x);
    t->x_length = mem_new((size_t)t->m.n_leaves * sizeof *t->x_length);
    t->allow_nan = o->allow_nan;
    if (label) TRY(find_leaf(t, label, strlen(label), &t->y));
    TRY(choose_x(t, x));
    TRY(decide_types(t, x != NULL));
    return decide_shape(t, o);
}

static manta_dataset *describe_table(table *t)
{
    source_indexed s = {
        .count = t->m.rows, .n = t->y >= 0 ? 2 : 1, .ctx = t, .read = read_row, .release = table_free};

    s.columns[0] = (manta_column_spec){.name = "x", .dtype = t->x_dtype, .ndim = 1, .shape = {t->width}};
    if (t->kind == IMAGES) s.columns[0] = image_size_column(&t->image, "x");
    s.columns[1] = (manta_column_spec){.name = "y", .dtype = t->y_dtype};
    if (t->y >= 0 && t->m.leaves[t->y].max_rep) {
        s.columns[1].ndim = 1;
        s.columns[1].shape[0] = t->y_length;
    }
    return source_from_reader(&s);
}

manta_status parquet_open_file(seek_file f, const char *x, const char *label, const manta_open_options *o,
                               manta_dataset **out)
{
    table *t = mem_new(sizeof *t);
    manta_status st;

    t->f = f;
    t->y = -1;
    if ((st = build_table(t, x, label, o))) {
        table_free(t);
        return st;
    }
    bool scale = t->x_dtype == MANTA_DTYPE_U8 && !o->raw;
    manta_dataset *d = describe_table(t);
    if (scale) d = manta_dataset_scale(d, "x", 255);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}

manta_status parquet_open(const char *path, const char *x, const char *label, const manta_open_options *o,
                          manta_dataset **out)
{
    seek_file f;

    TRY(seek_open(path, &f));
    return parquet_open_file(f, x, label, o, out);
}
