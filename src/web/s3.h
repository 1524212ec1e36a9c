/* web/s3.h - objects in S3: put, get, look, remove, list.
 *
 * Every failure has one sentence with bucket, key, what was being done, what the server
 * said and what would help. Every call ends: s3_call.h.
 *
 * Threads: any. */
#ifndef WEB_S3_H
#define WEB_S3_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"

enum {
    S3_ETAG = 160,
    S3_PIECE = 8 << 20, /* bytes of one call that reads */
};

/* s3://BUCKET/KEY. Initialise with {0}; give back with s3_place_release(). */
typedef struct s3_place {
    char *bucket, *key; /* key: "" for the bucket itself; no "/" first or last */
} s3_place;

/* MANTA_EINVAL it is no such path. */
manta_status s3_place_parse(const char *path, s3_place *out) MANTA_MUST_USE;
void s3_place_release(s3_place *p);

typedef struct s3_object {
    uint64_t size;
    char etag[S3_ETAG]; /* with its quotes; "" when the server tells none */
    int64_t changed_ns; /* since 1970, by the server's clock; -1: not told */
    int64_t now_ns; /* what that clock said when it answered; -1: not told */
} s3_object;

/* When an object may be put. */
typedef struct s3_if {
    bool absent; /* there is none of that key */
    const char *etag; /* the one that is there has this mark; NULL: whatever it has */
} s3_if;

/* Puts an object whole, up to 5 GB. With a condition that does not hold: MANTA_EEXIST. A put that is
 * told so looks whether what is there is its own, by an earlier try. etag may be NULL. */
manta_status s3_put(const s3_place *p, const void *data, size_t n, s3_if when,
                    char etag[S3_ETAG]) MANTA_MUST_USE;

/* Reads up to `most` (at most S3_PIECE) bytes from `at` on; *n is 0 at the end. `about` may be NULL. */
manta_status s3_get(const s3_place *p, uint64_t at, void *to, size_t most, size_t *n,
                    s3_object *about) MANTA_MUST_USE;

/* Is called with an object's pieces in their order. */
typedef manta_status s3_piece_fn(void *ctx, const s3_object *about, const void *data, size_t n);

/* Reads an object piece by piece, several on their way at a time. MANTA_EIO it was
 * changed meanwhile. */
manta_status s3_stream(const s3_place *p, s3_piece_fn *fn, void *ctx) MANTA_MUST_USE;

/* Describes an object. MANTA_ENOENT there is none. */
manta_status s3_look(const s3_place *p, s3_object *out) MANTA_MUST_USE;

/* Removes an object; fine when there is none. */
manta_status s3_remove(const s3_place *p) MANTA_MUST_USE;

typedef struct s3_entry {
    char *name; /* behind the prefix; of a folder without its "/"; "": the mark of the prefix itself */
    bool is_folder;
    uint64_t size;
} s3_entry;

typedef VEC(s3_entry) s3_entries;

/* Adds what begins with the place's key and "/" to *out. `deep`: all keys, else those
 * up to the next "/", which are folders. `most`: about so many at most; 0: all. */
manta_status s3_list(const s3_place *p, bool deep, int most, s3_entries *out) MANTA_MUST_USE;
void s3_entries_release(s3_entries *e);

/* What s3_list() does with one answer; pure. *token: where the list goes on; NULL: it has ended. Owned. */
manta_status s3_parse_list(const char *text, size_t n, size_t prefix_n, s3_entries *out,
                           char **token) MANTA_MUST_USE;

#endif
