/* safetensors_write.c - writing safetensors files.
 *
 * The header is made first, from shapes alone; the elements follow straight
 * from where they lie. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "format/codec/elements.h"
#include "format/safetensors/safetensors.h"
#include "os/file.h"

#define ALIGNMENT 64

static const char *const names[MANTA_DTYPE_COUNT] = {
    [MANTA_DTYPE_F32] = "F32",   [MANTA_DTYPE_F64] = "F64",  [MANTA_DTYPE_F16] = "F16",
    [MANTA_DTYPE_BF16] = "BF16", [MANTA_DTYPE_I32] = "I32",  [MANTA_DTYPE_I64] = "I64",
    [MANTA_DTYPE_U8] = "U8",     [MANTA_DTYPE_BOOL] = "BOOL"};

/* Large elements first, so that all are aligned; then by name. */
static int by_size_and_name(const void *a, const void *b)
{
    const manta_column *x = *(const manta_column *const *)a, *y = *(const manta_column *const *)b;
    size_t sx = manta_dtype_size(x->array.dtype), sy = manta_dtype_size(y->array.dtype);

    if (sx != sy) return sx > sy ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static manta_status add_text(const char *path, const char *text, buf *b)
{
    json_t *j = json_string(text);
    char *quoted = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;

    json_decref(j);
    if (!quoted) return manta_fail(MANTA_EINVAL, "%s: '%s' is not UTF-8", path, text);
    buf_add_text(b, quoted);
    free(quoted);
    return MANTA_OK;
}

static manta_status add_metadata(const char *path, int n, const safetensors_pair *metadata, buf *b)
{
    buf_add_text(b, "\"__metadata__\":{");
    for (int i = 0; i < n; i++) {
        if (i) buf_add_char(b, ',');
        TRY(add_text(path, metadata[i].key, b));
        buf_add_char(b, ':');
        TRY(add_text(path, metadata[i].value, b));
    }
    buf_add_char(b, '}');
    return MANTA_OK;
}

/* Adds an entry whose elements begin at *at, which moves behind them. */
static manta_status add_tensor(const char *path, const manta_column *c, uint64_t *at, buf *b)
{
    const manta_array *a = &c->array;
    uint64_t end = *at + manta_array_bytes(a);

    TRY(add_text(path, c->name, b));
    buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", names[a->dtype]);
    for (int i = 0; i < a->ndim; i++) buf_printf(b, "%s%lld", i ? "," : "", (long long)a->shape[i]);
    buf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)*at, (unsigned long long)end);
    *at = end;
    return MANTA_OK;
}

static manta_status check_columns(const char *path, int n, const manta_column *columns)
{
    for (int i = 0; i < n; i++) {
        const manta_column *c = &columns[i];
        if (!c->name) return manta_fail(MANTA_EINVAL, "%s: array %d has no name", path, i);
        if (strcmp(c->name, "__metadata__") == 0) {
            return manta_fail(MANTA_EINVAL, "%s: no array may be called '%s'", path, c->name);
        }
        if ((unsigned)c->array.dtype >= MANTA_DTYPE_COUNT) {
            return manta_fail(MANTA_EINVAL, "%s: array '%s' has no dtype", path, c->name);
        }
    }
    return MANTA_OK;
}

/* MANTA_EINVAL when two of the n texts, which are sorted here, are the same. */
static manta_status check_distinct(const char *path, const char *what, int n, const char **texts)
{
    if (n) qsort(texts, (size_t)n, sizeof *texts, by_text);
    for (int i = 1; i < n; i++) {
        if (strcmp(texts[i - 1], texts[i]) == 0) {
            return manta_fail(MANTA_EINVAL, "%s: two %s are called '%s'", path, what, texts[i]);
        }
    }
    return MANTA_OK;
}

static manta_status check_names(const char *path, int n, const manta_column *columns, int n_metadata,
                                const safetensors_pair *metadata)
{
    const char **texts = mem_new((size_t)(n + n_metadata + 1) * sizeof *texts);
    manta_status st;

    for (int i = 0; i < n; i++) texts[i] = columns[i].name;
    for (int i = 0; i < n_metadata; i++) texts[n + i] = metadata[i].key;
    st = check_distinct(path, "arrays", n, texts);
    if (!st) st = check_distinct(path, "texts", n_metadata, texts + n);
    mem_free(texts);
    return st;
}

static manta_status make_header(const char *path, int n, const manta_column *const *order, int n_metadata,
                                const safetensors_pair *metadata, buf *b, uint64_t *bytes)
{
    uint64_t at = 0, size;

    buf_add(b, "\0\0\0\0\0\0\0\0{", 9);
    if (n_metadata) TRY(add_metadata(path, n_metadata, metadata, b));
    for (int i = 0; i < n; i++) {
        if (i || n_metadata) buf_add_char(b, ',');
        TRY(add_tensor(path, order[i], &at, b));
    }
    buf_add_char(b, '}');
    while (b->n % ALIGNMENT) buf_add_char(b, ' ');
    size = b->n - 8;
    if (size > SAFETENSORS_MAX_HEADER) {
        return manta_fail(MANTA_EINVAL, "%s: names and texts take %llu bytes, more than the %d there may be",
                          path, (unsigned long long)size, SAFETENSORS_MAX_HEADER);
    }
    for (int i = 0; i < 8; i++) b->at[i] = (char)(size >> 8 * i);
    *bytes = at;
    return MANTA_OK;
}

/* The header, and the arrays in the order of their elements in the file; *order is
 * the caller's to give back, on failure too. */
static manta_status prepare_entries(const char *path, int n, const manta_column *columns, int n_metadata,
                                    const safetensors_pair *metadata, const manta_column ***order, buf *head,
                                    uint64_t *bytes)
{
    TRY(check_columns(path, n, columns));
    TRY(check_names(path, n, columns, n_metadata, metadata));
    *order = mem_new((size_t)(n + 1) * sizeof **order);
    for (int i = 0; i < n; i++) (*order)[i] = &columns[i];
    if (n) qsort(*order, (size_t)n, sizeof **order, by_size_and_name);
    return make_header(path, n, *order, n_metadata, metadata, head, bytes);
}

manta_status safetensors_check(const char *path, int n, const manta_column *columns)
{
    const manta_column **order = NULL;
    buf head = {0};
    uint64_t bytes = 0;
    manta_status st = prepare_entries(path, n, columns, 0, NULL, &order, &head, &bytes);

    buf_release(&head);
    mem_free(order);
    return st;
}

manta_status safetensors_write_to(file_writer *w, const char *path, int n, const manta_column *columns,
                                  int n_metadata, const safetensors_pair *metadata)
{
    const manta_column **order = NULL;
    buf head = {0};
    uint64_t bytes = 0;
    manta_status st;

    if ((st = prepare_entries(path, n, columns, n_metadata, metadata, &order, &head, &bytes))) goto out;
    if ((st = file_writer_reserve(w, head.n + bytes))) goto out;
    if ((st = file_writer_write(w, head.at, head.n))) goto out;
    for (int i = 0; i < n && !st; i++) st = elements_to_file(&order[i]->array, w);
out:
    buf_release(&head);
    mem_free(order);
    return st;
}

manta_status safetensors_write(const char *path, int n, const manta_column *columns, int n_metadata,
                               const safetensors_pair *metadata)
{
    file_writer *w = NULL;
    manta_status st;

    TRY(file_writer_open(path, &w));
    st = safetensors_write_to(w, path, n, columns, n_metadata, metadata);
    if (!st) st = file_writer_commit(w);
    file_writer_free(w);
    return st;
}
