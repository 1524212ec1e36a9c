/* trainer_ends.c - runs of a trainer that somebody ends, that never begin, and what
 * the driver and later readers are told of them. */
#include <signal.h>
#include <sys/stat.h>

#include "trainer_fixture.h"

/* ---- ended on request ---- */

typedef struct settings {
    bool listens; /* asks whether it should stop */
    bool saves; /* reports checkpoints */
} settings;

/* Goes on until somebody ends it. */
static manta_status endless_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    float x = 1;
    manta_column one = {"x", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &x)};
    manta_status st = MANTA_OK;

    for (int64_t e = manta_worker_epoch(w); !st && !(c->listens && manta_worker_should_stop(w)); e++) {
        manta_metrics m = {0};
        one_metric(&m, "epoch", (double)e);
        one_metric(&m, "group", (double)getpgrp());
        st = c->saves ? manta_report_arrays(w, &m, 1, &one, e + 1, 0) : manta_report(w, &m);
    }
    return st;
}

typedef struct requests {
    int signal, times; /* signal 0: the function says so itself */
    bool all; /* also to the workers and to those behind them */
    int64_t reports;
} requests;

/* Asks for the end with the third report of rank 0, whose checkpoints count. */
static bool ask(void *user, const manta_report_event *e)
{
    requests *r = user;

    if (e->rank || ++r->reports != 3) return true;
    if (r->all) CHECK(!kill(-(pid_t)manta_metrics_get(e->metrics, "group"), r->signal));
    for (int i = 0; r->signal && i < r->times; i++) CHECK(!raise(r->signal));
    return r->signal != 0;
}

static void end_one(const char *folder, const char *name, settings c, requests r)
{
    manta_trainer_options o = {
        .loop = endless_loop,
        .config = &c,
        .config_size = sizeof c,
        .scaling = {.num_workers = 2},
        .run = {.name = name, .storage = folder, .checkpoints = {.keep = 2}, .report = ask, .user = &r}};
    manta_result *result = fit(&o, MANTA_ECANCELLED), *later;

    CHECK(strstr(result->error, "ended on request") && result->error_rank == -1 && !result->failures);
    CHECK(!result->checkpoint == !c.saves);
    CHECK(!manta_result_read(result->path, &later) && later->status == MANTA_ECANCELLED);
    manta_result_free(later);
    manta_result_free(result);
}

/* A loop that listens returns by itself, also when every process is asked at once; one that does not is ended by its next
 * checkpoint; one that has none by a second request. */
static void asked(const char *folder)
{
    end_one(folder, "term", (settings){.listens = true, .saves = true},
            (requests){.signal = SIGTERM, .times = 1});
    end_one(folder, "int", (settings){.listens = true}, (requests){.signal = SIGINT, .times = 1});
    end_one(folder, "deaf-term", (settings){.saves = true}, (requests){.signal = SIGTERM, .times = 1});
    end_one(folder, "deaf-int", (settings){.saves = true}, (requests){.signal = SIGINT, .times = 1});
    end_one(folder, "deaf-false", (settings){.saves = true}, (requests){0});
    end_one(folder, "all", (settings){.listens = true, .saves = true},
            (requests){.signal = SIGTERM, .times = 1, .all = true});
    end_one(folder, "twice", (settings){0}, (requests){.signal = SIGTERM, .times = 2});
}

/* ---- never begun ---- */

static manta_status done_loop(manta_worker *w)
{
    manta_metrics m = {0};

    one_metric(&m, "rank", manta_worker_rank(w));
    return manta_report(w, &m);
}

static void refuse(const manta_trainer_options *o, manta_status expected, const char *says)
{
    manta_result *r;
    char path[400];
    struct stat there;

    CHECK(manta_trainer_fit(o, &r) == expected && !r && strstr(manta_error_text(), says));
    snprintf(path, sizeof path, "%s/%s", o->run.storage, o->run.name);
    CHECK(stat(path, &there));
}

/* What can never be takes no name: the program that was put right runs under it. */
static void refuses(const char *folder)
{
    manta_dataset *batches = manta_dataset_batch(samples(), 4, false);
    manta_named_dataset twice[2] = {{.name = "a", .spec = "mnist"}, {.name = "a", .spec = "mnist"}},
                        none = {.name = "b"}, typo = {.name = "t", .spec = "mnsit"},
                        batched = {.name = "c", .dataset = batches};
    const manta_trainer_options good = {
        .loop = done_loop, .scaling = {.num_workers = 2}, .run = {.name = "once", .storage = folder}};
    manta_trainer_options o = good;
    manta_result *r;

    o.scaling.cpus_per_worker = 99;
    refuse(&o, MANTA_EUNSUPPORTED, "198 cpu");
    o = good;
    o.scaling.placement = (manta_placement)77;
    refuse(&o, MANTA_EINVAL, "placement 77");
    o = good;
    o.resume_from_checkpoint = "/nowhere";
    refuse(&o, MANTA_ENOENT, "/nowhere is no checkpoint");
    o = good;
    o.run.checkpoints.order = "big";
    refuse(&o, MANTA_EINVAL, "'big', expected max or min");
    o = good;
    o.run.checkpoints.keep = -3;
    refuse(&o, MANTA_EINVAL, "-3 checkpoints");
    o = good;
    o.run.failure.max_failures = -7;
    refuse(&o, MANTA_EINVAL, "max_failures: -7");
    o = good;
    o.n_datasets = 2;
    o.datasets = twice;
    refuse(&o, MANTA_EINVAL, "two datasets are called 'a'");
    o.n_datasets = 1;
    o.datasets = &none;
    refuse(&o, MANTA_EINVAL, "'b' is neither given nor described");
    o.datasets = &typo;
    refuse(&o, MANTA_ENOENT, "no dataset and no file is called 'mnsit'; the datasets are mnist");
    o.datasets = &batched;
    refuse(&o, MANTA_EUNSUPPORTED, "'c' has batches of its own");
    o = good;
    o.run.checkpoints.score = "\xff";
    refuse(&o, MANTA_EINVAL, "not UTF-8");
    o = good;
    r = fit(&o, MANTA_OK);
    manta_result_free(r);
    manta_dataset_unref(batches);
}

