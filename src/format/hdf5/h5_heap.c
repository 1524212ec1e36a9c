/* h5_heap.c - the three heaps of HDF5.
 *
 * The local heap holds the names of a group of the old form, one behind the
 * other. The global heap holds what has no size of its own, here texts, in
 * collections of numbered objects. The fractal heap holds links and attributes
 * of the new form: one address space of blocks, `width` to a row, where the
 * first two rows have blocks of one size and each further row of twice that.
 * Small blocks hold objects, those beyond `largest` again such a table. */
#include <string.h>

#include "base/mem.h"
#include "format/hdf5/h5_part.h"

/* ---- local: names ---- */

manta_status h5_names_heap_open(const h5_file *f, uint64_t at, h5_names_heap *out)
{
    uint64_t size, segment;
    h5_in in, names;

    TRY(h5_from(f, at, "the names of a group", &in));
    if (!h5_take_magic(&in, "HEAP")) return h5_bad(f, f->data + at, "expected the names of a group (HEAP)");
    if (h5_take_int(&in, 1) != 0)
        return h5_lacks(f, f->data + at, "names of a group of another version than 0");
    h5_skip(&in, 3);
    size = h5_take_length(&in);
    (void)h5_take_length(&in); /* what is free in it */
    segment = h5_take_address(&in);
    TRY(h5_whole(&in, "the names of a group"));
    TRY(h5_at(f, segment, size, "the names of a group", &names));
    *out = (h5_names_heap){(const char *)names.p, names.n};
    return MANTA_OK;
}

manta_status h5_names_heap_find(const h5_file *f, const h5_names_heap *h, uint64_t offset, const char **name,
                                size_t *n)
{
    size_t left;

    if (offset >= h->n) {
        return h5_bad(f, (const uint8_t *)h->at, "a name begins at byte %llu of %zu bytes of names",
                      (unsigned long long)offset, h->n);
    }
    left = h->n - (size_t)offset;
    *name = h->at + offset;
    *n = strnlen(*name, left);
    return *n == left ? h5_bad(f, (const uint8_t *)*name, "a name has no end") : MANTA_OK;
}

/* ---- global: texts ---- */

/* Lists the objects of the collection at `at`. */
static manta_status open_collection(const h5_file *f, h5_texts_heap *h, uint64_t at)
{
    uint64_t size;
    h5_in in;

    vec_clear(&h->objects);
    h->at = H5_NOWHERE;
    TRY(h5_from(f, at, "a collection of texts", &in));
    if (!h5_take_magic(&in, "GCOL")) return h5_bad(f, f->data + at, "expected a collection of texts (GCOL)");
    if (h5_take_int(&in, 1) != 1) return h5_lacks(f, f->data + at, "texts of another version than 1");
    h5_skip(&in, 3);
    size = h5_take_length(&in);
    TRY(h5_whole(&in, "a collection of texts"));
    TRY(h5_at(f, at, size, "a collection of texts", &in));
    h5_skip(&in, 8 + (size_t)f->length_size);
    while (!in.over && in.n >= 8 + (size_t)f->length_size) {
        size_t number = (size_t)h5_take(&in, 2), n;
        uint64_t bytes;
        const uint8_t *p;
        h5_skip(&in, 6);
        bytes = h5_take_length(&in);
        if (number == 0) break; /* the rest is free */
        n = bytes > in.n ? in.n + 1 : (size_t)bytes;
        p = h5_skip(&in, n);
        if (!p) return h5_bad(f, in.p, "a text reaches beyond its collection");
        while (h->objects.n <= number) vec_push(&h->objects, (h5_in){0});
        h->objects.at[number] = h5_bytes(f, p, n);
        if (n % 8) h5_skip(&in, 8 - n % 8 < in.n ? 8 - n % 8 : in.n);
    }
    h->at = at;
    return MANTA_OK;
}

manta_status h5_texts_heap_find(const h5_file *f, h5_texts_heap *h, uint64_t at, uint64_t number, h5_in *out)
{
    if (h->at != at) TRY(open_collection(f, h, at));
    if (number >= h->objects.n || !h->objects.at[number].p) {
        return h5_bad(f, f->data + at, "a collection of texts has no number %llu",
                      (unsigned long long)number);
    }
    *out = h->objects.at[number];
    return MANTA_OK;
}

/* ---- fractal ---- */

static bool is_power(uint64_t v)
{
    return v && (v & (v - 1)) == 0;
}

