/* ops_test.c - every operation on every kernel family.
 *
 * A case is an operation, its attributes, the shapes of its inputs and a plain
 * loop in double that computes its output. That loop is written from the
 * definition and shares nothing with the operation. From it come the expected
 * output and, by central differences, the expected gradient of every input; the
 * operation is then run in all the ways the planner may ask for: on one thread
 * and two, adding to a gradient or writing it, each gradient alone, with a relu
 * fused, with a mask, into a sink. Memory that an operation did not declare to
 * read in backward is not there. Our own families must agree to the bit. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/op_cases.h"
#include "nn/op_fixture.h"

/* ---- one case, its inputs and what is expected of it ---- */

typedef struct expected {
    double *x[MAX_IN], *y, *dx[MAX_IN];
    float *mask, *dy; /* dy is what backward is given, before any masking */
} expected;

static uint64_t random_state;

static double number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(random_state >> 11) * 0x1p-52 - 1; /* [-1, 1) */
}

/* Inputs keep away from 0 and 0.25, 0.6, 0.7, where the activations bend, and are exact in float. */
static double input_number(const op_case *c, int i)
{
    static const double bends[] = {0, 0.25, 0.6f, 0.7f};

    if (c->indices & 1u << i) return floor((number() + 1) / 2 * c->limit);
    if (c->positive & 1u << i) return (double)(float)(number() * 0.4 + 1);
    for (;;) {
        double v = (double)(float)number();
        bool near = false;
        for (int k = 0; k < 4; k++) near |= fabs(v - bends[k]) < 0.01;
        if (!near) return v;
    }
}

static double loss(const op_case *c, const expected *e, const float *dy, double *y)
{
    double sum = 0;

    c->ref(c, e->x, y);
    for (int64_t i = 0; i < count(&c->out); i++) sum += y[i] * (double)dy[i];
    return sum;
}

/* Gradients of sum(dy * y) by central differences, dy masked by a relu if there is one. */
static void differentiate(const op_case *c, expected *e, bool with_relu)
{
    int64_t n = count(&c->out);
    double *y = room((size_t)n, sizeof *y), h = 1e-5;
    float *dy = room((size_t)n, sizeof *dy);

    for (int64_t i = 0; i < n; i++) dy[i] = with_relu && e->y[i] <= 0 ? 0 : e->dy[i];
    for (int k = 0; k < c->n_in; k++) {
        for (int64_t i = 0; i < count(&c->in[k]) && !(c->constants & 1u << k); i++) {
            double was = e->x[k][i], up;
            e->x[k][i] = was + h;
            up = loss(c, e, dy, y);
            e->x[k][i] = was - h;
            e->dx[k][i] = (up - loss(c, e, dy, y)) / (2 * h);
            e->x[k][i] = was;
        }
    }
    free(dy);
    free(y);
}

static expected expect(const op_case *c, bool with_relu)
{
    expected e = {0};
    int64_t n = count(&c->out);

    random_state = 42;
    for (int k = 0; k < c->n_in; k++) {
        e.x[k] = room((size_t)count(&c->in[k]), sizeof(double));
        e.dx[k] = room((size_t)count(&c->in[k]), sizeof(double));
        for (int64_t i = 0; i < count(&c->in[k]); i++) e.x[k][i] = input_number(c, k);
    }
    e.y = room((size_t)n, sizeof(double));
    e.dy = room((size_t)n, sizeof(float));
    e.mask = room((size_t)count(&c->in[0]), sizeof(float));
    c->ref(c, e.x, e.y);
    /* Where the sum is so small that its sign is a matter of rounding, a relu's gradient is too. */
    for (int64_t i = 0; i < n; i++) e.dy[i] = with_relu && fabs(e.y[i]) < 1e-4 ? 0 : (float)number();
    for (int64_t i = 0; i < count(&c->in[0]); i++) e.mask[i] = i % 5 == 0 ? 0 : (float)number();
    differentiate(c, &e, with_relu);
    return e;
}

static void expected_free(const op_case *c, expected *e)
{
    for (int k = 0; k < c->n_in; k++) {
        free(e->x[k]);
        free(e->dx[k]);
    }
    free(e->y);
    free(e->dy);
    free(e->mask);
}

/* ---- running the operation ---- */

