/* manta/map.h - one remote function, many inputs.
 *
 * Threads: a map from one thread at a time. */
#ifndef MANTA_MAP_H
#define MANTA_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>
#include <manta/task.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* manta_map(fn, options, input, user, &m), then manta_map_next() until
 * MANTA_ENOENT: calls fn(input i) for i = 0, 1, ... One thread at a time. */
typedef struct manta_map manta_map;

/* Makes input i, which may be a reference; called in order, as room comes free.
 * What *out points to must stay until the next call of it. MANTA_ENOENT: there
 * are no more; another status ends the map with it. */
typedef manta_status manta_map_input(void *user, size_t i, manta_arg *out);

typedef struct manta_map_options {
    const manta_task_options *task;
    size_t chunk; /* inputs that travel, and run, together; 0: 1; at most 256 */
    size_t window; /* chunks that are submitted and not taken; 0: 4 for each core, 2 for each actor */
    bool unordered; /* results as they come; else in the order of the inputs */
    int n_actors; /* not 0: fn is a method of these */
    const manta_actor *actors; /* which stay the caller's */
} manta_map_options;

#define manta_map(fn, options, input, user, out) manta_map_start(#fn, (options), (input), (user), (out))
/* *out: give back with manta_map_free(). `options` may be NULL. */
MANTA_API manta_status manta_map_start(const char *function, const manta_map_options *options,
                                       manta_map_input *input, void *user, manta_map **out) MANTA_MUST_USE;
/* The next result, and the number of its input (index may be NULL); release it.
 * A call that failed is a result whose manta_get says so, also within a chunk.
 * MANTA_ENOENT all were taken; MANTA_ETIMEDOUT. */
MANTA_API manta_status manta_map_next(manta_map *m, size_t *index, manta_ref *out,
                                      int64_t timeout_ms) MANTA_MUST_USE;
/* Cancels what was not taken. Accepts NULL. */
MANTA_API void manta_map_free(manta_map *m);

#ifdef __cplusplus
}
#endif
#endif
