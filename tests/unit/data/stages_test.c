/* stages_test.c - what each stage gives, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>
#include <manta/data.h>

#include "base/mem.h"
#include "data/digest.h"
#include "ok.h"

#define N 40

static int64_t ids[N];
static uint8_t images[N][4][4];

static manta_dataset *numbers(int64_t n)
{
    int64_t shape[] = {n};
    manta_column c = {"id", manta_array_of(MANTA_DTYPE_I64, 1, shape, ids)};

    return manta_dataset_arrays(1, &c, MANTA_OWNERSHIP_BORROW);
}

static manta_dataset *pictures(void)
{
    int64_t one[] = {N}, shape[] = {N, 4, 4};
    manta_column c[] = {{"x", manta_array_of(MANTA_DTYPE_U8, 3, shape, images)},
                        {"id", manta_array_of(MANTA_DTYPE_I64, 1, one, ids)}};

    return manta_dataset_arrays(2, c, MANTA_OWNERSHIP_COPY);
}

/* Opens, reads one epoch and gives the ids; takes d. Samples are batched by 4
 * unless d has batches of its own; *batches gets their sizes. */
static int64_t run_epoch(manta_dataset *d, int64_t epoch, int64_t *out, int64_t cap, int64_t *sizes)
{
    manta_loader_options o = {0};
    manta_loader *l = NULL;
    manta_batch b;
    int64_t n = 0, k = 0;

    assert_ok(manta_loader_open(d, &o, &l));
    manta_dataset_unref(d);
    if (epoch && manta_loader_seek(l, epoch, 0)) fail_msg("%s", manta_error_text());
    while (n < cap && manta_loader_next(l, &b)) {
        const manta_array *a = manta_batch_find(&b, "id");
        if (sizes) sizes[k++] = b.count;
        for (int64_t i = 0; i < b.count && n < cap; i++) out[n++] = ((int64_t *)a->data)[i];
    }
    assert_ok(manta_loader_status(l));
    manta_loader_close(l);
    return n;
}

static void expect(manta_dataset *d, int64_t n, const int64_t *ids_expected)
{
    int64_t got[200];

    assert_int_equal(run_epoch(d, 0, got, 200, NULL), n);
    for (int64_t i = 0; i < n; i++) assert_int_equal(got[i], ids_expected[i]);
}

