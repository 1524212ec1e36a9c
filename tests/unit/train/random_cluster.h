/* random_cluster.h - a random training by the processes of a cluster, of which some are killed. */
#ifndef TEST_RANDOM_CLUSTER_H
#define TEST_RANDOM_CLUSTER_H

#include <sys/mman.h>

#include "train/cluster/cluster.h"
#include "train/members.h"
#include "train/random_ways.h"

enum { PATIENCE_MS = 120000 };

/* What a process of it leaves; the state lies behind, size bytes of it. */
typedef struct legacy {
    manta_status st;
    char error[440];
    manta_metrics metrics;
    _Alignas(64) char state[];
} legacy;

typedef struct gathering {
    const training *t;
    const way *w;
    char *left; /* of all ranks */
    size_t size, stride; /* of a state; from one rank's legacy to the next */
} gathering;

static inline legacy *legacy_of(const gathering *g, int rank)
{
    return (legacy *)(void *)(g->left + (size_t)rank * g->stride);
}

static inline void be_rank(void *user, const member *me)
{
    const gathering *g = user;
    const way *w = g->w;
    legacy *left = legacy_of(g, me->rank);
    manta_cluster *c;
    manta_session *s;
    outcome out;
    room r;

    in_rank = true;
    cluster_piece = 1; /* so that the smallest gradients go in pieces */
    r = room_open(g->t);
    if (w->point && me->rank == w->victim && me->deaths < w->deaths)
        crash_plan_set(&(crash_plan){.point = w->point, .nth = w->nth});
    must(member_open_cluster(
        me, (manta_cluster_options){.insecure_bulk = w->victim % 2, .timeout_ms = PATIENCE_MS}, &c));
    s = session_of(g->t, r.m, (manta_session_options){.threads = 1, .cluster = c});
    left->st = fit_part(s, r.d, g->t, 0, g->t->epochs, (manta_fit_options){0}, &left->metrics);
    if (left->st) snprintf(left->error, sizeof left->error, "%s", manta_error_text());
    out = outcome_of(s);
    memcpy(left->state, out.state, g->size);
    _exit(0);
}

/* The outcome of a rank that differs from the golden one, if one does. */
static inline outcome by_cluster(const training *t, const way *w, const outcome *golden)
{
    gathering g = {.t = t, .w = w, .size = golden->size};
    outcome out = *golden;
    size_t all;
    int lost;

    g.stride = (sizeof(legacy) + g.size + 4095) / 4096 * 4096;
    all = g.stride * (size_t)w->workers;
    g.left = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(g.left != MAP_FAILED);
    lost = members_run(
        &(members){.n = w->workers, .be = be_rank, .user = &g, .alarm_s = 2 * PATIENCE_MS / 1000});
    out.lost = lost;
    out.state = mem_new(out.size);
    for (int rank = 0; rank < w->workers; rank++) {
        const legacy *left = legacy_of(&g, rank);
        if (left->st) FAIL_WAY(t, w, "rank %d: %s", rank, left->error);
        memcpy(out.state, left->state, g.size);
        out.metrics = left->metrics;
        if (!is_same(golden, &out)) break;
    }
    munmap(g.left, all);
    return out;
}

#endif
