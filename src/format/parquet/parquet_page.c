/* parquet_page.c - the pages of a column chunk. */
#include <libdeflate.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/codec/limit.h"
#include "format/parquet/parquet_codec.h"
#include "format/parquet/parquet_page.h"
#include "format/parquet/thrift.h"

/* Runs can say many values in few bytes. Beyond what the bytes of a page could
 * hold one by one, so many are believed: no writer makes larger pages. */
#define MAX_RUN_VALUES (1 << 24)

manta_status parquet_grow(void *p, size_t *size, size_t need, size_t keep)
{
    void *old, *more;

    if (need <= *size && need > 0) return MANTA_OK;
    memcpy(&old, p, sizeof old);
    size_t room = need < SIZE_MAX / 2 ? need + (keep ? need / 2 : 0) + 64 : need;
    more = mem_try_raw(room);
    if (!more) return manta_fail(MANTA_ENOMEM, "no memory for %zu bytes of a Parquet column", room);
    if (keep) memcpy(more, old, keep);
    mem_try_free(old);
    memcpy(p, &more, sizeof more);
    *size = room;
    return MANTA_OK;
}

manta_status parquet_page_fail(const parquet_pages *p, const parquet_page *page, manta_status code,
                               const char *fmt, ...)
{
    char text[240];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return manta_fail(code, "%s: column '%s', page at offset %llu: %s", p->f->path, p->leaf->name,
                      (unsigned long long)page->offset, text);
}

const char *parquet_encoding_name(int encoding)
{
    static const char *const names[] = {
        "PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
        "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
        "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};

    return encoding >= 0 && encoding < 10 ? names[encoding] : "?";
}

manta_status parquet_pages_open(const seek_file *f, const parquet_leaf *leaf, const parquet_chunk *chunk,
                                parquet_pages *out)
{
    parquet_pages p = {.f = f, .leaf = leaf, .chunk = chunk};
    void *m = NULL;

    if (chunk->refused) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: column '%s' %s", f->path, leaf->name, chunk->refused);
    }
    if (!parquet_codec_known(chunk->codec)) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: column '%s' is packed with %s (codec %d), expected none, SNAPPY, GZIP or ZSTD",
                          f->path, leaf->name, parquet_codec_name(chunk->codec), chunk->codec);
    }
    TRY(mem_try_array((int64_t)chunk->size + 1, 1, "a Parquet column", &m));
    p.packed = m;
    manta_status st = seek_read(f, chunk->at, p.packed, (size_t)chunk->size, "a column");
    if (st) {
        parquet_pages_close(&p);
        return st;
    }
    *out = p;
    return MANTA_OK;
}

void parquet_pages_close(parquet_pages *p)
{
    mem_try_free(p->packed);
    mem_try_free(p->body);
    *p = (parquet_pages){0};
}

/* ---- heads ------------------------------------------------------------------------------ */

typedef struct head {
    int64_t type, unpacked, packed;
    bool has_crc;
    uint32_t crc;
    bool has_kind; /* the structure that belongs to the type is there */
    int64_t values, encoding, definition, repetition; /* encodings of levels; sizes in v2 */
    bool is_packed; /* v2 */
} head;

/* DataPageHeader: 1 num_values, 2 encoding, 3, 4 encodings of the levels.
 * DictionaryPageHeader: 1, 2.
 * DataPageHeaderV2: 1 num_values, 4 encoding, 5 definition, 6 repetition size, 7 is_compressed. */
static void read_kind(thrift *t, int32_t id, head *h)
{
    thrift_field f = {0};
    bool v2 = id == 8;

    h->has_kind = true;
    while (thrift_next(t, &f)) {
        if (f.id == 1) {
            h->values = thrift_int(t, &f);
        } else if (f.id == (v2 ? 4 : 2)) {
            h->encoding = thrift_int(t, &f);
        } else if (f.id == (v2 ? 5 : 3) && id != 7) {
            h->definition = thrift_int(t, &f);
        } else if (f.id == (v2 ? 6 : 4) && id != 7) {
            h->repetition = thrift_int(t, &f);
        } else if (f.id == 7 && v2) {
            h->is_packed = thrift_bool(t, &f);
        } else {
            thrift_skip(t, f.type);
        }
    }
}

