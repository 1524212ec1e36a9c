/* chan.c - see chan.h: frames to and from an open channel; how it becomes open is
 * chan_open.c's.
 *
 * Bytes on their way: received ones wait in `in`, encrypted or not, until TLS
 * or (unencrypted bulk) the caller takes them; those to send wait in `out`
 * after encryption. Unencrypted bulk never goes through either: it is sent
 * from, and received into, the caller's memory. */
#include "net/chan_inner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/sys.h"

enum {
    SIP_SIZE = 128, /* an encrypted head and little else */
    SIP_FROM = 64 * 1024, /* unencrypted bytes of a frame that are worth a call of their own */
    OUT_SIZE =
        CHAN_OUT_ROOM - 2 * SECURE_RECORD, /* encrypting stops at so much; one record may come on top */
};

/* ---- failing ---- */

void chan_drop_socket(chan *c)
{
    if (c->fd >= 0) os->close(c->fd);
    c->fd = -1;
}

void chan_drop_queue(chan *c)
{
    for (; c->n_queued; c->n_queued--, c->first = (c->first + 1) % CHAN_QUEUE) {
        mem_free(c->queue[c->first].own);
        c->queue[c->first].own = NULL;
    }
}

/* From here on every call repeats the sentence, which begins with the name. */
manta_status chan_fail(chan *c, manta_status st)
{
    char why[sizeof c->error.text];

    snprintf(why, sizeof why, "%s", manta_error_text());
    st = manta_fail(st, "%s: %s", c->name, why);
    manta_error_get(&c->error);
    c->state = FAILED;
    chan_drop_socket(c);
    chan_drop_queue(c);
    return st;
}

manta_status chan_failed(const chan *c)
{
    return manta_error_raise(&c->error);
}

/* ---- bytes from and to the socket ---- */

static bool is_gone(int err)
{
    return err == EPIPE || err == ECONNRESET || err == ENOTCONN || err == ETIMEDOUT || err == EHOSTUNREACH ||
           err == ENETUNREACH || err == ENETDOWN || err == ECONNREFUSED || err == EHOSTDOWN;
}

/* Up to n bytes; *got 0 when there are none now. */
static manta_status socket_pull(chan *c, void *out, size_t n, size_t *got)
{
    struct iovec part = {.iov_base = out, .iov_len = n};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};

    *got = 0;
    while (!c->eof) {
        ssize_t r = os->recvmsg(c->fd, &m, MSG_DONTWAIT);
        if (r > 0) {
            *got = (size_t)r;
            c->heard_ns = clock_now_ns();
            return MANTA_OK;
        }
        if (r == 0) {
            c->eof = true;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return MANTA_OK;
        } else if (errno != EINTR) {
            return manta_fail(is_gone(errno) ? MANTA_EDIED : MANTA_EIO, "%s",
                              errno == ECONNRESET ? "the connection was reset" : strerror(errno));
        }
    }
    return manta_fail(MANTA_EDIED, "the connection was closed");
}

/* Sends what it can of up to CHAN_PARTS + 1 pieces. */
static manta_status socket_push(chan *c, struct iovec *parts, int n, size_t *sent)
{
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = (size_t)n};

    *sent = 0;
    for (;;) {
        ssize_t r = os->sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (r >= 0) {
            *sent = (size_t)r;
            c->sent_ns = clock_now_ns();
            return MANTA_OK;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return MANTA_OK;
        if (errno == EINTR) continue;
        return manta_fail(is_gone(errno) ? MANTA_EDIED : MANTA_EIO, "%s",
                          errno == ECONNRESET || errno == EPIPE ? "the connection was reset"
                                                                : strerror(errno));
    }
}

/* Fills `in`, which is empty, for TLS; false when there is nothing now. */
static bool fill_in(chan *c)
{
    size_t got;

    c->in_at = 0;
    /* A reset is as good as an end here: TLS says whether it came at the right place. */
    if (socket_pull(c, c->in, c->sips ? SIP_SIZE : CHAN_IN_SIZE, &got)) c->eof = true;
    c->in_n = got;
    return got || c->eof;
}

