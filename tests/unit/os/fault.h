/* fault.h - a table of system calls that fails on request; for tests of os/ and
 * of all that stands on it.
 *
 *     for (int n = 1;; n++) {
 *         fault_begin((fault_plan){.at = n, .err = EIO});
 *         st = operation();
 *         if (fault_end() == 0) break;          the n-th call was never made
 *         ... st is a failure; census ...
 *     }
 *
 * Calls are counted across all threads that use the table. close, closedir
 * and munmap do their work even when they are made to fail, as the kernel's
 * do. */
#ifndef TESTS_OS_FAULT_H
#define TESTS_OS_FAULT_H

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "os/sys.h"

typedef struct fault_plan {
    int64_t at; /* the at-th call fails, counting from 1; 0: none */
    int err; /* with this errno */
    bool sticky; /* and every later one */
    bool spare_unlink; /* but not unlink: a disk that is full still lets files go */
    bool short_io; /* read and write do part of what they are asked */
    bool interrupt; /* every second call that can be interrupted is (EINTR) */
    const char *kill; /* the thread of this name dies (SIGKILL) before its at-th call, which may be in a
                         child; other threads' calls are not counted */
} fault_plan;

static fault_plan fault_current;
static _Atomic int64_t fault_calls, fault_hits;
static _Atomic unsigned fault_turn;
static _Atomic int *fault_killed; /* in memory that the children share, when somebody wants to know */

/* Whether the calling thread is the one that is to die. */
static bool fault_is_role(const char *role)
{
    char name[16] = "";

    prctl(PR_GET_NAME, name);
    return strcmp(name, role) == 0;
}

static bool fault_hit(void)
{
    if (fault_current.kill && !fault_is_role(fault_current.kill)) return false;
    int64_t n = atomic_fetch_add(&fault_calls, 1) + 1;
    const fault_plan *p = &fault_current;
    bool hit = p->at > 0 && (n == p->at || (p->sticky && n > p->at));
    if (hit && p->kill) {
        if (fault_killed) atomic_store(fault_killed, 1);
        os_real.kill(getpid(), SIGKILL);
    }
    if (hit) {
        atomic_fetch_add(&fault_hits, 1);
        errno = p->err;
    }
    return hit;
}

/* For calls that a signal may interrupt. */
static bool fault_slow(void)
{
    if (fault_current.interrupt && atomic_fetch_add(&fault_turn, 1) % 2 == 0) {
        errno = EINTR;
        return true;
    }
    return fault_hit();
}

/* At least one byte, so that there is progress. */
static size_t fault_part(size_t n)
{
    return fault_current.short_io && n > 1 ? (n + 2) / 3 : n;
}

static int fault_open(const char *path, int flags, mode_t mode)
{
    return fault_slow() ? -1 : os_real.open(path, flags, mode);
}

static int fault_openat(int dir, const char *path, int flags, mode_t mode)
{
    return fault_slow() ? -1 : os_real.openat(dir, path, flags, mode);
}

static int fault_close(int fd)
{
    bool hit = fault_slow();
    int err = errno, rc = os_real.close(fd);

    if (!hit) return rc;
    errno = err;
    return -1;
}

static ssize_t fault_read(int fd, void *b, size_t n)
{
    return fault_slow() ? -1 : os_real.read(fd, b, fault_part(n));
}

static ssize_t fault_pread(int fd, void *b, size_t n, off_t at)
{
    return fault_slow() ? -1 : os_real.pread(fd, b, fault_part(n), at);
}

static ssize_t fault_write(int fd, const void *b, size_t n)
{
    return fault_slow() ? -1 : os_real.write(fd, b, fault_part(n));
}

static ssize_t fault_pwrite(int fd, const void *b, size_t n, off_t at)
{
    return fault_slow() ? -1 : os_real.pwrite(fd, b, fault_part(n), at);
}

static int fault_fsync(int fd)
{
    return fault_slow() ? -1 : os_real.fsync(fd);
}

static int fault_ftruncate(int fd, off_t size)
{
    return fault_slow() ? -1 : os_real.ftruncate(fd, size);
}

static int fault_fallocate(int fd, int mode, off_t at, off_t n)
{
    return fault_slow() ? -1 : os_real.fallocate(fd, mode, at, n);
}

/* A hint, whose answer nobody takes: not one of the calls that are counted. */
static int fault_sync_file_range(int fd, off_t at, off_t n, unsigned flags)
{
    return os_real.sync_file_range(fd, at, n, flags);
}