enum { DATA = 0, DICTIONARY = 2, DATA_V2 = 3 };

/* PageHeader: 1 type, 2 uncompressed, 3 compressed size, 4 crc, 5 data, 7
 * dictionary, 8 data v2. */
static void read_head(thrift *t, head *h)
{
    thrift_field f = {0};

    *h = (head){.type = -1, .unpacked = -1, .packed = -1, .values = -1, .encoding = -1, .is_packed = true};
    while (thrift_next(t, &f)) {
        switch (f.id) {
        case 1: h->type = thrift_int(t, &f); break;
        case 2: h->unpacked = thrift_int(t, &f); break;
        case 3: h->packed = thrift_int(t, &f); break;
        case 4:
            h->crc = (uint32_t)thrift_int(t, &f);
            h->has_crc = true;
            break;
        case 5:
        case 7:
        case 8:
            if (f.id - 5 == h->type && thrift_struct(t, &f)) {
                read_kind(t, f.id, h);
            } else {
                thrift_skip(t, f.type);
            }
            break;
        default: thrift_skip(t, f.type);
        }
    }
}

static manta_status check_head(const parquet_pages *p, const parquet_page *page, const head *h)
{
    size_t left = (size_t)p->chunk->size - p->at;

    if (h->unpacked < 0 || h->packed < 0 || (uint64_t)h->packed > left) {
        return parquet_page_fail(p, page, MANTA_ECORRUPT,
                                 "it has %lld bytes, expected at most the %zu of the column",
                                 (long long)h->packed, left);
    }
    if (h->unpacked > INT32_MAX ||
        (uint64_t)h->unpacked > parquet_codec_most(p->chunk->codec, (size_t)h->packed)) {
        return parquet_page_fail(p, page, MANTA_ECORRUPT, "its %lld bytes cannot become %lld",
                                 (long long)h->packed, (long long)h->unpacked);
    }
    if (limit_unpacked("it", (uint64_t)h->packed, (uint64_t)h->unpacked))
        return parquet_page_fail(p, page, MANTA_ENOMEM, "%s", manta_error_text());
    if (h->has_crc && libdeflate_crc32(0, p->packed + p->at, (size_t)h->packed) != h->crc) {
        return parquet_page_fail(p, page, MANTA_ECORRUPT, "its checksum is wrong");
    }
    return MANTA_OK;
}

/* ---- bodies ------------------------------------------------------------------------------- */

static manta_status unpack_page(parquet_pages *p, const parquet_page *page, const uint8_t *data, size_t size,
                                size_t n)
{
    char what[300];

    TRY(parquet_grow(&p->body, &p->body_size, n ? n : 1, 0));
    snprintf(what, sizeof what, "%s: column '%.80s', page at offset %llu", p->f->path, p->leaf->name,
             (unsigned long long)page->offset);
    return parquet_codec_unpack(p->chunk->codec, what, data, size, p->body, n);
}

/* Levels of page v1: a length, then runs. */
static manta_status split_level(const parquet_pages *p, parquet_page *page, int most, int64_t encoding,
                                const uint8_t **level, size_t *n)
{
    if (most == 0) return MANTA_OK;
    if (encoding != PARQUET_ENCODING_RLE) {
        return parquet_page_fail(p, page, MANTA_EUNSUPPORTED,
                                 "its levels are in the encoding %s (%lld), expected RLE",
                                 parquet_encoding_name((int)encoding), (long long)encoding);
    }
    if (page->size < 4) return parquet_page_fail(p, page, MANTA_ECORRUPT, "its levels are cut off");
    const uint8_t *d = page->data;
    uint32_t size = (uint32_t)d[0] | (uint32_t)d[1] << 8 | (uint32_t)d[2] << 16 | (uint32_t)d[3] << 24;
    if (size > page->size - 4) return parquet_page_fail(p, page, MANTA_ECORRUPT, "its levels are cut off");
    *level = d + 4;
    *n = size;
    page->data += 4 + (size_t)size;
    page->size -= 4 + (size_t)size;
    return MANTA_OK;
}

