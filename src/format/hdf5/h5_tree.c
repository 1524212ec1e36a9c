/* h5_tree.c - B-trees of version 2, walked in order.
 *
 * A leaf is a list of records of one size. A node above has records and one
 * child more than that; with each child goes how many records it has, in as few
 * bytes as its level can need. */
#include "format/hdf5/h5_part.h"

enum { MAX_DEPTH = 32, HEAD = 6, TAIL = 4 };

typedef struct level {
    uint64_t most; /* records in a node */
    uint64_t most_below; /* in it and all below it */
    size_t count_size; /* bytes of that number; 0 for leaves */
} level;

typedef struct tree {
    const h5_file *f;
    int type;
    size_t node_size, record_size;
    size_t node_count_size;
    level levels[MAX_DEPTH + 1];
    h5_record_fn fn;
    void *ctx;
    uint64_t left; /* records that may still be */
} tree;

static void size_levels(tree *t, int depth)
{
    level *l = t->levels;

    l[0].most = l[0].most_below = (t->node_size - HEAD - TAIL) / t->record_size;
    t->node_count_size = h5_bytes_for(l[0].most);
    for (int i = 1; i <= depth; i++) {
        uint64_t pointer = (uint64_t)t->f->address_size + t->node_count_size + l[i - 1].count_size;
        uint64_t room = t->node_size > HEAD + TAIL + pointer ? t->node_size - HEAD - TAIL - pointer : 0;
        l[i].most = room / (t->record_size + pointer);
        if (l[i - 1].most_below > UINT64_MAX / (l[i].most + 2)) {
            l[i].most_below = UINT64_MAX;
        } else {
            l[i].most_below = (l[i].most + 1) * l[i - 1].most_below + l[i].most;
        }
        l[i].count_size = h5_bytes_for(l[i].most_below);
    }
}

static manta_status walk_node(tree *t, uint64_t at, uint64_t n, int depth);

static manta_status walk_records(tree *t, const uint8_t *start, h5_in *in, uint64_t n)
{
    if (n > t->left) return h5_bad(t->f, start, "a B-tree has more records than it says");
    t->left -= n;
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *record = h5_skip(in, t->record_size);
        if (!record) return h5_bad(t->f, start, "a node of a B-tree is cut short");
        TRY(t->fn(t->ctx, record, t->record_size));
    }
    return MANTA_OK;
}

/* The children of a node, whose `in` stands behind its records. */
static manta_status walk_children(tree *t, h5_in *in, uint64_t n, int depth)
{
    for (uint64_t i = 0; i <= n; i++) {
        uint64_t child = h5_take_address(in), records = h5_take(in, t->node_count_size);
        if (depth > 1) (void)h5_take(in, t->levels[depth - 1].count_size);
        TRY(h5_whole(in, "a node of a B-tree"));
        TRY(walk_node(t, child, records, depth - 1));
    }
    return MANTA_OK;
}

static manta_status walk_node(tree *t, uint64_t at, uint64_t n, int depth)
{
    const h5_file *f = t->f;
    uint64_t used = n * t->record_size, pointer;
    h5_in in, node;

    TRY(h5_at(f, at, t->node_size, "a node of a B-tree", &node));
    in = node;
    if (!h5_take_magic(&in, depth ? "BTIN" : "BTLF")) {
        return h5_bad(f, node.p, "expected a node of a B-tree (%s)", depth ? "BTIN" : "BTLF");
    }
    if (h5_take_int(&in, 1) != 0 || h5_take_int(&in, 1) != t->type) {
        return h5_bad(f, node.p, "a node of a B-tree is of another type than its tree");
    }
    if (n > t->levels[depth].most || (depth && n == 0)) {
        return h5_bad(f, node.p, "a node of a B-tree has %llu records, expected at most %llu",
                      (unsigned long long)n, (unsigned long long)t->levels[depth].most);
    }
    if (depth) {
        pointer = (uint64_t)f->address_size + t->node_count_size + t->levels[depth - 1].count_size;
        used += (n + 1) * pointer;
    }
    TRY(h5_check_sum(f, node.p, (size_t)used + HEAD + TAIL, "a node of a B-tree"));
    TRY(walk_records(t, node.p, &in, n));
    return depth ? walk_children(t, &in, n, depth) : MANTA_OK;
}

manta_status h5_tree_walk(const h5_file *f, uint64_t at, int a, int b, size_t smallest, h5_record_fn fn,
                          void *ctx, int *type)
{
    tree t = {.f = f, .fn = fn, .ctx = ctx};
    uint64_t root, records;
    const uint8_t *start;
    int depth;
    h5_in in;

    TRY(h5_from(f, at, "a B-tree", &in));
    start = in.p;
    if (!h5_take_magic(&in, "BTHD")) return h5_bad(f, start, "expected a B-tree (BTHD)");
    if (h5_take_int(&in, 1) != 0) return h5_lacks(f, start, "a B-tree of another version than 0");
    t.type = h5_take_int(&in, 1);
    t.node_size = (size_t)h5_take(&in, 4);
    t.record_size = (size_t)h5_take(&in, 2);
    depth = h5_take_int(&in, 2);
    h5_skip(&in, 2); /* when to split and to merge */
    root = h5_take_address(&in);
    records = h5_take(&in, 2);
    t.left = h5_take_length(&in);
    h5_skip(&in, 4);
    TRY(h5_whole(&in, "a B-tree"));
    TRY(h5_check_sum(f, start, (size_t)(in.p - start), "a B-tree"));
    if (t.type != a && t.type != b) return h5_bad(f, start, "a B-tree has type %d, expected %d", t.type, a);
    if (type) *type = t.type;
    if (t.left == 0 || root == H5_NOWHERE) return MANTA_OK;
    if (depth > MAX_DEPTH || t.node_size > f->size || t.record_size < smallest ||
        t.node_size < HEAD + TAIL + t.record_size || t.left > f->size / t.record_size) {
        return h5_bad(f, start, "a B-tree has impossible sizes");
    }
    size_levels(&t, depth);
    return walk_node(&t, root, records, depth);
}
