/* tags.c - small tuples, lists and dictionaries as bytes.
 *
 *     'T'  then one value:
 *     N 1 0            None, True, False
 *     b  i8            a small integer        i  i64          an integer       d  f64      a float
 *     s  u32, bytes    a text                 y  u32, bytes   bytes
 *     (  u32, values   a tuple                [  u32, values  a list           {  u32, pairs
 *     R  u32           reference of that index in the packed value
 *
 * Numbers are little-endian, as everything on one host is. Only objects whose type is exactly
 * one of these are written, a container only once and eight deep at most: anything else
 * goes to pickle as a whole, which keeps identity and knows every type. The reader checks all lengths: an
 * object may come from a worker that was written by somebody else. */
#include "py.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH      8
#define CONTAINERS 32 /* in one value: each is compared with those before it */
#define MOST       (1 << 20) /* bytes; pickle is as good for more */

typedef struct tags {
    py_value *value;
    char *at;
    size_t n, room;
    char few[512];
    PyObject *seen[CONTAINERS];
    int n_seen;
} tags;

/* ---- writing: 1 done, 0 not for tags, -1 an exception ---- */

static bool tags_room(tags *t, size_t n)
{
    if (t->n + n <= t->room) return true;
    if (t->n + n > MOST) return false;
    size_t room = t->room * 2 > t->n + n ? t->room * 2 : (t->n + n) * 2;
    char *at = realloc(t->at == t->few ? NULL : t->at, room);
    if (!at) return false;
    if (t->at == t->few) memcpy(at, t->few, t->n);
    t->at = at;
    t->room = room;
    return true;
}

static int tags_put(tags *t, char tag, const void *bytes, size_t n)
{
    if (!tags_room(t, n + 1)) return 0;
    t->at[t->n] = tag;
    if (n > 0) memcpy(t->at + t->n + 1, bytes, n);
    t->n += n + 1;
    return 1;
}

static int tags_put_sized(tags *t, char tag, const void *bytes, size_t n)
{
    uint32_t size = (uint32_t)n;

    if (n > MOST || !tags_room(t, n + 5)) return 0;
    t->at[t->n] = tag;
    memcpy(t->at + t->n + 1, &size, 4);
    if (n > 0) memcpy(t->at + t->n + 5, bytes, n);
    t->n += n + 5;
    return 1;
}

static int write_value(tags *t, PyObject *o, int depth);

static int write_integer(tags *t, PyObject *o)
{
    int overflow;
    int64_t x = PyLong_AsLongLongAndOverflow(o, &overflow);

    if (overflow) return 0;
    if (x >= -128 && x < 128) return tags_put(t, 'b', &(int8_t){(int8_t)x}, 1);
    return tags_put(t, 'i', &x, 8);
}

static int write_text(tags *t, PyObject *o)
{
    Py_ssize_t n;
    const char *s = PyUnicode_AsUTF8AndSize(o, &n);

    if (s) return tags_put_sized(t, 's', s, (size_t)n);
    PyErr_Clear();
    return 0;
}

static int write_ref(tags *t, PyObject *o)
{
    manta_ref ref;

    if (!py_ref_of(o, &ref)) return -1;
    Py_ssize_t i = py_value_add_ref(t->value, ref);
    return i < 0 ? -1 : tags_put(t, 'R', &(uint32_t){(uint32_t)i}, 4);
}

static int write_items(tags *t, PyObject *o, char tag, int depth)
{
    Py_ssize_t n = tag == '(' ? PyTuple_Size(o) : PyList_Size(o);
    int done = n > MOST ? 0 : tags_put(t, tag, &(uint32_t){(uint32_t)n}, 4);

    for (Py_ssize_t i = 0; done > 0 && i < n; i++)
        done = write_value(t, tag == '(' ? PyTuple_GetItem(o, i) : PyList_GetItem(o, i), depth + 1);
    return done;
}

static int write_pairs(tags *t, PyObject *o, int depth)
{
    Py_ssize_t n = PyDict_Size(o), at = 0;
    PyObject *key, *value;
    int done = n > MOST ? 0 : tags_put(t, '{', &(uint32_t){(uint32_t)n}, 4);

    while (done > 0 && PyDict_Next(o, &at, &key, &value)) {
        done = write_value(t, key, depth + 1);
        if (done > 0) done = write_value(t, value, depth + 1);
    }
    return done;
}

static int write_container(tags *t, PyObject *o, int depth)
{
    PyTypeObject *type = Py_TYPE(o);
    char tag = type == &PyTuple_Type ? '(' : type == &PyList_Type ? '[' : type == &PyDict_Type ? '{' : 0;

    if (!tag || depth > DEPTH || t->n_seen == CONTAINERS) return 0;
    for (int i = 0; i < t->n_seen; i++)
        if (t->seen[i] == o) return 0;
    t->seen[t->n_seen++] = o;
    return tag == '{' ? write_pairs(t, o, depth) : write_items(t, o, tag, depth);
}

