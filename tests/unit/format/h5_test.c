/* h5_test.c - what our writer of HDF5 makes, and what the reader takes and refuses.
 * libhdf5 stands on the other side of both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <hdf5.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "format/h5.h"
#include "format/h5_out.h"

/* ---- our writer ---- */

static manta_status to_buf(void *ctx, const void *data, size_t n)
{
    buf_add(ctx, data, n);
    return MANTA_OK;
}

/* An aligned copy of the bytes, as readers are given them. */
static uint8_t *image_of(const h5_out *o, size_t *size)
{
    buf b = {0};
    uint8_t *copy;

    assert_int_equal(h5_out_emit(o, to_buf, &b), MANTA_OK);
    assert_int_equal(b.n, o->size);
    copy = mem_try_raw(b.n);
    memcpy(copy, b.at, b.n);
    *size = b.n;
    buf_release(&b);
    return copy;
}

/* Groups of every size around the limits of a leaf and of a B-tree node. */
static void a_tree_of_any_size_reads_back(void **state)
{
    static const int sizes[] = {0, 1, 7, 8, 9, 255, 256, 257, 600, 8193};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int n = sizes[k];
        float *numbers = mem_new((size_t)(n + 1) * sizeof *numbers);
        h5_out o = {0};
        h5_file *f = NULL;
        manta_saved *s = mem_new(sizeof *s);
        h5_names names = {0};
        size_t size;
        uint8_t *image;

        for (int i = 0; i < n; i++) {
            char path[48];
            manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &numbers[i]);
            numbers[i] = (float)i;
            snprintf(path, sizeof path, "layers/x/vars/%d", i);
            h5_out_dataset(&o, path, &a);
        }
        h5_out_group(&o, "layers/x/vars");
        h5_out_group(&o, "vars");
        h5_out_layout(&o);
        image = image_of(&o, &size);
        assert_int_equal(h5_open("made", image, size, &f), MANTA_OK);
        assert_int_equal(h5_list(f, "layers/x/vars", &names), MANTA_OK);
        assert_int_equal(names.n, n);
        for (int i = 0; i < n; i += n / 50 + 1) {
            char path[48];
            const manta_array *a;
            snprintf(path, sizeof path, "layers/x/vars/%d", i);
            assert_int_equal(h5_read(f, path, s, path), MANTA_OK);
            a = manta_saved_find(s, path);
            assert_true(((const float *)a->data)[0] == (float)i);
            assert_true((uint8_t *)a->data > image && (uint8_t *)a->data < image + size); /* no copy */
        }
        h5_names_release(&names);
        manta_saved_free(s);
        h5_close(f);
        h5_out_release(&o);
        mem_try_free(image);
        mem_free(numbers);
    }
}

static void shapes_and_types_read_back(void **state)
{
    float w[6] = {1, 2, 3, 4, 5, 6}, one = 2.5f;
    int64_t count = 1ll << 40;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 3}, w);
    manta_array scalar = manta_array_of(MANTA_DTYPE_F32, 0, NULL, &one);
    manta_array whole = manta_array_of(MANTA_DTYPE_I64, 0, NULL, &count);
    manta_array empty = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){0, 3}, w);
    h5_out o = {0};
    h5_file *f = NULL;
    manta_saved *s = mem_new(sizeof *s);
    size_t size;
    uint8_t *image;
    h5_kind kind;

    (void)state;
    h5_out_dataset(&o, "a", &a);
    h5_out_dataset(&o, "deep/scalar", &scalar);
    h5_out_dataset(&o, "deep/whole", &whole);
    h5_out_dataset(&o, "deep/empty", &empty);
    h5_out_layout(&o);
    image = image_of(&o, &size);
    assert_int_equal(h5_open("made", image, size, &f), MANTA_OK);
    assert_int_equal(h5_read(f, "a", s, "a"), MANTA_OK);
    assert_int_equal(h5_read(f, "deep/scalar", s, "scalar"), MANTA_OK);
    assert_int_equal(h5_read(f, "deep/whole", s, "whole"), MANTA_OK);
    assert_int_equal(h5_read(f, "deep/empty", s, "empty"), MANTA_OK);
    assert_memory_equal(manta_saved_find(s, "a")->data, w, sizeof w);
    assert_int_equal(manta_saved_find(s, "scalar")->ndim, 0);
    assert_true(*(float *)manta_saved_find(s, "scalar")->data == 2.5f);
    assert_int_equal(*(int64_t *)manta_saved_find(s, "whole")->data, 1ll << 40);
    assert_int_equal(manta_array_count(manta_saved_find(s, "empty")), 0);
    assert_int_equal(h5_find(f, "deep", &kind), MANTA_OK);
    assert_int_equal(kind, H5_GROUP);
    assert_int_equal(h5_find(f, "a/b", &kind), MANTA_OK);
    assert_int_equal(kind, H5_NOTHING);
    assert_int_equal(h5_read(f, "nowhere", s, "n"), MANTA_ENOENT);
    assert_int_equal(h5_read(f, "deep", s, "d"), MANTA_ENOENT);
    assert_int_equal(h5_read(f, "a", s, "a"), MANTA_EEXIST);
    manta_saved_free(s);
    h5_close(f);
    h5_out_release(&o);
    mem_try_free(image);
}

