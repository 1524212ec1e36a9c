/* h5_links.c - what a group of an HDF5 file holds.
 *
 * A group of the old form has a B-tree (version 1) of SNOD leaves, whose
 * entries name their objects through a local heap. One of the new form has a
 * message per link in its header, or, when they are many, a fractal heap of
 * links and a B-tree of where they lie. A group is listed once and kept. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/hdf5/h5_part.h"

/* Links being collected. */
typedef struct gather {
    h5_file *f;
    h5_links links;
    h5_names_heap names; /* of the old form */
    h5_heap heap; /* of the new form */
} gather;

static manta_status add_link(gather *g, const char *name, size_t n, uint64_t to)
{
    const uint8_t *at = (const uint8_t *)name;

    /* The shortest link takes more than eight bytes, whatever its form. */
    if (g->f->n_links++ >= g->f->size / 8 || n > g->f->size - g->f->name_bytes) {
        return h5_bad(g->f, at, "the groups have more links than the file can hold");
    }
    g->f->name_bytes += n;
    if (n == 0 || memchr(name, 0, n) || memchr(name, '/', n))
        return h5_bad(g->f, at, "the name of a link is empty, or has a slash or a NUL in it");
    vec_push(&g->links, (h5_link){.name = name, .n = n, .to = to});
    return MANTA_OK;
}

/* ---- the old form ---- */

static manta_status read_leaf(gather *g, uint64_t at)
{
    h5_file *f = g->f;
    const uint8_t *start;
    h5_in in;
    int n;

    TRY(h5_from(f, at, "a leaf of a group", &in));
    start = in.p;
    if (!h5_take_magic(&in, "SNOD")) return h5_bad(f, start, "expected a leaf of a group (SNOD)");
    if (h5_take_int(&in, 1) != 1) return h5_lacks(f, start, "a leaf of a group of another version than 1");
    h5_skip(&in, 1);
    n = h5_take_int(&in, 2);
    for (int i = 0; i < n; i++) {
        uint64_t name_at = h5_take_length(&in), to = h5_take_address(&in);
        int cached = (int)(h5_take(&in, 4) & 0xff);
        const char *name;
        size_t size;
        h5_skip(&in, 20);
        TRY(h5_whole(&in, "a leaf of a group"));
        TRY(h5_names_heap_find(f, &g->names, name_at, &name, &size));
        TRY(add_link(g, name, size, cached == 2 ? H5_NOWHERE : to)); /* 2: a soft link */
    }
    return MANTA_OK;
}

/* A node of the group's B-tree, `level` above the leaves; -1: whatever it says. */
static manta_status read_node(gather *g, uint64_t at, int level)
{
    h5_file *f = g->f;
    const uint8_t *start;
    int type, mine, n;
    h5_in in;

    TRY(h5_from(f, at, "a node of a group", &in));
    start = in.p;
    if (!h5_take_magic(&in, "TREE")) return h5_bad(f, start, "expected a node of a group (TREE)");
    type = h5_take_int(&in, 1);
    mine = h5_take_int(&in, 1);
    n = h5_take_int(&in, 2);
    if (type != 0 || (level >= 0 && mine != level)) {
        return h5_bad(f, start, "a node of a group has type %d and level %d, expected 0 and %d", type, mine,
                      level);
    }
    if (mine > 32 || f->n_nodes++ > f->size / 24)
        return h5_bad(f, start, "the nodes of a group go in circles");
    (void)h5_take_address(&in); /* its neighbours */
    (void)h5_take_address(&in);
    (void)h5_take_length(&in); /* the first key */
    for (int i = 0; i < n; i++) {
        uint64_t child = h5_take_address(&in);
        (void)h5_take_length(&in);
        TRY(h5_whole(&in, "a node of a group"));
        TRY(mine ? read_node(g, child, mine - 1) : read_leaf(g, child));
    }
    return MANTA_OK;
}

static manta_status read_symbols(gather *g, const h5_message *m)
{
    h5_in in = h5_bytes(g->f, m->data, m->size);
    uint64_t tree = h5_take_address(&in), heap = h5_take_address(&in);

    TRY(h5_whole(&in, "the place of a group's links"));
    TRY(h5_names_heap_open(g->f, heap, &g->names));
    return read_node(g, tree, -1);
}

