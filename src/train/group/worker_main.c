/* worker_main.c - a worker process, from the fork to its end.
 *
 *   group_worker_main()
 *     start_worker()    maps the shared memory, makes threads, plans and readers, says ready
 *     serve_steps()     asks worker_step.c what to do, and does it, until it is to leave:
 *
 *       WORKER_SHARD ──▶ compute_shard()   reads the committed buffer, writes slot `item`
 *                        or compute_together() when shards meet at every layer (lockstep.h)
 *       WORKER_NORMS ──▶ compute_norms()   reads all slots, writes the norms of range `item`
 *       WORKER_UPDATE ─▶ update_range()    reads all slots, writes range `item` of the other buffer
 *                        or add_sums()     when it only evaluates
 *       WORKER_WAIT ───▶ wait_for_others() sleeps on the wake word
 *       WORKER_COMMITTED ▶ tell_commit()   wakes the others, and the controller if it asked
 *
 * Who writes what: a worker writes the slots, norms and ranges that the assignment gives it,
 * and its own row of the control block (progress, idle, asleep, ready, error); flags and
 * `commit` it writes through worker_step.c. It reads the committed buffer, everybody's
 * slots, and the job.
 *
 * It keeps nothing that matters: state and slots are shared memory, and all else (threads,
 * plans, readers) a successor makes again. So it may be killed at any instruction, and the
 * crash points between the halves of an action are there to prove it. An error that arose
 * from a state which was changing under us is none: after a failure the commit word is looked
 * at, and only if it is still the one that we worked for the error is reported.
 *
 * It ends when it is told to, or when its controller is gone: by the signal that spawner.h
 * asks for, and, should that not arrive, because it sees another parent when it next wakes.
 *
 * What may be changed: how an action computes, as long as it reads and writes only what the
 * drawing says. What may not: to store into a slot or range after worker_step_done(). */
#include "train/group/worker_main.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/sys.h"
#include "train/group/worker_scratch.h"
#include "train/session/lockstep.h"
#include "train/log/rank_logs.h"
#include "train/session/step_core.h"

enum {
    LOOK_UP_MS = 500, /* a waiting worker looks whether its controller lives */
};

typedef struct work {
    const worker_setup *u;
    manta_session *s;
    shared *sh;
    control *c;
    worker_step turn;
    worker_scratch scratch;
    feed_reader reader[2];
    /* Of the step at hand. */
    uint64_t begun; /* word for which step_begin() was called; 0: none */
    int64_t counted_step, count; /* samples of the step */
    int64_t waited_ns; /* for others, since it was forked */
} work;

void worker_call_controller(control *c, int event_fd)
{
    uint64_t one = 1;

    if (atomic_exchange(&c->controller_asleep, 0)) {
        /* It cannot fail but when the controller is gone, and then it does not matter. */
        ssize_t n = os->write(event_fd, &one, sizeof one);
        (void)n;
    }
}

/* ---- waiting ---- */

/* The controller's death takes us along by signal; should that not arrive, we
 * see that we have another parent. */
static void leave_when_alone(const work *w)
{
    if (getppid() != w->u->controller) _exit(0);
}

/* Somebody's work is kept for a successor that is not there yet: it may come here. */
static void ask_for_work(work *w)
{
    _Atomic uint32_t *idle = &w->c->worker[w->u->rank].idle;
    uint32_t generation = word_generation(w->turn.word);

    if (atomic_load_explicit(idle, memory_order_relaxed) == generation) return; /* it knows */
    atomic_store(idle, generation);
    worker_call_controller(w->c, w->u->event_fd);
}

static void wait_for_others(work *w, uint32_t seen)
{
    int64_t begin = clock_now_ns(), ns;

    if (worker_step_sees_vacancy(&w->turn)) ask_for_work(w);

    shared_worker_progress(w->c, w->u->rank, worker_step_number(&w->turn), WORKER_WAITING, 0);
    if (atomic_load(&w->c->cutting)) worker_call_controller(w->c, w->u->event_fd);
    group_crash(GROUP_CRASH_WAIT_BEGIN);
    control_wait(w->c, w->u->rank, seen, clock_deadline(LOOK_UP_MS));
    ns = clock_now_ns() - begin;
    w->waited_ns += ns;
    /* Without an open step it is not others that are waited for, but something to do. */
    if (w->turn.open && w->turn.train)
        shared_worker_account(w->c, w->u->rank, &(worker_account){.wait_ns = ns});
    leave_when_alone(w);
}

/* ---- data ---- */

