/* Collectives in shared memory, by ranks that are threads and by ranks that are
 * processes, against plain loops. */
#include "base/clock.h"
#include "comm/cases.h"
#include "comm/sizes.h"
#include "comm/trouble.h"
#include "ok.h"

static const int64_t few[] = {0, 1, 7, 1000, -1};
static const int64_t chunked[] = {4099, 70001, -1}; /* some are larger than a slot, all are odd */

static manta_group_plan *plan_of(int size, const manta_group_options *o)
{
    manta_group_plan *p;

    assert_int_equal(manta_group_plan_new(size, o, &p), MANTA_OK);
    return p;
}

static void every_call_as_threads(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        manta_group_plan *p = plan_of(size, NULL);
        ranks_as_threads(join_plan, p, size, case_all, &(case_sizes){.n = few});
        manta_group_plan_free(p);
    }
}

static void every_call_as_processes(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) {
        manta_group_plan *p = plan_of(size, NULL);
        ranks_as_processes(join_plan, p, size, case_all,
                           &(case_sizes){.n = size == 4 ? few : chunked, .some = size < 4});
        manta_group_plan_free(p);
    }
}

/* Several calls under way at once, with and without the thread; results as if
 * they had been one after the other. */
static int overlap(manta_group *g, void *ctx)
{
    enum { N = 30011, CALLS = 6 };
    float *x[CALLS], want[CALLS];
    manta_work *w[CALLS];
    int size = manta_group_size(g), me = manta_group_rank(g);
    (void)ctx;

    for (int c = 0; c < CALLS; c++) {
        x[c] = malloc(N * sizeof(float));
        want[c] = 0;
        for (int r = 0; r < size; r++) want[c] += (float)(c + r);
        for (int i = 0; i < N; i++) x[c][i] = (float)(c + me);
        OK(!rank_start_sum(g, x[c], N, &w[c]));
    }
    OK(!manta_group_barrier(g)); /* comes after them, and takes its turn */
    for (int c = 0; c < CALLS; c++) OK(manta_work_test(w[c]));
    for (int c = CALLS - 1; c >= 0; c--) {
        OK(!manta_work_wait(w[c]));
        for (int i = 0; i < N; i++) OK(x[c][i] == want[c]);
        free(x[c]);
    }
    /* test() alone moves it on */
    float one = 1;
    OK(!manta_group_start(
        g,
        &(manta_collective){
            .kind = MANTA_COLLECTIVE_ALL_REDUCE, .in = &one, .out = &one, .n = 1, .dtype = MANTA_DTYPE_F32},
        &w[0]));
    while (!manta_work_test(w[0])) sched_yield();
    OK(!manta_work_wait(w[0]));
    OK(one == (float)size);
    return 0;
}

static void calls_overlap(void **state)
{
    (void)state;
    for (int thread = 0; thread < 2; thread++) {
        manta_group_plan *p = plan_of(3, &(manta_group_options){.progress_thread = thread});
        ranks_as_threads(join_plan, p, 3, overlap, NULL);
        manta_group_plan_free(p);
    }
}

/* With the thread a call ends although nobody waits for it. */
static int by_itself(manta_group *g, void *ctx)
{
    _Atomic int *others = ctx;
    float x = 1;
    manta_work *w;

    OK(!manta_group_start(
        g,
        &(manta_collective){
            .kind = MANTA_COLLECTIVE_ALL_REDUCE, .in = &x, .out = &x, .n = 1, .dtype = MANTA_DTYPE_F32},
        &w));
    atomic_fetch_add(others, 1);
    if (manta_group_rank(g) == 0) {
        /* Rank 0 enters no call until rank 1, which needs rank 0's part, has its result. */
        while (atomic_load(others) < 3) sched_yield();
    } else {
        OK(!manta_work_wait(w));
        OK(x == 2);
        atomic_fetch_add(others, 1);
        return 0;
    }
    OK(!manta_work_wait(w));
    OK(x == 2);
    return 0;
}

static void a_thread_moves_calls_on(void **state)
{
    (void)state;
    _Atomic int others = 0;
    manta_group_plan *p = plan_of(2, &(manta_group_options){.progress_thread = true});
    ranks_as_threads(join_plan, p, 2, by_itself, &others);
    manta_group_plan_free(p);
}

