/* utf8_test.c - what is a character, and what of a text a terminal is shown. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include <manta/tool_text.h>

#include "base/utf8.h"

static void lengths(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        uint32_t character;
    } rows[] = {
        {"a", 1, 'a'},
        {"\177", 1, 0x7F},
        {"\xC3\xA9", 2, 0xE9},
        {"\xE2\x94\x81", 3, 0x2501},
        {"\xF0\x9F\x98\x80", 4, 0x1F600},
        {"\x80", 0, 0}, /* begins nothing */
        {"\xC3", 0, 0}, /* cut short */
        {"\xC0\xAF", 0, 0}, /* longer than it need be */
        {"\xE0\x80\xAF", 0, 0},
        {"\xED\xA0\x80", 0, 0}, /* half of a pair */
        {"\xF4\x90\x80\x80", 0, 0}, /* beyond the last one */
        {"\xFF", 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const unsigned char *at = (const unsigned char *)rows[i].text;
        assert_int_equal(utf8_length(at), rows[i].n);
        if (rows[i].n) assert_int_equal(utf8_character(at, rows[i].n), rows[i].character);
    }
}

/* Every byte of its own: control characters and what is no UTF-8 are question marks. */
static void every_byte(void **state)
{
    (void)state;
    for (int byte = 1; byte < 256; byte++) {
        char text[2] = {(char)byte, '\0'};
        bool shown = byte >= ' ' && byte < 0x7F;
        manta_printable(text, "");
        assert_int_equal(*text, shown ? byte : '?');
    }
}

/* Every character of two bytes: those of C1 would be commands to a terminal. */
static void every_character_of_two_bytes(void **state)
{
    (void)state;
    for (unsigned c = 0x80; c < 0x800; c++) {
        char text[3] = {(char)(0xC0 | c >> 6), (char)(0x80 | (c & 0x3F)), '\0'}, before[3];
        memcpy(before, text, sizeof text);
        manta_printable(text, "");
        assert_string_equal(text, c < 0xA0 || c == 0x61C ? "?" : before);
    }
}

static void texts(void **state)
{
    static const char *const rows[][3] = {
        {"", "", ""},
        {"plain", "", "plain"},
        {"\033[31mred\033[0m", "", "?[31mred?[0m"},
        {"a\nb\tc\rd", "", "a?b?c?d"},
        {"a\nb\tc\rd", "\n\t", "a\nb\tc?d"},
        {"\xC2\x9B"
         "2J",
         "\n\t", "?2J"},
        {"na\xC3\xAFve \xE2\x94\x81 \xF0\x9F\x98\x80", "", "na\xC3\xAFve \xE2\x94\x81 \xF0\x9F\x98\x80"},
        {"\xE2\x80\xAEgpj.exe", "", "?gpj.exe"}, /* would be read from right to left */
        {"a\xE2\x80\xA8z\xE2\x81\xA6", "", "a?z?"},
        {"\xE9t\xE9", "", "?t?"}, /* Latin-1 */
        {"end\xE2\x94", "", "end??"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", rows[i][0]);
        assert_ptr_equal(manta_printable(text, rows[i][1]), text);
        assert_string_equal(text, rows[i][2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(every_byte),
        cmocka_unit_test(every_character_of_two_bytes),
        cmocka_unit_test(texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
