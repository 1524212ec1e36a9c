/* sizes.h - the sizes at which task/ changes its ways, in one place. Each is tested one below, at, one
 * above and ten times (tests/unit/task/sizes_test.c, tests/runtime/sizes.c). */
#ifndef TASK_SIZES_H
#define TASK_SIZES_H

#include <stddef.h>

/* ring.h: bytes of a ring, and of the longest message in it. */
#define RING_SIZE    ((size_t)128 * 1024)
#define RING_MESSAGE ((size_t)32 * 1024)
/* value.h: more bytes than this lie in a segment. */
#define VALUE_INLINE 8192
/* submit.c: bytes of the arguments of one call inside its message; the rest lies in segments. */
#define SUBMIT_INLINE 16000
/* submit.c: arguments that need no memory while they are looked at. */
#define SUBMIT_FEW 16
/* objects.c: bytes whose copying takes longer than giving the lock away. */
#define FILL_ALONE ((size_t)64 << 10)
/* objects.c: bytes of a message about many new objects, before the last of them. */
#define ADDS_MOST 8192
/* runtime.c: objects that one message counts up or down. */
#define IDS_MOST 8000
/* exec.c: items that a stream may be ahead of its reader, unless told otherwise. */
#define STREAM_WINDOW 8
/* lease.h: calls sent ahead to one worker, and leases asked for at once. */
#define LEASE_MOST_SENT   256
#define LEASE_MOST_WANTED 64
/* map.c: inputs of one call. */
#define MAP_CHUNK_MOST 256
/* queue.c: items of one message. */
#define QUEUE_ITEMS_MOST 15000
/* sched_line.h: how many may pass one that waits, and how many workers may be on their way at once: calls
 * that ask for no core have no other bound. */
#define LINE_PATIENCE      32
#define LINE_MOST_STARTING 256
/* gifts.h: gifts of a worker that are kept, at least. */
#define GIFTS_KEPT 4096

#endif
