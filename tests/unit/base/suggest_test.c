/* What a mistyped word was meant to be: near is a third of its letters, or its beginning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <manta/tool_text.h>

/* The best of three candidates for a typed word. */
static const char *nearest(const char *typed, const char *a, const char *b, const char *c)
{
    manta_suggestion s = manta_suggestion_for(typed);

    manta_suggestion_offer(&s, a);
    manta_suggestion_offer(&s, b);
    manta_suggestion_offer(&s, c);
    return s.best;
}

static void a_letter_too_many_too_few_or_swapped_is_near(void **state)
{
    (void)state;
    assert_string_equal(nearest("adma", "sgd", "adam", "rmsprop"), "adam");
    assert_string_equal(nearest("adamm", "sgd", "adam", "rmsprop"), "adam");
    assert_string_equal(nearest("rmsprp", "sgd", "adam", "rmsprop"), "rmsprop");
    assert_string_equal(nearest("epoch", "epochs", "ema", "rho"), "epochs");
}

static void the_nearest_wins_and_the_first_of_equals(void **state)
{
    (void)state;
    assert_string_equal(nearest("beta-3", "beta-1", "beta-2", "batch"), "beta-1");
    assert_string_equal(nearest("val_los", "val_auc", "val_loss", "loss"), "val_loss");
}

static void a_beginning_of_three_letters_is_near_the_whole(void **state)
{
    (void)state;
    assert_string_equal(nearest("learning", "rho", "learning-rate", "ema"), "learning-rate");
    assert_null(nearest("le", "rho", "learning-rate", "ema"));
}

static void what_has_nothing_in_common_is_not_near(void **state)
{
    char long_word[200];

    (void)state;
    memset(long_word, 'x', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    assert_null(nearest("zzzzzzzz", "sgd", "adam", "rmsprop"));
    assert_null(nearest("ab", "xy", "yx", "zz"));
    assert_null(nearest("", "sgd", "adam", "rmsprop"));
    assert_null(nearest(long_word, "sgd", "adam", "rmsprop"));
}

static void the_end_of_a_sentence_names_it(void **state)
{
    manta_suggestion s = manta_suggestion_for("adma");
    char buf[64], small[8];

    (void)state;
    assert_string_equal(manta_suggestion_text(&s, buf, sizeof buf), "");
    manta_suggestion_offer(&s, "adam");
    assert_string_equal(manta_suggestion_text(&s, buf, sizeof buf), "; did you mean adam?");
    assert_string_equal(manta_suggestion_text(&s, small, sizeof small), "; did y");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_letter_too_many_too_few_or_swapped_is_near),
        cmocka_unit_test(the_nearest_wins_and_the_first_of_equals),
        cmocka_unit_test(a_beginning_of_three_letters_is_near_the_whole),
        cmocka_unit_test(what_has_nothing_in_common_is_not_near),
        cmocka_unit_test(the_end_of_a_sentence_names_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
