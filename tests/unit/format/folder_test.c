/* folder_test.c - PNG and JPEG images, and folders of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <manta/data_file.h>

#include "base/mem.h"
#include "format/image/picture.h"
#include "ok.h"
#include "picture_maker.h"
#include "scratch.h"

static void png_images_are_decoded(void **state)
{
    (void)state;
    uint8_t rgb[2 * 3 * 3], file[4096];
    picture p = {0};

    for (int i = 0; i < 18; i++) rgb[i] = (uint8_t)(i * 13);
    size_t n = make_png(3, 2, 3, rgb, file, sizeof file);
    assert_ok(picture_decode("f.png", file, n, 0, &p));
    assert_int_equal(p.width, 3);
    assert_int_equal(p.height, 2);
    assert_int_equal(p.channels, 3);
    assert_memory_equal(p.data, rgb, sizeof rgb);
    picture_release(&p);
    assert_int_equal(picture_decode("f.png", file, n, 1, &p), MANTA_OK);
    assert_int_equal(p.channels, 1);
    picture_release(&p);
    for (size_t k = 0; k < n; k++) {
        manta_status st = picture_decode("f.png", file, k, 0, &p);
        /* without its empty last chunk an image may still be whole */
        if (!st) assert_memory_equal(p.data, rgb, sizeof rgb);
        if (st) assert_error_says("f.png");
        if (k < n - 12) assert_int_not_equal(st, MANTA_OK);
        picture_release(&p);
    }
}

static void jpeg_images_are_decoded(void **state)
{
    (void)state;
    static uint8_t grey[32 * 16], file[1 << 14];
    picture p = {0};

    for (int i = 0; i < 32 * 16; i++) grey[i] = (uint8_t)(i % 32 * 8);
    size_t n = make_jpeg(32, 16, 1, grey, file, sizeof file);
    assert_ok(picture_decode("f.jpg", file, n, 0, &p));
    assert_int_equal(p.width, 32);
    assert_int_equal(p.height, 16);
    assert_int_equal(p.channels, 1);
    for (int i = 0; i < 32 * 16; i++) assert_in_range(p.data[i], grey[i] < 3 ? 0 : grey[i] - 3, grey[i] + 3);
    picture_release(&p);
    assert_int_equal(picture_decode("f.jpg", file, n, 3, &p), MANTA_OK);
    assert_int_equal(p.channels, 3);
    assert_int_equal(p.data[3 * 20], p.data[3 * 20 + 2]);
    picture_release(&p);
    for (size_t k = 0; k + 2 < n; k += 7) { /* a cut image is refused, not painted grey */
        assert_int_not_equal(picture_decode("f.jpg", file, k, 0, &p), MANTA_OK);
        assert_error_says("f.jpg");
    }
    file[0x60] ^= 0xff;
    (void)!picture_decode("f.jpg", file, n, 0, &p);
    picture_release(&p);
    assert_int_equal(picture_decode("f.gif", (const uint8_t *)"GIF89a...", 9, 0, &p), MANTA_EUNSUPPORTED);
}

static void images_are_resized(void **state)
{
    (void)state;
    uint8_t two[] = {0, 100, 200, 40}, out[16], same[4];
    picture p = {.height = 2, .width = 2, .channels = 1, .data = two};

    picture_resize(&p, 2, 2, same);
    assert_memory_equal(same, two, 4);
    picture_resize(&p, 1, 1, out);
    assert_int_equal(out[0], 85); /* the mean of all four */
    picture_resize(&p, 4, 4, out);
    assert_int_equal(out[0], 0); /* corners stay */
    assert_int_equal(out[3], 100);
    assert_int_equal(out[12], 200);
    assert_int_equal(out[15], 40);
    assert_int_equal(out[1], 25); /* a quarter of the way from 0 to 100 */
    assert_int_equal(out[4], 50); /* and down to 200 */
}

