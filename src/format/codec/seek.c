/* seek.c - bytes by their offset. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/mem.h"
#include "format/codec/seek.h"
#include "os/file.h"
#include "os/sys.h"

manta_status seek_open(const char *path, seek_file *out)
{
    struct stat info;
    int fd;

    do fd = os->open(path, O_RDONLY | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return file_fail(errno, "opening", path);
    manta_status st = MANTA_OK;
    if (os->fstat(fd, &info)) {
        st = file_fail(errno, "looking at", path);
    } else if (!S_ISREG(info.st_mode)) {
        st = manta_fail(MANTA_EINVAL, "%s: expected a regular file", path);
    }
    if (st) {
        os->close(fd);
        return st;
    }
    *out = (seek_file){.path = mem_strdup(path), .size = (uint64_t)info.st_size, .fd = fd};
    return MANTA_OK;
}

seek_file seek_over(const char *name, const void *data, size_t size)
{
    return (seek_file){.path = mem_strdup(name), .size = size, .fd = -1, .data = data};
}

seek_file seek_take(const char *name, void *data, size_t size)
{
    return (seek_file){.path = mem_strdup(name), .size = size, .fd = -1, .data = data, .owned = data};
}

static manta_status cut_off(const seek_file *f, uint64_t end, uint64_t at, size_t n, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: the file ends at offset %llu, expected %s of %zu bytes at %llu",
                      f->path, (unsigned long long)end, what, n, (unsigned long long)at);
}

manta_status seek_read(const seek_file *f, uint64_t at, void *to, size_t n, const char *what)
{
    char *p = to;

    if (at > f->size || n > f->size - at) return cut_off(f, f->size, at, n, what);
    if (n == 0) return MANTA_OK;
    if (f->fd < 0) {
        memcpy(p, f->data + at, n);
        return MANTA_OK;
    }
    for (size_t done = 0; done < n;) {
        ssize_t got = os->pread(f->fd, p + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_fail(errno, "reading", f->path);
        if (got == 0) return cut_off(f, at + done, at, n, what);
        done += (size_t)got;
    }
    return MANTA_OK;
}

void seek_close(seek_file *f)
{
    /* A zeroed file has no path; its descriptor 0 is not ours. */
    if (f->path && f->fd >= 0) os->close(f->fd);
    mem_free(f->path);
    mem_try_free(f->owned);
    *f = (seek_file){.fd = -1};
}
