/* train/cluster/cluster_exchange.h - the messages of one step, to and from the other ranks.
 *
 *   our shard, going backward                    other ranks
 *        |
 *        |  gradients settle from the last block of the grid to the first, and leave
 *        |  in pieces of cluster_piece blocks
 *        |
 *        +-- of a rank's blocks ------------- GRADIENTS ---> that rank
 *        +-- of our blocks ---> pieces[k] + 1
 *        |                          ^ + 1
 *        |                          +-------- GRADIENTS ---- of our blocks, by shard
 *        |                pieces[k] = shards with samples
 *        |                          |
 *        |            sum by the shard tree, into `sum`
 *        |                          +-------- SUM ---------> all
 *        +-- the rest of the slot ----------- REST --------> all
 *                              `sum` <------- SUM ---------- of each rank's blocks
 *                              slots <------- REST --------- of each rank's shards
 *
 * With statistics in common, NUMBERS go between forward and backward of the shards, at
 * each batch norm (session/lockstep.h).
 *
 * Who writes what. A shard's slot is written by this process when the shard is its own,
 * and else by the messages of the rank whose it is. `sum` is written by sum_piece() for
 * our blocks and by SUM for the others. Each message is checked (kind, item, length, whose
 * it is, whether it came before) before a byte of it is taken.
 *
 * Why that is safe. What is posted is borrowed by the channel until it is sent, so slots
 * and `sum` are written again only after exchange_await() has seen all of it sent. From
 * each rank exactly as many messages are taken as the step has from it (`waits`): those of
 * the next step, which it may have begun, stay in the channel.
 *
 * What may be changed: the size of pieces, their order, when it is looked around. The sum
 * of a piece does not depend on them. */
#ifndef TRAIN_CLUSTER_CLUSTER_EXCHANGE_H
#define TRAIN_CLUSTER_CLUSTER_EXCHANGE_H

#include "train/cluster/cluster.h"

/* A step under way. */
typedef struct exchange {
    manta_cluster *c;
    manta_session *s;
    bool train, deciding;
    bool together; /* the shards of all ranks in lockstep */
    uint64_t number; /* what its messages carry: steps begun in this generation, in order */
    uint64_t flag; /* of its meetings, in this process; an attempt has its own */
    int64_t count; /* samples */
    int64_t heard; /* numbers of other ranks' shards */
    int shard; /* that is being computed or sent, and the piece of it that is sent next: */
    int piece_rank;
    int64_t piece; /* pieces go from the last rank's last to the first's first */
    int64_t unsummed; /* pieces of our blocks */
    manta_status st; /* what went wrong in the middle of computing */
} exchange;

/* Whether a shard has samples in this step. */
bool exchange_uses(const exchange *t, int64_t shard);

/* Begins a step: notes what each rank has to send. */
void exchange_expect(exchange *t);
/* Begins without expecting anything but what the caller notes in `waits`. */
void exchange_forget(exchange *t);
/* Begins adding up our pieces. The slots are known, their counts are not yet. */
void exchange_begin_sum(exchange *t);

/* Takes what is here of what is expected, from all ranks. MANTA_EDIED: one is lost. */
manta_status exchange_receive(exchange *t) MANTA_MUST_USE;

/* Sends a message to a rank. While there is no room for it, takes what comes, since the
 * other side may be waiting for that. */
manta_status exchange_post(exchange *t, int rank, uint16_t kind, int64_t item, chan_part part) MANTA_MUST_USE;

/* A shard that is computed: before, at its end, and (in lockstep) when it has left numbers
 * at a batch norm. *moved: something was sent. */
void exchange_begin_shard(exchange *t, int64_t shard);
manta_status exchange_send_shard(exchange *t, int64_t shard) MANTA_MUST_USE;
manta_status exchange_send_numbers(exchange *t, int shard, bool *moved) MANTA_MUST_USE;

/* Between two nodes of backward (exec_run.settled): what is settled, from element `from`
 * on, goes; what has come is taken and added. A failure is in `st`. */
void exchange_look_around(void *ctx, int64_t from);

/* Until every rank has sent what it has to; with `flush` also until ours is sent. */
manta_status exchange_await(exchange *t, bool flush) MANTA_MUST_USE;

/* Tells whom we wait for since `begin`, after a while; *said: when the log was told last.
 * Fails when it has been too long, or the watcher has had enough. */
manta_status exchange_say_waiting(exchange *t, int64_t begin, int64_t *said) MANTA_MUST_USE;

#endif
