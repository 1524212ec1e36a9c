/* train/group/group_assignment.h - decisions of the controller, without any doing.
 *
 * Who computes what when workers come and go, and whether deaths in a row
 * still look like bad luck. Pure functions; tests/unit/train/group_assignment_test.c
 * and the interleaving test run them as they are. */
#ifndef TRAIN_GROUP_GROUP_ASSIGNMENT_H
#define TRAIN_GROUP_GROUP_ASSIGNMENT_H

#include "train/session/shared.h"

/* Everything to its home: shards in even runs, range i to rank i; what belongs
 * to empty places is dealt out to the others in turn. Only for the beginning of
 * a step, because it takes work from the living. */
void assignment_home(assignment *t, int workers, int shards);

/* Deals out what is held by empty places, and moves nothing else: for the
 * middle of a step. With nobody active all stays as it is. */
void assignment_fill(assignment *t, int workers, int shards);

/* Gives what is held by empty places back to those at home who are active, and
 * moves nothing else: the rest waits for whoever comes. */
void assignment_return(assignment *t, int workers, int shards);

/* Whether some shard or range has a holder that is not active. */
bool assignment_is_vacant(const assignment *t, int workers, int shards);

bool assignment_equal(const assignment *a, const assignment *b, int workers, int shards);

/* ---- deaths ---- */

/* How often a shard of a step has killed whoever computed it. A crash is the
 * worker's own doing (a fault, an abort, an exit, a hang); SIGKILL and SIGSTOP
 * may have come from anywhere. */
typedef struct blame {
    int64_t number; /* of the step */
    int crashes, kills;
} blame;

enum {
    BLAME_CRASHES = 2, /* two in turn: it is the samples */
    BLAME_KILLS = 5, /* the kernel's out-of-memory killer looks like anybody's kill -9 */
};

/* Counts a death; true when it is one too many. */
bool blame_add(blame *b, int64_t number, bool crash);

#endif
