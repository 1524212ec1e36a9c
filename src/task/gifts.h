/* gifts.h - what workers have handed to their callers with answers that these may never read. Pure.
 *
 * A worker that answers lets the daemon know first that the caller holds what the answer brings (a
 * large result, an item, references in a value). When it dies in between, the caller holds what it has
 * never heard of, and would for ever. So the daemon keeps what was given lately:
 *
 *     worker ── ADD for caller, GIVE ──▶ daemon     gifts_add()
 *        │                                 │
 *        └── answer ──▶ caller             │ the worker is dead: the caller reads what is left
 *                         └── UNHEARD ─────┘ of its answers, and names the calls without one:
 *                                            gifts_unheard() says what it holds for nothing
 *
 * A gift is known by its call, and of a stream by the item that it belongs to: the caller says how many
 * items it has read. An answer that was read is never named, so nothing is taken twice. A call that is
 * tried again where it was before has given what was read: items are numbered by try (gifts_item()).
 *
 * Callers read before long, and a worker has few of their calls at once: of each worker the last
 * GIFTS_KEPT gifts are kept, at least. */
#ifndef TASK_GIFTS_H
#define TASK_GIFTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"
#include "task/sizes.h"

#define GIFTS_TRY 40 /* bits of an item's number; above them is the try */
#define GIFTS_RESULT                                                                                         \
    (((uint64_t)1 << GIFTS_TRY) - 1) /* the item of a gift that comes with the end of its call */

/* The number of an item of a call's n-th try, from 0 on: below all of the next, which begins when everything
 * was read. */
static inline uint64_t gifts_item(uint32_t attempt, uint64_t item)
{
    return (uint64_t)attempt << GIFTS_TRY | item;
}

typedef struct gifts gifts;
typedef VEC(uint64_t) gifts_objects;

gifts *gifts_new(void);
void gifts_free(gifts *g); /* accepts NULL */

/* `from` gives an object to `to`, with item `item` (gifts_item()) of its call `task` or with its end. */
void gifts_add(gifts *g, uint32_t from, uint32_t to, uint64_t task, uint64_t item, uint64_t object);

/* `to` has read its call `task` up to item `items`, and no end of it; `from` is dead. What it was given
 * beside them is added to *out, and forgotten. */
void gifts_unheard(gifts *g, uint32_t from, uint32_t to, uint64_t task, uint64_t items, gifts_objects *out);

/* All that `to` has not named was read; what `from` has given to it is forgotten. */
void gifts_settled(gifts *g, uint32_t from, uint32_t to);

/* A client is dead: what it was given is forgotten. What it has given stays until the others are settled. */
void gifts_gone(gifts *g, uint32_t client);

/* How many are kept. */
size_t gifts_count(const gifts *g);

#endif
