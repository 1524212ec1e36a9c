/* groups.c - placement groups as a process that uses them sees them: what it knows of each, and the public
 * calls. The daemon decides where a group lies and when (daemon_groups.c, registry.c).
 *
 *     a group here:   unknown ──made here, or the daemon was asked──▶ known ──removed──▶ gone ──▶ freed at the end
 *     its object:     pending ──the daemon has placed the bundles──▶ ready              failed, by the daemon
 *
 * A group and the object that stands for its being there have one number: to wait for the group is to wait for
 * that object. A link keeps the sizes of the bundles, so that a call that can never fit is refused here and at
 * once; they never change. A link that is gone stays, and whatever names it fails with the reason. It becomes gone
 * when the daemon says so to all processes (PROTO_GROUP_GONE), and in the process that removes it already then, so
 * that calls made after that fail at once. With a local runtime there is no daemon: a group is ready when it is
 * made.
 *
 * Who writes what: everything under rt->lock, which public functions take and the others have. group_ask() gives
 * it away while the daemon answers: another thread may have added the link by then, and group_add() finds it.
 *
 * What may be changed: the sentences, and what is refused here before the daemon is asked. What may not: that a
 * link stays when its group is gone, so that whatever names the group finds out. */
#include "task/group_link.h"

#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/needs.h"
#include "task/object.h"
#include "task/proto.h"
#include "task/runtime.h"
#include "task/value.h"

struct group_link {
    uint64_t id;
    bool gone;
    manta_placement how;
    char name[64];
    int n;
    sched_shape size[]; /* of the bundles */
};

static group_link *group_known(uint64_t id)
{
    group_link **g = map_u64_find(&rt->groups, id);

    return g ? *g : NULL;
}

static group_link *group_add(uint64_t id, manta_placement how, const char *name, int n,
                             const sched_shape *size)
{
    group_link *g = group_known(id);

    if (g) return g;
    g = mem_new(sizeof *g + (size_t)n * sizeof *size);
    g->id = id;
    g->how = how;
    snprintf(g->name, sizeof g->name, "%s", name);
    g->n = n;
    memcpy(g->size, size, (size_t)n * sizeof *size);
    *map_u64_put(&rt->groups, id) = g;
    return g;
}

failure *group_failure(void)
{
    return failure_make(MANTA_FAILURE_PLACEMENT_GROUP, MANTA_ENOENT, NULL, 0,
                        "the placement group was removed");
}

/* ---- asking the daemon ---- */

static manta_status take_group(const buf *b, group_link **out)
{
    sched_shape size[GROUP_BUNDLES];
    char text[256], name[64];
    wire w = wire_of(b->at, b->n);
    manta_status st = (manta_status)wire_u32(&w);

    wire_text(&w, text, sizeof text);
    uint64_t id = wire_u64(&w);
    manta_placement how = (manta_placement)wire_u32(&w);
    (void)wire_u32(&w); /* placed */
    wire_text(&w, name, sizeof name);
    uint32_t n = wire_u32(&w);
    const void *sizes = n <= GROUP_BUNDLES ? wire_take(&w, n * sizeof *size) : NULL;
    if (st) return manta_fail(st, "%s", text);
    if (!sizes || n == 0)
        return manta_fail(MANTA_ECORRUPT, "the daemon's answer about a placement group has no bundles");
    TRY(wire_end(&w, "group"));
    memcpy(size, sizes, n * sizeof *size);
    *out = group_add(id, how, name, (int)n, size);
    return MANTA_OK;
}

/* By number, or, with 0, by name. */
static manta_status group_ask(uint64_t id, const char *name, group_link **out)
{
    reply r;

    if (rt->is_dead) return failure_raise(rt->death);
    uint64_t request = rt_request_begin(PROTO_GROUP_FIND);
    wire_put_u64(&rt->out, id);
    wire_put_text(&rt->out, name);
    manta_status st = rt_request(request, &r);
    if (!st) st = take_group(&r.bytes, out);
    buf_release(&r.bytes);
    return st;
}

static manta_status group_find(manta_placement_group group, group_link **out)
{
    *out = group_known(group.id);
    if (*out) return MANTA_OK;
    if (!group.id || rt->is_local) return manta_fail(MANTA_EINVAL, "the placement group is none");
    return group_ask(group.id, "", out);
}