ssize_t chan_tls_pull(void *ctx, void *out, size_t n)
{
    chan *c = ctx;

    if (!c->in_n && !fill_in(c)) return -1;
    if (!c->in_n) return 0;
    if (n > c->in_n) n = c->in_n;
    memcpy(out, c->in + c->in_at, n);
    c->in_at += n;
    c->in_n -= n;
    return (ssize_t)n;
}

void chan_tls_push(void *ctx, const void *data, size_t n)
{
    chan *c = ctx;

    if (c->out_at && c->out_at + c->out_n + n > CHAN_OUT_ROOM) {
        memmove(c->out, c->out + c->out_at, c->out_n);
        c->out_at = 0;
    }
    if (c->out_at + c->out_n + n > CHAN_OUT_ROOM) return; /* never: chan_flush() leaves room for a record */
    memcpy(c->out + c->out_at + c->out_n, data, n);
    c->out_n += n;
}

/* Sends of `out` what the socket takes. */
manta_status chan_flush_out(chan *c)
{
    while (c->out_n) {
        struct iovec part = {.iov_base = c->out + c->out_at, .iov_len = c->out_n};
        size_t sent;
        TRY(socket_push(c, &part, 1, &sent));
        if (!sent) return MANTA_OK;
        c->out_at += sent;
        c->out_n -= sent;
    }
    c->out_at = 0;
    return MANTA_OK;
}

/* ---- sending ---- */

static void item_skip_empty(chan_send_item *q)
{
    while (q->part < q->n_parts && !q->parts[q->part].n) q->part++;
}

static void item_advance(chan_send_item *q, size_t n)
{
    while (n) {
        chan_part *p = &q->parts[q->part];
        size_t k = n < p->n ? n : p->n;
        p->data = (const char *)p->data + k;
        p->n -= k;
        n -= k;
        item_skip_empty(q);
    }
}

/* Encrypts the next record's worth of an item: the head goes with the first
 * bytes, so that a small frame is one record. */
static manta_status encrypt_some(chan *c, chan_send_item *q)
{
    char record[SECURE_RECORD];
    size_t n = 0;

    if (!q->headed) {
        memcpy(record, q->head, FRAME_SIZE);
        n = FRAME_SIZE;
        q->headed = true;
    }
    if (q->plain) return secure_write(c->tls, record, n);
    if (n == 0 && q->part < q->n_parts && q->parts[q->part].n >= SECURE_RECORD) {
        TRY(secure_write(c->tls, q->parts[q->part].data, SECURE_RECORD));
        item_advance(q, SECURE_RECORD);
        return MANTA_OK;
    }
    while (n < SECURE_RECORD && q->part < q->n_parts) {
        chan_part *p = &q->parts[q->part];
        size_t k = SECURE_RECORD - n < p->n ? SECURE_RECORD - n : p->n;
        memcpy(record + n, p->data, k);
        n += k;
        item_advance(q, k);
    }
    return n ? secure_write(c->tls, record, n) : MANTA_OK;
}

/* What is encrypted and the bytes of an unencrypted item, in one call. */
static manta_status send_plain(chan *c, chan_send_item *q, bool *full)
{
    struct iovec parts[CHAN_PARTS + 1];
    int n = 0;
    size_t sent, of_out;

    if (c->out_n) parts[n++] = (struct iovec){.iov_base = c->out + c->out_at, .iov_len = c->out_n};
    for (int i = q->part; i < q->n_parts; i++) {
        if (q->parts[i].n)
            parts[n++] =
                (struct iovec){.iov_base = (void *)(uintptr_t)q->parts[i].data, .iov_len = q->parts[i].n};
    }
    TRY(socket_push(c, parts, n, &sent));
    *full = !sent;
    of_out = sent < c->out_n ? sent : c->out_n;
    c->out_at += of_out;
    c->out_n -= of_out;
    if (!c->out_n) c->out_at = 0;
    item_advance(q, sent - of_out);
    return MANTA_OK;
}

