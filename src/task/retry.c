/* retry.c - see retry.h. */
#include "task/retry.h"

static bool may_again(const retry_state *s)
{
    return s->max_retries == MANTA_UNLIMITED || s->attempt < s->max_retries;
}

static bool wants_again(const retry_state *s)
{
    return s->retry_on ? (s->retry_on & MANTA_ON(s->code)) != 0 : s->retry_errors;
}

retry_verdict retry_decide(const retry_state *s, retry_event e, manta_failure_kind *kind)
{
    if (s->cancelled) {
        *kind = MANTA_FAILURE_CANCELLED;
        return RETRY_FAIL;
    }
    switch (e) {
    case RETRY_RETURNED: return RETRY_FREE;
    case RETRY_FUNCTION_FAILED:
        *kind = MANTA_FAILURE_TASK;
        return wants_again(s) && may_again(s) ? RETRY_AGAIN : RETRY_FAIL;
    case RETRY_WORKER_DIED:
        /* Behind a call that was running when the process died, none had begun. */
        if (!s->begun) return RETRY_FREE;
        *kind = s->is_actor ? MANTA_FAILURE_UNKNOWN : MANTA_FAILURE_WORKER;
        return may_again(s) ? RETRY_AGAIN : RETRY_FAIL;
    case RETRY_OVER_LIMIT:
        if (!s->begun) return RETRY_FREE;
        *kind = MANTA_FAILURE_MEMORY;
        /* A function would take as much the next time; an actor begins anew. */
        return s->is_actor && may_again(s) ? RETRY_AGAIN : RETRY_FAIL;
    case RETRY_MEMORY_SHORT:
        if (!s->begun) return RETRY_FREE;
        *kind = MANTA_FAILURE_MEMORY;
        return may_again(s) ? RETRY_AGAIN : RETRY_FAIL;
    }
    *kind = MANTA_FAILURE_WORKER;
    return RETRY_FAIL;
}

int spread_pick(const spread_worker *w, int n, int64_t est_ns, int64_t budget_ns, int most)
{
    int best = -1;

    for (int i = 0; i < n; i++) {
        if (!w[i].usable || w[i].in_flight >= most) continue;
        if (w[i].in_flight == 0) return i;
        if (est_ns < 0 || w[i].load_ns > budget_ns) continue;
        if (best < 0 || w[i].load_ns < w[best].load_ns) best = i;
    }
    return best >= 0 && w[best].load_ns + est_ns <= budget_ns ? best : -1;
}
