/* Every writer, killed at every system call that changes something: a reader
 * finds the old file or the new one, whole. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static int kill_fsync(int fd)
{
    kill_before();
    int rc = os_real.fsync(fd);
    kill_here(true);
    return rc;
}

static int kill_rename(const char *from, const char *to)
{
    kill_before();
    int rc = os_real.rename(from, to);
    kill_here(true);
    return rc;
}

/* A model of two layers whose weights are all `value`, and its arrays. */
typedef struct world {
    manta_model *m;
    float numbers[64];
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
    for (int i = 0; i < 64; i++) w->numbers[i] = value;
    w->c = (manta_contents){.model = w->m, .n_arrays = manta_model_variables(w->m), .arrays = w->columns};
    for (int i = 0; i < w->c.n_arrays; i++) {
        manta_variable_info v = manta_model_variable(w->m, i);
        w->columns[i] = (manta_column){.name = v.name,
                                       .array = manta_array_of(MANTA_DTYPE_F32, v.ndim, v.shape, w->numbers)};
    }
}

/* The bytes of a file; NULL when there is none. */
static void *load(const char *path, size_t *size)
{
    void *bytes = NULL;

    *size = 0;
    return file_read(path, 1 << 24, &bytes, size) ? NULL : bytes;
}

static void write_or_fail(const char *path, const manta_contents *c)
{
    if (manta_file_write(path, NULL, c)) fail_msg("%s: %s", path, manta_error_text());
}

static void sweep(const char *path, const world *old, const world *new_, const os_sys *table)
{
    int seen_old = 0, seen_new = 0, round = 2;
    size_t n_old, n_new, n;
    void *is_old, *is_new;

    write_or_fail(path, &new_->c);
    is_new = load(path, &n_new);
    write_or_fail(path, &old->c);
    is_old = load(path, &n_old);
    assert_true(is_old && is_new && (n_old != n_new || memcmp(is_old, is_new, n_old) != 0));
    for (; round < 2000; round++) {
        int status;
        pid_t child;
        void *after;
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
        after = load(path, &n);
        assert_non_null(after);
        if (n == n_old && memcmp(after, is_old, n) == 0) {
            seen_old++;
        } else {
            assert_int_equal(n, n_new);
            assert_memory_equal(after, is_new, n);
            seen_new++;
        }
        mem_try_free(after);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            break;
        }
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    assert_true(round < 2000 && seen_old >= 3 && seen_new >= 2);
    mem_try_free(is_old);
    mem_try_free(is_new);
}

static void old_or_new_in_every_format(void **state)
{
    static const char *const names[] = {"m.keras",       "m.weights.h5", "m.h5",  "m.npz",
                                        "m.safetensors", "m.pt",         "m.onnx"};
    os_sys table = os_real;
    world old, new_;

    (void)state;
    table.open = kill_open;
    table.write = kill_write;
    table.pwrite = kill_pwrite;
    table.fsync = kill_fsync;
    table.rename = kill_rename;
    make_world(&old, 1.5f);
    make_world(&new_, 2.5f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sweep(scratch_path(names[i]), &old, &new_, &table);
    }
    manta_model_free(old.m);
    manta_model_free(new_.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_or_new_in_every_format)};

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
