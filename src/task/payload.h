/* payload.h - what a failure carries beside its sentence: a long text, and bytes of the function that
 * failed. Private to task/.
 *
 * It is a packed value (packed.h) without references: the text is its head, the bytes are its
 * only block. A small one lies in this process and inside messages. A large one is an
 * object of the store, made by the process that failed, and messages name it:
 *
 *     process that fails ── ADD, HOLD for the caller ──▶ daemon
 *            └── FAILED, with the object's number ──▶ caller: holds it as long as the failure
 *     PROTO_FAIL, PROTO_ACTOR_FAILED: the failed object, or the actor, contains it
 *
 * so it lives as long as somebody has the failure, whoever of them dies first. Calls of an actor whose
 * constructor has failed are told without a HOLD: their callers hold the actor, which contains
 * it, and a process that is about to be killed must not leave counts behind for answers that
 * nobody gets.
 *
 * A payload is counted and never changed. In a process with a runtime one that names an object has one
 * reference of its entry (object.h) once it is adopted. The last owner may be without the lock:
 * then the entry's reference waits in a list (payloads_collect()).
 *
 * Threads: counts are atomic; payload_unref() and payload_ref() need no lock, the others do. */
#ifndef TASK_PAYLOAD_H
#define TASK_PAYLOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <manta/packed.h>

#include "base/buf.h"
#include "base/status.h"
#include "net/wire.h"

struct object_gift;

typedef struct payload {
    _Atomic uint32_t refs;
    bool adopted; /* the object's entry counts us */
    bool told; /* of one that is not adopted: the daemon counts the object for us already */
    uint64_t object; /* 0: the bytes are here */
    struct payload *next; /* in the list of those to be let go */
    struct packed_index *index; /* of the bytes, when they were read */
    size_t size;
    _Alignas(16) char bytes[];
} payload;

/* Makes a payload; `text` may be NULL. May give the lock away for a while. MANTA_ENOSPC the
 * store has no room. */
manta_status payload_make(const char *text, const void *bytes, size_t n, payload **out) MANTA_MUST_USE;

payload *payload_ref(payload *p); /* accepts NULL */
void payload_unref(payload *p); /* accepts NULL */

/* In a message; NULL is none. held: who reads it holds the object, as the daemon was told. What is
 * read names an object that is not adopted yet. */
void payload_put(buf *b, const payload *p, bool held);
payload *payload_take(wire *w);
size_t payload_length(const payload *p); /* bytes in a message; accepts NULL */

/* Has this process hold the object that p names, if it names one. False: there can be no such
 * object, and p is of no use. */
bool payload_adopt(payload *p);

/* Lets others ask the daemon for the object, before they are told of it; to: who is given it; NULL:
 * nobody. */
void payload_pass_on(const payload *p, const struct object_gift *to);

/* Makes an object of bytes that are here. May give the lock away for a while. */
manta_status payload_move_out(const payload *p, payload **out) MANTA_MUST_USE;

/* Says where text (NULL: none) and bytes lie, which is so as long as p is there. May give the
 * lock away for a while. */
manta_status payload_read(payload *p, const char **text, const void **bytes, size_t *n) MANTA_MUST_USE;

/* Payloads that are gone, whose objects are to be let go. */
extern _Atomic(payload *) payloads_gone;

/* Lets go of what payloads held that are gone; payloads_collect() looks whether there are any. */
void payloads_let_go(void);
static inline void payloads_collect(void)
{
    if (atomic_load_explicit(&payloads_gone, memory_order_relaxed)) payloads_let_go();
}
/* Frees the payloads that are gone when the runtime ends. Their objects end with it, and are not let go of. */
void payloads_forget(void);

#endif
