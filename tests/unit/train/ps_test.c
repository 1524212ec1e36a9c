/* Parameter servers. Where nobody is ahead of anybody (one worker, or no
 * staleness allowed) the result is that of one process, byte by byte; where
 * they are, every step is still done once and the model learns. Workers and
 * servers may be killed. */
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "train/group_fixture.h"
#include "train/ps/ps.h"
#include "train/ps/ps_journal.h"
#include "train/cluster/agreement.h"
#include "train/ps/ps_step_queue.h"

/* ---- the step queue ---- */

/* Workers that take, finish and are lost at random: every step is done once,
 * and never is one given out while one more than `bound` before it is not done. */
static void every_step_is_done_once(void **state)
{
    enum { STEPS = 200, WORKERS = 5 };
    rng_key key = rng_make(1, 2);
    uint64_t draws = 0;

    (void)state;
    for (int64_t bound = -1; bound < 8; bound++) {
        int64_t held[WORKERS] = {-1, -1, -1, -1, -1};
        int done[STEPS] = {0};
        ps_step_queue t;
        assert_ok(ps_step_queue_init(&t, STEPS, bound));
        while (!ps_step_queue_over(&t)) {
            uint32_t r = rng_at(key, draws++).w[0];
            int w = (int)(r % WORKERS), what = (int)(r / WORKERS % 8);
            if (held[w] < 0) {
                held[w] = ps_step_queue_take(&t, w);
                for (int64_t i = 0; bound >= 0 && i < held[w] - bound; i++) assert_int_equal(done[i], 1);
            } else if (what == 0) {
                ps_step_queue_lose(&t, w);
                held[w] = -1;
            } else if (what > 3) {
                assert_false(ps_step_queue_done(&t, w, held[w] + 1));
                assert_true(ps_step_queue_done(&t, w, held[w]));
                done[held[w]]++;
                held[w] = -1;
            }
        }
        for (int i = 0; i < STEPS; i++) assert_int_equal(done[i], 1);
        ps_step_queue_release(&t);
    }
}

/* The step that others are held back by comes first. */
static void a_lost_step_is_given_out_first(void **state)
{
    ps_step_queue t;

    (void)state;
    assert_ok(ps_step_queue_init(&t, 10, 1));
    assert_int_equal(ps_step_queue_take(&t, 0), 0);
    assert_int_equal(ps_step_queue_take(&t, 1), 1);
    assert_int_equal(ps_step_queue_take(&t, 2), -1);
    assert_int_equal(ps_step_queue_take(&t, 1), -1); /* it has one */
    ps_step_queue_lose(&t, 1);
    ps_step_queue_lose(&t, 0);
    assert_int_equal(ps_step_queue_take(&t, 2), 0);
    assert_false(ps_step_queue_done(&t, 0, 0));
    assert_int_equal(ps_step_queue_take(&t, 1), 1);
    assert_true(ps_step_queue_done(&t, 2, 0));
    assert_int_equal(ps_step_queue_take(&t, 0), 2);
    ps_step_queue_release(&t);
}

/* What is in already is not given out, and holds nobody back. */
static void steps_that_are_in_are_not_given_out(void **state)
{
    const unsigned char is_in[6] = {1, 0, 1, 0, 0, 1};
    ps_step_queue t;

    (void)state;
    assert_ok(ps_step_queue_init(&t, 6, 1));
    ps_step_queue_skip(&t, is_in);
    assert_int_equal(ps_step_queue_take(&t, 0), 1);
    assert_int_equal(ps_step_queue_take(&t, 1), -1); /* 3 waits for 1 */
    assert_true(ps_step_queue_done(&t, 0, 1));
    assert_int_equal(ps_step_queue_take(&t, 1), 3);
    assert_int_equal(ps_step_queue_take(&t, 0), 4);
    assert_true(ps_step_queue_done(&t, 0, 4));
    assert_int_equal(ps_step_queue_take(&t, 0), -1);
    assert_false(ps_step_queue_over(&t));
    assert_true(ps_step_queue_done(&t, 1, 3));
    assert_true(ps_step_queue_over(&t));
    ps_step_queue_release(&t);
}

/* ---- the journal ---- */

