/* sched.c - see sched.h. Requests wait in one line. A request that fits is
 * served and goes to the end when it wants more; one that does not fit lets
 * others pass, but not for ever: after PATIENCE of them that took something of what
 * it needs, all it needs is kept for it, so that the large are not starved by the
 * small. Who needs nothing of that passes it as before, and always will: an actor
 * without cores takes nothing from a call that waits for one, and that call may be
 * waiting for the actor. And whoever waits for a lease has its holders asked, whoever
 * comes before it in the line: the first may be a holder itself, who wants more of
 * what it has and gives nothing back unless it is asked.
 *
 * What can be taken from is a pool: the node's, and one for each bundle of a
 * group that has its place. Requests of one pool do not wait for those of
 * another. */
#include "task/sched.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"

#define PATIENCE      32
#define MOST_STARTING 256 /* workers on their way at once: calls that ask for no core have no other bound */

typedef enum state { IDLE, LEASED, ACTOR, LEAVING } state; /* LEAVING: it makes room for another */

/* How much of each gpu. */
typedef struct devices {
    int64_t at[SCHED_DEVICES];
} devices;

typedef struct worker {
    state state;
    uint32_t job;
    uint64_t environment;
    uint64_t idle_since; /* a number that grows */
    uint64_t holder; /* client or actor */
    sched_shape shape; /* as it was asked for */
    int bundle; /* that it takes from */
    devices gpus;
    bool blocked;
    bool asked; /* its holder knows that others wait for it */
    bool old; /* to be stopped when it is idle */
    bool stays; /* idle: it was to leave and has to stay, as far as is known */
} worker;

typedef struct pool {
    sched_shape left;
    sched_shape plan; /* what would be left had those before in the line got a worker */
    devices gpus, plan_gpus; /* the same of each gpu */
} pool;

typedef struct group {
    bool placed;
    uint32_t kept; /* in this pass: resources (bits) that are for one that has waited long */
    int n;
    sched_shape *size;
    pool *bundles;
} group;

typedef enum wants { WANTS_LEASE, WANTS_ACTOR, WANTS_GROUP } wants;

typedef struct request {
    wants what;
    uint64_t client; /* or actor, or group */
    uint32_t job;
    sched_shape shape; /* of a group: all its bundles together */
    int64_t n;
    uint64_t demand;
    int passed; /* how many went ahead of it and took something of what it needs */
    bool lacks_worker; /* in this pass: and nothing else */
} request;

typedef struct starts { /* workers of a job and environment: on their way, and wanted by those who wait */
    uint32_t job;
    uint64_t environment;
    int64_t starting, missing, missing_actors; /* the latter are among the former */
    bool full; /* no more can be started, */
    bool scarce; /* because something is used up, of which a worker that leaves would give some back */
    bool capped; /* there are as many as there may be, and more are wanted */
} starts;

struct sched {
    sched_shape total;
    pool node;
    uint32_t kept; /* as in a group */
    int idle;
    int64_t most; /* workers of a job for calls; 0: any number */
    uint64_t idled; /* workers that became idle */
    MAP_U64(starts) starts; /* by starts_key() */
    MAP_U64(worker) workers;
    MAP_U64(group *) groups;
    VEC(request) line;
};

static devices devices_of(const sched_shape *total)
{
    devices all = {0};

    for (int i = 0; i < SCHED_DEVICES && (int64_t)i * SCHED_UNIT < total->amount[SCHED_GPU]; i++)
        all.at[i] = SCHED_UNIT;
    return all;
}

sched *sched_new(sched_shape total, int idle)
{
    sched *s = mem_new(sizeof *s);

    s->total = s->node.left = total;
    s->node.gpus = devices_of(&total);
    s->idle = idle;
    return s;
}

void sched_cap(sched *s, int64_t n)
{
    s->most = n;
}

static void group_free(group *g)
{
    mem_free(g->size);
    mem_free(g->bundles);
    mem_free(g);
}

void sched_free(sched *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->groups.n; i++) group_free(s->groups.at[i].value);
    map_u64_release(&s->groups);
    map_u64_release(&s->starts);
    map_u64_release(&s->workers);
    vec_release(&s->line);
    mem_free(s);
}

bool sched_feasible(const sched_shape *total, const sched_shape *shape, int *missing)
{
    for (int i = 0; i < SCHED_RESOURCES; i++) {
        if (shape->amount[i] > total->amount[i]) {
            *missing = i;
            return false;
        }
    }
    return true;
}

/* ---- pools ---- */

