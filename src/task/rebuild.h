/* rebuild.h - objects whose bytes are gone, made again; rebuild.c has the picture.
 * Private to task/.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_REBUILD_H
#define TASK_REBUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "task/call.h"
#include "task/object.h"

/* How many bytes of calls a process keeps; 0: none. Set before the node's processes are
 * forked. */
extern size_t rebuild_limit;

/* A call has ended well. Returns false when it is not kept, and is to be freed. */
bool rebuild_keep(call *c);

/* A call fails: it is kept no more, and its caller frees it. */
void rebuild_failed(const call *c);

/* The entry of an object goes. */
void rebuild_dropped(uint64_t id);

/* The daemon asks for an object of ours that is lost, for this reason: its call runs
 * again, or the daemon is told why it cannot. */
void rebuild_object(uint64_t id, const char *reason);

/* Reading the object failed with st. Returns whether it is to be awaited once more. */
bool rebuild_missed(object *o, manta_status st);

/* A worker could not read the arguments of the call: those that are gone are asked for
 * again. May give the lock away for a while. */
void rebuild_arguments(call *c);

/* Frees what is left at the end. */
void rebuild_release(void);

#endif
