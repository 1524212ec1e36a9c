/* sched.c - see sched.h. Requests wait in one line. A request that fits is
 * served and goes to the end when it wants more; one that does not fit lets
 * others pass, but not for ever: after PATIENCE of them the line waits for it,
 * so that the large are not starved by the small. */
#include "task/sched.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"

#define PATIENCE      32
#define MOST_STARTING 256 /* workers on their way at once: calls that ask for no core have no other bound */

typedef enum state { IDLE, LEASED, ACTOR } state;

typedef struct worker {
    state state;
    uint32_t job;
    uint64_t holder; /* client or actor */
    sched_shape shape;
    bool blocked;
    bool asked; /* its holder knows that others wait for it */
} worker;

typedef struct request {
    uint64_t client;
    uint32_t job;
    sched_shape shape;
    int64_t n;
    bool actor;
    int passed; /* how many went ahead of it */
} request;

typedef struct starts { /* workers of a job: on their way, and wanted by those who wait */
    int64_t starting, missing;
} starts;

struct sched {
    sched_shape total, left;
    int idle;
    MAP_U64(starts) starts; /* by job */
    MAP_U64(worker) workers;
    VEC(request) line;
};

sched *sched_new(sched_shape total, int idle)
{
    sched *s = mem_new(sizeof *s);
    s->total = s->left = total;
    s->idle = idle;
    return s;
}

