/* train/trainer/trainer_given.h - the datasets that a program gives to its trainer, on
 * their way to the workers: descriptions, and columns in the store.
 *
 * Threads: the driver's. */
#ifndef TRAIN_TRAINER_TRAINER_GIVEN_H
#define TRAIN_TRAINER_TRAINER_GIVEN_H

#include <manta/task.h>

#include "train/trainer/trainer_shared.h"

typedef struct trainer_given {
    int n;
    trainer_dataset *all; /* as workers are told of them */
    manta_ref **columns; /* of each, those that lie in the store */
} trainer_given;

/* Checks what can be checked without reading, and takes note of it. */
manta_status given_init(trainer_given *g, int n, const manta_named_dataset *from) MANTA_MUST_USE;
void given_release(trainer_given *g); /* accepts zeroed memory */

/* Reads those that are given as datasets and puts their columns into the store. */
manta_status given_read(trainer_given *g, const manta_named_dataset *from) MANTA_MUST_USE;

#endif
