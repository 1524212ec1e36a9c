/* cmd_inspect.c - manta inspect: which kind of thing it is given. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/suggest.h"
#include "cli/work.h"

static const option_group inspecting = {
    "Output:", (const cli_option[]){{"json", OPTION_FLAG, NULL, "One JSON object instead of a table"}, {0}}};

static bool is_npy(const char *path)
{
    size_t n = strlen(path);
    char head[6];

    if (inspect_head(path, head, sizeof head) == sizeof head && !memcmp(head, "\x93NUMPY", 6)) return true;
    return n > 4 && !strcmp(path + n - 4, ".npy") && !strchr(path, ',');
}

/* Whether the folder of a checkpoint lies there. */
static bool is_checkpoint(const char *path)
{
    char manifest[PATH_MAX];

    return snprintf(manifest, sizeof manifest, "%s/manifest.json", path) < PATH_MAX &&
           !access(manifest, F_OK);
}

/* A file of the library's table of formats. */
static int inspect_file(const char *path, bool json)
{
    manta_saved *s = NULL;
    manta_status st = manta_file_read(path, NULL, &s);

    if (st == MANTA_EUNSUPPORTED) return inspect_outline(path, json);
    if (st) return cli_fail();
    if (manta_saved_model(s)) {
        inspect_model(manta_saved_model(s), s, path, json);
    } else {
        inspect_saved(s, path, json);
    }
    manta_saved_free(s);
    return CLI_DONE;
}

/* The sentence for a name that is no file, no model of the zoo and no dataset. */
static int fail_nothing_there(const char *name)
{
    suggestion near = suggest_for(name);
    const char *one;
    char hint[128];

    for (int i = 0; (one = manta_zoo_name(i, NULL)); i++) suggest_offer(&near, one);
    for (int i = 0; (one = manta_data_name(i)); i++) suggest_offer(&near, one);
    (void)!manta_fail(MANTA_ENOENT,
                      "there is no file '%s', and neither a model nor a dataset of that name%s "
                      "('manta model' and 'manta data list' name those that there are)",
                      name, manta_suggestion_text(&near, hint, sizeof hint));
    return cli_fail();
}

static int inspect_zoo(const char *name, bool json)
{
    manta_model *m = NULL;
    manta_status st = manta_model_open(name, NULL, &m);

    if (st == MANTA_ENOENT) return fail_nothing_there(name);
    if (st) return cli_fail();
    inspect_model(m, NULL, NULL, json);
    manta_model_free(m);
    return CLI_DONE;
}

/* The sentence for a file that is none of the kinds. */
static int fail_unknown_file(const char *path)
{
    manta_file_format f;
    char known[256] = "";

    for (int i = 0; manta_file_format_at(i, &f); i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s, ", f.ending);
    }
    (void)!manta_fail(
        MANTA_EUNSUPPORTED,
        "%s: neither its contents nor its name are of a known kind; there are %s.npy, TensorBoard "
        "event files, .tfrecord, .tar, .parquet and .csv",
        path, known);
    return cli_fail();
}

static int run_inspect(const options *o)
{
    const char *what = options_arg(o, 0), *format;
    bool json = options_flag(o, "json");

    if (is_checkpoint(what)) return inspect_checkpoint(what, json);
    if (is_npy(what)) return inspect_npy(what, json);
    format = manta_file_guess(what);
    /* f.npz:x,y and m.npy,y.npy are datasets; a file of weights has no such name. */
    if (format && !strcmp(format, "onnx")) return inspect_onnx(what, json);
    if (format && (!access(what, F_OK) || !inspect_is_data(what))) return inspect_file(what, json);
    if (inspect_is_events(what)) return inspect_events(what, json);
    if (inspect_is_data(what)) return inspect_data(what, json);
    if (!access(what, F_OK)) return fail_unknown_file(what);
    return inspect_zoo(what, json);
}

const command cmd_inspect = {
    .name = "inspect",
    .args = "MODEL|FILE|DATA",
    .about = "Show what is in a model, a file or a dataset",
    .text =
        "MODEL is as for 'manta train': its layers, their shapes and parameters and, for a file, the "
        "optimizer "
        "and the rest it was compiled with. Of a Keras model with layers that Manta does not have, all "
        "layers are "
        "listed, with what is missing beside them; the status is then 1.\n\n"
        "FILE is known by its contents, then by its name: .keras, a Keras config.json, .weights.h5, "
        ".weights.json, .h5, "
        ".npz, "
        ".npy, .safetensors, .pt, a TensorFlow checkpoint (its prefix, or a folder with a file "
        "'checkpoint'), "
        ".onnx, a checkpoint of a run (its folder), an event file of TensorBoard or a folder of runs.\n\n"
        "DATA is as for --data: .tfrecord, .tar, .parquet, .csv and others; its columns, their types and the "
        "number of samples. One sample is read. Of a table (.csv, .tsv, .parquet) without columns chosen, "
        "all is read: the "
        "type of "
        "each column, what is missing, examples, and what to write at --data.",
    .examples = "  manta inspect resnet18\n  manta inspect m.keras --json\n  manta inspect runs/a\n"
                "  manta inspect 'train-*.tfrecord'",
    .min_args = 1,
    .max_args = 1,
    .groups = {&inspecting},
    .run = run_inspect,
};
