/* object.h - the objects that this process knows. Private to task/.
 *
 * An entry exists for every object that this process has a reference to, uses in a
 * call, or will make. The object is
 *   - ours, when its number was made here: the daemon does not know it until it is
 *     exported, that is until another process may come to know its number; or
 *   - a stranger's: the daemon counts at least one hold of this process (`held`),
 *     which is dropped when the entry goes.
 *
 * An entry goes when nobody refers to it (refs) and nobody uses it (pins).
 *
 * Threads: the runtime's lock guards every entry; all functions here are called with
 * it. Those that may give it away for a while say so. */
#ifndef TASK_OBJECT_H
#define TASK_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/failure.h>
#include <manta/value.h>

#include "base/status.h"
#include "base/vec.h"
#include "task/failure.h"
#include "task/value.h"

#define CLIENT_SHIFT 40 /* an object's number: its maker's client number, and a count */

struct call;

typedef enum object_state { OBJECT_PENDING, OBJECT_READY, OBJECT_FAILED } object_state;

typedef struct object {
    uint64_t id;
    int32_t refs; /* of the program, and of objects here that contain it */
    int32_t pins; /* of calls under way, and of waits */
    int32_t held; /* holds the daemon counts for us */
    object_state state;
    bool exported; /* the daemon knows it */
    bool wanted; /* the daemon was asked for it */
    bool unsealed; /* manta_create() without manta_seal() yet */
    bool promised; /* manta_promise() that was not settled yet */
    bool on_heap, is_own, is_pinned; /* whose v.at is: our heap, our segment, a pinned segment */
    bool is_read; /* a pointer to its bytes was delivered */
    int32_t kept; /* by manta_pin() */
    uint64_t walk; /* over many references that has come past last (manta_wait) */
    value v;
    failure *failure;
    VEC(struct call *) waiting; /* calls with this as an argument */
    struct call *maker; /* the call that will make it */
    struct watch_entry *watched; /* who wants to hear that it is ready; NULL: nobody */
} object;

/* Makes the entry of an object that has none yet. */
object *object_new(uint64_t id);

/* Finds the entry of an object; NULL: there is none. Borrowed until the entry goes. */
object *object_find(uint64_t id);

/* Hands out n new numbers in a row, and returns the first. */
uint64_t object_id(int n);

/* Says whether another process may name the object, alone (object_may_be) or in a
 * value (object_may_hold). Numbers of ours are known to nobody before they are given
 * out, and an entry for one would be in the way of the object that gets it.
 * MANTA_ECORRUPT: it may not. */
manta_status object_may_be(uint64_t id) MANTA_MUST_USE;
manta_status object_may_hold(const value *v) MANTA_MUST_USE;

/* Copies the bytes of a value, v as value_of() made it, into a block that store_take()
 * gave. The lock is given away while many are copied: nobody but the caller may know
 * of the block yet, and store_take() keeps it mapped, in memory and writable until
 * store_seal(). */
void object_fill(const manta_arg *a, const value *v, void *to);

/* Makes an object of ours from a value, with no reference yet. It lies in a segment when it is large, or
 * `apart`: a message then has only its place. May give the lock away for a while. */
manta_status object_make(const manta_arg *a, const value *v, bool apart, object **out) MANTA_MUST_USE;

/* Counts what a value that this process made refers to, once each. */
void object_hold_inner(const value *v);

/* Where a value comes from. */
typedef enum object_source {
    OBJECT_FROM_DAEMON,
    OBJECT_FROM_PEER, /* the daemon knows already that we hold it, if it lies in a segment, and what
                       * it refers to */
    OBJECT_FROM_HERE /* a call that this process ran: what lies in a segment is a block of ours */
} object_source;

/* Sets the object to a value that has come in a message. */
void object_set(object *o, const value *v, object_source from);

/* Gives back what the daemon counts for us of a value that has come from a peer and is not wanted:
 * the object `id` where it is one there, else (0) what it refers to. */
void object_drop_value(uint64_t id, const value *v);

/* Sets the object to a failure, which is the failure of every call that uses it. Takes f. */
void object_fail(object *o, failure *f);

/* Says that an object of ours has its bytes: whoever waited for it goes on. */
void object_sealed(object *o);

/* A promise of ours has got its value: whoever waited for it goes on. */
void object_kept(object *o);

/* Tells the daemon of an object of ours, and of what it contains; does nothing when
 * that was done. */
void object_export(object *o);

/* Tells the daemon of what a value refers to, before the value is passed on. */
void object_export_inner(const value *v);

/* Asks the daemon for an object that is not there, once. */
void object_want(object *o);

/* Takes one reference or one pin back; the entry may go with it. */
void object_unref(object *o);
void object_unpin(object *o);

/* Makes o->v.at point to the object's bytes. May give the lock away for a while. */
manta_status object_map(object *o) MANTA_MUST_USE;

/* Lets the bytes go again, unless somebody still counts on the address. */
void object_unmap(object *o);

/* Who is given an object (gifts.h): with item `item` (gifts_item()) of its call `task`.
 * Who only holds its own object has no task. */
typedef struct object_gift {
    uint32_t client; /* 0: nobody */
    uint64_t task, item;
} object_gift;

/* Tells the daemon that another will hold n objects, as many as an inline value refers to, before it
 * hears of them. */
void object_give(const object_gift *to, const uint64_t *ids, uint64_t n);

/* Tells the daemon of an object that lies where `v` says and contains n others; the
 * message may wait for company, but not for anything that is told later. */
void object_tell_add(uint64_t id, object_gift to, const value *v, const void *inner, uint64_t n);

/* Finds or makes the entry for the reference of another process (object_may_be()). It is
 * one hold more that the daemon must be told of, unless `told`. */
object *object_adopt(uint64_t id, bool told);

/* Makes a reference that only carries this thread's last error. */
manta_ref object_failed(manta_failure_kind kind, manta_status st);

/* Waits for an object and, with `map`, makes its bytes readable. *out is pinned until
 * object_unpin(). */
manta_status object_await(manta_ref ref, int64_t timeout_ms, bool map, object **out) MANTA_MUST_USE;

/* Fails with MANTA_ETIMEDOUT, and says where o's call is, if it has one. */
manta_status object_timed_out(const object *o, int64_t timeout_ms) MANTA_MUST_USE;

#endif
