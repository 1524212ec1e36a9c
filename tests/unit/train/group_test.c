/* Several workers: the same bytes as one process, whatever their number. */
#include <math.h>

#include "train/session/feed.h"
#include "train/group_fixture.h"

static void same_bytes_for_any_number_of_workers(void **state)
{
    (void)state;
    for (int hard = 0; hard < 2; hard++) {
        training t = {.shards = 4, .hard = hard, .validate = true};
        outcome golden = train(&t);
        assert_ok(golden.st);
        for (t.workers = 2; t.workers <= 4; t.workers++) {
            outcome o = train(&t);
            assert_same_outcome(&golden, &o);
            mem_try_free(o.state);
        }
        mem_try_free(golden.state);
    }
}

static void threads_of_a_worker_do_not_matter(void **state)
{
    training t = {.shards = 3, .hard = true};
    outcome golden = train(&t), o;

    (void)state;
    t.workers = 2;
    t.threads = 2;
    o = train(&t);
    assert_same_outcome(&golden, &o);
    mem_try_free(o.state);
    mem_try_free(golden.state);
}

static void assert_same_with(training t)
{
    outcome golden, o;
    manta_dataset *d = t.data;

    if (d) manta_dataset_ref(d);
    t.workers = 0;
    golden = train(&t);
    assert_ok(golden.st);
    t.workers = 3;
    o = train(&t);
    assert_same_outcome(&golden, &o);
    mem_try_free(golden.state);
    mem_try_free(o.state);
}

/* In bfloat16 as in float32: for any number of workers, threads and servers, and with statistics that meet. */
static void same_bytes_in_mixed_bfloat16(void **state)
{
    training t = {.shards = 4, .hard = true, .validate = true};
    outcome exact = train(&t), golden;

    (void)state;
    t.precision = "mixed_bfloat16";
    golden = train(&t);
    assert_ok(golden.st);
    assert_memory_not_equal(exact.state, golden.state, exact.size);
    assert_float_equal(manta_metrics_get(&golden.metrics, "loss"), manta_metrics_get(&exact.metrics, "loss"),
                       0.1);
    for (t.workers = 1; t.workers <= 4; t.workers *= 2) {
        outcome o;
        t.threads = 1 + t.workers % 2;
        o = train(&t);
        assert_same_outcome(&golden, &o);
        mem_try_free(o.state);
    }
    mem_try_free(golden.state);
    mem_try_free(exact.state);
    assert_same_with((training){
        .shards = 3, .statistics = MANTA_STATISTICS_SYNC, .hard = true, .precision = "mixed_bfloat16"});
}

/* ---- every kind of data ---- */

static manta_dataset *data_batched(void)
{
    return manta_dataset_batch(dataset(), 28, false);
}

/* Batches of several sizes, in a new order each epoch: how many samples a step
 * has is known only when it is read. */
static manta_dataset *data_ragged(void)
{
    return manta_dataset_shuffle(manta_dataset_batch(dataset(), 28, false), 3, 9);
}

static manta_status start_counting(void *user, int64_t epoch, void **it)
{
    (void)user;
    (void)epoch;
    *it = mem_new(sizeof(int));
    return MANTA_OK;
}

static manta_status give_image(void *it, manta_column *out, int n, bool *end)
{
    int *at = it;

    (void)n;
    *end = *at >= N;
    if (*end) return MANTA_OK;
    memcpy(out[0].array.data, images + *at * SIDE * SIDE, sizeof(float) * SIDE * SIDE);
    memcpy(out[1].array.data, labels + *at, sizeof *labels);
    ++*at;
    return MANTA_OK;
}

/* Samples that can only be had one after the other. */
static manta_dataset *data_generated(int64_t count)
{
    manta_generator g = {.open = start_counting, .next = give_image, .close = mem_free};
    manta_column_spec columns[2] = {{"x", MANTA_DTYPE_F32, 3, {SIDE, SIDE, 1}},
                                    {"y", MANTA_DTYPE_I64, 0, {0}}};

    return manta_dataset_generator(&g, NULL, count, 2, columns);
}

static void every_kind_of_data(void **state)
{
    (void)state;
    /* Five shards of a last batch of 2: some have nothing. */
    assert_same_with((training){.shards = 5, .global_batch = 44, .validate = true});
    /* Steps that run on across epochs. */
    assert_same_with((training){.shards = 3, .steps_per_epoch = 4, .epochs = 3, .hard = true});
    assert_same_with((training){.shards = 3, .data = data_batched(), .global_batch = -1});
    assert_same_with((training){.shards = 4, .data = data_ragged(), .global_batch = -1, .validate = true});
    assert_same_with((training){.shards = 3, .data = manta_dataset_cache(dataset())});
    assert_same_with((training){.shards = 3, .data = data_generated(N), .no_shuffle = true});
}

/* Data in memory is read as it is asked for; here it is as if that took long. */
static void same_bytes_when_they_read_ahead(void **state)
{
    int64_t before = feed_slow_ns;

    feed_slow_ns = 0;
    same_bytes_for_any_number_of_workers(state);
    every_kind_of_data(state);
    feed_slow_ns = before;
}

