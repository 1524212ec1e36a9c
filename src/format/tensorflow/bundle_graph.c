/* bundle_graph.c - the tree of objects inside a TensorFlow checkpoint.
 *
 *   TrackableObjectGraph { 1: repeated node }                    node 0 is the root
 *   node { 1: child {1: node  2: local name}  2: attribute {1: name  2: full name  3: key}  5: has values {1: true} }
 *
 * A variable's key tells the shortest path to it when it was saved, which may
 * lead through an optimizer's lists; its full name is what Keras calls it. */
#include <string.h>

#include "base/mem.h"
#include "format/codec/proto.h"
#include "format/tensorflow/bundle.h"

void bundle_names_release(bundle_names *n)
{
    for (size_t i = 0; i < n->n; i++) mem_free(n->at[i].value);
    map_release(n);
}

/* Keeps key -> full name of one attribute. */
static bool read_attribute(proto_reader r, bundle_names *out)
{
    proto_field f, full = {0}, key = {0};
    proto_step s;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 2 && f.wire == PROTO_BYTES) full = f;
        if (f.number == 3 && f.wire == PROTO_BYTES) key = f;
    }
    if (s == PROTO_BAD) return false;
    if (!key.n || !full.n) return true;
    char *text = proto_take_text(&key);
    char **value = map_put(out, text);
    mem_free(*value);
    *value = proto_take_text(&full);
    mem_free(text);
    return true;
}

static bool read_node(proto_reader r, bundle_names *out)
{
    proto_field f;
    proto_step s;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 2 && f.wire == PROTO_BYTES && !read_attribute(proto_inside(&f), out)) return false;
    }
    return s == PROTO_END;
}

manta_status bundle_graph_read(const char *name, const uint8_t *data, size_t size, bundle_names *out)
{
    proto_reader r = proto_read(data, size);
    bundle_names names = {0};
    proto_field f;
    proto_step s;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number != 1 || f.wire != PROTO_BYTES) continue;
        if (read_node(proto_inside(&f), &names)) continue;
        s = PROTO_BAD;
        break;
    }
    if (s == PROTO_BAD) {
        bundle_names_release(&names);
        return manta_fail(MANTA_ECORRUPT, "%s: the object graph is damaged at offset %zu", name,
                          (size_t)(r.at - data));
    }
    *out = names;
    return MANTA_OK;
}

/* ---- keys ---------------------------------------------------------------------------- */

/* TensorFlow's escapes: a dot is two, because ".ATTRIBUTES" must not be met by chance. */
char *bundle_key(const char *name)
{
    buf b = {0};

    for (const char *p = name; *p; p++) {
        buf_add_char(&b, *p);
        if (*p == '.') buf_add_char(&b, '.');
    }
    buf_add_text(&b, BUNDLE_SUFFIX);
    return buf_take(&b);
}

char *bundle_name_of_key(const char *key)
{
    size_t n = strlen(key), k = strlen(BUNDLE_SUFFIX);
    buf b = {0};

    if (n <= k || strcmp(key + n - k, BUNDLE_SUFFIX)) return mem_strdup(key);
    for (size_t i = 0; i < n - k; i++) {
        bool escape = key[i] == '.' && (key[i + 1] == '.' || key[i + 1] == 'S');
        buf_add_char(&b, escape && key[i + 1] == 'S' ? '/' : key[i]);
        if (escape) i++;
    }
    return buf_take(&b);
}

/* ---- writing ------------------------------------------------------------------------- */

typedef struct node {
    char *path; /* owned; "" for the root */
    const char *variable; /* its name, or NULL */
    VEC(int) children;
} node;

typedef struct tree {
    VEC(node) nodes;
    MAP(int) index; /* path -> node */
} tree;

/* The node at the first n bytes of `path`, made with those above it where it is missing. */
static int node_at(tree *t, const char *path, size_t n)
{
    char *own = mem_strndup(path, n);
    int *found = map_find(&t->index, own);

    if (found) {
        mem_free(own);
        return *found;
    }
    int me = (int)t->nodes.n;
    *map_put(&t->index, own) = me;
    vec_push(&t->nodes, (node){.path = own});
    if (n) {
        const char *slash = memrchr(path, '/', n);
        int up = node_at(t, path, slash ? (size_t)(slash - path) : 0);
        vec_push(&t->nodes.at[up].children, me);
    }
    return me;
}

static const char *local_name(const node *n)
{
    const char *slash = strrchr(n->path, '/');

    return slash ? slash + 1 : n->path;
}

static void write_node(const tree *t, const node *n, buf *b)
{
    size_t m = proto_begin(b, 1), c;

    for (size_t i = 0; i < n->children.n; i++) {
        c = proto_begin(b, 1);
        proto_add_int(b, 1, n->children.at[i]);
        proto_add_text(b, 2, local_name(&t->nodes.at[n->children.at[i]]));
        proto_end(b, c);
    }
    if (n->variable) {
        char *key = bundle_key(n->variable);
        c = proto_begin(b, 2);
        proto_add_text(b, 1, "VARIABLE_VALUE");
        proto_add_text(b, 2, n->variable);
        proto_add_text(b, 3, key);
        proto_end(b, c);
        mem_free(key);
    }
    c = proto_begin(b, 5);
    proto_add_int(b, 1, 1);
    proto_end(b, c);
    proto_end(b, m);
}

void bundle_graph_write(int n, const char *const *names, buf *b)
{
    tree t = {0};

    node_at(&t, "", 0);
    /* Present and without a value: restore(), which looks for it, and read(),
     * which has none, are then both satisfied (assert_consumed). */
    node_at(&t, "save_counter", strlen("save_counter"));
    for (int i = 0; i < n; i++) {
        int at = node_at(&t, names[i], strlen(names[i]));
        t.nodes.at[at].variable = names[i];
    }
    for (size_t i = 0; i < t.nodes.n; i++) write_node(&t, &t.nodes.at[i], b);
    for (size_t i = 0; i < t.nodes.n; i++) {
        mem_free(t.nodes.at[i].path);
        vec_release(&t.nodes.at[i].children);
    }
    vec_release(&t.nodes);
    map_release(&t.index);
}