static void put(const char *name, int w, int h, int value)
{
    uint8_t pixels[64], file[4096];

    memset(pixels, value, sizeof pixels);
    size_t n = strstr(name, ".png") ? make_png(w, h, 1, pixels, file, sizeof file)
                                    : make_jpeg(w, h, 1, pixels, file, sizeof file);
    scratch_file(name, file, n);
}

static void a_folder_of_images_is_a_dataset(void **state)
{
    (void)state;
    manta_dataset *d = NULL;
    manta_loader *l = NULL;
    manta_batch b;
    const manta_column_spec *c;

    mkdir(scratch_path("set,1"), 0755);
    assert_int_equal(manta_dataset_open(scratch_path("set,1"), NULL, &d), MANTA_ENOENT);
    assert_error_says("sub-folders");
    mkdir(scratch_path("set,1/cat"), 0755);
    mkdir(scratch_path("set,1/dog"), 0755);
    assert_int_equal(manta_dataset_open(scratch_path("set,1"), NULL, &d), MANTA_ENOENT);
    put("set,1/cat/a.png", 4, 4, 10);
    put("set,1/cat/b.JPG", 4, 4, 20);
    put("set,1/dog/c.jpeg", 4, 4, 30);
    scratch_file("set,1/dog/notes.txt", "x", 1);
    assert_ok(manta_dataset_open(scratch_path("set,1"), &(manta_open_options){.raw = true}, &d));
    assert_int_equal(manta_dataset_count(d), 3);
    assert_int_equal(manta_dataset_columns(d, &c), 2);
    assert_int_equal(c[0].ndim, 3);
    assert_int_equal(c[0].shape[2], 1);
    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 3, .readers = 2}, &l),
                     MANTA_OK);
    assert_true(manta_loader_next(l, &b));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(((int64_t *)manta_batch_find(&b, "y")->data)[i], i == 2);
        assert_in_range(((uint8_t *)manta_batch_find(&b, "x")->data)[16 * i + 5], 10 * i + 9, 10 * i + 11);
    }
    manta_loader_close(l);
    manta_dataset_unref(d);

    put("set,1/dog/d.png", 5, 4, 40); /* another size: refused when it is met, unless resized */
    assert_int_equal(manta_dataset_open(scratch_path("set,1"), NULL, &d), MANTA_OK);
    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 4}, &l), MANTA_OK);
    assert_false(manta_loader_next(l, &b));
    assert_int_equal(manta_loader_status(l), MANTA_EINVAL);
    assert_error_says("d.png: the image has 4 x 5 points, expected 4 x 4");
    manta_loader_close(l);
    manta_dataset_unref(d);
    manta_open_options o = {.image_height = 2, .image_width = 3, .image_channels = 3};
    assert_int_equal(manta_dataset_open(scratch_path("set,1"), &o, &d), MANTA_OK);
    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 4}, &l), MANTA_OK);
    assert_true(manta_loader_next(l, &b));
    const manta_array *x = manta_batch_find(&b, "x");
    assert_int_equal(x->shape[1], 2);
    assert_int_equal(x->shape[2], 3);
    assert_int_equal(x->shape[3], 3);
    assert_true(((float *)x->data)[3 * 18 + 4] == 40.0f / 255.0f);
    manta_loader_close(l);
    manta_dataset_unref(d);
    o.image_channels = 2;
    assert_int_equal(manta_dataset_open(scratch_path("set,1"), &o, &d), MANTA_EINVAL);
    scratch_file("set,1/cat/a.png", "no image", 8);
    assert_int_equal(manta_dataset_open(scratch_path("set,1"), NULL, &d), MANTA_EUNSUPPORTED);
    assert_error_says("a.png");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png_images_are_decoded),
        cmocka_unit_test(jpeg_images_are_decoded),
        cmocka_unit_test(images_are_resized),
        cmocka_unit_test(a_folder_of_images_is_a_dataset),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
