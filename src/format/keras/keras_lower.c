/* keras_lower.c - a model in words that Keras has.
 *
 * The calls of the model are made again, one after the other, on a new one. */
#include "format/keras/keras_lower.h"

#include <string.h>

#include "base/mem.h"
#include "nn/graph.h"
#include "nn/layer.h"

/* The padding of a layer that pads by numbers; NULL for all others. */
static const int64_t (*explicit_pad(const manta_layer *l))[2]
{
    const char *padding = NULL;

    const int64_t(*pad)[2] = NULL;

    if (l->cls == &layer_conv2d) {
        const manta_conv2d_options *o = l->options;
        padding = o->padding;
        pad = o->pad;
    } else if (l->cls == &layer_depthwise_conv2d) {
        const manta_depthwise_conv2d_options *o = l->options;
        padding = o->padding;
        pad = o->pad;
    } else if (l->cls == &layer_separable_conv2d) {
        const manta_separable_conv2d_options *o = l->options;
        padding = o->padding;
        pad = o->pad;
    } else if (l->cls == &layer_max_pooling2d || l->cls == &layer_average_pooling2d) {
        const manta_pooling2d_options *o = l->options;
        padding = o->padding;
        pad = o->pad;
    }
    return padding && !strcmp(padding, "explicit") ? pad : NULL;
}

/* The nested Functional of which `value` is one of several calls; NULL for all other values. */
static const manta_layer *one_call_of_many(const manta_model *m, int value)
{
    for (int i = 0; i < m->n_calls; i++) {
        const graph_call *c = &m->calls[i];
        const manta_layer *l = m->layers[c->layer];
        for (int k = 0; k < c->n_out && l->inner && l->calls > 1; k++) {
            if (c->values[c->n_in + k] == value) return l;
        }
    }
    return NULL;
}

static bool needs_lowering(const manta_model *m)
{
    for (int i = 0; i < m->n_outputs; i++) {
        if (one_call_of_many(m, m->outputs[i].value)) return true;
    }
    for (int i = 0; i < m->n_layers; i++) {
        const manta_layer *l = m->layers[i];
        if (l->inner ? needs_lowering(l->inner) : explicit_pad(l) != NULL) return true;
    }
    return false;
}

static bool pads_nothing(const int64_t pad[2][2])
{
    return !pad[0][0] && !pad[0][1] && !pad[1][0] && !pad[1][1];
}

/* Whether a value cannot be negative: it comes out of a relu or the like. */
static bool never_negative(const manta_model *m, int value)
{
    static const char *const names[] = {"relu", "relu6", "sigmoid", "softmax"};

    for (int i = 0; i < m->n_calls; i++) {
        const graph_call *c = &m->calls[i];
        const manta_layer *l = m->layers[c->layer];
        const char *activation = NULL;
        if (c->values[c->n_in] != value) continue;
        if (l->cls == &layer_relu) return ((const manta_relu_options *)l->options)->negative_slope == 0;
        if (l->cls == &layer_softmax) return true;
        if (l->cls == &layer_activation)
            activation = ((const manta_activation_options *)l->options)->activation;
        if (l->cls == &layer_conv2d) activation = ((const manta_conv2d_options *)l->options)->activation;
        for (size_t k = 0; activation && k < sizeof names / sizeof *names; k++) {
            if (!strcmp(activation, names[k])) return true;
        }
    }
    return false;
}

/* That padding with zeros is what the layer does. */
static manta_status check_zeros(const manta_model *m, const manta_layer *l, const graph_call *c)
{
    if (l->cls == &layer_max_pooling2d && !never_negative(m, c->values[0])) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "layer '%s' (MaxPooling2D) pads by given numbers an input that may be negative, for which "
            "Keras has no words",
            l->name);
    }
    if (l->cls == &layer_average_pooling2d && !((const manta_pooling2d_options *)l->options)->count_padding) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "layer '%s' (AveragePooling2D) pads by given numbers and does not count them, for which "
            "Keras has no words",
            l->name);
    }
    return MANTA_OK;
}

/* Adds a copy of the layer that does not pad. */
static manta_layer *without_padding(manta_model *to, const manta_layer *l)
{
    void *options = layer_options_copy(l->cls, l->options);
    manta_layer *copy;
    char *none = NULL;

    for (int i = 0; i < l->cls->n_fields; i++) {
        const manta_field *f = &l->cls->fields[i];
        char *at = (char *)options + f->offset;
        if (!strcmp(f->key, "padding")) {
            char *text;
            memcpy(&text, at, sizeof text);
            mem_free(text);
            memcpy(at, &none, sizeof none);
        } else if (!strcmp(f->key, "pad")) {
            memset(at, 0, 4 * sizeof(int64_t));
        }
    }
    copy = manta_layer_new(to, l->cls, l->name, options);
    layer_options_free(l->cls, options);
    return copy;
}

