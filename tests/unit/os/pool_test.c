/* pool_test.c - every task once, in whatever company; and what waiting costs
 * nobody. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/pool.h"

enum { MAX_TASKS = 1000 };

typedef struct job {
    pool *p;
    _Atomic int calls[MAX_TASKS];
    int plain[MAX_TASKS]; /* written without atomics: TSan checks the hand-over */
    _Atomic int in_use[64]; /* by thread number: two at once would be a bug */
    _Atomic int bad;
    int nested;
} job;

static void touch(void *ctx, int task, int thread)
{
    job *j = ctx;

    if (thread < 0 || thread >= pool_threads(j->p)) atomic_fetch_add(&j->bad, 1);
    if (!j->nested && atomic_exchange(&j->in_use[thread], 1)) atomic_fetch_add(&j->bad, 1);
    atomic_fetch_add(&j->calls[task], 1);
    j->plain[task] += task;
    unsigned char *s = pool_scratch(j->p, thread);
    if (s) memset(s, thread, 128);
    if (s && (s[0] != thread || s[127] != thread)) atomic_fetch_add(&j->bad, 1);
    if (!j->nested) atomic_store(&j->in_use[thread], 0);
}

static void run_and_check(pool *p, int n, int rounds)
{
    job *j = mem_new(sizeof *j);

    j->p = p;
    for (int r = 1; r <= rounds; r++) {
        pool_run(p, n, touch, j);
        for (int i = 0; i < n; i++) {
            assert_int_equal(atomic_load(&j->calls[i]), r);
            assert_int_equal(j->plain[i], r * i);
            j->plain[i] = r * i; /* the caller writes, too: the next job must see it */
        }
        for (int i = n; i < MAX_TASKS; i++) assert_int_equal(atomic_load(&j->calls[i]), 0);
    }
    assert_int_equal(atomic_load(&j->bad), 0);
    mem_free(j);
}

static void runs_every_task_once(void **state)
{
    (void)state;
    int64_t before = mem_live();
    static const int threads[] = {1, 2, 3, 7}, tasks[] = {0, 1, 2, 3, 64, MAX_TASKS};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        pool *p = NULL;
        assert_int_equal(pool_new(threads[t], 128, &p), MANTA_OK);
        assert_int_equal(pool_threads(p), threads[t]);
        for (size_t n = 0; n < sizeof tasks / sizeof *tasks; n++) run_and_check(p, tasks[n], 50);
        pool_free(p);
    }
    pool_free(NULL);
    assert_int_equal(mem_live(), before);
}

/* Short jobs back to back: where a stale worker would meet the next job. */
static void survives_a_storm_of_small_jobs(void **state)
{
    (void)state;
    pool *p = NULL;
    assert_int_equal(pool_new(4, 0, &p), MANTA_OK);
    job *j = mem_new(sizeof *j);
    j->p = p;
    for (int r = 1; r <= 20000; r++) {
        int n = 2 + r % 3;
        pool_run(p, n, touch, j);
    }
    int sum = 0;
    for (int i = 0; i < 4; i++) sum += atomic_load(&j->calls[i]);
    int expected = 0;
    for (int r = 1; r <= 20000; r++) expected += 2 + r % 3;
    assert_int_equal(sum, expected);
    assert_int_equal(atomic_load(&j->bad), 0);
    mem_free(j);
    pool_free(p);
}

static void order(void *ctx, int task, int thread)
{
    int *next = ctx;

    assert_int_equal(thread, 0);
    assert_int_equal(task, (*next)++);
}

static void one_thread_runs_in_order_and_inline(void **state)
{
    (void)state;
    pool *p = NULL;
    int next = 0;
    assert_int_equal(pool_new(1, 0, &p), MANTA_OK);
    pool_run(p, 100, order, &next);
    assert_int_equal(next, 100);
    assert_null(pool_scratch(p, 0));
    pool_free(p);
}

/* Every thread begins with its own share, so as many tasks as threads that wait
 * for each other are one for each, by number. */
typedef struct gathering {
    int threads, by[4];
    _Atomic int come;
} gathering;

static void wait_for_all(void *ctx, int task, int thread)
{
    gathering *g = ctx;

    g->by[task] = thread;
    atomic_fetch_add(&g->come, 1);
    while (atomic_load(&g->come) < g->threads) sched_yield();
}

static void a_thread_has_a_share_of_its_own(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 4; threads++) {
        pool *p = NULL;
        assert_int_equal(pool_new(threads, 0, &p), MANTA_OK);
        for (int round = 0; round < 20; round++) {
            gathering g = {.threads = threads};
            pool_run(p, threads, wait_for_all, &g);
            for (int i = 0; i < threads; i++) assert_int_equal(g.by[i], i);
        }
        pool_free(p);
    }
}

