/* launch/address.h - where the ranks of a host listen: an address that the other hosts can reach, and ports. */
#ifndef LAUNCH_ADDRESS_H
#define LAUNCH_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum {
    ADDRESS_TEXT = 80,
    ADDRESS_CANDIDATES = 8, /* ports that are tried for a rank */
    ADDRESS_FIRST_PORT = 20000, /* below those that Linux hands out by itself */
    ADDRESS_PORTS = 12000
};

/* The address of this host as whoever started this process reached it: "10.0.0.2", "[fe80::1]". In a step
 * of Slurm it is the address that leads to SLURM_LAUNCH_NODE_IPADDR; by ssh it is in SSH_CONNECTION; else what `name`
 * stands for. With `alone` nobody else needs to reach it: 127.0.0.1. MANTA_ENOENT: it cannot be known. */
manta_status address_find(const char *name, bool alone, char out[ADDRESS_TEXT]) MANTA_MUST_USE;

/* The k-th port that rank `rank` of a job tries. Pure. */
int address_port(const char *job, int rank, int k);

/* Listens at `host` on the first candidate that is free. *fd: owned. MANTA_EBUSY: none is; the sentence has them all. */
manta_status address_listen(const char *host, const char *job, int rank, int *fd, char *text,
                            int size) MANTA_MUST_USE;

/* Listens at one port of `host`. *fd: owned. MANTA_EBUSY: it is taken. */
manta_status address_listen_at(const char *host, int port, int *fd, char *text, int size) MANTA_MUST_USE;

/* Whether "host:port" is an address that never leaves its machine, as far as its text says. */
bool address_is_loopback(const char *address);

#endif
