/* bundle_write.c - TensorFlow checkpoints, written.
 *
 * A checkpoint is two files, and no system replaces two at once. But readers
 * go by the index, and the index says in how many shards the data lies, which
 * is part of the data file's name. So the new data is put beside the old, under
 * the name that the index in place does not mean, and the replacement of the
 * index alone makes the new checkpoint of the old:
 *
 *     index   data-00000-of-00001   data-00000-of-00002
 *     old     old                                          as it was
 *     old     old                   new
 *     new/2   old                   new                    the change
 *     new/2   new (a second name)   new
 *     new/1   new                   new
 *     new/1   new                                          as TensorFlow writes it
 *
 * Every line is a checkpoint that TensorFlow reads, so a crash between any two
 * leaves one. Where nothing or another number of shards was, the new data has
 * its own name at once and the second half is not needed. */
#include "format/tensorflow/bundle.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "format/codec/elements.h"
#include "format/codec/proto.h"
#include "format/codec/record.h"
#include "os/file.h"
#include "os/sys.h"

/* ---- tensors --------------------------------------------------------------------------- */

typedef struct writing {
    file_writer *w;
    int64_t at;
    uint32_t crc;
} writing;

static manta_status put_bytes(void *ctx, const void *data, size_t n)
{
    writing *w = ctx;

    w->crc = crc32c(w->crc, data, n);
    w->at += (int64_t)n;
    return file_writer_write(w->w, data, n);
}

typedef struct item {
    char *key; /* owned */
    const manta_array *array; /* NULL: the object graph */
    buf entry; /* what the index says of it */
} item;

/* BundleEntryProto; zero fields are left out, as TensorFlow does. */
static void make_entry(buf *b, int dtype, int ndim, const int64_t *shape, int64_t offset, int64_t size,
                       uint32_t crc)
{
    size_t s, d;

    proto_add_int(b, 1, dtype);
    s = proto_begin(b, 2);
    for (int i = 0; i < ndim; i++) {
        d = proto_begin(b, 2);
        if (shape[i]) proto_add_int(b, 1, shape[i]);
        proto_end(b, d);
    }
    proto_end(b, s);
    if (offset) proto_add_int(b, 4, offset);
    if (size) proto_add_int(b, 5, size);
    proto_add_fixed32(b, 6, record_mask(crc));
}

static manta_status put_tensor(writing *w, item *to)
{
    const manta_array *a = to->array;
    int64_t from = w->at;

    w->crc = 0;
    TRY(elements_each(a, put_bytes, w));
    make_entry(&to->entry, bundle_dtype_of(a->dtype), a->ndim, a->shape, from, w->at - from, w->crc);
    return MANTA_OK;
}

static manta_status put_string(writing *w, item *to, const buf *text)
{
    uint8_t length[4] = {(uint8_t)text->n, (uint8_t)(text->n >> 8), (uint8_t)(text->n >> 16),
                         (uint8_t)(text->n >> 24)};
    uint32_t crc = crc32c(0, length, 4), sum = record_mask(crc);
    uint8_t stored[4] = {(uint8_t)sum, (uint8_t)(sum >> 8), (uint8_t)(sum >> 16), (uint8_t)(sum >> 24)};
    int64_t from = w->at;
    buf head = {0};

    proto_add_varint(&head, text->n);
    buf_add(&head, stored, 4);
    manta_status st = put_bytes(w, head.at, head.n);
    if (!st) st = put_bytes(w, text->at, text->n);
    buf_release(&head);
    crc = crc32c(crc32c(crc, stored, 4), text->at, text->n);
    if (!st) make_entry(&to->entry, BUNDLE_STRING, 0, NULL, from, w->at - from, crc);
    return st;
}

/* ---- the two files --------------------------------------------------------------------- */

typedef struct pair {
    const char *prefix;
    char *index_path; /* owned */
    size_t n;
    item *items; /* in the order of keys */
} pair;

