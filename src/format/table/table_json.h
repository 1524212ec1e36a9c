/* table_json.h - a mapping out of the text of a file. */
#ifndef FORMAT_TABLE_TABLE_JSON_H
#define FORMAT_TABLE_TABLE_JSON_H

#include <stddef.h>

#include <manta/table.h>

/* Reads text[0..size), which sentences call `path`. *out: owned, untouched on failure.
 * MANTA_ECORRUPT names what is missing. */
manta_status table_parse(const char *path, const char *text, size_t size, manta_table **out) MANTA_MUST_USE;

#endif
