/* runs.h - finding a run by its name, and ending it, for other commands. */
#ifndef CLI_RUNS_H
#define CLI_RUNS_H

#include <manta/run.h>

#include "cli/options.h"

/* The option of all commands about runs. */
#define RUNS_STORAGE                                                                                         \
    {                                                                                                        \
        "storage", OPTION_TEXT, "DIR",                                                                       \
            "Where the runs lie, a folder or s3://BUCKET/PREFIX; $MANTA_STORAGE or ~/manta-runs when not "   \
            "given"                                                                                          \
    }

/* The run called `name` below storage (NULL: where runs lie), or in the folder
 * `name` when that is a path. MANTA_ENOENT, with a name that is near. */
manta_status runs_find(const char *storage, const char *name, manta_run_info *out);

/* Ends the run that the first argument names, after a checkpoint; reads
 * --storage and --timeout. Returns the exit status. */
int runs_stop(const options *o);

#endif
