/* numpy_test.c - .npy and .npz: files that NumPy wrote (golden/make.py), files
 * we write, and every way in which one can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>
#include <manta/data_file.h>

#include "alloc_fail.h"
#include "base/half.h"
#include "base/mem.h"
#include "format/array/npy.h"
#include "format/array/npz.h"
#include "ok.h"
#include "scratch.h"

static const char *golden(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/tests/unit/format/golden/%s", MANTA_SOURCE_DIR, name);
    return path;
}

static double value(const manta_array *a, int64_t i)
{
    switch (a->dtype) {
    case MANTA_DTYPE_F32: return ((const float *)a->data)[i];
    case MANTA_DTYPE_F64: return ((const double *)a->data)[i];
    case MANTA_DTYPE_F16: return f16_to_f32(((const uint16_t *)a->data)[i]);
    case MANTA_DTYPE_I32: return ((const int32_t *)a->data)[i];
    case MANTA_DTYPE_I64: return (double)((const int64_t *)a->data)[i];
    default: return ((const uint8_t *)a->data)[i];
    }
}

static void assert_arange(const manta_array *a)
{
    assert_int_equal(a->ndim, 3);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->shape[1], 3);
    assert_int_equal(a->shape[2], 4);
    assert_true(manta_array_is_contiguous(a));
    for (int64_t i = 0; i < 24; i++) assert_true(value(a, i) == (double)i);
}

static void every_dtype_of_numpy_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        manta_dtype dtype;
    } cases[] = {
        {"little-f4.npy", MANTA_DTYPE_F32}, {"big-f4.npy", MANTA_DTYPE_F32},
        {"little-f8.npy", MANTA_DTYPE_F64}, {"big-f8.npy", MANTA_DTYPE_F64},
        {"little-f2.npy", MANTA_DTYPE_F16}, {"big-f2.npy", MANTA_DTYPE_F16},
        {"little-i4.npy", MANTA_DTYPE_I32}, {"big-i4.npy", MANTA_DTYPE_I32},
        {"little-i8.npy", MANTA_DTYPE_I64}, {"big-i8.npy", MANTA_DTYPE_I64},
        {"byte-u1.npy", MANTA_DTYPE_U8},    {"byte-i1.npy", MANTA_DTYPE_I32},
        {"little-i2.npy", MANTA_DTYPE_I32}, {"big-i2.npy", MANTA_DTYPE_I32},
        {"little-u2.npy", MANTA_DTYPE_I32}, {"little-u4.npy", MANTA_DTYPE_I64},
        {"little-u8.npy", MANTA_DTYPE_I64}, {"fortran.npy", MANTA_DTYPE_F32},
        {"version-2.npy", MANTA_DTYPE_I32}, {"version-3.npy", MANTA_DTYPE_I32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        manta_arrays *a = NULL;
        assert_ok(manta_arrays_load(golden(cases[i].file), &a));
        assert_string_equal(manta_arrays_at(a, 0)->name, "");
        assert_null(manta_arrays_at(a, 1));
        assert_int_equal(manta_arrays_at(a, 0)->array.dtype, cases[i].dtype);
        assert_arange(&manta_arrays_at(a, 0)->array);
        manta_arrays_free(a);
    }
}

static void scalars_and_empty_arrays_are_read(void **state)
{
    (void)state;
    manta_arrays *a = NULL;

    assert_int_equal(manta_arrays_load(golden("scalar.npy"), &a), MANTA_OK);
    assert_int_equal(manta_arrays_at(a, 0)->array.ndim, 0);
    assert_true(value(&manta_arrays_at(a, 0)->array, 0) == 7);
    manta_arrays_free(a);
    assert_int_equal(manta_arrays_load(golden("empty.npy"), &a), MANTA_OK);
    assert_int_equal(manta_arrays_at(a, 0)->array.shape[0], 0);
    assert_int_equal(manta_arrays_at(a, 0)->array.shape[1], 3);
    manta_arrays_free(a);
    assert_int_equal(manta_arrays_load(golden("bool.npy"), &a), MANTA_OK);
    assert_int_equal(manta_arrays_at(a, 0)->array.dtype, MANTA_DTYPE_BOOL);
    assert_true(value(&manta_arrays_at(a, 0)->array, 5) == 1);
    manta_arrays_free(a);
    a = NULL;
    assert_int_equal(manta_arrays_load(golden("complex.npy"), &a), MANTA_EUNSUPPORTED);
    assert_int_equal(manta_arrays_load(golden("record.npy"), &a), MANTA_EUNSUPPORTED);
    assert_int_equal(manta_arrays_load(golden("absent.npy"), &a), MANTA_ENOENT);
    assert_null(a);
}

static void archives_of_numpy_are_read(void **state)
{
    (void)state;
    const char *const files[] = {"stored.npz", "deflated.npz"};
    for (int i = 0; i < 2; i++) {
        manta_arrays *a = NULL;
        assert_ok(manta_arrays_load(golden(files[i]), &a));
        assert_non_null(manta_arrays_find(a, "x"));
        assert_arange(manta_arrays_find(a, "x"));
        assert_int_equal(manta_arrays_find(a, "y")->shape[0], 2);
        assert_true(value(manta_arrays_find(a, "y"), 1) == 1);
        assert_null(manta_arrays_find(a, "z"));
        manta_arrays_free(a);

        char spec[600];
        manta_dataset *d = NULL;
        const manta_column_spec *c;
        snprintf(spec, sizeof spec, "%s:x,y", golden(files[i]));
        assert_ok(manta_dataset_open(spec, NULL, &d));
        assert_int_equal(manta_dataset_count(d), 2);
        assert_int_equal(manta_dataset_columns(d, &c), 2);
        assert_string_equal(c[1].name, "y");
        assert_int_equal(c[1].dtype, MANTA_DTYPE_I64); /* labels of u1 became i64 */
        manta_dataset_unref(d);
        snprintf(spec, sizeof spec, "%s:x,label", golden(files[i]));
        assert_int_equal(manta_dataset_open(spec, NULL, &d), MANTA_ENOENT);
        assert_error_says("the members are: x, y");
    }
}

