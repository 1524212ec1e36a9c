/* csv_fast.h - the plain case of a CSV file, fast.
 *
 * Plain is: no quotes, every record of the same number of fields, every field a
 * number. Whatever is not is not explained here: the answer is then "odd", and
 * csv.c reads the file again, slowly, and says what is wrong or gets it right.
 * So this has no errors of its own but the system's, and gives the same bits.
 *
 * The file goes through a buffer that stays in the processor's cache. Of each
 * block the separators are found first, 64 bytes at a time, and then the fields
 * between them are converted: none has to wait for the end of the one before it.
 *
 * Conversion to f32: the first 16 digits are taken as one integer and scaled in
 * double precision, which is wrong by a few units in the last
 * place of a double. That is no harm unless the double lies so close to the
 * middle between two floats that they might round apart; then strtod decides. */
#ifndef FORMAT_CSV_CSV_FAST_H
#define FORMAT_CSV_CSV_FAST_H

#include <locale.h>

#include "format/codec/seek.h"
#include "format/csv/csv.h"

typedef struct csv_plan {
    uint64_t begin; /* offset of the first record of numbers */
    int64_t fields;
    int64_t label; /* field from 0 on, or -1 */
    bool allow_nan;
    locale_t c_locale;
    const struct csv_kernel *kernel; /* NULL: the best */
} csv_plan;

/* Reads all records into t, labels as doubles; *whole says whether these are
 * whole numbers. On *odd nothing is left in t. */
manta_status csv_fast_read(const seek_file *f, const csv_plan *p, csv_table *t, bool *whole, bool *odd);

/* ---- between csv_fast.c and its kernels ------------------------------------------- */

/* What may be read behind a block, and before it. */
#define CSV_SLACK 64

/* Complete records in memory, and where their numbers go. */
typedef struct csv_rows {
    const csv_plan *plan;
    const uint8_t *at; /* CSV_SLACK bytes before it and behind its end may be read */
    size_t n;
    uint32_t *ends; /* places of commas and line ends; room for n + 64 */
    uint32_t *lines; /* which of `ends` are line ends; has room for as many as `ends` */
    size_t n_ends, n_lines;
    uint32_t *odd; /* where 64 bytes begin in which a field may be empty, for kernels that do not see
                      it in `all`; then UINT32_MAX. Room for n / 64 + 2 */
    float *all; /* every field, before it goes to x or y; room for n + 8 */
    uint8_t
        *unsure; /* of each eight in `all`: not 0 when one may be wrong, or no number; room for n / 8 + 1 */
    float *x;
    double *y;
    int64_t rows; /* converted */
    int64_t room; /* how many there is room for */
    bool whole;
} csv_rows;

typedef struct csv_kernel {
    void (*find)(csv_rows *r); /* fills ends and lines from at */
    bool (*convert)(csv_rows *r); /* all records; false: odd, or no room */
} csv_kernel;

extern const csv_kernel csv_kernel_base, csv_kernel_avx2, csv_kernel_avx512;

/* The kernels that this machine can run, the best first; NULL: no more. */
const csv_kernel *csv_kernel_at(int i);

/* A field that the kernels are not sure of. False: it is no number, or NaN
 * where none may be. */
bool csv_slow_number(const csv_plan *p, const uint8_t *at, size_t n, double *out);

#endif
