/* schedule.c - learning-rate schedules, in f32 as Keras computes them.
 *
 * Keras turns every constant into a float and does one operation after the
 * other in floats; so do we, because a rate that differs in its last bits from
 * the peer's makes a training curve that cannot be compared. What Python
 * computes before it becomes a tensor (1 - alpha) is rounded once. */
#include "nn/schedule.h"

#include <inttypes.h>
#include <math.h>

#include "base/args.h"
#include "base/status.h"

static const float PI = 3.14159265358979f;

static float exponential_rate(const manta_schedule *s, float step)
{
    float p = step / (float)s->decay_steps;

    if (s->staircase) p = floorf(p);
    return (float)s->initial_learning_rate * powf((float)s->decay_rate, p);
}

static float inverse_time(const manta_schedule *s, float step)
{
    float p = step / (float)s->decay_steps;

    if (s->staircase) p = floorf(p);
    return (float)s->initial_learning_rate / (1.0f + (float)s->decay_rate * p);
}

/* Warm-up rises in a line from the initial rate to its target, which the cosine then starts from. */
static float cosine_rate(const manta_schedule *s, float step)
{
    float from = (float)s->initial_learning_rate, steps = (float)s->decay_steps;

    if (s->warmup_steps > 0 || s->warmup_target != 0) {
        float target = (float)s->warmup_target, warm = (float)s->warmup_steps;
        if (step < warm) return (target - from) * (step / warm) + from;
        step = fminf(step, steps + warm) - warm;
        from = target;
    }
    step = fminf(step, steps);
    float wave = 0.5f * (1.0f + cosf(PI * (step / steps)));
    return from * ((float)(1.0 - s->alpha) * wave + (float)s->alpha);
}

static float polynomial_rate(const manta_schedule *s, float step)
{
    float steps = (float)s->decay_steps, end = (float)s->end_learning_rate;

    if (s->cycle)
        steps *= step == 0.0f ? 1.0f : ceilf(step / steps);
    else
        step = fminf(step, steps);
    float left = 1.0f - step / steps;
    return ((float)s->initial_learning_rate - end) * powf(left, (float)s->power) + end;
}

static float piecewise_rate(const manta_schedule *s, int64_t step)
{
    int i = 0;

    while (i < s->n_boundaries && i < MANTA_SCHEDULE_PIECES && step > s->boundaries[i]) i++;
    return (float)s->values[i];
}

double manta_schedule_at(const manta_schedule *s, int64_t step)
{
    REFUSE_NULL_OR(s, 0);
    REFUSE_NEGATIVE_OR(step, 0);

    float t = (float)step;

    switch (s->kind) {
    case MANTA_SCHEDULE_EXPONENTIAL: return (double)exponential_rate(s, t);
    case MANTA_SCHEDULE_COSINE: return (double)cosine_rate(s, t);
    case MANTA_SCHEDULE_PIECEWISE: return (double)piecewise_rate(s, step);
    case MANTA_SCHEDULE_POLYNOMIAL: return (double)polynomial_rate(s, t);
    case MANTA_SCHEDULE_INVERSE_TIME: return (double)inverse_time(s, t);
    case MANTA_SCHEDULE_CONSTANT: break;
    }
    return (double)(float)s->initial_learning_rate;
}

static const char *const names[] = {
    [MANTA_SCHEDULE_CONSTANT] = "constant",     [MANTA_SCHEDULE_EXPONENTIAL] = "exponential",
    [MANTA_SCHEDULE_COSINE] = "cosine",         [MANTA_SCHEDULE_PIECEWISE] = "piecewise",
    [MANTA_SCHEDULE_POLYNOMIAL] = "polynomial", [MANTA_SCHEDULE_INVERSE_TIME] = "inverse-time",
};
enum { N_KINDS = sizeof names / sizeof names[0] };

/* A rate or a share of one: finite and not negative. */
static manta_status check_positive(const manta_schedule *s, const char *field, double v)
{
    if (v >= 0 && isfinite(v)) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%s schedule: %s is %g; expected a number from 0 up", names[s->kind],
                      field, v);
}

static manta_status check_pieces(const manta_schedule *s)
{
    if (s->n_boundaries < 1 || s->n_boundaries > MANTA_SCHEDULE_PIECES)
        return manta_fail(MANTA_EINVAL, "piecewise schedule: it has %d boundaries; expected 1 to %d",
                          s->n_boundaries, MANTA_SCHEDULE_PIECES);
    for (int i = 0; i <= s->n_boundaries; i++) TRY(check_positive(s, "a value", s->values[i]));
    for (int i = 1; i < s->n_boundaries; i++)
        if (s->boundaries[i] <= s->boundaries[i - 1])
            return manta_fail(MANTA_EINVAL,
                              "piecewise schedule: boundary %" PRId64 " comes after %" PRId64
                              "; expected rising steps",
                              s->boundaries[i], s->boundaries[i - 1]);
    return MANTA_OK;
}

manta_status schedule_check(const manta_schedule *s)
{
    if ((int)s->kind < 0 || (int)s->kind >= N_KINDS)
        return manta_fail(MANTA_EINVAL, "there is no schedule numbered %d", (int)s->kind);
    if (s->kind == MANTA_SCHEDULE_CONSTANT) return MANTA_OK;
    if (s->kind == MANTA_SCHEDULE_PIECEWISE) return check_pieces(s);
    if (s->decay_steps <= 0)
        return manta_fail(MANTA_EINVAL, "%s schedule: decay_steps is %" PRId64 "; expected a positive number",
                          names[s->kind], s->decay_steps);
    TRY(check_positive(s, "initial_learning_rate", s->initial_learning_rate));
    TRY(check_positive(s, "decay_rate", s->decay_rate));
    TRY(check_positive(s, "alpha", s->alpha));
    TRY(check_positive(s, "warmup_target", s->warmup_target));
    TRY(check_positive(s, "end_learning_rate", s->end_learning_rate));
    TRY(check_positive(s, "power", s->power));
    if (s->warmup_steps < 0)
        return manta_fail(MANTA_EINVAL,
                          "%s schedule: warmup_steps is %" PRId64 "; expected a number from 0 up",
                          names[s->kind], s->warmup_steps);
    return MANTA_OK;
}
