/* trainer_driver_datasets.c - the datasets of a trainer, described and put into the store. */
#include "base/status.h"
#include "train/trainer/trainer_driver_datasets.h"

#include <stdio.h>
#include <string.h>

#include <manta/data_file.h>

#include "base/mem.h"
#include "os/file.h"

/* One that is read here must have an end, and samples to divide. */
static manta_status check_dataset(const trainer_dataset *t, const manta_dataset *from)
{
    TRY(manta_dataset_status(from));
    if (manta_dataset_count(from) > 0 && !manta_dataset_is_batched(from)) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED,
                      "dataset '%s' %s: give the trainer its description (spec), or a function that makes it",
                      t->name,
                      manta_dataset_count(from) <= 0 ? "has no known length" : "has batches of its own");
}

/* A bare word is the name of a set or of a file: one that is neither is said here,
 * not by every worker of every attempt. */
static manta_status check_spec(const trainer_dataset *t)
{
    char known[256] = "";
    file_info info;

    if (strpbrk(t->spec, "./,:*{") || !file_stat(t->spec, &info)) return MANTA_OK;
    for (int i = 0; manta_data_name(i); i++) {
        size_t n = strlen(known);
        if (!strcmp(t->spec, manta_data_name(i))) return MANTA_OK;
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", manta_data_name(i));
    }
    return manta_fail(MANTA_ENOENT,
                      "dataset '%s': no dataset and no file is called '%s'; the datasets are %s", t->name,
                      t->spec, known);
}

static manta_status describe_maker(trainer_dataset *t, const manta_named_dataset *from)
{
    char whose[sizeof t->name + 32];

    snprintf(whose, sizeof whose, "the maker of dataset '%s'", t->name);
    return functions_name(FUNCTION_MAKER, whose, from->maker, (any_function *)from->make, t->maker);
}

static manta_status describe_dataset(trainer_dataset *t, int i, const manta_named_dataset *from)
{
    if (!from->name || !*from->name || strlen(from->name) >= sizeof t->name)
        return manta_fail(MANTA_EINVAL,
                          "dataset %d of the trainer has a name of %zu bytes, expected 1 to %zu", i,
                          from->name ? strlen(from->name) : 0, sizeof t->name - 1);
    snprintf(t->name, sizeof t->name, "%s", from->name);
    t->whole = from->whole;
    t->shuffle = from->shuffle;
    if (from->make || from->maker) return describe_maker(t, from);
    if (from->dataset && !from->spec) return check_dataset(t, from->dataset);
    if (!from->spec)
        return manta_fail(
            MANTA_EINVAL,
            "dataset '%s' is neither given nor described, expected a dataset, a spec or a maker", t->name);
    if (strlen(from->spec) >= sizeof t->spec)
        return manta_fail(MANTA_EINVAL, "dataset '%s': its spec has %zu bytes, expected up to %zu", t->name,
                          strlen(from->spec), sizeof t->spec - 1);
    snprintf(t->spec, sizeof t->spec, "%s", from->spec);
    return check_spec(t);
}

manta_status datasets_init(trainer_datasets *g, int n, const manta_named_dataset *from)
{
    *g = (trainer_datasets){0};
    if (n < 0 || n > TRAINER_DATASETS)
        return manta_fail(MANTA_EINVAL, "a trainer with %d datasets, expected 0 to %d", n, TRAINER_DATASETS);
    g->all = mem_new((size_t)(n + 1) * sizeof *g->all);
    g->columns = mem_new((size_t)(n + 1) * sizeof *g->columns);
    for (; g->n < n; g->n++) {
        TRY(describe_dataset(&g->all[g->n], g->n, &from[g->n]));
        for (int i = 0; i < g->n; i++) {
            if (!strcmp(g->all[i].name, g->all[g->n].name))
                return manta_fail(MANTA_EINVAL, "two datasets are called '%s'", g->all[i].name);
        }
    }
    return MANTA_OK;
}

void datasets_release(trainer_datasets *g)
{
    for (int i = 0; i < g->n; i++) {
        for (int k = 0; k < g->all[i].n_columns; k++) manta_release(g->columns[i][k]);
        mem_free(g->columns[i]);
    }
    mem_free(g->columns);
    mem_free(g->all);
    *g = (trainer_datasets){0};
}

/* The whole of it is one batch; its arrays are the columns. */
static manta_status put_dataset(trainer_datasets *g, int i, manta_dataset *from)
{
    trainer_dataset *t = &g->all[i];
    manta_loader *l = NULL;
    manta_batch b;
    manta_status st;

    TRY(manta_loader_open(
        from, &(manta_loader_options){.batch_size = manta_dataset_count(from), .readers = MANTA_NONE}, &l));
    if (!manta_loader_next(l, &b)) {
        st = manta_loader_status(l);
        if (!st)
            st = manta_fail(MANTA_EINVAL, "dataset '%s' has given no sample, expected %lld", t->name,
                            (long long)manta_dataset_count(from));
        goto out;
    }
    if (b.n > TRAINER_COLUMNS) {
        st = manta_fail(MANTA_EUNSUPPORTED, "dataset '%s' has %d columns, expected up to %d", t->name, b.n,
                        TRAINER_COLUMNS);
        goto out;
    }
    g->columns[i] = mem_new((size_t)b.n * sizeof *g->columns[i]);
    for (; t->n_columns < b.n; t->n_columns++) {
        snprintf(t->columns[t->n_columns], sizeof t->columns[0], "%s", b.columns[t->n_columns].name);
        g->columns[i][t->n_columns] = manta_put(manta_elements(&b.columns[t->n_columns].array));
    }
    st = MANTA_OK;
out:
    manta_loader_close(l);
    return st;
}

manta_status datasets_read(trainer_datasets *g, const manta_named_dataset *from)
{
    for (int i = 0; i < g->n; i++) {
        if (!*g->all[i].maker && !from[i].spec) TRY(put_dataset(g, i, from[i].dataset));
    }
    return MANTA_OK;
}
