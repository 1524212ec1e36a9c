/* webdataset_test.c - tar archives of samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/data_file.h>
#include <png.h>

#include "base/mem.h"
#include "format/webdataset/webdataset.h"
#include "ok.h"
#include "recorded.h"
#include "scratch.h"
#include "tar_maker.h"

static tar_maker m;

static manta_status open_made(const char *x, const char *y, const manta_open_options *o, manta_dataset **out)
{
    static const manta_open_options none;

    return webdataset_open_file(seek_over("f.tar", m.bytes, m.n), x, y, o ? o : &none, out);
}

/* What reading fails with, once opening has gone well. */
static void refuse_reading(const char *x, const char *y, manta_status code, const char *word)
{
    int64_t live = mem_live();
    manta_dataset *d = NULL;
    manta_loader *l = NULL;
    manta_batch b;

    assert_ok(open_made(x, y, NULL, &d));
    manta_loader_options o = {.batch_size = manta_dataset_count(d), .readers = -1};
    assert_int_equal(manta_loader_open(d, &o, &l), MANTA_OK);
    assert_false(manta_loader_next(l, &b));
    manta_status st = manta_loader_status(l);
    assert_fails_with(st, code, word);
    manta_loader_close(l);
    manta_dataset_unref(d);
    assert_int_equal(mem_live(), live);
}

static void refuse(const char *x, const char *y, manta_status code, const char *word)
{
    manta_dataset *d = NULL;
    int64_t live = mem_live();
    manta_status st = open_made(x, y, NULL, &d);

    assert_fails_with(st, code, word);
    assert_int_equal(mem_live(), live);
}

/* ---- members ---- */

static void add_npy(const char *name, const char *descr, const char *shape, const void *data, size_t n)
{
    char bytes[512] = "\x93NUMPY\1\0\x76\0";
    int k = snprintf(bytes + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);

    memset(bytes + 10 + k, ' ', (size_t)(117 - k));
    bytes[127] = '\n';
    memcpy(bytes + 128, data, n);
    tar_maker_add(&m, '0', name, bytes, 128 + n);
}

static void add_png(const char *name, int width, int height, const uint8_t *pixels)
{
    uint8_t bytes[2048];
    png_alloc_size_t n = sizeof bytes;
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_GRAY};

    if (!png_image_write_to_memory(&image, bytes, &n, 0, pixels, 0, NULL)) abort();
    tar_maker_add(&m, '0', name, bytes, n);
}

/* ---- the real thing ---- */

static void a_recorded_shard_is_read(void **state)
{
    (void)state;
    manta_dataset *d = NULL;
    const manta_column_spec *c;
    manta_batch b;

    /* its x.bin hold two floats each: i and i + 0.5 */
    assert_ok(
        manta_dataset_open(GOLDEN "shard-000000.tar:x.bin,cls", &(manta_open_options){.raw = true}, &d));
    assert_int_equal(manta_dataset_count(d), 5);
    assert_int_equal(manta_dataset_columns(d, &c), 2);
    assert_int_equal(c[0].dtype, MANTA_DTYPE_U8);
    assert_int_equal(c[0].shape[0], 8);
    assert_int_equal(c[1].dtype, MANTA_DTYPE_I64);
    manta_loader *l = whole_batch(d, &b);
    for (int i = 0; i < 5; i++) {
        float pair[2];
        memcpy(pair, (uint8_t *)manta_batch_find(&b, "x")->data + 8 * i, 8);
        assert_true(pair[0] == (float)i && pair[1] == (float)i + 0.5f);
        assert_int_equal(((int64_t *)manta_batch_find(&b, "y")->data)[i], i);
    }
    manta_loader_close(l);
    manta_dataset_unref(d);
    assert_int_equal(manta_dataset_open(GOLDEN "shard-000000.tar:x.bin,json.a", NULL, &d), MANTA_OK);
    l = whole_batch(d, &b);
    assert_int_equal(((int64_t *)manta_batch_find(&b, "y")->data)[4], 4);
    assert_true(((float *)manta_batch_find(&b, "x")->data)[7] == 63.0f / 255);
    manta_loader_close(l);
    manta_dataset_unref(d);
    assert_int_equal(manta_dataset_open(GOLDEN "shard-000000.tar", NULL, &d), MANTA_ENOENT);
    assert_error_says("sample '000000' has no member png, jpg, jpeg or npy");
    assert_error_says("it has: json, cls, x.bin");
}

