/* run_calls.c - objects and calls of a program; see run.h. */
#include <manta/watch.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

static int64_t at_least(int64_t x, int64_t least)
{
    return x < least ? least : x;
}

static int64_t at_most(int64_t x, int64_t most)
{
    return x > most ? most : x;
}

/* ---- what a call is made of ---- */

static int retries_of(const soak_op *op)
{
    int64_t n = op->f[SOAK_RETRIES];

    return n <= -2 ? SOAK_UNLIMITED : n == -1 ? 0 : n == 0 ? 3 : (int)n;
}

manta_task_options soak_call_options(const soak_run *r, const soak_op *op)
{
    manta_task_options o = soak_retries(op->f[SOAK_RETRIES]);
    static char tokens[32];

    /* What actors hold is not there for calls. */
    int64_t most = 100 * (r->cores - r->actor_cores);
    if (op->f[SOAK_CPUS] > 0) o.num_cpus = (double)at_most(op->f[SOAK_CPUS], most) / 100;
    if (op->f[SOAK_CPUS] < 0) o.num_cpus = MANTA_NONE;
    snprintf(tokens, sizeof tokens, "token=%lld", (long long)at_most(op->f[SOAK_TOKENS], r->tokens));
    if (op->f[SOAK_TOKENS] > 0) o.resources = tokens;
    if (op->f[SOAK_HOW] & 2) o.strategy = MANTA_CALL_STRATEGY_SPREAD;
    return o;
}

/* An argument that is a slot of values: the i-th of them, resolved or not. */
static void add_slot(soak_call *c, const soak_slot *s, int i, bool as_reference, uint64_t *digest)
{
    int k = i % s->n;
    const soak_expect *e = &s->expect[k];

    soak_expect_add(&c->expect, e);
    *digest = soak_value_digest(e->tag, e->size, e->refs);
    c->args[c->n_args++] = as_reference ? manta_refs(&s->refs[k], 1) : manta_of_ref(s->refs[k]);
    if (as_reference) *digest = soak_fold(1, *digest);
}

/* Whether the function itself may wait for the value. A method that waits for what needs an
 * actor, perhaps its own, and a call that waits for others with a token in its hand, may
 * wait for ever, and rightly. */
static bool may_wait_inside(const soak_run *r, const soak_op *op, const soak_expect *value)
{
    if (op->kind == SOAK_METHOD && (value->depends & r->actor_slots)) return false;
    return (op->f[SOAK_HOW] & 4) && op->f[SOAK_TOKENS] == 0;
}

void soak_call_make(soak_run *r, const soak_op *op, int i, int first_arg, soak_call *c)
{
    uint64_t digests[SOAK_ARGS];
    int n = 0;
    soak_work *w = &c->work;

    *c = (soak_call){.expect = soak_expect_of(op->id)};
    *w = (soak_work){.key = soak_mix((uint64_t)op->id << 32 | (uint64_t)i), .size = op->f[SOAK_SIZE]};
    w->result = op->f[SOAK_RESULT];
    w->results = (int32_t)at_least(op->f[SOAK_RESULTS], 1);
    w->depth = (int32_t)op->f[SOAK_DEPTH];
    w->width = (int32_t)op->f[SOAK_WIDTH];
    w->refs = (int32_t)op->f[SOAK_REFS];
    w->sleep_us = (int32_t)op->f[SOAK_SLEEP];
    w->fails = op->f[SOAK_FAIL] != 0;
    w->retries = (int32_t)op->f[SOAK_RETRIES];
    w->in_place = op->f[SOAK_HOW] & 1;
    c->bytes = malloc((size_t)w->size + 1);
    soak_fill(c->bytes, w->size, w->key);
    c->args[c->n_args++] = manta_bytes(w, sizeof *w);
    c->args[c->n_args++] = manta_bytes(c->bytes, (size_t)w->size);
    bool is_method = op->kind == SOAK_METHOD;
    bool has_calls = w->depth > 0 || w->refs > 0;
    c->expect.retries = is_method && !has_calls ? SOAK_UNLIMITED : retries_of(op);
    for (int k = first_arg; k < op->n_args; k++) {
        soak_slot *s = soak_slot_of(r, op, k, SOAK_VALUES);
        if (s) add_slot(c, s, i, may_wait_inside(r, op, &s->expect[i % s->n]), &digests[n++]);
    }
    c->expect.tag = soak_work_sum(w, digests, n);
    c->expect.size = w->result;
    c->expect.refs = w->refs;
    c->expect.is_array = w->in_place && w->refs == 0;
    c->expect.fragile |= w->refs >= SOAK_REF_IS_CALL;
    c->expect.needs_core |= has_calls || (!is_method && op->f[SOAK_CPUS] >= 0);
    if (w->fails) c->expect.must_fail = true;
    if (w->fails) c->expect.failures |= MANTA_ON(MANTA_ENAN);
}

