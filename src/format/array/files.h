/* files.h - datasets out of array files: IDX and .npy, one per column. */
#ifndef FORMAT_ARRAY_FILES_H
#define FORMAT_ARRAY_FILES_H

#include <manta/data_file.h>

/* Column "x" from the file at x and, unless y is NULL, "y" from that at y.
 * classes > 0: labels must lie below it. Options as manta_dataset_open(). */
manta_status files_open(const char *x, const char *y, int classes, const manta_open_options *o,
                        manta_dataset **out);

/* The stages every source of labels gets: integers become i64. Takes d. */
manta_dataset *files_finish_labels(manta_dataset *d);

#endif
