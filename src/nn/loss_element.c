/* loss_element.c - losses that compare element by element and average over
 * the row: binary cross-entropy, squared, absolute and Huber's error.
 *
 * Each is one function of blocks that gives value and slope; the loop around
 * it reads the target, adds up and scales. NaN goes through each of them: no
 * comparison may replace it by a number. */
#include "nn/loss_impl.h"

#include <math.h>

#include "base/option.h"
#include "nn/loss_rows.h"
#include "nn/loss_target.h"

/* value and slope of n <= LOSS_BLOCK predictions p against t. */
typedef void element_fn(const loss_config *k, int n, const float *p, const float *t, float *value,
                        float *slope);

static void binary_elements(const loss_config *k, int n, const float *p, const float *t, float *value,
                            float *slope)
{
    const loss_rows *rows = loss_rows_of();
    float soft[LOSS_BLOCK];

    if (k->label_smoothing > 0.0f) {
        for (int i = 0; i < n; i++) soft[i] = t[i] * (1.0f - k->label_smoothing) + 0.5f * k->label_smoothing;
        t = soft;
    }
    (k->from_logits ? rows->binary_logits : rows->binary_probs)(n, p, t, value, slope);
}

static void squared_elements(const loss_config *k, int n, const float *p, const float *t, float *value,
                             float *slope)
{
    (void)k;
    for (int i = 0; i < n; i++) {
        float d = p[i] - t[i];
        value[i] = d * d;
        slope[i] = 2.0f * d;
    }
}

static void absolute_elements(const loss_config *k, int n, const float *p, const float *t, float *value,
                              float *slope)
{
    (void)k;
    for (int i = 0; i < n; i++) {
        float d = p[i] - t[i];
        value[i] = fabsf(d);
        slope[i] = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : d; /* 0 at 0, NaN at NaN */
    }
}

static void huber_elements(const loss_config *k, int n, const float *p, const float *t, float *value,
                           float *slope)
{
    float delta = (float)option_real((double)k->delta, 1);

    for (int i = 0; i < n; i++) {
        float d = p[i] - t[i], a = fabsf(d);
        value[i] = a <= delta ? 0.5f * (d * d) : delta * a - 0.5f * (delta * delta);
        float above = d < -delta ? -delta : d;
        slope[i] = above > delta ? delta : above;
    }
}

static manta_status mean_of_row(const manta_loss_call *c, const char *what, loss_range range, element_fn *fn,
                                int64_t r)
{
    float lanes[LOSS_LANES] = {0}, t[LOSS_BLOCK], value[LOSS_BLOCK], slope[LOSS_BLOCK];
    int64_t at = r * c->classes, end = at + c->classes;
    float count = (float)c->classes, g = (c->weight ? c->weight[r] : 1.0f) * c->scale / count;

    for (; at < end; at += LOSS_BLOCK) {
        int n = end - at < LOSS_BLOCK ? (int)(end - at) : LOSS_BLOCK;
        TRY(loss_target_read(c, what, range, at, n, t));
        fn(loss_options(c), n, c->pred + at, t, value, slope);
        loss_lanes_add(lanes, n, value);
        for (int i = 0; c->grad && i < n; i++) c->grad[at + i] = slope[i] * g;
    }
    c->loss[r] = loss_lanes_sum(lanes) / count;
    return MANTA_OK;
}

static manta_status mean_of_rows(const manta_loss_call *c, const char *what, loss_range range, element_fn *fn)
{
    TRY(loss_target_fits(c, what, false));
    for (int64_t r = 0; r < c->rows; r++) TRY(mean_of_row(c, what, range, fn, r));
    return MANTA_OK;
}

manta_status loss_binary(const manta_loss_call *c)
{
    return mean_of_rows(c, "binary_crossentropy", LOSS_SHARE, binary_elements);
}

manta_status loss_squared(const manta_loss_call *c)
{
    return mean_of_rows(c, "mean_squared_error", LOSS_ANY, squared_elements);
}

manta_status loss_absolute(const manta_loss_call *c)
{
    return mean_of_rows(c, "mean_absolute_error", LOSS_ANY, absolute_elements);
}

manta_status loss_huber(const manta_loss_call *c)
{
    return mean_of_rows(c, "huber", LOSS_ANY, huber_elements);
}
