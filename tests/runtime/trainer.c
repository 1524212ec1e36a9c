/* The trainer, as a program uses it: trainer_program SCENARIO FOLDER. */
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trainer_fixture.h"

typedef struct settings {
    int64_t epochs;
    int fail_rank, fail_epoch, how; /* on the first attempt; how: 0 not at all, 1 killed, 2 an error */
    int mode;
    char out[200];
} settings;

enum { FAIL_NOT, FAIL_KILLED, FAIL_ERROR, FAIL_ALWAYS };

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static manta_status fail_when_told(manta_worker *w, const settings *c, int64_t epoch)
{
    bool here = manta_worker_rank(w) == c->fail_rank && epoch == c->fail_epoch;

    if (!here || (manta_worker_attempt(w) && c->how != FAIL_ALWAYS)) return MANTA_OK;
    if (c->how == FAIL_KILLED) raise(SIGKILL);
    if (c->how == FAIL_ERROR || c->how == FAIL_ALWAYS)
        return manta_fail(MANTA_EINVAL, "the flux is reversed");
    return MANTA_OK;
}

/* ---- a model of ours ---- */

/* Rank 0 comes last: with its checkpoint all others have reported, and what follows
 * finds it sent. */
static manta_status report_in_turn(manta_worker *w, const manta_metrics *m, const manta_session *s,
                                   int64_t epoch)
{
    manta_status st;

    for (int chief = 0; chief < 2; chief++) {
        bool mine = chief == (manta_worker_rank(w) == 0);
        if (mine && (st = manta_report_session(w, m, s, epoch, 0))) return st;
        if ((st = manta_worker_barrier(w))) return st;
    }
    return MANTA_OK;
}

static manta_status train_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    manta_metrics metrics;
    manta_status st;
    trained t;

    if ((st = line_open(w, 8, &t))) return st;
    for (int64_t e = manta_worker_epoch(w); e < c->epochs; e++) {
        if ((st = fail_when_told(w, c, e))) return st;
        if ((st = manta_worker_train_epoch(w, t.s, t.l, e, &metrics))) return st;
        if ((st = report_in_turn(w, &metrics, t.s, e + 1))) return st;
    }
    if (!manta_worker_rank(w)) st = manta_session_save(t.s, c->out);
    line_close(&t);
    return st;
}

static manta_result *run(const char *folder, const char *name, const settings *c, manta_loop_fn *loop,
                         int workers, int max_failures, manta_status expected)
{
    manta_dataset *d = samples();
    manta_result *r = NULL;
    manta_trainer_options o = {.loop = loop,
                               .config = c,
                               .config_size = sizeof *c,
                               .scaling = {.num_workers = workers, .threads_per_worker = 1},
                               .run = {.name = name,
                                       .storage = folder,
                                       .failure = {.max_failures = max_failures},
                                       .checkpoints = {.keep = 2, .score = "loss"}},
                               .n_datasets = 1,
                               .datasets =
                                   (manta_named_dataset[]){{.name = "train", .dataset = d, .shuffle = true}}};
    manta_status st = manta_trainer_fit(&o, &r);

    if (st != expected) {
        fprintf(stderr, "%s: status %s: %s\n", name, manta_status_name(st), manta_error_text());
        exit(1);
    }
    manta_dataset_unref(d);
    return r;
}

static settings settings_of(const char *folder, const char *out)
{
    settings c = {.epochs = 4, .fail_rank = -1};

    snprintf(c.out, sizeof c.out, "%s/%s", folder, out);
    return c;
}

/* Two workers, then the same with one of them killed or failing: same bytes. */
static void trains(const char *folder)
{
    settings c = settings_of(folder, "calm.npz");
    char first[256];
    manta_result *r = run(folder, "calm", &c, train_loop, 2, 0, MANTA_OK), *again;

    snprintf(first, sizeof first, "%s", c.out);
    CHECK(r && r->failures == 0 && !r->error && r->n_checkpoints >= 1 && r->n_checkpoints <= 3);
    CHECK(r->n_series >= 1 && r->series[0].n == 4);
    CHECK(isfinite(manta_metrics_get(&r->metrics, "loss")));
    CHECK(manta_result_best(r, "loss", NULL) && strstr(manta_result_best(r, "loss", NULL), "checkpoint-"));
    CHECK(!manta_result_read(r->path, &again));
    CHECK(again->n_checkpoints == r->n_checkpoints && !strcmp(again->checkpoint, r->checkpoint));
    CHECK(manta_metrics_get(&again->metrics, "loss") == manta_metrics_get(&r->metrics, "loss"));
    manta_result_free(again);
    manta_result_free(r);
    for (int how = FAIL_KILLED; how <= FAIL_ERROR; how++) {
        for (int rank = 0; rank < 2; rank++) {
            char name[32];
            snprintf(name, sizeof name, "lost-%d-%d", how, rank);
            c = settings_of(folder, name);
            strcat(c.out, ".npz");
            c.fail_rank = rank;
            c.fail_epoch = 2;
            c.how = how;
            r = run(folder, name, &c, train_loop, 2, 0, MANTA_OK);
            CHECK(r->failures == 1 && r->series[0].n == 4); /* every epoch once */
            CHECK(lines_of(r->path, 0) == 4 && lines_of(r->path, 1) == 4);
            CHECK(same_bytes(first, c.out));
            manta_result_free(r);
        }
    }
}

