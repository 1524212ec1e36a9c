/* cmd_train.c - manta train. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/evaluator.h"
#include "cli/json.h"
#include "cli/profile.h"
#include "cli/progress.h"
#include "cli/recipe.h"
#include "cli/record.h"
#include "cli/scale.h"
#include "cli/stop.h"
#include "cli/work.h"

enum { PROFILE_WARM_UP = 5 };

static const option_group training = {
    "Training:",
    (const cli_option[]){
        {"data", OPTION_TEXT, "D",
         "What to train on: mnist, fashion-mnist, x.npy,y.npy, f.npz:x,y, f.csv:label=COL, IDX files or a "
         "folder of "
         "images"},
        {"validation", OPTION_TEXT, "D2", "What to evaluate on after every epoch, such as mnist:test"},
        {"validation-split", OPTION_REAL, "F",
         "Evaluate on this last part of --data instead (0.2), and train on the rest"},
        {"epochs", OPTION_COUNT, "E", "Passes over the data; 1 when not given"},
        {"initial-epoch", OPTION_INT, "E", "Begin after so many epochs, as a run that went before left off"},
        {"steps-per-epoch", OPTION_COUNT, "S", "Batches of an epoch; the data runs on across epochs"},
        {"validation-steps", OPTION_COUNT, "S", "Batches of an evaluation; all when not given"},
        {"batch", OPTION_COUNT, "B", "Samples of a step and worker; 32 when not given"},
        {"global-batch", OPTION_COUNT, "G", "Samples of a step over all workers"},
        {"no-shuffle", OPTION_FLAG, NULL, "Take the samples in their order"},
        {"class-weight", OPTION_TEXT, "W0,W1,...", "How much the samples of each class count"},
        {"seed", OPTION_INT, "K",
         "Of weights, order and dropout; 0 when not given. The same seed gives the same bits"},
        {"shards", OPTION_COUNT, "V", "Cut every batch into so many parts, summed in a fixed order"},
        {"strategy", OPTION_TEXT, "S",
         "mirrored: workers do every step together, and so they do when not given; one-device: this process "
         "alone; parameter-server: workers pull weights from servers and push gradients, and nobody waits"},
        {"servers", OPTION_COUNT, "N", "Parameter servers; 1 when not given"},
        {"staleness", OPTION_INT, "K",
         "With parameter servers: a step's weights lack the updates of at most K steps before it; no bound "
         "when "
         "not given"},
        {"batch-norm", OPTION_TEXT, "HOW",
         "mean: the moving statistics of a step's parts become their mean, as TensorFlow has it, and so they "
         "do when not given; first: those of the first, as PyTorch has it; sync: the parts normalise with "
         "the "
         "statistics of the whole batch"},
        {"config", OPTION_TEXT, "FILE",
         "JSON object with options by their long names (and \"model\"); the command line wins"},
        {0}}};

static const option_group weights = {
    "Weights:",
    (const cli_option[]){
        {"weights", OPTION_TEXT, "FILE", "Begin with these, optimizer state included"},
        {"reset-optimizer", OPTION_FLAG, NULL, "Take the weights only, of --weights or of MODEL's file"},
        {"freeze", OPTION_TEXT, "LAYERS",
         "Do not train layers whose names match these shell patterns (conv*,dense)"},
        {"save", OPTION_TEXT, "FILE",
         "Write weights and optimizer state here at the end, also after Ctrl-C: .keras (with the "
         "model), .npz, ..."},
        {0}}};

static const option_group cluster = {
    "Several hosts (with TF_CONFIG in the environment):",
    (const cli_option[]){{"cluster-key", OPTION_TEXT, "FILE",
                          "The key that all processes of the cluster share; on one host it is found, and "
                          "made on first use, by "
                          "itself"},
                         {"cluster-timeout", OPTION_COUNT, "SECONDS",
                          "Give up when others are missing or silent for so long; 600 when not given"},
                         {"insecure-bulk", OPTION_FLAG, NULL,
                          "Send gradients and weights unencrypted, after an authenticated handshake"},
                         {0}}};

static const option_group output = {
    "Output:",
    (const cli_option[]){{"json", OPTION_FLAG, NULL, "One JSON object a line instead of a progress bar"},
                         {"profile", OPTION_COUNT, "STEPS",
                          "Train so many steps, print where the time of a step goes, node by node, and end"},
                         {"profile-trace", OPTION_TEXT, "FILE",
                          "Where --profile writes its Chrome trace; manta-trace.json when not given"},
                         {"max-failures", OPTION_COUNT, "N",
                          "Give up when a worker has died so often in a row without finishing a step; 3 "
                          "when not given"},
                         {0}}};

/* One run of the command. */
typedef struct run {
    const options *o;
    recipe r;
    manta_model *m;
    manta_saved *saved; /* MODEL's file, NULL for a zoo model */
    manta_dataset *data, *validation;
    manta_session *s;
    manta_cluster *cluster; /* NULL: no TF_CONFIG */
    double waited_ms, say_ms; /* for others: so far, and when to say so again */
    manta_session_options so;
    manta_fit_options fit;
    float *class_weight;
    const char *save, *trace;
    int64_t profile; /* steps; 0: none */
    double profile_begin; /* seconds of the epoch when timing began */
    double profile_seconds;
    manta_metrics last; /* of the last epoch that ended, or of the one that was cut */
    bool json;
    progress progress;
    record record;
    char why[200]; /* a callback has ended the training */
    bool quiet; /* nobody reads what is printed any more */
} run;

