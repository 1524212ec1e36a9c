/* ring_fuzz.c - a rank that has the key and says anything at all. The input is
 * the call that the honest rank is in, and the frames that the other sends:
 *
 *   | call 1 | then per frame: kind 1 | number 1 | item 1 | length 2 | bytes ... |
 *
 * Whatever comes, the honest rank's memory stays its own, and the call ends or
 * waits. */
#include <string.h>
#include <sys/socket.h>

#include "comm/group.h"
#include "comm/ring.h"
#include "fuzz.h"

enum { N = 6000, TURNS = 64, FRAMES = 16 }; /* N floats are more than goes with the words */

static const cluster_key key = {.bytes = "0123456789abcdef0123456789abcde"};

typedef struct sides {
    chan_end *end[2];
    chan *c[2];
} sides;

static bool meet(sides *s)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds)) return false;
    for (int i = 0; i < 2; i++) {
        chan_options o = {.node = i ? "rank/1" : "rank/0", .job = "fuzz"};
        if (chan_end_new(&o, &key, &s->end[i])) return false;
        if (chan_adopt(s->end[i], fds[i], i ? NULL : "rank/1", &s->c[i])) return false;
    }
    for (int i = 0; i < TURNS && !(chan_is_open(s->c[0]) && chan_is_open(s->c[1])); i++)
        if (chan_work(s->c[0]) || chan_work(s->c[1])) return false;
    return chan_is_open(s->c[0]) && chan_is_open(s->c[1]);
}

/* Takes whatever the honest rank says, and forgets it. */
static void swallow(chan *c)
{
    static char waste[1 << 16];
    frame f;
    size_t got = 1;
    if (chan_work(c)) return;
    while (got && !chan_peek(c, &f))
        if (chan_take(c, waste, sizeof waste, &got)) return;
}

static void speak(chan *c, const uint8_t *data, size_t n)
{
    static char copies[FRAMES][1 << 16];
    for (int i = 0; i < FRAMES && n >= 5; i++) {
        frame f = {.kind = (uint16_t)(FRAME_USER + data[0] % 10), .step = data[1], .item = data[2]};
        size_t want = (size_t)data[3] << 8 | data[4], have = n - 5 < want ? n - 5 : want;
        chan_part part = {.data = copies[i], .n = want};
        memset(copies[i], 0, want);
        memcpy(copies[i], data + 5, have);
        if (chan_post(c, &f, &part, 1, false)) return;
        data += 5 + have;
        n -= 5 + have;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float in[2 * N], out[2 * N];
    sides s = {{NULL, NULL}, {NULL, NULL}};
    chan *peers[2] = {NULL, NULL};
    manta_group_options o;
    manta_group *g = NULL;
    manta_work *w = NULL;
    ring *t;
    if (size < 1 || !meet(&s)) goto out;
    peers[1] = s.c[0];
    if (group_options(NULL, &o) || ring_new(0, 2, s.end[0], peers, &t)) goto out;
    s.c[0] = NULL;
    s.end[0] = NULL;
    if (group_new(&ring_transport, t, 0, 2, &o, &g)) goto out;
    manta_collective c = {.kind = (manta_collective_kind)(data[0] % MANTA_COLLECTIVE_COUNT),
                          .in = in,
                          .out = out,
                          .n = data[0] & 0x40 ? N : 10,
                          .peer = 1,
                          .reduce = (manta_reduce)((data[0] >> 4) % 4)};
    if (manta_group_start(g, &c, &w)) goto out;
    speak(s.c[1], data + 1, size - 1);
    for (int i = 0; i < TURNS && !manta_work_test(w); i++) swallow(s.c[1]);
out:
    chan_close(s.c[1]); /* so that the honest rank's wait ends */
    chan_close(s.c[0]);
    if (w) (void)!manta_work_wait(w);
    manta_group_close(g);
    chan_end_free(s.end[0]);
    chan_end_free(s.end[1]);
    return 0;
}
