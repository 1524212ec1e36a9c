/* csv.c - comma-separated numbers.
 *
 * A file without quotes in which all is well is read by csv_fast.c. What that
 * finds odd is read here, whole, in two passes: the first checks quotes and that
 * all records are of one length and counts them, the second converts. So memory
 * is asked for once, for what is really there. */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "data/source.h"
#include "format/codec/sizes.h"
#include "format/csv/csv.h"
#include "format/csv/csv_fast.h"

typedef struct scan {
    const char *name;
    const uint8_t *data;
    size_t at, size;
    int64_t line; /* of `at`, from 1 on */
    locale_t c_locale;
    bool allow_nan;
} scan;

/* One field: its bytes, without the quotes around them. */
typedef struct field {
    const uint8_t *at;
    size_t n;
    bool quoted;
    int64_t line;
    bool last; /* of its record */
} field;

/* Ends the field at a comma, a line's end or the file's. */
static void end_field(scan *s, field *f)
{
    f->last = true;
    if (s->at >= s->size) return;
    if (s->data[s->at] == ',') {
        f->last = false;
        s->at++;
        return;
    }
    if (s->data[s->at] == '\r') s->at++;
    if (s->at < s->size && s->data[s->at] == '\n') s->at++;
    s->line++;
}

static bool at_end(const scan *s)
{
    return s->at >= s->size || s->data[s->at] == ',' || s->data[s->at] == '\n' || s->data[s->at] == '\r';
}

static manta_status scan_quoted(scan *s, int64_t number, field *f)
{
    f->quoted = true;
    f->at = s->data + ++s->at;
    for (; s->at < s->size; s->at++) {
        if (s->data[s->at] == '\n') s->line++;
        if (s->data[s->at] != '"') continue;
        if (s->at + 1 < s->size && s->data[s->at + 1] == '"') {
            s->at++; /* a quote, doubled */
            continue;
        }
        f->n = (size_t)(s->data + s->at - f->at);
        s->at++;
        if (at_end(s)) return MANTA_OK;
        return manta_fail(
            MANTA_ECORRUPT,
            "%s: line %lld, field %lld: bytes follow the closing quote, expected a comma or the "
            "end of the line",
            s->name, (long long)s->line, (long long)number);
    }
    return manta_fail(MANTA_ECORRUPT,
                      "%s: line %lld, field %lld: the quote is not closed before the end of the file",
                      s->name, (long long)f->line, (long long)number);
}

/* The next field, `number` of its record (from 1 on). */
static manta_status next_field(scan *s, int64_t number, field *f)
{
    *f = (field){.line = s->line, .at = s->data + s->at};
    if (s->at < s->size && s->data[s->at] == '"') {
        TRY(scan_quoted(s, number, f));
    } else {
        while (!at_end(s)) {
            if (s->data[s->at] == '"') {
                return manta_fail(MANTA_ECORRUPT,
                                  "%s: line %lld, field %lld: a quote stands inside an unquoted field, "
                                  "expected it around the whole field",
                                  s->name, (long long)s->line, (long long)number);
            }
            s->at++;
        }
        f->n = (size_t)(s->data + s->at - f->at);
    }
    end_field(s, f);
    return MANTA_OK;
}

/* Passes over blank lines; false at the end of the file. */
static bool next_record(scan *s)
{
    while (s->at < s->size && (s->data[s->at] == '\n' || s->data[s->at] == '\r')) {
        if (s->data[s->at] == '\n') s->line++;
        s->at++;
    }
    return s->at < s->size;
}

/* The field as a number; false when it is none. */
static bool to_number(const scan *s, const field *f, double *out)
{
    char text[64];
    size_t n = f->n, skip = 0;

    while (skip < n && (f->at[skip] == ' ' || f->at[skip] == '\t')) skip++;
    while (n > skip && (f->at[n - 1] == ' ' || f->at[n - 1] == '\t')) n--;
    n -= skip;
    if (n == 0 || n >= sizeof text || memchr(f->at + skip, 0, n)) return false;
    memcpy(text, f->at + skip, n);
    text[n] = '\0';
    char *end;
    *out = strtod_l(text, &end, s->c_locale);
    return *end == '\0';
}

