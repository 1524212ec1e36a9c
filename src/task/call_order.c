/* call_order.c - see call_order.h. */
#include "task/call_order.h"

#include "task/call.h"

void call_order_init(call_order *q)
{
    *q = (call_order){0};
    list_init(&q->in_time);
    list_init(&q->late);
}

void call_order_release(call_order *q)
{
    vec_release(&q->heap);
}

/* ---- the heap: each call is older than the two below it, at 2i + 1 and 2i + 2 ---- */

static void place_call(call_order *q, size_t i, call *c)
{
    q->heap.at[i] = c;
    c->heap_place = i + 1;
}

/* Puts c at place i, or as far above it as it is older than who is there. */
static void sift_up(call_order *q, size_t i, call *c)
{
    for (; i > 0 && q->heap.at[(i - 1) / 2]->id > c->id; i = (i - 1) / 2)
        place_call(q, i, q->heap.at[(i - 1) / 2]);
    place_call(q, i, c);
}

/* Puts c at place i, or as far below it as others are older. */
static void sift_down(call_order *q, size_t i, call *c)
{
    for (size_t k; (k = 2 * i + 1) < q->heap.n; i = k) {
        if (k + 1 < q->heap.n && q->heap.at[k + 1]->id < q->heap.at[k]->id) k++;
        if (q->heap.at[k]->id > c->id) break;
        place_call(q, i, q->heap.at[k]);
    }
    place_call(q, i, c);
}

static void leave_heap(call_order *q, call *c)
{
    size_t i = c->heap_place - 1;
    call *last = vec_pop(&q->heap);

    c->heap_place = 0;
    if (last == c) return;
    if (i > 0 && q->heap.at[(i - 1) / 2]->id > last->id)
        sift_up(q, i, last);
    else
        sift_down(q, i, last);
}

/* ---- the queue ---- */

void call_order_put(call_order *q, call *c)
{
    bool is_late = !list_is_empty(&q->in_time) && LIST_ITEM(q->in_time.prev, call, link)->id > c->id;

    if (!is_late) {
        list_push(&q->in_time, &c->link);
        return;
    }
    list_push(&q->late, &c->link);
    vec_push(&q->heap, c);
    sift_up(q, q->heap.n - 1, c);
}

void call_order_put_first(call_order *q, call *c)
{
    list_push_first(&q->in_time, &c->link);
}

void call_order_take(call_order *q, call *c)
{
    if (c->heap_place) leave_heap(q, c);
    list_remove(&c->link);
}

call *call_order_first(const call_order *q)
{
    call *late = q->heap.n > 0 ? q->heap.at[0] : NULL;
    call *first = list_is_empty(&q->in_time) ? NULL : LIST_ITEM(q->in_time.next, call, link);

    if (!late || !first) return late ? late : first;
    return late->id < first->id ? late : first;
}
