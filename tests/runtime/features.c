/* features.c - the second program of the process-level tests: placement groups,
 * contexts, cancelling, queues, maps and the ways to fail. Each argument is a
 * scenario; a second argument "inside" runs it without other processes. It
 * prints the first thing that is not as it should be and exits 1. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <manta/task.h>

#define CHECK(x)                                                                                             \
    do {                                                                                                     \
        if (!(x)) {                                                                                          \
            printf("line %d: %s: %s\n", __LINE__, #x, manta_error_text());                                   \
            fflush(stdout);                                                                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define OK(call)  CHECK((call) == MANTA_OK)
#define SAYS(txt) CHECK(strstr(manta_error_text(), txt))
#define LONG      60000 /* ms, for what must come */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        manta_status st_ = (call);                                                                           \
        if (st_) return st_;                                                                                 \
    } while (0)

static bool inside; /* no other process: what needs one is left out */

static manta_failure failure_of(manta_ref r)
{
    manta_failure f;
    manta_failure_get(r, &f);
    return f;
}

/* ---- remote functions ---- */

static manta_status add(manta_task *t)
{
    double a, b;
    TRY(manta_arg_f64(t, 0, &a));
    TRY(manta_arg_f64(t, 1, &b));
    return manta_return_f64(t, 0, a + b);
}
MANTA_REMOTE(add)

static manta_status pid(manta_task *t)
{
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(pid)

/* Tells that it runs (the path of a file to make), then waits for the end. */
static manta_status linger(manta_task *t)
{
    const char *path;
    if (manta_args(t) > 0) {
        TRY(manta_arg_str(t, 0, &path));
        FILE *f = fopen(path, "w");
        if (!f || fclose(f)) return manta_fail(MANTA_EIO, "%s: %s", path, strerror(errno));
    }
    while (!manta_task_is_cancelled(t)) usleep(200);
    return manta_fail(MANTA_ECANCELLED, "I was asked to stop");
}
MANTA_REMOTE(linger)

/* ---- an actor ---- */

static manta_status counter(manta_task *t)
{
    int64_t *n = calloc(1, sizeof *n);
    manta_set_self(t, n, free);
    return manta_args(t) > 0 ? manta_arg_i64(t, 0, n) : MANTA_OK;
}
MANTA_REMOTE(counter)

static manta_status counter_add(manta_task *t)
{
    int64_t *n = manta_self(t), x;
    TRY(manta_arg_i64(t, 0, &x));
    return manta_return_i64(t, 0, *n += x);
}
MANTA_REMOTE(counter_add)

/* ---- placement groups ---- */

/* The bundle it runs in, and the resources it holds. */
static manta_status where(manta_task *t)
{
    manta_context c;
    TRY(manta_context_get(t, &c));
    TRY(manta_return_i64(t, 0, c.bundle));
    if (manta_results(t) > 1) TRY(manta_return(t, 1, manta_str(c.resources)));
    return MANTA_OK;
}
MANTA_REMOTE(where)

/* Finds a group by its name and runs something in it. */
static manta_status in_named_group(manta_task *t)
{
    const char *name;
    manta_task_options o = {0};
    int64_t bundle;
    TRY(manta_arg_str(t, 0, &name));
    TRY(manta_group_find(name, &o.group));
    manta_ref r = manta_remote_with(&o, where);
    manta_status st = manta_get_i64(r, &bundle, LONG);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, bundle);
}
MANTA_REMOTE(in_named_group)

static void group_refusals(void)
{
    manta_group g;
    manta_bundle two[2] = {{.num_cpus = 1}, {.num_cpus = 1}}, big = {.num_cpus = 1000}, none = {0};
    manta_bundle odd = {.num_cpus = 1, .resources = "unicorn=1"};
    CHECK(manta_group_new(two, 2, MANTA_STRICT_SPREAD, NULL, &g) == MANTA_EUNSUPPORTED);
    SAYS("STRICT_SPREAD of 2 bundles asks for 2 nodes");
    CHECK(manta_group_new(&big, 1, MANTA_PACK, NULL, &g) == MANTA_EUNSUPPORTED);
    SAYS("1000 cpu");
    CHECK(manta_group_new(&odd, 1, MANTA_PACK, NULL, &g) == MANTA_EUNSUPPORTED);
    SAYS("unicorn");
    CHECK(manta_group_new(&none, 1, MANTA_PACK, NULL, &g) == MANTA_EINVAL);
    SAYS("empty");
    CHECK(manta_group_new(two, 0, MANTA_PACK, NULL, &g) == MANTA_EINVAL);
    CHECK(manta_group_find("nobody", &g) == MANTA_ENOENT);
    CHECK(manta_group_wait((manta_group){0}, 0) == MANTA_EINVAL);
    manta_group_remove((manta_group){0});
}

