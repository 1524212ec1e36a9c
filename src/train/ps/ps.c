/* ps.c - the coordinator of parameter servers: births and losses, steps, sums.
 *
 *                 PS_READY, PS_DONE + sums            PS_STEP
 *   workers ─────────────────────────▶ coordinator ──────────▶ workers     link[w]
 *                                        │      ▲
 *       PS_LOAD, PS_BEGIN, PS_RATE, PS_STATE    answers                    to[i], one per server
 *                                        ▼      │
 *                                       servers ◀────────────▶ workers     ps_worker.c, ps_server.c
 *                                               PS_PULL, PS_PUSH
 *
 * The coordinator is one thread that sleeps in rendezvous_wait() on its channels, on those who
 * call and, where the others are its children, on their pidfds. ps_attend() is one round: hear
 * workers, admit those that have come, replace who is lost, and give out steps to those that
 * asked. A worker is in one of three states: not connected (no channel in link[w]), idle
 * (idle[w]: it has asked), or at a step (the queue's held[w]).
 *
 * Who writes what: a server's range of the parameters is written by that server, and by the
 * coordinator only with PS_LOAD. The coordinator's own copy of the state is written by
 * ps_pull() and used for two things: a server that begins anew, and whoever looks at the
 * session. Its run section is the exception: steps, samples and sums are counted here
 * (take_done()) as workers report them, and ps_pull() puts it back over what servers say.
 *
 * What a loss costs:
 *   a worker        the step that it had in hand; the queue gives it out again, and a server
 *                   that has its gradients already says so and does not apply them twice. With a
 *                   staleness of 0 it is done again from the weights before it, which a server
 *                   that has its gradients has kept (ps_server.c): the bytes are the same
 *   a server        what it took since the last ps_pull(), which with a staleness of 0 is the end
 *                   (ps_check_loss()); else its successor is furnished with our copy (ps_furnish()), and workers find it at the same address, because
 *                   the listener is ours and outlives it
 *   the coordinator of children: all of them; of a cluster: ps_cluster.c
 *
 * What makes it safe: a step is in exactly one of {to be given, held by one worker, done}
 * (ps_step_queue.h), a server takes a step once (ps_journal.h), and each conversation has one
 * message under way, so an answer cannot be taken for another's.
 *
 * What may be changed: how often the state is copied (SNAPSHOT_STEPS), how patient we are. What
 * may not: to begin an epoch on a server before it was loaded. */
#include "train/ps/ps.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/sys.h"
#include "train/group/group_samples.h"
#include "train/ps/ps_coordinator.h"
#include "train/ps/ps_range.h"

enum {
    MAX_FAILURES = 3,
    SNAPSHOT_STEPS = 50,
    LEAVE_MS = 2000,
};

worker_events *ps_worker_events(ps *p)
{
    return &p->events;
}

/* ---- losses ---- */

static void drop_worker(ps *p, int w)
{
    ps_step_queue_lose(&p->queue, w);
    p->idle[w] = false;
    ps_link_close(&p->link[w]);
    rendezvous_miss(p->meeting, ps_node_worker(&p->plan, w));
}

/* Workers that have come, or come again: what one had in hand is given out anew. */
static manta_status admit_workers(ps *p)
{
    for (int w = 0; w < p->plan.workers; w++) {
        int i = ps_node_worker(&p->plan, w);
        if (!rendezvous_is_here(p->meeting, i)) continue;
        drop_worker(p, w);
        TRY(ps_link_open(&p->link[w], rendezvous_take(p->meeting, i),
                         (size_t)p->s->l.n_sums * sizeof(double) + 4096));
    }
    return MANTA_OK;
}

/* Notes the end of a process and starts its successor. */
manta_status ps_replace_lost(ps *p, bool server, int rank)
{
    ps_child *c = server ? &p->server[rank] : &p->worker[rank];
    worker_event e = {.kind = WORKER_EVENT_RECOVERED, .server = server, .rank = rank, .pid = c->process.pid};

    spawn_status_text(spawn_wait(&c->process), e.cause, sizeof e.cause);
    worker_events_add(&p->events, &e);
    log_info("lost", LOG_STR("role", server ? "ps" : "worker"), LOG_INT("rank", rank), LOG_INT("pid", e.pid),
             LOG_STR("cause", e.cause));
    if (++c->failures > p->o.max_failures) {
        return manta_fail(MANTA_EDIED,
                          "%s %d was lost %d times in a row without a step in between; the last one %s",
                          server ? "parameter server" : "worker", rank, c->failures, e.cause);
    }
    if (server) {
        TRY(ps_check_loss(p, rank));
        ps_link_close(&p->to[rank]);
        TRY(ps_start_child(p, true, rank));
        return ps_furnish(p, rank);
    }
    drop_worker(p, rank);
    return ps_start_child(p, false, rank);
}

