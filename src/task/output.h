/* output.h - what workers print, shown by their driver.
 *
 * Each worker's standard output and error are pipes. One thread of the driver
 * reads them and writes every line once, in its order, behind the name of the
 * function (of the constructor, for an actor) and the process it came from:
 *
 *     (average pid=1234) text
 *
 * Nothing is dropped: when nobody takes the driver's output the thread waits,
 * the pipes fill, and the workers wait in their write(). A line without an end
 * is shown when its worker ends or has been silent for a moment, and what
 * follows continues it. */
#ifndef TASK_OUTPUT_H
#define TASK_OUTPUT_H

#include "base/status.h"

typedef struct output output;

/* Takes a worker in. fds: standard output, standard error, bell, trace; all
 * become ours, also on failure, after which the worker has no reader. *o is made
 * when it is NULL. */
manta_status output_add(output **o, int pid, const int fds[4]) MANTA_MUST_USE;

/* Shows what is there, which is all when the workers are dead, and ends the
 * thread. Accepts NULL. */
void output_end(output *o);

#endif
