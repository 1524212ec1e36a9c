/* h5_chunk.c - where the pieces of a chunked dataset lie.
 *
 * Six kinds of index say so: a B-tree of version 1 (all that files of the old
 * form have); and in the new form one chunk alone, chunks in a row without any
 * index, a fixed array, an array that grows, and a B-tree of version 2. The
 * arrays are numbered over the largest grid that the dataset may grow to, the
 * growing one with the dimension without end first. */
#include <stdlib.h>
#include <string.h>

#include "format/codec/gzip.h"
#include "format/hdf5/h5_part.h"

enum { TREE_1 = 0, SINGLE = 1, IMPLICIT = 2, FIXED_ARRAY = 3, GROWING_ARRAY = 4, TREE_2 = 5 };

typedef struct reader {
    const h5_file *f;
    const h5_filters *filters;
    h5_chunking *c;
    size_t nodes; /* of a B-tree visited */
    size_t element; /* bytes of an array's entry */
    uint64_t next; /* number of an array's next entry */
    int tree_type;
} reader;

/* Adds the chunk at `coords` of the grid. */
static manta_status add_chunk(reader *r, const uint64_t *coords, uint64_t at, uint64_t size, unsigned mask)
{
    h5_chunking *c = r->c;
    uint64_t place = 0;
    bool edge = false;
    h5_in bytes;

    for (int i = 0; i < c->ndim; i++) {
        if (coords[i] >= c->grid[i]) return MANTA_OK; /* from before the dataset was cut */
        place = place * c->grid[i] + coords[i];
        edge |= coords[i] == c->grid[i] - 1 && c->cut[i];
    }
    if (edge && c->plain_edge) mask = ~0u;
    if (c->chunks.n >= r->f->size / 4 || c->chunks.n >= c->n) {
        return manta_fail(MANTA_ECORRUPT, "%s: an index lists more chunks than the dataset has", r->f->path);
    }
    TRY(h5_at(r->f, at, size, "a chunk", &bytes));
    vec_push(&c->chunks, (h5_chunk){.at = at, .size = size, .place = place, .mask = mask});
    return MANTA_OK;
}

/* Adds entry r->next of an array: an address, and of packed chunks size and filters left out. */
static manta_status add_entry(reader *r, h5_in *in)
{
    h5_chunking *c = r->c;
    uint64_t at, size = c->bytes, left = r->next++, coords[H5_MAX_RANK];
    unsigned mask = 0;
    int without_end = -1;

    at = h5_take_address(in);
    if (r->filters->n) {
        size = h5_take(in, r->element - (size_t)r->f->address_size - 4);
        mask = (unsigned)h5_take(in, 4);
    }
    TRY(h5_whole(in, "the chunks of a dataset"));
    if (at == H5_NOWHERE) return MANTA_OK;
    for (int i = 0; i < c->ndim; i++) {
        if (c->index == GROWING_ARRAY && c->wide[i] == H5_NOWHERE) without_end = i;
    }
    for (int i = c->ndim - 1; i >= 0; i--) {
        if (i == without_end) continue;
        if (c->wide[i] == 0 || c->wide[i] == H5_NOWHERE)
            return h5_bad(r->f, in->p, "an array of chunks has no end");
        coords[i] = left % c->wide[i];
        left /= c->wide[i];
    }
    if (without_end >= 0) {
        coords[without_end] = left;
    } else if (left) {
        return MANTA_OK; /* the array is longer than the grid */
    }
    return add_chunk(r, coords, at, size, mask);
}

/* That an array's entries have the size that goes with its chunks. */
static manta_status check_entries(reader *r, const uint8_t *start, int packed)
{
    size_t address = (size_t)r->f->address_size;
    bool ok = packed == (r->filters->n > 0) &&
              (packed ? r->element > address + 4 && r->element <= address + 12 : r->element == address);

    return ok ? MANTA_OK : h5_bad(r->f, start, "the entries of an array of chunks have an impossible size");
}

