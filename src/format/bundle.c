/* bundle.c - TensorFlow checkpoints. */
#include "format/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "format/input.h"
#include "format/proto.h"
#include "format/record.h"
#include "os/file.h"
#include "os/sys.h"

#define STATE_MAX (1 << 20) /* bytes of a `checkpoint` file */

static const struct {
    int tf;
    manta_dtype ours;
    size_t size; /* in the file */
} dtypes[] = {
    {BUNDLE_F32, MANTA_DTYPE_F32, 4}, {BUNDLE_F64, MANTA_DTYPE_F64, 8},   {BUNDLE_I32, MANTA_DTYPE_I32, 4},
    {BUNDLE_U8, MANTA_DTYPE_U8, 1},   {BUNDLE_I64, MANTA_DTYPE_I64, 8},   {BUNDLE_BOOL, MANTA_DTYPE_BOOL, 1},
    {BUNDLE_F16, MANTA_DTYPE_F16, 2}, {BUNDLE_BF16, MANTA_DTYPE_BF16, 2}, {BUNDLE_I8, MANTA_DTYPE_I32, 1},
    {BUNDLE_I16, MANTA_DTYPE_I32, 2}, {BUNDLE_U16, MANTA_DTYPE_I32, 2},   {BUNDLE_U32, MANTA_DTYPE_I64, 4},
};

static size_t tf_size(int tf)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].tf == tf) return dtypes[i].size;
    }
    return 0;
}

manta_status bundle_dtype(const bundle_entry *e, manta_dtype *out)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].tf != e->dtype) continue;
        *out = dtypes[i].ours;
        return MANTA_OK;
    }
    return manta_fail(MANTA_EUNSUPPORTED,
                      "tensor '%s' is of TensorFlow's type %d, which has no counterpart here", e->key,
                      e->dtype);
}

/* The name of shard i, owned. */
static char *shard_path(const char *prefix, int64_t i, int64_t shards)
{
    return mem_printf("%s.data-%05lld-of-%05lld", prefix, (long long)i, (long long)shards);
}

/* ---- the index ------------------------------------------------------------------------- */

typedef struct loading {
    const char *name;
    bundle *b;
    bool header;
} loading;

static bool read_header(proto_reader r, int64_t *shards, bool *little)
{
    proto_field f;
    proto_step s;

    *shards = 0;
    *little = true;
    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 1 && f.wire == PROTO_VARINT) *shards = (int64_t)f.value;
        if (f.number == 2 && f.wire == PROTO_VARINT) *little = f.value == 0;
    }
    return s == PROTO_END;
}

/* TensorShapeProto { 2: repeated Dim { 1: size }  3: unknown rank } */
static bool read_shape(proto_reader r, bundle_entry *e)
{
    proto_field f, g;
    proto_step s, t;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 3 && f.wire == PROTO_VARINT && f.value) return false;
        if (f.number != 2 || f.wire != PROTO_BYTES) continue;
        proto_reader dim = proto_inside(&f);
        int64_t size = 0;
        while ((t = proto_next(&dim, &g)) == PROTO_FIELD) {
            if (g.number == 1 && g.wire == PROTO_VARINT) size = (int64_t)g.value;
        }
        if (t == PROTO_BAD || size < 0) return false;
        if (e->ndim < MANTA_MAX_DIMS) e->shape[e->ndim] = size;
        if (e->ndim <= MANTA_MAX_DIMS) e->ndim++;
    }
    return s == PROTO_END;
}

static bool read_entry(proto_reader r, bundle_entry *e)
{
    proto_field f;
    proto_step s;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        bool number = f.wire == PROTO_VARINT;
        if (f.number == 1 && number) e->dtype = f.value < 1000 ? (int)f.value : 0;
        if (f.number == 2 && f.wire == PROTO_BYTES && !read_shape(proto_inside(&f), e)) return false;
        if (f.number == 3 && number) e->shard = (int64_t)f.value;
        if (f.number == 4 && number) e->offset = (int64_t)f.value;
        if (f.number == 5 && number) e->size = (int64_t)f.value;
        if (f.number == 6 && f.wire == PROTO_FIXED32) e->crc = (uint32_t)f.value;
        if (f.number == 7) e->sliced = true;
    }
    return s == PROTO_END;
}