static void images_are_columns(void **state)
{
    (void)state;
    static const uint8_t black[6] = {0}, white[6] = {255, 255, 255, 255, 255, 255};
    manta_dataset *d = NULL;
    const manta_column_spec *c;
    manta_batch b;

    m.n = 0;
    tar_maker_text(&m, "__info__", "not a sample");
    tar_maker_text(&m, "README", "nor this");
    tar_maker_text(&m, "d.1/.hidden", "nor this");
    add_png("d.1/a.PNG", 3, 2, black);
    tar_maker_text(&m, "d.1/a.cls", "7\n");
    add_png("d.1/b.png", 3, 2, white);
    tar_maker_text(&m, "d.1/b.cls", " -3");
    tar_maker_text(&m, "d.1/b.other.txt", "ignored");
    tar_maker_end(&m);
    assert_ok(open_made(NULL, NULL, NULL, &d));
    assert_int_equal(manta_dataset_count(d), 2);
    assert_int_equal(manta_dataset_columns(d, &c), 2);
    assert_int_equal(c[0].dtype, MANTA_DTYPE_F32);
    assert_int_equal(c[0].ndim, 3);
    assert_int_equal(c[0].shape[0], 2);
    assert_int_equal(c[0].shape[1], 3);
    assert_int_equal(c[0].shape[2], 1);
    manta_loader *l = whole_batch(d, &b);
    assert_true(((float *)manta_batch_find(&b, "x")->data)[5] == 0);
    assert_true(((float *)manta_batch_find(&b, "x")->data)[6] == 1);
    assert_int_equal(((int64_t *)manta_batch_find(&b, "y")->data)[0], 7);
    assert_int_equal(((int64_t *)manta_batch_find(&b, "y")->data)[1], -3);
    manta_loader_close(l);
    manta_dataset_unref(d);

    const manta_open_options raw = {.raw = true, .image_height = 1, .image_width = 1, .image_channels = 3};
    assert_int_equal(open_made("jpg;png", NULL, &raw, &d), MANTA_OK);
    assert_int_equal(manta_dataset_columns(d, &c), 1);
    assert_int_equal(c[0].dtype, MANTA_DTYPE_U8);
    assert_int_equal(c[0].shape[2], 3);
    l = whole_batch(d, &b);
    assert_memory_equal(manta_batch_find(&b, "x")->data, "\0\0\0\xff\xff\xff", 6);
    manta_loader_close(l);
    manta_dataset_unref(d);

    add_png("c.png", 2, 3, white);
    m.n = 0;
    add_png("a.png", 3, 2, black);
    add_png("b.png", 2, 3, black);
    refuse_reading("png", NULL, MANTA_EINVAL,
                   "f.tar: sample 'b', png: the image has 3 x 2 points, expected 2 x 3");
    m.n = 0;
    add_png("a.png", 3, 2, black);
    tar_maker_text(&m, "b.png", "\x89PNG\r\n\x1a\n");
    refuse_reading(NULL, NULL, MANTA_ECORRUPT, "f.tar: sample 'b'");
    m.n = 0;
    tar_maker_text(&m, "a.png", "GIF89a");
    refuse(NULL, NULL, MANTA_EUNSUPPORTED, "f.tar: sample 'a'");
}

