/* groups.c - placement groups, devices, and what a call knows of where it runs. */
#include <signal.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/failure.h>

#include "scenario.h"

/* The bundle it runs in, and the resources it holds. */
static manta_status where(manta_task *t)
{
    manta_context c;

    MANTA_TRY(manta_context_get(t, &c));
    MANTA_TRY(manta_return_i64(t, 0, c.bundle));
    if (manta_results(t) > 1) MANTA_TRY(manta_return(t, 1, manta_str(c.resources)));
    return MANTA_OK;
}
MANTA_REMOTE(where)

/* Finds a group by its name and runs something in it. */
static manta_status in_named_group(manta_task *t)
{
    const char *name;
    manta_task_options o = {0};
    int64_t bundle;

    MANTA_TRY(manta_arg_str(t, 0, &name));
    MANTA_TRY(manta_placement_group_find(name, &o.placement_group));
    manta_ref r = manta_remote_with(&o, where);
    manta_status st = manta_get_i64(r, &bundle, LONG);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, bundle);
}
MANTA_REMOTE(in_named_group)

static void group_refusals(void)
{
    manta_placement_group g;
    manta_bundle two[2] = {{.num_cpus = 1}, {.num_cpus = 1}}, big = {.num_cpus = 1000}, none = {0};
    manta_bundle odd = {.num_cpus = 1, .resources = "unicorn=1"};

    CHECK(manta_placement_group_new(two, 2, MANTA_PLACEMENT_STRICT_SPREAD, NULL, &g) == MANTA_EUNSUPPORTED);
    SAYS("STRICT_SPREAD of 2 bundles asks for 2 nodes");
    CHECK(manta_placement_group_new(&big, 1, MANTA_PLACEMENT_PACK, NULL, &g) == MANTA_EUNSUPPORTED);
    SAYS("1000 cpu");
    CHECK(manta_placement_group_new(&odd, 1, MANTA_PLACEMENT_PACK, NULL, &g) == MANTA_EUNSUPPORTED);
    SAYS("unicorn");
    CHECK(manta_placement_group_new(&none, 1, MANTA_PLACEMENT_PACK, NULL, &g) == MANTA_EINVAL);
    SAYS("empty");
    CHECK(manta_placement_group_new(two, 0, MANTA_PLACEMENT_PACK, NULL, &g) == MANTA_EINVAL);
    CHECK(manta_placement_group_find("nobody", &g) == MANTA_ENOENT);
    CHECK(manta_placement_group_wait((manta_placement_group){0}, 0) == MANTA_EINVAL);
    manta_placement_group_remove((manta_placement_group){0});
}

