/* fault_test.c - a node in which the n-th call to the system fails, for every
 * n, in every one of its processes: a call either works or fails with a
 * sentence; nothing hangs, and nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/log.h>
#include <manta/nursery.h>
#include <manta/task.h>

#include "os/descendants.h"
#include "os/fault.h"
#include "base/clock.h"
#include "os/spawner.h"

#define LIMIT_S 120

static manta_status twice(manta_task *t)
{
    manta_array a;
    manta_status st = manta_arg_array(t, 0, &a);
    manta_array b;

    if (!st) st = manta_return_create(t, 0, MANTA_DTYPE_F32, 1, a.shape, &b);
    for (int64_t i = 0; !st && i < a.shape[0]; i++) ((float *)b.data)[i] = 2 * ((float *)a.data)[i];
    return st;
}
MANTA_REMOTE(twice)

static const char *const *nursery; /* NULL: workers are forks */

/* What a user does; 0: it worked, 1: it failed and said why, 2: it is wrong. */
static int use(void)
{
    static float x[20000];
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){20000}, x), b;

    for (int i = 0; i < 20000; i++) x[i] = (float)i;
    manta_status st = manta_init(NULL, NULL, &(manta_node_options){.num_cpus = 2, .nursery = nursery});
    if (!st) {
        manta_ref r = manta_remote(twice, manta_elements(&a)), s = manta_remote(twice, r);
        st = manta_get_array(s, &b, LIMIT_S * 1000 - 20000);
        if (!st && ((float *)b.data)[19999] != 4 * 19999) return 2;
        if (st == MANTA_ETIMEDOUT) return 2;
        manta_release(r);
        manta_release(s);
    }
    bool said = !st || manta_error_text()[0];
    manta_shutdown();
    return st ? said ? 1 : 2 : 0;
}

/* How the process ended: its exit status, or -1 when it did not end, or something of
 * it did not. */
static int outcome(pid_t pid)
{
    char why[64];
    int status, rc = -1;

    if (waitpid(pid, &status, 0) == pid && WIFEXITED(status))
        rc = WEXITSTATUS(status);
    else
        print_message("the driver %s\n", spawn_status_text(status, why, sizeof why));
    /* This process adopts: whatever is left becomes its child, and must end. */
    for (int64_t end = clock_deadline(LIMIT_S * 1000); clock_now_ns() < end;) {
        pid_t got = waitpid(-1, NULL, WNOHANG | __WALL);
        if (got < 0 && errno == ECHILD) return rc;
        if (got == 0) usleep(500);
    }
    print_message("processes are left\n");
    descendants_end();
    return -1;
}

/* Runs use() in a process of its own, under a plan; its exit status, or -1 when
 * it did not end, or something of it did not. */
static int run(fault_plan plan)
{
    pid_t pid = fork();

    if (pid == 0) {
        alarm(LIMIT_S);
        manta_log_set_level(MANTA_LOG_LEVEL_OFF);
        fault_begin(plan);
        int rc = use();
        (void)fault_end();
        _exit(rc);
    }
    return outcome(pid);
}

/* Of the first `most` calls at least `least` fail what the user does. */
static void fail_each(int most, int odd, int even, int least)
{
    int worked = 0, failed = 0;

    for (int n = 1; n <= most; n++) {
        int rc = run((fault_plan){.at = n, .err = n % 2 ? odd : even});
        if (rc != 0 && rc != 1)
            fail_msg("call %d: %s", n,
                     rc == 2 ? "a wrong or missing answer" : "it hangs, or something is left");
        worked += rc == 0;
        failed += rc == 1;
    }
    assert_true(failed >= least); /* the plan did something */
    assert_true(worked > 10); /* and much of it is survived */
}

static void every_call_fails_once(void **state)
{
    (void)state;
    fail_each(300, EMFILE, ENOMEM, 11);
    fail_each(150, EMSGSIZE, EMSGSIZE, 11); /* of a message: the same again the next time */
}

/* Of what is started by exec only the driver has the table. */
static void every_call_fails_with_a_nursery(void **state)
{
    static char self[4096];
    static const char *const argv[] = {self, "nursery", NULL};
    (void)state;

    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    nursery = argv;
    assert_int_equal(run((fault_plan){.interrupt = true}), 0);
    fail_each(80, EMFILE, ENOMEM, 4); /* the start: a pair, stacks, two clones */
    nursery = NULL;
}

/* Of every three messages one finds the system short of something. */
static int shortage;

static ssize_t short_sendmsg(int fd, const struct msghdr *m, int flags)
{
    static _Atomic unsigned calls;

    if (atomic_fetch_add(&calls, 1) % 3 != 1) return os_real.sendmsg(fd, m, flags);
    errno = shortage;
    return -1;
}

static void messages_survive_shortage(void **state)
{
    static const int errors[] = {ENOBUFS, ENOMEM, ETOOMANYREFS};
    static os_sys table;
    (void)state;

    for (int i = 0; i < 30; i++) {
        shortage = errors[i % 3];
        pid_t pid = fork();
        if (pid == 0) {
            alarm(LIMIT_S);
            manta_log_set_level(MANTA_LOG_LEVEL_OFF);
            table = os_real;
            table.sendmsg = short_sendmsg;
            os = &table; /* and that of every process of the node */
            _exit(use());
        }
        assert_int_equal(outcome(pid), 0);
    }
}

static void every_wait_is_interrupted(void **state)
{
    (void)state;
    assert_int_equal(run((fault_plan){.interrupt = true}), 0);
}

static int adopt(void **state)
{
    (void)state;
    return descendants_adopt() == MANTA_OK ? 0 : -1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wait_is_interrupted),
        cmocka_unit_test(messages_survive_shortage),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(every_call_fails_with_a_nursery),
    };

    if (argc > 1 && !strcmp(argv[1], "nursery")) return manta_nursery_run() ? 1 : 0;
    return cmocka_run_group_tests(tests, adopt, NULL);
}
