/* picture.h - PNG and JPEG to rows of bytes, through libpng and libjpeg. */
#ifndef FORMAT_IMAGE_PICTURE_H
#define FORMAT_IMAGE_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* No side of an image may be longer; a file that claims more is not believed. */
#define PICTURE_MAX_SIDE   32768
#define PICTURE_MAX_PIXELS (64 << 20)

typedef struct picture {
    int height, width;
    int channels; /* 1 or 3 */
    uint8_t *data; /* rows of pixels; owned, mem_try_free() */
} picture;

/* What the file says of itself, without decoding it. */
manta_status picture_size(const char *name, const uint8_t *data, size_t size, picture *out);

/* Decodes to `channels` per pixel (1 grey, 3 colour; 0: as the file has it, with
 * palettes and colour as 3, transparency over black). MANTA_ECORRUPT what the
 * library says is wrong; MANTA_EUNSUPPORTED neither PNG nor JPEG. */
manta_status picture_decode(const char *name, const uint8_t *data, size_t size, int channels, picture *out);

/* Resamples to height x width (bilinear, pixel centres aligned as OpenCV's and
 * PyTorch's; areas are not averaged when shrinking). */
void picture_resize(const picture *from, int height, int width, uint8_t *to);

void picture_release(picture *p); /* accepts zeroed memory */

#endif
