/* manta/table.h - tables as people have them: files of rows whose columns have names and
 * types, and how these become the numbers that a model is trained on.
 *
 * A table is a CSV file (comma, semicolon, tab or bar between fields, quoted as RFC 4180
 * says, with a header line or without) or a Parquet file of plain columns. Each column is
 * of one type, which is found by reading all of it, or named:
 *
 *   number     f32
 *   date       f32: days since 1970-01-01, the time of day as a fraction.
 *              2024-05-31, 2024/05/31, 31.05.2024; perhaps with T or a blank and 12:30,
 *              12:30:15 or 12:30:15.5, and Z or +02:00
 *   category   one of a few texts: its place among them in sorted order (integer), or as
 *              many numbers as there are texts, of which one is 1 (onehot)
 *   text       anything else; nothing can be computed from it
 *
 * A column in which more than half of the values are numbers is one of numbers, and a
 * text in it is an error that names its line: so that a slip of the pen does not make
 * categories of a measurement. Likewise for dates. Any other column is one of categories
 * when it has few different values (up to 32, or up to half as many as rows, and no more than
 * MANTA_TABLE_CATEGORIES), else of text.
 *
 * A value is missing when its field is empty, or is one of NA, N/A, n/a, NaN, nan, NULL, null,
 * None, <NA>, #N/A and ? without quotes; in Parquet when it is null or NaN. What is done then
 * is a rule that the caller names; without one it is an error that names row and column.
 *
 * What was learnt from the training data (types, categories, what stands in for a missing
 * value) is a mapping. It is kept beside the model, and makes the same numbers of any
 * other file with these columns, whatever their order there.
 *
 * Threads: a mapping may be used by several at once. */
#ifndef MANTA_TABLE_H
#define MANTA_TABLE_H

#include <manta/data.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_TABLE_CATEGORIES 1024 /* different values that a column of categories may have */
#define MANTA_TABLE_EXAMPLES   3

typedef enum manta_table_type {
    MANTA_TABLE_TYPE_FOUND = 0, /* in options: what the values say */
    MANTA_TABLE_TYPE_NUMBER,
    MANTA_TABLE_TYPE_DATE,
    MANTA_TABLE_TYPE_CATEGORY,
    MANTA_TABLE_TYPE_TEXT
} manta_table_type;

/* What is done about a missing value. */
typedef enum manta_table_missing {
    MANTA_TABLE_MISSING_REFUSE = 0, /* it is an error, with row and column */
    MANTA_TABLE_MISSING_DROP, /* its row is left out; in a prediction, which has a result for each row, refused */
    MANTA_TABLE_MISSING_MEAN, /* the mean of the training data; of categories the most frequent */
    MANTA_TABLE_MISSING_ZERO, /* 0; categories get one more, of their own */
    MANTA_TABLE_MISSING_NAN /* NaN; categories get one more, of their own */
} manta_table_missing;

/* What a column of categories becomes in x. In y it is its place, an i64. */
typedef enum manta_table_encoding {
    MANTA_TABLE_ENCODING_ONEHOT = 0,
    MANTA_TABLE_ENCODING_INTEGER
} manta_table_encoding;

typedef enum manta_table_header {
    MANTA_TABLE_HEADER_FOUND = 0, /* the first line is one when some field of it is no number */
    MANTA_TABLE_HEADER_YES,
    MANTA_TABLE_HEADER_NO /* columns are called 0, 1, ... */
} manta_table_header;

/* How a file is read and which columns are taken. Zeroed memory is the default. */
typedef struct manta_table_options {
    /* Columns joined with '+', each perhaps followed by words behind '@': a type (number,
     * date, category), an encoding (onehot, integer), a rule (refuse, drop, mean, zero,
     * nan), as in "age@mean+city@onehot". A backslash takes the meaning from the character
     * behind it. x NULL: all columns but y; y NULL: none. y is one column. */
    const char *x, *y;
    manta_table_missing missing; /* of columns that do not say a rule */
    manta_table_encoding categories; /* of columns that do not say an encoding */
    char delimiter; /* of CSV; 0: found among comma, semicolon, tab and bar */
    manta_table_header header;
    bool keep_rows; /* MANTA_TABLE_MISSING_DROP is refused where it would leave a row out */
    bool without_y; /* the mapping's y is not read, and need not be there */
} manta_table_options;

