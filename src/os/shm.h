/* shm.h - memory that processes share by descriptor and never by name.
 *
 * The pages are reserved when the memory is made, and its size is sealed, so
 * that no access to it can ever raise SIGBUS: full is an error at the start.
 * No mapping made here is inherited by a fork or written into a core dump. */
#ifndef OS_SHM_H
#define OS_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Makes `size` bytes (a multiple of the page), zeroed. `name` shows in /proc.
 * *fd: owned, close it. MANTA_ENOSPC there is no room. */
manta_status shm_new(const char *name, size_t size, int *fd) MANTA_MUST_USE;

/* Makes `size` bytes as shm_new() does, on large pages as far as the system has some. A process that maps
 * such memory has it after a fault per 2 MiB and not per 4 KiB, and one that
 * dies is gone as much sooner: what maps 360 MB is declared dead after 0.1 ms
 * instead of 23. */
manta_status shm_new_large(const char *name, size_t size, int *fd) MANTA_MUST_USE;

/* Makes memory that is empty and may grow: for one process at a time, and what it
 * leaves to the next. *fd: owned, close it. */
manta_status shm_new_empty(const char *name, int *fd) MANTA_MUST_USE;

/* Grows the memory of shm_new_empty() to `size` bytes, a multiple of shm_large_page(); all of
 * it reserved, on large pages. What was in it stays. MANTA_ENOSPC there is no room,
 * or no large pages: it is as it was. */
manta_status shm_grow(int fd, size_t size) MANTA_MUST_USE;

/* The sealed size of memory that came from elsewhere. MANTA_ECORRUPT it is no
 * memory, or its size could still change. */
manta_status shm_size(int fd, size_t *size) MANTA_MUST_USE;

/* Maps all `size` bytes. The descriptor may be closed afterwards. *out: give
 * back with shm_unmap(). */
manta_status shm_map(int fd, size_t size, bool writable, void **out) MANTA_MUST_USE;
/* Maps all `size` bytes so that what this process writes there stays its own: a page is its
 * copy from then on, until shm_forget(); other pages it sees as they are written elsewhere.
 * *out: give back with shm_unmap(). */
manta_status shm_map_copy(int fd, size_t size, void **out) MANTA_MUST_USE;
/* Gives up the copies in [at, at + size), whole pages of such a mapping. */
void shm_forget(void *at, size_t size);
void shm_unmap(void *at, size_t size); /* accepts NULL */

/* Maps the bytes [at, at + size) of the memory twice, one copy behind the
 * other, so that what runs over the end continues at the start. at and size
 * are multiples of the page. Give back with shm_unmap(out, 2 * size). */
manta_status shm_map_twice(int fd, size_t at, size_t size, void **out) MANTA_MUST_USE;

/* From now on nobody can map it for writing; mappings that exist keep working. */
manta_status shm_seal_writes(int fd) MANTA_MUST_USE;
bool shm_is_sealed(int fd);

size_t shm_page(void);
size_t shm_large_page(void);
size_t shm_round(size_t size); /* up to whole pages */

#endif
