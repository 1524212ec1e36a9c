/* session.c - Session: a model with its weights, what it is compiled with, and its state; single
 * batches, weights and files. Whole datasets are in fit.c.
 *
 *     user 0                nobody computes
 *     user a thread         that thread computes with it, without the interpreter; others are refused
 *     user and in_hook      it is in a callback, which has the interpreter: the thread may read and
 *                           change the state, and train nothing
 *
 * session_of() is for a look that keeps the interpreter, hold_session() and release_session() go
 * around what gives it away, py_session_enter() and _leave() around a whole fit. `user` and
 * `in_hook` are changed with the interpreter held, which is what guards them.
 *
 * A session belongs to the process that opened it: after a fork the child's copy is refused, and
 * is not closed with the object. */
#include "model.h"

#include <string.h>
#include <unistd.h>

#include <pthread.h>

/* ---- one thread at a time ---- */

static bool check_session(const py_session *s)
{
    unsigned long here = (unsigned long)pthread_self();

    if (!s->session || s->pid != getpid()) {
        PyErr_SetString(PyExc_ValueError, "the model's session is closed, or was opened by another process");
        return false;
    }
    if (s->user && !(s->in_hook && s->user == here)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the model is computing in another thread; expected one thread at a time");
        return false;
    }
    return true;
}

/* The session for a look at its state that keeps the interpreter: also from a callback of the thread that computes
 * with it. */
static manta_session *session_of(PyObject *self)
{
    py_session *s = (py_session *)self;

    return check_session(s) ? s->session : NULL;
}

/* The session for what gives the interpreter away, also from such a callback. */
typedef struct holding {
    PyObject *self;
    unsigned long user;
    bool in_hook;
    PyThreadState *left;
} holding;

static manta_session *hold_session(PyObject *self, holding *out)
{
    py_session *s = (py_session *)self;

    if (!check_session(s)) return NULL;
    *out = (holding){Py_NewRef(self), s->user, s->in_hook, NULL};
    s->user = (unsigned long)pthread_self();
    s->in_hook = false;
    out->left = PyEval_SaveThread();
    return s->session;
}

/* Takes the interpreter back and gives the session back: None, or NULL with the exception for `st`. */
static PyObject *release_session(const holding *h, manta_status st)
{
    py_session *s = (py_session *)h->self;

    PyEval_RestoreThread(h->left);
    s->user = h->user;
    s->in_hook = h->in_hook;
    Py_DECREF(h->self);
    if (st) return py_raise_model(st);
    Py_RETURN_NONE;
}

manta_session *py_session_enter(PyObject *self)
{
    py_session *s = (py_session *)self;

    if (!check_session(s)) return NULL;
    if (s->user) {
        PyErr_SetString(PyExc_RuntimeError, "a callback cannot train the model that it is called for");
        return NULL;
    }
    s->user = (unsigned long)pthread_self();
    Py_INCREF(self); /* nothing closes it meanwhile */
    return s->session;
}

PyObject *py_session_leave(PyObject *self, manta_status st)
{
    ((py_session *)self)->user = 0;
    if (st && !PyErr_Occurred()) (void)py_raise_model(st);
    Py_DECREF(self);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* ---- start and end ---- */

/* What the model's text or file says that it is compiled with. */
static manta_status compile_of(const manta_saved *saved, manta_optimizer *optimizer, manta_compile *out)
{
    manta_status st = manta_saved_optimizer(saved, optimizer);

    if (st && st != MANTA_ENOENT) return st;
    if (!st) out->optimizer = optimizer;
    MANTA_TRY(manta_saved_losses(saved, &out->n_losses, &out->losses));
    st = manta_saved_metrics(saved, &out->n_metrics, &out->metrics);
    return st == MANTA_ENOENT ? MANTA_OK : st;
}

static manta_status open_session(const py_model *m, bool compiled, const manta_session_options *o,
                                 manta_session **out)
{
    manta_compile c = {0};
    manta_optimizer optimizer;

    if (compiled && !m->saved)
        return manta_fail(MANTA_EINVAL, "model '%s' is not compiled", manta_model_name(m->model));
    if (compiled) MANTA_TRY(compile_of(m->saved, &optimizer, &c));
    return manta_session_open(m->model, &c, o, out);
}

/* Session(model, compiled, seed, threads, workers, shards, kernels, precision, device, debug, blank) */
static PyObject *session_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    manta_session_options o = {0};
    unsigned long long seed;
    int compiled, debug, blank;
    PyObject *model;
    manta_status st;
    (void)kwargs;

    if (!PyArg_ParseTuple(args, "O!pKiiizzzpp:Session", py->model, &model, &compiled, &seed, &o.threads,
                          &o.workers, &o.shards, &o.kernels, &o.precision, &o.device, &debug, &blank))
        return NULL;
    o.seed = seed;
    o.debug = debug;
    o.blank = blank;
    py_session *s = (py_session *)PyType_GenericAlloc(type, 0);
    if (!s) return NULL;
    s->model = Py_NewRef(model);
    s->pid = getpid();
    PyThreadState *left = PyEval_SaveThread();
    st = open_session((py_model *)model, compiled, &o, &s->session);
    PyEval_RestoreThread(left);
    if (!st) return (PyObject *)s;
    (void)py_raise_model(st);
    Py_DECREF((PyObject *)s);
    return NULL;
}

