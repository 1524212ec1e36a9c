/* callbacks.c - callbacks of a fit: functions of Python, and those of the library by name.
 *
 * A function of Python is called as f(hook, epoch, batch, steps, logs) and returns None, or a text: why the training
 * is to end. It is said with it whether it wants the hooks of batches, so that one that looks at epochs costs a step
 * nothing. Numbers that it adds to `logs` are seen by the callbacks after it.
 *
 * An exception in one ends the fit with a status; the exception itself waits in py_callbacks, and whoever has called
 * the fit raises it again. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A callback of Python's; owned by its manta_callback. */
typedef struct listener {
    py_callbacks *of;
    PyObject *function;
    bool sees_batches;
} listener;

/* ---- exceptions ---- */

static manta_status keep_exception(py_callbacks *c, const char *hook)
{
    if (c->type) {
        PyErr_Clear(); /* the first one counts */
    } else {
        PyErr_Fetch(&c->type, &c->value, &c->traceback);
    }
    return manta_fail(MANTA_ECANCELLED, "an exception in %s has ended it", hook);
}

bool py_callbacks_raise(py_callbacks *c)
{
    if (!c->type) return false;
    PyErr_Restore(c->type, c->value, c->traceback);
    c->type = c->value = c->traceback = NULL;
    return true;
}

bool py_callbacks_signals(void *user, manta_session *s, const manta_event *e)
{
    py_callbacks *c = user;
    (void)s;
    (void)e;

    PyGILState_STATE state = PyGILState_Ensure();
    bool go_on = !PyErr_CheckSignals();
    if (!go_on) (void)!keep_exception(c, "a signal's handler"); /* false says it */
    PyGILState_Release(state);
    return go_on;
}

/* ---- hooks ---- */

static PyObject *logs_dict(const manta_metrics *m)
{
    PyObject *out = PyDict_New();

    for (int i = 0; out && m && i < m->n; i++) {
        PyObject *value = PyFloat_FromDouble(m->value[i]);
        if (!value || PyDict_SetItemString(out, m->name[i], value)) Py_CLEAR(out);
        Py_XDECREF(value);
    }
    return out;
}

static int find_metric(const manta_metrics *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->name[i], name)) return i;
    return -1;
}

/* Adds the numbers that the function has put into its logs to the library's. */
static bool keep_added(PyObject *logs, manta_metrics *m)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (m && PyDict_Next(logs, &at, &key, &value)) {
        const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, NULL) : NULL;
        double number;
        if (!name || strlen(name) >= sizeof m->name[0] || m->n == MANTA_MAX_METRICS ||
            find_metric(m, name) >= 0)
            continue;
        number = PyFloat_AsDouble(value);
        if (number == -1.0 && PyErr_Occurred()) return false;
        snprintf(m->name[m->n], sizeof m->name[0], "%s", name);
        m->value[m->n++] = number;
    }
    return true;
}

/* Calls the function with the interpreter; false with an exception. */
static bool call_listener(const listener *l, manta_fit_context *f, const char *hook)
{
    manta_metrics *m = manta_fit_context_logs(f);
    PyObject *logs = logs_dict(m), *said = NULL;
    const char *why = NULL;
    bool ok = false;

    if (logs)
        said = PyObject_CallFunction(l->function, "sLLLO", hook, (long long)manta_fit_context_epoch(f),
                                     (long long)manta_fit_context_batch(f),
                                     (long long)manta_fit_context_steps(f), logs);
    if (said) ok = keep_added(logs, m);
    if (ok && said != Py_None) ok = (why = PyUnicode_AsUTF8AndSize(said, NULL));
    if (why) manta_fit_context_stop(f, why);
    Py_XDECREF(logs);
    Py_XDECREF(said);
    return ok;
}

static manta_status run_hook(void *self, manta_fit_context *f, const char *hook)
{
    listener *l = self;
    manta_status st = MANTA_OK;

    PyGILState_STATE state = PyGILState_Ensure();
    l->of->session->in_hook = true;
    if (!call_listener(l, f, hook)) st = keep_exception(l->of, hook);
    l->of->session->in_hook = false;
    PyGILState_Release(state);
    return st;
}

static manta_status on_train_begin(void *self, manta_fit_context *f)
{
    return run_hook(self, f, "train_begin");
}

static manta_status on_train_end(void *self, manta_fit_context *f)
{
    return run_hook(self, f, "train_end");
}

