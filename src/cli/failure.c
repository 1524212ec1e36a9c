/* failure.c - what went wrong, as one block on stderr. */
#include "cli/failure.h"

#include <stdio.h>
#include <string.h>

#include <manta/tool_text.h>

#include "cli/cli.h"

/* Behind all that was printed before. */
static void show_block(const manta_block *b)
{
    (void)cli_flush();
    manta_block_show(b);
}

static void add_log(manta_block *b, const failures *f, int rank)
{
    char word[1600];

    if (!f->record || !f->record->run) return;
    manta_block_line(b, "log");
    manta_block_add(b, "manta logs %s", record_word(f->record, word, sizeof word));
    if (rank >= 0) manta_block_add(b, " --rank %d", rank);
}

/* ---- a worker ---- */

static void tell_worker(const failures *f, const manta_event *e, int64_t successor)
{
    manta_block b = {{0}};

    manta_block_add(&b, "%s %d failed", e->server ? "parameter server" : "worker", e->rank);
    manta_block_line(&b, "what");
    if (e->pid) manta_block_add(&b, "process %lld, ", (long long)e->pid);
    manta_block_add(&b, "%s", e->cause ? e->cause : "it is gone");
    manta_block_line(&b, "where");
    if (e->epochs) manta_block_add(&b, "epoch %lld, ", (long long)e->epoch + 1);
    manta_block_add(&b, "step %lld%s", (long long)e->step + 1, e->epochs ? "" : " of the evaluation");
    manta_block_line(&b, "now");
    if (e->kind == MANTA_EVENT_WORKER_LEFT) {
        manta_block_add(&b, "given up: the others go on without it; the result is the same");
    } else if (e->server) {
        manta_block_add(&b, "another begins with the last copy of its weights; updates since then are lost");
    } else {
        if (successor && successor != e->pid)
            manta_block_add(&b, "process %lld is in its place and ", (long long)successor);
        if (f->loose) {
            manta_block_add(&b, "the steps that it had are done again");
        } else {
            manta_block_add(&b, "the step was done again, %.1f ms late; the result is the same", e->ms);
        }
    }
    add_log(&b, f, e->server ? -1 : e->rank);
    show_block(&b);
}

bool failures_see(failures *f, const manta_event *e)
{
    bool known = e->rank >= 0 && e->rank < FAILURE_RANKS;

    switch (e->kind) {
    case MANTA_EVENT_WORKER:
        if (known) f->pid[e->rank] = e->pid;
        return false;
    case MANTA_EVENT_WORKER_LEFT:
        if (e->cause && !strcmp(e->cause, "on request")) return false;
        tell_worker(f, e, 0);
        return true;
    case MANTA_EVENT_RECOVERED: tell_worker(f, e, known ? f->pid[e->rank] : 0); return true;
    default: return false;
    }
}

/* ---- the end ---- */

void failures_end(const failures *f)
{
    char again[1700];
    const char *checkpoint = f->record ? record_checkpoint(f->record) : NULL;
    manta_block b = {{0}};
    manta_error e;

    manta_error_get(&e);
    manta_block_add(&b, "%s", *e.text ? e.text : "it failed, and nothing was said about why");
    if (f->record && record_is_resumable(f->record)) {
        manta_block_line(&b, "now");
        manta_block_add(&b, "the run ends%s; this goes on from %s: %s",
                        checkpoint ? "" : " before its first checkpoint",
                        checkpoint       ? strrchr(checkpoint, '/') + 1
                        : f->record->run ? "the beginning"
                                         : "its backup, if there is one",
                        record_command(f->record, again, sizeof again));
    }
    add_log(&b, f, -1);
    show_block(&b);
}
