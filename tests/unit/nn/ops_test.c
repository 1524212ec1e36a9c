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

#include "nn/op_definitions.h"

/* ---- the cases ---- */

#define S1(a)                                                                                                \
    {                                                                                                        \
        1,                                                                                                   \
        {                                                                                                    \
            a                                                                                                \
        }                                                                                                    \
    }
#define S2(a, b)                                                                                             \
    {                                                                                                        \
        2,                                                                                                   \
        {                                                                                                    \
            a, b                                                                                             \
        }                                                                                                    \
    }
#define S3(a, b, c)                                                                                          \
    {                                                                                                        \
        3,                                                                                                   \
        {                                                                                                    \
            a, b, c                                                                                          \
        }                                                                                                    \
    }
#define S4(a, b, c, d)                                                                                       \
    {                                                                                                        \
        4,                                                                                                   \
        {                                                                                                    \
            a, b, c, d                                                                                       \
        }                                                                                                    \
    }

static const op_conv_attrs conv_valid = {1, 1, 1, 1, 0, 0, 0, 0, 1}, conv_same = {1, 1, 1, 1, 1, 1, 1, 1, 1},
                           conv_stride = {2, 2, 1, 1, 0, 1, 0, 1, 1},
                           conv_dilated = {1, 1, 2, 2, 2, 2, 2, 2, 1},
                           conv_groups = {1, 1, 1, 1, 1, 1, 1, 1, 2},
                           conv_depth = {1, 2, 1, 1, 1, 1, 1, 1, 4}, conv_stem = {2, 2, 1, 1, 3, 3, 3, 3, 1},
                           conv_slant = {1, 2, 1, 1, 0, 2, 1, 0, 1};
static const op_conv_transpose_attrs up_valid = {1, 1, 1, 1, 0, 0, 6, 5},
                                     up_stride = {2, 2, 1, 1, 0, 0, 8, 6}, up_gap = {3, 3, 1, 1, 0, 0, 12, 9},
                                     up_pad = {2, 2, 1, 1, 1, 1, 8, 6};
static const op_act_attrs linear = {KERN_LINEAR, 0}, relu = {KERN_RELU, 0}, leaky = {KERN_LEAKY_RELU, 0.3f},
                          elu = {KERN_ELU, 0.5f}, gelu = {KERN_GELU, 0}, gelu_tanh = {KERN_GELU_TANH, 0},
                          silu = {KERN_SILU, 0}, sigmoid = {KERN_SIGMOID, 0}, tanh_ = {KERN_TANH, 0};
static const op_relu_attrs relu_max = {0.6f, 0, 0}, relu_full = {0.7f, 0.1f, 0.25f};
static const op_affine_attrs affine = {1.7f, -0.4f};
static const float means[] = {0.3f, -0.2f, 1.5f}, variances[] = {0.5f, 2, 0.25f};
static const op_normalize_attrs normal = {3, means, variances, false},
                                normal_back = {3, means, variances, true},
                                normal_one = {1, means, variances, false};
static const op_reshape_attrs reshape = {3, {-1, 4, 6}};
static const op_permute_attrs permute = {4, {0, 3, 1, 2}}, permute2 = {3, {0, 2, 1}};
static const op_concat_attrs concat_last = {3}, concat_first = {1};
static const op_pad_attrs pad = {1, 2, 0, 3};
static const op_upsample_attrs nearest = {2, 3, false}, bilinear = {3, 2, true};
static const op_pool_attrs pool2 = {2, 2, 2, 2, 0, 0, 0, 0, false}, pool3 = {3, 3, 2, 2, 1, 1, 1, 1, false},
                           pool3_torch = {3, 3, 2, 2, 1, 1, 1, 1, true},
                           pool_slant = {2, 3, 1, 2, 0, 1, 1, 0, false};
static const op_global_pool_attrs flat = {false}, keep = {true};
static const op_bn_attrs bn = {0.99f, 1e-3f, false, true, true}, bn_bare = {0.9f, 1e-5f, true, false, false},
                         bn_beta = {0.9f, 1e-3f, true, false, true},
                         bn_gamma = {0.9f, 1e-3f, true, true, false};
static const op_ln_attrs ln = {1e-3f, 1, true, true}, ln2 = {1e-5f, 2, true, true},
                         ln_bare = {1e-3f, 1, false, false}, ln_beta = {1e-3f, 1, false, true};

