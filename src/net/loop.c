/* loop.c - see loop.h. Each watch has a number that is never used again, so an
 * event that the kernel had already handed out when its watch was forgotten
 * finds nothing. */
#include "net/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/map.h"
#include "base/mem.h"
#include "os/sys.h"

typedef struct watch {
    int fd;
    loop_fn *fn;
    void *ctx;
} watch;

struct loop {
    int epoll;
    uint64_t next;
    MAP_U64(watch) watches; /* by number */
    MAP_U64(uint64_t) numbers; /* by descriptor */
};

manta_status loop_new(loop **out)
{
    loop *l = mem_new(sizeof *l);

    l->epoll = os->epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll < 0) {
        mem_free(l);
        return manta_fail(MANTA_EIO, "an event loop cannot be made: %s", strerror(errno));
    }
    *out = l;
    return MANTA_OK;
}

void loop_free(loop *l)
{
    if (!l) return;
    os->close(l->epoll);
    map_u64_release(&l->watches);
    map_u64_release(&l->numbers);
    mem_free(l);
}

manta_status loop_watch(loop *l, int fd, bool write, loop_fn *fn, void *ctx)
{
    uint64_t *known = map_u64_find(&l->numbers, (uint64_t)fd);
    uint64_t number = known ? *known : ++l->next;
    struct epoll_event e = {.events = EPOLLIN | (write ? EPOLLOUT : 0u), .data.u64 = number};

    if (os->epoll_ctl(l->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e))
        return manta_fail(MANTA_EIO, "descriptor %d cannot be watched: %s", fd, strerror(errno));
    *map_u64_put(&l->numbers, (uint64_t)fd) = number;
    *map_u64_put(&l->watches, number) = (watch){.fd = fd, .fn = fn, .ctx = ctx};
    return MANTA_OK;
}

void loop_forget(loop *l, int fd)
{
    uint64_t *known = map_u64_find(&l->numbers, (uint64_t)fd);
    struct epoll_event none = {0};

    if (!known) return;
    os->epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, &none);
    map_u64_remove(&l->watches, *known);
    map_u64_remove(&l->numbers, (uint64_t)fd);
}

manta_status loop_run(loop *l, int timeout_ms)
{
    struct epoll_event events[64];
    int n = os->epoll_wait(l->epoll, events, 64, timeout_ms);

    if (n < 0 && errno != EINTR)
        return manta_fail(MANTA_EIO, "events cannot be waited for: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        watch *w = map_u64_find(&l->watches, events[i].data.u64);
        if (!w) continue;
        watch copy = *w; /* the callback may change the map */
        uint32_t got = events[i].events;
        copy.fn(copy.ctx, copy.fd, (got & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0, (got & EPOLLOUT) != 0);
    }
    return MANTA_OK;
}
