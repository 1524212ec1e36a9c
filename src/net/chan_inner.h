/* chan_inner.h - what chan.c, chan_open.c, chan_end.c and chan_wait.c know of a channel. */
#ifndef NET_CHAN_INNER_H
#define NET_CHAN_INNER_H

#include "net/chan.h"

enum {
    CHAN_IN_SIZE = 256 * 1024, /* of `in` */
    CHAN_OUT_ROOM = 256 * 1024 + 2 * SECURE_RECORD, /* of `out` */
};

struct chan_end {
    secure_context *tls;
    hello say;
    int64_t handshake_ms;
    int silence_ms;
    uint64_t max_frame;
    bool key_given;
    manta_status (*check)(void *ctx, const hello *theirs);
    void *ctx;
};

typedef enum chan_state { CONNECTING, PROVING, GREETING, OPEN, FAILED } chan_state;

typedef struct chan_send_item {
    unsigned char head[FRAME_SIZE];
    bool plain, headed; /* headed: the head is on its way */
    int n_parts, part; /* parts[part] is the first with bytes left */
    chan_part parts[CHAN_PARTS];
    char *own; /* memory to free when it is sent, or NULL */
} chan_send_item;

struct chan {
    chan_end *e;
    int fd;
    chan_state state;
    secure *tls;
    int64_t deadline; /* for being open */
    int64_t connect_ns; /* for the address that is tried */
    tcp_place *to; /* connecting: where to, and which address is being tried */
    int to_i;
    char peer[SECURE_NODE]; /* whom we mean; "" when we were connected to */
    char address[TCP_TEXT], name[TCP_TEXT + SECURE_NODE + 8];
    hello theirs;
    uint32_t generation;
    manta_error error; /* why the channel failed */
    bool eof;
    bool proven; /* the other side has the key */
    int64_t sent_ns, heard_ns; /* when bytes went and came last */
    int64_t looked_ns; /* when it was last asked whether its machine is there */
    uint32_t note, their_note; /* of the pulses */
    bool unanswered; /* we have shown ours, and it closed the connection */
    /* bytes */
    char *in, *out;
    size_t in_at, in_n, out_at, out_n;
    /* sending */
    chan_send_item queue[CHAN_QUEUE];
    int first, n_queued;
    uint32_t sent, received; /* sequence numbers */
    /* receiving */
    unsigned char head[FRAME_SIZE];
    size_t head_n;
    bool peeked;
    bool sips; /* the last frame was much unencrypted bulk, so the next is likely to be: past `in` with it */
    frame f;
    uint64_t left;
};

/* The channel has failed for good, of the error that st stands for; returns it. */
manta_status chan_fail(chan *c, manta_status st);
/* The sentence of a channel that has failed, again. */
manta_status chan_failed(const chan *c);
void chan_drop_socket(chan *c);
void chan_drop_queue(chan *c);

/* What TLS takes its bytes from and gives them to; `ctx` is the channel. */
ssize_t chan_tls_pull(void *ctx, void *out, size_t n);
void chan_tls_push(void *ctx, const void *data, size_t n);

/* Sends of `out` what the socket takes; of the queue too. */
manta_status chan_flush_out(chan *c);
manta_status chan_flush(chan *c);

/* Says that we are here when nothing was said for a while, and fails a channel whose machine is not
 * there any more. Of open channels, often. */
void chan_tend(chan *c);

/* Queues a frame, on a channel in any state; `own` is freed when it is sent. */
manta_status chan_enqueue(chan *c, const frame *f, const chan_part *parts, int n, bool plain, char *own);
/* Takes a whole small frame; MANTA_EBUSY (no sentence) when it is not all here. */
manta_status chan_read_small(chan *c, char *text, size_t size, size_t *n);
/* Fails with why the other side will not talk to us, as it says. */
manta_status chan_read_refusal(chan *c, const char *text, size_t n);

#endif
