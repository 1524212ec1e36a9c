/* conv_tiled.c - convolution forward, and back to its input, as a matrix
 * product that is never written out.
 *
 * Both passes walk over a map and sum, for each of its pixels, over the taps
 * that reach into the other map and over that map's channels:
 *
 *     to (n, r, q, j) = sum over taps t, channels p  from(n, place(t), p) * B[t](p, j)
 *
 * Forward B[t] is the weight of tap t, (cg, ocg); backward its transpose. The
 * rows of a register tile are pixels with the same taps, evenly apart in
 * memory: a run of neighbouring columns, or, in columns of few neighbours
 * (borders, small maps), the same pixel of every sample. Each tap is a segment
 * of the sum; taps on padding are simply not listed.
 *
 * A task computes some pixels for one panel of output channels. When the sum is
 * long it goes block by block of taps (or of channels of one tap), so that the
 * block's panel of B stays in the second-level cache; the accumulators rest in
 * the result between blocks.
 *
 * Scratch of one thread: the packed panel of B. */
#include "tensor/conv_tiled.h"

#include <assert.h>

#include "tensor/conv_walk.h"
#include "tensor/gemm_sizes.h"
#include "tensor/sizes.h"
#include "tensor/stream.h"

enum {
    PANEL_FLOATS = 40 << 10, /* of B in one block */
};
static_assert(PANEL_FLOATS * sizeof(float) <= KERN_SCRATCH, "scratch");

typedef struct conv_pass {
    const gemm_isa *isa;
    pool *p;
    const conv_call *c;
    bool back;
    conv_walk walk;
    const float *from;
    float *to;
    int64_t from_pixel, to_pixel; /* words of a pixel; its channels, where words are floats */
    int64_t k, n; /* words summed over, channels made, of one group */
    int64_t width, wide; /* columns of a register tile, of a task */
    int64_t tasks_n; /* tasks side by side, of one group */
    int64_t block_taps, block_k; /* block of the sum: whole taps, or channels of a single tap */
    bool direct; /* B is read from the weight itself */
    bool stream; /* the result goes past the caches */
    int64_t run_units, run_units_per_task, run_tasks; /* (sample, row, run) */
    int64_t single_units, single_units_per_task, single_tasks; /* (samples, row, single column) */
    int64_t single_samples; /* of one unit */
} conv_pass;

/* The columns of a task, [j, j + cols) of a group, in panels of at most `width`
 * columns, one register tile each. Narrow vectors take several panels at a time,
 * so that whole cache lines of the weight are read. */
typedef struct conv_panel {
    int64_t group, j, cols, width;
} conv_panel;

/* A block of the sum, and where its part of B is: NULL until a pixel wants it,
 * for on a small map most taps are never wanted. */
typedef struct conv_block {
    int64_t t0, t1, k0, k1;
    float *packed;
    const float *b;
    int64_t rs_b, tap_stride, panel_stride; /* of b: to the next row, tap, panel */
} conv_block;

/* Forward, rows are packed a few at a time for all panels: a line of the weight
 * that serves several panels is then read once. Backward, a panel has lines of
 * its own. */
static void pack_tap(const conv_pass *w, const conv_panel *panel, const conv_block *block, int64_t tap,
                     float *to)
{
    enum { FEW = 16 };
    const conv_shape *s = &w->c->s;
    const int64_t step = w->back || panel->cols <= panel->width ? block->k1 - block->k0 : FEW;
    const int64_t cg = s->c / s->groups, ocg = s->oc / s->groups, first = panel->group * ocg;
    const int64_t pair = w->isa->pair, summed = w->back ? ocg : cg; /* channels, not words */

    for (int64_t k = block->k0; k < block->k1; k += step) {
        const int64_t rows = min_of(min_of(step, block->k1 - k) * pair, summed - k * pair);
        float *dst = to + (k - block->k0) * panel->width;
        for (int64_t j = 0; j < panel->cols; j += panel->width, dst += block->panel_stride) {
            const int64_t cols = min_of(panel->width, panel->cols - j), column = panel->j + j;
            if (w->back) {
                const float *src = w->c->w + (tap * cg + column) * s->oc + first + k * pair;
                w->isa->take_transposed(src, s->oc, rows, cols, panel->width, dst);
            } else {
                const float *src = w->c->w + (tap * cg + k * pair) * s->oc + first + column;
                w->isa->take(src, s->oc, rows, cols, panel->width, dst);
            }
        }
    }
}

