/* demand.h - what a client has asked the scheduler for and not got yet. Pure.
 *
 * A client says how many workers of a shape it wants (DEMAND, an absolute number, which
 * replaces the one before), and the scheduler grants them one by one. The two messages pass
 * each other on the way:
 *
 *     client                                   scheduler
 *     wants 1: demand 1  ──────────────▶       owes 1
 *                             ◀────── grant    owes nothing
 *     wants 2: demand 2  ──────────────▶       owes 2
 *     hears the grant: owed 2, not 1, for it was made for demand 1
 *
 * So demands have numbers, a grant names the last one that the scheduler knew, and only a
 * grant for the last demand is counted off it. Both sides then know the same of what is owed
 * whenever no message is on its way. A client that counted every grant would come to believe
 * that nothing is owed while the scheduler still knew of a worker to be given, and that
 * request would stand in the scheduler's line for ever. */
#ifndef TASK_DEMAND_H
#define TASK_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

typedef struct demand {
    int64_t owed; /* workers of the last demand that were not granted yet */
    uint64_t number; /* of the last demand; 0: there was none */
} demand;

/* The client wants n workers now. Whether the scheduler is to be told: then d->number is the
 * number of the new demand. Wanting a little more than before is not worth a message. */
static inline bool demand_wants(demand *d, int64_t n)
{
    if (n == d->owed || (n > 0 && d->owed > 0 && n < 2 * d->owed)) return false;
    d->owed = n;
    d->number++;
    return true;
}

/* A worker was granted for the demand of that number. */
static inline void demand_granted(demand *d, uint64_t number)
{
    if (d->owed > 0 && number == d->number) d->owed--;
}

/* The scheduler owes nothing any more: it has refused, or what it was to give from is gone. */
static inline void demand_void(demand *d)
{
    d->owed = 0;
}

#endif
