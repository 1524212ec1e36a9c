/* rank_log.c - what the processes of a run have said. */
#include "train/rank_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/file.h"
#include "os/sys.h"

char *rank_log_path(const char *folder, const char *role, int n)
{
    return mem_printf("%s/%s-%d.txt", folder, role, n);
}

static int open_log(const char *path, int how)
{
    int fd;

    do fd = os->open(path, how | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
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

void rank_log_take_over(const char *folder, const char *role, int n)
{
    static char
        lines[BUFSIZ]; /* a buffer of its own: with the old one the stream would not look for ends of lines */
    char *path = folder ? rank_log_path(folder, role, n) : NULL;
    int fd = path ? open_log(path, O_RDWR) : -1;

    mem_free(path);
    if (fd < 0) return;
    if (is_cut(fd) && os->write(fd, "\n", 1) < 0) { /* then two lines are one */
    }
    __fpurge(stdout); /* the parent's, which it will write itself */
    setvbuf(stdout, lines, _IOLBF, sizeof lines);
    if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        fprintf(stderr, "manta: the log of %s %d is lost: %s\n", role, n, strerror(errno));
    os->close(fd);
}

manta_status rank_log_add(const char *folder, int rank, const char *text)
{
    char *path = rank_log_path(folder, "rank", rank), *line;
    int64_t now = clock_wall_ns();
    int fd = open_log(path, O_RDWR);
    manta_status st = MANTA_OK;
    ssize_t put;
    size_t n;

    if (fd < 0) {
        st = file_fail(errno, "opening", path);
        mem_free(path);
        return st;
    }
    line = mem_printf("%s%lld.%03d %s\n", is_cut(fd) ? "\n" : "", (long long)(now / 1000000000),
                      (int)(now / 1000000 % 1000), text);
    n = strlen(line);
    for (size_t i = 1; i + 1 < n; i++) {
        if (line[i] == '\n' || line[i] == '\r') line[i] = ' ';
    }
    do put = os->write(fd, line, n); /* one call: a reader sees the whole of it */
    while (put < 0 && errno == EINTR);
    if (put < 0) {
        st = file_fail(errno, "writing", path);
    } else if ((size_t)put < n) {
        st = manta_fail(MANTA_ENOSPC, "writing %s: no space is left", path);
    }
    os->close(fd);
    mem_free(line);
    mem_free(path);
    return st;
}