static void load_block(const conv_pass *w, const conv_panel *panel, conv_block *block)
{
    const conv_shape *s = &w->c->s;
    const int64_t cg = s->c / s->groups, taps = block->t1 - block->t0, k = block->k1 - block->k0;

    if (w->direct) {
        block->b = w->c->w + (block->t0 * cg + block->k0) * s->oc + panel->group * w->n + panel->j;
        block->rs_b = s->oc;
        block->tap_stride = cg * s->oc;
        block->panel_stride = panel->width;
        return;
    }
    block->b = block->packed;
    block->rs_b = panel->width;
    block->tap_stride = k * panel->width;
    block->panel_stride = taps * block->tap_stride;
    for (int64_t t = 0; t < taps; t++) {
        pack_tap(w, panel, block, block->t0 + t, block->packed + t * block->tap_stride);
    }
}

/* The pixels of one tile column: `rows` of them from (n, r, q) on. */
typedef struct conv_unit {
    int64_t n, r, q, rows, rs_a, rs_c;
} conv_unit;

static int list_segments(const conv_pass *w, const conv_unit *u, const conv_block *block, const float *from,
                         gemm_seg *seg)
{
    const conv_walk *walk = &w->walk;
    const conv_tap *rows = walk->row_taps + u->r * walk->rows.taps;
    const conv_tap *cols = walk->col_taps + u->q * walk->cols.taps;
    const int32_t n_rows = walk->n_row_taps[u->r], n_cols = walk->n_col_taps[u->q];
    const int64_t k = block->k1 - block->k0;
    const bool joined = k == w->from_pixel; /* a pixel's end is its neighbour's beginning */
    int n = 0;

    for (int32_t i = 0; i < n_rows; i++) {
        const float *line = from + (int64_t)rows[i].at * walk->cols.other * w->from_pixel;
        const int64_t first_tap = (int64_t)rows[i].tap * walk->cols.taps - block->t0;
        for (int32_t j = 0; j < n_cols; j++) {
            const int64_t t = first_tap + cols[j].tap;
            if (t < 0) continue;
            if (t >= block->t1 - block->t0) return n;
            const float *a = line + (int64_t)cols[j].at * w->from_pixel,
                        *b = block->b + t * block->tap_stride;
            if (joined && n > 0 && seg[n - 1].a + seg[n - 1].k == a &&
                seg[n - 1].b + seg[n - 1].k * block->rs_b == b) {
                seg[n - 1].k += k;
            } else {
                seg[n++] = (gemm_seg){a, b, k};
            }
        }
    }
    return n;
}

