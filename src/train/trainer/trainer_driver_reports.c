/* trainer_driver_reports.c - what ranks report, taken out of their rings: the record of the run,
 * its checkpoints, and what the program is told.
 *
 *     ring of a rank ── take_reports() ──▶ copied and checked ──▶ a line of metrics.jsonl
 *                                                                       │
 *                                  REPORT_CHIEF  the checkpoint ◀───────┤
 *                                  REPORT_PART   a part; the checkpoint, when all are here
 *                                                                       │
 *                                                 the program is told ◀─┘
 *
 * In that order, so that a checkpoint which a run goes on from has all the lines that it counts,
 * whenever this process is killed; lines beyond its counts are dropped then. For REPORT_CHIEF the
 * reports that the other ranks had made by then are taken first (is_countable() says whether they
 * can be, keep_report() does it).
 *
 * A report whose files are on their way is not taken, and neither is what is behind it. Files of
 * a rank whose loop has ended come no more: the report is taken and its checkpoint is not made.
 *
 * A ring is memory that a worker writes: what comes out of it is copied, then checked, and one that
 * holds what cannot be ends the attempt. A disk that is full ends nothing; it is said once, and at
 * the end the run counts as failed.
 *
 * Threads: the driver's one. */
#include "train/trainer/trainer_driver.h"

#include <string.h>

#include "base/log.h"
#include "train/run/run_folder.h"

/* A disk that is full, or gone, ends no training: it is said now, and once more
 * at the end, when the run counts as failed. */
static void note_trouble(trainer_driver *d)
{
    manta_error e;

    manta_error_get(&e);
    if (d->trouble.code) return;
    d->trouble = e;
    log_warn("the run's record is not complete", LOG_STR("run", manta_run_name(d->run)),
             LOG_STR("why", e.text));
}

/* What comes from a ring may be anything. */
static manta_status check_report(int rank, trainer_report *r)
{
    bool fine = r->n >= 0 && r->n <= MANTA_MAX_METRICS;

    fine = fine && (r->kind == REPORT_METRICS || r->kind == REPORT_CHIEF || r->kind == REPORT_PART);
    if (!fine)
        return manta_fail(MANTA_ECORRUPT,
                          "a report of rank %d is damaged: kind %d with %d metrics, expected up to %d", rank,
                          (int)r->kind, r->n, MANTA_MAX_METRICS);
    for (int i = 0; i < r->n; i++) r->name[i][sizeof r->name[0] - 1] = '\0';
    return MANTA_OK;
}

/* Makes a checkpoint of what `rank` has given alone. What the others have reported
 * by then is kept when the run goes on from it, be it taken out of their rings or
 * not; what they report later they will report again. */
static bool commit_own(trainer_driver *d, int rank, const trainer_report *r, file_sum sum)
{
    int64_t counts[TRAINER_RANKS];

    for (int i = 0; i < d->world; i++)
        counts[i] = i == rank ? d->reports[i] : d->before[i] + (int64_t)(r->others[i] & INT64_MAX >> 1);
    if (checkpoint_parts_commit_own(&d->parts, rank, r, counts, sum)) {
        note_trouble(d);
        return false;
    }
    d->committed++;
    return true;
}

/* The loops are asked to end. One that never asks whether it should is ended by
 * the next checkpoint (is_enough()). */
void driver_stop(trainer_driver *d)
{
    if (d->stopped) return;
    d->stopped = true;
    d->stopped_at = d->committed + d->parts.committed;
    atomic_store(&d->mem.c->stop, 1);
}

/* The checkpoint that was committed last; NULL: none. */
const char *driver_last_checkpoint(const trainer_driver *d)
{
    manta_checkpoints *all = manta_run_checkpoints(d->run);
    const char *path = NULL;

    (void)manta_checkpoints_at(all, manta_checkpoints_count(all) - 1, &path, NULL);
    return path;
}

/* Tells the program of the n-th report of a rank, from 1. */
static void tell_program(trainer_driver *d, int rank, int64_t n, const manta_metrics *m,
                         const char *checkpoint)
{
    manta_report_event e = {n - 1, rank, m, checkpoint};

    if (d->o->run.report && !d->o->run.report(d->o->run.user, &e)) driver_stop(d);
}

static void get_metrics(const trainer_report *r, manta_metrics *out)
{
    out->n = r->n;
    memcpy(out->value, r->value, sizeof out->value);
    memcpy(out->name, r->name, sizeof out->name);
}

/* Commits what all ranks have given their part of. True: there is a checkpoint more. */
static bool settle_with_all(trainer_driver *d)
{
    static const bool nobody[TRAINER_RANKS];
    trainer_round round;
    manta_status st = checkpoint_parts_settle(&d->parts, d->reports, nobody, &round);

    if (st) note_trouble(d);
    return round.committed;
}

/* Commits the rounds that only ranks which are gone have not given their part of. The
 * reports of such a round were told when it was not complete: its lowest rank's is told
 * once more. */
