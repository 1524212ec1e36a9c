/* bare_node.h - a daemon's node without processes and sockets, for tests that call the
 * daemon's functions themselves: its zygote is nobody, so that nothing can be forked.
 *
 * It has 2 processors, room for 1 MiB of objects, which is never spilled, and one program,
 * BARE_JOB. */
#ifndef TESTS_UNIT_TASK_BARE_NODE_H
#define TESTS_UNIT_TASK_BARE_NODE_H

#include <stdlib.h>

#include "base/mem.h"
#include "task/daemon.h"

enum { BARE_JOB = 1 };

static inline node *bare_node_new(void)
{
    node *d = mem_new(sizeof *d);
    job *j = mem_new(sizeof *j);

    d->config.store_limit = 1 << 20;
    d->config.total.amount[0] = 2 * SCHED_UNIT;
    d->socket_fd = d->self_pidfd = d->keeper_pidfd = -1;
    d->in = mem_new(SOCKET_MAX_MESSAGE);
    d->sched = sched_new(d->config.total, 1);
    d->registry = registry_new();
    d->refs = refs_new();
    d->gifts = gifts_new();
    d->objects = directory_new();
    if (loop_new(&d->loop) || daemon_memory_init(d)) abort();
    *j = (job){.id = BARE_JOB, .supervisor_fd = -1};
    for (int k = 0; k < FORKERS; k++) j->forkers[k].fd = j->forkers[k].pidfd = -1;
    *map_u64_put(&d->jobs, BARE_JOB) = j;
    daemon_registry(d, (registry_event){.kind = REGISTRY_JOB_NEW, .job = BARE_JOB, .name = ""});
    return d;
}

#endif