/* ---- steps ---- */

/* Gives steps to those who have asked, as far as there are any. */
static manta_status give_out(ps *p)
{
    for (int w = 0; w < p->plan.workers; w++) {
        int64_t step, at[3];
        ps_link *l;
        if (!p->idle[w] || (step = ps_step_queue_take(&p->queue, w)) < 0) continue;
        l = &p->link[w];
        at[0] = p->journal.from.epoch;
        at[1] = p->journal.from.step + step;
        at[2] = p->journal.first + step;
        memcpy(l->out, at, sizeof at);
        p->idle[w] = false;
        if (ps_link_send(l, PS_STEP, p->journal.from.step + step, p->o.staleness == 0, sizeof at))
            drop_worker(p, w); /* its end is seen elsewhere */
    }
    return MANTA_OK;
}

static manta_status take_done(ps *p, int w, ps_link *l)
{
    manta_session *s = p->s;
    run_state *run = layout_run(&s->l, s->state);
    size_t n = (size_t)s->l.n_sums + 1; /* the regulariser's share comes last */
    double sums[SUM_FIXED + 4 * MANTA_MAX_METRICS + 1];

    if (l->head.length != n * sizeof *sums || n > sizeof sums / sizeof *sums)
        return manta_fail(MANTA_ECORRUPT, "%s: the sums of a step in %llu bytes, expected %zu",
                          chan_name(l->c), (unsigned long long)l->head.length, n * sizeof *sums);
    if (!ps_step_queue_done(&p->queue, w, (int64_t)l->head.step - p->journal.from.step))
        return manta_fail(MANTA_ECORRUPT, "%s: says that step %llu is done, which it was not given",
                          chan_name(l->c), (unsigned long long)l->head.step + 1);
    p->journal.is_in[(int64_t)l->head.step - p->journal.from.step] = 1;
    memcpy(sums, l->in, n * sizeof *sums);
    for (size_t i = 0; i < n; i++) run->sums[i] += sums[i];
    run->position += (int64_t)sums[SUM_SAMPLES];
    run->step++;
    run->calls++;
    p->worker[w].failures = 0;
    for (int i = 0; i < p->plan.servers; i++) p->server[i].failures = 0;
    p->since_snapshot++;
    p->ready++;
    return MANTA_OK;
}

static manta_status fail_step(const ps *p, int w, const ps_link *l)
{
    manta_status st = (manta_status)l->head.item;
    int n = (int)(l->head.length < 400 ? l->head.length : 400);

    return manta_fail(st ? st : MANTA_EINTERNAL, "worker %d, step %lld of epoch %lld: %.*s", w,
                      (long long)l->head.step + 1, (long long)p->journal.from.epoch + 1, n, l->in);
}

/* An error of a step ends the run; a connection that talks nonsense only itself. */
static manta_status hear_worker(void *ctx, ps_link *l)
{
    ps *p = ctx;
    int w = (int)(l - p->link);

    switch ((int)l->head.kind) {
    case PS_READY:
        if (l->head.step != (uint64_t)w)
            return manta_fail(MANTA_ECORRUPT, "%s: says that it is worker %llu, expected %d", chan_name(l->c),
                              (unsigned long long)l->head.step, w);
        p->idle[w] = true;
        return MANTA_OK;
    case PS_DONE:
        TRY(take_done(p, w, l));
        p->idle[w] = true;
        return MANTA_OK;
    case PS_FAILED: p->failed = true; return fail_step(p, w, l);
    default:
        return manta_fail(MANTA_ECORRUPT, "%s: a message of kind %d, expected one of a worker",
                          chan_name(l->c), l->head.kind);
    }
}

static manta_status listen_to(ps *p, int w)
{
    manta_status st = ps_link_listen(&p->link[w], hear_worker, p);

    if (st && p->failed) return st;
    if (!st) return MANTA_OK;
    log_debug("a connection ended", LOG_STR("why", manta_error_text()));
    drop_worker(p, w);
    return MANTA_OK;
}

/* A server that somebody else started says nothing unasked: what there is to
 * read is its end. */
static manta_status see_server(ps *p, int i)
{
    bool whole;

    return ps_link_receive(&p->to[i], &whole) ? ps_furnish(p, i) : MANTA_OK;
}

