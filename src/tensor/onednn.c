/* onednn.c - the one file that touches oneDNN, 2.6 and later or 3.x: its threads,
 * products, and the primitives of convolutions (onednn_conv.c runs those).
 *
 * The library, 40 MB with what it needs, is opened when its kernels are first asked for (onednn_open())
 * and not linked: who has none of it loses these kernels and nothing else.
 *
 * oneDNN may split a sum over its own threads; then the number of threads would
 * change bits. So the work is cut by the shape alone (tiles of a product,
 * chunks of samples of a convolution), and every piece is computed by one thread of
 * our pool with oneDNN's own threads turned off.
 *
 * Primitives are made once per shape and kept; the oldest that nobody uses
 * goes when there are too many. A shape that oneDNN refuses, or a failure inside
 * it, is answered by the reference loops: a kernel has no way to fail.
 *
 * Threads: all functions may be called from several threads; `cache_lock` guards
 * the cache, and an entry in use is never given up. */
#ifdef MANTA_ONEDNN

#include "tensor/gemm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <dnnl.h>

#include "tensor/gemm_sizes.h"
#include "tensor/onednn.h"

enum {
    MIN_PART = 32, /* rows or columns of a piece of a product */
    TILE_FLOATS = 192 << 10, /* of a product on its way to a sink, in scratch */
    CACHE_SIZE = 128
};

/* ---- the library ---- */

#define COMMON(F)                                                                                            \
    F(dnnl_engine_create)                                                                                    \
    F(dnnl_memory_create)                                                                                    \
    F(dnnl_memory_desc_equal)                                                                                \
    F(dnnl_memory_desc_get_size)                                                                             \
    F(dnnl_memory_destroy)                                                                                   \
    F(dnnl_primitive_attr_create)                                                                            \
    F(dnnl_primitive_attr_destroy)                                                                           \
    F(dnnl_primitive_attr_set_scratchpad_mode)                                                               \
    F(dnnl_primitive_create)                                                                                 \
    F(dnnl_primitive_desc_destroy)                                                                           \
    F(dnnl_primitive_desc_query_md)                                                                          \
    F(dnnl_primitive_destroy)                                                                                \
    F(dnnl_primitive_execute)                                                                                \
    F(dnnl_reorder_primitive_desc_create)                                                                    \
    F(dnnl_sgemm)                                                                                            \
    F(dnnl_stream_create)                                                                                    \
    F(dnnl_stream_destroy)                                                                                   \
    F(dnnl_stream_wait)
#if DNNL_VERSION_MAJOR >= 3
#define OF_VERSION(F)                                                                                        \
    F(dnnl_convolution_backward_data_primitive_desc_create)                                                  \
    F(dnnl_convolution_backward_weights_primitive_desc_create)                                               \
    F(dnnl_convolution_forward_primitive_desc_create)                                                        \
    F(dnnl_memory_desc_create_with_strides)                                                                  \
    F(dnnl_memory_desc_create_with_tag)                                                                      \
    F(dnnl_memory_desc_destroy)
#else
#define OF_VERSION(F)                                                                                        \
    F(dnnl_dilated_convolution_backward_data_desc_init)                                                      \
    F(dnnl_dilated_convolution_backward_weights_desc_init)                                                   \
    F(dnnl_dilated_convolution_forward_desc_init)                                                            \
    F(dnnl_memory_desc_init_by_strides)                                                                      \
    F(dnnl_memory_desc_init_by_tag)                                                                          \
    F(dnnl_primitive_desc_create)
#endif
#define FUNCTIONS(F)   COMMON(F) OF_VERSION(F)

#define TEXT_OF(x)     #x
#define NAME_OF(major) "libdnnl.so." TEXT_OF(major)
#define LIBRARY        NAME_OF(DNNL_VERSION_MAJOR)

#define FIELD(f)       __typeof__(&(f)) f;
static struct {
    FUNCTIONS(FIELD)
} lib; /* written once, by open_library() */
#undef FIELD

static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static void *library; /* NULL: there is none, and library_fault says why */
static char library_fault[256];

static bool load_function(void *from, const char *name, void *to)
{
    void *at = dlsym(from, name);

    if (at) memcpy(to, &at, sizeof at);
    return at != NULL;
}

