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
    if (manta_arg_kind(t, 0) == MANTA_KIND_STR) {
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
    CHECK(name == NULL); /* no resource of that name */
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

/* The node's options that are words. */
static void words(void)
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

/* A short call, by experience, unless it is asked to wait. */
static manta_status short_or_not(manta_task *t)
{
    int64_t wait;
    TRY(manta_arg_i64(t, 0, &wait));
    while (wait && !manta_task_is_cancelled(t)) usleep(200);
    return wait ? manta_fail(MANTA_ECANCELLED, "I was asked to stop") : MANTA_OK;
}
MANTA_REMOTE(short_or_not)

/* Spread: nothing is sent behind a call that turns out to be long. */
static void spread(void)
{
    enum { N = 60 };
    manta_ref r[N];
    manta_task_options o = {.strategy = MANTA_STRATEGY_SPREAD};
    for (int i = 0; i < N; i++) r[i] = manta_remote(short_or_not, manta_i64(0));
    OK(manta_get_all(r, N, LONG));
    manta_release_all(r, N);
    manta_ref stuck = manta_remote_with(&o, short_or_not, manta_i64(1));
    for (int i = 0; i < N; i++) r[i] = manta_remote_with(&o, short_or_not, manta_i64(0));
    OK(manta_get_all(r, N, LONG));
    manta_release_all(r, N);
    OK(manta_cancel(stuck, 0));
    CHECK(manta_get(stuck, LONG) == MANTA_ECANCELLED);
    manta_release(stuck);
}

/* A node that is said to have two gpus: each call knows which are its own. */
static void devices(void)
{
    manta_node_options o = {.num_cpus = 4, .num_gpus = 2};
    manta_group g;
    manta_bundle parts[3] = {{.num_gpus = 0.7}, {.num_gpus = 0.7}, {.num_gpus = 0.6}};
    manta_shutdown();
    CHECK(manta_init(NULL, NULL, &(manta_node_options){.num_gpus = 100}) == MANTA_EINVAL);
    OK(manta_init(NULL, NULL, &o));
    manta_actor one = manta_actor_new(&(manta_task_options){.num_gpus = 1}, counter);
    manta_context c = context_from(manta_actor_call(one, context_here));
    CHECK(c.gpus == 1 && c.n_gpu_ids == 1);
    int first = c.gpu_ids[0];
    manta_task_options half = {.num_gpus = 0.5};
    c = context_from(manta_remote_with(&half, context_here));
    CHECK(c.gpus == 0.5 && c.n_gpu_ids == 1 && c.gpu_ids[0] == 1 - first);
    manta_actor_release(one);
    manta_task_options both = {.num_gpus = 2};
    c = context_from(manta_remote_with(&both, context_here));
    CHECK(c.n_gpu_ids == 2 && c.gpu_ids[0] == 0 && c.gpu_ids[1] == 1);
    c = context_from(manta_remote(context_here));
    CHECK(c.n_gpu_ids == 0);
    manta_task_options odd = {.num_gpus = 1.5};
    manta_ref r = manta_remote_with(&odd, pid);
    CHECK(manta_get(r, 0) == MANTA_EINVAL);
    SAYS("a part of one, or whole ones");
    manta_release(r);
    CHECK(manta_group_new(parts, 3, MANTA_PACK, NULL, &g) == MANTA_EUNSUPPORTED);
    SAYS("parted");
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

/* ---- queues ---- */

/* Puts so many numbers, beginning with `first`, one by one. */
static manta_status produce(manta_task *t)
{
    manta_queue q;
    int64_t first, n;
    TRY(manta_arg_actor(t, 0, &q.actor));
    TRY(manta_arg_i64(t, 1, &first));
    TRY(manta_arg_i64(t, 2, &n));
    for (int64_t i = 0; i < n; i++) TRY(manta_queue_put(q, manta_i64(first + i), LONG));
    return MANTA_OK;
}
MANTA_REMOTE(produce)

static manta_status take_one(manta_task *t)
{
    manta_queue q;
    manta_ref r;
    int64_t v;
    TRY(manta_arg_actor(t, 0, &q.actor));
    TRY(manta_queue_get(q, &r, LONG));
    manta_status st = manta_get_i64(r, &v, LONG);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, v);
}
MANTA_REMOTE(take_one)

static void queues(void)
{
    manta_queue q;
    manta_ref r, many[64];
    manta_arg in[3] = {manta_f64(1), manta_str("two"), manta_i64(3)};
    double d;
    int64_t v;
    const char *s;
    size_t n;
    OK(manta_queue_new(3, NULL, &q));
    CHECK(manta_queue_get(q, &r, 0) == MANTA_ETIMEDOUT);
    SAYS("empty");
    OK(manta_queue_put_all(q, in, 3, 0));
    OK(manta_queue_size(q, &n));
    CHECK(n == 3);
    CHECK(manta_queue_put(q, manta_f64(4), 0) == MANTA_ETIMEDOUT);
    SAYS("full");
    CHECK(manta_queue_put(q, manta_f64(4), 20) == MANTA_ETIMEDOUT);
    OK(manta_queue_get(q, &r, 0));
    OK(manta_get_f64(r, &d, LONG));
    CHECK(d == 1);
    manta_release(r);
    CHECK(manta_queue_put_all(q, in, 2, 0) == MANTA_ETIMEDOUT); /* both or none */
    CHECK(manta_queue_get_many(q, 3, 5, many, &n, 0) == MANTA_ETIMEDOUT);
    OK(manta_queue_get_many(q, 1, 5, many, &n, 0));
    CHECK(n == 2);
    OK(manta_get_str(many[0], &s, LONG));
    OK(manta_get_i64(many[1], &v, LONG));
    CHECK(!strcmp(s, "two") && v == 3);
    manta_release_all(many, 2);
    /* A large item, and a reference that is ready later. */
    int64_t dims[1] = {100000};
    float *f = calloc(100000, 4);
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, dims, f);
    f[99999] = 7;
    OK(manta_queue_put(q, manta_elements(&a), 0));
    manta_ref later = manta_remote(add, manta_f64(20), manta_f64(22));
    OK(manta_queue_put(q, manta_of_ref(later), 0));
    manta_release(later);
    OK(manta_queue_get_many(q, 2, 2, many, &n, 0));
    OK(manta_get_array(many[0], &a, LONG));
    OK(manta_get_f64(many[1], &d, LONG));
    CHECK(((float *)a.data)[99999] == 7 && d == 42);
    manta_release_all(many, 2);
    free(f);
    if (!inside) {
        /* Two that put wait for one that takes; each one's items keep their order. */
        manta_ref put[2] = {manta_remote(produce, manta_handle(q.actor), manta_i64(0), manta_i64(50)),
                            manta_remote(produce, manta_handle(q.actor), manta_i64(1000), manta_i64(50))};
        int64_t last[2] = {-1, 999};
        for (int i = 0; i < 100; i++) {
            OK(manta_queue_get(q, &r, LONG));
            OK(manta_get_i64(r, &v, LONG));
            CHECK(v == ++last[v >= 1000]);
            manta_release(r);
        }
        OK(manta_get_all(put, 2, LONG));
        manta_release_all(put, 2);
        /* More takers than the queue has threads: each gets one. */
        enum { TAKERS = 40 };
        manta_task_options light = {.num_cpus = MANTA_NONE};
        manta_ref takers[TAKERS];
        bool seen[TAKERS] = {false};
        for (int i = 0; i < TAKERS; i++)
            takers[i] = manta_remote_with(&light, take_one, manta_handle(q.actor));
        CHECK(manta_get(takers[0], 50) == MANTA_ETIMEDOUT);
        for (int i = 0; i < TAKERS; i++) OK(manta_queue_put(q, manta_i64(i), LONG));
        for (int i = 0; i < TAKERS; i++) {
            OK(manta_get_i64(takers[i], &v, LONG));
            CHECK(v >= 0 && v < TAKERS && !seen[v]);
            seen[v] = true;
        }
        manta_release_all(takers, TAKERS);
        /* A taker that is cancelled takes nothing with it. */
        manta_ref gone = manta_remote(take_one, manta_handle(q.actor));
        CHECK(manta_get(gone, 50) == MANTA_ETIMEDOUT);
        OK(manta_cancel(gone, 0));
        CHECK(manta_get(gone, LONG) == MANTA_ECANCELLED);
        manta_release(gone);
        OK(manta_queue_put(q, manta_i64(5), LONG));
        OK(manta_queue_get(q, &r, LONG));
        manta_release(r);
    }
    manta_queue_release(q);
    /* The end of its actor is the end of all waits. */
    OK(manta_queue_new(0, NULL, &q));
    OK(manta_actor_kill(q.actor, true));
    CHECK(manta_queue_get(q, &r, MANTA_FOREVER) != MANTA_OK);
    manta_queue_release(q);
}

