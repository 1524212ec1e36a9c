/* strategy.c - a program's own loop on several replicas: variables, commits, running again.
 *
 *   manta_strategy_run()
 *     begin_run()     the caller's values are commit 0, in buffer 0
 *     run_forked()    a process for each replica           } again and again, until nobody is lost
 *     run_here()      this process is one of TF_CONFIG's   } or too many were, without a commit
 *       each          joins the group, copies the committed buffer, calls the program's function
 *         commit      barrier; rank 0 writes the other buffer, then the word; barrier
 *     end_run()       the committed buffer becomes the caller's values
 *
 * A replica runs until its function returns: it is done then, and has left its error in its
 * epitaph when there was one. A process that ends before that is lost. Losses are tried again
 * from the last commit; errors are not, and the one that came first is told.
 *
 * Who writes what: a buffer and the word rank 0, in a commit, while all others wait between two
 * barriers (of several hosts each process its own memory); an epitaph its replica; the caller
 * all of it, before the first and after the last replica runs. A replica's copies are its own.
 * The function and its argument are sent to nobody: a forked replica has them as it has all
 * memory of its caller, and with TF_CONFIG every process calls manta_strategy_run() itself.
 *
 * Why that is safe: the word is written after the buffer that it names, and the buffer that it
 * named before stays whole until the commit after. Whoever dies, wherever, leaves one buffer
 * whole and a word that names it. The death of one fails every call of the others' group, so
 * that all leave; nobody is started before all are gone. Hosts whose words differ take over the
 * furthest one on entering (agree_on_commit()).
 *
 * What may be changed: how often to try, and what counts as a loss. What may not: to commit
 * without the first barrier, since a step counts when all replicas have come through it, or
 * without the second one, since a replica goes on from the word that it sees after it. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/strategy.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/cpu.h"
#include "os/shm.h"
#include "os/spawner.h"
#include "os/sys.h"
#include "train/cluster/tf_config.h"
#include "train/session/session.h"
#include "train/trainer/strategy_memory.h"

enum {
    MAX_FAILURES = 3,
    VALUE_BYTES = 1 << 20,
};

/* ---- opening ---- */

static manta_status read_tf_config(manta_strategy *s, const char *text)
{
    tf_config c;
    tf_job type;
    int index;
    manta_status st = tf_config_parse(text, &c);

    if (st) return st;
    s->n = c.local ? 1 : tf_config_ranks(&c);
    s->rank = c.local ? 0 : tf_config_rank(&c);
    if (s->rank < 0) {
        st = manta_fail(MANTA_EUNSUPPORTED,
                        "TF_CONFIG: a %s takes no part in a strategy's loop, expected a chief or a worker",
                        tf_job_name(c.type));
    } else if (s->n > MANTA_GROUP_MAX) {
        st = manta_fail(MANTA_EINVAL, "TF_CONFIG: %d replicas, expected at most %d", s->n, MANTA_GROUP_MAX);
    } else if (s->n > 1) {
        tf_config_task(&c, 0, &type, &index);
        snprintf(s->address, sizeof s->address, "%s", c.address[type][index]);
    }
    tf_config_release(&c);
    return st;
}

static manta_status settle_kind(manta_strategy *s)
{
    const char *text = getenv("TF_CONFIG");
    manta_replication kind = s->o.kind;

    if (kind == MANTA_REPLICATION_AUTO)
        kind = text && *text ? MANTA_REPLICATION_MULTI_WORKER : MANTA_REPLICATION_MIRRORED;
    if (kind == MANTA_REPLICATION_MULTI_WORKER) return read_tf_config(s, text);
    s->n = kind == MANTA_REPLICATION_ONE_DEVICE ? 1 : s->o.replicas > 0 ? s->o.replicas : cpu_cores();
    s->here = kind == MANTA_REPLICATION_MIRRORED ? s->n : 0;
    if (s->o.replicas < 0 || s->n > MANTA_GROUP_MAX)
        return manta_fail(MANTA_EINVAL,
                          "strategy: %d replicas asked for, expected 1 to %d (0: one for each core)",
                          s->o.replicas ? s->o.replicas : s->n, MANTA_GROUP_MAX);
    return MANTA_OK;
}

manta_status manta_strategy_open(const manta_strategy_options *options, manta_strategy **out)
{
    REFUSE_NULL(out);

    manta_strategy *s = mem_new(sizeof *s);
    manta_status st;

    if (options) s->o = *options;
    if (!s->o.max_failures) s->o.max_failures = MAX_FAILURES;
    s->value_size = strategy_round_up(s->o.value_bytes ? s->o.value_bytes : VALUE_BYTES);
    s->fd = -1;
    if ((st = settle_kind(s))) {
        manta_strategy_close(s);
        return st;
    }
    *out = s;
    return MANTA_OK;
}

