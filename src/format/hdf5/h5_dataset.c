/* h5_dataset.c - datasets of HDF5 files: their description, and their elements.
 *
 * A dataset is opened in one pass over the messages of its object: shape, type,
 * fill value, and where the elements lie. Only then are elements touched, and a
 * dataset whose bytes lie in one piece, as we need them, is not read at all: its
 * elements are a view of the file image. Else they are brought together (from
 * chunks, unpacked), converted, and copied:
 *
 *   contiguous ──────────────────────────────────────────▶ view
 *   contiguous, compact ──────▶ h5_type_convert() ───────▶ copy
 *   chunked ──▶ h5_filters_undo() ──▶ h5_type_convert() ─▶ copy
 *
 * Before memory is asked for, the size that the shape promises was compared with
 * the bytes that the file has. */
#include "format/hdf5/h5.h"

#include <string.h>

#include "base/mem.h"
#include "format/codec/gzip.h"
#include "format/codec/limit.h"
#include "format/codec/input.h"
#include "format/hdf5/h5_part.h"

enum { COMPACT = 0, CONTIGUOUS = 1, CHUNKED = 2, VIRTUAL = 3 };

/* A dataset's description, checked. */
typedef struct dataset {
    h5_type type;
    h5_space space;
    int64_t shape[MANTA_MAX_DIMS];
    manta_dtype dtype; /* what the elements become */
    size_t n, in_file, bytes; /* elements; bytes that they take in the file, and in memory */
    int layout;
    const uint8_t *data; /* in the file, of a dataset in one piece; NULL: nobody wrote it */
    h5_filters filters;
    h5_chunking chunking;
    const uint8_t *fill; /* one element; NULL: zeros */
} dataset;

static void dataset_release(dataset *d)
{
    vec_release(&d->chunking.chunks);
}

static manta_status dataset_shape(const h5_file *f, const char *at, const h5_messages *m, dataset *d)
{
    const h5_message *space = h5_message_find(m, H5_SPACE);

    if (!space || space->shared)
        return manta_fail(MANTA_EUNSUPPORTED, "%s: /%s: the dataset has no shape of its own", f->path, at);
    TRY(h5_space_parse(f, h5_bytes(f, space->data, space->size), &d->space));
    if (d->space.none)
        return manta_fail(MANTA_EUNSUPPORTED, "%s: /%s: the dataset has no elements", f->path, at);
    if (d->space.ndim > MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: /%s: the dataset has %d dimensions, expected at most %d",
                          f->path, at, d->space.ndim, MANTA_MAX_DIMS);
    }
    for (int i = 0; i < d->space.ndim; i++) {
        if (d->space.dims[i] > INT64_MAX) {
            return manta_fail(MANTA_ECORRUPT, "%s: /%s: dimension %d is larger than can be addressed",
                              f->path, at, i);
        }
        d->shape[i] = (int64_t)d->space.dims[i];
    }
    return MANTA_OK;
}

/* Whether the dataset says of itself that it is bfloat16, for which HDF5 had no type. */
static manta_status says_bfloat16(const h5_file *f, const char *at, const h5_messages *m, bool *is)
{
    h5_names text = {0};
    bool found = false;
    manta_status st = h5_attribute_texts(f, at, m, "dtype", 64, &text, &found);

    *is = !st && text.n == 1 && !strcmp(text.at[0], "bfloat16");
    h5_names_release(&text);
    return st;
}

/* Chooses what the elements become. */
static manta_status dataset_type(const h5_file *f, const char *at, const h5_messages *m, dataset *d)
{
    const h5_message *type = h5_message_find(m, H5_TYPE);
    bool is_bfloat16 = false;

    if (!type) return manta_fail(MANTA_ECORRUPT, "%s: /%s: the dataset has no type", f->path, at);
    TRY(h5_type_of(f, h5_bytes(f, type->data, type->size), type->shared, &d->type));
    if (d->type.class == H5_OPAQUE && d->type.size == 2) {
        TRY(says_bfloat16(f, at, m, &is_bfloat16));
        if (is_bfloat16) d->type.dtype = MANTA_DTYPE_BF16;
    }
    if (!d->type.is_plain && !d->type.is_bool && !is_bfloat16) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: /%s: its elements are of a type that Manta does not have",
                          f->path, at);
    }
    d->dtype = d->type.dtype;
    if (!input_bytes(d->space.ndim, d->shape, manta_dtype_size(d->dtype), &d->bytes) ||
        !input_bytes(d->space.ndim, d->shape, d->type.size, &d->in_file)) {
        return manta_fail(MANTA_ECORRUPT, "%s: /%s: it has more elements than can be addressed", f->path, at);
    }
    d->n = d->in_file / d->type.size;
    return MANTA_OK;
}