/* ---- B-trees ---- */

static manta_status read_tree_1(reader *r, uint64_t at, int level)
{
    const h5_file *f = r->f;
    h5_chunking *c = r->c;
    const uint8_t *start;
    int type, mine, n;
    h5_in in;

    TRY(h5_from(f, at, "a node of chunks", &in));
    start = in.p;
    if (!h5_take_magic(&in, "TREE")) return h5_bad(f, start, "expected a node of chunks (TREE)");
    type = h5_take_int(&in, 1);
    mine = h5_take_int(&in, 1);
    n = h5_take_int(&in, 2);
    if (type != 1 || (level >= 0 && mine != level)) {
        return h5_bad(f, start, "a node of chunks has type %d and level %d, expected 1 and %d", type, mine,
                      level);
    }
    if (mine > 32 || r->nodes++ > f->size / 24)
        return h5_bad(f, start, "the nodes of a dataset go in circles");
    h5_skip(&in, 2 * (size_t)f->address_size);
    for (int i = 0; i < n; i++) {
        uint64_t size = h5_take(&in, 4), coords[H5_MAX_RANK], child;
        unsigned mask = (unsigned)h5_take(&in, 4);
        bool even = true;
        for (int k = 0; k < c->ndim; k++) {
            uint64_t offset = h5_take(&in, 8);
            coords[k] = offset / c->dims[k];
            even &= offset % c->dims[k] == 0;
        }
        h5_skip(&in, 8); /* within an element */
        child = h5_take_address(&in);
        TRY(h5_whole(&in, "a node of chunks"));
        if (mine) {
            TRY(read_tree_1(r, child, mine - 1));
        } else if (!even) {
            return h5_bad(f, in.p, "a chunk does not begin at a multiple of its size");
        } else {
            TRY(add_chunk(r, coords, child, size, mask));
        }
    }
    return MANTA_OK;
}

/* Type 10: address, place. Type 11: address, size, filters left out, place. */
static manta_status add_record(void *ctx, const uint8_t *record, size_t n)
{
    reader *r = ctx;
    h5_in in = h5_bytes(r->f, record, n);
    size_t known = (size_t)r->f->address_size + 8 * (size_t)r->c->ndim;
    uint64_t at = h5_take_address(&in), size = r->c->bytes, coords[H5_MAX_RANK];
    unsigned mask = 0;

    if (r->filters->n) {
        if (n < known + 5 || n > known + 12)
            return h5_bad(r->f, record, "the record of a chunk has an impossible size");
        size = h5_take(&in, n - known - 4);
        mask = (unsigned)h5_take(&in, 4);
    }
    for (int i = 0; i < r->c->ndim; i++) coords[i] = h5_take(&in, 8);
    TRY(h5_whole(&in, "a chunk's record"));
    return add_chunk(r, coords, at, size, mask);
}

static manta_status read_tree_2(reader *r)
{
    size_t least = (size_t)r->f->address_size + 8 * (size_t)r->c->ndim;
    int type = r->filters->n ? 11 : 10;

    return h5_tree_walk(r->f, r->c->root, type, type, least, add_record, r, NULL);
}

/* ---- without an index ---- */

static manta_status read_single(reader *r, int flags)
{
    h5_chunking *c = r->c;
    uint64_t coords[H5_MAX_RANK] = {0}, size = c->bytes;
    unsigned mask = 0;
    h5_in in = c->info;

    if (flags & 2) {
        size = h5_take_length(&in);
        mask = (unsigned)h5_take(&in, 4);
    }
    TRY(h5_whole(&in, "the one chunk of a dataset"));
    return add_chunk(r, coords, c->root, size, mask);
}

