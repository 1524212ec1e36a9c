/* picture.c - PNG and JPEG to rows of bytes.
 *
 * libjpeg reports errors by a callback that must not return, so its part is
 * left by longjmp; everything that must survive it lies in the jpeg struct,
 * never in locals. libpng's simplified interface returns. */
#include <stdio.h> /* jpeglib.h needs FILE */
#include <jpeglib.h>
#include <png.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "format/image/picture.h"

static manta_status check_size(const char *name, uint64_t width, uint64_t height)
{
    if (width >= 1 && height >= 1 && width <= PICTURE_MAX_SIDE && height <= PICTURE_MAX_SIDE &&
        width * height <= PICTURE_MAX_PIXELS) {
        return MANTA_OK;
    }
    return manta_fail(MANTA_ECORRUPT,
                      "%s: the image has %llu x %llu points, expected sides of 1 to %d and at most %d pixels",
                      name, (unsigned long long)width, (unsigned long long)height, PICTURE_MAX_SIDE,
                      PICTURE_MAX_PIXELS);
}

static manta_status allocate_points(const char *name, picture *p)
{
    size_t bytes = (size_t)p->width * (size_t)p->height * (size_t)p->channels;

    p->data = mem_try(bytes); /* zeroed: a decoder may leave rows out */
    if (!p->data) return manta_fail(MANTA_ENOMEM, "%s: no memory for %zu bytes", name, bytes);
    return MANTA_OK;
}

/* ---- PNG ------------------------------------------------------------------------------ */

static manta_status png_fail(const char *name, const png_image *image)
{
    return manta_fail(MANTA_ECORRUPT, "%s: %s, expected a whole PNG image", name, image->message);
}

static manta_status decode_png(const char *name, const uint8_t *data, size_t size, int channels, bool pixels,
                               picture *p)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    png_color black = {0, 0, 0};
    manta_status st;

    if (!png_image_begin_read_from_memory(&image, data, size)) return png_fail(name, &image);
    p->width = (int)image.width;
    p->height = (int)image.height;
    p->channels = channels ? channels : image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
    if ((st = check_size(name, image.width, image.height)) || !pixels) goto out;
    image.format = p->channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    if ((st = allocate_points(name, p))) goto out;
    if (!png_image_finish_read(&image, &black, p->data, p->width * p->channels, NULL))
        st = png_fail(name, &image);
out:
    png_image_free(&image);
    return st;
}

/* ---- JPEG ----------------------------------------------------------------------------- */

typedef struct jpeg {
    struct jpeg_decompress_struct d; /* first: the callbacks get this */
    struct jpeg_error_mgr mgr;
    struct jpeg_progress_mgr watch;
    jmp_buf leave;
    const char *name;
    manta_status st;
    picture *p;
    bool pixels;
    int channels;
} jpeg;

static void jpeg_leave(j_common_ptr c)
{
    jpeg *j = (jpeg *)(void *)c;
    char text[JMSG_LENGTH_MAX];

    c->err->format_message(c, text);
    j->st = manta_fail(MANTA_ECORRUPT, "%s: %s, expected a whole JPEG image", j->name, text);
    longjmp(j->leave, 1);
}

/* Corrupt data that libjpeg would paint over in grey is an error here: an image
 * that is half missing must not be trained on. */
static void jpeg_message(j_common_ptr c, int level)
{
    if (level < 0) jpeg_leave(c);
}

/* A progressive file of a few kilobytes can ask for thousands of passes over a
 * large image; no honest one has more than a few dozen. */
static void jpeg_watch(j_common_ptr c)
{
    jpeg *j = (jpeg *)(void *)c;

    if (!c->is_decompressor || j->d.input_scan_number <= 500) return;
    j->st = manta_fail(MANTA_ECORRUPT, "%s: the JPEG image has more than 500 scans, expected fewer", j->name);
    longjmp(j->leave, 1);
}

static void jpeg_silence(j_common_ptr c)
{
    (void)c;
}

