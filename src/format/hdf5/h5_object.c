/* h5_object.c - object headers of HDF5 files: the messages that describe a
 * group, a dataset or a type; and attributes, which are messages too.
 *
 * A header of version 1 is a list of messages on 8-byte boundaries; one of
 * version 2 is packed and has a checksum. Either goes on in further blocks
 * that a message of type 0x10 points to. */
#include <string.h>

#include "format/hdf5/h5_part.h"

enum { NIL = 0, CONTINUES = 0x10, MAX_MESSAGES = 1 << 16, MAX_BLOCKS = 1 << 12 };

/* Blocks of a header still to be read. */
typedef struct blocks {
    VEC(h5_in) at;
    uint64_t bytes; /* of all of them so far */
} blocks;

static bool is_known(int type)
{
    switch (type) {
    case H5_SPACE:
    case H5_LINK_INFO:
    case H5_TYPE:
    case H5_FILL:
    case H5_LINK:
    case H5_EXTERNAL:
    case H5_LAYOUT:
    case H5_FILTERS:
    case H5_ATTRIBUTE:
    case H5_SYMBOLS:
    case H5_ATTRIBUTE_INFO: return true;
    default: return false;
    }
}

static manta_status add_block(const h5_file *f, blocks *b, h5_in in)
{
    uint64_t at = h5_take_address(&in), n = h5_take_length(&in);
    h5_in block;

    TRY(h5_whole(&in, "the continuation of an object header"));
    TRY(h5_at(f, at, n, "the continuation of an object header", &block));
    b->bytes += n;
    if (b->bytes > f->size || b->at.n >= MAX_BLOCKS) {
        return h5_bad(f, block.p, "an object header goes on in circles");
    }
    vec_push(&b->at, block);
    return MANTA_OK;
}

static manta_status add_message(const h5_file *f, int type, int flags, h5_in data, blocks *b,
                                h5_messages *out)
{
    if (type == CONTINUES) return add_block(f, b, data);
    if (!is_known(type)) {
        if (flags & 0x80) {
            return h5_lacks(f, data.p, "an object with a message of type %d, which must be understood", type);
        }
        return MANTA_OK;
    }
    if (out->n >= MAX_MESSAGES) return h5_bad(f, data.p, "an object header has too many messages");
    vec_push(out, (h5_message){.type = type, .shared = (flags & 2) != 0, .data = data.p, .size = data.n});
    return MANTA_OK;
}

/* ---- version 1 ---- */

static manta_status messages_1(const h5_file *f, h5_in in, blocks *b, h5_messages *out)
{
    while (in.n >= 8) {
        int type = h5_take_int(&in, 2);
        size_t size = (size_t)h5_take(&in, 2);
        int flags = h5_take_int(&in, 1);
        const uint8_t *data;
        h5_skip(&in, 3);
        data = h5_skip(&in, size);
        if (!data)
            return h5_bad(f, in.p, "a message has %zu bytes in an object header that has %zu left", size,
                          in.n);
        TRY(add_message(f, type, flags, h5_bytes(f, data, size), b, out));
    }
    return MANTA_OK;
}

static manta_status read_1(const h5_file *f, h5_in in, blocks *b, h5_messages *out)
{
    uint64_t size;
    const uint8_t *start = in.p;

    h5_skip(&in, 8); /* version, number of messages, links to this object */
    size = h5_take(&in, 4);
    h5_skip(&in, 4);
    if (in.over || size > in.n) return h5_bad(f, start, "an object header is cut short");
    TRY(messages_1(f, h5_bytes(f, in.p, (size_t)size), b, out));
    for (size_t i = 0; i < b->at.n; i++) TRY(messages_1(f, b->at.at[i], b, out));
    return MANTA_OK;
}

/* ---- version 2 ---- */

