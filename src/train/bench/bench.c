/* bench.c - times the training step of a zoo model on made-up data, beside the machine's own best
 * matrix product, which is measured before and after: a share of what this machine can do says
 * more than a rate, and survives a change of machines. Of a device it says what the kernels of a
 * step take by themselves instead.
 *
 * The figure is the median step after a few that are not counted (WARM). With several workers each
 * step is one of a whole fit, of a batch for each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/tool_bench.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "train/session/device.h"

enum { GEMM = 1024, GEMM_ROUNDS = 8, MOST_STEPS = 100000, WARM = 3 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double find_median(double *v, int64_t n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* The best rate of a 1024-cubed product over a few rounds, for every family
 * that this machine runs: the yardstick is the machine, not our kernels. */
static double gemm_rate(pool *p, const float *a, const float *b, float *c)
{
    double best = 0;

    for (int family = KERN_AVX2; family < KERN_FAMILIES; family++) {
        const kernels *k = kernels_of((kern_family)family);
        gemm_call g = {
            .m = GEMM, .n = GEMM, .k = GEMM, .a = a, .lda = GEMM, .b = b, .ldb = GEMM, .c = c, .ldc = GEMM};
        for (int i = 0; k && i < GEMM_ROUNDS; i++) {
            int64_t begin = clock_now_ns();
            double rate;
            k->gemm(p, &g);
            rate = 2.0 * GEMM * GEMM * GEMM / (double)(clock_now_ns() - begin);
            if (rate > best) best = rate;
        }
    }
    return best;
}

typedef struct bench {
    const manta_bench_options *o;
    manta_model *m;
    manta_session *s;
    manta_feed f;
    void *input, *target;
    float *gemm; /* three matrices */
    double *times;
    int64_t count; /* samples of a step, of all workers together */
    int64_t last, seen; /* workers: when the last step was committed, and how many were */
} bench;

/* Made-up samples: uniform pixels, labels in turn. */
static manta_status make_batch(bench *b)
{
    manta_array x = manta_model_input(b->m, 0, NULL), y = manta_model_output(b->m, 0, NULL);
    bool sparse = y.ndim == 2 && y.shape[1] == 10;
    int64_t n, labels[1] = {b->count};
    rng_key key = rng_make(1, 2);

    x.shape[0] = y.shape[0] = b->count;
    x = manta_array_of(MANTA_DTYPE_F32, x.ndim, x.shape, NULL);
    y = sparse ? manta_array_of(MANTA_DTYPE_I64, 1, labels, NULL)
               : manta_array_of(MANTA_DTYPE_F32, y.ndim, y.shape, NULL);
    TRY(mem_try_array(manta_array_count(&x), 4, "a batch", &b->input));
    TRY(mem_try_array(manta_array_count(&y), 8, "a batch", &b->target));
    x.data = b->input;
    y.data = b->target;
    n = manta_array_count(&x);
    for (int64_t i = 0; i < n; i++) ((float *)x.data)[i] = rng_uniform(rng_at(key, (uint64_t)i).w[0]);
    for (int64_t i = 0; sparse && i < b->count; i++) ((int64_t *)y.data)[i] = i % 10;
    b->f = (manta_feed){.count = b->count, .n_inputs = 1, .n_targets = 1, .inputs = {x}, .targets = {y}};
    return MANTA_OK;
}

