/* descendants_test.c - orphans, and the end of all that is below a process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/descendants.h"
#include "os/fault.h"
#include "os/proc.h"
#include "os/spawner.h"
#include "os/thread.h"

static manta_status fork_into(pid_t *pid)
{
    *pid = fork();
    return *pid < 0 ? MANTA_EBUSY : MANTA_OK;
}

/* A process that adopts starts a child with a child in a session of its own,
 * which has another; all are gone when descendants_end() returns. */
static void all_descendants_end(void **state)
{
    int p[2], status;
    pid_t middle, pids[3];
    (void)state;

    assert_int_equal(pipe(p), 0);
    assert_int_equal(fork_into(&middle), MANTA_OK);
    if (middle == 0) {
        pid_t a;
        if (descendants_adopt() || fork_into(&a)) _exit(1);
        if (a == 0) {
            pid_t b;
            setsid();
            if (fork_into(&b)) _exit(1);
            if (b == 0) {
                pid_t c;
                setsid();
                if (fork_into(&c)) _exit(1);
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
        descendants_end();
        _exit(waitpid(-1, NULL, 0) == -1 && errno == ECHILD ? 0 : 1);
    }
    status = spawn_reap(middle);
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
    int before = proc_threads(); /* the thread sanitizer has one of its own */

    assert_true(before >= 1);
    mutex_init(&m);
    mutex_lock(&m);
    assert_int_equal(thread_start(&t, "test", rest, &m), MANTA_OK);
    assert_int_equal(proc_threads(), before + 1);
    mutex_unlock(&m);
    thread_join(&t);
    mutex_release(&m);
}

typedef struct ends {
    pid_t pid[4];
    int status[4], n;
} ends;

static void note_end(void *ctx, pid_t child, int status)
{
    ends *e = ctx;

    e->pid[e->n] = child;
    e->status[e->n++] = status;
}

/* The descriptor is readable once a child has ended; all that have are told of at once, and
 * with interrupted calls too. */
static void ends_are_told_once(void **state)
{
    for (int round = 0; round < 2; round++) {
        struct pollfd p = {.events = POLLIN};
        ends seen = {.n = 0};
        pid_t pids[2];
        (void)state;
        assert_int_equal(descendants_watch(&p.fd), MANTA_OK);
        assert_int_equal(poll(&p, 1, 0), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(fork_into(&pids[i]), MANTA_OK);
            if (pids[i] == 0) _exit(5 + i);
        }
        if (round) fault_begin((fault_plan){.interrupt = true});
        while (seen.n < 2) {
            assert_true(poll(&p, 1, -1) == 1);
            descendants_reap(p.fd, note_end, &seen);
        }
        if (round) fault_end();
        for (int i = 0; i < 2; i++) {
            int k = seen.pid[0] == pids[i] ? 0 : 1;
            assert_int_equal(seen.pid[k], pids[i]);
            assert_true(WIFEXITED(seen.status[k]) && WEXITSTATUS(seen.status[k]) == 5 + i);
        }
        descendants_reap(p.fd, note_end, &seen); /* nobody is left */
        assert_int_equal(seen.n, 2);
        close(p.fd);
    }
}

static void a_refused_watch_is_an_error(void **state)
{
    int fd = -1;
    (void)state;

    fault_begin((fault_plan){.at = 1, .err = EMFILE});
    manta_status st = descendants_watch(&fd);
    assert_int_equal(fault_end(), 1);
    assert_int_equal(st, MANTA_EIO);
    assert_int_equal(fd, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_descendants_end),
        cmocka_unit_test(threads_are_counted),
        cmocka_unit_test(ends_are_told_once),
        cmocka_unit_test(a_refused_watch_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
