/* sys.h - the table of system calls.
 *
 * Everything in os/ reaches the system through `os`, so that a test can put a
 * table of its own in place and make the n-th call fail, be interrupted or do
 * half of what it was asked (tests/unit/os/fault.h). Each entry behaves as the
 * call it is named after: -1 and errno, MAP_FAILED for mmap, NULL for the
 * folder calls; pthread_create returns its errno.
 *
 * Time is not here: base/clock.h is replaceable by itself. */
#ifndef OS_SYS_H
#define OS_SYS_H

#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

typedef struct os_sys {
    /* files */
    int (*open)(const char *path, int flags, mode_t mode);
    int (*openat)(int dir, const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*read)(int fd, void *buf, size_t n);
    ssize_t (*pread)(int fd, void *buf, size_t n, off_t at);
    ssize_t (*write)(int fd, const void *buf, size_t n);
    ssize_t (*pwrite)(int fd, const void *buf, size_t n, off_t at);
    int (*fsync)(int fd);
    int (*ftruncate)(int fd, off_t size);
    int (*fallocate)(int fd, int mode, off_t at, off_t n);
    int (*sync_file_range)(int fd, off_t at, off_t n, unsigned flags);
    int (*fchmod)(int fd, mode_t mode);
    int (*stat)(const char *path, struct stat *out);
    int (*fstat)(int fd, struct stat *out);
    /* names */
    int (*rename)(const char *from, const char *to);
    int (*link)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path, mode_t mode);
    int (*rmdir)(const char *path);
    DIR *(*fdopendir)(int fd); /* takes fd over when it succeeds */
    struct dirent *(*readdir)(DIR *d);
    int (*closedir)(DIR *d);
    /* memory */
    void *(*mmap)(void *addr, size_t n, int prot, int flags, int fd, off_t at);
    int (*munmap)(void *addr, size_t n);
    int (*madvise)(void *addr, size_t n, int advice);
    int (*memfd_create)(const char *name, unsigned flags);
    /* threads and processes */
    int (*pthread_create)(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
    int (*futex)(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout,
                 uint32_t mask);
    int (*pidfd_open)(pid_t pid, unsigned flags);
    int (*pidfd_send_signal)(int pidfd, int sig);
    int (*sched_getaffinity)(pid_t pid, size_t size, cpu_set_t *out);
    pid_t (*fork)(void);
    pid_t (*fork_quiet)(void); /* a child whose end sends no signal and that no plain wait() sees */
    pid_t (*clone)(int (*fn)(void *arg), void *stack_end, int flags, void *arg);
    int (*kill)(pid_t pid, int sig);
    pid_t (*waitpid)(pid_t pid, int *status, int options);
    int (*prctl)(int option, unsigned long value);
    int (*signalfd)(int fd, const sigset_t *mask, int flags);
    /* sockets, seals and readiness */
    int (*socketpair)(int domain, int type, int protocol, int fds[2]);
    int (*socket)(int domain, int type, int protocol);
    int (*bind)(int fd, const struct sockaddr *at, socklen_t size);
    int (*listen)(int fd, int backlog);
    int (*accept4)(int fd, struct sockaddr *from, socklen_t *size, int flags);
    int (*connect)(int fd, const struct sockaddr *to, socklen_t size);
    int (*pipe2)(int fds[2], int flags);
    ssize_t (*sendmsg)(int fd, const struct msghdr *m, int flags);
    ssize_t (*recvmsg)(int fd, struct msghdr *m, int flags);
    int (*fcntl)(int fd, int command, int value);
    int (*poll)(struct pollfd *fds, nfds_t n, int timeout_ms);
    int (*epoll_create1)(int flags);
    int (*epoll_ctl)(int epoll, int op, int fd, struct epoll_event *event);
    int (*epoll_wait)(int epoll, struct epoll_event *events, int n, int timeout_ms);
} os_sys;

/* The table in use, and the system's own. */
extern const os_sys *os;
extern const os_sys os_real;

/* For tests: uses `table` from now on, NULL for the system's own. Not while
 * another thread is in a call of os/. */
void os_use(const os_sys *table);

#endif