static group *group_find(const sched *s, uint64_t id)
{
    group **g = id ? map_u64_find(&s->groups, id) : NULL;

    return g ? *g : NULL;
}

/* What a worker takes from. What a group that is no more had lent is the node's. */
static pool *pool_of(sched *s, const worker *w)
{
    group *g = group_find(s, w->shape.group);

    return g && g->placed ? &g->bundles[w->bundle] : &s->node;
}

/* Chooses gpus for an amount: whole ones that nobody uses, or, for a part, the
 * one that has least left and enough. false: there are none. */
static bool choose_devices(const devices *left, int64_t amount, devices *out)
{
    *out = (devices){0};
    if (amount > 0 && amount < SCHED_UNIT) {
        int best = -1;
        for (int i = 0; i < SCHED_DEVICES; i++)
            if (left->at[i] >= amount && (best < 0 || left->at[i] < left->at[best])) best = i;
        if (best >= 0) out->at[best] = amount;
        return best >= 0;
    }
    for (int i = 0; i < SCHED_DEVICES && amount > 0; i++) {
        if (left->at[i] < SCHED_UNIT) continue;
        out->at[i] = SCHED_UNIT;
        amount -= SCHED_UNIT;
    }
    return amount <= 0;
}

static void subtract_gpus(devices *left, const devices *x, int64_t times)
{
    for (int i = 0; i < SCHED_DEVICES; i++) left->at[i] -= times * x->at[i];
}

static void shape_subtract(sched_shape *left, const sched_shape *shape, int64_t times)
{
    for (int i = 0; i < SCHED_RESOURCES; i++) left->amount[i] -= times * shape->amount[i];
}

/* Only the cores of a call that waits are given back: what else it holds
 * (memory on a device, a license) it still uses. */
static void take_cores(sched *s, const worker *w, int64_t sign)
{
    pool_of(s, w)->left.amount[0] -= sign * w->shape.amount[0];
}

static void worker_free(sched *s, worker *w)
{
    if (w->state == IDLE) return;
    if (w->blocked) take_cores(s, w, 1);
    shape_subtract(&pool_of(s, w)->left, &w->shape, -1);
    subtract_gpus(&pool_of(s, w)->gpus, &w->gpus, -1);
    *w = (worker){.state = IDLE, .job = w->job, .environment = w->environment, .idle_since = ++s->idled};
}

/* Whether `shape` fits what would be left. */
static bool fits_in(const sched_shape *left, const sched_shape *shape)
{
    for (int i = 0; i < SCHED_RESOURCES; i++)
        if (shape->amount[i] > 0 && shape->amount[i] > left->amount[i]) return false;
    return true;
}

/* The gpus of a group's bundles, one after the other. */
static bool choose_all(devices *left, const group *g, devices *out)
{
    for (int i = 0; i < g->n; i++) {
        if (!choose_devices(left, g->size[i].amount[SCHED_GPU], &out[i])) return false;
        subtract_gpus(left, &out[i], 1);
    }
    return true;
}

bool sched_gpus_fit(const sched_shape *total, const sched_shape *bundles, int n)
{
    devices left = devices_of(total), out;

    for (int i = 0; i < n; i++) {
        if (!choose_devices(&left, bundles[i].amount[SCHED_GPU], &out)) return false;
        subtract_gpus(&left, &out, 1);
    }
    return true;
}

static bool has_room(const sched *s, const pool *p, const request *q)
{
    devices one, left = p->plan_gpus, all[GROUP_BUNDLES];

    if (!fits_in(&p->plan, &q->shape)) return false;
    if (q->what == WANTS_GROUP) return choose_all(&left, group_find(s, q->client), all);
    return choose_devices(&left, q->shape.amount[SCHED_GPU], &one);
}

/* The pool in which a request has room; NULL: none now. */
static pool *pool_for(sched *s, const request *q, int *bundle)
{
    group *g = group_find(s, q->shape.group);

    *bundle = 0;
    if (!q->shape.group) return has_room(s, &s->node, q) ? &s->node : NULL;
    for (int i = 0; g && g->placed && i < g->n; i++) {
        if (q->shape.bundle != SCHED_ANY && q->shape.bundle != i) continue;
        if (!has_room(s, &g->bundles[i], q)) continue;
        *bundle = i;
        return &g->bundles[i];
    }
    return NULL;
}

