/* socket.h - local sockets that carry whole messages and descriptors.
 *
 * A message arrives whole or not at all, with the descriptors that were sent
 * with it; what was sent before a process died can still be received. Nothing
 * here ever raises SIGPIPE, and every descriptor received is close-on-exec. */
#ifndef OS_SOCKET_H
#define OS_SOCKET_H

#include <poll.h>
#include <stddef.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

#define SOCKET_MAX_FDS     4
#define SOCKET_FDS_LOST    (-1) /* descriptors came, and this process had no room for them */
#define SOCKET_MAX_MESSAGE (128 * 1024) /* bytes; a larger one is refused on both sides */

/* Two ends of a connection that has no name. Owned, close both. */
manta_status socket_pair(int out[2]) MANTA_MUST_USE;

/* A socket with a name in the file system, to which others connect: *out is
 * owned and does not block. MANTA_EEXIST the name is taken; MANTA_EINVAL it is
 * too long for a socket. */
manta_status socket_listen(const char *path, int *out) MANTA_MUST_USE;
/* *out: owned. MANTA_ENOENT nothing has the name; MANTA_EDIED what has it is
 * left of a process that is gone; MANTA_EBUSY it takes no more connections now;
 * MANTA_EPERM we may not. */
manta_status socket_connect(const char *path, int *out) MANTA_MUST_USE;
/* The next connection, owned; MANTA_EBUSY there is none (no sentence). */
manta_status socket_accept(int fd, int *out) MANTA_MUST_USE;

/* Sends one message of n bytes and n_fds descriptors, which stay the caller's.
 * With `wait` it waits for room, else MANTA_EBUSY says that there is none (no
 * sentence is recorded). MANTA_EDIED nobody will receive it any more; MANTA_ENOMEM
 * the system is short of memory for messages, or of descriptors that may be on their
 * way: nothing says when it is over, so it is to be tried again after a moment (with
 * `wait` that was done, for ten seconds); any other failure is the same the next time. */
manta_status socket_send(int fd, const void *data, size_t n, const int *fds, int n_fds,
                         bool wait) MANTA_MUST_USE;

/* Receives one message into data[0 .. size). fds receives up to SOCKET_MAX_FDS
 * descriptors, owned by the caller; *n_fds is SOCKET_FDS_LOST, and none is received,
 * when not all that were sent could be (this process has as many open as it may).
 * Without `wait` MANTA_EBUSY says that there is nothing (no sentence is recorded).
 * MANTA_EDIED the other end is closed and everything sent has been received;
 * MANTA_ECORRUPT the message is longer than `size`. */
manta_status socket_recv(int fd, void *data, size_t size, size_t *n, int fds[SOCKET_MAX_FDS], int *n_fds,
                         bool wait) MANTA_MUST_USE;

/* Who is at the other end, as the kernel saw it when it connected. */
manta_status socket_peer(int fd, pid_t *pid, uid_t *uid) MANTA_MUST_USE;

/* poll() that a signal does not end early. */
int socket_poll(struct pollfd *fds, int n, int timeout_ms);

/* Closes each descriptor; ignores negative ones. */
void socket_close_all(const int *fds, int n);

#endif