static double available(const char *name)
{
    manta_node_info n;
    OK(manta_node_get(&n));
    for (int i = 0; i < n.n_resources; i++)
        if (!strcmp(n.resources[i].name, name)) return n.resources[i].available;
    CHECK(!"a resource of that name");
    return 0;
}

static void groups(void)
{
    manta_group g, twin, rest;
    manta_group_info info;
    manta_bundle bundles[2] = {{.num_cpus = 1, .resources = "disk=1"}, {.num_cpus = 1}};
    int64_t v;
    const char *text;
    group_refusals();
    OK(manta_group_new(bundles, 2, MANTA_PACK, "ours", &g));
    manta_ref ready = manta_group_ready(g);
    OK(manta_get(ready, LONG));
    manta_release(ready);
    OK(manta_group_wait(g, LONG));
    OK(manta_group_get(g, &info));
    CHECK(info.n_bundles == 2 && !info.removed && !strcmp(info.how_name, "PACK"));
    CHECK(!strcmp(info.bundles[0], "cpu=1,disk=1") && !strcmp(info.bundles[1], "cpu=1"));
    OK(manta_group_find("ours", &twin));
    CHECK(twin.id == g.id);
    manta_task_options o = {.group = g, .bundle = 2};
    if (!inside) {
        CHECK(manta_group_new(bundles, 2, MANTA_PACK, "ours", &twin) == MANTA_EEXIST);
        CHECK(available("cpu") == 1 && available("disk") == 1);
        /* Tasks run where they are told to, and hold what they ask for. */
        for (int b = 1; b <= 2; b++) {
            manta_ref r[2];
            o.bundle = b;
            o.resources = b == 1 ? "disk=1" : NULL;
            manta_remote_n(2, r, &o, where);
            OK(manta_get_i64(r[0], &v, LONG));
            OK(manta_get_str(r[1], &text, LONG));
            CHECK(v == b && !strcmp(text, b == 1 ? "cpu=1,disk=1" : "cpu=1"));
            manta_release_all(r, 2);
        }
        manta_ref r = manta_remote(in_named_group, manta_str("ours"));
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == 1 || v == 2);
        manta_release(r);
    }
    o = (manta_task_options){.group = g, .num_cpus = 1, .bundle = 1};
    manta_actor a = manta_actor_new(&o, counter, manta_i64(7));
    OK(manta_actor_ready(a, LONG));
    manta_ref r = manta_actor_call(a, counter_add, manta_i64(1));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 8);
    manta_release(r);
    /* What a bundle can never hold is said at once. */
    o = (manta_task_options){.group = g, .num_cpus = 2};
    r = manta_remote_with(&o, where);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED);
    SAYS("it asks for 2 cpu, and bundle 2 of its placement group has 1");
    manta_release(r);
    o = (manta_task_options){.group = g, .bundle = 3};
    r = manta_remote_with(&o, where);
    CHECK(manta_get(r, 0) == MANTA_EINVAL);
    manta_release(r);
    /* A group that has no place yet waits, and says so; then it gets one. */
    if (!inside) {
        manta_bundle all = {.num_cpus = 3};
        OK(manta_group_new(&all, 1, MANTA_STRICT_PACK, NULL, &rest));
        CHECK(manta_group_wait(rest, 20) == MANTA_ETIMEDOUT);
        SAYS("others hold");
        o = (manta_task_options){.group = rest};
        manta_ref early = manta_remote_with(&o, pid); /* waits with it */
        o = (manta_task_options){.group = g, .bundle = 2, .max_retries = MANTA_UNLIMITED};
        manta_ref running = manta_remote_with(&o, linger), behind = manta_remote_with(&o, linger);
        CHECK(manta_get(running, 20) == MANTA_ETIMEDOUT);
        manta_group_remove(g);
        CHECK(manta_get(running, LONG) == MANTA_ENOENT && failure_of(running).kind == MANTA_FAILED_GROUP);
        CHECK(manta_get(behind, LONG) == MANTA_ENOENT && failure_of(behind).kind == MANTA_FAILED_GROUP);
        manta_release(running);
        manta_release(behind);
        OK(manta_group_wait(rest, LONG));
        OK(manta_get(early, LONG));
        manta_release(early);
        manta_group_remove(rest);
    } else {
        manta_group_remove(g);
    }
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) != MANTA_OK);
    CHECK(failure_of(r).kind == MANTA_FAILED_GROUP || failure_of(r).kind == MANTA_FAILED_UNKNOWN);
    manta_release(r);
    manta_actor_release(a);
    o = (manta_task_options){.group = g};
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_ENOENT && failure_of(r).kind == MANTA_FAILED_GROUP);
    SAYS("removed");
    manta_release(r);
    OK(manta_group_get(g, &info));
    CHECK(info.removed);
    if (inside) return;
    /* All is free again, as soon as the last worker of a group is dead. */
    time_t begin = time(NULL);
    while (available("cpu") != 3 && time(NULL) - begin < LONG / 1000) usleep(500);
    CHECK(available("cpu") == 3 && available("disk") == 2);
}

