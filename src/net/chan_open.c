/* chan_open.c - the life of a channel: it is made, becomes open, and is closed.
 *
 *   CONNECTING ---> PROVING ---> GREETING ---> OPEN      chan.c takes over
 *   every address   TLS, key     hellos
 *        |             |            |
 *        +-------------+------------+--> FAILED: refused, gone, or past the deadline */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/chan_inner.h"
#include "os/sys.h"

/* For one address. The kernel asks again after 1, 3, 7, 15 s: whoever waits for that finds a network
 * that was cut long after it has healed. */
enum { CONNECT_MS = 1500 };

static void name_it(chan *c, const char *node)
{
    if (*node) {
        snprintf(c->name, sizeof c->name, "%s (%s)", node, c->address);
    } else {
        snprintf(c->name, sizeof c->name, "%s", c->address);
    }
}

/* ---- becoming open ---- */

static manta_status connect_next(chan *c)
{
    manta_status st = MANTA_ENOENT;

    while (c->to_i < c->to->n) {
        chan_drop_socket(c);
        st = tcp_connect(c->to, c->to_i++, &c->fd);
        c->connect_ns = clock_deadline(CONNECT_MS);
        if (!st) return MANTA_OK;
    }
    return st;
}

static manta_status finish_connecting(chan *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    manta_status st;

    if (os->poll(&p, 1, 0) > 0) {
        st = tcp_connected(c->fd, c->to->text);
    } else if (clock_now_ns() < c->connect_ns) {
        return MANTA_EBUSY;
    } else {
        st = manta_fail(MANTA_ETIMEDOUT, "it does not take the connection for %.1f s", CONNECT_MS / 1e3);
    }
    if (st && c->to_i < c->to->n) {
        TRY(connect_next(c));
        return MANTA_EBUSY;
    }
    if (st) return st;
    tcp_tune(c->fd, c->e->silence_ms);
    c->state = PROVING;
    return MANTA_OK;
}

static manta_status say_hello(chan *c)
{
    buf b = {0};
    chan_part part;

    hello_write(&c->e->say, &b);
    part.n = b.n;
    part.data = buf_take(&b);
    return chan_enqueue(c, &(frame){.kind = FRAME_HELLO}, &part, 1, false, (char *)(uintptr_t)part.data);
}

static manta_status prove_peer(chan *c)
{
    manta_status st = secure_handshake(c->tls);

    if (st && st != MANTA_EBUSY) {
        /* What TLS has to say to somebody without the key is not said. */
        c->out_n = c->out_at = 0;
        c->unanswered = *c->peer && st == MANTA_EDIED;
        return st;
    }
    if (secure_proven(c->tls)) TRY(chan_flush_out(c));
    if (st) return st;
    name_it(c, secure_peer(c->tls));
    c->proven = true;
    c->state = GREETING;
    return say_hello(c);
}

/* Tells the other side why, as far as that goes without waiting. */
static manta_status refuse_peer(chan *c, manta_status why)
{
    char text[sizeof c->error.text];
    chan_part part = {.data = text};
    manta_status st;

    snprintf(text, sizeof text, "%s", manta_error_text());
    part.n = strlen(text);
    st = chan_enqueue(c, &(frame){.kind = FRAME_REFUSE}, &part, 1, false, NULL);
    if (!st) st = chan_flush(c);
    if (!st) (void)shutdown(c->fd, SHUT_WR);
    return manta_fail(why, "%s", text);
}

static manta_status take_hello(chan *c)
{
    char text[FRAME_HELLO_MAX];
    size_t n;
    manta_status sent = chan_flush(c), st = chan_read_small(c, text, sizeof text, &n);

    /* One that has refused us and left cannot be sent anything: what it said before comes first. */
    if (st == MANTA_EBUSY && sent) return manta_fail(sent, "it left before it had said hello");
    TRY(st);
    if (c->f.kind == FRAME_REFUSE) return chan_read_refusal(c, text, n);
    if (c->f.kind != FRAME_HELLO)
        return manta_fail(MANTA_ECORRUPT, "it sent message %u, expected its hello", c->f.kind);
    TRY(hello_read(text, n, &c->theirs));
    st = hello_check(&c->e->say, &c->theirs);
    if (!st && strcmp(c->theirs.node, secure_peer(c->tls)))
        st = manta_fail(MANTA_EPERM, "it calls itself %s in its hello", c->theirs.node);
    if (!st && c->e->check) st = c->e->check(c->e->ctx, &c->theirs);
    if (st) return refuse_peer(c, st);
    c->state = OPEN;
    c->sent_ns = c->heard_ns = clock_now_ns();
    return MANTA_OK;
}

