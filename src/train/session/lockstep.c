/* lockstep.c - the shards of a step, node by node side by side; see lockstep.h for what it is for.
 *
 *     states of a shard here, in a step:
 *
 *       NONE ──begin──▶ FORWARD ──▶ BETWEEN ──▶ BACKWARD ──▶ DONE ──begin, the next step──▶ FORWARD
 *                        │   ▲                   │   ▲
 *                        └───┘ waits             └───┘ waits: the call returns, and is made again
 *
 *     the area:  for each node at which shards meet (a stop)
 *       | forward: spot of shard 0 | ... | of shard V-1 | backward: spot of shard 0 | ... | of shard V-1 |
 *       a spot:  flag of the step | its numbers
 *
 * Who writes what: a spot is written by whoever computes its shard, numbers first and then the flag; for shards of
 * processes that share no memory by who receives (lockstep_find(), lockstep_arrived()). Who finds the flag of the
 * step there leaves the spot as it is, because others may be reading it. That two processes compute a shard does
 * no harm: they leave the same numbers. shard_run, with its activations and its pause, belongs to this process
 * alone.
 *
 * What may be changed: how the area is laid out, which every process works out from the model and V. What may not:
 * that sums are added in shard order, which decides their bits; that shards without samples take no part; and that
 * whoever leaves the last numbers of a stop calls `told`. */
#include "train/session/lockstep.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "nn/graph.h"

/* ---- the area ---- */

enum { LINE = 64 };

/* What one shard leaves at one place. */
typedef struct spot {
    _Alignas(LINE) _Atomic uint64_t flag;
    double values[];
} spot;

/* A node where shards meet: one spot per shard, forward and backward. */
typedef struct stop {
    uint32_t call; /* number of the node */
    int64_t n;
    size_t offset, stride;
} stop;

typedef enum phase { PHASE_NONE, PHASE_FORWARD, PHASE_BETWEEN, PHASE_BACKWARD, PHASE_DONE } phase;

typedef struct shard_run {
    lockstep *l;
    int shard;
    exec *e; /* NULL until it is first needed */
    op_meeting meeting;
    uint64_t flag;
    int64_t count;
    phase at;
    uint32_t *left; /* places where it has left its numbers, in that order; 2 n_places */
    int n_left, n_taken;
    exec_pause pause;
    manta_feed f;
    void *kept; /* memory of f, when it is a copy */
    size_t kept_size;
    void *slot;
} shard_run;

struct lockstep {
    manta_session *s;
    char *area, *own; /* own: to be freed */
    void (*told)(void *ctx);
    void *ctx;
    int n_places;
    stop *places;
    shard_run *runs;
};

static int64_t channels_of(const manta_model *m, const graph_node *g)
{
    const manta_array *a = &m->values[g->in[0]].a;

    return a->ndim ? a->shape[a->ndim - 1] : 0;
}

/* Where things lie; places may be NULL. */
static size_t lay_out(const manta_model *m, int shards, stop *places, int *n_places)
{
    size_t at = 0;
    int n = 0;

    for (int i = 0; i < m->n_nodes; i++) {
        const graph_node *g = &m->nodes[i];
        int64_t numbers = g->n_in ? op_meeting_size(g->op, channels_of(m, g)) : 0;
        size_t stride = (sizeof(spot) + (size_t)numbers * sizeof(double) + LINE - 1) / LINE * LINE;
        if (!numbers) continue;
        if (places) places[n] = (stop){.call = (uint32_t)i, .n = numbers, .offset = at, .stride = stride};
        at += 2 * (size_t)shards * stride;
        n++;
    }
    if (n_places) *n_places = n;
    return at;
}

size_t lockstep_size(const manta_model *m, int shards)
{
    return lay_out(m, shards, NULL, NULL);
}

static spot *spot_of(const lockstep *l, const stop *p, bool backward, int shard)
{
    size_t index = (size_t)shard + (backward ? (size_t)l->s->shards : 0);

    return (spot *)(void *)(l->area + p->offset + index * p->stride);
}

/* ---- meeting ---- */

