/* hooks.c - see hooks.h. */
#include "task/hooks.h"

#include <stddef.h>

#include "base/status.h"

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
