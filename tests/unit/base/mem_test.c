/* mem_test.c - counting, the failure hook, and arena and buf on top of it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "ok.h"

static int census_begin(void **state)
{
    static int64_t before;

    before = mem_live();
    *state = &before;
    return 0;
}

static int census_end(void **state)
{
    mem_fail_at(0, 0);
    return mem_live() == *(int64_t *)*state ? 0 : -1; /* a block left over fails the test */
}

static void control_memory_is_zeroed_and_counted(void **state)
{
    (void)state;
    int64_t before = mem_live();
    char *p = mem_new(100);
    for (int i = 0; i < 100; i++) assert_int_equal(p[i], 0);
    assert_int_equal(mem_live(), before + 1);
    strcpy(p, "kept");
    p = mem_resize(p, 10000);
    assert_string_equal(p, "kept");
    assert_int_equal(mem_live(), before + 1);
    char *fresh = mem_resize(NULL, 1);
    assert_int_equal(mem_live(), before + 2);
    mem_free(fresh);
    mem_free(p);
    mem_free(NULL);
    assert_int_equal(mem_live(), before);

    char *a = mem_strdup("abc"), *b = mem_strndup("abcdef", 2), *c = mem_strndup("ab", 10);
    char *d = mem_printf("%s-%d", a, 7), *e = mem_new(0);
    assert_string_equal(a, "abc");
    assert_string_equal(b, "ab");
    assert_string_equal(c, "ab");
    assert_string_equal(d, "abc-7");
    assert_non_null(e);
    mem_free(a), mem_free(b), mem_free(c), mem_free(d), mem_free(e);
}

static void user_memory_is_aligned_zeroed_and_refusable(void **state)
{
    (void)state;
    unsigned char *p = mem_try(1000);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (int i = 0; i < 1000; i++) assert_int_equal(p[i], 0);
    mem_try_free(p);
    assert_null(mem_try(SIZE_MAX));
    assert_null(mem_try_raw(SIZE_MAX - 63));
    p = mem_try(0);
    assert_non_null(p);
    mem_try_free(p);
    mem_try_free(NULL);

    void *q = NULL;
    assert_int_equal(mem_try_array(10, 8, "weights", &q), MANTA_OK);
    mem_try_free(q);
    q = &q;
    assert_int_equal(mem_try_array(-1, 8, "weights", &q), MANTA_ENOMEM);
    assert_int_equal(mem_try_array(INT64_MAX, 8, "weights", &q), MANTA_ENOMEM);
    assert_int_equal(mem_try_array(INT64_MAX, 1, "weights", &q), MANTA_ENOMEM);
    assert_ptr_equal(q, &q);
    assert_error_says("weights");
}

static void the_hook_fails_the_nth_call(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        for (int sticky = 0; sticky <= 1; sticky++) {
            mem_fail_at(n, sticky);
            for (int i = 1; i <= 5; i++) {
                void *p = mem_try_raw(8);
                int expected = sticky ? i >= n : i == n;
                assert_int_equal(p == NULL, expected);
                mem_try_free(p);
                mem_free(mem_new(8)); /* control memory neither fails nor counts */
            }
            assert_int_equal(mem_failures(), sticky ? 6 - n : 1);
        }
    }
    mem_fail_at(0, 1);
    void *p = mem_try(8);
    assert_non_null(p);
    assert_int_equal(mem_failures(), 0);
    mem_try_free(p);
}

static void arena_gives_zeroed_aligned_separate_memory(void **state)
{
    (void)state;
    arena a = {0};
    int64_t before = mem_live();
    for (int round = 0; round < 3; round++) {
        unsigned char *last = NULL;
        for (size_t size = 0; size < 500; size++) {
            unsigned char *p = arena_alloc(&a, size);
            assert_int_equal((uintptr_t)p % 16, 0);
            for (size_t i = 0; i < size; i++) assert_int_equal(p[i], 0);
            memset(p, 0xAB, size);
            if (last && size > 1) assert_int_equal(last[size - 2], 0xAB); /* the one before is untouched */
            last = p;
        }
        char *big = arena_alloc(&a, 100000); /* larger than a chunk */
        memset(big, 1, 100000);
        assert_string_equal(arena_strdup(&a, "name"), "name");
        assert_string_equal(arena_printf(&a, "%d/%s", 5, "x"), "5/x");
        int64_t *many = arena_array(&a, 10, sizeof *many);
        assert_int_equal(many[9], 0);
        if (round == 0) before = mem_live();
        assert_int_equal(mem_live(), before); /* later rounds live off the first one's chunks */
        arena_reset(&a);
    }
    arena_release(&a);
    arena_release(&a);
}

