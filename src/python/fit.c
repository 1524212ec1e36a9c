/* fit.c - whole datasets through a session: fit, evaluate, predict.
 *
 * The interpreter is given away for all of it. Callbacks take it back on the same thread (callbacks.c), and after
 * each step handlers of signals may run, so that Ctrl-C ends the training between two steps. */
#include "model.h"

#include <string.h>

/* Ends a computation: the exception of a callback or signal comes before the status that it has led to. */
static bool leave_fit(PyObject *self, py_callbacks *c, manta_status st)
{
    PyObject *done;

    (void)py_callbacks_raise(c);
    done = py_session_leave(self, st);
    Py_XDECREF(done);
    py_callbacks_release(c);
    return done;
}

/* ---- fit ---- */

static manta_status run_fit(manta_session *s, manta_dataset *d, const manta_fit_options *o, manta_metrics *m)
{
    PyThreadState *left = PyEval_SaveThread();
    manta_status st = manta_fit(s, d, o, m);

    PyEval_RestoreThread(left);
    return st;
}

/* fit(dataset, validation or None, callbacks, epochs, initial_epoch, batch, global_batch, steps_per_epoch, shuffle,
 * validation_batch, validation_steps, [class weights] or None, max_failures) */
PyObject *py_session_fit(PyObject *self, PyObject *args)
{
    manta_fit_options o = {0};
    PyObject *data, *validation, *callbacks, *weights;
    long long epochs, initial, batch, global_batch, steps, validation_batch, validation_steps;
    py_arrays classes = {0};
    py_callbacks c = {0};
    manta_dataset *d;
    manta_session *s;
    manta_metrics m = {0};
    int shuffle;
    manta_status st;

    if (!PyArg_ParseTuple(args, "OOOLLLLLpLLOi:fit", &data, &validation, &callbacks, &epochs, &initial,
                          &batch, &global_batch, &steps, &shuffle, &validation_batch, &validation_steps,
                          &weights, &o.max_failures) ||
        !(d = py_dataset_of(data)) ||
        (validation != Py_None && !(o.validation = py_dataset_of(validation))) ||
        (weights != Py_None && !py_arrays_of(weights, false, false, &classes)))
        return NULL;
    o.epochs = epochs;
    o.initial_epoch = initial;
    o.batch = batch;
    o.global_batch = global_batch;
    o.steps_per_epoch = steps;
    o.no_shuffle = !shuffle;
    o.validation_batch = validation_batch;
    o.validation_steps = validation_steps;
    o.class_weight = classes.n ? classes.at[0].data : NULL;
    o.n_classes = classes.n ? (int)classes.at[0].shape[0] : 0;
    o.event = py_callbacks_signals;
    o.user = &c;
    if (!(s = py_session_enter(self))) {
        py_arrays_release(&classes);
        return NULL;
    }
    st = py_callbacks_of(callbacks, (py_session *)self, &c) ? MANTA_OK : MANTA_EINVAL;
    o.n_callbacks = c.n;
    o.callbacks = c.at;
    if (!st) st = run_fit(s, d, &o, &m);
    py_arrays_release(&classes);
    return leave_fit(self, &c, st) ? py_metrics_list(&m) : NULL;
}

/* ---- evaluate ---- */

/* evaluate(dataset, callbacks, batch, steps) */
PyObject *py_session_evaluate(PyObject *self, PyObject *args)
{
    manta_fit_options o = {0};
    PyObject *data, *callbacks;
    long long batch, steps;
    py_callbacks c = {0};
    manta_dataset *d;
    manta_session *s;
    manta_metrics m = {0};
    manta_status st;

    if (!PyArg_ParseTuple(args, "OOLL:evaluate", &data, &callbacks, &batch, &steps) ||
        !(d = py_dataset_of(data)) || !(s = py_session_enter(self)))
        return NULL;
    o.batch = batch;
    o.steps_per_epoch = steps;
    o.event = py_callbacks_signals;
    o.user = &c;
    st = py_callbacks_of(callbacks, (py_session *)self, &c) ? MANTA_OK : MANTA_EINVAL;
    o.n_callbacks = c.n;
    o.callbacks = c.at;
    if (!st) {
        PyThreadState *left = PyEval_SaveThread();
        st = manta_evaluate(s, d, &o, &m);
        PyEval_RestoreThread(left);
    }
    return leave_fit(self, &c, st) ? py_metrics_list(&m) : NULL;
}

/* ---- predict ---- */

/* Where outputs go, and who may end it: a prediction has no events. */
typedef struct prediction {
    py_arrays to;
    py_callbacks c;
} prediction;

/* Copies a batch of outputs to its place in the arrays. Without the interpreter. */
static manta_status take_outputs(void *user, int64_t first, int64_t count, int n, const manta_array *outputs)
{
    prediction *p = user;
    const py_arrays *to = &p->to;

    if (n != to->n) return manta_fail(MANTA_EINVAL, "the model has %d outputs, not %d", n, to->n);
    for (int i = 0; i < n; i++) {
        const manta_array *a = &to->at[i], *from = &outputs[i];
        int64_t rows = a->ndim > 0 ? a->shape[0] : 0;
        size_t row = rows > 0 ? manta_array_bytes(a) / (size_t)rows : 0;
        if (from->dtype != a->dtype || first < 0 || first + count > rows ||
            manta_array_bytes(from) != row * (size_t)count || !manta_array_is_contiguous(from))
            return manta_fail(MANTA_EINVAL, "the arrays for the outputs do not fit the model's");
        memcpy((char *)a->data + (size_t)first * row, from->data, row * (size_t)count);
    }
    if (!py_callbacks_signals(&p->c, NULL, NULL)) return manta_fail(MANTA_ECANCELLED, "stopped on request");
    return MANTA_OK;
}

/* predict(dataset, arrays, callbacks, batch) */
PyObject *py_session_predict(PyObject *self, PyObject *args)
{
    manta_fit_options o = {.no_shuffle = true};
    PyObject *data, *arrays, *callbacks;
    long long batch;
    prediction p = {0};
    manta_dataset *d;
    manta_session *s;
    manta_status st;

    if (!PyArg_ParseTuple(args, "OOOL:predict", &data, &arrays, &callbacks, &batch) ||
        !(d = py_dataset_of(data)) || !py_arrays_of(arrays, false, true, &p.to))
        return NULL;
    if (!(s = py_session_enter(self))) {
        py_arrays_release(&p.to);
        return NULL;
    }
    o.batch = batch;
    st = py_callbacks_of(callbacks, (py_session *)self, &p.c) ? MANTA_OK : MANTA_EINVAL;
    o.n_callbacks = p.c.n;
    o.callbacks = p.c.at;
    if (!st) {
        PyThreadState *left = PyEval_SaveThread();
        st = manta_predict(s, d, &o, take_outputs, &p);
        PyEval_RestoreThread(left);
    }
    py_arrays_release(&p.to);
    if (!leave_fit(self, &p.c, st)) return NULL;
    Py_RETURN_NONE;
}
