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

/* The text of one input: NAME=X, or X for a model that has one only. */
typedef struct given {
    const char *name; /* NULL: none was given */
    size_t name_n;
    const char *text;
    size_t n;
} given;

/* The length of the name that an "=" ends at `text`; 0: none stands there. A name
 * of a file or a column of one has a slash, a point or a colon before any "=". */
static size_t name_before_equals(const char *text)
{
    size_t n = strcspn(text, "=/:.,");

    return text[n] == '=' ? n : 0;
}

/* Up to a comma behind which the next NAME= stands: a dataset's own text may have
 * commas too. What has no name is one dataset, with all that follows. */
static given next_given(const char **rest)
{
    const char *p = *rest;
    size_t name = name_before_equals(p);
    given g = {.name = name ? p : NULL, .name_n = name, .text = name ? p + name + 1 : p};

    for (p = g.text; *p && !(name && *p == ',' && name_before_equals(p + 1)); p++) {}
    g.n = (size_t)(p - g.text);
    *rest = *p ? p + 1 : p;
    return g;
}

/* Which input is meant; -1: none is called so, and that is said. */
static int find_input(const manta_model *m, const given *g)
{
    const char *name = NULL;
    char names[256] = "";
    int n = manta_model_inputs(m);

    if (!g->name && n == 1) return 0;
    for (int i = 0; i < n; i++) {
        manta_model_input(m, i, &name);
        if (!name) name = "x";
        if (g->name && strlen(name) == g->name_n && !strncmp(name, g->name, g->name_n)) return i;
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s'%s'", i ? ", " : "", name);
    }
    manta_status st =
        g->name
            ? manta_fail(MANTA_ENOENT, "--input: %s has no input called '%.*s'; %s %s", manta_model_name(m),
                         (int)g->name_n, g->name, n == 1 ? "it is called" : "they are called", names)
            : manta_fail(MANTA_EINVAL, "--input: %s has %d inputs, expected NAME=X,... for %s",
                         manta_model_name(m), n, names);
    (void)st;
    return -1;
}

/* Column x of one dataset under the name of the input it is for; labels and the like stay out. */
static manta_status open_one(const options *o, const recipe *r, const manta_model *m, const given *g,
                             int input, manta_dataset **out)
{
    static const char *const x[] = {"x"};
    const char *name = NULL;
    char *text = strndup(g->text, g->n);
    manta_dataset *d = NULL;
    manta_status st;

    if (!text) abort(); /* small control memory */
    st = work_dataset(o, r, m, text, false, &d);
    free(text);
    if (st) return st;
    d = manta_dataset_select(d, 1, x);
    manta_model_input(m, input, &name);
    if (name && strcmp(name, "x") && (g->name || manta_model_inputs(m) > 1))
        d = manta_dataset_rename(d, "x", name);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}

/* Joins what is there with one more; both must have as many samples. Takes both. */
static manta_status join_datasets(manta_dataset *one, manta_dataset **d)
{
    int64_t a = *d ? manta_dataset_count(*d) : 0, b = manta_dataset_count(one);
    manta_status st;

    if (*d && a >= 0 && b >= 0 && a != b) {
        manta_dataset_unref(one);
        return manta_fail(MANTA_EINVAL, "--input: one input has %lld samples and another %lld", (long long)a,
                          (long long)b);
    }
    *d = *d ? manta_dataset_zip(*d, one) : one;
    st = manta_dataset_status(*d);
    return st;
}

/* "a=X.npy,b=Y.npy" for models of several inputs, else one dataset by any name. */
static manta_status open_input(const options *o, const recipe *r, const manta_model *m, const char *text,
                               manta_dataset **out)
{
    manta_dataset *d = NULL, *one;
    manta_status st = MANTA_OK;
    int n = manta_model_inputs(m), seen = 0;
    const char *name = NULL;
    bool *has = calloc((size_t)n + 1, sizeof *has);

    if (!has) abort(); /* small control memory */
    while (!st && (*text || !seen)) {
        given g = next_given(&text);
        int i = find_input(m, &g);
        if (i < 0 || has[i]) {
            st = i < 0 ? MANTA_EINVAL
                       : manta_fail(MANTA_EINVAL, "--input: '%.*s' is given twice", (int)g.name_n, g.name);
            break;
        }
        has[i] = true;
        seen++;
        if (!(st = open_one(o, r, m, &g, i, &one))) st = join_datasets(one, &d);
    }
    for (int i = 0; !st && i < n; i++) {
        if (has[i]) continue;
        manta_model_input(m, i, &name);
        st = manta_fail(MANTA_EINVAL, "--input: nothing is given for the input '%s' of %s", name ? name : "x",
                        manta_model_name(m));
    }
    free(has);
    if (st) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
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
        printf("%s prediction%s written to %s\n", work_number(k->rows, rows, sizeof rows),
               k->rows == 1 ? "" : "s", path);
    }
    if (stopped) return CLI_INTERRUPTED;
    return st ? cli_fail() : CLI_DONE;
}

static int run_predict(const options *o)
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
    so.blank = work_has_weights(file, saved);
    if ((st = manta_session_open(m, NULL, &so, &s))) goto out;
    if ((st = work_weights(s, file, saved, true))) goto out;
    if ((st = manta_predict(s, d, &fit, keep_outputs, &k))) goto out;
    st = write_kept(&k, m, path);
out:
    status = report_predict(o, st, &k);
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
    .examples = "  manta predict mnist-cnn --weights mnist-cnn.npz --input images.npy --output logits.npy\n"
                "  manta predict two.keras --input left=a.npy,right=b.npy --output out.npy",
    .min_args = 1,
    .max_args = 1,
    .groups = {&prediction, &work_data_options, &work_run_options},
    .run = run_predict,
};
