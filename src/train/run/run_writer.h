/* train/run/run_writer.h - a run that is written, as run_folder.c, run_record.c and
 * run_recorder.c see it. */
#ifndef TRAIN_RUN_RUN_WRITER_H
#define TRAIN_RUN_RUN_WRITER_H

#include <manta/events.h>

#include "base/vec.h"
#include "train/run/run_folder.h"
#include "train/run/stage.h"
#include "train/storage/storage.h"

struct manta_run {
    char *name, *path;
    stage *stage; /* what is written through descriptors lies there; NULL: in the folder itself */
    rank_logs *logs; /* what its processes say */
    storage_held *lock;
    manta_checkpoints *checkpoints;
    manta_checkpoint *from; /* to go on from; NULL: the beginning */
    char *damage;
    storage_log *metrics;
    manta_events *events;
    double began_s; /* by the wall clock, once; the rest by one that never jumps */
    int64_t began_ns;
    double first_s, before_s; /* when it began for the first time; how long it was worked on before */
    int resumed;
    int64_t epoch, step; /* last reported by rank 0, since it was taken up or rewound; 0: not yet */
    VEC(int64_t) kept; /* by rank: the last report that was kept when it was taken up */
    bool named; /* its folder's name is on the disk, as far as we can do something about it */
    _Atomic bool late; /* what could not be done about the record at a checkpoint was said */
    manta_error failure; /* the first line or checkpoint that could not be written; code 0: none */
    bool has_outcome;
    run_outcome outcome; /* of a trainer's */
};

#endif