#define LIST(...)                                                                                            \
    (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                               \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

static void stages_give_the_expected_order(void **state)
{
    (void)state;
    expect(manta_dataset_take(numbers(10), 3), LIST(0, 1, 2));
    expect(manta_dataset_take(numbers(2), 9), LIST(0, 1));
    expect(manta_dataset_skip(numbers(5), 3), LIST(3, 4));
    expect(manta_dataset_shard(numbers(7), 3, 1), LIST(1, 4));
    expect(manta_dataset_shard(numbers(7), 3, 0), LIST(0, 3, 6));
    expect(manta_dataset_repeat(numbers(3), 2), LIST(0, 1, 2, 0, 1, 2));
    expect(manta_dataset_concatenate(numbers(2), manta_dataset_skip(numbers(5), 3)), LIST(0, 1, 3, 4));
    expect(manta_dataset_take(manta_dataset_repeat(numbers(2), MANTA_FOREVER_COUNT), 5), LIST(0, 1, 0, 1, 0));
    expect(manta_dataset_skip(manta_dataset_take(numbers(10), 6), 4), LIST(4, 5));
    expect(manta_dataset_take(manta_dataset_skip(numbers(10), 4), 2), LIST(4, 5));
    expect(manta_dataset_prefetch(manta_dataset_shard(manta_dataset_repeat(numbers(3), 2), 2, 1), 4),
           LIST(1, 0, 2));
}

/* Order of batch and repeat: across the seam, or not. */
static void batches_cross_the_seam_of_repeat_or_do_not(void **state)
{
    (void)state;
    int64_t got[64], sizes[16];
    manta_dataset *d = manta_dataset_batch(manta_dataset_repeat(numbers(5), 2), 4, false);
    assert_int_equal(manta_dataset_count(d), 3);
    assert_int_equal(run_epoch(d, 0, got, 64, sizes), 10);
    assert_memory_equal(sizes, ((int64_t[]){4, 4, 2}), 3 * sizeof sizes[0]);
    d = manta_dataset_repeat(manta_dataset_batch(numbers(5), 4, false), 2);
    assert_int_equal(manta_dataset_count(d), 4);
    assert_int_equal(run_epoch(d, 0, got, 64, sizes), 10);
    assert_memory_equal(sizes, ((int64_t[]){4, 1, 4, 1}), 4 * sizeof sizes[0]);
    d = manta_dataset_skip(manta_dataset_batch(numbers(9), 2, true), 1);
    assert_int_equal(run_epoch(d, 0, got, 64, sizes), 6);
    assert_int_equal(got[0], 2);

    /* the running index of samples, where a short batch lies in the middle */
    manta_loader *l = NULL;
    manta_batch b;
    int64_t firsts[] = {0, 4, 5, 9, 10, 14}, all[4];
    d = manta_dataset_repeat(manta_dataset_batch(numbers(5), 4, false), 2);
    assert_int_equal(manta_loader_open(d, NULL, &l), MANTA_OK);
    manta_dataset_unref(d);
    for (int i = 0; i < 6; i++) {
        if (i == 4) assert_false(manta_loader_next(l, &b));
        assert_true(manta_loader_next(l, &b));
        assert_int_equal(b.first, firsts[i]);
    }
    assert_int_equal(manta_loader_batch_sizes(l, all, 4), 2);
    assert_int_equal(manta_loader_samples(l), 10);
    manta_loader_close(l);
}

/* shuffle(buffer) can bring an element forward by at most buffer - 1 places,
 * every element comes once, and epochs differ. */
static void shuffle_moves_within_its_buffer(void **state)
{
    (void)state;
    int64_t a[N], b[N], once[N];
    for (int64_t buffer = 1; buffer <= N + 5; buffer += 4) {
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            char seen[N] = {0};
            assert_int_equal(
                run_epoch(manta_dataset_shuffle(numbers(N), buffer, 3), epoch, epoch ? b : a, N, NULL), N);
            int64_t *v = epoch ? b : a;
            for (int64_t i = 0; i < N; i++) {
                assert_false(seen[v[i]]);
                seen[v[i]] = 1;
                if (buffer < N) assert_true(v[i] < i + buffer);
                if (buffer == 1) assert_int_equal(v[i], i);
            }
            if (epoch && buffer > 1) assert_memory_not_equal(a, b, sizeof a);
            run_epoch(manta_dataset_shuffle_once(numbers(N), buffer, 3), epoch, once, N, NULL);
            assert_memory_equal(a, once, sizeof a);
        }
        run_epoch(manta_dataset_shuffle(numbers(N), buffer, 4), 0, b, N, NULL);
        if (buffer > 1) assert_memory_not_equal(a, b, sizeof a); /* another seed */
    }
    /* each pass of repeat is an epoch of its own, and epoch 1 goes on from there */
    int64_t four[4 * N], two[2 * N];
    run_epoch(manta_dataset_repeat(manta_dataset_shuffle(numbers(N), 0, 1), 4), 0, four, 4 * N, NULL);
    run_epoch(manta_dataset_repeat(manta_dataset_shuffle(numbers(N), 0, 1), 2), 1, two, 2 * N, NULL);
    assert_memory_equal(four + 2 * N, two, sizeof two);
    assert_memory_not_equal(four, four + N, sizeof a);
}

static void columns_are_zipped_selected_and_renamed(void **state)
{
    (void)state;
    const manta_column_spec *c;
    const char *const want[] = {"other", "id"};
    manta_dataset *d =
        manta_dataset_zip(numbers(5), manta_dataset_rename(manta_dataset_skip(numbers(9), 2), "id", "other"));
    assert_int_equal(manta_dataset_count(d), 5);
    d = manta_dataset_select(d, 2, want);
    assert_int_equal(manta_dataset_columns(d, &c), 2);
    assert_string_equal(c[0].name, "other");
    manta_loader *l = NULL;
    manta_batch b;
    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 5}, &l), MANTA_OK);
    manta_dataset_unref(d);
    assert_true(manta_loader_next(l, &b));
    assert_int_equal(((int64_t *)b.columns[0].array.data)[4], 6);
    assert_int_equal(((int64_t *)b.columns[1].array.data)[4], 4);
    manta_loader_close(l);
}

/* ---- map --------------------------------------------------------------------------------- */

static manta_status draw(manta_sample *s, void *user)
{
    int *calls = user;
    double *out = s->out[1].array.data;

    if (calls) ++*calls;
    memcpy(s->out[0].array.data, s->in[s->n_in - 1].array.data, 8);
    out[0] = manta_sample_uniform(s);
    out[1] = manta_sample_normal(s);
    out[2] = (double)manta_sample_below(s, 10);
    return MANTA_OK;
}

