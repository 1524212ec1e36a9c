/* packed.c - packed values at every door: as objects, arguments, results, items, in queues
 * and maps, created in place, small and large, with and without each of their parts. */
#include <stdint.h>

#include <manta/actor.h>
#include <manta/packed.h>
#include <manta/queue.h>
#include <manta/stream.h>

#include "scenario.h"

enum { MOST_BLOCKS = 300, LARGEST = 200000, KINDS = 6 };

/* Bytes of all parts together: around what fits into a message as one value (8 KiB), the
 * longest message (32 KiB), and a ring (128 KiB). */
static const size_t sizes[] = {0,    1,    63,    64,    65,    1000,   8000,  8100,
                               8192, 8193, 20000, 32767, 32769, 131072, 200000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static char bytes[LARGEST + 256];

/* In each process, when it needs them. */
static void bytes_fill(void)
{
    if (bytes[1]) return;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 31 % 251);
}

typedef struct sample {
    manta_packed p;
    manta_packed_block blocks[MOST_BLOCKS];
} sample;

/* A value of `size` bytes, distributed over its parts in one of KINDS ways. */
static void sample_make(sample *s, size_t size, int kind)
{
    static const size_t n_blocks[KINDS] = {0, 1, 2, 7, MOST_BLOCKS, 3};
    size_t n = n_blocks[kind], left = size;

    bytes_fill();
    *s = (sample){.p = {.head = bytes, .head_size = n == 0 ? size : size / 10, .n_blocks = n}};
    if (kind == 5) s->p.head_size = 0;
    left -= s->p.head_size;
    for (size_t i = 0; i < n; i++) {
        size_t part = i == n - 1 ? left : i == 0 && kind == 3 ? 0 : left / 2;
        s->blocks[i] = (manta_packed_block){bytes + i, part};
        left -= part;
    }
    s->p.blocks = s->blocks;
}

static bool same_part(const void *a, size_t n, const void *b, size_t m)
{
    return n == m && (n == 0 || !memcmp(a, b, n));
}

static bool is_sample(const manta_packed *p, size_t size, int kind)
{
    sample s;

    sample_make(&s, size, kind);
    if (!same_part(p->head, p->head_size, s.p.head, s.p.head_size) || p->n_blocks != s.p.n_blocks)
        return false;
    for (size_t i = 0; i < p->n_blocks; i++) {
        if ((uintptr_t)p->blocks[i].at % MANTA_PACKED_ALIGN != 0) return false;
        if (!same_part(p->blocks[i].at, p->blocks[i].size, s.blocks[i].at, s.blocks[i].size)) return false;
    }
    return true;
}

/* ---- remote functions ---- */

/* Checks its argument, and gives it back with a further reference in it. */
static manta_status packed_pass(manta_task *t)
{
    manta_packed p;
    int64_t size, kind;
    manta_ref refs[4] = {{0}};

    MANTA_TRY(manta_arg_packed(t, 0, &p));
    MANTA_TRY(manta_arg_i64(t, 1, &size));
    MANTA_TRY(manta_arg_i64(t, 2, &kind));
    if (!is_sample(&p, (size_t)size, (int)kind)) return manta_fail(MANTA_ECORRUPT, "other bytes");
    if (p.n_refs > 3) return manta_fail(MANTA_EINVAL, "%zu references are too many", p.n_refs);
    if (p.n_refs > 0) memcpy(refs, p.refs, p.n_refs * sizeof *refs);
    refs[p.n_refs] = manta_put(manta_i64((int64_t)p.n_refs + 100));
    const manta_ref mine = refs[p.n_refs++];
    p.refs = refs;
    manta_status st = manta_return(t, 0, manta_pack(&p));
    manta_release(mine);
    return st;
}
MANTA_REMOTE(packed_pass)

/* Makes the value in place. */
static manta_status packed_make(manta_task *t)
{
    int64_t size, kind;
    sample s;
    void *head, *blocks[MOST_BLOCKS];

    MANTA_TRY(manta_arg_i64(t, 0, &size));
    MANTA_TRY(manta_arg_i64(t, 1, &kind));
    sample_make(&s, (size_t)size, (int)kind);
    manta_packed p = s.p;
    manta_packed_block room[MOST_BLOCKS];
    const manta_ref one = manta_put(manta_i64(7));
    for (size_t i = 0; i < p.n_blocks; i++) room[i] = (manta_packed_block){NULL, s.blocks[i].size};
    p.head = NULL;
    p.blocks = room;
    p.refs = &one;
    p.n_refs = 1;
    manta_status st = manta_return_packed(t, 0, &p, &head, blocks);
    manta_release(one);
    if (st) return st;
    memcpy(head, s.p.head, s.p.head_size);
    for (size_t i = 0; i < p.n_blocks; i++) {
        if ((uintptr_t)blocks[i] % MANTA_PACKED_ALIGN != 0) return manta_fail(MANTA_EINTERNAL, "not aligned");
        memcpy(blocks[i], s.blocks[i].at, s.blocks[i].size);
    }
    return MANTA_OK;
}
MANTA_REMOTE(packed_make)

