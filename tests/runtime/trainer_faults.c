/* trainer_faults.c - what happens to loops of a trainer: ends that come early,
 * numbers that are none, callbacks that fail and what they remember, and storage
 * that goes away. */
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer_fixture.h"

/* ---- what goes wrong ---- */

/* Rank 1 goes home after the first of three epochs; the others train on. */
static manta_status early_loop(manta_worker *w)
{
    manta_model *m = line_model();
    manta_session *s;
    manta_loader *l;
    manta_metrics metrics;
    manta_status st;

    if ((st = open_session(w, m, "sgd", &s))) return st;
    if ((st = manta_prepare_loader(w, "train", &(manta_loader_options){.batch_size = 7}, &l, NULL)))
        return st;
    for (int64_t e = 0; e < 3; e++) {
        if (manta_worker_rank(w) == 1 && e == 1) break;
        if ((st = manta_worker_train_epoch(w, s, l, e, &metrics))) return st;
        one_metric(&metrics, "iterations", (double)manta_session_iterations(s));
        if ((st = manta_report(w, &metrics))) return st;
    }
    manta_loader_close(l);
    manta_session_close(s);
    manta_model_free(m);
    return MANTA_OK;
}

static void early(const char *folder)
{
    manta_named_dataset d = {.name = "train", .dataset = samples()};
    manta_trainer_options o = {.loop = early_loop,
                               .scaling = {.num_workers = 3},
                               .run = {.name = "early", .storage = folder},
                               .n_datasets = 1,
                               .datasets = &d};
    manta_result *r = fit(&o, MANTA_OK);

    CHECK(r->failures == 0 && series(r, "loss")->n == 3);
    CHECK(manta_metrics_get(&r->metrics, "iterations") == 9); /* 20 samples by 7: 3 steps an epoch */
    CHECK(lines_of(r->path, 1) == 1 && lines_of(r->path, 2) == 3);
    manta_result_free(r);
    manta_dataset_unref(d.dataset);
}

/* Metrics that are no numbers are kept as such, and are never the best. */
static manta_status nan_loop(manta_worker *w)
{
    static const double losses[5] = {3, (double)NAN, 1, (double)NAN, (double)NAN};
    float x = 1;
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &x)};
    manta_status st = MANTA_OK;

    for (int i = 0; i < 5 && !st; i++) {
        manta_metrics m = {0};
        one_metric(&m, "loss", losses[i]);
        st = manta_report_arrays(w, &m, 1, &c, i + 1, 0);
    }
    return st;
}

static void no_number(const char *folder)
{
    manta_trainer_options o = {
        .loop = nan_loop,
        .run = {.name = "nan", .storage = folder, .checkpoints = {.keep = 2, .score = "loss"}}};
    manta_result *r = fit(&o, MANTA_OK);
    const manta_run_series *s = series(r, "loss");

    CHECK(s->n == 5 && s->points[0].value == 3 && isnan(s->points[1].value) && s->points[2].value == 1);
    CHECK(isnan(manta_metrics_get(&r->metrics, "loss")));
    CHECK(r->n_checkpoints >= 2 && strstr(r->checkpoint, "checkpoint-000005"));
    CHECK(strstr(manta_result_best(r, "loss", NULL), "checkpoint-000003"));
    CHECK(!manta_result_best(r, "accuracy", NULL));
    manta_result_free(r);
}

/* A callback that fails in one rank: who, which hook, and why. */
static manta_status fall_down(void *self, manta_fit_context *f)
{
    if (manta_worker_rank(self) != 1 || manta_fit_context_epoch(f) < 1) return MANTA_OK;
    return manta_fail(MANTA_EIO, "the ladder is short");
}

static const manta_callback_ops ladder_ops = {.name = "ladder", .epoch_end = fall_down};

static manta_status callback_loop(manta_worker *w)
{
    manta_callback *list[2] = {manta_callback_new(&ladder_ops, w), manta_report_callback(w, 1)};
    manta_model *m = line_model();
    manta_session *s;
    manta_dataset *d;
    manta_status st;

    if ((st = open_session(w, m, "sgd", &s))) return st;
    if ((st = manta_worker_dataset(w, "train", &d))) return st;
    st = manta_fit(
        s, d,
        &(manta_fit_options){
            .epochs = 3, .initial_epoch = manta_worker_epoch(w), .n_callbacks = 2, .callbacks = list},
        NULL);
    manta_dataset_unref(d);
    manta_session_close(s);
    manta_model_free(m);
    manta_callback_free(list[0]);
    manta_callback_free(list[1]);
    return st;
}

