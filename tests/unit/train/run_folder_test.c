/* A run's folder: what it keeps while workers die, the storage goes and the clock jumps. */
#include "group_fixture.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <manta/callback.h>
#include <manta/run.h>

#include "base/clock.h"
#include "train/log/rank_log.h"

static char base_folder[64];

static int setup(void **state)
{
    (void)state;
    make_data();
    return temp_folder(base_folder, sizeof base_folder, "/tmp", "run") ? 0 : -1;
}

static int remove_all(const char *path)
{
    char line[600];

    snprintf(line, sizeof line, "rm -rf '%s' 2>/dev/null", path);
    return system(line);
}

static int teardown(void **state)
{
    (void)state;
    return remove_all(base_folder);
}

static char *read_text(const char *folder, const char *name)
{
    char path[600], *text = calloc(1, 1 << 20);
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if ((f = fopen(path, "r"))) {
        size_t n = fread(text, 1, (1 << 20) - 1, f);
        text[n] = '\0';
        fclose(f);
    }
    return text;
}

/* How often `what` stands at the beginning of a line. */
static int lines_with(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        n += !strncmp(at, what, strlen(what));
    return n;
}

/* A fit with a run's recorder, in the folder `name` of base_folder. */
typedef struct recorded {
    manta_run *run;
    char path[300];
    outcome out;
    manta_status finished;
    manta_error error; /* of the finish */
} recorded;

static recorded record_fit(const char *name, const training *t, int64_t every_steps)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    recorded r = {0};
    manta_model *m = residual_model((manta_regularizer){0});
    manta_dataset *d = t->data ? t->data : dataset();
    manta_callback *c;
    manta_optimizer opt;
    manta_session *s;

    snprintf(r.path, sizeof r.path, "%s/%s", base_folder, name);
    assert_ok(manta_optimizer_named("sgd", &opt));
    assert_ok(manta_run_open(&(manta_run_options){.storage = base_folder, .name = name}, &r.run));
    c = manta_run_recorder(r.run, &(manta_checkpointing_options){.every_steps = every_steps});
    assert_ok(manta_session_open(
        m, &(manta_compile){.optimizer = &opt, .n_losses = 1, .losses = &cross_entropy},
        &(manta_session_options){.seed = 42, .workers = t->workers, .threads = 1, .shards = 2}, &s));
    r.out.st = manta_fit(s, d,
                         &(manta_fit_options){.epochs = t->epochs ? t->epochs : 2,
                                              .global_batch = 32,
                                              .event = t->event,
                                              .user = t->user,
                                              .n_callbacks = 1,
                                              .callbacks = &c},
                         &r.out.metrics);
    manta_error_get(&r.out.error);
    r.out.size = s->l.state_size;
    r.out.state = mem_try(r.out.size);
    memcpy(r.out.state, s->state, r.out.size);
    r.finished = manta_run_finish(r.run, "done", &r.out.metrics, NULL);
    manta_error_get(&r.error);
    manta_callback_free(c);
    manta_run_close(r.run);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_model_free(m);
    return r;
}

/* ---- what workers print ---- */

/* Speaks once for each process, on both streams; the first worker of a rank
 * dies in the middle of a line. */
typedef struct speech {
    pid_t controller;
    const char *folder; /* a file in it says that somebody has died already */
} speech;

static manta_status speak(manta_sample *s, void *user)
{
    const speech *p = user;
    static _Atomic int said;
    char mark[400];
    int fd;

    for (int i = 0; i < 2; i++)
        memcpy(s->out[i].array.data, s->in[i].array.data, i ? sizeof(int64_t) : SIDE * SIDE * sizeof(float));
    if (getpid() == p->controller || atomic_exchange(&said, 1)) return MANTA_OK;
    printf("on standard output\n");
    fprintf(stderr, "on standard error\n");
    snprintf(mark, sizeof mark, "%s/died", p->folder);
    fd = open(mark, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) return MANTA_OK;
    fprintf(stderr, "cut off");
    raise(SIGKILL);
    return MANTA_OK;
}