static manta_status read_implicit(reader *r)
{
    h5_chunking *c = r->c;
    uint64_t wide = 1;

    for (int i = 0; i < c->ndim; i++) {
        if (c->wide[i] == 0 || wide > r->f->size / c->wide[i]) {
            return h5_bad(r->f, c->info.p, "a row has more chunks than the file can hold");
        }
        wide *= c->wide[i];
    }
    for (uint64_t i = 0; i < wide; i++) {
        uint64_t left = i, coords[H5_MAX_RANK];
        for (int k = c->ndim - 1; k >= 0; k--) {
            coords[k] = left % c->wide[k];
            left /= c->wide[k];
        }
        if (i > (UINT64_MAX - c->root) / c->bytes)
            return h5_bad(r->f, c->info.p, "chunks lie beyond the end of the file");
        TRY(add_chunk(r, coords, c->root + i * c->bytes, c->bytes, ~0u));
    }
    return MANTA_OK;
}

/* ---- pages: how a long array's block is cut ---- */

/* n entries in pages of 2^bits, each with a checksum, from in on; `set` has a bit per page that was written. */
static manta_status read_pages(reader *r, h5_in *in, uint64_t n, int bits, const uint8_t *set)
{
    uint64_t page = (uint64_t)1 << bits, pages = (n + page - 1) / page;

    for (uint64_t k = 0; k < pages; k++) {
        uint64_t entries = n - k * page < page ? n - k * page : page;
        size_t size = (size_t)entries * r->element;
        const uint8_t *p = h5_skip(in, size + 4);
        h5_in part = h5_bytes(r->f, p, size);
        if (!p) return h5_bad(r->f, in->p, "a page of an array of chunks is cut short");
        if (!(set[k / 8] & 0x80 >> k % 8)) {
            r->next += entries;
            continue;
        }
        TRY(h5_check_sum(r->f, p, size + 4, "a page of an array of chunks"));
        for (uint64_t i = 0; i < entries; i++) TRY(add_entry(r, &part));
    }
    return MANTA_OK;
}

static size_t page_bytes(uint64_t n, int bits)
{
    uint64_t page = (uint64_t)1 << bits;

    return (size_t)(((n + page - 1) / page + 7) / 8);
}

/* ---- the fixed array ---- */

static manta_status read_fixed_block(reader *r, uint64_t at, uint64_t n, int bits)
{
    const h5_file *f = r->f;
    size_t head = 6 + (size_t)f->address_size;
    h5_in in, start;

    TRY(h5_from(f, at, "an array of chunks", &in));
    start = in;
    if (!h5_take_magic(&in, "FADB"))
        return h5_bad(f, start.p, "expected the block of an array of chunks (FADB)");
    h5_skip(&in, head - 4);
    if (n > (uint64_t)1 << bits) {
        size_t set = page_bytes(n, bits);
        const uint8_t *written = h5_skip(&in, set);
        h5_skip(&in, 4);
        TRY(h5_whole(&in, "an array of chunks"));
        TRY(h5_check_sum(f, start.p, head + set + 4, "an array of chunks"));
        return read_pages(r, &in, n, bits, written);
    }
    if (in.over || in.n < 4 || n > (in.n - 4) / r->element)
        return h5_bad(f, start.p, "an array of chunks is cut short");
    TRY(h5_check_sum(f, start.p, head + (size_t)n * r->element + 4, "an array of chunks"));
    for (uint64_t i = 0; i < n; i++) TRY(add_entry(r, &in));
    return MANTA_OK;
}

static manta_status read_fixed_array(reader *r)
{
    const h5_file *f = r->f;
    const uint8_t *start;
    int packed, bits;
    uint64_t n, block;
    h5_in in;

    TRY(h5_from(f, r->c->root, "an array of chunks", &in));
    start = in.p;
    if (!h5_take_magic(&in, "FAHD")) return h5_bad(f, start, "expected an array of chunks (FAHD)");
    h5_skip(&in, 1);
    packed = h5_take_int(&in, 1);
    r->element = (size_t)h5_take(&in, 1);
    bits = h5_take_int(&in, 1);
    n = h5_take_length(&in);
    block = h5_take_address(&in);
    h5_skip(&in, 4);
    TRY(h5_whole(&in, "an array of chunks"));
    TRY(h5_check_sum(f, start, (size_t)(in.p - start), "an array of chunks"));
    TRY(check_entries(r, start, packed));
    if (bits > 32 || n > f->size / r->element)
        return h5_bad(f, start, "an array of chunks is larger than the file");
    return block == H5_NOWHERE ? MANTA_OK : read_fixed_block(r, block, n, bits);
}

