/* evaluator.c - see evaluator.h. It only reads: no lock, no trace in the run's
 * folder, and the trainers do not know of it. */
#include "cli/evaluator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <manta/checkpoint.h>
#include <manta/run.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/stop.h"

enum { LOOK_MS = 100, TIMEOUT_MS = 600000 };

static void pause_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
}

static void tell_metrics(const evaluator *e, const manta_checkpoint *c, const manta_metrics *m)
{
    const manta_checkpoint_info *i = manta_checkpoint_get(c);
    json_t *event;

    if (!e->json) {
        print_out("%s: ", manta_checkpoint_path(c));
        for (int k = 0; k < m->n; k++) print_out("%s%s %.4f", k ? ", " : "", m->name[k], m->value[k]);
        print_out("\n");
        if (!cli_flush()) stop_unread();
        return;
    }
    event = json_pack("{s:s, s:s, s:I, s:I, s:I}", "event", "evaluation", "checkpoint",
                      manta_checkpoint_path(c), "epoch", (json_int_t)i->epoch, "step", (json_int_t)i->step,
                      "iterations", (json_int_t)i->iterations);
    json_add_metrics(event, m);
    if (!json_emit(event)) stop_unread();
}

/* Scores the newest checkpoint unless that was done; *seen is its number. */
static manta_status look_for_checkpoints(const evaluator *e, const char *folder, int64_t *seen,
                                         manta_metrics *last)
{
    manta_checkpoints *all = NULL;
    manta_checkpoint *c = NULL;
    manta_status st;

    if ((st = manta_checkpoints_open(folder, &(manta_checkpoints_options){.read_only = true}, &all)))
        goto out;
    if ((st = manta_checkpoints_latest(all, &c, NULL))) goto out;
    if (manta_checkpoint_get(c)->sequence <= *seen) goto out;
    if ((st = manta_session_from_checkpoint(e->s, c, true))) goto out;
    if ((st = manta_evaluate(e->s, e->data, &e->fit, last))) goto out;
    *seen = manta_checkpoint_get(c)->sequence;
    tell_metrics(e, c, last);
out:
    manta_checkpoint_close(c);
    manta_checkpoints_close(all);
    /* None yet, or one that was removed while it was being read: it is looked again. */
    return st == MANTA_ENOENT ? MANTA_OK : st;
}

static bool has_ended(const manta_run_info *i)
{
    return !strcmp(i->status, "done") || !strcmp(i->status, "failed") || !strcmp(i->status, "interrupted");
}

manta_status evaluator_run(const evaluator *e, manta_metrics *last)
{
    int64_t seen = 0, waited = 0, timeout = e->timeout_ms ? e->timeout_ms : TIMEOUT_MS;
    manta_run_info info;
    char folder[4200];

    snprintf(folder, sizeof folder, "%s/checkpoints", e->run);
    for (;;) {
        manta_status found = manta_run_read(e->run, &info);
        bool ended = !found && has_ended(&info); /* asked before looking: the last one is not missed */
        if (found && found != MANTA_ENOENT) return found;
        if (found && waited >= timeout)
            return manta_fail(MANTA_ETIMEDOUT, "no run has begun in %s for %lld s", e->run,
                              (long long)timeout / 1000);
        if (!found) {
            manta_status st = look_for_checkpoints(e, folder, &seen, last);
            if (st) return st;
        }
        if (stop_requested()) return manta_fail(MANTA_ECANCELLED, "stopped on request");
        if (ended && !seen)
            return manta_fail(MANTA_ENOENT, "the run in %s has ended without a checkpoint", e->run);
        if (ended) return MANTA_OK;
        pause_a_little();
        waited += LOOK_MS;
    }
}