manta_status h5_heap_open(const h5_file *f, uint64_t at, h5_heap *out)
{
    const uint8_t *start;
    size_t filters;
    uint64_t largest_object;
    int flags, bits;
    h5_in in;
    h5_heap h = {.at = at};

    TRY(h5_from(f, at, "a heap", &in));
    start = in.p;
    if (!h5_take_magic(&in, "FRHP")) return h5_bad(f, start, "expected a heap (FRHP)");
    if (h5_take_int(&in, 1) != 0) return h5_lacks(f, start, "a heap of another version than 0");
    h.id_size = (size_t)h5_take(&in, 2);
    filters = (size_t)h5_take(&in, 2);
    flags = h5_take_int(&in, 1);
    largest_object = h5_take(&in, 4);
    (void)h5_take_length(&in); /* the next number of a huge object */
    h.huge = h5_take_address(&in);
    (void)h5_take_length(&in);
    (void)h5_take_address(&in);
    for (int i = 0; i < 8; i++) (void)h5_take_length(&in); /* statistics */
    h.width = h5_take_int(&in, 2);
    h.start = h5_take_length(&in);
    h.largest = h5_take_length(&in);
    bits = h5_take_int(&in, 2);
    (void)h5_take(&in, 2);
    h.root = h5_take_address(&in);
    h.rows = h5_take_int(&in, 2);
    if (filters) return h5_lacks(f, start, "a heap that is packed");
    (void)h5_take(&in, 4);
    TRY(h5_whole(&in, "a heap"));
    TRY(h5_check_sum(f, start, (size_t)(in.p - start), "a heap"));
    if (bits < 1 || bits > 64 || !is_power(h.start) || !is_power(h.largest) || h.largest < h.start ||
        h.largest > UINT32_MAX || !is_power((uint64_t)h.width) || h.width > 64 || h.rows > 64) {
        return h5_bad(f, start, "a heap has impossible sizes");
    }
    h.offset_size = ((size_t)bits + 7) / 8;
    h.length_size = h5_bytes_for(h.largest);
    if (h5_bytes_for(largest_object) < h.length_size) h.length_size = h5_bytes_for(largest_object);
    h.sums = flags & 2;
    *out = h;
    return MANTA_OK;
}

/* The n bytes at `offset` of the direct block at `at`, which begins at `base` of the heap. */
static manta_status in_block(const h5_file *f, const h5_heap *h, uint64_t at, uint64_t size, uint64_t base,
                             uint64_t offset, uint64_t n, h5_in *out)
{
    size_t head = 5 + (size_t)f->address_size + h->offset_size + (h->sums ? 4 : 0);
    h5_in block;

    TRY(h5_at(f, at, size, "a block of a heap", &block));
    if (size < head || memcmp(block.p, "FHDB", 4) != 0)
        return h5_bad(f, block.p, "expected a block of a heap (FHDB)");
    if (offset - base < head || offset - base > size || n > size - (offset - base)) {
        return h5_bad(f, block.p, "an object of a heap lies beyond its block");
    }
    *out = h5_bytes(f, block.p + (offset - base), (size_t)n);
    return MANTA_OK;
}

static uint64_t row_size(const h5_heap *h, int row)
{
    return row < 2 ? h->start : row - 1 < 40 ? h->start << (row - 1) : H5_NOWHERE;
}

/* Where the row with `offset` (counted from the table's beginning) begins; *row is its number. */
static uint64_t row_of(const h5_heap *h, uint64_t offset, int *row)
{
    uint64_t first = h->start * (uint64_t)h->width;

    if (offset < first) {
        *row = 0;
        return 0;
    }
    *row = h5_log2(offset / first) + 1;
    return first << (*row - 1);
}

/* Checks the table of blocks at `at`: its rows, and that they lie in the file. */
static manta_status open_table(const h5_file *f, const h5_heap *h, uint64_t at, int rows, h5_in *entries)
{
    size_t head = 5 + (size_t)f->address_size + h->offset_size;
    uint64_t size = head + (uint64_t)rows * (uint64_t)h->width * (uint64_t)f->address_size + 4;
    h5_in in;

    TRY(h5_at(f, at, size, "the blocks of a heap", &in));
    if (memcmp(in.p, "FHIB", 4) != 0) return h5_bad(f, in.p, "expected the blocks of a heap (FHIB)");
    TRY(h5_check_sum(f, in.p, in.n, "the blocks of a heap"));
    *entries = h5_bytes(f, in.p + head, in.n - head - 4);
    return MANTA_OK;
}