/* What an entry says of itself must agree before anything is made of it. */
static manta_status check_entry(const loading *l, const bundle_entry *e)
{
    size_t bytes = 0, size = tf_size(e->dtype);

    if (e->shard < 0 || e->shard >= l->b->shards || e->offset < 0 || e->size < 0 ||
        e->size > INT64_MAX - e->offset) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: tensor '%s' lies at offset %lld of shard %lld, which cannot be", l->name,
                          e->key, (long long)e->offset, (long long)e->shard);
    }
    if (e->sliced || !size || e->ndim > MANTA_MAX_DIMS) return MANTA_OK; /* refused when it is asked for */
    if (!input_bytes(e->ndim, e->shape, size, &bytes) || bytes != (size_t)e->size) {
        return manta_fail(MANTA_ECORRUPT, "%s: tensor '%s' has %lld bytes, which its shape and type do not",
                          l->name, e->key, (long long)e->size);
    }
    return MANTA_OK;
}

static manta_status take_entry(void *ctx, const uint8_t *key, size_t key_n, const uint8_t *value, size_t n)
{
    loading *l = ctx;
    bool little;

    if (!l->header) {
        if (key_n || !read_header(proto_read(value, n), &l->b->shards, &little) || l->b->shards < 1 ||
            l->b->shards > 99999) {
            return manta_fail(MANTA_ECORRUPT, "%s: its first entry is no header of a TensorFlow checkpoint",
                              l->name);
        }
        if (!little) return manta_fail(MANTA_EUNSUPPORTED, "%s: its numbers are big endian", l->name);
        l->header = true;
        return MANTA_OK;
    }
    if (memchr(
            key, 0,
            key_n)) { /* TensorFlow's own keys of partitioned variables have zero bytes; so do their parts */
        return MANTA_OK;
    }
    vec_push(&l->b->entries, (bundle_entry){.key = mem_strndup((const char *)key, key_n)});
    bundle_entry *e = &vec_last(&l->b->entries);
    if (!read_entry(proto_read(value, n), e)) {
        return manta_fail(MANTA_ECORRUPT, "%s: what it says of tensor '%s' is damaged", l->name, e->key);
    }
    return check_entry(l, e);
}

manta_status bundle_parse(const char *prefix, const uint8_t *data, size_t size, bundle *out)
{
    bundle b = {.prefix = mem_strdup(prefix)};
    char *name = mem_printf("%s.index", prefix);
    loading l = {.name = name, .b = &b};
    manta_status st = bundle_table_read(name, data, size, take_entry, &l);

    if (!st && !l.header) st = manta_fail(MANTA_ECORRUPT, "%s: it is empty, expected a header", name);
    mem_free(name);
    if (st) {
        bundle_release(&b);
        return st;
    }
    *out = b;
    return MANTA_OK;
}

manta_status bundle_open(const char *prefix, bundle *out)
{
    char *path = mem_printf("%s.index", prefix);
    input in = {0};
    manta_status st = input_read(path, &in);

    if (!st) st = bundle_parse(prefix, in.data, in.size, out);
    input_release(&in);
    mem_free(path);
    return st;
}

void bundle_release(bundle *b)
{
    for (size_t i = 0; i < b->entries.n; i++) mem_free(b->entries.at[i].key);
    vec_release(&b->entries);
    mem_free(b->prefix);
    *b = (bundle){0};
}

const bundle_entry *bundle_find(const bundle *b, const char *key)
{
    size_t lo = 0, hi = b->entries.n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int order = strcmp(b->entries.at[mid].key, key);
        if (order == 0) return &b->entries.at[mid];
        if (order < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return NULL;
}

/* ---- tensors --------------------------------------------------------------------------- */

static manta_status read_fully(int fd, const char *path, int64_t at, uint8_t *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = os->pread(fd, to + done, n - done, (off_t)at + (off_t)done);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return file_fail(errno, "reading", path);
        if (k == 0) return manta_fail(MANTA_ECORRUPT, "%s: the file was cut short", path);
        done += (size_t)k;
    }
    return MANTA_OK;
}

