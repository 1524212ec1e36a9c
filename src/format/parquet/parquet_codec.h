/* parquet_codec.h - how the pages of a Parquet file are packed. */
#ifndef FORMAT_PARQUET_PARQUET_CODEC_H
#define FORMAT_PARQUET_PARQUET_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* "SNAPPY", ...; "?" for a number that is none. */
const char *parquet_codec_name(int codec);

/* Whether we can unpack it: uncompressed, SNAPPY, GZIP or ZSTD. */
int parquet_codec_known(int codec);

/* The most bytes that `size` packed ones can become, so that nothing is
 * allocated on a page's word alone. */
size_t parquet_codec_most(int codec, size_t size);

/* Unpacks to exactly n bytes. `what` is for the sentence. MANTA_ECORRUPT. */
manta_status parquet_codec_unpack(int codec, const char *what, const uint8_t *data, size_t size, uint8_t *out,
                                  size_t n);

#endif
