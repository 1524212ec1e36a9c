/* spill_file.h - the files that segments without room in memory are written to.
 *
 * A file has no name from its first moment on (or, where the file system cannot
 * do that, for the moment between two system calls), so that it goes with the
 * process that holds it open, however that ends. */
#ifndef STORE_SPILL_FILE_H
#define STORE_SPILL_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Makes a file without a name in `folder`, which is made (0700) when it is
 * missing, with disk space for `size` bytes. *fd: owned. MANTA_ENOSPC */
manta_status spill_file_new(const char *folder, size_t size, int *fd) MANTA_MUST_USE;

/* Copies `size` bytes from the start of one descriptor to that of the other;
 * *crc is the checksum of what was copied. MANTA_ENOSPC, MANTA_EIO (also when
 * `from` ends early). `folder` is for the sentence. */
manta_status spill_file_copy(int from, int to, size_t size, const char *folder, uint32_t *crc) MANTA_MUST_USE;

#endif
