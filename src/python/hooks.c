/* hooks.c - waits, and what the runtime tells this process: forks, signals, cancels, ends.
 *
 * Handlers of signals run on Python's first thread alone, and only with the interpreter: while that
 * thread waits, the runtime asks (is_interrupted()) whether one has raised something, and ends the wait with
 * MANTA_EINTERRUPTED if so.
 *
 * A nursery calls nursery_run() with the interpreter and never gives it away: each of its forks
 * has it then, becomes a process of its own for Python (PyOS_AfterFork_Child()), and gives it away until
 * its first call. */
#include "py.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <manta/status.h>

/* ---- waits ---- */

static atomic_int outside; /* threads that are in the runtime */
static atomic_bool is_stopping, is_exiting;
static _Thread_local bool shows; /* this thread shows what workers print, and its end is waited for */

PyThreadState *py_leave(void)
{
    atomic_fetch_add(&outside, 1);
    return PyEval_SaveThread();
}

void py_come_back(PyThreadState *left)
{
    atomic_fetch_sub(&outside, 1);
    while (atomic_load(&is_exiting) && (unsigned long)pthread_self() != py->main_thread && !shows)
        pause(); /* the process ends, as for any thread that Python does not wait for */
    PyEval_RestoreThread(left);
}

void py_empty_runtime(bool at_exit)
{
    atomic_store(&is_stopping, true);
    if (at_exit) atomic_store(&is_exiting, true);
    while (atomic_load(&outside) > 0) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    atomic_store(&is_stopping, false); /* what is waited for now is the end itself */
}

bool py_timeout(PyObject *seconds, int64_t *ms)
{
    *ms = MANTA_FOREVER;
    if (!seconds || seconds == Py_None) return true;
    double s = PyFloat_AsDouble(seconds);
    if (s == -1.0 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "timeout is %R, expected None or a number of seconds", seconds);
        return false;
    }
    if (isnan(s) || s < 0) {
        PyErr_Format(PyExc_ValueError, "timeout is %R, expected None or a number of seconds from 0 on",
                     seconds);
        return false;
    }
    *ms = s > 9e12 ? MANTA_FOREVER : (int64_t)ceil(s * 1000);
    return true;
}

manta_status py_wait(py_waiting *waits, void *ctx, int64_t timeout_ms)
{
    manta_status st;

    PyThreadState *left = py_leave();
    st = waits(ctx, timeout_ms);
    py_come_back(left);
    return st;
}

/* ---- hooks of the runtime ---- */

static void before_fork(void *user)
{
    (void)user;
    PyOS_BeforeFork();
}

static void after_fork_parent(void *user)
{
    (void)user;
    PyOS_AfterFork_Parent();
}

/* The nursery's thread had the interpreter when it forked: the worker has it, and gives it
 * away until its first call. */
static manta_status after_fork_child(void *user, const char *environment)
{
    PyObject *text, *done = NULL;
    (void)user;

    PyOS_AfterFork_Child();
    py->is_worker = true;
    py->pid = getpid();
    py->life = ++py->lives;
    py->main_thread = (unsigned long)pthread_self();
    py->main_tid = gettid();
    py_drops_forget();
    py_titles_in_worker();
    text = environment ? PyUnicode_FromString(environment) : Py_NewRef(Py_None);
    if (text) done = py_ask(PY_HOOK_START, text, NULL);
    Py_XDECREF(text);
    Py_XDECREF(done);
    if (!done) PyErr_Print();
    (void)PyEval_SaveThread();
    return done ? MANTA_OK : manta_fail(MANTA_EINVAL, "the worker could not set up its environment");
}

/* Handlers of signals run on the first thread alone, with the interpreter. */
static bool is_interrupted(void *user)
{
    (void)user;
    if (atomic_load(&is_stopping)) return true;
    if ((unsigned long)pthread_self() != py->main_thread || !Py_IsInitialized()) return false;
    PyGILState_STATE s = PyGILState_Ensure();
    bool raised = PyErr_CheckSignals() < 0; /* the exception stays with the thread */
    PyGILState_Release(s);
    return raised;
}

/* A call that was cancelled gets a KeyboardInterrupt; a method of an actor looks for itself. */
static void interrupt_call(void *user, uint64_t task)
{
    (void)user;
    PyGILState_STATE s = PyGILState_Ensure();
    (void)py_interrupt_call(task);
    PyObject *id = PyLong_FromUnsignedLongLong(task), *done = id ? py_ask(PY_HOOK_CANCEL, id, NULL) : NULL;
    Py_XDECREF(id);
    Py_XDECREF(done);
    PyErr_Clear();
    PyGILState_Release(s);
}

static atomic_bool python_prints;

PyObject *py_show_prints(PyObject *self, PyObject *on)
{
    (void)self;
    atomic_store(&python_prints, PyObject_IsTrue(on) == 1);
    Py_RETURN_NONE;
}

/* The thread that calls this ends with the runtime, and so before the interpreter: shutdown() waits for it without the
 * interpreter, and whatever the program's stream does must not wait for shutdown(). */
static bool show_print(void *user, int stream, const char *text, size_t n)
{
    (void)user;
    if (!atomic_load(&python_prints)) return false;
    shows = true;
    PyGILState_STATE s = PyGILState_Ensure();
    PyObject *which = PyLong_FromLong(stream), *bytes = PyBytes_FromStringAndSize(text, (Py_ssize_t)n),
             *done = which && bytes ? py_ask(PY_HOOK_PRINTED, which, bytes, NULL) : NULL;
    bool shown = done != NULL;
    PyErr_Clear(); /* the program's stream does not take it: the process's own does */
    Py_XDECREF(which);
    Py_XDECREF(bytes);
    Py_XDECREF(done);
    PyGILState_Release(s);
    return shown;
}

static void worker_ends(void *user)
{
    PyGILState_STATE s = PyGILState_Ensure();
    PyObject *done = py_ask(PY_HOOK_END, NULL);
    (void)user;

    if (!done) PyErr_Print();
    Py_XDECREF(done);
    PyGILState_Release(s);
}

void py_set_runtime_hooks(void)
{
    manta_set_hooks(&(manta_hooks){.before_fork = before_fork,
                                   .after_fork_parent = after_fork_parent,
                                   .after_fork_child = after_fork_child,
                                   .interrupted = is_interrupted,
                                   .cancelled = interrupt_call,
                                   .printed = show_print,
                                   .stack = py_stack,
                                   .end = worker_ends});
    manta_set_resolver(py_resolve, NULL);
}

/* nursery_run(): with the interpreter, which the forks have then. */
PyObject *py_nursery_run(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    py_set_runtime_hooks();
    py_mind_forks();
    return py_raise(manta_nursery_run(), (manta_ref){0});
}

PyObject *py_nursery_warm(PyObject *self, PyObject *list)
{
    const char **argv = py_argv_of(list);
    manta_status st;
    (void)self;

    if (!argv) return NULL;
    PyThreadState *left = py_leave();
    st = manta_nursery_warm(argv);
    py_come_back(left);
    free(argv);
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_NONE;
}
