/* launcher.c - the loop of `manta launch`. See launcher.h. */
#include "launch/launcher.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <manta/tool_text.h>

#include "base/clock.h"
#include "base/vec.h"
#include "os/sys.h"

enum {
    GRACE_MS = 30000,
    LEASE_MS = 30000,
    START_MS = 120000,
    END_MS = 5000, /* for agents and commands to end, when no rank is left */
    LAST_LINES_MS =
        1000, /* for a reader to take what waits, when there was a signal and nothing else is left */
    LAST_READS = 64, /* of what a command left in a pipe, which is more than one holds */
    AGAIN_MS = 500, /* timeout(1) sends its signal twice; a person takes longer */
    UNREAD = 141,
    RESUMABLE = 75
};

/* ---- the end ---- */

void launcher_end(launcher *l, int number)
{
    int urgency = number == SIGKILL ? 2 : 1;
    bool runs = false;

    if (urgency <= l->urgency) return;
    l->urgency = urgency;
    for (int i = 0; i < l->n_hosts; i++) {
        launch_host *h = &l->hosts[i];
        if (h->state == HOST_GONE) continue;
        runs = runs || h->state == HOST_RUNNING;
        if (h->state == HOST_RUNNING)
            talk_post_json(&h->t, TALK_SIGNAL, json_pack("{s:i}", "number", number));
        if (h->state != HOST_RUNNING) talk_post(&h->t, TALK_BYE, NULL, 0);
    }
    if (!runs) l->urgency = 2; /* there is nobody to be asked */
    l->deadline = clock_deadline(l->urgency == 2 ? END_MS : l->o->grace_ms + TALK_PULSE_MS);
}

/* What could not be had by asking. */
static void press_harder(launcher *l)
{
    if (l->urgency < 2) {
        launcher_end(l, SIGKILL);
        return;
    }
    l->urgency = 3;
    l->deadline = CLOCK_NEVER;
    for (int i = 0; i < l->n_begun; i++) spawn_signal(&l->hosts[i].child, SIGKILL);
}

static void close_host(launch_host *h)
{
    int *fds[] = {&h->in, &h->out, &h->err};

    for (int i = 0; i < 3; i++) {
        if (*fds[i] >= 0) os->close(*fds[i]);
        *fds[i] = -1;
    }
    h->t.in = h->t.out = -1;
    h->state = HOST_GONE;
}

/* Ranks of a host that is gone have ended, nobody knows how. */
static void forget_ranks(launcher *l, const launch_host *h)
{
    for (int i = h->first; i < h->first + h->count; i++) {
        if (l->ranks[i].ended) continue;
        l->ranks[i].ended = true;
        l->n_ended++;
        lines_end(&l->ranks[i].output[0]);
        lines_end(&l->ranks[i].output[1]);
    }
}

static bool has_ranks(const launcher *l, const launch_host *h)
{
    for (int i = h->first; i < h->first + h->count; i++) {
        if (!l->ranks[i].ended) return true;
    }
    return false;
}

/* The last line of what a command printed. */
static const char *last_line(const launch_host *h, char *out, size_t size)
{
    const char *end = h->last + strlen(h->last), *at;

    while (end > h->last && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' ')) end--;
    for (at = end; at > h->last && at[-1] != '\n'; at--) continue;
    snprintf(out, size, "%.*s", (int)(end - at), at);
    return out;
}

static const char *command_name(route_way way)
{
    static const char *const names[] = {"the agent", "ssh", "srun", "mpirun", "the agent"};

    return names[way];
}

/* What ended, how, and what was said last. */
static void describe_end(const launcher *l, launch_host *h, int status, char *out, size_t size)
{
    char text[100], line[300];
    const char *said = last_line(h, line, sizeof line), *noise = talk_noise(&h->t);

    snprintf(out, size, "%s %s%s%.300s%s%.200s", command_name(l->way),
             spawn_status_text(status, text, sizeof text), *said ? ": " : "", said,
             *noise ? "; it printed: " : "", noise);
}

