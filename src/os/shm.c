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

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define LARGE      ((size_t)16 << 20) /* from here on it is worth asking how much there is */
#define LARGE_PAGE ((size_t)2 << 20)

size_t shm_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t shm_large_page(void)
{
    return LARGE_PAGE;
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

/* The kernel is asked for large pages outright: whether memory like this gets them
 * by itself is a setting of the machine, usually off. It makes them of extents
 * that are not empty, so each gets one page first; the rest of it need not be
 * copied then. One call for all: each has the kernel visit every core. Only a
 * wish: whatever it does not grant is reserved in small pages afterwards. */
static bool get_large_pages(int fd, size_t size)
{
    size_t whole = size / LARGE_PAGE * LARGE_PAGE;
    void *at;

    if (!whole || os->ftruncate(fd, (off_t)size)) return false;
    if (shm_map(fd, size, true, &at)) return false;
    bool fine = true;
    for (size_t i = 0; fine && i < whole; i += LARGE_PAGE)
        fine = !os->fallocate(fd, 0, (off_t)i, (off_t)shm_page());
    fine = fine && !os->madvise(at, whole, MADV_COLLAPSE);
    shm_unmap(at, size);
    return fine;
}

static int memory_file(const char *name)
{
    int fd = os->memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = os->memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

static manta_status make_memory(const char *name, size_t size, bool large, int *out)
{
    if (is_too_much(size))
        return manta_fail(MANTA_ENOSPC,
                          "reserving %zu bytes of shared memory: the machine does not have as many", size);
    int fd = memory_file(name);
    if (fd < 0) return manta_fail(MANTA_EIO, "shared memory cannot be made: %s", strerror(errno));
    if (large) (void)get_large_pages(fd, size);
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

manta_status shm_new_empty(const char *name, int *out)
{
    int fd = memory_file(name);

    if (fd < 0) return manta_fail(MANTA_EIO, "shared memory cannot be made: %s", strerror(errno));
    *out = fd;
    return MANTA_OK;
}

manta_status shm_grow(int fd, size_t size)
{
    struct stat s;

    if (os->fstat(fd, &s))
        return manta_fail(MANTA_EIO, "the size of shared memory cannot be told: %s", strerror(errno));
    if (!is_too_much(size) && get_large_pages(fd, size)) return MANTA_OK;
    if (os->ftruncate(fd, s.st_size))
        return manta_fail(MANTA_EIO, "shared memory cannot be made smaller: %s", strerror(errno));
    return manta_fail(MANTA_ENOSPC, "reserving %zu bytes on large pages: the system has none", size);
}

manta_status shm_new(const char *name, size_t size, int *out)
{
    return make_memory(name, size, false, out);
}

manta_status shm_new_large(const char *name, size_t size, int *out)
{
    return make_memory(name, size, true, out);
}

manta_status shm_size(int fd, size_t *size)
{
    struct stat s;
    int seals = os->fcntl(fd, F_GET_SEALS, 0);
    int want = F_SEAL_SHRINK | F_SEAL_GROW;

    if (seals < 0 || (seals & want) != want || os->fstat(fd, &s) || s.st_size <= 0)
        return manta_fail(
            MANTA_ECORRUPT,
            "opening shared memory: descriptor %d has no sealed size, expected memory that Manta made", fd);
    *size = (size_t)s.st_size;
    return MANTA_OK;
}

/* Children of user code must not write into what we share with others. */
static void *keep_private(void *at, size_t size)
{
    (void)os->madvise(at, size, MADV_DONTFORK);
    (void)os->madvise(at, size, MADV_DONTDUMP);
    return at;
}

/* A place whose address is a multiple of the large page, as one has to be for a
 * large page to be mapped there in one piece; MAP_FAILED: there is none. */
static char *large_place(size_t size)
{
    char *all = os->mmap(NULL, size + LARGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (all == MAP_FAILED) return MAP_FAILED;
    size_t before = (LARGE_PAGE - (uintptr_t)all % LARGE_PAGE) % LARGE_PAGE;
    if (before) os->munmap(all, before);
    os->munmap(all + before + size, LARGE_PAGE - before);
    return all + before;
}

static manta_status map_memory(int fd, size_t size, int protection, int kind, void **out)
{
    char *place = size < LARGE_PAGE ? MAP_FAILED : large_place(size);
    void *at = os->mmap(place == MAP_FAILED ? NULL : place, size, protection,
                        kind | (place == MAP_FAILED ? 0 : MAP_FIXED), fd, 0);

    if (at == MAP_FAILED && place != MAP_FAILED) {
        const int err = errno;
        os->munmap(place, size);
        errno = err;
    }
    if (at == MAP_FAILED)
        return manta_fail(errno == EPERM ? MANTA_EPERM : MANTA_ENOMEM,
                          "mapping %zu bytes of shared memory: %s", size, strerror(errno));
    *out = at;
    return MANTA_OK;
}

manta_status shm_map(int fd, size_t size, bool writable, void **out)
{
    void *at;

    TRY(map_memory(fd, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, &at));
    *out = keep_private(at, size);
    return MANTA_OK;
}

manta_status shm_map_copy(int fd, size_t size, void **out)
{
    return map_memory(fd, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, out);
}

void shm_forget(void *at, size_t size)
{
    (void)os->madvise(at, size, MADV_DONTNEED); /* it cannot fail on a mapping of ours */
}

void shm_unmap(void *at, size_t size)
{
    if (at) os->munmap(at, size);
}

manta_status shm_map_twice(int fd, size_t at, size_t size, void **out)
{
    /* The range is reserved first, so that no other thread takes its second half. */
    char *base = os->mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED)
        return manta_fail(MANTA_ENOMEM, "memory for a ring cannot be mapped: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        if (os->mmap(base + (size_t)i * size, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                     (off_t)at) == MAP_FAILED) {
            int err = errno;
            os->munmap(base, 2 * size);
            return manta_fail(MANTA_ENOMEM, "memory for a ring cannot be mapped: %s", strerror(err));
        }
    }
    *out = keep_private(base, 2 * size);
    return MANTA_OK;
}

manta_status shm_seal_writes(int fd)
{
    if (os->fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
        return manta_fail(MANTA_EIO, "shared memory cannot be sealed: %s", strerror(errno));
    return MANTA_OK;
}

bool shm_is_sealed(int fd)
{
    int seals = os->fcntl(fd, F_GET_SEALS, 0);

    return seals >= 0 && (seals & F_SEAL_FUTURE_WRITE) != 0;
}
