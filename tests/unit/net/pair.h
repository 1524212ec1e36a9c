/* pair.h - two ends of a channel in one process, for tests. */
#ifndef TESTS_NET_PAIR_H
#define TESTS_NET_PAIR_H

#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "net/chan.h"

typedef struct pair {
    chan_end *ea, *eb;
    chan *a, *b; /* a connects to b */
} pair;

static const cluster_key pair_key = {.bytes = "0123456789abcdef0123456789abcde"};

static inline chan_options pair_options(const char *node)
{
    return (chan_options){.node = node, .job = "test", .profile = "p", .handshake_ms = 60000};
}

static inline void pair_make(pair *p, const chan_options *oa, const cluster_key *ka, const chan_options *ob,
                             const cluster_key *kb)
{
    int fds[2];

    memset(p, 0, sizeof *p);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(chan_end_new(oa, ka, &p->ea), MANTA_OK);
    assert_int_equal(chan_end_new(ob, kb, &p->eb), MANTA_OK);
    assert_int_equal(chan_adopt(p->ea, fds[0], ob->node, &p->a), MANTA_OK);
    assert_int_equal(chan_adopt(p->eb, fds[1], NULL, &p->b), MANTA_OK);
}

/* Works on both until both are open or one has failed. */
static inline manta_status pair_open(pair *p)
{
    int64_t deadline = clock_deadline(60000);

    while (!chan_is_open(p->a) || !chan_is_open(p->b)) {
        chan_item items[2] = {{.c = p->a, .read = true}, {.c = p->b, .read = true}};
        manta_status st = chan_work(p->a);
        if (!st) st = chan_work(p->b);
        if (!st) st = chan_wait(items, 2, NULL, 0, deadline);
        if (st) return st;
    }
    return MANTA_OK;
}

static inline void pair_plain(pair *p, bool plain)
{
    chan_options oa = pair_options("worker/0"), ob = pair_options("worker/1");

    oa.plain = ob.plain = plain;
    pair_make(p, &oa, &pair_key, &ob, &pair_key);
    assert_int_equal(pair_open(p), MANTA_OK);
}

static inline void pair_close(pair *p)
{
    chan_close(p->a);
    chan_close(p->b);
    chan_end_free(p->ea);
    chan_end_free(p->eb);
}

#endif
