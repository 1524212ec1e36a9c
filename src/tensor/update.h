/* tensor/update.h - one pass over a run of parameters that adds the shards'
 * gradients, divides, regularises, clips, decays, applies the optimizer and
 * keeps the moving average: all-reduce and update together.
 *
 * Element-wise throughout: any division of the parameter block into runs gives
 * the same bits, and the new state may be the old one (in place). The order of
 * one step is Keras's (docs/numerics.md): gradient sum over shards, / divisor,
 * + l1 and l2 terms, [(acc + g) / N], clip by a norm factor found beforehand and
 * by value, l2 of torch, weight decay w -= w * decay_lr, update, moving average.
 *
 * The tree. sum(lo, hi) of shards lo .. hi-1 is the shard itself when there is
 * one, else sum(lo, lo + p) + sum(lo + p, hi) with p the largest power of two
 * below hi - lo. So the shards [k * 2^j, (k + 1) * 2^j) are a whole subtree of
 * every tree that holds them all, whatever the number of shards, and a host
 * with such a run of them may add it up beforehand. No shard at all is 0. */
#ifndef TENSOR_UPDATE_H
#define TENSOR_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum update_rule {
    UPDATE_SGD, /* Keras: m = mu*m - lr*g; w += m;  nesterov w += mu*m - lr*g; mu == 0: w -= lr*g */
    UPDATE_SGD_TORCH, /* v = mu*v + (1-dampening)*g (first: v = g); w -= lr*v; nesterov w -= lr*(g + mu*v) */
    UPDATE_ADAM, /* Keras: m += (g-m)(1-b1); v += (g*g-v)(1-b2); w -= m*alpha/(sqrt(v) + eps) */
    UPDATE_ADAM_TORCH, /* m = m + (1-b1)(g-m); v = b2*v + (1-b2)*g*g; w -= step * m / (sqrt(v)/sqrt(c2) + eps) */
    UPDATE_RMSPROP, /* Keras: v = rho*v + (1-rho)*g*g; denominator v (- a*a when centered) + eps, inside the root */
    UPDATE_RMSPROP_TORCH, /* eps outside the root */
    UPDATE_RULES
} update_rule;

/* Scalars of one step, the same for every run of a variable. */
typedef struct update_scalars {
    update_rule rule;
    float lr;
    double mu, dampening; /* SGD, RMSprop momentum; double, so that 1 - x is rounded once, as the peers do */
    bool nesterov, first; /* first: torch's first step of SGD, first step of the moving average */
    double beta1, beta2; /* Adam; RMSprop uses beta2 as rho */
    float eps;
    float alpha; /* Adam: lr * sqrt(1-b2^t) / (1-b1^t); torch: lr / (1-b1^t) */
    float root_c2; /* Adam, torch: sqrt(1-b2^t) */
    bool amsgrad, centered;
    float divisor; /* what the summed gradient is divided by, truly (not multiplied by 1/x) */
    float l1, l2; /* g += l1*sign(w) + 2*l2*w (l2 as Keras counts it) */
    float l2_torch; /* g += l2_torch*w: torch's weight_decay of SGD and Adam, after clipping */
    float clip_value; /* 0: none */
    float clip_factor; /* 1: none; from the norms */
    float decay_lr; /* w -= w * decay_lr before the update; 0: none */
    double ema; /* 0: none, else avg = ema*avg + (1-ema)*w (first: avg = w) */
    bool ema_overwrite; /* w is set to the average after the update */
    bool
        accumulate_only; /* gradient accumulation, not the N-th call: acc += g, nothing else but the average */
    float accumulate_n; /* 0: no accumulation; else the N-th call uses (acc + g) / N and clears acc */
} update_scalars;

typedef struct update_run {
    const update_scalars *s;
    int64_t n; /* elements */
    const float *const *grads; /* n_grads pointers, in shard order */
    int n_grads;
    /* Old state and new state, each n long; NULL where the rule has none. New may equal old. */
    const float *w, *s0, *s1, *s2, *avg, *acc;
    bool stream; /* w_new goes past the caches: other cores will read it (tensor/stream.h) */
    float *w_new, *s0_new, *s1_new, *s2_new, *avg_new, *acc_new;
} update_run;

/* Which of s0, s1, s2 a rule keeps per parameter: bit k is set when s_k is in use.
 *   s0: SGD momentum (mu != 0); Adam m; RMSprop v.
 *   s1: Adam v; RMSprop momentum (mu != 0).
 *   s2: Adam v-hat (amsgrad); RMSprop mean gradient (centered). */
int update_slots(update_rule r, double mu, bool amsgrad, bool centered);

#endif