static manta_status open_bench(bench *b, const char *model)
{
    const char *name = b->o->optimizer ? b->o->optimizer : !strcmp(model, "resnet18") ? "adam" : "sgd";
    manta_optimizer opt;
    manta_loss loss = {.name = "mse"};
    manta_metric metric = {.name = "accuracy"};
    manta_array y;

    b->count = b->o->batch * (b->o->workers > 1 ? b->o->workers : 1);
    TRY(manta_zoo(model, &b->m));
    TRY(manta_optimizer_named(name, &opt));
    y = manta_model_output(b->m, 0, NULL);
    if (y.ndim == 2 && y.shape[1] == 10)
        loss = (manta_loss){.name = "sparse_categorical_crossentropy", .from_logits = true};
    TRY(manta_session_open(b->m,
                           &(manta_compile){.optimizer = &opt,
                                            .n_losses = 1,
                                            .losses = &loss,
                                            .n_metrics = loss.from_logits,
                                            .metrics = &metric},
                           &(manta_session_options){.threads = b->o->threads,
                                                    .kernels = b->o->kernels,
                                                    .precision = b->o->precision,
                                                    .device = b->o->device,
                                                    .workers = b->o->workers},
                           &b->s));
    TRY(make_batch(b));
    TRY(mem_try_array(3 * GEMM * GEMM, sizeof *b->gemm, "matrices", (void **)&b->gemm));
    TRY(mem_try_array(b->o->steps, sizeof *b->times, "times", (void **)&b->times));
    for (int i = 0; i < 2 * GEMM * GEMM; i++) b->gemm[i] = (float)(i % 7) - 3;
    return MANTA_OK;
}

static manta_status one_step(bench *b, double *ms)
{
    int64_t begin = clock_now_ns();
    manta_array out;

    if (b->o->forward) {
        TRY(manta_session_forward(b->s, &b->f, false, 1, &out));
    } else {
        TRY(manta_session_step(b->s, &b->f));
    }
    *ms = (double)(clock_now_ns() - begin) / 1e6;
    return MANTA_OK;
}

static double step_flops(const bench *b)
{
    plan_mode mode = b->o->forward ? PLAN_PREDICT : PLAN_TRAIN;
    int64_t rows = b->o->forward ? session_part_begin(b->o->batch, 1) : b->o->batch;
    double sum = 0;
    exec_time t;

    for (int i = 0; exec_time_at(b->s->e, mode, rows, i, &t); i++) {
        sum += t.flops + (b->o->forward ? 0 : t.backward_flops);
    }
    return sum * (double)b->o->batch / (double)rows;
}

/* Steps of a device: there is no product of the processor to compare with. */
static manta_status run_device(bench *b, const char *model, manta_bench_result *out)
{
    int64_t begin;
    double ms;

    for (int64_t i = 0; i < WARM; i++) TRY(one_step(b, &ms));
    for (int64_t i = 0; i < b->o->steps; i++) TRY(one_step(b, &b->times[i]));
    if (!b->o->forward && !isfinite(session_sums(b->s)[SUM_LOSS]))
        return manta_fail(MANTA_ENAN, "the loss is not a number: the step that was timed is wrong");
    *out = (manta_bench_result){.ms_per_step = find_median(b->times, b->o->steps)};
    out->images_per_s = (double)b->o->batch / out->ms_per_step * 1e3;
    snprintf(out->row, sizeof out->row, "%s %s, batch %lld, %s", model,
             b->o->forward ? "forward" : "training", (long long)b->o->batch, b->s->about);
    if (b->o->forward) return MANTA_OK;
    TRY(session_device_replay(b->s, WARM, &out->device_kernels));
    begin = clock_now_ns();
    TRY(session_device_replay(b->s, b->o->steps, &out->device_kernels));
    out->device_ms = (double)(clock_now_ns() - begin) / 1e6 / (double)b->o->steps;
    return MANTA_OK;
}

static manta_status run_bench(bench *b, const char *model, manta_bench_result *out)
{
    const float *a = b->gemm;
    float *c = b->gemm + 2 * GEMM * GEMM;
    double best = gemm_rate(b->s->pool, a, a + GEMM * GEMM, c), again, ms;

    for (int64_t i = 0; i < WARM; i++) TRY(one_step(b, &ms)); /* plans, pages and clocks warm */
    for (int64_t i = 0; i < b->o->steps; i++) TRY(one_step(b, &b->times[i]));
    again = gemm_rate(b->s->pool, a, a + GEMM * GEMM, c);
    if (again > best) best = again;
    if (!b->o->forward && !isfinite(session_sums(b->s)[SUM_LOSS])) {
        return manta_fail(MANTA_ENAN, "the loss is not a number: the step that was timed is wrong");
    }
    *out = (manta_bench_result){.ms_per_step = find_median(b->times, b->o->steps)};
    out->images_per_s = (double)b->o->batch / out->ms_per_step * 1e3;
    out->gflops = step_flops(b) / out->ms_per_step / 1e6;
    out->gemm_gflops = best;
    out->gemm_share = out->gflops / best;
    snprintf(out->row, sizeof out->row, "%s %s, batch %lld, %s", model,
             b->o->forward ? "forward" : "training", (long long)b->o->batch, b->s->about);
    return MANTA_OK;
}

