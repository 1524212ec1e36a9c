/* tfrecord_test.c - TFRecord files: the bytes that TensorFlow writes, packed
 * and plain, in one file and many, and every way in which one can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>
#include <manta/data.h>

#include "alloc_fail.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "format/codec/input.h"
#include "format/codec/record.h"
#include "format/tensorboard/events.h"
#include "format/tfrecord/example.h"
#include "format/tfrecord/tfrecord.h"
#include "ok.h"
#include "os/fault.h"
#include "scratch.h"

#define GOLDEN MANTA_SOURCE_DIR "/tests/golden/files/t.tfrecord"

/* ---- framing --------------------------------------------------------------------------- */

static void records_have_tensorflows_bytes(void **state)
{
    (void)state;
    buf b = {0};
    static const char version[] = "\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x1a\x0d"
                                  "brain.Event:2";
    static const uint8_t expected[] = {0x18, 0,    0,    0,   0,   0,   0,    0,    0xa3, 0x7f,
                                       0x4b, 0x22, 0x09, 0,   0,   0,   0,    0,    0,    0xf0,
                                       0x3f, 0x1a, 0x0d, 'b', 'r', 'a', 'i',  'n',  '.',  'E',
                                       'v',  'e',  'n',  't', ':', '2', 0x86, 0xbf, 0x57, 0x7a};

    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(record_sum("123456789", 9), 0xC78AB0E5);
    record_add(&b, version, sizeof version - 1);
    assert_int_equal(b.n, sizeof expected);
    assert_memory_equal(b.at, expected, sizeof expected);
    buf_release(&b);
}

static void records_cut_at_any_byte_are_whole_before_the_cut(void **state)
{
    (void)state;
    buf b = {0};
    const uint8_t *data;
    size_t n;

    record_add(&b, "first", 5);
    size_t second = b.n;
    record_add(&b, "", 0);
    size_t third = b.n;
    record_add(&b, "3", 1);
    for (size_t cut = 0; cut <= b.n; cut++) {
        record_reader r = {.data = (const uint8_t *)b.at, .size = cut};
        size_t whole = (size_t)(cut >= second) + (size_t)(cut >= third) + (size_t)(cut >= b.n), given = 0;
        record_step s;
        while ((s = record_next(&r, &data, &n)) == RECORD_GIVEN) given++;
        assert_int_equal(given, whole);
        assert_int_equal(s,
                         cut == 0 || cut == second || cut == third || cut == b.n ? RECORD_END : RECORD_CUT);
    }
    for (size_t i = 0; i < b.n; i++) { /* one bit anywhere */
        record_reader r = {.data = (const uint8_t *)b.at, .size = b.n};
        record_step s;
        b.at[i] ^= 4;
        do s = record_next(&r, &data, &n);
        while (s == RECORD_GIVEN);
        assert_true(s == RECORD_BAD_LENGTH || s == RECORD_BAD_DATA);
        b.at[i] ^= 4;
    }
    buf_release(&b);
}

/* ---- Examples -------------------------------------------------------------------------- */

static void an_example_is_what_tensorflow_writes(void **state)
{
    (void)state;
    input in = {0};
    buf b = {0};
    static const float x[] = {1.5f, 2.5f};
    static const int64_t label = 7;

    assert_int_equal(input_read(GOLDEN, &in), MANTA_OK);
    size_t mark = record_begin(&b);
    example_writer w = example_begin(&b);
    example_add_bytes(&w, "image", "\1\2", 2);
    example_add_ints(&w, "label", 1, &label);
    example_add_floats(&w, "x", 2, x);
    example_end(&w);
    record_end(&b, mark);
    assert_true(in.size > b.n);
    assert_memory_equal(in.data, b.at, b.n);
    input_release(&in);
    buf_release(&b);
}

