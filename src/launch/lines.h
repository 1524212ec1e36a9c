/* launch/lines.h - what ranks print, on its way to a descriptor of ours: whole lines, each with its rank before it.
 *
 *   rank 0's output ─▶ lines ─┐
 *   rank 1's output ─▶ lines ─┴─▶ sink ─▶ standard output
 *
 * Writing to a sink never waits for its reader: one that stands still stops the ranks, and neither signals nor
 * deadlines. A pipe or a terminal is opened once more for that, since O_NONBLOCK would be set for all who have it open. */
#ifndef LAUNCH_LINES_H
#define LAUNCH_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { LINES_FULL = 1 << 20 /* bytes that wait, at which no more is read */ };

typedef struct sink {
    int fd;
    bool own; /* fd is ours to close, and does not block */
    buf waiting;
    bool
        drops; /* there is an end to come: lines that find it full are dropped, so that nobody waits for its reader */
    bool lost; /* nobody reads any more, or the disk is full: the rest is dropped */
    int why; /* the errno of that */
} sink;

typedef struct lines {
    sink *to;
    char prefix[32];
    buf begun; /* of the last line */
} lines;

/* Begins to write to a descriptor, which the sink borrows. */
void sink_open(sink *s, int fd);
void sink_close(sink *s); /* what waits is dropped; accepts zeroed memory */

/* Writes some of what waits, for as long as that does not block. */
void sink_write(sink *s);
bool sink_is_full(const sink *s);

void lines_add(lines *l, const char *data, size_t n);
void lines_end(lines *l); /* a line without an end is given one; l is empty */

#endif
