/* registry.c - see registry.h.
 *
 * Three tables (jobs, actors, groups), the names of living actors, and which actor a
 * worker was given. Only step functions below write them. A death of an actor is one
 * function, actor_dies(), and every way to it ends there, so that what must happen once
 * (its name is free, its wanters are told, its worker is killed) is in one place; and so
 * is the end of a group, group_ends(). */
#include "task/registry.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

typedef struct wishes { /* actors that a client wants to be told of; some may be no more */
    VEC(uint64_t) ids;
} wishes;

struct registry {
    MAP_U64(registry_job *) jobs;
    MAP_U64(registry_actor *) actors;
    MAP_U64(registry_group *) groups;
    MAP(uint64_t) names; /* of actors that are not DEAD, with their name space */
    MAP_U64(uint64_t) lodgers; /* by worker: the actor that it was given */
    MAP_U64(wishes) wishes; /* by client, so that its end costs no look at all actors */
};

registry *registry_new(void)
{
    return mem_new(sizeof(registry));
}

static void actor_free(registry_actor *a)
{
    buf_release(&a->call);
    vec_release(&a->wanters);
    failure_unref(a->failure);
    mem_free(a);
}

void registry_free(registry *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->jobs.n; i++) mem_free(r->jobs.at[i].value);
    for (size_t i = 0; i < r->actors.n; i++) actor_free(r->actors.at[i].value);
    for (size_t i = 0; i < r->groups.n; i++) mem_free(r->groups.at[i].value);
    map_u64_release(&r->jobs);
    map_u64_release(&r->actors);
    map_u64_release(&r->groups);
    for (size_t i = 0; i < r->wishes.n; i++) vec_release(&r->wishes.at[i].value.ids);
    map_u64_release(&r->wishes);
    map_u64_release(&r->lodgers);
    map_release(&r->names);
    mem_free(r);
}

static registry_actor *actor_find(const registry *r, uint64_t id)
{
    registry_actor **a = map_u64_find(&r->actors, id);

    return a ? *a : NULL;
}

static registry_group *group_find(const registry *r, uint64_t id)
{
    registry_group **g = map_u64_find(&r->groups, id);

    return g ? *g : NULL;
}

static registry_job *job_find(const registry *r, uint32_t id)
{
    registry_job **j = map_u64_find(&r->jobs, id);

    return j ? *j : NULL;
}

/* ---- what is to be done ---- */

static void do_refs(registry_actions *out, refs_kind refs, uint64_t id, uint64_t inner, uint32_t client)
{
    vec_push(out, ((registry_action){
                      .kind = REGISTRY_DO_REFS, .refs = refs, .id = id, .inner = inner, .client = client}));
}

static void do_answer(registry_actions *out, const registry_event *e, manta_status st, uint64_t id)
{
    if (!e->request) return;
    vec_push(
        out,
        ((registry_action){
            .kind = REGISTRY_DO_ANSWER, .client = e->client, .request = e->request, .status = st, .id = id}));
}

static void do_actor(registry_actions *out, registry_action_kind kind, const registry_actor *a)
{
    vec_push(out, ((registry_action){.kind = kind, .id = a->id, .job = a->job, .worker = a->worker}));
}

static void do_group(registry_actions *out, registry_action_kind kind, uint64_t id)
{
    vec_push(out, ((registry_action){.kind = kind, .id = id}));
}

static void do_worker(registry_actions *out, registry_action_kind kind, uint32_t worker)
{
    if (worker) vec_push(out, ((registry_action){.kind = kind, .worker = worker}));
}

static void do_job(registry_actions *out, registry_action_kind kind, uint32_t job)
{
    vec_push(out, ((registry_action){.kind = kind, .job = job}));
}

/* ---- telling callers ---- */

/* Tells one client where the actor is, or that it is no more; nothing while it waits for
 * a worker. Callers that do not wait for a restart are told when it is over. */
static void actor_tell(const registry_actor *a, uint32_t client, registry_actions *out)
{
    if (a->state == ACTOR_IS_STARTING && a->restarted > 0 && (a->flags & PROTO_ACTOR_AWAY)) return;
    if (a->state != ACTOR_IS_DEAD && !a->worker) return;
    vec_push(out, ((registry_action){.kind = a->state == ACTOR_IS_DEAD ? REGISTRY_DO_TELL_DEAD
                                                                       : REGISTRY_DO_TELL_AT,
                                     .id = a->id,
                                     .client = client,
                                     .worker = a->worker}));
}

