/* ring.c - the channels of a group over the network: frames are taken from them, checked and put where they
 * belong; sleeping until one has something; leaving. What calls send is in ring_call.c, the kinds of frames and
 * the invariants in ring.h.
 *
 *     of each peer:  chan_peek ──▶ place_frame ──▶ chan_take, part by part ──▶ frame_arrived ──▶ the next frame
 *                        │             │  │              │
 *                        │             │  └ its place is taken: it stays at hand until the next ring_pump()
 *                        │             └─── it is none that is awaited: MANTA_ECORRUPT, the end of the group
 *                        └─ the channel has failed ──────┴──▶ ring_lose: `gone`, and `why`
 *
 * A peer is here; or it has said BYE (`left`), or ABORT (`aborted`, and `gone`), or its channel has failed
 * (`gone`). It never comes back. What it sent before counts, so a rank that is gone is missed only by a call that
 * still needs something of it.
 *
 * Who writes what: all under the group's lock, but what ring_sleep() reads without it, which is atomic: the
 * descriptors and wants_out. Another thread ends a sleep through the eventfd `wake`.
 *
 * What may be changed: how long the last words and the draining of peers may take. What may not: that
 * place_frame() looks at a frame's kind, number, item and length before a byte of it is taken, and that of one
 * that does not fit no byte is taken. */
#include "comm/ring.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/socket.h"
#include "os/sys.h"

enum { BYE_MS = 1000, DRAIN_MS = 1000 };

/* ---- the frames that come ---- */

static manta_status fail_unexpected(int from, const frame *f)
{
    return manta_fail(
        MANTA_ECORRUPT,
        "rank %d sent a frame that has no place here: kind %u of number %llu, item %u, %llu bytes", from,
        f->kind, (unsigned long long)f->step, f->item, (unsigned long long)f->length);
}

static manta_status fail_twice(int from, const char *what, uint64_t number)
{
    return manta_fail(MANTA_ECORRUPT, "rank %d sent %s %llu twice", from, what, (unsigned long long)number);
}

/* Where the bytes go; everything in the frame's head is checked here. */
static manta_status place_frame(ring *t, int from, const frame *f, char **to)
{
    ring_peer *p = &t->peers[from];
    manta_work *w = p->receiving;

    *to = p->small;
    switch (f->kind) {
    case RING_CALL:
        if (f->step < p->called) return fail_twice(from, "its words of collective", f->step);
        if (f->length < sizeof(call_words) || f->length > sizeof p->small || f->step > t->calls ||
            f->step != p->called || p->entry[f->step % 2].is_here)
            return fail_unexpected(from, f);
        return MANTA_OK;
    case RING_DATA: return ring_place(t, from, f, to);
    case RING_READY:
        if (f->step < p->readied) return fail_twice(from, "that it waits for message", f->step);
        if (f->length != sizeof(call_words) || p->is_ready || f->step != p->readied)
            return fail_unexpected(from, f);
        return MANTA_OK;
    case RING_REFUSED:
        if (f->length != sizeof(call_words) || !w || f->step != w->words.number || w->consumed)
            return fail_unexpected(from, f);
        return MANTA_OK;
    case RING_MESSAGE: {
        if (!w || f->step != w->words.number) return fail_unexpected(from, f);
        if (f->item < (uint64_t)w->consumed && !w->status)
            return fail_twice(from, "a message's chunk", f->item);
        if (f->item != (uint64_t)w->consumed || w->consumed == w->steps) return fail_unexpected(from, f);
        size_t at = (size_t)w->consumed * w->chunk, left = w->size - at;
        if (f->length != (left < w->chunk ? left : w->chunk)) return fail_unexpected(from, f);
        if (f->length) *to = (char *)w->c.out + at;
        return MANTA_OK;
    }
    case RING_BYE: return f->length ? fail_unexpected(from, f) : MANTA_OK;
    case RING_ABORT: return f->length > sizeof(manta_error) ? fail_unexpected(from, f) : MANTA_OK;
    default: return fail_unexpected(from, f);
    }
}