/* What an element is that nobody wrote. */
static manta_status dataset_fill(const h5_file *f, const h5_messages *m, dataset *d)
{
    const h5_message *fill = h5_message_find(m, H5_FILL);
    h5_in in;
    int version;
    bool defined;
    uint64_t size;

    if (!fill || fill->shared) return MANTA_OK;
    in = h5_bytes(f, fill->data, fill->size);
    version = h5_take_int(&in, 1);
    if (version == 3) {
        defined = h5_take_int(&in, 1) & 0x20;
    } else {
        h5_skip(&in, 2);
        defined = h5_take_int(&in, 1) == 1;
    }
    if (in.over || !defined) return MANTA_OK;
    size = h5_take(&in, 4);
    if (size == d->type.size) d->fill = h5_skip(&in, (size_t)size);
    return h5_whole(&in, "the value for what is not written");
}

static manta_status lies_elsewhere(const h5_file *f, const char *at)
{
    return manta_fail(MANTA_EUNSUPPORTED,
                      "%s: /%s: its elements lie in another file; only what lies in the file itself is read",
                      f->path, at);
}

static manta_status too_few(const h5_file *f, const char *at, const dataset *d, uint64_t stored)
{
    return manta_fail(MANTA_ECORRUPT, "%s: /%s: its shape needs %zu bytes, the file stores %llu", f->path, at,
                      d->in_file, (unsigned long long)stored);
}

/* Elements in one piece: in the header itself, or at an address. */
static manta_status one_piece(const h5_file *f, const char *at, h5_in in, dataset *d)
{
    uint64_t place, stored;
    h5_in bytes;

    if (d->layout == COMPACT) {
        stored = h5_take(&in, 2);
        TRY(h5_whole(&in, "where a dataset lies"));
        if (stored > in.n || stored < d->in_file) return too_few(f, at, d, stored);
        d->data = in.p;
        return MANTA_OK;
    }
    place = h5_take_address(&in);
    stored = h5_take_length(&in);
    TRY(h5_whole(&in, "where a dataset lies"));
    if (place == H5_NOWHERE || d->in_file == 0) { /* nothing was written yet */
        return d->in_file > f->size ? too_few(f, at, d, 0) : MANTA_OK;
    }
    if (stored < d->in_file) return too_few(f, at, d, stored);
    TRY(h5_at(f, place, d->in_file, "the elements of a dataset", &bytes));
    d->data = bytes.p;
    return MANTA_OK;
}

static manta_status in_chunks(const h5_file *f, const char *at, int version, h5_in in, const h5_messages *m,
                              dataset *d)
{
    const h5_message *filters = h5_message_find(m, H5_FILTERS);

    if (filters && filters->shared)
        return h5_lacks(f, filters->data, "filters in the heap of shared messages");
    if (filters) TRY(h5_filters_parse(f, at, h5_bytes(f, filters->data, filters->size), &d->filters));
    TRY(h5_chunking_read(f, at, version, in, &d->space, &d->type, &d->filters, &d->chunking));
    if (d->in_file > f->size && d->in_file / GZIP_MAX_RATIO > d->chunking.stored) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: /%s: its elements take %zu bytes, which %llu stored bytes cannot hold",
                          f->path, at, d->in_file, (unsigned long long)d->chunking.stored);
    }
    return d->in_file > f->size ? limit_unpacked(f->path, d->chunking.stored, d->in_file) : MANTA_OK;
}

