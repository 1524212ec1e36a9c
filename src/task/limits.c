/* limits.c - see limits.h. */
#include "task/limits.h"

int limits_pick(const limits_process *p, int n, uint64_t available, uint64_t floor, limits_why *why)
{
    int most = -1;
    bool going = false;

    *why = LIMITS_FINE;
    for (int i = 0; i < n; i++) {
        going = going || p[i].going;
        if (p[i].going) continue;
        if (p[i].limit > 0 && p[i].memory > p[i].limit) {
            *why = LIMITS_OWN;
            return i;
        }
        if (p[i].busy && (most < 0 || p[i].memory > p[most].memory)) most = i;
    }
    if (available >= floor || going || most < 0) return -1;
    *why = LIMITS_MACHINE;
    return most;
}
