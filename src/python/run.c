/* run.c - Run: the folder of a run (manta/run.h) that manta.train writes its reports and checkpoints to, so that
 * `manta runs`, `logs` and TensorBoard show it as they show every other.
 *
 * A run needs no runtime. One thread at a time uses it: _record.py has the lock; the interpreter is given away
 * around what reaches the disk. */
#include "py.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <manta/run.h>

typedef struct py_run {
    PyObject head;
    manta_run *run; /* NULL: closed */
    int pid; /* that opened it: a fork has no part in it */
} py_run;

/* ---- metrics ---- */

static bool metric_of(PyObject *pair, manta_metrics *out)
{
    const char *name;
    double value;

    if (!PyArg_ParseTuple(pair, "sd:metric", &name, &value)) return false;
    snprintf(out->name[out->n], sizeof out->name[0], "%s", name);
    out->value[out->n++] = value;
    return true;
}

/* A list of (name, number), of which the first MANTA_MAX_METRICS count. */
static bool metrics_of(PyObject *list, manta_metrics *out)
{
    out->n = 0;
    if (list == Py_None) return true;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "metrics are a list of (name, number)");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(list) && out->n < MANTA_MAX_METRICS; i++)
        if (!metric_of(PyList_GetItem(list, i), out)) return false;
    return true;
}

/* ---- start and end ---- */

/* Run(folder, storage, name, stem, resume, config, keep, score, order): as manta_run_options has them */
static bool open_run(PyObject *args, manta_run **out)
{
    manta_run_options o = {0};
    int resume = 0;
    manta_status st;

    if (!PyArg_ParseTuple(args, "zzzzpzizz:Run", &o.folder, &o.storage, &o.name, &o.stem, &resume, &o.config,
                          &o.checkpoints.keep, &o.checkpoints.score, &o.checkpoints.order))
        return false;
    o.resume = resume;
    PyThreadState *left = PyEval_SaveThread();
    st = manta_run_open(&o, out);
    PyEval_RestoreThread(left);
    if (st) (void)py_raise_plain(st);
    return !st;
}

static PyObject *run_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    manta_run *run = NULL;
    (void)kwargs;

    if (!open_run(args, &run)) return NULL;
    py_run *r = (py_run *)PyType_GenericAlloc(type, 0);
    if (!r) {
        manta_run_close(run);
        return NULL;
    }
    r->run = run;
    r->pid = getpid();
    return (PyObject *)r;
}

static PyObject *run_close(PyObject *self, PyObject *unused)
{
    py_run *r = (py_run *)self;
    manta_run *run = r->pid == getpid() ? r->run : NULL;
    (void)unused;

    r->run = NULL;
    PyThreadState *left = PyEval_SaveThread();
    manta_run_close(run);
    PyEval_RestoreThread(left);
    Py_RETURN_NONE;
}

static void run_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_DECREF(run_close(self, NULL));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* The run; NULL with an exception when it is closed, or another process's. */
static manta_run *run_of(PyObject *self)
{
    const py_run *r = (const py_run *)self;

    if (r->run && r->pid == getpid()) return r->run;
    PyErr_SetString(PyExc_ValueError, "the run is closed, or was opened by another process");
    return NULL;
}

/* ---- what is written ---- */

/* report(epoch, step, rank, metrics) */
static PyObject *run_report(PyObject *self, PyObject *args)
{
    manta_run *run = run_of(self);
    long long epoch, step;
    int rank;
    PyObject *list;
    manta_metrics m;
    manta_status st;

    if (!run || !PyArg_ParseTuple(args, "LLiO:report", &epoch, &step, &rank, &list) || !metrics_of(list, &m))
        return NULL;
    PyThreadState *left = PyEval_SaveThread();
    st = manta_run_report(run, epoch, step, rank, &m);
    PyEval_RestoreThread(left);
    if (st) return py_raise_plain(st);
    Py_RETURN_NONE;
}

/* log(rank, line) */
static PyObject *run_log(PyObject *self, PyObject *args)
{
    manta_run *run = run_of(self);
    int rank;
    const char *line;

    if (!run || !PyArg_ParseTuple(args, "is:log", &rank, &line)) return NULL;
    PyThreadState *left = PyEval_SaveThread();
    manta_run_log(run, rank, line);
    PyEval_RestoreThread(left);
    Py_RETURN_NONE;
}