/* Waits until something happens, and deals with it. */
manta_status ps_attend(ps *p)
{
    struct pollfd fds[PS_SERVERS + PS_WORKERS];
    chan_item items[PS_WORKERS + PS_SERVERS];
    int n = 0, servers = p->plan.servers, workers = p->plan.workers;
    manta_status st;

    TRY(admit_workers(p)); /* those that came while a server was reached: the wait would not see them */
    for (int i = 0; i < servers; i++)
        fds[n++] = (struct pollfd){.fd = spawn_fd(&p->server[i].process), .events = POLLIN};
    for (int i = 0; i < workers; i++)
        fds[n++] = (struct pollfd){.fd = spawn_fd(&p->worker[i].process), .events = POLLIN};
    for (int i = 0; i < workers; i++) items[i] = (chan_item){.c = p->link[i].c, .read = true};
    for (int i = 0; i < servers; i++)
        items[workers + i] = (chan_item){.c = p->cluster ? p->to[i].c : NULL, .read = true};
    st = rendezvous_wait(p->meeting, items, workers + servers, fds, n, clock_deadline(1000));
    if (st && st != MANTA_ETIMEDOUT) return st;
    for (int i = 0; i < workers; i++) {
        if (items[i].c && items[i].ready) TRY(listen_to(p, i));
    }
    TRY(admit_workers(p));
    for (int i = 0; i < servers; i++) {
        if (items[workers + i].c && items[workers + i].ready) TRY(see_server(p, i));
        if (fds[i].revents) TRY(ps_replace_lost(p, true, i));
    }
    for (int i = 0; i < workers; i++) {
        if (fds[servers + i].revents) TRY(ps_replace_lost(p, false, i));
    }
    return give_out(p);
}

/* The journal of an epoch that was taken up says what of it is in. */
manta_status ps_begin(ps *p, train_position from)
{
    ps_journal *j = &p->journal;

    if (!p->took_up || from.epoch != j->from.epoch) {
        TRY(ps_journal_begin(j, from, layout_run(&p->s->l, p->s->state)->calls,
                             p->plan.steps > from.step ? p->plan.steps - from.step : 0));
    }
    p->took_up = false;
    ps_step_queue_release(&p->queue);
    TRY(ps_step_queue_init(&p->queue, j->steps, p->o.staleness));
    ps_step_queue_skip(&p->queue, j->is_in);
    p->ready = 0;
    for (int i = 0; i < p->plan.servers; i++) {
        if (ps_tell_epoch(p, i)) TRY(ps_furnish(p, i));
    }
    TRY(ps_say_rate(p));
    return give_out(p);
}

manta_status ps_next(ps *p, bool *more)
{
    *more = false;
    if (!p->ready && ps_step_queue_over(&p->queue)) return MANTA_OK;
    TRY(ps_say_rate(p));
    while (!p->ready) TRY(ps_attend(p));
    p->ready--;
    *more = true;
    if (p->since_snapshot >= p->o.snapshot_steps) TRY(ps_pull(p));
    return MANTA_OK;
}

/* ---- opening and closing ---- */

static manta_status listen_somewhere(int *fd, char *address)
{
    tcp_place at;
    int port;

    TRY(tcp_resolve("127.0.0.1:0", &at));
    TRY(tcp_listen(&at, fd));
    TRY(tcp_port(*fd, &port));
    snprintf(address, TCP_TEXT, "127.0.0.1:%d", port);
    return MANTA_OK;
}

static manta_status make_plan(ps *p, const feed_source *feed, int64_t steps, int servers, int workers)
{
    unsigned char job[8];
    int port;

    p->plan = (ps_plan){.s = p->s,
                        .feed = feed,
                        .steps = steps,
                        .servers = servers,
                        .workers = workers,
                        .plain = true, /* it does not leave the machine */
                        .timeout_ms = PS_REACH_MS,
                        .parent = getpid()};
    TRY(key_hold(NULL, &p->key));
    p->plan.key = p->key;
    if (getrandom(p->key->bytes, KEY_SIZE, 0) != KEY_SIZE || getrandom(job, sizeof job, 0) != sizeof job)
        return manta_fail(MANTA_EIO, "the system gave no random bytes for the key of this training");
    for (int i = 0; i < 8; i++) snprintf(p->plan.job + 2 * i, 3, "%02x", job[i]);
    for (int i = 0; i < servers; i++) TRY(listen_somewhere(&p->server_listener[i], p->plan.server[i]));
    TRY(ps_rendezvous_open(&p->plan, ps_node_coordinator(&p->plan), &p->check, &p->meeting));
    TRY(rendezvous_listen(p->meeting, "127.0.0.1:0", false, &port));
    snprintf(p->plan.coordinator, sizeof p->plan.coordinator, "127.0.0.1:%d", port);
    return MANTA_OK;
}

