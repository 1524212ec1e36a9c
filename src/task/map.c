/* map.c - one function over many inputs (manta/task.h), on the public calls and
 * one built-in function, which runs a chunk of inputs (functions.c).
 *
 * Inputs are asked for as room in the window comes free, so that neither they
 * nor the results pile up: items is what was submitted and not yet taken. */
#include <manta/actor.h>
#include <manta/context.h>
#include <manta/map.h>
#include <manta/task.h>

#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/vec.h"
#include "task/sizes.h"

typedef struct item {
    size_t index;
    manta_ref ref;
    int actor; /* that it was given to */
} item;

struct manta_map {
    char *function;
    manta_map_options o;
    manta_task_options task;
    manta_actor *actors;
    int *busy; /* chunks that each actor has */
    manta_map_input *input;
    void *user;
    size_t next; /* input */
    bool ended; /* there are no more */
    VEC(item) items; /* in the order of the inputs */
};

manta_status manta_map_start(const char *function, const manta_map_options *options, manta_map_input *input,
                             void *user, manta_map **out)
{
    REFUSE_NULL(function);
    REFUSE_NULL(input);
    REFUSE_NULL(out);

    manta_node_info info;
    manta_map_options o = options ? *options : (manta_map_options){0};

    if (!manta_is_initialized())
        return manta_fail(MANTA_EINVAL, "there is no node: manta_init() was not called");
    if (o.chunk > MAP_CHUNK_MOST)
        return manta_fail(MANTA_EINVAL, "chunks of %zu inputs are asked for, at most %d are possible",
                          o.chunk, MAP_CHUNK_MOST);
    if (o.n_actors < 0) return manta_fail(MANTA_EINVAL, "n_actors is %d, expected 0 or more", o.n_actors);
    if (o.chunk == 0) o.chunk = 1;
    if (o.window == 0 && o.n_actors > 0) o.window = 2 * (size_t)o.n_actors;
    if (o.window == 0) {
        TRY(manta_node_get(&info));
        o.window = info.cpus >= 1 ? 4 * (size_t)info.cpus : 4;
    }
    manta_map *m = mem_new(sizeof *m);
    m->function = mem_strdup(function);
    if (o.task) m->task = *o.task;
    m->o = o;
    m->o.task = NULL;
    m->actors = mem_new((size_t)o.n_actors * sizeof *m->actors + 1);
    m->busy = mem_new((size_t)o.n_actors * sizeof *m->busy + 1);
    for (int i = 0; i < o.n_actors; i++) m->actors[i] = o.actors[i];
    m->input = input;
    m->user = user;
    *out = m;
    return MANTA_OK;
}

void manta_map_free(manta_map *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->items.n; i++) {
        (void)!manta_cancel(m->items.at[i].ref, 0); /* one that has ended needs none */
        manta_release(m->items.at[i].ref);
    }
    vec_release(&m->items);
    mem_free(m->actors);
    mem_free(m->busy);
    mem_free(m->function);
    mem_free(m);
}

/* The next inputs, at most a chunk, as arguments that own what they refer to:
 * owned[i] is to be released. */
static manta_status gather_inputs(manta_map *m, manta_arg *args, manta_ref *owned, size_t *n)
{
    for (*n = 0; *n < m->o.chunk; (*n)++) {
        manta_arg a;
        memset(&a, 0, sizeof a);
        manta_status st = m->input(m->user, m->next + *n, &a);
        if (st == MANTA_ENOENT) {
            m->ended = true;
            return MANTA_OK;
        }
        if (st) return st;
        owned[*n].id = 0;
        if (a.kind == MANTA_KIND_STR || a.kind == MANTA_KIND_BYTES || a.kind == MANTA_KIND_ARRAY) {
            owned[*n] = manta_put(a); /* the user's memory may be another's by the next input */
            a = manta_of_ref(owned[*n]);
        }
        args[*n] = a;
    }
    return MANTA_OK;
}

static int least_busy(const manta_map *m)
{
    int best = 0;

    for (int i = 1; i < m->o.n_actors; i++)
        if (m->busy[i] < m->busy[best]) best = i;
    return best;
}

/* Submits one chunk: the function itself for one input, else the built-in one
 * that runs it for each. */
static void submit_chunk(manta_map *m, const manta_arg *args, size_t n)
{
    manta_arg all[MAP_CHUNK_MOST + 1];
    manta_ref refs[MAP_CHUNK_MOST];
    int count = (int)n, actor = least_busy(m);
    bool many = m->o.chunk > 1;

    all[0] = manta_str(m->function);
    memcpy(all + 1, args, n * sizeof *args);
    const char *name = many ? "manta.map" : m->function;
    const manta_arg *given = many ? all : all + 1;
    if (m->o.n_actors > 0) {
        manta_actor_submit_with(m->actors[actor], name, &m->task, count + many, given, count, refs);
        m->busy[actor]++;
    } else {
        manta_submit(name, &m->task, count + many, given, count, refs);
    }
    for (size_t i = 0; i < n; i++)
        vec_push(&m->items, ((item){.index = m->next + i, .ref = refs[i], .actor = actor}));
    m->next += n;
}

static manta_status fill_window(manta_map *m)
{
    while (!m->ended && m->items.n + m->o.chunk <= m->o.window * m->o.chunk) {
        manta_arg args[MAP_CHUNK_MOST];
        manta_ref owned[MAP_CHUNK_MOST];
        size_t n;
        manta_status st = gather_inputs(m, args, owned, &n);
        if (!st && n > 0) submit_chunk(m, args, n);
        for (size_t i = 0; i < n; i++) manta_release(owned[i]);
        if (st) return st;
    }
    return MANTA_OK;
}

manta_status manta_map_next(manta_map *m, size_t *index, manta_ref *out, int64_t timeout_ms)
{
    REFUSE_NULL(m);
    REFUSE_NULL(out);

    TRY(fill_window(m));
    size_t n = m->o.unordered ? m->items.n : m->items.n > 0, found = 0, at = 0;
    if (n == 0) return manta_fail(MANTA_ENOENT, "all results were taken");
    manta_ref *refs = mem_new(n * sizeof *refs);
    bool *ready = mem_new(n * sizeof *ready);
    for (size_t i = 0; i < n; i++) refs[i] = m->items.at[i].ref;
    manta_status st = manta_wait(refs, n, 1, timeout_ms, ready, &found);
    while (!st && found && !ready[at]) at++;
    mem_free(refs);
    mem_free(ready);
    if (st) return st;
    if (!found)
        return manta_fail(MANTA_ETIMEDOUT, "no result of %s after %lld ms", m->function,
                          (long long)timeout_ms);
    *out = m->items.at[at].ref;
    if (index) *index = m->items.at[at].index;
    /* An actor is free of a chunk with the last of its results. */
    item taken = m->items.at[at];
    vec_remove(&m->items, at);
    bool others = false;
    for (size_t i = 0; i < m->items.n; i++)
        others = others || m->items.at[i].index / m->o.chunk == taken.index / m->o.chunk;
    if (m->o.n_actors > 0 && !others) m->busy[taken.actor]--;
    return MANTA_OK;
}
