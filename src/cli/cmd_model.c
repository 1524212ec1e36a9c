/* cmd_model.c - manta model. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/print.h"
#include "cli/work.h"

static const option_group making = {
    "Making a model:",
    (const cli_option[]){{"output", OPTION_OUTPUT, "FILE",
                          "Where to write it: a .keras file, or the weights alone (.npz and others)"},
                         {"seed", OPTION_INT, "K", "Of the weights; 0 when not given"},
                         {0}}};

static int list_zoo(void)
{
    const char *name, *about;

    for (int i = 0; (name = manta_zoo_name(i, &about)); i++) print_out("%-12s  %s\n", name, about);
    return CLI_DONE;
}

/* Whether the file has a place for what a model is trained with when nothing is said, and there
 * is such a thing. */
static bool keeps_compiled(const char *name, const char *path)
{
    size_t n = strlen(path);

    return manta_recipe_defaults_of(name) && n >= 6 && !strcmp(path + n - 6, ".keras");
}

static manta_status write_model(manta_recipe *r, const char *name, const char *path, uint64_t seed)
{
    manta_session_options so = {.threads = 1, .seed = seed};
    const manta_compile *compile = NULL;
    manta_session *s;
    char params[32];
    manta_status st;

    if ((st = manta_recipe_open(r, name))) return st;
    if ((st = manta_output_check(path, NULL))) return st;
    if (keeps_compiled(name, path) && (st = manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &compile)))
        return st;
    if ((st = manta_session_open(manta_recipe_model(r), compile, &so, &s))) return st;
    if (!(st = manta_session_save(s, path)))
        print_out("%s parameters of %s written to %s\n",
                  work_number(manta_model_params(manta_recipe_model(r), false), params, sizeof params), name,
                  path);
    manta_session_close(s);
    return st;
}

static int make_model(const options *o)
{
    const char *name = options_arg(o, 0), *path = options_text(o, "output");
    manta_recipe *recipe;
    manta_status st;

    if (!name && (path || options_text(o, "seed"))) cli_usage("model needs the NAME of a model");
    if (!name) return list_zoo();
    if (!path) cli_usage("model %s needs -o FILE; 'manta inspect %s' shows its layers", name, name);
    recipe = manta_recipe_new("--");
    st = write_model(recipe, name, path, (uint64_t)options_int(o, "seed", 0));
    manta_recipe_free(recipe);
    return st ? cli_fail() : CLI_DONE;
}

const command cmd_model = {
    .name = "model",
    .args = "[NAME -o FILE]",
    .about = "List the models there are, or write one with fresh weights",
    .text =
        "Without NAME the zoo is listed. With it the model is written with freshly initialised weights: as "
        ".keras, which Keras and every command here take as MODEL, or the weights alone, which --weights "
        "takes.",
    .examples = "  manta model\n  manta model mnist-cnn -o mnist-cnn.keras --seed 7",
    .max_args = 1,
    .groups = {&making},
    .run = make_model,
};
