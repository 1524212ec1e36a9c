/* eventcount_test.c - no wake is lost: between threads, and between processes that
 * share the memory; deadlines; many waiters; and what a killed sleeper leaves.
 *
 * Each test here would wait for ever if one wake were lost: waits have no deadline
 * but where that is the point, and every step needs the one before. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/crash.h"
#include "os/eventcount.h"
#include "os/thread.h"

enum { LIMIT_S = 120, WAITERS = 8 };

/* A number that is passed on, and the two sides that wait for it. */
typedef struct table {
    eventcount bell[2];
    _Atomic uint32_t turn; /* odd: side 1's */
    _Atomic uint32_t word, sleepers[WAITERS];
    _Atomic uint32_t seen[WAITERS];
    _Atomic int pid;
    uint32_t rounds;
} table;

static table *new_table(uint32_t rounds)
{
    table *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(t != MAP_FAILED);
    t->rounds = rounds;
    alarm(LIMIT_S);
    return t;
}

static void free_table(table *t)
{
    alarm(0);
    munmap(t, sizeof *t);
}

typedef struct side {
    table *t;
    uint32_t which;
} side;

static bool is_its_turn(void *ctx)
{
    const side *s = ctx;

    return atomic_load_explicit(&s->t->turn, memory_order_acquire) % 2 == s->which;
}

/* Passes the turn to and fro, sleeping at once each time. */
static void play(void *ctx)
{
    side *s = ctx;
    table *t = s->t;

    for (uint32_t i = 0; i < t->rounds; i++) {
        while (!is_its_turn(s)) (void)eventcount_wait(&t->bell[s->which], is_its_turn, s, CLOCK_NEVER);
        atomic_store_explicit(&t->turn, atomic_load_explicit(&t->turn, memory_order_relaxed) + 1,
                              memory_order_release);
        eventcount_notify(&t->bell[!s->which]);
    }
}

static void end_well(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void two_threads_pass_the_turn(void **state)
{
    table *t = new_table(20000);
    side one = {t, 0}, other = {t, 1};
    thread_id id;

    (void)state;
    assert_int_equal(thread_start(&id, "other", play, &other), MANTA_OK);
    play(&one);
    thread_join(&id);
    assert_int_equal(t->turn, 2 * t->rounds);
    for (int i = 0; i < 2; i++) assert_int_equal(t->bell[i].sleepers, 0);
    free_table(t);
}

static void two_processes_pass_the_turn(void **state)
{
    table *t = new_table(20000);
    side one = {t, 0}, other = {t, 1};
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (!pid) {
        alarm(LIMIT_S);
        play(&other);
        _exit(0);
    }
    play(&one);
    end_well(pid);
    assert_int_equal(t->turn, 2 * t->rounds);
    for (int i = 0; i < 2; i++) assert_int_equal(t->bell[i].sleepers, 0);
    free_table(t);
}

/* ---- many waiters ---- */

/* Follows the turn up to `rounds`: with the three steps of a wait, or with the first
 * of them undone because the look found something. */
static void follow(void *ctx)
{
    side *s = ctx;
    table *t = s->t;

    for (uint32_t last = 0; last < t->rounds;) {
        uint32_t key = eventcount_prepare(&t->bell[0]);
        uint32_t now = atomic_load_explicit(&t->turn, memory_order_acquire);
        if (now == last) (void)eventcount_sleep(&t->bell[0], key, CLOCK_NEVER);
        eventcount_leave(&t->bell[0]);
        last = now;
        atomic_store_explicit(&t->seen[s->which], now, memory_order_release);
        eventcount_notify(&t->bell[1]);
    }
}

static bool have_all_seen(void *ctx)
{
    table *t = ctx;

    for (int i = 0; i < WAITERS; i++)
        if (atomic_load_explicit(&t->seen[i], memory_order_acquire) != t->turn) return false;
    return true;
}

/* Goes on when all have seen the number: one that slept through it would end this. */
static void lead(table *t)
{
    for (uint32_t i = 1; i <= t->rounds; i++) {
        atomic_store_explicit(&t->turn, i, memory_order_release);
        eventcount_notify(&t->bell[0]);
        while (!have_all_seen(t)) (void)eventcount_wait(&t->bell[1], have_all_seen, t, CLOCK_NEVER);
    }
}

static void many_threads_see_every_change(void **state)
{
    table *t = new_table(2000);
    thread_id ids[WAITERS];
    side sides[WAITERS];

    (void)state;
    for (uint32_t i = 0; i < WAITERS; i++) {
        sides[i] = (side){t, i};
        assert_int_equal(thread_start(&ids[i], "waiter", follow, &sides[i]), MANTA_OK);
    }
    lead(t);
    for (int i = 0; i < WAITERS; i++) thread_join(&ids[i]);
    assert_int_equal(t->bell[0].sleepers, 0);
    free_table(t);
}

static void many_processes_see_every_change(void **state)
{
    table *t = new_table(2000);
    pid_t pids[WAITERS];

    (void)state;
    for (uint32_t i = 0; i < WAITERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i]) continue;
        alarm(LIMIT_S);
        follow(&(side){t, i});
        _exit(0);
    }
    lead(t);
    for (int i = 0; i < WAITERS; i++) end_well(pids[i]);
    assert_int_equal(t->bell[0].sleepers, 0);
    free_table(t);
}

