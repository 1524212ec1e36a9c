/* trainer_worker_report.c - what a worker says to the driver: metrics, and its parts of checkpoints.
 *
 *     manta_report()               REPORT_METRICS
 *     manta_report_checkpoint()    REPORT_PART, round 0, 1, ...      each rank's part of one checkpoint
 *     manta_report_session(),      REPORT_CHIEF, round -1, -2, ...   rank 0's alone is the checkpoint;
 *       _arrays(), the callback                                      other ranks report the metrics
 *
 * A report is written into the rank's ring and is the driver's when `written` has been raised
 * (trainer_shared.h). One with files is marked FILES_COMING first: the thread of trainer_save.c
 * brings them to disk and sets the mark, and until then the driver takes neither this report nor
 * those behind it. So a loop goes on at once, and yet a report that is taken has its files.
 *
 * Who writes what: the ring's reports and `written`, this rank; `taken`, the driver; the mark of
 * files, this rank and then that thread. A full ring is waited for, and nothing is dropped.
 *
 * What may be changed: when the driver is woken. What may not: that `written` is raised last; and
 * that REPORT_CHIEF says how many reports the others had made by then, which is what the checkpoint
 * counts when the run goes on from it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "train/fit/fit_context.h"
#include "train/run/run_folder.h"
#include "train/run/run_parts.h"
#include "train/trainer/trainer_worker.h"

static trainer_ring *ring_of(const manta_worker *w)
{
    return &w->mem.rings[w->t.rank];
}

/* ---- reports ---- */

void worker_wake_driver(manta_worker *w)
{
    trainer_control *c = w->mem.c;

    atomic_fetch_add(&c->wake, 1);
    (void)eventword_wake(&c->wake, &c->driver_asleep, 1, true);
}

static manta_status check_metrics(const manta_metrics *m)
{
    if (!m || (m->n >= 0 && m->n <= MANTA_MAX_METRICS)) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "a report of %d metrics, expected up to %d", m->n, MANTA_MAX_METRICS);
}

/* Full: the driver is behind, or waits for files of this rank's. Nothing is dropped,
 * and no rank is waited for. */
static manta_status await_room(manta_worker *w, const trainer_ring *r, uint64_t at)
{
    while (at - atomic_load_explicit(&r->taken, memory_order_acquire) >= TRAINER_RING) {
        uint32_t seen = atomic_load(&w->mem.c->meeting);
        TRY(worker_is_over(w));
        worker_wake_driver(w);
        trainer_rank_sleep(w->mem.c, seen, clock_now_ns() + 1000000);
    }
    return MANTA_OK;
}

manta_status worker_send(manta_worker *w, const manta_metrics *m, const trainer_report *head, bool files,
                         trainer_files **mark)
{
    trainer_ring *r = ring_of(w);
    uint64_t at = atomic_load_explicit(&r->written, memory_order_relaxed);
    trainer_report *to = &r->at[at % TRAINER_RING];

    TRY(await_room(w, r, at));
    to->kind = head->kind;
    to->round = head->round;
    to->epoch = head->epoch;
    to->step = head->step;
    to->iterations = head->iterations;
    to->has_place = head->has_place;
    to->n = m ? m->n : 0;
    for (int i = 0; i < to->n; i++) {
        to->value[i] = m->value[i];
        memcpy(to->name[i], m->name[i], sizeof to->name[i]);
        to->name[i][sizeof to->name[i] - 1] = '\0';
    }
    if (head->kind == REPORT_CHIEF) {
        for (int i = 0; i < w->t.world; i++)
            to->others[i] = atomic_load_explicit(&w->mem.rings[i].written, memory_order_relaxed);
    }
    atomic_store_explicit(&r->files[at % TRAINER_RING].state, files ? FILES_COMING : FILES_NONE,
                          memory_order_relaxed);
    if (files) *mark = &r->files[at % TRAINER_RING];
    atomic_store_explicit(&r->written, at + 1, memory_order_release);
    /* Metrics can wait for the driver's next look, a few milliseconds away. */
    if (head->kind != REPORT_METRICS) worker_wake_driver(w);
    return worker_is_over(w);
}

/* Without files. */
static manta_status send_metrics(manta_worker *w, const manta_metrics *m, const trainer_report *head)
{
    TRY(check_metrics(m));
    TRY(worker_saves_failure(w));
    return worker_send(w, m, head, false, NULL);
}

