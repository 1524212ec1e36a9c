/* rendezvous_network.c - see rendezvous.h.
 *
 * Rank r is the node "rank/r" of a rendezvous (net/rendezvous.h): it calls the
 * ranks below it and is called by those above. At first it knows the address of
 * rank 0 alone:
 *
 *   rank 0                      rank 1                    rank 2, the last
 *   listens at the address      listens at a port         listens nowhere
 *       <------ word: size, port --+------- word: size, 0 -------+
 *   all are here
 *       ------- table: where ranks listen, as rank 0 sees them -->
 *                                  <-------- word: size, 0 ------+
 *
 * The word says the size of the group, which all must have in common, and the
 * rank's port. A rank that is there cannot be joined by another of its number. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/rendezvous.h"
#include "net/rendezvous.h"

enum { RENDEZVOUS_TABLE = FRAME_USER + 32 };

/* What a rank adds to its hello. */
typedef struct rank_word {
    uint32_t size, port;
} rank_word;

typedef char rank_address[TCP_TEXT]; /* "" : not known */
typedef char rank_name[32];

typedef struct joining {
    int rank, size;
    int64_t deadline, timeout_ms;
    const tcp_place *place; /* of rank 0 */
    rendezvous *r; /* its nodes are the ranks */
    chan **peers; /* by rank; those taken */
    rank_address *table; /* by rank */
} joining;

/* ---- making the rendezvous ---- */

static manta_status check_word(void *ctx, int node, const hello *h)
{
    const joining *j = ctx;
    rank_word w;

    (void)node;
    if (h->n_word != sizeof w)
        return manta_fail(MANTA_EPERM, "%s wanted to join and is no rank of a group", h->node);
    memcpy(&w, h->word, sizeof w);
    if (w.size == (uint32_t)j->size) return MANTA_OK;
    return manta_fail(MANTA_EPERM, "%s is in a group of %u, and rank %d in one of %d", h->node, w.size,
                      j->rank, j->size);
}

static manta_status make_rendezvous(joining *j, const manta_group_options *o)
{
    rendezvous_node *nodes = mem_new(sizeof *nodes * (size_t)j->size);
    rank_name *names = mem_new(sizeof *names * (size_t)j->size);
    rendezvous_options r = {.what = "group", .nodes = nodes, .n = j->size, .once = true};
    cluster_key key;
    manta_status st;

    for (int i = 0; i < j->size; i++) {
        snprintf(names[i], sizeof names[i], "rank/%d", i);
        nodes[i] = (rendezvous_node){
            .name = names[i], .address = i ? NULL : j->place->text, .called = rendezvous_calls(j->rank, i)};
    }
    r.chan = (chan_options){.node = names[j->rank], .job = "manta-comm", .plain = o->insecure_bulk};
    r.key = &key;
    r.check = check_word;
    r.ctx = j;
    st = key_find(o->key_file, &key);
    if (!st) st = rendezvous_new(&r, &j->r);
    key_wipe(&key);
    mem_free(names);
    mem_free(nodes);
    return st;
}

static manta_status start_listening(joining *j, const manta_group_options *o)
{
    rank_word w = {.size = (uint32_t)j->size};
    int port = 0;

    if (j->rank == 0 && o->listener > 0) {
        rendezvous_listen_with(j->r, o->listener);
    } else if (j->rank == 0) {
        TRY(rendezvous_listen(j->r, j->place->text, false, NULL));
    } else if (j->rank < j->size - 1) {
        const char *here = tcp_is_loopback(j->place) ? "127.0.0.1:0" : "0.0.0.0:0";
        TRY(rendezvous_listen(j->r, here, false, &port));
    }
    w.port = (uint32_t)port;
    rendezvous_say(j->r, 0, &w, sizeof w);
    return MANTA_OK;
}

/* ---- meeting ---- */

static manta_status fail_missing(const joining *j, int first, int end)
{
    char text[200] = "";

    for (int i = first; i < end; i++)
        if (i != j->rank && !j->peers[i] && !rendezvous_is_here(j->r, i))
            transport_name(text, sizeof text, i);
    return manta_fail(MANTA_ETIMEDOUT, "rank %d waited %lld ms at %s; missing: %s", j->rank,
                      (long long)j->timeout_ms, j->place->text, text);
}