/* clang-format off */
static const op_case cases[] = {
    {"dense", &op_dense, NULL, 3, {S2(5, 7), S2(7, 9), S1(9)}, S2(5, 9), .ref = ref_dense, .variables = 6},
    {"dense without bias", &op_dense, NULL, 2, {S2(3, 4), S2(4, 1)}, S2(3, 1), .ref = ref_dense,
     .variables = 2},
    {"dense of 3 dimensions", &op_dense, NULL, 3, {S3(2, 3, 6), S2(6, 17), S1(17)}, S3(2, 3, 17),
     .ref = ref_dense, .variables = 6},
    {"conv valid", &op_conv2d, &conv_valid, 3, {S4(2, 5, 6, 3), S4(3, 3, 3, 4), S1(4)}, S4(2, 3, 4, 4),
     .ref = ref_conv, .variables = 6},
    {"conv one channel", &op_conv2d, &conv_valid, 3, {S4(2, 6, 5, 1), S4(3, 3, 1, 8), S1(8)}, S4(2, 4, 3, 8),
     .ref = ref_conv, .variables = 6},
    {"conv same", &op_conv2d, &conv_same, 2, {S4(2, 4, 4, 3), S4(3, 3, 3, 16)}, S4(2, 4, 4, 16),
     .ref = ref_conv, .variables = 2},
    {"conv over 1x1", &op_conv2d, &conv_same, 2, {S4(3, 1, 1, 8), S4(3, 3, 8, 8)}, S4(3, 1, 1, 8),
     .ref = ref_conv, .variables = 2},
    {"conv stride", &op_conv2d, &conv_stride, 3, {S4(2, 4, 6, 3), S4(3, 3, 3, 5), S1(5)}, S4(2, 2, 3, 5),
     .ref = ref_conv, .variables = 6},
    {"conv dilation", &op_conv2d, &conv_dilated, 3, {S4(2, 5, 5, 2), S4(3, 3, 2, 3), S1(3)}, S4(2, 5, 5, 3),
     .ref = ref_conv, .variables = 6},
    {"conv groups", &op_conv2d, &conv_groups, 3, {S4(2, 4, 4, 4), S4(3, 3, 2, 6), S1(6)}, S4(2, 4, 4, 6),
     .ref = ref_conv, .variables = 6},
    {"conv depthwise", &op_conv2d, &conv_depth, 3, {S4(2, 4, 5, 4), S4(3, 3, 4, 2), S1(8)}, S4(2, 4, 3, 8),
     .ref = ref_conv, .variables = 6},
    {"conv 7x7 stem", &op_conv2d, &conv_stem, 2, {S4(1, 8, 8, 1), S4(7, 7, 1, 4)}, S4(1, 4, 4, 4),
     .ref = ref_conv, .variables = 2},
    {"conv uneven padding", &op_conv2d, &conv_slant, 3, {S4(2, 4, 5, 2), S4(3, 2, 2, 3), S1(3)},
     S4(2, 4, 3, 3), .ref = ref_conv, .variables = 6},
    {"transpose", &op_conv2d_transpose, &up_valid, 3, {S4(2, 4, 3, 2), S4(3, 3, 4, 2), S1(4)},
     S4(2, 6, 5, 4), .ref = ref_transpose, .variables = 6},
    {"transpose stride", &op_conv2d_transpose, &up_stride, 2, {S4(2, 4, 3, 3), S4(2, 2, 4, 3)},
     S4(2, 8, 6, 4), .ref = ref_transpose, .variables = 2},
    {"transpose with gaps", &op_conv2d_transpose, &up_gap, 3, {S4(1, 4, 3, 2), S4(2, 2, 3, 2), S1(3)},
     S4(1, 12, 9, 3), .ref = ref_transpose, .variables = 6},
    {"transpose padded", &op_conv2d_transpose, &up_pad, 3, {S4(2, 4, 3, 2), S4(3, 3, 3, 2), S1(3)},
     S4(2, 8, 6, 3), .ref = ref_transpose, .variables = 6},
    {"linear", &op_activation, &linear, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_act},
    {"relu", &op_activation, &relu, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_act},
    {"leaky relu", &op_activation, &leaky, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_act},
    {"elu", &op_activation, &elu, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_act},
    {"gelu", &op_activation_of_input, &gelu, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_act},
    {"gelu tanh", &op_activation_of_input, &gelu_tanh, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_act},
    {"silu", &op_activation_of_input, &silu, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_act},
    {"sigmoid", &op_activation, &sigmoid, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_act},
    {"tanh", &op_activation, &tanh_, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_act},
    {"relu with a ceiling", &op_relu, &relu_max, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_relu},
    {"relu in full", &op_relu, &relu_full, 1, {S2(3, 37)}, S2(3, 37), .ref = ref_relu},
    {"softmax", &op_softmax, NULL, 1, {S2(4, 10)}, S2(4, 10), .ref = ref_softmax},
    {"softmax of 4 dimensions", &op_softmax, NULL, 1, {S4(2, 2, 3, 5)}, S4(2, 2, 3, 5), .ref = ref_softmax},
    {"affine", &op_affine, &affine, 1, {S3(2, 5, 3)}, S3(2, 5, 3), .ref = ref_affine},
    {"affine of integers", &op_affine, &affine, 1, {S3(2, 5, 3)}, S3(2, 5, 3), .ref = ref_affine,
     .indices = 1, .constants = 1, .limit = 256},
    {"normalize", &op_normalize, &normal, 1, {S3(2, 5, 3)}, S3(2, 5, 3), .ref = ref_normalize},
    {"normalize inverted", &op_normalize, &normal_back, 1, {S2(4, 3)}, S2(4, 3), .ref = ref_normalize},
    {"normalize by one pair", &op_normalize, &normal_one, 1, {S3(2, 5, 2)}, S3(2, 5, 2),
     .ref = ref_normalize},
    {"add", &op_add, NULL, 2, {S3(2, 3, 5), S3(2, 3, 5)}, S3(2, 3, 5), .ref = ref_binary},
    {"add broadcast channels", &op_add, NULL, 2, {S4(2, 3, 2, 5), S2(2, 5)}, S4(2, 3, 2, 5),
     .ref = ref_binary},
    {"add weight", &op_add, NULL, 2, {S3(4, 3, 5), S3(1, 1, 5)}, S3(4, 3, 5), .ref = ref_binary,
     .variables = 2},
    {"add both ways", &op_add, NULL, 2, {S3(2, 3, 1), S3(2, 1, 5)}, S3(2, 3, 5), .ref = ref_binary},
    {"subtract", &op_subtract, NULL, 2, {S3(2, 3, 5), S3(2, 3, 5)}, S3(2, 3, 5), .ref = ref_binary},
    {"subtract from broadcast", &op_subtract, NULL, 2, {S2(2, 5), S3(2, 3, 5)}, S3(2, 3, 5),
     .ref = ref_binary},
    {"subtract weight", &op_subtract, NULL, 2, {S3(2, 3, 5), S3(1, 1, 5)}, S3(2, 3, 5), .ref = ref_binary,
     .variables = 2},
    {"multiply", &op_multiply, NULL, 2, {S3(2, 3, 5), S3(2, 3, 5)}, S3(2, 3, 5), .ref = ref_binary},
    {"multiply by squeeze", &op_multiply, NULL, 2, {S4(2, 3, 4, 5), S4(2, 1, 1, 5)}, S4(2, 3, 4, 5),
     .ref = ref_binary},
    {"multiply by weight", &op_multiply, NULL, 2, {S3(2, 3, 5), S3(1, 1, 5)}, S3(2, 3, 5), .ref = ref_binary,
     .variables = 2},
    {"multiply weight first", &op_multiply, NULL, 2, {S3(1, 3, 1), S3(2, 3, 5)}, S3(2, 3, 5),
     .ref = ref_binary, .variables = 1},
    {"reshape", &op_reshape, &reshape, 1, {S4(2, 2, 3, 4)}, S3(2, 4, 6), .ref = ref_copy},
    {"permute", &op_permute, &permute, 1, {S4(2, 3, 4, 5)}, S4(2, 5, 3, 4), .ref = ref_permute},
    {"permute 2", &op_permute, &permute2, 1, {S3(3, 4, 5)}, S3(3, 5, 4), .ref = ref_permute},
    {"concatenate", &op_concatenate, &concat_last, 2, {S4(2, 3, 2, 4), S4(2, 3, 2, 3)}, S4(2, 3, 2, 7),
     .ref = ref_concat},
    {"concatenate 3", &op_concatenate, &concat_first, 3, {S3(2, 1, 4), S3(2, 3, 4), S3(2, 2, 4)},
     S3(2, 6, 4), .ref = ref_concat},
    {"zero pad", &op_zero_pad, &pad, 1, {S4(2, 3, 4, 2)}, S4(2, 6, 7, 2), .ref = ref_pad},
    {"nearest", &op_upsample, &nearest, 1, {S4(2, 3, 2, 3)}, S4(2, 6, 6, 3), .ref = ref_upsample},
    {"bilinear", &op_upsample, &bilinear, 1, {S4(2, 3, 4, 3)}, S4(2, 9, 8, 3), .ref = ref_upsample},
    {"max pool", &op_max_pool, &pool2, 1, {S4(2, 4, 5, 3)}, S4(2, 2, 2, 3), .ref = ref_window},
    {"max pool padded", &op_max_pool, &pool3, 1, {S4(2, 5, 6, 9)}, S4(2, 3, 3, 9), .ref = ref_window},
    {"max pool uneven", &op_max_pool, &pool_slant, 1, {S4(2, 4, 5, 3)}, S4(2, 4, 2, 3), .ref = ref_window},
    {"average pool", &op_avg_pool, &pool2, 1, {S4(2, 4, 5, 3)}, S4(2, 2, 2, 3), .ref = ref_window},
    {"average pool padded", &op_avg_pool, &pool3, 1, {S4(2, 5, 6, 9)}, S4(2, 3, 3, 9), .ref = ref_window},
    {"average pool counts padding", &op_avg_pool, &pool3_torch, 1, {S4(2, 5, 6, 3)}, S4(2, 3, 3, 3),
     .ref = ref_window},
    {"global average", &op_global_avg_pool, &flat, 1, {S4(2, 3, 4, 9)}, S2(2, 9), .ref = ref_global},
    {"global average, kept", &op_global_avg_pool, &keep, 1, {S4(2, 3, 4, 5)}, S4(2, 1, 1, 5),
     .ref = ref_global},
    {"global maximum", &op_global_max_pool, &flat, 1, {S4(2, 3, 4, 9)}, S2(2, 9), .ref = ref_global},
    {"global maximum, kept", &op_global_max_pool, &keep, 1, {S4(2, 3, 4, 5)}, S4(2, 1, 1, 5),
     .ref = ref_global},
    {"batch norm", &op_batch_norm, &bn, 5, {S4(3, 2, 3, 5), S1(5), S1(5), S1(5), S1(5)}, S4(3, 2, 3, 5),
     .ref = ref_bn, .variables = 30, .constants = 24, .positive = 16},
    {"batch norm of rows", &op_batch_norm, &bn, 5, {S2(9, 17), S1(17), S1(17), S1(17), S1(17)}, S2(9, 17),
     .ref = ref_bn, .variables = 30, .constants = 24, .positive = 16},
    {"batch norm bare", &op_batch_norm, &bn_bare, 3, {S3(3, 4, 5), S1(5), S1(5)}, S3(3, 4, 5), .ref = ref_bn,
     .variables = 6, .constants = 6, .positive = 4},
    {"batch norm beta", &op_batch_norm, &bn_beta, 4, {S3(3, 4, 5), S1(5), S1(5), S1(5)}, S3(3, 4, 5),
     .ref = ref_bn, .variables = 14, .constants = 12, .positive = 8},
    {"batch norm gamma", &op_batch_norm, &bn_gamma, 4, {S3(3, 4, 5), S1(5), S1(5), S1(5)}, S3(3, 4, 5),
     .ref = ref_bn, .variables = 14, .constants = 12, .positive = 8},
    {"batch norm frozen", &op_batch_norm, &bn, 5, {S4(3, 2, 3, 5), S1(5), S1(5), S1(5), S1(5)},
     S4(3, 2, 3, 5), .ref = ref_bn, .variables = 30, .constants = 24, .positive = 16, .inference = true},
    {"batch norm bare frozen", &op_batch_norm, &bn_bare, 3, {S3(3, 4, 5), S1(5), S1(5)}, S3(3, 4, 5),
     .ref = ref_bn, .variables = 6, .constants = 6, .positive = 4, .inference = true},
    {"layer norm", &op_layer_norm, &ln, 3, {S3(2, 3, 7), S1(7), S1(7)}, S3(2, 3, 7), .ref = ref_ln,
     .variables = 6},
    {"layer norm of 2 axes", &op_layer_norm, &ln2, 3, {S3(3, 4, 5), S2(4, 5), S2(4, 5)}, S3(3, 4, 5),
     .ref = ref_ln, .variables = 6},
    {"layer norm bare", &op_layer_norm, &ln_bare, 1, {S2(4, 9)}, S2(4, 9), .ref = ref_ln},
    {"layer norm beta", &op_layer_norm, &ln_beta, 2, {S2(4, 9), S1(9)}, S2(4, 9), .ref = ref_ln,
     .variables = 2},
    {"embedding", &op_embedding, NULL, 2, {S2(3, 4), S2(6, 5)}, S3(3, 4, 5), .ref = ref_embedding,
     .variables = 2, .constants = 1, .indices = 1, .limit = 6},
};
/* clang-format on */

