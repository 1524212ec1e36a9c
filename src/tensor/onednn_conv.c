/* onednn_conv.c - convolutions by oneDNN: cut into chunks of samples, one primitive
 * for all of them.
 *
 * The shape alone says how many chunks there are; each is computed by one thread of
 * our pool, and partial weight gradients are added in chunk order, so the number of
 * threads does not show in the bits. A chunk for which there is no primitive, or
 * whose primitive fails, is computed by the reference loops. */
#ifdef MANTA_ONEDNN

#include "tensor/conv.h"

#include <assert.h>
#include <string.h>

#include "tensor/gemm_sizes.h"
#include "tensor/onednn.h"

enum {
    LARGE_WEIGHT = 8192, /* elements; from here on few partial gradients */
    ADD_RUN = 4096
};

/* One pass: `parts` chunks of `chunk` samples, the last perhaps shorter, which
 * is another primitive. Work:
 *   forward, data:  | weight | weight for the last | per thread: scratchpad, dx to be added |
 *   weights:        | partial gradients | per thread: scratchpad, weight |  */
typedef struct conv_job {
    const conv_call *c;
    pool *p;
    int64_t chunk, parts, last; /* last: samples of the last chunk when shorter, else 0 */
    onednn_primitive *main, *rest;
    const float *w_main, *w_rest;
    char *per_thread;
    size_t per_thread_size, scratch_size;
    float *partial;
    int64_t n_x, n_y, n_w; /* elements of a sample's input and output, and of the weight */
} conv_job;

static size_t larger_size(const onednn_primitive *a, const onednn_primitive *b, bool weight)
{
    const size_t x = !a ? 0 : onednn_size(a, weight);
    const size_t y = !b ? 0 : onednn_size(b, weight);

    return x > y ? x : y;
}

/* Takes the primitives and lays out the work memory; returns its size. */
static size_t job_plan(conv_job *job, onednn_pass what, const conv_shape *s, int threads, void *work)
{
    job->n_x = s->h * s->w * s->c;
    job->n_y = s->oh * s->ow * s->oc;
    job->n_w = s->kh * s->kw * (s->c / s->groups) * s->oc;
    const int64_t parts = what != ONEDNN_WEIGHTS     ? ONEDNN_PARTS
                          : job->n_w >= LARGE_WEIGHT ? ONEDNN_PARTS / 2
                                                     : 2 * ONEDNN_PARTS;
    job->chunk = max_of(1, ceil_div(s->n, parts));
    job->parts = max_of(1, ceil_div(s->n, job->chunk));
    job->last = s->n % job->chunk;
    job->main = onednn_take(what, s, s->n >= job->chunk ? job->chunk : 0);
    job->rest = onednn_take(what, s, job->last);
    job->scratch_size = larger_size(job->main, job->rest, false);
    const size_t weight = larger_size(job->main, job->rest, true);
    size_t shared = 2 * weight, own = onednn_round_up((size_t)(job->chunk * job->n_x) * sizeof(float));
    if (what == ONEDNN_FORWARD) own = 0;
    if (what == ONEDNN_WEIGHTS) {
        shared = onednn_round_up((size_t)(job->parts * job->n_w) * sizeof(float));
        own = weight;
    }
    job->per_thread_size = job->scratch_size + own;
    if (work) {
        job->partial = work;
        job->w_main = work;
        job->w_rest = (float *)(void *)((char *)work + weight);
        job->per_thread = (char *)work + shared;
    }
    return shared + (size_t)threads * job->per_thread_size;
}

static void job_end(conv_job *job)
{
    onednn_give(job->main);
    onednn_give(job->rest);
}

/* The call for the samples of one chunk alone. */
static conv_call part_call(const conv_job *job, int64_t part)
{
    const int64_t n0 = part * job->chunk;
    conv_call c = *job->c;

    c.s.n = min_of(job->chunk, job->c->s.n - n0);
    c.x = c.x ? c.x + n0 * job->n_x : NULL;
    c.dy = c.dy ? c.dy + n0 * job->n_y : NULL;
    c.y = c.y ? c.y + n0 * job->n_y : NULL;
    c.dx = c.dx ? c.dx + n0 * job->n_x : NULL;
    c.mask = c.mask ? c.mask + n0 * job->n_x : NULL;
    return c;
}

/* The weight in the layout the primitive wants; false when that failed. */
static bool job_weight(onednn_primitive *p, const float *ours, const float **slot)
{
    float *copy = (float *)(uintptr_t)*slot;

    *slot = ours;
    if (!p || !onednn_is_reordered(p)) return true;
    *slot = copy;
    return onednn_run_reorder(p, ours, copy);
}

static void job_weights(conv_job *job)
{
    if (!job_weight(job->main, job->c->w, &job->w_main)) {
        onednn_give(job->main);
        job->main = NULL;
    }
    if (!job_weight(job->rest, job->c->w, &job->w_rest)) {
        onednn_give(job->rest);
        job->rest = NULL;
    }
}