static void unpacked_numbers_are_read(void **state)
{
    (void)state;
    buf b = {0};
    float v[4] = {0};
    int64_t k[4] = {0};

    proto_add_float(&b, 1, 1);
    proto_add_float(&b, 1, 2);
    example_feature f = {.kind = EXAMPLE_FLOATS, .list = proto_read(b.at, b.n)};
    assert_int_equal(example_floats(&f, 4, v), 2);
    assert_true(v[0] == 1 && v[1] == 2);
    assert_int_equal(example_floats(&f, 1, v), 2); /* more than fit: counted, not written */
    f.kind = EXAMPLE_INTS;
    assert_int_equal(example_ints(&f, 4, k), -1);
    buf_cut(&b, 0);
    proto_add_int(&b, 1, -5);
    proto_add_int(&b, 1, 300);
    f.list = proto_read(b.at, b.n);
    assert_int_equal(example_ints(&f, 4, k), 2);
    assert_true(k[0] == -5 && k[1] == 300);
    buf_release(&b);
}

/* ---- files ----------------------------------------------------------------------------- */

static void write_records(const char *path, tfrecord_packing p, int from, int to)
{
    tfrecord_writer *w = NULL;
    buf b = {0};

    assert_int_equal(tfrecord_writer_open(path, p, &w), MANTA_OK);
    for (int i = from; i < to; i++) {
        int64_t y = i;
        float x[6];
        for (int k = 0; k < 6; k++) x[k] = (float)(i + k);
        buf_cut(&b, 0);
        example_writer e = example_begin(&b);
        example_add_floats(&e, "x", 6, x);
        example_add_ints(&e, "label", 1, &y);
        example_end(&e);
        assert_int_equal(tfrecord_writer_add(w, b.at, b.n), MANTA_OK);
    }
    assert_int_equal(tfrecord_writer_commit(w), MANTA_OK);
    tfrecord_writer_free(w);
    buf_release(&b);
}

/* Reads all, in order, and checks what write_records() made. */
static void assert_dataset(const char *spec, int count, int ndim)
{
    manta_dataset *d = NULL;
    manta_loader *l = NULL;
    manta_batch b;
    int64_t seen = 0;

    assert_ok(tfrecord_open_spec(spec, NULL, &d));
    assert_int_equal(manta_dataset_count(d), count);
    manta_loader_options o = {.batch_size = 7};
    assert_int_equal(manta_loader_open(d, &o, &l), MANTA_OK);
    while (manta_loader_next(l, &b)) {
        const manta_array *x = manta_batch_find(&b, "x"), *y = manta_batch_find(&b, "y");
        assert_int_equal(x->ndim, ndim);
        for (int64_t i = 0; i < b.count; i++, seen++) {
            assert_int_equal(((const int64_t *)y->data)[i], seen);
            for (int k = 0; k < 6; k++) assert_true(((const float *)x->data)[6 * i + k] == (float)(seen + k));
        }
    }
    assert_int_equal(manta_loader_status(l), MANTA_OK);
    assert_int_equal(seen, count);
    manta_loader_close(l);
    manta_dataset_unref(d);
}

static void plain_gzip_and_zlib_are_read(void **state)
{
    (void)state;
    char spec[600];

    for (int p = TFRECORD_PLAIN; p <= TFRECORD_ZLIB; p++) {
        const char *path = scratch_path("p.tfrecord");
        write_records(path, (tfrecord_packing)p, 0, 100);
        snprintf(spec, sizeof spec, "%s:x=x@2x3,y=label", path);
        assert_dataset(spec, 100, 3);
        snprintf(spec, sizeof spec, "%s:y=label,x=x", path);
        assert_dataset(spec, 100, 2);
    }
}

static void shards_and_globs_are_one_dataset(void **state)
{
    (void)state;
    char spec[1200];

    write_records(scratch_path("s.tfrecord-00000-of-00003"), TFRECORD_PLAIN, 0, 10);
    write_records(scratch_path("s.tfrecord-00001-of-00003"), TFRECORD_GZIP, 10, 25);
    write_records(scratch_path("s.tfrecord-00002-of-00003"), TFRECORD_PLAIN, 25, 26);
    snprintf(spec, sizeof spec, "%s:x=x,y=label", scratch_path("s.tfrecord-*"));
    assert_dataset(spec, 26, 2);
    snprintf(spec, sizeof spec, "%s,%s:x=x,y=label", scratch_path("s.tfrecord-00000-of-00003"),
             scratch_path("s.tfrecord-00001-of-00003"));
    assert_dataset(spec, 25, 2);
}