/* ---- events ---- */

static bool emit_epoch(const manta_event *e)
{
    json_t *event = json_pack("{s:s, s:I}", "event", "epoch", "epoch", (json_int_t)e->epoch + 1);

    json_add_metrics(event, e->metrics);
    json_object_set_new(event, "images_per_s", json_number(e->samples_per_s));
    json_object_set_new(event, "seconds", json_number(e->seconds));
    json_object_set_new(event, "steps", json_integer(e->step));
    return json_emit(event);
}

/* Timing begins when plans, pages and clocks are warm. */
static bool profile_step(run *r, manta_session *s, const manta_event *e)
{
    if (e->step == PROFILE_WARM_UP) {
        r->profile_begin = e->seconds;
        return !manta_session_profile(s, r->trace);
    }
    r->profile_seconds = e->seconds - r->profile_begin;
    return true;
}

/* A worker was started, its death has been made up for, or it has left. */
static bool emit_worker(const manta_event *e)
{
    const char *name = e->kind == MANTA_EVENT_RECOVERED     ? "recovered"
                       : e->kind == MANTA_EVENT_WORKER_LEFT ? "left"
                                                            : "worker";
    json_t *event = json_pack("{s:s, s:i, s:I}", "event", name, "rank", e->rank, "pid", (json_int_t)e->pid);

    if (e->kind == MANTA_EVENT_RECOVERED) json_object_set_new(event, "ms", json_number(e->ms));
    if (e->cause) {
        json_object_set_new(event, "epoch", json_integer(e->epoch + 1));
        json_object_set_new(event, "step", json_integer(e->step + 1));
        json_object_set_new(event, "cause", json_string(e->cause));
    }
    return json_emit(event);
}

/* What signals have asked for; beyond the range it stays as it is. */
static void resize(manta_session *s)
{
    int change = scale_take();

    if (change && manta_session_resize(s, manta_session_workers(s) + change))
        cli_note("the number of workers stays: %s", manta_error_text());
}

/* What happened to a worker, in the log of its rank. */
static void log_worker(run *r, const manta_event *e)
{
    char line[240];

    if (!r->record.run) return;
    if (e->kind == MANTA_EVENT_WORKER) {
        snprintf(line, sizeof line, "started as process %lld", (long long)e->pid);
    } else {
        snprintf(line, sizeof line, "process %lld %s; made up for in %.1f ms, in epoch %lld at step %lld",
                 (long long)e->pid, e->cause, e->ms, (long long)e->epoch + 1, (long long)e->step + 1);
    }
    manta_run_log(r->record.run, e->rank, line);
}

/* Nobody reads on. A run that leaves something behind is worth finishing. */
static void unheard(run *r)
{
    if (!r->save && !record_is_resumable(&r->record)) stop_request();
    r->quiet = true;
}

/* Others of the cluster are waited for: said after a second, and then less and
 * less often. */
static void say_waiting(run *r, const manta_event *e)
{
    if (e->ms < r->waited_ms || r->say_ms == 0) r->say_ms = 1000;
    r->waited_ms = e->ms;
    if (e->ms < r->say_ms) return;
    r->say_ms = 2 * e->ms;
    if (!r->json) {
        progress_break(&r->progress);
        cli_note("%s", e->cause);
    } else if (!json_emit(json_pack("{s:s, s:i, s:f, s:s}", "event", "waiting", "rank", e->rank, "ms", e->ms,
                                    "cause", e->cause))) {
        unheard(r);
    }
}