static void actor_tell_wanters(const registry_actor *a, registry_actions *out)
{
    for (size_t i = 0; i < a->wanters.n; i++) actor_tell(a, a->wanters.at[i], out);
}

static void actor_add_wanter(registry *r, registry_actor *a, uint32_t client)
{
    for (size_t i = 0; i < a->wanters.n; i++)
        if (a->wanters.at[i] == client) return;
    vec_push(&a->wanters, client);
    wishes *w = map_u64_put(&r->wishes, client);
    vec_push(&w->ids, a->id);
}

static void actor_drop_wanter(registry_actor *a, uint32_t client)
{
    for (size_t i = 0; i < a->wanters.n; i++) {
        if (a->wanters.at[i] != client) continue;
        vec_remove(&a->wanters, i);
        return;
    }
}

static void client_drop_wishes(registry *r, uint32_t client)
{
    wishes *w = map_u64_find(&r->wishes, client);

    if (!w) return;
    for (size_t i = 0; i < w->ids.n; i++) {
        registry_actor *a = actor_find(r, w->ids.at[i]);
        if (a) actor_drop_wanter(a, client);
    }
    vec_release(&w->ids);
    map_u64_remove(&r->wishes, client);
}

/* ---- the life of actors ---- */

static void actor_place(registry_actor *a, registry_actions *out)
{
    a->state = ACTOR_IS_WAITING;
    a->worker = 0;
    do_actor(out, REGISTRY_DO_PLACE, a);
}

static void actor_free_name(registry *r, registry_actor *a)
{
    if (a->name[0]) map_remove(&r->names, a->name);
    a->name[0] = 0;
}

/* Every way to DEAD. The wanters are told before the worker is killed, so that they know
 * why it dies, and are told no more; they ask again if they want to. */
static void actor_dies(registry *r, registry_actor *a, registry_death death, failure *f,
                       registry_actions *out)
{
    if (a->state == ACTOR_IS_DEAD) return;
    uint32_t worker = a->worker;
    do_actor(out, REGISTRY_DO_UNPLACE, a);
    a->state = ACTOR_IS_DEAD;
    a->death = death;
    a->failure = failure_ref(f);
    if (f && f->payload && f->payload->object) do_refs(out, REFS_CONTAIN, a->id, f->payload->object, 0);
    a->worker = 0;
    actor_free_name(r, a);
    if (a->detached) do_refs(out, REFS_DROP, a->id, 0, 0);
    a->detached = false;
    actor_tell_wanters(a, out);
    vec_clear(&a->wanters);
    do_worker(out, REGISTRY_DO_KILL, worker);
}

static void actor_new(registry *r, const registry_event *e, registry_actions *out)
{
    const uint64_t *taken = e->name[0] ? map_find(&r->names, e->name) : NULL;

    if (taken) {
        bool get = e->flags & PROTO_ACTOR_GET;
        if (get) do_refs(out, REFS_HOLD, *taken, 0, e->client);
        do_answer(out, e, get ? MANTA_OK : MANTA_EEXIST, *taken);
        return;
    }
    if (actor_find(r, e->id)) { /* a number that was given out before */
        do_answer(out, e, MANTA_EEXIST, e->id);
        return;
    }
    registry_actor *a = mem_new(sizeof *a);
    *a = (registry_actor){.id = e->id,
                          .job = e->job,
                          .restarts = e->restarts,
                          .retries = e->retries,
                          .concurrency = e->concurrency,
                          .most_pending = e->most_pending,
                          .shape = e->shape,
                          .flags = e->flags,
                          .detached = e->flags & PROTO_ACTOR_DETACHED};
    if (e->flags & PROTO_ACTOR_WITH_MAKER && !a->detached && registry_number_in(r, e->client))
        a->maker = e->client;
    snprintf(a->name, sizeof a->name, "%s", e->name);
    snprintf(a->function, sizeof a->function, "%s", e->function);
    buf_add(&a->call, e->call, e->n_call);
    *map_u64_put(&r->actors, a->id) = a;
    if (a->name[0]) *map_put(&r->names, a->name) = a->id;
    do_refs(out, REFS_ADD, a->id, 0, e->client);
    do_refs(out, REFS_HOLD, a->id, 0, e->client);
    if (a->detached) do_refs(out, REFS_HOLD, a->id, 0, 0);
    for (uint64_t i = 0; i < e->n_inner; i++) {
        uint64_t inner;
        memcpy(&inner, (const char *)e->inner + i * sizeof inner, sizeof inner);
        do_refs(out, REFS_CONTAIN, a->id, inner, 0);
    }
    if (e->request) do_answer(out, e, MANTA_OK, a->id);
    if (a->shape.group &&
        !group_find(r, a->shape.group)) /* it was removed while the message was on its way */
        actor_dies(r, a, DEATH_OF_GROUP, NULL, out);
    else
        actor_place(a, out);
}

