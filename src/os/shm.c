/* shm.c - see shm.h. */
#include "os/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/file.h"
#include "os/sys.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define LARGE ((size_t)16 << 20) /* from here on it is worth asking how much there is */

size_t shm_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t shm_round(size_t size)
{
    size_t page = shm_page();
    return (size + page - 1) / page * page;
}

/* The kernel would take pages for a large reservation from everyone else, and
 * then kill somebody, before it says no: so we say it. */
static bool is_too_much(size_t size)
{
    char text[4096];
    const char *at;
    if (size < LARGE || file_read_text("/proc/meminfo", text, sizeof text)) return false;
    at = strstr(text, "MemAvailable:");
    return at && size / 1024 >= strtoull(at + strlen("MemAvailable:"), NULL, 10);
}

manta_status shm_new(const char *name, size_t size, int *out)
{
    if (is_too_much(size))
        return manta_fail(MANTA_ENOSPC, "reserving %zu bytes of shared memory: there are not so many", size);
    int fd = os->memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = os->memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return manta_fail(MANTA_EIO, "making shared memory: %s", strerror(errno));
    int rc;
    do rc = os->fallocate(fd, 0, 0, (off_t)size);
    while (rc && errno == EINTR);
    if (rc || os->fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        int err = errno;
        os->close(fd);
        return manta_fail(err == ENOSPC || err == ENOMEM ? MANTA_ENOSPC : MANTA_EIO,
                          "reserving %zu bytes of shared memory: %s", size, strerror(err));
    }
    *out = fd;
    return MANTA_OK;
}

manta_status shm_size(int fd, size_t *size)
{
    struct stat s;
    int seals = os->fcntl(fd, F_GET_SEALS, 0);
    int want = F_SEAL_SHRINK | F_SEAL_GROW;
    if (seals < 0 || (seals & want) != want || os->fstat(fd, &s) || s.st_size <= 0)
        return manta_fail(MANTA_ECORRUPT, "a descriptor that is no shared memory of a sealed size");
    *size = (size_t)s.st_size;
    return MANTA_OK;
}

/* Children of user code must not write into what we share with others. */
static void *keep_private(void *at, size_t size)
{
    (void)madvise(at, size, MADV_DONTFORK);
    (void)madvise(at, size, MADV_DONTDUMP);
    return at;
}

manta_status shm_map(int fd, size_t size, bool writable, void **out)
{
    void *at = os->mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return manta_fail(errno == EPERM ? MANTA_EPERM : MANTA_ENOMEM,
                          "mapping %zu bytes of shared memory: %s", size, strerror(errno));
    *out = keep_private(at, size);
    return MANTA_OK;
}

void shm_unmap(void *at, size_t size)
{
    if (at) os->munmap(at, size);
}

manta_status shm_map_twice(int fd, size_t at, size_t size, void **out)
{
    /* The range is reserved first, so that no other thread takes its second half. */
    char *base = os->mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return manta_fail(MANTA_ENOMEM, "mapping a ring: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        if (os->mmap(base + (size_t)i * size, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                     (off_t)at) == MAP_FAILED) {
            int err = errno;
            os->munmap(base, 2 * size);
            return manta_fail(MANTA_ENOMEM, "mapping a ring: %s", strerror(err));
        }
    }
    *out = keep_private(base, 2 * size);
    return MANTA_OK;
}

manta_status shm_seal_writes(int fd)
{
    if (os->fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
        return manta_fail(MANTA_EIO, "sealing shared memory: %s", strerror(errno));
    return MANTA_OK;
}

bool shm_is_sealed(int fd)
{
    int seals = os->fcntl(fd, F_GET_SEALS, 0);
    return seals >= 0 && (seals & F_SEAL_FUTURE_WRITE) != 0;
}
