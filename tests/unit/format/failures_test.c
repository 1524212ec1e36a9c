/* failures_test.c - every system call and every allocation on the way to a
 * dataset made to fail in turn: a sentence, and nothing left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>

#include <cmocka.h>
#include <manta/data_file.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "ok.h"
#include "os/fault.h"
#include "scratch.h"

static int open_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");

    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static int files_here(void)
{
    int n = 0;
    DIR *d = opendir(scratch_dir);

    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static char spec[4][700];

static void make_files(void)
{
    float x[12];
    int64_t y[4] = {0, 1, 2, 3}, shape[] = {4, 3}, four[] = {4};
    uint8_t png[] = {0x89, 'P',  'N',  'G',  13,   10,  26,  10,   0,    0,    0,    13,   'I',  'H',
                     'D',  'R',  0,    0,    0,    1,   0,   0,    0,    1,    8,    0,    0,    0,
                     0,    0x3a, 0x7e, 0x9b, 0x55, 0,   0,   0,    10,   'I',  'D',  'A',  'T',  0x78,
                     0x9c, 0x63, 0x60, 0,    0,    0,   2,   0,    1,    0x48, 0xaf, 0xa4, 0x71, 0,
                     0,    0,    0,    'I',  'E',  'N', 'D', 0xae, 0x42, 0x60, 0x82};

    for (int i = 0; i < 12; i++) x[i] = (float)i;
    manta_column c[] = {{"x", manta_array_of(MANTA_DTYPE_F32, 2, shape, x)},
                        {"y", manta_array_of(MANTA_DTYPE_I64, 1, four, y)}};
    assert_int_equal(manta_arrays_save(scratch_path("a.npz"), 2, c), MANTA_OK);
    assert_int_equal(manta_arrays_save(scratch_path("x.npy"), 1, c), MANTA_OK);
    assert_int_equal(manta_arrays_save(scratch_path("y.npy"), 1, c + 1), MANTA_OK);
    scratch_file("t.csv", "a,b\n1,2\n3,4\n", 12);
    mkdir(scratch_path("images"), 0755);
    mkdir(scratch_path("images/one"), 0755);
    scratch_file("images/one/a.png", png, sizeof png);
    snprintf(spec[0], sizeof spec[0], "%s/a.npz:x,y", scratch_dir);
    snprintf(spec[1], sizeof spec[1], "%s/x.npy,%s/y.npy", scratch_dir, scratch_dir);
    snprintf(spec[2], sizeof spec[2], "%s/t.csv:label=b", scratch_dir);
    snprintf(spec[3], sizeof spec[3], "%s/images", scratch_dir);
}

/* Opens the dataset and reads its first batch. */
static manta_status read_some(const char *text)
{
    manta_dataset *d = NULL;
    manta_loader *l = NULL;
    manta_batch b;
    manta_status st = manta_dataset_open(text, NULL, &d);

    if (st) return st;
    st = manta_loader_open(d, &(manta_loader_options){.batch_size = 2, .readers = MANTA_NONE}, &l);
    manta_dataset_unref(d);
    if (st) return st;
    (void)manta_loader_next(l, &b);
    st = manta_loader_status(l);
    manta_loader_close(l);
    return st;
}

static void every_failing_system_call_is_reported(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        int fds = open_descriptors(), failed = 0, n = 1;
        int64_t live = mem_live();
        for (;; n++) {
            fault_begin((fault_plan){.at = n, .err = EIO});
            manta_status st = read_some(spec[k]);
            bool hit = fault_end() > 0;
            if (st) {
                failed++;
                assert_true(manta_error_text()[0]);
            }
            assert_int_equal(open_descriptors(), fds);
            assert_int_equal(mem_live(), live);
            if (!hit) {
                assert_ok(st);
                break;
            }
        }
        /* At least open, fstat and read of one file; a CSV file that cannot be opened for
         * reading at places is opened once more and read whole, as a pipe would be. */
        assert_true(failed >= (k == 2 ? 2 : 3));
        fault_begin((fault_plan){.short_io = true, .interrupt = true});
        manta_status st = read_some(spec[k]);
        fault_end();
        assert_ok(st);
    }
}

static manta_status read_spec(void *ctx)
{
    return read_some(ctx);
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) assert_true(alloc_fail_each(read_spec, spec[k]) > 3);
}

/* A save that fails leaves the old file whole and no other beside it. */
static void a_failed_save_leaves_the_old_file(void **state)
{
    (void)state;
    float old_value = 1, new_value = 2;
    int64_t one[] = {1};
    manta_column c = {"v", manta_array_of(MANTA_DTYPE_F32, 1, one, &old_value)};
    const char *path = scratch_path("save.npz");
    assert_int_equal(manta_arrays_save(path, 1, &c), MANTA_OK);
    c.array.data = &new_value;
    int here = files_here(), fds = open_descriptors(), failed = 0;
    int64_t live = mem_live();
    for (int n = 1;; n++) {
        fault_begin((fault_plan){.at = n, .err = ENOSPC});
        manta_status st = manta_arrays_save(path, 1, &c);
        bool hit = fault_end() > 0;
        manta_arrays *a = NULL;
        assert_int_equal(open_descriptors(), fds);
        assert_int_equal(mem_live(), live);
        assert_int_equal(files_here(), here);
        assert_ok(manta_arrays_load(path, &a));
        float v = *(float *)manta_arrays_find(a, "v")->data;
        manta_arrays_free(a);
        if (st && st != MANTA_EUNKNOWN) {
            failed++;
            assert_true(v == 1);
        } else {
            assert_true(v == 2);
        }
        if (!hit) break;
        c.array.data = &old_value; /* back to the old contents for the next round */
        if (v == 2) assert_int_equal(manta_arrays_save(path, 1, &c), MANTA_OK);
        c.array.data = &new_value;
    }
    assert_true(failed >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_system_call_is_reported),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(a_failed_save_leaves_the_old_file),
    };
    void *none = NULL;

    if (scratch_setup(&none)) return 1;
    make_files();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return scratch_teardown(&none) ? 1 : failed;
}