/* The entry's bytes into `to`, of e->size. */
static manta_status read_bytes(const char *path, const bundle_entry *e, uint8_t *to)
{
    int fd;

    do fd = os->open(path, O_RDONLY | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return file_fail(errno, "opening", path);
    manta_status st = read_fully(fd, path, e->offset, to, (size_t)e->size);
    os->close(fd);
    return st;
}

/* Before memory is had for it: that the file is long enough. */
static manta_status check_extent(const char *path, const bundle_entry *e)
{
    file_info info;

    TRY(file_stat(path, &info));
    if ((uint64_t)(e->offset + e->size) <= info.size) return MANTA_OK;
    return manta_fail(MANTA_ECORRUPT, "%s: tensor '%s' ends at offset %lld, the file at %" PRIu64, path,
                      e->key, (long long)(e->offset + e->size), info.size);
}

static manta_status checksum_fails(const char *path, const bundle_entry *e)
{
    return manta_fail(MANTA_ECORRUPT, "%s: the checksum of tensor '%s' at offset %lld does not match", path,
                      e->key, (long long)e->offset);
}

/* i8, i16, u16 and u32, widened. */
static void widen(int tf, int64_t n, const uint8_t *from, void *to)
{
    int32_t *small = to;
    int64_t *large = to;
    int16_t s;
    uint16_t u;
    uint32_t w;

    for (int64_t i = 0; i < n; i++) {
        switch (tf) {
        case BUNDLE_I8: small[i] = (int8_t)from[i]; break;
        case BUNDLE_I16:
            memcpy(&s, from + 2 * i, 2);
            small[i] = s;
            break;
        case BUNDLE_U16:
            memcpy(&u, from + 2 * i, 2);
            small[i] = u;
            break;
        default: memcpy(&w, from + 4 * i, 4); large[i] = w;
        }
    }
}

static manta_status read_elements(const char *path, const bundle_entry *e, const manta_array *to)
{
    bool as_is = tf_size(e->dtype) == manta_dtype_size(to->dtype);
    uint8_t *raw = as_is ? to->data : NULL;

    TRY(check_extent(path, e));
    if (!as_is && !(raw = mem_try_raw(e->size ? (size_t)e->size : 1))) {
        return manta_fail(MANTA_ENOMEM, "%s: no memory for the %lld bytes of tensor '%s'", path,
                          (long long)e->size, e->key);
    }
    manta_status st = read_bytes(path, e, raw);
    if (!st && record_sum(raw, (size_t)e->size) != e->crc) st = checksum_fails(path, e);
    if (!st && !as_is) widen(e->dtype, manta_array_count(to), raw, to->data);
    if (!as_is) mem_try_free(raw);
    return st;
}

manta_status bundle_read(const bundle *b, const bundle_entry *e, const manta_array *to)
{
    manta_dtype t = MANTA_DTYPE_COUNT;

    if (e->sliced) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: tensor '%s' was saved in slices", b->prefix, e->key);
    }
    TRY(bundle_dtype(e, &t));
    if (t != to->dtype || e->ndim != to->ndim ||
        memcmp(e->shape, to->shape, (size_t)e->ndim * sizeof *e->shape)) {
        return manta_fail(MANTA_EINVAL, "%s: tensor '%s' has another type or shape", b->prefix, e->key);
    }
    char *path = shard_path(b->prefix, e->shard, b->shards);
    manta_status st = read_elements(path, e, to);
    mem_free(path);
    return st;
}

/* One string: varint length, sum of the length as a number, bytes. The entry's
 * sum is over length as a number, that sum, and the bytes. */
static bool parse_string(const bundle_entry *e, const uint8_t *raw, proto_reader *text)
{
    proto_reader r = proto_read(raw, (size_t)e->size);
    uint64_t n;

    if (!proto_take_varint(&r, &n) || (uint64_t)(r.end - r.at) < 4 || n != (uint64_t)(r.end - r.at) - 4)
        return false;
    uint8_t length[8];
    size_t wide = n > UINT32_MAX ? 8 : 4;
    for (size_t i = 0; i < wide; i++) length[i] = (uint8_t)(n >> 8 * i);
    uint32_t crc = crc32c(0, length, wide), sum = record_mask(crc);
    uint8_t stored[4] = {(uint8_t)sum, (uint8_t)(sum >> 8), (uint8_t)(sum >> 16), (uint8_t)(sum >> 24)};
    if (memcmp(stored, r.at, 4)) return false;
    crc = crc32c(crc, stored, 4);
    if (record_mask(crc32c(crc, r.at + 4, (size_t)n)) != e->crc) return false;
    *text = proto_read(r.at + 4, (size_t)n);
    return true;
}

