/* Loops of a program's own on several replicas: the same bytes for a death at
 * any commit, errors that are told, values from every replica, and a mirrored
 * session that trains as one process does on the whole batch. */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <manta/strategy.h>

#include "train/group_fixture.h"

enum { STEPS = 12, PARAMS = 5 };

/* Shared with the replicas: what happens to whom, and how often still. */
typedef struct trap {
    int rank;
    int64_t step;
    enum { TRAP_KILL, TRAP_EXIT, TRAP_ERROR } what;
    _Atomic int times;
} trap;

static trap *make_trap(trap t)
{
    trap *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(made != MAP_FAILED);
    *made = t;
    return made;
}

static manta_status spring(trap *t, int rank, int64_t step)
{
    if (!t || t->rank != rank || t->step != step || atomic_fetch_sub(&t->times, 1) <= 0) return MANTA_OK;
    if (t->what == TRAP_EXIT) _exit(0);
    if (t->what == TRAP_ERROR) return manta_fail(MANTA_EIO, "step %d is on fire", (int)step);
    kill(getpid(), SIGKILL);
    return MANTA_OK;
}

/* w moves by what all replicas have to say, each from its rank and the step. */
static manta_status loop(manta_replica *r, void *user)
{
    int64_t n = manta_replica_count(r);
    manta_array w, total = manta_array_of(MANTA_DTYPE_F64, 1, (int64_t[]){1}, NULL);
    double mine = 0;

    TRY(manta_replica_variable(r, "w", &w));
    for (int64_t step = manta_replica_step(r); step < STEPS;) {
        float g[PARAMS], *x = w.data;
        for (int i = 0; i < PARAMS; i++)
            g[i] = (float)(manta_replica_rank(r) + 1) * 0.1f + x[i] / (float)(step + 2);
        TRY(manta_group_all_reduce(manta_replica_group(r), g, g, PARAMS, MANTA_DTYPE_F32, MANTA_REDUCE_MEAN));
        for (int i = 0; i < PARAMS; i++) x[i] += g[i];
        TRY(spring(user, manta_replica_rank(r), step));
        TRY(manta_replica_commit(r, ++step));
    }
    mine = (double)(manta_replica_rank(r) + 1) * (double)n;
    total.data = &mine;
    return manta_replica_leave(r, "mine", &total);
}

typedef struct recovery {
    int times, rank;
    int64_t step;
} recovery;

static void on_recovery(void *user, int rank, const char *cause, int64_t step)
{
    recovery *r = user;

    r->times++;
    r->rank = rank;
    r->step = step;
    assert_true(*cause);
}

static manta_status run(manta_strategy_options o, trap *t, float *w, recovery *seen)
{
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){PARAMS}, w);
    manta_strategy *s;
    manta_status st;

    for (int i = 0; i < PARAMS; i++) w[i] = (float)i;
    o.recovered = on_recovery;
    o.user = seen;
    assert_ok(manta_strategy_open(&o, &s));
    assert_ok(manta_strategy_variable(s, "w", &a));
    assert_int_equal(manta_strategy_variable(s, "w", &a), MANTA_EEXIST);
    st = manta_strategy_run(s, loop, t);
    manta_strategy_close(s);
    assert_childless();
    return st;
}

static void the_same_bytes_whoever_dies(void **state)
{
    manta_strategy_options o = {.kind = MANTA_REPLICATION_MIRRORED, .replicas = 3};
    float golden[PARAMS], w[PARAMS];
    recovery seen = {0};

    (void)state;
    assert_ok(run(o, NULL, golden, &seen));
    assert_true(golden[0] > 0.2f && seen.times == 0);
    for (int rank = 0; rank < 3; rank++) {
        for (int64_t step = 0; step < STEPS; step += 5) {
            trap *t = make_trap((trap){rank, step, rank == 1 ? TRAP_EXIT : TRAP_KILL, 1});
            seen = (recovery){0};
            assert_ok(run(o, t, w, &seen));
            assert_memory_equal(w, golden, sizeof w);
            assert_int_equal(seen.times, 1);
            assert_int_equal(seen.rank, rank);
            assert_int_equal(seen.step, step);
            munmap(t, sizeof *t);
        }
    }
}

