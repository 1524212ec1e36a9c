/* chan_wait.c - sleeping until a channel can move, and whole frames by way of it. */
#include "base/clock.h"
#include "base/mem.h"
#include "net/chan_inner.h"
#include "os/sys.h"

enum { TEND_MS = 500 }; /* signs of life are looked after so often */

/* ---- waiting ---- */

/* Whether there may be something to read without asking the socket. */
static bool has_input(const chan *c)
{
    return c->in_n > 0 || c->eof || (c->tls && secure_pending(c->tls));
}

static short events_wanted(const chan *c, bool read)
{
    switch (c->state) {
    case CONNECTING: return POLLOUT;
    case PROVING:
    case GREETING: return c->out_n && secure_proven(c->tls) ? POLLIN | POLLOUT : POLLIN;
    case OPEN: return (short)((read ? POLLIN : 0) | (c->n_queued || c->out_n ? POLLOUT : 0));
    case FAILED: break;
    }
    return 0;
}

/* One item before the wait: works on it, and says what to poll for. True when
 * there is no reason to wait. */
static bool prepare_poll(chan_item *it, struct pollfd *p, int64_t *deadline)
{
    chan *c = it->c;
    bool was_open;
    int unsent;

    *p = (struct pollfd){.fd = -1};
    it->ready = false;
    if (!c) return false;
    was_open = chan_is_open(c);
    unsent = chan_unsent(c);
    if (was_open) chan_tend(c);
    if (chan_work(c)) return it->ready = true;
    if (was_open && *deadline > clock_deadline(TEND_MS)) *deadline = clock_deadline(TEND_MS);
    if (!was_open && chan_is_open(c)) return it->ready = true;
    if (!was_open && c->deadline < *deadline) *deadline = c->deadline;
    if (c->state == CONNECTING && c->connect_ns < *deadline) *deadline = c->connect_ns;
    if (c->state == OPEN && it->read && has_input(c)) it->ready = true;
    *p = (struct pollfd){.fd = c->fd, .events = events_wanted(c, it->read)};
    return it->ready || (unsent && !chan_unsent(c));
}

manta_status chan_wait(chan_item *items, int n, struct pollfd *fds, int n_fds, int64_t deadline)
{
    struct pollfd few[32], *all = n + n_fds <= 32 ? few : mem_new((size_t)(n + n_fds) * sizeof *all);
    int64_t until = deadline;
    bool ready = false;
    int got;

    for (int i = 0; i < n; i++) ready |= prepare_poll(&items[i], &all[i], &until);
    for (int i = 0; i < n_fds; i++) all[n + i] = fds[i];
    got = os->poll(all, (nfds_t)(n + n_fds), ready ? 0 : clock_left_ms(until));
    for (int i = 0; got > 0 && i < n; i++) {
        if (all[i].fd < 0 || !all[i].revents) continue;
        if (all[i].revents & (POLLHUP | POLLERR) || (items[i].read && all[i].revents & POLLIN))
            items[i].ready = true;
        (void)chan_work(items[i].c); /* a failure stays, and is found by the next call */
    }
    for (int i = 0; i < n_fds; i++) fds[i].revents = got > 0 ? all[n + i].revents : 0;
    if (all != few) mem_free(all);
    if (got > 0 || ready || until < deadline) return MANTA_OK;
    return deadline != CLOCK_NEVER && clock_now_ns() >= deadline ? MANTA_ETIMEDOUT : MANTA_OK;
}

/* ---- one thing at a time ---- */

static manta_status timed_out(const chan *c, const char *what)
{
    return manta_fail(MANTA_ETIMEDOUT, "%s: %s in time", c->name, what);
}

manta_status chan_await_open(chan *c, int64_t deadline)
{
    while (!chan_is_open(c)) {
        chan_item it = {.c = c, .read = true};
        TRY(chan_work(c));
        if (chan_is_open(c)) break;
        if (chan_wait(&it, 1, NULL, 0, deadline) || clock_now_ns() >= deadline)
            return timed_out(c, "it was not ready");
    }
    return MANTA_OK;
}

/* One step of receiving a whole frame; *done when it is all there. */
static manta_status recv_some(chan *c, frame *f, char *out, size_t size, size_t *n, bool *begun, bool *done)
{
    manta_status st;
    size_t got;

    if (!*begun) {
        st = chan_peek(c, f);
        if (st == MANTA_EBUSY) return MANTA_OK;
        if (st) return st;
        if (f->length > size) {
            return chan_fail(c,
                             manta_fail(MANTA_ECORRUPT, "a message has %llu bytes, where %zu were expected",
                                        (unsigned long long)f->length, size));
        }
        *begun = true;
    }
    TRY(chan_take(c, out + *n, size - *n, &got));
    *n += got;
    *done = *n == f->length;
    return MANTA_OK;
}

manta_status chan_exchange(chan *to, const frame *f, const void *data, size_t n, chan *from, frame *got,
                           void *out, size_t size, int64_t deadline)
{
    chan_part part = {.data = data, .n = n};
    bool begun = false, done = !from;
    size_t received = 0;
    /* Who asks with a deadline that has passed wants what is here. */
    int64_t late = clock_now_ns() < deadline ? deadline : CLOCK_NEVER;

    if (to) TRY(chan_post(to, f, &part, 1, true));
    for (;;) {
        chan_item items[2] = {{.c = to, .read = to && to == from && !done},
                              {.c = from != to ? from : NULL, .read = !done}};
        if (to) TRY(chan_work(to));
        if (!done) TRY(recv_some(from, got, out, size, &received, &begun, &done));
        if (done && (!to || !chan_unsent(to))) return MANTA_OK;
        if (chan_wait(items, 2, NULL, 0, deadline) || clock_now_ns() >= late)
            return done ? timed_out(to, "it did not take a message")
                        : timed_out(from, "it did not send a message");
    }
}

manta_status chan_send(chan *c, const frame *f, const void *data, size_t n, int64_t deadline)
{
    return chan_exchange(c, f, data, n, NULL, NULL, NULL, 0, deadline);
}

manta_status chan_recv(chan *c, frame *f, void *out, size_t size, int64_t deadline)
{
    return chan_exchange(NULL, NULL, NULL, 0, c, f, out, size, deadline);
}
