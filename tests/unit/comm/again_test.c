/* again_test.c - a rank that has the key and sends things twice, or more of
 * them than there are: refused in a sentence that names it, and nothing is
 * counted twice or written past its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/group.h"
#include "comm/ring.h"

enum { SMALL = 10, DIRECT = 100000, SHARED = 1000000, SAYINGS = 5, PATIENCE_MS = 60000 };

static const cluster_key key = {.bytes = "0123456789abcdef0123456789abcde"};

/* One frame of the other rank, sent when it has seen a frame of kind `after`. */
typedef struct saying {
    uint16_t after; /* 0: at once */
    uint16_t kind;
    uint64_t step;
    uint32_t item;
    size_t n; /* bytes; of a CALL, after its words */
} saying;

typedef struct again_case {
    const char *what;
    manta_collective_kind kind;
    int64_t n; /* floats */
    saying says[SAYINGS];
    const char *sentence;
} again_case;

typedef struct sides {
    chan_end *end[2];
    chan *c[2];
    manta_group *g; /* rank 0 */
} sides;

static void meet(sides *s)
{
    chan *peers[2] = {NULL, NULL};
    manta_group_options o;
    ring *t;
    int fds[2];

    *s = (sides){.g = NULL};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; i++) {
        chan_options say = {.node = i ? "rank/1" : "rank/0", .job = "again"};
        assert_int_equal(chan_end_new(&say, &key, &s->end[i]), MANTA_OK);
        assert_int_equal(chan_adopt(s->end[i], fds[i], i ? NULL : "rank/1", &s->c[i]), MANTA_OK);
    }
    while (!chan_is_open(s->c[0]) || !chan_is_open(s->c[1])) {
        assert_int_equal(chan_work(s->c[0]), MANTA_OK);
        assert_int_equal(chan_work(s->c[1]), MANTA_OK);
    }
    peers[1] = s->c[0];
    assert_int_equal(group_options(NULL, &o), MANTA_OK);
    assert_int_equal(ring_new(0, 2, s->end[0], peers, &t), MANTA_OK);
    assert_int_equal(group_new(&ring_transport, t, 0, 2, &o, &s->g), MANTA_OK);
}

/* Takes what the honest rank says; notes which kinds of frame there were. */
static void hear(chan *c, bool seen[])
{
    static char waste[1 << 16];
    frame f;
    size_t got = 1;

    if (chan_work(c)) return;
    while (got && !chan_peek(c, &f)) {
        seen[f.kind - FRAME_USER] = true;
        if (chan_take(c, waste, sizeof waste, &got)) return;
    }
}

static void say(chan *c, const again_case *a, const saying *x)
{
    static char bytes[SHARED * sizeof(float)];
    static call_words all[SAYINGS]; /* the channel borrows them */
    call_words *words = &all[x - a->says];
    frame f = {.kind = x->kind, .step = x->step, .item = x->item};
    chan_part parts[2] = {{words, 0}, {bytes, x->n}};
    manta_collective call = {.kind = a->kind, .n = a->n};

    *words = call_words_of(&call, x->step);
    if (x->kind == RING_CALL || x->kind == RING_READY) parts[0].n = sizeof *words;
    assert_int_equal(chan_post(c, &f, parts, 2, false), MANTA_OK);
}

/* The honest rank makes the call until one fails, as one of the first three does. */
static void try_it(const again_case *a)
{
    enum { GUARD = 1 << 20 };
    float *in = calloc((size_t)a->n, sizeof *in);
    size_t size = (size_t)a->n * sizeof *in * (a->kind == MANTA_COLLECTIVE_ALL_GATHER ? 2 : 1);
    char *out = calloc(1, size + GUARD);
    bool seen[16] = {false};
    int64_t deadline = clock_deadline(PATIENCE_MS);
    manta_status st = MANTA_OK;
    const saying *x = a->says;
    sides s;

    memset(out + size, 'g', GUARD);
    meet(&s);
    for (int i = 0; i < 3 && !st; i++) {
        manta_collective c = {.kind = a->kind, .in = in, .out = out, .n = a->n, .peer = 1};
        manta_work *w;
        st = manta_group_start(s.g, &c, &w);
        if (st) break;
        while (!manta_work_test(w)) {
            if (clock_now_ns() > deadline) fail_msg("%s: the call does not end", a->what);
            while (x->kind && (!x->after || seen[x->after - FRAME_USER])) say(s.c[1], a, x++);
            hear(s.c[1], seen);
        }
        st = manta_work_wait(w);
    }
    if (st != MANTA_ECORRUPT || strcmp(manta_error_text(), a->sentence))
        fail_msg("%s: %s: %s", a->what, manta_status_name(st), st ? manta_error_text() : "");
    for (size_t i = size; i < size + GUARD; i++)
        if (out[i] != 'g') fail_msg("%s: written past the end", a->what);
    chan_close(s.c[1]);
    manta_group_close(s.g);
    chan_end_free(s.end[1]);
    free(in);
    free(out);
}

