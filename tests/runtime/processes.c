/* processes.c - the node's processes: their ends, at random and in order, and the threads of a program. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/queue.h>

#include "scenario.h"

/* A child of a worker that nobody waits for, in a session of its own. */
static manta_status grandchild(manta_task *t)
{
    pid_t child = fork();

    if (child == 0) {
        setsid();
        for (;;) pause();
    }
    return manta_return_i64(t, 0, child);
}
MANTA_REMOTE(grandchild)

/* Prints who is there, then stays; the test kills. */
void scenario_stay(void)
{
    manta_node_info n;
    int64_t child;
    manta_ref r = manta_remote(grandchild);

    OK(manta_get_i64(r, &child, MANTA_FOREVER));
    manta_actor c = manta_actor_new(NULL, counter);
    OK(manta_actor_ready(c, MANTA_FOREVER));
    folder_make();
    manta_ref busy = manta_remote(linger, manta_str(path_of("runs")));
    until_there("runs");
    folder_remove();
    OK(manta_node_get(&n));
    printf("driver %d keeper %d daemon %d zygote %d grandchild %d actor %d workers", getpid(), n.keeper_pid,
           n.daemon_pid, n.zygote_pid, (int)child, manta_actor_pid(c));
    for (int i = 0; i < n.n_worker_pids; i++) printf(" %d", n.worker_pids[i]);
    printf("\n");
    fflush(stdout);
    double begin = now();
    manta_status st = manta_get(busy, MANTA_FOREVER);
    printf("ended %s: %s (%.3f s)\n", manta_status_name(st), manta_error_text(), now() - begin);
    fflush(stdout);
    r = manta_remote(nop);
    st = manta_get(r, 2000);
    printf("after %s: %s\n", manta_status_name(st), manta_error_text());
    fflush(stdout);
    if (getenv("STAY")) pause();
}

static manta_status close_all(manta_task *t)
{
    for (int fd = 3; fd < 4096; fd++) (void)close(fd);
    return manta_return_i64(t, 0, 1);
}
MANTA_REMOTE(close_all)

/* Needs the daemon: what it puts others may ask for. */
static manta_status put_and_return(manta_task *t)
{
    manta_ref r = manta_put(manta_i64(2));
    manta_status st = manta_return(t, 0, manta_refs(&r, 1));

    manta_release(r);
    return st;
}
MANTA_REMOTE(put_and_return)

/* A function closes all descriptors, as one does that becomes a daemon: its worker leaves as soon as it misses
 * one, and what it was to do is done by another. */
void scenario_closes_all(void)
{
    manta_ref r = manta_remote(close_all);
    const manta_ref *inner;
    size_t n;
    int64_t v;

    OK(manta_get_i64(r, &v, LONG));
    manta_release(r);
    double begin = now();
    for (int i = 0; i < 5; i++) {
        r = manta_remote(put_and_return);
        OK(manta_get_refs(r, &inner, &n, LONG));
        OK(manta_get_i64(inner[0], &v, LONG));
        CHECK(v == 2);
        manta_release(r);
    }
    printf("closes-all: %.3f s\n", now() - begin);
}

/* The zygote dies: nothing is noticed, and new workers can still be had. */
void scenario_zygote(void)
{
    manta_node_info n, m;
    int64_t a, b;
    manta_ref r = manta_remote(nop); /* there is a worker, so there is a zygote */

    OK(manta_get(r, LONG));
    manta_release(r);
    OK(manta_node_get(&n));
    CHECK(n.zygote_pid > 1 && kill(n.zygote_pid, SIGKILL) == 0);
    r = manta_remote(pid);
    OK(manta_get_i64(r, &a, LONG));
    manta_release(r);
    CHECK(kill((pid_t)a, SIGKILL) == 0);
    r = manta_remote(die_twice);
    OK(manta_get_i64(r, &b, LONG));
    manta_release(r);
    OK(manta_node_get(&m));
    CHECK(m.zygote_pid > 0 && m.zygote_pid != n.zygote_pid);
}

/* Several threads of one driver, each with calls, objects and waits of its own. */
static manta_actor shared_actor;

static void *caller(void *arg)
{
    double base = *(double *)arg, v;
    int64_t n;

    for (int i = 0; i < 300; i++) {
        manta_ref x = manta_put(manta_f64(base)), y = manta_remote(add, x, manta_f64(i));
        manta_ref z = manta_remote(add, y, x), c = manta_actor_call(shared_actor, counter_add, manta_i64(1));
        OK(manta_get_f64(z, &v, LONG));
        CHECK(v == 2 * base + i);
        OK(manta_get_i64(c, &n, LONG));
        manta_ref all[4] = {x, y, z, c};
        manta_release_all(all, 4);
    }
    return NULL;
}

