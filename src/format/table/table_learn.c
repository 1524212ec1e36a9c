/* table_learn.c - a mapping out of what the first reading has shown, and a table described
 * for people. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/table/table.h"

typedef struct learning {
    const table_source *s;
    table_choices x, y;
    int *columns; /* of the source: those of x, then that of y */
    bool *wanted;
    table_seen *seen;
    bool named; /* x was given */
} learning;

/* ---- which columns ---- */

static manta_status choose_y(learning *k, const char *text, const manta_table_options *o)
{
    TRY(table_choices_read(k->s->path, "y", text, o, &k->y));
    if (k->y.n == 1) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%s: y names %d columns, expected one", k->s->path, k->y.n);
}

/* All columns but y, when none were named. */
static void take_all(learning *k, int y, const manta_table_options *o)
{
    k->x.at = mem_new((size_t)(k->s->n + 1) * sizeof *k->x.at);
    for (int i = 0; i < k->s->n; i++) {
        if (i == y) continue;
        k->columns[k->x.n] = i;
        k->x.at[k->x.n++] = (table_choice){
            .name = mem_strdup(k->s->names[i]), .encoding = o->categories, .missing = o->missing};
    }
}

static manta_status choose_columns(learning *k, const manta_table_options *o)
{
    int y = -1;

    if (o->y) {
        TRY(choose_y(k, o->y, o));
        TRY(table_find_column(k->s, k->y.at[0].name, 0, &y));
    }
    k->named = o->x != NULL;
    if (o->x) TRY(table_choices_read(k->s->path, "x", o->x, o, &k->x));
    k->columns = mem_new((size_t)(k->s->n + k->x.n + 2) * sizeof *k->columns);
    if (!o->x) take_all(k, y, o);
    if (!k->x.n)
        return manta_fail(MANTA_EINVAL, "%s: nothing is left beside the label, expected a column for x",
                          k->s->path);
    for (int i = 0; o->x && i < k->x.n; i++) {
        TRY(table_find_column(k->s, k->x.at[i].name, i ? k->columns[i - 1] + 1 : 0, &k->columns[i]));
        if (k->columns[i] == y)
            return manta_fail(MANTA_EINVAL, "%s: column '%.80s' is in x and is y, expected one of the two",
                              k->s->path, k->x.at[i].name);
    }
    k->columns[k->x.n] = y;
    for (int i = 0; i < k->x.n + k->y.n; i++) {
        int c = k->columns[i];
        if (k->s->refused && k->s->refused[c])
            return manta_fail(
                MANTA_EUNSUPPORTED,
                "%s: column '%.80s' is %s, expected numbers, dates or categories; choose columns, as "
                "in :x=A+B,y=C",
                k->s->path, k->s->names[c], k->s->refused[c]);
        k->wanted[c] = true;
    }
    for (int i = 0; i < k->x.n + k->y.n; i++) {
        const table_choice *c = i < k->x.n ? &k->x.at[i] : &k->y.at[0];
        k->seen[k->columns[i]].categories |= c->type == MANTA_TABLE_TYPE_CATEGORY;
    }
    return MANTA_OK;
}

/* ---- whether they are what they are said to be ---- */

static manta_status refuse_text(const learning *k, const char *name, const table_seen *c)
{
    return manta_fail(
        MANTA_EUNSUPPORTED,
        "%s: column '%.60s' is text, such as '%s', expected numbers, dates or at most %d different "
        "values, which are categories; choose columns, as in :x=A+B,y=C",
        k->s->path, name, c->example[0] ? c->example[0] : "", MANTA_TABLE_CATEGORIES);
}

/* A number or a date where there is none. */
static manta_status check_values(const learning *k, const char *name, const table_seen *c, bool dates)
{
    int64_t others = dates ? c->numbers : c->dates, at = dates ? c->number_place : c->date_place;
    const char *text = dates ? "a number" : "a date";
    char quoted[64];

    if (c->texts && (!others || c->text_place < at)) {
        at = c->text_place;
        (void)snprintf(quoted, sizeof quoted, "'%s'", c->text);
        text = quoted;
    }
    if (!c->texts && !others) return MANTA_OK;
    return manta_fail(
        MANTA_ECORRUPT,
        "%s: %s %lld, column '%.60s' is %s, expected a %s as in most rows; %.60s@category would "
        "take its values as categories",
        k->s->path, k->s->row_word, (long long)at, name, text, dates ? "date" : "number", name);
}

static manta_status check_categories(const learning *k, const char *name, const table_seen *c)
{
    if (c->foreign)
        return manta_fail(MANTA_ECORRUPT,
                          "%s: %s %lld, column '%.60s' has bytes that are not UTF-8, expected UTF-8 text "
                          "(iconv converts a file)",
                          k->s->path, k->s->row_word, (long long)c->foreign_place, name);
    if (!c->many && c->values.n) return MANTA_OK;
    if (!c->many)
        return manta_fail(MANTA_EINVAL,
                          "%s: column '%.60s' has no values, expected one at least of a column of "
                          "categories",
                          k->s->path, name);
    return manta_fail(MANTA_EUNSUPPORTED,
                      "%s: column '%.60s' has more than %d different values or one of more than %d bytes, "
                      "expected fewer of a column of categories",
                      k->s->path, name, MANTA_TABLE_CATEGORIES, TABLE_CATEGORY_BYTES);
}

