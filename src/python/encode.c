/* encode.c - a Python value as a manta_arg. README.md has the table of what becomes what.
 *
 * Nothing of a value is copied here but what a pickle is made of: the runtime copies, out of
 * the buffers of the Python objects, which the py_value holds until then.
 *
 * A pickle is written by Python (the hook dump). References and handles that it meets say their
 * index in the packed value, by py_ref_index(): the value that is being written on
 * this thread is `writing`, a stack, because a __reduce__ may put another value meanwhile. */
#include "py.h"

#include <stdlib.h>
#include <string.h>

#include <manta/failure.h>

typedef struct writing {
    py_value *value;
    struct writing *below;
} writing;

static _Thread_local writing *top;

/* ---- arrays ---- */

static bool numpy_load(PyObject *numpy)
{
    PyObject *type = PyObject_GetAttrString(numpy, "ndarray"),
             *dtype = PyObject_GetAttrString(numpy, "dtype");

    for (int i = 0; type && dtype && i < MANTA_DTYPE_COUNT; i++) {
        if (i == MANTA_DTYPE_BF16) continue; /* numpy alone has none */
        PyObject *d = PyObject_CallFunction(dtype, "s", manta_dtype_name((manta_dtype)i));
        py_replace(&py->dtypes[i], d);
        if (!d) break;
    }
    Py_XDECREF(dtype);
    if (PyErr_Occurred()) {
        Py_XDECREF(type);
        return false;
    }
    py_replace((PyObject **)&py->ndarray, type);
    return true;
}

PyTypeObject *py_numpy(bool import)
{
    if (py->ndarray) return py->ndarray;
    PyObject *modules = PyImport_GetModuleDict(), *numpy = PyDict_GetItemString(modules, "numpy");
    if (numpy && PyObject_HasAttrString(numpy, "ndarray")) { /* and not in the middle of its import */
        if (!numpy_load(numpy)) return NULL;
    } else if (import) {
        if (!(numpy = PyImport_ImportModule("numpy"))) return NULL;
        bool ok = numpy_load(numpy);
        Py_DECREF(numpy);
        if (!ok) return NULL;
    }
    return py->ndarray;
}

static bool dtype_of(const Py_buffer *b, manta_dtype *out)
{
    const char *f = b->format ? b->format : "B";

    if (f[0] == '@' || f[0] == '=') f++;
    if (!f[0] || f[1]) return false;
    switch (f[0]) {
    case 'f': *out = MANTA_DTYPE_F32; return true;
    case 'd': *out = MANTA_DTYPE_F64; return true;
    case 'e': *out = MANTA_DTYPE_F16; return true;
    case 'B': *out = MANTA_DTYPE_U8; return true;
    case '?': *out = MANTA_DTYPE_BOOL; return true;
    case 'i':
    case 'l':
    case 'q': *out = b->itemsize == 8 ? MANTA_DTYPE_I64 : MANTA_DTYPE_I32; return b->itemsize >= 4;
    default: return false;
    }
}