manta_status bundle_read_string(const bundle *b, const bundle_entry *e, buf *out)
{
    char *path = shard_path(b->prefix, e->shard, b->shards);
    uint8_t *raw = NULL;
    proto_reader text;
    manta_status st;

    if (e->dtype != BUNDLE_STRING || e->ndim != 0 || e->sliced) {
        st = manta_fail(MANTA_EINVAL, "%s: tensor '%s' is not a single string", b->prefix, e->key);
        goto out;
    }
    if ((st = check_extent(path, e))) goto out;
    if (!(raw = mem_try_raw(e->size ? (size_t)e->size : 1))) {
        st = manta_fail(MANTA_ENOMEM, "%s: no memory for the %lld bytes of '%s'", path, (long long)e->size,
                        e->key);
        goto out;
    }
    if ((st = read_bytes(path, e, raw))) goto out;
    if (!parse_string(e, raw, &text)) {
        st = checksum_fails(path, e);
        goto out;
    }
    if ((st = buf_try_reserve(out, (size_t)(text.end - text.at), "a string"))) goto out;
    buf_add(out, text.at, (size_t)(text.end - text.at));
out:
    mem_try_free(raw);
    mem_free(path);
    return st;
}

/* ---- which checkpoint ------------------------------------------------------------------ */

static bool is_file(const char *path)
{
    file_info info;

    return !file_stat(path, &info) && info.is_file;
}

/* The text between the quotes of a line `key: "..."`, unescaped; NULL: another line. Owned. */
static char *quoted(const char *line, size_t n, const char *key)
{
    size_t k = strlen(key);
    buf b = {0};

    if (n < k + 4 || memcmp(line, key, k) || memcmp(line + k, ": \"", 3) || line[n - 1] != '"') return NULL;
    for (size_t i = k + 3; i + 1 < n; i++) {
        if (line[i] == '\\' && i + 2 < n) i++;
        buf_add_char(&b, line[i]);
    }
    return buf_take(&b);
}

/* Calls back for every line; stops when fn says so. */
static void each_line(const char *text, bool (*fn)(void *ctx, const char *line, size_t n), void *ctx)
{
    while (*text) {
        size_t n = strcspn(text, "\r\n");
        if (!fn(ctx, text, n)) return;
        text += n;
        text += strspn(text, "\r\n");
    }
}

static bool take_newest(void *ctx, const char *line, size_t n)
{
    char **out = ctx;

    *out = quoted(line, n, "model_checkpoint_path");
    return *out == NULL;
}

static manta_status newest(const char *folder, const char *state, char **out)
{
    void *text = NULL;
    size_t n;
    char *name = NULL;

    TRY(file_read(state, STATE_MAX, &text, &n));
    each_line(text, take_newest, &name);
    mem_try_free(text);
    if (!name) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: no line names the newest checkpoint (model_checkpoint_path: \"...\")", state);
    }
    *out = name[0] == '/' ? mem_strdup(name) : mem_printf("%s/%s", folder, name);
    mem_free(name);
    return MANTA_OK;
}

static manta_status locate_in(const char *folder, char **out)
{
    char *state = mem_printf("%s/checkpoint", folder),
         *saved = mem_printf("%s/variables/variables.index", folder);
    char *inner = mem_printf("%s/variables.index", folder);
    manta_status st = MANTA_OK;

    if (is_file(state)) {
        st = newest(folder, state, out);
    } else if (is_file(saved)) {
        *out = mem_printf("%s/variables/variables", folder);
    } else if (is_file(inner)) {
        *out = mem_printf("%s/variables", folder);
    } else {
        st = manta_fail(MANTA_ENOENT,
                        "%s: neither a TensorFlow checkpoint (a file `checkpoint`) nor a SavedModel "
                        "(variables/variables.index) lies there",
                        folder);
    }
    mem_free(state);
    mem_free(saved);
    mem_free(inner);
    return st;
}

