/* container_test.c - vec, map, list and queue against plain models of them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/queue.h"
#include "base/rng.h"
#include "base/vec.h"

typedef struct point {
    int x, y;
} point;

static void vec_holds_what_was_pushed(void **state)
{
    (void)state;
    int64_t before = mem_live();
    VEC(point) v = {0};
    for (int i = 0; i < 1000; i++) vec_push(&v, (point){i, -i});
    assert_int_equal(v.n, 1000);
    for (int i = 0; i < 1000; i++) assert_true(v.at[i].x == i && v.at[i].y == -i);
    vec_last(&v).y = 7;
    assert_int_equal(vec_pop(&v).y, 7);
    vec_remove(&v, 0);
    vec_remove(&v, 500);
    vec_remove(&v, v.n - 1);
    assert_int_equal(v.n, 996);
    assert_int_equal(v.at[0].x, 1);
    assert_int_equal(v.at[499].x, 500);
    assert_int_equal(v.at[500].x, 502);
    assert_int_equal(vec_last(&v).x, 997);
    vec_clear(&v);
    assert_int_equal(v.n, 0);
    vec_reserve(&v, 5000);
    point *at = v.at;
    for (int i = 0; i < 5000; i++) vec_push(&v, (point){i, i});
    assert_ptr_equal(v.at, at);
    vec_release(&v);
    vec_release(&v);
    assert_int_equal(mem_live(), before);
}

enum { KEYS = 500 };

/* Random puts and removes, checked against an array after each. The keys are
 * multiples of a power of two, or share long prefixes, as real ones do. */
static void map_agrees_with_an_array(void **state)
{
    (void)state;
    int64_t before = mem_live();
    MAP(int) text = {0};
    MAP_U64(int) number = {0};
    int model[KEYS];
    size_t live = 0;
    for (int i = 0; i < KEYS; i++) model[i] = -1;
    for (uint64_t step = 0; step < 20000; step++) {
        rng_words r = rng_at(rng_make(4, 4), step);
        int k = (int)(r.w[0] % KEYS);
        char key[64];
        snprintf(key, sizeof key, "resnet18/layer%d/kernel", k);
        uint64_t id = (uint64_t)k << 20;
        /* Grow in the first part, shrink in the last. */
        if (r.w[1] % 100 < (step < 10000 ? 70 : 30)) {
            live += model[k] < 0;
            model[k] = (int)(r.w[2] & 0xFFFF);
            *map_put(&text, key) = model[k];
            *map_u64_put(&number, id) = model[k];
        } else {
            bool was = model[k] >= 0;
            live -= was;
            model[k] = -1;
            assert_int_equal(map_remove(&text, key), was);
            assert_int_equal(map_u64_remove(&number, id), was);
        }
        assert_int_equal(text.n, live);
        assert_int_equal(number.n, live);
        if (step % 97 != 0) continue;
        for (int i = 0; i < KEYS; i++) {
            snprintf(key, sizeof key, "resnet18/layer%d/kernel", i);
            int *a = map_find(&text, key), *b = map_u64_find(&number, (uint64_t)i << 20);
            assert_int_equal(a ? *a : -1, model[i]);
            assert_int_equal(b ? *b : -1, model[i]);
        }
    }
    map_release(&text);
    map_u64_release(&number);
    assert_null(map_find(&text, "x"));
    map_release(&text);
    assert_int_equal(mem_live(), before);
}

/* After a burst: what is left is found, in a table as small as it needs, and goes on. */
static void map_gives_memory_back(void **state)
{
    (void)state;
    MAP_U64(uint64_t) m = {0};
    map_u64_trim(&m); /* an empty one */
    for (uint64_t i = 0; i < 10000; i++) *map_u64_put(&m, i << 7) = i;
    uint32_t most = m.table.cap;
    map_u64_trim(&m); /* it is in use */
    assert_int_equal(m.table.cap, most);
    for (uint64_t i = 0; i < 9000; i++) assert_true(map_u64_remove(&m, i << 7));
    map_u64_trim(&m);
    assert_true(m.table.cap <= most / 4 && m.table.cap >= 1000 && m.n == 1000);
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t *v = map_u64_find(&m, i << 7);
        assert_true(i < 9000 ? !v : *v == i);
    }
    for (uint64_t i = 0; i < 9000; i++) *map_u64_put(&m, i << 7) = i;
    for (uint64_t i = 0; i < 10000; i++) assert_int_equal(*map_u64_find(&m, i << 7), i);
    for (uint64_t i = 0; i < 10000; i++) assert_true(map_u64_remove(&m, i << 7));
    map_u64_trim(&m);
    assert_true(m.table.cap < 1024 && m.n == 0);
    map_u64_release(&m);
}

