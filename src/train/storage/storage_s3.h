/* train/storage/storage_s3.h - a bucket of S3 as a storage: s3://BUCKET/PREFIX.
 *
 * A path is a key. A folder is a key that ends in "/", and whatever begins with it. S3
 * renames nothing and locks nothing, so:
 *
 *   .STEM.PID.manta-tmp/        what claim() puts first: the folder STEM is not published
 *   STEM/FILE                   what is written to .STEM.PID.manta-tmp/FILE, in its last place
 *   .STEM.PID.manta-tmp/manifest.json   the manifest, until
 *   STEM/manifest.json          publish() puts it, with If-None-Match: the one step
 *
 * list() does not tell STEM as long as its mark is there and its manifest is not, so a half
 * checkpoint is seen by nobody. withdraw() puts the mark, then removes the manifest, which is the
 * step, then the rest. What a crash leaves behind has a mark, and goes by remove_tree().
 *
 * claim() is a put with If-None-Match, lock() a lease (s3_lease.h). A server that does not
 * know such puts is refused at the first of them, unless MANTA_STORAGE_UNLOCKED=1 says that
 * nobody else uses the place. */
#ifndef TRAIN_STORAGE_STORAGE_S3_H
#define TRAIN_STORAGE_STORAGE_S3_H

#include "train/storage/storage.h"
#include "web/s3.h"

extern const storage_ops storage_s3;

/* Where a path lies: what is written to an unpublished folder lies in the folder that it
 * will be. *out: s3_place_release(). */
manta_status storage_s3_place(const char *path, s3_place *out) MANTA_MUST_USE;

#endif