manta_status bundle_locate(const char *path, char **prefix)
{
    size_t n = strlen(path), k = strlen(".index");
    file_info info;

    if (n > k && !strcmp(path + n - k, ".index")) {
        *prefix = mem_strndup(path, n - k);
        return MANTA_OK;
    }
    if (!file_stat(path, &info) && info.is_folder) return locate_in(path, prefix);
    *prefix = mem_strdup(path);
    return MANTA_OK;
}

/* ---- writing --------------------------------------------------------------------------- */

typedef struct writing {
    file_writer *w;
    int64_t at;
    uint32_t crc;
} writing;

static manta_status put(writing *w, const void *data, size_t n)
{
    w->crc = crc32c(w->crc, data, n);
    w->at += (int64_t)n;
    return file_writer_write(w->w, data, n);
}

/* The elements row-major, whatever their strides. */
static manta_status put_array(writing *w, const manta_array *a)
{
    char chunk[1 << 14];
    int64_t index[MANTA_MAX_DIMS] = {0}, n = manta_array_count(a), at = 0;
    size_t size = manta_dtype_size(a->dtype), used = 0;

    if (n == 0) return MANTA_OK;
    if (manta_array_is_contiguous(a)) return put(w, a->data, (size_t)n * size);
    for (int64_t k = 0; k < n; k++) {
        if (used + size > sizeof chunk) {
            TRY(put(w, chunk, used));
            used = 0;
        }
        memcpy(chunk + used, (const char *)a->data + at * (int64_t)size, size);
        used += size;
        for (int i = a->ndim - 1; i >= 0; i--) {
            at += a->strides[i];
            if (++index[i] < a->shape[i]) break;
            at -= a->strides[i] * a->shape[i];
            index[i] = 0;
        }
    }
    return put(w, chunk, used);
}

static int tf_dtype(manta_dtype t)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].ours == t && dtypes[i].size == manta_dtype_size(t)) return dtypes[i].tf;
    }
    return 0;
}

/* BundleEntryProto; zero fields are left out, as TensorFlow does. */
static void add_index_entry(bundle_table *t, const char *key, int dtype, int ndim, const int64_t *shape,
                            int64_t offset, int64_t size, uint32_t crc)
{
    buf b = {0};
    size_t s, d;

    proto_add_int(&b, 1, dtype);
    s = proto_begin(&b, 2);
    for (int i = 0; i < ndim; i++) {
        d = proto_begin(&b, 2);
        if (shape[i]) proto_add_int(&b, 1, shape[i]);
        proto_end(&b, d);
    }
    proto_end(&b, s);
    if (offset) proto_add_int(&b, 4, offset);
    if (size) proto_add_int(&b, 5, size);
    proto_add_fixed32(&b, 6, record_mask(crc));
    bundle_table_add(t, key, strlen(key), b.at, b.n);
    buf_release(&b);
}

static manta_status put_tensor(writing *w, bundle_table *t, const char *key, const manta_array *a)
{
    int64_t from = w->at;

    w->crc = 0;
    TRY(put_array(w, a));
    add_index_entry(t, key, tf_dtype(a->dtype), a->ndim, a->shape, from, w->at - from, w->crc);
    return MANTA_OK;
}

static manta_status put_string(writing *w, bundle_table *t, const char *key, const buf *text)
{
    uint8_t length[4] = {(uint8_t)text->n, (uint8_t)(text->n >> 8), (uint8_t)(text->n >> 16),
                         (uint8_t)(text->n >> 24)};
    uint32_t crc = crc32c(0, length, 4), sum = record_mask(crc);
    uint8_t stored[4] = {(uint8_t)sum, (uint8_t)(sum >> 8), (uint8_t)(sum >> 16), (uint8_t)(sum >> 24)};
    int64_t from = w->at;
    buf head = {0};

    proto_add_varint(&head, text->n);
    buf_add(&head, stored, 4);
    manta_status st = put(w, head.at, head.n);
    if (!st) st = put(w, text->at, text->n);
    buf_release(&head);
    crc = crc32c(crc32c(crc, stored, 4), text->at, text->n);
    if (!st) add_index_entry(t, key, BUNDLE_STRING, 0, NULL, from, w->at - from, crc);
    return st;
}