static bool on_event(void *user, manta_session *s, const manta_event *e)
{
    run *r = user;
    bool step = e->kind == MANTA_EVENT_STEP;
    bool worker = e->kind == MANTA_EVENT_WORKER || e->kind == MANTA_EVENT_RECOVERED ||
                  e->kind == MANTA_EVENT_WORKER_LEFT;

    if ((step || e->kind == MANTA_EVENT_EPOCH_END) && e->metrics) r->last = *e->metrics;
    if (step) resize(s);
    if (e->stopped) snprintf(r->why, sizeof r->why, "%s", e->stopped);
    if (worker) log_worker(r, e);
    if (r->quiet) return !stop_requested();
    if (e->kind == MANTA_EVENT_WAITING) {
        say_waiting(r, e);
    } else if (r->profile) {
        if (step && !profile_step(r, s, e)) return false;
    } else if (!r->json) {
        progress_show(&r->progress, e);
        if (e->kind == MANTA_EVENT_EPOCH_END && !cli_flush()) unheard(r);
    } else if ((e->kind == MANTA_EVENT_EPOCH_END && !emit_epoch(e)) || (worker && !emit_worker(e))) {
        unheard(r);
    }
    return !stop_requested();
}

/* ---- before ---- */

static void read_class_weight(run *r)
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

/* Everything that can be wrong with the command line itself. */
static void read_options(run *r)
{
    const options *o = r->o;

    if (!options_text(o, "data")) cli_usage("train needs --data, such as --data mnist");
    r->so = work_session_options(o);
    r->save = options_text(o, "save");
    r->json = options_flag(o, "json");
    r->profile = options_int(o, "profile", 0);
    r->trace = options_text(o, "profile-trace") ? options_text(o, "profile-trace") : "manta-trace.json";
    r->fit = (manta_fit_options){.epochs = options_int(o, "epochs", 1),
                                 .initial_epoch = options_int(o, "initial-epoch", 0),
                                 .steps_per_epoch = options_int(o, "steps-per-epoch", 0),
                                 .no_shuffle = options_flag(o, "no-shuffle"),
                                 .validation_steps = options_int(o, "validation-steps", 0),
                                 .max_failures = (int)options_int(o, "max-failures", 0),
                                 .event = on_event,
                                 .user = r};
    work_batch(o, 32, &r->fit);
    record_read(&r->record, o);
    if (options_text(o, "validation-split")) {
        double split = options_real(o, "validation-split", 0);
        if (!(split > 0 && split < 1)) cli_usage("--validation-split: %g, expected between 0 and 1", split);
        if (options_text(o, "validation")) cli_usage("--validation and --validation-split: give one of them");
    }
    if (r->fit.initial_epoch >= r->fit.epochs) {
        cli_usage("--initial-epoch %lld leaves nothing of --epochs %lld", (long long)r->fit.initial_epoch,
                  (long long)r->fit.epochs);
    }
    read_class_weight(r);
    if (r->profile && r->so.workers > 1) cli_usage("--profile looks at one process: leave --workers out");
    if (!r->profile && options_text(o, "profile-trace")) cli_usage("--profile-trace needs --profile");
    if (r->profile) {
        r->fit.epochs = r->fit.initial_epoch + 1;
        r->fit.steps_per_epoch = r->profile + PROFILE_WARM_UP;
    }
}

/* The file brings its learning rate along, but what the user asks for now wins. */
static manta_status load_weights(run *r, const char *file)
{
    bool asked = options_text(r->o, "learning-rate") || options_text(r->o, "optimizer");
    manta_status st = work_weights(r->s, file, r->saved, options_flag(r->o, "reset-optimizer"));

    if (st || !asked || options_text(r->o, "lr-schedule")) return st;
    return manta_session_set_learning_rate(r->s, r->r.optimizer.learning_rate);
}

/* Keras's: the last part is kept back, before anything is shuffled. */
static manta_status split_data(run *r, double split)
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

/* Whether this process scores checkpoints instead of training. */
static bool is_evaluator(const run *r)
{
    return r->cluster && !strcmp(manta_cluster_task_type(r->cluster), "evaluator");
}

/* The other processes that TF_CONFIG names. One of them, the chief, saves and
 * keeps checkpoints for all. */
