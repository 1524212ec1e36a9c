/* ring.h - messages from one process to another through shared memory.
 *
 * A channel is one piece of shared memory between two processes, side 0 and
 * side 1, with a ring for each direction:
 *
 *     page 0   tail 0 | head 0 | waits 0 | tail 1 | head 1 | waits 1     (64 bytes apart)
 *     ...      bytes of ring 0 (written by side 0)
 *     ...      bytes of ring 1 (written by side 1)
 *
 * tail counts the bytes ever written and is stored by the writer alone; head
 * counts the bytes ever read and is stored by the reader alone; waits is stored
 * by the writer alone and says that it wants to be woken when there is room. A
 * message is a length (4 bytes), 4 bytes unused, and its bytes, padded to 8. Each
 * ring is mapped twice, end to start, so that a message is always contiguous.
 *
 * A channel belongs to its pair and is thrown away when either dies: a message
 * that a dead writer had published (tail was stored) is whole, one that it had
 * not is not seen. Whoever reads copies a message to memory of its own before
 * it looks at it, and believes no number from the shared page without a check.
 *
 * A process that has found all its rings empty sleeps on its *bell*, an eventcount
 * (os/eventcount.h) in memory that it shares with all its peers; whoever has
 * published something for it notifies. The death of a peer rings the bell as well
 * (runtime_daemon.c), so there is only this one thing to wait for.
 *
 * Room in a full ring is waited for in the same way, with the roles exchanged:
 *
 *     writer: waits = 1; fence; look again; keep the message; sleep on its bell
 *     reader: head += ...; fence; if (waits) ring the writer's bell
 *
 * The reader pays for the fence once for every RING_SIZE / 2 bytes that it has
 * read, not for every message. That is enough: a writer that found no room saw
 * more than RING_SIZE - RING_MESSAGE bytes unread, so the reader comes past a
 * fence while it reads them, with a head that the writer had not seen. A writer
 * that is woken too early sees a later head, and the same holds for that one. */
#ifndef TASK_RING_H
#define TASK_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "os/crash.h"
#include "task/sizes.h"

/* Places in the code of rings where a process may die; tests make it die there
 * (os/crash.h), and what the others see must be whole. */
#define RING_CRASH_POINTS(X)                                                                                 \
    X(RING_CRASH_SEND_LENGTH, "task/send_length", "a message's length is written")                           \
    X(RING_CRASH_SEND_BYTES, "task/send_bytes", "a message is written, but not published")                   \
    X(RING_CRASH_SEND_PUBLISHED, "task/send_published", "a message is published, nobody is woken")           \
    X(RING_CRASH_RECV_COPIED, "task/recv_copied", "a message is copied, its room not given back")            \
    X(RING_CRASH_RECV_DONE, "task/recv_done", "a message is taken, but not dealt with")
CRASH_DECLARE(ring, RING_CRASH_POINTS)

typedef struct channel channel;

/* Bytes of shared memory that a channel takes. */
size_t channel_size(void);

/* Maps a channel as seen from `side` (0 or 1). fd stays the caller's.
 * *out: owned, give back with channel_free(). */
manta_status channel_open(int fd, int side, channel **out) MANTA_MUST_USE;
void channel_free(channel *c); /* accepts NULL */

/* Publishes a message of n bytes; false when there is no room for it now: the
 * reader then rings this side's bell when there may be. n <= RING_MESSAGE. */
bool channel_send(channel *c, const void *data, size_t n);

/* Whether the last channel_send() found no room and would find it now. */
bool channel_has_room(channel *c);

/* Nobody waits for room any more, because there is room, or because what was to be
 * sent goes elsewhere. */
void channel_end_wait(channel *c);

/* Whether there is a message to read. */
bool channel_ready(channel *c);

/* The next message is copied behind what `into` holds (nothing, usually).
 * MANTA_EBUSY there is none (no sentence); MANTA_ECORRUPT the other side wrote
 * what cannot be: the channel is of no more use. */
manta_status channel_recv(channel *c, buf *into) MANTA_MUST_USE;

/* Whether the other side waits for room and its bell is to be rung; to be asked
 * after every message that was received. */
bool channel_writer_waits(channel *c);

#endif
