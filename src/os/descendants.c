/* descendants.c - see descendants.h. */
#include "os/descendants.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/file.h"
#include "os/proc.h"
#include "os/sys.h"

manta_status descendants_adopt(void)
{
    if (os->prctl(PR_SET_CHILD_SUBREAPER, 1))
        return manta_fail(MANTA_EIO, "this process cannot become the parent of orphans: %s", strerror(errno));
    return MANTA_OK;
}

/* The parent of a process; 0 when it is gone. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    if (file_read_text(path, text, sizeof text)) return 0;
    return (pid_t)proc_parse_stat(text, 4);
}

/* The children of one thread, as the kernel lists them. A child that ends while
 * the list is read may hide the next one. False: this system has no such list. */
static bool children_of_thread(const char *thread, void (*fn)(void *ctx, pid_t child), void *ctx)
{
    char path[64], text[4096];
    size_t have = 0;

    snprintf(path, sizeof path, "/proc/self/task/%.20s/children", thread);
    int fd = os->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    for (;;) {
        ssize_t n = os->read(fd, text + have, sizeof text - 1 - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        have += (size_t)n;
        text[have] = 0;
        char *at = text, *end;
        for (char *space; (space = strchr(at, ' ')); at = space + 1) {
            long pid = strtol(at, &end, 10);
            if (end == space && pid > 0) fn(ctx, (pid_t)pid);
        }
        have -= (size_t)(at - text); /* a number that was cut off */
        memmove(text, at, have);
    }
    os->close(fd);
    return true;
}

static bool children_listed(void (*fn)(void *ctx, pid_t child), void *ctx)
{
    bool any = false;
    int fd = os->open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *d = fd >= 0 ? os->fdopendir(fd) : NULL;

    if (!d) {
        if (fd >= 0) os->close(fd);
        return false;
    }
    for (struct dirent *e; (e = os->readdir(d));)
        if (isdigit((unsigned char)e->d_name[0])) any |= children_of_thread(e->d_name, fn, ctx);
    os->closedir(d);
    return any;
}

/* All processes of the machine, when there is no list. */
static void children_searched(void (*fn)(void *ctx, pid_t child), void *ctx)
{
    pid_t self = getpid();
    int fd = os->open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *d = fd >= 0 ? os->fdopendir(fd) : NULL;

    if (!d) {
        if (fd >= 0) os->close(fd);
        return;
    }
    for (struct dirent *e; (e = os->readdir(d));)
        if (isdigit((unsigned char)e->d_name[0]) && parent_of(e->d_name) == self)
            fn(ctx, (pid_t)strtol(e->d_name, NULL, 10));
    os->closedir(d);
}

void descendants_each(void (*fn)(void *ctx, pid_t child), void *ctx)
{
    /* Twice, for what may have been hidden; searching takes milliseconds where many
     * processes run. */
    bool listed = true;

    for (int i = 0; i < 2 && listed; i++) listed = children_listed(fn, ctx);
    if (!listed) children_searched(fn, ctx);
}

manta_status descendants_watch(int *out)
{
    sigset_t child;
    int fd;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    if ((fd = os->signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return manta_fail(MANTA_EIO, "the ends of processes cannot be watched for: %s", strerror(errno));
    *out = fd;
    return MANTA_OK;
}

/* The signal is taken before the children are: one that ends after the last look raises it
 * again. */
void descendants_reap(int fd, void (*fn)(void *ctx, pid_t child, int status), void *ctx)
{
    struct signalfd_siginfo info;
    pid_t pid;
    int status;

    (void)!os->read(fd, &info, sizeof info);
    while ((pid = os->waitpid(-1, &status, __WALL | WNOHANG)) > 0 || (pid < 0 && errno == EINTR))
        if (pid > 0) fn(ctx, pid, status);
}

static void kill_child(void *ctx, pid_t child)
{
    (void)ctx;
    os->kill(child, SIGKILL);
}

/* Never waits for a child without looking again: the list may have been cut
 * short, or a child may have been adopted after it was made. */
void descendants_end(void)
{
    for (;;) {
        pid_t got;
        descendants_each(kill_child, NULL);
        while ((got = os->waitpid(-1, NULL, __WALL | WNOHANG)) > 0) {}
        if (got < 0 && errno == ECHILD) return;
        (void)os->poll(NULL, 0, 1);
    }
}
