/* npz.h - NumPy's .npz: a zip archive of .npy members. */
#ifndef FORMAT_ARRAY_NPZ_H
#define FORMAT_ARRAY_NPZ_H

#include <manta/data_file.h>

#include "format/codec/zip.h"
#include "format/codec/input.h"

/* Member `name` (or name.npy) of an archive as an array. */
manta_status npz_member(const zip *z, const char *name, bool allow_nan, blob *out);

/* Column "x" from member x and, unless y is NULL, "y" from member y. Both NULL:
 * members called x and y, or else the only one there is. */
manta_status npz_open(const char *path, const char *x, const char *y, const manta_open_options *o,
                      manta_dataset **out);

/* Columns as `columns` says: COLUMN=MEMBER, apart by commas. */
manta_status npz_open_columns(const char *path, const char *columns, const manta_open_options *o,
                              manta_dataset **out);

#endif
