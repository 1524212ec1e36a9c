/* chan_pulse.c - signs of life of a channel, in both directions.
 *
 *   ours      who waits on a channel (chan_wait()) and has sent nothing for PULSE_MS sends a
 *             pulse, with a note: whom it waits for itself. One that computes sends none, so that a
 *             process of which nothing is heard is the one that all wait for.
 *   its machine's   the kernel at the other end acknowledges whatever comes, also when its process
 *             computes or is stopped. A channel has failed when it has not done so for
 *             silence_ms while something was sent again and again. TCP_USER_TIMEOUT is not used: it
 *             also ends connections whose other side does not read for so long, which one that computes does not. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "net/chan_inner.h"

enum {
    PULSE_MS = 1000,
    LOOK_MS = 200, /* between two questions to the kernel */
    RESENT = 3, /* times without an answer: it was no hiccup */
};

static int64_t ms_since(int64_t ns)
{
    return (clock_now_ns() - ns) / 1000000;
}

/* How long its machine has acknowledged nothing of what is sent to it; 0: there is nothing. */
static int64_t machine_silence_ms(const chan *c)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;

    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &size)) return 0; /* no TCP: a test's */
    return info.tcpi_retransmits >= RESENT || info.tcpi_probes >= RESENT ? info.tcpi_last_ack_recv : 0;
}

void chan_tend(chan *c)
{
    if (!c->n_queued && !c->out_n && ms_since(c->sent_ns) >= PULSE_MS) {
        (void)chan_enqueue(c, &(frame){.kind = FRAME_PULSE, .item = c->note}, NULL, 0, false, NULL);
        c->sent_ns = clock_now_ns();
    }
    if (ms_since(c->heard_ns) < c->e->silence_ms || ms_since(c->looked_ns) < LOOK_MS) return;
    c->looked_ns = clock_now_ns();
    if (machine_silence_ms(c) < c->e->silence_ms) return;
    (void)chan_fail(c, manta_fail(MANTA_EDIED, "its machine has not answered for %.1f s",
                                  (double)machine_silence_ms(c) / 1e3));
}

void chan_set_note(chan *c, uint32_t note)
{
    c->note = note;
}

uint32_t chan_note(const chan *c)
{
    return c->their_note;
}

int64_t chan_quiet_ms(const chan *c)
{
    return ms_since(c->heard_ns);
}
