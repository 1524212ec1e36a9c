/* Whole runs in a storage that is no file system: a fit's record, taken up after a
 * kill, listed, and what happens when the storage cannot be written any more. */
#include "group_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <manta/callback.h>
#include <manta/run.h>

#include "box_storage.h"
#include "format/scratch.h"
#include "read_only.h"
#include "train/run/stage.h"

/* ---- a fit in a storage ---- */

typedef struct fitted {
    manta_status st, finished;
    manta_error error; /* of the finish */
    void *state;
    size_t size;
} fitted;

static void fitted_release(fitted *f)
{
    mem_try_free(f->state);
}

static manta_status chatty(manta_sample *s, void *user)
{
    static _Atomic int said;

    for (int i = 0; i < 2; i++)
        memcpy(s->out[i].array.data, s->in[i].array.data, i ? sizeof(int64_t) : SIDE * SIDE * sizeof(float));
    if (getpid() != *(pid_t *)user && !atomic_exchange(&said, 1)) printf("said by a worker\n");
    return MANTA_OK;
}

/* Three epochs by two workers, a checkpoint every second step. */
static fitted fit_in(const char *storage, const char *name, bool resume, manta_event_fn event, void *user)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    pid_t self = getpid();
    fitted f = {0};
    manta_model *m = residual_model((manta_regularizer){0});
    manta_dataset *d = manta_dataset_map(dataset(), chatty, &self, 1, 0, NULL);
    manta_metrics metrics;
    manta_callback *c;
    manta_optimizer opt;
    manta_session *s;
    manta_run *r;

    assert_ok(manta_optimizer_named("adam", &opt));
    assert_ok(manta_run_open(
        &(manta_run_options){.storage = storage, .name = name, .resume = resume, .checkpoints = {.keep = 2}},
        &r));
    c = manta_run_recorder(r, &(manta_checkpointing_options){.every_steps = 2});
    assert_ok(manta_session_open(
        m, &(manta_compile){.optimizer = &opt, .n_losses = 1, .losses = &cross_entropy},
        &(manta_session_options){.seed = 42, .workers = 2, .threads = 1, .shards = 2}, &s));
    f.st = manta_fit(
        s, d,
        &(manta_fit_options){
            .epochs = 3, .global_batch = 32, .event = event, .user = user, .n_callbacks = 1, .callbacks = &c},
        &metrics);
    f.size = s->l.state_size;
    f.state = mem_try(f.size);
    memcpy(f.state, s->state, f.size);
    f.finished = manta_run_finish(r, "done", &metrics, NULL);
    manta_error_get(&f.error);
    manta_callback_free(c);
    manta_run_close(r);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_model_free(m);
    return f;
}

/* Nothing of a stage, and no folder called after the scheme. */
static void assert_nothing_left(void)
{
    file_names names = {0};

    assert_int_not_equal(access("box:", F_OK), 0);
    if (!file_list(scratch_path("cache/manta/stage"), &names)) assert_int_equal(names.n, 0);
    file_names_release(&names);
}

static int count_names(const char *folder, const char *prefix, uint64_t *bytes)
{
    file_names names = {0};
    int n = 0;

    *bytes = 0;
    assert_ok(storage_list(folder, &names));
    for (size_t i = 0; i < names.n; i++) {
        char *path = mem_printf("%s/%s", folder, names.at[i]);
        file_info info;
        if (!strncmp(names.at[i], prefix, strlen(prefix))) {
            assert_ok(storage_look(path, &info));
            *bytes += info.size;
            n++;
        }
        mem_free(path);
    }
    file_names_release(&names);
    return n;
}

static void assert_same_state(const fitted *a, const fitted *b)
{
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->state, b->state, a->size);
}

static void assert_same_series(const char *a, const char *b)
{
    manta_run_series *x, *y;
    int n, m;

    assert_ok(manta_run_history(a, &x, &n));
    assert_ok(manta_run_history(b, &y, &m));
    assert_int_equal(n, m);
    for (int i = 0; i < n; i++) {
        assert_string_equal(x[i].name, y[i].name);
        assert_int_equal(x[i].n, y[i].n);
        for (int64_t k = 0; k < x[i].n; k++) { /* but for when they were reported */
            const manta_run_point *p = &x[i].points[k], *q = &y[i].points[k];
            assert_true(p->epoch == q->epoch && p->step == q->step);
            assert_memory_equal(&p->value, &q->value, sizeof p->value);
            assert_true(p->time_s > 0 && q->time_s > 0);
        }
    }
    manta_run_history_free(x, n);
    manta_run_history_free(y, m);
}

