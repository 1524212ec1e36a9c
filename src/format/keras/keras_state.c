/* keras_state.c - weights and optimizer state in Keras's places.
 *
 *   layers/conv2d_1/vars/0     variables, per layer the trainable ones first
 *   optimizer/vars/0           calls of the optimizer so far
 *   optimizer/vars/1           learning rate; absent when a schedule rules it
 *   optimizer/vars/2...        averages, accumulators, then the optimizer's own,
 *                              each over the trainable variables in Keras's order */
#include "format/keras/keras_state.h"

#include <string.h>

#include <manta/tensor.h>

#include "base/log.h"
#include "base/mem.h"

typedef VEC(char *) names;

static void names_release(names *n)
{
    for (size_t i = 0; i < n->n; i++) mem_free(n->at[i]);
    vec_release(n);
}

/* ---- what an optimizer keeps, in Keras's order ---- */

static void add_array(names *out, const char *array, const keras_variables *v)
{
    for (size_t i = 0; i < v->n; i++) {
        if (v->at[i].trains) vec_push(out, mem_printf("optimizer/%s/%s", array, v->at[i].name));
    }
}

/* Our names of the optimizer's variables. The first is always the count of calls. */
static void slot_names(const manta_optimizer *o, const keras_variables *v, names *out)
{
    vec_push(out, mem_strdup("optimizer/iterations"));
    if (o->schedule.kind == MANTA_SCHEDULE_CONSTANT) vec_push(out, mem_strdup("optimizer/learning_rate"));
    if (o->use_ema) add_array(out, "average", v);
    if (o->gradient_accumulation_steps > 1) add_array(out, "accumulator", v);
    if (o->kind == MANTA_OPTIMIZER_SGD) {
        if (o->momentum != 0) add_array(out, "momentum", v);
    } else if (o->kind == MANTA_OPTIMIZER_RMSPROP) {
        add_array(out, "velocity", v);
        if (o->momentum != 0) add_array(out, "momentum", v);
        if (o->centered) add_array(out, "average_gradient", v);
    } else {
        for (size_t i = 0; i < v->n; i++) {
            if (!v->at[i].trains) continue;
            vec_push(out, mem_printf("optimizer/momentum/%s", v->at[i].name));
            vec_push(out, mem_printf("optimizer/velocity/%s", v->at[i].name));
        }
        if (o->amsgrad) add_array(out, "velocity_hat", v);
    }
}

/* ---- reading ---- */

/* One number as the dtype it has everywhere. */
static manta_status add_scalar(h5_file *f, const char *at, manta_dtype t, const char *name, manta_saved *s)
{
    manta_saved *scratch = mem_new(sizeof *scratch);
    manta_status st = h5_read(f, at, scratch, name);
    manta_array out;

    if (!st) st = saved_new_array(s, name, t, 0, NULL, &out);
    if (!st) st = manta_array_copy(&out, manta_saved_find(scratch, name));
    manta_saved_free(scratch);
    return st;
}

/* The variable that an optimizer's array belongs to; NULL for the two numbers. */
static const graph_variable *variable_of(const manta_model *m, const keras_variables *v, const char *slot)
{
    const char *name = strchr(slot + strlen("optimizer/"), '/');

    for (size_t i = 0; name && i < v->n; i++) {
        if (!strcmp(v->at[i].name, name + 1)) return &m->variables[v->at[i].variable];
    }
    return NULL;
}

static manta_status slots_fit(h5_file *f, const manta_model *m, const keras_variables *v, const names *want,
                              size_t n, char *const *places, bool *fit)
{
    *fit = false;
    if (n != want->n) return MANTA_OK;
    for (size_t i = 0; i < n; i++) {
        const graph_variable *g = variable_of(m, v, want->at[i]);
        int ndim, expected = g ? g->ndim : 0;
        int64_t shape[MANTA_MAX_DIMS];
        TRY(h5_shape(f, places[i], &ndim, shape));
        if (ndim != expected || (g && memcmp(shape, g->shape, (size_t)ndim * sizeof *shape) != 0))
            return MANTA_OK;
    }
    *fit = true;
    return MANTA_OK;
}

static manta_status read_slots(const char *path, h5_file *f, const manta_model *m, const keras_variables *v,
                               const manta_optimizer *optimizer, size_t n, char *const *places,
                               manta_saved *s)
{
    names want = {0};
    bool fit = false;
    manta_status st;

    slot_names(optimizer, v, &want);
    if ((st = slots_fit(f, m, v, &want, n, places, &fit))) goto out;
    /* An optimizer that has not been used yet saves its numbers only: a fresh start, as it is. */
    if (!fit && n <= 2) goto out;
    if (!fit) {
        log_warn("the optimizer state is for another optimizer: it is left in the file",
                 LOG_STR("file", path), LOG_INT("arrays", n), LOG_INT("expected", want.n));
        goto out;
    }
    for (size_t i = 0; i < n && !st; i++) {
        if (!strcmp(want.at[i], "optimizer/iterations")) {
            st = add_scalar(f, places[i], MANTA_DTYPE_I64, want.at[i], s);
        } else if (!strcmp(want.at[i], "optimizer/learning_rate")) {
            st = add_scalar(f, places[i], MANTA_DTYPE_F64, want.at[i], s);
        } else {
            st = h5_read(f, places[i], s, want.at[i]);
        }
    }
out:
    names_release(&want);
    return st;
}

