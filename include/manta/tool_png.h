/* manta/tool_png.h - the pictures that `manta runs plot` draws, as files.
 *
 * For the program `manta` alone: no part of the stable interface (docs/abi.md),
 * not in manta.h, and it may change or go in any version. */
#ifndef MANTA_TOOL_PNG_H
#define MANTA_TOOL_PNG_H

#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a picture as a PNG file, which appears whole or not at all: width x
 * height points of red, green and blue, row by row from the upper left.
 * MANTA_EINVAL. */
MANTA_API manta_status manta_png_write(const char *path, int width, int height,
                                       const uint8_t *points) MANTA_MUST_USE;

/* Writes the n bytes of a picture in another format, whole or not at all. */
MANTA_API manta_status manta_picture_write(const char *path, const void *data, size_t n) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