/* The other threads wait in their first task for the caller, who does all the
 * rest: its own share in order, then theirs. */
typedef struct uneven {
    _Atomic int left; /* tasks the others do not do */
    int last; /* of the caller's own */
    _Atomic int bad;
} uneven;

enum { UNEVEN_TASKS = 90, UNEVEN_THREADS = 3, UNEVEN_SHARE = UNEVEN_TASKS / UNEVEN_THREADS };

static void caller_does_most(void *ctx, int task, int thread)
{
    uneven *u = ctx;

    if (thread == 0) {
        if (task < UNEVEN_SHARE && task != u->last + 1) atomic_fetch_add(&u->bad, 1);
        if (task < UNEVEN_SHARE) u->last = task;
        atomic_fetch_sub(&u->left, 1);
    } else {
        while (atomic_load(&u->left) > UNEVEN_THREADS - 1) sched_yield();
        atomic_fetch_sub(&u->left, 1);
    }
}

static void who_is_done_takes_from_others(void **state)
{
    (void)state;
    pool *p = NULL;
    assert_int_equal(pool_new(UNEVEN_THREADS, 0, &p), MANTA_OK);
    for (int round = 0; round < 20; round++) {
        uneven u = {.left = UNEVEN_TASKS, .last = -1};
        pool_run(p, UNEVEN_TASKS, caller_does_most, &u);
        assert_int_equal(atomic_load(&u.left), 0);
        assert_int_equal(u.last, UNEVEN_SHARE - 1);
        assert_int_equal(atomic_load(&u.bad), 0);
    }
    pool_free(p);
}

typedef struct nest {
    pool *p;
    job *inner;
    _Atomic int wrong_thread;
} nest;

typedef struct nest_task {
    nest *n;
    int thread;
    pthread_t id;
    int next;
} nest_task;

static void nested_inner(void *ctx, int task, int thread)
{
    nest_task *t = ctx;

    if (thread != t->thread || !pthread_equal(pthread_self(), t->id) || task != t->next++)
        atomic_fetch_add(&t->n->wrong_thread, 1);
    atomic_fetch_add(&t->n->inner->calls[task], 1);
}

static void nested_outer(void *ctx, int task, int thread)
{
    nest_task t = {.n = ctx, .thread = thread, .id = pthread_self()};
    (void)task;

    pool_run(t.n->p, 10, nested_inner, &t);
}

static void nested_run_is_inline(void **state)
{
    (void)state;
    nest n = {.inner = mem_new(sizeof(job))};
    assert_int_equal(pool_new(3, 0, &n.p), MANTA_OK);
    pool_run(n.p, 100, nested_outer, &n);
    for (int i = 0; i < 10; i++) assert_int_equal(atomic_load(&n.inner->calls[i]), 100);
    assert_int_equal(atomic_load(&n.wrong_thread), 0);
    pool_free(n.p);
    mem_free(n.inner);
}

/* Task i waits for task i+1 .. n-1 to start: passes only when all threads take
 * part, and so when the sleepers were woken. */
typedef struct meeting {
    _Atomic int arrived;
    int expected;
} meeting;

static void meet(void *ctx, int task, int thread)
{
    meeting *m = ctx;

    (void)task, (void)thread;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->expected) sched_yield();
}

/* State letter of every thread named manta-pool-*: waits until all sleep. */
static int pool_threads_asleep(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[300], line[300] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        if (fgets(line, sizeof line, f) && strstr(line, "(manta-pool-") && strstr(line, ") S ")) n++;
        fclose(f);
    }
    closedir(d);
    return n;
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Whether the main thread, which calls the pool, sleeps in the kernel. */
static int caller_asleep(void)
{
    char line[300] = "";
    char path[64];

    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", (long)getpid());
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    char *got = fgets(line, sizeof line, f);
    fclose(f);
    return got && strstr(line, ") S ") != NULL;
}

/* Two tasks meet, so each has a thread of its own; then the worker's ends only
 * when the caller, done with its own, has given up spinning and sleeps.
 * pool_run() must not return before, and must be woken. */
typedef struct late {
    meeting both;
    int worker_done; /* plain: ordered by the end of pool_run() */
} late;

static void finish_late(void *ctx, int task, int thread)
{
    late *l = ctx;

    meet(&l->both, task, thread);
    if (thread == 0) return;
    int64_t deadline = now_ms() + 60000;
    while (!caller_asleep() && now_ms() < deadline) sched_yield();
    l->worker_done = now_ms() < deadline;
}

