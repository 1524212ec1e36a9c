/* gifts.c - see gifts.h. A list for each worker, in the order in which it gave; half of a list that is
 * twice as long as it need be is forgotten at once, so that a gift costs the same however many there were. */
#include "task/gifts.h"

#include "base/map.h"
#include "base/mem.h"

typedef struct gift {
    uint32_t to;
    uint64_t task, item, object;
} gift;

typedef VEC(gift) gift_list;

struct gifts {
    MAP_U64(gift_list) by_giver;
};

gifts *gifts_new(void)
{
    return mem_new(sizeof(gifts));
}

void gifts_free(gifts *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->by_giver.n; i++) vec_release(&g->by_giver.at[i].value);
    map_u64_release(&g->by_giver);
    mem_free(g);
}

void gifts_add(gifts *g, uint32_t from, uint32_t to, uint64_t task, uint64_t item, uint64_t object)
{
    gift_list *l = map_u64_put(&g->by_giver, from);
    size_t left = 0;

    if (l->n >= (size_t)2 * GIFTS_KEPT) {
        for (size_t i = l->n - GIFTS_KEPT; i < l->n; i++) l->at[left++] = l->at[i];
        l->n = left;
    }
    vec_push(l, ((gift){.to = to, .task = task, .item = item, .object = object}));
}

void gifts_unheard(gifts *g, uint32_t from, uint32_t to, uint64_t task, uint64_t items, gifts_objects *out)
{
    gift_list *l = map_u64_find(&g->by_giver, from);
    size_t left = 0;

    if (!l) return;
    for (size_t i = 0; i < l->n; i++) {
        const gift x = l->at[i];
        if (x.to == to && x.task == task && x.item >= items)
            vec_push(out, x.object);
        else
            l->at[left++] = x;
    }
    l->n = left;
}

/* Forgets what is in list i for `to`, and the list when it is empty. */
static void forget_receiver(gifts *g, size_t i, uint32_t to)
{
    gift_list *l = &g->by_giver.at[i].value;
    size_t left = 0;

    for (size_t k = 0; k < l->n; k++)
        if (l->at[k].to != to) l->at[left++] = l->at[k];
    l->n = left;
    if (left > 0) return;
    vec_release(l);
    map_u64_remove(&g->by_giver, g->by_giver.at[i].key);
}

void gifts_settled(gifts *g, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < g->by_giver.n; i++) {
        if (g->by_giver.at[i].key != from) continue;
        forget_receiver(g, i, to);
        return;
    }
}

void gifts_gone(gifts *g, uint32_t client)
{
    for (size_t i = g->by_giver.n; i-- > 0;) forget_receiver(g, i, client);
}

size_t gifts_count(const gifts *g)
{
    size_t n = 0;

    for (size_t i = 0; i < g->by_giver.n; i++) n += g->by_giver.at[i].value.n;
    return n;
}
