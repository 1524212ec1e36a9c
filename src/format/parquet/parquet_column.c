/* parquet_column.c - one leaf of one row group, from pages to values. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "format/codec/input.h"
#include "format/parquet/parquet_column.h"
#include "format/parquet/parquet_number.h"
#include "format/parquet/parquet_page.h"
#include "format/parquet/parquet_rle.h"

manta_status parquet_leaf_dtype(const char *path, const parquet_leaf *leaf, manta_dtype *out)
{
    bool bytes = leaf->type == PARQUET_BYTE_ARRAY || leaf->type == PARQUET_FIXED;

    if (leaf->max_rep > 1) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: column '%s' holds lists in lists, expected one at most",
                          path, leaf->name);
    }
    if (leaf->max_def > 64) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: column '%s' lies %d levels deep, expected at most 64",
                          path, leaf->name, leaf->max_def);
    }
    if (leaf->meaning == PARQUET_OTHER || (bytes && leaf->meaning == PARQUET_PLAIN_VALUE && leaf->max_rep)) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: column '%s' is %s (%s), expected numbers", path,
                          leaf->name, leaf->other ? leaf->other : "lists of bytes",
                          parquet_type_name(leaf->type));
    }
    if (bytes && leaf->meaning == PARQUET_PLAIN_VALUE) {
        *out = MANTA_DTYPE_COUNT;
    } else if (leaf->meaning == PARQUET_UNSIGNED) {
        *out = leaf->bits == 8 ? MANTA_DTYPE_U8 : leaf->bits == 16 ? MANTA_DTYPE_I32 : MANTA_DTYPE_I64;
    } else if (leaf->meaning == PARQUET_SIGNED) {
        *out = leaf->bits <= 32 ? MANTA_DTYPE_I32 : MANTA_DTYPE_I64;
    } else {
        *out = MANTA_DTYPE_F32;
    }
    return MANTA_OK;
}

void parquet_values_release(parquet_values *v)
{
    mem_try_free(v->data);
    mem_try_free(v->offsets);
    mem_try_free(v->present);
    *v = (parquet_values){0};
}

typedef struct reading {
    parquet_pages pages;
    parquet_page page;
    const parquet_leaf *leaf;
    int64_t first_row; /* of the group in the file */
    manta_dtype as; /* of numbers */
    size_t size; /* of one of them */
    bool bytes, allow_nan;
    bool cells; /* nulls are kept, of bytes too */
    int64_t seen; /* values, with those that are null */
    int64_t row_length; /* of the list that is being read */
    uint8_t *levels; /* repetition, then definition, of the page */
    size_t levels_size;
    uint32_t *indices;
    size_t indices_size;
    uint8_t *scratch; /* booleans, a byte each */
    size_t scratch_size;
    parquet_values dictionary;
    bool has_dictionary;
    parquet_values v;
} reading;

/* ---- numbers ------------------------------------------------------------------------------- */

static manta_status convert_values(reading *r, const uint8_t *from, size_t n, void *to)
{
    if (r->as == MANTA_DTYPE_F64) {
        parquet_to_f64(r->leaf, from, n, to);
        return MANTA_OK;
    }
    if (r->as == MANTA_DTYPE_F32) {
        parquet_to_f32(r->leaf, from, n, to);
        if (r->allow_nan) return MANTA_OK;
        int64_t bad = input_find_nan(to, MANTA_DTYPE_F32, (int64_t)n);
        if (bad < 0) return MANTA_OK;
        return parquet_page_fail(&r->pages, &r->page, MANTA_ENAN, "value %lld is NaN, expected a number",
                                 (long long)bad);
    }
    size_t bad = parquet_to_whole(r->leaf, r->as, from, n, to);
    if (bad == n) return MANTA_OK;
    return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT, "value %zu does not fit into %s", bad,
                             manta_dtype_name(r->as));
}

/* ---- plain values --------------------------------------------------------------------------- */

static manta_status too_few(reading *r, size_t n)
{
    return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT, "its bytes end before its %zu values", n);
}

