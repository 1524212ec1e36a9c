/* sched.c - see sched.h: events, which change what there is (sched_pools.h), who works (sched_crew.h), who
 * is on the way (sched_starts.h) and who waits (sched_line.h); after each of them the line is served. */
#include "task/sched.h"

#include <string.h>

#include "base/mem.h"
#include "task/sched_line.h"

struct sched {
    supply has;
    line line;
    int idle; /* workers of a job to keep ready */
};

sched *sched_new(sched_shape total, int idle)
{
    sched *s = mem_new(sizeof *s);

    pools_init(&s->has.pools, &total);
    s->idle = idle;
    return s;
}

void sched_cap(sched *s, int64_t n)
{
    s->has.starts.most = n;
}

void sched_free(sched *s)
{
    if (!s) return;
    pools_release(&s->has.pools);
    starts_release(&s->has.starts);
    crew_release(&s->has.crew);
    line_release(&s->line);
    mem_free(s);
}

bool sched_feasible(const sched_shape *total, const sched_shape *shape, int *missing)
{
    for (int i = 0; i < SCHED_RESOURCES; i++) {
        if (shape->amount[i] + (i == 0 ? shape->place : 0) > total->amount[i]) {
            *missing = i;
            return false;
        }
    }
    return true;
}

bool sched_gpus_fit(const sched_shape *total, const sched_shape *bundles, int n)
{
    sched_gpus left = gpus_of(total), out;

    for (int i = 0; i < n; i++) {
        if (!gpus_choose(&left, bundles[i].amount[SCHED_GPU], &out)) return false;
        gpus_subtract(&left, &out, 1);
    }
    return true;
}

/* ---- events ---- */

static void take_demand(sched *s, const sched_event *e, wants what)
{
    const request q = {
        .what = what, .client = e->client, .job = e->job, .shape = e->shape, .n = e->n, .demand = e->demand};

    if (e->shape.group && !pools_group(&s->has.pools, e->shape.group)) return; /* it is gone */
    /* A job without workers of the environment has none whose end would tell that there is room again. */
    if (line_take(&s->line, &q) && !crew_has(&s->has.crew, e->job, e->shape.environment))
        starts_of(&s->has.starts, e->job, e->shape.environment)->full = false;
}

static void group_new(sched *s, const sched_event *e)
{
    request q = {.what = WANTS_GROUP, .client = e->client, .n = 1};

    if (pools_group_add(&s->has.pools, e->client, e->bundles, e->n, &q.shape)) (void)line_take(&s->line, &q);
}

/* Kills the workers of which `holder` has a lease, or those that a group has lent to. */
static void kill_workers(const sched *s, uint64_t holder, uint64_t group, sched_actions *out)
{
    const crew *c = &s->has.crew;

    for (size_t i = 0; i < c->at.n; i++) {
        const crew_worker *w = &c->at.at[i].value;
        if (w->state == CREW_IDLE) continue;
        if (group ? w->shape.group == group : w->state == CREW_LEASED && w->holder == holder)
            vec_push(out, ((sched_action){.kind = SCHED_DO_KILL, .worker = (uint32_t)c->at.at[i].key}));
    }
}

static void group_remove(sched *s, uint64_t id, sched_actions *out)
{
    if (!pools_group_remove(&s->has.pools, id)) return;
    line_forget(&s->line, id, WANTS_GROUP);
    line_forget_group(&s->line, id);
    kill_workers(s, 0, id, out);
}

/* The workers of a client that is gone may be in the middle of a call that nobody awaits any more. */
static void client_gone(sched *s, uint64_t client, sched_actions *out)
{
    line_forget(&s->line, client, WANTS_LEASE);
    kill_workers(s, client, 0, out);
}

/* As many are started as were idle; those that are leased have their holders asked. */
static void renew_workers(sched *s, uint32_t job, sched_actions *out)
{
    starts *j = starts_of(&s->has.starts, job, 0);
    crew *c = &s->has.crew;

    for (size_t i = c->at.n; i-- > 0;) {
        const crew_worker *w = &c->at.at[i].value;
        bool is_idle = w->state == CREW_IDLE;
        if (w->job != job || w->environment || w->state == CREW_ACTOR || w->state == CREW_LEAVING) continue;
        crew_retire(c, (uint32_t)c->at.at[i].key, out);
        if (!is_idle) continue;
        j->starting++;
        vec_push(out, ((sched_action){.kind = SCHED_DO_START, .job = job}));
    }
}

static void lease_ended(sched *s, const sched_event *e, crew_worker *w, sched_actions *out)
{
    bool is_old = w->old;

    crew_free(&s->has.crew, w, &s->has.pools);
    if (is_old) crew_stop(&s->has.crew, e->worker, out);
    crew_ask_again(&s->has.crew);
    line_serve(&s->line, &s->has, out);
    crew_stop_surplus(&s->has.crew, e->worker, s->idle, out);
}

