/* cmd_predict.c - manta predict. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/stop.h"
#include "cli/work.h"

static const option_group prediction = {
    "Prediction:",
    (const cli_option[]){
        {"input", OPTION_TEXT, "X",
         "X.npy, or anything 'manta train' takes as data; NAME=X.npy,NAME=Z.npy for a model of several "
         "inputs"},
        {"output", OPTION_OUTPUT, "Y", "Where the predictions go: Y.npy, or Y.npz with an array per output"},
        {"weights", OPTION_TEXT, "FILE",
         "The weights: a file, a checkpoint's folder, or a run for its last checkpoint; without it those of "
         "MODEL's file, or as a model is born"},
        {"batch", OPTION_COUNT, "B", "Samples at a time; 256 when not given"},
        {"seed", OPTION_INT, "K", "Of the weights, without --weights"},
        {"json", OPTION_FLAG, NULL, "Say how it ended as a JSON object"},
        {0}}};

enum { MOST_OUTPUTS = 8 };

/* The predictions so far: for each output one block that grows. */
typedef struct kept {
    int n;
    int64_t rows;
    manta_array array[MOST_OUTPUTS]; /* as the last batch was; data is the block */
    size_t used[MOST_OUTPUTS], size[MOST_OUTPUTS];
} kept;

static manta_status keep_outputs(void *user, int64_t first, int64_t count, int n, const manta_array *outputs)
{
    kept *k = user;

    (void)first;
    if (stop_requested()) return manta_fail(MANTA_ECANCELLED, "stopped on request");
    k->n = n;
    k->rows += count;
    for (int i = 0; i < n; i++) {
        manta_array a = outputs[i];
        size_t bytes = manta_array_bytes(&a);
        if (k->size[i] - k->used[i] < bytes) {
            size_t size = 2 * k->size[i] + bytes;
            void *block = realloc(k->array[i].data, size);
            if (!block) return manta_fail(MANTA_ENOMEM, "no memory for %zu bytes of predictions", size);
            k->array[i].data = block;
            k->size[i] = size;
        }
        memcpy((char *)k->array[i].data + k->used[i], a.data, bytes);
        k->used[i] += bytes;
        a.data = k->array[i].data;
        k->array[i] = a;
    }
    return MANTA_OK;
}

/* Writes what was kept, each output with all rows as its first dimension. */
static manta_status write_kept(const kept *k, const manta_model *m, const char *path)
{
    manta_column columns[MOST_OUTPUTS];
    char numbered[MOST_OUTPUTS][16];

    if (!k->n) return manta_fail(MANTA_EINVAL, "%s: there was no sample to predict", path);
    for (int i = 0; i < k->n; i++) {
        manta_array a = k->array[i];
        const char *name = NULL;
        a.shape[0] = k->rows;
        manta_model_output(m, i, &name);
        snprintf(numbered[i], sizeof numbered[i], k->n == 1 ? "output" : "output_%d", i);
        columns[i] = (manta_column){.name = name && *name ? name : numbered[i],
                                    .array = manta_array_of(a.dtype, a.ndim, a.shape, a.data)};
    }
    return manta_arrays_save(path, k->n, columns);
}

static int report_predict(const options *o, manta_status st, const kept *k)
{
    const char *path = options_text(o, "output");
    bool stopped = st == MANTA_ECANCELLED && stop_requested();
    char rows[32];

    if (options_flag(o, "json")) {
        json_result(stopped ? "interrupted"
                    : st    ? "failed"
                            : "done",
                    NULL, NULL, st ? NULL : path, st && !stopped ? manta_error_text() : NULL);
    } else if (!st) {
        print_out("%s prediction%s written to %s\n", work_number(k->rows, rows, sizeof rows),
                  k->rows == 1 ? "" : "s", path);
    }
    if (stopped) return CLI_INTERRUPTED;
    return st ? cli_fail() : CLI_DONE;
}

/* Opens what the options name, predicts and writes. *s, *d: for the caller to close. */
static manta_status open_and_predict(const options *o, manta_recipe *recipe, manta_session **s,
                                     manta_dataset **d, kept *k)
{
    const char *path = options_text(o, "output");
    manta_fit_options fit = {.batch = options_int(o, "batch", 256)};
    const manta_model *m;
    manta_status st;

    if ((st = manta_recipe_open(recipe, options_arg(o, 0)))) return st;
    m = manta_recipe_model(recipe);
    if ((st = manta_output_check(path, manta_model_outputs(m) == 1 ? ".npy .npz" : ".npz"))) return st;
    if ((st = work_done(recipe, manta_recipe_inputs(recipe, options_text(o, "input"), d)))) return st;
    if ((st = work_done(recipe, manta_recipe_session(recipe, NULL, MANTA_PURPOSE_PREDICT, s)))) return st;
    if ((st = manta_predict(*s, *d, &fit, keep_outputs, k))) return st;
    return write_kept(k, m, path);
}

static int run_predict(const options *o)
{
    manta_recipe *recipe = work_recipe(o);
    manta_session_options so;
    manta_dataset *d = NULL;
    manta_session *s = NULL;
    kept k = {0};
    int status;

    (void)work_done(recipe, manta_recipe_session_options(recipe, &so)); /* wrong usage is said first */
    if (!options_text(o, "input")) cli_usage("predict needs --input, such as --input X.npy");
    if (!options_text(o, "output")) cli_usage("predict needs --output, such as --output Y.npy");
    stop_install();
    status = report_predict(o, open_and_predict(o, recipe, &s, &d, &k), &k);
    for (int i = 0; i < MOST_OUTPUTS; i++) free(k.array[i].data);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_recipe_free(recipe);
    return status;
}

const command cmd_predict = {
    .name = "predict",
    .args = "MODEL --input X --output Y",
    .about = "Run a model on data and write what it says",
    .text = "MODEL is as for 'manta train'. The predictions are the model's output for each sample, in the "
            "samples' "
            "order: for the classifiers of the zoo these are logits, the largest of which is the class.",
    .examples = "  manta predict mnist-cnn --weights mnist-cnn.npz --input images.npy --output logits.npy\n"
                "  manta predict two.keras --input left=a.npy,right=b.npy --output out.npy",
    .min_args = 1,
    .max_args = 1,
    .groups = {&prediction, &work_data_options, &work_run_options},
    .run = run_predict,
};
