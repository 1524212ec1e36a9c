/* train/group/group_membership.h - who holds which place: the controller's half of the step.
 *
 *   EMPTY ──▶ STARTING ──ready──▶ READY ───────────────▶ ACTIVE
 *     ▲           │                 │ └──▶ STAGED ──▶      │
 *     │           │                 │                      ▼
 *     └───────────┴── death, end ───┴─────────────────── LEAVING
 *
 * Each rank is a place that one worker at a time holds: the process, or its
 * successor. The place is taken at once when its work is in nobody's hands, or when no step
 * is open. Otherwise living workers are busy with it, and it changes hands
 * with the next commit: the assignment waits under a generation's number (STAGED),
 * and the commit begins that generation. A worker that is no longer wanted
 * gives its place up in the same way, and may end then (LEAVING).
 *
 * The work of a dead worker is kept for its successor while the living are busy
 * with their own: a successor is up in milliseconds, and two do in one step's
 * time what one alone does in two. Whoever has nothing left to do first asks
 * for it (shared_worker's `idle`), and then it is dealt out.
 *
 * Like worker_step.h, nothing here waits or asks the system for anything. */
#ifndef TRAIN_GROUP_GROUP_MEMBERSHIP_H
#define TRAIN_GROUP_GROUP_MEMBERSHIP_H

#include "train/group/group_assignment.h"
#include "train/session/shared.h"

typedef enum membership_state {
    MEMBERSHIP_EMPTY,
    MEMBERSHIP_STARTING,
    MEMBERSHIP_READY,
    MEMBERSHIP_STAGED,
    MEMBERSHIP_ACTIVE,
    MEMBERSHIP_LEAVING
} membership_state;

typedef struct membership {
    control *c;
    int n;
    membership_state state[SHARED_WORKERS];
    int64_t active_since[SHARED_WORKERS]; /* a step number */
    bool unwanted[SHARED_WORKERS]; /* the place is to be, or to stay, empty */
    assignment assignments[SHARED_ASSIGNMENTS]; /* as put into the control block */
    uint32_t generations; /* the highest number given to an assignment */
    uint32_t staged; /* of them, waiting for a commit; 0: none */
    uint32_t base;
    bool keeps; /* what lies with the dead stays there until it is dealt out */
    int64_t end; /* of the job: no step is open from this step number on */
} membership;

/* A fresh control block with nobody active. */
void membership_init(membership *r, control *c);

/* Looks whether a commit has begun the staged generation. */
void membership_see(membership *r);

/* The worker of this rank is dead, and none of its stores is still to come.
 * `keep`: its work waits for its successor; else it goes to the living, with all
 * that was kept before. Returns whether it had its place. */
bool membership_remove(membership *r, int rank, bool keep);

/* Whether a living worker has nothing to do while work is kept. */
bool membership_is_asked(const membership *r);

/* What is kept, if anything, goes to the living. */
void membership_deal(membership *r);

/* Gives places to those who are ready for them, and everybody their own work
 * back, as soon as that may be. */
void membership_settle(membership *r);

/* The committed buffer has been changed: whatever was computed from it is void. */
void membership_touch(membership *r);

#endif
