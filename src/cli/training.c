/* training.c - a training, opened from its options. */
#include "cli/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/evaluator.h"

static void read_class_weight(training *r)
{
    const char *text = options_text(r->o, "class-weight");
    double given[4096];

    if (!text) return;
    r->fit.n_classes = options_reals("class-weight", text, given, 4096);
    r->class_weight = calloc((size_t)r->fit.n_classes, sizeof *r->class_weight);
    if (!r->class_weight) abort();
    for (int i = 0; i < r->fit.n_classes; i++) r->class_weight[i] = (float)given[i];
    r->fit.class_weight = r->class_weight;
}

static void read_profile(training *r)
{
    const char *trace = options_text(r->o, "profile-trace");

    r->profile = (profile){.steps = options_int(r->o, "profile", 0),
                           .workers = r->so.workers > 1 ? r->so.workers : 1,
                           .trace = trace ? trace : "manta-trace.json"};
    if (!r->profile.steps && trace) cli_usage("--profile-trace needs --profile");
    if (!r->profile.steps) return;
    if (r->so.strategy == MANTA_STRATEGY_PARAMETER_SERVER)
        cli_usage(
            "--profile: workers of parameter servers take whatever step comes next; none is everybody's");
    if (r->profile.workers > 1 && trace)
        cli_usage("--profile-trace looks at one process: leave --workers out");
    profile_plan(&r->profile, &r->fit);
}

void training_read(training *r)
{
    const options *o = r->o;

    if (!options_arg(o, 0)) {
        cli_usage(options_flag(o, "resume")
                      ? "train needs MODEL --data D: there is no such run yet to take them from"
                      : "train needs MODEL --data D");
    }
    if (!options_text(o, "data")) cli_usage("train needs --data, such as --data mnist");
    r->so = work_session_options(o);
    r->save = options_text(o, "save");
    r->json = options_flag(o, "json");
    r->fit = (manta_fit_options){.epochs = options_int(o, "epochs", 1),
                                 .initial_epoch = options_int(o, "initial-epoch", 0),
                                 .steps_per_epoch = options_int(o, "steps-per-epoch", 0),
                                 .no_shuffle = options_flag(o, "no-shuffle"),
                                 .validation_steps = options_int(o, "validation-steps", 0),
                                 .max_failures = (int)options_int(o, "max-failures", 0),
                                 .event = training_event,
                                 .user = r,
                                 .event_interval_ms = PROGRESS_DRAW_MS};
    work_batch(o, WORK_BATCH, &r->fit);
    r->rates.wanted = options_flag(o, "rates");
    if (r->rates.wanted && r->so.strategy == MANTA_STRATEGY_PARAMETER_SERVER)
        cli_usage("--rates: workers of parameter servers take whatever step comes next; nobody waits");
    record_read(&r->record, o);
    r->failures.record = &r->record;
    r->failures.loose = r->so.strategy == MANTA_STRATEGY_PARAMETER_SERVER;
    if (options_text(o, "validation-split")) {
        double split = options_real(o, "validation-split", 0);
        if (!(split > 0 && split < 1)) cli_usage("--validation-split: %g, expected between 0 and 1", split);
        if (options_text(o, "validation")) cli_usage("--validation and --validation-split: give one of them");
    }
    if (r->fit.validation_steps && !options_text(o, "validation") && !options_text(o, "validation-split"))
        cli_usage("--validation-steps needs --validation or --validation-split");
    if (r->fit.initial_epoch >= r->fit.epochs) {
        cli_usage("--initial-epoch %lld leaves nothing of --epochs %lld", (long long)r->fit.initial_epoch,
                  (long long)r->fit.epochs);
    }
    read_class_weight(r);
    read_profile(r);
}

/* The file brings its learning rate along, but what the user asks for now wins. */
static manta_status load_weights(training *r, const char *file)
{
    bool asked = options_text(r->o, "learning-rate") || options_text(r->o, "optimizer");
    manta_status st = work_weights(r->s, file, r->saved, options_flag(r->o, "reset-optimizer"));

    if (st || !asked || options_text(r->o, "lr-schedule")) return st;
    return manta_session_set_learning_rate(r->s, r->r.optimizer.learning_rate);
}

/* Keras's: the last part is kept back, before anything is shuffled. */
static manta_status split_data(training *r, double split)
{
    int64_t n = manta_dataset_count(r->data), first;

    if (n < 0) return manta_fail(MANTA_EINVAL, "--validation-split: the length of the data is not known");
    first = (int64_t)((double)n * (1 - split));
    if (first < 1 || first >= n) {
        return manta_fail(MANTA_EINVAL, "--validation-split %g of %lld samples leaves one part empty", split,
                          (long long)n);
    }
    r->validation = manta_dataset_skip(manta_dataset_ref(r->data), first);
    r->data = manta_dataset_take(r->data, first);
    return manta_dataset_status(r->data) ? manta_dataset_status(r->data)
                                         : manta_dataset_status(r->validation);
}

