/* packed_test.c - packed values as bytes: what is written is read, and bytes that lie about
 * their parts are refused, or changed behind an index without harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "task/packed.h"
#include "task/value.h"

enum { ROOM = 4096, TABLE = 24 + 5 * 8 };

static _Alignas(64) char room[ROOM];
static const manta_ref refs[2] = {{11}, {12}};
static const manta_actor actor = {13};
static const manta_packed_block parts[2] = {{"weights", 7}, {"bias", 4}};
static const manta_packed sample = {.head = "head",
                                    .head_size = 4,
                                    .blocks = parts,
                                    .n_blocks = 2,
                                    .refs = refs,
                                    .n_refs = 2,
                                    .actors = &actor,
                                    .n_actors = 1};

/* Writes the sample into `room`. */
static uint64_t write_sample(void)
{
    uint64_t size;

    assert_int_equal(packed_measure(&sample, false, &size), MANTA_OK);
    assert_true(size <= ROOM / 2);
    packed_copy(&sample, room);
    return size;
}

/* Every part of a view lies in the value, in order, and none in another. */
static void check_inside(const manta_packed *p, const char *at, uint64_t size)
{
    const char *last = (const char *)p->head + p->head_size;

    assert_true((const char *)p->head >= at && last <= at + size);
    for (size_t i = 0; i < p->n_blocks; i++) {
        const char *begin = p->blocks[i].at;
        assert_int_equal((uintptr_t)begin % MANTA_PACKED_ALIGN, 0);
        assert_true(begin >= last && begin + p->blocks[i].size <= at + size);
        last = begin + p->blocks[i].size;
    }
}

static void what_is_written_is_read(void **state)
{
    const uint64_t size = write_sample(), *ids;
    manta_packed p;
    (void)state;

    assert_true(packed_is_sound(room, size));
    assert_int_equal(packed_inner(room, &ids), 3);
    assert_int_equal(ids[2], 13);
    packed_index *x = packed_index_new(room, size);
    assert_non_null(x);
    packed_view(x, room, &p);
    check_inside(&p, room, size);
    assert_memory_equal(p.head, "head", 4);
    assert_int_equal(p.n_blocks, 2);
    assert_memory_equal(p.blocks[0].at, "weights", 7);
    assert_memory_equal(p.blocks[1].at, "bias", 4);
    assert_int_equal(p.refs[1].id, 12);
    assert_int_equal(p.actors[0].id, 13);
    mem_free(x);
}

/* Bytes of a message are aligned to 8: the index has them where blocks may lie. */
static void bytes_are_moved_to_where_blocks_may_lie(void **state)
{
    const uint64_t size = write_sample();
    manta_packed p;
    (void)state;

    memmove(room + 8, room, size);
    packed_index *x = packed_index_new(room + 8, size);
    assert_non_null(x);
    packed_view(x, room + 8, &p);
    memset(room, 0xff, sizeof room); /* what it was read from is not needed any more */
    assert_int_equal((uintptr_t)p.blocks[1].at % MANTA_PACKED_ALIGN, 0);
    assert_memory_equal(p.blocks[1].at, "bias", 4);
    assert_memory_equal(p.head, "head", 4);
    mem_free(x);
}

static void nothing_at_all_is_a_value(void **state)
{
    const manta_packed none = {0};
    manta_packed p;
    uint64_t size;
    (void)state;

    assert_int_equal(packed_measure(&none, false, &size), MANTA_OK);
    assert_int_equal(size, 24);
    packed_copy(&none, room);
    packed_index *x = packed_index_new(room, size);
    assert_non_null(x);
    packed_view(x, room, &p);
    assert_int_equal(p.head_size + p.n_blocks + p.n_refs + p.n_actors, 0);
    mem_free(x);
}

/* Every word of the table takes every value that could lead a reader astray. Either it is refused, or
 * what it describes lies inside. */
static void lies_are_refused(void **state)
{
    static const uint64_t lies[] = {0,
                                    1,
                                    2,
                                    3,
                                    63,
                                    64,
                                    65,
                                    255,
                                    4096,
                                    INT32_MAX,
                                    1u << 31,
                                    UINT32_MAX,
                                    1ull << 32,
                                    1ull << 62,
                                    INT64_MAX,
                                    1ull << 63,
                                    UINT64_MAX,
                                    UINT64_MAX - 63,
                                    UINT64_MAX - 64,
                                    1048576,
                                    1048577};
    int refused = 0;
    manta_packed p;
    (void)state;

    for (size_t at = 0; at < TABLE; at += 4)
        for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
            const uint64_t size = write_sample();
            memcpy(room + at, &lies[i], at % 8 ? 4 : 8);
            packed_index *x = packed_index_new(room, size);
            assert_int_equal(packed_is_sound(room, size), x != NULL);
            refused += !x;
            if (!x) continue;
            packed_view(x, room, &p);
            check_inside(&p, room, size);
            mem_free(x);
        }
    assert_true(refused > 100);
}

