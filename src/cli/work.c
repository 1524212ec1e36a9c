/* work.c - a model, its data and a session, opened from options. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/kept.h"
#include "cli/suggest.h"
#include "cli/work.h"

const option_group work_data_options = {
    "Data:",
    (const cli_option[]){{"scale", OPTION_REAL, "X", "Divide the samples by X (255 takes bytes to [0,1])"},
                         {"normalize", OPTION_TEXT, "MEAN,STD",
                          "Subtract the mean, divide by the deviation, after --scale; with C channels C "
                          "means, then C deviations. "
                          "0,1 turns a model's own off"},
                         {"raw", OPTION_FLAG, NULL,
                          "Leave images as the bytes they are; without it they become numbers in [0,1]"},
                         {0}}};

const option_group work_run_options = {
    "Computing:",
    (const cli_option[]){
        {"workers", OPTION_TEXT, "N",
         "Processes that share the work; 1 when not given. Any of them may be killed: it costs a step and "
         "changes nothing. N:M begins with M and goes on with as few as N: SIGUSR2 takes one away, SIGUSR1 "
         "brings one back, and one that fails over and over is given up"},
        {"threads-per-worker", OPTION_COUNT, "T",
         "Threads of a worker; all cores, divided by the workers, when not given"},
        {"kernels", OPTION_TEXT, "K", "auto, reference, avx2, avx512 or onednn"},
        {"debug", OPTION_FLAG, NULL, "Node by node on reference loops; names the first NaN. Slow"},
        {0}}};

/* ---- model ---- */

static bool ends_in(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);

    return n > m && !strcmp(text + n - m, ending);
}

/* A name that means a file, there or not. */
static bool is_file(const char *name)
{
    manta_file_format f;

    for (int i = 0; manta_file_format_at(i, &f); i++) {
        if (ends_in(name, f.ending) || (f.also && ends_in(name, f.also))) return true;
    }
    return manta_file_guess(name) != NULL;
}

static manta_status model_from_file(const char *path, manta_saved **saved, manta_model **out)
{
    manta_saved *s;
    manta_status st = manta_file_read(path, &(manta_read_options){.model_only = !saved}, &s);

    if (st) return st;
    if (!manta_saved_model(s)) {
        st = manta_fail(MANTA_EINVAL,
                        "%s: holds weights but no model; name the model and give it to --weights", path);
        manta_saved_free(s);
        return st;
    }
    *out = manta_saved_take_model(s);
    if (saved) {
        *saved = s;
    } else {
        manta_saved_free(s);
    }
    return MANTA_OK;
}

bool work_has_weights(const char *file, const manta_saved *saved)
{
    return file || (saved && manta_saved_arrays(saved));
}

manta_status work_weights(manta_session *s, const char *file, manta_saved *saved, bool weights_only)
{
    char *path = NULL;
    manta_status st = MANTA_OK;

    if (file) {
        if (saved) manta_saved_drop_arrays(saved);
        if (!(st = kept_find(file, &path, NULL))) st = manta_session_load(s, path, weights_only);
        free(path);
        return st;
    }
    if (!work_has_weights(NULL, saved)) return MANTA_OK;
    st = manta_session_restore(s, saved, weights_only);
    manta_saved_drop_arrays(saved);
    return st;
}

const char *work_endings(void)
{
    static char text[128];
    manta_file_format f;

    *text = '\0';
    for (int i = 0; manta_file_format_at(i, &f); i++) {
        if (!f.writes || !strcmp(f.ending, ".json")) continue;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%s%s", *text ? " " : "", f.ending,
                 f.also ? " " : "", f.also ? f.also : "");
    }
    return text;
}

manta_status work_model(const char *name, manta_saved **saved, manta_model **out)
{
    if (saved) *saved = NULL;
    return is_file(name) ? model_from_file(name, saved, out) : manta_zoo(name, out);
}

manta_status work_freeze(manta_model *m, const char *patterns)
{
    char *copy = patterns ? strdup(patterns) : NULL, *rest = copy;
    manta_status st = MANTA_OK;

    for (char *part; !st && (part = strsep(&rest, ","));) st = manta_model_freeze(m, part, true);
    free(copy);
    return st;
}

/* ---- data ---- */

