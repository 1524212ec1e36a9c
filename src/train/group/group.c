/* group.c - the workers of a fit, seen from the process that called it: births,
 * deaths and waiting. Who then computes what is group_membership.c's.
 *
 * The controller is one thread that sleeps in poll() on the workers' pidfds and on
 * an eventfd that workers write to. Whenever it wakes it does the same round
 * (look_after()), in this order:
 *
 *   sleep_until()    who has died meanwhile
 *   bury_member()    why it died and what that means (judge_death()): a loss of time,
 *                    a place less, or the end of the run; its work is kept or dealt out
 *   start_missing()  a successor for every place that is empty and wanted
 *   watch_members()  who neither moves nor waits is killed, and is buried in a later round
 *   settle_places()  who is ready takes its place; who is unwanted may end
 *
 * Who writes what: of the control block the controller writes the job, the gate
 * (`allowed`), the assignments, which of them is staged, and whom it dismisses; a worker
 * writes flags, its progress and error, and whether it is ready, idle or asleep (which
 * the controller clears for the dead). Once there are workers both write `commit` with a
 * compare-and-swap alone: a worker to publish a step, the controller to begin a
 * generation. What is in `member` is the controller's own, and no worker sees it.
 *
 * Why that is safe: a pidfd is readable only after the last store of its process, and
 * nothing of a worker is given to another before. A hint may be lost with the worker
 * that was about to give it, since its death wakes the controller as well. Before it
 * sleeps the controller says so (controller_asleep) and then looks once more, so that
 * whoever commits or becomes ready after that look sees that it sleeps.
 *
 * What may be changed: the order of a round, but for burying before starting, and how
 * often it looks. What may not: to raise a generation for a worker that only seems to be
 * dead. One that hangs is killed, and its pidfd is waited for like any other's. */
#include "train/group/group.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/cpu.h"
#include "os/proc.h"
#include "os/shm.h"
#include "os/spawn.h"
#include "os/sys.h"
#include "train/group/group_samples.h"
#include "train/group/group_membership.h"
#include "train/group/group_watch.h"

enum {
    DEADLINE_MS = 5000,
    MAX_FAILURES = 3,
    LEAVE_MS = 2000, /* for workers to end by themselves */
};

typedef struct member {
    int scratch_fd; /* outlives the process; -1: none */
    pid_t pid;
    int pidfd;
    uint32_t incarnation;
    int failures; /* deaths in a row without a step */
    watch watch;
    watch_verdict verdict; /* why we killed it, if we did */
    bool outside; /* it died of something that may have come from anywhere */
    /* The last death, until the next commit. */
    int64_t died_ns, died_step; /* died_ns 0: none */
    pid_t died_pid;
    char cause[96];
} member;

struct group {
    manta_session *s;
    group_crew *crew;
    shared *sh;
    control *c;
    const feed_source *feeds;
    int n_feeds;
    int64_t deadline_ns;
    int max_failures;
    int n;
    int event_fd;
    member m[SHARED_WORKERS];
    membership r;
    blame blames[LAYOUT_MAX_SHARDS];
    int64_t begin, end; /* step numbers of the job */
    bool gated; /* it goes on by group_next() alone */
    bool signalled; /* a signal has come since group_follow() began to wait */
    bool cutting; /* group_cut() waits */
    int64_t look; /* when a sleep is to end, at the latest */
    int64_t epoch;
    int feed;
    int64_t ticked_ns;
    worker_events events;
};

static uint64_t committed_word(const group *g)
{
    return atomic_load(&g->c->commit);
}

worker_events *group_worker_events(group *g)
{
    return &g->events;
}

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

static manta_status start_member(group *g, int rank)
{
    member *m = &g->m[rank];
    worker_setup u;
    manta_status st;
    pid_t pid;

    /* Without one it works in memory of its own. */
    if (m->scratch_fd < 0 && shm_new_empty("manta-desk", &m->scratch_fd)) m->scratch_fd = -1;
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
    TRY(spawn_fork(&pid));
    if (!pid) group_worker_main(&u);
    if ((st = proc_pidfd_open(pid, &m->pidfd))) {
        os->kill(pid, SIGKILL);
        spawn_wait(pid);
        return st;
    }
    m->pid = pid;
    m->incarnation++;
    g->r.state[rank] = MEMBERSHIP_STARTING;
    m->watch = (watch){0};
    m->verdict = WATCH_FINE;
    worker_events_add(&g->events, &(worker_event){.kind = WORKER_EVENT_STARTED, .rank = rank, .pid = pid});
    return MANTA_OK;
}

