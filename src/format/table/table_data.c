/* table_data.c - the second reading of a table: its rows as numbers, and a dataset over them.
 *
 * A row takes 4 bytes a column of x, whatever its width: a category is kept as its place, and
 * becomes one 1 among zeros when a sample is read. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/source.h"
#include "format/table/table.h"

/* The numbers of a table, and what makes samples of them. */
typedef struct kept {
    int64_t rows, room;
    int n; /* columns of x */
    float *x; /* rows x n */
    double *y; /* NULL: there is none */
    int64_t width; /* of a sample */
    int64_t *widths; /* of each column: 0 is a number, else so many places */
    bool whole; /* y is i64 */
} kept;

typedef struct reading {
    const manta_table *t;
    table_source *s;
    int *columns; /* of the source: those of x, then that of y */
    bool keep_rows;
    locale_t c_locale;
    int64_t dropped;
    kept *k;
} reading;

static void kept_free(void *ctx)
{
    kept *k = ctx;

    mem_try_free(k->x);
    mem_try_free(k->y);
    mem_free(k->widths);
    mem_free(k);
}

/* ---- a value ---- */

static manta_status fail_cell(const reading *r, manta_status code, int64_t place, const table_column *c,
                              const table_cell *cell, const char *expected)
{
    char text[64];

    return manta_fail(code, "%s: %s %lld, column '%.60s' is '%s', expected %s", r->s->path, r->s->row_word,
                      (long long)place, c->name, table_cell_show(cell, text, sizeof text), expected);
}

static manta_status fill_missing(const reading *r, const table_column *c, bool y, int64_t place, float *out,
                                 bool *drop)
{
    bool category = c->type == MANTA_TABLE_TYPE_CATEGORY;

    switch (c->missing) {
    case MANTA_TABLE_MISSING_DROP:
        if (r->keep_rows)
            return manta_fail(MANTA_ENAN,
                              "%s: %s %lld, column '%.60s' is missing, and a prediction leaves no row out; "
                              "expected a value",
                              r->s->path, r->s->row_word, (long long)place, c->name);
        *drop = true;
        return MANTA_OK;
    case MANTA_TABLE_MISSING_MEAN: *out = category ? (float)c->frequent : (float)c->mean; break;
    case MANTA_TABLE_MISSING_ZERO: *out = category ? (float)c->n : 0; break;
    case MANTA_TABLE_MISSING_NAN: *out = category ? (float)c->n : NAN; break;
    default: break;
    }
    if (!y && c->missing != MANTA_TABLE_MISSING_REFUSE) return MANTA_OK;
    return manta_fail(MANTA_ENAN, "%s: %s %lld, column '%.60s' is missing, expected a value or a rule: %s",
                      r->s->path, r->s->row_word, (long long)place, c->name,
                      y ? "missing=drop" : "missing=drop, mean, zero or nan");
}

static manta_status find_category(const reading *r, const table_column *c, const table_cell *cell,
                                  int64_t place, double *out)
{
    char text[TABLE_CATEGORY_BYTES + 1], expected[200];
    int at = cell->n > TABLE_CATEGORY_BYTES
                 ? -1
                 : table_category_find(c, table_cell_text(cell, text, sizeof text));

    *out = at;
    if (at >= 0) return MANTA_OK;
    snprintf(expected, sizeof expected, "one of the %d categories that were learnt (%.40s%s%.40s%s)", c->n,
             c->n ? c->categories[0] : "", c->n > 1 ? ", " : "", c->n > 1 ? c->categories[1] : "",
             c->n > 2 ? ", ..." : "");
    return fail_cell(r, MANTA_EINVAL, place, c, cell, expected);
}

/* The number that a cell is; not for missing ones. */
static manta_status convert_cell(const reading *r, const table_column *c, const table_cell *cell,
                                 int64_t place, double *out)
{
    if (c->type == MANTA_TABLE_TYPE_CATEGORY) return find_category(r, c, cell, place, out);
    *out = cell->number;
    if (c->type == MANTA_TABLE_TYPE_NUMBER && cell->kind != TABLE_CELL_NUMBER)
        return fail_cell(r, MANTA_ECORRUPT, place, c, cell, "a number");
    if (c->type == MANTA_TABLE_TYPE_DATE && cell->kind != TABLE_CELL_DATE)
        return fail_cell(r, MANTA_ECORRUPT, place, c, cell, "a date, such as 2024-05-31");
    return MANTA_OK;
}

