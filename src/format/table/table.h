/* format/table/table.h - tables from inside: rows of cells, and the mapping that makes
 * numbers of them.
 *
 *     a file                rows of cells            what was learnt         numbers
 *     csv_table.c     \                       learn           \
 *                       ->  table_source  ->  table_learn.c  ->  manta_table  ->  table_data.c
 *     parquet_table.c /                       (first reading)  /    |            (second reading)
 *                                                                table_json.c
 *
 * A source gives rows one after the other and can begin again; whoever reads it holds one
 * row at a time, so that a table may be larger than memory until its numbers are kept. */
#ifndef FORMAT_TABLE_TABLE_H
#define FORMAT_TABLE_TABLE_H

#include <locale.h>

#include <manta/table.h>

#include "base/map.h"
#include "base/status.h"

/* ---- cells ---- */

typedef enum table_cell_kind {
    TABLE_CELL_UNREAD = 0, /* text of a file, which may say anything */
    TABLE_CELL_TEXT, /* text, and nothing else */
    TABLE_CELL_NUMBER,
    TABLE_CELL_DATE, /* `number` has days since 1970-01-01 */
    TABLE_CELL_MISSING
} table_cell_kind;

typedef struct table_cell {
    const uint8_t *at; /* of text: borrowed until the next row */
    size_t n;
    bool quoted;
    table_cell_kind kind;
    double number;
} table_cell;

/* The cell with TABLE_CELL_UNREAD replaced by what its text says. Blanks around text
 * without quotes are no part of it. */
table_cell table_cell_read(table_cell c, locale_t c_locale);

/* The number that text[0..n) is, as C's locale writes it; false when it is none. NaN is a
 * number here. */
bool table_number_read(const uint8_t *text, size_t n, locale_t c_locale, double *out);
/* Likewise a date, in days since 1970-01-01. */
bool table_date_read(const uint8_t *text, size_t n, double *days);
/* Whether text[0..n) stands for a missing value. */
bool table_missing_read(const uint8_t *text, size_t n, bool quoted);

/* The text of a cell of any kind, as a category is called; a number that has no text is
 * printed with the digits that tell it from others. Terminated, cut to `size`. Returns buf. */
const char *table_cell_text(const table_cell *c, char *buf, size_t size);
/* Whether text[0..n) is UTF-8 without a zero byte: such as can be kept in a mapping. */
bool table_is_utf8(const uint8_t *text, size_t n);
/* The text of a cell for a sentence: short, and without what a terminal would obey. Returns buf. */
const char *table_cell_show(const table_cell *c, char *buf, size_t size);

/* ---- rows ---- */

typedef struct table_source {
    const char *path; /* what sentences call the file */
    const char *format; /* "csv", "parquet" */
    const char *row_word; /* "line", "row": what `place` counts */
    int n; /* columns */
    char **names;
    const char *
        *refused; /* NULL, or of each column why it cannot be read, as "a list"; NULL: it can. The array
                             is owned, the texts static */
    void *ctx;
    /* Goes to the first row. */
    manta_status (*rewind)(void *ctx);
    /* Which columns will be asked for; optional. wanted[0..n). */
    void (*want)(void *ctx, const bool *wanted);
    /* The next row: *cells is borrowed until the next call, *place is where it stands. */
    manta_status (*next)(void *ctx, const table_cell **cells, int64_t *place, bool *end);
    void (*release)(void *ctx);
} table_source;

/* Makes names different, as columns are found by them: one without a name is called by its number, and
 * the second `a` of a file a.1, the third a.2. names[0..n) are owned texts, and replaced. */
void table_name_apart(int n, char **names);

void table_source_release(table_source *s); /* gives back names and ctx; accepts zeroed memory */

/* ---- columns and the mapping ---- */

enum { TABLE_CATEGORY_BYTES = 256 }; /* a longer text is no category */

typedef struct table_column {
    char *name;
    manta_table_type type;
    manta_table_encoding encoding;
    manta_table_missing missing;
    bool whole; /* y: every number is a whole one, so that they are i64 */
    double mean; /* of numbers and dates; 0 without any */
    int n; /* categories */
    char **categories; /* sorted; all numbers: by number */
    int frequent; /* the most frequent of them */
    MAP(uint32_t) places; /* of categories */
} table_column;

struct manta_table {
    int n_x;
    table_column *x;
    bool has_y;
    table_column y;
};

/* What the texts of a choice say of a column. */
typedef struct table_choice {
    char *name;
    manta_table_type type;
    manta_table_encoding encoding;
    manta_table_missing missing;
} table_choice;

typedef struct table_choices {
    int n;
    table_choice *at;
} table_choices;

/* Reads a text such as "age@mean+city@onehot"; what a column does not say comes from `o`.
 * `what` is "x" or "y" and `path` the file, for sentences. MANTA_EINVAL. */
manta_status table_choices_read(const char *path, const char *what, const char *text,
                                const manta_table_options *o, table_choices *out);
void table_choices_release(table_choices *c); /* accepts zeroed memory */
const char *table_missing_name(manta_table_missing m);
bool table_missing_find(const char *word, manta_table_missing *out);

/* Refuses an option that is no member of its enum. */
manta_status table_options_check(const char *function, const manta_table_options *o);

/* The column of a source called `name`, or by its number from 0 on when none is called so. It is looked for
 * from column `from` on: columns are mostly asked for in their order, and there may be many.
 * MANTA_ENOENT lists those there are, and the nearest. */
manta_status table_find_column(const table_source *s, const char *name, int from, int *out);

/* Numbers that a column takes in x. */
int64_t table_column_width(const table_column *c);
/* Whether a missing value is a category of its own, behind the others. */
bool table_has_own(const table_column *c);
/* The place of a category; -1: not known. */
int table_category_find(const table_column *c, const char *text);
/* Makes categories findable, once they stand in their order. */
void table_column_index(table_column *c);
void table_column_release(table_column *c); /* accepts zeroed memory */

/* ---- the two readings ---- */

/* What the first reading has shown of a column. */
typedef struct table_seen {
    bool categories; /* numbers and dates are gathered as categories too */
    int64_t numbers, dates, texts, missing;
    double sum, least, most; /* of numbers and dates */
    bool whole; /* every number is a whole one */
    MAP(int64_t) values; /* different texts and how often */
    bool many; /* more different ones than a column of categories has, or one too long */
    bool foreign; /* a text is not UTF-8 */
    int64_t foreign_place, text_place, number_place, date_place, missing_place; /* of the first */
    char text[48]; /* the first text, for a sentence */
    char *example[MANTA_TABLE_EXAMPLES];
} table_seen;

/* Reads all rows of `s` into seen[0..s->n); columns that are not wanted[] stay empty.
 * *rows: how many there were. */
manta_status table_see(table_source *s, const bool *wanted, table_seen *seen, int64_t *rows);
void table_seen_release(int n, table_seen *seen);
/* The type of a column that nobody named. */
manta_table_type table_seen_type(const table_seen *c);

manta_status table_learn(table_source *s, const manta_table_options *o, manta_table **out);
manta_status table_describe(table_source *s, manta_table_facts *out);
manta_status table_dataset(const manta_table *t, table_source *s, const manta_table_options *o,
                           manta_dataset **out);

#endif
