/* trainer_checkpoint_parts.c - checkpoints on their way from the ranks to the run.
 *
 *   in .parts.D.A, the hidden folder of driver D's attempt A:
 *
 *   round--4.rank-0    rank 0's alone        ──── commit_own ────▶  checkpoint-000012
 *   round-7.rank-0  ┐  one of each rank           when complete
 *   round-7.rank-1  ┴───▶ round-7.rank-256  ────── settle ───────▶  checkpoint-000013
 *
 * A round is open from the first part of it on; complete, when every rank has given its part or
 * has left its loop; settled, when it is a checkpoint or was dropped. Rounds are settled in
 * order, one at a time, and never twice: `done` counts them. A rank's n-th part is of round n,
 * so that ranks need not agree on anything.
 *
 * Who writes what: a part's folder its rank's thread (trainer_save.c), which brings it under
 * this name by one rename; from the report on, which the driver takes only then, the driver.
 * trainer_checkpoint_parts is the driver's, and one thread's.
 *
 * Why that is safe: under these names there are whole parts only, and a checkpoint appears by
 * one rename of its own (checkpoint/checkpoints.c). Whoever is killed in between leaves hidden
 * folders, which the next sweep removes; nothing in them is taken up again, since the loops
 * make it again.
 *
 * What may be changed: when a round counts as complete. What may not: the order in which rounds
 * are settled. The next attempt begins from the last checkpoint, and takes back all reports
 * beyond its counts. */
#include "base/status.h"
#include "train/trainer/trainer_checkpoint_parts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/file.h"
#include "train/checkpoint/checkpoints.h"
#include "train/run/run_folder.h"
#include "train/run/run_parts.h"

typedef VEC(manta_note) notes;

void checkpoint_parts_init(trainer_checkpoint_parts *p, manta_run *run)
{
    *p = (trainer_checkpoint_parts){.run = run};
    p->reports = mem_new(TRAINER_RING * sizeof *p->reports);
    p->counts = mem_new(TRAINER_RING * sizeof *p->counts);
}

void checkpoint_parts_release(trainer_checkpoint_parts *p)
{
    mem_free(p->folder);
    mem_free(p->reports);
    mem_free(p->counts);
}

void checkpoint_parts_begin(trainer_checkpoint_parts *p, int world, int attempt)
{
    checkpoint_parts_sweep(p);
    mem_free(p->folder);
    p->folder = run_parts_folder(run_local(p->run), getpid(), attempt);
    memset(p->seen, 0, sizeof p->seen);
    memset(p->lost, 0, sizeof p->lost);
    p->done = p->committed = 0;
    p->world = world;
}

void checkpoint_parts_sweep(const trainer_checkpoint_parts *p)
{
    run_parts_sweep(run_local(p->run));
}

/* ---- committing ---- */

/* Adds the notes that a rank has left for the round; they point into *text, which is
 * the caller's to give back. MANTA_ENOENT it has left none. */
static manta_status read_notes(const trainer_checkpoint_parts *p, int64_t round, int rank, notes *out,
                               void **text)
{
    char *path = run_part_notes(p->folder, round, rank);
    size_t n = 0;
    manta_status st = file_read(path, TRAINER_NOTES, text, &n);

    for (const char *at = *text, *end = at ? at + n : NULL; !st && at < end;) {
        const char *value = memchr(at, '\0', (size_t)(end - at)), *last;
        last = value ? memchr(value + 1, '\0', (size_t)(end - value - 1)) : NULL;
        if (!last) {
            st = manta_fail(MANTA_ECORRUPT,
                            "%s is damaged: expected names and texts, each with a zero byte behind it", path);
            break;
        }
        vec_push(out, ((manta_note){at, value + 1}));
        at = last + 1;
    }
    mem_free(path);
    return st;
}

/* What has come into a checkpoint need not wait for the end of the attempt. */
static void drop_notes(const trainer_checkpoint_parts *p, int64_t round, int first, int last)
{
    for (int rank = first; rank <= last; rank++) {
        char *path = run_part_notes(p->folder, round, rank);
        (void)!file_remove(path); /* most have left none; or who sweeps does */
        mem_free(path);
    }
}

/* Makes a checkpoint of the folder, with the notes of the lowest of the ranks
 * first to last, and Manta's own: how many reports each rank had made. */
