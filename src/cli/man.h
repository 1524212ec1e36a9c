/* man.h - manual pages, written from the tables that --help reads. */
#ifndef CLI_MAN_H
#define CLI_MAN_H

#include <stdbool.h>

/* Prints the page of `name`: "manta", "train", or a family such as "bench".
 * False when there is none. */
bool man_print(const char *name);

#endif