/* A value that is shorter or longer than its parts is none. */
static void other_sizes_are_refused(void **state)
{
    const uint64_t size = write_sample();
    (void)state;

    for (uint64_t n = 0; n < 2 * size; n++) assert_int_equal(packed_is_sound(room, n), n == size);
}

/* Who wrote the bytes changes them after they were read: the reader keeps to what it saw. */
static void bytes_change_behind_the_index(void **state)
{
    const uint64_t size = write_sample(), *ids;
    manta_packed p;
    (void)state;

    packed_index *x = packed_index_new(room, size);
    assert_non_null(x);
    memset(room, 0xff, TABLE);
    packed_view(x, room, &p);
    check_inside(&p, room, size);
    assert_int_equal(packed_index_inner(x, &ids), 3);
    assert_int_equal(ids[0], 11);
    assert_int_equal(p.refs[0].id, 11);
    mem_free(x);
}

static void random_bytes_do_no_harm(void **state)
{
    manta_packed p;
    (void)state;

    for (uint64_t seed = 0; seed < 20000; seed++) {
        uint32_t *words = (uint32_t *)(void *)room;
        rng_fill(rng_make(seed, 2), 0, 16, words);
        for (int i = 0; i < 64; i++)
            words[i] &= i % 2 || (i > 1 && i < 6) ? 0x3 : 0x1ff; /* nearly one, often */
        const uint64_t size = words[63] % 256;
        packed_index *x = packed_index_new(room, size);
        assert_int_equal(packed_is_sound(room, size), x != NULL);
        if (!x) continue;
        packed_view(x, room, &p);
        check_inside(&p, room, size);
        mem_free(x);
    }
}

static void impossible_values_are_refused(void **state)
{
    static const manta_packed_block nowhere = {NULL, 4}, huge[2] = {{NULL, SIZE_MAX}, {NULL, SIZE_MAX}};
    const manta_packed bad[] = {{.head_size = 1},
                                {.n_blocks = 1},
                                {.blocks = &nowhere, .n_blocks = 1},
                                {.n_refs = 1},
                                {.n_actors = 1},
                                {.blocks = &nowhere, .n_blocks = MANTA_PACKED_BLOCKS + 1},
                                {.blocks = &nowhere, .n_blocks = SIZE_MAX},
                                {.refs = refs, .n_refs = MANTA_PACKED_INNER + 1},
                                {.refs = refs, .n_refs = MANTA_PACKED_INNER, .actors = &actor, .n_actors = 1},
                                {.refs = refs, .n_refs = SIZE_MAX, .actors = &actor, .n_actors = 2},
                                {.head = "", .head_size = SIZE_MAX}};
    const manta_packed large = {.blocks = huge, .n_blocks = 2};
    uint64_t size;
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(packed_measure(&bad[i], false, &size), MANTA_EINVAL);
    assert_int_equal(packed_measure(&large, true, &size), MANTA_EINVAL);
    assert_int_equal(packed_measure(NULL, true, &size), MANTA_EINVAL);
    assert_int_equal(packed_measure(&bad[2], true, &size), MANTA_OK);
}

/* In a message, whole and damaged. */
static void messages_carry_them(void **state)
{
    const manta_arg a = manta_pack(&sample);
    value v, back;
    buf b = {0};
    (void)state;

    assert_int_equal(value_of(&a, &v), MANTA_OK);
    value_copy(&a, &v, room);
    v.at = room;
    value_put(&b, &v);
    wire w = wire_of(b.at, b.n);
    value_take(&w, &back);
    assert_int_equal(wire_end(&w, "value"), MANTA_OK);
    assert_int_equal(back.kind, MANTA_KIND_PACKED);
    assert_memory_equal(back.at, room, v.size);
    room[8] = 77; /* so many blocks cannot be */
    buf_cut(&b, 0);
    value_put(&b, &v);
    w = wire_of(b.at, b.n);
    value_take(&w, &back);
    assert_true(w.broken);
    v = (value){.kind = MANTA_KIND_PACKED, .size = 64, .place = {3, 8}}; /* its blocks could not be aligned */
    buf_cut(&b, 0);
    value_put(&b, &v);
    w = wire_of(b.at, b.n);
    value_take(&w, &back);
    assert_true(w.broken);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(bytes_are_moved_to_where_blocks_may_lie),
        cmocka_unit_test(nothing_at_all_is_a_value),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(other_sizes_are_refused),
        cmocka_unit_test(bytes_change_behind_the_index),
        cmocka_unit_test(random_bytes_do_no_harm),
        cmocka_unit_test(impossible_values_are_refused),
        cmocka_unit_test(messages_carry_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
