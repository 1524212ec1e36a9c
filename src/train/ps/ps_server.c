/* ps_server.c - a parameter server: weights out, gradients in.
 *
 *              PS_LOAD             PS_BEGIN                       PS_END
 *   (empty) ──────────▶ loaded ──────────────▶ in an epoch ──────────────▶ over
 *                         ▲  PS_BEGIN, PS_LOAD    │   ▲ │ PS_PUSH of a step that is not in the
 *                         └───────────────────────┘   └─┘ journal: one update
 *
 * One thread answers one whole message at a time, so pulls, pushes and the coordinator's
 * questions come one after the other, and no lock is needed: what a worker pulls is the state
 * between two updates, never in the middle of one.
 *
 * Who writes what: only this process writes its range of the state, its journal, and the
 * run section's `calls`, which is the number of its updates; the rest of the run section
 * and the learning rate are what the coordinator said with PS_BEGIN and PS_RATE.
 *
 * What makes it safe: ps_journal_add() says once for each step that it is new, so gradients
 * that are pushed again, by the same worker or by another that was given the step of a lost
 * one, change nothing. Where that one is to compute what the lost one has, it asks for the weights
 * before the step (PS_PULL), and those are kept from a step to the next: with a staleness of 0 the
 * last step is the only one that can be asked for again. Before there is a state nobody is answered but the coordinator.
 *
 * A connection that talks nonsense is closed, and the server goes on. It ends with PS_END, with
 * its parent, or, of a cluster, when the coordinator was missed for too long. A coordinator
 * that comes anew finds state and journal here and takes the training up (ps_cluster.c).
 *
 * What may be changed: the order in which links are heard. What may not: to answer PS_PUSH
 * before the update is done, since the worker then reports the step as done. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/ps/ps.h"
#include "train/ps/ps_journal.h"
#include "train/ps/ps_link.h"
#include "train/ps/ps_range.h"
#include "train/ps/ps_rendezvous.h"
#include "train/session/step_core.h"

CRASH_DEFINE(ps, PS_CRASH_POINTS)

enum {
    LOOK_UP_MS = 500,
};

typedef struct server {
    const ps_plan *plan;
    manta_session *s;
    ps_range range;
    rendezvous *meeting;
    ps_config_check check;
    size_t room;
    ps_link link[1 + PS_WORKERS]; /* the coordinator's; the workers' */
    bool loaded; /* the coordinator has given it a state */
    bool over;
    manta_error end; /* why it is over, if it has come to nothing */
    ps_journal journal; /* whose gradients are in */
    bool keeps; /* weights before the last step, since workers ask for them by its number */
    char *kept; /* they; NULL: none yet */
    int64_t kept_step; /* the step's number */
    int64_t missed_ns; /* since when the coordinator is missed, if it is */
    bool said; /* and that was said */
} server;

/* One step of the optimizer, on this server's range. With norms it is the only server:
 * ps_check() sees to that. */
static void update_range(server *v, const char *bytes)
{
    manta_session *s = v->s;
    step_range r = {
        .param = v->range.lo, .param_end = v->range.hi, .stat_end = v->range.first ? s->l.stat_blocks : 0};

    ps_range_set_slot(&v->range, s->slots[0], bytes);
    s->used[0] = s->slots[0];
    s->n_used = 1;
    step_begin(s, s->state);
    if (apply_needs_norms(&s->a)) step_norms(s, &r);
    step_params(s, &r);
    step_stats(s, &r);
    step_finish(s, (int64_t)layout_slot_sums(&s->l, s->slots[0])[SUM_SAMPLES]);
}

static manta_status expect_size(const ps_link *l, size_t n)
{
    if (l->head.length == n) return MANTA_OK;
    return manta_fail(MANTA_ECORRUPT, "%s: a message of %llu bytes, expected %zu: another model?",
                      chan_name(l->c), (unsigned long long)l->head.length, n);
}

static manta_status load_state(server *v, ps_link *l)
{
    TRY(expect_size(l, ps_range_state_size(&v->range)));
    ps_range_set_state(&v->range, v->s->state, l->in);
    ps_journal_release(&v->journal);
    v->kept_step = -1;
    v->loaded = true;
    rendezvous_say(v->meeting, 1, v->check.mine.text, v->check.mine.n); /* we are at work */
    ps_crash(PS_CRASH_LOADED);
    return ps_link_send(l, PS_LOADED, 0, 0, 0);
}