static fitted calm; /* in a folder: what all others must come to */

static void a_run_lies_in_any_storage(void **state)
{
    fitted f = fit_in("box://runs", "first", false, NULL, NULL);
    manta_run_info info;
    manta_run_log_reader *in;
    manta_run *r;
    uint64_t bytes, local;
    const char *text;
    char *config;
    size_t n;

    (void)state;
    assert_ok(f.st);
    assert_ok(f.finished);
    assert_same_state(&f, &calm);
    assert_ok(manta_run_read("box://runs/first", &info));
    assert_string_equal(info.status, "done");
    assert_string_equal(info.path, "box://runs/first");
    assert_int_equal(info.epoch, 3);
    assert_int_equal(info.n_checkpoints, 2);
    assert_same_series("box://runs/first", scratch_path("calm"));
    assert_ok(manta_run_read_config("box://runs/first", &config));
    free(config);
    /* Events and logs are there whole, and what stood for the folder is gone. */
    assert_int_equal(count_names("box://runs/first", "events.out.", &bytes), 1);
    assert_int_equal(count_names(scratch_path("calm"), "events.out.", &local), 1);
    assert_int_equal(bytes, local);
    assert_ok(manta_run_log_open("box://runs/first", "rank", 1, &in));
    assert_ok(manta_run_log_read(in, &text, &n));
    assert_int_equal(n, strlen("said by a worker\n"));
    assert_memory_equal(text, "said by a worker\n", n);
    manta_run_log_close(in);
    assert_nothing_left();
    /* Its name is taken. */
    assert_int_equal(manta_run_open(&(manta_run_options){.storage = "box://runs", .name = "first"}, &r),
                     MANTA_EEXIST);
    assert_nothing_left();
    fitted_release(&f);
}

/* Logs are those of both drivers; the steps of the record are there once. */
static void taken_up_by_name(void **state)
{
    fitted f = fit_in("box://runs", "first", true, NULL, NULL); /* it is done already: nothing is trained */
    uint64_t bytes;

    (void)state;
    assert_ok(f.st);
    assert_ok(f.finished);
    assert_same_state(&f, &calm);
    assert_same_series("box://runs/first", scratch_path("calm"));
    assert_int_equal(count_names("box://runs/first", "events.out.", &bytes), 2);
    assert_int_equal(count_names("box://runs/first/log", "rank-", &bytes), 2);
    assert_nothing_left();
    fitted_release(&f);
}

/* ---- a driver that is killed ---- */

typedef struct killing {
    int64_t at;
    int64_t seen;
} killing;

static bool kill_at(void *user, manta_session *s, const manta_event *e)
{
    killing *k = user;

    (void)s;
    if (e->kind == MANTA_EVENT_STEP && k->seen++ == k->at) raise(SIGKILL);
    return true;
}

static void kill_9_of_the_driver(void **state)
{
    (void)state;
    for (int64_t at = 1; at < 9; at += 3) {
        char name[16], path[64];
        fitted f;
        int status;
        pid_t pid;
        snprintf(name, sizeof name, "killed-%d", (int)at);
        snprintf(path, sizeof path, "box://runs/%s", name);
        pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            killing k = {.at = at};
            fit_in("box://runs", name, false, kill_at, &k);
            _exit(0);
        }
        assert_true(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        f = fit_in("box://runs", name, true, NULL, NULL); /* sweeps the stage of the dead, too */
        assert_ok(f.st);
        assert_ok(f.finished);
        assert_same_state(&f, &calm);
        assert_same_series(path, scratch_path("calm"));
        assert_nothing_left();
        fitted_release(&f);
    }
}

/* ---- the list ---- */

