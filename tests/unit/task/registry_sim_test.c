/* registry_sim_test.c - programs, actors, names and groups in simulated nodes, by a seed.
 *
 * Clients, each the driver of a program, make, find, pass on, want, kill and drop actors and
 * make and remove groups; constructors return or fail; workers and clients die. What each
 * says arrives in its order, and in any order beside what others say; a worker that the
 * scheduler has chosen arrives late as well. Reference counts are the real ones. The checks
 * that hold after every event are in check(), those of single actions where they are done.
 * In the end all clients die, detached actors are killed, and nothing may be left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sim.h"
#include "task/registry.h"

enum { CLIENTS = 5, ACTORS = 60, FIRST = 1000, WORKERS = 400, GROUPS = 12, NAMES = 3 };

typedef enum home_state { HOME_NONE, HOME_LIVES, HOME_CONDEMNED, HOME_DEAD } home_state;

typedef struct letter { /* on its way to the daemon */
    uint32_t from; /* 0: the scheduler */
    enum { SAYS, COUNTS, DIES } what;
    registry_event e;
    refs_event refs;
} letter;

typedef struct world {
    registry *r;
    refs_book *refs;
    rng_key k;
    uint64_t at;
    VEC(letter) mail;
    bool client_lives[CLIENTS + 1], job_lives[CLIENTS + 1];
    int held[CLIENTS + 1][ACTORS]; /* handles that the client knows of */
    bool wants[CLIENTS + 1][ACTORS]; /* was heard, and no death was told since */
    int n_actors, n_workers, n_groups;
    bool asked[ACTORS]; /* of the scheduler */
    int given[ACTORS], deaths[ACTORS]; /* restarts it may have; workers that died under it */
    uint32_t home[ACTORS]; /* the last worker that was to construct it */
    home_state worker[WORKERS];
    uint32_t worker_job[WORKERS];
    uint64_t groups[GROUPS]; /* 0: removed, or not made */
} world;

static const char *const sim_names[NAMES] = {"s/a", "s/b", "s/c"};

static uint64_t below(world *w, uint64_t n)
{
    return rng_below(w->k, w->at++, n);
}

static void count_ref(world *w, refs_event e)
{
    refs_actions none = {0};

    refs_step(w->refs, e, &none);
    assert_int_equal(none.n, 0);
    vec_release(&none);
}

static void post(world *w, uint32_t from, registry_event e)
{
    vec_push(&w->mail, ((letter){.from = from, .what = SAYS, .e = e}));
}

static void post_count(world *w, uint32_t from, refs_kind kind, uint64_t id, uint32_t client)
{
    vec_push(
        &w->mail,
        ((letter){.from = from, .what = COUNTS, .refs = {.kind = kind, .object = id, .client = client}}));
}

static void worker_is_condemned(world *w, uint32_t id)
{
    if (w->worker[id - 100] != HOME_LIVES) return;
    w->worker[id - 100] = HOME_CONDEMNED;
    vec_push(&w->mail, ((letter){.from = id, .what = DIES}));
}

static void sim_do(world *w, const registry_event *e, const registry_action *a)
{
    size_t i = a->id >= FIRST && a->id < FIRST + ACTORS ? (size_t)(a->id - FIRST) : 0;
    const registry_actor *x = registry_find_actor(w->r, a->id);

    switch (a->kind) {
    case REGISTRY_DO_REFS:
        count_ref(w, (refs_event){.kind = a->refs, .object = a->id, .inner = a->inner, .client = a->client});
        break;
    case REGISTRY_DO_PLACE:
        assert_false(w->asked[i]); /* once at a time */
        assert_true(x->worker == 0 && x->state == ACTOR_IS_WAITING);
        w->asked[i] = true;
        break;
    case REGISTRY_DO_UNPLACE: w->asked[i] = false; break;
    case REGISTRY_DO_CONSTRUCT:
        if (w->home[i]) assert_true(w->worker[w->home[i] - 100] == HOME_DEAD); /* one process at a time */
        assert_true(w->worker[a->worker - 100] == HOME_LIVES);
        w->home[i] = a->worker;
        break;
    case REGISTRY_DO_EXIT:
    case REGISTRY_DO_KILL: worker_is_condemned(w, a->worker); break;
    case REGISTRY_DO_TELL_AT:
        assert_true(a->client <= CLIENTS && w->wants[a->client][i] && w->client_lives[a->client]);
        assert_true(x && x->state != ACTOR_IS_DEAD && x->worker == a->worker);
        break;
    case REGISTRY_DO_TELL_DEAD: {
        bool asks = e->kind == REGISTRY_ACTOR_WANT && e->client == a->client && e->id == a->id;
        assert_true(w->client_lives[a->client]);
        assert_true(asks || w->wants[a->client][i]); /* once for each time it was wanted */
        assert_true(!x || x->state == ACTOR_IS_DEAD);
        w->wants[a->client][i] = false;
        break;
    }
    case REGISTRY_DO_ANSWER:
        if (!a->status && a->id >= FIRST && a->id < FIRST + ACTORS) w->held[a->client][i]++;
        break;
    case REGISTRY_DO_GROUP_PLACE:
        post(w, 0, (registry_event){.kind = REGISTRY_GROUP_PLACED, .id = a->id});
        break;
    case REGISTRY_DO_JOB_GONE:
        for (size_t k = 0; k < ACTORS; k++) {
            const registry_actor *other = registry_find_actor(w->r, FIRST + k);
            if (other && other->job == a->job) w->asked[k] = false;
        }
        break;
    case REGISTRY_DO_JOB_END:
        w->job_lives[a->job] = false;
        for (uint32_t k = 0; k < (uint32_t)w->n_workers; k++)
            if (w->worker_job[k] == a->job) worker_is_condemned(w, 100 + k);
        break;
    case REGISTRY_DO_GROUP_READY:
    case REGISTRY_DO_GROUP_TELL_GONE:
    case REGISTRY_DO_GROUP_BREAK:
    case REGISTRY_DO_GROUP_UNPLACE:
    case REGISTRY_DO_JOB_GIVE_UP: break;
    }
}

