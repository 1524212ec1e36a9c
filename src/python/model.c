/* model.c - Model: what the library knows of a model, from the text of a Keras configuration, from a file, or by a
 * name of the zoo; and the tables of layers.
 *
 * The library reads such a text from a file. Here it lies in memory and has a name that only this process knows, so
 * the name is taken out of the sentences again. */
#include "model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <manta/layer.h>
#include <manta/recipe.h>

PyObject *py_raise_model(manta_status st)
{
    manta_error e;

    if (st != MANTA_ECORRUPT && st != MANTA_ENAN) return py_raise_plain(st);
    manta_error_get(&e);
    PyErr_SetString(PyExc_ValueError, e.text);
    return NULL;
}

/* ---- from a text ---- */

/* This thread's failure without the path, wherever the sentence has it. */
static PyObject *raise_without(const char *path)
{
    char *found;
    size_t n = strlen(path);
    manta_error e;

    manta_error_get(&e);
    while ((found = strstr(e.text, path))) {
        size_t cut = strncmp(found + n, ": ", 2) == 0 ? n + 2 : n;
        memmove(found, found + cut, strlen(found + cut) + 1);
    }
    PyErr_SetString(PyExc_ValueError, e.text);
    return NULL;
}

/* A file in memory with the text; -1 with an exception. */
static int file_of_text(PyObject *text)
{
    Py_ssize_t size = 0, done = 0;
    const char *at = PyUnicode_AsUTF8AndSize(text, &size);
    int fd = at ? memfd_create("manta-model", MFD_CLOEXEC) : -1;

    while (fd >= 0 && done < size) {
        ssize_t n = write(fd, at + done, (size_t)(size - done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            close(fd);
            fd = -1;
            break;
        }
        done += n;
    }
    if (fd < 0 && at) PyErr_SetFromErrno(PyExc_OSError);
    return fd;
}

static bool open_text(PyObject *text, manta_model **model, manta_saved **saved)
{
    manta_read_options o = {.format = "config"};
    int fd = file_of_text(text);
    char path[64];
    manta_status st;

    if (fd < 0) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    PyThreadState *left = PyEval_SaveThread();
    st = manta_file_read(path, &o, saved);
    PyEval_RestoreThread(left);
    close(fd);
    if (st) {
        (void)raise_without(path);
        return false;
    }
    *model = manta_saved_take_model(*saved);
    return true;
}

/* ---- from a file, or the zoo ---- */

static bool open_name(PyObject *name, manta_model **model, manta_saved **saved)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    manta_status st;

    if (!text) return false;
    PyThreadState *left = PyEval_SaveThread();
    st = manta_model_open(text, saved, model);
    PyEval_RestoreThread(left);
    if (st) (void)py_raise_model(st);
    return !st;
}

/* Model(text of a configuration, None), or Model(None, path or name) */
static PyObject *model_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *text, *name;
    py_model *m = (py_model *)PyType_GenericAlloc(type, 0);
    (void)kwargs;

    if (m && PyArg_ParseTuple(args, "OO:Model", &text, &name) &&
        (text != Py_None ? open_text(text, &m->model, &m->saved) : open_name(name, &m->model, &m->saved)))
        return (PyObject *)m;
    Py_XDECREF((PyObject *)m);
    return NULL;
}

