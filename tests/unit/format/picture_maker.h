/* picture_maker.h - PNG and JPEG files of rows of bytes, in memory. */
#ifndef TEST_PICTURE_MAKER_H
#define TEST_PICTURE_MAKER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>

static inline size_t make_png(int w, int h, int channels, const uint8_t *pixels, uint8_t *out, size_t cap)
{
    png_image image = {.version = PNG_IMAGE_VERSION, .width = (png_uint_32)w, .height = (png_uint_32)h};

    image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    assert_true(png_image_write_to_memory(&image, out, &cap, 0, pixels, 0, NULL));
    return cap;
}

static inline size_t make_jpeg(int w, int h, int channels, const uint8_t *pixels, uint8_t *out, size_t cap)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr err;
    unsigned char *mem = NULL;
    unsigned long n = 0;

    c.err = jpeg_std_error(&err);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &mem, &n);
    c.image_width = (JDIMENSION)w;
    c.image_height = (JDIMENSION)h;
    c.input_components = channels;
    c.in_color_space = channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 100, TRUE);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < h; y++) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + y * w * channels);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    assert_true(n <= cap);
    memcpy(out, mem, n);
    free(mem);
    return n;
}

#endif
