/* runs.h - ending a run, for 'manta stop NAME'. */
#ifndef CLI_RUNS_H
#define CLI_RUNS_H

#include "cli/options.h"

/* Ends the run that the first argument names, after a checkpoint; reads
 * --storage and --timeout. Returns the exit status. */
int runs_stop(const options *o);

#endif
