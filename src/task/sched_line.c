/* sched_line.c - see sched_line.h. */
#include "task/sched_line.h"

#include <string.h>

void line_release(line *l)
{
    vec_release(&l->at);
}

bool line_take(line *l, const request *q)
{
    for (size_t i = 0; i < l->at.n; i++) {
        request *old = &l->at.at[i];
        if (old->what != q->what || old->client != q->client ||
            memcmp(&old->shape, &q->shape, sizeof q->shape))
            continue;
        old->demand = q->demand;
        if (q->n > 0)
            old->n = q->n;
        else
            vec_remove(&l->at, i);
        return false;
    }
    if (q->n > 0) vec_push(&l->at, *q);
    return q->n > 0;
}

void line_forget(line *l, uint64_t client, wants what)
{
    for (size_t i = 0; i < l->at.n;) {
        if (l->at.at[i].client == client && l->at.at[i].what == what)
            vec_remove(&l->at, i);
        else
            i++;
    }
}

void line_forget_group(line *l, uint64_t group)
{
    for (size_t i = 0; i < l->at.n;) {
        if (l->at.at[i].shape.group == group)
            vec_remove(&l->at, i);
        else
            i++;
    }
}

void line_forget_job(line *l, uint32_t job)
{
    for (size_t i = 0; i < l->at.n;) {
        if (l->at.at[i].job == job && l->at.at[i].what != WANTS_GROUP)
            vec_remove(&l->at, i);
        else
            i++;
    }
}

int64_t line_waiting(const line *l)
{
    int64_t n = 0;

    for (size_t i = 0; i < l->at.n; i++) n += l->at.at[i].n;
    return n;
}

/* A worker that has ended its call may still want others for calls that it has made. It cannot be
 * its own, and would ask for ever if it were given itself. */
static uint64_t asking_worker(const request *q)
{
    return q->what == WANTS_LEASE ? q->client : 0;
}

/* ---- who is asked, and for whom what is kept ---- */

/* What is kept for a request that has waited long: all that it needs, so that it gets it
 * together. But where the part that is not there is held by an actor, or by a call that waits,
 * the rest is what that one's own calls may need to come to an end: then it is left to them.
 * So it is where others before it in the line have that part `kept`. */
static uint32_t resources_to_keep(const supply *s, const request *q, uint32_t kept)
{
    uint32_t needs = shape_needs(&q->shape), lacking = pools_lacking(&s->pools, &q->shape) | (kept & needs);

    if (kept & needs) return lacking;
    for (size_t i = 0; i < s->crew.at.n; i++) {
        const crew_worker *w = &s->crew.at.at[i].value;
        uint32_t held = w->state == CREW_IDLE ? 0 : shape_takes(&w->shape);
        if (w->blocked) held &= ~1u; /* cores, which it has given back */
        bool may_wait = w->state == CREW_ACTOR || w->blocked;
        if (may_wait && w->shape.group == q->shape.group && (held & lacking)) return lacking;
    }
    return needs;
}

/* Somebody waits for what leases hold, or for a worker where no more can be started: every
 * holder is asked once for each.
 * Which of them will be free first nobody knows, so all are asked. What leases hold is of use to
 * requests of the same pool, the workers themselves (`any_pool`) to those of every one. */
static void reclaim_leases(supply *s, const request *q, bool any_pool, sched_actions *out)
{
    for (size_t i = 0; i < s->crew.at.n; i++) {
        crew_worker *w = &s->crew.at.at[i].value;
        if (w->state != CREW_LEASED || (!any_pool && w->shape.group != q->shape.group)) continue;
        /* A client that only wants more of the same gets what others return. */
        if (q->what == WANTS_LEASE && w->holder == q->client &&
            !memcmp(&w->shape, &q->shape, sizeof q->shape))
            continue;
        crew_reclaim(w, (uint32_t)s->crew.at.at[i].key, out);
    }
}

/* ---- those that are served ---- */

