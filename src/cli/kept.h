/* kept.h - a state that somebody kept: a file, a checkpoint's folder, or a run. */
#ifndef CLI_KEPT_H
#define CLI_KEPT_H

#include <manta/checkpoint.h>

/* Whether the folder of a checkpoint lies at `path`. */
bool kept_is_checkpoint(const char *path);

/* Where the state lies that `given` means: the folder of a checkpoint, whose every
 * byte is checked; a run, by its folder or by its name, for its last checkpoint; and
 * anything else for itself. Of a checkpoint it is state.safetensors, or else its only
 * file. *path: owned, free(). *from (may be NULL): the checkpoint, owned,
 * manta_checkpoint_close(); NULL: it is none. */
manta_status kept_find(const char *given, char **path, manta_checkpoint **from) MANTA_MUST_USE;

/* kept_find() and manta_file_read(). */
manta_status kept_read(const char *given, const manta_read_options *how, manta_saved **out) MANTA_MUST_USE;

#endif
