/* parquet.h - datasets out of Parquet files.
 *
 * Column "x": the named leaves side by side, or all but the label.
 *   numbers, and lists of numbers of one length   f32 of shape (k,)
 *   one list alone                                in its own dtype
 *   one column of bytes, PNG or JPEG              images
 *   one column of other bytes, of one length      u8 of shape (n,)
 * Images and bytes (also a list of 8-bit unsigned numbers) become f32 in [0,1]
 * unless the options say raw. Column "y": the label, i64 when it is written as
 * an integer or a boolean, else f32. A leaf inside a structure is called by its
 * path, image.bytes.
 *
 * A row group is read and decoded when the first of its samples is asked for, by
 * whichever reader does, and stays: a file that is shuffled is decoded once. */
#ifndef FORMAT_PARQUET_PARQUET_H
#define FORMAT_PARQUET_PARQUET_H

#include <manta/data_file.h>

#include "format/codec/seek.h"

/* Opens the file at `path` as a dataset. x: leaves joined with '+', NULL for all but the label; label: NULL for none.
 * The first row group is decoded at once, what is wrong with later ones is told
 * by their first sample. MANTA_ENOENT no such file or column; MANTA_ECORRUPT;
 * MANTA_EUNSUPPORTED, naming the column and what it is; MANTA_ENAN a null. */
manta_status parquet_open(const char *path, const char *x, const char *label, const manta_open_options *o,
                          manta_dataset **out);

/* Opens a file that is open already as a dataset, as parquet_open() does. Takes f, on
 * failure too. */
manta_status parquet_open_file(seek_file f, const char *x, const char *label, const manta_open_options *o,
                               manta_dataset **out);

#endif
