/* parquet_test.c - Parquet files: pyarrow's own, and what is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/data_file.h>
#include <math.h>
#include <sys/wait.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "format/parquet/parquet.h"
#include "format/parquet/parquet_codec.h"
#include "format/parquet/parquet_column.h"
#include "format/parquet/parquet_rle.h"
#include "format/parquet/thrift.h"
#include "ok.h"
#include "os/file.h"
#include "parquet_maker.h"
#include "recorded.h"
#include "scratch.h"

static manta_status open_bytes(const void *data, size_t size, const char *x, const char *label,
                               const manta_open_options *o, manta_dataset **out)
{
    static const manta_open_options none;

    return parquet_open_file(seek_over("f.parquet", data, size), x, label, o ? o : &none, out);
}

/* ---- what pyarrow wrote ---- */

static void recorded_files_are_read(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "t.parquet", GOLDEN "plain.parquet"};
    for (int i = 0; i < 2; i++) {
        char spec[600];
        manta_dataset *d = NULL;
        const manta_column_spec *c;
        manta_batch b;

        snprintf(spec, sizeof spec, "%s:x=img,label=label", files[i]);
        assert_ok(manta_dataset_open(spec, &(manta_open_options){.raw = true}, &d));
        assert_int_equal(manta_dataset_count(d), 3);
        assert_int_equal(manta_dataset_columns(d, &c), 2);
        assert_int_equal(c[0].dtype, MANTA_DTYPE_U8);
        assert_int_equal(c[0].ndim, 1);
        assert_int_equal(c[0].shape[0], 2);
        assert_int_equal(c[1].dtype, MANTA_DTYPE_I64);
        manta_loader *l = whole_batch(d, &b);
        const uint8_t *x = manta_batch_find(&b, "x")->data;
        const int64_t *y = manta_batch_find(&b, "y")->data;
        for (int k = 0; k < 6; k++) assert_int_equal(x[k], k + 1);
        for (int k = 0; k < 3; k++) assert_int_equal(y[k], k + 1);
        manta_loader_close(l);
        manta_dataset_unref(d);

        /* The same bytes as numbers in [0,1], and a null where NaN may be. */
        snprintf(spec, sizeof spec, "%s:x=img", files[i]);
        assert_int_equal(manta_dataset_open(spec, NULL, &d), MANTA_OK);
        l = whole_batch(d, &b);
        assert_true(((float *)manta_batch_find(&b, "x")->data)[5] == 6.0f / 255);
        manta_loader_close(l);
        manta_dataset_unref(d);

        snprintf(spec, sizeof spec, "%s:x=label+x+img", files[i]);
        assert_int_equal(manta_dataset_open(spec, NULL, &d), MANTA_ENAN);
        assert_error_says("column 'x'");
        assert_error_says("row 2) is null");
        assert_int_equal(manta_dataset_open(spec, &(manta_open_options){.allow_nan = true}, &d), MANTA_OK);
        l = whole_batch(d, &b);
        static const float want[] = {1, 1.5, 1, 2, 2, 2.5, 3, 4, 3, NAN, 5, 6};
        const float *f = manta_batch_find(&b, "x")->data;
        for (int k = 0; k < 12; k++) assert_true(f[k] == want[k] || (isnan(f[k]) && k == 9));
        manta_loader_close(l);
        manta_dataset_unref(d);
    }
}

static void refuse_golden(const char *rest, manta_status code, const char *word)
{
    char spec[600];
    manta_dataset *d = NULL;
    int64_t live = mem_live();

    snprintf(spec, sizeof spec, "%st.parquet%s", GOLDEN, rest);
    manta_status st = manta_dataset_open(spec, NULL, &d);
    assert_fails_with(st, code, word);
    assert_int_equal(mem_live(), live);
}