/* Fills the empty places. When the system has no room for a process and others
 * live, they go on alone, and it is tried again later. */
static manta_status start_missing(group *g)
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

static void see_ready(group *g)
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
        snprintf(text, size, "step %lld of epoch %lld%s", (long long)(number - g->begin) + 1,
                 (long long)g->epoch + 1, g->feeds[g->feed].train ? "" : " (evaluation)");
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
    int64_t step = number - g->begin, count = f->batched ? 0 : feed_source_count(f, g->epoch, step);
    int64_t lo = session_shard_begin(g->s, count, shard), hi = session_shard_begin(g->s, count, shard + 1);
    char where[80], names[200];

    return manta_fail(MANTA_EDIED,
                      "%s: shard %d has ended every worker that computed it (%d of them, the last one %s); "
                      "it has %s",
                      place_of(g, number, where, sizeof where), shard,
                      g->blames[shard].crashes + g->blames[shard].kills, g->m[rank].cause,
                      samples_text(f, g->epoch, step, lo, hi, names, sizeof names));
}

static int count_wanted(const group *g)
{
    int n = 0;

    for (int i = 0; i < g->n; i++) n += !g->r.unwanted[i];
    return n;
}

/* Gives up a place whose worker fails over and over, if the others suffice. */
static bool give_up(group *g, int rank)
{
    worker_event e = {.kind = WORKER_EVENT_LEFT, .rank = rank, .pid = g->m[rank].pid};

    if (count_wanted(g) <= g->crew->least) return false;
    g->r.unwanted[rank] = true;
    g->crew->wanted = count_wanted(g);
    memcpy(e.cause, g->m[rank].cause, sizeof e.cause);
    worker_events_add(&g->events, &e);
    return true;
}

/* What a death means: nothing but a loss of time, a place less, or the end of the run. */
static manta_status judge_death(group *g, int rank, bool was_active)
{
    member *m = &g->m[rank];
    const shared_worker *worker = &g->c->worker[rank];
    uint64_t progress = atomic_load(&worker->progress), word = committed_word(g);
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

    spawn_wait(m->pid);
    os->close(m->pidfd);
    clear_scratch(g, rank);
    atomic_store(&g->c->worker[rank].asleep, 0);
    membership_remove(&g->r, rank, false);
    m->failures = 0;
    worker_events_add(
        &g->events,
        &(worker_event){.kind = WORKER_EVENT_LEFT, .rank = rank, .pid = m->pid, .cause = "on request"});
    return start_missing(g); /* it may be wanted again by now */
}

/* The pidfd says that it is dead: none of its stores is still to come. */
static manta_status bury_member(group *g, int rank)
{
    member *m = &g->m[rank];
    int64_t now = clock_now_ns();
    bool was_active;
    manta_status st;

    membership_see(&g->r);
    if (g->r.state[rank] == MEMBERSHIP_LEAVING) return part_with(g, rank);
    note_cause(g, rank, spawn_wait(m->pid));
    os->close(m->pidfd);
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
        m->died_step = word_step_number(committed_word(g));
        m->died_pid = m->pid;
    }
    TRY(start_missing(g));
    if (g->r.state[rank] == MEMBERSHIP_EMPTY) membership_deal(&g->r); /* nobody comes */
    return MANTA_OK;
}

/* Tells of deaths that a commit has made up for. */
static void see_recovered(group *g, uint64_t word)
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

static int64_t tick_ns(const group *g)
{
    int64_t tick = g->deadline_ns / 8;

    return tick < 5 * 1000000 ? 5 * 1000000 : tick;
}

static void watch_members(group *g)
{
    int64_t now = clock_now_ns();
    bool late = now - g->ticked_ns > 4 * tick_ns(g); /* we were stopped ourselves: nobody is to blame */

    if (g->deadline_ns < 0 || now - g->ticked_ns < tick_ns(g)) return;
    g->ticked_ns = now;
    for (int i = 0; i < g->n; i++) {
        member *m = &g->m[i];
        uint64_t progress = atomic_load(&g->c->worker[i].progress);
        bool waits = g->r.state[i] == MEMBERSHIP_READY || g->r.state[i] == MEMBERSHIP_LEAVING ||
                     (worker_phase)(progress >> 12 & 15) == WORKER_WAITING;
        if (g->r.state[i] == MEMBERSHIP_EMPTY || m->verdict != WATCH_FINE) continue;
        if (late) m->watch = (watch){0};
        m->verdict = watch_look(&m->watch, m->pid, progress, waits, now, g->deadline_ns);
        if (m->verdict != WATCH_FINE) os->kill(m->pid, SIGKILL);
    }
}