static void open_library(void)
{
    void *from = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!from) {
        snprintf(library_fault, sizeof library_fault, "%s", dlerror());
        return;
    }
#define LOAD(f)                                                                                              \
    if (!load_function(from, #f, &lib.f)) {                                                                  \
        snprintf(library_fault, sizeof library_fault, "%s has no function %s", LIBRARY, #f);                 \
        dlclose(from);                                                                                       \
        return;                                                                                              \
    }
    FUNCTIONS(LOAD)
#undef LOAD
    library = from;
}

bool onednn_open(const char **why)
{
    pthread_once(&library_once, open_library);
    if (why) *why = library_fault;
    return library != NULL;
}

/* ---- oneDNN's own threads ---- */

/* oneDNN is usually built on OpenMP, whose number of threads belongs to the
 * calling thread. The functions are looked for in what oneDNN has brought along, so that we
 * need not know which OpenMP it is; built on another runtime, there is none. */
static void (*omp_set)(int);
static int (*omp_get)(void);
static pthread_once_t omp_once = PTHREAD_ONCE_INIT;

static void find_omp(void)
{
    /* POSIX's way to store a function from dlsym without a cast ISO C forbids. */
    *(void **)&omp_set = dlsym(library, "omp_set_num_threads");
    *(void **)&omp_get = dlsym(library, "omp_get_max_threads");
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

static void finish_row(const gemm_call *g, int64_t i, int64_t j, int64_t n, float *v)
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
        st = lib.dnnl_sgemm(g->ta ? 'T' : 'N', g->tb ? 'T' : 'N', rows, cols, g->k, 1.0f, a, g->lda, b,
                            g->ldb, g->accumulate ? 1.0f : 0.0f, c, ldc);
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
        if (g->bias || g->relu || g->mask) finish_row(g, i + r, j, cols, c + r * ldc);
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
        job.tm = min_of(max_of(MIN_PART, ceil_div(g->m, ONEDNN_PARTS)), TILE_FLOATS / job.tn);
    } else if (g->m > g->n) {
        job.tm = max_of(MIN_PART, ceil_div(g->m, ONEDNN_PARTS));
    } else {
        job.tn = max_of(MIN_PART, ceil_div(ceil_div(g->n, ONEDNN_PARTS), 16) * 16);
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
    if (strides) return lib.dnnl_memory_desc_create_with_strides(md, n, dims, dnnl_f32, strides);
    return lib.dnnl_memory_desc_create_with_tag(md, n, dims, dnnl_f32, dnnl_format_tag_any);
#else
    if (strides) return lib.dnnl_memory_desc_init_by_strides(md, n, dims, dnnl_f32, strides);
    return lib.dnnl_memory_desc_init_by_tag(md, n, dims, dnnl_f32, dnnl_format_tag_any);
#endif
}

static void md_free(md_own *md)
{
#if DNNL_VERSION_MAJOR >= 3
    if (*md) lib.dnnl_memory_desc_destroy(*md);
#endif
    memset(md, 0, sizeof *md);
}

/* ---- primitives ---- */

/* What a convolution of one shape and pass needs; shape.n is a chunk's. The
 * weight has the layout oneDNN likes best, reordered from ours or to it. */
struct onednn_primitive {
    onednn_pass pass;
    conv_shape shape;
    bool usable; /* oneDNN has one */
    bool reordered;
    md_own x, w_ours, y;
    dnnl_primitive_desc_t pd; /* owns the chosen layout of the weight */
    dnnl_primitive_t conv, reorder;
    size_t w_size, scratch_size;
    int users; /* guarded by cache_lock, as is the next */
    uint64_t last_use;
};

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static onednn_primitive cache[CACHE_SIZE]; /* free places have last_use 0 */
static uint64_t cache_clock;
static dnnl_engine_t engine; /* made with the first primitive */

static md_ref chosen_layout(dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return lib.dnnl_primitive_desc_query_md(pd, what, 0);
}

static dnnl_status_t make_descriptors(onednn_primitive *p, md_own *any)
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

static dnnl_status_t make_pd(onednn_primitive *p, md_own *any, dnnl_primitive_attr_t attr)
{
    const conv_shape *s = &p->shape;
    const dnnl_dims_t strides = {s->sh, s->sw}, dilates = {s->dh - 1, s->dw - 1}, before = {s->top, s->left};
    const dnnl_dims_t after = {(s->oh - 1) * s->sh + (s->kh - 1) * s->dh + 1 - s->h - s->top,
                               (s->ow - 1) * s->sw + (s->kw - 1) * s->dw + 1 - s->w - s->left};
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_status_t st;
    dnnl_primitive_desc_t hint = NULL; /* the forward pass that a backward pass belongs to */

#if DNNL_VERSION_MAJOR >= 3
    st = lib.dnnl_convolution_forward_primitive_desc_create(
        p->pass == ONEDNN_FORWARD ? &p->pd : &hint, engine, dnnl_forward_training, alg, p->x, *any, NULL,
        p->y, strides, dilates, before, after, attr);
    if (st == dnnl_success && p->pass == ONEDNN_DATA) {
        st = lib.dnnl_convolution_backward_data_primitive_desc_create(
            &p->pd, engine, alg, p->x, *any, p->y, strides, dilates, before, after, hint, attr);
    } else if (st == dnnl_success && p->pass == ONEDNN_WEIGHTS) {
        st = lib.dnnl_convolution_backward_weights_primitive_desc_create(
            &p->pd, engine, alg, p->x, *any, NULL, p->y, strides, dilates, before, after, hint, attr);
    }
#else
    dnnl_convolution_desc_t d;
    st = lib.dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, alg, &p->x, any, NULL,
                                                        &p->y, strides, dilates, before, after);
    if (st == dnnl_success) {
        st = lib.dnnl_primitive_desc_create(p->pass == ONEDNN_FORWARD ? &p->pd : &hint, &d, attr, engine,
                                            NULL);
    }
    if (st == dnnl_success && p->pass == ONEDNN_DATA) {
        st = lib.dnnl_dilated_convolution_backward_data_desc_init(&d, alg, &p->x, any, &p->y, strides,
                                                                  dilates, before, after);
    } else if (st == dnnl_success && p->pass == ONEDNN_WEIGHTS) {
        st = lib.dnnl_dilated_convolution_backward_weights_desc_init(&d, alg, &p->x, any, NULL, &p->y,
                                                                     strides, dilates, before, after);
    }
    if (st == dnnl_success && p->pass != ONEDNN_FORWARD)
        st = lib.dnnl_primitive_desc_create(&p->pd, &d, attr, engine, hint);
#endif
    if (hint) lib.dnnl_primitive_desc_destroy(hint);
    return st;
}

