/* gzip.h - decompression: the first bytes through zlib, the whole through
 * libdeflate, which is nearly twice as fast. */
#ifndef FORMAT_CODEC_GZIP_H
#define FORMAT_CODEC_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* No deflate stream grows by more than this; a claim beyond it is a lie. */
#define GZIP_MAX_RATIO 1032

bool gzip_is(const uint8_t *data, size_t size);

/* The first bytes of what `data` holds, up to *n; *n is set to how many there
 * are. MANTA_ECORRUPT with `name` and the offset. */
manta_status gzip_head(const char *name, const uint8_t *data, size_t size, uint8_t *out, size_t *n);

/* All of it, which must be exactly n bytes; members may follow one another.
 * MANTA_ECORRUPT truncated, damaged, or another size. */
manta_status gzip_whole(const char *name, const uint8_t *data, size_t size, uint8_t *out, size_t n);

/* A bare deflate stream of exactly n bytes. `what` is for the sentence. */
manta_status gzip_deflated(const char *what, const uint8_t *data, size_t size, uint8_t *out, size_t n);

#endif