static manta_status on_epoch_begin(void *self, manta_fit_context *f)
{
    return run_hook(self, f, "epoch_begin");
}

static manta_status on_epoch_end(void *self, manta_fit_context *f)
{
    return run_hook(self, f, "epoch_end");
}

/* The hooks of batches, for a callback that wants one of them. */
static manta_status run_batch_hook(void *self, manta_fit_context *f, const char *hook)
{
    return ((const listener *)self)->sees_batches ? run_hook(self, f, hook) : MANTA_OK;
}

static manta_status on_train_batch_begin(void *self, manta_fit_context *f)
{
    return run_batch_hook(self, f, "train_batch_begin");
}

static manta_status on_train_batch_end(void *self, manta_fit_context *f)
{
    return run_batch_hook(self, f, "train_batch_end");
}

static manta_status on_test_begin(void *self, manta_fit_context *f)
{
    return run_hook(self, f, "test_begin");
}

static manta_status on_test_end(void *self, manta_fit_context *f)
{
    return run_hook(self, f, "test_end");
}

static manta_status on_test_batch_begin(void *self, manta_fit_context *f)
{
    return run_batch_hook(self, f, "test_batch_begin");
}

static manta_status on_test_batch_end(void *self, manta_fit_context *f)
{
    return run_batch_hook(self, f, "test_batch_end");
}

static manta_status on_predict_begin(void *self, manta_fit_context *f)
{
    return run_hook(self, f, "predict_begin");
}

static manta_status on_predict_end(void *self, manta_fit_context *f)
{
    return run_hook(self, f, "predict_end");
}

static manta_status on_predict_batch_begin(void *self, manta_fit_context *f)
{
    return run_batch_hook(self, f, "predict_batch_begin");
}

static manta_status on_predict_batch_end(void *self, manta_fit_context *f)
{
    return run_batch_hook(self, f, "predict_batch_end");
}

static bool needs_batches(void *self)
{
    return ((const listener *)self)->sees_batches;
}

static void free_listener(void *self)
{
    Py_DECREF(((listener *)self)->function);
    free(self);
}

static const manta_callback_ops listener_ops = {.name = "python",
                                                .train_begin = on_train_begin,
                                                .train_end = on_train_end,
                                                .epoch_begin = on_epoch_begin,
                                                .epoch_end = on_epoch_end,
                                                .train_batch_begin = on_train_batch_begin,
                                                .train_batch_end = on_train_batch_end,
                                                .test_begin = on_test_begin,
                                                .test_end = on_test_end,
                                                .test_batch_begin = on_test_batch_begin,
                                                .test_batch_end = on_test_batch_end,
                                                .predict_begin = on_predict_begin,
                                                .predict_end = on_predict_end,
                                                .predict_batch_begin = on_predict_batch_begin,
                                                .predict_batch_end = on_predict_batch_end,
                                                .needs_batches = needs_batches,
                                                .free = free_listener};

static manta_callback *new_listener(py_callbacks *c, PyObject *function, bool sees_batches)
{
    listener *l = calloc(1, sizeof *l);

    if (!l) {
        PyErr_NoMemory();
        return NULL;
    }
    *l = (listener){c, Py_NewRef(function), sees_batches};
    return manta_callback_new(&listener_ops, l);
}

/* ---- the library's, by name ---- */

static manta_callback *new_early_stopping(PyObject *args)
{
    manta_early_stopping_options o = {0};
    long long patience, start;
    const char *name;
    int restore;

    if (!PyArg_ParseTuple(args, "szdLzdpL", &name, &o.monitor, &o.min_delta, &patience, &o.mode, &o.baseline,
                          &restore, &start))
        return NULL;
    o.patience = patience;
    o.restore_best_weights = restore;
    o.start_from_epoch = start;
    return manta_early_stopping(&o);
}

static manta_callback *new_reduce_lr(PyObject *args)
{
    manta_reduce_lr_options o = {0};
    long long patience, cooldown;
    const char *name;

    if (!PyArg_ParseTuple(args, "szdLzdLd", &name, &o.monitor, &o.factor, &patience, &o.mode, &o.min_delta,
                          &cooldown, &o.min_lr))
        return NULL;
    o.patience = patience;
    o.cooldown = cooldown;
    return manta_reduce_lr_on_plateau(&o);
}

