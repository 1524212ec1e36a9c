/* sizes.c - many results, arguments and items of one size, for sizes on both sides of
 * every threshold of the runtime: what is inside a message (8 KiB), what a ring holds
 * (128 KiB), and the longest message (32 KiB). Nobody reads while they are made, so
 * that rings are full, and the program must end all the same. */
#include "scenario.h"

#include <manta/actor.h>
#include <manta/map.h>
#include <manta/queue.h>
#include <manta/stream.h>

#include "task/sizes.h"

static const int64_t sizes[] = {0,    1,    8,    96,    1000,  4000,  8000,   8191,
                                8192, 8193, 9000, 20000, 32767, 32769, 131072, 200000};
enum {
    SIZES = sizeof sizes / sizeof sizes[0],
    MOST = 400,
    MOST_BYTES = 6 << 20,
    LARGEST = 10 * (int)RING_SIZE
};

static int many(int64_t size)
{
    return size * MOST > MOST_BYTES ? (int)(MOST_BYTES / size) : MOST;
}

/* The i-th of them: its bytes tell it from the others. */
static const void *content(int64_t size, int64_t i)
{
    static char bytes[LARGEST];

    memset(bytes, (int)(i % 251), (size_t)size);
    return bytes;
}

static void check_content(manta_ref r, int64_t size, int64_t i)
{
    const void *at;
    size_t n;

    OK(manta_get_bytes(r, &at, &n, LONG));
    CHECK((int64_t)n == size);
    CHECK(!memcmp(at, content(size, i), n));
    manta_release(r);
}

static manta_status size_make(manta_task *t)
{
    int64_t size, i;

    MANTA_TRY(manta_arg_i64(t, 0, &size));
    MANTA_TRY(manta_arg_i64(t, 1, &i));
    return manta_return(t, 0, manta_bytes(content(size, i), (size_t)size));
}
MANTA_REMOTE(size_make)

static manta_status size_check(manta_task *t)
{
    const void *at;
    size_t n;
    int64_t i;

    MANTA_TRY(manta_arg_bytes(t, 0, &at, &n));
    MANTA_TRY(manta_arg_i64(t, 1, &i));
    if (memcmp(at, content((int64_t)n, i), n) != 0) return manta_fail(MANTA_ECORRUPT, "other bytes");
    return manta_return_i64(t, 0, (int64_t)n);
}
MANTA_REMOTE(size_check)

static manta_status size_items(manta_task *t)
{
    int64_t size, n;

    MANTA_TRY(manta_arg_i64(t, 0, &size));
    MANTA_TRY(manta_arg_i64(t, 1, &n));
    for (int64_t i = 0; i < n; i++) MANTA_TRY(manta_yield(t, manta_bytes(content(size, i), (size_t)size)));
    return MANTA_OK;
}
MANTA_REMOTE(size_items)

/* The caller of many is a worker. */
static manta_status size_nested(manta_task *t)
{
    int64_t size, n;
    manta_ref r[MOST] = {0};

    MANTA_TRY(manta_arg_i64(t, 0, &size));
    MANTA_TRY(manta_arg_i64(t, 1, &n));
    for (int64_t i = 0; i < n; i++) r[i] = manta_remote(size_make, manta_i64(size), manta_i64(i));
    MANTA_TRY(manta_get_all(r, (size_t)n, LONG));
    for (int64_t i = 0; i < n; i++) check_content(r[i], size, i);
    return manta_return_i64(t, 0, n);
}
MANTA_REMOTE(size_nested)

