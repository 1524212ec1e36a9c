/* nursery.c - workers that are forks of another program (manta/nursery.h): `runtime_nursery SCENARIO OTHER`,
 * where OTHER is the program of nursery_other.c. The driver has none of the functions that it calls. Its
 * node is its own, or the one that MANTA_ADDRESS names. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/failure.h>
#include <manta/nursery.h>

#include "scenario.h"

static const char *other;

static manta_status start(const char *how, int timeout_ms)
{
    const char *const argv[] = {other, how, NULL};
    manta_node_options o = {.nursery = argv, .nursery_timeout_ms = timeout_ms};

    if (!getenv("MANTA_ADDRESS")) {
        o.address = "local";
        o.num_cpus = 2;
    }
    return manta_init(NULL, NULL, &o);
}

static void adds(void)
{
    double v;
    manta_ref r = manta_remote(sum, manta_f64(2), manta_f64(3));

    OK(manta_get_f64(r, &v, LONG));
    CHECK(v == 5);
    manta_release(r);
}

static const char *text_of(manta_ref r)
{
    static char text[4096];
    const char *s;

    OK(manta_get_str(r, &s, LONG));
    snprintf(text, sizeof text, "%s", s);
    manta_release(r);
    return text;
}

static int64_t number_of(manta_ref r)
{
    int64_t n;

    OK(manta_get_i64(r, &n, LONG));
    manta_release(r);
    return n;
}

/* ---- a nursery that works ---- */

static void scenario_works(void)
{
    int before, after, child, at = 0;
    char cwd[4096];

    CHECK(setenv("NURSERY_TEST", "seen", 1) == 0);
    for (int round = 0; round < 2; round++) { /* a second node of the same process */
        OK(start("works", 0));
        adds();
        CHECK(number_of(manta_remote(pid_of_worker)) != getpid());
        CHECK(!strcmp(text_of(manta_remote(variable, manta_str("NURSERY_TEST"))), "seen"));
        CHECK(!strcmp(text_of(manta_remote(variable, manta_str("MANTA_NURSERY"))), "(none)"));
        CHECK(getcwd(cwd, sizeof cwd));
        CHECK(!strcmp(text_of(manta_remote(working_folder)), cwd));
        const char *seen = text_of(manta_remote(hooks_seen));
        CHECK(sscanf(seen, "%d %d %d %n", &before, &after, &child, &at) == 3 &&
              !strcmp(seen + at, "(plain)"));
        CHECK(before >= 1 && after == before - 1 && child == 1);
        manta_shutdown();
    }
    OK(start("prints", 0));
    adds();
    manta_shutdown();
    OK(start("catches", 0));
    adds();
    manta_shutdown();
}

/* ---- a driver of which nothing is forked ---- */

static _Atomic int forked, signalled;
static _Atomic bool over;

static void note_fork(void)
{
    forked++;
}

static void note_signal(int s)
{
    (void)s;
    signalled++;
}

static void *spin(void *arg)
{
    (void)arg;
    while (!over) free(malloc(100));
    return NULL;
}

/* It has threads that hold malloc's locks, much memory, a handler of forks and one of SIGCHLD. */
static void scenario_apart(void)
{
    enum { THREADS = 4, SIZE = 256 << 20 };
    pthread_t id[THREADS];
    struct sigaction on_child = {.sa_handler = note_signal};
    int fds[2];
    char byte;

    char *heap = malloc(SIZE);
    CHECK(heap);
    memset(heap, 1, SIZE);
    CHECK(pthread_atfork(note_fork, note_fork, note_fork) == 0);
    CHECK(sigaction(SIGCHLD, &on_child, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&id[i], NULL, spin, NULL) == 0);
    CHECK(pipe(fds) == 0); /* not close-on-exec */
    double begin = now();
    OK(start("works", 0));
    printf("manta_init took %.2f ms\n", (now() - begin) * 1e3);
    adds();
    close(fds[1]);
    CHECK(read(fds[0], &byte, 1) == 0); /* nobody else has the other end */
    CHECK(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD);
    manta_shutdown();
    CHECK(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD);
    over = true;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(id[i], NULL) == 0);
    CHECK(forked == 0 && signalled == 0);
    free(heap);
}

/* ---- nurseries that do not work ---- */

/* The node ends with the sentence: in a wait, and in the calls after it. */
static void ends_saying(const char *how, int timeout_ms, const char *text)
{
    double begin = now();
    manta_status st = start(how, timeout_ms);

    if (!st) {
        manta_ref r = manta_remote(sum, manta_f64(2), manta_f64(3));
        st = manta_get(r, LONG);
        manta_failure f = failure_of(r);
        CHECK(f.kind == MANTA_FAILURE_NODE);
        manta_release(r);
        CHECK(st == MANTA_EDIED);
        SAYS(text);
        SAYS(other);
        r = manta_remote(sum, manta_f64(2), manta_f64(3));
        CHECK(manta_get(r, LONG) == MANTA_EDIED);
        SAYS(text);
        manta_release(r);
    } else {
        SAYS(text);
    }
    printf("%s: %s\n", how, manta_error_text());
    CHECK(now() - begin < 50); /* less than a nursery that says nothing is given */
    manta_shutdown();
    CHECK(!manta_is_initialized());
}

