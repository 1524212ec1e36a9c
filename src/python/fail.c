/* fail.c - a failure of the runtime as an exception of Python, made in one place. */
#include "py.h"

#include <stdarg.h>
#include <string.h>

#include <manta/failure.h>
#include <manta/status.h>

static const char *const kinds[] = {"none",      "task",        "worker", "actor",          "unknown",
                                    "cancelled", "lost",        "full",   "impossible",     "node",
                                    "submit",    "unavailable", "memory", "placement_group"};

PyObject *py_ask(py_hook hook, ...)
{
    PyObject *args[4], *tuple, *out = NULL;
    Py_ssize_t n = 0;
    va_list ap;

    if (!py->hooks[hook]) {
        PyErr_SetString(PyExc_RuntimeError, "manta._manta is used without manta: import manta");
        return NULL;
    }
    va_start(ap, hook);
    while (n < 4 && (args[n] = va_arg(ap, PyObject *))) n++;
    va_end(ap);
    if (!(tuple = PyTuple_New(n))) return NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(tuple, i, args[i]);
    }
    out = PyObject_Call(py->hooks[hook], tuple, NULL);
    Py_DECREF(tuple);
    return out;
}

/* The runtime has so much room for a text, and cuts it where that ends, which may be within a letter. */
static PyObject *readable_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *failure_dict(const manta_failure *f)
{
    unsigned kind = (unsigned)f->kind;

    return Py_BuildValue("{s:s,s:s,s:i,s:N,s:N,s:N,s:N}", "kind",
                         kind < sizeof kinds / sizeof kinds[0] ? kinds[kind] : "unknown", "code",
                         manta_status_name(f->code), "pid", f->pid, "function", readable_text(f->function),
                         "host", readable_text(f->host), "chain", readable_text(f->chain), "text",
                         readable_text(f->text));
}

static void raise_instance(PyObject *e)
{
    if (!e) return;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
}

static PyObject *payload_of(manta_ref ref)
{
    const void *at = NULL;
    size_t n = 0;

    if (!manta_failure_payload(ref, &at, &n) && n > 0) return PyBytes_FromStringAndSize(at, (Py_ssize_t)n);
    Py_RETURN_NONE;
}

PyObject *py_raise(manta_status st, manta_ref ref)
{
    manta_failure f = {0};
    manta_error e;
    PyObject *failure = NULL, *payload = NULL, *text = NULL, *status = NULL;

    if (PyErr_Occurred()) return NULL; /* a signal's handler raised it */
    manta_error_get(&e);
    py_await_interrupt();
    if (PyErr_Occurred()) return NULL;
    if (ref.id) manta_failure_get(ref, &f);
    if (f.kind) {
        failure = failure_dict(&f);
        payload = payload_of(ref);
    }
    text = readable_text(f.kind ? f.text : e.text);
    status = PyUnicode_FromString(manta_status_name(st));
    if (text && status)
        raise_instance(py_ask(PY_HOOK_ERROR, status, text, failure ? failure : Py_None,
                              payload ? payload : Py_None, NULL));
    Py_XDECREF(failure);
    Py_XDECREF(payload);
    Py_XDECREF(text);
    Py_XDECREF(status);
    return NULL;
}

PyObject *py_raise_plain(manta_status st)
{
    PyObject *kind = st == MANTA_EINVAL || st == MANTA_EUNSUPPORTED ? PyExc_ValueError
                     : st == MANTA_EEXIST                           ? PyExc_FileExistsError
                     : st == MANTA_ENOENT                           ? PyExc_FileNotFoundError
                     : st == MANTA_ETIMEDOUT                        ? PyExc_TimeoutError
                     : st == MANTA_EIO                              ? PyExc_OSError
                                                                    : PyExc_RuntimeError;
    manta_error e;
    PyObject *text;

    manta_error_get(&e);
    if ((text = readable_text(e.text))) PyErr_SetObject(kind, text);
    Py_XDECREF(text);
    return NULL;
}

bool py_ready(void)
{
    if (py->life) return true;
    PyObject *done = py_ask(PY_HOOK_PREPARE, Py_None, NULL); /* starts a node, with the defaults */
    Py_XDECREF(done);
    if (done && !py->life)
        PyErr_SetString(PyExc_RuntimeError, "the runtime does not run: call manta.init() first");
    return done && py->life;
}

bool py_still_runs(void)
{
    if (py->life) return true;
    py_come_back(py_leave()); /* at the end of the process threads stay there */
    PyErr_SetString(PyExc_ValueError, "the runtime was shut down meanwhile");
    return false;
}

PyObject *py_failure(PyObject *self, PyObject *o)
{
    manta_failure f;
    manta_ref ref;
    (void)self;

    if (!py_ref_of(o, &ref)) return NULL;
    manta_failure_get(ref, &f);
    if (!f.kind) Py_RETURN_NONE;
    return failure_dict(&f);
}
