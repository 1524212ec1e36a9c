/* rates.h - how fast each rank trains, for --rates.
 *
 * The rates of all ranks add up to that of the group. What tells them apart is
 * the share of its time that a rank computes: the rest it waits for others, so
 * the slowest is the one that never waits. */
#ifndef CLI_RATES_H
#define CLI_RATES_H

#include <manta/train.h>

#include "cli/json.h"

enum { RATES_RANKS = 256 };

typedef struct rates {
    bool wanted;
    int ranks; /* 0: this process computes, as rank 0 */
    int64_t samples; /* samples that this process has trained in this epoch */
    double seconds; /* seconds that the epoch's training steps took so far */
    manta_worker_work begin[RATES_RANKS], now[RATES_RANKS];
} rates;

/* Looks at an event of a training with so many workers. */
void rates_see(rates *r, const manta_session *s, const manta_event *e, int workers);

/* " - ranks 512 498/s", for the end of a line; "" when they are not wanted. Returns buf. */
const char *rates_note(const rates *r, char *buf, size_t size);

/* A line for each rank, and what "ranks" of an epoch's event is. */
void rates_print(const rates *r);
json_t *rates_json(const rates *r);

#endif
