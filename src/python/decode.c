/* decode.c - a value of the runtime as a Python value.
 *
 * Bytes of an object are not copied above PY_COPIED: numpy and pickle get blocks (block.c) that hold
 * the object. Arguments of a call live no longer than the call, which a view may do: large ones are objects of their
 * own (py_encode_kept()), and the bytes of others are copied, once.
 *
 * A pickle is read by Python (the hook load). References and handles in it ask for theirs by
 * index, by py_ref_at(): the value that is being read on this thread is `top`, a stack. */
#include "py.h"

#include <stdlib.h>
#include <string.h>

/* Where the parts of a value lie, and how long. */
typedef struct source {
    manta_ref ref; /* 0: nothing to hold them by */
    bool copy; /* they are to be written to */
} source;

typedef struct reading {
    const manta_packed *packed;
    struct reading *below;
} reading;

static _Thread_local reading *top;

static PyObject *block_for(const source *s, const void *at, size_t n)
{
    if (s->copy || !s->ref.id || n <= PY_COPIED) return py_block_copy(at, n, s->copy);
    return py_block_of(s->ref, at, n);
}

static PyObject *decode_array(const source *s, const manta_array *a)
{
    PyTypeObject *ndarray = py_numpy(true);
    PyObject *dtype = a->dtype < MANTA_DTYPE_COUNT ? py->dtypes[a->dtype] : NULL, *out = NULL, *shape, *block;

    if (!ndarray) return NULL;
    dtype = py->dtypes[a->dtype];
    if (!dtype)
        return PyErr_Format(PyExc_TypeError, "numpy has no type %s: the array cannot be read",
                            manta_dtype_name(a->dtype));
    shape = PyTuple_New(a->ndim);
    for (int i = 0; shape && i < a->ndim; i++) PyTuple_SetItem(shape, i, PyLong_FromLongLong(a->shape[i]));
    block = shape ? block_for(s, a->data, manta_array_bytes(a)) : NULL;
    if (block) out = PyObject_CallFunctionObjArgs((PyObject *)ndarray, shape, dtype, block, NULL);
    Py_XDECREF(shape);
    Py_XDECREF(block);
    return out;
}

static PyObject *decode_pickle(const source *s, const manta_packed *p)
{
    reading r = {p, top};
    PyObject *out = NULL, *blocks = PyList_New((Py_ssize_t)p->n_blocks), *head;

    for (size_t i = 0; blocks && i < p->n_blocks; i++) {
        PyObject *b = block_for(s, p->blocks[i].at, p->blocks[i].size);
        if (!b)
            Py_CLEAR(blocks);
        else
            PyList_SetItem(blocks, (Py_ssize_t)i, b);
    }
    if (!blocks) return NULL;
    head = p->head_size > PY_QUICK && s->ref.id
               ? py_block_of(s->ref, p->head, p->head_size)
               : PyBytes_FromStringAndSize(p->head, (Py_ssize_t)p->head_size);
    top = &r;
    if (head) out = py_ask(PY_HOOK_LOAD, head, blocks, NULL);
    top = r.below;
    Py_XDECREF(head);
    Py_DECREF(blocks);
    return out;
}

/* An argument that stayed in the store. It is there, or was lost. */
static PyObject *decode_kept(manta_ref ref)
{
    PyThreadState *left = py_leave();
    manta_status st = manta_get(ref, MANTA_FOREVER);

    py_come_back(left);
    return st ? py_raise(st, ref) : py_decode_object(ref, false);
}

static PyObject *decode_packed(const source *s, const manta_packed *p)
{
    const char *head = p->head;

    if (p->head_size == 1 && head[0] == 'R' && p->n_refs == 1) return decode_kept(p->refs[0]);
    if (p->head_size > 0 && head[0] == 'T') return py_tags_read(head + 1, p->head_size - 1, p);
    return decode_pickle(s, p);
}

static PyObject *decode_refs(const manta_ref *refs, size_t n)
{
    PyObject *out = PyList_New((Py_ssize_t)n);

    for (size_t i = 0; out && i < n; i++) {
        PyObject *r = manta_retain(refs[i]) ? py_raise(MANTA_EINVAL, (manta_ref){0}) : py_ref_take(refs[i]);
        if (!r)
            Py_CLEAR(out);
        else
            PyList_SetItem(out, (Py_ssize_t)i, r);
    }
    return out;
}

static PyObject *decode_handle(manta_actor actor)
{
    if (manta_retain((manta_ref){actor.id})) return py_raise(MANTA_EINVAL, (manta_ref){0});
    return py_actor_take(py->actor, actor);
}

static PyObject *decode_text(const char *s)
{
    return PyUnicode_DecodeUTF8(s, (Py_ssize_t)strlen(s), "surrogateescape");
}

/* What was read of an object; p: of a packed one. */
typedef struct seen {
    manta_arg v;
    manta_array a;
    manta_packed p;
} seen;

/* Bytes of an array or a packed value, which others than blocks have no use for once it was decoded. */
static size_t seen_bytes(const seen *x)
{
    size_t n = x->v.kind == MANTA_KIND_ARRAY ? manta_array_bytes(&x->a) : 0;

    if (x->v.kind != MANTA_KIND_PACKED) return n;
    n = x->p.head_size;
    for (size_t i = 0; i < x->p.n_blocks; i++) n += x->p.blocks[i].size;
    return n;
}

