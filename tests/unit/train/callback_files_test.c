/* Callbacks that write files: TensorBoard's events and Keras's CSV, by every
 * option, and when a training is taken up; and the one that ends it at NaN. */
#include <math.h>
#include <unistd.h>

#include <manta/callback.h>
#include <manta/events.h>

#include "format/scratch.h"
#include "group_fixture.h"

/* 90 samples by 32: three steps an epoch. */
static void fit_with(manta_callback *c, manta_callback *backup, int64_t epochs, manta_event_fn event,
                     double rate)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    static const manta_metric accuracy = {.name = "accuracy"};
    manta_callback *list[2] = {c, backup};
    manta_model *m = residual_model((manta_regularizer){0});
    manta_dataset *d = dataset();
    manta_optimizer sgd;
    manta_session *s;
    manta_fit_options o = {.epochs = epochs,
                           .global_batch = 32,
                           .validation = d,
                           .n_callbacks = backup ? 2 : 1,
                           .callbacks = list,
                           .event = event};

    assert_ok(manta_optimizer_named("sgd", &sgd));
    if (rate > 0) sgd.learning_rate = rate;
    assert_ok(manta_session_open(
        m,
        &(manta_compile){
            .optimizer = &sgd, .n_losses = 1, .losses = &cross_entropy, .n_metrics = 1, .metrics = &accuracy},
        &(manta_session_options){.threads = 1, .seed = 3}, &s));
    assert_int_equal(manta_fit(s, d, &o, NULL), event ? MANTA_ECANCELLED : MANTA_OK);
    manta_callback_free(c);
    manta_callback_free(backup);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_model_free(m);
}

static manta_events_tag find_tag(const manta_events_log *l, const char *name)
{
    for (int i = 0; i < manta_events_tags(l); i++) {
        manta_events_tag t = manta_events_tag_at(l, i);
        if (!strcmp(t.name, name)) return t;
    }
    return (manta_events_tag){0};
}

static void assert_steps(const manta_events_log *l, const char *tag, int n, const int64_t *steps)
{
    manta_events_tag t = find_tag(l, tag);

    assert_int_equal(t.count, n);
    for (int i = 0; i < n; i++) assert_int_equal(t.points[i].step, steps[i]);
}

static void tensorboard_has_every_epoch(void **state)
{
    manta_events_log *l;

    (void)state;
    fit_with(manta_tensorboard(scratch_path("plain"), NULL), NULL, 3, NULL, 0);
    assert_ok(manta_events_read(scratch_path("plain/train"), &l));
    assert_steps(l, "epoch_loss", 3, (int64_t[]){0, 1, 2});
    assert_steps(l, "epoch_accuracy", 3, (int64_t[]){0, 1, 2});
    assert_steps(l, "epoch_learning_rate", 3, (int64_t[]){0, 1, 2});
    assert_int_equal(find_tag(l, "batch_loss").count, 0);
    assert_true(manta_events_has_graph(l));
    for (int i = 0; i < manta_events_tags(l); i++)
        assert_int_equal(manta_events_tag_at(l, i).kind, MANTA_EVENTS_SCALAR);
    assert_true(find_tag(l, "epoch_loss").points[2].value < find_tag(l, "epoch_loss").points[0].value);
    manta_events_log_free(l);
    assert_ok(manta_events_read(scratch_path("plain/validation"), &l));
    assert_steps(l, "epoch_loss", 3, (int64_t[]){0, 1, 2});
    assert_steps(l, "evaluation_accuracy_vs_iterations", 3, (int64_t[]){3, 6, 9});
    manta_events_log_free(l);
}

static void tensorboard_options(void **state)
{
    manta_tensorboard_options o = {.update_freq = 2, .histogram_freq = 2, .no_graph = true};
    manta_events_tag histogram = {0};
    manta_events_log *l;

    (void)state;
    fit_with(manta_tensorboard(scratch_path("all"), &o), NULL, 3, NULL, 0);
    assert_ok(manta_events_read(scratch_path("all/train"), &l));
    assert_steps(l, "batch_loss", 4, (int64_t[]){2, 4, 6, 8});
    assert_steps(l, "batch_accuracy", 4, (int64_t[]){2, 4, 6, 8});
    assert_steps(l, "epoch_loss", 3, (int64_t[]){0, 1, 2});
    assert_false(manta_events_has_graph(l));
    for (int i = 0; i < manta_events_tags(l); i++) {
        if (manta_events_tag_at(l, i).kind == MANTA_EVENTS_HISTOGRAM) histogram = manta_events_tag_at(l, i);
    }
    assert_int_equal(histogram.count, 2); /* epochs 0 and 2 */
    assert_non_null(strstr(histogram.name, "/histogram"));
    manta_events_log_free(l);
}

static bool cut_in_epoch_1(void *user, manta_session *s, const manta_event *e)
{
    (void)user;
    (void)s;
    return !(e->kind == MANTA_EVENT_STEP && e->epoch == 1 && e->step == 2);
}

