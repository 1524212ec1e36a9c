/* ranks.c - Ranks: a group of processes and the collectives between them (manta/comm.h), for the frameworks that
 * manta.train carries. Memory is named by its address: whoever calls keeps it until the call, or wait(), is over.
 *
 * A group needs no runtime. One thread at a time uses it; it waits without the interpreter. */
#include "py.h"

#include <unistd.h>

#include <manta/comm.h>

typedef struct py_ranks {
    PyObject head;
    manta_group *group; /* NULL: closed */
    int pid; /* that joined: a fork has no part in it */
    bool is_used; /* a thread is in a call; changed with the interpreter */
} py_ranks;

/* Ranks(address, rank, size, timeout_ms, join_timeout_ms); -1: no timeout */
static PyObject *ranks_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    manta_group_options o = {0};
    manta_group *group = NULL;
    const char *address;
    int rank, size;
    long long timeout, join_timeout;
    manta_status st;
    (void)kwargs;

    if (!PyArg_ParseTuple(args, "siiLL:Ranks", &address, &rank, &size, &timeout, &join_timeout)) return NULL;
    o.timeout_ms = timeout < 0 ? MANTA_NONE : timeout;
    o.join_timeout_ms = join_timeout < 0 ? MANTA_NONE : join_timeout;
    PyThreadState *left = PyEval_SaveThread();
    st = manta_group_open(address, rank, size, &o, &group);
    PyEval_RestoreThread(left);
    if (st) return py_raise_plain(st);
    py_ranks *r = (py_ranks *)PyType_GenericAlloc(type, 0);
    if (!r) {
        manta_group_close(group);
        return NULL;
    }
    r->group = group;
    r->pid = getpid();
    return (PyObject *)r;
}

/* Takes the group for a call; NULL with an exception. */
static manta_group *ranks_enter(PyObject *self)
{
    py_ranks *r = (py_ranks *)self;

    if (!r->group || r->pid != getpid()) {
        PyErr_SetString(PyExc_ValueError, "the group is closed, or was joined by another process");
        return NULL;
    }
    if (r->is_used) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is in a call of this group");
        return NULL;
    }
    r->is_used = true;
    return r->group;
}

static PyObject *ranks_leave(PyObject *self, manta_status st)
{
    ((py_ranks *)self)->is_used = false;
    if (st) return py_raise_plain(st);
    Py_RETURN_NONE;
}

static PyObject *ranks_close(PyObject *self, PyObject *unused)
{
    py_ranks *r = (py_ranks *)self;
    manta_group *group = r->pid == getpid() ? r->group : NULL;
    (void)unused;

    if (r->is_used) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is in a call of this group");
        return NULL;
    }
    r->group = NULL;
    PyThreadState *left = PyEval_SaveThread();
    manta_group_close(group);
    PyEval_RestoreThread(left);
    Py_RETURN_NONE;
}

static void ranks_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_XDECREF(ranks_close(self, NULL)); /* a thread in a call would hold a reference */
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* (kind, in, out, n, dtype, reduce, peer), in and out being addresses */
static bool collective_of(PyObject *args, manta_collective *out)
{
    int kind, dtype, reduce, peer;
    unsigned long long from, to;
    long long n;

    if (!PyArg_ParseTuple(args, "iKKLiii:collective", &kind, &from, &to, &n, &dtype, &reduce, &peer))
        return false;
    if (kind < 0 || kind >= MANTA_COLLECTIVE_COUNT || dtype < 0 || dtype >= MANTA_DTYPE_COUNT || reduce < 0 ||
        reduce >= MANTA_REDUCE_COUNT || n < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "no collective has this kind, type, reduction or number of elements");
        return false;
    }
    *out = (manta_collective){.kind = (manta_collective_kind)kind,
                              .in = (const void *)(uintptr_t)from,
                              .out = (void *)(uintptr_t)to,
                              .n = n,
                              .dtype = (manta_dtype)dtype,
                              .reduce = (manta_reduce)reduce,
                              .peer = peer};
    return true;
}

static PyObject *ranks_run(PyObject *self, PyObject *args)
{
    manta_collective c;
    manta_group *group;

    if (!collective_of(args, &c) || !(group = ranks_enter(self))) return NULL;
    PyThreadState *left = PyEval_SaveThread();
    manta_status st = manta_group_run(group, &c);
    PyEval_RestoreThread(left);
    return ranks_leave(self, st);
}

static PyObject *ranks_start(PyObject *self, PyObject *args)
{
    manta_collective c;
    manta_group *group;
    manta_work *work = NULL;

    if (!collective_of(args, &c) || !(group = ranks_enter(self))) return NULL;
    PyThreadState *left = PyEval_SaveThread();
    manta_status st = manta_group_start(group, &c, &work);
    PyEval_RestoreThread(left);
    PyObject *done = ranks_leave(self, st);
    if (!done) return NULL;
    Py_DECREF(done);
    return PyLong_FromUnsignedLongLong((uintptr_t)work);
}

/* The work that start() has given; NULL with an exception. */
static manta_work *work_of(PyObject *o)
{
    unsigned long long at = PyLong_AsUnsignedLongLong(o);

    if (PyErr_Occurred()) return NULL;
    if (!at) PyErr_SetString(PyExc_ValueError, "0 is no work that start() has given");
    return (manta_work *)(uintptr_t)at;
}

static PyObject *ranks_test(PyObject *self, PyObject *o)
{
    manta_work *work = work_of(o);

    if (!work || !ranks_enter(self)) return NULL;
    PyThreadState *left = PyEval_SaveThread(); /* it may copy much on the way */
    bool done = manta_work_test(work);
    PyEval_RestoreThread(left);
    ((py_ranks *)self)->is_used = false;
    return PyBool_FromLong(done);
}

static PyObject *ranks_wait(PyObject *self, PyObject *o)
{
    manta_work *work = work_of(o);

    if (!work || !ranks_enter(self)) return NULL;
    PyThreadState *left = PyEval_SaveThread();
    manta_status st = manta_work_wait(work);
    PyEval_RestoreThread(left);
    return ranks_leave(self, st);
}

static PyMethodDef ranks_methods[] = {
    {"run", ranks_run, METH_VARARGS, "Does a collective and waits for it."},
    {"start", ranks_start, METH_VARARGS, "Starts a collective: its work, for test() and, once, wait()."},
    {"test", ranks_test, METH_O, "Whether a work is done; moves things on and does not wait."},
    {"wait", ranks_wait, METH_O, "Waits until a work is done, and gives it back."},
    {"close", ranks_close, METH_NOARGS, "Leaves the group: those that still need this rank are told."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot ranks_slots[] = {{Py_tp_new, ranks_new},
                                    {Py_tp_dealloc, ranks_dealloc},
                                    {Py_tp_methods, ranks_methods},
                                    {Py_tp_doc, PY_DOC("A group of ranks and its collectives.")},
                                    {0, NULL}};

PyType_Spec py_ranks_spec = {.name = "manta._manta.Ranks",
                             .basicsize = sizeof(py_ranks),
                             .flags = Py_TPFLAGS_DEFAULT,
                             .slots = ranks_slots};
