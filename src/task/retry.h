/* retry.h - what becomes of a call that did not end well. Pure. */
#ifndef TASK_RETRY_H
#define TASK_RETRY_H

#include <stdbool.h>

#include <manta/failure.h>

typedef enum retry_event {
    RETRY_WORKER_DIED, /* the process that had the call is dead */
    RETRY_OVER_LIMIT, /* it was ended, because it had more memory than it may */
    RETRY_MEMORY_SHORT, /* it was ended, because the machine had too little */
    RETRY_FUNCTION_FAILED, /* the function returned a failure */
    RETRY_RETURNED /* the worker had not begun it */
} retry_event;

typedef struct retry_state {
    int attempt; /* 0 for the first */
    int max_retries; /* MANTA_UNLIMITED, or >= 0 */
    bool retry_errors;
    uint32_t retry_on; /* statuses, as MANTA_ON(); 0: all, with retry_errors */
    manta_status code; /* with which the function failed */
    bool is_actor; /* then max_retries counts retries of calls that may have run */
    bool cancelled;
    bool begun; /* it may have begun: it was first in its worker's line */
} retry_state;

typedef enum retry_verdict {
    RETRY_AGAIN, /* and it counts as an attempt */
    RETRY_FREE, /* again, without counting: it had certainly not begun */
    RETRY_FAIL /* with *kind */
} retry_verdict;

retry_verdict retry_decide(const retry_state *s, retry_event e, manta_failure_kind *kind);

/* A worker among those a caller has leased. */
typedef struct spread_worker {
    bool usable;
    int in_flight;
    int64_t load_ns; /* how long what is in flight will take, by experience */
} spread_worker;

/* Which of n workers gets the next call, which by experience takes est_ns
 * (negative: nobody knows): an idle one; or one whose line is so short that
 * waiting in it costs less than budget_ns. -1: none, keep the call. So short
 * calls are sent ahead of time, and long ones never wait behind each other
 * while another worker is about to be free. */
int spread_pick(const spread_worker *w, int n, int64_t est_ns, int64_t budget_ns, int most);

#endif
