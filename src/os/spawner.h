/* spawner.h - starts the processes of Manta, tells of their ends, and ends them: workers of
 * a group, parameter servers, replicas of a strategy, and the keepers, daemons, zygotes and
 * workers of a node. No other file of src/ forks or waits for a child (tools/check_includes.py).
 *
 *            spawn_start()                      it ends                    spawn_wait(), spawn_end()
 *   (zeroed) ─────────────▶ running, the pidfd ─────────▶ ended, the pidfd ──────────────▶ (zeroed)
 *                           is not readable               is readable                      status told once
 *
 * A child is a fork of this process that runs a function. A fork server needs nothing more:
 * it is a process that starts a child whenever somebody asks (node_start_zygote() of task/zygote.c).
 * Between the fork and its function a child does, in this order, what its options say:
 *
 *   1. dies_with_parent   asks for SIGKILL when the parent ends, and goes at once if it has
 *                         ended before that could be asked
 *   2. name               what ps(1) and top(1) call it
 *   3. own_session        a session of its own: no terminal sends it anything
 *   4. signals            as the parent has them, at their defaults, or left to the parent
 *   5. standard           its input and its two outputs
 *   6. closes_files       every descriptor is closed that is neither listed in `keep` nor was
 *                         remembered (spawn_remember_files())
 *
 * Invariants
 * 1. The process that started a child reaps it, once; until then neither its pid nor its
 *    pidfd means another process. A signal goes through the pidfd, so never to a stranger.
 * 2. A pidfd is readable only after the last store of its process to memory that it shares.
 * 3. A start that fails leaves no process and no descriptor behind.
 *
 * Threads: any number at once, each with children of its own. dies_with_parent means the
 * thread that started the child: when that thread ends, the child does. */
#ifndef OS_SPAWNER_H
#define OS_SPAWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* Zeroed: no child. */
typedef struct spawn_child {
    pid_t pid; /* 0: none */
    int pidfd; /* becomes readable when it ends; close-on-exec */
} spawn_child;

/* Whose child it is. */
typedef enum spawn_kin {
    SPAWN_CHILD, /* ours, as fork() makes it */
    /* Ours, but the program's own wait() and SIGCHLD do not see it: for a library that starts a
     * process which the program knows nothing of. The C library knows nothing of it either: it
     * must start a child before it does anything that locks. Where the program has several
     * threads, one of which may hold a lock, the fork has to be one that minds locks, and the
     * program's wait() sees it then. */
    SPAWN_QUIET,
    /* Nobody's: forked twice, and adopted by the next ancestor that adopts or by process 1. It
     * is not ours to wait for, and no spawn_child tells of it. */
    SPAWN_DETACHED
} spawn_kin;

/* What a child does with signals. */
typedef enum spawn_signals {
    SPAWN_SIGNALS_KEPT, /* all as its parent has them */
    SPAWN_SIGNALS_RESET, /* all at their defaults and none blocked */
    SPAWN_SIGNALS_LEFT /* none blocked; SIGINT, SIGTERM and SIGQUIT, which a terminal or a service manager
                          sends to all processes of the group, are left to the parent: it ends the child
                          when it is done */
} spawn_signals;

enum {
    SPAWN_PARENTS = -1, /* in `standard`: the parent's */
    SPAWN_NULL = -2 /* in `standard`: /dev/null, or the parent's where that cannot be opened */
};

typedef struct spawn_options {
    void (*run)(void *ctx); /* what the child does; when it returns the child exits with 0 */
    void *ctx; /* the child's copy of what it points to is the child's */
    const char *name; /* 15 bytes at most; NULL: the parent's */
    spawn_kin kin;
    spawn_signals signals;
    bool dies_with_parent; /* not for SPAWN_QUIET and SPAWN_DETACHED, which a thread of their own may start */
    bool own_session;
    bool flush; /* what stdio has buffered is written first, or every child that ends its streams would write
                   it too. Waits for a thread that is reading a stream */
    const int *standard; /* three descriptors that become its 0, 1 and 2; NULL: the parent's. A child that
                            cannot have one of them exits with 1 */
    bool closes_files;
    const int *keep;
    int n_keep;
} spawn_options;

/* Starts a child.
 * *out: give back with spawn_wait() or spawn_end(); zeroed on failure and for SPAWN_DETACHED.
 * MANTA_EBUSY the system has no room for a process; MANTA_EIO it cannot be watched. */
manta_status spawn_start(const spawn_options *o, spawn_child *out) MANTA_MUST_USE;

/* For poll(): the child's pidfd, or -1, which poll() passes over, when there is no child. */
static inline int spawn_fd(const spawn_child *c)
{
    return c->pid > 0 ? c->pidfd : -1;
}

/* Whether the child has ended and is not reaped yet; false when there is no child. Does not wait. */
bool spawn_has_ended(const spawn_child *c);

/* Sends a signal; nothing happens to a child that has ended, or when there is none. */
void spawn_signal(const spawn_child *c, int sig);

/* Waits until the child has ended, however long that takes, reaps it and closes its pidfd; *c
 * is zeroed. Returns its status as of waitpid(), or -1 when there is no child, or somebody
 * else has reaped it. */
int spawn_wait(spawn_child *c);

/* Waits until the child has ended, kills it when it has not by the deadline (base/clock.h), and
 * reaps it. Returns what spawn_wait() does. */
int spawn_end(spawn_child *c, int64_t deadline);

/* Ends n children that have the deadline in common: all that have not ended by then are
 * killed, and all are reaped. Some may be no child. */
void spawn_end_all(spawn_child *const *all, int n, int64_t deadline);

/* Reaps a child of which the pid is known and the pidfd is somebody else's. As of spawn_wait(). */
int spawn_reap(pid_t pid);

/* "killed by signal 9 (Killed)", "exited with 3", "is gone" for -1. */
char *spawn_status_text(int status, char *text, size_t size);

/* ---- for what a child does itself ---- */

/* Puts all signals at their defaults and blocks none, as a fresh program has them. */
void spawn_reset_signals(void);

/* Makes this process deaf to requests to end (SIGTERM, SIGINT, SIGHUP). Who stops a
 * service or a job often asks all of its processes at once; one that serves another
 * ends with that other, not before it. */
void spawn_ignore_requests(void);

/* Remembers the descriptors that are open now: they are the program's, and children that
 * close files (closes_files) keep them. Not while another thread starts a child. */
void spawn_remember_files(void);
void spawn_forget_files(void); /* children keep none of the program's */

/* Closes every descriptor of this process but 0, 1 and 2, those remembered, and keep[0 .. n). */
void spawn_close_files(const int *keep, int n);

#endif
