/* file_writer.c - durable replacement.
 *
 *   open   folder/.name.PID-N.manta-tmp   (O_EXCL: nobody else's)
 *   write  ...
 *   commit fsync(file)      the bytes are on the disk
 *          close            where some file systems report the last failure
 *          rename           one step: readers see old or new
 *          fsync(folder)    the name is on the disk
 *
 * A writer that is killed leaves its temporary file; the next one that writes to
 * the same name removes it. The file is locked while it is written, and its name has
 * the writer's process: nobody's work is taken for what somebody left.
 *
 * Invariant: `temp` is set exactly while a file of that name may exist that is
 * ours to remove.
 *
 * A failed fsync is not tried again: the kernel may have dropped the pages, and
 * a second call would report success for bytes that are lost. */
#include "os/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "os/proc.h"
#include "os/sys.h"

enum {
    BUFFER = 64 * 1024, /* small writes are gathered to this */
    PIECE = 256 * 1024, /* summed and written while it is in the processor's cache */
    AHEAD = 8 << 20, /* bytes that gather before the disk is told to begin with them */
    NAME_KEPT = 200, /* of the name, inside the temporary one: NAME_MAX is 255 */
    NAME_TRIES = 100,
    NAMES_LOOKED_AT = 10000, /* of a folder, for what others have left */
};

#define TEMP_END ".manta-tmp"

struct file_writer {
    char *path;
    char *folder;
    char *temp; /* the invariant above */
    int fd; /* -1 when closed */
    size_t n; /* bytes in buffer */
    uint64_t put, started; /* bytes given to the system, and those it was told to begin with */
    file_sum sum; /* of all that was written */
    const file_sink *sink; /* NULL: a file */
    void *self; /* the sink's */
    unsigned char buffer[BUFFER];
};

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* ---- what a killed writer has left ---- */

/* The process that wrote `.NAME.PID-N.manta-tmp`, where `stem` is NAME; 0: it is no such name. */
static pid_t writer_of(const char *name, const char *stem)
{
    size_t n = strnlen(stem, NAME_KEPT);
    char *end;
    long pid;

    if (name[0] != '.' || strncmp(name + 1, stem, n) != 0 || name[n + 1] != '.') return 0;
    pid = strtol(name + n + 2, &end, 10);
    if (pid <= 0 || pid > INT_MAX || *end != '-') return 0;
    (void)strtoul(end + 1, &end, 10);
    return strcmp(end, TEMP_END) == 0 ? (pid_t)pid : 0;
}

static void remove_left(const char *folder, const char *name)
{
    char *path = mem_printf("%s/%s", folder, name);
    int fd = os->open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);

    if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB)) os->unlink(path); /* of another host's it is held */
    if (fd >= 0) os->close(fd);
    mem_free(path);
}

/* What cannot be looked at or removed stays; it is in nobody's way. */
static void remove_stale_parts(const file_writer *w)
{
    int fd = os->open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *d = fd >= 0 ? os->fdopendir(fd) : NULL;
    struct dirent *e;

    if (!d && fd >= 0) os->close(fd);
    for (int i = 0; d && i < NAMES_LOOKED_AT && (e = os->readdir(d)); i++) {
        pid_t pid = writer_of(e->d_name, name_of(w->path));
        if (pid && proc_ended(pid)) remove_left(w->folder, e->d_name);
    }
    if (d) os->closedir(d);
}

/* Opens a temporary file of our own; sets temp and fd. */
static manta_status open_temp(file_writer *w)
{
    static atomic_uint counter;

    for (int i = 0; i < NAME_TRIES; i++) {
        unsigned n = atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
        char *temp =
            mem_printf("%s/.%.*s.%ld-%u" TEMP_END, w->folder, NAME_KEPT, name_of(w->path), (long)getpid(), n);
        do w->fd = os->open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        while (w->fd < 0 && errno == EINTR);
        if (w->fd >= 0) {
            w->temp = temp;
            (void)flock(w->fd, LOCK_EX | LOCK_NB); /* where there are no locks, the process has to do */
            return MANTA_OK;
        }
        int err = errno;
        mem_free(temp);
        if (err != EEXIST) return file_fail(err, "creating a temporary file for", w->path);
    }
    return manta_fail(MANTA_EEXIST, "creating a temporary file for %s: %d names were taken", w->path,
                      NAME_TRIES);
}

/* Gives the new file the permission bits of the old, when there is one. */
static manta_status keep_mode(file_writer *w)
{
    struct stat old;

    if (os->stat(w->path, &old)) {
        if (errno == ENOENT) return MANTA_OK;
        return file_fail(errno, "looking at", w->path);
    }
    if (!S_ISREG(old.st_mode))
        return manta_fail(MANTA_EEXIST, "writing %s: it is there, and is no file", w->path);
    if (os->fchmod(w->fd, old.st_mode & 0777)) return file_fail(errno, "keeping the permissions of", w->path);
    return MANTA_OK;
}

/* A writer that has no place to write to yet. */
static manta_status make_writer(const char *path, file_writer **out)
{
    file_writer *w;

    if (!*name_of(path))
        return manta_fail(MANTA_EINVAL, "writing \"%s\": the path ends in no name, expected that of a file",
                          path);
    if (!(w = mem_try_raw(sizeof *w)))
        return manta_fail(MANTA_ENOMEM, "writing %s: %zu bytes of memory could not be had", path, sizeof *w);
    w->path = mem_strdup(path);
    w->folder = file_above(path);
    w->temp = NULL;
    w->fd = -1;
    w->n = 0;
    w->put = w->started = 0;
    w->sum = (file_sum){0};
    w->sink = NULL;
    w->self = NULL;
    *out = w;
    return MANTA_OK;
}

