/* node_socket.h - where a node is found: a socket with a name, in a folder of the
 * user's own.
 *
 * The folder is $XDG_RUNTIME_DIR/manta, or /tmp/manta-UID without that
 * variable. Where another user has taken that name, which anyone can who may write to
 * /tmp, it is manta/run-HOST in $XDG_CACHE_HOME or ~/.cache, where nobody else can. It must
 * be a real folder, ours, and closed to everyone else (0700), or nothing in it is used. A node that `manta start` began is node.sock, every
 * other one PID.sock with the pid of its daemon.
 *
 * A socket that a killed node left behind refuses connections: that is how it
 * is known. It is removed under a lock (flock on "lock"), so that nobody
 * removes the socket of a node that has just taken the name. */
#ifndef TASK_NODE_SOCKET_H
#define TASK_NODE_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/buf.h"

#define NODE_SOCKET_PATH 108 /* bytes of a socket's name, as the system has it */
#define NODE_SOCKET_MAIN "node.sock"

/* Where the folder is without $XDG_RUNTIME_DIR: /tmp. Tests put another in its place. */
extern const char *node_socket_base;

/* The folder's path; it is made when `make` and it does not exist.
 * MANTA_EPERM it is not ours alone, and why; MANTA_ENOENT there is none. */
manta_status node_socket_folder(char path[NODE_SOCKET_PATH], bool make) MANTA_MUST_USE;

/* Opens the socket of a node: *fd listens at `path`. `name` NULL: a name of this
 * process. Removes what dead nodes have left. MANTA_EEXIST a live node has the
 * name. */
manta_status node_socket_open(const char *name, char path[NODE_SOCKET_PATH], int *fd) MANTA_MUST_USE;

/* Removes the socket if nobody listens there any more. */
void node_socket_sweep(const char *path);

/* Connects to a node. `address` is a path, the pid of a daemon, or NULL or
 * "auto": the started node, else the only one there is. `path` receives its name.
 * MANTA_ENOENT there is none; MANTA_EBUSY several, and none was named; MANTA_EPERM
 * it belongs to somebody else. */
manta_status node_socket_connect(const char *address, char path[NODE_SOCKET_PATH], int *fd) MANTA_MUST_USE;

/* Connects a program that joins: to the started node, and to no other. `path` receives its name. MANTA_ENOENT
 * no node was started; MANTA_EPERM it belongs to somebody else. */
manta_status node_socket_connect_main(char path[NODE_SOCKET_PATH], int *fd) MANTA_MUST_USE;

/* The first message at a node socket: who comes, and from which version. prestart: how
 * many workers a driver wants to find ready. */
void node_socket_hello(buf *b, uint32_t role, const char *space, int prestart);

#endif