static const manta_column_spec drawn[] = {{.name = "id", .dtype = MANTA_DTYPE_I64},
                                          {.name = "r", .dtype = MANTA_DTYPE_F64, .ndim = 1, .shape = {3}}};

/* Reads an epoch of draws, by id; takes d. */
static void draws_of(manta_dataset *d, int64_t epoch, double out[][3])
{
    manta_loader *l = NULL;
    manta_batch b;

    assert_ok(manta_loader_open(d, &(manta_loader_options){.batch_size = 3, .readers = 2}, &l));
    manta_dataset_unref(d);
    assert_int_equal(manta_loader_seek(l, epoch, 0), MANTA_OK);
    while (manta_loader_next(l, &b)) {
        for (int64_t i = 0; i < b.count; i++) {
            int64_t id = ((int64_t *)manta_batch_find(&b, "id")->data)[i];
            memcpy(out[id], (double *)manta_batch_find(&b, "r")->data + 3 * i, 3 * sizeof(double));
        }
    }
    assert_int_equal(manta_loader_status(l), MANTA_OK);
    manta_loader_close(l);
}

/* The random numbers of a sample depend on seed, epoch and sample alone. */
static void map_draws_depend_on_seed_epoch_and_sample(void **state)
{
    (void)state;
    double a[N][3] = {{0}}, b[N][3] = {{0}}, mean = 0;

    draws_of(manta_dataset_map(numbers(N), draw, NULL, 7, 2, drawn), 1, a);
    for (int i = 0; i < N; i++) {
        assert_true(a[i][0] >= 0 && a[i][0] < 1);
        assert_true(a[i][2] >= 0 && a[i][2] < 10);
        mean += a[i][0] / N;
    }
    assert_true(mean > 0.3 && mean < 0.7);
    draws_of(manta_dataset_map(manta_dataset_shuffle(numbers(N), 0, 9), draw, NULL, 7, 2, drawn), 1, b);
    assert_memory_equal(a, b, sizeof a); /* shuffled before or not */
    draws_of(manta_dataset_map(numbers(N), draw, NULL, 7, 2, drawn), 2, b);
    assert_memory_not_equal(a, b, sizeof a);
    for (int i = 0; i < N; i++) assert_true(a[i][0] != b[i][0]);
    draws_of(manta_dataset_map(numbers(N), draw, NULL, 8, 2, drawn), 1, b);
    assert_memory_not_equal(a, b, sizeof a);
    memset(b, 0, sizeof b); /* shards of it see the same numbers */
    for (int i = 0; i < 3; i++)
        draws_of(manta_dataset_map(manta_dataset_shard(numbers(N), 3, i), draw, NULL, 7, 2, drawn), 1, b);
    assert_memory_equal(a, b, sizeof a);
    /* both halves of a concatenation are different samples */
    draws_of(manta_dataset_map(manta_dataset_concatenate(manta_dataset_take(numbers(N), 20), numbers(20)),
                               draw, NULL, 7, 2, drawn),
             1, b);
    assert_true(a[0][0] != b[0][0]);
}

static void cache_computes_each_sample_once(void **state)
{
    (void)state;
    int calls = 0;
    double a[N][3] = {{0}}, b[N][3] = {{0}};
    manta_dataset *d = manta_dataset_cache(manta_dataset_map(numbers(N), draw, &calls, 7, 2, drawn));

    /* one reader, so that the count is exact */
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        int64_t got[N];
        assert_int_equal(run_epoch(manta_dataset_ref(d), epoch, got, N, NULL), N);
    }
    assert_in_range(calls, N, N + 3); /* a reader ahead may make a few anew at the same time */
    draws_of(manta_dataset_ref(d), 0, a);
    draws_of(manta_dataset_ref(d), 5, b);
    assert_memory_equal(a, b, sizeof a); /* what epoch 0 made, whenever it is read */
    /* what comes after the cache still differs from epoch to epoch */
    draws_of(manta_dataset_map(manta_dataset_cache(numbers(N)), draw, NULL, 7, 2, drawn), 0, a);
    draws_of(manta_dataset_map(manta_dataset_cache(numbers(N)), draw, NULL, 7, 2, drawn), 1, b);
    assert_memory_not_equal(a, b, sizeof a);
    manta_dataset_unref(d);
}

static manta_status double_batch(manta_sample *s, void *user)
{
    const manta_array *in = &s->in[0].array;
    (void)user;

    assert_int_equal(in->ndim, 1);
    for (int64_t i = 0; i < in->shape[0]; i++)
        ((int64_t *)s->out[0].array.data)[i] = 2 * ((int64_t *)in->data)[i];
    return MANTA_OK;
}

