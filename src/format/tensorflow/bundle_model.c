/* bundle_model.c - TensorFlow checkpoints as files of weights.
 *
 * What we write has a variable under its own name ("conv2d/kernel"), as key
 * and as full name. What others wrote is matched to a model by full names,
 * never by keys: Keras 3 saves "sequential/conv2d/kernel" under a key that
 * leads through its optimizer, and the optimizer's arrays as
 * "adam/sequential_conv2d_kernel_momentum". */
#include <string.h>

#include "base/mem.h"
#include "format/tensorflow/bundle_model.h"
#include "os/file.h"

typedef struct names {
    char **at; /* per entry, owned; NULL: no array (a string, the save counter) */
    size_t n;
} names;

static void names_release(names *n)
{
    for (size_t i = 0; i < n->n; i++) mem_free(n->at[i]);
    mem_free(n->at);
}

/* "dense/kernel:0" of older versions. */
static void cut_colon(char *name)
{
    size_t n = strlen(name);

    if (n > 2 && !strcmp(name + n - 2, ":0")) name[n - 2] = '\0';
}

/* Full names where they are paths and tell entries apart, as Keras's do; else
 * what the keys say (a bare tf.Variable is called "Variable"). */
static manta_status name_entries(const bundle *b, names *out)
{
    const bundle_entry *g = bundle_find(b, BUNDLE_GRAPH_KEY);
    bundle_names full = {0};
    MAP(int) count = {0};
    buf graph = {0};
    manta_status st = MANTA_OK;

    if (g && !(st = bundle_read_string(b, g, &graph))) {
        st = bundle_graph_read(b->prefix, (const uint8_t *)graph.at, graph.n, &full);
    }
    buf_release(&graph);
    for (size_t i = 0; i < full.n; i++) {
        cut_colon(full.at[i].value);
        ++*map_put(&count, full.at[i].value);
    }
    out->n = st ? 0 : b->entries.n;
    out->at = mem_new((out->n + 1) * sizeof *out->at);
    for (size_t i = 0; i < out->n; i++) {
        const bundle_entry *e = &b->entries.at[i];
        char **name = map_find(&full, e->key);
        if (e->dtype == BUNDLE_STRING) continue;
        bool tells = name && strchr(*name, '/') && *map_find(&count, *name) == 1;
        out->at[i] = tells ? mem_strdup(*name) : bundle_name_of_key(e->key);
        cut_colon(out->at[i]);
        if (!strcmp(out->at[i], "save_counter")) {
            mem_free(out->at[i]);
            out->at[i] = NULL;
        }
    }
    bundle_names_release(&full);
    map_release(&count);
    return st;
}

static manta_status load_entry(const bundle *b, const bundle_entry *e, const char *name, manta_saved *s)
{
    manta_dtype t;
    manta_array a;
    char *path;
    file_info info;

    if (e->ndim > MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: tensor '%s' has more than %d dimensions", b->prefix,
                          e->key, MANTA_MAX_DIMS);
    }
    TRY(bundle_dtype(e, &t));
    /* Memory only for what the file can hold. */
    path = mem_printf("%s.data-%05lld-of-%05lld", b->prefix, (long long)e->shard, (long long)b->shards);
    manta_status st = file_stat(path, &info);
    if (!st && (uint64_t)(e->offset + e->size) > info.size) {
        st = manta_fail(MANTA_ECORRUPT, "%s: tensor '%s' lies beyond the end of the file", path, e->key);
    }
    mem_free(path);
    if (st) return st;
    TRY(saved_new_array(s, name, t, e->ndim, e->shape, &a));
    return bundle_read(b, e, &a);
}

/* ---- by a model's names ---------------------------------------------------------------- */

static bool ends_in_path(const char *name, const char *tail)
{
    size_t n = strlen(name), k = strlen(tail);

    return n > k && name[n - k - 1] == '/' && !strcmp(name + n - k, tail);
}

/* The entry of a variable: the name itself, or the only one that ends in it. -1: none, -2: several. */
static int find_entry(const names *n, const char *variable)
{
    int found = -1;

    for (size_t i = 0; i < n->n; i++) {
        if (!n->at[i]) continue;
        if (!strcmp(n->at[i], variable)) return (int)i;
        if (!strncmp(n->at[i], "optimizer/", 10) || !ends_in_path(n->at[i], variable)) continue;
        found = found == -1 ? (int)i : -2;
    }
    return found;
}

/* "adam/sequential_dense_kernel_momentum" of "sequential/dense/kernel": gives "momentum"; NULL: another's. */
static const char *slot_of(const char *name, const char *full)
{
    const char *p = strchr(name, '/');

    if (!p) return NULL;
    for (p++; *full; p++, full++) {
        if (*p != (*full == '/' ? '_' : *full)) return NULL;
    }
    static const char *const slots[] = {"momentum", "velocity", "velocity_hat", "average_gradient"};
    for (size_t i = 0; *p == '_' && i < sizeof slots / sizeof *slots; i++) {
        if (!strcmp(p + 1, slots[i])) return slots[i];
    }
    return NULL;
}