/* ---- just as it goes to sleep ---- */

/* Sleeps for each number, and says at once that it has seen it. */
static void hear(void *ctx)
{
    table *t = ctx;

    for (uint32_t last = 0; last < t->rounds;) {
        uint32_t key = eventcount_prepare(&t->bell[0]), now = atomic_load(&t->turn);
        if (now == last) (void)eventcount_sleep(&t->bell[0], key, CLOCK_NEVER);
        eventcount_leave(&t->bell[0]);
        last = now;
        atomic_store(&t->seen[0], now);
    }
}

/* Numbers that come at any moment between a waiter's look and its sleep: a different
 * one each time, a little after it has seen the number before. */
static void a_change_at_any_moment_is_heard(void **state)
{
    table *t = new_table(30000);
    thread_id id;

    (void)state;
    assert_int_equal(thread_start(&id, "hear", hear, t), MANTA_OK);
    for (uint32_t i = 1; i <= t->rounds; i++) {
        for (uint32_t k = 0; k < i * 7 % 64; k++) spin_pause();
        atomic_store_explicit(&t->turn, i, memory_order_release);
        eventcount_notify(&t->bell[0]);
        for (int looks = 0; atomic_load(&t->seen[0]) != i; looks++)
            if (looks > 100) sched_yield();
    }
    thread_join(&id);
    assert_int_equal(t->bell[0].sleepers, 0);
    free_table(t);
}

/* ---- event words ---- */

static const spin_policy policies[] = {
    {.clock_every = 1, .alone_turns = SPIN_ANY_TURNS, .alone_ns = SPIN_CROWDED, .limit_ns = 0},
    {.clock_every = 16, .alone_turns = 20, .alone_ns = SPIN_ANY_TIME, .limit_ns = 5000},
    {.clock_every = 32, .alone_turns = SPIN_ANY_TURNS, .alone_ns = 2000, .limit_ns = 20000}};

/* Each counts the word up when it is its turn, and announces its sleep in a word of its own. */
static void count_up(void *ctx)
{
    side *s = ctx;
    table *t = s->t;
    uint32_t seen;

    while ((seen = atomic_load(&t->word)) < t->rounds) {
        if (seen % WAITERS != s->which) {
            if (!eventword_spin(&t->word, seen, false, &policies[s->which % 3]))
                (void)eventword_sleep(&t->word, seen, &t->sleepers[s->which], CLOCK_NEVER, true);
            continue;
        }
        atomic_fetch_add(&t->word, 1);
        for (int i = 0; i < WAITERS; i++)
            if (eventword_wake(&t->word, &t->sleepers[i], INT_MAX, true)) break;
    }
}

static void threads_count_a_word_up_in_turn(void **state)
{
    table *t = new_table(8000);
    thread_id ids[WAITERS];
    side sides[WAITERS];

    (void)state;
    for (uint32_t i = 0; i < WAITERS; i++) {
        sides[i] = (side){t, i};
        assert_int_equal(thread_start(&ids[i], "counter", count_up, &sides[i]), MANTA_OK);
    }
    for (int i = 0; i < WAITERS; i++) thread_join(&ids[i]);
    assert_int_equal(t->word, t->rounds);
    for (int i = 0; i < WAITERS; i++) assert_int_equal(t->sleepers[i], 0);
    free_table(t);
}

static void processes_count_a_word_up_in_turn(void **state)
{
    table *t = new_table(8000);
    pid_t pids[WAITERS];

    (void)state;
    for (uint32_t i = 0; i < WAITERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i]) continue;
        alarm(LIMIT_S);
        count_up(&(side){t, i});
        _exit(0);
    }
    for (int i = 0; i < WAITERS; i++) end_well(pids[i]);
    assert_int_equal(t->word, t->rounds);
    free_table(t);
}

/* ---- deadlines ---- */

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static bool at_once(void *ctx)
{
    (void)ctx;
    return true;
}

static void a_deadline_ends_a_wait(void **state)
{
    eventcount e = {0};
    _Atomic uint32_t word = 7, sleepers = 0;

    (void)state;
    for (int across = 0; across <= 1; across++) {
        int64_t deadline = clock_now_ns() + 2000000;
        while (eventcount_wait(&e, never, NULL, deadline)) {}
        assert_true(clock_now_ns() >= deadline);
        deadline = clock_now_ns() + 2000000;
        while (eventword_sleep(&word, 7, &sleepers, deadline, across)) {}
        assert_true(clock_now_ns() >= deadline);
        assert_false(eventword_sleep(&word, 7, &sleepers, 0, across)); /* long past */
        assert_true(eventword_sleep(&word, 6, &sleepers, CLOCK_NEVER, across)); /* another value already */
    }
    assert_true(eventcount_wait(&e, at_once, NULL, 0)); /* what is there needs no time */
    assert_int_equal(e.sleepers, 0);
    assert_int_equal(sleepers, 0);
}

