/* payloads.c - failures that carry bytes and long texts, of sizes on both sides of every threshold:
 * what is inside a message (8 KiB), the longest message (32 KiB), a ring (128 KiB), and the 440
 * bytes of manta_failure.text; wherever a failure goes. */
#include <signal.h>
#include <stdint.h>

#include <manta/actor.h>
#include <manta/failure.h>
#include <manta/map.h>
#include <manta/stream.h>

#include "scenario.h"

enum { LARGEST = 3 << 20 };

static const int64_t sizes[] = {0,    1,    63,   64,   65,    1000,  8000,  8063,  8064,   8065,   8128,
                                8129, 8191, 8192, 8193, 15999, 16001, 32767, 32769, 131072, LARGEST};
static const int64_t lengths[] = {0, 10, 438, 439, 440, 441, 5000, 8191, 8192, 200000};
enum { SIZES = sizeof sizes / sizeof sizes[0], LENGTHS = sizeof lengths / sizeof lengths[0] };

static const unsigned char *content(void)
{
    static unsigned char bytes[LARGEST];

    for (int64_t i = 0; i < LARGEST && (i > 1 || !bytes[1]); i++) bytes[i] = (unsigned char)(i * 31 % 251);
    return bytes;
}

static const char *text_of(int64_t length)
{
    static char text[200001];

    memset(text, 'x', (size_t)length);
    text[length] = 0;
    return text;
}

static manta_status fail_as(manta_task *t, manta_status code, int64_t size, int64_t length)
{
    return manta_fail_with(t, code, text_of(length), content(), (size_t)size);
}

/* ---- remote functions ---- */

static manta_status pl_fail(manta_task *t)
{
    int64_t size, length;

    MANTA_TRY(manta_arg_i64(t, 0, &size));
    MANTA_TRY(manta_arg_i64(t, 1, &length));
    return fail_as(t, MANTA_ENAN, size, length);
}
MANTA_REMOTE(pl_fail)

/* Calls itself, and passes on what it is told. */
static manta_status pl_chain(manta_task *t)
{
    int64_t size, length, depth;

    MANTA_TRY(manta_arg_i64(t, 0, &size));
    MANTA_TRY(manta_arg_i64(t, 1, &length));
    MANTA_TRY(manta_arg_i64(t, 2, &depth));
    if (depth == 0) return fail_as(t, MANTA_ENAN, size, length);
    manta_ref r = manta_remote(pl_chain, manta_i64(size), manta_i64(length), manta_i64(depth - 1));
    manta_status st = manta_get(r, LONG);
    manta_release(r);
    return st;
}
MANTA_REMOTE(pl_chain)

/* The size of its payload is the number of the attempt. */
static manta_status pl_attempts(manta_task *t)
{
    return fail_as(t, MANTA_EIO, 8000 + 100 * manta_task_attempt(t), 1000);
}
MANTA_REMOTE(pl_attempts)