/* 1 it was an array that can go as one, 0 it goes by pickle, -1 an exception. */
static int encode_array(PyObject *o, py_value *out)
{
    manta_dtype dtype;
    Py_buffer *b = &out->view;

    if (PyObject_GetBuffer(o, b, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyErr_Clear(); /* in another order, or of Python objects */
        return 0;
    }
    if (!dtype_of(b, &dtype) || b->ndim > MANTA_MAX_DIMS) {
        PyBuffer_Release(b);
        return 0;
    }
    int64_t shape[MANTA_MAX_DIMS];
    for (int i = 0; i < b->ndim; i++) shape[i] = b->shape[i];
    out->array = manta_array_of(dtype, b->ndim, shape, b->buf);
    out->arg = manta_elements(&out->array);
    out->size = (size_t)b->len;
    out->owns = PY_OWNS_VIEW;
    return 1;
}

/* ---- pickles ---- */

static bool make_room(void **at, size_t n, size_t *room, size_t item)
{
    if (n < *room) return true;
    size_t more = *room ? *room * 2 : 16;
    void *p = realloc(*at, more * item);
    if (!p) {
        PyErr_NoMemory();
        return false;
    }
    *at = p;
    *room = more;
    return true;
}

static Py_ssize_t too_many(void)
{
    PyErr_Format(PyExc_ValueError, "a value holds more than %d references and actors", MANTA_PACKED_INNER);
    return -1;
}

Py_ssize_t py_value_add_ref(py_value *v, manta_ref ref)
{
    manta_packed *p = &v->packed;

    if (p->n_refs + p->n_actors >= MANTA_PACKED_INNER) return too_many();
    if (!make_room((void **)&v->refs, p->n_refs, &v->refs_room, sizeof *v->refs)) return -1;
    v->refs[p->n_refs] = ref;
    p->refs = v->refs;
    return (Py_ssize_t)p->n_refs++;
}

Py_ssize_t py_value_add_actor(py_value *v, manta_actor actor)
{
    manta_packed *p = &v->packed;

    if (p->n_refs + p->n_actors >= MANTA_PACKED_INNER) return too_many();
    if (!make_room((void **)&v->actors, p->n_actors, &v->actors_room, sizeof *v->actors)) return -1;
    v->actors[p->n_actors] = actor;
    p->actors = v->actors;
    return (Py_ssize_t)p->n_actors++;
}

bool py_is_writing(void)
{
    return top != NULL;
}

/* What is pickled is no part of a value that the runtime will carry: it would hold nothing. */
static PyObject *out_of_band(const char *what)
{
    PyObject *status = PyUnicode_FromString("out of band");
    PyObject *text =
        PyUnicode_FromFormat("%s can be pickled only inside a value that goes to manta.put(), to a remote "
                             "call, or comes back from one",
                             what);
    PyObject *e = status && text ? py_ask(PY_HOOK_ERROR, status, text, Py_None, Py_None, NULL) : NULL;

    if (e) PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_XDECREF(e);
    Py_XDECREF(status);
    Py_XDECREF(text);
    return NULL;
}

PyObject *py_ref_index(PyObject *self, PyObject *o)
{
    manta_ref ref;
    (void)self;

    if (!top) return out_of_band("an ObjectRef");
    if (!py_ref_of(o, &ref)) return NULL;
    Py_ssize_t i = py_value_add_ref(top->value, ref);
    return i < 0 ? NULL : PyLong_FromSsize_t(i);
}

PyObject *py_actor_index(PyObject *self, PyObject *o)
{
    manta_actor actor;
    (void)self;

    if (!top) return out_of_band("an actor's handle");
    if (!py_actor_of(o, &actor)) return NULL;
    Py_ssize_t i = py_value_add_actor(top->value, actor);
    return i < 0 ? NULL : PyLong_FromSsize_t(i);
}

static bool add_views(PyObject *buffers, py_value *v)
{
    Py_ssize_t n = PyList_Size(buffers);

    if (n <= 0) return n == 0;
    v->views = calloc((size_t)n, sizeof *v->views);
    v->blocks = calloc((size_t)n, sizeof *v->blocks);
    if (!v->views || !v->blocks) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (PyObject_GetBuffer(PyList_GetItem(buffers, i), &v->views[i], PyBUF_ANY_CONTIGUOUS) < 0)
            return false;
        v->n_views++;
        v->blocks[i] = (manta_packed_block){v->views[i].buf, (size_t)v->views[i].len};
        v->size += (size_t)v->views[i].len;
    }
    v->packed.blocks = v->blocks;
    v->packed.n_blocks = (size_t)n;
    return true;
}

static bool encode_pickle(PyObject *o, py_value *out)
{
    writing w = {out, top};
    char *head;
    Py_ssize_t n;

    top = &w;
    PyObject *both = py_ask(PY_HOOK_DUMP, o, NULL), *buffers = NULL, *bytes = NULL;
    top = w.below;
    if (!both) return false;
    out->keep = both; /* the buffers' owners, and the pickle */
    if (!PyArg_ParseTuple(both, "OO", &bytes, &buffers) || PyBytes_AsStringAndSize(bytes, &head, &n) < 0)
        return false;
    out->packed.head = head;
    out->packed.head_size = (size_t)n;
    out->size = (size_t)n;
    return add_views(buffers, out);
}

