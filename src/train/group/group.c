/* group.c - the workers of a fit, seen from the process that called it: jobs and waiting.
 * Births and deaths are group_members.c's; who then computes what is group_membership.c's.
 *
 * The controller is one thread that sleeps in poll() on the workers' pidfds and on
 * an eventfd that workers write to. Whenever it wakes it does the same round
 * (look_after()), in this order:
 *
 *   sleep_until()    who has died meanwhile
 *   members_bury()    why it died and what that means (judge_death()): a loss of time,
 *                    a place less, or the end of the run; its work is kept or dealt out
 *   members_start()  a successor for every place that is empty and wanted
 *   members_watch()  who neither moves nor waits is killed, and is buried in a later round
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
#include "train/group/group_controller.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/cpu.h"
#include "os/sys.h"

enum {
    DEADLINE_MS = 5000,
    MAX_FAILURES = 3,
    LEAVE_MS = 2000, /* for workers to end by themselves */
};

worker_events *group_worker_events(group *g)
{
    return &g->events;
}

/* ---- waiting ---- */

/* Everything of the open step is done but its commit: nobody writes anything. */
static bool is_computed(const group *g)
{
    uint64_t word = group_committed_word(g), flag = word_of(word_generation(word), word_step_number(word), 0);

    for (int i = 0; i < g->n; i++) {
        if (atomic_load(&g->c->range_flag[i]) != flag) return false;
    }
    return true;
}

/* How long to sleep at most; -1: for ever. */
static int sleep_ms(const group *g)
{
    int64_t ms = g->deadline_ns < 0 ? INT_MAX : members_tick_ns(g) / 1000000 + 1;

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
        fds[i] = (struct pollfd){.fd = spawn_fd(&g->m[i].child), .events = POLLIN};
        if (g->m[i].died_ns && g->m[i].died_step < number) number = g->m[i].died_step + 1;
    }
    fds[g->n] = (struct pollfd){.fd = g->event_fd, .events = POLLIN};
    if (g->r.staged && word_step_number(group_committed_word(g)) < number)
        number = word_step_number(group_committed_word(g)) + 1;
    atomic_store(&g->c->wake_at, number);
    atomic_store(&g->c->controller_asleep, 1);
    /* Whoever commits or becomes ready from here on sees that we sleep. */
    members_see_ready(g);
    for (int i = 0; i < g->n; i++) {
        if (g->r.state[i] == MEMBERSHIP_READY && !g->r.unwanted[i] && !g->r.staged) timeout = 0;
    }
    if (word_step_number(group_committed_word(g)) >= number || membership_is_asked(&g->r)) timeout = 0;
    if (g->cutting && is_computed(g)) timeout = 0;
    if (os->poll(fds, (nfds_t)g->n + 1, timeout) < 0) {
        if (errno != EINTR) return manta_fail(MANTA_EIO, "workers cannot be waited for: %s", strerror(errno));
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
    members_see_ready(g);
    membership_settle(&g->r);
    dismiss_idle(g);
}

/* The highest ranks go first and come last. */
void group_resize(group *g, int workers)
{
    int now = members_wanted(g);

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
    if (members_wanted(g) == g->crew->wanted) return;
    group_resize(g, g->crew->wanted);
    settle_places(g);
}

/* Lowers the gate in front of workers that run on, unless that was done; the step number at
 * which they stop. A worker looks at the gate just before it commits, so one that looked
 * before may commit after: that one step, since for the next it looks again. So the gate is
 * shut first, then it is seen how far they are, and it is set behind the step that is open
 * then. */
static int64_t shut_gate(group *g)
{
    control *c = g->c;

    if (g->stop) return g->stop;
    atomic_store(&c->allowed, word_step_number(group_committed_word(g)));
    g->stop = word_step_number(group_committed_word(g)) + 1;
    if (g->stop > g->end) g->stop = g->end;
    atomic_store(&c->allowed, g->stop);
    control_wake(c);
    return g->stop;
}

static manta_status look_after(group *g, int64_t number)
{
    bool dead[SHARED_WORKERS];

    TRY(sleep_until(g, number, dead));
    for (int i = 0; i < g->n; i++) {
        if (!dead[i]) continue;
        /* The step that the death holds up is the last before it is told that it was made up for. */
        if (g->runs_on) (void)shut_gate(g);
        TRY(members_bury(g, i));
    }
    TRY(members_start(g));
    members_watch(g);
    settle_places(g); /* a successor comes first */
    if (membership_is_asked(&g->r)) membership_deal(&g->r);
    return MANTA_OK;
}

manta_status group_await(group *g, int64_t steps)
{
    int64_t number = g->begin + steps;

    for (;;) {
        uint64_t word = group_committed_word(g);
        members_see_recovered(g, word);
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
    g->runs_on = look != CLOCK_NEVER;
    while (!st) {
        uint64_t word = group_committed_word(g);
        members_see_recovered(g, word);
        if (word_step_number(word) >= g->end) break;
        if (look != CLOCK_NEVER && (g->signalled || g->events.n || clock_now_ns() >= look)) break;
        if (g->stop) break;
        st = look_after(g, g->end);
    }
    g->look = CLOCK_NEVER;
    g->runs_on = false;
    return st;
}

manta_status group_follow(group *g, int64_t look, int64_t *done)
{
    int64_t steps = *done + 1;

    if (!g->gated) {
        TRY(run_on(g, look));
        steps = (word_step_number(group_committed_word(g)) < g->end ? shut_gate(g) : g->end) - g->begin;
    }
    TRY(group_await(g, steps));
    *done = steps;
    return MANTA_OK;
}

/* ---- jobs ---- */

void group_begin(group *g, int feed, int64_t epoch, int64_t first, int64_t steps, bool gated)
{
    control *c = g->c;
    int64_t number = word_step_number(group_committed_word(g));

    g->begin = number - first; /* where step 0 was, or would have been */
    g->r.end = g->end = g->begin + steps;
    g->feed = feed;
    g->epoch = epoch;
    g->gated = gated;
    g->stop = 0;
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
    int64_t number = word_step_number(group_committed_word(g));

    follow_wish(g);
    if (number >= g->end) return;
    if (g->s->touched) {
        membership_touch(&g->r);
        g->s->touched = false;
    }
    if (atomic_load(&g->c->allowed) > number) return;
    g->stop = 0;
    atomic_store(&g->c->allowed, g->gated ? number + 1 : g->end);
    control_wake(g->c);
}

manta_status group_cut(group *g)
{
    control *c = g->c;
    int64_t number = word_step_number(group_committed_word(g));
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
    return shared_eval(g->sh, word_step_number(group_committed_word(g)));
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
    TRY(members_start(g));
    while (!all) {
        bool dead[SHARED_WORKERS];
        TRY(sleep_until(g, INT64_MAX >> 2, dead));
        for (int i = 0; i < g->n; i++) {
            if (dead[i]) TRY(members_bury(g, i));
        }
        members_watch(g);
        members_see_ready(g);
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
        st = manta_fail(MANTA_EIO, "an eventfd cannot be made: %s", strerror(errno));
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

void group_close(group *g)
{
    if (!g) return;
    atomic_store(&g->c->leave, 1);
    control_wake(g->c);
    members_end(g, clock_deadline(LEAVE_MS));
    g->s->state = shared_buffer(g->sh, word_buffer(group_committed_word(g)));
    if (g->event_fd >= 0) os->close(g->event_fd);
    mem_free(g);
}
