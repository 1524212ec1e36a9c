/* hooks.c - see hooks.h.
 *
 * Cancels are told by a thread of their own: the one that hears of them holds the runtime's lock and
 * has other things to hear, and a hook may have to wait, for a lock of a language's runtime, until the
 * very call that is cancelled comes to a place where it can be interrupted. */
#include "task/hooks.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/vec.h"
#include "os/thread.h"

manta_hooks hooks;

void manta_set_hooks(const manta_hooks *h)
{
    hooks = h ? *h : (manta_hooks){0};
}

void hooks_before_fork(void)
{
    if (hooks.before_fork) hooks.before_fork(hooks.user);
}

void hooks_after_fork(void)
{
    if (hooks.after_fork_parent) hooks.after_fork_parent(hooks.user);
}

manta_status hooks_in_worker(const char *environment)
{
    return hooks.after_fork_child ? hooks.after_fork_child(hooks.user, environment) : MANTA_OK;
}

bool hooks_interrupted(void)
{
    return hooks.interrupted && hooks.interrupted(hooks.user);
}

bool hooks_printed(int stream, const char *text, size_t n)
{
    return hooks.printed && hooks.printed(hooks.user, stream, text, n);
}

size_t hooks_stack(char *out, size_t size)
{
    return hooks.stack ? hooks.stack(hooks.user, out, size) : 0;
}

void hooks_end(void)
{
    if (hooks.end) hooks.end(hooks.user);
}

/* ---- cancels ---- */

static struct {
    bool is_open; /* there is a thread */
    mutex lock;
    cond more;
    VEC(uint64_t) tasks; /* lock: those that were not told yet */
} cancels;

static void tell_cancels(void *arg)
{
    (void)arg;
    mutex_lock(&cancels.lock);
    for (;;) {
        while (cancels.tasks.n == 0) (void)cond_wait(&cancels.more, &cancels.lock, CLOCK_NEVER);
        uint64_t task = cancels.tasks.at[0];
        vec_remove(&cancels.tasks, 0);
        mutex_unlock(&cancels.lock);
        hooks.cancelled(hooks.user, task);
        mutex_lock(&cancels.lock);
    }
}

/* The thread stays as long as the process. */
static bool open_cancels(void)
{
    thread_id id;

    mutex_init(&cancels.lock);
    cond_init(&cancels.more);
    if (!thread_start(&id, "manta-cancel", tell_cancels, NULL)) return true;
    log_error("a cancelled call is not told of it", LOG_STR("why", manta_error_text()));
    return false;
}

void hooks_tell_cancelled(uint64_t task)
{
    if (!hooks.cancelled) return;
    if (!cancels.is_open && !(cancels.is_open = open_cancels())) return;
    mutex_lock(&cancels.lock);
    vec_push(&cancels.tasks, task);
    mutex_unlock(&cancels.lock);
    cond_signal(&cancels.more);
}
