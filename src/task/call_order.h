/* call_order.h - the queue of a shape: calls that wait for a worker, the oldest first. Private to task/.
 *
 * Most calls are queued in the order in which they were made. One that had to wait for its arguments comes when
 * younger ones are queued already, and may be what these will wait for once they run: behind them it would get no
 * worker if they take all that there may be. So it goes before them, whatever their number:
 *
 *     in_time   a list, in the order of their numbers: what is made now is put at its end
 *     late      a list, for membership alone, and a heap of the same calls, the smallest number first
 *
 * and the next call is the older one of the two first. A call that is put back goes to the front of in_time. To put
 * and to take take constant time in in_time, and the logarithm of their number for late ones.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_CALL_ORDER_H
#define TASK_CALL_ORDER_H

#include "base/list.h"
#include "base/vec.h"

struct call;

typedef struct call_order {
    list in_time, late;
    VEC(struct call *) heap; /* call->heap_place: where, plus one; 0: not in it */
} call_order;

void call_order_init(call_order *q);
void call_order_release(call_order *q);

/* Puts c, which is in no list, where its number belongs, or before all that came in time. */
void call_order_put(call_order *q, struct call *c);
void call_order_put_first(call_order *q, struct call *c);

/* Takes c out; harmless when it is in another list, or in none. */
void call_order_take(call_order *q, struct call *c);

/* The call to be sent next; NULL: there is none. */
struct call *call_order_first(const call_order *q);

#endif
