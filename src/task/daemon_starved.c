/* daemon_starved.c - programs in which nothing can happen any more, because no worker can be started.
 *
 * Calls wait for a worker; no more can be started, or may be; all that there are run calls that wait: for
 * these calls, or for the driver to read a stream. The scheduler sees that far (sched_is_starved()) and
 * cannot know whether a driver, an actor or a time limit will end one of those waits. So they are asked:
 *
 *     driver                              daemon                        workers, those of actors too
 *     sleeps without a time limit,
 *     and nothing comes ──STARVED──▶ starved? ──STILL_ASK round──▶ each looks at itself
 *                                         ◀──────STILL round, 1────── it waits for others, or has nothing to do
 *     STARVED, STARVED, ...               ...
 *     calls fail ◀────NO_WORKER──── all have been still, and nobody has said anything, for STILL_NS
 *
 * A driver in an event loop, or one that polls, says STARVED too, when it has neither heard nor done anything for
 * some time (runtime_wait.c).
 *
 * Answers travel through rings, which the daemon does not see: one may be there that its reader has not
 * looked at yet. That is what the time is for, and why one round is not enough. A driver that says nothing
 * works on, or is in a wait with a time limit, and is left alone. */
#include "task/daemon.h"

#include "base/clock.h"
#include "base/log.h"

#define STILL_NS 3000000000 /* how long nothing may have happened */
#define ROUND_NS 5000000000 /* after which who has not answered is not waited for: there is another round */

static uint64_t count_said(const node *d, uint32_t job_id)
{
    uint64_t n = 0;

    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->job == job_id) n += d->clients.at[i].value->said;
    return n;
}

/* Whether it is starved, and nobody in it has said anything since it was known to be. */
static bool is_quiet(const node *d, const job *j)
{
    return j->starved.since_ns != 0 && j->starved.said == count_said(d, j->id) &&
           sched_is_starved(d->sched, j->id);
}

static void ask_workers(node *d, job *j)
{
    starvation *x = &j->starved;

    x->round++;
    x->asked_ns = clock_now_ns();
    x->open = 0;
    for (size_t i = 0; i < d->clients.n; i++) {
        client *c = d->clients.at[i].value;
        if (c->job != j->id || !c->is_worker || c->dying) continue;
        proto_begin(&d->out, PROTO_STILL_ASK);
        wire_put_u64(&d->out, x->round);
        daemon_send(d, c);
        x->open++;
    }
}

static void on_starved(node *d, const client *c, wire *w)
{
    job *j = daemon_job(d, c->job);
    int64_t now = clock_now_ns();

    if (wire_end(w, "hunger") || c->is_worker || !j) return;
    starvation *x = &j->starved;
    if (!is_quiet(d, j)) {
        *x = (starvation){.since_ns = sched_is_starved(d->sched, j->id) ? now : 0,
                          .said = count_said(d, j->id),
                          .round = x->round};
    }
    if (x->since_ns != 0 && (x->open == 0 || now - x->asked_ns > ROUND_NS)) ask_workers(d, j);
}

static void on_still(node *d, const client *c, wire *w)
{
    uint64_t round = wire_u64(w);
    bool is_still = wire_u32(w) != 0;
    job *j = daemon_job(d, c->job);

    if (wire_end(w, "stillness") || !c->is_worker || !j) return;
    starvation *x = &j->starved;
    if (round != x->round || x->open == 0) return;
    if (!is_still) *x = (starvation){.round = x->round};
    if (!is_still || --x->open > 0 || !is_quiet(d, j) || clock_now_ns() - x->since_ns < STILL_NS) return;
    log_warn("calls are refused: no worker can be started for them, and all that there are wait",
             LOG_INT("program", (int64_t)j->id));
    x->since_ns = 0;
    daemon_act(d, (sched_event){.kind = SCHED_STARVED, .job = j->id});
}

bool daemon_starved_message(node *d, client *c, proto_kind kind, wire *w)
{
    switch (kind) {
    case PROTO_STARVED: on_starved(d, c, w); return true;
    case PROTO_STILL: on_still(d, c, w); return true;
    default: c->said++; return false;
    }
}