/* ---- maps ---- */

typedef struct inputs {
    size_t n, asked;
    char text[32];
} inputs;

static manta_status number_input(void *user, size_t i, manta_arg *out)
{
    inputs *in = user;
    CHECK(i == in->asked++);
    if (i == in->n) return manta_fail(MANTA_ENOENT, "no more");
    *out = manta_i64((int64_t)i);
    return MANTA_OK;
}

static manta_status text_input(void *user, size_t i, manta_arg *out)
{
    inputs *in = user;
    if (i == in->n) return manta_fail(MANTA_ENOENT, "no more");
    snprintf(in->text, sizeof in->text, "text %zu", i); /* the same memory each time */
    *out = manta_str(in->text);
    return MANTA_OK;
}

static manta_status bad_input(void *user, size_t i, manta_arg *out)
{
    (void)user;
    *out = manta_i64(1);
    return i < 3 ? MANTA_OK : manta_fail(MANTA_EIO, "the inputs are broken");
}

/* The square; 13 is unlucky. */
static manta_status square(manta_task *t)
{
    int64_t x;
    TRY(manta_arg_i64(t, 0, &x));
    if (x == 13) return manta_fail(MANTA_ENAN, "13 has no square today");
    return manta_return_i64(t, 0, x * x);
}
MANTA_REMOTE(square)

