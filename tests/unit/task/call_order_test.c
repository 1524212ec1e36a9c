/* call_order_test.c - a shape's queue against a plain array that is searched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "task/call.h"
#include "task/call_order.h"

enum { CALLS = 400 };

static call calls[CALLS];

static void setup(call_order *q)
{
    call_order_init(q);
    for (int i = 0; i < CALLS; i++) {
        calls[i] = (call){.id = (uint64_t)i + 1};
        list_init(&calls[i].link);
    }
}

static void the_oldest_is_first(void **state)
{
    call_order q;
    (void)state;

    setup(&q);
    assert_null(call_order_first(&q));
    for (int i = 100; i < 200; i++) call_order_put(&q, &calls[i]);
    assert_ptr_equal(call_order_first(&q), &calls[100]);
    call_order_put(&q, &calls[50]); /* late: it is older than all */
    call_order_put(&q, &calls[20]);
    call_order_put(&q, &calls[70]);
    call_order_put(&q, &calls[300]);
    for (int k = 0; k < 3; k++) {
        call *c = &calls[(const int[]){20, 50, 70}[k]];
        assert_ptr_equal(call_order_first(&q), c);
        call_order_take(&q, c);
    }
    assert_ptr_equal(call_order_first(&q), &calls[100]);
    call_order_take(&q, &calls[100]);
    call_order_put_first(&q, &calls[100]); /* it comes back */
    assert_ptr_equal(call_order_first(&q), &calls[100]);
    for (int i = 100; i < 200; i++) call_order_take(&q, &calls[i]);
    assert_ptr_equal(call_order_first(&q), &calls[300]);
    call_order_take(&q, &calls[300]);
    call_order_take(&q, &calls[300]); /* harmless */
    assert_null(call_order_first(&q));
    call_order_release(&q);
}

/* Whatever comes and goes in whatever order, the first is the one with the smallest number. */
static void it_is_right_in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        bool in[CALLS] = {0};
        call_order q;
        setup(&q);
        for (uint64_t k = 0; k < 4000; k++) {
            size_t i = (size_t)rng_below(rng_make(seed, 1), k, CALLS);
            if (in[i])
                call_order_take(&q, &calls[i]);
            else
                call_order_put(&q, &calls[i]);
            in[i] = !in[i];
            assert_int_equal(list_is_empty(&calls[i].link), !in[i]);
            size_t least = 0;
            while (least < CALLS && !in[least]) least++;
            assert_ptr_equal(call_order_first(&q), least < CALLS ? &calls[least] : NULL);
        }
        call_order_release(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_is_first),
        cmocka_unit_test(it_is_right_in_any_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
