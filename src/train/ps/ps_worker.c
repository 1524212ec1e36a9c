/* ps_worker.c - a worker of parameter servers: pull, compute, push, again.
 *
 *            PS_READY         PS_STEP             all pulled           all pushed
 *   connect ──────────▶ idle ─────────▶ pulling ─────────────▶ computing ──▶ pushing ──▶ PS_DONE ─▶ idle
 *      ▲                                   │  a server is lost: again and again   │
 *      └── the coordinator is lost ────────┴─────────────────────────────────────┘
 *
 * A worker has nothing of its own: the weights are the servers', the step and its number are
 * the coordinator's, and the random numbers of a step follow from that number
 * (compute_step()). So it may be lost anywhere, and whoever is given its step computes the
 * same from the weights of that moment.
 *
 * Weights are pulled from one server after the other, without a lock over all of them: each
 * range is of some moment, the ranges of different servers not of the same. That is what
 * asynchronous means here; with a staleness of 0 no other step is under way, so they are.
 *
 * Gradients are pushed to the first server last (with_all()): a step that is in its journal is
 * in all journals, which is what a coordinator that comes anew goes by.
 *
 * A lost server is tried again until the coordinator ends us; a lost coordinator of a cluster
 * is waited for (find_boss()), and one that was our parent is our end.
 *
 * What may be changed: patience. What may not: the order of pushes, or to report PS_DONE
 * before every server has answered PS_PUSHED. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/ps/ps.h"
#include "train/ps/ps_link.h"
#include "train/ps/ps_range.h"
#include "train/ps/ps_rendezvous.h"
#include "train/session/step_core.h"

enum { PATIENCE_MS = 200 }; /* between attempts to reach a server that is being replaced */

typedef struct worker {
    const ps_plan *plan;
    manta_session *s;
    rendezvous *meeting;
    ps_config_check check;
    bool hired; /* a coordinator has given it a step */
    ps_link boss;
    ps_link server[PS_SERVERS]; /* c NULL: to be connected */
    ps_range range[PS_SERVERS];
    feed_reader reader;
    bool over;
} worker;

static bool is_alone(void *ctx)
{
    const worker *w = ctx;

    return w->plan->parent && getppid() != w->plan->parent;
}

/* Waits for the node with this number, as `m` says. */
static manta_status call_node(worker *w, int i, const rendezvous_meeting *m, size_t room, ps_link *out)
{
    rendezvous_miss(w->meeting, i);
    TRY(rendezvous_meet(w->meeting, i, i + 1, m));
    return ps_link_open(out, rendezvous_take(w->meeting, i), room);
}

/* ---- servers ---- */

/* Whether the coordinator has said that it is over. */
static manta_status look_at_boss(worker *w)
{
    bool whole = false;

    TRY(ps_link_receive(&w->boss, &whole));
    if (!whole || w->boss.head.kind != PS_END) return MANTA_OK;
    w->over = true;
    return ps_link_end(&w->boss);
}

/* A server that is not there is waited for until the coordinator has had enough. */
static manta_status watch_boss(void *ctx, const char *missing, int i, double ms)
{
    worker *w = ctx;

    (void)i;
    (void)ms;
    TRY(look_at_boss(w));
    if (w->over) return manta_fail(MANTA_ECANCELLED, "the training is over: it ended while %s", missing);
    if (is_alone(w))
        return manta_fail(MANTA_EDIED, "nobody is left to train for: it ended while %s", missing);
    return MANTA_OK;
}

static manta_status reach_server(worker *w, int i)
{
    size_t weights = ps_range_weights_size(&w->range[i]), slot = ps_range_slot_size(&w->range[i]);
    rendezvous_meeting m = {.timeout_ms = -1, .patient = true, .watch = watch_boss, .ctx = w};

    if (w->server[i].c) return MANTA_OK;
    return call_node(w, i, &m, weights > slot ? weights : slot, &w->server[i]);
}

