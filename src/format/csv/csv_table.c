/* csv_table.c - a CSV file as a table. */
#include "format/csv/csv_table.h"

#include <string.h>

#include "base/mem.h"
#include "format/codec/input.h"
#include "format/csv/csv_records.h"

enum {
    HEAD_BYTES = 64 << 10, /* in which the delimiter is looked for */
    HEAD_RECORDS = 100,
    MOST_COLUMNS = 1 << 16
};

typedef struct csv_source {
    seek_file f;
    csv_records *records;
    char delimiter;
    bool header;
    int64_t n; /* columns */
    table_cell *cells;
} csv_source;

/* ---- the delimiter ---- */

/* How many delimiters each complete record of the head has, when all have as many; else 0. */
static int count_delimiters(const uint8_t *head, size_t n, char delimiter)
{
    int count = 0, first = -1, records = 0;
    bool quoted = false, blank = true;

    for (size_t i = 0; i < n && records < HEAD_RECORDS; i++) {
        if (head[i] == '"') quoted = !quoted; /* a doubled one ends and begins */
        if (!quoted && (head[i] == '\n' || head[i] == '\r')) {
            if (!blank && first >= 0 && count != first) return 0;
            if (!blank) first = count;
            records += !blank;
            count = 0;
            blank = true;
            continue;
        }
        blank = false;
        count += !quoted && head[i] == (uint8_t)delimiter;
    }
    if (first < 0) return count; /* one line without an end, or the beginning of a long one */
    return first;
}

char csv_find_delimiter(const uint8_t *head, size_t n)
{
    /* A comma stands in texts and numbers by itself, so the others are tried before it. */
    static const char tried[] = {'\t', ';', '|', ','};

    for (size_t i = 0; i < sizeof tried; i++) {
        if (count_delimiters(head, n, tried[i]) > 0) return tried[i];
    }
    return ',';
}

static manta_status find_delimiter(csv_source *c)
{
    size_t n = c->f.size < HEAD_BYTES ? (size_t)c->f.size : HEAD_BYTES;
    uint8_t *head = mem_new(n + 1);
    manta_status st = seek_read(&c->f, 0, head, n, "records");

    if (!st) c->delimiter = csv_find_delimiter(head, n);
    mem_free(head);
    return st;
}

/* ---- the header ---- */

static bool has_text_field(const csv_field *fields, int64_t n)
{
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    bool text = false;

    for (int64_t i = 0; i < n && !text; i++) {
        double v;
        const uint8_t *at = fields[i].at;
        size_t k = fields[i].n;
        while (k && (at[0] == ' ' || at[0] == '\t')) at++, k--;
        while (k && (at[k - 1] == ' ' || at[k - 1] == '\t')) k--;
        text = !table_number_read(at, k, c_locale, &v);
    }
    if (c_locale) freelocale(c_locale);
    return text;
}

static manta_status name_column(const csv_source *c, const csv_field *f, int64_t i, char **out)
{
    const uint8_t *at = f->at;
    size_t n = f->n;

    if (!c->header) {
        *out = mem_printf("%lld", (long long)i);
        return MANTA_OK;
    }
    if (!table_is_utf8(at, n))
        return manta_fail(
            MANTA_ECORRUPT,
            "%s: the name of column %lld in the header has bytes that are not UTF-8, expected UTF-8 "
            "text (iconv converts a file)",
            c->f.path, (long long)i);
    while (!f->quoted && n && (at[0] == ' ' || at[0] == '\t')) at++, n--;
    while (!f->quoted && n && (at[n - 1] == ' ' || at[n - 1] == '\t')) n--;
    *out = mem_strndup((const char *)at, n);
    return MANTA_OK;
}

static manta_status read_header(csv_source *c, manta_table_header said, table_source *s)
{
    const csv_field *fields;
    int64_t n, line;
    bool end;

    TRY(csv_records_next(c->records, &fields, &n, &line, &end));
    if (end) return manta_fail(MANTA_ECORRUPT, "%s: the file is empty, expected lines of a table", c->f.path);
    if (n > MOST_COLUMNS)
        return manta_fail(MANTA_EUNSUPPORTED, "%s: line %lld has %lld fields, expected at most %d", c->f.path,
                          (long long)line, (long long)n, MOST_COLUMNS);
    c->header = said ? said == MANTA_TABLE_HEADER_YES : has_text_field(fields, n);
    c->n = n;
    c->cells = mem_new((size_t)n * sizeof *c->cells);
    s->names = mem_new((size_t)n * sizeof *s->names);
    for (int64_t i = 0; i < n; i++) {
        TRY(name_column(c, &fields[i], i, &s->names[i]));
        s->n++;
    }
    table_name_apart(s->n, s->names);
    return MANTA_OK;
}

/* ---- rows ---- */

static manta_status rewind_rows(void *ctx)
{
    csv_source *c = ctx;
    const csv_field *fields;
    int64_t n, line;
    bool end;

    csv_records_rewind(c->records);
    return c->header ? csv_records_next(c->records, &fields, &n, &line, &end) : MANTA_OK;
}

static manta_status next_row(void *ctx, const table_cell **cells, int64_t *place, bool *end)
{
    csv_source *c = ctx;
    const csv_field *fields;
    int64_t n;

    TRY(csv_records_next(c->records, &fields, &n, place, end));
    if (*end) return MANTA_OK;
    if (n != c->n)
        return manta_fail(MANTA_ECORRUPT, "%s: line %lld has %lld fields, expected %lld as in the first line",
                          c->f.path, (long long)*place, (long long)n, (long long)c->n);
    for (int64_t i = 0; i < n; i++)
        c->cells[i] = (table_cell){.at = fields[i].at, .n = fields[i].n, .quoted = fields[i].quoted};
    *cells = c->cells;
    return MANTA_OK;
}

static void free_source(void *ctx)
{
    csv_source *c = ctx;

    csv_records_free(c->records);
    mem_free(c->cells);
    seek_close(&c->f);
    mem_free(c);
}

manta_status csv_table_open(seek_file f, const manta_table_options *o, size_t block, table_source *out)
{
    csv_source *c = mem_new(sizeof *c);
    table_source s = {.format = "csv",
                      .row_word = "line",
                      .ctx = c,
                      .rewind = rewind_rows,
                      .next = next_row,
                      .release = free_source};
    manta_status st = MANTA_OK;

    c->f = f;
    s.path = c->f.path;
    c->delimiter = o->delimiter;
    if (!c->delimiter) st = find_delimiter(c);
    if (!st) st = csv_records_open(&c->f, c->delimiter, block, &c->records);
    if (!st) st = read_header(c, o->header, &s);
    if (st) {
        table_source_release(&s);
        return st;
    }
    *out = s;
    return MANTA_OK;
}

manta_status csv_table_open_path(const char *path, const manta_table_options *o, table_source *out)
{
    seek_file f;
    input in = {0};

    if (seek_open(path, &f)) { /* a pipe is no such file */
        TRY(input_read(path, &in));
        f = seek_take(path, in.data, in.size);
        in.data = NULL;
        input_release(&in);
    }
    return csv_table_open(f, o, 0, out);
}

char csv_table_delimiter(const table_source *s)
{
    return ((const csv_source *)s->ctx)->delimiter;
}

bool csv_table_has_header(const table_source *s)
{
    return ((const csv_source *)s->ctx)->header;
}
