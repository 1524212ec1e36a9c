/* device_layers_test.c - models that have every built-in layer train, evaluate and predict on the fake device with the
 * bytes of the processor. */
#include "device_twins.h"

#include <manta/model.h>

enum { HEIGHT = 12, CHANNELS = 3, WORDS = 5, TABLE = 11, BATCH = 7 };

static float pixels[BATCH * HEIGHT * HEIGHT * CHANNELS];
static int32_t words[BATCH * WORDS];
static int64_t wanted[BATCH];

static manta_value activation(manta_model *m, const char *name, manta_value x)
{
    return manta_call(m, manta_activation(m, (manta_activation_options){.activation = name}), x);
}

/* Maps to maps: convolutions of all kinds, norms, activations. */
static manta_value convolve(manta_model *m, manta_value x)
{
    static const float mean[CHANNELS] = {0.1f, 0.2f, 0.3f}, variance[CHANNELS] = {1, 2, 0.5f};

    x = manta_call(m, manta_rescaling(m, (manta_rescaling_options){.scale = 1.5, .offset = -0.25}), x);
    x = manta_call(m,
                   manta_normalization(
                       m, (manta_normalization_options){.mean = mean, .variance = variance, .n = CHANNELS}),
                   x);
    x = manta_call(m, manta_zero_padding2d(m, (manta_zero_padding2d_options){.padding = {{1, 0}, {2, 1}}}),
                   x);
    x = manta_call(
        m, manta_conv2d(m, (manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}, .strides = {2, 1}}),
        x);
    x = manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), x);
    x = manta_call(
        m, manta_relu(m, (manta_relu_options){.max_value = 2, .negative_slope = 0.1, .threshold = 0.1}), x);
    x = manta_call(
        m,
        manta_depthwise_conv2d(m, (manta_depthwise_conv2d_options){.kernel_size = {3, 3}, .padding = "same"}),
        x);
    x = manta_call(m, manta_leaky_relu(m, (manta_leaky_relu_options){0}), x);
    x = manta_call(
        m, manta_separable_conv2d(m, (manta_separable_conv2d_options){.filters = 6, .kernel_size = {2, 2}}),
        x);
    x = manta_call(m, manta_elu(m, (manta_elu_options){0}), x);
    x = manta_call(m, manta_layer_normalization(m, (manta_layer_normalization_options){0}), x);
    x = manta_call(m,
                   manta_conv2d_transpose(m, (manta_conv2d_transpose_options){.filters = 4,
                                                                              .kernel_size = {3, 3},
                                                                              .strides = {2, 2},
                                                                              .activation = "relu"}),
                   x);
    return manta_call(m, manta_cropping2d(m, (manta_cropping2d_options){.cropping = {{1, 0}, {0, 1}}}), x);
}

/* One map to a row: up, down, and side by side. */
static manta_value gather(manta_model *m, manta_value x)
{
    static const char *const names[] = {"gelu", "silu", "sigmoid", "tanh", "hard_sigmoid", "hard_silu"};
    manta_value up =
        manta_call(m, manta_upsampling2d(m, (manta_upsampling2d_options){.interpolation = "bilinear"}), x);
    manta_value near = manta_call(m, manta_upsampling2d(m, (manta_upsampling2d_options){0}), x), parts[3];

    up = manta_call_n(m, manta_merge_add(m), 2, (manta_value[]){up, near});
    up = manta_call(
        m, manta_max_pooling2d(m, (manta_pooling2d_options){.pool_size = {3, 3}, .padding = "same"}), up);
    near = manta_call(
        m, manta_average_pooling2d(m, (manta_pooling2d_options){.pool_size = {3, 3}, .padding = "same"}),
        near);
    up = manta_call_n(m, manta_merge_multiply(m), 2, (manta_value[]){up, near});
    up = manta_call_n(m, manta_merge_subtract(m), 2, (manta_value[]){up, near});
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) up = activation(m, names[i], up);
    up = manta_call(m, manta_permute(m, (manta_permute_options){.dims = {2, 3, 1}, .ndim = 3}), up);
    up = manta_call(
        m,
        manta_dropout(m, (manta_dropout_options){.rate = 0.25, .noise_shape = {-1, 1, 1, -1}, .n_noise = 4}),
        up);
    parts[0] = manta_call(m, manta_global_average_pooling2d(m, (manta_global_pooling2d_options){0}), up);
    parts[1] = manta_call(m, manta_global_max_pooling2d(m, (manta_global_pooling2d_options){0}), near);
    parts[2] = manta_call(m, manta_flatten(m), x);
    return manta_call_n(m, manta_merge_concatenate(m, (manta_merge_concatenate_options){0}), 3, parts);
}

