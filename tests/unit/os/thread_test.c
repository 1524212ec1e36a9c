/* thread_test.c - threads, locks, futexes and processes. No test sleeps: each
 * waits on what it is about. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ok.h"
#include "os/fault.h"
#include "os/pool.h"
#include "os/proc.h"
#include "os/futex.h"
#include "os/thread.h"

typedef struct seen {
    char name[16];
    int log_level;
    bool blocks_signals;
} seen;

static void look(void *arg)
{
    seen *s = arg;
    sigset_t set;

    pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    s->log_level = log_own_level();
    s->blocks_signals = sigismember(&set, SIGINT) && sigismember(&set, SIGTERM);
}

static void a_thread_has_its_name_and_no_signals(void **state)
{
    (void)state;
    int64_t before = mem_live();
    thread_id t;
    seen s = {0};
    assert_int_equal(thread_start(&t, "reader", look, &s), MANTA_OK);
    thread_join(&t);
    assert_string_equal(s.name, "reader");
    assert_true(s.blocks_signals);
    assert_int_equal(s.log_level, -1);
    (void)log_use_level(MANTA_LOG_LEVEL_ERROR);
    assert_int_equal(thread_start(&t, "a-name-that-is-too-long", look, &s), MANTA_OK);
    (void)log_use_level(-1);
    thread_join(&t);
    assert_int_equal(s.log_level, MANTA_LOG_LEVEL_ERROR); /* who starts it decides how it logs */
    assert_string_equal(s.name, "a-name-that-is-");
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    assert_false(sigismember(&set, SIGINT));
    assert_int_equal(mem_live(), before);
}

/* A ball passed to and fro: each side waits for its turn. */
typedef struct court {
    mutex m;
    cond c;
    int turn, passes; /* m */
} court;

static void play(court *k, int me)
{
    for (int i = 0; i < 500; i++) {
        mutex_lock(&k->m);
        while (k->turn != me) assert_true(cond_wait(&k->c, &k->m, CLOCK_NEVER));
        k->turn = !me;
        k->passes++;
        cond_broadcast(&k->c);
        mutex_unlock(&k->m);
    }
}

static void other_side(void *arg)
{
    play(arg, 1);
}

static void conditions_hand_over(void **state)
{
    (void)state;
    court k = {.turn = 0};
    thread_id t;
    mutex_init(&k.m);
    cond_init(&k.c);
    assert_int_equal(thread_start(&t, "player", other_side, &k), MANTA_OK);
    play(&k, 0);
    thread_join(&t);
    assert_int_equal(k.passes, 1000);

    mutex_lock(&k.m);
    int64_t deadline = clock_now_ns() + 2000000;
    while (cond_wait(&k.c, &k.m, deadline)) {}
    assert_true(clock_now_ns() >= deadline);
    assert_false(cond_wait(&k.c, &k.m, 0)); /* long past */
    assert_false(cond_wait(&k.c, &k.m, -5));
    cond_signal(&k.c); /* with nobody there */
    mutex_unlock(&k.m);
    cond_release(&k.c);
    mutex_release(&k.m);
}

static void bump(void *arg)
{
    _Atomic uint32_t *word = arg;

    atomic_fetch_add(word, 1);
    futex_wake(word, INT_MAX, false);
}

static void futex_waits_for_a_change_or_the_deadline(void **state)
{
    (void)state;
    for (int shared = 0; shared <= 1; shared++) {
        _Atomic uint32_t word = 5;
        assert_int_equal(futex_wait(&word, 4, CLOCK_NEVER, shared), MANTA_OK); /* changed already */
        int64_t deadline = clock_now_ns() + 2000000;
        while (futex_wait(&word, 5, deadline, shared) == MANTA_OK) {}
        assert_true(clock_now_ns() >= deadline);
        assert_int_equal(futex_wait(&word, 5, -1, shared), MANTA_ETIMEDOUT);
    }
    for (int interrupt = 0; interrupt <= 1; interrupt++) {
        for (int i = 0; i < 50; i++) {
            _Atomic uint32_t word = 0;
            thread_id t;
            fault_begin((fault_plan){.interrupt = interrupt});
            assert_int_equal(thread_start(&t, "bump", bump, &word), MANTA_OK);
            int64_t deadline = clock_deadline(60000);
            while (atomic_load(&word) == 0) assert_int_equal(futex_wait(&word, 0, deadline, false), MANTA_OK);
            thread_join(&t);
            fault_end();
        }
    }
}

static void a_thread_that_cannot_start_leaves_nothing(void **state)
{
    (void)state;
    int64_t before = mem_live();
    thread_id t = {0};
    seen s = {0};
    fault_begin((fault_plan){.at = 1, .err = EAGAIN});
    assert_int_equal(thread_start(&t, "reader", look, &s), MANTA_EBUSY);
    assert_int_equal(fault_end(), 1);
    assert_error_says("reader");
    assert_int_equal(mem_live(), before);
}