manta_status group_shape(manta_placement_group group, int bundle, sched_shape *to, manta_failure_kind *kind)
{
    group_link *g;
    char whose[48];
    manta_status st = group_find(group, &g);

    *kind = MANTA_FAILURE_PLACEMENT_GROUP;
    if (st) return st;
    if (g->gone) {
        failure *f = group_failure();
        st = failure_raise(f);
        failure_unref(f);
        return st;
    }
    *kind = MANTA_FAILURE_SUBMIT;
    if (bundle < 0 || bundle > g->n)
        return manta_fail(MANTA_EINVAL,
                          "bundle %d is asked for of a placement group of %d, which are counted from 1",
                          bundle, g->n);
    to->group = group.id;
    to->bundle = bundle == 0 ? SCHED_ANY : bundle - 1;
    *kind = MANTA_FAILURE_IMPOSSIBLE;
    for (int i = 0; i < g->n && bundle == 0; i++) {
        int missing;
        if (sched_feasible(&g->size[i], to, &missing)) return MANTA_OK;
    }
    /* With any bundle allowed, the sentence is about the last. */
    int which = bundle ? bundle : g->n;
    snprintf(whose, sizeof whose, "bundle %d of its placement group", which);
    return needs_feasible(&g->size[which - 1], whose, to);
}

bool group_is_gone(uint64_t id)
{
    const group_link *g = id ? group_known(id) : NULL;

    return g && g->gone;
}

void group_gone(uint64_t id)
{
    group_link *g = group_known(id);

    if (!g || g->gone) return;
    g->gone = true;
    failure *f = group_failure();
    calls_group_gone(id, f);
    if (rt->is_local) actors_group_gone(id, f);
    failure_unref(f);
}

void groups_release(void)
{
    for (size_t i = 0; i < rt->groups.n; i++) mem_free(rt->groups.at[i].value);
    map_u64_release(&rt->groups);
}

/* ---- the public calls ---- */

static const char *const how_names[] = {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"};

/* Whether this one host could ever hold it. */
static manta_status check_bundles(const manta_bundle *bundles, int n, manta_placement how, sched_shape *size)
{
    sched_shape sum = {0};
    int missing;

    if (n < 1 || n > GROUP_BUNDLES)
        return manta_fail(MANTA_EINVAL, "a placement group of %d bundles is asked for, expected 1 to %d", n,
                          GROUP_BUNDLES);
    if ((unsigned)how > MANTA_PLACEMENT_STRICT_SPREAD)
        return manta_fail(MANTA_EINVAL, "no placement has the number %d", (int)how);
    for (int i = 0; i < n; i++) {
        size[i] = (sched_shape){0};
        TRY(needs_amounts(bundles[i].num_cpus, bundles[i].num_gpus, bundles[i].memory, bundles[i].resources,
                          &size[i]));
        int64_t any = 0;
        for (int k = 0; k < SCHED_RESOURCES; k++) {
            sum.amount[k] += size[i].amount[k];
            any += size[i].amount[k];
        }
        if (any == 0) return manta_fail(MANTA_EINVAL, "bundle %d of the placement group is empty", i + 1);
    }
    if (how == MANTA_PLACEMENT_STRICT_SPREAD && n > 1)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the placement group can never be placed: STRICT_SPREAD of %d bundles asks for %d "
                          "nodes, and there is 1",
                          n, n);
    if (!sched_feasible(&rt->total, &sum, &missing))
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the placement group can never be placed: its bundles ask for %.15g %s together, "
                          "and the node has %.15g",
                          (double)sum.amount[missing] / SCHED_UNIT, rt->names[missing],
                          (double)rt->total.amount[missing] / SCHED_UNIT);
    if (!sched_gpus_fit(&rt->total, size, n))
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the placement group can never be placed: no %.15g gpus can be parted that way",
                          (double)rt->total.amount[SCHED_GPU] / SCHED_UNIT);
    return MANTA_OK;
}

/* The object that stands for the group being there has the group's number. */
static object *group_object(uint64_t id)
{
    object *o = object_find(id); /* somebody may have heard of it while we waited */

    if (!o) o = object_new(id);
    o->refs++;
    o->exported = true;
    if (rt->is_local)
        o->state = OBJECT_READY;
    else
        o->held++; /* the daemon counts it */
    return o;
}

