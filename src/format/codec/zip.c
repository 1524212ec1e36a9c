/* zip.c - zip archives in memory.
 *
 *   [local header, name, bytes] ...  [directory entry] ...  [zip64 end, locator]  end
 *
 * The directory at the end is what is believed, after every offset and size in
 * it has been checked against the file; of a local header only its length is. */
#include <libdeflate.h>
#include <string.h>

#include "base/mem.h"
#include "format/codec/gzip.h"
#include "format/codec/limit.h"
#include "format/codec/zip.h"

#define SIG_LOCAL   0x04034b50u
#define SIG_ENTRY   0x02014b50u
#define SIG_END     0x06054b50u
#define SIG_END64   0x06064b50u
#define SIG_LOCATOR 0x07064b50u

static uint64_t le(const uint8_t *p, int bytes)
{
    uint64_t v = 0;

    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)le(p, 4);
}

/* Where the directory lies and how many entries it has. */
typedef struct directory {
    uint64_t n, size, at;
} directory;

static manta_status find_end(const zip *z, size_t *out)
{
    size_t longest = 22 + 65535;

    for (size_t back = 22; back <= z->size && back <= longest; back++) {
        size_t at = z->size - back;
        if (le32(z->data + at) == SIG_END && le(z->data + at + 20, 2) == back - 22) {
            *out = at;
            return MANTA_OK;
        }
    }
    return manta_fail(MANTA_ECORRUPT,
                      "%s: no zip directory at the end (offset %zu), expected a whole zip archive", z->path,
                      z->size);
}

static manta_status read_end64(const zip *z, size_t end, directory *d)
{
    if (end < 20 || le32(z->data + end - 20) != SIG_LOCATOR) {
        return manta_fail(MANTA_ECORRUPT, "%s: no zip64 locator before offset %zu", z->path, end);
    }
    uint64_t at = le(z->data + end - 12, 8);
    if (z->size < 56 || at > z->size - 56 || le32(z->data + at) != SIG_END64) {
        return manta_fail(MANTA_ECORRUPT, "%s: no zip64 record at offset %llu", z->path,
                          (unsigned long long)at);
    }
    d->n = le(z->data + at + 32, 8);
    d->size = le(z->data + at + 40, 8);
    d->at = le(z->data + at + 48, 8);
    return MANTA_OK;
}

static manta_status read_end(const zip *z, directory *d)
{
    size_t end = 0;

    TRY(find_end(z, &end));
    const uint8_t *p = z->data + end;
    d->n = le(p + 10, 2);
    d->size = le32(p + 12);
    d->at = le32(p + 16);
    if (le(p + 4, 2) != 0 && le(p + 4, 2) != 0xffff) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: the zip archive is in several volumes, expected one",
                          z->path);
    }
    if (d->n == 0xffff || d->size == 0xffffffff || d->at == 0xffffffff) TRY(read_end64(z, end, d));
    /* an entry has at least 46 bytes, so this bounds what is allocated for them */
    if (d->at > end || d->size > end - d->at || d->n > d->size / 46) {
        return manta_fail(
            MANTA_ECORRUPT,
            "%s: its directory of %llu entries and %llu bytes at offset %llu does not fit before "
            "offset %zu",
            z->path, (unsigned long long)d->n, (unsigned long long)d->size, (unsigned long long)d->at, end);
    }
    return MANTA_OK;
}

/* The 64-bit values of an entry's extra field, in the order they are missing. */
static bool read_extra64(const uint8_t *extra, size_t n, uint64_t *size, uint64_t *packed, uint64_t *at)
{
    uint64_t *want[3] = {size, packed, at};

    while (n >= 4) {
        size_t len = (size_t)le(extra + 2, 2);
        if (len > n - 4) return false;
        if (le(extra, 2) == 1) {
            const uint8_t *p = extra + 4, *end = p + len;
            for (int i = 0; i < 3; i++) {
                if (*want[i] != 0xffffffff) continue;
                if (end - p < 8) return false;
                *want[i] = le(p, 8);
                p += 8;
            }
            return true;
        }
        extra += 4 + len;
        n -= 4 + len;
    }
    return true;
}

static manta_status bad_entry(const zip *z, size_t at, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: the zip directory entry at offset %zu %s", z->path, at, what);
}

/* Finds the packed bytes behind the local header. */
static manta_status locate_entry(const zip *z, zip_entry *e, uint64_t local, size_t entry_at)
{
    if (z->size < 30 || local > z->size - 30 || le32(z->data + local) != SIG_LOCAL) {
        return bad_entry(z, entry_at, "points to no local header");
    }
    size_t skip = 30 + (size_t)le(z->data + local + 26, 2) + (size_t)le(z->data + local + 28, 2);
    if (skip > z->size - local || e->packed > z->size - local - skip) {
        return bad_entry(z, entry_at, "describes bytes beyond the end of the file");
    }
    e->at = (size_t)local + skip;
    return MANTA_OK;
}

