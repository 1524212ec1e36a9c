/* builtin_datasets.h - the datasets that Manta knows by name: which files each has,
 * in which folders those are looked for, and from where they are fetched. */
#ifndef FORMAT_BUILTIN_DATASETS_H
#define FORMAT_BUILTIN_DATASETS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct builtin_file {
    const char *name; /* the file's name, in its folder and at its origin */
    const char *sha256; /* checksum of the unpacked contents, because mirrors pack differently */
} builtin_file;

typedef struct builtin_dataset {
    const char *name;
    const char *url; /* the folder its files come from */
    builtin_file files[4]; /* train images, train labels, test images, test labels */
    int classes;
} builtin_dataset;

bool builtin_is_name(const char *text, size_t n); /* whether text[0..n) names such a dataset */
const builtin_dataset *builtin_find(const char *name); /* static; NULL when no dataset is called so */
const char *builtin_names(void); /* "mnist, fashion-mnist" */
/* "; did you mean NAME?" with the name nearest to `typed`, or "" (base/suggest.h). Returns out. */
const char *builtin_near(const char *typed, char *out, size_t size);

/* The user's cache folder for data; owned by the caller (mem_free).
 * MANTA_ENOENT when neither XDG_CACHE_HOME nor HOME is set. */
manta_status builtin_cache_dir(char **out);

/* The path of a file of the set, packed or not, in the first folder that has
 * it: `first` (NULL: $MANTA_DATA), the cache, what came with Manta.
 * MANTA_ENOENT with a sentence that says what to do. Owned by the caller. */
manta_status builtin_locate(const builtin_dataset *set, int file, const char *first, char **out);

#endif
