/* random_test.c - a generator of trainings: small models, data, optimizers and faults by a seed,
 * each trained by one process and then again in other ways, to the same bytes.
 *
 *   one process, V shards ─┬─ the same with more threads
 *                          ├─ W workers of the V shards, some of them killed, their number changed
 *                          └─ in two parts, with a checkpoint between, read by another session
 *
 * A failure prints the seed (MANTA_SEED replays it) and the training in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/checkpoint.h>
#include <manta/data_file.h>
#include <manta/layer.h>
#include <manta/log.h>
#include <manta/train.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "format/scratch.h"
#include "ok.h"
#include "sim.h"
#include "train/session/session.h"

enum { MOST_SAMPLES = 64, MOST_NUMBERS = 9 * 9 * 3, CLASSES = 3, MOST_WORKERS = 3 };

/* ---- chance ---- */

typedef struct dice {
    rng_key key;
    uint64_t at;
} dice;

static int roll(dice *d, int n)
{
    return (int)rng_below(d->key, d->at++, (uint64_t)n);
}

static int between(dice *d, int low, int high)
{
    return low + roll(d, high - low + 1);
}

static bool flip(dice *d)
{
    return roll(d, 2) == 1;
}

/* ---- a training ---- */

typedef enum source { SOURCE_ARRAYS, SOURCE_NPZ, SOURCE_MAP, SOURCE_SHUFFLE, SOURCE_CACHE, SOURCES } source;

typedef struct training {
    uint64_t seed;
    bool images, classes; /* what it reads, and whether it learns classes or a number */
    int side, channels, features, samples;
    source source;
    manta_optimizer optimizer;
    manta_statistics statistics;
    int shards, epochs, batch, steps;
    bool no_shuffle, validates;
    int event_ms;
    buf words;
} training;

static void draw_optimizer(dice *d, manta_optimizer *o)
{
    static const char *const names[] = {"sgd", "adam", "adamw", "rmsprop", "torch.sgd", "torch.adam"};
    int which = roll(d, 6);

    assert_ok(manta_optimizer_named(names[which], o));
    o->learning_rate = 0.01;
    if ((which == 0 || which == 4) && flip(d)) {
        o->momentum = 0.9;
        o->nesterov = flip(d);
    }
    switch (roll(d, 5)) {
    case 0: o->clipvalue = 0.1; break;
    case 1: o->clipnorm = 0.5; break;
    case 2: o->global_clipnorm = 0.5; break;
    default: break;
    }
    if (!roll(d, 4)) o->gradient_accumulation_steps = between(d, 2, 3);
    if (!roll(d, 3)) {
        o->use_ema = true;
        o->ema_momentum = 0.9;
    }
    if (!roll(d, 3))
        o->schedule = (manta_schedule){.kind = MANTA_SCHEDULE_EXPONENTIAL,
                                       .initial_learning_rate = 0.02,
                                       .decay_steps = 5,
                                       .decay_rate = 0.7};
}

static training draw_training(dice *d, uint64_t seed)
{
    training t = {.seed = seed, .images = flip(d), .classes = flip(d), .words = {0}};

    t.side = between(d, 4, 9);
    t.channels = between(d, 1, 3);
    t.features = between(d, 1, 17);
    t.samples = between(d, 3, MOST_SAMPLES);
    t.source = (source)roll(d, SOURCES);
    draw_optimizer(d, &t.optimizer);
    t.statistics = (manta_statistics)roll(d, 3);
    t.shards = between(d, 1, 5);
    t.epochs = between(d, 1, 3);
    t.batch = between(d, 1, t.samples + 3);
    t.steps = roll(d, 3) ? 0 : between(d, 1, 5);
    t.no_shuffle = flip(d);
    t.validates = !roll(d, 3);
    t.event_ms = roll(d, 3) ? 0 : 1;
    buf_printf(&t.words,
               "%d samples of %s, source %d, %s, %s, batches of %d, %d shards, %d epochs of %d steps, "
               "statistics %d%s%s; layers:",
               t.samples, t.images ? "images" : "features", (int)t.source, t.classes ? "classes" : "numbers",
               manta_optimizer_name(&t.optimizer), t.batch, t.shards, t.epochs, t.steps, (int)t.statistics,
               t.no_shuffle ? ", in order" : "", t.validates ? ", validated" : "");
    return t;
}

/* ---- its model ---- */

static const char *draw_activation(dice *d)
{
    static const char *const names[] = {NULL, "relu", "tanh", "sigmoid", "elu", "gelu", "swish"};

    return names[roll(d, 7)];
}