static manta_status pl_pass(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(pl_pass)

static manta_status pl_items(manta_task *t)
{
    int64_t size;

    MANTA_TRY(manta_arg_i64(t, 0, &size));
    for (int64_t i = 0; i < 20; i++) MANTA_TRY(manta_yield(t, manta_i64(i)));
    return fail_as(t, MANTA_ENAN, size, 500);
}
MANTA_REMOTE(pl_items)

/* Of a chunk: the input is the size. */
static manta_status pl_sized(manta_task *t)
{
    int64_t size;

    MANTA_TRY(manta_arg_i64(t, 0, &size));
    if (size % 2 == 1) return manta_return_i64(t, 0, size);
    return fail_as(t, MANTA_ENAN, size, 500);
}
MANTA_REMOTE(pl_sized)

static manta_status pl_other(manta_task *t)
{
    if (fail_as(t, MANTA_ENAN, 100, 1000) != MANTA_ENAN) return MANTA_OK;
    if (fail_as(t, MANTA_EIO, 200, 10) != MANTA_EIO) return MANTA_OK;
    return manta_fail(MANTA_ENAN, "for another reason");
}
MANTA_REMOTE(pl_other)

static manta_status pl_well(manta_task *t)
{
    if (fail_as(t, MANTA_ENAN, 100000, 1000) != MANTA_ENAN) return manta_fail(MANTA_EINTERNAL, "not said");
    return manta_return_i64(t, 0, 7);
}
MANTA_REMOTE(pl_well)

static manta_status check_failure(manta_ref r, manta_status code, int64_t size, int64_t length)
{
    const void *at = "";
    const char *text = NULL;
    size_t n = 1;
    manta_failure f = failure_of(r);

    if (manta_get(r, LONG) != code) return manta_fail(MANTA_EINTERNAL, "another code");
    f = failure_of(r);
    MANTA_TRY(manta_failure_payload(r, &at, &n));
    MANTA_TRY(manta_failure_text(r, &text));
    if ((int64_t)n != size || (size == 0) != (at == NULL) || (uintptr_t)at % 64 != 0)
        return manta_fail(MANTA_EINTERNAL, "%zu bytes, not %lld", n, (long long)size);
    if (size > 0 && memcmp(at, content(), n) != 0) return manta_fail(MANTA_EINTERNAL, "other bytes");
    if ((int64_t)strlen(text) != length || strcmp(text, text_of(length)) != 0)
        return manta_fail(MANTA_EINTERNAL, "another text, of %zu bytes", strlen(text));
    if (length < (int64_t)sizeof f.text ? strcmp(f.text, text) != 0 : !strstr(f.text, "xxx..."))
        return manta_fail(MANTA_EINTERNAL, "its beginning is another");
    return MANTA_OK;
}

/* Reads the failure of an object that it is handed. */
static manta_status pl_look(manta_task *t)
{
    const manta_ref *refs;
    size_t n;
    int64_t size, length;

    MANTA_TRY(manta_arg_refs(t, 0, &refs, &n));
    MANTA_TRY(manta_arg_i64(t, 1, &size));
    MANTA_TRY(manta_arg_i64(t, 2, &length));
    return check_failure(refs[0], MANTA_ENAN, size, length);
}
MANTA_REMOTE(pl_look)

/* Calls an actor whose constructor has failed. */
static manta_status pl_call(manta_task *t)
{
    manta_actor a;
    int64_t size, length;

    MANTA_TRY(manta_arg_actor(t, 0, &a));
    MANTA_TRY(manta_arg_i64(t, 1, &size));
    MANTA_TRY(manta_arg_i64(t, 2, &length));
    manta_ref r = manta_actor_call(a, pl_pass);
    manta_status st = check_failure(r, MANTA_ENAN, size, length);
    manta_release(r);
    return st;
}
MANTA_REMOTE(pl_call)

static manta_status pl_made(manta_task *t)
{
    manta_set_self(t, NULL, NULL);
    return MANTA_OK;
}
MANTA_REMOTE(pl_made)

/* ---- scenarios ---- */

static void expect(manta_ref r, manta_status code, int64_t size, int64_t length)
{
    OK(check_failure(r, code, size, length));
    manta_release(r);
}

static void of_calls(int64_t size, int64_t length)
{
    manta_ref r = manta_remote(pl_fail, manta_i64(size), manta_i64(length)), both[2];

    expect(manta_remote(pl_pass, r), MANTA_ENAN, size, length); /* of an argument */
    expect(r, MANTA_ENAN, size, length);
    r = manta_remote(pl_chain, manta_i64(size), manta_i64(length), manta_i64(3));
    OK(check_failure(r, MANTA_ENAN, size, length));
    CHECK(!strcmp(failure_of(r).chain, "pl_chain > pl_chain > pl_chain > pl_chain"));
    manta_release(r);
    manta_remote_n(2, both, NULL, pl_fail, manta_i64(size), manta_i64(length));
    expect(both[0], MANTA_ENAN, size, length);
    expect(both[1], MANTA_ENAN, size, length);
}

/* Known to others before it has failed, and after. */
static void of_references(int64_t size, int64_t length)
{
    manta_ref r = manta_remote(pl_chain, manta_i64(size), manta_i64(length), manta_i64(1)), looks[4];

    for (int i = 0; i < 2; i++)
        looks[i] = manta_remote(pl_look, manta_refs(&r, 1), manta_i64(size), manta_i64(length));
    (void)!manta_get(r, LONG); /* it fails */
    for (int i = 2; i < 4; i++)
        looks[i] = manta_remote(pl_look, manta_refs(&r, 1), manta_i64(size), manta_i64(length));
    manta_release(r);
    OK(manta_get_all(looks, 4, LONG));
    manta_release_all(looks, 4);
}

static void of_actors(int64_t size, int64_t length)
{
    manta_actor a = manta_actor_new(NULL, pl_made);

    expect(manta_actor_call(a, pl_fail, manta_i64(size), manta_i64(length)), MANTA_ENAN, size, length);
    manta_actor_release(a);
    /* Its constructor fails, or an argument of it that is there, or is not yet. */
    a = manta_actor_new(NULL, pl_fail, manta_i64(size), manta_i64(length));
    expect(manta_actor_call(a, pl_pass), MANTA_ENAN, size, length);
    expect(manta_actor_call(a, pl_pass), MANTA_ENAN, size, length);
    manta_ref r = manta_remote(pl_call, manta_handle(a), manta_i64(size), manta_i64(length));
    OK(manta_get(r, LONG));
    manta_release(r);
    manta_actor_release(a);
    r = manta_remote(pl_fail, manta_i64(size), manta_i64(length));
    a = manta_actor_new(NULL, pl_pass, r);
    manta_ref call = manta_actor_call(a, pl_pass);
    const void *at;
    size_t n;
    CHECK(manta_get(call, LONG) == MANTA_ENAN);
    OK(manta_failure_payload(call, &at, &n));
    CHECK((int64_t)n == size && (size == 0 || !memcmp(at, content(), n)));
    manta_release(call);
    manta_release(r);
    manta_actor_release(a);
}

static void of_streams(int64_t size)
{
    manta_stream s = manta_remote_stream(NULL, pl_items, manta_i64(size));
    manta_ref r, end;
    int64_t got;

    OK(manta_stream_end(s, &end));
    for (int64_t i = 0; i < 20; i++) {
        OK(manta_stream_next(s, &r, LONG));
        OK(manta_get_i64(r, &got, LONG));
        CHECK(got == i);
        manta_release(r);
    }
    CHECK(manta_stream_next(s, &r, LONG) == MANTA_ENAN);
    manta_stream_close(s);
    expect(end, MANTA_ENAN, size, 500);
    CHECK(manta_stream_end(s, &end) == MANTA_EINVAL);
}

static manta_status sized_input(void *user, size_t i, manta_arg *out)
{
    if (i == 24) return manta_fail(MANTA_ENOENT, "no more");
    *out = manta_i64(*(int64_t *)user + (int64_t)i);
    return MANTA_OK;
}

/* Of a chunk each result fails for itself; together they are more than a message. */
static void of_chunks(int64_t size)
{
    manta_map *m;
    manta_map_options o = {.chunk = 12};
    size_t i;
    manta_ref r;
    int64_t got;

    OK(manta_map(pl_sized, &o, sized_input, &size, &m));
    for (int k = 0; k < 24; k++) {
        OK(manta_map_next(m, &i, &r, LONG));
        int64_t n = size + (int64_t)i;
        if (n % 2 == 1) {
            OK(manta_get_i64(r, &got, LONG));
            CHECK(got == n);
            manta_release(r);
        } else {
            expect(r, MANTA_ENAN, n, 500);
        }
    }
    CHECK(manta_map_next(m, &i, &r, LONG) == MANTA_ENOENT);
    manta_map_free(m);
}

static void of_attempts(void)
{
    manta_task_options twice = {.retry_errors = true, .max_retries = 2};
    manta_ref r = manta_remote_with(&twice, pl_attempts);

    expect(r, MANTA_EIO, 8200, 1000);
}

static void of_misuse(void)
{
    const void *at;
    const char *text;
    size_t n;
    int64_t v;
    manta_ref r = manta_remote(pl_other);

    CHECK(manta_get(r, LONG) == MANTA_ENAN);
    SAYS("for another reason");
    OK(manta_failure_payload(r, &at, &n));
    CHECK(n == 0 && !at);
    OK(manta_failure_text(r, &text));
    CHECK(!strcmp(text, "for another reason"));
    manta_release(r);
    CHECK(manta_failure_payload(r, &at, &n) == MANTA_EINVAL);
    SAYS("was released");
    r = manta_remote(pl_well);
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 7 && manta_failure_payload(r, &at, &n) == MANTA_EINVAL);
    SAYS("has not failed");
    manta_release(r);
}

