/* optimizer.c - optimizers as data: names, defaults, checks, and the scalars of
 * one step.
 *
 * Calls and iterations. A call is one gradient handed to the optimizer. With
 * gradient accumulation over N, every N-th call updates; the iteration, which
 * Adam's corrections and "the first step" count in, is calls / N. Schedules
 * count in calls. The moving average runs on every call, but its "first" and
 * its overwriting count in iterations (so, under accumulation, the first N
 * calls copy, and an overwriting iteration overwrites N times), as in Keras. */
#include "nn/optimizer.h"

#include <float.h>
#include <math.h>

#include <manta/tool_text.h>

#include "base/args.h"
#include "base/status.h"
#include "nn/name.h"
#include "nn/schedule.h"

static const manta_optimizer presets[] = {
    {.kind = MANTA_OPTIMIZER_SGD, .learning_rate = 0.01},
    {.kind = MANTA_OPTIMIZER_ADAM, .learning_rate = 0.001, .beta_1 = 0.9, .beta_2 = 0.999, .epsilon = 1e-7},
    {.kind = MANTA_OPTIMIZER_ADAMW,
     .learning_rate = 0.001,
     .beta_1 = 0.9,
     .beta_2 = 0.999,
     .epsilon = 1e-7,
     .weight_decay = 0.004},
    {.kind = MANTA_OPTIMIZER_RMSPROP, .learning_rate = 0.001, .rho = 0.9, .epsilon = 1e-7},
    {.kind = MANTA_OPTIMIZER_SGD, .torch = true, .learning_rate = 0.001},
    {.kind = MANTA_OPTIMIZER_ADAM,
     .torch = true,
     .learning_rate = 0.001,
     .beta_1 = 0.9,
     .beta_2 = 0.999,
     .epsilon = 1e-8},
    {.kind = MANTA_OPTIMIZER_ADAMW,
     .torch = true,
     .learning_rate = 0.001,
     .beta_1 = 0.9,
     .beta_2 = 0.999,
     .epsilon = 1e-8,
     .weight_decay = 0.01},
    {.kind = MANTA_OPTIMIZER_RMSPROP, .torch = true, .learning_rate = 0.01, .rho = 0.99, .epsilon = 1e-8},
};
enum { N_PRESETS = sizeof presets / sizeof presets[0] };

const char *manta_optimizer_name(const manta_optimizer *o)
{
    REFUSE_NULL_OR(o, NULL);

    switch (o->kind) {
    case MANTA_OPTIMIZER_SGD: return o->torch ? "torch.sgd" : "sgd";
    case MANTA_OPTIMIZER_ADAM: return o->torch ? "torch.adam" : "adam";
    case MANTA_OPTIMIZER_ADAMW: return o->torch ? "torch.adamw" : "adamw";
    case MANTA_OPTIMIZER_RMSPROP: return o->torch ? "torch.rmsprop" : "rmsprop";
    }
    return "?";
}

static manta_status fail_unknown_optimizer(const char *name)
{
    manta_suggestion near = manta_suggestion_for(name);
    char hint[96];

    for (int i = 0; i < N_PRESETS; i++) manta_suggestion_offer(&near, manta_optimizer_name(&presets[i]));
    return manta_fail(MANTA_ENOENT,
                      "there is no optimizer \"%.80s\" (there are sgd, adam, adamw, rmsprop, and torch.sgd, "
                      "torch.adam, torch.adamw, torch.rmsprop)%s",
                      name, manta_suggestion_text(&near, hint, sizeof hint));
}

manta_status manta_optimizer_named(const char *name, manta_optimizer *out)
{
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    for (int i = 0; name && i < N_PRESETS; i++) {
        if (!name_same(name, manta_optimizer_name(&presets[i]))) continue;
        *out = presets[i];
        out->ema_momentum = 0.99;
        return MANTA_OK;
    }
    return fail_unknown_optimizer(name ? name : "");
}

static manta_status check_within(const manta_optimizer *o, const char *field, double v, double low,
                                 double high, const char *expected)
{
    if (v >= low && v <= high) return MANTA_OK; /* false for NaN */
    return manta_fail(MANTA_EINVAL, "optimizer %s: %s is %g; expected %s", manta_optimizer_name(o), field, v,
                      expected);
}

static manta_status from_zero_up(const manta_optimizer *o, const char *field, double v)
{
    return check_within(o, field, v, 0, FLT_MAX, "a number from 0 up");
}

/* From 0 to below 1: at 1 a mean would never move, or its correction divide by 0. */
static manta_status below_one(const manta_optimizer *o, const char *field, double v)
{
    return check_within(o, field, v, 0, nextafter(1, 0), "a number from 0 to below 1");
}

