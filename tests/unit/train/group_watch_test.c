/* A worker that hangs is told from one that computes, waits, is stopped or is
 * being debugged. The processes are real; the time is made up. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/group/group_watch.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

enum { DEADLINE = 64000000 };

typedef enum kind { SLEEPER, SPINNER, TRACED, HELPED } kind;

/* Stays until the process is gone that started it. */
static int outlast(void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != *(const pid_t *)arg) _exit(0);
    for (;;) pause();
}

/* A thread in the state of one that waits for a disk: the kernel keeps who has
 * lent its memory to a child in it until that one is gone. (Not vfork(), which
 * sanitizers make a fork() of.) */
static void *wait_for_a_disk(void *arg)
{
    static _Alignas(16) char stack[64 << 10];
    static pid_t self;

    (void)arg;
    self = getpid();
    clone(outlast, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &self);
    return NULL;
}

/* The child, once it is what it is to be. */
static pid_t start(kind what)
{
    int ready[2];
    char byte;
    pthread_t helper;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (what == TRACED) ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        close(ready[0]);
        close(ready[1]); /* tells that it has nothing left to do but what it is for */
        /* Not before: the helper's child would hold the pipe open. */
        if (what == HELPED && pthread_create(&helper, NULL, wait_for_a_disk, NULL)) _exit(1);
        if (what == TRACED) raise(SIGSTOP);
        for (;;) {
            if (what != SPINNER) pause();
        }
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(read(ready[0], &byte, 1), 0);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, __WALL), pid);
}

/* Whether it sleeps or is stopped, and so uses no more CPU time. */
static bool is_still(pid_t pid)
{
    char path[64], text[512] = "";
    const char *at;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    at = strrchr(text, ')');
    assert_non_null(at);
    return strchr("STt", at[2]);
}

/* The first look at a process that has come to rest. */
static watch settle(pid_t pid, uint64_t progress, bool waits)
{
    watch w = {0};

    while (!is_still(pid)) sched_yield();
    assert_int_equal(watch_look(&w, pid, progress, waits, 1, DEADLINE), WATCH_FINE);
    return w;
}

/* It is told by this time, or a deadline later each time that a thread of the
 * process happens to run: a sanitizer's has its own clock. */
static void assert_hangs(watch *w, pid_t pid, int64_t now)
{
    watch_verdict v = watch_look(w, pid, w->progress, false, now, DEADLINE);

    for (int i = 0; IS_SANITIZED && v == WATCH_FINE && i < 1000; i++) {
        sched_yield();
        v = watch_look(w, pid, w->progress, false, w->since_ns + DEADLINE, DEADLINE);
    }
    assert_int_equal(v, WATCH_HANGS);
}

static void one_that_does_nothing_hangs(void **state)
{
    pid_t pid = start(SLEEPER);
    watch w = settle(pid, 5, false);

    (void)state;
    assert_int_equal(watch_look(&w, pid, 5, false, DEADLINE, DEADLINE), WATCH_FINE);
    assert_hangs(&w, pid, DEADLINE + 1);
    end(pid);
}

static void progress_begins_the_time_anew(void **state)
{
    pid_t pid = start(SLEEPER);
    watch w = settle(pid, 5, false);

    (void)state;
    assert_int_equal(watch_look(&w, pid, 6, false, DEADLINE + 1, DEADLINE), WATCH_FINE);
    assert_int_equal(watch_look(&w, pid, 6, false, 2 * DEADLINE, DEADLINE), WATCH_FINE);
    assert_hangs(&w, pid, 2 * DEADLINE + 1);
    end(pid);
}

static void one_that_waits_for_others_is_fine(void **state)
{
    pid_t pid = start(SLEEPER);
    watch w = settle(pid, 5, true);

    (void)state;
    assert_int_equal(watch_look(&w, pid, 5, true, (int64_t)100 * DEADLINE, DEADLINE), WATCH_FINE);
    end(pid);
}

