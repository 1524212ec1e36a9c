/* onednn.c - the one file that touches oneDNN, 2.6 and later or 3.x.
 *
 * oneDNN may split a sum over its own threads; then the number of threads would
 * change bits. So the work is cut by the shape alone (tiles of a product,
 * chunks of samples of a convolution), every piece is computed by one thread of
 * our pool with oneDNN's own threads turned off, and partial weight gradients
 * are added in chunk order.
 *
 * Primitives are made once per shape and kept; the oldest that nobody uses
 * goes when there are too many. A shape that oneDNN refuses, or a failure inside
 * it, is answered by the reference loops: a kernel has no way to fail.
 *
 * Threads: all functions may be called from several threads; `cache_lock` guards
 * the cache, and an entry in use is never given up. */
#ifdef MANTA_ONEDNN

#include "tensor/conv.h"
#include "tensor/gemm.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include <dnnl.h>

#include "tensor/gemm_sizes.h"

enum {
    PARTS = 8, /* pieces a product, or the samples of a convolution, are cut into */
    MIN_PART = 32, /* rows or columns of a piece of a product */
    LARGE_WEIGHT = 8192, /* elements; from here on few partial gradients */
    TILE_FLOATS = 192 << 10, /* of a product on its way to a sink, in scratch */
    ADD_RUN = 4096,
    CACHE_SIZE = 128
};

/* ---- oneDNN's own threads ---- */

/* oneDNN is usually built on OpenMP, whose number of threads belongs to the
 * calling thread. The library is found among those already loaded, so that we
 * need not know which OpenMP it is; built on another runtime, there is none. */
static void (*omp_set)(int);
static int (*omp_get)(void);
static pthread_once_t omp_once = PTHREAD_ONCE_INIT;

static void find_omp(void)
{
    /* POSIX's way to store a function from dlsym without a cast ISO C forbids. */
    *(void **)&omp_set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    *(void **)&omp_get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
}

/* Returns what to hand to threads_back(): the caller's own setting is kept. */
static int threads_off(void)
{
    pthread_once(&omp_once, find_omp);
    if (!omp_set || !omp_get) return 0;
    const int before = omp_get();
    omp_set(1);
    return before;
}

static void threads_back(int before)
{
    if (before > 0) omp_set(before);
}

/* ---- products ---- */

typedef struct product_job {
    const gemm_call *g;
    pool *p;
    int64_t tm, tn, tiles_n;
} product_job;

static void finish(const gemm_call *g, int64_t i, int64_t j, int64_t n, float *v)
{
    for (int64_t q = 0; q < n; q++) {
        float r = v[q];
        if (g->bias) r += g->bias[j + q];
        if (g->relu && r < 0.0f) r = 0.0f;
        if (g->mask && g->mask[i * g->ldc + j + q] <= 0.0f) r = 0.0f;
        v[q] = r;
    }
}

static void product_task(void *ctx, int task, int thread)
{
    const product_job *job = ctx;
    const gemm_call *g = job->g;
    const int64_t i = task / job->tiles_n * job->tm, rows = min_of(job->tm, g->m - i);
    const int64_t j = task % job->tiles_n * job->tn, cols = min_of(job->tn, g->n - j);
    const int64_t ldc = g->sink ? cols : g->ldc;
    float *c = g->sink ? pool_scratch(job->p, thread) : g->c + i * g->ldc + j;

    if (g->sink && g->accumulate) {
        for (int64_t r = 0; r < rows; r++) {
            memcpy(c + r * cols, g->c + (i + r) * g->ldc + j, (size_t)cols * sizeof *c);
        }
    }
    const float *a = g->a + (g->ta ? i : i * g->lda), *b = g->b + (g->tb ? j * g->ldb : j);
    const int before = threads_off();
    dnnl_status_t st = dnnl_invalid_arguments;
    if (g->k > 0) {
        st = dnnl_sgemm(g->ta ? 'T' : 'N', g->tb ? 'T' : 'N', rows, cols, g->k, 1.0f, a, g->lda, b, g->ldb,
                        g->accumulate ? 1.0f : 0.0f, c, ldc);
    }
    threads_back(before);
    if (st != dnnl_success) {
        const gemm_call part = {.m = rows,
                                .n = cols,
                                .k = g->k,
                                .ta = g->ta,
                                .tb = g->tb,
                                .a = a,
                                .lda = g->lda,
                                .b = b,
                                .ldb = g->ldb,
                                .c = c,
                                .ldc = ldc,
                                .accumulate = g->accumulate};
        gemm_reference(job->p, &part); /* inside a task: on this thread */
    }
    for (int64_t r = 0; r < rows; r++) {
        if (g->bias || g->relu || g->mask) finish(g, i + r, j, cols, c + r * ldc);
        if (g->sink && cols < g->n) g->sink(g->sink_ctx, (i + r) * g->n + j, cols, c + r * cols);
    }
    if (g->sink && cols == g->n) g->sink(g->sink_ctx, i * g->n, rows * cols, c);
}

