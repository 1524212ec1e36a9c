/* events.h - what the writer and the reader of event files share. */
#ifndef FORMAT_TENSORBOARD_EVENTS_H
#define FORMAT_TENSORBOARD_EVENTS_H

#include <manta/events.h>

#include "base/buf.h"

#define EVENTS_VERSION "brain.Event:2"

/* Whether a file of that name in a run's folder is an event file. */
bool events_is_name(const char *name);

/* Reads the records in memory as manta_events_read() reads a file's; `name` is for sentences. */
manta_status events_read_bytes(const char *name, const uint8_t *data, size_t size, manta_events_log **out);

/* A number that stays where a restart purges all from its first step on. */
typedef struct events_kept {
    const char *tag;
    manta_events_point point;
} events_kept;

/* Opens the events of a run that begins again at options->first_step, as
 * manta_events_open() does, for tags that count something else than that step does: the
 * file has the n points `kept` again, with the times they had, and appears with all of
 * them at once. */
manta_status events_open_keeping(const char *folder, const manta_events_options *options, size_t n,
                                 const events_kept *kept, manta_events **out) MANTA_MUST_USE;

/* A PNG of rows of bytes with 1, 3 or 4 channels, added to b. */
manta_status events_png(int64_t height, int64_t width, int64_t channels, const uint8_t *pixels, buf *b);

/* A GraphDef of the model, added to b. */
void events_graph_def(const manta_model *m, buf *b);

#endif