static void lose_host(launcher *l, launch_host *h, const char *what, const char *remedy)
{
    bool started = h->state == HOST_RUNNING, expected = l->urgency || (started && !has_ranks(l, h));

    if (h->state == HOST_GONE) return; /* it was lost before its command ended */
    if (!expected) launcher_fail(l, h, started ? "while it ran" : "start", what, remedy);
    close_host(h);
    forget_ranks(l, h);
}

/* ---- what happens ---- */

static void read_messages(launcher *l, launch_host *h)
{
    talk_message m;
    bool found = true;

    if (h->t.in < 0) return;
    if (talk_read(&h->t)) h->t.ended = true;
    while (found && h->t.in >= 0) {
        if (talk_next(&h->t, &m, &found) || (found && launcher_heed(l, h, &m))) {
            launcher_fail(l, h, "messages", manta_error_text(),
                          "the same version of Manta must be on every host");
            spawn_signal(&h->child, SIGKILL);
            h->t.in = -1;
        }
    }
}

static void read_error(launch_host *h)
{
    char data[4096];
    ssize_t n = os->read(h->err, data, sizeof data);
    size_t have = strlen(h->last), keep, take;

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        os->close(h->err);
        h->err = -1;
        return;
    }
    lines_add(&h->said, data, (size_t)n);
    take = (size_t)n < sizeof h->last - 1 ? (size_t)n : sizeof h->last - 1;
    keep = have + take < sizeof h->last ? have : sizeof h->last - 1 - take;
    memmove(h->last, h->last + have - keep, keep);
    for (size_t i = 0; i < take; i++) {
        char c = data[(size_t)n - take + i];
        h->last[keep + i] = c ? c : '?';
    }
    h->last[keep + take] = '\0';
}

static void bury_command(launcher *l, launch_host *h)
{
    char what[900];
    int status;

    /* What it said is there whole. Others may hold the pipes and go on writing: that has an end here. */
    for (int i = 0; i < LAST_READS && h->err >= 0; i++) {
        struct pollfd p = {.fd = h->err, .events = POLLIN};
        if (os->poll(&p, 1, 0) <= 0) break;
        read_error(h);
    }
    for (int i = 0; i < LAST_READS && h->t.in >= 0 && !h->t.ended; i++) {
        struct pollfd p = {.fd = h->t.in, .events = POLLIN};
        if (os->poll(&p, 1, 0) <= 0) break;
        read_messages(l, h);
    }
    status = spawn_wait(&h->child);
    describe_end(l, h, status, what, sizeof what);
    lines_end(&h->said);
    lose_host(l, h, what,
              h->state == HOST_RUNNING ? "a training goes on from its last checkpoint: train --resume"
                                       : route_remedy(l->way, status, what));
}

static void heed_signal(launcher *l)
{
    struct signalfd_siginfo s;

    /* The second one kills: the second that comes here. Slurm asks the agents and the launcher at about the same time, and
     * what an agent was asked is no reason to be in a hurry. */
    while (os->read(l->signals, &s, sizeof s) == (ssize_t)sizeof s) {
        if (l->signal_ns && clock_now_ns() - l->signal_ns > AGAIN_MS * 1000000LL) launcher_end(l, SIGKILL);
        if (!l->signal_ns) l->signal_ns = clock_now_ns();
        if (l->signal) continue;
        l->signal = (int)s.ssi_signo;
        launcher_end(l, l->signal == SIGINT ? SIGINT : SIGTERM);
    }
}

/* ---- the loop ---- */

typedef VEC(struct pollfd) pollfds;

static void add_fd(pollfds *p, int fd, short events)
{
    vec_push(p, (struct pollfd){.fd = fd, .events = events});
}

enum { FIXED = 3, EACH = 4 };

/* Whether a reader of ours stands still, so that hosts are not listened to. */
static bool is_full(const launcher *l)
{
    return !l->signal && (sink_is_full(&l->sinks[0]) || sink_is_full(&l->sinks[1]));
}

