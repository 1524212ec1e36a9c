/* h5_out.c - HDF5 files, written as a stream.
 *
 *   superblock (version 0)
 *   the texts of attributes, in collections (GCOL)
 *   for every group:    object header, local heap with the names, SNOD leaves,
 *                       B-tree nodes above them
 *   for every dataset:  object header (shape, type, fill, place)
 *   the elements of the datasets, each on a 64-byte boundary
 *
 * This is the oldest form, which every HDF5 reads, and what Keras writes. All
 * numbers are little-endian, all addresses count from the first byte. Nothing
 * in it depends on time or chance: the same tree gives the same bytes. */
#include "format/hdf5/h5_out.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "os/file.h"

enum {
    COLLECTION = 4096, /* a collection of texts has at least so many bytes */
    COLLECTED = 32768, /* and at most so many texts */
    LEAF = 4, /* a SNOD has room for 2 * LEAF entries */
    INTERNAL = 16, /* a B-tree node for 2 * INTERNAL children */
    SNOD_SIZE = 8 + 2 * LEAF * 40,
    TREE_SIZE = 24 + (2 * INTERNAL + 1) * 8 + 2 * INTERNAL * 8,
    SUPERBLOCK = 96,
    ALIGN = 64,
};

#define UNDEFINED UINT64_MAX

/* A list of texts, or one of them. */
typedef struct h5_out_attribute {
    char *name;
    bool is_list;
    size_t first; /* number of its first text in the file */
    VEC(char *) texts;
} h5_out_attribute;

struct h5_node {
    char *name; /* within its group */
    bool is_dataset;
    manta_array array;
    VEC(int) children; /* of a group; sorted by h5_out_layout() */
    VEC(h5_out_attribute) attributes; /* of a group */
    uint64_t header; /* address of the object header */
    uint64_t tree, heap; /* of a group */
    uint64_t data; /* of a dataset */
};

static int add_node(h5_out *o, const char *path, bool is_dataset)
{
    h5_node *n = mem_new(sizeof *n);
    const char *slash = strrchr(path, '/');

    n->name = mem_strdup(slash ? slash + 1 : path);
    n->is_dataset = is_dataset;
    vec_push(&o->nodes, n);
    *map_put(&o->paths, path) = (int)o->nodes.n - 1;
    return (int)o->nodes.n - 1;
}

/* The node of the group at path[0..n), made with all above it where missing. */
static int group_at(h5_out *o, const char *path, size_t n)
{
    char *key;
    const int *found;
    size_t up = n;
    int parent, node;

    if (!o->nodes.n) (void)add_node(o, "", false);
    if (n == 0) return 0;
    key = mem_strndup(path, n);
    found = map_find(&o->paths, key);
    if (found) {
        node = *found;
    } else {
        while (up > 0 && path[up - 1] != '/') up--;
        parent = group_at(o, path, up ? up - 1 : 0);
        node = add_node(o, key, false);
        vec_push(&o->nodes.at[parent]->children, node);
    }
    mem_free(key);
    return node;
}

void h5_out_group(h5_out *o, const char *path)
{
    (void)group_at(o, path, strlen(path));
}

bool h5_out_takes(h5_out *o, const char *path)
{
    bool ok = !map_find(&o->paths, path);

    for (const char *slash = strchr(path, '/'); slash && ok; slash = strchr(slash + 1, '/')) {
        char *above = mem_strndup(path, (size_t)(slash - path));
        const int *node = map_find(&o->paths, above);
        ok = !node || !o->nodes.at[*node]->is_dataset;
        mem_free(above);
    }
    return ok;
}

void h5_out_dataset(h5_out *o, const char *path, const manta_array *a)
{
    const char *slash = strrchr(path, '/');
    int parent = group_at(o, path, slash ? (size_t)(slash - path) : 0), node;

    assert(a->dtype == MANTA_DTYPE_F32 || a->dtype == MANTA_DTYPE_I64);
    assert(manta_array_is_contiguous(a));
    assert(!map_find(&o->paths, path));
    node = add_node(o, path, true);
    o->nodes.at[node]->array = *a;
    vec_push(&o->nodes.at[parent]->children, node);
}

