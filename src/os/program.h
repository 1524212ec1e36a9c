/* program.h - starts other programs: spawner.h's children run a function of this one.
 *
 *   program_start()         fork ──▶ exec                  a child of ours, as of spawn_start()
 *   program_run()           the same, with all that can be chosen
 *   program_start_apart()   clone ──▶ clone ──▶ exec       nobody's child, of a process of any size
 *
 * The second is for a library in somebody else's program. It copies neither memory nor page
 * tables (the child runs in the caller's memory until the exec, while the calling thread stands still; the
 * other threads go on), takes no lock, and runs no handler of pthread_atfork(). The first clone has
 * no exit signal and is reaped here, so that neither SIGCHLD nor a wait() of the program sees it;
 * the second is an orphan then, and the next ancestor that adopts, or process 1, is its parent. An
 * exec gives a process the usual exit signal back, which is why one clone is not enough.
 *
 * Threads: any number at once. */
#ifndef OS_PROGRAM_H
#define OS_PROGRAM_H

#include <sys/resource.h>
#include <sys/types.h>

#include "base/status.h"
#include "os/spawner.h"

#define PROGRAM_FD 3 /* the one descriptor that a program is given, beside 0, 1 and 2 */

/* Starts the program at `path`, not looked for elsewhere, with `fd` as its PROGRAM_FD. It begins with all
 * signals blocked, and with those of our descriptors that are not close-on-exec: spawn_reset_signals()
 * and spawn_close_files() are what it does first. *pid: its number. MANTA_ENOENT there is no such program; MANTA_EPERM it may not
 * be run; MANTA_EBUSY the system has no room for a process. */
manta_status program_start_apart(const char *path, char *const argv[], int fd, pid_t *pid) MANTA_MUST_USE;

/* Starts argv[0], looked for as execvp() does, as a child that dies with the calling thread: no
 * input, our output and error, signals at their defaults, and of our descriptors those in keep[0 .. n_keep).
 * `variable` of its environment is set to `value`. `files`: as in program_options.
 * Waits until the program runs. *out: as of spawn_start(). Failures as above. */
manta_status program_start(const char *const *argv, const char *variable, const char *value,
                           const struct rlimit *files, const int *keep, int n_keep,
                           spawn_child *out) MANTA_MUST_USE;

typedef struct program_options {
    const char *const *argv; /* argv[0] is looked for as execvp() does, in our own PATH */
    char *const *environment; /* NULL: ours */
    const char *folder; /* where it runs; NULL: ours */
    const int *standard; /* its 0, 1 and 2, as of spawn_options; NULL: ours */
    const int *keep; /* of our descriptors those that it has, under the same numbers */
    int n_keep; /* at most PROGRAM_KEEPS */
    const struct rlimit *files; /* its limit of open files; NULL, or all zero: ours */
    bool own_session; /* it leads a session, and so a process group, of its own */
    bool outlives; /* it does not die with the calling thread */
} program_options;

enum { PROGRAM_KEEPS = 7 };

/* Starts a program as a child that dies with the calling thread, unless it `outlives` it, with signals at their defaults. Waits until it
 * runs. *out: as of spawn_start(). MANTA_ENOENT there is no such program, or folder; else as above. */
manta_status program_run(const program_options *o, spawn_child *out) MANTA_MUST_USE;

#endif
