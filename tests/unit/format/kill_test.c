/* Every writer, killed at every system call that changes something: a reader
 * finds the old file or the new one, whole. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <manta/file.h>
#include <manta/layer.h>

#include "base/mem.h"
#include "format/tfrecord/tfrecord.h"
#include "os/file.h"
#include "os/sys.h"
#include "scratch.h"

/* A table that ends the process at its n-th call, before the call or after it. */
static int kill_at, kill_calls;
static bool kill_after;

static void kill_here(bool after)
{
    if (after == kill_after && kill_calls == kill_at) raise(SIGKILL);
}

static void kill_before(void)
{
    kill_calls++;
    kill_here(false);
}

static int kill_open(const char *path, int flags, mode_t mode)
{
    kill_before();
    int fd = os_real.open(path, flags, mode);
    kill_here(true);
    return fd;
}

static ssize_t kill_write(int fd, const void *b, size_t n)
{
    kill_before();
    ssize_t done = os_real.write(fd, b, n);
    kill_here(true);
    return done;
}

static ssize_t kill_pwrite(int fd, const void *b, size_t n, off_t at)
{
    kill_before();
    ssize_t done = os_real.pwrite(fd, b, n, at);
    kill_here(true);
    return done;
}

/* A killed process loses nothing that the kernel holds, so nothing waits for the disk. */
static int no_fsync(int fd)
{
    (void)fd;
    return 0;
}

static int kill_fsync(int fd)
{
    kill_before();
    kill_here(true);
    return no_fsync(fd);
}

static int kill_rename(const char *from, const char *to)
{
    kill_before();
    int rc = os_real.rename(from, to);
    kill_here(true);
    return rc;
}

static int kill_link(const char *from, const char *to)
{
    kill_before();
    int rc = os_real.link(from, to);
    kill_here(true);
    return rc;
}

static int kill_unlink(const char *path)
{
    kill_before();
    int rc = os_real.unlink(path);
    kill_here(true);
    return rc;
}

/* ---- what is written ------------------------------------------------------------------- */

enum { N_WEIGHTS = 4 * 3 + 3 + 3 * 2 + 2, N_RECORDS = 40 };

/* The old contents and the new: a model of two layers whose weights are all
 * `value`, and its arrays. */
typedef struct world {
    manta_model *m;
    float value, numbers[N_WEIGHTS];
    manta_column columns[4];
    manta_contents c;
} world;

static world worlds[2];

static void make_world(world *w, float value)
{
    memset(w, 0, sizeof *w);
    w->value = value;
    w->m = manta_model_new("small");
    manta_input(w->m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){4});
    manta_model_add(w->m, manta_dense(w->m, (manta_dense_options){.units = 3, .activation = "relu"}));
    manta_model_add(w->m, manta_dense(w->m, (manta_dense_options){.units = 2}));
    assert_int_equal(manta_model_build(w->m), MANTA_OK);
    for (int i = 0; i < N_WEIGHTS; i++) w->numbers[i] = value;
    w->c = (manta_contents){.model = w->m, .n_arrays = manta_model_variables(w->m), .arrays = w->columns};
    for (int i = 0; i < w->c.n_arrays; i++) {
        manta_variable_info v = manta_model_variable(w->m, i);
        w->columns[i] = (manta_column){.name = v.name,
                                       .array = manta_array_of(MANTA_DTYPE_F32, v.ndim, v.shape, w->numbers)};
    }
}

static manta_status write_model(const char *path, const world *w)
{
    return manta_file_write(path, NULL, &w->c);
}

/* The number that every weight in the file is. The file's bytes say less: a
 * format that notes the time has other ones each second. */
static float read_model(const char *path)
{
    manta_saved *s;
    float first = NAN;
    int64_t n = 0;

    if (manta_file_read(path, &(manta_read_options){.like = worlds[0].m}, &s)) {
        fail_msg("%s: %s", path, manta_error_text());
    }
    for (int i = 0; i < manta_saved_arrays(s); i++) {
        const manta_array *a = &manta_saved_at(s, i)->array;
        assert_int_equal(a->dtype, MANTA_DTYPE_F32);
        for (int64_t k = 0; k < manta_array_count(a); k++) {
            float x = ((const float *)a->data)[k];
            if (n++ == 0) first = x;
            assert_true(x == first);
        }
    }
    assert_int_equal(n, N_WEIGHTS);
    manta_saved_free(s);
    return first;
}