static manta_callback *new_csv_logger(PyObject *args)
{
    manta_csv_logger_options o = {0};
    const char *name, *path, *separator;
    int append;

    if (!PyArg_ParseTuple(args, "sssp", &name, &path, &separator, &append)) return NULL;
    o.separator = separator[0];
    o.append = append;
    return manta_csv_logger(path, &o);
}

static manta_callback *new_tensorboard(PyObject *args)
{
    manta_tensorboard_options o = {0};
    long long update_freq, histogram_freq;
    const char *name, *folder;
    int graph;

    if (!PyArg_ParseTuple(args, "ssLLp", &name, &folder, &update_freq, &histogram_freq, &graph)) return NULL;
    o.update_freq = update_freq;
    o.histogram_freq = histogram_freq;
    o.no_graph = !graph;
    return manta_tensorboard(folder, &o);
}

static manta_callback *new_terminate_on_nan(PyObject *args)
{
    const char *name;

    return PyArg_ParseTuple(args, "s", &name) ? manta_terminate_on_nan() : NULL;
}

static manta_callback *new_model_checkpoint(PyObject *args)
{
    manta_model_checkpoint_options o = {0};
    long long every;
    const char *name, *path;
    int best;

    if (!PyArg_ParseTuple(args, "sszzpLd", &name, &path, &o.monitor, &o.mode, &best, &every, &o.threshold))
        return NULL;
    o.save_best_only = best;
    o.every_steps = every;
    return manta_model_checkpoint(path, &o);
}

static manta_callback *new_backup(PyObject *args)
{
    manta_backup_options o = {0};
    long long every;
    const char *name, *folder;
    int keep;

    if (!PyArg_ParseTuple(args, "ssLp", &name, &folder, &every, &keep)) return NULL;
    o.every_steps = every;
    o.keep = keep;
    return manta_backup_and_restore(folder, &o);
}

static const struct {
    const char *name;
    manta_callback *(*make)(PyObject *args);
} known[] = {{"EarlyStopping", new_early_stopping},
             {"ReduceLROnPlateau", new_reduce_lr},
             {"CSVLogger", new_csv_logger},
             {"TensorBoard", new_tensorboard},
             {"TerminateOnNaN", new_terminate_on_nan},
             {"ModelCheckpoint", new_model_checkpoint},
             {"BackupAndRestore", new_backup}};

static manta_callback *new_known(PyObject *args)
{
    PyObject *first = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    const char *name = first ? PyUnicode_AsUTF8AndSize(first, NULL) : NULL;

    for (size_t i = 0; name && i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(name, known[i].name)) return known[i].make(args);
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "no callback is called %R", first ? first : args);
    return NULL;
}

/* ---- the list ---- */

/* (function, whether it sees batches), or (name, options ...) */
static manta_callback *callback_of(py_callbacks *c, PyObject *o)
{
    PyObject *first = PyTuple_Check(o) && PyTuple_Size(o) > 0 ? PyTuple_GetItem(o, 0) : NULL;

    if (!first) {
        PyErr_SetString(PyExc_TypeError,
                        "a callback is (function, sees batches) or (name, options of the library's)");
        return NULL;
    }
    if (PyUnicode_Check(first)) return new_known(o);
    if (PyTuple_Size(o) == 2) return new_listener(c, first, PyObject_IsTrue(PyTuple_GetItem(o, 1)) == 1);
    PyErr_SetString(PyExc_TypeError, "a callback of Python is (function, sees batches)");
    return NULL;
}

bool py_callbacks_of(PyObject *list, py_session *session, py_callbacks *out)
{
    Py_ssize_t n = PyList_Check(list) ? PyList_Size(list) : -1;

    *out = (py_callbacks){.session = session};
    if (n < 0) {
        PyErr_SetString(PyExc_TypeError, "callbacks are a list");
        return false;
    }
    if (!(out->at = calloc((size_t)n + 1, sizeof *out->at))) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        manta_callback *one = callback_of(out, PyList_GetItem(list, i));
        if (!one) return false;
        out->at[out->n++] = one;
    }
    return true;
}

void py_callbacks_release(py_callbacks *c)
{
    for (int i = 0; i < c->n; i++) manta_callback_free(c->at[i]);
    free(c->at);
    Py_XDECREF(c->type);
    Py_XDECREF(c->value);
    Py_XDECREF(c->traceback);
    *c = (py_callbacks){0};
}
