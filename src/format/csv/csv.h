/* csv.h - comma-separated numbers, quoted as RFC 4180 says.
 *
 * A first line in which some field is no number is a header. Blank lines are
 * passed over, a byte order mark is too. Numbers are read as the C locale
 * writes them, whatever the program's locale. */
#ifndef FORMAT_CSV_CSV_H
#define FORMAT_CSV_CSV_H

#include <manta/data_file.h>

#include "format/codec/input.h"

/* Column "x": the numbers of a line but the label's, f32 of shape (k,).
 * Column "y", when label (a header's name, or a number from 0 on) is not NULL:
 * i64 when every label is a whole number, else f32. */
typedef struct csv_table {
    int64_t rows;
    int64_t columns; /* columns of x */
    float *x; /* rows x columns; owned */
    void *y; /* rows, or NULL; owned */
    manta_dtype y_dtype;
} csv_table;

/* Parses data[0..size), which sentences call `name`. MANTA_ECORRUPT ragged, unterminated quote or no number, MANTA_ENAN, each
 * with line and field; MANTA_ENOENT no such label column. */
manta_status csv_parse(const char *name, const uint8_t *data, size_t size, const char *label, bool allow_nan,
                       csv_table *out);
/* Parses as csv_parse() does, but never with the kernels of csv_fast.h: the result that
 * those are compared with. */
manta_status csv_parse_slowly(const char *name, const uint8_t *data, size_t size, const char *label,
                              bool allow_nan, csv_table *out);
void csv_release(csv_table *t); /* accepts zeroed memory */

/* Opens a file of plain numbers, comma-separated and without quotes. *odd: it is none, or no
 * regular file, and *out is untouched; csv_table.h reads it, or says what is wrong. */
manta_status csv_open_plain(const char *path, const char *label, const manta_open_options *o, bool *odd,
                            manta_dataset **out);

#endif
