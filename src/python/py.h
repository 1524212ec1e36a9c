/* py.h - what the files of the extension share. Private to python/.
 *
 * This is the one place that includes Python.h. The extension is built for the stable C
 * interface of Python 3.11; what that lacks is not used, so that a build for one version of
 * Python (free-threaded ones need it) is a matter of leaving Py_LIMITED_API out.
 *
 * All Python objects that the extension keeps hang on py, the module's state. There is one:
 * a process has one runtime, and a second interpreter is refused.
 *
 * Threads: whoever calls a function here holds the interpreter's lock, unless it says so. */
#ifndef PYTHON_PY_H
#define PYTHON_PY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <stdint.h>

#include <manta/code.h>
#include <manta/nursery.h>
#include <manta/packed.h>
#include <manta/stream.h>
#include <manta/task.h>

#define PY_NAME   28 /* bytes of a reference that the program makes of bytes, as Ray has them */
#define PY_COPIED 8192 /* bytes up to which a value is copied, not kept in the store by a view */
#define PY_STORED                                                                                            \
    8192 /* bytes above which a value lies in the store, where it is let go once it was decoded */
#define PY_KEPT  1048576 /* bytes from which on an argument stays in the store, and is read there */
#define PY_QUICK 65536 /* bytes up to which the interpreter is kept while they are copied */

/* What Python does for C (set_hooks(), in python/manta/_core.py). */
typedef enum py_hook {
    PY_HOOK_DUMP, /* dump(value) -> (pickle, list of buffers) */
    PY_HOOK_LOAD, /* load(pickle, list of buffers) -> value */
    PY_HOOK_FUNCTION, /* function(name, captured) -> what a call of that name calls */
    PY_HOOK_FAILED, /* failed(exception, name, actor, how) -> (text, payload, whether it is tried again) */
    PY_HOOK_ERROR, /* error(status, text, failure, payload) -> exception to raise */
    PY_HOOK_PREPARE, /* prepare(function): before the first call of it in a life of the runtime */
    PY_HOOK_AWAIT, /* await_ref(ref) -> iterator, of ObjectRef.__await__ */
    PY_HOOK_FUTURE, /* future(ref) -> concurrent.futures.Future */
    PY_HOOK_START, /* start(environment): in a new worker */
    PY_HOOK_COROUTINE, /* coroutine(awaitable, deferred, how): a method goes on in the loop; None: in its reader */
    PY_HOOK_REDUCE, /* reduce(actor) -> what pickle wants of a handle */
    PY_HOOK_END, /* end(): in a worker that ends */
    PY_HOOK_METHOD, /* method(actor, name): one that every actor has */
    PY_HOOK_ITEMS, /* items(result, how) -> iterator, of a call that yields */
    PY_HOOK_LIMIT, /* limit(n, class) -> what constructs the actor, of which n coroutines may run at once */
    PY_HOOK_CANCEL, /* cancel(task): a call of this process was cancelled */
    PY_HOOK_LOOPED, /* looped(method) -> what a call of it calls, of an actor with coroutines */
    PY_HOOK_LEAVE, /* leave(actor): the actor ends as it should, and is no more after it */
    PY_HOOK_STREAM, /* stream(Stream) -> what the program sees of it */
    PY_HOOK_HOW, /* how(bytes) -> dict: what a call says besides its arguments */
    PY_HOOK_LOOSE, /* loose(ref) -> what pickle wants of a reference that is in no value of the runtime's */
    PY_HOOK_PRINTED, /* printed(stream, bytes): workers have printed; 1 is standard output, 2 standard error */
    PY_HOOK_GRANT, /* grant(processors): what this worker runs from now on has so many */
    PY_HOOK_APART, /* apart(call): run_apart(call), with context variables of its own */
    PY_HOOK_COUNT
} py_hook;

