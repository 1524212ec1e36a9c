/* socket.c - see socket.h. SOCK_SEQPACKET keeps the boundaries of messages, so
 * there is no framing to get wrong, and descriptors belong to one message. */
#include "os/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "base/clock.h"
#include "os/sys.h"

typedef union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * SOCKET_MAX_FDS)];
} control;

manta_status socket_pair(int out[2])
{
    int fds[2];

    if (os->socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
        return manta_fail(MANTA_EIO, "a pair of sockets cannot be made: %s", strerror(errno));
    out[0] = fds[0];
    out[1] = fds[1];
    return MANTA_OK;
}

#define BACKLOG 64

static manta_status address_of(const char *path, struct sockaddr_un *out)
{
    size_t n = strlen(path);

    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n >= sizeof out->sun_path)
        return manta_fail(MANTA_EINVAL, "%s: the name of a socket has %zu bytes, expected at most %zu", path,
                          n, sizeof out->sun_path - 1);
    memcpy(out->sun_path, path, n);
    return MANTA_OK;
}

static manta_status socket_make(int *out)
{
    int fd = os->socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0) return manta_fail(MANTA_EIO, "a socket cannot be made: %s", strerror(errno));
    *out = fd;
    return MANTA_OK;
}

manta_status socket_listen(const char *path, int *out)
{
    struct sockaddr_un name;
    int fd = -1;

    TRY(address_of(path, &name));
    TRY(socket_make(&fd));
    if (os->bind(fd, (const struct sockaddr *)&name, sizeof name) || os->listen(fd, BACKLOG) ||
        os->fcntl(fd, F_SETFL, O_NONBLOCK)) {
        int err = errno;
        os->close(fd);
        return manta_fail(err == EADDRINUSE ? MANTA_EEXIST : MANTA_EIO, "%s cannot be listened at: %s", path,
                          strerror(err));
    }
    *out = fd;
    return MANTA_OK;
}

manta_status socket_connect(const char *path, int *out)
{
    struct sockaddr_un name;
    int fd = -1;

    TRY(address_of(path, &name));
    TRY(socket_make(&fd));
    /* A queue that is full says so at once: whoever looks must not hang behind a
     * process that is stopped. */
    if (os->fcntl(fd, F_SETFL, O_NONBLOCK)) {
        os->close(fd);
        return manta_fail(MANTA_EIO, "no connection to %s can be made: %s", path, strerror(errno));
    }
    while (os->connect(fd, (const struct sockaddr *)&name, sizeof name)) {
        int err = errno;
        if (err == EINTR) continue;
        os->close(fd);
        return manta_fail(err == ENOENT                   ? MANTA_ENOENT
                          : err == ECONNREFUSED           ? MANTA_EDIED
                          : err == EAGAIN                 ? MANTA_EBUSY
                          : err == EACCES || err == EPERM ? MANTA_EPERM
                                                          : MANTA_EIO,
                          "no connection to %s can be made: %s", path, strerror(err));
    }
    *out = fd;
    return MANTA_OK;
}

manta_status socket_accept(int fd, int *out)
{
    for (;;) {
        int got = os->accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (got >= 0) {
            *out = got;
            return MANTA_OK;
        }
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN) return MANTA_EBUSY;
        return manta_fail(MANTA_EIO, "a connection cannot be accepted: %s", strerror(errno));
    }
}

void socket_close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0) os->close(fds[i]);
}

int socket_poll(struct pollfd *fds, int n, int timeout_ms)
{
    int64_t deadline = clock_deadline(timeout_ms);

    for (;;) {
        int got = os->poll(fds, (nfds_t)n, timeout_ms);
        if (got >= 0 || errno != EINTR) return got;
        timeout_ms = clock_left_ms(deadline);
    }
}

static bool is_gone(int err)
{
    return err == EPIPE || err == ECONNRESET || err == ENOTCONN;
}

#define SHORT_LIMIT_MS 10000

/* What others have now and will give back: memory, or the number of descriptors that
 * one user may have on their way. */
static bool is_short(int err)
{
    return err == ENOBUFS || err == ENOMEM || err == ETOOMANYREFS;
}

