/* Several workers, and everything that is not a clean death: errors, poisoned
 * samples, hangs, a caller that stops or changes the training, the death of
 * the controller itself. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "train/session/feed.h"
#include "train/group/worker_step.h"
#include "train/group_fixture.h"

enum { WORKERS = 2, SHARDS = 2 };

static void assert_says(const outcome *o, manta_status st, const char *words)
{
    if (o->st != st || !strstr(o->error.text, words))
        fail_msg("%s: '%s', expected %s with '%s'", manta_status_name(o->st), o->error.text,
                 manta_status_name(st), words);
}

/* ---- data that does something ---- */

typedef enum trap_kind { TRAP_ABORT, TRAP_KILL, TRAP_EXIT, TRAP_HANG, TRAP_ERROR } trap_kind;

/* What happens when the image with this number is read, and how often; shared
 * with the workers, which are other processes. */
typedef struct trap {
    int sample;
    trap_kind what;
    _Atomic int times;
    _Atomic int hits;
} trap;

static trap *make_trap(int sample, trap_kind what, int times)
{
    trap *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(t != MAP_FAILED);
    t->sample = sample;
    t->what = what;
    t->times = times;
    return t;
}

static manta_status spring(manta_sample *s, void *user)
{
    trap *t = user;

    for (int c = 0; c < 2; c++) {
        memcpy(s->out[c].array.data, s->in[c].array.data, manta_array_bytes(&s->in[c].array));
    }
    if (s->index != t->sample) return MANTA_OK;
    if (atomic_fetch_sub(&t->times, 1) <= 0) return MANTA_OK;
    atomic_fetch_add(&t->hits, 1);
    switch (t->what) {
    case TRAP_ABORT: abort();
    case TRAP_KILL: kill(getpid(), SIGKILL); break;
    case TRAP_EXIT: _exit(3);
    case TRAP_HANG:
        for (;;) pause();
    case TRAP_ERROR: return manta_fail(MANTA_EIO, "the disk of sample %d is on fire", t->sample);
    }
    return MANTA_OK;
}

static manta_dataset *trapped(trap *t)
{
    return manta_dataset_map(dataset(), spring, t, 0, 0, NULL);
}

static outcome train_trapped(trap *t, int64_t deadline_ms)
{
    return train(
        &(training){.workers = WORKERS, .shards = SHARDS, .data = trapped(t), .deadline_ms = deadline_ms});
}

static void assert_recovers(trap_kind what, int times, int64_t deadline_ms)
{
    trap *none = make_trap(-1, what, 0), *t = make_trap(17, what, times);
    training alone = {.shards = SHARDS};
    outcome golden, o;

    none->sample = 0; /* its times are 0 */
    alone.data = trapped(none);
    golden = train(&alone);
    o = train_trapped(t, deadline_ms);
    assert_same_outcome(&golden, &o);
    assert_int_equal(t->hits, times);
    assert_childless();
    mem_try_free(golden.state);
    mem_try_free(o.state);
    munmap(t, sizeof *t);
    munmap(none, sizeof *none);
}

static void a_crash_in_user_code_costs_a_step(void **state)
{
    (void)state;
    assert_recovers(TRAP_ABORT, 1, 0);
    assert_recovers(TRAP_EXIT, 1, 0);
    assert_recovers(TRAP_KILL, 4, 0);
}

static void a_worker_that_hangs_is_replaced(void **state)
{
    (void)state;
    assert_recovers(TRAP_HANG, 1, 100);
}

static void a_poisoned_sample_ends_the_run_and_is_named(void **state)
{
    static const struct {
        trap_kind what;
        int deaths;
        const char *cause;
    } cases[] = {{TRAP_ABORT, 2, "(2 of them, the last one killed by signal 6"},
                 {TRAP_EXIT, 2, "(2 of them, the last one exited with 3"},
                 {TRAP_HANG, 2, "(2 of them, the last one hung for 0.1 s"},
                 {TRAP_KILL, 5, "(5 of them, the last one killed by signal 9"}};

    (void)state;
    for (int i = 0; i < 4; i++) {
        trap *t = make_trap(17, cases[i].what, 1000);
        outcome o = train_trapped(t, 100);
        assert_says(&o, MANTA_EDIED, "has ended every worker that computed it");
        assert_says(&o, MANTA_EDIED, cases[i].cause);
        assert_says(&o, MANTA_EDIED, "samples ");
        assert_int_equal(t->hits, cases[i].deaths);
        assert_childless();
        mem_try_free(o.state);
        munmap(t, sizeof *t);
    }
}

