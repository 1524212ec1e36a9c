/* loader_test.c - batches: order, sizes, positions, threads, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <manta/data.h>
#include <pthread.h>

#include "base/mem.h"
#include "ok.h"

#define N 100

static int64_t ids[N];
static uint8_t pixels[N][6];

/* Column "id" is the sample's number, column "x" six bytes that depend on it. */
static manta_dataset *numbers(int64_t n)
{
    int64_t one[] = {n}, two[] = {n, 2, 3};
    manta_column c[] = {{"id", manta_array_of(MANTA_DTYPE_I64, 1, one, ids)},
                        {"x", manta_array_of(MANTA_DTYPE_U8, 3, two, pixels)}};

    return manta_dataset_arrays(2, c, MANTA_OWNERSHIP_BORROW);
}

static manta_loader *open_with(manta_dataset *d, const manta_loader_options *o)
{
    manta_loader *l = NULL;
    manta_status st = manta_loader_open(d, o, &l);

    if (st) print_message("%s\n", manta_error_text());
    assert_int_equal(st, MANTA_OK);
    manta_dataset_unref(d);
    return l;
}

static int64_t id_at(const manta_batch *b, int64_t i)
{
    const manta_array *a = manta_batch_find(b, "id");

    assert_non_null(a);
    assert_true(i < a->shape[0]);
    return ((const int64_t *)a->data)[i];
}

/* Appends the ids of one epoch to out, returns how many. */
static int64_t read_epoch(manta_loader *l, int64_t *out)
{
    int64_t n = 0;
    manta_batch b;

    while (manta_loader_next(l, &b)) {
        for (int64_t i = 0; i < b.count; i++) out[n++] = id_at(&b, i);
    }
    assert_int_equal(manta_loader_status(l), MANTA_OK);
    return n;
}

static void assert_permutation(const int64_t *a, int64_t n)
{
    char seen[N] = {0};

    for (int64_t i = 0; i < n; i++) {
        assert_in_range(a[i], 0, n - 1);
        assert_false(seen[a[i]]);
        seen[a[i]] = 1;
    }
}

static void the_last_batch_is_smaller(void **state)
{
    (void)state;
    manta_loader *l = open_with(numbers(N), &(manta_loader_options){.batch_size = 64});
    int64_t sizes[4];
    manta_batch b;

    assert_int_equal(manta_loader_steps(l), 2);
    assert_int_equal(manta_loader_samples(l), N);
    assert_int_equal(manta_loader_batch_sizes(l, sizes, 4), 2);
    assert_int_equal(sizes[0], 64);
    assert_int_equal(sizes[1], 36);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        assert_true(manta_loader_next(l, &b));
        assert_int_equal(b.epoch, epoch);
        assert_int_equal(b.step, 0);
        assert_int_equal(b.first, epoch * N);
        assert_int_equal(b.count, 64);
        assert_int_equal(id_at(&b, 63), 63);
        assert_true(manta_loader_next(l, &b));
        assert_int_equal(b.step, 1);
        assert_int_equal(b.first, epoch * N + 64);
        assert_int_equal(b.count, 36);
        assert_int_equal(id_at(&b, 35), 99);
        const manta_array *x = manta_batch_find(&b, "x");
        assert_int_equal(x->ndim, 3);
        assert_int_equal(x->shape[0], 36);
        assert_int_equal(x->shape[2], 3);
        assert_int_equal(((const uint8_t *)x->data)[35 * 6 + 5], 104);
        assert_null(manta_batch_find(&b, "nothing"));
        assert_false(manta_loader_next(l, &b));
        assert_int_equal(manta_loader_status(l), MANTA_OK);
    }
    manta_loader_close(l);
}

