/* program.c - see program.h.
 *
 *     caller            first                 second
 *     clone ──────────▶ clone ──────────────▶ PROGRAM_FD
 *       ┊ stands still    ┊ stands still        exec ──▶ the program
 *     reaps first ◀──── _exit ◀───────────────── ┘
 *
 * First and second run in the caller's memory, each on a stack of its own, and write down there
 * what became of them (struct apart): an exec that fails is seen at once. Signals are
 * blocked from before the first clone until after it was reaped, since a handler of the program's must not
 * run in a process that shares its memory; the new program unblocks them.
 * The two call nothing that locks or allocates. */
#include "os/program.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/sys.h"

#define STACK_SIZE ((size_t)64 << 10)
/* Sanitizers keep what they know of a stack in memory that is shared here. */
#define PLAIN __attribute__((no_sanitize("address", "thread", "undefined")))

static manta_status fail_start(const char *path, int err)
{
    manta_status st = err == ENOENT || err == ENOTDIR   ? MANTA_ENOENT
                      : err == EACCES || err == ENOEXEC ? MANTA_EPERM
                                                        : MANTA_EBUSY;

    return manta_fail(st, "the program %s cannot be started: %s", path, strerror(err));
}

/* ---- apart ---- */

typedef struct apart {
    const char *path;
    char *const *argv;
    int fd;
    char *stack; /* of the second; it grows downwards from its end */
    volatile pid_t pid;
    volatile int err; /* why there is no program; 0: there is */
} apart;

PLAIN static int run_second(void *arg)
{
    apart *a = arg;

    if (a->fd == PROGRAM_FD ? fcntl(a->fd, F_SETFD, 0) : dup2(a->fd, PROGRAM_FD) < 0) {
        a->err = errno;
        _exit(127);
    }
    if (a->fd < PROGRAM_FD) close(a->fd); /* the program had closed its own 0, 1 or 2 */
    execv(a->path, a->argv);
    a->err = errno;
    _exit(127);
}

PLAIN static int run_first(void *arg)
{
    apart *a = arg;
    pid_t pid = os->clone(run_second, a->stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | SIGCHLD, a);

    if (pid < 0) a->err = errno;
    if (pid > 0 && a->err) os->waitpid(pid, NULL, 0); /* nothing is left of a start that failed */
    a->pid = pid;
    _exit(0);
}

/* No thread may be cancelled in here: its handlers would run in the child. */
manta_status program_start_apart(const char *path, char *const argv[], int fd, pid_t *out)
{
    sigset_t all, old;
    int cancels;
    char *stacks = os->mmap(NULL, 2 * STACK_SIZE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

    if (stacks == MAP_FAILED) return fail_start(path, errno);
    apart a = {.path = path, .argv = argv, .fd = fd, .stack = stacks + STACK_SIZE};
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid_t first = os->clone(run_first, stacks + STACK_SIZE, CLONE_VM | CLONE_VFORK, &a);
    if (first < 0) a.err = errno;
    if (first > 0) (void)spawn_reap(first);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_setcancelstate(cancels, NULL);
    os->munmap(stacks, 2 * STACK_SIZE);
    if (a.err || a.pid <= 0) return fail_start(path, a.err ? a.err : EAGAIN);
    *out = a.pid;
    return MANTA_OK;
}

/* ---- a child ---- */

typedef struct child {
    const program_options *o;
    const char *variable, *value; /* NULL: none */
    int tell; /* close-on-exec: what is written there is why it could not be */
} child;

static bool become_program(const child *c)
{
    const program_options *o = c->o;

    for (int i = 0; i < o->n_keep; i++) (void)os->fcntl(o->keep[i], F_SETFD, 0);
    if (o->files && o->files->rlim_max) (void)setrlimit(RLIMIT_NOFILE, o->files);
    if (o->folder && chdir(o->folder)) return false;
    if (c->variable && setenv(c->variable, c->value, 1)) return false;
    execvpe(o->argv[0], (char *const *)(uintptr_t)o->argv, o->environment ? o->environment : environ);
    return false;
}

static void run_program(void *ctx)
{
    const child *c = ctx;

    if (!become_program(c)) {
        int err = errno;
        (void)!os->write(c->tell, &err, sizeof err);
    }
    _exit(127);
}

/* The end of the pipe that the child has is closed by the exec, or by its death. */
static manta_status await_exec(int fd, const char *path, spawn_child *started)
{
    int err = 0;
    ssize_t n;

    do n = os->read(fd, &err, sizeof err);
    while (n < 0 && errno == EINTR);
    if (n == 0) return MANTA_OK;
    spawn_signal(started, SIGKILL);
    (void)spawn_wait(started);
    return fail_start(path, n == sizeof err ? err : EIO);
}

static manta_status start_child(child *c, spawn_child *out)
{
    const program_options *o = c->o;
    int tell[2], all[PROGRAM_KEEPS + 1];
    manta_status st;

    *out = (spawn_child){0};
    if (o->n_keep > PROGRAM_KEEPS) return manta_fail(MANTA_EINVAL, "%d descriptors are too many", o->n_keep);
    if (os->pipe2(tell, O_CLOEXEC)) return fail_start(o->argv[0], errno);
    for (int i = 0; i < o->n_keep; i++) all[i] = o->keep[i];
    all[o->n_keep] = c->tell = tell[1];
    st = spawn_start(&(spawn_options){.run = run_program,
                                      .ctx = c,
                                      .signals = SPAWN_SIGNALS_RESET,
                                      .dies_with_parent = !o->outlives,
                                      .own_session = o->own_session,
                                      .standard = o->standard,
                                      .closes_files = true,
                                      .keep = all,
                                      .n_keep = o->n_keep + 1},
                     out);
    os->close(tell[1]);
    if (!st) st = await_exec(tell[0], o->argv[0], out);
    os->close(tell[0]);
    return st;
}

manta_status program_start(const char *const *argv, const char *variable, const char *value,
                           const struct rlimit *files, const int *keep, int n_keep, spawn_child *out)
{
    program_options o = {.argv = argv,
                         .standard = (int[]){SPAWN_NULL, SPAWN_PARENTS, SPAWN_PARENTS},
                         .keep = keep,
                         .n_keep = n_keep,
                         .files = files};

    return start_child(&(child){.o = &o, .variable = variable, .value = value}, out);
}

manta_status program_run(const program_options *o, spawn_child *out)
{
    return start_child(&(child){.o = o}, out);
}