static void actor_want(registry *r, const registry_event *e, registry_actions *out)
{
    registry_actor *a = actor_find(r, e->id);

    if (!a) {
        vec_push(out, ((registry_action){.kind = REGISTRY_DO_TELL_DEAD, .id = e->id, .client = e->client}));
        return;
    }
    if (a->state != ACTOR_IS_DEAD) actor_add_wanter(r, a, e->client);
    actor_tell(a, e->client, out);
}

static void actor_find_by_name(registry *r, const registry_event *e, registry_actions *out)
{
    const uint64_t *id = map_find(&r->names, e->name);

    if (id) do_refs(out, REFS_HOLD, *id, 0, e->client);
    do_answer(out, e, id ? MANTA_OK : MANTA_ENOENT, id ? *id : 0);
}

static void actor_placed(registry *r, const registry_event *e, registry_actions *out)
{
    registry_actor *a = actor_find(r, e->id);

    if (!a || a->state != ACTOR_IS_WAITING || map_u64_find(&r->lodgers, e->worker)) {
        do_worker(out, REGISTRY_DO_KILL, e->worker);
        return;
    }
    a->worker = e->worker;
    a->state = ACTOR_IS_STARTING;
    *map_u64_put(&r->lodgers, e->worker) = a->id;
    do_actor(out, REGISTRY_DO_CONSTRUCT, a);
    actor_tell_wanters(a, out);
}

static void actor_constructed(registry *r, const registry_event *e, registry_actions *out)
{
    registry_actor *a = actor_find(r, e->id);

    if (!a || a->worker != e->worker) return; /* it is not there any more */
    if (e->kind == REGISTRY_ACTOR_FAILED) {
        actor_dies(r, a, DEATH_OF_FAILURE, e->failure, out);
    } else if (a->state == ACTOR_IS_STARTING) {
        a->state = ACTOR_IS_ALIVE;
        if (a->flags & PROTO_ACTOR_AWAY) actor_tell_wanters(a, out);
    }
}

/* PROTO_KILL_RESTART kills the process only, and what follows is WORKER_GONE's. One that
 * ends (PROTO_KILL_END) finishes its calls in a process that belongs to no actor any more.
 * The hold that is taken and dropped changes no count: it has the reference counts look
 * at the actor, which nobody may hold. */
static void actor_kill(registry *r, const registry_event *e, registry_actions *out)
{
    registry_actor *a = actor_find(r, e->id);

    if (!a) return;
    uint32_t worker = a->worker;
    if (e->how == PROTO_KILL_RESTART) {
        do_worker(out, REGISTRY_DO_KILL, worker);
        return;
    }
    if (e->how == PROTO_KILL_END && worker) {
        a->worker = 0;
        map_u64_remove(&r->lodgers, worker);
        do_worker(out, REGISTRY_DO_EXIT, worker);
    }
    actor_dies(r, a, DEATH_OF_FAILURE, e->failure, out);
    do_refs(out, REFS_HOLD, a->id, 0, worker);
    do_refs(out, REFS_DROP, a->id, 0, worker);
}

static void actor_refused(registry *r, const registry_event *e, registry_actions *out)
{
    registry_actor *a = actor_find(r, e->id);

    if (a) actor_dies(r, a, DEATH_OF_FAILURE, e->failure, out);
}

/* Nobody can call it any more. While its program is there it may finish what it was
 * asked to do; else nobody awaits that. */
static void actor_released(registry *r, const registry_event *e, registry_actions *out)
{
    registry_actor *a = actor_find(r, e->id);

    if (!a) return;
    const registry_job *j = job_find(r, a->job);
    do_actor(out, REGISTRY_DO_UNPLACE, a);
    do_worker(out, j && j->driver ? REGISTRY_DO_EXIT : REGISTRY_DO_KILL, a->worker);
    if (a->worker) map_u64_remove(&r->lodgers, a->worker);
    actor_free_name(r, a);
    map_u64_remove(&r->actors, a->id);
    actor_free(a);
}