typedef struct py_state {
    PyObject *module;
    PyTypeObject *ref, *block, *function, *actor, *method, *stream, *watch, *run, *ranks, *dataset, *model,
        *session;
    PyObject *hooks[PY_HOOK_COUNT];
    PyTypeObject *ndarray; /* NULL: numpy was not met yet */
    PyObject *dtypes[MANTA_DTYPE_COUNT];
    PyObject *functions; /* in a worker: by name */
    PyObject *coroutine, *async_generator, *generator; /* the types */
    PyObject *flush; /* the text */
    PyObject *no_how; /* {}: what most calls say besides their arguments */
    manta_actor actor_here; /* that this process is; 0: none */
    PyObject *actor_self; /* its instance; NULL: it is not made yet, or no more */
    uint32_t life; /* of the runtime; 0: it does not run */
    uint32_t lives;
    bool is_worker, in_process;
    bool has_loop; /* the actor that this process is has coroutines */
    int pid; /* of the process that this is */
    unsigned long main_thread;
    int main_tid; /* the same thread, as the kernel knows it */
} py_state;

extern py_state *py; /* NULL before the module was made */

/* A text in a table of slots, whose pointers are not const. */
#define PY_DOC(text) ((void *)(uintptr_t)(text))

/* Lets go of what *at is and puts `o`, which it takes over, there. */
static inline void py_replace(PyObject **at, PyObject *o)
{
    PyObject *before = *at;

    *at = o;
    Py_XDECREF(before);
}

/* ---- fail.c ---- */

/* Sets the exception for this thread's last failure of the runtime; `ref`: the object that
 * failed, or none. Returns NULL. */
PyObject *py_raise(manta_status st, manta_ref ref);

/* Sets the exception of Python's own that fits this thread's last failure, of something that needs no runtime.
 * Returns NULL. */
PyObject *py_raise_plain(manta_status st);

/* Refuses to go on without a runtime: false with an exception. */
bool py_ready(void);

/* Whether the runtime still runs after Python code was run: false with an exception. */
bool py_still_runs(void);

/* Calls a hook with the arguments, NULL at the end; a new reference, or NULL with an exception. */
PyObject *py_ask(py_hook hook, ...);

/* ---- hooks.c ---- */

/* Whether a call with so many bytes is made outside. Without other processes it runs at once, and may wait
 * for threads of its own. */
#define PY_IS_SLOW(size) ((size) > PY_QUICK || py->in_process)
/* Around calls of the runtime that may take their time: the interpreter is given away, and shutdown()
 * waits for whoever is there. */
PyThreadState *py_leave(void);
void py_come_back(PyThreadState *left);

/* Has all waits end, and waits until no thread is in the runtime; then it may end. `at_exit`: other threads
 * of the program never come back. Without the interpreter's lock. */
void py_empty_runtime(bool at_exit);

/* The timeout of a Python call (None, or seconds) in milliseconds; false with an exception. */
bool py_timeout(PyObject *seconds, int64_t *ms);

typedef manta_status py_waiting(void *ctx, int64_t timeout_ms);

/* Runs what waits without the interpreter's lock: MANTA_EINTERRUPTED with an exception set when a
 * signal's handler raised one meanwhile. */
manta_status py_wait(py_waiting *waits, void *ctx, int64_t timeout_ms);

/* ---- drops.c: no lock is needed ---- */

typedef enum py_drop {
    PY_DROP_REF,
    PY_DROP_VIEW, /* a reference that is pinned as well */
    PY_DROP_ACTOR,
    PY_DROP_STREAM,
    PY_DROP_STREAM_LEFT
} py_drop;

/* Gives back a number that an object of Python held, later. Never waits. */
void py_drop_later(py_drop what, uint64_t id, uint32_t life);
/* Gives back now what was dropped, if it is much, or `all`. */
void py_drops_flush(bool all);
/* Around the end of the runtime: nothing is given back meanwhile, and what is left names nothing. */
void py_drops_stop(void);
void py_drops_go_on(void);
/* In a new process: nothing was dropped. */
void py_drops_forget(void);

/* ---- objects ---- */

typedef struct py_ref {
    PyObject head;
    manta_ref ref;
    uint32_t life;
    bool is_large; /* it was put here, and has PY_KEPT bytes or more */
    bool of_actor; /* it is the result of a method that was called here */
    PyObject *name; /* PY_NAME bytes that the program has named it by; NULL: it names an object */
    PyObject *weak;
} py_ref;

