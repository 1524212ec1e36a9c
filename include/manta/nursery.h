/* manta/nursery.h - workers that are no forks of the program, and what a language runtime
 * wants to know of forks, signals, cancels and ends.
 *
 * The program, of which nothing is forked:
 *
 *     manta_node_options o = {.nursery = (const char *const[]){"my-nursery", "--quiet", NULL}};
 *     MANTA_TRY(manta_init(NULL, NULL, &o));
 *
 * And my-nursery, another one, which has the functions:
 *
 *     int main(void)
 *     {
 *         manta_hooks hooks = {.after_fork_child = prepare_worker};
 *         manta_set_hooks(&hooks);
 *         if (manta_nursery_run()) fprintf(stderr, "%s\n", manta_error_text()); // it could not begin
 *         return 1;
 *     }
 *
 * Without a nursery the workers of a program are forks of the program as it was in
 * manta_init(), which is quick and needs no second program, but a program with threads leaves
 * its workers locks that nobody will open. A *nursery* is another program, started by
 * manta_init(), of which the workers are forks. It should do what all workers need (load
 * libraries, register functions), start no thread, and then call manta_nursery_run().
 *
 *     driver ── starts ──▶ keeper ── daemon ── starts ──▶ nursery ── forks ──▶ worker, worker, ...
 *
 * With a nursery manta_init() makes no copy of the driver's memory and runs no handler of
 * pthread_atfork(): keeper and daemon are a small program, manta-node, that belongs to the library.
 * It is looked for beside the library, in ../libexec/manta from there (one or two levels up), and
 * first of all where the environment variable MANTA_NODE_PROGRAM says. None of these
 * processes is a child of the driver: its wait() never sees them. Nursery and workers have the
 * driver's environment variables, working folder, limits, output and error as they were in manta_init(), none
 * of its other open files, and no input.
 *
 * A nursery that ends is started again; one that ends before it was ready for the first time, or says
 * nothing for nursery_timeout_ms, ends the node, and the waits of the driver say why.
 *
 * A program that has no nursery may set hooks as well: those around the fork run in the
 * process that forks its workers. */
#ifndef MANTA_NURSERY_H
#define MANTA_NURSERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is called, with `user`, at certain moments; each may be NULL. None is called while a
 * lock of the runtime is held, so that each may take locks of its own; none may call the
 * runtime, but for what its line allows. Workers have the hooks of the process they are forked from. */
typedef struct manta_hooks {
    void *user;
    /* In the process that forks workers, on the thread that does: right before a fork, and
     * right after it, also when it failed. */
    void (*before_fork)(void *user);
    void (*after_fork_parent)(void *user);
    /* In a new worker, after its output, descriptors and signals were set up (all signals are at
     * their defaults) and before it has talked to anybody. `environment`: what the call or actor named
     * that it is for (manta_task_options.environment), valid until the hook returns; NULL: the plain one.
     * It may start threads, set variables and change the working folder. A failure ends the worker: calls and
     * actors that wait for one of this environment, while it has none, fail with the hook's sentence (manta_fail()). */
    manta_status (*after_fork_child)(void *user, const char *environment);
    /* In any process, on a thread that waits in manta_get(), manta_wait() and the like: asked when a
     * signal interrupted the wait, and every 50 ms besides, for a signal may come just before the
     * thread begins to sleep, or to another thread. True ends the wait with MANTA_EINTERRUPTED: what was waited for
     * goes on, and can be waited for again. Asked by all threads that wait; a hook for one of them looks which it is. */
    bool (*interrupted)(void *user);
    /* In a worker, on a thread that is there for it: the call `task` (manta_task_id()), which runs here,
     * was cancelled. It may have ended by now. One call at a time. manta_task_is_cancelled() is true by
     * then, and its waits end with MANTA_ECANCELLED. */
    void (*cancelled)(void *user, uint64_t task);
    /* In the worker of an actor that ends as it should (its last handle is gone), on its first thread, after
     * its last call and its end (manta_set_self()), before what stdio holds is written and the process leaves
     * by _exit(). Idle workers, and all at the end of a node, are killed without a word. */
    void (*end)(void *user);
    /* In a driver, on a thread that is there for it: workers have printed these bytes (behind the names of
     * functions, and mostly whole lines) to standard output (stream 1) or error (2). True: they were shown, as in a
     * notebook, whose cells are no descriptors. False: the runtime writes them to the stream itself. The
     * thread has ended when manta_shutdown() returns. */
    bool (*printed)(void *user, int stream, const char *text, size_t n);
    /* In a worker that is asked where it is (`manta stack`), on any thread, and as the exception with a lock of the
     * runtime held: writes up to `size` bytes of lines that say where the program's own language is, and returns
     * how many. It takes no lock and waits four seconds at most. */
    size_t (*stack)(void *user, char *out, size_t size);
} manta_hooks;

/* Sets the hooks of this process, which are copied; NULL: none. Before manta_init() or
 * manta_nursery_run(). */
MANTA_API void manta_set_hooks(const manta_hooks *hooks);

/* Serves forks as a nursery, and ends the process when its node does. It finds what it needs in the
 * environment variable MANTA_NURSERY, which it removes; where two libraries may want to serve, the first does.
 * Comes back only when it cannot begin: MANTA_EINVAL this process was not started as a nursery;
 * MANTA_EUNSUPPORTED by another version of Manta; MANTA_EDIED its node is gone. */
MANTA_API manta_status manta_nursery_run(void) MANTA_MUST_USE;

/* Starts a second, warm nursery of this program's node (argv is copied, and ends with NULL), and
 * returns without waiting for it: when it is ready, workers of the plain environment are forked from it, and
 * those that are idle replaced; workers that name an environment come from the first all the same. It may take
 * as long as the first to load what calls will need. One that ends before it was ready is warned of in the log, and
 * the first goes on alone; one that ends later is started again, three times at most. MANTA_ENOENT there is no
 * such program (of a node that was joined the log says so); MANTA_EINVAL the node was started without a
 * nursery, or this is no driver; MANTA_EEXIST there is a warm one. */
MANTA_API manta_status manta_nursery_warm(const char *const *argv) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
