/* results.c - what a call ends with: values, items of a stream, an exception.
 *
 * What a call says besides its arguments (the dict `how`, {} of most calls):
 *     retry    classes of exceptions; others are not tried again
 *     dynamic  what the generator yields becomes one value, of references
 *     group    each yield gives so many items
 *     limit    of items that all streams of this actor together may be ahead of their readers
 *
 * An exception travels as the payload of a failure (the hook `failed`). One that is to be
 * tried again has a status of its own, RETRIED, which the caller's options name (retry_on).
 *
 * A generator is asked for its next item when there is room for it, and not before: so a
 * program sees how far it may run ahead. */
#include "py.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <manta/actor.h>
#include <manta/failure.h>
#include <manta/status.h>
#include <manta/stream.h>

#define RETRIED MANTA_EIO

/* ---- what a call says besides its arguments ---- */

PyObject *py_call_how(const manta_task *t)
{
    int64_t flags = 0;

    if (manta_arg_i64(t, 0, &flags) || !(flags & PY_CALL_HOW)) return Py_NewRef(py->no_how);
    PyObject *bytes = py_decode_argument(t, manta_args(t) - 1 - (flags & PY_CALL_CAPTURED ? 1 : 0));
    PyObject *how = bytes ? py_ask(PY_HOOK_HOW, bytes, NULL) : NULL;
    Py_XDECREF(bytes);
    return how;
}

uint64_t py_how_number(PyObject *how, const char *name)
{
    PyObject *n = PyDict_GetItemString(how, name);

    return n ? PyLong_AsUnsignedLongLong(n) : 0;
}

/* ---- exceptions ---- */

typedef struct told {
    PyObject *both;
    const char *text;
    char *bytes;
    Py_ssize_t n;
    manta_status code;
    char type[64]; /* of the exception */
} told;

static void name_type(PyObject *type, char *out, size_t size)
{
    PyObject *name = type ? PyType_GetName((PyTypeObject *)type) : NULL;
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;

    snprintf(out, size, "%s", text ? text : "an exception");
    Py_XDECREF(name);
    PyErr_Clear();
}

/* Describes the exception that is set, and clears it; false: nothing can be said of it. Give it back with
 * told_release(). */
static bool told_of(manta_task *t, const char *name, told *out)
{
    int64_t flags = 0;
    PyObject *type, *value, *trace, *text = NULL, *payload = NULL, *how;
    int again = 0;

    *out = (told){.text = name, .code = MANTA_EINVAL};
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    name_type(type, out->type, sizeof out->type);
    bool constructs = !manta_arg_i64(t, 0, &flags) && flags & PY_CALL_CONSTRUCTOR;
    PyObject *actor = flags & PY_CALL_METHOD ? manta_self(t) : NULL;
    PyObject *called = PyUnicode_FromFormat(constructs ? "%s.__init__" : "%s", name);
    if (!(how = py_call_how(t))) PyErr_Clear(), how = Py_NewRef(py->no_how);
    if (called) out->both = py_ask(PY_HOOK_FAILED, value, called, actor ? actor : Py_None, how, NULL);
    bool ok = out->both && PyArg_ParseTuple(out->both, "OOp", &text, &payload, &again) &&
              PyBytes_AsStringAndSize(payload, &out->bytes, &out->n) == 0;
    if (ok && PyUnicode_AsUTF8AndSize(text, NULL)) out->text = PyUnicode_AsUTF8AndSize(text, NULL);
    if (again) out->code = RETRIED;
    PyErr_Clear();
    Py_XDECREF(how);
    Py_XDECREF(called);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return ok;
}

static void told_release(told *x)
{
    Py_CLEAR(x->both);
}

static manta_status fail_told(manta_task *t, const char *name, const told *x, bool ok)
{
    if (!ok) return manta_fail(MANTA_EINVAL, "%s raised %s, which cannot be described", name, x->type);
    return manta_fail_with(t, x->code, x->text, x->bytes, (size_t)x->n);
}

manta_status py_call_fail(manta_task *t, const char *name)
{
    told x;
    bool ok = told_of(t, name, &x);
    manta_status st = fail_told(t, name, &x, ok);

    told_release(&x);
    return st;
}