manta_status manta_report(manta_worker *w, const manta_metrics *m)
{
    REFUSE_NULL(w);
    REFUSE_NULL(m);
    return send_metrics(w, m, &(trainer_report){.kind = REPORT_METRICS});
}

manta_status manta_worker_temp_folder(manta_worker *w, char **out)
{
    REFUSE_NULL(w);
    REFUSE_NULL(out);

    char name[80];
    manta_status st;

    snprintf(name, sizeof name, "temp-%d.%lld", w->t.rank, (long long)atomic_fetch_add(&w->temps, 1));
    st = run_part_make(w->parts_folder, name);
    if (st) return st;
    if (asprintf(out, "%s/%s", w->parts_folder, name) < 0) abort(); /* small control memory */
    return MANTA_OK;
}

/* ---- notes ---- */

static manta_status check_note(const char *name, const char *text)
{
    json_t *a = json_string(name), *b = json_string(text);
    bool fine = a && b;

    json_decref(a);
    json_decref(b);
    if (!fine) return manta_fail(MANTA_EINVAL, "a checkpoint's note is a name and a text, both UTF-8");
    if (!strcmp(name, RUN_REPORTS) || !strcmp(name, RUN_WORKERS))
        return manta_fail(MANTA_EINVAL, "a note called '%s': that name is Manta's own", name);
    return MANTA_OK;
}

manta_status manta_worker_note(manta_worker *w, const char *name, const char *text)
{
    REFUSE_NULL(w);
    REFUSE_NULL(name);
    REFUSE_NULL(text);

    TRY(check_note(name, text));
    vec_push(&w->notes, ((manta_note){mem_strdup(name), mem_strdup(text)}));
    return MANTA_OK;
}

void worker_drop_notes(manta_worker *w)
{
    for (size_t i = 0; i < w->notes.n; i++) {
        mem_free((char *)(uintptr_t)w->notes.at[i].name);
        mem_free((char *)(uintptr_t)w->notes.at[i].text);
    }
    vec_release(&w->notes);
}

static void add_note(buf *b, const manta_note *n)
{
    buf_add(b, n->name, strlen(n->name) + 1);
    buf_add(b, n->text, strlen(n->text) + 1);
}

/* All notes of the next checkpoint. */
static manta_status take_notes(manta_worker *w, const manta_checkpoint_info *info, buf *out)
{
    for (int i = 0; info && i < info->n_notes; i++) TRY(check_note(info->notes[i].name, info->notes[i].text));
    for (size_t i = 0; i < w->notes.n; i++) add_note(out, &w->notes.at[i]);
    for (int i = 0; info && i < info->n_notes; i++) add_note(out, &info->notes[i]);
    worker_drop_notes(w);
    if (out->n > TRAINER_NOTES)
        return manta_fail(MANTA_EINVAL, "a checkpoint's notes of %zu bytes, expected up to %d", out->n,
                          TRAINER_NOTES);
    return MANTA_OK;
}

/* ---- checkpoints ---- */

static trainer_report report_of(report_kind kind, int64_t round, const manta_checkpoint_info *info)
{
    trainer_report r = {.kind = kind, .round = round, .has_place = info != NULL};

    if (info) {
        r.epoch = info->epoch;
        r.step = info->step;
        r.iterations = info->iterations;
    }
    return r;
}

static manta_status begin_save(manta_worker *w, const manta_metrics *m, const manta_checkpoint_info *info,
                               int64_t round, worker_save **out)
{
    manta_status st;

    TRY(check_metrics(m));
    TRY(worker_save_begin(w, round, out));
    if ((st = take_notes(w, info, &(*out)->notes))) worker_save_drop(*out);
    return st;
}

/* Reports what was filled, or drops it. */
static manta_status end_save(manta_worker *w, worker_save *v, manta_status filled, const manta_metrics *m,
                             const trainer_report *r)
{
    if (!filled) return worker_save_send(w, v, m, r);
    worker_save_drop(v);
    return filled;
}

manta_status manta_report_checkpoint(manta_worker *w, const manta_metrics *m, const char *folder,
                                     const manta_checkpoint_info *info)
{
    REFUSE_NULL(w);

    trainer_report r = report_of(REPORT_PART, w->parts, info);
    worker_save *v;

    if (folder || w->notes.n || (info && info->n_notes)) {
        TRY(begin_save(w, m, info, r.round, &v));
        TRY(end_save(w, v, folder ? worker_save_folder(w, v, folder) : MANTA_OK, m, &r));
    } else {
        TRY(send_metrics(w, m, &r));
    }
    w->parts++;
    return MANTA_OK;
}