/* What a failing rank says is what the user reads. */
static void says_why(const char *folder)
{
    settings c = settings_of(folder, "never.npz");
    manta_result *r;

    c.fail_rank = 1;
    c.fail_epoch = 1;
    c.how = FAIL_ALWAYS;
    r = run(folder, "doomed", &c, train_loop, 2, 1, MANTA_EINVAL);
    CHECK(r && r->failures == 1 && r->error_rank == 1);
    CHECK(r->error && strstr(r->error, "rank 1") && strstr(r->error, "the flux is reversed"));
    CHECK(r->checkpoint); /* of the epoch before */
    manta_result_free(r);
    r = run(folder, "doomed", &c, train_loop, 2, 1, MANTA_EEXIST); /* the name is taken */
    CHECK(!r);
}

/* A run ended early goes on by its name, and a checkpoint starts another. */
static void goes_on(const char *folder)
{
    settings c = settings_of(folder, "whole.npz"), half = settings_of(folder, "half.npz");
    char whole[256], path[300];
    manta_result *r;
    manta_trainer_options o = {.loop = train_loop, .config_size = sizeof c, .scaling = {.num_workers = 2}};
    manta_named_dataset d = {.name = "train", .dataset = samples(), .shuffle = true};

    snprintf(whole, sizeof whole, "%s", c.out);
    manta_result_free(run(folder, "whole", &c, train_loop, 2, 0, MANTA_OK));
    half.epochs = 2;
    r = run(folder, "half", &half, train_loop, 2, 0, MANTA_OK);
    snprintf(path, sizeof path, "%s", r->checkpoint);
    manta_result_free(r);
    half.epochs = 4;
    o.config = &half;
    o.n_datasets = 1;
    o.datasets = &d;
    o.run.storage = folder;
    o.run.name = "elsewhere";
    o.resume_from_checkpoint = path;
    CHECK(!manta_trainer_fit(&o, &r));
    CHECK(same_bytes(whole, half.out));
    CHECK(r->series[0].n == 2);
    manta_result_free(r);
    CHECK(!remove(half.out));
    o.resume_from_checkpoint = NULL;
    o.run.name = "half";
    o.run.resume = true;
    CHECK(!manta_trainer_fit(&o, &r));
    CHECK(same_bytes(whole, half.out));
    CHECK(r->series[0].n == 4);
    manta_result_free(r);
    manta_dataset_unref(d.dataset);
}

/* ---- the driver is killed ---- */

static bool die_at(void *user, const manta_report_event *e)
{
    if (e->rank == 0 && e->index == *(const int *)user) raise(SIGKILL);
    return true;
}

static manta_status resume_run(const char *folder, const settings *c, manta_report_fn *report, void *user,
                               manta_result **r)
{
    manta_named_dataset d = {.name = "train", .dataset = samples(), .shuffle = true};
    manta_trainer_options o = {
        .loop = train_loop,
        .config = c,
        .config_size = sizeof *c,
        .scaling = {.num_workers = 2, .threads_per_worker = 1},
        .run = {.name = "victim", .storage = folder, .resume = true, .report = report, .user = user},
        .n_datasets = 1,
        .datasets = &d};
    manta_status st = manta_trainer_fit(&o, r);

    manta_dataset_unref(d.dataset);
    return st;
}

/* In a process of its own: dies when the report comes that the variable names. */
static void victim(const char *folder)
{
    const char *there = getenv("VICTIM_FOLDER"), *when = getenv("VICTIM_DIES_AT");
    int at;
    settings c;
    manta_result *r = NULL;

    CHECK(!rmdir(folder)); /* its own, which nobody will remove */
    CHECK(there && when);
    at = (int)strtol(when, NULL, 10);
    c = settings_of(there, "victim.npz");
    if (resume_run(there, &c, die_at, &at, &r)) fprintf(stderr, "%s\n", manta_error_text());
    manta_result_free(r);
    CHECK(!mkdir(folder, 0700));
}

