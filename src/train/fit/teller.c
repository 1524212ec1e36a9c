/* teller.c - events and hooks of a fit. */
#include "train/fit/teller.h"

#include <stdio.h>

#include "base/clock.h"

void teller_init(teller *t, manta_session *s, const manta_fit_options *o)
{
    *t = (teller){.o = o, .s = s, .begin_ns = clock_now_ns()};
    fitting_init(&t->f, s, o);
    t->f.logs = &t->metrics;
}

bool teller_tell(teller *t, manta_event_kind kind)
{
    t->e.kind = kind;
    t->e.metrics = &t->metrics;
    t->e.seconds = (double)(clock_now_ns() - t->begin_ns) / 1e9;
    if (kind == MANTA_EVENT_STEP)
        t->e.samples_per_s = t->e.seconds > 0 ? (double)t->e.samples / t->e.seconds : 0;
    return !t->o->event || t->o->event(t->o->user, t->s, &t->e);
}

bool teller_news(teller *t, news_queue *q)
{
    static const manta_event_kind kind[] = {[NEWS_STARTED] = MANTA_EVENT_WORKER,
                                            [NEWS_RECOVERED] = MANTA_EVENT_RECOVERED,
                                            [NEWS_LEFT] = MANTA_EVENT_WORKER_LEFT};
    news e;
    bool on = true;

    while (news_take(q, &e)) {
        if (e.server && e.kind == NEWS_STARTED) continue;
        t->e.rank = e.rank;
        t->e.server = e.server;
        t->e.pid = e.pid;
        t->e.ms = e.ms;
        t->e.cause = e.kind == NEWS_STARTED ? NULL : e.cause;
        on &= teller_tell(t, kind[e.kind]);
        t->e.rank = 0;
        t->e.server = false;
        t->e.pid = 0;
        t->e.ms = 0;
        t->e.cause = NULL;
    }
    return on;
}

bool teller_is_watched(const teller *t, bool train)
{
    if (t->o->event && t->o->event_interval_ms <= 0) return true;
    if (t->f.stop) return true; /* it ends after the first step that is seen */
    return fitting_needs(&t->f, train ? HOOK_train_batch_begin : HOOK_test_batch_begin) ||
           fitting_needs(&t->f, train ? HOOK_train_batch_end : HOOK_test_batch_end);
}

int64_t teller_next_look(const teller *t)
{
    return t->o->event ? clock_deadline(t->o->event_interval_ms) : CLOCK_NEVER;
}

manta_status teller_stopped(const teller *t)
{
    return manta_fail(MANTA_ECANCELLED, "stopped on request after step %lld of epoch %lld",
                      (long long)t->e.step, (long long)t->e.epoch + 1);
}

manta_status teller_happen(teller *t, fitting_hook h, manta_event_kind kind)
{
    bool on;

    t->f.epoch = t->e.epoch;
    t->f.steps = t->e.steps;
    TRY(fitting_run(&t->f, h));
    t->e.stopped = t->f.stop;
    on = teller_tell(t, kind);
    TRY(fitting_settle(&t->f));
    return on ? MANTA_OK : teller_stopped(t);
}

manta_status teller_begin_batch(teller *t, fitting_hook h, int64_t step)
{
    t->f.batch = step;
    t->f.epoch = t->e.epoch;
    t->f.steps = t->e.steps;
    return fitting_run(&t->f, h);
}

/* ---- a cluster ---- */

bool teller_waiting(void *ctx, const char *missing, int rank, double ms)
{
    teller *t = ctx;
    bool on;

    t->e.rank = rank;
    t->e.cause = missing;
    t->e.ms = ms;
    on = teller_tell(t, MANTA_EVENT_WAITING);
    t->e.rank = 0;
    t->e.cause = NULL;
    t->e.ms = 0;
    return on;
}

manta_status teller_recovery(teller *t)
{
    bool on = true;

    while (cluster_take_recovery(t->c, &t->e.rank, &t->e.ms, &t->e.cause))
        on &= teller_tell(t, MANTA_EVENT_RECOVERED);
    t->e.rank = 0;
    t->e.ms = 0;
    t->e.cause = NULL;
    return on ? MANTA_OK : teller_stopped(t);
}

manta_status teller_begin_cluster(teller *t, pass *p, pass *v, bool *over)
{
    cluster_work w = {.phase = p ? CLUSTER_TRAIN : CLUSTER_EVALUATE,
                      .epochs = t->f.epochs,
                      .epoch = p ? t->f.first_epoch : 0,
                      .step = p ? t->f.first_step : 0,
                      .watch = teller_waiting,
                      .ctx = t};

    t->c = t->s->cluster;
    t->s->grouped = true;
    if (p) {
        w.readers[CLUSTER_TRAIN] = &p->reader;
        w.steps = p->steps;
    }
    if (v && v->reader.loader) {
        w.readers[CLUSTER_EVALUATE] = &v->reader;
        w.validation_steps = v->steps;
    }
    TRY(cluster_begin(t->c, t->s, &w, over));
    if (p && !*over) {
        t->f.first_epoch = t->c->at.epoch;
        t->f.first_step =
            t->c->at.phase == CLUSTER_TRAIN ? t->c->at.step : layout_run(&t->s->l, t->s->state)->step;
    }
    return teller_recovery(t);
}

manta_status teller_end_cluster(teller *t, manta_status st)
{
    if (t->c) st = cluster_end(t->c, st);
    if (t->c) t->s->grouped = false;
    t->c = NULL;
    return st;
}