/* A new ObjectRef that takes over one hold of `ref`; on failure the hold is given back. */
PyObject *py_ref_take(manta_ref ref);
/* The reference of an ObjectRef; false with an exception when it is none, or of an earlier life. */
bool py_ref_of(PyObject *o, manta_ref *out);

typedef struct py_block {
    PyObject head;
    void *at;
    Py_ssize_t n;
    manta_ref ref; /* held, as long as the block lives; 0: the memory is `own` */
    uint32_t life;
    void *own;
    bool writable;
    struct py_block *next, *before; /* of those that hold a reference */
} py_block;

/* A block that keeps `ref`, which becomes held once more, to whose object the bytes belong. */
PyObject *py_block_of(manta_ref ref, const void *at, size_t n);
/* A block with a copy of the bytes. */
PyObject *py_block_copy(const void *at, size_t n, bool writable);
/* own(buffer): the buffer itself where it can be written to, else a block with a copy that can. */
PyObject *py_block_own(PyObject *self, PyObject *o);
/* Around the end of the runtime: the bytes of blocks that still live move to memory of this
 * process, at the same addresses. */
void *py_blocks_save(void);
void py_blocks_restore(void *saved);

typedef struct py_actor {
    PyObject head;
    manta_actor actor;
    uint32_t life;
} py_actor;

/* A new handle of class `cls`, which takes over one hold of `actor`. */
PyObject *py_actor_take(PyTypeObject *cls, manta_actor actor);
bool py_actor_of(PyObject *o, manta_actor *out);

/* ---- values ---- */

/* A Python value on its way: what `arg` points to belongs to it. */
typedef struct py_value {
    manta_arg arg;
    size_t size; /* bytes that will be copied, about */
    enum { PY_OWNS_NOTHING, PY_OWNS_VIEW, PY_OWNS_PACKED } owns;
    manta_packed packed;
    manta_array array;
    Py_buffer view;
    /* of a packed value */
    PyObject *keep;
    char *head; /* to be freed */
    Py_buffer *views;
    size_t n_views;
    manta_packed_block *blocks;
    manta_ref *refs;
    manta_actor *actors;
    size_t refs_room, actors_room;
    manta_ref kept; /* an object that was made for it, to be given back */
} py_value;

/* Encodes a value; false with an exception. Give *out back with py_value_release() in either case. */
bool py_encode(PyObject *o, py_value *out);
void py_value_release(py_value *v);
/* Encodes "the object of this reference", for an argument that its reader takes from the store: a view of it may
 * then outlive the call. */
bool py_encode_kept(manta_ref ref, py_value *out);
/* Makes a large value an object of its own and encodes that, if there is room for it. */
bool py_value_keep(py_value *v);
/* Adds a reference or a handle to a packed value: its index in it, or -1 with an exception. */
Py_ssize_t py_value_add_ref(py_value *v, manta_ref ref);
Py_ssize_t py_value_add_actor(py_value *v, manta_actor actor);

/* Encodes small containers as tags: 1 it was done, 0 it is not for tags, -1 an exception. */
int py_tags_write(PyObject *o, py_value *out);
PyObject *py_tags_read(const char *at, size_t n, const manta_packed *p);

/* The value of an object that is there (or that waits no longer than timeout_ms). */
PyObject *py_decode_object(manta_ref ref, bool copy);
/* Argument i of a call. */
PyObject *py_decode_argument(const manta_task *t, int i);

/* numpy's array type, if the program has imported numpy, or `import` says that it should. */
PyTypeObject *py_numpy(bool import);

/* Whether a value is being written on this thread. */
bool py_is_writing(void);

/* Indices of references and handles inside a pickle that is being written or read. */
PyObject *py_ref_index(PyObject *self, PyObject *ref);
PyObject *py_actor_index(PyObject *self, PyObject *actor);
PyObject *py_ref_at(PyObject *self, PyObject *i);
PyObject *py_actor_at(PyObject *self, PyObject *const *args, Py_ssize_t n);

