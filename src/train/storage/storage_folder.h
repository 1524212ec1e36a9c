/* train/storage/storage_folder.h - the storage that a file system is. */
#ifndef TRAIN_STORAGE_STORAGE_FOLDER_H
#define TRAIN_STORAGE_STORAGE_FOLDER_H

#include "train/storage/storage.h"

extern const storage_ops storage_folder;

#endif
