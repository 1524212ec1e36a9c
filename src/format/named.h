/* named.h - the datasets that have a name: what they consist of, where they
 * are looked for, and where they come from. */
#ifndef FORMAT_NAMED_H
#define FORMAT_NAMED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct named_file {
    const char *name; /* under which it lies in its folder, and at its origin */
    const char *sha256; /* of the unpacked contents: mirrors pack differently */
} named_file;

typedef struct named_set {
    const char *name;
    const char *url; /* the folder its files come from */
    named_file files[4]; /* train images, train labels, test images, test labels */
    int classes;
} named_set;

bool named_is(const char *text, size_t n); /* whether text[0..n) is a name */
const named_set *named_find(const char *name); /* NULL when there is none; static */
const char *named_list(void); /* "mnist, fashion-mnist" */

/* The user's cache folder for data; owned by the caller (mem_free).
 * MANTA_ENOENT when neither XDG_CACHE_HOME nor HOME is set. */
manta_status named_cache_dir(char **out);

/* The path of a file of the set, packed or not, in the first folder that has
 * it: `first` (NULL: $MANTA_DATA), the cache, what came with Manta.
 * MANTA_ENOENT with a sentence that says what to do. Owned by the caller. */
manta_status named_locate(const named_set *set, int file, const char *first, char **out);

#endif
