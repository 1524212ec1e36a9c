/* fill_threads_test.c - large values are copied without the runtime's lock: while
 * one thread is in the middle of copying one (its memory cannot be read until the
 * test says so) others put, call and get, and the block that is being filled is
 * neither let go nor given to anybody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/shm.h"
#include "os/thread.h"
#include "task/runtime.h"

enum { SIZE = 1 << 20, SMALL = 100, MEDIUM = 20000, LONG_MS = 60000 };

/* SIZE bytes of which the last page cannot be read before go[1] is written to. */
static struct {
    unsigned char *at;
    int reached[2], go[2]; /* pipes: the copier has come to that page; it may go on */
} slow;

static struct {
    mutex lock;
    cond changed;
    bool done; /* all of others_go_on() */
} others;

static unsigned char *last_page(void)
{
    return slow.at + SIZE - shm_page();
}

/* The copier's thread has come to the last page: it stays here until it may go on. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    unsigned char *at = info->si_addr;
    char c = 0;
    (void)context;

    if (at < last_page() || at >= slow.at + SIZE) {
        signal(signal_number, SIG_DFL); /* a fault of another kind: it happens again */
        return;
    }
    if (write(slow.reached[1], &c, 1) != 1 || read(slow.go[0], &c, 1) != 1 ||
        mprotect(last_page(), shm_page(), PROT_READ))
        _exit(70);
}

static manta_status fill_one(manta_task *t)
{
    return manta_return(t, 0, manta_bytes(slow.at, SIZE));
}

static manta_status twice(manta_task *t)
{
    double x = 0;

    TRY(manta_arg_f64(t, 0, &x));
    return manta_return_f64(t, 0, 2 * x);
}

static manta_status length(manta_task *t)
{
    const void *at;
    size_t n = 0;

    TRY(manta_arg_bytes(t, 0, &at, &n));
    return manta_return_i64(t, 0, memcmp(at, slow.at, n) ? -1 : (int64_t)n);
}

static int begin(void **state)
{
    static int64_t live;

    manta_register("fill_one", fill_one);
    manta_register("twice", twice);
    manta_register("length", length);
    live = mem_live();
    *state = &live;
    assert_int_equal(runtime_open_local(), MANTA_OK);
    rt->total.amount[0] = SCHED_UNIT;
    slow.at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(slow.at != MAP_FAILED);
    for (int i = 0; i < SIZE; i++) slow.at[i] = (unsigned char)(i * 31 >> 3);
    assert_int_equal(mprotect(last_page(), shm_page(), PROT_NONE), 0);
    assert_int_equal(pipe(slow.reached), 0);
    assert_int_equal(pipe(slow.go), 0);
    mutex_init(&others.lock);
    cond_init(&others.changed);
    others.done = false;
    return 0;
}

static int end(void **state)
{
    cond_release(&others.changed);
    mutex_release(&others.lock);
    for (int i = 0; i < 2; i++) {
        close(slow.reached[i]);
        close(slow.go[i]);
    }
    munmap(slow.at, SIZE);
    runtime_close();
    assert_int_equal(mem_live(), *(const int64_t *)*state);
    return 0;
}

/* A thread's signals are blocked, and this one must be seen by who causes it. */
static void see_faults(void)
{
    sigset_t one;

    sigemptyset(&one);
    sigaddset(&one, SIGSEGV);
    assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &one, NULL), 0);
}

/* ---- who copies ---- */

static void put(void *arg)
{
    manta_ref r;
    const void *at;
    size_t n;
    (void)arg;

    see_faults();
    r = manta_put(manta_bytes(slow.at, SIZE));
    assert_int_equal(manta_get_bytes(r, &at, &n, LONG_MS), MANTA_OK);
    assert_int_equal(n, SIZE);
    assert_memory_equal(at, slow.at, SIZE);
    manta_release(r);
}

/* What was asked for during the copying is let go after it and not before; without
 * a node it then cannot come back. */
static void put_what_is_wanted_back(void *arg)
{
    manta_ref r;
    const void *at;
    size_t n;
    (void)arg;

    see_faults();
    r = manta_put(manta_bytes(slow.at, SIZE));
    assert_int_equal(manta_get_bytes(r, &at, &n, LONG_MS), MANTA_ENOENT);
    manta_release(r);
}

