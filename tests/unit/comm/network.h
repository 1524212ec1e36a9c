/* network.h - groups over loopback TCP, with a key of the test's own. */
#ifndef TESTS_COMM_NETWORK_H
#define TESTS_COMM_NETWORK_H

#include "comm/ranks.h"
#include "net/key.h"
#include "net/tcp.h"
#include "temp.h"

static char network_folder[64], network_key[96];

/* A group whose rank 0 has its listening socket already, so that no port can
 * be taken by somebody else between choosing and using it. */
typedef struct network {
    int size;
    char address[TCP_TEXT];
    manta_group_options o;
} network;

static inline network network_of(int size, const manta_group_options *o)
{
    network n = {.size = size};
    tcp_place place;
    int port;

    if (o) n.o = *o;
    n.o.implementation = MANTA_COMM_RING;
    n.o.key_file = network_key;
    assert_int_equal(tcp_resolve("127.0.0.1:0", &place), MANTA_OK);
    assert_int_equal(tcp_listen(&place, &n.o.listener), MANTA_OK);
    assert_int_equal(tcp_port(n.o.listener, &port), MANTA_OK);
    snprintf(n.address, sizeof n.address, "127.0.0.1:%d", port);
    return n;
}

static inline manta_group *join_network(void *how, int rank)
{
    network *n = how;
    manta_group *g;

    return manta_group_open(n->address, rank, n->size, &n->o, &g) ? NULL : g;
}

static inline void network_as_threads(int size, const manta_group_options *o, rank_fn *fn, void *ctx)
{
    network n = network_of(size, o);

    ranks_as_threads(join_network, &n, size, fn, ctx);
    close(n.o.listener);
}

/* Set-up and tear-down of a group of tests: the folder, and the key in it. */
static inline int network_setup(void **state)
{
    (void)state;
    if (!temp_folder(network_folder, sizeof network_folder, "/tmp", "comm")) return -1;
    snprintf(network_key, sizeof network_key, "%s/key", network_folder);
    return key_make(network_key) ? -1 : 0;
}

static inline int network_teardown(void **state)
{
    (void)state;
    unlink(network_key);
    return rmdir(network_folder);
}

#endif
