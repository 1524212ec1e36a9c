/* retry.c - see retry.h. */
#include "web/retry.h"

#include <stdlib.h>

enum { FIRST_MS = 100, MOST_MS = 5000, ASKED_MOST_S = 10, DOUBLINGS = 6 };

bool retry_is_useful(const http_call *c)
{
    switch (c->trouble) {
    case HTTP_NONE: break;
    case HTTP_ADDRESS:
    case HTTP_TLS:
    case HTTP_TOO_LONG: return false;
    default: return true;
    }
    return c->status == 408 || c->status == 409 || c->status == 429 || (c->status >= 500 && c->status != 501);
}

int retry_wait_ms(int n, uint64_t random, const char *retry_after)
{
    int64_t most = (int64_t)FIRST_MS << (n < DOUBLINGS ? n : DOUBLINGS);
    long asked = strtol(retry_after, NULL, 10);
    int64_t ms;

    if (most > MOST_MS) most = MOST_MS;
    ms = most / 2 + (int64_t)(random % (uint64_t)(most / 2 + 1));
    if (asked > ASKED_MOST_S) asked = ASKED_MOST_S;
    return (int)(asked > 0 && asked * 1000 > ms ? asked * 1000 : ms);
}
