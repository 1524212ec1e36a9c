/* address.c - see address.h. */
#include "launch/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/hash.h"
#include "net/tcp.h"
#include "os/sys.h"

/* The text of an address as it stands before a port. False: it is none. */
static bool put_address(const struct sockaddr *at, socklen_t size, char out[ADDRESS_TEXT])
{
    char host[ADDRESS_TEXT - 2];

    if (getnameinfo(at, size, host, sizeof host, NULL, 0, NI_NUMERICHOST)) return false;
    snprintf(out, ADDRESS_TEXT, strchr(host, ':') ? "[%s]" : "%s", host);
    return true;
}

/* What `name` stands for, as the first address of its list. */
static struct addrinfo *find_name(const char *name, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = flags}, *found = NULL;

    return getaddrinfo(name, "9", &hints, &found) ? NULL : found;
}

/* Whether an address is one of this host's: a socket can have it, at any port. */
static bool is_ours(const struct addrinfo *a)
{
    struct sockaddr_storage at = {0};
    int fd;
    bool fine;

    if (a->ai_addrlen > sizeof at) return false;
    memcpy(&at, a->ai_addr, a->ai_addrlen);
    if (at.ss_family == AF_INET) ((struct sockaddr_in *)(void *)&at)->sin_port = 0;
    if (at.ss_family == AF_INET6) ((struct sockaddr_in6 *)(void *)&at)->sin6_port = 0;
    fd = os->socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    fine = fd >= 0 && !os->bind(fd, (struct sockaddr *)&at, a->ai_addrlen);
    if (fd >= 0) os->close(fd);
    return fine;
}

/* SSH_CONNECTION: client, its port, this host, its port. Who hands an environment on to other hosts, as srun does,
 * hands this on as well: of another host it says nothing about this one. */
static bool read_ssh_connection(char out[ADDRESS_TEXT])
{
    const char *text = getenv("SSH_CONNECTION");
    char host[ADDRESS_TEXT];
    struct addrinfo *a;
    bool fine;

    if (!text || sscanf(text, "%*s %*s %79s", host) != 1) return false;
    a = find_name(host, AI_NUMERICHOST);
    fine = a && is_ours(a) && put_address(a->ai_addr, a->ai_addrlen, out);
    if (a) freeaddrinfo(a);
    return fine;
}

/* The address of ours from which packets to `other` go. Nothing is sent. */
static bool find_way_to(const char *other, char out[ADDRESS_TEXT])
{
    struct addrinfo *a = other ? find_name(other, AI_NUMERICHOST) : NULL;
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    int fd = a ? os->socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    bool fine = fd >= 0 && !os->connect(fd, a->ai_addr, a->ai_addrlen) &&
                !getsockname(fd, (struct sockaddr *)&own, &size) &&
                put_address((struct sockaddr *)&own, size, out);

    if (fd >= 0) os->close(fd);
    if (a) freeaddrinfo(a);
    return fine;
}

manta_status address_find(const char *name, bool alone, char out[ADDRESS_TEXT])
{
    struct addrinfo *a;
    bool fine;

    if (alone) {
        snprintf(out, ADDRESS_TEXT, "127.0.0.1");
        return MANTA_OK;
    }
    if (find_way_to(getenv("SLURM_LAUNCH_NODE_IPADDR"), out) || read_ssh_connection(out)) return MANTA_OK;
    a = find_name(name, 0);
    fine = a && put_address(a->ai_addr, a->ai_addrlen, out);
    if (a) freeaddrinfo(a);
    return fine ? MANTA_OK : manta_fail(MANTA_ENOENT, "nobody on this host knows an address of %s", name);
}

int address_port(const char *job, int rank, int k)
{
    uint64_t h = hash_u64(hash_bytes(job, strlen(job), (uint64_t)rank) + (uint64_t)k);

    return ADDRESS_FIRST_PORT + (int)(h % ADDRESS_PORTS);
}

manta_status address_listen_at(const char *host, int port, int *fd, char *text, int size)
{
    tcp_place at;

    snprintf(text, (size_t)size, "%s:%d", host, port);
    TRY(tcp_resolve(text, &at));
    return tcp_listen(&at, fd);
}

manta_status address_listen(const char *host, const char *job, int rank, int *fd, char *text, int size)
{
    buf tried = {0};
    manta_status st = MANTA_OK;

    for (int k = 0; k < ADDRESS_CANDIDATES; k++) {
        int port = address_port(job, rank, k);
        st = address_listen_at(host, port, fd, text, size);
        if (st != MANTA_EBUSY) break;
        buf_printf(&tried, "%s%d", k ? ", " : "", port);
    }
    if (st == MANTA_EBUSY)
        st = manta_fail(MANTA_EBUSY, "all ports that rank %d may have at %s are taken: %s", rank, host,
                        buf_text(&tried));
    buf_release(&tried);
    return st;
}

bool address_is_loopback(const char *address)
{
    return !strncmp(address, "127.", 4) || !strncmp(address, "[::1]", 5) || !strncmp(address, "localhost", 9);
}
