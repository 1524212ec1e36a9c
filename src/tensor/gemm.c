/* gemm.c - the matrix product in tiles, for any instruction set.
 *
 * The result is cut into tiles of `tm` rows by `tn` columns; a task computes
 * one of them alone, so threads share nothing but their inputs. Within a tile
 *
 *     for each block of k            (at most GEMM_KC: a panel of B stays in L2)
 *         for each panel of columns  (one register tile wide, packed when that pays)
 *             for each group of rows (one register tile tall)
 *
 * and the accumulators rest in C between blocks of k. A is read where it lies
 * unless its stride would fold its rows onto a few cache sets. Where words are
 * not floats but pairs of bfloat16, both are always packed, which rounds them.
 *
 * Scratch of one thread:  | panel of B | copy of A | tile for the sink |  */
#include "tensor/gemm_micro.h"

#include <assert.h>
#include <string.h>

#include "tensor/gemm_sizes.h"
#include "tensor/sizes.h"
#include "tensor/stream.h"

enum {
    PANEL_FLOATS = GEMM_KC * 64, /* the widest panel of any instruction set */
    COPY_FLOATS = 72 << 10, /* copy of A */
    TILE_FLOATS = 64 << 10, /* tile for the sink */
    PAD = 16 /* floats between rows of a copy, so that they spread over the sets */
};
static_assert((PANEL_FLOATS + COPY_FLOATS + TILE_FLOATS) * sizeof(float) <= KERN_SCRATCH, "scratch");
static_assert(GEMM_MC * (GEMM_KC + PAD) <= COPY_FLOATS && GEMM_KC * (GEMM_MC + PAD) <= COPY_FLOATS,
              "copy of A");

typedef struct gemm_job {
    const gemm_isa *isa;
    const gemm_call *g;
    pool *p;
    int64_t tm, tn, tiles_n;
} gemm_job;

/* Vectors of the panel that starts `done` vectors into `total`, so that all
 * panels are at most max_vecs wide and nearly equal. */
static int panel_vecs(const gemm_isa *isa, int64_t total, int64_t done)
{
    const int64_t left = total - done, panels = ceil_div(left, isa->max_vecs);

    return (int)ceil_div(left, panels);
}

/* Memory that will be packed next, `rows` rows of `floats` floats. It is asked
 * for a little with every register tile, so that it arrives during arithmetic:
 * packing alone would wait for it with the multipliers idle. */
typedef struct ahead {
    const float *p;
    int64_t ld, floats, rows;
} ahead;

static void fetch_some(ahead *a, int64_t tiles_left)
{
    const int64_t rows = ceil_div(a->rows, tiles_left);

    for (int64_t r = 0; r < rows; r++, a->p += a->ld) {
        for (int64_t i = 0; i < a->floats; i += 16) __builtin_prefetch(a->p + i, 0, 2);
    }
    a->rows -= rows;
}

/* The tile's own places in C and mask, used when its sum is done. */
static void fetch_ends(const gemm_tile *t, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int i = 0; i < t->cols; i += 16) {
            if (!t->load && !t->stream) __builtin_prefetch(t->c + r * t->rs_c + i, 1, 3);
            if (t->mask) __builtin_prefetch(t->mask + r * t->rs_mask + i, 0, 3);
        }
    }
}

/* Convolutions pass no `next`: their tiles are many and small, and lie together. */
static inline void compute_rows(const gemm_isa *isa, const gemm_tile *t, int64_t rows, ahead *next,
                                ahead *next_a)
{
    const int vecs = (t->cols + isa->lanes - 1) / isa->lanes;
    int64_t tiles = ceil_div(rows, isa->max_rows[vecs]);
    gemm_tile part = *t;

    for (; tiles > 0; tiles--) {
        const int64_t n = ceil_div(rows, tiles);
        if (next) {
            fetch_ends(&part, n);
            if (next->rows > 0) fetch_some(next, tiles);
            if (next_a->rows > 0) fetch_some(next_a, tiles);
        }
        isa->micro[vecs][n](&part);
        part.row += n;
        part.c += n * part.rs_c;
        if (part.mask) part.mask += n * part.rs_mask;
        rows -= n;
    }
}

