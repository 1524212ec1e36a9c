/* web/s3_upload.h - an object put in parts, several at a time.
 *
 * What is written gathers in memory. What fits into one part is put whole at the end;
 * more is sent in parts while it comes, S3_TOGETHER side by side, and is seen by nobody
 * before s3_upload_finish(). An upload that is given up is aborted on the server, so that
 * its parts cost nothing.
 *
 * Threads: one at a time. */
#ifndef WEB_S3_UPLOAD_H
#define WEB_S3_UPLOAD_H

#include <stddef.h>

#include "web/s3.h"

typedef struct s3_upload s3_upload; /* opaque, see s3_upload.c */

/* `expected`: about how many bytes will come; 0: not known. *out: owned, s3_upload_free(). */
manta_status s3_upload_new(const s3_place *p, uint64_t expected, s3_upload **out) MANTA_MUST_USE;

manta_status s3_upload_write(s3_upload *u, const void *data, size_t n) MANTA_MUST_USE;

/* Puts the object in place. After a failure it may be there all the same: no answer came. */
manta_status s3_upload_finish(s3_upload *u) MANTA_MUST_USE;

/* Aborts what was not finished. Accepts NULL. */
void s3_upload_free(s3_upload *u);

/* Aborts the uploads of keys that begin with the place's key: nobody writes there any more. */
manta_status s3_abort_uploads(const s3_place *p) MANTA_MUST_USE;

/* Bytes of one part of an object of about `expected` bytes: at most 10,000 parts are allowed. Pure. */
size_t s3_part_size(uint64_t expected);

#endif
