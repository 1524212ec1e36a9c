/* random_ranks.h - a random training by the ranks of a trainer, whose loops take the steps together. One is killed: all begin
 * again from the last checkpoint. */
#ifndef TEST_RANDOM_RANKS_H
#define TEST_RANDOM_RANKS_H

#include <manta/task.h>
#include <manta/trainer.h>

#include "train/random_ways.h"
#include "train/rank_steps.h"

/* What its workers are told; they draw the training themselves. */
typedef struct errand {
    uint64_t seed;
    char folder[300], spec[700];
    manta_open_options open;
    int save_every, victim, kill_at;
    char out[300]; /* where their states go, with the rank behind it */
} errand;

/* A loop, as its steps see it. */
typedef struct looper {
    manta_worker *w;
    const errand *e;
    int steps; /* of this attempt */
} looper;

static inline manta_status take_step(void *who, manta_session *s, const manta_feed *f)
{
    return manta_worker_train_step(((looper *)who)->w, s, f);
}

static inline manta_status after_step(void *who, manta_session *s, train_position next)
{
    looper *l = who;
    const errand *e = l->e;
    manta_metrics m = {.n = 1, .name = {"step"}, .value = {(double)l->steps}};

    l->steps++;
    if (e->save_every && l->steps % e->save_every == 0)
        TRY(manta_report_session(l->w, &m, s, next.epoch, next.step));
    if (l->steps == e->kill_at && manta_worker_rank(l->w) == e->victim && !manta_worker_attempt(l->w))
        kill(getpid(), SIGKILL);
    return MANTA_OK;
}

/* What manta_fit() makes of the data, with the seed of its session. */
static inline manta_dataset *data_of_errand(manta_worker *w, const void *user, size_t size)
{
    const errand *e = user;
    training t = draw_training(e->seed, e->folder);
    buf none = {0};
    manta_dataset *d;

    (void)w;
    (void)size;
    in_rank = true;
    t.open = e->open;
    snprintf(t.spec, sizeof t.spec, "%s", e->spec);
    d = dataset_of(&t, &none);
    if (!t.no_shuffle) d = manta_dataset_shuffle(d, 0, t.seed);
    if (t.steps) d = manta_dataset_repeat(d, MANTA_FOREVER_COUNT);
    buf_release(&none);
    buf_release(&t.words);
    return d;
}

/* Metrics and state of a rank, where the test looks for them. */
static inline manta_status leave_state(const errand *e, int rank, const manta_session *s,
                                       const manta_metrics *m)
{
    char path[340];
    FILE *f;

    snprintf(path, sizeof path, "%s.%d", e->out, rank);
    f = fopen(path, "wb");
    if (f && fwrite(m, sizeof *m, 1, f) == 1 && fwrite(s->state, s->l.state_size, 1, f) == 1 && !fclose(f))
        return MANTA_OK;
    return manta_fail(MANTA_EIO, "%s could not be written", path);
}

static inline manta_status random_loop(manta_worker *w)
{
    const errand *e = manta_worker_config(w, NULL);
    training t = draw_training(e->seed, e->folder);
    train_position at = {manta_worker_epoch(w), manta_worker_step(w)};
    manta_loader_options lo = {.batch_size = t.batch, .steps_per_epoch = t.steps};
    manta_session_options so = {.seed = t.seed, .threads = 1, .statistics = t.statistics};
    manta_compile compile = compile_of(&t);
    looper who = {.w = w, .e = e};
    rank_steps r = {.rank = manta_worker_rank(w),
                    .ranks = manta_worker_world_size(w),
                    .who = &who,
                    .step = take_step,
                    .stepped = after_step};
    buf none = {0};
    manta_dataset *d;
    manta_metrics metrics;
    manta_model *m;

    in_rank = true;
    TRY(manta_worker_dataset(w, "data", &d));
    m = model_of(&t, x_of(d), &none);
    TRY(manta_prepare_loader(w, "data", &lo, &r.l, NULL));
    TRY(manta_prepare_model(w, m, &compile, &so, &r.s));
    TRY(rank_steps_run(&r, at, t.epochs));
    TRY(manta_worker_metrics(w, r.s, &metrics));
    TRY(leave_state(e, r.rank, r.s, &metrics));
    manta_loader_close(r.l);
    manta_session_close(r.s);
    manta_dataset_unref(d);
    manta_model_free(m);
    buf_release(&none);
    buf_release(&t.words);
    return MANTA_OK;
}

static inline void read_state(const errand *e, int rank, outcome *out)
{
    char path[340];
    FILE *f;

    snprintf(path, sizeof path, "%s.%d", e->out, rank);
    assert_non_null(f = fopen(path, "rb"));
    assert_int_equal(fread(&out->metrics, sizeof out->metrics, 1, f), 1);
    assert_int_equal(fread(out->state, out->size, 1, f), 1);
    fclose(f);
    unlink(path);
}

/* The outcome of a rank that differs from the golden one, if one does. */
static inline outcome by_ranks(const training *t, const way *w, const outcome *golden)
{
    errand e = {.seed = t->seed,
                .open = t->open,
                .save_every = w->save_every,
                .victim = w->victim,
                .kill_at = w->kill_at[0]};
    manta_named_dataset data = {.name = "data", .make = data_of_errand, .user = &e, .user_size = sizeof e};
    manta_trainer_options o = {.loop = random_loop,
                               .config = &e,
                               .config_size = sizeof e,
                               .scaling = {.num_workers = t->shards, .threads_per_worker = 1},
                               .run = {.storage = scratch_path("runs")},
                               .n_datasets = 1,
                               .datasets = &data};
    outcome out = *golden;
    manta_result *r = NULL;

    snprintf(e.folder, sizeof e.folder, "%s", t->folder);
    snprintf(e.spec, sizeof e.spec, "%s", t->spec);
    snprintf(e.out, sizeof e.out, "%s", scratch_path("state"));
    must_fit(manta_trainer_fit(&o, &r), t, w);
    out.lost = r->failures;
    out.sums_lost = out.lost > 0;
    out.state = mem_new(out.size);
    for (int rank = 0; rank < t->shards; rank++) {
        read_state(&e, rank, &out);
        if (!is_same(golden, &out)) break;
    }
    scratch_remove(r->path);
    manta_result_free(r);
    return out;
}

#endif