static void an_error_is_told_and_not_tried_again(void **state)
{
    trap *t = make_trap((trap){1, 4, TRAP_ERROR, 1000});
    float w[PARAMS];
    recovery seen = {0};

    (void)state;
    assert_int_equal(
        run((manta_strategy_options){.kind = MANTA_REPLICATION_MIRRORED, .replicas = 2}, t, w, &seen),
        MANTA_EIO);
    assert_string_equal(manta_error_text(), "replica 1: step 4 is on fire");
    assert_int_equal(seen.times, 0);
    assert_true(w[0] > 0); /* what was committed before is there */
    assert_int_equal(t->times, 999);
    munmap(t, sizeof *t);
}

static void who_dies_over_and_over_is_given_up(void **state)
{
    trap *t = make_trap((trap){0, 3, TRAP_KILL, 1000});
    float w[PARAMS];
    recovery seen = {0};

    (void)state;
    assert_int_equal(
        run((manta_strategy_options){.kind = MANTA_REPLICATION_MIRRORED, .replicas = 2, .max_failures = 2}, t,
            w, &seen),
        MANTA_EDIED);
    assert_error_says("lost 3 times in a row");
    assert_error_says("killed by signal 9");
    assert_int_equal(seen.times, 2);
    munmap(t, sizeof *t);
}

/* ---- one process, and values ---- */

static void one_device_is_this_process(void **state)
{
    float w[PARAMS];
    recovery seen = {0};

    (void)state;
    assert_ok(run((manta_strategy_options){.kind = MANTA_REPLICATION_ONE_DEVICE}, NULL, w, &seen));
    assert_true(w[0] > 0);
}

/* As many numbers as its rank plus one. */
static manta_status leave_some(manta_replica *r, void *user)
{
    int64_t n = manta_replica_rank(r) + 1;
    double x[4] = {0};
    manta_array a = manta_array_of(MANTA_DTYPE_F64, 1, &n, x),
                one = manta_array_of(MANTA_DTYPE_F64, 1, (int64_t[]){1}, x);

    (void)user;
    for (int64_t i = 0; i < n; i++) x[i] = (double)(10 * n + i);
    TRY(manta_replica_leave(r, "some", &a));
    TRY(manta_replica_leave(r, "one", &one));
    x[0] = (double)n;
    return manta_replica_leave(r, "one", &one);
}

static manta_status leave_too_much(manta_replica *r, void *user)
{
    static char bytes[9000];
    manta_array a = manta_array_of(MANTA_DTYPE_U8, 1, (int64_t[]){sizeof bytes}, bytes);

    (void)user;
    return manta_replica_leave(r, "all", &a);
}

static void values_of_every_replica(void **state)
{
    static const double want[] = {10, 20, 21, 30, 31, 32};
    double sum = 0, all[6];
    manta_array a, out = manta_array_of(MANTA_DTYPE_F64, 1, (int64_t[]){1}, &sum);
    manta_strategy *s;

    (void)state;
    assert_ok(manta_strategy_open(
        &(manta_strategy_options){.kind = MANTA_REPLICATION_MIRRORED, .replicas = 3, .value_bytes = 8000},
        &s));
    assert_int_equal(manta_strategy_replicas(s), 3);
    assert_true(manta_strategy_is_chief(s));
    assert_int_equal(manta_strategy_value(s, 0, "one", &a), MANTA_ENOENT);
    assert_ok(manta_strategy_run(s, leave_some, NULL));
    assert_ok(manta_strategy_value(s, 2, "some", &a));
    assert_int_equal(a.shape[0], 3);
    assert_ok(manta_strategy_reduce(s, "one", MANTA_REDUCE_SUM, &out));
    assert_true(sum == 6);
    assert_ok(manta_strategy_reduce(s, "one", MANTA_REDUCE_MAX, &out));
    assert_true(sum == 3);
    assert_ok(manta_strategy_gather(s, "some", all, sizeof all));
    assert_memory_equal(all, want, sizeof want);
    assert_int_equal(manta_strategy_gather(s, "some", all, sizeof all - 1), MANTA_ENOSPC);
    assert_int_equal(manta_strategy_reduce(s, "some", MANTA_REDUCE_SUM, &out), MANTA_EINVAL);
    assert_int_equal(manta_strategy_value(s, 3, "one", &a), MANTA_EINVAL);
    assert_int_equal(manta_strategy_value(s, 0, "two", &a), MANTA_ENOENT);
    assert_int_equal(manta_strategy_run(s, leave_too_much, NULL), MANTA_ENOSPC);
    manta_strategy_close(s);
    assert_childless();
}

