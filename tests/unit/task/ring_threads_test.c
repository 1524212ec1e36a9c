/* ring_threads_test.c - channels and bells, with the two processes as threads
 * so that the thread sanitizer sees them; and what a hostile peer can do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "os/shm.h"
#include "os/eventcount.h"
#include "os/thread.h"
#include "task/ring.h"

typedef struct pair {
    int fd;
    channel *a, *b;
    eventcount bell_a, bell_b;
} pair;

static void pair_open(pair *p)
{
    memset(p, 0, sizeof *p);
    assert_int_equal(shm_new("test", channel_size(), &p->fd), MANTA_OK);
    assert_int_equal(channel_open(p->fd, 0, &p->a), MANTA_OK);
    assert_int_equal(channel_open(p->fd, 1, &p->b), MANTA_OK);
}

static void pair_close(pair *p)
{
    channel_free(p->a);
    channel_free(p->b);
    close(p->fd);
}

static void messages_arrive_in_order_and_whole(void **state)
{
    pair p;
    buf in = {0};
    static char out[RING_MESSAGE];
    uint64_t sent = 0, got = 0;
    rng_key k = rng_make(1, 1);
    (void)state;

    pair_open(&p);
    assert_int_equal(channel_recv(p.b, &in), MANTA_EBUSY);
    assert_false(channel_ready(p.b));
    for (int turn = 0; turn < 3000; turn++) {
        if (rng_below(k, (uint64_t)turn, 2)) {
            size_t n = (size_t)rng_below(rng_make(sent, 2), 0, turn % 10 ? 200 : RING_MESSAGE + 1);
            memset(out, (int)(sent % 251), n);
            if (channel_send(p.a, out, n)) sent++;
        } else {
            buf_cut(&in, 0);
            manta_status st = channel_recv(p.b, &in);
            if (st == MANTA_EBUSY) {
                assert_int_equal(sent, got);
                continue;
            }
            assert_int_equal(st, MANTA_OK);
            for (size_t i = 0; i < in.n; i++) assert_int_equal((unsigned char)in.at[i], got % 251);
            got++;
        }
    }
    assert_true(got > 100);
    buf_release(&in);
    pair_close(&p);
}

static void a_full_ring_refuses_and_recovers(void **state)
{
    pair p;
    buf in = {0};
    static char big[RING_MESSAGE];
    int n = 0;
    (void)state;

    pair_open(&p);
    while (channel_send(p.a, big, sizeof big)) n++;
    assert_int_equal(n, (int)(RING_SIZE / (RING_MESSAGE + 8)));
    assert_int_equal(channel_recv(p.b, &in), MANTA_OK);
    assert_true(channel_send(p.a, big, sizeof big));
    assert_false(channel_send(p.a, big, sizeof big));
    buf_release(&in);
    pair_close(&p);
}

/* The other side writes numbers that cannot be. Nothing outside the ring is
 * touched, and the channel says that it is of no more use. */