/* ---- what the driver is told, and who reads later ---- */

/* Three checkpoints of both ranks, then two of rank 0 alone; twice rank 1 fails then. */
static manta_status parts_loop(manta_worker *w)
{
    int rank = manta_worker_rank(w);

    for (int i = 0; i < (rank ? 3 : 5); i++) {
        manta_metrics m = {0};
        manta_status st;
        char *folder;
        one_metric(&m, "turn", i);
        if ((st = manta_worker_temp_folder(w, &folder))) return st;
        write_text(folder, rank ? "one.txt" : "zero.txt", "x");
        st = manta_report_checkpoint(w, &m, folder, NULL);
        free(folder);
        if (st || (i == 2 && (st = manta_worker_barrier(w)))) return st;
    }
    if (rank && manta_worker_attempt(w) < 2) return manta_fail(MANTA_ENOSPC, "no shelf is free");
    return MANTA_OK;
}

typedef struct told {
    int64_t checkpoints;
    char last[600];
    int attempts;
} told;

static bool take(void *user, const manta_report_event *e)
{
    told *t = user;
    manta_checkpoint *c;

    if (!e->checkpoint) return true;
    CHECK(strcmp(e->checkpoint, t->last) > 0); /* each is told once, in order */
    CHECK(!manta_checkpoint_open(e->checkpoint, &c));
    CHECK(manta_metrics_get(&manta_checkpoint_get(c)->metrics, "turn") ==
          manta_metrics_get(e->metrics, "turn"));
    manta_checkpoint_close(c);
    snprintf(t->last, sizeof t->last, "%s", e->checkpoint);
    t->checkpoints++;
    return true;
}

static bool count_attempts(void *user, const manta_attempt_event *e)
{
    CHECK(e->rank == 1 && strstr(e->error, "no shelf is free"));
    ((told *)user)->attempts++;
    return true;
}

static void tells(const char *folder)
{
    told t = {0};
    manta_trainer_options o = {.loop = parts_loop,
                               .scaling = {.num_workers = 2},
                               .run = {.name = "parts",
                                       .storage = folder,
                                       .failure = {.max_failures = MANTA_NONE},
                                       .report = take,
                                       .failed = count_attempts,
                                       .user = &t}};
    manta_result *r = fit(&o, MANTA_ENOSPC), *later;

    CHECK(t.attempts == 1 && t.checkpoints == r->n_checkpoints && !strcmp(t.last, r->checkpoint));
    CHECK(!manta_result_read(r->path, &later));
    CHECK(later->status == MANTA_ENOSPC && later->error_rank == 1 && later->failures == 0 &&
          later->workers == 2 && !strcmp(later->error, r->error) && !strcmp(later->path, r->path) &&
          !strcmp(later->checkpoint, r->checkpoint) && later->n_checkpoints == r->n_checkpoints);
    manta_result_free(later);
    manta_result_free(r);

    t = (told){0};
    o.run.name = "no-room"; /* when nobody has said how often: a full disk stays full */
    o.run.failure.max_failures = 0;
    r = fit(&o, MANTA_ENOSPC);
    CHECK(t.attempts == 1 && r->failures == 0 && r->error_rank == 1);
    manta_result_free(r);

    t = (told){0};
    o.run.name = "again";
    o.run.failure.max_failures = 2;
    r = fit(&o, MANTA_OK);
    CHECK(t.attempts == 2 && t.checkpoints == r->n_checkpoints && !strcmp(t.last, r->checkpoint));
    CHECK(manta_metrics_get(&r->checkpoint_metrics[0], "turn") == 4); /* of rank 0 alone */
    CHECK(!manta_result_read(r->path, &later));
    CHECK(later->status == MANTA_OK && !later->error && later->error_rank == -1 && later->failures == 2 &&
          later->workers == 2);
    manta_result_free(later);
    manta_result_free(r);
}

int main(int argc, char **argv)
{
    static const scenario all[] = {{"asked", asked}, {"refuses", refuses}, {"tells", tells}};

    return run_scenario(argc, argv, all, sizeof all / sizeof *all);
}