/* ---- a session ---- */

typedef struct lesson {
    manta_session *s;
    trap *t;
    int steps;
} lesson;

static manta_feed rows(int64_t lo, int64_t hi)
{
    manta_feed f = {.count = hi - lo, .n_inputs = 1, .n_targets = 1};

    f.inputs[0] =
        manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){hi - lo, SIDE, SIDE, 1}, images + lo * SIDE * SIDE);
    f.targets[0] = manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){hi - lo}, labels + lo);
    f.first = lo;
    return f;
}

/* Batches of 30 samples, cut evenly; of more than two replicas the last has none. */
static manta_status learn(manta_replica *r, void *user)
{
    lesson *l = user;
    int64_t rank = manta_replica_rank(r), n = manta_replica_count(r) > 2 ? 2 : manta_replica_count(r);

    for (int64_t step = manta_replica_step(r); step < l->steps;) {
        int64_t first = step % 3 * 30;
        manta_feed f = rows(first + 30 * rank / n, first + 30 * (rank + 1) / n);
        TRY(manta_replica_train_step(r, l->s, rank < n ? &f : NULL));
        TRY(spring(l->t, (int)rank, step));
        TRY(manta_replica_commit(r, ++step));
    }
    return MANTA_OK;
}

/* Dense layers only: batch norm's statistics would be each replica's own. */
static manta_model *plain_model(void)
{
    manta_model *m = manta_model_new("plain");
    manta_value x = manta_input(m, "image", MANTA_DTYPE_F32, 3, (int64_t[]){SIDE, SIDE, 1});

    x = manta_call(m, manta_flatten(m), x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 16, .activation = "relu"}), x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = CLASSES}), x);
    manta_output(m, x);
    assert_ok(manta_model_build(m));
    return m;
}

/* The weights after `steps`, as one vector; *iterations too. */
static float *train_mirrored(int replicas, trap *t, int64_t *count, int64_t *iterations)
{
    manta_model *m = plain_model();
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    lesson l = {.t = t, .steps = 9};
    manta_optimizer opt;
    manta_strategy *s;
    float *w;

    assert_ok(manta_optimizer_named("adam", &opt));
    assert_ok(manta_session_open(m, &(manta_compile){.optimizer = &opt, .n_losses = 1, .losses = &loss},
                                 &(manta_session_options){.seed = 3, .threads = 1}, &l.s));
    assert_ok(manta_strategy_open(
        &(manta_strategy_options){.kind = MANTA_REPLICATION_MIRRORED, .replicas = replicas}, &s));
    assert_ok(manta_strategy_mirror(s, l.s));
    assert_ok(manta_strategy_run(s, learn, &l));
    *count = manta_session_params(l.s);
    *iterations = manta_session_iterations(l.s);
    w = test_malloc((size_t)*count * sizeof *w);
    manta_session_get_flat(l.s, w);
    manta_strategy_close(s);
    manta_session_close(l.s);
    manta_model_free(m);
    return w;
}

static void a_session_on_a_device_is_not_mirrored(void **state)
{
    manta_model *m = plain_model();
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_optimizer opt;
    manta_session *session;
    manta_strategy *s;

    (void)state;
    assert_ok(manta_optimizer_named("sgd", &opt));
    assert_ok(manta_session_open(m, &(manta_compile){.optimizer = &opt, .n_losses = 1, .losses = &loss},
                                 &(manta_session_options){.threads = 1, .device = "fake"}, &session));
    assert_ok(manta_strategy_open(
        &(manta_strategy_options){.kind = MANTA_REPLICATION_MIRRORED, .replicas = 2}, &s));
    assert_int_equal(manta_strategy_mirror(s, session), MANTA_EUNSUPPORTED);
    manta_strategy_close(s);
    manta_session_close(session);
    manta_model_free(m);
}