/* All bytes of the frame are there. */
static manta_status frame_arrived(ring *t, int from, const frame *f)
{
    ring_peer *p = &t->peers[from];
    call_words words;
    manta_error e;

    switch (f->kind) {
    case RING_CALL: {
        ring_entry *n = &p->entry[f->step % 2];
        memcpy(&n->words, p->small, sizeof n->words);
        n->n = (size_t)f->length - sizeof n->words;
        memcpy(n->data, p->small + sizeof n->words, n->n);
        n->is_here = true;
        p->called++;
        break;
    }
    case RING_DATA: ring_arrived(t, from, f); break;
    case RING_READY:
        memcpy(&p->wanted, p->small, sizeof p->wanted);
        p->is_ready = true;
        p->readied++;
        break;
    case RING_REFUSED:
        memcpy(&words, p->small, sizeof words);
        p->receiving->status = call_compare(from, &words, t->rank, &p->receiving->words);
        if (!p->receiving->status) return fail_unexpected(from, f);
        manta_error_get(&p->receiving->error);
        p->receiving->consumed = p->receiving->steps;
        break;
    case RING_MESSAGE: p->receiving->consumed++; break;
    case RING_BYE: p->left = true; break;
    case RING_ABORT:
        memset(&e, 0, sizeof e);
        memcpy(&e, p->small, (size_t)f->length);
        e.text[sizeof e.text - 1] = e.host[sizeof e.host - 1] = '\0';
        if (e.code <= MANTA_OK || e.code > MANTA_EINTERRUPTED) e.code = MANTA_ECORRUPT;
        for (char *c = e.text; *c; c++)
            if ((unsigned char)*c < ' ') *c = ' ';
        if (!e.text[0]) snprintf(e.text, sizeof e.text, "rank %d has given up and does not say why", from);
        (void)!manta_error_raise(&e);
        ring_lose(p); /* what it sent before may still complete the call at hand */
        p->aborted = true;
        break;
    default: break;
    }
    return MANTA_OK;
}

void ring_lose(ring_peer *p)
{
    manta_error_get(&p->why);
    p->gone = true;
    atomic_store_explicit(&p->fd, -1, memory_order_relaxed);
    p->taking = false;
    atomic_store_explicit(&p->wants_out, false, memory_order_relaxed);
}

static manta_status pump_one(ring *t, int from, bool *moved)
{
    ring_peer *p = &t->peers[from];

    while (!p->gone) {
        size_t got;
        if (!p->taking) {
            manta_status st = chan_peek(p->c, &p->f);
            if (st == MANTA_EBUSY) break;
            if (st == MANTA_ECORRUPT) return st;
            if (st) {
                ring_lose(p);
                break;
            }
            st = place_frame(t, from, &p->f, &p->to);
            if (st == MANTA_EBUSY) break; /* its place is taken; the frame stays at hand */
            if (st) return st;
            p->at = 0;
            p->taking = true;
        }
        if (chan_take(p->c, p->to + p->at, (size_t)(p->f.length - p->at), &got)) {
            ring_lose(p);
            break;
        }
        p->at += got;
        if (got) *moved = true;
        if (p->at < p->f.length) break;
        p->taking = false;
        *moved = true;
        TRY(frame_arrived(t, from, &p->f));
        if (p->f.kind == RING_CALL && t->current)
            break; /* it is what we wait for: do not look for more first */
    }
    return MANTA_OK;
}

manta_status ring_pump(ring *t, bool *moved)
{
    for (int i = 0; i < t->size; i++) {
        ring_peer *p = &t->peers[i];
        if (!p->c || p->gone) continue;
        TRY(pump_one(t, i, moved));
        if (!p->gone && !chan_is_idle(p->c) && chan_work(p->c)) ring_lose(p);
        if (!p->gone) atomic_store_explicit(&p->wants_out, !chan_is_idle(p->c), memory_order_relaxed);
    }
    return MANTA_OK;
}

/* ---- sleeping ---- */

static uint32_t ring_arm(void *ctx)
{
    (void)ctx; /* sockets stay readable, so nothing is lost between looking and sleeping */
    return 0;
}

static void ring_sleep(void *ctx, uint32_t armed, int64_t deadline)
{
    ring *t = ctx;
    struct pollfd fds[MANTA_GROUP_MAX + 1];
    int n = 0;
    (void)armed;

    fds[n++] = (struct pollfd){.fd = t->wake, .events = POLLIN};
    for (int i = 0; i < t->size; i++) {
        const ring_peer *p = &t->peers[i];
        bool out = atomic_load_explicit(&p->wants_out, memory_order_relaxed);
        int fd = atomic_load_explicit(&p->fd, memory_order_relaxed);
        if (fd >= 0) fds[n++] = (struct pollfd){.fd = fd, .events = (short)(POLLIN | (out ? POLLOUT : 0))};
    }
    if (socket_poll(fds, n, clock_left_ms(deadline)) > 0 && fds[0].revents) {
        uint64_t count;
        (void)!os->read(t->wake, &count, sizeof count);
    }
}