/* What a large round needed is not kept; a usual one then allocates nothing. */
static void an_arena_that_is_trimmed_keeps_one_chunk(void **state)
{
    arena a = {0};
    (void)state;
    int64_t empty = mem_live();

    arena_trim(&a);
    assert_int_equal(mem_live(), empty);
    for (int round = 0; round < 3; round++) {
        memset(arena_alloc(&a, 100), 0xAB, 100);
        int64_t usual = mem_live();
        assert_int_equal(usual, empty + 1);
        if (round == 1) (void)arena_alloc(&a, 100000);
        for (int i = 0; round == 1 && i < 1000; i++) (void)arena_alloc(&a, 100);
        arena_trim(&a);
        assert_int_equal(mem_live(), usual);
        const unsigned char *again = arena_alloc(&a, 100);
        for (int i = 0; i < 100; i++) assert_int_equal(again[i], 0);
        assert_int_equal(mem_live(), usual);
        arena_trim(&a);
    }
    (void)arena_alloc(&a, 100000);
    arena_release(&a);
    (void)arena_alloc(&a, 100000); /* alone: nothing of the usual size to keep */
    arena_trim(&a);
    assert_int_equal(mem_live(), empty);
}

static void buf_grows_and_is_always_a_string(void **state)
{
    (void)state;
    buf b = {0};
    assert_string_equal(buf_text(&b), "");
    buf_add(&b, NULL, 0);
    for (int i = 0; i < 1000; i++) {
        buf_printf(&b, "%d,", i);
        assert_int_equal(b.at[b.n], 0);
        assert_true(b.n < b.cap);
    }
    assert_int_equal(b.n, 10 * 2 + 90 * 3 + 900 * 4);
    assert_memory_equal(b.at, "0,1,2,", 6);
    assert_string_equal(b.at + b.n - 8, "998,999,");
    buf_cut(&b, 3);
    assert_string_equal(b.at, "0,1");
    buf_add(&b, "a\0b", 3);
    assert_int_equal(b.n, 6);
    assert_memory_equal(b.at, "0,1a\0b", 7);
    buf_release(&b);
    buf_release(&b);

    buf_add_text(&b, "xyz");
    for (int i = 0; i < 8; i++) buf_add(&b, b.at, b.n); /* its own bytes, while it moves */
    assert_int_equal(b.n, 3 * 256);
    for (size_t i = 0; i < b.n; i++) assert_int_equal(b.at[i], "xyz"[i % 3]);
    buf_cut(&b, 3);
    buf_add_char(&b, '!');
    char *taken = buf_take(&b);
    assert_string_equal(taken, "xyz!");
    assert_null(b.at);
    mem_free(taken);
    taken = buf_take(&b);
    assert_string_equal(taken, "");
    mem_free(taken);
}

static void buf_reserve_fails_without_harm(void **state)
{
    (void)state;
    buf b = {0};
    buf_add_text(&b, "old");
    for (int sticky = 0; sticky <= 1; sticky++) {
        mem_fail_at(1, sticky);
        assert_int_equal(buf_try_reserve(&b, 100000, "header"), MANTA_ENOMEM);
        mem_fail_at(0, 0);
        assert_string_equal(buf_text(&b), "old");
        assert_error_says("header");
    }
    assert_int_equal(buf_try_reserve(&b, SIZE_MAX, "header"), MANTA_ENOMEM);
    assert_int_equal(buf_try_reserve(&b, SIZE_MAX - 4, "header"), MANTA_ENOMEM);
    assert_int_equal(buf_try_reserve(&b, 100000, "header"), MANTA_OK);
    char *at = b.at;
    mem_fail_at(1, 1);
    assert_int_equal(buf_try_reserve(&b, 100000, "header"), MANTA_OK); /* what fits cannot fail */
    for (int i = 0; i < 100000; i++) buf_add_char(&b, 'n');
    assert_ptr_equal(b.at, at);
    assert_int_equal(b.n, 100003);
    mem_fail_at(0, 0);
    buf_release(&b);
}

#define CENSUS(f) cmocka_unit_test_setup_teardown(f, census_begin, census_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CENSUS(control_memory_is_zeroed_and_counted),
        CENSUS(user_memory_is_aligned_zeroed_and_refusable),
        CENSUS(the_hook_fails_the_nth_call),
        CENSUS(arena_gives_zeroed_aligned_separate_memory),
        CENSUS(an_arena_that_is_trimmed_keeps_one_chunk),
        CENSUS(buf_grows_and_is_always_a_string),
        CENSUS(buf_reserve_fails_without_harm),
    };

    return cmocka_run_group_tests_name("base/mem", tests, NULL, NULL);
}