static manta_status refuse_after(void *ctx, const void *data, size_t n)
{
    (void)data;
    (void)n;
    return --*(int *)ctx < 0 ? manta_fail(MANTA_ENOSPC, "full") : MANTA_OK;
}

static void a_failing_sink_ends_the_writing(void **state)
{
    float w[100] = {0};
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){100}, w);
    h5_out o = {0};

    (void)state;
    h5_out_dataset(&o, "a", &a);
    h5_out_dataset(&o, "b", &a);
    h5_out_layout(&o);
    for (int n = 0; n < 3; n++) {
        int left = n;
        assert_int_equal(h5_out_emit(&o, refuse_after, &left), MANTA_ENOSPC);
    }
    h5_out_release(&o);
}

/* ---- files that libhdf5 made ---- */

typedef void (*make_fn)(hid_t file);

/* The image of a file that `make` fills. */
static uint8_t *made_by(make_fn make, size_t *size)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), file;
    uint8_t *image;
    ssize_t n;

    H5Pset_fapl_core(access, 1 << 16, 0);
    file = H5Fcreate("h5_test", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    make(file);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    n = H5Fget_file_image(file, NULL, 0);
    image = mem_try_raw((size_t)n);
    assert_int_equal(H5Fget_file_image(file, image, (size_t)n), n);
    H5Fclose(file);
    H5Pclose(access);
    *size = (size_t)n;
    return image;
}

static void put(hid_t file, const char *name, hid_t type, hid_t memory, hid_t plist, const void *data,
                hsize_t n)
{
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t d = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);

    assert_true(d >= 0);
    assert_true(H5Dwrite(d, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(d);
    H5Sclose(space);
}

static const float numbers[4] = {1, -2, 0.5f, 1024};

static void make_types(hid_t file)
{
    hid_t packed = H5Pcreate(H5P_DATASET_CREATE), opaque = H5Tcreate(H5T_OPAQUE, 2),
          half = H5Tcopy(H5T_IEEE_F32LE);
    hid_t text = H5Tcopy(H5T_C_S1), one = H5Screate(H5S_SCALAR), d, a;
    hsize_t chunk = 2;
    uint16_t brain[4];

    for (int i = 0; i < 4; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        brain[i] = (uint16_t)(bits >> 16);
    }
    H5Pset_chunk(packed, 1, &chunk);
    H5Pset_shuffle(packed);
    H5Pset_deflate(packed, 6);
    H5Tset_fields(half, 15, 10, 5, 0, 10);
    H5Tset_size(half, 2);
    H5Tset_ebias(half, 15);
    put(file, "f32", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, H5P_DEFAULT, numbers, 4);
    put(file, "big", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, H5P_DEFAULT, numbers, 4);
    put(file, "f64", H5T_IEEE_F64LE, H5T_NATIVE_FLOAT, H5P_DEFAULT, numbers, 4);
    put(file, "half", half, H5T_NATIVE_FLOAT, H5P_DEFAULT, numbers, 4);
    put(file, "packed", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, packed, numbers, 4);
    put(file, "brain", opaque, opaque, H5P_DEFAULT, brain, 4);
    d = H5Dopen2(file, "brain", H5P_DEFAULT);
    H5Tset_size(text, 8);
    a = H5Acreate2(d, "dtype", text, one, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, text, "bfloat16");
    H5Aclose(a);
    H5Dclose(d);
    H5Tclose(text);
    H5Tclose(half);
    H5Tclose(opaque);
    H5Sclose(one);
    H5Pclose(packed);
}

static void every_float_becomes_one_of_ours(void **state)
{
    static const struct {
        const char *name;
        manta_dtype dtype;
    } want[] = {{"f32", MANTA_DTYPE_F32},
                {"big", MANTA_DTYPE_F32},
                {"f64", MANTA_DTYPE_F64},
                {"half", MANTA_DTYPE_F16},
                {"packed", MANTA_DTYPE_F32}};
    size_t size;
    uint8_t *image = made_by(make_types, &size);
    manta_saved *s = mem_new(sizeof *s);
    h5_file *f = NULL;

    (void)state;
    assert_int_equal(h5_open("made", image, size, &f), MANTA_OK);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const manta_array *a;
        assert_int_equal(h5_read(f, want[i].name, s, want[i].name), MANTA_OK);
        a = manta_saved_find(s, want[i].name);
        assert_int_equal(a->dtype, want[i].dtype);
        for (int k = 0; k < 4; k++) {
            double got = a->dtype == MANTA_DTYPE_F32   ? (double)((float *)a->data)[k]
                         : a->dtype == MANTA_DTYPE_F64 ? ((double *)a->data)[k]
                                                       : (double)f16_to_f32(((uint16_t *)a->data)[k]);
            assert_true(got == (double)numbers[k]);
        }
    }
    assert_int_equal(h5_read(f, "brain", s, "brain"), MANTA_OK);
    assert_int_equal(manta_saved_find(s, "brain")->dtype, MANTA_DTYPE_BF16);
    for (int k = 0; k < 4; k++) {
        assert_true(bf16_to_f32(((uint16_t *)manta_saved_find(s, "brain")->data)[k]) == numbers[k]);
    }
    manta_saved_free(s);
    h5_close(f);
    mem_try_free(image);
}

