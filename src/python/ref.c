/* ref.c - ObjectRef: a reference that Python counts.
 *
 * It holds its object once, from py_ref_take() to its destructor. It knows in which life of the
 * runtime it was made: one of an earlier life, or of the process that this one was forked from,
 * refuses to be used and gives nothing back. So does one that the program has made of bytes, as tests and caches
 * of programs for Ray do: it is a name to compare and to keep. Subclasses there are none. */
#include "py.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/random.h>

static py_ref *ref_make(manta_ref ref, uint32_t life, PyObject *name)
{
    py_ref *r = PyObject_New(py_ref, py->ref);

    if (!r) return NULL;
    r->ref = ref;
    r->life = life;
    r->is_large = r->of_actor = false;
    r->name = name ? Py_NewRef(name) : NULL;
    r->weak = NULL;
    return r;
}

static PyObject *ref_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *name;
    (void)type;

    if (kwargs && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "ObjectRef() takes no keyword arguments");
    if (!PyArg_ParseTuple(args, "S:ObjectRef", &name)) return NULL;
    if (PyBytes_Size(name) != PY_NAME)
        return PyErr_Format(PyExc_ValueError, "the name of an ObjectRef needs to have length %d, given %zd",
                            PY_NAME, PyBytes_Size(name));
    return (PyObject *)ref_make((manta_ref){0}, 0, name);
}

static PyObject *ref_from_random(PyObject *cls, PyObject *unused)
{
    char bytes[PY_NAME];
    (void)cls;
    (void)unused;

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return PyErr_SetFromErrno(PyExc_OSError);
    PyObject *name = PyBytes_FromStringAndSize(bytes, sizeof bytes);
    PyObject *out = name ? (PyObject *)ref_make((manta_ref){0}, 0, name) : NULL;
    Py_XDECREF(name);
    return out;
}

static PyObject *ref_hex(PyObject *self, PyObject *unused)
{
    char text[17];
    (void)unused;

    if (((py_ref *)self)->name) return PyObject_CallMethod(((py_ref *)self)->name, "hex", NULL);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)((py_ref *)self)->ref.id);
    return PyUnicode_FromString(text);
}

static PyObject *ref_binary(PyObject *self, PyObject *unused)
{
    uint64_t id = ((py_ref *)self)->ref.id;
    unsigned char bytes[8];
    (void)unused;

    if (((py_ref *)self)->name) return Py_NewRef(((py_ref *)self)->name);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(id >> (56 - 8 * i));
    return PyBytes_FromStringAndSize((const char *)bytes, 8);
}

static PyObject *ref_repr(PyObject *self)
{
    PyObject *hex = ref_hex(self, NULL), *out = hex ? PyUnicode_FromFormat("ObjectRef(%U)", hex) : NULL;

    Py_XDECREF(hex);
    return out;
}

static Py_hash_t ref_hash(PyObject *self)
{
    const py_ref *r = (const py_ref *)self;

    if (r->name) return PyObject_Hash(r->name);
    uint64_t x = r->ref.id * 0x9E3779B97F4A7C15u + r->life;
    Py_hash_t h = (Py_hash_t)(x ^ x >> 32);

    return h == -1 ? -2 : h;
}

static PyObject *ref_compare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(b) != py->ref) Py_RETURN_NOTIMPLEMENTED;
    const py_ref *x = (const py_ref *)a, *y = (const py_ref *)b;
    bool same = x->ref.id == y->ref.id && x->life == y->life;
    if (x->name || y->name)
        same = x->name && y->name && PyObject_RichCompareBool(x->name, y->name, Py_EQ) == 1;
    return PyBool_FromLong(same == (op == Py_EQ));
}

static PyObject *ref_reduce(PyObject *self, PyObject *unused)
{
    PyObject *index, *at, *out = NULL;
    (void)unused;

    if (((py_ref *)self)->name) return Py_BuildValue("O(O)", py->ref, ((py_ref *)self)->name);
    if (!py_is_writing()) return py_ask(PY_HOOK_LOOSE, self, NULL);
    if (!(index = py_ref_index(py->module, self))) return NULL;
    if ((at = PyObject_GetAttrString(py->module, "ref_at"))) out = Py_BuildValue("O(O)", at, index);
    Py_XDECREF(at);
    Py_DECREF(index);
    return out;
}