/* Room for n more values (and `bytes` more bytes of theirs) at the end of v. */
static manta_status make_room(const reading *r, parquet_values *v, size_t n, size_t bytes)
{
    size_t used = r->bytes ? (v->n ? (size_t)v->offsets[v->n] : 0) : v->n * r->size;
    size_t more = r->bytes ? bytes : n * r->size;

    TRY(parquet_grow(&v->data, &v->data_size, used + more, used));
    if (!r->bytes) return MANTA_OK;
    size_t keep = v->offsets ? (v->n + 1) * sizeof *v->offsets : 0;
    TRY(parquet_grow(&v->offsets, &v->offsets_size, (v->n + n + 1) * sizeof *v->offsets, keep));
    if (!keep) v->offsets[0] = 0;
    return MANTA_OK;
}

static void push_bytes(parquet_values *v, const uint8_t *at, size_t n)
{
    uint64_t from = v->offsets[v->n];

    if (n) memcpy((uint8_t *)v->data + from, at, n);
    v->offsets[++v->n] = from + n;
}

static manta_status plain_bytes(reading *r, const uint8_t *at, size_t size, size_t n, parquet_values *v)
{
    size_t width = (size_t)r->leaf->width, least = r->leaf->type == PARQUET_BYTE_ARRAY ? 4 : width;

    if (n > size / least) return too_few(r, n);
    TRY(make_room(r, v, n, size)); /* their bytes are some of these */
    for (size_t i = 0; i < n; i++) {
        if (r->leaf->type == PARQUET_BYTE_ARRAY) {
            if (size < 4) return too_few(r, n);
            width = parquet_le32(at);
            at += 4;
            size -= 4;
        }
        if (size < width) return too_few(r, n);
        push_bytes(v, at, width);
        at += width;
        size -= width;
    }
    return MANTA_OK;
}

/* Spreads booleans, eight a byte or in runs, to a byte each. */
static manta_status spread_booleans(reading *r, size_t n, bool runs)
{
    const uint8_t *at = r->page.data;
    size_t size = r->page.size;

    if (runs) {
        if (size < 4) return too_few(r, n);
        uint32_t length = parquet_le32(at);
        if (length > size - 4) return too_few(r, n);
        at += 4;
        size = length;
    }
    TRY(parquet_grow(&r->scratch, &r->scratch_size, n ? n : 1, 0));
    if (runs) {
        parquet_rle rle = parquet_rle_of(at, size, 1);
        return parquet_rle_take_bytes(&rle, r->scratch, n) ? MANTA_OK : too_few(r, n);
    }
    if (size < (n + 7) / 8) return too_few(r, n);
    for (size_t i = 0; i < n; i++) r->scratch[i] = at[i / 8] >> (i & 7) & 1;
    return MANTA_OK;
}

/* n values of the page's data to the end of v. */
static manta_status read_plain(reading *r, size_t n, parquet_values *v)
{
    const uint8_t *at = r->page.data;
    size_t size = parquet_physical_size(r->leaf);

    if (r->bytes) return plain_bytes(r, at, r->page.size, n, v);
    if (r->leaf->type == PARQUET_BOOLEAN) {
        TRY(spread_booleans(r, n, r->page.encoding == PARQUET_ENCODING_RLE));
        at = r->scratch;
    } else if (r->page.size / size < n) {
        return too_few(r, n);
    }
    TRY(make_room(r, v, n, 0));
    TRY(convert_values(r, at, n, (uint8_t *)v->data + v->n * r->size));
    v->n += n;
    return MANTA_OK;
}

/* ---- dictionary -------------------------------------------------------------------------------- */

static manta_status read_dictionary(reading *r)
{
    if (r->has_dictionary || r->seen) {
        return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT,
                                 "it is a dictionary, expected at most one and first");
    }
    if (r->page.encoding != PARQUET_ENCODING_PLAIN && r->page.encoding != PARQUET_ENCODING_PLAIN_DICTIONARY) {
        return parquet_page_fail(&r->pages, &r->page, MANTA_EUNSUPPORTED,
                                 "it is a dictionary in the encoding %s (%d), expected PLAIN",
                                 parquet_encoding_name(r->page.encoding), r->page.encoding);
    }
    r->has_dictionary = true;
    r->page.encoding = PARQUET_ENCODING_PLAIN;
    return read_plain(r, (size_t)r->page.values, &r->dictionary);
}

