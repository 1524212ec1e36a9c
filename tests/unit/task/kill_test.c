/* kill_test.c - kill -9 where it hurts: at system calls of the daemon, its
 * spilling thread, the zygote and the workers, and at the crash points of the
 * code of shared memory. Whatever dies when, a call works or fails with a
 * sentence, nothing hangs, and nothing is left. KILL_ALL=1: at every call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/log.h>
#include <manta/task.h>

#include "os/descendants.h"
#include "os/fault.h"
#include "base/clock.h"
#include "os/eventcount.h"
#include "task/ring.h"

#define LIMIT_S 120

enum { N = 300000, FLOATS = N / 4, FAILED = 3 };

static manta_status twice(manta_task *t)
{
    manta_array a, b;
    manta_status st = manta_arg_array(t, 0, &a);

    if (!st) st = manta_return_create(t, 0, MANTA_DTYPE_F32, 1, a.shape, &b);
    for (int64_t i = 0; !st && i < a.shape[0]; i++) ((float *)b.data)[i] = 2 * ((float *)a.data)[i];
    return st;
}
MANTA_REMOTE(twice)

static manta_status small(manta_task *t)
{
    return manta_return_f64(t, 0, 1);
}
MANTA_REMOTE(small)

/* What a user does, with a store that is too small for it; 0: it worked,
 * FAILED: it failed and said why, 2: it is wrong. Anything else is a sanitizer's. */
static int use(bool spill)
{
    static float x[FLOATS];
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){FLOATS}, x), b;
    manta_ref r[8] = {{0}};
    double v;

    for (int i = 0; i < FLOATS; i++) x[i] = (float)i;
    manta_status st =
        manta_init(NULL, NULL,
                   &(manta_node_options){
                       .num_cpus = 2, .store_memory = spill ? 1 << 20 : 16 << 20, .spill_folder = "/tmp"});
    for (int i = 0; i < 8 && !st; i++) {
        r[i] = i % 2 ? manta_remote(twice, r[i - 1]) : manta_put(manta_elements(&a));
        st = manta_get(r[i], LIMIT_S * 500);
    }
    for (int i = 0; i < 8 && !st; i++) {
        st = manta_get_copy(r[i], &b, LIMIT_S * 500);
        if (st) break;
        float last = ((float *)b.data)[FLOATS - 1];
        free(b.data);
        if (last != (i % 2 ? 2 : 1) * (float)(FLOATS - 1)) return 2;
    }
    for (int i = 0; i < 20 && !st; i++) { /* both sides sleep and are woken */
        manta_ref s = manta_remote(small);
        st = manta_get_f64(s, &v, LIMIT_S * 500);
        if (!st && v != 1) return 2;
        manta_release(s);
        if (i % 4 == 0) usleep(300);
    }
    if (st == MANTA_ETIMEDOUT) return 2;
    bool said = !st || manta_error_text()[0];
    manta_shutdown();
    return st ? said ? FAILED : 2 : 0;
}

/* Waits for the driver and for all that it left, which is ours by adoption. -1:
 * it, or something of it, did not end; -2: it was killed. */
static int outcome(pid_t pid)
{
    int status, rc = -1;

    if (waitpid(pid, &status, 0) == pid)
        rc = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status) == SIGKILL ? -2 : -1;
    for (int64_t end = clock_deadline(LIMIT_S * 1000); clock_now_ns() < end;) {
        pid_t got = waitpid(-1, NULL, WNOHANG | __WALL);
        if (got < 0 && errno == ECHILD) return rc;
        if (got == 0) usleep(500);
    }
    descendants_end();
    return -1;
}

static _Atomic int *killed; /* shared with the children */

/* Dies before its n-th system call. Whether it came that far. */
static bool kill_at(const char *role, int n, bool spill)
{
    atomic_store(killed, 0);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(LIMIT_S);
        manta_log_set_level(MANTA_LOG_LEVEL_OFF);
        fault_killed = killed;
        fault_begin((fault_plan){.at = n, .kill = role});
        int rc = use(spill);
        (void)fault_end();
        _exit(rc);
    }
    int rc = outcome(pid);
    if (rc != 0 && rc != FAILED)
        fail_msg("%s, call %d: %s", role, n,
                 rc == 2 ? "a wrong or missing answer" : "it hangs, or something is left");
    return atomic_load(killed);
}

static void sweep(const char *role, int most)
{
    int n = 1, died = 0, step = getenv("KILL_ALL") ? 1 : most / 4;

    for (; n <= (step == 1 ? 100000 : most) && kill_at(role, n, true); n += step) died++;
    assert_true(died >= 2);
}

static void the_daemon_at_its_calls(void **state)
{
    (void)state;
    sweep("manta-daemon", 240);
}

static void the_spilling_thread_at_its_calls(void **state)
{
    (void)state;
    sweep("manta-spill", 24);
}

static void the_zygote_at_its_calls(void **state)
{
    (void)state;
    sweep("manta-zygote", 36);
}

static void the_workers_at_their_calls(void **state)
{
    /* Every worker dies at its n-th call, so that small n end the node. */
    (void)state;
    sweep("manta-worker", 48);
}

/* Where the code of rings and bells may die: every point of theirs. */
static const crash_point *crash_point_at(int i)
{
    return i < ring_points ? &ring_crash_points[i] : &eventcount_crash_points[i - ring_points];
}

static void every_crash_point(void **state)
{
    crash_plan plan = {0};
    char driver[32] = "";
    (void)state;

    prctl(PR_GET_NAME, driver);
    const char *roles[] = {"manta-worker", driver};
    const int most = getenv("KILL_ALL") ? 9 : 1;
    for (int i = 0; i < ring_points + eventcount_points; i++)
        for (int role = 0; role < 2; role++)
            for (int n = 1; n <= most; n++) {
                plan.point = crash_point_at(i);
                plan.nth = n;
                snprintf(plan.process, sizeof plan.process, "%s", roles[role]);
                pid_t pid = fork();
                if (pid == 0) {
                    alarm(LIMIT_S);
                    manta_log_set_level(MANTA_LOG_LEVEL_OFF);
                    crash_plan_set(&plan);
                    _exit(use(false));
                }
                int rc = outcome(pid);
                if (rc != 0 && rc != FAILED && !(rc == -2 && role == 1))
                    fail_msg("%s at %s for the %d. time: %s", roles[role], plan.point->name, n,
                             rc == 2 ? "a wrong or missing answer" : "it hangs, or something is left");
            }
}

static int prepare(void **state)
{
    (void)state;
    killed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return killed != MAP_FAILED && descendants_adopt() == MANTA_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_daemon_at_its_calls), cmocka_unit_test(the_spilling_thread_at_its_calls),
        cmocka_unit_test(the_zygote_at_its_calls), cmocka_unit_test(the_workers_at_their_calls),
        cmocka_unit_test(every_crash_point),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
