/* trainer.c - bench_trainer [--reports N] [--workers W] [--start | --checkpoints |
 * --steps BATCH] [FOLDER]: what a trainer costs its loops; with --start only how long
 * they take to run, as JSON, with --checkpoints only the last of these:
 *
 * - fit to loop: from the call of manta_trainer_fit() to the first line of the
 *   loop in the last of the workers, by one clock of the machine's;
 * - a report of ten metrics as the loop sees it, in bursts that the ring holds and
 *   one after the other without end, when the driver's pace is what counts;
 * - the driver's own memory after a thousandth of the reports and after all;
 * - a checkpoint of resnet18, as the loop sees it: its session, arrays of the same
 *   size, a folder with a file of that size. What is written behind its back costs it
 *   the copy, or a rename.
 *
 * With --steps: what a step of so many samples for each of the workers takes by a
 * trainer's ranks and by a worker group (manta_bench_train()), in turns, one thread each;
 * how much slower steps are with a checkpoint every 50, and what the slowest of them took.
 *
 * What is timed is checked: every report is in the record, once. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <manta/layer.h>
#include <manta/task.h>
#include <manta/tool_bench.h>
#include <manta/trainer.h>

enum { METRICS = 10, BURST = 100, BURSTS = 200, STARTS = 11 };

typedef struct settings {
    int64_t reports; /* of each worker */
} settings;

static void end(const char *what)
{
    fprintf(stderr, "bench_trainer: %s: %s\n", what, manta_error_text());
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void add(manta_metrics *m, const char *name, double value)
{
    snprintf(m->name[m->n], sizeof m->name[0], "%s", name);
    m->value[m->n++] = value;
}

static manta_metrics ten(void)
{
    manta_metrics m = {0};

    for (int i = 0; i < METRICS; i++) {
        char name[16];
        snprintf(name, sizeof name, "metric-%d", i);
        add(&m, name, i / 7.0);
    }
    return m;
}

/* ---- the start ---- */

static manta_status start_loop(manta_worker *w)
{
    manta_metrics m = {0};

    add(&m, "began_us", now_us());
    return manta_report(w, &m);
}

static bool latest(void *user, const manta_report_event *e)
{
    double *last = user, value = e->metrics->value[0];

    if (value > *last) *last = value;
    return true;
}

static double start_ms(const char *storage, int workers)
{
    double began[STARTS];

    for (int i = 0; i < STARTS; i++) {
        double last = 0, begin = now_us();
        manta_result *r = NULL;
        manta_trainer_options o = {.loop = start_loop,
                                   .scaling = {.num_workers = workers},
                                   .run = {.storage = storage, .report = latest, .user = &last}};
        if (manta_trainer_fit(&o, &r) || last < begin) end("starting");
        began[i] = (last - begin) / 1e3;
        manta_result_free(r);
    }
    qsort(began, STARTS, sizeof *began, compare);
    return began[STARTS / 2];
}

/* ---- reports ---- */

/* The median burst, then the mean without pause; both as this loop sees them. */
static manta_status report_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    manta_metrics m = ten(), found = {0};
    double burst[BURSTS], begin, all;
    int64_t left = c->reports - BURST * BURSTS;
    manta_status st;

    for (int i = 0; i < BURSTS; i++) {
        begin = now_us();
        for (int k = 0; k < BURST; k++) {
            if ((st = manta_report(w, &m))) return st;
        }
        burst[i] = (now_us() - begin) / BURST;
        while (now_us() - begin < 20000) continue; /* work of the loop's own: the driver empties the ring */
    }
    begin = now_us();
    for (int64_t i = 0; i < left; i++) {
        if ((st = manta_report(w, &m))) return st;
    }
    all = (now_us() - begin) / (double)left;
    qsort(burst, BURSTS, sizeof *burst, compare);
    add(&found, "burst_us", burst[BURSTS / 2]);
    add(&found, "endless_us", all);
    return manta_report(w, &found);
}

typedef struct memory {
    int64_t reports, early_at, late_at;
    long early, late; /* KiB of this process that nobody shares */
} memory;