/* Strided, transposed and repeated views come back as the values they show. */
static void views_are_written_as_the_values_they_show(void **state)
{
    (void)state;
    float data[24];
    for (int i = 0; i < 24; i++) data[i] = (float)i;
    int64_t shape[] = {4, 6};
    manta_column c[] = {{"plain", manta_array_of(MANTA_DTYPE_F32, 2, shape, data)},
                        {"turned", manta_array_of(MANTA_DTYPE_F32, 2, shape, data)},
                        {"repeated", manta_array_of(MANTA_DTYPE_F32, 2, shape, data)}};
    c[1].array.shape[0] = 6, c[1].array.shape[1] = 4;
    c[1].array.strides[0] = 1, c[1].array.strides[1] = 6;
    c[2].array.strides[0] = 0;
    const char *path = scratch_path("w.npz");
    manta_arrays *a = NULL;

    assert_ok(manta_arrays_save(path, 3, c));
    assert_ok(manta_arrays_load(path, &a));
    assert_string_equal(manta_arrays_at(a, 1)->name, "turned");
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 6; k++) {
            assert_true(value(manta_arrays_find(a, "plain"), i * 6 + k) == i * 6 + k);
            assert_true(value(manta_arrays_find(a, "turned"), k * 4 + i) == i * 6 + k);
            assert_true(value(manta_arrays_find(a, "repeated"), i * 6 + k) == k);
        }
    }
    manta_arrays_free(a);
    assert_int_equal(manta_arrays_save(scratch_path("one.npy"), 1, c), MANTA_OK);
    assert_int_equal(manta_arrays_load(scratch_path("one.npy"), &a), MANTA_OK);
    assert_true(value(&manta_arrays_at(a, 0)->array, 23) == 23);
    manta_arrays_free(a);
    assert_int_equal(manta_arrays_save(scratch_path("two.npy"), 2, c), MANTA_EINVAL);
    assert_int_equal(manta_arrays_save(scratch_path("w.txt"), 1, c), MANTA_EINVAL);
    c[1].name = "plain";
    assert_int_equal(manta_arrays_save(path, 2, c), MANTA_EINVAL);
    c[0].array.dtype = MANTA_DTYPE_BF16;
    assert_int_equal(manta_arrays_save(scratch_path("bf.npy"), 1, c), MANTA_EUNSUPPORTED);
    assert_int_not_equal(access(scratch_path("bf.npy"), F_OK), 0); /* nothing appears */
    assert_int_equal(manta_arrays_save(scratch_path("no/such/folder.npy"), 1, c + 2), MANTA_ENOENT);
}

/* ---- wrong files ------------------------------------------------------------------------ */

static void refuse_npy(const char *header, size_t payload, manta_status code, const char *word)
{
    uint8_t file[1024] = "\x93NUMPY\1\0";
    size_t n = strlen(header);
    blob b = {0};

    file[8] = (uint8_t)n;
    file[9] = (uint8_t)(n >> 8);
    memcpy(file + 10, header, n);
    memset(file + 10 + n, 0, payload);
    manta_status st = npy_parse("f.npy", file, 10 + n + payload, false, &b);
    assert_fails_with(st, code, word);
    assert_error_says("f.npy");
    assert_null(b.memory);
}