/* Results from `first` on fail with the exception that is set; all of the call where it is to be tried again. */
static manta_status fail_rest(manta_task *t, const char *name, int first)
{
    told x;
    bool ok = told_of(t, name, &x);
    manta_status st = MANTA_OK;

    if (first == 0 || !ok || x.code == RETRIED)
        st = fail_told(t, name, &x, ok);
    else
        for (int i = first; !st && i < manta_results(t); i++)
            st = manta_return_failure(t, i, x.code, x.text, x.bytes, (size_t)x.n);
    told_release(&x);
    return st;
}

/* ---- values ---- */

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

/* Each value that a generator yields is a result, as soon as it is there; those before a failure stay. */
static manta_status return_generated(manta_task *t, const char *name, PyObject *generator, int n)
{
    PyObject *x = NULL;
    int i = 0;

    for (; i < n && (x = PyIter_Next(generator)); i++) {
        manta_status st = return_value(t, i, x);
        Py_DECREF(x);
        if (st) return fail_rest(t, name, i);
    }
    if (i < n && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError,
                     "the generator yielded %d values, and the caller expects num_returns=%d", i, n);
    if (PyErr_Occurred()) return fail_rest(t, name, i);
    if ((x = PyIter_Next(generator)))
        PySys_FormatStderr("%s yields more than num_returns=%d values: the others are lost\n",
                           py_label_of(name), n);
    Py_XDECREF(x);
    return PyErr_Occurred() ? MANTA_EINVAL : MANTA_OK;
}

manta_status py_return_all(manta_task *t, const char *name, PyObject *o, PyObject *how)
{
    int n = manta_results(t);

    if (PyDict_GetItemString(how, "dynamic")) {
        PyObject *refs = py_ask(PY_HOOK_ITEMS, o, how, NULL);
        manta_status st = refs ? return_value(t, 0, refs) : MANTA_EINVAL;
        Py_XDECREF(refs);
        return st;
    }
    if ((PyObject *)Py_TYPE(o) == py->generator) return return_generated(t, name, o, n);
    return n == 0 ? MANTA_OK : n == 1 ? return_value(t, 0, o) : return_several(t, o, n);
}

/* ---- items ---- */

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

/* What one yield gave: an item, or a tuple of them. */
static manta_status yield_group(manta_task *t, PyObject *o, uint64_t group)
{
    manta_status st = MANTA_OK;

    if (group <= 1) return yield_value(t, o);
    if (!PyTuple_Check(o) || (uint64_t)PyTuple_Size(o) != group) {
        PyErr_Format(PyExc_ValueError,
                     "a yield gave %R, expected a tuple of that many objects: _num_objects_per_yield=%llu", o,
                     (unsigned long long)group);
        return MANTA_EINVAL;
    }
    for (Py_ssize_t i = 0; !st && i < PyTuple_Size(o); i++) st = yield_value(t, PyTuple_GetItem(o, i));
    return st;
}

typedef struct room {
    manta_task *t;
    uint64_t group, limit;
} room;

static manta_status wait_for_room(const room *r, int64_t timeout_ms)
{
    PyThreadState *left = py_leave();
    manta_status st = manta_yield_room(r->t, r->group ? r->group : 1, r->limit, timeout_ms);

    py_come_back(left);
    return st;
}

manta_status py_yield_all(manta_task *t, PyObject *o, PyObject *how)
{
    PyObject *items = py_ask(PY_HOOK_ITEMS, o, how, NULL), *x = NULL;
    const room r = {t, py_how_number(how, "group"), py_how_number(how, "limit")};
    manta_status st = MANTA_OK;

    while (items && !st && !(st = wait_for_room(&r, MANTA_FOREVER)) && (x = PyIter_Next(items))) {
        st = yield_group(t, x, r.group);
        Py_DECREF(x);
    }
    Py_XDECREF(items);
    if (PyErr_Occurred()) st = MANTA_EINVAL;
    return st;
}

/* ---- calls that were deferred ---- */

