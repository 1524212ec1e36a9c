/* proto_test.c - protobuf on the wire: every kind of field, every way to be cut off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "format/codec/proto.h"

static void assert_bytes(const buf *b, const char *hex)
{
    char text[512] = "";

    for (size_t i = 0; i < b->n; i++) snprintf(text + 2 * i, 3, "%02x", (unsigned char)b->at[i]);
    assert_string_equal(text, hex);
}

static void fields_have_their_bytes(void **state)
{
    (void)state;
    buf b = {0};

    proto_add_int(&b, 1, 150);
    assert_bytes(&b, "089601");
    buf_cut(&b, 0);
    proto_add_int(&b, 2, -1);
    assert_bytes(&b, "10ffffffffffffffffff01");
    buf_cut(&b, 0);
    proto_add_text(&b, 2, "testing");
    assert_bytes(&b, "120774657374696e67");
    buf_cut(&b, 0);
    proto_add_float(&b, 2, 0.5f);
    proto_add_double(&b, 1, 1.0);
    proto_add_fixed32(&b, 6, 0x01020304);
    assert_bytes(&b, "150000003f09000000000000f03f3504030201");
    buf_cut(&b, 0);
    size_t m = proto_begin(&b, 3);
    proto_add_int(&b, 1, 150);
    proto_end(&b, m);
    proto_end(&b, proto_begin(&b, 16));
    assert_bytes(&b, "1a03089601820100");
    buf_release(&b);
}

/* A message of more than 127 bytes has a length of two. */
static void a_long_message_has_a_length_of_two_bytes(void **state)
{
    (void)state;
    buf b = {0};
    char text[300];
    proto_field f, g;

    memset(text, 'x', sizeof text);
    size_t m = proto_begin(&b, 1);
    proto_add_bytes(&b, 2, text, sizeof text);
    proto_end(&b, m);
    proto_reader r = proto_read(b.at, b.n);
    assert_int_equal(proto_next(&r, &f), PROTO_FIELD);
    proto_reader inner = proto_inside(&f);
    assert_int_equal(proto_next(&inner, &g), PROTO_FIELD);
    assert_int_equal(g.number, 2);
    assert_int_equal(g.n, sizeof text);
    assert_memory_equal(g.at, text, sizeof text);
    assert_int_equal(proto_next(&inner, &g), PROTO_END);
    assert_int_equal(proto_next(&r, &f), PROTO_END);
    buf_release(&b);
}

static void fields_are_read_back(void **state)
{
    (void)state;
    buf b = {0};
    proto_field f;

    proto_add_int(&b, 1, INT64_MIN);
    proto_add_double(&b, 2, -2.5);
    proto_add_float(&b, 3, 1.25f);
    proto_add_text(&b, 536870911, "end");
    proto_reader r = proto_read(b.at, b.n);
    assert_int_equal(proto_next(&r, &f), PROTO_FIELD);
    assert_true(f.number == 1 && (int64_t)f.value == INT64_MIN);
    assert_int_equal(proto_next(&r, &f), PROTO_FIELD);
    assert_true(f.number == 2 && proto_double(&f) == -2.5);
    assert_int_equal(proto_next(&r, &f), PROTO_FIELD);
    assert_true(f.number == 3 && proto_float(&f) == 1.25f);
    assert_int_equal(proto_next(&r, &f), PROTO_FIELD);
    assert_int_equal(f.number, 536870911);
    assert_true(proto_is_text(&f, "end"));
    assert_false(proto_is_text(&f, "en"));
    char *text = proto_take_text(&f);
    assert_string_equal(text, "end");
    mem_free(text);
    assert_int_equal(proto_next(&r, &f), PROTO_END);
    buf_release(&b);
}

/* Cut anywhere, a message is whole to the last field before the cut, and bad or at an end after it. */
static void a_message_cut_at_any_byte_is_whole_before_the_cut(void **state)
{
    (void)state;
    buf b = {0};
    size_t ends[8], n = 0;

    proto_add_int(&b, 1, 1 << 20);
    ends[n++] = b.n;
    proto_add_double(&b, 2, 1);
    ends[n++] = b.n;
    proto_add_float(&b, 3, 1);
    ends[n++] = b.n;
    proto_add_text(&b, 4, "hello");
    ends[n++] = b.n;
    for (size_t cut = 0; cut <= b.n; cut++) {
        uint8_t *copy = mem_try_raw(cut ? cut : 1); /* its own end, for the sanitizer */
        memcpy(copy, b.at, cut);
        proto_reader r = proto_read(copy, cut);
        proto_field f;
        size_t whole = 0, fields = 0;
        while (whole < n && ends[whole] <= cut) whole++;
        proto_step s;
        while ((s = proto_next(&r, &f)) == PROTO_FIELD) fields++;
        assert_int_equal(fields, whole);
        bool at_end = cut == 0 || (whole > 0 && ends[whole - 1] == cut);
        assert_int_equal(s, at_end ? PROTO_END : PROTO_BAD);
        mem_try_free(copy);
    }
    buf_release(&b);
}

static void hostile_messages_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } cases[] = {
        {"\x00\x01", 2}, /* field 0 */
        {"\x0b", 1}, /* a group */
        {"\x0e\x01", 2}, /* wire type 6 */
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11}, /* 65 bits */
        {"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12}, /* too long */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, /* 2^64 - 1 bytes */
        {"\x0a\x05zzzz", 6}, /* one byte short */
        {"\xf8\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 11}, /* field number beyond 29 bits */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        proto_reader r = proto_read(cases[i].bytes, cases[i].n);
        proto_field f;
        assert_int_equal(proto_next(&r, &f), PROTO_BAD);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_have_their_bytes),
        cmocka_unit_test(a_long_message_has_a_length_of_two_bytes),
        cmocka_unit_test(fields_are_read_back),
        cmocka_unit_test(a_message_cut_at_any_byte_is_whole_before_the_cut),
        cmocka_unit_test(hostile_messages_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