static void a_step_is_taken_once(void **state)
{
    ps_journal j = {0};
    bool is_new;

    (void)state;
    assert_false(ps_journal_is_begun(&j));
    assert_ok(ps_journal_begin(&j, (train_position){3, 4}, 100, 6)); /* steps 4 to 9 of epoch 3 */
    for (int64_t n = 105; n >= 100; n--) {
        assert_ok(ps_journal_add(&j, n, &is_new));
        assert_true(is_new);
        assert_ok(ps_journal_add(&j, n, &is_new));
        assert_false(is_new);
        assert_int_equal(ps_journal_count(&j), 106 - n);
    }
    assert_ok(ps_journal_add(&j, 99, &is_new)); /* of the epoch before, which is over */
    assert_false(is_new);
    assert_int_equal(ps_journal_add(&j, 106, &is_new), MANTA_ECORRUPT);
    assert_int_equal(ps_journal_add(&j, -1, &is_new), MANTA_ECORRUPT);
    assert_int_equal(ps_journal_add(&j, INT64_MIN, &is_new), MANTA_ECORRUPT);
    ps_journal_release(&j);
}

static void a_journal_travels(void **state)
{
    char bytes[4 * sizeof(int64_t) + 10];
    ps_journal a = {0}, b = {0};
    bool is_new;
    size_t n;

    (void)state;
    assert_ok(ps_journal_begin(&a, (train_position){3, 4}, 100, 6));
    assert_ok(ps_journal_add(&a, 102, &is_new));
    assert_true(ps_journal_room(10) <= sizeof bytes);
    n = ps_journal_pack(&a, bytes);
    assert_ok(ps_journal_unpack(&b, 10, bytes, n));
    assert_true(ps_journal_is_same_epoch(&a, &b));
    assert_memory_equal(a.is_in, b.is_in, 6);
    assert_ok(ps_journal_add(&b, 105, &is_new));
    ps_journal_merge(&a, &b);
    assert_int_equal(ps_journal_count(&a), 2);
    /* Bytes are hostile: cut, of another epoch's length, or nonsense, they change nothing. */
    for (size_t k = 0; k < n; k++) assert_int_equal(ps_journal_unpack(&b, 10, bytes, k), MANTA_ECORRUPT);
    assert_int_equal(ps_journal_unpack(&b, 11, bytes, n), MANTA_ECORRUPT);
    for (size_t i = 0; i < n; i++) {
        char kept = bytes[i];
        bytes[i] = (char)0x80;
        if (i % 8 == 7 || i >= 4 * sizeof(int64_t)) /* a negative number, a step that is 128 */
            assert_int_equal(ps_journal_unpack(&b, 10, bytes, n), MANTA_ECORRUPT);
        bytes[i] = kept;
    }
    assert_int_equal(ps_journal_count(&b), 2);
    ps_journal_release(&a);
    ps_journal_release(&b);
}

/* ---- the config check ---- */

static void settings_are_compared_line_by_line(void **state)
{
    static const char mine[] = "model\tmlp\nseed\t7\nbatch size\t32\n";
    static const struct {
        const char *theirs, *says;
    } cases[] = {{"model\tcnn\nseed\t8\nbatch size\t32\n", "its model is cnn, not mlp"},
                 {"model\tmlp\nseed\t8\nbatch size\t16\n", "its seed is 8, not 7"},
                 {"model\tmlp\nseed\t77\nbatch size\t32\n", "its seed is 77, not 7"},
                 {"model\tmlp\nseed\t\x1b[2J\nbatch size\t32\n", "its seed is ?[2J, not 7"},
                 {"model\tmlp\nseed", "its seed is not said, not 7"},
                 {"model\tmlp\n", "its seed is not said, not 7"},
                 {"", "its model is not said, not mlp"}};
    char whole[200], *exact;

    (void)state;
    assert_ok(agreement_compare("coordinator", mine, sizeof mine - 1, "ps/0", mine, sizeof mine - 1));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].theirs);
        exact = malloc(n + !n); /* so that a sanitizer sees a look behind it */
        memcpy(exact, cases[i].theirs, n);
        snprintf(whole, sizeof whole, "coordinator is at another training than ps/0: %s", cases[i].says);
        assert_int_equal(agreement_compare("coordinator", exact, n, "ps/0", mine, sizeof mine - 1),
                         MANTA_EPERM);
        assert_string_equal(manta_error_text(), whole);
        free(exact);
    }
    for (size_t k = 0; k < sizeof mine - 1; k++) /* cut, at any byte but the last line's end */
        assert_int_equal(agreement_compare("coordinator", mine, k, "ps/0", mine, sizeof mine - 1),
                         k == sizeof mine - 2 ? MANTA_OK : MANTA_EPERM);
}