static long own_kib(void)
{
    long size = 0, resident = 0, shared = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%ld %ld %ld", &size, &resident, &shared) != 3) end("reading /proc/self/statm");
    fclose(f);
    return (resident - shared) * sysconf(_SC_PAGESIZE) / 1024;
}

static bool look(void *user, const manta_report_event *e)
{
    memory *m = user;

    (void)e;
    m->reports++;
    if (m->reports == m->early_at) m->early = own_kib();
    if (m->reports == m->late_at) m->late = own_kib();
    return true;
}

static void reports(const char *storage, int workers, int64_t n)
{
    settings c = {.reports = n / workers};
    memory m = {.late_at = c.reports * workers};
    manta_result *r = NULL;
    manta_trainer_options o = {.loop = report_loop,
                               .config = &c,
                               .config_size = sizeof c,
                               .scaling = {.num_workers = workers},
                               .run = {.storage = storage, .report = look, .user = &m}};

    m.early_at = m.late_at / 1000 > 2000 ? m.late_at / 1000 : 2000;
    if (manta_trainer_fit(&o, &r)) end("reporting");
    if (m.reports != m.late_at + workers) end("some reports are missing");
    printf("report of ten metrics, in bursts of %d   %8.2f us\n", BURST,
           manta_metrics_get(&r->metrics, "burst_us"));
    printf("report of ten metrics, without pause     %8.2f us\n",
           manta_metrics_get(&r->metrics, "endless_us"));
    printf("driver after %lld and %lld reports  %ld and %ld KiB\n", (long long)m.early_at,
           (long long)m.late_at, m.early, m.late);
    manta_result_free(r);
}

/* ---- checkpoints ---- */

enum { CHECKPOINTS = 5, BLOCK = 50, BLOCKS = 7 };

typedef enum kind { SESSION, ARRAYS, FOLDER, KINDS } kind;

static const char *const kinds[KINDS] = {"session", "arrays", "folder"};

typedef struct checkpointing {
    kind kind;
    int64_t batch; /* samples of a step; 0: no steps, the calls alone are timed */
} checkpointing;

typedef struct resnet {
    manta_model *m;
    manta_session *s;
    float *state; /* as much as weights and Adam's two averages are */
    int64_t n; /* of each */
} resnet;

static manta_status resnet_open(manta_worker *w, resnet *r)
{
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_optimizer adam;
    manta_status st;

    if ((st = manta_optimizer_named("adam", &adam)) || (st = manta_zoo("resnet18", &r->m))) return st;
    st = manta_prepare_model(w, r->m, &(manta_compile){.optimizer = &adam, .n_losses = 1, .losses = &loss},
                             NULL, &r->s);
    if (st) return st;
    r->n = manta_session_params(r->s);
    if (!(r->state = calloc((size_t)r->n * 3, sizeof *r->state)))
        return manta_fail(MANTA_ENOMEM, "the arrays of a checkpoint");
    manta_session_get_flat(r->s, r->state);
    return MANTA_OK;
}

static void resnet_close(resnet *r)
{
    manta_session_close(r->s);
    manta_model_free(r->m);
    free(r->state);
}

/* A folder with one file of the same size, which is the loop's own work. */
static manta_status fill_folder(const resnet *r, const char *folder)
{
    char path[1200];
    size_t n = (size_t)r->n * 3;
    FILE *f;
    bool whole;

    snprintf(path, sizeof path, "%s/state.bin", folder);
    if (!(f = fopen(path, "wb"))) return manta_fail(MANTA_EIO, "%s", path);
    whole = fwrite(r->state, sizeof *r->state, n, f) == n;
    return fclose(f) || !whole ? manta_fail(MANTA_EIO, "%s", path) : MANTA_OK;
}