/* ---- rows ---- */

static manta_status grow_block(const reading *r, size_t size, int64_t room, void *old, void **out)
{
    void *m = NULL;

    TRY(mem_try_array(room, size, "the rows of a table", &m));
    if (old) memcpy(m, old, (size_t)r->k->rows * size);
    mem_try_free(old);
    *out = m;
    return MANTA_OK;
}

static manta_status make_room(const reading *r)
{
    kept *k = r->k;
    void *m = NULL;
    int64_t room = k->room ? k->room + k->room / 2 : 256;

    if (k->rows < k->room) return MANTA_OK;
    TRY(grow_block(r, (size_t)k->n * sizeof *k->x, room, k->x, &m));
    k->x = m;
    if (r->columns[k->n] >= 0) {
        TRY(grow_block(r, sizeof *k->y, room, k->y, &m));
        k->y = m;
    }
    k->room = room;
    return MANTA_OK;
}

static manta_status convert_y(const reading *r, const table_cell *cells, int64_t place, bool *drop)
{
    const table_column *c = &r->t->y;
    table_cell cell = table_cell_read(cells[r->columns[r->k->n]], r->c_locale);
    double *to = &r->k->y[r->k->rows];
    float unused;

    if (cell.kind == TABLE_CELL_MISSING) return fill_missing(r, c, true, place, &unused, drop);
    TRY(convert_cell(r, c, &cell, place, to));
    if (!r->k->whole || c->type == MANTA_TABLE_TYPE_CATEGORY) return MANTA_OK;
    if (*to == trunc(*to) && fabs(*to) <= 0x1p53) return MANTA_OK;
    return fail_cell(r, MANTA_EINVAL, place, c, &cell, "a whole number, as the labels that were learnt");
}

static manta_status convert_row(reading *r, const table_cell *cells, int64_t place)
{
    kept *k = r->k;
    bool drop = false;

    TRY(make_room(r));
    float *x = k->x + k->rows * k->n;
    for (int i = 0; i < k->n; i++) {
        const table_column *c = &r->t->x[i];
        table_cell cell = table_cell_read(cells[r->columns[i]], r->c_locale);
        double v = 0;
        if (cell.kind == TABLE_CELL_MISSING) {
            TRY(fill_missing(r, c, false, place, &x[i], &drop));
        } else {
            TRY(convert_cell(r, c, &cell, place, &v));
            x[i] = (float)v;
        }
    }
    if (k->y) TRY(convert_y(r, cells, place, &drop));
    k->rows += !drop;
    r->dropped += drop;
    return MANTA_OK;
}

static manta_status convert_rows(reading *r)
{
    const table_cell *cells;
    int64_t place;
    bool end = false;

    TRY(r->s->rewind(r->s->ctx));
    for (;;) {
        TRY(r->s->next(r->s->ctx, &cells, &place, &end));
        if (end) break;
        TRY(convert_row(r, cells, place));
    }
    if (r->dropped)
        log_info("rows with missing values were left out", LOG_STR("file", r->s->path),
                 LOG_INT("left_out", r->dropped), LOG_INT("rows", r->k->rows));
    return make_room(r); /* so that there is something to point at */
}

/* ---- which columns ---- */

/* Whether a choice that was written again is that of the mapping. */
static manta_status compare_choice(const reading *r, const char *what, const char *text,
                                   const manta_table_options *o, int n, const table_column *columns)
{
    table_choices c = {0};
    bool same;

    if (!text) return MANTA_OK;
    TRY(table_choices_read(r->s->path, what, text, o, &c));
    same = c.n == n;
    for (int i = 0; same && i < n; i++) {
        int at = -1;
        same = !strcmp(c.at[i].name, columns[i].name) ||
               (!table_find_column(r->s, c.at[i].name, i, &at) && !strcmp(r->s->names[at], columns[i].name));
    }
    table_choices_release(&c);
    if (same) return MANTA_OK;
    return manta_fail(MANTA_EINVAL,
                      "%s: %s is '%.80s', but the mapping that was learnt has %d column%s, from '%.60s' on; "
                      "expected the same, or none, which means the same",
                      r->s->path, what, text, n, n == 1 ? "" : "s", n ? columns[0].name : "");
}

