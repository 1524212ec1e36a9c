/* worker.c - the other side of a call: the resolver, which runs Python functions in a worker.
 *
 *     runtime ──▶ py_resolve ──▶ take the interpreter ──▶ find, decode, call, encode ──▶ give it away
 *
 * The runtime's lock is not held, and no lock of ours is. A thread of the runtime that runs its
 * first Python function gets a thread state, which it keeps: threading.local and context
 * variables last as long as the thread does.
 *
 * Exceptions never leave here: each becomes the failure of the call (results.c). */
#include "py.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/stream.h>

#define MOST_AWAITED 50000 /* turns of py_await_interrupt(): 10 s, which nothing takes */

static _Thread_local manta_task *current;
static _Thread_local bool has_state;

/* Calls that run here, the innermost of each thread first; guarded by the interpreter's lock. */
typedef struct running {
    uint64_t task;
    pthread_t thread;
    bool is_method, is_told; /* told: it was interrupted */
    struct running *next;
} running;

/* What the process is called while a call runs. */
typedef struct shown {
    char title[64]; /* "" nothing */
    const char *before; /* of the call that waits for this one; NULL: none does */
} shown;

static running *all_running;
static bool methods_are_calm;
static bool keeps_values; /* of functions that are cancelled and return all the same */
static int processors = 1; /* of what runs here, as libraries know it */
static _Thread_local const char *title_now;

manta_task *py_task(void)
{
    return current;
}

/* ---- the interpreter ---- */

static PyGILState_STATE enter_python(void)
{
    PyGILState_STATE s = PyGILState_Ensure();

    if (!has_state && s == PyGILState_UNLOCKED) {
        (void)PyGILState_Ensure(); /* never given back: the state stays with the thread */
        has_state = true;
    }
    return s;
}

/* ---- what is called ---- */

/* A new reference. */
static PyObject *find_function(const manta_task *t, const char *name, bool has_captured)
{
    PyObject *key = PyUnicode_FromString(name), *f = key ? PyDict_GetItemWithError(py->functions, key) : NULL;

    Py_XINCREF(f);
    if (key && !f && !PyErr_Occurred()) {
        PyObject *captured = has_captured ? py_decode_argument(t, manta_args(t) - 1) : Py_NewRef(Py_None);
        if (captured) f = py_ask(PY_HOOK_FUNCTION, key, captured, NULL);
        Py_XDECREF(captured);
        if (f && PyDict_SetItem(py->functions, key, f) < 0) Py_CLEAR(f);
    }
    Py_XDECREF(key);
    return f;
}

static PyObject *find_method(const manta_task *t, const char *name)
{
    PyObject *self = manta_self(t);

    if (!self) return PyErr_Format(PyExc_RuntimeError, "the actor that %s is a method of is not there", name);
    PyObject *f = PyObject_GetAttrString(self, name);
    if (f && !PyCallable_Check(f)) { /* an attribute of the instance hides the method of the class */
        PyObject *plain = PyObject_GetAttrString((PyObject *)Py_TYPE(self), name);
        py_replace(&f, plain ? PyObject_CallMethod(plain, "__get__", "O", self) : NULL);
        Py_XDECREF(plain);
    }
    if (f || name[0] != '_' || !PyErr_ExceptionMatches(PyExc_AttributeError)) return f;
    PyErr_Clear();
    PyObject *text = PyUnicode_FromString(name);
    if (text) f = py_ask(PY_HOOK_METHOD, self, text, NULL);
    Py_XDECREF(text);
    return f;
}

/* ---- arguments ---- */

