/* group_members.c - the workers of a group one by one: births, deaths and hangs, seen from the
 * controller (group.c has the picture of its round).
 *
 *            start_member()          it says that it is ready
 *   empty ───────────────▶ starting ─────────────────────────▶ ready, and so on: group_membership.h
 *     ▲                                                          │
 *     │ members_bury(): reap, note_cause(), judge_death()        │ its pidfd is readable
 *     └──────────────────────────────────────────────────────────┘
 *
 * A death is judged by what the dead worker has left in the control block: its progress word
 * (which step, which phase, which shard) and its error, if it wrote one. One of three things
 * follows:
 *
 *   a loss of time       a successor starts; the work is kept for it after a first death, and
 *                        dealt out to the living after more
 *   a place less         it fails over and over, and the others suffice (give_up())
 *   the end of the run   it reported an error, or a shard has ended every worker that computed
 *                        it, or deaths go on without a step between them
 *
 * Who writes what: all of `member` is written here and in the controller's thread alone. Of
 * the control block this file clears what a dead worker can no longer clear: `asleep`, and
 * `scratch` when nobody follows.
 *
 * What makes it safe: nothing of a worker is read for judgement before its pidfd is readable,
 * so its last store has been seen; and it is reaped before a successor is started, so no two
 * processes ever hold one place. A worker that only seems to be dead is killed first. */
#include "train/group/group_controller.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "os/shm.h"
#include "os/sys.h"

/* ---- births ---- */

static void drop_scratch(member *m)
{
    if (m->scratch_fd >= 0) os->close(m->scratch_fd);
    m->scratch_fd = -1;
}

/* Nobody follows: what the last one computed in is the system's again, which may be
 * short of just that. */
static void clear_scratch(group *g, int rank)
{
    drop_scratch(&g->m[rank]);
    atomic_store(&g->c->worker[rank].scratch, 0);
}

static void run_worker(void *ctx)
{
    group_worker_main(ctx);
}

static manta_status start_member(group *g, int rank)
{
    member *m = &g->m[rank];
    worker_setup u;
    spawn_options o = {.run = run_worker, .ctx = &u, .signals = SPAWN_SIGNALS_LEFT, .dies_with_parent = true};

    /* Without one it works in memory of its own. */
    if (m->scratch_fd < 0 && shm_new_empty("manta-scratch", &m->scratch_fd)) m->scratch_fd = -1;
    u = (worker_setup){.s = g->s,
                       .rank = rank,
                       .incarnation = m->incarnation + 1,
                       .memory = g->sh,
                       .threads = g->crew->threads,
                       .controller = getpid(),
                       .event_fd = g->event_fd,
                       .scratch_fd = m->scratch_fd,
                       .feeds = g->feeds,
                       .n_feeds = g->n_feeds};
    atomic_store(&g->c->worker[rank].dismissed, 0);
    if (g->s->logs) TRY(rank_logs_expect(g->s->logs, "rank", rank, &u.log));
    TRY(spawn_start(&o, &m->child));
    m->pid = m->child.pid;
    m->incarnation++;
    g->r.state[rank] = MEMBERSHIP_STARTING;
    m->watch = (watch){0};
    m->verdict = WATCH_FINE;
    worker_events_add(&g->events, &(worker_event){.kind = WORKER_EVENT_STARTED, .rank = rank, .pid = m->pid});
    return MANTA_OK;
}

manta_status members_start(group *g)
{
    int alive = 0;

    for (int i = 0; i < g->n; i++) alive += g->r.state[i] != MEMBERSHIP_EMPTY;
    for (int i = 0; i < g->n; i++) {
        bool missing = g->r.state[i] == MEMBERSHIP_EMPTY && !g->r.unwanted[i];
        manta_status st = missing ? start_member(g, i) : MANTA_OK;
        if (st && !alive) return st;
        if (st)
            log_warn("a worker could not be started", LOG_INT("rank", i), LOG_STR("why", manta_error_text()));
    }
    return MANTA_OK;
}

void members_see_ready(group *g)
{
    for (int i = 0; i < g->n; i++) {
        if (g->r.state[i] == MEMBERSHIP_STARTING &&
            atomic_load(&g->c->worker[i].ready) == g->m[i].incarnation)
            g->r.state[i] = MEMBERSHIP_READY;
    }
}

/* ---- deaths ---- */

