/* stop.h - Ctrl-C. The first signal asks for an end after the current step,
 * a second one ends the process at once. */
#ifndef CLI_STOP_H
#define CLI_STOP_H

#include <stdbool.h>

/* From now on SIGINT and SIGTERM set a flag instead of killing. */
void stop_install(void);

/* Whether one has come. */
bool stop_requested(void);

/* Asks for the same end from inside the program. */
void stop_request(void);

/* Whether it was SIGTERM that asked, as who takes a machine back does. */
bool stop_is_term(void);

#endif