/* What must hold between any two events. */
static void check(const world *w)
{
    size_t named = 0;

    for (size_t i = 0; i < registry_actors(w->r); i++) {
        const registry_actor *a = registry_actor_at(w->r, i);
        size_t n = (size_t)(a->id - FIRST);
        if (a->name[0]) named++;
        assert_false(a->state == ACTOR_IS_DEAD && (a->name[0] || a->worker || a->detached));
        assert_int_equal(a->worker != 0, a->state == ACTOR_IS_STARTING || a->state == ACTOR_IS_ALIVE);
        if (a->worker) assert_true(w->home[n] == a->worker && registry_actor_in(w->r, a->worker) == a);
        if (a->shape.group && a->state != ACTOR_IS_DEAD)
            assert_non_null(registry_find_group(w->r, a->shape.group));
        for (size_t k = 0; k < i; k++)
            assert_false(a->name[0] && !strcmp(a->name, registry_actor_at(w->r, k)->name));
        assert_true(w->given[n] < 0 ? a->restarts == w->given[n] : a->restarts + a->restarted == w->given[n]);
        assert_true(a->restarted <= w->deaths[n]);
        for (uint32_t c = 1; c <= CLIENTS; c++) /* every death was told */
            assert_false(a->state == ACTOR_IS_DEAD && w->client_lives[c] && w->wants[c][n]);
    }
    assert_int_equal(named, registry_names(w->r));
}

static void sim_step(world *w, registry_event e)
{
    size_t n = (size_t)(e.id - FIRST);
    const registry_actor *a = registry_find_actor(w->r, e.id);

    if (e.kind == REGISTRY_ACTOR_NEW && !a) w->given[n] = e.restarts;
    if (e.kind == REGISTRY_ACTOR_WANT && a && a->state != ACTOR_IS_DEAD) w->wants[e.client][n] = true;
    if (e.kind == REGISTRY_ACTOR_RELEASED)
        for (int c = 1; c <= CLIENTS; c++) w->wants[c][n] = false; /* who has no handle asks nothing */
    if (e.kind == REGISTRY_WORKER_GONE && registry_actor_in(w->r, e.worker))
        w->deaths[registry_actor_in(w->r, e.worker)->id - FIRST]++;
    registry_actions mine = {0}; /* what follows may step again */
    if (!e.name) e.name = "";
    if (!e.function) e.function = "make";
    registry_step(w->r, &e, &mine);
    for (size_t i = 0; i < mine.n; i++) sim_do(w, &e, &mine.at[i]);
    vec_release(&mine);
    if (e.kind == REGISTRY_GROUP_REMOVE || e.kind == REGISTRY_CLIENT_GONE)
        for (size_t i = 0; i < registry_actors(w->r); i++) {
            const registry_actor *x = registry_actor_at(w->r, i);
            if (x->shape.group && !registry_find_group(w->r, x->shape.group)) /* killed with the group */
                assert_true(!w->home[x->id - FIRST] || w->worker[w->home[x->id - FIRST] - 100] != HOME_LIVES);
        }
    check(w);
}