/* More rows than memory has room for, were they made. */
static void a_batch_longer_than_the_data_takes_no_more_than_the_data(void **state)
{
    (void)state;
    for (int readers = -1; readers <= 2; readers += 3) {
        manta_loader *l = open_with(
            numbers(N), &(manta_loader_options){.batch_size = (int64_t)1 << 50, .readers = readers});
        int64_t sizes[2];
        manta_batch b;

        assert_int_equal(manta_loader_batch_sizes(l, sizes, 2), 1);
        assert_int_equal(sizes[0], N);
        for (int epoch = 0; epoch < 2; epoch++) {
            assert_true(manta_loader_next(l, &b));
            assert_int_equal(b.count, N);
            assert_int_equal(id_at(&b, N - 1), N - 1);
            assert_false(manta_loader_next(l, &b));
        }
        assert_int_equal(manta_loader_status(l), MANTA_OK);
        assert_ok(manta_loader_fetch(l, 0, 0, 3, N, &b));
        assert_int_equal(b.count, N - 3);
        assert_int_equal(id_at(&b, 0), 3);
        manta_loader_close(l);
    }
}

static void drop_last_leaves_out_the_smaller_batch(void **state)
{
    (void)state;
    manta_loader *l = open_with(numbers(N), &(manta_loader_options){.batch_size = 64, .drop_last = true});
    int64_t sizes[4], out[N];

    assert_int_equal(manta_loader_steps(l), 1);
    assert_int_equal(manta_loader_samples(l), 64);
    assert_int_equal(manta_loader_batch_sizes(l, sizes, 4), 1);
    assert_int_equal(read_epoch(l, out), 64);
    manta_batch b;
    assert_true(manta_loader_next(l, &b));
    assert_int_equal(b.first, 64); /* the second epoch goes on from what was given */
    manta_loader_close(l);
}

static void random_sampler_permutes_each_epoch(void **state)
{
    (void)state;
    manta_loader_options o = {.batch_size = 7, .sampler = MANTA_SAMPLER_RANDOM, .seed = 5};
    manta_loader *l = open_with(numbers(N), &o), *m = open_with(numbers(N), &o);
    int64_t a[N], b[N], again[N];

    assert_int_equal(read_epoch(l, a), N);
    assert_int_equal(read_epoch(l, b), N);
    assert_permutation(a, N);
    assert_permutation(b, N);
    assert_memory_not_equal(a, b, sizeof a);
    for (int i = 0, fixed = 0; i < N; i++) {
        fixed += a[i] == i;
        assert_in_range(fixed, 0, 12); /* a shuffle leaves about one in its place */
    }
    assert_int_equal(read_epoch(m, again), N);
    assert_memory_equal(a, again, sizeof a);
    manta_loader_close(l);
    manta_loader_close(m);
}

/* The same batches whatever the number of readers and however far ahead. */
static void the_number_of_readers_changes_no_batch(void **state)
{
    (void)state;
    int64_t expect[2][N], got[N];
    for (int readers = -1; readers <= 4; readers++) {
        for (int buffer = 0; buffer <= 30; buffer += 10) {
            manta_dataset *d = manta_dataset_shuffle(numbers(N), buffer, 9);
            manta_loader_options o = {.batch_size = 8, .readers = readers, .read_ahead = 3};
            manta_loader *l = open_with(d, &o);
            for (int e = 0; e < 2; e++) {
                int64_t *to = readers < 0 ? expect[e] : got;
                if (readers >= 0) { /* what the loader without threads gives */
                    manta_dataset *r = manta_dataset_shuffle(numbers(N), buffer, 9);
                    manta_loader *plain =
                        open_with(r, &(manta_loader_options){.batch_size = 8, .readers = MANTA_NONE});
                    assert_int_equal(manta_loader_seek(plain, e, 0), MANTA_OK);
                    assert_int_equal(read_epoch(plain, expect[e]), N);
                    manta_loader_close(plain);
                }
                assert_int_equal(read_epoch(l, to), N);
                assert_permutation(to, N);
                if (readers >= 0) assert_memory_equal(got, expect[e], sizeof got);
            }
            manta_loader_close(l);
        }
    }
}