manta_status keras_slots_read(const char *path, h5_file *f, const manta_model *m,
                              const manta_optimizer *optimizer, size_t n, char *const *places, manta_saved *s)
{
    keras_tree *t = keras_tree_new(m);
    keras_variables v = {0};
    manta_status st;

    keras_tree_variables(t, &v, NULL);
    st = read_slots(path, f, m, &v, optimizer, n, places, s);
    keras_variables_release(&v);
    keras_tree_free(t);
    return st;
}

/* The optimizer's group, by number: the names' own order is that of text. */
static manta_status read_optimizer(const char *path, h5_file *f, const manta_model *m,
                                   const keras_variables *v, const manta_optimizer *optimizer, manta_saved *s)
{
    h5_names found = {0};
    names places = {0};
    h5_kind kind, wrapped;
    bool gaps = false;
    manta_status st;

    TRY(h5_find(f, "optimizer/vars", &kind));
    TRY(h5_find(f, "optimizer/inner_optimizer", &wrapped));
    if (kind != H5_GROUP) return MANTA_OK;
    if (wrapped != H5_NOTHING) {
        log_warn("the optimizer state is that of a loss-scaling optimizer: it is left in the file",
                 LOG_STR("file", path));
        return MANTA_OK;
    }
    TRY(h5_list(f, "optimizer/vars", &found));
    st = MANTA_OK;
    for (size_t i = 0; i < found.n && !st; i++) {
        vec_push(&places, mem_printf("optimizer/vars/%zu", i));
        st = h5_find(f, places.at[i], &kind);
        gaps |= kind != H5_DATASET;
    }
    if (!st && gaps) {
        log_warn("the optimizer state is not numbered from 0 on: it is left in the file",
                 LOG_STR("file", path));
    } else if (!st && places.n) {
        st = read_slots(path, f, m, v, optimizer, places.n, places.at, s);
    }
    names_release(&places);
    h5_names_release(&found);
    return st;
}

/* That a layer's group has as many variables as the layer: Keras insists on it. */
static manta_status check_count(const char *path, h5_file *f, const keras_variables *v, size_t first,
                                size_t n)
{
    const char *slash = strrchr(v->at[first].path, '/');
    char *group = mem_strndup(v->at[first].path, (size_t)(slash - v->at[first].path));
    const char *name = v->at[first].name, *end = strrchr(name, '/');
    h5_names found = {0};
    h5_kind kind;
    manta_status st = h5_find(f, group, &kind);

    if (!st && kind == H5_GROUP) st = h5_list(f, group, &found);
    if (!st && found.n != n) {
        st = manta_fail(MANTA_ENOENT, "%s: layer '%.*s' has %zu variables, /%s holds %zu", path,
                        end ? (int)(end - name) : 0, name, n, group, found.n);
    }
    h5_names_release(&found);
    mem_free(group);
    return st;
}

static bool same_group(const char *a, const char *b)
{
    size_t n = (size_t)(strrchr(a, '/') - a), k = (size_t)(strrchr(b, '/') - b);

    return n == k && !memcmp(a, b, n);
}

manta_status keras_state_read(const char *path, h5_file *f, const manta_model *m,
                              const manta_optimizer *optimizer, manta_saved *s)
{
    keras_tree *t = keras_tree_new(m);
    keras_variables v = {0};
    manta_status st = MANTA_OK;

    keras_tree_variables(t, &v, NULL);
    for (size_t i = 0, n; i < v.n && !st; i += n) {
        for (n = 1; i + n < v.n && same_group(v.at[i].path, v.at[i + n].path);) n++;
        st = check_count(path, f, &v, i, n);
    }
    for (size_t i = 0; i < v.n && !st; i++) st = h5_read(f, v.at[i].path, s, v.at[i].name);
    if (!st) st = saved_check(s, path, m);
    if (!st && optimizer) st = read_optimizer(path, f, m, &v, optimizer, s);
    keras_variables_release(&v);
    keras_tree_free(t);
    return st;
}

/* ---- writing ---- */

