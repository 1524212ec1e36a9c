/* run_read.c - what a run's folder says to whoever opens it, while it runs or afterwards: what
 * `manta runs` lists, its history, its options; and the request to end.
 *
 *     config.json      is what makes a folder a run; what it was begun with, with a checksum
 *     run.lock         held: it runs, by the process that holds it
 *     metrics.jsonl    a line for each report: how far it is, and its history
 *     times.json       when it was first begun, and how long it was worked on before the last take-up
 *     result.json      how it ended; not there: it runs, or was killed
 *     checkpoints/     counted
 *
 * Nothing is written here, and nothing in the folder is believed: it may be a stranger's, it may
 * be cut by a kill or a full disk, and it changes while it is read. What is missing or odd is left
 * out, except for config.json. The lock is asked before result.json is looked for: who lets go of
 * it has written one, or was killed, so a run that has just ended is not taken for one that was cut
 * off.
 *
 * manta_run_stop() asks the process that holds the lock to end (SIGTERM) and waits until it has let
 * go. run_folder.c, run_record.c and run_writer.h have the other side, which writes. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/sys.h"
#include "train/checkpoint/run_config.h"
#include "train/run/run_folder.h"
#include "train/run/run_lines.h"
#include "train/storage/storage.h"

enum { CONFIG_MOST = 1 << 20 };

static void read_metrics(const json_t *o, manta_metrics *m)
{
    const char *key;
    json_t *v;

    memset(m, 0, sizeof *m);
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        if (m->n == MANTA_MAX_METRICS || strlen(key) >= sizeof m->name[0]) continue;
        memcpy(m->name[m->n], key, strlen(key) + 1);
        m->value[m->n++] = json_is_number(v) ? json_number_value(v) : (double)NAN;
    }
}

/* A time of the file's, since 1970; 0 for one that no calendar has. */
static double read_time(const json_t *o, const char *name)
{
    double at = json_number_value(json_object_get(o, name));

    return at > 0 && at < RUN_TIME_MOST ? at : 0;
}

/* Calls back for each whole line of metrics.jsonl that is one of ours. */
typedef void line_fn(void *ctx, const json_t *line);

typedef struct reading {
    line_fn *fn;
    void *ctx;
} reading;

static manta_status read_line(void *ctx, const char *line, size_t n)
{
    const reading *r = ctx;
    json_error_t why;
    json_t *o = json_loadb(line, n, 0, &why);

    if (json_is_object(o)) r->fn(r->ctx, o);
    json_decref(o);
    return MANTA_OK;
}

static manta_status each_line(const char *folder, line_fn *fn, void *ctx)
{
    char *path = run_inner(folder, "metrics.jsonl");
    bool cut;
    manta_status st = run_lines_each(path, read_line, &(reading){fn, ctx}, &cut);

    mem_free(path);
    return st == MANTA_ENOENT ? MANTA_OK : st;
}

static bool is_chief(const json_t *line)
{
    return json_integer_value(json_object_get(line, "rank")) == 0;
}

static void take_last(void *ctx, const json_t *line)
{
    manta_run_info *i = ctx;

    if (!is_chief(line)) return;
    i->epoch = json_integer_value(json_object_get(line, "epoch"));
    i->step = json_integer_value(json_object_get(line, "step"));
    i->ended_s = read_time(line, "time");
    if (i->began_s <= 0) i->began_s = i->ended_s;
    read_metrics(json_object_get(line, "metrics"), &i->metrics);
}

/* A small file of the run's that holds an object; NULL: it does not. Owned. */
static json_t *read_object(const char *folder, const char *name)
{
    char *path = run_inner(folder, name);
    void *text = NULL;
    size_t n = 0;
    json_error_t why;
    json_t *o = storage_read(path, CONFIG_MOST, &text, &n) ? NULL : json_loadb(text, n, 0, &why);

    mem_try_free(text);
    mem_free(path);
    return o;
}

/* The number called `name`, where it is one and not less than `least`. */
static void take_int(const json_t *from, const char *name, int least, int *out)
{
    const json_t *o = json_object_get(from, name);
    json_int_t value = json_integer_value(o);

    if (json_is_integer(o) && value >= least && value <= INT_MAX) *out = (int)value;
}

/* A time, where it is one. */
static void take_time(const json_t *from, const char *name, double *out)
{
    const json_t *o = json_object_get(from, name);
    double value = json_number_value(o);

    if (json_is_number(o) && value >= 0 && value < RUN_TIME_MOST) *out = value;
}