/* Moves the queue into `out` and `out` into the socket until either is full. */
manta_status chan_flush(chan *c)
{
    bool full = false;

    while (c->n_queued && !full) {
        chan_send_item *q = &c->queue[c->first];
        if (!q->headed || (!q->plain && q->part < q->n_parts)) {
            if (c->out_n >= OUT_SIZE) TRY(chan_flush_out(c));
            if (c->out_n >= OUT_SIZE) return MANTA_OK;
            TRY(encrypt_some(c, q));
        } else if (q->part < q->n_parts) {
            TRY(send_plain(c, q, &full));
        }
        if (!q->headed || q->part < q->n_parts) continue;
        mem_free(q->own);
        q->own = NULL;
        c->first = (c->first + 1) % CHAN_QUEUE;
        c->n_queued--;
    }
    return chan_flush_out(c);
}

manta_status chan_enqueue(chan *c, const frame *f, const chan_part *parts, int n, bool plain, char *own)
{
    chan_send_item *q;
    frame head = *f;

    if (c->n_queued == CHAN_QUEUE) return MANTA_EBUSY;
    if (n > CHAN_PARTS)
        return manta_fail(MANTA_EINVAL, "a message has %d parts, at most %d are possible", n, CHAN_PARTS);
    q = &c->queue[(c->first + c->n_queued) % CHAN_QUEUE];
    *q = (chan_send_item){.n_parts = n, .own = own};
    head.length = 0;
    for (int i = 0; i < n; i++) {
        q->parts[i] = parts[i];
        head.length += parts[i].n;
    }
    q->plain = plain && head.length > 0;
    item_skip_empty(q);
    head.flags = q->plain ? FRAME_PLAIN : 0;
    head.generation = c->generation;
    head.sequence = c->sent++;
    frame_write(&head, q->head);
    c->n_queued++;
    return MANTA_OK;
}

manta_status chan_post(chan *c, const frame *f, const chan_part *parts, int n, bool bulk)
{
    if (c->state == FAILED) return chan_failed(c);
    if (c->state != OPEN)
        return manta_fail(MANTA_EINVAL, "%s: nothing can be sent: the channel is not open yet", c->name);
    return chan_enqueue(c, f, parts, n, bulk && c->e->say.plain, NULL);
}

int chan_unsent(const chan *c)
{
    return c->n_queued + (c->out_n > 0); /* the last one may be encrypted and not yet on its way */
}

bool chan_is_idle(const chan *c)
{
    return !c->n_queued && !c->out_n;
}

/* ---- receiving ---- */

/* Bytes of the frame at hand, decrypted or as they came. */
static manta_status pull_bytes(chan *c, void *out, size_t n, bool plain, size_t *got)
{
    manta_status st;

    *got = 0;
    if (!plain) {
        /* Looking is most of what a channel does; TLS is not asked when there is nothing. */
        if (!c->in_n && !secure_pending(c->tls) && !fill_in(c)) return MANTA_OK;
        st = secure_read(c->tls, out, n, got);
        return st == MANTA_EBUSY ? MANTA_OK : st;
    }
    if (c->in_n) {
        *got = n < c->in_n ? n : c->in_n;
        memcpy(out, c->in + c->in_at, *got);
        c->in_at += *got;
        c->in_n -= *got;
        return MANTA_OK;
    }
    return socket_pull(c, out, n, got);
}

static manta_status read_head(chan *c)
{
    while (c->head_n < FRAME_SIZE) {
        size_t got;
        TRY(pull_bytes(c, c->head + c->head_n, FRAME_SIZE - c->head_n, false, &got));
        if (!got) return MANTA_EBUSY;
        c->head_n += got;
    }
    TRY(frame_read(c->head, c->state == OPEN ? c->e->max_frame : FRAME_HELLO_MAX, &c->f));
    if (c->f.sequence != c->received) {
        return manta_fail(MANTA_ECORRUPT, "message %u came where message %u was expected", c->f.sequence,
                          c->received);
    }
    if ((c->f.flags & FRAME_PLAIN) && !c->e->say.plain)
        return manta_fail(MANTA_ECORRUPT, "a message came unencrypted, which was not agreed on");
    c->received++;
    c->sips = (c->f.flags & FRAME_PLAIN) && c->f.length >= SIP_FROM;
    c->head_n = 0;
    c->left = c->f.length;
    c->peeked = true;
    return MANTA_OK;
}