static void party_dies(world *w, uint32_t id)
{
    bool is_worker = id >= 100;

    if (is_worker)
        w->worker[id - 100] = HOME_DEAD;
    else
        w->client_lives[id] = false;
    count_ref(w, (refs_event){.kind = REFS_GONE, .client = id});
    if (is_worker)
        sim_step(w, (registry_event){.kind = REGISTRY_WORKER_GONE, .worker = id});
    else if (w->job_lives[id])
        sim_step(w, (registry_event){.kind = REGISTRY_DRIVER_GONE, .job = id});
    sim_step(w, (registry_event){.kind = REGISTRY_CLIENT_GONE, .client = id});
}

/* Delivers a letter that nothing of the same sender stands before. */
static void deliver(world *w)
{
    if (w->mail.n == 0) return;
    size_t at = (size_t)below(w, w->mail.n);
    for (size_t i = 0; i < at; i++)
        if (w->mail.at[i].from == w->mail.at[at].from) at = i;
    letter l = w->mail.at[at];
    vec_remove(&w->mail, at);
    if (l.what == SAYS)
        sim_step(w, l.e);
    else if (l.what == COUNTS)
        count_ref(w, l.refs);
    else
        party_dies(w, l.from);
}

/* One pass over all connections; what nobody holds after it is released. */
static void settle(world *w)
{
    refs_actions freed = {0};
    uint64_t changes = refs_changes(w->refs);

    for (size_t n = w->mail.n; n > 0; n--) deliver(w);
    refs_step(w->refs, (refs_event){.kind = REFS_SETTLE, .changes = changes}, &freed);
    for (size_t i = 0; i < freed.n; i++)
        if (registry_find_actor(w->r, freed.at[i].object))
            sim_step(w, (registry_event){.kind = REGISTRY_ACTOR_RELEASED, .id = freed.at[i].object});
    vec_release(&freed);
    sim_step(w, (registry_event){.kind = REGISTRY_PASS});
}

static void client_makes(world *w, uint32_t c)
{
    static const uint32_t flags[4] = {0, PROTO_ACTOR_DETACHED, PROTO_ACTOR_GET, PROTO_ACTOR_AWAY};

    if (w->n_actors == ACTORS) return;
    int i = w->n_actors++;
    bool named = below(w, 2);
    uint64_t g = w->groups[below(w, GROUPS)];
    post(w, c,
         (registry_event){.kind = REGISTRY_ACTOR_NEW,
                          .client = c,
                          .job = c,
                          .request = named,
                          .id = FIRST + (uint64_t)i,
                          .name = named ? sim_names[below(w, NAMES)] : "",
                          .flags = flags[below(w, 4)],
                          .restarts = (int)below(w, 4) - 1,
                          .shape = {.group = below(w, 3) ? 0 : g}});
    if (!named) w->held[c][i]++; /* it knows without an answer */
}

static void client_makes_group(world *w, uint32_t c)
{
    static const sched_shape bundle;

    if (w->n_groups == GROUPS) return;
    w->groups[w->n_groups] = 5000 + (uint64_t)w->n_groups;
    post(w, c,
         (registry_event){.kind = REGISTRY_GROUP_NEW,
                          .client = c,
                          .request = 1,
                          .id = w->groups[w->n_groups++],
                          .bundles = &bundle,
                          .n = 1});
}

/* Something that a client does with an actor of which it has a handle. */
static void client_uses(world *w, uint32_t c, uint64_t what)
{
    int i = w->n_actors ? (int)below(w, (uint64_t)w->n_actors) : 0;
    uint32_t other = 1 + (uint32_t)below(w, CLIENTS);
    uint64_t id = FIRST + (uint64_t)i;

    if (w->held[c][i] == 0) return;
    if (what < 4) {
        post(w, c, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = c, .id = id});
    } else if (what < 6 && w->client_lives[other]) {
        post_count(w, c, REFS_HOLD, id, other);
        w->held[other][i]++;
    } else if (what < 9) {
        post_count(w, c, REFS_DROP, id, c);
        w->held[c][i]--;
    } else {
        post(w, c, (registry_event){.kind = REGISTRY_ACTOR_KILL, .id = id, .how = (uint32_t)below(w, 3)});
    }
}

/* The scheduler finds a worker for an actor, or says that there is none. */
static void scheduler_moves(world *w)
{
    int i = w->n_actors ? (int)below(w, (uint64_t)w->n_actors) : 0;
    const registry_actor *a = registry_find_actor(w->r, FIRST + (uint64_t)i);

    if (!w->asked[i] || !a || w->n_workers == WORKERS) return;
    w->asked[i] = false;
    if (below(w, 12) == 0) {
        post(w, 0, (registry_event){.kind = REGISTRY_ACTOR_REFUSED, .id = a->id});
        return;
    }
    uint32_t worker = 100 + (uint32_t)w->n_workers;
    w->worker[w->n_workers] = HOME_LIVES;
    w->worker_job[w->n_workers++] = a->job;
    post(w, 0, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = a->id, .worker = worker});
}

