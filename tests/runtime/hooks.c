/* hooks.c - what a program is asked and told (manta/nursery.h): waits that a signal ends, calls
 * that are cancelled, workers that end, what they print, where they are. `runtime_hooks SCENARIO [nursery]`. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/failure.h>
#include <manta/node.h>
#include <manta/nursery.h>
#include <manta/queue.h>
#include <manta/stream.h>

#include "scenario.h"

/* ---- waits ---- */

static volatile sig_atomic_t interrupted;
static _Atomic int questions;
static pthread_t first;

static void on_signal(int s)
{
    (void)s;
    interrupted = 1;
}

/* As a language does whose signals are its first thread's. */
static bool is_interrupted(void *user)
{
    manta_error e;

    manta_error_get(&e); /* what a hook does is its own business */
    ++*(_Atomic int *)user;
    if (!pthread_equal(pthread_self(), first) || !interrupted) return false;
    interrupted = 0;
    return true;
}

static void *send_signal(void *arg)
{
    usleep(*(useconds_t *)arg);
    pthread_kill(first, SIGINT);
    return NULL;
}

typedef manta_status wait_fn(manta_ref r, int64_t timeout_ms);

static manta_status by_get(manta_ref r, int64_t timeout_ms)
{
    return manta_get(r, timeout_ms);
}

static manta_status by_get_all(manta_ref r, int64_t timeout_ms)
{
    return manta_get_all(&r, 1, timeout_ms);
}

static manta_status by_wait(manta_ref r, int64_t timeout_ms)
{
    bool ready = false;
    size_t n = 0;
    manta_status st = manta_wait(&r, 1, 1, timeout_ms, &ready, &n);

    return st ? st : n == 1 ? MANTA_OK : MANTA_ETIMEDOUT;
}

/* Ends a wait for a call that lasts, again and again; returns the shortest time from signal to end. */
static double signal_waits(manta_ref r, wait_fn *wait, bool before)
{
    double best = 1e9;
    useconds_t later = 20000;

    for (int i = 0; i < 5; i++) {
        pthread_t id;
        double begin = now();
        if (before) { /* the signal comes before the thread sleeps, and ends no sleep */
            interrupted = 1;
        } else {
            CHECK(pthread_create(&id, NULL, send_signal, &later) == 0);
        }
        CHECK(wait(r, LONG) == MANTA_EINTERRUPTED);
        SAYS("interrupted");
        double took = now() - begin - (before ? 0 : later * 1e-6);
        best = took < best ? took : best;
        if (!before) CHECK(pthread_join(id, NULL) == 0);
        manta_ref other = manta_remote(nop); /* the next call works */
        OK(manta_get(other, LONG));
        manta_release(other);
    }
    return best;
}

/* A thread whose waits no signal ends. */
static void *wait_elsewhere(void *arg)
{
    CHECK(manta_get(*(manta_ref *)arg, LONG) == MANTA_ECANCELLED);
    return NULL;
}

static void scenario_interrupted(void)
{
    wait_fn *const all[] = {by_get, by_get_all, by_wait};
    struct sigaction handler = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    manta_queue q;
    manta_ref item;
    manta_stream s;
    pthread_t id;

    CHECK(sigaction(SIGINT, &handler, NULL) == 0);
    folder_make();
    manta_ref r = manta_remote(linger, manta_str(path_of("runs")));
    until_there("runs");
    CHECK(pthread_create(&id, NULL, wait_elsewhere, &r) == 0);
    for (int k = 0; k < 3; k++) {
        double soon = signal_waits(r, all[k], false), late = signal_waits(r, all[k], true);
        printf("%d: %.1f ms after a signal, %.1f ms where none ended the sleep\n", k, soon * 1e3, late * 1e3);
        CHECK(soon < 10 && late < 10); /* far from LONG, on a machine that has other work, too */
    }
    CHECK(questions > 30);
    OK(manta_queue_new(0, NULL, &q));
    interrupted = 1;
    CHECK(manta_queue_get(q, &item, LONG) == MANTA_EINTERRUPTED);
    OK(manta_queue_put(q, manta_i64(7), LONG)); /* nobody waits for it any more */
    OK(manta_queue_get(q, &item, LONG));
    manta_release(item);
    manta_queue_release(q);
    s = manta_remote_stream(NULL, yield_late, manta_str(path_of("yield")));
    interrupted = 1;
    CHECK(manta_stream_next(s, &item, LONG) == MANTA_EINTERRUPTED);
    OK(touch(path_of("yield")));
    OK(manta_stream_next(s, &item, LONG));
    manta_release(item);
    manta_stream_close(s);
    OK(manta_cancel(r, 0));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED);
    CHECK(pthread_join(id, NULL) == 0);
    manta_release(r);
    folder_remove();
}

