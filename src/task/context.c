/* context.c - where a call runs and what it holds, and what the node has. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "task/failure.h"
#include "task/incoming.h"
#include "task/needs.h"
#include "task/proto.h"
#include "task/runtime.h"

/* What the daemon knows of this process. */
static manta_status context_ask(manta_context *out)
{
    reply r;

    if (rt->is_dead) return failure_raise(rt->death);
    uint64_t request = rt_request_begin(PROTO_CONTEXT);
    manta_status st = rt_request(request, &r);
    if (!st) {
        sched_shape held = {0};
        wire w = wire_of(r.bytes.at, r.bytes.n);
        const void *p = wire_take(&w, sizeof held);
        if (p) memcpy(&held, p, sizeof held);
        out->actor.id = wire_u64(&w);
        char full[PROTO_NAME];
        wire_text(&w, full, sizeof full);
        const char *name = strchr(full, '/');
        snprintf(out->actor_name, sizeof out->actor_name, "%.63s", name ? name + 1 : "");
        out->was_restarted = wire_u32(&w) > 0;
        uint32_t devices = wire_u32(&w);
        for (int i = 0; i < SCHED_DEVICES; i++)
            if (devices & 1u << i) out->gpu_ids[out->n_gpu_ids++] = i;
        st = wire_end(&w, "context");
        amounts_text(&held, out->resources, sizeof out->resources);
        out->cpus = (double)held.amount[0] / SCHED_UNIT;
        out->gpus = (double)held.amount[1] / SCHED_UNIT;
        out->memory = (uint64_t)(held.amount[2] / SCHED_UNIT);
        out->placement_group.id = held.group;
        out->bundle = held.group ? (int)held.bundle + 1 : 0;
    }
    buf_release(&r.bytes);
    return st;
}

manta_status manta_context_get(const manta_task *t, manta_context *out)
{
    REFUSE_NULL(out);

    if (!rt) return rt_none();
    *out = (manta_context){.pid = (int)getpid()};
    mutex_lock(&rt->lock);
    out->node = rt->node;
    out->worker = rt->client;
    out->is_worker = rt->is_worker;
    out->in_process = rt->is_local;
    manta_status st = rt->is_local ? MANTA_OK : context_ask(out);
    if (t) exec_context(t, out);
    mutex_unlock(&rt->lock);
    return st;
}