static manta_status load_slots(const bundle *b, const names *n, const char *full, const char *variable,
                               manta_saved *s)
{
    for (size_t i = 0; i < n->n; i++) {
        const char *slot = n->at[i] ? slot_of(n->at[i], full) : NULL;
        if (!slot) continue;
        char *name = mem_printf("optimizer/%s/%s", slot, variable);
        manta_status st = load_entry(b, &b->entries.at[i], name, s);
        mem_free(name);
        if (st) return st;
    }
    return MANTA_OK;
}

/* The optimizer's two numbers, as every format here has them. */
static manta_status load_counters(const bundle *b, const names *n, manta_saved *s)
{
    for (size_t i = 0; i < n->n; i++) {
        const char *slash = n->at[i] ? strrchr(n->at[i], '/') : NULL;
        const bundle_entry *e = &b->entries.at[i];
        bool steps = slash && (!strcmp(slash, "/iteration") || !strcmp(slash, "/iterations"));
        bool rate = slash && !strcmp(slash, "/learning_rate");
        if (e->ndim || !(steps || rate) ||
            manta_saved_find(s, steps ? "optimizer/iterations" : "optimizer/learning_rate"))
            continue;
        if (steps && e->dtype == BUNDLE_I64) TRY(load_entry(b, e, "optimizer/iterations", s));
        if (rate && e->dtype == BUNDLE_F64) TRY(load_entry(b, e, "optimizer/learning_rate", s));
        if (rate && e->dtype == BUNDLE_F32) {
            float v;
            manta_array one = manta_array_of(MANTA_DTYPE_F32, 0, NULL, &v), a;
            TRY(bundle_read(b, e, &one));
            TRY(saved_new_array(s, "optimizer/learning_rate", MANTA_DTYPE_F64, 0, NULL, &a));
            *(double *)a.data = v;
        }
    }
    return MANTA_OK;
}

static manta_status load_like(const bundle *b, const names *n, const manta_model *m, manta_saved *s)
{
    for (int i = 0; i < manta_model_variables(m); i++) {
        const char *variable = manta_model_variable(m, i).name;
        int at = find_entry(n, variable);
        if (at < 0) {
            return manta_fail(MANTA_ENOENT, "%s: %s array is called '%s', which model '%s' needs", b->prefix,
                              at == -1 ? "no" : "more than one", variable, manta_model_name(m));
        }
        TRY(load_entry(b, &b->entries.at[at], variable, s));
        if (strcmp(n->at[at], variable)) TRY(load_slots(b, n, n->at[at], variable, s));
    }
    /* our own: under the names they have */
    for (size_t i = 0; i < n->n; i++) {
        const char *name = n->at[i];
        if (!name || (strncmp(name, "optimizer/", 10) && strncmp(name, "run/", 4)) ||
            manta_saved_find(s, name))
            continue;
        TRY(load_entry(b, &b->entries.at[i], name, s));
    }
    TRY(load_counters(b, n, s));
    return saved_check(s, b->prefix, m);
}

static manta_status load_all(const bundle *b, const names *n, manta_saved *s)
{
    for (size_t i = 0; i < n->n; i++) {
        if (n->at[i]) TRY(load_entry(b, &b->entries.at[i], n->at[i], s));
    }
    return MANTA_OK;
}

static manta_status read_bundle(const char *path, const manta_read_options *o, manta_saved *s)
{
    char *prefix = NULL;
    bundle b = {0};
    names n = {0};
    manta_status st;

    TRY(bundle_locate(path, &prefix));
    st = bundle_open(prefix, &b);
    mem_free(prefix);
    if (!st && !o->model_only && !(st = name_entries(&b, &n))) {
        st = o->like ? load_like(&b, &n, o->like, s) : load_all(&b, &n, s);
    }
    names_release(&n);
    bundle_release(&b);
    return st;
}

/* ---- the format ------------------------------------------------------------------------ */

static bool file_exists(const char *path, const char *tail)
{
    file_info info;
    char *full = mem_printf("%s%s", path, tail);
    bool yes = !file_stat(full, &info) && info.is_file;

    mem_free(full);
    return yes;
}

static model_match probe_bundle(const char *path, const uint8_t *head, size_t n)
{
    file_info info;

    (void)head;
    if (model_path_ends(path, ".index")) return n ? MODEL_CONTENTS : MODEL_NAME;
    if (n) return MODEL_NO;
    if (!file_stat(path, &info)) {
        bool is = info.is_folder &&
                  (file_exists(path, "/checkpoint") || file_exists(path, "/variables/variables.index") ||
                   file_exists(path, "/variables.index"));
        return is ? MODEL_CONTENTS : MODEL_NO;
    }
    return file_exists(path, ".index") ? MODEL_CONTENTS : MODEL_NO;
}

static manta_status write_bundle(const char *path, const manta_contents *c)
{
    size_t n = strlen(path), k = strlen(".index");
    char *prefix = mem_strndup(path, model_path_ends(path, ".index") ? n - k : n);
    manta_status st = bundle_write(prefix, c->n_arrays, c->arrays);

    mem_free(prefix);
    return st;
}

const model_format model_tf = {.name = "tf",
                               .about = "a TensorFlow checkpoint",
                               .ending = ".index",
                               .probe = probe_bundle,
                               .read = read_bundle,
                               .write = write_bundle};