static void arrays_and_numbers_are_columns(void **state)
{
    (void)state;
    static const float two[] = {1.5f, -2, 3, 4};
    manta_dataset *d = NULL;
    const manta_column_spec *c;
    manta_batch b;

    m.n = 0;
    add_npy("a.x.npy", "<f4", "(2,)", two, 8);
    tar_maker_text(&m, "a.txt", "0.5");
    tar_maker_text(&m, "a.json", "{\"label\": 3, \"score\": 1.5, \"ok\": true}");
    add_npy("b.x.npy", "<f4", "(2,)", two + 2, 8);
    tar_maker_text(&m, "b.txt", "2");
    tar_maker_text(&m, "b.json", "{\"label\": 4, \"score\": 2, \"ok\": false}");
    tar_maker_end(&m);
    static const struct {
        const char *y;
        manta_dtype dtype;
        double first, second;
    } cases[] = {{"txt", MANTA_DTYPE_F32, 0.5, 2},
                 {"json.label", MANTA_DTYPE_I64, 3, 4},
                 {"json.score", MANTA_DTYPE_F32, 1.5, 2},
                 {"json.ok", MANTA_DTYPE_I64, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ok(open_made("x.npy", cases[i].y, NULL, &d));
        manta_dataset_columns(d, &c);
        assert_int_equal(c[0].dtype, MANTA_DTYPE_F32);
        assert_int_equal(c[1].dtype, cases[i].dtype);
        manta_loader *l = whole_batch(d, &b);
        assert_memory_equal(manta_batch_find(&b, "x")->data, two, sizeof two);
        const void *y = manta_batch_find(&b, "y")->data;
        bool whole = cases[i].dtype == MANTA_DTYPE_I64;
        assert_true((whole ? (double)((const int64_t *)y)[0] : (double)((const float *)y)[0]) ==
                    cases[i].first);
        assert_true((whole ? (double)((const int64_t *)y)[1] : (double)((const float *)y)[1]) ==
                    cases[i].second);
        manta_loader_close(l);
        manta_dataset_unref(d);
    }
    refuse("x.npy", "cls", MANTA_ENOENT, "sample 'a' has no member cls; it has: x.npy, txt, json");
    refuse("x.npy", "json.none", MANTA_ECORRUPT, "no number under 'none'");
    refuse("mp4", NULL, MANTA_EINVAL, "members 'mp4' cannot be x");
    refuse("npy;png", NULL, MANTA_EINVAL, "cannot be x");
    refuse("x.npy", "json.", MANTA_EINVAL, "cannot be y");

    m.n = 0;
    add_npy("a.npy", "<f4", "(2,)", two, 8);
    add_npy("b.npy", "<f4", "(1,)", two, 4);
    refuse_reading(NULL, NULL, MANTA_EINVAL,
                   "sample 'b', npy: it holds an array of float32 (1,), expected float32 (2,)");
    m.n = 0;
    add_npy("a.npy", "<f4", "(2,)", two, 8);
    tar_maker_text(&m, "a.cls", "1");
    add_npy("b.npy", "<f4", "(2,)", two, 8);
    tar_maker_text(&m, "b.cls", "dog\n");
    refuse_reading(NULL, NULL, MANTA_ECORRUPT, "sample 'b', cls holds 'dog?', expected a whole number");
    m.n = 0;
    tar_maker_text(&m, "a.txt", "1");
    tar_maker_text(&m, "b.txt", "1.5");
    refuse_reading("txt", NULL, MANTA_ECORRUPT, "expected a whole number as in the first sample");
    m.n = 0;
    tar_maker_text(&m, "a.bin", "12");
    tar_maker_text(&m, "b.bin", "1");
    refuse_reading("bin", NULL, MANTA_EINVAL, "sample 'b', bin: it has 1 bytes, expected 2");
    m.n = 0;
    tar_maker_text(&m, "a.json", "{\"label\": }");
    refuse("json.label", NULL, MANTA_ECORRUPT, "no JSON");
}

static void members_are_grouped_by_key(void **state)
{
    (void)state;
    m.n = 0;
    tar_maker_text(&m, "a.txt", "1");
    tar_maker_text(&m, "a.txt", "2");
    refuse("txt", NULL, MANTA_ECORRUPT, "a second member 'a.txt'");
    m.n = 0; /* members of a sample must be neighbours */
    tar_maker_text(&m, "a.txt", "1");
    tar_maker_text(&m, "b.txt", "1");
    tar_maker_text(&m, "a.cls", "1");
    refuse("txt", "cls", MANTA_ENOENT, "sample 'a' has no member cls; it has: txt");
    m.n = 0;
    tar_maker_text(&m, "README", "1");
    tar_maker_end(&m);
    refuse("txt", NULL, MANTA_ENOENT, "no samples in it");
    m.n = 0;
    tar_maker_text(&m, "../../etc/passwd.txt", "5"); /* only text to us */
    tar_maker_end(&m);
    manta_dataset *d = NULL;
    manta_batch b;
    assert_int_equal(open_made("txt", NULL, NULL, &d), MANTA_OK);
    manta_loader *l = whole_batch(d, &b);
    assert_int_equal(((int64_t *)manta_batch_find(&b, "x")->data)[0], 5);
    manta_loader_close(l);
    manta_dataset_unref(d);
}

/* One of `shards` parts of the samples, all when there are none. */
static void expect_part(const char *spec, manta_shard_policy policy, int shards, int shard, int n,
                        const int64_t *want)
{
    char full[600];
    manta_open_options o = {.shards = shards, .shard = shard, .shard_policy = policy};
    manta_dataset *d = NULL;
    manta_batch b;

    snprintf(full, sizeof full, "%s/%s", scratch_dir, spec);
    assert_ok(manta_dataset_open(full, &o, &d));
    assert_int_equal(manta_dataset_count(d), n);
    manta_loader *l = whole_batch(d, &b);
    assert_memory_equal(manta_batch_find(&b, "x")->data, want, (size_t)n * sizeof *want);
    manta_loader_close(l);
    manta_dataset_unref(d);
}

static void expect_labels(const char *spec, int n, const int64_t *want)
{
    expect_part(spec, 0, 0, 0, n, want);
}

static void refuse_opening(const char *spec, const manta_open_options *o, manta_status code, const char *word)
{
    char full[600];
    manta_dataset *d = NULL;
    int64_t live = mem_live();

    snprintf(full, sizeof full, "%s/%s", scratch_dir, spec);
    manta_status st = manta_dataset_open(full, o, &d);
    assert_fails_with(st, code, word);
    assert_int_equal(mem_live(), live);
}

static void refuse_path(const char *spec, manta_status code, const char *word)
{
    refuse_opening(spec, NULL, code, word);
}

static void refuse_part(const char *spec, manta_open_options o, const char *word)
{
    refuse_opening(spec, &o, MANTA_EINVAL, word);
}

static void shards_are_one_dataset(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        char name[40], text[8];
        m.n = 0;
        snprintf(text, sizeof text, "%d", i);
        tar_maker_text(&m, "k.cls", text); /* the same key in each is another sample */
        tar_maker_end(&m);
        snprintf(name, sizeof name, "s-%d-%02d.tar", i / 6, i % 6);
        scratch_file(name, m.bytes, m.n);
    }
    expect_labels("s-0-{02..04}.tar:cls", 3, (int64_t[]){2, 3, 4});
    expect_labels("s-{0..1}-{00..02}.tar:cls", 6, (int64_t[]){0, 1, 2, 6, 7, 8});
    expect_labels("s-1-0?.tar:cls", 6, (int64_t[]){6, 7, 8, 9, 10, 11});
    expect_labels("s-{0..1}-0[34].tar:cls", 4, (int64_t[]){3, 4, 9, 10});
    scratch_file("odd-{1..2}*.tar", m.bytes, m.n); /* a file that is there is meant by its name */
    expect_labels("odd-{1..2}*.tar:cls", 1, (int64_t[]){11});
    refuse_path("s-0-{04..07}.tar:cls", MANTA_ENOENT, "s-0-06.tar");
    refuse_path("t-*.tar:cls", MANTA_ENOENT, "t-*.tar: no file is called so");
    refuse_path("s-{4..2}.tar", MANTA_EINVAL, "ends before it begins");
    refuse_path("s-{a..b}.tar", MANTA_EINVAL, "expected a range of numbers");
    refuse_path("s-{0..999999999}.tar", MANTA_EINVAL, "more than 100000 files");
    refuse_path("s-0-00.tar:", MANTA_EINVAL, "as in f.tar:jpg,cls");
    refuse_path("s-0-00.tar:a,b,c", MANTA_EINVAL, "as in f.tar:jpg,cls");
}