static bool log_births(void *user, manta_session *s, const manta_event *e)
{
    char path[400];

    (void)s;
    snprintf(path, sizeof path, "%s/printing/log", (const char *)user);
    if (e->kind == MANTA_EVENT_WORKER) assert_ok(rank_log_add(path, "rank", e->rank, "started"));
    return true;
}

static void what_workers_print_is_kept(void **state)
{
    speech p = {.controller = getpid(), .folder = base_folder};
    training t = {.workers = 2, .user = base_folder, .event = log_births};
    char *ranks[2];
    recorded r;
    int cut = 0, before = 0;

    (void)state;
    printf("not yet written, and not by a worker"); /* waits in the buffer while they are forked */
    t.data = manta_dataset_map(dataset(), speak, &p, 1, 0, NULL);
    r = record_fit("printing", &t, 0);
    assert_int_equal(r.out.st, MANTA_OK);
    assert_int_equal(r.finished, MANTA_OK);
    ranks[0] = read_text(r.path, "log/rank-0.txt");
    ranks[1] = read_text(r.path, "log/rank-1.txt");
    for (int i = 0; i < 2; i++) {
        bool died = strstr(ranks[i], "cut off") != NULL;
        cut += died;
        before += strstr(ranks[i], "not yet written") != NULL;
        /* The worker in its place has spoken too, unless the other one did all that was left. */
        assert_in_range(lines_with(ranks[i], "on standard output"), 1, 1 + died);
        assert_int_equal(lines_with(ranks[i], "on standard error"),
                         lines_with(ranks[i], "on standard output"));
        /* What was cut off is a line of its own, and so is all that comes behind it. */
        if (died) assert_true(lines_with(ranks[i], "cut off") == 1 && strstr(ranks[i], "cut off\n"));
        assert_in_range(lines_with(ranks[i], "20"), 1, 1 + died); /* births begin with the year */
        free(ranks[i]);
    }
    assert_int_equal(cut, 1);
    assert_int_equal(before, 0);
    mem_try_free(r.out.state);
}

static void our_lines_stand_alone(void **state)
{
    char path[400], *text;
    int fd;

    (void)state;
    assert_ok(rank_log_add(base_folder, "rank", 7, "first"));
    snprintf(path, sizeof path, "%s/rank-7.txt", base_folder);
    fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "half", 4), 4);
    close(fd);
    assert_ok(rank_log_add(base_folder, "rank", 7, "two\nlines\r"));
    text = read_text(base_folder, "rank-7.txt");
    assert_non_null(strstr(text, " first\nhalf\n"));
    assert_non_null(strstr(text, " two lines \n"));
    free(text);
    assert_int_equal(rank_log_add("/nowhere/at/all", "rank", 0, "x"), MANTA_ENOENT);
}

/* ---- storage that goes ---- */

typedef enum loss { LOSS_REMOVED, LOSS_FILE } loss;

typedef struct vanishing {
    const char *path;
    loss how;
    bool done;
} vanishing;

