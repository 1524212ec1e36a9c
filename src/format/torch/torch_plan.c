/* torch_plan.c - from a graph to PyTorch's modules.
 *
 * Layers are recognised by the operations they expanded into, so that nested
 * models and layers of a program's own are understood too. Two walks over the
 * graph find what is ordered otherwise because a map was flattened: forwards
 * from where a map (h, w, c) becomes a vector, backwards from where a vector
 * becomes a map. Both pass through operations that treat every element alike
 * (activations, dropout) or by channel (normalization, whose weights are then
 * ordered otherwise as well), and end at a matrix product. */
#include "format/torch/torch_plan.h"

#include <string.h>

#include "base/mem.h"
#include "nn/graph.h"
#include "nn/ops.h"

/* The order of a value's last axis: 0, as everywhere, or that of a map. */
typedef struct map_order {
    int64_t h, w, c;
    bool mixed; /* flattened, then rearranged: nobody knows */
} map_order;

typedef struct planner {
    const manta_model *m;
    torch_plan p;
    map_order *order; /* per value */
    bool *planned; /* per variable */
} planner;

static bool is_map_order(const map_order *o)
{
    return o->c > 0;
}

static bool same_order(const map_order *a, const map_order *b)
{
    return a->h == b->h && a->w == b->w && a->c == b->c && a->mixed == b->mixed;
}

/* A map whose elements PyTorch has in another order. */
static bool is_map(const manta_array *a)
{
    return a->ndim == 4 && a->shape[3] > 1 && a->shape[1] * a->shape[2] > 1;
}

static map_order order_of(const manta_array *a)
{
    return (map_order){.h = a->shape[1], .w = a->shape[2], .c = a->shape[3]};
}

/* Operations that keep the order of the last axis. */
static bool keeps_order(const manta_op *op)
{
    return op == &op_activation || op == &op_activation_of_input || op == &op_relu || op == &op_softmax ||
           op == &op_affine || op == &op_dropout || op == &op_batch_norm || op == &op_layer_norm;
}

static bool op_merges(const manta_op *op)
{
    return op == &op_add || op == &op_subtract || op == &op_multiply;
}

/* ---- the two walks ---- */

static void walk_forward(planner *p, const graph_node *n)
{
    const manta_array *in = &p->m->values[n->in[0]].a, *out = &p->m->values[n->out[0]].a;
    const map_order *from = &p->order[n->in[0]];
    map_order *to = &p->order[n->out[0]];

    if (n->op == &op_reshape) {
        if (is_map(in) && out->ndim == 2) {
            *to = order_of(in);
        } else if (is_map_order(from) || from->mixed) {
            map_order back = is_map(out) ? order_of(out) : (map_order){0};
            if (out->ndim == 2 && in->ndim == 2) {
                *to = *from;
            } else if (!same_order(&back, from)) {
                to->mixed = true;
            }
        } else if (is_map(in) && out->ndim == 4 && memcmp(in->shape, out->shape, sizeof(int64_t) * 4) != 0) {
            to->mixed = true;
        }
        return;
    }
    if (keeps_order(n->op)) {
        *to = *from;
    } else if (n->op != &op_dense) {
        for (int i = 0; i < n->n_in; i++) {
            const map_order *o = &p->order[n->in[i]];
            if (i > 0 && op_merges(n->op) && !same_order(o, from)) to->mixed = true;
            if (is_map_order(o) || o->mixed) {
                if (!op_merges(n->op)) to->mixed = true;
                if (op_merges(n->op) && !to->mixed) *to = *o;
            }
        }
    }
}

static void walk_backward(planner *p, const graph_node *n)
{
    const manta_array *in = &p->m->values[n->in[0]].a, *out = &p->m->values[n->out[0]].a;
    map_order *from = &p->order[n->in[0]];
    const map_order *to = &p->order[n->out[0]];

    if (is_map_order(from) || from->mixed) return;
    if (n->op == &op_reshape && in->ndim == 2 && is_map(out)) {
        *from = order_of(out);
    } else if (keeps_order(n->op) && in->ndim == 2) {
        *from = *to;
    }
}

/* ---- layouts ---- */

/* Adds our axes for one of n elements: one, or three when they are a map's. */
static int add_axes(torch_layout *l, int64_t n, const map_order *o)
{
    if (!is_map_order(o) || o->h * o->w * o->c != n) {
        l->size[l->n++] = n;
        return 1;
    }
    l->size[l->n++] = o->h;
    l->size[l->n++] = o->w;
    l->size[l->n++] = o->c;
    return 3;
}