static manta_status run_jpeg(jpeg *j)
{
    struct jpeg_decompress_struct *d = &j->d;

    jpeg_read_header(d, TRUE);
    TRY(check_size(j->name, d->image_width, d->image_height));
    j->p->width = (int)d->image_width;
    j->p->height = (int)d->image_height;
    j->p->channels = j->channels ? j->channels : d->num_components == 1 ? 1 : 3;
    if (!j->pixels) return MANTA_OK;
    d->out_color_space = j->p->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    d->dct_method = JDCT_ISLOW; /* the same bits on every machine */
    jpeg_start_decompress(d);
    if (d->output_width != (JDIMENSION)j->p->width || d->output_components != j->p->channels) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: a JPEG image of this kind is not supported", j->name);
    }
    TRY(allocate_points(j->name, j->p));
    while (d->output_scanline < d->output_height) {
        JSAMPROW row = j->p->data + (size_t)d->output_scanline * (size_t)j->p->width * (size_t)j->p->channels;
        jpeg_read_scanlines(d, &row, 1);
    }
    jpeg_finish_decompress(d);
    return MANTA_OK;
}

static manta_status decode_jpeg(const char *name, const uint8_t *data, size_t size, int channels, bool pixels,
                                picture *p)
{
    jpeg *j = mem_new(sizeof *j);

    j->name = name;
    j->p = p;
    j->pixels = pixels;
    j->channels = channels;
    j->d.err = jpeg_std_error(&j->mgr);
    j->mgr.error_exit = jpeg_leave;
    j->mgr.emit_message = jpeg_message;
    j->mgr.output_message = jpeg_silence;
    if (setjmp(j->leave) == 0) {
        jpeg_create_decompress(&j->d);
        j->watch.progress_monitor = jpeg_watch;
        j->d.progress = &j->watch;
        jpeg_mem_src(&j->d, data, (unsigned long)size);
        j->st = run_jpeg(j);
    }
    manta_status st = j->st;
    jpeg_destroy_decompress(&j->d);
    mem_free(j);
    return st;
}

/* ---- either ---------------------------------------------------------------------------- */

static manta_status decode_points(const char *name, const uint8_t *data, size_t size, int channels,
                                  bool pixels, picture *out)
{
    picture p = {0};
    manta_status st;

    if (size >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0) {
        st = decode_png(name, data, size, channels, pixels, &p);
    } else if (size >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0) {
        st = decode_jpeg(name, data, size, channels, pixels, &p);
    } else {
        st =
            manta_fail(MANTA_EUNSUPPORTED, "%s: wrong magic at offset 0, expected a PNG or JPEG image", name);
    }
    if (st) {
        picture_release(&p);
        return st;
    }
    *out = p;
    return MANTA_OK;
}

manta_status picture_size(const char *name, const uint8_t *data, size_t size, picture *out)
{
    return decode_points(name, data, size, 0, false, out);
}

manta_status picture_decode(const char *name, const uint8_t *data, size_t size, int channels, picture *out)
{
    return decode_points(name, data, size, channels, true, out);
}

void picture_release(picture *p)
{
    mem_try_free(p->data);
    *p = (picture){0};
}

/* Where output pixel i falls in an input of n pixels, in 1/65536. */
static void sample_place(int i, int from, int to, int *at, int *next, int64_t *part)
{
    int64_t pos = ((2 * (int64_t)i + 1) * from * 65536 / to - 65536) / 2;

    if (pos < 0) pos = 0;
    *at = (int)(pos >> 16);
    *next = *at + 1 < from ? *at + 1 : *at;
    *part = pos & 65535;
}

void picture_resize(const picture *p, int height, int width, uint8_t *to)
{
    size_t c = (size_t)p->channels, row = (size_t)p->width * c;

    if (height == p->height && width == p->width) {
        memcpy(to, p->data, (size_t)height * row);
        return;
    }
    for (int y = 0; y < height; y++) {
        int y0, y1, x0, x1;
        int64_t fy, fx;
        sample_place(y, p->height, height, &y0, &y1, &fy);
        const uint8_t *a = p->data + (size_t)y0 * row, *b = p->data + (size_t)y1 * row;
        for (int x = 0; x < width; x++) {
            sample_place(x, p->width, width, &x0, &x1, &fx);
            for (size_t k = 0; k < c; k++) {
                size_t i0 = (size_t)x0 * c + k, i1 = (size_t)x1 * c + k;
                int64_t top = a[i0] * (65536 - fx) + a[i1] * fx, bottom = b[i0] * (65536 - fx) + b[i1] * fx;
                *to++ = (uint8_t)((top * (65536 - fy) + bottom * fy + (1LL << 31)) >> 32);
            }
        }
    }
}