static manta_regularizer draw_regularizer(dice *d)
{
    return roll(d, 4) ? (manta_regularizer){0} : (manta_regularizer){.l1 = 0.001f, .l2 = 0.01f};
}

/* A convolution that keeps the size, and now and then what it was given added to it. */
static manta_value add_convolution(manta_model *m, dice *d, manta_value x, int64_t filters)
{
    manta_conv2d_options o = {.filters = filters,
                              .kernel_size = {between(d, 1, 3), between(d, 1, 3)},
                              .padding = "same",
                              .activation = draw_activation(d),
                              .no_bias = flip(d),
                              .kernel_regularizer = draw_regularizer(d)};
    manta_value y = manta_call(m, manta_conv2d(m, o), x);

    o.padding = "same";
    return roll(d, 3) ? y
                      : manta_call_n(m, manta_merge_add(m), 2,
                                     (manta_value[]){y, manta_call(m, manta_conv2d(m, o), y)});
}

static manta_value add_image_layer(manta_model *m, dice *d, manta_value x, buf *words)
{
    static const char *const names[] = {"conv",     "depthwise", "batch norm",
                                        "max pool", "mean pool", "dropout"};
    int which = roll(d, 6);

    buf_printf(words, " %s", names[which]);
    switch (which) {
    case 0: return add_convolution(m, d, x, between(d, 1, 6));
    case 1:
        return manta_call(m,
                          manta_depthwise_conv2d(
                              m, (manta_depthwise_conv2d_options){.kernel_size = {3, 3}, .padding = "same"}),
                          x);
    case 2: return manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), x);
    case 3:
        return manta_call(
            m, manta_max_pooling2d(m, (manta_pooling2d_options){.strides = {1, 1}, .padding = "same"}), x);
    case 4:
        return manta_call(
            m, manta_average_pooling2d(m, (manta_pooling2d_options){.strides = {1, 1}, .padding = "same"}),
            x);
    default: return manta_call(m, manta_dropout(m, (manta_dropout_options){.rate = 0.3}), x);
    }
}

static manta_value add_flat_layer(manta_model *m, dice *d, manta_value x, buf *words)
{
    static const char *const names[] = {"dense", "layer norm", "batch norm", "dropout"};
    int which = roll(d, 4);

    buf_printf(words, " %s", names[which]);
    switch (which) {
    case 0:
        return manta_call(m,
                          manta_dense(m, (manta_dense_options){.units = between(d, 1, 9),
                                                               .activation = draw_activation(d),
                                                               .no_bias = flip(d),
                                                               .kernel_regularizer = draw_regularizer(d)}),
                          x);
    case 1: return manta_call(m, manta_layer_normalization(m, (manta_layer_normalization_options){0}), x);
    case 2: return manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), x);
    default: return manta_call(m, manta_dropout(m, (manta_dropout_options){.rate = 0.2}), x);
    }
}

/* The same for the same seed, however often it is asked for. */
static manta_model *model_of(const training *t, buf *words)
{
    manta_model *m = manta_model_new("random");
    dice d = {.key = rng_make(t->seed, 2)};
    int64_t shape[3] = {t->images ? t->side : t->features, t->side, t->channels};
    manta_value x = manta_input(m, "x", MANTA_DTYPE_F32, t->images ? 3 : 1, shape);

    for (int n = t->images ? between(&d, 0, 3) : 0; n > 0; n--) x = add_image_layer(m, &d, x, words);
    if (t->images && flip(&d))
        x = manta_call(m, manta_global_average_pooling2d(m, (manta_global_pooling2d_options){0}), x);
    else if (t->images)
        x = manta_call(m, manta_flatten(m), x);
    for (int n = between(&d, 0, 3); n > 0; n--) x = add_flat_layer(m, &d, x, words);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = t->classes ? CLASSES : 1}), x);
    manta_output(m, x);
    assert_ok(manta_model_build(m));
    return m;
}

/* ---- its data ---- */

static manta_status add_noise(manta_sample *s, void *user)
{
    const float *in = s->in[0].array.data;
    float *out = s->out[0].array.data;
    (void)user;

    for (int64_t i = 0; i < manta_array_count(&s->in[0].array); i++)
        out[i] = in[i] + 0.1f * (float)manta_sample_normal(s);
    memcpy(s->out[1].array.data, s->in[1].array.data, manta_array_bytes(&s->in[1].array));
    return MANTA_OK;
}