static manta_status split_v1(parquet_pages *p, parquet_page *page, const head *h)
{
    TRY(unpack_page(p, page, p->packed + p->at, (size_t)h->packed, (size_t)h->unpacked));
    page->data = p->body;
    page->size = (size_t)h->unpacked;
    TRY(split_level(p, page, p->leaf->max_rep, h->repetition, &page->repetition, &page->repetition_size));
    return split_level(p, page, p->leaf->max_def, h->definition, &page->definition, &page->definition_size);
}

static manta_status split_v2(parquet_pages *p, parquet_page *page, const head *h)
{
    const uint8_t *at = p->packed + p->at;

    if (h->repetition < 0 || h->definition < 0 || h->repetition > h->packed ||
        h->definition > h->packed - h->repetition || h->repetition + h->definition > h->unpacked) {
        return parquet_page_fail(p, page, MANTA_ECORRUPT, "its levels are longer than the page");
    }
    size_t levels = (size_t)(h->repetition + h->definition);
    page->repetition = at;
    page->repetition_size = (size_t)h->repetition;
    page->definition = at + h->repetition;
    page->definition_size = (size_t)h->definition;
    page->data = at + levels;
    page->size = (size_t)h->packed - levels;
    if (!h->is_packed || page->size == 0) return MANTA_OK;
    size_t n = (size_t)h->unpacked - levels;
    TRY(unpack_page(p, page, page->data, page->size, n));
    page->data = p->body;
    page->size = n;
    return MANTA_OK;
}

static manta_status split_page(parquet_pages *p, parquet_page *page, const head *h)
{
    page->kind = h->type == DATA || h->type == DATA_V2 ? PARQUET_PAGE_DATA
                 : h->type == DICTIONARY               ? PARQUET_PAGE_DICTIONARY
                                                       : PARQUET_PAGE_OTHER;
    page->values = h->values;
    page->encoding = (int)h->encoding;
    if (page->kind == PARQUET_PAGE_OTHER) return MANTA_OK;
    if (!h->has_kind || h->values < 0 || h->values > INT32_MAX) {
        return parquet_page_fail(p, page, MANTA_ECORRUPT, "its head does not say how many values it has");
    }
    if (h->type == DATA) {
        TRY(split_v1(p, page, h));
    } else if (h->type == DATA_V2) {
        TRY(split_v2(p, page, h));
    } else {
        TRY(unpack_page(p, page, p->packed + p->at, (size_t)h->packed, (size_t)h->unpacked));
        page->data = p->body;
        page->size = (size_t)h->unpacked;
    }
    uint64_t bytes = page->repetition_size + page->definition_size + page->size;
    if ((uint64_t)h->values > MAX_RUN_VALUES + 8 * bytes) {
        return parquet_page_fail(p, page, MANTA_ECORRUPT, "its %llu bytes claim to hold %lld values",
                                 (unsigned long long)bytes, (long long)h->values);
    }
    return MANTA_OK;
}

manta_status parquet_pages_next(parquet_pages *p, parquet_page *page)
{
    thrift t = thrift_read(p->packed + p->at, (size_t)p->chunk->size - p->at);
    head h;

    *page = (parquet_page){.offset = p->chunk->at + p->at};
    if (t.size == 0)
        return parquet_page_fail(p, page, MANTA_ECORRUPT, "the column ends before all of its values");
    read_head(&t, &h);
    if (t.wrong) return parquet_page_fail(p, page, MANTA_ECORRUPT, "its head is damaged: %s", t.wrong);
    p->at += t.at;
    TRY(check_head(p, page, &h));
    TRY(split_page(p, page, &h));
    p->at += (size_t)h.packed;
    return MANTA_OK;
}