/* The process that failed is killed; what it said stays. */
static void of_the_dead(int64_t size)
{
    manta_ref r = manta_remote(pl_fail, manta_i64(size), manta_i64(1000));

    CHECK(manta_get(r, LONG) == MANTA_ENAN);
    CHECK(kill(failure_of(r).pid, SIGKILL) == 0);
    expect(r, MANTA_ENAN, size, 1000);
}

void scenario_payloads(void)
{
    for (int i = 0; i < SIZES; i++) {
        int64_t length = lengths[i % LENGTHS];
        of_calls(sizes[i], length);
        of_references(sizes[i], length);
        of_streams(sizes[i]);
        if (i % 3 == 0 || (sizes[i] > 8000 && sizes[i] < 8200)) of_actors(sizes[i], length);
        if (sizes[i] < 200000) of_chunks(sizes[i]);
        if (!inside) of_the_dead(sizes[i]);
    }
    for (int i = 0; i < LENGTHS; i++) of_calls(100, lengths[i]);
    of_attempts();
    of_misuse();
    if (!inside) until_nothing_is_held();
}

/* In a store of 64 MiB. */
static manta_status pl_too_much(manta_task *t)
{
    static char bytes[100 << 20];

    return manta_fail_with(t, MANTA_ENAN, "the loss is not a number", bytes, sizeof bytes);
}
MANTA_REMOTE(pl_too_much)

void scenario_payloads_full(void)
{
    manta_ref r = manta_remote(pl_too_much);
    const void *at;
    size_t n;

    CHECK(manta_get(r, LONG) == MANTA_ENAN);
    SAYS("the loss is not a number (what it carries is lost: ");
    OK(manta_failure_payload(r, &at, &n));
    CHECK(n == 0);
    manta_release(r);
    until_nothing_is_held();
}