/* What was so when the run was last taken up; nothing of one that never was. */
static void take_times(const char *folder, manta_run_info *i)
{
    json_t *o = read_object(folder, "times.json");

    i->taken_s = i->began_s;
    take_time(o, "began", &i->began_s);
    take_time(o, "taken", &i->taken_s);
    take_time(o, "spent", &i->spent_s);
    take_int(o, "resumed", 0, &i->resumed);
    json_decref(o);
}

/* How far it had come, when that is further than its lines tell: the disk was full. */
static void take_place(const json_t *result, manta_run_info *i)
{
    int64_t epoch = json_integer_value(json_object_get(result, "epoch"));
    int64_t step = json_integer_value(json_object_get(result, "step"));

    if (epoch < i->epoch || (epoch == i->epoch && step <= i->step)) return;
    i->epoch = epoch;
    i->step = step;
}

/* result.json, when there is one. False: there is none. */
static bool take_result(const char *folder, manta_run_info *i)
{
    json_t *o = read_object(folder, "result.json");
    const char *status = json_string_value(json_object_get(o, "status"));
    const char *error = json_string_value(json_object_get(o, "error"));
    bool there = status != NULL;

    if (there) {
        snprintf(i->status, sizeof i->status, "%s", status);
        i->taken_s = read_time(o, "began");
        i->ended_s = read_time(o, "ended");
        i->began_s = i->taken_s;
        i->spent_s = i->ended_s > i->taken_s ? i->ended_s - i->taken_s : 0;
        i->resumed = 0;
        take_time(o, "first_began", &i->began_s);
        take_time(o, "spent", &i->spent_s);
        take_int(o, "resumed", 0, &i->resumed);
        take_place(o, i);
        if (json_object_size(json_object_get(o, "metrics")))
            read_metrics(json_object_get(o, "metrics"), &i->metrics);
    }
    if (error) snprintf(i->error, sizeof i->error, "%s", error);
    json_decref(o);
    return there;
}

void run_read_outcome(const char *folder, run_outcome *out)
{
    json_t *o = read_object(folder, "result.json");
    const char *code = json_string_value(json_object_get(o, "code"));

    for (int i = 0; code && i <= MANTA_EINTERRUPTED; i++) {
        if (!strcmp(code, manta_status_name((manta_status)i))) out->code = (manta_status)i;
    }
    take_int(o, "error_rank", 0, &out->rank);
    take_int(o, "failures", 0, &out->failures);
    take_int(o, "workers", 1, &out->workers);
    json_decref(o);
}

static int count_checkpoints(const char *folder)
{
    char *path = run_inner(folder, "checkpoints");
    manta_checkpoints *m;
    int n = 0;

    if (!manta_checkpoints_open(path, &(manta_checkpoints_options){.read_only = true}, &m)) {
        n = manta_checkpoints_count(m);
        manta_checkpoints_close(m);
    }
    mem_free(path);
    return n;
}

/* ours: the lock is, and so nobody works on it. Who holds the lock is asked before the
 * result is looked for: one who lets go of it has written one, or was killed. */
static manta_status read_run(const char *folder, bool ours, manta_run_info *out)
{
    char *config = run_inner(folder, "config.json"), *lock_path = run_inner(folder, "run.lock");
    const char *slash = strrchr(folder, '/');
    file_info info;
    manta_status st = storage_look(config, &info);

    mem_free(config);
    memset(out, 0, sizeof *out);
    if (st) {
        mem_free(lock_path);
        return st == MANTA_ENOENT ? manta_fail(st, "%s is no run: it has no config.json", folder) : st;
    }
    snprintf(out->name, sizeof out->name, "%s", slash ? slash + 1 : folder);
    snprintf(out->path, sizeof out->path, "%s", folder);
    out->began_s = (double)info.changed_ns / 1e9;
    snprintf(out->status, sizeof out->status, "ended");
    take_times(folder, out);
    st = each_line(folder, take_last, out);
    out->pid = ours ? 0 : storage_holder(lock_path);
    mem_free(lock_path);
    if (out->pid) {
        snprintf(out->status, sizeof out->status, "running");
        out->ended_s = 0;
    } else if (!take_result(folder, out) && out->ended_s > out->taken_s) {
        out->spent_s += out->ended_s - out->taken_s;
    }
    out->n_checkpoints = count_checkpoints(folder);
    return st;
}

manta_status run_read_past(const char *folder, manta_run_info *out)
{
    return read_run(folder, true, out);
}

/* The folder's name may lie in *out: lists of runs are brought up to date. */
manta_status manta_run_read(const char *folder, manta_run_info *out)
{
    REFUSE_NULL(folder);
    REFUSE_NULL(out);

    char *path = mem_strdup(folder);
    manta_status st = read_run(path, false, out);

    mem_free(path);
    return st;
}

