/* web/s3_call.h - one call of S3: its address, its signature, its retries, and the
 * sentence of its failure.
 *
 * Threads: any; a call belongs to one at a time. */
#ifndef WEB_S3_CALL_H
#define WEB_S3_CALL_H

#include <stdint.h>

#include "web/http.h"

enum { S3_HEADERS = 4, S3_TOGETHER = 4 /* calls side by side */ };

typedef struct s3_call {
    /* What is asked; borrowed. */
    const char *doing; /* "writing", for sentences */
    const char *method, *bucket, *key; /* key "": the bucket */
    const char *query; /* encoded; NULL: none */
    const char *headers[S3_HEADERS]; /* "Name: value"; NULL: no more */
    const void *body;
    size_t size;
    void *to; /* as http.h has it */
    size_t room;

    /* What came. */
    http_call http;
    int tries;
} s3_call;

/* Performs up to S3_TOGETHER calls side by side. What may go well next time is tried again,
 * later and later, until MANTA_S3_TIMEOUT_S (60 s) have passed. MANTA_OK each call has
 * its answer or its trouble; a failure: no try was begun any more. Each needs s3_call_release(). */
manta_status s3_call_all(s3_call *calls, int n) MANTA_MUST_USE;
void s3_call_release(s3_call *c);

/* MANTA_OK for an answer from 200 to 299, else a failure with the bucket, the key, what was being
 * done and what would help. MANTA_ENOENT, MANTA_EEXIST (412), MANTA_EPERM, MANTA_ENOSPC,
 * MANTA_ETIMEDOUT, MANTA_EUNSUPPORTED, MANTA_EINVAL, MANTA_EIO. */
manta_status s3_call_status(const s3_call *c) MANTA_MUST_USE;

/* Performs one call and tells its status. */
manta_status s3_call_one(s3_call *c) MANTA_MUST_USE;

/* Is asked about an object before every try of a call that changes it, and every second while the try
 * lasts: a failure ends the call with its sentence. For who holds a lock that may lapse meanwhile.
 * What others do not see, as a part of an upload, is not asked for. `may` stays for good. */
typedef manta_status s3_change_fn(const char *bucket, const char *key);
void s3_on_change(s3_change_fn *may);

/* How long one operation may take with all its retries. */
int64_t s3_timeout_ms(void);

#endif