void gemm_onednn(pool *p, const gemm_call *g)
{
    product_job job = {.g = g, .p = p, .tm = g->m, .tn = g->n};

    if (g->m == 0 || g->n == 0) return;
    if (g->sink) {
        job.tn = min_of(g->n, TILE_FLOATS);
        job.tm = min_of(max_of(MIN_PART, ceil_div(g->m, PARTS)), TILE_FLOATS / job.tn);
    } else if (g->m > g->n) {
        job.tm = max_of(MIN_PART, ceil_div(g->m, PARTS));
    } else {
        job.tn = max_of(MIN_PART, ceil_div(ceil_div(g->n, PARTS), 16) * 16);
    }
    job.tiles_n = ceil_div(g->n, job.tn);
    pool_run(p, (int)(ceil_div(g->m, job.tm) * job.tiles_n), product_task, &job);
}

void gemm_pair_onednn(pool *p, const gemm_call *first, const gemm_call *second)
{
    gemm_onednn(p, first);
    gemm_onednn(p, second);
}

/* ---- descriptors: a structure in 2.x, a handle in 3.x ---- */

#if DNNL_VERSION_MAJOR >= 3
#define MD(md) (md)
typedef const_dnnl_memory_desc_t md_ref;
typedef dnnl_memory_desc_t md_own;
#else
#define MD(md) (&(md))
typedef const dnnl_memory_desc_t *md_ref;
typedef dnnl_memory_desc_t md_own;
#endif

/* strides NULL: oneDNN chooses the layout. */
static dnnl_status_t md_new(md_own *md, int n, const dnnl_dim_t *dims, const dnnl_dim_t *strides)
{
#if DNNL_VERSION_MAJOR >= 3
    if (strides) return dnnl_memory_desc_create_with_strides(md, n, dims, dnnl_f32, strides);
    return dnnl_memory_desc_create_with_tag(md, n, dims, dnnl_f32, dnnl_format_tag_any);
#else
    if (strides) return dnnl_memory_desc_init_by_strides(md, n, dims, dnnl_f32, strides);
    return dnnl_memory_desc_init_by_tag(md, n, dims, dnnl_f32, dnnl_format_tag_any);
#endif
}

static void md_free(md_own *md)
{
#if DNNL_VERSION_MAJOR >= 3
    if (*md) dnnl_memory_desc_destroy(*md);
#endif
    memset(md, 0, sizeof *md);
}

/* ---- primitives ---- */

typedef enum pass { FORWARD, DATA, WEIGHTS } pass;

/* What a convolution of one shape and pass needs; shape.n is a chunk's. The
 * weight has the layout oneDNN likes best, reordered from ours or to it. */
typedef struct primitive {
    pass pass;
    conv_shape shape;
    bool usable; /* oneDNN has one */
    bool reordered;
    md_own x, w_ours, y;
    dnnl_primitive_desc_t pd; /* owns the chosen layout of the weight */
    dnnl_primitive_t conv, reorder;
    size_t w_size, scratch_size;
    int users; /* guarded by cache_lock, as is the next */
    uint64_t last_use;
} primitive;

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static primitive cache[CACHE_SIZE]; /* free places have last_use 0 */
static uint64_t cache_clock;
static dnnl_engine_t engine; /* made with the first primitive */

