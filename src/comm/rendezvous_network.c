/* rendezvous_network.c - see rendezvous.h.
 *
 * Rank r is the node "rank/r". It listens at a port of its own, unless it is
 * the last, and says which in its hello; rank 0 tells all where the others
 * are, as it sees them. Then r connects to 1 .. r-1 and is connected to by
 * r+1 ... */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/rendezvous.h"
#include "os/socket.h"
#include "os/sys.h"

enum { RENDEZVOUS_TABLE = FRAME_USER + 32, TRY_MS = 20, STRANGERS = 16 };

/* What a rank adds to its hello. */
typedef struct rank_word {
    uint32_t size, port;
} rank_word;

typedef char rank_address[TCP_TEXT]; /* "" : not known */

typedef struct rendezvous {
    int rank, size;
    int64_t deadline, timeout_ms;
    const tcp_place *place;
    chan_end *end;
    int listener;
    chan **peers; /* by rank; open ones */
    chan *strangers[STRANGERS]; /* on their way to being open */
    rank_address *table; /* by rank */
} rendezvous;

/* ---- whom we talk to ---- */

static manta_status parse_node(const char *node, int size, int *rank)
{
    char *end;
    long r = strncmp(node, "rank/", 5) ? -1 : strtol(node + 5, &end, 10);

    if (r < 0 || *end || r >= size)
        return manta_fail(MANTA_EPERM, "%s is no rank of a group of %d", node, size);
    *rank = (int)r;
    return MANTA_OK;
}

static manta_status check_hello(void *ctx, const hello *h)
{
    const rendezvous *m = ctx;
    rank_word w;
    int rank = 0;

    if (h->n_word != sizeof w)
        return manta_fail(MANTA_EPERM, "%s wanted to join and is no rank of a group", h->node);
    memcpy(&w, h->word, sizeof w);
    if (w.size != (uint32_t)m->size)
        return manta_fail(MANTA_EPERM, "%s is in a group of %u, and rank %d in one of %d", h->node, w.size,
                          m->rank, m->size);
    TRY(parse_node(h->node, m->size, &rank));
    if (m->peers[rank]) return manta_fail(MANTA_EPERM, "rank %d of the group is already taken", rank);
    return MANTA_OK;
}

static manta_status make_channel_end(rendezvous *m, const manta_group_options *o)
{
    char node[32];
    cluster_key key;
    chan_options c = {.node = node, .job = "manta-comm", .check = check_hello, .ctx = m};
    manta_status st;

    snprintf(node, sizeof node, "rank/%d", m->rank);
    c.plain = o->insecure_bulk;
    TRY(key_find(o->key_file, &key));
    st = chan_end_new(&c, &key, &m->end);
    key_wipe(&key);
    return st;
}

static manta_status start_listening(rendezvous *m, const manta_group_options *o)
{
    tcp_place here;
    rank_word w = {.size = (uint32_t)m->size};
    int port = 0;

    if (m->rank == 0 && o->listener > 0) {
        m->listener = o->listener;
    } else if (m->rank == 0) {
        TRY(chan_listen(m->end, m->place, &m->listener));
    } else if (m->rank < m->size - 1) {
        TRY(tcp_resolve(tcp_is_loopback(m->place) ? "127.0.0.1:0" : "0.0.0.0:0", &here));
        TRY(chan_listen(m->end, &here, &m->listener));
        TRY(tcp_port(m->listener, &port));
    }
    w.port = (uint32_t)port;
    chan_end_say(m->end, 0, &w, sizeof w);
    return MANTA_OK;
}

static manta_status fail_missing(const rendezvous *m, int from, int to)
{
    char text[200] = "";

    for (int i = from; i < to; i++)
        if (i != m->rank && !m->peers[i]) transport_name(text, sizeof text, i);
    return manta_fail(MANTA_ETIMEDOUT, "rank %d waited %lld ms at %s; missing: %s", m->rank,
                      (long long)m->timeout_ms, m->place->text, text);
}

/* ---- being connected to ---- */

/* A stranger that is open has proven the key and is a rank; one that fails is
 * nobody's trouble but its own. */
static void admit_stranger(rendezvous *m, int i, int least)
{
    chan *c = m->strangers[i];
    int rank = 0;

    if (!chan_work(c) && !chan_is_open(c)) return;
    m->strangers[i] = NULL;
    if (chan_is_open(c) && !parse_node(chan_peer(c)->node, m->size, &rank) && rank > least && !m->peers[rank])
        m->peers[rank] = c;
    else
        chan_close(c);
}

static void accept_strangers(rendezvous *m)
{
    for (int i = 0; i < STRANGERS; i++)
        if (!m->strangers[i] && chan_accept(m->end, m->listener, &m->strangers[i])) return;
}

static int count_peers(const rendezvous *m, int from)
{
    int n = 0;

    for (int i = from; i < m->size; i++) n += m->peers[i] != NULL;
    return n;
}

