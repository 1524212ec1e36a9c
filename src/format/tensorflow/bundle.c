/* bundle.c - TensorFlow checkpoints. */
#include "format/tensorflow/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "format/codec/input.h"
#include "format/codec/proto.h"
#include "format/codec/record.h"
#include "os/file.h"
#include "os/sys.h"

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

int bundle_dtype_of(manta_dtype t)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].ours == t && dtypes[i].size == manta_dtype_size(t)) return dtypes[i].tf;
    }
    return 0;
}

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

char *bundle_shard_path(const char *prefix, int64_t i, int64_t shards)
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
                          "%s: tensor '%s' lies at offset %lld of shard %lld, which there is not", l->name,
                          e->key, (long long)e->offset, (long long)e->shard);
    }
    if (e->sliced || !size || e->ndim > MANTA_MAX_DIMS) return MANTA_OK; /* refused when it is asked for */
    if (!input_bytes(e->ndim, e->shape, size, &bytes) || bytes != (size_t)e->size) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: tensor '%s' has %lld bytes, which its shape and type do not have", l->name,
                          e->key, (long long)e->size);
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
        if (!little)
            return manta_fail(MANTA_EUNSUPPORTED, "%s: its numbers are big endian, expected little endian",
                              l->name);
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
static void widen_elements(int tf, int64_t n, const uint8_t *from, void *to)
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
    if (!st && !as_is) widen_elements(e->dtype, manta_array_count(to), raw, to->data);
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
    char *path = bundle_shard_path(b->prefix, e->shard, b->shards);
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
    char *path = bundle_shard_path(b->prefix, e->shard, b->shards);
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

char *bundle_state_name(const char *line, size_t n, const char *key)
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

void bundle_state_each(const char *text, bundle_state_line *fn, void *ctx)
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

    *out = bundle_state_name(line, n, "model_checkpoint_path");
    return *out == NULL;
}

static manta_status newest_prefix(const char *folder, const char *state, char **out)
{
    void *text = NULL;
    size_t n;
    char *name = NULL;

    TRY(file_read(state, BUNDLE_STATE_MAX, &text, &n));
    bundle_state_each(text, take_newest, &name);
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
        st = newest_prefix(folder, state, out);
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