/* A thread that reads ahead meets the sample while another step is computed; whoever
 * takes over meets it when it is due, and it is that step which is blamed. */
static void a_poisoned_sample_is_named_when_it_was_read_ahead(void **state)
{
    static const trap_kind kinds[] = {TRAP_ABORT, TRAP_EXIT, TRAP_KILL};
    int64_t before = feed_slow_ns;

    (void)state;
    feed_slow_ns = 0;
    for (int i = 0; i < 3; i++) {
        trap *t = make_trap(81, kinds[i], 1000); /* the first of step 10 */
        outcome o = train(&(training){.workers = WORKERS,
                                      .shards = WORKERS,
                                      .global_batch = 9,
                                      .no_shuffle = true,
                                      .max_failures = 100,
                                      .data = trapped(t)});
        assert_says(&o, MANTA_EDIED, "step 10 of epoch 1: shard 0 has ended every worker that computed it");
        assert_says(&o, MANTA_EDIED, "it has samples 81, 82, 83");
        assert_childless();
        mem_try_free(o.state);
        munmap(t, sizeof *t);
    }
    feed_slow_ns = before;
}

/* In their own order the names can be foretold: batch 32, two shards, so that
 * sample 17 is in shard 1 of the first step, with 16 .. 31. */
static void the_names_are_the_source_s(void **state)
{
    trap *t = make_trap(17, TRAP_ABORT, 1000);
    manta_model *m = residual_model((manta_regularizer){0});
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_dataset *d = trapped(t);
    manta_session *s;

    (void)state;
    assert_ok(manta_session_open(m, &(manta_compile){.n_losses = 1, .losses = &loss},
                                 &(manta_session_options){.workers = 2, .threads = 1}, &s));
    assert_int_equal(manta_fit(s, d, &(manta_fit_options){.batch = 16, .no_shuffle = true}, NULL),
                     MANTA_EDIED);
    assert_error_says("step 1 of epoch 1: shard 1 ");
    assert_error_says("samples 16, 17, 18, 19, 20, 21, 22, 23 and 8 more");
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_model_free(m);
    munmap(t, sizeof *t);
}

static void an_error_says_who_where_and_what(void **state)
{
    trap *t = make_trap(40, TRAP_ERROR, 1000);
    outcome o = train_trapped(t, 0);

    (void)state;
    assert_says(&o, MANTA_EIO, "of epoch 1: ");
    assert_says(&o, MANTA_EIO, "worker ");
    assert_says(&o, MANTA_EIO, "the disk of sample 40 is on fire");
    assert_childless();
    mem_try_free(o.state);
    munmap(t, sizeof *t);
}

static void a_bad_label_is_told(void **state)
{
    outcome o;

    (void)state;
    labels[60] = CLASSES;
    o = train(&(training){.workers = WORKERS});
    labels[60] = (60 * 7) % CLASSES;
    assert_says(&o, MANTA_EINVAL, "worker ");
    assert_says(&o, MANTA_EINVAL, "4");
    assert_childless();
    mem_try_free(o.state);
}

/* Workers of this rank (-1: of any) die whenever they have begun. */
static void never_ready(int rank)
{
    crash_plan_set(&(crash_plan){
        .point = &group_crash_points[GROUP_CRASH_START_READY], .rank = rank, .nth = 1, .times = 1000});
}

/* Every worker dies at its start: told after a bounded number of tries. */
static void workers_that_cannot_start_are_given_up(void **state)
{
    outcome o;

    (void)state;
    never_ready(1);
    o = train(&(training){.workers = WORKERS, .max_failures = 5});
    crash_plan_set(NULL);
    assert_says(&o, MANTA_EDIED, "worker 1 died 6 times in a row without finishing a step");
    assert_childless();
    mem_try_free(o.state);
}

typedef struct departures {
    int left, rank, workers, scratches;
    char cause[96];
} departures;