static void map_takes_whole_batches(void **state)
{
    (void)state;
    int64_t got[N];
    manta_dataset *d =
        manta_dataset_map(manta_dataset_batch(numbers(10), 4, false), double_batch, NULL, 0, 0, NULL);
    assert_int_equal(run_epoch(manta_dataset_ref(d), 0, got, N, NULL), 10);
    for (int i = 0; i < 10; i++) assert_int_equal(got[i], 2 * i);
    manta_loader *l = NULL;
    manta_batch b;
    assert_int_equal(manta_loader_open(d, NULL, &l), MANTA_OK);
    manta_dataset_unref(d);
    assert_int_equal(manta_loader_fetch(l, 0, 1, 1, 3, &b), MANTA_OK); /* rows of a mapped batch */
    assert_int_equal(b.count, 2);
    assert_int_equal(((int64_t *)b.columns[0].array.data)[0], 10);
    manta_loader_close(l);
}

/* ---- columns and images -------------------------------------------------------------------- */

static void first_batch(manta_dataset *d, int64_t epoch, manta_loader **l, manta_batch *b)
{
    assert_ok(manta_loader_open(d, &(manta_loader_options){.batch_size = N}, l));
    manta_dataset_unref(d);
    assert_ok(manta_loader_fetch(*l, epoch, 0, 0, N, b));
}

static void scale_and_normalize_compute_their_formulas(void **state)
{
    (void)state;
    manta_loader *l;
    manta_batch b;
    float mean[] = {1, 2, 3, 4}, std[] = {2, 3, 4, 5};

    first_batch(manta_dataset_normalize(manta_dataset_scale(pictures(), "x", 255), "x", 4, mean, std), 0, &l,
                &b);
    const float *x = manta_batch_find(&b, "x")->data;
    for (int i = 0; i < N * 16; i++) {
        float v = (float)((uint8_t *)images)[i] / 255.0f;
        float want = (v - mean[i % 4]) / std[i % 4];
        assert_memory_equal(&x[i], &want, sizeof want);
    }
    manta_loader_close(l);
    first_batch(manta_dataset_normalize(pictures(), "x", 1, mean, std), 0, &l, &b);
    x = manta_batch_find(&b, "x")->data;
    for (int i = 0; i < N * 16; i++) assert_true(x[i] == ((float)((uint8_t *)images)[i] - 1) / 2);
    manta_loader_close(l);
}

static void crop_and_flip_move_pixels(void **state)
{
    (void)state;
    manta_loader *l;
    manta_batch b;
    int flipped = 0, places[3][3] = {{0}};

    first_batch(manta_dataset_random_flip(pictures(), "x", 0.5, 3), 2, &l, &b);
    const uint8_t *x = manta_batch_find(&b, "x")->data;
    for (int i = 0; i < N; i++) {
        bool mirrored = x[16 * i] == images[i][0][3];
        for (int y = 0; y < 4; y++) {
            for (int k = 0; k < 4; k++)
                assert_int_equal(x[16 * i + 4 * y + k], images[i][y][mirrored ? 3 - k : k]);
        }
        flipped += mirrored;
    }
    assert_in_range(flipped, 8, 32);
    manta_loader_close(l);

    /* one zero around, 4 x 4 cut out: nine places, all of which occur */
    first_batch(manta_dataset_random_crop(pictures(), "x", 1, 4, 4, 3), 0, &l, &b);
    x = manta_batch_find(&b, "x")->data;
    for (int i = 0; i < N; i++) {
        int found = 0;
        for (int top = -1; top <= 1; top++) {
            for (int left = -1; left <= 1; left++) {
                bool same = true;
                for (int k = 0; k < 16 && same; k++) {
                    int y = top + k / 4, z = left + k % 4;
                    uint8_t want = y < 0 || y > 3 || z < 0 || z > 3 ? 0 : images[i][y][z];
                    same = x[16 * i + k] == want;
                }
                if (same) places[top + 1][left + 1]++;
                found += same;
            }
        }
        assert_int_equal(found, 1);
    }
    int used = 0;
    for (int i = 0; i < 9; i++) used += places[i / 3][i % 3] > 0;
    assert_in_range(used, 7, 9);
    manta_loader_close(l);
    first_batch(manta_dataset_random_crop(pictures(), "x", 0, 2, 3, 3), 0, &l, &b);
    assert_int_equal(manta_batch_find(&b, "x")->shape[1], 2);
    assert_int_equal(manta_batch_find(&b, "x")->shape[2], 3);
    manta_loader_close(l);
}

