/* image_size.h - the one size that all images of a source have. */
#ifndef FORMAT_IMAGE_IMAGE_SIZE_H
#define FORMAT_IMAGE_IMAGE_SIZE_H

#include <manta/data_file.h>

#include "format/image/picture.h"

typedef struct image_size {
    int height, width, channels;
    bool resize; /* images of other sizes are made to fit; else they are refused */
} image_size;

/* Whether the bytes begin as a PNG or a JPEG does. */
bool image_is_png_or_jpeg(const uint8_t *data, size_t size);

/* Decides the size from the options and, where they leave it open, from the first image,
 * data[0..size), which sentences call `name`. */
manta_status image_size_decide(const manta_open_options *o, const char *name, const uint8_t *data,
                               size_t size, image_size *out);

/* Decodes an image of PNG or JPEG into height x width x channels bytes at `out`.
 * MANTA_EINVAL for an image of another size where images are not resized. */
manta_status image_size_decode(const image_size *f, const char *name, const uint8_t *data, size_t size,
                               uint8_t *out);

/* Describes the column `name` that holds such images as bytes. */
manta_column_spec image_size_column(const image_size *f, const char *name);

#endif