static void show_field(const field *f, char *text, size_t size)
{
    size_t n = f->n < size - 4 ? f->n : size - 4;

    for (size_t i = 0; i < n; i++) text[i] = f->at[i] >= ' ' && f->at[i] < 127 ? (char)f->at[i] : '?';
    strcpy(text + n, f->n > n ? "..." : "");
}

static manta_status not_a_number(const scan *s, const field *f, int64_t number, manta_status code)
{
    char text[40];

    show_field(f, text, sizeof text);
    return manta_fail(code, "%s: line %lld, field %lld is '%s', expected a number", s->name,
                      (long long)f->line, (long long)number, text);
}

/* ---- first pass --------------------------------------------------------------------- */

typedef struct shape {
    bool header;
    int64_t fields, records; /* records without the header */
    int64_t label; /* field number from 0 on, -1: none */
    size_t begin; /* of the first record of numbers */
    int64_t begin_line;
} shape;

/* Whether the field is `name`; a quote inside quotes is written twice. */
static bool is_name(const field *f, const char *name)
{
    size_t i = 0;

    for (; i < f->n && *name; i++, name++) {
        if (f->at[i] != (uint8_t)*name) return false;
        if (f->quoted && *name == '"') i++;
    }
    return i == f->n && !*name;
}

/* Reads the first record: is it a header, and is the label in it? */
static manta_status first_record(scan *s, const char *label, shape *sh)
{
    manta_suggestion near = manta_suggestion_for(label ? label : "");
    char best[SUGGEST_NAME], hint[SUGGEST_TEXT];
    field f = {0};
    double v;
    int64_t found = -1;

    sh->begin = s->at;
    sh->begin_line = s->line;
    do {
        TRY(next_field(s, sh->fields + 1, &f));
        if (!to_number(s, &f, &v)) sh->header = true;
        if (label && found < 0 && is_name(&f, label)) found = sh->fields;
        if (label && found < 0) suggest_offer_part(&near, (const char *)f.at, f.n, best);
        sh->fields++;
    } while (!f.last);
    if (sh->header) {
        sh->begin = s->at;
        sh->begin_line = s->line;
    } else {
        s->at = sh->begin;
        s->line = sh->begin_line;
        found = -1; /* a number that equals the label's text is not its name */
    }
    sh->label = found;
    if (!label || found >= 0) return MANTA_OK;
    char *end;
    long long k = strtoll(label, &end, 10);
    if (*end == '\0' && end != label && k >= 0 && k < sh->fields) {
        sh->label = k;
        return MANTA_OK;
    }
    return manta_fail(MANTA_ENOENT, "%s: there is no column '%s' %s%s", s->name, label,
                      sh->header ? "in the header line"
                                 : "and no header line; give the column's number from 0 on",
                      sh->header ? manta_suggestion_text(&near, hint, sizeof hint) : "");
}

/* The header, if there is one, and what the first record says. */
static manta_status begin_table(scan *s, const char *label, shape *sh)
{
    *sh = (shape){.label = -1};
    if (s->size >= 3 && memcmp(s->data, "\xef\xbb\xbf", 3) == 0) s->at = 3;
    if (!next_record(s)) {
        return manta_fail(MANTA_ECORRUPT, "%s: the file is empty, expected lines of numbers", s->name);
    }
    TRY(first_record(s, label, sh));
    if (sh->fields - (sh->label >= 0) < 1) {
        return manta_fail(MANTA_EINVAL, "%s: nothing is left beside the label, expected a column of numbers",
                          s->name);
    }
    return MANTA_OK;
}

static manta_status measure_table(scan *s, shape *sh)
{
    field f;

    while (next_record(s)) {
        int64_t n = 0, line = s->line;
        do TRY(next_field(s, ++n, &f));
        while (!f.last);
        if (n != sh->fields) {
            return manta_fail(MANTA_ECORRUPT,
                              "%s: line %lld has %lld fields, expected %lld as in the first line", s->name,
                              (long long)line, (long long)n, (long long)sh->fields);
        }
        sh->records++;
    }
    return MANTA_OK;
}

/* ---- second pass ---------------------------------------------------------------------- */

