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

enum { N_WEIGHTS = 4 * 3 + 3 + 3 * 2 + 2 };

/* A model of two layers whose weights are all `value`, and its arrays. */
typedef struct world {
    manta_model *m;
    float numbers[N_WEIGHTS];
    manta_column columns[4];
    manta_contents c;
} world;

static void make_world(world *w, float value)
{
    memset(w, 0, sizeof *w);
    w->m = manta_model_new("small");
    manta_input(w->m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){4});
    manta_add(w->m, manta_dense(w->m, (manta_dense_options){.units = 3, .activation = "relu"}));
    manta_add(w->m, manta_dense(w->m, (manta_dense_options){.units = 2}));
    assert_int_equal(manta_model_build(w->m), MANTA_OK);
    for (int i = 0; i < N_WEIGHTS; i++) w->numbers[i] = value;
    w->c = (manta_contents){.model = w->m, .n_arrays = manta_model_variables(w->m), .arrays = w->columns};
    for (int i = 0; i < w->c.n_arrays; i++) {
        manta_variable_info v = manta_model_variable(w->m, i);
        w->columns[i] = (manta_column){.name = v.name,
                                       .array = manta_array_of(MANTA_DTYPE_F32, v.ndim, v.shape, w->numbers)};
    }
}

static void write_or_fail(const char *path, const manta_contents *c)
{
    if (manta_file_write(path, NULL, c)) fail_msg("%s: %s", path, manta_error_text());
}

/* The number that every weight in the file is. The file's bytes say less: a
 * format that notes the time has other ones each second. */
static float read_or_fail(const char *path, const manta_contents *c)
{
    manta_saved *s;
    float first = NAN;
    int64_t n = 0;

    if (manta_file_read(path, &(manta_read_options){.like = c->model}, &s)) {
        fail_msg("%s: %s", path, manta_error_text());
    }
    assert_int_equal(manta_saved_arrays(s), c->n_arrays);
    for (int i = 0; i < c->n_arrays; i++) {
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
static float compare_or_fail(const char *path, const world *old, const world *new_)
{
    const world *is[] = {old, new_};
    size_t size, n;
    void *found, *bytes;
    float value = NAN;
    char other[544];

    snprintf(other, sizeof other, "%s.other.onnx", path);
    assert_int_equal(file_read(path, 1 << 20, &found, &size), MANTA_OK);
    for (int i = 0; i < 2; i++) {
        write_or_fail(other, &is[i]->c);
        assert_int_equal(file_read(other, 1 << 20, &bytes, &n), MANTA_OK);
        if (n == size && memcmp(bytes, found, n) == 0) value = is[i]->numbers[0];
        mem_try_free(bytes);
    }
    mem_try_free(found);
    return value;
}

static void sweep(const char *path, const world *old, const world *new_, const os_sys *table)
{
    int seen_old = 0, seen_new = 0, round = 2;

    for (; round < 2000; round++) {
        int status;
        pid_t child;
        float found;
        write_or_fail(path, &old->c);
        kill_at = round / 2;
        kill_after = round % 2;
        kill_calls = 0;
        if ((child = fork()) == 0) {
            os_use(table);
            _exit(manta_file_write(path, NULL, &new_->c) ? 1 : 0);
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        found = strstr(path, ".onnx") ? compare_or_fail(path, old, new_) : read_or_fail(path, &old->c);
        assert_true(found == old->numbers[0] || found == new_->numbers[0]);
        found == old->numbers[0] ? seen_old++ : seen_new++;
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            break;
        }
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    assert_true(round < 2000 && seen_old >= 3 && seen_new >= 2);
}

static void old_or_new_in_every_format(void **state)
{
    static const char *const names[] = {"m.keras",       "m.weights.h5", "m.h5",  "m.npz",
                                        "m.safetensors", "m.pt",         "m.onnx"};
    os_sys table = os_real, quick = os_real;
    world old, new_;

    (void)state;
    table.open = kill_open;
    table.write = kill_write;
    table.pwrite = kill_pwrite;
    table.fsync = kill_fsync;
    table.rename = kill_rename;
    quick.fsync = no_fsync;
    os_use(&quick);
    make_world(&old, 1.5f);
    make_world(&new_, 2.5f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sweep(scratch_path(names[i]), &old, &new_, &table);
    }
    os_use(&os_real);
    manta_model_free(old.m);
    manta_model_free(new_.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_or_new_in_every_format)};

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
