/* manta/tool_png.h - the pictures that `manta runs plot` draws, as files.
 *
 * For the program `manta` alone: no part of the stable interface (docs/abi.md),
 * not in manta.h, and it may change or go in any version. */
#ifndef MANTA_TOOL_PNG_H
#define MANTA_TOOL_PNG_H

#include <stdint.h>

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a picture as a PNG file, which appears whole or not at all: width x
 * height points, row by row from the upper left, each an index into the palette
 * of n_colours (1 to 256) colours 0xRRGGBB. MANTA_EINVAL. */
MANTA_API manta_status manta_png_write(const char *path, int width, int height, const uint8_t *points,
                                       int n_colours, const uint32_t *palette) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