bool py_deferred_of(PyObject *known, manta_task **t, const char **name)
{
    unsigned long long at, id;
    const char *group;

    if (!PyArg_ParseTuple(known, "KKss", &at, &id, name, &group)) return false;
    *t = (manta_task *)(uintptr_t)at;
    return true;
}

void py_flush_output(void)
{
    PyObject *out = PySys_GetObject("stdout"), *done;

    if (!out || out == Py_None || !py->is_worker) return;
    done = PyObject_CallMethodObjArgs(out, py->flush, NULL);
    if (!done) PyErr_Clear(); /* the program closed it */
    Py_XDECREF(done);
}

/* finish(deferred, value, exception): ends a call that was deferred. */
PyObject *py_finish(PyObject *self, PyObject *args)
{
    PyObject *known, *value, *error, *how;
    manta_task *t;
    const char *name;
    manta_status st = MANTA_EINVAL;
    (void)self;

    if (!PyArg_ParseTuple(args, "OOO:finish", &known, &value, &error) || !py_deferred_of(known, &t, &name))
        return NULL;
    if (error != Py_None)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    else if ((how = py_call_how(t))) {
        st = py_return_all(t, name, value, how);
        Py_DECREF(how);
    }
    if (PyErr_Occurred()) st = py_call_fail(t, name);
    py_flush_output();
    /* Who leaves the interpreter has it back late, after each call that comes, and what one result needs was had when
     * it was given. Several may still have to be brought into the store; and without other processes actors end under the
     * runtime's lock, which waits for the interpreter. */
    bool stays = py->is_worker && manta_results(t) <= 1;
    PyThreadState *left = stays ? NULL : py_leave();
    manta_task_finish(t, st);
    if (!stays) py_come_back(left);
    Py_RETURN_NONE;
}

/* ring_bell(fd): adds one to an eventfd that does not block, and so without giving the interpreter away. */
PyObject *py_ring_bell(PyObject *self, PyObject *fd)
{
    const uint64_t one = 1;
    int bell = (int)PyLong_AsLong(fd);
    (void)self;

    if (PyErr_Occurred()) return NULL;
    /* A number that is full, the one way to fail, has rung already. */
    (void)!write(bell, &one, sizeof one);
    Py_RETURN_NONE;
}

/* yield_item(deferred, value): False when nobody takes the items any more. Waits. */
PyObject *py_yield_item(PyObject *self, PyObject *args)
{
    PyObject *known, *value, *how;
    manta_task *t;
    const char *name;
    (void)self;

    if (!PyArg_ParseTuple(args, "OO:yield_item", &known, &value) || !py_deferred_of(known, &t, &name))
        return NULL;
    if (!(how = py_call_how(t))) return NULL;
    manta_status st = yield_group(t, value, py_how_number(how, "group"));
    Py_DECREF(how);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(st == MANTA_OK);
}

/* yield_room(deferred, group, limit, waits): True there is room for the next item, None there is none yet,
 * False nobody takes the items any more. */
PyObject *py_yield_room(PyObject *self, PyObject *args)
{
    PyObject *known;
    const char *name;
    unsigned long long group, limit;
    int waits;
    room r;
    (void)self;

    if (!PyArg_ParseTuple(args, "OKKp:yield_room", &known, &group, &limit, &waits) ||
        !py_deferred_of(known, &r.t, &name))
        return NULL;
    r.group = group;
    r.limit = limit;
    manta_status st = wait_for_room(&r, waits ? MANTA_FOREVER : 0);
    if (st == MANTA_ETIMEDOUT) Py_RETURN_NONE;
    return PyBool_FromLong(st == MANTA_OK);
}

/* yield_taken(deferred): waits until all items were taken, or nobody takes them any more. */
PyObject *py_yield_taken(PyObject *self, PyObject *deferred)
{
    manta_task *t;
    const char *name;
    (void)self;

    if (!py_deferred_of(deferred, &t, &name)) return NULL;
    PyThreadState *left = py_leave();
    (void)!manta_yield_taken(t, MANTA_FOREVER); /* the call ends either way */
    py_come_back(left);
    Py_RETURN_NONE;
}