/* The line is looked at from its beginning. */
static void plan_anew(sched *s)
{
    for (size_t i = 0; i < s->starts.n; i++)
        s->starts.at[i].value.missing = s->starts.at[i].value.missing_actors = 0;
    s->node.plan = s->node.left;
    s->node.plan_gpus = s->node.gpus;
    s->kept = 0;
    for (size_t i = 0; i < s->groups.n; i++) {
        group *g = s->groups.at[i].value;
        g->kept = 0;
        for (int k = 0; k < g->n; k++) {
            g->bundles[k].plan = g->bundles[k].left;
            g->bundles[k].plan_gpus = g->bundles[k].gpus;
        }
    }
}

static uint32_t *kept_from(sched *s, const request *q)
{
    group *g = group_find(s, q->shape.group);

    return g ? &g->kept : &s->kept;
}

/* The resources of which a shape takes anything, as bits. */
static uint32_t resources_of(const sched_shape *shape)
{
    uint32_t bits = 0;

    for (int i = 0; i < SCHED_RESOURCES; i++)
        if (shape->amount[i] > 0) bits |= 1u << i;
    return bits;
}

/* The resources of which a request finds too little, as bits, in any of the pools it may be
 * served from. */
static uint32_t resources_lacking(const sched *s, const request *q)
{
    const group *g = group_find(s, q->shape.group);
    int n = q->shape.group ? (g && g->placed ? g->n : 0) : 1;
    uint32_t bits = 0;

    for (int k = 0; k < n; k++) {
        const pool *p = g ? &g->bundles[k] : &s->node;
        if (g && q->shape.bundle != SCHED_ANY && q->shape.bundle != k) continue;
        for (int i = 0; i < SCHED_RESOURCES; i++)
            if (q->shape.amount[i] > 0 && q->shape.amount[i] > p->plan.amount[i]) bits |= 1u << i;
    }
    return bits;
}

/* What is kept for a request that has waited long: all that it needs, so that it gets it
 * together. But where the part that is not there is held by an actor, or by a call that waits,
 * the rest is what that one's own calls may need to come to an end: then it is left to them.
 * So it is where others before it in the line have that part `kept`. */
static uint32_t resources_to_keep(const sched *s, const request *q, uint32_t kept)
{
    uint32_t needs = resources_of(&q->shape), lacking = resources_lacking(s, q) | (kept & needs);

    if (kept & needs) return lacking;
    for (size_t i = 0; i < s->workers.n; i++) {
        const worker *w = &s->workers.at[i].value;
        uint32_t held = w->state == IDLE ? 0 : resources_of(&w->shape);
        if (w->blocked) held &= ~1u; /* cores, which it has given back */
        bool may_wait = w->state == ACTOR || w->blocked;
        if (may_wait && w->shape.group == q->shape.group && (held & lacking)) return lacking;
    }
    return needs;
}

/* ---- the line ---- */

/* A worker that has ended its call may still want others for calls that it has made. It cannot be
 * its own, and would ask for ever if it were given itself. */
static bool is_itself(const request *q, uint64_t id)
{
    return q->what == WANTS_LEASE && q->client == id;
}

/* Whether a worker has the functions and the environment that a request is for. */
static bool is_fit(const worker *w, const request *q)
{
    return w->job == q->job && w->environment == q->shape.environment;
}

static uint32_t find_idle(const sched *s, const request *q)
{
    for (size_t i = 0; i < s->workers.n; i++) {
        const worker *w = &s->workers.at[i].value;
        if (w->state == IDLE && is_fit(w, q) && !is_itself(q, s->workers.at[i].key))
            return (uint32_t)s->workers.at[i].key;
    }
    return 0;
}

/* Somebody waits for what leases hold, or for a worker where no more can be started: every
 * holder is asked once for each.
 * Which of them will be free first nobody knows, so all are asked. */
static void reclaim_leases(sched *s, const request *q, sched_actions *out)
{
    for (size_t i = 0; i < s->workers.n; i++) {
        worker *w = &s->workers.at[i].value;
        if (w->state != LEASED || w->asked || w->shape.group != q->shape.group) continue;
        /* A client that only wants more of the same gets what others return. */
        if (q->what == WANTS_LEASE && w->holder == q->client &&
            !memcmp(&w->shape, &q->shape, sizeof q->shape))
            continue;
        w->asked = true;
        vec_push(out, ((sched_action){.kind = SCHED_DO_RECLAIM,
                                      .client = w->holder,
                                      .worker = (uint32_t)s->workers.at[i].key}));
    }
}