static void worker_gone(registry *r, const registry_event *e, registry_actions *out)
{
    const uint64_t *id = map_u64_find(&r->lodgers, e->worker);
    registry_actor *a = id ? actor_find(r, *id) : NULL;

    map_u64_remove(&r->lodgers, e->worker);
    if (!a || a->worker != e->worker) return;
    if (a->restarts == 0 || !job_find(r, a->job)) {
        actor_dies(r, a, DEATH_OF_FAILURE, e->failure, out);
        return;
    }
    if (a->restarts > 0) a->restarts--;
    a->restarted++;
    actor_place(a, out);
}

/* ---- placement groups ---- */

static void group_new(registry *r, const registry_event *e, registry_actions *out)
{
    bool taken = group_find(r, e->id) || registry_group_named(r, e->name);
    manta_status st = taken ? MANTA_EEXIST : e->status;

    do_answer(out, e, st, e->id);
    if (st) return;
    registry_group *g = mem_new(sizeof *g + (size_t)e->n * sizeof *g->size);
    *g = (registry_group){.id = e->id, .owner = e->client, .how = e->how, .n = e->n};
    snprintf(g->name, sizeof g->name, "%s", e->name);
    memcpy(g->size, e->bundles, (size_t)e->n * sizeof *g->size);
    *map_u64_put(&r->groups, g->id) = g;
    vec_push(out, ((registry_action){.kind = REGISTRY_DO_GROUP_PLACE, .id = g->id, .client = e->client}));
}

static void group_placed(registry *r, uint64_t id, registry_actions *out)
{
    registry_group *g = group_find(r, id);

    if (!g) return;
    g->placed = true;
    do_group(out, REGISTRY_DO_GROUP_READY, id);
}

/* Callers are told first, so that they know why the workers die. */
static void group_ends(registry *r, registry_group *g, registry_actions *out)
{
    uint64_t id = g->id;

    map_u64_remove(&r->groups, id);
    mem_free(g);
    do_group(out, REGISTRY_DO_GROUP_TELL_GONE, id);
    do_group(out, REGISTRY_DO_GROUP_BREAK, id);
    for (size_t i = 0; i < r->actors.n; i++)
        if (r->actors.at[i].value->shape.group == id)
            actor_dies(r, r->actors.at[i].value, DEATH_OF_GROUP, NULL, out);
    do_group(out, REGISTRY_DO_GROUP_UNPLACE, id);
}

/* Actors that an actor in this worker has made and that are to end with it. */
static void actors_lose_maker(registry *r, uint32_t worker, registry_actions *out)
{
    for (size_t i = 0; i < r->actors.n; i++) {
        registry_actor *a = r->actors.at[i].value;
        if (a->maker == worker) actor_dies(r, a, DEATH_OF_MAKER, NULL, out);
    }
}

static void client_gone(registry *r, uint32_t client, registry_actions *out)
{
    client_drop_wishes(r, client);
    actors_lose_maker(r, client, out);
    for (size_t i = 0; i < r->groups.n;)
        if (r->groups.at[i].value->owner == client) {
            group_ends(r, r->groups.at[i].value, out);
            i = 0;
        } else {
            i++;
        }
}

/* ---- jobs ---- */

static void job_new(registry *r, const registry_event *e)
{
    if (job_find(r, e->job)) return;
    registry_job *j = mem_new(sizeof *j);
    *j = (registry_job){.id = e->job, .is_joined = e->is_joined};
    snprintf(j->space, sizeof j->space, "%s", e->name[0] ? e->name : "default");
    *map_u64_put(&r->jobs, j->id) = j;
}

/* After some in a row the next would fare no better, and calls would wait for ever. */
static void job_note_stillborn(registry_job *j, registry_actions *out)
{
    if (++j->stillborn < REGISTRY_MOST_STILLBORN || j->broken) return;
    j->broken = j->is_joined;
    do_job(out, REGISTRY_DO_JOB_GIVE_UP, j->id);
}

static bool job_has_detached(const registry *r, uint32_t id)
{
    for (size_t i = 0; i < r->actors.n; i++)
        if (r->actors.at[i].value->job == id && r->actors.at[i].value->detached) return true;
    return false;
}

/* One that a node was started for ends with its node. */
static bool job_is_over(const registry *r, const registry_job *j)
{
    return j->is_joined && (j->broken || (!j->driver && !job_has_detached(r, j->id)));
}