static dnnl_status_t make_reorder(onednn_primitive *p, md_ref w)
{
    dnnl_primitive_desc_t pd;
    md_ref from = p->pass == ONEDNN_WEIGHTS ? w : MD(p->w_ours),
           to = p->pass == ONEDNN_WEIGHTS ? MD(p->w_ours) : w;
    dnnl_status_t st = lib.dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL);

    if (st != dnnl_success) return st;
    st = lib.dnnl_primitive_create(&p->reorder, pd);
    lib.dnnl_primitive_desc_destroy(pd);
    return st;
}

static dnnl_status_t make_parts(onednn_primitive *p)
{
    md_own any;
    dnnl_primitive_attr_t attr = NULL;

    memset(&any, 0, sizeof any);
    dnnl_status_t st = engine ? dnnl_success : lib.dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (st == dnnl_success) st = lib.dnnl_primitive_attr_create(&attr);
    if (st == dnnl_success) st = lib.dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success) st = make_descriptors(p, &any);
    if (st == dnnl_success) st = make_pd(p, &any, attr);
    if (st == dnnl_success) st = lib.dnnl_primitive_create(&p->conv, p->pd);
    if (st == dnnl_success) {
        md_ref w = chosen_layout(p->pd, p->pass == ONEDNN_WEIGHTS ? dnnl_query_diff_weights_md
                                                                  : dnnl_query_weights_md);
        p->reordered = !lib.dnnl_memory_desc_equal(w, MD(p->w_ours));
        p->w_size = onednn_round_up(lib.dnnl_memory_desc_get_size(w));
        p->scratch_size =
            onednn_round_up(lib.dnnl_memory_desc_get_size(chosen_layout(p->pd, dnnl_query_scratchpad_md)));
        if (p->reordered) st = make_reorder(p, w);
    }
    if (attr) lib.dnnl_primitive_attr_destroy(attr);
    md_free(&any);
    return st;
}

