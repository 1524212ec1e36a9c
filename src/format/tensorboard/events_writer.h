/* events_writer.h - an event file that is written, as events.c and events_values.c
 * see it: one record is made at a time, in memory, and then written whole. */
#ifndef FORMAT_TENSORBOARD_EVENTS_WRITER_H
#define FORMAT_TENSORBOARD_EVENTS_WRITER_H

#include <sys/types.h>

#include "format/tensorboard/events.h"

struct manta_events {
    char *path;
    int fd;
    off_t size;
    bool broken;
    buf record; /* used again by every call */
    size_t mark; /* of the record being made */
    size_t summary; /* of its Summary */
};

/* Begins the record of an event that happens now; events_end() writes it. What is put into e->record between the two
 * is the event's. */
void events_begin(manta_events *e, int64_t step);
manta_status events_end(manta_events *e) MANTA_MUST_USE;

/* Begins the record of an event that is a Summary and happens now; events_end_summary() writes it. What is put into
 * e->record between the two are the values of the Summary. */
void events_begin_summary(manta_events *e, int64_t step);
manta_status events_end_summary(manta_events *e) MANTA_MUST_USE;

#endif
