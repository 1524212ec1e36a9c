/* lockstep_test.c - shards of two sessions that share no memory, and what one
 * leaves carried to the other by hand: the gradients of one session that has both. */
#include "train/group_fixture.h"
#include "train/session/lockstep.h"

enum { BATCH = 11, SHARDS = 2, FLAG = 7 };

static manta_session *open_session(const manta_model *m)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_session *s;

    assert_ok(manta_session_open(
        m, &(manta_compile){.n_losses = 1, .losses = &cross_entropy},
        &(manta_session_options){
            .seed = 3, .threads = 1, .shards = SHARDS, .statistics = MANTA_STATISTICS_SYNC},
        &s));
    assert_true(s->meets);
    return s;
}

static manta_feed batch(void)
{
    manta_feed f = {.count = BATCH, .n_inputs = 1, .n_targets = 1};

    f.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){BATCH, SIDE, SIDE, 1}, images);
    f.targets[0] = manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){BATCH}, labels);
    return f;
}

static void begin(manta_session *s, int shard)
{
    manta_feed all = batch(), part = session_feed_rows(&all, session_shard_begin(s, BATCH, shard),
                                                       session_shard_begin(s, BATCH, shard + 1));

    assert_ok(lockstep_begin(s->lockstep, shard, FLAG, BATCH, &part, s->slots[shard], true));
}

/* What shard `from` of one has left since, to the other. */
static int carry(manta_session *one, int from, manta_session *other)
{
    lockstep_numbers left;
    int count = 0;

    for (; lockstep_take_left(one->lockstep, from, &left); count++) {
        int64_t n;
        double *to = lockstep_find(other->lockstep, left.place, from, FLAG, &n);
        assert_non_null(to);
        assert_int_equal(n, left.n);
        memcpy(to, left.values, (size_t)n * sizeof *to);
        lockstep_arrived(other->lockstep, left.place, from, FLAG);
        assert_null(lockstep_find(other->lockstep, left.place, from, FLAG, &n)); /* not twice */
    }
    return count;
}

static int go(manta_session *s[SHARDS], bool backward)
{
    bool waits[SHARDS] = {true, true};
    int carried = 0;

    while (waits[0] || waits[1]) {
        int before = carried;
        for (int v = 0; v < SHARDS; v++) {
            assert_ok(backward ? lockstep_backward(s[v]->lockstep, v, &waits[v])
                               : lockstep_forward(s[v]->lockstep, v, &waits[v]));
            carried += carry(s[v], v, s[1 - v]);
        }
        assert_true(carried > before || !(waits[0] && waits[1])); /* one of them goes on */
    }
    return carried;
}

/* Without the padding between variables, which nobody writes. */
static void assert_same_slot(const manta_session *a, const manta_session *b, int shard)
{
    size_t bytes = (size_t)manta_session_params(a) * sizeof(float);
    float *x = mem_try(bytes), *y = mem_try(bytes);

    session_pack(&a->l, layout_slot_grads(&a->l, a->slots[shard]), x);
    session_pack(&b->l, layout_slot_grads(&b->l, b->slots[shard]), y);
    assert_memory_equal(x, y, bytes);
    assert_memory_equal(layout_slot_sums(&a->l, a->slots[shard]), layout_slot_sums(&b->l, b->slots[shard]),
                        (size_t)a->l.n_sums * sizeof(double));
    mem_try_free(x);
    mem_try_free(y);
}

static void apart_as_together(void **state)
{
    manta_model *m = residual_model((manta_regularizer){0});
    manta_session *both = open_session(m), *s[SHARDS] = {open_session(m), open_session(m)};
    manta_feed f = batch();

    (void)state;
    assert_ok(manta_session_step(both, &f));
    for (int v = 0; v < SHARDS; v++) begin(s[v], v);
    assert_int_equal(go(s, false), 2 * SHARDS); /* two batch norms */
    assert_int_equal(go(s, true), 2 * SHARDS);
    for (int v = 0; v < SHARDS; v++) assert_same_slot(s[v], both, v);
    for (int v = 0; v < SHARDS; v++) manta_session_close(s[v]);
    manta_session_close(both);
    manta_model_free(m);
}

static void places_that_are_none(void **state)
{
    manta_model *m = residual_model((manta_regularizer){0});
    manta_session *s = open_session(m);
    int64_t n;

    (void)state;
    assert_non_null(lockstep_find(s->lockstep, 3, 1, FLAG, &n));
    assert_int_equal(n, 1 + 2 * 8); /* a count and two sums of eight channels */
    assert_null(lockstep_find(s->lockstep, 4, 1, FLAG, &n));
    assert_null(lockstep_find(s->lockstep, UINT32_MAX, 0, FLAG, &n));
    assert_null(lockstep_find(s->lockstep, 0, SHARDS, FLAG, &n));
    assert_null(lockstep_find(s->lockstep, 0, -1, FLAG, &n));
    manta_session_close(s);
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(apart_as_together),
        cmocka_unit_test(places_that_are_none),
    };

    make_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
