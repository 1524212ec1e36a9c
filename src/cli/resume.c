/* resume.c - the options of a run that is taken up.
 *
 * How many processes compute is no part of the result, but what a step is made
 * of is: without --shards a step has as many as there are workers, and --batch
 * counts for each of them. So when --workers changes, shards and the batch of
 * all workers together stay what they were. */
#include "cli/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <manta/model.h>
#include <manta/run.h>

#include "cli/cli.h"
#include "cli/runs.h"
#include "cli/work.h"

/* ---- which run ---- */

/* What the command line says about where the run lies. */
typedef struct place {
    char folder[1400];
    char name[300]; /* for sentences */
    bool must; /* it was asked for by name alone: there has to be one */
} place;

static void keep_name(place *p)
{
    const char *slash = strrchr(p->folder, '/');

    snprintf(p->name, sizeof p->name, "%.*s", (int)sizeof p->name - 1, slash ? slash + 1 : p->folder);
}

/* A word that may have been meant as MODEL. */
static bool may_be_model(const char *word)
{
    const char *name, *about;
    struct stat info;

    for (int i = 0; (name = manta_zoo_name(i, &about)); i++) {
        if (!strcmp(name, word)) return true;
    }
    return !stat(word, &info) && S_ISREG(info.st_mode);
}

/* --resume NAME, or --resume with what names the run otherwise. */
static manta_status find_place(const options *o, place *p)
{
    const char *word = options_text(o, "resume"), *name = options_text(o, "name");
    const char *folder = options_text(o, "run-dir"), *backup = options_text(o, "backup-dir");
    const char *storage = options_text(o, "storage");
    manta_run_info found;
    manta_status st = *word ? runs_find(storage, word, &found) : MANTA_OK;

    *p = (place){.must = *word != '\0'};
    if (st == MANTA_ENOENT && !options_arg(o, 0) && may_be_model(word)) {
        cli_usage("--resume takes the word after it as a run's name, and no run is called '%s'; if it is the "
                  "model, write it before --resume",
                  word);
    }
    if (*word && (name || folder))
        cli_usage("--resume %s and --%s: give one of them", word, name ? "name" : "run-dir");
    if (*word) {
        if (st) return st;
        snprintf(p->folder, sizeof p->folder, "%s", found.path);
    } else if (folder) {
        snprintf(p->folder, sizeof p->folder, "%s", folder);
        for (size_t n = strlen(p->folder); n > 1 && p->folder[n - 1] == '/';) p->folder[--n] = '\0';
    } else if (name) {
        snprintf(p->folder, sizeof p->folder, "%s/%s", storage ? storage : manta_run_storage(), name);
    } else if (backup) {
        snprintf(p->folder, sizeof p->folder, "%s", backup);
    } else {
        cli_usage("--resume needs to know which run: give its name");
    }
    keep_name(p);
    return MANTA_OK;
}

/* ---- what may change ---- */

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++) {
        if (!strcmp(name, *list)) return true;
    }
    return false;
}

/* Neither weights nor metrics depend on these, the device in precision exact (tell_of_device()). */
static bool is_free(const char *name)
{
    static const char *const free_ones[] = {
        "epochs",      "threads-per-worker", "max-failures",  "checkpoint-every",
        "keep",        "keep-best",          "save",          "debug",
        "cluster-key", "cluster-timeout",    "insecure-bulk", "log-level",
        "log-to",      "log-stamp",          "log-size",      "device",
        NULL};

    return is_one_of(name, free_ones);
}

/* What a step is made of: compared together. */
static bool is_of_step(const char *name)
{
    static const char *const of_step[] = {"workers", "shards", "batch", "global-batch", NULL};

    return is_one_of(name, of_step);
}

/* What an option means that was not given, where that has a text. */
static const char *usual_value(const char *name)
{
    static const char *const table[][2] = {
        {"seed", "0"},    {"initial-epoch", "0"}, {"strategy", "mirrored"}, {"batch-norm", "mean"},
        {"servers", "1"}, {"kernels", "auto"},    {"precision", "exact"}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!strcmp(name, table[i][0])) return table[i][1];
    }
    return NULL;
}

