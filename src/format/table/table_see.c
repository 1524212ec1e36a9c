/* table_see.c - the first reading of a table: what its columns hold.
 *
 * Memory does not grow with the rows. Of each column counts, sums and the first different
 * values are kept; of the texts so many as a column of categories may have, and in all
 * columns together so many that a file with very many columns does not fill memory. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "format/table/table.h"

/* Different values that are kept over all columns. */
enum { MOST_VALUES = 1 << 20 };

typedef struct seeing {
    table_source *s;
    table_seen *seen;
    locale_t c_locale;
    int64_t kept; /* values of all columns */
} seeing;

void table_seen_release(int n, table_seen *seen)
{
    for (int i = 0; seen && i < n; i++) {
        map_release(&seen[i].values);
        for (int k = 0; k < MANTA_TABLE_EXAMPLES; k++) mem_free(seen[i].example[k]);
    }
    mem_free(seen);
}

static void keep_example(table_seen *c, const table_cell *cell)
{
    char text[80];

    if (c->example[MANTA_TABLE_EXAMPLES - 1]) return;
    table_cell_show(cell, text, sizeof text);
    for (int i = 0; i < MANTA_TABLE_EXAMPLES; i++) {
        if (!c->example[i]) {
            c->example[i] = mem_strdup(text);
            return;
        }
        if (!strcmp(c->example[i], text)) return;
    }
}

static void keep_value(seeing *k, table_seen *c, const table_cell *cell, int64_t place)
{
    char text[TABLE_CATEGORY_BYTES + 1];

    if (c->many) return;
    if (cell->n > TABLE_CATEGORY_BYTES) {
        c->many = true;
    } else if (cell->at && !table_is_utf8(cell->at, cell->n)) {
        if (!c->foreign) c->foreign_place = place;
        c->foreign = true;
    } else {
        size_t was = c->values.n;
        ++*map_put(&c->values, table_cell_text(cell, text, sizeof text));
        k->kept += c->values.n != was;
        c->many = c->values.n > MANTA_TABLE_CATEGORIES || k->kept > MOST_VALUES;
    }
    if (!c->many) return;
    k->kept -= (int64_t)c->values.n;
    map_release(&c->values);
}

static void see_number(table_seen *c, double v)
{
    c->sum += v;
    if (!(v >= c->least)) c->least = v;
    if (!(v <= c->most)) c->most = v;
    if (v != trunc(v) || fabs(v) > 0x1p53) c->whole = false;
}

static void see_cell(seeing *k, table_seen *c, const table_cell *cell, int64_t place)
{
    switch (cell->kind) {
    case TABLE_CELL_MISSING:
        if (!c->missing++) c->missing_place = place;
        return;
    case TABLE_CELL_NUMBER:
        if (!c->numbers++) c->number_place = place;
        see_number(c, cell->number);
        break;
    case TABLE_CELL_DATE:
        if (!c->dates++) c->date_place = place;
        see_number(c, cell->number);
        break;
    default:
        if (!c->texts++) {
            c->text_place = place;
            table_cell_show(cell, c->text, sizeof c->text);
        }
        break;
    }
    keep_example(c, cell);
    if (c->categories || (cell->kind != TABLE_CELL_NUMBER && cell->kind != TABLE_CELL_DATE))
        keep_value(k, c, cell, place);
}

static manta_status see_rows(seeing *k, const bool *wanted, int64_t *rows)
{
    const table_cell *cells;
    int64_t place;
    bool end = false;

    TRY(k->s->rewind(k->s->ctx));
    for (*rows = 0;; ++*rows) {
        TRY(k->s->next(k->s->ctx, &cells, &place, &end));
        if (end) return MANTA_OK;
        for (int i = 0; i < k->s->n; i++) {
            if (!wanted[i]) continue;
            table_cell c = table_cell_read(cells[i], k->c_locale);
            see_cell(k, &k->seen[i], &c, place);
        }
    }
}

/* Forgets what a reading has shown, but for how it is to be done. */
static void begin_column(table_seen *c)
{
    bool categories = c->categories;

    map_release(&c->values);
    for (int k = 0; k < MANTA_TABLE_EXAMPLES; k++) mem_free(c->example[k]);
    *c = (table_seen){.categories = categories, .whole = true, .least = NAN, .most = NAN};
}

/* Whether the column is one of categories whose numbers and dates were not gathered: hardly
 * ever, so that columns of numbers need not be. */
static bool lacks_values(const table_seen *c)
{
    return !c->categories && c->numbers + c->dates > 0 && table_seen_type(c) == MANTA_TABLE_TYPE_CATEGORY;
}

manta_status table_see(table_source *s, const bool *wanted, table_seen *seen, int64_t *rows)
{
    seeing k = {.s = s, .seen = seen};
    bool *again = mem_new((size_t)s->n + 1), any = false;
    manta_status st;

    k.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!k.c_locale) {
        mem_free(again);
        return manta_fail(MANTA_ENOMEM, "%s: no memory for a locale", s->path);
    }
    for (int i = 0; i < s->n; i++) begin_column(&seen[i]);
    if (s->want) s->want(s->ctx, wanted);
    st = see_rows(&k, wanted, rows);
    for (int i = 0; !st && i < s->n; i++) any |= again[i] = wanted[i] && lacks_values(&seen[i]);
    for (int i = 0; any && i < s->n; i++) {
        if (!again[i]) continue;
        k.kept -= (int64_t)seen[i].values.n;
        seen[i].categories = true;
        begin_column(&seen[i]);
    }
    if (any && s->want) s->want(s->ctx, again);
    if (any) st = see_rows(&k, again, rows);
    mem_free(again);
    freelocale(k.c_locale);
    return st;
}

manta_table_type table_seen_type(const table_seen *c)
{
    int64_t all = c->numbers + c->dates + c->texts;

    if (2 * c->numbers > all || all == 0) return MANTA_TABLE_TYPE_NUMBER;
    if (2 * c->dates > all) return MANTA_TABLE_TYPE_DATE;
    if (c->many) return MANTA_TABLE_TYPE_TEXT;
    if (c->values.n <= 32 || 2 * (int64_t)c->values.n <= all) return MANTA_TABLE_TYPE_CATEGORY;
    return MANTA_TABLE_TYPE_TEXT;
}