static void a_mirrored_session_trains_on_the_whole_batch(void **state)
{
    int64_t n, iterations;
    float *one = train_mirrored(1, NULL, &n, &iterations);

    (void)state;
    assert_int_equal(iterations, 9);
    for (int replicas = 2; replicas <= 3; replicas++) {
        trap *t = make_trap((trap){1, 4, TRAP_KILL, 1});
        float *w = train_mirrored(replicas, NULL, &n, &iterations), *killed;
        double apart = 0;
        assert_int_equal(iterations, 9);
        for (int64_t i = 0; i < n; i++) apart = fmax(apart, fabs((double)w[i] - (double)one[i]));
        assert_true(apart < 1e-4); /* sums of 15 and 15 instead of 30 samples */
        killed = train_mirrored(replicas, t, &n, &iterations);
        assert_true(t->times < 1);
        assert_memory_equal(killed, w, (size_t)n * sizeof *w);
        test_free(killed);
        test_free(w);
        munmap(t, sizeof *t);
    }
    test_free(one);
    assert_childless();
}

/* ---- processes that were started separately ---- */

/* One of two, as a shell would start it; its weights go to the pipe. */
static pid_t start_worker(int index, int listener, const char *address, trap *t, int to)
{
    pid_t pid = fork();
    char config[300];
    float w[PARAMS];
    recovery seen = {0};

    assert_true(pid >= 0);
    if (pid) return pid;
    snprintf(config, sizeof config,
             "{\"cluster\": {\"worker\": [\"%s\", \"127.0.0.1:1\"]}, \"task\": {\"type\": \"worker\", "
             "\"index\": %d}}",
             address, index);
    setenv("TF_CONFIG", config, 1);
    if (run((manta_strategy_options){.group.listener = index ? 0 : listener}, t, w, &seen)) {
        fprintf(stderr, "worker %d: %s\n", index, manta_error_text());
        _exit(1);
    }
    _exit(write(to, w, sizeof w) == sizeof w ? 0 : 1);
}

static int status_of(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* The one that was killed is started again; the other has waited for it, and
 * hands over how far they were. */
static void a_worker_that_comes_back_goes_on(void **state)
{
    trap *t = make_trap((trap){1, 5, TRAP_KILL, 1});
    float golden[PARAMS], w[2][PARAMS];
    recovery seen = {0};
    char address[64];
    int pipes[2], port;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    pid_t first, second;

    (void)state;
    assert_ok(run((manta_strategy_options){.kind = MANTA_REPLICATION_MIRRORED, .replicas = 2}, NULL, golden,
                  &seen));
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    port = ntohs(at.sin_port);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    assert_int_equal(pipe(pipes), 0);
    first = start_worker(0, listener, address, t, pipes[1]);
    second = start_worker(1, listener, address, t, pipes[1]);
    assert_true(WIFSIGNALED(status_of(second)));
    second = start_worker(1, listener, address, t, pipes[1]);
    assert_int_equal(status_of(second), 0);
    assert_int_equal(status_of(first), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read(pipes[0], w[i], sizeof w[i]), sizeof w[i]);
        assert_memory_equal(w[i], golden, sizeof golden);
    }
    close(pipes[0]);
    close(pipes[1]);
    close(listener);
    munmap(t, sizeof *t);
}

static void what_cannot_be_is_refused(void **state)
{
    float x = 0;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &x);
    manta_strategy *s;

    (void)state;
    assert_int_equal(manta_strategy_open(
                         &(manta_strategy_options){.kind = MANTA_REPLICATION_MIRRORED, .replicas = 257}, &s),
                     MANTA_EINVAL);
    assert_int_equal(
        setenv("TF_CONFIG",
               "{\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 3}}", 1),
        0);
    assert_int_equal(manta_strategy_open(NULL, &s), MANTA_EINVAL);
    assert_int_equal(unsetenv("TF_CONFIG"), 0);
    assert_ok(manta_strategy_open(&(manta_strategy_options){.kind = MANTA_REPLICATION_ONE_DEVICE}, &s));
    assert_ok(manta_strategy_run(s, leave_some, NULL));
    assert_int_equal(manta_strategy_variable(s, "late", &a), MANTA_EINVAL);
    manta_strategy_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_whoever_dies),
        cmocka_unit_test(an_error_is_told_and_not_tried_again),
        cmocka_unit_test(who_dies_over_and_over_is_given_up),
        cmocka_unit_test(one_device_is_this_process),
        cmocka_unit_test(values_of_every_replica),
        cmocka_unit_test(a_session_on_a_device_is_not_mirrored),
        cmocka_unit_test(a_mirrored_session_trains_on_the_whole_batch),
        cmocka_unit_test(a_worker_that_comes_back_goes_on),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, data_and_key, remove_key);
}