/* ---- the array that grows ----
 *
 * Its index block has the first entries, then addresses of data blocks, then
 * those of super blocks, each of which has addresses of more data blocks.
 * Super block k stands for 2^(k/2) data blocks of 2^((k+1)/2) times the
 * smallest size; those of the first ones are in the index block itself. */
typedef struct growing {
    reader *r;
    int bits; /* of the number of an entry */
    uint64_t in_index, smallest, pointers;
    int page_bits;
    uint64_t used; /* entries that were ever set */
} growing;

static manta_status read_data_block(growing *g, uint64_t at, uint64_t n, const uint8_t *written)
{
    reader *r = g->r;
    const h5_file *f = r->f;
    size_t head = 6 + (size_t)f->address_size + ((size_t)g->bits + 7) / 8;
    h5_in in, start;

    if (at == H5_NOWHERE) {
        r->next += n;
        return MANTA_OK;
    }
    TRY(h5_from(f, at, "a block of chunks", &in));
    start = in;
    if (!h5_take_magic(&in, "EADB")) return h5_bad(f, start.p, "expected a block of chunks (EADB)");
    h5_skip(&in, head - 4);
    if (in.over || in.n < 4) return h5_bad(f, start.p, "a block of chunks is cut short");
    if (n > (uint64_t)1 << g->page_bits) {
        TRY(h5_check_sum(f, start.p, head + 4, "a block of chunks"));
        h5_skip(&in, 4);
        return read_pages(r, &in, n, g->page_bits, written);
    }
    if (n > (in.n - 4) / r->element) return h5_bad(f, start.p, "a block of chunks is cut short");
    TRY(h5_check_sum(f, start.p, head + (size_t)n * r->element + 4, "a block of chunks"));
    for (uint64_t i = 0; i < n; i++) TRY(add_entry(r, &in));
    return MANTA_OK;
}

static manta_status read_super_block(growing *g, uint64_t at, uint64_t blocks, uint64_t n)
{
    reader *r = g->r;
    const h5_file *f = r->f;
    bool paged = n > (uint64_t)1 << g->page_bits;
    size_t set = paged ? page_bytes(n, g->page_bits) : 0;
    size_t head = 6 + (size_t)f->address_size + ((size_t)g->bits + 7) / 8;
    uint64_t size = head + blocks * (set + (size_t)f->address_size) + 4;
    h5_in in, addresses;

    if (at == H5_NOWHERE) {
        r->next += blocks * n;
        return MANTA_OK;
    }
    TRY(h5_at(f, at, size, "a block of blocks of chunks", &in));
    if (memcmp(in.p, "EASB", 4) != 0) return h5_bad(f, in.p, "expected a block of blocks of chunks (EASB)");
    TRY(h5_check_sum(f, in.p, in.n, "a block of blocks of chunks"));
    addresses = h5_bytes(f, in.p + head + blocks * set, in.n - head - blocks * set - 4);
    for (uint64_t i = 0; i < blocks && r->next < g->used; i++) {
        TRY(read_data_block(g, h5_take_address(&addresses), n, in.p + head + i * set));
    }
    return MANTA_OK;
}