static manta_status read_value(scan *s, const shape *sh, int64_t k, field *f, double *v)
{
    (void)sh;
    TRY(next_field(s, k + 1, f));
    if (!to_number(s, f, v)) return not_a_number(s, f, k + 1, MANTA_ECORRUPT);
    if (*v != *v && !s->allow_nan) return not_a_number(s, f, k + 1, MANTA_ENAN);
    return MANTA_OK;
}

static manta_status convert_table(scan *s, const shape *sh, float *x, double *y, bool *whole)
{
    field f;
    double v;

    *whole = true;
    s->at = sh->begin;
    s->line = sh->begin_line;
    for (int64_t r = 0; r < sh->records; r++) {
        next_record(s);
        for (int64_t k = 0; k < sh->fields; k++) {
            TRY(read_value(s, sh, k, &f, &v));
            if (k != sh->label) {
                *x++ = (float)v;
                continue;
            }
            *y++ = v;
            if (v != trunc(v) || fabs(v) > 0x1p53) *whole = false;
        }
    }
    return MANTA_OK;
}

/* Labels were read as doubles; they become what they turned out to be, in place. */
static void settle_labels(csv_table *t, bool whole)
{
    double *v = t->y;

    t->y_dtype = whole ? MANTA_DTYPE_I64 : MANTA_DTYPE_F32;
    for (int64_t i = 0; v && i < t->rows; i++) {
        double d = v[i];
        if (whole) {
            int64_t k = (int64_t)d;
            memcpy((char *)t->y + i * 8, &k, 8);
        } else {
            float k = (float)d;
            memcpy((char *)t->y + i * 4, &k, 4);
        }
    }
}

/* All of the file is in memory, and begin_table() has been there. */
static manta_status parse_slowly(scan *s, shape *sh, csv_table *t)
{
    void *m = NULL;
    bool whole = true;

    TRY(measure_table(s, sh));
    t->rows = sh->records;
    t->columns = sh->fields - (sh->label >= 0);
    TRY(mem_try_array(t->rows + 1, (size_t)t->columns * sizeof(float), "the numbers of a CSV file", &m));
    t->x = m;
    if (sh->label >= 0) {
        TRY(mem_try_array(t->rows + 1, sizeof(double), "the labels of a CSV file", &m));
        t->y = m;
    }
    TRY(convert_table(s, sh, t->x, t->y, &whole));
    settle_labels(t, whole);
    return MANTA_OK;
}

static manta_status parse_fast(const scan *s, const seek_file *f, const shape *sh, csv_table *t, bool *odd)
{
    const csv_plan plan = {.begin = sh->begin,
                           .fields = sh->fields,
                           .label = sh->label,
                           .allow_nan = s->allow_nan,
                           .c_locale = s->c_locale};
    bool whole;

    TRY(csv_fast_read(f, &plan, t, &whole, odd));
    if (!*odd) settle_labels(t, whole);
    return MANTA_OK;
}

static manta_status parse_table(scan *s, const char *label, bool try_fast, csv_table *t)
{
    shape sh;
    bool odd;

    TRY(begin_table(s, label, &sh));
    if (!try_fast) return parse_slowly(s, &sh, t);
    seek_file f = seek_over(s->name, s->data, s->size);
    manta_status st = parse_fast(s, &f, &sh, t, &odd);
    seek_close(&f);
    return st || !odd ? st : parse_slowly(s, &sh, t);
}

static manta_status scan_init(scan *s, const char *name, const uint8_t *data, size_t size, bool allow_nan)
{
    *s = (scan){.name = name, .data = data, .size = size, .line = 1, .allow_nan = allow_nan};
    s->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return s->c_locale ? MANTA_OK : manta_fail(MANTA_ENOMEM, "%s: no memory for a locale", name);
}

static manta_status parse_bytes(const char *name, const uint8_t *data, size_t size, const char *label,
                                bool allow_nan, bool try_fast, csv_table *out)
{
    scan s;
    csv_table t = {0};

    TRY(scan_init(&s, name, data, size, allow_nan));
    manta_status st = parse_table(&s, label, try_fast, &t);
    freelocale(s.c_locale);
    if (st) {
        csv_release(&t);
        return st;
    }
    *out = t;
    return MANTA_OK;
}