/* ---- divided among workers ---- */

/* Three files of two samples: 0 and 10, 1 and 11, 2 and 12. By file, by sample,
 * and what AUTO makes of more workers than files. */
static void workers_get_parts_by_file_or_sample(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[40], text[8];
        m.n = 0;
        snprintf(text, sizeof text, "%d", i);
        tar_maker_text(&m, "a.cls", text);
        snprintf(text, sizeof text, "%d", 10 + i);
        tar_maker_text(&m, "b.cls", text);
        tar_maker_end(&m);
        snprintf(name, sizeof name, "p-%d.tar", i);
        scratch_file(name, m.bytes, m.n);
    }
    expect_part("p-*.tar:cls", MANTA_SHARD_POLICY_AUTO, 2, 0, 4, (int64_t[]){0, 10, 2, 12});
    expect_part("p-*.tar:cls", MANTA_SHARD_POLICY_AUTO, 2, 1, 2, (int64_t[]){1, 11});
    expect_part("p-*.tar:cls", MANTA_SHARD_POLICY_FILE, 3, 2, 2, (int64_t[]){2, 12});
    expect_part("p-*.tar:cls", MANTA_SHARD_POLICY_DATA, 2, 1, 3, (int64_t[]){10, 11, 12});
    expect_part("p-*.tar:cls", MANTA_SHARD_POLICY_AUTO, 4, 1, 2, (int64_t[]){10, 12});
    expect_part("p-*.tar:cls", MANTA_SHARD_POLICY_OFF, 2, 1, 6, (int64_t[]){0, 10, 1, 11, 2, 12});
    expect_part("p-*.tar:cls", MANTA_SHARD_POLICY_AUTO, 1, 0, 6, (int64_t[]){0, 10, 1, 11, 2, 12});
    refuse_part("p-*.tar:cls", (manta_open_options){.shards = 4, .shard_policy = MANTA_SHARD_POLICY_FILE},
                "3 files for 4 workers");
    refuse_part("p-*.tar:cls", (manta_open_options){.shards = 2, .shard = 2}, "there is no part 2 of 2");
    scratch_file("n.csv", "a,b\n1,2\n3,4\n", 12);
    refuse_part("n.csv:label=b", (manta_open_options){.shards = 2, .shard_policy = MANTA_SHARD_POLICY_FILE},
                "has no files to divide");
}

