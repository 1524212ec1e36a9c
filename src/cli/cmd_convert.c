/* cmd_convert.c - manta convert. */
#include <stdio.h>
#include <stdlib.h>

#include <manta/recipe.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/print.h"

static const option_group conversion = {
    "Conversion:",
    (const cli_option[]){
        {"like", OPTION_TEXT, "MODEL",
         "The model whose weights IN holds, when IN holds weights only: a zoo name or a file"},
        {"format", OPTION_TEXT, "F", "Of OUT, where its ending is not enough: h5 is the legacy Keras file"},
        {0}}};

/* A file of weights is of the model it was likened to: that model, and what it was compiled with. */
static void take_model(manta_contents *c, const manta_model *m, const manta_saved *beside)
{
    c->model = m;
    if (!beside) return; /* one of the zoo: compiled with nothing */
    manta_contents b = manta_saved_contents(beside);
    if (!c->optimizer) c->optimizer = b.optimizer;
    if (!c->n_losses) {
        c->n_losses = b.n_losses;
        c->losses = b.losses;
    }
    if (!c->n_metrics) {
        c->n_metrics = b.n_metrics;
        c->metrics = b.metrics;
    }
}

/* Adds to the sentence of a write that failed what the weights of `in` lack: a model. */
static manta_status suggest_like(const char *in)
{
    manta_error e;

    manta_error_get(&e);
    return manta_fail(e.code, "%s; %s holds weights alone: --like MODEL names the model that they are of",
                      e.text, in);
}

static manta_status convert_file(const char *in, const char *out, const char *like, const char *format)
{
    manta_model *m = NULL;
    manta_saved *beside = NULL, *saved = NULL;
    manta_contents c;
    char *path = NULL;
    manta_status st;

    if (!format && (st = manta_output_check(out, NULL))) return st;
    if (like && (st = manta_model_open(like, &beside, &m))) goto out;
    if ((st = manta_state_find(in, &path, NULL))) goto out;
    if ((st = manta_file_read(path, &(manta_read_options){.like = m}, &saved))) goto out;
    c = manta_saved_contents(saved);
    if (!c.model) take_model(&c, m, beside);
    if ((st = manta_file_write(out, format, &c))) {
        if (!c.model) st = suggest_like(in);
        goto out;
    }
    /* how many of them there is a place for is the format's affair */
    print_out("%d array%s read, %s written\n", c.n_arrays, c.n_arrays == 1 ? "" : "s", out);
out:
    manta_saved_free(saved);
    manta_saved_free(beside);
    manta_model_free(m);
    free(path);
    return st;
}

static int run_convert(const options *o)
{
    return convert_file(options_arg(o, 0), options_arg(o, 1), options_text(o, "like"),
                        options_text(o, "format"))
               ? cli_fail()
               : CLI_DONE;
}

const command cmd_convert = {
    .name = "convert",
    .args = "IN OUT",
    .about = "Write a model or its weights in another format",
    .text = "IN is taken for what it holds, OUT for what its name ends in: .keras, .weights.h5, .h5, .npz, "
            ".safetensors and others. IN may be a checkpoint of a run (its folder), or a run, by its name or "
            "folder: then its last checkpoint. A format without a place for the model or for the optimizer's "
            "state leaves "
            "it out.",
    .examples = "  manta convert m.keras m.safetensors\n"
                "  manta convert w.weights.h5 m.keras --like mnist-cnn\n"
                "  manta convert my-run m.keras --like mnist-cnn",
    .min_args = 2,
    .max_args = 2,
    .groups = {&conversion},
    .run = run_convert,
};