/* ---- waiting ---- */

/* Everything of the open step is done but its commit: nobody writes anything. */
static bool is_computed(const group *g)
{
    uint64_t word = committed_word(g), flag = word_of(word_generation(word), word_step_number(word), 0);

    for (int i = 0; i < g->n; i++) {
        if (atomic_load(&g->c->range_flag[i]) != flag) return false;
    }
    return true;
}

/* How long to sleep at most; -1: for ever. */
static int sleep_ms(const group *g)
{
    int64_t ms = g->deadline_ns < 0 ? INT_MAX : tick_ns(g) / 1000000 + 1;

    if (g->look != CLOCK_NEVER) {
        int64_t left = (g->look - clock_now_ns()) / 1000000 + 1;
        if (left < ms) ms = left < 0 ? 0 : left;
    }
    return ms == INT_MAX ? -1 : (int)ms;
}

/* Sleeps until a worker dies, calls, or has committed `number` steps, or until it is time
 * to look, or a signal comes. */
static manta_status sleep_until(group *g, int64_t number, bool *dead)
{
    struct pollfd fds[SHARED_WORKERS + 1];
    int timeout = sleep_ms(g);
    uint64_t calls;
    ssize_t got;

    for (int i = 0; i < g->n; i++) {
        fds[i] =
            (struct pollfd){.fd = g->r.state[i] == MEMBERSHIP_EMPTY ? -1 : g->m[i].pidfd, .events = POLLIN};
        if (g->m[i].died_ns && g->m[i].died_step < number) number = g->m[i].died_step + 1;
    }
    fds[g->n] = (struct pollfd){.fd = g->event_fd, .events = POLLIN};
    if (g->r.staged && word_step_number(committed_word(g)) < number)
        number = word_step_number(committed_word(g)) + 1;
    atomic_store(&g->c->wake_at, number);
    atomic_store(&g->c->controller_asleep, 1);
    /* Whoever commits or becomes ready from here on sees that we sleep. */
    see_ready(g);
    for (int i = 0; i < g->n; i++) {
        if (g->r.state[i] == MEMBERSHIP_READY && !g->r.unwanted[i] && !g->r.staged) timeout = 0;
    }
    if (word_step_number(committed_word(g)) >= number || membership_is_asked(&g->r)) timeout = 0;
    if (g->cutting && is_computed(g)) timeout = 0;
    if (os->poll(fds, (nfds_t)g->n + 1, timeout) < 0) {
        if (errno != EINTR) return manta_fail(MANTA_EIO, "waiting for workers: %s", strerror(errno));
        g->signalled = true;
    }
    atomic_store(&g->c->controller_asleep, 0);
    got = os->read(g->event_fd, &calls, sizeof calls); /* it never blocks */
    (void)got;
    for (int i = 0; i < g->n; i++) dead[i] = fds[i].fd >= 0 && fds[i].revents;
    return MANTA_OK;
}

/* ---- coming and going ---- */

/* Lets those end who have no place any more, or never got one. */
static void dismiss_idle(group *g)
{
    bool any = false;

    for (int i = 0; i < g->n; i++) {
        bool idle =
            g->r.state[i] == MEMBERSHIP_LEAVING || (g->r.state[i] == MEMBERSHIP_READY && g->r.unwanted[i]);
        if (!idle || atomic_load(&g->c->worker[i].dismissed)) continue;
        g->r.state[i] = MEMBERSHIP_LEAVING;
        atomic_store(&g->c->worker[i].dismissed, 1);
        any = true;
    }
    if (any) control_wake(g->c);
}

/* Places change hands. */
static void settle_places(group *g)
{
    see_ready(g);
    membership_settle(&g->r);
    dismiss_idle(g);
}

/* The highest ranks go first and come last. */
void group_resize(group *g, int workers)
{
    int now = count_wanted(g);

    for (int i = g->n - 1; i >= 0 && now > workers; i--) {
        if (g->r.unwanted[i]) continue;
        g->r.unwanted[i] = true;
        now--;
    }
    for (int i = 0; i < g->n && now < workers; i++) {
        if (!g->r.unwanted[i]) continue;
        g->r.unwanted[i] = false;
        g->m[i].failures = 0;
        now++;
    }
}

/* What the caller has asked for since the last look. */
static void follow_wish(group *g)
{
    if (count_wanted(g) == g->crew->wanted) return;
    group_resize(g, g->crew->wanted);
    settle_places(g);
}