/* ---- cancels and ends, in workers ---- */

static _Atomic uint64_t told; /* the call that was cancelled, as the hook says */
static char end_mark[128]; /* the file that the end of this worker makes */
static pthread_t worker_thread;
static _Atomic bool told_elsewhere;

static void on_cancelled(void *user, uint64_t task)
{
    (void)user;
    told_elsewhere = !pthread_equal(pthread_self(), worker_thread);
    told = task;
}

static void on_end(void *user)
{
    (void)user;
    if (end_mark[0]) (void)!touch(end_mark);
}

static manta_status yield_late(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    while (access(path, F_OK)) usleep(500);
    return manta_yield(t, manta_i64(1));
}
MANTA_REMOTE(yield_late)

/* Ends when its hook was told, and says whether of the right call. */
static manta_status until_told(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    worker_thread = pthread_self();
    told = 0;
    MANTA_TRY(touch(path));
    while (!told) usleep(200);
    return manta_fail(MANTA_ECANCELLED, "told of %s call, on %s thread",
                      told == manta_task_id(t) && manta_task_is_cancelled(t) ? "this" : "another",
                      told_elsewhere ? "another" : "this");
}
MANTA_REMOTE(until_told)

static void scenario_cancelled(void)
{
    char name[16];

    folder_make();
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "runs-%d", i);
        manta_ref r = manta_remote(until_told, manta_str(path_of(name)));
        until_there(name);
        OK(manta_cancel(r, 0));
        CHECK(manta_get(r, LONG) == MANTA_ECANCELLED);
        manta_failure f = failure_of(r);
        CHECK(f.kind == MANTA_FAILURE_CANCELLED);
        printf("%s\n", manta_error_text());
        SAYS("told of this call, on another thread");
        manta_release(r);
    }
    folder_remove();
}

static manta_status mourner(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    snprintf(end_mark, sizeof end_mark, "%s", path);
    return MANTA_OK;
}
MANTA_REMOTE(mourner)

/* An actor whose last handle goes ends as it was told to; one that is killed does not. */
static void scenario_ends(void)
{
    folder_make();
    manta_actor a = manta_actor_new(NULL, mourner, manta_str(path_of("ended")));
    OK(manta_actor_ready(a, LONG));
    manta_actor b = manta_actor_new(NULL, mourner, manta_str(path_of("killed")));
    OK(manta_actor_ready(b, LONG));
    manta_actor_release(a);
    until_there("ended");
    OK(manta_actor_kill(b, true));
    while (manta_actor_ready(b, LONG) == MANTA_OK) {}
    CHECK(access(path_of("killed"), F_OK) != 0);
    manta_actor_release(b);
    folder_remove();
}

/* ---- prints ---- */

static struct {
    pthread_mutex_t lock;
    bool shows; /* otherwise the runtime writes */
    char text[2][4096];
} prints = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool on_printed(void *user, int stream, const char *text, size_t n)
{
    (void)user;
    pthread_mutex_lock(&prints.lock);
    char *at = prints.text[stream - 1];
    size_t had = strlen(at);
    bool shows = prints.shows;
    if (shows) snprintf(at + had, sizeof prints.text[0] - had, "%.*s", (int)n, text);
    pthread_mutex_unlock(&prints.lock);
    return shows;
}

static bool was_printed(int stream, const char *text)
{
    pthread_mutex_lock(&prints.lock);
    bool there = strstr(prints.text[stream - 1], text) != NULL;
    pthread_mutex_unlock(&prints.lock);
    return there;
}