/* The target is the input: x beside itself. Takes d. */
static manta_dataset *give_back(manta_dataset *d)
{
    static const char *const x[] = {"x"};
    manta_dataset *input = manta_dataset_select(manta_dataset_ref(d), 1, x);
    manta_dataset *target = manta_dataset_rename(manta_dataset_select(d, 1, x), "x", "y");

    return manta_dataset_zip(input, target);
}

static manta_dataset *normalized_dataset(const options *o, const recipe *r, manta_dataset *d)
{
    enum { MOST = 64 };
    const char *text = options_text(o, "normalize");
    double given[2 * MOST];
    float mean[MOST], std[MOST];
    int n;

    if (!text && r && r->preset && !options_flag(o, "raw")) text = r->preset->normalize;
    if (!text) return d;
    n = options_reals("normalize", text, given, 2 * MOST);
    if (n % 2) cli_usage("--normalize: %d numbers, expected a mean and a deviation for each channel", n);
    for (int i = 0; i < n / 2; i++) {
        mean[i] = (float)given[i];
        std[i] = (float)given[n / 2 + i];
        if (std[i] <= 0) cli_usage("--normalize: a deviation of %g, expected more than 0", given[n / 2 + i]);
    }
    return manta_dataset_normalize(d, "x", n / 2, mean, std);
}

static bool has_integers(const manta_dataset *d, const char *name)
{
    const manta_column_spec *c;
    int n = manta_dataset_columns(d, &c);

    for (int i = 0; i < n; i++) {
        if (strcmp(c[i].name, name)) continue;
        return c[i].dtype == MANTA_DTYPE_I64 || c[i].dtype == MANTA_DTYPE_I32 || c[i].dtype == MANTA_DTYPE_U8;
    }
    return false;
}

/* A word without any sign of a file was probably meant as a dataset's name. */
static manta_status unknown_data(manta_status st, const char *spec)
{
    suggestion s = suggest_for(spec);

    if (strpbrk(spec, "./,:") || !access(spec, F_OK) || !strcmp(spec, "mnist") ||
        !strcmp(spec, "fashion-mnist"))
        return st;
    suggest_offer(&s, "mnist");
    suggest_offer(&s, "fashion-mnist");
    return manta_fail(st,
                      "no dataset and no file is called '%s'; the datasets are mnist and fashion-mnist%s%s%s",
                      spec, s.best ? "; did you mean " : "", s.best ? s.best : "", s.best ? "?" : "");
}

manta_status work_dataset(const options *o, const recipe *r, const manta_model *m, const char *spec,
                          bool targets, manta_dataset **out)
{
    manta_open_options how = {.raw = options_flag(o, "raw")};
    double scale = options_real(o, "scale", 1);
    manta_array y = manta_model_output(m, 0, NULL);
    manta_dataset *d;
    manta_status st = manta_dataset_open(spec, &how, &d);

    if (st) return st == MANTA_ENOENT ? unknown_data(st, spec) : st;
    if (scale == 0) cli_usage("--scale: samples cannot be divided by 0, expected another number");
    if (scale != 1) d = manta_dataset_scale(d, "x", (float)scale);
    d = normalized_dataset(o, r, d);
    if (targets && r->preset && r->preset->give_back) {
        d = give_back(d);
    } else if (targets && recipe_is_sparse(r) && has_integers(d, "y")) {
        d = manta_dataset_labels(d, "y", y.shape[y.ndim - 1]);
    }
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}

/* ---- session ---- */

/* N or N:M; N into *least when there are two. */
static int64_t workers_of(const char *text, int64_t *least)
{
    char *end;
    int64_t n;

    *least = 0;
    if (!text) return 1;
    n = strtoll(text, &end, 10);
    if (end == text || (*end && *end != ':')) cli_usage("--workers: '%s' is not a whole number", text);
    if (n < 1 || n > 256) cli_usage("--workers: %s, expected 1 to 256", text);
    if (*end == ':') {
        *least = n;
        n = options_int_of("--workers", end + 1);
        if (n < *least || n > 256)
            cli_usage("--workers %s: expected at least as many behind the colon, and at most 256", text);
    }
    return n;
}

static manta_statistics statistics_of(const char *text)
{
    if (!text || !strcmp(text, "mean")) return MANTA_STATISTICS_MEAN;
    if (!strcmp(text, "first")) return MANTA_STATISTICS_FIRST;
    if (!strcmp(text, "sync")) return MANTA_STATISTICS_SYNC;
    cli_usage("--batch-norm: '%s', expected mean, first or sync", text);
}

