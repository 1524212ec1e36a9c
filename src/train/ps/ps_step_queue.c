/* ps_step_queue.c - which steps are done, under way, or to be given out.
 *
 *                  take                    done
 *   to be given ──────────▶ held by one ─────────▶ done
 *        ▲                   worker
 *        └── again[], in order ┘  lose
 *
 *        0 ......... low ......................... next ............. steps
 *        all done    done, held or in again[]      never given out
 *
 * Invariants
 * 1. Every step before `low` is done; `low` itself is not, unless it is the end.
 * 2. A step is held by one worker at most, and is then neither done nor in again[].
 * 3. again[] has at most one step per worker, ascending: the oldest is given out first,
 *    because others may be held back by it.
 * 4. With a bound of K no step beyond low + K is given out.
 *
 * Pure: the coordinator calls it, and tests call it in every order. */
#include "train/ps/ps_step_queue.h"

#include <string.h>

#include "base/mem.h"

manta_status ps_step_queue_init(ps_step_queue *t, int64_t steps, int64_t bound)
{
    *t = (ps_step_queue){.steps = steps, .bound = bound};
    for (int w = 0; w < PS_WORKERS; w++) t->held[w] = -1;
    TRY(mem_try_array(steps + 1, 1, "the steps of an epoch", (void **)&t->is_done));
    memset(t->is_done, 0, (size_t)steps + 1);
    return MANTA_OK;
}

void ps_step_queue_release(ps_step_queue *t)
{
    mem_try_free(t->is_done);
    t->is_done = NULL;
}

void ps_step_queue_skip(ps_step_queue *t, const unsigned char *is_in)
{
    for (int64_t i = 0; i < t->steps; i++) {
        t->is_done[i] = is_in[i] != 0;
        t->done += t->is_done[i];
    }
    while (t->low < t->steps && t->is_done[t->low]) t->low++;
}

int64_t ps_step_queue_take(ps_step_queue *t, int w)
{
    if (t->held[w] >= 0) return -1;
    if (t->n_again) {
        t->held[w] = t->again[0];
        t->n_again--;
        memmove(t->again, t->again + 1, (size_t)t->n_again * sizeof *t->again);
        return t->held[w];
    }
    while (t->next < t->steps && t->is_done[t->next]) t->next++;
    if (t->next >= t->steps) return -1;
    if (t->bound >= 0 && t->next - t->low > t->bound) return -1;
    t->held[w] = t->next++;
    return t->held[w];
}

bool ps_step_queue_done(ps_step_queue *t, int w, int64_t step)
{
    if (step < 0 || t->held[w] != step) return false;
    t->held[w] = -1;
    t->is_done[step] = 1;
    t->done++;
    while (t->low < t->steps && t->is_done[t->low]) t->low++;
    return true;
}

/* The oldest first: others may be held back by it. */
void ps_step_queue_lose(ps_step_queue *t, int w)
{
    int64_t step = t->held[w];
    int at = t->n_again;

    t->held[w] = -1;
    if (step < 0) return;
    for (; at > 0 && t->again[at - 1] > step; at--) t->again[at] = t->again[at - 1];
    t->again[at] = step;
    t->n_again++;
}

bool ps_step_queue_is_idle(const ps_step_queue *t)
{
    for (int w = 0; w < PS_WORKERS; w++) {
        if (t->held[w] >= 0) return false;
    }
    return !t->n_again;
}
