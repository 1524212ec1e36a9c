/* table.c - rows of text for people. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/print.h"

#include "cli/table.h"

enum { MOST_COLUMNS = 8 };

struct table {
    int columns, width[MOST_COLUMNS];
    const char *const *heads;
    size_t n, cap;
    char **cells; /* row after row; owned */
};

/* Characters, not bytes: a continuation byte of UTF-8 takes no place. */
static int display_width(const char *text)
{
    int n = 0;

    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static const char *column_head(const table *t, int i)
{
    return t->heads[i] + (t->heads[i][0] == '>');
}

table *table_new(const char *const *heads)
{
    table *t = calloc(1, sizeof *t);

    if (!t) abort();
    t->heads = heads;
    for (; t->columns < MOST_COLUMNS && heads[t->columns]; t->columns++) {
        t->width[t->columns] = display_width(column_head(t, t->columns));
    }
    return t;
}

void table_add(table *t, const char *fmt, ...)
{
    size_t column = t->n % (size_t)t->columns;
    va_list ap;
    int n;

    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->cells = realloc(t->cells, t->cap * sizeof *t->cells);
        if (!t->cells) abort();
    }
    va_start(ap, fmt);
    n = vasprintf(&t->cells[t->n], fmt, ap);
    va_end(ap);
    if (n < 0) abort();
    n = display_width(t->cells[t->n++]);
    if (n > t->width[column]) t->width[column] = n;
}

/* One row. Blanks wait until something follows them: no line ends in any. */
static void print_row(const table *t, char *const *cells)
{
    int blanks = 0;

    for (int i = 0; i < t->columns; i++) {
        const char *cell = cells ? cells[i] : column_head(t, i);
        int n = display_width(cell), rest = t->width[i] - n;
        bool right = t->heads[i][0] == '>';
        if (right) blanks += rest;
        if (n) print_out("%*s", blanks, "");
        print_out("%s", cell);
        blanks = (n ? 0 : blanks) + (right ? 0 : n ? rest : t->width[i]) + 2;
    }
    print_out("\n");
}

void table_print(table *t)
{
    print_row(t, NULL);
    for (size_t i = 0; i + (size_t)t->columns <= t->n; i += (size_t)t->columns) print_row(t, t->cells + i);
    for (size_t i = 0; i < t->n; i++) free(t->cells[i]);
    free(t->cells);
    free(t);
}
