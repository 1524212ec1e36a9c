/* refs.h - who holds which object: the daemon's reference counts. Pure.
 *
 * refs_step() takes one event and writes the objects to be freed; it does no
 * input or output and reads no clock.
 *
 * Messages of one client arrive in order, those of different clients in any:
 * a worker announces a result and the hold of its caller, and the caller may
 * drop it, and the drop may be read first. Two rules make that harmless.
 *
 *  1. Counts may be negative for a while. Nothing is freed when a count
 *     reaches zero; the object becomes a candidate.
 *  2. REFS_SETTLE says that every message that had been sent when the first
 *     `changes` were counted has been read (the daemon makes one pass over all
 *     connections; what is named during the pass waits for the next). Whoever passes a reference on lets the daemon know before it lets
 *     the receiver know, and who is called with one before it answers; so a
 *     count that is zero and that no message has changed since is zero for
 *     ever, and one that is negative belongs to an object whose maker died
 *     before it could announce it.
 *
 * An object may contain references: it holds them until it is freed itself. */
#ifndef STORE_REFS_H
#define STORE_REFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

typedef struct refs_book refs_book;
typedef uint32_t refs_client; /* 0: the daemon itself */

typedef enum refs_kind {
    REFS_ADD, /* `client` made the object (or will) */
    REFS_HOLD, /* one hold more for `client` */
    REFS_DROP, /* one hold less for `client` */
    REFS_CONTAIN, /* `object` contains `inner` */
    REFS_GONE, /* `client` is dead: its holds end, and later ones do not count */
    REFS_SETTLE
} refs_kind;

typedef struct refs_event {
    refs_kind kind;
    uint64_t object, inner;
    refs_client client;
    uint64_t changes; /* refs_changes() when the pass began */
} refs_event;

/* An object nobody holds any more. `known`: it was added, by `maker`. */
typedef struct refs_freed {
    uint64_t object;
    refs_client maker;
    bool known;
} refs_freed;

typedef VEC(refs_freed) refs_actions;

refs_book *refs_new(void);
void refs_free(refs_book *r); /* accepts NULL */

/* Applies one event and adds what follows to *out. */
void refs_step(refs_book *r, refs_event e, refs_actions *out);

/* How many a REFS_SETTLE would have to look at. */
size_t refs_candidates(const refs_book *r);
/* How often a message has named an object so far. */
uint64_t refs_changes(const refs_book *r);

size_t refs_count(const refs_book *r); /* objects in the book */
int64_t refs_total(const refs_book *r, uint64_t object); /* holds, of all; 0 for an unknown one */
int64_t refs_beside(const refs_book *r, uint64_t object,
                    refs_client client); /* those that are not of client */
bool refs_knows(const refs_book *r, uint64_t object); /* whether the object was added */

#endif
