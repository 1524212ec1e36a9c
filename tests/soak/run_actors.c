/* run_actors.c - actors of a program; see run.h. */
#include <stdlib.h>

#include <manta/actor.h>

#include "run.h"

static void name_of(char *text, size_t size, int id, int i)
{
    snprintf(text, size, "soak-%d-%d", id, i);
}

/* Hundredths of a core for each of n actors, of those that actors may have. */
static int64_t cores_for(soak_run *r, int64_t wanted, int n)
{
    if (wanted <= 0 || r->used_actor_cores + wanted * n > 100 * r->actor_cores) return 0;
    r->used_actor_cores += (int)wanted * n;
    return wanted;
}

void soak_do_actor(soak_run *r, const soak_op *op)
{
    int n = op->f[SOAK_N] > 0 ? (int)op->f[SOAK_N] : 1;
    soak_slot *s = soak_slot_fill(r, op, SOAK_ACTORS, n);
    manta_task_options o = {.max_restarts = op->f[SOAK_RESTARTS] <= -2 ? MANTA_UNLIMITED : 0};
    bool again = op->f[SOAK_RETRIES] <= -2;
    char name[32];

    int64_t cores = cores_for(r, op->f[SOAK_CPUS], n);
    if (cores > 0) o.num_cpus = (double)cores / 100;
    o.max_task_retries = again ? MANTA_UNLIMITED : 0;
    o.max_concurrency = (int)op->f[SOAK_PARALLEL];
    s->named = op->f[SOAK_NAMED] != 0;
    s->parallel = o.max_concurrency > 1 ? o.max_concurrency : 1;
    s->is_counted = s->parallel == 1 && !r->few_files && !r->small_store;
    s->actor = soak_expect_of(op->id);
    r->actor_slots |= SOAK_BIT(op->id);
    s->actor.mortal = !(o.max_restarts == MANTA_UNLIMITED && again);
    s->actor.needs_core = cores > 0;
    for (int i = 0; i < n; i++) {
        name_of(name, sizeof name, op->id, i);
        if (s->named) o.name = name;
        s->actors[i] = manta_actor_new(&o, soak_actor);
    }
}

/* The slot of actors that an operation calls; NULL also while one of them is busy with a stream. */
static soak_slot *called_slot(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_ACTORS);

    return s && !s->is_streaming ? s : NULL;
}

/* What a call of an actor may end with now. */
static soak_expect of_actor(const soak_slot *s)
{
    soak_expect e = s->actor;

    if (s->is_ended) e.failures |= MANTA_ON(MANTA_EDIED);
    return e;
}

void soak_do_ready(soak_run *r, const soak_op *op)
{
    soak_slot *s = called_slot(r, op);
    int64_t timeout = op->f[SOAK_TIMEOUT] ? op->f[SOAK_TIMEOUT] : MANTA_FOREVER;

    if (!s) return;
    if (s->actor.needs_core) soak_let_go(r);
    for (int i = 0; i < s->n; i++) {
        manta_status st = manta_actor_ready(s->actors[i], timeout);
        soak_expect e = of_actor(s);
        if (st == MANTA_ETIMEDOUT && timeout >= 0) continue;
        if (st) soak_check_failure(r, &e, st, "an actor that was waited for");
    }
}

void soak_do_method(soak_run *r, const soak_op *op)
{
    soak_slot *s = called_slot(r, op);
    int n = op->f[SOAK_N] > 0 ? (int)op->f[SOAK_N] : 1;

    if (!s) return;
    soak_slot *out = soak_slot_fill(r, op, SOAK_VALUES, n);
    if (op->n_args > 1) s->is_counted = false; /* one that is not given its arguments does not run */
    for (int i = 0; i < n; i++) {
        soak_call c;
        soak_expect a = of_actor(s);
        soak_call_make(r, op, i, 1, &c);
        soak_expect_add(&c.expect, &a);
        manta_actor_submit(s->actors[i % s->n], "soak_method", c.n_args, c.args, 1, &out->refs[i]);
        free(c.bytes);
        s->calls[i % s->n]++;
        s->actor.needs_core |= c.expect.needs_core; /* the next one waits behind it */
        out->expect[i] = c.expect;
        out->expect[i].tag = SOAK_PART(c.expect.tag, 0);
    }
}

