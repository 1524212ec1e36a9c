/* loss_category.c - categorical cross-entropy, from integers and from rows of
 * shares, on logits and on probabilities.
 *
 * Letters: x logits, p probabilities, t target shares, C classes, S a sum over
 * the row, g = weight * scale, what every gradient is multiplied by.
 *
 *   logits          L = sum t (ln S - (x - max)),  S = sum e^(x - max)
 *                   dL/dx = softmax(x) * sum t - t
 *   sparse, probs   c = clip(p), S = sum c:  L = ln S - sum t ln c
 *                   dL/dp = 1/S - t/c where the clip lets p through, else 0
 *   dense, probs    q = p/S, S = sum p, c = clip(q):  L = -sum t ln c
 *                   dL/dq = -t/c or 0;  dL/dp = (dL/dq - sum q dL/dq) / S
 *
 * The two forms on probabilities are what Keras computes on TensorFlow: the
 * sparse one hands ln c to a softmax cross-entropy and so divides by the sum
 * of the clipped row, the dense one divides first and clips then. The gradient
 * by the logits carries sum t, which is 1 for shares; TensorFlow leaves it out
 * and says that its gradient is wrong where it is not. */
#include "nn/loss_impl.h"

#include "nn/loss_rows.h"
#include "nn/loss_target.h"

static const char SPARSE[] = "sparse_categorical_crossentropy";
static const char DENSE[] = "categorical_crossentropy";

/* One row on its way through. */
typedef struct row {
    int64_t n; /* classes */
    const float *in; /* logits or probabilities */
    float *grad; /* or NULL */
    float g;
    float smoothing;
    float *loss;
} row;

static row row_at(const manta_loss_call *c, int64_t r)
{
    float weight = c->weight ? c->weight[r] : 1.0f;

    return (row){.n = c->classes,
                 .in = c->pred + r * c->classes,
                 .grad = c->grad ? c->grad + r * c->classes : NULL,
                 .g = weight * c->scale,
                 .smoothing = loss_options(c)->label_smoothing,
                 .loss = c->loss + r};
}

static int block_at(const row *w, int64_t i)
{
    return w->n - i < LOSS_BLOCK ? (int)(w->n - i) : LOSS_BLOCK;
}

/* Sum over the row of x - shift. */
static float sum_of(const row *w, float shift)
{
    float lanes[LOSS_LANES] = {0}, v[LOSS_BLOCK];

    for (int64_t i = 0; i < w->n; i += LOSS_BLOCK) {
        int n = block_at(w, i);
        for (int j = 0; j < n; j++) v[j] = w->in[i + j] - shift;
        loss_lanes_add(lanes, n, v);
    }
    return loss_lanes_sum(lanes);
}

static void sparse_logits(const loss_rows *rows, const row *w, int64_t label)
{
    loss_softmax s = rows->softmax(w->n, w->in, w->grad);
    float other = w->smoothing / (float)w->n, own = 1.0f - w->smoothing;
    float right = w->in[label] - s.max;

    *w->loss = s.log_sum - right;
    if (w->smoothing > 0.0f) *w->loss = s.log_sum - own * right - other * sum_of(w, s.max);
    if (!w->grad) return;
    float part = w->g / s.sum, less = w->g * other;
    if (w->smoothing > 0.0f)
        for (int64_t i = 0; i < w->n; i++) w->grad[i] = w->grad[i] * part - less;
    else
        for (int64_t i = 0; i < w->n; i++) w->grad[i] *= part;
    w->grad[label] -= w->g * own;
}

static void sparse_probs(const loss_rows *rows, const row *w, int64_t label)
{
    float lanes[LOSS_LANES] = {0}, logs[LOSS_LANES] = {0}, v[LOSS_BLOCK], ends[2];
    float other = w->smoothing / (float)w->n, own = 1.0f - w->smoothing;

    for (int64_t i = 0; i < w->n; i += LOSS_BLOCK) {
        int n = block_at(w, i);
        for (int j = 0; j < n; j++) v[j] = loss_clip(w->in[i + j]);
        loss_lanes_add(lanes, n, v);
        if (!(w->smoothing > 0.0f)) continue;
        rows->log(n, v, v);
        loss_lanes_add(logs, n, v);
    }
    float sum = loss_lanes_sum(lanes), right = loss_clip(w->in[label]);
    ends[0] = sum;
    ends[1] = right;
    rows->log(2, ends, ends);
    *w->loss = ends[0] - ends[1];
    if (w->smoothing > 0.0f) *w->loss = ends[0] - own * ends[1] - other * loss_lanes_sum(logs);
    if (!w->grad) return;
    float even = w->g / sum;
    for (int64_t i = 0; i < w->n; i++) {
        float c = loss_clip(w->in[i]), t = i == label ? own + other : other;
        w->grad[i] = loss_clip_slope(w->in[i]) * (even - w->g * t / c);
    }
}

