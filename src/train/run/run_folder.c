/* run_folder.c - a run is a folder: making it, and keeping its record.
 *
 * metrics.jsonl only grows, a line per write, so a reader sees whole lines and
 * at most one that is cut off by a crash. A run that is taken up from a
 * checkpoint first drops the lines beyond it, so every step is there once. What a
 * checkpoint counts is on the disk before the checkpoint is.
 *
 * result.json is what says that a run has ended: it is written last, replaced
 * whole, and removed when the run goes on. What it says of times is in times.json by
 * then; as long as it is there it is right, whatever times.json says. */
#include "train/run/run_folder.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/events.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "train/checkpoint/run_config.h"
#include "train/fit/fit_context.h"
#include "train/log/rank_logs.h"
#include "train/run/run_lines.h"
#include "train/run/stage.h"
#include "train/storage/storage.h"

enum { PATH_MOST = 1000, NAME_MOST = 200, NUMBERS = 100000, RANKS_MOST = 1 << 16 };

struct manta_run {
    char *name, *path;
    stage *stage; /* what is written through descriptors lies there; NULL: in the folder itself */
    rank_logs *logs; /* what its processes say */
    storage_held *lock;
    manta_checkpoints *checkpoints;
    manta_checkpoint *from; /* to go on from; NULL: the beginning */
    char *damage;
    storage_log *metrics;
    manta_events *events;
    double began_s; /* by the wall clock, once; the rest by one that never jumps */
    int64_t began_ns;
    double first_s, before_s; /* when it began for the first time; how long it was worked on before */
    int resumed;
    int64_t epoch, step; /* last reported by rank 0, since it was taken up or rewound; 0: not yet */
    VEC(int64_t) kept; /* by rank: the last report that was kept when it was taken up */
    bool named; /* its folder's name is on the disk, as far as we can do something about it */
    _Atomic bool late; /* what could not be done about the record at a checkpoint was said */
    manta_error failure; /* the first line or checkpoint that could not be written; code 0: none */
    bool has_outcome;
    run_outcome outcome; /* of a trainer's */
};

const char *manta_run_storage(void)
{
    static char path[1024];
    const char *told = getenv("MANTA_STORAGE"), *home = getenv("HOME");

    if (told && *told) {
        snprintf(path, sizeof path, "%s", told);
    } else {
        snprintf(path, sizeof path, "%s/manta-runs", home && *home ? home : ".");
    }
    return path;
}

char *run_inner(const char *folder, const char *name)
{
    return mem_printf("%s/%s", folder, name);
}

/* ---- opening ---- */

static manta_status check_name(const char *name)
{
    bool fine = *name && *name != '.' && strlen(name) <= NAME_MOST;

    for (const char *p = name; *p; p++) fine = fine && *p != '/' && (unsigned char)*p >= ' ';
    if (fine) return MANTA_OK;
    return manta_fail(MANTA_EINVAL,
                      "'%.60s' cannot be the name of a run: expected up to %d characters, none of them '/', "
                      "and no dot first",
                      name, NAME_MOST);
}

static bool is_run(const char *folder)
{
    char *inner = run_inner(folder, "config.json");
    file_info info;
    bool there = !storage_look(inner, &info);

    mem_free(inner);
    return there;
}

/* Workers and lists of runs have room for so much. */
static manta_status check_path(const char *path)
{
    if (strlen(path) <= PATH_MOST) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%.60s...: the path of a run has %zu bytes, expected up to %d", path,
                      strlen(path), PATH_MOST);
}

/* Makes STORAGE/STEM-N with the first N that is free. */
static manta_status make_numbered(manta_run *r, const char *storage, const char *stem)
{
    TRY(check_path(storage));
    TRY(storage_make(storage));
    for (int n = 1; n < NUMBERS; n++) {
        manta_status st;
        r->name = mem_printf("%s-%d", stem, n);
        r->path = run_inner(storage, r->name);
        if ((st = check_path(r->path)) || (st = storage_claim(r->path)) != MANTA_EEXIST) return st;
        mem_free(r->name);
        mem_free(r->path);
        r->name = r->path = NULL;
    }
    return manta_fail(MANTA_EEXIST,
                      "%s has runs %s-1 to %s-%d already, and no number is free: give the run a name",
                      storage, stem, stem, NUMBERS - 1);
}

static manta_status find_folder(manta_run *r, const manta_run_options *o)
{
    const char *storage = o->storage ? o->storage : manta_run_storage(), *slash;

    if (!o->folder && !o->name) return make_numbered(r, storage, o->stem ? o->stem : "run");
    if (o->folder) {
        r->path = mem_strdup(o->folder);
        for (size_t n = strlen(r->path); n > 1 && r->path[n - 1] == '/';) r->path[--n] = '\0';
        slash = strrchr(r->path, '/');
        r->name = mem_strdup(slash ? slash + 1 : r->path);
    } else {
        TRY(check_name(o->name));
        r->name = mem_strdup(o->name);
        r->path = run_inner(storage, o->name);
    }
    TRY(check_path(r->path));
    return storage_make(r->path);
}

