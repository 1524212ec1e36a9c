/* random_ways.h - the ways in which a random training is done, and what each ends with:
 *
 *   alone       one process
 *   workers     processes of this host that share the state; some are killed, their number is changed
 *   parts       one process to a checkpoint, and another session from there on
 *   cluster     processes that TF_CONFIG names, on loopback; one is killed, and its successors
 *   servers     parameter servers without staleness; a worker or a server is killed
 *   ranks       a trainer's loop, whose ranks take the steps together; one is killed */
#ifndef TEST_RANDOM_WAYS_H
#define TEST_RANDOM_WAYS_H

#include <math.h>
#include <signal.h>

#include <manta/checkpoint.h>

#include "format/scratch.h"
#include "os/crash.h"
#include "train/random_data.h"
#include "train/session/session.h"

enum { MOST_WORKERS = 3 };

typedef enum way_kind {
    WAY_ALONE,
    WAY_WORKERS,
    WAY_PARTS,
    WAY_CLUSTER,
    WAY_SERVERS,
    WAY_RANKS,
    WAYS
} way_kind;

typedef struct way {
    way_kind kind;
    int workers, servers, threads;
    int kill_at[2]; /* workers, ranks: after so many steps; 0: never */
    int resize_at; /* workers: likewise */
    int cut_at; /* parts: epoch at whose end another session goes on */
    const crash_point *point; /* cluster, servers: where a process dies; NULL: nowhere */
    int nth, victim; /* when it comes there for the nth time; rank of it */
    int deaths; /* cluster: how many of that rank */
    int save_every; /* ranks: steps from one checkpoint to the next; 0: none */
    buf words;
} way;

typedef struct outcome {
    void *state;
    size_t size;
    size_t sums,
        share; /* where in it the sums of metrics begin, and the regulariser's share of the loss is */
    bool needs_norms; /* its update needs all parameters in one place */
    bool meets; /* its shards go in lockstep, with statistics of all of them */
    bool sums_lost; /* an epoch was gone on with by processes that had not begun it: its sums are not whole */
    bool share_rounded; /* the share was added up in another order */
    int lost; /* processes that were lost on the way; of workers those that were killed */
    manta_metrics metrics;
} outcome;

static inline outcome outcome_of(const manta_session *s)
{
    outcome o = {.size = s->l.state_size,
                 .sums = s->l.off_run + sizeof(run_state),
                 .needs_norms = apply_needs_norms(&s->a),
                 .meets = s->meets};

    o.share = o.sums + (size_t)s->l.n_sums * sizeof(double);
    o.state = mem_new(o.size);
    memcpy(o.state, s->state, o.size);
    return o;
}

/* Whether two numbers differ by no more than another order of adding makes. */
static inline bool is_rounded(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(a);
}

/* Whether it has the golden one's metrics; of a loop's ranks there are none of a validation. */
static inline bool has_metrics_of(const outcome *golden, const outcome *o, bool rounded)
{
    for (int i = 0; i < o->metrics.n; i++) {
        double a = manta_metrics_get(&golden->metrics, o->metrics.name[i]), b = o->metrics.value[i];
        if (memcmp(&a, &b, sizeof a) != 0 && !(rounded && is_rounded(a, b))) return false;
    }
    return o->metrics.n > 0;
}

/* Whether it has the golden one's bytes: all of them, but for what it says itself. */
static inline bool is_same(const outcome *golden, const outcome *o)
{
    const char *a = golden->state, *b = o->state;
    double share, theirs;

    if (o->size != golden->size || memcmp(a, b, o->sums) != 0) return false;
    if (o->sums_lost) return true;
    memcpy(&share, a + o->share, sizeof share);
    memcpy(&theirs, b + o->share, sizeof share);
    if (!has_metrics_of(golden, o, o->share_rounded && share > 0)) return false;
    if (!o->share_rounded) return !memcmp(a + o->sums, b + o->sums, o->size - o->sums);
    return !memcmp(a + o->sums, b + o->sums, o->share - o->sums) && is_rounded(share, theirs) &&
           !memcmp(a + o->share + sizeof share, b + o->share + sizeof share,
                   o->size - o->share - sizeof share);
}

/* What all ways have: the model, the data. */
typedef struct room {
    manta_dataset *d;
    manta_model *m;
} room;

static inline room room_open(const training *t)
{
    buf none = {0};
    room r = {.d = dataset_of(t, &none)};

    r.m = model_of(t, x_of(r.d), &none);
    buf_release(&none);
    return r;
}