static void wrong_columns_are_refused(void **state)
{
    (void)state;
    refuse_golden("", MANTA_EUNSUPPORTED,
                  "column 's' is text (BYTE_ARRAY), expected numbers; choose columns");
    refuse_golden(":x=s", MANTA_EUNSUPPORTED, "column 's' is text (BYTE_ARRAY)");
    refuse_golden(":x=img,label=s", MANTA_EUNSUPPORTED, "column 's' is text");
    refuse_golden(":label=price", MANTA_ENOENT, "no column 'price'; there are: x, label, s, img");
    refuse_golden(":x=img+price", MANTA_ENOENT, "no column 'price'");
    refuse_golden(":x=img,label=x", MANTA_ENAN, "is null");
    refuse_golden(":column=x", MANTA_EINVAL, "expected :label=COLUMN");
    refuse_golden(":x=", MANTA_EINVAL, "expected :label=COLUMN");
    refuse_golden(":x=a,x=b", MANTA_EINVAL, "expected :label=COLUMN");
    refuse_golden(":label=label,", MANTA_EINVAL, "expected :label=COLUMN");
}

/* Every prefix is refused with a sentence, and nothing stays allocated. So is
 * every file with one byte changed, or it is read; never anything else. */
static void damaged_files_are_refused_or_read(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "t.parquet", GOLDEN "plain.parquet"};
    const manta_open_options nan = {.allow_nan = true};

    for (int i = 0; i < 2; i++) {
        void *bytes = NULL;
        size_t size = 0;
        assert_int_equal(file_read(files[i], 1 << 20, &bytes, &size), MANTA_OK);
        int64_t live = mem_live();
        for (size_t n = 0; n < size; n++) {
            manta_dataset *d = NULL;
            uint8_t *cut = malloc(n + 1); /* exact, so that a sanitizer sees the end */
            memcpy(cut, bytes, n);
            manta_status st = open_bytes(cut, n, "x+img", "label", &nan, &d);
            free(cut);
            if (st != MANTA_ECORRUPT) fail_msg("%zu of %zu bytes: %d, %s", n, size, st, manta_error_text());
            assert_error_says("f.parquet: ");
            assert_int_equal(mem_live(), live);
        }
        uint8_t *other = bytes;
        int refused = 0;
        for (size_t at = 0; at < size; at++) {
            static const uint8_t flips[] = {0x01, 0x80, 0xff};
            for (int k = 0; k < 3; k++) {
                manta_dataset *d = NULL;
                other[at] ^= flips[k];
                if (open_bytes(other, size, "x+img", "label", &nan, &d)) {
                    assert_true(strlen(manta_error_text()) > 10);
                    refused++;
                } else {
                    manta_dataset_unref(d);
                }
                other[at] ^= flips[k];
                assert_int_equal(mem_live(), live);
            }
        }
        assert_true(refused > 300); /* the footer's own bytes, if nothing else */
        mem_try_free(bytes);
    }
}

/* ---- files made here ---- */

static void expect_refusal(maker *m, manta_status code, const char *word)
{
    manta_dataset *d = NULL;
    int64_t live = mem_live();
    size_t size;
    const uint8_t *bytes = maker_end(m, &size);
    manta_status st = open_bytes(bytes, size, NULL, NULL, NULL, &d);

    assert_fails_with(st, code, word);
    assert_int_equal(mem_live(), live);
}

static const float three[] = {1.5f, -2, 3};

static void made_files_are_read(void **state)
{
    (void)state;
    maker m = {.type = PARQUET_FLOAT, .rows = 3, .values = 3, .data = three, .data_size = sizeof three};
    manta_dataset *d = NULL;
    manta_batch b;
    size_t size;

    const uint8_t *bytes = maker_end(&m, &size);
    assert_ok(open_bytes(bytes, size, NULL, NULL, NULL, &d));
    manta_loader *l = whole_batch(d, &b);
    assert_memory_equal(manta_batch_find(&b, "x")->data, three, sizeof three);
    manta_loader_close(l);
    manta_dataset_unref(d);
}

/* Each of these differs from the file above in one thing. */
#define MADE(...)                                                                                            \
    &(maker)                                                                                                 \
    {                                                                                                        \
        .type = PARQUET_FLOAT, .rows = 3, .values = 3, .data = three, .data_size = sizeof three, __VA_ARGS__ \
    }