/* More shards than are kept open. */
static void more_shards_than_are_kept_open_are_read(void **state)
{
    (void)state;
    int64_t want[300];
    for (int i = 0; i < 300; i++) {
        char name[40], text[8];
        m.n = 0;
        snprintf(text, sizeof text, "%d", i);
        tar_maker_text(&m, "k.cls", text);
        snprintf(name, sizeof name, "m-%03d.tar", i);
        scratch_file(name, m.bytes, m.n);
        want[i] = i;
    }
    expect_labels("m-*.tar:cls", 300, want);
}

/* A shard that is cut after it was indexed is told of, not a crash. */
static void a_shard_cut_after_indexing_is_reported(void **state)
{
    (void)state;
    manta_dataset *d = NULL;
    manta_loader *l = NULL;
    manta_batch b;
    char spec[600];

    m.n = 0;
    tar_maker_text(&m, "a.cls", "1");
    tar_maker_text(&m, "b.cls", "2");
    const char *path = scratch_file("later.tar", m.bytes, m.n);
    snprintf(spec, sizeof spec, "%s:cls", path);
    assert_int_equal(manta_dataset_open(spec, NULL, &d), MANTA_OK);
    assert_int_equal(truncate(path, 1024), 0);
    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 2, .readers = -1}, &l),
                     MANTA_OK);
    assert_false(manta_loader_next(l, &b));
    assert_int_equal(manta_loader_status(l), MANTA_ECORRUPT);
    assert_error_says("later.tar: the file ends at offset");
    manta_loader_close(l);
    manta_dataset_unref(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_shard_is_read),
        cmocka_unit_test(images_are_columns),
        cmocka_unit_test(arrays_and_numbers_are_columns),
        cmocka_unit_test(members_are_grouped_by_key),
        cmocka_unit_test(shards_are_one_dataset),
        cmocka_unit_test(workers_get_parts_by_file_or_sample),
        cmocka_unit_test(more_shards_than_are_kept_open_are_read),
        cmocka_unit_test(a_shard_cut_after_indexing_is_reported),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