static void job_ends(registry *r, registry_job *j, registry_actions *out)
{
    do_job(out, REGISTRY_DO_JOB_GONE, j->id);
    for (size_t i = 0; i < r->actors.n; i++)
        if (r->actors.at[i].value->job == j->id)
            actor_dies(r, r->actors.at[i].value, DEATH_OF_JOB, NULL, out);
    do_job(out, REGISTRY_DO_JOB_END, j->id);
    map_u64_remove(&r->jobs, j->id);
    mem_free(j);
}

static void jobs_pass(registry *r, registry_actions *out)
{
    for (size_t i = 0; i < r->jobs.n;)
        if (job_is_over(r, r->jobs.at[i].value))
            job_ends(r, r->jobs.at[i].value, out);
        else
            i++;
}

static void job_step(registry *r, const registry_event *e, registry_actions *out)
{
    registry_job *j = job_find(r, e->job);

    if (!j) return;
    switch (e->kind) {
    case REGISTRY_JOB_DRIVER: j->driver = e->client; break;
    case REGISTRY_DRIVER_GONE: j->driver = 0; break;
    case REGISTRY_JOB_BROKEN: j->broken = true; break;
    case REGISTRY_WORKER_READY: j->stillborn = 0; break;
    case REGISTRY_WORKER_STILLBORN: job_note_stillborn(j, out); break;
    default: break;
    }
}

/* ---- events ---- */

void registry_step(registry *r, const registry_event *e, registry_actions *out)
{
    switch (e->kind) {
    case REGISTRY_JOB_NEW: job_new(r, e); break;
    case REGISTRY_JOB_DRIVER:
    case REGISTRY_DRIVER_GONE:
    case REGISTRY_JOB_BROKEN:
    case REGISTRY_WORKER_READY:
    case REGISTRY_WORKER_STILLBORN: job_step(r, e, out); break;
    case REGISTRY_PASS: jobs_pass(r, out); break;
    case REGISTRY_WORKER_GONE: worker_gone(r, e, out); break;
    case REGISTRY_CLIENT_GONE: client_gone(r, e->client, out); break;
    case REGISTRY_ACTOR_NEW: actor_new(r, e, out); break;
    case REGISTRY_ACTOR_WANT: actor_want(r, e, out); break;
    case REGISTRY_ACTOR_FIND: actor_find_by_name(r, e, out); break;
    case REGISTRY_ACTOR_UP:
    case REGISTRY_ACTOR_FAILED: actor_constructed(r, e, out); break;
    case REGISTRY_ACTOR_KILL: actor_kill(r, e, out); break;
    case REGISTRY_ACTOR_PLACED: actor_placed(r, e, out); break;
    case REGISTRY_ACTOR_REFUSED: actor_refused(r, e, out); break;
    case REGISTRY_ACTOR_RELEASED: actor_released(r, e, out); break;
    case REGISTRY_GROUP_NEW: group_new(r, e, out); break;
    case REGISTRY_GROUP_PLACED: group_placed(r, e->id, out); break;
    case REGISTRY_GROUP_REMOVE: {
        registry_group *g = group_find(r, e->id);
        if (g) group_ends(r, g, out);
        break;
    }
    }
}

/* ---- looking ---- */

const registry_actor *registry_find_actor(const registry *r, uint64_t id)
{
    return actor_find(r, id);
}

uint64_t registry_number_in(const registry *r, uint32_t worker)
{
    const uint64_t *id = map_u64_find(&r->lodgers, worker);

    return id ? *id : 0;
}

const registry_actor *registry_actor_in(const registry *r, uint32_t worker)
{
    return actor_find(r, registry_number_in(r, worker));
}

const registry_group *registry_find_group(const registry *r, uint64_t id)
{
    return group_find(r, id);
}

const registry_group *registry_group_named(const registry *r, const char *name)
{
    for (size_t i = 0; i < r->groups.n; i++)
        if (name[0] && !strcmp(r->groups.at[i].value->name, name)) return r->groups.at[i].value;
    return NULL;
}

const registry_job *registry_find_job(const registry *r, uint32_t id)
{
    return job_find(r, id);
}

bool registry_job_stays(const registry *r, uint32_t id)
{
    const registry_job *j = job_find(r, id);

    return j && !j->broken && job_has_detached(r, id);
}

size_t registry_actors(const registry *r)
{
    return r->actors.n;
}

const registry_actor *registry_actor_at(const registry *r, size_t i)
{
    return r->actors.at[i].value;
}

size_t registry_groups(const registry *r)
{
    return r->groups.n;
}

size_t registry_jobs(const registry *r)
{
    return r->jobs.n;
}

size_t registry_names(const registry *r)
{
    return r->names.n;
}