static void make_strange(hid_t file)
{
    hid_t outside = H5Pcreate(H5P_DATASET_CREATE), late = H5Pcreate(H5P_DATASET_CREATE);
    hid_t virtual = H5Pcreate(H5P_DATASET_CREATE), space, d, text = H5Tcopy(H5T_C_S1);
    hsize_t n = 4, huge = 1ull << 50;

    put(file, "there", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, H5P_DEFAULT, numbers, 4);
    H5Lcreate_soft("/there", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("/etc/passwd", "/", file, "external", H5P_DEFAULT, H5P_DEFAULT);
    H5Pset_external(outside, "/etc/passwd", 0, 16);
    space = H5Screate_simple(1, &n, NULL);
    d = H5Dcreate2(file, "outside", H5T_IEEE_F32LE, space, H5P_DEFAULT, outside, H5P_DEFAULT);
    H5Dclose(d);
    H5Pset_virtual(virtual, space, "/etc/other.h5", "x", space);
    d = H5Dcreate2(file, "virtual", H5T_IEEE_F32LE, space, H5P_DEFAULT, virtual, H5P_DEFAULT);
    H5Dclose(d);
    H5Tset_size(text, 4);
    d = H5Dcreate2(file, "text", text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(d);
    H5Sclose(space);
    /* A petabyte that nobody stored. */
    space = H5Screate_simple(1, &huge, NULL);
    d = H5Dcreate2(file, "huge", H5T_IEEE_F32LE, space, H5P_DEFAULT, late, H5P_DEFAULT);
    H5Dclose(d);
    n = 1 << 20;
    H5Pset_chunk(late, 1, &n);
    H5Pset_deflate(late, 1);
    d = H5Dcreate2(file, "sparse", H5T_IEEE_F32LE, space, H5P_DEFAULT, late, H5P_DEFAULT);
    H5Dclose(d);
    H5Sclose(space);
    H5Tclose(text);
    H5Pclose(outside);
    H5Pclose(late);
    H5Pclose(virtual);
}

static void what_lies_elsewhere_or_nowhere_is_refused(void **state)
{
    static const struct {
        const char *at;
        manta_status code;
        const char *word;
    } want[] = {{"soft", MANTA_EUNSUPPORTED, "link"},
                {"external/root", MANTA_EUNSUPPORTED, "link"},
                {"outside", MANTA_EUNSUPPORTED, "another file"},
                {"virtual", MANTA_EUNSUPPORTED, "another file"},
                {"text", MANTA_EUNSUPPORTED, "type"},
                {"huge", MANTA_ECORRUPT, "bytes"},
                {"sparse", MANTA_ECORRUPT, "bytes"}};
    size_t size;
    uint8_t *image = made_by(make_strange, &size);
    int64_t live = mem_live();
    manta_saved *s = mem_new(sizeof *s);
    h5_file *f = NULL;

    (void)state;
    assert_int_equal(h5_open("made", image, size, &f), MANTA_OK);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(h5_read(f, want[i].at, s, want[i].at), want[i].code);
        assert_non_null(strstr(manta_error_text(), want[i].word));
        assert_non_null(strstr(manta_error_text(), "made: /"));
    }
    assert_int_equal(h5_read(f, "there", s, "there"), MANTA_OK);
    manta_saved_free(s);
    h5_close(f);
    assert_int_equal(mem_live(), live);
    mem_try_free(image);
}

static void a_cut_file_is_refused(void **state)
{
    size_t size;
    uint8_t *image = made_by(make_types, &size);

    (void)state;
    for (size_t n = 0; n < size; n += 61) {
        uint8_t *part = mem_try_raw(n + 1);
        manta_saved *s = mem_new(sizeof *s);
        h5_file *f = NULL;
        manta_status st;
        memcpy(part, image, n);
        st = h5_open("cut", part, n, &f);
        if (!st) st = h5_read(f, "f64", s, "x"); /* its elements lie near the end */
        assert_true(st != MANTA_OK || n > size / 2);
        if (st) assert_true(manta_error_text()[0]);
        h5_close(f);
        manta_saved_free(s);
        mem_try_free(part);
    }
    mem_try_free(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_of_any_size_reads_back),
        cmocka_unit_test(shapes_and_types_read_back),
        cmocka_unit_test(a_failing_sink_ends_the_writing),
        cmocka_unit_test(every_float_becomes_one_of_ours),
        cmocka_unit_test(what_lies_elsewhere_or_nowhere_is_refused),
        cmocka_unit_test(a_cut_file_is_refused),
    };

    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