/* *took: milliseconds of the call that reports. */
static manta_status checkpoint(manta_worker *w, const resnet *r, kind k, int64_t epoch, double *took)
{
    manta_column c[3] = {{"weights", manta_array_of(MANTA_DTYPE_F32, 1, &r->n, r->state)},
                         {"mean", manta_array_of(MANTA_DTYPE_F32, 1, &r->n, r->state + r->n)},
                         {"variance", manta_array_of(MANTA_DTYPE_F32, 1, &r->n, r->state + 2 * r->n)}};
    manta_checkpoint_info info = {.epoch = epoch};
    char *folder = NULL;
    manta_status st;
    double begin;

    if (k == FOLDER && ((st = manta_worker_temp_folder(w, &folder)) || (st = fill_folder(r, folder))))
        return st;
    begin = now_us();
    st = k == SESSION  ? manta_report_session(w, NULL, r->s, epoch, 0)
         : k == ARRAYS ? manta_report_arrays(w, NULL, 3, c, epoch, 0)
                       : manta_report_checkpoint(w, NULL, folder, &info);
    *took = (now_us() - begin) / 1e3;
    free(folder);
    return st;
}

static manta_status calls_loop(manta_worker *w)
{
    const checkpointing *c = manta_worker_config(w, NULL);
    manta_metrics found = {0};
    double took[CHECKPOINTS];
    resnet r = {0};
    manta_status st = resnet_open(w, &r);

    for (int i = 0; i < CHECKPOINTS && !st; i++) {
        double begin = now_us();
        st = checkpoint(w, &r, c->kind, i + 1, &took[i]);
        while (now_us() - begin < 1500000) usleep(1000); /* steps of a training, say */
    }
    resnet_close(&r);
    if (st) return st;
    qsort(took + 1, CHECKPOINTS - 1, sizeof *took, compare); /* the first touches its memory first */
    add(&found, "first_ms", took[0]);
    add(&found, "median_ms", took[1 + (CHECKPOINTS - 1) / 2]);
    return manta_report(w, &found);
}

/* Blocks of steps, every second one with a checkpoint at its start; what was begun
 * in a block is written in it, or waits in the next one with a checkpoint. */
static manta_status steps_loop(manta_worker *w)
{
    const checkpointing *c = manta_worker_config(w, NULL);
    manta_metrics found = {0};
    double block[2][BLOCKS], slowest[2] = {0}, took;
    resnet r = {0};
    manta_status st = resnet_open(w, &r);
    float *x = calloc((size_t)c->batch * 28 * 28, sizeof *x);
    int64_t *y = calloc((size_t)c->batch, sizeof *y);
    manta_array in = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){c->batch, 28, 28, 1}, x);
    manta_array target = manta_array_of(MANTA_DTYPE_I64, 1, &c->batch, y);
    manta_feed f = {.count = c->batch, .n_inputs = 1, .inputs = {in}, .n_targets = 1, .targets = {target}};

    if (!st && (!x || !y)) st = manta_fail(MANTA_ENOMEM, "a batch");
    for (int i = 0; i < 10 && !st; i++) st = manta_worker_train_step(w, r.s, &f);
    for (int i = 0; i < 2 * BLOCKS && !st; i++) {
        double begin = now_us();
        for (int k = 0; k < BLOCK && !st; k++) {
            double step = now_us();
            if (!k && i % 2) st = checkpoint(w, &r, c->kind, i + 1, &took);
            if (!st) st = manta_worker_train_step(w, r.s, &f);
            step = (now_us() - step) / 1e3;
            if (step > slowest[i % 2]) slowest[i % 2] = step;
        }
        block[i % 2][i / 2] = (now_us() - begin) / 1e3 / BLOCK;
    }
    free(x);
    free(y);
    resnet_close(&r);
    if (st) return st;
    qsort(block[0], BLOCKS, sizeof block[0][0], compare);
    qsort(block[1], BLOCKS, sizeof block[1][0], compare);
    add(&found, "without_ms", block[0][BLOCKS / 2]);
    add(&found, "with_ms", block[1][BLOCKS / 2]);
    add(&found, "slowest_without_ms", slowest[0]);
    add(&found, "slowest_with_ms", slowest[1]);
    return manta_report(w, &found);
}

