/* group_link.h - placement groups as a process that uses them sees them. Private to
 * task/.
 *
 * A link is made when this process makes or first uses a group, and keeps the sizes of
 * its bundles. When the daemon says that the group was removed the link stays and is
 * gone: calls that name it fail with the reason.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_GROUP_LINK_H
#define TASK_GROUP_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/failure.h>
#include <manta/placement.h>

#include "base/status.h"
#include "task/failure.h"
#include "task/sched.h"

typedef struct group_link group_link; /* opaque, see groups.c */

/* Puts group and bundle into the shape. May ask the daemon, and give the lock away for
 * that. On failure *kind says what the call fails with. */
manta_status group_shape(manta_placement_group group, int bundle, sched_shape *to,
                         manta_failure_kind *kind) MANTA_MUST_USE;

/* Says whether the group is gone. */
bool group_is_gone(uint64_t id);

/* Makes the failure of what wants a group that is gone. */
failure *group_failure(void);

/* The daemon says that the group was removed: what waits for it fails. */
void group_gone(uint64_t id);

/* Frees what is left at the end. */
void groups_release(void);

#endif
