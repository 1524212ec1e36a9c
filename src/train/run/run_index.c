/* run_index.c - the list of runs, from an index that is made of the folders.
 *
 * The folders are the truth. A row says what a folder said when its files had
 * a certain stamp (the latest change among them); with another stamp, or while
 * the run is running, the folder is read again. An index that is missing,
 * damaged or of another version is made anew; where none can be written, as on
 * a disk that is read-only, one in memory serves. The index of a storage that is no
 * folder lies in the cache of this host, ~/.cache/manta/index. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/sys.h"
#include "train/run/run_folder.h"
#include "train/run/stage.h"
#include "train/storage/storage.h"

enum { VERSION = 1, NAME_MOST = 240 };

typedef VEC(manta_run_info) run_list;

/* The latest change among the files that say how a run is. */
static bool stamp_of(const char *folder, int64_t *stamp)
{
    static const char *const files[] = {"config.json", "metrics.jsonl", "result.json", "checkpoints"};
    bool is_run = false;

    *stamp = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = run_inner(folder, files[i]);
        file_info info;
        if (!storage_look(path, &info)) {
            if (info.changed_ns > *stamp) *stamp = info.changed_ns;
            is_run |= i == 0;
        }
        mem_free(path);
    }
    return is_run;
}

static bool is_running(const char *folder)
{
    char *path = run_inner(folder, "run.lock");
    bool held = storage_holder(path) != 0;

    mem_free(path);
    return held;
}

/* ---- the index ---- */

static bool prepare_database(sqlite3 *db)
{
    char sql[400];
    sqlite3_stmt *q = NULL;
    int version = 0;
    bool there;

    sqlite3_busy_timeout(db, 2000);
    if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &q, NULL) != SQLITE_OK) return false;
    there = sqlite3_step(q) == SQLITE_ROW;
    if (there) version = sqlite3_column_int(q, 0);
    sqlite3_finalize(q);
    if (!there || (version != 0 && version != VERSION)) return false;
    snprintf(
        sql, sizeof sql,
        "CREATE TABLE IF NOT EXISTS runs (name TEXT PRIMARY KEY, stamp INTEGER, size INTEGER, info BLOB);"
        "PRAGMA user_version = %d",
        VERSION);
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

/* Where the index of a storage lies: in the folder itself, or for one that is none
 * in this host's cache, under its path with a % for what cannot be in a name. NULL:
 * there is no such place. Owned by the caller. */
static char *index_path(const char *storage)
{
    char *folder, *path;
    buf name = {0};

    if (storage_is_local(storage)) return run_inner(storage, ".index.sqlite");
    if (!(folder = stage_cache("index"))) return NULL;
    for (const char *p = storage; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     *p == '-' || *p == '_' || (*p == '.' && p > storage);
        buf_printf(&name, plain ? "%c" : "%%%02x", (unsigned char)*p);
    }
    path = file_mkdirs(folder) || name.n > NAME_MOST ? NULL
                                                     : mem_printf("%s/%s.sqlite", folder, buf_text(&name));
    buf_release(&name);
    mem_free(folder);
    return path;
}

/* An index says what runs are called and how they fare, and their folders are their user's alone. */
static void make_index(const char *path)
{
    int fd = os->open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd >= 0) os->close(fd); /* else it is in memory */
}

static sqlite3 *open_index(const char *storage)
{
    char *path = index_path(storage);
    sqlite3 *db = NULL;
    bool busy;

    for (int try = 0; path && try < 2; try++) {
        make_index(path);
        if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) == SQLITE_OK &&
            prepare_database(db))
            break;
        busy = sqlite3_errcode(db) == SQLITE_BUSY;
        sqlite3_close(db);
        db = NULL;
        if (busy || os->unlink(path)) break; /* damaged, perhaps: once more without it */
    }
    mem_free(path);
    if (db || (sqlite3_open(":memory:", &db) == SQLITE_OK && prepare_database(db))) return db;
    sqlite3_close(db);
    return NULL;
}

