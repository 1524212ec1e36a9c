/* sched_starts.c - see sched_starts.h. */
#include "task/sched_starts.h"

static uint64_t starts_key(uint32_t job, uint64_t environment)
{
    return environment << 32 | job;
}

void starts_release(starts_table *t)
{
    map_u64_release(&t->at);
}

starts *starts_find(const starts_table *t, uint32_t job, uint64_t environment)
{
    return map_u64_find(&t->at, starts_key(job, environment));
}

starts *starts_of(starts_table *t, uint32_t job, uint64_t environment)
{
    starts *j = starts_find(t, job, environment);

    if (!j) {
        j = map_u64_put(&t->at, starts_key(job, environment));
        *j = (starts){.job = job, .environment = environment};
    }
    return j;
}

bool starts_is_full(const starts_table *t, uint32_t job, uint64_t environment)
{
    const starts *j = starts_find(t, job, environment);

    return j && j->full && j->starting == 0;
}

bool starts_is_stuck(const starts_table *t, const crew *c, uint32_t job, uint64_t environment,
                     uint64_t itself)
{
    const starts *j = starts_find(t, job, environment);

    return j && j->capped && j->starting == 0 && !crew_goes_on(c, job, itself);
}

void starts_plan_anew(starts_table *t)
{
    for (size_t i = 0; i < t->at.n; i++) t->at.at[i].value.missing = t->at.at[i].value.missing_actors = 0;
}

/* An idle worker of another environment leaves, unless one does already: no more can be started, and
 * nobody else will have it soon. */
static void make_room(const starts *j, crew *c, sched_actions *out)
{
    uint32_t id = crew_makes_room(c, j->job) ? 0 : crew_find_idle_elsewhere(c, j->job, j->environment);
    crew_worker *w = id ? crew_find(c, id) : NULL;

    if (!w) return;
    w->state = CREW_LEAVING;
    vec_push(out, ((sched_action){.kind = SCHED_DO_STOP, .worker = id}));
}

/* How many workers of the job are to be on their way: those that are missing, within what it may
 * have. */
static int64_t starts_allowed(const starts_table *t, const crew *c, starts *j, sched_actions *out)
{
    int64_t calls = j->missing - j->missing_actors, room = t->most - crew_for_calls(c, j->job);

    for (size_t i = 0; i < t->at.n; i++) /* those of its other environments */
        if (t->at.at[i].value.job == j->job && &t->at.at[i].value != j) room -= t->at.at[i].value.starting;
    if (t->most == 0 || calls <= room) {
        j->capped = false;
        return j->missing;
    }
    if (!j->capped && room <= 0) {
        j->capped = true;
        if (!crew_has_others(c, j->job, j->environment))
            vec_push(out, ((sched_action){.kind = SCHED_DO_CAP, .job = j->job}));
    }
    return j->missing_actors + (room > 0 ? room : 0);
}

void starts_begin(starts_table *t, crew *c, sched_actions *out)
{
    for (size_t i = 0; i < t->at.n; i++) {
        starts *j = &t->at.at[i].value;
        int64_t wanted = starts_allowed(t, c, j, out);
        for (; !j->full && j->starting < wanted; j->starting++)
            vec_push(out,
                     ((sched_action){.kind = SCHED_DO_START, .job = j->job, .environment = j->environment}));
        if (j->missing > 0 && j->starting == 0 && ((j->full && j->scarce) || j->capped)) make_room(j, c, out);
    }
}

void starts_came(starts_table *t, uint32_t job, uint64_t environment)
{
    starts *j = starts_find(t, job, environment);

    if (j && j->starting > 0) j->starting--;
}

void starts_failed(starts_table *t, uint32_t job, uint64_t environment, bool scarce)
{
    starts *j = starts_of(t, job, environment);

    j->full = true;
    j->scarce = scarce;
}

void starts_allow(starts_table *t, uint32_t job)
{
    for (size_t i = 0; i < t->at.n; i++)
        if (t->at.at[i].value.job == job) t->at.at[i].value.full = false;
}

void starts_forget(starts_table *t, uint32_t job)
{
    for (size_t i = t->at.n; i-- > 0;)
        if (t->at.at[i].value.job == job) map_u64_remove(&t->at, t->at.at[i].key);
}
