/* spawner.c - see spawner.h.
 *
 *   spawn_start() ── start_child() ── fork ──▶ become_child()  the six preparations, then o->run()
 *        │                                ├──▶ become_child()  in the second child of two (SPAWN_DETACHED)
 *        └─ start_apart(), a thread, when the program has several and has not been asked
 *
 * A child comes into being with the locks of the other threads as they were at that moment.
 * fork() leaves malloc's and stdio's open in the child; the quiet fork does not, and so is
 * only for a program with one thread. And a library may keep, in memory of the calling
 * thread, what it knows of its other threads (the team of a parallel region), and would wait
 * for them in the child. So, where the program did not choose the moment, a new thread forks,
 * whose stack and thread-local memory no library has used yet. */
#include "os/spawner.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/vec.h"
#include "os/file.h"
#include "os/proc.h"
#include "os/sys.h"
#include "os/thread.h"

/* ---- descriptors ---- */

static VEC(int) remembered;

static void list_files(void (*fn)(const int *keep, int n, int fd), const int *keep, int n)
{
    file_names names = {0};

    if (file_list("/proc/self/fd", &names)) return;
    for (size_t i = 0; i < names.n; i++) fn(keep, n, (int)strtol(names.at[i], NULL, 10));
    file_names_release(&names);
}

static void remember_file(const int *keep, int n, int fd)
{
    (void)keep;
    (void)n;
    vec_push(&remembered, fd);
}

void spawn_remember_files(void)
{
    spawn_forget_files();
    list_files(remember_file, NULL, 0);
}

void spawn_forget_files(void)
{
    vec_clear(&remembered);
}

static void close_unless_kept(const int *keep, int n, int fd)
{
    for (size_t i = 0; i < remembered.n; i++)
        if (remembered.at[i] == fd) return;
    for (int i = 0; i < n; i++)
        if (keep[i] == fd) return;
    if (fd > 2) os->close(fd); /* fails for the descriptor of the listing, which is closed by now */
}

void spawn_close_files(const int *keep, int n)
{
    list_files(close_unless_kept, keep, n);
}

/* ---- signals ---- */

static void unblock_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void spawn_reset_signals(void)
{
    for (int s = 1; s < NSIG; s++)
        if (s != SIGKILL && s != SIGSTOP) signal(s, SIG_DFL);
    unblock_signals();
}

void spawn_ignore_requests(void)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

static void leave_signals(void)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    unblock_signals();
}

/* ---- in the child ---- */

/* One of 0, 1 and 2 becomes what `from` says. */
static bool take_standard(int fd, int from)
{
    bool opens = from == SPAWN_NULL;

    if (from == SPAWN_PARENTS || from == fd) return true;
    if (opens && (from = os->open("/dev/null", (fd ? O_WRONLY : O_RDONLY) | O_CLOEXEC, 0)) < 0) return true;
    if (from < 0 || dup2(from, fd) < 0) return false;
    if (opens && from > 2) os->close(from);
    return true;
}

/* The preparations that spawner.h numbers. A child that cannot have an output that it was
 * given would write where it must not: it exits with 1. */
static _Noreturn void become_child(const spawn_options *o, pid_t parent)
{
    if (o->dies_with_parent) {
        os->prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(0); /* it ended before the signal was asked for */
    }
    if (o->name) prctl(PR_SET_NAME, o->name);
    if (o->own_session) setsid();
    if (o->signals == SPAWN_SIGNALS_RESET) spawn_reset_signals();
    if (o->signals == SPAWN_SIGNALS_LEFT) leave_signals();
    for (int i = 0; i < 3 && o->standard; i++)
        if (!take_standard(i, o->standard[i])) _exit(1);
    if (o->closes_files) spawn_close_files(o->keep, o->n_keep);
    o->run(o->ctx);
    _exit(0);
}

/* ---- starting ---- */

typedef struct start {
    const spawn_options *o;
    spawn_child *out;
    bool has_threads; /* the program has other threads than ours */
    manta_status st;
    manta_error why;
} start;