/* ---- more and fewer workers ---- */

typedef struct resizer {
    int64_t seen;
    int left, started;
} resizer;

/* 4 workers, then 2, 3, 2, 4, ... a step each. */
static bool resize(void *user, manta_session *s, const manta_event *e)
{
    static const int wish[] = {2, 3, 2, 4};
    resizer *r = user;

    r->left += e->kind == MANTA_EVENT_WORKER_LEFT;
    r->started += e->kind == MANTA_EVENT_WORKER;
    if (e->kind == MANTA_EVENT_STEP) assert_ok(manta_session_resize(s, wish[r->seen++ % 4]));
    return true;
}

static void same_bytes_however_they_come_and_go(void **state)
{
    (void)state;
    for (int hard = 0; hard < 2; hard++) {
        resizer r = {0};
        training t = {.shards = 4, .hard = hard, .validate = true, .epochs = 3};
        outcome golden = train(&t), o;
        t.workers = 4;
        t.min_workers = 2;
        t.event = resize;
        t.user = &r;
        o = train(&t);
        assert_same_outcome(&golden, &o);
        assert_int_equal(r.seen, 9);
        assert_true(r.started >= 4);
        mem_try_free(golden.state);
        mem_try_free(o.state);
    }
}

static void a_wish_out_of_range_is_refused(void **state)
{
    manta_model *m = residual_model((manta_regularizer){0});
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_compile c = {.n_losses = 1, .losses = &loss};
    manta_session *s;

    (void)state;
    assert_ok(manta_session_open(m, &c, &(manta_session_options){.workers = 4, .min_workers = 2}, &s));
    assert_int_equal(manta_session_resize(s, 1), MANTA_EINVAL);
    assert_int_equal(manta_session_resize(s, 5), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "5 workers, expected 2 to 4");
    assert_int_equal(manta_session_workers(s), 4);
    assert_ok(manta_session_resize(s, 2));
    assert_int_equal(manta_session_workers(s), 2);
    manta_session_close(s);
    assert_int_equal(manta_session_open(m, &c, &(manta_session_options){.workers = 2, .min_workers = 3}, &s),
                     MANTA_EINVAL);
    manta_model_free(m);
}

/* ---- statistics ---- */

/* The mean of what all shards propose, or what the first one does: other
 * bytes, but the same for one process and several. */
static void statistics_of_the_first_shard(void **state)
{
    training t = {.shards = 3};
    outcome mean = train(&t), first, again;

    (void)state;
    t.statistics = MANTA_STATISTICS_FIRST;
    first = train(&t);
    t.workers = 3;
    again = train(&t);
    assert_same_outcome(&first, &again);
    assert_memory_not_equal(mean.state, first.state, mean.size);
    t = (training){.shards = 1};
    mem_try_free(mean.state);
    mem_try_free(first.state);
    mean = train(&t);
    t.statistics = MANTA_STATISTICS_FIRST;
    first = train(&t);
    assert_same_outcome(&mean, &first); /* of one there is but one */
    mem_try_free(mean.state);
    mem_try_free(first.state);
    mem_try_free(again.state);
}

static double distance(const outcome *a, const outcome *b, const char *metric)
{
    return fabs(manta_metrics_get(&a->metrics, metric) - manta_metrics_get(&b->metrics, metric));
}

/* Synchronised: what the uncut batch gives but for rounding, which the shards'
 * own statistics are far from; the same bytes for one process and several,
 * whether a worker has one shard or two. */
static void statistics_of_all_shards(void **state)
{
    (void)state;
    for (int hard = 0; hard < 2; hard++) {
        training t = {.shards = 1, .hard = hard, .validate = true};
        outcome whole = train(&t), apart, golden;
        t.shards = 4;
        apart = train(&t);
        t.statistics = MANTA_STATISTICS_SYNC;
        golden = train(&t);
        assert_int_equal(golden.st, MANTA_OK);
        assert_true(distance(&whole, &golden, "loss") < 1e-6);
        assert_true(distance(&whole, &apart, "loss") > 1e-4);
        /* A bias before a batch norm has no gradient but rounding, which Adam makes steps of. */
        if (!hard) assert_true(distance(&whole, &golden, "val_loss") < 1e-6);
        for (t.workers = 2; t.workers <= 4; t.workers++) {
            outcome o;
            t.threads = t.workers == 2 ? 2 : 1;
            o = train(&t);
            assert_same_outcome(&golden, &o);
            mem_try_free(o.state);
        }
        mem_try_free(whole.state);
        mem_try_free(apart.state);
        mem_try_free(golden.state);
    }
}

/* Batches of 32 and 26 samples in 40 shards: some have none. */
static void shards_without_samples_do_not_meet(void **state)
{
    training t = {.shards = 40, .statistics = MANTA_STATISTICS_SYNC};
    outcome golden = train(&t), o;

    (void)state;
    assert_int_equal(golden.st, MANTA_OK);
    t.workers = 2;
    o = train(&t);
    assert_same_outcome(&golden, &o);
    mem_try_free(golden.state);
    mem_try_free(o.state);
}

