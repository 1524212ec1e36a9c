/* trainer_storage.c - a trainer whose run lies in a storage that is no file system: loops report,
 * checkpoint in every way, die and begin again; its result reads back, and it is
 * taken up by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "trainer_fixture.h"
#include "format/scratch.h"
#include "train/box_storage.h"
#include "train/read_only.h"

typedef struct settings {
    int64_t epochs;
    bool dies; /* rank 1, in its third epoch, once */
} settings;

/* A model trained by both ranks; its state is the checkpoint. */
static manta_status train_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    trained t;
    manta_status st = line_open(w, 10, &t);

    if (st) return st;
    printf("attempt %d begins with epoch %d\n", manta_worker_attempt(w), (int)manta_worker_epoch(w));
    for (int64_t e = manta_worker_epoch(w); e < c->epochs && !st; e++) {
        manta_metrics m = {0};
        if ((st = manta_worker_train_epoch(w, t.s, t.l, e, &m))) break;
        if (c->dies && e == 2 && manta_worker_rank(w) == 1 && !manta_worker_attempt(w)) raise(SIGKILL);
        st = manta_report_session(w, &m, t.s, e + 1, 0);
    }
    line_close(&t);
    return st;
}

static manta_dataset *data;

static manta_result *run(const char *storage, const char *name, const settings *c, bool resume)
{
    manta_trainer_options o = {
        .loop = train_loop,
        .config = c,
        .config_size = sizeof *c,
        .scaling = {.num_workers = 2},
        .run = {.name = name, .storage = storage, .resume = resume, .checkpoints = {.keep = 2}},
        .n_datasets = 1,
        .datasets = (manta_named_dataset[]){{.name = "train", .dataset = data}}};

    return fit(&o, MANTA_OK);
}

static void state_of(const char *checkpoint, void **bytes, size_t *n)
{
    char *path = mem_printf("%s/state.safetensors", checkpoint);

    assert_int_equal(storage_read(path, 1 << 20, bytes, n), MANTA_OK);
    mem_free(path);
}

static void assert_same_checkpoint(const char *a, const char *b)
{
    void *x, *y;
    size_t n, m;

    state_of(a, &x, &n);
    state_of(b, &y, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    mem_try_free(x);
    mem_try_free(y);
}

static void assert_nothing_left(void)
{
    file_names names = {0};

    assert_int_not_equal(access("box:", F_OK), 0);
    if (!file_list(scratch_path("cache/manta/stage"), &names)) assert_int_equal(names.n, 0);
    file_names_release(&names);
}

static char *said_by(const char *folder, int rank)
{
    manta_run_log_reader *in;
    buf all = {0};
    const char *text;
    char *copy;
    size_t n;

    assert_int_equal(manta_run_log_open(folder, "rank", rank, &in), MANTA_OK);
    do {
        assert_int_equal(manta_run_log_read(in, &text, &n), MANTA_OK);
        buf_add(&all, text, n);
    } while (n);
    manta_run_log_close(in);
    copy = mem_strdup(buf_text(&all));
    buf_release(&all);
    return copy;
}

/* The same to the bit, but for when they were reported. */
static void assert_same_points(const manta_run_series *a, const manta_run_series *b)
{
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const manta_run_point *x = &a->points[i], *y = &b->points[i];
        assert_int_equal(x->epoch, y->epoch);
        assert_int_equal(x->step, y->step);
        assert_memory_equal(&x->value, &y->value, sizeof x->value);
        assert_true(x->time_s > 0 && y->time_s > 0);
    }
}

static void a_worker_dies_and_the_run_goes_on(void **state)
{
    settings calm = {.epochs = 5}, hard = {.epochs = 5, .dies = true};
    manta_result *a = run(scratch_dir, "calm", &calm, false), *b = run("box://runs", "hard", &hard, false),
                 *c;
    char *said;

    (void)state;
    assert_int_equal(b->failures, 1);
    assert_string_equal(b->path, "box://runs/hard");
    assert_string_equal(b->checkpoint, "box://runs/hard/checkpoints/checkpoint-000005");
    assert_int_equal(b->n_checkpoints, 2);
    assert_same_checkpoint(a->checkpoint, b->checkpoint);
    assert_int_equal(series(b, "loss")->n, 5);
    assert_same_points(series(a, "loss"), series(b, "loss"));
    said = said_by(b->path, 1);
    assert_non_null(strstr(said, "attempt 0 begins with epoch 0\n"));
    assert_non_null(strstr(said, "\nattempt 1 begins with epoch "));
    mem_free(said);
    assert_nothing_left();
    /* Later, from the storage alone. */
    assert_int_equal(manta_result_read("box://runs/hard", &c), MANTA_OK);
    assert_int_equal(c->status, MANTA_OK);
    assert_int_equal(c->failures, 1);
    assert_int_equal(c->n_checkpoints, 2);
    assert_string_equal(manta_result_best(c, "loss", "min"), c->checkpoint);
    manta_result_free(a);
    manta_result_free(b);
    manta_result_free(c);
}