void scenario_threads(void)
{
    enum { N = 4 };
    pthread_t id[N];
    double base[N];
    int64_t n;

    shared_actor = manta_actor_new(NULL, counter);
    for (int i = 0; i < N; i++) {
        base[i] = 1000 * i;
        CHECK(pthread_create(&id[i], NULL, caller, &base[i]) == 0);
    }
    for (int i = 0; i < N; i++) CHECK(pthread_join(id[i], NULL) == 0);
    manta_ref r = manta_actor_call(shared_actor, counter_add, manta_i64(0));
    OK(manta_get_i64(r, &n, MANTA_FOREVER));
    CHECK(n == 300 * N);
    manta_release(r);
    manta_actor_release(shared_actor);
}

/* Work of all kinds while workers and zygotes are killed at random: every call
 * must end, with the right value, and in the end nothing may be held. */
void scenario_chaos(void)
{
    const char *env = getenv("CHAOS_SECONDS"), *seed = getenv("CHAOS_SEED");
    double limit = env ? atof(env) : 3, begin = now();
    unsigned short random[3] = {(unsigned short)(seed ? atoi(seed) : 1), 2, 3};
    manta_task_options sturdy = {.max_retries = MANTA_UNLIMITED};
    manta_task_options phoenix = {.max_restarts = MANTA_UNLIMITED, .max_task_retries = MANTA_UNLIMITED};
    manta_node_info n;
    int rounds = 0, kills = 0;

    while (now() - begin < limit) {
        enum { N = 12 };
        manta_ref r[N], big[4], in[4], nest[2], sum;
        int64_t v;
        double d;
        manta_array a;
        manta_actor c = manta_actor_new(&phoenix, counter, manta_i64(5));
        for (int i = 0; i < N; i++) r[i] = manta_remote_with(&sturdy, add, manta_f64(i), manta_f64(rounds));
        int64_t dims[1] = {50000};
        float *f = malloc(200000);
        for (int i = 0; i < 50000; i++) f[i] = (float)(i + rounds);
        manta_array src = manta_array_of(MANTA_DTYPE_F32, 1, dims, f);
        for (int i = 0; i < 4; i++) {
            in[i] = manta_put(manta_elements(&src));
            big[i] = manta_remote_with(&sturdy, echo, in[i]);
        }
        for (int i = 0; i < 2; i++) nest[i] = manta_remote_with(&sturdy, fib, manta_i64(5));
        sum = manta_remote_with(&sturdy, sum_refs, manta_refs(r, N));
        manta_ref count = manta_actor_call(c, counter_add, manta_i64(1));
        OK(manta_node_get(&n));
        int k = (int)(erand48(random) * 3);
        for (int i = 0; i < k && n.n_worker_pids > 0; i++) {
            kills++;
            kill(n.worker_pids[(int)(erand48(random) * n.n_worker_pids)], SIGKILL);
        }
        if (erand48(random) < 0.1 && n.zygote_pid > 1) kill(n.zygote_pid, SIGKILL);
        for (int i = 0; i < N; i++) {
            OK(manta_get_f64(r[i], &d, LONG));
            CHECK(d == i + rounds);
        }
        for (int i = 0; i < 4; i++) {
            OK(manta_get_array(big[i], &a, LONG));
            CHECK(!memcmp(a.data, f, 200000));
        }
        for (int i = 0; i < 2; i++) {
            OK(manta_get_i64(nest[i], &v, LONG));
            CHECK(v == 5);
        }
        OK(manta_get_f64(sum, &d, LONG));
        CHECK(d == N * (N - 1) / 2 + N * rounds);
        OK(manta_get_i64(count, &v, LONG));
        CHECK(v >= 6); /* at least once */
        manta_release_all(r, N);
        manta_release_all(big, 4);
        manta_release_all(in, 4);
        manta_release_all(nest, 2);
        manta_release(sum);
        manta_release(count);
        manta_actor_release(c);
        free(f);
        rounds++;
    }
    double end = now();
    do OK(manta_node_get(&n));
    while ((n.objects > 0 || n.actors > 0) && now() - end < LONG / 1000);
    printf("%d rounds, %d kills; %llu objects and %d actors are left\n", rounds, kills,
           (unsigned long long)n.objects, n.actors);
    CHECK(n.objects == 0 && n.actors == 0);
}

