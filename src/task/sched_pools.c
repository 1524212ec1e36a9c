/* sched_pools.c - see sched_pools.h. */
#include "task/sched_pools.h"

#include <string.h>

#include "base/mem.h"

/* ---- shapes and gpus ---- */

sched_gpus gpus_of(const sched_shape *total)
{
    sched_gpus all = {0};

    for (int i = 0; i < SCHED_DEVICES && (int64_t)i * SCHED_UNIT < total->amount[SCHED_GPU]; i++)
        all.at[i] = SCHED_UNIT;
    return all;
}

bool gpus_choose(const sched_gpus *left, int64_t amount, sched_gpus *out)
{
    *out = (sched_gpus){0};
    if (amount > 0 && amount < SCHED_UNIT) {
        int best = -1;
        for (int i = 0; i < SCHED_DEVICES; i++)
            if (left->at[i] >= amount && (best < 0 || left->at[i] < left->at[best])) best = i;
        if (best >= 0) out->at[best] = amount;
        return best >= 0;
    }
    for (int i = 0; i < SCHED_DEVICES && amount > 0; i++) {
        if (left->at[i] < SCHED_UNIT) continue;
        out->at[i] = SCHED_UNIT;
        amount -= SCHED_UNIT;
    }
    return amount <= 0;
}

void gpus_subtract(sched_gpus *left, const sched_gpus *x, int64_t times)
{
    for (int i = 0; i < SCHED_DEVICES; i++) left->at[i] -= times * x->at[i];
}

/* The gpus of a group's bundles, one after the other. */
static bool choose_all(sched_gpus *left, const sched_group *g, sched_gpus *out)
{
    for (int i = 0; i < g->n; i++) {
        if (!gpus_choose(left, g->size[i].amount[SCHED_GPU], &out[i])) return false;
        gpus_subtract(left, &out[i], 1);
    }
    return true;
}

void shape_subtract(sched_shape *left, const sched_shape *shape, int64_t times)
{
    for (int i = 0; i < SCHED_RESOURCES; i++) left->amount[i] -= times * shape->amount[i];
}

uint32_t shape_takes(const sched_shape *shape)
{
    uint32_t bits = 0;

    for (int i = 0; i < SCHED_RESOURCES; i++)
        if (shape->amount[i] > 0) bits |= 1u << i;
    return bits;
}

uint32_t shape_needs(const sched_shape *shape)
{
    return shape_takes(shape) | (shape->place > 0 ? 1u : 0);
}

/* ---- pools ---- */

void pools_init(sched_pools *p, const sched_shape *total)
{
    *p = (sched_pools){.total = *total};
    p->node.left = *total;
    p->node.gpus = gpus_of(total);
}

static void group_free(sched_group *g)
{
    mem_free(g->size);
    mem_free(g->bundles);
    mem_free(g);
}

void pools_release(sched_pools *p)
{
    for (size_t i = 0; i < p->groups.n; i++) group_free(p->groups.at[i].value);
    map_u64_release(&p->groups);
}

sched_group *pools_group(const sched_pools *p, uint64_t id)
{
    sched_group **g = id ? map_u64_find(&p->groups, id) : NULL;

    return g ? *g : NULL;
}

sched_pool *pools_lender(sched_pools *p, const sched_shape *shape, int bundle)
{
    sched_group *g = pools_group(p, shape->group);

    return g && g->placed ? &g->bundles[bundle] : &p->node;
}

/* The resources of which a shape finds too little in the plan of a pool, as bits. */
static uint32_t lacking_in(const sched_pool *p, const sched_shape *shape)
{
    uint32_t bits = 0;

    for (int i = 0; i < SCHED_RESOURCES; i++)
        if (shape->amount[i] > 0 && shape->amount[i] > p->plan.amount[i]) bits |= 1u << i;
    if (shape->place > 0 && shape->amount[0] + shape->place > p->plan.amount[0]) bits |= 1u;
    return bits;
}

/* `g` is to be placed; NULL: it is for a worker. */
static bool has_room(const sched_pool *p, const sched_shape *shape, const sched_group *g)
{
    sched_gpus one, left = p->plan_gpus, all[GROUP_BUNDLES];

    if (lacking_in(p, shape)) return false;
    if (g) return choose_all(&left, g, all);
    return gpus_choose(&left, shape->amount[SCHED_GPU], &one);
}