/* Taken up in the middle: what was written before is still there. */
static void tensorboard_goes_on(void **state)
{
    manta_events_log *l;

    (void)state;
    for (int by_batch = 0; by_batch < 2; by_batch++) {
        manta_tensorboard_options o = {.update_freq = by_batch};
        const char *folder = by_batch ? "batches" : "epochs";
        char path[64];
        for (int turn = 0; turn < 2; turn++) {
            fit_with(
                manta_tensorboard(scratch_path(folder), &o),
                manta_backup_and_restore(scratch_path("backup"), &(manta_backup_options){.every_steps = 1}),
                3, turn ? NULL : cut_in_epoch_1, 0);
        }
        snprintf(path, sizeof path, "%s/train", folder);
        assert_ok(manta_events_read(scratch_path(path), &l));
        assert_steps(l, "epoch_loss", 3, (int64_t[]){0, 1, 2});
        if (by_batch) assert_steps(l, "batch_loss", 9, (int64_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
        manta_events_log_free(l);
        snprintf(path, sizeof path, "%s/validation", folder);
        assert_ok(manta_events_read(scratch_path(path), &l));
        assert_steps(l, "evaluation_loss_vs_iterations", 3, (int64_t[]){3, 6, 9});
        manta_events_log_free(l);
    }
}

static int64_t cut_at; /* iterations */

static bool cut_at_step(void *user, manta_session *s, const manta_event *e)
{
    (void)user;
    return !(e->kind == MANTA_EVENT_STEP && manta_session_iterations(s) == cut_at);
}

/* The times of a tag's points. */
static void get_times(const char *part, const char *tag, int n, double *out)
{
    manta_events_log *l;
    manta_events_tag t;

    assert_ok(manta_events_read(scratch_path(part), &l));
    t = find_tag(l, tag);
    assert_true(t.count >= n);
    for (int i = 0; i < n; i++) out[i] = t.points[i].wall_s;
    manta_events_log_free(l);
}

/* Cut off again and again, each time behind the last backup: every step and every
 * epoch has one point, and those from before the backup keep their times. */
static void tensorboard_has_each_point_once(void **state)
{
    static const int64_t cuts[] = {2, 5, 6, 8};
    manta_tensorboard_options o = {.update_freq = 1, .histogram_freq = 1};
    double before[3], after[3];
    manta_events_log *l;

    (void)state;
    for (int every = 0; every <= 2; every += 2) { /* at epochs; every second step */
        const char *folder = every ? "by-steps" : "by-epochs";
        char part[64];
        snprintf(part, sizeof part, "%s/train", folder);
        for (int turn = 0; turn <= 4; turn++) {
            cut_at = turn < 4 ? cuts[turn] : 0;
            fit_with(manta_tensorboard(scratch_path(folder), &o),
                     manta_backup_and_restore(scratch_path("backup"),
                                              &(manta_backup_options){.every_steps = every}),
                     3, cut_at ? cut_at_step : NULL, 0);
            if (turn == 1) get_times(part, "batch_loss", 3, before);
        }
        get_times(part, "batch_loss", 3, after);
        assert_memory_equal(before, after, sizeof before);
        assert_ok(manta_events_read(scratch_path(part), &l));
        assert_true(manta_events_purged(l) > 0); /* there was something to take back */
        assert_steps(l, "batch_loss", 9, (int64_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
        assert_steps(l, "batch_accuracy", 9, (int64_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
        assert_steps(l, "epoch_loss", 3, (int64_t[]){0, 1, 2});
        assert_steps(l, "epoch_learning_rate", 3, (int64_t[]){0, 1, 2});
        for (int i = 0; i < manta_events_tags(l); i++) {
            manta_events_tag t = manta_events_tag_at(l, i);
            if (t.kind == MANTA_EVENTS_HISTOGRAM) assert_int_equal(t.count, 3);
        }
        assert_true(manta_events_has_graph(l) && !manta_events_damage(l));
        manta_events_log_free(l);
        snprintf(part, sizeof part, "%s/validation", folder);
        assert_ok(manta_events_read(scratch_path(part), &l));
        assert_steps(l, "epoch_loss", 3, (int64_t[]){0, 1, 2});
        assert_steps(l, "evaluation_loss_vs_iterations", 3, (int64_t[]){3, 6, 9});
        assert_steps(l, "evaluation_accuracy_vs_iterations", 3, (int64_t[]){3, 6, 9});
        manta_events_log_free(l);
    }
}

/* ---- CSV ---- */

static int read_lines(const char *path, char lines[][256], int most)
{
    FILE *f = fopen(path, "r");
    int n = 0;

    assert_non_null(f);
    while (n < most && fgets(lines[n], 256, f)) n++;
    fclose(f);
    return n;
}

static void a_csv_log_has_a_line_for_each_epoch(void **state)
{
    static char lines[16][256];
    const char *path = scratch_path("log.csv");

    (void)state;
    fit_with(manta_csv_logger(path, NULL), NULL, 2, NULL, 0);
    assert_int_equal(read_lines(path, lines, 16), 3);
    assert_string_equal(lines[0], "epoch,accuracy,loss,val_accuracy,val_loss\n");
    assert_true(!strncmp(lines[1], "0,", 2) && !strncmp(lines[2], "1,", 2));
    fit_with(manta_csv_logger(path, &(manta_csv_logger_options){.append = true}), NULL, 1, NULL, 0);
    assert_int_equal(read_lines(path, lines, 16), 4); /* no second head */
    assert_true(!strncmp(lines[3], "0,", 2));
    fit_with(manta_csv_logger(path, &(manta_csv_logger_options){.separator = ';'}), NULL, 1, NULL, 0);
    assert_int_equal(read_lines(path, lines, 16), 2);
    assert_string_equal(lines[0], "epoch;accuracy;loss;val_accuracy;val_loss\n");
    for (int turn = 0; turn < 2; turn++) { /* cut and taken up: every epoch is one line */
        fit_with(manta_csv_logger(scratch_path("cut.csv"), NULL),
                 manta_backup_and_restore(scratch_path("backup"), &(manta_backup_options){.every_steps = 1}),
                 3, turn ? NULL : cut_in_epoch_1, 0);
    }
    assert_int_equal(read_lines(scratch_path("cut.csv"), lines, 16), 4);
    for (int i = 0; i < 3; i++) assert_int_equal(strtol(lines[i + 1], NULL, 10), i);
}

/* Behind the backup a line is written, then all is lost but the files: cut, the line
 * goes; appended to, what was there before the run stays; gone, no zeros stand for it. */
static char begin_csv[256];

static bool cut_in_epoch_0(void *user, manta_session *s, const manta_event *e)
{
    FILE *f;

    (void)user;
    (void)s;
    if (e->kind != MANTA_EVENT_STEP || e->epoch != 0 || e->step != 2) return true;
    assert_non_null(f = fopen(begin_csv, "a"));
    fputs("0,beyond\n", f);
    fclose(f);
    return false;
}

static void csv_goes_on_from_nothing(void **state)
{
    static char lines[16][256];
    const char *path = begin_csv;

    (void)state;
    snprintf(begin_csv, sizeof begin_csv, "%s", scratch_path("begin.csv"));
    for (int append = 0; append < 2; append++) {
        for (int turn = 0; turn < 2; turn++) {
            fit_with(
                manta_csv_logger(path, &(manta_csv_logger_options){.append = append}),
                manta_backup_and_restore(scratch_path("backup"), &(manta_backup_options){.every_steps = 1}),
                2, turn ? NULL : cut_in_epoch_0, 0);
        }
        assert_int_equal(read_lines(path, lines, 16), append ? 3 + 2 : 3);
        assert_true(!strncmp(lines[append ? 3 : 1], "0,0.", 4) || !strncmp(lines[append ? 3 : 1], "0,1,", 4));
    }
    fit_with(manta_csv_logger(path, NULL),
             manta_backup_and_restore(scratch_path("backup"), &(manta_backup_options){.every_steps = 1}), 3,
             cut_in_epoch_1, 0);
    assert_int_equal(remove(path), 0);
    fit_with(manta_csv_logger(path, NULL),
             manta_backup_and_restore(scratch_path("backup"), &(manta_backup_options){.every_steps = 1}), 3,
             NULL, 0);
    assert_int_equal(read_lines(path, lines, 16), 3); /* the head, and what was still to do */
    assert_true(!strncmp(lines[0], "epoch,", 6) && !strncmp(lines[1], "1,", 2));
}

/* ---- a loss that is no number ---- */

static void nan_ends_it(void **state)
{
    static char lines[16][256];

    (void)state;
    /* With a rate like this the weights are no numbers after a step or two. */
    fit_with(manta_terminate_on_nan(), manta_csv_logger(scratch_path("nan.csv"), NULL), 9, NULL, 1e30);
    assert_true(read_lines(scratch_path("nan.csv"), lines, 16) < 9);
    fit_with(manta_csv_logger(scratch_path("nan.csv"), NULL), NULL, 9, NULL, 1e30); /* nobody minds */
    assert_int_equal(read_lines(scratch_path("nan.csv"), lines, 16), 10);
    assert_non_null(strstr(lines[9], "nan"));
}

static int setup(void **state)
{
    make_data();
    return scratch_setup_quick(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensorboard_has_every_epoch),
        cmocka_unit_test(tensorboard_options),
        cmocka_unit_test(tensorboard_goes_on),
        cmocka_unit_test(tensorboard_has_each_point_once),
        cmocka_unit_test(a_csv_log_has_a_line_for_each_epoch),
        cmocka_unit_test(csv_goes_on_from_nothing),
        cmocka_unit_test(nan_ends_it),
    };

    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
