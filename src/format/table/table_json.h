/* table_json.h - a mapping as text, and out of it. */
#ifndef FORMAT_TABLE_TABLE_JSON_H
#define FORMAT_TABLE_TABLE_JSON_H

#include <stddef.h>

#include <manta/table.h>

#define TABLE_MOST_BYTES (256 << 20) /* of such a text */

/* The text of a mapping that will lie at `path`. *out: owned, give back with free(); untouched on failure.
 * MANTA_EINVAL it has what JSON cannot hold. */
manta_status table_text(const manta_table *t, const char *path, char **out) MANTA_MUST_USE;

/* Reads text[0..size), which sentences call `path`. *out: owned, untouched on failure.
 * MANTA_ECORRUPT names what is missing. */
manta_status table_parse(const char *path, const char *text, size_t size, manta_table **out) MANTA_MUST_USE;

#endif
