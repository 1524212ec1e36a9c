/* manta/task.h - remote functions, objects and actors.
 *
 *     static manta_status add(manta_task *t)
 *     {
 *         double a, b;
 *         MANTA_TRY(manta_arg_f64(t, 0, &a));
 *         MANTA_TRY(manta_arg_f64(t, 1, &b));
 *         return manta_return_f64(t, 0, a + b);
 *     }
 *     MANTA_REMOTE(add)
 *
 *     int main(int argc, char **argv)
 *     {
 *         double v;
 *         if (manta_init(&argc, &argv, NULL)) return 1;
 *         manta_ref x = manta_remote(add, manta_f64(1), manta_f64(2));
 *         manta_ref y = manta_remote(add, x, manta_f64(3));
 *         if (manta_get_f64(y, &v, MANTA_FOREVER)) fprintf(stderr, "%s\n", manta_error_text());
 *         manta_shutdown();
 *     }
 *
 * A remote function runs in a worker: another process, forked from this
 * program as it was when it called manta_init(). A reference given as an
 * argument is resolved before the function starts; references inside
 * manta_refs() stay references.
 *
 * Errors latch in references: manta_remote() always returns one, and when the
 * call could not be made, or failed, or its worker died, manta_get says so
 * with the sentence of the place where it arose. manta_failure_get() tells
 * the kinds apart.
 *
 * A function that waits for a call which it has made itself may run it: on its own
 * stack, in its own process, when nobody else has begun it and it is short or
 * recursive. The wait then ends with that call, also when its time is over or the
 * function is cancelled before. Functions that call themselves should not count on
 * static variables; MANTA_CALL_STRATEGY_SPREAD keeps a call in another process.
 *
 * References are counted. What manta_remote(), manta_put() and manta_create()
 * return is held once and given back with manta_release(). What a manta_get
 * delivers by pointer is read-only, lies in shared memory or in this process,
 * and is valid until the reference is released.
 *
 * Threads: everything here may be called from any thread of the program; a
 * manta_task only from the thread that runs it. */
#ifndef MANTA_TASK_H
#define MANTA_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/array.h>
#include <manta/object.h>
#include <manta/option.h>
#include <manta/placement.h>
#include <manta/status.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_task manta_task; /* a call, as the function it runs sees it */
typedef manta_status manta_task_fn(manta_task *t);

/* ---- start and end ---- */

typedef struct manta_node_options {
    int num_cpus; /* 0: the cores this process may use; MANTA_NONE: none, for work that asks for none */
    int num_gpus;
    uint64_t memory; /* bytes that tasks may ask for together; 0: 70 % of the machine's */
    uint64_t worker_memory; /* most bytes of a process whose call names no `memory`; 0: no limit */
    bool memory_is_free; /* `memory` of calls is reserved, and is no limit */
    uint64_t memory_floor; /* with less than that left on the machine the largest worker is ended;
                            0: 1 % of the machine's, at most 256 MiB */
    const char *resources; /* more of what tasks may ask for: "disk=2,license=1" */
    const char *name_space; /* of the names of actors; NULL: "default"; without a '/' */
    uint64_t store_memory; /* most bytes of shared memory for objects; 0: 30 % of the machine's */
    const char *spill_folder; /* where objects go that memory has no room for; NULL: $TMPDIR, or
                               /var/tmp; "": nowhere, a full store is an error at once */
    uint64_t spill_limit; /* most bytes on disk; 0: as many as the disk has room for */
    uint64_t lineage_memory; /* bytes that a process may use to remember calls whose results are
                              large, so that they can be made again; 0: 64 MiB */
    const char *log_level; /* "debug", "info", "warn", "error", "off"; NULL: as it is (manta/log.h) */
    bool in_process; /* no other process: calls run at once, inside manta_remote(), and
                      breakpoints stop in them. MANTA_ADDRESS=in-process does the same. */
    /* Which node. "local": one of this program's own. "auto": the one that `manta
     * start` began, and an error when there is none. "any": that one, else the only one there
     * is, which may be another program's own. A path or a pid: that node. NULL
     * or "": what the environment variable MANTA_ADDRESS says in the same words;
     * without it the started node, if one runs and nothing above is given that only a
     * node of its own could have (amounts, where to spill), else one of its own. */
    const char *address;
    bool plain_output; /* workers write to this program's own output, without a prefix */
    int max_workers; /* processes of a program for calls, beside those of actors; 0: 32 for each core,
                      at least 256 */
    /* Of what the workers are forks (manta/nursery.h): the program argv[0], looked for as execvp() does,
     * with these arguments; NULL ends them. NULL: forks of this program. */
    const char *const *nursery;
    int nursery_timeout_ms; /* how long a nursery may take until it is ready; 0: 60 s */
} manta_node_options;

