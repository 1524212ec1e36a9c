/* tcp.c - see tcp.h. */
#include "net/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "os/file.h"
#include "os/sys.h"

enum { BACKLOG = 128, BUFFER = 1 << 20 };

/* ---- names ---- */

static bool read_port(const char *s, int *port)
{
    int n = 0;

    if (!*s || strlen(s) > 5) return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9') return false;
        n = n * 10 + (*s - '0');
    }
    *port = n;
    return n <= 65535;
}

manta_status tcp_split(const char *text, char *host, int *port)
{
    const char *colon = strrchr(text, ':'), *begin = text, *end = colon;

    if (strlen(text) >= TCP_TEXT)
        return manta_fail(MANTA_EINVAL, "an address has %zu bytes, at most %d are allowed", strlen(text),
                          TCP_TEXT - 1);
    if (!colon || !read_port(colon + 1, port))
        return manta_fail(MANTA_EINVAL, "address \"%s\": expected host:port, port from 0 to 65535", text);
    if (*begin == '[') {
        if (end == begin || end[-1] != ']')
            return manta_fail(MANTA_EINVAL, "address \"%s\": expected [v6 address]:port", text);
        begin++;
        end--;
    } else if (memchr(begin, ':', (size_t)(end - begin))) {
        return manta_fail(MANTA_EINVAL, "address \"%s\": write a v6 address as [address]:port", text);
    }
    if (end <= begin) return manta_fail(MANTA_EINVAL, "address \"%s\" has no host before the port", text);
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    return MANTA_OK;
}

manta_status tcp_resolve(const char *text, tcp_place *out)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char host[TCP_TEXT], service[16];
    int port, rc;

    TRY(tcp_split(text, host, &port));
    snprintf(service, sizeof service, "%d", port);
    rc = getaddrinfo(host, service, &hints, &found);
    if (rc) return manta_fail(MANTA_ENOENT, "address \"%s\": %s", text, gai_strerror(rc));
    memset(out, 0, sizeof *out);
    snprintf(out->text, sizeof out->text, "%s", text);
    for (const struct addrinfo *a = found; a && out->n < TCP_ADDRESSES; a = a->ai_next) {
        if (a->ai_addrlen > sizeof out->at[0]) continue;
        memcpy(&out->at[out->n], a->ai_addr, a->ai_addrlen);
        out->size[out->n++] = a->ai_addrlen;
    }
    freeaddrinfo(found);
    if (!out->n) return manta_fail(MANTA_ENOENT, "address \"%s\": the name has no address", text);
    return MANTA_OK;
}

static bool address_is_loopback(const struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, a, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    if (a->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, a, sizeof v6);
        return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    }
    return false;
}

bool tcp_is_loopback(const tcp_place *p)
{
    for (int i = 0; i < p->n; i++) {
        if (!address_is_loopback(&p->at[i])) return false;
    }
    return p->n > 0;
}

static void address_text(const struct sockaddr_storage *a, socklen_t size, char *out)
{
    char host[256], service[16];

    if (getnameinfo((const struct sockaddr *)a, size, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV)) {
        snprintf(out, TCP_TEXT, "an unknown address");
    } else {
        snprintf(out, TCP_TEXT, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, service);
    }
}

/* ---- sockets ---- */

/* Asks for a buffer of BUFFER bytes. A size that is set is not adapted by the
 * kernel any more, so none is set where we could only have less. */
static void widen_buffer(int fd, int option, int force, const char *limit)
{
    char text[32];
    int size = BUFFER;

    if (!setsockopt(fd, SOL_SOCKET, force, &size, sizeof size)) return; /* as root, or CAP_NET_ADMIN */
    if (!file_read_text(limit, text, sizeof text) && strtol(text, NULL, 10) >= size)
        (void)setsockopt(fd, SOL_SOCKET, option, &size, sizeof size);
}

void tcp_widen(int fd)
{
    widen_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE, "/proc/sys/net/core/wmem_max");
    widen_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE, "/proc/sys/net/core/rmem_max");
}

void tcp_tune(int fd, int silence_ms)
{
    int one = 1, idle = silence_ms / 3000 > 0 ? silence_ms / 3000 : 1, tries = 3;

    /* Without these it still works, only less well. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

static manta_status new_socket(int family, int *out)
{
    int fd = os->socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) return manta_fail(MANTA_EIO, "a TCP socket cannot be made: %s", strerror(errno));
    *out = fd;
    return MANTA_OK;
}

/* All addresses of this machine, of the same family and with the same port. */
static void widen_address(struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET) {
        ((struct sockaddr_in *)(void *)a)->sin_addr.s_addr = htonl(INADDR_ANY);
    } else {
        ((struct sockaddr_in6 *)(void *)a)->sin6_addr = in6addr_any;
    }
}

