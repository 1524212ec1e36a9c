/* block.c - Block: bytes of an object, for whoever reads buffers (memoryview, numpy, pickle).
 *
 * A block either has its own copy of the bytes, or holds and pins the object in whose memory they lie
 * (manta_retain(), manta_pin()), so that a view can never outlive them. One thing takes the memory away from
 * under it: the end of the runtime, which unmaps the store. The bytes of all blocks that still live then
 * are copied before it and put back at the same addresses after it (py_blocks_save()). */
#include "py.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGN 64

static py_block *held; /* those that hold a reference */

static py_block *block_new(size_t n)
{
    py_block *b = PyObject_New(py_block, py->block);

    if (!b) return NULL;
    b->at = NULL;
    b->n = (Py_ssize_t)n;
    b->ref.id = 0;
    b->life = 0;
    b->own = NULL;
    b->writable = false;
    b->next = b->before = NULL;
    return b;
}

PyObject *py_block_of(manta_ref ref, const void *at, size_t n)
{
    py_block *b;

    if (manta_retain(ref)) return py_raise(MANTA_EINVAL, (manta_ref){0});
    manta_status st = manta_pin(ref);
    if (st || !(b = block_new(n))) {
        py_drop_later(st ? PY_DROP_REF : PY_DROP_VIEW, ref.id, py->life);
        return st ? py_raise(st, (manta_ref){0}) : NULL;
    }
    b->at = (void *)(uintptr_t)at;
    b->ref = ref;
    b->life = py->life;
    b->next = held;
    if (held) held->before = b;
    held = b;
    return (PyObject *)b;
}

PyObject *py_block_copy(const void *at, size_t n, bool writable)
{
    py_block *b = block_new(n);

    if (!b) return NULL;
    b->own = aligned_alloc(ALIGN, (n + ALIGN) / ALIGN * ALIGN);
    if (!b->own) {
        Py_DECREF(b);
        return PyErr_NoMemory();
    }
    if (n > PY_QUICK) {
        PyThreadState *left = PyEval_SaveThread();
        memcpy(b->own, at, n);
        PyEval_RestoreThread(left);
    } else if (n > 0) {
        memcpy(b->own, at, n);
    }
    b->at = b->own;
    b->writable = writable;
    return (PyObject *)b;
}

PyObject *py_block_own(PyObject *self, PyObject *o)
{
    Py_buffer b;
    PyObject *out;
    (void)self;

    if (PyObject_GetBuffer(o, &b, PyBUF_SIMPLE) < 0) return NULL;
    if (b.readonly) {
        out = py_block_copy(b.buf, (size_t)b.len, true);
    } else {
        Py_INCREF(o);
        out = o;
    }
    PyBuffer_Release(&b);
    return out;
}

static void block_unlink(py_block *b)
{
    if (b->before)
        b->before->next = b->next;
    else if (held == b)
        held = b->next;
    if (b->next) b->next->before = b->before;
    b->next = b->before = NULL;
}

static void block_dealloc(PyObject *self)
{
    py_block *b = (py_block *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (b->ref.id) {
        block_unlink(b);
        py_drop_later(PY_DROP_VIEW, b->ref.id, b->life);
    }
    free(b->own);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int block_buffer(PyObject *self, Py_buffer *view, int flags)
{
    py_block *b = (py_block *)self;
    static char nothing[1];

    return PyBuffer_FillInfo(view, self, b->n ? b->at : nothing, b->n, !b->writable, flags);
}

static Py_ssize_t block_length(PyObject *self)
{
    return ((py_block *)self)->n;
}

/* ---- the end of the runtime ---- */

typedef struct saved_pages {
    char *at; /* where they were */
    size_t n;
    char *bytes;
    struct saved_pages *next;
} saved_pages;

static void save_pages(char *from, size_t n, saved_pages **all)
{
    saved_pages *s = malloc(sizeof *s);

    if (!s) abort();
    s->at = from;
    s->n = n;
    s->bytes = malloc(n);
    if (!s->bytes) abort(); /* a view would read memory of somebody else */
    memcpy(s->bytes, from, n);
    s->next = *all;
    *all = s;
}

/* Whether the pages are saved already; blocks share the pages at their ends. */
static bool is_saved(const saved_pages *all, const char *page)
{
    for (; all; all = all->next)
        if (page >= all->at && page < all->at + all->n) return true;
    return false;
}

void *py_blocks_save(void)
{
    saved_pages *all = NULL;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (py_block *b = held; b; b = b->next) {
        uintptr_t from = (uintptr_t)b->at / page * page,
                  to = ((uintptr_t)b->at + (size_t)b->n + page - 1) / page * page;
        while (from < to && is_saved(all, (char *)from)) from += page;
        while (from < to && is_saved(all, (char *)to - 1)) to -= page;
        if (from < to) save_pages((char *)from, to - from, &all);
        if (!b->next) break;
    }
    return all;
}

void py_blocks_restore(void *saved)
{
    saved_pages *s = saved;

    while (s) {
        saved_pages *next = s->next;
        void *at = mmap(s->at, s->n, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (at != s->at) abort(); /* somebody took the addresses: a view would read memory of theirs */
        memcpy(at, s->bytes, s->n);
        free(s->bytes);
        free(s);
        s = next;
    }
    for (py_block *b = held, *next; b; b = next) { /* from now on they hold nothing */
        next = b->next;
        b->ref.id = 0;
        b->next = b->before = NULL;
    }
    held = NULL;
}

static PyType_Slot block_slots[] = {{Py_tp_dealloc, block_dealloc},
                                    {Py_bf_getbuffer, block_buffer},
                                    {Py_sq_length, block_length},
                                    {Py_tp_doc, PY_DOC("Bytes of an object, by the buffer protocol.")},
                                    {0, NULL}};

PyType_Spec py_block_spec = {.name = "manta._manta.Block",
                             .basicsize = sizeof(py_block),
                             .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             .slots = block_slots};