static manta_status make_group(manta_task *t)
{
    manta_group g;
    manta_bundle one = {.num_cpus = 1};
    TRY(manta_group_new(&one, 1, MANTA_PACK, "a worker's", &g));
    TRY(manta_group_wait(g, LONG));
    TRY(manta_return_i64(t, 0, getpid()));
    return MANTA_OK;
}
MANTA_REMOTE(make_group)

/* A group ends with the process that made it. */
static void group_owner(void)
{
    int64_t p;
    manta_group g;
    manta_ref r = manta_remote(make_group);
    OK(manta_get_i64(r, &p, LONG));
    manta_release(r);
    OK(manta_group_find("a worker's", &g));
    CHECK(kill((pid_t)p, SIGKILL) == 0);
    time_t begin = time(NULL);
    while (manta_group_find("a worker's", &g) == MANTA_OK && time(NULL) - begin < LONG / 1000) usleep(500);
    CHECK(manta_group_find("a worker's", &g) == MANTA_ENOENT);
    manta_task_options o = {.group = g};
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, LONG) == MANTA_ENOENT);
    manta_release(r);
}

/* ---- contexts ---- */

static manta_status die(manta_task *t)
{
    (void)t;
    raise(SIGKILL);
    return MANTA_OK;
}
MANTA_REMOTE(die)

static manta_status context_here(manta_task *t)
{
    manta_context c;
    TRY(manta_context_get(t, &c));
    return manta_return(t, 0, manta_bytes(&c, sizeof c));
}
MANTA_REMOTE(context_here)

static manta_context context_from(manta_ref r)
{
    manta_context c;
    const void *at;
    size_t n;
    OK(manta_get_bytes(r, &at, &n, LONG));
    CHECK(n == sizeof c);
    memcpy(&c, at, n);
    manta_release(r);
    return c;
}

static void contexts(void)
{
    manta_context c, d;
    manta_node_info n;
    OK(manta_node_get(&n));
    CHECK(n.n_resources == 4 && !strcmp(n.resources[3].name, "disk") && n.resources[3].total == 2);
    OK(manta_context_get(NULL, &d));
    CHECK(d.pid == getpid() && !d.is_worker && d.task == 0 && d.node == n.node && !d.actor.id);
    manta_task_options o = {.name = "my call", .num_cpus = 0.5, .resources = "disk=1.5", .memory = 1 << 30};
    c = context_from(manta_remote_with(&o, context_here));
    CHECK(!strcmp(c.function, "context_here") && !strcmp(c.name, "my call") && c.task && c.attempt == 0);
    CHECK(c.node == d.node && c.in_process == inside && !c.was_restarted && !c.is_cancelled);
    if (!inside) {
        CHECK(c.is_worker && c.pid != d.pid && c.worker != d.worker && c.group.id == 0);
        CHECK(c.cpus == 0.5 && c.gpus == 0 && c.memory == 1 << 30);
        CHECK(!strcmp(c.resources, "cpu=0.5,memory=1073741824,disk=1.5"));
        o = (manta_task_options){.node = d.node};
        c = context_from(manta_remote_with(&o, context_here));
        CHECK(c.node == d.node && !strcmp(c.resources, "cpu=1"));
    }
    o = (manta_task_options){.node = d.node + 2};
    manta_ref r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED && failure_of(r).kind == MANTA_FAILED_IMPOSSIBLE);
    SAYS("there is no node");
    manta_release(r);
    o = (manta_task_options){.name = "keeper", .max_restarts = 1};
    manta_actor a = manta_actor_new(&o, counter);
    c = context_from(manta_actor_call(a, context_here));
    CHECK(c.actor.id == a.id && !c.was_restarted);
    if (!inside) {
        CHECK(!strcmp(c.actor_name, "keeper"));
        r = manta_actor_call(a, die);
        CHECK(manta_get(r, LONG) == MANTA_EUNKNOWN);
        manta_release(r);
        c = context_from(manta_actor_call(a, context_here));
        CHECK(c.actor.id == a.id && c.was_restarted);
    }
    manta_actor_release(a);
}