static manta_status group_new(const manta_bundle *bundles, int n, manta_placement how, const char *name,
                              manta_placement_group *out)
{
    sched_shape size[GROUP_BUNDLES];
    reply r = {.fd = -1};
    uint64_t id = object_id(1);

    if (rt->is_dead) return failure_raise(rt->death);
    if (name && strlen(name) > 63)
        return manta_fail(MANTA_EINVAL, "the placement group's name has %zu bytes, at most 63 are allowed",
                          strlen(name));
    TRY(check_bundles(bundles, n, how, size));
    if (!rt->is_local) {
        uint64_t request = rt_request_begin(PROTO_GROUP_NEW);
        wire_put_u64(&rt->out, id);
        wire_put_u32(&rt->out, (uint32_t)how);
        wire_put_text(&rt->out, name);
        wire_put_u32(&rt->out, (uint32_t)n);
        buf_add(&rt->out, size, (size_t)n * sizeof *size);
        TRY(rt_request(request, &r));
    }
    group_add(id, how, name ? name : "", n, size);
    group_object(id);
    out->id = id;
    return MANTA_OK;
}

manta_status manta_placement_group_new(const manta_bundle *bundles, int n, manta_placement how,
                                       const char *name, manta_placement_group *out)
{
    REFUSE_ARRAY(n, bundles);
    REFUSE_NULL(out);

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = group_new(bundles, n, how, name, out);
    mutex_unlock(&rt->lock);
    return st;
}

manta_ref manta_placement_group_ready(manta_placement_group group)
{
    manta_ref r = {0};

    if (!rt) {
        (void)rt_none();
        return r;
    }
    mutex_lock(&rt->lock);
    object *o = object_find(group.id);
    if (o) {
        o->refs++;
        r.id = o->id;
    } else if (group.id && !rt->is_local && !object_may_be(group.id)) {
        /* another process made the group: the daemon knows */
        r.id = object_adopt(group.id, false)->id;
        object_find(r.id)->refs++;
    }
    mutex_unlock(&rt->lock);
    return r;
}

manta_status manta_placement_group_wait(manta_placement_group group, int64_t timeout_ms)
{
    manta_ref r = manta_placement_group_ready(group);
    manta_status st = manta_get(r, timeout_ms);

    manta_release(r);
    if (st == MANTA_ETIMEDOUT)
        st = manta_fail(MANTA_ETIMEDOUT,
                        "the placement group has no place after %lld ms: others hold what "
                        "its bundles ask for",
                        (long long)timeout_ms);
    return st;
}

void manta_placement_group_remove(manta_placement_group group)
{
    if (!rt || !group.id) return;
    mutex_lock(&rt->lock);
    proto_begin(&rt->out, PROTO_GROUP_REMOVE);
    wire_put_u64(&rt->out, group.id);
    rt_tell();
    group_link *g;
    if (!group_find(group, &g)) group_gone(group.id); /* calls made from now on fail at once */
    object *o = object_find(group.id);
    if (o && o->refs > 0) object_unref(o);
    rt_flush_drops();
    mutex_unlock(&rt->lock);
}

manta_status manta_placement_group_find(const char *name, manta_placement_group *out)
{
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    group_link *g = NULL;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    for (size_t i = 0; i < rt->groups.n && rt->is_local && !g; i++)
        if (!rt->groups.at[i].value->gone && !strcmp(rt->groups.at[i].value->name, name))
            g = rt->groups.at[i].value;
    manta_status st = g              ? MANTA_OK
                      : rt->is_local ? manta_fail(MANTA_ENOENT, "no placement group is called %s", name)
                                     : group_ask(0, name, &g);
    if (!st) out->id = g->id;
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_placement_group_get(manta_placement_group group, manta_placement_group_info *out)
{
    REFUSE_NULL(out);

    group_link *g;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = group_find(group, &g);
    if (!st) {
        *out = (manta_placement_group_info){.how = g->how, .removed = g->gone, .n_bundles = g->n};
        snprintf(out->name, sizeof out->name, "%s", g->name);
        snprintf(out->how_name, sizeof out->how_name, "%s", how_names[g->how]);
        for (int i = 0; i < g->n && i < MANTA_PLACEMENT_GROUP_BUNDLES; i++)
            amounts_text(&g->size[i], out->bundles[i], sizeof out->bundles[i]);
    }
    mutex_unlock(&rt->lock);
    return st;
}