void gemm_rows(const gemm_isa *isa, const gemm_tile *t, int64_t rows)
{
    compute_rows(isa, t, rows, NULL, NULL);
}

/* Words that k neighbours of the summed index make. */
static int64_t words_of(const gemm_isa *isa, int64_t k)
{
    return ceil_div(k, isa->pair);
}

/* A block of op(A) as the micro kernel reads it: where it is, or copied. */
typedef struct a_block {
    const float *a;
    int64_t rs, cs;
} a_block;

static a_block block_of_a(const gemm_job *job, int64_t i, int64_t rows, int64_t k0, int64_t kc,
                          int64_t panels, float *copy)
{
    const gemm_call *g = job->g;
    const bool floats = job->isa->pair == 1; /* else A has to be made into words first */

    if (g->ta) {
        const float *src = g->a + k0 * g->lda + i;
        if (floats && (panels < 2 || rows < 16)) return (a_block){src, 1, g->lda};
        const int64_t width = ceil_div(rows, PAD) * PAD;
        job->isa->take(src, g->lda, kc, rows, width, copy);
        return (a_block){copy, 1, width};
    }
    const float *src = g->a + i * g->lda + k0;
    if (floats && (panels < 3 || g->lda % 512 != 0)) return (a_block){src, g->lda, 1};
    const int64_t width = ceil_div(words_of(job->isa, kc), PAD) * PAD + PAD;
    job->isa->take_rows(src, g->lda, rows, kc, width, copy);
    return (a_block){copy, width, 1};
}

/* One panel of op(B), kc x cols: where it is when its rows are whole vectors
 * and few rows of A want it, else packed. */
static const float *panel_of_b(const gemm_job *job, int64_t j, int cols, int64_t rows, int64_t k0, int64_t kc,
                               float *packed, int64_t *stride)
{
    const gemm_call *g = job->g;
    const int lanes = job->isa->lanes;
    const int64_t width = ceil_div(cols, lanes) * lanes;

    *stride = width;
    if (g->tb) {
        job->isa->take_transposed(g->b + j * g->ldb + k0, g->ldb, kc, cols, width, packed);
        return packed;
    }
    const float *src = g->b + k0 * g->ldb + j;
    const bool near = width >= GEMM_NEAR && g->ldb <= 4 * GEMM_NEAR && rows <= 2 * GEMM_NEAR;
    if (job->isa->pair == 1 && cols % lanes == 0 && (rows < GEMM_ROWS_TO_PACK || g->ldb == width || near)) {
        *stride = g->ldb;
        return src;
    }
    job->isa->take(src, g->ldb, kc, cols, width, packed);
    return packed;
}

/* What panel_of_b() will read after the panels up to column `done` of the tile
 * at (j, cols), block (k0, kc): the next panel, or the next block's first. */
static ahead next_panel(const gemm_job *job, int64_t j, int64_t cols, int64_t done, int64_t k0, int64_t kc)
{
    const gemm_call *g = job->g;

    if (done >= cols) {
        done = 0;
        k0 += kc;
        kc = min_of(kc, g->k - k0);
    }
    const int64_t n = min_of(cols - done, (int64_t)job->isa->max_vecs * job->isa->lanes);
    if (kc <= 0) return (ahead){0};
    if (g->tb) return (ahead){g->b + (j + done) * g->ldb + k0, g->ldb, kc, n};
    return (ahead){g->b + k0 * g->ldb + j + done, g->ldb, n, kc};
}

/* What block_of_a() will read of a transposed A for the tile this thread most
 * likely gets next. */
static ahead next_rows(const gemm_job *job, int64_t i, int64_t rows)
{
    const gemm_call *g = job->g;

    i += job->tm;
    if (!g->ta || g->k > GEMM_KC * job->isa->pair || job->tiles_n > 1 || i >= g->m) return (ahead){0};
    return (ahead){g->a + i, g->lda, min_of(rows, g->m - i), g->k};
}

static void sink_tile(const gemm_call *g, int64_t i, int64_t rows, int64_t j, int64_t cols, const float *tile)
{
    if (cols == g->n) {
        g->sink(g->sink_ctx, i * g->n, rows * cols, tile);
        return;
    }
    for (int64_t r = 0; r < rows; r++) g->sink(g->sink_ctx, (i + r) * g->n + j, cols, tile + r * cols);
}

