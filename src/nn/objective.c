/* objective.c - resolves losses and metrics against the outputs of a model. */
#include "nn/objective.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/option.h"
#include "nn/ops.h"

/* The value whose softmax (or sigmoid) `value` is, or -1. */
static int logits_behind(const manta_model *m, int value, bool softmax)
{
    int node = m->values[value].node;
    const graph_node *n;

    if (node < 0) return -1;
    n = &m->nodes[node];
    if (softmax) return n->op == &op_softmax ? n->in[0] : -1;
    return n->op == &op_activation && ((const op_act_attrs *)n->attrs)->act == KERN_SIGMOID ? n->in[0] : -1;
}

int objective_logits(const manta_model *m, int value)
{
    int logits = logits_behind(m, value, true);

    return logits >= 0 ? logits : logits_behind(m, value, false);
}

/* An output (B, ..., classes) as rows: how many per sample, how wide. */
static void rows_of(const manta_array *a, int64_t *inner, int64_t *classes)
{
    *inner = 1;
    *classes = a->ndim > 1 ? a->shape[a->ndim - 1] : 1;
    for (int i = 1; i < a->ndim - 1; i++) *inner *= a->shape[i];
}

static manta_status head_init(objective_head *h, const manta_model *m, int output, const manta_loss *l)
{
    const graph_port *port = &m->outputs[output];
    int logits = -1;

    TRY(loss_find(l, &h->loss));
    h->output = output;
    h->value = port->value;
    h->weight = (float)option_real((double)l->weight, 1);
    h->user_config = l->fn ? l->config : NULL;
    h->config = (loss_config){
        .from_logits = l->from_logits, .label_smoothing = l->label_smoothing, .delta = l->delta};
    rows_of(&m->values[port->value].a, &h->inner, &h->classes);
    if (!l->from_logits && h->loss.logits_of_softmax) logits = logits_behind(m, port->value, true);
    if (!l->from_logits && h->loss.logits_of_sigmoid) logits = logits_behind(m, port->value, false);
    if (logits >= 0) {
        h->value = logits;
        h->config.from_logits = true;
    }
    return MANTA_OK;
}

static manta_status metric_init(objective_metric *t, const manta_model *m, const objective *o,
                                const manta_metric *k)
{
    const graph_port *port;

    if (k->output < 0 || k->output >= m->n_outputs) {
        return manta_fail(MANTA_EINVAL, "metric '%s' looks at output %d; the model has %d", k->name,
                          k->output, m->n_outputs);
    }
    port = &m->outputs[k->output];
    t->output = k->output;
    t->value = port->value;
    t->user_config = k->fn ? k->config : NULL;
    t->config = (loss_config){.k = k->k ? k->k : 5, .threshold = k->threshold};
    rows_of(&m->values[port->value].a, &t->inner, &t->classes);
    TRY(metric_find(k, o->n_heads ? &o->heads[k->output].loss : NULL, t->classes, &t->metric));
    if (m->n_outputs > 1 && port->name) {
        snprintf(t->name, sizeof t->name, "%s_%s", port->name, t->metric.name);
    } else if (m->n_outputs > 1) {
        snprintf(t->name, sizeof t->name, "output_%d_%s", k->output, t->metric.name);
    } else {
        snprintf(t->name, sizeof t->name, "%s", t->metric.name);
    }
    return MANTA_OK;
}

manta_status objective_init(objective *out, const manta_model *m, int n_losses, const manta_loss *losses,
                            int n_metrics, const manta_metric *metrics)
{
    objective o = {0};
    manta_status st = MANTA_OK;

    if (n_losses && n_losses != m->n_outputs) {
        return manta_fail(MANTA_EINVAL,
                          "model '%s' has %d outputs, and the number of losses is %d; expected one each",
                          m->name, m->n_outputs, n_losses);
    }
    o.heads = mem_new((size_t)(n_losses ? n_losses : 1) * sizeof *o.heads);
    o.metrics = mem_new((size_t)(n_metrics ? n_metrics : 1) * sizeof *o.metrics);
    for (; o.n_heads < n_losses; o.n_heads++) {
        if ((st = head_init(&o.heads[o.n_heads], m, o.n_heads, &losses[o.n_heads]))) goto out;
        if (losses[o.n_heads].reduction != losses[0].reduction) {
            st = manta_fail(MANTA_EINVAL, "the losses of model '%s' have different reductions", m->name);
            goto out;
        }
        for (int i = 0; i < o.n_heads; i++) {
            if (o.heads[i].value != o.heads[o.n_heads].value) continue;
            st = manta_fail(MANTA_EUNSUPPORTED, "outputs %d and %d of model '%s' are the same value", i,
                            o.n_heads, m->name);
            goto out;
        }
    }
    o.reduction = n_losses ? losses[0].reduction : MANTA_REDUCTION_SUM_OVER_BATCH_SIZE;
    if (o.reduction == MANTA_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT && o.n_heads > 1) {
        st = manta_fail(
            MANTA_EUNSUPPORTED,
            "mean_with_sample_weight with several outputs: each would be divided by its own weights");
        goto out;
    }
    for (; o.n_metrics < n_metrics; o.n_metrics++) {
        if ((st = metric_init(&o.metrics[o.n_metrics], m, &o, &metrics[o.n_metrics]))) goto out;
    }
    o.n_sums = SUM_FIXED + 2 * o.n_heads + 2 * o.n_metrics;
    *out = o;
    memset(&o, 0, sizeof o);
out:
    objective_release(&o);
    return st;
}

void objective_release(objective *o)
{
    mem_free(o->heads);
    mem_free(o->metrics);
    memset(o, 0, sizeof *o);
}
