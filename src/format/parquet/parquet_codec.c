/* parquet_codec.c - how the pages of a Parquet file are packed. */
#include <snappy-c.h>
#include <string.h>
#include <zstd.h>

#include "format/codec/gzip.h"
#include "format/parquet/parquet_codec.h"

enum { PLAIN = 0, SNAPPY = 1, GZIP = 2, ZSTANDARD = 6 };

/* Two bytes copy at most 64 in Snappy; a block of zstd makes at most 128 KiB and
 * takes four bytes at least. */
#define SNAPPY_MAX_RATIO 32
#define ZSTD_MAX_RATIO   32768

const char *parquet_codec_name(int codec)
{
    static const char *const names[] = {"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO",
                                        "BROTLI",       "LZ4",    "ZSTD", "LZ4_RAW"};

    return codec >= 0 && codec < 8 ? names[codec] : "?";
}

int parquet_codec_known(int codec)
{
    return codec == PLAIN || codec == SNAPPY || codec == GZIP || codec == ZSTANDARD;
}

size_t parquet_codec_most(int codec, size_t size)
{
    size_t ratio = codec == SNAPPY      ? SNAPPY_MAX_RATIO
                   : codec == GZIP      ? GZIP_MAX_RATIO
                   : codec == ZSTANDARD ? ZSTD_MAX_RATIO
                                        : 1;
    size_t most;

    return __builtin_mul_overflow(size, ratio, &most) ? SIZE_MAX : most;
}

static manta_status unpack_snappy(const char *what, const uint8_t *data, size_t size, uint8_t *out, size_t n)
{
    size_t made = 0;

    if (snappy_uncompressed_length((const char *)data, size, &made) == SNAPPY_OK && made == n &&
        snappy_uncompress((const char *)data, size, (char *)out, &made) == SNAPPY_OK && made == n) {
        return MANTA_OK;
    }
    return manta_fail(MANTA_ECORRUPT, "%s: the Snappy data is damaged, expected %zu bytes", what, n);
}

static manta_status unpack_zstd(const char *what, const uint8_t *data, size_t size, uint8_t *out, size_t n)
{
    size_t made = ZSTD_decompress(out, n, data, size);

    if (!ZSTD_isError(made) && made == n) return MANTA_OK;
    return manta_fail(MANTA_ECORRUPT, "%s: the zstd data is damaged (%s), expected %zu bytes", what,
                      ZSTD_isError(made) ? ZSTD_getErrorName(made) : "it holds fewer", n);
}

manta_status parquet_codec_unpack(int codec, const char *what, const uint8_t *data, size_t size, uint8_t *out,
                                  size_t n)
{
    switch (codec) {
    case SNAPPY: return unpack_snappy(what, data, size, out, n);
    case GZIP: return gzip_whole(what, data, size, out, n);
    case ZSTANDARD: return unpack_zstd(what, data, size, out, n);
    default: break;
    }
    if (size != n) {
        return manta_fail(MANTA_ECORRUPT, "%s: it has %zu bytes that are not packed, expected %zu", what,
                          size, n);
    }
    if (n) memcpy(out, data, n);
    return MANTA_OK;
}