#define N_CASES (int)(sizeof cases / sizeof *cases)

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

static void *room(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return p;
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
    case RELU: return f & MANTA_OP_CAN_RELU;
    case RELU_DONE: return f & MANTA_OP_CAN_RELU && !(f & MANTA_OP_RELU_SELF);
    case MASKED: return f & MANTA_OP_CAN_MASK;
    case SUNK: return f & MANTA_OP_CAN_SINK;
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
                       .kernels = r->k,
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
                              .relu = r->way == RELU || r->way == RELU_DONE,
                              .relu_done = r->way == RELU_DONE,
                              .mask = r->way == MASKED ? r->e->mask : NULL,
                              .sink = r->way == SUNK ? take : NULL,
                              .sink_ctx = r,
                              .kernels = r->k,
                              .pool = r->p};
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

/* ---- what the table cannot say ---- */

static manta_op_call call_of(void *const *state, const void *attrs, const manta_array *in,
                             const manta_array *out)
{
    pool *const *pools = *state;
    static const bool no[MAX_IN];
    return (manta_op_call){.attrs = attrs,
                           .training = true,
                           .n_in = 1,
                           .n_out = 1,
                           .in = in,
                           .out = out,
                           .accumulate = no,
                           .kernels = kernels_of(KERN_REFERENCE),
                           .pool = pools[1],
                           .seed = 7,
                           .step = 3,
                           .call = 2};
}

