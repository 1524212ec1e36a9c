/* recipe_fuzz.c - words of a training, as a form or a file would hand them over: one a line. Whatever they are, they
 * are taken or refused, and what is made of them can be made again. Nothing is opened. */
#include <stdlib.h>
#include <string.h>

#include <manta/layer.h>
#include <manta/recipe.h>

#include "fuzz.h"

static manta_model *small_model(void)
{
    manta_model *m = manta_model_new("small");

    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 3}));
    if (manta_model_build(m)) abort();
    return m;
}

/* A failure says something; what goes well blames nothing. */
static void look_at(const manta_recipe *r, manta_status st)
{
    fuzz_expect(st);
    if (!st && manta_recipe_fault(r)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t before = mem_live();
    char *text = malloc(size + 1), *rest = text;
    manta_recipe *r = manta_recipe_new("--");
    manta_model *m = small_model();
    manta_callback *const *callbacks;
    manta_session_options so;
    const manta_compile *c;
    manta_fit_options fit;
    manta_schedule s;
    int n;

    if (!text) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *line; (line = strsep(&rest, "\n"));) {
        look_at(r, manta_recipe_add(r, line));
        if (!manta_schedule_named(line, 0.1, &s)) (void)manta_schedule_at(&s, 7);
    }
    look_at(r, manta_recipe_use(r, m));
    look_at(r, manta_recipe_session_options(r, &so));
    look_at(r, manta_recipe_fit_options(r, &fit));
    for (int purpose = MANTA_PURPOSE_TRAIN; purpose <= MANTA_PURPOSE_PREDICT; purpose++)
        look_at(r, manta_recipe_compile(r, (manta_purpose)purpose, &c));
    look_at(r, manta_recipe_callbacks(r, true, &n, &callbacks));
    manta_recipe_free(r);
    manta_model_free(m);
    free(text);
    fuzz_balance(before);
    return 0;
}