static void map_keeps_the_order_of_puts(void **state)
{
    (void)state;
    MAP(point) m = {0};
    assert_null(map_find(&m, "a"));
    assert_false(map_remove(&m, "a"));
    static const char *const names[] = {"zeta", "alpha", "", "mid", "omega"};
    for (int i = 0; i < 5; i++) {
        point *p = map_put(&m, names[i]);
        assert_int_equal(p->x, 0); /* a new value is zeroed */
        p->x = i;
    }
    map_put(&m, "alpha")->y = 9; /* an old one is found */
    assert_int_equal(m.n, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(m.at[i].key, names[i]);
        assert_int_equal(m.at[i].value.x, i);
    }
    assert_true(map_remove(&m, m.at[1].key)); /* by the map's own string */
    assert_int_equal(m.n, 4);
    assert_string_equal(m.at[1].key, "omega");
    assert_int_equal(map_find(&m, "omega")->x, 4);
    map_release(&m);
}

typedef struct item {
    int value;
    list link;
} item;

static void check_list(const list *head, int n, const int *values)
{
    int i = 0;

    for (const list *l = head->next; l != head; l = l->next, i++) {
        assert_true(i < n);
        assert_int_equal(LIST_ITEM(l, item, link)->value, values[i]);
        assert_ptr_equal(l->next->prev, l);
    }
    assert_int_equal(i, n);
}

static void list_links_and_unlinks(void **state)
{
    (void)state;
    list head;
    item items[4];
    list_init(&head);
    assert_true(list_is_empty(&head));
    assert_null(list_pop(&head));
    for (int i = 0; i < 4; i++) items[i].value = i;
    list_push(&head, &items[1].link);
    list_push(&head, &items[2].link);
    list_push_first(&head, &items[0].link);
    list_push(&head, &items[3].link);
    check_list(&head, 4, (int[]){0, 1, 2, 3});
    list_remove(&items[2].link);
    check_list(&head, 3, (int[]){0, 1, 3});
    list_remove(&items[2].link); /* twice is harmless */
    check_list(&head, 3, (int[]){0, 1, 3});
    assert_ptr_equal(list_pop(&head), &items[0].link);
    assert_ptr_equal(list_pop(&head), &items[1].link);
    list_remove(&items[3].link);
    assert_true(list_is_empty(&head));
}

typedef QUEUE(int) int_queue;

static void queue_is_first_in_first_out_and_bounded(void **state)
{
    (void)state;
    int_queue q = {0};
    int v = -1;
    assert_int_equal(queue_init(&q, 3), MANTA_OK);
    assert_int_equal(queue_pop(&q, &v, 0), MANTA_ETIMEDOUT);
    for (int round = 0; round < 5; round++) { /* around the ring */
        for (int i = 0; i < 3; i++) assert_int_equal(queue_push(&q, &(int){10 * round + i}, 0), MANTA_OK);
        assert_int_equal(queue_push(&q, &v, 0), MANTA_ETIMEDOUT);
        assert_int_equal(queue_push(&q, &v, clock_now_ns() + 1000000), MANTA_ETIMEDOUT);
        for (int i = 0; i < 2 + (round == 4); i++) {
            assert_int_equal(queue_pop(&q, &v, 0), MANTA_OK);
            assert_int_equal(v, 10 * round + i);
        }
        if (round < 4) {
            assert_int_equal(queue_pop(&q, &v, CLOCK_NEVER), MANTA_OK);
            assert_int_equal(v, 10 * round + 2);
        }
    }
    int64_t deadline = clock_now_ns() + 2000000;
    assert_int_equal(queue_pop(&q, &v, deadline), MANTA_ETIMEDOUT);
    assert_true(clock_now_ns() >= deadline);
    assert_int_equal(queue_push(&q, &(int){1}, 0), MANTA_OK);
    queue_close(&q);
    queue_close(&q);
    assert_int_equal(queue_push(&q, &(int){2}, CLOCK_NEVER), MANTA_ECANCELLED);
    assert_int_equal(queue_pop(&q, &v, 0), MANTA_OK); /* what was in is drained */
    assert_int_equal(v, 1);
    assert_int_equal(queue_pop(&q, &v, CLOCK_NEVER), MANTA_ECANCELLED);
    queue_release(&q);
    queue_release(&q);
}