bool training_is_evaluator(const training *r)
{
    return r->cluster && !strcmp(manta_cluster_task_type(r->cluster), "evaluator");
}

/* The other processes that TF_CONFIG names. One of them, the chief, saves and
 * keeps checkpoints for all. */
static manta_status open_cluster(training *r)
{
    const options *o = r->o;
    manta_cluster_options c = {.key_file = options_text(o, "cluster-key"),
                               .insecure_bulk = options_flag(o, "insecure-bulk"),
                               .timeout_ms = 1000 * options_int(o, "cluster-timeout", 0)};
    manta_status st = manta_cluster_open(&c, &r->cluster);

    if (st || !r->cluster) return st;
    if (r->so.workers > 1)
        cli_usage("--workers is for one host; with TF_CONFIG every process is a worker of its own");
    if (r->profile.steps) cli_usage("--profile looks at one process: unset TF_CONFIG");
    if (r->rates.wanted) cli_usage("--rates looks at the workers of one host: unset TF_CONFIG");
    if (training_is_evaluator(r)) {
        if (!options_text(o, "validation") || !options_text(o, "run-dir"))
            cli_usage("an evaluator (task.type of TF_CONFIG) needs --validation, and the chief's --run-dir");
        r->save = NULL;
        return MANTA_OK;
    }
    r->so.cluster = r->cluster;
    if (!manta_cluster_is_chief(r->cluster)) r->save = NULL;
    if (c.insecure_bulk) cli_note("gradients and weights are sent unencrypted (--insecure-bulk)");
    return MANTA_OK;
}

manta_status training_open(training *r)
{
    const options *o = r->o;
    const char *file = options_text(o, "weights"), *validation = options_text(o, "validation");
    bool again = options_flag(o, "resume"), keeps, goes_on;
    manta_status st;

    if ((st = open_cluster(r))) return st;
    if ((st = work_model(options_arg(o, 0), &r->saved, &r->m))) return st;
    if (options_flag(o, "reset-optimizer") && !file && !r->saved)
        cli_usage("--reset-optimizer needs --weights");
    if ((st = recipe_init(&r->r, o, options_arg(o, 0), r->saved))) return st;
    if (r->save && (st = work_check_output(r->save, work_endings()))) return st;
    if (options_text(o, "save-best") &&
        (st = work_check_output(options_text(o, "save-best"), work_endings())))
        return st;
    if (r->profile.steps && r->profile.workers < 2 && (st = work_check_output(r->profile.trace, ".json")))
        return st;
    if ((st = work_freeze(r->m, options_text(o, "freeze")))) return st;
    if ((st = work_dataset(o, &r->r, r->m, options_text(o, "data"), true, &r->data))) return st;
    if (validation && (st = work_dataset(o, &r->r, r->m, validation, true, &r->validation))) return st;
    if (options_text(o, "validation-split") && (st = split_data(r, options_real(o, "validation-split", 0))))
        return st;
    r->fit.validation = r->profile.steps ? NULL : r->validation;
    keeps = !training_is_evaluator(r) && manta_cluster_is_chief(r->cluster);
    /* A checkpoint has all weights: none are made first, and --weights may be gone. A run that begins is
     * only made when nothing else can be wrong. */
    if (again && keeps && (st = record_open(&r->record, o, options_arg(o, 0)))) return st;
    goes_on = record_start(&r->record) != NULL;
    if (goes_on && r->saved) manta_saved_drop_arrays(r->saved);
    r->so.blank = goes_on || work_has_weights(file, r->saved);
    if ((st = manta_session_open(r->m, &r->r.compile, &r->so, &r->s))) return st;
    record_check_metrics(o, r->s, r->validation != NULL);
    if (!goes_on && (file || r->saved) && (st = load_weights(r, file))) return st;
    if (!again && keeps && (st = record_open(&r->record, o, options_arg(o, 0)))) return st;
    if (!keeps) return MANTA_OK;
    r->fit.n_callbacks = r->record.n;
    r->fit.callbacks = r->record.callbacks;
    return MANTA_OK;
}

static manta_status evaluate_beside(training *r)
{
    evaluator e = {.s = r->s,
                   .data = r->validation,
                   .run = options_text(r->o, "run-dir"),
                   .fit = {.batch = r->fit.batch,
                           .global_batch = r->fit.global_batch,
                           .validation_steps = r->fit.validation_steps},
                   .timeout_ms = 1000 * options_int(r->o, "cluster-timeout", 0),
                   .json = r->json};

    return evaluator_run(&e, &r->last);
}

manta_status training_run(training *r)
{
    return training_is_evaluator(r) ? evaluate_beside(r) : manta_fit(r->s, r->data, &r->fit, NULL);
}

void training_close(training *r)
{
    record_close(&r->record); /* writers of checkpoints read the session */
    manta_session_close(r->s);
    manta_cluster_close(r->cluster);
    manta_dataset_unref(r->data);
    manta_dataset_unref(r->validation);
    manta_saved_free(r->saved);
    manta_model_free(r->m);
    recipe_release(&r->r);
    free(r->class_weight);
}
