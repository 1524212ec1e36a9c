/* train/run_folder.h - a run's folder, inside this folder. */
#ifndef TRAIN_RUN_FOLDER_H
#define TRAIN_RUN_FOLDER_H

#include <manta/run.h>

/* FOLDER/NAME; owned by the caller. */
char *run_inner(const char *folder, const char *name);

#endif
