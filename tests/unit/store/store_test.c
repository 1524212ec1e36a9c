/* store_test.c - a writer and a reader of segments in one process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "base/map.h"
#include "os/shm.h"
#include "store/store.h"

/* Stands in for the daemon. */
typedef struct source {
    MAP_U64(int) fds;
    uint64_t next, used, limit;
    int given_back;
    uint64_t let_go; /* the last segment that was */
    uint32_t let_go_n;
} source;

static manta_status make(void *ctx, size_t least, size_t wanted, uint64_t *id, int *fd)
{
    source *s = ctx;
    size_t size = wanted <= s->limit - s->used ? wanted : least;

    if (size > s->limit - s->used) return manta_fail(MANTA_ENOSPC, "full");
    manta_status st = shm_new("test", shm_round(size), fd);
    if (st) return st;
    s->used += shm_round(size);
    *id = ++s->next;
    *map_u64_put(&s->fds, *id) = dup(*fd);
    return MANTA_OK;
}

static manta_status open_segment(void *ctx, uint64_t id, int *fd)
{
    source *s = ctx;
    int *known = map_u64_find(&s->fds, id);

    if (!known) return manta_fail(MANTA_ENOENT, "gone");
    *fd = dup(*known);
    return MANTA_OK;
}

static void give_back(void *ctx, uint64_t id)
{
    source *s = ctx;
    int *fd = map_u64_find(&s->fds, id);
    size_t size;

    assert_non_null(fd);
    assert_int_equal(shm_size(*fd, &size), MANTA_OK);
    s->used -= size;
    s->given_back++;
    close(*fd);
    map_u64_remove(&s->fds, id);
}

static void let_go(void *ctx, uint64_t id, uint32_t n)
{
    source *s = ctx;

    s->let_go = id;
    s->let_go_n = n;
}

static store *store_of(source *s)
{
    return store_new((store_source){
        .make = make, .open = open_segment, .give_back = give_back, .let_go = let_go, .ctx = s});
}

/* Sealed, and given back. */
static void give(store *w, store_place place)
{
    store_seal(w, place);
    store_give(w, place);
}

static void source_release(source *s)
{
    for (size_t i = 0; i < s->fds.n; i++) close(s->fds.at[i].value);
    map_u64_release(&s->fds);
}

static void readers_see_what_the_writer_wrote(void **state)
{
    source s = {.limit = 1 << 30};
    store *writer = store_of(&s), *reader = store_of(&s);
    store_place place;
    void *at;
    const void *seen;
    (void)state;

    assert_int_equal(store_take(writer, 100000, &place, &at), MANTA_OK);
    memset(at, 7, 100000);
    assert_int_equal(store_pin(reader, place, 100000, &seen), MANTA_OK);
    assert_true(seen != at);
    assert_memory_equal(seen, at, 100000);
    assert_int_equal(store_pin(writer, place, 100000, &seen), MANTA_OK);
    assert_true(seen == at);
    store_unpin(writer, place);
    /* Nobody else can ever write there. */
    void *p;
    assert_int_equal(shm_map(s.fds.at[0].value, 4096, true, &p), MANTA_EPERM);
    store_free(writer); /* the writer is gone; the reader reads on */
    assert_int_equal(store_pin(reader, place, 100000, &seen), MANTA_OK);
    assert_int_equal(((const char *)seen)[99999], 7);
    store_unpin(reader, place);
    store_unpin(reader, place);
    store_free(reader);
    source_release(&s);
}

static void places_outside_a_segment_are_refused(void **state)
{
    source s = {.limit = 1 << 30};
    store *w = store_of(&s);
    store_place place;
    void *at;
    const void *seen;
    uint64_t size, used;
    (void)state;

    assert_int_equal(store_take(w, 10, &place, &at), MANTA_OK);
    store_usage(w, &size, &used);
    const struct {
        uint64_t at;
        size_t size;
    } bad[] = {{size, 1}, {0, size + 1}, {UINT64_MAX, 1}, {64, SIZE_MAX}, {size - 8, 9}, {UINT64_MAX - 7, 8}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(store_pin(w, (store_place){place.segment, bad[i].at}, bad[i].size, &seen),
                         MANTA_ECORRUPT);
    assert_int_equal(store_pin(w, (store_place){999, 0}, 1, &seen), MANTA_ENOENT);
    store_give(w, (store_place){999, 0});
    store_give(w, (store_place){place.segment, 64});
    store_usage(w, &size, &used);
    assert_int_equal(used, 64);
    store_free(w);
    source_release(&s);
}

static void memory_is_used_again_and_goes_back(void **state)
{
    source s = {.limit = 1 << 30};
    store *w = store_of(&s);
    store_place place, first;
    void *at, *before;
    (void)state;

    assert_int_equal(store_take(w, 5 << 20, &first, &before), MANTA_OK);
    give(w, first);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(store_take(w, 5 << 20, &place, &at), MANTA_OK);
        assert_true(at == before); /* warm */
        give(w, place);
    }
    assert_int_equal(s.next, 1);
    /* Ten at once need more segments; afterwards one empty segment is kept. */
    store_place many[10];
    for (int i = 0; i < 10; i++) assert_int_equal(store_take(w, 5 << 20, &many[i], &at), MANTA_OK);
    for (int i = 0; i < 10; i++) give(w, many[i]);
    uint64_t size, used;
    store_usage(w, &size, &used);
    assert_int_equal(used, 0);
    assert_int_equal(s.fds.n, 1);
    assert_true(s.given_back > 0);
    store_free(w);
    source_release(&s);
}