static manta_status look_after(group *g, int64_t number)
{
    bool dead[SHARED_WORKERS];

    TRY(sleep_until(g, number, dead));
    for (int i = 0; i < g->n; i++) {
        if (dead[i]) TRY(bury_member(g, i));
    }
    TRY(start_missing(g));
    watch_members(g);
    settle_places(g); /* a successor comes first */
    if (membership_is_asked(&g->r)) membership_deal(&g->r);
    return MANTA_OK;
}

manta_status group_await(group *g, int64_t steps)
{
    int64_t number = g->begin + steps;

    for (;;) {
        uint64_t word = committed_word(g);
        see_recovered(g, word);
        if (word_step_number(word) >= number) {
            g->s->state = shared_buffer(g->sh, word_buffer(word));
            g->s->touched = false;
            return MANTA_OK;
        }
        TRY(look_after(g, number));
    }
}

/* ---- looking now and then ---- */

/* Waits until the job is done, or there is reason to look at it. */
static manta_status run_on(group *g, int64_t look)
{
    manta_status st = MANTA_OK;

    g->signalled = false;
    g->look = look;
    while (!st) {
        uint64_t word = committed_word(g);
        see_recovered(g, word);
        if (word_step_number(word) >= g->end) break;
        if (look != CLOCK_NEVER && (g->signalled || g->events.n || clock_now_ns() >= look)) break;
        st = look_after(g, g->end);
    }
    g->look = CLOCK_NEVER;
    return st;
}

/* Lowers the gate in front of workers that run on; the step number at which they stop. A
 * worker may have looked at the gate before and commit after it: that one step, since
 * for the next it looks again. So the gate is shut first, then it is seen how far they
 * are, and it is set two steps behind that. */
static int64_t shut_gate(group *g)
{
    control *c = g->c;
    int64_t stop;

    atomic_store(&c->allowed, word_step_number(committed_word(g)));
    stop = word_step_number(committed_word(g)) + 2;
    if (stop > g->end) stop = g->end;
    atomic_store(&c->allowed, stop);
    control_wake(c);
    return stop;
}

manta_status group_follow(group *g, int64_t look, int64_t *done)
{
    int64_t steps = *done + 1;

    if (!g->gated) {
        TRY(run_on(g, look));
        steps = (word_step_number(committed_word(g)) < g->end ? shut_gate(g) : g->end) - g->begin;
    }
    TRY(group_await(g, steps));
    *done = steps;
    return MANTA_OK;
}

/* ---- jobs ---- */

void group_begin(group *g, int feed, int64_t epoch, int64_t first, int64_t steps, bool gated)
{
    control *c = g->c;
    int64_t number = word_step_number(committed_word(g));

    g->begin = number - first; /* where step 0 was, or would have been */
    g->r.end = g->end = g->begin + steps;
    g->feed = feed;
    g->epoch = epoch;
    g->gated = gated;
    if (!g->feeds[feed].train) memset(shared_eval(g->sh, number), 0, g->sh->eval_stride);
    c->job.feed = feed;
    c->job.train = g->feeds[feed].train;
    c->job.epoch = epoch;
    c->job.begin = g->begin;
    atomic_store(&c->allowed, gated ? number + 1 : g->end);
    g->ticked_ns = clock_now_ns();
    atomic_store(&c->job.end, g->end);
    control_wake(c);
}

void group_next(group *g)
{
    int64_t number = word_step_number(committed_word(g));

    follow_wish(g);
    if (number >= g->end) return;
    if (g->s->touched) {
        membership_touch(&g->r);
        g->s->touched = false;
    }
    if (atomic_load(&g->c->allowed) > number) return;
    atomic_store(&g->c->allowed, g->gated ? number + 1 : g->end);
    control_wake(g->c);
}

manta_status group_cut(group *g)
{
    control *c = g->c;
    int64_t number = word_step_number(committed_word(g));
    manta_status st = MANTA_OK;

    if (number >= g->end) return MANTA_OK;
    g->cutting = true;
    atomic_store(&c->cutting, 1);
    control_wake(c); /* whoever waits already says so now */
    while (!st && !is_computed(g)) st = look_after(g, number + 1);
    atomic_store(&c->cutting, 0);
    g->cutting = false;
    if (st) return st;
    g->r.end = g->end = number;
    atomic_store(&c->job.end, number);
    membership_touch(&g->r); /* what was computed is for nothing */
    return MANTA_OK;
}

const double *group_eval_sums(const group *g)
{
    return shared_eval(g->sh, word_step_number(committed_word(g)));
}

/* ---- opening and closing ---- */