static PyObject *read_keywords(const manta_task *t, int n, int first)
{
    const void *at;
    size_t size;
    PyObject *out = PyDict_New();
    manta_status st = manta_arg_bytes(t, 1, &at, &size);
    const char *name = at, *end = name + size;

    if (st) {
        Py_XDECREF(out);
        return py_raise(st, (manta_ref){0});
    }
    for (int i = 0; out && i < n; i++) {
        size_t length = strnlen(name, (size_t)(end - name));
        PyObject *key = PyUnicode_DecodeUTF8(name, (Py_ssize_t)length, NULL),
                 *value = py_decode_argument(t, first + i);
        if (!key || !value || name + length == end || PyDict_SetItem(out, key, value) < 0) Py_CLEAR(out);
        Py_XDECREF(key);
        Py_XDECREF(value);
        name += length + 1;
    }
    if (!out && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the names of keyword arguments end early");
    return out;
}

static PyObject *read_positional(const manta_task *t, int first, int n)
{
    PyObject *out = PyTuple_New(n);

    for (int i = 0; out && i < n; i++) {
        PyObject *x = py_decode_argument(t, first + i);
        if (!x)
            Py_CLEAR(out);
        else
            PyTuple_SetItem(out, i, x);
    }
    return out;
}

/* behind: arguments after the last that the function gets. */
static PyObject *call_with_arguments(const manta_task *t, PyObject *f, int n_names, int behind)
{
    int first = n_names > 0 ? 2 : 1, n = manta_args(t) - first - n_names - behind;
    PyObject *args = n >= 0 ? read_positional(t, first, n) : NULL, *kwargs = NULL, *out = NULL;

    if (n < 0) PyErr_SetString(PyExc_ValueError, "a call has fewer arguments than it says");
    if (args && n_names > 0) kwargs = read_keywords(t, n_names, first + n);
    if (args && (kwargs || n_names == 0)) out = PyObject_Call(f, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return out;
}

/* ---- the end ---- */

/* Instances of actors that have ended without other processes, where the runtime's lock is held: whoever waited for the
 * interpreter then would wait for somebody who waits for the lock, and the program's code is not to run. They are let go
 * when the first thread comes past. */
typedef struct ended {
    PyObject *self;
    struct ended *next;
} ended;

static pthread_mutex_t ended_lock = PTHREAD_MUTEX_INITIALIZER;
static ended *all_ended;

static int release_ended(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&ended_lock);
    ended *e = all_ended;
    all_ended = NULL;
    pthread_mutex_unlock(&ended_lock);
    while (e) {
        ended *next = e->next;
        Py_DECREF(e->self);
        free(e);
        e = next;
    }
    return 0;
}

static void release_later(PyObject *self)
{
    ended *e = malloc(sizeof *e);

    if (!e) return; /* it stays */
    pthread_mutex_lock(&ended_lock);
    *e = (ended){self, all_ended};
    all_ended = e;
    pthread_mutex_unlock(&ended_lock);
    /* Where too many are pending already, the next one takes this along. */
    (void)Py_AddPendingCall(release_ended, NULL);
}

static void end_actor_state(void *self)
{
    if (!py->is_worker) {
        release_later(self);
        return;
    }
    PyGILState_STATE s = enter_python();
    PyObject *done = py_ask(PY_HOOK_LEAVE, self, NULL);

    Py_XDECREF(done);
    if (py->actor_self == self) py->actor_self = NULL;
    Py_XDECREF((PyObject *)self);
    PyErr_Clear();
    PyGILState_Release(s);
}

/* ---- a call ---- */

static void cancel_coroutine(const manta_task *t)
{
    PyObject *id = PyLong_FromUnsignedLongLong(manta_task_id(t)),
             *done = id ? py_ask(PY_HOOK_CANCEL, id, NULL) : NULL;

    Py_XDECREF(id);
    Py_XDECREF(done);
    PyErr_Clear();
}

/* A coroutine, or a generator that is async, goes on in the loop of the actor's process, which ends the call
 * with finish(); None: a stream whose items were not all taken, and are waited for. */
static manta_status defer_call(manta_task *t, const char *name, PyObject *awaitable, PyObject *how)
{
    manta_status st = manta_task_defer(t);
    PyObject *known, *done = NULL;

    if (st) {
        py_raise(st, (manta_ref){0});
        return st;
    }
    known = Py_BuildValue("(KKss)", (unsigned long long)(uintptr_t)t, (unsigned long long)manta_task_id(t),
                          name, manta_task_group(t));
    if (known) done = py_ask(PY_HOOK_COROUTINE, awaitable, known, how, NULL);
    Py_XDECREF(known);
    if (done && manta_task_is_cancelled(t)) cancel_coroutine(t); /* perhaps before it was known there */
    if (!done) manta_task_finish(t, py_call_fail(t, name));
    Py_XDECREF(done);
    return MANTA_OK;
}

/* Streams that share a limit count until their items are taken, and so does the call. */
static manta_status run_stream(manta_task *t, const char *name, PyObject *out, PyObject *how)
{
    manta_status st = py_yield_all(t, out, how);

    if (st || py_how_number(how, "limit") == 0 || manta_yield_taken(t, 0) != MANTA_ETIMEDOUT) return st;
    return defer_call(t, name, Py_None, how);
}

/* What runs here now has so many processors, and libraries are to compute with as many threads. The exception that is
 * set, if one is, stays. */
static void grant_processors(int n)
{
    PyObject *number, *done, *type, *value, *trace;

    if (!py->is_worker || n == processors) return;
    processors = n;
    PyErr_Fetch(&type, &value, &trace);
    number = PyLong_FromLong(n);
    done = number ? py_ask(PY_HOOK_GRANT, number, NULL) : NULL;
    if (!done) PyErr_WriteUnraisable(NULL);
    Py_XDECREF(number);
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
}

/* A function says in its call how many it has, unless it is one. */
static int processors_of(PyObject *how)
{
    uint64_t n = py_how_number(how, "processors");

    return n > 1 && n < INT_MAX ? (int)n : 1;
}

/* For exit_actor(), which a coroutine may call as well, and for what the actor holds as long as it lives. */
static void remember_actor(const manta_task *t)
{
    manta_context c = {0};
    PyThreadState *left = py_leave();

    if (py->is_worker && !manta_context_get(t, &c)) py->actor_here = c.actor;
    py_come_back(left);
    grant_processors(c.cpus >= 2 && c.cpus < INT_MAX ? (int)c.cpus : 1);
}

/* Before the constructor of this process's actor: what is to be called, instead of its class, which is
 * taken. An actor with coroutines is made in their loop. */
static PyObject *prepare_actor(const manta_task *t, PyObject *cls, int64_t flags)
{
    int64_t limit = flags >> PY_CALL_LIMIT_SHIFT;
    PyObject *n, *out;

    remember_actor(t);
    if (py->is_worker && flags & PY_CALL_CONCURRENT) py_mind_term();
    if (limit == 0) return cls;
    n = PyLong_FromLongLong(limit);
    out = n ? py_ask(PY_HOOK_LIMIT, n, cls, NULL) : NULL;
    Py_XDECREF(n);
    Py_DECREF(cls);
    py->has_loop = py->is_worker && out;
    return out;
}

/* set_calm_methods(bool): whether a cancel leaves the waits of methods alone, from now on. */
PyObject *py_set_calm_methods(PyObject *self, PyObject *on)
{
    (void)self;
    methods_are_calm = PyObject_IsTrue(on) == 1;
    Py_RETURN_NONE;
}

/* set_cancel_keeps(bool): whether a function that is cancelled and returns all the same has its results. */
PyObject *py_set_cancel_keeps(PyObject *self, PyObject *on)
{
    (void)self;
    keeps_values = PyObject_IsTrue(on) == 1;
    manta_set_cancel_keeps(keeps_values);
    Py_RETURN_NONE;
}

static void running_begin(running *r, manta_task *t)
{
    r->task = manta_task_id(t);
    r->thread = pthread_self();
    r->is_method = manta_self(t) != NULL;
    r->is_told = false;
    if (r->is_method && methods_are_calm) manta_task_stay_calm(t);
    r->next = all_running;
    all_running = r;
    /* Perhaps it was told when this was not here yet. */
    if (manta_task_is_cancelled(t)) (void)py_interrupt_call(r->task);
}

static bool is_on_first_thread(const running *r)
{
    return (unsigned long)r->thread == py->main_thread;
}

/* Whether a call of the first thread was told that it is cancelled, and has not ended. */
static bool is_first_thread_told(void)
{
    const running *r = all_running;

    while (r && !(r->is_told && is_on_first_thread(r))) r = r->next;
    return r != NULL;
}

/* A cancel that came too late must not interrupt the next call. */
static void running_end(const running *r)
{
    running **at = &all_running;

    while (*at && *at != r) at = &(*at)->next;
    if (*at) *at = r->next;
    if (r->is_told && is_on_first_thread(r) && !is_first_thread_told()) py_nudge_end();
    if (PyErr_Occurred() || r->is_method || PyErr_CheckSignals() == 0) return;
    PyErr_Clear();
}

/* "f", "Class.method", "Class.__init__", or the name that the call was given. */
static void title_of(const manta_task *t, const char *name, char *out, size_t size)
{
    int64_t flags = 0;
    PyObject *self = manta_self(t);

    if (manta_arg_i64(t, 0, &flags)) return;
    if (manta_task_label(t)[0] && !(flags & PY_CALL_CONSTRUCTOR)) {
        snprintf(out, size, "%s", manta_task_label(t));
    } else if (flags & PY_CALL_METHOD && self) {
        PyObject *type = PyType_GetName(Py_TYPE(self));
        const char *s = type ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;
        snprintf(out, size, "%s.%s", s ? s : "", name + 3);
        Py_XDECREF(type);
        PyErr_Clear();
    } else {
        snprintf(out, size, flags & PY_CALL_CONSTRUCTOR ? "%s.__init__" : "%s", py_label_of(name));
    }
}

static void show_begin(shown *r, const manta_task *t, const char *name)
{
    r->before = title_now;
    r->title[0] = 0;
    if (!py_has_titles()) return;
    title_of(t, name, r->title, sizeof r->title);
    title_now = r->title;
    py_show_title(r->title);
}

static void show_end(const shown *r)
{
    char idle[64] = "IDLE";
    size_t n = strcspn(r->title, ".");

    title_now = r->before;
    if (r->title[0] && !r->before && py->actor_here.id) snprintf(idle, sizeof idle, "%.*s", (int)n, r->title);
    if (r->title[0]) py_show_title(r->before ? r->before : idle);
}

/* What was called has returned `out`. */
static manta_status end_call(manta_task *t, const char *name, int64_t flags, PyObject *out, PyObject *how)
{
    if (flags & PY_CALL_CONSTRUCTOR) {
        manta_set_self(t, Py_NewRef(out), end_actor_state); /* takes it over */
        if (py->is_worker) py->actor_self = out;
        return MANTA_OK;
    }
    if ((PyObject *)Py_TYPE(out) == py->coroutine || (PyObject *)Py_TYPE(out) == py->async_generator)
        return defer_call(t, name, out, how);
    return flags & PY_CALL_STREAM ? run_stream(t, name, out, how) : py_return_all(t, name, out, how);
}

static manta_status run_call(manta_task *t, const char *name)
{
    int64_t flags = 0;
    shown s;
    manta_status st = manta_arg_i64(t, 0, &flags);

    if (st) {
        py_raise(st, (manta_ref){0});
        return st;
    }
    bool has_captured = flags & PY_CALL_CAPTURED, has_how = flags & PY_CALL_HOW;
    PyObject *how = py_call_how(t), *f = NULL, *out = NULL;
    if (how) f = flags & PY_CALL_METHOD ? find_method(t, name + 3) : find_function(t, name, has_captured);
    if (f && flags & PY_CALL_CONSTRUCTOR) f = prepare_actor(t, f, flags);
    if (f && flags & PY_CALL_METHOD && !(flags & PY_CALL_STREAM) && py->has_loop)
        py_replace(&f, py_ask(PY_HOOK_LOOPED, f, NULL));
    show_begin(&s, t, name); /* a worker knows by now whose program it runs */
    int before = processors; /* of the call that waits for this one */
    bool is_function = !(flags & (PY_CALL_METHOD | PY_CALL_CONSTRUCTOR));
    if (f && is_function) grant_processors(processors_of(how));
    if (f) out = call_with_arguments(t, f, (int)(flags & 0xFFFF), has_captured + has_how);
    Py_XDECREF(f);
    st = out ? end_call(t, name, flags, out, how) : MANTA_EINVAL;
    show_end(&s);
    Py_XDECREF(out);
    Py_XDECREF(how);
    if (is_function) grant_processors(before);
    return st;
}

/* ---- on a thread that is not its own ---- */

static const char APART[] = "manta.apart";

typedef struct apart {
    manta_task *t;
    const char *name;
    manta_status st;
} apart;

/* Of a call that another one waits for on this thread, and of a function that the program itself runs where there are no
 * other processes: what it sets of context variables (decimal's precision, numpy's treatment of errors) is not its
 * waiter's. */
static bool is_guest(const manta_task *t, const manta_task *outer)
{
    int64_t flags = 0;

    return outer || (py->in_process && !manta_arg_i64(t, 0, &flags) &&
                     !(flags & (PY_CALL_METHOD | PY_CALL_CONSTRUCTOR)));
}

static manta_status run_call_apart(manta_task *t, const char *name)
{
    apart a = {t, name, MANTA_EINVAL};
    PyObject *call = PyCapsule_New(&a, APART, NULL), *done = call ? py_ask(PY_HOOK_APART, call, NULL) : NULL;

    Py_XDECREF(call);
    Py_XDECREF(done);
    return a.st;
}

/* run_apart(call): what the hook calls. */
PyObject *py_run_apart(PyObject *self, PyObject *call)
{
    apart *a = PyCapsule_GetPointer(call, APART);
    (void)self;

    if (!a) return NULL;
    a->st = run_call(a->t, a->name);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

manta_status py_resolve(void *user, const char *name, manta_task *t)
{
    manta_task *outer = current;
    running r;
    (void)user;

    if (strncmp(name, "py.", 3) != 0)
        return manta_fail(MANTA_ENOENT, "no remote function is called %s", name);
    PyGILState_STATE s = enter_python();
    current = t;
    running_begin(&r, t);
    manta_status st = is_guest(t, outer) ? run_call_apart(t, name) : run_call(t, name);
    running_end(&r);
    if (PyErr_Occurred()) st = py_call_fail(t, name);
    py_flush_output();
    current = outer;
    PyGILState_Release(s);
    return st;
}

PyObject *py_is_cancelled(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(current && manta_task_is_cancelled(current));
}

static running *find_running(uint64_t task)
{
    running *r = all_running;

    while (r && r->task != task) r = r->next;
    return r;
}

bool py_interrupt_call(uint64_t task)
{
    running *r = find_running(task);

    if (!r || r->is_method) return false;
    if (r->is_told) return true;
    r->is_told = true;
    if (is_on_first_thread(r)) {
        (void)pthread_kill(r->thread, SIGINT); /* which also ends a sleep */
        py_nudge_begin(); /* and one that begins just now */
    } else {
        (void)PyThreadState_SetAsyncExc((unsigned long)r->thread, PyExc_KeyboardInterrupt);
    }
    return true;
}

/* The runtime ends the waits of a call that is cancelled, and the program is told by a signal, which may come
 * a moment later. One that may return all the same is to see the interrupt there, and not behind it. */
void py_await_interrupt(void)
{
    const running *r = current && keeps_values ? find_running(manta_task_id(current)) : NULL;

    if (!r || r->is_method || !is_on_first_thread(r) || !manta_task_is_cancelled(current)) return;
    for (int i = 0; i < MOST_AWAITED && !r->is_told; i++) {
        PyThreadState *left = PyEval_SaveThread();
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        PyEval_RestoreThread(left);
    }
    (void)PyErr_CheckSignals();
}