static void grant_worker(sched *s, const request *q, pool *from, int bundle, uint32_t id, sched_actions *out)
{
    bool actor = q->what == WANTS_ACTOR;
    worker *w = map_u64_find(&s->workers, id);

    *w = (worker){.state = actor ? ACTOR : LEASED,
                  .job = w->job,
                  .environment = w->environment,
                  .old = w->old,
                  .holder = q->client,
                  .shape = q->shape,
                  .bundle = bundle};
    shape_subtract(&from->left, &q->shape, 1);
    (void)choose_devices(&from->gpus, q->shape.amount[SCHED_GPU], &w->gpus); /* has_room() has said so */
    subtract_gpus(&from->gpus, &w->gpus, 1);
    vec_push(out, ((sched_action){.kind = actor ? SCHED_DO_ACTOR : SCHED_DO_GRANT,
                                  .client = q->client,
                                  .worker = id,
                                  .demand = q->demand,
                                  .shape = q->shape}));
}

/* The bundles of a group are set apart, all at once. */
static void place_group(sched *s, const request *q, sched_actions *out)
{
    group *g = group_find(s, q->client);
    devices gpus[GROUP_BUNDLES];

    shape_subtract(&s->node.left, &q->shape, 1);
    (void)choose_all(&s->node.gpus, g, gpus); /* has_room() has said so */
    g->placed = true;
    for (int i = 0; i < g->n; i++) {
        g->bundles[i].left = g->size[i];
        g->bundles[i].gpus = gpus[i];
    }
    vec_push(out, ((sched_action){.kind = SCHED_DO_GROUP, .client = q->client}));
}

/* Request i was served once; those before it, which were not and need some of the same,
 * remember. */
static void request_served(sched *s, size_t i)
{
    request rest = s->line.at[i];
    uint32_t taken = resources_of(&rest.shape);

    for (size_t k = 0; k < i; k++) {
        request *q = &s->line.at[k];
        q->passed += q->shape.group == rest.shape.group && (resources_of(&q->shape) & taken);
    }
    vec_remove(&s->line, i);
    if (--rest.n > 0) {
        rest.passed = 0;
        vec_push(&s->line, rest);
    }
}

static uint64_t starts_key(uint32_t job, uint64_t environment)
{
    return environment << 32 | job;
}

static starts *starts_of(sched *s, uint32_t job, uint64_t environment)
{
    starts *j = map_u64_find(&s->starts, starts_key(job, environment));

    if (!j) {
        j = map_u64_put(&s->starts, starts_key(job, environment));
        *j = (starts){.job = job, .environment = environment};
    }
    return j;
}

static const starts *starts_for(const sched *s, const request *q)
{
    return map_u64_find(&s->starts, starts_key(q->job, q->shape.environment));
}

/* No more workers that the request could have can be started, and none is on its way. */
static bool is_full(const sched *s, const request *q)
{
    const starts *j = starts_for(s, q);

    return j && j->full && j->starting == 0;
}

/* Whether a worker of the job runs calls, or could: one that an actor has does not, and the one
 * that asks does not for itself. */
static bool runs_calls(const sched *s, const request *q)
{
    for (size_t i = 0; i < s->workers.n; i++) {
        const worker *w = &s->workers.at[i].value;
        if (is_fit(w, q) && w->state != ACTOR && !is_itself(q, s->workers.at[i].key)) return true;
    }
    return false;
}

/* Whether a worker of the job is leaving for another. */
static bool makes_room(const sched *s, uint32_t job)
{
    for (size_t i = 0; i < s->workers.n; i++)
        if (s->workers.at[i].value.job == job && s->workers.at[i].value.state == LEAVING) return true;
    return false;
}

/* The worker of the job that is idle in another environment than this one, for longest; 0: none. */
static uint32_t find_idle_elsewhere(const sched *s, uint32_t job, uint64_t environment)
{
    const worker *oldest = NULL;
    uint32_t id = 0;

    for (size_t i = 0; i < s->workers.n; i++) {
        const worker *w = &s->workers.at[i].value;
        if (w->state != IDLE || w->job != job || w->environment == environment || w->stays) continue;
        if (oldest && oldest->idle_since < w->idle_since) continue;
        oldest = w;
        id = (uint32_t)s->workers.at[i].key;
    }
    return id;
}

/* Whether workers of the job have another environment, and could make room before long. */
static bool has_others(const sched *s, const starts *j)
{
    for (size_t i = 0; i < s->workers.n; i++) {
        const worker *w = &s->workers.at[i].value;
        if (w->job == j->job && w->environment != j->environment && w->state != ACTOR && !w->blocked)
            return true;
    }
    return false;
}