static manta_status read_entry(zip *z, size_t at, size_t end, size_t *next)
{
    const uint8_t *p = z->data + at;

    if (end - at < 46 || le32(p) != SIG_ENTRY) return bad_entry(z, at, "is not one");
    size_t name = (size_t)le(p + 28, 2), extra = (size_t)le(p + 30, 2), comment = (size_t)le(p + 32, 2);
    if (name + extra + comment > end - at - 46) return bad_entry(z, at, "goes beyond the directory");
    uint64_t packed = le32(p + 20), size = le32(p + 24), local = le32(p + 42);
    if (!read_extra64(p + 46 + name, extra, &size, &packed, &local))
        return bad_entry(z, at, "has a broken zip64 field");
    if (memchr(p + 46, 0, name)) return bad_entry(z, at, "has a name with a zero byte");
    zip_entry e = {.method = (int)le(p + 10, 2), .crc = le32(p + 16), .packed = packed, .size = size};
    if (le(p + 8, 2) & 1) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: the member at offset %zu is encrypted", z->path, at);
    }
    if (e.method == 0 && packed != size) return bad_entry(z, at, "is stored with two different sizes");
    if (size > 0 && size / GZIP_MAX_RATIO > packed)
        return bad_entry(z, at, "promises more than deflate can pack");
    TRY(locate_entry(z, &e, local, at));
    e.name = mem_strndup((const char *)p + 46, name);
    z->entries[z->n++] = e;
    *next = at + 46 + name + extra + comment;
    return MANTA_OK;
}

static manta_status parse_directory(zip *z)
{
    directory d;
    void *m = NULL;

    TRY(read_end(z, &d));
    TRY(mem_try_array((int64_t)d.n + 1, sizeof *z->entries, "a zip directory", &m));
    z->entries = m;
    size_t at = (size_t)d.at, end = (size_t)(d.at + d.size), total = 0;
    uint64_t unpacked = 0;
    for (uint64_t i = 0; i < d.n; i++) {
        size_t here = at;
        TRY(read_entry(z, here, end, &at));
        /* Members that share bytes make small files that unpack to anything. */
        total += z->entries[z->n - 1].packed;
        if (total > z->size) return bad_entry(z, here, "overlaps others");
        unpacked += z->entries[z->n - 1].size; /* at most 1032 times the file: no overflow */
    }
    /* Of many members each may be within the bounds, and all of them not. */
    return unpacked / LIMIT_RATIO > total ? limit_unpacked(z->path, total, unpacked) : MANTA_OK;
}

manta_status zip_parse(const char *path, const uint8_t *data, size_t size, zip *out)
{
    zip z = {.path = path, .data = data, .size = size};
    manta_status st = parse_directory(&z);

    if (st) {
        zip_release(&z);
        return st;
    }
    *out = z;
    return MANTA_OK;
}

void zip_release(zip *z)
{
    for (int i = 0; i < z->n; i++) mem_free(z->entries[i].name);
    mem_try_free(z->entries);
    *z = (zip){0};
}

const zip_entry *zip_find(const zip *z, const char *name)
{
    for (int i = 0; i < z->n; i++) {
        if (strcmp(z->entries[i].name, name) == 0) return &z->entries[i];
    }
    return NULL;
}

static manta_status unpack_entry(const zip *z, const zip_entry *e, const uint8_t **bytes, void **owned)
{
    *bytes = z->data + e->at;
    if (e->method == 0) return MANTA_OK;
    if (e->method != 8) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the member %s has compression method %d, expected 0 (stored) or 8 (deflate)",
                          z->path, e->name, e->method);
    }
    char *what = mem_printf("%s: the member %s at offset %zu", z->path, e->name, e->at);
    manta_status st = limit_unpacked(what, e->packed, e->size);
    if (!st && !(*owned = mem_try_raw(e->size ? e->size : 1)))
        st = manta_fail(MANTA_ENOMEM, "%s: no memory for its %zu bytes", what, e->size);
    if (!st) st = gzip_deflated(what, z->data + e->at, e->packed, *owned, e->size);
    mem_free(what);
    *bytes = *owned;
    return st;
}

manta_status zip_extract(const zip *z, const zip_entry *e, const uint8_t **bytes, void **owned)
{
    const uint8_t *b = NULL;
    void *o = NULL;
    manta_status st = unpack_entry(z, e, &b, &o);

    if (!st && libdeflate_crc32(0, b, e->size) != e->crc) {
        st = manta_fail(MANTA_ECORRUPT,
                        "%s: the checksum of the member %s at offset %zu is %08x, expected %08x", z->path,
                        e->name, e->at, libdeflate_crc32(0, b, e->size), e->crc);
    }
    if (st) {
        mem_try_free(o);
        return st;
    }
    *bytes = b;
    *owned = o;
    return MANTA_OK;
}