static void encodings_we_have_not_are_refused(void **state)
{
    (void)state;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
    static const struct {
        int encoding;
        const char *name;
    } encodings[] = {{5, "DELTA_BINARY_PACKED (5)"},
                     {6, "DELTA_LENGTH_BYTE_ARRAY (6)"},
                     {7, "DELTA_BYTE_ARRAY (7)"},
                     {9, "BYTE_STREAM_SPLIT (9)"},
                     {3, "RLE (3)"},
                     {77, "? (77)"}};
    for (size_t i = 0; i < sizeof encodings / sizeof encodings[0]; i++) {
        expect_refusal(MADE(.encoding = encodings[i].encoding), MANTA_EUNSUPPORTED, encodings[i].name);
        assert_error_says("column 'v'");
    }
    expect_refusal(MADE(.codec = 4), MANTA_EUNSUPPORTED, "packed with BROTLI (codec 4)");
    expect_refusal(MADE(.codec = 5), MANTA_EUNSUPPORTED, "packed with LZ4 (codec 5)");
    expect_refusal(MADE(.codec = 7), MANTA_EUNSUPPORTED, "packed with LZ4_RAW (codec 7)");
    expect_refusal(MADE(.codec = 3), MANTA_EUNSUPPORTED, "packed with LZO");
    expect_refusal(MADE(.codec = 99), MANTA_EUNSUPPORTED, "codec 99");
    expect_refusal(MADE(.codec = 1), MANTA_ECORRUPT, "Snappy data is damaged");
    expect_refusal(MADE(.codec = 2), MANTA_ECORRUPT, "gzip data");
    expect_refusal(MADE(.codec = 6), MANTA_ECORRUPT, "zstd data is damaged");
    expect_refusal(MADE(.encoding = 8), MANTA_ECORRUPT, "needs a dictionary");
    expect_refusal(MADE(.rows = 4), MANTA_ECORRUPT, "3 rows in a row group of 4");
    expect_refusal(MADE(.file_rows = 5), MANTA_ECORRUPT, "not the file's in sum");
    expect_refusal(MADE(.values = 4), MANTA_ECORRUPT, "bytes end before its 4 values");
    expect_refusal(MADE(.chunk_values = 4), MANTA_ECORRUPT, "ends before all of its values");
    expect_refusal(MADE(.chunk_values = 2), MANTA_ECORRUPT, "at most the 2 left");
    expect_refusal(MADE(.values = 1 << 30, .chunk_values = 1 << 30), MANTA_ECORRUPT,
                   "claim to hold 1073741824");
    expect_refusal(MADE(.unpacked = 13), MANTA_ECORRUPT, "12 bytes cannot become 13");
    expect_refusal(MADE(.unpacked = 11), MANTA_ECORRUPT, "12 bytes that are not packed, expected 11");
    expect_refusal(MADE(.packed = 13), MANTA_ECORRUPT, "13 bytes, expected at most the 12");
    expect_refusal(MADE(.packed = -5), MANTA_ECORRUPT, "-5 bytes");
    expect_refusal(MADE(.crc = 17), MANTA_ECORRUPT, "checksum is wrong");
    expect_refusal(MADE(.chunk_at = 1 << 20), MANTA_ECORRUPT, "lies outside the file");
    expect_refusal(MADE(.chunk_size = 1 << 20), MANTA_ECORRUPT, "lies outside the file");
    expect_refusal(MADE(.chunk_type = PARQUET_INT32), MANTA_ECORRUPT, "another type than in the schema");
    expect_refusal(MADE(.type = 12), MANTA_ECORRUPT, "no known type");
    expect_refusal(MADE(.type = PARQUET_INT96), MANTA_EUNSUPPORTED, "is a time (INT96)");
    expect_refusal(MADE(.type = PARQUET_INT32, .converted = 6), MANTA_EUNSUPPORTED, "is a date (INT32)");
    expect_refusal(MADE(.type = PARQUET_INT32, .converted = 5), MANTA_EUNSUPPORTED, "is a decimal (INT32)");
    expect_refusal(MADE(.type = PARQUET_BYTE_ARRAY), MANTA_ECORRUPT, "bytes end before its 3 values");
    expect_refusal(MADE(.repetition = 1), MANTA_ECORRUPT, "levels are cut off"); /* the floats are none */
    expect_refusal(MADE(.repetition = 1, .level_encoding = 4), MANTA_EUNSUPPORTED, "BIT_PACKED (4)");
    expect_refusal(MADE(.external = true), MANTA_EUNSUPPORTED, "column 'v' lies in another file");
    expect_refusal(MADE(.encrypted = true), MANTA_EUNSUPPORTED, "column 'v' is encrypted");
    expect_refusal(MADE(.magic = "PARE"), MANTA_EUNSUPPORTED, "the Parquet file is encrypted");
    expect_refusal(MADE(.magic = "PAR2"), MANTA_ECORRUPT, "cut off");
    static const float nan[] = {1, NAN, 2};
    expect_refusal(MADE(.data = nan), MANTA_ENAN, "value 1 is NaN");
#pragma GCC diagnostic pop
}