static manta_status open_cluster(run *r)
{
    const options *o = r->o;
    manta_cluster_options c = {.key_file = options_text(o, "cluster-key"),
                               .insecure_bulk = options_flag(o, "insecure-bulk"),
                               .timeout_ms = 1000 * options_int(o, "cluster-timeout", 0)};
    manta_status st = manta_cluster_open(&c, &r->cluster);

    if (st || !r->cluster) return st;
    if (r->so.workers > 1)
        cli_usage("--workers is for one host; with TF_CONFIG every process is a worker of its own");
    if (r->profile) cli_usage("--profile looks at one process: unset TF_CONFIG");
    if (is_evaluator(r)) {
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

static manta_status open_all(run *r)
{
    const options *o = r->o;
    const char *file = options_text(o, "weights"), *validation = options_text(o, "validation");
    manta_status st;

    if ((st = open_cluster(r))) return st;
    if ((st = work_model(options_arg(o, 0), &r->saved, &r->m))) return st;
    if (options_flag(o, "reset-optimizer") && !file && !r->saved)
        cli_usage("--reset-optimizer needs --weights");
    if ((st = recipe_init(&r->r, o, options_arg(o, 0), r->saved))) return st;
    if (r->save && (st = work_check_output(r->save, work_endings()))) return st;
    if (r->profile && (st = work_check_output(r->trace, ".json"))) return st;
    if ((st = work_freeze(r->m, options_text(o, "freeze")))) return st;
    if ((st = work_dataset(o, &r->r, r->m, options_text(o, "data"), true, &r->data))) return st;
    if (validation && (st = work_dataset(o, &r->r, r->m, validation, true, &r->validation))) return st;
    if (options_text(o, "validation-split") && (st = split_data(r, options_real(o, "validation-split", 0))))
        return st;
    r->fit.validation = r->profile ? NULL : r->validation;
    if ((st = manta_session_open(r->m, &r->r.compile, &r->so, &r->s))) return st;
    if ((file || r->saved) && (st = load_weights(r, file))) return st;
    if (is_evaluator(r) || !manta_cluster_is_chief(r->cluster)) return MANTA_OK;
    if ((st = record_open(&r->record, o, options_arg(o, 0)))) return st;
    r->fit.n_callbacks = r->record.n;
    r->fit.callbacks = r->record.callbacks;
    return MANTA_OK;
}

/* "mnist-cnn: 692,138 parameters; mnist: 60,000 samples; 2 threads, avx512" */
static void introduce(run *r)
{
    char params[32], frozen[64] = "", samples[64] = "samples", number[32];
    int64_t all = manta_model_params(r->m, false), trained = manta_model_params(r->m, true);
    int64_t count = manta_dataset_count(r->data);
    bool some = options_text(r->o, "freeze") != NULL;

    if (r->json) {
        if (r->so.workers < 2)
            emit_worker(&(manta_event){.kind = MANTA_EVENT_WORKER,
                                       .rank = manta_cluster_rank(r->cluster),
                                       .pid = getpid()}); /* this one */
        return;
    }
    if (some) snprintf(frozen, sizeof frozen, " (%s trained)", work_number(trained, number, sizeof number));
    if (count >= 0)
        snprintf(samples, sizeof samples, "%s samples", work_number(count, number, sizeof number));
    progress_bold(&r->progress, manta_model_name(r->m));
    printf(": %s parameters%s; %s: %s; %s\n", work_number(all, params, sizeof params), frozen,
           options_text(r->o, "data"), samples, manta_session_about(r->s));
    if (!cli_flush()) unheard(r);
}

/* Says what the run goes on from, and what it could not use. */
static void tell_start(run *r)
{
    const manta_checkpoint_info *i = record_start(&r->record);
    const char *path = record_start_path(&r->record), *damage = record_damage(&r->record);
    char place[64];
    json_t *event;

    if (damage) cli_note("%s; the one before it is used", damage);
    if (!r->json && r->record.run) {
        printf("Run %s in %s\n", manta_run_name(r->record.run), manta_run_path(r->record.run));
    }
    if (!i) return;
    if (!r->json) {
        printf("Resuming from %s: %s\n", path, record_place(i, place, sizeof place));
        return;
    }
    event = json_pack("{s:s, s:s, s:I, s:I}", "event", "resumed", "checkpoint", path, "epoch",
                      (json_int_t)i->epoch + 1, "step", (json_int_t)i->step);
    if (damage) json_object_set_new(event, "damaged", json_string(damage));
    if (!json_emit(event)) unheard(r);
}

/* ---- after ---- */

static int failed(run *r)
{
    manta_error why;

    manta_error_get(&why);
    if (record_finish(&r->record, "failed", &r->last, why.text)) cli_note("%s", manta_error_text());
    manta_error_raise(&why);
    if (r->json) json_result("failed", NULL, record_checkpoint(&r->record), NULL, manta_error_text());
    return cli_fail();
}

static int finish(run *r, manta_status st)
{
    bool stopped = st == MANTA_ECANCELLED && stop_requested();

    if (stopped) {
        progress_interrupted(&r->progress);
    } else {
        progress_break(&r->progress);
    }
    if (st && !stopped) return failed(r);
    if (r->profile && !stopped) {
        double ms = r->profile_seconds * 1e3 / (double)r->profile;
        if (profile_print(r->s, r->fit.batch ? r->fit.batch : r->fit.global_batch, r->profile, ms, r->trace,
                          r->json))
            return failed(r);
    }
    if (r->save && manta_session_save(r->s, r->save)) return failed(r);
    if (!r->last.n && record_start(&r->record))
        r->last = record_start(&r->record)->metrics; /* nothing was left to do */
    if (record_finish(&r->record, stopped ? "interrupted" : "done", &r->last, NULL)) return failed(r);
    if (*r->why && !r->json) printf("Ended early: %s\n", r->why);
    if (r->json) {
        json_result(stopped ? "interrupted" : "done", &r->last, record_checkpoint(&r->record), r->save, NULL);
    } else if (r->save) {
        printf("%s to %s\n", stopped ? "Interrupted; saved" : "Saved", r->save);
    } else if (stopped && !record_is_resumable(&r->record)) {
        cli_note("interrupted; nothing was saved (--save FILE would have)");
    }
    if (stopped && record_is_resumable(&r->record)) {
        cli_note("interrupted; %s goes on from here", r->record.run ? "--resume" : "the same command");
        if (stop_is_term()) return CLI_RESUMABLE;
    }
    return stopped ? CLI_INTERRUPTED : CLI_DONE;
}

static manta_status evaluate_beside(run *r)
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

static int train(const options *o)
{
    run r = {.o = o};
    int status;

    read_options(&r);
    progress_init(&r.progress);
    signal(SIGPIPE, SIG_IGN); /* who reads along may leave; the work goes on */
    stop_install();
    scale_install();
    if (open_all(&r)) {
        status = failed(&r);
    } else {
        introduce(&r);
        tell_start(&r);
        status = finish(&r, is_evaluator(&r) ? evaluate_beside(&r) : manta_fit(r.s, r.data, &r.fit, NULL));
    }
    record_close(&r.record); /* writers of checkpoints read the session */
    manta_session_close(r.s);
    manta_cluster_close(r.cluster);
    manta_dataset_unref(r.data);
    manta_dataset_unref(r.validation);
    manta_saved_free(r.saved);
    manta_model_free(r.m);
    recipe_release(&r.r);
    free(r.class_weight);
    return status;
}

const command cmd_train = {
    .name = "train",
    .args = "MODEL --data D",
    .about = "Train a model",
    .text =
        "MODEL is a .keras file, a Keras config.json, an .h5 file with a model, or a name of the zoo ('manta "
        "model' lists them). A file brings its weights, optimizer state, loss and metrics along. "
        "D is mnist or fashion-mnist (their training part, as numbers in [0,1]; mnist:test is the other), "
        "x.npy,y.npy, f.npz:x,y, f.csv:label=COL, images-idx3,labels-idx1, or a folder with a sub-folder of "
        "PNG or "
        "JPEG files per class.\n\n"
        "What is not given comes from the model: mnist-cnn, mlp and resnet18 take sparse categorical "
        "cross-entropy from logits, accuracy and adam with rate 0.001 (resnet18 also --normalize 0.5,0.5); "
        "autoencoder takes the mean squared error to its own input, and adam; linear takes the mean squared "
        "error "
        "and sgd with rate 0.01.\n\n"
        "Ctrl-C ends after the current step, saves a checkpoint and what --save asks for, and exits with "
        "status "
        "130; a second one ends at once. SIGTERM does the same, with status 75 when the run can be resumed.",
    .examples = "  manta train mnist-cnn --data mnist --validation mnist:test --epochs 3 --batch 64\n"
                "  manta train resnet18 --data fashion-mnist --batch 64 --save fashion.npz\n"
                "  manta train mlp --data mnist --optimizer sgd --learning-rate 0.1 "
                "--lr-schedule cosine:steps=9000,warmup=900\n"
                "  manta train mnist-cnn --data mnist --batch 64 --profile 20",
    .min_args = 1,
    .max_args = 1,
    .groups = {&training, &recipe_loss_options, &recipe_options, &work_data_options, &weights,
               &work_run_options, &cluster, &record_options, &output},
    .run = train,
};