/* The array itself, or a converted copy of it. */
static manta_status as_dtype(const char *path, const char *name, const manta_array *a, manta_dtype t,
                             keras_state *k, manta_array *out)
{
    void *memory;

    if (a->dtype == t && manta_array_is_contiguous(a)) {
        *out = *a;
        return MANTA_OK;
    }
    *out = manta_array_of(t, a->ndim, a->shape, NULL);
    memory = mem_try_raw(manta_array_bytes(out) + 1);
    if (!memory) return manta_fail(MANTA_ENOMEM, "%s: no memory to convert array '%s'", path, name);
    vec_push(&k->memory, memory);
    out->data = memory;
    return manta_array_copy(out, a);
}

static manta_status collect_variables(const char *path, const keras_tree *t, const manta_contents *c,
                                      const int *by_name, keras_state *k)
{
    for (size_t i = 0; i < k->variables.n; i++) {
        const keras_variable *v = &k->variables.at[i];
        const graph_variable *g = &t->model->variables[v->variable];
        const manta_array *a = by_name[i] >= 0 ? &c->arrays[by_name[i]].array : NULL;
        manta_array ready;
        char given[96], expected[96];
        if (!a) {
            return manta_fail(MANTA_ENOENT, "%s: there is no array '%s', which model '%s' needs", path,
                              v->name, t->model->name);
        }
        if (a->ndim != g->ndim || memcmp(a->shape, g->shape, (size_t)g->ndim * sizeof *g->shape) != 0) {
            return manta_fail(MANTA_EINVAL, "%s: array '%s' has shape %s, model '%s' expects %s", path,
                              v->name, manta_shape_text(a->ndim, a->shape, given, sizeof given),
                              t->model->name, manta_shape_text(g->ndim, g->shape, expected, sizeof expected));
        }
        TRY(as_dtype(path, v->name, a, MANTA_DTYPE_F32, k, &ready));
        vec_push(&k->arrays, ready);
    }
    return MANTA_OK;
}

typedef MAP(int) name_map;

/* All of the optimizer's arrays, or none: Keras restores no part of it. */
static manta_status collect_slots(const char *path, const manta_contents *c, name_map *index, keras_state *k)
{
    names want = {0};
    manta_status st = MANTA_OK;

    if (!c->optimizer || c->optimizer->torch) return MANTA_OK;
    slot_names(c->optimizer, &k->variables, &want);
    for (size_t i = 0; i < want.n && !st; i++) {
        const int *at = map_find(index, want.at[i]);
        manta_array ready;
        if (!at) {
            vec_clear(&k->slots);
            break;
        }
        st = as_dtype(path, want.at[i], &c->arrays[*at].array, i == 0 ? MANTA_DTYPE_I64 : MANTA_DTYPE_F32, k,
                      &ready);
        vec_push(&k->slots, ready);
    }
    for (size_t i = 0; i < want.n; i++) vec_push(&k->slot_names, want.at[i]);
    vec_release(&want);
    return st;
}

manta_status keras_state_collect(const char *path, const keras_tree *t, const manta_contents *c,
                                 keras_state *out)
{
    keras_state k = {0};
    name_map index = {0};
    int *by_name;
    manta_status st;

    keras_tree_variables(t, &k.variables, &k.groups);
    for (int i = 0; i < c->n_arrays; i++) *map_put(&index, c->arrays[i].name) = i;
    by_name = mem_new((k.variables.n + 1) * sizeof *by_name);
    for (size_t i = 0; i < k.variables.n; i++) {
        const int *at = map_find(&index, k.variables.at[i].name);
        by_name[i] = at ? *at : -1;
    }
    st = collect_variables(path, t, c, by_name, &k);
    if (!st) st = collect_slots(path, c, &index, &k);
    mem_free(by_name);
    map_release(&index);
    if (st) {
        keras_state_release(&k);
        return st;
    }
    *out = k;
    return MANTA_OK;
}

void keras_state_release(keras_state *k)
{
    keras_variables_release(&k->variables);
    keras_groups_release(&k->groups);
    for (size_t i = 0; i < k->slot_names.n; i++) mem_free(k->slot_names.at[i]);
    for (size_t i = 0; i < k->memory.n; i++) mem_try_free(k->memory.at[i]);
    vec_release(&k->arrays);
    vec_release(&k->slot_names);
    vec_release(&k->slots);
    vec_release(&k->memory);
}

void keras_state_place(const keras_state *k, h5_out *o)
{
    for (size_t i = 0; i < k->groups.n; i++) h5_out_group(o, k->groups.at[i]);
    for (size_t i = 0; i < k->arrays.n; i++) h5_out_dataset(o, k->variables.at[i].path, &k->arrays.at[i]);
    for (size_t i = 0; i < k->slots.n; i++) {
        char *path = mem_printf("optimizer/vars/%zu", i);
        h5_out_dataset(o, path, &k->slots.at[i]);
        mem_free(path);
    }
}
