/* lower_rows_test.c - every operation on the fake device, against itself on the processor.
 *
 * A case of op_cases.h, or one of the larger ones here, is laid into one block of memory: inputs, output,
 * gradients, what is saved. The operation runs forward and backward in it with the reference kernels; its row
 * is lowered, and runs on a copy of the block on the fake device. Both blocks must be equal byte for byte, all
 * NaNs being one, in all the ways the planner may ask for. Memory that an operation did not declare to read
 * in backward has no address then. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nn/lower.h"
#include "nn/op_cases.h"
#include "nn/op_fixture.h"
#include "ok.h"

/* ---- larger cases: several chunks of rows, groups of lanes and a rest, edges ---- */

static float many_means[100], many_variances[100];
static const op_normalize_attrs normal_many = {100, many_means, many_variances, false};
static const op_permute_attrs permute5 = {5, {0, 4, 2, 1, 3}};
static const op_concat_attrs concat_middle = {2};
static const op_upsample_attrs bilinear_wide = {4, 5, true}, bilinear_one = {1, 3, true},
                               nearest_one = {1, 4, false};
static const op_ln_attrs ln_gamma = {1e-5f, 1, true, false};

/* clang-format off */
static const op_case larger[] = {
    {"layer norm of 700 rows", &op_layer_norm, &ln, 3, {S3(70, 10, 37), S1(37), S1(37)}, S3(70, 10, 37),
     .variables = 6},
    {"layer norm of long rows", &op_layer_norm, &ln_gamma, 2, {S2(5, 333), S1(333)}, S2(5, 333), .variables = 2},
    {"layer norm bare of 64", &op_layer_norm, &ln_bare, 1, {S2(9, 64)}, S2(9, 64), .ref = NULL},
    {"embedding often the same", &op_embedding, NULL, 2, {S2(40, 9), S2(7, 33)}, S3(40, 9, 33), .variables = 2,
     .constants = 1, .indices = 1, .limit = 7},
    {"permute of 5 dimensions", &op_permute, &permute5, 1, {{5, {2, 3, 4, 2, 5}}}, {5, {2, 5, 4, 3, 2}}, .ref = NULL},
    {"concatenate in the middle", &op_concatenate, &concat_middle, 2, {S4(2, 3, 5, 4), S4(2, 3, 1, 4)},
     S4(2, 3, 6, 4), .ref = NULL},
    {"bilinear, wide", &op_upsample, &bilinear_wide, 1, {S4(2, 5, 7, 2)}, S4(2, 20, 35, 2), .ref = NULL},
    {"bilinear of one pixel", &op_upsample, &bilinear_wide, 1, {S4(2, 1, 1, 3)}, S4(2, 4, 5, 3), .ref = NULL},
    {"bilinear along one axis", &op_upsample, &bilinear_one, 1, {S4(2, 3, 4, 3)}, S4(2, 3, 12, 3), .ref = NULL},
    {"nearest along one axis", &op_upsample, &nearest_one, 1, {S4(2, 3, 4, 3)}, S4(2, 3, 16, 3), .ref = NULL},
    {"add a weight to 700 rows", &op_add, NULL, 2, {S3(70, 10, 6), S3(1, 1, 6)}, S3(70, 10, 6), .variables = 2},
    {"add a weight of rows", &op_add, NULL, 2, {S3(300, 4, 6), S3(1, 4, 6)}, S3(300, 4, 6), .variables = 2},
    {"subtract from a weight", &op_subtract, NULL, 2, {S3(1, 1, 6), S3(70, 10, 6)}, S3(70, 10, 6), .variables = 1},
    {"subtract across", &op_subtract, NULL, 2, {S4(2, 3, 1, 5), S4(2, 1, 4, 1)}, S4(2, 3, 4, 5), .ref = NULL},
    {"multiply across", &op_multiply, NULL, 2, {S4(2, 1, 4, 5), S4(2, 3, 1, 1)}, S4(2, 3, 4, 5), .ref = NULL},
    {"multiply by channels", &op_multiply, NULL, 2, {S4(3, 8, 9, 5), S2(3, 5)}, S4(3, 8, 9, 5), .ref = NULL},
    {"scale of 700 rows", &op_scale, NULL, 2, {S3(70, 10, 5), S1(5)}, S3(70, 10, 5), .variables = 2},
    {"normalize many channels", &op_normalize, &normal_many, 1, {S2(7, 100)}, S2(7, 100), .ref = NULL},
    {"global maximum of a large map", &op_global_max_pool, &keep, 1, {S4(2, 9, 11, 20)}, S4(2, 1, 1, 20), .ref = NULL},
    {"dense of 700 rows", &op_dense, NULL, 3, {S3(70, 10, 7), S2(7, 9), S1(9)}, S3(70, 10, 9), .variables = 6},
    {"batch norm of 700 rows", &op_batch_norm, &bn, 5, {S3(70, 10, 9), S1(9), S1(9), S1(9), S1(9)}, S3(70, 10, 9),
     .variables = 30, .constants = 24, .positive = 16},
};
/* clang-format on */

