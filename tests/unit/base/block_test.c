/* block_test.c - what a block looks like in a pipe, and that no text breaks out of it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/tool_text.h>

#include "base/log.h"

/* What showing b writes to standard error, into text of `size` bytes. */
static void shown(const manta_block *b, char *text, size_t size)
{
    int saved = dup(STDERR_FILENO);
    FILE *f = tmpfile();

    assert_true(saved >= 0 && f && dup2(fileno(f), STDERR_FILENO) >= 0);
    manta_block_show(b);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(f);
    text[fread(text, 1, size - 1, f)] = '\0';
    fclose(f);
}

static void head_and_lines(void **state)
{
    manta_block b = {{0}};
    char text[400];

    (void)state;
    setenv("TERM", "xterm", 1); /* of no interest to a file */
    manta_block_add(&b, "worker %d", 1);
    manta_block_add(&b, " failed");
    manta_block_line(&b, "what");
    manta_block_add(&b, "it said \033[2J\nand \177\xC2\x9B no %s", "more");
    manta_block_line(&b, "now");
    manta_block_add(&b, "%d %%", 100);
    shown(&b, text, sizeof text);
    assert_string_equal(text, "manta: worker 1 failed\n"
                              "  what   it said ?[2J?and ?? no more\n"
                              "  now    100 %\n");
}

static void too_long_is_cut(void **state)
{
    manta_block b = {{0}};
    char text[2 * sizeof b.text];

    (void)state;
    manta_block_add(&b, "head");
    for (int i = 0; i < 100; i++) {
        manta_block_line(&b, "what");
        manta_block_add(&b, "%099d", i);
    }
    assert_int_equal(strlen(b.text), sizeof b.text - 1);
    shown(&b, text, sizeof text);
    assert_int_equal(strlen(text), strlen("manta: ") + sizeof b.text - 1 + 1);
    assert_int_equal(text[strlen(text) - 1], '\n');
}

static void words_of_a_shell_are_quoted_where_they_must_be(void **state)
{
    static const char *const cases[][2] = {
        {"run-1", "run-1"},           {"/a/b.c", "/a/b.c"},   {"", "''"},
        {"two words", "'two words'"}, {"it's", "'it'\\''s'"}, {"$(id)", "'$(id)'"}};
    char out[40], small[8];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(manta_shell_word(cases[i][0], out, sizeof out), cases[i][1]);
    assert_string_equal(manta_shell_word("a 'very' long word", small, sizeof small),
                        "'a'"); /* still closed */
    assert_string_equal(manta_shell_word("a b", small, 3), "");
}

static void ignore(void *ctx, manta_log_level level, const char *line, size_t n)
{
    (void)ctx;
    (void)level;
    (void)line;
    (void)n;
}

static void people_or_programs(void **state)
{
    (void)state;
    unsetenv("MANTA_LOG");
    log_reset();
    assert_true(log_is_read(MANTA_LOG_LEVEL_WARN) && !log_is_read(MANTA_LOG_LEVEL_INFO));
    manta_log_set_format(MANTA_LOG_FORMAT_JSON);
    assert_false(log_is_read(MANTA_LOG_LEVEL_WARN));
    manta_log_set_format(MANTA_LOG_FORMAT_TEXT);
    manta_log_set_sink(ignore, NULL);
    assert_false(log_is_read(MANTA_LOG_LEVEL_WARN));
    manta_log_set_sink(NULL, NULL);
    (void)log_use_level(MANTA_LOG_LEVEL_OFF);
    assert_false(log_is_read(MANTA_LOG_LEVEL_ERROR));
    log_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(head_and_lines), cmocka_unit_test(too_long_is_cut),
                                       cmocka_unit_test(words_of_a_shell_are_quoted_where_they_must_be),
                                       cmocka_unit_test(people_or_programs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
