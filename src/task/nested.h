/* nested.h - calls that are run by the call that waits for them; nested.c has the picture.
 * Private to task/.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it,
 * and nested_run() gives it away while the function runs. */
#ifndef TASK_NESTED_H
#define TASK_NESTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "task/object.h"
#include "task/sched.h"

struct call;
struct incoming;

/* What a waiter knows of the calls it may run. */
typedef struct nested_terms {
    int64_t left_ns; /* until its time is over; INT64_MAX: never */
} nested_terms;

/* What the user says: MANTA_INLINE=0 in the environment, and each call has a process of its own. */
bool nested_is_wanted(void);

/* Remembers where the stack of this process's first thread begins. */
void nested_begin(void);

/* Says whether the call that this thread is in may run calls that it has made: then these
 * are not sent before it waits, or the watcher comes past. */
bool nested_lends(void);

/* What a call of these amounts may lend to those it makes: its cores in 1/10000, and 1;
 * 0: nothing, because it holds something else, which it needs while it waits. */
uint32_t nested_lendable(const sched_shape *amount);

/* The bits that stand for a function in the chain of calls above a call. */
uint64_t nested_bits(const char *name);

/* The functions of the calls above a call that runs, and its own. */
uint64_t nested_chain(struct incoming *in);

/* Finds the call that this thread should run for the object, which is pending: the one that
 * makes it, or one that makes an argument of it. NULL: none. */
struct call *nested_find(const object *o, nested_terms terms);

/* Runs a call that nested_find() found, unless its worker has begun it meanwhile; it may
 * have to be run again. */
void nested_run(struct call *c);

/* Runs a call of a process that has no other, as often as it is to be tried. */
void nested_run_local(struct call *c);

/* Puts a call of an actor that lives in this process, in no list but its queue, among those that
 * the actor is to run; its answer is read where it ends (nested_finish()). */
void nested_queue(struct call *c);

/* Reads the answer of such a call. pinned: how many objects were pinned when it began. */
void nested_finish(const buf *answer, size_t pinned);

/* Fails the call that makes the object, if it is one of the very actor that would wait for it here
 * and that runs one call at a time: it would wait for ever. */
void nested_refuse_self(const object *o);

/* Cancels a call that is run here by its waiter; how: MANTA_CANCEL_. Returns false when that
 * cannot be done. */
bool nested_cancel(struct call *c, unsigned how);

#endif