/* Rows of 1000 ones through a dropout; row r belongs to position `first` + r. */
static void drop(void *const *state, int64_t first, int64_t rows, uint64_t seed, int64_t step, uint32_t node,
                 float *y)
{
    op_dropout_attrs attrs = {.rate = 0.3f};
    float *ones = room((size_t)rows * 1000, sizeof *ones);
    manta_array x = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){rows, 1000}, ones), out = x;
    for (int64_t i = 0; i < rows * 1000; i++) ones[i] = 1;
    out.data = y;
    manta_op_call c = call_of(state, &attrs, &x, &out);
    c.first = first;
    c.seed = seed;
    c.step = step;
    c.call = node;
    assert_int_equal(op_dropout.forward(&c), MANTA_OK);
    free(ones);
}

static void dropout_keeps_its_share_and_scales_it(void **state)
{
    float y[8000];
    int kept = 0;
    drop(state, 0, 8, 7, 3, 2, y);
    for (int i = 0; i < 8000; i++) {
        assert_true(y[i] == 0 || y[i] == 1 / (1 - 0.3f));
        kept += y[i] != 0;
    }
    assert_in_range(kept, 5600 - 150, 5600 + 150); /* 3.6 standard deviations */
}

static void dropout_depends_on_the_position_alone(void **state)
{
    float whole[8000], part[3000];
    drop(state, 10, 8, 7, 3, 2, whole);
    drop(state, 14, 3, 7, 3, 2, part);
    assert_memory_equal(whole + 4000, part, sizeof part);
}

