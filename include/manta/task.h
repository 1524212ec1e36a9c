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
#include <manta/option.h>
#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_FOREVER (-1) /* a timeout that never comes */

typedef struct manta_ref {
    uint64_t id; /* 0: no reference */
} manta_ref;

typedef struct manta_actor {
    uint64_t id; /* 0: no actor */
} manta_actor;

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
     * start` began, and an error when there is none. A path or a pid: that node. NULL
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

/* ---- arguments ---- */

typedef enum manta_kind {
    MANTA_KIND_NONE = 0,
    MANTA_KIND_F64,
    MANTA_KIND_I64,
    MANTA_KIND_BOOL,
    MANTA_KIND_STR,
    MANTA_KIND_BYTES,
    MANTA_KIND_ARRAY,
    MANTA_KIND_REFS, /* references that stay references */
    MANTA_KIND_ACTOR, /* a handle */
    MANTA_KIND_REF, /* an argument only: resolved before the call */
    MANTA_KIND_PACKED /* bytes, blocks, references and handles together: manta/packed.h */
} manta_kind;

struct manta_packed;

/* A value on its way; it owns nothing and must be used at once. */
typedef struct manta_arg {
    manta_kind kind;
    union {
        double f64;
        int64_t i64;
        uint64_t id;
        struct {
            const void *at;
            size_t n; /* bytes, or references */
        } bytes;
        const manta_array *array;
        const struct manta_packed *packed;
    } as;
} manta_arg;

static inline manta_arg manta_f64(double x)
{
    manta_arg a;

    a.kind = MANTA_KIND_F64;
    a.as.f64 = x;
    return a;
}

static inline manta_arg manta_i64(int64_t x)
{
    manta_arg a;

    a.kind = MANTA_KIND_I64;
    a.as.i64 = x;
    return a;
}

static inline manta_arg manta_bool(bool x)
{
    manta_arg a;

    a.kind = MANTA_KIND_BOOL;
    a.as.i64 = x;
    return a;
}

static inline manta_arg manta_bytes(const void *at, size_t n)
{
    manta_arg a;

    a.kind = MANTA_KIND_BYTES;
    a.as.bytes.at = at;
    a.as.bytes.n = n;
    return a;
}

MANTA_API manta_arg manta_str(const char *s);

/* The elements of *a are copied when the call is made; strides may be any. */
static inline manta_arg manta_elements(const manta_array *array)
{
    manta_arg a;

    a.kind = MANTA_KIND_ARRAY;
    a.as.array = array;
    return a;
}

/* n references that the function receives as references. */
static inline manta_arg manta_refs(const manta_ref *refs, size_t n)
{
    manta_arg a;

    a.kind = MANTA_KIND_REFS;
    a.as.bytes.at = refs;
    a.as.bytes.n = n;
    return a;
}

static inline manta_arg manta_handle(manta_actor actor)
{
    manta_arg a;

    a.kind = MANTA_KIND_ACTOR;
    a.as.id = actor.id;
    return a;
}

static inline manta_arg manta_of_ref(manta_ref r)
{
    manta_arg a;

    a.kind = MANTA_KIND_REF;
    a.as.id = r.id;
    return a;
}

static inline manta_arg manta_of_arg(manta_arg a)
{
    return a;
}

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

typedef struct manta_placement_group {
    uint64_t id; /* 0: no placement group */
} manta_placement_group;

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

/* ---- objects ---- */

/* Makes a value an object. Latches errors like manta_remote(). */
MANTA_API manta_ref manta_put(manta_arg value);

/* An object to be filled in place: *out is writable until manta_seal(), after
 * which it is as if put. MANTA_ENOSPC the store is full. */
MANTA_API manta_status manta_create(manta_dtype dtype, int ndim, const int64_t *shape, manta_array *out,
                                    manta_ref *ref) MANTA_MUST_USE;
MANTA_API manta_status manta_seal(manta_ref ref) MANTA_MUST_USE;

/* A reference to a value that this process gives later: it can be passed on, waited for and released as any
 * other. It ends with this process (MANTA_FAILURE_LOST) if it is not settled before. Latches errors like
 * manta_remote(). */
MANTA_API manta_ref manta_promise(void);
/* The promise becomes what `as` is: a copy of its value, or its failure. MANTA_EINVAL it is no promise, or
 * was settled; MANTA_ETIMEDOUT `as` is not there yet; MANTA_ENOSPC the store is full: it stays a promise. */
MANTA_API manta_status manta_promise_settle(manta_ref promise, manta_ref as) MANTA_MUST_USE;
/* The promise fails. MANTA_EINVAL it is no promise, or was settled. */
MANTA_API manta_status manta_promise_break(manta_ref promise, manta_status code,
                                           const char *text) MANTA_MUST_USE;

/* Waits for the object at most timeout_ms (0: not at all). MANTA_OK it is
 * there; MANTA_ETIMEDOUT; else the failure of the call that was to make it. */
MANTA_API manta_status manta_get(manta_ref ref, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_f64(manta_ref ref, double *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_i64(manta_ref ref, int64_t *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_bool(manta_ref ref, bool *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_str(manta_ref ref, const char **out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_bytes(manta_ref ref, const void **at, size_t *n,
                                       int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_array(manta_ref ref, manta_array *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_refs(manta_ref ref, const manta_ref **out, size_t *n,
                                      int64_t timeout_ms) MANTA_MUST_USE;
/* The value of an object of any kind: out->kind says which, and `as` has it, as the function of
 * manta_f64() .. manta_handle() that makes such an argument would; of an array *array is the
 * view, to which out->as.array points. Of a packed value only the kind is told, which
 * manta_get_packed() reads. Pointers are valid as those of the other functions. */
MANTA_API manta_status manta_get_value(manta_ref ref, manta_arg *out, manta_array *array,
                                       int64_t timeout_ms) MANTA_MUST_USE;
/* Copies the array into memory of the caller's own, which may be written to and is
 * given back with free(). The object itself stays as it is, and free to leave
 * memory. Fails as manta_get_array() does; MANTA_ENOMEM no memory for the copy. */
MANTA_API manta_status manta_get_copy(manta_ref ref, manta_array *out, int64_t timeout_ms) MANTA_MUST_USE;
/* Waits for all; the first failure in the order given is returned as soon as
 * it is known. */
MANTA_API manta_status manta_get_all(const manta_ref *refs, size_t n, int64_t timeout_ms) MANTA_MUST_USE;

/* Waits until num_returns of the n references are ready (there, or failed) or
 * the time is over. ready[i] says which, for at most num_returns of them, the
 * first in order; *n_ready (may be NULL) how many. That the time is over is no
 * failure: the status is MANTA_OK, and *n_ready less than num_returns. MANTA_EINVAL
 * a reference that is none, or is given twice. */
MANTA_API manta_status manta_wait(const manta_ref *refs, size_t n, size_t num_returns, int64_t timeout_ms,
                                  bool *ready, size_t *n_ready) MANTA_MUST_USE;

/* When the store's memory is full, objects that nobody reads are written to
 * disk and brought back by the next manta_get; putting and getting wait for
 * that. An object is read from the manta_get that delivers a pointer to it
 * until the reference is released, and during calls that have it as an
 * argument. When what is in the way is in use elsewhere, a put waits up to five
 * seconds for it; when it is in use by the process itself, or cannot be
 * written, the put fails at once with MANTA_ENOSPC (MANTA_FAILURE_FULL).
 *
 * manta_pin() brings an object that is there into memory, where it stays, at
 * the same address, until as many manta_unpin() or the last release in this
 * process. MANTA_ETIMEDOUT it is not there yet. */
MANTA_API manta_status manta_pin(manta_ref ref) MANTA_MUST_USE;
MANTA_API void manta_unpin(manta_ref ref);
/* Gives back the pointers to the object that manta_get_...() has delivered to this process so far: unless it is
 * pinned, it is not read any more, and free to leave memory. Accepts what is no reference. */
MANTA_API void manta_unread(manta_ref ref);

/* One holder more, one holder less. The last release in the whole node gives
 * the memory back. */
MANTA_API manta_status manta_retain(manta_ref ref) MANTA_MUST_USE;
MANTA_API void manta_release(manta_ref ref); /* accepts no reference */
MANTA_API void manta_release_all(const manta_ref *refs, size_t n);

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

/* ---- results that come one by one ---- */

typedef struct manta_stream {
    uint64_t id; /* 0: no stream */
} manta_stream;

/* manta_remote_stream(options, fn, args...): calls a function that yields. */
#define manta_remote_stream(options, ...)                                                                    \
    manta_stream_start(MANTA_NAME_(__VA_ARGS__, ), (options), MANTA_COUNT_(__VA_ARGS__) - 1,                 \
                       (MANTA_LIST_(__VA_ARGS__)) + 1)
MANTA_API manta_stream manta_stream_start(const char *name, const manta_task_options *options, int n_args,
                                          const manta_arg *args);
/* manta_actor_stream(actor, options, method, args...): of an actor. */
#define manta_actor_stream(actor, options, ...)                                                              \
    manta_actor_stream_start((actor), MANTA_NAME_(__VA_ARGS__, ), (options), MANTA_COUNT_(__VA_ARGS__) - 1,  \
                             (MANTA_LIST_(__VA_ARGS__)) + 1)
MANTA_API manta_stream manta_actor_stream_start(manta_actor actor, const char *method,
                                                const manta_task_options *options, int n_args,
                                                const manta_arg *args);
/* The next item, in order; release it. MANTA_ENOENT the function has ended and
 * all items were taken; MANTA_ETIMEDOUT; else the failure of the call, after
 * the items that came before it. */
MANTA_API manta_status manta_stream_next(manta_stream s, manta_ref *out, int64_t timeout_ms) MANTA_MUST_USE;
/* Waits until manta_stream_next() would not wait, and takes nothing: the function is held back as
 * before. MANTA_OK an item is there, or the failure of the call; MANTA_ENOENT the function has ended and
 * all items were taken; MANTA_ETIMEDOUT; MANTA_EINVAL the stream is none, or was closed. */
MANTA_API manta_status manta_stream_wait(manta_stream s, int64_t timeout_ms) MANTA_MUST_USE;
/* A reference to the end of the stream, to be released: it is ready when the function has
 * ended, without a value, and its failure is the stream's. MANTA_EINVAL the stream is none, or
 * was closed. */
MANTA_API manta_status manta_stream_end(manta_stream s, manta_ref *out) MANTA_MUST_USE;
/* Gives the stream back; a call that still runs is cancelled. */
MANTA_API void manta_stream_close(manta_stream s);
/* Gives the stream back and leaves the call alone: it goes on, nothing holds it back any more, and what
 * it yields is dropped. */
MANTA_API void manta_stream_leave(manta_stream s);

/* Inside a function called as a stream: the next item. Waits while the caller
 * is 8 items behind, or as many as its options say. MANTA_ECANCELLED nobody takes them any more: return. */
MANTA_API manta_status manta_yield(manta_task *t, manta_arg item) MANTA_MUST_USE;
/* Waits until manta_yield() would not wait, for functions that make their items only when there is
 * room for them. With a `limit` above 0 it waits besides until the streams that run in this
 * process, such as those of one actor, have fewer than `limit` items together that are promised, or
 * sent and not taken; then the next `n` of this stream are promised, until they are
 * yielded, it ends or manta_yield_taken() is called. MANTA_ECANCELLED as manta_yield(); MANTA_ETIMEDOUT. */
MANTA_API manta_status manta_yield_room(manta_task *t, uint64_t n, uint64_t limit,
                                        int64_t timeout_ms) MANTA_MUST_USE;
/* Waits until the caller has taken all items. MANTA_ECANCELLED as manta_yield(); MANTA_ETIMEDOUT. */
MANTA_API manta_status manta_yield_taken(manta_task *t, int64_t timeout_ms) MANTA_MUST_USE;

/* ---- why something failed ---- */

typedef enum manta_failure_kind {
    MANTA_FAILURE_NONE = 0,
    MANTA_FAILURE_TASK, /* the function returned a failure */
    MANTA_FAILURE_WORKER, /* its process died */
    MANTA_FAILURE_ACTOR, /* the actor is dead for good */
    MANTA_FAILURE_UNKNOWN, /* the actor died during the call: it may have happened or not */
    MANTA_FAILURE_CANCELLED,
    MANTA_FAILURE_LOST, /* its bytes are gone, or the process that was to make it is */
    MANTA_FAILURE_FULL, /* the store has no room */
    MANTA_FAILURE_IMPOSSIBLE, /* no node could ever run it; said at submit */
    MANTA_FAILURE_NODE, /* the node is gone, or there is none */
    MANTA_FAILURE_SUBMIT, /* the call itself was wrong */
    MANTA_FAILURE_UNAVAILABLE, /* the actor is being restarted, and its calls do not wait for that */
    MANTA_FAILURE_MEMORY, /* its process had more memory than it may */
    MANTA_FAILURE_PLACEMENT_GROUP /* its placement group was removed */
} manta_failure_kind;

/* A function that returns the failure of a call it made passes it on as it is,
 * and its own name is added to the chain. */
typedef struct manta_failure {
    manta_failure_kind kind;
    manta_status code;
    int pid; /* of the process it arose in, 0 when none is to blame */
    char function[64];
    char host[64];
    char chain[192]; /* "outer > inner": who called whom; "" when no function is to blame */
    char text[440];
} manta_failure;

/* What is wrong with an object; kind MANTA_FAILURE_NONE when nothing is (yet). */
MANTA_API void manta_failure_get(manta_ref ref, manta_failure *out);

/* Fails a call with more than a short sentence: records it and returns `code`, for
 * `return manta_fail_with(...)` in the function that runs. `text` may have any length;
 * `payload` is any bytes for whoever reads the failure, such as an exception of
 * another language: as many as an object may have, 0: none. Both are copied, and
 * travel wherever the failure goes: to calls with the result as an argument, to
 * callers of callers whose functions return it as it is, to every call of an actor
 * whose constructor failed. When the store has no room for them the failure travels without
 * them, and its text says so. The last of several counts; a function that returns
 * another code fails without it. MANTA_EINVAL is recorded in place of MANTA_OK. */
MANTA_API manta_status manta_fail_with(manta_task *t, manta_status code, const char *text,
                                       const void *payload, size_t size) MANTA_MUST_USE;

/* The payload of a failure; *n 0 and *at NULL when it has none. Read-only, 64-byte
 * aligned, valid until the reference is released. MANTA_EINVAL the object has not
 * failed; MANTA_EIO and others: the bytes are lost, as those of an object may be. */
MANTA_API manta_status manta_failure_payload(manta_ref ref, const void **at, size_t *n) MANTA_MUST_USE;

/* The whole text of a failure, of which manta_failure.text has the beginning. Valid, and
 * fails, as the payload. */
MANTA_API manta_status manta_failure_text(manta_ref ref, const char **out) MANTA_MUST_USE;

/* ---- actors ---- */

/* manta_actor_new(options, constructor, args...): a process that keeps state
 * between calls. The constructor is a remote function; it calls
 * manta_set_self(). Calls of one caller run in the order in which they were
 * made. Latches: an actor whose constructor failed fails every call with that
 * failure. Actors that run one call at a time and wait for each other, or for
 * themselves, without a time limit are told: one of these calls fails with
 * MANTA_EBUSY. */
#define manta_actor_new(options, ...)                                                                        \
    manta_actor_start(MANTA_NAME_(__VA_ARGS__, ), (options), MANTA_COUNT_(__VA_ARGS__) - 1,                  \
                      (MANTA_LIST_(__VA_ARGS__)) + 1)
/* manta_actor_call(actor, method, args...): a method is a remote function too.
 * manta_actor_call_with() has options, of which max_task_retries, retry_errors,
 * retry_on, name and concurrency_group matter, before those of the actor. */
#define manta_actor_call_with(actor, options, ...)                                                           \
    manta_actor_submit_one_with((actor), MANTA_NAME_(__VA_ARGS__, ), (options),                              \
                                MANTA_COUNT_(__VA_ARGS__) - 1, (MANTA_LIST_(__VA_ARGS__)) + 1)
#define manta_actor_call(actor, ...)                                                                         \
    manta_actor_submit_one((actor), MANTA_NAME_(__VA_ARGS__, ), MANTA_COUNT_(__VA_ARGS__) - 1,               \
                           (MANTA_LIST_(__VA_ARGS__)) + 1)

MANTA_API manta_actor manta_actor_start(const char *constructor, const manta_task_options *options,
                                        int n_args, const manta_arg *args);
MANTA_API void manta_actor_submit(manta_actor actor, const char *method, int n_args, const manta_arg *args,
                                  int results, manta_ref *out);
MANTA_API manta_ref manta_actor_submit_one(manta_actor actor, const char *method, int n_args,
                                           const manta_arg *args);
MANTA_API void manta_actor_submit_with(manta_actor actor, const char *method,
                                       const manta_task_options *options, int n_args, const manta_arg *args,
                                       int results, manta_ref *out);
MANTA_API manta_ref manta_actor_submit_one_with(manta_actor actor, const char *method,
                                                const manta_task_options *options, int n_args,
                                                const manta_arg *args);

/* The state of the actor that a method runs in, as its constructor set it;
 * NULL outside actors. `end` (may be NULL) is called when the actor ends
 * gracefully. */
MANTA_API void *manta_self(const manta_task *t);
MANTA_API void manta_set_self(manta_task *t, void *self, void (*end)(void *self));

/* The concurrency group that the call runs in; "": it is in none. */
MANTA_API const char *manta_task_group(const manta_task *t);

/* Waits until the constructor has run. */
MANTA_API manta_status manta_actor_ready(manta_actor actor, int64_t timeout_ms) MANTA_MUST_USE;
/* The actor of that name in the program's own name space, or in one that is
 * named. MANTA_ENOENT there is none. Release the handle. */
MANTA_API manta_status manta_actor_find(const char *name, manta_actor *out) MANTA_MUST_USE;
MANTA_API manta_status manta_actor_find_in(const char *name_space, const char *name,
                                           manta_actor *out) MANTA_MUST_USE;
/* Ends the actor when the calls it has are done; the function of
 * manta_set_self() is called, and it is not restarted. From inside, too. */
MANTA_API manta_status manta_actor_end(manta_actor actor) MANTA_MUST_USE;
/* A handle of the actor that `t` is a call of, or its constructor; t NULL: that of this process. Release
 * it: the actor lives as long. MANTA_EINVAL there is no actor here. */
MANTA_API manta_status manta_actor_here(const manta_task *t, manta_actor *out) MANTA_MUST_USE;
/* Ends the actor that `t` is a call of, or its constructor; t NULL: that of this process, for threads
 * that it has started. Calls that run are finished; this one, those that wait and those that
 * come fail with MANTA_FAILURE_ACTOR, whatever this one returns. The function of manta_set_self() is
 * called when the last has ended, before who called this one hears of it, and the actor is not restarted. MANTA_EINVAL there is no actor here. */
MANTA_API manta_status manta_exit_actor(manta_task *t) MANTA_MUST_USE;
/* Kills the process at once; it is not restarted when no_restart is set. */
MANTA_API manta_status manta_actor_kill(manta_actor actor, bool no_restart) MANTA_MUST_USE;
/* One handle less; the actor ends, when its calls are done, with the last. */
MANTA_API void manta_actor_release(manta_actor actor); /* accepts no actor */
MANTA_API int manta_actor_pid(manta_actor actor); /* 0 while it is not known */

/* ---- many inputs, few actors ---- */

/* A pool gives calls to actors so that each has one at a time, and hands the
 * results out in the order of the calls or as they come. One thread at a time. */
typedef struct manta_pool manta_pool;

/* The actors stay the caller's, and must live as long as the pool.
 * *out: give back with manta_pool_free(). MANTA_EINVAL n < 1. */
MANTA_API manta_status manta_pool_new(int n, const manta_actor *actors, manta_pool **out) MANTA_MUST_USE;
MANTA_API void manta_pool_free(manta_pool *p); /* releases results not taken; accepts NULL */

/* manta_pool_call(pool, timeout_ms, method, args...): waits for an actor that
 * has nothing to do and calls it. MANTA_ETIMEDOUT none had. */
#define manta_pool_call(pool, timeout_ms, ...)                                                               \
    manta_pool_submit((pool), MANTA_NAME_(__VA_ARGS__, ), MANTA_COUNT_(__VA_ARGS__) - 1,                     \
                      (MANTA_LIST_(__VA_ARGS__)) + 1, (timeout_ms))
MANTA_API manta_status manta_pool_submit(manta_pool *p, const char *method, int n_args, const manta_arg *args,
                                         int64_t timeout_ms) MANTA_MUST_USE;
/* How many results have not been taken. */
MANTA_API size_t manta_pool_pending(const manta_pool *p);
/* The oldest result, or whichever is ready first; release it. MANTA_ENOENT
 * there is none left; MANTA_ETIMEDOUT. */
MANTA_API manta_status manta_pool_next(manta_pool *p, manta_ref *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_pool_next_ready(manta_pool *p, manta_ref *out,
                                             int64_t timeout_ms) MANTA_MUST_USE;

/* How many actors have nothing to do. */
MANTA_API int manta_pool_idle(manta_pool *p);
/* Takes an actor out that has nothing to do; it is the caller's as before.
 * MANTA_ENOENT there is none. */
MANTA_API manta_status manta_pool_pop(manta_pool *p, manta_actor *out) MANTA_MUST_USE;
MANTA_API void manta_pool_push(manta_pool *p, manta_actor actor); /* one more */

/* ---- one function, many inputs ---- */

/* manta_map(fn, options, input, user, &m), then manta_map_next() until
 * MANTA_ENOENT: calls fn(input i) for i = 0, 1, ... One thread at a time. */
typedef struct manta_map manta_map;

/* Makes input i, which may be a reference; called in order, as room comes free.
 * What *out points to must stay until the next call of it. MANTA_ENOENT: there
 * are no more; another status ends the map with it. */
typedef manta_status manta_map_input(void *user, size_t i, manta_arg *out);

typedef struct manta_map_options {
    const manta_task_options *task;
    size_t chunk; /* inputs that travel, and run, together; 0: 1; at most 256 */
    size_t window; /* chunks that are submitted and not taken; 0: 4 for each core, 2 for each actor */
    bool unordered; /* results as they come; else in the order of the inputs */
    int n_actors; /* not 0: fn is a method of these */
    const manta_actor *actors; /* which stay the caller's */
} manta_map_options;

#define manta_map(fn, options, input, user, out) manta_map_start(#fn, (options), (input), (user), (out))
/* *out: give back with manta_map_free(). `options` may be NULL. */
MANTA_API manta_status manta_map_start(const char *function, const manta_map_options *options,
                                       manta_map_input *input, void *user, manta_map **out) MANTA_MUST_USE;
/* The next result, and the number of its input (index may be NULL); release it.
 * A call that failed is a result whose manta_get says so, also within a chunk.
 * MANTA_ENOENT all were taken; MANTA_ETIMEDOUT. */
MANTA_API manta_status manta_map_next(manta_map *m, size_t *index, manta_ref *out,
                                      int64_t timeout_ms) MANTA_MUST_USE;
/* Cancels what was not taken. Accepts NULL. */
MANTA_API void manta_map_free(manta_map *m);

/* ---- a queue between processes ---- */

/* An actor that holds items; hand it on with manta_handle(q.actor). Items come
 * out in the order in which they went in. */
typedef struct manta_queue {
    manta_actor actor;
} manta_queue;

/* At most `capacity` items; 0: no bound. `options` (may be NULL) are the actor's.
 * Release it. Untouched on failure. */
MANTA_API manta_status manta_queue_new(size_t capacity, const manta_task_options *options,
                                       manta_queue *out) MANTA_MUST_USE;
MANTA_API void manta_queue_release(manta_queue q);
/* Waits for room. Several go in together or not at all. MANTA_ETIMEDOUT the
 * queue is full. A reference (manta_of_ref()) goes in as it is. */
MANTA_API manta_status manta_queue_put(manta_queue q, manta_arg item, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_queue_put_all(manta_queue q, const manta_arg *items, size_t n,
                                           int64_t timeout_ms) MANTA_MUST_USE;
/* Waits for an item, or for at least `least`, and takes at most `most`; release
 * them. MANTA_ETIMEDOUT the queue is empty, or has fewer. */
MANTA_API manta_status manta_queue_get(manta_queue q, manta_ref *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_queue_get_many(manta_queue q, size_t least, size_t most, manta_ref *out,
                                            size_t *n, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_queue_size(manta_queue q, size_t *out) MANTA_MUST_USE;

/* ---- placement groups ---- */

/* Bundles of resources that are reserved together, before anyone uses them, for
 * the tasks and actors whose options name the group. On one host PACK, SPREAD
 * and STRICT_PACK come to the same, and STRICT_SPREAD can hold one bundle. */
typedef enum manta_placement {
    MANTA_PLACEMENT_PACK = 0, /* on few nodes, if possible on one */
    MANTA_PLACEMENT_SPREAD, /* on many nodes, if possible */
    MANTA_PLACEMENT_STRICT_PACK, /* on one node */
    MANTA_PLACEMENT_STRICT_SPREAD /* each bundle on a node of its own */
} manta_placement;

#define MANTA_PLACEMENT_GROUP_BUNDLES 64 /* most of one group */

typedef struct manta_bundle {
    double num_cpus, num_gpus;
    uint64_t memory;
    const char *resources;
} manta_bundle;

typedef struct manta_placement_group_info {
    char name[64];
    manta_placement how;
    char how_name[16]; /* "STRICT_PACK" */
    bool removed;
    int n_bundles;
    char bundles[MANTA_PLACEMENT_GROUP_BUNDLES][96]; /* "cpu=1,disk=2" */
} manta_placement_group_info;

/* Asks for a group; it has its place when enough is free. It lasts until it is
 * removed, or the process that made it ends. `name` may be NULL.
 * MANTA_EUNSUPPORTED it can never be placed, with what is missing; MANTA_EINVAL
 * an empty bundle; MANTA_EEXIST the name is taken. */
MANTA_API manta_status manta_placement_group_new(const manta_bundle *bundles, int n, manta_placement how,
                                                 const char *name, manta_placement_group *out) MANTA_MUST_USE;
/* A reference that is ready when the group has its place; release it. */
MANTA_API manta_ref manta_placement_group_ready(manta_placement_group group);
MANTA_API manta_status manta_placement_group_wait(manta_placement_group group,
                                                  int64_t timeout_ms) MANTA_MUST_USE;
/* Gives the bundles back. Processes that run in them are killed, and their
 * calls, like those that wait, fail with MANTA_FAILURE_PLACEMENT_GROUP. Accepts no group. */
MANTA_API void manta_placement_group_remove(manta_placement_group group);
/* The group of that name. MANTA_ENOENT there is none. */
MANTA_API manta_status manta_placement_group_find(const char *name,
                                                  manta_placement_group *out) MANTA_MUST_USE;
MANTA_API manta_status manta_placement_group_get(manta_placement_group group,
                                                 manta_placement_group_info *out) MANTA_MUST_USE;

/* ---- the node, and where one is ---- */

typedef struct manta_resource {
    char name[32]; /* "cpu", "gpu", "memory" (bytes), and those of the node's options */
    double total, available; /* available: what neither a call nor a group holds */
} manta_resource;

typedef struct manta_node_info {
    uint64_t node; /* number of the node */
    int n_resources;
    manta_resource resources[16];
    int daemon_pid, keeper_pid, zygote_pid;
    double cpus, free_cpus, gpus, free_gpus;
    int workers, actors, leases;
    uint64_t objects; /* objects that the daemon holds for more than one process */
    uint64_t store_limit, store_used; /* bytes of segments in memory */
    uint64_t spill_used; /* bytes on disk */
    uint64_t spill_written, spill_read; /* bytes that went there and came back, since the start */
    uint64_t tasks_done; /* tasks that have ended in this process */
    int n_worker_pids;
    int worker_pids[64];
} manta_node_info;

/* Asks the daemon. */
MANTA_API manta_status manta_node_get(manta_node_info *out) MANTA_MUST_USE;

typedef struct manta_context {
    uint64_t node;
    uint32_t worker; /* number of this process in the node; never used again */
    int pid;
    bool is_worker, in_process;
    /* of the call; zeros outside calls */
    uint64_t task;
    char function[64], name[64]; /* name: of the options */
    int attempt;
    bool is_cancelled;
    /* what it holds */
    double cpus, gpus;
    uint64_t memory;
    char resources[256]; /* "cpu=1,disk=2" */
    int n_gpu_ids, gpu_ids[16]; /* its devices, from 0: its own, or shared when it has a part of one;
                                 no variable of the environment is touched */
    manta_placement_group placement_group;
    int bundle; /* counted from 1; 0: none */
    /* of the actor that this process is */
    manta_actor actor; /* borrowed */
    char actor_name[64];
    bool was_restarted;
} manta_context;

/* Where this runs, and what it may use. `t` may be NULL, outside calls. Asks the
 * daemon. */
MANTA_API manta_status manta_context_get(const manta_task *t, manta_context *out) MANTA_MUST_USE;

/* ---- behind the macros ---- */

#define MANTA_NAME_(fn, ...)                                                #fn
#define MANTA_COUNT_(...)                                                   MANTA_16TH_(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, )
#define MANTA_16TH_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, N, ...) N

#ifdef __cplusplus
}
static inline manta_arg manta_any(manta_ref r)
{
    return manta_of_ref(r);
}
static inline manta_arg manta_any(manta_arg a)
{
    return a;
}
struct manta_arg_list { /* C++ has no compound literals */
    manta_arg at[16];
};
#define MANTA_ANY_(x)    manta_any(x)
#define MANTA_LIST_(...) (manta_arg_list{{manta_i64(0) MANTA_EACH_(__VA_ARGS__)}}.at)
#else
#define MANTA_ANY_(x) _Generic((x), manta_ref : manta_of_ref, manta_arg : manta_of_arg)(x)
#define MANTA_LIST_(...)                                                                                     \
    ((const manta_arg[MANTA_COUNT_(__VA_ARGS__)]){{MANTA_KIND_NONE, {0}} MANTA_EACH_(__VA_ARGS__)})
#endif

#define MANTA_EACH_(...)      MANTA_EACH_N_(MANTA_COUNT_(__VA_ARGS__), __VA_ARGS__)
#define MANTA_EACH_N_(n, ...) MANTA_EACH_M_(n, __VA_ARGS__)
#define MANTA_EACH_M_(n, ...) MANTA_EACH_##n##_(__VA_ARGS__, )
#define MANTA_EACH_1_(f, ...)
#define MANTA_EACH_2_(f, a, ...)  , MANTA_ANY_(a)
#define MANTA_EACH_3_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_2_(f, __VA_ARGS__)
#define MANTA_EACH_4_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_3_(f, __VA_ARGS__)
#define MANTA_EACH_5_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_4_(f, __VA_ARGS__)
#define MANTA_EACH_6_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_5_(f, __VA_ARGS__)
#define MANTA_EACH_7_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_6_(f, __VA_ARGS__)
#define MANTA_EACH_8_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_7_(f, __VA_ARGS__)
#define MANTA_EACH_9_(f, a, ...)  , MANTA_ANY_(a) MANTA_EACH_8_(f, __VA_ARGS__)
#define MANTA_EACH_10_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_9_(f, __VA_ARGS__)
#define MANTA_EACH_11_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_10_(f, __VA_ARGS__)
#define MANTA_EACH_12_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_11_(f, __VA_ARGS__)
#define MANTA_EACH_13_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_12_(f, __VA_ARGS__)
#define MANTA_EACH_14_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_13_(f, __VA_ARGS__)
#define MANTA_EACH_15_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_14_(f, __VA_ARGS__)
#define MANTA_EACH_16_(f, a, ...) , MANTA_ANY_(a) MANTA_EACH_15_(f, __VA_ARGS__)

#endif