/* "step 12 of epoch 1"; a step number outside the job is not of this epoch. */
static const char *place_of(const group *g, int64_t number, char *text, size_t size)
{
    if (number >= g->begin && number < g->end) {
        train_position at = group_position(g, number);
        snprintf(text, size, "step %lld of epoch %lld%s", (long long)at.step + 1, (long long)at.epoch + 1,
                 g->feeds[g->feed].train ? "" : " (evaluation)");
    } else {
        snprintf(text, size, "the start");
    }
    return text;
}

static manta_status raise_error(const group *g, int rank, int64_t number)
{
    manta_error e = g->c->worker[rank].error; /* the writer is dead */
    char where[80];

    e.text[sizeof e.text - 1] = '\0';
    return manta_fail(e.code ? e.code : MANTA_EINTERNAL, "worker %d, %s: %s", rank,
                      place_of(g, number, where, sizeof where), e.text);
}

static manta_status fail_poisoned(const group *g, int rank, int64_t number, int shard)
{
    const feed_source *f = &g->feeds[g->feed];
    train_position at = group_position(g, number);
    int64_t count = f->batched ? 0 : feed_source_count(f, at.epoch, at.step);
    int64_t lo = session_shard_begin(g->s, count, shard), hi = session_shard_begin(g->s, count, shard + 1);
    char where[80], names[200];

    return manta_fail(MANTA_EDIED,
                      "%s: shard %d has ended every worker that computed it (%d of them, the last one %s); "
                      "it has %s",
                      place_of(g, number, where, sizeof where), shard,
                      g->blames[shard].crashes + g->blames[shard].kills, g->m[rank].cause,
                      samples_text(f, at.epoch, at.step, lo, hi, names, sizeof names));
}

int members_wanted(const group *g)
{
    int n = 0;

    for (int i = 0; i < g->n; i++) n += !g->r.unwanted[i];
    return n;
}

/* Gives up a place whose worker fails over and over, if the others suffice. */
static bool give_up(group *g, int rank)
{
    worker_event e = {.kind = WORKER_EVENT_LEFT, .rank = rank, .pid = g->m[rank].pid};

    if (members_wanted(g) <= g->crew->least) return false;
    g->r.unwanted[rank] = true;
    g->crew->wanted = members_wanted(g);
    memcpy(e.cause, g->m[rank].cause, sizeof e.cause);
    worker_events_add(&g->events, &e);
    return true;
}

/* What a death means: nothing but a loss of time, a place less, or the end of the run. */
static manta_status judge_death(group *g, int rank, bool was_active)
{
    member *m = &g->m[rank];
    const shared_worker *worker = &g->c->worker[rank];
    uint64_t progress = atomic_load(&worker->progress), word = group_committed_word(g);
    worker_phase phase = (worker_phase)(progress >> 12 & 15);
    int64_t number = (int64_t)(progress >> 16);
    int item = (int)(progress & 0xfff);
    bool reported = atomic_load(&worker->failed) == m->incarnation;

    if (was_active && word_step_number(word) > g->r.active_since[rank]) m->failures = 0;
    m->failures++;
    if (was_active && reported && worker->failed_base == g->r.base) return raise_error(g, rank, number);
    if (!was_active && reported && (m->failures >= g->max_failures || g->r.generations == 1))
        return give_up(g, rank) ? MANTA_OK : raise_error(g, rank, -1);
    /* One that was reading ahead may have died of rows of a later step. Its successor does
     * not read ahead in its first steps, so that who is at fault shows then. */
    if (was_active && phase == WORKER_COMPUTING && number == word_step_number(word) && item < g->c->shards &&
        !atomic_load(&worker->reads_ahead) && blame_add(&g->blames[item], number, !m->outside)) {
        return fail_poisoned(g, rank, number, item);
    }
    if (m->failures > g->max_failures && !give_up(g, rank)) {
        char where[80];
        return manta_fail(MANTA_EDIED,
                          "worker %d died %d times in a row without finishing a step, at %s; the last "
                          "one (process %ld) %s",
                          rank, m->failures, place_of(g, word_step_number(word), where, sizeof where),
                          (long)m->pid, m->cause);
    }
    return MANTA_OK;
}

static void note_cause(group *g, int rank, int status)
{
    member *m = &g->m[rank];

    m->outside = m->verdict == WATCH_STOPPED;
    if (m->verdict == WATCH_FINE) {
        m->outside = status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        spawn_status_text(status, m->cause, sizeof m->cause);
    } else {
        snprintf(m->cause, sizeof m->cause, "%s for %.1f s, so it was killed",
                 m->outside ? "stopped" : "hung", (double)g->deadline_ns / 1e9);
    }
    log_info("a worker ended", LOG_INT("rank", rank), LOG_INT("pid", m->pid), LOG_STR("cause", m->cause));
}