static manta_dataset *dataset_of(const training *t)
{
    static float x[MOST_SAMPLES * MOST_NUMBERS], numbers[MOST_SAMPLES];
    static int64_t labels[MOST_SAMPLES];
    rng_key k = rng_make(t->seed, 3);
    int64_t each = t->images ? (int64_t)t->side * t->side * t->channels : t->features;
    int64_t dims[4] = {t->samples, t->images ? t->side : t->features, t->side, t->channels};
    const manta_column_spec *columns;
    manta_dataset *d;

    for (int64_t i = 0; i < t->samples * each; i++) x[i] = rng_uniform(rng_at(k, (uint64_t)i).w[0]) - 0.5f;
    for (int64_t i = 0; i < t->samples; i++) {
        numbers[i] = x[i * each] * 2 - x[i * each + each - 1];
        labels[i] = x[i * each] > 0.1f ? 2 : x[i * each] > -0.2f;
    }
    manta_column c[2] = {
        {"x", manta_array_of(MANTA_DTYPE_F32, t->images ? 4 : 2, dims, x)},
        {"y", manta_array_of(t->classes ? MANTA_DTYPE_I64 : MANTA_DTYPE_F32, t->classes ? 1 : 2,
                             (int64_t[]){t->samples, 1}, t->classes ? (void *)labels : (void *)numbers)}};
    if (t->source == SOURCE_NPZ) {
        char spec[400];
        assert_ok(manta_arrays_save(scratch_path("data.npz"), 2, c));
        snprintf(spec, sizeof spec, "%s:x,y", scratch_path("data.npz"));
        assert_ok(manta_dataset_open(spec, NULL, &d));
        return d;
    }
    d = manta_dataset_arrays(2, c, MANTA_OWNERSHIP_COPY);
    if (t->source == SOURCE_MAP) {
        int n = manta_dataset_columns(d, &columns);
        manta_column_spec same[2] = {columns[0], columns[1]};
        d = manta_dataset_map(d, add_noise, NULL, 7, n, same);
    }
    if (t->source == SOURCE_SHUFFLE) d = manta_dataset_shuffle(d, 10, 5);
    if (t->source == SOURCE_CACHE) d = manta_dataset_prefetch(manta_dataset_cache(d), 2);
    assert_ok(manta_dataset_status(d));
    return d;
}

/* ---- a way to train it ---- */

typedef struct way {
    const char *name;
    int workers, threads;
    int kill_at[2]; /* after so many steps that were seen; 0: never */
    int resize_at; /* the same */
    int cut_at; /* epoch at whose end another session goes on; 0: none does */
} way;

typedef struct viewer {
    const way *w;
    int seen, killed;
    int64_t pid[MOST_WORKERS];
} viewer;

static bool disturb(void *user, manta_session *s, const manta_event *e)
{
    viewer *v = user;

    if (e->kind == MANTA_EVENT_WORKER && e->rank < MOST_WORKERS) v->pid[e->rank] = e->pid;
    if (e->kind != MANTA_EVENT_STEP) return true;
    v->seen++;
    for (int i = 0; i < 2; i++) {
        int rank = (v->seen + i) % v->w->workers;
        if (v->w->kill_at[i] != v->seen || !v->pid[rank]) continue;
        kill((pid_t)v->pid[rank], SIGKILL);
        v->killed++;
    }
    if (v->w->resize_at == v->seen) return manta_session_resize(s, 1) == MANTA_OK;
    return true;
}

typedef struct outcome {
    void *state;
    size_t size;
    manta_metrics metrics;
} outcome;

static manta_session *session_of(const training *t, const way *w, const manta_model *m)
{
    static const manta_loss classes = {.name = "sparse_categorical_crossentropy", .from_logits = true},
                            numbers = {.name = "mse"};
    manta_session *s;

    assert_ok(manta_session_open(m,
                                 &(manta_compile){.optimizer = &t->optimizer,
                                                  .n_losses = 1,
                                                  .losses = t->classes ? &classes : &numbers},
                                 &(manta_session_options){.seed = t->seed,
                                                          .shards = t->shards,
                                                          .statistics = t->statistics,
                                                          .workers = w->workers,
                                                          .min_workers = w->workers ? 1 : 0,
                                                          .threads = w->threads},
                                 &s));
    return s;
}

