/* gzip.c - decompression of gzip files and deflate streams. */
#include <libdeflate.h>
#include <zlib.h>

#include "format/codec/gzip.h"

bool gzip_is(const uint8_t *data, size_t size)
{
    return size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

static uInt piece_size(size_t n)
{
    return n > (1u << 30) ? 1u << 30 : (uInt)n;
}

manta_status gzip_head(const char *name, const uint8_t *data, size_t size, uint8_t *out, size_t *n)
{
    z_stream z = {0};

    if (inflateInit2(&z, 31) != Z_OK) return manta_fail(MANTA_ENOMEM, "%s: zlib has no memory", name);
    z.next_in = (Bytef *)(uintptr_t)data; /* zlib does not write there */
    z.avail_in = piece_size(size);
    z.next_out = out;
    z.avail_out = piece_size(*n);
    int r = inflate(&z, Z_SYNC_FLUSH);
    size_t in = (size_t)z.total_in, got = (size_t)z.total_out;
    inflateEnd(&z);
    if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR) {
        return manta_fail(MANTA_ECORRUPT, "%s: the gzip data is damaged at offset %zu, expected a gzip file",
                          name, in);
    }
    if (r == Z_BUF_ERROR && got == 0 && *n > 0) {
        return manta_fail(MANTA_ECORRUPT, "%s: the gzip data is cut off at offset %zu", name, size);
    }
    *n = got;
    return MANTA_OK;
}

/* libdeflate says only that it failed; zlib, slower, can say where and why. */
static manta_status explain_failure(const char *name, const uint8_t *data, size_t size, size_t expected)
{
    uint8_t sink[1 << 14];
    z_stream z = {0};
    size_t in = 0, out = 0;
    int r = Z_OK;

    if (inflateInit2(&z, 31) != Z_OK) return manta_fail(MANTA_ENOMEM, "%s: zlib has no memory", name);
    while (r == Z_OK && out <= expected) {
        z.next_in = (Bytef *)(uintptr_t)(data + in);
        z.avail_in = piece_size(size - in);
        z.next_out = sink;
        z.avail_out = sizeof sink;
        uInt had = z.avail_in;
        r = inflate(&z, Z_NO_FLUSH);
        in += had - z.avail_in;
        out += sizeof sink - z.avail_out;
        if (r == Z_STREAM_END && in < size) r = inflateReset2(&z, 31); /* another member */
    }
    inflateEnd(&z);
    if (r == Z_BUF_ERROR || (r == Z_OK && in == size)) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the gzip data is cut off at offset %zu, after %zu of %zu bytes expected", name,
                          in, out, expected);
    }
    if (r == Z_OK || r == Z_STREAM_END) {
        return manta_fail(MANTA_ECORRUPT, "%s: the gzip data holds %s%zu bytes, expected %zu", name,
                          out > expected ? "more than " : "", out > expected ? expected : out, expected);
    }
    return manta_fail(MANTA_ECORRUPT,
                      "%s: the gzip data is damaged at offset %zu, after %zu of %zu bytes expected", name, in,
                      out, expected);
}

manta_status gzip_whole(const char *name, const uint8_t *data, size_t size, uint8_t *out, size_t n)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    enum libdeflate_result r = LIBDEFLATE_SUCCESS;
    size_t in = 0, done = 0;

    if (!d) return manta_fail(MANTA_ENOMEM, "%s: libdeflate has no memory", name);
    while (r == LIBDEFLATE_SUCCESS && in < size) {
        size_t used = 0, made = 0;
        r = libdeflate_gzip_decompress_ex(d, data + in, size - in, out + done, n - done, &used, &made);
        if (r != LIBDEFLATE_SUCCESS) break;
        in += used;
        done += made;
    }
    libdeflate_free_decompressor(d);
    if (r == LIBDEFLATE_SUCCESS && done == n) return MANTA_OK;
    return explain_failure(name, data, size, n);
}

manta_status gzip_deflated(const char *what, const uint8_t *data, size_t size, uint8_t *out, size_t n)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    size_t used = 0;

    if (!d) return manta_fail(MANTA_ENOMEM, "%s: libdeflate has no memory", what);
    enum libdeflate_result r = libdeflate_deflate_decompress_ex(d, data, size, out, n, &used, NULL);
    libdeflate_free_decompressor(d);
    if (r == LIBDEFLATE_SUCCESS && used == size) return MANTA_OK;
    return manta_fail(MANTA_ECORRUPT, "%s: %s, expected %zu bytes", what,
                      r == LIBDEFLATE_SUCCESS              ? "bytes follow the deflated data"
                      : r == LIBDEFLATE_SHORT_OUTPUT       ? "the deflated data holds fewer bytes"
                      : r == LIBDEFLATE_INSUFFICIENT_SPACE ? "the deflated data holds more bytes"
                                                           : "the deflated data is damaged or cut off",
                      n);
}