static int many(manta_group *g, void *ctx)
{
    enum { COUNT = 23 };
    int64_t n[COUNT];
    void *packed[COUNT];
    float *alone[COUNT];
    int me = manta_group_rank(g);
    (void)ctx;

    for (int i = 0; i < COUNT; i++) {
        n[i] = i * i % 11 * 37;
        packed[i] = malloc((size_t)n[i] * 4 + 4);
        alone[i] = malloc((size_t)n[i] * 4 + 4);
        for (int64_t k = 0; k < n[i]; k++)
            ((float *)packed[i])[k] = alone[i][k] = (float)case_value(me, k + i * 1000);
    }
    OK(!manta_group_all_reduce_many(g, COUNT, packed, n, MANTA_DTYPE_F32, MANTA_REDUCE_MEAN));
    for (int i = 0; i < COUNT; i++) {
        OK(!manta_group_all_reduce(g, alone[i], alone[i], n[i], MANTA_DTYPE_F32, MANTA_REDUCE_MEAN));
        OK(!memcmp(alone[i], packed[i], (size_t)n[i] * 4));
        free(alone[i]);
        free(packed[i]);
    }
    return 0;
}

static void packing_changes_no_bit(void **state)
{
    static const int64_t packs[] = {-1, 0, 4, 1000, 4096};
    (void)state;

    for (int i = 0; i < 5; i++) {
        manta_group_plan *p = plan_of(3, &(manta_group_options){.bytes_per_pack = packs[i]});
        ranks_as_threads(join_plan, p, 3, many, NULL);
        manta_group_plan_free(p);
    }
}

/* ---- all-reduce and update in one pass ---- */

enum { FUSED = 3 * 4096 + 17 };

static manta_status add_shared(void *ctx, int64_t begin, int64_t end)
{
    manta_group *g = ctx;

    for (int64_t i = begin; i < end; i++) {
        float sum = 0;
        for (int r = 0; r < manta_group_size(g); r++) sum += ((float *)manta_group_memory(g, r))[i];
        ((float *)manta_group_memory(g, 0))[FUSED + i] -= 0.5f * sum;
    }
    return MANTA_OK;
}

static int fused(manta_group *g, void *ctx)
{
    int me = manta_group_rank(g), size = manta_group_size(g);
    float *mine = manta_group_memory(g, me), *w = (float *)manta_group_memory(g, 0) + FUSED;
    (void)ctx;

    OK(mine && !manta_group_memory(g, size) && !manta_group_memory(g, -1));
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < FUSED; i++) mine[i] = (float)(i % 8 + me);
        OK(!manta_group_fused(g, FUSED, add_shared, g));
        for (int i = 0; i < FUSED; i++)
            OK(w[i] == -0.5f * (float)((step + 1) * (size * (i % 8) + size * (size - 1) / 2)));
        OK(!manta_group_barrier(g)); /* before `mine` is written again */
    }
    return 0;
}

static void fused_update(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        manta_group_plan *p =
            plan_of(size, &(manta_group_options){.shared_bytes = 2 * FUSED * sizeof(float)});
        ranks_as_threads(join_plan, p, size, fused, NULL);
        manta_group_plan_free(p);
    }
}

static void ranges_are_whole_blocks(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 50000; n += 1237)
        for (int size = 1; size < 9; size++) {
            int64_t begin, end, last = 0;
            for (int r = 0; r < size; r++) {
                manta_group_range(n, size, r, &begin, &end);
                assert_int_equal(begin, last);
                assert_true(end >= begin && (end % 4096 == 0 || end == n));
                last = end;
            }
            assert_int_equal(last, n);
        }
}

/* ---- what cannot be ---- */