/* before: of PS_PULL. */
static manta_status pull_weights(worker *w, int i, int64_t before)
{
    ps_link *l = &w->server[i];

    TRY(reach_server(w, i));
    TRY(ps_link_ask(l, PS_PULL, before, 0, PS_WEIGHTS, is_alone, w));
    if (l->head.length != ps_range_weights_size(&w->range[i]))
        return manta_fail(MANTA_ECORRUPT, "%s: weights in %llu bytes, expected %zu: another model?",
                          chan_name(l->c), (unsigned long long)l->head.length,
                          ps_range_weights_size(&w->range[i]));
    ps_range_set_weights(&w->range[i], w->s->state, l->in);
    ps_crash(PS_CRASH_PULLED);
    return MANTA_OK;
}

static manta_status push_slot(worker *w, int i, int64_t step_number)
{
    ps_link *l = &w->server[i];

    TRY(reach_server(w, i));
    ps_range_get_slot(&w->range[i], w->s->used[0], l->out);
    TRY(ps_link_ask(l, PS_PUSH, step_number, ps_range_slot_size(&w->range[i]), PS_PUSHED, is_alone, w));
    ps_crash(PS_CRASH_PUSHED);
    return MANTA_OK;
}

/* Waits a little, or until the coordinator says something (that it is over). */
static manta_status be_patient(worker *w)
{
    chan_item item = {.c = w->boss.c, .read = true};
    manta_status st = chan_wait(&item, 1, NULL, 0, clock_deadline(PATIENCE_MS));

    return st && st != MANTA_ETIMEDOUT ? st : look_at_boss(w);
}

/* A server that cannot be reached is being replaced: it is tried again until the
 * coordinator has had enough and ends us. */
static manta_status with_all(worker *w, manta_status (*fn)(worker *w, int i, int64_t number), int64_t number)
{
    for (int i = w->plan->servers - 1; i >= 0 && !w->over;) { /* the first one last: ps_journal.h */
        manta_status st = fn(w, i, number);
        if (st == MANTA_ECORRUPT || st == MANTA_ENOMEM) return st;
        if (!st) {
            i--;
            continue;
        }
        ps_link_close(&w->server[i]);
        if (is_alone(w)) return st;
        if (!w->over) TRY(be_patient(w));
    }
    return MANTA_OK;
}

/* ---- a step ---- */

static manta_status compute_step(worker *w, int64_t epoch, int64_t step, int64_t step_number)
{
    manta_session *s = w->s;
    manta_feed f;

    TRY(feed_reader_batch(&w->reader, epoch, step, &f));
    layout_run(&s->l, s->state)->calls = step_number; /* of the random numbers: each step has its own */
    TRY(step_compute(s, &f));
    step_fold(s);
    return MANTA_OK;
}

/* The message is {epoch, step, step number}: the step's numbers in the epoch and the run. */
static manta_status do_step(worker *w)
{
    size_t sums = (size_t)w->s->l.n_sums * sizeof(double);
    const double *slot;
    double penalty;
    int64_t at[3];
    manta_status st;

    if (w->boss.head.length != sizeof at)
        return manta_fail(MANTA_ECORRUPT, "%s: a step in %llu bytes, expected %zu", chan_name(w->boss.c),
                          (unsigned long long)w->boss.head.length, sizeof at);
    memcpy(at, w->boss.in, sizeof at);
    TRY(with_all(w, pull_weights, w->boss.head.item ? at[2] + 1 : 0));
    if (w->over) return MANTA_OK;
    if ((st = compute_step(w, at[0], at[1], at[2]))) {
        const char *why = manta_error_text();
        size_t n = strlen(why) < w->boss.room ? strlen(why) : w->boss.room;
        memcpy(w->boss.out, why, n);
        return ps_link_send(&w->boss, PS_FAILED, at[1], (uint32_t)st, n);
    }
    slot = layout_slot_sums(&w->s->l, w->s->used[0]);
    penalty = apply_penalty(&w->s->a, w->s->state) * slot[SUM_SAMPLES];
    TRY(with_all(w, push_slot, at[2]));
    if (w->over) return MANTA_OK;
    ps_crash(PS_CRASH_ALL_PUSHED);
    memcpy(w->boss.out, slot, sums);
    memcpy(w->boss.out + sums, &penalty, sizeof penalty);
    return ps_link_send(&w->boss, PS_DONE, at[1], 0, sums + sizeof penalty);
}