static bool once_more(void *user, const manta_attempt_event *e)
{
    CHECK(e->rank == 1 && e->workers == 2 && strstr(e->error, "the ladder is short"));
    return ++*(int *)user < 2; /* although max_failures would allow three */
}

static void callback_fails(const char *folder)
{
    int attempts = 0;
    manta_named_dataset d = {.name = "train", .dataset = samples()};
    manta_trainer_options o = {
        .loop = callback_loop,
        .scaling = {.num_workers = 2},
        .run = {.name = "callback", .storage = folder, .failed = once_more, .user = &attempts},
        .n_datasets = 1,
        .datasets = &d};
    manta_result *r = fit(&o, MANTA_EIO);

    CHECK(attempts == 2 && r->failures == 1 && r->error_rank == 1);
    CHECK(strstr(r->error, "rank 1 of 2") && strstr(r->error, "callback ladder") &&
          strstr(r->error, "epoch_end") && strstr(r->error, "the ladder is short"));
    CHECK(r->checkpoint); /* of the epochs before */
    manta_result_free(r);
    manta_dataset_unref(d.dataset);
}

/* ---- what callbacks remember ---- */

typedef struct counting {
    manta_worker *w;
    int64_t epochs;
} counting;

static manta_status count_epoch(void *self, manta_fit_context *f)
{
    (void)f;
    ((counting *)self)->epochs++;
    return MANTA_OK;
}

static manta_status fall_over(void *self, manta_fit_context *f)
{
    const manta_worker *w = ((counting *)self)->w;

    if (manta_fit_context_epoch(f) != 2 || manta_worker_attempt(w) || manta_worker_rank(w) != 1)
        return MANTA_OK;
    raise(SIGKILL);
    return MANTA_OK;
}

static void count_save(void *self, void *out)
{
    manta_blob_put(out, &((counting *)self)->epochs, sizeof(int64_t));
}

static manta_status count_load(void *self, const void *data, size_t n)
{
    if (n != sizeof(int64_t)) return manta_fail(MANTA_ECORRUPT, "a count of %zu bytes", n);
    memcpy(&((counting *)self)->epochs, data, n);
    return MANTA_OK;
}

static const manta_callback_ops counting_ops = {.name = "counting",
                                                .epoch_begin = fall_over,
                                                .epoch_end = count_epoch,
                                                .save = count_save,
                                                .load = count_load};

/* The reporter comes first, and yet the checkpoint has what the others make of it. */
static manta_status remember_loop(manta_worker *w)
{
    const char *base = manta_worker_config(w, NULL);
    counting c = {.w = w};
    char path[300];
    manta_callback *list[3];
    manta_model *m = line_model();
    manta_metrics report = {0};
    manta_session *s;
    manta_dataset *d;
    manta_status st;

    snprintf(path, sizeof path, "%s/rank-%d.csv", base, manta_worker_rank(w));
    list[0] = manta_report_callback(w, 1);
    list[1] = manta_callback_new(&counting_ops, &c);
    list[2] = manta_csv_logger(path, NULL);
    if ((st = open_session(w, m, "sgd", &s))) return st;
    if ((st = manta_worker_dataset(w, "train", &d))) return st;
    st = manta_fit(
        s, d,
        &(manta_fit_options){
            .epochs = 4, .initial_epoch = manta_worker_epoch(w), .n_callbacks = 3, .callbacks = list},
        NULL);
    manta_dataset_unref(d);
    manta_session_close(s);
    manta_model_free(m);
    for (int i = 0; i < 3; i++) manta_callback_free(list[i]);
    if (st) return st;
    one_metric(&report, "counted", (double)c.epochs);
    return manta_report(w, &report);
}

static void remembers(const char *folder)
{
    manta_named_dataset d = {.name = "train", .dataset = samples()};
    manta_trainer_options o = {.loop = remember_loop,
                               .config = folder,
                               .config_size = strlen(folder) + 1,
                               .scaling = {.num_workers = 2},
                               .run = {.name = "remembers", .storage = folder},
                               .n_datasets = 1,
                               .datasets = &d};
    manta_result *r = fit(&o, MANTA_OK);

    CHECK(r->failures == 1 && manta_metrics_get(&r->metrics, "counted") == 4);
    for (int rank = 0; rank < 2; rank++) {
        char path[300], line[200];
        int n = 0;
        FILE *f;
        snprintf(path, sizeof path, "%s/rank-%d.csv", folder, rank);
        CHECK((f = fopen(path, "r")));
        while (fgets(line, sizeof line, f)) n++;
        fclose(f);
        CHECK(n == 1 + 4); /* a head, and every epoch once */
    }
    manta_result_free(r);
    manta_dataset_unref(d.dataset);
}