static manta_result *run_checkpoints(const char *storage, manta_loop_fn *loop, const checkpointing *c, int n)
{
    manta_result *r = NULL;
    char last[32];
    manta_trainer_options o = {.loop = loop,
                               .config = c,
                               .config_size = sizeof *c,
                               .run = {.storage = storage, .checkpoints = {.keep = 1}}};

    if (manta_trainer_fit(&o, &r)) end("checkpoints");
    snprintf(last, sizeof last, "checkpoint-%06d", n);
    if (!r->checkpoint || !strstr(r->checkpoint, last)) end("a checkpoint is missing");
    return r;
}

static void checkpoints(const char *storage)
{
    for (kind k = SESSION; k < KINDS; k++) {
        checkpointing c = {.kind = k};
        manta_result *r = run_checkpoints(storage, calls_loop, &c, CHECKPOINTS);
        printf("checkpoint of resnet18 (%s), first and median  %8.2f ms, %.2f ms\n", kinds[k],
               manta_metrics_get(&r->metrics, "first_ms"), manta_metrics_get(&r->metrics, "median_ms"));
        manta_result_free(r);
    }
}

/* ---- the pace of steps ---- */

enum { WARM_STEPS = 10, PACED = 60, PACES = 3 };

typedef struct pacing {
    char model[32], optimizer[16];
    int64_t batch;
} pacing;

static manta_status pace_loop(manta_worker *w)
{
    const pacing *c = manta_worker_config(w, NULL);
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_metrics found = {0};
    manta_optimizer o;
    manta_model *m = NULL;
    manta_session *s = NULL;
    double took[PACED];
    float *x = calloc((size_t)c->batch * 28 * 28, sizeof *x);
    int64_t *y = calloc((size_t)c->batch, sizeof *y);
    manta_array in = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){c->batch, 28, 28, 1}, x);
    manta_array target = manta_array_of(MANTA_DTYPE_I64, 1, &c->batch, y);
    manta_feed f = {.count = c->batch, .n_inputs = 1, .inputs = {in}, .n_targets = 1, .targets = {target}};
    manta_status st = !x || !y ? manta_fail(MANTA_ENOMEM, "a batch") : manta_zoo(c->model, &m);

    if (!st) st = manta_optimizer_named(c->optimizer, &o);
    if (!st)
        st = manta_prepare_model(w, m, &(manta_compile){.optimizer = &o, .n_losses = 1, .losses = &loss},
                                 NULL, &s);
    for (int64_t i = 0; !st && i < c->batch * 28 * 28; i++) x[i] = (float)(i * 37 % 101) / 101;
    for (int64_t i = 0; !st && i < c->batch; i++) y[i] = i % 10;
    for (int i = -WARM_STEPS; i < PACED && !st; i++) {
        double begin = now_us();
        st = manta_worker_train_step(w, s, &f);
        if (i >= 0) took[i] = (now_us() - begin) / 1e3;
    }
    manta_session_close(s);
    manta_model_free(m);
    free(x);
    free(y);
    if (st) return st;
    qsort(took, PACED, sizeof *took, compare);
    add(&found, "step_ms", took[PACED / 2]);
    return manta_report(w, &found);
}

static double trainer_pace(const char *storage, const pacing *c, int workers)
{
    manta_trainer_options o = {.loop = pace_loop,
                               .config = c,
                               .config_size = sizeof *c,
                               .scaling = {.num_workers = workers, .threads_per_worker = 1},
                               .run = {.storage = storage}};
    manta_result *r = NULL;
    double ms;

    if (manta_trainer_fit(&o, &r)) end("steps");
    ms = manta_metrics_get(&r->metrics, "step_ms");
    manta_result_free(r);
    return ms;
}

static double group_pace(const pacing *c, int workers)
{
    manta_bench_options o = {
        .threads = 1, .workers = workers, .batch = c->batch, .steps = PACED, .optimizer = c->optimizer};
    manta_bench_result r;

    if (manta_bench_train(c->model, &o, &r)) end("steps of a group");
    return r.ms_per_step;
}

