/* recipe_session.c - options of a session and of a fit from settings; a session with its weights.
 *
 *     manta_recipe_session_options()   workers, threads, shards, seed, strategy, ...
 *     manta_recipe_fit_options()       epochs, batch, validation, class weights, ...
 *     manta_recipe_session()           opens a session with the recipe's model and compile, and
 *     manta_recipe_load()              gives it the state: of the setting `weights`; else what the
 *                                      model's own file holds; else what it was drawn with
 *
 * What contradicts itself is refused here, in the words of whoever asked: sentences name settings
 * with the recipe's prefix ("--" for the command line) and blame one of them (recipe_blame()). A
 * learning rate that is asked for wins over the one that a file brings along.
 *
 * A session that is to be given weights is opened blank: none are drawn that would be overwritten. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "nn/optimizer.h"
#include "train/recipe/recipe.h"
#include "train/recipe/settings.h"

/* Blames a setting for a sentence that begins otherwise than with its name. */
#define REFUSE(r, setting, ...) recipe_blame(r, setting, manta_fail(MANTA_EINVAL, __VA_ARGS__))

/* ---- session ---- */

enum { MOST_WORKERS = 256, MOST_THREADS = 4096, MOST_SHARDS = 4096, MOST_SERVERS = 64 };

/* N, or N:M for M workers of which N will do. */
static manta_status read_workers(manta_recipe *r, manta_session_options *so)
{
    const char *text = recipe_text(r, "workers");
    int64_t n, least = 0;
    char *end, word[96];

    so->workers = 1;
    if (!text) return MANTA_OK;
    n = strtoll(text, &end, 10);
    if (end == text || (*end && *end != ':'))
        return recipe_fail(r, "workers", "'%.80s' is not a whole number", text);
    if (n < 1 || n > MOST_WORKERS)
        return recipe_fail(r, "workers", "%.80s, expected 1 to %d", text, MOST_WORKERS);
    if (*end == ':') {
        least = n;
        if (settings_int(recipe_word(r, "workers", word, sizeof word), end + 1, &n))
            return recipe_blame(r, "workers", MANTA_EINVAL);
        if (n < least || n > MOST_WORKERS)
            return REFUSE(r, "workers",
                          "%sworkers %.80s: expected at least as many behind the colon, and at most %d",
                          r->prefix, text, MOST_WORKERS);
    }
    so->workers = (int)n;
    so->min_workers = (int)least;
    return MANTA_OK;
}

static manta_status read_shards(manta_recipe *r, manta_session_options *so)
{
    int64_t shards = recipe_int(r, "shards", 0);

    if (shards && shards < so->workers)
        return REFUSE(r, "shards", "%sshards %" PRId64 " for %sworkers %d: each worker needs one at least",
                      r->prefix, shards, r->prefix, so->workers);
    return recipe_small(r, "shards", 0, MOST_SHARDS, &so->shards);
}

static manta_status read_statistics(manta_recipe *r, manta_statistics *out)
{
    static const char *const words[] = {[MANTA_STATISTICS_MEAN] = "mean",
                                        [MANTA_STATISTICS_FIRST] = "first",
                                        [MANTA_STATISTICS_SYNC] = "sync"};
    const char *text = recipe_text(r, "batch-norm");
    char hint[SUGGEST_TEXT];

    if (!text) return MANTA_OK;
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, words[i])) continue;
        *out = (manta_statistics)i;
        return MANTA_OK;
    }
    return recipe_fail(r, "batch-norm", "'%.80s', expected mean, first or sync%s", text,
                       suggest_among(text, 3, words, hint, sizeof hint));
}