static manta_status fit_part(manta_session *s, const training *t, const way *w, int first, int last,
                             manta_metrics *out)
{
    manta_dataset *d = dataset_of(t);
    viewer v = {.w = w};
    manta_status st = manta_fit(s, d,
                                &(manta_fit_options){.epochs = last,
                                                     .initial_epoch = first,
                                                     .global_batch = t->batch,
                                                     .steps_per_epoch = t->steps,
                                                     .no_shuffle = t->no_shuffle,
                                                     .validation = t->validates ? d : NULL,
                                                     .event = w->workers ? disturb : NULL,
                                                     .event_interval_ms = w->workers ? t->event_ms : 0,
                                                     .user = &v},
                                out);

    manta_dataset_unref(d);
    return st;
}

/* Saves the session, closes it, and goes on with what another one reads. */
static manta_session *through_a_checkpoint(manta_session *s, const training *t, const way *w,
                                           const manta_model *m)
{
    manta_checkpoints *all;
    manta_checkpoint *c;

    assert_ok(manta_checkpoints_open(scratch_path("checkpoints"), NULL, &all));
    assert_ok(manta_checkpoints_save(all, s, &(manta_checkpoint_info){.epoch = w->cut_at}, true));
    assert_ok(manta_checkpoints_wait(all));
    assert_ok(manta_checkpoints_latest(all, &c, NULL));
    manta_session_close(s);
    s = session_of(t, w, m);
    assert_ok(manta_session_from_checkpoint(s, c, false));
    manta_checkpoint_close(c);
    assert_ok(manta_checkpoints_clear(all));
    manta_checkpoints_close(all);
    return s;
}

static outcome train_by(const training *t, const way *w)
{
    buf none = {0};
    manta_model *m = model_of(t, &none);
    manta_session *s = session_of(t, w, m);
    outcome o = {0};
    manta_status st = MANTA_OK;

    if (w->cut_at) {
        st = fit_part(s, t, w, 0, w->cut_at, &o.metrics);
        s = through_a_checkpoint(s, t, w, m);
    }
    if (!st) st = fit_part(s, t, w, w->cut_at, t->epochs, &o.metrics);
    if (st)
        fail_msg("seed %llu, %s: %s\n%s", (unsigned long long)t->seed, w->name, manta_error_text(),
                 buf_text(&t->words));
    o.size = s->l.state_size;
    o.state = mem_new(o.size);
    memcpy(o.state, s->state, o.size);
    manta_session_close(s);
    manta_model_free(m);
    buf_release(&none);
    return o;
}

static void compare(const training *t, const outcome *golden, const way *w)
{
    outcome o = train_by(t, w);

    if (o.size != golden->size || memcmp(o.state, golden->state, o.size) != 0 ||
        o.metrics.n != golden->metrics.n ||
        memcmp(o.metrics.value, golden->metrics.value, (size_t)o.metrics.n * sizeof *o.metrics.value) != 0)
        fail_msg("seed %llu, %s (%d workers, %d threads, kills after %d and %d steps, one worker after %d, "
                 "cut at %d): "
                 "other bytes than one process\n%s",
                 (unsigned long long)t->seed, w->name, w->workers, w->threads, w->kill_at[0], w->kill_at[1],
                 w->resize_at, w->cut_at, buf_text(&t->words));
    mem_free(o.state);
}

static void run(uint64_t seed)
{
    dice d = {.key = rng_make(seed, 1)};
    training t = draw_training(&d, seed);
    int workers = t.shards < MOST_WORKERS ? t.shards : MOST_WORKERS;

    manta_model_free(model_of(&t, &t.words));
    outcome golden = train_by(&t, &(way){.name = "alone", .threads = 1});
    compare(&t, &golden, &(way){.name = "more threads", .threads = 2});
    if (workers > 1) {
        way w = {.name = "workers", .workers = between(&d, 2, workers), .threads = between(&d, 1, 2)};
        for (int i = 0; i < 2; i++) w.kill_at[i] = roll(&d, 3) ? between(&d, 1, 8) : 0;
        w.resize_at = roll(&d, 3) ? 0 : between(&d, 1, 6);
        compare(&t, &golden, &w);
    }
    if (t.epochs > 1 && !t.optimizer.use_ema)
        compare(&t, &golden,
                &(way){.name = "in two parts", .threads = 1, .cut_at = between(&d, 1, t.epochs - 1)});
    mem_free(golden.state);
    buf_release(&t.words);
}

static void simulated(void **state)
{
    (void)state;
    sim_run(25, run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(simulated, scratch_setup_quick, scratch_teardown)};

    manta_log_set_level(MANTA_LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