/* How many samples the step has. */
static manta_status count_samples(work *w)
{
    const worker_step *t = &w->turn;

    if (w->counted_step == worker_step_number(t) + 1) return MANTA_OK;
    TRY(feed_reader_count(&w->reader[t->feed], t->at.epoch, t->at.step, &w->count));
    w->counted_step = worker_step_number(t) + 1;
    return MANTA_OK;
}

/* What this worker will read after `shard` of the step at hand, if nobody dies: the
 * shards of its own that come next, in this step, the next ones, and those of the pass
 * after this one. */
static void expect_next(work *w, int shard)
{
    const worker_step *t = &w->turn;
    const feed_source *f = &w->u->feeds[t->feed];
    int64_t steps = t->at.step + atomic_load(&w->c->job.end) - worker_step_number(t);
    read_range next[READ_AHEAD_MOST], to = {.at = t->at, .hi = INT64_MAX};
    int n = 0;

    /* A step in which this worker has no rows is not the last one either. */
    for (int i = 0, v = shard + 1; i <= READ_AHEAD_MOST && n < READ_AHEAD_MOST; i++, v = 0) {
        int64_t count = f->batched ? 0 : feed_source_count(f, to.at.epoch, to.at.step);
        for (; v < w->s->shards && n < READ_AHEAD_MOST && !(f->batched && i == 0); v++) {
            if (t->t.shard[v] != w->u->rank) continue;
            if (!f->batched) {
                to.lo = session_shard_begin(w->s, count, v);
                to.hi = session_shard_begin(w->s, count, v + 1);
            }
            if (to.lo < to.hi) next[n++] = to;
            if (f->batched) break; /* it is read whole */
        }
        if (++to.at.step < steps) continue;
        to.at.step = 0;
        to.at.epoch += t->train;
    }
    feed_reader_expect(&w->reader[t->feed], next, n);
}

static manta_status fetch_shard(work *w, int shard, manta_feed *f)
{
    const worker_step *t = &w->turn;
    int64_t lo = session_shard_begin(w->s, w->count, shard),
            hi = session_shard_begin(w->s, w->count, shard + 1);

    TRY(feed_reader_rows(&w->reader[t->feed], t->at.epoch, t->at.step, lo, hi, f));
    expect_next(w, shard);
    return MANTA_OK;
}

/* ---- gradients ---- */

static manta_status compute_shard(work *w, int shard)
{
    manta_session *s = w->s;
    plan_mode mode = w->turn.train ? PLAN_TRAIN : PLAN_EVALUATE;
    manta_feed f;
    exec_run r;

    TRY(count_samples(w));
    if (session_shard_begin(s, w->count, shard) == session_shard_begin(s, w->count, shard + 1))
        return MANTA_OK;
    TRY(fetch_shard(w, shard, &f));
    TRY(session_check_feed(s, &f, true));
    group_crash(GROUP_CRASH_SHARD_BEGIN);
    r = session_run(s, mode, &f, s->slots[shard]);
    TRY(exec_forward(s->e, &r));
    group_crash(GROUP_CRASH_SHARD_HALF);
    if (mode == PLAN_TRAIN) TRY(exec_backward(s->e, &r));
    group_crash(GROUP_CRASH_SHARD_DONE);
    return MANTA_OK;
}

/* Before its flag is set, so that who sees the commit sees the count. */
static void count_shard(work *w, int shard)
{
    if (!w->turn.train) return;
    shared_worker_account(w->c, w->u->rank,
                          &(worker_account){.samples = session_shard_begin(w->s, w->count, shard + 1) -
                                                       session_shard_begin(w->s, w->count, shard)});
}

/* ---- gradients in lockstep ---- */

static void tell_meeting(void *ctx)
{
    control_wake(ctx);
}

/* The step's name in meetings: what was left under another base is void. */
static uint64_t meeting_flag(const worker_step *t)
{
    return (uint64_t)t->t.base << 40 | (uint64_t)(worker_step_number(t) + 1);
}

static manta_status begin_together(work *w, int shard)
{
    uint64_t flag = meeting_flag(&w->turn);
    manta_feed f;

    if (lockstep_is_begun(w->s->lockstep, shard, flag)) return MANTA_OK;
    TRY(fetch_shard(w, shard, &f));
    TRY(session_check_feed(w->s, &f, true));
    group_crash(GROUP_CRASH_SHARD_BEGIN);
    return lockstep_begin(w->s->lockstep, shard, flag, w->count, &f, w->s->slots[shard], true);
}

