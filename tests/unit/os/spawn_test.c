/* spawn_test.c - children, orphans and their end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/spawn.h"
#include "os/thread.h"

static void a_quiet_child_is_not_seen_by_wait(void **state)
{
    pid_t pid;
    (void)state;

    assert_int_equal(spawn_fork_quiet(&pid), MANTA_OK);
    if (pid == 0) _exit(3);
    assert_int_equal(waitpid(-1, NULL, 0), -1);
    assert_int_equal(errno, ECHILD);
    int status = spawn_wait(pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    assert_int_equal(spawn_wait(pid), -1);
}

/* A process that adopts starts a child with a child in a session of its own,
 * which has another; all are gone when spawn_end_all() returns. */
static void all_descendants_end(void **state)
{
    int p[2], status;
    pid_t middle, pids[3];
    (void)state;

    assert_int_equal(pipe(p), 0);
    assert_int_equal(spawn_fork(&middle), MANTA_OK);
    if (middle == 0) {
        pid_t a;
        if (spawn_adopt_orphans() || spawn_fork(&a)) _exit(1);
        if (a == 0) {
            pid_t b;
            setsid();
            if (spawn_fork(&b)) _exit(1);
            if (b == 0) {
                pid_t c;
                setsid();
                if (spawn_fork(&c)) _exit(1);
                pid_t self = getpid();
                if (c == 0) self = getpid();
                (void)!write(p[1], &self, sizeof self);
                for (;;) pause();
            }
            pid_t self = getpid();
            (void)!write(p[1], &self, sizeof self);
            _exit(0); /* b is an orphan now */
        }
        char ready[3 * sizeof(pid_t)];
        size_t n = 0;
        while (n < sizeof ready) n += (size_t)read(p[0], ready + n, sizeof ready - n);
        (void)!write(p[1], ready, sizeof ready); /* for the test itself */
        spawn_end_all();
        _exit(waitpid(-1, NULL, 0) == -1 && errno == ECHILD ? 0 : 1);
    }
    status = spawn_wait(middle);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(read(p[0], pids, sizeof pids), sizeof pids);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kill(pids[i], 0), -1);
        assert_int_equal(errno, ESRCH);
    }
    close(p[0]);
    close(p[1]);
}

static void rest(void *arg)
{
    mutex *m = arg;

    mutex_lock(m);
    mutex_unlock(m);
}

static void threads_are_counted(void **state)
{
    mutex m;
    thread_id t;
    (void)state;
    int before = spawn_threads(); /* the thread sanitizer has one of its own */

    assert_true(before >= 1);
    mutex_init(&m);
    mutex_lock(&m);
    assert_int_equal(thread_start(&t, "test", rest, &m), MANTA_OK);
    assert_int_equal(spawn_threads(), before + 1);
    mutex_unlock(&m);
    thread_join(&t);
    mutex_release(&m);
}

static void ends_have_names(void **state)
{
    char text[64];
    pid_t pid;
    (void)state;

    assert_int_equal(spawn_fork(&pid), MANTA_OK);
    if (pid == 0) {
        raise(SIGKILL);
        _exit(0);
    }
    assert_non_null(strstr(spawn_status_text(spawn_wait(pid), text, sizeof text), "killed by signal 9"));
    assert_int_equal(spawn_fork(&pid), MANTA_OK);
    if (pid == 0) _exit(4);
    assert_string_equal(spawn_status_text(spawn_wait(pid), text, sizeof text), "exited with 4");
    assert_string_equal(spawn_status_text(-1, text, sizeof text), "is gone");
}

static void signals_are_reset(void **state)
{
    pid_t pid;
    (void)state;

    assert_int_equal(spawn_fork(&pid), MANTA_OK);
    if (pid == 0) {
        sigset_t all;
        signal(SIGTERM, SIG_IGN);
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        spawn_reset_signals();
        raise(SIGTERM);
        _exit(0); /* not reached */
    }
    int status = spawn_wait(pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_child_is_not_seen_by_wait),
        cmocka_unit_test(all_descendants_end),
        cmocka_unit_test(threads_are_counted),
        cmocka_unit_test(ends_have_names),
        cmocka_unit_test(signals_are_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