static int fault_fchmod(int fd, mode_t mode)
{
    return fault_hit() ? -1 : os_real.fchmod(fd, mode);
}

static int fault_stat(const char *path, struct stat *out)
{
    return fault_hit() ? -1 : os_real.stat(path, out);
}

static int fault_fstat(int fd, struct stat *out)
{
    return fault_hit() ? -1 : os_real.fstat(fd, out);
}

static int fault_rename(const char *from, const char *to)
{
    return fault_hit() ? -1 : os_real.rename(from, to);
}

static int fault_link(const char *from, const char *to)
{
    return fault_hit() ? -1 : os_real.link(from, to);
}

static int fault_unlink(const char *path)
{
    if (fault_current.spare_unlink) return os_real.unlink(path);
    return fault_hit() ? -1 : os_real.unlink(path);
}

static int fault_mkdir(const char *path, mode_t mode)
{
    return fault_hit() ? -1 : os_real.mkdir(path, mode);
}

static int fault_rmdir(const char *path)
{
    if (fault_current.spare_unlink) return os_real.rmdir(path);
    return fault_hit() ? -1 : os_real.rmdir(path);
}

static DIR *fault_fdopendir(int fd)
{
    return fault_hit() ? NULL : os_real.fdopendir(fd);
}

static struct dirent *fault_readdir(DIR *d)
{
    return fault_hit() ? NULL : os_real.readdir(d);
}

static int fault_closedir(DIR *d)
{
    int rc = os_real.closedir(d);

    return fault_hit() ? -1 : rc;
}

static void *fault_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
    return fault_hit() ? MAP_FAILED : os_real.mmap(addr, n, prot, flags, fd, at);
}

/* Only a wish, whose failure nobody hears of. */
static int fault_madvise(void *addr, size_t n, int advice)
{
    return os_real.madvise(addr, n, advice);
}

static int fault_munmap(void *addr, size_t n)
{
    int rc = os_real.munmap(addr, n);

    return fault_hit() ? -1 : rc;
}

static int fault_memfd_create(const char *name, unsigned flags)
{
    return fault_hit() ? -1 : os_real.memfd_create(name, flags);
}

static int fault_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    return fault_hit() ? fault_current.err : os_real.pthread_create(out, attr, fn, arg);
}

/* A wait may be interrupted; a wake-up that is lost would be a different
 * kernel, so it is neither counted nor failed. */
static int fault_futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout,
                       uint32_t mask)
{
    bool waits = (op & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;

    if (waits && fault_current.interrupt && atomic_fetch_add(&fault_turn, 1) % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return os_real.futex(word, op, value, timeout, mask);
}

static int fault_pidfd_open(pid_t pid, unsigned flags)
{
    return fault_hit() ? -1 : os_real.pidfd_open(pid, flags);
}

/* As fault_kill(): a signal that is lost would be a different kernel. */
static int fault_pidfd_send_signal(int pidfd, int sig)
{
    return os_real.pidfd_send_signal(pidfd, sig);
}

static int fault_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *out)
{
    return fault_hit() ? -1 : os_real.sched_getaffinity(pid, size, out);
}

static pid_t fault_fork(void)
{
    return fault_hit() ? -1 : os_real.fork();
}

static pid_t fault_clone(int (*fn)(void *arg), void *stack_end, int flags, void *arg)
{
    return fault_hit() ? -1 : os_real.clone(fn, stack_end, flags, arg);
}

static pid_t fault_fork_quiet(void)
{
    return fault_hit() ? -1 : os_real.fork_quiet();
}

static int fault_prctl(int option, unsigned long value)
{
    return fault_hit() ? -1 : os_real.prctl(option, value);
}

static int fault_signalfd(int fd, const sigset_t *mask, int flags)
{
    return fault_hit() ? -1 : os_real.signalfd(fd, mask, flags);
}

static int fault_pipe2(int fds[2], int flags)
{
    return fault_hit() ? -1 : os_real.pipe2(fds, flags);
}

static int fault_socketpair(int domain, int type, int protocol, int fds[2])
{
    return fault_hit() ? -1 : os_real.socketpair(domain, type, protocol, fds);
}

static int fault_socket(int domain, int type, int protocol)
{
    return fault_hit() ? -1 : os_real.socket(domain, type, protocol);
}

static int fault_bind(int fd, const struct sockaddr *at, socklen_t size)
{
    return fault_hit() ? -1 : os_real.bind(fd, at, size);
}

static int fault_listen(int fd, int backlog)
{
    return fault_hit() ? -1 : os_real.listen(fd, backlog);
}

static int fault_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
    return fault_hit() ? -1 : os_real.accept4(fd, from, size, flags);
}