static manta_status messages_2(const h5_file *f, h5_in in, int flags, blocks *b, h5_messages *out)
{
    size_t head = flags & 4 ? 6 : 4;

    while (in.n >= head) {
        int type = h5_take_int(&in, 1);
        size_t size = (size_t)h5_take(&in, 2);
        int of_message = h5_take_int(&in, 1);
        const uint8_t *data;
        h5_skip(&in, head - 4);
        data = h5_skip(&in, size);
        if (!data)
            return h5_bad(f, in.p, "a message has %zu bytes in an object header that has %zu left", size,
                          in.n);
        TRY(add_message(f, type, of_message, h5_bytes(f, data, size), b, out));
    }
    return MANTA_OK;
}

static manta_status read_2(const h5_file *f, h5_in in, blocks *b, h5_messages *out)
{
    const uint8_t *start = in.p;
    int version, flags;
    uint64_t size;

    h5_skip(&in, 4);
    version = h5_take_int(&in, 1);
    flags = h5_take_int(&in, 1);
    if (flags & 0x20) h5_skip(&in, 16); /* times */
    if (flags & 0x10) h5_skip(&in, 4); /* when attributes move out */
    size = h5_take(&in, (size_t)1 << (flags & 3));
    if (in.over || in.n < 4 || size > in.n - 4) return h5_bad(f, start, "an object header is cut short");
    if (version != 2) return h5_lacks(f, start, "an object header of version %d, expected 2", version);
    TRY(h5_check_sum(f, start, (size_t)(in.p - start) + (size_t)size + 4, "an object header"));
    TRY(messages_2(f, h5_bytes(f, in.p, (size_t)size), flags, b, out));
    for (size_t i = 0; i < b->at.n; i++) {
        h5_in more = b->at.at[i];
        if (more.n < 8 || !h5_take_magic(&more, "OCHK")) {
            return h5_bad(f, b->at.at[i].p, "expected the continuation of an object header");
        }
        TRY(h5_check_sum(f, b->at.at[i].p, b->at.at[i].n, "the continuation of an object header"));
        more.n -= 4;
        TRY(messages_2(f, more, flags, b, out));
    }
    return MANTA_OK;
}

manta_status h5_object_read(const h5_file *f, uint64_t at, h5_messages *out)
{
    blocks b = {0};
    h5_in in;
    manta_status st;

    TRY(h5_from(f, at, "an object header", &in));
    if (in.n >= 4 && !memcmp(in.p, "OHDR", 4)) {
        st = read_2(f, in, &b, out);
    } else if (in.p[0] == 1) {
        st = read_1(f, in, &b, out);
    } else {
        st = h5_bad(f, in.p, "expected an object header");
    }
    vec_release(&b.at);
    if (st) vec_release(out);
    return st;
}

const h5_message *h5_message_find(const h5_messages *m, int type)
{
    for (size_t i = 0; i < m->n; i++) {
        if (m->at[i].type == type) return &m->at[i];
    }
    return NULL;
}

/* ---- types that lie elsewhere ---- */

manta_status h5_type_of(const h5_file *f, h5_in in, bool shared, h5_type *out)
{
    const uint8_t *start = in.p;
    h5_messages there = {0};
    const h5_message *m;
    int version, kind;
    uint64_t at;
    manta_status st;

    if (!shared) return h5_type_parse(f, in, out);
    version = h5_take_int(&in, 1);
    kind = h5_take_int(&in, 1);
    if (version == 1) h5_skip(&in, 6);
    at = h5_take_address(&in);
    TRY(h5_whole(&in, "a shared type"));
    if (version < 1 || version > 3 || (version == 3 && kind != 2)) {
        return h5_lacks(f, start, "a type in the heap of shared messages (version %d, kind %d)", version,
                        kind);
    }
    TRY(h5_object_read(f, at, &there));
    m = h5_message_find(&there, H5_TYPE);
    if (!m || m->shared) {
        st = h5_bad(f, start, "a shared type leads to no type");
    } else {
        st = h5_type_parse(f, h5_bytes(f, m->data, m->size), out);
    }
    vec_release(&there);
    return st;
}

/* ---- attributes ---- */

static h5_in part_of_input(h5_in *in, size_t n, bool padded)
{
    const uint8_t *p = h5_skip(in, n);
    h5_in out = h5_bytes(in->f, p ? p : in->p, p ? n : 0);

    if (padded) h5_skip(in, (8 - n % 8) % 8);
    return out;
}

