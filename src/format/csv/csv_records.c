/* csv_records.c - the records of a CSV file, one after the other. */
#include "format/csv/csv_records.h"

#include <string.h>

#include "base/mem.h"
#include "format/codec/seek.h"

/* What a byte means outside quotes. */
enum { PLAIN = 0, ENDS_FIELD, ENDS_LINE, QUOTE };

/* A field while its record is being read: offsets stay true when the block moves. */
typedef struct span {
    size_t from, n;
    bool quoted, doubled; /* doubled: there is a quote inside, written twice */
} span;

struct csv_records {
    const seek_file *f;
    uint64_t next; /* of the file: what the block will get next */
    uint8_t *block; /* owned */
    size_t cap, n, at; /* n bytes are there; the next record begins at `at` */
    size_t size; /* bytes read at once */
    int64_t line; /* of `at`, from 1 on */
    span *spans;
    csv_field *fields;
    int64_t room, count; /* of both */
    uint8_t means[256];
};

manta_status csv_records_open(const seek_file *f, char delimiter, size_t block, csv_records **out)
{
    csv_records *r = mem_new(sizeof *r);

    r->f = f;
    r->size = !block ? CSV_BLOCK : block < 4 ? 4 : block; /* the first has a whole byte order mark */
    r->means[(uint8_t)delimiter] = ENDS_FIELD;
    r->means['\n'] = r->means['\r'] = ENDS_LINE;
    r->means['"'] = QUOTE;
    csv_records_rewind(r);
    *out = r;
    return MANTA_OK;
}

void csv_records_free(csv_records *r)
{
    if (!r) return;
    mem_try_free(r->block);
    mem_try_free(r->spans);
    mem_try_free(r->fields);
    mem_free(r);
}

void csv_records_rewind(csv_records *r)
{
    r->next = 0;
    r->n = r->at = 0;
    r->line = 1;
}

/* ---- the block ---- */

static manta_status grow_block(csv_records *r, size_t need)
{
    size_t cap = r->cap ? r->cap : r->size;
    uint8_t *block;

    while (cap < need) cap *= 2;
    if (cap == r->cap) return MANTA_OK;
    if (!(block = mem_try_raw(cap)))
        return manta_fail(MANTA_ENOMEM, "%s: no memory for a record of %zu bytes", r->f->path, cap);
    if (r->n) memcpy(block, r->block, r->n);
    mem_try_free(r->block);
    r->block = block;
    r->cap = cap;
    return MANTA_OK;
}

/* Reads on, with the record that begins at `at` moved to the front. *more: there was more. */
static manta_status read_on(csv_records *r, bool *more)
{
    uint64_t left = r->f->size - r->next;
    size_t want =
        r->n - r->at > r->size ? r->n - r->at : r->size; /* a long record is not read again and again */
    size_t n = left < want ? (size_t)left : want;

    *more = n > 0;
    if (!n) return MANTA_OK;
    if (r->at) memmove(r->block, r->block + r->at, r->n - r->at);
    r->n -= r->at;
    r->at = 0;
    if (r->n > CSV_MOST_RECORD)
        return manta_fail(MANTA_ECORRUPT,
                          "%s: line %lld: the record has more than %zu MiB, expected an end of the line or a "
                          "closing quote before",
                          r->f->path, (long long)r->line, CSV_MOST_RECORD >> 20);
    TRY(grow_block(r, r->n + n));
    TRY(seek_read(r->f, r->next, r->block + r->n, n, "records"));
    r->next += n;
    r->n += n;
    if (r->next == n && r->n >= 3 && memcmp(r->block, "\xef\xbb\xbf", 3) == 0) r->at = 3;
    return MANTA_OK;
}

/* ---- a record ---- */

/* How far a record was read. */
typedef enum progress { COMPLETE, CUT } progress;

static manta_status add_span(csv_records *r, span s)
{
    if (r->count == r->room) {
        int64_t room = r->room ? 2 * r->room : 64;
        void *spans = NULL, *fields = NULL;
        manta_status st = mem_try_array(room, sizeof *r->spans, "the fields of a record", &spans);
        if (!st) st = mem_try_array(room, sizeof *r->fields, "the fields of a record", &fields);
        if (st) {
            mem_try_free(spans);
            return st;
        }
        if (r->count) memcpy(spans, r->spans, (size_t)r->count * sizeof *r->spans);
        mem_try_free(r->spans);
        mem_try_free(r->fields);
        r->spans = spans;
        r->fields = fields;
        r->room = room;
    }
    r->spans[r->count++] = s;
    return MANTA_OK;
}