static void bad_arguments(void **state)
{
    (void)state;
    manta_group_plan *p;
    manta_group *g;
    float x = 0;
    assert_int_equal(manta_group_plan_new(0, NULL, &p), MANTA_EINVAL);
    assert_int_equal(manta_group_plan_new(257, NULL, &p), MANTA_EINVAL);
    assert_int_equal(manta_group_plan_new(2, &(manta_group_options){.implementation = MANTA_COMM_RING}, &p),
                     MANTA_EINVAL);
    assert_int_equal(manta_group_plan_new(2, &(manta_group_options){.implementation = 9}, &p), MANTA_EINVAL);
    assert_int_equal(manta_group_plan_new(2, &(manta_group_options){.timeout_ms = -3}, &p), MANTA_EINVAL);
    assert_error_says("timeout_ms of a group is -3");
    assert_int_equal(manta_group_plan_new(2, &(manta_group_options){.join_timeout_ms = -3}, &p),
                     MANTA_EINVAL);
    assert_error_says("join_timeout_ms of a group is -3");
    assert_int_equal(manta_group_plan_new(2, &(manta_group_options){.bytes_per_pack = -3}, &p), MANTA_EINVAL);
    assert_error_says("bytes_per_pack of a group is -3");
    p = plan_of(1, NULL);
    assert_int_equal(manta_group_join(p, 1, &g), MANTA_EINVAL);
    assert_int_equal(manta_group_join(p, 0, &g), MANTA_OK);
    assert_string_equal(manta_group_implementation(g), "shm");
    assert_int_equal(manta_group_join(p, 0, &(manta_group *){NULL}), MANTA_EEXIST);
    assert_int_equal(manta_group_all_reduce(g, &x, &x, -1, MANTA_DTYPE_F32, MANTA_REDUCE_SUM), MANTA_EINVAL);
    assert_int_equal(manta_group_all_reduce(g, &x, &x, INT64_MAX, MANTA_DTYPE_F32, MANTA_REDUCE_SUM),
                     MANTA_EINVAL);
    assert_int_equal(manta_group_all_reduce(g, &x, &x, 1, MANTA_DTYPE_BOOL, MANTA_REDUCE_SUM), MANTA_EINVAL);
    assert_int_equal(manta_group_all_reduce(g, &x, &x, 1, MANTA_DTYPE_COUNT, MANTA_REDUCE_SUM), MANTA_EINVAL);
    assert_int_equal(manta_group_all_reduce(g, &x, &x, 1, MANTA_DTYPE_F32, 17), MANTA_EINVAL);
    assert_int_equal(manta_group_all_reduce(g, NULL, &x, 1, MANTA_DTYPE_F32, MANTA_REDUCE_SUM), MANTA_EINVAL);
    assert_int_equal(manta_group_broadcast(g, &x, 1, MANTA_DTYPE_F32, 1), MANTA_EINVAL);
    assert_int_equal(manta_group_send(g, &x, 1, MANTA_DTYPE_F32, 0), MANTA_EINVAL);
    assert_int_equal(manta_group_run(g, &(manta_collective){.kind = MANTA_COLLECTIVE_BARRIER,
                                                            .memory = MANTA_MEMORY_DEVICE}),
                     MANTA_EUNSUPPORTED);
    assert_int_equal(manta_group_run(g, &(manta_collective){.kind = 99}), MANTA_EINVAL);
    manta_group_close(g);
    manta_group_plan_free(p);
    manta_group_close(NULL);
    manta_group_plan_free(NULL);
}

static void different_calls_are_told(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++) {
        manta_group_plan *p = plan_of(size, NULL);
        ranks_as_threads(join_plan, p, size, trouble_mismatch, NULL);
        manta_group_plan_free(p);
    }
}

static void who_is_late_is_named(void **state)
{
    (void)state;
    lateness late = {0};
    manta_group_plan *p = plan_of(3, &(manta_group_options){.timeout_ms = LATE_MS});
    ranks_as_threads(join_plan, p, 3, trouble_late, &late);
    manta_group_plan_free(p);
}

static void who_leaves_is_named(void **state)
{
    (void)state;
    manta_group_plan *p = plan_of(3, NULL);
    ranks_as_threads(join_plan, p, 3, trouble_leave, NULL);
    manta_group_plan_free(p);
}

static void who_leaves_after_the_barrier_breaks_none(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        manta_group_plan *p = plan_of(2 + i % 2, NULL);
        ranks_as_threads(join_plan, p, 2 + i % 2, trouble_unsent, NULL);
        manta_group_plan_free(p);
    }
}

typedef struct reduction {
    atomic_bool begun, over; /* by rank 1; for rank 2 */
} reduction;

/* Rank 2 is about to leave, and rank 0 is to see that: it gets a while, which on a busy machine are fewer turns. */
static void let_be_seen(reduction *r)
{
    enum { TURNS = 200, WHILE_MS = 50 };

    while (!atomic_load(&r->over)) sched_yield();
    int64_t end = clock_deadline(WHILE_MS);
    for (int i = 0; i < TURNS && clock_now_ns() < end; i++) sched_yield();
}

