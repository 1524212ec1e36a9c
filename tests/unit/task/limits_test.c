/* limits_test.c - who has to go for its memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/limits.h"

static void one_over_its_limit_goes(void **state)
{
    limits_why why;
    limits_process p[3] = {{.memory = 50, .limit = 100, .busy = true},
                           {.memory = 101, .limit = 100, .busy = true},
                           {.memory = 9000, .busy = true}};
    (void)state;

    assert_int_equal(limits_pick(p, 3, 500, 100, &why), 1);
    assert_int_equal(why, LIMITS_OWN);
    p[1].going = true;
    assert_int_equal(limits_pick(p, 3, 500, 100, &why), -1);
    assert_int_equal(why, LIMITS_FINE);
    p[1] = (limits_process){.memory = 100, .limit = 100, .busy = true}; /* as much as it may */
    assert_int_equal(limits_pick(p, 3, 500, 100, &why), -1);
}

static void the_largest_goes_when_the_machine_is_short(void **state)
{
    limits_why why;
    limits_process p[4] = {{.memory = 50, .busy = true},
                           {.memory = 300, .limit = 1000, .busy = true},
                           {.memory = 9000}, /* does nothing: its memory is the program's, shared by all */
                           {.memory = 200, .busy = true}};
    (void)state;

    assert_int_equal(limits_pick(p, 4, 100, 100, &why), -1);
    assert_int_equal(limits_pick(p, 4, 99, 100, &why), 1);
    assert_int_equal(why, LIMITS_MACHINE);
    p[1].going = true; /* its end may be enough */
    assert_int_equal(limits_pick(p, 4, 99, 100, &why), -1);
    p[0].limit = 10; /* but who is over its own limit goes all the same */
    assert_int_equal(limits_pick(p, 4, 99, 100, &why), 0);
    assert_int_equal(why, LIMITS_OWN);
    assert_int_equal(limits_pick(p, 0, 0, 100, &why), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_over_its_limit_goes),
        cmocka_unit_test(the_largest_goes_when_the_machine_is_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