static size_t round_up(size_t size)
{
    return (size + 63) & ~(size_t)63;
}

static md_ref chosen(dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

static dnnl_status_t make_descriptors(primitive *p, md_own *any)
{
    const conv_shape *s = &p->shape;
    const int64_t cg = s->c / s->groups, ocg = s->oc / s->groups;
    const dnnl_dims_t x = {s->n, s->c, s->h, s->w}, x_at = {s->h * s->w * s->c, 1, s->w * s->c, s->c};
    const dnnl_dims_t y = {s->n, s->oc, s->oh, s->ow},
                      y_at = {s->oh * s->ow * s->oc, 1, s->ow * s->oc, s->oc};
    dnnl_dims_t w = {0}, w_at = {0};
    int n_w = 0;

    if (s->groups > 1) { /* plain convolutions have no such dimension */
        w[n_w] = s->groups;
        w_at[n_w++] = ocg;
    }
    w[n_w] = ocg;
    w_at[n_w++] = 1;
    w[n_w] = cg;
    w_at[n_w++] = s->oc;
    w[n_w] = s->kh;
    w_at[n_w++] = s->kw * cg * s->oc;
    w[n_w] = s->kw;
    w_at[n_w++] = cg * s->oc;
    dnnl_status_t st = md_new(&p->x, 4, x, x_at);
    if (st == dnnl_success) st = md_new(&p->y, 4, y, y_at);
    if (st == dnnl_success) st = md_new(&p->w_ours, n_w, w, w_at);
    if (st == dnnl_success) st = md_new(any, n_w, w, NULL);
    return st;
}

static dnnl_status_t make_pd(primitive *p, md_own *any, dnnl_primitive_attr_t attr)
{
    const conv_shape *s = &p->shape;
    const dnnl_dims_t strides = {s->sh, s->sw}, dilates = {s->dh - 1, s->dw - 1}, before = {s->top, s->left};
    const dnnl_dims_t after = {(s->oh - 1) * s->sh + (s->kh - 1) * s->dh + 1 - s->h - s->top,
                               (s->ow - 1) * s->sw + (s->kw - 1) * s->dw + 1 - s->w - s->left};
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_status_t st;
    dnnl_primitive_desc_t hint = NULL; /* the forward pass that a backward pass belongs to */

#if DNNL_VERSION_MAJOR >= 3
    st = dnnl_convolution_forward_primitive_desc_create(p->pass == FORWARD ? &p->pd : &hint, engine,
                                                        dnnl_forward_training, alg, p->x, *any, NULL, p->y,
                                                        strides, dilates, before, after, attr);
    if (st == dnnl_success && p->pass == DATA) {
        st = dnnl_convolution_backward_data_primitive_desc_create(
            &p->pd, engine, alg, p->x, *any, p->y, strides, dilates, before, after, hint, attr);
    } else if (st == dnnl_success && p->pass == WEIGHTS) {
        st = dnnl_convolution_backward_weights_primitive_desc_create(
            &p->pd, engine, alg, p->x, *any, NULL, p->y, strides, dilates, before, after, hint, attr);
    }
#else
    dnnl_convolution_desc_t d;
    st = dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, alg, &p->x, any, NULL, &p->y,
                                                    strides, dilates, before, after);
    if (st == dnnl_success) {
        st = dnnl_primitive_desc_create(p->pass == FORWARD ? &p->pd : &hint, &d, attr, engine, NULL);
    }
    if (st == dnnl_success && p->pass == DATA) {
        st = dnnl_dilated_convolution_backward_data_desc_init(&d, alg, &p->x, any, &p->y, strides, dilates,
                                                              before, after);
    } else if (st == dnnl_success && p->pass == WEIGHTS) {
        st = dnnl_dilated_convolution_backward_weights_desc_init(&d, alg, &p->x, any, NULL, &p->y, strides,
                                                                 dilates, before, after);
    }
    if (st == dnnl_success && p->pass != FORWARD)
        st = dnnl_primitive_desc_create(&p->pd, &d, attr, engine, hint);
#endif
    if (hint) dnnl_primitive_desc_destroy(hint);
    return st;
}