static manta_status write_data(const pair *p, int64_t shards, const buf *graph)
{
    char *path = bundle_shard_path(p->prefix, 0, shards);
    writing w = {0};
    manta_status st = file_writer_open(path, &w.w);

    for (size_t i = 0; i < p->n && !st; i++) {
        st = p->items[i].array ? put_tensor(&w, &p->items[i]) : put_string(&w, &p->items[i], graph);
    }
    if (!st) st = file_writer_commit(w.w);
    file_writer_free(w.w);
    mem_free(path);
    return st;
}

/* The index of data in shard 0 of `shards`. */
static manta_status write_index(const pair *p, int64_t shards)
{
    bundle_table t = {0};
    buf header = {0};
    size_t version;

    proto_add_int(&header, 1, shards); /* little endian is 0, and so left out */
    version = proto_begin(&header, 3);
    proto_add_int(&header, 1, 1);
    proto_end(&header, version);
    bundle_table_add(&t, "", 0, header.at, header.n);
    for (size_t i = 0; i < p->n; i++) {
        const item *it = &p->items[i];
        bundle_table_add(&t, it->key, strlen(it->key), it->entry.at, it->entry.n);
    }
    bundle_table_finish(&t);
    manta_status st = file_replace(p->index_path, t.file.at, t.file.n);
    bundle_table_release(&t);
    buf_release(&header);
    return st;
}

/* In how many shards the checkpoint in place lies; 0: there is none that can be read. */
static manta_status shards_in_place(const char *prefix, int64_t *out)
{
    bundle b = {0};
    manta_status st = bundle_open(prefix, &b);

    *out = st ? 0 : b.shards;
    bundle_release(&b);
    return st == MANTA_ENOENT || st == MANTA_ECORRUPT || st == MANTA_EUNSUPPORTED ? MANTA_OK : st;
}

static void remove_shards(const char *prefix, int64_t shards)
{
    for (int64_t i = 0; i < shards; i++) {
        char *path = bundle_shard_path(prefix, i, shards);
        os->unlink(path); /* what cannot go does no harm: nothing means it */
        mem_free(path);
    }
}

/* From two shards to the usual one. A failure leaves the two, which is as good a checkpoint. */
static void merge_two_shards(const pair *p)
{
    char *one = bundle_shard_path(p->prefix, 0, 1), *two = bundle_shard_path(p->prefix, 0, 2);

    remove_shards(p->prefix, 1); /* the old data: nothing means it any more */
    if (!file_link(two, one)) {
        manta_status st = write_index(p, 1);
        if (!st) {
            remove_shards(p->prefix, 2);
        } else if (st != MANTA_EUNKNOWN) { /* which is: in place, perhaps not on the disk */
            remove_shards(p->prefix, 1);
        }
    }
    mem_free(one);
    mem_free(two);
}

static manta_status write_files(const pair *p, const buf *graph)
{
    int64_t old, shards;
    manta_status st;

    TRY(shards_in_place(p->prefix, &old));
    shards = old == 1 ? 2 : 1;
    st = write_data(p, shards, graph);
    if (st == MANTA_EUNKNOWN) st = MANTA_EIO; /* data without an index is nothing yet */
    if (!st) st = write_index(p, shards);
    if (st && st != MANTA_EUNKNOWN) remove_shards(p->prefix, shards);
    if (st) return st;
    if (shards == 2) {
        merge_two_shards(p);
    } else {
        remove_shards(p->prefix, old);
    }
    return MANTA_OK;
}

/* ---- the state file -------------------------------------------------------------------- */

typedef struct state {
    buf lines; /* of the other checkpoints */
    const char *name;
} state;

static void add_quoted(buf *b, const char *key, const char *name)
{
    buf_printf(b, "%s: \"", key);
    for (const char *p = name; *p; p++) {
        if (*p == '"' || *p == '\\') buf_add_char(b, '\\');
        buf_add_char(b, *p);
    }
    buf_add_text(b, "\"\n");
}