/* Adds an axis of PyTorch's that consists of our axes at .. at + n - 1; a map's channels come first there. */
static void add_theirs(torch_layout *l, int at, int n)
{
    int k = 0;

    for (int i = 0; i < l->ndim; i++) k += l->parts[i];
    if (n == 3) {
        l->order[k] = at + 2;
        l->order[k + 1] = at;
        l->order[k + 2] = at + 1;
    } else {
        for (int i = 0; i < n; i++) l->order[k + i] = at + i;
    }
    l->parts[l->ndim++] = n;
}

static torch_layout vector_layout(int64_t n, const map_order *o)
{
    torch_layout l = {0};
    int k = add_axes(&l, n, o);

    add_theirs(&l, 0, k);
    return l;
}

static torch_layout dense_layout(const int64_t *shape, const map_order *in, const map_order *out)
{
    torch_layout l = {0};
    int a = add_axes(&l, shape[0], in), b = add_axes(&l, shape[1], out);

    add_theirs(&l, a, b);
    add_theirs(&l, 0, a);
    return l;
}

/* (h, w, i, o) and (o, i, h, w); a transposed one differs in what the letters mean only. */
static torch_layout conv_layout(const int64_t *shape)
{
    torch_layout l = {.n = 4, .size = {shape[0], shape[1], shape[2], shape[3]}};

    add_theirs(&l, 3, 1);
    add_theirs(&l, 2, 1);
    add_theirs(&l, 0, 1);
    add_theirs(&l, 1, 1);
    return l;
}

/* (h, w, c, mult) and (c x mult, 1, h, w) */
static torch_layout depthwise_layout(const int64_t *shape)
{
    torch_layout l = {.n = 4, .size = {shape[0], shape[1], shape[2], shape[3]}};

    add_theirs(&l, 2, 2);
    add_theirs(&l, 0, 0);
    add_theirs(&l, 0, 1);
    add_theirs(&l, 1, 1);
    return l;
}

/* As it is, or (h, w, c) and (c, h, w). */
static torch_layout plain_layout(int ndim, const int64_t *shape, bool map)
{
    torch_layout l = {.n = ndim};

    memcpy(l.size, shape, (size_t)ndim * sizeof *shape);
    for (int i = 0; i < ndim; i++) add_theirs(&l, map ? (i + 2) % 3 : i, 1);
    return l;
}

/* ---- modules ---- */

static void begin_module(planner *p, int variable, bool counts)
{
    const char *name = p->m->variables[variable].name, *slash = strrchr(name, '/');
    torch_module mod = {.first = (int)p->p.tensors.n, .counts = counts};

    mod.layer = slash ? mem_strndup(name, (size_t)(slash - name)) : mem_strdup(name);
    vec_push(&p->p.modules, mod);
}

static void add_tensor(planner *p, int variable, const char *suffix, torch_layout l)
{
    torch_tensor t = {.variable = variable, .suffix = suffix, .layout = l};
    int k = 0;

    for (int i = 0; i < l.ndim; i++) {
        t.shape[i] = 1;
        for (int j = 0; j < l.parts[i]; j++) t.shape[i] *= l.size[l.order[k++]];
    }
    vec_push(&p->p.tensors, t);
    vec_last(&p->p.modules).n++;
    p->planned[variable] = true;
}

/* The variable that is input i; -1 when it is none or there is no such input. */
static int variable_at(const planner *p, const graph_node *n, int i)
{
    return i < n->n_in ? p->m->values[n->in[i]].variable : -1;
}

static const graph_variable *find_variable(const planner *p, int v)
{
    return &p->m->variables[v];
}

static void plan_weights(planner *p, const graph_node *n, torch_layout kernel, const map_order *out)
{
    int v = variable_at(p, n, 1), bias = variable_at(p, n, 2);

    begin_module(p, v, false);
    add_tensor(p, v, "weight", kernel);
    if (bias >= 0) add_tensor(p, bias, "bias", vector_layout(find_variable(p, bias)->count, out));
}

static void plan_conv(planner *p, const graph_node *n)
{
    static const map_order none;
    const op_conv_attrs *attrs = n->attrs;
    const int64_t *shape = find_variable(p, variable_at(p, n, 1))->shape,
                  c = p->m->values[n->in[0]].a.shape[3];
    bool depthwise = n->op == &op_conv2d && c > 1 && attrs->groups == c && shape[2] == c;

    plan_weights(p, n, depthwise ? depthwise_layout(shape) : conv_layout(shape), &none);
}

static void plan_batch_norm(planner *p, const graph_node *n)
{
    static const char *const suffixes[] = {"weight", "bias", "running_mean", "running_var"};
    const op_bn_attrs *attrs = n->attrs;
    const bool has[4] = {attrs->has_gamma, attrs->has_beta, true, true};
    int input = 1;

    begin_module(p, variable_at(p, n, 1), true);
    for (int i = 0; i < 4; i++) {
        int v;
        if (!has[i]) continue;
        v = variable_at(p, n, input++);
        if (v >= 0)
            add_tensor(p, v, suffixes[i], vector_layout(find_variable(p, v)->count, &p->order[n->in[0]]));
    }
}

