/* cmd_model.c - manta model. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/recipe.h"
#include "cli/work.h"

static const option_group making = {
    "Making a model:",
    (const cli_option[]){{"output", OPTION_OUTPUT, "FILE", "Where to write the freshly made weights (.npz)"},
                         {"seed", OPTION_INT, "K", "Of the weights; 0 when not given"},
                         {0}}};

static int list_zoo(void)
{
    const char *name, *about;

    for (int i = 0; (name = manta_zoo_name(i, &about)); i++) printf("%-12s  %s\n", name, about);
    return CLI_DONE;
}

static manta_status write_weights(const char *name, const char *path, uint64_t seed)
{
    manta_model *m = NULL;
    manta_session *s = NULL;
    manta_session_options so = {.threads = 1, .seed = seed};
    char params[32];
    size_t n = strlen(path);
    manta_status st;

    if ((st = work_model(name, &m))) goto out;
    if (n > 6 && !strcmp(path + n - 6, ".keras")) {
        st = manta_fail(MANTA_EUNSUPPORTED,
                        "%s: .keras files come in a later version; write weights to a .npz file", path);
        goto out;
    }
    if ((st = work_check_output(path, ".npz"))) goto out;
    if ((st = manta_session_open(m, NULL, &so, &s))) goto out;
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
    .text = "Without NAME the zoo is listed. With it the model's freshly initialised weights are written as "
            ".npz, "
            "which --weights takes; whole models as .keras files come in a later version.",
    .examples = "  manta model\n  manta model mnist-cnn -o start.npz --seed 7",
    .max_args = 1,
    .groups = {&making},
    .run = make_model,
};
