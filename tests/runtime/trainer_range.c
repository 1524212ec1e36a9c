/* trainer_range.c - a trainer whose number of workers is a range: what it starts
 * with, what it goes on with, and what its loops see. */
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <manta/context.h>
#include <manta/placement.h>

#include "trainer_fixture.h"

typedef struct settings {
    int64_t epochs;
    int dies_with, dies_at; /* the last is killed when there are so many workers, at that epoch */
    char out[200];
} settings;

static settings settings_of(const char *folder, const char *out)
{
    settings c = {.epochs = 4};

    snprintf(c.out, sizeof c.out, "%s/%s", folder, out);
    return c;
}

static manta_status train_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    manta_metrics metrics;
    manta_status st;
    trained t;

    if ((st = line_open(w, 5, &t))) return st;
    for (int64_t e = manta_worker_epoch(w); e < c->epochs; e++) {
        if (manta_worker_world_size(w) == c->dies_with && e == c->dies_at &&
            manta_worker_rank(w) == c->dies_with - 1)
            raise(SIGKILL);
        if ((st = manta_worker_train_epoch(w, t.s, t.l, e, &metrics))) return st;
        one_metric(&metrics, "workers", manta_worker_world_size(w));
        if ((st = manta_report_session(w, &metrics, t.s, e + 1, 0))) return st;
        if ((st = manta_worker_barrier(w))) return st;
    }
    if (!manta_worker_rank(w)) st = manta_session_save(t.s, c->out);
    line_close(&t);
    return st;
}

static manta_status run(const char *folder, const char *name, const settings *c, manta_scaling_config scaling,
                        const char *checkpoint, manta_result **r)
{
    manta_dataset *d = samples();
    manta_named_dataset named = {.name = "train", .dataset = d, .shuffle = true};
    manta_trainer_options o = {.loop = train_loop,
                               .config = c,
                               .config_size = sizeof *c,
                               .scaling = scaling,
                               .run = {.name = name, .storage = folder},
                               .n_datasets = 1,
                               .datasets = &named,
                               .resume_from_checkpoint = checkpoint};
    manta_status st;

    o.scaling.threads_per_worker = 1;
    st = manta_trainer_fit(&o, r);
    manta_dataset_unref(d);
    return st;
}

static double point(const manta_result *r, const char *name, int64_t i)
{
    for (int k = 0; k < r->n_series; k++) {
        if (!strcmp(r->series[k].name, name) && i < r->series[k].n) return r->series[k].points[i].value;
    }
    return -1;
}

static manta_placement_group hold(double cpus, const char *resources)
{
    manta_bundle b = {.num_cpus = cpus, .resources = resources};
    manta_placement_group g;

    CHECK(!manta_placement_group_new(&b, 1, MANTA_PLACEMENT_PACK, NULL, &g));
    CHECK(!manta_placement_group_wait(g, 30000));
    return g;
}

/* Waits until so many processors are free: those of a run that has ended are given back when
 * its workers are gone. */
static void await_free(double cpus)
{
    manta_node_info info;

    for (int i = 0; i < 24000; i++) {
        CHECK(!manta_node_get(&info));
        if (info.free_cpus >= cpus) return;
        usleep(10000);
    }
    fprintf(stderr, "%g processors are free, expected %g\n", info.free_cpus, cpus);
    exit(1);
}

