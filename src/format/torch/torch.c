/* torch.c - which tensor is whose, and the copies between both layouts. */
#include "format/torch/torch.h"

#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "format/torch/torch_plan.h"
#include "nn/graph.h"
#include "tensor/copy.h"

#define COUNTER "num_batches_tracked"

/* A module of the file: the arrays whose names are the same up to the last dot. */
typedef struct their_module {
    char *name; /* "layer1.0.conv1"; owned */
    VEC(int) columns; /* num_batches_tracked left out */
} their_module;

typedef struct matching {
    const char *path;
    const manta_model *m;
    torch_plan plan;
    const manta_column *columns;
    VEC(their_module) theirs; /* in file order */
    size_t *pair; /* per module of the plan: which of theirs */
} matching;

static const char *suffix_of(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? dot + 1 : name;
}

bool torch_is_state(const manta_model *m, int n, const manta_column *columns)
{
    bool looks = false;

    for (int i = 0; i < n; i++) {
        const char *suffix = suffix_of(columns[i].name);
        if (m->n_variables && strcmp(columns[i].name, m->variables[0].name) == 0) return false;
        if (strcmp(suffix, "weight") == 0 || strcmp(suffix, "bias") == 0) looks = true;
    }
    return looks;
}

/* ---- the file's side ---- */

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The part of the names that all weights of a checkpoint share: 0, or its length. */
static size_t common_prefix(int n, const manta_column *columns)
{
    static const char *const words[] = {"model_state_dict.", "state_dict.", "model."};
    size_t skip = 0;
    bool all = n > 0;

    for (size_t k = 0; k < sizeof words / sizeof *words && !skip; k++) {
        for (int i = 0; i < n; i++) {
            if (begins_with(columns[i].name, words[k])) skip = strlen(words[k]);
        }
        if (!skip) continue;
        /* A model may have a module of that name: then it has others beside, and no optimizer. */
        for (int i = 0; i < n; i++) {
            if (!begins_with(columns[i].name, words[k]) && !begins_with(columns[i].name, "optim")) skip = 0;
        }
    }
    /* DistributedDataParallel wraps everything in "module". */
    for (int i = 0; i < n; i++) {
        if (skip && begins_with(columns[i].name, "optim")) continue;
        if (!begins_with(columns[i].name + skip, "module.")) all = false;
    }
    return all ? skip + strlen("module.") : skip;
}

static void group_layers(matching *g, int n)
{
    size_t skip = common_prefix(n, g->columns);
    MAP(size_t) known = {0};

    for (int i = 0; i < n; i++) {
        const char *name = g->columns[i].name, *suffix;
        char *module;
        size_t *at;
        if (skip && begins_with(name, "optim")) continue;
        name += skip;
        suffix = suffix_of(name);
        if (strcmp(suffix, COUNTER) == 0) continue;
        module = suffix == name ? mem_strdup("") : mem_strndup(name, (size_t)(suffix - name) - 1);
        if (!(at = map_find(&known, module))) {
            at = map_put(&known, module);
            *at = g->theirs.n;
            vec_push(&g->theirs, (their_module){.name = mem_strdup(module)});
        }
        vec_push(&g->theirs.at[*at].columns, i);
        mem_free(module);
    }
    map_release(&known);
}

/* ---- matching ---- */

static const torch_tensor *tensor_of(const matching *g, size_t ours, int i)
{
    return &g->plan.tensors.at[g->plan.modules.at[ours].first + i];
}

static const manta_column *column_of(const matching *g, size_t theirs, const char *suffix)
{
    const their_module *t = &g->theirs.at[theirs];

    for (size_t i = 0; i < t->columns.n; i++) {
        const manta_column *c = &g->columns[t->columns.at[i]];
        if (strcmp(suffix_of(c->name), suffix) == 0) return c;
    }
    return NULL;
}

static bool same_shape(const manta_column *c, const torch_tensor *t)
{
    return c->array.ndim == t->layout.ndim &&
           memcmp(c->array.shape, t->shape, (size_t)t->layout.ndim * sizeof *t->shape) == 0;
}

