/* call.c - the arguments of a call, from what Python hands to a method to what the runtime takes;
 * README.md has the layout. */
#include "py.h"

#include <stdlib.h>
#include <string.h>

/* The names of the keywords, each with a NUL behind it. */
static bool join_names(PyObject *kwnames, Py_ssize_t n, py_call *c, size_t *size)
{
    size_t total = 0;

    for (int pass = 0; pass < 2; pass++) {
        char *to = c->names;
        for (Py_ssize_t i = 0; i < n; i++) {
            Py_ssize_t length;
            const char *s = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(kwnames, i), &length);
            if (!s) return false;
            if (memchr(s, 0, (size_t)length)) {
                PyErr_SetString(PyExc_ValueError, "the name of a keyword argument has a NUL in it");
                return false;
            }
            if (to) memcpy(to, s, (size_t)length + 1), to += length + 1;
            if (!c->names) total += (size_t)length + 1;
        }
        if (pass == 0 && !(c->names = malloc(total + 1))) {
            PyErr_NoMemory();
            return false;
        }
    }
    *size = total;
    return true;
}

static bool call_room(py_call *c, Py_ssize_t n)
{
    c->args = c->few;
    c->values = c->few_values;
    if (n <= PY_FEW) return true;
    c->args = malloc((size_t)(n + 2) * sizeof *c->args);
    c->values = malloc((size_t)n * sizeof *c->values);
    if (c->args && c->values) return true;
    PyErr_NoMemory();
    return false;
}

static bool call_add(py_call *c, PyObject *o)
{
    manta_ref ref = {0};

    if (Py_TYPE(o) == py->ref && !py_ref_of(o, &ref)) return false;
    if (ref.id && !((const py_ref *)o)->is_large) {
        c->args[c->n_args++] = manta_of_ref(ref);
        return true;
    }
    py_value *v = &c->values[c->n_values++];
    if (ref.id ? !py_encode_kept(ref, v) : !py_encode(o, v)) return false;
    if (v->size >= PY_KEPT && v->owns && !py_value_keep(v)) return false;
    c->args[c->n_args++] = v->arg;
    c->size += v->size;
    return true;
}

bool py_call_of(PyObject *const *args, Py_ssize_t n, PyObject *kwnames, int64_t flags, PyObject *how,
                PyObject *captured, py_call *out)
{
    Py_ssize_t n_names = kwnames ? PyTuple_Size(kwnames) : 0;
    size_t size = 0;

    out->n_args = 0;
    out->n_values = 0;
    out->size = 0;
    out->names = NULL;
    if (!call_room(out, n + n_names + 2)) return false;
    if (how) flags |= PY_CALL_HOW;
    out->args[out->n_args++] = manta_i64(flags | (int)n_names | (captured ? PY_CALL_CAPTURED : 0));
    if (n_names > 0) {
        if (!join_names(kwnames, n_names, out, &size)) return false;
        out->args[out->n_args++] = manta_bytes(out->names, size);
    }
    for (Py_ssize_t i = 0; i < n + n_names; i++)
        if (!call_add(out, args[i])) return false;
    return (!how || call_add(out, how)) && (!captured || call_add(out, captured)) && py_still_runs();
}

void py_call_release(py_call *c)
{
    for (Py_ssize_t i = 0; i < c->n_values; i++) py_value_release(&c->values[i]);
    if (c->args != c->few) free(c->args);
    if (c->values != c->few_values) free(c->values);
    free(c->names);
}

static PyObject *take_result(manta_ref ref, bool of_actor)
{
    PyObject *out = py_ref_take(ref);

    if (out) ((py_ref *)out)->of_actor = of_actor;
    return out;
}

PyObject *py_results(const manta_ref *refs, int n, bool of_actor)
{
    if (n == 0) Py_RETURN_NONE;
    if (n == 1) return take_result(refs[0], of_actor);
    PyObject *out = PyList_New(n);
    for (int i = 0; i < n; i++) {
        PyObject *r = take_result(refs[i], of_actor);
        if (out && r)
            PyList_SetItem(out, i, r);
        else
            Py_XDECREF(r);
        if (!r) Py_CLEAR(out);
    }
    return out;
}
