/* actor_link.h - actors as their callers see them. Private to task/.
 *
 * A link begins UNKNOWN; the daemon, once asked (ACTOR_WANT), says where the actor is
 * (AT), also after each restart, and that it is no more (DEAD), which is for ever. While
 * the process it was in is dead and the daemon has said nothing more it is LOST, and
 * calls wait. A link lives as long as the handle, the object of the same number, or a
 * call of it.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_ACTOR_LINK_H
#define TASK_ACTOR_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/task.h>

#include "base/list.h"
#include "base/status.h"
#include "task/failure.h"
#include "task/proto.h"

struct peer;

typedef enum actor_link_state { ACTOR_UNKNOWN, ACTOR_AT, ACTOR_LOST, ACTOR_DEAD } actor_link_state;

typedef struct actor_link {
    uint64_t id;
    actor_link_state state;
    struct peer *at;
    bool is_here; /* it is in this process, and `at` is NULL */
    int pid, retries;
    int most_pending, pending; /* calls of ours; most_pending 0: no limit */
    bool wanted; /* the daemon was asked where it is */
    bool fail_away; /* calls do not wait for a restart */
    bool any_order; /* calls do not wait for arguments of earlier ones */
    uint64_t group; /* group and name are kept here only without other processes */
    char *name; /* "space/name"; NULL: none */
    failure *failure; /* why it is DEAD, or was away; NULL: it is not */
    list queue; /* calls not sent, in order */
    int64_t queued;
} actor_link;

/* Finds the link of an actor, or makes it; never NULL. */
actor_link *actor_find_link(uint64_t id);

/* Sends the calls that wait, as far as the actor's process takes them, or fails them. */
void actor_dispatch(actor_link *a);

/* The daemon says where an actor is, and what its calls are to know; flags: PROTO_ACTOR_. */
void actor_at(uint64_t id, uint32_t client, int pid, int retries, int most_pending, uint32_t flags);

/* The daemon says that an actor is no more: its calls fail with f, which is taken. */
void actor_died(uint64_t id, failure *f);

/* The process p is dead: actors in it are LOST. */
void actor_peer_died(struct peer *p);

/* The last handle here is gone; harmless for the numbers of other objects. */
void actor_forget(uint64_t id);

/* Without other processes: ends the actors of a group, and finds the living actor of a
 * full name (NULL: none). */
void actors_group_gone(uint64_t group, failure *f);
actor_link *actor_named(const char *full);

/* Writes "space/name"; space NULL: this program's own. MANTA_EINVAL: it is too long, or
 * there is a '/' in the space. */
manta_status actor_full_name(const char *space, const char *name, char full[PROTO_NAME]) MANTA_MUST_USE;

/* Frees what is left at the end. */
void actors_release(void);

#endif