void sched_free(sched *s)
{
    if (!s) return;
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

static void take(sched *s, const sched_shape *shape, int64_t sign)
{
    for (int i = 0; i < SCHED_RESOURCES; i++) s->left.amount[i] -= sign * shape->amount[i];
}

/* Only the cores of a call that waits are given back: what else it holds
 * (memory on a device, a license) it still uses. */
static void take_cores(sched *s, const sched_shape *shape, int64_t sign)
{
    s->left.amount[0] -= sign * shape->amount[0];
}

static void worker_free(sched *s, worker *w)
{
    if (w->state == IDLE) return;
    if (w->blocked) take_cores(s, &w->shape, 1);
    take(s, &w->shape, -1);
    *w = (worker){.state = IDLE, .job = w->job};
}

static uint32_t find_idle(const sched *s, uint32_t job, int *idle)
{
    uint32_t found = 0;
    *idle = 0;
    for (size_t i = 0; i < s->workers.n; i++) {
        if (s->workers.at[i].value.state != IDLE || s->workers.at[i].value.job != job) continue;
        (*idle)++;
        if (!found) found = (uint32_t)s->workers.at[i].key;
    }
    return found;
}

/* Somebody waits for what leases hold: every holder is asked once for each.
 * Which of them will be free first nobody knows, so all are asked. */
static void reclaim(sched *s, const request *q, sched_actions *out)
{
    for (size_t i = 0; i < s->workers.n; i++) {
        worker *w = &s->workers.at[i].value;
        if (w->state != LEASED || w->asked) continue;
        /* A client that only wants more of the same gets what others return. */
        if (!q->actor && w->holder == q->client && !memcmp(&w->shape, &q->shape, sizeof q->shape)) continue;
        w->asked = true;
        vec_push(out, ((sched_action){.kind = SCHED_DO_RECLAIM,
                                      .client = w->holder,
                                      .worker = (uint32_t)s->workers.at[i].key}));
    }
}

static void grant(sched *s, request *q, uint32_t id, sched_actions *out)
{
    worker *w = map_u64_find(&s->workers, id);
    *w = (worker){.state = q->actor ? ACTOR : LEASED, .job = w->job, .holder = q->client, .shape = q->shape};
    take(s, &q->shape, 1);
    vec_push(out, ((sched_action){.kind = q->actor ? SCHED_DO_ACTOR : SCHED_DO_GRANT,
                                  .client = q->client,
                                  .worker = id,
                                  .shape = q->shape}));
}

/* Whether `shape` fits what would be left. */
static bool fits_in(const sched_shape *left, const sched_shape *shape)
{
    for (int i = 0; i < SCHED_RESOURCES; i++)
        if (shape->amount[i] > 0 && shape->amount[i] > left->amount[i]) return false;
    return true;
}

static void subtract(sched_shape *left, const sched_shape *shape)
{
    for (int i = 0; i < SCHED_RESOURCES; i++) left->amount[i] -= shape->amount[i];
}

static starts *starts_of(sched *s, uint32_t job)
{
    starts *j = map_u64_find(&s->starts, job);
    if (!j) {
        j = map_u64_put(&s->starts, job);
        *j = (starts){0};
    }
    return j;
}

/* Serves the line as far as workers and resources go, and starts a worker for
 * each call that lacks nothing else. */
static void serve(sched *s, sched_actions *out)
{
    int64_t missing = 0;
    for (size_t i = 0; i < s->starts.n; i++) s->starts.at[i].value.missing = 0;
    sched_shape left = s->left; /* what would be left had those before got a worker */
    for (size_t i = 0; i < s->line.n;) {
        request *q = &s->line.at[i];
        int idle;
        uint32_t id = find_idle(s, q->job, &idle);
        if (!fits_in(&left, &q->shape)) {
            reclaim(s, q, out);
            if (q->passed >= PATIENCE) break;
            i++;
        } else if (id) {
            grant(s, q, id, out);
            for (size_t k = 0; k < i; k++) s->line.at[k].passed++;
            request rest = *q;
            vec_remove(&s->line, i);
            if (--rest.n > 0) {
                rest.passed = 0;
                vec_push(&s->line, rest);
            }
            i = 0;
            missing = 0;
            for (size_t k = 0; k < s->starts.n; k++) s->starts.at[k].value.missing = 0;
            left = s->left;
        } else {
            int64_t n = 0;
            for (; n < q->n && missing < MOST_STARTING && fits_in(&left, &q->shape); n++) {
                missing++;
                starts_of(s, q->job)->missing++;
                subtract(&left, &q->shape);
            }
            i++;
        }
    }
    for (size_t i = 0; i < s->starts.n; i++) {
        starts *j = &s->starts.at[i].value;
        for (; j->starting < j->missing; j->starting++)
            vec_push(out, ((sched_action){.kind = SCHED_DO_START, .job = (uint32_t)s->starts.at[i].key}));
    }
}

static void demand(sched *s, const sched_event *e, bool actor)
{
    for (size_t i = 0; i < s->line.n; i++) {
        request *q = &s->line.at[i];
        if (q->actor != actor || q->client != e->client || memcmp(&q->shape, &e->shape, sizeof q->shape))
            continue;
        if (e->n > 0)
            q->n = e->n;
        else
            vec_remove(&s->line, i);
        return;
    }
    if (e->n > 0)
        vec_push(
            &s->line,
            ((request){.client = e->client, .job = e->job, .shape = e->shape, .n = e->n, .actor = actor}));
}

static void forget_requests(sched *s, uint64_t client, bool actor)
{
    for (size_t i = 0; i < s->line.n;) {
        if (s->line.at[i].client == client && s->line.at[i].actor == actor)
            vec_remove(&s->line, i);
        else
            i++;
    }
}

static void client_gone(sched *s, uint64_t client, sched_actions *out)
{
    forget_requests(s, client, false);
    for (size_t i = 0; i < s->workers.n; i++) {
        worker *w = &s->workers.at[i].value;
        if (w->state != LEASED || w->holder != client) continue;
        /* It may be in the middle of a call that nobody awaits any more. */
        vec_push(out, ((sched_action){.kind = SCHED_DO_KILL, .worker = (uint32_t)s->workers.at[i].key}));
    }
}

/* One that was on its way is there, or never will be. */
static void started(sched *s, uint32_t job)
{
    starts *j = map_u64_find(&s->starts, job);
    if (j && j->starting > 0) j->starting--;
}

static void job_gone(sched *s, uint32_t job)
{
    for (size_t i = 0; i < s->line.n;) {
        if (s->line.at[i].job == job)
            vec_remove(&s->line, i);
        else
            i++;
    }
    map_u64_remove(&s->starts, job);
}

static void stop_surplus(sched *s, uint32_t id, sched_actions *out)
{
    int idle;
    worker *w = map_u64_find(&s->workers, id);
    (void)find_idle(s, w ? w->job : 0, &idle);
    if (!w || w->state != IDLE || idle <= s->idle) return;
    vec_push(out, ((sched_action){.kind = SCHED_DO_STOP, .worker = id}));
    map_u64_remove(&s->workers, id);
}

void sched_step(sched *s, const sched_event *e, sched_actions *out)
{
    worker *w = map_u64_find(&s->workers, e->worker);
    switch (e->kind) {
    case SCHED_DEMAND: demand(s, e, false); break;
    case SCHED_ACTOR: demand(s, e, true); break;
    case SCHED_ACTOR_CANCEL: forget_requests(s, e->client, true); break;
    case SCHED_RETURN:
        if (!w || w->state != LEASED || w->holder != e->client) break;
        worker_free(s, w);
        serve(s, out);
        stop_surplus(s, e->worker, out);
        return;
    case SCHED_WORKER_UP:
        started(s, e->job);
        if (!w) *map_u64_put(&s->workers, e->worker) = (worker){.state = IDLE, .job = e->job};
        break;
    case SCHED_START_FAILED: started(s, e->job); break;
    case SCHED_JOB_GONE: job_gone(s, e->job); break;
    case SCHED_WORKER_GONE:
        if (!w) break;
        worker_free(s, w);
        map_u64_remove(&s->workers, e->worker);
        break;
    case SCHED_CLIENT_GONE: client_gone(s, e->client, out); break;
    case SCHED_BLOCKED:
        if (!w || w->blocked || w->state == IDLE) break;
        w->blocked = true;
        take_cores(s, &w->shape, -1);
        break;
    case SCHED_RUNNING:
        if (!w || !w->blocked) break;
        w->blocked = false;
        take_cores(s, &w->shape, 1);
        break;
    }
    serve(s, out);
}

sched_shape sched_total(const sched *s)
{
    return s->total;
}

sched_shape sched_left(const sched *s)
{
    return s->left;
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
