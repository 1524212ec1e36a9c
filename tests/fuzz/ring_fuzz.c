/* ring_fuzz.c - a rank that has the key and says anything at all. The input is
 * the call that the honest rank makes, ROUNDS times, and the frames that the
 * other sends:
 *
 *   | call 1 | then per frame: kind 1 | number 1 | item 1 | length 2 | bytes ... |
 *
 * Of the kind's byte, bit 6 means that the frame is sent twice, and bit 7 that
 * its length is in units of 8 bytes: a whole chunk fits. Whatever comes, the
 * honest rank's memory stays its own, a call ends or waits, and no round is
 * done with words that belong to another. */
#include <string.h>
#include <sys/socket.h>

#include "comm/group.h"
#include "comm/ring.h"
#include "fuzz.h"

enum { N = 6000, TURNS = 64, FRAMES = 16, ROUNDS = 3 }; /* N floats are more than goes with the words */
enum { TWICE = 0x40, LONG = 0x80, UNIT = 8 };

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
    static char copies[FRAMES][UNIT << 16];

    for (int i = 0; i < FRAMES && n >= 5; i++) {
        frame f = {.kind = (uint16_t)(FRAME_USER + (data[0] & 0x3f) % 10), .step = data[1], .item = data[2]};
        size_t want = ((size_t)data[3] << 8 | data[4]) * (data[0] & LONG ? UNIT : 1);
        size_t have = n - 5 < want ? n - 5 : want;
        chan_part part = {.data = copies[i], .n = want};
        memset(copies[i], 0, want);
        memcpy(copies[i], data + 5, have);
        if (chan_post(c, &f, &part, 1, false)) return;
        if (data[0] & TWICE && chan_post(c, &f, &part, 1, false)) return;
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
    manta_status st = MANTA_OK;
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
    for (int round = 0; round < ROUNDS && !st; round++) {
        if ((st = manta_group_start(g, &c, &w))) break;
        if (!round) speak(s.c[1], data + 1, size - 1);
        for (int i = 0; i < TURNS && !manta_work_test(w); i++) swallow(s.c[1]);
        if (!manta_work_test(w)) break;
        st = manta_work_wait(w);
        if (st && !manta_error_text()[0]) abort(); /* the code may be the other's own */
        w = NULL;
        uint64_t rounds = t->calls, called = t->peers[1].called; /* one CALL a round, at most one ahead */
        if (!st && (called < rounds || called > rounds + 1)) abort();
    }
out:
    chan_close(s.c[1]); /* so that the honest rank's wait ends */
    chan_close(s.c[0]);
    if (w) (void)!manta_work_wait(w);
    manta_group_close(g);
    chan_end_free(s.end[0]);
    chan_end_free(s.end[1]);
    return 0;
}
