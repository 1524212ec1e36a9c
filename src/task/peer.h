/* peer.h - the processes that this one shares a channel with. Private to task/.
 *
 * The daemon tells of a peer (PROTO_PEER, with the channel and the peer's bell) and of
 * its end (PROTO_GONE). Between the two, calls and answers go through the channel's
 * rings. What a dead peer had published is read before its end is dealt with.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_PEER_H
#define TASK_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/vec.h"
#include "net/wire.h"
#include "os/eventcount.h"
#include "task/claim.h"
#include "task/proto.h"
#include "task/ring.h"

struct shape;

typedef struct peer {
    uint32_t id;
    int pid;
    channel *channel;
    eventcount *bell;
    bool is_dead; /* its end has been dealt with */
    bool is_broken; /* its ring holds what cannot be: nothing more is read from it */
    bool is_waiting; /* its call waits: it takes nothing now */
    bool give_back; /* its lease ends with the calls it has */
    int status;
    proto_memory memory; /* why: it was ended for it */
    struct shape *shape; /* leased for it */
    int in_flight;
    uint32_t claims; /* the last number given to a call sent to it (claim.h) */
    uint64_t claimed[CLAIM_SLOTS / 64]; /* words in use, a bit each */
    int64_t load_ns;
    list sent; /* calls, in the order in which they were sent */
    VEC(buf) outbox; /* answers that found the ring full, in order; nothing overtakes them */
} peer;

/* Finds the peer with that client number; NULL: there is none. */
peer *find_peer(uint32_t id);

/* Sends a message; false: there is no room in the ring. */
bool peer_send(peer *p, const buf *b);

/* Sends a message that must not be refused: it waits in the outbox when there is no room. */
void peer_answer(peer *p, const buf *b);

/* Does what the message of p in rt->in says, whatever it says. */
void rt_peer_message(peer *p);

/* Takes the daemon's word of a new peer, with its descriptors. */
void rt_take_peer(wire *w, int *fds, int n_fds);

/* Deals with the end of a peer: its calls are decided, and what it has sent is dropped. */
void rt_peer_end(peer *p);

/* Tells the daemon that a client cannot be reached, with this thread's last error as
 * the reason: it is ended. `no_room`: for want of something that another worker would
 * want as well; what could only go on with one then fails with that sentence. */
void rt_unreachable(uint32_t id, bool no_room);

/* Reads all rings, and sends what found no room before. Returns whether there was
 * anything to do. */
bool rt_pump(void);

/* Says whether a peer has sent something that was not read yet. */
bool rt_has_input(void);

/* Says whether there is something to read, or room again for what found none: what a
 * thread that is about to sleep looks for once more. */
bool peers_have_work(void);

/* Sends what waits in outboxes, as far as there is room. */
void peers_flush(void);

/* Frees what is left at the end. */
void peers_release(void);

/* A word of p's page by which a call that is sent to p can be taken back (claim.h); 0: none is free. */
uint32_t peer_claim(peer *p);

/* The call of a claim is no longer with p; 0: it had none. */
void peer_unclaim(peer *p, uint32_t claim);

#endif
