/* daemon_limits.c - watches the memory of workers, so that one that takes more
 * than it may, or than the machine has, is ended with a word on why, before the
 * system ends whatever it likes.
 *
 * A worker's memory is what is its own (resident and not shared): objects in
 * shared memory are the store's. It is looked at every LOOK_MS as long as some
 * worker has something to do; an idle node looks at nothing. */
#include "task/daemon.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/proc.h"
#include "task/limits.h"

#define LOOK_MS 50

static bool is_busy(const node *d, const client *c)
{
    sched_shape held;

    return c->is_worker && sched_held(d->sched, c->id, &held);
}

static uint64_t limit_of(const node *d, const client *c)
{
    sched_shape held;

    if (!sched_held(d->sched, c->id, &held)) return 0;
    if (held.amount[2] > 0 && !d->config.memory_is_free) return (uint64_t)(held.amount[2] / SCHED_UNIT);
    return d->config.worker_memory;
}

static void end_client(node *d, client *c, const limits_process *p, limits_why why, uint64_t available)
{
    c->memory = (proto_memory){
        .why = (uint32_t)why, .used = p->memory, .limit = why == LIMITS_OWN ? p->limit : available};
    log_warn("a worker is ended for its memory", LOG_INT("pid", c->pid), LOG_INT("bytes", (int64_t)p->memory),
             LOG_INT(why == LIMITS_OWN ? "limit" : "available", (int64_t)c->memory.limit));
    daemon_kill(d, c->id);
}

int daemon_limits_tick(node *d)
{
    bool any = false;

    for (size_t i = 0; i < d->clients.n && !any; i++) any = is_busy(d, d->clients.at[i].value);
    if (!any) return -1;
    int64_t now = clock_now_ns();
    if (now < d->look_ns) return (int)((d->look_ns - now) / 1000000) + 1;
    d->look_ns = now + (int64_t)LOOK_MS * 1000000;
    uint64_t available = proc_available_memory();
    bool is_short = available < d->config.memory_floor;
    VEC(limits_process) all = {0};
    VEC(client *) who = {0};
    for (size_t i = 0; i < d->clients.n; i++) {
        client *c = d->clients.at[i].value;
        uint64_t limit = limit_of(d, c);
        if (!c->is_worker || (!limit && !is_short)) continue; /* nothing depends on it */
        vec_push(&all, ((limits_process){.memory = proc_private_memory(c->pid),
                                         .limit = limit,
                                         .busy = is_busy(d, c),
                                         .going = c->dying || c->memory.why}));
        vec_push(&who, c);
    }
    for (;;) {
        limits_why why;
        int at = limits_pick(all.at, (int)all.n, available, d->config.memory_floor, &why);
        if (at < 0) break;
        end_client(d, who.at[at], &all.at[at], why, available);
        all.at[at].going = true;
    }
    vec_release(&all);
    vec_release(&who);
    return LOOK_MS;
}