void scenario_groups(void)
{
    manta_placement_group g, twin, rest;
    manta_placement_group_info info;
    manta_bundle bundles[2] = {{.num_cpus = 1, .resources = "disk=1"}, {.num_cpus = 1}};
    int64_t v;
    const char *text;

    group_refusals();
    OK(manta_placement_group_new(bundles, 2, MANTA_PLACEMENT_PACK, "ours", &g));
    manta_ref ready = manta_placement_group_ready(g);
    OK(manta_get(ready, LONG));
    manta_release(ready);
    OK(manta_placement_group_wait(g, LONG));
    OK(manta_placement_group_get(g, &info));
    CHECK(info.n_bundles == 2 && !info.removed && !strcmp(info.how_name, "PACK"));
    CHECK(!strcmp(info.bundles[0], "cpu=1,disk=1") && !strcmp(info.bundles[1], "cpu=1"));
    OK(manta_placement_group_find("ours", &twin));
    CHECK(twin.id == g.id);
    manta_task_options o = {.placement_group = g, .bundle = 2};
    if (!inside) {
        CHECK(manta_placement_group_new(bundles, 2, MANTA_PLACEMENT_PACK, "ours", &twin) == MANTA_EEXIST);
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
    o = (manta_task_options){.placement_group = g, .num_cpus = 1, .bundle = 1};
    manta_actor a = manta_actor_new(&o, counter, manta_i64(7));
    OK(manta_actor_ready(a, LONG));
    manta_ref r = manta_actor_call(a, counter_add, manta_i64(1));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 8);
    manta_release(r);
    /* What a bundle can never hold is said at once. */
    o = (manta_task_options){.placement_group = g, .num_cpus = 2};
    r = manta_remote_with(&o, where);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED);
    SAYS("it asks for 2 cpu, and bundle 2 of its placement group has 1");
    manta_release(r);
    o = (manta_task_options){.placement_group = g, .bundle = 3};
    r = manta_remote_with(&o, where);
    CHECK(manta_get(r, 0) == MANTA_EINVAL);
    manta_release(r);
    /* A group that has no place yet waits, and says so; then it gets one. */
    if (!inside) {
        manta_bundle all = {.num_cpus = 3};
        OK(manta_placement_group_new(&all, 1, MANTA_PLACEMENT_STRICT_PACK, NULL, &rest));
        CHECK(manta_placement_group_wait(rest, 20) == MANTA_ETIMEDOUT);
        SAYS("others hold");
        o = (manta_task_options){.placement_group = rest};
        manta_ref early = manta_remote_with(&o, pid); /* waits with it */
        o = (manta_task_options){.placement_group = g, .bundle = 2, .max_retries = MANTA_UNLIMITED};
        manta_ref running = manta_remote_with(&o, linger), behind = manta_remote_with(&o, linger);
        CHECK(manta_get(running, 20) == MANTA_ETIMEDOUT);
        manta_placement_group_remove(g);
        CHECK(manta_get(running, LONG) == MANTA_ENOENT &&
              failure_of(running).kind == MANTA_FAILURE_PLACEMENT_GROUP);
        CHECK(manta_get(behind, LONG) == MANTA_ENOENT &&
              failure_of(behind).kind == MANTA_FAILURE_PLACEMENT_GROUP);
        manta_release(running);
        manta_release(behind);
        OK(manta_placement_group_wait(rest, LONG));
        OK(manta_get(early, LONG));
        manta_release(early);
        manta_placement_group_remove(rest);
    } else {
        manta_placement_group_remove(g);
    }
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) != MANTA_OK);
    CHECK(failure_of(r).kind == MANTA_FAILURE_PLACEMENT_GROUP || failure_of(r).kind == MANTA_FAILURE_UNKNOWN);
    manta_release(r);
    manta_actor_release(a);
    o = (manta_task_options){.placement_group = g};
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_ENOENT && failure_of(r).kind == MANTA_FAILURE_PLACEMENT_GROUP);
    SAYS("removed");
    manta_release(r);
    OK(manta_placement_group_get(g, &info));
    CHECK(info.removed);
    if (inside) return;
    /* All is free again, as soon as the last worker of a group is dead. */
    time_t begin = time(NULL);
    while (available("cpu") != 3 && time(NULL) - begin < LONG / 1000) usleep(500);
    CHECK(available("cpu") == 3 && available("disk") == 2);
}

static manta_status make_group(manta_task *t)
{
    manta_placement_group g;
    manta_bundle one = {.num_cpus = 1};

    MANTA_TRY(manta_placement_group_new(&one, 1, MANTA_PLACEMENT_PACK, "a worker's", &g));
    MANTA_TRY(manta_placement_group_wait(g, LONG));
    MANTA_TRY(manta_return_i64(t, 0, getpid()));
    return MANTA_OK;
}
MANTA_REMOTE(make_group)

/* A group ends with the process that made it. */
void scenario_group_owner(void)
{
    int64_t p;
    manta_placement_group g;
    manta_ref r = manta_remote(make_group);

    OK(manta_get_i64(r, &p, LONG));
    manta_release(r);
    OK(manta_placement_group_find("a worker's", &g));
    CHECK(kill((pid_t)p, SIGKILL) == 0);
    time_t begin = time(NULL);
    while (manta_placement_group_find("a worker's", &g) == MANTA_OK && time(NULL) - begin < LONG / 1000)
        usleep(500);
    CHECK(manta_placement_group_find("a worker's", &g) == MANTA_ENOENT);
    manta_task_options o = {.placement_group = g};
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, LONG) == MANTA_ENOENT);
    manta_release(r);
}

static manta_status context_here(manta_task *t)
{
    manta_context c;

    MANTA_TRY(manta_context_get(t, &c));
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

void scenario_contexts(void)
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
        CHECK(c.is_worker && c.pid != d.pid && c.worker != d.worker && c.placement_group.id == 0);
        CHECK(c.cpus == 0.5 && c.gpus == 0 && c.memory == 1 << 30);
        CHECK(!strcmp(c.resources, "cpu=0.5,memory=1073741824,disk=1.5"));
        o = (manta_task_options){.node = d.node};
        c = context_from(manta_remote_with(&o, context_here));
        CHECK(c.node == d.node && !strcmp(c.resources, "cpu=1"));
    }
    o = (manta_task_options){.node = d.node + 2};
    manta_ref r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED && failure_of(r).kind == MANTA_FAILURE_IMPOSSIBLE);
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

/* A node that is said to have two gpus: each call knows which are its own. */
void scenario_devices(void)
{
    manta_node_options o = {.num_cpus = 4, .num_gpus = 2};
    manta_placement_group g;
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
    CHECK(manta_placement_group_new(parts, 3, MANTA_PLACEMENT_PACK, NULL, &g) == MANTA_EUNSUPPORTED);
    SAYS("parted");
}