/* ---- ways ---- */

enum {
    ADD_EVEN = 1, /* gradients of even and odd inputs are added to */
    ADD_ODD = 2,
    RELU = 4, /* fused */
    RELU_DONE = 8, /* and dout comes masked */
    MASK = 16,
    ODD_NUMBERS =
        32, /* NaN, infinities, zeros of both signs, denormals and where relus bend, among the inputs */
    WAYS = 64
};

static bool can(const op_case *c, unsigned way)
{
    unsigned f = c->op->flags;

    if (way & RELU && !(f & OP_CAN_RELU)) return false;
    if (way & RELU_DONE && (!(way & RELU) || f & OP_RELU_SELF)) return false;
    return !(way & MASK) || f & OP_CAN_MASK;
}

/* ---- one block ---- */

static uint64_t random_state;

static float number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(int64_t)(random_state >> 11) * 0x1p-52 - 1); /* [-1, 1) */
}

static float odd_number(int64_t i)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, -1e-40f, 3e38f, 0.25f, 0.6f, 0.7f};

    return i % 3 ? number() : odd[(uint64_t)(i / 3) % (sizeof odd / sizeof *odd)];
}

/* Where things lie in the block, in bytes. */
typedef struct bench {
    const op_case *c;
    unsigned way;
    char what[160];
    manta_array in[MAX_IN], out;
    plan_node n;
    size_t size;
    char *start, *host, *got; /* the block before, after the processor's run and after the device's */
    pool *p;
} bench;

static place take(bench *b, size_t size)
{
    place at = {.kind = PLACE_BLOCK, .offset = b->size};

    b->size += (size + 63) / 64 * 64;
    return at;
}

static manta_array array_of(const dims *s, manta_dtype t)
{
    return manta_array_of(t, s->n, s->d, NULL);
}

static manta_op_plan planned(bench *b, manta_op_inner *inner)
{
    manta_op_plan p = {.attrs = b->c->attrs,
                       .training = !b->c->inference,
                       .threads = 1,
                       .inner = inner,
                       .n_in = b->c->n_in,
                       .n_out = 1,
                       .in = b->in,
                       .out = &b->out};

    if (b->c->op->plan) assert_ok(b->c->op->plan(&p));
    return p;
}

