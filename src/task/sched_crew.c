/* sched_crew.c - see sched_crew.h. */
#include "task/sched_crew.h"

void crew_release(crew *c)
{
    map_u64_release(&c->at);
}

crew_worker *crew_find(const crew *c, uint64_t id)
{
    return map_u64_find(&c->at, id);
}

void crew_add(crew *c, uint32_t id, uint32_t job, uint64_t environment, bool stays)
{
    crew_worker *w = crew_find(c, id);

    if (w && w->state != CREW_LEAVING) return;
    if (!w) w = map_u64_put(&c->at, id);
    *w = (crew_worker){
        .state = CREW_IDLE, .job = job, .environment = environment, .idle_since = ++c->idled, .stays = stays};
}

void crew_take_cores(const crew_worker *w, sched_pools *p, int64_t sign)
{
    pools_lender(p, &w->shape, w->bundle)->left.amount[0] -= sign * w->shape.amount[0];
}

void crew_free(crew *c, crew_worker *w, sched_pools *p)
{
    if (w->state == CREW_IDLE) return;
    if (w->blocked) crew_take_cores(w, p, 1);
    pools_give(pools_lender(p, &w->shape, w->bundle), &w->shape, &w->gpus);
    *w = (crew_worker){
        .state = CREW_IDLE, .job = w->job, .environment = w->environment, .idle_since = ++c->idled};
}

/* ---- who there is ---- */

static bool is_of(const crew_worker *w, uint32_t job, uint64_t environment)
{
    return w->job == job && w->environment == environment;
}

uint32_t crew_find_idle(const crew *c, uint32_t job, uint64_t environment, uint64_t itself)
{
    for (size_t i = 0; i < c->at.n; i++) {
        const crew_worker *w = &c->at.at[i].value;
        if (w->state == CREW_IDLE && is_of(w, job, environment) && c->at.at[i].key != itself)
            return (uint32_t)c->at.at[i].key;
    }
    return 0;
}

bool crew_has(const crew *c, uint32_t job, uint64_t environment)
{
    for (size_t i = 0; i < c->at.n; i++)
        if (is_of(&c->at.at[i].value, job, environment)) return true;
    return false;
}

bool crew_runs_calls(const crew *c, uint32_t job, uint64_t environment, uint64_t itself)
{
    for (size_t i = 0; i < c->at.n; i++) {
        const crew_worker *w = &c->at.at[i].value;
        if (is_of(w, job, environment) && w->state != CREW_ACTOR && c->at.at[i].key != itself) return true;
    }
    return false;
}

bool crew_goes_on(const crew *c, uint32_t job, uint64_t itself)
{
    for (size_t i = 0; i < c->at.n; i++) {
        const crew_worker *w = &c->at.at[i].value;
        if (w->state == CREW_IDLE && c->at.at[i].key == itself) continue;
        if (w->job == job && w->state != CREW_ACTOR && (!w->blocked || w->retired)) return true;
    }
    return false;
}

int64_t crew_for_calls(const crew *c, uint32_t job)
{
    int64_t n = 0;

    for (size_t i = 0; i < c->at.n; i++)
        n += c->at.at[i].value.job == job && c->at.at[i].value.state != CREW_ACTOR;
    return n;
}

bool crew_makes_room(const crew *c, uint32_t job)
{
    for (size_t i = 0; i < c->at.n; i++)
        if (c->at.at[i].value.job == job && c->at.at[i].value.state == CREW_LEAVING) return true;
    return false;
}

uint32_t crew_find_idle_elsewhere(const crew *c, uint32_t job, uint64_t environment)
{
    const crew_worker *oldest = NULL;
    uint32_t id = 0;

    for (size_t i = 0; i < c->at.n; i++) {
        const crew_worker *w = &c->at.at[i].value;
        if (w->state != CREW_IDLE || w->job != job || w->environment == environment || w->stays) continue;
        if (oldest && oldest->idle_since < w->idle_since) continue;
        oldest = w;
        id = (uint32_t)c->at.at[i].key;
    }
    return id;
}

bool crew_has_others(const crew *c, uint32_t job, uint64_t environment)
{
    for (size_t i = 0; i < c->at.n; i++) {
        const crew_worker *w = &c->at.at[i].value;
        if (w->job == job && w->environment != environment && w->state != CREW_ACTOR && !w->blocked)
            return true;
    }
    return false;
}

/* ---- who leaves ---- */

void crew_reclaim(crew_worker *w, uint32_t id, sched_actions *out)
{
    if (!w->asked)
        vec_push(out, ((sched_action){.kind = SCHED_DO_RECLAIM, .client = w->holder, .worker = id}));
    w->asked = true;
}

void crew_stop(crew *c, uint32_t id, sched_actions *out)
{
    vec_push(out, ((sched_action){.kind = SCHED_DO_STOP, .worker = id}));
    map_u64_remove(&c->at, id);
}

void crew_retire(crew *c, uint32_t id, sched_actions *out)
{
    crew_worker *w = crew_find(c, id);

    if (!w) return;
    if (w->state == CREW_IDLE) {
        crew_stop(c, id, out);
    } else if (w->state == CREW_LEASED) {
        w->old = true;
        crew_reclaim(w, id, out);
    }
}

/* Whether a worker is one of those of which only some are kept idle: of its job, and plain as it is,
 * or not. */
static bool is_alike(const crew_worker *w, const crew_worker *other)
{
    return w->state == CREW_IDLE && w->job == other->job && !w->environment == !other->environment;
}

void crew_stop_surplus(crew *c, uint32_t id, int most, sched_actions *out)
{
    const crew_worker *w = crew_find(c, id), *oldest = w;
    int n = 0;

    if (!w || w->state != CREW_IDLE) return;
    for (size_t i = 0; i < c->at.n; i++) {
        const crew_worker *x = &c->at.at[i].value;
        if (!is_alike(x, w)) continue;
        n++;
        if (!w->environment || x->idle_since > oldest->idle_since) continue;
        oldest = x;
        id = (uint32_t)c->at.at[i].key;
    }
    if (n > most) crew_stop(c, id, out);
}

void crew_ask_again(crew *c)
{
    for (size_t i = 0; i < c->at.n; i++) c->at.at[i].value.stays = false;
}
