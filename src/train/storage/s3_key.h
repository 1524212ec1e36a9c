/* train/storage/s3_key.h - which key a file of an unpublished folder has. Pure.
 *
 * A folder comes to be under a name of litter, .STEM.PID.manta-tmp or .STEM.manta-tmp, and is
 * published as STEM. S3 renames nothing, so its files have the keys of STEM from the beginning,
 * but for the manifest. */
#ifndef TRAIN_STORAGE_S3_KEY_H
#define TRAIN_STORAGE_S3_KEY_H

#include <stdbool.h>
#include <stddef.h>

#define S3_KEY_LITTER   ".manta-tmp"
#define S3_KEY_MANIFEST "manifest.json"

/* The length of STEM in a name of n bytes, where it begins at name + 1; 0: it is no name of litter. */
size_t s3_key_stem(const char *name, size_t n);

/* The last part of a key. Borrowed. */
const char *s3_key_last(const char *key);

/* Whether the key is that of an unpublished folder itself. */
bool s3_key_is_litter(const char *key);

/* The key of a file, with STEM for the unpublished folder that it lies in; the manifest keeps its
 * own. Of several "/" one stays. Owned by the caller. */
char *s3_key_settle(const char *key);

/* The key of the folder that an unpublished one will be. Owned by the caller. */
char *s3_key_published(const char *key);

#endif