static void dropout_differs_by_seed_step_node_and_row(void **state)
{
    float a[2000], b[1000];
    drop(state, 0, 2, 7, 3, 2, a);
    assert_memory_not_equal(a, a + 1000, 4000);
    drop(state, 0, 1, 8, 3, 2, b);
    assert_memory_not_equal(a, b, sizeof b);
    drop(state, 0, 1, 7, 4, 2, b);
    assert_memory_not_equal(a, b, sizeof b);
    drop(state, 0, 1, 7, 3, 1, b);
    assert_memory_not_equal(a, b, sizeof b);
}

static void dropout_backward_uses_the_same_mask(void **state)
{
    op_dropout_attrs attrs = {.rate = 0.3f};
    float x[3000], y[3000], dy[3000], dx[3000];
    bool add = true;
    manta_array in = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){3, 1000}, x), out = in, dout = in,
                din = in;
    for (int i = 0; i < 3000; i++) x[i] = dy[i] = (float)i + 1;
    for (int i = 0; i < 3000; i++) dx[i] = 0.5f;
    out.data = y;
    dout.data = dy;
    din.data = dx;
    manta_op_call c = call_of(state, &attrs, &in, &out);
    assert_int_equal(op_dropout.forward(&c), MANTA_OK);
    c.dout = &dout;
    c.din = &din;
    c.accumulate = &add;
    in.data = out.data = NULL; /* nothing is kept */
    assert_int_equal(op_dropout.backward(&c), MANTA_OK);
    for (int i = 0; i < 3000; i++) assert_true(dx[i] == 0.5f + y[i]);
}

static void dropout_is_a_view_in_inference(void **state)
{
    (void)state;
    op_dropout_attrs attrs = {.rate = 0.3f};
    manta_array x = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 5}, NULL);
    manta_op_plan p = {.attrs = &attrs, .n_in = 1, .n_out = 1, .in = &x, .out = &x};
    assert_int_equal(op_dropout.plan(&p), MANTA_OK);
    assert_true(p.view);
    p = (manta_op_plan){.attrs = &attrs, .training = true, .n_in = 1, .n_out = 1, .in = &x, .out = &x};
    assert_int_equal(op_dropout.plan(&p), MANTA_OK);
    assert_false(p.view);
}

