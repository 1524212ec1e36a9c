/* functions.c - the functions of this program by their names: registered, resolved, and those
 * that every program has (manta.ready, manta.end, manta.map); the lock is not held there. Also what
 * this process knows of the calls of each, which the lock guards. */
#include <string.h>

#include "base/args.h"
#include "base/map.h"
#include "base/mem.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/exec_task.h"
#include "task/nested.h"
#include "task/proto.h"
#include "task/runtime.h"

#define LONGEST_NS 1000000000000000 /* of a call, twelve days: no sum of those sent overflows */

static MAP(manta_task_fn *) table; /* filled before main() and by one thread */
static manta_resolver *resolver;
static void *resolver_user;

void manta_register(const char *name, manta_task_fn *fn)
{
    REFUSE_NULL_AND_RETURN(name);
    REFUSE_NULL_AND_RETURN(fn);

    *map_put(&table, name) = fn;
}

void manta_set_resolver(manta_resolver *fn, void *user)
{
    resolver = fn;
    resolver_user = user;
}

/* ---- what every program has ---- */

/* The actor that this call belongs to ends when its calls are done. */
static manta_status end_actor(manta_task *t)
{
    if (!t->actor) return manta_fail(MANTA_EINVAL, "%s: there is no actor to end", t->name);
    mutex_lock(&rt->lock);
    if (rt->is_local) {
        actor_died(t->actor, failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, 0, "the actor has ended"));
        exec_end_self(t->actor);
    } else {
        proto_begin(&rt->out, PROTO_ACTOR_KILL);
        wire_put_u64(&rt->out, t->actor);
        wire_put_u32(&rt->out, PROTO_KILL_END);
        rt_tell();
    }
    mutex_unlock(&rt->lock);
    return MANTA_OK;
}

/* manta.map(name, inputs...): the function for each input, one result each. What
 * fails is the failure of that result alone. */
static manta_status run_chunk(manta_task *t)
{
    const char *name;

    TRY(manta_arg_str(t, 0, &name));
    if (t->n_args - 1 != t->n_results || strlen(name) >= sizeof t->name)
        return manta_fail(MANTA_EINVAL, "%s: a chunk has %d inputs for %d results, expected as many of both",
                          t->name, t->n_args - 1, t->n_results);
    for (int i = 0; i < t->n_results; i++) {
        manta_task one = *t;
        one.is_part = true;
        memcpy(one.name, name, strlen(name) + 1);
        one.id = t->id + (uint64_t)i;
        one.args = t->args + 1 + i;
        one.n_args = 1;
        one.results = t->results + i;
        one.n_results = 1;
        manta_status st = function_call(&one);
        t->memory = one.memory; /* where its result lies */
        if (st) {
            bool cancelled = atomic_load(&t->call->cancelled);
            t->results[i].failure =
                task_failure(&one, cancelled ? MANTA_FAILURE_CANCELLED : MANTA_FAILURE_TASK, st);
        }
    }
    return MANTA_OK;
}

static manta_status run_builtin(manta_task *t)
{
    if (!strcmp(t->name, "manta.ready")) return MANTA_OK;
    if (!strcmp(t->name, "manta.end")) return end_actor(t);
    if (!strcmp(t->name, "manta.map")) return run_chunk(t);
    return manta_fail(MANTA_ENOENT, "no remote function is called %s", t->name);
}

manta_status function_call(manta_task *t)
{
    manta_task_fn **fn = map_find(&table, t->name);

    if (fn) return (*fn)(t);
    if (!strncmp(t->name, "manta.", 6)) return run_builtin(t);
    if (resolver) return resolver(resolver_user, t->name, t);
    return manta_fail(MANTA_ENOENT, "no remote function is called %s; MANTA_REMOTE(%s) is missing", t->name,
                      t->name);
}

/* ---- what is known of calls ---- */

function *function_find(const char *name)
{
    function **f = map_find(&rt->functions, name);

    if (f) return *f;
    function *x = mem_new(sizeof *x);
    x->name = mem_strdup(name);
    x->est_ns = x->run_ns = -1;
    x->bits = nested_bits(name);
    *map_put(&rt->functions, name) = x;
    return x;
}

void function_learn(function *f, int64_t ns)
{
    if (ns < 0) ns = 0;
    if (ns > LONGEST_NS) ns = LONGEST_NS;
    if (f->est_ns < 0)
        f->est_ns = ns;
    else
        f->est_ns += (ns - f->est_ns) / (ns > f->est_ns ? 2 : 8); /* a long one is believed sooner */
}