manta_status manta_run_read_config(const char *folder, char **out)
{
    REFUSE_NULL(folder);
    REFUSE_NULL(out);

    char *path = run_inner(folder, "config.json");
    void *text = NULL;
    size_t n = 0;
    file_info info;
    manta_status st = storage_look(path, &info);

    if (!st && !info.is_file) /* a pipe would never end */
        st = manta_fail(MANTA_EINVAL, "%s is no file that could be read", path);
    if (!st) st = storage_read(path, CONFIG_MOST, &text, &n);
    if (!st && strlen(text) < n) st = manta_fail(MANTA_EINVAL, "%s: it holds bytes that are no text", path);
    if (!st) st = run_config_unseal(path, text, out);
    mem_try_free(text);
    mem_free(path);
    return st;
}

/* ---- history ---- */

typedef VEC(manta_run_series) series_list;

static void take_points(void *ctx, const json_t *line)
{
    series_list *all = ctx;
    manta_run_point p = {.epoch = json_integer_value(json_object_get(line, "epoch")),
                         .step = json_integer_value(json_object_get(line, "step")),
                         .time_s = read_time(line, "time")};
    const char *key;
    json_t *v;

    if (!is_chief(line)) return;
    json_object_foreach(json_object_get(line, "metrics"), key, v)
    {
        size_t i = 0;
        manta_run_series *s;
        if (strlen(key) >= sizeof s->name) continue;
        while (i < all->n && strcmp(all->at[i].name, key) != 0) i++;
        if (i == all->n) {
            manta_run_series fresh = {0};
            memcpy(fresh.name, key, strlen(key) + 1);
            vec_push(all, fresh);
        }
        s = &all->at[i];
        p.value = json_is_number(v) ? json_number_value(v) : (double)NAN;
        if ((s->n & (s->n - 1)) == 0) { /* grows by doubling */
            s->points = mem_resize(s->points, (size_t)(s->n ? s->n * 2 : 1) * sizeof *s->points);
        }
        s->points[s->n++] = p;
    }
}

manta_status manta_run_history(const char *folder, manta_run_series **out, int *n)
{
    REFUSE_NULL(folder);
    REFUSE_NULL(out);
    REFUSE_NULL(n);

    series_list all = {0};
    manta_status st = each_line(folder, take_points, &all);

    if (st) {
        manta_run_history_free(all.at, (int)all.n);
        return st;
    }
    *out = all.at;
    *n = (int)all.n;
    return MANTA_OK;
}

void manta_run_history_free(manta_run_series *s, int n)
{
    if (!s) return;
    REFUSE_NEGATIVE_AND_RETURN(n);
    for (int i = 0; i < n; i++) mem_free(s[i].points);
    mem_free(s);
}

/* ---- stopping ---- */

enum { STOP_LOOK_MS = 10, STOP_ASK_TURNS = 100 };

/* Whether the process that was told to end still has the run. A lock that a server keeps is asked for once a second, and
 * one that cannot be read is its own as long as it lives. */
static bool is_still_held(const char *path, pid_t pid, int turn)
{
    bool local = storage_is_local(path), lives = os->kill(pid, 0) == 0;
    int holder;

    if (!local && turn % STOP_ASK_TURNS) return lives;
    holder = storage_holder(path);
    return holder == pid || (!local && holder < 0 && lives);
}

manta_status manta_run_stop(const char *folder, int64_t timeout_ms)
{
    REFUSE_NULL(folder);

    char *path = run_inner(folder, "run.lock");
    int64_t deadline = clock_deadline(timeout_ms);
    pid_t pid = storage_holder(path);
    manta_status st = MANTA_OK;

    if (!pid) {
        st = manta_fail(MANTA_ENOENT, "%s is not running", folder);
    } else if (pid < 0) {
        st = manta_fail(MANTA_EUNSUPPORTED,
                        "%s is running on another host, or its lock cannot be read: stop it there", folder);
    } else if (os->kill(pid, SIGTERM)) {
        st = manta_fail(MANTA_EPERM, "process %ld of %s cannot be told: %s", (long)pid, folder,
                        strerror(errno));
    }
    for (int turn = 0; !st && is_still_held(path, pid, turn); turn++) {
        if (clock_now_ns() > deadline) {
            st = manta_fail(MANTA_ETIMEDOUT, "process %ld of %s was told to end %.1f s ago and has not yet",
                            (long)pid, folder, (double)timeout_ms / 1e3);
            break;
        }
        (void)os->poll(NULL, 0, STOP_LOOK_MS); /* the lock has no way of waking us */
    }
    mem_free(path);
    return st;
}
