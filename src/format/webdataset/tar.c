/* tar.c - the members of a tar archive. */
#include <string.h>
#include <zlib.h>

#include "base/mem.h"
#include "format/codec/gzip.h"
#include "format/codec/limit.h"
#include "format/webdataset/tar.h"

#define BLOCK    512
#define MAX_NAME (1 << 16)
#define MAX_PAX  (1 << 20)

void tar_init(tar *t, const seek_file *f)
{
    memset(t, 0, sizeof *t);
    t->f = f;
}

void tar_release(tar *t)
{
    buf_release(&t->name);
}

static manta_status fail_at_member(const tar *t, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: offset %llu: %s", t->f->path, (unsigned long long)t->at, what);
}

static manta_status read_block(tar *t, uint64_t at, uint8_t *to)
{
    if (at < t->window_at || at + BLOCK > t->window_at + t->window_n) {
        uint64_t left = t->f->size - at; /* the caller has compared */
        t->window_n = left < sizeof t->window ? (size_t)left : sizeof t->window;
        t->window_at = at;
        TRY(seek_read(t->f, at, t->window, t->window_n, "a header"));
    }
    memcpy(to, t->window + (at - t->window_at), BLOCK);
    return MANTA_OK;
}

/* ---- header -------------------------------------------------------------------------------- */

/* Octal digits among spaces and zero bytes, or GNU's base 256. */
static bool parse_number(const uint8_t *p, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    size_t i = 0;

    if (p[0] & 0x80) {
        if (p[0] != 0x80) return false; /* negative, or more than 88 bits */
        for (i = 1; i < n; i++) {
            if (v >> 56) return false;
            v = v << 8 | p[i];
        }
        *out = v;
        return true;
    }
    while (i < n && p[i] == ' ') i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v >> 61) return false;
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    for (; i < n; i++) {
        if (p[i] != ' ' && p[i] != 0) return false;
    }
    *out = v;
    return true;
}

/* The sum of all bytes, the sum's own place taken as spaces. Some old programs
 * added signed bytes. */
static bool sum_is_right(const uint8_t *h)
{
    uint64_t said;
    int64_t sum = 0, odd = 0;

    if (!parse_number(h + 148, 8, &said)) return false;
    for (int i = 0; i < BLOCK; i++) {
        uint8_t b = i >= 148 && i < 156 ? ' ' : h[i];
        sum += b;
        odd += (int8_t)b;
    }
    return said == (uint64_t)sum || (odd >= 0 && said == (uint64_t)odd);
}

static bool is_zero(const uint8_t *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Behind the end only zeros may follow: in archives that were joined the members
 * of the second would be lost without a word. */
static manta_status check_tail(tar *t)
{
    uint8_t chunk[4096];

    for (uint64_t at = t->at; at < t->f->size;) {
        uint64_t left = t->f->size - at;
        size_t n = left < sizeof chunk ? (size_t)left : sizeof chunk;
        TRY(seek_read(t->f, at, chunk, n, "the end"));
        if (!is_zero(chunk, n)) {
            return manta_fail(
                MANTA_ECORRUPT,
                "%s: bytes follow the archive's end at offset %llu, expected zeros (two archives "
                "joined?)",
                t->f->path, (unsigned long long)t->at);
        }
        at += n;
    }
    return MANTA_OK;
}

/* ---- long names and pax ------------------------------------------------------------------------- */

/* The contents of a header's own member, as text in memory of the caller's. */
static manta_status read_text(tar *t, uint64_t size, size_t most, buf *out)
{
    if (size > most) return fail_at_member(t, "the text of a header is too long to be believed");
    TRY(buf_try_reserve(out, (size_t)size + 1, "a header of a tar archive"));
    out->n = 0;
    TRY(seek_read(t->f, t->at + BLOCK, out->at, (size_t)size, "a name"));
    out->n = (size_t)size;
    out->at[out->n] = '\0';
    return MANTA_OK;
}

static manta_status long_name(tar *t, uint64_t size)
{
    TRY(read_text(t, size, MAX_NAME, &t->name));
    buf_cut(&t->name, strnlen(t->name.at, t->name.n));
    t->has_name = true;
    return MANTA_OK;
}

static bool parse_decimal(const char *p, size_t n, uint64_t *out)
{
    uint64_t v = 0;

    if (n == 0) return false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9' || v > (UINT64_MAX - 9) / 10) return false;
        v = v * 10 + (uint64_t)(p[i] - '0');
    }
    *out = v;
    return true;
}

static bool key_is(const char *key, size_t n, const char *name)
{
    return n == strlen(name) && memcmp(key, name, n) == 0;
}

