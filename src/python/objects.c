/* objects.c - put, get, wait, cancel and promises, and what failed.
 *
 * What is ready is returned without giving the interpreter away: get() and wait() look once with
 * a time of 0, and only then wait, by py_wait() (hooks.c), which lets other threads run, hears
 * signals, and ends with shutdown. A put gives the interpreter away from PY_QUICK bytes on, since
 * it copies.
 *
 * References that the program has let go are given back first (py_drops_flush()), so that memory
 * which they hold is there for what comes. A get of several objects fails with the failure of the
 * first one that failed. */
#include "py.h"

#include <stdlib.h>

#include <manta/failure.h>

/* ---- put ---- */

PyObject *py_put(PyObject *self, PyObject *o)
{
    py_value v;
    manta_ref ref = {0};
    manta_failure f = {0};
    (void)self;

    if (!py_ready()) return NULL;
    if (Py_TYPE(o) == py->ref) {
        PyErr_SetString(PyExc_TypeError,
                        "an ObjectRef is an object already: put a list that holds it to keep it as one");
        return NULL;
    }
    if (py_encode(o, &v) && py_still_runs()) {
        py_drops_flush(v.size > PY_QUICK);
        if (v.size > PY_QUICK) {
            PyThreadState *left = py_leave();
            ref = manta_put(v.arg);
            py_come_back(left);
        } else {
            ref = manta_put(v.arg);
        }
        if (v.owns && ref.id) manta_failure_get(ref, &f);
    }
    bool is_large = v.size >= PY_KEPT && v.owns;
    py_value_release(&v);
    if (PyErr_Occurred()) return NULL;
    PyObject *out = py_ref_take(ref);
    if (out) ((py_ref *)out)->is_large = is_large;
    if (out && f.kind) {
        py_raise(f.code, ref);
        Py_CLEAR(out);
    }
    return out;
}

/* ---- get ---- */

static manta_status wait_for_one(void *ctx, int64_t timeout_ms)
{
    return manta_get(*(const manta_ref *)ctx, timeout_ms);
}

static PyObject *get_one(PyObject *o, int64_t timeout_ms, bool copy)
{
    manta_ref ref;
    bool ready = false;

    if (!py_ref_of(o, &ref)) return NULL;
    manta_status st = manta_wait(&ref, 1, 1, 0, &ready, NULL);
    if (!st && !ready) st = py_wait(wait_for_one, &ref, timeout_ms);
    return st ? py_raise(st, ref) : py_decode_object(ref, copy);
}

typedef struct many {
    manta_ref *refs;
    size_t n, want, found;
    bool *ready;
} many;

static manta_status wait_for_all(void *ctx, int64_t timeout_ms)
{
    const many *m = ctx;

    return manta_get_all(m->refs, m->n, timeout_ms);
}

static bool refs_of(PyObject *tuple, manta_ref **out)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    manta_ref *refs = malloc((size_t)n * sizeof *refs + 1);

    if (!refs) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (py_ref_of(PyTuple_GetItem(tuple, i), &refs[i])) continue;
        free(refs);
        return false;
    }
    *out = refs;
    return true;
}

/* The first that failed; it is why manta_get_all() did. */
static manta_ref failed_one(const many *m)
{
    manta_failure f;

    for (size_t i = 0; i < m->n; i++) {
        manta_failure_get(m->refs[i], &f);
        if (f.kind) return m->refs[i];
    }
    return (manta_ref){0};
}

static PyObject *get_many(PyObject *sequence, int64_t timeout_ms, bool copy)
{
    PyObject *held = PySequence_Tuple(sequence), *out = NULL;
    many m = {0};

    if (!held) return NULL;
    if (!refs_of(held, &m.refs)) goto out;
    m.n = (size_t)PyTuple_Size(held);
    manta_status st = m.n > 0 ? py_wait(wait_for_all, &m, timeout_ms) : MANTA_OK;
    if (st) {
        py_raise(st, st == MANTA_ETIMEDOUT ? (manta_ref){0} : failed_one(&m));
        goto out;
    }
    out = PyList_New((Py_ssize_t)m.n);
    for (size_t i = 0; out && i < m.n; i++) {
        PyObject *x = py_decode_object(m.refs[i], copy);
        if (!x)
            Py_CLEAR(out);
        else
            PyList_SetItem(out, (Py_ssize_t)i, x);
    }
out:
    free(m.refs);
    Py_DECREF(held);
    return out;
}

/* get(refs, timeout=None, copy=False) */
PyObject *py_get(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    int64_t timeout_ms = MANTA_FOREVER;
    (void)self;

    if (n < 1 || n > 3) {
        PyErr_SetString(PyExc_TypeError, "get() takes references, a timeout and copy");
        return NULL;
    }
    if (n > 1 && !py_timeout(args[1], &timeout_ms)) return NULL;
    bool copy = n > 2 && PyObject_IsTrue(args[2]) == 1;
    py_drops_flush(false);
    if (Py_TYPE(args[0]) == py->ref) return get_one(args[0], timeout_ms, copy);
    if (PyList_Check(args[0]) || PyTuple_Check(args[0])) return get_many(args[0], timeout_ms, copy);
    PyErr_Format(PyExc_TypeError, "get() expects an ObjectRef or a list of them, given %R", Py_TYPE(args[0]));
    return NULL;
}

