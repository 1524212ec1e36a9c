/* call_head_test.c - heads of calls as bytes and back, and heads that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "task/call_head.h"

static void assert_same(const call_head *a, const call_head *b)
{
    assert_int_equal(a->task, b->task);
    assert_int_equal(a->actor, b->actor);
    assert_int_equal(a->chain, b->chain);
    assert_int_equal(a->claim, b->claim);
    assert_int_equal(a->lends, b->lends);
    assert_int_equal(a->attempt, b->attempt);
    assert_int_equal(a->results, b->results);
    assert_int_equal(a->is_stream, b->is_stream);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->max_calls, b->max_calls);
    assert_int_equal(a->has_group, b->has_group);
}

/* The head as bytes and back, with something behind it; how many bytes it has. */
static size_t go_round(const call_head *h)
{
    call_head back;
    buf b = {0};

    call_head_put(&b, h);
    size_t n = b.n;
    wire_put_u32(&b, 77);
    wire w = wire_of(b.at, b.n);
    call_head_take(&w, &back);
    assert_same(h, &back);
    assert_int_equal(wire_u32(&w), 77);
    assert_false(w.broken);
    buf_release(&b);
    return n;
}

static void a_head_comes_back_as_it_was(void **state)
{
    (void)state;

    for (uint64_t i = 0; i < 1000; i++) {
        rng_words x = rng_at(rng_make(1, 0), i);
        uint64_t r = (uint64_t)x.w[0] << 32 | x.w[1], s = (uint64_t)x.w[2] << 32 | x.w[3];
        call_head h = {.task = r, .actor = s, .results = (uint32_t)(r >> 40) & 1023, .is_stream = r & 1};
        h.has_group = r & 16;
        if (r & 2) h.chain = s | 1;
        if (r & 4) h.claim = (uint32_t)s | 1;
        if (r & 8)
            h.lends = (uint32_t)(s >> 32) | 1;
        else
            h.attempt = (uint32_t)(s >> 32) & INT32_MAX;
        if (r & 16) h.window = (uint32_t)(r >> 8) | 1;
        if (r & 32) h.max_calls = (uint32_t)(s >> 8) | 1;
        (void)go_round(&h);
    }
}

static void a_call_that_no_call_has_made_pays_for_no_nesting(void **state)
{
    (void)state;

    assert_int_equal(go_round(&(call_head){.task = 1, .results = 1, .lends = 10001}), 24);
    assert_int_equal(go_round(&(call_head){.task = 1, .results = 1, .attempt = 3}), 24);
    assert_int_equal(go_round(&(call_head){.task = 1, .actor = 2, .results = 1, .is_stream = true}), 24);
    assert_int_equal(go_round(&(call_head){.task = 1, .results = 1, .lends = 10001, .chain = 5}), 40);
    assert_int_equal(go_round(&(call_head){.task = 1, .results = 1, .claim = 5}), 40);
    assert_int_equal(go_round(&(call_head){.task = 1, .results = 1, .window = 5}), 32);
    assert_int_equal(go_round(&(call_head){.task = 1, .results = 1, .window = 5, .max_calls = 6}), 40);
    assert_int_equal(go_round(&(call_head){.task = 1, .results = 1, .chain = 1, .window = UINT32_MAX}), 48);
}

static void a_head_that_is_cut_short_is_none(void **state)
{
    const call_head
        h = {.task = 1, .actor = 2, .chain = 3, .claim = 4, .lends = 5, .results = 6, .window = 7},
        none = {0};
    buf b = {0};
    (void)state;

    call_head_put(&b, &h);
    for (size_t n = 0; n < b.n; n++) {
        call_head back;
        wire w = wire_of(b.at, n);
        call_head_take(&w, &back);
        assert_true(w.broken);
        assert_same(&back, &none);
    }
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_head_comes_back_as_it_was),
                                       cmocka_unit_test(a_call_that_no_call_has_made_pays_for_no_nesting),
                                       cmocka_unit_test(a_head_that_is_cut_short_is_none)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