static void compute_unit(const conv_pass *w, const conv_panel *panel, conv_block *block, const conv_unit *u)
{
    const conv_call *c = w->c;
    const conv_walk *walk = &w->walk;
    const int32_t n_rows = walk->n_row_taps[u->r], n_cols = walk->n_col_taps[u->q];
    int64_t first = 0, last = 0; /* tap; a pixel that no tap reaches counts as having the first, empty */

    if (n_rows > 0 && n_cols > 0) {
        const conv_tap *rows = walk->row_taps + u->r * walk->rows.taps;
        const conv_tap *cols = walk->col_taps + u->q * walk->cols.taps;
        first = (int64_t)rows[0].tap * walk->cols.taps + cols[0].tap;
        last = (int64_t)rows[n_rows - 1].tap * walk->cols.taps + cols[n_cols - 1].tap;
    }
    if (last < block->t0 || first >= block->t1) return;
    if (!block->b) load_block(w, panel, block);

    gemm_seg seg[GEMM_MAX_SEGS];
    const float *from = w->from + u->n * walk->rows.other * walk->cols.other * w->from_pixel +
                        panel->group * w->k + block->k0;
    gemm_tile t = {.seg = seg, .rs_a = u->rs_a, .cs_a = 1, .rs_b = block->rs_b};
    t.n_seg = n_cols > 0 ? list_segments(w, u, block, from, seg) : 0;
    const bool begun = first < block->t0 || block->k0 > 0, done = last < block->t1 && block->k1 == w->k;
    if (t.n_seg == 0 && begun && !done) return;
    const int64_t at = ((u->n * walk->rows.size + u->r) * walk->cols.size + u->q) * w->to_pixel +
                       panel->group * w->n + panel->j;
    t.c = w->to + at;
    t.rs_c = u->rs_c;
    t.load = begun || (w->back && c->accumulate);
    if (done && w->back) {
        t.mask = c->mask ? c->mask + at : NULL;
        t.rs_mask = u->rs_c;
    } else if (done) {
        t.relu = c->relu;
        t.bias = c->bias ? c->bias + panel->group * w->n + panel->j : NULL;
    }
    t.stream = done && w->stream;
    t.round = done && c->round;
    for (int64_t j = 0; j < panel->cols; j += panel->width) {
        t.cols = (int)min_of(panel->width, panel->cols - j);
        gemm_rows(w->isa, &t, u->rows);
        t.c += t.cols;
        t.b_first += block->panel_stride;
        if (t.bias) t.bias += t.cols;
        if (t.mask) t.mask += t.cols;
    }
}

static conv_unit run_unit(const conv_pass *w, int64_t unit)
{
    const conv_walk *walk = &w->walk;
    const conv_run *run = &walk->runs[unit % walk->n_runs];
    const int64_t line = unit / walk->n_runs;

    return (conv_unit){.n = line / walk->rows.size,
                       .r = line % walk->rows.size,
                       .q = run->first,
                       .rows = run->count,
                       .rs_a = run->move * w->from_pixel,
                       .rs_c = run->step * w->to_pixel};
}

static conv_unit single_unit(const conv_pass *w, int64_t unit)
{
    const conv_walk *walk = &w->walk;
    const int64_t pixels = walk->rows.size * walk->n_singles, pixel = unit % pixels;
    const int64_t n = unit / pixels * w->single_samples;

    return (conv_unit){.n = n,
                       .r = pixel / walk->n_singles,
                       .q = walk->singles[pixel % walk->n_singles],
                       .rows = min_of(w->single_samples, w->c->s.n - n),
                       .rs_a = walk->rows.other * walk->cols.other * w->from_pixel,
                       .rs_c = walk->rows.size * walk->cols.size * w->to_pixel};
}

static void compute_block(const conv_pass *w, const conv_panel *panel, conv_block *block, int64_t part)
{
    if (part < w->run_tasks) {
        const int64_t first = part * w->run_units_per_task;
        const int64_t end = min_of(first + w->run_units_per_task, w->run_units);
        for (int64_t unit = first; unit < end; unit++) {
            const conv_unit u = run_unit(w, unit);
            compute_unit(w, panel, block, &u);
        }
        return;
    }
    const int64_t first = (part - w->run_tasks) * w->single_units_per_task;
    const int64_t end = min_of(first + w->single_units_per_task, w->single_units);
    for (int64_t unit = first; unit < end; unit++) {
        const conv_unit u = single_unit(w, unit);
        compute_unit(w, panel, block, &u);
    }
}

static void pass_task(void *ctx, int task, int thread)
{
    const conv_pass *w = ctx;
    const conv_shape *s = &w->c->s;
    const int64_t columns = w->tasks_n * s->groups, part = task / columns, column = task % columns;
    const int64_t j = column % w->tasks_n * w->wide;
    const conv_panel panel = {
        .group = column / w->tasks_n, .j = j, .cols = min_of(w->wide, w->n - j), .width = w->width};
    const int64_t taps = s->kh * s->kw;

    for (int64_t t0 = 0; t0 < taps; t0 += w->block_taps) {
        for (int64_t k0 = 0; k0 < w->k; k0 += w->block_k) {
            conv_block block = {.t0 = t0, .t1 = min_of(t0 + w->block_taps, taps), .k0 = k0};
            block.k1 = min_of(k0 + w->block_k, w->k);
            block.packed = pool_scratch(w->p, thread);
            compute_block(w, &panel, &block, part);
        }
    }
    if (w->stream) stream_done();
}