/* Records longer than the window, and any order. */
static void large_records_are_read_in_any_order(void **state)
{
    (void)state;
    const char *path = scratch_path("large.tfrecord");
    tfrecord_writer *w = NULL;
    tfrecord *t = NULL;
    char *paths[] = {(char *)(uintptr_t)path};
    static uint8_t big[700 << 10];
    const uint8_t *data;
    size_t n;

    assert_int_equal(tfrecord_writer_open(path, TFRECORD_PLAIN, &w), MANTA_OK);
    for (int i = 0; i < 20; i++) {
        size_t size = i % 3 == 0 ? sizeof big : (size_t)i * 1000;
        memset(big, i, size);
        assert_int_equal(tfrecord_writer_add(w, big, size), MANTA_OK);
    }
    assert_int_equal(tfrecord_writer_commit(w), MANTA_OK);
    tfrecord_writer_free(w);
    assert_int_equal(tfrecord_open(1, paths, &t), MANTA_OK);
    assert_int_equal(tfrecord_count(t), 20);
    tfrecord_reader *r = tfrecord_reader_new(t);
    for (int k = 0; k < 60; k++) {
        int i = k < 20 ? k : k * 7 % 20;
        assert_int_equal(tfrecord_read(r, i, &data, &n), MANTA_OK);
        assert_int_equal(n, i % 3 == 0 ? sizeof big : (size_t)i * 1000);
        for (size_t j = 0; j < n; j += 997) assert_int_equal(data[j], i);
    }
    tfrecord_reader_free(r);
    tfrecord_free(t);
}

static void a_recorded_file_is_read(void **state)
{
    (void)state;
    manta_dataset *d = NULL;
    const manta_column_spec *c;

    assert_int_equal(tfrecord_open_spec(GOLDEN, NULL, &d), MANTA_OK);
    assert_int_equal(manta_dataset_count(d), 3);
    assert_int_equal(manta_dataset_columns(d, &c), 3);
    assert_string_equal(c[0].name, "image");
    assert_int_equal(c[0].dtype, MANTA_DTYPE_U8);
    assert_int_equal(c[0].shape[0], 2);
    assert_string_equal(c[1].name, "label");
    assert_int_equal(c[1].dtype, MANTA_DTYPE_I64);
    assert_int_equal(c[1].ndim, 0);
    assert_string_equal(c[2].name, "x");
    assert_int_equal(c[2].dtype, MANTA_DTYPE_F32);
    manta_dataset_unref(d);
}

/* Bytes as elements of a type that is said, one feature as two columns, and PNG images. */
static void bytes_and_images_are_columns(void **state)
{
    (void)state;
    const char *path = scratch_path("i.tfrecord");
    tfrecord_writer *w = NULL;
    manta_dataset *d = NULL;
    manta_loader *l = NULL;
    manta_batch batch;
    buf b = {0}, png = {0};
    static const uint8_t pixels[] = {0, 51, 102, 153, 204, 255};
    static const uint16_t raw[] = {0x3c00, 0xc000};
    char spec[600];

    assert_int_equal(events_png(2, 3, 1, pixels, &png), MANTA_OK);
    example_writer e = example_begin(&b);
    example_add_bytes(&e, "image/encoded", png.at, png.n);
    example_add_bytes(&e, "raw", raw, sizeof raw);
    example_end(&e);
    assert_int_equal(tfrecord_writer_open(path, TFRECORD_PLAIN, &w), MANTA_OK);
    assert_int_equal(tfrecord_writer_add(w, b.at, b.n), MANTA_OK);
    assert_int_equal(tfrecord_writer_commit(w), MANTA_OK);
    tfrecord_writer_free(w);
    snprintf(spec, sizeof spec, "%s:x=image/encoded,h=raw@float16:2,again=image/encoded", path);
    assert_ok(tfrecord_open_spec(spec, NULL, &d));
    assert_int_equal(manta_loader_open(d, NULL, &l), MANTA_OK);
    assert_true(manta_loader_next(l, &batch));
    const manta_array *x = manta_batch_find(&batch, "x"), *h = manta_batch_find(&batch, "h");
    assert_int_equal(x->dtype, MANTA_DTYPE_F32);
    assert_int_equal(x->ndim, 4);
    assert_true(x->shape[1] == 2 && x->shape[2] == 3 && x->shape[3] == 1);
    for (int i = 0; i < 6; i++) assert_true(((const float *)x->data)[i] == (float)pixels[i] / 255.0f);
    assert_memory_equal(manta_batch_find(&batch, "again")->data, x->data, 24);
    assert_int_equal(h->dtype, MANTA_DTYPE_F16);
    assert_memory_equal(h->data, raw, sizeof raw);
    manta_loader_close(l);
    manta_dataset_unref(d);
    buf_release(&b);
    buf_release(&png);
}