static void settle_without(trainer_driver *d, const bool *gone)
{
    trainer_round round;

    do {
        manta_metrics m;
        manta_status st = checkpoint_parts_settle(&d->parts, d->reports, gone, &round);
        if (st) note_trouble(d);
        if (!round.committed) continue;
        get_metrics(round.report, &m);
        tell_program(d, round.rank, round.count, &m, driver_last_checkpoint(d));
    } while (round.settled);
}

static manta_status take_reports(trainer_driver *d, int rank, uint64_t until, bool *some);

/* The record comes before the checkpoint: one that a run goes on from has all the
 * lines that it counts, whenever this process is killed. Lines that it does not
 * count are dropped then. */
static manta_status keep_report(trainer_driver *d, int rank, const trainer_report *r, const manta_metrics *m)
{
    run_place p = {r->epoch, d->reports[rank], r->has_place ? r->step : -1};
    bool some;

    if (run_report(d->run, p, rank, m)) note_trouble(d);
    for (int i = 1; i < d->world && r->kind == REPORT_CHIEF && rank == 0; i++)
        TRY(take_reports(d, i, r->others[i], &some));
    return MANTA_OK;
}

static manta_status take_report(trainer_driver *d, int rank, trainer_report *r, bool lost, file_sum sum)
{
    manta_metrics m;
    bool committed = false;

    TRY(check_report(rank, r));
    get_metrics(r, &m);
    if (rank == 0) d->last = m;
    if (!r->has_place) r->epoch = d->epochs[rank] + 1;
    d->epochs[rank] = r->epoch;
    d->reports[rank]++;
    TRY(keep_report(d, rank, r, &m));
    if (r->kind == REPORT_CHIEF) {
        committed = !lost && commit_own(d, rank, r, sum);
    } else if (r->kind == REPORT_PART) {
        TRY(checkpoint_parts_add(&d->parts, rank, r, d->reports[rank], lost));
        committed = settle_with_all(d);
    }
    tell_program(d, rank, d->reports[rank], &m, committed ? driver_last_checkpoint(d) : NULL);
    return MANTA_OK;
}

/* Of the files of a report. Those of a rank whose loop has ended come no more. */
static report_files files_of(const trainer_driver *d, int rank, uint64_t at)
{
    const trainer_files *f = &d->mem.rings[rank].files[at % TRAINER_RING];
    uint32_t files = atomic_load_explicit(&f->state, memory_order_acquire);

    if (files == FILES_COMING) return d->ended[rank] ? FILES_LOST : FILES_COMING;
    return files == FILES_NONE || files == FILES_THERE ? files : FILES_LOST;
}

/* Whether all reports that a checkpoint counts can be taken before it. */
static bool is_countable(const trainer_driver *d, int rank, const trainer_report *r)
{
    for (int i = 1; i < d->world && r->kind == REPORT_CHIEF && rank == 0; i++) {
        const trainer_ring *ring = &d->mem.rings[i];
        uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
        for (uint64_t at = atomic_load(&ring->taken); at < written && at < r->others[i]; at++) {
            if (files_of(d, i, at) == FILES_COMING) return false;
        }
    }
    return true;
}

/* Takes what is in a rank's ring, of the first `until` reports of the attempt.
 * *some: there was one. */
static manta_status take_reports(trainer_driver *d, int rank, uint64_t until, bool *some)
{
    trainer_ring *ring = &d->mem.rings[rank];
    uint64_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);

    if (written - at > TRAINER_RING)
        return manta_fail(MANTA_ECORRUPT,
                          "the ring of rank %d is damaged: %llu reports wait in it, expected up to %d", rank,
                          (unsigned long long)(written - at), TRAINER_RING);
    for (; at < written && at < until; at++) {
        report_files files = files_of(d, rank, at);
        trainer_report r = ring->at[at % TRAINER_RING]; /* copied, then looked at */
        if (files == FILES_COMING || !is_countable(d, rank, &r)) break; /* and what is behind it waits too */
        TRY(take_report(d, rank, &r, files == FILES_LOST,
                        files == FILES_THERE ? ring->files[at % TRAINER_RING].sum : (file_sum){0}));
        atomic_store_explicit(&ring->taken, at + 1, memory_order_release);
        *some = true;
    }
    return MANTA_OK;
}

manta_status driver_drain(trainer_driver *d)
{
    bool some = false, gone[TRAINER_RANKS] = {false};

    for (int rank = 0; rank < d->world; rank++) {
        const trainer_ring *ring = &d->mem.rings[rank];
        /* Looked at before the ring: its last report is in there then. */
        bool ended = atomic_load(&d->mem.c->ranks[rank].state) == RANK_ENDED;
        TRY(take_reports(d, rank, UINT64_MAX, &some));
        gone[rank] = ended && atomic_load(&ring->taken) == atomic_load(&ring->written);
    }
    if (some) trainer_wake_ranks(d->mem.c); /* one that found its ring full may go on */
    settle_without(d, gone);
    return MANTA_OK;
}