static manta_status find_managed(const h5_file *f, const h5_heap *h, uint64_t offset, uint64_t n, h5_in *out)
{
    uint64_t at = h->root, base = 0;
    int rows = h->rows;

    if (at == H5_NOWHERE) return h5_bad(f, f->data + h->at, "an object is looked for in an empty heap");
    if (rows == 0) return in_block(f, h, at, h->start, 0, offset, n, out);
    for (int depth = 0; depth < 32; depth++) {
        int row, column;
        uint64_t begin = row_of(h, offset - base, &row), size = row_size(h, row);
        h5_in entries;
        TRY(open_table(f, h, at, rows, &entries));
        if (row >= rows || size == H5_NOWHERE)
            return h5_bad(f, entries.p, "an object lies beyond the rows of its heap");
        column = (int)((offset - base - begin) / size);
        h5_skip(&entries, (size_t)(row * h->width + column) * (size_t)f->address_size);
        at = h5_take_address(&entries);
        TRY(h5_whole(&entries, "the blocks of a heap"));
        if (at == H5_NOWHERE)
            return h5_bad(f, entries.p, "an object lies in a block that its heap does not have");
        base += begin + (uint64_t)column * size;
        if (size <= h->largest) return in_block(f, h, at, size, base, offset, n, out);
        /* As many rows as fill a block of this size. */
        rows = h5_log2(size) - h5_log2(h->start) - h5_log2((uint64_t)h->width) + 1;
        if (rows < 1) return h5_bad(f, entries.p, "a heap has impossible sizes");
    }
    return h5_bad(f, f->data + h->at, "a heap has too many levels");
}

/* Looking for a huge object by its number. */
typedef struct huge {
    const h5_file *f;
    uint64_t number;
    uint64_t at, size;
    bool found;
} huge;

static manta_status look_at_huge(void *ctx, const uint8_t *record, size_t size)
{
    huge *x = ctx;
    h5_in in = h5_bytes(x->f, record, size);
    uint64_t at = h5_take_address(&in), n = h5_take_length(&in), number = h5_take_length(&in);

    if (number == x->number && !in.over) {
        x->at = at;
        x->size = n;
        x->found = true;
    }
    return MANTA_OK;
}

static manta_status find_huge(const h5_file *f, const h5_heap *h, h5_in id, h5_in *out)
{
    huge x = {.f = f};
    size_t direct = (size_t)f->address_size + (size_t)f->length_size;

    if (h->id_size - 1 >= direct) {
        x.at = h5_take_address(&id);
        x.size = h5_take_length(&id);
        TRY(h5_whole(&id, "the place of an object in a heap"));
    } else {
        const uint8_t *start = id.p;
        x.number = h5_take(&id, id.n < 8 ? id.n : 8);
        if (h->huge == H5_NOWHERE)
            return h5_bad(f, start, "a large object is looked for in a heap without any");
        TRY(h5_tree_walk(f, h->huge, 1, 1, direct + (size_t)f->length_size, look_at_huge, &x, NULL));
        if (!x.found) return h5_bad(f, start, "a heap does not have the large object that is looked for");
    }
    return h5_at(f, x.at, x.size, "a large object of a heap", out);
}

manta_status h5_heap_find(const h5_file *f, const h5_heap *h, const uint8_t *id, size_t n, h5_in *out)
{
    h5_in in = h5_bytes(f, id, n);
    int first, kind;

    if (h->id_size != n)
        return h5_bad(f, id, "a heap names its objects by %zu bytes, expected %zu", h->id_size, n);
    first = h5_take_int(&in, 1);
    kind = first >> 4 & 3;
    if (first >> 6) return h5_lacks(f, id, "an object of a heap of version %d, expected 0", first >> 6);
    if (kind == 0) {
        uint64_t offset = h5_take(&in, h->offset_size), size = h5_take(&in, h->length_size);
        TRY(h5_whole(&in, "the place of an object in a heap"));
        return find_managed(f, h, offset, size, out);
    }
    if (kind == 1) return find_huge(f, h, in, out);
    if (kind == 2 && (size_t)(first & 15) + 1 <= in.n) {
        *out = h5_bytes(f, in.p, (size_t)(first & 15) + 1);
        return MANTA_OK;
    }
    return h5_bad(f, id, "an object of a heap is of an unknown kind");
}