static void add_attribute(h5_out *o, const char *path, const char *name, bool is_list, size_t n,
                          char *const *texts)
{
    int node = group_at(o, path, strlen(path)); /* which may move o->nodes.at */
    h5_node *g = o->nodes.at[node];
    h5_out_attribute a = {.name = mem_strdup(name), .is_list = is_list};

    assert(!g->is_dataset && n <= H5_OUT_TEXTS);
    for (size_t i = 0; i < n; i++) vec_push(&a.texts, mem_strdup(texts[i]));
    vec_push(&g->attributes, a);
}

void h5_out_text(h5_out *o, const char *path, const char *name, const char *text)
{
    char *copy = mem_strdup(text);

    add_attribute(o, path, name, false, 1, &copy);
    mem_free(copy);
}

void h5_out_texts(h5_out *o, const char *path, const char *name, size_t n, char *const *texts)
{
    add_attribute(o, path, name, true, n, texts);
}

static void attribute_release(h5_out_attribute *a)
{
    for (size_t i = 0; i < a->texts.n; i++) mem_free(a->texts.at[i]);
    vec_release(&a->texts);
    mem_free(a->name);
}

static manta_status to_file(void *ctx, const void *data, size_t n)
{
    return file_writer_write(ctx, data, n);
}

manta_status h5_out_save(const h5_out *o, const char *path)
{
    file_writer *w = NULL;
    manta_status st;

    if ((st = file_writer_open(path, &w))) goto out;
    if ((st = file_writer_reserve(w, o->size))) goto out;
    if ((st = h5_out_emit(o, to_file, w))) goto out;
    st = file_writer_commit(w);
out:
    file_writer_free(w);
    return st;
}

void h5_out_release(h5_out *o)
{
    for (size_t i = 0; i < o->nodes.n; i++) {
        h5_node *n = o->nodes.at[i];
        for (size_t k = 0; k < n->attributes.n; k++) attribute_release(&n->attributes.at[k]);
        vec_release(&n->attributes);
        mem_free(o->nodes.at[i]->name);
        vec_release(&o->nodes.at[i]->children);
        mem_free(o->nodes.at[i]);
    }
    vec_release(&o->nodes);
    vec_release(&o->collections);
    map_release(&o->paths);
    buf_release(&o->head);
    *o = (h5_out){0};
}

/* ---- bytes ---- */

static void put_le(buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) buf_add_char(b, (char)(v >> 8 * i));
}

static void pad_to(buf *b, size_t n)
{
    while (b->n < n) buf_add_char(b, 0);
}

static void align_to_8(buf *b)
{
    pad_to(b, (b->n + 7) & ~(size_t)7);
}

/* A message of an object header; its data follow and fill `size` bytes, a multiple of 8. */
static void put_message(buf *b, int type, size_t size)
{
    put_le(b, (uint64_t)type, 2);
    put_le(b, size, 2);
    put_le(b, 0, 4); /* flags, reserved */
}

static void put_header(buf *b, int messages, size_t size)
{
    put_le(b, 1, 1); /* version */
    put_le(b, 0, 1);
    put_le(b, (uint64_t)messages, 2);
    put_le(b, 1, 4); /* links to this object */
    put_le(b, size, 4);
    put_le(b, 0, 4);
}

/* ---- datasets ---- */

/* Shape, type, fill value and place. */
static void put_dataset(buf *b, h5_node *n)
{
    const manta_array *a = &n->array;
    bool is_float = a->dtype == MANTA_DTYPE_F32;
    size_t space = 8 + 8 * (size_t)a->ndim, type = is_float ? 24 : 16;

    n->header = b->n;
    put_header(b, 4, 8 + space + 8 + type + 8 + 8 + 8 + 24);
    put_message(b, 0x0001, space);
    put_le(b, 1, 1);
    put_le(b, (uint64_t)a->ndim, 1);
    put_le(b, 0, 6);
    for (int i = 0; i < a->ndim; i++) put_le(b, (uint64_t)a->shape[i], 8);
    put_message(b, 0x0003, type);
    if (is_float) {
        put_le(b, 0x11, 1); /* version 1, floating point */
        put_le(b, 0x1f20, 3); /* little-endian, implied leading bit, sign at 31 */
        put_le(b, 4, 4);
        put_le(b, (uint64_t)32 << 16, 4); /* bits from 0, 32 of them */
        put_le(b, 23 | 8 << 8 | 0 << 16 | 23 << 24, 4); /* exponent at 23 of 8, mantissa at 0 of 23 */
        put_le(b, 127, 4);
        put_le(b, 0, 4);
    } else {
        put_le(b, 0x10, 1); /* version 1, integer */
        put_le(b, 0x08, 3); /* little-endian, signed */
        put_le(b, 8, 4);
        put_le(b, (uint64_t)64 << 16, 4);
        put_le(b, 0, 4);
    }
    put_message(b, 0x0005, 8);
    put_le(b, 2, 1);
    put_le(b, 2, 1); /* space is allocated late */
    put_le(b, 2, 1); /* filled when a value is set */
    put_le(b, 1, 1); /* which is the default one */
    put_le(b, 0, 4);
    put_message(b, 0x0008, 24);
    put_le(b, 3, 1);
    put_le(b, 1, 1); /* contiguous */
    put_le(b, n->data, 8);
    put_le(b, n->data == UNDEFINED ? 0 : manta_array_bytes(a), 8);
    put_le(b, 0, 6);
}