typedef enum how {
    PLAIN,
    ACCUMULATE, /* every gradient is added to what is there */
    MIXED, /* every other one is */
    ALONE, /* one gradient at a time */
    RELU, /* fused; backward masks dout */
    RELU_DONE, /* fused; dout comes masked and out is gone */
    MASKED,
    SUNK,
    WAYS
} how;

static const char *const way_names[] = {"plain", "accumulate", "mixed", "alone",
                                        "relu",  "relu done",  "mask",  "sink"};

static bool can(const op_case *c, how way)
{
    unsigned f = c->op->flags;

    switch (way) {
    case RELU: return f & OP_CAN_RELU;
    case RELU_DONE: return f & OP_CAN_RELU && !(f & OP_RELU_SELF);
    case MASKED: return f & OP_CAN_MASK;
    case SUNK: return f & OP_CAN_SINK;
    default: return true;
    }
}

typedef struct run {
    const op_case *c;
    const expected *e;
    const kernels *k;
    pool *p;
    how way;
    char what[128];
    manta_array in[MAX_IN], out, dout, din[MAX_IN];
    bool accumulate[MAX_IN];
    float *proposed[2];
    void *saved, *work;
    manta_op_call call;
    manta_op_inner inner;
    float *sunk; /* the sink's array, and how often each element came */
    int *sunk_times;
} run;

static void take(void *ctx, int64_t first, int64_t n, const float *v)
{
    run *r = ctx;

    for (int64_t i = 0; i < n; i++) {
        r->sunk[first + i] = v[i];
        r->sunk_times[first + i]++;
    }
}

static manta_array array_of(const dims *s, manta_dtype t)
{
    manta_array a = manta_array_of(t, s->n, s->d, NULL);

    a.data = room((size_t)count(s), manta_dtype_size(t));
    return a;
}

/* Shape and plan as the graph and the planner ask for them. */
static void prepare(run *r, int threads)
{
    const op_case *c = r->c;
    manta_array in[MAX_IN];
    manta_op_shape s = {.attrs = c->attrs, .n_in = c->n_in, .in = in, .n_out = 1};
    manta_op_plan p = {.attrs = c->attrs,
                       .training = !c->inference,
                       .threads = threads,
                       .inner = &(manta_op_inner){.kernels = r->k},
                       .n_in = c->n_in,
                       .n_out = 1,
                       .in = r->in,
                       .out = &r->out};

    for (int i = 0; i < c->n_in; i++) {
        in[i] = r->in[i];
        in[i].data = NULL;
        if (!(c->variables & 1u << i)) in[i].shape[0] = -1;
    }
    s.out[0] = in[0];
    s.out[0].dtype = MANTA_DTYPE_F32;
    assert_int_equal(c->op->shape(&s), MANTA_OK);
    assert_int_equal(s.n_out, 1);
    assert_int_equal(s.out[0].dtype, MANTA_DTYPE_F32);
    assert_int_equal(s.out[0].ndim, c->out.n);
    for (int i = 0; i < c->out.n; i++) assert_int_equal(s.out[0].shape[i], i ? c->out.d[i] : -1);
    if (c->op->plan) assert_int_equal(c->op->plan(&p), MANTA_OK);
    r->saved = aligned_alloc(64, (p.saved + 64) & ~(size_t)63);
    r->work = aligned_alloc(64, (p.work + 64) & ~(size_t)63);
    assert_true(r->saved && r->work);
    memset(r->saved, 0xff, p.saved);
    memset(r->work, 0xff, p.work);
}

static void near(const run *r, const char *what, const float *got, const double *want, int64_t n)
{
    double scale = 0;

    for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - want[i]) <= 2e-5 * scale + 2e-6))
            fail_msg("%s: %s[%lld] is %.9g, expected %.9g", r->what, what, (long long)i, (double)got[i],
                     want[i]);
    }
}

static void check_forward(run *r)
{
    const op_case *c = r->c;
    int64_t n = count(&c->out);
    double *y = room((size_t)n, sizeof *y);
    bool with_relu = r->way == RELU || r->way == RELU_DONE;

    for (int64_t i = 0; i < n; i++) y[i] = with_relu && r->e->y[i] < 0 ? 0 : r->e->y[i];
    assert_int_equal(c->op->forward(&r->call), MANTA_OK);
    near(r, "out", r->out.data, y, n);
    for (int k = 0; k < c->n_in; k++) { /* forward reads and never writes */
        for (int64_t i = 0; i < count(&c->in[k]) && !(c->indices & 1u << k); i++)
            assert_true(((float *)r->in[k].data)[i] == (float)r->e->x[k][i]);
    }
    free(y);
}