static PyObject *decode_seen(const source *s, const seen *x)
{
    const manta_arg *v = &x->v;

    switch (v->kind) {
    case MANTA_KIND_NONE: Py_RETURN_NONE;
    case MANTA_KIND_F64: return PyFloat_FromDouble(v->as.f64);
    case MANTA_KIND_I64: return PyLong_FromLongLong(v->as.i64);
    case MANTA_KIND_BOOL: return PyBool_FromLong(v->as.i64 != 0);
    case MANTA_KIND_STR: return decode_text(v->as.bytes.at);
    case MANTA_KIND_BYTES: return PyBytes_FromStringAndSize(v->as.bytes.at, (Py_ssize_t)v->as.bytes.n);
    case MANTA_KIND_ARRAY: return decode_array(s, &x->a);
    case MANTA_KIND_REFS: return decode_refs(v->as.bytes.at, v->as.bytes.n);
    case MANTA_KIND_ACTOR: return decode_handle((manta_actor){v->as.id});
    case MANTA_KIND_PACKED: return decode_packed(s, &x->p);
    case MANTA_KIND_REF:
    default: return PyErr_Format(PyExc_TypeError, "a value of kind %d cannot be read", (int)v->kind);
    }
}

/* What lies in the store is read while it is decoded, and afterwards by the blocks alone: it is pinned meanwhile,
 * for another thread may decode it too, and be done before. */
PyObject *py_decode_object(manta_ref ref, bool copy)
{
    const source s = {ref, copy};
    seen x;
    manta_status st = manta_get_value(ref, &x.v, &x.a, 0);

    if (!st && x.v.kind == MANTA_KIND_PACKED) st = manta_get_packed(ref, &x.p, 0);
    bool is_stored = !st && seen_bytes(&x) > PY_STORED;
    if (is_stored) st = manta_pin(ref);
    if (st) return py_raise(st, ref);
    PyObject *out = decode_seen(&s, &x);
    if (is_stored) {
        manta_unpin(ref);
        manta_unread(ref);
    }
    return out;
}

static PyObject *argument_failed(manta_status st)
{
    return py_raise(st, (manta_ref){0});
}

/* One whose value is bytes somewhere. */
static PyObject *decode_large_argument(const manta_task *t, int i, manta_kind kind)
{
    const source none = {0};
    const void *at;
    const char *text;
    const manta_ref *refs;
    manta_array a;
    manta_packed p;
    size_t n;
    manta_status st = MANTA_EINVAL;

    if (kind == MANTA_KIND_STR && !(st = manta_arg_str(t, i, &text))) return decode_text(text);
    if (kind == MANTA_KIND_BYTES && !(st = manta_arg_bytes(t, i, &at, &n)))
        return PyBytes_FromStringAndSize(at, (Py_ssize_t)n);
    if (kind == MANTA_KIND_ARRAY && !(st = manta_arg_array(t, i, &a))) return decode_array(&none, &a);
    if (kind == MANTA_KIND_REFS && !(st = manta_arg_refs(t, i, &refs, &n))) return decode_refs(refs, n);
    if (kind == MANTA_KIND_PACKED && !(st = manta_arg_packed(t, i, &p))) return decode_packed(&none, &p);
    return argument_failed(st);
}

PyObject *py_decode_argument(const manta_task *t, int i)
{
    manta_kind kind = manta_arg_kind(t, i);
    manta_status st;
    double d;
    int64_t x;
    bool b;
    manta_actor actor;

    switch (kind) {
    case MANTA_KIND_NONE: Py_RETURN_NONE;
    case MANTA_KIND_F64: return (st = manta_arg_f64(t, i, &d)) ? argument_failed(st) : PyFloat_FromDouble(d);
    case MANTA_KIND_I64: return (st = manta_arg_i64(t, i, &x)) ? argument_failed(st) : PyLong_FromLongLong(x);
    case MANTA_KIND_BOOL: return (st = manta_arg_bool(t, i, &b)) ? argument_failed(st) : PyBool_FromLong(b);
    case MANTA_KIND_ACTOR:
        return (st = manta_arg_actor(t, i, &actor)) ? argument_failed(st) : decode_handle(actor);
    default: return decode_large_argument(t, i, kind);
    }
}

PyObject *py_ref_at(PyObject *self, PyObject *index)
{
    Py_ssize_t i = PyLong_AsSsize_t(index);
    (void)self;

    if (i == -1 && PyErr_Occurred()) return NULL;
    if (!top || i < 0 || (size_t)i >= top->packed->n_refs)
        return PyErr_Format(PyExc_ValueError, "the pickle of an ObjectRef is read outside its value");
    manta_ref ref = top->packed->refs[i];
    if (manta_retain(ref)) return py_raise(MANTA_EINVAL, (manta_ref){0});
    return py_ref_take(ref);
}

PyObject *py_actor_at(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    Py_ssize_t i = n == 2 ? PyLong_AsSsize_t(args[0]) : -1;
    (void)self;

    if (PyErr_Occurred()) return NULL;
    if (!top || i < 0 || (size_t)i >= top->packed->n_actors || !PyType_Check(args[1]))
        return PyErr_Format(PyExc_ValueError, "the pickle of an actor's handle is read outside its value");
    manta_actor actor = top->packed->actors[i];
    if (manta_retain((manta_ref){actor.id})) return py_raise(MANTA_EINVAL, (manta_ref){0});
    return py_actor_take((PyTypeObject *)args[1], actor);
}