static void random_numbers_are_uniform_and_below_one(void **state)
{
    float v[4096];
    double sum = 0;
    manta_op_call c = call_of(state, NULL, NULL, NULL);
    manta_op_random(&c, 5, 4096, v);
    for (int i = 0; i < 4096; i++) {
        assert_true(v[i] >= 0 && v[i] < 1);
        sum += (double)v[i];
    }
    assert_true(fabs(sum / 4096 - 0.5) < 0.02); /* 4.4 standard deviations */
}

static void count_up(void *ctx, int64_t i)
{
    ((uint8_t *)ctx)[i]++;
}

static void parallel_runs_each_index_once(void **state)
{
    static uint8_t times[5000];
    manta_op_call c = call_of(state, NULL, NULL, NULL);
    for (int64_t n = 0; n <= 5000; n += 1250) {
        for (int with_pool = 0; with_pool < 2; with_pool++) {
            memset(times, 0, sizeof times);
            c.pool = with_pool ? ((pool *const *)*state)[1] : NULL;
            manta_op_parallel(&c, n, count_up, times);
            for (int64_t i = 0; i < 5000; i++) assert_int_equal(times[i], i < n);
        }
    }
}

static manta_status embed(void *const *state, manta_dtype t, void *indices)
{
    float table[8] = {0}, y[8];
    int64_t work[4];
    manta_array in[2] = {manta_array_of(t, 2, (int64_t[]){2, 2}, indices),
                         manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){4, 2}, table)};
    manta_array out = manta_array_of(MANTA_DTYPE_F32, 3, (int64_t[]){2, 2, 2}, y);
    manta_op_call c = call_of(state, NULL, in, &out);
    c.n_in = 2;
    c.work = work;
    c.first = 40;
    return op_embedding.forward(&c);
}

static void embedding_names_an_index_out_of_range(void **state)
{
    assert_int_equal(embed(state, MANTA_DTYPE_I32, (int32_t[]){0, 3, 2, 1}), MANTA_OK);
    assert_int_equal(embed(state, MANTA_DTYPE_I32, (int32_t[]){0, 3, 2, 4}), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "expected indices from 0 to 3, given 4 at place 1 of sample 41");
    assert_int_equal(embed(state, MANTA_DTYPE_I64, (int64_t[]){0, -1, 2, 3}), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "expected indices from 0 to 3, given -1 at place 1 of sample 40");
    assert_int_equal(embed(state, MANTA_DTYPE_U8, (uint8_t[]){0, 3, 255, 3}), MANTA_EINVAL);
    assert_int_equal(embed(state, MANTA_DTYPE_F32, (float[]){0, 1, 2, 3}), MANTA_OK);
    assert_int_equal(embed(state, MANTA_DTYPE_F32, (float[]){0, 1.5f, 2, 3}), MANTA_EINVAL);
    assert_string_equal(manta_error_text(),
                        "expected indices from 0 to 3, given 1.5 at place 1 of sample 40");
    assert_int_equal(embed(state, MANTA_DTYPE_F32, (float[]){0, NAN, 2, 3}), MANTA_EINVAL);
    assert_int_equal(embed(state, MANTA_DTYPE_F64, (double[]){0, 1e300, 2, 3}), MANTA_EINVAL);
}

static void affine_reads_every_type(void **state)
{
    op_affine_attrs attrs = {.scale = 2, .offset = 1};
    struct {
        manta_dtype t;
        const void *data;
    } forms[] = {{MANTA_DTYPE_F32, (float[]){0, 1, 2}},
                 {MANTA_DTYPE_F64, (double[]){0, 1, 2}},
                 {MANTA_DTYPE_F16, (uint16_t[]){0, 0x3c00, 0x4000}},
                 {MANTA_DTYPE_BF16, (uint16_t[]){0, 0x3f80, 0x4000}},
                 {MANTA_DTYPE_I32, (int32_t[]){0, 1, 2}},
                 {MANTA_DTYPE_I64, (int64_t[]){0, 1, 2}},
                 {MANTA_DTYPE_U8, (uint8_t[]){0, 1, 2}}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        float y[3];
        manta_array x = manta_array_of(forms[i].t, 2, (int64_t[]){1, 3}, (void *)(uintptr_t)forms[i].data);
        manta_array out = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){1, 3}, y);
        manta_op_call c = call_of(state, &attrs, &x, &out);
        assert_int_equal(op_affine.forward(&c), MANTA_OK);
        assert_true(y[0] == 1 && y[1] == 3 && y[2] == 5);
    }
}

