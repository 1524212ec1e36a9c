/* train_mnist.c - the tutorial from C: build a CNN, train it on MNIST with two
 * epochs of Adam, and print its accuracy on the test set.
 *
 *     cc train_mnist.c $(pkg-config --cflags --libs manta) && ./a.out */
#include <stdio.h>

#include <manta.h>

static manta_model *cnn(void)
{
    manta_model *m = manta_model_new("cnn");

    manta_input(m, "image", MANTA_DTYPE_F32, 2, (int64_t[]){28, 28});
    manta_model_add(m, manta_reshape(m, (manta_reshape_options){.shape = {28, 28, 1}, .ndim = 3}));
    manta_model_add(m, manta_conv2d(m, (manta_conv2d_options){
                                           .filters = 32, .kernel_size = {3, 3}, .activation = "relu"}));
    manta_model_add(m, manta_max_pooling2d(m, (manta_pooling2d_options){0}));
    manta_model_add(m, manta_flatten(m));
    manta_model_add(m, manta_dropout(m, (manta_dropout_options){.rate = 0.2}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 64, .activation = "relu"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 10}));
    return m;
}

static bool show(void *user, manta_session *s, const manta_event *e)
{
    (void)user;
    (void)s;
    if (e->kind == MANTA_EVENT_EPOCH_END) {
        printf("epoch %lld: loss %.4f, accuracy %.4f, %.0f images/s\n", (long long)e->epoch + 1,
               manta_metrics_get(e->metrics, "loss"), manta_metrics_get(e->metrics, "accuracy"),
               e->samples_per_s);
    }
    return true; /* go on */
}

static manta_status run(manta_model *m, manta_session **s, manta_dataset **train, manta_dataset **test)
{
    manta_optimizer adam;
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_metric accuracy = {.name = "accuracy"};
    manta_compile c = {
        .optimizer = &adam, .n_losses = 1, .losses = &loss, .n_metrics = 1, .metrics = &accuracy};
    manta_metrics result;
    manta_status st;

    if ((st = manta_model_build(m))) return st;
    if ((st = manta_optimizer_named("adam", &adam))) return st;
    if ((st = manta_session_open(m, &c, NULL, s))) return st;
    if ((st = manta_dataset_open("mnist", NULL, train))) return st;
    if ((st = manta_dataset_open("mnist:test", NULL, test))) return st;
    if ((st = manta_fit(*s, *train, &(manta_fit_options){.epochs = 2, .batch = 64, .event = show}, NULL)))
        return st;
    if ((st = manta_evaluate(*s, *test, &(manta_fit_options){.batch = 256}, &result))) return st;
    printf("test accuracy %.4f\n", manta_metrics_get(&result, "accuracy"));
    return MANTA_OK;
}

int main(void)
{
    manta_model *m = cnn();
    manta_session *s = NULL;
    manta_dataset *train = NULL, *test = NULL;
    manta_status st = run(m, &s, &train, &test);

    if (st) fprintf(stderr, "train_mnist: %s\n", manta_error_text());
    manta_session_close(s);
    manta_dataset_unref(train);
    manta_dataset_unref(test);
    manta_model_free(m);
    return st ? 1 : 0;
}
