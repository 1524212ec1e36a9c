/* exec_task.h - a call while it runs, as its function sees it. Private to task/.
 *
 * exec.c fills a manta_task in and runs it; results.c has what it returns, and writes the answer;
 * functions.c finds the function by its name; task_asks.c is what the function asks of it;
 * deferred.c ends what goes on after its function has returned.
 *
 * Threads: a manta_task belongs to the thread that runs the call, and when it was deferred to
 * whichever the program says; the runtime's lock guards the marks of that. */
#ifndef TASK_EXEC_TASK_H
#define TASK_EXEC_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/failure.h>
#include <manta/task.h>

#include "base/arena.h"
#include "task/incoming.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/value.h"

typedef struct result {
    value v;
    bool is_block; /* v.place is a block of ours */
    bool answered; /* in this process, where its answer points to it */
    failure *failure; /* instead of a value */
} result;

struct manta_task {
    char name[64], label[64], group[64];
    const char *groups; /* of the actor that it constructs; NULL: none */
    uint64_t id, actor;
    int attempt, n_args, n_results;
    value *args;
    object **awaited; /* among the arguments */
    int n_awaited;
    result *results;
    self_of *self;
    peer *caller; /* NULL: the daemon, or this process */
    incoming *call;
    bool is_stream;
    bool is_own; /* made by this process, which holds what it uses and reads the answer itself */
    bool is_lost; /* an argument cannot be read */
    bool is_part; /* of a chunk: its function does not run for the whole call */
    bool in_function; /* until it has returned, its thread ends the call */
    bool is_deferred; /* it ends with manta_task_finish() */
    bool is_finished; /* manta_task_finish() was called, with `outcome` */
    manta_status outcome;
    int64_t ns; /* that its function took */
    uint64_t yielded;
    uint32_t max_calls; /* of its function in this process; 0: any number */
    uint32_t window; /* items that it may be ahead of its caller; UINT32_MAX: any number */
    failure *failure; /* as manta_fail_with() set it; NULL: it did not */
    arena memory; /* of the arguments' table and the small results */
};

/* Makes the failure of a call whose function has returned st: that of manta_fail_with(), or this
 * thread's last error. */
failure *task_failure(manta_task *t, manta_failure_kind kind, manta_status st);

/* Ends a call whose function has returned, or that was finished, with st: writes the answer, gives
 * back what it held, and frees t. */
void task_end(manta_task *t, manta_status st, buf *answer);

/* Forgets a result: unpins what it refers to, and gives its block back unless that was passed on. */
void result_clear(result *r);
/* The small results travel in one message; those for which it has no room lie in segments, as
 * large ones do. */
manta_status results_fit(manta_task *t) MANTA_MUST_USE;
/* Tells the daemon what the caller will hold, and writes the answer of a call that has succeeded,
 * or failed. */
void results_answer(manta_task *t, buf *answer);
void results_answer_failed(const manta_task *t, const failure *f, buf *answer);

/* Whether the next item of a stream, a manta_task, may be sent: its caller is not too far behind, or
 * nobody takes it any more. */
bool yield_is_due(void *task);

/* Finds the concurrency group of a call of an actor, or makes those of an actor that is constructed. */
manta_status task_group(manta_task *t) MANTA_MUST_USE;

/* Calls the function that t->name names, without the lock: MANTA_ENOENT there is none. */
manta_status function_call(manta_task *t) MANTA_MUST_USE;

#endif
