/* bundle.h - TensorFlow checkpoints: tensors by key ("tensor bundle").
 *
 *   P.index                 a sorted table: "" -> header, key -> {dtype, shape, shard, offset, size, crc32c}
 *   P.data-00000-of-00001   the tensors' bytes, little endian, one after the other
 *   checkpoint              in the same folder: which P is the newest; text
 *
 * P is the prefix by which TensorFlow names a checkpoint. The key
 * _CHECKPOINTABLE_OBJECT_GRAPH holds a tree of objects in which
 * tf.train.Checkpoint looks for its variables; load_checkpoint and v1 savers
 * go by the keys alone. */
#ifndef FORMAT_TENSORFLOW_BUNDLE_H
#define FORMAT_TENSORFLOW_BUNDLE_H

#include <manta/data.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/vec.h"

#define BUNDLE_GRAPH_KEY "_CHECKPOINTABLE_OBJECT_GRAPH"
#define BUNDLE_SUFFIX    "/.ATTRIBUTES/VARIABLE_VALUE"

/* TensorFlow's numbers for element types. */
enum {
    BUNDLE_F32 = 1,
    BUNDLE_F64 = 2,
    BUNDLE_I32 = 3,
    BUNDLE_U8 = 4,
    BUNDLE_I16 = 5,
    BUNDLE_I8 = 6,
    BUNDLE_STRING = 7,
    BUNDLE_I64 = 9,
    BUNDLE_BOOL = 10,
    BUNDLE_BF16 = 14,
    BUNDLE_U16 = 17,
    BUNDLE_F16 = 19,
    BUNDLE_U32 = 22
};

typedef struct bundle_entry {
    char *key; /* owned */
    int dtype; /* TensorFlow's number */
    int ndim; /* MANTA_MAX_DIMS + 1: more than we have */
    int64_t shape[MANTA_MAX_DIMS];
    int64_t shard, offset, size;
    uint32_t crc; /* masked */
    bool sliced; /* a part of a tensor that lies elsewhere in parts */
} bundle_entry;

typedef struct bundle {
    char *prefix; /* owned */
    int64_t shards;
    VEC(bundle_entry) entries; /* in the order of keys */
} bundle;

/* ---- reading ---- */

/* Reads PREFIX.index. *out untouched on failure. MANTA_ECORRUPT with file and offset. */
manta_status bundle_open(const char *prefix, bundle *out);
/* Reads an index from data[0..size); *out is as bundle_open() leaves it. */
manta_status bundle_parse(const char *prefix, const uint8_t *data, size_t size, bundle *out);
void bundle_release(bundle *b); /* accepts zeroed memory */

const bundle_entry *bundle_find(const bundle *b, const char *key); /* NULL when there is none */

/* The dtype an entry has here: i8, i16 and u16 become i32, u32 becomes i64.
 * MANTA_EUNSUPPORTED strings, quantised and complex numbers. */
manta_status bundle_dtype(const bundle_entry *e, manta_dtype *out);
int bundle_dtype_of(manta_dtype t); /* TensorFlow's number of ours; 0: it has none */

/* Fills `to` with the elements, which must have the entry's shape and dtype as
 * bundle_dtype() says; checked against its sum. */
manta_status bundle_read(const bundle *b, const bundle_entry *e, const manta_array *to);
/* The bytes of a scalar string, added to `out`. */
manta_status bundle_read_string(const bundle *b, const bundle_entry *e, buf *out);

/* The prefix that `path` means: itself, a name ending in .index, a folder with
 * a `checkpoint` file, or a SavedModel's folder. MANTA_ENOENT. Owned (mem_free). */
manta_status bundle_locate(const char *path, char **prefix);

/* The file of shard i of `shards`. Owned. */
char *bundle_shard_path(const char *prefix, int64_t i, int64_t shards);

/* ---- the state file: a line `key: "name"` per checkpoint ---- */

#define BUNDLE_STATE_MAX (1 << 20) /* bytes */

typedef bool bundle_state_line(void *ctx, const char *line, size_t n);

/* Calls back for every line; stops when fn says so. */
void bundle_state_each(const char *text, bundle_state_line *fn, void *ctx);
/* The name on a line of this key, unescaped; NULL: another line. Owned. */
char *bundle_state_name(const char *line, size_t n, const char *key);

/* ---- the table ---- */

typedef manta_status bundle_take(void *ctx, const uint8_t *key, size_t key_n, const uint8_t *value, size_t n);

/* Hands the entries to `take`, in the order of keys. MANTA_ECORRUPT, naming `name`. */
manta_status bundle_table_read(const char *name, const uint8_t *data, size_t size, bundle_take *take,
                               void *ctx);

/* Builds one: keys must come in their order. A block ends beyond block_size bytes. */
typedef struct bundle_table {
    buf file, block, index;
    VEC(uint32_t) restarts;
    buf last; /* key */
    size_t block_size;
    int since_restart;
} bundle_table;

void bundle_table_add(bundle_table *t, const char *key, size_t key_n, const void *value, size_t n);
void bundle_table_finish(bundle_table *t); /* t->file is the whole then */
void bundle_table_release(bundle_table *t); /* accepts zeroed memory */

/* ---- the object graph ---- */

/* From checkpoint key to the variable's own name, for every attribute that has
 * one; MANTA_ECORRUPT when the bytes are no graph. */
typedef MAP(char *) bundle_names; /* values owned: bundle_names_release() */
manta_status bundle_graph_read(const char *name, const uint8_t *data, size_t size, bundle_names *out);
void bundle_names_release(bundle_names *n);

/* The tree that names like "conv2d/kernel" make, as a TrackableObjectGraph. */
void bundle_graph_write(int n, const char *const *names, buf *b);
/* The key of a name, owned: "conv2d/kernel/.ATTRIBUTES/VARIABLE_VALUE". */
char *bundle_key(const char *name);
/* The reverse; a key of another form is its own name. Owned. */
char *bundle_name_of_key(const char *key);

/* ---- writing ---- */

/* Writes the arrays (any strides) under their names, with an object graph, and
 * makes it the folder's newest checkpoint. At any moment a reader, or a
 * machine that lost power, finds what was under the prefix before or what was
 * written, whole. */
manta_status bundle_write(const char *prefix, int n, const manta_column *arrays);

#endif
