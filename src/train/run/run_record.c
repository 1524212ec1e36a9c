/* run_record.c - the record of a run: metrics.jsonl, events, and in the end
 * result.json.
 *
 * metrics.jsonl only grows, a line per write, so a reader sees whole lines and
 * at most one that is cut off by a crash. A run that is taken up from a
 * checkpoint first drops the lines beyond it, so every step is there once.
 *
 * result.json is what says that a run has ended: it is written last, replaced
 * whole, and removed when the run goes on. What it says of times is in times.json by
 * then; as long as it is there it is right, whatever times.json says. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/run/run_lines.h"
#include "train/run/run_writer.h"

enum { RANKS_MOST = 1 << 16 };

/* ---- what is kept of it ---- */

/* What a line stands for. */
typedef struct line_place {
    int64_t epoch, step; /* done when it was written; of a trainer's, the reports of its rank */
    int64_t at; /* of a trainer's: the step of that epoch with which its rank goes on; -1: not said */
    int rank;
} line_place;

static bool read_place(const char *line, size_t n, line_place *out)
{
    json_error_t why;
    json_t *o = json_loadb(line, n, 0, &why), *at = json_object_get(o, "at");
    bool fine = json_is_integer(json_object_get(o, "epoch"));

    out->epoch = json_integer_value(json_object_get(o, "epoch"));
    out->step = json_integer_value(json_object_get(o, "step"));
    out->rank = (int)json_integer_value(json_object_get(o, "rank"));
    out->at = json_is_integer(at) ? json_integer_value(at) : -1;
    json_decref(o);
    return fine;
}

/* Whether a run that goes on from c keeps a line: of a trainer's the reports are
 * counted, and one that came after the checkpoint stays when it says of itself that
 * it was made before that place, since it is not made again; else a line stands for
 * an epoch that was done with all its callbacks. */
static bool is_kept(const manta_checkpoint *c, const line_place *l)
{
    const manta_checkpoint_info *i = c ? manta_checkpoint_get(c) : NULL;

    if (!c) return false;
    if (!manta_checkpoint_note(c, RUN_REPORTS)) return l->epoch <= i->epoch;
    if (l->step <= run_reports(c, l->rank)) return true;
    return l->rank && l->at >= 0 && (l->epoch < i->epoch || (l->epoch == i->epoch && l->at <= i->step));
}

int64_t run_reports(const manta_checkpoint *c, int rank)
{
    const char *told = c ? manta_checkpoint_note(c, RUN_REPORTS) : NULL;

    for (; rank > 0 && told; rank--) {
        told = strchr(told, ',');
        if (told) told++;
    }
    return told && rank == 0 ? strtoll(told, NULL, 10) : 0;
}

int64_t run_kept(const manta_run *r, int rank)
{
    return (size_t)rank < r->kept.n ? r->kept.at[rank] : 0;
}

static void count_kept(manta_run *r, const line_place *l)
{
    if (l->rank < 0 || l->rank >= RANKS_MOST) return; /* nobody of ours wrote it */
    while (r->kept.n <= (size_t)l->rank) vec_push(&r->kept, 0);
    if (l->step > r->kept.at[l->rank]) r->kept.at[l->rank] = l->step;
}

typedef struct trimming {
    manta_run *r;
    const manta_checkpoint *c;
    int64_t damaged; /* lines */
} trimming;

static bool line_stays(void *ctx, const char *line, size_t n)
{
    trimming *t = ctx;
    line_place l;

    if (!read_place(line, n, &l)) {
        t->damaged++;
        return false;
    }
    if (!is_kept(t->c, &l)) return false;
    count_kept(t->r, &l);
    return true;
}

/* Drops the lines beyond c, one that is cut off, and, said, what is no line of ours.
 * Ranks report at a pace of their own, so lines that stay may come after some that go. */
static manta_status trim_metrics(manta_run *r, const char *path, const manta_checkpoint *c)
{
    trimming t = {.r = r, .c = c};
    manta_status st;

    vec_clear(&r->kept);
    st = run_lines_keep(path, line_stays, &t);
    if (t.damaged)
        log_warn("lines of a run's record are damaged, and left out", LOG_STR("path", path),
                 LOG_INT("lines", t.damaged));
    return st == MANTA_ENOENT ? MANTA_OK : st;
}

/* The first step whose events will be written (again). */
static int64_t first_event(const manta_checkpoint *c)
{
    const manta_checkpoint_info *i;

    if (!c) return 0;
    i = manta_checkpoint_get(c);
    if (manta_checkpoint_note(c, RUN_REPORTS)) return run_reports(c, 0) + 1;
    return i->step ? i->iterations : i->iterations + 1; /* the epoch's own are at its last step */
}

manta_status run_rewind(manta_run *r, const manta_checkpoint *c)
{
    char *path = run_inner(r->path, "metrics.jsonl");
    manta_status st = trim_metrics(r, path, c);

    r->epoch = r->step = 0;
    storage_log_close(r->metrics);
    r->metrics = NULL;
    manta_events_close(r->events);
    r->events = NULL;
    if (!st) st = storage_log_open(path, &r->metrics);
    mem_free(path);
    if (st) return st;
    return manta_events_open(run_local(r),
                             &(manta_events_options){.first_step = first_event(c), .restart = c != NULL},
                             &r->events);
}

/* ---- reports ---- */

