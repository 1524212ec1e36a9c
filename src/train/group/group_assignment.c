/* group_assignment.c - decisions of the controller, without any doing. */
#include "train/group/group_assignment.h"

#include <string.h>

/* The next active one after `at`, in turn; -1: nobody is. */
static int next_active(const assignment *t, int workers, int at)
{
    for (int i = 1; i <= workers; i++) {
        if (t->active[(at + i) % workers]) return (at + i) % workers;
    }
    return -1;
}

void assignment_fill(assignment *t, int workers, int shards)
{
    int at = next_active(t, workers, workers - 1);

    if (at < 0) return;
    for (int v = 0; v < shards; v++) {
        if (t->active[t->shard[v]]) continue;
        t->shard[v] = (uint16_t)at;
        at = next_active(t, workers, at);
    }
    for (int r = 0; r < workers; r++) {
        if (t->active[t->range[r]]) continue;
        t->range[r] = (uint16_t)at;
        at = next_active(t, workers, at);
    }
}

/* Rank i is at home to these. */
static int first_shard(int i, int workers, int shards)
{
    return i * shards / workers;
}

void assignment_home(assignment *t, int workers, int shards)
{
    for (int i = 0; i < workers; i++) {
        for (int v = first_shard(i, workers, shards); v < first_shard(i + 1, workers, shards); v++)
            t->shard[v] = (uint16_t)i;
        t->range[i] = (uint16_t)i;
    }
    assignment_fill(t, workers, shards);
}

void assignment_return(assignment *t, int workers, int shards)
{
    for (int i = 0; i < workers; i++) {
        if (!t->active[i]) continue;
        for (int v = first_shard(i, workers, shards); v < first_shard(i + 1, workers, shards); v++) {
            if (!t->active[t->shard[v]]) t->shard[v] = (uint16_t)i;
        }
        if (!t->active[t->range[i]]) t->range[i] = (uint16_t)i;
    }
}

bool assignment_is_vacant(const assignment *t, int workers, int shards)
{
    for (int v = 0; v < shards; v++) {
        if (!t->active[t->shard[v]]) return true;
    }
    for (int r = 0; r < workers; r++) {
        if (!t->active[t->range[r]]) return true;
    }
    return false;
}

bool assignment_equal(const assignment *a, const assignment *b, int workers, int shards)
{
    return a->base == b->base && !memcmp(a->active, b->active, (size_t)workers * sizeof *a->active) &&
           !memcmp(a->range, b->range, (size_t)workers * sizeof *a->range) &&
           !memcmp(a->shard, b->shard, (size_t)shards * sizeof *a->shard);
}

bool blame_add(blame *b, int64_t number, bool crash)
{
    if (b->number != number) *b = (blame){.number = number};
    if (crash) {
        b->crashes++;
    } else {
        b->kills++;
    }
    return b->crashes >= BLAME_CRASHES || b->crashes + b->kills >= BLAME_KILLS;
}