/* One tile: rows [i, i + rows), columns [j, j + cols). `then` is memory that is
 * wanted after it, fetched with its last panel. */
static void compute_tile(const gemm_job *job, int64_t i, int64_t rows, int64_t j, int64_t cols, ahead then,
                         int thread)
{
    const gemm_call *g = job->g;
    const int lanes = job->isa->lanes;
    const int64_t vecs = ceil_div(cols, lanes), panels = ceil_div(vecs, job->isa->max_vecs);
    float *packed = pool_scratch(job->p, thread), *copy = packed + PANEL_FLOATS, *tile = copy + COPY_FLOATS;
    float *c = g->sink ? tile : g->c + i * g->ldc + j;
    const int64_t ldc = g->sink ? cols : g->ldc;
    const bool stream = !g->sink && stream_fits(c, ldc, g->m * g->n);

    if (g->sink && g->accumulate) {
        for (int64_t r = 0; r < rows; r++) {
            memcpy(tile + r * cols, g->c + (i + r) * g->ldc + j, (size_t)cols * sizeof *tile);
        }
    }
    const int64_t pair = job->isa->pair, blocks = g->k > 0 ? ceil_div(g->k, GEMM_KC * pair) : 1;
    for (int64_t block = 0, k0 = 0; block < blocks; block++) {
        const int64_t even = ceil_div(ceil_div(g->k - k0, blocks - block), pair) * pair;
        const int64_t kc = min_of(even, g->k - k0);
        const bool final = block == blocks - 1;
        const a_block a = block_of_a(job, i, rows, k0, kc, panels, copy);
        for (int64_t v = 0; v < vecs;) {
            const int width = panel_vecs(job->isa, vecs, v);
            const int64_t j0 = v * lanes;
            const int n = (int)min_of(cols - j0, (int64_t)width * lanes);
            gemm_seg seg = {.a = a.a, .k = words_of(job->isa, kc)};
            gemm_tile t = {.seg = &seg, .n_seg = 1, .cols = n, .rs_a = a.rs, .cs_a = a.cs};
            seg.b = panel_of_b(job, j + j0, n, rows, k0, kc, packed, &t.rs_b);
            t.c = c + j0;
            t.rs_c = ldc;
            t.load = block > 0 || g->accumulate;
            if (final) {
                t.stream = stream;
                t.relu = g->relu;
                t.round = g->round;
                t.bias = g->bias ? g->bias + j + j0 : NULL;
                t.mask = g->mask ? g->mask + i * g->ldc + j + j0 : NULL;
                t.rs_mask = g->ldc;
            }
            v += width;
            ahead next = next_panel(job, j, cols, v * lanes, k0, kc);
            if (next.rows == 0) next = then;
            ahead next_a = {0}; /* the next block's part of A, which no other panel of this block evicts */
            if (v == vecs && !final && !g->ta) {
                const int64_t k1 = k0 + kc;
                next_a = (ahead){g->a + i * g->lda + k1, g->lda, min_of(kc, g->k - k1), rows};
            }
            compute_rows(job->isa, &t, rows, &next, &next_a);
        }
        k0 += kc;
    }
    if (g->sink) sink_tile(g, i, rows, j, cols, tile);
    if (stream) stream_done();
}

static void tile_task(void *ctx, int task, int thread)
{
    const gemm_job *job = ctx;
    const gemm_call *g = job->g;
    const int64_t i = task / job->tiles_n * job->tm, rows = min_of(job->tm, g->m - i);
    const int64_t j = task % job->tiles_n * job->tn, cols = min_of(job->tn, g->n - j);

    compute_tile(job, i, rows, j, cols, next_rows(job, i, rows), thread);
}

/* Halves the tile until every thread has one, or there is one for each of a
 * few times as many when they do not come out even. What divides the larger
 * stream goes first: B's columns in most products of a batch, A's rows where
 * there are more of them. */
