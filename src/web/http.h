/* web/http.h - calls of HTTP, several at a time.
 *
 * A call is filled in by the caller, performed, and then says what came of it: an
 * answer of the server's (`status` and what is beside it), or the trouble that kept
 * it away. What an answer means is for the caller to say.
 *
 * Connections are kept between calls. A process that was forked makes its own.
 *
 * Threads: any; a call belongs to one at a time. */
#ifndef WEB_HTTP_H
#define WEB_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"

typedef enum http_trouble {
    HTTP_NONE, /* there is an answer */
    HTTP_ADDRESS, /* the address is none: a port beyond 65535, a space */
    HTTP_NAME, /* the name of the host is not known */
    HTTP_CONNECT, /* nobody listens there, or no way leads there */
    HTTP_TLS, /* no trust: certificate, version, name */
    HTTP_CUT, /* the connection ended before the answer did */
    HTTP_SLOW, /* nothing came for too long, or the deadline passed */
    HTTP_TOO_LONG, /* the answer has more bytes than there is room for */
    HTTP_STOPPED, /* may() said no */
    HTTP_OTHER,
} http_trouble;

enum { HTTP_TEXT_MOST = 8 << 20, HTTP_FIELD = 160 };

typedef struct http_call {
    /* What is asked. Borrowed, all of it, but for the headers. */
    const char *method, *url;
    VEC(char *) headers; /* "Name: value" */
    const void *body; /* of PUT and POST */
    size_t size;
    int64_t deadline; /* of clock_now_ns() */
    int connect_ms, silence_ms; /* 0: ten seconds to connect, thirty of silence */
    bool follow; /* goes where a redirection points to */
    /* Is asked every second while the call lasts; a failure gives it up. NULL: none is asked. */
    manta_status (*may)(void *ctx);
    void *may_ctx;

    /* Where the bytes of a good answer (200 to 299) go: here when `to` is set, at most
     * `room`, else, as those of all other answers, to `text`. */
    void *to;
    size_t room;

    /* What came. */
    http_trouble trouble;
    char why[200]; /* the trouble in words */
    int status; /* 0: there was no answer */
    size_t got; /* bytes at `to` */
    buf text;
    char etag[HTTP_FIELD], date[HTTP_FIELD], last_modified[HTTP_FIELD], content_range[HTTP_FIELD];
    char region[HTTP_FIELD]; /* x-amz-bucket-region */
    char retry_after[HTTP_FIELD];
    int64_t length; /* Content-Length; -1: not told */
} http_call;

/* Adds a header. */
void http_add_header(http_call *c, const char *name, const char *value);

/* Forgets what came, so that the call can be performed again. */
void http_again(http_call *c);

/* Gives back what the call holds; the headers go too. */
void http_release(http_call *c);

/* Performs n calls side by side and returns when all have ended. MANTA_EUNSUPPORTED,
 * MANTA_ENOMEM they could not be begun; else each says what came of it. */
manta_status http_perform(http_call *const *calls, int n) MANTA_MUST_USE;

/* A date of HTTP ("Tue, 15 Nov 1994 08:12:31 GMT") in nanoseconds since 1970; -1: it is none. */
int64_t http_date_ns(const char *text);

/* The size of the whole in a Content-Range ("bytes 0-4/10"); -1: it does not say. */
int64_t http_range_total(const char *text);

/* The host of an address, with the port when it is not the scheme's own, as the header
 * Host has it. Owned by the caller. */
char *http_host(const char *url);

#endif
