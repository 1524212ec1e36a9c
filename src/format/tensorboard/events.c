/* events.c - event files that are written: their names, opening, records.
 *
 *   Event { 1: wall time  2: step  3: version | 4: graph | 5: Summary | 7: SessionLog }
 *
 * events_values.c says what a Summary holds, and writes what users give.
 *
 * Invariants: the file holds `size` bytes of whole records. A write that fails
 * half way is cut off again; when even that fails the writer is broken, because
 * readers stop at the torn record and would never see what follows it. */
#include "format/tensorboard/events_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "format/codec/proto.h"
#include "format/codec/record.h"
#include "os/file.h"
#include "os/sys.h"

enum { NAME_TRIES = 100 };

enum { SESSION_START = 1 }; /* of the format */

/* ---- records --------------------------------------------------------------------------- */

static manta_status write_record(manta_events *e)
{
    size_t done = 0;

    if (e->broken)
        return manta_fail(MANTA_EIO, "writing %s: an earlier record could not be written whole", e->path);
    while (done < e->record.n) {
        ssize_t k = os->write(e->fd, e->record.at + done, e->record.n - done);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            int err = k < 0 ? errno : ENOSPC, rc = 0;
            if (done) {
                do rc = os->ftruncate(e->fd, e->size);
                while (rc && errno == EINTR);
            }
            e->broken = rc != 0;
            return file_fail(err, "writing", e->path);
        }
        done += (size_t)k;
    }
    e->size += (off_t)done;
    return MANTA_OK;
}

static void begin_at(manta_events *e, int64_t step, double wall_s)
{
    buf_cut(&e->record, 0);
    e->mark = record_begin(&e->record);
    proto_add_double(&e->record, 1, wall_s);
    if (step) proto_add_int(&e->record, 2, step);
}

void events_begin(manta_events *e, int64_t step)
{
    begin_at(e, step, (double)clock_wall_ns() * 1e-9);
}

manta_status events_end(manta_events *e)
{
    record_end(&e->record, e->mark);
    return write_record(e);
}

void events_begin_summary(manta_events *e, int64_t step)
{
    events_begin(e, step);
    e->summary = proto_begin(&e->record, 5);
}

manta_status events_end_summary(manta_events *e)
{
    proto_end(&e->record, e->summary);
    return events_end(e);
}

/* ---- opening --------------------------------------------------------------------------- */

bool events_is_name(const char *name)
{
    static const char empty[] = ".profile-empty";
    size_t n = strlen(name), k = sizeof empty - 1;

    return strstr(name, "tfevents") && !(n >= k && !strcmp(name + n - k, empty));
}

/* A second after the newest file's: readers go through files in the order of
 * their names, and a clock may have been set back or two starts lie within one
 * second. */
static manta_status choose_seconds(const char *folder, int64_t *out)
{
    file_names names = {0};
    int64_t now = clock_wall_ns() / 1000000000;

    TRY(file_list(folder, &names));
    for (size_t i = 0; i < names.n; i++) {
        static const char prefix[] = "events.out.tfevents.";
        long long t;
        if (!events_is_name(names.at[i]) || strncmp(names.at[i], prefix, strlen(prefix))) continue;
        t = strtoll(names.at[i] + strlen(prefix), NULL, 10);
        if (t >= now && t < 9999999999) now = t + 1;
    }
    file_names_release(&names);
    *out = now;
    return MANTA_OK;
}

/* The i-th name that a file of this process may have. Owned by the caller. */
static manta_status choose_name(const char *folder, const char *suffix, int i, int64_t *seconds, char **out)
{
    char host[256] = "localhost";

    if (!*seconds) TRY(choose_seconds(folder, seconds));
    if (gethostname(host, sizeof host)) strcpy(host, "localhost");
    host[sizeof host - 1] = '\0';
    *out = mem_printf("%s/events.out.tfevents.%010lld.%s.%ld.%d%s", folder, (long long)*seconds, host,
                      (long)getpid(), i, suffix ? suffix : "");
    return MANTA_OK;
}