static manta_status speaks(manta_task *t)
{
    int64_t i;

    MANTA_TRY(manta_arg_i64(t, 0, &i));
    printf("said %lld\n", (long long)i);
    fprintf(stderr, "warned %lld\n", (long long)i);
    return MANTA_OK;
}
MANTA_REMOTE(speaks)

/* What workers print is shown by the program, if it says so; in other scenarios it does not. */
static void scenario_prints(void)
{
    prints.shows = true;
    for (int i = 0; i < 3; i++) {
        manta_ref r = manta_remote(speaks, manta_i64(i));
        OK(manta_get(r, LONG));
        manta_release(r);
    }
    while (!was_printed(1, ") said 2\n") || !was_printed(2, ") warned 2\n")) usleep(200);
    CHECK(was_printed(1, "(speaks pid=") && was_printed(1, ") said 0\n") && was_printed(1, ") said 1\n"));
    CHECK(was_printed(2, ") warned 0\n") && !was_printed(1, "warned") && !was_printed(2, "said"));
}

/* ---- where a worker is ---- */

static manta_status nobody(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(nobody)

static size_t on_stack(void *user, char *out, size_t size)
{
    (void)user;
    int n = snprintf(out, size, "in a language of process %d\n", (int)getpid());
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

static manta_status says_pid(manta_task *t)
{
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(says_pid)

/* A worker's account begins with what the program says of it. */
static void scenario_stack(void)
{
    manta_node_info info;
    manta_actor a = manta_actor_new(NULL, nobody);
    manta_ref r = manta_actor_call(a, says_pid);
    int64_t pid;
    char address[32], wanted[64], *text;

    OK(manta_get_i64(r, &pid, LONG));
    OK(manta_node_get(&info));
    snprintf(address, sizeof address, "%d", info.daemon_pid);
    snprintf(wanted, sizeof wanted, "in a language of process %d\n\n#0 ", (int)pid);
    OK(manta_view_stack(address, (int)pid, &text));
    CHECK(!strncmp(text, wanted, strlen(wanted)));
    free(text);
    manta_release(r);
    manta_actor_release(a);
}

/* ---- values of calls that were cancelled ---- */

/* returns_anyway(path): is cancelled, and returns 7. */
static manta_status returns_anyway(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    MANTA_TRY(touch(path));
    while (!manta_task_is_cancelled(t)) usleep(200);
    return manta_return_i64(t, 0, 7);
}
MANTA_REMOTE(returns_anyway)

/* A function that returns all the same has its result where the program chose so; a method has not, and one
 * that fails has failed by the cancel. */
static void scenario_keeps(void)
{
    int64_t v = 0;

    folder_make();
    manta_ref r = manta_remote(returns_anyway, manta_str(path_of("runs")));
    until_there("runs");
    OK(manta_cancel(r, 0));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 7);
    manta_release(r);
    r = manta_remote(linger, manta_str(path_of("fails")));
    until_there("fails");
    OK(manta_cancel(r, 0));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED);
    manta_release(r);
    manta_actor a = manta_actor_new(NULL, nobody);
    r = manta_actor_call(a, returns_anyway, manta_str(path_of("method")));
    until_there("method");
    OK(manta_cancel(r, 0));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED);
    manta_release(r);
    manta_actor_release(a);
    folder_remove();
}

int main(int argc, char **argv)
{
    static const scenario scenarios[] = {{"interrupted", scenario_interrupted, NULL},
                                         {"cancelled", scenario_cancelled, NULL},
                                         {"ends", scenario_ends, NULL},
                                         {"prints", scenario_prints, NULL},
                                         {"stack", scenario_stack, NULL},
                                         {"keeps", scenario_keeps, NULL}};
    manta_hooks hooks = {.user = &questions,
                         .interrupted = is_interrupted,
                         .cancelled = on_cancelled,
                         .end = on_end,
                         .printed = on_printed,
                         .stack = on_stack};

    if (argc > 1 && !strcmp(argv[1], "keeps")) setenv("KEEPS", "1", 1); /* a nursery has other arguments */
    manta_set_cancel_keeps(getenv("KEEPS") != NULL);
    first = pthread_self();
    manta_set_hooks(&hooks);
    return scenario_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