/* ---- cancelling ---- */

static char folder[64]; /* for files by which functions tell that they run */

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void until_there(const char *name)
{
    time_t begin = time(NULL);
    while (access(path_of(name), F_OK) && time(NULL) - begin < LONG / 1000) usleep(200);
    CHECK(access(path_of(name), F_OK) == 0);
}

static manta_status touch(const char *path)
{
    FILE *f = fopen(path, "w");
    return f && !fclose(f) ? MANTA_OK : manta_fail(MANTA_EIO, "%s: %s", path, strerror(errno));
}

/* descend(folder, depth): calls itself until depth is 0 and waits for it. Leaves
 * a file when it has begun, and one with what its wait said. */
static manta_status descend(manta_task *t)
{
    const char *where_to;
    int64_t depth;
    char path[160];
    TRY(manta_arg_str(t, 0, &where_to));
    TRY(manta_arg_i64(t, 1, &depth));
    snprintf(path, sizeof path, "%s/begun-%d", where_to, (int)depth);
    TRY(touch(path));
    if (depth == 0) {
        while (!manta_task_is_cancelled(t)) usleep(200);
        snprintf(path, sizeof path, "%s/told", where_to);
        TRY(touch(path));
        return manta_fail(MANTA_ECANCELLED, "I was asked to stop");
    }
    manta_ref r = manta_remote(descend, manta_str(where_to), manta_i64(depth - 1));
    manta_status st = manta_get(r, MANTA_FOREVER);
    manta_release(r);
    /* No more calls from here. */
    manta_ref more = manta_remote(linger);
    bool refused = manta_get(more, 0) == MANTA_ECANCELLED;
    manta_release(more);
    snprintf(path, sizeof path, "%s/%s-%d", where_to, st == MANTA_ECANCELLED && refused ? "ended" : "odd",
             (int)depth);
    TRY(touch(path));
    return manta_fail(st, "as my call");
}
MANTA_REMOTE(descend)

/* alone(folder): one call, which lives when this one is cancelled alone. */
static manta_status alone(manta_task *t)
{
    const char *where_to;
    char path[160];
    manta_status st;
    TRY(manta_arg_str(t, 0, &where_to));
    snprintf(path, sizeof path, "%s/child", where_to);
    manta_ref r = manta_remote(linger, manta_str(path));
    st = manta_get(r, MANTA_FOREVER);
    manta_failure f = failure_of(r);
    snprintf(path, sizeof path, "%s/%s", where_to,
             st == MANTA_ECANCELLED && f.kind == MANTA_FAILED_NOT ? "child-lives" : "child-ended");
    if (touch(path)) st = MANTA_EIO;
    (void)manta_cancel(r, 0);
    manta_release(r);
    return manta_fail(st, "done");
}
MANTA_REMOTE(alone)

