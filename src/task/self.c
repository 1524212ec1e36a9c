/* self.c - an actor seen from inside: its concurrency groups, its handle, its end.
 *
 *     manta_exit_actor() ──▶ self_of.left ──▶ calls that are begun fail   (exec.c)
 *              └──▶ the daemon: the actor is dead, its process belongs to none ──▶ PROTO_EXIT
 *
 * The daemon says when the process is to end (worker.c): it has then taken the actor from the process, so that
 * its end is no death of an actor. Calls that run, and those that were deferred, are finished before. The lock is
 * held, but by the public functions. */
#include <manta/actor.h>
#include <manta/failure.h>
#include <manta/task.h>

#include <stdio.h>
#include <unistd.h>

#include "base/args.h"
#include "task/actor_link.h"
#include "task/call_head.h"
#include "task/concurrency.h"
#include "task/exec_task.h"
#include "task/incoming.h"
#include "task/object.h"
#include "task/proto.h"
#include "task/runtime.h"

/* ---- concurrency groups ---- */

bool incoming_has_room(incoming *c)
{
    self_of **self = map_u64_find(&rt->selves, c->actor);
    concurrency *groups = self ? (*self)->groups : NULL;

    if (!groups) return true;
    if (!c->group) {
        char name[64], group[64] = "";
        wire w = wire_of(c->bytes, c->n);
        call_head h;
        (void)proto_kind_of(&w);
        call_head_take(&w, &h);
        wire_text(&w, name, sizeof name);
        wire_text(&w, group, sizeof group); /* the label, of which nothing is wanted */
        group[0] = 0;
        if (h.has_group) wire_text(&w, group, sizeof group);
        int k = concurrency_find(groups, group, name);
        c->group = k < 0 ? 1 : k + 1; /* a call that fails has its place in the first */
    }
    return concurrency_has_room(groups, c->group - 1);
}

manta_status task_group(manta_task *t)
{
    int most = t->call->concurrency > 1 ? t->call->concurrency : 1;

    if (!t->id) return t->groups ? concurrency_new(t->groups, most, &t->self->groups) : MANTA_OK;
    int k = t->self->groups ? concurrency_find(t->self->groups, t->group, t->name) : t->group[0] ? -1 : 0;
    if (k < 0)
        return manta_fail(MANTA_EINVAL,
                          "%s is to run in the concurrency group %s, which its actor does not have", t->name,
                          t->group);
    if (t->self->groups) snprintf(t->group, sizeof t->group, "%s", concurrency_name(t->self->groups, k));
    return MANTA_OK;
}

const char *manta_task_group(const manta_task *t)
{
    REFUSE_NULL_OR(t, "");
    return t->group;
}

/* ---- handle and end ---- */

/* The actor that t is a call of, and its state; t NULL: that of this process. 0, NULL: there is none. */
static uint64_t find_here(const manta_task *t, self_of **self)
{
    uint64_t actor = t ? t->actor : !rt->is_local && rt->selves.n == 1 ? rt->selves.at[0].key : 0;
    self_of **known = actor ? map_u64_find(&rt->selves, actor) : NULL;

    *self = known ? *known : NULL;
    return known ? actor : 0;
}

static manta_status fail_nowhere(const manta_task *t, const char *what)
{
    return manta_fail(MANTA_EINVAL,
                      "%s: there is no actor here, expected a call of one or a thread of its process",
                      t ? t->name : what);
}

manta_status manta_actor_here(const manta_task *t, manta_actor *out)
{
    REFUSE_NULL(out);

    self_of *self;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    uint64_t actor = find_here(t, &self);
    if (actor) {
        object *handle = object_adopt(actor, false);
        handle->state = OBJECT_READY;
        handle->refs++;
        out->id = actor;
    }
    mutex_unlock(&rt->lock);
    return actor ? MANTA_OK : fail_nowhere(t, __func__);
}

/* Says that the actor is over, to those who call it from now on; calls that run go on. */
static void leave_actor(uint64_t actor, self_of *self, bool constructs)
{
    self->left = failure_make(MANTA_FAILURE_ACTOR, MANTA_EDIED, NULL, (int)getpid(),
                              "the actor has ended: it has called manta_exit_actor()");
    if (rt->is_local) {
        actor_died(actor, failure_ref(self->left));
        self->ended = !constructs; /* of one that never was, calls are to hear that it has left */
        return;
    }
    proto_begin(&rt->out, PROTO_ACTOR_KILL);
    wire_put_u64(&rt->out, actor);
    wire_put_u32(&rt->out, PROTO_KILL_EXIT);
    rt_tell();
}

manta_status manta_exit_actor(manta_task *t)
{
    self_of *self;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    uint64_t actor = find_here(t, &self);
    if (actor && !self->left) leave_actor(actor, self, t && !t->id);
    if (actor && t) t->call->leaves = t->call->is_last = true;
    mutex_unlock(&rt->lock);
    return actor ? MANTA_OK : fail_nowhere(t, __func__);
}
