/* sizes.c - many results, arguments and items of one size, for sizes on both sides of
 * every threshold of the runtime: what is inside a message (8 KiB), what a ring holds
 * (128 KiB), and the longest message (32 KiB). Nobody reads while they are made, so
 * that rings are full, and the program must end all the same. */
#include "scenario.h"

static const int64_t sizes[] = {0,    1,    8,    96,    1000,  4000,  8000,   8191,
                                8192, 8193, 9000, 20000, 32767, 32769, 131072, 200000};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST = 400, MOST_BYTES = 6 << 20, LARGEST = 200000 };

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