static int fault_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    return fault_hit() ? -1 : os_real.connect(fd, to, size);
}

static int fault_fcntl(int fd, int command, int value)
{
    return fault_hit() ? -1 : os_real.fcntl(fd, command, value);
}

static int fault_epoll_create1(int flags)
{
    return fault_hit() ? -1 : os_real.epoll_create1(flags);
}

static int fault_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    return fault_hit() && op != EPOLL_CTL_DEL ? -1 : os_real.epoll_ctl(epoll, op, fd, event);
}

/* What waits or moves messages can be interrupted; that it fails on sound
 * descriptors would be a different kernel. */
static bool fault_interrupted(void)
{
    if (!fault_current.interrupt || atomic_fetch_add(&fault_turn, 1) % 2) return false;
    errno = EINTR;
    return true;
}

static ssize_t fault_sendmsg(int fd, const struct msghdr *m, int flags)
{
    return fault_interrupted() ? -1 : os_real.sendmsg(fd, m, flags);
}

static ssize_t fault_recvmsg(int fd, struct msghdr *m, int flags)
{
    return fault_interrupted() ? -1 : os_real.recvmsg(fd, m, flags);
}

static int fault_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    return fault_interrupted() ? -1 : os_real.poll(fds, n, timeout_ms);
}

static int fault_epoll_wait(int epoll, struct epoll_event *events, int n, int timeout_ms)
{
    return fault_interrupted() ? -1 : os_real.epoll_wait(epoll, events, n, timeout_ms);
}

static pid_t fault_waitpid(pid_t pid, int *status, int options)
{
    return fault_interrupted() ? -1 : os_real.waitpid(pid, status, options);
}

static int fault_kill(pid_t pid, int sig)
{
    return os_real.kill(pid, sig);
}

static const os_sys fault_sys = {
    .open = fault_open,
    .openat = fault_openat,
    .close = fault_close,
    .read = fault_read,
    .pread = fault_pread,
    .write = fault_write,
    .pwrite = fault_pwrite,
    .fsync = fault_fsync,
    .ftruncate = fault_ftruncate,
    .fallocate = fault_fallocate,
    .sync_file_range = fault_sync_file_range,
    .fchmod = fault_fchmod,
    .stat = fault_stat,
    .fstat = fault_fstat,
    .rename = fault_rename,
    .link = fault_link,
    .unlink = fault_unlink,
    .mkdir = fault_mkdir,
    .rmdir = fault_rmdir,
    .fdopendir = fault_fdopendir,
    .readdir = fault_readdir,
    .closedir = fault_closedir,
    .mmap = fault_mmap,
    .munmap = fault_munmap,
    .madvise = fault_madvise,
    .memfd_create = fault_memfd_create,
    .pthread_create = fault_pthread_create,
    .futex = fault_futex,
    .pidfd_open = fault_pidfd_open,
    .pidfd_send_signal = fault_pidfd_send_signal,
    .sched_getaffinity = fault_sched_getaffinity,
    .fork = fault_fork,
    .fork_quiet = fault_fork_quiet,
    .clone = fault_clone,
    .kill = fault_kill,
    .waitpid = fault_waitpid,
    .prctl = fault_prctl,
    .signalfd = fault_signalfd,
    .socketpair = fault_socketpair,
    .socket = fault_socket,
    .bind = fault_bind,
    .listen = fault_listen,
    .accept4 = fault_accept4,
    .connect = fault_connect,
    .pipe2 = fault_pipe2,
    .sendmsg = fault_sendmsg,
    .recvmsg = fault_recvmsg,
    .fcntl = fault_fcntl,
    .poll = fault_poll,
    .epoll_create1 = fault_epoll_create1,
    .epoll_ctl = fault_epoll_ctl,
    .epoll_wait = fault_epoll_wait,
};

/* Puts the plan to work from the next call on. */
static void fault_begin(fault_plan p)
{
    fault_current = p;
    atomic_store(&fault_calls, 0);
    atomic_store(&fault_hits, 0);
    atomic_store(&fault_turn, 0);
    os_use(&fault_sys);
}

/* Back to the system's own table; how many calls the plan has failed. */
static int64_t fault_end(void)
{
    os_use(NULL);
    return atomic_load(&fault_hits);
}

#endif