static void ring_disarm(void *ctx)
{
    (void)ctx;
}

static void ring_wake(void *ctx)
{
    ring *t = ctx;
    uint64_t one = 1;

    (void)!os->write(t->wake, &one, sizeof one);
}

/* ---- life ---- */

/* Says the last thing, as far as that goes without waiting long. */
static void say_last(ring *t, uint16_t kind, const void *data, size_t n)
{
    chan_part part = {.data = data, .n = n};
    int64_t deadline = clock_deadline(BYE_MS);

    for (int i = 0; i < t->size; i++) {
        ring_peer *p = &t->peers[i];
        if (!p->c || p->gone || p->left) continue;
        if (chan_post(p->c, &(frame){.kind = kind}, &part, 1, false) || chan_work(p->c)) ring_lose(p);
    }
    for (int i = 0; i < t->size; i++) {
        ring_peer *p = &t->peers[i];
        while (p->c && !p->gone && !p->left && !chan_is_idle(p->c)) {
            chan_item it = {.c = p->c};
            if (chan_wait(&it, 1, NULL, 0, deadline) || chan_work(p->c)) break;
        }
    }
}

static void ring_abort(void *ctx, const manta_error *e)
{
    ring *t = ctx;

    if (!t->aborted) say_last(t, RING_ABORT, e, sizeof *e);
    t->aborted = true;
}

/* After giving up: a socket that is closed with something unread takes back
 * what the others have not read yet, our reason among it. So we read until they
 * close, or are too slow. */
static void drain_peers(ring *t)
{
    int64_t deadline = clock_deadline(DRAIN_MS);
    char waste[4096];

    for (int i = 0; i < t->size; i++) {
        int fd = atomic_load_explicit(&t->peers[i].fd, memory_order_relaxed);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct iovec part = {.iov_base = waste, .iov_len = sizeof waste};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
        if (fd < 0) continue;
        (void)shutdown(fd, SHUT_WR);
        for (;;) {
            ssize_t got = os->recvmsg(fd, &m, MSG_DONTWAIT);
            int left = clock_left_ms(deadline);
            if (got > 0 || (got < 0 && errno == EINTR)) continue;
            if (got == 0 || errno != EAGAIN || left <= 0 || socket_poll(&p, 1, left) <= 0) break;
        }
    }
}

static void ring_free(ring *t)
{
    for (int i = 0; t->peers && i < t->size; i++) {
        ring_peer *p = &t->peers[i];
        chan_close(p->c);
        mem_free(p->entry[0].data);
        mem_free(p->entry[1].data);
        mem_free(p->say);
    }
    chan_end_free(t->end);
    if (t->wake >= 0) os->close(t->wake);
    mem_try_free(t->scratch);
    mem_try_free(t->copy);
    mem_free(t->peers);
    mem_free(t);
}

static void ring_close(void *ctx)
{
    ring *t = ctx;

    if (t->aborted)
        drain_peers(t);
    else
        say_last(t, RING_BYE, NULL, 0);
    ring_free(t);
}

manta_status ring_new(int rank, int size, chan_end *end, chan **peers, ring **out)
{
    ring *t = mem_new(sizeof *t);

    t->rank = rank;
    t->size = size;
    t->end = end;
    t->peers = mem_new(sizeof *t->peers * (size_t)size);
    for (int i = 0; i < size; i++) {
        ring_peer *p = &t->peers[i];
        p->c = peers[i];
        atomic_init(&p->fd, p->c ? chan_fd(p->c) : -1);
        if (!p->c) continue;
        tcp_widen(chan_fd(p->c));
        p->entry[0].data = mem_new(RING_EAGER);
        p->entry[1].data = mem_new(RING_EAGER);
        p->say = mem_new(sizeof(call_words) + RING_EAGER);
    }
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->wake < 0) {
        manta_status st = manta_fail(MANTA_EIO, "an eventfd cannot be made: %s", strerror(errno));
        ring_free(t);
        return st;
    }
    *out = t;
    return MANTA_OK;
}

const transport ring_transport = {
    .name = "ring",
    .poll = ring_poll,
    .arm = ring_arm,
    .sleep = ring_sleep,
    .disarm = ring_disarm,
    .wake = ring_wake,
    .missing = ring_missing,
    .abort = ring_abort,
    .memory = NULL,
    .close = ring_close,
};
