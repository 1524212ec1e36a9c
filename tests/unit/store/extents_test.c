/* extents_test.c - blocks never overlap, and what is given back joins again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "store/extents.h"

static void low_places_first(void **state)
{
    extents e;
    uint64_t a = 1, b = 1, c = 1;
    (void)state;

    extents_init(&e, 4096);
    assert_true(extents_take(&e, 1, &a) && extents_take(&e, 64, &b) && extents_take(&e, 65, &c));
    assert_int_equal(a, 0);
    assert_int_equal(b, 64);
    assert_int_equal(c, 128);
    assert_int_equal(e.used, 64 + 64 + 128);
    assert_true(extents_give(&e, a));
    assert_false(extents_give(&e, a)); /* only once */
    assert_false(extents_give(&e, 5));
    assert_true(extents_take(&e, 64, &a));
    assert_int_equal(a, 0); /* the same, warm bytes */
    extents_release(&e);
}

static void full_is_full(void **state)
{
    extents e;
    uint64_t at, last;
    (void)state;

    extents_init(&e, 1000); /* the last 40 bytes are too few for a block */
    assert_false(extents_take(&e, 961, &at));
    assert_false(extents_take(&e, UINT64_MAX, &at));
    assert_true(extents_take(&e, 960, &at));
    assert_false(extents_take(&e, 1, &last));
    assert_true(extents_give(&e, at));
    assert_true(extents_take(&e, 960, &at));
    extents_release(&e);
}

/* Many takes and gives by a seed, against a map of bytes. */
static void random_use(void **state)
{
    enum { SIZE = 64 * 256, BLOCKS = 100 };
    (void)state;

    for (uint64_t seed = 0; seed < 200; seed++) {
        extents e;
        unsigned char owner[SIZE] = {0};
        uint64_t at[BLOCKS], size[BLOCKS] = {0}, used = 0;
        rng_key k = rng_make(seed, 7);
        extents_init(&e, SIZE);
        for (uint64_t step = 0; step < 400; step++) {
            uint64_t i = rng_below(k, 2 * step, BLOCKS);
            if (size[i]) {
                assert_true(extents_give(&e, at[i]));
                memset(owner + at[i], 0, size[i]);
                used -= size[i];
                size[i] = 0;
            } else {
                uint64_t want = 1 + rng_below(k, 2 * step + 1, 1000);
                if (!extents_take(&e, want, &at[i])) continue;
                size[i] = (want + 63) / 64 * 64;
                assert_true(at[i] % 64 == 0 && at[i] + size[i] <= SIZE);
                for (uint64_t b = 0; b < size[i]; b++) assert_int_equal(owner[at[i] + b], 0);
                memset(owner + at[i], (int)(i + 1), size[i]);
                used += size[i];
            }
            assert_int_equal(e.used, used);
            uint64_t free = 0;
            for (size_t f = 0; f < e.free.n; f++) {
                free += e.free.at[f].size;
                if (f > 0) assert_true(e.free.at[f - 1].at + e.free.at[f - 1].size < e.free.at[f].at);
            }
            assert_int_equal(free + used, SIZE);
        }
        for (int i = 0; i < BLOCKS; i++)
            if (size[i]) assert_true(extents_give(&e, at[i]));
        assert_int_equal(e.free.n, 1);
        assert_int_equal(e.used, 0);
        extents_release(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(low_places_first),
        cmocka_unit_test(full_is_full),
        cmocka_unit_test(random_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
