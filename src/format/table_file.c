/* table_file.c - which reader a table's file needs, and the calls of manta/table.h that read one. */
#include <string.h>

#include <manta/table.h>

#include "base/args.h"
#include "format/csv/csv_table.h"
#include "format/parquet/parquet_table.h"
#include "format/table/table.h"

static const manta_table_options no_options;

static bool ends_in(const char *path, const char *tail)
{
    size_t n = strlen(path), k = strlen(tail);

    return n > k && !strcmp(path + n - k, tail);
}

static manta_status open_source(const char *function, const char *path, const manta_table_options *o,
                                table_source *out)
{
    TRY(table_options_check(function, o));
    if (ends_in(path, ".csv") || ends_in(path, ".tsv")) return csv_table_open_path(path, o, out);
    if (ends_in(path, ".parquet")) return parquet_table_open_path(path, out);
    return manta_fail(MANTA_EUNSUPPORTED, "%s: no table, by its name; expected a .csv, .tsv or .parquet file",
                      path);
}

manta_status manta_table_learn(const char *path, const manta_table_options *options, manta_table **out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    const manta_table_options *o = options ? options : &no_options;
    table_source s;

    TRY(open_source(__func__, path, o, &s));
    manta_status st = table_learn(&s, o, out);
    table_source_release(&s);
    return st;
}

manta_status manta_table_dataset(const manta_table *t, const char *path, const manta_table_options *options,
                                 manta_dataset **out)
{
    REFUSE_NULL(t);
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    const manta_table_options *o = options ? options : &no_options;
    table_source s;

    TRY(open_source(__func__, path, o, &s));
    manta_status st = table_dataset(t, &s, o, out);
    table_source_release(&s);
    return st;
}

manta_status manta_table_describe(const char *path, const manta_table_options *options,
                                  manta_table_facts *out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    const manta_table_options *o = options ? options : &no_options;
    table_source s;

    TRY(open_source(__func__, path, o, &s));
    manta_status st = table_describe(&s, out);
    if (!st && !strcmp(s.format, "csv")) {
        out->delimiter = csv_table_delimiter(&s);
        out->has_header = csv_table_has_header(&s);
    }
    table_source_release(&s);
    return st;
}