static void forward_task(void *ctx, int task, int thread)
{
    const conv_job *job = ctx;
    const conv_call c = part_call(job, task);
    const bool whole = c.s.n == job->chunk;
    const onednn_primitive *p = whole ? job->main : job->rest;
    void *scratch = job->per_thread + (size_t)thread * job->per_thread_size;

    assert(c.y);
    if (!p || !onednn_run_conv(p, c.x, whole ? job->w_main : job->w_rest, c.y, scratch)) {
        conv_forward_reference(job->p, &c); /* inside a task: on this thread */
        return;
    }
    if (!c.bias && !c.relu) return;
    for (int64_t i = 0; i < c.s.n * job->n_y; i += c.s.oc) {
        for (int64_t o = 0; o < c.s.oc; o++) {
            const float v = c.bias ? c.y[i + o] + c.bias[o] : c.y[i + o];
            c.y[i + o] = c.relu && v < 0.0f ? 0.0f : v;
        }
    }
}

void conv_forward_onednn(pool *p, const conv_call *c)
{
    conv_job job = {.c = c, .p = p};

    if (c->s.n == 0) return;
    job_plan(&job, ONEDNN_FORWARD, &c->s, pool_threads(p), c->work);
    job_weights(&job);
    pool_run(p, (int)job.parts, forward_task, &job);
    job_end(&job);
}

static void data_task(void *ctx, int task, int thread)
{
    const conv_job *job = ctx;
    const conv_call c = part_call(job, task);
    const bool whole = c.s.n == job->chunk;
    const onednn_primitive *p = whole ? job->main : job->rest;
    char *mine = job->per_thread + (size_t)thread * job->per_thread_size;
    float *dx = c.accumulate ? (float *)(void *)(mine + job->scratch_size) : c.dx;

    assert(c.dx && dx);
    if (!p || !onednn_run_conv(p, dx, whole ? job->w_main : job->w_rest, c.dy, mine)) {
        conv_backward_data_reference(job->p, &c);
        return;
    }
    if (!c.accumulate && !c.mask) return;
    for (int64_t i = 0; i < c.s.n * job->n_x; i++) {
        const float v = c.accumulate ? c.dx[i] + dx[i] : dx[i];
        c.dx[i] = c.mask && c.mask[i] <= 0.0f ? 0.0f : v;
    }
}

void conv_backward_data_onednn(pool *p, const conv_call *c)
{
    conv_job job = {.c = c, .p = p};

    if (c->s.n == 0) return;
    job_plan(&job, ONEDNN_DATA, &c->s, pool_threads(p), c->work);
    job_weights(&job);
    pool_run(p, (int)job.parts, data_task, &job);
    job_end(&job);
}

static void weights_task(void *ctx, int task, int thread)
{
    const conv_job *job = ctx;
    conv_call c = part_call(job, task);
    const onednn_primitive *p = c.s.n == job->chunk ? job->main : job->rest;
    char *mine = job->per_thread + (size_t)thread * job->per_thread_size;
    float *out = job->partial + (int64_t)task * job->n_w;
    float *dw = p && onednn_is_reordered(p) ? (float *)(void *)(mine + job->scratch_size) : out;

    if (p && onednn_run_conv(p, c.x, dw, c.dy, mine) &&
        (!onednn_is_reordered(p) || onednn_run_reorder(p, dw, out)))
        return;
    c.dw = out;
    c.accumulate = false;
    c.sink = NULL;
    conv_backward_weights_reference(job->p, &c);
}

static void add_task(void *ctx, int task, int thread)
{
    const conv_job *job = ctx;
    const conv_call *c = job->c;
    const int64_t first = (int64_t)task * ADD_RUN, n = min_of(ADD_RUN, job->n_w - first);
    float *out = c->sink ? pool_scratch(job->p, thread) : c->dw + first;

    if (!c->accumulate) {
        memset(out, 0, (size_t)n * sizeof *out);
    } else if (c->sink) {
        memcpy(out, c->dw + first, (size_t)n * sizeof *out);
    }
    for (int64_t part = 0; part < job->parts && c->s.n > 0; part++) {
        const float *add = job->partial + part * job->n_w + first;
        for (int64_t i = 0; i < n; i++) out[i] += add[i];
    }
    if (c->sink) c->sink(c->sink_ctx, first, n, out);
}

void conv_backward_weights_onednn(pool *p, const conv_call *c)
{
    conv_job job = {.c = c, .p = p};

    job_plan(&job, ONEDNN_WEIGHTS, &c->s, pool_threads(p), c->work);
    if (c->s.n > 0) pool_run(p, (int)job.parts, weights_task, &job);
    pool_run(p, (int)ceil_div(job.n_w, ADD_RUN), add_task, &job);
    job_end(&job);
}

size_t conv_work_onednn(const conv_shape *s, int threads)
{
    size_t most = 0;

    for (onednn_pass what = ONEDNN_FORWARD; what <= ONEDNN_WEIGHTS; what++) {
        conv_job job = {0};
        const size_t size = job_plan(&job, what, s, threads, NULL);
        if (size > most) most = size;
        job_end(&job);
    }
    return most;
}

#else
typedef int onednn_conv_is_not_built; /* a translation unit must not be empty */
#endif
