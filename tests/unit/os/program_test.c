/* program_test.c - other programs, started as children and as nobody's. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

#include "os/fault.h"
#include "os/program.h"

static _Atomic int forked, signalled;

static void note_fork(void)
{
    forked++;
}

static void note_signal(int s)
{
    (void)s;
    signalled++;
}

static int count_files(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* All that is written to a pipe until nobody has its other end. */
static const char *read_all(int fd)
{
    static char text[1024];
    size_t have = 0;
    ssize_t n;

    while ((n = read(fd, text + have, sizeof text - 1 - have)) > 0) have += (size_t)n;
    text[have] = 0;
    close(fd);
    return text;
}

static manta_status start_shell_apart(const char *script, int fd)
{
    char shell[] = "sh", option[] = "-c", text[256];
    pid_t pid = 0;

    snprintf(text, sizeof text, "%s", script);
    manta_status st = program_start_apart("/bin/sh", (char *[]){shell, option, text, NULL}, fd, &pid);
    assert_int_equal(st == MANTA_OK, pid > 0);
    return st;
}

static void nobody_is_our_child(void)
{
    assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* ---- apart ---- */

static void a_program_apart_is_nobodys_child(void **state)
{
    struct sigaction on_child = {.sa_handler = note_signal}, before;
    int fds[2], files = count_files();
    char expected[64];
    (void)state;

    assert_int_equal(pthread_atfork(note_fork, note_fork, note_fork), 0);
    assert_int_equal(sigaction(SIGCHLD, &on_child, &before), 0);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(start_shell_apart("test $PPID != \"$MANTA_TEST_PID\" && echo hello >&3", fds[1]),
                     MANTA_OK);
    close(fds[1]);
    nobody_is_our_child();
    snprintf(expected, sizeof expected, "hello\n");
    assert_string_equal(read_all(fds[0]), expected);
    nobody_is_our_child();
    assert_int_equal(forked, 0);
    assert_int_equal(signalled, 0);
    assert_int_equal(count_files(), files);
    assert_int_equal(sigaction(SIGCHLD, &before, NULL), 0);
}

/* It is given descriptor 3 whatever the number is here. */
static void any_number_becomes_3(void **state)
{
    (void)state;
    for (int number = 3; number < 40; number += 18) {
        int fds[2], at = number;
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        if (fds[1] != number && (at = fcntl(fds[1], F_DUPFD_CLOEXEC, number)) >= 0) close(fds[1]);
        assert_int_equal(start_shell_apart("echo there >&3", at), MANTA_OK);
        close(at);
        assert_string_equal(read_all(fds[0]), "there\n");
    }
}

static void what_cannot_be_started_is_said(void **state)
{
    char name[] = "x", *const argv[] = {name, NULL};
    int files = count_files();
    pid_t pid = 7;
    (void)state;

    assert_int_equal(program_start_apart("/no/such/program", argv, 2, &pid), MANTA_ENOENT);
    assert_non_null(strstr(manta_error_text(), "/no/such/program"));
    assert_int_equal(program_start_apart("/etc/passwd", argv, 2, &pid), MANTA_EPERM);
    assert_int_equal(pid, 7);
    nobody_is_our_child();
    assert_int_equal(count_files(), files);
}

static void each_call_may_fail(void **state)
{
    int failed = 0, files = count_files();
    (void)state;

    for (int n = 1;; n++) {
        int fds[2];
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        fault_begin((fault_plan){.at = n, .err = EAGAIN});
        manta_status st = start_shell_apart("echo there >&3", fds[1]);
        bool hit = fault_end() > 0;
        close(fds[1]);
        const char *said = read_all(fds[0]);
        if (!hit) {
            assert_int_equal(st, MANTA_OK);
            assert_string_equal(said, "there\n");
            break;
        }
        failed += st != MANTA_OK;
        assert_string_equal(said, st ? "" : "there\n");
        nobody_is_our_child();
        assert_int_equal(count_files(), files);
    }
    assert_true(failed >= 3); /* the stacks, and both clones */
}

/* ---- children ---- */

static void a_child_has_what_it_is_given(void **state)
{
    int fds[2], files = count_files();
    char script[128];
    spawn_child c;
    (void)state;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    snprintf(script, sizeof script, "echo \"$FOUND\" >&%d; read line; echo \"no line: $?\" >&%d; exit 5",
             fds[1], fds[1]);
    const char *const argv[] = {"sh", "-c", script, NULL};
    assert_int_equal(program_start(argv, "FOUND", "it", NULL, &fds[1], 1, &c), MANTA_OK);
    close(fds[1]);
    assert_string_equal(read_all(fds[0]), "it\nno line: 1\n");
    int status = spawn_wait(&c);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    assert_null(getenv("FOUND"));
    assert_int_equal(count_files(), files);
}

static void a_program_has_what_is_chosen(void **state)
{
    const char *const argv[] = {"/bin/sh", "-c",
                                "pwd; echo $ONE$HOME; echo no >&2; read x; echo $x; exec 2>&-; echo $$; "
                                "cut -d' ' -f6 /proc/$$/stat",
                                NULL};
    char one[] = "ONE=1", expected[128];
    int in[2], out[2], files = count_files();
    spawn_child c;
    (void)state;

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(program_run(&(program_options){.argv = argv,
                                                    .environment = (char *[]){one, NULL},
                                                    .folder = "/",
                                                    .standard = (int[]){in[0], out[1], SPAWN_NULL},
                                                    .own_session = true},
                                 &c),
                     MANTA_OK);
    close(in[0]);
    close(out[1]);
    assert_int_equal(write(in[1], "word\n", 5), 5);
    snprintf(expected, sizeof expected, "/\n1\nword\n%d\n%d\n", (int)c.pid,
             (int)c.pid); /* it leads its session */
    assert_string_equal(read_all(out[0]), expected);
    assert_int_equal(spawn_wait(&c), 0);
    close(in[1]);
    assert_int_equal(program_run(&(program_options){.argv = argv, .folder = "/no/such/folder"}, &c),
                     MANTA_ENOENT);
    nobody_is_our_child();
    assert_int_equal(count_files(), files);
}

static void a_child_that_cannot_be_is_said(void **state)
{
    const char *const argv[] = {"no-such-program", NULL};
    int files = count_files();
    spawn_child c;
    (void)state;

    assert_int_equal(program_start(argv, "FOUND", "it", NULL, NULL, 0, &c), MANTA_ENOENT);
    assert_non_null(strstr(manta_error_text(), "no-such-program"));
    assert_int_equal(c.pid, 0);
    nobody_is_our_child();
    assert_int_equal(count_files(), files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_apart_is_nobodys_child), cmocka_unit_test(any_number_becomes_3),
        cmocka_unit_test(what_cannot_be_started_is_said),   cmocka_unit_test(each_call_may_fail),
        cmocka_unit_test(a_child_has_what_it_is_given),     cmocka_unit_test(a_child_that_cannot_be_is_said),
        cmocka_unit_test(a_program_has_what_is_chosen),
    };
    char text[24];

    snprintf(text, sizeof text, "%d", (int)getpid());
    setenv("MANTA_TEST_PID", text, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
