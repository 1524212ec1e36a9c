/* sizes_test.c - one below, at, one above and ten times every size of comm/sizes.h, in shared memory and
 * over the network, against plain loops. */
#include "comm/cases.h"
#include "comm/network.h"
#include "comm/shm.h"
#include "comm/sizes.h"
#include "ok.h"

/* ---- what a collective carries ---- */

/* The sum of n bytes, where there are many. */
static int sum_bytes(manta_group *g, int64_t n)
{
    int me = manta_group_rank(g), size = manta_group_size(g);
    uint8_t *x = malloc((size_t)n);

    for (int64_t i = 0; i < n; i++) x[i] = (uint8_t)(i * 7 + me);
    OK(!manta_group_all_reduce(g, x, x, n, MANTA_DTYPE_U8, MANTA_REDUCE_SUM));
    for (int64_t i = 0; i < n; i++) OK(x[i] == (uint8_t)(i * 7 * size + size * (size - 1) / 2));
    for (int64_t i = 0; i < n; i++) x[i] = (uint8_t)(i * 7 + me);
    OK(!manta_group_broadcast(g, x, n, MANTA_DTYPE_U8, size - 1));
    for (int64_t i = 0; i < n; i++) OK(x[i] == (uint8_t)(i * 7 + size - 1));
    free(x);
    return 0;
}

/* Bytes beside a size: of bytes every collective, of floats the sums, where a part ends within an element
 * of the size. */
static int beside(manta_group *g, void *ctx)
{
    int64_t size = *(const int64_t *)ctx;

    for (int64_t n = size - 1; n <= size + 1; n++) {
        int bad = case_reductions(g, MANTA_DTYPE_U8, MANTA_REDUCE_SUM, n);
        if (!bad) bad = case_moves(g, MANTA_DTYPE_U8, n);
        if (!bad) bad = case_reductions(g, MANTA_DTYPE_F32, MANTA_REDUCE_SUM, n / 4);
        if (bad) fprintf(stderr, "%lld bytes\n", (long long)n);
        if (bad) return bad;
    }
    return sum_bytes(g, 10 * size);
}

static void in_shared_memory(int size, int64_t bytes)
{
    manta_group_plan *p;

    assert_ok(manta_group_plan_new(size, NULL, &p));
    ranks_as_threads(join_plan, p, size, beside, &bytes);
    manta_group_plan_free(p);
}

static void bytes_beside_a_slot(void **state)
{
    (void)state;
    in_shared_memory(2, (int64_t)SHM_SLOT_MOST);
    in_shared_memory(3, (int64_t)SHM_SLOT_MOST / 3 / 64 * 64); /* a part of one */
}

static void bytes_beside_a_cell(void **state)
{
    (void)state;
    in_shared_memory(2, (int64_t)SHM_CELL_MOST);
    in_shared_memory(2, (int64_t)SHM_CELL_LEAST);
}

static void bytes_from_which_on_there_are_two_phases(void **state)
{
    (void)state;
    in_shared_memory(3, (int64_t)SHM_TWO_PHASE_FROM);
    in_shared_memory(2, (int64_t)SHM_TWO_PHASE_FROM);
}

static void elements_beside_a_block_of_a_reduction(void **state)
{
    (void)state;
    in_shared_memory(3, (int64_t)REDUCE_BLOCK);
    in_shared_memory(3, (int64_t)REDUCE_BLOCK * 4);
}

static void on_the_network(int size, int64_t bytes)
{
    network_as_threads(size, NULL, beside, &bytes);
}

static void bytes_that_go_with_their_words(void **state)
{
    (void)state;
    on_the_network(2, RING_EAGER);
    on_the_network(3, RING_EAGER);
}

static void bytes_beside_a_frame(void **state)
{
    (void)state;
    on_the_network(2, RING_CHUNK_LEAST);
    on_the_network(3, RING_CHUNK);
}

static int beside_direct(manta_group *g, void *ctx)
{
    static const int64_t all[] = {RING_DIRECT_MOST - 1, RING_DIRECT_MOST, RING_DIRECT_MOST + 1,
                                  (int64_t)10 * RING_DIRECT_MOST};
    (void)ctx;

    for (int k = 0; k < 4; k++) {
        int bad = sum_bytes(g, all[k]);
        if (bad) return bad;
    }
    return 0;
}

static void bytes_that_two_ranks_exchange_whole(void **state)
{
    (void)state;
    network_as_threads(2, NULL, beside_direct, NULL);
}

/* ---- how a group divides memory ---- */

