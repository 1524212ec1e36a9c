/* table_facts.c - a table described for people, with what to write to train on it. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "format/table/table.h"

void manta_table_facts_release(manta_table_facts *f)
{
    if (!f) return;
    for (int i = 0; i < f->n; i++) {
        mem_free(f->columns[i].name);
        for (int k = 0; k < MANTA_TABLE_EXAMPLES; k++) mem_free(f->columns[i].example[k]);
    }
    mem_free(f->columns);
    mem_free(f->suggestion);
    *f = (manta_table_facts){0};
}

static void describe_column(const char *name, table_seen *seen, manta_table_column *out)
{
    *out = (manta_table_column){.name = mem_strdup(name),
                                .type = table_seen_type(seen),
                                .missing = seen->missing,
                                .least = seen->least,
                                .most = seen->most};
    for (int i = 0; i < MANTA_TABLE_EXAMPLES; i++) {
        out->example[i] = seen->example[i];
        seen->example[i] = NULL;
    }
    if (out->type == MANTA_TABLE_TYPE_CATEGORY) out->distinct = (int64_t)seen->values.n;
    if (out->type != MANTA_TABLE_TYPE_NUMBER && out->type != MANTA_TABLE_TYPE_DATE) return;
    int64_t others = out->type == MANTA_TABLE_TYPE_NUMBER ? seen->dates : seen->numbers;
    int64_t place = out->type == MANTA_TABLE_TYPE_NUMBER ? seen->date_place : seen->number_place;
    out->odd = seen->texts + others;
    out->odd_row = seen->texts && (!others || seen->text_place < place) ? seen->text_place : place;
}

/* A name as it stands in a choice of columns. */
static void add_name(buf *to, const char *name)
{
    for (; *name; name++) {
        if (strchr("+@,\\", *name)) buf_add_char(to, '\\');
        buf_add_char(to, *name);
    }
}

static bool fits_choice(const manta_table_column *c)
{
    return c->type != MANTA_TABLE_TYPE_TEXT && *c->name;
}

/* The last column that fits, dates apart: they are hardly what is to be learnt. -1: none. */
static int choose_label(const manta_table_facts *f)
{
    int y = -1, date = -1;

    for (int i = 0; i < f->n; i++) {
        if (!fits_choice(&f->columns[i])) continue;
        if (f->columns[i].type == MANTA_TABLE_TYPE_DATE) {
            date = i;
        } else {
            y = i;
        }
    }
    return y >= 0 ? y : date;
}

/* Whether x is many columns, and all there are but y: then it need not be said. */
static bool is_rest(const manta_table_facts *f, int y)
{
    enum { FEW = 12 };

    for (int i = 0; i < f->n; i++) {
        if (i != y && (!fits_choice(&f->columns[i]) || f->columns[i].odd)) return false;
    }
    return f->n - 1 > FEW;
}

/* What to write: one column as y, the others as x; those with odd values as categories, and a
 * rule where something is missing. */
static char *suggest_choice(const char *path, const manta_table_facts *f)
{
    buf to = {0};
    bool missing = false, first = true;
    int y = choose_label(f);

    for (int i = 0; i < f->n; i++) {
        missing |= fits_choice(&f->columns[i]) && f->columns[i].missing > 0;
    }
    if (y < 0) return NULL;
    buf_add_text(&to, path);
    bool rest = is_rest(f, y);
    if (rest) first = false;
    for (int i = 0; i < f->n && !rest; i++) {
        if (i == y || !fits_choice(&f->columns[i])) continue;
        buf_add_text(&to, first ? ":x=" : "+");
        add_name(&to, f->columns[i].name);
        if (f->columns[i].odd) buf_add_text(&to, "@category");
        first = false;
    }
    if (first) {
        buf_release(&to);
        return NULL;
    }
    buf_add_text(&to, rest ? ":y=" : ",y=");
    add_name(&to, f->columns[y].name);
    if (f->columns[y].odd) buf_add_text(&to, "@category");
    if (missing) buf_add_text(&to, f->columns[y].missing ? ",missing=drop" : ",missing=mean");
    return buf_take(&to);
}

manta_status table_describe(table_source *s, manta_table_facts *out)
{
    bool *wanted = mem_new((size_t)s->n + 1);
    table_seen *seen = mem_new((size_t)(s->n + 1) * sizeof *seen);
    int64_t rows;

    for (int i = 0; i < s->n; i++) wanted[i] = !s->refused || !s->refused[i];
    manta_status st = table_see(s, wanted, seen, &rows);
    if (!st) {
        manta_table_facts f = {.format = s->format, .rows = rows, .n = s->n};
        f.columns = mem_new((size_t)(s->n + 1) * sizeof *f.columns);
        for (int i = 0; i < s->n; i++) {
            describe_column(s->names[i], &seen[i], &f.columns[i]);
            if (wanted[i]) continue;
            f.columns[i].type = MANTA_TABLE_TYPE_TEXT;
            f.columns[i].refused = s->refused[i];
        }
        f.suggestion = suggest_choice(s->path, &f);
        *out = f;
    }
    table_seen_release(s->n, seen);
    mem_free(wanted);
    return st;
}
