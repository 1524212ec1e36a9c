/* cmd_predict.c - manta predict. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/stop.h"
#include "cli/work.h"

static const option_group prediction = {
    "Prediction:",
    (const cli_option[]){
        {"input", OPTION_TEXT, "X",
         "X.npy, or anything 'manta train' takes as data; name=X.npy for a named input"},
        {"output", OPTION_OUTPUT, "Y", "Where the predictions go: Y.npy, or Y.npz with an array per output"},
        {"weights", OPTION_TEXT, "FILE",
         "The weights; without it those of MODEL's file, or as a model is born"},
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

static manta_status keep(void *user, int64_t first, int64_t count, int n, const manta_array *outputs)
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

/* Leaves labels and the like out. Takes d. */
static manta_dataset *inputs_only(manta_dataset *d, const manta_model *m, const char *as)
{
    static const char *const x[] = {"x"};

    d = manta_dataset_select(d, 1, x);
    if (manta_model_inputs(m) > 1 || strcmp(as, "x")) d = manta_dataset_rename(d, "x", as);
    return d;
}

/* "a=X.npy,b=Y.npy" for models of several inputs, else one dataset by any name. */
static manta_status open_input(const options *o, const recipe *r, const manta_model *m, const char *text,
                               manta_dataset **out)
{
    const char *name = "x", *equals = strchr(text, '=');
    manta_dataset *d;
    manta_status st;

    if (manta_model_inputs(m) > 1) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s has %d inputs; predicting from more than one comes in a later version",
                          manta_model_name(m), manta_model_inputs(m));
    }
    if (equals && !memchr(text, '/', (size_t)(equals - text)) &&
        !memchr(text, ':', (size_t)(equals - text))) {
        size_t n = (size_t)(equals - text);
        manta_model_input(m, 0, &name);
        if (!name || strlen(name) != n || strncmp(name, text, n)) {
            return manta_fail(MANTA_ENOENT, "--input: %s has no input called '%.*s'; it is called '%s'",
                              manta_model_name(m), (int)n, text, name ? name : "x");
        }
        text = equals + 1;
    }
    if ((st = work_dataset(o, r, m, text, false, &d))) return st;
    d = inputs_only(d, m, name);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}

static int report(const options *o, manta_status st, const kept *k)
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
        printf("%s prediction%s written to %s\n", work_number(k->rows, rows, sizeof rows),
               k->rows == 1 ? "" : "s", path);
    }
    if (stopped) return CLI_INTERRUPTED;
    return st ? cli_fail() : CLI_DONE;
}

static int predict(const options *o)
{
    const char *file = options_text(o, "weights"), *input = options_text(o, "input"),
               *path = options_text(o, "output");
    manta_session_options so = work_session_options(o);
    manta_fit_options fit = {.batch = options_int(o, "batch", 256)};
    recipe how = {.preset = recipe_default_of(options_arg(o, 0))};
    manta_model *m = NULL;
    manta_saved *saved = NULL;
    manta_dataset *d = NULL;
    manta_session *s = NULL;
    kept k = {0};
    manta_status st;
    int status;

    if (!input) cli_usage("predict needs --input, such as --input X.npy");
    if (!path) cli_usage("predict needs --output, such as --output Y.npy");
    stop_install();
    if ((st = work_model(options_arg(o, 0), &saved, &m))) goto out;
    if ((st = work_check_output(path, manta_model_outputs(m) == 1 ? ".npy .npz" : ".npz"))) goto out;
    if ((st = open_input(o, &how, m, input, &d))) goto out;
    if ((st = manta_session_open(m, NULL, &so, &s))) goto out;
    if ((st = work_weights(s, file, saved, true))) goto out;
    if ((st = manta_predict(s, d, &fit, keep, &k))) goto out;
    st = write_kept(&k, m, path);
out:
    status = report(o, st, &k);
    for (int i = 0; i < MOST_OUTPUTS; i++) free(k.array[i].data);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_saved_free(saved);
    manta_model_free(m);
    return status;
}

const command cmd_predict = {
    .name = "predict",
    .args = "MODEL --input X --output Y",
    .about = "Run a model on data and write what it says",
    .text = "MODEL is as for 'manta train'. The predictions are the model's output for each sample, in the "
            "samples' "
            "order: for the classifiers of the zoo these are logits, the largest of which is the class.",
    .examples = "  manta predict mnist-cnn --weights mnist-cnn.npz --input images.npy --output logits.npy",
    .min_args = 1,
    .max_args = 1,
    .groups = {&prediction, &work_data_options, &work_run_options},
    .run = predict,
};
