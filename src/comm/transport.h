/* comm/transport.h - what carries the collectives of a group: a table of
 * functions, so that others (NCCL, MPI) can come behind the same calls.
 *
 * A transport moves a call forward without ever waiting; group.c does the
 * waiting, in one place, for all of them. Calls that poll is given belong to
 * it in this way: collectives come one after the other, in the order in which
 * they were started; messages of a pair and a direction too.
 *
 * Threads: poll, missing, abort and close are called under the group's lock;
 * arm, sleep, disarm and wake are not. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include "comm/call.h"

typedef struct transport {
    const char *name;
    /* Moves w on. *moved is set when anything was done. Sets w->done when the
     * call is done. MANTA_EINVAL (the ranks called different things) is a failure
     * of this call alone, which is then over on every rank; any other failure
     * breaks the group. */
    manta_status (*poll)(void *t, manta_work *w, bool *moved);
    /* arm; poll once more; when nothing moved sleep with what arm gave; disarm.
     * A change that comes after arm ends the sleep. */
    uint32_t (*arm)(void *t);
    void (*sleep)(void *t, uint32_t armed, int64_t deadline);
    void (*disarm)(void *t);
    /* Ends the sleep of another thread of this rank. */
    void (*wake)(void *t);
    /* Who keeps w from going on, as words for a sentence: "rank 1, rank 3". */
    void (*missing)(void *t, const manta_work *w, char *text, size_t size);
    /* Tells all ranks that this one has given up, and why. */
    void (*abort)(void *t, const manta_error *e);
    /* The memory of a rank that every rank sees; NULL when there is none. */
    void *(*memory)(void *t, int rank);
    /* Leaves the group and frees t. */
    void (*close)(void *t);
} transport;

/* Ends the sentence about a rank that is gone; all transports use the same words. */
manta_status transport_gone(int rank, bool left, const char *doing) MANTA_MUST_USE;

/* Adds "rank 3" to the list in text. */
void transport_name(char *text, size_t size, int rank);

#endif