manta_status socket_send(int fd, const void *data, size_t n, const int *fds, int n_fds, bool wait)
{
    control c;
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = n};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    int64_t give_up = 0;

    if (n > SOCKET_MAX_MESSAGE || n == 0 || n_fds > SOCKET_MAX_FDS)
        return manta_fail(MANTA_EINVAL,
                          "sending a message of %zu bytes and %d descriptors, expected 1 to %d bytes and at "
                          "most %d descriptors",
                          n, n_fds, (int)SOCKET_MAX_MESSAGE, SOCKET_MAX_FDS);
    if (n_fds > 0) {
        memset(&c, 0, sizeof c);
        m.msg_control = c.bytes;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
        memcpy(CMSG_DATA(h), fds, sizeof(int) * (size_t)n_fds);
    }
    for (;;) {
        if (os->sendmsg(fd, &m, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT)) >= 0) return MANTA_OK;
        if (errno == EINTR) continue;
        if (errno == EAGAIN && wait) {
            /* The descriptor itself is non-blocking: wait for room here. */
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            (void)os->poll(&p, 1, -1);
            continue;
        }
        if (errno == EAGAIN) return MANTA_EBUSY;
        if (is_gone(errno)) return manta_fail(MANTA_EDIED, "the other end of a connection is gone");
        int err = errno;
        if (is_short(err) && wait) {
            if (!give_up) give_up = clock_deadline(SHORT_LIMIT_MS);
            (void)os->poll(NULL, 0, 1);
            if (clock_now_ns() < give_up) continue;
        }
        return manta_fail(is_short(err) ? MANTA_ENOMEM : MANTA_EIO,
                          "sending a message of %zu bytes and %d descriptors: %s", n, n_fds, strerror(err));
    }
}

/* Takes the descriptors out of a received message. */
static int take_fds(struct msghdr *m, int fds[SOCKET_MAX_FDS])
{
    int n = 0;

    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && n < SOCKET_MAX_FDS; i++)
            memcpy(&fds[n++], CMSG_DATA(h) + i * sizeof(int), sizeof(int));
    }
    return n;
}

manta_status socket_recv(int fd, void *data, size_t size, size_t *n, int fds[SOCKET_MAX_FDS], int *n_fds,
                         bool wait)
{
    control c;
    struct iovec part = {.iov_base = data, .iov_len = size};
    struct msghdr m;
    ssize_t got;
    bool is_reset = false;

    for (;;) {
        m = (struct msghdr){
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
        got = os->recvmsg(fd, &m, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
        if (got >= 0) break;
        if (errno == EINTR) continue;
        if (errno == EAGAIN && wait) {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            (void)os->poll(&p, 1, -1);
            continue;
        }
        if (is_short(errno) && wait) {
            (void)os->poll(NULL, 0, 1);
            continue;
        }
        if (errno == EAGAIN || is_short(errno)) return MANTA_EBUSY; /* the message is still there */
        /* The other end closed without having read everything: the kernel says so once, before what it had sent. */
        if (errno == ECONNRESET && !is_reset) {
            is_reset = true;
            continue;
        }
        if (is_gone(errno)) return manta_fail(MANTA_EDIED, "the other end of a connection is gone");
        return manta_fail(MANTA_EIO, "a message cannot be received: %s", strerror(errno));
    }
    if (got == 0) return manta_fail(MANTA_EDIED, "the other end of a connection is gone");
    int taken = take_fds(&m, fds);
    if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) socket_close_all(fds, taken);
    if (m.msg_flags & MSG_TRUNC)
        return manta_fail(MANTA_ECORRUPT, "a message is longer than the %zu bytes expected at most", size);
    *n = (size_t)got;
    *n_fds = m.msg_flags & MSG_CTRUNC ? SOCKET_FDS_LOST : taken;
    return MANTA_OK;
}

manta_status socket_peer(int fd, pid_t *pid, uid_t *uid)
{
    struct ucred who;
    socklen_t size = sizeof who;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size))
        return manta_fail(MANTA_EIO, "who is at the other end of a socket cannot be told: %s",
                          strerror(errno));
    *pid = who.pid;
    *uid = who.uid;
    return MANTA_OK;
}
