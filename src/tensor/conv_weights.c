/* conv_weights.c - the gradient of a convolution's weight.
 *
 * The weight is a matrix of kh * kw * cg rows (tap, input channel) by oc
 * columns. A row's sum runs over the output positions and samples that its tap
 * reaches: A is x seen through the tap, B is dy. How the two are laid out for
 * that depends on the shape, and with it the order of the sum (tensor/conv.h):
 *
 *   positions first  x and dy are copied so that the samples of one position
 *                    lie together, (h, w, n, c) and, in panels, (oh, ow, n):
 *                    neighbouring positions then join into one long segment.
 *   samples first    segments are lines of the output. Inputs of few channels
 *                    get a copy with padding, so that all columns of a kernel
 *                    row (kw * cg) are rows of one tile.
 *
 * A task is a range of rows, all columns, for one chunk of the batch. It goes
 * through the sum block by block, so that the block of dy is read from cache by
 * all its rows. With one chunk the finished rows go to dw or to the sink; with
 * several they are partial results that a second round adds in chunk order.
 *
 * Work:  | copy of x | copy of dy | partial results |
 * Scratch of one thread:  | panel of dy | tile for the sink | */
#include "tensor/conv_tiled.h"

#include <assert.h>
#include <string.h>

#include "tensor/conv_walk.h"
#include "tensor/gemm_sizes.h"
#include "tensor/sizes.h"

enum { PANEL_FLOATS = CONV_SUM_BLOCK * 64, TILE_FLOATS = 128 << 10 };
static_assert((PANEL_FLOATS + TILE_FLOATS) * sizeof(float) <= KERN_SCRATCH, "scratch");

typedef struct weights_job {
    const gemm_isa *isa;
    pool *p;
    const conv_call *c;
    int64_t cg, ocg, rows; /* rows of the weight as a matrix */
    int64_t vecs, panels; /* of one group */
    int64_t chunk, chunks;
    int64_t task_rows, row_tasks;
    bool positions_first, padded;
    int64_t strip; /* neighbouring rows that one tile may hold */
    int64_t rs_a; /* from one of them to the next */
    const float *x; /* as it lies or copied */
    int64_t xh, xw; /* its map, padding included when padded */
    int64_t x_floats, dy_floats, partial_floats; /* of the copies and partial results, 0 where not needed */
    float *x_copy, *dy_copy, *partial; /* in the work memory, NULL likewise */
} weights_job;

/* The first vector of panel i of a group. */
static int64_t panel_start(const weights_job *w, int64_t i)
{
    return i * w->vecs / w->panels;
}

/* Everything the shape decides. */
static void plan_job(weights_job *w, const gemm_isa *isa, const conv_shape *s)
{
    const int64_t lanes = isa->lanes;

    w->isa = isa;
    w->cg = s->c / s->groups;
    w->ocg = s->oc / s->groups;
    w->rows = s->kh * s->kw * w->cg;
    w->vecs = ceil_div(w->ocg, lanes);
    w->panels = ceil_div(w->vecs, isa->max_vecs);
    w->chunk = conv_chunk(s);
    w->chunks = max_of(1, ceil_div(s->n, w->chunk));
    w->positions_first = conv_order(s) == CONV_POSITIONS_FIRST;
    w->padded = conv_counts_padding(s);
    w->strip = w->cg;
    w->rs_a = 1;
    w->task_rows = CONV_SUM_ROWS;
    w->xh = s->h;
    w->xw = s->w;
    int64_t x_floats = 0, dy_floats = 0;
    if (w->positions_first) {
        x_floats = s->n * s->h * s->w * s->c;
        dy_floats = s->n * s->oh * s->ow * s->groups * w->vecs * lanes;
    } else if (w->padded) {
        if (s->groups == 1 && (s->dw == 1 || s->c == 1)) {
            w->strip = s->kw * s->c;
            w->rs_a = s->c == 1 ? s->dw : 1;
        }
        w->task_rows = CONV_SUM_ROWS_FEW;
        const int64_t need_h = (s->oh - 1) * s->sh + (s->kh - 1) * s->dh + 1;
        const int64_t need_w = (s->ow - 1) * s->sw + (s->kw - 1) * s->dw + 1;
        if (s->top > 0 || s->left > 0 || need_h > s->h || need_w > s->w) {
            w->xh = need_h;
            w->xw = need_w;
            x_floats = s->n * need_h * need_w * s->c;
        }
    }
    w->task_rows = max_of(1, min_of(w->task_rows, TILE_FLOATS / s->oc));
    w->row_tasks = ceil_div(w->rows, w->task_rows);
    w->x_floats = ceil_div(x_floats, 16) * 16;
    w->dy_floats = ceil_div(dy_floats, 16) * 16;
    w->partial_floats = w->chunks > 1 || s->oc > TILE_FLOATS ? w->chunks * w->rows * s->oc : 0;
}