static void global_maximum_shares_among_equals(void **state)
{
    op_global_pool_attrs attrs = {0};
    float x[4] = {3, 1, 3, 2}, y[1] = {3}, dy[1] = {1}, dx[4], work[1];
    manta_array in = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){1, 2, 2, 1}, x), din = in;
    manta_array out = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){1, 1}, y), dout = out;
    din.data = dx;
    dout.data = dy;
    manta_op_call c = call_of(state, &attrs, &in, &out);
    c.din = &din;
    c.dout = &dout;
    c.work = work;
    assert_int_equal(op_global_max_pool.backward(&c), MANTA_OK);
    assert_true(dx[0] == 0.5f && dx[1] == 0 && dx[2] == 0.5f && dx[3] == 0);
}

/* ---- shapes that cannot be ---- */

typedef struct bad_case {
    const manta_op *op;
    const void *attrs;
    int n_in;
    dims in[3];
    manta_status status;
    const char *sentence;
} bad_case;

static const op_pool_attrs pool_wide = {3, 3, 1, 1, 3, 0, 0, 0, false},
                           pool_huge = {17, 16, 1, 1, 0, 0, 0, 0, false};
static const op_conv_attrs conv_none = {0, 1, 1, 1, 0, 0, 0, 0, 1};
static const op_permute_attrs permute_twice = {3, {0, 1, 1}};
static const op_concat_attrs concat_batch = {0};
static const op_dropout_attrs drop_all = {1};
static const op_pad_attrs pad_less = {-1, 0, 0, 0};
static const op_upsample_attrs up_none = {0, 1, false};

#define B -1

