/* train/storage/s3_lease.h - one holder at a time, in a storage that cannot lock.
 *
 * The lock is an object that says who holds it and for how long. It is made by a put with
 * If-None-Match, and renewed by puts with If-Match, a third of the lease apart: whoever's put
 * fails has lost it. It has lapsed when the server's own clock (Date) is more than the
 * lease beyond the last renewal (Last-Modified), or when its process was on this host and is
 * gone; the next holder takes it over by If-Match, which only one can.
 *
 *   free ──If-None-Match──▶ held ──If-Match──▶ held … ──▶ released ──If-Match──▶ held by another
 *                             └── no renewal for a lease ──▶ lapsed ──If-Match──▶ held by another
 *
 * A holder that could not renew for a lease commits nothing (s3_lease_check()), and goes on
 * when a renewal succeeds: then nobody has taken it meanwhile.
 *
 * Threads: any. Each lease has a thread that renews it. */
#ifndef TRAIN_STORAGE_S3_LEASE_H
#define TRAIN_STORAGE_S3_LEASE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct s3_lease s3_lease; /* opaque, see s3_lease.c */

/* *out: owned, s3_lease_free(). MANTA_EBUSY with who has it, and when it lapses. */
manta_status s3_lease_take(const char *path, s3_lease **out) MANTA_MUST_USE;
void s3_lease_free(s3_lease *l); /* releases it; accepts NULL */

/* The process of this host that holds it; 0: nobody; -1: one on another host, or not known. */
int s3_lease_holder(const char *path);

/* Refuses what would change `path` when a lease of ours on a folder above it has not been renewed
 * in time. MANTA_EBUSY. Every try of a call that changes an object asks the same (s3_on_change()), so
 * that none that was begun before the lease lapsed comes in behind it. */
manta_status s3_lease_check(const char *path) MANTA_MUST_USE;

/* Asks the server of a bucket, once, whether it creates a key only once and replaces one
 * only when it is as told. MANTA_EUNSUPPORTED it does not. */
manta_status s3_lease_probe(const char *path) MANTA_MUST_USE;

/* Whether MANTA_STORAGE_UNLOCKED says that nobody else uses the storage. */
bool s3_lease_unlocked(void);

/* A text that no other call has had, for an object that must be known again. Owned by the caller. */
char *s3_lease_nonce(void);

#endif