/* Scratch memories that this process holds for its workers. */
static int count_scratches(void)
{
    DIR *all = opendir("/proc/self/fd");
    int n = 0;

    for (struct dirent *e; (e = readdir(all));) {
        char path[300], to[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        if (readlink(path, to, sizeof to - 1) > 0) n += strstr(to, "manta-scratch") != NULL;
    }
    closedir(all);
    return n;
}

static bool see_departure(void *user, manta_session *s, const manta_event *e)
{
    departures *d = user;

    if (e->kind == MANTA_EVENT_WORKER_LEFT) {
        d->left++;
        d->rank = e->rank;
        d->scratches = count_scratches();
        snprintf(d->cause, sizeof d->cause, "%s", e->cause);
    }
    d->workers = manta_session_workers(s);
    return true;
}

/* Where fewer will do, the others go on without it. */
static void one_that_cannot_start_is_done_without(void **state)
{
    departures d = {0};
    outcome golden = train(&(training){.shards = 3}), o;

    (void)state;
    never_ready(1);
    o = train(&(training){.workers = 3, .min_workers = 2, .event = see_departure, .user = &d});
    crash_plan_set(NULL);
    assert_same_outcome(&golden, &o);
    assert_int_equal(d.left, 1);
    assert_int_equal(d.rank, 1);
    assert_int_equal(d.workers, 2);
    assert_int_equal(d.scratches, 2);
    assert_non_null(strstr(d.cause, "killed by signal 9"));
    assert_childless();
    mem_try_free(golden.state);
    mem_try_free(o.state);
    never_ready(-1);
    o = train(&(training){.workers = 3, .min_workers = 2});
    crash_plan_set(NULL);
    assert_says(&o, MANTA_EDIED, "times in a row without finishing a step");
    assert_childless();
    mem_try_free(o.state);
}

/* ---- who takes over ---- */

/* Sample 17, of the second shard, kills the first who reads it. Sample 3, of the
 * first, is not read to its end before 17 has been read again, so that the other
 * worker is busy until then: only the dead one's successor can have done it. */
typedef struct relay {
    _Atomic int reads; /* of sample 17 */
    _Atomic int late;
} relay;

static manta_status hold(manta_sample *s, void *user)
{
    int64_t deadline = clock_deadline(60000);
    relay *r = user;

    for (int c = 0; c < 2; c++) {
        memcpy(s->out[c].array.data, s->in[c].array.data, manta_array_bytes(&s->in[c].array));
    }
    if (s->index == 17 && atomic_fetch_add(&r->reads, 1) == 0) kill(getpid(), SIGKILL);
    while (s->index == 3 && atomic_load(&r->reads) < 2) {
        if (clock_now_ns() > deadline) {
            atomic_store(&r->late, 1);
            break;
        }
        sched_yield();
    }
    return MANTA_OK;
}

static void a_successor_takes_over_while_the_others_are_busy(void **state)
{
    training alone = {.shards = SHARDS, .no_shuffle = true}, t = alone;
    relay *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    outcome golden = train(&alone), o;

    (void)state;
    assert_true(r != MAP_FAILED);
    t.workers = WORKERS;
    t.deadline_ms = -1;
    t.data = manta_dataset_map(dataset(), hold, r, 0, 0, NULL);
    o = train(&t);
    assert_int_equal(r->late, 0);
    assert_true(r->reads >= 2);
    assert_same_outcome(&golden, &o);
    assert_childless();
    mem_try_free(golden.state);
    mem_try_free(o.state);
    munmap(r, sizeof *r);
}

/* ---- the caller between steps ---- */

typedef struct meddler {
    int64_t seen, stop_at, rate_at, weights_at, compute_at;
} meddler;

/* Everything that computes, from within a fit: it happens in this process and
 * must not get into the way of the workers, who are at the next step. */
static void compute(manta_session *s)
{
    manta_feed f = {.count = 9, .n_inputs = 1, .n_targets = 1};
    manta_dataset *d = dataset();
    manta_metrics metrics;
    double loss;

    f.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){9, SIDE, SIDE, 1}, images);
    f.targets[0] = manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){9}, labels);
    assert_ok(manta_evaluate(s, d, NULL, &metrics));
    assert_ok(manta_session_loss(s, &f, &loss));
    assert_ok(manta_session_backward(s, &f));
    assert_ok(manta_session_step(s, &f));
    manta_dataset_unref(d);
}