/* Starts a node on this host, or joins one: a daemon, and workers forked from
 * this program as it is now. A node of its own ends with this process, however
 * that ends; of one that is joined, this program's workers do, but for its
 * detached actors. What workers print is shown by this program, line by line,
 * behind the function and the process: "(average pid=1234) text". argc and argv
 * are for later use and may be NULL. Call it early: workers see the memory and
 * the open files of this moment. `options` may be NULL.
 *
 * A program that has started threads before may call it; its workers do not have
 * these threads, and a lock that one of them holds at this moment stays locked
 * there. malloc and stdio are safe, and so is a library that minds forks; a pool
 * of threads made before is of no use in a worker.
 *
 * Every worker costs this process two open files. Until manta_shutdown() its limit
 * on them (RLIMIT_NOFILE) is as high as it may be without asking anybody, at most
 * 65,536; workers have the limit of this moment. Where no more workers can be
 * started, actors and calls that need another fail with MANTA_ENOSPC and say what
 * is missing.
 *
 * A process that the program forks afterwards, also in a remote function, has no part in
 * the node: there, whatever this header has fails with MANTA_EPERM, manta_init() too, and
 * manta_shutdown(), exit() and the releases do nothing.
 * MANTA_EEXIST a second call. */
MANTA_API manta_status manta_init(int *argc, char ***argv, const manta_node_options *options) MANTA_MUST_USE;

/* Ends the node, or leaves one that was joined, and forgets all references. When
 * it returns no process and no memory of the node, or of this program's part in
 * it, is left (but for detached actors of a joined one). No other thread may be
 * in a call of this header. May be called twice. */
MANTA_API void manta_shutdown(void);

MANTA_API bool manta_is_initialized(void);

/* ---- remote functions ---- */

/* Registers `fn` under its own name; one line at file scope, no semicolon
 * needed. A name registered twice is the later one's. */
