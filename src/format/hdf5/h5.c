/* h5.c - HDF5 files in memory: the superblock, paths, datasets, texts.
 *
 * A dataset whose bytes lie in one piece, as we need them, is not read at all:
 * its elements are a view of the file image. Paths are walked link by link, so
 * that a soft or external link is seen and never followed. h5_part.h says what
 * the other files do, and what all of them keep to. */
#include "format/hdf5/h5.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/codec/gzip.h"
#include "format/codec/input.h"
#include "format/hdf5/h5_part.h"

enum {
    MAX_DEPTH = 64, /* components of a path */
    MAX_NAMES = 1 << 20, /* in one list of texts */
};

/* ---- the superblock ---- */

#define SIGNATURE "\211HDF\r\n\032\n"

bool h5_is(const uint8_t *data, size_t size)
{
    return size >= 8 && memcmp(data, SIGNATURE, 8) == 0;
}

static bool is_size(int n)
{
    return n == 2 || n == 4 || n == 8;
}

static manta_status take_sizes(h5_file *f, h5_in *in)
{
    f->address_size = h5_take_int(in, 1);
    f->length_size = h5_take_int(in, 1);
    TRY(h5_whole(in, "the superblock"));
    if (is_size(f->address_size) && is_size(f->length_size)) return MANTA_OK;
    return h5_lacks(f, f->data, "addresses of %d bytes and lengths of %d, expected 2, 4 or 8",
                    f->address_size, f->length_size);
}

/* Versions 0 and 1: the root is an entry of a group at its end. */
static manta_status read_old_superblock(h5_file *f, int version, h5_in in, uint64_t *end)
{
    h5_skip(&in, 4); /* versions of what it holds */
    TRY(take_sizes(f, &in));
    h5_skip(&in, 1 + 4 + 4); /* sizes of nodes, which nodes say themselves */
    if (version == 1) h5_skip(&in, 4);
    h5_skip(&in, 2 * (size_t)f->address_size); /* where it begins, free space */
    *end = h5_take_address(&in);
    h5_skip(&in, (size_t)f->address_size + (size_t)f->length_size); /* the driver; a name for the root */
    f->root = h5_take_address(&in);
    return h5_whole(&in, "the superblock");
}

static manta_status read_new_superblock(h5_file *f, h5_in in, uint64_t *end)
{
    TRY(take_sizes(f, &in));
    h5_skip(&in, 1 + 2 * (size_t)f->address_size); /* flags, where it begins, what is more to say */
    *end = h5_take_address(&in);
    f->root = h5_take_address(&in);
    h5_skip(&in, 4);
    TRY(h5_whole(&in, "the superblock"));
    return h5_check_sum(f, f->data, (size_t)(in.p - f->data), "the superblock");
}

static manta_status read_superblock(h5_file *f, size_t before)
{
    h5_in in = h5_bytes(f, f->data, f->size);
    uint64_t end = 0;
    int version;

    h5_skip(&in, 8);
    version = h5_take_int(&in, 1);
    if (version > 3) return h5_lacks(f, f->data, "a superblock of version %d, expected 0 to 3", version);
    TRY(version < 2 ? read_old_superblock(f, version, in, &end) : read_new_superblock(f, in, &end));
    if (end > f->size + before) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the file is cut short: it has %zu bytes, the superblock says %llu", f->path,
                          f->size + before, (unsigned long long)end);
    }
    return MANTA_OK;
}

/* Where the file begins behind what someone put in front of it: at 0, or at a power of two from 512 on. */
static bool find_signature(const uint8_t *data, size_t size, size_t *at)
{
    for (size_t n = 0; n < size; n = n ? 2 * n : 512) {
        *at = n;
        if (h5_is(data + n, size - n)) return true;
        if (n > size / 2) break;
    }
    return false;
}

manta_status h5_open(const char *path, const uint8_t *data, size_t size, h5_file **out)
{
    const h5_links *root = NULL;
    size_t before = 0;
    h5_file *f;
    manta_status st;

    if (!find_signature(data, size, &before)) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: this is not an HDF5 file: its signature is missing at offset 0", path);
    }
    f = mem_new(sizeof *f);
    *f = (h5_file){.path = mem_strdup(path), .data = data + before, .size = size - before};
    st = read_superblock(f, before);
    if (!st) st = h5_links_of(f, f->root, &root);
    if (!st && !root) st = h5_bad(f, f->data, "the root is no group");
    if (st) {
        h5_close(f);
        return st;
    }
    *out = f;
    return MANTA_OK;
}

void h5_join(h5_file *f, h5_file *more)
{
    while (f->next) f = f->next;
    f->next = more;
}