/* Takes a whole small frame; MANTA_EBUSY (no sentence) when it is not all here. */
manta_status chan_read_small(chan *c, char *text, size_t size, size_t *n)
{
    size_t got;

    if (!c->peeked) TRY(read_head(c));
    if (c->f.length > size)
        return manta_fail(MANTA_ECORRUPT, "a hello or refusal of %llu bytes, expected at most %zu",
                          (unsigned long long)c->f.length, size);
    while (c->left) {
        TRY(pull_bytes(c, text + (c->f.length - c->left), (size_t)c->left, false, &got));
        if (!got) return MANTA_EBUSY;
        c->left -= got;
    }
    c->peeked = false;
    *n = (size_t)c->f.length;
    return MANTA_OK;
}

/* The other side says why it will not talk to us. */
manta_status chan_read_refusal(chan *c, const char *text, size_t n)
{
    char clean[400];
    size_t k = 0;

    for (size_t i = 0; i < n && k + 1 < sizeof clean; i++)
        clean[k++] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    clean[k] = '\0';
    (void)c;
    return manta_fail(MANTA_EPERM, "refused us: %s", clean);
}

/* Takes the pulses that come before the next frame. */
static manta_status read_pulses(chan *c)
{
    while (c->peeked && c->f.kind == FRAME_PULSE) {
        if (c->f.length)
            return manta_fail(MANTA_ECORRUPT, "a sign of life has %llu bytes, expected none",
                              (unsigned long long)c->f.length);
        c->their_note = c->f.item;
        c->peeked = false;
        TRY(read_head(c));
    }
    return MANTA_OK;
}

/* The next frame's head is at hand, and it is no refusal. */
static manta_status look_ahead(chan *c)
{
    char text[FRAME_HELLO_MAX];
    manta_status st;
    size_t n;

    if (c->state == FAILED) return chan_failed(c);
    if (c->state != OPEN) return MANTA_EBUSY;
    st = c->peeked ? MANTA_OK : read_head(c);
    if (!st) st = read_pulses(c);
    if (st) return st == MANTA_EBUSY ? st : chan_fail(c, st);
    if (c->f.kind != FRAME_REFUSE) return MANTA_OK;
    if ((st = chan_read_small(c, text, sizeof text, &n)) == MANTA_EBUSY) return st;
    return chan_fail(c, st ? st : chan_read_refusal(c, text, n));
}

manta_status chan_peek(chan *c, frame *out)
{
    TRY(look_ahead(c));
    if (c->f.kind >= FRAME_USER && c->f.generation != c->generation) {
        return chan_fail(c, manta_fail(MANTA_ECORRUPT,
                                       "a message of generation %u has come: expected one of generation %u",
                                       c->f.generation, c->generation));
    }
    *out = c->f;
    return MANTA_OK;
}

manta_status chan_look(chan *c)
{
    manta_status st = look_ahead(c);

    return st == MANTA_EBUSY ? MANTA_OK : st;
}

uint64_t chan_left(const chan *c)
{
    return c->peeked ? c->left : 0;
}

manta_status chan_take(chan *c, void *out, size_t n, size_t *got)
{
    manta_status st;

    *got = 0;
    if (c->state == FAILED) return chan_failed(c);
    if (!c->peeked) return manta_fail(MANTA_EINVAL, "%s: no message is at hand", c->name);
    if (n > c->left) n = (size_t)c->left;
    while (*got < n) {
        size_t k;
        st = pull_bytes(c, (char *)out + *got, n - *got, c->f.flags & FRAME_PLAIN, &k);
        if (st) return chan_fail(c, st);
        if (!k) break;
        *got += k;
        c->left -= k;
    }
    if (!c->left) c->peeked = false;
    return MANTA_OK;
}

/* ---- what is known of it ---- */

bool chan_is_open(const chan *c)
{
    return c->state == OPEN;
}

const hello *chan_peer(const chan *c)
{
    return &c->theirs;
}

const char *chan_claims(const chan *c)
{
    return c->tls ? secure_peer(c->tls) : "";
}

bool chan_is_proven(const chan *c)
{
    return c->proven;
}

bool chan_is_unanswered(const chan *c)
{
    return c->unanswered;
}

const char *chan_name(const chan *c)
{
    return c->name;
}

int chan_fd(const chan *c)
{
    return c->fd;
}

void chan_set_generation(chan *c, uint32_t generation)
{
    c->generation = generation;
}
