/* model.h - what the files about models and their training share. Private to python/.
 *
 * Three types stand on the library's: Dataset (manta/data.h), Model (manta/model.h, manta/file.h) and Session
 * (manta/train.h). A model comes as the text of a Keras configuration, so that the library's own reader of such
 * files knows the layers, their options and defaults, and writes the sentences about what is wrong with them;
 * python/manta/models/ makes that text. None of this needs the runtime of tasks.
 *
 * Arrays cross as (buffer, name of the dtype, shape): NumPy is not needed here.
 *
 * Threads: a session is used by one thread at a time, which need not be the same every time; another one is
 * refused. The interpreter is given away while the library computes, reads or writes; callbacks take it back. */
#ifndef PYTHON_MODEL_H
#define PYTHON_MODEL_H

#include "py.h"

#include <manta/callback.h>
#include <manta/file.h>
#include <manta/train.h>

/* ---- arrays.c ---- */

/* Array views that Python lends, given back together. */
typedef struct py_arrays {
    int n;
    Py_buffer views[MANTA_MAX_COLUMNS];
    manta_array at[MANTA_MAX_COLUMNS];
    const char *names[MANTA_MAX_COLUMNS]; /* of columns; borrowed of the objects that were read */
} py_arrays;

/* Reads (buffer, dtype, shape), whose buffer is contiguous and has as many bytes as that takes; false with an
 * exception. The view is to be given back with PyBuffer_Release(). */
bool py_array_of(PyObject *o, bool writable, Py_buffer *view, manta_array *out);
/* Reads a list of arrays, or (named) of (name, buffer, dtype, shape); false with an exception and nothing held. */
bool py_arrays_of(PyObject *list, bool named, bool writable, py_arrays *out);
void py_arrays_release(py_arrays *a);
/* A shape as a tuple, the first dimensions of which are left out. */
PyObject *py_shape(int ndim, const int64_t *shape, int from);

/* ---- dataset.c ---- */

/* The dataset of a Dataset, borrowed; NULL with an exception when it is none. */
manta_dataset *py_dataset_of(PyObject *o);

/* ---- model.c ---- */

typedef struct py_model {
    PyObject head;
    manta_model *model;
    manta_saved *saved; /* what its text or file holds beside it; NULL: nothing, as of the zoo */
} py_model;

/* The fitting exception for a failure about a model; returns NULL. */
PyObject *py_raise_model(manta_status st);

/* ---- session.c ---- */

typedef struct py_session {
    PyObject head;
    manta_session *session;
    PyObject *model;
    int pid; /* of the process that opened it: a fork has no part in it */
    unsigned long user; /* the thread that computes with it; 0: none */
    bool in_hook; /* a callback of that thread has the interpreter */
} py_session;

/* Takes the session for a computation, without which no other thread may touch it; NULL with an exception. */
manta_session *py_session_enter(PyObject *self);
/* Gives it back: what `st` and an exception that is already set say; None, or NULL with an exception. */
PyObject *py_session_leave(PyObject *self, manta_status st);
/* Numbers by name as a list of pairs. */
PyObject *py_metrics_list(const manta_metrics *m);

/* ---- fit.c: methods of Session ---- */

PyObject *py_session_fit(PyObject *self, PyObject *args);
PyObject *py_session_evaluate(PyObject *self, PyObject *args);
PyObject *py_session_predict(PyObject *self, PyObject *args);

/* ---- callbacks.c ---- */

/* The callbacks of one fit, and the exception with which one of them, or a signal's handler, has ended it. */
typedef struct py_callbacks {
    py_session *session;
    int n;
    manta_callback **at;
    PyObject *type, *value, *traceback;
} py_callbacks;

/* Makes callbacks of a list of (function, whether it sees batches) and of (name, options ...), which is one of the
 * library's; false with an exception. Give *out back with py_callbacks_release() in either case. */
bool py_callbacks_of(PyObject *list, py_session *session, py_callbacks *out);
void py_callbacks_release(py_callbacks *c);
/* Raises again what has ended the fit; false: nothing has. */
bool py_callbacks_raise(py_callbacks *c);
/* For manta_fit_options.event: lets handlers of signals run, which may end it. `user` is the py_callbacks. */
bool py_callbacks_signals(void *user, manta_session *s, const manta_event *e);

extern PyType_Spec py_dataset_spec, py_model_spec, py_session_spec;

/* layer_classes(): [(class, [(key, kind)])], from the tables of the library. */
PyObject *py_layer_classes(PyObject *self, PyObject *unused);

#endif
