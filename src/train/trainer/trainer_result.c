/* trainer_result.c - how a trainer's run ended, read from its folder. */
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/retention.h"
#include "train/run/run_folder.h"

#include <manta/trainer.h>

static manta_status take_checkpoints(const char *folder, manta_result *r)
{
    char *path = run_inner(folder, "checkpoints");
    manta_checkpoints *m = NULL;
    manta_status st = manta_checkpoints_open(path, &(manta_checkpoints_options){.read_only = true}, &m);
    int n;

    mem_free(path);
    if (st == MANTA_ENOENT) return MANTA_OK;
    if (st) return st;
    n = manta_checkpoints_count(m);
    r->checkpoints = mem_new((size_t)(n + 1) * sizeof *r->checkpoints);
    r->checkpoint_metrics = mem_new((size_t)(n + 1) * sizeof *r->checkpoint_metrics);
    for (; r->n_checkpoints < n; r->n_checkpoints++) { /* the latest first */
        const manta_checkpoint_info *info;
        const char *at;
        if (!manta_checkpoints_at(m, n - 1 - r->n_checkpoints, &at, &info)) break;
        r->checkpoints[r->n_checkpoints] = mem_strdup(at);
        r->checkpoint_metrics[r->n_checkpoints] = info->metrics;
    }
    if (r->n_checkpoints) r->checkpoint = mem_strdup(r->checkpoints[0]);
    manta_checkpoints_close(m);
    return MANTA_OK;
}

manta_status manta_result_read(const char *folder, manta_result **out)
{
    REFUSE_NULL(folder);
    REFUSE_NULL(out);

    manta_result *r = mem_new(sizeof *r);
    run_outcome how = {.rank = -1};
    manta_run_info info;
    manta_status st;

    if ((st = manta_run_read(folder, &info))) goto out;
    r->path = mem_strdup(folder);
    r->metrics = info.metrics;
    if (*info.error) r->error = mem_strdup(info.error);
    if (!strcmp(info.status, "failed")) how.code = MANTA_EDIED;
    if (!strcmp(info.status, "interrupted")) how.code = MANTA_ECANCELLED;
    if (!strcmp(info.status, "ended")) how.code = MANTA_EUNKNOWN;
    if (!strcmp(info.status, "running")) how.code = MANTA_EBUSY;
    if (how.code != MANTA_EUNKNOWN && how.code != MANTA_EBUSY) run_read_outcome(folder, &how);
    r->status = how.code;
    r->error_rank = how.rank;
    r->failures = how.failures;
    r->workers = how.workers;
    if ((st = take_checkpoints(folder, r))) goto out;
    if ((st = manta_run_history(folder, &r->series, &r->n_series))) goto out;
    *out = r;
    r = NULL;
out:
    manta_result_free(r);
    return st;
}

void manta_result_free(manta_result *r)
{
    if (!r) return;
    for (int i = 0; i < r->n_checkpoints; i++) mem_free(r->checkpoints[i]);
    manta_run_history_free(r->series, r->n_series);
    mem_free(r->checkpoints);
    mem_free(r->checkpoint_metrics);
    mem_free(r->checkpoint);
    mem_free(r->error);
    mem_free(r->path);
    mem_free(r);
}

const char *manta_result_best(const manta_result *r, const char *metric, const char *order)
{
    REFUSE_NULL_OR(r, NULL);
    REFUSE_NULL_OR(metric, NULL);

    bool greater = manifest_greater_is_better(metric, order);
    int best = -1;

    for (int i = r->n_checkpoints; i-- > 0;) { /* oldest first: of equal ones the later is better */
        double value = manta_metrics_get(&r->checkpoint_metrics[i], metric);
        if (value != value) continue;
        if (best < 0 ||
            retention_is_better(value, manta_metrics_get(&r->checkpoint_metrics[best], metric), greater))
            best = i;
    }
    return best < 0 ? NULL : r->checkpoints[best];
}