typedef struct item {
    char *key; /* owned */
    const manta_array *array; /* NULL: the object graph */
} item;

static int by_key(const void *a, const void *b)
{
    return strcmp(((const item *)a)->key, ((const item *)b)->key);
}

static manta_status put_all(writing *w, bundle_table *t, size_t n, const item *items, const buf *graph)
{
    static const uint8_t header[] = {0x08, 0x01, 0x1a,
                                     0x02, 0x08, 0x01}; /* 1 shard, little endian, version 1 */

    bundle_table_add(t, "", 0, header, sizeof header);
    for (size_t i = 0; i < n; i++) {
        TRY(items[i].array ? put_tensor(w, t, items[i].key, items[i].array)
                           : put_string(w, t, items[i].key, graph));
    }
    bundle_table_finish(t);
    return MANTA_OK;
}

/* ---- the state file ---- */

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
    char *name = quoted(line, n, "all_model_checkpoint_paths");

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

    manta_status st = is_file(path) ? file_read(path, STATE_MAX, &old, &n) : MANTA_OK;
    if (st) goto out;
    if (old) each_line(old, keep_other, &s);
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

/* ---- all of it ---- */

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
        if (!tf_dtype(arrays[i].array.dtype)) {
            return manta_fail(MANTA_EINVAL, "%s: array '%s' has no element type", prefix, name);
        }
    }
    return MANTA_OK;
}

/* Readers go by the index. An old one goes before the data that it speaks of
 * is replaced: a crash between leaves no checkpoint of that name, never one
 * whose index and data disagree. */
static manta_status commit(const char *index_path, file_writer *data, file_writer *index)
{
    manta_status st = is_file(index_path) ? file_remove(index_path) : MANTA_OK;

    if (st) return st;
    TRY(file_writer_commit(data));
    return file_writer_commit(index);
}

static manta_status write_files(const char *prefix, size_t n, const item *items, const buf *graph)
{
    char *data_path = shard_path(prefix, 0, 1), *index_path = mem_printf("%s.index", prefix);
    file_writer *data = NULL, *index = NULL;
    bundle_table t = {0};
    manta_status st;

    if ((st = file_writer_open(data_path, &data)) || (st = file_writer_open(index_path, &index))) goto out;
    writing w = {.w = data};
    if ((st = put_all(&w, &t, n, items, graph))) goto out;
    if ((st = file_writer_write(index, t.file.at, t.file.n))) goto out;
    st = commit(index_path, data, index);
out:
    file_writer_free(data);
    file_writer_free(index);
    bundle_table_release(&t);
    mem_free(data_path);
    mem_free(index_path);
    return st;
}

manta_status bundle_write(const char *prefix, int n, const manta_column *arrays)
{
    size_t count = (size_t)n + 1;
    buf graph = {0};
    manta_status st;

    TRY(check_arrays(prefix, n, arrays));
    item *items = mem_new(count * sizeof *items);
    const char **names = mem_new(count * sizeof *names);
    for (int i = 0; i < n; i++) {
        names[i] = arrays[i].name;
        items[i] = (item){bundle_key(names[i]), &arrays[i].array};
    }
    items[n] = (item){mem_strdup(BUNDLE_GRAPH_KEY), NULL};
    bundle_graph_write(n, names, &graph);
    qsort(items, count, sizeof *items, by_key);
    st = MANTA_OK;
    for (size_t i = 1; i < count && !st; i++) {
        if (!strcmp(items[i].key, items[i - 1].key)) {
            st = manta_fail(MANTA_EINVAL, "%s: two arrays are called '%s'", prefix, items[i].key);
        }
    }
    if (!st) st = write_files(prefix, count, items, &graph);
    if (!st) st = write_state(prefix);
    for (size_t i = 0; i < count; i++) mem_free(items[i].key);
    mem_free(items);
    mem_free(names);
    buf_release(&graph);
    return st;
}
