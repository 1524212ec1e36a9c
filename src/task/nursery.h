/* nursery.h - programs whose forks the workers are (manta/nursery.h), as a node's configuration has
 * them. Private to task/.
 *
 *     daemon or supervisor                      nursery
 *     exec, MANTA_NURSERY=fd,pidfd ──────────▶  ... whatever it does first ...
 *     PROTO_NURSERY: version, settings ──────▶  manta_nursery_run()
 *                        ◀──────────── PROTO_NURSERY: version      it is ready
 *     PROTO_FORK ────────────────────────────▶  from here on as a zygote (zygote.c)
 *
 * A command is kept and sent as one block: its arguments one after the other, each with its end. */
#ifndef TASK_NURSERY_H
#define TASK_NURSERY_H

#include <stddef.h>
#include <sys/resource.h>

#include "base/buf.h"
#include "base/status.h"
#include "os/spawner.h"
#include "task/node.h"

#define NURSERY_NAME    128 /* bytes of a command in sentences, with their end */
#define NURSERY_COMMAND (32 << 10) /* most bytes of one */

/* Adds the command to *out. MANTA_EINVAL it has no program, or is too long. */
manta_status nursery_pack(const char *const *argv, buf *out) MANTA_MUST_USE;

/* The command of the configuration as a sentence has it; "" when the workers are forks of the program. */
void nursery_name(const node_config *c, char name[NURSERY_NAME]);

/* Starts the nursery of the configuration below this process: as of node_start_zygote(). */
manta_status nursery_start(int parent_pidfd, const node_config *c, const struct rlimit *files, int *fd,
                           spawn_child *out) MANTA_MUST_USE;

#endif