/* ---- storage ---- */

static manta_status arrays_loop(manta_worker *w)
{
    manta_status st = MANTA_OK;

    for (int64_t e = manta_worker_epoch(w); e < 30 && !st; e++) {
        manta_metrics m = {0};
        float x = (float)e;
        manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &x)};
        one_metric(&m, "epoch", (double)e);
        st = manta_report_arrays(w, &m, 1, &c, e + 1, 0);
    }
    return st;
}

typedef struct vandal {
    char run[200], aside[240];
    int reports;
} vandal;

static bool take_away(void *user, const manta_report_event *e)
{
    vandal *v = user;

    if (e->rank == 0 && e->index == 4) CHECK(!rename(v->run, v->aside));
    v->reports++;
    return true;
}

/* The folder of a running run is gone: it ends with a sentence that names it, and
 * no other is made in its place. */
static void vanished(const char *folder)
{
    vandal v = {0};
    manta_trainer_options o = {
        .loop = arrays_loop, .run = {.name = "vanished", .storage = folder, .report = take_away, .user = &v}};
    manta_result *r = NULL;

    snprintf(v.run, sizeof v.run, "%s/vanished", folder);
    snprintf(v.aside, sizeof v.aside, "%s/aside", folder);
    CHECK(manta_trainer_fit(&o, &r) == MANTA_ENOENT);
    CHECK(strstr(manta_error_text(), v.run));
    CHECK(!r && access(v.run, F_OK));
    CHECK(!manta_result_read(v.aside, &r)); /* what was there is whole */
    CHECK(r->n_checkpoints == 5 && series(r, "epoch")->n >= 5);
    manta_result_free(r);
    /* What was moved is taken up where it lies now. */
    o.run = (manta_run_config){.name = "aside", .storage = folder, .resume = true};
    r = fit(&o, MANTA_OK);
    CHECK(series(r, "epoch")->n == 30 && r->n_checkpoints == 30);
    manta_result_free(r);
}

static bool fill_up(void *user, const manta_report_event *e)
{
    vandal *v = user;

    if (e->rank == 0 && e->index == 9) {
        char path[240];
        struct stat s;
        snprintf(path, sizeof path, "%s/metrics.jsonl", v->run);
        CHECK(!stat(path, &s));
        CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){(rlim_t)s.st_size, RLIM_INFINITY}));
    }
    v->reports++;
    return true;
}

/* A limit on the size of files stands for the full disk: no line of metrics can be
 * written any more, checkpoints can. The loop runs to its end, the run has failed. */
static void full(const char *folder)
{
    vandal v = {0};
    manta_trainer_options o = {.loop = arrays_loop,
                               .run = {.name = "full", .storage = folder, .report = fill_up, .user = &v}};
    manta_result *r = NULL;
    manta_status st;

    snprintf(v.run, sizeof v.run, "%s/full", folder);
    signal(SIGXFSZ, SIG_IGN);
    st = manta_trainer_fit(&o, &r);
    CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}));
    CHECK(st == MANTA_EIO || st == MANTA_ENOSPC);
    CHECK(r && r->error && strstr(r->error, v.run) && strstr(r->error, "File too large"));
    CHECK(v.reports == 30 && r->failures == 0 && manta_metrics_get(&r->metrics, "epoch") == 29);
    CHECK(strstr(r->checkpoint, "checkpoint-000030") && series(r, "epoch")->n == 10);
    manta_result_free(r);
}

/* Storage that is none. */
static void no_storage(const char *folder)
{
    char path[300];
    manta_trainer_options o = {.loop = arrays_loop, .run = {.name = "nowhere", .storage = path}};
    manta_result *r = NULL;

    write_text(folder, "file", "no folder");
    snprintf(path, sizeof path, "%s/file", folder);
    CHECK(manta_trainer_fit(&o, &r) && !r && strstr(manta_error_text(), path));
    snprintf(path, sizeof path, "/proc/nowhere");
    CHECK(manta_trainer_fit(&o, &r) && !r && strstr(manta_error_text(), path));
}

/* ---- damage ---- */

