/* lower_objective.c - losses and metrics of a plan, and what of them no kernel computes.
 *
 * Targets come as the host has checked them: int32 labels where the loss is sparse,
 * floats else. The metrics of an output look at the target of its loss. */
#include <math.h>
#include <string.h>

#include "base/option.h"
#include "nn/lower.h"
#include "nn/loss_impl.h"

/* The kernel of a head's loss; -1: there is none. */
static int loss_kernel(const objective_head *h)
{
    if (h->user_config) return -1;
    if (h->loss.fn == loss_sparse_category)
        return h->config.from_logits ? (int)DEV_sparse_logits : (int)DEV_sparse_probs;
    return lower_more_loss(h->loss.fn, h->config.from_logits);
}

/* Whether the metric is the accuracy of labels. */
static bool is_label_accuracy(const objective *o, const objective_metric *t, const char *name)
{
    if (t->classes == 1 || !o->heads[t->output].loss.sparse) return false;
    return !strcmp(name, "accuracy") || !strcmp(name, "sparse_categorical_accuracy");
}

static bool has_metric(const objective *o, const objective_metric *t)
{
    const char *name = metric_name_of(t->metric.fn);

    if (!name || !o->n_heads) return false;
    return is_label_accuracy(o, t, name) ||
           lower_more_metric(NULL, name, t, o->heads[t->output].loss.sparse, 0, 0, 0, 0);
}

manta_status lower_check(const manta_model *m, const objective *o)
{
    for (int i = 0; i < m->n_nodes; i++) TRY(lower_check_node(m, &m->nodes[i]));
    for (int h = 0; h < o->n_heads; h++) {
        if (loss_kernel(&o->heads[h]) >= 0) continue;
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the loss %s has no kernel for devices yet, expected --device cpu",
                          o->heads[h].loss.name);
    }
    for (int i = 0; i < o->n_metrics; i++) {
        if (has_metric(o, &o->metrics[i])) continue;
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the metric %s has no kernel for devices yet, expected --device cpu",
                          o->metrics[i].name);
    }
    return MANTA_OK;
}

static void lower_head(lowering *w, int h, dev_addr sums)
{
    const objective_head *head = &w->o->heads[h];
    const plan_head *at = &w->p->heads[h];
    int64_t rows = w->p->batch * head->inner;
    loss_args a = {.rows = rows,
                   .classes = head->classes,
                   .pred = lower_at(w, at->pred_at),
                   .target = w->target[h],
                   .weight = w->weight[h],
                   .loss = lower_at(w, at->rows_at),
                   .grad = lower_at(w, at->dpred_at),
                   .scale = head->weight / (float)head->inner,
                   .smoothing = head->config.label_smoothing,
                   .delta = (float)option_real((double)head->config.delta, 1),
                   .from_logits = head->config.from_logits};
    head_sum_args s = {.rows = rows,
                       .sums = sums,
                       .loss = a.loss,
                       .weight = a.weight,
                       .inner = (double)head->inner,
                       .head_weight = (double)head->weight,
                       .head = objective_head_sum(h)};

    if (w->o->reduction == MANTA_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT && h == 0) s.divisor = (double)NAN;
    lower_add(w, (dev_kernel)loss_kernel(head), rows, &a, sizeof a);
    lower_add(w, w->precision == DEV_EXACT ? DEV_head_sum : DEV_quick_head, 1, &s, sizeof s);
}

static void lower_metric(lowering *w, int i, dev_addr sums)
{
    const objective_metric *t = &w->o->metrics[i];
    const char *name = metric_name_of(t->metric.fn);
    int64_t rows = w->p->batch * t->inner;
    metric_args a = {.rows = rows,
                     .classes = t->classes,
                     .pred = lower_at(w, w->p->metric_at[i]),
                     .target = w->target[t->output],
                     .sums = sums,
                     .at = objective_metric_sum(w->o, i)};

    w->scratch_used = 0;
    if (!is_label_accuracy(w->o, t, name)) {
        lower_more_metric(w, name, t, w->o->heads[t->output].loss.sparse, rows, a.pred, a.target,
                          sums + (size_t)a.at * sizeof(double));
        return;
    }
    a.value = lower_scratch(w, (size_t)rows * sizeof(float));
    LOWER(w, accuracy_rows, rows, a);
    lower_add(w, w->precision == DEV_EXACT ? DEV_metric_sum : DEV_quick_metric, 1, &a, sizeof a);
}

void lower_objective(lowering *w)
{
    dev_addr sums = w->slot + w->l->slot_sums;
    bool sum = w->o->reduction == MANTA_REDUCTION_SUM;
    sums_begin_args a = {.n = w->o->n_sums,
                         .sums = sums,
                         .samples = (double)w->p->batch,
                         .divisor = sum ? 1 : (double)w->p->batch};

    w->scratch_used = 0;
    LOWER(w, sums_begin, a.n, a);
    for (int h = 0; h < w->o->n_heads; h++) lower_head(w, h, sums);
    for (int i = 0; i < w->o->n_metrics; i++) lower_metric(w, i, sums);
}
