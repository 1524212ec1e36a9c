/* frame.h - the one size that all images of a source have. */
#ifndef FORMAT_IMAGE_FRAME_H
#define FORMAT_IMAGE_FRAME_H

#include <manta/data_file.h>

#include "format/image/picture.h"

typedef struct frame {
    int height, width, channels;
    bool resize; /* images of other sizes are made to fit; else they are refused */
} frame;

/* Whether the bytes begin as a PNG or a JPEG does. */
bool frame_is_picture(const uint8_t *data, size_t size);

/* Decides it from the options and, where they leave it open, the first image. */
manta_status frame_decide(const manta_open_options *o, const char *name, const uint8_t *data, size_t size,
                          frame *out);

/* Decodes an image into height x width x channels bytes. */
manta_status frame_decode(const frame *f, const char *name, const uint8_t *data, size_t size, uint8_t *out);

/* Column `name` of such images, u8. */
manta_column_spec frame_column(const frame *f, const char *name);

#endif
