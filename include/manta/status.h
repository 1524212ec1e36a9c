/* manta/status.h - how a call says that it failed.
 *
 * What can fail returns a manta_status; 0 is success and must be checked: every
 * function that returns one is MANTA_MUST_USE. Where a failure truly does not
 * matter, `(void)!call` says so, with the reason beside it. The
 * function that first knows what went wrong writes one sentence with
 * manta_fail(); callers pass the code on. The sentence is kept per thread
 * until the next failure on that thread, and can be taken to another thread,
 * process or host with its origin (manta_error). */
#ifndef MANTA_STATUS_H
#define MANTA_STATUS_H

#if defined(__GNUC__)
#define MANTA_API                __attribute__((visibility("default")))
#define MANTA_MUST_USE           __attribute__((warn_unused_result))
#define MANTA_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define MANTA_API
#define MANTA_MUST_USE
#define MANTA_PRINTF(fmt, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum manta_status {
    MANTA_OK = 0,
    MANTA_EINVAL, /* an argument, option or shape that cannot be */
    MANTA_ENOENT, /* nothing by that name */
    MANTA_EEXIST, /* something by that name already */
    MANTA_EIO, /* the system refused a read, a write, a socket */
    MANTA_ENOMEM, /* memory sized by the user could not be had */
    MANTA_ENOSPC, /* disk or store full */
    MANTA_ECORRUPT, /* bytes that are not what they claim to be */
    MANTA_EUNSUPPORTED, /* understood, and not available here */
    MANTA_EPERM, /* not allowed */
    MANTA_EBUSY, /* in use by another */
    MANTA_ETIMEDOUT, /* a deadline passed */
    MANTA_ECANCELLED, /* ended on request */
    MANTA_EDIED, /* a process that was awaited is dead */
    MANTA_EUNKNOWN, /* it may have happened or not */
    MANTA_ENAN, /* a number that is not one */
    MANTA_EINTERNAL, /* our own mistake */
    MANTA_EINTERRUPTED /* a wait was interrupted, and what it waited for goes on (manta/nursery.h) */
} manta_status;

/* An error as it travels: where it arose and the sentence said there. Plain
 * memory without pointers, so that it can be copied into a message. */
typedef struct manta_error {
    manta_status code;
    int rank; /* of the process it arose in, -1 outside a group */
    char host[64]; /* "" for this one */
    char text[440]; /* the sentence, always terminated */
} manta_error;

/* Records the sentence and returns `code`, for `return manta_fail(...)`.
 * A sentence too long for the buffer is cut and ends in "...". */
MANTA_API manta_status manta_fail(manta_status code, const char *fmt, ...) MANTA_PRINTF(2, 3) MANTA_MUST_USE;

/* Returns from the calling function, which returns a manta_status itself, when
 * `call` fails: for places where there is nothing to undo. */
#define MANTA_TRY(call)                                                                                      \
    do {                                                                                                     \
        manta_status manta_try_ = (call);                                                                    \
        if (manta_try_) return manta_try_;                                                                   \
    } while (0)

/* The last sentence recorded on this thread, "" when there is none. Borrowed:
 * valid until the next failure on this thread. */
MANTA_API const char *manta_error_text(void);

/* Copies this thread's last error with its origin into *out. */
MANTA_API void manta_error_get(manta_error *out);

/* Makes an error that came from elsewhere this thread's last error, origin
 * kept; returns its code. Accepts bytes of hostile origin. */
MANTA_API manta_status manta_error_raise(const manta_error *e) MANTA_MUST_USE;

/* Names this process in the errors it will record. host may be NULL. */
MANTA_API void manta_error_origin(const char *host, int rank);

/* A code's name, such as "corrupt"; never NULL. */
MANTA_API const char *manta_status_name(manta_status code);

#ifdef __cplusplus
}
#endif
#endif