static pid_t fork_child(const start *s)
{
    return s->o->kin == SPAWN_CHILD || s->has_threads ? os->fork() : os->fork_quiet();
}

static manta_status fail_fork(void)
{
    return manta_fail(MANTA_EBUSY, "no process can be started: %s", strerror(errno));
}

static manta_status start_own(const start *s)
{
    pid_t parent = getpid(), pid = fork_child(s);
    manta_status st;

    if (pid < 0) return fail_fork();
    if (!pid) become_child(s->o, parent);
    if ((st = proc_pidfd_open(pid, &s->out->pidfd))) {
        os->kill(pid, SIGKILL);
        spawn_reap(pid);
        return st;
    }
    s->out->pid = pid;
    return MANTA_OK;
}

/* The first child of two ends as soon as there is a second, which is then an orphan. */
static manta_status start_detached(const start *s)
{
    pid_t pid = fork_child(s);
    int status;

    if (pid < 0) return fail_fork();
    if (!pid) {
        pid = os->fork();
        if (!pid) become_child(s->o, 0);
        _exit(pid < 0 ? 1 : 0);
    }
    if ((status = spawn_reap(pid))) {
        char text[64];
        return manta_fail(MANTA_EBUSY, "starting a process: the one that was to start it %s",
                          spawn_status_text(status, text, sizeof text));
    }
    return MANTA_OK;
}

static void start_child(void *ctx)
{
    start *s = ctx;

    s->st = s->o->kin == SPAWN_DETACHED ? start_detached(s) : start_own(s);
    if (s->st) manta_error_get(&s->why);
}

static manta_status start_apart(start *s)
{
    thread_id id;

    TRY(thread_start(&id, "manta-birth", start_child, s));
    thread_join(&id);
    return s->st ? manta_error_raise(&s->why) : MANTA_OK;
}

manta_status spawn_start(const spawn_options *o, spawn_child *out)
{
    start s = {.o = o, .out = out};

    assert(!o->dies_with_parent || o->kin == SPAWN_CHILD);
    if (out) *out = (spawn_child){0};
    if (o->flush) fflush(NULL);
    s.has_threads = o->kin != SPAWN_CHILD && proc_threads() > 1;
    if (s.has_threads) return start_apart(&s);
    start_child(&s);
    return s.st;
}

/* ---- watching and ending ---- */

/* Whether it has ended, at the latest when the deadline has passed. */
static bool ends_by(const spawn_child *c, int64_t deadline)
{
    struct pollfd p = {.fd = spawn_fd(c), .events = POLLIN};

    for (;;) {
        int got = os->poll(&p, 1, clock_left_ms(deadline));
        if (got > 0) return true;
        if (got == 0 || errno != EINTR) return false;
    }
}

bool spawn_has_ended(const spawn_child *c)
{
    return c->pid > 0 && ends_by(c, 0);
}

void spawn_signal(const spawn_child *c, int sig)
{
    if (c->pid > 0) proc_signal(c->pidfd, sig);
}

int spawn_reap(pid_t pid)
{
    int status;

    for (;;) {
        pid_t got = os->waitpid(pid, &status, __WALL);
        if (got == pid) return status;
        if (got < 0 && errno != EINTR) return -1;
    }
}

int spawn_wait(spawn_child *c)
{
    int status;

    if (c->pid <= 0) return -1;
    status = spawn_reap(c->pid);
    os->close(c->pidfd);
    *c = (spawn_child){0};
    return status;
}

int spawn_end(spawn_child *c, int64_t deadline)
{
    if (c->pid > 0 && !ends_by(c, deadline)) spawn_signal(c, SIGKILL);
    return spawn_wait(c);
}

/* One after the other: whoever is waited for later has had the same time. */
void spawn_end_all(spawn_child *const *all, int n, int64_t deadline)
{
    for (int i = 0; i < n; i++)
        if (all[i]->pid > 0 && ends_by(all[i], deadline)) spawn_wait(all[i]);
    for (int i = 0; i < n; i++) spawn_signal(all[i], SIGKILL);
    for (int i = 0; i < n; i++) spawn_wait(all[i]);
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