/* ---- trainings ---- */

static training served(int workers, int servers, int64_t staleness)
{
    return (training){.workers = workers,
                      .servers = servers,
                      .staleness = staleness,
                      .validate = true,
                      .global_batch = 16,
                      .epochs = 3};
}

static outcome alone(bool hard)
{
    return train(&(training){.shards = 1, .hard = hard, .validate = true, .global_batch = 16, .epochs = 3});
}

static void one_worker_is_one_process(void **state)
{
    (void)state;
    for (int hard = 0; hard < 2; hard++) {
        training t = served(1, 1, 0);
        outcome golden = alone(hard), o;
        t.hard = hard;
        o = train(&t);
        assert_same_outcome(&golden, &o);
        assert_childless();
        mem_try_free(o.state);
        if (!hard) {
            t = served(1, 3, 0);
            o = train(&t);
            assert_same_outcome(&golden, &o);
            mem_try_free(o.state);
        }
        mem_try_free(golden.state);
    }
}

/* Each step waits for all before it, whoever does it. */
static void without_staleness_it_is_one_process(void **state)
{
    training t = served(3, 2, MANTA_ZERO);
    outcome golden = alone(false), o = train(&t);

    (void)state;
    assert_same_outcome(&golden, &o);
    assert_childless();
    mem_try_free(golden.state);
    mem_try_free(o.state);
}

typedef struct watcher {
    int64_t steps;
    int started, lost, lost_servers;
    int64_t pid[8];
    int64_t kill_at; /* this step: worker 0 */
    int64_t kill_server_at;
} watcher;

/* The servers are children too, but no events tell of their start: the first
 * child that is no worker. */
static pid_t find_server(const watcher *w)
{
    char path[64];
    long pid = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "r");
    assert_non_null(f);
    while (fscanf(f, "%ld", &pid) == 1 && (pid == w->pid[0] || pid == w->pid[1])) continue;
    fclose(f);
    assert_true(pid > 0 && pid != w->pid[0] && pid != w->pid[1]);
    return (pid_t)pid;
}

static bool watch_it(void *user, manta_session *s, const manta_event *e)
{
    watcher *w = user;

    (void)s;
    if (e->kind == MANTA_EVENT_WORKER) {
        w->started++;
        w->pid[e->rank] = e->pid;
    }
    w->lost += e->kind == MANTA_EVENT_RECOVERED;
    w->lost_servers += e->kind == MANTA_EVENT_RECOVERED && e->server;
    assert_true(e->kind == MANTA_EVENT_RECOVERED || !e->server);
    if (e->kind == MANTA_EVENT_STEP && ++w->steps == w->kill_at)
        assert_int_equal(kill((pid_t)w->pid[0], SIGKILL), 0);
    if (e->kind == MANTA_EVENT_STEP && w->steps == w->kill_server_at)
        assert_int_equal(kill(find_server(w), SIGKILL), 0);
    return true;
}

/* No bytes are promised; that it learns is. */
static void assert_learned(const outcome *o)
{
    if (o->st) fail_msg("%s: %s", manta_status_name(o->st), o->error.text);
    assert_true(manta_metrics_get(&o->metrics, "loss") < 1.35); /* chance is ln 4 = 1.386 */
    assert_true(isfinite(manta_metrics_get(&o->metrics, "val_loss")));
}

static void several_that_do_not_wait(void **state)
{
    watcher w = {0};
    training t = served(3, 2, 0);
    outcome o;

    (void)state;
    t.event = watch_it;
    t.user = &w;
    o = train(&t);
    assert_learned(&o);
    assert_int_equal(w.steps, 3 * 6); /* 90 samples in batches of 16 */
    assert_int_equal(w.started, 3);
    assert_int_equal(w.lost, 0);
    assert_childless();
    mem_try_free(o.state);
}