/* The node has 4 processors and 3 disks. */
static void starts(const char *folder)
{
    settings c = settings_of(folder, "out.npz");
    manta_result *r = NULL;
    manta_placement_group others;

    CHECK(!run(folder, "all", &c, (manta_scaling_config){.num_workers = 4, .min_workers = 1}, NULL, &r));
    CHECK(r->workers == 4 && point(r, "workers", 3) == 4);
    manta_result_free(r);
    CHECK(!run(folder, "disks", &c,
               (manta_scaling_config){.num_workers = 4,
                                      .min_workers = 2,
                                      .cpus_per_worker = MANTA_NONE,
                                      .resources_per_worker = "disk=1"},
               NULL, &r));
    CHECK(r->workers == 3 && point(r, "workers", 0) == 3);
    manta_result_free(r);

    others = hold(2, NULL);
    await_free(2);
    CHECK(!run(folder, "some", &c, (manta_scaling_config){.num_workers = 4, .min_workers = 1}, NULL, &r));
    CHECK(r->workers == 2 && r->failures == 0 && point(r, "workers", 0) == 2);
    manta_result_free(r);
    CHECK(run(folder, "short", &c,
              (manta_scaling_config){.num_workers = 4, .min_workers = 3, .start_timeout_ms = 20}, NULL,
              &r) == MANTA_ETIMEDOUT);
    CHECK(r && r->error && strstr(r->error, "no room for 3 workers"));
    manta_result_free(r);
    manta_placement_group_remove(others);

    CHECK(run(folder, "never", &c, (manta_scaling_config){.num_workers = 9, .min_workers = 5}, NULL, &r) ==
          MANTA_EUNSUPPORTED);
    CHECK(!r && strstr(manta_error_text(), "can never"));
    CHECK(run(folder, "odd", &c, (manta_scaling_config){.num_workers = 2, .min_workers = 3}, NULL, &r) ==
          MANTA_EINVAL);
    CHECK(!r);
    CHECK(run(folder, "apart", &c,
              (manta_scaling_config){.num_workers = 2, .placement = MANTA_PLACEMENT_STRICT_SPREAD}, NULL,
              &r) == MANTA_EUNSUPPORTED);
    CHECK(!r);
}

typedef struct giver {
    manta_placement_group group;
    char run[300];
} giver;

/* Gives the group back once the run waits for room: its folder is there. */
static void *give_back(void *arg)
{
    const giver *g = arg;
    struct timespec begin, now;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (access(g->run, F_OK) && now.tv_sec - begin.tv_sec < 60);
    manta_placement_group_remove(g->group);
    return NULL;
}

/* With room for too few it waits for the others to make some. */
static void waits(const char *folder)
{
    settings c = settings_of(folder, "out.npz");
    giver g = {.group = hold(3, NULL)};
    manta_result *r = NULL;
    pthread_t thread;

    snprintf(g.run, sizeof g.run, "%s/patient/config.json", folder);
    CHECK(!pthread_create(&thread, NULL, give_back, &g));
    CHECK(!run(folder, "patient", &c, (manta_scaling_config){.num_workers = 4, .min_workers = 2}, NULL, &r));
    CHECK(r->workers >= 2 && r->failures == 0);
    manta_result_free(r);
    CHECK(!pthread_join(thread, NULL));
}

/* One that dies again without a checkpoint in between is not replaced; what the
 * others do is what they would have done from that checkpoint on. */
static void gives_up(const char *folder)
{
    settings c = settings_of(folder, "fewer.npz"), half = settings_of(folder, "half.npz");
    char fewer[256], checkpoint[600];
    manta_result *r = NULL;
    manta_scaling_config range = {.num_workers = 3, .min_workers = 2};

    c.dies_with = 3;
    c.dies_at = 2;
    snprintf(fewer, sizeof fewer, "%s", c.out);
    CHECK(!run(folder, "fewer", &c, range, NULL, &r));
    CHECK(r->failures == 2 && r->workers == 2);
    CHECK(r->series[0].n == 4);
    for (int i = 0; i < 4; i++) CHECK(point(r, "workers", i) == (i < 2 ? 3 : 2));
    manta_result_free(r);

    half.epochs = 2;
    CHECK(!run(folder, "half", &half, (manta_scaling_config){.num_workers = 3}, NULL, &r));
    snprintf(checkpoint, sizeof checkpoint, "%s", r->checkpoint);
    manta_result_free(r);
    half.epochs = 4;
    CHECK(!run(folder, "rest", &half, (manta_scaling_config){.num_workers = 2}, checkpoint, &r));
    manta_result_free(r);
    CHECK(same_bytes(fewer, half.out));

    /* Never below the least: then the failures are counted as ever. */
    c.dies_with = 2;
    CHECK(run(folder, "least", &c, (manta_scaling_config){.num_workers = 2, .min_workers = 2}, NULL, &r) ==
          MANTA_EDIED);
    CHECK(r->failures == 3 && r->workers == 2 && strstr(r->error, "killed by signal 9"));
    manta_result_free(r);
}

/* ---- room that appears ---- */

