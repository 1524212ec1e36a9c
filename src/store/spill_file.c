/* spill_file.c - see spill_file.h. */
#include "store/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "os/file.h"
#include "os/sys.h"
#include "store/sizes.h"

static int open_patiently(const char *path, int flags)
{
    int fd;

    do fd = os->open(path, flags | O_RDWR | O_CLOEXEC, 0600);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* A name for a moment; it is random enough for O_EXCL to settle the rest. */
static int open_and_unlink(const char *folder)
{
    char path[512];

    for (unsigned i = 0; i < 100; i++) {
        int n = snprintf(path, sizeof path, "%s/manta-spill-%d-%llx", folder, (int)getpid(),
                         (unsigned long long)clock_now_ns() + i);
        if (n < 0 || (size_t)n >= sizeof path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = open_patiently(path, O_CREAT | O_EXCL | O_NOFOLLOW);
        if (fd >= 0) os->unlink(path);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

manta_status spill_file_new(const char *folder, size_t size, int *out)
{
    int rc, fd = open_patiently(folder, O_TMPFILE);

    if (fd < 0 && errno == ENOENT && os->mkdir(folder, 0700) == 0) fd = open_patiently(folder, O_TMPFILE);
    /* EISDIR: a kernel, EOPNOTSUPP: a file system that cannot do it. */
    if (fd < 0 && (errno == EISDIR || errno == EOPNOTSUPP || errno == EINVAL)) fd = open_and_unlink(folder);
    if (fd < 0) return file_fail(errno, "making a file to spill to in", folder);
    do rc = os->fallocate(fd, 0, 0, (off_t)size);
    while (rc && errno == EINTR);
    if (rc && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
        int err = errno;
        os->close(fd);
        return file_fail(err, "reserving room to spill to in", folder);
    }
    *out = fd;
    return MANTA_OK;
}

static manta_status copy_chunk(int from, int to, off_t at, size_t n, const char *folder, char *chunk)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = os->pread(from, chunk + done, n - done, at + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_fail(errno, "reading what was spilled to", folder);
        if (got == 0) return manta_fail(MANTA_EIO, "what was spilled to %s is cut short", folder);
        done += (size_t)got;
    }
    for (size_t done = 0; done < n;) {
        ssize_t put = os->pwrite(to, chunk + done, n - done, at + (off_t)done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return file_fail(errno, "spilling to", folder);
        if (put == 0) return file_fail(ENOSPC, "spilling to", folder);
        done += (size_t)put;
    }
    return MANTA_OK;
}

manta_status spill_file_copy(int from, int to, size_t size, const char *folder, uint32_t *crc)
{
    manta_status st = MANTA_OK;
    char *chunk = mem_try_raw(STORE_SPILL_CHUNK);

    if (!chunk) return manta_fail(MANTA_ENOMEM, "there is no memory to spill objects with");
    *crc = 0;
    for (size_t at = 0; at < size && !st; at += STORE_SPILL_CHUNK) {
        size_t n = size - at < STORE_SPILL_CHUNK ? size - at : STORE_SPILL_CHUNK;
        st = copy_chunk(from, to, (off_t)at, n, folder, chunk);
        if (!st) *crc = crc32c(*crc, chunk, n);
    }
    mem_try_free(chunk);
    return st;
}