static manta_status packed_items(manta_task *t)
{
    int64_t size;
    sample s;

    MANTA_TRY(manta_arg_i64(t, 0, &size));
    for (int kind = 0; kind < KINDS; kind++) {
        const manta_ref one = manta_put(manta_i64(kind));
        sample_make(&s, (size_t)size, kind);
        s.p.refs = &one;
        s.p.n_refs = 1;
        manta_status st = manta_yield(t, manta_pack(&s.p));
        manta_release(one);
        if (st) return st;
    }
    return MANTA_OK;
}
MANTA_REMOTE(packed_items)

/* An actor whose constructor has a packed argument, and keeps what is in it. */
static manta_status packed_holder(manta_task *t)
{
    static manta_ref kept;
    manta_packed p;

    MANTA_TRY(manta_arg_packed(t, 0, &p));
    if (p.n_refs != 1) return manta_fail(MANTA_EINVAL, "%zu references, not 1", p.n_refs);
    kept = p.refs[0];
    manta_set_self(t, &kept, NULL);
    return manta_retain(kept);
}
MANTA_REMOTE(packed_holder)

static manta_status packed_kept(manta_task *t)
{
    int64_t x;

    MANTA_TRY(manta_get_i64(*(manta_ref *)manta_self(t), &x, LONG));
    return manta_return_i64(t, 0, x);
}
MANTA_REMOTE(packed_kept)

/* Counts with the counter whose handle is in the value. */
static manta_status packed_count(manta_task *t)
{
    manta_packed p;
    int64_t x;

    MANTA_TRY(manta_arg_packed(t, 0, &p));
    if (p.n_actors != 1) return manta_fail(MANTA_EINVAL, "%zu handles, not 1", p.n_actors);
    const manta_ref r = manta_actor_call(p.actors[0], counter_add, manta_i64(1));
    manta_status st = manta_get_i64(r, &x, LONG);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, x);
}
MANTA_REMOTE(packed_count)

/* ---- doors ---- */

static void check_number(manta_ref r, int64_t expected)
{
    int64_t x;

    OK(manta_get_i64(r, &x, LONG));
    CHECK(x == expected);
}

/* What r is; its first reference is the number `inner`. */
static void check_sample(manta_ref r, size_t size, int kind, int64_t inner)
{
    manta_packed p;

    OK(manta_get_packed(r, &p, LONG));
    CHECK(is_sample(&p, size, kind));
    CHECK(p.n_refs >= 1 && p.n_actors == 0);
    check_number(p.refs[0], inner);
    manta_release(r);
}

static void objects(size_t size, int kind)
{
    sample s;
    manta_packed p;
    const manta_ref one = manta_put(manta_i64(5));

    sample_make(&s, size, kind);
    s.p.refs = &one;
    s.p.n_refs = 1;
    const manta_ref r = manta_put(manta_pack(&s.p));
    const manta_ref back = manta_remote(packed_pass, r, manta_i64((int64_t)size), manta_i64(kind));
    const manta_ref direct =
        manta_remote(packed_pass, manta_pack(&s.p), manta_i64((int64_t)size), manta_i64(kind));
    manta_release(one);
    OK(manta_get_packed(back, &p, LONG));
    CHECK(p.n_refs == 2);
    check_number(p.refs[1], 101);
    check_sample(r, size, kind, 5); /* and released; the others hold what was in it */
    check_sample(back, size, kind, 5);
    check_sample(direct, size, kind, 5);
}

static void results_in_place(size_t size, int kind)
{
    check_sample(manta_remote(packed_make, manta_i64((int64_t)size), manta_i64(kind)), size, kind, 7);
}

static void created_in_place(size_t size, int kind)
{
    sample s;
    manta_ref r, one = manta_put(manta_i64(6));
    void *head, *blocks[MOST_BLOCKS];

    sample_make(&s, size, kind);
    manta_packed p = s.p;
    manta_packed_block room[MOST_BLOCKS];
    for (size_t i = 0; i < p.n_blocks; i++) /* every second one is copied */
        room[i] = (manta_packed_block){i % 2 ? s.blocks[i].at : NULL, s.blocks[i].size};
    p.head = NULL;
    p.blocks = room;
    p.refs = &one;
    p.n_refs = 1;
    OK(manta_create_packed(&p, &head, blocks, &r));
    manta_release(one);
    CHECK(manta_get_packed(r, &p, 0) == MANTA_EINVAL);
    memcpy(head, s.p.head, s.p.head_size);
    for (size_t i = 0; i < s.p.n_blocks; i += 2) memcpy(blocks[i], s.blocks[i].at, s.blocks[i].size);
    OK(manta_seal(r));
    manta_release(manta_remote(packed_pass, r, manta_i64((int64_t)size), manta_i64(kind)));
    check_sample(r, size, kind, 6);
}