/* ---- writing --------------------------------------------------------------------------- */

static void put_le(buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) buf_add_char(b, (char)(v >> 8 * i));
}

static uint64_t low32(uint64_t v)
{
    return v < 0xffffffff ? v : 0xffffffff;
}

/* Fields that local header and directory entry share, from "version needed" on. */
static void put_common(buf *b, const char *name, uint64_t size, uint32_t crc, bool wide, size_t extra)
{
    put_le(b, wide ? 45 : 20, 2);
    put_le(b, 0x0800, 2); /* names are UTF-8 */
    put_le(b, 0, 2); /* stored */
    put_le(b, 0, 2); /* no time: the same arrays make the same file */
    put_le(b, 0x21, 2); /* 1980-01-01, the earliest there is */
    put_le(b, crc, 4);
    put_le(b, low32(size), 4);
    put_le(b, low32(size), 4);
    put_le(b, strlen(name), 2);
    put_le(b, extra, 2);
}

manta_status zip_begin(zip_writer *z, const char *name, uint64_t size, uint32_t crc)
{
    bool big = size >= 0xffffffff, far = z->at >= 0xffffffff;
    buf b = {0};

    if (strlen(name) > 65535) return manta_fail(MANTA_EINVAL, "zip: the name %.40s... is too long", name);
    put_le(&b, SIG_LOCAL, 4);
    put_common(&b, name, size, crc, big, big ? 20 : 0);
    buf_add_text(&b, name);
    if (big) {
        put_le(&b, 1, 2);
        put_le(&b, 16, 2);
        put_le(&b, size, 8);
        put_le(&b, size, 8);
    }
    size_t extra = (size_t)(big ? 16 : 0) + (far ? 8 : 0);
    put_le(&z->directory, SIG_ENTRY, 4);
    put_le(&z->directory, 0x032d, 2); /* made on Unix */
    put_common(&z->directory, name, size, crc, big || far, extra ? extra + 4 : 0);
    put_le(&z->directory, 0, 2);
    put_le(&z->directory, 0, 2);
    put_le(&z->directory, 0, 2);
    put_le(&z->directory, (uint64_t)0100644 << 16, 4);
    put_le(&z->directory, low32(z->at), 4);
    buf_add_text(&z->directory, name);
    if (extra) {
        put_le(&z->directory, 1, 2);
        put_le(&z->directory, extra, 2);
        if (big) put_le(&z->directory, size, 8);
        if (big) put_le(&z->directory, size, 8);
        if (far) put_le(&z->directory, z->at, 8);
    }
    z->n++;
    manta_status st = zip_write(z, b.at, b.n);
    buf_release(&b);
    return st;
}

manta_status zip_write(zip_writer *z, const void *data, size_t n)
{
    TRY(file_writer_write(z->w, data, n));
    z->at += n;
    return MANTA_OK;
}

manta_status zip_add(zip_writer *z, const char *name, const void *data, size_t n)
{
    TRY(zip_begin(z, name, n, libdeflate_crc32(0, data, n)));
    return zip_write(z, data, n);
}

manta_status zip_to_sum(void *crc, const void *data, size_t n)
{
    uint32_t *sum = crc;

    *sum = libdeflate_crc32(*sum, data, n);
    return MANTA_OK;
}

manta_status zip_to_member(void *z, const void *data, size_t n)
{
    return zip_write(z, data, n);
}

manta_status zip_end(zip_writer *z)
{
    uint64_t at = z->at, size = z->directory.n;
    buf b = {0};

    TRY(zip_write(z, z->directory.at, z->directory.n));
    if (z->n >= 0xffff || at >= 0xffffffff) {
        put_le(&b, SIG_END64, 4);
        put_le(&b, 44, 8);
        put_le(&b, 45, 2);
        put_le(&b, 45, 2);
        put_le(&b, 0, 8);
        put_le(&b, z->n, 8);
        put_le(&b, z->n, 8);
        put_le(&b, size, 8);
        put_le(&b, at, 8);
        put_le(&b, SIG_LOCATOR, 4);
        put_le(&b, 0, 4);
        put_le(&b, z->at, 8);
        put_le(&b, 1, 4);
    }
    uint64_t n = z->n < 0xffff ? z->n : 0xffff;
    put_le(&b, SIG_END, 4);
    put_le(&b, 0, 4);
    put_le(&b, n, 2);
    put_le(&b, n, 2);
    put_le(&b, low32(size), 4);
    put_le(&b, low32(at), 4);
    put_le(&b, 0, 2);
    manta_status st = zip_write(z, b.at, b.n);
    buf_release(&b);
    return st;
}

void zip_writer_release(zip_writer *z)
{
    buf_release(&z->directory);
}