/* poll() refuses more entries than files may be open: hosts that were not begun have none. */
static void await_events(launcher *l, pollfds *p, int pulse_ms)
{
    bool full = is_full(l);
    int left = clock_left_ms(l->deadline < l->start_deadline ? l->deadline : l->start_deadline);

    vec_clear(p);
    add_fd(p, l->signals, POLLIN);
    for (int i = 0; i < 2; i++) add_fd(p, l->sinks[i].waiting.n ? l->sinks[i].fd : -1, POLLOUT);
    for (int i = 0; i < l->n_begun; i++) {
        const launch_host *h = &l->hosts[i];
        add_fd(p, full || h->t.ended ? -1 : h->t.in, POLLIN);
        add_fd(p, talk_waiting(&h->t) ? h->t.out : -1, POLLOUT);
        add_fd(p, full ? -1 : h->err, POLLIN);
        add_fd(p, full ? -1 : spawn_fd(&h->child), POLLIN);
    }
    (void)os->poll(p->at, p->n, left < 0 || left > pulse_ms ? pulse_ms : left);
}

static void look_at_host(launcher *l, launch_host *h, const struct pollfd *at, bool pulse)
{
    char what[100];

    if (at[0].revents) read_messages(l, h);
    if (at[0].fd < 0 && !h->t.ended)
        h->t.heard_ns = clock_now_ns(); /* it is not listened to: a reader of ours stands still */
    if (at[2].revents && h->err >= 0) read_error(h);
    if (pulse && h->state != HOST_GONE && h->state != HOST_STARTING && !talk_waiting(&h->t))
        talk_post(&h->t, TALK_PULSE, NULL, 0);
    if (h->state != HOST_GONE && talk_write(&h->t)) h->t.out = -1; /* its end is noticed by itself */
    if (at[3].revents) bury_command(l, h);
    if (h->state == HOST_GONE || h->state == HOST_STARTING) return;
    if (clock_now_ns() - h->t.heard_ns > l->o->lease_ms * 1000000LL) {
        snprintf(what, sizeof what, "nothing was heard of it for %lld s", (long long)l->o->lease_ms / 1000);
        lose_host(l, h, what, "see the host and the network; its ranks end by themselves");
        spawn_signal(&h->child, SIGKILL);
    }
}

/* The time to start is over: the host that is behind all others is named, since those may wait for it. */
static void look_at_start(launcher *l)
{
    static const char *const steps[] = {"start", "ports", "route"};
    static const char *const lacks[] = {"its agent has not begun", "it has not taken its ports",
                                        "it has not reached all others"};
    const launch_host *last = &l->hosts[0];
    char what[200];

    if (clock_now_ns() < l->start_deadline) return;
    l->start_deadline = CLOCK_NEVER;
    for (int i = 1; i < l->n_hosts; i++) {
        if (l->hosts[i].state < last->state) last = &l->hosts[i];
    }
    if (last->state > HOST_CHECKING) return; /* all are gone: the end has begun */
    snprintf(what, sizeof what, "%s within %lld s", lacks[last->state], (long long)l->o->start_ms / 1000);
    launcher_fail(l, last, steps[last->state], what, "--start-timeout gives it more time");
}

/* What could not be written is no success. */
static void look_at_sink(launcher *l, sink *s)
{
    manta_block b = {0};

    s->drops = l->signal != 0;
    sink_write(s);
    if (!s->lost || l->signal || l->failed) return;
    if (s->why == EPIPE) {
        l->signal = SIGPIPE;
    } else {
        l->failed = true;
        manta_block_add(&b, "standard %s cannot be written: %s", s == &l->sinks[0] ? "output" : "error",
                        strerror(s->why));
        manta_block_line(&b, "now");
        manta_block_add(&b, "all ranks are told to end");
        launcher_say(l, &b);
    }
    launcher_end(l, SIGTERM);
}

static void take_step(launcher *l, pollfds *p, int64_t *pulse_ns)
{
    int pulse_ms = talk_pulse_ms(l->o->lease_ms);
    bool pulse = clock_now_ns() >= *pulse_ns;

    if (pulse) *pulse_ns = clock_deadline(pulse_ms);
    await_events(l, p, pulse_ms);
    if (p->at[0].revents) heed_signal(l);
    for (int i = 0; i < l->n_begun; i++) look_at_host(l, &l->hosts[i], &p->at[FIXED + EACH * i], pulse);
    for (int i = 0; i < 2; i++) look_at_sink(l, &l->sinks[i]);
    look_at_start(l);
    if (clock_now_ns() >= l->deadline) press_harder(l);
}

