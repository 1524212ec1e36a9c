/* manta/stream.h - calls whose results come one by one.
 *
 * A function that is called as a stream yields items while it runs, and its caller takes them in order,
 * at most a window behind (manta_task_options.stream_window).
 *
 * Threads: a stream from any thread, one at a time; a manta_task only from the thread that runs it. */
#ifndef MANTA_STREAM_H
#define MANTA_STREAM_H

#include <stdint.h>

#include <manta/status.h>
#include <manta/task.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_stream {
    uint64_t id; /* 0: no stream */
} manta_stream;

/* manta_remote_stream(options, fn, args...): calls a function that yields. */
#define manta_remote_stream(options, ...)                                                                    \
    manta_stream_start(MANTA_NAME_(__VA_ARGS__, ), (options), MANTA_COUNT_(__VA_ARGS__) - 1,                 \
                       (MANTA_LIST_(__VA_ARGS__)) + 1)
MANTA_API manta_stream manta_stream_start(const char *name, const manta_task_options *options, int n_args,
                                          const manta_arg *args);
/* manta_actor_stream(actor, options, method, args...): of an actor. */
#define manta_actor_stream(actor, options, ...)                                                              \
    manta_actor_stream_start((actor), MANTA_NAME_(__VA_ARGS__, ), (options), MANTA_COUNT_(__VA_ARGS__) - 1,  \
                             (MANTA_LIST_(__VA_ARGS__)) + 1)
MANTA_API manta_stream manta_actor_stream_start(manta_actor actor, const char *method,
                                                const manta_task_options *options, int n_args,
                                                const manta_arg *args);
/* The next item, in order; release it. MANTA_ENOENT the function has ended and
 * all items were taken; MANTA_ETIMEDOUT; else the failure of the call, after
 * the items that came before it. */
MANTA_API manta_status manta_stream_next(manta_stream s, manta_ref *out, int64_t timeout_ms) MANTA_MUST_USE;
/* Waits until manta_stream_next() would not wait, and takes nothing: the function is held back as
 * before. MANTA_OK an item is there, or the failure of the call; MANTA_ENOENT the function has ended and
 * all items were taken; MANTA_ETIMEDOUT; MANTA_EINVAL the stream is none, or was closed. */
MANTA_API manta_status manta_stream_wait(manta_stream s, int64_t timeout_ms) MANTA_MUST_USE;
/* A reference to the end of the stream, to be released: it is ready when the function has
 * ended, without a value, and its failure is the stream's. MANTA_EINVAL the stream is none, or
 * was closed. */
MANTA_API manta_status manta_stream_end(manta_stream s, manta_ref *out) MANTA_MUST_USE;
/* Gives the stream back; a call that still runs is cancelled. */
MANTA_API void manta_stream_close(manta_stream s);
/* Gives the stream back and leaves the call alone: it goes on, nothing holds it back any more, and what
 * it yields is dropped. */
MANTA_API void manta_stream_leave(manta_stream s);

/* Inside a function called as a stream: the next item. Waits while the caller
 * is 8 items behind, or as many as its options say. MANTA_ECANCELLED nobody takes them any more: return. */
MANTA_API manta_status manta_yield(manta_task *t, manta_arg item) MANTA_MUST_USE;
/* Waits until manta_yield() would not wait, for functions that make their items only when there is
 * room for them. With a `limit` above 0 it waits besides until the streams that run in this
 * process, such as those of one actor, have fewer than `limit` items together that are promised, or
 * sent and not taken; then the next `n` of this stream are promised, until they are
 * yielded, it ends or manta_yield_taken() is called. MANTA_ECANCELLED as manta_yield(); MANTA_ETIMEDOUT. */
MANTA_API manta_status manta_yield_room(manta_task *t, uint64_t n, uint64_t limit,
                                        int64_t timeout_ms) MANTA_MUST_USE;
/* Waits until the caller has taken all items. MANTA_ECANCELLED as manta_yield(); MANTA_ETIMEDOUT. */
MANTA_API manta_status manta_yield_taken(manta_task *t, int64_t timeout_ms) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
