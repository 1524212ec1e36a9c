/* parquet_table.h - a Parquet file as a table: one value a row and column, a row group in memory at a
 * time. */
#ifndef FORMAT_PARQUET_PARQUET_TABLE_H
#define FORMAT_PARQUET_PARQUET_TABLE_H

#include "format/codec/seek.h"
#include "format/table/table.h"

/* Opens the table in `f`, which it takes, on failure too. Columns are the leaves, called by their paths.
 * Rows are counted from 0 on. *out: table_source_release(); untouched on failure. */
manta_status parquet_table_open(seek_file f, table_source *out) MANTA_MUST_USE;

manta_status parquet_table_open_path(const char *path, table_source *out) MANTA_MUST_USE;

#endif