/* The counts of an epoch that begins are the coordinator's. In the middle of one
 * ours are better: it has come anew, and has them from here. */
static manta_status begin_epoch(server *v, ps_link *l)
{
    const layout *lay = &v->s->l;
    run_state *run = layout_run(lay, v->s->state);
    size_t n = (size_t)l->head.length;
    ps_journal j = {0};

    if (n < lay->run_size) return expect_size(l, lay->run_size);
    TRY(ps_journal_unpack(&j, v->plan->steps, l->in + lay->run_size, n - lay->run_size));
    if (ps_journal_is_same_epoch(&v->journal, &j)) {
        ps_journal_merge(&v->journal, &j);
        ps_journal_release(&j);
    } else {
        run_state *theirs = mem_new(lay->run_size);
        memcpy(theirs, l->in, lay->run_size);
        theirs->calls = run->calls;
        theirs->learning_rate = run->learning_rate;
        memcpy(run, theirs, lay->run_size);
        mem_free(theirs);
        ps_journal_release(&v->journal);
        v->journal = j;
    }
    ps_crash(PS_CRASH_BEGUN);
    return ps_link_send(l, PS_BEGUN, 0, 0, 0);
}

static manta_status say_where(const server *v, ps_link *l)
{
    bool somewhere = v->loaded && ps_journal_is_begun(&v->journal);

    return ps_link_send(l, PS_WHERE, 0, 0, somewhere ? ps_journal_pack(&v->journal, l->out) : 0);
}

static manta_status give_weights(server *v, ps_link *l)
{
    size_t n = ps_range_weights_size(&v->range);
    int64_t before = (int64_t)l->head.step;

    v->keeps = before > 0;
    if (v->keeps && !v->kept)
        TRY(mem_try_array((int64_t)n, 1, "the weights before a step", (void **)&v->kept));
    if (v->keeps && v->kept_step == before - 1)
        memcpy(l->out, v->kept, n);
    else
        ps_range_get_weights(&v->range, v->s->state, l->out);
    return ps_link_send(l, PS_WEIGHTS, layout_run(&v->s->l, v->s->state)->calls, 0, n);
}

static void keep_weights(server *v, int64_t step)
{
    if (!v->keeps || !v->kept) return;
    ps_range_get_weights(&v->range, v->s->state, v->kept);
    v->kept_step = step;
}

static manta_status take_push(server *v, ps_link *l)
{
    bool is_new;

    ps_crash(PS_CRASH_PUSH_COMES);
    TRY(expect_size(l, ps_range_slot_size(&v->range)));
    if (!ps_journal_is_begun(&v->journal))
        return manta_fail(MANTA_EBUSY, "%s: gradients before an epoch has begun", chan_name(l->c));
    TRY(ps_journal_add(&v->journal, (int64_t)l->head.step, &is_new));
    if (is_new) keep_weights(v, (int64_t)l->head.step);
    if (is_new) update_range(v, l->in);
    ps_crash(PS_CRASH_UPDATED);
    return ps_link_send(l, PS_PUSHED, (int64_t)l->head.step, 0, 0);
}

static manta_status set_rate(server *v, const ps_link *l)
{
    TRY(expect_size(l, sizeof(double)));
    memcpy(&layout_run(&v->s->l, v->s->state)->learning_rate, l->in, sizeof(double));
    return MANTA_OK;
}

static manta_status answer_message(void *ctx, ps_link *l)
{
    server *v = ctx;
    bool needs_state = l->head.kind == PS_PULL || l->head.kind == PS_PUSH || l->head.kind == PS_STATE;

    /* Before the state is there nobody has reason to ask: workers are told to come afterwards. */
    if (needs_state && !v->loaded)
        return manta_fail(MANTA_EBUSY, "%s: asked before the coordinator has given this server a state",
                          chan_name(l->c));
    switch ((int)l->head.kind) {
    case PS_PULL: return give_weights(v, l);
    case PS_PUSH: return take_push(v, l);
    case PS_LOAD: return load_state(v, l);
    case PS_WHERE: return say_where(v, l);
    case PS_BEGIN: return begin_epoch(v, l);
    case PS_RATE: return set_rate(v, l);
    case PS_STATE:
        ps_crash(PS_CRASH_STATE_ASKED);
        ps_range_get_state(&v->range, v->s->state, l->out);
        return ps_link_send(l, PS_STATE, 0, 0, ps_range_state_size(&v->range));
    case PS_END:
        v->over = true;
        if (ps_link_end(l)) manta_error_get(&v->end);
        return MANTA_OK;
    default:
        return manta_fail(MANTA_ECORRUPT, "%s: a message of kind %d, which no server takes", chan_name(l->c),
                          l->head.kind);
    }
}