static void bad_headers_are_refused(void **state)
{
    (void)state;
    refuse_npy("", 0, MANTA_ECORRUPT, "expected a dictionary");
    refuse_npy("{", 0, MANTA_ECORRUPT, "expected a string");
    refuse_npy("{'descr': '<f4', 'fortran_order': False}", 0, MANTA_ECORRUPT, "'shape'");
    refuse_npy("{'descr': '<f4', 'fortran_order': No, 'shape': (1,)}", 4, MANTA_ECORRUPT, "True or False");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1}", 4, MANTA_ECORRUPT, "',' or ')'");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, MANTA_ECORRUPT, "a size");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, MANTA_ECORRUPT, "only spaces");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}", 4, MANTA_ECORRUPT,
               "each once");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4,
               MANTA_ECORRUPT, "2^63");
    refuse_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 4,
               MANTA_ECORRUPT, "overflow");
    refuse_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775807, 9)}", 0,
               MANTA_ECORRUPT, "overflow");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
               MANTA_EUNSUPPORTED, "dimensions");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 11, MANTA_ECORRUPT, "11 bytes");
    refuse_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,)}", 8, MANTA_ECORRUPT,
               "expected 4000000000");
    refuse_npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, MANTA_EUNSUPPORTED, "'|O'");
    refuse_npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 8, MANTA_EUNSUPPORTED, "'<c8'");

    blob b = {0};
    assert_int_equal(npy_parse("f", (const uint8_t *)"PK", 2, false, &b), MANTA_ECORRUPT);
    assert_int_equal(npy_parse("f", (const uint8_t *)"\x93NUMPY\1", 7, false, &b), MANTA_ECORRUPT);
    assert_int_equal(npy_parse("f", (const uint8_t *)"\x93NUMPY\4\0\0\0", 10, false, &b), MANTA_ECORRUPT);
    assert_int_equal(npy_parse("f", (const uint8_t *)"\x93NUMPY\1\0\xff\xff", 10, false, &b), MANTA_ECORRUPT);
    assert_error_says("65535");
}

static void nan_is_refused_unless_allowed(void **state)
{
    (void)state;
    float data[] = {1, 2, NAN, 4};
    int64_t shape[] = {4};
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 1, shape, data)};
    const char *path = scratch_path("nan.npy");
    manta_dataset *d = NULL;

    assert_int_equal(manta_arrays_save(path, 1, &c), MANTA_OK);
    assert_int_equal(manta_dataset_open(path, NULL, &d), MANTA_ENAN);
    assert_error_says("element 2");
    assert_int_equal(manta_dataset_open(path, &(manta_open_options){.allow_nan = true}, &d), MANTA_OK);
    manta_dataset_unref(d);
    uint8_t bits[] = {0, 1, 2};
    int64_t three[] = {3};
    c.array = manta_array_of(MANTA_DTYPE_BOOL, 1, three, bits);
    assert_int_equal(manta_arrays_save(path, 1, &c), MANTA_OK);
    assert_int_equal(manta_dataset_open(path, NULL, &d), MANTA_ECORRUPT);
    assert_error_says("is 2");
}

/* Any single byte of an archive changed, and any cut of it: a refusal with a
 * sentence or, where the byte means nothing, the right values. */
static void a_damaged_archive_is_refused_or_read_right(void **state)
{
    (void)state;
    const char *const files[] = {"stored.npz", "deflated.npz"};
    for (int k = 0; k < 2; k++) {
        input in = {0};
        assert_int_equal(input_read(golden(files[k]), &in), MANTA_OK);
        int64_t live = mem_live(), refused = 0;
        for (size_t i = 0; i < in.size; i++) {
            in.data[i] ^= 0x41;
            zip z = {0};
            blob b = {0};
            manta_status st = zip_parse("z", in.data, in.size, &z);
            if (!st) st = npz_member(&z, "x", false, &b);
            if (st) {
                refused++;
                assert_true(manta_error_text()[0]);
            } else {
                assert_arange(&b.array);
            }
            blob_release(&b);
            zip_release(&z);
            in.data[i] ^= 0x41;
        }
        assert_true(refused > (int64_t)in.size / 4); /* of which another quarter is the other array */
        for (size_t n = 0; n < in.size; n++) {
            zip z = {0};
            assert_int_not_equal(zip_parse("z", in.data, n, &z), MANTA_OK);
        }
        assert_int_equal(mem_live(), live);
        input_release(&in);
    }
}

static manta_status load_deflated(void *ctx)
{
    manta_arrays *a = NULL;

    (void)ctx;
    manta_status st = manta_arrays_load(golden("deflated.npz"), &a);
    manta_arrays_free(a);
    return st;
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    assert_true(alloc_fail_each(load_deflated, NULL) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_of_numpy_is_read),
        cmocka_unit_test(scalars_and_empty_arrays_are_read),
        cmocka_unit_test(archives_of_numpy_are_read),
        cmocka_unit_test(views_are_written_as_the_values_they_show),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(nan_is_refused_unless_allowed),
        cmocka_unit_test(a_damaged_archive_is_refused_or_read_right),
        cmocka_unit_test(failed_allocations_are_reported),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
