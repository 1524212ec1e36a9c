/* lower_losses.c - losses on rows of numbers, and metrics beside the accuracy of labels: loss_category.c,
 * loss_element.c and metric.c said again. */
#include <string.h>

#include "base/option.h"
#include "nn/loss_impl.h"
#include "nn/lower.h"

int lower_more_loss(manta_loss_fn fn, bool from_logits)
{
    if (fn == loss_dense_category) return from_logits ? (int)DEV_dense_logits : (int)DEV_dense_probs;
    if (fn == loss_binary) return from_logits ? (int)DEV_binary_logits : (int)DEV_binary_probs;
    if (fn == loss_squared) return (int)DEV_squared_error;
    if (fn == loss_absolute) return (int)DEV_absolute_error;
    if (fn == loss_huber) return (int)DEV_huber_error;
    return -1;
}

/* The metrics: those that count what is right, then the means of losses from probabilities. `sparse`: the
 * target is labels. */
static const struct {
    const char *name;
    int kernel;
    bool sparse, mean;
} metrics[] = {
    {"categorical_accuracy", DEV_dense_accuracy, false, false},
    {"binary_accuracy", DEV_binary_accuracy, false, false},
    {"sparse_top_k_categorical_accuracy", DEV_top_k, true, false},
    {"top_k_categorical_accuracy", DEV_top_k, false, false},
    {"mean_squared_error", DEV_squared_error, false, true},
    {"mean_absolute_error", DEV_absolute_error, false, true},
    {"sparse_categorical_crossentropy", DEV_sparse_probs, true, true},
    {"categorical_crossentropy", DEV_dense_probs, false, true},
    {"binary_crossentropy", DEV_binary_probs, false, true},
    {"huber", DEV_huber_error, false, true},
};
enum { N_METRICS = sizeof metrics / sizeof metrics[0] };

/* The mean of a loss over rows, which a metric takes without options. */
static void lower_mean(lowering *w, int kernel, int64_t rows, int64_t classes, dev_addr pred, dev_addr target,
                       dev_addr sums)
{
    loss_args a = {.rows = rows,
                   .classes = classes,
                   .pred = pred,
                   .target = target,
                   .loss = lower_scratch(w, (size_t)rows * sizeof(float)),
                   .delta = 1};
    metric_sum_args s = {.rows = rows, .value = a.loss, .sums = sums};

    lower_add(w, (dev_kernel)kernel, rows, &a, sizeof a);
    LOWER(w, metric_sum, 1, s);
}

static void lower_count(lowering *w, int kernel, const objective_metric *t, bool sparse, int64_t rows,
                        dev_addr pred, dev_addr target, dev_addr sums)
{
    metric_more_args a = {.rows = rows,
                          .classes = t->classes,
                          .k = t->config.k > 0 ? t->config.k : 5,
                          .pred = pred,
                          .target = target,
                          .value = lower_scratch(w, (size_t)rows * sizeof(double)),
                          .sums = sums,
                          .threshold = (float)option_real((double)t->config.threshold, 0.5),
                          .sparse = sparse};

    lower_add(w, (dev_kernel)kernel, rows, &a, sizeof a);
    LOWER(w, metric_sum_more, 1, a);
}

/* "accuracy" looks at the shapes, as accuracy_sum() of metric.c does. */
static const char *accuracy_of(const char *name, int64_t classes)
{
    if (strcmp(name, "accuracy") != 0) return name;
    return classes == 1 ? "binary_accuracy" : "categorical_accuracy";
}

bool lower_more_metric(lowering *w, const char *name, const objective_metric *t, bool sparse, int64_t rows,
                       dev_addr pred, dev_addr target, dev_addr sums)
{
    name = accuracy_of(name, t->classes);
    for (int i = 0; i < N_METRICS; i++) {
        if (strcmp(name, metrics[i].name) != 0 || sparse != metrics[i].sparse) continue;
        if (!w) return true;
        if (metrics[i].mean)
            lower_mean(w, metrics[i].kernel, rows, t->classes, pred, target, sums);
        else
            lower_count(w, metrics[i].kernel, t, sparse, rows, pred, target, sums);
        return true;
    }
    return false;
}
