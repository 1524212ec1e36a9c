/* needs.h - amounts of resources: what calls ask for, and amounts in the words of the
 * public interface. Private to task/.
 *
 * Threads: the names of the resources are those of rt, which do not change; shape_of()
 * is called with the runtime's lock, which it may give away. */
#ifndef TASK_NEEDS_H
#define TASK_NEEDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/context.h>
#include <manta/failure.h>
#include <manta/task.h>

#include "base/status.h"
#include "task/sched.h"

/* Finds what the options of a call or of an actor ask for, and checks it against what
 * there is. On failure *kind says what the call fails with. */
manta_status shape_of(const manta_task_options *o, bool actor, sched_shape *out,
                      manta_failure_kind *kind) MANTA_MUST_USE;

/* Turns amounts as a program gives them ("name=amount,...") into a shape. */
manta_status needs_amounts(double cpus, double gpus, uint64_t memory, const char *resources,
                           sched_shape *out) MANTA_MUST_USE;

/* Fails with MANTA_EUNSUPPORTED when `total`, of which `whose` speaks, could never hold
 * what is asked for. */
manta_status needs_feasible(const sched_shape *total, const char *whose,
                            const sched_shape *asked) MANTA_MUST_USE;

/* Writes down what the node has in all and what is left of it. */
void info_amounts(const sched_shape *total, const sched_shape *left, manta_node_info *out);

/* Writes the amounts as "cpu=1,disk=2". */
void amounts_text(const sched_shape *s, char *text, size_t size);

#endif
