/* daemon_registry.c - what the registry decides, done.
 *
 *     message, death, scheduler ──▶ event ──▶ registry_step() ──▶ actions
 *                                     ▲                             │ in their order
 *                                     └── d->later ◀── what an action leads to
 *
 * Actions of one event are all done before the next event. What they lead to (the
 * scheduler finds a worker at once, a channel cannot be made) comes as events that wait in
 * d->later: the registry's state, to which actions point, does not change under them, and
 * the order of events is one order, which could be written down and replayed. */
#include <assert.h>

#include "task/daemon.h"

static void registry_do(node *d, const registry_event *e, const registry_action *a)
{
    if (a->kind == REGISTRY_DO_REFS) {
        daemon_refs(d, a->refs, a->id, a->inner, a->client);
        return;
    }
    bool done = daemon_actors_action(d, e, a) || daemon_groups_action(d, a) || daemon_jobs_action(d, a);
    assert(done); /* every action is somebody's */
}

static void registry_apply(node *d, const registry_event *e)
{
    registry_actions out = {0};

    registry_step(d->registry, e, &out);
    for (size_t i = 0; i < out.n; i++) registry_do(d, e, &out.at[i]);
    failure_unref(e->failure);
    vec_release(&out);
}

void daemon_registry(node *d, registry_event e)
{
    if (d->is_stepping) {
        assert(!e.name && !e.call && !e.inner && !e.bundles);
        vec_push(&d->later, e);
        return;
    }
    d->is_stepping = true;
    registry_apply(d, &e);
    while (d->later.n > 0) {
        registry_event next = d->later.at[0];
        vec_remove(&d->later, 0);
        registry_apply(d, &next);
    }
    d->is_stepping = false;
}
