/* node_program.h - manta-node, the small program that keeper, daemon and supervisor are when the driver
 * has a nursery. Private to task/ and to src/node.
 *
 *     driver                                     manta-node
 *     program_start_apart(), a connection ────▶  exec
 *     PROTO_NODE: configuration, nursery ─────▶  node_program_main()
 *                          ◀───────── PROTO_HELLO: pid; its pidfd     it is the keeper
 *                          ◀───────── PROTO_REFUSED: status, text     or it cannot be
 *
 * The program is of the same build as the library, or refuses. */
#ifndef TASK_NODE_PROGRAM_H
#define TASK_NODE_PROGRAM_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"
#include "task/node.h"

/* Starts manta-node as the keeper of a node of this process's own, whose daemon is then behind *fd
 * (owned), or, when guest_fd is not -1, of a program that joined one, whose supervisor has guest_fd as its
 * connection to the daemon. *keeper_pidfd: owned. MANTA_ENOENT there is no such program where it is looked for. */
manta_status node_program_start(const node_config *c, int guest_fd, int *fd,
                                int *keeper_pidfd) MANTA_MUST_USE;

/* What manta-node does; comes back with what main() returns when it cannot begin. */
int node_program_main(void);

#endif
