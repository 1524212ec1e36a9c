/* keras_own_test.c - what is said of a program's own loss and metric when a .keras file is
 * written, and when it is read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/file.h>
#include <manta/layer.h>
#include <manta/log.h>
#include <manta/version.h>

#include "nn/graph.h"
#include "ok.h"
#include "scratch.h"

typedef struct heard {
    int losses, metrics;
} heard;

static void hear(void *ctx, manta_log_level level, const char *line, size_t n)
{
    heard *h = ctx;

    (void)level;
    (void)n;
    h->losses += strstr(line, "loss=") && strstr(line, "focal");
    h->metrics += strstr(line, "metric=") && strstr(line, "hits");
}

static manta_status no_loss(const manta_loss_call *c)
{
    (void)c;
    return MANTA_OK;
}

static manta_status no_metric(const manta_loss_call *c, double *sum, double *count)
{
    (void)c;
    *sum = *count = 1;
    return MANTA_OK;
}

/* Saved after every epoch, a program's own loss and metric are told of once. */
static void what_is_left_out_is_said_once(void **state)
{
    const manta_loss loss = {.name = "focal", .fn = no_loss};
    const manta_metric metrics[] = {{.name = "hits", .fn = no_metric}, {.name = "mean_absolute_error"}};
    manta_model *m = manta_model_new("m");
    manta_saved *s = NULL;
    const manta_loss *losses;
    const manta_metric *kept;
    heard h = {0};
    int n;

    (void)state;
    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){3});
    manta_model_add(m, manta_flatten(m));
    assert_ok(manta_model_build(m));
    manta_contents c = {.model = m, .n_losses = 1, .losses = &loss, .n_metrics = 2, .metrics = metrics};
    manta_log_set_sink(hear, &h);
    for (int epoch = 0; epoch < 5; epoch++) assert_ok(manta_file_write(scratch_path("m.keras"), NULL, &c));
    manta_log_set_sink(NULL, NULL);
    assert_int_equal(h.losses, 1);
    assert_int_equal(h.metrics, 1);

    assert_ok(manta_file_read(scratch_path("m.keras"), NULL, &s));
    assert_non_null(manta_saved_model(s));
    assert_fails_with(manta_saved_losses(s, &n, &losses), MANTA_ENOENT,
                      "m.keras: the model was trained with a loss of a program's own ('focal')");
    assert_ok(manta_saved_metrics(s, &n, &kept));
    assert_int_equal(n, 1);
    assert_string_equal(kept[0].name, "mean_absolute_error");
    assert_string_equal(manta_saved_note(s, "written_by"), "Manta " MANTA_VERSION_TEXT);
    manta_saved_free(s);
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_left_out_is_said_once)};

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
