/* trainer_scaling.c - how many workers a trainer has, and where they sit. */
#include "base/status.h"
#include "train/trainer/trainer_scaling.h"

#include <manta/context.h>
#include <manta/placement.h>

#include "train/trainer/trainer_shared.h"

manta_status scaling_init(trainer_scaling *p, const manta_scaling_config *c)
{
    double cpus = c->cpus_per_worker;

    *p = (trainer_scaling){.most = c->num_workers ? c->num_workers : 1, .how = c->placement};
    p->least = c->min_workers ? c->min_workers : p->most;
    p->limit = p->most;
    if (p->most < 1 || p->most > TRAINER_RANKS)
        return manta_fail(MANTA_EINVAL, "a trainer with %d workers, expected 1 to %d", p->most,
                          TRAINER_RANKS);
    if (p->least < 1 || p->least > p->most) {
        return manta_fail(MANTA_EINVAL, "min_workers is %d, expected 1 to %d, as num_workers is", p->least,
                          p->most);
    }
    if ((unsigned)p->how > MANTA_PLACEMENT_STRICT_SPREAD)
        return manta_fail(
            MANTA_EINVAL,
            "placement %d, expected MANTA_PLACEMENT_PACK, MANTA_PLACEMENT_SPREAD or their strict kind",
            (int)p->how);
    if (c->use_gpu)
        return manta_fail(MANTA_EUNSUPPORTED, "use_gpu: workers compute on processors only, so far");
    if (cpus == 0 && p->least < p->most) cpus = c->threads_per_worker > 0 ? c->threads_per_worker : 1;
    if (cpus < 0 && cpus != MANTA_NONE)
        return manta_fail(MANTA_EINVAL, "cpus_per_worker is %g, expected 0 or more, or MANTA_NONE", cpus);
    if (cpus < 0) cpus = 0;
    p->need = (manta_bundle){.num_cpus = cpus, .resources = c->resources_per_worker};
    p->asks = cpus > 0 || (c->resources_per_worker && *c->resources_per_worker);
    if (p->asks && p->most > MANTA_PLACEMENT_GROUP_BUNDLES) {
        return manta_fail(MANTA_EINVAL, "%d workers that ask for processors or resources, expected up to %d",
                          p->most, MANTA_PLACEMENT_GROUP_BUNDLES);
    }
    if (p->how == MANTA_PLACEMENT_STRICT_SPREAD && p->least > 1)
        return manta_fail(MANTA_EUNSUPPORTED, "STRICT_SPREAD: one host can hold one worker of %d", p->least);
    if (p->how == MANTA_PLACEMENT_STRICT_SPREAD) p->limit = 1;
    return MANTA_OK;
}

/* Asks for a group of n and looks whether it has its place at once: the first
 * look asks the daemon, whose answer comes before that to a later question. */
static manta_status try_group(const trainer_scaling *p, int n, manta_placement_group *out, bool *placed)
{
    manta_bundle bundles[MANTA_PLACEMENT_GROUP_BUNDLES];
    manta_node_info unused;
    manta_status st;

    for (int i = 0; i < n; i++) bundles[i] = p->need;
    TRY(manta_placement_group_new(bundles, n, p->how, NULL, out));
    if ((st = manta_placement_group_wait(*out, 0)) == MANTA_ETIMEDOUT && !(st = manta_node_get(&unused)))
        st = manta_placement_group_wait(*out, 0);
    *placed = !st;
    if (st == MANTA_ETIMEDOUT) st = MANTA_OK;
    return st;
}

void scaling_release(trainer_scaling *p)
{
    while (p->n_more) manta_placement_group_remove(p->more[--p->n_more].group);
    manta_placement_group_remove(p->group);
    p->group.id = 0;
    p->n = 0;
}

manta_status scaling_take(trainer_scaling *p, bool *taken)
{
    manta_status st = MANTA_OK;

    *taken = true;
    if (!p->asks) p->n = p->limit;
    if (p->n) return MANTA_OK;
    *taken = false;
    if (p->group.id) { /* of as few as will do, asked for before: it is in the queue */
        st = manta_placement_group_wait(p->group, 0);
        *taken = !st;
        if (*taken) p->n = p->least;
        return st == MANTA_ETIMEDOUT ? MANTA_OK : st;
    }
    for (int n = p->limit; n >= p->least && !*taken; n--) {
        scaling_release(p);
        st = try_group(p, n, &p->group, taken);
        if (*taken) p->n = n;
        if (st && (st != MANTA_EUNSUPPORTED || n == p->least)) return st;
    }
    return MANTA_OK;
}

manta_status scaling_grow(trainer_scaling *p, bool *grown)
{
    manta_status st = MANTA_OK;

    *grown = false;
    if (!p->group.id || !p->n || p->n_more == SCALING_MORE) return MANTA_OK;
    for (int n = p->limit - p->n; n > 0 && !*grown && !st; n--) {
        manta_placement_group g = {0};
        st = try_group(p, n, &g, grown);
        if (st == MANTA_EUNSUPPORTED) st = MANTA_OK; /* so many never fit here; fewer may */
        if (*grown) {
            p->more[p->n_more].group = g;
            p->more[p->n_more++].first = p->n;
            p->n += n;
        } else {
            manta_placement_group_remove(g);
        }
    }
    return st;
}

manta_placement_group scaling_of(const trainer_scaling *p, int rank, int *bundle)
{
    int i = p->n_more;

    while (i > 0 && p->more[i - 1].first > rank) i--;
    *bundle = rank + 1 - (i ? p->more[i - 1].first : 0);
    if (!p->group.id) *bundle = 0;
    return i ? p->more[i - 1].group : p->group;
}

bool scaling_lost(trainer_scaling *p, trainer_loss l)
{
    bool again = p->died && !l.progressed;

    p->died = l.died;
    if (!l.died || (l.began && !again)) return false;
    if (p->limit <= p->least || p->n <= p->least) return false;
    p->limit = p->n - 1;
    p->died = false;
    scaling_release(p); /* with one bundle less */
    return true;
}
