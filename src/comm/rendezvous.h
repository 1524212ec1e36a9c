/* comm/rendezvous.h - how ranks that were started separately find each other. */
#ifndef COMM_RENDEZVOUS_H
#define COMM_RENDEZVOUS_H

#include "comm/ring.h"
#include "comm/shm.h"

/* One host: rank 0 makes the shared memory and hands it out on a local socket
 * at `path` ("@name": one without a file). Only to processes of this user. */
manta_status rendezvous_local(const char *path, int rank, int size, const manta_group_options *o,
                              shm **out) MANTA_MUST_USE;

/* Over TCP: all connect to rank 0 at `place`, learn from it where the others
 * listen, and connect to those. */
manta_status rendezvous_network(const tcp_place *place, int rank, int size, const manta_group_options *o,
                                ring **out) MANTA_MUST_USE;

#endif