/* One of them leaves, unless one does already: no more can be started, and nobody else will have it
 * soon. */
static void make_room(sched *s, const starts *j, sched_actions *out)
{
    uint32_t id = makes_room(s, j->job) ? 0 : find_idle_elsewhere(s, j->job, j->environment);
    worker *w = id ? map_u64_find(&s->workers, id) : NULL;

    if (!w) return;
    w->state = LEAVING;
    vec_push(out, ((sched_action){.kind = SCHED_DO_STOP, .worker = id}));
}

/* Who lacks only a worker, of a job that can have no more, is told so: an actor, which
 * needs one of its own, and calls, unless a worker may come to them from others. */
static void refuse_hopeless(sched *s, sched_actions *out)
{
    for (size_t i = 0; i < s->line.n;) {
        const request q = s->line.at[i];
        bool hopeless = q.lacks_worker && is_full(s, &q) && !makes_room(s, q.job);
        if (hopeless && q.what == WANTS_LEASE) hopeless = !runs_calls(s, &q);
        if (!hopeless) {
            i++;
            continue;
        }
        vec_push(out, ((sched_action){.kind = q.what == WANTS_ACTOR ? SCHED_DO_REFUSE_ACTOR : SCHED_DO_REFUSE,
                                      .client = q.client,
                                      .job = q.job,
                                      .shape = q.shape}));
        vec_remove(&s->line, i);
    }
}

/* How many workers of the job are to be on their way: those that are missing, within what it may
 * have. */
static int64_t starts_allowed(sched *s, starts *j, sched_actions *out)
{
    int64_t calls = j->missing - j->missing_actors, room = s->most;

    for (size_t i = 0; i < s->workers.n; i++)
        room -= s->workers.at[i].value.job == j->job && s->workers.at[i].value.state != ACTOR;
    for (size_t i = 0; i < s->starts.n; i++) /* those of its other environments */
        if (s->starts.at[i].value.job == j->job && &s->starts.at[i].value != j)
            room -= s->starts.at[i].value.starting;
    if (s->most == 0 || calls <= room) {
        j->capped = false;
        return j->missing;
    }
    if (!j->capped && room <= 0) {
        j->capped = true;
        if (!has_others(s, j)) vec_push(out, ((sched_action){.kind = SCHED_DO_CAP, .job = j->job}));
    }
    return j->missing_actors + (room > 0 ? room : 0);
}

/* Whether a worker of the job could come to take another call without anything being started: one
 * is on its way, or not all that it has wait. */
static bool goes_on(const sched *s, uint32_t job, const starts *j)
{
    if (j->starting > 0) return true;
    for (size_t i = 0; i < s->workers.n; i++) {
        const worker *w = &s->workers.at[i].value;
        if (w->job == job && w->state != ACTOR && !w->blocked) return true;
    }
    return false;
}

/* Calls of a worker that waits, of a job that may have no more and whose workers all wait, are told
 * so: they could be what all of them wait for. */
static void refuse_starved(sched *s, sched_actions *out)
{
    for (size_t i = 0; i < s->line.n;) {
        const request q = s->line.at[i];
        const starts *j = starts_for(s, &q);
        const worker *w = q.what == WANTS_LEASE ? map_u64_find(&s->workers, (uint32_t)q.client) : NULL;
        if (!q.lacks_worker || !j || !j->capped || !w || !w->blocked || goes_on(s, q.job, j)) {
            i++;
            continue;
        }
        vec_push(out,
                 ((sched_action){
                     .kind = SCHED_DO_REFUSE_CAPPED, .client = q.client, .job = q.job, .shape = q.shape}));
        vec_remove(&s->line, i);
    }
}

/* Who lacks only a worker, of a job that has as many as it may, could have one that a lease holds
 * and nobody uses. */
static void reclaim_for_capped(sched *s, sched_actions *out)
{
    for (size_t i = 0; i < s->line.n; i++) {
        const request *q = &s->line.at[i];
        const starts *j = q->lacks_worker ? starts_for(s, q) : NULL;
        if (j && j->capped) reclaim_leases(s, q, out);
    }
}

/* Serves the line as far as workers and resources go, and starts a worker for
 * each call that lacks nothing else. */
