/* manta/placement.h - resources that are reserved together.
 *
 * Threads: any thread of the program. */
#ifndef MANTA_PLACEMENT_H
#define MANTA_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_placement_group {
    uint64_t id; /* 0: no placement group */
} manta_placement_group;

/* Bundles of resources that are reserved together, before anyone uses them, for
 * the tasks and actors whose options name the group. On one host PACK, SPREAD
 * and STRICT_PACK come to the same, and STRICT_SPREAD can hold one bundle. */
typedef enum manta_placement {
    MANTA_PLACEMENT_PACK = 0, /* on few nodes, if possible on one */
    MANTA_PLACEMENT_SPREAD, /* on many nodes, if possible */
    MANTA_PLACEMENT_STRICT_PACK, /* on one node */
    MANTA_PLACEMENT_STRICT_SPREAD /* each bundle on a node of its own */
} manta_placement;

#define MANTA_PLACEMENT_GROUP_BUNDLES 64 /* most of one group */

typedef struct manta_bundle {
    double num_cpus, num_gpus;
    uint64_t memory;
    const char *resources;
} manta_bundle;

typedef struct manta_placement_group_info {
    char name[64];
    manta_placement how;
    char how_name[16]; /* "STRICT_PACK" */
    bool removed;
    int n_bundles;
    char bundles[MANTA_PLACEMENT_GROUP_BUNDLES][96]; /* "cpu=1,disk=2" */
} manta_placement_group_info;

/* Asks for a group; it has its place when enough is free. It lasts until it is
 * removed, or the process that made it ends. `name` may be NULL.
 * MANTA_EUNSUPPORTED it can never be placed, with what is missing; MANTA_EINVAL
 * an empty bundle; MANTA_EEXIST the name is taken. */
MANTA_API manta_status manta_placement_group_new(const manta_bundle *bundles, int n, manta_placement how,
                                                 const char *name, manta_placement_group *out) MANTA_MUST_USE;
/* A reference that is ready when the group has its place; release it. */
MANTA_API manta_ref manta_placement_group_ready(manta_placement_group group);
MANTA_API manta_status manta_placement_group_wait(manta_placement_group group,
                                                  int64_t timeout_ms) MANTA_MUST_USE;
/* Gives the bundles back. Processes that run in them are killed, and their
 * calls, like those that wait, fail with MANTA_FAILURE_PLACEMENT_GROUP. Accepts no group. */
MANTA_API void manta_placement_group_remove(manta_placement_group group);
/* The group of that name. MANTA_ENOENT there is none. */
MANTA_API manta_status manta_placement_group_find(const char *name,
                                                  manta_placement_group *out) MANTA_MUST_USE;
MANTA_API manta_status manta_placement_group_get(manta_placement_group group,
                                                 manta_placement_group_info *out) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