static int list_box(manta_run_info **all)
{
    int n;

    assert_ok(manta_runs_list("box://runs", all, &n));
    for (int i = 0; i < n; i++) assert_string_equal((*all)[i].status, "done");
    return n;
}

static void listed_from_a_local_index(void **state)
{
    const char *index = scratch_path("cache/manta/index/box%3a%2f%2fruns.sqlite");
    manta_run_info *all;
    int n = list_box(&all);

    (void)state;
    assert_int_equal(n, 4);
    manta_runs_free(all);
    assert_int_equal(access(index, F_OK), 0);
    assert_int_not_equal(access(box_real("box://runs/.index.sqlite"), F_OK), 0);
    assert_int_equal(list_box(&all), 4); /* from the index */
    manta_runs_free(all);
    assert_ok(file_replace(index, "no index", 8));
    assert_int_equal(list_box(&all), 4);
    manta_runs_free(all);
    assert_int_equal(unlink(index), 0);
    assert_ok(storage_remove_tree("box://runs/killed-1"));
    assert_int_equal(list_box(&all), 3);
    manta_runs_free(all);
    assert_ok(manta_runs_list("box://nothing", &all, &n));
    assert_int_equal(n, 0);
}

/* ---- a storage that cannot be written any more ---- */

/* At the start it is one sentence, and nothing is left; in the middle of a run
 * training goes on to the same bytes, and the end tells. What was there stays
 * good to go on from. */
static void a_storage_that_becomes_read_only(void **state)
{
    int64_t all;
    int refused = 0, told = 0;

    (void)state;
    atomic_store(&box_writes, 0);
    {
        fitted f = fit_in("box://full", "whole", false, NULL, NULL);
        assert_ok(f.finished);
        fitted_release(&f);
    }
    all = atomic_load(&box_writes);
    for (int64_t stop = 1; stop <= all; stop += stop < 14 ? 1 : 9) {
        char name[16], path[40];
        manta_run *r;
        manta_status st;
        fitted f;
        snprintf(name, sizeof name, "cut-%d", (int)stop);
        snprintf(path, sizeof path, "box://full/%s", name);
        atomic_store(&box_writes, 0);
        atomic_store(&box_stop_at, stop);
        st = manta_run_open(&(manta_run_options){.storage = "box://full", .name = name}, &r);
        if (st) {
            assert_int_equal(st, MANTA_EPERM);
            assert_error_says("the box is read-only");
            refused++;
        } else {
            manta_run_close(r);
            atomic_store(&box_stop_at, 0);
            assert_ok(storage_remove_tree(path));
            atomic_store(&box_writes, 0);
            atomic_store(&box_stop_at, stop);
            f = fit_in("box://full", name, false, NULL, NULL);
            assert_ok(f.st);
            assert_same_state(&f, &calm);
            if (atomic_load(&box_writes) <
                stop) { /* the latest checkpoint wins: this one had fewer to write */
                assert_ok(f.finished);
            } else {
                assert_int_equal(f.finished, MANTA_EPERM);
                assert_non_null(strstr(f.error.text, "the box is read-only"));
                told++;
            }
            fitted_release(&f);
        }
        assert_nothing_left();
        atomic_store(&box_stop_at, 0);
        f = fit_in("box://full", name, true, NULL, NULL);
        assert_ok(f.st);
        assert_ok(f.finished);
        assert_same_state(&f, &calm);
        fitted_release(&f);
    }
    assert_true(refused > 5 && told > 5);
}

