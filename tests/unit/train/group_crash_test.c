/* Workers that die: at every crash point, in every rank, once and again; by
 * signals from outside at any moment; stopped; all at once. Each time the
 * result is that of the undisturbed run, byte by byte. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "train/group/group.h"
#include "train/group_fixture.h"

enum { WORKERS = 3, SHARDS = 4 };

/* What the events told. */
typedef struct told {
    int started, recovered;
    int64_t pids[SHARED_WORKERS]; /* latest of each rank */
    uint32_t lives[SHARED_WORKERS]; /* how many each rank has had */
    bool patient; /* no step is let pass before all are ready for their places */
    int kill_signal; /* sent by on_event, see below */
    int64_t kill_at; /* at this step event, counted over the run; 0: never */
    int64_t kill_every; /* and then after so many */
    int kill_ranks; /* bit mask */
    int64_t steps;
    double worst_ms;
    char cause[96];
} told;

static bool is_dead(pid_t pid)
{
    siginfo_t info = {0};

    return !waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid == pid;
}

/* Until everybody who lives is ready. */
static void await_all(const told *t, const manta_session *s)
{
    for (int r = 0; r < WORKERS; r++) {
        while (atomic_load(&group_crew_of(s)->memory->c->worker[r].ready) != t->lives[r] &&
               !is_dead((pid_t)t->pids[r]))
            sched_yield();
    }
}

static bool on_event(void *user, manta_session *s, const manta_event *e)
{
    told *t = user;

    if (e->kind == MANTA_EVENT_WORKER) {
        t->started++;
        t->lives[e->rank]++;
        t->pids[e->rank] = e->pid;
    }
    if (e->kind == MANTA_EVENT_RECOVERED) {
        t->recovered++;
        if (e->ms > t->worst_ms) t->worst_ms = e->ms;
        snprintf(t->cause, sizeof t->cause, "%s", e->cause);
    }
    if (e->kind == MANTA_EVENT_STEP && ++t->steps == t->kill_at) {
        t->kill_at += t->kill_every;
        for (int r = 0; r < WORKERS; r++) {
            if (t->kill_ranks >> r & 1) assert_int_equal(kill((pid_t)t->pids[r], t->kill_signal), 0);
        }
    }
    if (e->kind == MANTA_EVENT_STEP && t->patient) await_all(t, s);
    return true;
}

static const training easy = {.workers = WORKERS, .shards = SHARDS, .validate = true, .event = on_event};
static const training hard = {
    .workers = WORKERS, .shards = SHARDS, .validate = true, .event = on_event, .hard = true};
static outcome golden_easy, golden_hard;

static int make_golden(void **state)
{
    training t = {.shards = SHARDS, .validate = true};

    (void)state;
    golden_easy = train(&t);
    t.hard = true;
    golden_hard = train(&t);
    return golden_easy.st || golden_hard.st;
}

static int free_golden(void **state)
{
    (void)state;
    mem_try_free(golden_easy.state);
    mem_try_free(golden_hard.state);
    return 0;
}

static crash_plan death; /* of the training under way */

static int no_plan(void **state)
{
    (void)state;
    death = (crash_plan){0};
    crash_plan_set(NULL);
    return 0;
}

static void run_and_compare(training t, const outcome *golden, told *events)
{
    outcome o;

    t.user = events;
    crash_plan_set(&death);
    o = train(&t);
    if (o.st) {
        fail_msg("crash at %s, rank %d, hit %d: %s", death.point ? death.point->name : "no point", death.rank,
                 (int)death.nth, o.error.text);
    }
    assert_same_outcome(golden, &o);
    mem_try_free(o.state);
    assert_childless();
}

/* Points that every rank passes; which rank commits or waits is luck. */
static bool is_anybodys(group_point p)
{
    return p == GROUP_CRASH_COMMIT_BEFORE || p == GROUP_CRASH_COMMIT_AFTER || p == GROUP_CRASH_WAIT_BEGIN;
}

/* Trains once for every point, rank and hit 1, 3, ... most. */
static void sweep(const training *t, const outcome *golden, int64_t most, int times, bool patient)
{
    for (group_point p = 0; p < group_points; p++) {
        for (int rank = 0; rank < WORKERS; rank++) {
            for (int64_t nth = 1; nth <= most; nth += 2) {
                told events = {.patient = patient};
                int who = is_anybodys(p) ? -1 : rank;
                if (nth > 1 && (p == GROUP_CRASH_START_BEGIN || p == GROUP_CRASH_START_READY))
                    continue; /* once in a life */
                if (p == GROUP_CRASH_FINISH_HALF && rank != 0) continue; /* range 0 is rank 0's */
                death =
                    (crash_plan){.point = &group_crash_points[p], .rank = who, .nth = nth, .times = times};
                run_and_compare(*t, golden, &events);
                if (events.started < WORKERS + times)
                    fail_msg("%s, rank %d, hit %d: only %d workers were started", group_crash_points[p].name,
                             rank, (int)nth, events.started);
            }
        }
    }
}

static void every_point_of_every_rank(void **state)
{
    (void)state;
    sweep(&hard, &golden_hard, 5, 1, false);
}

