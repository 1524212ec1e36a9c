/* sizes_test.c - one below, at, one above and ten times every size of store/sizes.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "ok.h"
#include "os/shm.h"
#include "store/extents.h"
#include "store/refs.h"
#include "store/sizes.h"
#include "store/spill_file.h"
#include "store/store.h"

/* Calls `check` with every size beside one. */
static void around(size_t size, void (*check)(size_t size))
{
    check(size - 1);
    check(size);
    check(size + 1);
    check(10 * size);
}

/* ---- blocks ---- */

static void check_block(size_t size)
{
    extents e;
    uint64_t a, b, rounded = (size + EXTENTS_ALIGN - 1) / EXTENTS_ALIGN * EXTENTS_ALIGN;

    extents_init(&e, 2 * rounded);
    assert_true(extents_take(&e, size, &a));
    assert_true(extents_take(&e, size, &b));
    assert_int_equal(a, 0);
    assert_int_equal(b, rounded);
    assert_int_equal(e.used, 2 * rounded);
    assert_false(extents_take(&e, 1, &b));
    assert_true(extents_give(&e, a));
    assert_true(extents_take(&e, size, &b));
    assert_int_equal(b, 0);
    extents_release(&e);
}

static void blocks_beside_the_alignment(void **state)
{
    (void)state;
    around(EXTENTS_ALIGN, check_block);
}

/* ---- segments ---- */

typedef struct source {
    size_t least, wanted; /* of the last segment that was asked for */
    uint64_t n;
} source;

/* As much as is wanted, without reserving it: pages that are not touched cost nothing. */
static manta_status make(void *ctx, size_t least, size_t wanted, uint64_t *id, int *fd)
{
    source *s = ctx;

    s->least = least;
    s->wanted = wanted;
    *id = ++s->n;
    *fd = memfd_create("test", MFD_ALLOW_SEALING);
    assert_true(*fd >= 0);
    assert_int_equal(ftruncate(*fd, (off_t)wanted), 0);
    assert_int_equal(fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    return MANTA_OK;
}

static manta_status open_none(void *ctx, uint64_t id, int *fd)
{
    (void)ctx;
    (void)id;
    (void)fd;
    return manta_fail(MANTA_ENOENT, "gone");
}

static void give_back(void *ctx, uint64_t id)
{
    (void)ctx;
    (void)id;
}

static void let_go(void *ctx, uint64_t id, uint32_t n)
{
    (void)ctx;
    (void)id;
    (void)n;
}

static store *store_of(source *s)
{
    return store_new(
        (store_source){.make = make, .open = open_none, .give_back = give_back, .let_go = let_go, .ctx = s});
}

/* Both ends of a block can be written and read. */
static void take_block(store *s, size_t size)
{
    store_place place;
    void *at;
    const void *seen;

    assert_ok(store_take(s, size, &place, &at));
    ((char *)at)[0] = 1;
    ((char *)at)[size - 1] = 2;
    store_seal(s, place);
    assert_ok(store_pin(s, place, size, &seen));
    assert_int_equal(((const char *)seen)[size - 1], 2);
    store_unpin(s, place);
}

static void check_first_segment(size_t size)
{
    source s = {0};
    store *w = store_of(&s);

    take_block(w, size);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.least, shm_round(size));
    assert_int_equal(s.wanted, size > STORE_SEGMENT_FIRST ? shm_round(size) : STORE_SEGMENT_FIRST);
    store_free(w);
}

static void first_segments(void **state)
{
    (void)state;
    around(STORE_SEGMENT_FIRST, check_first_segment);
}

/* What a process has decides what it asks for next, up to a bound. */
static void check_next_segment(size_t size)
{
    source s = {0};
    store *w = store_of(&s);

    take_block(w, size); /* fills its segment but for less than a page */
    take_block(w, shm_page());
    assert_int_equal(s.n, 2);
    size_t have = shm_round(size);
    assert_int_equal(s.wanted, have > STORE_SEGMENT_MOST ? STORE_SEGMENT_MOST : have);
    store_free(w);
}

static void segments_grow_up_to_the_largest(void **state)
{
    (void)state;
    around(STORE_SEGMENT_MOST, check_next_segment);
}

static void objects_beside_the_limit(void **state)
{
    source s = {0};
    store *w = store_of(&s);
    store_place place;
    void *at;
    (void)state;

    assert_fails_with(store_take(w, STORE_OBJECT_LIMIT, &place, &at), MANTA_ENOSPC, "2^46");
    assert_fails_with(store_take(w, STORE_OBJECT_LIMIT + 1, &place, &at), MANTA_ENOSPC, "2^46");
    assert_fails_with(store_take(w, 10 * STORE_OBJECT_LIMIT, &place, &at), MANTA_ENOSPC, "2^46");
    assert_int_equal(s.n, 0); /* nobody was asked */
    store_free(w);
}

/* ---- files ---- */

static void check_copy(size_t size)
{
    int from = memfd_create("from", 0), to = memfd_create("to", 0);
    char *bytes = mem_new(size + 1), *back = mem_new(size + 1);
    uint32_t crc;

    for (size_t i = 0; i < size; i++) bytes[i] = (char)(i * 7 + i / 4096);
    assert_int_equal(write(from, bytes, size), size);
    assert_ok(spill_file_copy(from, to, size, "here", &crc));
    assert_int_equal(crc, crc32c(0, bytes, size));
    assert_int_equal(pread(to, back, size + 1, 0), size);
    assert_memory_equal(bytes, back, size);
    assert_fails_with(spill_file_copy(from, to, size + 1, "here", &crc), MANTA_EIO, "cut short");
    mem_free(bytes);
    mem_free(back);
    close(from);
    close(to);
}

static void files_beside_a_chunk(void **state)
{
    (void)state;
    around(STORE_SPILL_CHUNK, check_copy);
}

/* ---- holders ---- */

static void check_holders(size_t n)
{
    refs_book *r = refs_new();
    refs_actions freed = {0};

    for (int turn = 0; turn < 2; turn++) {
        if (turn == 0) refs_step(r, (refs_event){.kind = REFS_ADD, .object = 1, .client = 1}, &freed);
        for (size_t i = 0; i < n; i++)
            refs_step(r, (refs_event){.kind = REFS_HOLD, .object = 1, .client = (refs_client)(i + 2)},
                      &freed);
        assert_int_equal(refs_total(r, 1), n);
        for (size_t i = 0; i + 1 < n; i++)
            refs_step(r, (refs_event){.kind = REFS_DROP, .object = 1, .client = (refs_client)(i + 2)},
                      &freed);
        refs_step(r, (refs_event){.kind = REFS_SETTLE, .changes = refs_changes(r)}, &freed);
        assert_int_equal(freed.n, 0); /* the last one holds it */
        refs_step(r, (refs_event){.kind = REFS_DROP, .object = 1, .client = (refs_client)(n + 1)}, &freed);
    }
    refs_step(r, (refs_event){.kind = REFS_SETTLE, .changes = refs_changes(r)}, &freed);
    assert_int_equal(freed.n, 1);
    assert_int_equal(refs_count(r), 0);
    vec_release(&freed);
    refs_free(r);
}

static void holders_beside_the_few(void **state)
{
    (void)state;
    around(REFS_FEW, check_holders);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_beside_the_alignment),
        cmocka_unit_test(first_segments),
        cmocka_unit_test(segments_grow_up_to_the_largest),
        cmocka_unit_test(objects_beside_the_limit),
        cmocka_unit_test(files_beside_a_chunk),
        cmocka_unit_test(holders_beside_the_few),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