static bool module_fits(const matching *g, size_t ours, size_t theirs)
{
    int n = g->plan.modules.at[ours].n;

    if ((size_t)n != g->theirs.at[theirs].columns.n) return false;
    for (int i = 0; i < n; i++) {
        const torch_tensor *t = tensor_of(g, ours, i);
        const manta_column *c = column_of(g, theirs, t->suffix);
        if (!c || !same_shape(c, t)) return false;
    }
    return true;
}

/* Says why a module does not fit. */
static manta_status fail_module(const matching *g, size_t ours, size_t theirs)
{
    const char *layer = g->plan.modules.at[ours].layer, *module = g->theirs.at[theirs].name;

    for (int i = 0; i < g->plan.modules.at[ours].n; i++) {
        const torch_tensor *t = tensor_of(g, ours, i);
        const manta_column *c = column_of(g, theirs, t->suffix);
        char given[96], expected[96];
        if (!c) {
            return manta_fail(MANTA_EINVAL,
                              "%s: the module '%s' has no %s, which layer '%s' of model '%s' needs", g->path,
                              module, t->suffix, layer, g->m->name);
        }
        if (!same_shape(c, t)) {
            return manta_fail(
                MANTA_EINVAL, "%s: the tensor '%s' has shape %s, layer '%s' of model '%s' expects %s",
                g->path, c->name, manta_shape_text(c->array.ndim, c->array.shape, given, sizeof given), layer,
                g->m->name, manta_shape_text(t->layout.ndim, t->shape, expected, sizeof expected));
        }
    }
    return manta_fail(MANTA_EINVAL,
                      "%s: the module '%s' has more tensors than layer '%s' of model '%s' takes", g->path,
                      module, layer, g->m->name);
}

/* A name without what both sides write differently; owned by the caller. */
static char *plain_name(const char *name)
{
    char *s = mem_strdup(name);

    for (char *p = s; *p; p++) {
        if (*p == '.' || *p == '/') *p = '_';
    }
    return s;
}

/* Pairs modules of the same name; false when one has no counterpart. */
static bool pair_by_name(matching *g)
{
    MAP(size_t) known = {0};
    bool all = g->plan.modules.n == g->theirs.n;

    for (size_t i = 0; i < g->theirs.n; i++) {
        char *name = plain_name(g->theirs.at[i].name);
        *map_put(&known, name) = i;
        mem_free(name);
    }
    for (size_t i = 0; i < g->plan.modules.n && all; i++) {
        char *name = plain_name(g->plan.modules.at[i].layer);
        const size_t *at = map_find(&known, name);
        if (at) g->pair[i] = *at;
        all = at != NULL;
        mem_free(name);
    }
    map_release(&known);
    return all;
}

static bool pair_by_order(matching *g)
{
    for (size_t i = 0; i < g->plan.modules.n; i++) {
        g->pair[i] = i;
        if (!module_fits(g, i, i)) return false;
    }
    return true;
}

/* Every layer with the only module that fits. Otherwise *layer is one that
 * none fits or, where there is no such one, one that several fit; *fitting
 * says how many. */
static bool pair_by_shape(matching *g, size_t *layer, int *fitting)
{
    bool all = true;

    for (size_t i = 0; i < g->plan.modules.n; i++) {
        int n = 0;
        for (size_t k = 0; k < g->theirs.n; k++) {
            if (!module_fits(g, i, k)) continue;
            g->pair[i] = k;
            n++;
        }
        for (size_t k = 0; k < i && n == 1; k++) {
            if (g->pair[k] == g->pair[i]) n++; /* two layers want the same one */
        }
        if (n == 1 || (!all && n > 0)) continue;
        all = false;
        *layer = i;
        *fitting = n;
        if (n == 0) break;
    }
    return all;
}

static manta_status fail_count(const matching *g)
{
    return manta_fail(
        MANTA_EINVAL,
        "%s has %zu modules with weights, model '%s' has %zu layers with weights: neither names nor "
        "order can match them",
        g->path, g->theirs.n, g->m->name, g->plan.modules.n);
}

