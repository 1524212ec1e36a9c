/* failure_test.c - failures and what they carry: counted, passed on by calls, as bytes and back, and
 * bytes that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "task/failure.h"
#include "task/incoming.h"
#include "task/object.h"
#include "task/packed.h"
#include "task/runtime.h"
#include "task/value.h"

static int64_t live;

static int begin(void **state)
{
    (void)state;
    live = mem_live();
    if (runtime_open_local()) return -1;
    mutex_lock(&rt->lock);
    return 0;
}

static int end(void **state)
{
    (void)state;
    rt_current = NULL;
    mutex_unlock(&rt->lock);
    runtime_close();
    assert_int_equal(mem_live(), live);
    return 0;
}

static failure *with_payload(const char *text, const void *bytes, size_t n)
{
    failure *f = failure_make(MANTA_FAILURE_TASK, MANTA_ENAN, "train", 7, "no number");

    assert_int_equal(payload_make(text, bytes, n, &f->payload), MANTA_OK);
    return f;
}

/* Sizes of payloads and texts on both sides of what lies inside a message. */
static void what_a_failure_carries_comes_back(void **state)
{
    static const size_t sizes[] = {0, 1, 64, 8000, 8063, 8064, 8065, 8128, 8192, 8193, 100000};
    static char bytes[100000], text[9001];
    (void)state;

    memset(text, 't', sizeof text - 1);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i % 251);
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i / 2], size;
        const char *said = i % 2 ? text : NULL, *whole = NULL;
        const void *at = NULL;
        buf b = {0};
        failure *f = with_payload(said, bytes, n);
        failure_put(&b, f);
        assert_true(failure_length(f) >= b.n);
        wire w = wire_of(b.at, b.n);
        failure *back = failure_adopt(failure_take(&w));
        assert_int_equal(wire_end(&w, "failure"), MANTA_OK);
        assert_memory_equal(&back->is, &f->is, sizeof f->is);
        failure_unref(f); /* the other holds it as well */
        rt_flush_drops();
        assert_int_equal(payload_read(back->payload, &whole, &at, &size), MANTA_OK);
        assert_int_equal(size, n);
        assert_int_equal((uintptr_t)at % 64, 0);
        if (n > 0) assert_memory_equal(at, bytes, n);
        if (said)
            assert_string_equal(whole, text);
        else
            assert_null(whole);
        failure_unref(back);
        rt_flush_drops();
        assert_int_equal(rt->objects.n, 0);
        buf_release(&b);
    }
}

static void what_is_moved_out_is_the_same(void **state)
{
    const char *whole;
    const void *at;
    size_t n;
    failure *f = with_payload("a long text", "bytes", 6);
    payload *out = NULL;
    (void)state;

    assert_int_equal(f->payload->object, 0);
    assert_int_equal(payload_move_out(f->payload, &out), MANTA_OK);
    assert_true(out->object != 0 && payload_length(out) < payload_length(f->payload));
    assert_int_equal(payload_read(out, &whole, &at, &n), MANTA_OK);
    assert_string_equal(whole, "a long text");
    assert_int_equal(n, 6);
    assert_string_equal(at, "bytes");
    payload_unref(out);
    failure_unref(f);
}

/* A call that returns what it was told passes it on, with its own name in front. */
static void a_call_passes_on_what_it_was_told(void **state)
{
    incoming in = {.task = 1};
    failure *f = with_payload(NULL, "bytes", 6);
    (void)state;

    rt_current = &in;
    manta_status st = failure_raise(f);
    failure *passed = failure_here(MANTA_FAILURE_TASK, st, "outer");
    assert_ptr_equal(passed->payload, f->payload);
    assert_string_equal(passed->is.chain, "outer > train");
    assert_string_equal(f->is.chain, "train"); /* nobody changes what others have */
    failure_unref(passed);
    st = manta_fail(MANTA_ENAN, "of its own");
    passed = failure_here(MANTA_FAILURE_TASK, st, "outer");
    assert_null(passed->payload);
    assert_string_equal(passed->is.text, "of its own");
    failure_unref(passed);
    assert_int_equal(failure_raise(f), MANTA_ENAN); /* the same once more */
    failure_unref(f);
    passed = failure_as(in.told->f, MANTA_FAILURE_ACTOR, MANTA_EDIED);
    assert_int_equal(passed->is.kind, MANTA_FAILURE_ACTOR);
    assert_int_equal(passed->is.code, MANTA_EDIED);
    assert_non_null(passed->payload);
    failure_unref(passed);
    failure_told_free(in.told);
}