/* After the third step the run's folder is gone, or a file is in its base_folder. */
static bool vanish(void *user, manta_session *s, const manta_event *e)
{
    vanishing *v = user;
    char away[400];

    (void)s;
    if (v->done || e->kind != MANTA_EVENT_STEP || e->step < 3) return true;
    v->done = true;
    if (v->how == LOSS_REMOVED) {
        while (remove_all(v->path)) { /* the writer of checkpoints puts files there meanwhile */
        }
    } else {
        snprintf(away, sizeof away, "%s.away", v->path);
        assert_int_equal(rename(v->path, away), 0);
        close(open(v->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    }
    return true;
}

static void storage_that_vanishes_ends_no_training(void **state)
{
    training calm = {.workers = 2, .epochs = 3};
    recorded a = record_fit("calm", &calm, 1);

    (void)state;
    assert_int_equal(a.out.st, MANTA_OK);
    assert_int_equal(a.finished, MANTA_OK);
    for (loss how = LOSS_REMOVED; how <= LOSS_FILE; how++) {
        char path[300];
        vanishing v = {.path = path, .how = how};
        training t = {.workers = 2, .epochs = 3, .event = vanish, .user = &v};
        recorded b;
        snprintf(path, sizeof path, "%s/lost-%d", base_folder, how);
        b = record_fit(strrchr(path, '/') + 1, &t, 1);
        assert_true(v.done);
        assert_int_equal(b.out.st, MANTA_OK);
        assert_int_equal(b.out.size, a.out.size);
        assert_memory_equal(b.out.state, a.out.state, a.out.size);
        /* One sentence, with the place in it. */
        assert_int_not_equal(b.finished, MANTA_OK);
        assert_non_null(strstr(b.error.text, path));
        mem_try_free(b.out.state);
    }
    mem_try_free(a.out.state);
}

/* ---- a clock that is set ---- */

static int64_t wall, steady;

static int64_t jumping_wall(void)
{
    return wall;
}

static int64_t steady_now(void)
{
    return steady += 1000000; /* a millisecond a look */
}

static void a_clock_that_jumps_changes_no_duration(void **state)
{
    static const clock_source source = {.now_ns = steady_now, .wall_ns = jumping_wall};
    static const int64_t jumps[] = {-3600, 7200, -1000000000, 86400 * 365};
    manta_metrics m = {.n = 1, .name = {"loss"}, .value = {1}};
    double last = 0;
    manta_run_info info;
    char *text, *line, *rest;
    manta_run *r;

    (void)state;
    wall = 1700000000ll * 1000000000;
    clock_replace(&source);
    assert_ok(manta_run_open(&(manta_run_options){.storage = base_folder, .name = "jumps"}, &r));
    for (int i = 0; i < 4; i++) {
        wall += jumps[i] * 1000000000;
        assert_ok(manta_run_report(r, i + 1, i + 1, 0, &m));
        manta_run_log(r, 0, "still here");
    }
    wall = 0;
    assert_ok(manta_run_finish(r, "done", &m, NULL));
    manta_run_close(r);
    clock_replace(NULL);
    text = read_text(base_folder, "jumps/metrics.jsonl");
    rest = text;
    for (int i = 0; i < 4; i++) {
        json_t *o = (line = strsep(&rest, "\n")) ? json_loads(line, 0, NULL) : NULL;
        double at = json_number_value(json_object_get(o, "time"));
        assert_true(at > last && at >= 1700000000 && at < 1700000100);
        last = at;
        json_decref(o);
    }
    free(text);
    snprintf(info.path, sizeof info.path, "%s/jumps", base_folder);
    assert_ok(manta_run_read(info.path, &info));
    assert_string_equal(info.status, "done");
    assert_true(info.began_s == 1700000000 && info.ended_s >= last && info.ended_s < 1700000100);
    assert_int_equal(info.epoch, 4);
}

/* ---- times ---- */

static int64_t standing(void)
{
    return steady;
}

static const clock_source by_hand = {.now_ns = standing, .wall_ns = jumping_wall};

static void pass(int64_t seconds)
{
    steady += seconds * 1000000000;
    wall += seconds * 1000000000;
}

static manta_run *open_again(const char *name)
{
    manta_run *r;

    assert_ok(manta_run_open(&(manta_run_options){.storage = base_folder, .name = name, .resume = true}, &r));
    return r;
}

static void read_again(const char *name, manta_run_info *out)
{
    char path[400];

    snprintf(path, sizeof path, "%s/%s", base_folder, name);
    assert_ok(manta_run_read(path, out));
}

static void assert_close(double a, double b)
{
    if (fabs(a - b) > 1e-3) fail_msg("%.6f is not %.6f", a, b);
}

/* A run that is resumed has begun when it began; what lies between its take-ups is not
 * time that it took. */
static void a_resumed_run_keeps_its_beginning(void **state)
{
    const double began = 1700000000;
    manta_metrics m = {0};
    manta_run_info i;
    manta_run *r;

    (void)state;
    wall = 1700000000ll * 1000000000;
    clock_replace(&by_hand);
    r = open_again("resumed");
    pass(10);
    assert_ok(manta_run_finish(r, "interrupted", &m, NULL));
    manta_run_close(r);
    read_again("resumed", &i);
    assert_close(i.began_s, began);
    assert_close(i.spent_s, 10);
    assert_int_equal(i.resumed, 0);

    pass(1000);
    r = open_again("resumed");
    pass(5);
    read_again("resumed", &i); /* while it runs */
    assert_string_equal(i.status, "running");
    assert_close(i.began_s, began);
    assert_close(i.taken_s, began + 1010);
    assert_close(i.spent_s, 10);
    assert_int_equal(i.resumed, 1);
    assert_ok(manta_run_report(r, 1, 1, 0, &m));
    pass(3);
    manta_run_close(r); /* killed: what it did counts until that line */
    read_again("resumed", &i);
    assert_string_equal(i.status, "ended");
    assert_close(i.began_s, began);
    assert_close(i.spent_s, 10 + 5);

    pass(1000);
    r = open_again("resumed"); /* takes that line back, for want of a checkpoint */
    manta_run_close(r); /* and is killed at once */
    pass(1000);
    r = open_again("resumed");
    pass(2);
    assert_ok(manta_run_finish(r, "done", &m, NULL));
    manta_run_close(r);
    read_again("resumed", &i);
    assert_string_equal(i.status, "done");
    assert_close(i.began_s, began);
    assert_close(i.spent_s, 10 + 5 + 2);
    assert_close(i.ended_s - i.taken_s, 2);
    assert_int_equal(i.resumed, 3);
    clock_replace(NULL);
}

/* What another version, or nobody, has written: times are those that there are. */
static void unreadable_times_are_left_out(void **state)
{
    static const char *const texts[] = {"", "[1]", "{\"began\": \"x\", \"spent\": -5, \"resumed\": -1}",
                                        "{\"began\": 1e999}"};
    manta_metrics m = {0};
    manta_run_info i;
    char path[400];
    manta_run *r;
    FILE *f;

    (void)state;
    wall = 1700000000ll * 1000000000;
    clock_replace(&by_hand);
    manta_run_close(open_again("odd"));
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        snprintf(path, sizeof path, "%s/odd/times.json", base_folder);
        assert_non_null(f = fopen(path, "w"));
        fputs(texts[k], f);
        fclose(f);
        read_again("odd", &i);
        assert_true(i.began_s > 0 && i.spent_s == 0 && i.resumed == 0);
    }
    snprintf(path, sizeof path, "%s/odd/result.json", base_folder);
    assert_non_null(f = fopen(path, "w"));
    fputs("{\"status\": \"interrupted\", \"began\": 1600000000, \"ended\": 1600000007}", f);
    fclose(f);
    read_again("odd", &i);
    assert_close(i.began_s, 1600000000);
    assert_close(i.spent_s, 7);
    r = open_again("odd");
    pass(2);
    assert_ok(manta_run_finish(r, "done", &m, NULL));
    manta_run_close(r);
    read_again("odd", &i);
    assert_close(i.began_s, 1600000000);
    assert_close(i.spent_s, 9);
    assert_int_equal(i.resumed, 1);
    clock_replace(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_workers_print_is_kept),
        cmocka_unit_test(our_lines_stand_alone),
        cmocka_unit_test(storage_that_vanishes_ends_no_training),
        cmocka_unit_test(a_clock_that_jumps_changes_no_duration),
        cmocka_unit_test(a_resumed_run_keeps_its_beginning),
        cmocka_unit_test(unreadable_times_are_left_out),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
