/* dataset.c - Dataset: samples in arrays of Python, or by the words that `manta train --data` takes, and the stages
 * that shape them.
 *
 * A dataset of arrays reads the memory that Python has lent until nothing of it is left: what a stage makes of it
 * keeps it. */
#include "model.h"

#include <stdlib.h>

#include <manta/data_file.h>

typedef struct py_dataset {
    PyObject head;
    manta_dataset *d;
    py_arrays *lent; /* NULL: it has no arrays of its own */
    PyObject *of; /* a tuple of what it was made of, or of the texts that name columns */
} py_dataset;

manta_dataset *py_dataset_of(PyObject *o)
{
    if (Py_TYPE(o) == py->dataset) return ((py_dataset *)o)->d;
    PyErr_Format(PyExc_TypeError, "expected a Dataset, not %R", (PyObject *)Py_TYPE(o));
    return NULL;
}

/* Takes over d, the arrays and `of`; refuses what a stage has latched. */
static PyObject *take_dataset(manta_dataset *d, py_arrays *lent, PyObject *of)
{
    py_dataset *out = NULL;

    if (!of || manta_dataset_status(d)) {
        if (of) (void)py_raise_plain(manta_dataset_status(d));
    } else {
        out = (py_dataset *)PyType_GenericAlloc(py->dataset, 0);
    }
    if (out) {
        out->d = d;
        out->lent = lent;
        out->of = of;
        return (PyObject *)out;
    }
    manta_dataset_unref(d);
    if (lent) py_arrays_release(lent);
    free(lent);
    Py_XDECREF(of);
    return NULL;
}

/* ---- sources ---- */

static PyObject *dataset_of_arrays(PyObject *list)
{
    manta_column columns[MANTA_MAX_COLUMNS];
    py_arrays *lent = calloc(1, sizeof *lent);

    if (!lent) return PyErr_NoMemory();
    if (!py_arrays_of(list, true, false, lent)) {
        free(lent);
        return NULL;
    }
    for (int i = 0; i < lent->n; i++) columns[i] = (manta_column){lent->names[i], lent->at[i]};
    return take_dataset(manta_dataset_arrays(lent->n, columns, MANTA_OWNERSHIP_BORROW), lent,
                        PyTuple_Pack(1, list));
}

static PyObject *dataset_of_words(PyObject *spec)
{
    const char *text = PyUnicode_AsUTF8AndSize(spec, NULL);
    manta_dataset *d = NULL;
    manta_status st;

    if (!text) return NULL;
    PyThreadState *left = PyEval_SaveThread();
    st = manta_dataset_open(text, NULL, &d);
    PyEval_RestoreThread(left);
    return st ? py_raise_plain(st) : take_dataset(d, NULL, PyTuple_New(0));
}

/* Dataset(words), or Dataset([(name, buffer, dtype, shape)]) */
static PyObject *dataset_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *source;
    (void)type;
    (void)kwargs;

    if (!PyArg_ParseTuple(args, "O:Dataset", &source)) return NULL;
    return PyUnicode_Check(source) ? dataset_of_words(source) : dataset_of_arrays(source);
}