static void scenario_fails(void)
{
    ends_saying("exits", 0, "ended before it was ready: exited with 3");
    ends_saying("is-killed", 0, "killed by signal 9");
    ends_saying("sleeps", 200, "was not ready after 200 ms");
    ends_saying("closes", 0, "closed its connection before it was ready");
    ends_saying("lies", 0, "no greeting of manta");
    OK(start("works", 0)); /* and the next works */
    adds();
    manta_shutdown();
}

static void scenario_missing(void)
{
    const char *const nothing[] = {NULL}, *const missing[] = {"no-such-nursery", "-x", NULL},
                      *const folder_is[] = {"/", NULL};
    manta_node_options o = {.address = "local", .nursery = nothing};

    CHECK(manta_init(NULL, NULL, &o) == MANTA_EINVAL);
    o.nursery = missing;
    CHECK(manta_init(NULL, NULL, &o) == MANTA_ENOENT);
    SAYS("no-such-nursery");
    o.nursery = folder_is;
    CHECK(manta_init(NULL, NULL, &o) == MANTA_EPERM);
    o.nursery_timeout_ms = -1;
    CHECK(manta_init(NULL, NULL, &o) == MANTA_EINVAL);
    SAYS("nursery_timeout_ms");
    CHECK(manta_nursery_run() == MANTA_EINVAL);
    SAYS("was not started as a nursery");
    CHECK(setenv("MANTA_NURSERY", "7,nonsense", 1) == 0);
    CHECK(manta_nursery_run() == MANTA_EINVAL);
    CHECK(unsetenv("MANTA_NURSERY") == 0);
    const char *programs[] = {"/no/such/program", "/bin/true", "/"};
    for (int i = 0; i < 3; i++) {
        CHECK(setenv("MANTA_NODE_PROGRAM", programs[i], 1) == 0);
        CHECK(start("works", 0) == (i == 0 ? MANTA_ENOENT : i == 1 ? MANTA_EDIED : MANTA_EPERM));
        SAYS(programs[i]);
        printf("%s\n", manta_error_text());
        CHECK(!manta_is_initialized());
    }
    CHECK(unsetenv("MANTA_NODE_PROGRAM") == 0);
    OK(start("works", 0));
    adds();
    manta_shutdown();
}

/* A hook that refuses ends no node: who waits for a worker hears why. */
static void scenario_refuses(void)
{
    manta_node_info n;

    OK(start("refuses", 0));
    for (int i = 0; i < 3; i++) {
        manta_ref r = manta_remote(sum, manta_f64(2), manta_f64(3));
        CHECK(manta_get(r, LONG) == MANTA_EUNSUPPORTED);
        SAYS("this hook refuses to work");
        manta_release(r);
    }
    manta_actor a = manta_actor_new(NULL, sum, manta_f64(2), manta_f64(3));
    CHECK(manta_actor_ready(a, LONG) != MANTA_OK);
    SAYS("this hook refuses to work");
    manta_actor_release(a);
    OK(manta_node_get(&n));
    manta_shutdown();
}

/* Kills the nursery, another one than `last`; the node may be about to start it. */
static int kill_nursery(int last)
{
    double end = now() + LONG / 1000;
    manta_node_info n;

    do {
        OK(manta_node_get(&n));
        CHECK(now() < end);
    } while (n.zygote_pid <= 1 || n.zygote_pid == last || kill(n.zygote_pid, SIGKILL) != 0);
    return n.zygote_pid;
}

/* A nursery that was ready and dies is started again, as often as it can be. */
static void scenario_again(void)
{
    manta_node_info n;
    int64_t pid;
    int nursery = 0;

    OK(start("works", 0));
    for (int i = 0; i < 3; i++) {
        pid = number_of(manta_remote(pid_of_worker));
        nursery = kill_nursery(nursery);
        CHECK(kill((pid_t)pid, SIGKILL) == 0);
        while (number_of(manta_remote(pid_of_worker)) == pid) {}
        adds();
    }
    manta_shutdown();
    folder_make();
    CHECK(setenv("NURSERY_MARK", path_of("mark"), 1) == 0);
    OK(start("once", 0));
    adds();
    (void)kill_nursery(0);
    manta_task_options once = {.max_retries = MANTA_NONE};
    manta_status st;
    do { /* until the node gives up */
        if (!manta_node_get(&n))
            for (int i = 0; i < n.n_worker_pids; i++) kill(n.worker_pids[i], SIGKILL);
        manta_ref r = manta_remote_with(&once, sum, manta_f64(2), manta_f64(3));
        st = manta_get(r, LONG);
        manta_release(r);
        CHECK(st != MANTA_ETIMEDOUT);
    } while (!st || !strstr(manta_error_text(), "the node is gone"));
    printf("%s\n", manta_error_text());
    manta_shutdown();
    folder_remove();
}

