/* manta/failure.h - why a call or an object failed.
 *
 * A reference whose call failed has a status and a sentence (manta_get()); here is the rest: what kind of
 * failure it is, where it arose, who had called whom, and bytes that the function gave along.
 *
 * Threads: any thread of the program; a manta_task only from the thread that runs it. */
#ifndef MANTA_FAILURE_H
#define MANTA_FAILURE_H

#include <stddef.h>

#include <manta/status.h>
#include <manta/task.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum manta_failure_kind {
    MANTA_FAILURE_NONE = 0,
    MANTA_FAILURE_TASK, /* the function returned a failure */
    MANTA_FAILURE_WORKER, /* its process died */
    MANTA_FAILURE_ACTOR, /* the actor is dead for good */
    MANTA_FAILURE_UNKNOWN, /* the actor died during the call: it may have happened or not */
    MANTA_FAILURE_CANCELLED,
    MANTA_FAILURE_LOST, /* its bytes are gone, or the process that was to make it is */
    MANTA_FAILURE_FULL, /* the store has no room */
    MANTA_FAILURE_IMPOSSIBLE, /* no node could ever run it; said at submit */
    MANTA_FAILURE_NODE, /* the node is gone, or there is none */
    MANTA_FAILURE_SUBMIT, /* the call itself was wrong */
    MANTA_FAILURE_UNAVAILABLE, /* the actor is being restarted, and its calls do not wait for that */
    MANTA_FAILURE_MEMORY, /* its process had more memory than it may */
    MANTA_FAILURE_PLACEMENT_GROUP /* its placement group was removed */
} manta_failure_kind;

/* A function that returns the failure of a call it made passes it on as it is,
 * and its own name is added to the chain. */
typedef struct manta_failure {
    manta_failure_kind kind;
    manta_status code;
    int pid; /* of the process it arose in, 0 when none is to blame */
    char function[64];
    char host[64];
    char chain[192]; /* "outer > inner": who called whom; "" when no function is to blame */
    char text[440];
} manta_failure;

/* What is wrong with an object; kind MANTA_FAILURE_NONE when nothing is (yet). */
MANTA_API void manta_failure_get(manta_ref ref, manta_failure *out);

/* Fails a call with more than a short sentence: records it and returns `code`, for
 * `return manta_fail_with(...)` in the function that runs. `text` may have any length;
 * `payload` is any bytes for whoever reads the failure, such as an exception of
 * another language: as many as an object may have, 0: none. Both are copied, and
 * travel wherever the failure goes: to calls with the result as an argument, to
 * callers of callers whose functions return it as it is, to every call of an actor
 * whose constructor failed. When the store has no room for them the failure travels without
 * them, and its text says so. The last of several counts; a function that returns
 * another code fails without it. MANTA_EINVAL is recorded in place of MANTA_OK. */
MANTA_API manta_status manta_fail_with(manta_task *t, manta_status code, const char *text,
                                       const void *payload, size_t size) MANTA_MUST_USE;

/* The payload of a failure; *n 0 and *at NULL when it has none. Read-only, 64-byte
 * aligned, valid until the reference is released. MANTA_EINVAL the object has not
 * failed; MANTA_EIO and others: the bytes are lost, as those of an object may be. */
MANTA_API manta_status manta_failure_payload(manta_ref ref, const void **at, size_t *n) MANTA_MUST_USE;

/* The whole text of a failure, of which manta_failure.text has the beginning. Valid, and
 * fails, as the payload. */
MANTA_API manta_status manta_failure_text(manta_ref ref, const char **out) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