/* Brings a shard on as far as it goes. */
static manta_status advance_shard(work *w, int shard, bool *waits)
{
    *waits = false;
    if (!step_has_samples(w->s, w->count, shard)) return MANTA_OK;
    TRY(begin_together(w, shard));
    TRY(lockstep_forward(w->s->lockstep, shard, waits));
    if (*waits) return MANTA_OK;
    group_crash(GROUP_CRASH_SHARD_HALF);
    TRY(lockstep_backward(w->s->lockstep, shard, waits));
    if (!*waits) group_crash(GROUP_CRASH_SHARD_DONE);
    return MANTA_OK;
}

/* One round over all shards that are ours, since they wait for each other. When
 * none comes to its end the others are waited for, or the death of one: what
 * it had is dealt out, and worker_step_next() gives it to us. */
static manta_status compute_together(work *w)
{
    uint32_t seen = atomic_load(&w->c->wake);

    TRY(count_samples(w));
    for (int v = 0; v < w->c->shards; v++) {
        bool waits;
        if (!worker_step_owes_shard(&w->turn, v)) continue;
        shared_worker_progress(w->c, w->u->rank, worker_step_number(&w->turn), WORKER_COMPUTING, v);
        TRY(advance_shard(w, v, &waits));
        if (waits) continue;
        count_shard(w, v);
        (void)worker_step_done(&w->turn, WORKER_SHARD, v);
        return MANTA_OK; /* the assignment may be another one now */
    }
    wait_for_others(w, seen);
    return MANTA_OK;
}

/* ---- the update ---- */

static manta_status begin_update(work *w)
{
    manta_session *s = w->s;

    if (w->begun == w->turn.word) return MANTA_OK;
    TRY(count_samples(w));
    step_collect(s, w->count);
    if (w->turn.train) step_begin(s, shared_buffer(w->sh, worker_step_other_buffer(&w->turn)));
    w->begun = w->turn.word;
    return MANTA_OK;
}

static manta_status compute_norms(work *w, int range)
{
    step_range r = step_range_of(&w->s->l, range, w->c->workers);

    TRY(begin_update(w));
    group_crash(GROUP_CRASH_NORMS_BEGIN);
    step_norms(w->s, &r);
    group_crash(GROUP_CRASH_NORMS_DONE);
    return MANTA_OK;
}

/* The run section: with range 0. Between its halves a test may end us. */
static void finish_run(work *w)
{
    run_state *run = layout_run(&w->s->l, w->s->a.new_);

    apply_finish(&w->s->a);
    w->begun = 0; /* it has forgotten the slots */
    group_crash(GROUP_CRASH_FINISH_HALF);
    step_count(run, w->count);
}

static manta_status update_range(work *w, int range)
{
    step_range r = step_range_of(&w->s->l, range, w->c->workers);

    TRY(begin_update(w));
    group_crash(GROUP_CRASH_UPDATE_BEGIN);
    step_params(w->s, &r);
    group_crash(GROUP_CRASH_UPDATE_HALF);
    step_stats(w->s, &r);
    if (range == 0) finish_run(w);
    group_crash(GROUP_CRASH_UPDATE_DONE);
    return MANTA_OK;
}

/* What an evaluation has instead of an update: the sums so far and these. */
static manta_status add_sums(work *w)
{
    int64_t number = worker_step_number(&w->turn);

    TRY(begin_update(w));
    group_crash(GROUP_CRASH_UPDATE_BEGIN);
    group_crash(GROUP_CRASH_UPDATE_HALF);
    step_add_sums(w->s, shared_eval(w->sh, number), shared_eval(w->sh, number + 1));
    group_crash(GROUP_CRASH_UPDATE_DONE);
    return MANTA_OK;
}

/* ---- the loop ---- */

/* Leaves the error where the controller finds it. */
static void report_error(work *w)
{
    shared_worker *worker = &w->c->worker[w->u->rank];

    manta_error_get(&worker->error);
    worker->failed_base = w->turn.t.base;
    atomic_store(&worker->failed, w->u->incarnation);
    worker_call_controller(w->c, w->u->event_fd);
}

static manta_status do_action(work *w, worker_action what, int item)
{
    static const worker_phase phase[] = {[WORKER_SHARD] = WORKER_COMPUTING,
                                         [WORKER_NORMS] = WORKER_NORMING,
                                         [WORKER_UPDATE] = WORKER_UPDATING};

    w->s->state = shared_buffer(w->sh, word_buffer(w->turn.word));
    shared_worker_progress(w->c, w->u->rank, worker_step_number(&w->turn), phase[what], item);
    switch (what) {
    case WORKER_SHARD: return compute_shard(w, item);
    case WORKER_NORMS: return compute_norms(w, item);
    case WORKER_UPDATE: return w->turn.train ? update_range(w, item) : add_sums(w);
    default: return MANTA_OK;
    }
}

static manta_status step_together(work *w)
{
    w->s->state = shared_buffer(w->sh, word_buffer(w->turn.word));
    return compute_together(w);
}