size_t conv_weights_work(const gemm_isa *isa, const conv_shape *s)
{
    weights_job w = {0};

    plan_job(&w, isa, s);
    return (size_t)(w.x_floats + w.dy_floats + w.partial_floats) * sizeof(float);
}

static void place_copies(weights_job *w, float *work)
{
    if (w->x_floats > 0) w->x_copy = work;
    if (w->dy_floats > 0) w->dy_copy = work + w->x_floats;
    if (w->partial_floats > 0) w->partial = work + w->x_floats + w->dy_floats;
}

/* Copies of one position of x, or of dy into its panels: samples side by side. */
static void gather_task(void *ctx, int task, int thread)
{
    const weights_job *w = ctx;
    const conv_shape *s = &w->c->s;
    const int64_t in = s->h * s->w, out = s->oh * s->ow, lanes = w->isa->lanes;
    (void)thread;

    if (task < in) {
        const float *src = w->c->x + (int64_t)task * s->c;
        float *dst = w->x_copy + (int64_t)task * s->n * s->c;
        for (int64_t n = 0; n < s->n; n++) {
            memcpy(dst + n * s->c, src + n * in * s->c, (size_t)s->c * sizeof *dst);
        }
        return;
    }
    const int64_t place = task - in;
    float *panel = w->dy_copy; /* each (oh, ow, n, width) */
    for (int64_t g = 0; g < s->groups; g++) {
        for (int64_t i = 0; i < w->panels; i++) {
            const int64_t j = panel_start(w, i) * lanes, width = panel_start(w, i + 1) * lanes - j;
            const float *src = w->c->dy + place * s->oc + g * w->ocg + j;
            w->isa->pack(src, out * s->oc, s->n, min_of(width, w->ocg - j), width,
                         panel + place * s->n * width);
            panel += out * s->n * width;
        }
    }
}

/* One sample of x with its padding around it. */
static void pad_task(void *ctx, int task, int thread)
{
    const weights_job *w = ctx;
    const conv_shape *s = &w->c->s;
    const float *src = w->c->x + (int64_t)task * s->h * s->w * s->c;
    float *dst = w->x_copy + (int64_t)task * w->xh * w->xw * s->c;
    const int64_t before = min_of(s->left, w->xw), inside = max_of(0, min_of(s->w, w->xw - before));
    const int64_t after = w->xw - before - inside;
    (void)thread;

    for (int64_t r = 0; r < w->xh; r++, dst += w->xw * s->c) {
        const int64_t ih = r - s->top;
        if (ih < 0 || ih >= s->h) {
            memset(dst, 0, (size_t)(w->xw * s->c) * sizeof *dst);
            continue;
        }
        memset(dst, 0, (size_t)(before * s->c) * sizeof *dst);
        memcpy(dst + before * s->c, src + ih * s->w * s->c, (size_t)(inside * s->c) * sizeof *dst);
        memset(dst + (before + inside) * s->c, 0, (size_t)(after * s->c) * sizeof *dst);
    }
}

/* Outputs [lo, hi) of one dimension that tap t sees data from. */
static void find_seen(int64_t in, int64_t out, int64_t stride, int64_t shift, int64_t *lo, int64_t *hi)
{
    /* 0 <= o * stride + shift < in */
    *lo = shift >= 0 ? 0 : ceil_div(-shift, stride);
    *hi = in > shift ? min_of(out, (in - 1 - shift) / stride + 1) : 0;
    if (*hi < *lo) *hi = *lo;
}

/* One block of the sum: positions [first, end) when positions go first, else
 * lines of samples, a line being (n, oh); of a line too long for a block only
 * the columns [q0, q1). */