static void fails_at_read(manta_dataset *d, const char *word)
{
    manta_loader *l = NULL;
    manta_batch b;

    assert_ok(manta_loader_open(d, &(manta_loader_options){.batch_size = N}, &l));
    manta_dataset_unref(d);
    assert_false(manta_loader_next(l, &b));
    assert_fails_with(manta_loader_status(l), MANTA_EINVAL, word);
    manta_loader_close(l);
}

static void cast_and_one_hot_convert_every_dtype(void **state)
{
    (void)state;
    static const double reals[] = {1, 300, 2.5, NAN};
    int64_t shape[] = {4}, shape1[] = {1};
    manta_loader *l;
    manta_batch b;

    for (int t = 0; t < MANTA_DTYPE_COUNT; t++) {
        manta_dataset *d =
            manta_dataset_cast(manta_dataset_cast(numbers(N), "id", (manta_dtype)t), "id", MANTA_DTYPE_I64);
        first_batch(d, 0, &l, &b);
        for (int64_t i = 0; i < N; i++) {
            int64_t want = t == MANTA_DTYPE_BOOL ? i != 0 : i;
            assert_int_equal(((int64_t *)manta_batch_find(&b, "id")->data)[i], want);
        }
        manta_loader_close(l);
    }
    for (int i = 1; i < 4; i++) {
        manta_column c = {"v", manta_array_of(MANTA_DTYPE_F64, 1, shape1, (void *)(uintptr_t)&reals[i])};
        fails_at_read(
            manta_dataset_cast(manta_dataset_arrays(1, &c, MANTA_OWNERSHIP_COPY), "v", MANTA_DTYPE_U8),
            "uint8 cannot hold");
    }
    manta_column c = {"v", manta_array_of(MANTA_DTYPE_F64, 1, shape, (void *)(uintptr_t)reals)};
    manta_dataset *d =
        manta_dataset_cast(manta_dataset_arrays(1, &c, MANTA_OWNERSHIP_BORROW), "v", MANTA_DTYPE_F32);
    first_batch(d, 0, &l, &b);
    assert_true(((float *)b.columns[0].array.data)[2] == 2.5f);
    manta_loader_close(l);
    fails_at_read(manta_dataset_labels(numbers(N), "id", N - 1), "sample 39 has the label 39");
    first_batch(manta_dataset_labels(numbers(N), "id", N), 0, &l, &b);
    assert_int_equal(b.count, N);
    manta_loader_close(l);
}

/* ---- generators ----------------------------------------------------------------------------- */

typedef struct counter {
    int64_t n; /* samples of a pass */
    int64_t fail_at;
    int opened, closed, released, made;
    int64_t epoch, next;
} counter;

static manta_status counter_open(void *user, int64_t epoch, void **state)
{
    counter *k = user;

    assert_int_equal(k->opened, k->closed); /* one at a time: a single reader */
    k->opened++;
    k->epoch = epoch;
    k->next = 0;
    *state = k;
    return MANTA_OK;
}

static manta_status counter_next(void *state, manta_column *out, int n, bool *end)
{
    counter *k = state;

    assert_int_equal(n, 1);
    if (k->next == k->fail_at) return manta_fail(MANTA_EIO, "the well is dry");
    *end = k->next >= k->n + k->epoch % 2; /* odd passes have one more */
    if (*end) return MANTA_OK;
    k->made++;
    *(int64_t *)out[0].array.data = k->next++;
    return MANTA_OK;
}

static void counter_close(void *state)
{
    ((counter *)state)->closed++;
}

static void counter_release(void *user)
{
    ((counter *)user)->released++;
}

static manta_dataset *generate(counter *k, int64_t count)
{
    static const manta_generator g = {counter_open, counter_next, counter_close, counter_release};

    return manta_dataset_generator(&g, k, count, 1, drawn);
}