/* ---- attributes ---- */

/* Fills a collection up to its smallest size, and says at its front how large it became. */
static void end_collection(buf *b, size_t begin)
{
    size_t used = b->n - begin, size = used + 16 > COLLECTION ? used : COLLECTION;

    if (size > used) {
        put_le(b, 0, 8); /* number 0: what is free */
        put_le(b, size - used, 8);
        pad_to(b, begin + size);
    }
    for (int i = 0; i < 8; i++) b->at[begin + 8 + (size_t)i] = (char)((uint64_t)size >> 8 * i);
}

/* Text k of the file; *begin is where its collection does. */
static void put_text(buf *b, h5_out *o, size_t *begin, size_t k, const char *text)
{
    if (k % COLLECTED == 0) {
        if (k) end_collection(b, *begin);
        *begin = b->n;
        vec_push(&o->collections, (uint64_t)b->n);
        buf_add(b, "GCOL", 4);
        put_le(b, 1, 4); /* version */
        put_le(b, 0, 8); /* its size, to come */
    }
    put_le(b, k % COLLECTED + 1, 2);
    put_le(b, 0, 6);
    put_le(b, strlen(text), 8);
    buf_add_text(b, text);
    align_to_8(b);
}

/* The texts of all attributes, numbered from 1 in each collection. */
static void put_texts(buf *b, h5_out *o)
{
    size_t k = 0, begin = 0;

    vec_clear(&o->collections);
    for (size_t i = 0; i < o->nodes.n; i++) {
        const h5_node *n = o->nodes.at[i];
        for (size_t j = 0; j < n->attributes.n; j++) {
            h5_out_attribute *a = &n->attributes.at[j];
            a->first = k;
            for (size_t t = 0; t < a->texts.n; t++) put_text(b, o, &begin, k++, a->texts.at[t]);
        }
    }
    if (k) end_collection(b, begin);
}

static size_t attribute_size(const h5_out_attribute *a)
{
    size_t name = (strlen(a->name) + 1 + 7) & ~(size_t)7;

    return 8 + name + 24 + (a->is_list ? 16 : 8) + 16 * a->texts.n;
}

static void put_attribute_type(buf *b, bool is_text)
{
    if (is_text) {
        put_le(b, 0x19, 1); /* version 1, of variable length */
        put_le(b, 0x101, 3); /* a text, in UTF-8 */
        put_le(b, 16, 4);
        put_le(b, 0x10, 4); /* of integers */
        put_le(b, 1, 4); /* of one byte */
        put_le(b, (uint64_t)8 << 16, 4);
        put_le(b, 0, 4);
    } else {
        put_le(b, 0x11, 1); /* version 1, floating point */
        put_le(b, 0x3f20, 3);
        put_le(b, 8, 4);
        put_le(b, (uint64_t)64 << 16, 4);
        put_le(b, 52 | 11 << 8 | 0 << 16 | 52 << 24, 4);
        put_le(b, 1023, 4);
        put_le(b, 0, 4);
    }
}