/* One record, "KEY=VALUE", of a pax header. `global` ones stand for all members
 * that follow; a path or a size cannot be meant so. */
static manta_status pax_record(tar *t, const char *at, size_t n, bool global)
{
    const char *eq = memchr(at, '=', n);

    if (!eq) return fail_at_member(t, "a record of a pax header has no '='");
    size_t key = (size_t)(eq - at), size = n - key - 1;
    if (key > 10 && memcmp(at, "GNU.sparse", 10) == 0) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: offset %llu: the member is sparse, which is not read",
                          t->f->path, (unsigned long long)t->at);
    }
    if (!key_is(at, key, "path") && !key_is(at, key, "size")) return MANTA_OK;
    if (global) return fail_at_member(t, "a global pax header gives a path or a size");
    if (at[0] == 's') {
        t->has_size = parse_decimal(eq + 1, size, &t->size);
        return t->has_size ? MANTA_OK : fail_at_member(t, "the size in a pax header is no number");
    }
    if (size > MAX_NAME || memchr(eq + 1, 0, size))
        return fail_at_member(t, "the path in a pax header is too long or has a NUL in it");
    t->name.n = 0;
    buf_add(&t->name, eq + 1, size);
    t->has_name = true;
    return MANTA_OK;
}

/* Records "LENGTH KEY=VALUE\n", the length counting all of itself. */
static manta_status pax_header(tar *t, uint64_t size, bool global)
{
    buf text = {0};
    manta_status st = read_text(t, size, MAX_PAX, &text);

    for (size_t at = 0; !st && at < text.n;) {
        const char *p = text.at + at, *space = memchr(p, ' ', text.n - at);
        uint64_t n;
        if (!space || !parse_decimal(p, (size_t)(space - p), &n) || n > text.n - at ||
            n < (size_t)(space - p) + 2 || p[n - 1] != '\n') {
            st = fail_at_member(t, "a record of a pax header has a wrong length");
            break;
        }
        st = pax_record(t, space + 1, (size_t)n - (size_t)(space - p) - 2, global);
        at += (size_t)n;
    }
    buf_release(&text);
    return st;
}

/* ---- members ----------------------------------------------------------------------------------------- */

/* ustar splits a long path at a slash: prefix, then name. */
static void plain_name(tar *t, const uint8_t *h)
{
    size_t prefix = 0, name = strnlen((const char *)h, 100);

    if (memcmp(h + 257, "ustar\0", 6) == 0) prefix = strnlen((const char *)h + 345, 155);
    if (prefix) {
        memcpy(t->plain, h + 345, prefix);
        t->plain[prefix++] = '/';
    }
    memcpy(t->plain + prefix, h, name);
    t->plain[prefix + name] = '\0';
}

static bool is_file(uint8_t type)
{
    return type == '0' || type == 0 || type == '7';
}

/* Links, folders and devices have no contents, whatever their size says. */
static bool is_bare(uint8_t type)
{
    return type >= '1' && type <= '6';
}

static manta_status check_header(tar *t, const uint8_t *h, uint64_t *size)
{
    if (!sum_is_right(h))
        return fail_at_member(t, "the checksum of a header is wrong, expected a tar archive");
    if (!parse_number(h + 124, 12, size)) return fail_at_member(t, "the size of a member is no number");
    if (t->has_size && h[156] != 'x' && h[156] != 'L' && h[156] != 'K' && h[156] != 'g') *size = t->size;
    if (is_bare(h[156])) *size = 0;
    if (*size > t->f->size - t->at - BLOCK) {
        return manta_fail(MANTA_ECORRUPT, "%s: offset %llu: the member has %llu bytes, but only %llu follow",
                          t->f->path, (unsigned long long)t->at, (unsigned long long)*size,
                          (unsigned long long)(t->f->size - t->at - BLOCK));
    }
    return MANTA_OK;
}

static manta_status read_special_member(tar *t, uint8_t type, uint64_t size)
{
    switch (type) {
    case 'L': return long_name(t, size);
    case 'x':
    case 'X': return pax_header(t, size, false);
    case 'g': return pax_header(t, size, true);
    case 'S':
        return manta_fail(MANTA_EUNSUPPORTED, "%s: offset %llu: the member is sparse, which is not read",
                          t->f->path, (unsigned long long)t->at);
    default: break;
    }
    if (type != 'K') t->has_name = t->has_size = false; /* what they were for is passed over */
    return MANTA_OK;
}

static void step_to_next(tar *t, uint64_t size)
{
    uint64_t padded = (size + BLOCK - 1) / BLOCK * BLOCK; /* size lies inside the file: no overflow */
    uint64_t left = t->f->size - t->at - BLOCK;

    t->at += BLOCK + (padded < left ? padded : left); /* the last padding may be missing */
}