/* Whoever drives the run is killed again and again, once for every epoch; the one
 * that takes it up last ends with the bytes of a run that nobody killed. */
static void killed_driver(const char *folder)
{
    settings c = settings_of(folder, "calm.npz");
    char *argv[] = {(char[]){"trainer_program"}, (char[]){"victim"}, NULL}, calm[256], at[8];
    manta_result *r = run(folder, "calm", &c, train_loop, 2, 0, MANTA_OK);

    manta_result_free(r);
    snprintf(calm, sizeof calm, "%s", c.out);
    CHECK(!setenv("VICTIM_FOLDER", folder, 1));
    for (int i = 0; i < 3; i++) {
        pid_t pid;
        int status;
        snprintf(at, sizeof at, "%d", i);
        CHECK(!setenv("VICTIM_DIES_AT", at, 1));
        CHECK(!posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ));
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    c = settings_of(folder, "victim.npz");
    CHECK(!resume_run(folder, &c, NULL, NULL, &r));
    CHECK(r->series[0].n == 4 && r->failures == 0);
    CHECK(lines_of(r->path, 0) == 4 && lines_of(r->path, 1) == 4);
    CHECK(same_bytes(calm, c.out));
    manta_result_free(r);
}

/* ---- loops of any kind ---- */

/* Every rank adds a file; rank r reports 3 + r times and rank 1 returns early. */
static manta_status own_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    int rank = manta_worker_rank(w), world = manta_worker_world_size(w);
    double sum[2] = {1, rank};
    manta_status st;

    if ((st = manta_worker_sum(w, sum, 2))) return st;
    if (sum[0] != world || sum[1] != world * (world - 1) / 2) return manta_fail(MANTA_EINVAL, "a wrong sum");
    for (int i = 0; i < (int)c->epochs; i++) {
        manta_metrics m = {0};
        char name[64], *folder;
        if (rank == 1 && i == 2) return MANTA_OK; /* early */
        one_metric(&m, "i", i);
        one_metric(&m, "nan", (double)NAN);
        for (int k = 0; k <= rank; k++) {
            if ((st = manta_report(w, &m))) return st;
        }
        if ((st = manta_worker_temp_folder(w, &folder))) return st;
        snprintf(name, sizeof name, "rank-%d.txt", rank);
        write_text(folder, name, "mine");
        write_text(folder, "common.txt", rank ? "other" : "chief");
        st = manta_report_checkpoint(w, &m, folder, &(manta_checkpoint_info){.epoch = i + 1});
        free(folder);
        if (st) return st;
    }
    return MANTA_OK;
}

static void merges(const char *folder)
{
    settings c = settings_of(folder, "none");
    manta_result *r = run(folder, "merged", &c, own_loop, 3, MANTA_NONE, MANTA_OK);
    manta_checkpoint *last;
    char text[16] = "", path[400];
    FILE *f;

    CHECK(r->checkpoint && !manta_checkpoint_open(r->checkpoint, &last));
    CHECK(manta_checkpoint_get(last)->epoch == 4);
    CHECK(!strcmp(manta_checkpoint_file(last, 0), "common.txt"));
    CHECK(!strcmp(manta_checkpoint_file(last, 1), "rank-0.txt"));
    CHECK(!strcmp(manta_checkpoint_file(last, 2), "rank-2.txt")); /* rank 1 had gone home */
    snprintf(path, sizeof path, "%s/common.txt", r->checkpoint);
    CHECK((f = fopen(path, "r")) && fgets(text, sizeof text, f) && !strcmp(text, "chief"));
    fclose(f);
    manta_checkpoint_close(last);
    manta_result_free(r);
}

/* ---- what it costs ---- */

static manta_status quick_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    manta_metrics m = {0};
    double begin, least = 1e9;
    manta_status st;

    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "metric-%d", i);
        one_metric(&m, name, i);
    }
    for (int i = 0; i < (int)c->epochs; i++) {
        begin = now_us();
        if ((st = manta_report(w, &m))) return st;
        if (now_us() - begin < least) least = now_us() - begin;
    }
    m.n = 0;
    one_metric(&m, "report_us", least);
    return manta_report(w, &m);
}

static bool note_time(void *user, const manta_report_event *e)
{
    double *first = user;

    (void)e;
    if (*first == 0) *first = now_us();
    return true;
}

