/* Pictures that we write, as libpng reads them; and disks that do not want them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <manta/tool_png.h>

#include "base/mem.h"
#include "format/image/picture.h"
#include "os/file.h"
#include "scratch.h"

static void read_back(const char *path, int width, int height, const uint8_t *points)
{
    picture p = {0};
    void *data;
    size_t n;

    assert_int_equal(file_read(path, 1 << 24, &data, &n), MANTA_OK);
    assert_int_equal(picture_decode(path, data, n, 3, &p), MANTA_OK);
    assert_int_equal(p.width, width);
    assert_int_equal(p.height, height);
    assert_memory_equal(p.data, points, 3 * (size_t)width * (size_t)height);
    picture_release(&p);
    mem_try_free(data);
}

static void libpng_reads_what_was_written(void **state)
{
    static const int sides[][2] = {{1, 1}, {3, 2}, {1, 500}, {640, 1}, {257, 129}};
    uint8_t *points = malloc(3 * 640 * 500);

    (void)state;
    for (size_t k = 0; k < sizeof sides / sizeof *sides; k++) {
        const char *path = scratch_path("picture.png");
        for (int i = 0; i < 3 * sides[k][0] * sides[k][1]; i++) points[i] = (uint8_t)(i * 7 + i / 5);
        assert_int_equal(manta_png_write(path, sides[k][0], sides[k][1], points), MANTA_OK);
        read_back(path, sides[k][0], sides[k][1], points);
    }
    free(points);
}

static void wrong_sizes_are_refused(void **state)
{
    const char *path = scratch_path("none.png");
    uint8_t point[3] = {0};

    (void)state;
    assert_int_equal(manta_png_write(path, 0, 1, point), MANTA_EINVAL);
    assert_int_equal(manta_png_write(path, 1, -1, point), MANTA_EINVAL);
    assert_int_equal(manta_png_write(path, 1 << 20, 1, point), MANTA_EINVAL);
    assert_int_equal(manta_png_write(path, 1, 16385, point), MANTA_EINVAL);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(manta_png_write("/nowhere/at/all.png", 1, 1, point), MANTA_ENOENT);
    assert_int_equal(manta_picture_write("/nowhere/at/all.pdf", point, 3), MANTA_ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libpng_reads_what_was_written),
        cmocka_unit_test(wrong_sizes_are_refused),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