static void cancels(void)
{
    snprintf(folder, sizeof folder, "/tmp/manta-features-XXXXXX");
    CHECK(mkdtemp(folder));
    /* Four deep: the deepest runs, the others wait; all end. */
    manta_ref r = manta_remote(descend, manta_str(folder), manta_i64(3));
    until_there("begun-0");
    OK(manta_cancel(r, 0));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED && failure_of(r).kind == MANTA_FAILED_CANCELLED);
    manta_release(r);
    until_there("told");
    until_there("ended-1");
    until_there("ended-2");
    until_there("ended-3");
    /* Alone: its wait ends, its call does not. */
    r = manta_remote(alone, manta_str(folder));
    until_there("child");
    OK(manta_cancel(r, MANTA_CANCEL_ALONE));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED);
    until_there("child-lives");
    manta_release(r);
    /* Calls of an actor: waiting for an argument, waiting in line, running. */
    manta_actor a = manta_actor_new(NULL, counter);
    manta_ref never = manta_remote(linger);
    manta_ref pending = manta_actor_call(a, counter_add, never);
    OK(manta_cancel(pending, 0));
    CHECK(manta_get(pending, LONG) == MANTA_ECANCELLED);
    OK(manta_cancel(never, MANTA_CANCEL_FORCE));
    CHECK(manta_get(never, LONG) == MANTA_ECANCELLED);
    manta_ref running = manta_actor_call(a, linger, manta_str(path_of("actor-runs")));
    manta_ref behind = manta_actor_call(a, counter_add, manta_i64(1000));
    manta_ref last = manta_actor_call(a, counter_add, manta_i64(1));
    until_there("actor-runs");
    CHECK(manta_cancel(running, MANTA_CANCEL_FORCE) == MANTA_EINVAL);
    SAYS("without ending the actor");
    OK(manta_cancel(behind, 0));
    OK(manta_cancel(running, 0));
    int64_t v;
    CHECK(manta_get(running, LONG) == MANTA_ECANCELLED && manta_get(behind, LONG) == MANTA_ECANCELLED);
    OK(manta_get_i64(last, &v, LONG));
    CHECK(v == 1); /* the one that was cancelled did not happen */
    OK(manta_cancel(last, 0)); /* it has ended */
    OK(manta_get(last, 0));
    manta_ref all[] = {never, pending, running, behind, last};
    manta_release_all(all, 5);
    manta_actor_release(a);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

/* ---- streams ---- */

/* Yields n values that hold references: to a small object, to a large one, and
 * every tenth time so many that the value itself is large. */
static manta_status referring(manta_task *t)
{
    enum { MANY = 2000 };
    static float big[5000];
    static manta_ref many[MANY];
    int64_t n, dims[1] = {5000};
    manta_status st = MANTA_OK;
    TRY(manta_arg_i64(t, 0, &n));
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, dims, big);
    for (int64_t i = 0; i < n && !st; i++) {
        big[4999] = (float)i;
        manta_ref in[2] = {manta_put(manta_f64((double)i)), manta_put(manta_elements(&a))};
        for (int k = 0; k < MANY; k++) many[k] = in[k % 2];
        st = manta_yield(t, i % 10 == 9 ? manta_refs(many, MANY) : manta_refs(in, 2));
        manta_release_all(in, 2);
        if (i == 12 && manta_task_attempt(t) == 0 && manta_args(t) > 1) raise(SIGKILL);
    }
    return st;
}
MANTA_REMOTE(referring)

static void take_referring(manta_stream s, int n)
{
    manta_ref r;
    for (int i = 0; i < n; i++) {
        const manta_ref *in;
        size_t k;
        double d;
        manta_array a;
        OK(manta_stream_next(s, &r, LONG));
        OK(manta_get_refs(r, &in, &k, LONG));
        CHECK(k == (i % 10 == 9 ? 2000 : 2));
        OK(manta_get_f64(in[0], &d, LONG));
        OK(manta_get_array(in[k - 1], &a, LONG));
        CHECK(d == i && ((float *)a.data)[4999] == (float)i);
        manta_release(r);
    }
    CHECK(manta_stream_next(s, &r, LONG) == MANTA_ENOENT);
    manta_stream_close(s);
}

/* Counts how often it was asked for the next item: the caller's pace is its own. */
static manta_status eager(manta_task *t)
{
    const char *path;
    TRY(manta_arg_str(t, 0, &path));
    for (int64_t i = 0;; i++) {
        char now[160];
        snprintf(now, sizeof now, "%s/%lld", path, (long long)i);
        TRY(touch(now));
        TRY(manta_yield(t, manta_i64(i)));
    }
}
MANTA_REMOTE(eager)

