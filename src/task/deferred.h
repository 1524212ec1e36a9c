/* deferred.h - calls that go on after their function has returned; deferred.c has the picture.
 * Private to task/. */
#ifndef TASK_DEFERRED_H
#define TASK_DEFERRED_H

#include <stdbool.h>

#include <manta/task.h>

/* The function of a call that was deferred has returned, with the lock held. True: it is finished, and
 * its thread is to end it; false: whoever finishes it will. */
bool deferred_returns(manta_task *t);

#endif