static inline void room_close(room *r)
{
    manta_dataset_unref(r->d);
    manta_model_free(r->m);
}

/* Ends the test: what is wrong, of which training, and how it was done. */
#define FAIL_WAY(t, w, ...)                                                                                  \
    do {                                                                                                     \
        char what_[600];                                                                                     \
        snprintf(what_, sizeof what_, __VA_ARGS__);                                                          \
        fail_msg("seed %llu, %s: %s\n%s", (unsigned long long)(t)->seed, buf_text(&(w)->words), what_,       \
                 buf_text(&(t)->words));                                                                     \
    } while (0)

static inline void must_fit(manta_status st, const training *t, const way *w)
{
    if (st) FAIL_WAY(t, w, "%s", manta_error_text());
}

/* ---- alone, and workers ---- */

typedef struct viewer {
    const way *w;
    int seen, killed;
    int64_t pid[MOST_WORKERS];
} viewer;

static inline bool disturb_workers(void *user, manta_session *s, const manta_event *e)
{
    viewer *v = user;

    if (e->kind == MANTA_EVENT_WORKER && e->rank < MOST_WORKERS) v->pid[e->rank] = e->pid;
    if (e->kind != MANTA_EVENT_STEP) return true;
    v->seen++;
    for (int i = 0; i < 2; i++) {
        int rank = (v->seen + i) % v->w->workers;
        if (v->w->kill_at[i] == v->seen && v->pid[rank]) v->killed += !kill((pid_t)v->pid[rank], SIGKILL);
    }
    if (v->w->resize_at == v->seen) return manta_session_resize(s, 1) == MANTA_OK;
    return true;
}

static inline outcome by_workers(const training *t, const way *w)
{
    room r = room_open(t);
    manta_session *s =
        session_of(t, r.m,
                   (manta_session_options){
                       .workers = w->workers, .min_workers = w->workers ? 1 : 0, .threads = w->threads});
    viewer v = {.w = w};
    manta_fit_options o = {.event = w->workers ? disturb_workers : NULL,
                           .user = &v,
                           .event_interval_ms = w->workers ? t->event_ms : 0};
    manta_metrics metrics;
    outcome out;

    must_fit(fit_part(s, r.d, t, 0, t->epochs, o, &metrics), t, w);
    out = outcome_of(s);
    out.metrics = metrics;
    out.lost = v.killed;
    manta_session_close(s);
    room_close(&r);
    return out;
}

/* ---- in parts ---- */

/* Goes on with the latest checkpoint in the folder, or begins, when there is none. */
static inline manta_session *take_up(const training *t, const manta_model *m, const char *folder,
                                     int64_t *epoch)
{
    manta_session *s = session_of(t, m, (manta_session_options){.threads = 1});
    manta_checkpoints *all;
    manta_checkpoint *c;
    manta_status st;

    *epoch = 0;
    must(manta_checkpoints_open(folder, NULL, &all));
    st = manta_checkpoints_latest(all, &c, NULL);
    if (!st) {
        *epoch = manta_checkpoint_get(c)->epoch;
        must(manta_session_from_checkpoint(s, c, false));
        manta_checkpoint_close(c);
    } else if (st != MANTA_ENOENT) {
        must(st);
    }
    must(manta_checkpoints_clear(all));
    manta_checkpoints_close(all);
    return s;
}

static inline outcome by_parts(const training *t, const way *w)
{
    room r = room_open(t);
    manta_session *s = session_of(t, r.m, (manta_session_options){.threads = 1});
    const char *folder = scratch_path("checkpoints");
    manta_checkpoints *all;
    manta_metrics metrics;
    int64_t epoch;
    outcome out;

    must_fit(fit_part(s, r.d, t, 0, w->cut_at, (manta_fit_options){0}, &metrics), t, w);
    must(manta_checkpoints_open(folder, NULL, &all));
    must(manta_checkpoints_save(all, s, &(manta_checkpoint_info){.epoch = w->cut_at}, true));
    must(manta_checkpoints_wait(all));
    manta_checkpoints_close(all);
    manta_session_close(s);
    s = take_up(t, r.m, folder, &epoch);
    assert_int_equal(epoch, w->cut_at);
    must_fit(fit_part(s, r.d, t, epoch, t->epochs, (manta_fit_options){0}, &metrics), t, w);
    out = outcome_of(s);
    out.metrics = metrics;
    manta_session_close(s);
    room_close(&r);
    return out;
}

#endif