static manta_status fail_field(const csv_records *r, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: line %lld, field %lld: %s", r->f->path, (long long)r->line,
                      (long long)r->count + 1, what);
}

/* A field in quotes from its first quote at *p on; *p ends behind the closing one. */
static progress read_quoted(const csv_records *r, size_t *p, span *s, int64_t *lines)
{
    const uint8_t *b = r->block;
    size_t i = *p + 1;

    *s = (span){.from = i, .quoted = true};
    for (;;) {
        const uint8_t *quote = i < r->n ? memchr(b + i, '"', r->n - i) : NULL;
        size_t end = quote ? (size_t)(quote - b) : r->n;
        for (size_t k = i; k < end; k++) *lines += b[k] == '\n';
        if (!quote || (end + 1 == r->n && r->next < r->f->size)) return CUT;
        i = end;
        if (i + 1 == r->n || b[i + 1] != '"') break;
        s->doubled = true;
        i += 2;
    }
    s->n = i - s->from;
    *p = i + 1;
    return COMPLETE;
}

/* All fields from `at` on. *end: where the record's line ends. */
static manta_status read_fields(csv_records *r, size_t *end, int64_t *lines, progress *how)
{
    const uint8_t *b = r->block;
    size_t p = r->at;

    r->count = 0;
    *lines = 0;
    *how = CUT;
    for (;;) {
        span s = {.from = p};
        if (p < r->n && r->means[b[p]] == QUOTE) {
            if (read_quoted(r, &p, &s, lines) == CUT) return MANTA_OK;
        } else {
            while (p < r->n && !r->means[b[p]]) p++;
            s.n = p - s.from;
        }
        if (p == r->n && r->next < r->f->size) return MANTA_OK;
        if (p < r->n && !(r->means[b[p]] == ENDS_FIELD || r->means[b[p]] == ENDS_LINE))
            return fail_field(
                r, s.quoted ? "bytes follow the closing quote, expected a delimiter or the end of the line"
                            : "a quote stands inside an unquoted field, expected the field in quotes and "
                              "the quote written twice");
        TRY(add_span(r, s));
        if (p == r->n || r->means[b[p]] == ENDS_LINE) break;
        p++;
    }
    if (p < r->n && b[p] == '\r') {
        if (p + 1 == r->n && r->next < r->f->size) return MANTA_OK; /* is there a \n behind it? */
        p++;
    }
    if (p < r->n && b[p] == '\n') p++;
    *how = COMPLETE;
    *end = p;
    return MANTA_OK;
}

/* Writes quotes that are doubled once, in place. */
static size_t undouble_quotes(uint8_t *at, size_t n)
{
    size_t to = 0;

    for (size_t i = 0; i < n; to++) {
        at[to] = at[i];
        i += at[i] == '"' ? 2 : 1;
    }
    return to;
}

static void settle_fields(csv_records *r)
{
    for (int64_t i = 0; i < r->count; i++) {
        span *s = &r->spans[i];
        uint8_t *at = r->block + s->from;
        r->fields[i] =
            (csv_field){.at = at, .n = s->doubled ? undouble_quotes(at, s->n) : s->n, .quoted = s->quoted};
    }
}

/* Passes over blank lines. */
static manta_status skip_blank(csv_records *r, bool *end)
{
    bool more = true;

    *end = false;
    for (;;) {
        while (r->at < r->n && (r->block[r->at] == '\n' || r->block[r->at] == '\r')) {
            r->line += r->block[r->at] == '\n';
            r->at++;
        }
        if (r->at < r->n) return MANTA_OK;
        TRY(read_on(r, &more));
        if (more) continue;
        *end = true;
        return MANTA_OK;
    }
}

manta_status csv_records_next(csv_records *r, const csv_field **fields, int64_t *n, int64_t *line, bool *end)
{
    progress how = CUT;
    int64_t lines;
    size_t stop = 0;
    bool more;

    TRY(skip_blank(r, end));
    if (*end) return MANTA_OK;
    for (;;) {
        TRY(read_fields(r, &stop, &lines, &how));
        if (how == COMPLETE) break;
        TRY(read_on(r, &more));
        if (!more) return fail_field(r, "the quote is not closed before the end of the file");
    }
    settle_fields(r);
    *fields = r->fields;
    *n = r->count;
    *line = r->line;
    r->line += lines + 1;
    r->at = stop;
    return MANTA_OK;
}