static void taken_up_by_name(void **state)
{
    settings more = {.epochs = 8};
    manta_result *a = run(scratch_dir, "calm", &more, true), *b = run("box://runs", "hard", &more, true);
    manta_run_info *all;
    char *said;
    int n;

    (void)state;
    assert_same_checkpoint(a->checkpoint, b->checkpoint);
    assert_int_equal(series(b, "loss")->n, 8);
    said = said_by(b->path, 0); /* of both drivers */
    assert_non_null(strstr(said, "attempt 1 begins with epoch "));
    assert_non_null(strstr(said, "attempt 0 begins with epoch 5\n"));
    mem_free(said);
    assert_int_equal(manta_runs_list("box://runs", &all, &n), MANTA_OK);
    assert_int_equal(n, 1);
    assert_string_equal(all[0].status, "done");
    assert_int_equal(all[0].epoch, 8);
    manta_runs_free(all);
    manta_result_free(a);
    manta_result_free(b);
    assert_nothing_left();
}

/* ---- folders of several ranks ---- */

static manta_status folders_loop(manta_worker *w)
{
    manta_metrics m = {0};
    manta_status st;
    char name[32], *folder;

    one_metric(&m, "x", manta_worker_rank(w));
    if (strcmp(manta_worker_storage(w), "box://runs/folders") != 0)
        return manta_fail(MANTA_EINTERNAL, "its run");
    if (manta_worker_checkpoint(w)) { /* a second start: what both gave is in one folder */
        if ((st = manta_worker_temp_folder(w, &folder))) return st;
        st = manta_checkpoint_copy(manta_worker_checkpoint(w), folder);
        for (int i = 0; i < 2 && !st; i++) {
            char *path = mem_printf("%s/rank-%d.txt", folder, i);
            if (access(path, F_OK)) st = manta_fail(MANTA_ECORRUPT, "%s is missing", path);
            mem_free(path);
        }
        free(folder);
        return st;
    }
    if ((st = manta_worker_temp_folder(w, &folder))) return st;
    snprintf(name, sizeof name, "rank-%d.txt", manta_worker_rank(w));
    write_text(folder, name, "mine");
    st = manta_report_checkpoint(w, &m, folder, NULL);
    free(folder);
    return st;
}

static void ranks_give_folders(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        manta_trainer_options o = {.loop = folders_loop,
                                   .scaling = {.num_workers = 2},
                                   .run = {.name = "folders", .storage = "box://runs", .resume = again}};
        manta_result *r = fit(&o, MANTA_OK);
        assert_int_equal(r->n_checkpoints, 1);
        manta_result_free(r);
        assert_nothing_left();
    }
}

/* ---- read-only ---- */

/* From the n-th operation on nothing can be written: the loops end as they would,
 * the run counts as failed with one sentence, and goes on when it can be written. */