static void seek_reaches_any_position(void **state)
{
    (void)state;
    manta_loader_options o = {.batch_size = 16, .sampler = MANTA_SAMPLER_RANDOM, .seed = 1, .readers = 2};
    manta_loader *l = open_with(numbers(N), &o), *m = open_with(numbers(N), &o);
    int64_t steps = manta_loader_steps(l);
    manta_batch a, b;
    manta_position p;

    assert_int_equal(steps, 7);
    for (int64_t e = 0; e < 3; e++) {
        for (int64_t s = 0; s < steps; s++) {
            manta_loader_position(l, &p);
            assert_int_equal(p.epoch, e);
            assert_int_equal(p.step, s);
            assert_true(manta_loader_next(l, &a));
            assert_int_equal(p.sample, a.first);
            /* another loader jumps there, forwards and backwards */
            assert_int_equal(manta_loader_seek(m, 2 - e, steps - 1 - s), MANTA_OK);
            assert_true(manta_loader_next(m, &b));
            assert_int_equal(manta_loader_set_position(m, &p), MANTA_OK);
            assert_true(manta_loader_next(m, &b));
            assert_int_equal(b.epoch, e);
            assert_int_equal(b.step, s);
            assert_int_equal(b.first, a.first);
            assert_int_equal(b.count, a.count);
            for (int64_t i = 0; i < a.count; i++) assert_int_equal(id_at(&a, i), id_at(&b, i));
        }
        manta_loader_position(l, &p);
        assert_int_equal(p.step, steps);
        assert_false(manta_loader_next(l, &a));
        assert_int_equal(manta_loader_set_position(m, &p), MANTA_OK); /* the end of an epoch is a position */
        assert_false(manta_loader_next(m, &b));
        assert_true(manta_loader_next(m, &b));
        assert_int_equal(b.epoch, e + 1);
        assert_int_equal(b.step, 0);
    }
    assert_int_equal(manta_loader_seek(l, 0, steps + 1), MANTA_EINVAL);
    assert_int_equal(manta_loader_seek(l, -1, 0), MANTA_EINVAL);
    assert_int_equal(manta_loader_seek(l, 0, -1), MANTA_EINVAL);
    assert_int_equal(manta_loader_seek(l, INT64_MAX, 0), MANTA_EINVAL);
    manta_loader_close(l);
    manta_loader_close(m);
}

static void fetch_gives_any_range_of_a_batch(void **state)
{
    (void)state;
    manta_dataset *d = manta_dataset_scale(manta_dataset_shuffle(numbers(N), 12, 3), "x", 255);
    manta_loader *l = open_with(d, &(manta_loader_options){.batch_size = 30});
    manta_batch whole, part;
    int64_t id[30];

    assert_true(manta_loader_next(l, &whole)); /* fetch does not disturb it */
    for (int64_t i = 0; i < 30; i++) id[i] = id_at(&whole, i);
    for (int64_t lo = 0; lo <= 30; lo += 5) {
        for (int64_t hi = lo; hi <= 40; hi += 5) {
            assert_int_equal(manta_loader_fetch(l, 0, 0, lo, hi, &part), MANTA_OK);
            assert_int_equal(part.count, (hi < 30 ? hi : 30) - lo);
            assert_int_equal(part.first, lo);
            const manta_array *x = manta_batch_find(&part, "x");
            assert_int_equal(x->shape[0], part.count);
            for (int64_t i = 0; i < part.count; i++) {
                assert_int_equal(id_at(&part, i), id[lo + i]);
                float expect = (float)(uint8_t)(id[lo + i] + 5) / 255.0f;
                assert_memory_equal((const float *)x->data + i * 6 + 5, &expect, sizeof expect);
            }
        }
    }
    assert_int_equal(manta_loader_fetch(l, 2, 3, 0, 99, &part), MANTA_OK);
    assert_int_equal(part.count, 10);
    assert_int_equal(part.first, 2 * N + 90);
    assert_int_equal(manta_loader_fetch(l, 0, 4, 0, 1, &part), MANTA_EINVAL);
    assert_int_equal(manta_loader_fetch(l, 0, 0, 5, 4, &part), MANTA_EINVAL);
    assert_int_equal(manta_loader_fetch(l, 0, 0, -1, 4, &part), MANTA_EINVAL);
    assert_true(manta_loader_next(l, &whole));
    assert_int_equal(whole.step, 1);
    manta_loader_close(l);
}