static void close_link(server *v, int k)
{
    ps_link_close(&v->link[k]);
    rendezvous_miss(v->meeting, v->plan->servers + k);
    if (k) return;
    v->missed_ns = clock_now_ns();
    v->said = false;
}

/* A connection that fails is closed; the server goes on. */
static void listen_to(server *v, int k)
{
    if (!ps_link_listen(&v->link[k], answer_message, v)) return;
    log_debug("a connection ended", LOG_STR("why", manta_error_text()));
    close_link(v, k);
}

/* Those that have come, or come again. */
static manta_status admit_callers(server *v)
{
    for (int k = 0; k < 1 + v->plan->workers; k++) {
        if (!rendezvous_is_here(v->meeting, v->plan->servers + k)) continue;
        close_link(v, k);
        TRY(ps_link_open(&v->link[k], rendezvous_take(v->meeting, v->plan->servers + k), v->room));
    }
    return MANTA_OK;
}

/* A coordinator of another training is none of our business once we are at one,
 * and before that the end of ours. */
static manta_status heed_refusal(server *v)
{
    if (!v->check.refused) return MANTA_OK;
    if (!v->loaded) return manta_error_raise(&v->check.why);
    v->check.refused = false;
    log_warn("a coordinator was turned away", LOG_STR("why", v->check.why.text));
    return MANTA_OK;
}

static manta_status serve_links(server *v)
{
    int n = 1 + v->plan->workers;

    while (!v->over) {
        chan_item items[1 + PS_WORKERS];
        manta_status st;
        for (int k = 0; k < n; k++) items[k] = (chan_item){.c = v->link[k].c, .read = true};
        st = rendezvous_wait(v->meeting, items, n, NULL, 0, clock_deadline(LOOK_UP_MS));
        if (st && st != MANTA_ETIMEDOUT) return st;
        if (v->plan->parent && getppid() != v->plan->parent) return MANTA_OK;
        for (int k = 0; k < n && !v->over; k++) {
            if (items[k].c && items[k].ready) listen_to(v, k);
        }
        TRY(admit_callers(v));
        TRY(heed_refusal(v));
        if (!v->plan->parent && !v->link[0].c && !v->over)
            TRY(ps_miss_coordinator(v->plan, v->missed_ns, &v->said));
    }
    return v->end.code ? manta_error_raise(&v->end) : MANTA_OK;
}

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t ps_server_room(const ps_plan *p, int number)
{
    ps_range range = ps_range_of(&p->s->l, number, p->servers);
    size_t room = larger_of(ps_range_state_size(&range), ps_range_slot_size(&range));

    return larger_of(room, p->s->l.run_size + ps_journal_room(p->steps));
}

manta_status ps_serve(const ps_plan *p, int number, int listener)
{
    server *v = mem_new(sizeof *v);
    manta_status st;

    *v = (server){.plan = p, .s = p->s, .missed_ns = clock_now_ns(), .kept_step = -1};
    v->range = ps_range_of(&p->s->l, number, p->servers);
    v->room = ps_server_room(p, number);
    if ((st = session_local(p->s))) goto out;
    if ((st = ps_rendezvous_open(p, number, &v->check, &v->meeting))) goto out;
    if (listener >= 0) {
        rendezvous_listen_with(v->meeting, listener);
    } else {
        st = rendezvous_listen(v->meeting, p->server[number], true, NULL);
    }
    if (!st) st = serve_links(v);
out:
    for (int k = 0; k < 1 + PS_WORKERS; k++) ps_link_close(&v->link[k]);
    rendezvous_free(v->meeting);
    ps_journal_release(&v->journal);
    mem_try_free(v->kept);
    mem_free(v);
    return st;
}
