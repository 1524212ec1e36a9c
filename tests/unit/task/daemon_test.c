/* daemon_test.c - when the daemon concludes that no worker can start, and ends the node:
 * after workers that end of themselves before they have started, and not after those
 * that it has ended or that cannot be given to the one who asks. And what it counts of what
 * several processes say of one object. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/log.h>

#include "os/descendants.h"
#include "os/spawner.h"
#include "task/bare_node.h"

enum { MANY = 30 };

/* A worker that waits for its end, or has ended, before it says anything. */
static void be_worker(void *ctx)
{
    const bool *ends = ctx;

    while (!*ends) pause();
    _exit(1);
}

static uint32_t add_worker(node *d, bool ends)
{
    int pair[2];
    spawn_child c;

    if (socket_pair(pair) || spawn_start(&(spawn_options){.run = be_worker, .ctx = &ends}, &c)) abort();
    close(pair[1]);
    daemon_add_worker(d, BARE_JOB, 0, c.pid, false, (int[]){pair[0], c.pidfd}, 2);
    return d->next_client;
}

static void until_buried(node *d, uint32_t id)
{
    client *c = daemon_client(d, id);
    int status = spawn_reap(c->pid);

    while (!c->dying)
        if (loop_run(d->loop, 1000)) abort();
    c->status = status;
    (void)daemon_bury(d);
}

static void workers_end(node *d)
{
    until_buried(d, add_worker(d, true));
}

static void workers_are_killed(node *d)
{
    uint32_t id = add_worker(d, false);

    daemon_kill(d, id);
    until_buried(d, id);
}

/* The only free worker is the one that asks for one. */
static void worker_asks_for_itself(node *d)
{
    const sched_shape one = {.amount = {SCHED_UNIT}};
    buf b = {0};
    client *c = daemon_client(d, d->next_client);

    if (!c) c = daemon_client(d, add_worker(d, false));
    proto_begin(&b, PROTO_DEMAND);
    buf_add(&b, &one, sizeof one);
    wire_put_i64(&b, 1);
    wire_put_u64(&b, 1);
    wire w = wire_of(b.at, b.n);
    daemon_message(d, c, &w);
    buf_release(&b);
}

/* Runs in a process of its own, which ends all the others: a daemon never gives back
 * what it has. Whether the node wants to end after many of `happens`. */
static bool node_ends(void (*happens)(node *d))
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        manta_log_set_level(MANTA_LOG_LEVEL_OFF);
        node *d = bare_node_new();
        for (int i = 0; i < MANY && !d->stop; i++) happens(d);
        descendants_end();
        _exit(d->stop);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void workers_that_cannot_start_end_the_node(void **state)
{
    (void)state;
    assert_true(node_ends(workers_end));
}

static void workers_that_were_killed_do_not(void **state)
{
    (void)state;
    assert_false(node_ends(workers_are_killed));
}

static void a_worker_that_asks_for_itself_does_not(void **state)
{
    (void)state;
    assert_false(node_ends(worker_asks_for_itself));
}

/* ---- a worker that dies ---- */

static void say_words(node *d, uint32_t who, proto_kind kind, const uint32_t *words, int n)
{
    buf b = {0};

    proto_begin(&b, kind);
    buf_add(&b, words, (size_t)n * sizeof *words);
    wire w = wire_of(b.at, b.n);
    daemon_message(d, daemon_client(d, who), &w);
    buf_release(&b);
}

/* Whether a worker that was killed by a cancel, and was then given back, is one to be had. */
static bool killed_is_had(node *d)
{
    const sched_shape one = {.amount = {SCHED_UNIT}};

    sched_free(d->sched);
    d->sched = sched_new(d->config.total, 4); /* an idle worker is not one too many */
    uint32_t caller = add_worker(d, false), worker = add_worker(d, false);
    daemon_act(d,
               (sched_event){.kind = SCHED_DEMAND, .client = caller, .job = BARE_JOB, .shape = one, .n = 1});
    if (sched_holder(d->sched, worker) != caller) abort();
    say_words(d, caller, PROTO_CANCEL, (uint32_t[]){worker, 5, 0, MANTA_CANCEL_FORCE}, 4);
    say_words(d, caller, PROTO_RETURN, &worker, 1);
    return sched_workers(d->sched) != 1;
}

