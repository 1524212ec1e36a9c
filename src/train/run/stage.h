/* train/run/stage.h - a local folder that stands for a run's folder in a storage.
 *
 * What processes print, TensorBoard's events and the parts of checkpoints are
 * written through descriptors, which only files have. Of a run in another
 * storage than the file system they lie in a stage, a folder of this host's
 * cache, and are handed over: events and logs with every checkpoint and at the
 * end of the run, parts as the files of checkpoints that they become. What a
 * driver that is killed has not handed over is lost with it: log lines and
 * events behind the last checkpoint, from which the run goes on in any case.
 *
 *   ~/.cache/manta/stage/PID.N/    lock, events.out.*, log/, .parts.*
 *
 * The lock is held as long as the stage is used; a stage whose process is gone
 * is removed by the next one that is opened. */
#ifndef TRAIN_RUN_STAGE_H
#define TRAIN_RUN_STAGE_H

#include "base/status.h"

typedef struct stage stage; /* opaque, see stage.c */

/* Makes a stage of the run, with the logs that the storage has of it.
 * *out: owned, stage_close(). */
manta_status stage_open(const char *run, stage **out) MANTA_MUST_USE;
void stage_close(stage *s); /* removes it; accepts NULL */

const char *stage_folder(const stage *s);

/* Brings what has changed to the storage. Any thread may call it. */
manta_status stage_hand_over(stage *s) MANTA_MUST_USE;

/* NAME in this host's cache for what lies in storages; NULL: there is none, with
 * a sentence. Owned by the caller. */
char *stage_cache(const char *name);

#endif