manta_status ps_check(const manta_session *s, int servers, int workers)
{
    if (servers < 1 || servers > PS_SERVERS)
        return manta_fail(MANTA_EINVAL, "%d parameter servers, expected 1 to %d", servers, PS_SERVERS);
    if (workers < 1 || workers > PS_WORKERS)
        return manta_fail(MANTA_EINVAL, "%d workers, expected 1 to %d", workers, PS_WORKERS);
    if (servers > 1 && apply_needs_norms(&s->a)) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%d parameter servers, expected 1: clipping by norm and regularisers need all "
                          "parameters in one place",
                          servers);
    }
    return MANTA_OK;
}

ps *ps_new(manta_session *s, const ps_options *o)
{
    ps *p = mem_new(sizeof *p);

    p->s = s;
    p->o = *o;
    if (!p->o.max_failures) p->o.max_failures = MAX_FAILURES;
    if (!p->o.snapshot_steps) p->o.snapshot_steps = SNAPSHOT_STEPS;
    for (int i = 0; i < PS_SERVERS; i++) p->server_listener[i] = -1;
    p->rate = layout_run(&s->l, s->state)->learning_rate;
    return p;
}

manta_status ps_open(manta_session *s, const feed_source *feed, int64_t steps, int servers, int workers,
                     const ps_options *o, ps **out)
{
    ps *p;
    manta_status st;

    TRY(ps_check(s, servers, workers));
    p = ps_new(s, o);
    p->settled = true;
    if ((st = samples_settle(feed->d))) goto out; /* no thread is at it when we fork */
    if ((st = ps_step_queue_init(&p->queue, 0, 0))) goto out;
    if ((st = make_plan(p, feed, steps, servers, workers))) goto out;
    for (int i = 0; i < servers && !st; i++) st = ps_start_child(p, true, i);
    for (int i = 0; i < servers && !st; i++) st = ps_furnish(p, i);
    for (int i = 0; i < workers && !st; i++) st = ps_start_child(p, false, i);
    if (st) goto out;
    *out = p;
    p = NULL;
out:
    ps_close(p);
    return st;
}

/* ---- the end ---- */

static void say_end(ps_link *l, const manta_error *why)
{
    size_t n = why->code ? strlen(why->text) : 0;

    if (!l->c || !chan_is_open(l->c)) return;
    if (n > l->room) n = l->room;
    if (!chan_unsent(l->c)) {
        memcpy(l->out, why->text, n);
        /* Whoever does not hear it is killed below. */
        if (ps_link_send(l, PS_END, 0, (uint32_t)why->code, n)) return;
    }
    for (int64_t deadline = clock_deadline(LEAVE_MS); chan_unsent(l->c);) {
        chan_item item = {.c = l->c};
        if (chan_wait(&item, 1, NULL, 0, deadline)) return;
    }
}

/* Who is still connecting, as the successor of a worker that was lost in the last step, hears of
 * no end, and nobody needs it. */
static void end_unconnected(ps *p)
{
    for (int i = 0; i < PS_WORKERS; i++) {
        if (!p->link[i].c) spawn_signal(&p->worker[i].process, SIGKILL);
    }
    for (int i = 0; i < PS_SERVERS; i++) {
        if (!p->to[i].c) spawn_signal(&p->server[i].process, SIGKILL);
    }
}

void ps_close(ps *p)
{
    int64_t deadline = clock_deadline(LEAVE_MS);
    manta_error why;

    if (!p) return;
    manta_error_get(&why); /* of those who no longer listen nobody wants to read */
    for (int i = 0; i < PS_WORKERS && !p->mistaken; i++) say_end(&p->link[i], &p->failure);
    for (int i = 0; i < PS_SERVERS && !p->mistaken; i++) say_end(&p->to[i], &p->failure);
    end_unconnected(p);
    ps_end_children(p, deadline);
    for (int i = 0; i < PS_WORKERS; i++) ps_link_close(&p->link[i]);
    for (int i = 0; i < PS_SERVERS; i++) {
        ps_link_close(&p->to[i]);
        if (p->server_listener[i] >= 0) os->close(p->server_listener[i]);
    }
    rendezvous_free(p->meeting);
    key_drop(p->key);
    ps_step_queue_release(&p->queue);
    ps_journal_release(&p->journal);
    mem_free(p);
    if (why.code) (void)!manta_error_raise(&why);
}
