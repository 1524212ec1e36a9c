/* training_end.c - how a training ended: kept with the run, and said. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/stop.h"
#include "cli/training.h"

/* The last metrics that it knows: its own, or those that it went on from. */
static const manta_metrics *last_metrics(training *r)
{
    if (!r->last.n && record_start(&r->record)) r->last = record_start(&r->record)->metrics;
    return &r->last;
}

/* Keeps and says that it failed; how the run can go on only when it was under way. */
static int training_end_failed(training *r, bool under_way)
{
    manta_error why;
    bool lost;

    manta_error_get(&why);
    lost = record_finish(&r->record, "failed", last_metrics(r), why.text) != MANTA_OK;
    if (lost && !stop_requested() && strcmp(manta_error_text(), why.text) != 0)
        cli_note("%s", manta_error_text()); /* else it is what failed, and said below */
    if (!lost || !stop_requested()) (void)!manta_error_raise(&why); /* else what the run lies on is why */
    if (r->json) {
        json_result("failed", &r->last, record_checkpoint(&r->record), r->written ? r->save : NULL,
                    manta_error_text());
    } else if (r->written) {
        print_out("Saved to %s\n", r->save);
    }
    if (!under_way || lost || !record_is_resumable(&r->record)) return cli_fail();
    failures_end(&r->failures);
    return CLI_FAILED;
}

/* The file that --save asks for, and the mapping of a table beside it; likewise beside that of --save-best. */
static manta_status save_files(training *r)
{
    const char *best = options_text(r->o, "save-best");
    manta_status st = r->save ? manta_session_save(r->s, r->save) : MANTA_OK;

    if (!st && r->save) st = manta_recipe_keep_table(r->recipe, r->save);
    if (!st && best && r->record.n && manta_recipe_table(r->recipe) && !strchr(best, '{'))
        st = manta_recipe_keep_table(r->recipe, best);
    return st;
}

/* Saves without a word, and without forgetting why it ends; whether it did. */
static bool save_quietly(training *r)
{
    manta_error why;
    bool fine;

    manta_error_get(&why);
    fine = !save_files(r);
    (void)!manta_error_raise(&why);
    return fine;
}

int training_failed(training *r)
{
    return training_end_failed(r, false);
}

/* Says what is left of a training that was stopped; the exit status. Where a reader
 * left, stdout is of no use, and cli_finish() ends the process as a broken pipe does. */
static int end_stopped(training *r)
{
    bool unread = stop_is_unread();
    const char *why = unread ? "nobody reads the output any more" : "interrupted";
    char line[1600];

    if (record_is_resumable(&r->record)) {
        cli_note("%s; this goes on from here: %s", why, record_command(&r->record, line, sizeof line));
        if (stop_is_term()) return CLI_RESUMABLE;
    } else if (unread && r->save) {
        cli_note("%s; saved to %s", why, r->save);
    } else if (!unread && !r->save && !r->json) {
        cli_note("interrupted; nothing was saved (--save FILE would have)");
    }
    return unread ? CLI_DONE : CLI_INTERRUPTED;
}

int training_finish(training *r, manta_status st)
{
    bool stopped = st == MANTA_ECANCELLED && stop_requested();

    if (stopped) {
        progress_interrupted(&r->progress);
    } else {
        progress_break(&r->progress);
    }
    if (st && !stopped) {
        /* The checkpoint that a signal asks for may be what failed: --save need not. */
        if (stop_requested() && r->save && save_quietly(r)) r->written = true;
        return training_end_failed(r, true);
    }
    if (r->profile.steps && !stopped &&
        profile_print(&r->profile, r->s, r->fit.batch ? r->fit.batch : r->fit.global_batch, r->json))
        return training_failed(r);
    if (save_files(r)) return training_failed(r);
    r->written = r->save != NULL;
    if (record_finish(&r->record, stopped ? "interrupted" : "done", last_metrics(r), NULL))
        return training_failed(r);
    if (*r->why && !r->json) print_out("Ended early: %s\n", r->why);
    if (r->json) {
        json_result(stopped ? "interrupted" : "done", &r->last, record_checkpoint(&r->record), r->save, NULL);
    } else if (r->save) {
        print_out("%s to %s\n", stopped ? "Interrupted; saved" : "Saved", r->save);
    }
    return stopped ? end_stopped(r) : CLI_DONE;
}
