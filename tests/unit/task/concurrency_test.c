/* concurrency_test.c - the concurrency groups of an actor: their text, who is in which, and places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "task/concurrency.h"

static void a_call_is_in_the_group_it_names_or_in_its_methods(void **state)
{
    concurrency *c;
    (void)state;

    assert_int_equal(concurrency_new("io=2,compute=4;read=io,write=io", 3, &c), MANTA_OK);
    assert_true(concurrency_is_grouped(c));
    assert_int_equal(concurrency_total(c), 9);
    int io = concurrency_find(c, "io", "other"), compute = concurrency_find(c, "compute", "read");
    assert_string_equal(concurrency_name(c, io), "io");
    assert_string_equal(concurrency_name(c, compute), "compute");
    assert_int_equal(concurrency_find(c, NULL, "read"), io);
    assert_int_equal(concurrency_find(c, "", "write"), io);
    assert_int_equal(concurrency_find(c, "", "other"), 0);
    assert_string_equal(concurrency_name(c, 0), "");
    assert_int_equal(concurrency_find(c, "none", "read"), -1);
    concurrency_free(c);
}

static void each_group_has_its_own_places(void **state)
{
    concurrency *c;
    (void)state;

    assert_int_equal(concurrency_new("io=2", 1, &c), MANTA_OK);
    int io = concurrency_find(c, "io", "");
    concurrency_enter(c, 0);
    assert_false(concurrency_has_room(c, 0));
    concurrency_enter(c, io);
    assert_true(concurrency_has_room(c, io));
    concurrency_enter(c, io);
    assert_false(concurrency_has_room(c, io));
    concurrency_leave(c, io);
    assert_true(concurrency_has_room(c, io));
    assert_false(concurrency_has_room(c, 0));
    concurrency_leave(c, 0);
    assert_true(concurrency_has_room(c, 0));
    concurrency_free(c);
}

static void without_a_text_there_is_one(void **state)
{
    const char *const texts[] = {NULL, "", ";"};
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        concurrency *c;
        assert_int_equal(concurrency_new(texts[i], 5, &c), MANTA_OK);
        assert_false(concurrency_is_grouped(c));
        assert_int_equal(concurrency_total(c), 5);
        concurrency_free(c);
    }
    concurrency_free(NULL);
}

static void what_is_no_text_is_refused_in_words(void **state)
{
    static const struct {
        const char *text, *says;
    } all[] = {{"io", "no name=value"},          {"=2", "no name=value"},
               {"io=", "no name=value"},         {"io=2,", NULL},
               {"io=x", "lets x calls"},         {"io=0", "lets 0 calls"},
               {"io=-1", "lets -1 calls"},       {"io=1001", "lets 1001 calls"},
               {"io=1,io=2", "is named twice"},  {"io=1;read=disk", "group disk"},
               {"io=1;read", "no name=value"},   {",io=1", "no name=value"},
               {"io=1;read=io;x=io", "no name"}, {"io=99999999999999999999", "calls run at once"}};
    (void)state;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        concurrency *c = NULL;
        manta_status st = concurrency_new(all[i].text, 1, &c);
        assert_int_equal(st, all[i].says ? MANTA_EINVAL : MANTA_OK);
        if (st) assert_non_null(strstr(manta_error_text(), all[i].says));
        if (!st) concurrency_free(c);
    }
}

static void options_are_joined_if_they_fit(void **state)
{
    char text[CONCURRENCY_TEXT], many[2 * CONCURRENCY_TEXT] = "";
    size_t n = 0;
    (void)state;

    assert_int_equal(concurrency_join("io=2", NULL, text), MANTA_OK);
    assert_string_equal(text, "io=2");
    assert_int_equal(concurrency_join("io=2", "read=io", text), MANTA_OK);
    assert_string_equal(text, "io=2;read=io");
    assert_int_equal(concurrency_join(NULL, "read=io", text), MANTA_EINVAL);
    for (int i = 0; n < CONCURRENCY_TEXT; i++)
        n += (size_t)snprintf(many + n, sizeof many - n, "%sgroup%d=1", i ? "," : "", i);
    assert_int_equal(concurrency_join(many, NULL, text), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "fit"));
    many[900] = 0; /* more groups than there may be */
    *strrchr(many, ',') = 0;
    assert_int_equal(concurrency_join(many, NULL, text), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "more than"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_in_the_group_it_names_or_in_its_methods),
        cmocka_unit_test(each_group_has_its_own_places),
        cmocka_unit_test(without_a_text_there_is_one),
        cmocka_unit_test(what_is_no_text_is_refused_in_words),
        cmocka_unit_test(options_are_joined_if_they_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