/* An option that this kind does not know would be ignored in silence. */
static manta_status check_belongs(const manta_optimizer *o, const char *field, bool given, bool known)
{
    if (!given || known) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "optimizer %s has no %s", manta_optimizer_name(o), field);
}

static manta_status check_rule(const manta_optimizer *o)
{
    bool adam = o->kind == MANTA_OPTIMIZER_ADAM || o->kind == MANTA_OPTIMIZER_ADAMW,
         sgd = o->kind == MANTA_OPTIMIZER_SGD;

    TRY(check_belongs(o, "momentum", o->momentum != 0, !adam));
    TRY(check_belongs(o, "dampening", o->dampening != 0, sgd && o->torch));
    TRY(check_belongs(o, "nesterov", o->nesterov, sgd));
    TRY(check_belongs(o, "amsgrad", o->amsgrad, adam));
    TRY(check_belongs(o, "centered", o->centered, o->kind == MANTA_OPTIMIZER_RMSPROP));
    TRY(check_within(o, "momentum", o->momentum, 0, 1, "a number from 0 to 1"));
    TRY(check_within(o, "dampening", o->dampening, 0, 1, "a number from 0 to 1"));
    if (o->torch && o->nesterov && (o->momentum == 0 || o->dampening != 0))
        return manta_fail(MANTA_EINVAL, "optimizer %s: nesterov needs a momentum and no dampening",
                          manta_optimizer_name(o));
    if (adam) {
        TRY(below_one(o, "beta_1", o->beta_1));
        TRY(below_one(o, "beta_2", o->beta_2));
    }
    if (o->kind == MANTA_OPTIMIZER_RMSPROP) TRY(check_within(o, "rho", o->rho, 0, 1, "a number from 0 to 1"));
    return from_zero_up(o, "epsilon", o->epsilon);
}

static manta_status check_clipping(const manta_optimizer *o)
{
    TRY(from_zero_up(o, "clipvalue", o->clipvalue));
    TRY(from_zero_up(o, "clipnorm", o->clipnorm));
    TRY(from_zero_up(o, "global_clipnorm", o->global_clipnorm));
    if ((o->clipvalue > 0) + (o->clipnorm > 0) + (o->global_clipnorm > 0) > 1)
        return manta_fail(MANTA_EINVAL,
                          "optimizer %s: at most one of clipvalue, clipnorm and global_clipnorm can be given",
                          manta_optimizer_name(o));
    return MANTA_OK;
}

manta_status manta_optimizer_check(const manta_optimizer *o)
{
    REFUSE_NULL(o);

    if ((int)o->kind < 0 || o->kind > MANTA_OPTIMIZER_RMSPROP)
        return manta_fail(MANTA_EINVAL, "there is no optimizer numbered %d", (int)o->kind);
    if (o->schedule.kind == MANTA_SCHEDULE_CONSTANT && o->learning_rate == 0)
        return manta_fail(
            MANTA_EINVAL,
            "optimizer %s: learning_rate is 0, expected a number above 0 (MANTA_ZERO: a rate of 0)",
            manta_optimizer_name(o));
    TRY(from_zero_up(o, "learning_rate", optimizer_start_rate(o)));
    TRY(schedule_check(&o->schedule));
    TRY(check_rule(o));
    TRY(from_zero_up(o, "weight_decay", o->weight_decay));
    TRY(check_clipping(o));
    TRY(from_zero_up(o, "gradient_accumulation_steps", o->gradient_accumulation_steps));
    if (!o->use_ema) return MANTA_OK;
    TRY(check_within(o, "ema_momentum", o->ema_momentum, 0, 1, "a number from 0 to 1"));
    return from_zero_up(o, "ema_overwrite_frequency", o->ema_overwrite_frequency);
}

static update_rule rule_of(const manta_optimizer *o)
{
    switch (o->kind) {
    case MANTA_OPTIMIZER_SGD: return o->torch ? UPDATE_SGD_TORCH : UPDATE_SGD;
    case MANTA_OPTIMIZER_ADAM:
    case MANTA_OPTIMIZER_ADAMW: return o->torch ? UPDATE_ADAM_TORCH : UPDATE_ADAM;
    case MANTA_OPTIMIZER_RMSPROP: break;
    }
    return o->torch ? UPDATE_RMSPROP_TORCH : UPDATE_RMSPROP;
}

static int accumulation_steps(const manta_optimizer *o)
{
    return o->gradient_accumulation_steps > 1 ? o->gradient_accumulation_steps : 1;
}

