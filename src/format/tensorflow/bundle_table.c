/* bundle_table.c - the sorted table of an index file.
 *
 *   data blocks | metaindex block, empty | index block | footer
 *   block:   entries {varint shared, varint unshared, varint size, key's rest, value}, u32 restarts..., u32 their number
 *            then u8 packing, u32 masked crc32c of block and packing
 *   footer:  varint offset, size of metaindex; the same of index; zeros to 40; magic
 *
 * A key is stored without what it shares with the one before; at a restart,
 * every 16 entries, it is stored whole. The index block has an entry per data
 * block: a key not below its last, and where it lies. */
#include <string.h>

#include "base/mem.h"
#include "format/codec/proto.h"
#include "format/codec/record.h"
#include "format/codec/sizes.h"
#include "format/tensorflow/bundle.h"

enum { FOOTER = 48, TRAILER = 5 };

static const uint8_t magic[8] = {0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb};

typedef struct table {
    const char *name;
    const uint8_t *data;
    size_t size;
    bundle_take *take;
    void *ctx;
    buf last; /* the key before */
    bool any;
} table;

static uint32_t load_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static manta_status fail_corrupt(const table *t, size_t at, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: %s at offset %zu, expected a TensorFlow checkpoint's index",
                      t->name, what, at);
}

/* A handle {offset, size}, and the block it names, checked. */
static manta_status open_block(const table *t, proto_reader *r, size_t where, proto_reader *entries)
{
    uint64_t at, n;

    if (!proto_take_varint(r, &at) || !proto_take_varint(r, &n))
        return fail_corrupt(t, where, "a block handle is cut off");
    if (at > t->size - FOOTER || n > t->size - FOOTER - at || t->size - FOOTER - at - n < TRAILER) {
        return fail_corrupt(t, where, "a block lies beyond the end of the file");
    }
    const uint8_t *block = t->data + at, *end = block + n;
    if (record_sum(block, (size_t)n + 1) != load_le32(end + 1))
        return fail_corrupt(t, (size_t)at, "a block does not have its checksum");
    if (end[0] == 1) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the block at offset %zu is packed by snappy; TensorFlow's own are not",
                          t->name, (size_t)at);
    }
    if (end[0] != 0) return fail_corrupt(t, (size_t)at, "a block is packed in an unknown way");
    if (n < 4 || load_le32(end - 4) > (n - 4) / 4)
        return fail_corrupt(t, (size_t)at, "a block has no restarts");
    *entries = proto_read(block, (size_t)n - 4 - 4 * (size_t)load_le32(end - 4));
    return MANTA_OK;
}

/* One entry; *key is the part that is not shared. */
static bool next_entry(proto_reader *r, uint64_t *shared, const uint8_t **key, size_t *key_n,
                       const uint8_t **value, size_t *n)
{
    uint64_t own, size;

    if (!proto_take_varint(r, shared) || !proto_take_varint(r, &own) || !proto_take_varint(r, &size))
        return false;
    uint64_t left = (uint64_t)(r->end - r->at);
    if (own > left || size > left - own) return false;
    *key = r->at;
    *key_n = (size_t)own;
    *value = r->at + own;
    *n = (size_t)size;
    r->at += own + size;
    return true;
}

/* Completes the key in t->last and sees that it follows the one before. */
static manta_status take_key(table *t, size_t where, uint64_t shared, const uint8_t *rest, size_t n)
{
    if (shared > t->last.n || t->last.n + n > 1 << 20)
        return fail_corrupt(t, where, "a key has an impossible length");
    size_t old = t->last.n - (size_t)shared, common = old < n ? old : n;
    int order = common ? memcmp(t->last.at + shared, rest, common) : 0;
    if (t->any && (order > 0 || (order == 0 && old >= n)))
        return fail_corrupt(t, where, "a key is out of order");
    buf_cut(&t->last, (size_t)shared);
    buf_add(&t->last, rest, n);
    t->any = true;
    return MANTA_OK;
}

static manta_status read_data_block(table *t, proto_reader r)
{
    const uint8_t *rest, *value;
    size_t rest_n, n;
    uint64_t shared;
    bool first = true;

    while (r.at < r.end) {
        size_t where = (size_t)(r.at - t->data);
        if (!next_entry(&r, &shared, &rest, &rest_n, &value, &n))
            return fail_corrupt(t, where, "an entry is cut off");
        if (first && shared) return fail_corrupt(t, where, "a first key shares bytes with none before it");
        TRY(take_key(t, where, shared, rest, rest_n));
        TRY(t->take(t->ctx, (const uint8_t *)t->last.at, t->last.n, value, n));
        first = false;
    }
    return MANTA_OK;
}

