/* table_choice.c - which columns are taken, and how, from the words of a user. */
#include <stdlib.h>
#include <string.h>

#include <manta/tool_text.h>

#include "base/buf.h"
#include "base/mem.h"
#include "format/table/table.h"

static const char *const missing_names[] = {"refuse", "drop", "mean", "zero", "nan"};
static const char *const type_names[] = {"found", "number", "date", "category", "text"};

enum {
    N_MISSING = sizeof missing_names / sizeof *missing_names,
    N_TYPES = sizeof type_names / sizeof *type_names
};

const char *table_missing_name(manta_table_missing m)
{
    return m >= 0 && (int)m < N_MISSING ? missing_names[m] : "?";
}

bool table_missing_find(const char *word, manta_table_missing *out)
{
    for (int i = 0; i < N_MISSING; i++) {
        if (strcmp(word, missing_names[i]) != 0) continue;
        *out = (manta_table_missing)i;
        return true;
    }
    return false;
}

const char *manta_table_type_name(manta_table_type t)
{
    return t >= 0 && (int)t < N_TYPES ? type_names[t] : "?";
}

manta_status table_options_check(const char *function, const manta_table_options *o)
{
    if (o->missing < 0 || (int)o->missing >= N_MISSING)
        return manta_fail(MANTA_EINVAL, "%s: missing is %d, which is no rule", function, (int)o->missing);
    if (o->categories < 0 || o->categories > MANTA_TABLE_ENCODING_INTEGER)
        return manta_fail(MANTA_EINVAL, "%s: categories is %d, which is no encoding", function,
                          (int)o->categories);
    if (o->header < 0 || o->header > MANTA_TABLE_HEADER_NO)
        return manta_fail(MANTA_EINVAL, "%s: header is %d, expected FOUND, YES or NO", function,
                          (int)o->header);
    if (o->delimiter && !strchr(",;\t|:", o->delimiter))
        return manta_fail(MANTA_EINVAL, "%s: delimiter is %d, expected ',', ';', ':', '|' or a tab", function,
                          o->delimiter);
    return MANTA_OK;
}

/* ---- the texts of x and y ---- */

/* Adds what stands up to one of `ends` to *out, backslashes taken away; returns where it ended. */
static const char *take_word(const char *p, const char *ends, buf *out)
{
    for (; *p && !strchr(ends, *p); p++) {
        if (*p == '\\' && p[1]) p++;
        buf_add_char(out, *p);
    }
    return p;
}

/* What a word behind '@' says. */
static bool apply_word(const char *word, table_choice *c)
{
    if (!strcmp(word, "onehot") || !strcmp(word, "integer")) {
        c->type = MANTA_TABLE_TYPE_CATEGORY;
        c->encoding = word[0] == 'o' ? MANTA_TABLE_ENCODING_ONEHOT : MANTA_TABLE_ENCODING_INTEGER;
        return true;
    }
    for (int i = MANTA_TABLE_TYPE_NUMBER; i <= MANTA_TABLE_TYPE_CATEGORY; i++) {
        if (strcmp(word, type_names[i]) != 0) continue;
        c->type = (manta_table_type)i;
        return true;
    }
    return table_missing_find(word, &c->missing);
}

static manta_status read_choice(const char *path, const char *what, const char **text, table_choice *c)
{
    buf word = {0};
    const char *ends = what[0] == 'y' ? "@" : "+@"; /* y is one column, whose name may have a + */
    const char *p = take_word(*text, ends, &word);
    manta_status st = MANTA_OK;

    if (!word.n)
        st = manta_fail(MANTA_EINVAL, "%s: %s: a column without a name, expected COLUMN+COLUMN", path, what);
    c->name = mem_strdup(buf_text(&word));
    while (!st && *p == '@') {
        buf_cut(&word, 0);
        p = take_word(p + 1, ends, &word);
        if (!apply_word(buf_text(&word), c)) {
            st = manta_fail(MANTA_EINVAL,
                            "%s: %s: column '%.60s' is followed by @%.40s, expected number, date, category, "
                            "onehot, integer, refuse, drop, mean, zero or nan",
                            path, what, c->name, buf_text(&word));
        }
    }
    buf_release(&word);
    *text = p;
    return st;
}

manta_status table_choices_read(const char *path, const char *what, const char *text,
                                const manta_table_options *o, table_choices *out)
{
    table_choices all = {0};
    manta_status st = MANTA_OK;

    for (const char *p = text; !st;) {
        all.at = mem_resize(all.at, (size_t)(all.n + 1) * sizeof *all.at);
        table_choice *c = &all.at[all.n++];
        *c = (table_choice){.encoding = o->categories, .missing = o->missing};
        st = read_choice(path, what, &p, c);
        for (int i = 0; !st && i < all.n - 1; i++) {
            if (!strcmp(all.at[i].name, c->name))
                st = manta_fail(MANTA_EINVAL, "%s: %s names column '%.80s' twice, expected once", path, what,
                                c->name);
        }
        if (!*p) break;
        p++;
    }
    if (st) {
        table_choices_release(&all);
        return st;
    }
    *out = all;
    return MANTA_OK;
}

void table_choices_release(table_choices *c)
{
    for (int i = 0; i < c->n; i++) mem_free(c->at[i].name);
    mem_free(c->at);
    *c = (table_choices){0};
}

/* ---- finding them ---- */

/* Says which columns there are, and the nearest. */
static manta_status no_column(const table_source *s, const char *name)
{
    manta_suggestion near = manta_suggestion_for(name);
    buf all = {0};
    char hint[160];

    for (int i = 0; i < s->n; i++) {
        manta_suggestion_offer(&near, s->names[i]);
        if (all.n < 200) buf_printf(&all, "%s%.60s", i ? ", " : "", s->names[i]);
    }
    manta_status st = manta_fail(MANTA_ENOENT, "%s: there is no column '%.80s'; there are: %s%s%s", s->path,
                                 name, buf_text(&all), all.n >= 200 ? ", ..." : "",
                                 manta_suggestion_text(&near, hint, sizeof hint));
    buf_release(&all);
    return st;
}

manta_status table_find_column(const table_source *s, const char *name, int from, int *out)
{
    char *end;

    for (int i = 0; i < s->n; i++) {
        int at = (int)(((int64_t)from + i) % s->n);
        if (strcmp(s->names[at], name) != 0) continue;
        *out = at;
        return MANTA_OK;
    }
    long k = strtol(name, &end, 10);
    if (*end != '\0' || end == name || k < 0 || k >= s->n) return no_column(s, name);
    *out = (int)k;
    return MANTA_OK;
}