static manta_status find_columns(reading *r, const manta_table_options *o)
{
    const manta_table *t = r->t;
    bool *wanted;

    TRY(compare_choice(r, "x", o->x, o, t->n_x, t->x));
    if (!o->without_y) TRY(compare_choice(r, "y", o->y, o, t->has_y, &t->y));
    for (int i = 0; i < t->n_x; i++)
        TRY(table_find_column(r->s, t->x[i].name, i ? r->columns[i - 1] + 1 : 0, &r->columns[i]));
    r->columns[t->n_x] = -1;
    if (t->has_y && !o->without_y) TRY(table_find_column(r->s, t->y.name, 0, &r->columns[t->n_x]));
    for (int i = 0; r->s->refused && i <= t->n_x; i++) {
        if (r->columns[i] >= 0 && r->s->refused[r->columns[i]])
            return manta_fail(MANTA_EUNSUPPORTED,
                              "%s: column '%.80s' is %s, expected what the mapping has learnt", r->s->path,
                              r->s->names[r->columns[i]], r->s->refused[r->columns[i]]);
    }
    wanted = mem_new((size_t)r->s->n + 1);
    for (int i = 0; i <= t->n_x; i++) {
        if (r->columns[i] >= 0) wanted[r->columns[i]] = true;
    }
    if (r->s->want) r->s->want(r->s->ctx, wanted);
    mem_free(wanted);
    return MANTA_OK;
}

/* ---- the dataset ---- */

static manta_status read_sample(void *ctx, void *state, int64_t i, void *const *out)
{
    const kept *k = ctx;
    const float *x = k->x + i * k->n;
    float *to = out[0];

    (void)state;
    for (int c = 0; to && c < k->n; c++) {
        if (k->widths[c]) {
            memset(to, 0, (size_t)k->widths[c] * sizeof *to);
            to[(int64_t)x[c]] = 1;
            to += k->widths[c];
        } else {
            *to++ = x[c];
        }
    }
    if (!k->y || !out[1]) return MANTA_OK;
    if (k->whole) {
        int64_t v = (int64_t)k->y[i];
        memcpy(out[1], &v, sizeof v);
    } else {
        float v = (float)k->y[i];
        memcpy(out[1], &v, sizeof v);
    }
    return MANTA_OK;
}

static void plan_sample(const manta_table *t, kept *k)
{
    k->n = t->n_x;
    k->widths = mem_new((size_t)(k->n + 1) * sizeof *k->widths);
    for (int i = 0; i < k->n; i++) {
        const table_column *c = &t->x[i];
        k->width += table_column_width(c);
        if (c->type == MANTA_TABLE_TYPE_CATEGORY && c->encoding == MANTA_TABLE_ENCODING_ONEHOT)
            k->widths[i] = table_column_width(c);
    }
    k->whole = t->y.type == MANTA_TABLE_TYPE_CATEGORY || t->y.whole;
}

static manta_dataset *describe_samples(kept *k)
{
    source_indexed s = {
        .count = k->rows, .n = k->y ? 2 : 1, .ctx = k, .read = read_sample, .release = kept_free};

    s.columns[0] = (manta_column_spec){.name = "x", .dtype = MANTA_DTYPE_F32, .ndim = 1, .shape = {k->width}};
    s.columns[1] = (manta_column_spec){.name = "y", .dtype = k->whole ? MANTA_DTYPE_I64 : MANTA_DTYPE_F32};
    return source_from_reader(&s);
}

manta_status table_dataset(const manta_table *t, table_source *s, const manta_table_options *o,
                           manta_dataset **out)
{
    reading r = {.t = t, .s = s, .keep_rows = o->keep_rows, .k = mem_new(sizeof *r.k)};
    manta_dataset *d = NULL;
    manta_status st;

    plan_sample(t, r.k);
    r.columns = mem_new((size_t)(t->n_x + 1) * sizeof *r.columns);
    r.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    st = r.c_locale ? MANTA_OK : manta_fail(MANTA_ENOMEM, "%s: no memory for a locale", s->path);
    if (!st) st = find_columns(&r, o);
    if (!st) st = convert_rows(&r);
    if (r.c_locale) freelocale(r.c_locale);
    mem_free(r.columns);
    if (st) {
        kept_free(r.k);
        return st;
    }
    d = describe_samples(r.k);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}