static void primitive_release(onednn_primitive *p)
{
    if (p->conv) lib.dnnl_primitive_destroy(p->conv);
    if (p->reorder) lib.dnnl_primitive_destroy(p->reorder);
    if (p->pd) lib.dnnl_primitive_desc_destroy(p->pd);
    md_free(&p->x);
    md_free(&p->w_ours);
    md_free(&p->y);
    memset(p, 0, sizeof *p);
}

/* A place for a new primitive: a free one, or that of the oldest nobody uses;
 * NULL when all are in use. */
static onednn_primitive *find_place(void)
{
    onednn_primitive *oldest = NULL;

    for (int i = 0; i < CACHE_SIZE; i++) {
        if (cache[i].users > 0) continue;
        if (!oldest || cache[i].last_use < oldest->last_use) oldest = &cache[i];
    }
    return oldest;
}

onednn_primitive *onednn_take(onednn_pass what, const conv_shape *s, int64_t samples)
{
    conv_shape shape = *s;
    onednn_primitive *p = NULL;

    shape.n = samples;
    if (samples == 0) return NULL;
    pthread_mutex_lock(&cache_lock);
    for (int i = 0; i < CACHE_SIZE && !p; i++) {
        onednn_primitive *q = &cache[i];
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

void onednn_give(onednn_primitive *p)
{
    if (!p) return;
    pthread_mutex_lock(&cache_lock);
    p->users--;
    pthread_mutex_unlock(&cache_lock);
}

bool onednn_is_reordered(const onednn_primitive *p)
{
    return p->reordered;
}

size_t onednn_size(const onednn_primitive *p, bool weight)
{
    return weight ? p->w_size : p->scratch_size;
}

/* ---- running one ---- */

typedef struct argument {
    int kind;
    md_ref md;
    void *data; /* what is only read comes here through as_readable() */
} argument;

static void *as_readable(const float *p)
{
    return (void *)(uintptr_t)p;
}

static dnnl_status_t execute_primitive(dnnl_primitive_t what, int n, const argument *args)
{
    enum { MAX_ARGS = 4 };
    dnnl_exec_arg_t exec[MAX_ARGS];
    dnnl_stream_t stream = NULL;
    const int before = threads_off();
    int made = 0;
    dnnl_status_t st = lib.dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);

    for (; st == dnnl_success && made < n; made++) {
        exec[made].arg = args[made].kind;
        st = lib.dnnl_memory_create(&exec[made].memory, args[made].md, engine, args[made].data);
        if (st != dnnl_success) break;
    }
    if (st == dnnl_success) st = lib.dnnl_primitive_execute(what, stream, n, exec);
    if (st == dnnl_success) st = lib.dnnl_stream_wait(stream);
    for (int i = 0; i < made; i++) lib.dnnl_memory_destroy(exec[i].memory);
    if (stream) lib.dnnl_stream_destroy(stream);
    threads_back(before);
    return st;
}

bool onednn_run_reorder(const onednn_primitive *p, const float *from, float *to)
{
    md_ref w =
        chosen_layout(p->pd, p->pass == ONEDNN_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
    const argument args[] = {
        {DNNL_ARG_FROM, p->pass == ONEDNN_WEIGHTS ? w : MD(p->w_ours), as_readable(from)},
        {DNNL_ARG_TO, p->pass == ONEDNN_WEIGHTS ? MD(p->w_ours) : w, to}};

    return execute_primitive(p->reorder, 2, args) == dnnl_success;
}

bool onednn_run_conv(const onednn_primitive *p, const float *x, const float *w, const float *y, void *scratch)
{
    const bool forward = p->pass == ONEDNN_FORWARD, data = p->pass == ONEDNN_DATA;
    md_ref w_md =
        chosen_layout(p->pd, p->pass == ONEDNN_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
    const argument args[] = {
        {data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, MD(p->x), as_readable(x)},
        {p->pass == ONEDNN_WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, w_md, as_readable(w)},
        {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, MD(p->y), as_readable(y)},
        {DNNL_ARG_SCRATCHPAD, chosen_layout(p->pd, dnnl_query_scratchpad_md), scratch}};

    return execute_primitive(p->conv, 4, args) == dnnl_success;
}

#else
typedef int onednn_is_not_built; /* a translation unit must not be empty */
#endif
