/* nn/objective.h - what training minimises and what it measures: a loss per
 * output and the metrics, resolved against a model.
 *
 * Everything that is counted is a *sum over samples* in f64, so that shards
 * can be added: the loss sums and counts, and sum and count of each metric.
 * objective_sums names them all. */
#ifndef NN_OBJECTIVE_H
#define NN_OBJECTIVE_H

#include "nn/graph.h"
#include "nn/loss.h"

/* The first sums of a slot, then per head {loss, denominator}, then per metric
 * {sum, count}. */
enum {
    SUM_SAMPLES, /* samples computed */
    SUM_LOSS, /* total loss, heads weighted: divided by SUM_DIVISOR it is the batch's loss */
    SUM_DIVISOR, /* the number that gradients and loss are divided by */
    SUM_FIXED
};

typedef struct objective_head {
    int output; /* index of the model's output */
    int value; /* the value that the loss sees: the output, or the logits behind it */
    loss_fn loss;
    loss_config config;
    const void *user_config;
    float weight;
    int64_t inner; /* rows per sample */
    int64_t classes;
} objective_head;

typedef struct objective_metric {
    int output, value;
    metric_fn metric;
    loss_config config;
    const void *user_config;
    int64_t inner, classes;
    char name[64]; /* the name as shown */
} objective_metric;

typedef struct objective {
    int n_heads, n_metrics;
    manta_reduction reduction;
    objective_head *heads;
    objective_metric *metrics;
    int n_sums;
} objective;

/* The value whose softmax or sigmoid `value` is, as losses look at it; -1 when it is neither. */
int objective_logits(const manta_model *m, int value);

/* Resolves losses[i] for output i (n_losses is the number of outputs, or 0:
 * nothing to train on) and the metrics. *out: release with
 * objective_release(). The structs' strings and config must outlive it. */
manta_status objective_init(objective *out, const manta_model *m, int n_losses, const manta_loss *losses,
                            int n_metrics, const manta_metric *metrics);
void objective_release(objective *o); /* accepts zeroed memory */

static inline int objective_head_sum(int head)
{
    return SUM_FIXED + 2 * head;
}

static inline int objective_metric_sum(const objective *o, int metric)
{
    return SUM_FIXED + 2 * o->n_heads + 2 * metric;
}

#endif