static manta_status open_file(manta_events *e, int flags)
{
    do e->fd = os->open(e->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    while (e->fd < 0 && errno == EINTR);
    return e->fd < 0 ? file_fail(errno, "creating", e->path) : MANTA_OK;
}

static manta_status create_file(manta_events *e, const char *folder, const char *suffix)
{
    int64_t seconds = 0;

    for (int i = 0; i < NAME_TRIES; i++) {
        manta_status st;
        mem_free(e->path);
        e->path = NULL;
        TRY(choose_name(folder, suffix, i, &seconds, &e->path));
        if ((st = open_file(e, O_EXCL)) != MANTA_EEXIST) return st;
    }
    return manta_fail(MANTA_EEXIST, "creating %s: %d names were taken", e->path, NAME_TRIES);
}

/* Gives a file that has another name so far one that readers look for. */
static manta_status rename_into_place(manta_events *e, const char *folder, const char *suffix)
{
    int64_t seconds = 0;

    for (int i = 0; i < NAME_TRIES; i++) {
        char *path;
        file_info there;
        manta_status st;
        TRY(choose_name(folder, suffix, i, &seconds, &path));
        if (!(st = file_stat(path, &there))) {
            mem_free(path);
            continue;
        }
        if (st == MANTA_ENOENT) st = file_rename(e->path, path);
        if (st) {
            mem_free(path);
            return st;
        }
        mem_free(e->path);
        e->path = path;
        return MANTA_OK;
    }
    return manta_fail(MANTA_EEXIST, "%s: %d names were taken", folder, NAME_TRIES);
}

/* What a file begins with: readers know the version by it, and from which step on
 * they have to forget what other files say. */
static manta_status write_head(manta_events *e, const manta_events_options *o)
{
    events_begin(e, 0);
    proto_add_text(&e->record, 3, EVENTS_VERSION);
    TRY(events_end(e));
    if (o->first_step <= 0 && !o->restart) return MANTA_OK;
    events_begin(e, o->first_step);
    size_t m = proto_begin(&e->record, 7);
    proto_add_int(&e->record, 1, SESSION_START);
    proto_end(&e->record, m);
    return events_end(e);
}

/* Hands the writer out, or removes the file: one without its first record would be
 * read by the old rules. */
static manta_status hand_out_or_remove(manta_events *e, manta_status st, manta_events **out)
{
    if (!st) {
        *out = e;
        return MANTA_OK;
    }
    if (e->fd >= 0) os->unlink(e->path);
    manta_events_close(e);
    return st;
}

manta_status manta_events_open(const char *folder, const manta_events_options *options, manta_events **out)
{
    REFUSE_NULL(folder);
    REFUSE_NULL(out);

    static const manta_events_options none;
    const manta_events_options *o = options ? options : &none;
    manta_events *e = mem_new(sizeof *e);
    manta_status st;

    e->fd = -1;
    st = file_mkdirs(folder);
    if (!st) st = create_file(e, folder, o->suffix);
    if (!st) st = write_head(e, o);
    return hand_out_or_remove(e, st, out);
}

static manta_status write_kept(manta_events *e, const events_kept *k)
{
    size_t v;

    begin_at(e, k->point.step, k->point.wall_s);
    e->summary = proto_begin(&e->record, 5);
    v = proto_begin(&e->record, 1);
    proto_add_text(&e->record, 1, k->tag);
    proto_add_float(&e->record, 2, (float)k->point.value);
    proto_end(&e->record, v);
    return events_end_summary(e);
}

manta_status events_open_keeping(const char *folder, const manta_events_options *o, size_t n,
                                 const events_kept *kept, manta_events **out)
{
    manta_events *e = mem_new(sizeof *e);
    manta_status st;

    e->fd = -1;
    e->path = mem_printf("%s/.goes-on.manta-tmp", folder); /* what a killed one left is begun anew */
    st = file_mkdirs(folder);
    if (!st) st = open_file(e, O_TRUNC);
    if (!st) st = write_head(e, o);
    for (size_t i = 0; i < n && !st; i++) st = write_kept(e, &kept[i]);
    if (!st) st = rename_into_place(e, folder, o->suffix);
    return hand_out_or_remove(e, st, out);
}

const char *manta_events_path(const manta_events *e)
{
    REFUSE_NULL_OR(e, NULL);
    return e->path;
}

manta_status manta_events_flush(manta_events *e)
{
    REFUSE_NULL(e);

    int rc;

    do rc = os->fsync(e->fd);
    while (rc && errno == EINTR);
    return rc ? file_fail(errno, "flushing", e->path) : MANTA_OK;
}

void manta_events_close(manta_events *e)
{
    if (!e) return;
    if (e->fd >= 0) os->close(e->fd);
    buf_release(&e->record);
    mem_free(e->path);
    mem_free(e);
}
