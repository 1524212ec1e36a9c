/* Keys of what is not published yet. */
#include "train/storage/s3_key.h"

#include "base/mem.h"
#include "ok.h"

static void assert_settled(const char *key, const char *wanted)
{
    char *got = s3_key_settle(key);

    assert_string_equal(got, wanted);
    mem_free(got);
}

static void files_have_their_last_key_from_the_beginning(void **state)
{
    (void)state;
    assert_settled("r/c/.checkpoint-000003.812.manta-tmp/state.safetensors",
                   "r/c/checkpoint-000003/state.safetensors");
    assert_settled("r/c/.checkpoint-000003.manta-tmp/a/manifest.json",
                   "r/c/checkpoint-000003/a/manifest.json");
    assert_settled("r/c/.x.1.2.manta-tmp/f", "r/c/x.1/f");
}

static void the_manifest_and_the_mark_keep_theirs(void **state)
{
    (void)state;
    assert_settled("c/.checkpoint-000003.812.manta-tmp/manifest.json",
                   "c/.checkpoint-000003.812.manta-tmp/manifest.json");
    assert_settled("c/.checkpoint-000003.812.manta-tmp", "c/.checkpoint-000003.812.manta-tmp");
    assert_settled("c/checkpoint-000003/manifest.json", "c/checkpoint-000003/manifest.json");
    assert_settled("", "");
    assert_settled("c/.manta-tmp/f", "c/.manta-tmp/f");
    assert_settled("c/..manta-tmp/f", "c/..manta-tmp/f");
}

static void names_of_litter(void **state)
{
    char *got = s3_key_published("r/c/.checkpoint-000003.0.manta-tmp");

    (void)state;
    assert_string_equal(got, "r/c/checkpoint-000003");
    mem_free(got);
    assert_true(s3_key_is_litter("c/.a.manta-tmp"));
    assert_true(s3_key_is_litter(".5.manta-tmp"));
    assert_false(s3_key_is_litter("c/a.manta-tmp"));
    assert_false(s3_key_is_litter("c/.a.manta-tmp/b"));
    assert_false(s3_key_is_litter("c/.manta-tmp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_have_their_last_key_from_the_beginning),
        cmocka_unit_test(the_manifest_and_the_mark_keep_theirs),
        cmocka_unit_test(names_of_litter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
