/* actor.c - Actor, a handle that Python counts, and Method, one of its methods.
 *
 *     program ──▶ Actor (py_actor) ──▶ its methods, by name (Python keeps them)
 *                    │                      │ Method (py_method): options, results, what it says of
 *                    │                      ▼ each call; called like a function
 *                    └──── both hold ────▶ the actor, by its number
 *
 * A method holds the actor by itself, not by its handle: a handle keeps its methods, so that
 * nothing refers to the handle but the program, and the actor ends with the last handle.
 *
 * A call goes from vectorcall to manta_actor_submit_with() without a dict or a tuple of Python's
 * (call.c). It gives the interpreter away only when its arguments are large. That an actor with
 * max_pending_calls refuses a call is an exception of whoever makes it (was_refused()); other
 * failures are those of the references that the call returns.
 *
 * Destructors do not enter the runtime: they leave the number with drops.c. */
#include "py.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/actor.h>
#include <manta/stream.h>

/* ---- handles ---- */

PyObject *py_actor_take(PyTypeObject *cls, manta_actor actor)
{
    py_actor *a = (py_actor *)PyType_GenericAlloc(cls, 0);

    if (!a) {
        py_drop_later(PY_DROP_ACTOR, actor.id, py->life);
        return NULL;
    }
    a->actor = actor;
    a->life = py->life;
    return (PyObject *)a;
}

bool py_actor_of(PyObject *o, manta_actor *out)
{
    if (!PyObject_TypeCheck(o, py->actor)) {
        PyErr_Format(PyExc_TypeError, "expected an actor's handle, given %R", Py_TYPE(o));
        return false;
    }
    const py_actor *a = (const py_actor *)o;
    if (a->life != py->life || !py->life) {
        PyErr_SetString(PyExc_ValueError, PY_OLD_ACTOR);
        return false;
    }
    *out = a->actor;
    return true;
}

static void actor_dealloc(PyObject *self)
{
    py_actor *a = (py_actor *)self;
    PyTypeObject *type = Py_TYPE(self);

    py_drop_later(PY_DROP_ACTOR, a->actor.id, a->life);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static manta_status wait_for_actor(void *ctx, int64_t timeout_ms)
{
    return manta_actor_ready(*(const manta_actor *)ctx, timeout_ms);
}

static PyObject *actor_ready(PyObject *self, PyObject *timeout)
{
    manta_actor actor;
    int64_t ms;

    if (!py_actor_of(self, &actor) || !py_timeout(timeout, &ms)) return NULL;
    manta_status st = py_wait(wait_for_actor, &actor, ms);
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_NONE;
}

static PyObject *actor_end(PyObject *self, PyObject *unused)
{
    manta_actor actor;
    manta_status st;
    (void)unused;

    if (!py_actor_of(self, &actor)) return NULL;
    PyThreadState *left = py_leave();
    st = manta_actor_end(actor);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_NONE;
}

static PyObject *actor_kill(PyObject *self, PyObject *no_restart)
{
    manta_actor actor;
    manta_status st;
    bool stays_dead = PyObject_IsTrue(no_restart) == 1;

    if (!py_actor_of(self, &actor)) return NULL;
    PyThreadState *left = py_leave();
    st = manta_actor_kill(actor, stays_dead);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_NONE;
}

static PyObject *actor_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return py_ask(PY_HOOK_REDUCE, self, NULL);
}

static PyObject *actor_id(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((py_actor *)self)->actor.id);
}

static PyObject *actor_pid(PyObject *self, void *unused)
{
    manta_actor actor;
    (void)unused;

    if (!py_actor_of(self, &actor)) return NULL;
    return PyLong_FromLong(manta_actor_pid(actor));
}

static PyObject *actor_compare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || !PyObject_TypeCheck(b, py->actor)) Py_RETURN_NOTIMPLEMENTED;
    const py_actor *x = (const py_actor *)a, *y = (const py_actor *)b;
    bool same = x->actor.id == y->actor.id && x->life == y->life;
    return PyBool_FromLong(same == (op == Py_EQ));
}

static Py_hash_t actor_hash(PyObject *self)
{
    return (Py_hash_t)(((py_actor *)self)->actor.id & 0x7FFFFFFFFFFFFFFF);
}

static PyMethodDef actor_methods[] = {{"_ready", actor_ready, METH_O, NULL},
                                      {"_end", actor_end, METH_NOARGS, NULL},
                                      {"_kill", actor_kill, METH_O, NULL},
                                      {"__reduce__", actor_reduce, METH_NOARGS, NULL},
                                      {NULL, NULL, 0, NULL}};