typedef struct weights_block {
    int64_t n0, n1, first, end, q0, q1;
    const float *b; /* dy of the block's first step */
    int64_t rs_b;
} weights_block;

static int add_segment(gemm_seg *seg, int n, const float *a, const float *b, int64_t k, int64_t cs_a,
                       int64_t rs_b)
{
    if (n > 0 && seg[n - 1].a + seg[n - 1].k * cs_a == a && seg[n - 1].b + seg[n - 1].k * rs_b == b) {
        seg[n - 1].k += k;
        return n;
    }
    seg[n] = (gemm_seg){a, b, k};
    return n + 1;
}

/* Segments of the rows from `row` on: the first row's tap, through the block. */
static int list_segments(const weights_job *w, const weights_block *block, int64_t group, int64_t row,
                         gemm_seg *seg)
{
    const conv_shape *s = &w->c->s;
    const int64_t strip = row / w->strip, tap = strip * w->strip / w->cg;
    const int64_t kh = tap / s->kw, kw = tap % s->kw;
    const int64_t channel = group * w->cg + (row - strip * w->strip) * w->rs_a;
    const int64_t shift_h = kh * s->dh - (w->padded ? 0 : s->top);
    const int64_t shift_w = kw * s->dw - (w->padded ? 0 : s->left);
    int64_t oh0 = 0, oh1 = s->oh, ow0 = 0, ow1 = s->ow;

    if (!w->padded) {
        find_seen(s->h, s->oh, s->sh, shift_h, &oh0, &oh1);
        find_seen(s->w, s->ow, s->sw, shift_w, &ow0, &ow1);
    }
    int n = 0;
    if (w->positions_first) {
        const int64_t samples = block->n1 - block->n0;
        for (int64_t at = block->first; at < block->end; at++) {
            const int64_t oh = at / s->ow, ow = at % s->ow;
            if (oh < oh0 || oh >= oh1 || ow < ow0 || ow >= ow1) continue;
            const int64_t place = (oh * s->sh + shift_h) * s->w + ow * s->sw + shift_w;
            n = add_segment(seg, n, w->x + (place * s->n + block->n0) * s->c + channel,
                            block->b + (at - block->first) * s->n * block->rs_b, samples, s->c, block->rs_b);
        }
        return n;
    }
    ow0 = max_of(ow0, block->q0);
    ow1 = min_of(ow1, block->q1);
    if (ow0 >= ow1) return 0;
    for (int64_t line = block->first; line < block->end; line++) {
        const int64_t sample = line / s->oh, oh = line % s->oh;
        if (oh < oh0 || oh >= oh1) continue;
        const int64_t place = (sample * w->xh + oh * s->sh + shift_h) * w->xw + ow0 * s->sw + shift_w;
        n = add_segment(seg, n, w->x + place * s->c + channel,
                        block->b + ((line - block->first) * s->ow + ow0 - block->q0) * block->rs_b, ow1 - ow0,
                        s->sw * s->c, block->rs_b);
    }
    return n;
}

/* dy of a block for one panel: from the panels' copy, in place or packed. */
static void load_block(const weights_job *w, weights_block *block, int64_t group, int64_t panel, int64_t rows,
                       float *packed)
{
    const conv_shape *s = &w->c->s;
    const int64_t lanes = w->isa->lanes, j = panel_start(w, panel) * lanes;
    const int64_t width = panel_start(w, panel + 1) * lanes - j;

    if (w->positions_first) {
        const int64_t before = group * w->vecs * lanes + j; /* columns of the panels before this one */
        const int64_t place = s->oh * s->ow * s->n * before + (block->first * s->n + block->n0) * width;
        block->b = w->dy_copy + place;
        block->rs_b = width;
        return;
    }
    const float *src = w->c->dy + (block->first * s->ow + block->q0) * s->oc + group * w->ocg + j;
    const int64_t k = (block->end - block->first - 1) * s->ow + block->q1 - block->q0;
    if (j + width <= w->ocg && (rows < CONV_SUM_PACK_ROWS || s->oc == width)) {
        block->b = src;
        block->rs_b = s->oc;
        return;
    }
    assert(k * width <= PANEL_FLOATS);
    w->isa->pack(src, s->oc, k, min_of(width, w->ocg - j), width, packed);
    block->b = packed;
    block->rs_b = width;
}

