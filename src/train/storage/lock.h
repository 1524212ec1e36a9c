/* train/storage/lock.h - one process at a time in a folder.
 *
 * The lock is the kernel's and belongs to the process: it goes when the
 * process does, however that ends, and workers forked from it do not hold it. */
#ifndef TRAIN_STORAGE_LOCK_H
#define TRAIN_STORAGE_LOCK_H

#include <sys/types.h>

#include "base/status.h"

typedef struct lock lock; /* opaque, see lock.c */

/* Takes the lock file at `path`, made where it is missing.
 * *out: owned, lock_release(). MANTA_EBUSY with who has it. */
manta_status lock_take(const char *path, lock **out) MANTA_MUST_USE;
void lock_release(lock *l); /* accepts NULL */

/* The process that holds the lock file at `path`; 0: nobody, or there is none. */
pid_t lock_holder(const char *path);

#endif
