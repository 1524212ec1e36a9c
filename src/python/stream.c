/* stream.c - Stream: results of a call that come one by one; and Watch: references in an event loop
 * (manta/watch.h).
 *
 *     a stream   open ── next() ──▶ an item, a reference
 *                  │                the end: None
 *                  │                the failure of the call: one more item, a reference that fails,
 *                  │                and then the end
 *                  └─ close(), or the object goes: the call is cancelled, unless let_go_on()
 *
 * A watch is a descriptor that becomes readable when references which were given to it are ready;
 * Python's event loop waits for that (_aio.py), so that no thread does.
 *
 * Both know in which life of the runtime they were made (node.c) and are at their end in another
 * one. Destructors leave the number of a stream with drops.c; a watch is closed at once. */
#include "py.h"

#include <manta/watch.h>

/* ---- streams ---- */

typedef struct py_stream {
    PyObject head;
    manta_stream stream;
    uint32_t life;
    bool is_left; /* when it goes its call goes on, instead of being cancelled */
} py_stream;

PyObject *py_stream_take(manta_stream s)
{
    py_stream *o;

    if (!s.id) return py_raise(MANTA_EINVAL, (manta_ref){0});
    if (!(o = PyObject_New(py_stream, py->stream))) {
        py_drop_later(PY_DROP_STREAM, s.id, py->life);
        return NULL;
    }
    o->stream = s;
    o->life = py->life;
    o->is_left = false;
    PyObject *out = py_ask(PY_HOOK_STREAM, (PyObject *)o, NULL);
    Py_DECREF(o);
    return out;
}

typedef struct next_item {
    manta_stream stream;
    manta_ref ref;
} next_item;

static manta_status wait_for_item(void *ctx, int64_t timeout_ms)
{
    next_item *x = ctx;

    return manta_stream_next(x->stream, &x->ref, timeout_ms);
}

static PyObject *stream_next(PyObject *self, PyObject *timeout)
{
    py_stream *s = (py_stream *)self;
    next_item x = {.stream = s->stream};
    manta_ref end = {0};
    int64_t ms;

    if (!py_timeout(timeout, &ms)) return NULL;
    if (s->life != py->life || !s->stream.id) Py_RETURN_NONE;
    manta_status st = wait_for_item(&x, 0);
    if (st == MANTA_ETIMEDOUT && ms) st = py_wait(wait_for_item, &x, ms);
    if (!st) return py_ref_take(x.ref);
    if (st == MANTA_ENOENT) Py_RETURN_NONE;
    if (st != MANTA_ETIMEDOUT && !PyErr_Occurred() && !manta_stream_end(s->stream, &end)) {
        py_drop_later(PY_DROP_STREAM, s->stream.id, s->life); /* the last item is the failure itself */
        s->stream.id = 0;
        return py_ref_take(end);
    }
    return py_raise(st, end);
}

static manta_status wait_for_any(void *ctx, int64_t timeout_ms)
{
    return manta_stream_wait(*(const manta_stream *)ctx, timeout_ms);
}

/* True an item or the failure is there, within so many seconds; None the end is; False nothing is. */
static PyObject *stream_ready(PyObject *self, PyObject *timeout)
{
    py_stream *s = (py_stream *)self;
    manta_stream stream = s->stream;
    int64_t ms;

    if (!py_timeout(timeout, &ms)) return NULL;
    if (s->life != py->life || !stream.id) Py_RETURN_NONE;
    manta_status st = wait_for_any(&stream, 0);
    if (st == MANTA_ETIMEDOUT && ms) st = py_wait(wait_for_any, &stream, ms);
    if (st == MANTA_ETIMEDOUT) Py_RETURN_FALSE;
    if (st == MANTA_ENOENT) Py_RETURN_NONE;
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_TRUE;
}

static PyObject *stream_let_go_on(PyObject *self, PyObject *unused)
{
    (void)unused;
    ((py_stream *)self)->is_left = true;
    Py_RETURN_NONE;
}

/* A reference that is ready when the function has ended; its failure is the stream's. */
static PyObject *stream_end(PyObject *self, PyObject *unused)
{
    const py_stream *s = (const py_stream *)self;
    manta_ref end = {0};
    manta_status st;
    (void)unused;

    if (s->life != py->life || !s->stream.id)
        return PyErr_Format(PyExc_ValueError, "the stream was closed, or is of a runtime that has ended");
    st = manta_stream_end(s->stream, &end);
    return st ? py_raise(st, (manta_ref){0}) : py_ref_take(end);
}

static PyObject *stream_close(PyObject *self, PyObject *unused)
{
    py_stream *s = (py_stream *)self;
    manta_stream stream = s->stream;
    (void)unused;

    s->stream.id = 0;
    if (stream.id && s->life == py->life) {
        PyThreadState *left = py_leave();
        manta_stream_close(stream);
        py_come_back(left);
    }
    Py_RETURN_NONE;
}