static manta_status last_digit(manta_task *t)
{
    const char *s;
    TRY(manta_arg_str(t, 0, &s));
    return manta_return_i64(t, 0, strtol(s + 5, NULL, 10));
}
MANTA_REMOTE(last_digit)

static void check_squares(manta_map_options o, size_t n)
{
    inputs in = {.n = n};
    manta_map *m;
    manta_ref r;
    bool seen[200] = {false};
    size_t index, most = (o.window ? o.window : 12) * (o.chunk ? o.chunk : 1);
    OK(manta_map(square, &o, number_input, &in, &m));
    for (size_t i = 0; i < n; i++) {
        int64_t v;
        OK(manta_map_next(m, &index, &r, LONG));
        CHECK(index < n && !seen[index] && (o.unordered || index == i));
        CHECK(in.asked <= i + most + 1); /* no further ahead than the window */
        seen[index] = true;
        if (index == 13) {
            CHECK(manta_get_i64(r, &v, LONG) == MANTA_ENAN && !strcmp(failure_of(r).function, "square"));
            SAYS("13 has no square today (in square");
        } else {
            OK(manta_get_i64(r, &v, LONG));
            CHECK(v == (int64_t)(index * index));
        }
        manta_release(r);
    }
    CHECK(manta_map_next(m, &index, &r, LONG) == MANTA_ENOENT);
    CHECK(manta_map_next(m, &index, &r, LONG) == MANTA_ENOENT);
    manta_map_free(m);
}