/* ---- a session with workers in other hands ---- */

typedef struct opened {
    manta_model *m;
    manta_session *s;
    manta_dataset *d;
} opened;

static opened open_session(int workers)
{
    static const manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    static const manta_metric accuracy = {.name = "accuracy"};
    opened o = {.m = residual_model((manta_regularizer){.l2 = 0.01f}), .d = dataset()};

    assert_ok(manta_session_open(
        o.m, &(manta_compile){.n_losses = 1, .losses = &loss, .n_metrics = 1, .metrics = &accuracy},
        &(manta_session_options){.workers = workers, .shards = 3, .threads = 1, .seed = 3}, &o.s));
    return o;
}

static void close_session(opened *o)
{
    manta_session_close(o->s);
    manta_dataset_unref(o->d);
    manta_model_free(o->m);
}

/* fit, predict in this process, evaluate, a step by hand, fit again: every call
 * goes on from the state that the one before left. */
static manta_status count_rows(void *user, int64_t first, int64_t count, int n, const manta_array *outputs)
{
    (void)first;
    (void)n;
    (void)outputs;
    *(int64_t *)user += count;
    return MANTA_OK;
}

static void use(opened *o, manta_metrics *evaluated, float *weights)
{
    static const float class_weight[CLASSES] = {1, 2, 0.5f, 1};
    manta_fit_options f = {
        .global_batch = 30, .epochs = 2, .class_weight = class_weight, .n_classes = CLASSES};
    manta_feed feed = {.count = 7, .n_inputs = 1, .n_targets = 1};
    int64_t rows = 0;

    feed.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){7, SIDE, SIDE, 1}, images);
    feed.targets[0] = manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){7}, labels);
    assert_ok(manta_fit(o->s, o->d, &f, NULL));
    assert_ok(manta_predict(o->s, o->d, NULL, count_rows, &rows));
    assert_int_equal(rows, N);
    assert_ok(manta_evaluate(o->s, o->d, &(manta_fit_options){.global_batch = 40}, evaluated));
    assert_ok(manta_session_step(o->s, &feed));
    assert_ok(manta_fit(o->s, o->d, &f, NULL));
    assert_int_equal(manta_session_iterations(o->s), 13);
    manta_session_get_flat(o->s, weights);
}

static void all_calls_share_one_state(void **state)
{
    opened one = open_session(1), three = open_session(3);
    size_t size = (size_t)manta_session_params(one.s) * sizeof(float);
    float *a = mem_new(size), *b = mem_new(size);
    manta_metrics x, y;

    (void)state;
    use(&one, &x, a);
    use(&three, &y, b);
    assert_memory_equal(a, b, size);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.value, y.value, (size_t)x.n * sizeof *x.value);
    mem_free(a);
    mem_free(b);
    close_session(&one);
    close_session(&three);
}

static void what_cannot_be_is_refused(void **state)
{
    opened o = open_session(3);
    manta_dataset *d = data_generated(MANTA_UNKNOWN_COUNT);
    manta_dataset *none = manta_dataset_take(dataset(), 0);
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_session *s = NULL;

    (void)state;
    assert_int_equal(manta_fit(o.s, d, &(manta_fit_options){.no_shuffle = true}, NULL), MANTA_EUNSUPPORTED);
    assert_error_says("how many steps");
    assert_int_equal(manta_fit(o.s, none, NULL, NULL), MANTA_EINVAL);
    assert_error_says("the training data is empty");
    assert_int_equal(manta_evaluate(o.s, none, NULL, NULL), MANTA_EINVAL);
    assert_error_says("the evaluation data is empty");
    assert_int_equal(manta_session_open(o.m, &(manta_compile){.n_losses = 1, .losses = &loss},
                                        &(manta_session_options){.workers = 4, .shards = 3}, &s),
                     MANTA_EINVAL);
    assert_int_equal(manta_session_open(o.m, &(manta_compile){.n_losses = 1, .losses = &loss},
                                        &(manta_session_options){.workers = 257}, &s),
                     MANTA_EINVAL);
    assert_null(s);
    manta_dataset_unref(d);
    manta_dataset_unref(none);
    close_session(&o);
}

static void it_says_how_it_is_divided(void **state)
{
    opened o = open_session(3);

    (void)state;
    assert_ptr_equal(strstr(manta_session_about(o.s), "3 workers of 1 thread, "), manta_session_about(o.s));
    close_session(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_for_any_number_of_workers),
        cmocka_unit_test(same_bytes_however_they_come_and_go),
        cmocka_unit_test(a_wish_out_of_range_is_refused),
        cmocka_unit_test(statistics_of_the_first_shard),
        cmocka_unit_test(statistics_of_all_shards),
        cmocka_unit_test(shards_without_samples_do_not_meet),
        cmocka_unit_test(threads_of_a_worker_do_not_matter),
        cmocka_unit_test(same_bytes_in_mixed_bfloat16),
        cmocka_unit_test(every_kind_of_data),
        cmocka_unit_test(same_bytes_when_they_read_ahead),
        cmocka_unit_test(all_calls_share_one_state),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(it_says_how_it_is_divided),
    };

    make_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