/* Where the elements are, and that the file has the bytes which the shape promises. */
static manta_status dataset_layout(const h5_file *f, const char *at, const h5_messages *m, dataset *d)
{
    const h5_message *layout = h5_message_find(m, H5_LAYOUT);
    int version;
    h5_in in;

    if (h5_message_find(m, H5_EXTERNAL)) return lies_elsewhere(f, at);
    if (layout->shared)
        return h5_lacks(f, layout->data, "the place of a dataset in the heap of shared messages");
    in = h5_bytes(f, layout->data, layout->size);
    version = h5_take_int(&in, 1);
    d->layout = h5_take_int(&in, 1);
    TRY(h5_whole(&in, "where a dataset lies"));
    if (version < 3 || version > 5) {
        return h5_lacks(f, layout->data, "the place of a dataset in version %d, expected 3 to 5", version);
    }
    switch (d->layout) {
    case COMPACT:
    case CONTIGUOUS: return one_piece(f, at, in, d);
    case CHUNKED: return in_chunks(f, at, version, in, m, d);
    case VIRTUAL: return lies_elsewhere(f, at);
    default: return h5_lacks(f, layout->data, "a dataset stored in way %d, expected 0 to 3", d->layout);
    }
}

static manta_status dataset_describe(const h5_file *f, const char *at, const h5_messages *m, dataset *d)
{
    TRY(dataset_shape(f, at, m, d));
    TRY(dataset_type(f, at, m, d));
    TRY(dataset_fill(f, m, d));
    return dataset_layout(f, at, m, d);
}

static manta_status dataset_open(h5_file *f, const char *at, dataset *d)
{
    h5_messages m = {0};
    uint64_t object;
    manta_status st;

    TRY(h5_object_at(f, at, &object));
    if (object != H5_NOWHERE) TRY(h5_object_read(f, object, &m));
    if (h5_message_find(&m, H5_LAYOUT)) {
        st = dataset_describe(f, at, &m, d);
    } else {
        st = manta_fail(MANTA_ENOENT, "%s: there is no dataset /%s", f->path, at);
    }
    vec_release(&m);
    return st;
}

/* ---- elements ---- */

static void fill_with(uint8_t *to, size_t n, const uint8_t *element, size_t size)
{
    if (!element) {
        memset(to, 0, n * size);
        return;
    }
    for (size_t i = 0; i < n; i++) memcpy(to + i * size, element, size);
}

/* Copies the part of a chunk that lies in the dataset to its place there, row by row. */
static void place_chunk(const dataset *d, uint64_t place, const uint8_t *chunk, uint8_t *to)
{
    const h5_chunking *c = &d->chunking;
    int last = c->ndim - 1;
    uint64_t first[H5_MAX_RANK], count[H5_MAX_RANK], at[H5_MAX_RANK] = {0};
    size_t row;

    for (int i = last; i >= 0; i--) {
        first[i] = place % c->grid[i] * c->dims[i];
        place /= c->grid[i];
        count[i] = d->space.dims[i] - first[i] < c->dims[i] ? d->space.dims[i] - first[i] : c->dims[i];
    }
    row = (size_t)count[last] * c->element;
    for (;;) {
        uint64_t from = 0, into = 0;
        int i;
        for (i = 0; i <= last; i++) {
            from = from * c->dims[i] + at[i];
            into = into * d->space.dims[i] + first[i] + at[i];
        }
        memcpy(to + into * c->element, chunk + from * c->element, row);
        for (i = last - 1; i >= 0 && ++at[i] == count[i]; i--) at[i] = 0;
        if (i < 0) return;
    }
}

static manta_status read_chunk(const h5_file *f, const dataset *d, const h5_chunk *chunk, uint8_t *unpacked,
                               uint8_t *work, uint8_t *to)
{
    const uint8_t *bytes = f->data + chunk->at;
    unsigned all = d->filters.n == 0 ? 0 : ~0u >> (32 - d->filters.n);

    if ((chunk->mask & all) == all) {
        if (chunk->size != d->chunking.bytes) {
            return h5_bad(f, bytes, "a chunk has %llu bytes, expected %zu", (unsigned long long)chunk->size,
                          d->chunking.bytes);
        }
        place_chunk(d, chunk->place, bytes, to);
        return MANTA_OK;
    }
    TRY(h5_filters_undo(f, &d->filters, chunk->mask, bytes, (size_t)chunk->size, unpacked, work,
                        d->chunking.bytes));
    place_chunk(d, chunk->place, unpacked, to);
    return MANTA_OK;
}