void scenario_shutdown(void)
{
    manta_node_info n;

    OK(manta_node_get(&n));
    CHECK(kill(n.daemon_pid, SIGSTOP) == 0); /* even so */
    double begin = now();
    manta_shutdown();
    CHECK(now() - begin < LONG / 1000);
    CHECK(kill(n.daemon_pid, 0) != 0 && kill(n.keeper_pid, 0) != 0);
    manta_shutdown();
    CHECK(!manta_is_initialized());
    OK(manta_init(NULL, NULL, NULL));
    CHECK(manta_init(NULL, NULL, NULL) == MANTA_EEXIST);
    scenario_calls();
}

static _Atomic bool quiet;

/* The address sanitizer's malloc stays locked in a fork, unlike the system's. */
#if defined(__SANITIZE_ADDRESS__)
enum { MALLOC_MINDS_FORKS = 0 };
#else
enum { MALLOC_MINDS_FORKS = 1 };
#endif

/* Takes and gives locks of malloc and stdio all the time. */
static void *noise(void *arg)
{
    FILE *f = MALLOC_MINDS_FORKS ? fopen("/dev/null", "w") : NULL;

    while (!quiet) {
        if (!f) {
            usleep(100);
            continue;
        }
        char *p = malloc(100 + (size_t)rand() % 5000);
        if (p) fprintf(f, "%p\n", (void *)p);
        free(p);
    }
    if (f) fclose(f);
    return arg;
}

void scenario_threads_before(void)
{
    enum { THREADS = 3 };
    pthread_t id[THREADS];
    manta_node_options o = {.num_cpus = 2};

    manta_shutdown();
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&id[i], NULL, noise, NULL) == 0);
    for (int round = 0; round < 5; round++) {
        int64_t v;
        double d;
        OK(manta_init(NULL, NULL, &o));
        manta_ref r = manta_remote(add, manta_f64(1), manta_f64(round));
        OK(manta_get_f64(r, &d, LONG));
        CHECK(d == 1 + round);
        manta_release(r);
        r = manta_remote(pid);
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v != getpid() && kill((pid_t)v, SIGKILL) == 0); /* the zygote forks another */
        manta_release(r);
        manta_actor a = manta_actor_new(NULL, counter, manta_i64(3));
        r = manta_actor_call(a, counter_add, manta_i64(4));
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == 7);
        manta_release(r);
        manta_actor_release(a);
        manta_node_info n;
        OK(manta_node_get(&n));
        manta_shutdown();
        CHECK(kill(n.keeper_pid, 0) != 0 && kill(n.daemon_pid, 0) != 0); /* nothing is left */
    }
    quiet = true;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(id[i], NULL) == 0);
}

/* The node's options that are words. */
void scenario_words(void)
{
    manta_node_options o = {.num_cpus = 2, .name_space = "ours", .log_level = "off"};
    manta_actor a, b;

    manta_shutdown();
    CHECK(manta_init(NULL, NULL, &(manta_node_options){.log_level = "loud"}) == MANTA_EINVAL);
    SAYS("loud");
    CHECK(manta_init(NULL, NULL, &(manta_node_options){.name_space = "a/b"}) == MANTA_EINVAL);
    CHECK(manta_init(NULL, NULL, &(manta_node_options){.resources = "disk"}) == MANTA_EINVAL);
    OK(manta_init(NULL, NULL, &o));
    CHECK(manta_init(NULL, NULL, &o) == MANTA_EEXIST);
    a = manta_actor_new(&(manta_task_options){.name = "tally"}, counter);
    OK(manta_actor_find_in("ours", "tally", &b));
    CHECK(a.id == b.id && manta_actor_find_in("default", "tally", &b) == MANTA_ENOENT);
    manta_shutdown();
    /* Without a change in the program: no other process. */
    int64_t v;
    CHECK(setenv("MANTA_ADDRESS", "in-process", 1) == 0);
    OK(manta_init(NULL, NULL, &o));
    manta_ref r = manta_remote(pid);
    OK(manta_get_i64(r, &v, 0));
    CHECK(v == getpid());
    manta_release(r);
}

/* ---- processes that the program forks ---- */

static manta_ref before_fork; /* of the parent, when there is one */