/* ---- the new form ---- */

static manta_status read_link(gather *g, h5_in in)
{
    const uint8_t *start = in.p, *name;
    int version = h5_take_int(&in, 1), flags = h5_take_int(&in, 1), kind = 0;
    uint64_t n, to = H5_NOWHERE;

    if (version != 1) return h5_lacks(g->f, start, "a link of version %d, expected 1", version);
    if (flags & 8) kind = h5_take_int(&in, 1);
    if (flags & 4) h5_skip(&in, 8);
    if (flags & 16) h5_skip(&in, 1);
    n = h5_take(&in, (size_t)1 << (flags & 3));
    name = h5_skip(&in, n > in.n ? in.n + 1 : (size_t)n);
    if (kind == 0) to = h5_take_address(&in);
    TRY(h5_whole(&in, "a link"));
    return add_link(g, (const char *)name, (size_t)n, to);
}

static manta_status read_record(void *ctx, const uint8_t *record, size_t size)
{
    gather *g = ctx;
    h5_in link;

    (void)size;
    TRY(h5_heap_find(g->f, &g->heap, record + 4, 7, &link)); /* behind the hash of the name */
    return read_link(g, link);
}

static manta_status read_dense(gather *g, const h5_message *m)
{
    h5_file *f = g->f;
    h5_in in = h5_bytes(f, m->data, m->size);
    int version = h5_take_int(&in, 1), flags = h5_take_int(&in, 1);
    uint64_t heap, tree;

    if (flags & 1) h5_skip(&in, 8);
    heap = h5_take_address(&in);
    tree = h5_take_address(&in);
    TRY(h5_whole(&in, "the place of a group's links"));
    if (version != 0) return h5_lacks(f, m->data, "links of version %d, expected 0", version);
    if (heap == H5_NOWHERE || tree == H5_NOWHERE) return MANTA_OK;
    TRY(h5_heap_open(f, heap, &g->heap));
    return h5_tree_walk(f, tree, 5, 5, 11, read_record, g, NULL);
}

/* ---- */

static int compare_names(const char *a, size_t na, const char *b, size_t nb)
{
    int order = memcmp(a, b, na < nb ? na : nb);

    return order ? order : na < nb ? -1 : na > nb;
}

static int by_name(const void *x, const void *y)
{
    const h5_link *a = x, *b = y;

    return compare_names(a->name, a->n, b->name, b->n);
}

static manta_status gather_links(gather *g, const h5_messages *m, bool *is_group)
{
    const h5_message *old = h5_message_find(m, H5_SYMBOLS), *info = h5_message_find(m, H5_LINK_INFO);

    *is_group = old || info;
    if (old) return read_symbols(g, old);
    for (size_t i = 0; info && i < m->n; i++) {
        if (m->at[i].type == H5_LINK) TRY(read_link(g, h5_bytes(g->f, m->at[i].data, m->at[i].size)));
    }
    return info ? read_dense(g, info) : MANTA_OK;
}

manta_status h5_links_of(h5_file *f, uint64_t at, const h5_links **out)
{
    gather g = {.f = f};
    h5_messages messages = {0};
    bool is_group = false;
    manta_status st;

    if ((*out = map_u64_find(&f->groups, at))) return MANTA_OK;
    TRY(h5_object_read(f, at, &messages));
    st = gather_links(&g, &messages, &is_group);
    vec_release(&messages);
    if (st || !is_group) {
        vec_release(&g.links);
        return st;
    }
    if (g.links.n > 1) qsort(g.links.at, g.links.n, sizeof *g.links.at, by_name);
    *map_u64_put(&f->groups, at) = g.links;
    *out = map_u64_find(&f->groups, at);
    return MANTA_OK;
}

const h5_link *h5_links_find(const h5_links *links, const char *name, size_t n)
{
    size_t lo = 0, hi = links->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = compare_names(name, n, links->at[mid].name, links->at[mid].n);
        if (order == 0) return &links->at[mid];
        if (order < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return NULL;
}