static void gather_dictionary(const reading *r, size_t n, uint8_t *to)
{
    const uint32_t *k = r->indices;

    if (r->size == 4) {
        const uint32_t *from = r->dictionary.data;
        uint32_t *out = (uint32_t *)(void *)to;
        for (size_t i = 0; i < n; i++) out[i] = from[k[i]];
    } else if (r->size == 8) {
        const uint64_t *from = r->dictionary.data;
        uint64_t *out = (uint64_t *)(void *)to;
        for (size_t i = 0; i < n; i++) out[i] = from[k[i]];
    } else {
        const uint8_t *from = r->dictionary.data;
        for (size_t i = 0; i < n; i++) to[i] = from[k[i]];
    }
}

static manta_status gather_bytes(reading *r, size_t n)
{
    const parquet_values *d = &r->dictionary;
    uint64_t bytes = 0;

    /* A few bytes of indices can ask for the same large value again and again. */
    for (size_t i = 0; i < n && bytes <= INT32_MAX; i++) {
        bytes += d->offsets[r->indices[i] + 1] - d->offsets[r->indices[i]];
    }
    if (bytes > INT32_MAX) {
        return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT, "its values take more than 2 GiB");
    }
    TRY(make_room(r, &r->v, n, bytes));
    for (size_t i = 0; i < n; i++) {
        uint64_t from = d->offsets[r->indices[i]];
        push_bytes(&r->v, (const uint8_t *)d->data + from, (size_t)(d->offsets[r->indices[i] + 1] - from));
    }
    return MANTA_OK;
}

static manta_status read_indexed(reading *r, size_t n)
{
    if (!r->has_dictionary) {
        return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT,
                                 "it needs a dictionary, and there is none");
    }
    if (n == 0) return MANTA_OK;
    int width = r->page.size ? r->page.data[0] : 255;
    if (width > 32)
        return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT,
                                 "its indices have %d bits, expected at most 32", width);
    TRY(parquet_grow(&r->indices, &r->indices_size, n * sizeof *r->indices, 0));
    parquet_rle rle = parquet_rle_of(r->page.data + 1, r->page.size - 1, width);
    if (!parquet_rle_take(&rle, r->indices, n)) return too_few(r, n);
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) most = r->indices[i] > most ? r->indices[i] : most;
    if (most >= r->dictionary.n) {
        return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT,
                                 "it has index %u into a dictionary of %zu values", most, r->dictionary.n);
    }
    if (r->bytes) return gather_bytes(r, n);
    TRY(make_room(r, &r->v, n, 0));
    gather_dictionary(r, n, (uint8_t *)r->v.data + r->v.n * r->size);
    r->v.n += n;
    return MANTA_OK;
}

static manta_status read_values(reading *r, size_t n)
{
    switch (r->page.encoding) {
    case PARQUET_ENCODING_PLAIN: return read_plain(r, n, &r->v);
    case PARQUET_ENCODING_PLAIN_DICTIONARY:
    case PARQUET_ENCODING_RLE_DICTIONARY: return read_indexed(r, n);
    case PARQUET_ENCODING_RLE:
        if (r->leaf->type == PARQUET_BOOLEAN) return read_plain(r, n, &r->v);
        break;
    default: break;
    }
    return parquet_page_fail(&r->pages, &r->page, MANTA_EUNSUPPORTED,
                             "its values are in the encoding %s (%d), expected PLAIN or RLE_DICTIONARY",
                             parquet_encoding_name(r->page.encoding), r->page.encoding);
}

/* ---- levels --------------------------------------------------------------------------------------- */

static int bits_of(int most)
{
    int n = 0;

    for (; most; most >>= 1) n++;
    return n;
}

static manta_status read_level(reading *r, const uint8_t *from, size_t size, int most, uint8_t *to)
{
    size_t n = (size_t)r->page.values;
    uint8_t largest = 0;

    if (most == 0) {
        if (n) memset(to, 0, n);
        return MANTA_OK;
    }
    parquet_rle rle = parquet_rle_of(from, size, bits_of(most));
    if (!parquet_rle_take_bytes(&rle, to, n)) {
        return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT, "its levels end before its %zu values",
                                 n);
    }
    for (size_t i = 0; i < n; i++) largest = to[i] > largest ? to[i] : largest;
    if (largest > most) {
        return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT,
                                 "it has a level of %d, expected at most %d", largest, most);
    }
    return MANTA_OK;
}