/* What a forked process sees; what it returns is how it ends, 0: as it should. */
static int forked_child(void)
{
    manta_node_info info;
    manta_queue q;
    bool ready;
    double d;
    manta_actor a = {0};

    if (manta_is_initialized()) return 1;
    manta_ref r = manta_remote(add, manta_f64(1), manta_f64(2));
    if (manta_get_f64(r, &d, LONG) != MANTA_EPERM || !strstr(manta_error_text(), "was forked from")) return 2;
    if (manta_put(manta_f64(1)).id) return 3;
    if (manta_get_f64(before_fork, &d, LONG) != MANTA_EPERM) return 4;
    if (manta_wait(&before_fork, 1, 1, LONG, &ready, NULL) != MANTA_EPERM) return 5;
    if (manta_node_get(&info) != MANTA_EPERM) return 6;
    a = manta_actor_new(NULL, counter);
    if (manta_actor_ready(a, LONG) != MANTA_EPERM || manta_queue_new(0, NULL, &q) != MANTA_EPERM) return 7;
    if (manta_cancel(before_fork, 0) != MANTA_EPERM || manta_retain(before_fork) != MANTA_EPERM) return 8;
    manta_release(before_fork);
    manta_actor_release(a);
    if (manta_init(NULL, NULL, NULL) != MANTA_EPERM) return 9;
    manta_shutdown();
    manta_shutdown();
    return 0;
}

/* How the child ended: its status, 1000 and its signal, or -1: it did not within `patience_ms`, and was killed. */
static int wait_for_child(pid_t pid, int patience_ms)
{
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    int status;
    bool ended = end.fd >= 0 && poll(&end, 1, patience_ms) == 1;

    if (!ended) kill(pid, SIGKILL);
    if (end.fd >= 0) close(end.fd);
    if (waitpid(pid, &status, 0) != pid || !ended) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* A process that ends by exit(), and so runs what the library has left for the end. The address sanitizer's
 * malloc, when a thread of the parent had it locked, stays locked in the child, which then stands still: it is
 * killed and another forked. That child ends by _exit(), since the search for leaks in exit() takes every lock of
 * malloc. */
static int fork_and_wait(void)
{
    int tries = MALLOC_MINDS_FORKS ? 1 : 10, patience_ms = MALLOC_MINDS_FORKS ? LONG : 5000, how = -1;

    fflush(stdout);
    while (how < 0 && tries-- > 0) {
        pid_t pid = fork();
        if (pid < 0) return -1;
        if (pid == 0 && MALLOC_MINDS_FORKS) exit(forked_child());
        if (pid == 0) _exit(forked_child());
        how = wait_for_child(pid, patience_ms);
    }
    return how;
}

static manta_status fork_inside(manta_task *t)
{
    int how = fork_and_wait();

    if (how) return manta_fail(MANTA_ECORRUPT, "the child ended with %d", how);
    return manta_return_i64(t, 0, manta_is_initialized());
}
MANTA_REMOTE(fork_inside)

void scenario_forks(void)
{
    double d;
    int64_t v;

    before_fork = manta_remote(add, manta_f64(1), manta_f64(2));
    for (int i = 0; i < 5; i++) {
        CHECK(fork_and_wait() == 0);
        manta_ref r = manta_remote(add, manta_f64(i), manta_f64(2));
        OK(manta_get_f64(r, &d, LONG));
        CHECK(d == i + 2);
        manta_release(r);
        r = manta_remote(fork_inside);
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == 1);
        manta_release(r);
    }
    OK(manta_get_f64(before_fork, &d, LONG));
    CHECK(d == 3);
    manta_release(before_fork);
}

/* Whether a process is there and not only waits to be collected by whoever adopted it. */
static bool lives(int pid)
{
    char path[64], line[256] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const char *got = fgets(line, sizeof line, f), *name = got ? strrchr(line, ')') : NULL;
    fclose(f);
    return name && name[1] == ' ' && name[2] != 'Z';
}

/* Calls a function with a path, and returns a reference to the call without waiting for it. */
static manta_status leave_call(manta_task *t)
{
    const char *name, *path;

    MANTA_TRY(manta_arg_str(t, 0, &name));
    MANTA_TRY(manta_arg_str(t, 1, &path));
    manta_arg a = manta_str(path);
    manta_ref r;
    manta_submit(name, NULL, 1, &a, 1, &r);
    manta_status st = manta_return(t, 0, manta_refs(&r, 1));
    manta_release(r);
    return st;
}
MANTA_REMOTE(leave_call)

/* A method: keeps the reference that a worker leaves it, and hands it on as well when it is asked to. */
static manta_status keep_call(manta_task *t)
{
    const char *name, *path;
    const manta_ref *kept;
    bool hands_on;
    size_t n;

    MANTA_TRY(manta_arg_str(t, 0, &name));
    MANTA_TRY(manta_arg_str(t, 1, &path));
    MANTA_TRY(manta_arg_bool(t, 2, &hands_on));
    manta_ref r = manta_remote(leave_call, manta_str(name), manta_str(path)); /* it goes with the actor */
    MANTA_TRY(manta_get_refs(r, &kept, &n, MANTA_FOREVER));
    return hands_on ? manta_return(t, 0, manta_refs(kept, n)) : MANTA_OK;
}
MANTA_REMOTE(keep_call)