static void waits_for_the_last_task(void **state)
{
    (void)state;
    pool *p = NULL;
    assert_int_equal(pool_new(2, 0, &p), MANTA_OK);
    for (int round = 0; round < 20; round++) {
        late l = {.both.expected = 2};
        pool_run(p, 2, finish_late, &l);
        assert_int_equal(l.worker_done, 1);
    }
    pool_free(p);
}

static void idle_threads_sleep_and_are_woken(void **state)
{
    (void)state;
    pool *p = NULL;
    assert_int_equal(pool_new(4, 0, &p), MANTA_OK);
    for (int round = 0; round < 20; round++) {
        int64_t deadline = now_ms() + 60000;
        while (pool_threads_asleep() < 3) {
            assert_true(now_ms() < deadline);
            sched_yield();
        }
        meeting m = {.expected = 4};
        pool_run(p, 4, meet, &m);
        assert_int_equal(atomic_load(&m.arrived), 4);
    }
    pool_free(p);
}

/* The workers must not take the program's signals. */
static void block(void *ctx, int task, int thread)
{
    sigset_t set;
    (void)task;

    pthread_sigmask(SIG_BLOCK, NULL, &set);
    if (thread > 0 && !sigismember(&set, SIGINT)) atomic_fetch_add((_Atomic int *)ctx, 1);
}

static void workers_block_signals(void **state)
{
    (void)state;
    _Atomic int bad = 0;
    sigset_t set;
    pool *p = NULL;
    assert_int_equal(pool_new(3, 0, &p), MANTA_OK);
    pool_run(p, 500, block, &bad);
    assert_int_equal(bad, 0);
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    assert_false(sigismember(&set, SIGINT)); /* the caller's own mask is restored */
    pool_free(p);
}

static void works_alone_after_fork(void **state)
{
    (void)state;
    pool *p = NULL;
    assert_int_equal(pool_new(3, 128, &p), MANTA_OK);
    run_and_check(p, 100, 3);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); /* a hang ends as a signal, which the parent sees */
        run_and_check(p, 100, 3);
        pool_free(p);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    run_and_check(p, 100, 3);
    pool_free(p);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    pool *untouched = (pool *)&untouched, *p = untouched;
    assert_int_equal(pool_new(0, 0, &p), MANTA_EINVAL);
    assert_int_equal(pool_new(-1, 0, &p), MANTA_EINVAL);
    assert_int_equal(pool_new(2, SIZE_MAX, &p), MANTA_ENOMEM);
    assert_int_equal(pool_new(2, SIZE_MAX / 2, &p), MANTA_ENOMEM);
    assert_ptr_equal(p, untouched);
}

static void fails_clean_without_memory(void **state)
{
    (void)state;
    int64_t before = mem_live();
    for (int sticky = 0; sticky <= 1; sticky++) {
        for (int n = 1;; n++) {
            pool *p = NULL;
            mem_fail_at(n, sticky);
            manta_status st = pool_new(3, 4096, &p);
            int64_t hits = mem_failures();
            mem_fail_at(0, 0);
            if (st == MANTA_OK) {
                assert_int_equal(hits, 0);
                assert_true(n > 2);
                pool_free(p);
                break;
            }
            assert_int_equal(st, MANTA_ENOMEM);
            assert_null(p);
            assert_int_equal(mem_live(), before);
        }
    }
    assert_int_equal(mem_live(), before);
}

static void scratch_is_aligned_and_apart(void **state)
{
    (void)state;
    pool *p = NULL;
    assert_int_equal(pool_new(3, 100, &p), MANTA_OK);
    for (int i = 0; i < 3; i++) {
        char *s = pool_scratch(p, i);
        assert_int_equal((uintptr_t)s % 64, 0);
        if (i > 0) assert_true(s - (char *)pool_scratch(p, i - 1) >= 100);
    }
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_every_task_once),
        cmocka_unit_test(survives_a_storm_of_small_jobs),
        cmocka_unit_test(one_thread_runs_in_order_and_inline),
        cmocka_unit_test(a_thread_has_a_share_of_its_own),
        cmocka_unit_test(who_is_done_takes_from_others),
        cmocka_unit_test(nested_run_is_inline),
        cmocka_unit_test(waits_for_the_last_task),
        cmocka_unit_test(idle_threads_sleep_and_are_woken),
        cmocka_unit_test(workers_block_signals),
        cmocka_unit_test(works_alone_after_fork),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(fails_clean_without_memory),
        cmocka_unit_test(scratch_is_aligned_and_apart),
    };

    return cmocka_run_group_tests_name("os/pool", tests, NULL, NULL);
}