/* Slots and cells become smaller with more ranks, never beyond their bounds, and stay whole lines. */
static void slots_and_cells_have_bounds(void **state)
{
    (void)state;
    for (int size = 1; size <= MANTA_GROUP_MAX; size++) {
        shm_head h = shm_head_of(size, &(manta_group_options){0});
        uint64_t n = (uint64_t)size, slots = SHM_SLOTS_TOTAL / n / SHM_SLOTS;
        uint64_t cells = SHM_CELLS_TOTAL / n / n / SHM_CELLS;
        assert_int_equal(h.slot_size % 64, 0);
        assert_int_equal(h.cell_size % 64, 0);
        assert_true(h.slot_size >= SHM_SLOT_LEAST && h.slot_size <= SHM_SLOT_MOST);
        assert_true(h.cell_size >= SHM_CELL_LEAST && h.cell_size <= SHM_CELL_MOST);
        if (slots >= SHM_SLOT_MOST) assert_int_equal(h.slot_size, SHM_SLOT_MOST);
        if (slots <= SHM_SLOT_LEAST) assert_int_equal(h.slot_size, SHM_SLOT_LEAST);
        if (cells >= SHM_CELL_MOST) assert_int_equal(h.cell_size, SHM_CELL_MOST);
        if (cells <= SHM_CELL_LEAST) assert_int_equal(h.cell_size, SHM_CELL_LEAST);
        assert_true(h.slot_size / 64 >= n); /* a line for each rank */
    }
}

/* ---- packs and ranges ---- */

/* Two tensors whose bytes together are beside a pack: one all-reduce or two, and the same sums. */
static int beside_a_pack(manta_group *g, void *ctx)
{
    int64_t room = GROUP_PACK / 4, n[4][2] = {{room - 2, 1}, {room - 1, 1}, {room, 1}, {9 * room, room}};
    int me = manta_group_rank(g), size = manta_group_size(g);
    (void)ctx;

    for (int k = 0; k < 4; k++) {
        float *data[2];
        for (int t = 0; t < 2; t++) {
            data[t] = malloc((size_t)n[k][t] * sizeof(float));
            for (int64_t i = 0; i < n[k][t]; i++) data[t][i] = (float)(i % 1000 + me + t);
        }
        OK(!manta_group_all_reduce_many(g, 2, (void *const *)data, n[k], MANTA_DTYPE_F32, MANTA_REDUCE_SUM));
        for (int t = 0; t < 2; t++) {
            for (int64_t i = 0; i < n[k][t]; i++)
                OK(data[t][i] == (float)(size * (i % 1000 + t) + size * (size - 1) / 2));
            free(data[t]);
        }
    }
    return 0;
}

static void tensors_beside_a_pack(void **state)
{
    manta_group_plan *p;

    (void)state;
    assert_ok(manta_group_plan_new(2, NULL, &p));
    ranks_as_threads(join_plan, p, 2, beside_a_pack, NULL);
    manta_group_plan_free(p);
}

/* Ranges are whole blocks but for the last, in order, and all of it. */
static void ranges_beside_a_block(void **state)
{
    static const int64_t all[] = {0, GROUP_GRID - 1, GROUP_GRID, GROUP_GRID + 1, (int64_t)10 * GROUP_GRID};

    (void)state;
    for (int k = 0; k < 5; k++) {
        for (int size = 1; size <= 12; size++) {
            int64_t at = 0, begin, end;
            for (int rank = 0; rank < size; rank++, at = end) {
                manta_group_range(all[k], size, rank, &begin, &end);
                assert_int_equal(begin, at);
                assert_true(end >= begin && (end % GROUP_GRID == 0 || end == all[k]));
            }
            assert_int_equal(at, all[k]);
        }
    }
}

/* Of no group, or not a rank of it: nothing, and a sentence. */
static void ranges_that_cannot_be(void **state)
{
    static const struct {
        int64_t n;
        int size, rank;
    } wrong[] = {{-1, 2, 0}, {10, 0, 0}, {10, -1, 0}, {10, 2, -1}, {10, 2, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t begin = 7, end = 8;
        manta_group_range(wrong[i].n, wrong[i].size, wrong[i].rank, &begin, &end);
        assert_true(begin == 0 && end == 0);
        assert_error_says("manta_group_range");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_beside_a_slot),
        cmocka_unit_test(bytes_beside_a_cell),
        cmocka_unit_test(bytes_from_which_on_there_are_two_phases),
        cmocka_unit_test(elements_beside_a_block_of_a_reduction),
        cmocka_unit_test(bytes_that_go_with_their_words),
        cmocka_unit_test(bytes_beside_a_frame),
        cmocka_unit_test(bytes_that_two_ranks_exchange_whole),
        cmocka_unit_test(slots_and_cells_have_bounds),
        cmocka_unit_test(tensors_beside_a_pack),
        cmocka_unit_test(ranges_beside_a_block),
        cmocka_unit_test(ranges_that_cannot_be),
    };

    return cmocka_run_group_tests(tests, network_setup, network_teardown);
}
