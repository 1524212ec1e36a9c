/* group_table.c - decisions of the controller, without any doing. */
#include "train/group/group_table.h"

#include <string.h>

/* The next seated one after `at`, in turn; -1: nobody is. */
static int next_seated(const table *t, int seats, int at)
{
    for (int i = 1; i <= seats; i++) {
        if (t->seated[(at + i) % seats]) return (at + i) % seats;
    }
    return -1;
}

void table_fill(table *t, int seats, int shards)
{
    int at = next_seated(t, seats, seats - 1);

    if (at < 0) return;
    for (int v = 0; v < shards; v++) {
        if (t->seated[t->shard[v]]) continue;
        t->shard[v] = (uint16_t)at;
        at = next_seated(t, seats, at);
    }
    for (int r = 0; r < seats; r++) {
        if (t->seated[t->range[r]]) continue;
        t->range[r] = (uint16_t)at;
        at = next_seated(t, seats, at);
    }
}

/* Seat i is at home to these. */
static int first_shard(int i, int seats, int shards)
{
    return i * shards / seats;
}

void table_home(table *t, int seats, int shards)
{
    for (int i = 0; i < seats; i++) {
        for (int v = first_shard(i, seats, shards); v < first_shard(i + 1, seats, shards); v++)
            t->shard[v] = (uint16_t)i;
        t->range[i] = (uint16_t)i;
    }
    table_fill(t, seats, shards);
}

void table_return(table *t, int seats, int shards)
{
    for (int i = 0; i < seats; i++) {
        if (!t->seated[i]) continue;
        for (int v = first_shard(i, seats, shards); v < first_shard(i + 1, seats, shards); v++) {
            if (!t->seated[t->shard[v]]) t->shard[v] = (uint16_t)i;
        }
        if (!t->seated[t->range[i]]) t->range[i] = (uint16_t)i;
    }
}

bool table_is_vacant(const table *t, int seats, int shards)
{
    for (int v = 0; v < shards; v++) {
        if (!t->seated[t->shard[v]]) return true;
    }
    for (int r = 0; r < seats; r++) {
        if (!t->seated[t->range[r]]) return true;
    }
    return false;
}

bool table_equal(const table *a, const table *b, int seats, int shards)
{
    return a->base == b->base && !memcmp(a->seated, b->seated, (size_t)seats * sizeof *a->seated) &&
           !memcmp(a->range, b->range, (size_t)seats * sizeof *a->range) &&
           !memcmp(a->shard, b->shard, (size_t)shards * sizeof *a->shard);
}

bool blame_add(blame *b, int64_t ticket, bool crash)
{
    if (b->ticket != ticket) *b = (blame){.ticket = ticket};
    if (crash) {
        b->crashes++;
    } else {
        b->kills++;
    }
    return b->crashes >= BLAME_CRASHES || b->crashes + b->kills >= BLAME_KILLS;
}