static void grant_worker(supply *s, const request *q, sched_pool *from, int bundle, uint32_t id,
                         sched_actions *out)
{
    bool actor = q->what == WANTS_ACTOR;
    crew_worker *w = crew_find(&s->crew, id);

    *w = (crew_worker){.state = actor ? CREW_ACTOR : CREW_LEASED,
                       .job = w->job,
                       .environment = w->environment,
                       .old = w->old,
                       .holder = q->client,
                       .shape = q->shape,
                       .bundle = bundle};
    pools_take(from, &q->shape, &w->gpus);
    vec_push(out, ((sched_action){.kind = actor ? SCHED_DO_ACTOR : SCHED_DO_GRANT,
                                  .client = q->client,
                                  .worker = id,
                                  .demand = q->demand,
                                  .shape = q->shape}));
}

static void place_group(supply *s, const request *q, sched_actions *out)
{
    pools_group_place(&s->pools, q->client, &q->shape);
    vec_push(out, ((sched_action){.kind = SCHED_DO_GROUP, .client = q->client}));
}

/* Request i was served once; those before it, which were not and need some of the same,
 * remember. */
static void request_served(line *l, size_t i)
{
    request rest = l->at.at[i];
    uint32_t taken = shape_takes(&rest.shape);

    for (size_t k = 0; k < i; k++) {
        request *q = &l->at.at[k];
        q->passed += q->shape.group == rest.shape.group && (shape_needs(&q->shape) & taken);
    }
    vec_remove(&l->at, i);
    if (--rest.n > 0) {
        rest.passed = 0;
        vec_push(&l->at, rest);
    }
}

/* ---- those that are refused ---- */

/* Who lacks only a worker, of a job that can have no more, is told so: an actor, which
 * needs one of its own, and calls, unless a worker may come to them from others. */
static void refuse_hopeless(line *l, const supply *s, sched_actions *out)
{
    for (size_t i = 0; i < l->at.n;) {
        const request q = l->at.at[i];
        bool hopeless = q.lacks_worker && starts_is_full(&s->starts, q.job, q.shape.environment) &&
                        !crew_makes_room(&s->crew, q.job);
        if (hopeless && q.what == WANTS_LEASE)
            hopeless = !crew_runs_calls(&s->crew, q.job, q.shape.environment, asking_worker(&q));
        if (!hopeless) {
            i++;
            continue;
        }
        vec_push(out, ((sched_action){.kind = q.what == WANTS_ACTOR ? SCHED_DO_REFUSE_ACTOR : SCHED_DO_REFUSE,
                                      .client = q.client,
                                      .job = q.job,
                                      .shape = q.shape}));
        vec_remove(&l->at, i);
    }
}

/* Whether calls lack only a worker, of a job that may (`*capped`) or can have no more, and all that it
 * has for calls wait. */
static bool is_starved(const supply *s, const request *q, bool *capped)
{
    if (q->what != WANTS_LEASE || !q->lacks_worker) return false;
    uint64_t itself = asking_worker(q);
    *capped = starts_is_stuck(&s->starts, &s->crew, q->job, q->shape.environment, itself);
    if (*capped) return true;
    return starts_is_full(&s->starts, q->job, q->shape.environment) &&
           !crew_goes_on(&s->crew, q->job, itself) && !crew_makes_room(&s->crew, q->job);
}

static void refuse_one(line *l, size_t i, bool capped, sched_actions *out)
{
    const request q = l->at.at[i];

    vec_push(out, ((sched_action){.kind = capped ? SCHED_DO_REFUSE_CAPPED : SCHED_DO_REFUSE,
                                  .client = q.client,
                                  .job = q.job,
                                  .shape = q.shape}));
    vec_remove(&l->at, i);
}

/* Calls of a worker that waits, of a job that may or can have no more and whose workers all wait, are
 * told so: they could be what all of them wait for. */
static void refuse_starved(line *l, const supply *s, sched_actions *out)
{
    bool capped;

    for (size_t i = 0; i < l->at.n;) {
        const request *q = &l->at.at[i];
        const crew_worker *w = q->what == WANTS_LEASE ? crew_find(&s->crew, (uint32_t)q->client) : NULL;
        if (w && w->blocked && is_starved(s, q, &capped))
            refuse_one(l, i, capped, out);
        else
            i++;
    }
}