static void dataset_dealloc(PyObject *self)
{
    py_dataset *d = (py_dataset *)self;
    PyTypeObject *type = Py_TYPE(self);

    manta_dataset_unref(d->d);
    if (d->lent) py_arrays_release(d->lent);
    free(d->lent);
    Py_XDECREF(d->of);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- stages ---- */

/* One more hold of the dataset, for a stage that takes it. */
static manta_dataset *hold_dataset(PyObject *self)
{
    return manta_dataset_ref(((py_dataset *)self)->d);
}

static PyObject *dataset_take(PyObject *self, PyObject *args)
{
    long long n;

    if (!PyArg_ParseTuple(args, "L:take", &n)) return NULL;
    return take_dataset(manta_dataset_take(hold_dataset(self), n), NULL, PyTuple_Pack(1, self));
}

static PyObject *dataset_skip(PyObject *self, PyObject *args)
{
    long long n;

    if (!PyArg_ParseTuple(args, "L:skip", &n)) return NULL;
    return take_dataset(manta_dataset_skip(hold_dataset(self), n), NULL, PyTuple_Pack(1, self));
}

static PyObject *dataset_repeat(PyObject *self, PyObject *args)
{
    long long n;

    if (!PyArg_ParseTuple(args, "L:repeat", &n)) return NULL;
    return take_dataset(manta_dataset_repeat(hold_dataset(self), n), NULL, PyTuple_Pack(1, self));
}

static PyObject *dataset_shuffle(PyObject *self, PyObject *args)
{
    long long buffer;
    unsigned long long seed;

    if (!PyArg_ParseTuple(args, "LK:shuffle", &buffer, &seed)) return NULL;
    return take_dataset(manta_dataset_shuffle(hold_dataset(self), buffer, seed), NULL, PyTuple_Pack(1, self));
}

static PyObject *dataset_batch(PyObject *self, PyObject *args)
{
    long long n;
    int drop;

    if (!PyArg_ParseTuple(args, "Lp:batch", &n, &drop)) return NULL;
    return take_dataset(manta_dataset_batch(hold_dataset(self), n, drop), NULL, PyTuple_Pack(1, self));
}

static PyObject *dataset_cache(PyObject *self, PyObject *unused)
{
    (void)unused;
    return take_dataset(manta_dataset_cache(hold_dataset(self)), NULL, PyTuple_Pack(1, self));
}

static PyObject *dataset_scale(PyObject *self, PyObject *args)
{
    const char *column;
    float divisor;

    if (!PyArg_ParseTuple(args, "sf:scale", &column, &divisor)) return NULL;
    return take_dataset(manta_dataset_scale(hold_dataset(self), column, divisor), NULL,
                        PyTuple_Pack(1, self));
}

static PyObject *dataset_cast(PyObject *self, PyObject *args)
{
    const char *column, *dtype;
    manta_dtype t;

    if (!PyArg_ParseTuple(args, "ss:cast", &column, &dtype)) return NULL;
    if (manta_dtype_parse(dtype, &t)) return py_raise_plain(MANTA_EINVAL);
    return take_dataset(manta_dataset_cast(hold_dataset(self), column, t), NULL, PyTuple_Pack(1, self));
}

static PyObject *dataset_rename(PyObject *self, PyObject *args)
{
    const char *from, *to;

    if (!PyArg_ParseTuple(args, "ss:rename", &from, &to)) return NULL;
    return take_dataset(manta_dataset_rename(hold_dataset(self), from, to), NULL, PyTuple_Pack(1, self));
}

static PyObject *dataset_zip(PyObject *self, PyObject *other)
{
    if (!py_dataset_of(other)) return NULL;
    return take_dataset(manta_dataset_zip(hold_dataset(self), hold_dataset(other)), NULL,
                        PyTuple_Pack(2, self, other));
}

static PyObject *dataset_concatenate(PyObject *self, PyObject *other)
{
    if (!py_dataset_of(other)) return NULL;
    return take_dataset(manta_dataset_concatenate(hold_dataset(self), hold_dataset(other)), NULL,
                        PyTuple_Pack(2, self, other));
}

/* ---- what is read ---- */

static PyObject *dataset_count(PyObject *self, void *unused)
{
    int64_t n = manta_dataset_count(((py_dataset *)self)->d);
    (void)unused;

    if (n < 0) Py_RETURN_NONE;
    return PyLong_FromLongLong(n);
}

static PyObject *dataset_is_batched(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(manta_dataset_is_batched(((py_dataset *)self)->d));
}

/* [(name, dtype, shape of a sample)] */
static PyObject *dataset_columns(PyObject *self, void *unused)
{
    const manta_column_spec *columns = NULL;
    int n = manta_dataset_columns(((py_dataset *)self)->d, &columns);
    PyObject *out = PyList_New(0);
    (void)unused;

    for (int i = 0; out && i < n; i++) {
        PyObject *one = Py_BuildValue("ssN", columns[i].name, manta_dtype_name(columns[i].dtype),
                                      py_shape(columns[i].ndim, columns[i].shape, 0));
        if (!one || PyList_Append(out, one)) Py_CLEAR(out);
        Py_XDECREF(one);
    }
    return out;
}

static PyMethodDef dataset_methods[] = {
    {"take", dataset_take, METH_VARARGS, "The first n elements."},
    {"skip", dataset_skip, METH_VARARGS, "All but the first n elements."},
    {"repeat", dataset_repeat, METH_VARARGS, "So many passes; -1: without end."},
    {"shuffle", dataset_shuffle, METH_VARARGS,
     "Another order each epoch, by a buffer (0: of all) and a seed."},
    {"batch", dataset_batch, METH_VARARGS, "Batches of n; whether a smaller last one is dropped."},
    {"cache", dataset_cache, METH_NOARGS, "Kept in memory from the first visit on."},
    {"scale", dataset_scale, METH_VARARGS, "A column divided by a number."},
    {"cast", dataset_cast, METH_VARARGS, "A column as another dtype."},
    {"rename", dataset_rename, METH_VARARGS, "A column by another name."},
    {"zip", dataset_zip, METH_O, "The columns of both, side by side."},
    {"concatenate", dataset_concatenate, METH_O, "This one's samples, then the other's."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef dataset_attributes[] = {{"count", dataset_count, NULL, NULL, NULL},
                                           {"is_batched", dataset_is_batched, NULL, NULL, NULL},
                                           {"columns", dataset_columns, NULL, NULL, NULL},
                                           {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot dataset_slots[] = {
    {Py_tp_new, dataset_new},
    {Py_tp_dealloc, dataset_dealloc},
    {Py_tp_methods, dataset_methods},
    {Py_tp_getset, dataset_attributes},
    {Py_tp_doc, PY_DOC("Where samples come from, and what is done to them.")},
    {0, NULL}};

PyType_Spec py_dataset_spec = {.name = "manta._manta.Dataset",
                               .basicsize = sizeof(py_dataset),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = dataset_slots};