/* Takes the lock, then looks: what is found is nobody else's meanwhile. */
static manta_status take_folder(manta_run *r, const manta_run_options *o)
{
    char *path = run_inner(r->path, "run.lock");
    int holder = storage_holder(path);
    manta_status st = storage_lock(path, &r->lock);

    mem_free(path);
    if (st == MANTA_EBUSY) {
        if (holder < 0)
            return manta_fail(MANTA_EBUSY, "run '%s' (%s) is running now, on another host", r->name, r->path);
        return manta_fail(MANTA_EBUSY, "run '%s' (%s) is running now, as process %d", r->name, r->path,
                          holder ? holder : (int)getpid());
    }
    if (st) return st;
    if (!o->resume && is_run(r->path)) {
        return manta_fail(MANTA_EEXIST, "run '%s' (%s) is there already: resume it, or choose another name",
                          r->name, r->path);
    }
    return MANTA_OK;
}

static manta_status keep_config(manta_run *r, const char *config)
{
    char *path = run_inner(r->path, "config.json"), *text = run_config_seal(config);
    manta_status st = storage_put(path, text, strlen(text));

    mem_free(path);
    mem_free(text);
    return st;
}

/* What those before us have left says when the run began and how long it was worked on;
 * it is kept before anything of theirs goes. */
static manta_status take_up_times(manta_run *r)
{
    manta_run_info past;
    char *path, *text;
    json_t *o;
    manta_status st;

    r->first_s = r->began_s;
    if (!is_run(r->path)) return MANTA_OK;
    TRY(run_read_past(r->path, &past));
    if (past.began_s > 0) r->first_s = past.began_s;
    r->before_s = past.spent_s;
    r->resumed = past.resumed + 1;
    o = json_pack("{s:f, s:f, s:f, s:i}", "began", r->first_s, "taken", r->began_s, "spent", r->before_s,
                  "resumed", r->resumed);
    text = o ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(o);
    if (!text) abort(); /* small control memory */
    path = run_inner(r->path, "times.json");
    st = storage_put(path, text, strlen(text));
    mem_free(path);
    free(text);
    return st;
}

/* ---- the record ---- */

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

static manta_status find_start(manta_run *r, const manta_run_options *o)
{
    char *path = run_inner(r->path, "checkpoints");
    manta_status st = manta_checkpoints_open(path, &o->checkpoints, &r->checkpoints);

    mem_free(path);
    if (st || !o->resume) return st;
    st = manta_checkpoints_latest(r->checkpoints, &r->from, &r->damage);
    return st == MANTA_ENOENT ? MANTA_OK : st;
}

const char *run_local(const manta_run *r)
{
    return r->stage ? stage_folder(r->stage) : r->path;
}

static void say_late(manta_run *r, const char *what)
{
    if (!atomic_exchange(&r->late, true))
        log_warn(what, LOG_STR("run", r->name), LOG_STR("why", manta_error_text()));
}

/* A record that cannot be brought to disk keeps no checkpoint from it. */
static void settle_record(void *run)
{
    manta_run *r = run;
    char *folder = r->named || !storage_is_local(r->path) ? NULL : file_above(r->path);

    if ((r->metrics && storage_log_sync(r->metrics)) || (folder && storage_sync(folder)))
        say_late(r, "after a loss of power lines of the run's record may be missing");
    r->named = true;
    mem_free(folder);
}

/* What cannot be handed over now will be with the next one, or at the end, where it counts. */
static void hand_over(void *run)
{
    manta_run *r = run;

    if (r->stage && stage_hand_over(r->stage)) say_late(r, "events and logs are not in the storage yet");
}

static manta_status open_stage(manta_run *r)
{
    if (!storage_is_local(r->path)) TRY(stage_open(r->path, &r->stage));
    checkpoints_on_commit(r->checkpoints, (checkpoints_hooks){r, settle_record, hand_over});
    return MANTA_OK;
}

static manta_status open_logs(manta_run *r, const manta_logging_config *c)
{
    char *folder = run_inner(run_local(r), "log");
    manta_status st = storage_make(folder);

    if (!st) st = rank_logs_new(folder, c, &r->logs);
    mem_free(folder);
    return st;
}

rank_logs *run_logs(manta_run *r)
{
    return r->logs;
}

static manta_status open_run(manta_run *r, const manta_run_options *o)
{
    char *result;
    manta_status st;

    TRY(rank_logs_check(&o->logging));
    TRY(find_folder(r, o));
    TRY(take_folder(r, o));
    TRY(find_start(r, o));
    TRY(take_up_times(r));
    TRY(keep_config(r, o->config));
    TRY(open_stage(r));
    TRY(open_logs(r, &o->logging));
    TRY(run_rewind(r, r->from));
    result = run_inner(r->path, "result.json");
    st = storage_remove(result);
    mem_free(result);
    return st == MANTA_ENOENT ? MANTA_OK : st;
}