manta_status loss_sparse_category(const manta_loss_call *c)
{
    const loss_rows *rows = loss_rows_of();

    TRY(loss_target_fits(c, SPARSE, true));
    for (int64_t r = 0; r < c->rows; r++) {
        row w = row_at(c, r);
        int64_t label;
        TRY(loss_target_class(c, SPARSE, r, &label));
        (loss_options(c)->from_logits ? sparse_logits : sparse_probs)(rows, &w, label);
    }
    return MANTA_OK;
}

/* Elements [i, i + n) of a dense target's row, smoothed. */
static manta_status read_smoothed_target(const manta_loss_call *c, const row *w, int64_t i, int n, float *t)
{
    TRY(loss_target_read(c, DENSE, LOSS_SHARE, (w->in - c->pred) + i, n, t));
    if (w->smoothing > 0.0f)
        for (int j = 0; j < n; j++) t[j] = t[j] * (1.0f - w->smoothing) + w->smoothing / (float)w->n;
    return MANTA_OK;
}

static manta_status dense_logits(const manta_loss_call *c, const loss_rows *rows, const row *w)
{
    float losses[LOSS_LANES] = {0}, totals[LOSS_LANES] = {0}, t[LOSS_BLOCK], v[LOSS_BLOCK];
    loss_softmax s = rows->softmax(w->n, w->in, w->grad);

    for (int64_t i = 0; i < w->n; i += LOSS_BLOCK) {
        int n = block_at(w, i);
        TRY(read_smoothed_target(c, w, i, n, t));
        for (int j = 0; j < n; j++) v[j] = t[j] * (s.log_sum - (w->in[i + j] - s.max));
        loss_lanes_add(losses, n, v);
        loss_lanes_add(totals, n, t);
    }
    *w->loss = loss_lanes_sum(losses);
    if (!w->grad) return MANTA_OK;
    float part = w->g * loss_lanes_sum(totals) / s.sum;
    for (int64_t i = 0; i < w->n; i += LOSS_BLOCK) {
        int n = block_at(w, i);
        TRY(read_smoothed_target(c, w, i, n, t));
        for (int j = 0; j < n; j++) w->grad[i + j] = w->grad[i + j] * part - w->g * t[j];
    }
    return MANTA_OK;
}

static manta_status dense_probs(const manta_loss_call *c, const loss_rows *rows, const row *w)
{
    float losses[LOSS_LANES] = {0}, dots[LOSS_LANES] = {0};
    float t[LOSS_BLOCK], q[LOSS_BLOCK], v[LOSS_BLOCK], slope[LOSS_BLOCK];
    float sum = sum_of(w, 0.0f);

    for (int64_t i = 0; i < w->n; i += LOSS_BLOCK) {
        int n = block_at(w, i);
        TRY(read_smoothed_target(c, w, i, n, t));
        for (int j = 0; j < n; j++) {
            q[j] = w->in[i + j] / sum;
            v[j] = loss_clip(q[j]);
            slope[j] = loss_clip_slope(q[j]) * -t[j] / v[j];
        }
        rows->log(n, v, v);
        for (int j = 0; j < n; j++) v[j] *= -t[j];
        loss_lanes_add(losses, n, v);
        if (!w->grad) continue;
        for (int j = 0; j < n; j++) {
            w->grad[i + j] = slope[j];
            v[j] = slope[j] * q[j];
        }
        loss_lanes_add(dots, n, v);
    }
    *w->loss = loss_lanes_sum(losses);
    if (!w->grad) return MANTA_OK;
    float dot = loss_lanes_sum(dots), part = w->g / sum;
    for (int64_t i = 0; i < w->n; i++) w->grad[i] = (w->grad[i] - dot) * part;
    return MANTA_OK;
}

manta_status loss_dense_category(const manta_loss_call *c)
{
    const loss_rows *rows = loss_rows_of();

    TRY(loss_target_fits(c, DENSE, false));
    for (int64_t r = 0; r < c->rows; r++) {
        row w = row_at(c, r);
        TRY((loss_options(c)->from_logits ? dense_logits : dense_probs)(c, rows, &w));
    }
    return MANTA_OK;
}
