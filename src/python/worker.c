/* worker.c - the other side of a call: the resolver, which runs Python functions in a worker.
 *
 *     runtime ──▶ py_resolve ──▶ take the interpreter ──▶ find, decode, call, encode ──▶ give it away
 *
 * The runtime's lock is not held, and no lock of ours is. A thread of the runtime that runs its
 * first Python function gets a thread state, which it keeps: threading.local and context
 * variables last as long as the thread does.
 *
 * Exceptions never leave here: each becomes the failure of the call, with the exception itself as its
 * payload (the hook `failed`). */
#include "py.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/status.h>

static _Thread_local manta_task *current;
static _Thread_local bool has_state;

/* Calls that run here, the innermost of each thread first; guarded by the interpreter's lock. */
typedef struct running {
    uint64_t task;
    pthread_t thread;
    bool is_method;
    struct running *next;
} running;

static running *all_running;

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

/* ---- failing ---- */

/* The call fails with the exception that is set. */
static manta_status fail_with_exception(manta_task *t, const char *name)
{
    int64_t flags = 0;
    PyObject *type, *value, *trace, *both = NULL, *text = NULL, *payload = NULL;
    manta_status st = MANTA_EINVAL;
    char *bytes;
    Py_ssize_t n;

    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    bool constructs = !manta_arg_i64(t, 0, &flags) && flags & PY_CALL_CONSTRUCTOR;
    PyObject *actor = flags & PY_CALL_METHOD ? manta_self(t) : NULL;
    PyObject *called = PyUnicode_FromFormat(constructs ? "%s.__init__" : "%s", name);
    if (called) both = py_ask(PY_HOOK_FAILED, value, called, actor ? actor : Py_None, NULL);
    if (!both || !PyArg_ParseTuple(both, "OO", &text, &payload) ||
        PyBytes_AsStringAndSize(payload, &bytes, &n) < 0) {
        PyErr_Clear();
        st = manta_fail(MANTA_EINVAL, "%s raised an exception that cannot be described", name);
    } else {
        const char *s = PyUnicode_AsUTF8AndSize(text, NULL);
        PyErr_Clear();
        st = manta_fail_with(t, MANTA_EINVAL, s ? s : name, bytes, (size_t)n);
    }
    Py_XDECREF(called);
    Py_XDECREF(both);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return st;
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

static PyObject *call_with_arguments(const manta_task *t, PyObject *f, int n_names, bool has_captured)
{
    int first = n_names > 0 ? 2 : 1, n = manta_args(t) - first - n_names - has_captured;
    PyObject *args = n >= 0 ? read_positional(t, first, n) : NULL, *kwargs = NULL, *out = NULL;

    if (n < 0) PyErr_SetString(PyExc_ValueError, "a call has fewer arguments than it says");
    if (args && n_names > 0) kwargs = read_keywords(t, n_names, first + n);
    if (args && (kwargs || n_names == 0)) out = PyObject_Call(f, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return out;
}

/* ---- results ---- */

static manta_status return_value(manta_task *t, int i, PyObject *o)
{
    py_value v;
    manta_status st = MANTA_OK;

    if (!py_encode(o, &v)) {
        py_value_release(&v);
        return MANTA_EINVAL;
    }
    if (v.size > PY_QUICK) {
        PyThreadState *left = py_leave();
        st = manta_return(t, i, v.arg);
        py_come_back(left);
    } else {
        st = manta_return(t, i, v.arg);
    }
    py_value_release(&v);
    if (st) py_raise(st, (manta_ref){0});
    return st;
}

static manta_status return_several(manta_task *t, PyObject *o, int n)
{
    PyObject *all = PySequence_Tuple(o);
    manta_status st = MANTA_OK;

    if (all && PyTuple_Size(all) != n)
        PyErr_Format(PyExc_ValueError, "the task returned %zd values, and the caller expects num_returns=%d",
                     PyTuple_Size(all), n);
    else if (!all && PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_ValueError,
                     "the task returned a %R, and the caller expects num_returns=%d values of it", Py_TYPE(o),
                     n);
    if (PyErr_Occurred()) st = MANTA_EINVAL;
    for (int i = 0; !st && i < n; i++) st = return_value(t, i, PyTuple_GetItem(all, i));
    Py_XDECREF(all);
    return st;
}

static manta_status return_all(manta_task *t, PyObject *o)
{
    int n = manta_results(t);

    return n == 0 ? MANTA_OK : n == 1 ? return_value(t, 0, o) : return_several(t, o, n);
}

static manta_status yield_value(manta_task *t, PyObject *o)
{
    py_value v;
    manta_status st = MANTA_EINVAL;

    if (py_encode(o, &v)) {
        PyThreadState *left = py_leave();
        st = manta_yield(t, v.arg);
        py_come_back(left);
    }
    py_value_release(&v);
    return st;
}

static manta_status yield_all(manta_task *t, PyObject *o)
{
    PyObject *items = py_ask(PY_HOOK_ITEMS, o, NULL), *x = NULL;
    manta_status st = MANTA_OK;

    while (items && !st && (x = PyIter_Next(items))) {
        st = yield_value(t, x);
        Py_DECREF(x);
    }
    Py_XDECREF(items);
    if (PyErr_Occurred()) st = MANTA_EINVAL;
    return st;
}

static void end_actor_state(void *self)
{
    PyGILState_STATE s = enter_python();

    Py_XDECREF((PyObject *)self);
    PyErr_Clear();
    PyGILState_Release(s);
}

/* What a call printed is seen before its result. */
static void flush_output(void)
{
    PyObject *out = PySys_GetObject("stdout"), *done;

    if (!out || out == Py_None || !py->is_worker) return;
    done = PyObject_CallMethodObjArgs(out, py->flush, NULL);
    if (!done) PyErr_Clear(); /* the program closed it */
    Py_XDECREF(done);
}

/* ---- a call ---- */

/* A coroutine, or a generator that is async, goes on in the loop of the actor's process, which ends the call
 * with finish(). */
static manta_status defer_call(manta_task *t, const char *name, PyObject *awaitable)
{
    manta_status st = manta_task_defer(t);
    PyObject *known, *done = NULL;

    if (st) {
        py_raise(st, (manta_ref){0});
        return st;
    }
    known =
        Py_BuildValue("(KKs)", (unsigned long long)(uintptr_t)t, (unsigned long long)manta_task_id(t), name);
    if (known) done = py_ask(PY_HOOK_COROUTINE, awaitable, known, NULL);
    Py_XDECREF(known);
    if (!done) manta_task_finish(t, fail_with_exception(t, name));
    Py_XDECREF(done);
    return MANTA_OK;
}

static manta_status set_limit(int64_t limit)
{
    PyObject *n = PyLong_FromLongLong(limit), *done = n ? py_ask(PY_HOOK_LIMIT, n, NULL) : NULL;

    Py_XDECREF(n);
    Py_XDECREF(done);
    return done ? MANTA_OK : MANTA_EINVAL;
}

static bool deferred_of(PyObject *known, manta_task **t, const char **name)
{
    unsigned long long at, id;

    if (!PyArg_ParseTuple(known, "KKs", &at, &id, name)) return false;
    *t = (manta_task *)(uintptr_t)at;
    return true;
}

/* finish(deferred, value, exception): ends a call that was deferred. */
PyObject *py_finish(PyObject *self, PyObject *args)
{
    PyObject *known, *value, *error;
    manta_task *t;
    const char *name;
    manta_status st;
    (void)self;

    if (!PyArg_ParseTuple(args, "OOO:finish", &known, &value, &error) || !deferred_of(known, &t, &name))
        return NULL;
    if (error != Py_None) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        st = MANTA_EINVAL;
    } else {
        st = return_all(t, value);
    }
    if (PyErr_Occurred()) st = fail_with_exception(t, name);
    flush_output();
    PyThreadState *left = py_leave();
    manta_task_finish(t, st);
    py_come_back(left);
    Py_RETURN_NONE;
}

/* yield_item(deferred, value): False when nobody takes the items any more. Waits. */
PyObject *py_yield_item(PyObject *self, PyObject *args)
{
    PyObject *known, *value;
    manta_task *t;
    const char *name;
    (void)self;

    if (!PyArg_ParseTuple(args, "OO:yield_item", &known, &value) || !deferred_of(known, &t, &name))
        return NULL;
    manta_status st = yield_value(t, value);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(st == MANTA_OK);
}

/* For exit_actor(), which a coroutine may call as well. */
static void remember_actor(const manta_task *t)
{
    manta_context c = {0};
    PyThreadState *left = py_leave();

    if (!manta_context_get(t, &c)) py->actor_here = c.actor;
    py_come_back(left);
}

static void running_begin(running *r, const manta_task *t)
{
    r->task = manta_task_id(t);
    r->thread = pthread_self();
    r->is_method = manta_self(t) != NULL;
    r->next = all_running;
    all_running = r;
}

/* A cancel that came too late must not interrupt the next call. */
static void running_end(const running *r)
{
    running **at = &all_running;

    while (*at && *at != r) at = &(*at)->next;
    if (*at) *at = r->next;
    if (PyErr_Occurred() || r->is_method || PyErr_CheckSignals() == 0) return;
    PyErr_Clear();
}

static manta_status run_call(manta_task *t, const char *name)
{
    int64_t flags = 0;
    manta_status st = manta_arg_i64(t, 0, &flags);

    if (st) {
        py_raise(st, (manta_ref){0});
        return st;
    }
    bool has_captured = flags & PY_CALL_CAPTURED;
    PyObject *f = flags & PY_CALL_METHOD ? find_method(t, name + 3) : find_function(t, name, has_captured),
             *out = NULL;
    if (f) out = call_with_arguments(t, f, (int)(flags & 0xFFFF), has_captured);
    Py_XDECREF(f);
    if (!out) return MANTA_EINVAL;
    if (flags & PY_CALL_CONSTRUCTOR) {
        manta_set_self(t, out, end_actor_state); /* takes it over */
        remember_actor(t);
        return flags >> PY_CALL_LIMIT_SHIFT ? set_limit(flags >> PY_CALL_LIMIT_SHIFT) : MANTA_OK;
    }
    if ((PyObject *)Py_TYPE(out) == py->coroutine || (PyObject *)Py_TYPE(out) == py->async_generator)
        st = defer_call(t, name, out);
    else if (flags & PY_CALL_STREAM)
        st = yield_all(t, out);
    else
        st = return_all(t, out);
    Py_DECREF(out);
    return st;
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
    manta_status st = run_call(t, name);
    running_end(&r);
    if (PyErr_Occurred()) st = fail_with_exception(t, name);
    flush_output();
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

bool py_interrupt_call(uint64_t task)
{
    const running *r = all_running;

    while (r && r->task != task) r = r->next;
    if (!r || r->is_method) return false;
    if ((unsigned long)r->thread == py->main_thread)
        (void)pthread_kill(r->thread, SIGINT); /* which also ends a sleep */
    else
        (void)PyThreadState_SetAsyncExc((unsigned long)r->thread, PyExc_KeyboardInterrupt);
    return true;
}