/* Lists must be of one length. */
static void lists_must_be_of_one_length(void **state)
{
    (void)state;
    /* rep 0 1 0 (runs of width 1), def 1 1 1, then three numbers */
    static const uint8_t page[] = {2, 0, 0, 0, 3, 2, 2,   0,  0, 0, 6, 1,
                                   0, 0, 0, 0, 0, 0, 128, 63, 0, 0, 0, 64};
    maker m = {.type = PARQUET_FLOAT,
               .repetition = 2,
               .rows = 2,
               .values = 3,
               .data = page,
               .data_size = sizeof page};

    expect_refusal(&m, MANTA_EINVAL, "list in row 1 has 1 values, expected 2");
}

typedef struct file_bytes {
    void *data;
    size_t size;
} file_bytes;

static manta_status open_columns(void *ctx)
{
    const file_bytes *f = ctx;
    manta_dataset *d = NULL;
    manta_status st =
        open_bytes(f->data, f->size, "x+img", "label", &(manta_open_options){.allow_nan = true}, &d);

    if (!st) manta_dataset_unref(d);
    return st;
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    file_bytes f = {0};

    assert_ok(file_read(GOLDEN "t.parquet", 1 << 20, &f.data, &f.size));
    int64_t n = alloc_fail_each(open_columns, &f);
    assert_true(n > 9 && n < 999);
    mem_try_free(f.data);
}