static void choose_tiles(gemm_job *job, int threads)
{
    const gemm_call *g = job->g;
    const int64_t panel = (int64_t)job->isa->max_vecs * job->isa->lanes;

    job->tm = min_of(g->m, GEMM_MC);
    job->tn = min_of(g->n, GEMM_NC);
    if (g->sink) {
        /* Whole rows when they fit, so that the sink gets long runs while they are in the cache. */
        job->tn = min_of(g->n, TILE_FLOATS / 4);
        job->tm = min_of(job->tm, TILE_FLOATS / 4 / job->tn);
    }
    const bool alone = threads == 1 || g->m * g->n * g->k < GEMM_SMALL;
    while (!alone) {
        const int64_t tiles = ceil_div(g->m, job->tm) * ceil_div(g->n, job->tn);
        if (tiles >= 4 * threads || (tiles >= threads && tiles % threads == 0)) break;
        const bool rows_first = g->m > g->n && job->tm > GEMM_ROWS_FIRST;
        if (!g->sink && !rows_first && job->tn > panel) {
            job->tn = ceil_div(ceil_div(job->tn, 2), panel) * panel;
        } else if (job->tm > 2 * job->isa->max_rows[1]) {
            job->tm = ceil_div(job->tm, 2);
        } else {
            break;
        }
    }
    job->tiles_n = ceil_div(g->n, job->tn);
}

void gemm_tiled(const gemm_isa *isa, pool *p, const gemm_call *g)
{
    gemm_job job = {.isa = isa, .g = g, .p = p};

    assert(!g->sink || g->ldc == g->n || !g->accumulate);
    if (g->m == 0 || g->n == 0) return;
    choose_tiles(&job, pool_threads(p));
    pool_run(p, (int)(ceil_div(g->m, job.tm) * job.tiles_n), tile_task, &job);
}

/* ---- a pair of products ----
 *
 * Both go over the same places (the inputs of a dense layer): a task takes a
 * few of them through both products, so that what belongs to them, rows of the
 * weight and columns of the layer's input, comes from memory once. */

typedef struct pair_job {
    gemm_job first, second;
    int64_t width; /* shared places of a task: columns of the first product, rows of the second */
} pair_job;

/* The part of both products that hangs on places [at, at + n). */
static void pair_task(void *ctx, int task, int thread)
{
    const pair_job *job = ctx;
    const gemm_call *f = job->first.g, *s = job->second.g;
    const int64_t at = task * job->width, n = min_of(job->width, f->n - at);
    const int64_t later = at + job->width, more = min_of(job->width, f->n - later);
    ahead a = {0}, b = {0};

    if (more > 0) {
        a = (ahead){s->a + later, s->lda, more, s->k};
        b = (ahead){f->b + later * f->ldb, f->ldb, f->k, more};
    }
    /* All of the first before the second's sink may change the weight. */
    for (int64_t i = 0; i < f->m; i += job->first.tm) {
        compute_tile(&job->first, i, min_of(job->first.tm, f->m - i), at, n, a, thread);
        a.rows = 0;
    }
    const int64_t step =
        GEMM_PAIR_ROWS * job->second.isa->pair; /* the second's B is made into words for so many */
    for (int64_t i = 0; i < n; i += step) {
        for (int64_t j = 0; j < s->n; j += job->second.tn) {
            const int64_t rows = min_of(step, n - i), cols = min_of(job->second.tn, s->n - j);
            compute_tile(&job->second, at + i, rows, j, cols, b, thread);
            b.rows = 0;
        }
    }
}

void gemm_pair_tiled(const gemm_isa *isa, pool *p, const gemm_call *first, const gemm_call *second)
{
    pair_job job = {.first = {.isa = isa, .g = first, .p = p}, .second = {.isa = isa, .g = second, .p = p}};

    assert(first->n == second->m && first->tb && second->ta && !first->sink);
    const int64_t n = first->n;
    job.first.tm = min_of(first->m, GEMM_MC);
    job.second.tn = min_of(second->n, GEMM_NC);
    if (n == 0) return;
    job.width = ceil_div(n, GEMM_PAIR) < 4 * pool_threads(p) ? GEMM_PAIR / 2 : GEMM_PAIR;
    if (first->m * first->n * first->k < GEMM_SMALL) job.width = n;
    pool_run(p, (int)ceil_div(n, job.width), pair_task, &job);
}