static void lay(bench *b)
{
    const op_case *c = b->c;
    manta_op_inner inner = {.kernels = kernels_of(KERN_REFERENCE)};
    manta_op_plan p;

    b->n = (plan_node){.training = !c->inference, .relu = b->way & RELU, .relu_done = b->way & RELU_DONE};
    for (int k = 0; k < c->n_in; k++) {
        b->n.in[k] = b->in[k] = array_of(&c->in[k], c->indices & 1u << k ? MANTA_DTYPE_I32 : MANTA_DTYPE_F32);
        b->n.in_at[k] = take(b, manta_array_bytes(&b->in[k]));
        if (!(c->constants & 1u << k)) b->n.din_at[k] = take(b, manta_array_bytes(&b->in[k]));
        b->n.accumulate[k] = b->way & (k % 2 ? ADD_ODD : ADD_EVEN);
    }
    b->n.out[0] = b->out = array_of(&c->out, MANTA_DTYPE_F32);
    b->n.out_at[0] = take(b, manta_array_bytes(&b->out));
    b->n.dout_at[0] = take(b, manta_array_bytes(&b->out));
    if (b->way & MASK) b->n.mask_at = take(b, manta_array_bytes(&b->in[0]));
    p = planned(b, &inner);
    if (p.saved) b->n.saved_at = take(b, p.saved);
    if (c->op->flags & MANTA_OP_PROPOSES && b->n.training) {
        for (int k = 0; k < 2; k++) b->n.proposed_at[k] = take(b, (size_t)last(&c->out) * sizeof(float));
    }
    b->n.work_at.offset = p.work;
}

static void fill(const bench *b, place at, int64_t n, bool positive)
{
    float *v = (float *)(void *)(b->start + at.offset);

    for (int64_t i = 0; i < n; i++) {
        v[i] = positive ? number() * 0.4f + 1.0f : b->way & ODD_NUMBERS ? odd_number(i) : number();
        if (!positive && i % 7 == 3) v[i] = 0.9375f; /* what is equally large */
    }
}

static void start(bench *b)
{
    const op_case *c = b->c;

    b->start = room(b->size, 1);
    b->host = room(b->size, 1);
    b->got = room(b->size, 1);
    memset(b->start, 0xff, b->size);
    random_state = 42;
    for (int k = 0; k < c->n_in; k++) {
        int64_t n = count(&c->in[k]);
        int32_t *index = (int32_t *)(void *)(b->start + b->n.in_at[k].offset);
        if (!(c->indices & 1u << k)) fill(b, b->n.in_at[k], n, c->positive & 1u << k);
        for (int64_t i = 0; i < n && c->indices & 1u << k; i++)
            index[i] = (int32_t)((number() + 1.0f) / 2.0f * (float)c->limit) % c->limit;
        if (b->n.accumulate[k] && b->n.din_at[k].kind) fill(b, b->n.din_at[k], n, false);
    }
    fill(b, b->n.dout_at[0], count(&c->out), false);
    if (b->way & MASK) fill(b, b->n.mask_at, count(&c->in[0]), false);
    memcpy(b->host, b->start, b->size);
}

/* The node that backward sees: without what it did not declare to read, and with the gradients of `wanted`. */
static plan_node backward_node(const bench *b, unsigned wanted)
{
    plan_node n = b->n;

    for (int k = 0; k < b->c->n_in; k++) {
        if (!(b->c->op->flags & (unsigned)MANTA_OP_READS_INPUT(k))) n.in_at[k] = (place){0};
        if (!(wanted & 1u << k)) n.din_at[k] = (place){0};
    }
    if (!(b->c->op->flags & MANTA_OP_READS_OUTPUT(0)) && !n.relu) n.out_at[0] = (place){0};
    return n;
}

/* ---- the processor ---- */

static void *host_at(const bench *b, place at)
{
    return at.kind ? b->host + at.offset : NULL;
}

