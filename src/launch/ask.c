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
    int64_t deadline = clock_deadline(timeout_ms);
    tcp_place p;
    int fd;
    manta_status st;

    TRY(tcp_resolve(address, &p));
    TRY(tcp_connect(&p, 0, &fd));
    st = await_connection(fd, address, deadline);
    os->close(fd);
    return st;
}

manta_status manta_where_ask(const char *address, int timeout_ms)
{
    if (!address) return manta_fail(MANTA_EINVAL, "manta_where_ask: address is NULL, expected host:port");
    return ask_address(address, timeout_ms);
}