static bool has_commands(const launcher *l)
{
    for (int i = 0; i < l->n_begun; i++) {
        if (l->hosts[i].child.pid) return true;
    }
    return false;
}

/* No rank is left: agents end, and what started them. */
static void say_bye(launcher *l)
{
    for (int i = 0; i < l->n_hosts; i++) {
        if (l->hosts[i].state != HOST_GONE) talk_post(&l->hosts[i].t, TALK_BYE, NULL, 0);
    }
    if (l->urgency < 2) l->urgency = 2;
    l->deadline = clock_deadline(END_MS);
}

static const char *start_remedy(manta_status st)
{
    return st == MANTA_ENOENT || st == MANTA_EPERM
               ? "see that it is installed"
               : "see the limits of this host: open files (ulimit -n), of which a host takes four, and "
                 "processes (ulimit -u)";
}

/* Whether lines wait that somebody may still read. After a signal that has an end. */
static bool has_lines(const launcher *l, int64_t *deadline)
{
    if (!l->sinks[0].waiting.n && !l->sinks[1].waiting.n) return false;
    if (l->signal && *deadline == CLOCK_NEVER) *deadline = clock_deadline(LAST_LINES_MS);
    return clock_now_ns() < *deadline;
}

static void run_all(launcher *l)
{
    pollfds p = {0};
    int64_t pulse = 0, last_lines = CLOCK_NEVER;
    bool said = false;

    for (int i = 0; i < l->n_hosts && !l->urgency; i++) {
        manta_status st = launcher_start_host(l, &l->hosts[i]);
        if (st)
            launcher_fail(l, &l->hosts[i], "start", manta_error_text(), start_remedy(st));
        else
            l->n_begun++;
    }
    while (has_commands(l) || has_lines(l, &last_lines)) {
        take_step(l, &p, &pulse);
        if (!said && l->n_ended == l->n_ranks) {
            say_bye(l);
            said = true;
        }
    }
    vec_release(&p);
}

static int shell_status(int status)
{
    if (status == -1) return 1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int end_status(const launcher *l)
{
    int first = l->n_ranks ? l->ranks[0].status : -1;

    if (l->failed) return 1;
    if (l->culprit >= 0) {
        int status = shell_status(l->ranks[l->culprit].status);
        /* One that was told to end may be another than the one that keeps the run. */
        return status == 130 && first > 0 && WIFEXITED(first) && WEXITSTATUS(first) == 75 ? 75 : status;
    }
    if (l->signal == SIGPIPE) return UNREAD;
    if (l->signal && l->n_well < l->n_ranks)
        return first > 0 && WIFEXITED(first) ? WEXITSTATUS(first) : 128 + l->signal;
    return 0;
}

manta_status manta_launch(const manta_launch_options *launch, int *status)
{
    manta_launch_options o;
    launcher l;
    manta_status st;

    if (!launch) return manta_fail(MANTA_EINVAL, "manta_launch: launch is NULL, expected what to start");
    if (!status) return manta_fail(MANTA_EINVAL, "manta_launch: status is NULL, expected a place");
    o = *launch;
    if (!o.grace_ms) o.grace_ms = GRACE_MS;
    if (!o.lease_ms) o.lease_ms = LEASE_MS;
    if (!o.start_ms) o.start_ms = START_MS;
    st = launcher_open(&l, &o, true);
    if (st == MANTA_ECANCELLED && l.signal) {
        *status = 128 + l.signal;
        st = MANTA_OK;
    } else if (!st) {
        l.start_deadline = clock_deadline(o.start_ms);
        run_all(&l);
        *status = end_status(&l);
        /* Other pods hold the state, or the run's folder does: this one may come again. */
        if (l.pod && l.signal == SIGTERM && *status && !l.failed) *status = RESUMABLE;
    }
    launcher_close(&l);
    return st;
}
