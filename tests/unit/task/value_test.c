/* value_test.c - values and failures as bytes, sound and hostile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "task/failure.h"
#include "task/value.h"

static void round_trip(manta_arg a, const void *bytes, size_t n)
{
    value v, w;
    buf b = {0};
    char copy[256];

    assert_int_equal(value_of(&a, &v), MANTA_OK);
    if (!value_is_word(v.kind) && v.kind != MANTA_KIND_NONE) {
        value_copy(&a, &v, copy);
        v.at = copy;
    }
    wire_put_u8(&b, 1); /* not aligned by luck */
    value_put(&b, &v);
    wire r = wire_of(b.at, b.n);
    (void)wire_u8(&r);
    value_take(&r, &w);
    assert_int_equal(wire_end(&r, "value"), MANTA_OK);
    assert_int_equal(w.kind, a.kind);
    assert_int_equal(w.size, n);
    if (value_is_word(w.kind)) {
        assert_memory_equal(&w.word, bytes, 8);
    } else if (n > 0) {
        assert_memory_equal(w.at, bytes, n);
        assert_int_equal((uintptr_t)w.at % 8, 0);
    }
    buf_release(&b);
}

static void what_is_put_is_taken(void **state)
{
    double d = -0.5;
    int64_t i = INT64_MIN, yes = 1;
    manta_ref refs[2] = {{5}, {7}};
    float m[6] = {1, 2, 3, 4, 5, 6}, transposed[6] = {1, 4, 2, 5, 3, 6};
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 3}, m);
    manta_array t = {.data = m, .dtype = MANTA_DTYPE_F32, .ndim = 2, .shape = {3, 2}, .strides = {1, 3}};
    manta_arg text = {.kind = MANTA_KIND_STR};

    text.as.bytes.at = "loss";
    text.as.bytes.n = 4;
    uint64_t actor = 99;
    (void)state;
    round_trip(manta_f64(d), &d, 8);
    round_trip(manta_i64(i), &i, 8);
    round_trip(manta_bool(true), &yes, 8);
    round_trip(text, "loss", 5);
    round_trip(manta_bytes("\0\1", 2), "\0\1", 2);
    round_trip(manta_bytes(NULL, 0), NULL, 0);
    round_trip(manta_refs(refs, 2), refs, 16);
    round_trip(manta_handle((manta_actor){99}), &actor, 8);
    round_trip(manta_elements(&a), m, sizeof m);
    round_trip(manta_elements(&t), transposed, sizeof m);
}

static void impossible_arguments_are_refused(void **state)
{
    value v;
    manta_array bad = {.dtype = MANTA_DTYPE_F32, .ndim = 9},
                negative = {.dtype = MANTA_DTYPE_F32, .ndim = 1, .shape = {-1}};
    manta_array untyped = {.dtype = MANTA_DTYPE_COUNT};
    manta_arg args[] = {manta_elements(NULL),     manta_elements(&bad), manta_elements(&negative),
                        manta_elements(&untyped), manta_bytes(NULL, 4), manta_of_ref((manta_ref){3})};
    (void)state;

    for (size_t i = 0; i < sizeof args / sizeof args[0]; i++)
        assert_int_equal(value_of(&args[i], &v), MANTA_EINVAL);
}

/* Everything a reader would stumble over breaks the message instead. */
static void unsound_values_are_refused(void **state)
{
    static const struct {
        unsigned char kind, dtype, ndim, where;
        int64_t dims[2];
        uint64_t size;
    } bad[] = {
        {99, 0, 0, 0, {0}, 0}, /* no such kind */
        {MANTA_KIND_REF, 0, 0, 0, {0}, 0}, /* never travels */
        {MANTA_KIND_NONE, 0, 0, 0, {0}, 8},
        {MANTA_KIND_F64, 0, 0, 0, {0}, 4},
        {MANTA_KIND_STR, 0, 0, 0, {0}, 0}, /* no room for its end */
        {MANTA_KIND_STR, 0, 0, 0, {0}, 8}, /* the bytes that follow are no text */
        {MANTA_KIND_REFS, 0, 0, 0, {0}, 7},
        {MANTA_KIND_ARRAY, 0, 9, 0, {0}, 0},
        {MANTA_KIND_ARRAY, 200, 0, 0, {0}, 4},
        {MANTA_KIND_ARRAY, 0, 1, 0, {3}, 8}, /* 3 floats are 12 bytes */
        {MANTA_KIND_ARRAY, 0, 1, 0, {-2}, 8},
        {MANTA_KIND_ARRAY, 0, 2, 0, {INT64_MAX, INT64_MAX}, 4}, /* overflows */
        {MANTA_KIND_BYTES, 0, 0, 0, {0}, UINT64_MAX},
        {MANTA_KIND_BYTES, 0, 0, 1, {0}, 4}, /* in segment 0, which is none */
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        buf b = {0};
        value v;
        wire_put_u8(&b, bad[i].kind);
        wire_put_u8(&b, bad[i].dtype);
        wire_put_u8(&b, bad[i].ndim);
        wire_put_u8(&b, bad[i].where);
        for (int d = 0; d < bad[i].ndim && d < 2; d++) wire_put_i64(&b, bad[i].dims[d]);
        wire_put_u64(&b, bad[i].size);
        for (int k = 0; k < 4; k++) wire_put_u64(&b, bad[i].where ? 0 : 0x4141414141414141);
        wire w = wire_of(b.at, b.n);
        value_take(&w, &v);
        if (!w.broken) fail_msg("case %zu was taken", i);
        assert_int_equal(v.kind, MANTA_KIND_NONE);
        buf_release(&b);
    }
}

static void random_bytes_do_no_harm(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 5000; seed++) {
        uint32_t words[16];
        value v;
        failure *f;
        rng_fill(rng_make(seed, 1), 0, 4, words);
        words[0] &= 0x01070f0f; /* often something that nearly is one */
        wire w = wire_of(words, sizeof words);
        value_take(&w, &v);
        if (!w.broken && v.at) assert_true((const char *)v.at + v.size <= (const char *)(words + 16));
        w = wire_of(words, sizeof words);
        f = failure_take(&w);
        assert_true(memchr(f->is.text, 0, sizeof f->is.text) && f->is.code != MANTA_OK &&
                    f->is.kind != MANTA_FAILURE_NONE);
        failure_unref(f);
    }
}

static void failures_travel_with_their_place(void **state)
{
    buf b = {0};
    (void)state;
    manta_status st = manta_fail(MANTA_ENAN, "loss is not a number");
    failure *f = failure_here(MANTA_FAILURE_TASK, st, "train_step");

    failure_put(&b, f);
    wire w = wire_of(b.at, b.n);
    failure *back = failure_take(&w);
    assert_int_equal(wire_end(&w, "failure"), MANTA_OK);
    assert_memory_equal(&back->is, &f->is, sizeof f->is);
    assert_int_equal(failure_raise(back), MANTA_ENAN);
    assert_non_null(strstr(manta_error_text(), "loss is not a number"));
    assert_non_null(strstr(manta_error_text(), "train_step"));
    failure_unref(f);
    failure_unref(back);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_taken),
        cmocka_unit_test(impossible_arguments_are_refused),
        cmocka_unit_test(unsound_values_are_refused),
        cmocka_unit_test(random_bytes_do_no_harm),
        cmocka_unit_test(failures_travel_with_their_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