static void serve_line(sched *s, sched_actions *out)
{
    int64_t missing = 0;

    plan_anew(s);
    for (size_t i = 0; i < s->line.n;) {
        request *q = &s->line.at[i];
        int bundle;
        q->lacks_worker = false;
        uint32_t *kept = kept_from(s, q), needs = resources_of(&q->shape);
        pool *from = *kept & needs ? NULL : pool_for(s, q, &bundle);
        uint32_t id = from ? find_idle(s, q) : 0;
        if (!from) {
            reclaim_leases(s, q, out);
            if (q->passed >= PATIENCE) *kept |= resources_to_keep(s, q, *kept);
            i++;
        } else if (q->what == WANTS_GROUP || id) {
            if (q->what == WANTS_GROUP)
                place_group(s, q, out);
            else
                grant_worker(s, q, from, bundle, id, out);
            request_served(s, i);
            plan_anew(s);
            i = 0;
            missing = 0;
        } else {
            int64_t n = 0;
            for (; n < q->n && missing < MOST_STARTING && (from = pool_for(s, q, &bundle)); n++) {
                missing++;
                starts *j = starts_of(s, q->job, q->shape.environment);
                j->missing++;
                j->missing_actors += q->what == WANTS_ACTOR;
                devices gpus;
                (void)choose_devices(&from->plan_gpus, q->shape.amount[SCHED_GPU], &gpus);
                subtract_gpus(&from->plan_gpus, &gpus, 1);
                shape_subtract(&from->plan, &q->shape, 1);
            }
            q->lacks_worker = n > 0;
            if (q->lacks_worker && is_full(s, q)) reclaim_leases(s, q, out);
            i++;
        }
    }
    for (size_t i = 0; i < s->starts.n; i++) {
        starts *j = &s->starts.at[i].value;
        int64_t wanted = starts_allowed(s, j, out);
        for (; !j->full && j->starting < wanted; j->starting++)
            vec_push(out,
                     ((sched_action){.kind = SCHED_DO_START, .job = j->job, .environment = j->environment}));
        if (j->missing > 0 && j->starting == 0 && ((j->full && j->scarce) || j->capped)) make_room(s, j, out);
    }
    reclaim_for_capped(s, out);
    refuse_hopeless(s, out);
    refuse_starved(s, out);
}

/* A job without workers of the environment has none whose end would tell that there is room again. */
static void allow_another_try(sched *s, const sched_event *e)
{
    request q = {.job = e->job, .shape = e->shape};

    for (size_t i = 0; i < s->workers.n; i++)
        if (is_fit(&s->workers.at[i].value, &q)) return;
    starts_of(s, e->job, e->shape.environment)->full = false;
}

/* A worker of the job is gone: another may come. */
static void not_full(sched *s, uint32_t job)
{
    for (size_t i = 0; i < s->starts.n; i++)
        if (s->starts.at[i].value.job == job) s->starts.at[i].value.full = false;
}

static void take_demand(sched *s, const sched_event *e, wants what)
{
    if (e->shape.group && !group_find(s, e->shape.group)) return; /* it is gone */
    for (size_t i = 0; i < s->line.n; i++) {
        request *q = &s->line.at[i];
        if (q->what != what || q->client != e->client || memcmp(&q->shape, &e->shape, sizeof q->shape))
            continue;
        q->demand = e->demand;
        if (e->n > 0)
            q->n = e->n;
        else
            vec_remove(&s->line, i);
        return;
    }
    if (e->n > 0) allow_another_try(s, e);
    if (e->n > 0)
        vec_push(&s->line, ((request){.what = what,
                                      .client = e->client,
                                      .job = e->job,
                                      .shape = e->shape,
                                      .n = e->n,
                                      .demand = e->demand}));
}

static void forget_requests(sched *s, uint64_t client, wants what)
{
    for (size_t i = 0; i < s->line.n;) {
        if (s->line.at[i].client == client && s->line.at[i].what == what)
            vec_remove(&s->line, i);
        else
            i++;
    }
}

/* ---- groups ---- */

static void group_new(sched *s, const sched_event *e)
{
    request q = {.what = WANTS_GROUP, .client = e->client, .n = 1};

    if (e->n < 1 || e->n > GROUP_BUNDLES || group_find(s, e->client)) return;
    group *g = mem_new(sizeof *g);
    g->n = (int)e->n;
    g->size = mem_new((size_t)g->n * sizeof *g->size);
    g->bundles = mem_new((size_t)g->n * sizeof *g->bundles);
    memcpy(g->size, e->bundles, (size_t)g->n * sizeof *g->size);
    for (int i = 0; i < g->n; i++) shape_subtract(&q.shape, &g->size[i], -1);
    *map_u64_put(&s->groups, e->client) = g;
    vec_push(&s->line, q);
}