/* The strategy, and what only parameter servers have. */
static manta_status read_strategy(manta_recipe *r, manta_session_options *so)
{
    static const char *const strategies[] = {"mirrored", "one-device", "parameter-server"};
    const char *name = recipe_text(r, "strategy"), *p = r->prefix;
    char hint[SUGGEST_TEXT];
    int64_t servers = recipe_int(r, "servers", 0), staleness = recipe_int(r, "staleness", -1);
    bool served = name && !strcmp(name, "parameter-server");

    if (!served && (servers || staleness >= 0))
        return REFUSE(r, servers ? "servers" : "staleness",
                      "%sservers and %sstaleness are for %sstrategy parameter-server", p, p, p);
    if (name && !served && strcmp(name, "mirrored") && strcmp(name, "one-device"))
        return recipe_fail(r, "strategy", "'%.80s', expected mirrored, one-device or parameter-server%s",
                           name, suggest_among(name, 3, strategies, hint, sizeof hint));
    if (name && !strcmp(name, "one-device") && so->workers > 1)
        return REFUSE(r, "strategy", "%sstrategy one-device is this process alone: leave %sworkers out", p,
                      p);
    if (!served) return MANTA_OK;
    if (so->shards || so->min_workers)
        return REFUSE(r, "strategy", "%sstrategy parameter-server has neither %sshards nor %sworkers N:M", p,
                      p, p);
    if (servers > MOST_SERVERS)
        return recipe_fail(r, "servers", "%" PRId64 ", expected 1 to %d", servers, MOST_SERVERS);
    so->strategy = MANTA_STRATEGY_PARAMETER_SERVER;
    so->servers = (int)servers;
    so->staleness = staleness > 0 ? staleness : staleness == 0 ? MANTA_ZERO : 0;
    return MANTA_OK;
}

manta_status manta_recipe_session_options(manta_recipe *r, manta_session_options *out)
{
    REFUSE_NULL(r);
    REFUSE_NULL(out);

    manta_session_options so = {.seed = (uint64_t)recipe_int(r, "seed", 0),
                                .kernels = recipe_text(r, "kernels"),
                                .precision = recipe_text(r, "precision"),
                                .device = recipe_text(r, "device"),
                                .debug = recipe_flag(r, "debug")};
    int64_t threads = recipe_int(r, "threads-per-worker", 0);

    recipe_begin(r);
    TRY(read_workers(r, &so));
    if (threads > MOST_THREADS)
        return recipe_fail(r, "threads-per-worker", "%" PRId64 " threads, expected at most %d", threads,
                           MOST_THREADS);
    so.threads = (int)threads;
    TRY(read_shards(r, &so));
    TRY(read_statistics(r, &so.statistics));
    TRY(read_strategy(r, &so));
    *out = so;
    return MANTA_OK;
}

/* ---- fit ---- */

static manta_status read_batch(manta_recipe *r, manta_fit_options *fit)
{
    fit->batch = recipe_int(r, "batch", 0);
    fit->global_batch = recipe_int(r, "global-batch", 0);
    if (fit->batch && fit->global_batch)
        return REFUSE(r, "batch", "%sbatch is what a worker takes of %sglobal-batch: give one of them",
                      r->prefix, r->prefix);
    if (!fit->batch && !fit->global_batch) fit->batch = MANTA_RECIPE_BATCH;
    return MANTA_OK;
}

static manta_status check_validation(manta_recipe *r, const manta_fit_options *fit)
{
    double split = recipe_real(r, "validation-split", 0);
    bool splits = recipe_flag(r, "validation-split"), has = recipe_flag(r, "validation");
    const char *p = r->prefix;

    if (splits && !(split > 0 && split < 1))
        return recipe_fail(r, "validation-split", "%g, expected between 0 and 1", split);
    if (splits && has)
        return REFUSE(r, "validation-split", "%svalidation and %svalidation-split: give one of them", p, p);
    if (fit->validation_steps && !splits && !has)
        return REFUSE(r, "validation-steps", "%svalidation-steps needs %svalidation or %svalidation-split", p,
                      p, p);
    return MANTA_OK;
}

static manta_status read_class_weight(manta_recipe *r, manta_fit_options *fit)
{
    enum { MOST = 4096 };
    const char *text = recipe_text(r, "class-weight");
    double given[MOST];
    char word[96];
    int n;

    mem_free(r->class_weight);
    r->class_weight = NULL;
    if (!text) return MANTA_OK;
    if (settings_reals(recipe_word(r, "class-weight", word, sizeof word), text, MOST, given, &n))
        return recipe_blame(r, "class-weight", MANTA_EINVAL);
    r->class_weight = mem_new((size_t)n * sizeof *r->class_weight);
    for (int i = 0; i < n; i++) r->class_weight[i] = (float)given[i];
    fit->class_weight = r->class_weight;
    fit->n_classes = n;
    return MANTA_OK;
}

