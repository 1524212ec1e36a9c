/* idx_test.c - IDX files, plain and gzip, builtin datasets, and what is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/data_file.h>
#include <sys/wait.h>
#include <zlib.h>

#include "base/mem.h"
#include "format/array/idx.h"
#include "ok.h"
#include "scratch.h"

/* Writes an IDX file of that type and shape; dims end with 0. */
static size_t make(uint8_t *to, int type, const uint32_t *dims, int ndim, const void *payload, size_t n)
{
    uint8_t *p = to;

    *p++ = 0;
    *p++ = 0;
    *p++ = (uint8_t)type;
    *p++ = (uint8_t)ndim;
    for (int i = 0; i < ndim; i++) {
        for (int k = 24; k >= 0; k -= 8) *p++ = (uint8_t)(dims[i] >> k);
    }
    if (n) memcpy(p, payload, n);
    return (size_t)(p - to) + n;
}

static size_t pack(const uint8_t *from, size_t n, uint8_t *to, size_t cap)
{
    z_stream z = {0};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)from;
    z.avail_in = (uInt)n;
    z.next_out = to;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t made = z.total_out;
    deflateEnd(&z);
    return made;
}

static manta_status parse(const uint8_t *data, size_t n, idx_file *f)
{
    input in = {.path = mem_strdup("f.idx"), .data = mem_try_raw(n ? n : 1), .size = n};

    if (n) memcpy(in.data, data, n);
    manta_status st = idx_begin(&in, f);
    return st ? st : idx_finish(f);
}