static void put_head(buf *b)
{
    failure *f = failure_make(MANTA_FAILURE_TASK, MANTA_ENAN, "f", 1, "why");

    failure_put(b, f);
    buf_cut(b, b->n - 4); /* the form of its payload */
    failure_unref(f);
}

static void expect_broken(const buf *b)
{
    wire w = wire_of(b->at, b->n);
    failure *f = failure_take(&w);

    assert_int_equal(wire_end(&w, "failure"), MANTA_ECORRUPT);
    assert_null(f->payload);
    failure_unref(f);
}

static void a_payload_that_lies_is_refused(void **state)
{
    const manta_ref inner = {77};
    const manta_packed_block two[] = {{"a", 1}, {"b", 1}};
    const manta_packed odd[] = {
        {.refs = &inner, .n_refs = 1}, {.blocks = two, .n_blocks = 2}, {.head = "no end", .head_size = 6}};
    char bytes[1024];
    buf b = {0};
    (void)state;

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        uint64_t n = 0;
        assert_int_equal(packed_measure(&odd[i], false, &n), MANTA_OK);
        packed_copy(&odd[i], bytes);
        put_head(&b);
        wire_put_u32(&b, 1);
        wire_put_bytes(&b, bytes, (size_t)n);
        expect_broken(&b);
        buf_cut(&b, 0);
    }
    for (uint32_t form = 0; form < 6; form++) { /* a number that is none, no number, no such form */
        put_head(&b);
        wire_put_u32(&b, form);
        if (form > 0) wire_put_u64(&b, 0);
        if (form == 0) wire_put_u32(&b, 9);
        expect_broken(&b);
        buf_cut(&b, 0);
    }
    for (uint64_t seed = 0; seed < 3000; seed++) { /* most are no value, none does harm */
        uint32_t words[16];
        rng_fill(rng_make(seed, 1), 0, 4, words);
        words[0] &= 3;
        words[1] = words[2] = words[3] = words[4] = 0;
        words[seed % 5] = (uint32_t)(seed % 3);
        put_head(&b);
        wire_put_u32(&b, 1);
        wire_put_bytes(&b, words, 24 + seed % 40);
        wire w = wire_of(b.at, b.n);
        failure_unref(failure_take(&w));
        buf_cut(&b, 0);
    }
    buf_release(&b);
}

/* Numbers of ours that nobody was given yet. */
static void an_object_that_cannot_be_is_not_held(void **state)
{
    buf b = {0};
    (void)state;

    put_head(&b);
    wire_put_u32(&b, 3);
    wire_put_u64(&b, ((uint64_t)rt->client << CLIENT_SHIFT) + 1000);
    wire w = wire_of(b.at, b.n);
    failure *f = failure_adopt(failure_take(&w));
    assert_int_equal(wire_end(&w, "failure"), MANTA_OK);
    assert_null(f->payload);
    assert_int_equal(rt->objects.n, 0);
    failure_unref(f);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_failure_carries_comes_back, begin, end),
        cmocka_unit_test_setup_teardown(what_is_moved_out_is_the_same, begin, end),
        cmocka_unit_test_setup_teardown(a_call_passes_on_what_it_was_told, begin, end),
        cmocka_unit_test_setup_teardown(a_payload_that_lies_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(an_object_that_cannot_be_is_not_held, begin, end)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