static void a_notification_between_announcing_and_sleeping_counts(void **state)
{
    eventcount e = {0};
    uint32_t key = eventcount_prepare(&e);

    (void)state;
    eventcount_notify(&e);
    assert_true(eventcount_sleep(&e, key, CLOCK_NEVER));
    eventcount_leave(&e);
    eventcount_notify(&e); /* with nobody there: neither counted nor told to the system */
    assert_int_equal(e.count, key + 1);
}

/* ---- spinning ---- */

static int64_t told_ns, step_ns;

static int64_t tell_time(void)
{
    return told_ns += step_ns;
}

/* Which turns look at the clock, pause and give way is the policy's to say. */
static void a_spin_goes_by_its_policy(void **state)
{
    static const clock_source source = {.now_ns = tell_time};
    const spin_policy by_time = {4, SPIN_ANY_TURNS, 15, 35}, by_turns = {4, 6, SPIN_ANY_TIME, 35};
    const spin_policy crowded = {1, SPIN_ANY_TURNS, SPIN_CROWDED, 15};
    const struct {
        const spin_policy *p;
        unsigned turns;
        const char *says; /* pause, clock, yield, over */
    } cases[] = {{&by_time, 0, "cpppcpppypppypppo"},
                 {&by_time, 1, "pppcpppcpppypppypppo"},
                 {&by_turns, 0, "cpppcpyyyyyyyyyyo"},
                 {&crowded, 0, "yyo"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spin s = {.turns = cases[i].turns};
        told_ns = 100;
        step_ns = 10;
        clock_replace(&source);
        for (const char *at = cases[i].says; *at; at++)
            assert_int_equal("pcyo"[spin_next(&s, cases[i].p)], *at);
        clock_replace(NULL);
        assert_int_equal(s.now, told_ns);
    }
}

static void a_spin_sees_the_word_change(void **state)
{
    _Atomic uint32_t word = 3;

    (void)state;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        assert_true(eventword_spin(&word, 3, true, &policies[i]));
        assert_true(eventword_spin(&word, 4, false, &policies[i]));
        assert_false(eventword_spin(&word, 4, true, &policies[i]));
        assert_false(eventword_spin(&word, 3, false, &policies[i]));
    }
}

/* ---- the dead ---- */

/* Dies at the point, as the first or as the third who comes by. */
static void kill_at(const crash_point *p, int64_t nth, void (*fn)(void *), side *s)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (!pid) {
        alarm(LIMIT_S);
        crash_plan_set(&(crash_plan){.point = p, .nth = nth});
        fn(s);
        _exit(1); /* it should not have come through */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void sleep_often(void *ctx)
{
    side *s = ctx;

    for (int i = 0; i < 3; i++) (void)eventcount_wait(&s->t->bell[0], at_once, NULL, CLOCK_NEVER);
}

static void wake_often(void *ctx)
{
    side *s = ctx;

    for (int i = 0; i < 3; i++) eventcount_wake(&s->t->bell[0]);
}

/* What the dead leave behind costs the living a system call, and no wake. */
static void the_dead_take_no_wake_with_them(void **state)
{
    (void)state;
    for (int64_t nth = 1; nth <= 3; nth += 2) {
        table *t = new_table(500);
        side one = {t, 0}, other = {t, 1};
        pid_t pid;
        kill_at(&eventcount_crash_points[EVENTCOUNT_CRASH_ANNOUNCED], nth, sleep_often, &one);
        assert_int_equal(t->bell[0].sleepers, 1);
        kill_at(&eventcount_crash_points[EVENTCOUNT_CRASH_COUNTED], nth, wake_often, &one);
        assert_int_equal(t->bell[0].count, nth);
        assert_true((pid = fork()) >= 0);
        if (!pid) {
            alarm(LIMIT_S);
            play(&other);
            _exit(0);
        }
        play(&one);
        end_well(pid);
        assert_int_equal(t->turn, 2 * t->rounds);
        free_table(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_pass_the_turn),
        cmocka_unit_test(two_processes_pass_the_turn),
        cmocka_unit_test(many_threads_see_every_change),
        cmocka_unit_test(many_processes_see_every_change),
        cmocka_unit_test(a_change_at_any_moment_is_heard),
        cmocka_unit_test(threads_count_a_word_up_in_turn),
        cmocka_unit_test(processes_count_a_word_up_in_turn),
        cmocka_unit_test(a_deadline_ends_a_wait),
        cmocka_unit_test(a_notification_between_announcing_and_sleeping_counts),
        cmocka_unit_test(a_spin_goes_by_its_policy),
        cmocka_unit_test(a_spin_sees_the_word_change),
        cmocka_unit_test(the_dead_take_no_wake_with_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