static void stream_dealloc(PyObject *self)
{
    py_stream *s = (py_stream *)self;
    PyTypeObject *type = Py_TYPE(self);

    py_drop_later(s->is_left ? PY_DROP_STREAM_LEFT : PY_DROP_STREAM, s->stream.id, s->life);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef stream_methods[] = {
    {"next", stream_next, METH_O, "The next item, or None after the last."},
    {"ready", stream_ready, METH_O, "Whether an item is there, after so many seconds; None: the end is."},
    {"let_go_on", stream_let_go_on, METH_NOARGS, "Its call is not cancelled when the stream goes."},
    {"end", stream_end, METH_NOARGS, "A reference to the end of the call."},
    {"close", stream_close, METH_NOARGS, "Cancels the call if it still runs."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot stream_slots[] = {{Py_tp_dealloc, stream_dealloc},
                                     {Py_tp_methods, stream_methods},
                                     {Py_tp_doc, PY_DOC("Results of a call that come one by one.")},
                                     {0, NULL}};

PyType_Spec py_stream_spec = {.name = "manta._manta.Stream",
                              .basicsize = sizeof(py_stream),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              .slots = stream_slots};

/* ---- watches ---- */

#define TAKEN 64

typedef struct py_watch {
    PyObject head;
    manta_watch *watch;
    uint32_t life;
} py_watch;

static PyObject *watch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    if (!py_ready()) return NULL;
    py_watch *w = (py_watch *)PyType_GenericAlloc(type, 0);
    if (!w) return NULL;
    w->life = py->life;
    manta_status st = manta_watch_new(&w->watch);
    if (!st) return (PyObject *)w;
    w->watch = NULL;
    Py_DECREF(w);
    return py_raise(st, (manta_ref){0});
}

static PyObject *watch_close(PyObject *self, PyObject *unused)
{
    manta_watch *w = ((py_watch *)self)->watch;
    (void)unused;

    ((py_watch *)self)->watch = NULL;
    PyThreadState *left = py_leave();
    manta_watch_free(w);
    py_come_back(left);
    Py_RETURN_NONE;
}

static void watch_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_DECREF(watch_close(self, NULL));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static bool watch_lives(const py_watch *w)
{
    if (w->watch && w->life == py->life) return true;
    PyErr_SetString(PyExc_ValueError, "the watch is closed, or of a runtime that has ended");
    return false;
}

static PyObject *watch_fileno(PyObject *self, PyObject *unused)
{
    const py_watch *w = (const py_watch *)self;
    (void)unused;

    return watch_lives(w) ? PyLong_FromLong(manta_watch_fd(w->watch)) : NULL;
}

static PyObject *watch_add(PyObject *self, PyObject *args)
{
    const py_watch *w = (const py_watch *)self;
    PyObject *o;
    unsigned long long token;
    manta_ref ref;
    manta_status st;

    if (!PyArg_ParseTuple(args, "OK:add", &o, &token) || !watch_lives(w) || !py_ref_of(o, &ref)) return NULL;
    PyThreadState *left = py_leave();
    st = manta_watch_add(w->watch, ref, token);
    py_come_back(left);
    if (st) return py_raise(st, ref);
    Py_RETURN_NONE;
}

static PyObject *watch_take(PyObject *self, PyObject *unused)
{
    const py_watch *w = (const py_watch *)self;
    uint64_t tokens[TAKEN];
    size_t n = TAKEN;
    PyObject *out = PyList_New(0);
    (void)unused;

    while (out && n == TAKEN && w->watch && w->life == py->life) {
        manta_status st = manta_watch_take(w->watch, tokens, TAKEN, &n);
        if (st) break; /* the runtime has ended: there are none */
        for (size_t i = 0; out && i < n; i++) {
            PyObject *x = PyLong_FromUnsignedLongLong(tokens[i]);
            if (!x || PyList_Append(out, x) < 0) Py_CLEAR(out);
            Py_XDECREF(x);
        }
    }
    return out;
}

static PyMethodDef watch_methods[] = {
    {"fileno", watch_fileno, METH_NOARGS,
     "The descriptor, readable while a reference is ready and not taken."},
    {"add", watch_add, METH_VARARGS, "Watches a reference under a number."},
    {"take", watch_take, METH_NOARGS, "The numbers of those that are ready."},
    {"close", watch_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyType_Slot watch_slots[] = {{Py_tp_new, watch_new},
                                    {Py_tp_dealloc, watch_dealloc},
                                    {Py_tp_methods, watch_methods},
                                    {Py_tp_doc, PY_DOC("References in an event loop.")},
                                    {0, NULL}};

PyType_Spec py_watch_spec = {.name = "manta._manta.Watch",
                             .basicsize = sizeof(py_watch),
                             .flags = Py_TPFLAGS_DEFAULT,
                             .slots = watch_slots};