/* ---- operations ---- */

void soak_do_put(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_fill(r, op, SOAK_VALUES, 1);
    soak_expect *e = &s->expect[0];
    manta_array a;

    *e = soak_expect_of(op->id);
    e->tag = soak_mix((uint64_t)op->id);
    e->size = op->f[SOAK_SIZE];
    e->is_array = op->f[SOAK_HOW] & 1;
    if (e->is_array) {
        manta_status st = manta_create(MANTA_DTYPE_U8, 1, &e->size, &a, &s->refs[0]);
        if (st) soak_check_failure(r, e, st, "create");
        if (st) {
            s->n = 0;
            soak_slot_clear(s);
            return;
        }
        soak_fill(a.data, e->size, e->tag);
        if (manta_seal(s->refs[0])) soak_wrong("seal: %s", manta_error_text());
        return;
    }
    void *at = malloc((size_t)e->size + 1);
    soak_fill(at, e->size, e->tag);
    s->refs[0] = manta_put(manta_bytes(at, (size_t)e->size));
    free(at); /* it was copied */
}

void soak_do_call(soak_run *r, const soak_op *op)
{
    int n = (int)at_least(op->f[SOAK_N], 1), results = (int)at_least(op->f[SOAK_RESULTS], 1);
    soak_slot *s = soak_slot_fill(r, op, SOAK_VALUES, n * results);
    manta_task_options o = soak_call_options(r, op);

    for (int i = 0; i < n; i++) {
        soak_call c;
        soak_call_make(r, op, i, 0, &c);
        manta_submit("soak_work_do", &o, c.n_args, c.args, results, &s->refs[i * results]);
        for (int k = 0; k < results; k++) {
            s->expect[i * results + k] = c.expect;
            s->expect[i * results + k].tag = SOAK_PART(c.expect.tag, k);
        }
        free(c.bytes);
    }
}

/* As a program in an event loop waits: every token comes once, and the value is there then. */
static void get_in_loop(soak_run *r, const soak_slot *s)
{
    enum { MOST = 16 };
    manta_watch *w = NULL;
    uint64_t tokens[MOST];
    bool *came = calloc((size_t)s->n, sizeof *came);
    size_t n;

    manta_status st = manta_watch_new(&w);
    if (st && !r->few_files) soak_wrong("a watch: %s", manta_error_text());
    for (int i = 0; !st && i < s->n; i++)
        if ((st = manta_watch_add(w, s->refs[i], (uint64_t)i)) && !r->few_files)
            soak_wrong("a reference to be watched: %s", manta_error_text());
    for (int left = st ? 0 : s->n; left > 0; left -= (int)n) {
        struct pollfd p = {.fd = manta_watch_fd(w), .events = POLLIN};
        (void)poll(&p, 1, -1);
        if (manta_watch_take(w, tokens, MOST, &n)) soak_wrong("a watch: %s", manta_error_text());
        for (size_t k = 0; k < n; k++) {
            if (tokens[k] >= (uint64_t)s->n || came[tokens[k]])
                soak_wrong("token %llu of %d comes, and was not to", (unsigned long long)tokens[k], s->n);
            came[tokens[k]] = true;
            if (manta_get(s->refs[tokens[k]], 0) == MANTA_ETIMEDOUT)
                soak_wrong("a watch says that a reference is ready, get that it is not");
        }
    }
    manta_watch_free(w);
    free(came);
}