static bool is_same(const cli_option *p, const char *a, const char *b)
{
    if (!a) a = usual_value(p->name);
    if (!b) b = usual_value(p->name);
    if (!a || !b) return !a && !b;
    switch (p->kind) {
    case OPTION_REAL: return strtod(a, NULL) == strtod(b, NULL);
    case OPTION_INT:
    case OPTION_COUNT: return strtoll(a, NULL, 10) == strtoll(b, NULL, 10);
    default: break;
    }
    /* Our own kernels agree to the bit; oneDNN's order is its own. */
    if (!strcmp(p->name, "kernels")) return !strcmp(a, "onednn") == !strcmp(b, "onednn");
    /* float32 is what exact is, on a processor. */
    if (!strcmp(p->name, "precision")) {
        if (!strcmp(a, "float32")) a = "exact";
        if (!strcmp(b, "float32")) b = "exact";
    }
    return !strcmp(a, b);
}

static bool is_processor(const char *device)
{
    return !device || !*device || !strcmp(device, "cpu");
}

/* Whether a GPU has a part in the run, as far as its options say. float32 is what exact is on processors alone. A run
 * whose options name no precision was begun in exact: one that a GPU begins, in whatever, says it (record.c). */
static bool is_on_devices(const options *given, const options *run)
{
    return !is_processor(options_text(run, "device")) || !is_processor(options_text(given, "device"));
}

/* Says that what is computed from here on is another device's, where that is not the same to the bit. */
static void tell_of_device(const options *given, const options *run)
{
    const char *device = options_text(given, "device"), *precision = options_text(run, "precision");

    if (!device || is_processor(device) == is_processor(options_text(run, "device"))) return;
    if (!precision || !strcmp(precision, "exact")) return;
    cli_note("the run goes on on another device, in %s: its result may differ in the last digits from one "
             "device's alone (--precision exact is the same on all)",
             precision);
}

/* "--seed 3 (it was begun with 0), --clipnorm 1 (it was begun without)" */
typedef struct complaint {
    char text[320];
} complaint;

static void complain_of_option(complaint *c, const char *name, bool flag, const char *now, const char *then)
{
    size_t n = strlen(c->text);

    snprintf(c->text + n, sizeof c->text - n, "%s--%s%s%.80s (it was begun %s%.80s)", n ? ", " : "", name,
             flag ? "" : " ", flag ? "" : now, then ? "with " : "without",
             !then  ? ""
             : flag ? "it"
                    : then);
}

/* ---- what a step is made of ---- */

typedef struct step_parts {
    int64_t workers, shards, samples;
} step_parts;

/* As the library has it; what is beyond all measure there is left for it to refuse. */
static step_parts parts_of(const options *o)
{
    const char *workers = options_text(o, "workers"), *colon = workers ? strchr(workers, ':') : NULL;
    const char *strategy = options_text(o, "strategy");
    int64_t n = workers ? strtoll(colon ? colon + 1 : workers, NULL, 10) : 1;
    int64_t batch = options_int(o, "batch", MANTA_RECIPE_BATCH);
    step_parts p = {.workers = n < 1 ? 1 : n > 256 ? 256 : n};

    if (batch > INT64_MAX / 256) batch = INT64_MAX / 256;
    if (strategy && !strcmp(strategy, "parameter-server")) { /* a step is one worker's */
        p.shards = 1;
        p.samples = batch;
        return p;
    }
    p.shards = options_int(o, "shards", p.workers);
    p.samples = options_int(o, "global-batch", batch * p.workers);
    return p;
}

static void set_number(options *o, const char *name, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64, value);
    options_set(o, name, text);
}