static manta_status become_open(chan *c)
{
    manta_status st = MANTA_OK;

    if (c->state == CONNECTING) st = finish_connecting(c);
    if (!st && c->state == PROVING) st = prove_peer(c);
    if (!st && c->state == GREETING) st = take_hello(c);
    if (st == MANTA_EBUSY && clock_now_ns() >= c->deadline) {
        static const char *const what[] = {"it does not take the connection", "it does not prove the key",
                                           "it does not say hello"};
        return manta_fail(MANTA_ETIMEDOUT, "%s for %.1f s", what[c->state], (double)c->e->handshake_ms / 1e3);
    }
    return st;
}

manta_status chan_work(chan *c)
{
    manta_status st;

    if (c->state == FAILED) return chan_failed(c);
    if (c->state != OPEN) {
        st = become_open(c);
        if (st && st != MANTA_EBUSY) return chan_fail(c, st);
        if (c->state != OPEN) return MANTA_OK;
    }
    st = chan_flush(c);
    return st ? chan_fail(c, st) : MANTA_OK;
}

/* ---- life ---- */

static chan *chan_new(chan_end *e, chan_state state)
{
    chan *c = mem_new(sizeof *c);

    c->e = e;
    c->fd = -1;
    c->state = state;
    c->deadline = clock_deadline(e->handshake_ms);
    c->in = mem_new(CHAN_IN_SIZE);
    c->out = mem_new(CHAN_OUT_ROOM);
    return c;
}

static manta_status start_tls(chan *c)
{
    return secure_new(c->e->tls, *c->peer ? c->peer : NULL,
                      (secure_io){.pull = chan_tls_pull, .push = chan_tls_push, .ctx = c}, &c->tls);
}

manta_status chan_connect(chan_end *e, const tcp_place *to, const char *peer, chan **out)
{
    chan *c = chan_new(e, CONNECTING);
    manta_status st;

    snprintf(c->peer, sizeof c->peer, "%s", peer);
    snprintf(c->address, sizeof c->address, "%s", to->text);
    name_it(c, peer);
    c->to = mem_new(sizeof *c->to);
    *c->to = *to;
    st = start_tls(c);
    if (!st) st = connect_next(c);
    if (st) {
        chan_close(c);
        return st;
    }
    *out = c;
    return MANTA_OK;
}

manta_status chan_adopt(chan_end *e, int fd, const char *peer, chan **out)
{
    chan *c = chan_new(e, PROVING);
    manta_status st;

    c->fd = fd;
    if (peer) snprintf(c->peer, sizeof c->peer, "%s", peer);
    snprintf(c->address, sizeof c->address, "a connection");
    name_it(c, c->peer);
    if (os->fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
        st = manta_fail(MANTA_EIO, "a socket cannot be set up: %s", strerror(errno));
    } else {
        st = start_tls(c);
    }
    if (st) {
        chan_close(c);
        return st;
    }
    *out = c;
    return MANTA_OK;
}

manta_status chan_accept(chan_end *e, int listener, chan **out)
{
    char from[TCP_TEXT];
    manta_status st;
    int fd;

    TRY(tcp_accept(listener, &fd, from));
    tcp_tune(fd, e->silence_ms);
    if ((st = chan_adopt(e, fd, NULL, out))) return st;
    memcpy((*out)->address, from, sizeof from);
    name_it(*out, "");
    return MANTA_OK;
}

void chan_close(chan *c)
{
    if (!c) return;
    chan_drop_socket(c);
    chan_drop_queue(c);
    secure_free(c->tls);
    mem_free(c->to);
    mem_free(c->in);
    mem_free(c->out);
    mem_free(c);
}