static void a_generator_feeds_batches(void **state)
{
    (void)state;
    counter k = {.n = 10, .fail_at = -1};
    manta_loader *l = NULL;
    manta_batch b;
    int64_t sizes[2];
    manta_dataset *d = generate(&k, MANTA_UNKNOWN_COUNT);

    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 4, .readers = 3}, &l),
                     MANTA_OK);
    manta_dataset_unref(d);
    assert_int_equal(manta_loader_steps(l), MANTA_UNKNOWN_COUNT);
    assert_int_equal(manta_loader_batch_sizes(l, sizes, 2), 1);
    for (int epoch = 0; epoch < 3; epoch++) {
        int64_t next = 0;
        while (manta_loader_next(l, &b)) {
            assert_int_equal(b.epoch, epoch);
            assert_int_equal(b.first, next);
            for (int64_t i = 0; i < b.count; i++)
                assert_int_equal(((int64_t *)b.columns[0].array.data)[i], next++);
        }
        assert_int_equal(manta_loader_status(l), MANTA_OK);
        assert_int_equal(next, 10 + epoch % 2);
    }
    assert_int_equal(manta_loader_seek(l, 1, 2), MANTA_OK); /* by replay */
    assert_true(manta_loader_next(l, &b));
    assert_int_equal(b.count, 3);
    assert_int_equal(((int64_t *)b.columns[0].array.data)[0], 8);
    manta_loader_close(l);
    assert_int_equal(k.opened, k.closed);
    assert_int_equal(k.released, 1);
}

static void stages_follow_a_generator(void **state)
{
    (void)state;
    counter k = {.n = 10, .fail_at = -1};
    int64_t got[200], n;

    /* passes of 10, 11, 10, ... one after the other */
    n = run_epoch(
        manta_dataset_take(manta_dataset_repeat(generate(&k, MANTA_UNKNOWN_COUNT), MANTA_FOREVER_COUNT), 35),
        0, got, 200, NULL);
    assert_int_equal(n, 35);
    for (int i = 0; i < 35; i++)
        assert_int_equal(got[i], i < 10 ? i : i < 21 ? i - 10 : i < 31 ? i - 21 : i - 31);
    n = run_epoch(manta_dataset_repeat(generate(&k, MANTA_UNKNOWN_COUNT), 2), 0, got, 200, NULL);
    assert_int_equal(n, 21);

    /* a seek into the second pass of such a repetition */
    manta_loader *l = NULL;
    manta_batch b;
    manta_dataset *d = manta_dataset_repeat(generate(&k, MANTA_UNKNOWN_COUNT), MANTA_FOREVER_COUNT);
    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 4, .steps_per_epoch = 5}, &l),
                     MANTA_OK);
    manta_dataset_unref(d);
    assert_int_equal(manta_loader_seek(l, 1, 1), MANTA_OK);
    assert_true(manta_loader_next(l, &b));
    assert_int_equal(((int64_t *)b.columns[0].array.data)[0], 3); /* sample 24 = 21 + 3 */
    manta_loader_close(l);

    /* a shuffle holds real samples, each comes once, and seeks agree */
    int64_t first[10];
    char seen[10] = {0};
    n = run_epoch(manta_dataset_shuffle(generate(&k, 10), 4, 5), 0, first, 200, NULL);
    assert_int_equal(n, 10);
    for (int i = 0; i < 10; i++) {
        assert_true(first[i] < i + 4);
        assert_false(seen[first[i]]);
        seen[first[i]] = 1;
    }
    d = manta_dataset_shuffle(generate(&k, 10), 4, 5);
    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 3}, &l), MANTA_OK);
    manta_dataset_unref(d);
    assert_int_equal(manta_loader_seek(l, 0, 2), MANTA_OK);
    assert_true(manta_loader_next(l, &b));
    assert_memory_equal(b.columns[0].array.data, first + 6, 3 * sizeof first[0]);
    manta_loader_close(l);
    assert_int_equal(k.opened, k.closed);
}

static void a_failing_generator_is_reported(void **state)
{
    (void)state;
    counter k = {.n = 10, .fail_at = 6};
    manta_loader *l = NULL;
    manta_batch b;
    manta_dataset *d = generate(&k, MANTA_UNKNOWN_COUNT);

    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 4}, &l), MANTA_OK);
    manta_dataset_unref(d);
    assert_true(manta_loader_next(l, &b));
    assert_false(manta_loader_next(l, &b));
    assert_int_equal(manta_loader_status(l), MANTA_EIO);
    assert_string_equal(manta_error_text(), "the well is dry");
    manta_loader_close(l);
    assert_int_equal(k.opened, k.closed);

    counter shorter = {.n = 10, .fail_at = -1};
    fails_at_read(generate(&shorter, 12), "ended after 10 of the 12");
    counter longer = {.n = 10, .fail_at = -1};
    int64_t got[20];
    assert_int_equal(run_epoch(generate(&longer, 7), 0, got, 20, NULL), 7);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuse(manta_dataset *d, const char *word)
{
    manta_loader *l = NULL;

    assert_fails_with(manta_dataset_status(d), MANTA_EINVAL, word);
    /* the first error stays, whatever follows */
    d = manta_dataset_batch(manta_dataset_scale(manta_dataset_take(d, -1), "nothing", 0), 0, false);
    d = manta_dataset_repeat(manta_dataset_shuffle(manta_dataset_cache(d), -1, 0), -5);
    d = manta_dataset_zip(manta_dataset_concatenate(d, numbers(2)), numbers(2));
    assert_fails_with(manta_loader_open(d, NULL, &l), MANTA_EINVAL, word);
    assert_null(l);
    manta_dataset_unref(d);
}

