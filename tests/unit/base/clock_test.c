/* clock_test.c - deadlines, and a clock that says what the test wants. */
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"

static int64_t now;

static int64_t fake_now(void)
{
    return now;
}

static int64_t fake_wall(void)
{
    return 2 * now;
}

static void the_system_clock_goes_forward(void **state)
{
    (void)state;
    int64_t a = clock_now_ns(), b = clock_now_ns();
    assert_true(b >= a && a > 0);
    assert_true(clock_wall_ns() > (int64_t)1700000000 * 1000000000);
}

static void a_test_may_replace_it(void **state)
{
    (void)state;
    static const clock_source source = {fake_now, fake_wall};
    clock_replace(&source);
    now = 5000000000;
    assert_true(clock_now_ns() == now);
    assert_true(clock_wall_ns() == 2 * now);
    assert_true(clock_deadline(1500) == 6500000000);
    assert_true(clock_deadline(0) == now);
    assert_true(clock_deadline(-1) == CLOCK_NEVER);
    assert_true(clock_deadline(INT64_MAX) == CLOCK_NEVER);
    assert_true(clock_deadline(INT64_MAX / 1000000) == CLOCK_NEVER); /* the sum is too large, the span not */
    assert_int_equal(clock_left_ms(CLOCK_NEVER), -1);
    assert_int_equal(clock_left_ms(now - 1), 0);
    assert_int_equal(clock_left_ms(now), 0);
    assert_int_equal(clock_left_ms(now + 1), 1); /* never early */
    assert_int_equal(clock_left_ms(clock_deadline(1500)), 1500);
    assert_int_equal(clock_left_ms(CLOCK_NEVER - 1), INT_MAX);
    clock_replace(NULL);
    assert_true(clock_now_ns() != now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_system_clock_goes_forward),
        cmocka_unit_test(a_test_may_replace_it),
    };

    return cmocka_run_group_tests_name("base/clock", tests, NULL, NULL);
}