/* How many units make a task of about `rows` rows; and how many tasks. */
static void cut_tasks(conv_pass *w, int64_t rows)
{
    const conv_walk *walk = &w->walk;
    const int64_t lines = w->c->s.n * walk->rows.size;

    w->run_units = lines * walk->n_runs;
    w->run_units_per_task = 1;
    w->run_tasks = 0;
    if (w->run_units > 0) {
        w->run_units_per_task = ceil_div(rows, walk->runs[0].count);
        w->run_tasks = ceil_div(w->run_units, w->run_units_per_task);
    }
    const int64_t cuts = ceil_div(w->c->s.n, rows);
    w->single_samples = ceil_div(w->c->s.n, cuts);
    w->single_units = walk->rows.size * walk->n_singles * ceil_div(w->c->s.n, w->single_samples);
    w->single_units_per_task = ceil_div(rows, w->single_samples);
    w->single_tasks = ceil_div(w->single_units, w->single_units_per_task);
}

static void plan_pass(conv_pass *w)
{
    const conv_shape *s = &w->c->s;
    const int64_t lanes = w->isa->lanes, taps = s->kh * s->kw, weight = taps * (s->c / s->groups) * s->oc;
    const int64_t vecs = ceil_div(w->n, lanes), panels = ceil_div(vecs, w->isa->max_vecs);

    w->width = ceil_div(vecs, panels) * lanes;
    w->wide = max_of(1, CONV_WIDE / w->width) * w->width;
    w->tasks_n = ceil_div(w->n, w->wide);
    const int64_t width = min_of(w->wide, vecs * lanes);
    w->stream = w->n % lanes == 0 &&
                stream_fits(w->to, w->to_pixel, s->n * w->walk.rows.size * w->walk.cols.size * w->to_pixel);
    w->direct = w->isa->pair == 1 && !w->back && w->n % lanes == 0 &&
                (weight <= CONV_TINY_WEIGHT || w->width == s->oc);
    w->block_taps = min_of(min_of(taps, GEMM_MAX_SEGS), PANEL_FLOATS / width / w->k);
    w->block_k = w->k;
    if (w->block_taps == 0) {
        w->block_taps = 1;
        w->block_k = ceil_div(w->k, ceil_div(w->k * width, PANEL_FLOATS));
    }
    int64_t rows = CONV_TASK_ROWS;
    cut_tasks(w, rows);
    while (rows > CONV_MIN_TASK_ROWS &&
           (w->run_tasks + w->single_tasks) * w->tasks_n * s->groups < 4 * pool_threads(w->p)) {
        rows /= 2;
        cut_tasks(w, rows);
    }
}

/* The sum of one pixel where channels do not mix, whose taps are listed; `count` pixels with the same taps. */
static void depthwise_pixels(const conv_pass *w, gemm_products *t, int64_t at)
{
    const conv_call *c = w->c;

    t->c = w->to + at;
    t->round = c->round;
    if (w->back) {
        t->mask = c->mask ? c->mask + at : NULL;
    } else {
        t->bias = c->bias;
        t->relu = c->relu;
    }
    if (t->n_seg == 9) { /* the usual kernel */
        w->isa->products_run(t);
        return;
    }
    for (int64_t p = 0; p < t->count; p++) {
        gemm_seg seg[GEMM_MAX_SEGS];
        gemm_products one = *t;
        one.seg = seg;
        for (int s = 0; s < t->n_seg; s++) {
            seg[s] = t->seg[s];
            seg[s].a += p * t->step_a;
        }
        one.c += p * t->step_c;
        if (one.mask) one.mask += p * t->step_c;
        w->isa->products(&one);
    }
}

/* Columns of row r that share their taps. More taps than a list holds are taken one pixel at a time, list by list:
 * the sum rests in the result between two. */