/* Begins anew, from the buffer that the session's state is in. */
static void reset_control(group *g)
{
    manta_session *s = g->s;
    int buffer = s->state == shared_buffer(g->sh, 1);

    memset(g->c, 0, sizeof *g->c);
    memset(shared_meetings(g->sh), 0, g->sh->meetings_size); /* step numbers begin anew */
    control_init(g->c, g->n, s->shards, apply_needs_norms(&s->a));
    atomic_store(&g->c->commit, word_of(1, 0, buffer));
    g->c->crowded = g->n * g->crew->threads > cpu_cores();
    membership_init(&g->r, g->c);
}

static manta_status start_all(group *g)
{
    bool all = false;

    group_resize(g, g->crew->wanted);
    TRY(start_missing(g));
    while (!all) {
        bool dead[SHARED_WORKERS];
        TRY(sleep_until(g, INT64_MAX >> 2, dead));
        for (int i = 0; i < g->n; i++) {
            if (dead[i]) TRY(bury_member(g, i));
        }
        watch_members(g);
        see_ready(g);
        all = true;
        for (int i = 0; i < g->n; i++) all &= g->r.state[i] == MEMBERSHIP_READY || g->r.unwanted[i];
    }
    settle_places(g);
    return MANTA_OK;
}

manta_status group_open(manta_session *s, const feed_source *feeds, int n_feeds, const group_options *o,
                        group **out)
{
    group_crew *crew = group_crew_of(s);
    group *g = mem_new(sizeof *g);
    int64_t deadline_ms = o->deadline_ms ? o->deadline_ms : DEADLINE_MS;
    manta_status st;

    *g = (group){.s = s,
                 .crew = crew,
                 .sh = crew->memory,
                 .c = crew->memory->c,
                 .feeds = feeds,
                 .n_feeds = n_feeds,
                 .deadline_ns = deadline_ms < 0 ? -1 : deadline_ms * 1000000,
                 .max_failures = o->max_failures ? o->max_failures : MAX_FAILURES,
                 .n = crew->workers,
                 .look = CLOCK_NEVER,
                 .ticked_ns = clock_now_ns()};
    for (int i = 0; i < LAYOUT_MAX_SHARDS; i++) g->blames[i].number = -1;
    for (int i = 0; i < SHARED_WORKERS; i++) g->m[i].scratch_fd = -1;
    reset_control(g);
    g->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g->event_fd < 0) {
        st = manta_fail(MANTA_EIO, "making an event descriptor: %s", strerror(errno));
        goto out;
    }
    for (int i = 0; i < n_feeds; i++) {
        if ((st = samples_settle(feeds[i].d))) goto out;
    }
    if ((st = start_all(g))) goto out;
    *out = g;
    g = NULL;
out:
    group_close(g);
    return st;
}

/* Waits until all members are dead or the deadline has passed. */
static void await_ends(group *g, int64_t deadline)
{
    for (;;) {
        struct pollfd fds[SHARED_WORKERS];
        int64_t left_ms = deadline == CLOCK_NEVER ? 60000 : (deadline - clock_now_ns()) / 1000000 + 1;
        int alive = 0;
        for (int i = 0; i < g->n; i++) {
            if (g->r.state[i] == MEMBERSHIP_EMPTY) continue;
            fds[alive++] = (struct pollfd){.fd = g->m[i].pidfd, .events = POLLIN};
        }
        if (!alive || left_ms <= 0) return;
        if (os->poll(fds, (nfds_t)alive, (int)left_ms) < 0 && errno != EINTR) return;
        for (int i = 0; i < g->n; i++) {
            struct pollfd one = {.fd = g->m[i].pidfd, .events = POLLIN};
            if (g->r.state[i] == MEMBERSHIP_EMPTY || os->poll(&one, 1, 0) <= 0) continue;
            spawn_wait(g->m[i].pid);
            os->close(g->m[i].pidfd);
            g->r.state[i] = MEMBERSHIP_EMPTY;
        }
    }
}

void group_close(group *g)
{
    if (!g) return;
    atomic_store(&g->c->leave, 1);
    control_wake(g->c);
    await_ends(g, clock_deadline(LEAVE_MS));
    for (int i = 0; i < g->n; i++) {
        if (g->r.state[i] != MEMBERSHIP_EMPTY) os->kill(g->m[i].pid, SIGKILL);
    }
    await_ends(g, CLOCK_NEVER);
    g->s->state = shared_buffer(g->sh, word_buffer(committed_word(g)));
    for (int i = 0; i < g->n; i++) drop_scratch(&g->m[i]);
    if (g->event_fd >= 0) os->close(g->event_fd);
    mem_free(g);
}