static manta_status read_levels(reading *r)
{
    const parquet_page *p = &r->page;
    size_t n = (size_t)p->values;

    TRY(parquet_grow(&r->levels, &r->levels_size, 2 * n + 1, 0));
    TRY(read_level(r, p->repetition, p->repetition_size, r->leaf->max_rep, r->levels));
    return read_level(r, p->definition, p->definition_size, r->leaf->max_def, r->levels + n);
}

/* Ends the list that was read. */
static manta_status end_row(reading *r)
{
    int64_t row = r->first_row + r->v.rows - 1;

    if (r->v.length < 0) r->v.length = r->row_length;
    if (r->v.length == r->row_length) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%s: column '%s': the list in row %lld has %lld values, expected %lld",
                      r->pages.f->path, r->leaf->name, (long long)row, (long long)r->row_length,
                      (long long)r->v.length);
}

static manta_status count_rows(reading *r)
{
    size_t n = (size_t)r->page.values;
    const uint8_t *rep = r->levels, *def = r->levels + n;

    if (!r->leaf->max_rep) {
        r->v.rows += (int64_t)n;
        return MANTA_OK;
    }
    for (size_t i = 0; i < n; i++) {
        if (rep[i] == 0) {
            if (r->v.rows) TRY(end_row(r));
            r->v.rows++;
            r->row_length = 0;
        } else if (!r->v.rows) {
            return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT,
                                     "its first value goes on with a list");
        }
        r->row_length += def[i] >= r->leaf->list_def;
    }
    return MANTA_OK;
}

/* Opens gaps among the texts of a page, from the end on: a null is an empty text. */
static manta_status add_null_bytes(reading *r, size_t nulls)
{
    size_t n = (size_t)r->page.values, from = r->v.n, to = r->v.n + nulls;
    const uint8_t *def = r->levels + n;

    TRY(make_room(r, &r->v, nulls, 0));
    uint64_t *o = r->v.offsets;
    for (size_t i = n; i-- > 0;) { /* o[to] is where value i ends */
        o[to--] = o[from];
        if (def[i] == r->leaf->max_def) from--;
    }
    r->v.n += nulls;
    return MANTA_OK;
}

/* Which of the page's texts are there. */
static manta_status mark_present(reading *r, size_t was)
{
    size_t n = (size_t)r->page.values;
    const uint8_t *def = r->levels + n;

    TRY(parquet_grow(&r->v.present, &r->v.present_size, was + n + 1, was));
    for (size_t i = 0; i < n; i++) r->v.present[was + i] = def[i] == r->leaf->max_def;
    return MANTA_OK;
}

static void spread_f64(reading *r, size_t was, size_t nulls)
{
    size_t n = (size_t)r->page.values, from = r->v.n, end = r->v.n + nulls;
    const uint8_t *def = r->levels + n;
    double *to = r->v.data;

    for (size_t i = n; i-- > 0 && end > was;) to[--end] = def[i] == r->leaf->max_def ? to[--from] : NAN;
    r->v.n += nulls;
}

/* Opens gaps for the nulls among the values just read, from the end on. `was`:
 * how many there were before the page. */
static manta_status add_nulls(reading *r, size_t was, size_t nulls, int64_t row)
{
    size_t n = (size_t)r->page.values;
    const uint8_t *def = r->levels + n;

    if (r->cells && r->bytes) return add_null_bytes(r, nulls);
    if (r->cells) {
        TRY(make_room(r, &r->v, nulls, 0));
        spread_f64(r, was, nulls);
        return MANTA_OK;
    }
    if (r->as != MANTA_DTYPE_F32 || r->bytes || !r->allow_nan) {
        size_t at = 0;
        while (def[at] >= r->leaf->max_def || def[at] < r->leaf->list_def) at++;
        return parquet_page_fail(&r->pages, &r->page, MANTA_ENAN,
                                 "value %zu (row %lld) is null, expected a number", at,
                                 (long long)(r->leaf->max_rep ? row : row + (int64_t)at));
    }
    TRY(make_room(r, &r->v, nulls, 0));
    float *to = r->v.data;
    size_t from = r->v.n, end = r->v.n + nulls;
    for (size_t i = n; i-- > 0 && end > was;) {
        if (def[i] < r->leaf->list_def) continue;
        to[--end] = def[i] == r->leaf->max_def ? to[--from] : NAN;
    }
    r->v.n += nulls;
    return MANTA_OK;
}