static void group_remove(sched *s, uint64_t id, sched_actions *out)
{
    group *g = group_find(s, id);

    if (!g) return;
    forget_requests(s, id, WANTS_GROUP);
    for (size_t i = 0; i < s->line.n;) {
        if (s->line.at[i].shape.group == id)
            vec_remove(&s->line, i);
        else
            i++;
    }
    for (int i = 0; i < g->n && g->placed; i++) {
        shape_subtract(&s->node.left, &g->bundles[i].left, -1);
        subtract_gpus(&s->node.gpus, &g->bundles[i].gpus, -1);
    }
    map_u64_remove(&s->groups, id);
    group_free(g);
    for (size_t i = 0; i < s->workers.n; i++)
        if (s->workers.at[i].value.state != IDLE && s->workers.at[i].value.shape.group == id)
            vec_push(out, ((sched_action){.kind = SCHED_DO_KILL, .worker = (uint32_t)s->workers.at[i].key}));
}

/* ---- events ---- */

static void client_gone(sched *s, uint64_t client, sched_actions *out)
{
    forget_requests(s, client, WANTS_LEASE);
    for (size_t i = 0; i < s->workers.n; i++) {
        worker *w = &s->workers.at[i].value;
        if (w->state != LEASED || w->holder != client) continue;
        /* It may be in the middle of a call that nobody awaits any more. */
        vec_push(out, ((sched_action){.kind = SCHED_DO_KILL, .worker = (uint32_t)s->workers.at[i].key}));
    }
}

/* One that was on its way is there, or never will be. */
static void worker_started(sched *s, const sched_event *e)
{
    starts *j = map_u64_find(&s->starts, starts_key(e->job, e->environment));

    if (j && j->starting > 0) j->starting--;
}

static void start_failed(sched *s, const sched_event *e)
{
    starts *j = starts_of(s, e->job, e->environment);

    j->full = true;
    j->scarce = e->n == SCHED_SCARCE;
}

/* One that was started, or stays though it was to be stopped. */
static void worker_new(sched *s, const sched_event *e)
{
    worker *w = map_u64_find(&s->workers, e->worker);

    if (w && w->state != LEAVING) return;
    if (!w) w = map_u64_put(&s->workers, e->worker);
    *w = (worker){.state = IDLE,
                  .job = e->job,
                  .environment = e->environment,
                  .idle_since = ++s->idled,
                  .stays = e->kind == SCHED_STAYS};
}

/* A worker that had to stay, because others waited for what it was to make, may have made it: when it
 * has, it returns what it had leased for that. */
static void ask_again(sched *s)
{
    for (size_t i = 0; i < s->workers.n; i++) s->workers.at[i].value.stays = false;
}

static void job_gone(sched *s, uint32_t job)
{
    for (size_t i = 0; i < s->line.n;) {
        if (s->line.at[i].job == job && s->line.at[i].what != WANTS_GROUP)
            vec_remove(&s->line, i);
        else
            i++;
    }
    for (size_t i = s->starts.n; i-- > 0;)
        if (s->starts.at[i].value.job == job) map_u64_remove(&s->starts, s->starts.at[i].key);
}

static void stop_worker(sched *s, uint32_t id, sched_actions *out)
{
    vec_push(out, ((sched_action){.kind = SCHED_DO_STOP, .worker = id}));
    map_u64_remove(&s->workers, id);
}

/* Whether a worker is one of those of which only some are kept idle: of its job, and plain as it is,
 * or not. */
static bool is_alike(const worker *w, const worker *other)
{
    return w->state == IDLE && w->job == other->job && !w->environment == !other->environment;
}

static void stop_surplus(sched *s, uint32_t id, sched_actions *out)
{
    const worker *w = map_u64_find(&s->workers, id), *oldest = w;
    int n = 0;

    if (!w || w->state != IDLE) return;
    for (size_t i = 0; i < s->workers.n; i++) {
        const worker *x = &s->workers.at[i].value;
        if (!is_alike(x, w)) continue;
        n++;
        if (!w->environment || x->idle_since > oldest->idle_since) continue;
        oldest = x;
        id = (uint32_t)s->workers.at[i].key;
    }
    if (n > s->idle) stop_worker(s, id, out);
}

