/* manta/nursery.h - workers that are no forks of the program, and what is to be called around
 * forks.
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
     * their defaults) and before it has talked to anybody. `environment` is NULL.
     * It may start threads, set variables and change the working folder. A failure ends the worker: calls and
     * actors that wait for one, while there is none, fail with the hook's sentence (manta_fail()). */
    manta_status (*after_fork_child)(void *user, const char *environment);
} manta_hooks;

/* Sets the hooks of this process, which are copied; NULL: none. Before manta_init() or
 * manta_nursery_run(). */
MANTA_API void manta_set_hooks(const manta_hooks *hooks);

/* Serves forks as a nursery, and ends the process when its node does. It finds what it needs in the
 * environment variable MANTA_NURSERY, which it removes; where two libraries may want to serve, the first does.
 * Comes back only when it cannot begin: MANTA_EINVAL this process was not started as a nursery;
 * MANTA_EUNSUPPORTED by another version of Manta; MANTA_EDIED its node is gone. */
MANTA_API manta_status manta_nursery_run(void) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