/* Ranks but the first report the metrics of a checkpoint. */
static manta_status report_other(manta_worker *w, const manta_metrics *m, const manta_checkpoint_info *info)
{
    trainer_report r = report_of(REPORT_METRICS, 0, info);

    worker_drop_notes(w);
    return send_metrics(w, m, &r);
}

/* The next round of rank 0's alone. */
static trainer_report next_round(manta_worker *w, const manta_checkpoint_info *info)
{
    return report_of(REPORT_CHIEF, -1 - w->rounds++, info);
}

/* Takes the blobs. */
static manta_status report_state(manta_worker *w, const manta_metrics *m, const manta_checkpoint_info *info,
                                 const manta_session *s, blobs *callbacks)
{
    trainer_report r;
    worker_save *v;

    if (w->t.rank) return report_other(w, m, info);
    r = next_round(w, info);
    TRY(begin_save(w, m, info, r.round, &v));
    TRY(end_save(w, v, worker_save_state(v, s, callbacks), m, &r));
    if (s->engine.ops == &engine_ranks) return MANTA_OK;
    worker_saves_await(w); /* it may be closed before it is written */
    return worker_saves_failure(w);
}

manta_status manta_report_session(manta_worker *w, const manta_metrics *m, const manta_session *s,
                                  int64_t epoch, int64_t step)
{
    REFUSE_NULL(w);
    REFUSE_NULL(s);
    REFUSE_NEGATIVE(epoch);
    REFUSE_NEGATIVE(step);

    manta_checkpoint_info info = {.epoch = epoch, .step = step, .iterations = manta_session_iterations(s)};
    blobs none = {0};

    return report_state(w, m, &info, s, &none);
}

manta_status manta_report_arrays(manta_worker *w, const manta_metrics *m, int n, const manta_column *arrays,
                                 int64_t epoch, int64_t step)
{
    REFUSE_NULL(w);
    REFUSE_ARRAY(n, arrays);
    REFUSE_NEGATIVE(epoch);
    REFUSE_NEGATIVE(step);

    manta_checkpoint_info info = {.epoch = epoch, .step = step};
    trainer_report r;
    worker_save *v;

    if (w->t.rank) return report_other(w, m, &info);
    r = next_round(w, &info);
    TRY(begin_save(w, m, &info, r.round, &v));
    return end_save(w, v, worker_save_arrays(v, n, arrays), m, &r);
}

/* ---- a callback that reports ---- */

typedef struct reporter {
    manta_worker *w;
    int64_t every;
} reporter;

/* A fit that goes on where the checkpoint stands has callbacks that remember. */
static manta_status reporter_restore(void *self, manta_fit_context *f)
{
    const manta_worker *w = ((const reporter *)self)->w;
    const manta_checkpoint_info *from = w->restored ? manta_checkpoint_get(w->checkpoint) : NULL;

    if (!from || f->o->initial_epoch != from->epoch || manta_session_iterations(f->s) != from->iterations)
        return MANTA_OK;
    return manta_fit_context_restore(f, w->checkpoint);
}

/* After all callbacks have had the hook. */
static manta_status reporter_save(void *ctx, manta_fit_context *f, const manta_checkpoint_info *info,
                                  blobs *callbacks)
{
    return report_state(((reporter *)ctx)->w, f->logs, info, f->s, callbacks);
}

static manta_status reporter_epoch(void *self, manta_fit_context *f)
{
    reporter *r = self;

    if (manta_worker_should_stop(r->w)) manta_fit_context_stop(f, "the run is to end");
    if (r->every && ((f->epoch + 1) % r->every == 0 || f->stop)) {
        fit_context_checkpoint_by(f, reporter_save, r);
        return MANTA_OK;
    }
    return send_metrics(r->w, f->logs,
                        &(trainer_report){.kind = REPORT_METRICS, .has_place = true, .epoch = f->epoch + 1});
}

static const manta_callback_ops reporter_ops = {.name = "report_checkpoint",
                                                .before_fit = reporter_restore,
                                                .epoch_end = reporter_epoch,
                                                .free = mem_free};

manta_callback *manta_report_callback(manta_worker *w, int64_t checkpoint_every)
{
    REFUSE_NULL_OR(w, NULL);

    reporter *r = mem_new(sizeof *r);

    r->w = w;
    r->every = checkpoint_every;
    return manta_callback_new(&reporter_ops, r);
}