static void streams(void)
{
    take_referring(manta_remote_stream(NULL, referring, manta_i64(25)), 25);
    if (!inside) /* its worker dies: again, and nothing twice */
        take_referring(manta_remote_stream(NULL, referring, manta_i64(25), manta_i64(1)), 25);
    manta_actor a = manta_actor_new(NULL, counter);
    take_referring(manta_actor_stream(a, NULL, referring, manta_i64(3)), 3);
    manta_actor_release(a);
    if (inside) return;
    manta_stream s = manta_remote_stream(NULL, referring, manta_i64(100));
    manta_ref r;
    OK(manta_stream_next(s, &r, LONG));
    manta_stream_close(s); /* with items on the way */
    manta_release(r);
    /* Back-pressure: it begins item 8 (it may be 8 ahead), and 9 only after one is taken. */
    snprintf(folder, sizeof folder, "/tmp/manta-features-XXXXXX");
    CHECK(mkdtemp(folder));
    s = manta_remote_stream(NULL, eager, manta_str(folder));
    until_there("8");
    r = manta_remote(pid); /* a round trip, in which it could go on */
    OK(manta_get(r, LONG));
    manta_release(r);
    CHECK(access(path_of("9"), F_OK) != 0);
    OK(manta_stream_next(s, &r, LONG));
    manta_release(r);
    until_there("9");
    CHECK(access(path_of("10"), F_OK) != 0);
    manta_stream_close(s);
    manta_node_info n;
    time_t begin = time(NULL);
    do OK(manta_node_get(&n));
    while (n.objects > 0 && time(NULL) - begin < LONG / 1000);
    CHECK(n.objects == 0); /* what items held, taken or not, is gone */
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

/* ---- failures ---- */

static manta_status inner(manta_task *t)
{
    (void)t;
    return manta_fail(MANTA_ENAN, "the loss is not a number at step %d", 812);
}
MANTA_REMOTE(inner)

static manta_status middle(manta_task *t)
{
    (void)t;
    manta_ref r = manta_remote(inner);
    manta_status st = manta_get(r, LONG);
    manta_release(r);
    return st;
}
MANTA_REMOTE(middle)

static manta_status outer(manta_task *t)
{
    (void)t;
    manta_ref r = manta_remote(middle);
    manta_status st = manta_get(r, LONG);
    manta_release(r);
    return st;
}
MANTA_REMOTE(outer)

/* Fails with a status in its first attempt. */
static manta_status flaky(manta_task *t)
{
    int64_t code;
    TRY(manta_arg_i64(t, 0, &code));
    if (manta_task_attempt(t) == 0) return manta_fail((manta_status)code, "not yet");
    return manta_return_i64(t, 0, manta_task_attempt(t));
}
MANTA_REMOTE(flaky)

static void failures(void)
{
    char host[64], said[256];
    int64_t v;
    CHECK(gethostname(host, sizeof host) == 0);
    /* The sentence, function, process and host of the origin, and who called whom. */
    manta_ref r = manta_remote(outer);
    CHECK(manta_get(r, LONG) == MANTA_ENAN);
    manta_failure f = failure_of(r);
    CHECK(f.kind == MANTA_FAILED_TASK && f.code == MANTA_ENAN && !strcmp(f.function, "inner"));
    CHECK(!strcmp(f.chain, "outer > middle > inner") && !strcmp(f.host, host) && f.pid > 0);
    CHECK(!strcmp(f.text, "the loss is not a number at step 812") && (f.pid == getpid()) == inside);
    snprintf(said, sizeof said, "step 812 (in outer > middle > inner, process %d on %s)", f.pid, host);
    SAYS(said);
    manta_release(r);
    /* Again with some failures and not with others. */
    manta_task_options o = {.retry_on = MANTA_ON(MANTA_EIO) | MANTA_ON(MANTA_EBUSY)};
    r = manta_remote_with(&o, flaky, manta_i64(MANTA_EBUSY));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 1);
    manta_release(r);
    r = manta_remote_with(&o, flaky, manta_i64(MANTA_ENAN));
    CHECK(manta_get(r, LONG) == MANTA_ENAN);
    manta_release(r);
    /* The same of a method, with options of that one call. */
    manta_actor a = manta_actor_new(NULL, counter);
    o.max_task_retries = 2;
    r = manta_actor_call_with(a, &o, flaky, manta_i64(MANTA_EIO));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 1);
    manta_release(r);
    r = manta_actor_call(a, flaky, manta_i64(MANTA_EIO));
    CHECK(manta_get(r, LONG) == MANTA_EIO);
    manta_release(r);
    manta_actor_release(a);
    /* Options that cannot be. */
    o = (manta_task_options){.resources = "cpu=1"};
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_EINVAL && failure_of(r).kind == MANTA_FAILED_SUBMIT);
    SAYS("option of its own");
    manta_release(r);
    o = (manta_task_options){.num_gpus = 1};
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED && failure_of(r).kind == MANTA_FAILED_IMPOSSIBLE);
    SAYS("it asks for 1 gpu, and the node has 0");
    manta_release(r);
}