static void distributed_ranks_share_the_samples(void **state)
{
    (void)state;
    for (int pad = 0; pad < 2; pad++) {
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            int64_t all[4 * N], n = 0, first[N];
            for (int64_t rank = 0; rank < 3; rank++) {
                manta_loader_options o = {.batch_size = 5,
                                          .sampler = MANTA_SAMPLER_DISTRIBUTED,
                                          .replicas = 3,
                                          .rank = rank,
                                          .pad = pad,
                                          .shuffle = shuffle,
                                          .seed = 2};
                manta_loader *l = open_with(numbers(N), &o);
                int64_t k = read_epoch(l, all + n);
                assert_int_equal(k, pad || rank == 0 ? 34 : 33);
                assert_int_equal(manta_loader_samples(l), k);
                if (rank == 0) memcpy(first, all, (size_t)k * sizeof first[0]);
                if (!shuffle) {
                    for (int64_t i = 0; i < k; i++) assert_int_equal(all[n + i], (rank + 3 * i) % N);
                }
                n += k;
                manta_loader_close(l);
            }
            int count[N] = {0};
            for (int64_t i = 0; i < n; i++) count[all[i]]++;
            int twice = 0;
            for (int i = 0; i < N; i++) {
                assert_in_range(count[i], 1, 2);
                twice += count[i] == 2;
            }
            assert_int_equal(twice, pad ? 2 : 0); /* 102 = 100 and the first two again */
        }
    }
}

static void steps_per_epoch_run_on_through_the_data(void **state)
{
    (void)state;
    manta_dataset *d = manta_dataset_repeat(manta_dataset_shuffle(numbers(10), 0, 4), MANTA_FOREVER_COUNT);
    manta_loader *l =
        open_with(manta_dataset_batch(d, 4, false), &(manta_loader_options){.steps_per_epoch = 3});
    int64_t seen[60], n = 0, sizes[2];
    manta_batch b;

    assert_int_equal(manta_loader_steps(l), 3);
    assert_int_equal(manta_loader_samples(l), 12);
    assert_int_equal(manta_loader_batch_sizes(l, sizes, 2), 1); /* batches cross the seams: all full */
    for (int64_t e = 0; e < 5; e++) {
        for (int64_t s = 0; s < 3; s++) {
            assert_true(manta_loader_next(l, &b));
            assert_int_equal(b.first, n);
            for (int64_t i = 0; i < b.count; i++) seen[n++] = id_at(&b, i);
        }
        assert_false(manta_loader_next(l, &b));
        assert_int_equal(manta_loader_status(l), MANTA_OK);
    }
    assert_int_equal(n, 60);
    for (int pass = 0; pass < 6; pass++) assert_permutation(seen + 10 * pass, 10);
    assert_memory_not_equal(seen, seen + 10, 10 * sizeof seen[0]);
    assert_int_equal(manta_loader_seek(l, 3, 1), MANTA_OK);
    assert_true(manta_loader_next(l, &b));
    assert_int_equal(id_at(&b, 0), seen[40]);
    manta_loader_close(l);
}

/* Places beyond what can be counted are refused, not computed. */
static void positions_beyond_counting_are_refused(void **state)
{
    (void)state;
    manta_batch b;
    manta_dataset *d = manta_dataset_repeat(numbers(10), MANTA_FOREVER_COUNT);
    manta_loader *l =
        open_with(manta_dataset_skip(d, INT64_MAX - 5), &(manta_loader_options){.batch_size = 4});
    assert_int_equal(manta_loader_fetch(l, 0, INT64_MAX, 0, 1, &b), MANTA_EINVAL);
    assert_int_equal(manta_loader_fetch(l, 1, 0, 0, 1, &b), MANTA_EINVAL);
    assert_int_equal(manta_loader_fetch(l, 0, INT64_MAX / 4, 0, 1, &b), MANTA_EINVAL);
    assert_int_not_equal(manta_loader_fetch(l, 0, INT64_MAX / 20, 0, 1, &b), MANTA_OK);
    assert_int_equal(manta_loader_fetch(l, 0, 0, 0, 4, &b), MANTA_OK); /* 2^63 - 6 is 2 modulo 10 */
    assert_int_equal(id_at(&b, 0), (INT64_MAX - 5) % 10);
    manta_loader_close(l);
}