static bool has_end(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static bool is_time(double s)
{
    return s >= 0 && s < RUN_TIME_MOST;
}

/* Whether a row is of the run called `name`: it may hold anything. */
static bool is_of(const manta_run_info *i, const char *name)
{
    const manta_metrics *m = &i->metrics;
    bool fine = has_end(i->name, sizeof i->name) && has_end(i->path, sizeof i->path) &&
                has_end(i->status, sizeof i->status) && has_end(i->error, sizeof i->error);

    fine = fine && m->n >= 0 && m->n <= MANTA_MAX_METRICS && is_time(i->began_s) && is_time(i->ended_s) &&
           is_time(i->taken_s) && is_time(i->spent_s) && i->resumed >= 0;
    for (int k = 0; fine && k < m->n; k++) fine = has_end(m->name[k], sizeof m->name[k]);
    return fine && !strcmp(i->name, name);
}

/* The row of a name, when it has this stamp. */
static bool find_row(sqlite3 *db, const char *name, int64_t stamp, manta_run_info *out)
{
    sqlite3_stmt *q = NULL;
    bool found = false;

    if (!db || sqlite3_prepare_v2(db, "SELECT info FROM runs WHERE name = ? AND stamp = ? AND size = ?", -1,
                                  &q, NULL) != SQLITE_OK)
        return false;
    sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, stamp);
    sqlite3_bind_int64(q, 3, (int64_t)sizeof *out);
    if (sqlite3_step(q) == SQLITE_ROW && sqlite3_column_bytes(q, 0) == (int)sizeof *out) {
        memcpy(out, sqlite3_column_blob(q, 0), sizeof *out);
        found = is_of(out, name);
    }
    sqlite3_finalize(q);
    return found;
}

static void put_row(sqlite3 *db, int64_t stamp, const manta_run_info *info)
{
    sqlite3_stmt *q = NULL;

    if (!db ||
        sqlite3_prepare_v2(db, "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", -1, &q, NULL) != SQLITE_OK)
        return;
    sqlite3_bind_text(q, 1, info->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, stamp);
    sqlite3_bind_int64(q, 3, (int64_t)sizeof *info);
    sqlite3_bind_blob(q, 4, info, (int)sizeof *info, SQLITE_STATIC);
    if (sqlite3_step(q) != SQLITE_DONE)
        log_debug("the index of runs is not kept", LOG_STR("run", info->name));
    sqlite3_finalize(q);
}

/* Rows of folders that are gone go too. */
static void drop_rows(sqlite3 *db, const run_list *there)
{
    sqlite3_stmt *q = NULL;
    VEC(char *) gone = {0};

    if (!db || sqlite3_prepare_v2(db, "SELECT name FROM runs", -1, &q, NULL) != SQLITE_OK) return;
    while (sqlite3_step(q) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(q, 0);
        size_t i = 0;
        while (name && i < there->n && strcmp(there->at[i].name, name) != 0) i++;
        if (name && i == there->n) vec_push(&gone, mem_strdup(name));
    }
    sqlite3_finalize(q);
    for (size_t i = 0; i < gone.n; i++) {
        if (sqlite3_prepare_v2(db, "DELETE FROM runs WHERE name = ?", -1, &q, NULL) == SQLITE_OK) {
            sqlite3_bind_text(q, 1, gone.at[i], -1, SQLITE_STATIC);
            (void)sqlite3_step(q);
        }
        sqlite3_finalize(q);
        mem_free(gone.at[i]);
    }
    vec_release(&gone);
}

/* ---- the list ---- */

static int newest_first(const void *a, const void *b)
{
    const manta_run_info *x = a, *y = b;

    if (x->began_s != y->began_s) return x->began_s > y->began_s ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void add_run(sqlite3 *db, const char *storage, const char *name, run_list *out)
{
    char *folder = run_inner(storage, name);
    manta_run_info info;
    int64_t stamp;

    if (*name != '.' && stamp_of(folder, &stamp)) {
        bool running = is_running(folder);
        if (!running && find_row(db, name, stamp, &info) && strcmp(info.status, "running") != 0) {
            snprintf(info.path, sizeof info.path, "%s", folder); /* the storage may have moved */
            vec_push(out, info);
        } else if (!manta_run_read(folder, &info)) {
            if (!running) put_row(db, stamp, &info);
            vec_push(out, info);
        }
    }
    mem_free(folder);
}

manta_status manta_runs_list(const char *storage, manta_run_info **out, int *n)
{
    REFUSE_NULL(out);
    REFUSE_NULL(n);

    file_names names = {0};
    run_list all = {0};
    sqlite3 *db;
    manta_status st;

    if (!storage) storage = manta_run_storage();
    st = storage_list(storage, &names);
    *out = NULL;
    *n = 0;
    if (st == MANTA_ENOENT) return MANTA_OK; /* no runs yet */
    if (st) return st;
    db = open_index(storage);
    if (db) (void)sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    for (size_t i = 0; i < names.n; i++) add_run(db, storage, names.at[i], &all);
    drop_rows(db, &all);
    if (db) (void)sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    file_names_release(&names);
    if (all.n) qsort(all.at, all.n, sizeof *all.at, newest_first);
    *out = all.at;
    *n = (int)all.n;
    return MANTA_OK;
}

void manta_runs_free(manta_run_info *runs)
{
    mem_free(runs);
}