/* One that was no longer wanted has ended, in whatever way. */
static manta_status part_with(group *g, int rank)
{
    member *m = &g->m[rank];

    spawn_wait(&m->child);
    clear_scratch(g, rank);
    atomic_store(&g->c->worker[rank].asleep, 0);
    membership_remove(&g->r, rank, false);
    m->failures = 0;
    worker_events_add(
        &g->events,
        &(worker_event){.kind = WORKER_EVENT_LEFT, .rank = rank, .pid = m->pid, .cause = "on request"});
    return members_start(g); /* it may be wanted again by now */
}

manta_status members_bury(group *g, int rank)
{
    member *m = &g->m[rank];
    int64_t now = clock_now_ns();
    bool was_active;
    manta_status st;

    membership_see(&g->r);
    if (g->r.state[rank] == MEMBERSHIP_LEAVING) return part_with(g, rank);
    note_cause(g, rank, spawn_wait(&m->child));
    atomic_store(&g->c->worker[rank].asleep, 0);
    st = judge_death(g, rank, g->r.state[rank] == MEMBERSHIP_ACTIVE);
    if (st) { /* the run ends: nobody takes over what has ended this one */
        g->r.state[rank] = MEMBERSHIP_EMPTY;
        return st;
    }
    /* Bad luck is made up for by the successor; what kills again and again is not given to another
     * one and another one, or the place would be blamed where the samples are at fault. */
    was_active = membership_remove(&g->r, rank, m->failures == 1 && !g->r.unwanted[rank]);
    if (g->r.unwanted[rank]) clear_scratch(g, rank);
    if (g->r.unwanted[rank] && m->failures <= g->max_failures) { /* else it was given up, and told */
        worker_event e = {.kind = WORKER_EVENT_LEFT, .rank = rank, .pid = m->pid};
        memcpy(e.cause, m->cause, sizeof e.cause);
        worker_events_add(&g->events, &e);
    }
    if (was_active) {
        m->died_ns = now;
        m->died_step = word_step_number(group_committed_word(g));
        m->died_pid = m->pid;
    }
    TRY(members_start(g));
    if (g->r.state[rank] == MEMBERSHIP_EMPTY) membership_deal(&g->r); /* nobody comes */
    return MANTA_OK;
}

void members_see_recovered(group *g, uint64_t word)
{
    for (int i = 0; i < g->n; i++) {
        member *m = &g->m[i];
        worker_event e = {.kind = WORKER_EVENT_RECOVERED, .rank = i, .pid = m->died_pid};
        if (!m->died_ns || word_step_number(word) <= m->died_step) continue;
        e.ms = (double)(clock_now_ns() - m->died_ns) / 1e6;
        memcpy(e.cause, m->cause, sizeof e.cause);
        worker_events_add(&g->events, &e);
        m->died_ns = 0;
    }
}

/* ---- hangs ---- */

int64_t members_tick_ns(const group *g)
{
    int64_t tick = g->deadline_ns / 8;

    return tick < 5 * 1000000 ? 5 * 1000000 : tick;
}

void members_watch(group *g)
{
    int64_t now = clock_now_ns();
    bool late =
        now - g->ticked_ns > 4 * members_tick_ns(g); /* we were stopped ourselves: nobody is to blame */

    if (g->deadline_ns < 0 || now - g->ticked_ns < members_tick_ns(g)) return;
    g->ticked_ns = now;
    for (int i = 0; i < g->n; i++) {
        member *m = &g->m[i];
        uint64_t progress = atomic_load(&g->c->worker[i].progress);
        bool waits = g->r.state[i] == MEMBERSHIP_READY || g->r.state[i] == MEMBERSHIP_LEAVING ||
                     (worker_phase)(progress >> 12 & 15) == WORKER_WAITING;
        if (g->r.state[i] == MEMBERSHIP_EMPTY || m->verdict != WATCH_FINE) continue;
        if (late) m->watch = (watch){0};
        m->verdict = watch_look(&m->watch, m->pid, progress, waits, now, g->deadline_ns);
        if (m->verdict != WATCH_FINE) spawn_signal(&m->child, SIGKILL);
    }
}

/* ---- the end of all ---- */

void members_end(group *g, int64_t deadline)
{
    spawn_child *all[SHARED_WORKERS];

    for (int i = 0; i < g->n; i++) all[i] = &g->m[i].child;
    spawn_end_all(all, g->n, deadline);
    for (int i = 0; i < g->n; i++) {
        g->r.state[i] = MEMBERSHIP_EMPTY;
        drop_scratch(&g->m[i]);
    }
}