static void what_comes_again_is_refused(void **state)
{
    static const again_case cases[] = {
        {"a small call",
         MANTA_COLLECTIVE_ALL_REDUCE,
         SMALL,
         {{0, RING_CALL, 0, 0, SMALL * 4}, {0, RING_CALL, 0, 0, SMALL * 4}},
         "rank 1 sent its words of collective 0 twice"},
        {"a call two rounds old",
         MANTA_COLLECTIVE_ALL_REDUCE,
         SMALL,
         {{0, RING_CALL, 0, 0, SMALL * 4},
          {RING_CALL, RING_CALL, 1, 0, SMALL * 4},
          {RING_CALL, RING_CALL, 0, 0, SMALL * 4}},
         "rank 1 sent its words of collective 0 twice"},
        {"a call of a later round",
         MANTA_COLLECTIVE_ALL_REDUCE,
         SMALL,
         {{0, RING_CALL, 1, 0, SMALL * 4}},
         "rank 1 sent a frame that has no place here: kind 16 of number 1, item 0, 72 bytes"},
        {"a contribution of two that exchange",
         MANTA_COLLECTIVE_ALL_REDUCE,
         DIRECT,
         {{0, RING_CALL, 0, 0, 0}, {RING_CALL, RING_DATA, 0, 0, 99968}, {RING_CALL, RING_DATA, 0, 0, 99968}},
         "rank 1 sent chunk 0 of collective 0 twice"},
        {"a contribution to a share",
         MANTA_COLLECTIVE_ALL_REDUCE,
         SHARED,
         {{0, RING_CALL, 0, 0, 0},
          {RING_CALL, RING_DATA, 0, 0, 262144},
          {RING_CALL, RING_DATA, 0, 2, 262144},
          {RING_CALL, RING_DATA, 0, 0, 262144}},
         "rank 1 sent chunk 0 of collective 0 twice"},
        {"a result",
         MANTA_COLLECTIVE_ALL_REDUCE,
         SHARED,
         {{0, RING_CALL, 0, 0, 0},
          {RING_CALL, RING_DATA, 0, 0, 262144},
          {RING_DATA, RING_DATA, 0, 1, 262144},
          {RING_DATA, RING_DATA, 0, 1, 262144}},
         "rank 1 sent result 0 of collective 0 twice"},
        {"a part of a gather",
         MANTA_COLLECTIVE_ALL_GATHER,
         25000,
         {{0, RING_CALL, 0, 0, 0}, {RING_CALL, RING_DATA, 0, 0, 65536}, {RING_CALL, RING_DATA, 0, 0, 65536}},
         "rank 1 sent chunk 0 of collective 0 twice"},
        {"a message's first chunk",
         MANTA_COLLECTIVE_RECEIVE,
         DIRECT,
         {{RING_READY, RING_MESSAGE, 0, 0, 262144}, {RING_READY, RING_MESSAGE, 0, 0, 262144}},
         "rank 1 sent a message's chunk 0 twice"},
        {"one chunk more than the message has",
         MANTA_COLLECTIVE_RECEIVE,
         SMALL,
         {{RING_READY, RING_MESSAGE, 0, 0, SMALL * 4}, {RING_READY, RING_MESSAGE, 0, 1, RING_CHUNK}},
         "rank 1 sent a frame that has no place here: kind 19 of number 0, item 1, 262144 bytes"},
        {"that it waits",
         MANTA_COLLECTIVE_SEND,
         SMALL,
         {{0, RING_READY, 0, 0, 0}, {RING_MESSAGE, RING_READY, 0, 0, 0}},
         "rank 1 sent that it waits for message 0 twice"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) try_it(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_comes_again_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