/* What input k's gradient starts from when it is to be added to. */
static float before(int k, int64_t i)
{
    return (float)((i * 7 + k * 3) % 11) - 5;
}

static void check_gradient(run *r, int k, const float *got)
{
    int64_t n = count(&r->c->in[k]);
    double *want = room((size_t)n, sizeof *want);

    for (int64_t i = 0; i < n; i++) {
        want[i] = r->e->dx[k][i] + (r->accumulate[k] ? (double)before(k, i) : 0);
        if (r->way == MASKED && k == 0 && r->e->mask[i] <= 0) want[i] = 0;
    }
    char what[24];
    snprintf(what, sizeof what, "din[%d]", k);
    near(r, what, got, want, n);
    free(want);
}

/* Backward with the gradients of `wanted`, from arrays that are there only where declared. */
static void backward(run *r, unsigned wanted)
{
    const op_case *c = r->c;
    int64_t n = count(&c->out);
    manta_array in[MAX_IN], out = r->out, din[MAX_IN];
    manta_op_call call = r->call;
    bool with_relu = r->way == RELU || r->way == RELU_DONE;

    for (int k = 0; k < c->n_in; k++) {
        in[k] = r->in[k];
        din[k] = r->din[k];
        if (!(c->op->flags & (unsigned)MANTA_OP_READS_INPUT(k))) in[k].data = NULL;
        if (!(wanted & 1u << k) || (r->way == SUNK && k == 1)) din[k].data = NULL;
        for (int64_t i = 0; i < count(&c->in[k]) && din[k].data; i++)
            ((float *)din[k].data)[i] = r->accumulate[k] ? before(k, i) : NAN;
    }
    if (!(c->op->flags & MANTA_OP_READS_OUTPUT(0)) && r->way != RELU) out.data = NULL;
    for (int64_t i = 0; i < n; i++)
        ((float *)r->dout.data)[i] = with_relu && r->way == RELU_DONE && r->e->y[i] <= 0 ? 0 : r->e->dy[i];
    memset(r->work, 0xff, 1);
    call.in = in;
    call.out = &out;
    call.din = din;
    assert_int_equal(c->op->backward(&call), MANTA_OK);
}

static void check_backward(run *r)
{
    const op_case *c = r->c;
    unsigned all = ((1u << c->n_in) - 1) & ~c->constants;

    for (int k = 0; k < c->n_in && r->way == ALONE; k++) {
        if (!(all & 1u << k)) continue;
        backward(r, 1u << k);
        check_gradient(r, k, r->din[k].data);
    }
    if (r->way == ALONE) return;
    backward(r, all);
    for (int k = 0; k < c->n_in; k++) {
        if (all & 1u << k && !(r->way == SUNK && k == 1)) check_gradient(r, k, r->din[k].data);
    }
    if (r->way == SUNK) {
        for (int64_t i = 0; i < count(&c->in[1]); i++) assert_int_equal(r->sunk_times[i], 1);
        check_gradient(r, 1, r->sunk);
    }
}

static void check_proposed(const run *r)
{
    const op_bn_attrs *a = r->c->attrs;
    int64_t ch = last(&r->c->out), rows = count(&r->c->out) / ch;
    int at = 1 + a->has_gamma + a->has_beta;

    for (int64_t k = 0; k < ch; k++) {
        double mean = 0, var = 0, m = (double)a->momentum;
        for (int64_t i = 0; i < rows; i++) mean += r->e->x[0][i * ch + k] / (double)rows;
        for (int64_t i = 0; i < rows; i++)
            var += pow(r->e->x[0][i * ch + k] - mean, 2) / (double)(a->unbiased ? rows - 1 : rows);
        assert_true(fabs((double)r->proposed[0][k] - (m * r->e->x[at][k] + (1 - m) * mean)) < 1e-6);
        assert_true(fabs((double)r->proposed[1][k] - (m * r->e->x[at + 1][k] + (1 - m) * var)) < 1e-6);
    }
}

static void run_free(run *r)
{
    for (int i = 0; i < r->c->n_in; i++) {
        free(r->in[i].data);
        free(r->din[i].data);
    }
    free(r->out.data);
    free(r->dout.data);
    free(r->proposed[0]);
    free(r->proposed[1]);
    free(r->saved);
    free(r->work);
    free(r->sunk);
    free(r->sunk_times);
}