static manta_status read_data(reading *r)
{
    size_t n = (size_t)r->page.values, there = n, nulls = 0, was = r->v.n;
    int64_t row = r->first_row + r->v.rows;

    TRY(read_levels(r));
    const uint8_t *def = r->levels + n;
    if (r->leaf->max_def) {
        there = 0;
        for (size_t i = 0; i < n; i++) {
            there += def[i] == r->leaf->max_def;
            nulls += def[i] < r->leaf->max_def && def[i] >= r->leaf->list_def;
        }
    }
    TRY(count_rows(r));
    TRY(read_values(r, there));
    if (nulls) TRY(add_nulls(r, was, nulls, row));
    if (r->cells && r->bytes) TRY(mark_present(r, was));
    r->seen += (int64_t)n;
    return MANTA_OK;
}

/* ---- a chunk ----------------------------------------------------------------------------------------- */

static manta_status read_pages(reading *r, const parquet_chunk *c, const parquet_group *g)
{
    while (r->seen < c->values) {
        TRY(parquet_pages_next(&r->pages, &r->page));
        if (r->page.kind == PARQUET_PAGE_DICTIONARY) TRY(read_dictionary(r));
        if (r->page.kind != PARQUET_PAGE_DATA) continue;
        if (r->page.values > c->values - r->seen) {
            return parquet_page_fail(&r->pages, &r->page, MANTA_ECORRUPT,
                                     "it has %lld values, expected at most the %lld left of the column",
                                     (long long)r->page.values, (long long)(c->values - r->seen));
        }
        TRY(read_data(r));
    }
    if (r->leaf->max_rep && r->v.rows) TRY(end_row(r));
    if (r->v.rows != g->rows) {
        return manta_fail(MANTA_ECORRUPT, "%s: column '%s' has %lld rows in a row group of %lld",
                          r->pages.f->path, r->leaf->name, (long long)r->v.rows, (long long)g->rows);
    }
    return make_room(r, &r->v, 0, 0); /* so that there is something to point at */
}

/* Reads the chunk that r was set up for. */
static manta_status read_chunk(reading *r, const seek_file *f, const parquet_group *g, int leaf,
                               parquet_values *out)
{
    manta_status st;

    r->first_row = g->first;
    r->size = r->bytes ? 1 : manta_dtype_size(r->as);
    r->v.length = r->leaf->max_rep ? -1 : 1;
    TRY(parquet_pages_open(f, r->leaf, &g->chunks[leaf], &r->pages));
    st = read_pages(r, &g->chunks[leaf], g);
    parquet_pages_close(&r->pages);
    mem_try_free(r->levels);
    mem_try_free(r->indices);
    mem_try_free(r->scratch);
    parquet_values_release(&r->dictionary);
    if (st) {
        parquet_values_release(&r->v);
        return st;
    }
    *out = r->v;
    return MANTA_OK;
}

manta_status parquet_column_read(const seek_file *f, const parquet_meta *m, int group, int leaf,
                                 manta_dtype as, bool allow_nan, parquet_values *out)
{
    reading r = {.leaf = &m->leaves[leaf], .as = as, .allow_nan = allow_nan};
    manta_dtype natural = MANTA_DTYPE_COUNT;

    TRY(parquet_leaf_dtype(f->path, r.leaf, &natural));
    r.bytes = natural == MANTA_DTYPE_COUNT;
    return read_chunk(&r, f, &m->groups[group], leaf, out);
}

bool parquet_leaf_is_cell(const parquet_leaf *leaf)
{
    if (leaf->max_rep || leaf->max_def > 64) return false;
    if (leaf->meaning == PARQUET_OTHER) return leaf->text || leaf->time;
    return leaf->type != PARQUET_FIXED || leaf->meaning == PARQUET_HALF;
}

manta_status parquet_cells_read(const seek_file *f, const parquet_meta *m, int group, int leaf,
                                parquet_values *out)
{
    reading r = {.leaf = &m->leaves[leaf], .as = MANTA_DTYPE_F64, .allow_nan = true, .cells = true};

    r.bytes = r.leaf->type == PARQUET_BYTE_ARRAY;
    return read_chunk(&r, f, &m->groups[group], leaf, out);
}