sched_pool *pools_find(sched_pools *p, const sched_shape *shape, uint64_t group, int *bundle)
{
    sched_group *g = pools_group(p, shape->group);

    *bundle = 0;
    if (!shape->group) return has_room(&p->node, shape, pools_group(p, group)) ? &p->node : NULL;
    for (int i = 0; g && g->placed && i < g->n; i++) {
        if (shape->bundle != SCHED_ANY && shape->bundle != i) continue;
        if (!has_room(&g->bundles[i], shape, NULL)) continue;
        *bundle = i;
        return &g->bundles[i];
    }
    return NULL;
}

uint32_t pools_lacking(const sched_pools *p, const sched_shape *shape)
{
    const sched_group *g = pools_group(p, shape->group);
    uint32_t bits = 0;

    if (!shape->group) return lacking_in(&p->node, shape);
    for (int k = 0; g && g->placed && k < g->n; k++)
        if (shape->bundle == SCHED_ANY || shape->bundle == k) bits |= lacking_in(&g->bundles[k], shape);
    return bits;
}

uint32_t *pools_kept(sched_pools *p, const sched_shape *shape)
{
    sched_group *g = pools_group(p, shape->group);

    return g ? &g->kept : &p->kept;
}

static void plan_pool_anew(sched_pool *p)
{
    p->plan = p->left;
    p->plan_gpus = p->gpus;
}

void pools_plan_anew(sched_pools *p)
{
    plan_pool_anew(&p->node);
    p->kept = 0;
    for (size_t i = 0; i < p->groups.n; i++) {
        sched_group *g = p->groups.at[i].value;
        g->kept = 0;
        for (int k = 0; k < g->n; k++) plan_pool_anew(&g->bundles[k]);
    }
}

void pools_plan_one(sched_pool *p, const sched_shape *shape)
{
    sched_gpus gpus;

    (void)gpus_choose(&p->plan_gpus, shape->amount[SCHED_GPU], &gpus);
    gpus_subtract(&p->plan_gpus, &gpus, 1);
    shape_subtract(&p->plan, shape, 1);
}

void pools_take(sched_pool *p, const sched_shape *shape, sched_gpus *gpus)
{
    shape_subtract(&p->left, shape, 1);
    (void)gpus_choose(&p->gpus, shape->amount[SCHED_GPU], gpus); /* has_room() has said so */
    gpus_subtract(&p->gpus, gpus, 1);
}

void pools_give(sched_pool *p, const sched_shape *shape, const sched_gpus *gpus)
{
    shape_subtract(&p->left, shape, -1);
    gpus_subtract(&p->gpus, gpus, -1);
}

/* ---- groups ---- */

bool pools_group_add(sched_pools *p, uint64_t id, const sched_shape *bundles, int64_t n, sched_shape *sum)
{
    *sum = (sched_shape){0};
    if (n < 1 || n > GROUP_BUNDLES || pools_group(p, id)) return false;
    sched_group *g = mem_new(sizeof *g);
    g->n = (int)n;
    g->size = mem_new((size_t)g->n * sizeof *g->size);
    g->bundles = mem_new((size_t)g->n * sizeof *g->bundles);
    memcpy(g->size, bundles, (size_t)g->n * sizeof *g->size);
    for (int i = 0; i < g->n; i++) shape_subtract(sum, &g->size[i], -1);
    *map_u64_put(&p->groups, id) = g;
    return true;
}

void pools_group_place(sched_pools *p, uint64_t id, const sched_shape *sum)
{
    sched_group *g = pools_group(p, id);
    sched_gpus gpus[GROUP_BUNDLES];

    shape_subtract(&p->node.left, sum, 1);
    (void)choose_all(&p->node.gpus, g, gpus); /* has_room() has said so */
    g->placed = true;
    for (int i = 0; i < g->n; i++) {
        g->bundles[i].left = g->size[i];
        g->bundles[i].gpus = gpus[i];
    }
}

bool pools_group_remove(sched_pools *p, uint64_t id)
{
    sched_group *g = pools_group(p, id);

    if (!g) return false;
    for (int i = 0; i < g->n && g->placed; i++)
        pools_give(&p->node, &g->bundles[i].left, &g->bundles[i].gpus);
    map_u64_remove(&p->groups, id);
    group_free(g);
    return true;
}