static void put_attribute(buf *b, const h5_out *o, const h5_out_attribute *a)
{
    put_message(b, 0x000c, attribute_size(a));
    put_le(b, 1, 2); /* version */
    put_le(b, strlen(a->name) + 1, 2);
    put_le(b, a->texts.n ? 20 : 24, 2); /* bytes of the type */
    put_le(b, a->is_list ? 16 : 8, 2); /* and of the shape */
    buf_add_text(b, a->name);
    buf_add_char(b, 0);
    align_to_8(b);
    put_attribute_type(b, a->texts.n > 0);
    put_le(b, 1, 1);
    put_le(b, a->is_list, 1); /* dimensions */
    put_le(b, 0, 6);
    if (a->is_list) put_le(b, a->texts.n, 8);
    for (size_t i = 0; i < a->texts.n; i++) {
        size_t k = a->first + i, n = strlen(a->texts.at[i]);
        put_le(b, n, 4);
        put_le(b, n ? o->collections.at[k / COLLECTED] : 0, 8);
        put_le(b, n ? k % COLLECTED + 1 : 0, 4);
    }
}

/* ---- groups ---- */

static void put_symbol(buf *b, uint64_t name, const h5_node *n)
{
    put_le(b, name, 8);
    put_le(b, n->header, 8);
    put_le(b, n->is_dataset ? 0 : 1, 4);
    put_le(b, 0, 4);
    put_le(b, n->is_dataset ? 0 : n->tree, 8);
    put_le(b, n->is_dataset ? 0 : n->heap, 8);
}

/* A child of a B-tree node, and the name of its last entry. */
typedef struct h5_branch {
    uint64_t at, last;
} h5_branch;

typedef VEC(h5_branch) h5_branches;

/* One level of B-tree nodes over `below`, which becomes this level. */
static void put_level(buf *b, h5_branches *below, int level)
{
    h5_branches here = {0};
    size_t n = below->n, nodes = n ? (n + 2 * INTERNAL - 1) / (2 * INTERNAL) : 1;
    uint64_t first = b->n, last = 0;

    for (size_t k = 0; k < nodes; k++) {
        size_t from = k * 2 * INTERNAL, to = from + 2 * INTERNAL < n ? from + 2 * INTERNAL : n;
        uint64_t at = b->n;
        buf_add(b, "TREE", 4);
        put_le(b, 0, 1); /* of a group */
        put_le(b, (uint64_t)level, 1);
        put_le(b, to - from, 2);
        put_le(b, k ? first + (k - 1) * TREE_SIZE : UNDEFINED, 8);
        put_le(b, k + 1 < nodes ? first + (k + 1) * TREE_SIZE : UNDEFINED, 8);
        put_le(b, last, 8); /* all names of a child lie behind the key before it, up to the one after it */
        for (size_t i = from; i < to; i++) {
            put_le(b, below->at[i].at, 8);
            put_le(b, last = below->at[i].last, 8);
        }
        pad_to(b, (size_t)at + TREE_SIZE);
        vec_push(&here, (h5_branch){at, last});
    }
    vec_release(below);
    *below = here;
}

/* A group behind everything in it, so that all addresses it names are known. */
static void put_group(buf *b, h5_out *o, h5_node *g)
{
    size_t n = g->children.n, names = 8, size = 24;
    uint64_t *name = mem_new((n + 1) * sizeof *name), segment;
    h5_branches level = {0};

    for (size_t i = 0; i < n; i++) {
        name[i] = names;
        names = (names + strlen(o->nodes.at[g->children.at[i]]->name) + 1 + 7) & ~(size_t)7;
    }
    g->heap = b->n;
    segment = g->heap + 32;
    buf_add(b, "HEAP", 4);
    put_le(b, 0, 4);
    put_le(b, names, 8);
    put_le(b, 1, 8); /* nothing free in it */
    put_le(b, segment, 8);
    for (size_t i = 0; i < n; i++) {
        pad_to(b, (size_t)(segment + name[i]));
        buf_add_text(b, o->nodes.at[g->children.at[i]]->name);
        buf_add_char(b, 0);
    }
    pad_to(b, (size_t)segment + names);
    for (size_t i = 0; i < n; i += 2 * LEAF) {
        size_t to = i + 2 * LEAF < n ? i + 2 * LEAF : n;
        uint64_t at = b->n;
        buf_add(b, "SNOD", 4);
        put_le(b, 1, 2);
        put_le(b, to - i, 2);
        for (size_t k = i; k < to; k++) put_symbol(b, name[k], o->nodes.at[g->children.at[k]]);
        pad_to(b, (size_t)at + SNOD_SIZE);
        vec_push(&level, (h5_branch){at, name[to - 1]});
    }
    put_level(b, &level, 0);
    for (int depth = 1; level.n > 1; depth++) put_level(b, &level, depth);
    g->tree = level.at[0].at;
    vec_release(&level);
    mem_free(name);

    for (size_t i = 0; i < g->attributes.n; i++) size += 8 + attribute_size(&g->attributes.at[i]);
    g->header = b->n;
    put_header(b, 1 + (int)g->attributes.n, size);
    put_message(b, 0x0011, 16);
    put_le(b, g->tree, 8);
    put_le(b, g->heap, 8);
    for (size_t i = 0; i < g->attributes.n; i++) put_attribute(b, o, &g->attributes.at[i]);
}

