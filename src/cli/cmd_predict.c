/* cmd_predict.c - manta predict. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
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
        {"output", OPTION_OUTPUT, "Y",
         "Where the predictions go: Y.npy, Y.npz with an array per output, or Y.csv, with the names of "
         "classes "
         "where the model was trained on a table. Of a table it may be left out: the classes are printed"},
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

/* ---- names of classes ---- */

/* Whether the mapping of a table says what the only output is about. */
static bool has_classes(const kept *k, const manta_table *t)
{
    const manta_array *a = &k->array[0];

    return t && k->n == 1 && a->dtype == MANTA_DTYPE_F32 && a->ndim == 2 && manta_table_classes(t) > 1 &&
           a->shape[1] == manta_table_classes(t);
}

/* The name of the class that row i has the largest number of. */
static const char *class_of_row(const kept *k, const manta_table *t, int64_t i)
{
    int64_t n = k->array[0].shape[1], best = 0;
    const float *row = (const float *)k->array[0].data + i * n;

    for (int64_t c = 1; c < n; c++) best = row[c] > row[best] ? c : best;
    return manta_table_class(t, best);
}

/* A field of a CSV file, quoted where it has to be. */
static void put_field(FILE *f, const char *text)
{
    if (!strpbrk(text, ",\"\r\n") && *text && *text != ' ') {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

static void put_rows(FILE *f, const kept *k, const manta_table *t)
{
    bool named = has_classes(k, t);
    int64_t n = k->rows ? (int64_t)(k->used[0] / sizeof(float)) / k->rows : 0;
    const float *v = k->array[0].data;

    if (named) fputs("class,", f);
    for (int64_t c = 0; c < n; c++) {
        if (named) {
            put_field(f, manta_table_class(t, c));
        } else {
            fprintf(f, n == 1 ? "output" : "output_%lld", (long long)c);
        }
        fputs(c + 1 < n ? "," : "\n", f);
    }
    for (int64_t i = 0; i < k->rows; i++) {
        if (named) {
            put_field(f, class_of_row(k, t, i));
            fputc(',', f);
        }
        for (int64_t c = 0; c < n; c++) fprintf(f, "%.9g%s", (double)v[i * n + c], c + 1 < n ? "," : "\n");
    }
}

/* The file appears whole or not at all. */
static manta_status write_csv(const kept *k, const manta_table *t, const char *path)
{
    char part[PATH_MAX];
    FILE *f;
    bool bad;

    if (k->n != 1 || k->array[0].dtype != MANTA_DTYPE_F32)
        return manta_fail(MANTA_EINVAL, "%s: the model has %d outputs, expected one of float32 for a .csv",
                          path, k->n);
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part || !(f = fopen(part, "we")))
        return manta_fail(MANTA_EIO, "%s: cannot be written: %s", path, strerror(errno));
    put_rows(f, k, t);
    bad = ferror(f);
    if (!fclose(f) && !bad && !rename(part, path)) return MANTA_OK;
    manta_status st = manta_fail(MANTA_EIO, "%s: cannot be written: %s", path, strerror(errno));
    (void)remove(part);
    return st;
}

static manta_status print_classes(const kept *k, const manta_table *t)
{
    if (!has_classes(k, t))
        return manta_fail(
            MANTA_EINVAL,
            "the model's output names no classes, expected --output Y.npy, or a model that was trained "
            "on a table with a number for each class");
    for (int64_t i = 0; i < k->rows; i++) print_out("%s\n", class_of_row(k, t, i));
    return MANTA_OK;
}

static bool ends_in_csv(const char *path)
{
    size_t n = strlen(path);

    return n > 4 && !strcmp(path + n - 4, ".csv");
}

/* Writes what was kept, each output with all rows as its first dimension. */
static manta_status write_kept(const kept *k, const manta_model *m, const manta_table *t, const char *path)
{
    manta_column columns[MOST_OUTPUTS];
    char numbered[MOST_OUTPUTS][16];

    if (!k->n) return manta_fail(MANTA_EINVAL, "%s: there was no sample to predict", path ? path : "--input");
    if (!path) return print_classes(k, t);
    if (ends_in_csv(path)) return write_csv(k, t, path);
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
    } else if (!st && path) {
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
    if (path && (st = manta_output_check(path, manta_model_outputs(m) == 1 ? ".npy .npz .csv" : ".npz")))
        return st;
    if ((st = work_done(recipe, manta_recipe_inputs(recipe, options_text(o, "input"), d)))) return st;
    if ((st = work_done(recipe, manta_recipe_session(recipe, NULL, MANTA_PURPOSE_PREDICT, s)))) return st;
    if ((st = manta_predict(*s, *d, &fit, keep_outputs, k))) return st;
    return write_kept(k, m, manta_recipe_table(recipe), path);
}

/* Whether the input may have classes with names, which can be printed. */
static bool is_table(const char *input)
{
    return strstr(input, ".csv") || strstr(input, ".tsv") || strstr(input, ".parquet");
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
    if (!options_text(o, "output") && (options_flag(o, "json") || !is_table(options_text(o, "input"))))
        cli_usage("predict needs --output, such as --output Y.npy");
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
    .args = "MODEL --input X [--output Y]",
    .about = "Run a model on data and write what it says",
    .text =
        "MODEL is as for 'manta train'. The predictions are the model's output for each sample, in the "
        "samples' "
        "order: for the classifiers of the zoo these are logits, the largest of which is the class. A model "
        "that was trained on a table finds the columns of another by their names, and names the classes: "
        "without --output one a line, in Y.csv beside the numbers.",
    .examples = "  manta predict mnist-cnn --weights mnist-cnn.npz --input images.npy --output logits.npy\n"
                "  manta predict m.keras --input new.csv\n"
                "  manta predict two.keras --input left=a.npy,right=b.npy --output out.npy",
    .min_args = 1,
    .max_args = 1,
    .groups = {&prediction, &work_data_options, &work_run_options},
    .run = run_predict,
};
