/* status_test.c - the sentence survives its journey, and hostile bytes do no harm. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

static manta_status fail_below(void)
{
    return manta_fail(MANTA_ECORRUPT, "shard %d: checksum", 3);
}

static manta_status pass_on(int *reached)
{
    TRY(MANTA_OK);
    TRY(fail_below());
    *reached = 1;
    return MANTA_OK;
}

static void the_first_to_know_says_it(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(pass_on(&reached), MANTA_ECORRUPT);
    assert_int_equal(reached, 0);
    assert_string_equal(manta_error_text(), "shard 3: checksum");
}

static void a_sentence_may_contain_the_last_one(void **state)
{
    (void)state;
    (void)!manta_fail(MANTA_EIO, "disk");
    assert_int_equal(manta_fail(MANTA_EINVAL, "loading: %s", manta_error_text()), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "loading: disk");
}

static void a_long_sentence_is_cut_visibly(void **state)
{
    (void)state;
    char text[1000];
    manta_error e;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    (void)!manta_fail(MANTA_EIO, "%s", text);
    size_t n = strlen(manta_error_text());
    assert_int_equal(n, sizeof e.text - 1);
    assert_string_equal(manta_error_text() + n - 3, "...");
    /* Two-byte characters at either parity: none is cut in half. */
    for (int shift = 0; shift < 2; shift++) {
        for (size_t i = 0; i + 1 < sizeof text; i += 2) memcpy(text + i, "\xC3\xA9", 2);
        text[998] = 0;
        (void)!manta_fail(MANTA_EIO, "%s%s", shift ? "x" : "", text);
        n = strlen(manta_error_text());
        assert_string_equal(manta_error_text() + n - 3, "...");
        assert_int_equal((unsigned char)manta_error_text()[n - 4], 0xA9);
    }
}

static void an_exact_fit_is_not_cut(void **state)
{
    (void)state;
    manta_error e;
    char text[sizeof e.text];
    memset(text, 'y', sizeof text);
    text[sizeof text - 1] = 0;
    (void)!manta_fail(MANTA_EIO, "%s", text);
    assert_string_equal(manta_error_text(), text);
}

static void it_carries_its_origin(void **state)
{
    (void)state;
    manta_error e, back;
    manta_error_origin("node7", 3);
    (void)!manta_fail(MANTA_EDIED, "gone");
    manta_error_get(&e);
    manta_error_origin(NULL, -1);
    assert_int_equal(e.code, MANTA_EDIED);
    assert_int_equal(e.rank, 3);
    assert_string_equal(e.host, "node7");
    (void)!manta_fail(MANTA_EIO, "something else");
    assert_int_equal(manta_error_raise(&e), MANTA_EDIED);
    manta_error_get(&back);
    assert_memory_equal(&back, &e, sizeof e);
    (void)!manta_fail(MANTA_EIO, "here");
    manta_error_get(&back);
    assert_int_equal(back.rank, -1);
    assert_string_equal(back.host, "");
}

static void hostile_bytes_do_no_harm(void **state)
{
    (void)state;
    manta_error e, back;
    memset(&e, 0xFF, sizeof e); /* no terminator, a code and a rank that do not exist */
    assert_int_equal(manta_error_raise(&e), MANTA_EINTERNAL);
    manta_error_get(&back);
    assert_int_equal(back.rank, -1);
    assert_int_equal(strlen(back.text), sizeof back.text - 1);
    assert_int_equal(strlen(back.host), sizeof back.host - 1);

    memset(&e, 0, sizeof e); /* claims success */
    memcpy(e.text, "a\x1b[2J\x7f\nb", 9);
    assert_int_equal(manta_error_raise(&e), MANTA_EINTERNAL);
    assert_string_equal(manta_error_text(), "a?[2J?\nb");

    manta_error_get(&back);
    back.code = (manta_status)1000;
    assert_int_equal(manta_error_raise(&back), MANTA_EINTERNAL);
}

static void *other_thread(void *arg)
{
    (void)arg;
    if (*manta_error_text()) return (void *)1;
    (void)!manta_fail(MANTA_EIO, "of the other thread");
    return NULL;
}

static void each_thread_has_its_own(void **state)
{
    (void)state;
    pthread_t t;
    void *result;
    (void)!manta_fail(MANTA_EIO, "mine");
    assert_int_equal(pthread_create(&t, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(t, &result), 0);
    assert_null(result);
    assert_string_equal(manta_error_text(), "mine");
}

static void every_code_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = MANTA_OK; i <= MANTA_EINTERRUPTED; i++) {
        assert_string_not_equal(manta_status_name((manta_status)i), "no status");
        for (int j = 0; j < i; j++)
            assert_string_not_equal(manta_status_name((manta_status)i), manta_status_name((manta_status)j));
    }
    assert_string_equal(manta_status_name((manta_status)(MANTA_EINTERRUPTED + 1)), "no status");
    assert_string_equal(manta_status_name((manta_status)-1), "no status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_to_know_says_it),
        cmocka_unit_test(a_sentence_may_contain_the_last_one),
        cmocka_unit_test(a_long_sentence_is_cut_visibly),
        cmocka_unit_test(an_exact_fit_is_not_cut),
        cmocka_unit_test(it_carries_its_origin),
        cmocka_unit_test(hostile_bytes_do_no_harm),
        cmocka_unit_test(each_thread_has_its_own),
        cmocka_unit_test(every_code_has_a_name_of_its_own),
    };

    return cmocka_run_group_tests_name("base/status", tests, NULL, NULL);
}