static void run_host(bench *b, const plan_node *n, bool backward)
{
    manta_array in[MAX_IN], din[MAX_IN], out = b->out, dout = b->out;
    float *proposed[MANTA_OP_MAX_IN] = {host_at(b, n->proposed_at[0]), host_at(b, n->proposed_at[1])};
    void *work = aligned_alloc(64, (n->work_at.offset + 64) / 64 * 64);
    manta_op_inner inner = {.relu = n->relu,
                            .relu_done = n->relu_done,
                            .mask = host_at(b, n->mask_at),
                            .kernels = kernels_of(KERN_REFERENCE),
                            .pool = b->p};
    manta_op_call c = {.attrs = b->c->attrs,
                       .training = n->training,
                       .n_in = b->c->n_in,
                       .n_out = 1,
                       .in = in,
                       .out = &out,
                       .din = din,
                       .dout = &dout,
                       .accumulate = n->accumulate,
                       .proposed = proposed,
                       .saved = host_at(b, n->saved_at),
                       .work = work,
                       .inner = &inner};

    assert_non_null(work);
    for (int k = 0; k < b->c->n_in; k++) {
        in[k] = din[k] = b->in[k];
        in[k].data = host_at(b, n->in_at[k]);
        din[k].data = host_at(b, n->din_at[k]);
    }
    out.data = host_at(b, n->out_at[0]);
    dout.data = host_at(b, n->dout_at[0]);
    assert_ok((backward ? b->c->op->backward : b->c->op->forward)(&c));
    free(work);
}

/* ---- the device ---- */

static void lower_both(lowering *w, const plan_node *forward, const plan_node *backward)
{
    const lower_row *row = lower_find(w->m->nodes[0].op);

    w->scratch_used = 0;
    assert_ok(row->forward(w, forward));
    w->scratch_used = 0;
    assert_ok(row->backward(w, backward));
}

static void run_device(bench *b, device *d, const plan_node *backward)
{
    graph_node g = {
        .op = b->c->op, .attrs = (void *)(uintptr_t)b->c->attrs, .n_in = b->c->n_in, .n_out = 1, .layer = -1};
    manta_model m = {.nodes = &g, .n_nodes = 1};
    dev_addr block, scratch;
    lowering w = {.m = &m, .block = DEVICE_ALIGN, .scratch = DEVICE_ALIGN};
    size_t most;

    lower_both(&w, &b->n, backward);
    most = w.scratch_most;
    assert_ok(device_alloc(d, b->size, "a block", &block));
    assert_ok(device_alloc(d, most + 1, "scratch", &scratch));
    assert_ok(device_put(d, block, b->start, b->size));
    w = (lowering){.m = &m, .program = program_new(d), .block = block, .scratch = scratch};
    lower_both(&w, &b->n, backward);
    assert_int_equal(w.scratch_most, most);
    assert_ok(program_play(w.program));
    assert_ok(device_get(d, b->got, block, b->size));
    program_free(w.program);
    device_release(d, block, b->size);
    device_release(d, scratch, most + 1);
}

static void compare(const bench *b)
{
    for (size_t i = 0; i < b->size; i += sizeof(float)) {
        float want, got;
        memcpy(&want, b->host + i, sizeof want);
        memcpy(&got, b->got + i, sizeof got);
        if (memcmp(&want, &got, sizeof got) != 0 && !(isnan(want) && isnan(got)))
            fail_msg(
                "%s: byte %zu of the block is %a on the device, expected %a (in %zu %zu, out %zu, dout %zu, "
                "din %zu %zu, saved %zu)",
                b->what, i, (double)got, (double)want, b->n.in_at[0].offset, b->n.in_at[1].offset,
                b->n.out_at[0].offset, b->n.dout_at[0].offset, b->n.din_at[0].offset, b->n.din_at[1].offset,
                b->n.saved_at.offset);
    }
}

static void run_case(const op_case *c, unsigned way, unsigned wanted, device *d, pool *p)
{
    bench b = {.c = c, .way = way, .p = p};
    plan_node backward;

    snprintf(b.what, sizeof b.what, "%s, way %u, gradients %u", c->name, way, wanted);
    lay(&b);
    start(&b);
    backward = backward_node(&b, wanted);
    run_host(&b, &b.n, false);
    run_host(&b, &backward, true);
    run_device(&b, d, &backward);
    compare(&b);
    free(b.start);
    free(b.host);
    free(b.got);
}