static manta_status pair_modules(matching *g)
{
    size_t layer = 0;
    int fitting = 0;

    if (pair_by_name(g)) {
        for (size_t i = 0; i < g->plan.modules.n; i++) {
            if (!module_fits(g, i, g->pair[i])) return fail_module(g, i, g->pair[i]);
        }
        return MANTA_OK;
    }
    if (g->theirs.n != g->plan.modules.n) return fail_count(g);
    if (pair_by_order(g) || pair_by_shape(g, &layer, &fitting)) return MANTA_OK;
    if (fitting == 0) return fail_module(g, layer, layer);
    return manta_fail(
        MANTA_EINVAL,
        "%s: its modules are named and ordered otherwise than the layers of model '%s', and several "
        "fit layer '%s' by shape: which is meant cannot be told",
        g->path, g->m->name, g->plan.modules.at[layer].layer);
}

/* ---- both directions ---- */

static void matching_release(matching *g)
{
    for (size_t i = 0; i < g->theirs.n; i++) {
        mem_free(g->theirs.at[i].name);
        vec_release(&g->theirs.at[i].columns);
    }
    vec_release(&g->theirs);
    torch_plan_release(&g->plan);
    mem_free(g->pair);
}

static manta_status import_module(const matching *g, size_t ours, manta_saved *s)
{
    for (int i = 0; i < g->plan.modules.at[ours].n; i++) {
        const torch_tensor *t = tensor_of(g, ours, i);
        const manta_column *c = column_of(g, g->pair[ours], t->suffix);
        const graph_variable *v = &g->m->variables[t->variable];
        manta_array made, to, from = torch_view_theirs(t, &c->array);
        TRY(saved_new_array(s, v->name, MANTA_DTYPE_F32, v->ndim, v->shape, &made));
        to = torch_view_ours(t, MANTA_DTYPE_F32, made.data);
        TRY(copy_strided(NULL, &to, &from, false));
    }
    return MANTA_OK;
}

manta_status torch_import(const char *path, const manta_model *m, int n, const manta_column *columns,
                          manta_saved *s)
{
    matching g = {.path = path, .m = m, .columns = columns};
    manta_status st;

    TRY(torch_plan_make(m, &g.plan));
    group_layers(&g, n);
    g.pair = mem_new((g.plan.modules.n + 1) * sizeof *g.pair);
    st = pair_modules(&g);
    for (size_t i = 0; i < g.plan.modules.n && !st; i++) st = import_module(&g, i, s);
    matching_release(&g);
    return st;
}

/* "layer1_0_conv1" is a path of PyTorch's, since a part of it is a number:
 * "layer1.0.conv1". "conv2d_1" is a numbered name and stays one. */
static char *their_name(const char *layer)
{
    char *s = mem_strdup(layer);
    bool path = false;

    for (char *p = s; (p = strchr(p, '_')); p++) {
        size_t digits = strspn(p + 1, "0123456789");
        if (digits && p[1 + digits] == '_') path = true;
    }
    for (char *p = s; *p; p++) {
        if (*p == '/' || (path && *p == '_')) *p = '.';
    }
    return s;
}

static manta_status new_column(torch_state *out, char *name, manta_dtype t, int ndim, const int64_t *shape)
{
    manta_column *c = &out->columns[out->n];
    void *data;
    manta_array a = manta_array_of(t, ndim, shape, NULL);

    c->name = name;
    if (!(data = mem_try(manta_array_bytes(&a) + 1))) {
        mem_free(name);
        return manta_fail(MANTA_ENOMEM, "no memory for %zu bytes of weights", manta_array_bytes(&a));
    }
    a.data = data;
    c->array = a;
    out->n++;
    return MANTA_OK;
}

static const manta_array *find_column(const char *name, int n, const manta_column *columns)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(columns[i].name, name) == 0) return &columns[i].array;
    }
    return NULL;
}