static manta_status read_blocks(table *t)
{
    proto_reader footer = proto_read(t->data + t->size - FOOTER, FOOTER - sizeof magic), index, block;
    size_t where = t->size - FOOTER;
    uint64_t skip, shared;
    const uint8_t *rest, *value;
    size_t rest_n, n, blocks = 0;

    for (int i = 0; i < 2; i++) { /* offset and size of the meta index, which is not needed */
        if (!proto_take_varint(&footer, &skip)) return fail_corrupt(t, where, "the footer is cut off");
    }
    TRY(open_block(t, &footer, where, &index));
    while (index.at < index.end) {
        where = (size_t)(index.at - t->data);
        if (!next_entry(&index, &shared, &rest, &rest_n, &value, &n))
            return fail_corrupt(t, where, "an entry is cut off");
        proto_reader handle = proto_read(value, n);
        TRY(open_block(t, &handle, where, &block));
        /* Blocks do not share bytes, so more of them than fit is a circle. */
        if (++blocks > t->size / (TRAILER + 4))
            return fail_corrupt(t, where, "there are more blocks than fit");
        TRY(read_data_block(t, block));
    }
    return MANTA_OK;
}

manta_status bundle_table_read(const char *name, const uint8_t *data, size_t size, bundle_take *take,
                               void *ctx)
{
    table t = {.name = name, .data = data, .size = size, .take = take, .ctx = ctx};

    if (size < FOOTER || memcmp(data + size - sizeof magic, magic, sizeof magic) != 0) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: no sorted table ends there (bad magic number), expected a TensorFlow "
                          "checkpoint's index",
                          name);
    }
    manta_status st = read_blocks(&t);
    buf_release(&t.last);
    return st;
}

/* ---- writing ------------------------------------------------------------------------- */

static void add_u32(buf *b, uint32_t v)
{
    uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};

    buf_add(b, bytes, sizeof bytes);
}

static void add_entry(buf *b, size_t shared, const char *key, size_t key_n, const void *value, size_t n)
{
    proto_add_varint(b, shared);
    proto_add_varint(b, key_n - shared);
    proto_add_varint(b, n);
    buf_add(b, key + shared, key_n - shared);
    buf_add(b, value, n);
}

/* Ends a block with its restarts and sum, moves it to the file, and adds its handle to `handle`. */
static void flush_block(bundle_table *t, buf *block, size_t n_restarts, const uint32_t *restarts, buf *handle)
{
    for (size_t i = 0; i < n_restarts; i++) add_u32(block, restarts[i]);
    add_u32(block, (uint32_t)n_restarts);
    proto_add_varint(handle, t->file.n);
    proto_add_varint(handle, block->n);
    buf_add_char(block, 0);
    uint32_t sum = record_sum(block->at, block->n);
    buf_add(&t->file, block->at, block->n);
    add_u32(&t->file, sum);
    buf_cut(block, 0);
}

/* Ends the data block; its entry in the index has its last key. */
static void end_block(bundle_table *t)
{
    buf handle = {0};

    if (!t->block.n) return;
    flush_block(t, &t->block, t->restarts.n, t->restarts.at, &handle);
    vec_clear(&t->restarts);
    t->since_restart = 0;
    add_entry(&t->index, 0, buf_text(&t->last), t->last.n, handle.at, handle.n);
    buf_release(&handle);
}

void bundle_table_add(bundle_table *t, const char *key, size_t key_n, const void *value, size_t n)
{
    size_t shared = 0;

    if (t->since_restart == BUNDLE_INTERVAL) t->since_restart = 0;
    if (t->since_restart++ == 0) {
        vec_push(&t->restarts, (uint32_t)t->block.n);
    } else {
        while (shared < key_n && shared < t->last.n && key[shared] == t->last.at[shared]) shared++;
    }
    add_entry(&t->block, shared, key, key_n, value, n);
    buf_cut(&t->last, 0);
    buf_add(&t->last, key, key_n);
    if (t->block.n >= (t->block_size ? t->block_size : BUNDLE_BLOCK)) end_block(t);
}

/* The index has a restart at every entry, which are found by going through it once more. */
static void flush_index(bundle_table *t, buf *handle)
{
    VEC(uint32_t) restarts = {0};
    proto_reader r = proto_read(t->index.at, t->index.n);
    const uint8_t *key, *value;
    size_t key_n, n;
    uint64_t shared;

    while (r.at < r.end) {
        vec_push(&restarts, (uint32_t)(r.at - (const uint8_t *)t->index.at));
        if (!next_entry(&r, &shared, &key, &key_n, &value, &n)) break;
    }
    if (!restarts.n) vec_push(&restarts, 0);
    flush_block(t, &t->index, restarts.n, restarts.at, handle);
    vec_release(&restarts);
}

void bundle_table_finish(bundle_table *t)
{
    static const uint32_t at_zero[1];
    buf footer = {0}, empty = {0};

    end_block(t);
    flush_block(t, &empty, 1, at_zero, &footer);
    flush_index(t, &footer);
    while (footer.n < FOOTER - sizeof magic) buf_add_char(&footer, 0);
    buf_add(&footer, magic, sizeof magic);
    buf_add(&t->file, footer.at, footer.n);
    buf_release(&footer);
    buf_release(&empty);
}

void bundle_table_release(bundle_table *t)
{
    buf_release(&t->file);
    buf_release(&t->block);
    buf_release(&t->index);
    buf_release(&t->last);
    vec_release(&t->restarts);
    *t = (bundle_table){0};
}