manta_status tar_next(tar *t, tar_member *m, bool *end)
{
    uint8_t h[BLOCK];
    uint64_t size = 0;

    *end = false;
    for (;;) {
        if (t->at == t->f->size) {
            *end = true;
            if (t->at == 0) return fail_at_member(t, "the file is empty, expected a tar archive");
            return t->has_name || t->has_size ? fail_at_member(t, "a header's member is missing") : MANTA_OK;
        }
        if (t->f->size - t->at < BLOCK) return fail_at_member(t, "a header is cut off");
        TRY(read_block(t, t->at, h));
        if (is_zero(h, BLOCK)) {
            *end = true;
            TRY(check_tail(t));
            t->at = t->f->size;
            return t->has_name || t->has_size ? fail_at_member(t, "a header's member is missing") : MANTA_OK;
        }
        TRY(check_header(t, h, &size));
        if (is_file(h[156])) break;
        TRY(read_special_member(t, h[156], size));
        step_to_next(t, size);
    }
    plain_name(t, h);
    *m = (tar_member){.name = t->has_name ? buf_text(&t->name) : t->plain, .at = t->at + BLOCK, .size = size};
    t->has_name = t->has_size = false;
    step_to_next(t, size);
    return MANTA_OK;
}

/* ---- gzip ------------------------------------------------------------------------------------------- */

manta_status tar_is_packed(const seek_file *f, bool *out)
{
    uint8_t head[2] = {0};

    *out = false;
    if (f->size < sizeof head) return MANTA_OK;
    TRY(seek_read(f, 0, head, sizeof head, "a header"));
    *out = gzip_is(head, sizeof head);
    return MANTA_OK;
}

/* Memory that grows with what was really unpacked. */
typedef struct block {
    uint8_t *at;
    size_t n, size;
} block;

static manta_status grow_block(const char *path, block *b)
{
    size_t size = b->size ? b->size * 2 : 1 << 16;
    uint8_t *at = mem_try_raw(size);

    if (!at) return manta_fail(MANTA_ENOMEM, "%s: no memory for %zu unpacked bytes", path, size);
    if (b->n) memcpy(at, b->at, b->n);
    mem_try_free(b->at);
    b->at = at;
    b->size = size;
    return MANTA_OK;
}

static manta_status inflate_all(z_stream *z, const seek_file *f, block *b)
{
    uint8_t chunk[1 << 14];
    uint64_t at = 0, most = limit_most(f->size);
    int r = Z_OK;

    for (;;) {
        if (z->avail_in == 0 && at < f->size) {
            size_t n = f->size - at < sizeof chunk ? (size_t)(f->size - at) : sizeof chunk;
            TRY(seek_read(f, at, chunk, n, "gzip data"));
            z->next_in = chunk;
            z->avail_in = (uInt)n;
            at += n;
        }
        if (r == Z_STREAM_END) { /* members may follow one another */
            if (z->avail_in == 0) return MANTA_OK;
            if (inflateReset2(z, 31) != Z_OK)
                return manta_fail(MANTA_ENOMEM, "%s: zlib has no memory", f->path);
        }
        if (b->n == b->size) TRY(grow_block(f->path, b));
        size_t room = b->size - b->n < 1u << 30 ? b->size - b->n : 1u << 30;
        z->next_out = b->at + b->n;
        z->avail_out = (uInt)room;
        uint64_t offset = at - z->avail_in;
        r = inflate(z, Z_NO_FLUSH);
        b->n += room - z->avail_out;
        if (b->n > most) return limit_unpacked(f->path, f->size, b->n);
        if (r == Z_BUF_ERROR && at == f->size) {
            return manta_fail(MANTA_ECORRUPT, "%s: the gzip data is cut off at offset %llu", f->path,
                              (unsigned long long)at);
        }
        if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR) {
            return manta_fail(MANTA_ECORRUPT, "%s: the gzip data is damaged at offset %llu", f->path,
                              (unsigned long long)offset);
        }
    }
}

manta_status tar_unpack(const seek_file *f, seek_file *out)
{
    z_stream z = {0};
    block b = {0};

    if (inflateInit2(&z, 31) != Z_OK) return manta_fail(MANTA_ENOMEM, "%s: zlib has no memory", f->path);
    manta_status st = inflate_all(&z, f, &b);
    inflateEnd(&z);
    if (st) {
        mem_try_free(b.at);
        return st;
    }
    *out = seek_take(f->path, b.at, b.n);
    return MANTA_OK;
}
