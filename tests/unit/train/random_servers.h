/* random_servers.h - a random training by parameter servers without staleness, of which one, or a worker, is killed. */
#ifndef TEST_RANDOM_SERVERS_H
#define TEST_RANDOM_SERVERS_H

#include "train/ps/ps.h"
#include "train/random_ways.h"

/* Who looks on. */
typedef struct keeper {
    manta_checkpoints *all;
    int lost;
} keeper;

/* A checkpoint at the end of each epoch. */
static inline bool keep_epochs(void *user, manta_session *s, const manta_event *e)
{
    keeper *k = user;

    k->lost += e->kind == MANTA_EVENT_RECOVERED;
    if (e->kind == MANTA_EVENT_EPOCH_END)
        must(manta_checkpoints_save(k->all, s, &(manta_checkpoint_info){.epoch = e->epoch + 1}, true));
    return true;
}

/* A server that is lost in the middle of an epoch is the end (docs/parameter-server.md): one process
 * goes on from the last checkpoint. */
static inline outcome by_servers(const training *t, const way *w)
{
    room r = room_open(t);
    manta_session *s = session_of(t, r.m,
                                  (manta_session_options){.threads = 1,
                                                          .strategy = MANTA_STRATEGY_PARAMETER_SERVER,
                                                          .workers = w->workers,
                                                          .servers = w->servers,
                                                          .staleness = MANTA_ZERO});
    const char *folder = scratch_path("checkpoints");
    keeper k = {0};
    manta_metrics metrics;
    manta_status st;
    int64_t epoch;
    outcome out;

    must(manta_checkpoints_open(folder, NULL, &k.all));
    if (w->point) crash_plan_set(&(crash_plan){.point = w->point, .rank = -1, .nth = w->nth, .times = 1});
    st = fit_part(s, r.d, t, 0, t->epochs, (manta_fit_options){.event = keep_epochs, .user = &k}, &metrics);
    crash_plan_set(NULL);
    must(manta_checkpoints_wait(k.all));
    manta_checkpoints_close(k.all);
    if (st == MANTA_EDIED && w->point && w->point >= &ps_crash_points[PS_CRASH_LOADED] &&
        strstr(manta_error_text(), "lost in the middle of an epoch")) {
        k.lost++;
        manta_session_close(s);
        s = take_up(t, r.m, folder, &epoch);
        st = fit_part(s, r.d, t, epoch, t->epochs, (manta_fit_options){0}, &metrics);
    } else {
        scratch_remove(folder);
    }
    must_fit(st, t, w);
    out = outcome_of(s);
    out.metrics = metrics;
    out.lost = k.lost;
    out.share_rounded = true; /* a worker adds it up weight by weight, an update block by block */
    manta_session_close(s);
    room_close(&r);
    return out;
}

#endif
