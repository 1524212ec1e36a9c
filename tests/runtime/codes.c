/* codes.c - code by key: put by one process, found by every other of the program. */
#include <signal.h>

#include <manta/actor.h>
#include <manta/code.h>

#include "scenario.h"

enum { LARGEST = 3 << 20 };

static const int64_t sizes[] = {0,     1,     64,    8191,  8192,   8193,   15999,
                                16001, 32767, 32769, 65535, 131072, 131073, LARGEST};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static const char *content(int64_t size, int64_t seed)
{
    static char bytes[LARGEST + 1];

    for (int64_t i = 0; i < size; i++) bytes[i] = (char)((i * 7 + seed) % 251);
    return bytes;
}

static void key_of(int64_t n, unsigned char key[MANTA_CODE_KEY])
{
    memset(key, 0x5a, MANTA_CODE_KEY);
    memcpy(key, &n, sizeof n);
}

static manta_status check_code(int64_t number, int64_t size, int64_t seed)
{
    unsigned char key[MANTA_CODE_KEY];
    const void *at, *again;
    size_t n, m;

    key_of(number, key);
    MANTA_TRY(manta_code_get(key, &at, &n));
    MANTA_TRY(manta_code_get(key, &again, &m));
    if (at != again || n != m) return manta_fail(MANTA_EINTERNAL, "it lies elsewhere now");
    if ((int64_t)n != size || (n > 0 && memcmp(at, content(size, seed), n) != 0))
        return manta_fail(MANTA_EINTERNAL, "%zu other bytes, expected %lld", n, (long long)size);
    return MANTA_OK;
}

static manta_status put(int64_t number, int64_t size, int64_t seed)
{
    unsigned char key[MANTA_CODE_KEY];

    key_of(number, key);
    return manta_code_put(key, content(size, seed), (size_t)size);
}

/* code_check(number, size, seed) */
static manta_status code_check(manta_task *t)
{
    int64_t x[3];

    for (int i = 0; i < 3; i++) MANTA_TRY(manta_arg_i64(t, i, &x[i]));
    MANTA_TRY(check_code(x[0], x[1], x[2]));
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(code_check)

static manta_status code_give(manta_task *t)
{
    int64_t x[3];

    for (int i = 0; i < 3; i++) MANTA_TRY(manta_arg_i64(t, i, &x[i]));
    MANTA_TRY(put(x[0], x[1], x[2]));
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(code_give)

static manta_status code_actor(manta_task *t)
{
    int64_t x[3];

    for (int i = 0; i < 3; i++) MANTA_TRY(manta_arg_i64(t, i, &x[i]));
    MANTA_TRY(check_code(x[0], x[1], x[2]));
    manta_set_self(t, NULL, NULL);
    return MANTA_OK;
}
MANTA_REMOTE(code_actor)

static int64_t pid_of(manta_ref r)
{
    int64_t pid = 0;

    OK(manta_get_i64(r, &pid, LONG));
    manta_release(r);
    return pid;
}

static void put_by_the_driver(int64_t number, int64_t size)
{
    manta_ref r[8];

    OK(put(number, size, number));
    OK(check_code(number, size, number));
    OK(put(number, size, number + 1)); /* it stays as it is */
    OK(check_code(number, size, number));
    for (int i = 0; i < 8; i++)
        r[i] = manta_remote(code_check, manta_i64(number), manta_i64(size), manta_i64(number));
    OK(manta_get_all(r, 8, LONG));
    manta_release_all(r, 8);
    manta_actor a = manta_actor_new(NULL, code_actor, manta_i64(number), manta_i64(size), manta_i64(number));
    OK(manta_actor_ready(a, LONG));
    manta_actor_release(a);
}

/* And its process killed, before anybody else has read it. */
static void put_by_a_worker(int64_t number, int64_t size)
{
    manta_task_options spread = {.strategy = MANTA_CALL_STRATEGY_SPREAD};
    int64_t pid =
        pid_of(manta_remote_with(&spread, code_give, manta_i64(number), manta_i64(size), manta_i64(3)));

    if (!inside) CHECK(kill((pid_t)pid, SIGKILL) == 0);
    (void)pid_of(manta_remote(code_check, manta_i64(number), manta_i64(size), manta_i64(3)));
    OK(check_code(number, size, 3));
}

/* Many put the same: the first stays, for all. */
static void put_by_many(int64_t number, int64_t size)
{
    manta_ref r[16];

    for (int i = 0; i < 16; i++)
        r[i] = manta_remote(code_give, manta_i64(number), manta_i64(size), manta_i64(4));
    OK(manta_get_all(r, 16, LONG));
    manta_release_all(r, 16);
    (void)pid_of(manta_remote(code_check, manta_i64(number), manta_i64(size), manta_i64(4)));
    OK(check_code(number, size, 4));
}

void scenario_codes(void)
{
    unsigned char key[MANTA_CODE_KEY];
    const void *at;
    size_t n;
    int64_t number = 1;

    key_of(0, key);
    CHECK(manta_code_get(key, &at, &n) == MANTA_ENOENT);
    SAYS("no code was put under the key 00000000000000005a5a5a5a5a5a5a5a");
    for (int i = 0; i < SIZES; i++) {
        put_by_the_driver(number++, sizes[i]);
        put_by_a_worker(number++, sizes[i]);
        put_by_many(number++, sizes[i]);
    }
    /* A call that is made right after the put finds it, however often. */
    for (int i = 0; i < 300; i++) {
        OK(put(number, 100, number));
        (void)pid_of(manta_remote(code_check, manta_i64(number), manta_i64(100), manta_i64(number)));
        number++;
    }
    manta_ref r = manta_remote(code_check, manta_i64(0), manta_i64(1), manta_i64(1));
    CHECK(manta_get(r, LONG) == MANTA_ENOENT);
    manta_release(r);
}

/* The next node of the program knows nothing of the one before. */
void scenario_codes_end(void)
{
    manta_node_options o = {.num_cpus = 1, .address = "local", .in_process = inside};

    OK(put(1, 100000, 1));
    OK(check_code(1, 100000, 1));
    manta_shutdown();
    CHECK(manta_code_put(content(100, 1), "x", 1) == MANTA_EINVAL);
    OK(manta_init(NULL, NULL, &o));
    CHECK(check_code(1, 100000, 1) == MANTA_ENOENT);
    OK(put(1, 5, 2));
    OK(check_code(1, 5, 2));
}