enum { THREADS = 3, EACH = 3000 };

typedef struct crew {
    int_queue q;
    _Atomic int next_producer;
    _Atomic int seen[THREADS * EACH];
    _Atomic int bad;
} crew;

static void *produce(void *arg)
{
    crew *c = arg;
    int first = atomic_fetch_add(&c->next_producer, 1) * EACH;

    for (int i = first; i < first + EACH; i++)
        if (queue_push(&c->q, &i, CLOCK_NEVER)) atomic_fetch_add(&c->bad, 1);
    return NULL;
}

/* Values of one producer must come in its order. */
static void *consume(void *arg)
{
    crew *c = arg;
    int v, last[THREADS] = {-1, -1, -1};

    while (queue_pop(&c->q, &v, CLOCK_NEVER) == MANTA_OK) {
        if (v <= last[v / EACH]) atomic_fetch_add(&c->bad, 1);
        last[v / EACH] = v;
        atomic_fetch_add(&c->seen[v], 1);
    }
    return NULL;
}

static void queue_loses_and_doubles_nothing_between_threads(void **state)
{
    (void)state;
    crew *c = mem_new(sizeof *c);
    pthread_t producers[THREADS], consumers[THREADS];
    assert_int_equal(queue_init(&c->q, 4), MANTA_OK);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&producers[i], NULL, produce, c), 0);
        assert_int_equal(pthread_create(&consumers[i], NULL, consume, c), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(producers[i], NULL);
    queue_close(&c->q); /* wakes the consumers that wait for more */
    for (int i = 0; i < THREADS; i++) pthread_join(consumers[i], NULL);
    for (int i = 0; i < THREADS * EACH; i++) assert_int_equal(atomic_load(&c->seen[i]), 1);
    assert_int_equal(atomic_load(&c->bad), 0);
    queue_release(&c->q);
    mem_free(c);
}

static void queue_fails_clean_without_memory(void **state)
{
    (void)state;
    int64_t before = mem_live();
    for (int sticky = 0; sticky <= 1; sticky++) {
        int n = 1;
        for (;; n++) {
            int_queue q = {0};
            mem_fail_at(n, sticky);
            manta_status st = queue_init(&q, 4);
            mem_fail_at(0, 0);
            if (st == MANTA_OK) {
                queue_release(&q);
                break;
            }
            assert_int_equal(st, MANTA_ENOMEM);
            queue_release(&q); /* allowed, and does nothing */
            assert_int_equal(mem_live(), before);
        }
        assert_int_equal(n, 2);
        assert_int_equal(mem_live(), before);
    }
    int_queue q = {0};
    assert_int_equal(queue_init(&q, SIZE_MAX / 2), MANTA_ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vec_holds_what_was_pushed),
        cmocka_unit_test(map_agrees_with_an_array),
        cmocka_unit_test(map_gives_memory_back),
        cmocka_unit_test(map_keeps_the_order_of_puts),
        cmocka_unit_test(list_links_and_unlinks),
        cmocka_unit_test(queue_is_first_in_first_out_and_bounded),
        cmocka_unit_test(queue_loses_and_doubles_nothing_between_threads),
        cmocka_unit_test(queue_fails_clean_without_memory),
    };

    return cmocka_run_group_tests_name("base/container", tests, NULL, NULL);
}
