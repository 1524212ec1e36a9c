/* objects_test.c - numbers that a broken node or peer gives out twice, or before
 * we do: each is refused with a sentence, and no object is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include <manta/failure.h>
#include <manta/stream.h>

#include "base/mem.h"
#include "manta/log.h"
#include "os/shm.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/ring.h"
#include "task/runtime.h"
#include "task/stream.h"
#include "task/value.h"

enum { MADE = 3 }; /* numbers that this process, the first, has given out */

static uint64_t number(uint64_t client, uint64_t count)
{
    return client << CLIENT_SHIFT | count;
}

/* A process whose node is gone: what it says goes nowhere. */
static int begin(void **state)
{
    static int64_t live;

    manta_log_set_level(MANTA_LOG_LEVEL_OFF);
    live = mem_live();
    *state = &live;
    assert_int_equal(runtime_open_local(), MANTA_OK);
    rt->is_local = false;
    rt->is_dead = true;
    rt->death = failure_make(MANTA_FAILURE_NODE, MANTA_EDIED, NULL, 0, "there is no node");
    assert_int_equal(object_id(MADE), number(1, 1));
    return 0;
}

static int end(void **state)
{
    runtime_close();
    assert_int_equal(mem_live(), *(const int64_t *)*state);
    return 0;
}

static void numbers_to_come_are_nobodys(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= MADE; i++) assert_int_equal(object_may_be(number(1, i)), MANTA_OK);
    assert_int_equal(object_may_be(number(2, 1 << 20)), MANTA_OK); /* another's: who knows */
    assert_int_equal(object_may_be(number(1, 0)), MANTA_ECORRUPT);
    assert_int_equal(object_may_be(number(1, MADE + 1)), MANTA_ECORRUPT);
    assert_non_null(strstr(manta_error_text(), "names object 4 of process"));
    assert_non_null(strstr(manta_error_text(), "which has made only 3"));
}

/* A result refers to objects that we have not made yet: it fails, and they are
 * made as if nobody had spoken of them. */
static void a_result_cannot_hold_them(void **state)
{
    const uint64_t ids[2] = {number(2, 1), number(1, MADE + 1)};
    const value both = {.kind = MANTA_KIND_REFS, .size = sizeof ids, .at = ids};
    const value actor = {.kind = MANTA_KIND_ACTOR, .size = 8, .word = ids[1]};
    (void)state;

    for (int i = 0; i < 2; i++) {
        object *o = object_new(number(1, (uint64_t)i + 1));
        o->refs = 1;
        object_set(o, i ? &actor : &both, false);
        assert_int_equal(o->state, OBJECT_FAILED);
        assert_int_equal(o->failure->is.code, MANTA_ECORRUPT);
        assert_non_null(strstr(o->failure->is.text, "names object 4 of process"));
    }
    assert_int_equal(rt->objects.n, 2); /* not even the first of the two was taken in */
    object *mine = object_new(object_id(1));
    assert_int_equal(mine->id, ids[1]);
    assert_ptr_equal(object_find(ids[1]), mine);
}

static void say_item(manta_stream s, uint64_t index, uint64_t id, double x)
{
    value v = {.kind = MANTA_KIND_F64, .size = 8};
    buf b = {0};

    memcpy(&v.word, &x, sizeof x);
    wire_put_u64(&b, s.id);
    wire_put_u64(&b, index);
    wire_put_u64(&b, id);
    value_put(&b, &v);
    wire w = wire_of(b.at, b.n);
    stream_item(NULL, &w);
    buf_release(&b);
}

/* Of a stream, one item takes the number of another, and one a number of ours:
 * both fail when they are read, and what comes behind them is there. */
static void an_item_cannot_take_a_number(void **state)
{
    const uint64_t ids[4] = {number(7, 1), number(7, 1), number(1, MADE + 100), number(7, 2)};
    const char *const says[4] = {NULL, "has already", "names object 103", NULL};
    manta_ref r;
    double x;
    (void)state;

    rt->is_dead = false; /* or it would end at once; it waits for a worker, for ever */
    rt->total.amount[0] = SCHED_UNIT;
    const manta_stream s = manta_stream_start("numbers", NULL, 0, NULL);
    rt->is_dead = true;
    for (uint64_t i = 0; i < 4; i++) say_item(s, i, ids[i], (double)i);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(manta_stream_next(s, &r, 0), MANTA_OK);
        assert_int_equal(manta_get_f64(r, &x, 0), says[i] ? MANTA_ECORRUPT : MANTA_OK);
        if (says[i])
            assert_non_null(strstr(manta_error_text(), says[i]));
        else
            assert_true(x == i);
        manta_release(r);
    }
    manta_stream_close(s);
}

static void say_peer(uint32_t id)
{
    int fds[2];
    buf b = {0};

    assert_int_equal(shm_new("test", channel_size(), &fds[0]), MANTA_OK);
    assert_int_equal(shm_new("test", shm_page(), &fds[1]), MANTA_OK);
    wire_put_u32(&b, id);
    wire_put_u32(&b, 0x7ffffff0);
    wire_put_u32(&b, 0);
    wire w = wire_of(b.at, b.n);
    rt_take_peer(&w, fds, 2);
    buf_release(&b);
}

/* The first stays, with all that was sent to it. */
static void a_peer_comes_once(void **state)
{
    (void)state;
    say_peer(7);
    const peer *first = find_peer(7);
    assert_non_null(first);
    say_peer(7);
    assert_ptr_equal(find_peer(7), first);
    assert_non_null(strstr(manta_error_text(), "gave the number 7 out twice"));
    say_peer(8);
    assert_int_equal(rt->peers.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbers_to_come_are_nobodys, begin, end),
        cmocka_unit_test_setup_teardown(a_result_cannot_hold_them, begin, end),
        cmocka_unit_test_setup_teardown(an_item_cannot_take_a_number, begin, end),
        cmocka_unit_test_setup_teardown(a_peer_comes_once, begin, end)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
