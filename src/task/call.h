/* call.h - the calls that this process makes. Private to task/.
 *
 * A call is in one place at a time: it waits for arguments (in no list), stands in the
 * queue of its shape (lease.h) or of its actor, or is in the list of the peer that it was sent to.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_CALL_H
#define TASK_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/task.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/vec.h"
#include "net/wire.h"
#include "task/claim.h"
#include "task/lease.h"
#include "task/object.h"
#include "task/proto.h"
#include "task/value.h"

struct actor_link;
struct peer;

typedef struct function {
    char *name;
    int64_t est_ns; /* running mean of what a call takes; -1: not known */
    int64_t run_ns; /* mean of the calls that threads of this process run (leader.h); -1: not known */
    uint32_t ran; /* calls with max_calls that this process has run */
    uint64_t bits; /* that stand for it in a chain of calls (nested.h) */
} function;

typedef struct call_arg {
    value v;
    object *o; /* resolved before the call; NULL: v is the value */
    uint64_t id; /* of a call that ended and is kept: the object that o was (rebuild.h) */
} call_arg;

typedef struct call {
    list link; /* in a shape's queue, a peer's sent list or an actor's queue */
    size_t heap_place; /* in the queue of its shape (call_order.h) */
    uint64_t id; /* of the first result */
    int results, n_args, missing; /* missing: arguments that are not there yet */
    int attempt, max_retries;
    bool retry_errors, cancelled, is_sent, is_stream;
    bool as_actor; /* max_retries is the actor's, which who was handed it learns later */
    bool apart; /* never sent behind another call */
    bool is_here; /* its waiter runs it, in this process (nested.h) */
    uint32_t claim; /* of a call that may be taken back (claim.h); 0: it may not */
    uint32_t retry_on; /* statuses, as MANTA_ON() */
    uint32_t window, max_calls; /* call_head.h */
    uint64_t parent; /* the call that made it; 0: none */
    uint64_t chain; /* the functions of the calls above it (nested.h) */
    function *fn;
    char *label, *group; /* NULL: none */
    shape *shape; /* NULL for actors */
    struct actor_link *actor; /* NULL for tasks */
    struct peer *at; /* where it was sent */
    uint64_t items; /* of a stream: read from there */
    int64_t est_ns; /* what was added to the peer's load */
    call_arg args[];
} call;

struct stream;

/* Submits a call and fills out[0 .. results) with references to its results. It cannot
 * fail: what is wrong becomes the failure of the results. */
void call_submit(const char *name, const manta_task_options *options, struct actor_link *actor, int n_args,
                 const manta_arg *args, int results, manta_ref *out);

/* Submits the call of a stream, which is opened under its number before the first item can come, but not when the
 * call is wrong. *out refers to its end. */
void call_submit_stream(struct stream *opens, const char *name, const manta_task_options *options,
                        struct actor_link *actor, int n_args, const manta_arg *args, manta_ref *out);

/* Finds what is known of a function by its name; never NULL. */
function *function_find(const char *name);

/* A call of f took ns, as the other process says. */
void function_learn(function *f, int64_t ns);

/* Takes a call out of the list that it is in; harmless when it is in none. */
void call_unlink(call *c);

/* Puts a call that is in no list into the queue of its shape, before those that were made after it, or of
 * its actor, at the end; `first`: at the beginning. */
void call_queue(call *c, bool first);

/* One argument more is there: the call is sent when it was the last. */
void call_argument_ready(call *c);

/* Goes on with a call that waits for its arguments, or does not any more. */
void call_resume(call *c);

/* Reads the answer to a call (DONE, FAILED or RETURNED). from: the peer that gives it;
 * NULL: this process. */
void call_finish(struct peer *from, wire *w, proto_kind kind);

/* Writes the call as a message. */
void calls_encode(buf *b, const call *c);

/* An item of a stream has come from a peer. */
void call_item_came(struct peer *from, uint64_t id, uint64_t index);

/* A peer is dead, and its answers were read: tells the daemon which calls have none (gifts.h). */
void calls_unheard(const struct peer *p);

/* Sends the call to p; false: there is no room in the ring. */
bool call_send(call *c, struct peer *p);

/* Takes a call out of its queue, or back from the peer that has not begun it; it is in no
 * list then. False: it has begun. */
bool call_take(call *c);

/* Takes a call out of its queue, if it is in one. */
void call_withdraw(call *c);

/* Fails a call that was sent, and has it cancelled where it is. Takes f. */
void call_give_up(call *c, failure *f);

/* Fails a call whose message has n bytes, which is too many. */
void call_too_long(call *c, size_t n);

/* Cancels the call; how: MANTA_CANCEL_. Returns false when it cannot be cancelled. */
bool call_cancel(call *c, unsigned how);

/* Cancels the calls that the call `parent`, which runs here, has made. */
void calls_cancel_of(uint64_t parent);

/* Fails a call that is in no list, and unties it from what it waits for. Takes f. */
void call_abandon(call *c, failure *f);

/* Gives back a call that is in no list; call_free() also counts it as done. */
void call_release(call *c);
void call_free(call *c);

/* Decides what becomes of the calls that p has, which is dead. */
void calls_peer_died(struct peer *p);

/* Fails all calls with rt->death. */
void calls_node_died(void);

/* Frees what is left at the end. */
void calls_release(void);

#endif