/* Takes what was given of workers, shards and batch, and keeps the step as it was. */
static void merge_step(const options *given, options *run, complaint *c)
{
    const char *workers = options_text(given, "workers"), *shards = options_text(given, "shards");
    const char *batch = options_text(given, "batch"), *global = options_text(given, "global-batch");
    step_parts then = parts_of(run), now;

    if (workers) options_set(run, "workers", workers);
    if (shards) options_set(run, "shards", shards);
    if (batch || global) {
        options_set(run, "batch", batch);
        options_set(run, "global-batch", global);
    }
    now = parts_of(run);
    if (!shards && now.shards != then.shards) set_number(run, "shards", then.shards);
    if (!batch && !global && now.samples != then.samples) {
        options_set(run, "batch", NULL);
        set_number(run, "global-batch", then.samples);
    }
    now = parts_of(run);
    if (now.shards != then.shards) {
        char old[32], fresh[32];
        snprintf(old, sizeof old, "%" PRId64, then.shards);
        snprintf(fresh, sizeof fresh, "%" PRId64, now.shards);
        complain_of_option(c, "shards", false, fresh, old);
    }
    if (now.samples != then.samples) {
        char old[64], fresh[64];
        snprintf(old, sizeof old, "%" PRId64 " samples a step", then.samples);
        snprintf(fresh, sizeof fresh, "%s for %" PRId64 " samples a step", batch ? batch : global,
                 now.samples);
        complain_of_option(c, batch ? "batch" : "global-batch", false, fresh, old);
    }
}

/* ---- all of it ---- */

/* Puts what was given into the run's options, or says why not. */
static manta_status merge_options(const options *given, const place *p, options *run)
{
    const char *model = options_arg(given, 0), *then = options_arg(run, 0), *text, *old;
    const cli_option *option;
    bool on_devices = is_on_devices(given, run);
    complaint c = {0};

    if (model && then && strcmp(model, then) != 0) {
        return manta_fail(MANTA_EINVAL, "run '%s' trains %.100s: it cannot go on with %.100s", p->name, then,
                          model);
    }
    if (model) options_set_arg(run, model);
    for (int i = 0; options_at(given, i, &option, &text); i++) {
        if (!text || is_of_step(option->name)) continue;
        old = options_text(run, option->name);
        if (!options_is_place(option->name) && !is_free(option->name) &&
            (!is_same(option, text, old) ||
             (on_devices && !strcmp(option->name, "precision") && strcmp(text, old ? old : "exact") != 0))) {
            complain_of_option(&c, option->name, option->kind == OPTION_FLAG, text,
                               old ? old : usual_value(option->name));
        }
        options_set(run, option->name, text);
    }
    merge_step(given, run, &c);
    if (!*c.text) return MANTA_OK;
    return manta_fail(MANTA_EINVAL,
                      "run '%s' cannot go on with other options, or its result would be another: %s", p->name,
                      c.text);
}

manta_status resume_options(const options *given, options **out)
{
    static char where[1500]; /* cli_usage() names it until the process ends */
    options *run = NULL;
    char *text = NULL;
    bool on_devices;
    manta_status st;
    place p;

    *out = NULL;
    if (!options_flag(given, "resume")) return MANTA_OK;
    if ((st = find_place(given, &p))) return st;
    st = manta_run_read_config(p.folder, &text);
    if (st == MANTA_ENOENT && !p.must) return MANTA_OK; /* it begins now */
    if (st) return st;
    snprintf(where, sizeof where, "%s/config.json", p.folder);
    st = options_read_json(options_command(given), where, text, &run);
    free(text);
    if (st) return st;
    on_devices = is_on_devices(given, run);
    tell_of_device(given, run);
    if ((st = merge_options(given, &p, run))) {
        options_free(run);
        return st;
    }
    if (on_devices && !options_text(run, "precision")) options_set(run, "precision", "exact");
    if (p.must && !strchr(options_text(given, "resume"), '/')) { /* from here on as if it had been named so */
        options_set(run, "name", p.name);
    } else if (p.must) {
        options_set(run, "run-dir", p.folder);
        options_set(run, "storage", NULL);
    }
    options_set(run, "resume", "");
    cli_set_source(where);
    *out = run;
    return MANTA_OK;
}
