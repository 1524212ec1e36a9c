/* sys.c - the system's own table. Calls that are variadic, or that the C
 * library does not wrap everywhere, get a function here. */
#include "os/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

static int real_pidfd_send_signal(int pidfd, int sig)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

/* As fork() of a process with one thread, but with no signal at its end. The C
 * library does not learn of it, so the child must do little, or fork() again. */
static pid_t real_fork_quiet(void)
{
    return (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, 0);
}

static pid_t real_clone(int (*fn)(void *arg), void *stack_end, int flags, void *arg)
{
    return clone(fn, stack_end, flags, arg);
}

static int real_prctl(int option, unsigned long value)
{
    return prctl(option, value, 0, 0, 0);
}

static int real_fcntl(int fd, int command, int value)
{
    return fcntl(fd, command, value);
}

/* The C library declares these with a union of pointers. */
static int real_bind(int fd, const struct sockaddr *at, socklen_t size)
{
    return bind(fd, at, size);
}

static int real_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
    return accept4(fd, from, size, flags);
}

static int real_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    return connect(fd, to, size);
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
    .sync_file_range = sync_file_range,
    .fchmod = fchmod,
    .stat = stat,
    .fstat = fstat,
    .rename = rename,
    .link = link,
    .unlink = unlink,
    .mkdir = mkdir,
    .rmdir = rmdir,
    .fdopendir = fdopendir,
    .readdir = readdir,
    .closedir = closedir,
    .mmap = mmap,
    .munmap = munmap,
    .madvise = madvise,
    .memfd_create = memfd_create,
    .pthread_create = pthread_create,
    .futex = real_futex,
    .pidfd_open = real_pidfd_open,
    .pidfd_send_signal = real_pidfd_send_signal,
    .sched_getaffinity = sched_getaffinity,
    .fork = fork,
    .fork_quiet = real_fork_quiet,
    .clone = real_clone,
    .kill = kill,
    .waitpid = waitpid,
    .prctl = real_prctl,
    .signalfd = signalfd,
    .socketpair = socketpair,
    .socket = socket,
    .bind = real_bind,
    .listen = listen,
    .accept4 = real_accept4,
    .connect = real_connect,
    .pipe2 = pipe2,
    .sendmsg = sendmsg,
    .recvmsg = recvmsg,
    .fcntl = real_fcntl,
    .poll = poll,
    .epoll_create1 = epoll_create1,
    .epoll_ctl = epoll_ctl,
    .epoll_wait = epoll_wait,
};

const os_sys *os = &os_real;

void os_use(const os_sys *table)
{
    os = table ? table : &os_real;
}