manta_status csv_parse_slowly(const char *name, const uint8_t *data, size_t size, const char *label,
                              bool allow_nan, csv_table *out)
{
    return parse_bytes(name, data, size, label, allow_nan, false, out);
}

manta_status csv_parse(const char *name, const uint8_t *data, size_t size, const char *label, bool allow_nan,
                       csv_table *out)
{
    return parse_bytes(name, data, size, label, allow_nan, true, out);
}
void csv_release(csv_table *t)
{
    mem_try_free(t->x);
    mem_try_free(t->y);
    *t = (csv_table){0};
}

static void table_free(void *ctx)
{
    csv_release(ctx);
    mem_free(ctx);
}

/* Reads a plain file without having it in memory whole. *odd: it is not plain,
 * or its first record does not end within CSV_HEAD bytes. */
static manta_status read_plain(const seek_file *f, const char *label, bool allow_nan, csv_table *t, bool *odd)
{
    size_t n = f->size < CSV_HEAD ? (size_t)f->size : CSV_HEAD;
    uint8_t *head = mem_try_raw(n + 1);
    scan s;
    shape sh;
    manta_status st;

    *odd = true;
    if (!head) return manta_fail(MANTA_ENOMEM, "%s: no memory to read it with", f->path);
    if ((st = scan_init(&s, f->path, head, n, allow_nan))) goto out;
    /* What is wrong with the head may only be that it was cut: not told here. */
    if (!(st = seek_read(f, 0, head, n, "records")) && !begin_table(&s, label, &sh) &&
        (s.at < n || n == f->size)) {
        st = parse_fast(&s, f, &sh, t, odd);
    }
    freelocale(s.c_locale);
out:
    mem_try_free(head);
    return st;
}

/* Whether the first line is longer than CSV_HEAD bytes: an image in each line, say. */
static manta_status is_wide(const seek_file *f, bool *wide)
{
    uint8_t *head;
    manta_status st;

    *wide = false;
    if (f->size <= CSV_HEAD) return MANTA_OK;
    if (!(head = mem_try_raw(CSV_HEAD)))
        return manta_fail(MANTA_ENOMEM, "%s: no memory to read it with", f->path);
    if (!(st = seek_read(f, 0, head, CSV_HEAD, "records")))
        *wide = !memchr(head, '\n', CSV_HEAD) && !memchr(head, '\r', CSV_HEAD);
    mem_try_free(head);
    return st;
}

/* Reads a file of very long lines, whole. */
static manta_status read_wide(const seek_file *f, const char *label, bool allow_nan, csv_table *t)
{
    uint8_t *data = mem_try_raw((size_t)f->size);
    manta_status st;

    if (!data)
        return manta_fail(MANTA_ENOMEM, "%s: no memory for its %llu bytes", f->path,
                          (unsigned long long)f->size);
    st = seek_read(f, 0, data, (size_t)f->size, "records");
    if (!st) st = csv_parse_slowly(f->path, data, (size_t)f->size, label, allow_nan, t);
    mem_try_free(data);
    return st;
}

manta_status csv_open_plain(const char *path, const char *label, const manta_open_options *o, bool *odd,
                            manta_dataset **out)
{
    csv_table t = {0};
    seek_file f;
    bool wide = false;
    manta_status st;

    *odd = true;
    if (seek_open(path, &f)) return MANTA_OK;
    st = read_plain(&f, label, o->allow_nan, &t, odd);
    if (!st && *odd) st = is_wide(&f, &wide);
    if (!st && wide) {
        *odd = false;
        st = read_wide(&f, label, o->allow_nan, &t);
    }
    seek_close(&f);
    if (st || *odd) return st;
    csv_table *own = mem_new(sizeof *own);
    *own = t;
    source_memory m = {
        .count = t.rows, .n = t.y ? 2 : 1, .ctx = own, .release = table_free, .data = {t.x, t.y}};
    m.columns[0] =
        (manta_column_spec){.name = "x", .dtype = MANTA_DTYPE_F32, .ndim = 1, .shape = {t.columns}};
    m.columns[1] = (manta_column_spec){.name = "y", .dtype = t.y_dtype};
    manta_dataset *d = source_from_memory(&m);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}
