/* deaths.h - deaths of workers, as the logs of a run tell of them. */
#ifndef CLI_DEATHS_H
#define CLI_DEATHS_H

#include <manta/train.h>

/* The line of a rank's log about a worker that died and was made up for
 * (MANTA_EVENT_RECOVERED). Returns buf. */
const char *death_line(const manta_event *e, char *buf, size_t size);

/* When workers of the run in `folder` died, in seconds since 1970, by rank and then by time; from
 * the lines above, with the time that the log has before each. *out: owned, free(). */
int deaths_read(const char *folder, double **out);

#endif