/* Runs the case one way; leaves out and the gradients in *r. */
static void run_one(run *r, int threads)
{
    const op_case *c = r->c;

    snprintf(r->what, sizeof r->what, "%s, %s, %s, %d threads", c->name, way_names[r->way], r->k->name,
             threads);
    for (int k = 0; k < c->n_in; k++) {
        bool index = c->indices & 1u << k;
        r->in[k] = array_of(&c->in[k], index ? MANTA_DTYPE_I32 : MANTA_DTYPE_F32);
        r->din[k] = array_of(&c->in[k], MANTA_DTYPE_F32);
        r->accumulate[k] = r->way == ACCUMULATE || (r->way == MIXED && k % 2);
        for (int64_t i = 0; i < count(&c->in[k]); i++) {
            if (index)
                ((int32_t *)r->in[k].data)[i] = (int32_t)r->e->x[k][i];
            else
                ((float *)r->in[k].data)[i] = (float)r->e->x[k][i];
        }
    }
    r->out = array_of(&c->out, MANTA_DTYPE_F32);
    r->dout = array_of(&c->out, MANTA_DTYPE_F32);
    for (int64_t i = 0; i < count(&c->out); i++) ((float *)r->out.data)[i] = NAN;
    r->proposed[0] = room((size_t)last(&c->out), sizeof(float));
    r->proposed[1] = room((size_t)last(&c->out), sizeof(float));
    if (r->way == SUNK) {
        r->sunk = room((size_t)count(&c->in[1]), sizeof(float));
        r->sunk_times = room((size_t)count(&c->in[1]), sizeof(int));
    }
    prepare(r, threads);
    r->inner = (manta_op_inner){.relu = r->way == RELU || r->way == RELU_DONE,
                                .relu_done = r->way == RELU_DONE,
                                .mask = r->way == MASKED ? r->e->mask : NULL,
                                .sink = r->way == SUNK ? take : NULL,
                                .sink_ctx = r,
                                .kernels = r->k,
                                .pool = r->p};
    r->call = (manta_op_call){.attrs = c->attrs,
                              .training = !c->inference,
                              .n_in = c->n_in,
                              .n_out = 1,
                              .in = r->in,
                              .out = &r->out,
                              .dout = &r->dout,
                              .din = r->din,
                              .accumulate = r->accumulate,
                              .proposed = r->proposed,
                              .saved = r->saved,
                              .work = r->work,
                              .inner = &r->inner};
    check_forward(r);
    if (c->op == &op_batch_norm && !c->inference) check_proposed(r);
    check_backward(r);
}

static void same_bits(const run *a, const run *b)
{
    size_t n = manta_array_bytes(&a->out);

    if (memcmp(a->out.data, b->out.data, n)) fail_msg("%s: other bits than %s", b->what, a->what);
    for (int k = 0; k < a->c->n_in; k++) {
        if (a->c->constants & 1u << k || (a->way == SUNK && k == 1)) continue;
        n = manta_array_bytes(&a->din[k]);
        if (memcmp(a->din[k].data, b->din[k].data, n))
            fail_msg("%s: din[%d] has other bits than %s", b->what, k, a->what);
    }
}

static void run_case(const op_case *c, how way, pool *const *pools)
{
    bool with_relu = way == RELU || way == RELU_DONE;
    expected e = expect(c, with_relu);
    run first = {.c = c, .e = &e, .way = way, .k = kernels_of(KERN_REFERENCE), .p = pools[0]};

    run_one(&first, 1);
    for (int f = 0; f < KERN_FAMILIES; f++) {
        for (int t = 0; t < 2 && kernels_of((kern_family)f); t++) {
            run r = {.c = c, .e = &e, .way = way, .k = kernels_of((kern_family)f), .p = pools[t]};
            run_one(&r, t + 1);
            if (f != KERN_ONEDNN) same_bits(&first, &r);
            run_free(&r);
        }
    }
    run_free(&first);
    expected_free(c, &e);
}

static void every_operation(void **state)
{
    pool *const *pools = *state;

    for (int i = 0; i < N_CASES; i++) {
        for (int way = 0; way < WAYS; way++) {
            if (can(&cases[i], (how)way)) run_case(&cases[i], (how)way, pools);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation),
    };

    return cmocka_run_group_tests(tests, start_pools, stop_pools);
}