/* What it had in hand is done again, and counted once: the same weights. */
static void a_lost_worker_costs_nothing(void **state)
{
    watcher w = {.kill_at = 4};
    training t = served(1, 1, 0);
    outcome golden = alone(false), o;

    (void)state;
    t.event = watch_it;
    t.user = &w;
    o = train(&t);
    if (o.st) fail_msg("%s", o.error.text);
    assert_int_equal(w.steps, 3 * 6);
    assert_int_equal(w.started, 2);
    assert_int_equal(w.lost, 1);
    assert_int_equal(w.lost_servers, 0);
    assert_true(fabs(manta_metrics_get(&o.metrics, "val_loss") -
                     manta_metrics_get(&golden.metrics, "val_loss")) < 1e-12);
    assert_childless();
    mem_try_free(golden.state);
    mem_try_free(o.state);
}

/* ---- losses where they hurt; without staleness the bytes are those of one process, or it is said ---- */

static const int64_t hits[] = {1, 2, 3, 6}; /* a server is asked for its state three times */

static outcome crash_at(ps_point point, int64_t nth, watcher *w)
{
    training t = served(2, 2, MANTA_ZERO);

    t.event = watch_it;
    t.user = w;
    crash_plan_set(&(crash_plan){.point = &ps_crash_points[point], .rank = -1, .nth = nth, .times = 1});
    outcome o = train(&t);
    crash_plan_set(NULL);
    assert_childless();
    return o;
}

/* Its step is done again from the weights that it had: not from those that it has changed. */
static void a_lost_worker_changes_nothing(void **state)
{
    static const ps_point points[] = {PS_CRASH_PULLED, PS_CRASH_PUSHED, PS_CRASH_ALL_PUSHED};
    outcome golden = alone(false);

    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (size_t k = 0; k < sizeof hits / sizeof *hits; k++) {
            watcher w = {0};
            outcome o = crash_at(points[i], hits[k], &w);
            print_message("%s, hit %d\n", ps_crash_points[points[i]].name, (int)hits[k]);
            assert_same_outcome(&golden, &o);
            assert_int_equal(w.lost, 1);
            assert_int_equal(w.lost_servers, 0);
            mem_try_free(o.state);
        }
    mem_try_free(golden.state);
}

static void a_lost_server_changes_nothing_or_is_the_end(void **state)
{
    static const ps_point points[] = {PS_CRASH_LOADED, PS_CRASH_BEGUN, PS_CRASH_PUSH_COMES, PS_CRASH_UPDATED,
                                      PS_CRASH_STATE_ASKED};
    outcome golden = alone(false);
    int went_on = 0, ended = 0;

    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (size_t k = 0; k < sizeof hits / sizeof *hits; k++) {
            watcher w = {0};
            if (points[i] == PS_CRASH_LOADED && hits[k] > 2) continue; /* once for each of them */
            outcome o = crash_at(points[i], hits[k], &w);
            print_message("%s, hit %d: %s\n", ps_crash_points[points[i]].name, (int)hits[k],
                          o.st ? o.error.text : "goes on");
            if (o.st) {
                assert_int_equal(o.st, MANTA_EDIED);
                assert_non_null(strstr(o.error.text, "lost in the middle of an epoch"));
            } else {
                assert_same_outcome(&golden, &o);
                assert_int_equal(w.lost_servers, 1);
            }
            went_on += !o.st;
            ended += o.st != MANTA_OK;
            mem_try_free(o.state);
        }
    assert_true(went_on > 0 && ended > 0);
    mem_try_free(golden.state);
}

static void a_lost_server_begins_with_the_last_copy(void **state)
{
    watcher w = {.kill_server_at = 7};
    training t = served(2, 2, 0);
    outcome o;

    (void)state;
    t.event = watch_it;
    t.user = &w;
    o = train(&t);
    assert_learned(&o);
    assert_int_equal(w.steps, 3 * 6);
    assert_int_equal(w.lost, 1);
    assert_int_equal(w.lost_servers, 1);
    assert_childless();
    mem_try_free(o.state);
}