static void running_out_of_samples_is_reported(void **state)
{
    (void)state;
    manta_loader *l = open_with(numbers(10), &(manta_loader_options){.batch_size = 4, .steps_per_epoch = 2});
    manta_batch b;

    assert_true(manta_loader_next(l, &b));
    assert_true(manta_loader_next(l, &b));
    assert_false(manta_loader_next(l, &b));
    assert_int_equal(manta_loader_status(l), MANTA_OK);
    assert_true(manta_loader_next(l, &b));
    assert_int_equal(b.count, 2);
    assert_false(manta_loader_next(l, &b));
    assert_int_equal(manta_loader_status(l), MANTA_EINVAL);
    assert_error_says("repeat()");
    assert_false(manta_loader_next(l, &b)); /* and stays so */
    assert_int_equal(manta_loader_seek(l, 0, 0), MANTA_OK);
    assert_true(manta_loader_next(l, &b));
    manta_loader_close(l);
}

static void an_empty_dataset_has_no_steps(void **state)
{
    (void)state;
    manta_loader *l = open_with(manta_dataset_take(numbers(N), 0), NULL);
    manta_batch b;

    assert_int_equal(manta_loader_steps(l), 0);
    assert_int_equal(manta_loader_samples(l), 0);
    assert_false(manta_loader_next(l, &b));
    assert_int_equal(manta_loader_status(l), MANTA_OK);
    manta_loader_close(l);
}

static void refuse(manta_dataset *d, manta_loader_options o, const char *word)
{
    manta_loader *l = NULL;

    assert_fails_with(manta_loader_open(d, &o, &l), MANTA_EINVAL, word);
    assert_null(l);
    manta_dataset_unref(d);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    refuse(numbers(N), (manta_loader_options){.batch_size = -1}, "batch_size");
    refuse(manta_dataset_batch(numbers(N), 4, false), (manta_loader_options){.batch_size = 4}, "own batch()");
    refuse(manta_dataset_batch(numbers(N), 4, false), (manta_loader_options){.sampler = MANTA_SAMPLER_RANDOM},
           "own batch()");
    refuse(numbers(N), (manta_loader_options){.readers = -2}, "readers");
    refuse(numbers(N), (manta_loader_options){.sampler = MANTA_SAMPLER_DISTRIBUTED, .replicas = 2, .rank = 2},
           "rank 2 of 2");
    refuse(manta_dataset_repeat(numbers(N), MANTA_FOREVER_COUNT),
           (manta_loader_options){.sampler = MANTA_SAMPLER_RANDOM}, "known");
    refuse(manta_dataset_scale(numbers(N), "y", 255), (manta_loader_options){0}, "id, x");
}

static manta_status fail_at_50(manta_sample *s, void *user)
{
    (void)user;
    memcpy(s->out[0].array.data, s->in[0].array.data, 8);
    memcpy(s->out[1].array.data, s->in[1].array.data, 6);
    if (s->index == 50) return manta_fail(MANTA_ECORRUPT, "sample fifty is bad");
    return MANTA_OK;
}

/* An error in a reader reaches the caller, at its place, with its sentence. */
static void an_error_in_a_reader_reaches_the_caller(void **state)
{
    (void)state;
    for (int readers = -1; readers <= 3; readers++) {
        manta_dataset *d = manta_dataset_map(numbers(N), fail_at_50, NULL, 0, 0, NULL);
        manta_loader *l =
            open_with(d, &(manta_loader_options){.batch_size = 8, .readers = readers, .read_ahead = 9});
        manta_batch b;
        for (int s = 0; s < 6; s++) assert_true(manta_loader_next(l, &b));
        assert_false(manta_loader_next(l, &b));
        assert_int_equal(manta_loader_status(l), MANTA_ECORRUPT);
        assert_string_equal(manta_error_text(), "sample fifty is bad");
        assert_false(manta_loader_next(l, &b));
        assert_int_equal(manta_loader_seek(l, 0, 7), MANTA_OK);
        assert_true(manta_loader_next(l, &b));
        assert_int_equal(id_at(&b, 0), 56);
        manta_loader_close(l);
    }
}

