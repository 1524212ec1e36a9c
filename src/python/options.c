/* options.c - keywords as manta_task_options. python/manta/_options.py has checked and named
 * them after the fields of the struct; here they become numbers and texts. */
#include "py.h"

#include <stddef.h>
#include <string.h>

typedef enum field_kind {
    FIELD_DOUBLE,
    FIELD_U64,
    FIELD_INT,
    FIELD_U32,
    FIELD_BOOL,
    FIELD_TEXT,
    FIELD_GROUP,
    FIELD_STRATEGY
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t at;
} field;

#define FIELD(name, kind)                                                                                    \
    {                                                                                                        \
#name, kind, offsetof(manta_task_options, name)                                                      \
    }

static const field fields[] = {
    FIELD(num_cpus, FIELD_DOUBLE),
    FIELD(num_gpus, FIELD_DOUBLE),
    FIELD(memory, FIELD_U64),
    FIELD(resources, FIELD_TEXT),
    FIELD(max_retries, FIELD_INT),
    FIELD(retry_errors, FIELD_BOOL),
    FIELD(retry_on, FIELD_U32),
    FIELD(strategy, FIELD_STRATEGY),
    FIELD(node, FIELD_U64),
    FIELD(placement_group, FIELD_GROUP),
    FIELD(bundle, FIELD_INT),
    FIELD(name, FIELD_TEXT),
    FIELD(detached, FIELD_BOOL),
    FIELD(get_if_exists, FIELD_BOOL),
    FIELD(max_restarts, FIELD_INT),
    FIELD(max_task_retries, FIELD_INT),
    FIELD(max_concurrency, FIELD_INT),
    FIELD(max_pending_calls, FIELD_INT),
    FIELD(concurrency_groups, FIELD_TEXT),
    FIELD(method_groups, FIELD_TEXT),
    FIELD(concurrency_group, FIELD_TEXT),
    FIELD(name_space, FIELD_TEXT),
    FIELD(fail_away, FIELD_BOOL),
    FIELD(environment, FIELD_TEXT),
    FIELD(stream_window, FIELD_INT),
    FIELD(max_calls, FIELD_INT),
    FIELD(wait_infeasible, FIELD_BOOL),
    FIELD(place_cpus, FIELD_DOUBLE),
    FIELD(out_of_order, FIELD_BOOL),
    FIELD(with_maker, FIELD_BOOL),
};

static const field *field_named(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!strcmp(fields[i].name, name)) return &fields[i];
    return NULL;
}

const char *py_text_of(const char *option, PyObject *value)
{
    Py_ssize_t n = 0;
    const char *text = PyUnicode_AsUTF8AndSize(value, &n);

    if (!text || strlen(text) == (size_t)n) return text;
    PyErr_Format(PyExc_ValueError, "%s is %R, expected a text without a NUL", option, value);
    return NULL;
}

static bool set_field(const field *f, PyObject *value, manta_task_options *o)
{
    void *at = (char *)o + f->at;

    switch (f->kind) {
    case FIELD_DOUBLE: *(double *)at = PyFloat_AsDouble(value); break;
    case FIELD_U64: *(uint64_t *)at = PyLong_AsUnsignedLongLong(value); break;
    case FIELD_INT: *(int *)at = (int)PyLong_AsLong(value); break;
    case FIELD_U32: *(uint32_t *)at = (uint32_t)PyLong_AsUnsignedLong(value); break;
    case FIELD_BOOL: *(bool *)at = PyObject_IsTrue(value) == 1; break;
    case FIELD_TEXT: *(const char **)at = py_text_of(f->name, value); break;
    case FIELD_GROUP: ((manta_placement_group *)at)->id = PyLong_AsUnsignedLongLong(value); break;
    case FIELD_STRATEGY: *(manta_call_strategy *)at = (manta_call_strategy)PyLong_AsLong(value); break;
    default: break;
    }
    return !PyErr_Occurred();
}

bool py_options_fill(PyObject *mapping, py_options *out)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    *out = (py_options){0};
    if (mapping == Py_None) return true;
    if (!PyDict_Check(mapping)) {
        PyErr_Format(PyExc_TypeError, "options are a dict, given %R", Py_TYPE(mapping));
        return false;
    }
    if (!(out->keep = PyDict_Copy(mapping))) return false;
    while (PyDict_Next(out->keep, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        const field *f = name ? field_named(name) : NULL;
        if (!name) return false;
        if (!f) {
            PyErr_Format(PyExc_ValueError, "there is no option %R", key);
            return false;
        }
        if (!set_field(f, value, &out->o)) return false;
    }
    return true;
}

void py_options_release(py_options *o)
{
    Py_CLEAR(o->keep);
}