/* Somebody connects to whatever this process listens at, and says nothing. */
static bool visit(void *user, manta_session *s, const manta_event *e)
{
    int *visits = user;

    (void)s;
    if (e->kind != MANTA_EVENT_BEGIN) return true;
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in at;
        socklen_t n = sizeof at, size = sizeof(int);
        int listens = 0, out;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens) continue;
        assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
        out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(out >= 0);
        assert_int_equal(connect(out, (struct sockaddr *)&at, n), 0);
        visits[++visits[0]] = out;
    }
    return true;
}

/* The error is that of the step, whatever goes wrong when all are told to go. */
static void strangers_do_not_hide_an_error(void **state)
{
    training t = served(1, 1, 0);
    int visits[16] = {0};
    outcome o;

    (void)state;
    t.event = visit;
    t.user = visits;
    labels[60] = CLASSES;
    o = train(&t);
    labels[60] = (60 * 7) % CLASSES;
    assert_true(visits[0] >= 2);
    for (int i = 1; i <= visits[0]; i++) close(visits[i]);
    assert_int_equal(o.st, MANTA_EINVAL);
    assert_non_null(strstr(o.error.text, "worker 0, step "));
    mem_try_free(o.state);
    assert_childless();
}

static void what_cannot_be_is_told(void **state)
{
    training t = served(2, 2, 0);
    outcome o;

    (void)state;
    t.hard = true;
    o = train(&t);
    assert_int_equal(o.st, MANTA_EUNSUPPORTED);
    assert_non_null(strstr(o.error.text, "2 parameter servers, expected 1"));
    mem_try_free(o.state);
    t.hard = false;
    labels[60] = CLASSES;
    o = train(&t);
    labels[60] = (60 * 7) % CLASSES;
    assert_int_equal(o.st, MANTA_EINVAL);
    assert_non_null(strstr(o.error.text, "worker "));
    assert_non_null(strstr(o.error.text, " of epoch 1: "));
    mem_try_free(o.state);
    t.servers = 65;
    o = train(&t);
    assert_int_equal(o.st, MANTA_EINVAL);
    mem_try_free(o.state);
    assert_childless();
}

/* No negative number is a bound: MANTA_ZERO says 0, and 0 that there is none. */
static void a_staleness_that_cannot_be_is_refused(void **state)
{
    manta_loss loss = {.name = "mse"};
    manta_compile c = {.n_losses = 1, .losses = &loss};
    manta_session_options o = {.strategy = MANTA_STRATEGY_PARAMETER_SERVER, .workers = 2, .staleness = -3};
    manta_session *s = NULL;
    manta_model *m;

    (void)state;
    assert_int_equal(manta_zoo("linear", &m), MANTA_OK);
    assert_int_equal(manta_session_open(m, &c, &o, &s), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "staleness is -3"));
    assert_null(s);
    o.staleness = MANTA_ZERO;
    assert_int_equal(manta_session_open(m, &c, &o, &s), MANTA_OK);
    manta_session_close(s);
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_is_done_once),
        cmocka_unit_test(a_lost_step_is_given_out_first),
        cmocka_unit_test(steps_that_are_in_are_not_given_out),
        cmocka_unit_test(a_step_is_taken_once),
        cmocka_unit_test(a_journal_travels),
        cmocka_unit_test(settings_are_compared_line_by_line),
        cmocka_unit_test(one_worker_is_one_process),
        cmocka_unit_test(without_staleness_it_is_one_process),
        cmocka_unit_test(a_staleness_that_cannot_be_is_refused),
        cmocka_unit_test(several_that_do_not_wait),
        cmocka_unit_test(a_lost_worker_costs_nothing),
        cmocka_unit_test(a_lost_worker_changes_nothing),
        cmocka_unit_test(a_lost_server_changes_nothing_or_is_the_end),
        cmocka_unit_test(a_lost_server_begins_with_the_last_copy),
        cmocka_unit_test(strangers_do_not_hide_an_error),
        cmocka_unit_test(what_cannot_be_is_told),
    };

    make_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
