/* web/retry.h - whether a call is tried again, and when. Pure. */
#ifndef WEB_RETRY_H
#define WEB_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "web/http.h"

/* Whether what came of a call may be another thing next time: no answer, an answer that
 * was cut off, 408, 409, 429 and all of 500 and above but 501 (a method it never has). */
bool retry_is_useful(const http_call *c);

/* Milliseconds to wait after try number `n` (from 0): between half and the whole of
 * 100 ms doubled n times, at most five seconds, by `random`; at least what the server
 * asks for in Retry-After, up to ten seconds. */
int retry_wait_ms(int n, uint64_t random, const char *retry_after);

#endif