#define MANTA_REMOTE(fn)                                                                                     \
    __attribute__((constructor)) static void manta_registers_##fn(void)                                      \
    {                                                                                                        \
        manta_register(#fn, fn);                                                                             \
    }
MANTA_API void manta_register(const char *name, manta_task_fn *fn);

/* What runs a name that no manta_register() knows: a language runtime gives
 * its own. The arguments are read as by any function. NULL takes it back. */
typedef manta_status manta_resolver(void *user, const char *name, manta_task *t);
MANTA_API void manta_set_resolver(manta_resolver *fn, void *user);

typedef enum manta_call_strategy {
    MANTA_CALL_STRATEGY_DEFAULT = 0, /* short calls are sent ahead of time, behind others */
    MANTA_CALL_STRATEGY_SPREAD /* to an idle worker only, however short the calls are; never run by who
                                  waits for them */
} manta_call_strategy;

#define MANTA_ON(status) (1u << (status)) /* for manta_task_options.retry_on */

/* Zeros are the defaults: of a function that is called with other options each
 * time, copy the struct and change what differs. */
typedef struct manta_task_options {
    double num_cpus; /* 0: 1 for a task, nothing for an actor; MANTA_NONE: nothing */
    double num_gpus;
    uint64_t memory; /* bytes; reserved, and a limit: a process that takes more is ended */
    const char *resources; /* "disk=1,license=0.5" */
    int max_retries; /* when its worker dies; 0: 3; MANTA_NONE; MANTA_UNLIMITED */
    bool retry_errors; /* also when the function itself fails */
    unsigned retry_on; /* only with these statuses: MANTA_ON(MANTA_EIO) | MANTA_ON(MANTA_EBUSY) */
    manta_call_strategy strategy;
    uint64_t node; /* the only one to run on (manta_node_info.node); 0: any */
    manta_placement_group placement_group; /* run in a bundle of it */
    int bundle; /* counted from 1; 0: whichever has room */
    const char *name; /* of a task: for people to read; of an actor: manta_actor_find() finds it */
    /* What the worker is to be like, in words that only the hook after_fork_child (manta/nursery.h)
     * understands; at most 32 KiB. A worker runs calls of one environment alone. NULL or "": the plain
     * one. */
    const char *environment;
    int stream_window; /* of a call that yields: items that it may be ahead of its reader; 0: 8;
                        MANTA_UNLIMITED: it never waits, and what is not read is kept */
    int max_calls; /* of a task: its process takes no more calls after so many of this function, and
                    ends, with what the function leaves behind; 0: no limit */
    bool wait_infeasible; /* what no node can ever run waits, until it is cancelled, and says so in the
                           log, instead of failing with MANTA_EUNSUPPORTED */
    /* actors only */
    bool detached; /* lives until killed, not until its last handle goes */
    bool get_if_exists; /* with a name that is taken: its actor, instead of MANTA_EEXIST */
    int max_restarts; /* 0: none; MANTA_UNLIMITED. The constructor runs again. */
    int max_task_retries; /* calls under way when the actor died; 0: none, the outcome is unknown;
                             MANTA_UNLIMITED */
    int max_concurrency; /* calls that run at the same time, each on a thread; 0: 1 */
    int max_pending_calls; /* of one caller; one more fails with MANTA_EBUSY; 0: no limit */
    /* Groups of its calls, each with a number of its own that run at the same time, each on a thread:
     * "io=2,compute=4". Calls that are in none have max_concurrency to themselves. NULL: none. */
    const char *concurrency_groups;
    const char *method_groups; /* the group of the calls of a method that name none: "read=io,write=io" */
    const char *concurrency_group; /* of a call of an actor: the group that it runs in; NULL: its method's */
    const char *name_space; /* of its name; NULL: the program's */
    double place_cpus; /* that must be free when it is placed, beside those it holds, which are not
                        kept for it */
    bool out_of_order; /* a call whose arguments are there does not wait for earlier ones whose are not */
    bool with_maker; /* of one that an actor makes: it ends when the process of that actor does */
    bool fail_away; /* calls that find it being restarted fail (MANTA_FAILURE_UNAVAILABLE) and do not wait */
} manta_task_options;

/* manta_remote(fn, args...): calls fn in a worker and returns at once. Up to
 * 15 arguments, each a manta_ref or one of manta_f64() .. manta_handle(). */
#define manta_remote(...)                                                                                    \
    manta_submit_one(MANTA_NAME_(__VA_ARGS__, ), NULL, MANTA_COUNT_(__VA_ARGS__) - 1,                        \
                     MANTA_LIST_(__VA_ARGS__))

/* Calls as manta_remote() does, with options (a const manta_task_options *). */
#define manta_remote_with(options, ...)                                                                      \
    manta_submit_one(MANTA_NAME_(__VA_ARGS__, ), (options), MANTA_COUNT_(__VA_ARGS__) - 1,                   \
                     MANTA_LIST_(__VA_ARGS__))

/* Calls a function with n results, with options; refs[0 .. n) receive the results. */
#define manta_remote_n(n, refs, options, ...)                                                                \
    manta_submit(MANTA_NAME_(__VA_ARGS__, ), (options), MANTA_COUNT_(__VA_ARGS__) - 1,                       \
                 (MANTA_LIST_(__VA_ARGS__)) + 1, (n), (refs))

/* Behind the macros, and for callers whose function is a name: `results`
 * references are written to out. */
MANTA_API void manta_submit(const char *name, const manta_task_options *options, int n_args,
                            const manta_arg *args, int results, manta_ref *out);
/* args[0] is not looked at: args[1 .. n_args] are the arguments. */
MANTA_API manta_ref manta_submit_one(const char *name, const manta_task_options *options, int n_args,
                                     const manta_arg *args);

/* ---- inside a remote function ---- */

MANTA_API int manta_args(const manta_task *t);
MANTA_API manta_kind manta_arg_kind(const manta_task *t, int i); /* NONE past the end */
/* Argument i; MANTA_EINVAL names function, argument and kinds when it is none
 * or another. Pointers are read-only and valid until the function returns. */
MANTA_API manta_status manta_arg_f64(const manta_task *t, int i, double *out) MANTA_MUST_USE;
MANTA_API manta_status manta_arg_i64(const manta_task *t, int i, int64_t *out) MANTA_MUST_USE;
MANTA_API manta_status manta_arg_bool(const manta_task *t, int i, bool *out) MANTA_MUST_USE;
MANTA_API manta_status manta_arg_str(const manta_task *t, int i, const char **out) MANTA_MUST_USE;
MANTA_API manta_status manta_arg_bytes(const manta_task *t, int i, const void **at, size_t *n) MANTA_MUST_USE;
MANTA_API manta_status manta_arg_array(const manta_task *t, int i, manta_array *out) MANTA_MUST_USE;
/* The references are the caller's: to keep one past the call, manta_retain() it. */
MANTA_API manta_status manta_arg_refs(const manta_task *t, int i, const manta_ref **out,
                                      size_t *n) MANTA_MUST_USE;
MANTA_API manta_status manta_arg_actor(const manta_task *t, int i, manta_actor *out) MANTA_MUST_USE;

MANTA_API int manta_results(const manta_task *t); /* how many the caller expects */
/* Result i becomes the value, which is copied. A result that is never given
 * has the kind NONE; one given twice is the later. */
MANTA_API manta_status manta_return(manta_task *t, int i, manta_arg value) MANTA_MUST_USE;
MANTA_API manta_status manta_return_f64(manta_task *t, int i, double x) MANTA_MUST_USE;
MANTA_API manta_status manta_return_i64(manta_task *t, int i, int64_t x) MANTA_MUST_USE;
MANTA_API manta_status manta_return_array(manta_task *t, int i, const manta_array *a) MANTA_MUST_USE;
/* Result i fails, with what manta_fail_with() records, and the others are as they were given. A call with
 * such results has not failed, and is not tried again. */
MANTA_API manta_status manta_return_failure(manta_task *t, int i, manta_status code, const char *text,
                                            const void *payload, size_t size) MANTA_MUST_USE;
/* Memory for result i, to be filled before the function returns: no copy. */
MANTA_API manta_status manta_return_create(manta_task *t, int i, manta_dtype dtype, int ndim,
                                           const int64_t *shape, manta_array *out) MANTA_MUST_USE;

MANTA_API const char *manta_task_name(const manta_task *t);
MANTA_API const char *manta_task_label(const manta_task *t); /* the name in its options; "" none */
MANTA_API uint64_t manta_task_id(const manta_task *t);
MANTA_API int manta_task_attempt(const manta_task *t); /* 0, and more after worker deaths */
MANTA_API bool manta_task_is_cancelled(const manta_task *t);
/* From here on a cancel of this call ends none of its waits: it looks for itself. Its results are
 * MANTA_ECANCELLED all the same. To be called by the function's own thread. */
MANTA_API void manta_task_stay_calm(manta_task *t);

/* Has a call of an actor go on after its function has returned, until manta_task_finish(): for
 * actors that wait for many things at once in few threads, such as an event loop. The
 * actor takes its next call as soon as the function returns, whose status is then not looked at;
 * what is deferred does not count for max_concurrency. Until it is finished t is valid and
 * may be used as inside the function, by one thread at a time and any thread of the process,
 * which then waits for itself: a cancel of the call does not end its waits. Arguments stay
 * readable, results may be returned and items yielded.
 * An actor that is to end waits for its deferred calls; one that dies fails them as others.
 * Without other processes the call that made it waits until it is finished, by another thread.
 * MANTA_EINVAL it is no call of an actor, or its constructor. */
MANTA_API manta_status manta_task_defer(manta_task *t) MANTA_MUST_USE;
/* Ends a deferred call as if its function had returned `status` now; t is gone afterwards. For a
 * failure, this thread's last error (manta_error_text()) is the sentence, or what
 * manta_fail_with() was given for t. Without effect on a call that was not deferred. */
MANTA_API void manta_task_finish(manta_task *t, manta_status status);

/* ---- ending a call ---- */

enum {
    MANTA_CANCEL_FORCE = 1, /* kill the worker, and with it those that run its own calls */
    MANTA_CANCEL_ALONE = 2 /* leave the calls alone that it has made itself */
};

/* Ends a call: one that has not begun never will; one that runs is told
 * (manta_task_is_cancelled()), and its waits in this header's functions end
 * with MANTA_ECANCELLED; the calls it has made, and theirs, are cancelled too,
 * and it can make no more. `how`: 0, or some of the above. Its results are
 * MANTA_ECANCELLED. Without effect on a call that has ended. MANTA_EINVAL a
 * running call of an actor cannot be forced to end (manta_actor_kill()), nor one
 * that the process which has made it runs itself. */
MANTA_API manta_status manta_cancel(manta_ref ref, unsigned how) MANTA_MUST_USE;

/* Chooses, for the calls that this process makes and those that it runs as a worker, whether a function that was
 * told to end and returns all the same has its results, as in Ray. At first it has not: they are MANTA_ECANCELLED, as
 * those of methods always are. To be called in the same way in all processes of a program, before they call. */
MANTA_API void manta_set_cancel_keeps(bool on);

#ifdef __cplusplus
}
#endif
#endif
