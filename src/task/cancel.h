/* cancel.h - how a cancel spreads through calls that call others. Pure.
 *
 * A call is known in two places: to the process that made it, and to the one it
 * was sent to. Each knows only its own side, so a cancel goes down the tree one
 * process at a time: the maker ends what was not sent and tells the worker of
 * what was; a worker that is told does the same with the calls that the cancelled
 * one has made. Four rules make sure that nothing slips through:
 *  1. A cancel does not overtake its call: a worker looks at all that was sent
 *     to it before it heeds a cancel.
 *  2. A call that was told to end makes no more calls.
 *  3. A call that is cancelled is never tried again (retry.h).
 *  4. Its results are MANTA_ECANCELLED: the worker answers so when it was told before the
 *     function returned, and the maker drops a value that comes later (cancel_keeps()). A
 *     program may choose that functions which return all the same have their results. */
#ifndef TASK_CANCEL_H
#define TASK_CANCEL_H

#include <stdbool.h>

#include <manta/task.h>

typedef enum cancel_step {
    CANCEL_NOTHING, /* it has ended */
    CANCEL_ABANDON, /* it was not sent: it never will be */
    CANCEL_TELL, /* the daemon tells, or kills, its worker */
    CANCEL_REFUSE /* it cannot be done */
} cancel_step;

/* What the process does that made the call. */
cancel_step cancel_made(bool ended, bool sent, bool of_actor, unsigned how);

typedef struct cancel_heard {
    bool answer; /* it had not begun: it is answered as cancelled, and forgotten */
    bool mark; /* it runs: it can see that it is cancelled, and its waits end */
    bool close; /* it runs: it makes no more calls */
    bool spread; /* the calls it has made are cancelled */
} cancel_heard;

/* Says whether a call of that function which was cancelled and ends with a value keeps it. Those
 * of a queue do: what was put or taken is so. So do those that are no actor's in a program that chose it
 * (manta_set_cancel_keeps()). Of all others the results are MANTA_ECANCELLED, whatever the function returns,
 * and whether the cancel or the value was faster. */
bool cancel_keeps(const char *function, bool of_actor);

/* What the worker does that has the call, or had it. */
cancel_heard cancel_told(bool queued, bool running, unsigned how);

#endif
