/* manta/optimizer.h - optimizers and learning-rate schedules, as data.
 *
 * Numbers are Keras's by default; `torch` chooses PyTorch's formulas where
 * the two differ (docs/numerics.md). */
#ifndef MANTA_OPTIMIZER_H
#define MANTA_OPTIMIZER_H

#include <manta/array.h>
#include <manta/option.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum manta_schedule_kind {
    MANTA_SCHEDULE_CONSTANT = 0,
    MANTA_SCHEDULE_EXPONENTIAL, /* rate * decay_rate ^ (step / decay_steps) */
    MANTA_SCHEDULE_COSINE, /* with warm-up */
    MANTA_SCHEDULE_PIECEWISE,
    MANTA_SCHEDULE_POLYNOMIAL,
    MANTA_SCHEDULE_INVERSE_TIME
} manta_schedule_kind;

#define MANTA_SCHEDULE_PIECES 16

/* Fields carry Keras's names and meanings. */
typedef struct manta_schedule {
    manta_schedule_kind kind;
    double initial_learning_rate;
    int64_t decay_steps;
    double decay_rate; /* exponential, inverse time */
    bool staircase;
    double alpha; /* cosine: smallest rate as a share */
    double warmup_target; /* cosine: the rate to warm up to; 0 with warmup_steps 0: no warm-up */
    int64_t warmup_steps;
    double end_learning_rate, power; /* polynomial */
    bool cycle;
    int n_boundaries; /* piecewise: values[i] up to and including boundaries[i] */
    int64_t boundaries[MANTA_SCHEDULE_PIECES];
    double values[MANTA_SCHEDULE_PIECES + 1];
} manta_schedule;

/* The rate at a step (number of optimizer calls so far), computed in f32 as
 * Keras does. A constant one gives initial_learning_rate. */
MANTA_API double manta_schedule_at(const manta_schedule *s, int64_t step);

typedef enum manta_optimizer_kind {
    MANTA_OPTIMIZER_SGD = 0,
    MANTA_OPTIMIZER_ADAM,
    MANTA_OPTIMIZER_ADAMW,
    MANTA_OPTIMIZER_RMSPROP
} manta_optimizer_kind;

typedef struct manta_optimizer {
    manta_optimizer_kind kind;
    bool torch; /* PyTorch's formulas */
    double
        learning_rate; /* MANTA_ZERO: 0, which a callback may raise; 0 is refused unless there is a schedule */
    manta_schedule schedule; /* kind != CONSTANT: in place of learning_rate */
    double momentum, dampening; /* SGD, RMSprop */
    bool nesterov;
    double beta_1, beta_2, epsilon; /* Adam, AdamW */
    double rho; /* RMSprop */
    bool amsgrad, centered;
    double weight_decay;
    double clipvalue, clipnorm, global_clipnorm; /* 0: none; at most one. torch: norms as clip_grad_norm_ */
    int gradient_accumulation_steps; /* 0 or 1: none */
    bool use_ema;
    double ema_momentum;
    int ema_overwrite_frequency; /* 0: only when fit ends */
} manta_optimizer;

/* Fills *out with the defaults of Keras's optimizer of that name ("sgd",
 * "adam", "adamw", "rmsprop"), or PyTorch's ("torch.sgd", ...).
 * Case and underscores do not matter. MANTA_ENOENT lists the names. */
MANTA_API manta_status manta_optimizer_named(const char *name, manta_optimizer *out) MANTA_MUST_USE;

/* The name that gives this kind and these formulas; "?" for a kind that is none. */
MANTA_API const char *manta_optimizer_name(const manta_optimizer *o);

/* Refuses what cannot be: negative rates, two kinds of clipping, a schedule
 * without steps, an option that this kind would ignore. One sentence names the
 * field, its value and what was expected. */
MANTA_API manta_status manta_optimizer_check(const manta_optimizer *o) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