static void model_dealloc(PyObject *self)
{
    py_model *m = (py_model *)self;
    PyTypeObject *type = Py_TYPE(self);

    manta_model_free(m->model);
    manta_saved_free(m->saved);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- what is read ---- */

/* Adds what it takes over; false with an exception. */
static bool append_taken(PyObject *list, PyObject *o)
{
    bool ok = o && !PyList_Append(list, o);

    Py_XDECREF(o);
    return ok;
}

/* [(name, dtype, shape of a sample)] of inputs, or outputs */
static PyObject *model_ports(const manta_model *m, bool outputs)
{
    int n = outputs ? manta_model_outputs(m) : manta_model_inputs(m);
    PyObject *out = PyList_New(0);

    for (int i = 0; out && i < n; i++) {
        const char *name = NULL;
        manta_array a = outputs ? manta_model_output(m, i, &name) : manta_model_input(m, i, &name);
        if (!append_taken(
                out, Py_BuildValue("zsN", name, manta_dtype_name(a.dtype), py_shape(a.ndim, a.shape, 1))))
            Py_CLEAR(out);
    }
    return out;
}

static PyObject *model_inputs(PyObject *self, void *unused)
{
    (void)unused;
    return model_ports(((py_model *)self)->model, false);
}

static PyObject *model_outputs(PyObject *self, void *unused)
{
    (void)unused;
    return model_ports(((py_model *)self)->model, true);
}

/* [(name, class, parameters, shape of a sample of its last output, whether it is frozen)] */
static PyObject *model_layers(PyObject *self, void *unused)
{
    const manta_model *m = ((py_model *)self)->model;
    PyObject *out = PyList_New(0);
    (void)unused;

    for (int i = 0; out && i < manta_model_layers(m); i++) {
        manta_layer_info l = manta_model_layer(m, i);
        if (!append_taken(out, Py_BuildValue("ssLNN", l.name, l.class_name, (long long)l.params,
                                             py_shape(l.ndim, l.shape, 1), PyBool_FromLong(l.frozen))))
            Py_CLEAR(out);
    }
    return out;
}

/* [(name, layer, shape, whether the layer made it to be trained, whether it is frozen)] */
static PyObject *model_variables(PyObject *self, void *unused)
{
    const manta_model *m = ((py_model *)self)->model;
    PyObject *out = PyList_New(0);
    (void)unused;

    for (int i = 0; out && i < manta_model_variables(m); i++) {
        manta_variable_info v = manta_model_variable(m, i);
        if (!append_taken(out, Py_BuildValue("ssNNN", v.name, v.layer, py_shape(v.ndim, v.shape, 0),
                                             PyBool_FromLong(v.trainable), PyBool_FromLong(v.frozen))))
            Py_CLEAR(out);
    }
    return out;
}

static PyObject *model_name(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(manta_model_name(((py_model *)self)->model));
}

/* Whether its text or file says what it was compiled with: the loss is what counts. */
static PyObject *model_is_compiled(PyObject *self, void *unused)
{
    const manta_saved *s = ((py_model *)self)->saved;
    const manta_loss *losses = NULL;
    int n = 0;
    (void)unused;

    return PyBool_FromLong(s && !manta_saved_losses(s, &n, &losses) && n > 0);
}

/* write(path): its configuration, as a file that ends in .json */
static PyObject *model_write(PyObject *self, PyObject *path)
{
    const char *at = PyUnicode_AsUTF8AndSize(path, NULL);
    py_model *m = (py_model *)self;
    manta_contents c = {0};
    manta_status st;

    if (!at) return NULL;
    if (m->saved) c = manta_saved_contents(m->saved);
    c.model = m->model;
    c.n_arrays = 0;
    PyThreadState *left = PyEval_SaveThread();
    st = manta_file_write(at, "config", &c);
    PyEval_RestoreThread(left);
    if (st) return py_raise_model(st);
    Py_RETURN_NONE;
}

/* ---- the tables of layers ---- */

static PyObject *field_list(const manta_layer_class *cls)
{
    static const char *const kinds[] = {"int",  "ints", "pair", "pairs", "float",  "bool",
                                        "bool", "text", "init", "reg",   "floats", "float"};
    PyObject *out = PyList_New(0);

    for (int i = 0; out && i < cls->n_fields; i++) {
        unsigned kind = (unsigned)cls->fields[i].kind;
        const char *name = kind < sizeof kinds / sizeof kinds[0] ? kinds[kind] : "?";
        if (!append_taken(out, Py_BuildValue("ss", cls->fields[i].key, name))) Py_CLEAR(out);
    }
    return out;
}

PyObject *py_layer_classes(PyObject *self, PyObject *unused)
{
    PyObject *out = PyList_New(0);
    const manta_layer_class *cls;
    (void)self;
    (void)unused;

    for (int i = 0; out && (cls = manta_layer_class_at(i)); i++)
        if (!append_taken(out, Py_BuildValue("sN", cls->name, field_list(cls)))) Py_CLEAR(out);
    return out;
}

static PyMethodDef model_methods[] = {
    {"write", model_write, METH_O, "Writes its configuration, as a file that ends in .json."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef model_attributes[] = {{"name", model_name, NULL, NULL, NULL},
                                         {"inputs", model_inputs, NULL, NULL, NULL},
                                         {"outputs", model_outputs, NULL, NULL, NULL},
                                         {"layers", model_layers, NULL, NULL, NULL},
                                         {"variables", model_variables, NULL, NULL, NULL},
                                         {"is_compiled", model_is_compiled, NULL, NULL, NULL},
                                         {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot model_slots[] = {{Py_tp_new, model_new},
                                    {Py_tp_dealloc, model_dealloc},
                                    {Py_tp_methods, model_methods},
                                    {Py_tp_getset, model_attributes},
                                    {Py_tp_doc, PY_DOC("A model that is built.")},
                                    {0, NULL}};

PyType_Spec py_model_spec = {.name = "manta._manta.Model",
                             .basicsize = sizeof(py_model),
                             .flags = Py_TPFLAGS_DEFAULT,
                             .slots = model_slots};
