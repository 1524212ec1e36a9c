/* retention.c - which checkpoints stay. */
#include "train/checkpoint/retention.h"

#include <math.h>

bool retention_is_better(double a, double b, bool greater)
{
    if (isnan(a)) return isnan(b);
    if (isnan(b)) return true;
    return greater ? a >= b : a <= b;
}

void retention_choose(retention_item *items, int n, int keep, bool scored, bool greater)
{
    for (int i = 0; i < n; i++) {
        int better = 0;
        for (int k = 0; scored && k < n; k++) {
            if (k > i) better += retention_is_better(items[k].score, items[i].score, greater);
            if (k < i) better += !retention_is_better(items[i].score, items[k].score, greater);
        }
        if (!scored) better = n - 1 - i;
        items[i].stays = keep < 1 || better < keep || i == n - 1;
    }
}