static void lies_are_noticed(void **state)
{
    const uint64_t tails[] = {1, 7, RING_SIZE + 8, UINT64_MAX, (uint64_t)1 << 40};
    const uint32_t lengths[] = {RING_MESSAGE + 1, UINT32_MAX, 64, 9};
    (void)state;

    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        pair p;
        buf in = {0};
        pair_open(&p);
        uint64_t *words = mmap(NULL, shm_page(), PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
        assert_true(words != MAP_FAILED);
        words[0] = tails[i]; /* tail of ring 0 */
        assert_int_equal(channel_recv(p.b, &in), MANTA_ECORRUPT);
        assert_int_equal(in.n, 0);
        munmap(words, shm_page());
        pair_close(&p);
        buf_release(&in);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        pair p;
        buf in = {0};
        pair_open(&p);
        char *bytes = mmap(NULL, channel_size(), PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
        assert_true(bytes != MAP_FAILED);
        memcpy(bytes + shm_page(), &lengths[i], 4);
        ((uint64_t *)(void *)bytes)[0] = 16; /* room for 8 bytes */
        assert_int_equal(channel_recv(p.b, &in), MANTA_ECORRUPT);
        munmap(bytes, channel_size());
        pair_close(&p);
        buf_release(&in);
    }
    /* A head beyond the tail makes the ring full, not larger. */
    pair p;
    pair_open(&p);
    uint64_t *words = mmap(NULL, shm_page(), PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
    static char big[RING_MESSAGE];
    while (channel_send(p.a, big, sizeof big)) {}
    words[8] = UINT64_MAX - 100; /* head of ring 0 */
    for (int i = 0; i < 10; i++) assert_false(channel_send(p.a, big, sizeof big));
    munmap(words, shm_page());
    pair_close(&p);
}

static void only_a_channel_is_a_channel(void **state)
{
    int fd;
    channel *c = NULL;
    (void)state;

    assert_int_equal(shm_new("test", shm_page(), &fd), MANTA_OK);
    assert_int_equal(channel_open(fd, 0, &c), MANTA_ECORRUPT);
    assert_null(c);
    close(fd);
}

/* ---- two threads play ping-pong and sleep whenever they find nothing ---- */

enum { ROUNDS = 3000 };

static bool b_ready(void *ctx)
{
    return channel_ready(((pair *)ctx)->b);
}

static bool a_ready(void *ctx)
{
    return channel_ready(((pair *)ctx)->a);
}

static void answer(void *ctx)
{
    pair *p = ctx;
    buf in = {0};

    for (int i = 0; i < ROUNDS; i++) {
        buf_reserve(&in, 8);
        buf_cut(&in, 0);
        while (channel_recv(p->b, &in)) (void)eventcount_wait(&p->bell_b, b_ready, p, clock_deadline(20000));
        uint32_t x;
        memcpy(&x, in.at, 4);
        x++;
        while (!channel_send(p->b, &x, 4)) {}
        eventcount_notify(&p->bell_a);
    }
    buf_release(&in);
}

static void no_wake_is_lost(void **state)
{
    pair p;
    thread_id t;
    buf in = {0};
    (void)state;

    pair_open(&p);
    assert_int_equal(thread_start(&t, "peer", answer, &p), MANTA_OK);
    int64_t longest = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t x = 2 * i;
        int64_t begin = clock_now_ns();
        assert_true(channel_send(p.a, &x, 4));
        eventcount_notify(&p.bell_b);
        buf_reserve(&in, 8);
        buf_cut(&in, 0);
        while (channel_recv(p.a, &in)) (void)eventcount_wait(&p.bell_a, a_ready, &p, clock_deadline(20000));
        memcpy(&x, in.at, 4);
        assert_int_equal(x, 2 * i + 1);
        if (clock_now_ns() - begin > longest) longest = clock_now_ns() - begin;
    }
    thread_join(&t);
    assert_true(longest < 19000000000); /* a lost wake would have slept for 20 s */
    assert_int_equal(p.bell_a.sleepers, 0);
    assert_int_equal(p.bell_b.sleepers, 0);
    buf_release(&in);
    pair_close(&p);
}

/* ---- one thread writes more than the ring holds, and sleeps whenever it is full ---- */

enum { PIECES = 20000 };

static size_t piece_size(uint64_t i)
{
    rng_key k = rng_make(i, 3);

    return (size_t)rng_below(k, 0, i % 7 == 0 ? RING_MESSAGE + 1 : i % 3 == 0 ? 9000 : 40);
}

static bool a_has_room(void *ctx)
{
    return channel_has_room(((pair *)ctx)->a);
}

static void take_pieces(void *ctx)
{
    pair *p = ctx;
    buf in = {0};

    for (uint64_t i = 0; i < PIECES; i++) {
        buf_reserve(&in, 8);
        buf_cut(&in, 0);
        while (channel_recv(p->b, &in)) (void)eventcount_wait(&p->bell_b, b_ready, p, CLOCK_NEVER);
        if (channel_writer_waits(p->b)) eventcount_notify(&p->bell_a);
        assert_int_equal(in.n, piece_size(i));
        if (in.n > 0) assert_int_equal((unsigned char)in.at[in.n - 1], i % 251);
    }
    buf_release(&in);
}

/* A wake that is lost would be waited for until the test is ended from outside. */
static void a_full_ring_wakes_its_writer(void **state)
{
    pair p;
    thread_id t;
    static char out[RING_MESSAGE];
    int slept = 0;
    (void)state;

    pair_open(&p);
    assert_int_equal(thread_start(&t, "reader", take_pieces, &p), MANTA_OK);
    for (uint64_t i = 0; i < PIECES; i++) {
        memset(out, (int)(i % 251), piece_size(i));
        for (; !channel_send(p.a, out, piece_size(i)); slept++)
            (void)eventcount_wait(&p.bell_a, a_has_room, &p, CLOCK_NEVER);
        eventcount_notify(&p.bell_b);
    }
    thread_join(&t);
    assert_true(slept > 0);
    assert_false(channel_has_room(p.a)); /* nobody waits for it any more */
    pair_close(&p);
}

static void who_sends_elsewhere_waits_no_more(void **state)
{
    pair p;
    buf in = {0};
    static char big[RING_MESSAGE];
    (void)state;

    pair_open(&p);
    while (channel_send(p.a, big, sizeof big)) {}
    assert_false(channel_has_room(p.a));
    assert_int_equal(channel_recv(p.b, &in), MANTA_OK);
    assert_false(channel_writer_waits(p.b)); /* half a ring was not read yet */
    assert_true(channel_has_room(p.a));
    assert_int_equal(channel_recv(p.b, &in), MANTA_OK);
    assert_true(channel_writer_waits(p.b));
    assert_false(channel_writer_waits(p.b)); /* once */
    channel_end_wait(p.a);
    assert_false(channel_has_room(p.a));
    buf_release(&in);
    pair_close(&p);
}

static void a_bell_nobody_hears_is_not_rung(void **state)
{
    eventcount b = {0};
    (void)state;

    eventcount_notify(&b);
    assert_int_equal(b.count, 0); /* no system call was made either */
    int64_t begin = clock_now_ns();
    pair p;
    pair_open(&p);
    assert_false(eventcount_wait(&b, a_ready, &p, clock_deadline(20)));
    assert_true(clock_now_ns() - begin >= 19000000);
    assert_int_equal(b.sleepers, 0);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order_and_whole),
        cmocka_unit_test(a_full_ring_refuses_and_recovers),
        cmocka_unit_test(lies_are_noticed),
        cmocka_unit_test(only_a_channel_is_a_channel),
        cmocka_unit_test(no_wake_is_lost),
        cmocka_unit_test(a_full_ring_wakes_its_writer),
        cmocka_unit_test(who_sends_elsewhere_waits_no_more),
        cmocka_unit_test(a_bell_nobody_hears_is_not_rung),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