/* ---- refusals -------------------------------------------------------------------------- */

static void good_specs_open_and_bad_ones_are_refused(void **state)
{
    (void)state;
    static const char *const yes[] = {"a.tfrecord", "a.tfrecords:x=f", "d/t-*.tfrecord-00001-of-00002",
                                      "a.tfrecord.gz"};
    static const char *const no[] = {"a.npz:x,y", "mnist", ".tfrecord", "a.csv:label=b.tfrecord"};
    static const char *const bad[] = {":x=image",           ":x=",         ":x=image@",
                                      ":x=image@0x2",       ":x=image@2x", ":x=image@axb",
                                      ":x=image,x=label",   ":x=image,y",  ":x=nothing",
                                      ":x=label@float32:1", ":x=image@3",  ":x=x@9999999999x9999999999"};
    manta_dataset *d = NULL;
    char spec[700];

    for (size_t i = 0; i < 4; i++) assert_true(tfrecord_is_spec(yes[i]));
    for (size_t i = 0; i < 4; i++) assert_false(tfrecord_is_spec(no[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        manta_loader *l = NULL;
        manta_batch b;
        snprintf(spec, sizeof spec, "%s%s", i ? GOLDEN : GOLDEN "no", bad[i]);
        manta_status st = tfrecord_open_spec(spec, NULL, &d);
        if (!st) { /* a shape that the record does not have is known when it is read */
            assert_int_equal(manta_loader_open(d, NULL, &l), MANTA_OK);
            assert_false(manta_loader_next(l, &b));
            st = manta_loader_status(l);
            manta_loader_close(l);
            manta_dataset_unref(d);
        }
        if (!st) fail_msg("accepted %s", spec);
        assert_true(manta_error_text()[0]);
    }
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    input in = {0};
    tfrecord *t = NULL;

    assert_int_equal(input_read(GOLDEN, &in), MANTA_OK);
    size_t record = in.size / 3;
    for (size_t cut = 0; cut <= in.size; cut++) {
        const char *path = scratch_file("cut.tfrecord", in.data, cut);
        char *paths[] = {(char *)(uintptr_t)path};
        manta_status st = tfrecord_open(1, paths, &t);
        assert_int_equal(st, cut % record == 0 ? MANTA_OK : MANTA_ECORRUPT);
        if (st) {
            assert_error_says("cut.tfrecord");
            continue;
        }
        assert_int_equal(tfrecord_count(t), cut / record);
        tfrecord_free(t);
    }
    /* a length that lies, with the right sum: nothing of that size is asked for */
    uint8_t head[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
    uint32_t sum = record_sum(head, 8);
    memcpy(head + 8, &sum, 4);
    assert_int_equal(tfrecord_of_bytes("lie", head, sizeof head, &t), MANTA_ECORRUPT);
    /* data damaged behind a good length is found when it is read */
    in.data[20] ^= 1;
    assert_int_equal(tfrecord_of_bytes("bad", in.data, in.size, &t), MANTA_OK);
    tfrecord_reader *r = tfrecord_reader_new(t);
    const uint8_t *data;
    size_t n;
    assert_int_equal(tfrecord_read(r, 0, &data, &n), MANTA_ECORRUPT);
    assert_error_says("record 0 at offset 0");
    assert_int_equal(tfrecord_read(r, 1, &data, &n), MANTA_OK);
    tfrecord_reader_free(r);
    tfrecord_free(t);
    input_release(&in);
}

static void packed_files_cut_at_any_byte_are_refused(void **state)
{
    (void)state;
    for (int p = TFRECORD_GZIP; p <= TFRECORD_ZLIB; p++) {
        const char *path = scratch_path("z.tfrecord");
        input in = {0};
        tfrecord *t = NULL;
        write_records(path, (tfrecord_packing)p, 0, 3);
        assert_int_equal(input_read(path, &in), MANTA_OK);
        for (size_t cut = 1; cut < in.size; cut++) {
            assert_int_equal(tfrecord_of_bytes("cut", in.data, cut, &t), MANTA_ECORRUPT);
        }
        assert_int_equal(tfrecord_of_bytes("whole", in.data, in.size, &t), MANTA_OK);
        assert_int_equal(tfrecord_count(t), 3);
        tfrecord_free(t);
        input_release(&in);
    }
}

/* A record whose features differ from the first one's. */
static void samples_unlike_the_first_are_refused(void **state)
{
    (void)state;
    enum { MISSING, COUNT, KIND, NAN_VALUE, DAMAGED, CASES };
    static const manta_status expected[CASES] = {MANTA_ENOENT, MANTA_EINVAL, MANTA_EINVAL, MANTA_ENAN,
                                                 MANTA_ECORRUPT};
    static const float v[] = {1, 2, 3};
    static const int64_t k[] = {1, 2};

    for (int c = 0; c < CASES; c++) {
        const char *path = scratch_path("odd.tfrecord");
        tfrecord_writer *w = NULL;
        manta_dataset *d = NULL;
        manta_loader *l = NULL;
        manta_batch batch;
        buf b = {0};
        assert_int_equal(tfrecord_writer_open(path, TFRECORD_PLAIN, &w), MANTA_OK);
        for (int i = 0; i < 2; i++) {
            buf_cut(&b, 0);
            example_writer e = example_begin(&b);
            if (i == 0) example_add_floats(&e, "f", 2, v);
            if (i && c == COUNT) example_add_floats(&e, "f", 3, v);
            if (i && c == KIND) example_add_ints(&e, "f", 2, k);
            if (i && c == NAN_VALUE) example_add_floats(&e, "f", 2, (float[]){1, NAN});
            example_end(&e);
            if (i && c == DAMAGED) buf_add_text(&b, "\x0a");
            assert_int_equal(tfrecord_writer_add(w, b.at, b.n), MANTA_OK);
        }
        assert_int_equal(tfrecord_writer_commit(w), MANTA_OK);
        tfrecord_writer_free(w);
        assert_int_equal(tfrecord_open_spec(path, NULL, &d), MANTA_OK);
        assert_int_equal(manta_loader_open(d, NULL, &l), MANTA_OK);
        assert_true(manta_loader_next(l, &batch));
        assert_false(manta_loader_next(l, &batch));
        assert_int_equal(manta_loader_status(l), expected[c]);
        assert_error_says("record 1");
        manta_loader_close(l);
        manta_dataset_unref(d);
        buf_release(&b);
    }
}

/* ---- failing systems ------------------------------------------------------------------- */

static void every_failing_call_is_reported(void **state)
{
    (void)state;
    const char *path = scratch_path("fault.tfrecord");
    char *paths[] = {(char *)(uintptr_t)path};
    int failures = 0;

    write_records(path, TFRECORD_PLAIN, 0, 50);
    for (int64_t n = 1;; n++) {
        int64_t live = mem_live();
        tfrecord *t = NULL;
        fault_begin((fault_plan){.at = n, .err = EIO});
        manta_status st = tfrecord_open(1, paths, &t);
        if (!st) {
            tfrecord_reader *r = tfrecord_reader_new(t);
            const uint8_t *data;
            size_t size;
            for (int64_t i = 0; i < 50 && !st; i++) st = tfrecord_read(r, i, &data, &size);
            tfrecord_reader_free(r);
        }
        tfrecord_free(t);
        bool hit = fault_end() > 0;
        assert_int_equal(mem_live(), live);
        if (!hit) {
            assert_int_equal(st, MANTA_OK);
            break;
        }
        failures += st != MANTA_OK; /* a close that fails is no failure of reading */
        if (st) assert_int_equal(st, MANTA_EIO);
    }
    assert_true(failures >= 4);
    fault_begin((fault_plan){.interrupt = true, .short_io = true});
    tfrecord *t = NULL;
    assert_int_equal(tfrecord_open(1, paths, &t), MANTA_OK);
    assert_int_equal(tfrecord_count(t), 50);
    tfrecord_free(t);
    fault_end();
}

/* A disk that fills while writing: the old file stays whole, and nothing is left beside it. */
static void full_disk(const char *path, tfrecord_packing p)
{
    static char text[100000];
    char *paths[] = {(char *)(uintptr_t)path};
    bool hit = true;

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * i >> 7); /* packs badly, so that much is written */
    for (int64_t n = 1; hit; n++) {
        tfrecord_writer *w = NULL;
        tfrecord *t = NULL;
        write_records(path, p, 0, 3);
        fault_begin((fault_plan){.at = n, .err = ENOSPC, .sticky = true, .spare_unlink = true});
        manta_status st = tfrecord_writer_open(path, p, &w);
        if (!st) st = tfrecord_writer_add(w, text, sizeof text);
        if (!st) st = tfrecord_writer_commit(w);
        tfrecord_writer_free(w);
        hit = fault_end() > 0;
        assert_int_equal(tfrecord_open(1, paths, &t), MANTA_OK);
        assert_int_equal(tfrecord_count(t), st && st != MANTA_EUNKNOWN ? 3 : 1);
        tfrecord_free(t);
        assert_true(hit || !st);
    }
}

static void a_writer_on_a_full_disk_leaves_no_part(void **state)
{
    (void)state;
    file_names names = {0};

    mkdir(scratch_path("full"), 0777);
    full_disk(scratch_path("full/a.tfrecord"), TFRECORD_PLAIN);
    full_disk(scratch_path("full/b.tfrecord"), TFRECORD_GZIP);
    full_disk(scratch_path("full/c.tfrecord"), TFRECORD_ZLIB);
    assert_int_equal(file_list(scratch_path("full"), &names), MANTA_OK);
    assert_int_equal(names.n, 3);
    file_names_release(&names);
}

static manta_status open_one(void *path)
{
    char *paths[] = {path};
    tfrecord *t = NULL;
    manta_status st = tfrecord_open(1, paths, &t);

    tfrecord_free(t);
    return st;
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    char path[512];

    snprintf(path, sizeof path, "%s", scratch_path("mem.tfrecord"));
    write_records(path, TFRECORD_ZLIB, 0, 600);
    alloc_fail_each(open_one, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_have_tensorflows_bytes),
        cmocka_unit_test(records_cut_at_any_byte_are_whole_before_the_cut),
        cmocka_unit_test(an_example_is_what_tensorflow_writes),
        cmocka_unit_test(unpacked_numbers_are_read),
        cmocka_unit_test(plain_gzip_and_zlib_are_read),
        cmocka_unit_test(shards_and_globs_are_one_dataset),
        cmocka_unit_test(large_records_are_read_in_any_order),
        cmocka_unit_test(a_recorded_file_is_read),
        cmocka_unit_test(bytes_and_images_are_columns),
        cmocka_unit_test(good_specs_open_and_bad_ones_are_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(packed_files_cut_at_any_byte_are_refused),
        cmocka_unit_test(samples_unlike_the_first_are_refused),
        cmocka_unit_test(every_failing_call_is_reported),
        cmocka_unit_test(a_writer_on_a_full_disk_leaves_no_part),
        cmocka_unit_test(failed_allocations_are_reported),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