void soak_do_get(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_VALUES);
    int64_t timeout = op->f[SOAK_TIMEOUT] ? op->f[SOAK_TIMEOUT] : MANTA_FOREVER;

    if (!s) return;
    if (op->f[SOAK_HOW] && timeout == MANTA_FOREVER) {
        soak_expect all = s->expect[0];
        for (int i = 1; i < s->n; i++) soak_expect_add(&all, &s->expect[i]);
        if (all.needs_core) soak_let_go(r);
        if (op->f[SOAK_HOW] == 2) get_in_loop(r, s);
        manta_status st = manta_get_all(s->refs, (size_t)s->n, MANTA_FOREVER);
        if (st) soak_check_failure(r, &all, st, "get_all");
    }
    for (int i = 0; i < s->n; i++) (void)soak_check(r, s->refs[i], &s->expect[i], timeout);
    if (r->small_store && timeout == MANTA_FOREVER) soak_slot_clear(s); /* what is read stays in memory */
}

void soak_do_wait(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_VALUES);
    int64_t timeout = op->f[SOAK_TIMEOUT] ? op->f[SOAK_TIMEOUT] : MANTA_FOREVER;
    size_t n_ready = 0, counted = 0;

    if (!s) return;
    size_t most = (size_t)at_most(at_least(op->f[SOAK_MOST], 1), s->n);
    bool *ready = calloc((size_t)s->n, sizeof *ready);
    for (int i = 0; timeout == MANTA_FOREVER && i < s->n; i++)
        if (s->expect[i].needs_core) soak_let_go(r);
    if (manta_wait(s->refs, (size_t)s->n, most, timeout, ready, &n_ready))
        soak_wrong("wait: %s", manta_error_text());
    for (int i = 0; i < s->n; i++) counted += ready[i];
    if (counted != n_ready || n_ready > most || (timeout == MANTA_FOREVER && n_ready < most))
        soak_wrong("wait for %zu: says %zu, %zu are marked", most, n_ready, counted);
    for (int i = 0; i < s->n; i++)
        if (ready[i] && manta_get(s->refs[i], 0) == MANTA_ETIMEDOUT)
            soak_wrong("wait says that a reference is ready, get that it is not");
    free(ready);
}

void soak_do_drop(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_VALUES);

    if (s) soak_slot_clear(s);
}

void soak_do_cancel(soak_run *r, const soak_op *op)
{
    soak_slot *s = soak_slot_of(r, op, 0, SOAK_VALUES);
    int id = op->n_args > 0 ? op->args[0] : 0;

    if (!s) return;
    r->cancelled |= SOAK_BIT(id);
    r->ends += (op->f[SOAK_HOW] & MANTA_CANCEL_FORCE) != 0;
    for (int id2 = 0; id2 < SOAK_SLOTS; id2++) r->slots[id2].is_counted = false;
    for (int i = 0; i < s->n; i++) {
        manta_status st = manta_cancel(s->refs[i], (unsigned)op->f[SOAK_HOW] & 3);
        /* A running call of an actor cannot be forced. */
        if (st && (st != MANTA_EINVAL || !(op->f[SOAK_HOW] & MANTA_CANCEL_FORCE)))
            soak_wrong("cancel: status %d: %s", st, manta_error_text());
    }
}

void soak_do_hold(soak_run *r, const soak_op *op)
{
    int n = (int)at_least(op->f[SOAK_N], 1);
    manta_task_options o = {.max_retries = MANTA_UNLIMITED};

    if (r->inside) return; /* it would hold the program itself */
    if (r->n_holds == 0) r->round++;
    r->holds = realloc(r->holds, (size_t)(r->n_holds + n) * sizeof *r->holds);
    for (int i = 0; i < n; i++)
        r->holds[r->n_holds++] = manta_remote_with(&o, soak_hold, manta_i64(r->round));
}

void soak_do_free(soak_run *r, const soak_op *op)
{
    (void)op;
    soak_let_go(r);
}