static manta_status size_actor(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(size_actor)

/* Says that it runs, and runs until it is told. */
static manta_status size_hold(manta_task *t)
{
    const char *begun, *go;

    MANTA_TRY(manta_arg_str(t, 0, &begun));
    MANTA_TRY(manta_arg_str(t, 1, &go));
    MANTA_TRY(touch(begun));
    while (access(go, F_OK) != 0) usleep(1000);
    return MANTA_OK;
}
MANTA_REMOTE(size_hold)

static void results(int64_t size, int n)
{
    manta_ref r[MOST] = {0};

    for (int i = 0; i < n; i++) r[i] = manta_remote(size_make, manta_i64(size), manta_i64(i));
    OK(manta_get_all(r, (size_t)n, LONG));
    for (int i = 0; i < n; i++) check_content(r[i], size, i);
}

static void results_of_an_actor(manta_actor a, int64_t size, int n)
{
    manta_ref r[MOST] = {0};

    for (int i = 0; i < n; i++) r[i] = manta_actor_call(a, size_make, manta_i64(size), manta_i64(i));
    OK(manta_get_all(r, (size_t)n, LONG));
    for (int i = 0; i < n; i++) check_content(r[i], size, i);
}

static void arguments(int64_t size, int n)
{
    manta_ref r[MOST] = {0};

    for (int i = 0; i < n; i++)
        r[i] = manta_remote(size_check, manta_bytes(content(size, i), (size_t)size), manta_i64(i));
    for (int i = 0; i < n; i++) {
        int64_t got;
        OK(manta_get_i64(r[i], &got, LONG));
        CHECK(got == size);
        manta_release(r[i]);
    }
}

static void items(int64_t size, int n)
{
    manta_stream s = manta_remote_stream(NULL, size_items, manta_i64(size), manta_i64(n));
    manta_ref r;

    for (int i = 0; i < n; i++) {
        OK(manta_stream_next(s, &r, LONG));
        check_content(r, size, i);
    }
    CHECK(manta_stream_next(s, &r, LONG) == MANTA_ENOENT);
    manta_stream_close(s);
}

static void nested(int64_t size, int n)
{
    int64_t got;
    manta_ref r = manta_remote(size_nested, manta_i64(size), manta_i64(n));

    OK(manta_get_i64(r, &got, LONG));
    CHECK(got == n);
    manta_release(r);
}

/* ---- one below, at, one above and ten times what task/sizes.h names ---- */

static void around(int64_t size, void (*check)(int64_t size))
{
    check(size - 1);
    check(size);
    check(size + 1);
    check(10 * size);
}

static void values_of(int64_t size)
{
    results(size, 3);
    arguments(size, 3);
    items(size, 3);
    nested(size, 3);
    check_content(manta_put(manta_bytes(content(size, 1), (size_t)size)), size, 1);
}

/* The bytes of its arguments together. */
static manta_status size_sum(manta_task *t)
{
    const void *at;
    size_t n;
    int64_t sum = 0;

    for (int i = 0; i < manta_args(t); i++) {
        MANTA_TRY(manta_arg_bytes(t, i, &at, &n));
        if (memcmp(at, content((int64_t)n, i), n) != 0) return manta_fail(MANTA_ECORRUPT, "other bytes");
        sum += (int64_t)n;
    }
    return manta_return_i64(t, 0, sum);
}
MANTA_REMOTE(size_sum)

/* Submits a call of so many arguments that are so many bytes together. */
static void submit_of(int n, int64_t size)
{
    static char bytes[20 * 16][8192];
    manta_arg args[20 * 16];
    manta_ref r;
    int64_t got, left = size;

    for (int i = 0; i < n; i++) {
        int64_t part = left / (n - i);
        memcpy(bytes[i], content(part, i), (size_t)part);
        args[i] = manta_bytes(bytes[i], (size_t)part);
        left -= part;
    }
    manta_submit("size_sum", NULL, n, args, 1, &r);
    OK(manta_get_i64(r, &got, LONG));
    CHECK(got == size);
    manta_release(r);
}

static void arguments_together(int64_t size)
{
    submit_of(4, size < 4 * 8192 ? size : 4 * 8192);
    submit_of(20, size < 20 * 8192 ? size : 20 * 8192);
}

static void arguments_few(int64_t n)
{
    submit_of((int)n, 50 * n);
}

/* So many calls of an actor at once, and of a function. */
static void calls_ahead(int64_t n)
{
    static manta_ref r[10 * LEASE_MOST_SENT];
    manta_actor a = manta_actor_new(NULL, size_actor);

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n; i++)
            r[i] = round ? manta_remote(size_make, manta_i64(8), manta_i64(i))
                         : manta_actor_call(a, size_make, manta_i64(8), manta_i64(i));
        OK(manta_get_all(r, (size_t)n, LONG));
        for (int i = 0; i < n; i++) check_content(r[i], 8, i);
    }
    manta_actor_release(a);
}

