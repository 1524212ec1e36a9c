/* train/trainer/trainer_scaling.h - how many workers a trainer has, and where they sit.
 *
 * Workers that ask the node for something (processors, resources) get it as one
 * placement group, a bundle each: all of them or none, so that two trainers
 * never hold half each and wait for the other. The group is kept from attempt to
 * attempt. Workers that ask for nothing need no place.
 *
 * With a range, an attempt begins with as many as fit at that moment, and a
 * worker that cannot be replaced is given up. When there is room for more later, a
 * further group is taken for those: what is there already is never let go for it. */
#ifndef TRAIN_TRAINER_TRAINER_SCALING_H
#define TRAIN_TRAINER_TRAINER_SCALING_H

#include <stdbool.h>

#include <manta/trainer.h>

enum { SCALING_MORE = 16 }; /* how often it can grow; then what it has will do */

typedef struct trainer_scaling {
    int least, most; /* workers asked for */
    int limit; /* most, less those given up */
    int n; /* that have a place; 0: none yet */
    manta_bundle need; /* of one worker */
    bool asks; /* for anything at all */
    manta_placement how;
    manta_placement_group group; /* id 0: none */
    int n_more;
    struct {
        manta_placement_group group;
        int first; /* rank that sits in its first bundle */
    } more[SCALING_MORE];
    bool died; /* the attempt before ended with a process that died */
} trainer_scaling;

/* How an attempt ended, for scaling_lost(). */
typedef struct trainer_loss {
    bool began; /* the worker's loop was running */
    bool died; /* its process is gone; else its loop returned an error */
    bool progressed; /* the attempt left a checkpoint */
} trainer_loss;

/* Checks what is asked for. MANTA_EINVAL, MANTA_EUNSUPPORTED */
manta_status scaling_init(trainer_scaling *p, const manta_scaling_config *c) MANTA_MUST_USE;

/* Takes places for the next attempt: p->n of them. False: there are not enough
 * yet; try again. MANTA_EUNSUPPORTED the node can never hold as few as p->least. */
manta_status scaling_take(trainer_scaling *p, bool *taken) MANTA_MUST_USE;

/* Takes places for more workers, as far as there is room now: *grown, p->n is how many
 * there are then. */
manta_status scaling_grow(trainer_scaling *p, bool *grown) MANTA_MUST_USE;

/* Where the worker of this rank sits; *bundle from 1. group.id 0: anywhere. */
manta_placement_group scaling_of(const trainer_scaling *p, int rank, int *bundle);

/* Draws the conclusion from a lost worker: true when it is not replaced, and
 * the next attempt has one worker less. A worker is given up when its process
 * never got to the loop, or when processes died in two attempts in a row without
 * a checkpoint in between: a third would die of the same. */
bool scaling_lost(trainer_scaling *p, trainer_loss l);

/* Gives the places back. */
void scaling_release(trainer_scaling *p);

#endif