static void plan_layer_norm(planner *p, const graph_node *n)
{
    const op_ln_attrs *attrs = n->attrs;
    const bool map = attrs->axes == 3 && p->m->values[n->in[0]].a.ndim == 4;
    int input = 1;

    begin_module(p, variable_at(p, n, 1), false);
    for (int i = 0; i < 2; i++) {
        int v;
        if (!(i == 0 ? attrs->has_gamma : attrs->has_beta)) continue;
        v = variable_at(p, n, input++);
        if (v < 0) continue;
        add_tensor(p, v, i == 0 ? "weight" : "bias",
                   find_variable(p, v)->ndim == 1
                       ? vector_layout(find_variable(p, v)->count, &p->order[n->in[0]])
                       : plain_layout(find_variable(p, v)->ndim, find_variable(p, v)->shape, map));
    }
}

static manta_status plan_node(planner *p, const graph_node *n)
{
    int v = variable_at(p, n, 1);

    if (v < 0 || p->planned[v]) return MANTA_OK; /* no weights, or called again */
    if (p->order[n->in[0]].mixed &&
        (n->op == &op_dense || n->op == &op_batch_norm || n->op == &op_layer_norm)) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "'%s' is applied to a map that was flattened and then rearranged; which order PyTorch "
            "has it in cannot be told",
            find_variable(p, v)->name);
    }
    if (n->op == &op_dense) {
        plan_weights(p, n,
                     dense_layout(find_variable(p, v)->shape, &p->order[n->in[0]], &p->order[n->out[0]]),
                     &p->order[n->out[0]]);
    } else if (n->op == &op_conv2d || n->op == &op_conv2d_transpose) {
        plan_conv(p, n);
    } else if (n->op == &op_batch_norm) {
        plan_batch_norm(p, n);
    } else if (n->op == &op_layer_norm) {
        plan_layer_norm(p, n);
    } else if (n->op == &op_embedding) {
        begin_module(p, v, false);
        add_tensor(p, v, "weight", plain_layout(2, find_variable(p, v)->shape, false));
    }
    return MANTA_OK;
}

static manta_status plan_all(planner *p)
{
    const manta_model *m = p->m;

    for (int i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i].n_in) walk_forward(p, &m->nodes[i]);
    }
    for (int i = m->n_nodes - 1; i >= 0; i--) {
        if (m->nodes[i].n_in) walk_backward(p, &m->nodes[i]);
    }
    for (int i = 0; i < m->n_nodes; i++) TRY(plan_node(p, &m->nodes[i]));
    for (int i = 0; i < m->n_variables; i++) {
        if (!p->planned[i]) {
            return manta_fail(MANTA_EUNSUPPORTED,
                              "the variable '%s' of model '%s' is nothing that PyTorch has",
                              m->variables[i].name, m->name);
        }
    }
    return MANTA_OK;
}

manta_status torch_plan_make(const manta_model *m, torch_plan *out)
{
    planner p = {.m = m};
    manta_status st;

    p.order = mem_new((size_t)(m->n_values + 1) * sizeof *p.order);
    p.planned = mem_new((size_t)(m->n_variables + 1) * sizeof *p.planned);
    st = plan_all(&p);
    mem_free(p.order);
    mem_free(p.planned);
    if (st) {
        torch_plan_release(&p.p);
        return st;
    }
    *out = p.p;
    return MANTA_OK;
}

void torch_plan_release(torch_plan *p)
{
    for (size_t i = 0; i < p->modules.n; i++) mem_free(p->modules.at[i].layer);
    vec_release(&p->modules);
    vec_release(&p->tensors);
}

/* ---- views ---- */

manta_array torch_view_ours(const torch_tensor *t, manta_dtype type, void *data)
{
    return manta_array_of(type, t->layout.n, t->layout.size, data);
}

manta_array torch_view_theirs(const torch_tensor *t, const manta_array *a)
{
    const torch_layout *l = &t->layout;
    manta_array v = {.data = a->data, .dtype = a->dtype, .ndim = l->n};
    int k = 0;

    memcpy(v.shape, l->size, sizeof v.shape);
    for (int i = 0; i < l->ndim; k += l->parts[i++]) {
        int64_t stride = a->strides[i];
        for (int j = l->parts[i] - 1; j >= 0; j--) {
            v.strides[l->order[k + j]] = stride;
            stride *= l->size[l->order[k + j]];
        }
    }
    return v;
}