static int bind_and_listen(int fd, const struct sockaddr_storage *at, socklen_t size)
{
    int one = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return os->bind(fd, (const struct sockaddr *)at, size) || os->listen(fd, BACKLOG) ? errno : 0;
}

manta_status tcp_listen(const tcp_place *p, int *out)
{
    struct sockaddr_storage at = p->at[0];
    int fd = -1, err;

    TRY(new_socket(at.ss_family, &fd));
    err = bind_and_listen(fd, &at, p->size[0]);
    if (err == EADDRNOTAVAIL) { /* what others call leads here by way of a gateway */
        log_warn("an address is none of this machine's: listening on all that it has",
                 LOG_STR("address", p->text));
        widen_address(&at);
        err = bind_and_listen(fd, &at, p->size[0]);
    }
    if (!err) {
        *out = fd;
        return MANTA_OK;
    }
    os->close(fd);
    return manta_fail(err == EADDRINUSE ? MANTA_EBUSY : MANTA_EIO, "%s cannot be listened at: %s", p->text,
                      strerror(err));
}

static int port_of(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET ? ((const struct sockaddr_in *)(const void *)a)->sin_port
                                         : ((const struct sockaddr_in6 *)(const void *)a)->sin6_port);
}

manta_status tcp_port(int fd, int *out)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;

    if (getsockname(fd, (struct sockaddr *)&at, &size))
        return manta_fail(MANTA_EIO, "the port of a socket cannot be found: %s", strerror(errno));
    *out = port_of(&at);
    return MANTA_OK;
}

manta_status tcp_inherit(const char *text, const char *address, tcp_place *at, int *out)
{
    int listens = 0, port = 0;
    socklen_t size = sizeof listens;
    char *end, host[TCP_TEXT];
    long fd = strtol(text, &end, 10);

    TRY(tcp_split(address, host, &port));
    if (!*text || *end || fd < 3 || fd > 1 << 20)
        return manta_fail(MANTA_EINVAL, "\"%.20s\" is no descriptor to listen on", text);
    if (getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens)
        return manta_fail(MANTA_EINVAL, "descriptor %ld is no socket that listens", fd);
    *at = (tcp_place){.n = 1, .size = {sizeof at->at[0]}};
    snprintf(at->text, sizeof at->text, "%s", address);
    if (getsockname((int)fd, (struct sockaddr *)&at->at[0], &at->size[0]))
        return manta_fail(MANTA_EIO, "descriptor %ld does not say where it listens: %s", fd, strerror(errno));
    if (port != port_of(&at->at[0])) {
        return manta_fail(MANTA_EINVAL, "descriptor %ld listens on port %d, not on that of %s", fd,
                          port_of(&at->at[0]), address);
    }
    if (os->fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0 || os->fcntl((int)fd, F_SETFL, O_NONBLOCK) < 0)
        return manta_fail(MANTA_EIO, "descriptor %ld cannot be taken over: %s", fd, strerror(errno));
    *out = (int)fd;
    return MANTA_OK;
}

manta_status tcp_accept(int listener, int *out, char *from)
{
    struct sockaddr_storage at;
    socklen_t size;
    int fd;

    for (;;) {
        size = sizeof at;
        fd = os->accept4(listener, (struct sockaddr *)&at, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) break;
        /* A connection that is gone before it was taken is nobody's failure. */
        if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return MANTA_EBUSY;
        return manta_fail(MANTA_EIO, "a connection cannot be taken: %s", strerror(errno));
    }
    address_text(&at, size, from);
    *out = fd;
    return MANTA_OK;
}

manta_status tcp_connect(const tcp_place *p, int i, int *out)
{
    int fd = -1, err;

    TRY(new_socket(p->at[i].ss_family, &fd));
    while (os->connect(fd, (const struct sockaddr *)&p->at[i], p->size[i])) {
        if (errno == EINPROGRESS || errno == EINTR || errno == EALREADY) break;
        err = errno;
        os->close(fd);
        return manta_fail(MANTA_EDIED, "no connection to %s can be made: %s", p->text, strerror(err));
    }
    *out = fd;
    return MANTA_OK;
}

manta_status tcp_connected(int fd, const char *to)
{
    int err = 0;
    socklen_t size = sizeof err;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size)) err = errno;
    return err ? manta_fail(MANTA_EDIED, "no connection to %s can be made: %s", to, strerror(err)) : MANTA_OK;
}