static dnnl_status_t make_reorder(primitive *p, md_ref w)
{
    dnnl_primitive_desc_t pd;
    md_ref from = p->pass == WEIGHTS ? w : MD(p->w_ours), to = p->pass == WEIGHTS ? MD(p->w_ours) : w;
    dnnl_status_t st = dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL);

    if (st != dnnl_success) return st;
    st = dnnl_primitive_create(&p->reorder, pd);
    dnnl_primitive_desc_destroy(pd);
    return st;
}

static dnnl_status_t make_parts(primitive *p)
{
    md_own any;
    dnnl_primitive_attr_t attr = NULL;

    memset(&any, 0, sizeof any);
    dnnl_status_t st = engine ? dnnl_success : dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (st == dnnl_success) st = dnnl_primitive_attr_create(&attr);
    if (st == dnnl_success) st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success) st = make_descriptors(p, &any);
    if (st == dnnl_success) st = make_pd(p, &any, attr);
    if (st == dnnl_success) st = dnnl_primitive_create(&p->conv, p->pd);
    if (st == dnnl_success) {
        md_ref w = chosen(p->pd, p->pass == WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
        p->reordered = !dnnl_memory_desc_equal(w, MD(p->w_ours));
        p->w_size = round_up(dnnl_memory_desc_get_size(w));
        p->scratch_size = round_up(dnnl_memory_desc_get_size(chosen(p->pd, dnnl_query_scratchpad_md)));
        if (p->reordered) st = make_reorder(p, w);
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    md_free(&any);
    return st;
}

static void primitive_release(primitive *p)
{
    if (p->conv) dnnl_primitive_destroy(p->conv);
    if (p->reorder) dnnl_primitive_destroy(p->reorder);
    if (p->pd) dnnl_primitive_desc_destroy(p->pd);
    md_free(&p->x);
    md_free(&p->w_ours);
    md_free(&p->y);
    memset(p, 0, sizeof *p);
}

/* A place for a new primitive: a free one, or that of the oldest nobody uses;
 * NULL when all are in use. */
static primitive *find_place(void)
{
    primitive *oldest = NULL;

    for (int i = 0; i < CACHE_SIZE; i++) {
        if (cache[i].users > 0) continue;
        if (!oldest || cache[i].last_use < oldest->last_use) oldest = &cache[i];
    }
    return oldest;
}

/* The primitive of that pass and shape, kept from now on until primitive_give().
 * NULL: oneDNN has none for it, use the reference. */
static primitive *primitive_take(pass what, const conv_shape *s, int64_t samples)
{
    conv_shape shape = *s;
    primitive *p = NULL;

    shape.n = samples;
    if (samples == 0) return NULL;
    pthread_mutex_lock(&cache_lock);
    for (int i = 0; i < CACHE_SIZE && !p; i++) {
        primitive *q = &cache[i];
        if (q->last_use > 0 && q->pass == what && !memcmp(&q->shape, &shape, sizeof shape)) p = q;
    }
    if (!p && (p = find_place())) {
        primitive_release(p);
        p->pass = what;
        p->shape = shape;
        const int before = threads_off();
        p->usable = make_parts(p) == dnnl_success;
        threads_back(before);
    }
    if (p) {
        p->last_use = ++cache_clock;
        if (p->usable) {
            p->users++;
        } else {
            p = NULL;
        }
    }
    pthread_mutex_unlock(&cache_lock);
    return p;
}

static void primitive_give(primitive *p)
{
    if (!p) return;
    pthread_mutex_lock(&cache_lock);
    p->users--;
    pthread_mutex_unlock(&cache_lock);
}

static bool primitive_is_reordered(const primitive *p)
{
    return p->reordered;
}

static size_t primitive_size(const primitive *p, bool weight)
{
    return weight ? p->w_size : p->scratch_size;
}

/* ---- running one ---- */

typedef struct argument {
    int kind;
    md_ref md;
    void *data; /* what is only read comes here through readable() */
} argument;

static void *readable(const float *p)
{
    return (void *)(uintptr_t)p;
}

static dnnl_status_t execute(dnnl_primitive_t what, int n, const argument *args)
{
    enum { MAX_ARGS = 4 };
    dnnl_exec_arg_t exec[MAX_ARGS];
    dnnl_stream_t stream = NULL;
    const int before = threads_off();
    int made = 0;
    dnnl_status_t st = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);

    for (; st == dnnl_success && made < n; made++) {
        exec[made].arg = args[made].kind;
        st = dnnl_memory_create(&exec[made].memory, args[made].md, engine, args[made].data);
        if (st != dnnl_success) break;
    }
    if (st == dnnl_success) st = dnnl_primitive_execute(what, stream, n, exec);
    if (st == dnnl_success) st = dnnl_stream_wait(stream);
    for (int i = 0; i < made; i++) dnnl_memory_destroy(exec[i].memory);
    if (stream) dnnl_stream_destroy(stream);
    threads_back(before);
    return st;
}

