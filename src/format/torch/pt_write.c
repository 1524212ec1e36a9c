/* pt_write.c - writing dictionaries of tensors as torch.load() reads them.
 *
 * Every array becomes a storage of its own, row-major. The archive's root is
 * always "archive", so that the same arrays make the same bytes under any file
 * name. What aligns a storage are unused bytes before its member, which a
 * reader of archives never sees: it goes by the directory. The pickle comes
 * first, since torch.load() looks for the archive at the first byte. */
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "format/codec/elements.h"
#include "format/torch/pickle.h"
#include "format/torch/pt.h"

#define ALIGNMENT 64
#define ROOT      "archive/"

static const char *const storages[MANTA_DTYPE_COUNT] = {
    [MANTA_DTYPE_F32] = "FloatStorage", [MANTA_DTYPE_F64] = "DoubleStorage",
    [MANTA_DTYPE_F16] = "HalfStorage",  [MANTA_DTYPE_BF16] = "BFloat16Storage",
    [MANTA_DTYPE_I32] = "IntStorage",   [MANTA_DTYPE_I64] = "LongStorage",
    [MANTA_DTYPE_U8] = "ByteStorage",   [MANTA_DTYPE_BOOL] = "BoolStorage"};

/* ---- the pickle ---- */

static void put_le(buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) buf_add_char(b, (char)(v >> 8 * i));
}

static void put_text(buf *b, const char *text)
{
    buf_add_char(b, 'X');
    put_le(b, strlen(text), 4);
    buf_add_text(b, text);
}

/* Whole numbers from 0 on, as short as they can be. */
static void put_int(buf *b, int64_t v)
{
    if (v < 256) {
        buf_add_char(b, 'K');
        put_le(b, (uint64_t)v, 1);
    } else if (v < 65536) {
        buf_add_char(b, 'M');
        put_le(b, (uint64_t)v, 2);
    } else if (v <= INT32_MAX) {
        buf_add_char(b, 'J');
        put_le(b, (uint64_t)v, 4);
    } else {
        buf_add_text(b, "\x8a\x08");
        put_le(b, (uint64_t)v, 8);
    }
}

static void put_tuple(buf *b, int n, const int64_t *v)
{
    if (n == 0) {
        buf_add_char(b, ')');
        return;
    }
    if (n > 3) buf_add_char(b, '(');
    for (int i = 0; i < n; i++) put_int(b, v[i]);
    buf_add_char(b, n > 3 ? 't' : (char)(0x84 + n));
}

/* _rebuild_tensor_v2(("storage", torch.FloatStorage, "0", "cpu", n), 0, shape, strides, False, OrderedDict()) */
static void put_tensor(buf *b, int key, const manta_array *a)
{
    manta_array plain = manta_array_of(a->dtype, a->ndim, a->shape, NULL);
    char text[16];

    snprintf(text, sizeof text, "%d", key);
    buf_add_text(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(b, "storage");
    buf_printf(b, "ctorch\n%s\n", storages[a->dtype]);
    put_text(b, text);
    put_text(b, "cpu");
    put_int(b, manta_array_count(a));
    buf_add_text(b, "tQ");
    put_int(b, 0);
    put_tuple(b, a->ndim, a->shape);
    put_tuple(b, a->ndim, plain.strides);
    buf_add_text(b, "\x89"
                    "ccollections\nOrderedDict\n)RtR");
}

static void put_pickle(buf *b, int n, const manta_column *columns)
{
    buf_add_text(b, "\x80\x02}(");
    for (int i = 0; i < n; i++) {
        put_text(b, columns[i].name);
        put_tensor(b, i, &columns[i].array);
    }
    buf_add_text(b, "u.");
}

/* ---- the archive ---- */

static manta_status put_storage(zip_writer *z, int key, const manta_array *a)
{
    static const char nothing[ALIGNMENT];
    char name[32];
    uint64_t size = manta_array_bytes(a), head;
    uint32_t crc = 0;

    snprintf(name, sizeof name, ROOT "data/%d", key);
    /* what zip_begin() writes: header, name, and the 64-bit sizes where they are needed */
    head = 30 + strlen(name) + (size >= 0xffffffff ? 20 : 0);
    TRY(zip_write(z, nothing, (size_t)(-(z->at + head) % ALIGNMENT)));
    TRY(elements_each(a, zip_to_sum, &crc));
    TRY(zip_begin(z, name, size, crc));
    return elements_each(a, zip_to_member, z);
}

static manta_status put_archive(zip_writer *z, int n, const manta_column *columns)
{
    buf b = {0};
    manta_status st;

    put_pickle(&b, n, columns);
    st = zip_add(z, ROOT "data.pkl", b.at, b.n);
    buf_release(&b);
    if (!st) st = zip_add(z, ROOT "byteorder", "little", 6);
    for (int i = 0; i < n && !st; i++) st = put_storage(z, i, &columns[i].array);
    if (!st) st = zip_add(z, ROOT "version", "3\n", 2);
    return st ? st : zip_end(z);
}

static manta_status check_columns(const char *path, int n, const manta_column *columns)
{
    MAP(bool) names = {0};
    manta_status st = MANTA_OK;

    for (int i = 0; i < n && !st; i++) {
        const manta_column *c = &columns[i];
        if (!c->name) {
            st = manta_fail(MANTA_EINVAL, "%s: array %d has no name", path, i);
        } else if (!pickle_is_utf8((const uint8_t *)c->name, strlen(c->name))) {
            st = manta_fail(MANTA_EINVAL, "%s: the name '%s' is not UTF-8", path, c->name);
        } else if ((unsigned)c->array.dtype >= MANTA_DTYPE_COUNT) {
            st = manta_fail(MANTA_EINVAL, "%s: array '%s' has no dtype", path, c->name);
        } else if (map_find(&names, c->name)) {
            st = manta_fail(MANTA_EINVAL, "%s: two arrays are called '%s'", path, c->name);
        } else {
            *map_put(&names, c->name) = true;
        }
    }
    map_release(&names);
    return st;
}

manta_status pt_write(const char *path, int n, const manta_column *columns)
{
    zip_writer z = {0};
    file_writer *w = NULL;
    uint64_t bytes = 0; /* of the arrays; what is around them hardly counts */
    manta_status st;

    TRY(check_columns(path, n, columns));
    if ((st = file_writer_open(path, &w))) goto out;
    for (int i = 0; i < n; i++) bytes += manta_array_bytes(&columns[i].array);
    if ((st = file_writer_reserve(w, bytes))) goto out;
    z.w = w;
    if ((st = put_archive(&z, n, columns))) goto out;
    st = file_writer_commit(w);
out:
    file_writer_free(w);
    zip_writer_release(&z);
    return st;
}