static void run_cases(const op_case *all, int n, pool *p)
{
    device *d;

    assert_ok(device_fake_open(64 << 20, &d));
    for (int i = 0; i < n; i++) {
        unsigned gradients = ((1u << all[i].n_in) - 1) & ~all[i].constants;
        assert_non_null(lower_find(all[i].op));
        for (unsigned way = 0; way < WAYS; way++) {
            if (can(&all[i], way)) run_case(&all[i], way, gradients, d, p);
        }
        for (unsigned k = 0; k < MAX_IN; k++) {
            if (gradients & 1u << k) run_case(&all[i], 0, 1u << k, d, p);
        }
    }
    device_close(d);
}

static void every_operation_is_the_same(void **state)
{
    run_cases(cases, N_CASES, *(pool **)*state);
}

static void larger_ones_are_the_same(void **state)
{
    for (int i = 0; i < 100; i++) {
        many_means[i] = 0.01f * (float)(i - 40);
        many_variances[i] = i % 9 ? 0.07f * (float)i : 0; /* 0: the deviation has a floor */
    }
    run_cases(larger, (int)(sizeof larger / sizeof *larger), *(pool **)*state);
}

/* ---- indices ---- */

static manta_model *embedding_model(void)
{
    manta_model *m = manta_model_new("words");
    manta_value x = manta_input(m, "word", MANTA_DTYPE_I32, 1, (int64_t[]){3});

    x = manta_call(
        m, manta_embedding(m, (manta_embedding_options){.input_dim = 5, .output_dim = 2, .name = "table"}),
        x);
    manta_output(m, x);
    assert_ok(manta_model_build(m));
    return m;
}

static void indices_are_checked_by_the_host(void **state)
{
    manta_model *m = embedding_model();
    int32_t words[6] = {0, 4, 2, 1, 3, 5};
    manta_array x = manta_array_of(MANTA_DTYPE_I32, 2, (int64_t[]){2, 3}, words);
    (void)state;

    assert_int_equal(lower_check_input(m, 0, &x, 10), MANTA_EINVAL);
    assert_string_equal(manta_error_text(),
                        "layer 'table': expected indices from 0 to 4, given 5 at place 2 of sample 11");
    words[5] = 4;
    assert_ok(lower_check_input(m, 0, &x, 10));
    manta_model_free(m);
}

/* What the host did not check touches nobody's memory. */
static void an_index_out_of_range_is_harmless(void **state)
{
    int32_t index[3] = {1, 7, -1};
    float table[4] = {1, 2, 3, 4}, got[6];
    table_args a = {.n = 3, .c = 2, .rows = 2, .dtype = MANTA_DTYPE_I32};
    dev_program *p;
    device *d;
    (void)state;

    assert_ok(device_fake_open(1 << 20, &d));
    assert_ok(device_alloc(d, sizeof index, "indices", &a.index));
    assert_ok(device_alloc(d, sizeof table, "a table", &a.table));
    assert_ok(device_alloc(d, sizeof got, "rows", &a.y));
    assert_ok(device_alloc(d, sizeof(int64_t[6]), "links", &a.links));
    assert_ok(device_put(d, a.index, index, sizeof index));
    assert_ok(device_put(d, a.table, table, sizeof table));
    a.dy = a.y;
    a.dtable = a.table;
    p = program_new(d);
    program_add(p, DEV_gather, 6, &a, sizeof a);
    program_add(p, DEV_scatter_links, 3, &a, sizeof a);
    program_add(p, DEV_scatter_add, 6, &a, sizeof a);
    assert_ok(program_play(p));
    assert_ok(device_get(d, got, a.y, sizeof got));
    assert_ok(device_get(d, table, a.table, sizeof table));
    assert_true(got[0] == 3 && got[1] == 4);
    for (int i = 2; i < 6; i++) assert_true(isnan(got[i]));
    assert_true(table[0] == 1 && table[1] == 2 && table[2] == 6 && table[3] == 8);
    program_free(p);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_the_same),
        cmocka_unit_test(larger_ones_are_the_same),
        cmocka_unit_test(indices_are_checked_by_the_host),
        cmocka_unit_test(an_index_out_of_range_is_harmless),
    };

    return cmocka_run_group_tests(tests, start_pools, stop_pools);
}