static manta_ref keep_then_die(const char *name, const char *path, bool hands_on)
{
    manta_actor a = manta_actor_new(NULL, counter);
    manta_ref r = manta_actor_call(a, keep_call, manta_str(name), manta_str(path), manta_bool(hands_on));

    OK(manta_get(r, LONG));
    if (!hands_on) until_there("runs");
    OK(manta_actor_kill(a, true));
    manta_actor_release(a);
    return r;
}

/* An actor dies, and a worker of its has left a call behind: it ends when nobody else has a reference to it, and is
 * made when somebody has. */
void scenario_left_calls(void)
{
    const manta_ref *made;
    size_t n;

    folder_make();
    double cores = available("cpu"), begin = now();
    manta_ref r = keep_then_die("linger", path_of("runs"), false);
    while (available("cpu") < cores && now() - begin < LONG / 1000) usleep(200);
    CHECK(available("cpu") == cores);
    manta_release(r);
    r = keep_then_die("crowd_gate", path_of("open"), true);
    OK(touch(path_of("open")));
    OK(manta_get_refs(r, &made, &n, LONG));
    OK(manta_get(made[0], LONG));
    manta_release(r);
    until_nothing_is_held();
    folder_remove();
}

/* Daemon and keeper do not come to it, and are killed: not even the node's socket is left. */
static void stop_both(void)
{
    manta_node_info info;
    char path[160];

    folder_make();
    CHECK(setenv("XDG_RUNTIME_DIR", folder, 1) == 0);
    OK(manta_init(NULL, NULL, &(manta_node_options){.num_cpus = 1, .address = "local"}));
    OK(manta_node_get(&info));
    snprintf(path, sizeof path, "%s/manta/%d.sock", folder, info.daemon_pid);
    CHECK(access(path, F_OK) == 0);
    CHECK(kill(info.keeper_pid, SIGSTOP) == 0 && kill(info.daemon_pid, SIGSTOP) == 0);
    manta_shutdown();
    CHECK(!lives(info.keeper_pid) && !lives(info.daemon_pid));
    CHECK(access(path, F_OK) != 0);
    folder_remove();
}

/* The daemon is killed, and the keeper is slow to end the others, as on a busy machine: it is waited for. */
static void slow_keeper(void)
{
    manta_node_info info;
    manta_ref r[8];

    OK(manta_init(NULL, NULL, &(manta_node_options){.num_cpus = 4, .address = "local"}));
    for (int i = 0; i < 8; i++) r[i] = manta_remote(pid);
    OK(manta_get_all(r, 8, LONG));
    OK(manta_node_get(&info));
    CHECK(info.n_worker_pids > 0);
    CHECK(kill(info.keeper_pid, SIGSTOP) == 0 && kill(info.daemon_pid, SIGSTOP) == 0);
    for (int i = 0; i < info.n_worker_pids; i++) CHECK(kill(info.worker_pids[i], SIGSTOP) == 0);
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        usleep(3000000); /* longer than a daemon is given */
        _exit(kill(info.keeper_pid, SIGCONT) == 0 ? 0 : 1);
    }
    manta_shutdown();
    for (int i = 0; i < info.n_worker_pids; i++) CHECK(!lives(info.worker_pids[i]));
    CHECK(!lives(info.keeper_pid) && !lives(info.daemon_pid));
    CHECK(waitpid(other, NULL, 0) == other);
}

/* The keeper is killed: when manta_shutdown() returns, nothing is left all the same. */
void scenario_keeper(void)
{
    manta_node_info info;
    manta_ref r[8];

    for (int i = 0; i < 8; i++) r[i] = manta_remote(pid);
    OK(manta_get_all(r, 8, LONG));
    manta_actor a = manta_actor_new(NULL, counter);
    OK(manta_actor_ready(a, LONG));
    OK(manta_node_get(&info));
    CHECK(info.n_worker_pids > 1);
    CHECK(kill(info.keeper_pid, SIGKILL) == 0);
    manta_shutdown();
    CHECK(!lives(info.daemon_pid));
    for (int i = 0; i < info.n_worker_pids; i++) CHECK(!lives(info.worker_pids[i]));
    stop_both();
    slow_keeper();
}
