/* manta/watch.h - references in an event loop.
 *
 *     manta_watch *w;
 *     uint64_t tokens[16];
 *     size_t n;
 *     MANTA_TRY(manta_watch_new(&w));
 *     MANTA_TRY(manta_watch_add(w, ref, 7)); // 7: any number, to know it by
 *     loop_until_readable(manta_watch_fd(w)); // the program's own: poll, epoll, ...
 *     MANTA_TRY(manta_watch_take(w, tokens, 16, &n));
 *     manta_watch_free(w);
 *
 * A watch has a descriptor that is readable while one of its references is ready, that
 * is there or failed (manta_wait()), and was not taken yet. Each manta_watch_add() gives
 * its token once. Nothing else waits for the program meanwhile: results come in by a thread
 * of the watch's, which exists while there is something to wait for.
 *
 * A reference may be released while it is watched; its token comes all the same, or never
 * when the watch is freed before. manta_shutdown() ends all watches: tokens that were not taken are
 * gone, no more come, and what is left to do with one is to free it.
 *
 * Threads: a watch may be used by several threads; manta_watch_free() when no other does. */
#ifndef MANTA_WATCH_H
#define MANTA_WATCH_H

#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>
#include <manta/task.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_watch manta_watch;

/* *out: give back with manta_watch_free(). MANTA_EIO there is no descriptor left. */
MANTA_API manta_status manta_watch_new(manta_watch **out) MANTA_MUST_USE;
MANTA_API void manta_watch_free(manta_watch *w); /* accepts NULL */

/* The descriptor, for poll, select or epoll, to be read from. It stays the watch's: do not
 * read it and do not close it. */
MANTA_API int manta_watch_fd(const manta_watch *w);

/* Watches a reference; one that is ready already gives its token at once. The same reference may
 * be added again, and tokens need not differ. MANTA_EINVAL the reference is none, was
 * released, or is not sealed; or the runtime has ended since. */
MANTA_API manta_status manta_watch_add(manta_watch *w, manta_ref ref, uint64_t token) MANTA_MUST_USE;

/* Takes at most n tokens, in the order in which their references became ready, without
 * waiting; *taken is how many, 0 when none is ready. */
MANTA_API manta_status manta_watch_take(manta_watch *w, uint64_t *tokens, size_t n,
                                        size_t *taken) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