/* ---- wait ---- */

static manta_status wait_for_some(void *ctx, int64_t timeout_ms)
{
    many *m = ctx;
    manta_status st = manta_wait(m->refs, m->n, m->want, timeout_ms, m->ready, &m->found);

    return !st && m->found < m->want ? MANTA_ETIMEDOUT : st;
}

static PyObject *split_ready(PyObject *held, const many *m)
{
    Py_ssize_t n_ready = (Py_ssize_t)m->found, n = (Py_ssize_t)m->n, r = 0, l = 0;
    PyObject *ready = PyList_New(n_ready), *left = PyList_New(n - n_ready), *out = NULL;

    for (Py_ssize_t i = 0; ready && left && i < n; i++) {
        PyObject *o = PyTuple_GetItem(held, i);
        Py_INCREF(o);
        if (m->ready[i])
            PyList_SetItem(ready, r++, o);
        else
            PyList_SetItem(left, l++, o);
    }
    if (ready && left) out = PyTuple_Pack(2, ready, left);
    Py_XDECREF(ready);
    Py_XDECREF(left);
    return out;
}

/* wait(refs, num_returns, timeout) */
PyObject *py_wait_for(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    int64_t timeout_ms;
    PyObject *held = NULL, *out = NULL;
    many m = {0};
    (void)self;

    if (n != 3) return PyErr_Format(PyExc_TypeError, "wait() takes references, num_returns and a timeout");
    if (!PyList_Check(args[0]) && !PyTuple_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "wait() expects a list of ObjectRefs, given %R",
                            Py_TYPE(args[0]));
    Py_ssize_t want = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred() || !py_timeout(args[2], &timeout_ms)) return NULL;
    if (!(held = PySequence_Tuple(args[0]))) return NULL;
    if (!refs_of(held, &m.refs)) goto out;
    m.n = (size_t)PyTuple_Size(held);
    m.want = (size_t)want;
    if (want < 1 || m.want > m.n) {
        PyErr_Format(PyExc_ValueError, "num_returns is %zd, expected 1 to %zu, the number of references",
                     want, m.n);
        goto out;
    }
    if (!(m.ready = calloc(m.n + 1, 1))) {
        PyErr_NoMemory();
        goto out;
    }
    py_drops_flush(false);
    manta_status st = wait_for_some(&m, 0);
    if (st == MANTA_ETIMEDOUT && timeout_ms) st = py_wait(wait_for_some, &m, timeout_ms);
    if (st && st != MANTA_ETIMEDOUT)
        py_raise(st, (manta_ref){0});
    else
        out = split_ready(held, &m);
out:
    free(m.refs);
    free(m.ready);
    Py_DECREF(held);
    return out;
}

/* cancel(ref, force, recursive) */
PyObject *py_cancel(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    manta_ref ref;
    (void)self;

    if (n != 3) return PyErr_Format(PyExc_TypeError, "cancel() takes a reference, force and recursive");
    if (!py_ref_of(args[0], &ref)) return NULL;
    unsigned how = (PyObject_IsTrue(args[1]) ? MANTA_CANCEL_FORCE : 0u) |
                   (PyObject_IsTrue(args[2]) ? 0u : MANTA_CANCEL_ALONE);
    manta_status st;
    PyThreadState *left = py_leave();
    st = manta_cancel(ref, how);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_NONE;
}

/* ---- promises ---- */

/* promise(): a reference that promise_settle() or promise_break() makes ready. */
PyObject *py_promise(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return py_ready() ? py_ref_take(manta_promise()) : NULL;
}

/* promise_settle(promise, ref): it becomes what ref, which is ready, is. */
PyObject *py_promise_settle(PyObject *self, PyObject *args)
{
    PyObject *promise, *as;
    manta_ref to, from;
    manta_status st;
    (void)self;

    if (!PyArg_ParseTuple(args, "OO:promise_settle", &promise, &as)) return NULL;
    if (!py_ref_of(promise, &to) || !py_ref_of(as, &from)) return NULL;
    PyThreadState *left = py_leave();
    st = manta_promise_settle(to, from);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_NONE;
}

/* promise_break(promise, text): what it was to be does not exist. */
PyObject *py_promise_break(PyObject *self, PyObject *args)
{
    PyObject *promise;
    const char *text;
    manta_ref ref;
    manta_status st;
    (void)self;

    if (!PyArg_ParseTuple(args, "Os:promise_break", &promise, &text) || !py_ref_of(promise, &ref))
        return NULL;
    PyThreadState *left = py_leave();
    st = manta_promise_break(ref, MANTA_ENOENT, text);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_NONE;
}