/* The successor has its place within two steps when it is waited for. */
static void and_the_successor_too(void **state)
{
    training t = hard, alone = {.shards = SHARDS, .hard = true, .epochs = 4};
    outcome golden = train(&alone);

    (void)state;
    t.validate = false;
    t.epochs = alone.epochs;
    sweep(&t, &golden, 1, 2, true);
    mem_try_free(golden.state);
}

/* Shards that wait for each other in the middle of a step, and for a dead one's. */
static void in_lockstep(void **state)
{
    static const group_point points[] = {GROUP_CRASH_SHARD_BEGIN, GROUP_CRASH_SHARD_HALF,
                                         GROUP_CRASH_SHARD_DONE,  GROUP_CRASH_WAIT_BEGIN,
                                         GROUP_CRASH_FLAG_BEFORE, GROUP_CRASH_UPDATE_HALF};
    training alone = {.shards = SHARDS, .hard = true, .statistics = MANTA_STATISTICS_SYNC}, t = hard;
    outcome golden;

    (void)state;
    alone.validate = t.validate;
    alone.epochs = t.epochs;
    golden = train(&alone);
    t.statistics = MANTA_STATISTICS_SYNC;
    for (int i = 0; i < 6; i++) {
        for (int rank = 0; rank < WORKERS; rank++) {
            told events = {0};
            death = (crash_plan){.point = &group_crash_points[points[i]],
                                 .rank = is_anybodys(points[i]) ? -1 : rank,
                                 .nth = 2,
                                 .times = 1};
            run_and_compare(t, &golden, &events);
            assert_true(events.started > WORKERS);
        }
    }
    mem_try_free(golden.state);
}

/* Two ranks killed between the same two steps; all of them; again and again. */
static void several_at_once(void **state)
{
    static const int masks[] = {3, 5, 6, 7};

    (void)state;
    for (int i = 0; i < 4; i++) {
        for (int64_t at = 1; at <= 3; at++) {
            told events = {.kill_signal = SIGKILL, .kill_at = at, .kill_ranks = masks[i]};
            run_and_compare(easy, &golden_easy, &events);
            assert_int_equal(events.started, WORKERS + __builtin_popcount((unsigned)masks[i]));
        }
    }
}

static void a_stopped_worker_is_replaced(void **state)
{
    training t = hard;

    (void)state;
    t.deadline_ms = 100;
    for (int rank = 0; rank < WORKERS; rank++) {
        told events = {.kill_signal = SIGSTOP, .kill_at = 2, .kill_ranks = 1 << rank};
        run_and_compare(t, &golden_hard, &events);
        assert_int_equal(events.recovered, 1);
        assert_non_null(strstr(events.cause, "stopped for 0.1 s"));
    }
}

/* ---- from outside, at any moment ---- */

/* A process that kills workers as fast as it is told of them: it learns their
 * pids from the controller through a pipe and waits a random time, bounded by
 * the kills it may do, in between. Its parent is the test. */
static pid_t start_killer(const int *ends, uint64_t seed, int kills)
{
    pid_t pid = fork(), target;

    assert_true(pid >= 0);
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[1]);
    for (int i = 0; i < kills && read(ends[0], &target, sizeof target) == sizeof target; i++) {
        uint32_t us = rng_at(rng_make(seed, 1), (uint64_t)i).w[0] % 4000;
        int64_t until = clock_now_ns() + (int64_t)us * 1000;
        while (clock_now_ns() < until) {} /* not a wait for anything: the moment is to be any */
        kill(target, SIGKILL);
    }
    _exit(0);
}

static bool tell_killer(void *user, manta_session *s, const manta_event *e)
{
    int *to = user;
    pid_t pid = (pid_t)e->pid;

    (void)s;
    if (e->kind == MANTA_EVENT_WORKER) {
        ssize_t n = write(*to, &pid, sizeof pid);
        (void)n;
    }
    return true;
}

static void killed_at_random_moments(void **state)
{
    enum { RUNS = 12, KILLS = 12 };
    training t = {.workers = WORKERS, .shards = SHARDS, .hard = true, .epochs = 12, .event = tell_killer};
    training alone = t;
    outcome golden;

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    alone.workers = 1;
    alone.event = NULL;
    golden = train(&alone);
    for (int i = 0; i < RUNS; i++) {
        int fds[2], status;
        outcome o;
        pid_t killer;
        assert_int_equal(pipe(fds), 0);
        killer = start_killer(fds, (uint64_t)i, KILLS);
        close(fds[0]);
        t.user = &fds[1];
        t.max_failures = KILLS + 1; /* the killer is not bad luck */
        o = train(&t);
        close(fds[1]);
        assert_int_equal(waitpid(killer, &status, 0), killer);
        assert_same_outcome(&golden, &o);
        mem_try_free(o.state);
        assert_childless();
    }
    mem_try_free(golden.state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_point_of_every_rank, NULL, no_plan),
        cmocka_unit_test_setup_teardown(and_the_successor_too, NULL, no_plan),
        cmocka_unit_test_teardown(in_lockstep, no_plan),
        cmocka_unit_test(several_at_once),
        cmocka_unit_test(a_stopped_worker_is_replaced),
        cmocka_unit_test(killed_at_random_moments),
    };

    make_data();
    return cmocka_run_group_tests(tests, make_golden, free_golden);
}
