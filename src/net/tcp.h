/* tcp.h - TCP sockets: names to addresses, listening, connecting. Descriptors
 * are non-blocking and close-on-exec; nothing here waits but the resolver. */
#ifndef NET_TCP_H
#define NET_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

enum { TCP_ADDRESSES = 8, TCP_TEXT = 300 };

/* A place to connect to: what a name and port stand for. */
typedef struct tcp_place {
    char text[TCP_TEXT]; /* "host:port", as it was given */
    int n;
    struct sockaddr_storage at[TCP_ADDRESSES];
    socklen_t size[TCP_ADDRESSES];
} tcp_place;

/* Takes "host:port" or "[v6]:port" apart without asking anybody. host has room
 * for TCP_TEXT bytes. MANTA_EINVAL: no port, one that is no number from 0 to
 * 65535, or no host. */
manta_status tcp_split(const char *text, char *host, int *port) MANTA_MUST_USE;

/* Looks up "host:port". MANTA_ENOENT: nobody knows the name (yet). */
manta_status tcp_resolve(const char *text, tcp_place *out) MANTA_MUST_USE;

/* Whether every address is one that never leaves this machine. */
bool tcp_is_loopback(const tcp_place *p);

/* Listens at p's first address. When that is none of this machine's (what others call may lead
 * here by way of a gateway), at all that it has, and says so. *out: owned. MANTA_EBUSY: the port
 * is taken. */
manta_status tcp_listen(const tcp_place *p, int *out) MANTA_MUST_USE;

/* Takes over a socket that listens already, which a launcher holds so that
 * nobody else gets its port: its descriptor, as text. `address`: what others call
 * it, of which the port alone is looked at, since the name may not be known yet.
 * *at: where it really listens. MANTA_EINVAL: it is no TCP socket that listens on
 * that port. */
manta_status tcp_inherit(const char *fd, const char *address, tcp_place *at, int *out) MANTA_MUST_USE;

/* The port a socket is bound to. */
manta_status tcp_port(int fd, int *out) MANTA_MUST_USE;

/* Takes one connection that is waiting; MANTA_EBUSY (no sentence) when there is
 * none. `from` (TCP_TEXT bytes) receives who it is. *out: owned. */
manta_status tcp_accept(int listener, int *out, char *from) MANTA_MUST_USE;

/* Begins to connect to address i of p; the socket is writable when that has
 * ended, tcp_connected() then says how. *out: owned. */
manta_status tcp_connect(const tcp_place *p, int i, int *out) MANTA_MUST_USE;
manta_status tcp_connected(int fd, const char *to) MANTA_MUST_USE;

/* No delay of small messages; a peer whose machine is gone is noticed after
 * about `silence_ms`. */
void tcp_tune(int fd, int silence_ms);

/* Room in the kernel for much data in both directions, where we may have it: two
 * processes that exchange 11 MB over loopback took 3.7 to 5.5 ms with the
 * buffers they get by themselves, and 2.2 ms with a megabyte. */
void tcp_widen(int fd);

#endif