/* Rows [r0, r1) of the weight through one block. */
static void compute_block(const weights_job *w, weights_block *block, int64_t r0, int64_t r1, float *tile,
                          float *packed)
{
    const conv_shape *s = &w->c->s;
    const int64_t lanes = w->isa->lanes;
    gemm_seg seg[GEMM_MAX_SEGS];

    for (int64_t g = 0; g < s->groups; g++) {
        for (int64_t i = 0; i < w->panels; i++) {
            const int64_t j = panel_start(w, i) * lanes;
            load_block(w, block, g, i, r1 - r0, packed);
            for (int64_t r = r0; r < r1;) {
                const int64_t end = min_of(r1, (r / w->strip + 1) * w->strip);
                gemm_tile t = {.seg = seg, .rs_a = w->rs_a, .rs_b = block->rs_b, .load = true};
                t.n_seg = list_segments(w, block, g, r, seg);
                t.cs_a = w->positions_first ? s->c : s->sw * s->c;
                t.cols = (int)(min_of(panel_start(w, i + 1) * lanes, w->ocg) - j);
                t.c = tile + (r - r0) * s->oc + g * w->ocg + j;
                t.rs_c = s->oc;
                if (t.n_seg > 0) gemm_rows(w->isa, &t, end - r);
                r = end;
            }
        }
    }
}

static void rows_task(void *ctx, int task, int thread)
{
    const weights_job *w = ctx;
    const conv_call *c = w->c;
    const conv_shape *s = &c->s;
    const int64_t chunk = task / w->row_tasks, part = task % w->row_tasks;
    const int64_t r0 = part * w->rows / w->row_tasks, r1 = (part + 1) * w->rows / w->row_tasks;
    const int64_t floats = (r1 - r0) * s->oc, first = r0 * s->oc;
    float *packed = pool_scratch(w->p, thread), *tile = packed + PANEL_FLOATS;

    if (w->partial) {
        tile = w->partial + chunk * w->rows * s->oc + first;
    } else if (!c->sink) {
        tile = c->dw + first;
    }
    if (!c->accumulate || chunk > 0) {
        memset(tile, 0, (size_t)floats * sizeof *tile);
    } else if (tile != c->dw + first) {
        memcpy(tile, c->dw + first, (size_t)floats * sizeof *tile);
    }

    weights_block block = {.n0 = chunk * w->chunk};
    block.n1 = min_of(block.n0 + w->chunk, s->n);
    const int64_t unit = w->positions_first ? block.n1 - block.n0 : s->ow; /* steps of a position or line */
    const int64_t step = min_of(GEMM_MAX_SEGS, max_of(1, CONV_SUM_BLOCK / max_of(unit, 1)));
    const int64_t begin = w->positions_first ? 0 : block.n0 * s->oh;
    const int64_t end = w->positions_first ? s->oh * s->ow : block.n1 * s->oh;
    for (int64_t at = begin; at < end; at += step) {
        block.first = at;
        block.end = min_of(at + step, end);
        const int64_t cols = step > 1 ? s->ow : CONV_SUM_BLOCK;
        for (block.q0 = 0; block.q0 < (w->positions_first ? 1 : s->ow); block.q0 = block.q1) {
            block.q1 = min_of(block.q0 + cols, s->ow);
            compute_block(w, &block, r0, r1, tile, packed);
        }
    }
    if (!w->partial && c->sink) c->sink(c->sink_ctx, first, floats, tile);
}

/* Channels of a depthwise task: so many that the sums of all taps fit into the scratch. */
static int64_t depthwise_channels(const conv_shape *s)
{
    const int64_t fit = KERN_SCRATCH / (int64_t)sizeof(float) / (s->kh * s->kw);

    return max_of(1, min_of(CONV_DEPTHWISE_RUN, fit));
}

/* One line of the output, (n, oh), for all taps that it sees: what is read of x and dy is in the cache for the next
 * tap. sums: of the task's channels, `stride` from tap to tap. */
