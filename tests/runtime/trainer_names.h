/* trainer_names.h - what two programs of a test have in common: the driver of a trainer
 * (trainer_names.c) and the one that its workers are forked from (trainer_names_other.c).
 * Functions of one name are others in each. */
#ifndef TESTS_TRAINER_NAMES_H
#define TESTS_TRAINER_NAMES_H

#include "trainer_fixture.h"

enum { RANKS = 2 };

/* For the loop and for the maker of its dataset; travels as bytes. */
typedef struct shipped {
    int64_t number;
    char text[32];
} shipped;

/* The actor that is to be a rank, in the node's names; a failed run may end its actors, so
 * the next one has others. */
static inline const char *actor_name(int run, int rank, char out[32])
{
    snprintf(out, 32, "run-%d-rank-%d", run, rank);
    return out;
}

/* A dataset of as many samples as the bytes say. */
static inline manta_dataset *count_up(const void *user, size_t size, float first)
{
    float x[64];
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){0, 1}, x)};
    shipped s;

    if (size != sizeof s) return NULL;
    memcpy(&s, user, size);
    if (s.number < 1 || s.number > 64 || strcmp(s.text, "for the maker") != 0) return NULL;
    c.array.shape[0] = s.number;
    for (int64_t i = 0; i < s.number; i++) x[i] = first + (float)i;
    return manta_dataset_arrays(1, &c, MANTA_OWNERSHIP_COPY);
}

/* Reports which program this is, what the config says, how many samples the dataset has
 * and its first one, and the sum over the ranks of their numbers from 1 on. */
static inline manta_status report_all(manta_worker *w, double program)
{
    const shipped *config = manta_worker_config(w, NULL);
    double ranks = manta_worker_rank(w) + 1;
    manta_metrics m = {0};
    manta_dataset *d;
    manta_loader *l;
    manta_batch b;

    MANTA_TRY(manta_worker_dataset(w, "made", &d));
    MANTA_TRY(manta_loader_open(d, &(manta_loader_options){.batch_size = 64}, &l));
    if (!manta_loader_next(l, &b) || strcmp(config->text, "for the loop") != 0)
        return manta_fail(MANTA_EINTERNAL, "the dataset is empty, or the config is '%s'", config->text);
    MANTA_TRY(manta_worker_sum(w, &ranks, 1));
    one_metric(&m, "program", program);
    one_metric(&m, "config", (double)config->number);
    one_metric(&m, "samples", (double)b.count);
    one_metric(&m, "first", (double)*(const float *)b.columns[0].array.data);
    one_metric(&m, "ranks", ranks);
    manta_loader_close(l);
    manta_dataset_unref(d);
    return manta_report(w, &m);
}

#endif
