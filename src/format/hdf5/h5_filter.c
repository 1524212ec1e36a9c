/* h5_filter.c - how chunks of an HDF5 file were packed: deflate, shuffle
 * (first bytes of all elements, then the second ones) and fletcher32 (a
 * checksum behind the bytes). Filters were applied in the order they are
 * listed in, so they are undone from the last to the first. */
#include <libdeflate.h>
#include <string.h>

#include "format/hdf5/h5_part.h"

static manta_status parse_one(const h5_file *f, const char *at, int version, h5_in *in, h5_filter *out)
{
    int id = h5_take_int(in, 2);
    size_t name = version == 1 || id >= 256 ? (size_t)h5_take(in, 2) : 0, values;
    uint64_t first = 0;

    h5_skip(in, 2); /* whether it may be left out */
    values = (size_t)h5_take(in, 2);
    h5_skip(in, version == 1 ? (name + 7) & ~(size_t)7 : name);
    for (size_t i = 0; i < values; i++) {
        uint64_t v = h5_take(in, 4);
        if (i == 0) first = v;
    }
    if (version == 1 && values % 2) h5_skip(in, 4);
    TRY(h5_whole(in, "the filters of a dataset"));
    if (id != H5_DEFLATE && id != H5_SHUFFLE && id != H5_FLETCHER32) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: /%s: packed by filter %d, expected deflate, shuffle or fletcher32", f->path,
                          at, id);
    }
    *out = (h5_filter){.id = id, .element = (size_t)first};
    return MANTA_OK;
}

manta_status h5_filters_parse(const h5_file *f, const char *at, h5_in in, h5_filters *out)
{
    const uint8_t *start = in.p;
    int version = h5_take_int(&in, 1), n = h5_take_int(&in, 1);
    h5_filters filters = {.n = n};

    if (version == 1) h5_skip(&in, 6);
    TRY(h5_whole(&in, "the filters of a dataset"));
    if (version < 1 || version > 2)
        return h5_lacks(f, start, "filters of version %d, expected 1 or 2", version);
    if (n > H5_MAX_FILTERS)
        return h5_bad(f, start, "a dataset has %d filters, expected at most %d", n, H5_MAX_FILTERS);
    for (int i = 0; i < n; i++) TRY(parse_one(f, at, version, &in, &filters.at[i]));
    *out = filters;
    return MANTA_OK;
}

/* Two sums modulo 65535 over 16-bit words, the high byte first. */
static uint32_t fletcher32(const uint8_t *p, size_t n)
{
    uint32_t a = 0, b = 0;

    for (size_t i = 0; i < n; i += 2) {
        a += (uint32_t)p[i] << 8 | (i + 1 < n ? p[i + 1] : 0);
        a = (a & 0xffff) + (a >> 16);
        b += a;
        b = (b & 0xffff) + (b >> 16);
    }
    return b << 16 | a;
}

static manta_status check_fletcher(const h5_file *f, const uint8_t *chunk, const uint8_t *p, size_t *n)
{
    uint32_t stored, made;

    if (*n < 4) return h5_bad(f, chunk, "a chunk is too small for its checksum");
    *n -= 4;
    stored =
        (uint32_t)p[*n] | (uint32_t)p[*n + 1] << 8 | (uint32_t)p[*n + 2] << 16 | (uint32_t)p[*n + 3] << 24;
    made = fletcher32(p, *n);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    made = stored;
#endif
    return stored == made ? MANTA_OK : h5_bad(f, chunk, "a chunk does not have its checksum");
}

static manta_status inflate_chunk(const h5_file *f, const uint8_t *chunk, const uint8_t *from, size_t *n,
                                  uint8_t *to, size_t room)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    enum libdeflate_result result;
    size_t made = 0;

    if (!d) return manta_fail(MANTA_ENOMEM, "%s: no memory to unpack", f->path);
    result = libdeflate_zlib_decompress(d, from, *n, to, room, &made);
    libdeflate_free_decompressor(d);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
        return h5_bad(f, chunk, "a chunk unpacks to more than the %zu bytes that it has", room);
    }
    if (result != LIBDEFLATE_SUCCESS) return h5_bad(f, chunk, "a chunk is no deflate stream, or damaged");
    *n = made;
    return MANTA_OK;
}

static void unshuffle_bytes(const uint8_t *from, uint8_t *to, size_t n, size_t element)
{
    size_t count = n / element;

    for (size_t k = 0; k < element; k++) {
        const uint8_t *plane = from + k * count;
        for (size_t i = 0; i < count; i++) to[i * element + k] = plane[i];
    }
    memcpy(to + count * element, from + count * element, n - count * element);
}

manta_status h5_filters_undo(const h5_file *f, const h5_filters *filters, unsigned mask, const uint8_t *from,
                             size_t n, uint8_t *to, uint8_t *work, size_t size)
{
    const uint8_t *chunk = from;
    size_t room = size + H5_FILTER_ROOM;

    for (int i = filters->n - 1; i >= 0; i--) {
        const h5_filter *filter = &filters->at[i];
        uint8_t *next = from == to ? work : to;
        if (mask >> i & 1) continue;
        if (filter->id == H5_FLETCHER32) {
            TRY(check_fletcher(f, chunk, from, &n));
        } else if (filter->id == H5_DEFLATE) {
            TRY(inflate_chunk(f, chunk, from, &n, next, room));
            from = next;
        } else if (n > room) {
            return h5_bad(f, chunk, "a chunk has %zu bytes, expected %zu", n, size);
        } else if (filter->element > 1 && n >= filter->element) {
            unshuffle_bytes(from, next, n, filter->element);
            from = next;
        }
    }
    if (n != size) return h5_bad(f, chunk, "a chunk has %zu bytes, expected %zu", n, size);
    if (from != to) memcpy(to, from, n);
    return MANTA_OK;
}
