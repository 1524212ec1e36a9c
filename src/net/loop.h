/* loop.h - waits for many descriptors at once and calls back. One thread.
 *
 * libuv was weighed: it hides descriptors and pidfds behind handles with a
 * two-phase close, has no seqpacket sockets with descriptors, and a loop that
 * forks must be told so. What the daemon needs of it is this file. */
#ifndef NET_LOOP_H
#define NET_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct loop loop;

/* The descriptor can be read (or its other end is gone), or written. */
typedef void loop_fn(void *ctx, int fd, bool readable, bool writable);

manta_status loop_new(loop **out) MANTA_MUST_USE;
void loop_free(loop *l); /* accepts NULL; closes none of the descriptors */

/* Calls fn whenever fd is readable, and with `write` also when it is writable.
 * A second call for the same fd replaces the first. */
manta_status loop_watch(loop *l, int fd, bool write, loop_fn *fn, void *ctx) MANTA_MUST_USE;
/* No call for fd after this returns. Before fd is closed. Accepts unknown ones. */
void loop_forget(loop *l, int fd);

/* Waits at most timeout_ms (-1: for ever) and makes the calls that are due. */
manta_status loop_run(loop *l, int timeout_ms) MANTA_MUST_USE;

#endif
