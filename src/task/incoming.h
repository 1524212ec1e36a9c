/* incoming.h - calls that came in, and running them. Private to task/.
 *
 * A call that came in waits in rt->calls, is in rt->running while its function runs, and
 * is freed when its answer was sent. The actors that live in this process have their
 * state (self_of) in rt->selves, by the actor's number.
 *
 * Threads: the runtime's lock guards everything but the two atomic marks of a call, which
 * its function reads without; all functions here are called with the lock, and exec_run()
 * gives it away while the function runs. */
#ifndef TASK_INCOMING_H
#define TASK_INCOMING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/context.h>
#include <manta/task.h>

#include "base/buf.h"
#include "base/list.h"
#include "task/failure.h"

struct peer;

typedef struct incoming {
    list link;
    struct peer *from; /* NULL: the daemon (a constructor), or this process */
    uint64_t task, actor;
    uint64_t chain; /* the functions of the calls above it; nested_chain() adds its own */
    uint32_t claim; /* to be made before it is begun (claim.h); 0: none */
    uint32_t lends; /* to calls that it makes, cores in 1/10000, and 1; 0: nothing */
    int depth; /* calls beneath it on the stack */
    bool is_own; /* this process made it */
    bool is_chained; /* its own function is in its chain */
    const char *name; /* while it runs: of its function */
    int64_t begun_ns;
    int concurrency; /* of the actor that this call constructs */
    int group; /* of its actor's concurrency groups, counted from 1; 0: it was not looked for yet */
    _Atomic bool cancelled;
    _Atomic bool ends; /* cancelled, and so are the calls it makes */
    bool is_calm; /* its waits go on though it is cancelled */
    bool leaves; /* it fails as its actor has ended itself (self_of.left) */
    bool is_last; /* this call has ended its actor: answered when the process has nothing more to do */
    uint64_t taken; /* items that the caller has of a stream */
    uint64_t yielded, promised; /* items sent, and items that were given room and not sent yet (yields.c) */
    failure_told *told; /* NULL: of no failure */
    size_t n;
    _Alignas(16) char bytes[]; /* the message */
} incoming;

typedef struct self_of {
    void *self;
    void (*end)(void *self);
    int running; /* calls */
    bool ended; /* goes with the last of them */
    failure *failure; /* of its constructor; NULL: it did not fail */
    struct concurrency *groups; /* NULL: it has no concurrency groups */
    failure *left; /* of calls since manta_exit_actor(); NULL: it was not called */
} self_of;

/* The call that this thread is in; NULL: none. */
extern _Thread_local incoming *rt_current;

/* Takes a message apart far enough to queue the call; NULL: it cannot be read. */
incoming *incoming_of(struct peer *from, const void *bytes, size_t n);

/* Frees a call, and takes it out of its list. */
void incoming_free(incoming *c);

/* Says whether the concurrency group of a call of an actor of this process lets another call in. */
bool incoming_has_room(incoming *c);

/* Claims a call that is to be begun or given back; false: its caller has taken it back, and
 * it is to be dropped. */
bool incoming_claim(incoming *c);

/* Runs the call in c->bytes and leaves the answer (DONE or FAILED) in *answer. False: the call was
 * deferred, stays in rt->running, and is answered and freed where it is finished (deferred.c). */
bool exec_run(incoming *c, buf *answer);

/* Sends the answer of a call to who made it. */
void incoming_answer(const incoming *c, const buf *answer);

/* Shows again that `c` runs, and prints, when a call above it on the stack has ended. */
void exec_resume(const incoming *c);

/* Says that the call which runs here waits, or goes on. */
void exec_block(bool on);

/* Whether nothing happens here unless another process does something: no call can begin, and all that run
 * wait without a time limit. */
bool worker_is_still(void);

/* Ends one actor of this process, after its last call; and all of them, now. */
void exec_end_self(uint64_t actor);
void exec_end_selves(void);

/* Says whether whoever made the call still lives. */
bool exec_caller_lives(const manta_task *t);

/* Writes down what the call knows of itself. */
void exec_context(const manta_task *t, manta_context *out);

#endif