manta_status manta_recipe_fit_options(manta_recipe *r, manta_fit_options *out)
{
    REFUSE_NULL(r);
    REFUSE_NULL(out);

    manta_fit_options fit = {.epochs = recipe_int(r, "epochs", 1),
                             .initial_epoch = recipe_int(r, "initial-epoch", 0),
                             .steps_per_epoch = recipe_int(r, "steps-per-epoch", 0),
                             .no_shuffle = recipe_flag(r, "no-shuffle"),
                             .validation_steps = recipe_int(r, "validation-steps", 0)};

    recipe_begin(r);
    TRY(recipe_small(r, "max-failures", 0, INT_MAX, &fit.max_failures));
    TRY(read_batch(r, &fit));
    TRY(check_validation(r, &fit));
    if (fit.initial_epoch >= fit.epochs)
        return REFUSE(r, "initial-epoch", "%sinitial-epoch %" PRId64 " leaves nothing of %sepochs %" PRId64,
                      r->prefix, fit.initial_epoch, r->prefix, fit.epochs);
    TRY(read_class_weight(r, &fit));
    *out = fit;
    return MANTA_OK;
}

/* ---- a session ---- */

bool manta_recipe_has_weights(const manta_recipe *r)
{
    REFUSE_NULL_OR(r, false);
    return recipe_flag(r, "weights") || (r->saved && manta_saved_arrays(r->saved));
}

/* The state of a file, a checkpoint or a run, instead of the model's own. */
static manta_status load_state(manta_recipe *r, const char *given, manta_session *s, bool weights_only)
{
    char *path = NULL;
    manta_status st;

    if (r->saved) manta_saved_drop_arrays(r->saved);
    if ((st = manta_state_find(given, &path, NULL))) return st;
    st = manta_session_load(s, path, weights_only);
    free(path);
    return st;
}

manta_status manta_recipe_load(manta_recipe *r, manta_session *s, manta_purpose purpose)
{
    REFUSE_NULL(r);
    REFUSE_NULL(s);

    const char *given = recipe_text(r, "weights");
    bool weights_only = purpose != MANTA_PURPOSE_TRAIN || recipe_flag(r, "reset-optimizer");
    bool asked = recipe_flag(r, "learning-rate") || recipe_flag(r, "optimizer");
    const manta_compile *compile;

    recipe_begin(r);
    TRY(recipe_check_purpose(__func__, purpose));
    if (!given && !r->saved) return MANTA_OK;
    if (given) {
        TRY(load_state(r, given, s, weights_only));
    } else if (manta_recipe_has_weights(r)) {
        manta_status st = manta_session_restore(s, r->saved, weights_only);
        manta_saved_drop_arrays(r->saved);
        if (st) return st;
    }
    /* The file brings its learning rate along, but what is asked for now wins. */
    if (purpose != MANTA_PURPOSE_TRAIN || !asked || recipe_flag(r, "lr-schedule")) return MANTA_OK;
    TRY(manta_recipe_compile(r, purpose, &compile));
    return manta_session_set_learning_rate(s, optimizer_start_rate(compile->optimizer));
}

manta_status manta_recipe_session(manta_recipe *r, const manta_session_options *options,
                                  manta_purpose purpose, manta_session **out)
{
    REFUSE_NULL(r);
    REFUSE_NULL(out);

    manta_session_options so;
    const manta_compile *compile;
    manta_session *s;
    manta_status st;

    if (options) {
        so = *options;
    } else {
        TRY(manta_recipe_session_options(r, &so));
    }
    TRY(manta_recipe_compile(r, purpose, &compile));
    so.blank = manta_recipe_has_weights(r);
    TRY(manta_session_open(r->m, purpose == MANTA_PURPOSE_PREDICT ? NULL : compile, &so, &s));
    if ((st = manta_recipe_load(r, s, purpose))) {
        manta_session_close(s);
        return st;
    }
    *out = s;
    return MANTA_OK;
}
