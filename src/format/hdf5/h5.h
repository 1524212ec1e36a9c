/* h5.h - HDF5 files in memory.
 *
 * A reader of our own for what h5py, Keras and their like write, in the oldest
 * form of the format and in the newest: superblocks 0 to 3, groups of all forms,
 * attributes, datasets in one piece or in chunks (deflate, shuffle, fletcher32).
 * Only what lies in the file itself is read: soft and external links, external
 * and virtual datasets are refused, since they would reach for other files.
 * Sizes are checked against the bytes that are there before memory is allocated.
 *
 * Threads: an h5_file is used by one thread at a time. */
#ifndef FORMAT_HDF5_H5_H
#define FORMAT_HDF5_H5_H

#include "base/vec.h"
#include "format/model/model_file.h"

typedef struct h5_file h5_file;

bool h5_is(const uint8_t *data, size_t size);

/* Opens the file image data[0..size), which must outlive *out and be 8-byte
 * aligned; `path` is for sentences. *out: owned, h5_close(). */
manta_status h5_open(const char *path, const uint8_t *data, size_t size, h5_file **out) MANTA_MUST_USE;
void h5_close(h5_file *f); /* accepts NULL; with all that was joined to it */

/* Makes `more` a part of f, which owns it now: groups hold what they hold in either,
 * and of two things at one place the one in f counts. Attributes are those of f. */
void h5_join(h5_file *f, h5_file *more);

typedef enum h5_kind { H5_NOTHING, H5_GROUP, H5_DATASET } h5_kind;

/* What lies at `at` ("layers/dense/vars/0"). MANTA_EUNSUPPORTED a link that leads elsewhere. */
manta_status h5_find(h5_file *f, const char *at, h5_kind *out) MANTA_MUST_USE;

/* The names in a group, in the order of their bytes; links of any kind. Give back with h5_names_release(). */
typedef VEC(char *) h5_names;
manta_status h5_list(h5_file *f, const char *at, h5_names *out) MANTA_MUST_USE;
void h5_names_release(h5_names *names);

/* Adds the dataset at `at` to s as `name`: a view of the file image where it
 * lies there as we need it, else a converted copy. Floating point becomes
 * float32, float64, float16 or bfloat16, integers int64 (int32, uint8), h5py's
 * bool one. What nobody wrote has the dataset's fill value. */
manta_status h5_read(h5_file *f, const char *at, manta_saved *s, const char *name) MANTA_MUST_USE;

/* Shape of the dataset at `at`. */
manta_status h5_shape(h5_file *f, const char *at, int *ndim, int64_t shape[MANTA_MAX_DIMS]) MANTA_MUST_USE;

/* A text attribute of the object at `at` ("" is the root), owned by the caller (mem_free);
 * *out is NULL when there is none. At most max bytes. */
manta_status h5_text(h5_file *f, const char *at, const char *attribute, size_t max,
                     char **out) MANTA_MUST_USE;
/* A list of texts, split over attribute0, attribute1, ... when it is long. An
 * empty list may have any type. *found false: no such attribute. */
manta_status h5_texts(h5_file *f, const char *at, const char *attribute, h5_names *out,
                      bool *found) MANTA_MUST_USE;

#endif
