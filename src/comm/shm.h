/* comm/shm.h - the shared memory of a group on one host.
 *
 *   | head | rank 0 | ... | rank N-1 | mailboxes N x N | slots of rank 0 | ... | shared of rank 0 | ... |
 *
 * Collectives are made of *steps*, numbered through the life of the group. In
 * a step a rank writes into its slot (step % SHM_SLOTS), says so by raising its
 * word `posted` to the step's number, and reads what it needs of the others'
 * slots when their words are there.
 *
 * Invariants
 * 1. `posted`, the slots and the words of a call have one writer, their rank.
 * 2. A rank posts step s only when it is through with reading step s - 1 -
 *    SHM_AHEAD, and writes step s only when every rank has posted s - SHM_SLOTS +
 *    1 + SHM_AHEAD: all are then through with reading step s - SHM_SLOTS, whose
 *    slot s takes.
 * 3. The first step of a call carries its words, and no rank goes beyond it
 *    before it has seen that all ranks' words are the same. So ranks that
 *    called different things are still at the same step, and the group lives.
 * 4. A rank that is gone (left, or its pidfd says so) is missed only when it has
 *    not posted the step that is waited for; then the wait ends, whoever else it
 *    may be for.
 * 5. Everything read from here but the data itself is copied, then checked.
 *
 * Sleeping. A rank sleeps on its own `bell` (os/eventcount.h), and looks again
 * once it has said so; whoever changes what it may wait for notifies it. A thread
 * of each rank watches the other processes and notifies its own rank. */
#ifndef COMM_SHM_H
#define COMM_SHM_H

#include <stdatomic.h>

#include "comm/transport.h"
#include "os/eventcount.h"
#include "os/thread.h"

enum {
    SHM_SLOTS = 4,
    SHM_AHEAD = 1,
    SHM_LEAD = SHM_SLOTS - 1 - SHM_AHEAD, /* steps that a rank may be ahead of another */
    SHM_CELLS = 2, /* cells of a mailbox */
    SHM_VERSION = 2,
};

#define SHM_MAGIC 0x314D4D4F43544E4DULL

typedef struct shm_head {
    uint64_t magic;
    uint32_t version, size;
    uint64_t slot_size, cell_size, shared_size; /* bytes */
    int64_t timeout_ms, join_timeout_ms, bytes_per_pack;
} shm_head;

typedef struct shm_rank {
    _Alignas(64) _Atomic uint32_t posted;
    _Alignas(64) eventcount bell; /* threads of the rank sleep on it, anyone notifies */
    _Alignas(64) char apart[64]; /* a core fetches lines in pairs: `posted` of each rank begins one */
    _Alignas(64) _Atomic uint32_t pid; /* 0: nobody has joined */
    _Atomic uint32_t left; /* 1: closed its group */
    _Atomic uint32_t failed; /* 1: gave up, `error` says why */
    manta_error error;
    _Alignas(64) call_words words[SHM_SLOTS]; /* the words of the call whose first step has that slot */
} shm_rank;

/* Messages from one rank to another. */
typedef struct shm_mailbox {
    _Alignas(64) _Atomic uint32_t sent; /* cells filled, by the sender */
    _Alignas(64) _Atomic uint32_t taken; /* cells emptied, by the receiver */
    _Alignas(64) call_words words[SHM_CELLS]; /* the words of the message that a cell is part of */
} shm_mailbox;

/* A mapping of it, and what this rank knows for itself. */
typedef struct shm {
    shm_head head; /* checked copy */
    int rank, size;
    char *base;
    size_t bytes;
    shm_rank *ranks;
    char *mail, *slots, *shared;
    size_t mail_stride;
    uint32_t step; /* the last one of the calls that are done */
    uint64_t calls; /* collectives begun */
    uint64_t *sends, *receives; /* messages begun, by peer */
    _Atomic uint32_t *dead; /* one flag for each rank; set by the watcher */
    int *pidfds; /* one descriptor for each rank; -1: none, or our own process */
    int stop; /* eventfd that ends the watcher */
    bool watching;
    thread_id watcher;
    _Atomic bool closing;
} shm;

extern const transport shm_transport;

/* Fills in the sizes for a group of `size` ranks. */
shm_head shm_head_of(int size, const manta_group_options *o);

/* Reserves the memory. *fd: owned. */
manta_status shm_group_new(const shm_head *h, int *fd) MANTA_MUST_USE;

/* Maps the memory, enters this process as `rank` and waits for the others. *out: a transport's t. */
manta_status shm_group_join(int fd, int rank, shm **out) MANTA_MUST_USE;

static inline shm_rank *shm_rank_at(const shm *t, int rank)
{
    return &t->ranks[rank];
}

static inline shm_mailbox *shm_mailbox_at(const shm *t, int from, int to)
{
    return (shm_mailbox *)(void *)(t->mail + (size_t)(from * t->size + to) * t->mail_stride);
}

static inline char *shm_cell_at(const shm *t, int from, int to, uint32_t cell)
{
    return (char *)shm_mailbox_at(t, from, to) + sizeof(shm_mailbox) + cell % SHM_CELLS * t->head.cell_size;
}

static inline char *shm_slot_at(const shm *t, int rank, uint32_t step)
{
    return t->slots + ((size_t)rank * SHM_SLOTS + step % SHM_SLOTS) * t->head.slot_size;
}

/* Rings the bells of all other ranks that sleep. */
void shm_ring_all(const shm *t);

/* MANTA_EDIED and the like when a rank has failed, or `rank` is gone. */
manta_status shm_look_failed(const shm *t) MANTA_MUST_USE;
bool shm_is_gone(const shm *t, int rank);
manta_status shm_say_gone(const shm *t, int rank, const manta_work *w) MANTA_MUST_USE;

/* shm_call.c: moves a call on. */
manta_status shm_poll(void *t, manta_work *w, bool *moved);
void shm_missing(void *t, const manta_work *w, char *text, size_t size);

#endif