static manta_status size_count(manta_task *t)
{
    const manta_ref *r;
    size_t n;

    MANTA_TRY(manta_arg_refs(t, 0, &r, &n));
    return manta_return_i64(t, 0, (int64_t)n);
}
MANTA_REMOTE(size_count)

/* So many references are known to others, and let go at once. */
static void references(int64_t n)
{
    static manta_ref r[10 * IDS_MOST];
    int64_t got, sum = 0;

    for (int i = 0; i < n; i++) r[i] = manta_put(manta_i64(i));
    for (int64_t at = 0; at < n; at += 10000) {
        manta_ref y = manta_remote(size_count, manta_refs(r + at, (size_t)(n - at < 10000 ? n - at : 10000)));
        OK(manta_get_i64(y, &got, LONG));
        manta_release(y);
        sum += got;
    }
    CHECK(sum == n);
    manta_release_all(r, (size_t)n);
    until_nothing_is_held();
}

/* So many large results of one call: the daemon is told of several in a message. */
static manta_status size_many(manta_task *t)
{
    for (int i = 0; i < manta_results(t); i++)
        MANTA_TRY(manta_return(t, i, manta_bytes(content(VALUE_INLINE + 1, i), VALUE_INLINE + 1)));
    return MANTA_OK;
}
MANTA_REMOTE(size_many)

static void large_results(int n)
{
    static manta_ref r[300];

    manta_remote_n(n, r, NULL, size_many);
    for (int i = 0; i < n; i++) check_content(r[i], VALUE_INLINE + 1, i);
}

static void queue_items(int64_t n)
{
    static manta_arg in[10 * QUEUE_ITEMS_MOST];
    manta_queue q;
    size_t got;

    for (int i = 0; i < n; i++) in[i] = manta_i64(i);
    OK(manta_queue_new(0, NULL, &q));
    CHECK(manta_queue_put_all(q, in, (size_t)n, LONG) == (n <= QUEUE_ITEMS_MOST ? MANTA_OK : MANTA_EINVAL));
    OK(manta_queue_size(q, &got));
    CHECK((int64_t)got == (n <= QUEUE_ITEMS_MOST ? n : 0));
    manta_queue_release(q);
}

/* Yields so many small items and says that it has. */
static manta_status size_ahead(manta_task *t)
{
    const char *done;
    int64_t n;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    MANTA_TRY(manta_arg_str(t, 1, &done));
    for (int64_t i = 0; i < n; i++) MANTA_TRY(manta_yield(t, manta_bytes(content(8, i), 8)));
    return touch(done);
}
MANTA_REMOTE(size_ahead)

/* So many items of a stream: as many as the window has come to their end before one is read, more wait. */
static void items_ahead(int64_t n)
{
    manta_ref r;

    folder_make();
    manta_stream s = manta_remote_stream(NULL, size_ahead, manta_i64(n), manta_str(path_of("done")));
    if (n <= STREAM_WINDOW) until_there("done");
    for (int64_t i = 0; i < n; i++) {
        if (n - i > STREAM_WINDOW) CHECK(access(path_of("done"), F_OK) != 0);
        OK(manta_stream_next(s, &r, LONG));
        check_content(r, 8, i);
    }
    CHECK(manta_stream_next(s, &r, LONG) == MANTA_ENOENT);
    CHECK(access(path_of("done"), F_OK) == 0);
    manta_stream_close(s);
    folder_remove();
}

