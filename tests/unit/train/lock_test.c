/* The lock of a folder: one process, whatever its threads ask meanwhile, and not the
 * processes that are forked from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "format/scratch.h"
#include "ok.h"
#include "os/sys.h"
#include "os/thread.h"
#include "train/storage/lock.h"

/* Whom a process of its own finds at work there: 1 us, 2 nobody, 3 itself. */
static int seen_by_another(const char *path)
{
    pid_t us = getpid(), pid = fork();
    int status = 0;

    if (!pid) {
        pid_t holder = lock_holder(path);
        lock *l;
        if (holder == us) _exit(lock_take(path, &l) == MANTA_EBUSY ? 1 : 4);
        _exit(!holder ? 2 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void one_process_has_it(void **state)
{
    const char *path = scratch_path("lock");
    lock *l, *again;

    (void)state;
    assert_int_equal(lock_holder(path), 0);
    assert_ok(lock_take(path, &l));
    assert_int_equal(lock_holder(path), getpid());
    assert_int_equal(lock_take(path, &again), MANTA_EBUSY);
    assert_error_says(path);
    assert_int_equal(seen_by_another(path), 1);
    lock_release(l);
    assert_int_equal(lock_holder(path), 0);
    assert_int_equal(seen_by_another(path), 2);
    lock_release(NULL);
}

/* ---- a thread that asks in the middle ---- */

typedef struct asker {
    const char *path;
    thread_id thread;
    _Atomic bool done;
} asker;

static asker curious;

static void ask(void *arg)
{
    asker *a = arg;

    (void)lock_holder(a->path);
    atomic_store(&a->done, true);
}

/* The file is locked and not yet noted: somebody asks who has it. He is given time to
 * open and close it, unless he waits for us. */
static int look_and_ask(int fd, struct stat *out)
{
    int64_t deadline = clock_deadline(200);

    if (curious.path && !curious.thread.id) {
        assert_ok(thread_start(&curious.thread, "asker", ask, &curious));
        while (!atomic_load(&curious.done) && clock_now_ns() < deadline) (void)os_real.poll(NULL, 0, 1);
    }
    return os_real.fstat(fd, out);
}

static void whoever_asks_takes_it_from_nobody(void **state)
{
    os_sys table = os_real;
    lock *l;

    (void)state;
    curious = (asker){.path = scratch_path("asked")};
    table.fstat = look_and_ask;
    os_use(&table);
    assert_ok(lock_take(curious.path, &l));
    thread_join(&curious.thread);
    os_use(NULL);
    assert_int_equal(seen_by_another(curious.path), 1);
    lock_release(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_has_it),
        cmocka_unit_test(whoever_asks_takes_it_from_nobody),
    };

    return cmocka_run_group_tests(tests, scratch_setup_quick, scratch_teardown);
}