static void wrong_stages_are_refused_and_the_first_error_stays(void **state)
{
    (void)state;
    int64_t live = mem_live();
    counter k = {.n = 3, .fail_at = -1};
    float one = 1, zero = 0;
    int64_t shape[] = {3, 2}, other[] = {4};
    manta_column c[] = {{"a", manta_array_of(MANTA_DTYPE_U8, 2, shape, images)},
                        {"b", manta_array_of(MANTA_DTYPE_U8, 1, other, images)}};

    refuse(manta_dataset_arrays(2, c, MANTA_OWNERSHIP_BORROW), "column 'b' has 4 samples, column 'a' has 3");
    refuse(manta_dataset_arrays(0, c, MANTA_OWNERSHIP_BORROW), "0 columns");
    c[1] = c[0];
    refuse(manta_dataset_arrays(2, c, MANTA_OWNERSHIP_COPY), "two columns are called 'a'");
    c[0].array.strides[0] = 1;
    refuse(manta_dataset_arrays(1, c, MANTA_OWNERSHIP_BORROW), "row-major");
    refuse(manta_dataset_take(numbers(3), -1), "take");
    refuse(manta_dataset_skip(numbers(3), -1), "skip");
    refuse(manta_dataset_shard(numbers(3), 2, 2), "no shard 2 of 2");
    refuse(manta_dataset_repeat(numbers(3), -7), "repeat");
    refuse(manta_dataset_repeat(manta_dataset_repeat(numbers(3), INT64_MAX / 4), 9),
           "are more than can be counted");
    refuse(manta_dataset_batch(numbers(3), 0, false), "size of 0");
    refuse(manta_dataset_batch(manta_dataset_batch(numbers(3), 2, false), 2, false), "batch of batches");
    refuse(manta_dataset_batch(numbers(3), INT64_MAX / 2, false), "overflow");
    refuse(manta_dataset_shuffle(numbers(3), -1, 0), "buffer");
    refuse(manta_dataset_shuffle(generate(&k, MANTA_UNKNOWN_COUNT), 0, 0), "buffer size");
    refuse(manta_dataset_shuffle(manta_dataset_repeat(numbers(3), MANTA_FOREVER_COUNT), 0, 0), "forever");
    refuse(manta_dataset_cache(generate(&k, MANTA_UNKNOWN_COUNT)), "does not say");
    refuse(manta_dataset_cache(manta_dataset_batch(numbers(3), 2, false)), "before batch");
    refuse(manta_dataset_concatenate(generate(&k, MANTA_UNKNOWN_COUNT), numbers(2)), "never begin");
    refuse(manta_dataset_concatenate(numbers(2), pictures()), "1 columns, the second 2");
    refuse(manta_dataset_concatenate(numbers(2), manta_dataset_cast(numbers(2), "id", MANTA_DTYPE_U8)),
           "uint8");
    refuse(manta_dataset_concatenate(numbers(2), manta_dataset_batch(numbers(3), 2, false)), "batches");
    refuse(manta_dataset_zip(numbers(2), numbers(2)), "both sides have a column 'id'");
    refuse(manta_dataset_zip(numbers(2), manta_dataset_batch(numbers(3), 2, false)), "must agree");
    refuse(manta_dataset_prefetch(numbers(2), 0), "prefetch");
    refuse(manta_dataset_rename(numbers(2), "id", ""), "rename");
    refuse(manta_dataset_rename(pictures(), "id", "x"), "two columns are called 'x'");
    refuse(manta_dataset_select(numbers(2), 1, (const char *const[]){"none"}), "no column 'none'");
    refuse(manta_dataset_select(numbers(2), 0, NULL), "0 columns");
    refuse(manta_dataset_scale(pictures(), "x", 0), "divided by 0");
    refuse(manta_dataset_scale(pictures(), "y", 1), "the columns are: x, id");
    refuse(manta_dataset_normalize(pictures(), "x", 3, &one, &one), "3 means");
    refuse(manta_dataset_normalize(pictures(), "x", 1, &one, &zero), "deviation above 0");
    refuse(manta_dataset_random_crop(pictures(), "x", 0, 5, 4, 0), "does not fit");
    refuse(manta_dataset_random_crop(pictures(), "id", 0, 5, 4, 0), "expected an image");
    refuse(manta_dataset_random_flip(pictures(), "x", 1.5, 0), "probability");
    refuse(manta_dataset_random_flip(manta_dataset_batch(pictures(), 2, false), "x", .5, 0), "before batch");
    refuse(manta_dataset_labels(manta_dataset_scale(pictures(), "x", 1), "x", 10), "integers");
    refuse(manta_dataset_labels(pictures(), "id", 0), "0 classes");
    refuse(manta_dataset_map(numbers(2), NULL, NULL, 0, 0, NULL), "manta_dataset_map: fn is NULL");
    refuse(manta_dataset_generator(&(manta_generator){0}, NULL, 3, 1, drawn), "generator: next is NULL");
    refuse(generate(&k, -9), "count of -9");
    assert_int_equal(k.released, 4);
    assert_int_equal(mem_live(), live);
}

