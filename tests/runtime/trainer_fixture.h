/* trainer_fixture.h - what the programs that test the trainer share: a small
 * model, data for it, and words for checks. */
#ifndef TESTS_TRAINER_FIXTURE_H
#define TESTS_TRAINER_FIXTURE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <manta/layer.h>
#include <manta/task.h>
#include <manta/trainer.h>

#include "temp.h"

#define CHECK(x)                                                                                             \
    do {                                                                                                     \
        if (!(x)) {                                                                                          \
            fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #x, manta_error_text());                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

enum { N = 60, FEATURES = 6 };

static float xs[N * FEATURES], ys[N];

static inline void one_metric(manta_metrics *m, const char *name, double value)
{
    snprintf(m->name[m->n], sizeof m->name[0], "%s", name);
    m->value[m->n++] = value;
}

static inline manta_model *line_model(void)
{
    manta_model *m = manta_model_new("line");

    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){FEATURES});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 8, .activation = "relu"}));
    manta_model_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 1}));
    CHECK(!manta_model_build(m));
    return m;
}

static inline manta_dataset *samples(void)
{
    manta_column c[2] = {{"x", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){N, FEATURES}, xs)},
                         {"y", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){N, 1}, ys)}};

    for (int i = 0; i < N * FEATURES; i++) xs[i] = (float)((i * 37 + 11) % 101) / 101;
    for (int i = 0; i < N; i++) ys[i] = 2 * xs[i * FEATURES] - xs[i * FEATURES + 1];
    return manta_dataset_arrays(2, c, MANTA_OWNERSHIP_COPY);
}

static inline manta_status open_session(manta_worker *w, manta_model *m, const char *optimizer,
                                        manta_session **out)
{
    manta_loss mse = {.name = "mean_squared_error"};
    manta_optimizer o;
    manta_status st = manta_optimizer_named(optimizer, &o);

    if (st) return st;
    return manta_prepare_model(w, m, &(manta_compile){.optimizer = &o, .n_losses = 1, .losses = &mse},
                               &(manta_session_options){.threads = 1, .seed = 7, .kernels = "reference"},
                               out);
}

/* What a loop trains: the model, its session, and this rank's data. */
typedef struct trained {
    manta_model *m;
    manta_session *s;
    manta_loader *l;
} trained;

static inline manta_status line_open(manta_worker *w, int64_t batch, trained *out)
{
    manta_status st;

    *out = (trained){.m = line_model()};
    if ((st = open_session(w, out->m, "adam", &out->s))) return st;
    return manta_prepare_loader(w, "train", &(manta_loader_options){.batch_size = batch}, &out->l, NULL);
}

static inline void line_close(trained *t)
{
    manta_loader_close(t->l);
    manta_session_close(t->s);
    manta_model_free(t->m);
}

static inline manta_result *fit(manta_trainer_options *o, manta_status expected)
{
    manta_result *r = NULL;
    manta_status st = manta_trainer_fit(o, &r);

    if (st != expected) {
        fprintf(stderr, "%s: status %s: %s\n", o->run.name, manta_status_name(st), manta_error_text());
        exit(1);
    }
    return r;
}

static inline const manta_run_series *series(const manta_result *r, const char *name)
{
    for (int i = 0; i < r->n_series; i++) {
        if (!strcmp(r->series[i].name, name)) return &r->series[i];
    }
    fprintf(stderr, "no series '%s'\n", name);
    exit(1);
}

/* The lines of metrics.jsonl that `rank` wrote. */
static inline int lines_of(const char *run, int rank)
{
    char path[400], line[4000], tag[32];
    int n = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    snprintf(tag, sizeof tag, "\"rank\":%d,", rank);
    CHECK((f = fopen(path, "r")));
    while (fgets(line, sizeof line, f)) n += strstr(line, tag) != NULL;
    fclose(f);
    return n;
}

static inline bool same_bytes(const char *a, const char *b)
{
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int x = 0, y = 0;

    CHECK(f && g);
    while (x == y && x != EOF) {
        x = fgetc(f);
        y = fgetc(g);
    }
    fclose(f);
    fclose(g);
    return x == y;
}

static inline void write_text(const char *folder, const char *name, const char *text)
{
    char path[400];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK((f = fopen(path, "w")));
    fputs(text, f);
    fclose(f);
}

/* Runs the scenario that argv names, in a folder of its own. */
typedef struct scenario {
    const char *name;
    void (*fn)(const char *folder);
} scenario;

static inline int run_scenario(int argc, char **argv, const scenario *all, size_t n)
{
    /* Whoever kills this process says where, and removes it. */
    const char *told = getenv("SCENARIO_FOLDER");
    char folder[200], command[220];

    CHECK(argc == 2);
    CHECK(!manta_init(&argc, &argv,
                      &(manta_node_options){.num_cpus = 4, .resources = "disk=3", .address = "local"}));
    CHECK(temp_folder(folder, sizeof folder, told ? told : temp_quick(), "trainer"));
    for (size_t i = 0; i < n; i++) {
        if (strcmp(argv[1], all[i].name) != 0) continue;
        all[i].fn(folder);
        manta_shutdown();
        snprintf(command, sizeof command, "rm -r %s", folder);
        return system(command) ? 1 : 0;
    }
    fprintf(stderr, "no scenario %s\n", argv[1]);
    return 2;
}

#endif