static bool meddle(void *user, manta_session *s, const manta_event *e)
{
    meddler *m = user;

    if (e->kind != MANTA_EVENT_STEP) return true;
    m->seen++;
    if (m->seen == m->rate_at) assert_ok(manta_session_set_learning_rate(s, 0.002));
    if (m->seen == m->weights_at) {
        float zero[CLASSES] = {0};
        manta_array w = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){CLASSES}, zero);
        assert_ok(manta_session_set_weight(s, "dense_1/bias", &w));
    }
    if (m->seen == m->compute_at) compute(s);
    return m->seen != m->stop_at;
}

static void assert_meddled_alike(meddler how, manta_status st)
{
    for (int hard = 0; hard < 2; hard++) {
        meddler a = how, b = how;
        training t = {.shards = 3, .hard = hard, .event = meddle, .user = &a};
        outcome golden = train(&t), o;
        assert_int_equal(golden.st, st);
        t.workers = 3;
        t.user = &b;
        o = train(&t);
        assert_int_equal(o.st, st);
        assert_int_equal(a.seen, b.seen);
        o.st = MANTA_OK;
        assert_same_outcome(&golden, &o);
        assert_childless();
        mem_try_free(golden.state);
        mem_try_free(o.state);
    }
}

static void what_the_caller_changes_counts_from_the_next_step(void **state)
{
    (void)state;
    for (int64_t at = 1; at <= 6; at++) {
        assert_meddled_alike((meddler){.rate_at = at}, MANTA_OK);
        assert_meddled_alike((meddler){.weights_at = at}, MANTA_OK);
        assert_meddled_alike((meddler){.compute_at = at}, MANTA_OK);
    }
}

static void a_caller_that_stops_has_the_state_of_that_step(void **state)
{
    (void)state;
    for (int64_t at = 1; at <= 6; at++) assert_meddled_alike((meddler){.stop_at = at}, MANTA_ECANCELLED);
}

/* ---- the death of the controller ---- */

static bool tell_pids(void *user, manta_session *s, const manta_event *e)
{
    pid_t pid = (pid_t)e->pid;
    int *to = user;

    (void)s;
    if (e->kind == MANTA_EVENT_WORKER && write(*to, &pid, sizeof pid) != sizeof pid) _exit(9);
    return true;
}

/* Opened while the process lives: readable when it is gone. */
static int pidfd_of(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    assert_true(fd >= 0);
    return fd;
}

static void workers_leave_with_their_controller(void **state)
{
    int fds[2], pidfd[3], status;
    pid_t controller, worker;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    controller = fork();
    assert_true(controller >= 0);
    if (!controller) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        train(&(training){.workers = 3, .epochs = 1000000000, .event = tell_pids, .user = &fds[1]});
        _exit(0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(read(fds[0], &worker, sizeof worker), sizeof worker);
        pidfd[i] = pidfd_of(worker);
    }
    assert_int_equal(kill(controller, SIGKILL), 0);
    assert_int_equal(waitpid(controller, &status, 0), controller);
    assert_true(WIFSIGNALED(status));
    for (int i = 0; i < 3; i++) {
        struct pollfd p = {.fd = pidfd[i], .events = POLLIN};
        assert_int_equal(poll(&p, 1, 60000), 1); /* the deadline of the test; it takes a moment */
        close(pidfd[i]);
    }
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_in_user_code_costs_a_step),
        cmocka_unit_test(a_worker_that_hangs_is_replaced),
        cmocka_unit_test(a_poisoned_sample_ends_the_run_and_is_named),
        cmocka_unit_test(a_poisoned_sample_is_named_when_it_was_read_ahead),
        cmocka_unit_test(the_names_are_the_source_s),
        cmocka_unit_test(an_error_says_who_where_and_what),
        cmocka_unit_test(a_bad_label_is_told),
        cmocka_unit_test(workers_that_cannot_start_are_given_up),
        cmocka_unit_test(one_that_cannot_start_is_done_without),
        cmocka_unit_test(a_successor_takes_over_while_the_others_are_busy),
        cmocka_unit_test(what_the_caller_changes_counts_from_the_next_step),
        cmocka_unit_test(a_caller_that_stops_has_the_state_of_that_step),
        cmocka_unit_test(workers_leave_with_their_controller),
    };

    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    make_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