static void every_element_type_is_read(void **state)
{
    (void)state;
    static const struct {
        int type;
        size_t size;
        uint8_t bytes[16];
        manta_dtype dtype;
        double values[2];
    } cases[] = {
        {0x08, 2, {1, 255}, MANTA_DTYPE_U8, {1, 255}},
        {0x09, 2, {1, 0x80}, MANTA_DTYPE_I32, {1, -128}},
        {0x0b, 4, {0x12, 0x34, 0xff, 0xfe}, MANTA_DTYPE_I32, {0x1234, -2}},
        {0x0c, 8, {0, 1, 0, 0, 0xff, 0xff, 0xff, 0xfd}, MANTA_DTYPE_I32, {65536, -3}},
        {0x0d, 8, {0x3f, 0xc0, 0, 0, 0xc0, 0, 0, 0}, MANTA_DTYPE_F32, {1.5, -2}},
        {0x0e, 16, {0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0xc0}, MANTA_DTYPE_F64, {1.5, -2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t file[64], packed[256];
        size_t n = make(file, cases[i].type, (uint32_t[]){2, 1}, 2, cases[i].bytes, cases[i].size);
        size_t m = pack(file, n, packed, sizeof packed);
        for (int gz = 0; gz < 2; gz++) {
            idx_file f = {0};
            assert_ok(parse(gz ? packed : file, gz ? m : n, &f));
            assert_int_equal(f.array.dtype, cases[i].dtype);
            assert_int_equal(f.array.shape[0], 2);
            assert_int_equal(f.array.shape[1], 1);
            for (int k = 0; k < 2; k++) {
                double v = f.array.dtype == MANTA_DTYPE_U8    ? ((uint8_t *)f.array.data)[k]
                           : f.array.dtype == MANTA_DTYPE_I32 ? ((int32_t *)f.array.data)[k]
                           : f.array.dtype == MANTA_DTYPE_F32 ? (double)((float *)f.array.data)[k]
                                                              : ((double *)f.array.data)[k];
                assert_true(v == cases[i].values[k]);
            }
            idx_release(&f);
        }
    }
}

static void refuse(const uint8_t *data, size_t n, manta_status code, const char *word)
{
    int64_t live = mem_live();
    idx_file f = {0};
    manta_status st = parse(data, n, &f);

    assert_fails_with(st, code, word);
    assert_error_says("f.idx");
    idx_release(&f);
    assert_int_equal(mem_live(), live);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    uint8_t file[128], packed[256];
    size_t n;

    refuse(NULL, 0, MANTA_ECORRUPT, "0 bytes");
    refuse((const uint8_t *)"\1\0\10\1", 4, MANTA_ECORRUPT, "wrong magic 01000801");
    refuse((const uint8_t *)"\0\0\12\1", 4, MANTA_ECORRUPT, "wrong magic");
    refuse((const uint8_t *)"\0\0\10\0", 4, MANTA_ECORRUPT, "0 dimensions at offset 3");
    refuse((const uint8_t *)"\0\0\10\11", 4, MANTA_ECORRUPT, "9 dimensions");
    refuse((const uint8_t *)"\0\0\10\2\0\0", 6, MANTA_ECORRUPT, "cut off at offset 6");
    n = make(file, 0x0e, (uint32_t[]){~0u, ~0u, ~0u, ~0u}, 4, NULL, 0);
    refuse(file, n, MANTA_ECORRUPT, "overflow");
    n = make(file, 0x08, (uint32_t[]){4, 2}, 2, "1234567", 7);
    refuse(file, n, MANTA_ECORRUPT, "7 bytes follow the header at offset 12, expected 8");
    n = make(file, 0x08, (uint32_t[]){3}, 1, "1234", 4);
    refuse(file, n, MANTA_ECORRUPT, "4 bytes follow the header at offset 8, expected 3");
    n = make(file, 0x0d, (uint32_t[]){2}, 1, "\0\0\0\0\x7f\xc0\0\0", 8);
    refuse(file, n, MANTA_ENAN, "element 1 at offset 12 is NaN");

    n = make(file, 0x08, (uint32_t[]){100}, 1, "0123456789abcdefghijklmnopqrstuvwxyz!", 37);
    size_t m = pack(file, n, packed, sizeof packed);
    refuse(packed, m, MANTA_ECORRUPT, "holds 45 bytes, expected 108");
    n = make(file, 0x08, (uint32_t[]){36}, 1, "0123456789abcdefghijklmnopqrstuvwxyz!", 37);
    m = pack(file, n, packed, sizeof packed);
    refuse(packed, m, MANTA_ECORRUPT, "more than 44 bytes");
    n = make(file, 0x08, (uint32_t[]){37}, 1, "0123456789abcdefghijklmnopqrstuvwxyz!", 37);
    m = pack(file, n, packed, sizeof packed);
    for (size_t k = 2; k < m; k++) { /* cut anywhere: refused, with a place */
        idx_file f = {0};
        assert_int_equal(parse(packed, k, &f), MANTA_ECORRUPT);
        assert_error_says("offset");
        idx_release(&f);
    }
    packed[m - 6] ^= 1; /* its checksum */
    refuse(packed, m, MANTA_ECORRUPT, "the gzip data is damaged");
    n = make(file, 0x08, (uint32_t[]){0x40000000}, 1, NULL, 0);
    m = pack(file, n, packed, sizeof packed);
    refuse(packed, m, MANTA_ECORRUPT, "cannot hold"); /* a gigabyte promised by thirty bytes: not allocated */
}

/* ---- builtin datasets ----------------------------------------------------------------------------- */

#define IMAGES 3000 /* enough bytes that they are unpacked behind the opening */

static void write_set(const char *set, const char *part, int bad_label, bool cut)
{
    static uint8_t file[IMAGES * 784 + 16], packed[IMAGES * 784 + 4096], pixels[IMAGES * 784], labels[IMAGES];
    char name[128];

    for (int i = 0; i < IMAGES * 784; i++) pixels[i] = (uint8_t)(i * 7 + i / 784);
    for (int i = 0; i < IMAGES; i++) labels[i] = (uint8_t)(i % 10);
    if (bad_label >= 0) labels[bad_label] = 10;
    mkdir(scratch_path(set), 0755);
    size_t n = make(file, 8, (uint32_t[]){IMAGES, 28, 28}, 3, pixels, sizeof pixels);
    n = pack(file, n, packed, sizeof packed);
    snprintf(name, sizeof name, "%s/%s-images-idx3-ubyte.gz", set, part);
    scratch_file(name, packed, cut ? n - 100 : n);
    n = make(file, 8, (uint32_t[]){IMAGES}, 1, labels, sizeof labels);
    snprintf(name, sizeof name, "%s/%s-labels-idx1-ubyte", set, part); /* unpacked ones are found too */
    scratch_file(name, file, n);
}

static void a_builtin_dataset_is_opened(void **state)
{
    (void)state;
    write_set("mnist", "t10k", -1, false);
    for (int raw = 0; raw < 2; raw++) {
        manta_open_options o = {.raw = raw, .data_dir = scratch_dir};
        manta_dataset *d = NULL;
        manta_loader *l = NULL;
        manta_batch b;
        assert_ok(manta_dataset_open("mnist:test", &o, &d));
        assert_int_equal(manta_dataset_count(d), IMAGES);
        assert_ok(manta_loader_open(d, &(manta_loader_options){.batch_size = 64}, &l));
        manta_dataset_unref(d);
        int64_t seen = 0;
        while (manta_loader_next(l, &b)) {
            const manta_array *x = manta_batch_find(&b, "x"), *y = manta_batch_find(&b, "y");
            assert_int_equal(y->dtype, MANTA_DTYPE_I64);
            assert_int_equal(x->dtype, raw ? MANTA_DTYPE_U8 : MANTA_DTYPE_F32);
            for (int64_t i = 0; i < b.count; i++) {
                int64_t k = seen + i, at = k * 784 + 391;
                uint8_t expect = (uint8_t)(at * 7 + k);
                assert_int_equal(((int64_t *)y->data)[i], k % 10);
                if (raw) {
                    assert_int_equal(((uint8_t *)x->data)[i * 784 + 391], expect);
                } else {
                    assert_true(((float *)x->data)[i * 784 + 391] == (float)expect / 255.0f);
                }
            }
            seen += b.count;
        }
        assert_int_equal(manta_loader_status(l), MANTA_OK);
        assert_int_equal(seen, IMAGES);
        manta_loader_close(l);
    }
}

/* A process forked while images are being unpacked finds them all the same. */
static void a_fork_while_unpacking_finds_all_images(void **state)
{
    (void)state;
    manta_dataset *d = NULL;
    assert_int_equal(manta_dataset_open("mnist:test", &(manta_open_options){.data_dir = scratch_dir}, &d),
                     MANTA_OK);
    pid_t pid = fork();
    if (pid == 0) {
        manta_loader *l = NULL;
        manta_batch b;
        bool ok = manta_loader_open(d, &(manta_loader_options){.batch_size = 8, .readers = MANTA_NONE}, &l) ==
                      MANTA_OK &&
                  manta_loader_next(l, &b) && manta_loader_next(l, &b);
        float v = ok ? ((float *)manta_batch_find(&b, "x")->data)[1] : -1;
        _exit(v == (float)(uint8_t)((8 * 784 + 1) * 7 + 8) / 255.0f ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    manta_dataset_unref(d);
}

static void bad_builtin_datasets_are_refused(void **state)
{
    (void)state;
    manta_open_options o = {.data_dir = scratch_dir};
    manta_dataset *d = NULL;
    manta_loader *l = NULL;
    manta_batch b;

    setenv("XDG_CACHE_HOME", "/nowhere/cache", 1);
    assert_int_equal(manta_dataset_open("fashion-mnist", &o, &d), MANTA_ENOENT);
    assert_error_says("manta data fetch fashion-mnist");
    assert_error_says(scratch_dir);
    unsetenv("XDG_CACHE_HOME");
    assert_int_equal(manta_dataset_open("mnist:both", &o, &d), MANTA_EINVAL);
    write_set("fashion-mnist", "train", 1234, false);
    assert_int_equal(manta_dataset_open("fashion-mnist", &o, &d), MANTA_ECORRUPT);
    assert_error_says("sample 1234 at offset 1242 is 10, expected 0 to 9");
    /* a cut in the images is found by the thread, and told with the first batch */
    write_set("fashion-mnist", "train", -1, true);
    assert_int_equal(manta_dataset_open("fashion-mnist", &o, &d), MANTA_OK);
    assert_int_equal(manta_loader_open(d, NULL, &l), MANTA_OK);
    manta_dataset_unref(d);
    assert_false(manta_loader_next(l, &b));
    assert_int_equal(manta_loader_status(l), MANTA_ECORRUPT);
    assert_error_says("cut off at offset");
    assert_error_says("train-images-idx3-ubyte.gz");
    manta_loader_close(l);
}

static void a_pair_of_files_is_a_dataset(void **state)
{
    (void)state;
    uint8_t file[128];
    char spec[1200];
    manta_dataset *d = NULL;
    const manta_column_spec *c;

    size_t n = make(file, 8, (uint32_t[]){3, 2}, 2, "abcdef", 6);
    const char *x = scratch_file("images", file, n);
    n = make(file, 0x0c, (uint32_t[]){3}, 1, "\0\0\0\1\0\0\0\2\0\0\0\3", 12);
    const char *y = scratch_file("labels", file, n);
    n = make(file, 8, (uint32_t[]){2}, 1, "ab", 2);
    const char *two = scratch_file("two", file, n);
    snprintf(spec, sizeof spec, "%s,%s", x, y);
    assert_ok(manta_dataset_open(spec, NULL, &d));
    assert_int_equal(manta_dataset_count(d), 3);
    assert_int_equal(manta_dataset_columns(d, &c), 2);
    assert_int_equal(c[0].dtype, MANTA_DTYPE_F32);
    assert_int_equal(c[1].dtype, MANTA_DTYPE_I64);
    manta_dataset_unref(d);
    assert_ok(manta_dataset_open(x, &(manta_open_options){.raw = true}, &d));
    assert_int_equal(manta_dataset_columns(d, &c), 1);
    assert_int_equal(c[0].dtype, MANTA_DTYPE_U8);
    manta_dataset_unref(d);
    snprintf(spec, sizeof spec, "%s,%s", x, two);
    assert_int_equal(manta_dataset_open(spec, NULL, &d), MANTA_EINVAL);
    assert_error_says("2 samples, expected 3");
    snprintf(spec, sizeof spec, "%s,%s,%s", x, y, two);
    assert_int_equal(manta_dataset_open(spec, NULL, &d), MANTA_EINVAL);
    assert_int_equal(manta_dataset_open("", NULL, &d), MANTA_EINVAL);
    assert_int_equal(manta_dataset_open("/no/such/file", NULL, &d), MANTA_ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_type_is_read),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(a_builtin_dataset_is_opened),
        cmocka_unit_test(a_fork_while_unpacking_finds_all_images),
        cmocka_unit_test(bad_builtin_datasets_are_refused),
        cmocka_unit_test(a_pair_of_files_is_a_dataset),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