/* With one coordinator, until it says that it is over. */
static manta_status converse_with_coordinator(worker *w, int number)
{
    TRY(ps_link_send(&w->boss, PS_READY, number, 0, 0));
    while (!w->over) {
        chan_item item = {.c = w->boss.c, .read = true};
        bool whole;
        manta_status st = chan_wait(&item, 1, NULL, 0, clock_deadline(500));
        if (st && st != MANTA_ETIMEDOUT) return st;
        if (is_alone(w)) return MANTA_OK;
        TRY(ps_link_receive(&w->boss, &whole));
        if (!whole) continue;
        if (w->boss.head.kind == PS_END) return ps_link_end(&w->boss);
        if (w->boss.head.kind != PS_STEP)
            return manta_fail(MANTA_ECORRUPT, "%s: a message of kind %d, expected a step or the end",
                              chan_name(w->boss.c), w->boss.head.kind);
        if (!w->hired)
            rendezvous_say(w->meeting, 1, w->check.mine.text, w->check.mine.n); /* we are at work */
        w->hired = true;
        TRY(do_step(w));
    }
    return MANTA_OK;
}

typedef struct boss_wait {
    worker *w;
    int64_t begin;
    bool said;
} boss_wait;

static manta_status watch_for_boss(void *ctx, const char *missing, int i, double ms)
{
    boss_wait *b = ctx;

    (void)missing;
    (void)i;
    (void)ms;
    if (is_alone(b->w))
        return manta_fail(MANTA_EDIED, "the coordinator, whose child this worker is, has ended");
    return ps_miss_coordinator(b->w->plan, b->begin, &b->said);
}

/* The order of starting does not matter: it may not be there yet. Or not be there
 * any more: then it is started again by whoever started it, unless it was our
 * parent. Who has had a step of one does not take another that is at another training. */
static manta_status find_boss(worker *w)
{
    size_t room = (size_t)w->s->l.n_sums * sizeof(double) + 4096;
    boss_wait b = {.w = w, .begin = clock_now_ns()};
    rendezvous_meeting m = {
        .timeout_ms = -1, .patient = w->hired, .strict = !w->hired, .watch = watch_for_boss, .ctx = &b};

    return call_node(w, ps_node_coordinator(w->plan), &m, room, &w->boss);
}

static bool has_lost(const ps_link *boss)
{
    manta_status st = boss->c ? chan_work(boss->c) : MANTA_OK;

    return st == MANTA_EDIED || st == MANTA_EIO;
}

/* A step that was in hand when the coordinator was lost is in at the servers, or
 * its successor gives it out again. */
static manta_status run_worker(worker *w, int number)
{
    for (;;) {
        manta_status st = converse_with_coordinator(w, number);
        if (!st || w->plan->parent || !has_lost(&w->boss)) return st;
        ps_link_close(&w->boss);
        TRY(find_boss(w));
    }
}

static manta_status prepare_worker(worker *w)
{
    const ps_plan *p = w->plan;
    const feed_source *f = p->feed;

    for (int i = 0; i < p->servers; i++) w->range[i] = ps_range_of(&w->s->l, i, p->servers);
    TRY(session_local(w->s));
    TRY(feed_reader_open(&w->reader, f));
    return session_prepare(w->s, PLAN_TRAIN, f->sizes, f->n_sizes);
}

manta_status ps_work(const ps_plan *p, int number)
{
    worker *w = mem_new(sizeof *w);
    manta_status st;

    *w = (worker){.plan = p, .s = p->s};
    st = ps_rendezvous_open(p, ps_node_worker(p, number), &w->check, &w->meeting);
    if (!st) st = prepare_worker(w);
    if (!st) st = find_boss(w);
    if (!st) st = run_worker(w, number);
    feed_reader_close(&w->reader);
    for (int i = 0; i < p->servers; i++) ps_link_close(&w->server[i]);
    ps_link_close(&w->boss);
    rendezvous_free(w->meeting);
    mem_free(w);
    return st;
}
