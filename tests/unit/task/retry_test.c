/* retry_test.c - what becomes of calls, and who gets the next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/retry.h"

static void verdicts(void **state)
{
    static const struct {
        retry_state s;
        retry_event e;
        retry_verdict want;
        manta_failure_kind kind;
    } cases[] = {
        /* a task whose worker died */
        {{.attempt = 0, .max_retries = 3, .begun = true}, RETRY_WORKER_DIED, RETRY_AGAIN, 0},
        {{.attempt = 2, .max_retries = 3, .begun = true}, RETRY_WORKER_DIED, RETRY_AGAIN, 0},
        {{.attempt = 3, .max_retries = 3, .begun = true},
         RETRY_WORKER_DIED,
         RETRY_FAIL,
         MANTA_FAILURE_WORKER},
        {{.attempt = 0, .max_retries = 0, .begun = true},
         RETRY_WORKER_DIED,
         RETRY_FAIL,
         MANTA_FAILURE_WORKER},
        {{.attempt = 99, .max_retries = MANTA_UNLIMITED, .begun = true}, RETRY_WORKER_DIED, RETRY_AGAIN, 0},
        {{.attempt = 3, .max_retries = 3}, RETRY_WORKER_DIED, RETRY_FREE, 0},
        /* an actor's call: it may have happened */
        {{.max_retries = 0, .is_actor = true, .begun = true},
         RETRY_WORKER_DIED,
         RETRY_FAIL,
         MANTA_FAILURE_UNKNOWN},
        {{.max_retries = 1, .is_actor = true, .begun = true}, RETRY_WORKER_DIED, RETRY_AGAIN, 0},
        /* the function itself failed */
        {{.max_retries = 3, .begun = true}, RETRY_FUNCTION_FAILED, RETRY_FAIL, MANTA_FAILURE_TASK},
        {{.max_retries = 3, .retry_errors = true, .begun = true}, RETRY_FUNCTION_FAILED, RETRY_AGAIN, 0},
        {{.attempt = 3, .max_retries = 3, .retry_errors = true, .begun = true},
         RETRY_FUNCTION_FAILED,
         RETRY_FAIL,
         MANTA_FAILURE_TASK},
        /* ended for its memory */
        {{.max_retries = 3, .begun = true}, RETRY_OVER_LIMIT, RETRY_FAIL, MANTA_FAILURE_MEMORY},
        {{.max_retries = 3}, RETRY_OVER_LIMIT, RETRY_FREE, 0},
        {{.max_retries = 1, .is_actor = true, .begun = true}, RETRY_OVER_LIMIT, RETRY_AGAIN, 0},
        {{.max_retries = 0, .is_actor = true, .begun = true},
         RETRY_OVER_LIMIT,
         RETRY_FAIL,
         MANTA_FAILURE_MEMORY},
        {{.max_retries = 3, .begun = true}, RETRY_MEMORY_SHORT, RETRY_AGAIN, 0},
        {{.attempt = 3, .max_retries = 3, .begun = true},
         RETRY_MEMORY_SHORT,
         RETRY_FAIL,
         MANTA_FAILURE_MEMORY},
        {{.max_retries = 3}, RETRY_MEMORY_SHORT, RETRY_FREE, 0},
        /* with some statuses only */
        {{.max_retries = 3, .retry_on = MANTA_ON(MANTA_EIO), .code = MANTA_EIO, .begun = true},
         RETRY_FUNCTION_FAILED,
         RETRY_AGAIN,
         0},
        {{.max_retries = 3,
          .retry_errors = true,
          .retry_on = MANTA_ON(MANTA_EIO) | MANTA_ON(MANTA_EBUSY),
          .code = MANTA_ENAN,
          .begun = true},
         RETRY_FUNCTION_FAILED,
         RETRY_FAIL,
         MANTA_FAILURE_TASK},
        {{.attempt = 3, .max_retries = 3, .retry_on = MANTA_ON(MANTA_EIO), .code = MANTA_EIO, .begun = true},
         RETRY_FUNCTION_FAILED,
         RETRY_FAIL,
         MANTA_FAILURE_TASK},
        /* given back untouched */
        {{.attempt = 3, .max_retries = 3}, RETRY_RETURNED, RETRY_FREE, 0},
        /* a cancelled call never comes again */
        {{.max_retries = 3, .cancelled = true, .begun = true},
         RETRY_WORKER_DIED,
         RETRY_FAIL,
         MANTA_FAILURE_CANCELLED},
        {{.max_retries = 3, .cancelled = true}, RETRY_RETURNED, RETRY_FAIL, MANTA_FAILURE_CANCELLED},
        {{.max_retries = 3, .cancelled = true, .retry_errors = true, .begun = true},
         RETRY_FUNCTION_FAILED,
         RETRY_FAIL,
         MANTA_FAILURE_CANCELLED},
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        manta_failure_kind kind = MANTA_FAILURE_NONE;
        assert_int_equal(retry_decide(&cases[i].s, cases[i].e, &kind), cases[i].want);
        if (cases[i].want == RETRY_FAIL) assert_int_equal(kind, cases[i].kind);
    }
}

static void idle_workers_come_first(void **state)
{
    spread_worker w[3] = {
        {.usable = true, .in_flight = 1, .load_ns = 10}, {.usable = false}, {.usable = true, .in_flight = 0}};
    (void)state;

    assert_int_equal(spread_pick(w, 3, 5, 1000, 8), 2);
    assert_int_equal(spread_pick(w, 3, -1, 1000, 8), 2);
    assert_int_equal(spread_pick(w, 2, 5, 1000, 8), 0);
    assert_int_equal(spread_pick(w, 0, 5, 1000, 8), -1);
}

static void short_calls_are_sent_ahead_and_long_ones_are_not(void **state)
{
    spread_worker w[2] = {{.usable = true, .in_flight = 3, .load_ns = 300},
                          {.usable = true, .in_flight = 2, .load_ns = 200}};
    (void)state;

    assert_int_equal(spread_pick(w, 2, 100, 1000, 8), 1); /* the shorter line */
    assert_int_equal(spread_pick(w, 2, 801, 1000, 8), -1);
    assert_int_equal(spread_pick(w, 2, 800, 1000, 8), 1);
    assert_int_equal(spread_pick(w, 2, -1, 1000, 8), -1); /* nobody knows how long it takes */
    assert_int_equal(spread_pick(w, 2, 1, 1000, 2), -1); /* lines are full */
    assert_int_equal(spread_pick(w, 2, 1, 1000, 3), 1);
    w[1].load_ns = 5000; /* behind a long one nobody waits */
    assert_int_equal(spread_pick(w, 2, 1, 1000, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts),
        cmocka_unit_test(idle_workers_come_first),
        cmocka_unit_test(short_calls_are_sent_ahead_and_long_ones_are_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