/* An object that a process was to make, and did not: lost. */
static manta_status promise(manta_task *t)
{
    manta_ref r = manta_remote(linger);
    TRY(manta_return(t, 0, manta_refs(&r, 1)));
    TRY(manta_return_i64(t, 1, getpid()));
    manta_release(r);
    return MANTA_OK;
}
MANTA_REMOTE(promise)

static manta_status slow_counter(manta_task *t)
{
    const char *path;
    TRY(manta_arg_str(t, 0, &path));
    while (access(path, F_OK)) usleep(200);
    manta_set_self(t, calloc(1, sizeof(int64_t)), free);
    return MANTA_OK;
}
MANTA_REMOTE(slow_counter)

static void losses(void)
{
    manta_ref both[2];
    const manta_ref *in;
    size_t n;
    int64_t p;
    manta_remote_n(2, both, NULL, promise);
    OK(manta_get_refs(both[0], &in, &n, LONG));
    OK(manta_get_i64(both[1], &p, LONG));
    CHECK(manta_get(in[0], 20) == MANTA_ETIMEDOUT);
    CHECK(kill((pid_t)p, SIGKILL) == 0);
    CHECK(manta_get(in[0], LONG) == MANTA_EDIED && failure_of(in[0]).kind == MANTA_FAILED_LOST);
    SAYS("which was to make the object, killed by signal 9");
    manta_release_all(both, 2);
    /* An actor that is being restarted: its calls wait, or fail if they should not. */
    snprintf(folder, sizeof folder, "/tmp/manta-features-XXXXXX");
    CHECK(mkdtemp(folder));
    for (int fail_away = 0; fail_away < 2; fail_away++) {
        char path[128];
        snprintf(path, sizeof path, "%s", path_of("go"));
        OK(touch(path));
        manta_task_options o = {.max_restarts = 1, .fail_away = fail_away};
        manta_actor a = manta_actor_new(&o, slow_counter, manta_str(path));
        manta_ref r = manta_actor_call(a, counter_add, manta_i64(1));
        OK(manta_get(r, LONG));
        manta_release(r);
        CHECK(unlink(path) == 0); /* the next constructor waits */
        r = manta_actor_call(a, die);
        CHECK(manta_get(r, LONG) == MANTA_EUNKNOWN && failure_of(r).kind == MANTA_FAILED_UNKNOWN);
        manta_release(r);
        r = manta_actor_call(a, counter_add, manta_i64(1));
        if (fail_away)
            CHECK(manta_get(r, LONG) == MANTA_EBUSY && failure_of(r).kind == MANTA_FAILED_UNAVAILABLE);
        else
            CHECK(manta_get(r, 20) == MANTA_ETIMEDOUT);
        OK(touch(path));
        if (!fail_away) OK(manta_get(r, LONG));
        manta_release(r);
        time_t begin = time(NULL);
        manta_status st; /* and then it is there again */
        do st = manta_actor_ready(a, LONG);
        while (st == MANTA_EBUSY && time(NULL) - begin < LONG / 1000);
        OK(st);
        manta_actor_release(a);
    }
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

/* ---- memory ---- */

/* Takes memory, 8 MiB at a time, up to so many MiB, then waits. */
static manta_status hog(manta_task *t)
{
    enum { STEP = 8 };
    int64_t mib;
    TRY(manta_arg_i64(t, 0, &mib));
    char **at = calloc((size_t)mib, sizeof *at);
    for (int64_t i = 0; i < mib / STEP; i++) {
        at[i] = malloc((size_t)STEP << 20);
        if (at[i]) memset(at[i], 1, (size_t)STEP << 20);
    }
    while (!manta_task_is_cancelled(t)) usleep(200);
    for (int64_t i = 0; i < mib; i++) free(at[i]);
    free(at);
    return manta_fail(MANTA_ECANCELLED, "I was asked to stop");
}
MANTA_REMOTE(hog)

static void memory_limits(void)
{
    manta_task_options o = {.memory = (uint64_t)120 << 20};
    manta_ref r = manta_remote_with(&o, hog, manta_i64(400));
    CHECK(manta_get(r, LONG) == MANTA_ENOMEM);
    manta_failure f = failure_of(r);
    CHECK(f.kind == MANTA_FAILED_MEMORY && f.pid > 0 && !strcmp(f.function, "hog"));
    SAYS("while it ran hog: it had ");
    SAYS("and its limit is 120.0 MiB");
    manta_release(r);
    /* Without the option the node's limit holds (150 MiB here). */
    r = manta_remote(hog, manta_i64(400));
    CHECK(manta_get(r, LONG) == MANTA_ENOMEM && failure_of(r).kind == MANTA_FAILED_MEMORY);
    SAYS("its limit is 150.0 MiB");
    manta_release(r);
    /* An actor: the call says why, and so does every call after it. */
    manta_actor a = manta_actor_new(&o, counter);
    r = manta_actor_call(a, hog, manta_i64(400));
    CHECK(manta_get(r, LONG) == MANTA_ENOMEM && failure_of(r).kind == MANTA_FAILED_MEMORY);
    manta_release(r);
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) == MANTA_ENOMEM);
    SAYS("its limit is 120.0 MiB");
    manta_release(r);
    manta_actor_release(a);
    /* One that stays below is left alone, and memory is a resource like others. */
    double before = available("memory");
    o.memory = (uint64_t)140 << 20;
    r = manta_remote_with(&o, hog, manta_i64(16));
    CHECK(manta_get(r, 300) == MANTA_ETIMEDOUT);
    CHECK(available("memory") == before - (double)o.memory);
    OK(manta_cancel(r, 0));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED);
    manta_release(r);
    o.memory = (uint64_t)1 << 45;
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED && failure_of(r).kind == MANTA_FAILED_IMPOSSIBLE);
    manta_release(r);
}