/* ---- options and calls ---- */

typedef struct py_options {
    manta_task_options o;
    PyObject *keep; /* the texts */
} py_options;

bool py_options_fill(PyObject *mapping, py_options *out);
/* The text of an option, borrowed; NULL with an exception, also when it has a NUL, behind which C would not see it. */
const char *py_text_of(const char *option, PyObject *value);
void py_options_release(py_options *o);

enum {
    PY_CALL_STREAM = 1 << 16,
    PY_CALL_CONSTRUCTOR = 1 << 17,
    PY_CALL_METHOD = 1 << 18,
    PY_CALL_CAPTURED = 1 << 19,
    PY_CALL_HOW = 1 << 20,
    PY_CALL_CONCURRENT = 1 << 21 /* of a constructor: the actor runs several calls at once */
};
#define PY_CALL_LIMIT_SHIFT 32 /* above it: how many coroutines an actor may run at once; 0: it has none */

#define PY_FEW              12 /* arguments of a call that need no memory of the heap */

#define PY_OLD_ACTOR                                                                                         \
    "the actor is of a runtime that has ended, or of another process. It might be dead or it's from a "      \
    "different cluster"

/* The arguments of a call, encoded. */
typedef struct py_call {
    manta_arg few[PY_FEW + 2], *args;
    py_value few_values[PY_FEW], *values;
    int n_args;
    Py_ssize_t n_values;
    size_t size;
    char *names;
} py_call;

/* Encodes the arguments of a vectorcall, how it is to be run (bytes) and what the function has captured
 * (NULL: nothing); give it back with py_call_release() in either case. */
bool py_call_of(PyObject *const *args, Py_ssize_t n, PyObject *kwnames, int64_t flags, PyObject *how,
                PyObject *captured, py_call *out);
void py_call_release(py_call *c);
/* What a call, of an actor or of a function, gives to the program: a reference, a list of them, or None. */
PyObject *py_results(const manta_ref *refs, int n, bool of_actor);

PyObject *py_stream_take(manta_stream s);

/* ---- results.c ---- */

/* What a call says besides its arguments: a new reference to a dict, mostly {}; NULL with an exception. */
PyObject *py_call_how(const manta_task *t);
uint64_t py_how_number(PyObject *how, const char *name);

/* The call fails with the exception that is set, which is cleared. */
manta_status py_call_fail(manta_task *t, const char *name);

/* Gives what a function has returned to the caller, or item by item what it yields. A failure with an
 * exception set is the program's. */
manta_status py_return_all(manta_task *t, const char *name, PyObject *o, PyObject *how);
manta_status py_yield_all(manta_task *t, PyObject *o, PyObject *how);

/* Has what a call printed be seen before its result. */
void py_flush_output(void);

/* ---- title.c ---- */

/* Whether the process is called by what it runs, and has it called so. */
bool py_has_titles(void);
/* In a new worker, whose nursery may have set the prefix already. */
void py_titles_in_worker(void);
void py_show_title(const char *title);
/* What a person calls the function or method of that name: what stands behind "py.KEY." or "py.". Borrowed of it. */
const char *py_label_of(const char *name);
PyObject *py_set_title_prefix(PyObject *self, PyObject *text);

/* ---- stack.c ---- */

PyObject *py_stack_prepare(PyObject *self, PyObject *unused);
PyObject *py_stack_begin(PyObject *self, PyObject *unused);
/* The hook of the runtime. Takes no lock. */
size_t py_stack(void *user, char *out, size_t size);

/* ---- worker.c ---- */

