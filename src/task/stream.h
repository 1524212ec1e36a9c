/* stream.h - results that come one by one; streams.c has the picture. Private to task/.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_STREAM_H
#define TASK_STREAM_H

#include <stdint.h>

#include "net/wire.h"

typedef struct stream stream; /* opaque, see streams.c */

struct peer;

/* Takes an item that a worker has sent (PROTO_ITEM); from NULL: this process. */
void stream_item(struct peer *from, wire *w);

/* Gives a stream the number of its call, under which its items come. */
void stream_open(stream *s, uint64_t id);

/* Frees what is left at the end. */
void streams_release(void);

#endif