/* ---- environments ---- */

enum { MOST_PIDS = 4096 };
static struct {
    int pid;
    char environment[64];
} homes[MOST_PIDS]; /* of workers, and the environment that each has */
static int n_homes;

/* A worker was met in an environment: it has never been met in another. */
static void note_home(const char *environment, int pid)
{
    for (int i = 0; i < n_homes; i++) {
        if (homes[i].pid != pid) continue;
        CHECK(!strcmp(homes[i].environment, environment));
        return;
    }
    CHECK(n_homes < MOST_PIDS);
    homes[n_homes].pid = pid;
    snprintf(homes[n_homes++].environment, sizeof homes[0].environment, "%s", environment);
}

static void check_home(const char *text, const char *environment)
{
    char found[64];
    int pid;

    CHECK(sscanf(text, "%63s %d", found, &pid) == 2);
    CHECK(!strcmp(found, environment));
    note_home(found, pid);
}

static manta_task_options in(const char *environment)
{
    return (manta_task_options){.environment = !strcmp(environment, "(plain)") ? NULL : environment};
}

static void scenario_environments(void)
{
    static const char *const names[] = {"(plain)", "red", "green", "blue"};
    enum { N = 60 };
    manta_ref refs[N];
    char below[64];
    int pids[2];

    OK(start("works", 0));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            manta_task_options o = in(names[i % 4]);
            refs[i] = manta_remote_with(&o, whereabouts);
        }
        for (int i = 0; i < N; i++) check_home(text_of(refs[i]), names[i % 4]);
    }
    for (int i = 0; i < 16; i++) { /* calls that calls make, also those that their caller runs itself */
        manta_task_options o = in(names[i % 4]);
        const char *text =
            text_of(manta_remote_with(&o, whereabouts_below, manta_str(i / 4 ? names[i / 4] : "")));
        check_home(text, names[i % 4]);
        CHECK(sscanf(text, "%*s %d, %63s %d", &pids[0], below, &pids[1]) == 3);
        CHECK(!strcmp(below, names[i / 4]));
        note_home(below, pids[1]);
    }
    for (int i = 0; i < 4; i++) {
        manta_task_options o = in(names[i]);
        check_home(text_of(manta_remote_with(&o, die_once)), names[i]); /* tried again where it belongs */
        manta_actor a = manta_actor_new(&o, settler);
        check_home(text_of(manta_actor_call(a, whereabouts)), names[i]);
        manta_actor_release(a);
    }
    manta_shutdown();
}

/* An environment that its hook refuses is nobody else's trouble. */
static void scenario_no_environment(void)
{
    static char text[40000];
    manta_task_options o = {.environment = "no bread"};
    manta_node_info n;

    OK(start("works", 0));
    int64_t pid = number_of(manta_remote(pid_of_worker));
    for (int i = 0; i < 3; i++) {
        manta_ref r = manta_remote_with(&o, whereabouts);
        CHECK(manta_get(r, LONG) == MANTA_EUNSUPPORTED);
        SAYS("there is no bread here");
        manta_release(r);
        manta_actor a = manta_actor_new(&o, settler);
        CHECK(manta_actor_ready(a, LONG) != MANTA_OK);
        SAYS("there is no bread here");
        manta_actor_release(a);
        adds();
    }
    CHECK(kill((pid_t)pid, 0) == 0); /* nobody was ended to make room for it */
    memset(text, 'x', sizeof text - 1);
    o.environment = text;
    manta_ref r = manta_remote_with(&o, whereabouts);
    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    SAYS("environment has 39999 bytes");
    manta_release(r);
    OK(manta_node_get(&n));
    CHECK(n.n_worker_pids > 0);
    manta_shutdown();
}