static manta_status read_index_block(growing *g, uint64_t at)
{
    reader *r = g->r;
    const h5_file *f = r->f;
    size_t address = (size_t)f->address_size;
    int supers = 1 + g->bits - h5_log2(g->smallest), direct = 2 * h5_log2(g->pointers);
    uint64_t size = 6 + address + g->in_index * r->element + 2 * (g->pointers - 1) * address +
                    (supers > direct ? (uint64_t)(supers - direct) : 0) * address + 4;
    h5_in in, start;

    TRY(h5_at(f, at, size, "the index of chunks", &in));
    start = in;
    if (!h5_take_magic(&in, "EAIB")) return h5_bad(f, start.p, "expected the index of chunks (EAIB)");
    TRY(h5_check_sum(f, start.p, start.n, "the index of chunks"));
    h5_skip(&in, 2 + address);
    for (uint64_t i = 0; i < g->in_index; i++) TRY(add_entry(r, &in));
    for (int k = 0; k < supers && r->next < g->used; k++) {
        uint64_t blocks = (uint64_t)1 << k / 2, n = g->smallest << (k + 1) / 2;
        for (uint64_t i = 0; k < direct && i < blocks && r->next < g->used; i++) {
            TRY(read_data_block(g, h5_take_address(&in), n, NULL));
        }
        if (k >= direct) TRY(read_super_block(g, h5_take_address(&in), blocks, n));
        TRY(h5_whole(&in, "the index of chunks"));
    }
    return MANTA_OK;
}

static bool is_power(uint64_t v)
{
    return v && (v & (v - 1)) == 0;
}

static manta_status read_growing_array(reader *r)
{
    const h5_file *f = r->f;
    growing g = {.r = r};
    const uint8_t *start;
    uint64_t block;
    int packed;
    h5_in in;

    TRY(h5_from(f, r->c->root, "an array of chunks", &in));
    start = in.p;
    if (!h5_take_magic(&in, "EAHD")) return h5_bad(f, start, "expected an array of chunks (EAHD)");
    h5_skip(&in, 1);
    packed = h5_take_int(&in, 1);
    r->element = (size_t)h5_take(&in, 1);
    g.bits = h5_take_int(&in, 1);
    g.in_index = h5_take(&in, 1);
    g.smallest = h5_take(&in, 1);
    g.pointers = h5_take(&in, 1);
    g.page_bits = h5_take_int(&in, 1);
    h5_skip(&in, 4 * (size_t)f->length_size);
    g.used = h5_take_length(&in);
    (void)h5_take_length(&in);
    block = h5_take_address(&in);
    h5_skip(&in, 4);
    TRY(h5_whole(&in, "an array of chunks"));
    TRY(h5_check_sum(f, start, (size_t)(in.p - start), "an array of chunks"));
    TRY(check_entries(r, start, packed));
    if (g.bits > 48 || !is_power(g.smallest) || !is_power(g.pointers) || g.page_bits > 32) {
        return h5_bad(f, start, "an array of chunks has impossible sizes");
    }
    return block == H5_NOWHERE ? MANTA_OK : read_index_block(&g, block);
}

/* ---- all of it ---- */

static manta_status read_index(reader *r, int flags)
{
    h5_chunking *c = r->c;

    if (c->root == H5_NOWHERE || c->n == 0) return MANTA_OK; /* never written */
    switch (c->index) {
    case TREE_1: return read_tree_1(r, c->root, -1);
    case SINGLE: return read_single(r, flags);
    case IMPLICIT: return read_implicit(r);
    case FIXED_ARRAY: return read_fixed_array(r);
    case GROWING_ARRAY: return read_growing_array(r);
    case TREE_2: return read_tree_2(r);
    default: return h5_lacks(r->f, c->info.p, "an index of chunks of kind %d, expected 1 to 5", c->index);
    }
}

static int by_place(const void *x, const void *y)
{
    const h5_chunk *a = x, *b = y;

    return a->place < b->place ? -1 : a->place > b->place;
}