static void flip_bit(const char *checkpoint, const char *name)
{
    char path[400];
    FILE *f;
    int byte;

    snprintf(path, sizeof path, "%s/%s", checkpoint, name);
    CHECK((f = fopen(path, "r+b")) && !fseek(f, -1, SEEK_END));
    CHECK((byte = fgetc(f)) != EOF && !fseek(f, -1, SEEK_CUR) && fputc(byte ^ 4, f) != EOF && !fclose(f));
}

/* What a fit says on standard error, in a file of the folder. */
static manta_result *fit_told(manta_trainer_options *o, manta_status expected, const char *folder,
                              const char *what)
{
    char path[300], line[2000];
    bool said = false;
    int before = dup(2);
    manta_result *r;
    FILE *f;

    snprintf(path, sizeof path, "%s/told.txt", folder);
    CHECK(before >= 0 && (f = fopen(path, "w+")) && dup2(fileno(f), 2) == 2);
    r = fit(o, expected);
    CHECK(dup2(before, 2) == 2 && !close(before));
    rewind(f);
    while (fgets(line, sizeof line, f)) said |= strstr(line, what) != NULL;
    fclose(f);
    CHECK(said);
    return r;
}

/* The last checkpoint is damaged: it is named, the one before is used, and the run
 * ends as it would have. When none is whole it does not begin anew by itself. */
static void damaged(const char *folder)
{
    manta_trainer_options o = {.loop = arrays_loop,
                               .run = {.name = "damaged", .storage = folder, .checkpoints = {.keep = 2}}};
    manta_result *r = fit(&o, MANTA_OK);

    CHECK(strstr(r->checkpoint, "checkpoint-000030") && r->n_checkpoints == 2);
    flip_bit(r->checkpoint, "state.safetensors");
    manta_result_free(r);
    o.run.resume = true;
    r = fit_told(&o, MANTA_OK, folder, "checkpoint-000030/state.safetensors is damaged");
    CHECK(strstr(r->checkpoint, "checkpoint-000031") && series(r, "epoch")->n == 30);
    CHECK(manta_metrics_get(&r->metrics, "epoch") == 29);
    CHECK(r->n_checkpoints == 2); /* the damaged one is gone */
    flip_bit(r->checkpoints[0], "manifest.json");
    flip_bit(r->checkpoints[1], "state.safetensors");
    manta_result_free(r);
    r = NULL;
    CHECK(manta_trainer_fit(&o, &r) == MANTA_ECORRUPT);
    CHECK(strstr(manta_error_text(), "no checkpoint is whole"));
    manta_result_free(r);
}

/* ---- two at once ---- */

static bool call_second(void *user, const manta_report_event *e)
{
    char *argv[] = {(char[]){"trainer_faults"}, (char[]){"second"}, NULL};
    pid_t pid;
    int status;

    if (e->rank || e->index != 2) return true;
    CHECK(!setenv("SECOND_FOLDER", user, 1));
    CHECK(!posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ));
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

/* Another process wants the same run, to begin or to go on with: it is told who has
 * it, and leaves it as it is. */
static void second(const char *folder)
{
    const char *there = getenv("SECOND_FOLDER");
    char holder[40];
    manta_result *r = NULL;

    CHECK(there);
    snprintf(holder, sizeof holder, "as process %d", (int)getppid());
    for (int resume = 0; resume < 2; resume++) {
        manta_trainer_options o = {.loop = arrays_loop,
                                   .run = {.name = "twice", .storage = there, .resume = resume}};
        CHECK(manta_trainer_fit(&o, &r) == MANTA_EBUSY && !r);
        CHECK(strstr(manta_error_text(), "run 'twice'") && strstr(manta_error_text(), holder));
    }
    (void)folder;
}

static void twice(const char *folder)
{
    manta_trainer_options o = {
        .loop = arrays_loop,
        .run = {
            .name = "twice", .storage = folder, .report = call_second, .user = (char *)(uintptr_t)folder}};
    manta_result *r = fit(&o, MANTA_OK);

    CHECK(r->failures == 0 && r->n_checkpoints == 30 && series(r, "epoch")->n == 30);
    CHECK(lines_of(r->path, 0) == 30);
    manta_result_free(r);
}

int main(int argc, char **argv)
{
    static const scenario all[] = {
        {"early", early},           {"no-number", no_number}, {"callback-fails", callback_fails},
        {"remembers", remembers},   {"vanished", vanished},   {"full", full},
        {"no-storage", no_storage}, {"damaged", damaged},     {"twice", twice},
        {"second", second}};

    return run_scenario(argc, argv, all, sizeof all / sizeof *all);
}