/* --strategy, --servers, --staleness. */
static void read_strategy(const options *o, manta_session_options *so)
{
    const char *name = options_knows(o, "strategy") ? options_text(o, "strategy") : NULL;
    int64_t servers = options_knows(o, "servers") ? options_int(o, "servers", 0) : 0;
    int64_t staleness = options_knows(o, "staleness") ? options_int(o, "staleness", -1) : -1;
    bool served = name && !strcmp(name, "parameter-server");

    if (!served && (servers || staleness >= 0))
        cli_usage("--servers and --staleness are for --strategy parameter-server");
    if (name && !served && strcmp(name, "mirrored") && strcmp(name, "one-device"))
        cli_usage("--strategy: '%s', expected mirrored, one-device or parameter-server", name);
    if (name && !strcmp(name, "one-device") && so->workers > 1)
        cli_usage("--strategy one-device is this process alone: leave --workers out");
    if (!served) return;
    if (so->shards || so->min_workers)
        cli_usage("--strategy parameter-server has neither --shards nor --workers N:M");
    if (servers > 64) cli_usage("--servers: %" PRId64 ", expected 1 to 64", servers);
    so->strategy = MANTA_STRATEGY_PARAMETER_SERVER;
    so->servers = (int)servers;
    so->staleness = staleness > 0 ? staleness : staleness == 0 ? MANTA_ZERO : 0;
}

manta_session_options work_session_options(const options *o)
{
    int64_t threads = options_int(o, "threads-per-worker", 0), shards = 0;
    int64_t least, workers = workers_of(options_text(o, "workers"), &least);
    manta_session_options so;
    const char *statistics = options_knows(o, "batch-norm") ? options_text(o, "batch-norm") : NULL;

    if (threads > 4096)
        cli_usage("--threads-per-worker: %" PRId64 " threads, expected at most 4096", threads);
    if (options_knows(o, "shards")) shards = options_int(o, "shards", 0);
    if (shards && shards < workers) {
        cli_usage("--shards %" PRId64 " for --workers %" PRId64 ": each worker needs one at least", shards,
                  workers);
    }
    if (shards > 4096) cli_usage("--shards: %" PRId64 ", expected at most 4096", shards);
    so = (manta_session_options){.threads = (int)threads,
                                 .seed = options_knows(o, "seed") ? (uint64_t)options_int(o, "seed", 0) : 0,
                                 .shards = (int)shards,
                                 .workers = (int)workers,
                                 .min_workers = (int)least,
                                 .statistics = statistics_of(statistics),
                                 .kernels = options_text(o, "kernels"),
                                 .debug = options_flag(o, "debug")};
    read_strategy(o, &so);
    return so;
}

void work_batch(const options *o, int64_t fallback, manta_fit_options *fit)
{
    fit->batch = options_int(o, "batch", 0);
    if (options_knows(o, "global-batch")) fit->global_batch = options_int(o, "global-batch", 0);
    if (fit->batch && fit->global_batch)
        cli_usage("--batch is what a worker takes of --global-batch: give one of them");
    if (!fit->batch && !fit->global_batch) fit->batch = fallback;
}

/* ---- files ---- */

manta_status work_check_output(const char *path, const char *endings)
{
    char *copy = strdup(endings), *rest = copy, *folder = strdup(path), *slash = strrchr(folder, '/');
    struct stat info;
    bool known = false;
    manta_status st = MANTA_OK;

    for (char *part; (part = strsep(&rest, " "));) known = known || ends_in(path, part);
    if (slash) slash[slash == folder] = '\0';
    if (!known) {
        st = manta_fail(MANTA_EINVAL, "%s: the name must end in one of: %s", path, endings);
    } else if (!stat(path, &info) && S_ISDIR(info.st_mode)) {
        st = manta_fail(MANTA_EINVAL, "%s: it is a folder, expected the name of a file", path);
    } else if (access(slash ? folder : ".", W_OK)) {
        st = manta_fail(errno == ENOENT ? MANTA_ENOENT : MANTA_EPERM, "%s: cannot be written into %s: %s",
                        path, slash ? folder : "this folder", strerror(errno));
    }
    free(copy);
    free(folder);
    return st;
}

const char *work_number(int64_t n, char *buf, size_t size)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%" PRId64, n);
    size_t at = 0;

    for (int i = 0; i < length && at + 2 < size; i++) {
        if (i && (length - i) % 3 == 0 && digits[i - 1] != '-') buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}
