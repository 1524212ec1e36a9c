/* function.c - Function: what a remote function of Python calls with. Its subclass in Python
 * (RemoteFunction) has the function itself, and makes copies with other options.
 *
 * Before the first call in a life of the runtime Python is asked to prepare it: a node is
 * started if there is none, and the function's code is put where workers find it. */
#include "py.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESULTS_FEW 8

typedef struct py_function {
    PyObject head;
    char name[64];
    py_options options;
    int results;
    bool is_stream;
    uint32_t life; /* in which it was prepared */
    PyObject *how; /* bytes; NULL: nothing is to be said */
    PyObject *captured; /* references and handles that its code refers to; NULL: none */
} py_function;

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *name;
    PyObject *options, *how = Py_None;
    int results, is_stream;
    (void)kwargs;

    if (!PyArg_ParseTuple(args, "sOip|O:Function", &name, &options, &results, &is_stream, &how)) return NULL;
    if (strlen(name) > 63 || results < 0 || results > 1000)
        return PyErr_Format(PyExc_ValueError, "num_returns is %d, expected 0 to 1000", results);
    py_function *f = (py_function *)PyType_GenericAlloc(type, 0);
    if (!f) return NULL;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->results = results;
    f->is_stream = is_stream;
    if (how != Py_None) f->how = Py_NewRef(how);
    if (!py_options_fill(options, &f->options)) Py_CLEAR(f);
    return (PyObject *)f;
}

static void function_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    py_options_release(&((py_function *)self)->options);
    Py_XDECREF(((py_function *)self)->how);
    Py_XDECREF(((py_function *)self)->captured);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* The hook returns what the function's code has captured, or None. */
static bool prepare_function(py_function *f)
{
    PyObject *captured = py_ask(PY_HOOK_PREPARE, (PyObject *)f, NULL);

    if (!captured) return false;
    f->life = py->life;
    if (captured == Py_None) Py_CLEAR(captured);
    py_replace(&f->captured, captured);
    return true;
}

static PyObject *submit_function(const py_function *f, const py_call *c)
{
    manta_ref few[RESULTS_FEW],
        *refs = f->results > RESULTS_FEW ? malloc((size_t)f->results * sizeof *refs) : few;
    PyObject *out = NULL;

    if (!refs) return PyErr_NoMemory();
    if (PY_IS_SLOW(c->size)) {
        PyThreadState *left = py_leave();
        manta_submit(f->name, &f->options.o, c->n_args, c->args, f->results, refs);
        py_come_back(left);
    } else {
        manta_submit(f->name, &f->options.o, c->n_args, c->args, f->results, refs);
    }
    out = py_results(refs, f->results, false);
    if (refs != few) free(refs);
    return out;
}

static PyObject *stream_function(const py_function *f, const py_call *c)
{
    manta_stream s;

    PyThreadState *left = py_leave();
    s = manta_stream_start(f->name, &f->options.o, c->n_args, c->args);
    py_come_back(left);
    return py_stream_take(s);
}

static PyObject *function_remote(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    py_function *f = (py_function *)self;
    PyObject *out = NULL;
    py_call c;

    if ((f->life != py->life || !f->life) && !prepare_function(f)) return NULL;
    py_drops_flush(false);
    if (py_call_of(args, n, kwnames, f->is_stream ? PY_CALL_STREAM : 0, f->how, f->captured, &c))
        out = f->is_stream ? stream_function(f, &c) : submit_function(f, &c);
    py_call_release(&c);
    return out;
}

static PyMethodDef function_methods[] = {
    {"remote", (PyCFunction)(void (*)(void))function_remote, METH_FASTCALL | METH_KEYWORDS,
     "Calls the function in a worker and returns at once: an ObjectRef of the result."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot function_slots[] = {{Py_tp_new, function_new},
                                       {Py_tp_dealloc, function_dealloc},
                                       {Py_tp_methods, function_methods},
                                       {Py_tp_doc, PY_DOC("What a remote function calls with.")},
                                       {0, NULL}};

PyType_Spec py_function_spec = {.name = "manta._manta.Function",
                                .basicsize = sizeof(py_function),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                .slots = function_slots};