static void a_storage_that_becomes_read_only(void **state)
{
    settings c = {.epochs = 4};
    int refused = 0, told = 0;
    manta_result *whole;
    int64_t all;

    (void)state;
    atomic_store(&box_writes, 0);
    whole = run("box://runs", "whole", &c, false);
    all = atomic_load(&box_writes);
    for (int64_t stop = 1; stop <= all; stop += 6) {
        manta_trainer_options o = {.loop = train_loop,
                                   .config = &c,
                                   .config_size = sizeof c,
                                   .scaling = {.num_workers = 2},
                                   .run = {.storage = "box://cut", .checkpoints = {.keep = 2}},
                                   .n_datasets = 1,
                                   .datasets = (manta_named_dataset[]){{.name = "train", .dataset = data}}};
        manta_result *r = NULL;
        manta_status st;
        char name[24];
        snprintf(name, sizeof name, "cut-%d", (int)stop);
        o.run.name = name;
        atomic_store(&box_writes, 0);
        atomic_store(&box_stop_at, stop);
        st = manta_trainer_fit(&o, &r);
        if (st || atomic_load(&box_writes) >= stop) { /* how much there is to hand over differs */
            assert_int_equal(st, MANTA_EPERM);
            assert_non_null(strstr(manta_error_text(), "the box is read-only"));
            refused += r == NULL;
            told += r != NULL;
        }
        if (r) assert_int_equal(r->error_rank, -1); /* no rank is to blame */
        manta_result_free(r);
        assert_nothing_left();
        atomic_store(&box_stop_at, 0);
        o.run.resume = true;
        r = fit(&o, MANTA_OK);
        assert_same_checkpoint(r->checkpoint, whole->checkpoint);
        assert_int_equal(series(r, "loss")->n, 4);
        manta_result_free(r);
    }
    assert_true(refused >= 1 && told >= 3);
    manta_result_free(whole);
}

/* The same of a disk: workers see it too. */

static bool set_at_report(void *user, const manta_report_event *e)
{
    if (e->index == *(int64_t *)user && e->rank == 0) read_only_set(true);
    return true;
}

static void a_disk_that_is_read_only(void **state)
{
    settings c = {.epochs = 4};
    char folder[200];
    manta_result *whole = run(scratch_dir, "whole", &c, false);

    (void)state;
    snprintf(folder, sizeof folder, "%s/disk", scratch_dir);
    for (int64_t at = -1; at < 4; at++) { /* -1: from the start */
        manta_trainer_options o = {
            .loop = train_loop,
            .config = &c,
            .config_size = sizeof c,
            .scaling = {.num_workers = 2},
            .run = {.storage = folder, .checkpoints = {.keep = 2}, .report = set_at_report, .user = &at},
            .n_datasets = 1,
            .datasets = (manta_named_dataset[]){{.name = "train", .dataset = data}}};
        manta_result *r = NULL;
        char name[24];
        snprintf(name, sizeof name, "disk%d", (int)at);
        o.run.name = name;
        if (at < 0) read_only_set(true);
        assert_int_equal(manta_trainer_fit(&o, &r), MANTA_EPERM);
        assert_non_null(strstr(manta_error_text(), "Read-only file system"));
        assert_non_null(strstr(manta_error_text(), folder));
        assert_true((r != NULL) == (at >= 0));
        manta_result_free(r);
        read_only_set(false);
        o.run.report = NULL;
        o.run.resume = true;
        r = fit(&o, MANTA_OK);
        assert_same_checkpoint(r->checkpoint, whole->checkpoint);
        assert_int_equal(series(r, "loss")->n, 4);
        manta_result_free(r);
    }
    manta_result_free(whole);
}

static int setup(void **state)
{
    (void)state;
    data = samples();
    return file_mkdirs(box_folder) || file_mkdirs(scratch_path("disk")) ? -1 : 0;
}

static int teardown(void **state)
{
    manta_dataset_unref(data);
    manta_shutdown();
    os_use(NULL);
    return scratch_teardown(state);
}

/* Workers are this program as it was at manta_init(): what they need is said in the
 * environment, and only by the first of them. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_dies_and_the_run_goes_on),
        cmocka_unit_test(taken_up_by_name),
        cmocka_unit_test(ranks_give_folders),
        cmocka_unit_test(a_storage_that_becomes_read_only),
        cmocka_unit_test(a_disk_that_is_read_only),
    };
    const char *told = getenv("TEST_SCRATCH");

    if (!told) {
        if (scratch_setup_quick(NULL)) return 1;
        setenv("TEST_SCRATCH", scratch_dir, 1);
        setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
        setenv("MANTA_LOG", "off", 1);
    } else {
        snprintf(scratch_dir, sizeof scratch_dir, "%s", told);
    }
    snprintf(box_folder, sizeof box_folder, "%s/box", scratch_dir);
    read_only_install(scratch_path("disk"), scratch_path("read-only"));
    storage_add(&box_storage);
    if (manta_init(&argc, &argv, &(manta_node_options){.num_cpus = 4})) {
        fprintf(stderr, "%s\n", manta_error_text());
        return 1;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
