/* comm/group.h - a group as its makers see it. */
#ifndef COMM_GROUP_H
#define COMM_GROUP_H

#include "comm/transport.h"

/* How long collectives under way may still take when a message of a rank that has left is lost. A test that slow
 * machines run, too, gives them more. */
extern int64_t group_late_ms;

/* The options with the defaults filled in. */
manta_status group_options(const manta_group_options *o, manta_group_options *out) MANTA_MUST_USE;

/* A group over a transport, which it takes over; on failure it closes t. */
manta_status group_new(const transport *tr, void *t, int rank, int size, const manta_group_options *o,
                       manta_group **out) MANTA_MUST_USE;

/* Refuses a size that no group has, and a rank that is not below it. MANTA_EINVAL */
manta_status group_check_size(int rank, int size) MANTA_MUST_USE;

#endif