/* By ranks and by workers, in turns: medians of medians. */
static void pace(const char *storage, int64_t batch, int workers)
{
    static const char *const rows[][2] = {{"mnist-cnn", "sgd"}, {"mnist-cnn", "adam"}, {"resnet18", "adam"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pacing c = {.batch = batch};
        double trainer[PACES], group[PACES];
        snprintf(c.model, sizeof c.model, "%s", rows[i][0]);
        snprintf(c.optimizer, sizeof c.optimizer, "%s", rows[i][1]);
        for (int k = 0; k < PACES; k++) {
            trainer[k] = trainer_pace(storage, &c, workers);
            group[k] = group_pace(&c, workers);
        }
        qsort(trainer, PACES, sizeof *trainer, compare);
        qsort(group, PACES, sizeof *group, compare);
        printf("a step of %s, %s, %lld samples for each of %d: trainer %.2f ms, worker group %.2f ms: %+.1f "
               "%%\n",
               c.model, c.optimizer, (long long)batch, workers, trainer[PACES / 2], group[PACES / 2],
               (trainer[PACES / 2] / group[PACES / 2] - 1) * 100);
    }
}

/* What a checkpoint at every BLOCK-th step costs the steps. */
static void slow_down(const char *storage, int64_t batch)
{
    for (kind k = SESSION; k < KINDS; k++) {
        checkpointing c = {.kind = k, .batch = batch};
        manta_result *r = run_checkpoints(storage, steps_loop, &c, BLOCKS);
        double without = manta_metrics_get(&r->metrics, "without_ms");
        double with = manta_metrics_get(&r->metrics, "with_ms");
        printf("a step of resnet18, %lld samples, with a checkpoint (%s) every %d: %.2f ms, without %.2f ms: "
               "%+.2f %%; the slowest %.2f and %.2f ms\n",
               (long long)batch, kinds[k], BLOCK, with, without, (with / without - 1) * 100,
               manta_metrics_get(&r->metrics, "slowest_with_ms"),
               manta_metrics_get(&r->metrics, "slowest_without_ms"));
        manta_result_free(r);
    }
}

int main(int argc, char **argv)
{
    char folder[64], command[96];
    const char *storage = NULL, *made = NULL;
    int64_t n = 1000000;
    int workers = 2;
    bool start_only = false, bad = false, calls_only = false;
    int64_t batch = 0;
    double ms;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--reports") && i + 1 < argc) {
            n = strtoll(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--workers") && i + 1 < argc) {
            workers = (int)strtol(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--start")) {
            start_only = true;
        } else if (!strcmp(argv[i], "--checkpoints")) {
            calls_only = true;
        } else if (!strcmp(argv[i], "--steps") && i + 1 < argc) {
            batch = strtoll(argv[++i], NULL, 10);
            bad |= batch < 1;
        } else {
            bad |= *argv[i] == '-';
            storage = argv[i];
        }
    }
    if (bad || workers < 1 || n / workers <= BURST * BURSTS) {
        fprintf(stderr,
                "usage: bench_trainer [--reports N] [--workers W] [--start | --checkpoints | --steps BATCH] "
                "[FOLDER], more than %d reports each\n",
                BURST * BURSTS);
        return 2;
    }
    if (manta_init(&argc, &argv, NULL)) end("starting a node");
    snprintf(folder, sizeof folder, "/dev/shm/manta-bench-%ld", (long)getpid());
    if (!storage && mkdir(folder, 0700)) {
        perror(folder);
        return 1;
    }
    if (!storage) storage = made = folder;
    ms = start_ms(storage, workers);
    if (batch) {
        pace(storage, batch, workers);
        slow_down(storage, batch);
    } else if (calls_only) {
        checkpoints(storage);
    } else if (start_only) {
        printf("{\"workers\": %d, \"fit_to_loop_s\": %.6f}\n", workers, ms / 1e3);
    } else {
        printf("fit to loop running in %d workers         %8.2f ms\n", workers, ms);
        checkpoints(storage);
        reports(storage, workers, n);
    }
    manta_shutdown();
    snprintf(command, sizeof command, "rm -r %s", folder);
    return made ? system(command) != 0 : 0;
}