static bool takes_part(const shard_run *r, int shard)
{
    return session_shard_begin(r->l->s, r->count, shard) < session_shard_begin(r->l->s, r->count, shard + 1);
}

static bool all_there(const shard_run *r, const stop *p, bool backward)
{
    for (int v = 0; v < r->l->s->shards; v++) {
        if (!takes_part(r, v)) continue;
        if (atomic_load(&spot_of(r->l, p, backward, v)->flag) != r->flag) return false;
    }
    return true;
}

/* A predecessor's are the same, and others may be reading them. */
static void leave_numbers(shard_run *r, const stop *p, bool backward, const double *mine)
{
    spot *to = spot_of(r->l, p, backward, r->shard);

    assert(r->n_left < 2 * r->l->n_places); /* a node meets once each way */
    r->left[r->n_left++] = 2 * (uint32_t)(p - r->l->places) + backward;
    if (atomic_load(&to->flag) == r->flag) return;
    memcpy(to->values, mine, (size_t)p->n * sizeof *mine);
    atomic_store(&to->flag, r->flag);
    if (r->l->told && all_there(r, p, backward)) r->l->told(r->l->ctx);
}

static bool meet_shards(void *ctx, uint32_t call, bool backward, int64_t n, const double *mine, double *sums)
{
    shard_run *r = ctx;
    const lockstep *l = r->l;
    const stop *p = l->places;

    while (p->call != call) p++; /* every node that meets has a place */
    if (mine) leave_numbers(r, p, backward, mine);
    if (!all_there(r, p, backward)) return false;
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int v = 0; v < l->s->shards; v++) {
        const double *from = spot_of(l, p, backward, v)->values;
        if (!takes_part(r, v)) continue;
        for (int64_t i = 0; i < n; i++) sums[i] += from[i];
    }
    return true;
}

/* ---- life ---- */

manta_status lockstep_new(manta_session *s, void *area, void (*told)(void *ctx), void *ctx, lockstep **out)
{
    lockstep *l = mem_new(sizeof *l);
    size_t size = lockstep_size(s->m, s->shards);
    manta_status st = MANTA_OK;

    *l = (lockstep){.s = s, .area = area, .told = told, .ctx = ctx};
    l->places = mem_new(((size_t)s->m->n_nodes + 1) * sizeof *l->places);
    l->runs = mem_new((size_t)s->shards * sizeof *l->runs);
    lay_out(s->m, s->shards, l->places, &l->n_places);
    if (!area) {
        if ((st = mem_try_array((int64_t)size, 1, "statistics of shards", (void **)&l->own))) goto out;
        memset(l->own, 0, size);
        l->area = l->own;
    }
    *out = l;
    l = NULL;
out:
    lockstep_free(l);
    return st;
}

void lockstep_free(lockstep *l)
{
    if (!l) return;
    for (int v = 0; v < l->s->shards; v++) {
        exec_free(l->runs[v].e);
        mem_free(l->runs[v].left);
        mem_try_free(l->runs[v].kept);
    }
    mem_try_free(l->own);
    mem_free(l->places);
    mem_free(l->runs);
    mem_free(l);
}

/* ---- a shard ---- */