/* One attribute's message; *is says whether it has the name. */
static manta_status parse_attribute(h5_in in, const char *name, bool *is, h5_attribute *out)
{
    const h5_file *f = in.f;
    const uint8_t *start = in.p;
    int version = h5_take_int(&in, 1), flags = h5_take_int(&in, 1);
    size_t name_size = (size_t)h5_take(&in, 2), type_size = (size_t)h5_take(&in, 2),
           space_size = (size_t)h5_take(&in, 2);
    h5_in text;

    *is = false;
    TRY(h5_whole(&in, "an attribute"));
    if (version < 1 || version > 3) {
        return h5_lacks(f, start, "an attribute of version %d, expected 1, 2 or 3", version);
    }
    if (version == 3) h5_skip(&in, 1); /* in which letters the name is */
    text = part_of_input(&in, name_size, version == 1);
    out->type = part_of_input(&in, type_size, version == 1);
    out->space = part_of_input(&in, space_size, version == 1);
    TRY(h5_whole(&in, "an attribute"));
    if (!(text.n > 0 && text.p[text.n - 1] == 0))
        return h5_bad(f, text.p, "the name of an attribute has no end");
    *is = strlen(name) == strlen((const char *)text.p) && !strcmp(name, (const char *)text.p);
    if (*is && version > 1 && flags & 2) return h5_lacks(f, start, "an attribute whose shape lies elsewhere");
    out->type_shared = version > 1 && flags & 1;
    out->data = in;
    return MANTA_OK;
}

/* Looking for a name among attributes in a heap. */
typedef struct search {
    const h5_file *f;
    const h5_heap *heap;
    const char *name;
    bool found;
    h5_attribute *out;
    uint64_t bytes; /* looked at so far */
} search;

static manta_status look_at(void *ctx, const uint8_t *record, size_t size)
{
    search *s = ctx;
    h5_attribute a;
    h5_in object;
    bool is;

    (void)size;
    if (s->found) return MANTA_OK;
    if (record[8] & 2) return h5_lacks(s->f, record, "an attribute in the heap of shared messages");
    TRY(h5_heap_find(s->f, s->heap, record, 8, &object));
    TRY(parse_attribute(object, s->name, &is, &a));
    if (is) {
        s->found = true;
        *s->out = a;
    }
    return MANTA_OK;
}

static manta_status find_in_heap(const h5_file *f, const h5_message *m, const char *name, bool *found,
                                 h5_attribute *out)
{
    h5_in in = h5_bytes(f, m->data, m->size);
    int version = h5_take_int(&in, 1), flags = h5_take_int(&in, 1);
    uint64_t heap_at, tree;
    h5_heap heap;
    search s = {.f = f, .heap = &heap, .name = name, .out = out};

    if (flags & 1) h5_skip(&in, 2);
    heap_at = h5_take_address(&in);
    tree = h5_take_address(&in);
    TRY(h5_whole(&in, "the place of an object's attributes"));
    if (version != 0) return h5_lacks(f, m->data, "attributes of version %d, expected 0", version);
    if (heap_at == H5_NOWHERE || tree == H5_NOWHERE) return MANTA_OK;
    TRY(h5_heap_open(f, heap_at, &heap));
    TRY(h5_tree_walk(f, tree, 8, 8, 17, look_at, &s, NULL));
    *found = s.found;
    return MANTA_OK;
}

manta_status h5_attribute_find(const h5_file *f, const h5_messages *m, const char *name, bool *found,
                               h5_attribute *out)
{
    const h5_message *info = h5_message_find(m, H5_ATTRIBUTE_INFO);

    *found = false;
    for (size_t i = 0; i < m->n && !*found; i++) {
        if (m->at[i].type != H5_ATTRIBUTE) continue;
        if (m->at[i].shared) return h5_lacks(f, m->at[i].data, "an attribute in the heap of shared messages");
        TRY(parse_attribute(h5_bytes(f, m->at[i].data, m->at[i].size), name, found, out));
    }
    if (*found || !info) return MANTA_OK;
    return find_in_heap(f, info, name, found, out);
}