static void costs(const char *folder)
{
    settings c = settings_of(folder, "none");
    double begin = now_us(), first = 0;
    manta_result *r;
    manta_trainer_options o = {
        .loop = quick_loop,
        .config = &c,
        .config_size = sizeof c,
        .scaling = {.num_workers = 2},
        .run = {.name = "quick", .storage = folder, .report = note_time, .user = &first}};

    c.epochs = 1000; /* more than the ring holds: none is lost */
    CHECK(!manta_trainer_fit(&o, &r));
    printf("fit to first report %.1f ms; a report of ten metrics %.2f us\n", (first - begin) / 1e3,
           manta_metrics_get(&r->metrics, "report_us"));
    CHECK(r->series[0].n == 1000);
    manta_result_free(r);
}

/* ---- ended on request ---- */

static manta_status endless_loop(manta_worker *w)
{
    manta_metrics m = {0};
    manta_status st;

    one_metric(&m, "n", 0);
    for (; !manta_worker_should_stop(w); m.value[0]++) {
        float x[4] = {1, 2, 3, (float)m.value[0]};
        manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){4}, x)};
        if ((st = manta_report_arrays(w, &m, 1, &c, (int64_t)m.value[0] + 1, 0))) return st;
    }
    return MANTA_OK;
}

static bool enough(void *user, const manta_report_event *e)
{
    (void)user;
    return !e->checkpoint || e->index < 5; /* rank 0, with checkpoints on the disk */
}

static void stops(const char *folder)
{
    manta_result *r;
    manta_trainer_options o = {
        .loop = endless_loop,
        .scaling = {.num_workers = 2},
        .run = {.name = "endless", .storage = folder, .report = enough, .checkpoints = {.keep = 1}}};
    manta_run_info info;

    CHECK(manta_trainer_fit(&o, &r) == MANTA_ECANCELLED);
    CHECK(r && r->checkpoint && r->n_checkpoints == 1);
    CHECK(!manta_run_read(r->path, &info) && !strcmp(info.status, "interrupted"));
    manta_result_free(r);
    o.scaling.use_gpu = true;
    o.run.name = "gpu";
    CHECK(manta_trainer_fit(&o, &r) == MANTA_EUNSUPPORTED && !r);
}

/* ---- manta_fit() in the loop ---- */

enum { FIT_STOPS = 1, FIT_UNKNOWN }; /* modes */

typedef struct watcher {
    manta_worker *w;
    const settings *c;
} watcher;

/* Rank 1 alone wants to end, in the middle of an epoch in which it has no data left. */
static manta_status watcher_batch(void *self, manta_fit_context *f)
{
    const watcher *o = self;

    if (o->c->mode == FIT_STOPS && manta_worker_rank(o->w) == 1 && manta_fit_context_epoch(f) == 1 &&
        manta_fit_context_batch(f) == 1)
        manta_fit_context_stop(f, "enough");
    return MANTA_OK;
}

static manta_status watcher_epoch(void *self, manta_fit_context *f)
{
    const watcher *o = self;

    return fail_when_told(o->w, o->c, manta_fit_context_epoch(f));
}

static const manta_callback_ops watcher_ops = {
    .name = "watcher", .epoch_begin = watcher_epoch, .train_batch_end = watcher_batch};

/* All ranks must have the same weights and the same number of steps behind them. */
static manta_status check_alike(manta_worker *w, manta_session *s, int64_t steps)
{
    int64_t n = manta_session_params(s);
    float *flat = calloc((size_t)n, sizeof *flat);
    double x[2] = {0, (double)manta_session_iterations(s)}, own;

    if (!flat) return manta_fail(MANTA_ENOMEM, "weights");
    manta_session_get_flat(s, flat);
    for (int64_t i = 0; i < n; i++) x[0] += (double)flat[i] * (double)(i + 1);
    free(flat);
    own = x[0];
    if ((manta_session_iterations(s)) != steps)
        return manta_fail(MANTA_EINVAL, "%.0f steps, expected %lld", x[1], (long long)steps);
    manta_status st = manta_worker_sum(w, x, 2);
    if (!st && (x[0] != 2 * own || x[1] != (double)(2 * steps)))
        return manta_fail(MANTA_EINVAL, "the ranks differ: %.17g and %.17g", own, x[0] - own);
    return st;
}

/* Nobody can say how many samples this has. */
static manta_status no_sample(void *state, manta_column *out, int n, bool *end)
{
    (void)state;
    (void)out;
    (void)n;
    *end = true;
    return MANTA_OK;
}