static void begin_packed(py_value *out)
{
    out->owns = PY_OWNS_PACKED;
    out->packed = (manta_packed){0};
    out->keep = NULL;
    out->head = NULL;
    out->views = NULL;
    out->n_views = 0;
    out->blocks = NULL;
    out->refs = NULL;
    out->actors = NULL;
    out->refs_room = out->actors_room = 0;
    out->kept.id = 0;
    out->arg = manta_pack(&out->packed);
}

bool py_encode_kept(manta_ref ref, py_value *out)
{
    begin_packed(out);
    out->size = 0;
    out->packed.head = "R";
    out->packed.head_size = 1;
    return py_value_add_ref(out, ref) == 0;
}

bool py_value_keep(py_value *v)
{
    manta_failure f = {0};

    if (!py->life) return true; /* whoever made the value is refused (py_still_runs()) */
    PyThreadState *left = py_leave();
    manta_ref ref = manta_put(v->arg);
    if (ref.id) manta_failure_get(ref, &f);
    py_come_back(left);
    if (!ref.id || f.kind) { /* no room: it travels as it is, or fails as it is */
        py_drop_later(PY_DROP_REF, ref.id, py->life);
        return true;
    }
    py_value_release(v);
    if (!py_encode_kept(ref, v)) return false;
    v->kept = ref;
    return true;
}

/* ---- all ---- */

static bool encode_text(PyObject *o, py_value *out)
{
    Py_ssize_t n;
    const char *s = PyUnicode_AsUTF8AndSize(o, &n);

    if (!s) { /* lone surrogates */
        PyErr_Clear();
        return false;
    }
    if (memchr(s, 0, (size_t)n)) return false;
    out->arg.kind = MANTA_KIND_STR;
    out->arg.as.bytes.at = s;
    out->arg.as.bytes.n = (size_t)n;
    out->size = (size_t)n;
    return true;
}

static bool encode_integer(PyObject *o, py_value *out)
{
    int overflow;
    long long x = PyLong_AsLongLongAndOverflow(o, &overflow);

    if (overflow) return false;
    out->arg = manta_i64(x);
    return true;
}

/* What a kind of manta/task.h can say; false: another way must be found. */
static bool encode_plain(PyObject *o, py_value *out)
{
    PyTypeObject *type = Py_TYPE(o);

    if (o == Py_None) {
        out->arg = (manta_arg){.kind = MANTA_KIND_NONE};
        return true;
    }
    if (type == &PyLong_Type) return encode_integer(o, out);
    if (type == &PyFloat_Type) {
        out->arg = manta_f64(PyFloat_AsDouble(o));
        return true;
    }
    if (type == &PyBool_Type) {
        out->arg = manta_bool(o == Py_True);
        return true;
    }
    if (type == &PyUnicode_Type) return encode_text(o, out);
    if (type != &PyBytes_Type) return false;
    out->arg = manta_bytes(PyBytes_AsString(o), (size_t)PyBytes_Size(o));
    out->size = out->arg.as.bytes.n;
    return true;
}

bool py_encode(PyObject *o, py_value *out)
{
    out->owns = PY_OWNS_NOTHING;
    out->size = 0;
    if (encode_plain(o, out)) return true;
    PyTypeObject *ndarray = py_numpy(false);
    if (ndarray && Py_TYPE(o) == ndarray) {
        int done = encode_array(o, out);
        if (done) return done > 0;
    }
    if (PyErr_Occurred()) return false;
    begin_packed(out);
    int done = py_tags_write(o, out);
    return done ? done > 0 : encode_pickle(o, out);
}

void py_value_release(py_value *v)
{
    if (v->owns == PY_OWNS_VIEW) PyBuffer_Release(&v->view);
    if (v->owns == PY_OWNS_PACKED) {
        for (size_t i = 0; i < v->n_views; i++) PyBuffer_Release(&v->views[i]);
        free(v->views);
        free(v->blocks);
        free(v->refs);
        free(v->actors);
        free(v->head);
        Py_XDECREF(v->keep);
        py_drop_later(PY_DROP_REF, v->kept.id, py->life);
    }
    v->owns = PY_OWNS_NOTHING;
}