static void worker_gone(sched *s, uint32_t id, crew_worker *w)
{
    starts_allow(&s->has.starts, w->job);
    crew_ask_again(&s->has.crew);
    crew_free(&s->has.crew, w, &s->has.pools);
    map_u64_remove(&s->has.crew.at, id);
}

/* It takes no more calls. */
static void worker_retired(sched *s, uint32_t id, sched_actions *out)
{
    crew_retire(&s->has.crew, id, out);
    crew_worker *w = crew_find(&s->has.crew, id);
    if (w && w->state == CREW_LEASED) w->retired = true;
}

/* Its call waits, or goes on. */
static void worker_blocked(sched *s, crew_worker *w, bool waits)
{
    if (w->blocked == waits || (waits && w->state == CREW_IDLE)) return;
    w->blocked = waits;
    crew_take_cores(w, &s->has.pools, waits ? -1 : 1);
}

void sched_step(sched *s, const sched_event *e, sched_actions *out)
{
    crew_worker *w = crew_find(&s->has.crew, e->worker);
    starts_table *starting = &s->has.starts;

    switch (e->kind) {
    case SCHED_RENEW: renew_workers(s, e->job, out); break;
    case SCHED_DEMAND: take_demand(s, e, WANTS_LEASE); break;
    case SCHED_ACTOR: take_demand(s, e, WANTS_ACTOR); break;
    case SCHED_ACTOR_CANCEL: line_forget(&s->line, e->client, WANTS_ACTOR); break;
    case SCHED_GROUP: group_new(s, e); break;
    case SCHED_GROUP_REMOVE: group_remove(s, e->client, out); break;
    case SCHED_RETURN:
        if (!w || w->state != CREW_LEASED || w->holder != e->client) break;
        /* One whose group is no more is about to be killed. */
        if (w->shape.group && !pools_group(&s->has.pools, w->shape.group)) break;
        lease_ended(s, e, w, out);
        return;
    case SCHED_STARTING: starts_of(starting, e->job, e->environment)->starting += e->n > 0 ? e->n : 0; break;
    case SCHED_WORKER_UP:
        starts_came(starting, e->job, e->environment);
        crew_add(&s->has.crew, e->worker, e->job, e->environment, false);
        break;
    case SCHED_STAYS: crew_add(&s->has.crew, e->worker, e->job, e->environment, true); break;
    case SCHED_START_FAILED:
        starts_came(starting, e->job, e->environment);
        if (e->n > 0) starts_failed(starting, e->job, e->environment, e->n == SCHED_SCARCE);
        break;
    case SCHED_JOB_GONE:
        line_forget_job(&s->line, e->job);
        starts_forget(starting, e->job);
        break;
    case SCHED_WORKER_GONE:
        if (w) worker_gone(s, e->worker, w);
        break;
    case SCHED_CLIENT_GONE: client_gone(s, e->client, out); break;
    case SCHED_STARVED: line_refuse(&s->line, &s->has, e->job, out); break;
    case SCHED_RETIRE: worker_retired(s, e->worker, out); break;
    case SCHED_BLOCKED:
        if (w) worker_blocked(s, w, true);
        break;
    case SCHED_RUNNING:
        if (w) worker_blocked(s, w, false);
        break;
    }
    line_serve(&s->line, &s->has, out);
}

/* ---- questions ---- */

sched_shape sched_total(const sched *s)
{
    return s->has.pools.total;
}

sched_shape sched_left(const sched *s)
{
    return s->has.pools.node.left;
}

bool sched_bundle_left(const sched *s, uint64_t id, int i, sched_shape *out)
{
    const sched_group *g = pools_group(&s->has.pools, id);

    if (!g || !g->placed || i < 0 || i >= g->n) return false;
    *out = g->bundles[i].left;
    return true;
}

bool sched_held(const sched *s, uint32_t id, sched_shape *out)
{
    const crew_worker *w = crew_find(&s->has.crew, id);

    if (!w || w->state == CREW_IDLE) return false;
    *out = w->shape;
    out->bundle = w->shape.group ? w->bundle : 0;
    return true;
}

uint32_t sched_devices(const sched *s, uint32_t id)
{
    const crew_worker *w = crew_find(&s->has.crew, id);
    uint32_t bits = 0;

    for (int i = 0; w && i < SCHED_DEVICES; i++)
        if (w->gpus.at[i] > 0) bits |= 1u << i;
    return bits;
}

int sched_leases(const sched *s)
{
    int n = 0;

    for (size_t i = 0; i < s->has.crew.at.n; i++) n += s->has.crew.at.at[i].value.state == CREW_LEASED;
    return n;
}

int sched_workers(const sched *s)
{
    return (int)s->has.crew.at.n;
}

int64_t sched_waiting(const sched *s)
{
    return line_waiting(&s->line);
}

bool sched_is_starved(const sched *s, uint32_t job)
{
    return line_is_starved(&s->line, &s->has, job);
}

uint64_t sched_holder(const sched *s, uint32_t id)
{
    const crew_worker *w = crew_find(&s->has.crew, id);

    return w && w->state == CREW_LEASED ? w->holder : 0;
}
