/* spawn.c - see spawn.h. */
#include "os/spawn.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/file.h"
#include "os/sys.h"

static manta_status fork_result(pid_t got, pid_t *pid)
{
    if (got < 0) return manta_fail(MANTA_EBUSY, "starting a process: %s", strerror(errno));
    *pid = got;
    return MANTA_OK;
}

manta_status spawn_fork(pid_t *pid)
{
    return fork_result(os->fork(), pid);
}

manta_status spawn_fork_quiet(pid_t *pid)
{
    return fork_result(os->fork_quiet(), pid);
}

int spawn_wait(pid_t pid)
{
    int status;

    for (;;) {
        pid_t got = os->waitpid(pid, &status, __WALL);
        if (got == pid) return status;
        if (got < 0 && errno != EINTR) return -1;
    }
}

manta_status spawn_adopt_orphans(void)
{
    if (os->prctl(PR_SET_CHILD_SUBREAPER, 1))
        return manta_fail(MANTA_EIO, "becoming the parent of orphans: %s", strerror(errno));
    return MANTA_OK;
}

/* Field n (3 or more, as proc(5) counts them) of a /proc/PID/stat; 0 when it has
 * none. The name in the second field may hold anything, so the third begins
 * behind the last parenthesis. */
static long stat_field(const char *text, int n)
{
    const char *at = strrchr(text, ')');

    for (int i = 2; at && i < n; i++) at = strchr(at + 1, ' ');
    return at ? strtol(at, NULL, 10) : 0;
}

/* The parent of a process; 0 when it is gone. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    if (file_read_text(path, text, sizeof text)) return 0;
    return (pid_t)stat_field(text, 4);
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

void spawn_children(void (*fn)(void *ctx, pid_t child), void *ctx)
{
    /* Twice, for what may have been hidden; searching takes milliseconds where many
     * processes run. */
    bool listed = true;

    for (int i = 0; i < 2 && listed; i++) listed = children_listed(fn, ctx);
    if (!listed) children_searched(fn, ctx);
}

static void kill_child(void *ctx, pid_t child)
{
    (void)ctx;
    os->kill(child, SIGKILL);
}

/* Never waits for a child without looking again: the list may have been cut
 * short, or a child may have been adopted after it was made. */
void spawn_end_all(void)
{
    for (;;) {
        pid_t got;
        spawn_children(kill_child, NULL);
        while ((got = os->waitpid(-1, NULL, __WALL | WNOHANG)) > 0) {}
        if (got < 0 && errno == ECHILD) return;
        (void)os->poll(NULL, 0, 1);
    }
}

void spawn_signal(int pidfd, int sig)
{
    (void)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

int spawn_threads(void)
{
    char text[1024];

    if (file_read_text("/proc/self/stat", text, sizeof text)) return 0;
    return (int)stat_field(text, 20);
}

void spawn_reset_signals(void)
{
    sigset_t none;

    for (int s = 1; s < NSIG; s++)
        if (s != SIGKILL && s != SIGSTOP) signal(s, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void spawn_ignore_requests(void)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

char *spawn_status_text(int status, char *text, size_t size)
{
    if (status >= 0 && WIFSIGNALED(status))
        snprintf(text, size, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (status >= 0 && WIFEXITED(status))
        snprintf(text, size, "exited with %d", WEXITSTATUS(status));
    else
        snprintf(text, size, "is gone");
    return text;
}
