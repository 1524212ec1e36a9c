/* rank_log.c - what a process of a run has said, in a file that does not grow
 * for ever.
 *
 * A new part is begun by a rename and a fresh file, in this order: at no moment
 * are the same lines under two names. When the fresh file cannot be made (a full
 * disk), lines go on into the part, and it is tried again.
 *
 * Threads: a log is used by one at a time. Of a process that prints, `own_guard`
 * guards the log that its streams are. */
#include "train/log/rank_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/file.h"
#include "os/sys.h"
#include "os/thread.h"

enum { LOOK_MS = 100 };

struct rank_log {
    char *folder, *role, *path;
    int n, fd;
    rank_log_bound bound;
    int64_t last; /* the greatest number of a part */
    bool moved; /* the file is a part already, and a new one could not be made */
    uint64_t size; /* as far as we know */
};

char *rank_log_path(const char *folder, const char *role, int n)
{
    return mem_printf("%s/%s-%d.txt", folder, role, n);
}

char *rank_log_part(const char *folder, const char *role, int n, int64_t number)
{
    return mem_printf("%s/%s-%d.%06" PRId64 ".txt", folder, role, n, number);
}

int64_t rank_log_number(const char *name, const char *role, int n)
{
    char stem[64];
    long long number;
    char *end;
    int length = snprintf(stem, sizeof stem, "%s-%d.", role, n);

    if (length >= (int)sizeof stem || strncmp(name, stem, (size_t)length) != 0) return 0;
    name += length;
    if (*name < '0' || *name > '9') return 0;
    errno = 0;
    number = strtoll(name, &end, 10);
    return errno || number == INT64_MAX || strcmp(end, ".txt") != 0 ? 0 : number; /* there is one behind it */
}

const char *rank_log_time(char *text, size_t size)
{
    int64_t now = clock_wall_ns();
    time_t seconds = (time_t)(now / 1000000000);
    struct tm tm;
    size_t n = strftime(text, size, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &tm));

    snprintf(text + n, size - n, ".%03dZ", (int)(now / 1000000 % 1000));
    return text;
}