static size_t round_up(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

static void *move_in(char *to, size_t *at, const void *from, size_t size)
{
    void *here = to + *at;

    memcpy(here, from, size);
    *at += round_up(size);
    return here;
}

/* Copies the arrays of a feed, because the loader uses its buffers again. */
static manta_status keep_feed(shard_run *r, const manta_feed *f)
{
    size_t size = 0, at = 0;

    for (int i = 0; i < f->n_inputs; i++) size += round_up(manta_array_bytes(&f->inputs[i]));
    for (int i = 0; i < f->n_targets; i++) {
        size += round_up(manta_array_bytes(&f->targets[i]));
        if (f->weights[i]) size += round_up((size_t)f->count * sizeof *f->weights[i]);
    }
    if (size > r->kept_size) {
        mem_try_free(r->kept);
        r->kept = NULL;
        r->kept_size = 0;
        TRY(mem_try_array((int64_t)size, 1, "the samples of a shard", &r->kept));
        r->kept_size = size;
    }
    r->f = *f;
    for (int i = 0; i < f->n_inputs; i++)
        r->f.inputs[i].data = move_in(r->kept, &at, f->inputs[i].data, manta_array_bytes(&f->inputs[i]));
    for (int i = 0; i < f->n_targets; i++) {
        r->f.targets[i].data = move_in(r->kept, &at, f->targets[i].data, manta_array_bytes(&f->targets[i]));
        if (f->weights[i])
            r->f.weights[i] = move_in(r->kept, &at, f->weights[i], (size_t)f->count * sizeof *f->weights[i]);
    }
    return MANTA_OK;
}

bool lockstep_is_begun(const lockstep *l, int shard, uint64_t flag)
{
    return l->runs[shard].at != PHASE_NONE && l->runs[shard].flag == flag;
}

manta_status lockstep_begin(lockstep *l, int shard, uint64_t flag, int64_t count, const manta_feed *f,
                            void *slot, bool keep)
{
    shard_run *r = &l->runs[shard];
    manta_session *s = l->s;

    r->at = PHASE_NONE;
    r->l = l;
    r->shard = shard;
    r->meeting = (op_meeting){meet_shards, r};
    if (!r->e) {
        exec_options o = {.kernels = s->k, .debug = s->debug, .pool = s->pool};
        TRY(exec_new(s->m, &s->l, &s->o, &o, &r->e));
        r->left = mem_new(2 * (size_t)l->n_places * sizeof *r->left);
    }
    if (keep) {
        TRY(keep_feed(r, f));
    } else {
        r->f = *f;
    }
    r->flag = flag;
    r->count = count;
    r->slot = slot;
    r->n_left = r->n_taken = 0;
    r->pause = (exec_pause){0};
    r->at = PHASE_FORWARD;
    return MANTA_OK;
}

static exec_run run_of(const shard_run *r)
{
    exec_run run = session_run(r->l->s, PLAN_TRAIN, &r->f, r->slot);

    run.meeting = &r->meeting;
    return run;
}

manta_status lockstep_forward(lockstep *l, int shard, bool *waits)
{
    shard_run *r = &l->runs[shard];
    exec_run run = run_of(r);

    *waits = false;
    if (r->at != PHASE_FORWARD) return MANTA_OK;
    TRY(exec_forward_on(r->e, &run, &r->pause));
    *waits = r->pause.waits;
    if (*waits) return MANTA_OK;
    r->pause = (exec_pause){0};
    r->at = PHASE_BETWEEN;
    return MANTA_OK;
}

manta_status lockstep_backward(lockstep *l, int shard, bool *waits)
{
    shard_run *r = &l->runs[shard];
    exec_run run = run_of(r);

    *waits = false;
    if (r->at == PHASE_BETWEEN) r->at = PHASE_BACKWARD;
    if (r->at != PHASE_BACKWARD) return MANTA_OK;
    TRY(exec_backward_on(r->e, &run, &r->pause));
    *waits = r->pause.waits;
    if (!*waits) r->at = PHASE_DONE;
    return MANTA_OK;
}

/* ---- other processes ---- */

bool lockstep_take_left(lockstep *l, int shard, lockstep_numbers *out)
{
    shard_run *r = &l->runs[shard];
    const stop *p;
    uint32_t where;

    if (r->n_taken == r->n_left) return false;
    where = r->left[r->n_taken++];
    p = &l->places[where / 2];
    *out = (lockstep_numbers){.place = where, .values = spot_of(l, p, where % 2, shard)->values, .n = p->n};
    return true;
}

double *lockstep_find(lockstep *l, uint32_t where, int64_t shard, uint64_t flag, int64_t *n)
{
    spot *to;

    if (where / 2 >= (uint32_t)l->n_places || shard < 0 || shard >= l->s->shards) return NULL;
    to = spot_of(l, &l->places[where / 2], where % 2, (int)shard);
    if (atomic_load(&to->flag) == flag) return NULL;
    *n = l->places[where / 2].n;
    return to->values;
}

void lockstep_arrived(lockstep *l, uint32_t where, int64_t shard, uint64_t flag)
{
    atomic_store(&spot_of(l, &l->places[where / 2], where % 2, (int)shard)->flag, flag);
}
