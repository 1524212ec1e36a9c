/* schedule_text.c - a learning-rate schedule from a text. */
#include "train/recipe/schedule_text.h"

#include <stdlib.h>
#include <string.h>

#include <manta/tool_text.h>

#include "base/args.h"
#include "nn/name.h"
#include "train/recipe/choice.h"
#include "train/recipe/settings.h"

/* Reads the settings of one kind of schedule; *s has its kind, and `rate` where it begins. */
typedef manta_status read_fn(choice *c, double rate, manta_schedule *s);

static int64_t read_steps(choice *c)
{
    return choice_int(c, "steps", "decay-steps", 0);
}

/* A setting that nobody knows comes before one that is missing: it is probably that one, mistyped. */
static manta_status finish_steps(choice *c, const char *keys)
{
    TRY(choice_done(c, keys));
    if (!choice_value(c, "steps", "decay-steps")) choice_fail(c, "%s needs steps=N", c->name);
    return c->status;
}

/* With a warm-up: from `start` up to the rate, then down. */
static manta_status read_cosine(choice *c, double rate, manta_schedule *s)
{
    s->decay_steps = read_steps(c);
    s->alpha = choice_real(c, "alpha", NULL, 0);
    s->warmup_steps = choice_count(c, "warmup", "warmup-steps", 0);
    if (s->warmup_steps) {
        s->warmup_target = choice_real(c, "target", "warmup-target", rate);
        s->initial_learning_rate = choice_real(c, "start", "initial-learning-rate", 0);
    } else {
        s->initial_learning_rate = choice_real(c, "initial-learning-rate", NULL, rate);
        if (choice_value(c, "target", "warmup-target") || choice_value(c, "start", NULL))
            choice_fail(c, "start and target are of a warm-up, and there is none; expected warmup=N");
    }
    return finish_steps(c, "steps, warmup, start, target, alpha");
}

static manta_status read_decay(choice *c, double rate, manta_schedule *s)
{
    s->initial_learning_rate = choice_real(c, "initial-learning-rate", NULL, rate);
    s->decay_steps = read_steps(c);
    s->decay_rate = choice_real(c, "rate", "decay-rate", s->kind == MANTA_SCHEDULE_EXPONENTIAL ? 0.96 : 0.5);
    s->staircase = choice_flag(c, "staircase", NULL);
    return finish_steps(c, "steps, rate, staircase");
}

static manta_status read_polynomial(choice *c, double rate, manta_schedule *s)
{
    s->initial_learning_rate = choice_real(c, "initial-learning-rate", NULL, rate);
    s->decay_steps = read_steps(c);
    s->end_learning_rate = choice_real(c, "end", "end-learning-rate", 1e-4);
    s->power = choice_real(c, "power", NULL, 1);
    s->cycle = choice_flag(c, "cycle", NULL);
    return finish_steps(c, "steps, end, power, cycle");
}

/* STEP=RATE pairs: behind that step the rate is that. */
static manta_status read_piecewise(choice *c, double rate, manta_schedule *s)
{
    s->values[0] = rate;
    if (c->status) return c->status;
    if (!c->n) choice_fail(c, "piecewise needs STEP=RATE pairs, such as piecewise:1000=0.01");
    if (c->n > MANTA_SCHEDULE_PIECES)
        choice_fail(c, "too many pieces, expected at most %d", MANTA_SCHEDULE_PIECES);
    for (int i = 0; !c->status && i < c->n; i++) {
        c->status = settings_int(c->what, c->key[i], &s->boundaries[i]);
        if (!c->status) c->status = settings_real(c->what, c->value[i], &s->values[i + 1]);
    }
    if (!c->status) s->n_boundaries = c->n;
    return c->status;
}

static const struct {
    const char *name, *keras;
    manta_schedule_kind kind;
    read_fn *read;
} schedules[] = {
    {"cosine", "CosineDecay", MANTA_SCHEDULE_COSINE, read_cosine},
    {"exponential", "ExponentialDecay", MANTA_SCHEDULE_EXPONENTIAL, read_decay},
    {"inverse-time", "InverseTimeDecay", MANTA_SCHEDULE_INVERSE_TIME, read_decay},
    {"piecewise", "PiecewiseConstantDecay", MANTA_SCHEDULE_PIECEWISE, read_piecewise},
    {"polynomial", "PolynomialDecay", MANTA_SCHEDULE_POLYNOMIAL, read_polynomial},
};

enum { N_SCHEDULES = sizeof schedules / sizeof *schedules };

static manta_status fail_unknown_schedule(choice *c)
{
    manta_suggestion near = manta_suggestion_for(c->name);
    char hint[96];

    for (int i = 0; i < N_SCHEDULES; i++) manta_suggestion_offer(&near, schedules[i].name);
    choice_fail(c,
                "no schedule is called '%.80s'; there are cosine, exponential, inverse-time, piecewise and "
                "polynomial%s",
                c->name, manta_suggestion_text(&near, hint, sizeof hint));
    return c->status;
}

manta_status schedule_text(const char *what, const char *text, double rate, manta_schedule *out)
{
    manta_schedule s = {.initial_learning_rate = rate};
    manta_status st;
    choice c;
    int i = 0;

    choice_init(&c, what, text);
    while (i < N_SCHEDULES && !settings_same_name(c.name, schedules[i].name) &&
           !name_same(c.name, schedules[i].keras))
        i++;
    if (i < N_SCHEDULES) {
        s.kind = schedules[i].kind;
        st = schedules[i].read(&c, rate, &s);
    } else {
        st = fail_unknown_schedule(&c);
    }
    choice_release(&c);
    if (!st) *out = s;
    return st;
}

manta_status manta_schedule_named(const char *text, double rate, manta_schedule *out)
{
    REFUSE_NULL(text);
    REFUSE_NULL(out);

    manta_optimizer o;

    TRY(manta_optimizer_named("sgd", &o));
    TRY(schedule_text("schedule", text, rate, &o.schedule));
    TRY(manta_optimizer_check(&o)); /* steps of 0, a rate below 0, and the like */
    *out = o.schedule;
    return MANTA_OK;
}