optimizer_arrays optimizer_arrays_of(const manta_optimizer *o)
{
    static const char *const names[][3] = {
        [MANTA_OPTIMIZER_SGD] = {"momentum", NULL, NULL},
        [MANTA_OPTIMIZER_ADAM] = {"momentum", "velocity", "velocity_hat"},
        [MANTA_OPTIMIZER_ADAMW] = {"momentum", "velocity", "velocity_hat"},
        [MANTA_OPTIMIZER_RMSPROP] = {"velocity", "momentum", "average_gradient"},
    };
    optimizer_arrays a = {.average = o->use_ema, .accumulator = accumulation_steps(o) > 1};
    int used = update_slots(rule_of(o), o->momentum, o->amsgrad, o->centered);

    for (int i = 0; i < 3; i++) {
        if (!(used & 1 << i)) continue;
        a.index[a.n] = i;
        a.name[a.n++] = names[o->kind][i];
    }
    return a;
}

double optimizer_start_rate(const manta_optimizer *o)
{
    return o->learning_rate == MANTA_ZERO ? 0 : o->learning_rate;
}

double optimizer_rate(const manta_optimizer *o, double rate, int64_t calls)
{
    return o->schedule.kind == MANTA_SCHEDULE_CONSTANT ? rate : manta_schedule_at(&o->schedule, calls);
}

/* Adam's corrections at iteration t >= 1. Keras computes them in floats, which
 * at the first steps is off by up to 3e-5 of the rate; PyTorch in doubles. */
static void set_corrections(const manta_optimizer *o, double rate, double t, update_scalars *s)
{
    if (o->torch) {
        s->alpha = (float)(rate / (1 - pow(o->beta_1, t)));
        s->root_c2 = (float)sqrt(1 - pow(o->beta_2, t));
        return;
    }
    float power_1 = (float)pow((double)(float)o->beta_1, t),
          power_2 = (float)pow((double)(float)o->beta_2, t);
    s->root_c2 = sqrtf(1.0f - power_2);
    s->alpha = s->lr * s->root_c2 / (1.0f - power_1);
}

update_scalars optimizer_scalars(const manta_optimizer *o, double rate, int64_t calls)
{
    int n = accumulation_steps(o);
    int64_t iteration = calls / n;
    bool decoupled = !o->torch || o->kind == MANTA_OPTIMIZER_ADAMW;
    double lr = optimizer_rate(o, rate, calls);
    update_scalars s = {
        .rule = rule_of(o),
        .lr = (float)lr,
        .mu = o->momentum,
        .dampening = o->dampening,
        .nesterov = o->nesterov,
        .first = iteration == 0,
        .beta1 = o->beta_1,
        .beta2 = o->kind == MANTA_OPTIMIZER_RMSPROP ? o->rho : o->beta_2,
        .eps = (float)o->epsilon,
        .amsgrad = o->amsgrad,
        .centered = o->centered,
        .divisor = 1.0f,
        .l2_torch = decoupled ? 0.0f : (float)o->weight_decay,
        .clip_value = (float)o->clipvalue,
        .clip_factor = 1.0f,
        .decay_lr = decoupled ? (float)(o->weight_decay * lr) : 0.0f,
        .accumulate_only = (calls + 1) % n != 0,
        .accumulate_n = n > 1 ? (float)n : 0.0f,
    };

    if (o->kind == MANTA_OPTIMIZER_ADAM || o->kind == MANTA_OPTIMIZER_ADAMW)
        set_corrections(o, lr, (double)(iteration + 1), &s);
    if (o->use_ema) {
        /* A momentum of 0 is still an average, one that follows at once; 0 itself would turn it off. */
        s.ema = o->ema_momentum > 0 ? o->ema_momentum : DBL_MIN;
        s.ema_overwrite = o->ema_overwrite_frequency > 0 && (iteration + 1) % o->ema_overwrite_frequency == 0;
    }
    return s;
}

bool optimizer_needs_norms(const manta_optimizer *o)
{
    return o->clipnorm > 0 || o->global_clipnorm > 0;
}

float optimizer_clip_factor(const manta_optimizer *o, double square_sum)
{
    double limit = o->clipnorm > 0 ? o->clipnorm : o->global_clipnorm, norm = sqrt(square_sum);

    if (!(limit > 0)) return 1.0f;
    /* A global norm that is not finite spoils every variable, and must be seen to. */
    if (o->global_clipnorm > 0 && !isfinite(norm)) return NAN;
    if (o->torch) norm += 1e-6; /* as torch.nn.utils.clip_grad_norm_ does */
    return norm <= limit ? 1.0f : (float)(limit / norm); /* NaN passes */
}