/* A forked process decodes what its parent had not. */
static void a_forked_process_decodes_for_itself(void **state)
{
    (void)state;
    manta_dataset *d = NULL;
    manta_batch b;
    assert_int_equal(manta_dataset_open(GOLDEN "t.parquet:x=img,label=label", NULL, &d), MANTA_OK);
    pid_t child = fork();
    if (child == 0) {
        manta_loader *l = whole_batch(d, &b);
        int right = ((int64_t *)manta_batch_find(&b, "y")->data)[2] == 3;
        manta_loader_close(l);
        _exit(right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    manta_dataset_unref(d);
}

/* ---- parts ---- */

static void run_lengths_are_decoded(void **state)
{
    (void)state;
    uint32_t out[20];
    /* 8 values 0..7 of 3 bits (the format's own example), then five times 6 */
    static const uint8_t bytes[] = {0x03, 0x88, 0xc6, 0xfa, 0x0a, 0x06};
    parquet_rle r = parquet_rle_of(bytes, sizeof bytes, 3);
    assert_true(parquet_rle_take(&r, out, 5));
    assert_true(parquet_rle_take(&r, out + 5, 8));
    for (uint32_t i = 0; i < 13; i++) assert_int_equal(out[i], i < 8 ? i : 6);
    assert_false(parquet_rle_take(&r, out, 1));

    /* a value of more bits than the width; a run that is cut off; bit width 0 and 32 */
    static const uint8_t wide[] = {0x0a, 0x08}, cut[] = {0x0a}, wide32[] = {0x04, 1, 2, 3, 0xff},
                         none[] = {0x08};
    r = parquet_rle_of(wide, 2, 3);
    assert_false(parquet_rle_take(&r, out, 1));
    r = parquet_rle_of(cut, 1, 3);
    assert_false(parquet_rle_take(&r, out, 1));
    r = parquet_rle_of(wide32, 5, 32);
    assert_true(parquet_rle_take(&r, out, 2));
    assert_int_equal(out[1], 0xff030201);
    r = parquet_rle_of(none, 1, 0);
    assert_true(parquet_rle_take(&r, out, 4));
    assert_int_equal(out[3], 0);
    assert_false(parquet_rle_take(&r, out, 1));
    uint8_t levels[16];
    static const uint8_t ones[] = {0x05, 0x0f, 0xf0};
    r = parquet_rle_of(ones, 3, 1);
    assert_true(parquet_rle_take_bytes(&r, levels, 16));
    for (int i = 0; i < 16; i++) assert_int_equal(levels[i], i < 4 || i >= 12);
}

static void thrift_structs_are_read(void **state)
{
    (void)state;
    /* 1: i32 -2, 2: bool true, 3: list of 2 i32, 20: binary "ab", 21: struct { 1: map } */
    static const uint8_t bytes[] = {0x15, 0x03, 0x11, 0x19, 0x25, 0x02, 0x04, 0x08, 0x28, 2,
                                    'a',  'b',  0x1c, 0x1b, 1,    0x55, 2,    4,    0x00, 0x00};
    for (size_t size = 0; size <= sizeof bytes; size++) {
        thrift t = thrift_read(bytes, size);
        thrift_field f = {0};
        int seen = 0;
        size_t n;
        while (thrift_next(&t, &f)) {
            seen++;
            if (f.id == 1) assert_true(thrift_int(&t, &f) == (t.wrong ? 0 : -2));
            if (f.id == 2) assert_true(thrift_bool(&t, &f));
            if (f.id == 3 && thrift_list(&t, &f, THRIFT_I32) == 2) {
                assert_int_equal(thrift_list_int(&t), t.wrong ? 0 : 1);
                assert_int_equal(thrift_list_int(&t), t.wrong ? 0 : 2);
            }
            if (f.id == 20) {
                const uint8_t *at = thrift_binary(&t, &f, &n);
                assert_int_equal(n, t.wrong ? 0 : 2);
                if (at) assert_memory_equal(at, "ab", 2);
            }
            if (f.id == 21) thrift_skip(&t, f.type);
        }
        assert_int_equal(t.wrong == NULL, size == sizeof bytes);
        if (!t.wrong) assert_int_equal(seen, 5);
    }
    /* structures without end */
    uint8_t deep[100];
    memset(deep, 0x1c, sizeof deep);
    thrift t = thrift_read(deep, sizeof deep);
    thrift_skip(&t, THRIFT_STRUCT);
    assert_non_null(t.wrong);
    assert_non_null(strstr(t.wrong, "too deep"));
}

static void codecs_unpack_within_their_bounds(void **state)
{
    (void)state;
    uint8_t out[8];
    assert_string_equal(parquet_codec_name(7), "LZ4_RAW");
    assert_string_equal(parquet_codec_name(8), "?");
    assert_string_equal(parquet_codec_name(-1), "?");
    assert_true(parquet_codec_most(0, 10) == 10);
    assert_true(parquet_codec_most(6, SIZE_MAX / 2) == SIZE_MAX);
    assert_int_equal(parquet_codec_unpack(0, "w", (const uint8_t *)"abc", 3, out, 3), MANTA_OK);
    assert_memory_equal(out, "abc", 3);
    /* Snappy by hand: length 5, a literal of 1, a copy of 4 from 1 back */
    static const uint8_t snappy[] = {5, 0, 'a', 1, 1};
    assert_int_equal(parquet_codec_unpack(1, "w", snappy, 5, out, 5), MANTA_OK);
    assert_memory_equal(out, "aaaaa", 5);
    assert_int_equal(parquet_codec_unpack(1, "w", snappy, 5, out, 4), MANTA_ECORRUPT);
    assert_int_equal(parquet_codec_unpack(1, "w", snappy, 4, out, 5), MANTA_ECORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_files_are_read),
        cmocka_unit_test(wrong_columns_are_refused),
        cmocka_unit_test(damaged_files_are_refused_or_read),
        cmocka_unit_test(made_files_are_read),
        cmocka_unit_test(encodings_we_have_not_are_refused),
        cmocka_unit_test(lists_must_be_of_one_length),
        cmocka_unit_test(failed_allocations_are_reported),
        cmocka_unit_test(a_forked_process_decodes_for_itself),
        cmocka_unit_test(run_lengths_are_decoded),
        cmocka_unit_test(thrift_structs_are_read),
        cmocka_unit_test(codecs_unpack_within_their_bounds),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
