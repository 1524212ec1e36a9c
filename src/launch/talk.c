/* talk.c - see talk.h. */
#include "launch/talk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/sys.h"

enum { HEAD = 5, CHUNK = 65536, NOISE = 4096 };

void talk_init(talk *t, int in, int out, bool expects_greeting)
{
    *t = (talk){.in = in, .out = out, .greeted = !expects_greeting, .heard_ns = clock_now_ns()};
    (void)os->fcntl(in, F_SETFL, O_NONBLOCK);
    (void)os->fcntl(out, F_SETFL, O_NONBLOCK);
}

int talk_pulse_ms(int64_t lease_ms)
{
    int64_t ms = lease_ms / 4 < TALK_PULSE_MS ? lease_ms / 4 : TALK_PULSE_MS;

    return ms < 10 ? 10 : (int)ms;
}

/* A key may have been in it. */
static void wipe_buf(buf *b)
{
    if (b->at) explicit_bzero(b->at, b->n);
    buf_release(b);
}

void talk_release(talk *t)
{
    wipe_buf(&t->inbox);
    wipe_buf(&t->outbox);
    *t = (talk){.in = -1, .out = -1};
}

/* Forgets the first n bytes, which were taken or sent. */
static void drop_front(buf *b, size_t *n)
{
    size_t left = b->n - *n;

    if (!*n) return;
    memmove(b->at, b->at + *n, left);
    explicit_bzero(b->at + left, *n);
    buf_cut(b, left);
    *n = 0;
}

manta_status talk_read(talk *t)
{
    ssize_t n;

    drop_front(&t->inbox, &t->taken);
    if (t->in < 0 || t->ended) return MANTA_OK;
    buf_reserve(&t->inbox, CHUNK);
    n = os->read(t->in, t->inbox.at + t->inbox.n, CHUNK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return MANTA_OK;
    if (n < 0 && errno != EIO && errno != ECONNRESET)
        return manta_fail(MANTA_EIO, "what the other side sends cannot be read: %s", strerror(errno));
    if (n <= 0) {
        t->ended = true;
        return MANTA_OK;
    }
    t->inbox.n += (size_t)n;
    t->inbox.at[t->inbox.n] = '\0';
    t->heard_ns = clock_now_ns();
    return MANTA_OK;
}

/* Looks for the greeting; what is before it is noise, of which the end is kept. */
static void find_greeting(talk *t)
{
    size_t n = strlen(TALK_GREETING);
    char *at = t->inbox.n ? memmem(t->inbox.at, t->inbox.n, TALK_GREETING, n) : NULL;

    if (at) {
        t->taken = (size_t)(at - t->inbox.at) + n;
        t->greeted = true;
        drop_front(&t->inbox, &t->taken);
    } else if (t->inbox.n > NOISE) {
        t->taken = t->inbox.n - NOISE;
        drop_front(&t->inbox, &t->taken);
    }
}

const char *talk_noise(talk *t)
{
    return t->greeted ? "" : buf_text(&t->inbox);
}

static uint32_t read_u32(const char *at)
{
    const unsigned char *p = (const unsigned char *)at;

    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void write_u32(char *at, uint32_t v)
{
    for (int i = 0; i < 4; i++) at[i] = (char)(v >> 8 * i & 255);
}

manta_status talk_next(talk *t, talk_message *out, bool *found)
{
    size_t left;
    uint32_t n;

    *found = false;
    if (!t->greeted) find_greeting(t);
    if (!t->greeted) return MANTA_OK;
    left = t->inbox.n - t->taken;
    if (left < HEAD) return MANTA_OK;
    n = read_u32(t->inbox.at + t->taken);
    if (n > TALK_MOST)
        return manta_fail(MANTA_ECORRUPT, "a message of %u bytes has come, at most %d are possible", n,
                          TALK_MOST);
    if (left < HEAD + (size_t)n) return MANTA_OK;
    *out = (talk_message){.kind = (talk_kind)(unsigned char)t->inbox.at[t->taken + 4],
                          .data = t->inbox.at + t->taken + HEAD,
                          .n = n};
    t->taken += HEAD + (size_t)n;
    *found = true;
    return MANTA_OK;
}

static void post_head(talk *t, talk_kind kind, size_t n)
{
    char head[HEAD];

    write_u32(head, (uint32_t)n);
    head[4] = (char)kind;
    drop_front(&t->outbox, &t->sent);
    buf_add(&t->outbox, head, sizeof head);
}

void talk_post(talk *t, talk_kind kind, const void *data, size_t n)
{
    post_head(t, kind, n);
    buf_add(&t->outbox, data, n);
}

void talk_post_json(talk *t, talk_kind kind, json_t *takes)
{
    char *text = json_dumps(takes, JSON_COMPACT);

    json_decref(takes);
    if (!text) abort(); /* control memory, or a text of ours that is no UTF-8: callers check those */
    talk_post(t, kind, text, strlen(text));
    free(text);
}

void talk_greet(talk *t)
{
    buf_add_text(&t->outbox, TALK_GREETING);
}

manta_status talk_write(talk *t)
{
    while (t->out >= 0 && t->sent < t->outbox.n) {
        ssize_t n = os->write(t->out, t->outbox.at + t->sent, t->outbox.n - t->sent);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) return manta_fail(MANTA_EDIED, "nobody reads what is sent: %s", strerror(errno));
        t->sent += (size_t)n;
    }
    if (t->out < 0) t->sent = t->outbox.n;
    drop_front(&t->outbox, &t->sent);
    return MANTA_OK;
}

size_t talk_waiting(const talk *t)
{
    return t->outbox.n - t->sent;
}

manta_status talk_json(const talk_message *m, json_t **out)
{
    json_error_t why;
    json_t *v = json_loadb(m->data, m->n, JSON_REJECT_DUPLICATES, &why);

    if (json_is_object(v)) {
        *out = v;
        return MANTA_OK;
    }
    if (!v) return manta_fail(MANTA_ECORRUPT, "message '%c': %s", m->kind, why.text);
    json_decref(v);
    return manta_fail(MANTA_ECORRUPT, "message '%c': expected an object", m->kind);
}

manta_status talk_output(const talk_message *m, uint32_t *rank, int *stream)
{
    if (m->n < TALK_OUTPUT_HEAD)
        return manta_fail(MANTA_ECORRUPT, "a message of output has %zu bytes: expected a head of %d at least",
                          m->n, TALK_OUTPUT_HEAD);
    *rank = read_u32(m->data);
    *stream = m->data[4] == 2 ? 2 : 1;
    return MANTA_OK;
}

void talk_post_output(talk *t, uint32_t rank, int stream, const void *data, size_t n)
{
    char head[TALK_OUTPUT_HEAD];

    write_u32(head, rank);
    head[4] = (char)stream;
    post_head(t, TALK_OUTPUT, sizeof head + n);
    buf_add(&t->outbox, head, sizeof head);
    buf_add(&t->outbox, data, n);
}