static void a_worker_that_was_killed_is_nobodys(void **state)
{
    int status;
    (void)state;

    pid_t pid = fork();
    if (pid == 0) {
        manta_log_set_level(MANTA_LOG_LEVEL_OFF);
        bool had = killed_is_had(bare_node_new());
        descendants_end();
        _exit(had);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- counts ---- */

static void say_number(node *d, uint32_t who, proto_kind kind, uint64_t id)
{
    buf b = {0};

    proto_begin(&b, kind);
    wire_put_u64(&b, id);
    wire w = wire_of(b.at, b.n);
    daemon_message(d, daemon_client(d, who), &w);
    buf_release(&b);
}

static void say_add(node *d, uint32_t who, uint64_t id, uint32_t holder)
{
    const value v = {.kind = MANTA_KIND_I64, .size = 8, .word = 7};
    buf b = {0};

    proto_begin(&b, PROTO_ADD);
    wire_put_u64(&b, id);
    wire_put_u32(&b, holder);
    wire_put_u64(&b, 0); /* it comes with no call */
    wire_put_u64(&b, 0);
    value_put(&b, &v);
    wire_put_u64(&b, 0);
    wire w = wire_of(b.at, b.n);
    daemon_message(d, daemon_client(d, who), &w);
    buf_release(&b);
}

/* Holds of `holder`, or drops of `who`. */
static void say_count(node *d, uint32_t who, uint32_t holder, uint64_t id)
{
    buf b = {0};

    proto_begin(&b, holder ? PROTO_HOLD : PROTO_DROP);
    if (holder) {
        wire_put_u32(&b, holder);
        wire_put_u32(&b, 0);
    }
    wire_put_u64(&b, 1);
    wire_put_u64(&b, id);
    wire w = wire_of(b.at, b.n);
    daemon_message(d, daemon_client(d, who), &w);
    buf_release(&b);
}

static void say_failed(node *d, uint32_t who, uint64_t id)
{
    buf b = {0};
    failure *f = failure_make(MANTA_FAILURE_CANCELLED, MANTA_ECANCELLED, "f", 0, "the call was cancelled");

    proto_begin(&b, PROTO_FAIL);
    wire_put_u64(&b, id);
    failure_put(&b, f);
    failure_unref(f);
    wire w = wire_of(b.at, b.n);
    daemon_message(d, daemon_client(d, who), &w);
    buf_release(&b);
}

/* `owner` has promised the result of a call, which `reader` holds too, and cancelled the call when it had run: it
 * lets the result go and says that the object has failed. What `runner` says of the result is read after `place`
 * of those. Whether the promise and the reader still count. */
static bool cancelled_is_held(node *d, int place)
{
    uint32_t owner = add_worker(d, false), runner = add_worker(d, false), reader = add_worker(d, false);
    uint64_t id = (uint64_t)owner << DIRECTORY_OWNER_SHIFT | 5;

    for (int i = 0; i <= 4; i++) {
        if (i == place) say_add(d, runner, id, owner);
        switch (i) {
        case 0: say_number(d, owner, PROTO_PROMISE, id); break;
        case 1: say_count(d, owner, reader, id); break;
        case 2: say_count(d, owner, 0, id); break;
        case 3: say_failed(d, owner, id); break;
        default: break;
        }
    }
    while (daemon_settle(d)) {}
    return directory_state_of(d->objects, id) != DIRECTORY_NONE && refs_total(d->refs, id) == 2;
}

/* A call was made by `owner` and run by `runner`; its owner promises the result, hands the
 * reference on to `reader` and lets go of it. Whether the reader still holds it. */
static bool reader_holds(node *d, bool runner_first)
{
    uint32_t owner = add_worker(d, false), runner = add_worker(d, false), reader = add_worker(d, false);
    uint64_t id = (uint64_t)owner << DIRECTORY_OWNER_SHIFT | 5;

    if (runner_first) say_add(d, runner, id, owner);
    say_number(d, owner, PROTO_PROMISE, id);
    say_count(d, owner, reader, id);
    if (!runner_first) say_add(d, runner, id, owner);
    say_count(d, owner, 0, id); /* the hold of the promise, and that of the result */
    say_count(d, owner, 0, id);
    while (daemon_settle(d)) {}
    return directory_state_of(d->objects, id) == DIRECTORY_READY && refs_total(d->refs, id) == 1;
}

/* What owner and runner say comes over two connections, in any order. */
static void a_promise_counts_when_the_object_is_there_already(void **state)
{
    int status;
    (void)state;

    for (int first = 0; first < 2; first++) {
        pid_t pid = fork();
        if (pid == 0) {
            manta_log_set_level(MANTA_LOG_LEVEL_OFF);
            bool holds = reader_holds(bare_node_new(), first);
            descendants_end();
            _exit(holds);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
}

static void a_result_that_was_cancelled_is_dropped_once(void **state)
{
    int status;
    (void)state;

    for (int place = 0; place <= 4; place++) {
        pid_t pid = fork();
        if (pid == 0) {
            manta_log_set_level(MANTA_LOG_LEVEL_OFF);
            bool holds = cancelled_is_held(bare_node_new(), place);
            descendants_end();
            _exit(holds);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_that_cannot_start_end_the_node),
        cmocka_unit_test(workers_that_were_killed_do_not),
        cmocka_unit_test(a_worker_that_asks_for_itself_does_not),
        cmocka_unit_test(a_worker_that_was_killed_is_nobodys),
        cmocka_unit_test(a_promise_counts_when_the_object_is_there_already),
        cmocka_unit_test(a_result_that_was_cancelled_is_dropped_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