static bool run_reorder(const primitive *p, const float *from, float *to)
{
    md_ref w = chosen(p->pd, p->pass == WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
    const argument args[] = {{DNNL_ARG_FROM, p->pass == WEIGHTS ? w : MD(p->w_ours), readable(from)},
                             {DNNL_ARG_TO, p->pass == WEIGHTS ? MD(p->w_ours) : w, to}};

    return execute(p->reorder, 2, args) == dnnl_success;
}

/* One of x, w and y is the result, by the pass; it is written. */
static bool run_conv(const primitive *p, const float *x, const float *w, const float *y, void *scratch)
{
    const bool forward = p->pass == FORWARD, data = p->pass == DATA;
    md_ref w_md = chosen(p->pd, p->pass == WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
    const argument args[] = {
        {data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, MD(p->x), readable(x)},
        {p->pass == WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, w_md, readable(w)},
        {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, MD(p->y), readable(y)},
        {DNNL_ARG_SCRATCHPAD, chosen(p->pd, dnnl_query_scratchpad_md), scratch}};

    return execute(p->conv, 4, args) == dnnl_success;
}

/* ---- convolutions ---- */

/* One pass: `parts` chunks of `chunk` samples, the last perhaps shorter, which
 * is another primitive. Work:
 *   forward, data:  | weight | weight for the last | per thread: scratchpad, dx to be added |
 *   weights:        | partial gradients | per thread: scratchpad, weight |  */
typedef struct conv_job {
    const conv_call *c;
    pool *p;
    int64_t chunk, parts, last; /* last: samples of the last chunk when shorter, else 0 */
    primitive *main, *rest;
    const float *w_main, *w_rest;
    char *per_thread;
    size_t per_thread_size, scratch_size;
    float *partial;
    int64_t n_x, n_y, n_w; /* elements of a sample's input and output, and of the weight */
} conv_job;

static size_t larger(const primitive *a, const primitive *b, bool weight)
{
    const size_t x = !a ? 0 : primitive_size(a, weight);
    const size_t y = !b ? 0 : primitive_size(b, weight);

    return x > y ? x : y;
}

/* Takes the primitives and lays out the work memory; returns its size. */
static size_t job_plan(conv_job *job, pass what, const conv_shape *s, int threads, void *work)
{
    job->n_x = s->h * s->w * s->c;
    job->n_y = s->oh * s->ow * s->oc;
    job->n_w = s->kh * s->kw * (s->c / s->groups) * s->oc;
    const int64_t parts = what != WEIGHTS ? PARTS : job->n_w >= LARGE_WEIGHT ? PARTS / 2 : 2 * PARTS;
    job->chunk = max_of(1, ceil_div(s->n, parts));
    job->parts = max_of(1, ceil_div(s->n, job->chunk));
    job->last = s->n % job->chunk;
    job->main = primitive_take(what, s, s->n >= job->chunk ? job->chunk : 0);
    job->rest = primitive_take(what, s, job->last);
    job->scratch_size = larger(job->main, job->rest, false);
    const size_t weight = larger(job->main, job->rest, true);
    size_t shared = 2 * weight, own = round_up((size_t)(job->chunk * job->n_x) * sizeof(float));
    if (what == FORWARD) own = 0;
    if (what == WEIGHTS) {
        shared = round_up((size_t)(job->parts * job->n_w) * sizeof(float));
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
    primitive_give(job->main);
    primitive_give(job->rest);
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
static bool job_weight(primitive *p, const float *ours, const float **slot)
{
    float *copy = (float *)(uintptr_t)*slot;

    *slot = ours;
    if (!p || !primitive_is_reordered(p)) return true;
    *slot = copy;
    return run_reorder(p, ours, copy);
}

static void job_weights(conv_job *job)
{
    if (!job_weight(job->main, job->c->w, &job->w_main)) {
        primitive_give(job->main);
        job->main = NULL;
    }
    if (!job_weight(job->rest, job->c->w, &job->w_rest)) {
        primitive_give(job->rest);
        job->rest = NULL;
    }
}

static void forward_task(void *ctx, int task, int thread)
{
    const conv_job *job = ctx;
    const conv_call c = part_call(job, task);
    const bool whole = c.s.n == job->chunk;
    const primitive *p = whole ? job->main : job->rest;
    void *scratch = job->per_thread + (size_t)thread * job->per_thread_size;

    assert(c.y);
    if (!p || !run_conv(p, c.x, whole ? job->w_main : job->w_rest, c.y, scratch)) {
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
    job_plan(&job, FORWARD, &c->s, pool_threads(p), c->work);
    job_weights(&job);
    pool_run(p, (int)job.parts, forward_task, &job);
    job_end(&job);
}

static void data_task(void *ctx, int task, int thread)
{
    const conv_job *job = ctx;
    const conv_call c = part_call(job, task);
    const bool whole = c.s.n == job->chunk;
    const primitive *p = whole ? job->main : job->rest;
    char *mine = job->per_thread + (size_t)thread * job->per_thread_size;
    float *dx = c.accumulate ? (float *)(void *)(mine + job->scratch_size) : c.dx;

    assert(c.dx && dx);
    if (!p || !run_conv(p, dx, whole ? job->w_main : job->w_rest, c.dy, mine)) {
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
    job_plan(&job, DATA, &c->s, pool_threads(p), c->work);
    job_weights(&job);
    pool_run(p, (int)job.parts, data_task, &job);
    job_end(&job);
}

static void weights_task(void *ctx, int task, int thread)
{
    const conv_job *job = ctx;
    conv_call c = part_call(job, task);
    const primitive *p = c.s.n == job->chunk ? job->main : job->rest;
    char *mine = job->per_thread + (size_t)thread * job->per_thread_size;
    float *out = job->partial + (int64_t)task * job->n_w;
    float *dw = p && primitive_is_reordered(p) ? (float *)(void *)(mine + job->scratch_size) : out;

    if (p && run_conv(p, c.x, dw, c.dy, mine) && (!primitive_is_reordered(p) || run_reorder(p, dw, out)))
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

    job_plan(&job, WEIGHTS, &c->s, pool_threads(p), c->work);
    if (c->s.n > 0) pool_run(p, (int)job.parts, weights_task, &job);
    pool_run(p, (int)ceil_div(job.n_w, ADD_RUN), add_task, &job);
    job_end(&job);
}

size_t conv_work_onednn(const conv_shape *s, int threads)
{
    size_t most = 0;

    for (pass what = FORWARD; what <= WEIGHTS; what++) {
        conv_job job = {0};
        const size_t size = job_plan(&job, what, s, threads, NULL);
        if (size > most) most = size;
        job_end(&job);
    }
    return most;
}

#else
typedef int onednn_is_not_built; /* a translation unit must not be empty */
#endif
