/* shard.h - which part of a source one of several workers reads: some of its
 * files, or every n-th of its samples (`shards` of manta_open_options). */
#ifndef FORMAT_CODEC_SHARD_H
#define FORMAT_CODEC_SHARD_H

#include "os/file.h"
#include <manta/data_file.h>

/* Leaves of the files those of the caller's part, when files are what is
 * divided. MANTA_EINVAL: there are fewer files than parts and the policy
 * insists. `what` names the dataset. */
manta_status shard_files(const manta_open_options *o, const char *what, file_names *files) MANTA_MUST_USE;

/* The last stage of a source that had so many files before shard_files():
 * divides the samples when files are not what is divided. Takes d. Says in the
 * log what AUTO has chosen. */
manta_dataset *shard_samples(const manta_open_options *o, size_t files, manta_dataset *d);

#endif