static void depthwise_run(const conv_pass *w, int64_t n, int64_t r, const conv_run *run)
{
    const conv_call *c = w->c;
    const conv_walk *walk = &w->walk;
    const int64_t channels = c->s.c, taps = walk->n_row_taps[r] * walk->n_col_taps[run->first];
    const float *from = w->from + n * walk->rows.other * walk->cols.other * channels;
    const int64_t pixels = taps > GEMM_MAX_SEGS ? 1 : run->count;

    for (int64_t done = 0; done < run->count; done += pixels) {
        const int64_t q = run->first + done * run->step;
        const int64_t at = ((n * walk->rows.size + r) * walk->cols.size + q) * channels;
        gemm_seg seg[GEMM_MAX_SEGS];
        gemm_products t = {.seg = seg,
                           .n = channels,
                           .load = w->back && c->accumulate,
                           .count = pixels,
                           .step_a = run->move * channels,
                           .step_c = run->step * channels};
        for (int32_t i = 0; i < walk->n_row_taps[r]; i++) {
            const conv_tap row = walk->row_taps[r * walk->rows.taps + i];
            for (int32_t j = 0; j < walk->n_col_taps[q]; j++) {
                const conv_tap col = walk->col_taps[q * walk->cols.taps + j];
                if (t.n_seg == GEMM_MAX_SEGS) {
                    t.c = w->to + at;
                    w->isa->products(&t);
                    t.load = true;
                    t.n_seg = 0;
                }
                seg[t.n_seg].a = from + (row.at * walk->cols.other + col.at) * channels;
                seg[t.n_seg++].b = c->w + (row.tap * walk->cols.taps + col.tap) * channels;
            }
        }
        depthwise_pixels(w, &t, at);
    }
}

/* Channels that do not mix: each pixel is a sum of products of vectors. A run of columns shares its taps. */
static void depthwise_task(void *ctx, int task, int thread)
{
    const conv_pass *w = ctx;
    const conv_walk *walk = &w->walk;
    const int64_t n = task / walk->rows.size, r = task % walk->rows.size;
    (void)thread;

    for (int32_t i = 0; i < walk->n_runs + walk->n_singles; i++) {
        const bool alone = i >= walk->n_runs;
        const conv_run run = alone
                                 ? (conv_run){.first = walk->singles[i - walk->n_runs], .step = 1, .count = 1}
                                 : walk->runs[i];
        depthwise_run(w, n, r, &run);
    }
}

static void run_pass(conv_pass *w)
{
    const conv_shape *s = &w->c->s;

    if (s->n == 0) return;
    conv_walk_init(&w->walk, s, w->back, w->c->work);
    if (conv_is_depthwise(s)) {
        pool_run(w->p, (int)(s->n * w->walk.rows.size), depthwise_task, w);
        return;
    }
    plan_pass(w);
    pool_run(w->p, (int)((w->run_tasks + w->single_tasks) * w->tasks_n * s->groups), pass_task, w);
}

void conv_forward_tiled(const gemm_isa *isa, pool *p, const conv_call *c)
{
    const conv_shape *s = &c->s;
    conv_pass w = {.isa = isa, .p = p, .c = c, .from = c->x, .to = c->y};

    w.k = ceil_div(s->c / s->groups, isa->pair);
    w.from_pixel = s->groups * w.k;
    w.to_pixel = s->oc;
    w.n = s->oc / s->groups;
    run_pass(&w);
}

void conv_backward_data_tiled(const gemm_isa *isa, pool *p, const conv_call *c)
{
    const conv_shape *s = &c->s;
    conv_pass w = {.isa = isa, .p = p, .c = c, .back = true, .from = c->dy, .to = c->dx};

    w.k = ceil_div(s->oc / s->groups, isa->pair);
    w.from_pixel = s->groups * w.k;
    w.to_pixel = s->c;
    w.n = s->c / s->groups;
    run_pass(&w);
}

size_t conv_work_tiled(const gemm_isa *isa, const conv_shape *s)
{
    const size_t walk = conv_walk_size(s), weights = conv_weights_work(isa, s);

    return walk > weights ? walk : weights;
}