/* clang-format off */
static const bad_case bad_cases[] = {
    {&op_dense, NULL, 2, {S2(B, 5), S2(4, 3)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., 4), given (batch, 5)"},
    {&op_dense, NULL, 2, {S1(B), S2(4, 3)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., features), given (batch,)"},
    {&op_dense, NULL, 3, {S2(B, 4), S2(4, 3), S1(4)}, MANTA_EINVAL,
     "expected a bias of shape (3,), given (4,)"},
    {&op_dense, NULL, 1, {S2(B, 4)}, MANTA_EINVAL, "expected 2 to 3 inputs, given 1"},
    {&op_conv2d, &conv_valid, 2, {S3(B, 28, 28), S4(3, 3, 1, 4)}, MANTA_EINVAL,
     "expected an input of shape (batch, height, width, channels), given (batch, 28, 28)"},
    {&op_conv2d, &conv_valid, 2, {S4(B, 28, 28, 3), S4(3, 3, 1, 4)}, MANTA_EINVAL,
     "expected an input whose channels suit a kernel of shape (3, 3, 1, 4) in 1 group, given (batch, 28, 28, 3)"},
    {&op_conv2d, &conv_valid, 2, {S4(B, 2, 28, 1), S4(3, 3, 1, 4)}, MANTA_EINVAL,
     "expected a padded height and width of at least 3 and 3, given (batch, 2, 28, 1)"},
    {&op_conv2d, &conv_none, 2, {S4(B, 5, 5, 1), S4(3, 3, 1, 4)}, MANTA_EINVAL,
     "expected strides, dilation and groups of at least 1, given (0, 1), (1, 1) and 1"},
    {&op_conv2d_transpose, &up_valid, 2, {S4(B, 4, 3, 5), S4(3, 3, 4, 2)}, MANTA_EINVAL,
     "expected an input of shape (batch, height, width, 2), given (batch, 4, 3, 5)"},
    {&op_add, NULL, 2, {S3(B, 3, 5), S3(B, 3, 4)}, MANTA_EINVAL,
     "expected inputs of one shape, given (batch, 3, 5) and (batch, 3, 4)"},
    {&op_add, NULL, 2, {S2(B, 3), S1(3)}, MANTA_EINVAL,
     "expected inputs of one shape, given (batch, 3) and (3,)"},
    {&op_softmax, NULL, 1, {S1(B)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., classes), given (batch,)"},
    {&op_normalize, &normal, 1, {S2(B, 4)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., 3), given (batch, 4)"},
    {&op_dropout, &drop_all, 1, {S2(B, 4)}, MANTA_EINVAL,
     "expected a rate of at least 0 and below 1, given 1"},
    {&op_reshape, &reshape, 1, {S3(B, 5, 5)}, MANTA_EINVAL,
     "expected 24 elements per sample, as (batch, 4, 6) has, given (batch, 5, 5) with 25"},
    {&op_permute, &permute, 1, {S3(B, 5, 5)}, MANTA_EINVAL,
     "expected an input of 4 dimensions, the batch among them, given (batch, 5, 5)"},
    {&op_permute, &permute_twice, 1, {S3(B, 5, 5)}, MANTA_EINVAL,
     "expected each of the dimensions 1 to 2 once, given 1"},
    {&op_concatenate, &concat_first, 2, {S3(B, 2, 5), S3(B, 2, 4)}, MANTA_EINVAL,
     "expected inputs of one shape but for axis 1, given (batch, 2, 5) and (batch, 2, 4)"},
    {&op_concatenate, &concat_batch, 2, {S2(B, 5), S2(B, 5)}, MANTA_EINVAL,
     "expected an axis from 1 to 1 for (batch, 5), given 0"},
    {&op_zero_pad, &pad, 1, {S3(B, 5, 5)}, MANTA_EINVAL,
     "expected an input of shape (batch, height, width, channels), given (batch, 5, 5)"},
    {&op_zero_pad, &pad_less, 1, {S4(B, 5, 5, 1)}, MANTA_EINVAL,
     "expected padding of at least 0, given ((-1, 0), (0, 0))"},
    {&op_upsample, &up_none, 1, {S4(B, 5, 5, 1)}, MANTA_EINVAL,
     "expected a size of at least (1, 1), given (0, 1)"},
    {&op_max_pool, &pool2, 1, {S4(B, 1, 5, 1)}, MANTA_EINVAL,
     "expected a padded height and width of at least 2 and 2, given (batch, 1, 5, 1)"},
    {&op_max_pool, &pool_wide, 1, {S4(B, 5, 5, 1)}, MANTA_EINVAL,
     "expected padding smaller than the window (3, 3), given ((3, 0), (0, 0))"},
    {&op_max_pool, &pool_huge, 1, {S4(B, 20, 20, 1)}, MANTA_EUNSUPPORTED,
     "expected a window of at most 256 elements, given (17, 16)"},
    {&op_global_avg_pool, &flat, 1, {S2(B, 5)}, MANTA_EINVAL,
     "expected an input of shape (batch, height, width, channels), given (batch, 5)"},
    {&op_batch_norm, &bn_bare, 3, {S2(B, 5), S1(4), S1(4)}, MANTA_EINVAL,
     "expected an input of shape (batch, ..., 4), given (batch, 5)"},
    {&op_layer_norm, &ln_beta, 2, {S2(B, 5), S1(4)}, MANTA_EINVAL,
     "expected an input that ends in the dimensions (4,), given (batch, 5)"},
};
/* clang-format on */

static void shapes_that_cannot_be_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const bad_case *b = &bad_cases[i];
        manta_array in[3];
        manta_op_shape s = {.attrs = b->attrs, .n_in = b->n_in, .in = in, .n_out = 1};
        for (int k = 0; k < b->n_in; k++)
            in[k] = manta_array_of(MANTA_DTYPE_F32, b->in[k].n, b->in[k].d, NULL);
        s.out[0] = in[0];
        assert_int_equal(b->op->shape(&s), b->status);
        assert_string_equal(manta_error_text(), b->sentence);
    }
}

static void other_types_are_named(void **state)
{
    (void)state;
    manta_array in[2] = {manta_array_of(MANTA_DTYPE_U8, 2, (int64_t[]){-1, 4}, NULL),
                         manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){4, 3}, NULL)};
    manta_op_shape s = {.n_in = 2, .in = in, .n_out = 1};
    assert_int_equal(op_dense.shape(&s), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "expected an input of type float32, given uint8");
}

static int start(void **state)
{
    static pool *pools[2];
    for (int t = 0; t < 2; t++) {
        if (pool_new(t + 1, KERN_SCRATCH, &pools[t])) return -1;
    }
    *state = pools;
    return 0;
}

static int stop(void **state)
{
    pool **pools = *state;
    pool_free(pools[0]);
    pool_free(pools[1]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation),
        cmocka_unit_test(dropout_keeps_its_share_and_scales_it),
        cmocka_unit_test(dropout_depends_on_the_position_alone),
        cmocka_unit_test(dropout_differs_by_seed_step_node_and_row),
        cmocka_unit_test(dropout_backward_uses_the_same_mask),
        cmocka_unit_test(dropout_is_a_view_in_inference),
        cmocka_unit_test(random_numbers_are_uniform_and_below_one),
        cmocka_unit_test(parallel_runs_each_index_once),
        cmocka_unit_test(embedding_names_an_index_out_of_range),
        cmocka_unit_test(affine_reads_every_type),
        cmocka_unit_test(global_maximum_shares_among_equals),
        cmocka_unit_test(shapes_that_cannot_be_are_named),
        cmocka_unit_test(other_types_are_named),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