static manta_status commit_folder(trainer_checkpoint_parts *p, const char *folder, const trainer_report *r,
                                  int first, int last, const int64_t *counts, file_sum state)
{
    manta_checkpoint_info info = {.epoch = r->epoch, .step = r->step, .iterations = r->iterations};
    manta_status st = MANTA_ENOENT;
    char workers[16];
    void *text = NULL;
    buf reports = {0};
    notes all = {0};

    for (int rank = first; rank <= last && st == MANTA_ENOENT; rank++)
        st = read_notes(p, r->round, rank, &all, &text);
    if (st && st != MANTA_ENOENT) goto out;
    for (int i = 0; i < p->world; i++) buf_printf(&reports, i ? ",%lld" : "%lld", (long long)counts[i]);
    snprintf(workers, sizeof workers, "%d", p->world);
    vec_push(&all, ((manta_note){RUN_REPORTS, buf_text(&reports)}));
    vec_push(&all, ((manta_note){RUN_WORKERS, workers}));
    info.n_notes = (int)all.n;
    info.notes = all.at;
    info.metrics.n = r->n;
    memcpy(info.metrics.value, r->value, sizeof r->value);
    memcpy(info.metrics.name, r->name, sizeof r->name);
    st = checkpoints_add(manta_run_checkpoints(p->run), folder, &info, state);
    if (!st) drop_notes(p, r->round, first, last);
out:
    vec_release(&all);
    buf_release(&reports);
    mem_try_free(text);
    return st;
}

/* Frees the room of what could not be kept; the failure that is told stays. */
static void drop_folder(const char *folder)
{
    manta_error why;
    manta_status st;

    manta_error_get(&why);
    st = file_remove_tree(folder);
    if (st && st != MANTA_ENOENT) log_warn("what could not be kept stays", LOG_STR("path", folder));
    (void)!manta_error_raise(&why);
}

manta_status checkpoint_parts_commit_own(trainer_checkpoint_parts *p, int rank, const trainer_report *r,
                                         const int64_t *counts, file_sum state)
{
    char *part = run_part(p->folder, r->round, rank);
    manta_status st = commit_folder(p, part, r, rank, rank, counts, state);

    if (st) drop_folder(part);
    mem_free(part);
    return st;
}

/* ---- rounds ---- */

manta_status checkpoint_parts_add(trainer_checkpoint_parts *p, int rank, const trainer_report *r,
                                  int64_t count, bool lost)
{
    int64_t round = p->seen[rank];

    if (round - p->done >= TRAINER_RING) {
        return manta_fail(
            MANTA_EINVAL,
            "rank %d is %d checkpoints ahead of a rank that is still in its loop, expected fewer: "
            "each of them takes a part of every rank",
            rank, TRAINER_RING);
    }
    if (rank == 0 || p->seen[0] <= round) p->reports[round % TRAINER_RING] = *r;
    p->counts[round % TRAINER_RING][rank] = count;
    p->lost[round % TRAINER_RING] |= lost;
    p->seen[rank]++;
    return MANTA_OK;
}

/* Files of all ranks in one folder; of one name the lowest rank's. */
static manta_status commit_round(trainer_checkpoint_parts *p, int64_t round, const int64_t *counts)
{
    char *all = run_part(p->folder, round, TRAINER_RANKS);
    int64_t *then = p->counts[round % TRAINER_RING];
    manta_status st = run_part_make(p->folder, strrchr(all, '/') + 1);

    for (int rank = 0; rank < p->world && !st; rank++) {
        char *part = run_part(p->folder, round, rank);
        file_info info;
        if (!file_stat(part, &info)) {
            st = run_parts_move(part, all);
            if (!st) st = file_remove_tree(part);
        }
        if (p->seen[rank] <= round) then[rank] = counts[rank];
        mem_free(part);
    }
    if (!st)
        st = commit_folder(p, all, &p->reports[round % TRAINER_RING], 0, p->world - 1, then, (file_sum){0});
    if (st) drop_folder(all);
    mem_free(all);
    return st;
}

/* Of a checkpoint that is not whole nothing stays. The rank whose files are lost says
 * why. */
static void drop_round(const trainer_checkpoint_parts *p, int64_t round)
{
    for (int rank = 0; rank < p->world; rank++) {
        char *part = run_part(p->folder, round, rank);
        drop_folder(part);
        mem_free(part);
    }
}

/* Whether every rank that could has given its part of the next round, and any has. */
static bool is_complete(const trainer_checkpoint_parts *p, const bool *gone)
{
    bool some = false;

    for (int i = 0; i < p->world; i++) {
        if (p->seen[i] > p->done) {
            some = true;
        } else if (!gone[i]) {
            return false;
        }
    }
    return some;
}

manta_status checkpoint_parts_settle(trainer_checkpoint_parts *p, const int64_t *counts, const bool *gone,
                                     trainer_round *out)
{
    int64_t round = p->done;
    bool *lost = &p->lost[round % TRAINER_RING];
    manta_status st = MANTA_OK;

    *out = (trainer_round){.settled = is_complete(p, gone)};
    if (!out->settled) return MANTA_OK;
    while (p->seen[out->rank] <= round) out->rank++;
    out->report = &p->reports[round % TRAINER_RING];
    out->count = p->counts[round % TRAINER_RING][out->rank];
    if (*lost) {
        drop_round(p, round);
    } else {
        st = commit_round(p, round, counts);
    }
    out->committed = !*lost && !st;
    *lost = false;
    p->done++;
    p->committed += out->committed;
    return st;
}
