/* deferred.c - calls that go on after their function has returned.
 *
 *     manta_task_defer()       the function returns        manta_task_finish(), any thread
 *     in_function, deferred ─────────▶ deferred ─────────────────▶ task_end(), answered, freed
 *              └── manta_task_finish() ─▶ finished ── the function returns ─▶ task_end()
 *
 * Of the function's thread and the one that finishes the call, the later ends it; the lock
 * decides. A deferred call stays in rt->running, so it can be cancelled, its actor does not end
 * before it, and its caller's memory is not freed. It has no thread: an actor takes its next
 * call as soon as the function has returned.
 *
 * Without other processes a call ends inside the one that makes it: the function's thread waits
 * there until another has finished it. */
#include "task/deferred.h"

#include <stdio.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "task/exec_task.h"
#include "task/nested.h"
#include "task/runtime.h"

manta_status manta_task_defer(manta_task *t)
{
    REFUSE_NULL(t);

    if (!t->actor || !t->id || t->is_part)
        return manta_fail(MANTA_EINVAL, "%s: the call cannot be deferred: it is %s, expected one of an actor",
                          t->name,
                          t->is_part  ? "a part of a map"
                          : !t->actor ? "a task"
                                      : "a constructor");
    mutex_lock(&rt->lock);
    t->is_deferred = true;
    mutex_unlock(&rt->lock);
    return MANTA_OK;
}

bool deferred_returns(manta_task *t)
{
    while (rt->is_local && !t->is_finished) {
        t->in_function = true;
        (void)cond_wait(&rt->finished, &rt->lock, CLOCK_NEVER);
        t->in_function = false;
    }
    return t->is_finished;
}

/* The sentence is that of the thread which finishes the call. */
static void keep_failure(manta_task *t, manta_status st)
{
    if (!st || (t->failure && t->failure->is.code == st)) return;
    failure_unref(t->failure);
    t->failure = failure_here(MANTA_FAILURE_TASK, st, t->name);
}

static void end_and_answer(manta_task *t)
{
    incoming *in = t->call;
    size_t pinned = rt->pinned.n;
    buf answer = {0};

    task_end(t, t->outcome, &answer);
    fflush(stdout);
    if (in->is_own)
        nested_finish(&answer, pinned);
    else
        incoming_answer(in, &answer);
    incoming_free(in);
    buf_release(&answer);
    rt_changed(); /* the process may wait for its last call */
}

void manta_task_finish(manta_task *t, manta_status status)
{
    REFUSE_NULL_AND_RETURN(t);

    if (!rt) return;
    mutex_lock(&rt->lock);
    if (t->is_deferred && !t->is_finished) {
        t->is_finished = true;
        t->outcome = status;
        keep_failure(t, status);
        if (t->in_function)
            cond_broadcast(&rt->finished);
        else
            end_and_answer(t);
    }
    mutex_unlock(&rt->lock);
}