static int count_threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");

    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

/* Every call that a pool makes, the start of each thread among them. */
static void a_pool_that_cannot_start_leaves_nothing(void **state)
{
    (void)state;
    int64_t before = mem_live();
    int threads = count_threads(), refused = 0;
    for (int sticky = 0; sticky <= 1; sticky++) {
        for (int n = 1;; n++) {
            pool *p = NULL;
            fault_begin((fault_plan){.at = n, .err = EAGAIN, .sticky = sticky});
            manta_status st = pool_new(4, 1000, &p);
            if (st) {
                assert_int_equal(st, MANTA_EBUSY);
                assert_null(p);
                refused++;
            }
            pool_free(p); /* before the table changes: its threads use it */
            int64_t hits = fault_end();
            assert_int_equal(mem_live(), before);
            /* A joined thread may still be on its way out of the kernel. */
            int64_t deadline = clock_deadline(60000);
            while (count_threads() > threads) assert_true(clock_now_ns() < deadline);
            if (!hits) {
                assert_int_equal(st, MANTA_OK);
                break;
            }
        }
    }
    assert_true(refused >= 6); /* three threads, once and from then on */
}

static void a_pidfd_tells_of_the_end(void **state)
{
    (void)state;
    int hold[2], fd = -1;
    assert_int_equal(pipe(hold), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char c;
        close(hold[1]);
        ssize_t n = read(hold[0], &c, 1); /* lives until the parent lets go */
        _exit(n == 0 ? 0 : 1);
    }
    close(hold[0]);
    assert_int_equal(proc_pidfd_open(child, &fd), MANTA_OK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_false(proc_ended(child));
    close(hold[1]);
    assert_int_equal(poll(&p, 1, 60000), 1);
    assert_true(proc_ended(child)); /* dead is enough: nobody has waited for it yet */
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(proc_ended(child));
    close(fd);
    fd = -7;
    assert_int_equal(proc_pidfd_open(child, &fd), MANTA_ENOENT);
    assert_int_equal(fd, -7);
    fault_begin((fault_plan){.at = 1, .err = EMFILE});
    assert_int_equal(proc_pidfd_open(getpid(), &fd), MANTA_EIO);
    fault_end();
    fault_begin((fault_plan){.at = 1, .err = ENOSYS});
    assert_int_equal(proc_pidfd_open(getpid(), &fd), MANTA_EUNSUPPORTED);
    fault_end();
    fault_begin((fault_plan){.at = 1, .err = ENOSYS});
    assert_false(proc_ended(getpid()));
    fault_end();
    fault_begin((fault_plan){.at = 1, .err = ENOSYS});
    assert_true(proc_ended(child));
    fault_end();
}

static void peak_memory_is_read(void **state)
{
    (void)state;
    assert_true(proc_parse_peak_rss("Name:\tx\nVmHWM:\t   1234 kB\nVmRSS:\t 1 kB\n") == 1234 * 1024);
    assert_true(proc_parse_peak_rss("VmHWM: 7 kB\n") == 7 * 1024);
    assert_true(proc_parse_peak_rss("Name:\tVmHWM: 7\n") == 0);
    assert_true(proc_parse_private_pages("1000 300 120 5 0 400 0\n") == 180);
    assert_true(proc_parse_private_pages("1000 300\n") == 0);
    assert_true(proc_parse_private_pages("") == 0);
    assert_true(proc_private_memory(getpid()) > 0);
    assert_true(proc_private_memory(-1) == 0);
    assert_true(proc_parse_available("MemTotal: 9 kB\nMemAvailable:   5 kB\n") == 5 * 1024);
    assert_true(proc_parse_available("MemTotal: 9 kB\n") == UINT64_MAX);
    assert_true(proc_available_memory() > 0);
    assert_true(proc_parse_peak_rss("") == 0);
    uint64_t before = proc_peak_rss();
    assert_true(before > 0);
    enum { SIZE = 32 << 20 };
    char *block = malloc(SIZE);
    assert_non_null(block);
    for (size_t i = 0; i < SIZE; i += 512) ((volatile char *)block)[i] = 1;
    assert_true(proc_peak_rss() >= before + SIZE / 2);
    free(block);
    fault_begin((fault_plan){.at = 1, .err = EIO, .sticky = true});
    assert_true(proc_peak_rss() == 0);
    fault_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_its_name_and_no_signals),
        cmocka_unit_test(conditions_hand_over),
        cmocka_unit_test(futex_waits_for_a_change_or_the_deadline),
        cmocka_unit_test(a_thread_that_cannot_start_leaves_nothing),
        cmocka_unit_test(a_pool_that_cannot_start_leaves_nothing),
        cmocka_unit_test(a_pidfd_tells_of_the_end),
        cmocka_unit_test(peak_memory_is_read),
    };

    return cmocka_run_group_tests_name("os/thread", tests, NULL, NULL);
}
