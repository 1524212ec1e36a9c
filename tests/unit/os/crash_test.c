/* crash_test.c - who dies where: at the nth time, in the process that is meant, alone
 * or one after the other. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/crash.h"

#define SOME_POINTS(X)                                                                                       \
    X(SOME_FIRST, "test/first", "the first thing has happened")                                              \
    X(SOME_SECOND, "test/second", "the second thing has happened")
CRASH_DECLARE(some, SOME_POINTS)
CRASH_DEFINE(some, SOME_POINTS)

#define OTHER_POINTS(X) X(OTHER_FIRST, "other/first", "the first thing of another folder")
CRASH_DECLARE(other, OTHER_POINTS)
CRASH_DEFINE(other, OTHER_POINTS)

enum { PASSES = 5 };

/* A process comes by each point PASSES times, as this rank and under this name. Returns
 * how many times it came past both. */
static int come_by(int rank, const char *name)
{
    int *passed = mmap(NULL, sizeof *passed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status, n;
    pid_t pid;

    assert_true(passed != MAP_FAILED);
    assert_true((pid = fork()) >= 0);
    if (!pid) {
        crash_rank = rank;
        prctl(PR_SET_NAME, name);
        for (; *passed < PASSES; ++*passed) {
            some_crash(SOME_FIRST);
            some_crash(SOME_SECOND);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    n = *passed;
    if (n < PASSES)
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else
        assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    munmap(passed, sizeof *passed);
    return n;
}

static void nobody_dies_at_a_point_that_is_not_planned(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(some_points, 2);
    assert_string_equal(some_crash_points[SOME_SECOND].name, "test/second");
    assert_string_equal(some_crash_points[SOME_SECOND].what, "the second thing has happened");
    assert_int_equal(come_by(-1, "somebody"), PASSES);
    crash_plan_set(&(crash_plan){.point = &other_crash_points[OTHER_FIRST], .nth = 1}); /* number 0, too */
    assert_true(crash_is_planned(&other_crash_points[OTHER_FIRST]));
    assert_false(crash_is_planned(&some_crash_points[SOME_FIRST]));
    assert_int_equal(come_by(-1, "somebody"), PASSES);
    assert_true((pid = fork()) >= 0);
    if (!pid) {
        other_crash(OTHER_FIRST);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void each_process_counts_for_itself(void **state)
{
    (void)state;
    for (int64_t nth = 0; nth <= PASSES + 1; nth++) {
        crash_plan_set(&(crash_plan){.point = &some_crash_points[SOME_FIRST], .nth = nth});
        for (int i = 0; i < 2; i++)
            assert_int_equal(come_by(-1, "somebody"), nth < 1 || nth > PASSES ? PASSES : nth - 1);
    }
}

static void all_count_together(void **state)
{
    (void)state;
    crash_plan_set(&(crash_plan){.point = &some_crash_points[SOME_SECOND], .nth = PASSES + 3, .times = 2});
    assert_int_equal(come_by(-1, "somebody"), PASSES);
    assert_int_equal(come_by(-1, "somebody"), 2); /* the third of its own */
    assert_int_equal(come_by(-1, "somebody"), 0); /* the next who comes */
    assert_int_equal(come_by(-1, "somebody"), PASSES); /* two have died */
}

static void who_is_meant_dies(void **state)
{
    crash_plan plan = {.point = &some_crash_points[SOME_FIRST], .rank = 2, .nth = 1, .times = 1};

    (void)state;
    crash_plan_set(&plan);
    assert_int_equal(come_by(0, "somebody"), PASSES);
    assert_int_equal(come_by(2, "somebody"), 0);
    plan = (crash_plan){.point = plan.point, .rank = -1, .nth = 2, .process = "victim"};
    crash_plan_set(&plan);
    assert_int_equal(come_by(1, "somebody"), PASSES);
    assert_int_equal(come_by(1, "victim-2"), PASSES); /* the whole name */
    assert_int_equal(come_by(1, "victi"), PASSES);
    assert_int_equal(come_by(1, "victim"), 1);
    crash_plan_set(NULL);
    assert_int_equal(come_by(1, "victim"), PASSES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_dies_at_a_point_that_is_not_planned),
        cmocka_unit_test(each_process_counts_for_itself),
        cmocka_unit_test(all_count_together),
        cmocka_unit_test(who_is_meant_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