/* ---- the digest ---- */

/* Takes d. */
static uint64_t digest_of(manta_dataset *d)
{
    uint64_t out = 0;

    assert_ok(data_digest(d, 1, &out));
    manta_dataset_unref(d);
    return out;
}

static void a_digest_knows_the_data_from_a_part(void **state)
{
    uint64_t all = digest_of(pictures());

    (void)state;
    assert_int_equal(digest_of(pictures()), all);
    assert_int_not_equal(digest_of(numbers(N)), digest_of(numbers(N - 1)));
    assert_int_not_equal(digest_of(manta_dataset_scale(pictures(), "x", 255)), all);
    assert_int_not_equal(digest_of(manta_dataset_rename(pictures(), "x", "y")), all);
    assert_int_not_equal(digest_of(manta_dataset_batch(pictures(), 8, false)), all);
    assert_int_equal(digest_of(manta_dataset_batch(pictures(), 8, false)),
                     digest_of(manta_dataset_batch(pictures(), 8, false)));
    images[0][3][3] ^= 1; /* the first and the last are always looked at */
    assert_int_not_equal(digest_of(pictures()), all);
    images[0][3][3] ^= 1;
    images[N - 1][0][0] ^= 1;
    assert_int_not_equal(digest_of(pictures()), all);
    images[N - 1][0][0] ^= 1;
    assert_int_equal(digest_of(pictures()), all);
    assert_int_equal(digest_of(numbers(3)), digest_of(numbers(3))); /* fewer than are looked at */
    digest_of(manta_dataset_repeat(numbers(3), MANTA_FOREVER_COUNT));
    digest_of(manta_dataset_take(numbers(3), 0));
}

static manta_status count_fetches(manta_sample *s, void *user)
{
    (void)s;
    ++*(int *)user;
    return MANTA_OK;
}

static void a_digest_reads_few_samples(void **state)
{
    int fetched = 0;

    (void)state;
    digest_of(manta_dataset_map(numbers(N), count_fetches, &fetched, 0, 0, NULL));
    assert_int_equal(fetched, DATA_DIGEST_ELEMENTS);
}

int main(void)
{
    for (int i = 0; i < N; i++) {
        ids[i] = i;
        for (int k = 0; k < 16; k++) images[i][k / 4][k % 4] = (uint8_t)(1 + i * 5 + k * 3);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_digest_knows_the_data_from_a_part),
        cmocka_unit_test(a_digest_reads_few_samples),
        cmocka_unit_test(stages_give_the_expected_order),
        cmocka_unit_test(batches_cross_the_seam_of_repeat_or_do_not),
        cmocka_unit_test(shuffle_moves_within_its_buffer),
        cmocka_unit_test(columns_are_zipped_selected_and_renamed),
        cmocka_unit_test(map_draws_depend_on_seed_epoch_and_sample),
        cmocka_unit_test(cache_computes_each_sample_once),
        cmocka_unit_test(map_takes_whole_batches),
        cmocka_unit_test(scale_and_normalize_compute_their_formulas),
        cmocka_unit_test(crop_and_flip_move_pixels),
        cmocka_unit_test(cast_and_one_hot_convert_every_dtype),
        cmocka_unit_test(a_generator_feeds_batches),
        cmocka_unit_test(stages_follow_a_generator),
        cmocka_unit_test(a_failing_generator_is_reported),
        cmocka_unit_test(wrong_stages_are_refused_and_the_first_error_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
