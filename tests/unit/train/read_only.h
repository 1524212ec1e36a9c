/* read_only.h - a folder that becomes read-only while it is used, as a disk does
 * that the kernel has lost trust in: also for root, and for all processes that use
 * this table of system calls. */
#ifndef TEST_READ_ONLY_H
#define TEST_READ_ONLY_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/sys.h"

static char read_only_folder[320]; /* whose files these are */
static char read_only_flag[520]; /* a file that says since when */
static os_sys read_only_sys;

static inline bool read_only_is(void)
{
    int err = errno;
    bool there = !access(read_only_flag, F_OK);

    errno = err;
    return there;
}

static inline void read_only_set(bool on)
{
    if (on) {
        close(open(read_only_flag, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    } else {
        (void)unlink(read_only_flag);
    }
}

/* Whether a change of this path is refused. */
static inline bool read_only_refuses(const char *path)
{
    if (strncmp(path, read_only_folder, strlen(read_only_folder)) != 0 || !read_only_is()) return false;
    errno = EROFS;
    return true;
}

static inline bool read_only_refuses_fd(int fd)
{
    char link[64], path[600];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if ((n = readlink(link, path, sizeof path - 1)) < 0) return false;
    path[n] = '\0';
    return read_only_refuses(path);
}

static inline bool read_only_changes(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
}

static inline int ro_open(const char *path, int flags, mode_t mode)
{
    return read_only_changes(flags) && read_only_refuses(path) ? -1 : os_real.open(path, flags, mode);
}

static inline int ro_openat(int dir, const char *path, int flags, mode_t mode)
{
    return read_only_changes(flags) && read_only_refuses_fd(dir) ? -1
                                                                 : os_real.openat(dir, path, flags, mode);
}

static inline ssize_t ro_write(int fd, const void *data, size_t n)
{
    return read_only_refuses_fd(fd) ? -1 : os_real.write(fd, data, n);
}

static inline ssize_t ro_pwrite(int fd, const void *data, size_t n, off_t at)
{
    return read_only_refuses_fd(fd) ? -1 : os_real.pwrite(fd, data, n, at);
}

static inline int ro_ftruncate(int fd, off_t size)
{
    return read_only_refuses_fd(fd) ? -1 : os_real.ftruncate(fd, size);
}

static inline int ro_rename(const char *from, const char *to)
{
    return read_only_refuses(to) || read_only_refuses(from) ? -1 : os_real.rename(from, to);
}

static inline int ro_link(const char *from, const char *to)
{
    return read_only_refuses(to) ? -1 : os_real.link(from, to);
}

static inline int ro_unlink(const char *path)
{
    return read_only_refuses(path) ? -1 : os_real.unlink(path);
}

static inline int ro_mkdir(const char *path, mode_t mode)
{
    return read_only_refuses(path) ? -1 : os_real.mkdir(path, mode);
}

static inline int ro_rmdir(const char *path)
{
    return read_only_refuses(path) ? -1 : os_real.rmdir(path);
}

/* Before there are threads. */
static inline void read_only_install(const char *folder, const char *flag)
{
    snprintf(read_only_folder, sizeof read_only_folder, "%s", folder);
    snprintf(read_only_flag, sizeof read_only_flag, "%s", flag);
    read_only_sys = os_real;
    read_only_sys.open = ro_open;
    read_only_sys.openat = ro_openat;
    read_only_sys.write = ro_write;
    read_only_sys.pwrite = ro_pwrite;
    read_only_sys.ftruncate = ro_ftruncate;
    read_only_sys.rename = ro_rename;
    read_only_sys.link = ro_link;
    read_only_sys.unlink = ro_unlink;
    read_only_sys.mkdir = ro_mkdir;
    read_only_sys.rmdir = ro_rmdir;
    os_use(&read_only_sys);
}

#endif