static void maps(void)
{
    manta_map *m;
    manta_ref r;
    size_t index;
    int64_t v;
    manta_actor actors[3];
    for (int i = 0; i < 3; i++) actors[i] = manta_actor_new(NULL, counter);
    for (int unordered = 0; unordered < 2; unordered++) {
        check_squares((manta_map_options){.unordered = unordered}, 100);
        check_squares((manta_map_options){.unordered = unordered, .chunk = 7, .window = 3}, 100);
        check_squares((manta_map_options){.unordered = unordered, .n_actors = 3, .actors = actors}, 60);
        check_squares(
            (manta_map_options){
                .unordered = unordered, .chunk = 5, .n_actors = 3, .actors = actors, .window = 4},
            61);
    }
    check_squares((manta_map_options){.chunk = 256}, 200);
    check_squares((manta_map_options){.chunk = 4}, 0);
    inputs in = {.n = 20};
    OK(manta_map(last_digit, &(manta_map_options){.chunk = 4}, text_input, &in, &m));
    for (size_t i = 0; i < 20; i++) {
        OK(manta_map_next(m, &index, &r, LONG));
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == (int64_t)i);
        manta_release(r);
    }
    manta_map_free(m);
    OK(manta_map(square, NULL, bad_input, NULL, &m));
    CHECK(manta_map_next(m, NULL, &r, LONG) == MANTA_EIO);
    SAYS("broken");
    manta_map_free(m);
    if (!inside) { /* what is not taken is cancelled */
        inputs many = {.n = 100};
        OK(manta_map(linger, NULL, number_input, &many, &m));
        CHECK(manta_map_next(m, NULL, &r, 20) == MANTA_ETIMEDOUT);
        manta_map_free(m);
        r = manta_remote(pid);
        OK(manta_get(r, LONG));
        manta_release(r);
    }
    CHECK(manta_map(square, &(manta_map_options){.chunk = 1000}, number_input, &in, &m) == MANTA_EINVAL);
    manta_map_free(NULL);
    /* A pool whose actors come and go. */
    manta_pool *p;
    manta_actor popped;
    OK(manta_pool_new(2, actors, &p));
    CHECK(manta_pool_idle(p) == 2);
    OK(manta_pool_pop(p, &popped));
    OK(manta_pool_pop(p, &popped));
    CHECK(manta_pool_pop(p, &popped) == MANTA_ENOENT);
    CHECK(manta_pool_call(p, 0, counter_add, manta_i64(1)) == MANTA_EINVAL);
    manta_pool_push(p, popped);
    manta_pool_push(p, actors[2]);
    for (int i = 0; i < 6; i++) OK(manta_pool_call(p, LONG, counter_add, manta_i64(1)));
    for (int i = 0; i < 6; i++) {
        OK(manta_pool_next(p, &r, LONG));
        OK(manta_get(r, LONG));
        manta_release(r);
    }
    CHECK(manta_pool_idle(p) == 2);
    manta_pool_free(p);
    for (int i = 0; i < 3; i++) manta_actor_release(actors[i]);
}

/* ---- alike with and without other processes ---- */

static manta_status refuse(manta_task *t)
{
    (void)t;
    return manta_fail(MANTA_EINVAL, "no actor today");
}
MANTA_REMOTE(refuse)

static manta_status pair_of_refs(manta_task *t)
{
    manta_ref r[2] = {manta_put(manta_f64(1)), manta_remote(add, manta_f64(1), manta_f64(1))};
    manta_status st = manta_return(t, 0, manta_refs(r, 2));
    manta_release_all(r, 2);
    return st;
}
MANTA_REMOTE(pair_of_refs)

static manta_status sum_of(manta_task *t)
{
    const manta_ref *r;
    size_t n;
    double sum = 0, x;
    TRY(manta_arg_refs(t, 0, &r, &n));
    for (size_t i = 0; i < n; i++) {
        TRY(manta_get_f64(r[i], &x, LONG));
        sum += x;
    }
    return manta_return_f64(t, 0, sum);
}
MANTA_REMOTE(sum_of)