static void depthwise_line(const weights_job *w, int64_t n, int64_t oh, int64_t j, int64_t channels,
                           float *sums, int64_t stride)
{
    const conv_call *c = w->c;
    const conv_shape *s = &c->s;

    for (int64_t tap = 0; tap < s->kh * s->kw; tap++) {
        const int64_t ih = oh * s->sh + tap / s->kw * s->dh - s->top;
        const int64_t shift = tap % s->kw * s->dw - s->left;
        int64_t ow0, ow1;
        if (ih < 0 || ih >= s->h) continue;
        find_seen(s->w, s->ow, s->sw, shift, &ow0, &ow1);
        w->isa->chain(&(gemm_chain){.a = c->x + ((n * s->h + ih) * s->w + ow0 * s->sw + shift) * s->c + j,
                                    .b = c->dy + ((n * s->oh + oh) * s->ow + ow0) * s->c + j,
                                    .c = sums + tap * stride,
                                    .n = channels,
                                    .count = ow1 - ow0,
                                    .step_a = s->sw * s->c,
                                    .step_b = s->c});
    }
}

/* All taps of some channels that do not mix, for one chunk of the batch. */
static void depthwise_task(void *ctx, int task, int thread)
{
    const weights_job *w = ctx;
    const conv_call *c = w->c;
    const conv_shape *s = &c->s;
    const int64_t taps = s->kh * s->kw, run = depthwise_channels(s), runs = ceil_div(s->c, run);
    const int64_t chunk = task / runs, j = task % runs * run, channels = min_of(run, s->c - j);
    const int64_t n0 = chunk * w->chunk, n1 = min_of(n0 + w->chunk, s->n);
    const bool sink = !w->partial && c->sink;
    const int64_t stride = sink ? channels : s->c;
    float *sums = sink         ? pool_scratch(w->p, thread)
                  : w->partial ? w->partial + chunk * taps * s->c + j
                               : c->dw + j;

    for (int64_t tap = 0; tap < taps; tap++) {
        float *to = sums + tap * stride;
        const size_t size = (size_t)channels * sizeof *to;
        if (!c->accumulate || chunk > 0) {
            memset(to, 0, size);
        } else if (to != c->dw + tap * s->c + j) {
            memcpy(to, c->dw + tap * s->c + j, size);
        }
    }
    for (int64_t n = n0; n < n1; n++) {
        for (int64_t oh = 0; oh < s->oh; oh++) depthwise_line(w, n, oh, j, channels, sums, stride);
    }
    for (int64_t tap = 0; sink && tap < taps; tap++) {
        c->sink(c->sink_ctx, tap * s->c + j, channels, sums + tap * stride);
    }
}

/* Adds the partial results of a stretch of the weight, in chunk order. */
static void add_task(void *ctx, int task, int thread)
{
    const weights_job *w = ctx;
    const conv_call *c = w->c;
    const int64_t total = w->rows * c->s.oc, first = (int64_t)task * CONV_ADD_RUN,
                  n = min_of(CONV_ADD_RUN, total - first);
    float *out = c->sink ? pool_scratch(w->p, thread) : c->dw + first;

    memcpy(out, w->partial + first, (size_t)n * sizeof *out);
    for (int64_t k = 1; k < w->chunks; k++) {
        const float *add = w->partial + k * total + first;
        for (int64_t i = 0; i < n; i++) out[i] += add[i];
    }
    if (c->sink) c->sink(c->sink_ctx, first, n, out);
}

void conv_backward_weights_tiled(const gemm_isa *isa, pool *p, const conv_call *c)
{
    const conv_shape *s = &c->s;
    weights_job w = {.p = p, .c = c, .x = c->x};

    plan_job(&w, isa, s);
    place_copies(&w, c->work);
    if (conv_is_depthwise(s)) {
        pool_run(p, (int)(w.chunks * ceil_div(s->c, depthwise_channels(s))), depthwise_task, &w);
    } else {
        if (w.positions_first) {
            pool_run(p, (int)(s->h * s->w + s->oh * s->ow), gather_task, &w);
        } else if (w.x_copy) {
            pool_run(p, (int)s->n, pad_task, &w);
        }
        if (w.x_copy) w.x = w.x_copy;
        pool_run(p, (int)(w.chunks * w.row_tasks), rows_task, &w);
    }
    if (w.partial) pool_run(p, (int)ceil_div(w.rows * s->oc, CONV_ADD_RUN), add_task, &w);
}