/* Meets the ranks from `first` to before `end` and takes their channels. */
static manta_status meet_ranks(joining *j, int first, int end)
{
    rendezvous_meeting m = {.timeout_ms = clock_left_ms(j->deadline)};
    manta_status st = rendezvous_meet(j->r, first, end, &m);

    if (st == MANTA_ETIMEDOUT) return fail_missing(j, first, end);
    for (int i = first; i < end && !st; i++)
        if (!j->peers[i]) j->peers[i] = rendezvous_take(j->r, i);
    return st;
}

/* ---- the table ---- */

/* Where rank i listens: the address it came from, and the port it told. */
static manta_status rank_address_of(const joining *j, int i, rank_address out)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    rank_word w;
    char name[256];

    memcpy(&w, chan_peer(j->peers[i])->word, sizeof w);
    if (getpeername(chan_fd(j->peers[i]), (struct sockaddr *)&a, &size) ||
        getnameinfo((struct sockaddr *)&a, size, name, sizeof name, NULL, 0, NI_NUMERICHOST))
        return manta_fail(MANTA_EIO, "rank %d: the address that it connected from cannot be told", i);
    snprintf(out, TCP_TEXT, strchr(name, ':') ? "[%s]:%u" : "%s:%u", name, w.port);
    return MANTA_OK;
}

static manta_status send_table(joining *j)
{
    size_t bytes = sizeof *j->table * (size_t)j->size;

    for (int i = 1; i < j->size; i++) TRY(rank_address_of(j, i, j->table[i]));
    for (int i = 1; i < j->size; i++)
        TRY(chan_send(j->peers[i], &(frame){.kind = RENDEZVOUS_TABLE}, j->table, bytes, j->deadline));
    return MANTA_OK;
}

static manta_status receive_table(joining *j)
{
    size_t bytes = sizeof *j->table * (size_t)j->size;
    frame f;
    manta_status st = chan_recv(j->peers[0], &f, j->table, bytes, j->deadline);

    if (st == MANTA_ETIMEDOUT)
        return manta_fail(st, "rank %d waited %lld ms at %s; rank 0 is there, others are not", j->rank,
                          (long long)j->timeout_ms, j->place->text);
    if (st) return st;
    if (f.kind != RENDEZVOUS_TABLE || f.length != bytes)
        return manta_fail(MANTA_ECORRUPT,
                          "rank 0 sent message %u of %llu bytes, expected the table of addresses of %zu",
                          f.kind, (unsigned long long)f.length, bytes);
    for (int i = 1; i < j->rank; i++) {
        j->table[i][TCP_TEXT - 1] = '\0';
        rendezvous_set_address(j->r, i, j->table[i]);
    }
    return MANTA_OK;
}

static manta_status find_all_ranks(joining *j)
{
    if (j->rank == 0) {
        TRY(meet_ranks(j, 0, j->size));
        return send_table(j);
    }
    TRY(meet_ranks(j, 0, 1));
    TRY(receive_table(j));
    return meet_ranks(j, 0, j->size);
}

manta_status rendezvous_network(const tcp_place *place, int rank, int size, const manta_group_options *o,
                                ring **out)
{
    joining j = {.rank = rank, .size = size, .place = place, .timeout_ms = o->join_timeout_ms};
    manta_status st;

    j.deadline = clock_deadline(o->join_timeout_ms);
    j.peers = mem_new(sizeof *j.peers * (size_t)size);
    j.table = mem_new(sizeof *j.table * (size_t)size);
    st = make_rendezvous(&j, o);
    if (!st) st = start_listening(&j, o);
    if (!st) st = find_all_ranks(&j);
    for (int i = 0; st && i < size; i++) chan_close(j.peers[i]);
    if (!st) st = ring_new(rank, size, rendezvous_take_end(j.r), j.peers, out);
    rendezvous_free(j.r);
    mem_free(j.peers);
    mem_free(j.table);
    return st;
}
