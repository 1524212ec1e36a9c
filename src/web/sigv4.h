/* web/sigv4.h - AWS Signature Version 4 of one request.
 *
 * Pure: the time is handed in. Addresses are those of S3: a path is encoded once, and
 * dots in it stay as they are. */
#ifndef WEB_SIGV4_H
#define WEB_SIGV4_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct sigv4_keys {
    const char *id, *secret;
    const char *token; /* of a session; NULL: there is none */
} sigv4_keys;

typedef struct sigv4_request {
    const char *method, *host;
    const char *path; /* encoded, from the first "/" on */
    const char *query; /* encoded, pairs in any order; NULL or "": none */
    const char *const *headers; /* "Name: value"; all of them are signed, and Host beside them */
    int n_headers;
    const char *payload; /* its sha256 as 64 digits, or UNSIGNED-PAYLOAD */
    const char *region, *service;
    int64_t time_s; /* since 1970 */
} sigv4_request;

/* The two texts that the signature is made of, and the value of the header Authorization.
 * Initialise with {0}; give back with sigv4_release(). */
typedef struct sigv4_result {
    buf canonical, to_sign, authorization;
} sigv4_result;

void sigv4_sign(const sigv4_request *r, const sigv4_keys *k, sigv4_result *out);
void sigv4_release(sigv4_result *s); /* overwrites what is given back */

/* 20150830T123600Z */
enum { SIGV4_TIME = 17 };
void sigv4_time(int64_t time_s, char out[SIGV4_TIME]);

/* Adds text with all bytes encoded but letters, digits and "-._~"; "/" stays where
 * `path` is set. */
void sigv4_encode(buf *to, const char *text, size_t n, bool path);

/* The sum of `data` as 64 digits. */
void sigv4_payload(const void *data, size_t n, char out[65]);

#endif
