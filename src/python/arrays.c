/* arrays.c - arrays that Python lends to the library for a while, by the buffer protocol. */
#include "model.h"

#include <string.h>

PyObject *py_shape(int ndim, const int64_t *shape, int from)
{
    PyObject *out = PyTuple_New(ndim > from ? ndim - from : 0);

    for (int i = from; out && i < ndim; i++) {
        PyObject *d = PyLong_FromLongLong(shape[i]);
        if (!d || PyTuple_SetItem(out, i - from, d)) {
            Py_DECREF(out);
            return NULL;
        }
    }
    return out;
}

static bool read_shape(PyObject *shape, manta_array *out)
{
    Py_ssize_t n = PyTuple_Size(shape);

    if (n < 0) return false;
    if (n > MANTA_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "the array has %zd dimensions, expected at most %d", n,
                     MANTA_MAX_DIMS);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        out->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (out->shape[i] < 0) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "the array has the shape %R, expected no negative dimension",
                             shape);
            return false;
        }
    }
    out->ndim = (int)n;
    return true;
}

/* A view of the buffer, whose size must be what type and shape take. */
static bool read_view(PyObject *buffer, bool writable, Py_buffer *view, manta_array *out)
{
    manta_array a = *out;

    if (PyObject_GetBuffer(buffer, view, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0))) return false;
    *out = manta_array_of(a.dtype, a.ndim, a.shape, view->buf);
    if ((size_t)view->len == manta_array_bytes(out)) return true;
    PyErr_Format(PyExc_ValueError, "the array has %zd bytes, expected %zu: %s of its shape", view->len,
                 manta_array_bytes(out), manta_dtype_name(a.dtype));
    PyBuffer_Release(view);
    return false;
}

bool py_array_of(PyObject *o, bool writable, Py_buffer *view, manta_array *out)
{
    PyObject *buffer, *shape;
    const char *dtype;

    memset(out, 0, sizeof *out);
    if (!PyTuple_Check(o)) {
        PyErr_SetString(PyExc_TypeError, "an array is (buffer, dtype, shape)");
        return false;
    }
    if (!PyArg_ParseTuple(o, "OsO!:array", &buffer, &dtype, &PyTuple_Type, &shape)) return false;
    if (manta_dtype_parse(dtype, &out->dtype)) {
        (void)py_raise_plain(MANTA_EINVAL);
        return false;
    }
    return read_shape(shape, out) && read_view(buffer, writable, view, out);
}

/* (name, buffer, dtype, shape) */
static bool read_column(PyObject *o, bool writable, py_arrays *out)
{
    const char *name;
    PyObject *buffer, *dtype, *shape, *rest;
    bool ok;

    if (!PyTuple_Check(o) || !PyArg_ParseTuple(o, "sOOO:column", &name, &buffer, &dtype, &shape)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a column is (name, buffer, dtype, shape)");
        return false;
    }
    if (!(rest = PyTuple_Pack(3, buffer, dtype, shape))) return false;
    ok = py_array_of(rest, writable, &out->views[out->n], &out->at[out->n]);
    Py_DECREF(rest);
    out->names[out->n] = name;
    return ok;
}

bool py_arrays_of(PyObject *list, bool named, bool writable, py_arrays *out)
{
    Py_ssize_t n = PyList_Check(list) ? PyList_Size(list) : -1;

    out->n = 0;
    if (n < 0 || n > MANTA_MAX_COLUMNS) {
        PyErr_Format(PyExc_ValueError, "expected a list of at most %d arrays", MANTA_MAX_COLUMNS);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyList_GetItem(list, i);
        bool ok = named ? read_column(o, writable, out)
                        : py_array_of(o, writable, &out->views[out->n], &out->at[out->n]);
        if (!ok) {
            py_arrays_release(out);
            return false;
        }
        out->n++;
    }
    return true;
}

void py_arrays_release(py_arrays *a)
{
    for (int i = 0; i < a->n; i++) PyBuffer_Release(&a->views[i]);
    a->n = 0;
}