static manta_status number_at(void *user, size_t i, manta_arg *out)
{
    if ((int64_t)i == *(int64_t *)user) return manta_fail(MANTA_ENOENT, "no more");
    *out = manta_i64((int64_t)i);
    return MANTA_OK;
}

static manta_status size_twice(manta_task *t)
{
    int64_t v;

    MANTA_TRY(manta_arg_i64(t, 0, &v));
    return manta_return_i64(t, 0, 2 * v);
}
MANTA_REMOTE(size_twice)

/* Chunks of so many inputs, and so many inputs of the largest chunks. */
static void inputs_of_a_chunk(int64_t size)
{
    int64_t chunks[2] = {size, MAP_CHUNK_MOST}, inputs[2] = {2 * size + 1, size}, got;
    manta_map *m;
    manta_ref r;

    for (int k = 0; k < 2; k++) {
        manta_map_options o = {.chunk = (size_t)chunks[k]};
        manta_status st = manta_map(size_twice, &o, number_at, &inputs[k], &m);
        CHECK(st == (chunks[k] <= MAP_CHUNK_MOST ? MANTA_OK : MANTA_EINVAL));
        if (st) continue;
        for (int64_t i = 0; i < inputs[k]; i++) {
            OK(manta_map_next(m, NULL, &r, LONG));
            OK(manta_get_i64(r, &got, LONG));
            CHECK(got == 2 * i);
            manta_release(r);
        }
        CHECK(manta_map_next(m, NULL, &r, LONG) == MANTA_ENOENT);
        manta_map_free(m);
    }
}

void scenario_thresholds(void)
{
    around(VALUE_INLINE, values_of);
    around(FILL_ALONE, values_of);
    around((int64_t)RING_MESSAGE, values_of);
    around((int64_t)RING_SIZE, values_of);
    around(SUBMIT_INLINE, arguments_together);
    around(SUBMIT_FEW, arguments_few);
    around(LEASE_MOST_WANTED, calls_ahead);
    around(LEASE_MOST_SENT, calls_ahead);
    around(IDS_MOST, references);
    for (int n = ADDS_MOST / 70; n <= ADDS_MOST / 40; n += 4) large_results(n);
    large_results(300);
    around(QUEUE_ITEMS_MOST, queue_items);
    around(STREAM_WINDOW, items_ahead);
    around(MAP_CHUNK_MOST, inputs_of_a_chunk);
    until_nothing_is_held();
}

void scenario_sizes(void)
{
    manta_actor a = manta_actor_new(NULL, size_actor);

    for (int i = 0; i < SIZES; i++) {
        int n = many(sizes[i]);
        results(sizes[i], n);
        results_of_an_actor(a, sizes[i], n);
        arguments(sizes[i], n);
        items(sizes[i], n);
        nested(sizes[i], n);
    }
    manta_actor_release(a);
}

/* Answers that did not fit into the ring reach their caller although the worker is
 * in a call, and stays there until the caller has them. */
void scenario_held_answers(void)
{
    char begun[128];

    folder_make();
    manta_actor a = manta_actor_new(NULL, size_actor);
    for (int i = 0; i < SIZES; i++) {
        manta_ref r[MOST] = {0};
        int n = many(sizes[i]);
        snprintf(begun, sizeof begun, "%s", path_of("begun"));
        for (int k = 0; k < n; k++) r[k] = manta_actor_call(a, size_make, manta_i64(sizes[i]), manta_i64(k));
        manta_ref held = manta_actor_call(a, size_hold, manta_str(begun), manta_str(path_of("go")));
        for (int k = 0; k < n; k++) check_content(r[k], sizes[i], k);
        until_there("begun");
        OK(touch(path_of("go")));
        OK(manta_get(held, LONG));
        manta_release(held);
        CHECK(unlink(begun) == 0 && unlink(path_of("go")) == 0);
    }
    manta_actor_release(a);
    folder_remove();
}