/* Many environments leave few workers behind, and a limit on workers is no obstacle. */
static void scenario_many_environments(void)
{
    const char *const argv[] = {other, "works", NULL};
    manta_node_options o = {.address = "local", .num_cpus = 2, .nursery = argv};
    manta_node_info n;
    char name[16];

    for (int round = 0; round < 4; round++) {
        o.max_workers = round == 0 ? 0 : round == 1 ? 3 : 1;
        OK(manta_init(NULL, NULL, &o));
        for (int i = 0; i < 40; i++) {
            snprintf(name, sizeof name, "env-%d", i % 20);
            manta_task_options t = in(name);
            if (round == 3) t.num_cpus = MANTA_NONE; /* no core is what they wait for */
            check_home(text_of(manta_remote_with(&t, whereabouts)), name);
            if (i % 4 == 0) adds();
        }
        double begin = now();
        do OK(manta_node_get(&n));
        while (n.workers > 8 && now() - begin < LONG / 1000);
        printf("%d workers are left\n", n.workers);
        CHECK(n.workers <= 8);
        manta_shutdown();
        n_homes = 0;
    }
}

/* ---- a warm nursery ---- */

/* Makes actors until one comes from the nursery that is called so, and is not process `but`; says which
 * process that is. What was forked before may be used up first. */
static int until_from(const char *how, int but)
{
    double begin = now();
    char found[64];
    manta_node_info n;
    int pid;

    do {
        manta_actor a = manta_actor_new(NULL, settler);
        CHECK(sscanf(text_of(manta_actor_call(a, descent)), "%63s %d", found, &pid) == 2);
        manta_actor_release(a);
        OK(manta_node_get(&n));
        CHECK(now() - begin < LONG / 1000);
    } while (strcmp(found, how) || pid == but || pid == n.daemon_pid); /* the daemon's are orphans */
    return pid;
}

static void scenario_warm(void)
{
    const char *const warm[] = {other, "warm", NULL}, *const missing[] = {"no-such-nursery", NULL},
                      *const exits[] = {other, "exits", NULL};
    char found[64];

    CHECK(manta_nursery_warm(warm) != MANTA_OK); /* there is no node */
    CHECK(manta_nursery_warm(NULL) == MANTA_EINVAL);
    OK(manta_init(NULL, NULL, &(manta_node_options){.address = "local", .num_cpus = 1}));
    CHECK(manta_nursery_warm(warm) == MANTA_EINVAL);
    SAYS("come from a nursery");
    manta_shutdown();
    OK(start("works", 0));
    until_from("works", 0);
    manta_status st = manta_nursery_warm(missing); /* where another starts it, the log says so */
    CHECK(getenv("MANTA_ADDRESS") ? st == MANTA_OK
                                  : st == MANTA_ENOENT && strstr(manta_error_text(), missing[0]));
    while ((st = manta_nursery_warm(exits)) == MANTA_EEXIST) adds();
    OK(st);
    while ((st = manta_nursery_warm(warm)) == MANTA_EEXIST) adds(); /* one that ends is nobody's trouble */
    OK(st);
    int pid = until_from("warm", 0);
    CHECK(manta_nursery_warm(warm) == MANTA_EEXIST);
    for (int i = 0; i < 10; i++) {
        manta_task_options o = in("red");
        CHECK(sscanf(text_of(manta_remote_with(&o, descent)), "%63s", found) == 1);
        CHECK(!strcmp(found, "works"));
    }
    CHECK(kill(pid, SIGKILL) == 0); /* it is started again */
    CHECK(until_from("warm", pid) != pid);
    manta_shutdown();
}

/* ---- hooks of a program without a nursery ---- */

static int zygote_forks;

static void count_fork(void *user)
{
    (void)user;
    zygote_forks++;
}

static manta_status fork_count(manta_task *t)
{
    return manta_return_i64(t, 0, zygote_forks);
}
MANTA_REMOTE(fork_count)

static void scenario_without(void)
{
    manta_hooks hooks = {.before_fork = count_fork};

    manta_set_hooks(&hooks);
    OK(manta_init(NULL, NULL, &(manta_node_options){.address = "local", .num_cpus = 1}));
    CHECK(number_of(manta_remote(fork_count)) >= 1);
    CHECK(zygote_forks == 0); /* the zygote forks, not the driver */
    manta_shutdown();
    manta_set_hooks(NULL);
    OK(manta_init(NULL, NULL, &(manta_node_options){.address = "local", .num_cpus = 1}));
    CHECK(number_of(manta_remote(fork_count)) == 0);
    manta_shutdown();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"works", scenario_works},
               {"apart", scenario_apart},
               {"fails", scenario_fails},
               {"missing", scenario_missing},
               {"refuses", scenario_refuses},
               {"again", scenario_again},
               {"without", scenario_without},
               {"warm", scenario_warm},
               {"environments", scenario_environments},
               {"no-environment", scenario_no_environment},
               {"many-environments", scenario_many_environments}};

    other = argc > 2 ? argv[2] : NULL;
    for (size_t i = 0; argc > 2 && i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i].name, argv[1])) continue;
        all[i].run();
        printf("%s: all is well\n", argv[1]);
        return 0;
    }
    fprintf(stderr, "usage: runtime_nursery SCENARIO OTHER\n");
    return 2;
}
