/* launch/lines.h - what ranks print, on its way to a descriptor of ours: whole lines, each with its rank before it.
 *
 *   rank 0's output ─▶ lines ─┐
 *   rank 1's output ─▶ lines ─┴─▶ sink ─▶ standard output
 *
 * A sink is written to when poll() says so, and not more than a pipe then takes: a reader that stands still stops the
 * ranks, and neither signals nor deadlines. */
#ifndef LAUNCH_LINES_H
#define LAUNCH_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { LINES_FULL = 1 << 20 /* bytes that wait, at which no more is read */ };

typedef struct sink {
    int fd;
    buf waiting;
    bool lost; /* nobody reads any more, or the disk is full: the rest is dropped */
} sink;

typedef struct lines {
    sink *to;
    char prefix[32];
    buf begun; /* of the last line */
} lines;

/* Writes some of what waits, for as long as that does not block. */
void sink_write(sink *s);

void lines_add(lines *l, const char *data, size_t n);
void lines_end(lines *l); /* a line without an end is given one; l is empty */

#endif