manta_status file_writer_to(const char *path, const file_sink *sink, void *self, file_writer **out)
{
    file_writer *w = NULL;
    manta_status st = make_writer(path, &w);

    if (st) {
        sink->free(self);
        return st;
    }
    w->sink = sink;
    w->self = self;
    *out = w;
    return MANTA_OK;
}

manta_status file_writer_open(const char *path, file_writer **out)
{
    file_writer *w = NULL;
    manta_status st;

    TRY(make_writer(path, &w));
    remove_stale_parts(w);
    if ((st = open_temp(w))) goto out;
    if ((st = keep_mode(w))) goto out;
    *out = w;
    w = NULL;
out:
    file_writer_free(w);
    return st;
}

manta_status file_writer_reserve(file_writer *w, uint64_t size)
{
    int rc;

    if (size == 0) return MANTA_OK;
    if (w->sink) return w->sink->reserve ? w->sink->reserve(w->self, size) : MANTA_OK;
    if (size > INT64_MAX) return file_fail(EFBIG, "reserving space for", w->path);
    do rc = os->fallocate(w->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size);
    while (rc && errno == EINTR);
    if (rc && errno != EOPNOTSUPP && errno != ENOSYS) return file_fail(errno, "reserving space for", w->path);
    return MANTA_OK;
}

/* Has the disk begin with what has gathered since the last time, while more is
 * made. Only a hint: what it says is ignored, the fsync() of the commit is
 * what counts and what reports a failure. */
static void start_disk(file_writer *w)
{
    if (w->put - w->started < AHEAD) return;
    os->sync_file_range(w->fd, (off_t)w->started, (off_t)(w->put - w->started), SYNC_FILE_RANGE_WRITE);
    w->started = w->put;
}

static manta_status write_all(file_writer *w, const void *data, size_t n)
{
    const char *p = data;

    if (w->sink) return n > 0 ? w->sink->write(w->self, data, n) : MANTA_OK;
    while (n > 0) {
        ssize_t put = os->write(w->fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return file_fail(errno, "writing", w->path);
        p += put;
        n -= (size_t)put;
        w->put += (uint64_t)put;
        start_disk(w);
    }
    return MANTA_OK;
}

static manta_status flush_buffer(file_writer *w)
{
    size_t n = w->n;

    w->n = 0;
    return write_all(w, w->buffer, n);
}

manta_status file_writer_write(file_writer *w, const void *data, size_t n)
{
    w->sum.size += n;
    if (n >= BUFFER) { /* nothing gained by a copy */
        const char *p = data;
        TRY(flush_buffer(w));
        for (size_t k; n > 0; p += k, n -= k) {
            k = n < PIECE ? n : PIECE;
            w->sum.crc = crc32c(w->sum.crc, p, k);
            TRY(write_all(w, p, k));
        }
        return MANTA_OK;
    }
    w->sum.crc = crc32c(w->sum.crc, data, n);
    if (n > BUFFER - w->n) TRY(flush_buffer(w));
    if (n > 0) memcpy(w->buffer + w->n, data, n);
    w->n += n;
    return MANTA_OK;
}

static int fsync_retry(int fd)
{
    int rc;

    do rc = os->fsync(fd);
    while (rc && errno == EINTR);
    return rc;
}

/* Makes the folder's names durable. File systems that cannot (EINVAL) leave
 * nothing better to do. */
static int sync_names(const char *folder)
{
    int fd, err = 0;

    do fd = os->open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return errno;
    if (fsync_retry(fd) && errno != EINVAL) err = errno;
    os->close(fd);
    return err;
}

manta_status file_sync_folder(const char *path)
{
    int err = sync_names(path);

    return err ? file_fail(err, "bringing to disk", path) : MANTA_OK;
}

static manta_status sync_folder(const file_writer *w)
{
    int err = sync_names(w->folder);

    if (!err) return MANTA_OK;
    return manta_fail(MANTA_EUNKNOWN,
                      "writing %s: it is in place, but may not survive a loss of power: folder %s: %s",
                      w->path, w->folder, strerror(err));
}

manta_status file_writer_commit(file_writer *w)
{
    TRY(flush_buffer(w));
    if (w->sink) return w->sink->commit(w->self);
    if (fsync_retry(w->fd)) return file_fail(errno, "bringing to disk", w->path);
    int rc = os->close(w->fd), err = errno;
    w->fd = -1; /* whatever close() said, the descriptor is gone */
    if (rc && err != EINTR) return file_fail(err, "closing", w->path);
    if (os->rename(w->temp, w->path)) return file_fail(errno, "putting in place", w->path);
    mem_free(w->temp);
    w->temp = NULL;
    return sync_folder(w);
}

file_sum file_writer_sum(const file_writer *w)
{
    return w->sum;
}

void file_writer_free(file_writer *w)
{
    if (!w) return;
    if (w->sink) w->sink->free(w->self);
    if (w->fd >= 0) os->close(w->fd);
    if (w->temp) os->unlink(w->temp);
    mem_free(w->temp);
    mem_free(w->path);
    mem_free(w->folder);
    mem_try_free(w);
}

manta_status file_replace(const char *path, const void *data, size_t size)
{
    manta_status st;
    file_writer *w = NULL;

    if ((st = file_writer_open(path, &w))) goto out;
    assert(w);
    if ((st = file_writer_write(w, data, size))) goto out;
    st = file_writer_commit(w);
out:
    file_writer_free(w);
    return st;
}