void h5_close(h5_file *f)
{
    while (f) {
        h5_file *next = f->next;
        for (size_t i = 0; i < f->groups.n; i++) vec_release(&f->groups.at[i].value);
        map_u64_release(&f->groups);
        mem_free(f->path);
        mem_free(f);
        f = next;
    }
}

/* ---- finding ---- */

/* The header of the object at `at`, by hard links; H5_NOWHERE when there is none. */
static manta_status find_object(h5_file *f, const char *at, uint64_t *out)
{
    uint64_t here = f->root;
    const char *p = at;

    *out = H5_NOWHERE;
    for (int depth = 0; *p; depth++) {
        size_t n = strcspn(p, "/");
        const h5_links *links = NULL;
        const h5_link *l;
        if (depth >= MAX_DEPTH) return MANTA_OK;
        TRY(h5_links_of(f, here, &links));
        l = links ? h5_links_find(links, p, n) : NULL;
        if (!l) return MANTA_OK;
        if (l->to == H5_NOWHERE) {
            return manta_fail(MANTA_EUNSUPPORTED,
                              "%s: /%s: '%.*s' is a soft or external link; only what lies in "
                              "the file itself is read",
                              f->path, at, (int)n, p);
        }
        here = l->to;
        p += n;
        if (*p == '/') p++;
    }
    *out = here;
    return MANTA_OK;
}

/* What lies at `at` of one file. */
static manta_status find_kind(h5_file *f, const char *at, h5_kind *out)
{
    const h5_links *links = NULL;
    h5_messages m = {0};
    uint64_t object;

    TRY(find_object(f, at, &object));
    if (object == H5_NOWHERE) return MANTA_OK;
    TRY(h5_links_of(f, object, &links));
    if (links) {
        *out = H5_GROUP;
        return MANTA_OK;
    }
    TRY(h5_object_read(f, object, &m));
    if (h5_message_find(&m, H5_LAYOUT)) *out = H5_DATASET;
    vec_release(&m);
    return MANTA_OK;
}

manta_status h5_find(h5_file *f, const char *at, h5_kind *out)
{
    *out = H5_NOTHING;
    for (; f && *out == H5_NOTHING; f = f->next) TRY(find_kind(f, at, out));
    return MANTA_OK;
}

void h5_names_release(h5_names *names)
{
    for (size_t i = 0; i < names->n; i++) mem_free(names->at[i]);
    vec_release(names);
}

static int by_bytes(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

/* Sorts the names of several files, and leaves each of them once. */
static void merge_names(h5_names *names)
{
    size_t n = 0;

    if (names->n > 1) qsort(names->at, names->n, sizeof *names->at, by_bytes);
    for (size_t i = 0; i < names->n; i++) {
        if (n && !strcmp(names->at[n - 1], names->at[i])) {
            mem_free(names->at[i]);
        } else {
            names->at[n++] = names->at[i];
        }
    }
    names->n = n;
}

manta_status h5_list(h5_file *f, const char *at, h5_names *out)
{
    const char *path = f->path;
    bool found = false, joined = f->next != NULL;
    manta_status st = MANTA_OK;

    for (; f && !st; f = f->next) {
        const h5_links *links = NULL;
        uint64_t object;
        st = find_object(f, at, &object);
        if (!st && object != H5_NOWHERE) st = h5_links_of(f, object, &links);
        found |= links != NULL;
        for (size_t i = 0; links && i < links->n; i++) {
            vec_push(out, mem_strndup(links->at[i].name, links->at[i].n));
        }
    }
    if (!st && !found) st = manta_fail(MANTA_ENOENT, "%s: there is no group /%s", path, at);
    if (st) {
        h5_names_release(out);
    } else if (joined) {
        merge_names(out);
    }
    return st;
}

/* ---- texts ---- */

/* A list of texts being read: how much more there may be. */
typedef struct texts {
    const h5_file *f;
    const char *at, *name; /* for sentences */
    size_t max; /* bytes of one */
    uint64_t bytes; /* of all so far */
    h5_texts_heap heap;
    h5_names *out;
} texts;

static manta_status add_text(texts *t, const uint8_t *p, size_t n)
{
    n = strnlen((const char *)p, n);
    t->bytes += n;
    if (n > t->max || t->bytes > t->f->size) {
        return manta_fail(MANTA_ECORRUPT, "%s: /%s: attribute '%s' is longer than %zu bytes", t->f->path,
                          t->at, t->name, n > t->max ? t->max : t->f->size);
    }
    vec_push(t->out, mem_strndup((const char *)p, n));
    return MANTA_OK;
}

/* Of fixed length: filled up with zeros, or with spaces. */
static manta_status add_fixed(texts *t, const h5_type *type, h5_in *data, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *p = h5_skip(data, type->size);
        size_t size = type->size;
        if (!p) break;
        while (type->spaces && size && p[size - 1] == ' ') size--;
        TRY(add_text(t, p, size));
    }
    return h5_whole(data, "an attribute");
}

