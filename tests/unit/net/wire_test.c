/* wire_test.c - messages survive the way, and broken ones do no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "net/wire.h"
#include "ok.h"

static void write_all(buf *b)
{
    wire_put_u8(b, 7);
    wire_put_u32(b, 0xfeedbeef);
    wire_put_u64(b, UINT64_MAX - 1);
    wire_put_i64(b, -5);
    wire_put_text(b, "gradient");
    wire_put_bytes(b, "\0\1\2", 3);
    wire_put_text(b, NULL);
}

static manta_status read_all(wire *w)
{
    char text[16];
    size_t n;

    (void)wire_u8(w);
    (void)wire_u32(w);
    (void)wire_u64(w);
    (void)wire_i64(w);
    wire_text(w, text, sizeof text);
    (void)wire_bytes(w, &n);
    wire_text(w, text, sizeof text);
    return wire_end(w, "test");
}

static void what_is_written_is_read(void **state)
{
    buf b = {0};
    char text[16];
    size_t n;
    (void)state;

    write_all(&b);
    wire w = wire_of(b.at, b.n);
    assert_int_equal(wire_u8(&w), 7);
    assert_int_equal(wire_u32(&w), 0xfeedbeef);
    assert_true(wire_u64(&w) == UINT64_MAX - 1);
    assert_true(wire_i64(&w) == -5);
    wire_text(&w, text, sizeof text);
    assert_string_equal(text, "gradient");
    const void *bytes = wire_bytes(&w, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(bytes, "\0\1\2", 3);
    wire_text(&w, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(wire_end(&w, "test"), MANTA_OK);
    buf_release(&b);
}

/* Every shorter message is broken, and nothing beyond its end is read (the
 * address sanitizer watches: the copy is exactly as long as the message). */
static void every_cut_is_noticed(void **state)
{
    buf b = {0};
    (void)state;

    write_all(&b);
    for (size_t n = 0; n < b.n; n++) {
        char *copy = test_malloc(n + 1);
        memcpy(copy, b.at, n);
        wire w = wire_of(copy, n);
        assert_int_equal(read_all(&w), MANTA_ECORRUPT);
        test_free(copy);
    }
    wire_put_u8(&b, 1);
    wire w = wire_of(b.at, b.n);
    assert_int_equal(read_all(&w), MANTA_ECORRUPT); /* and so is a longer one */
    assert_error_says("1 bytes too many");
    buf_release(&b);
}

static void hostile_lengths_are_refused(void **state)
{
    const uint64_t lengths[] = {UINT64_MAX, (uint64_t)1 << 63, 9, 1000};
    (void)state;

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        buf b = {0};
        size_t n;
        char text[4] = "abc";
        wire_put_u64(&b, lengths[i]);
        wire_put_u64(&b, 0x4141414141414141);
        wire w = wire_of(b.at, b.n);
        assert_null(wire_bytes(&w, &n));
        assert_int_equal(n, 0);
        w = wire_of(b.at, b.n);
        wire_text(&w, text, sizeof text);
        assert_string_equal(text, "");
        assert_true(w.broken);
        buf_release(&b);
    }
}

static void texts_that_do_not_fit_break_the_message(void **state)
{
    buf b = {0};
    char small[4];
    (void)state;

    wire_put_text(&b, "four");
    wire w = wire_of(b.at, b.n);
    wire_text(&w, small, sizeof small);
    assert_string_equal(small, "");
    assert_true(w.broken);
    buf_cut(&b, 0);
    wire_put_bytes(&b, "a\0b", 3);
    w = wire_of(b.at, b.n);
    wire_text(&w, small, sizeof small);
    assert_true(w.broken);
    buf_release(&b);
}

static void random_bytes_do_no_harm(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        uint32_t words[16];
        rng_fill(rng_make(seed, 1), 0, 4, words);
        wire w = wire_of(words, words[0] % sizeof words);
        (void)read_all(&w);
        assert_true(w.at <= w.end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(hostile_lengths_are_refused),
        cmocka_unit_test(texts_that_do_not_fit_break_the_message),
        cmocka_unit_test(random_bytes_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
