/* socket_test.c - messages where the system is short of something: none is lost in
 * silence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ok.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/sys.h"

/* A sendmsg() that fails some times with one error. */
static int failures, failure, calls;
static const os_sys *real;

static ssize_t failing_sendmsg(int fd, const struct msghdr *m, int flags)
{
    calls++;
    if (failures-- <= 0) return real->sendmsg(fd, m, flags);
    errno = failure;
    return -1;
}

static os_sys table;

static void fail_sends(int n, int err)
{
    real = os;
    table = *os;
    table.sendmsg = failing_sendmsg;
    os = &table;
    failures = n;
    failure = err;
    calls = 0;
}

static void fail_no_more(void)
{
    os = real;
}

static const int shortages[] = {ENOBUFS, ENOMEM, ETOOMANYREFS};

static void who_waits_tries_again(void **state)
{
    int pair[2], fds[SOCKET_MAX_FDS], n_fds;
    char in[16];
    size_t n;
    (void)state;

    assert_int_equal(socket_pair(pair), MANTA_OK);
    for (size_t i = 0; i < sizeof shortages / sizeof shortages[0]; i++) {
        fail_sends(5, shortages[i]);
        assert_int_equal(socket_send(pair[0], "hello", 5, NULL, 0, true), MANTA_OK);
        fail_no_more();
        assert_int_equal(calls, 6);
        assert_int_equal(socket_recv(pair[1], in, sizeof in, &n, fds, &n_fds, false), MANTA_OK);
        assert_int_equal(n, 5);
        assert_int_equal(n_fds, 0);
    }
    socket_close_all(pair, 2);
}

static void who_does_not_wait_is_told(void **state)
{
    int pair[2];
    (void)state;

    assert_int_equal(socket_pair(pair), MANTA_OK);
    for (size_t i = 0; i < sizeof shortages / sizeof shortages[0]; i++) {
        fail_sends(1, shortages[i]);
        assert_int_equal(socket_send(pair[0], "hello", 5, NULL, 0, false), MANTA_ENOMEM);
        fail_no_more();
        assert_error_says(strerror(shortages[i]));
    }
    fail_sends(1, EMSGSIZE);
    assert_int_equal(socket_send(pair[0], "hello", 5, NULL, 0, true), MANTA_EIO); /* no use to try again */
    fail_no_more();
    assert_int_equal(calls, 1);
    socket_close_all(pair, 2);
}

/* Descriptors for which the receiver has no room: the message comes, and says so. */
static void lost_descriptors_are_told(void **state)
{
    int pair[2], fds[SOCKET_MAX_FDS], n_fds, filler[64], n_filler = 0;
    char in[16];
    size_t n;
    struct rlimit before, few;
    (void)state;

    assert_int_equal(socket_pair(pair), MANTA_OK);
    assert_int_equal(socket_send(pair[0], "three", 5, (int[]){0, 1, 2}, 3, false), MANTA_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = 64, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (n_filler < 64 && (filler[n_filler] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) n_filler++;
    assert_true(n_filler > 1);
    close(filler[--n_filler]); /* one fits, three do not */
    assert_int_equal(socket_recv(pair[1], in, sizeof in, &n, fds, &n_fds, false), MANTA_OK);
    assert_int_equal(n, 5);
    assert_int_equal(n_fds, SOCKET_FDS_LOST);
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC); /* what fitted was closed again */
    assert_true(next >= 0);
    close(next);
    assert_int_equal(proc_fail_files("a test"), MANTA_ENOSPC);
    assert_error_says("(64)");
    while (n_filler > 0) close(filler[--n_filler]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    socket_close_all(pair, 2);
}

/* An end that closes before it has read everything resets the connection, and what it had sent is still there. */
static void last_words_are_heard(void **state)
{
    char in[16];
    int fds[2], got_fds[SOCKET_MAX_FDS], n_fds;
    size_t n;

    (void)state;
    for (int wait = 0; wait < 2; wait++) {
        assert_ok(socket_pair(fds));
        assert_ok(socket_send(fds[0], "unread", 6, NULL, 0, true));
        assert_ok(socket_send(fds[1], "last", 4, NULL, 0, true));
        assert_ok(socket_send(fds[1], "words", 5, NULL, 0, true));
        assert_int_equal(close(fds[1]), 0);
        assert_ok(socket_recv(fds[0], in, sizeof in, &n, got_fds, &n_fds, wait));
        assert_int_equal(n, 4);
        assert_ok(socket_recv(fds[0], in, sizeof in, &n, got_fds, &n_fds, wait));
        assert_int_equal(n, 5);
        assert_int_equal(socket_recv(fds[0], in, sizeof in, &n, got_fds, &n_fds, wait), MANTA_EDIED);
        assert_int_equal(close(fds[0]), 0);
    }
}

static void the_limit_of_files_comes_back(void **state)
{
    struct rlimit original, few, before, now;
    (void)state;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &original), 0);
    few = (struct rlimit){.rlim_cur = 64, .rlim_max = original.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    proc_raise_files(100, &before);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(before.rlim_cur, 64);
    assert_int_equal(now.rlim_cur, 100);
    proc_restore_files(100, &before);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, 64);
    proc_raise_files(32, &before); /* never less than it was */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, 64);
    few.rlim_cur = 70; /* somebody else has changed it */
    proc_raise_files(100, &before);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    proc_restore_files(100, &before);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, 70);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &original), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_tries_again),         cmocka_unit_test(who_does_not_wait_is_told),
        cmocka_unit_test(lost_descriptors_are_told),     cmocka_unit_test(last_words_are_heard),
        cmocka_unit_test(the_limit_of_files_comes_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
