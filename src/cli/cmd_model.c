/* cmd_model.c - manta model. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/recipe.h"
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

    for (int i = 0; (name = manta_zoo_name(i, &about)); i++) printf("%-12s  %s\n", name, about);
    return CLI_DONE;
}

/* What a zoo model is trained with when nothing is said. */
typedef struct settings {
    manta_optimizer optimizer;
    manta_loss loss;
    manta_metric metric;
    manta_compile compile; /* points at the above */
} settings;

/* Whether the file has a place for them, and there are any. */
static bool read_compiled(const char *name, const char *path, settings *s)
{
    const recipe_default *preset = recipe_default_of(name);
    size_t n = strlen(path);

    if (!preset || n < 6 || strcmp(path + n - 6, ".keras")) return false;
    *s = (settings){.loss = {.name = preset->loss, .from_logits = preset->logits},
                    .metric = {.name = preset->metrics}};
    s->compile = (manta_compile){
        .optimizer = &s->optimizer, .n_losses = 1, .losses = &s->loss, .n_metrics = 1, .metrics = &s->metric};
    return !manta_optimizer_named(preset->optimizer, &s->optimizer);
}

static manta_status write_weights(const char *name, const char *path, uint64_t seed)
{
    manta_model *m = NULL;
    manta_session *s = NULL;
    manta_session_options so = {.threads = 1, .seed = seed};
    char params[32];
    settings how;
    manta_status st;

    if ((st = work_model(name, NULL, &m))) goto out;
    if ((st = work_check_output(path, work_endings()))) goto out;
    if ((st = manta_session_open(m, read_compiled(name, path, &how) ? &how.compile : NULL, &so, &s)))
        goto out;
    if ((st = manta_session_save(s, path))) goto out;
    printf("%s parameters of %s written to %s\n",
           work_number(manta_model_params(m, false), params, sizeof params), name, path);
out:
    manta_session_close(s);
    manta_model_free(m);
    return st;
}

static int make_model(const options *o)
{
    const char *name = options_arg(o, 0), *path = options_text(o, "output");

    if (!name && (path || options_text(o, "seed"))) cli_usage("model needs the NAME of a model");
    if (!name) return list_zoo();
    if (!path) cli_usage("model %s needs -o FILE; 'manta inspect %s' shows its layers", name, name);
    return write_weights(name, path, (uint64_t)options_int(o, "seed", 0)) ? cli_fail() : CLI_DONE;
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
