/* zoo.c - the models that come with the library.
 *
 * Each is one function on an empty model. Names of layers are Keras's numbering
 * where the model follows a Keras tutorial, and PyTorch's paths with dots as
 * underscores ("layer2_0_conv1") where it follows torchvision, so that weights
 * can be matched by name. */
#include <math.h>
#include <string.h>

#include <manta/tool_text.h>

#include "base/args.h"
#include "base/mem.h"
#include "nn/layer.h"

/* ---- mnist-cnn: the multi-worker tutorial's ---- */

static void mnist_cnn(manta_model *m)
{
    manta_input(m, "image", MANTA_DTYPE_F32, 2, (int64_t[]){28, 28});
    manta_model_add(m, manta_reshape(m, (manta_reshape_options){.shape = {28, 28, 1}, .ndim = 3}));
    manta_model_add(m, manta_conv2d(m, (manta_conv2d_options){
                                           .filters = 32, .kernel_size = {3, 3}, .activation = "relu"}));
    manta_model_add(m, manta_flatten(m));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 128, .activation = "relu"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 10}));
}

/* ---- resnet18 ---- */

/* A convolution without bias as torchvision starts it: normal, deviation sqrt(2 / fan_out). */
static manta_value resnet_conv(manta_model *m, manta_value x, const char *path, const char *name,
                               int64_t filters, int64_t k, int64_t stride)
{
    int64_t pad = k / 2;
    float deviation = (float)sqrt(2.0 / (double)(filters * k * k));
    char *full = mem_printf("%s%s", path, name);

    manta_layer *l =
        manta_conv2d(m, (manta_conv2d_options){.filters = filters,
                                               .kernel_size = {k, k},
                                               .strides = {stride, stride},
                                               .padding = "explicit",
                                               .pad = {{pad, pad}, {pad, pad}},
                                               .no_bias = true,
                                               .kernel_initializer = {MANTA_INIT_NORMAL, 0, deviation},
                                               .name = full});

    mem_free(full);
    return manta_call(m, l, x);
}

static manta_value resnet_norm(manta_model *m, manta_value x, const char *path, const char *name)
{
    char *full = mem_printf("%s%s", path, name);

    manta_layer *l =
        manta_batch_normalization(m, (manta_batch_normalization_options){
                                         .momentum = 0.9, .epsilon = 1e-5, .unbiased = true, .name = full});

    mem_free(full);
    return manta_call(m, l, x);
}

static manta_value resnet_relu(manta_model *m, manta_value x, const char *path, const char *name)
{
    char *full = mem_printf("%s%s", path, name);
    manta_layer *l = manta_activation(m, (manta_activation_options){.activation = "relu", .name = full});

    mem_free(full);
    return manta_call(m, l, x);
}

/* Two 3x3 convolutions around a shortcut, which is a 1x1 convolution where the shape changes. */
static manta_value resnet_block(manta_model *m, manta_value x, int stage, int block, int64_t filters)
{
    bool project = stage > 1 && block == 0;
    char *path = mem_printf("layer%d_%d_", stage, block), *add = mem_printf("layer%d_%d_add", stage, block);
    manta_value y[2] = {x, x};

    y[0] = resnet_conv(m, x, path, "conv1", filters, 3, project ? 2 : 1);
    y[0] = resnet_norm(m, y[0], path, "bn1");
    y[0] = resnet_relu(m, y[0], path, "relu1");
    y[0] = resnet_conv(m, y[0], path, "conv2", filters, 3, 1);
    y[0] = resnet_norm(m, y[0], path, "bn2");
    if (project) {
        y[1] = resnet_conv(m, x, path, "downsample_0", filters, 1, 2);
        y[1] = resnet_norm(m, y[1], path, "downsample_1");
    }
    y[0] = manta_call_n(m, manta_layer_new(m, &layer_add, add, NULL), 2, y);
    y[0] = resnet_relu(m, y[0], path, "relu2");
    mem_free(add);
    mem_free(path);
    return y[0];
}