static manta_status check_missing(const learning *k, const table_column *c, const table_seen *seen, bool y)
{
    if (!seen->missing || c->missing == MANTA_TABLE_MISSING_DROP) return MANTA_OK;
    if (y)
        return manta_fail(MANTA_ENAN,
                          "%s: %s %lld, column '%.60s' is missing, and it is the label; expected a value, or "
                          "missing=drop, which leaves such rows out",
                          k->s->path, k->s->row_word, (long long)seen->missing_place, c->name);
    if (c->missing != MANTA_TABLE_MISSING_REFUSE) return MANTA_OK;
    return manta_fail(
        MANTA_ENAN,
        "%s: %s %lld, column '%.60s' is missing, expected a value or a rule: missing=drop, mean, "
        "zero or nan",
        k->s->path, k->s->row_word, (long long)seen->missing_place, c->name);
}

/* ---- the mapping ---- */

/* By number when there is a locale to read numbers with, else by text. */
static int compare_categories(const void *a, const void *b, void *c_locale)
{
    const char *s = *(char *const *)a, *t = *(char *const *)b;
    double x = c_locale ? strtod_l(s, NULL, c_locale) : 0, y = c_locale ? strtod_l(t, NULL, c_locale) : 0;

    return x < y ? -1 : x > y ? 1 : strcmp(s, t);
}

static void keep_categories(table_column *c, const table_seen *seen)
{
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    bool numbers = seen->texts + seen->dates == 0;
    int64_t most = -1;

    c->n = (int)seen->values.n;
    c->categories = mem_new((size_t)(c->n + 1) * sizeof *c->categories);
    for (int i = 0; i < c->n; i++) c->categories[i] = mem_strdup(seen->values.at[i].key);
    qsort_r(c->categories, (size_t)c->n, sizeof *c->categories, compare_categories,
            numbers ? c_locale : NULL);
    if (c_locale) freelocale(c_locale);
    for (int i = 0; i < c->n; i++) {
        int64_t often = *map_find(&seen->values, c->categories[i]);
        if (often <= most) continue;
        most = often;
        c->frequent = i;
    }
    table_column_index(c);
}

static manta_status settle_column(const learning *k, const table_choice *choice, int column, bool y,
                                  table_column *out)
{
    const table_seen *seen = &k->seen[column];

    *out = (table_column){.name = mem_strdup(k->s->names[column]),
                          .type = choice->type,
                          .encoding = y ? MANTA_TABLE_ENCODING_INTEGER : choice->encoding,
                          .missing = choice->missing};
    if (!out->type) out->type = table_seen_type(seen);
    switch (out->type) {
    case MANTA_TABLE_TYPE_CATEGORY:
        TRY(check_categories(k, out->name, seen));
        keep_categories(out, seen);
        break;
    case MANTA_TABLE_TYPE_NUMBER:
    case MANTA_TABLE_TYPE_DATE:
        TRY(check_values(k, out->name, seen, out->type == MANTA_TABLE_TYPE_DATE));
        if (seen->numbers + seen->dates) out->mean = seen->sum / (double)(seen->numbers + seen->dates);
        out->whole = y && seen->whole;
        break;
    default: return refuse_text(k, out->name, seen);
    }
    return check_missing(k, out, seen, y);
}

static manta_status settle_mapping(const learning *k, manta_table *t)
{
    t->x = mem_new((size_t)(k->x.n + 1) * sizeof *t->x);
    for (int i = 0; i < k->x.n; i++) {
        t->n_x++;
        TRY(settle_column(k, &k->x.at[i], k->columns[i], false, &t->x[i]));
    }
    t->has_y = k->y.n > 0;
    return t->has_y ? settle_column(k, &k->y.at[0], k->columns[k->x.n], true, &t->y) : MANTA_OK;
}

manta_status table_learn(table_source *s, const manta_table_options *o, manta_table **out)
{
    learning k = {.s = s};
    manta_table *t = mem_new(sizeof *t);
    int64_t rows;
    manta_status st;

    k.wanted = mem_new((size_t)s->n + 1);
    k.seen = mem_new((size_t)(s->n + 1) * sizeof *k.seen);
    if ((st = choose_columns(&k, o))) goto out;
    if ((st = table_see(s, k.wanted, k.seen, &rows))) goto out;
    if ((st = settle_mapping(&k, t))) goto out;
    *out = t;
    t = NULL;
out:
    manta_table_free(t);
    table_seen_release(s->n, k.seen);
    table_choices_release(&k.x);
    table_choices_release(&k.y);
    mem_free(k.columns);
    mem_free(k.wanted);
    return st;
}