/* Leaves a file when it ends gracefully. */
static void leave_note(void *self)
{
    (void)touch(self);
    free(self);
}

static manta_status noted(manta_task *t)
{
    const char *path;
    TRY(manta_arg_str(t, 0, &path));
    manta_set_self(t, strdup(path), leave_note);
    return MANTA_OK;
}
MANTA_REMOTE(noted)

/* A method that ends its own actor. */
static manta_status leave(manta_task *t)
{
    manta_context c;
    TRY(manta_context_get(t, &c));
    TRY(manta_actor_end(c.actor));
    return manta_return_i64(t, 0, 7);
}
MANTA_REMOTE(leave)

static void alike_calls(void)
{
    double d;
    int64_t v;
    const manta_ref *in;
    size_t n;
    bool ready[2];
    manta_ref r = manta_remote(pair_of_refs);
    OK(manta_get_refs(r, &in, &n, LONG));
    CHECK(n == 2);
    manta_ref s = manta_remote(sum_of, r); /* resolved to references, which stay references */
    OK(manta_get_f64(s, &d, LONG));
    CHECK(d == 3);
    manta_release(r);
    manta_release(s);
    /* A failure of an argument is the call's; both count as ready. */
    manta_ref bad = manta_remote(inner), next = manta_remote(add, bad, manta_f64(1));
    manta_ref two[2] = {bad, next};
    OK(manta_wait(two, 2, 2, LONG, ready, &n));
    CHECK(n == 2 && manta_get(next, 0) == MANTA_ENAN && !strcmp(failure_of(next).function, "inner"));
    CHECK(manta_get_all(two, 2, LONG) == MANTA_ENAN);
    CHECK(manta_wait((manta_ref[]){bad, bad}, 2, 1, 0, ready, &n) == MANTA_EINVAL);
    OK(manta_cancel(bad, 0)); /* it has ended */
    CHECK(manta_get(bad, 0) == MANTA_ENAN);
    manta_release_all(two, 2);
    CHECK(manta_get(bad, 0) == MANTA_EINVAL);
    r = manta_submit_one("nothing_of_that_name", NULL, 0, (manta_arg[1]){{0}});
    CHECK(manta_get(r, LONG) == MANTA_ENOENT);
    manta_release(r);
    r = manta_remote(add, manta_f64(1), manta_str("x"));
    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    SAYS("argument 1 is a text");
    manta_release(r);
    r = manta_remote(add, manta_f64(1), manta_f64(2));
    CHECK(manta_get_i64(r, &v, LONG) == MANTA_EINVAL);
    SAYS("not an integer");
    manta_release(r);
    r = manta_put(manta_of_ref((manta_ref){1}));
    CHECK(manta_get(r, 0) == MANTA_EINVAL);
    manta_release(r);
}