static const manta_column_spec line_columns[2] = {
    {.name = "x", .dtype = MANTA_DTYPE_F32, .ndim = 1, .shape = {FEATURES}},
    {.name = "y", .dtype = MANTA_DTYPE_F32, .ndim = 1, .shape = {1}}};

/* Rank 0 has 20 samples, rank 1 has 8: three steps of an epoch, one of them together. */
static manta_status fit_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    watcher self = {w, c};
    manta_callback *list[2] = {manta_callback_new(&watcher_ops, &self), manta_report_callback(w, 1)};
    manta_model *m = line_model();
    manta_loss mse = {.name = "mean_squared_error"};
    manta_fit_options fo = {.epochs = c->epochs,
                            .initial_epoch = manta_worker_epoch(w),
                            .batch = 8,
                            .no_shuffle = c->mode == FIT_UNKNOWN,
                            .n_callbacks = 2,
                            .callbacks = list};
    manta_optimizer adam;
    manta_session *s;
    manta_dataset *d;
    manta_status st;

    if ((st = manta_optimizer_named("adam", &adam))) return st;
    manta_compile compile = {.optimizer = &adam, .n_losses = 1, .losses = &mse};
    manta_session_options so = {.threads = 1, .seed = 7, .kernels = "reference", .device = "fake"};
    if (manta_prepare_model(w, m, &compile, &so, &s) != MANTA_EUNSUPPORTED)
        return manta_fail(MANTA_EINVAL, "ranks were given a device, expected a refusal");
    so.device = "auto"; /* is the processor here */
    if ((st = manta_prepare_model(w, m, &compile, &so, &s))) return st;
    if ((st = manta_worker_dataset(w, "train", &d))) return st;
    d = manta_dataset_take(d, manta_worker_rank(w) ? 8 : 20);
    if (c->mode == FIT_UNKNOWN) {
        manta_dataset_unref(d);
        d = manta_dataset_generator(&(manta_generator){.next = no_sample}, NULL, MANTA_UNKNOWN_COUNT, 2,
                                    line_columns);
    }
    if (!(st = manta_fit(s, d, &fo, NULL)))
        st = check_alike(w, s, c->mode == FIT_STOPS ? 3 + 2 : c->epochs * 3);
    if (!st && !manta_worker_rank(w)) st = manta_session_save(s, c->out);
    manta_dataset_unref(d);
    manta_session_close(s);
    manta_model_free(m);
    manta_callback_free(list[0]);
    manta_callback_free(list[1]);
    return st;
}

/* fit() in the loops trains all ranks together, with uneven data, a rank that is
 * killed, and one that wants to end. */
static void fits(const char *folder)
{
    settings c = settings_of(folder, "fit.npz");
    char first[256];
    manta_result *r = run(folder, "fit", &c, fit_loop, 2, 0, MANTA_OK);

    CHECK(r->failures == 0 && r->n_series > 0 && r->series[0].n == 4);
    CHECK(r->series[0].points[3].value < r->series[0].points[0].value);
    CHECK(manta_metrics_get(&r->metrics, "loss") == r->series[0].points[3].value);
    manta_result_free(r);
    snprintf(first, sizeof first, "%s", c.out);
    c = settings_of(folder, "fit-again.npz");
    c.fail_rank = 1;
    c.fail_epoch = 2;
    c.how = FAIL_KILLED;
    r = run(folder, "fit-again", &c, fit_loop, 2, 0, MANTA_OK);
    CHECK(r->failures == 1);
    CHECK(same_bytes(first, c.out));
    manta_result_free(r);
    c = settings_of(folder, "fit-stops.npz");
    c.mode = FIT_STOPS;
    r = run(folder, "fit-stops", &c, fit_loop, 2, 0, MANTA_OK);
    CHECK(r->series[0].n == 2);
    manta_result_free(r);
    c.mode = FIT_UNKNOWN;
    r = run(folder, "fit-unknown", &c, fit_loop, 2, MANTA_NONE, MANTA_EINVAL);
    CHECK(strstr(r->error, "steps_per_epoch"));
    manta_result_free(r);
}

int main(int argc, char **argv)
{
    static const scenario all[] = {
        {"trains", trains}, {"says-why", says_why}, {"goes-on", goes_on}, {"merges", merges},
        {"costs", costs},   {"stops", stops},       {"fits", fits},       {"killed-driver", killed_driver},
        {"victim", victim}};

    return run_scenario(argc, argv, all, sizeof all / sizeof *all);
}
