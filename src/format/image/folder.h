/* folder.h - a folder of images, one sub-folder per class. */
#ifndef FORMAT_IMAGE_FOLDER_H
#define FORMAT_IMAGE_FOLDER_H

#include <manta/data_file.h>

/* Columns "x" (height, width, channels), u8 or f32 in [0,1], and "y", the
 * number of the sub-folder in the order of names. Images are decoded when they
 * are asked for, on the reader's thread. */
manta_status folder_open(const char *path, const manta_open_options *o, manta_dataset **out);

#endif