static void alike_actors(void)
{
    int64_t v;
    manta_actor a, b, c;
    manta_ref r;
    a = manta_actor_new(NULL, counter, manta_i64(10));
    for (int i = 1; i <= 100; i++) {
        r = manta_actor_call(a, counter_add, manta_i64(i));
        OK(manta_get_i64(r, &v, i == 100 ? LONG : MANTA_FOREVER));
        CHECK(v == 10 + i * (i + 1) / 2);
        manta_release(r);
    }
    OK(manta_actor_kill(a, true));
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) == MANTA_EDIED && failure_of(r).kind == MANTA_FAILED_ACTOR);
    manta_release(r);
    manta_actor_release(a);
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    manta_release(r);
    a = manta_actor_new(NULL, refuse);
    CHECK(manta_actor_ready(a, LONG) == MANTA_EINVAL);
    SAYS("no actor today");
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) == MANTA_EINVAL && !strcmp(failure_of(r).function, "refuse"));
    manta_release(r);
    manta_actor_release(a);
    /* Names and their spaces. */
    manta_task_options o = {.name = "tally"};
    CHECK(manta_actor_find("tally", &b) == MANTA_ENOENT);
    a = manta_actor_new(&o, counter);
    OK(manta_actor_find("tally", &b));
    OK(manta_actor_find_in("default", "tally", &c));
    CHECK(b.id == a.id && c.id == a.id);
    manta_actor_release(b);
    manta_actor_release(c);
    CHECK(manta_actor_find_in("elsewhere", "tally", &b) == MANTA_ENOENT);
    CHECK(manta_actor_find_in("a/b", "tally", &b) == MANTA_EINVAL);
    b = manta_actor_new(&o, counter);
    CHECK(manta_actor_ready(b, LONG) == MANTA_EEXIST);
    manta_actor_release(b);
    o.name_space = "elsewhere"; /* is another name */
    b = manta_actor_new(&o, counter, manta_i64(5));
    OK(manta_actor_ready(b, LONG));
    CHECK(b.id != a.id);
    o.get_if_exists = true;
    c = manta_actor_new(&o, counter, manta_i64(9));
    CHECK(c.id == b.id);
    r = manta_actor_call(c, counter_add, manta_i64(1));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 6);
    manta_release(r);
    manta_actor_release(c);
    manta_actor_release(b);
    manta_actor_release(a);
    time_t begin = time(NULL);
    while (manta_actor_find("tally", &b) == MANTA_OK && time(NULL) - begin < LONG / 1000) {
        manta_actor_release(b);
        usleep(500);
    }
    CHECK(manta_actor_find("tally", &b) == MANTA_ENOENT); /* it ended with its last handle */
    /* Three ways to end gracefully: each leaves its note. */
    snprintf(folder, sizeof folder, "/tmp/manta-features-XXXXXX");
    CHECK(mkdtemp(folder));
    a = manta_actor_new(NULL, noted, manta_str(path_of("released")));
    OK(manta_actor_ready(a, LONG));
    manta_actor_release(a);
    until_there("released");
    a = manta_actor_new(&(manta_task_options){.max_restarts = 5}, noted, manta_str(path_of("ended")));
    manta_ref before = manta_actor_call(a, add, manta_f64(1), manta_f64(1));
    OK(manta_actor_end(a));
    OK(manta_get(before, LONG)); /* what came before is done */
    until_there("ended");
    begin = time(NULL);
    manta_status st;
    do st = manta_actor_ready(a, LONG); /* dead, and not restarted */
    while (st == MANTA_OK && time(NULL) - begin < LONG / 1000);
    CHECK(st == MANTA_EDIED);
    SAYS("has ended");
    manta_release(before);
    manta_actor_release(a);
    a = manta_actor_new(NULL, noted, manta_str(path_of("left")));
    r = manta_actor_call(a, leave);
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 7);
    until_there("left");
    manta_release(r);
    manta_actor_release(a);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

static void alike(void)
{
    alike_calls();
    alike_actors();
}

/* ---- the lives of actors ---- */

/* Dies in the first life of its actor, then counts. */
static manta_status die_first(manta_task *t)
{
    manta_context c;
    TRY(manta_context_get(t, &c));
    if (!c.was_restarted) raise(SIGKILL);
    return counter_add(t);
}
MANTA_REMOTE(die_first)