/* ---- several workers ---- */

static bool on_step(void *user, manta_session *s, const manta_event *e)
{
    bench *b = user;
    int64_t now = clock_now_ns();

    (void)s;
    if (e->kind != MANTA_EVENT_STEP) return true;
    if (b->seen >= WARM && b->seen - WARM < b->o->steps)
        b->times[b->seen - WARM] = (double)(now - b->last) / 1e6;
    b->last = now;
    b->seen++;
    return true;
}

/* What a batch needs, and what the machine has, from one process that uses as
 * many threads as all workers together. */
static manta_status run_workers(bench *b, const char *model, manta_bench_result *out)
{
    manta_bench_options alone = *b->o;
    manta_bench_result one;
    manta_column columns[2] = {{"x", b->f.inputs[0]}, {"y", b->f.targets[0]}};
    manta_dataset *d;
    manta_metrics m;
    manta_status st;

    alone.workers = 1;
    alone.threads = b->o->threads * b->o->workers;
    alone.steps = WARM;
    TRY(manta_bench_train(model, &alone, &one));
    d = manta_dataset_repeat(manta_dataset_arrays(2, columns, MANTA_OWNERSHIP_BORROW), MANTA_FOREVER_COUNT);
    st = manta_fit(b->s, d,
                   &(manta_fit_options){.batch = b->o->batch,
                                        .steps_per_epoch = WARM + b->o->steps,
                                        .no_shuffle = true,
                                        .event = on_step,
                                        .user = b},
                   &m);
    manta_dataset_unref(d);
    if (st) return st;
    if (b->seen != WARM + b->o->steps)
        return manta_fail(MANTA_EINTERNAL, "%lld steps were timed", (long long)b->seen);
    *out = (manta_bench_result){.ms_per_step = find_median(b->times, b->o->steps),
                                .gemm_gflops = one.gemm_gflops};
    out->images_per_s = (double)b->count / out->ms_per_step * 1e3;
    out->gflops = one.gflops * one.ms_per_step * b->o->workers / out->ms_per_step;
    out->gemm_share = out->gflops / out->gemm_gflops;
    snprintf(out->row, sizeof out->row, "%s training, %d workers, batch %lld each, %s", model, b->o->workers,
             (long long)b->o->batch, b->s->about);
    return MANTA_OK;
}

manta_status manta_bench_train(const char *model, const manta_bench_options *o, manta_bench_result *out)
{
    bench b = {.o = o};
    manta_status st;

    if (o->workers < 0 || (o->workers > 1 && o->forward))
        return manta_fail(MANTA_EINVAL, "%d workers: they train, and inference is timed with one",
                          o->workers);
    if (o->batch < 1 || o->steps < 1 || o->steps > MOST_STEPS) {
        return manta_fail(MANTA_EINVAL,
                          "%lld steps of batch %lld, expected 1 to %d steps and a batch of at least 1",
                          (long long)o->steps, (long long)o->batch, MOST_STEPS);
    }
    st = open_bench(&b, model);
    if (!st)
        st = o->workers > 1 ? run_workers(&b, model, out)
             : b.s->on      ? run_device(&b, model, out)
                            : run_bench(&b, model, out);
    manta_session_close(b.s);
    manta_model_free(b.m);
    mem_try_free(b.input);
    mem_try_free(b.target);
    mem_try_free(b.gemm);
    mem_try_free(b.times);
    return st;
}