bool line_is_starved(const line *l, const supply *s, uint32_t job)
{
    bool capped;

    for (size_t i = 0; i < l->at.n; i++)
        if (l->at.at[i].job == job && is_starved(s, &l->at.at[i], &capped)) return true;
    return false;
}

void line_refuse(line *l, const supply *s, uint32_t job, sched_actions *out)
{
    bool capped;

    for (size_t i = 0; i < l->at.n;) {
        if (l->at.at[i].job == job && is_starved(s, &l->at.at[i], &capped))
            refuse_one(l, i, capped, out);
        else
            i++;
    }
}

/* Who lacks only a worker, of a job that has as many as it may, could have one that a lease holds
 * and nobody uses. */
static void reclaim_for_capped(const line *l, supply *s, sched_actions *out)
{
    for (size_t i = 0; i < l->at.n; i++) {
        const request *q = &l->at.at[i];
        const starts *j = q->lacks_worker ? starts_find(&s->starts, q->job, q->shape.environment) : NULL;
        if (j && j->capped) reclaim_leases(s, q, true, out);
    }
}

/* ---- a pass ---- */

static void plan_anew(supply *s)
{
    starts_plan_anew(&s->starts);
    pools_plan_anew(&s->pools);
}

/* Counts the workers that a request lacks, which lacks nothing else; `missing` are those of the pass.
 * Where none can be started, what it needs is not set aside: nobody comes for it, and who stands behind
 * it may lack nothing but a worker, too, and is to be told so. */
static void count_missing(supply *s, request *q, int64_t *missing, sched_actions *out)
{
    bool is_full = starts_is_full(&s->starts, q->job, q->shape.environment);
    int64_t most = is_full ? 1 : q->n;
    sched_pool *from;
    int bundle;

    for (int64_t n = 0; n < most && (is_full || *missing < LINE_MOST_STARTING); n++) {
        if (!(from = pools_find(&s->pools, &q->shape, 0, &bundle))) break;
        *missing += !is_full;
        starts *j = starts_of(&s->starts, q->job, q->shape.environment);
        j->missing++;
        j->missing_actors += q->what == WANTS_ACTOR;
        if (!is_full) pools_plan_one(from, &q->shape);
        q->lacks_worker = true;
    }
    if (q->lacks_worker && is_full) reclaim_leases(s, q, true, out);
}

/* Serves request i once, if all that it needs is there. Otherwise its holders are asked, or the workers
 * that it lacks are counted. */
static bool serve_one(line *l, supply *s, size_t i, int64_t *missing, sched_actions *out)
{
    request *q = &l->at.at[i];
    uint32_t *kept = pools_kept(&s->pools, &q->shape);
    uint64_t group = q->what == WANTS_GROUP ? q->client : 0;
    int bundle;

    q->lacks_worker = false;
    sched_pool *from =
        *kept & shape_needs(&q->shape) ? NULL : pools_find(&s->pools, &q->shape, group, &bundle);
    uint32_t id = from ? crew_find_idle(&s->crew, q->job, q->shape.environment, asking_worker(q)) : 0;
    if (!from) {
        reclaim_leases(s, q, false, out);
        if (q->passed >= LINE_PATIENCE) *kept |= resources_to_keep(s, q, *kept);
        return false;
    }
    if (!group && !id) {
        count_missing(s, q, missing, out);
        return false;
    }
    if (group)
        place_group(s, q, out);
    else
        grant_worker(s, q, from, bundle, id, out);
    request_served(l, i);
    return true;
}

void line_serve(line *l, supply *s, sched_actions *out)
{
    int64_t missing = 0;

    plan_anew(s);
    for (size_t i = 0; i < l->at.n;) {
        if (!serve_one(l, s, i, &missing, out)) {
            i++;
            continue;
        }
        plan_anew(s);
        missing = 0;
        i = 0;
    }
    starts_begin(&s->starts, &s->crew, out);
    reclaim_for_capped(l, s, out);
    refuse_hopeless(l, s, out);
    refuse_starved(l, s, out);
}