/* Makes a detached actor, and ends: the actor stays. */
static manta_status leave_behind(manta_task *t)
{
    manta_task_options o = {.name = "left behind", .detached = true};
    manta_actor a = manta_actor_new(&o, counter, manta_i64(100));
    TRY(manta_actor_ready(a, LONG));
    manta_actor_release(a);
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(leave_behind)

static manta_status wait_for_two(manta_task *t)
{
    manta_ref r[2] = {manta_remote(pid), manta_remote(pid)};
    manta_status st = manta_get_all(r, 2, LONG);
    manta_release_all(r, 2);
    return st ? st : manta_return_i64(t, 0, 1);
}
MANTA_REMOTE(wait_for_two)

/* after(path, x): x, when there is a file at path. */
static manta_status after(manta_task *t)
{
    const char *path;
    int64_t x;
    TRY(manta_arg_str(t, 0, &path));
    TRY(manta_arg_i64(t, 1, &x));
    while (access(path, F_OK)) usleep(200);
    return manta_return_i64(t, 0, x);
}
MANTA_REMOTE(after)

/* An actor is made before the arguments of its constructor are there. */
static void early(void)
{
    char path[128];
    int64_t v;
    snprintf(folder, sizeof folder, "/tmp/manta-features-XXXXXX");
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s", path_of("go"));
    manta_ref later = manta_remote(after, manta_str(path), manta_i64(41));
    manta_actor a = manta_actor_new(NULL, counter, later); /* does not wait for it */
    manta_ref r = manta_actor_call(a, counter_add, manta_i64(1));
    manta_release(later);
    CHECK(manta_get(r, 20) == MANTA_ETIMEDOUT);
    OK(touch(path));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 42);
    manta_release(r);
    manta_actor_release(a);
    /* What fails to come is the failure of the actor; so is what is of another kind. */
    later = manta_remote(inner);
    a = manta_actor_new(NULL, counter, later);
    CHECK(manta_actor_ready(a, LONG) == MANTA_ENAN);
    SAYS("step 812");
    manta_release(later);
    manta_actor_release(a);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

static void lives(void)
{
    int64_t v;
    manta_actor a;
    early();
    /* The call during which it died is made again, if that was asked for. */
    manta_task_options o = {.max_restarts = 1, .max_task_retries = 1};
    a = manta_actor_new(&o, counter, manta_i64(5));
    manta_ref r = manta_actor_call(a, die_first, manta_i64(1));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 6);
    manta_release(r);
    manta_actor_release(a);
    /* Detached: it outlives its handles, and the process that made it. */
    r = manta_remote(leave_behind);
    OK(manta_get_i64(r, &v, LONG));
    manta_release(r);
    CHECK(kill((pid_t)v, SIGKILL) == 0);
    r = manta_remote(pid);
    OK(manta_get(r, LONG));
    manta_release(r);
    for (int i = 1; i <= 2; i++) {
        OK(manta_actor_find("left behind", &a));
        r = manta_actor_call(a, counter_add, manta_i64(1));
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == 100 + i);
        manta_release(r);
        if (i == 2) OK(manta_actor_kill(a, true));
        manta_actor_release(a);
    }
    time_t begin = time(NULL);
    while (manta_actor_find("left behind", &a) == MANTA_OK && time(NULL) - begin < LONG / 1000) {
        manta_actor_release(a);
        usleep(500);
    }
    CHECK(manta_actor_find("left behind", &a) == MANTA_ENOENT);
    /* A wait gives its core back: three cores, three calls that each need others. */
    manta_ref w[6];
    for (int i = 0; i < 6; i++) w[i] = manta_remote(wait_for_two);
    OK(manta_get_all(w, 6, LONG));
    manta_release_all(w, 6);
    /* One caller may have so many calls pending, and not one more. */
    o = (manta_task_options){.max_pending_calls = 2};
    a = manta_actor_new(&o, counter);
    for (int i = 0; i < 3; i++) w[i] = manta_actor_call(a, linger);
    CHECK(manta_get(w[2], 0) == MANTA_EBUSY && failure_of(w[2]).kind == MANTA_FAILED_SUBMIT);
    for (int i = 0; i < 2; i++) OK(manta_cancel(w[i], 0));
    for (int i = 0; i < 2; i++) CHECK(manta_get(w[i], LONG) == MANTA_ECANCELLED);
    manta_release_all(w, 3);
    r = manta_actor_call(a, counter_add, manta_i64(1));
    OK(manta_get(r, LONG));
    manta_release(r);
    manta_actor_release(a);
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
                 {"threads-before", threads_before},
                 {"queues", queues},
                 {"maps", maps},
                 {"alike", alike},
                 {"words", words},
                 {"devices", devices},
                 {"spread", spread},
                 {"lives", lives}};

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