static int open_file(const char *path)
{
    int fd;

    do fd = os->open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Whether the file ends in the middle of a line. */
static bool is_cut(int fd)
{
    struct stat info;
    char last = '\n';

    return !os->fstat(fd, &info) && info.st_size > 0 && os->pread(fd, &last, 1, info.st_size - 1) == 1 &&
           last != '\n';
}

static uint64_t size_of(int fd)
{
    struct stat info;

    return os->fstat(fd, &info) || info.st_size < 0 ? 0 : (uint64_t)info.st_size;
}

/* ---- opening ---- */

/* Whether the name is that of a part that a process died while cutting. */
static bool is_litter(const rank_log *l, const char *name)
{
    static const char end[] = ".manta-tmp";
    size_t n = strlen(name), k = sizeof end - 1;
    char stem[64];
    int length = snprintf(stem, sizeof stem, ".%s-%d.", l->role, l->n);

    return n > k && !strcmp(name + n - k, end) && !strncmp(name, stem, (size_t)length);
}

static manta_status find_last(rank_log *l)
{
    file_names names = {0};
    manta_status st = file_list(l->folder, &names);

    for (size_t i = 0; i < names.n; i++) {
        int64_t number = rank_log_number(names.at[i], l->role, l->n);
        if (number > l->last) l->last = number;
        if (is_litter(l, names.at[i])) {
            char *path = mem_printf("%s/%s", l->folder, names.at[i]);
            if (file_remove(path)) log_debug("an unfinished file stays", LOG_STR("path", path));
            mem_free(path);
        }
    }
    file_names_release(&names);
    return st;
}

manta_status rank_log_open(const char *folder, const char *role, int n, rank_log_bound bound, rank_log **out)
{
    rank_log *l = mem_new(sizeof *l);
    manta_status st;

    *l = (rank_log){.folder = mem_strdup(folder),
                    .role = mem_strdup(role),
                    .path = rank_log_path(folder, role, n),
                    .n = n,
                    .bound = bound};
    l->fd = open_file(l->path);
    st = l->fd < 0 ? file_fail(errno, "opening", l->path) : MANTA_OK;
    if (!st) st = find_last(l);
    if (!st) {
        if (is_cut(l->fd) && os->write(l->fd, "\n", 1) < 0) { /* then two lines are one */
        }
        l->size = size_of(l->fd);
        *out = l;
        l = NULL;
    }
    rank_log_close(l);
    return st;
}

void rank_log_close(rank_log *l)
{
    if (!l) return;
    if (l->fd >= 0) os->close(l->fd);
    mem_free(l->folder);
    mem_free(l->role);
    mem_free(l->path);
    mem_free(l);
}

/* ---- parts ---- */

static uint64_t share_size(const rank_log *l)
{
    return (uint64_t)(l->bound.max_size / l->bound.parts);
}

/* Leaves the end of a file that has become larger than its share: the bytes of
 * `keep`, from the beginning of a line on. */
static manta_status cut_head(const char *path, int fd, uint64_t size, uint64_t keep)
{
    char *data = mem_try_raw(keep), when[32];
    uint64_t had = 0, from = 0;
    file_writer *w = NULL;
    manta_status st;

    if (!data) return manta_fail(MANTA_ENOMEM, "no memory for the last %" PRIu64 " bytes of %s", keep, path);
    while (had < keep) {
        ssize_t got = os->pread(fd, data + had, keep - had, (off_t)(size - keep + had));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        had += (uint64_t)got;
    }
    while (from < had && data[from] != '\n') from++;
    from = from < had ? from + 1 : 0; /* one line without an end: its last bytes */
    if (!(st = file_writer_open(path, &w))) {
        char *text = mem_printf("%s %" PRIu64 " bytes were said here faster than they could be kept\n",
                                rank_log_time(when, sizeof when), size - (had - from));
        if (!(st = file_writer_write(w, text, strlen(text))) &&
            !(st = file_writer_write(w, data + from, had - from)))
            st = file_writer_commit(w);
        mem_free(text);
    }
    file_writer_free(w);
    mem_try_free(data);
    return st;
}

/* Removes what is older than the parts that stay. Whether anything was. */
static bool drop_old(const rank_log *l)
{
    file_names names = {0};
    bool any = false;

    if (file_list(l->folder, &names)) return false;
    for (size_t i = 0; i < names.n; i++) {
        int64_t number = rank_log_number(names.at[i], l->role, l->n);
        char *path;
        if (!number || number > l->last - (l->bound.parts - 1)) continue;
        path = rank_log_part(l->folder, l->role, l->n, number);
        any |= !file_remove(path);
        mem_free(path);
    }
    file_names_release(&names);
    return any;
}

static void say_dropped(const rank_log *l)
{
    int64_t oldest = l->last - (l->bound.parts - 2);
    char *part = rank_log_part(".", l->role, l->n, oldest > 0 ? oldest : 1), when[32];
    char *line = mem_printf("%s this log is kept to %.4g MiB: what was said before %s is gone\n",
                            rank_log_time(when, sizeof when), (double)l->bound.max_size / 1048576, part + 2);

    if (os->write(l->fd, line, strlen(line)) < 0) { /* the next line will fare no better */
    }
    mem_free(line);
    mem_free(part);
}

/* The file becomes a part. False: it stays as it is. */
static bool move_away(rank_log *l)
{
    char *part = rank_log_part(l->folder, l->role, l->n, l->last + 1);
    bool done = !file_rename(l->path, part);

    if (done) l->last++;
    l->moved = done;
    mem_free(part);
    return done;
}

/* Makes the last part small enough; fd: open for reading. */
static void trim_part(const rank_log *l, int fd)
{
    char *part = rank_log_part(l->folder, l->role, l->n, l->last);
    uint64_t size = size_of(fd), most = share_size(l), note = 100; /* a line that says so */

    if (size > most + note && cut_head(part, fd, size, most > note ? most - note : most))
        log_warn("a part of a log stays larger than its share", LOG_STR("why", manta_error_text()));
    mem_free(part);
}

/* Begins a new part; *before: the descriptor of the last one, now the caller's.
 * False: lines go on where they are. */
static bool turn_part(rank_log *l, int *before)
{
    int fresh;

    if (!l->moved && !move_away(l)) return false;
    if ((fresh = open_file(l->path)) < 0) return false;
    l->moved = false;
    *before = l->fd;
    l->fd = fresh;
    if (drop_old(l)) say_dropped(l);
    l->size = size_of(l->fd);
    return true;
}

/* ---- lines ---- */

static manta_status write_whole(int fd, const char *path, const void *data, size_t n)
{
    ssize_t put;

    do put = os->write(fd, data, n); /* one call: a reader sees the whole of it */
    while (put < 0 && errno == EINTR);
    if (put < 0) return file_fail(errno, "writing", path);
    return (size_t)put < n ? manta_fail(MANTA_ENOSPC, "writing %s: no space is left", path) : MANTA_OK;
}

manta_status rank_log_write(rank_log *l, const void *lines, size_t n)
{
    int before;

    if (l->bound.max_size > 0 && l->size > 0 && l->size + n > share_size(l) && turn_part(l, &before))
        os->close(before);
    l->size += n;
    return write_whole(l->fd, l->path, lines, n);
}

manta_status rank_log_add(const char *folder, const char *role, int n, const char *text)
{
    char *path = rank_log_path(folder, role, n), *line, when[32];
    int fd = open_file(path);
    manta_status st;
    size_t size;

    if (fd < 0) {
        st = file_fail(errno, "opening", path);
        mem_free(path);
        return st;
    }
    line = mem_printf("%s%s %s\n", is_cut(fd) ? "\n" : "", rank_log_time(when, sizeof when), text);
    size = strlen(line);
    for (size_t i = 1; i + 1 < size; i++) {
        if (line[i] == '\n' || line[i] == '\r') line[i] = ' ';
    }
    st = write_whole(fd, path, line, size);
    os->close(fd);
    mem_free(line);
    mem_free(path);
    return st;
}

/* ---- a process that prints ---- */

static pthread_mutex_t own_guard = PTHREAD_MUTEX_INITIALIZER;
static rank_log *own; /* what our streams are; own_guard */

static void take_streams(int fd, const char *role, int n)
{
    static char
        lines[BUFSIZ]; /* a buffer of its own: with the old one the stream would not look for ends of lines */

    __fpurge(stdout); /* the parent's, which it will write itself */
    setvbuf(stdout, lines, _IOLBF, sizeof lines);
    if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        fprintf(stderr, "manta: the log of %s %d is lost: %s\n", role, n, strerror(errno));
}

/* A stream that is still the last part, and not what the program has put there,
 * becomes the new one. */
static void move_streams(const rank_log *l, int before)
{
    struct stat old, now;

    if (os->fstat(before, &old)) return;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (os->fstat(fd, &now) || now.st_dev != old.st_dev || now.st_ino != old.st_ino) continue;
        if (dup2(l->fd, fd) < 0)
            log_warn("what is printed goes on into the part before", LOG_STR("why", strerror(errno)));
    }
}

void rank_log_settle(void)
{
    int before;

    pthread_mutex_lock(&own_guard);
    if (own && own->bound.max_size > 0 && size_of(own->fd) > share_size(own) && turn_part(own, &before)) {
        move_streams(own, before);
        trim_part(own, before); /* now that nobody adds to it */
        os->close(before);
    }
    pthread_mutex_unlock(&own_guard);
}

static void watch_log(void *arg)
{
    (void)arg;
    for (;;) {
        (void)os->poll(NULL, 0, LOOK_MS); /* a file that grows wakes nobody */
        rank_log_settle();
    }
}

void rank_log_take_over(const char *folder, const char *role, int n, rank_log_bound bound)
{
    thread_id thread;

    if (rank_log_open(folder, role, n, bound, &own)) return;
    take_streams(own->fd, role, n);
    if (bound.max_size > 0 && thread_start(&thread, "rank-log", watch_log, NULL))
        log_warn("this log has no bound", LOG_STR("why", manta_error_text()));
}

void rank_log_take_pipe(int fd, const char *role, int n)
{
    take_streams(fd, role, n);
}
