/* open.c - opens a group: an address says which rendezvous its ranks use. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "comm/group.h"
#include "comm/rendezvous.h"

#define UNIX "unix:"

static manta_status open_local(const char *path, int rank, int size, const manta_group_options *o,
                               manta_group **out)
{
    shm *t;

    TRY(rendezvous_local(path, rank, size, o, &t));
    return group_new(&shm_transport, t, rank, size, o, out);
}

static manta_status open_network(const char *address, int rank, int size, const manta_group_options *o,
                                 manta_group **out)
{
    tcp_place place;
    ring *t;
    char host[TCP_TEXT], name[64];
    int port;

    TRY(tcp_split(address, host, &port));
    TRY(tcp_resolve(address, &place));
    if (tcp_is_loopback(&place) && o->implementation != MANTA_COMM_RING) {
        /* Who can reach this address is on this host. */
        snprintf(name, sizeof name, "@manta-comm-%u-%d", (unsigned)getuid(), port);
        return open_local(name, rank, size, o, out);
    }
    if (o->implementation == MANTA_COMM_SHM)
        return manta_fail(MANTA_EINVAL,
                          "group: shared memory was asked for, and other hosts can reach %s; expected an "
                          "address of this host",
                          address);
    TRY(rendezvous_network(&place, rank, size, o, &t));
    return group_new(&ring_transport, t, rank, size, o, out);
}

manta_status manta_group_open(const char *address, int rank, int size, const manta_group_options *o,
                              manta_group **out)
{
    REFUSE_NULL(address);
    REFUSE_NULL(out);

    manta_group_options filled;

    TRY(group_check_size(rank, size));
    TRY(group_options(o, &filled));
    if (strncmp(address, UNIX, strlen(UNIX)) != 0) return open_network(address, rank, size, &filled, out);
    if (filled.implementation == MANTA_COMM_RING)
        return manta_fail(MANTA_EINVAL, "group: a ring was asked for at %s, expected HOST:PORT", address);
    return open_local(address + strlen(UNIX), rank, size, &filled, out);
}