/* Of variable length: bytes, the collection they are in, and which of it. */
static manta_status add_variable(texts *t, h5_in *data, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bytes = h5_take(data, 4), at = h5_take_address(data), number = h5_take(data, 4);
        h5_in text = {0};
        TRY(h5_whole(data, "an attribute"));
        if (bytes == 0 || at == 0 || at == H5_NOWHERE) {
            TRY(add_text(t, data->p, 0));
            continue;
        }
        TRY(h5_texts_heap_find(t->f, &t->heap, at, number, &text));
        if (bytes > text.n)
            return h5_bad(t->f, text.p, "a text has %llu bytes where %zu are left", (unsigned long long)bytes,
                          text.n);
        TRY(add_text(t, text.p, (size_t)bytes));
    }
    return MANTA_OK;
}

static manta_status add_texts(texts *t, const h5_attribute *a)
{
    h5_in data = a->data;
    h5_space space;
    h5_type type;
    uint64_t n = 1;

    TRY(h5_type_of(t->f, a->type, a->type_shared, &type));
    TRY(h5_space_parse(t->f, a->space, &space));
    for (int i = 0; i < space.ndim; i++) {
        if (space.dims[i] && n > MAX_NAMES / space.dims[i]) {
            return manta_fail(MANTA_ECORRUPT, "%s: /%s: attribute '%s' has more than %d texts", t->f->path,
                              t->at, t->name, MAX_NAMES);
        }
        n *= space.dims[i];
    }
    if (space.none || n == 0) return MANTA_OK; /* Keras writes an empty list as numbers */
    if (type.class == H5_STRING) return add_fixed(t, &type, &data, n);
    if (type.class == H5_VARIABLE && type.is_text) return add_variable(t, &data, n);
    return manta_fail(MANTA_ECORRUPT, "%s: /%s: attribute '%s' is not text", t->f->path, t->at, t->name);
}

/* Adds the texts of an attribute of an object; *found says whether it is there. */
static manta_status texts_of(const h5_file *f, const char *at, const h5_messages *m, const char *name,
                             size_t max, h5_names *out, bool *found)
{
    texts t = {.f = f, .at = at, .name = name, .max = max, .heap = {.at = H5_NOWHERE}, .out = out};
    h5_attribute a;
    manta_status st;

    TRY(h5_attribute_find(f, m, name, found, &a));
    if (!*found) return MANTA_OK;
    st = add_texts(&t, &a);
    vec_release(&t.heap.objects);
    return st;
}

/* The messages of what lies at `at`. */
static manta_status messages_at(h5_file *f, const char *at, h5_messages *out)
{
    uint64_t object;

    TRY(find_object(f, at, &object));
    if (object == H5_NOWHERE) return manta_fail(MANTA_ENOENT, "%s: there is no /%s", f->path, at);
    return h5_object_read(f, object, out);
}

manta_status h5_text(h5_file *f, const char *at, const char *attribute, size_t max, char **out)
{
    h5_messages m = {0};
    h5_names found = {0};
    bool there = false;
    manta_status st;

    *out = NULL;
    TRY(messages_at(f, at, &m));
    st = texts_of(f, at, &m, attribute, max, &found, &there);
    vec_release(&m);
    if (!st && found.n) {
        *out = found.at[0];
        found.at[0] = NULL;
    }
    h5_names_release(&found);
    return st;
}

manta_status h5_texts(h5_file *f, const char *at, const char *attribute, h5_names *out, bool *found)
{
    enum { LONGEST = 1 << 16 };
    h5_messages m = {0};
    manta_status st;

    *found = false;
    TRY(messages_at(f, at, &m));
    st = texts_of(f, at, &m, attribute, LONGEST, out, found);
    for (int i = 0; !st && !*found; i++) {
        bool more = false;
        char *part = mem_printf("%s%d", attribute, i);
        st = texts_of(f, at, &m, part, LONGEST, out, &more);
        mem_free(part);
        if (st || !more) {
            *found = i > 0;
            break;
        }
    }
    vec_release(&m);
    if (st) h5_names_release(out);
    return st;
}

/* ---- datasets ---- */

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
    manta_status st = texts_of(f, at, m, "dtype", 64, &text, &found);

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
    return MANTA_OK;
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

    TRY(find_object(f, at, &object));
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
        TRY(find_object(one, at, &object));
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