/* A steady loader allocates nothing: with every allocation made to fail it
 * goes on. And the failing ones at open are reported, one after the other. */
static void a_steady_loader_allocates_nothing(void **state)
{
    (void)state;
    int64_t before = mem_live();
    int64_t n = 1;
    for (;; n++) {
        manta_dataset *d = manta_dataset_shuffle(numbers(N), 12, 3);
        d = manta_dataset_cache(manta_dataset_random_crop(d, "x", 1, 2, 3, 5));
        d = manta_dataset_normalize(d, "x", 3, (float[]){1, 2, 3}, (float[]){4, 5, 6});
        manta_loader *l = NULL;
        mem_fail_at(n, 0);
        manta_status st = manta_loader_open(d, &(manta_loader_options){.batch_size = 8, .readers = 2}, &l);
        int64_t failed = mem_failures();
        mem_fail_at(0, 0);
        manta_dataset_unref(d);
        if (st) {
            assert_int_equal(st, MANTA_ENOMEM);
            assert_null(l);
            assert_int_equal(mem_live(), before);
            continue;
        }
        assert_int_equal(failed, 0);
        mem_fail_at(1, 1);
        int64_t live = mem_live();
        manta_batch b;
        for (int e = 0; e < 3; e++) {
            while (manta_loader_next(l, &b))
                assert_true(mem_live() <= live); /* a starting thread gives back */
            assert_int_equal(manta_loader_status(l), MANTA_OK);
        }
        mem_fail_at(0, 0);
        manta_loader_close(l);
        break;
    }
    assert_true(n > 8);
    assert_int_equal(mem_live(), before);
}

/* Close while readers are in the middle of work: silence afterwards. */
static _Atomic int calls;

static manta_status count_calls(manta_sample *s, void *user)
{
    (void)user;
    calls++;
    memcpy(s->out[0].array.data, s->in[0].array.data, 8);
    memcpy(s->out[1].array.data, s->in[1].array.data, 6);
    return MANTA_OK;
}

static void no_function_is_called_after_close(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        manta_dataset *d = manta_dataset_map(numbers(N), count_calls, NULL, 0, 0, NULL);
        manta_loader *l =
            open_with(d, &(manta_loader_options){.batch_size = 1, .readers = 3, .read_ahead = 50});
        manta_batch b;
        if (i % 2) assert_true(manta_loader_next(l, &b));
        manta_loader_close(l);
        int after = calls;
        sched_yield();
        assert_int_equal(calls, after);
    }
    manta_loader_close(NULL);
}

int main(void)
{
    for (int i = 0; i < N; i++) {
        ids[i] = i;
        for (int k = 0; k < 6; k++) pixels[i][k] = (uint8_t)(i + k);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_batch_is_smaller),
        cmocka_unit_test(a_batch_longer_than_the_data_takes_no_more_than_the_data),
        cmocka_unit_test(drop_last_leaves_out_the_smaller_batch),
        cmocka_unit_test(random_sampler_permutes_each_epoch),
        cmocka_unit_test(the_number_of_readers_changes_no_batch),
        cmocka_unit_test(seek_reaches_any_position),
        cmocka_unit_test(fetch_gives_any_range_of_a_batch),
        cmocka_unit_test(distributed_ranks_share_the_samples),
        cmocka_unit_test(steps_per_epoch_run_on_through_the_data),
        cmocka_unit_test(positions_beyond_counting_are_refused),
        cmocka_unit_test(running_out_of_samples_is_reported),
        cmocka_unit_test(an_empty_dataset_has_no_steps),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(an_error_in_a_reader_reaches_the_caller),
        cmocka_unit_test(a_steady_loader_allocates_nothing),
        cmocka_unit_test(no_function_is_called_after_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