/* As many are started as were idle; those that are leased have their holders asked. */
static void renew(sched *s, uint32_t job, sched_actions *out)
{
    starts *j = starts_of(s, job, 0);

    for (size_t i = s->workers.n; i-- > 0;) {
        worker *w = &s->workers.at[i].value;
        uint32_t id = (uint32_t)s->workers.at[i].key;
        if (w->job != job || w->environment || w->state == ACTOR || w->state == LEAVING) continue;
        w->old = true;
        if (w->state == IDLE) {
            stop_worker(s, id, out);
            j->starting++;
            vec_push(out, ((sched_action){.kind = SCHED_DO_START, .job = job}));
        } else if (!w->asked) {
            w->asked = true;
            vec_push(out, ((sched_action){.kind = SCHED_DO_RECLAIM, .client = w->holder, .worker = id}));
        }
    }
}

void sched_step(sched *s, const sched_event *e, sched_actions *out)
{
    worker *w = map_u64_find(&s->workers, e->worker);
    bool is_old;

    switch (e->kind) {
    case SCHED_RENEW: renew(s, e->job, out); break;
    case SCHED_DEMAND: take_demand(s, e, WANTS_LEASE); break;
    case SCHED_ACTOR: take_demand(s, e, WANTS_ACTOR); break;
    case SCHED_ACTOR_CANCEL: forget_requests(s, e->client, WANTS_ACTOR); break;
    case SCHED_GROUP: group_new(s, e); break;
    case SCHED_GROUP_REMOVE: group_remove(s, e->client, out); break;
    case SCHED_RETURN:
        if (!w || w->state != LEASED || w->holder != e->client) break;
        /* One whose group is no more is about to be killed. */
        if (w->shape.group && !group_find(s, w->shape.group)) break;
        is_old = w->old;
        worker_free(s, w);
        if (is_old) stop_worker(s, e->worker, out);
        ask_again(s);
        serve_line(s, out);
        stop_surplus(s, e->worker, out);
        return;
    case SCHED_STARTING: starts_of(s, e->job, e->environment)->starting += e->n > 0 ? e->n : 0; break;
    case SCHED_WORKER_UP:
        worker_started(s, e);
        worker_new(s, e);
        break;
    case SCHED_STAYS: worker_new(s, e); break;
    case SCHED_START_FAILED:
        worker_started(s, e);
        if (e->n > 0) start_failed(s, e);
        break;
    case SCHED_JOB_GONE: job_gone(s, e->job); break;
    case SCHED_WORKER_GONE:
        if (!w) break;
        not_full(s, w->job);
        ask_again(s);
        worker_free(s, w);
        map_u64_remove(&s->workers, e->worker);
        break;
    case SCHED_CLIENT_GONE: client_gone(s, e->client, out); break;
    case SCHED_BLOCKED:
        if (!w || w->blocked || w->state == IDLE) break;
        w->blocked = true;
        take_cores(s, w, -1);
        break;
    case SCHED_RUNNING:
        if (!w || !w->blocked) break;
        w->blocked = false;
        take_cores(s, w, 1);
        break;
    }
    serve_line(s, out);
}

sched_shape sched_total(const sched *s)
{
    return s->total;
}

sched_shape sched_left(const sched *s)
{
    return s->node.left;
}

bool sched_bundle_left(const sched *s, uint64_t id, int i, sched_shape *out)
{
    const group *g = group_find(s, id);

    if (!g || !g->placed || i < 0 || i >= g->n) return false;
    *out = g->bundles[i].left;
    return true;
}

bool sched_held(const sched *s, uint32_t id, sched_shape *out)
{
    const worker *w = map_u64_find(&s->workers, id);

    if (!w || w->state == IDLE) return false;
    *out = w->shape;
    out->bundle = w->shape.group ? w->bundle : 0;
    return true;
}

uint32_t sched_devices(const sched *s, uint32_t id)
{
    const worker *w = map_u64_find(&s->workers, id);
    uint32_t bits = 0;

    for (int i = 0; w && i < SCHED_DEVICES; i++)
        if (w->gpus.at[i] > 0) bits |= 1u << i;
    return bits;
}

int sched_leases(const sched *s)
{
    int n = 0;

    for (size_t i = 0; i < s->workers.n; i++) n += s->workers.at[i].value.state == LEASED;
    return n;
}

int sched_workers(const sched *s)
{
    return (int)s->workers.n;
}

int64_t sched_waiting(const sched *s)
{
    int64_t n = 0;

    for (size_t i = 0; i < s->line.n; i++) n += s->line.at[i].n;
    return n;
}

uint64_t sched_holder(const sched *s, uint32_t id)
{
    const worker *w = map_u64_find(&s->workers, id);

    return w && w->state == LEASED ? w->holder : 0;
}