static PyGetSetDef actor_getset[] = {
    {"_id", actor_id, NULL, "The actor's number.", NULL},
    {"_pid", actor_pid, NULL, "Its process; 0 while that is not known.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot actor_slots[] = {{Py_tp_dealloc, actor_dealloc},
                                    {Py_tp_methods, actor_methods},
                                    {Py_tp_getset, actor_getset},
                                    {Py_tp_richcompare, actor_compare},
                                    {Py_tp_hash, actor_hash},
                                    {Py_tp_doc, PY_DOC("A handle of an actor.")},
                                    {0, NULL}};

PyType_Spec py_actor_spec = {.name = "manta._manta.Actor",
                             .basicsize = sizeof(py_actor),
                             .flags =
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             .slots = actor_slots};

/* ---- start and find ---- */

/* A tuple and a dict as the arguments of a vectorcall. */
static bool call_of_tuple(PyObject *args, PyObject *kwargs, PyObject *captured, int64_t flags, py_call *out)
{
    Py_ssize_t n = PyTuple_Size(args), n_names = kwargs == Py_None ? 0 : PyDict_Size(kwargs), at = 0, k = 0;
    PyObject **all = malloc((size_t)(n + n_names + 1) * sizeof *all), *names = PyTuple_New(n_names), *key,
             *value;
    bool ok = all && names;

    out->n_values = 0;
    out->args = out->few;
    out->values = out->few_values;
    out->names = NULL;
    for (Py_ssize_t i = 0; ok && i < n; i++) all[i] = PyTuple_GetItem(args, i);
    while (ok && n_names > 0 && PyDict_Next(kwargs, &at, &key, &value)) {
        Py_INCREF(key);
        PyTuple_SetItem(names, k, key);
        all[n + k++] = value;
    }
    ok = ok && py_call_of(all, n, n_names > 0 ? names : NULL, flags, NULL,
                          captured == Py_None ? NULL : captured, out);
    Py_XDECREF(names);
    free(all);
    return ok;
}

/* Whether there was an actor of that name before, with an exception. */
static bool is_name_taken(manta_actor actor)
{
    manta_status st = manta_actor_ready(actor, 0);

    if (st == MANTA_EEXIST) py_raise(st, (manta_ref){0});
    return st == MANTA_EEXIST;
}

/* actor_start(cls, name, options, args, kwargs, captured, limit of coroutines, whether calls run at once) */
PyObject *py_actor_start(PyObject *self, PyObject *tuple)
{
    PyObject *cls, *options, *args, *kwargs, *captured, *out = NULL;
    const char *name;
    int limit, is_concurrent;
    py_options o = {0};
    py_call c;
    (void)self;

    if (!PyArg_ParseTuple(tuple, "OsOO!OOip:actor_start", &cls, &name, &options, &PyTuple_Type, &args,
                          &kwargs, &captured, &limit, &is_concurrent))
        return NULL;
    bool ok = py_options_fill(options, &o);
    int64_t flags = PY_CALL_CONSTRUCTOR | (is_concurrent ? PY_CALL_CONCURRENT : 0) |
                    (int64_t)limit << PY_CALL_LIMIT_SHIFT;
    bool called = ok && call_of_tuple(args, kwargs, captured, flags, &c);
    if (called) {
        manta_actor actor;
        PyThreadState *left = py_leave();
        actor = manta_actor_start(name, &o.o, c.n_args, c.args);
        py_come_back(left);
        out = actor.id ? py_actor_take((PyTypeObject *)cls, actor) : py_raise(MANTA_EINVAL, (manta_ref){0});
        if (out && o.o.name && is_name_taken(actor)) Py_CLEAR(out); /* which is known by now */
    }
    if (ok) py_call_release(&c);
    py_options_release(&o);
    return out;
}

/* actor_find(cls, name, namespace) */
PyObject *py_actor_find(PyObject *self, PyObject *args)
{
    PyObject *cls;
    const char *name, *space;
    manta_actor actor;
    manta_status st;
    (void)self;

    if (!PyArg_ParseTuple(args, "Osz:actor_find", &cls, &name, &space)) return NULL;
    if (!py_ready()) return NULL;
    PyThreadState *left = py_leave();
    st = space ? manta_actor_find_in(space, name, &actor) : manta_actor_find(name, &actor);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    return py_actor_take((PyTypeObject *)cls, actor);
}

/* ---- methods ---- */

typedef struct py_method {
    PyObject head;
    manta_actor actor;
    uint32_t life;
    char name[64];
    py_options options;
    int results;
    bool is_stream, is_limited; /* is_limited: its actor has max_pending_calls */
    PyObject *how; /* bytes; NULL: nothing is to be said */
} py_method;

static PyObject *method_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *handle, *options, *how = Py_None;
    const char *name;
    int results, is_stream, is_limited = 0;
    manta_actor actor;
    (void)kwargs;

    if (!PyArg_ParseTuple(args, "OsOip|Op:Method", &handle, &name, &options, &results, &is_stream, &how,
                          &is_limited))
        return NULL;
    if (strlen(name) > 60 || results < 0 || results > 1000)
        return PyErr_Format(PyExc_ValueError,
                            "method %s: expected a name of at most 60 bytes and 0 to 1000 results", name);
    if (!py_actor_of(handle, &actor)) return NULL;
    py_method *m = (py_method *)PyType_GenericAlloc(type, 0);
    if (!m) return NULL;
    snprintf(m->name, sizeof m->name, "py.%s", name);
    m->results = results;
    m->is_stream = is_stream;
    m->is_limited = is_limited;
    if (how != Py_None) m->how = Py_NewRef(how);
    if (!py_options_fill(options, &m->options)) Py_CLEAR(m);
    if (m && manta_retain((manta_ref){actor.id})) {
        py_raise(MANTA_EINVAL, (manta_ref){0});
        Py_CLEAR(m);
    }
    if (m) m->actor = actor, m->life = py->life;
    return (PyObject *)m;
}