/* The path of the latest checkpoint; None: there is none. */
static PyObject *latest_path(manta_run *run)
{
    manta_checkpoints *all = manta_run_checkpoints(run);
    const char *path = NULL;
    int n = manta_checkpoints_count(all);

    if (!n || !manta_checkpoints_at(all, n - 1, &path, NULL)) Py_RETURN_NONE;
    return PyUnicode_DecodeFSDefault(path);
}

/* checkpoint(folder, epoch, metrics, reports): the files of the folder become one; its path. `reports`: how many
 * each rank has made with it, "3,3", by which a run that is taken up knows which lines to keep. */
static PyObject *run_checkpoint(PyObject *self, PyObject *args)
{
    manta_run *run = run_of(self);
    manta_checkpoint_info info = {0};
    manta_note notes[1] = {{"reports", NULL}};
    const char *folder;
    long long epoch;
    PyObject *list;
    manta_status st;

    if (!run || !PyArg_ParseTuple(args, "sLOs:checkpoint", &folder, &epoch, &list, &notes[0].text) ||
        !metrics_of(list, &info.metrics))
        return NULL;
    info.epoch = epoch;
    info.n_notes = 1;
    info.notes = notes;
    PyThreadState *left = PyEval_SaveThread();
    st = manta_checkpoints_add(manta_run_checkpoints(run), folder, &info);
    PyEval_RestoreThread(left);
    return st ? py_raise_plain(st) : latest_path(run);
}

/* finish(status, metrics, error) */
static PyObject *run_finish(PyObject *self, PyObject *args)
{
    manta_run *run = run_of(self);
    const char *status, *error;
    PyObject *list;
    manta_metrics m;
    manta_status st;

    if (!run || !PyArg_ParseTuple(args, "sOz:finish", &status, &list, &error) || !metrics_of(list, &m))
        return NULL;
    PyThreadState *left = PyEval_SaveThread();
    st = manta_run_finish(run, status, &m, error);
    PyEval_RestoreThread(left);
    if (st) return py_raise_plain(st);
    Py_RETURN_NONE;
}

/* ---- what is read ---- */

static PyObject *run_name(PyObject *self, void *unused)
{
    manta_run *run = run_of(self);
    (void)unused;

    return run ? PyUnicode_DecodeFSDefault(manta_run_name(run)) : NULL;
}

static PyObject *run_path(PyObject *self, void *unused)
{
    manta_run *run = run_of(self);
    (void)unused;

    return run ? PyUnicode_DecodeFSDefault(manta_run_path(run)) : NULL;
}

static PyObject *run_start(PyObject *self, void *unused)
{
    manta_run *run = run_of(self);
    const manta_checkpoint *c = run ? manta_run_start(run) : NULL;
    (void)unused;

    if (!run) return NULL;
    if (!c) Py_RETURN_NONE;
    return PyUnicode_DecodeFSDefault(manta_checkpoint_path(c));
}

PyObject *py_run_storage(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyUnicode_DecodeFSDefault(manta_run_storage());
}

/* run_config(folder): the text of its config.json. */
PyObject *py_run_config(PyObject *self, PyObject *folder)
{
    const char *path = PyUnicode_AsUTF8AndSize(folder, NULL);
    char *text = NULL;
    manta_status st;
    (void)self;

    if (!path) return NULL;
    st = manta_run_read_config(path, &text);
    if (st) return py_raise_plain(st);
    PyObject *out = PyUnicode_FromString(text);
    free(text);
    return out;
}

static PyMethodDef run_methods[] = {
    {"report", run_report, METH_VARARGS, "Adds a line to metrics.jsonl and to the events."},
    {"log", run_log, METH_VARARGS, "Adds a line, with the time, to the log of a rank."},
    {"checkpoint", run_checkpoint, METH_VARARGS,
     "Makes a checkpoint of the files in a folder, and says where it is."},
    {"finish", run_finish, METH_VARARGS, "Says how it ended."},
    {"close", run_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef run_attributes[] = {{"name", run_name, NULL, NULL, NULL},
                                       {"path", run_path, NULL, NULL, NULL},
                                       {"start", run_start, NULL, NULL, NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot run_slots[] = {{Py_tp_new, run_new},
                                  {Py_tp_dealloc, run_dealloc},
                                  {Py_tp_methods, run_methods},
                                  {Py_tp_getset, run_attributes},
                                  {Py_tp_doc, PY_DOC("The folder of a run that is being written.")},
                                  {0, NULL}};

PyType_Spec py_run_spec = {
    .name = "manta._manta.Run", .basicsize = sizeof(py_run), .flags = Py_TPFLAGS_DEFAULT, .slots = run_slots};