static void items(size_t size)
{
    const manta_stream s = manta_remote_stream(NULL, packed_items, manta_i64((int64_t)size));
    manta_ref r;

    for (int kind = 0; kind < KINDS; kind++) {
        OK(manta_stream_next(s, &r, LONG));
        check_sample(r, size, kind, kind);
    }
    CHECK(manta_stream_next(s, &r, LONG) == MANTA_ENOENT);
    manta_stream_close(s);
}

static void queued(size_t size)
{
    manta_queue q;
    manta_ref r, one = manta_put(manta_i64(8));
    sample s;

    OK(manta_queue_new(0, NULL, &q));
    sample_make(&s, size, 2);
    s.p.refs = &one;
    s.p.n_refs = 1;
    OK(manta_queue_put(q, manta_pack(&s.p), LONG));
    manta_release(one);
    OK(manta_queue_get(q, &r, LONG));
    check_sample(r, size, 2, 8);
    manta_queue_release(q);
}

/* ---- what is inside ---- */

static void constructors(size_t size)
{
    sample s;
    const manta_ref one = manta_put(manta_i64(9));

    sample_make(&s, size, 2);
    s.p.refs = &one;
    s.p.n_refs = 1;
    const manta_actor a = manta_actor_new(NULL, packed_holder, manta_pack(&s.p));
    manta_release(one);
    const manta_ref r = manta_actor_call(a, packed_kept);
    check_number(r, 9);
    manta_release(r);
    manta_actor_release(a);
}

/* A handle in a value that is an object keeps its actor. */
static void handles(size_t size)
{
    sample s;
    const manta_actor a = manta_actor_new(NULL, counter, manta_i64(41));

    sample_make(&s, size, 1);
    s.p.actors = &a;
    s.p.n_actors = 1;
    const manta_ref r = manta_put(manta_pack(&s.p));
    manta_actor_release(a);
    for (int i = 1; i <= 2; i++) {
        const manta_ref x = manta_remote(packed_count, r);
        check_number(x, 41 + i);
        manta_release(x);
    }
    manta_release(r);
}

static void refusals(void)
{
    manta_packed p = {.head_size = 3};
    manta_ref gone = manta_put(manta_i64(1)), r;
    void *blocks[1];

    r = manta_put(manta_pack(&p));
    CHECK(manta_get(r, 0) == MANTA_EINVAL);
    SAYS("bytes of a head at NULL");
    manta_release(r);
    manta_release(gone);
    p = (manta_packed){.refs = &gone, .n_refs = 1};
    r = manta_remote(nop, manta_pack(&p));
    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    SAYS("none, or was released");
    manta_release(r);
    CHECK(manta_create_packed(&p, NULL, NULL, &r) == MANTA_EINVAL);
    SAYS("none, or was released");
    const manta_packed_block huge[2] = {{NULL, SIZE_MAX / 2}, {NULL, SIZE_MAX / 2}};
    p = (manta_packed){.blocks = huge, .n_blocks = 2};
    CHECK(manta_create_packed(&p, NULL, blocks, &r) == MANTA_EINVAL);
    SAYS("more than 2^62 bytes");
    p = (manta_packed){
        .refs = &gone, .n_refs = MANTA_PACKED_INNER, .actors = (const manta_actor *)&gone, .n_actors = 1};
    CHECK(manta_create_packed(&p, NULL, NULL, &r) == MANTA_EINVAL);
    SAYS("at most 15000 together");
    r = manta_put(manta_i64(1));
    CHECK(manta_get_packed(r, &p, 0) == MANTA_EINVAL);
    SAYS("not a packed value");
    manta_release(r);
    /* Created, and never sealed. */
    r = manta_put(manta_i64(1));
    p = (manta_packed){.refs = &r, .n_refs = 1};
    OK(manta_create_packed(&p, NULL, NULL, &gone));
    manta_release(gone);
    check_number(r, 1);
    manta_release(r);
}

void scenario_packed(void)
{
    for (int i = 0; i < SIZES; i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            objects(sizes[i], kind);
            results_in_place(sizes[i], kind);
            created_in_place(sizes[i], kind);
        }
        items(sizes[i]);
        queued(sizes[i]);
        constructors(sizes[i]);
        handles(sizes[i]);
    }
    refusals();
    if (!inside) until_nothing_is_held();
}