static bool keep_other(void *ctx, const char *line, size_t n)
{
    state *s = ctx;
    char *name = bundle_state_name(line, n, "all_model_checkpoint_paths");

    if (name && strcmp(name, s->name)) add_quoted(&s->lines, "all_model_checkpoint_paths", name);
    mem_free(name);
    return true;
}

/* Makes the checkpoint the newest; the others that the file names stay in it. */
static manta_status write_state(const char *prefix)
{
    const char *slash = strrchr(prefix, '/'), *name = slash ? slash + 1 : prefix;
    char *path = mem_printf("%.*scheckpoint", slash ? (int)(slash + 1 - prefix) : 0, prefix);
    state s = {.name = name};
    buf out = {0};
    void *old = NULL;
    size_t n;
    manta_status st = file_read(path, BUNDLE_STATE_MAX, &old, &n);

    if (st && st != MANTA_ENOENT) goto out;
    if (old) bundle_state_each(old, keep_other, &s);
    add_quoted(&out, "model_checkpoint_path", name);
    if (s.lines.n) buf_add(&out, s.lines.at, s.lines.n);
    add_quoted(&out, "all_model_checkpoint_paths", name);
    st = file_replace(path, out.at, out.n);
out:
    mem_try_free(old);
    buf_release(&out);
    buf_release(&s.lines);
    mem_free(path);
    return st;
}

/* ---- all of it ------------------------------------------------------------------------- */

static manta_status check_arrays(const char *prefix, int n, const manta_column *arrays)
{
    for (int i = 0; i < n; i++) {
        const char *name = arrays[i].name;
        if (!name || !name[0] || name[0] == '/' || strstr(name, "//") || name[strlen(name) - 1] == '/') {
            return manta_fail(MANTA_EINVAL, "%s: array %d has no name that a checkpoint can hold", prefix, i);
        }
        if (!strcmp(name, "save_counter")) {
            return manta_fail(MANTA_EINVAL, "%s: an array is called save_counter, which TensorFlow counts in",
                              prefix);
        }
        if (!bundle_dtype_of(arrays[i].array.dtype)) {
            return manta_fail(MANTA_EINVAL, "%s: array '%s' has no element type", prefix, name);
        }
    }
    return MANTA_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const item *)a)->key, ((const item *)b)->key);
}

/* The arrays and the object graph as items in their order. */
static manta_status make_items(pair *p, int n, const manta_column *arrays, buf *graph)
{
    const char **names = mem_new(((size_t)n + 1) * sizeof *names);

    p->n = (size_t)n + 1;
    p->items = mem_new(p->n * sizeof *p->items);
    for (int i = 0; i < n; i++) {
        names[i] = arrays[i].name;
        p->items[i] = (item){.key = bundle_key(names[i]), .array = &arrays[i].array};
    }
    p->items[n] = (item){.key = mem_strdup(BUNDLE_GRAPH_KEY)};
    bundle_graph_write(n, names, graph);
    mem_free(names);
    qsort(p->items, p->n, sizeof *p->items, by_key);
    for (size_t i = 1; i < p->n; i++) {
        if (strcmp(p->items[i].key, p->items[i - 1].key)) continue;
        return manta_fail(MANTA_EINVAL, "%s: two arrays are called '%s'", p->prefix, p->items[i].key);
    }
    return MANTA_OK;
}

manta_status bundle_write(const char *prefix, int n, const manta_column *arrays)
{
    pair p = {.prefix = prefix};
    buf graph = {0};
    manta_status st;

    TRY(check_arrays(prefix, n, arrays));
    p.index_path = mem_printf("%s.index", prefix);
    st = make_items(&p, n, arrays, &graph);
    if (!st) st = write_files(&p, &graph);
    if (!st) st = write_state(prefix);
    for (size_t i = 0; i < p.n; i++) {
        mem_free(p.items[i].key);
        buf_release(&p.items[i].entry);
    }
    mem_free(p.items);
    mem_free(p.index_path);
    buf_release(&graph);
    return st;
}
