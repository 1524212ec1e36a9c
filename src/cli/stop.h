/* stop.h - Ctrl-C, and a reader who leaves. The first signal asks for an end after the current step,
 * a second one ends the process at once. SIGTERM after SIGTERM is the same request once more: who takes a machine
 * back asks each process, and launchers pass it on. */
#ifndef CLI_STOP_H
#define CLI_STOP_H

#include <stdbool.h>

/* From now on SIGINT and SIGTERM set a flag instead of killing. */
void stop_install(void);

/* Whether one has come. */
bool stop_requested(void);

/* Asks for the same end because nobody reads what is printed any more. A signal that
 * comes later is still the first one, and is then what ended it. */
void stop_unread(void);

/* Whether that, and no signal, has asked for the end. */
bool stop_is_unread(void);

/* Whether it was SIGTERM that asked, as who takes a machine back does. */
bool stop_is_term(void);

#endif
