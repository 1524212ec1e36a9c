/* train/group/group_roster.h - who holds which place: the controller's half of the step.
 *
 *   EMPTY ──▶ STARTING ──ready──▶ READY ───────────────▶ ACTIVE
 *     ▲           │                 │ └──▶ STAGED ──▶      │
 *     │           │                 │                      ▼
 *     └───────────┴── death, end ───┴─────────────────── LEAVING
 *
 * Each rank is a place that one worker at a time holds: the process, or its
 * successor. The place is taken at once when its work is in nobody's hands, or when no step
 * is open. Otherwise living workers are busy with it, and it changes hands
 * with the next commit: the table waits under a generation's number (STAGED),
 * and the commit begins that generation. A worker that is no longer wanted
 * gives its place up in the same way, and may end then (LEAVING).
 *
 * The work of a dead worker is kept for its successor while the living are busy
 * with their own: a successor is up in milliseconds, and two do in one step's
 * time what one alone does in two. Whoever has nothing left to do first asks
 * for it (shared_worker's `idle`), and then it is dealt out.
 *
 * Like worker_step.h, nothing here waits or asks the system for anything. */
#ifndef TRAIN_GROUP_GROUP_ROSTER_H
#define TRAIN_GROUP_GROUP_ROSTER_H

#include "train/group/group_table.h"
#include "train/session/shared.h"

typedef enum roster_state {
    ROSTER_EMPTY,
    ROSTER_STARTING,
    ROSTER_READY,
    ROSTER_STAGED,
    ROSTER_ACTIVE,
    ROSTER_LEAVING
} roster_state;

typedef struct roster {
    control *c;
    int n;
    roster_state state[SHARED_WORKERS];
    int64_t active_since[SHARED_WORKERS]; /* ticket */
    bool unwanted[SHARED_WORKERS]; /* the place is to be, or to stay, empty */
    table tables[SHARED_TABLES]; /* as put into the control block */
    uint32_t generations; /* the highest number given to a table */
    uint32_t staged; /* of them, waiting for a commit; 0: none */
    uint32_t base;
    bool keeps; /* what lies with the dead stays there until it is dealt out */
    int64_t end; /* of the job: no step is open from this ticket on */
} roster;

/* A fresh control block with nobody active. */
void roster_init(roster *r, control *c);

/* Looks whether a commit has begun the staged generation. */
void roster_see(roster *r);

/* The worker of this rank is dead, and none of its stores is still to come.
 * `keep`: its work waits for its successor; else it goes to the living, with all
 * that was kept before. Returns whether it had its place. */
bool roster_remove(roster *r, int rank, bool keep);

/* Whether a living worker has nothing to do while work is kept. */
bool roster_is_asked(const roster *r);

/* What is kept, if anything, goes to the living. */
void roster_deal(roster *r);

/* Gives places to those who are ready for them, and everybody their own work
 * back, as soon as that may be. */
void roster_settle(roster *r);

/* The committed side has been changed: whatever was computed from it is void. */
void roster_touch(roster *r);

#endif
