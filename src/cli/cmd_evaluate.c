/* cmd_evaluate.c - manta evaluate. */
#include <stdio.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/failure.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/stop.h"
#include "cli/work.h"

static const option_group evaluation = {
    "Evaluation:",
    (const cli_option[]){
        {"data", OPTION_TEXT, "D", "What to evaluate on, such as mnist:test"},
        {"weights", OPTION_TEXT, "FILE",
         "The weights: a file, a checkpoint's folder, or a run for its last checkpoint; without it those of "
         "MODEL's file, or as a model is born"},
        {"batch", OPTION_COUNT, "B", "Samples at a time; 256 when not given"},
        {"steps", OPTION_COUNT, "S", "Batches to look at; all when not given"},
        {"seed", OPTION_INT, "K", "Of the weights, without --weights"},
        {"config", OPTION_TEXT, "FILE",
         "JSON object with options by their long names; the command line wins"},
        {"json", OPTION_FLAG, NULL, "One JSON object a line"},
        {0}}};

typedef struct run {
    progress progress;
    failures failures;
    bool json;
    int64_t steps; /* done so far */
    double begin; /* when evaluation began, in seconds */
} run;

static bool on_event(void *user, manta_session *s, const manta_event *e)
{
    run *r = user;

    (void)s;
    if (e->kind == MANTA_EVENT_VALIDATE_STEP) r->steps = e->step;
    if (e->kind == MANTA_EVENT_RECOVERED || e->kind == MANTA_EVENT_WORKER_LEFT) progress_break(&r->progress);
    failures_see(&r->failures, e);
    if (!r->json) progress_show(&r->progress, e);
    return !stop_requested();
}

static double now_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int report_evaluate(run *r, manta_status st, double took, const manta_metrics *m)
{
    bool stopped = st == MANTA_ECANCELLED && stop_requested();

    if (st) progress_break(&r->progress);
    if (st && !stopped) {
        if (r->json) json_result("failed", NULL, NULL, NULL, manta_error_text());
        return cli_fail();
    }
    if (r->json) {
        json_result(stopped ? "interrupted" : "done", stopped ? NULL : m, NULL, NULL, NULL);
    } else if (!stopped) {
        progress_evaluated(&r->progress, r->steps, took, m);
    }
    return stopped ? CLI_INTERRUPTED : CLI_DONE;
}

/* Opens what the options name and evaluates it. *s, *d: for the caller to close. */
static manta_status open_and_evaluate(const options *o, manta_recipe *recipe, run *r, manta_session **s,
                                      manta_dataset **d, manta_metrics *metrics)
{
    manta_fit_options fit = {.batch = options_int(o, "batch", 256),
                             .validation_steps = options_int(o, "steps", 0),
                             .event = on_event,
                             .user = r,
                             .event_interval_ms = PROGRESS_DRAW_MS};
    manta_status st;

    if ((st = manta_recipe_open(recipe, options_arg(o, 0)))) return st;
    if ((st = work_done(recipe, manta_recipe_dataset(recipe, options_text(o, "data"), true, d)))) return st;
    if ((st = work_done(recipe, manta_recipe_session(recipe, NULL, MANTA_PURPOSE_EVALUATE, s)))) return st;
    r->begin = now_seconds();
    return manta_evaluate(*s, *d, &fit, metrics);
}

static int run_evaluate(const options *o)
{
    run r = {.json = options_flag(o, "json")};
    manta_recipe *recipe = work_recipe(o);
    manta_session_options so;
    manta_dataset *d = NULL;
    manta_session *s = NULL;
    manta_metrics metrics = {0};
    manta_status st;
    int status;

    (void)work_done(recipe, manta_recipe_session_options(recipe, &so)); /* wrong usage is said first */
    if (!options_text(o, "data")) cli_usage("evaluate needs --data, such as --data mnist:test");
    progress_init(&r.progress);
    stop_install();
    st = open_and_evaluate(o, recipe, &r, &s, &d, &metrics);
    status = report_evaluate(&r, st, now_seconds() - r.begin, &metrics);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_recipe_free(recipe);
    return status;
}

const command cmd_evaluate = {
    .name = "evaluate",
    .args = "MODEL --data D",
    .about = "Compute the loss and the metrics of a model on data",
    .text = "MODEL and D are as for 'manta train', and so are the loss and the metrics that a model has by "
            "itself.",
    .examples = "  manta evaluate mnist-cnn --weights mnist-cnn.npz --data mnist:test",
    .min_args = 1,
    .max_args = 1,
    .groups = {&evaluation, &work_loss_options, &work_data_options, &work_run_options},
    .run = run_evaluate,
};
