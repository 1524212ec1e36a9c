/* failure.h - what went wrong, as one block on stderr.
 *
 *     manta: worker 1 failed
 *       what   process 4711, killed by signal 9 (Killed)
 *       where  epoch 2, step 17
 *       now    process 4720 is in its place and the step was done again, 3.2 ms late; the result is the same
 *       log    manta logs mine --rank 1
 *
 * A terminal and a pipe get the same text, but for colour (manta/log.h). */
#ifndef CLI_FAILURE_H
#define CLI_FAILURE_H

#include <manta/train.h>

#include "cli/record.h"

enum { FAILURE_RANKS = 256 };

typedef struct failures {
    const record *record; /* NULL: there is no run */
    bool loose; /* workers do not do every step together: what is lost is lost for good, or done later */
    int64_t pid[FAILURE_RANKS]; /* process of the worker that a rank has now; 0: not known */
} failures;

/* Looks at an event: remembers who has started, and tells of a worker that
 * failed. Returns whether it told something. */
bool failures_see(failures *f, const manta_event *e);

/* The library's last sentence, and how the run that it ends can go on. */
void failures_end(const failures *f);

#endif