static int write_value(tags *t, PyObject *o, int depth)
{
    PyTypeObject *type = Py_TYPE(o);

    if (o == Py_None || type == &PyBool_Type)
        return tags_put(t, o == Py_None ? 'N' : o == Py_True ? '1' : '0', NULL, 0);
    if (type == &PyLong_Type) return write_integer(t, o);
    if (type == &PyFloat_Type) return tags_put(t, 'd', &(double){PyFloat_AsDouble(o)}, 8);
    if (type == &PyUnicode_Type) return write_text(t, o);
    if (type == &PyBytes_Type) return tags_put_sized(t, 'y', PyBytes_AsString(o), (size_t)PyBytes_Size(o));
    if (type == py->ref) return write_ref(t, o);
    return write_container(t, o, depth);
}

int py_tags_write(PyObject *o, py_value *out)
{
    tags t;

    t.value = out;
    t.at = t.few;
    t.room = sizeof t.few;
    t.n_seen = 0;
    t.few[0] = 'T';
    t.n = 1;
    int done = write_value(&t, o, 0);
    if (done > 0 && t.at == t.few) {
        if (!(t.at = malloc(t.n))) done = -1;
        if (t.at) memcpy(t.at, t.few, t.n);
    }
    if (done <= 0) {
        if (t.at != t.few) free(t.at);
        out->packed.n_refs = 0;
        return done;
    }
    out->head = t.at;
    out->packed.head = t.at;
    out->packed.head_size = out->size = t.n;
    return 1;
}

/* ---- reading ---- */

typedef struct reader {
    const char *at, *end;
    const manta_packed *packed;
} reader;

static PyObject *read_broken(void)
{
    PyErr_SetString(PyExc_ValueError,
                    "a value cannot be read: its bytes end early, or are not what they claim to be");
    return NULL;
}

static bool read_bytes(reader *r, void *to, size_t n)
{
    if ((size_t)(r->end - r->at) < n) return false;
    memcpy(to, r->at, n);
    r->at += n;
    return true;
}

static PyObject *read_value(reader *r, int depth);

static PyObject *read_items(reader *r, uint32_t n, bool is_tuple, int depth)
{
    if ((size_t)(r->end - r->at) < n) return read_broken(); /* each has a byte at least */
    PyObject *out = is_tuple ? PyTuple_New(n) : PyList_New(n);

    for (uint32_t i = 0; out && i < n; i++) {
        PyObject *x = read_value(r, depth + 1);
        if (!x)
            Py_CLEAR(out);
        else if (is_tuple)
            PyTuple_SetItem(out, i, x);
        else
            PyList_SetItem(out, i, x);
    }
    return out;
}

static PyObject *read_pairs(reader *r, uint32_t n, int depth)
{
    PyObject *out = PyDict_New();

    for (uint32_t i = 0; out && i < n; i++) {
        PyObject *key = read_value(r, depth + 1), *value = key ? read_value(r, depth + 1) : NULL;
        if (!value || PyDict_SetItem(out, key, value) < 0) Py_CLEAR(out);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return out;
}

static PyObject *read_ref(const reader *r, uint32_t i)
{
    if (i >= r->packed->n_refs) return read_broken();
    manta_ref ref = r->packed->refs[i];
    if (manta_retain(ref)) return py_raise(MANTA_EINVAL, (manta_ref){0});
    return py_ref_take(ref);
}

static PyObject *read_sized(reader *r, char tag, int depth)
{
    uint32_t n;

    if (!read_bytes(r, &n, 4)) return read_broken();
    if (tag == '(' || tag == '[') return read_items(r, n, tag == '(', depth);
    if (tag == '{') return read_pairs(r, n, depth);
    if (tag == 'R') return read_ref(r, n);
    if ((size_t)(r->end - r->at) < n) return read_broken();
    const char *at = r->at;
    r->at += n;
    return tag == 's' ? PyUnicode_DecodeUTF8(at, n, NULL) : PyBytes_FromStringAndSize(at, n);
}

static PyObject *read_value(reader *r, int depth)
{
    int8_t small;
    int64_t i;
    double d;

    if (r->at == r->end || depth > DEPTH + 1) return read_broken();
    char tag = *r->at++;
    switch (tag) {
    case 'N': Py_RETURN_NONE;
    case '1': Py_RETURN_TRUE;
    case '0': Py_RETURN_FALSE;
    case 'b': return read_bytes(r, &small, 1) ? PyLong_FromLong(small) : read_broken();
    case 'i': return read_bytes(r, &i, 8) ? PyLong_FromLongLong(i) : read_broken();
    case 'd': return read_bytes(r, &d, 8) ? PyFloat_FromDouble(d) : read_broken();
    case 's':
    case 'y':
    case '(':
    case '[':
    case '{':
    case 'R': return read_sized(r, tag, depth);
    default: return read_broken();
    }
}

PyObject *py_tags_read(const char *at, size_t n, const manta_packed *p)
{
    reader r = {at, at + n, p};
    PyObject *out = read_value(&r, 0);

    if (out && r.at != r.end) {
        Py_DECREF(out);
        return read_broken();
    }
    return out;
}
