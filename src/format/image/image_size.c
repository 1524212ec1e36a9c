/* image_size.c - the one size that all images of a source have. */
#include <string.h>

#include "format/image/image_size.h"

bool image_is_png_or_jpeg(const uint8_t *data, size_t size)
{
    return size >= 4 && (memcmp(data, "\x89PNG", 4) == 0 || memcmp(data, "\xff\xd8\xff", 3) == 0);
}

manta_status image_size_decide(const manta_open_options *o, const char *name, const uint8_t *data,
                               size_t size, image_size *out)
{
    picture p = {0};

    if (o->image_height < 0 || o->image_width < 0 || (o->image_height > 0) != (o->image_width > 0) ||
        o->image_height > PICTURE_MAX_SIDE || o->image_width > PICTURE_MAX_SIDE) {
        return manta_fail(MANTA_EINVAL,
                          "images: a size of %d x %d, expected both sides or neither, at most %d",
                          o->image_height, o->image_width, PICTURE_MAX_SIDE);
    }
    if (o->image_channels != 0 && o->image_channels != 1 && o->image_channels != 3) {
        return manta_fail(MANTA_EINVAL, "images: %d channels, expected 1 or 3", o->image_channels);
    }
    TRY(picture_size(name, data, size, &p));
    bool resize = o->image_height > 0;
    *out = (image_size){.height = resize ? o->image_height : p.height,
                        .width = resize ? o->image_width : p.width,
                        .channels = o->image_channels ? o->image_channels : p.channels,
                        .resize = resize};
    return MANTA_OK;
}

manta_status image_size_decode(const image_size *f, const char *name, const uint8_t *data, size_t size,
                               uint8_t *out)
{
    picture p = {0};
    manta_status st = MANTA_OK;

    TRY(picture_decode(name, data, size, f->channels, &p));
    if (!f->resize && (p.height != f->height || p.width != f->width)) {
        st = manta_fail(
            MANTA_EINVAL,
            "%s: the image has %d x %d points, expected %d x %d as the first; give a size to resize to", name,
            p.height, p.width, f->height, f->width);
    } else {
        picture_resize(&p, f->height, f->width, out);
    }
    picture_release(&p);
    return st;
}

manta_column_spec image_size_column(const image_size *f, const char *name)
{
    manta_column_spec c = {.dtype = MANTA_DTYPE_U8, .ndim = 3, .shape = {f->height, f->width, f->channels}};

    strncpy(c.name, name, sizeof c.name - 1);
    return c;
}
