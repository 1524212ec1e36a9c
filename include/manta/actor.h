/* manta/actor.h - actors: processes that keep state between calls.
 *
 *     manta_actor counter = manta_actor_new(NULL, counter_new, manta_i64(0));
 *     manta_ref value = manta_actor_call(counter, counter_add, manta_i64(1));
 *
 * Threads: any thread of the program; a manta_task only from the thread that runs it. */
#ifndef MANTA_ACTOR_H
#define MANTA_ACTOR_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>
#include <manta/task.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* manta_actor_new(options, constructor, args...): a process that keeps state
 * between calls. The constructor is a remote function; it calls
 * manta_set_self(). Calls of one caller run in the order in which they were
 * made. Latches: an actor whose constructor failed fails every call with that
 * failure. Actors that run one call at a time and wait for each other, or for
 * themselves, without a time limit are told: one of these calls fails with
 * MANTA_EBUSY. */
#define manta_actor_new(options, ...)                                                                        \
    manta_actor_start(MANTA_NAME_(__VA_ARGS__, ), (options), MANTA_COUNT_(__VA_ARGS__) - 1,                  \
                      (MANTA_LIST_(__VA_ARGS__)) + 1)
/* manta_actor_call(actor, method, args...): a method is a remote function too.
 * manta_actor_call_with() has options, of which max_task_retries, retry_errors,
 * retry_on, name and concurrency_group matter, before those of the actor. */
#define manta_actor_call_with(actor, options, ...)                                                           \
    manta_actor_submit_one_with((actor), MANTA_NAME_(__VA_ARGS__, ), (options),                              \
                                MANTA_COUNT_(__VA_ARGS__) - 1, (MANTA_LIST_(__VA_ARGS__)) + 1)
#define manta_actor_call(actor, ...)                                                                         \
    manta_actor_submit_one((actor), MANTA_NAME_(__VA_ARGS__, ), MANTA_COUNT_(__VA_ARGS__) - 1,               \
                           (MANTA_LIST_(__VA_ARGS__)) + 1)

MANTA_API manta_actor manta_actor_start(const char *constructor, const manta_task_options *options,
                                        int n_args, const manta_arg *args);
MANTA_API void manta_actor_submit(manta_actor actor, const char *method, int n_args, const manta_arg *args,
                                  int results, manta_ref *out);
MANTA_API manta_ref manta_actor_submit_one(manta_actor actor, const char *method, int n_args,
                                           const manta_arg *args);
MANTA_API void manta_actor_submit_with(manta_actor actor, const char *method,
                                       const manta_task_options *options, int n_args, const manta_arg *args,
                                       int results, manta_ref *out);
MANTA_API manta_ref manta_actor_submit_one_with(manta_actor actor, const char *method,
                                                const manta_task_options *options, int n_args,
                                                const manta_arg *args);

/* The state of the actor that a method runs in, as its constructor set it;
 * NULL outside actors. `end` (may be NULL) is called when the actor ends
 * gracefully. */
MANTA_API void *manta_self(const manta_task *t);
MANTA_API void manta_set_self(manta_task *t, void *self, void (*end)(void *self));

/* The concurrency group that the call runs in; "": it is in none. */
MANTA_API const char *manta_task_group(const manta_task *t);

/* Waits until the constructor has run. */
MANTA_API manta_status manta_actor_ready(manta_actor actor, int64_t timeout_ms) MANTA_MUST_USE;
/* The actor of that name in the program's own name space, or in one that is
 * named. MANTA_ENOENT there is none. Release the handle. */
MANTA_API manta_status manta_actor_find(const char *name, manta_actor *out) MANTA_MUST_USE;
MANTA_API manta_status manta_actor_find_in(const char *name_space, const char *name,
                                           manta_actor *out) MANTA_MUST_USE;
/* Ends the actor when the calls it has are done; the function of
 * manta_set_self() is called, and it is not restarted. From inside, too. */
MANTA_API manta_status manta_actor_end(manta_actor actor) MANTA_MUST_USE;
/* A handle of the actor that `t` is a call of, or its constructor; t NULL: that of this process. Release
 * it: the actor lives as long. MANTA_EINVAL there is no actor here. */
MANTA_API manta_status manta_actor_here(const manta_task *t, manta_actor *out) MANTA_MUST_USE;
/* Ends the actor that `t` is a call of, or its constructor; t NULL: that of this process, for threads
 * that it has started. Calls that run are finished; this one, those that wait and those that
 * come fail with MANTA_FAILURE_ACTOR, whatever this one returns. The function of manta_set_self() is
 * called when the last has ended, before who called this one hears of it, and the actor is not restarted. MANTA_EINVAL there is no actor here. */
MANTA_API manta_status manta_exit_actor(manta_task *t) MANTA_MUST_USE;
/* Kills the process at once; it is not restarted when no_restart is set. */
MANTA_API manta_status manta_actor_kill(manta_actor actor, bool no_restart) MANTA_MUST_USE;
/* One handle less; the actor ends, when its calls are done, with the last. */
MANTA_API void manta_actor_release(manta_actor actor); /* accepts no actor */
MANTA_API int manta_actor_pid(manta_actor actor); /* 0 while it is not known */

#ifdef __cplusplus
}
#endif
#endif