/* Checkpoints without end while there are fewer than all; then two more. */
static manta_status wait_for_others(manta_worker *w)
{
    manta_status st = MANTA_OK;
    float x = 1;
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &x)};
    int64_t first = manta_worker_epoch(w);

    for (int64_t e = first; !st && (manta_worker_world_size(w) < 4 || e < first + 2); e++) {
        manta_metrics m = {0};
        one_metric(&m, "workers", manta_worker_world_size(w));
        if (manta_worker_world_size(w) == 4 && manta_worker_attempt(w) == 2 && manta_worker_rank(w) == 3)
            return manta_fail(MANTA_EIO, "the third attempt, the first of four workers, is not to be");
        st = manta_report_arrays(w, &m, 1, &c, e + 1, 0);
        if (!st) st = manta_worker_barrier(w);
    }
    return st;
}

/* One processor comes free after the third report of one worker, the others after the
 * next report of two. */
static bool make_room(void *user, const manta_report_event *e)
{
    manta_placement_group *held = user;
    double workers = manta_metrics_get(e->metrics, "workers");

    if (held[0].id && workers == 1 && e->index == 2) {
        manta_placement_group_remove(held[0]);
        held[0].id = 0;
    }
    if (held[1].id && workers == 2) {
        manta_placement_group_remove(held[1]);
        held[1].id = 0;
    }
    return true;
}

/* What others give back is taken, behind the next checkpoint, and no failure. One that
 * comes then begins again with all. */
static void grows(const char *folder)
{
    manta_placement_group held[2] = {hold(1, NULL), hold(2, NULL)};
    manta_trainer_options o = {.loop = wait_for_others,
                               .scaling = {.num_workers = 4, .min_workers = 1},
                               .run = {.name = "grows",
                                       .storage = folder,
                                       .failure = {.max_failures = 1},
                                       .checkpoints = {.keep = 2},
                                       .report = make_room,
                                       .user = held}};
    manta_result *r = fit(&o, MANTA_OK);
    const manta_run_series *s = series(r, "workers");

    CHECK(r->workers == 4 && r->failures == 1 && !held[0].id && !held[1].id);
    CHECK(s->points[0].value == 1 && s->points[s->n - 1].value == 4);
    for (int64_t i = 1; i < s->n; i++) { /* every epoch once, and never fewer again */
        CHECK(s->points[i].epoch == s->points[i - 1].epoch + 1);
        CHECK(s->points[i].value >= s->points[i - 1].value);
    }
    manta_result_free(r);
}

/* ---- a step in the middle of an epoch ---- */

static manta_status middle_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    manta_metrics m = {0};
    float x = 1;
    manta_column col = {"x", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &x)};

    one_metric(&m, "epoch", (double)manta_worker_epoch(w));
    one_metric(&m, "step", (double)manta_worker_step(w));
    return manta_report_arrays(w, &m, 1, &col, 5, c->epochs);
}

static void converts(const char *folder)
{
    static const struct {
        int before, after;
        int64_t step, expected;
    } cases[] = {{3, 2, 7, 10}, {2, 3, 7, 4}, {2, 2, 7, 7}, {1, 4, 3, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        settings c = {.epochs = cases[i].step};
        manta_result *r = NULL;
        char name[32];
        manta_trainer_options o = {.loop = middle_loop,
                                   .config = &c,
                                   .config_size = sizeof c,
                                   .scaling = {.num_workers = cases[i].before},
                                   .run = {.name = name, .storage = folder}};
        snprintf(name, sizeof name, "middle-%zu", i);
        CHECK(!manta_trainer_fit(&o, &r));
        manta_result_free(r);
        o.scaling.num_workers = cases[i].after;
        o.run.resume = true;
        CHECK(!manta_trainer_fit(&o, &r));
        CHECK(manta_metrics_get(&r->metrics, "epoch") == 5);
        CHECK(manta_metrics_get(&r->metrics, "step") == (double)cases[i].expected);
        manta_result_free(r);
    }
}

int main(int argc, char **argv)
{
    static const scenario all[] = {{"starts", starts},
                                   {"waits", waits},
                                   {"gives-up", gives_up},
                                   {"grows", grows},
                                   {"converts", converts}};

    return run_scenario(argc, argv, all, sizeof all / sizeof *all);
}
