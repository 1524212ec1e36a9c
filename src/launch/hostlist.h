/* launch/hostlist.h - names of hosts as Slurm writes them: "node[01-03,7],login,r[1-2]c[1-4]". Pure.
 *
 * Brackets hold numbers and ranges of them; a range keeps the width of its first number, so [08-10] is
 * 08, 09, 10. Several brackets in a name multiply, the last one fastest, as scontrol does it. */
#ifndef LAUNCH_HOSTLIST_H
#define LAUNCH_HOSTLIST_H

#include "base/status.h"

enum {
    HOSTLIST_MOST = 65536, /* names in a list */
    HOSTLIST_NAME = 255 /* bytes of a name */
};

/* The names in `text`, in its order, doubles too. *out: owned, hostlist_free(); not NULL even when there are
 * none. MANTA_EINVAL with the place in the text: a bracket that is not closed or empty, a range that falls,
 * a character that no host's name has, more than HOSTLIST_MOST names. */
manta_status hostlist_parse(const char *text, char ***out, int *n) MANTA_MUST_USE;
void hostlist_free(char **names, int n); /* accepts NULL */

#endif
