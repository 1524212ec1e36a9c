/* claim_threads_test.c - calls that are claimed by their caller and by their worker at once: each
 * has one of them, and copies that were taken back are nobody's, also when the call is sent
 * again, and when the next caller of the worker uses the same word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>

#include "os/thread.h"
#include "task/claim.h"

enum { SENDINGS = 200000, CALLER = 7, NEXT = 8 };

static _Alignas(64) char page[CLAIM_AT + 8 * CLAIM_SLOTS];
static _Atomic uint32_t sent; /* sendings that the worker can see */
static char taken[SENDINGS + 1], begun[SENDINGS + 1];

/* The worker begins what it sees, in order. */
static void work(void *arg)
{
    (void)arg;
    for (uint32_t n = 1; n <= SENDINGS; n++) {
        while (atomic_load_explicit(&sent, memory_order_acquire) < n) sched_yield();
        begun[n] = claim_make(page, CALLER, n, CLAIM_BEGUN);
    }
}

static void a_call_has_one_taker(void **state)
{
    thread_id worker;
    int both = 0, none = 0;
    (void)state;

    assert_int_equal(thread_start(&worker, "worker", work, NULL), 0);
    for (uint32_t n = 1; n <= SENDINGS; n++) {
        claim_send(page, CALLER, n);
        atomic_store_explicit(&sent, n, memory_order_release);
        if (n % 3 == 0) sched_yield();
        /* Every word is used again, so it is decided before. */
        taken[n] = claim_make(page, CALLER, n, CLAIM_TAKEN);
        assert_false(claim_is_open(page, CALLER, n));
    }
    thread_join(&worker);
    for (uint32_t n = 1; n <= SENDINGS; n++) {
        both += taken[n] && begun[n];
        none += !taken[n] && !begun[n];
    }
    assert_int_equal(both, 0);
    assert_int_equal(none, 0);
}

static void a_copy_that_was_taken_back_is_nobodys(void **state)
{
    (void)state;
    claim_send(page, CALLER, 5);
    assert_true(claim_make(page, CALLER, 5, CLAIM_TAKEN));
    claim_send(page, CALLER, 5 + CLAIM_SLOTS); /* the same call again, in the same word */
    assert_false(claim_make(page, CALLER, 5, CLAIM_BEGUN));
    assert_true(claim_make(page, CALLER, 5 + CLAIM_SLOTS, CLAIM_TAKEN));
    claim_send(page, NEXT, 5); /* another caller's fifth */
    assert_false(claim_make(page, CALLER, 5, CLAIM_BEGUN));
    assert_true(claim_make(page, NEXT, 5, CLAIM_BEGUN));
    assert_false(claim_make(page, NEXT, 5, CLAIM_TAKEN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_call_has_one_taker),
                                       cmocka_unit_test(a_copy_that_was_taken_back_is_nobodys)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