manta_status py_resolve(void *user, const char *name, manta_task *t);
PyObject *py_set_calm_methods(PyObject *self, PyObject *on);
PyObject *py_set_cancel_keeps(PyObject *self, PyObject *on);
/* The call that this thread runs; NULL: none. */
manta_task *py_task(void);
/* The call that was deferred, and its name, of what the hook `coroutine` was given; false with an exception. */
bool py_deferred_of(PyObject *known, manta_task **t, const char **name);
/* In the process of an actor that runs several calls at once: SIGTERM ends it when these have ended. */
void py_mind_term(void);
/* Before a failure is raised: in a call that was cancelled, and is interrupted for it, sets that exception instead. */
void py_await_interrupt(void);
/* Interrupts a call that was cancelled, if it runs here and is no method of an actor. */
bool py_interrupt_call(uint64_t task);

/* ---- nudge.c ---- */

/* From now on, until it has looked for signals or py_nudge_end(), the first thread is woken again and again from
 * whatever it waits in. */
void py_nudge_begin(void);
void py_nudge_end(void);

/* ---- hooks.c and node.c ---- */

/* From now on a process that the program forks knows that it has no part in the runtime. */
void py_mind_forks(void);

/* show_prints(bool): whether Python shows what workers print, from now on, and not the runtime. */
PyObject *py_show_prints(PyObject *self, PyObject *on);

/* Tells the runtime what it calls here: the resolver and the hooks. */
void py_set_runtime_hooks(void);
/* An argv of texts that live as long as the list does, to be freed; NULL with an exception. */
const char **py_argv_of(PyObject *list);

/* ---- tables for module.c ---- */

extern PyType_Spec py_ref_spec, py_block_spec, py_function_spec, py_actor_spec, py_method_spec,
    py_stream_spec, py_watch_spec, py_run_spec, py_ranks_spec;

PyObject *py_put(PyObject *self, PyObject *value);
PyObject *py_get(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *py_wait_for(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *py_cancel(PyObject *self, PyObject *const *args, Py_ssize_t n);
PyObject *py_promise(PyObject *self, PyObject *unused);
PyObject *py_promise_settle(PyObject *self, PyObject *args);
PyObject *py_promise_break(PyObject *self, PyObject *args);
PyObject *py_failure(PyObject *self, PyObject *ref);
PyObject *py_init(PyObject *self, PyObject *options);
PyObject *py_shutdown(PyObject *self, PyObject *at_exit);
PyObject *py_is_initialized(PyObject *self, PyObject *unused);
PyObject *py_context(PyObject *self, PyObject *args);
PyObject *py_node_info(PyObject *self, PyObject *unused);
PyObject *py_view(PyObject *self, PyObject *unused);
PyObject *py_is_cancelled(PyObject *self, PyObject *unused);
PyObject *py_run_apart(PyObject *self, PyObject *call);
PyObject *py_actor_start(PyObject *self, PyObject *args);
PyObject *py_actor_find(PyObject *self, PyObject *args);
PyObject *py_is_actor(PyObject *self, PyObject *unused);
PyObject *py_actor_here(PyObject *self, PyObject *cls);
PyObject *py_exit_actor(PyObject *self, PyObject *deferred);
PyObject *py_group_new(PyObject *self, PyObject *args);
PyObject *py_group_most(PyObject *self, PyObject *unused);
PyObject *py_group_ready(PyObject *self, PyObject *group);
PyObject *py_group_wait(PyObject *self, PyObject *args);
PyObject *py_group_remove(PyObject *self, PyObject *group);
PyObject *py_group_find(PyObject *self, PyObject *name);
PyObject *py_group_get(PyObject *self, PyObject *group);
PyObject *py_run_storage(PyObject *self, PyObject *unused);
PyObject *py_run_config(PyObject *self, PyObject *folder);
PyObject *py_finish(PyObject *self, PyObject *args);
PyObject *py_yield_item(PyObject *self, PyObject *args);
PyObject *py_yield_room(PyObject *self, PyObject *args);
PyObject *py_yield_taken(PyObject *self, PyObject *deferred);
PyObject *py_ring_bell(PyObject *self, PyObject *fd);
PyObject *py_code_put(PyObject *self, PyObject *args);
PyObject *py_code_get(PyObject *self, PyObject *key);
PyObject *py_nursery_run(PyObject *self, PyObject *unused);
PyObject *py_nursery_warm(PyObject *self, PyObject *argv);

#endif