static void return_it(void *arg)
{
    manta_ref r;
    const void *at;
    size_t n;
    (void)arg;

    see_faults();
    manta_submit("fill_one", NULL, 0, NULL, 1, &r);
    assert_int_equal(manta_get_bytes(r, &at, &n, LONG_MS), MANTA_OK);
    assert_int_equal(n, SIZE);
    assert_memory_equal(at, slow.at, SIZE);
    manta_release(r);
}

static void pass_it(void *arg)
{
    manta_arg a = manta_bytes(slow.at, SIZE);
    int64_t n = 0;
    manta_ref r;
    (void)arg;

    see_faults();
    manta_submit("length", NULL, 1, &a, 1, &r);
    assert_int_equal(manta_get_i64(r, &n, LONG_MS), MANTA_OK);
    assert_int_equal(n, SIZE);
    manta_release(r);
}

/* ---- the others ---- */

static void put_and_read(size_t size, unsigned char fill)
{
    unsigned char bytes[MEDIUM];
    const void *at;
    size_t n;

    memset(bytes, fill, size);
    manta_ref r = manta_put(manta_bytes(bytes, size));
    assert_int_equal(manta_get_bytes(r, &at, &n, LONG_MS), MANTA_OK);
    assert_int_equal(n, size);
    assert_memory_equal(at, bytes, size);
    manta_release(r);
}

/* Puts, one of them beside the block that is being filled, and a call. */
static void others_go_on(void *arg)
{
    manta_arg a = manta_f64(21);
    double x = 0;
    manta_ref r;
    (void)arg;

    for (int i = 0; i < 100; i++) put_and_read(SMALL, (unsigned char)i);
    put_and_read(MEDIUM, 7);
    manta_submit("twice", NULL, 1, &a, 1, &r);
    assert_int_equal(manta_get_f64(r, &x, LONG_MS), MANTA_OK);
    assert_true(x == 42);
    manta_release(r);
    mutex_lock(&others.lock);
    others.done = true;
    cond_broadcast(&others.changed);
    mutex_unlock(&others.lock);
}

/* Whether they were through before the copier was told to go on. */
static bool they_are_done(void)
{
    int64_t deadline = clock_deadline(LONG_MS);
    bool done;

    mutex_lock(&others.lock);
    while (!others.done && cond_wait(&others.changed, &others.lock, deadline)) continue;
    done = others.done;
    mutex_unlock(&others.lock);
    return done;
}

/* The node is short of memory: it is not given what is being written, which lies in
 * the first segment. */
static void ask_for_segment(void)
{
    mutex_lock(&rt->lock);
    assert_int_equal(store_ask(rt->store, 1), 0);
    mutex_unlock(&rt->lock);
}

static void while_one_copies(void (*copy)(void *arg), bool ask)
{
    thread_id copier, other;
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
    bool done;
    char c;

    assert_int_equal(sigaction(SIGSEGV, &fault, &before), 0); /* cmocka has one of its own */
    assert_int_equal(thread_start(&copier, "copier", copy, NULL), MANTA_OK);
    assert_int_equal(read(slow.reached[0], &c, 1), 1);
    assert_int_equal(thread_start(&other, "other", others_go_on, NULL), MANTA_OK);
    done = they_are_done();
    if (done && ask) ask_for_segment();
    assert_int_equal(write(slow.go[1], &c, 1), 1);
    thread_join(&copier);
    thread_join(&other);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_true(done);
}

static void a_put_holds_nobody_up(void **state)
{
    (void)state;
    while_one_copies(put, false);
}

static void its_memory_stays_until_it_is_written(void **state)
{
    (void)state;
    while_one_copies(put_what_is_wanted_back, true);
}

static void a_result_holds_nobody_up(void **state)
{
    (void)state;
    while_one_copies(return_it, false);
}

static void an_argument_holds_nobody_up(void **state)
{
    (void)state;
    while_one_copies(pass_it, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_put_holds_nobody_up, begin, end),
        cmocka_unit_test_setup_teardown(its_memory_stays_until_it_is_written, begin, end),
        cmocka_unit_test_setup_teardown(a_result_holds_nobody_up, begin, end),
        cmocka_unit_test_setup_teardown(an_argument_holds_nobody_up, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
