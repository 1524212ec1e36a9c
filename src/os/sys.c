/* sys.c - the system's own table. Calls that are variadic, or that the C
 * library does not wrap everywhere, get a function here. */
#include "os/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int real_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

static int real_openat(int dir, const char *path, int flags, mode_t mode)
{
    return openat(dir, path, flags, mode);
}

static int real_futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout,
                      uint32_t mask)
{
    return (int)syscall(SYS_futex, word, op, value, timeout, NULL, mask);
}

static int real_pidfd_open(pid_t pid, unsigned flags)
{
    return (int)syscall(SYS_pidfd_open, pid, flags);
}

const os_sys os_real = {
    .open = real_open,
    .openat = real_openat,
    .close = close,
    .read = read,
    .pread = pread,
    .write = write,
    .pwrite = pwrite,
    .fsync = fsync,
    .ftruncate = ftruncate,
    .fallocate = fallocate,
    .fchmod = fchmod,
    .stat = stat,
    .fstat = fstat,
    .rename = rename,
    .unlink = unlink,
    .mkdir = mkdir,
    .fdopendir = fdopendir,
    .readdir = readdir,
    .closedir = closedir,
    .mmap = mmap,
    .munmap = munmap,
    .memfd_create = memfd_create,
    .pthread_create = pthread_create,
    .futex = real_futex,
    .pidfd_open = real_pidfd_open,
    .sched_getaffinity = sched_getaffinity,
};

const os_sys *os = &os_real;

void os_use(const os_sys *table)
{
    os = table ? table : &os_real;
}