/* ---- a stage by itself ---- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", folder, name);

    assert_ok(file_replace(path, text, strlen(text)));
    mem_free(path);
}

static void assert_in_box(const char *name, const char *expected)
{
    char path[100];
    void *text = NULL;
    size_t n;
    manta_status st;

    snprintf(path, sizeof path, "box://runs/staged/%s", name);
    st = storage_read(path, 1000, &text, &n);
    if (expected) {
        assert_ok(st);
        assert_string_equal(text, expected);
    } else {
        assert_int_equal(st, MANTA_ENOENT);
    }
    mem_try_free(text);
}

static void handed_over_once(void **state)
{
    int64_t before;
    stage *s, *other;

    (void)state;
    assert_ok(storage_make("box://runs/staged"));
    assert_ok(stage_open("box://runs/staged", &s));
    write_file(stage_folder(s), "log/rank-0.000001.txt", "one");
    write_file(stage_folder(s), "log/rank-0.txt", "two");
    write_file(stage_folder(s), "events.out.a", "events");
    write_file(stage_folder(s), "other", "no business of ours");
    assert_ok(stage_hand_over(s));
    assert_in_box("log/rank-0.000001.txt", "one");
    assert_in_box("log/rank-0.txt", "two");
    assert_in_box("events.out.a", "events");
    assert_in_box("other", NULL);
    before = atomic_load(&box_writes);
    assert_ok(stage_hand_over(s));
    assert_int_equal(atomic_load(&box_writes) - before, 1); /* the folder of logs, which is there */
    write_file(stage_folder(s), "log/rank-0.txt", "two and three");
    assert_ok(stage_hand_over(s));
    assert_int_equal(atomic_load(&box_writes) - before, 3);
    assert_in_box("log/rank-0.txt", "two and three");
    {
        char *part = mem_printf("%s/log/rank-0.000001.txt", stage_folder(s));
        assert_ok(file_remove(part)); /* the oldest goes */
        mem_free(part);
    }
    assert_ok(stage_hand_over(s));
    assert_in_box("log/rank-0.000001.txt", NULL);
    assert_in_box("log/rank-0.txt", "two and three");
    /* Two of one process; and one that goes on has the logs, and the names of events. */
    assert_ok(stage_open("box://runs/staged", &other));
    assert_string_not_equal(stage_folder(s), stage_folder(other));
    stage_close(s);
    {
        char *log = mem_printf("%s/log/rank-0.txt", stage_folder(other));
        char *events = mem_printf("%s/events.out.a", stage_folder(other));
        void *text;
        size_t n;
        assert_ok(file_read(log, 100, &text, &n));
        assert_string_equal(text, "two and three");
        mem_try_free(text);
        assert_ok(file_read(events, 100, &text, &n));
        assert_int_equal(n, 0);
        mem_try_free(text);
        mem_free(log);
        mem_free(events);
    }
    assert_ok(stage_hand_over(other)); /* which leaves the events that it does not have alone */
    assert_in_box("events.out.a", "events");
    stage_close(other);
    assert_nothing_left();
    assert_ok(storage_remove_tree("box://runs/staged"));
}

/* A trainer's driver was killed: its stage goes, with what was moved aside for it,
 * and nothing else that a note may name. */
static void a_dead_stage_is_swept(void **state)
{
    char dead[200], note[300], aside[200], own[200];
    stage *s;

    (void)state;
    snprintf(dead, sizeof dead, "%s/cache/manta/stage/77.0", scratch_dir);
    snprintf(aside, sizeof aside, "%s/.mine.77.0.manta-tmp", scratch_dir);
    snprintf(own, sizeof own, "%s/mine", scratch_dir);
    assert_ok(file_mkdirs(aside));
    assert_ok(file_mkdirs(own));
    snprintf(note, sizeof note, "%s/.parts.77.0", dead);
    assert_ok(file_mkdirs(note));
    snprintf(note, sizeof note, "%s/.parts.77.0/aside-1", dead);
    assert_ok(file_replace(note, aside, strlen(aside)));
    snprintf(note, sizeof note, "%s/.parts.77.0/aside-2", dead);
    assert_ok(file_replace(note, own, strlen(own)));
    assert_ok(stage_open("box://runs/first", &s));
    assert_int_not_equal(access(dead, F_OK), 0);
    assert_int_not_equal(access(aside, F_OK), 0);
    assert_int_equal(access(own, F_OK), 0);
    stage_close(s);
    assert_nothing_left();
}

/* ---- a disk that is read-only ---- */

static const char *disk(const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/disk%s%s", scratch_dir, *name ? "/" : "", name);
    return path;
}

static void assert_read_only(manta_status st, const char *text)
{
    assert_int_equal(st, MANTA_EPERM);
    assert_non_null(strstr(text, "Read-only file system"));
    assert_non_null(strstr(text, "/disk"));
}