static manta_status read_chunks(const h5_file *f, const dataset *d, uint8_t *to)
{
    const h5_chunking *c = &d->chunking;
    uint8_t *unpacked = NULL, *work = NULL;
    manta_status st = MANTA_OK;

    if (c->chunks.n < c->n) fill_with(to, d->n, d->fill, d->type.size);
    if (d->filters.n && c->chunks.n) {
        unpacked = mem_try_raw(c->bytes + H5_FILTER_ROOM);
        work = mem_try_raw(c->bytes + H5_FILTER_ROOM);
        if (!unpacked || !work)
            st = manta_fail(MANTA_ENOMEM, "%s: no memory for a chunk of %zu bytes", f->path, c->bytes);
    }
    for (size_t i = 0; i < c->chunks.n && !st; i++)
        st = read_chunk(f, d, &c->chunks.at[i], unpacked, work, to);
    mem_try_free(unpacked);
    mem_try_free(work);
    return st;
}

/* All elements, as they are in the file, to memory of d->in_file bytes. */
static manta_status read_elements(const h5_file *f, const dataset *d, uint8_t *to)
{
    if (d->layout == CHUNKED) return read_chunks(f, d, to);
    if (d->data) {
        memcpy(to, d->data, d->in_file);
    } else {
        fill_with(to, d->n, d->fill, d->type.size);
    }
    return MANTA_OK;
}

/* Elements of another size than ours go through memory of their own. */
static manta_status read_converted(const h5_file *f, const char *at, const dataset *d, void *to)
{
    uint8_t *raw;
    manta_status st;

    if (d->layout != CHUNKED && d->data) return h5_type_convert(f, at, &d->type, d->data, d->dtype, to, d->n);
    if (d->type.size == manta_dtype_size(d->dtype)) {
        TRY(read_elements(f, d, to));
        return h5_type_convert(f, at, &d->type, to, d->dtype, to, d->n);
    }
    raw = mem_try_raw(d->in_file);
    if (!raw)
        return manta_fail(MANTA_ENOMEM, "%s: /%s: no memory for its %zu bytes", f->path, at, d->in_file);
    st = read_elements(f, d, raw);
    if (!st) st = h5_type_convert(f, at, &d->type, raw, d->dtype, to, d->n);
    mem_try_free(raw);
    return st;
}

static manta_status dataset_add(h5_file *f, const char *at, const dataset *d, manta_saved *s,
                                const char *name)
{
    bool as_stored = h5_type_as_stored(&d->type, d->dtype);
    manta_array a;

    if (d->layout == CONTIGUOUS && d->data && as_stored &&
        (uintptr_t)d->data % manta_dtype_size(d->dtype) == 0) {
        a = manta_array_of(d->dtype, d->space.ndim, d->shape, (void *)(uintptr_t)d->data);
        return saved_add(s, name, &a);
    }
    /* However often a file leads to the same bytes, they do not become more than deflate could make of it. */
    if (d->bytes > UINT64_MAX - f->unpacked || (f->unpacked += d->bytes) / 8 / GZIP_MAX_RATIO > f->size) {
        return manta_fail(MANTA_ECORRUPT, "%s: /%s: it has more elements than the file can hold", f->path,
                          at);
    }
    TRY(saved_new_array(s, name, d->dtype, d->space.ndim, d->shape, &a));
    if (d->bytes == 0) return MANTA_OK;
    return read_converted(f, at, d, a.data);
}

/* The one of the joined files that has something at `at`; f itself when none has. */
static manta_status owner_of(h5_file **f, const char *at)
{
    h5_file *one = *f;
    uint64_t object = H5_NOWHERE;

    for (; one && object == H5_NOWHERE && (*f)->next; one = one->next) {
        TRY(h5_object_at(one, at, &object));
        if (object != H5_NOWHERE) *f = one;
    }
    return MANTA_OK;
}

manta_status h5_read(h5_file *f, const char *at, manta_saved *s, const char *name)
{
    dataset d = {0};
    manta_status st = owner_of(&f, at);

    if (!st) st = dataset_open(f, at, &d);

    if (!st) st = dataset_add(f, at, &d, s, name);
    dataset_release(&d);
    return st;
}

manta_status h5_shape(h5_file *f, const char *at, int *ndim, int64_t shape[MANTA_MAX_DIMS])
{
    dataset d = {0};
    manta_status st = owner_of(&f, at);

    if (!st) st = dataset_open(f, at, &d);
    if (!st) {
        *ndim = d.space.ndim;
        memcpy(shape, d.shape, sizeof d.shape);
    }
    dataset_release(&d);
    return st;
}