/* A constructor returns or fails, or a worker dies. */
static void worker_moves(world *w)
{
    size_t n = registry_actors(w->r);
    const registry_actor *a = n ? registry_actor_at(w->r, (size_t)below(w, n)) : NULL;

    if (!a || !a->worker || w->worker[a->worker - 100] != HOME_LIVES) return;
    uint64_t what = below(w, 10);
    if (what == 0)
        worker_is_condemned(w, a->worker); /* by nobody */
    else if (a->state == ACTOR_IS_STARTING)
        post(w, a->worker,
             (registry_event){.kind = what < 3 ? REGISTRY_ACTOR_FAILED : REGISTRY_ACTOR_UP,
                              .id = a->id,
                              .worker = a->worker});
}

static bool is_dying(const world *w, uint32_t c)
{
    for (size_t i = 0; i < w->mail.n; i++)
        if (w->mail.at[i].from == c && w->mail.at[i].what == DIES) return true;
    return false;
}

static void move(world *w)
{
    uint32_t c = 1 + (uint32_t)below(w, CLIENTS);
    uint64_t what = below(w, 24);

    if (what < 6)
        deliver(w);
    else if (what < 9)
        scheduler_moves(w);
    else if (what < 12)
        worker_moves(w);
    else if (what == 12)
        settle(w);
    else if (!w->client_lives[c] || !w->job_lives[c] || is_dying(w, c))
        return;
    else if (what < 15)
        client_makes(w, c);
    else if (what < 20)
        client_uses(w, c, below(w, 11));
    else if (what == 20)
        post(w, c,
             (registry_event){
                 .kind = REGISTRY_ACTOR_FIND, .client = c, .request = 1, .name = sim_names[below(w, NAMES)]});
    else if (what == 21)
        client_makes_group(w, c);
    else if (what == 22 && w->n_groups)
        post(w, c,
             (registry_event){.kind = REGISTRY_GROUP_REMOVE,
                              .id = w->groups[below(w, (uint64_t)w->n_groups)]});
    else if (what == 23 && below(w, 12) == 0)
        sim_step(w, (registry_event){.kind = below(w, 2) ? REGISTRY_JOB_BROKEN : REGISTRY_WORKER_STILLBORN,
                                     .job = c});
    else if (what == 23 && below(w, 12) == 0)
        vec_push(&w->mail, ((letter){.from = c, .what = DIES}));
}

static void run(uint64_t seed)
{
    world *w = mem_new(sizeof *w);

    w->r = registry_new();
    w->refs = refs_new();
    w->k = rng_make(seed, 13);
    for (uint32_t c = 1; c <= CLIENTS; c++) {
        w->client_lives[c] = w->job_lives[c] = true;
        sim_step(w, (registry_event){.kind = REGISTRY_JOB_NEW, .job = c, .is_joined = true});
        sim_step(w, (registry_event){.kind = REGISTRY_JOB_DRIVER, .job = c, .client = c});
    }
    for (int turn = 0; turn < 600; turn++) move(w);
    for (uint32_t c = 1; c <= CLIENTS; c++)
        if (w->client_lives[c] && !is_dying(w, c)) vec_push(&w->mail, ((letter){.from = c, .what = DIES}));
    for (int turn = 0; turn < 60; turn++) {
        settle(w);
        scheduler_moves(w);
    }
    for (size_t i = 0; i < registry_actors(w->r); i++)
        post(w, 0,
             (registry_event){
                 .kind = REGISTRY_ACTOR_KILL, .id = registry_actor_at(w->r, i)->id, .how = PROTO_KILL});
    for (int turn = 0; turn < 60; turn++) settle(w);
    if (registry_actors(w->r) + registry_groups(w->r) + registry_jobs(w->r) + registry_names(w->r))
        fail_msg("seed %llu: %zu actors, %zu groups, %zu jobs and %zu names are left",
                 (unsigned long long)seed, registry_actors(w->r), registry_groups(w->r), registry_jobs(w->r),
                 registry_names(w->r));
    for (int i = 0; i < w->n_workers; i++) assert_int_equal(w->worker[i], HOME_DEAD);
    assert_int_equal(w->mail.n, 0);
    registry_free(w->r);
    refs_free(w->refs);
    vec_release(&w->mail);
    mem_free(w);
}

static void simulated(void **state)
{
    (void)state;
    sim_run(1500, run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