void manta_strategy_close(manta_strategy *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->variables.n; i++) {
        mem_free(s->variables.at[i].name);
        if (s->variables.at[i].name) mem_try_free(s->variables.at[i].copy);
    }
    vec_release(&s->variables);
    if (s->memory) shm_unmap(s->memory, s->size);
    if (s->fd >= 0) os->close(s->fd);
    mem_free(s);
}

int manta_strategy_replicas(const manta_strategy *s)
{
    REFUSE_NULL_OR(s, 0);
    return s->n;
}

bool manta_strategy_is_chief(const manta_strategy *s)
{
    REFUSE_NULL_OR(s, false);
    return s->here || s->rank == 0;
}

/* ---- variables ---- */

static variable *find_variable(const manta_strategy *s, const char *name)
{
    for (size_t i = 0; i < s->variables.n; i++) {
        variable *v = &s->variables.at[i];
        if (v->name && !strcmp(v->name, name)) return v;
    }
    return NULL;
}

/* Room in the buffers; after the first run they cannot grow. */
static manta_status add_variable(manta_strategy *s, variable v)
{
    if (s->running || s->memory)
        return manta_fail(MANTA_EINVAL,
                          "strategy: a variable or session is added %s, expected before the first run",
                          s->running ? "during a run" : "after a run");
    v.offset = s->buffer_size;
    s->buffer_size += strategy_round_up(v.size);
    vec_push(&s->variables, v);
    return MANTA_OK;
}

manta_status manta_strategy_variable(manta_strategy *s, const char *name, const manta_array *value)
{
    REFUSE_NULL(s);
    REFUSE_NULL(name);
    REFUSE_NULL(value);

    variable v = {.value = *value, .size = manta_array_bytes(value)};
    manta_status st;

    if (find_variable(s, name))
        return manta_fail(MANTA_EEXIST, "strategy: there is a variable '%s' already", name);
    if (!manta_array_is_contiguous(value))
        return manta_fail(MANTA_EINVAL, "variable '%s' has strides of its own, expected a row-major array",
                          name);
    TRY(mem_try_array((int64_t)v.size + 1, 1, "a variable", &v.copy));
    v.name = mem_strdup(name);
    if ((st = add_variable(s, v))) {
        mem_free(v.name);
        mem_try_free(v.copy);
    }
    return st;
}

manta_status manta_strategy_mirror(manta_strategy *s, manta_session *session)
{
    REFUSE_NULL(s);
    REFUSE_NULL(session);

    if (session->engine.ops != &engine_local || session->shards > 1) {
        return manta_fail(MANTA_EINVAL,
                          "strategy: a session of %d shards%s cannot be mirrored, expected one shard in this "
                          "process: the replicas are the others",
                          session->shards,
                          session->engine.ops != &engine_local ? " in several processes" : "");
    }
    if (session->on) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "strategy: a session on a device cannot be mirrored, expected one on the processor");
    }
    return add_variable(s, (variable){.s = session, .size = session->l.state_size});
}

static void *memory_of(const variable *v)
{
    return v->s ? v->s->state : v->copy;
}

static void *start_of(const variable *v)
{
    return v->s ? v->s->state : v->value.data;
}

/* Takes over what is committed. */
static void take_copies(manta_replica *r)
{
    manta_strategy *s = r->s;

    r->seen = atomic_load(&commits_of(s)->word);
    for (size_t i = 0; i < s->variables.n; i++) {
        const variable *v = &s->variables.at[i];
        memcpy(memory_of(v), buffer_of(s, (int)(r->seen & 1)) + v->offset, v->size);
    }
}

static void put_copies(const manta_strategy *s, int buffer)
{
    for (size_t i = 0; i < s->variables.n; i++) {
        const variable *v = &s->variables.at[i];
        memcpy(buffer_of(s, buffer) + v->offset, memory_of(v), v->size);
    }
}

/* Step 0 is what the caller has. */
static manta_status begin_run(manta_strategy *s)
{
    commits *c;

    if (!s->memory) {
        void *at;
        s->buffer_size = strategy_round_up(s->buffer_size);
        s->size =
            shm_round(strategy_round_up(sizeof(commits)) + 2 * s->buffer_size + (size_t)s->n * s->value_size);
        TRY(shm_new("manta-strategy", s->size, &s->fd));
        TRY(shm_map(s->fd, s->size, true, &at));
        s->memory = at;
    }
    c = commits_of(s);
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < s->variables.n; i++) {
        const variable *v = &s->variables.at[i];
        memcpy(buffer_of(s, 0) + v->offset, start_of(v), v->size);
    }
    return MANTA_OK;
}

