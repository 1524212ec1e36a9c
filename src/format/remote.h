/* remote.h - data that lies behind a server: s3://BUCKET/KEY, https://HOST/PATH.
 *
 * A file is brought into the user's cache, ~/.cache/manta/data/remote/SUM/NAME, whole or not at
 * all, with the mark (ETag) that the server gave it in NAME.etag. The next one who asks for it
 * asks the server whether it is still the same, and reads what is here. When the server
 * cannot be reached, what is here serves, with a warning. */
#ifndef FORMAT_REMOTE_H
#define FORMAT_REMOTE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Where the address in a specification ends: at a comma, or at a colon behind the host. 0: the text begins
 * with no address. Pure. */
size_t remote_length(const char *text);

/* Brings all files that a specification names by their addresses, and writes the same with
 * the paths that they have here. *out: owned; NULL: it names none. */
manta_status remote_bring_all(const char *spec, char **out) MANTA_MUST_USE;

#endif
