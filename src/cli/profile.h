/* profile.h - where the time of a step goes, as a table or as an event. */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include <manta/train.h>

/* Ends the session's profile and prints it. `step_ms` is what a whole step
 * took by the clock; what no node accounts for is shown as the rest. */
manta_status profile_print(manta_session *s, int64_t batch, int64_t steps, double step_ms, const char *trace,
                           bool json);

#endif
