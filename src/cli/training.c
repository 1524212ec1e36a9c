/* training.c - a training, opened from its options. */
#include "cli/training.h"

#include <string.h>

#include "cli/cli.h"
#include "cli/evaluator.h"

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
    if (r->so.device && !strcmp(r->so.device, "auto")) r->so.device = NULL;
    if (r->so.device && *r->so.device && strcmp(r->so.device, "cpu"))
        cli_usage("--profile measures the layers on the processor: leave --device out");
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
    r->recipe = work_recipe(o);
    (void)work_done(r->recipe, manta_recipe_session_options(r->recipe, &r->so));
    r->save = options_text(o, "save");
    r->json = options_flag(o, "json");
    (void)work_done(r->recipe, manta_recipe_fit_options(r->recipe, &r->fit));
    r->fit.event = training_event;
    r->fit.user = r;
    r->fit.event_interval_ms = PROGRESS_DRAW_MS;
    r->rates.wanted = options_flag(o, "rates");
    if (r->rates.wanted && r->so.strategy == MANTA_STRATEGY_PARAMETER_SERVER)
        cli_usage("--rates: workers of parameter servers take whatever step comes next; nobody waits");
    record_read(&r->record, o, r->recipe);
    r->failures.record = &r->record;
    r->failures.loose = r->so.strategy == MANTA_STRATEGY_PARAMETER_SERVER;
    read_profile(r);
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

/* What can be said to be wrong with files that will be written, before there is anything to write. */
static manta_status check_outputs(const training *r)
{
    const char *best = options_text(r->o, "save-best");
    manta_status st = r->save ? manta_output_check(r->save, NULL) : MANTA_OK;

    if (!st && best) st = manta_output_check(best, NULL);
    if (!st && r->profile.steps && r->profile.workers < 2) st = manta_output_check(r->profile.trace, ".json");
    return st;
}

/* Opens the session, blank where weights are going to be loaded or a checkpoint restored. */
static manta_status open_session(training *r, const manta_compile *compile)
{
    bool goes_on = record_start(&r->record) != NULL;
    manta_saved *saved = manta_recipe_saved(r->recipe);
    manta_status st;

    if (goes_on && saved) manta_saved_drop_arrays(saved);
    r->so.blank = goes_on || manta_recipe_has_weights(r->recipe);
    if ((st = manta_session_open(manta_recipe_model(r->recipe), compile, &r->so, &r->s))) return st;
    record_check_metrics(r->recipe, r->s, r->validation != NULL);
    return goes_on ? MANTA_OK : work_done(r->recipe, manta_recipe_load(r->recipe, r->s, MANTA_PURPOSE_TRAIN));
}

static manta_status open_record(training *r)
{
    manta_status st = record_open(&r->record, r->o, r->recipe, r->s, options_arg(r->o, 0));

    if (!st && r->record.run && manta_recipe_table(r->recipe))
        st = manta_recipe_keep_table(r->recipe, manta_run_path(r->record.run));
    return st;
}

manta_status training_open(training *r)
{
    bool again = options_flag(r->o, "resume"), keeps;
    const manta_compile *compile;
    manta_status st;

    if ((st = open_cluster(r))) return st;
    if ((st = manta_recipe_open(r->recipe, options_arg(r->o, 0)))) return st;
    if ((st = work_done(r->recipe, manta_recipe_compile(r->recipe, MANTA_PURPOSE_TRAIN, &compile))))
        return st;
    if ((st = check_outputs(r))) return st;
    if ((st = work_done(r->recipe, manta_recipe_datasets(r->recipe, &r->data, &r->validation)))) return st;
    r->fit.validation = r->profile.steps ? NULL : r->validation;
    keeps = !training_is_evaluator(r) && manta_cluster_is_chief(r->cluster);
    /* A checkpoint has all weights: none are made first, and --weights may be gone. A run that begins is
     * only made when nothing else can be wrong. */
    if (again && keeps && (st = open_record(r))) return st;
    if ((st = open_session(r, compile))) return st;
    if (!again && keeps && (st = open_record(r))) return st;
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
    manta_recipe_free(r->recipe);
}
