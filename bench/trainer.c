/* trainer.c - bench_trainer [--reports N] [--workers W] [--start] [FOLDER]: what a
 * trainer costs its loops; with --start only how long they take to run, as JSON.
 *
 * - fit to loop: from the call of manta_trainer_fit() to the first line of the
 *   loop in the last of the workers, by one clock of the machine's;
 * - a report of ten metrics as the loop sees it, in bursts that the ring holds and
 *   one after the other without end, when the driver's pace is what counts;
 * - the driver's own memory after a thousandth of the reports and after all;
 * - a checkpoint of resnet18, as the loop sees it: what is written behind its back
 *   costs it the copy.
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

enum { CHECKPOINTS = 5 };

static manta_status checkpoint_loop(manta_worker *w)
{
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_optimizer adam;
    manta_model *m = NULL;
    manta_session *s = NULL;
    manta_metrics found = {0};
    double took[CHECKPOINTS];
    manta_status st;

    if ((st = manta_optimizer_named("adam", &adam)) || (st = manta_zoo("resnet18", &m))) return st;
    st = manta_prepare_model(w, m, &(manta_compile){.optimizer = &adam, .n_losses = 1, .losses = &loss}, NULL,
                             &s);
    for (int i = 0; i < CHECKPOINTS && !st; i++) {
        double begin = now_us();
        st = manta_report_session(w, NULL, s, i + 1, 0);
        took[i] = (now_us() - begin) / 1e3;
        while (now_us() - begin < 1500000) usleep(1000); /* steps of a training, say */
    }
    manta_session_close(s);
    manta_model_free(m);
    if (st) return st;
    qsort(took + 1, CHECKPOINTS - 1, sizeof *took, compare); /* the first touches its memory first */
    add(&found, "first_ms", took[0]);
    add(&found, "median_ms", took[1 + (CHECKPOINTS - 1) / 2]);
    return manta_report(w, &found);
}

static void checkpoints(const char *storage)
{
    manta_result *r = NULL;
    manta_trainer_options o = {.loop = checkpoint_loop,
                               .run = {.storage = storage, .checkpoints = {.keep = 1}}};

    if (manta_trainer_fit(&o, &r)) end("checkpoints");
    if (!strstr(r->checkpoint, "checkpoint-000005")) end("a checkpoint is missing");
    printf("checkpoint of resnet18, first and median  %8.2f ms, %.2f ms\n",
           manta_metrics_get(&r->metrics, "first_ms"), manta_metrics_get(&r->metrics, "median_ms"));
    manta_result_free(r);
}

int main(int argc, char **argv)
{
    char folder[64], command[96];
    const char *storage = NULL;
    int64_t n = 1000000;
    int workers = 2;
    bool start_only = false, bad = false;
    double ms;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--reports") && i + 1 < argc) {
            n = strtoll(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--workers") && i + 1 < argc) {
            workers = (int)strtol(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--start")) {
            start_only = true;
        } else {
            bad |= *argv[i] == '-';
            storage = argv[i];
        }
    }
    if (bad || workers < 1 || n / workers <= BURST * BURSTS) {
        fprintf(stderr,
                "usage: bench_trainer [--reports N] [--workers W] [--start] [FOLDER], more than %d reports "
                "each\n",
                BURST * BURSTS);
        return 2;
    }
    if (manta_init(&argc, &argv, NULL)) end("starting a node");
    snprintf(folder, sizeof folder, "/dev/shm/manta-bench-%ld", (long)getpid());
    if (!storage && mkdir(folder, 0700)) {
        perror(folder);
        return 1;
    }
    ms = start_ms(storage ? storage : folder, workers);
    if (start_only) {
        printf("{\"workers\": %d, \"fit_to_loop_s\": %.6f}\n", workers, ms / 1e3);
    } else {
        printf("fit to loop running in %d workers         %8.2f ms\n", workers, ms);
        checkpoints(storage ? storage : folder);
        reports(storage ? storage : folder, workers, n);
    }
    manta_shutdown();
    snprintf(command, sizeof command, "rm -r %s", folder);
    return storage ? 0 : system(command) != 0;
}
