/* trainer_errors.c - what went wrong in a trainer's run: which rank, what, where, and what
 * happens now. */
#include <stdio.h>
#include <string.h>

#include <manta/tool_text.h>

#include "base/log.h"
#include "train/run/run_folder.h"
#include "train/storage/storage.h"
#include "train/trainer/trainer_driver.h"

int driver_most_failures(const trainer_driver *d)
{
    int told = d->o->run.failure.max_failures;

    return told == 0 ? 3 : told == MANTA_NONE ? 0 : told;
}

bool driver_is_incurable(const trainer_driver *d)
{
    bool full = d->status == MANTA_ENOSPC && d->o->run.failure.max_failures == 0;
    bool lacks = d->status == MANTA_EUNSUPPORTED && !d->loss.began;

    return !d->loss.died && (full || lacks);
}

/* The name of the checkpoint that the run goes on from; NULL: none. Borrowed. */
static const char *last_name(const trainer_driver *d)
{
    const char *path = driver_last_checkpoint(d);

    return path ? strrchr(path, '/') + 1 : NULL;
}

/* ---- lines of a block ---- */

static void add_where(manta_block *b, const trainer_driver *d)
{
    int rank = d->failed_rank;

    manta_block_line(b, "where");
    if (!d->loss.began) {
        manta_block_add(b, "before its loop began");
    } else if (!d->reports[rank]) {
        manta_block_add(b, "epoch %lld, before its first report", (long long)d->epochs[rank] + 1);
    } else {
        manta_block_add(b, "epoch %lld, after report %lld", (long long)d->epochs[rank] + 1,
                        (long long)d->reports[rank]);
    }
}

static void add_log(manta_block *b, const trainer_driver *d, int rank)
{
    const manta_run_config *r = &d->o->run;
    char path[1100], word[1600];

    if (r->logging.to == MANTA_LOG_TO_OUTPUT) return;
    snprintf(path, sizeof path, "%s%s", strchr(manta_run_path(d->run), '/') ? "" : "./",
             manta_run_path(d->run));
    manta_block_line(b, "log");
    manta_block_add(b, "manta logs %s",
                    manta_shell_word(r->storage ? path : manta_run_name(d->run), word, sizeof word));
    if (rank >= 0) manta_block_add(b, " --rank %d", rank);
}

static void add_count(manta_block *b, const trainer_driver *d)
{
    int most = driver_most_failures(d);

    if (most == MANTA_UNLIMITED) {
        manta_block_add(b, " (failure %d)", d->failures + 1);
    } else {
        manta_block_add(b, " (failure %d, max_failures is %d)", d->failures + 1, most);
    }
}

static void begin_rank(manta_block *b, const trainer_driver *d)
{
    manta_block_add(b, "worker %d failed", d->failed_rank);
    manta_block_line(b, "what");
    manta_block_add(b, "%s", d->what);
    add_where(b, d);
    manta_block_line(b, "now");
}

/* ---- another attempt ---- */

static void show_again(const trainer_driver *d, bool fewer)
{
    int n = fewer ? d->scaling.limit : d->world;
    const char *from = last_name(d);
    manta_block b = {{0}};

    begin_rank(&b, d);
    if (fewer) manta_block_add(&b, "it cannot be replaced: ");
    manta_block_add(&b, n > 1 ? "all %d workers begin again" : "%d worker begins again", n);
    manta_block_add(&b, " from %s", from ? from : "the beginning");
    add_count(&b, d);
    add_log(&b, d, d->failed_rank);
    manta_block_show(&b);
}

void driver_tell_again(const trainer_driver *d, bool fewer)
{
    const char *from = driver_last_checkpoint(d);

    if (log_is_read(MANTA_LOG_LEVEL_WARN)) {
        show_again(d, fewer);
    } else if (fewer) {
        log_warn("a worker cannot be replaced; the others begin again from the last checkpoint",
                 LOG_INT("rank", d->failed_rank), LOG_INT("workers", d->scaling.limit),
                 LOG_STR("why", d->error));
    } else {
        log_warn(d->loss.died ? "a worker is lost; all begin again" : "a loop has failed; all begin again",
                 LOG_INT("rank", d->failed_rank), LOG_STR("why", d->error),
                 LOG_INT("epoch", d->epochs[d->failed_rank]), LOG_INT("attempt", d->attempt + 1),
                 LOG_STR("from", from ? from : "the beginning"));
    }
}

/* ---- the end ---- */

static void show_end(const trainer_driver *d, const char *why, bool is_there)
{
    const char *from = last_name(d), *name = manta_run_name(d->run);
    bool of_a_rank = d->failed_rank >= 0 && !d->node_lost;
    manta_block b = {{0}};

    if (of_a_rank) {
        begin_rank(&b, d);
    } else {
        manta_block_add(&b, "run '%s' failed", name);
        manta_block_line(&b, "what");
        manta_block_add(&b, "%s", d->node_lost ? d->what : why);
        manta_block_line(&b, "now");
    }
    manta_block_add(&b, "the run ends");
    if (of_a_rank && driver_is_incurable(d)) {
        manta_block_add(&b, ", since another attempt would find no %s either",
                        d->status == MANTA_ENOSPC ? "room" : "such function");
    } else if (of_a_rank) {
        add_count(&b, d);
    }
    if (is_there) {
        manta_block_add(&b, "; a fit with .name = \"%s\" and .resume goes on from %s", name,
                        from ? from : "the beginning");
        add_log(&b, d, of_a_rank ? d->failed_rank : -1);
    }
    manta_block_show(&b);
}

void driver_tell_end(const trainer_driver *d, const char *why)
{
    const char *from = driver_last_checkpoint(d);
    file_info there;
    bool is_there = !storage_look(manta_run_path(d->run), &there);

    if (log_is_read(MANTA_LOG_LEVEL_ERROR)) {
        show_end(d, why, is_there);
    } else {
        log_error("the run has failed", LOG_STR("run", manta_run_name(d->run)),
                  LOG_INT("rank", d->node_lost ? -1 : d->failed_rank), LOG_STR("why", why),
                  LOG_STR("from", !is_there ? ""
                                  : from    ? from
                                            : "the beginning"));
    }
}