static int by_name(const void *x, const void *y, void *ctx)
{
    const h5_out *o = ctx;

    return strcmp(o->nodes.at[*(const int *)x]->name, o->nodes.at[*(const int *)y]->name);
}

static void put_tree(buf *b, h5_out *o, h5_node *n)
{
    if (n->is_dataset) {
        put_dataset(b, n);
        return;
    }
    for (size_t i = 0; i < n->children.n; i++) put_tree(b, o, o->nodes.at[n->children.at[i]]);
    put_group(b, o, n);
}

static void put_superblock(buf *b, const h5_node *root, uint64_t size)
{
    buf_add(b, "\211HDF\r\n\032\n", 8);
    put_le(b, 0, 5); /* versions of superblock, free space, root entry; reserved; shared messages */
    put_le(b, 8, 1); /* bytes of an address */
    put_le(b, 8, 1); /* and of a length */
    put_le(b, 0, 1);
    put_le(b, LEAF, 2);
    put_le(b, INTERNAL, 2);
    put_le(b, 0, 4);
    put_le(b, 0, 8); /* base address */
    put_le(b, UNDEFINED, 8); /* free space */
    put_le(b, size, 8);
    put_le(b, UNDEFINED, 8); /* driver */
    put_symbol(b, 0, root);
    align_to_8(b);
}

/* Writes the head with the datasets' places as they are now known; they do not change its size. */
static void put_head(h5_out *o)
{
    buf body = {0};

    buf_release(&o->head);
    pad_to(&body, SUPERBLOCK);
    put_texts(&body, o);
    put_tree(&body, o, o->nodes.at[0]);
    put_superblock(&o->head, o->nodes.at[0], o->size);
    assert(o->head.n == SUPERBLOCK);
    buf_add(&o->head, body.at + SUPERBLOCK, body.n - SUPERBLOCK);
    buf_release(&body);
}

void h5_out_layout(h5_out *o)
{
    uint64_t at;

    h5_out_group(o, "");
    for (size_t i = 0; i < o->nodes.n; i++) {
        h5_node *n = o->nodes.at[i];
        if (n->children.n > 1) {
            qsort_r(n->children.at, n->children.n, sizeof *n->children.at, by_name, o);
        }
    }
    put_head(o);
    at = o->head.n;
    for (size_t i = 0; i < o->nodes.n; i++) {
        h5_node *n = o->nodes.at[i];
        size_t size = n->is_dataset ? manta_array_bytes(&n->array) : 0;
        n->data = UNDEFINED; /* also of an empty dataset */
        if (!size) continue;
        n->data = (at + ALIGN - 1) / ALIGN * ALIGN;
        at = n->data + size;
    }
    o->size = at;
    put_head(o);
}

manta_status h5_out_emit(const h5_out *o, h5_sink sink, void *ctx)
{
    static const char zeros[ALIGN];
    uint64_t at = o->head.n;

    TRY(sink(ctx, o->head.at, o->head.n));
    for (size_t i = 0; i < o->nodes.n; i++) {
        const h5_node *n = o->nodes.at[i];
        size_t size;
        if (!n->is_dataset || n->data == UNDEFINED) continue;
        if (n->data > at) TRY(sink(ctx, zeros, (size_t)(n->data - at)));
        size = manta_array_bytes(&n->array);
        TRY(sink(ctx, n->array.data, size));
        at = n->data + size;
    }
    return MANTA_OK;
}
