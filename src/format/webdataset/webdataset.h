/* webdataset.h - datasets out of tar archives of samples (WebDataset).
 *
 * A sample is a run of members whose path is the same up to the first dot of
 * the base name; what follows that dot says what a member is:
 *
 *     train/000001.jpg  train/000001.cls  |  train/000002.jpg  train/000002.cls  | ...
 *
 * One pass over the headers makes an index, so that samples can be shuffled;
 * contents are read and decoded when they are asked for. Shards are several
 * files: shard-{000000..000003}.tar, or shard-*.tar in the order of names. A
 * gzip'd shard is unpacked into memory, because nothing else can be indexed.
 *
 * Kinds of members, by the last part of what follows the dot:
 *   png jpg jpeg        an image, u8, or f32 in [0,1] unless the options say raw
 *   npy                 an array, all of one dtype and shape
 *   bin                 bytes, all of one number; scaled as images are
 *   cls id index inx    a whole number as text, i64
 *   txt                 a number as text: i64, or f32 when the first is not whole
 *   json.KEY            the number under KEY of a JSON object, as txt */
#ifndef FORMAT_WEBDATASET_WEBDATASET_H
#define FORMAT_WEBDATASET_WEBDATASET_H

#include <manta/data_file.h>

#include "format/codec/seek.h"

/* Opens the archives `paths` as one dataset. x and y say what the members for the columns are called, alternatives parted
 * by semicolons ("png;jpg"). x NULL: the images or arrays of the first sample,
 * and its cls as y, if it has one.
 * MANTA_ENOENT no such file or member; MANTA_ECORRUPT; MANTA_EINVAL. */
manta_status webdataset_open(const char *paths, const char *x, const char *y, const manta_open_options *o,
                             manta_dataset **out);

/* Opens one archive that is open already as a dataset, as webdataset_open() does.
 * Takes f, on failure too. */
manta_status webdataset_open_file(seek_file f, const char *x, const char *y, const manta_open_options *o,
                                  manta_dataset **out);

/* Where the sample's key ends in a member's name: at the first dot of the base
 * name. NULL for a member that belongs to no sample. */
const char *webdataset_key_end(const char *name);

#endif