/* The node was told that the machine must keep more than it has. */
static void memory_short(void)
{
    manta_task_options once = {.max_retries = MANTA_NONE};
    manta_ref r = manta_remote_with(&once, linger);
    CHECK(manta_get(r, LONG) == MANTA_ENOMEM && failure_of(r).kind == MANTA_FAILED_MEMORY);
    SAYS("while it ran linger: the machine had ");
    manta_release(r);
}

/* ---- a program with threads ---- */

static _Atomic bool quiet;

/* Takes and gives locks of malloc and stdio all the time. */
static void *noise(void *arg)
{
    FILE *f = fopen("/dev/null", "w");
    while (!quiet) {
        char *p = malloc(100 + (size_t)rand() % 5000);
        if (p && f) fprintf(f, "%p\n", (void *)p);
        free(p);
    }
    if (f) fclose(f);
    return arg;
}

static void threads_before(void)
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

/* ---- all of it ---- */

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {{"groups", groups},
                 {"group-owner", group_owner},
                 {"contexts", contexts},
                 {"cancels", cancels},
                 {"references-in-streams", streams},
                 {"causes", failures},
                 {"losses", losses},
                 {"memory-limits", memory_limits},
                 {"memory-short", memory_short},
                 {"threads-before", threads_before}};

int main(int argc, char **argv)
{
    manta_node_options o = {.num_cpus = 3, .resources = "disk=2"};
    const char *name = argc > 1 ? argv[1] : "";
    inside = o.in_process = argc > 2 && !strcmp(argv[2], "inside");
    if (!strcmp(name, "memory-limits")) o.worker_memory = (uint64_t)150 << 20;
    if (!strcmp(name, "memory-short")) o.memory_floor = UINT64_MAX;
    OK(manta_init(&argc, &argv, &o));
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(scenarios[i].name, name)) continue;
        scenarios[i].run();
        manta_shutdown();
        printf("%s: all is well\n", name);
        return 0;
    }
    fprintf(stderr, "no scenario is called %s\n", name);
    return 2;
}