static void session_dealloc(PyObject *self)
{
    py_session *s = (py_session *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (s->pid == getpid()) manta_session_close(s->session);
    Py_XDECREF(s->model);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- weights ---- */

/* Copies a variable to an array of the same shape and type, with the interpreter given away for a large one. */
static bool copy_weight(PyObject *self, const manta_array *have, const manta_array *to)
{
    size_t n = manta_array_bytes(have);
    holding h;
    bool same = to->dtype == have->dtype && to->ndim == have->ndim && manta_array_is_contiguous(have) &&
                !memcmp(to->shape, have->shape, (size_t)have->ndim * sizeof *have->shape);

    if (same && n <= PY_QUICK) {
        memcpy(to->data, have->data, n);
    } else if (same && hold_session(self, &h)) {
        memcpy(to->data, have->data, n);
        Py_XDECREF(release_session(&h, MANTA_OK));
    }
    return same;
}

/* read_weight(name, (buffer, dtype, shape)) */
static PyObject *session_read_weight(PyObject *self, PyObject *args)
{
    manta_session *s = session_of(self);
    const char *name;
    PyObject *to;
    manta_array have, want;
    Py_buffer view;
    bool same;

    if (!s || !PyArg_ParseTuple(args, "sO:read_weight", &name, &to)) return NULL;
    if (manta_session_weight(s, name, &have)) return py_raise_plain(MANTA_EINVAL);
    if (!py_array_of(to, true, &view, &want)) return NULL;
    same = copy_weight(self, &have, &want);
    PyBuffer_Release(&view);
    if (!same) return PyErr_Format(PyExc_ValueError, "the array is not of the shape and dtype of %s", name);
    Py_RETURN_NONE;
}

/* write_weight(name, (buffer, dtype, shape)) */
static PyObject *session_write_weight(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *from, *out = NULL;
    manta_array a;
    Py_buffer view;
    manta_session *s;
    holding h;

    if (!PyArg_ParseTuple(args, "sO:write_weight", &name, &from) || !py_array_of(from, false, &view, &a))
        return NULL;
    if ((s = hold_session(self, &h))) out = release_session(&h, manta_session_set_weight(s, name, &a));
    PyBuffer_Release(&view);
    return out;
}

static PyObject *session_learning_rate(PyObject *self, void *unused)
{
    manta_session *s = session_of(self);
    (void)unused;

    return s ? PyFloat_FromDouble(manta_session_learning_rate(s)) : NULL;
}

static int session_set_learning_rate(PyObject *self, PyObject *value, void *unused)
{
    manta_session *s = session_of(self);
    double rate = value ? PyFloat_AsDouble(value) : -1;
    manta_status st;
    (void)unused;

    if (!s || (rate == -1 && PyErr_Occurred())) return -1;
    st = manta_session_set_learning_rate(s, rate);
    if (st) (void)py_raise_plain(st);
    return st ? -1 : 0;
}

static PyObject *session_iterations(PyObject *self, void *unused)
{
    manta_session *s = session_of(self);
    (void)unused;

    return s ? PyLong_FromLongLong(manta_session_iterations(s)) : NULL;
}

/* Whether a callback of this thread asks, during a fit. */
static PyObject *session_in_hook(PyObject *self, void *unused)
{
    const py_session *s = (const py_session *)self;
    (void)unused;

    return PyBool_FromLong(s->in_hook && s->user == (unsigned long)pthread_self());
}

static PyObject *session_about(PyObject *self, void *unused)
{
    manta_session *s = session_of(self);
    (void)unused;

    return s ? PyUnicode_FromString(manta_session_about(s)) : NULL;
}

/* ---- files ---- */

/* save(path) */
static PyObject *session_save(PyObject *self, PyObject *path)
{
    const char *at = PyUnicode_AsUTF8AndSize(path, NULL);
    manta_session *s;
    holding h;

    if (!at || !(s = hold_session(self, &h))) return NULL;
    return release_session(&h, manta_session_save(s, at));
}

/* load(path, weights_only) */
static PyObject *session_load(PyObject *self, PyObject *args)
{
    const char *at;
    int weights_only;
    manta_session *s;
    holding h;

    if (!PyArg_ParseTuple(args, "sp:load", &at, &weights_only) || !(s = hold_session(self, &h))) return NULL;
    return release_session(&h, manta_session_load(s, at, weights_only));
}

/* restore(weights_only): the state that came with the model's file; nothing where there is none */
static PyObject *session_restore(PyObject *self, PyObject *args)
{
    const manta_saved *saved = ((py_model *)((py_session *)self)->model)->saved;
    int weights_only;
    manta_session *s;
    holding h;

    if (!PyArg_ParseTuple(args, "p:restore", &weights_only)) return NULL;
    if (!saved || !manta_saved_arrays(saved)) Py_RETURN_NONE;
    if (!(s = hold_session(self, &h))) return NULL;
    return release_session(&h, manta_session_restore(s, saved, weights_only));
}

/* ---- one batch ---- */

PyObject *py_metrics_list(const manta_metrics *m)
{
    PyObject *out = PyList_New(0);

    for (int i = 0; out && i < m->n; i++) {
        PyObject *pair = Py_BuildValue("sd", m->name[i], m->value[i]);
        if (!pair || PyList_Append(out, pair)) Py_CLEAR(out);
        Py_XDECREF(pair);
    }
    return out;
}

static manta_status run_batch(manta_session *s, const manta_feed *f, bool train, manta_metrics *out)
{
    manta_session_reset_metrics(s);
    MANTA_TRY(train ? manta_session_step(s, f) : manta_session_evaluate_step(s, f));
    manta_session_metrics(s, out);
    return MANTA_OK;
}

/* The arrays of a batch as the library takes them; weights: one per sample, for every output, or none. */
static bool fill_feed(const py_arrays *inputs, const py_arrays *targets, const py_arrays *weights,
                      manta_feed *out)
{
    *out = (manta_feed){.n_inputs = inputs->n, .n_targets = targets->n};
    if (inputs->n < 1 || inputs->n > 8 || targets->n > 8) {
        PyErr_SetString(PyExc_ValueError, "expected 1 to 8 inputs and at most 8 targets");
        return false;
    }
    for (int i = 0; i < inputs->n; i++) out->inputs[i] = inputs->at[i];
    for (int i = 0; i < targets->n; i++) out->targets[i] = targets->at[i];
    out->count = inputs->at[0].ndim > 0 ? inputs->at[0].shape[0] : 0;
    for (int i = 0; i < targets->n && weights->n; i++) out->weights[i] = weights->at[0].data;
    if (!weights->n || (weights->at[0].dtype == MANTA_DTYPE_F32 && weights->at[0].ndim == 1 &&
                        weights->at[0].shape[0] == out->count))
        return true;
    PyErr_SetString(PyExc_ValueError, "sample_weight: expected one float32 for each sample");
    return false;
}

static PyObject *step_arrays(PyObject *self, const manta_feed *f, bool train)
{
    manta_session *s = py_session_enter(self);
    manta_metrics m;
    manta_status st;

    if (!s) return NULL;
    PyThreadState *left = PyEval_SaveThread();
    st = run_batch(s, f, train, &m);
    PyEval_RestoreThread(left);
    PyObject *done = py_session_leave(self, st);
    if (!done) return NULL;
    Py_DECREF(done);
    return py_metrics_list(&m);
}

/* step(inputs, targets, [weights] or [], train): metrics of the batch, before it is learnt from */
static PyObject *session_step(PyObject *self, PyObject *args)
{
    PyObject *in, *to, *by, *out = NULL;
    py_arrays inputs = {0}, targets = {0}, weights = {0};
    manta_feed f;
    int train;

    if (!PyArg_ParseTuple(args, "OOOp:step", &in, &to, &by, &train)) return NULL;
    if (py_arrays_of(in, false, false, &inputs) && py_arrays_of(to, false, false, &targets) &&
        py_arrays_of(by, false, false, &weights) && fill_feed(&inputs, &targets, &weights, &f))
        out = step_arrays(self, &f, train);
    py_arrays_release(&inputs);
    py_arrays_release(&targets);
    py_arrays_release(&weights);
    return out;
}

static PyMethodDef session_methods[] = {
    {"fit", py_session_fit, METH_VARARGS, "Trains on a dataset."},
    {"evaluate", py_session_evaluate, METH_VARARGS, "Loss and metrics of a dataset."},
    {"predict", py_session_predict, METH_VARARGS, "Writes the outputs for a dataset into arrays."},
    {"step", session_step, METH_VARARGS, "Trains on one batch, or evaluates it."},
    {"read_weight", session_read_weight, METH_VARARGS, "Copies a variable into an array."},
    {"write_weight", session_write_weight, METH_VARARGS, "Copies an array into a variable."},
    {"save", session_save, METH_O, "Writes the state to a file."},
    {"load", session_load, METH_VARARGS, "Reads the state from a file."},
    {"restore", session_restore, METH_VARARGS, "Takes the state of the model's own file."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef session_attributes[] = {
    {"learning_rate", session_learning_rate, session_set_learning_rate, NULL, NULL},
    {"iterations", session_iterations, NULL, NULL, NULL},
    {"in_hook", session_in_hook, NULL, NULL, NULL},
    {"about", session_about, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot session_slots[] = {
    {Py_tp_new, session_new},
    {Py_tp_dealloc, session_dealloc},
    {Py_tp_methods, session_methods},
    {Py_tp_getset, session_attributes},
    {Py_tp_doc, PY_DOC("A model with its state. One thread at a time uses it.")},
    {0, NULL}};

PyType_Spec py_session_spec = {.name = "manta._manta.Session",
                               .basicsize = sizeof(py_session),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = session_slots};
