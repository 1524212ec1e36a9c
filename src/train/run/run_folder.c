/* run_folder.c - a run is a folder: making it, taking it up, giving it back.
 *
 * The lock is taken before anything is looked at, so what is found is nobody
 * else's meanwhile. Before anything of those who had the run earlier goes, what
 * they left of times is kept in times.json; then come the configuration, the place
 * for logs, the record (run_record.c) without what lies beyond the checkpoint, and
 * last result.json goes: the run goes on. What a checkpoint counts is on the disk
 * before the checkpoint is. */
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/checkpoint/checkpoints.h"
#include "train/checkpoint/run_config.h"
#include "train/run/run_writer.h"

enum { PATH_MOST = 1000, NAME_MOST = 200, NUMBERS = 100000 };

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
        if ((st = check_path(r->path)) || (st = storage_claim_own(r->path)) != MANTA_EEXIST) return st;
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
    return storage_make_own(r->path);
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

/* ---- what ranks say ---- */

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