/* Copies one of our arrays, of any strides, to its place in PyTorch's layout. */
static manta_status copy_out(const char *path, const torch_tensor *t, const manta_array *from,
                             const manta_array *to)
{
    manta_array plain = manta_array_of(from->dtype, from->ndim, from->shape, from->data);
    manta_array view = torch_view_theirs(t, to), ours;
    manta_status st = MANTA_OK;
    void *copy = NULL;

    if (!manta_array_is_contiguous(from)) {
        if (!(copy = mem_try_raw(manta_array_bytes(from) + 1))) {
            return manta_fail(MANTA_ENOMEM, "%s: no memory for %zu bytes of weights", path,
                              manta_array_bytes(from));
        }
        plain.data = copy;
        st = copy_strided(NULL, &plain, from, false);
    }
    ours = torch_view_ours(t, from->dtype, plain.data);
    if (!st) st = copy_strided(NULL, &view, &ours, false);
    mem_try_free(copy);
    return st;
}

static manta_status export_tensor(const char *path, const manta_model *m, const torch_tensor *t,
                                  const char *module, int n, const manta_column *columns, torch_state *out)
{
    const graph_variable *v = &m->variables[t->variable];
    const manta_array *from = find_column(v->name, n, columns);
    manta_array want = manta_array_of(MANTA_DTYPE_F32, v->ndim, v->shape, NULL);

    if (!from) {
        return manta_fail(MANTA_ENOENT, "%s: there is no array '%s', which model '%s' needs", path, v->name,
                          m->name);
    }
    if (from->ndim != want.ndim ||
        memcmp(from->shape, want.shape, (size_t)want.ndim * sizeof *want.shape) != 0) {
        char given[96], expected[96];
        return manta_fail(MANTA_EINVAL, "%s: array '%s' has shape %s, model '%s' expects %s", path, v->name,
                          manta_shape_text(from->ndim, from->shape, given, sizeof given), m->name,
                          manta_shape_text(want.ndim, want.shape, expected, sizeof expected));
    }
    TRY(new_column(out, mem_printf("%s%s%s", module, *module ? "." : "", t->suffix), from->dtype,
                   t->layout.ndim, t->shape));
    return copy_out(path, t, from, &out->columns[out->n - 1].array);
}

static manta_status export_module(const char *path, const manta_model *m, const torch_plan *plan, size_t k,
                                  int n, const manta_column *columns, torch_state *out)
{
    const torch_module *mod = &plan->modules.at[k];
    const manta_array *calls = find_column("optimizer/iterations", n, columns);
    char *name = their_name(mod->layer);
    manta_status st = MANTA_OK;

    for (int i = 0; i < mod->n && !st; i++) {
        st = export_tensor(path, m, &plan->tensors.at[mod->first + i], name, n, columns, out);
    }
    if (!st && mod->counts) {
        st = new_column(out, mem_printf("%s." COUNTER, name), MANTA_DTYPE_I64, 0, NULL);
        if (!st && calls && calls->dtype == MANTA_DTYPE_I64 && calls->ndim == 0) {
            memcpy(out->columns[out->n - 1].array.data, calls->data, sizeof(int64_t));
        }
    }
    mem_free(name);
    return st;
}

manta_status torch_export(const char *path, const manta_model *m, int n, const manta_column *columns,
                          torch_state *out)
{
    torch_plan plan = {0};
    torch_state s = {0};
    manta_status st;

    TRY(torch_plan_make(m, &plan));
    s.columns = mem_new((plan.tensors.n + plan.modules.n + 1) * sizeof *s.columns);
    st = MANTA_OK;
    for (size_t i = 0; i < plan.modules.n && !st; i++) st = export_module(path, m, &plan, i, n, columns, &s);
    torch_plan_release(&plan);
    if (st) {
        torch_state_release(&s);
        return st;
    }
    *out = s;
    return MANTA_OK;
}

void torch_state_release(torch_state *s)
{
    for (int i = 0; i < s->n; i++) {
        mem_free((char *)(uintptr_t)s->columns[i].name);
        mem_try_free(s->columns[i].array.data);
    }
    mem_free(s->columns);
    *s = (torch_state){0};
}