/* Seconds since 1970. A wall clock that is set in the middle of a run moves none
 * of its times, and so no duration. */
static double run_time(const manta_run *r)
{
    return r->began_s + (double)(clock_now_ns() - r->began_ns) / 1e9;
}

static json_t *metrics_json(const manta_metrics *m)
{
    json_t *o = json_object();

    for (int i = 0; m && i < m->n; i++) {
        json_object_set_new(o, m->name[i], isfinite(m->value[i]) ? json_real(m->value[i]) : json_null());
    }
    return o;
}

/* Text of any bytes: what is no UTF-8 becomes question marks. */
static json_t *text_json(const char *text)
{
    json_t *s = json_string(text);
    char *copy;

    if (s) return s;
    copy = mem_strdup(text);
    for (char *p = copy; *p; p++) *p = (char)((unsigned char)*p < 0x80 ? *p : '?');
    s = json_string(copy);
    mem_free(copy);
    return s;
}

manta_status run_report(manta_run *r, run_place p, int rank, const manta_metrics *m)
{
    json_t *o = json_pack("{s:I, s:I, s:i, s:f, s:o}", "epoch", (json_int_t)p.epoch, "step",
                          (json_int_t)p.step, "rank", rank, "time", run_time(r), "metrics", metrics_json(m));
    int at = o && p.at >= 0 ? json_object_set_new(o, "at", json_integer((json_int_t)p.at)) : 0;
    char *text = o && !at ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL, *line;
    const char *tags[MANTA_MAX_METRICS];
    manta_status st;

    json_decref(o);
    if (!text) return manta_fail(MANTA_EINVAL, "rank %d reports a metric whose name is not UTF-8", rank);
    if (!rank) { /* the result has it, also where the line cannot be written */
        r->epoch = p.epoch;
        r->step = p.step;
    }
    line = mem_printf("%s\n", text);
    free(text);
    st = r->metrics
             ? storage_log_add(r->metrics, line, strlen(line))
             : manta_fail(MANTA_EIO, "writing %s: its metrics.jsonl could not be opened again", r->path);
    mem_free(line);
    if (st) return st;
    if (!m || !m->n || rank) return MANTA_OK;
    for (int i = 0; i < m->n; i++) tags[i] = m->name[i];
    if (!r->events) return manta_fail(MANTA_EIO, "writing %s: its events could not be opened again", r->path);
    return manta_events_scalars(r->events, p.step, m->n, tags, m->value);
}

manta_status manta_run_report(manta_run *r, int64_t epoch, int64_t step, int rank, const manta_metrics *m)
{
    REFUSE_NULL(r);
    REFUSE_NEGATIVE(epoch);
    REFUSE_NEGATIVE(step);
    REFUSE_NEGATIVE(rank);
    return run_report(r, (run_place){epoch, step, -1}, rank, m);
}

/* Whether there is no folder any more where the run's was. */
static bool is_lost(const manta_run *r)
{
    file_info info;

    return storage_look(r->path, &info) || !info.is_folder;
}

void run_set_outcome(manta_run *r, const run_outcome *o)
{
    r->has_outcome = true;
    r->outcome = *o;
}

static void add_outcome(const run_outcome *o, json_t *to)
{
    json_object_set_new(to, "code", json_string(manta_status_name(o->code)));
    json_object_set_new(to, "error_rank", json_integer(o->rank));
    json_object_set_new(to, "failures", json_integer(o->failures));
    json_object_set_new(to, "workers", json_integer(o->workers));
}

manta_status manta_run_finish(manta_run *r, const char *status, const manta_metrics *last, const char *error)
{
    REFUSE_NULL(r);
    REFUSE_NULL(status);

    char *path = run_inner(r->path, "result.json"), *text;
    const char *checkpoint = NULL;
    int n = manta_checkpoints_count(r->checkpoints);
    double now = run_time(r);
    json_t *o = json_pack("{s:o, s:o, s:f, s:f, s:f, s:f, s:i, s:I, s:I}", "status", text_json(status),
                          "metrics", metrics_json(last), "began", r->began_s, "ended", now, "first_began",
                          r->first_s, "spent", r->before_s + (now - r->began_s), "resumed", r->resumed,
                          "epoch", (json_int_t)r->epoch, "step", (json_int_t)r->step);
    manta_status st;

    if (n) (void)manta_checkpoints_at(r->checkpoints, n - 1, &checkpoint, NULL);
    json_object_set_new(o, "checkpoint", checkpoint ? text_json(checkpoint) : json_null());
    if (error) json_object_set_new(o, "error", text_json(error));
    if (r->has_outcome) add_outcome(&r->outcome, o);
    text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(o);
    if (!text) abort(); /* small control memory */
    rank_logs_settle(r->logs);
    st = r->events ? manta_events_flush(r->events) : MANTA_OK; /* else whoever rewound it has failed */
    if (!st && r->stage) st = stage_hand_over(r->stage);
    if (!st) st = storage_put(path, text, strlen(text));
    free(text);
    mem_free(path);
    if (st && is_lost(r)) {
        st = manta_fail(
            st, "the folder of run '%s' (%s) went away while it ran: metrics and checkpoints are lost",
            r->name, r->path);
    }
    if (!st) st = manta_checkpoints_failure(r->checkpoints);
    if (!st && r->failure.code) st = manta_error_raise(&r->failure);
    r->failure.code = MANTA_OK; /* told once */
    return st;
}
