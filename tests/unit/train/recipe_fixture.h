/* recipe_fixture.h - recipes of a few words, a small model, and what is refused. */
#ifndef TEST_RECIPE_FIXTURE_H
#define TEST_RECIPE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/layer.h>
#include <manta/recipe.h>

#include "base/mem.h"
#include "ok.h"

/* A recipe with the settings of a text, apart by blanks: "lr=0.1 nesterov". */
static inline manta_recipe *recipe_of(const char *words)
{
    manta_recipe *r = manta_recipe_new(NULL);
    char *copy = mem_strdup(words), *rest = copy;

    for (char *word; (word = strsep(&rest, " "));) {
        if (*word) assert_ok(manta_recipe_add(r, word));
    }
    mem_free(copy);
    return r;
}

/* Four numbers to `units` numbers, with an activation (NULL: none). */
static inline manta_model *dense_model(int units, const char *activation)
{
    manta_model *m = manta_model_new("small");

    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){4});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 5, .activation = "relu"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = units, .activation = activation}));
    assert_ok(manta_model_build(m));
    return m;
}

/* The call fails because of a setting: with the code, a part of the sentence, and the blame. */
#define assert_blames(r, call, code, setting, part)                                                          \
    do {                                                                                                     \
        assert_fails_with(call, code, part);                                                                 \
        assert_non_null(manta_recipe_fault(r));                                                              \
        assert_string_equal(manta_recipe_fault(r), setting);                                                 \
    } while (0)

/* The call fails, and no setting is to blame. */
#define assert_fails_outside(r, call, code, part)                                                            \
    do {                                                                                                     \
        assert_fails_with(call, code, part);                                                                 \
        assert_null(manta_recipe_fault(r));                                                                  \
    } while (0)

static inline int count_memory(void **state)
{
    *state = mem_new(sizeof(int64_t));
    *(int64_t *)*state = mem_live();
    return 0;
}

static inline int assert_memory_is_back(void **state)
{
    int64_t before = *(int64_t *)*state;
    bool same = mem_live() == before;

    mem_free(*state);
    return same ? 0 : -1;
}

/* A test that gives all memory back. */
#define RECIPE_TEST(f) cmocka_unit_test_setup_teardown(f, count_memory, assert_memory_is_back)

#endif
