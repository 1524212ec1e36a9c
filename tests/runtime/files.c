/* files.c - actors and calls where open files run out: a limit that may be raised is
 * raised, one that may not be is told in a sentence, and what is here already goes on. */
#include <fcntl.h>
#include <sys/resource.h>

#include <manta/actor.h>

#include "scenario.h"

enum { ACTORS = 120, MOST_OPEN = 4096 };

static manta_status file_actor(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(file_actor)

/* The limit that functions see: the program's own. */
static manta_status file_limit(manta_task *t)
{
    struct rlimit now;

    if (getrlimit(RLIMIT_NOFILE, &now)) return manta_fail(MANTA_EIO, "getrlimit");
    return manta_return_i64(t, 0, (int64_t)now.rlim_cur);
}
MANTA_REMOTE(file_limit)

static void start_again(rlim_t soft, rlim_t hard)
{
    struct rlimit now = {.rlim_cur = soft, .rlim_max = hard};

    manta_shutdown();
    CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
    OK(manta_init(NULL, NULL, &(manta_node_options){.num_cpus = 2, .address = "local"}));
}

static int64_t limit_of_a_call(void)
{
    int64_t n = 0;
    manta_ref r = manta_remote(file_limit);

    OK(manta_get_i64(r, &n, LONG));
    manta_release(r);
    return n;
}

/* Starts actors; how many are ready. The others say what is missing. */
static int start_actors(manta_actor *a)
{
    int ready = 0;

    for (int i = 0; i < ACTORS; i++) a[i] = manta_actor_new(NULL, file_actor);
    for (int i = 0; i < ACTORS; i++) {
        manta_status st = manta_actor_ready(a[i], LONG);
        CHECK(st == MANTA_OK || st == MANTA_ENOSPC);
        if (st) SAYS("ulimit -n");
        if (st) SAYS("file_actor cannot be started");
        ready += !st;
    }
    return ready;
}

static void release_actors(manta_actor *a)
{
    for (int i = 0; i < ACTORS; i++) manta_actor_release(a[i]);
}

/* Those that were ready still are. */
static void check_ready(const manta_actor *a, int ready)
{
    int n = 0;

    for (int i = 0; i < ACTORS; i++) n += manta_actor_ready(a[i], LONG) == MANTA_OK;
    CHECK(n == ready);
}

static void until_an_actor_starts(void)
{
    manta_status st = MANTA_ENOSPC;

    for (double begin = now(); st == MANTA_ENOSPC && now() - begin < LONG / 1000;) {
        manta_actor a = manta_actor_new(NULL, file_actor);
        st = manta_actor_ready(a, LONG);
        manta_actor_release(a);
    }
    OK(st);
}

/* The driver's own files are all open; its workers' pipes find no room. */
static void driver_is_full(void)
{
    static int open_fds[MOST_OPEN];
    manta_actor a[ACTORS];
    int n = 0;

    while (n < MOST_OPEN && (open_fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) n++;
    CHECK(n < MOST_OPEN);
    for (int k = 0; k < 10; k++) close(open_fds[--n]);
    int ready = start_actors(a);
    CHECK(ready < ACTORS / 2);
    check_ready(a, ready);
    while (n > 0) close(open_fds[--n]);
    release_actors(a);
    until_an_actor_starts();
}

void scenario_few_files(void)
{
    manta_actor a[ACTORS];
    struct rlimit now;

    CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_max >= 2048);

    start_again(128, 2048); /* two for each actor, were it not raised */
    CHECK(start_actors(a) == ACTORS);
    CHECK(limit_of_a_call() == 128);
    release_actors(a);
    start_again(128, 2048); /* nothing is left that would make room */
    driver_is_full();
    manta_shutdown();
    CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 128);

    start_again(200, 200);
    int ready = start_actors(a);
    CHECK(ready >= 10 && ready < ACTORS);
    check_ready(a, ready);
    manta_ref r = manta_remote(file_limit); /* it runs where a call can, or says why not */
    manta_status st = manta_get(r, LONG);
    CHECK(st == MANTA_OK || st == MANTA_ENOSPC);
    if (st) SAYS("ulimit -n");
    manta_release(r);
    release_actors(a);
    until_an_actor_starts();
    CHECK(limit_of_a_call() == 200);
}