void soak_do_count(soak_run *r, const soak_op *op)
{
    soak_slot *s = called_slot(r, op);

    if (!s) return;
    if (s->actor.needs_core) soak_let_go(r);
    for (int i = 0; i < s->n; i++) {
        int64_t v = -1;
        soak_expect e = of_actor(s);
        manta_ref ref = manta_actor_call(s->actors[i], soak_calls);
        manta_status st = manta_get_i64(ref, &v, MANTA_FOREVER);
        bool exact = s->is_counted && r->kills == 0 && !(r->doomed & s->actor.depends);
        if (st) soak_check_failure(r, &e, st, "a count");
        if (!st && (v < 0 || (exact && v != s->calls[i])))
            soak_wrong("actor %d has had %lld calls instead of %lld", i, (long long)v,
                       (long long)s->calls[i]);
        manta_release(ref);
    }
}

void soak_do_via(soak_run *r, const soak_op *op)
{
    soak_slot *s = called_slot(r, op);
    int n = op->f[SOAK_N] > 0 ? (int)op->f[SOAK_N] : 1;
    manta_task_options o = soak_call_options(r, op);

    if (!s) return;
    soak_slot *out = soak_slot_fill(r, op, SOAK_VALUES, n);
    s->is_counted = false;
    s->has_others = true;
    for (int i = 0; i < n; i++) {
        soak_call c;
        soak_expect a = of_actor(s);
        soak_call_make(r, op, i, 1, &c);
        soak_work w = c.work;
        w.size = -1;
        w.depth = 1;
        w.results = 1;
        w.refs = w.fails = w.in_place = 0;
        free(c.bytes);
        soak_expect *e = &out->expect[i];
        *e = soak_expect_of(op->id);
        e->tag = SOAK_PART(soak_work_sum(&w, NULL, 0), 0);
        e->size = w.result;
        e->retries = c.expect.retries;
        e->needs_core = true;
        e->others = a.depends;
        soak_expect_add(e, &a);
        out->refs[i] =
            manta_remote_with(&o, soak_via, manta_handle(s->actors[i % s->n]), manta_bytes(&w, sizeof w));
    }
}

void soak_do_find(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_ACTORS);
    char name[32];

    if (!s || !s->named) return;
    for (int i = 0; i < s->n; i++) {
        manta_actor a;
        soak_expect e = of_actor(s);
        name_of(name, sizeof name, op->args[0], i);
        manta_status st = manta_actor_find(name, &a);
        if (!st) manta_actor_release(a);
        bool may_be_gone = s->is_ended || (r->doomed & e.depends) || (r->kills > 0 && e.mortal);
        if (st == MANTA_ENOENT && (may_be_gone || r->few_files)) continue;
        if (st) soak_wrong("find: status %d: %s", st, manta_error_text());
    }
}

void soak_do_end(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_ACTORS);

    if (!s) return;
    s->is_ended = true;
    r->ended |= SOAK_BIT(op->args[0]);
    for (int i = 0; i < s->n; i++) {
        soak_expect e = of_actor(s);
        manta_status st = manta_actor_end(s->actors[i]);
        if (st) soak_check_failure(r, &e, st, "an end");
    }
}

void soak_do_kill_actor(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_ACTORS);
    bool for_good = op->f[SOAK_HOW] != 0;

    if (!s) return;
    s->is_counted = false;
    r->ends++; /* also of actors that begin again: in another process */
    if (for_good || s->actor.mortal) r->doomed |= SOAK_BIT(op->args[0]);
    for (int i = 0; i < s->n; i++) {
        soak_expect e = of_actor(s);
        manta_status st = manta_actor_kill(s->actors[i], for_good);
        if (st) soak_check_failure(r, &e, st, "a kill of an actor");
    }
}

void soak_do_leave(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_ACTORS);

    if (s) soak_slot_clear(s);
}
