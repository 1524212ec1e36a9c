/* train/storage/s3_log.h - a file that grows, in a storage whose objects do not.
 *
 * The lines are kept in memory and put whole, by a thread: who adds never waits for the
 * server. While one put is on its way, lines gather for the next. A crash loses what was
 * added since the last put; s3_log_sync() waits for it.
 *
 * Threads: any. */
#ifndef TRAIN_STORAGE_S3_LOG_H
#define TRAIN_STORAGE_S3_LOG_H

#include <stddef.h>

#include "base/status.h"

typedef struct s3_log s3_log; /* opaque, see s3_log.c */

/* Opens with what is there. *out: owned, s3_log_close(). */
manta_status s3_log_open(const char *path, s3_log **out) MANTA_MUST_USE;
manta_status s3_log_add(s3_log *l, const void *data, size_t n) MANTA_MUST_USE;

/* Waits until what was added is stored, or could not be. */
manta_status s3_log_sync(s3_log *l) MANTA_MUST_USE;
void s3_log_close(s3_log *l); /* stores what is left */

#endif