/* The same for a format that is written only, and the same bytes each time. */
static float compare_model(const char *path)
{
    size_t size, n;
    void *found, *bytes;
    float value = NAN;
    char other[544];

    snprintf(other, sizeof other, "%s.other.onnx", path);
    assert_int_equal(file_read(path, 1 << 20, &found, &size), MANTA_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write_model(other, &worlds[i]), MANTA_OK);
        assert_int_equal(file_read(other, 1 << 20, &bytes, &n), MANTA_OK);
        if (n == size && memcmp(bytes, found, n) == 0) value = worlds[i].value;
        mem_try_free(bytes);
    }
    mem_try_free(found);
    return value;
}

/* Records that are `value` many times over, long enough that the writer's buffer runs full. */
static manta_status write_records(const char *path, const world *w)
{
    static float record[2048];
    tfrecord_writer *out = NULL;
    tfrecord_packing p = strstr(path, ".gz")  ? TFRECORD_GZIP
                         : strstr(path, ".z") ? TFRECORD_ZLIB
                                              : TFRECORD_PLAIN;
    manta_status st = tfrecord_writer_open(path, p, &out);

    for (size_t i = 0; i < sizeof record / sizeof *record; i++) record[i] = w->value;
    for (int i = 0; i < N_RECORDS && !st; i++) st = tfrecord_writer_add(out, record, sizeof record);
    if (!st) st = tfrecord_writer_commit(out);
    tfrecord_writer_free(out);
    return st;
}

static float read_records(const char *path)
{
    char *paths[] = {(char *)(uintptr_t)path};
    const uint8_t *data;
    tfrecord *t = NULL;
    float value = NAN;
    size_t n;

    if (tfrecord_open(1, paths, &t)) fail_msg("%s: %s", path, manta_error_text());
    assert_int_equal(tfrecord_count(t), N_RECORDS);
    tfrecord_reader *r = tfrecord_reader_new(t);
    for (int i = 0; i < N_RECORDS; i++) {
        assert_int_equal(tfrecord_read(r, i, &data, &n), MANTA_OK); /* its sum is checked */
        assert_int_equal(n, 2048 * sizeof(float));
        memcpy(&value, data, sizeof value);
    }
    tfrecord_reader_free(r);
    tfrecord_free(t);
    return value;
}

/* ---- the sweep ------------------------------------------------------------------------- */

typedef manta_status write_fn(const char *path, const world *w);
typedef float look_fn(const char *path); /* whose value it is; fails when the file is not whole */

/* One kill; true when the writer came to its end before it. */
static bool killed_at(int round, const char *path, write_fn *write, const os_sys *table)
{
    int status;
    pid_t child;

    kill_at = round / 2;
    kill_after = round % 2;
    kill_calls = 0;
    if ((child = fork()) == 0) {
        os_use(table);
        _exit(write(path, &worlds[1]) ? 1 : 0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        return true;
    }
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return false;
}

static void sweep(const char *path, write_fn *write, look_fn *look)
{
    int seen[2] = {0}, round = 2;
    os_sys table = os_real, quick = os_real;
    bool ended = false;

    table.open = kill_open;
    table.write = kill_write;
    table.pwrite = kill_pwrite;
    table.fsync = kill_fsync;
    table.rename = kill_rename;
    table.link = kill_link;
    table.unlink = kill_unlink;
    quick.fsync = no_fsync;
    os_use(&quick);
    for (; round < 2000 && !ended; round++) {
        if (write(path, &worlds[0])) fail_msg("%s: %s", path, manta_error_text());
        ended = killed_at(round, path, write, &table);
        float found = look(path);
        assert_true(found == worlds[0].value || found == worlds[1].value);
        seen[found == worlds[1].value]++;
    }
    assert_true(ended && seen[0] >= 3 && seen[1] >= 2);
    os_use(NULL);
}

static void old_or_new_in_every_format(void **state)
{
    static const struct {
        const char *name;
        write_fn *write;
        look_fn *look;
    } all[] = {
        {"m.keras", write_model, read_model},
        {"m.weights.h5", write_model, read_model},
        {"m.h5", write_model, read_model},
        {"m.npz", write_model, read_model},
        {"m.safetensors", write_model, read_model},
        {"m.pt", write_model, read_model},
        {"m.index", write_model, read_model},
        {"m.onnx", write_model, compare_model},
        {"r.tfrecord", write_records, read_records},
        {"r.tfrecord.gz", write_records, read_records},
        {"r.tfrecord.z", write_records, read_records},
    };

    (void)state;
    make_world(&worlds[0], 1.5f);
    make_world(&worlds[1], 2.5f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sweep(scratch_path(all[i].name), all[i].write, all[i].look);
    }
    manta_model_free(worlds[0].m);
    manta_model_free(worlds[1].m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_or_new_in_every_format)};

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