static PyObject *ref_await(PyObject *self)
{
    return py_ask(PY_HOOK_AWAIT, self, NULL);
}

static PyObject *ref_future(PyObject *self, PyObject *unused)
{
    (void)unused;
    return py_ask(PY_HOOK_FUTURE, self, NULL);
}

static PyObject *ref_is_nil(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(((py_ref *)self)->ref.id == 0 && !((py_ref *)self)->name);
}

static PyObject *ref_size(PyObject *cls, PyObject *unused)
{
    (void)cls;
    (void)unused;
    return PyLong_FromLong(8);
}

static PyObject *ref_nil(PyObject *cls, PyObject *unused)
{
    (void)cls;
    (void)unused;
    return (PyObject *)ref_make((manta_ref){0}, 0, NULL);
}

static PyObject *ref_of_type(PyObject *cls, PyObject *item)
{
    (void)item;
    Py_INCREF(cls); /* ObjectRef[int] is for readers and mypy */
    return cls;
}

static void ref_dealloc(PyObject *self)
{
    py_ref *r = (py_ref *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (r->weak) PyObject_ClearWeakRefs(self);
    py_drop_later(PY_DROP_REF, r->ref.id, r->life);
    Py_XDECREF(r->name);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyObject *py_ref_take(manta_ref ref)
{
    py_ref *r;

    if (!ref.id) return py_raise(MANTA_EINVAL, ref);
    r = ref_make(ref, py->life, NULL);
    if (!r) py_drop_later(PY_DROP_REF, ref.id, py->life);
    return (PyObject *)r;
}

bool py_ref_of(PyObject *o, manta_ref *out)
{
    const py_ref *r = (const py_ref *)o;

    if (Py_TYPE(o) != py->ref) {
        PyErr_Format(PyExc_TypeError, "expected an ObjectRef, given %R", Py_TYPE(o));
        return false;
    }
    if (r->life != py->life || !py->life) {
        PyErr_Format(PyExc_ValueError,
                     "%R is of a runtime that has ended, or of another process: it names nothing here", o);
        return false;
    }
    *out = r->ref;
    return true;
}

static PyMethodDef ref_methods[] = {
    {"hex", ref_hex, METH_NOARGS, "The number of the object, 16 hex digits."},
    {"binary", ref_binary, METH_NOARGS, "The number of the object, 8 bytes."},
    {"future", ref_future, METH_NOARGS,
     "A concurrent.futures.Future of the value.\n\n    f.remote(1).future().result()"},
    {"is_nil", ref_is_nil, METH_NOARGS, "Whether it names nothing."},
    {"nil", ref_nil, METH_NOARGS | METH_CLASS, "A reference that names nothing."},
    {"from_random", ref_from_random, METH_NOARGS | METH_CLASS,
     "A reference that names nothing, and is like no other.\n\n    manta.ObjectRef.from_random()"},
    {"size", ref_size, METH_NOARGS | METH_CLASS, "Bytes of binary()."},
    {"__reduce__", ref_reduce, METH_NOARGS, NULL},
    {"__class_getitem__", ref_of_type, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL}};

static PyMemberDef ref_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(py_ref, weak), READONLY, NULL},
    {"_of_actor", T_BOOL, offsetof(py_ref, of_actor), READONLY,
     "Whether a method that was called here gives it."},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot ref_slots[] = {
    {Py_tp_new, ref_new},
    {Py_tp_dealloc, ref_dealloc},
    {Py_tp_repr, ref_repr},
    {Py_tp_hash, ref_hash},
    {Py_tp_richcompare, ref_compare},
    {Py_tp_methods, ref_methods},
    {Py_tp_members, ref_members},
    {Py_am_await, ref_await},
    {Py_tp_doc, PY_DOC("A value that is there, or will be: what .remote() and put() return.\n\n"
                       "    ref = manta.put(1)\n    manta.get(ref)\n    await ref")},
    {0, NULL}};

PyType_Spec py_ref_spec = {
    .name = "manta.ObjectRef", .basicsize = sizeof(py_ref), .flags = Py_TPFLAGS_DEFAULT, .slots = ref_slots};