/* torchvision's ResNet-18 with one input channel and ten classes. Images are (28, 28), as MNIST's files hold them. */
static void resnet18(manta_model *m)
{
    const manta_initializer torch = {.kind = MANTA_INIT_TORCH};
    manta_value x = manta_input(m, "image", MANTA_DTYPE_F32, 2, (int64_t[]){28, 28});

    x = manta_call(m, manta_reshape(m, (manta_reshape_options){.shape = {28, 28, 1}, .ndim = 3}), x);
    x = resnet_conv(m, x, "", "conv1", 64, 7, 2);
    x = resnet_norm(m, x, "", "bn1");
    x = resnet_relu(m, x, "", "relu");
    x = manta_call(m,
                   manta_max_pooling2d(m, (manta_pooling2d_options){.pool_size = {3, 3},
                                                                    .strides = {2, 2},
                                                                    .padding = "explicit",
                                                                    .pad = {{1, 1}, {1, 1}},
                                                                    .name = "maxpool"}),
                   x);
    for (int stage = 1; stage <= 4; stage++) {
        for (int block = 0; block < 2; block++) x = resnet_block(m, x, stage, block, 32 << stage);
    }
    x = manta_call(m, manta_global_average_pooling2d(m, (manta_global_pooling2d_options){.name = "avgpool"}),
                   x);
    x = manta_call(m,
                   manta_dense(m, (manta_dense_options){.units = 10,
                                                        .kernel_initializer = torch,
                                                        .bias_initializer = torch,
                                                        .name = "fc"}),
                   x);
    manta_output(m, x);
}

/* ---- the small ones ---- */

static void mlp(manta_model *m)
{
    manta_input(m, "image", MANTA_DTYPE_F32, 2, (int64_t[]){28, 28});
    manta_model_add(m, manta_flatten(m));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 128, .activation = "relu"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 10}));
}

static void linear(manta_model *m)
{
    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){1});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 1}));
}

/* 784 numbers to 392 and back: two strided convolutions, two transposed ones. */
static void autoencoder(manta_model *m)
{
    const manta_conv2d_options down = {
        .kernel_size = {3, 3}, .strides = {2, 2}, .padding = "same", .activation = "relu"};
    const manta_conv2d_transpose_options up = {
        .kernel_size = {3, 3}, .strides = {2, 2}, .padding = "same", .activation = "relu"};
    manta_conv2d_options o = down;
    manta_conv2d_transpose_options t = up;

    manta_input(m, "image", MANTA_DTYPE_F32, 2, (int64_t[]){28, 28});
    manta_model_add(m, manta_reshape(m, (manta_reshape_options){.shape = {28, 28, 1}, .ndim = 3}));
    o.filters = 16;
    manta_model_add(m, manta_conv2d(m, o)); /* 14 x 14 */
    o.filters = 8;
    manta_model_add(m, manta_conv2d(m, o)); /* 7 x 7 */
    t.filters = 8;
    manta_model_add(m, manta_conv2d_transpose(m, t));
    t.filters = 16;
    manta_model_add(m, manta_conv2d_transpose(m, t));
    manta_model_add(m, manta_conv2d(m, (manta_conv2d_options){.filters = 1,
                                                              .kernel_size = {3, 3},
                                                              .padding = "same",
                                                              .activation = "sigmoid"}));
    manta_model_add(m, manta_reshape(m, (manta_reshape_options){.shape = {28, 28}, .ndim = 2}));
}

/* ---- by name ---- */

static const struct {
    const char *name, *about;
    void (*build)(manta_model *m);
} zoo[] = {
    {"mnist-cnn", "the TensorFlow tutorial's convolutional network for 28x28 images, 10 classes", mnist_cnn},
    {"resnet18", "ResNet-18 as torchvision has it, one channel, 28x28 images, 10 classes", resnet18},
    {"mlp", "784-128-10 perceptron for 28x28 images", mlp},
    {"linear", "y = w x + b", linear},
    {"autoencoder", "convolutional autoencoder for 28x28 images", autoencoder},
};

#define ZOO_SIZE (int)(sizeof zoo / sizeof *zoo)

const char *manta_zoo_name(int i, const char **about)
{
    if (i < 0 || i >= ZOO_SIZE) return NULL;
    if (about) *about = zoo[i].about;
    return zoo[i].name;
}

static manta_status fail_unknown_model(const char *name)
{
    manta_suggestion near = manta_suggestion_for(name);
    char hint[96];

    for (int i = 0; i < ZOO_SIZE; i++) manta_suggestion_offer(&near, zoo[i].name);
    return manta_fail(MANTA_ENOENT,
                      "no model is called '%s'; there are mnist-cnn, resnet18, mlp, linear and autoencoder%s",
                      name, manta_suggestion_text(&near, hint, sizeof hint));
}

manta_status manta_zoo(const char *name, manta_model **out)
{
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    for (int i = 0; i < ZOO_SIZE; i++) {
        manta_model *m;
        manta_status st;
        if (strcmp(zoo[i].name, name)) continue;
        m = manta_model_new(name);
        zoo[i].build(m);
        if ((st = manta_model_build(m))) {
            manta_model_free(m);
            return st;
        }
        *out = m;
        return MANTA_OK;
    }
    return fail_unknown_model(name);
}