static void full_is_an_error_and_the_last_bytes_are_found(void **state)
{
    source s = {.limit = 3 << 20};
    store *w = store_of(&s);
    store_place a, b, c;
    void *at;
    (void)state;

    assert_int_equal(store_take(w, 1 << 20, &a, &at), MANTA_OK);
    /* The next segment would be 2 MiB larger than what is left; a small one fits. */
    assert_int_equal(store_take(w, 1 << 20, &b, &at), MANTA_OK);
    assert_int_equal(store_take(w, 4 << 20, &c, &at), MANTA_ENOSPC);
    assert_int_equal(store_take(w, (size_t)1 << 60, &c, &at), MANTA_ENOSPC);
    give(w, a);
    assert_int_equal(store_take(w, 1 << 20, &c, &at), MANTA_OK);
    store_free(w);
    source_release(&s);
}

static void a_forgotten_segment_stays_while_it_is_pinned(void **state)
{
    source s = {.limit = 1 << 30};
    store *w = store_of(&s), *r = store_of(&s);
    store_place place;
    void *at;
    const void *seen;
    (void)state;

    assert_int_equal(store_take(w, 100, &place, &at), MANTA_OK);
    strcpy(at, "still here");
    assert_int_equal(store_pin(r, place, 100, &seen), MANTA_OK);
    store_forget(r, place.segment);
    assert_string_equal((const char *)seen, "still here");
    store_unpin(r, place);
    source_release(&s);
    assert_int_equal(store_pin(r, place, 100, &seen), MANTA_ENOENT);
    store_free(w);
    store_free(r);
}

/* Memory is short: what is not in use is unmapped, what is waits for the last
 * pin; a segment of our own that went is never written again. */
static void a_segment_is_let_go(void **state)
{
    source s = {.limit = 1 << 30};
    store *w = store_of(&s), *r = store_of(&s);
    store_place place, next;
    void *at;
    const void *seen, *again;
    (void)state;

    assert_int_equal(store_take(w, 100, &place, &at), MANTA_OK);
    strcpy(at, "kept");
    assert_int_equal(store_ask(w, place.segment), 0); /* it is being written */
    store_seal(w, place);
    assert_true(s.let_go == place.segment && s.let_go_n == 1);
    assert_int_equal(store_ask(w, place.segment), 0); /* nothing is mapped any more */
    assert_int_equal(store_ask(w, 999), 0);
    /* It comes back by itself, to be read; new blocks go elsewhere. */
    assert_int_equal(store_pin(w, place, 100, &seen), MANTA_OK);
    assert_string_equal((const char *)seen, "kept");
    assert_int_equal(store_take(w, 100, &next, &at), MANTA_OK);
    assert_true(next.segment != place.segment);
    assert_int_equal(store_ask(w, place.segment), 0);
    assert_int_equal(store_pin(w, place, 100, &again), MANTA_OK);
    assert_true(again == seen);
    store_unpin(w, place);
    s.let_go = 0;
    store_unpin(w, place);
    assert_true(s.let_go == place.segment && s.let_go_n == 1);
    /* A reader lets go at once, and can open it again. */
    assert_int_equal(store_pin(r, place, 100, &seen), MANTA_OK);
    store_unpin(r, place);
    assert_int_equal(store_ask(r, place.segment), 1);
    assert_int_equal(store_pin(r, place, 100, &seen), MANTA_OK);
    assert_string_equal((const char *)seen, "kept");
    store_unpin(r, place);
    /* Its last block goes while it is not mapped: the whole segment goes. */
    int before = s.given_back;
    store_give(w, place);
    assert_int_equal(s.given_back, before + 1);
    /* An empty one that is asked for goes altogether. */
    give(w, next);
    assert_int_equal(store_ask(w, next.segment), 1);
    assert_int_equal(s.given_back, before + 2);
    store_free(w);
    store_free(r);
    source_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_see_what_the_writer_wrote),
        cmocka_unit_test(places_outside_a_segment_are_refused),
        cmocka_unit_test(memory_is_used_again_and_goes_back),
        cmocka_unit_test(full_is_an_error_and_the_last_bytes_are_found),
        cmocka_unit_test(a_forgotten_segment_stays_while_it_is_pinned),
        cmocka_unit_test(a_segment_is_let_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