/* Rank 2 has done its part of a reduce, and leaves; rank 1 has posted one step of two. The root, rank 0, ends the reduce
 * when rank 1 goes on, though it has a message under way that rank 2 does not send. */
static int reduce_and_leave(manta_group *g, void *ctx)
{
    enum { N = SHM_SLOT_MOST / sizeof(float) + 1 };
    reduction *r = ctx;
    float *x = calloc(N, sizeof *x), message = 0;
    manta_collective c = {
        .kind = MANTA_COLLECTIVE_REDUCE, .in = x, .out = x, .n = N, .dtype = MANTA_DTYPE_F32, .peer = 0};
    manta_collective receive = {
        .kind = MANTA_COLLECTIVE_RECEIVE, .out = &message, .n = 1, .dtype = MANTA_DTYPE_F32, .peer = 2};
    manta_work *w = NULL;

    if (manta_group_rank(g) == 1) {
        OK(!manta_group_start(g, &c, &w));
        atomic_store(&r->begun, true);
        let_be_seen(r);
        OK(!manta_work_wait(w));
        free(x);
        return 0;
    }
    if (manta_group_rank(g) == 0) OK(!manta_group_start(g, &receive, &w));
    while (!atomic_load(&r->begun)) sched_yield();
    OK(!manta_group_run(g, &c));
    if (manta_group_rank(g) == 0) OK(manta_work_wait(w) == MANTA_EDIED);
    if (manta_group_rank(g) == 2) atomic_store(&r->over, true);
    free(x);
    return 0;
}

static void who_leaves_after_its_part_of_a_reduce_breaks_none(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        reduction r = {false, false};
        manta_group_plan *p = plan_of(3, NULL);
        ranks_as_threads(join_plan, p, 3, reduce_and_leave, &r);
        manta_group_plan_free(p);
    }
}

static void who_leaves_ends_those_that_wait_for_each_other(void **state)
{
    const manta_group_options o = {.timeout_ms = MANTA_NONE};
    (void)state;

    for (int i = 0; i < 2; i++) {
        manta_work *left = NULL;
        manta_group_plan *p = plan_of(3, &o);
        ranks_as_threads(join_plan, p, 3, trouble_tangled, &left);
        manta_group_plan_free(p);
        assert_int_equal(manta_work_wait(left), MANTA_ECANCELLED);
    }
}

static void giving_up_ends_all(void **state)
{
    (void)state;
    manta_group_plan *p = plan_of(3, NULL);
    ranks_as_threads(join_plan, p, 3, trouble_abort, NULL);
    manta_group_plan_free(p);
}

static void who_has_not_joined_is_named(void **state)
{
    (void)state;
    manta_group *g;
    manta_group_plan *p = plan_of(3, &(manta_group_options){.join_timeout_ms = 1});
    assert_int_equal(manta_group_join(p, 1, &g), MANTA_ETIMEDOUT);
    assert_error_says("missing: rank 0, rank 2");
    /* who comes later is told at once that rank 1 has given up */
    assert_int_equal(manta_group_join(p, 0, &g), MANTA_ETIMEDOUT);
    assert_error_says("rank 1 waited");
    manta_group_plan_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_as_threads),
        cmocka_unit_test(every_call_as_processes),
        cmocka_unit_test(calls_overlap),
        cmocka_unit_test(a_thread_moves_calls_on),
        cmocka_unit_test(packing_changes_no_bit),
        cmocka_unit_test(fused_update),
        cmocka_unit_test(ranges_are_whole_blocks),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(who_has_not_joined_is_named),
        cmocka_unit_test(different_calls_are_told),
        cmocka_unit_test(who_is_late_is_named),
        cmocka_unit_test(who_leaves_is_named),
        cmocka_unit_test_setup_teardown(who_leaves_after_the_barrier_breaks_none, trouble_be_patient,
                                        trouble_be_usual),
        cmocka_unit_test_setup_teardown(who_leaves_after_its_part_of_a_reduce_breaks_none, trouble_be_patient,
                                        trouble_be_usual),
        cmocka_unit_test(who_leaves_ends_those_that_wait_for_each_other),
        cmocka_unit_test(giving_up_ends_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