typedef struct lowering {
    const manta_model *from;
    manta_model *to;
    manta_layer **layers, **pads; /* by layer of `from` */
    manta_value *values; /* by value of `from` */
    bool chain; /* made by manta_model_add() */
} lowering;

static manta_status make_layer(lowering *w, int i)
{
    const manta_layer *l = w->from->layers[i];

    const int64_t(*pad)[2] = l->inner ? NULL : explicit_pad(l);

    if (w->layers[i]) return MANTA_OK;
    if (l->inner) {
        manta_model *inner = NULL;
        TRY(keras_lower(l->inner, &inner));
        w->layers[i] = manta_nested(w->to, inner);
        manta_model_free(inner);
    } else if (pad) {
        if (!pads_nothing(pad)) {
            manta_zero_padding2d_options o = {.padding = {{pad[0][0], pad[0][1]}, {pad[1][0], pad[1][1]}}};
            char *name = mem_printf("%s_pad", l->name);
            o.name = name;
            w->pads[i] = manta_zero_padding2d(w->to, o);
            mem_free(name);
        }
        w->layers[i] = without_padding(w->to, l);
    } else {
        w->layers[i] = manta_layer_new(w->to, l->cls, l->name, l->options);
    }
    w->layers[i]->frozen = l->frozen;
    return MANTA_OK;
}

static manta_status make_call(lowering *w, const graph_call *c)
{
    manta_value *x = mem_new((size_t)(c->n_in + c->n_out + 1) * sizeof *x), *y = x + c->n_in;
    const manta_layer *l = w->from->layers[c->layer];
    manta_status st = make_layer(w, c->layer);

    for (int i = 0; i < c->n_in; i++) x[i] = w->values[c->values[i]];
    if (!st && w->pads[c->layer]) {
        st = check_zeros(w->from, l, c);
        x[0] =
            w->chain ? manta_model_add(w->to, w->pads[c->layer]) : manta_call(w->to, w->pads[c->layer], x[0]);
    }
    if (!st) {
        if (w->chain) {
            y[0] = manta_model_add(w->to, w->layers[c->layer]);
        } else if (l->inner) {
            manta_call_nested(w->to, w->layers[c->layer], c->n_in, x, c->n_out, y);
        } else {
            y[0] = manta_call_n(w->to, w->layers[c->layer], c->n_in, x);
        }
        for (int i = 0; i < c->n_out; i++) w->values[c->values[c->n_in + i]] = y[i];
    }
    mem_free(x);
    return st;
}

static manta_status lower_layers(lowering *w)
{
    const manta_model *m = w->from;
    manta_status st = MANTA_OK;

    for (int i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i].layer < 0) {
            return manta_fail(MANTA_EUNSUPPORTED,
                              "the operation '%s' was applied without a layer, for which Keras "
                              "has no words",
                              m->nodes[i].op->name);
        }
    }
    for (int i = 0; i < m->n_inputs; i++) {
        const manta_array *a = &m->values[m->inputs[i].value].a;
        w->values[m->inputs[i].value] =
            manta_input(w->to, m->inputs[i].name, a->dtype, a->ndim - 1, a->shape + 1);
    }
    for (int i = 0; i < m->n_calls && !st; i++) st = make_call(w, &m->calls[i]);
    if (st) return st;
    for (int i = 0; i < m->n_outputs; i++) {
        const manta_layer *nested = one_call_of_many(m, m->outputs[i].value);
        manta_value x = w->values[m->outputs[i].value];
        if (nested) {
            char *name = mem_printf("%s_output_%d", nested->name, i);
            x = manta_call(w->to, manta_activation(w->to, (manta_activation_options){.name = name}), x);
            mem_free(name);
        }
        manta_output_named(w->to, m->outputs[i].name, x);
    }
    return manta_model_build(w->to);
}

manta_status keras_lower(const manta_model *m, manta_model **out)
{
    lowering w = {.from = m, .chain = m->sequential && m->n_inputs == 1 && m->n_outputs == 1};
    manta_status st;

    if (!needs_lowering(m)) {
        *out = (manta_model *)(uintptr_t)m;
        (*out)->refs++;
        return MANTA_OK;
    }
    w.to = manta_model_new(m->name);
    w.layers = mem_new((size_t)(m->n_layers + 1) * sizeof *w.layers);
    w.pads = mem_new((size_t)(m->n_layers + 1) * sizeof *w.pads);
    w.values = mem_new((size_t)(m->n_values + 1) * sizeof *w.values);
    st = lower_layers(&w);
    mem_free(w.layers);
    mem_free(w.pads);
    mem_free(w.values);
    if (st) {
        manta_model_free(w.to);
        return st;
    }
    *out = w.to;
    return MANTA_OK;
}