manta_status manta_run_open(const manta_run_options *o, manta_run **out)
{
    REFUSE_NULL(o);
    REFUSE_NULL(out);

    manta_run *r = mem_new(sizeof *r);
    manta_status st;

    r->began_s = (double)clock_wall_ns() / 1e9;
    r->began_ns = clock_now_ns();
    if (!(st = open_run(r, o))) {
        *out = r;
        r = NULL;
    }
    manta_run_close(r);
    return st;
}

void manta_run_close(manta_run *r)
{
    if (!r) return;
    manta_checkpoints_close(r->checkpoints);
    manta_checkpoint_close(r->from);
    manta_events_close(r->events);
    storage_log_close(r->metrics);
    rank_logs_free(r->logs);
    stage_close(r->stage);
    storage_unlock(r->lock);
    free(r->damage);
    vec_release(&r->kept);
    mem_free(r->name);
    mem_free(r->path);
    mem_free(r);
}

const char *manta_run_name(const manta_run *r)
{
    REFUSE_NULL_OR(r, NULL);
    return r->name;
}

const char *manta_run_path(const manta_run *r)
{
    REFUSE_NULL_OR(r, NULL);
    return r->path;
}

manta_checkpoints *manta_run_checkpoints(manta_run *r)
{
    REFUSE_NULL_OR(r, NULL);
    return r->checkpoints;
}

const char *manta_run_damage(const manta_run *r)
{
    REFUSE_NULL_OR(r, NULL);
    return r->damage;
}

const manta_checkpoint *manta_run_start(const manta_run *r)
{
    REFUSE_NULL_OR(r, NULL);
    return r->from;
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
    return run_report(r, (run_place){epoch, step, -1}, rank, m);
}

static void add_line(manta_run *r, const char *role, int n, const char *text)
{
    if (rank_logs_add(r->logs, role, n, text))
        log_warn("a log line is lost", LOG_INT(role, n), LOG_STR("why", manta_error_text()));
}

void manta_run_log(manta_run *r, int rank, const char *line)
{
    REFUSE_NULL_AND_RETURN(r);
    REFUSE_NULL_AND_RETURN(line);
    add_line(r, "rank", rank, line);
}

void manta_run_log_server(manta_run *r, int n, const char *line)
{
    REFUSE_NULL_AND_RETURN(r);
    REFUSE_NULL_AND_RETURN(line);
    add_line(r, "server", n, line);
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

/* ---- the recorder ---- */

/* A disk that is full ends no training: it is said now, and once more at the end. */
static void note_failure(manta_run *r)
{
    manta_error e;

    manta_error_get(&e);
    log_warn("the run's record is not complete", LOG_STR("run", r->name), LOG_STR("why", e.text));
    if (!r->failure.code) r->failure = e;
}

typedef struct recorder {
    manta_run *r;
    manta_callback *saver; /* manta_checkpointing() */
} recorder;

static manta_status recorder_restore(void *self, manta_fit_context *f)
{
    recorder *c = self;

    fit_context_log_to(f, c->r->logs);
    return c->r->from ? manta_fit_context_restore(f, c->r->from) : MANTA_OK;
}

static manta_status recorder_begin(void *self, manta_fit_context *f)
{
    recorder *c = self;

    return c->saver->ops->train_begin(c->saver->self, f);
}

static manta_status recorder_batch(void *self, manta_fit_context *f)
{
    recorder *c = self;

    return c->saver->ops->train_batch_end(c->saver->self, f);
}

static manta_status recorder_epoch(void *self, manta_fit_context *f)
{
    recorder *c = self;

    if (manta_run_report(c->r, f->epoch + 1, manta_session_iterations(f->s), 0, f->logs)) note_failure(c->r);
    return c->saver->ops->epoch_end(c->saver->self, f);
}

static manta_status recorder_end(void *self, manta_fit_context *f)
{
    recorder *c = self;

    (void)f;
    checkpoints_await(c->r->checkpoints); /* a failure is manta_run_finish()'s to tell */
    return MANTA_OK;
}

static manta_status recorder_cut(void *self, manta_fit_context *f)
{
    recorder *c = self;

    return c->saver->ops->interrupted(c->saver->self, f);
}

static void recorder_free(void *self)
{
    recorder *c = self;

    manta_callback_free(c->saver);
    mem_free(c);
}

static bool recorder_needs_batches(void *self)
{
    recorder *c = self;

    return c->saver->ops->needs_batches(c->saver->self);
}

static const manta_callback_ops recorder_ops = {.name = "run_recorder",
                                                .before_fit = recorder_restore,
                                                .train_begin = recorder_begin,
                                                .train_batch_end = recorder_batch,
                                                .epoch_end = recorder_epoch,
                                                .train_end = recorder_end,
                                                .needs_batches = recorder_needs_batches,
                                                .interrupted = recorder_cut,
                                                .free = recorder_free};

manta_callback *manta_run_recorder(manta_run *r, const manta_checkpointing_options *o)
{
    REFUSE_NULL_OR(r, NULL);

    recorder *c = mem_new(sizeof *c);

    c->r = r;
    c->saver = manta_checkpointing(r->checkpoints, o);
    return manta_callback_new(&recorder_ops, c);
}