static void end_run(manta_strategy *s)
{
    uint64_t word = atomic_load(&commits_of(s)->word);

    for (size_t i = 0; i < s->variables.n; i++) {
        const variable *v = &s->variables.at[i];
        memcpy(start_of(v), buffer_of(s, (int)(word & 1)) + v->offset, v->size);
    }
}

/* ---- commits ---- */

static void publish_commit(manta_replica *r, int64_t step)
{
    commits *c = commits_of(r->s);
    int buffer = 1 - (int)(r->seen & 1);

    put_copies(r->s, buffer);
    c->step[buffer] = step;
    atomic_store(&c->word, ((r->seen >> 1) + 1) << 1 | (uint64_t)buffer);
}

manta_status manta_replica_commit(manta_replica *r, int64_t step)
{
    REFUSE_NULL(r);
    REFUSE_NEGATIVE(step);

    TRY(manta_group_barrier(r->g));
    if (!r->s->here || r->rank == 0) publish_commit(r, step);
    TRY(manta_group_barrier(r->g));
    r->seen = atomic_load(&commits_of(r->s)->word);
    return MANTA_OK;
}

/* Of several hosts' states the furthest: who is behind receives it. */
static manta_status agree_on_commit(manta_replica *r)
{
    manta_strategy *s = r->s;
    commits *c = commits_of(s);
    uint64_t word = atomic_load(&c->word);
    int64_t mine[2] = {(int64_t)(word >> 1), c->step[word & 1]}, all[2 * MANTA_GROUP_MAX];
    int best = 0;

    TRY(manta_group_all_gather(r->g, mine, all, 2, MANTA_DTYPE_I64));
    for (int i = 1; i < s->n; i++) {
        if (all[2 * i] > all[2 * best]) best = i;
    }
    for (size_t i = 0; i < s->variables.n; i++) {
        const variable *v = &s->variables.at[i];
        TRY(manta_group_broadcast(r->g, buffer_of(s, (int)(word & 1)) + v->offset, (int64_t)v->size,
                                  MANTA_DTYPE_U8, best));
    }
    c->step[word & 1] = all[2 * best + 1];
    atomic_store(&c->word, (uint64_t)all[2 * best] << 1 | (word & 1));
    return MANTA_OK;
}

/* ---- a replica ---- */

int manta_replica_rank(const manta_replica *r)
{
    REFUSE_NULL_OR(r, 0);
    return r->rank;
}

int manta_replica_count(const manta_replica *r)
{
    REFUSE_NULL_OR(r, 0);
    return r->s->n;
}

manta_group *manta_replica_group(manta_replica *r)
{
    REFUSE_NULL_OR(r, NULL);
    return r->g;
}

int64_t manta_replica_step(const manta_replica *r)
{
    REFUSE_NULL_OR(r, 0);
    return commits_of(r->s)->step[r->seen & 1];
}

manta_status manta_replica_variable(manta_replica *r, const char *name, manta_array *out)
{
    REFUSE_NULL(r);
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    const variable *v = find_variable(r->s, name);

    if (!v) return manta_fail(MANTA_ENOENT, "strategy: no variable is called '%s'", name);
    *out = v->value;
    out->data = v->copy;
    return MANTA_OK;
}

/* ---- running, here ---- */

static manta_status open_group(const manta_strategy *s, manta_group_plan **gp, manta_group **g)
{
    if (s->n > 1) return manta_group_open(s->address, s->rank, s->n, &s->o.group, g);
    TRY(manta_group_plan_new(1, &s->o.group, gp));
    return manta_group_join(*gp, 0, g);
}

/* This process is one replica; the others are where TF_CONFIG says. */
static manta_status run_here(manta_strategy *s, manta_replica_fn fn, void *user)
{
    int failures = 0;

    for (;;) {
        uint64_t before = atomic_load(&commits_of(s)->word);
        manta_replica r = {.s = s, .rank = s->rank};
        manta_group_plan *gp = NULL;
        manta_status st = open_group(s, &gp, &r.g);
        if (!st && s->n > 1) st = agree_on_commit(&r);
        if (!st) {
            take_copies(&r);
            st = fn(&r, user);
        }
        if (st && st != MANTA_EDIED && r.g) manta_group_abort(r.g, manta_error_text());
        manta_group_close(r.g);
        manta_group_plan_free(gp);
        if (st != MANTA_EDIED || s->n == 1) return st;
        if (atomic_load(&commits_of(s)->word) != before) failures = 0;
        if (++failures > s->o.max_failures) return st;
        if (s->o.recovered)
            s->o.recovered(s->o.user, -1, manta_error_text(),
                           commits_of(s)->step[atomic_load(&commits_of(s)->word) & 1]);
    }
}

/* ---- running, forked ---- */