/* The grid, and that a chunk is no larger than the file can fill. */
static manta_status lay_grid(const h5_file *f, const char *at, const h5_space *space, h5_chunking *c)
{
    uint64_t largest = (uint64_t)f->size * GZIP_MAX_RATIO + (1 << 20), bytes = c->element;

    c->n = 1;
    for (int i = 0; i < c->ndim; i++) {
        uint64_t dim = c->dims[i];
        if (dim == 0 || bytes > largest / dim) {
            return manta_fail(MANTA_ECORRUPT, "%s: /%s: its chunks have more bytes than the file can fill",
                              f->path, at);
        }
        bytes *= dim;
        c->grid[i] = space->dims[i] / dim + (space->dims[i] % dim != 0);
        c->cut[i] = space->dims[i] % dim != 0;
        c->wide[i] =
            space->most[i] == H5_NOWHERE ? H5_NOWHERE : space->most[i] / dim + (space->most[i] % dim != 0);
        if (c->grid[i] && c->n > UINT64_MAX / c->grid[i]) {
            return manta_fail(MANTA_ECORRUPT, "%s: /%s: it has more chunks than can be counted", f->path, at);
        }
        c->n *= c->grid[i];
    }
    c->bytes = (size_t)bytes;
    return MANTA_OK;
}

/* Version 3: dimensions, B-tree, sizes. Version 4: flags, dimensions, sizes, kind of index, its data, place. */
static manta_status parse_layout(const h5_file *f, int version, h5_in in, h5_chunking *c, int *flags)
{
    static const size_t info[6] = {[FIXED_ARRAY] = 1, [GROWING_ARRAY] = 5, [TREE_2] = 6};
    const uint8_t *start = in.p;
    size_t width = 4;

    *flags = version == 3 ? 0 : h5_take_int(&in, 1);
    c->ndim = h5_take_int(&in, 1) - 1; /* the last dimension is the element */
    if (version == 3) {
        c->root = h5_take_address(&in);
    } else {
        width = (size_t)h5_take(&in, 1);
    }
    if (c->ndim < 1 || c->ndim > H5_MAX_RANK || width < 1 || width > 8) {
        return h5_bad(f, start,
                      "chunks have %d dimensions and sizes of %zu bytes, expected 1 to %d and 1 to 8",
                      c->ndim, width, H5_MAX_RANK);
    }
    for (int i = 0; i < c->ndim; i++) c->dims[i] = h5_take(&in, width);
    c->element = (size_t)h5_take(&in, width);
    c->plain_edge = *flags & 1;
    if (version > 3) {
        size_t n;
        c->index = h5_take_int(&in, 1);
        n = c->index < 6 ? info[c->index] : 0;
        if (c->index == SINGLE && *flags & 2) n = (size_t)f->length_size + 4;
        if (c->index == 0) c->index = -1;
        c->info = h5_bytes(f, in.p, in.n < n ? in.n : n);
        h5_skip(&in, n);
        c->root = h5_take_address(&in);
    } else {
        c->info = in;
    }
    return h5_whole(&in, "how a dataset is cut");
}

manta_status h5_chunking_read(const h5_file *f, const char *at, int version, h5_in in, const h5_space *space,
                              const h5_type *type, const h5_filters *filters, h5_chunking *out)
{
    reader r = {.f = f, .filters = filters, .c = out};
    uint64_t stored = 0;
    int flags;

    TRY(parse_layout(f, version, in, out, &flags));
    if (out->ndim != space->ndim || out->element != type->size) {
        return manta_fail(
            MANTA_ECORRUPT,
            "%s: /%s: its chunks have %d dimensions and elements of %zu bytes, it has %d and %zu", f->path,
            at, out->ndim, out->element, space->ndim, type->size);
    }
    TRY(lay_grid(f, at, space, out));
    TRY(read_index(&r, flags));
    if (out->chunks.n > 1) qsort(out->chunks.at, out->chunks.n, sizeof *out->chunks.at, by_place);
    for (size_t i = 0; i < out->chunks.n; i++) {
        stored += out->chunks.at[i].size;
        if (stored > f->size || (i && out->chunks.at[i].place == out->chunks.at[i - 1].place)) {
            return manta_fail(MANTA_ECORRUPT, "%s: /%s: two of its chunks lie in the same place", f->path,
                              at);
        }
    }
    out->stored = stored;
    return MANTA_OK;
}
