/* resume.h - the options of a run that is taken up.
 *
 * A run keeps the options it was begun with (config.json). Taken up, it has them
 * again, and what is typed now may only change what does not change the result:
 * for how long, by how many processes, what is kept and shown. */
#ifndef CLI_RESUME_H
#define CLI_RESUME_H

#include <manta/status.h>

#include "cli/options.h"

/* What --resume means with these options: *out is NULL when there is nothing to
 * take up and they stand for themselves; else those of the run, with what was
 * given in their place where it may change. *out: owned, options_free().
 * MANTA_ENOENT no run is called so; MANTA_EINVAL an option would change the
 * result, or the run's folder holds what no run wrote. */
manta_status resume_options(const options *given, options **out);

#endif