/* A replica that is to be. */
typedef struct replica_birth {
    manta_strategy *s;
    const manta_group_plan *gp;
    int rank;
    manta_replica_fn fn;
    void *user;
} replica_birth;

static void run_replica(void *ctx)
{
    const replica_birth *b = ctx;
    manta_strategy *s = b->s;
    int rank = b->rank;
    manta_replica r = {.s = s, .rank = rank};
    epitaph *e;
    manta_status st;
    void *at;

    manta_error_origin(NULL, rank);
    if (shm_map(s->fd, s->size, true, &at)) _exit(1); /* a mapping is not inherited */
    s->memory = at;
    e = &commits_of(s)->end[rank];
    for (size_t i = 0; i < s->variables.n; i++) {
        manta_session *session = s->variables.at[i].s;
        if (!session) continue;
        session_after_fork(session);
        if (session->threads * s->n > cpu_cores())
            session->threads = cpu_cores() > s->n ? cpu_cores() / s->n : 1;
    }
    st = manta_group_join(b->gp, rank, &r.g);
    if (!st) {
        take_copies(&r);
        st = b->fn(&r, b->user);
    }
    if (st) {
        manta_error_get(&e->error);
        e->order = atomic_fetch_add(&commits_of(s)->failed, 1) + 1;
        if (r.g) manta_group_abort(r.g, manta_error_text());
    }
    atomic_store(&e->done, 1);
    manta_group_close(r.g);
    fflush(NULL);
    _exit(st ? 1 : 0);
}

typedef struct brood {
    spawn_child child[MANTA_GROUP_MAX];
    int n;
    int lost; /* rank of one that died; -1: none */
    char cause[96];
} brood;

static void collect_replicas(manta_strategy *s, brood *b)
{
    b->lost = -1;
    for (int i = 0; i < b->n; i++) {
        int status = spawn_wait(&b->child[i]);
        if (atomic_load(&commits_of(s)->end[i].done) || b->lost >= 0) continue;
        b->lost = i;
        spawn_status_text(status, b->cause, sizeof b->cause);
    }
}

/* One attempt. What the values and epitaphs of the one before were is forgotten. */
static manta_status run_brood(manta_strategy *s, manta_replica_fn fn, void *user, brood *b)
{
    commits *c = commits_of(s);
    manta_group_plan *gp;
    manta_status st = MANTA_OK;

    memset(c->end, 0, sizeof c->end);
    atomic_store(&c->failed, 0);
    *b = (brood){.lost = -1};
    TRY(manta_group_plan_new(s->n, &s->o.group, &gp));
    while (b->n < s->n && !st) {
        replica_birth birth = {.s = s, .gp = gp, .rank = b->n, .fn = fn, .user = user};
        spawn_options o = {.run = run_replica, .ctx = &birth, .dies_with_parent = true, .flush = true};
        if (!(st = spawn_start(&o, &b->child[b->n]))) b->n++;
    }
    for (int i = 0; st && i < b->n; i++) spawn_signal(&b->child[i], SIGKILL);
    collect_replicas(s, b);
    manta_group_plan_free(gp);
    return st;
}

/* The error of the replica that failed first: the others failed because of it. */
static manta_status raise_first(const manta_strategy *s)
{
    const commits *c = commits_of(s);

    for (int i = 0; i < s->n; i++) {
        const manta_error *e = &c->end[i].error;
        if (c->end[i].order != 1) continue;
        return manta_fail(e->code ? e->code : MANTA_EINTERNAL, "replica %d: %s", i, e->text);
    }
    return MANTA_OK;
}

static manta_status run_forked(manta_strategy *s, manta_replica_fn fn, void *user)
{
    int failures = 0;

    for (;;) {
        uint64_t before = atomic_load(&commits_of(s)->word), word;
        brood b;
        TRY(run_brood(s, fn, user, &b));
        if (b.lost < 0) return raise_first(s);
        word = atomic_load(&commits_of(s)->word);
        if (word != before) failures = 0;
        if (++failures > s->o.max_failures) {
            return manta_fail(
                MANTA_EDIED,
                "replicas were lost %d times in a row without a commit; the last, replica %d, %s", failures,
                b.lost, b.cause);
        }
        if (s->o.recovered) s->o.recovered(s->o.user, b.lost, b.cause, commits_of(s)->step[word & 1]);
    }
}

manta_status manta_strategy_run(manta_strategy *s, manta_replica_fn fn, void *user)
{
    REFUSE_NULL(s);
    REFUSE_NULL(fn);

    manta_status st;

    if (s->running)
        return manta_fail(MANTA_EINVAL, "strategy: a run is asked for during a run of the same strategy");
    TRY(begin_run(s));
    s->running = true;
    st = s->here ? run_forked(s, fn, user) : run_here(s, fn, user);
    s->running = false;
    end_run(s);
    return st;
}
