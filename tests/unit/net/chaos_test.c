/* chaos_test.c - channels over a network that misbehaves: what arrives is what
 * was sent, or the channel fails with a sentence; nothing hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "net/chaos.h"
#include "net/pair.h"

enum { SIZE = 40000, FRAMES = 4 };

static unsigned char sent[SIZE], got[SIZE];

/* Opens a pair and sends frames both ways; the first failure, or MANTA_OK when
 * all have arrived. *wrong: a frame arrived that is not what was sent. */
static manta_status converse(bool plain, int64_t patience_ms, int *arrived, bool *wrong)
{
    chan_options oa = pair_options("worker/0"), ob = pair_options("worker/1");
    int64_t deadline = clock_deadline(2 * patience_ms);
    manta_status st;
    pair p;

    oa.plain = ob.plain = plain;
    oa.handshake_ms = ob.handshake_ms = patience_ms;
    *arrived = 0;
    *wrong = false;
    pair_make(&p, &oa, &pair_key, &ob, &pair_key);
    st = pair_open(&p);
    for (int i = 0; i < FRAMES && !st; i++) {
        frame f = {.kind = FRAME_USER, .item = (uint32_t)i}, g = {0}, back;
        chan_part part = {sent, sizeof sent};
        size_t n = 0, k = 0;
        if ((st = chan_post(p.a, &f, &part, 1, true))) break;
        while (!st && (n < SIZE || chan_unsent(p.a))) {
            chan_item items[2] = {{.c = p.a, .read = true}, {.c = p.b, .read = true}};
            if (chan_wait(items, 2, NULL, 0, deadline) || clock_now_ns() >= deadline) {
                st = MANTA_ETIMEDOUT;
                break;
            }
            if ((st = chan_peek(p.a, &back)) != MANTA_EBUSY) break; /* nothing is sent that way */
            if ((st = chan_work(p.a))) break;
            if (!g.kind && (st = chan_peek(p.b, &g)) == MANTA_EBUSY) {
                st = MANTA_OK;
                continue;
            }
            if (!st && n < SIZE && !(st = chan_take(p.b, got + n, SIZE - n, &k))) n += k;
        }
        if (st) break;
        *wrong |= g.item != (uint32_t)i || memcmp(got, sent, SIZE);
        ++*arrived;
    }
    pair_close(&p);
    return st;
}

static void late_and_in_pieces(void **state)
{
    static const chaos_plan plans[] = {
        {.piece = 1}, {.piece = 7}, {.piece = 4096}, {.late = 3}, {.piece = 100, .late = 2}};
    bool wrong;
    int arrived;

    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        for (int plain = 0; plain < 2; plain++) {
            chaos_begin(plans[i]);
            assert_int_equal(converse(plain, 60000, &arrived, &wrong), MANTA_OK);
            chaos_end();
            assert_int_equal(arrived, FRAMES);
            assert_false(wrong);
        }
    }
    assert_int_equal(mem_live(), 0);
}

/* Reset at any byte: of the handshake, of a head, of the bytes behind it. */
static void reset_in_the_middle(void **state)
{
    bool wrong;
    int arrived;

    (void)state;
    for (int64_t at = 1; at < 2 * FRAMES * SIZE; at += at < 2000 ? 67 : 9973) {
        for (int plain = 0; plain < 2; plain++) {
            manta_status st;
            chaos_begin((chaos_plan){.reset_at = at});
            st = converse(plain, 60000, &arrived, &wrong);
            chaos_end();
            if (st != MANTA_EDIED) fail_msg("reset at %lld: %s", (long long)at, manta_status_name(st));
            assert_true(manta_error_text()[0]);
            assert_false(wrong);
        }
    }
    assert_int_equal(mem_live(), 0);
}

/* Nothing comes any more: the deadline ends it, the handshake's or the caller's. */
static void silence(void **state)
{
    static const int64_t at[] = {1, 300, 700, 1500, 30000};
    bool wrong;
    int arrived;

    (void)state;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        chaos_begin((chaos_plan){.silent_at = at[i]});
        assert_int_equal(converse(false, 100, &arrived, &wrong), MANTA_ETIMEDOUT);
        chaos_end();
        assert_false(wrong);
    }
}

/* Sent twice or changed: with TLS nothing wrong ever arrives. Unencrypted bulk
 * has no such guard for its bytes, but what follows them is refused. A length
 * that was changed may leave it waiting for what never comes. */
static void twice_and_changed(void **state)
{
    bool wrong;
    int arrived;

    (void)state;
    for (int64_t at = 1; at < 2 * SIZE; at += at < 2000 ? 211 : 4999) {
        for (int kind = 0; kind < 2; kind++) {
            for (int plain = 0; plain < 2; plain++) {
                manta_status st;
                chaos_begin(kind ? (chaos_plan){.twice_at = at} : (chaos_plan){.change_at = at});
                st = converse(plain, 100, &arrived, &wrong);
                chaos_end();
                if (!plain) {
                    if (!st || wrong)
                        fail_msg("%s at %lld went unseen", kind ? "doubled" : "changed", (long long)at);
                } else if (kind) {
                    assert_int_not_equal(st, MANTA_OK);
                }
            }
        }
    }
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_and_in_pieces),
        cmocka_unit_test(reset_in_the_middle),
        cmocka_unit_test(silence),
        cmocka_unit_test(twice_and_changed),
    };

    for (int i = 0; i < SIZE; i++) sent[i] = (unsigned char)(i * 131 >> 3);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