static void a_disk_that_is_read_only_at_the_start(void **state)
{
    fitted f = fit_in(disk(""), "there", false, NULL, NULL);
    manta_checkpoints *m;
    manta_checkpoint *c;
    manta_run_info info, *all;
    manta_run *r;
    int n;

    (void)state;
    assert_ok(f.finished);
    read_only_set(true);
    assert_read_only(manta_run_open(&(manta_run_options){.storage = disk(""), .name = "a"}, &r),
                     manta_error_text());
    assert_read_only(manta_run_open(&(manta_run_options){.storage = disk("")}, &r), manta_error_text());
    assert_read_only(
        manta_run_open(&(manta_run_options){.storage = disk(""), .name = "there", .resume = true}, &r),
        manta_error_text());
    assert_read_only(manta_checkpoints_open(disk("there/checkpoints"), NULL, &m), manta_error_text());
    assert_int_not_equal(access(disk("a"), F_OK), 0);
    /* What is there is read all the same. */
    assert_ok(manta_run_read(disk("there"), &info));
    assert_string_equal(info.status, "done");
    assert_ok(manta_runs_list(disk(""), &all, &n));
    assert_int_equal(n, 1);
    manta_runs_free(all);
    assert_ok(manta_checkpoints_open(disk("there/checkpoints"),
                                     &(manta_checkpoints_options){.read_only = true}, &m));
    assert_ok(manta_checkpoints_latest(m, &c, NULL));
    manta_checkpoint_close(c);
    manta_checkpoints_close(m);
    read_only_set(false);
    fitted_release(&f);
}

static bool becomes_read_only(void *user, manta_session *s, const manta_event *e)
{
    (void)s;
    if (e->kind == MANTA_EVENT_STEP && e->epoch == 1 && e->step == *(int64_t *)user) read_only_set(true);
    return true;
}

/* Training ends with the same bytes, the end tells, and it goes on from what stands. */
static void a_disk_that_becomes_read_only(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 3; step++) {
        char name[16], inner[320];
        manta_run_info info;
        uint64_t bytes;
        fitted f;
        snprintf(name, sizeof name, "middle-%d", (int)step);
        f = fit_in(disk(""), name, false, becomes_read_only, &step);
        assert_true(read_only_is());
        assert_ok(f.st);
        assert_same_state(&f, &calm);
        assert_read_only(f.finished, f.error.text);
        fitted_release(&f);
        assert_ok(manta_run_read(disk(name), &info));
        assert_string_equal(info.status, "ended"); /* there is no result */
        read_only_set(false);
        f = fit_in(disk(""), name, true, NULL, NULL);
        assert_ok(f.st);
        assert_ok(f.finished);
        assert_same_state(&f, &calm);
        assert_same_series(disk(name), scratch_path("calm"));
        snprintf(inner, sizeof inner, "%s/checkpoints", disk(name));
        assert_int_equal(count_names(inner, ".checkpoint", &bytes), 0);
        fitted_release(&f);
    }
}

static int setup(void **state)
{
    make_data();
    storage_add(&box_storage);
    if (scratch_setup_quick(state)) return -1;
    if (file_mkdirs(disk(""))) return -1;
    read_only_install(disk(""), scratch_path("read-only"));
    snprintf(box_folder, sizeof box_folder, "%s/box", scratch_dir);
    setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
    setenv("MANTA_LOG", "off", 1); /* what cannot be written is told many times */
    if (file_mkdirs(box_folder)) return -1;
    calm = fit_in(scratch_dir, "calm", false, NULL, NULL);
    return calm.st || calm.finished ? -1 : 0;
}

static int teardown(void **state)
{
    fitted_release(&calm);
    os_use(NULL);
    return scratch_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_lies_in_any_storage),
        cmocka_unit_test(taken_up_by_name),
        cmocka_unit_test(kill_9_of_the_driver),
        cmocka_unit_test(listed_from_a_local_index),
        cmocka_unit_test(a_storage_that_becomes_read_only),
        cmocka_unit_test(handed_over_once),
        cmocka_unit_test(a_dead_stage_is_swept),
        cmocka_unit_test(a_disk_that_is_read_only_at_the_start),
        cmocka_unit_test(a_disk_that_becomes_read_only),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
