/* seek.h - bytes by their offset: of a file that is too large to be read whole,
 * or of memory.
 *
 * Nothing is kept but the descriptor, so any number of threads may read, and a
 * forked process goes on with it. A file that was cut short since it was opened
 * is an error, not a signal, because it is read and not mapped. */
#ifndef FORMAT_CODEC_SEEK_H
#define FORMAT_CODEC_SEEK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct seek_file {
    char *path; /* owned; what sentences call the file */
    uint64_t size;
    int fd; /* -1: the bytes are in memory */
    const uint8_t *data; /* the bytes, when they are in memory (fd is -1); else NULL */
    void *owned; /* memory of mem_try() that seek_close() gives back, or NULL */
} seek_file;

/* Opens the regular file at `path`. MANTA_ENOENT, MANTA_EPERM, MANTA_EIO. */
manta_status seek_open(const char *path, seek_file *out) MANTA_MUST_USE;

/* A seek_file over `size` bytes at `data`, which must outlive it; `name` stands for a
 * path in sentences. */
seek_file seek_over(const char *name, const void *data, size_t size);

/* A seek_file over `size` bytes at `data`, memory of mem_try() that it takes and gives
 * back with seek_close(). */
seek_file seek_take(const char *name, void *data, size_t size);

/* Copies n bytes from offset `at` on. MANTA_ECORRUPT, with the offset, when
 * there are fewer; `what` is what was looked for there. */
manta_status seek_read(const seek_file *f, uint64_t at, void *to, size_t n, const char *what) MANTA_MUST_USE;

void seek_close(seek_file *f); /* accepts a file that was never opened, if its bytes are zero */

#endif
