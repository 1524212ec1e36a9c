/* csv_table.h - a CSV file as a table: what stands between its fields, whether it has a
 * header, and its rows. */
#ifndef FORMAT_CSV_CSV_TABLE_H
#define FORMAT_CSV_CSV_TABLE_H

#include "format/codec/seek.h"
#include "format/table/table.h"

/* Opens the table in `f`, which it takes, on failure too. Of the options delimiter and header
 * are read. block: see csv_records_open(). *out: table_source_release(); untouched on failure.
 * MANTA_ECORRUPT an empty file, and what csv_records_next() says. */
manta_status csv_table_open(seek_file f, const manta_table_options *o, size_t block,
                            table_source *out) MANTA_MUST_USE;

/* Opens the file at `path`, which may be a pipe: it is then read into memory. */
manta_status csv_table_open_path(const char *path, const manta_table_options *o,
                                 table_source *out) MANTA_MUST_USE;

/* The delimiter that head[0..n) is written with, where all its complete records have the same
 * number of fields, more than one; a comma when none is such. Pure. */
char csv_find_delimiter(const uint8_t *head, size_t n);

/* What a source that csv_table_open() made found out. */
char csv_table_delimiter(const table_source *s);
bool csv_table_has_header(const table_source *s);

#endif