/* Until all ranks above ours are connected. */
static manta_status await_higher_ranks(rendezvous *m)
{
    int above = m->size - 1 - m->rank;

    while (count_peers(m, m->rank + 1) < above) {
        chan_item items[STRANGERS];
        struct pollfd p = {.fd = m->listener, .events = POLLIN};
        bool room = false;
        accept_strangers(m);
        for (int i = 0; i < STRANGERS; i++) {
            if (m->strangers[i]) admit_stranger(m, i, m->rank);
            items[i] = (chan_item){.c = m->strangers[i], .read = true};
            room |= !m->strangers[i];
        }
        if (count_peers(m, m->rank + 1) == above) break;
        if (chan_wait(items, STRANGERS, &p, room ? 1 : 0, m->deadline))
            return fail_missing(m, m->rank + 1, m->size);
    }
    return MANTA_OK;
}

/* ---- connecting ---- */

/* Whether a connection that failed so may succeed later: the other side is not
 * there yet, as opposed to not wanting us. */
static bool may_succeed_later(manta_status st)
{
    return st == MANTA_EDIED || st == MANTA_ETIMEDOUT || st == MANTA_ENOENT;
}

static manta_status connect_rank(rendezvous *m, int rank, const tcp_place *place)
{
    char node[32];

    snprintf(node, sizeof node, "rank/%d", rank);
    for (;;) {
        chan *c = NULL;
        manta_status st = chan_connect(m->end, place, node, &c);
        if (!st) st = chan_await_open(c, m->deadline);
        if (!st) {
            m->peers[rank] = c;
            return MANTA_OK;
        }
        chan_close(c);
        if (!may_succeed_later(st)) return st;
        if (clock_now_ns() >= m->deadline) return fail_missing(m, rank, rank + 1);
        (void)socket_poll(NULL, 0, TRY_MS); /* there is nothing to be woken by before it listens */
    }
}

/* ---- the table ---- */

/* Where rank i listens: the address it came from, and the port it told. */
static manta_status rank_address_of(const rendezvous *m, int i, rank_address out)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    rank_word w;
    char name[256];

    memcpy(&w, chan_peer(m->peers[i])->word, sizeof w);
    if (getpeername(chan_fd(m->peers[i]), (struct sockaddr *)&a, &size) ||
        getnameinfo((struct sockaddr *)&a, size, name, sizeof name, NULL, 0, NI_NUMERICHOST))
        return manta_fail(MANTA_EIO, "rank %d: the address that it connected from cannot be told", i);
    snprintf(out, TCP_TEXT, strchr(name, ':') ? "[%s]:%u" : "%s:%u", name, w.port);
    return MANTA_OK;
}

static manta_status send_table(rendezvous *m)
{
    size_t bytes = sizeof *m->table * (size_t)m->size;

    for (int i = 1; i < m->size; i++) TRY(rank_address_of(m, i, m->table[i]));
    for (int i = 1; i < m->size; i++)
        TRY(chan_send(m->peers[i], &(frame){.kind = RENDEZVOUS_TABLE}, m->table, bytes, m->deadline));
    return MANTA_OK;
}

static manta_status receive_table(rendezvous *m)
{
    size_t bytes = sizeof *m->table * (size_t)m->size;
    frame f;
    manta_status st = chan_recv(m->peers[0], &f, m->table, bytes, m->deadline);

    if (st == MANTA_ETIMEDOUT)
        return manta_fail(st, "rank %d waited %lld ms at %s; rank 0 is there, others are not", m->rank,
                          (long long)m->timeout_ms, m->place->text);
    if (st) return st;
    if (f.kind != RENDEZVOUS_TABLE || f.length != bytes)
        return manta_fail(MANTA_ECORRUPT, "rank 0 sent something else than the table of addresses");
    for (int i = 0; i < m->size; i++) m->table[i][TCP_TEXT - 1] = '\0';
    return MANTA_OK;
}

static manta_status find_all_ranks(rendezvous *m)
{
    tcp_place place;

    if (m->rank == 0) {
        TRY(await_higher_ranks(m));
        return send_table(m);
    }
    TRY(connect_rank(m, 0, m->place));
    TRY(receive_table(m));
    for (int i = 1; i < m->rank; i++) {
        TRY(tcp_resolve(m->table[i], &place));
        TRY(connect_rank(m, i, &place));
    }
    return await_higher_ranks(m);
}

manta_status rendezvous_network(const tcp_place *place, int rank, int size, const manta_group_options *o,
                                ring **out)
{
    rendezvous m = {.rank = rank, .size = size, .place = place, .listener = -1};
    manta_status st;

    m.timeout_ms = o->join_timeout_ms;
    m.deadline = clock_deadline(o->join_timeout_ms);
    m.peers = mem_new(sizeof *m.peers * (size_t)size);
    m.table = mem_new(sizeof *m.table * (size_t)size);
    st = make_channel_end(&m, o);
    if (!st) st = start_listening(&m, o);
    if (!st) st = find_all_ranks(&m);
    if (!st) st = ring_new(rank, size, m.end, m.peers, out);
    for (int i = 0; i < STRANGERS; i++) chan_close(m.strangers[i]);
    if (m.listener >= 0 && m.listener != o->listener) os->close(m.listener);
    if (st) {
        for (int i = 0; i < size; i++) chan_close(m.peers[i]);
        chan_end_free(m.end);
    }
    mem_free(m.peers);
    mem_free(m.table);
    return st;
}