static void one_that_computes_is_fine(void **state)
{
    pid_t pid = start(SPINNER);
    watch w = {0};
    int64_t before;

    (void)state;
    assert_int_equal(watch_look(&w, pid, 5, false, 1, DEADLINE), WATCH_FINE);
    before = w.cpu_ns;
    for (int64_t now = 2; w.cpu_ns == before; now++) {
        assert_int_equal(watch_look(&w, pid, 5, false, now % (DEADLINE / 2) + 2, DEADLINE), WATCH_FINE);
    }
    assert_true(w.cpu_ns - before > DEADLINE / 64);
    /* It computes no faster than it gets a core: that is nobody's hang. */
    assert_int_equal(watch_look(&w, pid, 5, false, w.since_ns + DEADLINE, DEADLINE), WATCH_FINE);
    end(pid);
}

/* As a process that ticks: the worker's own thread is stuck, another one in it
 * wakes now and then. */
static void a_little_time_is_no_progress(void **state)
{
    pid_t pid = start(SLEEPER);
    watch w = settle(pid, 5, false);

    (void)state;
    w.cpu_ns -= DEADLINE / 64 - 1;
    assert_hangs(&w, pid, DEADLINE + 1);
    w = settle(pid, 5, false);
    w.cpu_ns -= DEADLINE / 64 + 1;
    assert_int_equal(watch_look(&w, pid, 5, false, DEADLINE + 1, DEADLINE), WATCH_FINE);
    end(pid);
}

/* How many threads of a process are in a state. */
static int threads_in(pid_t pid, char letter)
{
    char path[64], line[512];
    int n = 0;
    FILE *f;

    snprintf(path, sizeof path, "cat /proc/%d/task/*/stat", (int)pid);
    f = popen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) n += strrchr(line, ')') && strrchr(line, ')')[2] == letter;
    pclose(f);
    return n;
}

/* Its own thread sleeps until a helper is done, who is kept waiting. */
static void one_whose_helper_is_kept_waiting_is_fine(void **state)
{
    pid_t pid = start(HELPED);
    watch w;

    (void)state;
    while (threads_in(pid, 'D') < 1) sched_yield();
    w = settle(pid, 5, false);
    assert_int_equal(watch_look(&w, pid, 5, false, DEADLINE + 1, DEADLINE), WATCH_FINE);
    end(pid);
}

static void a_stopped_one_is_told_apart(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        pid_t pid = start(SLEEPER);
        int status;
        watch w;
        assert_int_equal(kill(pid, SIGSTOP), 0);
        assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
        assert_true(WIFSTOPPED(status));
        w = settle(pid, 5, waits);
        assert_int_equal(watch_look(&w, pid, 5, waits, DEADLINE + 1, DEADLINE), WATCH_STOPPED);
        end(pid);
    }
}

static void one_that_is_debugged_is_left_alone(void **state)
{
    pid_t pid = start(TRACED);
    int status;
    watch w;

    (void)state;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));
    w = settle(pid, 5, false);
    assert_int_equal(watch_look(&w, pid, 5, false, DEADLINE + 1, DEADLINE), WATCH_FINE);
    assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0); /* sleeps, but still has its tracer */
    w = settle(pid, 5, false);
    assert_int_equal(watch_look(&w, pid, 5, false, DEADLINE + 1, DEADLINE), WATCH_FINE);
    end(pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_does_nothing_hangs),
        cmocka_unit_test(progress_begins_the_time_anew),
        cmocka_unit_test(one_that_waits_for_others_is_fine),
        cmocka_unit_test(one_that_computes_is_fine),
        cmocka_unit_test(a_little_time_is_no_progress),
        cmocka_unit_test(a_stopped_one_is_told_apart),
        cmocka_unit_test(one_that_is_debugged_is_left_alone),
        cmocka_unit_test(one_whose_helper_is_kept_waiting_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
