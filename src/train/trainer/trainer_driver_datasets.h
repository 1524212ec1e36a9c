/* train/trainer/trainer_driver_datasets.h - the datasets that a program gives to its trainer, on
 * their way to the workers: descriptions, and columns in the store.
 *
 * Threads: the driver's. */
#ifndef TRAIN_TRAINER_TRAINER_DRIVER_DATASETS_H
#define TRAIN_TRAINER_TRAINER_DRIVER_DATASETS_H

#include <manta/value.h>

#include "train/trainer/trainer_shared.h"

typedef struct trainer_datasets {
    int n;
    trainer_dataset *all; /* as workers are told of them */
    manta_ref **columns; /* of each, those that lie in the store */
} trainer_datasets;

/* Checks what can be checked without reading, and takes note of it. */
manta_status datasets_init(trainer_datasets *g, int n, const manta_named_dataset *from) MANTA_MUST_USE;
void datasets_release(trainer_datasets *g); /* accepts zeroed memory */

/* Reads those that are given as datasets and puts their columns into the store. */
manta_status datasets_read(trainer_datasets *g, const manta_named_dataset *from) MANTA_MUST_USE;

#endif