typedef struct manta_table manta_table; /* a mapping; opaque, one owner */

/* ---- a mapping ---------------------------------------------------------- */

/* Reads the table at `path` and learns the mapping of the chosen columns. options may be NULL.
 * *out: owned by the caller, manta_table_free(); untouched on failure. MANTA_ENOENT no such
 * file or column; MANTA_ECORRUPT a field that is not what its column holds, with line,
 * column and what was expected; MANTA_ENAN a missing value without a rule;
 * MANTA_EUNSUPPORTED a column of text, or a file that is no table. */
MANTA_API manta_status manta_table_learn(const char *path, const manta_table_options *options,
                                         manta_table **out) MANTA_MUST_USE;

/* The rows of the table at `path` as the mapping says: column "x", f32 of shape (k,), and
 * where the mapping has one "y", i64 or f32. x and y of the options, when they are given,
 * must be those of the mapping. The file is read now; it takes 4 bytes a value in memory.
 * *out: owned, manta_dataset_unref(). Fails as manta_table_learn() does, and with
 * MANTA_EINVAL on a category that the mapping does not know. */
MANTA_API manta_status manta_table_dataset(const manta_table *t, const char *path,
                                           const manta_table_options *options,
                                           manta_dataset **out) MANTA_MUST_USE;

/* Writes the mapping as JSON, whole or not at all, and reads it back. */
MANTA_API manta_status manta_table_save(const manta_table *t, const char *path) MANTA_MUST_USE;
MANTA_API manta_status manta_table_load(const char *path, manta_table **out) MANTA_MUST_USE;

/* How many numbers a row of x has. */
MANTA_API int64_t manta_table_width(const manta_table *t);
/* The classes of y: how many, 0 when it is no column of categories; and the i-th, NULL
 * beyond the last. Borrowed until manta_table_free(). */
MANTA_API int64_t manta_table_classes(const manta_table *t);
MANTA_API const char *manta_table_class(const manta_table *t, int64_t i);

MANTA_API void manta_table_free(manta_table *t); /* accepts NULL */

/* ---- what a table holds ------------------------------------------------- */

typedef struct manta_table_column {
    char *name;
    manta_table_type type;
    int64_t missing; /* rows without a value */
    int64_t distinct; /* of categories: how many there are; 0: not counted */
    double least, most; /* of numbers and dates; NaN without any */
    char *example[MANTA_TABLE_EXAMPLES]; /* different values in the order of rows; NULL: no more */
    int64_t odd; /* values of numbers or dates that are none */
    int64_t odd_row; /* the line (CSV) or row (Parquet) of the first of them */
    const char
        *refused; /* what it is that no table has, as "a list", and it was not read; static; NULL: nothing */
} manta_table_column;

typedef struct manta_table_facts {
    const char *format; /* "csv", "parquet"; static */
    char delimiter; /* of CSV */
    bool has_header; /* of CSV */
    int64_t rows;
    int n;
    manta_table_column *columns; /* owned */
    char *suggestion; /* what manta_dataset_open() would take, with the last fitting column as y; owned */
} manta_table_facts;

/* Reads the table at `path`, all of it, in bounded memory, and says what its columns hold.
 * Of the options delimiter and header are read; they may be NULL. *out: give back with
 * manta_table_facts_release(); untouched on failure. */
MANTA_API manta_status manta_table_describe(const char *path, const manta_table_options *options,
                                            manta_table_facts *out) MANTA_MUST_USE;
MANTA_API void manta_table_facts_release(manta_table_facts *f); /* accepts zeroed memory */

/* A type's word: "number", "date", "category", "text"; never NULL. */
MANTA_API const char *manta_table_type_name(manta_table_type t);

#ifdef __cplusplus
}
#endif
#endif
