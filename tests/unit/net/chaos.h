/* chaos.h - a network that misbehaves: a table of system calls in whose place
 * bytes come one by one, late, twice, changed, not at all, or the connection
 * is reset in the middle. For tests of channels and of all that stands on
 * them; what it does follows from the plan alone.
 *
 *     chaos_begin((chaos_plan){.reset_at = 5000});
 *     ... move bytes ...
 *     chaos_end();
 *
 * Bytes are counted over all sockets of the process, as they are received or
 * sent. */
#ifndef TESTS_NET_CHAOS_H
#define TESTS_NET_CHAOS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "os/sys.h"

typedef struct chaos_plan {
    size_t piece; /* at most so many bytes are moved at a time; 0: no limit */
    int late; /* of so many calls that could move bytes about one does; 0: all do */
    int64_t reset_at; /* once so many bytes were moved the connections are reset; 0: never */
    bool once; /* only the first call after that, so that a new connection is sound */
    int64_t silent_at; /* nothing is moved any more */
    int64_t twice_at; /* what is sent then is sent twice */
    int64_t change_at; /* a bit of what is received then is turned */
} chaos_plan;

static chaos_plan chaos_current;
static int64_t chaos_moved, chaos_calls;
static bool chaos_done; /* twice or change have happened */

/* Whether the call moves nothing; errno says why. */
static bool chaos_refuses(void)
{
    const chaos_plan *p = &chaos_current;

    errno = EAGAIN;
    if (p->silent_at && chaos_moved >= p->silent_at) return true;
    if (p->late && (++chaos_calls * 2654435761 >> 16) % p->late) return true;
    if (!p->reset_at || chaos_moved < p->reset_at || (p->once && chaos_done)) return false;
    chaos_done = true;
    errno = ECONNRESET;
    return true;
}

/* The bytes of a message cut to the plan's size, and to where something happens. */
static struct msghdr chaos_cut(const struct msghdr *m, struct iovec *part)
{
    const chaos_plan *p = &chaos_current;
    const int64_t points[] = {p->reset_at, p->silent_at, p->twice_at, p->change_at};
    struct msghdr cut = *m;
    size_t i = 0;

    while (i + 1 < m->msg_iovlen && !m->msg_iov[i].iov_len) i++;
    *part = m->msg_iov[i];
    for (int k = 0; k < 4; k++) {
        int64_t left = points[k] - chaos_moved;
        if (points[k] && left > 0 && (size_t)left < part->iov_len) part->iov_len = (size_t)left;
    }
    if (p->piece && part->iov_len > p->piece) part->iov_len = p->piece;
    cut.msg_iov = part;
    cut.msg_iovlen = 1;
    return cut;
}

static ssize_t chaos_sendmsg(int fd, const struct msghdr *m, int flags)
{
    struct iovec part;
    struct msghdr cut;
    ssize_t n;

    if (chaos_refuses()) return -1;
    cut = chaos_cut(m, &part);
    n = os_real.sendmsg(fd, &cut, flags);
    if (n <= 0) return n;
    if (chaos_current.twice_at && chaos_moved >= chaos_current.twice_at && !chaos_done) {
        part.iov_len = (size_t)n;
        chaos_done = os_real.sendmsg(fd, &cut, flags) > 0;
    }
    chaos_moved += n;
    return n;
}

static ssize_t chaos_recvmsg(int fd, struct msghdr *m, int flags)
{
    struct iovec part;
    struct msghdr cut;
    ssize_t n;

    if (chaos_refuses()) return -1;
    cut = chaos_cut(m, &part);
    n = os_real.recvmsg(fd, &cut, flags);
    if (n > 0 && chaos_current.change_at && chaos_moved >= chaos_current.change_at && !chaos_done) {
        ((unsigned char *)part.iov_base)[n / 2] ^= 4;
        chaos_done = true;
    }
    if (n > 0) chaos_moved += n;
    return n;
}

static inline void chaos_begin(chaos_plan plan)
{
    static os_sys table;

    chaos_current = plan;
    chaos_moved = chaos_calls = 0;
    chaos_done = false;
    table = os_real;
    table.sendmsg = chaos_sendmsg;
    table.recvmsg = chaos_recvmsg;
    os_use(&table);
}

static inline void chaos_end(void)
{
    os_use(NULL);
}

#endif
