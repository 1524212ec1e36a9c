/* ask.c - see ask.h. */
#include "launch/ask.h"

#include <poll.h>

#include <manta/tool_launch.h>

#include "base/clock.h"
#include "net/tcp.h"
#include "os/sys.h"

/* Waits until a connection that was begun has come about, or has not. */
static manta_status await_connection(int fd, const char *address, int64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    for (;;) {
        int left = clock_left_ms(deadline);
        if (os->poll(&p, 1, left) > 0) return tcp_connected(fd, address); /* interrupted: once more */
        if (!left) return manta_fail(MANTA_ETIMEDOUT, "connecting to %s: no answer", address);
    }
}

manta_status ask_address(const char *address, int timeout_ms)
{
    tcp_place p;
    manta_status st = MANTA_OK;

    TRY(tcp_resolve(address, &p));
    for (int i = 0; i < p.n;
         i++) { /* a name may stand for several, of which one listens: each has its share */
        int fd;
        if ((st = tcp_connect(&p, i, &fd))) continue;
        st = await_connection(fd, address, clock_deadline(timeout_ms / p.n));
        os->close(fd);
        if (!st) break;
    }
    return st;
}

manta_status manta_where_ask(const char *address, int timeout_ms)
{
    if (!address) return manta_fail(MANTA_EINVAL, "manta_where_ask: address is NULL, expected host:port");
    return ask_address(address, timeout_ms);
}
