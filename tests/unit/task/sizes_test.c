/* sizes_test.c - one below, at, one above and ten times those sizes of task/sizes.h that need no process;
 * tests/runtime/sizes.c has the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/shm.h"
#include "task/gifts.h"
#include "task/ring.h"
#include "task/sched_fixture.h"
#include "task/sizes.h"

/* Calls `check` with every size beside one. */
static void around(size_t size, void (*check)(size_t size))
{
    check(size - 1);
    check(size);
    check(size + 1);
    check(10 * size);
}

/* ---- rings ---- */

/* Messages that are `total` bytes together, none longer than it may be, go through a ring while they are
 * read; without a reader a ring takes less than its size. */
static void check_ring(size_t total)
{
    char *sent = mem_new(RING_MESSAGE);
    channel *a, *b;
    size_t written = 0, held = 0, taken = 0;
    buf got = {0};
    int fd;

    assert_int_equal(shm_new("test", channel_size(), &fd), MANTA_OK);
    assert_int_equal(channel_open(fd, 0, &a), MANTA_OK);
    assert_int_equal(channel_open(fd, 1, &b), MANTA_OK);
    for (int part = 0; written < total; part++) {
        size_t n = total - written < RING_MESSAGE ? total - written : RING_MESSAGE;
        memset(sent, part, n);
        while (!channel_send(a, sent, n)) {
            assert_true(held > 0 && held < RING_SIZE);
            assert_int_equal(channel_recv(b, &got), MANTA_OK);
            held -= got.n;
            taken += got.n;
            buf_cut(&got, 0);
        }
        written += n;
        held += n;
        assert_true(held < RING_SIZE);
    }
    while (channel_recv(b, &got) == MANTA_OK) {
        taken += got.n;
        buf_cut(&got, 0);
    }
    assert_int_equal(taken, total);
    buf_release(&got);
    channel_free(a);
    channel_free(b);
    close(fd);
    mem_free(sent);
}

static void rings(void **state)
{
    (void)state;
    around(RING_MESSAGE, check_ring);
    around(RING_SIZE, check_ring);
}

/* ---- the line ---- */

/* One that needs two cores lets so many pass, and no more than LINE_PATIENCE. */
static void check_patience(size_t small)
{
    sched *s = sched_new(cpus(2), 2);
    size_t passed = 0;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = cpus(2), .n = 1});
    for (size_t i = 0; i < small; i++) {
        step(s, (sched_event){.kind = SCHED_DEMAND, .client = 3, .shape = cpus(1), .n = 1});
        if (count(SCHED_DO_GRANT) == 0) break;
        passed++;
        step(s, (sched_event){.kind = SCHED_RETURN, .client = 3, .worker = 11});
    }
    assert_int_equal(passed, small < LINE_PATIENCE ? small : LINE_PATIENCE);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 2);
    sched_free(s);
}

/* Calls that need no core have so many workers started, and no more at once. */
static void check_starting(size_t n)
{
    sched *s = sched_new(cpus(1), 2);

    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .n = (int64_t)n});
    assert_int_equal(count(SCHED_DO_START), n < LINE_MOST_STARTING ? n : LINE_MOST_STARTING);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    assert_int_equal(count(SCHED_DO_GRANT), 1);
    assert_int_equal(count(SCHED_DO_START), n > LINE_MOST_STARTING ? 1 : 0);
    sched_free(s);
}

static void lines(void **state)
{
    (void)state;
    around(LINE_PATIENCE, check_patience);
    around(LINE_MOST_STARTING, check_starting);
}

/* ---- gifts ---- */

static void check_gifts(size_t n)
{
    gifts *g = gifts_new();
    gifts_objects lost = {0};

    for (size_t i = 0; i < n; i++) gifts_add(g, 7, 1, i, GIFTS_RESULT, i);
    for (size_t i = n - (n < GIFTS_KEPT ? n : GIFTS_KEPT); i < n; i += 97) {
        vec_clear(&lost);
        gifts_unheard(g, 7, 1, i, 0, &lost);
        assert_int_equal(lost.n, 1);
        assert_int_equal(lost.at[0], i);
    }
    vec_release(&lost);
    gifts_free(g);
}

static void gifts_of_a_worker(void **state)
{
    (void)state;
    around(GIFTS_KEPT, check_gifts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(rings, clear),
        cmocka_unit_test_teardown(lines, clear),
        cmocka_unit_test_teardown(gifts_of_a_worker, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