static void method_dealloc(PyObject *self)
{
    py_method *m = (py_method *)self;
    PyTypeObject *type = Py_TYPE(self);

    py_drop_later(PY_DROP_REF, m->actor.id, m->life);
    py_options_release(&m->options);
    Py_XDECREF(m->how);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

#define RESULTS_FEW 8

/* Of an actor with max_pending_calls: a call that it refuses is an exception of whoever makes it, who may try
 * again later. forget_refusal() comes before the call, was_refused() after it. */
static void forget_refusal(const py_method *m)
{
    if (m->is_limited) (void)!manta_fail(MANTA_OK, "%s", "");
}

static bool was_refused(const py_method *m, manta_error *why)
{
    if (m->is_limited) manta_error_get(why);
    return m->is_limited && why->code == MANTA_EBUSY;
}

static PyObject *raise_refusal(const manta_error *why)
{
    return py_raise(manta_error_raise(why), (manta_ref){0});
}

static PyObject *submit_method(const py_method *m, const py_call *c)
{
    const manta_task_options *o = m->options.keep ? &m->options.o : NULL;
    manta_ref few[RESULTS_FEW],
        *refs = m->results > RESULTS_FEW ? malloc((size_t)m->results * sizeof *refs) : few;
    manta_error why;
    bool refused;

    if (!refs) return PyErr_NoMemory();
    forget_refusal(m);
    if (PY_IS_SLOW(c->size)) {
        PyThreadState *left = py_leave();
        manta_actor_submit_with(m->actor, m->name, o, c->n_args, c->args, m->results, refs);
        refused = was_refused(m, &why);
        py_come_back(left);
    } else {
        manta_actor_submit_with(m->actor, m->name, o, c->n_args, c->args, m->results, refs);
        refused = was_refused(m, &why);
    }
    PyObject *out = py_results(refs, m->results, true);
    if (refs != few) free(refs);
    if (refused) {
        Py_XDECREF(out);
        return raise_refusal(&why);
    }
    return out;
}

static PyObject *stream_method(const py_method *m, const py_call *c)
{
    manta_stream s;
    manta_error why;

    forget_refusal(m);
    PyThreadState *left = py_leave();
    s = manta_actor_stream_start(m->actor, m->name, m->options.keep ? &m->options.o : NULL, c->n_args,
                                 c->args);
    bool refused = was_refused(m, &why);
    if (refused) manta_stream_close(s);
    py_come_back(left);
    return refused ? raise_refusal(&why) : py_stream_take(s);
}

static PyObject *method_remote(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    const py_method *m = (const py_method *)self;
    PyObject *out = NULL;
    py_call c;

    if (m->life != py->life || !m->life) {
        PyErr_SetString(PyExc_ValueError, PY_OLD_ACTOR);
        return NULL;
    }
    py_drops_flush(false);
    if (py_call_of(args, n, kwnames, PY_CALL_METHOD | (m->is_stream ? PY_CALL_STREAM : 0), m->how, NULL, &c))
        out = m->is_stream ? stream_method(m, &c) : submit_method(m, &c);
    py_call_release(&c);
    return out;
}

/* A handle, of class `cls`, of the actor that it is a method of. */
static PyObject *method_handle(PyObject *self, PyObject *cls)
{
    const py_method *m = (const py_method *)self;

    if (m->life != py->life || !m->life || !PyType_Check(cls) || manta_retain((manta_ref){m->actor.id}))
        return PyErr_Format(PyExc_ValueError, PY_OLD_ACTOR);
    return py_actor_take((PyTypeObject *)cls, m->actor);
}

static PyMethodDef method_methods[] = {
    {"_handle_as", method_handle, METH_O, NULL},
    {"remote", (PyCFunction)(void (*)(void))method_remote, METH_FASTCALL | METH_KEYWORDS,
     "Calls the method in the actor and returns at once: an ObjectRef of the result."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot method_slots[] = {{Py_tp_new, method_new},
                                     {Py_tp_dealloc, method_dealloc},
                                     {Py_tp_methods, method_methods},
                                     {Py_tp_doc, PY_DOC("A method of an actor.")},
                                     {0, NULL}};

PyType_Spec py_method_spec = {.name = "manta._manta.Method",
                              .basicsize = sizeof(py_method),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                              .slots = method_slots};
