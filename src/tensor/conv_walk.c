/* conv_walk.c - tables of taps, and the shape's decisions about its sums. */
#include "tensor/conv_walk.h"

#include <assert.h>

#include "tensor/gemm_sizes.h"
#include "tensor/sizes.h"

bool conv_is_depthwise(const conv_shape *s)
{
    return s->c == s->groups && s->oc == s->groups;
}

int64_t conv_chunk(const conv_shape *s)
{
    const int64_t weights = s->kh * s->kw * (s->c / s->groups) * s->oc;

    if (weights >= CONV_LARGE_WEIGHT) return max_of(1, s->n);
    return max_of(1, ceil_div(s->n, CONV_CHUNKS));
}

conv_sum conv_order(const conv_shape *s)
{
    const bool small = s->oh * s->ow <= CONV_SMALL_MAP && s->c / s->groups >= CONV_FEW_CHANNELS;

    return small ? CONV_POSITIONS_FIRST : CONV_SAMPLES_FIRST;
}

bool conv_counts_padding(const conv_shape *s)
{
    return s->c / s->groups < CONV_FEW_CHANNELS && !conv_is_depthwise(s);
}

/* Where tap t reaches from place i, or -1. */
static int64_t tap_reach(const conv_dim *d, int64_t i, int64_t t)
{
    int64_t at = i * d->stride + t * d->dilation - d->before;

    if (d->back) {
        const int64_t scaled = i + d->before - t * d->dilation;
        if (scaled < 0 || scaled % d->stride != 0) return -1;
        at = scaled / d->stride;
    }
    return at >= 0 && at < d->other ? at : -1;
}

static void fill_taps(const conv_dim *d, int32_t *counts, conv_tap *taps)
{
    for (int64_t i = 0; i < d->size; i++) {
        conv_tap *mine = taps + i * d->taps;
        int32_t n = 0;
        for (int64_t t = 0; t < d->taps; t++) {
            const int64_t at = tap_reach(d, i, t);
            if (at >= 0) mine[n++] = (conv_tap){(int32_t)t, (int32_t)at};
        }
        counts[i] = n;
    }
}

static bool same_taps(const conv_walk *w, int64_t i, int64_t j)
{
    const conv_tap *a = w->col_taps + i * w->cols.taps, *b = w->col_taps + j * w->cols.taps;

    if (w->n_col_taps[i] != w->n_col_taps[j]) return false;
    for (int32_t t = 0; t < w->n_col_taps[i]; t++) {
        if (a[t].tap != b[t].tap) return false;
    }
    return true;
}

/* Going back, neighbours a stride apart share their taps and reach neighbouring
 * places; going forward, plain neighbours reach places a stride apart. */
static void find_runs(conv_walk *w, int64_t samples)
{
    const int64_t step = w->cols.back ? w->cols.stride : 1, move = w->cols.back ? 1 : w->cols.stride;

    w->n_runs = 0;
    w->n_singles = 0;
    for (int64_t phase = 0; phase < step && phase < w->cols.size; phase++) {
        for (int64_t i = phase; i < w->cols.size;) {
            int64_t end = i + step;
            while (end < w->cols.size && same_taps(w, i, end)) end += step;
            const int64_t count = (end - i) / step;
            if (count >= CONV_LONG_RUN || count >= samples) {
                w->runs[w->n_runs++] = (conv_run){(int32_t)i, (int32_t)step, (int32_t)count, (int32_t)move};
                i = end;
            }
            for (; i < end; i += step) w->singles[w->n_singles++] = (int32_t)i;
        }
    }
}

static size_t align_up(size_t size)
{
    return (size + 63) & ~(size_t)63;
}

size_t conv_walk_size(const conv_shape *s)
{
    const int64_t rows = max_of(s->h, s->oh), cols = max_of(s->w, s->ow);

    return align_up((size_t)(rows * s->kh + cols * s->kw) * sizeof(conv_tap)) +
           align_up((size_t)cols * sizeof(conv_run)) + align_up((size_t)(rows + 2 * cols) * sizeof(int32_t));
}

void conv_walk_init(conv_walk *w, const conv_shape *s, bool back, void *memory)
{
    w->rows = (conv_dim){back ? s->h : s->oh, back ? s->oh : s->h, s->kh, s->sh, s->dh, s->top, back};
    w->cols = (conv_dim){back ? s->w : s->ow, back ? s->ow : s->w, s->kw, s->sw, s->dw, s->left, back};
    assert(w->rows.size < INT32_MAX && w->cols.size < INT32_MAX && w->rows.other < INT32_MAX &&
           w->cols.other < INT32_MAX);
    char *at = memory;
    w->row_taps = (conv_tap *)at;
    w->col_taps = w->row_taps + w->rows.size * w->rows.taps;
    at += align_up((size_t)(w->rows.size * w->rows.taps + w->cols.size * w->cols.taps) * sizeof(conv_tap));
    w->runs = (conv_run *)at;
    at += align_up((size_t)w->cols.size * sizeof(conv_run));
    w->n_row_taps = (int32_t *)at;
    w->n_col_taps = w->n_row_taps + w->rows.size;
    w->singles = w->n_col_taps + w->cols.size;
    fill_taps(&w->rows, w->n_row_taps, w->row_taps);
    fill_taps(&w->cols, w->n_col_taps, w->col_taps);
    find_runs(w, s->n);
}