static void tell_commit(work *w)
{
    control_wake(w->c);
    if (worker_step_number(&w->turn) + 1 >= atomic_load(&w->c->wake_at))
        worker_call_controller(w->c, w->u->event_fd);
}

/* Computes what its turn says. Time is counted but for that spent in waiting. */
static manta_status do_work(work *w, worker_action what, int item, bool together)
{
    int64_t begin = clock_now_ns(), waited = w->waited_ns, data = w->reader[0].waited_ns;
    manta_status st = together ? step_together(w) : do_action(w, what, item);
    int64_t busy = clock_now_ns() - begin - (w->waited_ns - waited);

    if (w->turn.train)
        shared_worker_account(w->c, w->u->rank,
                              &(worker_account){.busy_ns = busy,
                                                .data_ns = w->reader[0].waited_ns - data,
                                                .update_ns = what == WORKER_SHARD ? 0 : busy});
    if (!st && what == WORKER_SHARD && !together) count_shard(w, item);
    return st;
}

static manta_status serve_steps(work *w)
{
    for (;;) {
        uint32_t seen = atomic_load(&w->c->wake);
        int item = 0;
        worker_action what = worker_step_next(&w->turn, &item);
        manta_status st;
        bool together;

        switch (what) {
        case WORKER_LEAVE: return MANTA_OK;
        case WORKER_WAIT: wait_for_others(w, seen); break;
        case WORKER_COMMITTED: tell_commit(w); break;
        case WORKER_SHARD:
        case WORKER_NORMS:
        case WORKER_UPDATE:
            together = what == WORKER_SHARD && w->turn.train && w->s->meets;
            st = do_work(w, what, item, together);
            /* An error that came of a state that is changing under us is none. */
            if (st && atomic_load(&w->c->commit) == w->turn.word) return st;
            if (!st && !together) (void)worker_step_done(&w->turn, what, item);
            break;
        }
    }
}

/* ---- the start ---- */

static manta_status start_worker(work *w)
{
    manta_session *s = w->s;

    TRY(shared_attach(w->u->memory));
    /* Whoever takes over is warm before it sits down: the others wait for its first step. */
    if (w->u->incarnation > 1) mem_touch(w->u->memory->at, w->u->memory->size);
    w->sh = w->u->memory;
    w->c = w->sh->c;
    shared_worker_progress(w->c, w->u->rank, 0, WORKER_STARTING, 0);
    crash_rank = w->u->rank;
    group_crash(GROUP_CRASH_START_BEGIN);
    s->state = shared_buffer(w->sh, word_buffer(atomic_load(&w->c->commit)));
    for (int v = 0; v < s->shards; v++) s->slots[v] = shared_slot(w->sh, v);
    mem_try_free(s->a.norms);
    s->a.norms = shared_norms(w->sh);
    session_after_fork(s);
    s->threads = w->u->threads;
    w->scratch = (worker_scratch){.fd = w->u->scratch_fd, .made = &w->c->worker[w->u->rank].scratch};
    s->block = worker_scratch_block;
    s->block_ctx = &w->scratch;
    TRY(session_local(s));
    if (s->meets) {
        lockstep_free(s->lockstep);
        TRY(lockstep_new(s, shared_meetings(w->sh), tell_meeting, w->c, &s->lockstep));
    }
    atomic_store(&w->c->worker[w->u->rank].reads_ahead, 0); /* its predecessor may have died while it did */
    for (int i = 0; i < w->u->n_feeds; i++) {
        const feed_source *f = &w->u->feeds[i];
        TRY(feed_reader_open(&w->reader[i], f));
        w->reader[i].busy = &w->c->worker[w->u->rank].reads_ahead;
        TRY(session_prepare(s, f->train ? PLAN_TRAIN : PLAN_EVALUATE, f->sizes, f->n_sizes));
    }
    worker_step_init(&w->turn, w->c, w->u->rank);
    group_crash(GROUP_CRASH_START_READY);
    atomic_store(&w->c->worker[w->u->rank].ready, w->u->incarnation);
    worker_call_controller(w->c, w->u->event_fd);
    return MANTA_OK;
}

void group_worker_main(const worker_setup *u)
{
    static work w; /* too large for a stack */
    manta_status st;

    manta_error_origin(NULL, u->rank);
    w.u = u;
    w.s = u->s;
    if (u->s->logs) rank_logs_follow(rank_logs_folder(u->s->logs), &u->log, "rank", u->rank);
    st = start_worker(&w);
    if (!st) st = serve_steps(&w);
    if (st && w.c) report_error(&w);
    _exit(st ? 1 : 0);
}