static manta_model *every_layer(void)
{
    manta_model *m = manta_model_new("every_layer");
    manta_value image = manta_input(m, "image", MANTA_DTYPE_F32, 3, (int64_t[]){HEIGHT, HEIGHT, CHANNELS});
    manta_value text = manta_input(m, "words", MANTA_DTYPE_I32, 1, (int64_t[]){WORDS}),
                x = gather(m, convolve(m, image));

    text = manta_call(m, manta_embedding(m, (manta_embedding_options){.input_dim = TABLE, .output_dim = 4}),
                      text);
    text = manta_call(m, manta_reshape(m, (manta_reshape_options){.shape = {4 * WORDS}, .ndim = 1}), text);
    text = manta_call(
        m, manta_layer_scale(m, (manta_layer_scale_options){.init_values = 0.5, .projection_dim = 4 * WORDS}),
        text);
    text = manta_call(m, manta_stochastic_depth(m, (manta_stochastic_depth_options){.drop_path_rate = 0.3}),
                      text);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 4 * WORDS, .activation = "relu"}), x);
    x = manta_call_n(m, manta_merge_custom_scale(m, (manta_merge_custom_scale_options){.scale = 0.3}), 2,
                     (manta_value[]){x, text});
    x = manta_call(m, manta_dropout(m, (manta_dropout_options){.rate = 0.4}), x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = CLASSES}), x);
    manta_output(m, manta_call(m, manta_softmax(m, (manta_softmax_options){0}), x));
    assert_ok(manta_model_build(m));
    return m;
}

static manta_feed samples_of(int64_t n, int step)
{
    manta_feed f = {.count = n, .n_inputs = 2, .n_targets = 1, .first = (int64_t)step * BATCH};

    for (int i = 0; i < BATCH * HEIGHT * HEIGHT * CHANNELS; i++)
        pixels[i] = rng_uniform(rng_at(rng_make(3, (uint64_t)step), (uint64_t)i).w[0]) * 4 - 2;
    for (int i = 0; i < BATCH * WORDS; i++) words[i] = (i * 7 + step) % TABLE;
    for (int i = 0; i < BATCH; i++) wanted[i] = (i + step) % CLASSES;
    f.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){n, HEIGHT, HEIGHT, CHANNELS}, pixels);
    f.inputs[1] = manta_array_of(MANTA_DTYPE_I32, 2, (int64_t[]){n, WORDS}, words);
    f.targets[0] = manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){n}, wanted);
    return f;
}

static void every_layer_trains_alike(void **state)
{
    static const manta_loss probabilities = {.name = "sparse_categorical_crossentropy",
                                             .label_smoothing = 0.1f};
    static const manta_metric looks[] = {{.name = "accuracy"},
                                         {.name = "sparse_top_k_categorical_accuracy", .k = 2}};
    manta_compile c = {.n_losses = 1, .losses = &probabilities, .n_metrics = 2, .metrics = looks};
    manta_optimizer opt;
    manta_feed f;
    twins t;

    (void)state;
    assert_ok(manta_optimizer_named("adam", &opt));
    c.optimizer = &opt;
    t = twins_of(every_layer(), &c, (manta_session_options){.shards = 2});
    for (int i = 0; i < 4; i++) {
        f = samples_of(BATCH - i % 2, i);
        twins_step(&t, &f);
        assert_same_metrics(t.cpu, t.dev);
    }
    assert_same_state(t.cpu, t.dev);
    f = samples_of(3, 9);
    twins_evaluate(&t, &f);
    twins_predict(&t, &f);
    words[4] = TABLE; /* a word that the table lacks is found before the device */
    assert_fails_with(manta_session_step(t.cpu, &f), MANTA_EINVAL, "embedding");
    assert_fails_with(manta_session_step(t.dev, &f), MANTA_EINVAL, "embedding");
    twins_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_layer_trains_alike)};

    make_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
