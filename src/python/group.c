/* group.c - placement groups, by number; PlacementGroup in Python gives them a name. */
#include "py.h"

#include <string.h>

static bool bundle_of(PyObject *mapping, manta_bundle *out)
{
    double cpus = 0, gpus = 0;
    unsigned long long memory = 0;
    const char *resources = NULL;

    if (!PyArg_ParseTuple(mapping, "ddKz:bundle", &cpus, &gpus, &memory, &resources)) return false;
    *out = (manta_bundle){.num_cpus = cpus, .num_gpus = gpus, .memory = memory, .resources = resources};
    return true;
}

/* group_new(list of (cpus, gpus, memory, resources), strategy, name) */
PyObject *py_group_new(PyObject *self, PyObject *args)
{
    manta_bundle bundles[MANTA_PLACEMENT_GROUP_BUNDLES];
    manta_placement_group group;
    manta_status st;
    PyObject *list;
    const char *name;
    int how;
    (void)self;

    if (!PyArg_ParseTuple(args, "O!iz:group_new", &PyList_Type, &list, &how, &name) || !py_ready())
        return NULL;
    Py_ssize_t n = PyList_Size(list);
    if (n > MANTA_PLACEMENT_GROUP_BUNDLES)
        return PyErr_Format(PyExc_ValueError, "a placement group has %zd bundles, at most %d are possible", n,
                            MANTA_PLACEMENT_GROUP_BUNDLES);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!bundle_of(PyList_GetItem(list, i), &bundles[i])) return NULL;
    PyThreadState *left = py_leave();
    st = manta_placement_group_new(bundles, (int)n, (manta_placement)how, name, &group);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    return PyLong_FromUnsignedLongLong(group.id);
}

/* group_most(): how many bundles a group may have */
PyObject *py_group_most(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(MANTA_PLACEMENT_GROUP_BUNDLES);
}

static bool group_of(PyObject *o, manta_placement_group *out)
{
    out->id = PyLong_AsUnsignedLongLong(o);
    return !PyErr_Occurred() && py_ready();
}

PyObject *py_group_ready(PyObject *self, PyObject *o)
{
    manta_placement_group group;
    (void)self;

    return group_of(o, &group) ? py_ref_take(manta_placement_group_ready(group)) : NULL;
}

static manta_status wait_for_group(void *ctx, int64_t timeout_ms)
{
    return manta_placement_group_wait(*(const manta_placement_group *)ctx, timeout_ms);
}

PyObject *py_group_wait(PyObject *self, PyObject *args)
{
    PyObject *o, *timeout;
    manta_placement_group group;
    int64_t ms;
    (void)self;

    if (!PyArg_ParseTuple(args, "OO:group_wait", &o, &timeout) || !group_of(o, &group) ||
        !py_timeout(timeout, &ms))
        return NULL;
    manta_status st = py_wait(wait_for_group, &group, ms);
    if (st == MANTA_ETIMEDOUT) Py_RETURN_FALSE;
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_TRUE;
}

PyObject *py_group_remove(PyObject *self, PyObject *o)
{
    manta_placement_group group;
    (void)self;

    if (!group_of(o, &group)) return NULL;
    PyThreadState *left = py_leave();
    manta_placement_group_remove(group);
    py_come_back(left);
    Py_RETURN_NONE;
}

PyObject *py_group_find(PyObject *self, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    manta_placement_group group;
    manta_status st;
    (void)self;

    if (!text || !py_ready()) return NULL;
    PyThreadState *left = py_leave();
    st = manta_placement_group_find(text, &group);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    return PyLong_FromUnsignedLongLong(group.id);
}

PyObject *py_group_get(PyObject *self, PyObject *o)
{
    manta_placement_group group;
    manta_placement_group_info info;
    manta_status st;
    (void)self;

    if (!group_of(o, &group)) return NULL;
    PyThreadState *left = py_leave();
    st = manta_placement_group_get(group, &info);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    PyObject *bundles = PyList_New(info.n_bundles);
    for (int i = 0; bundles && i < info.n_bundles; i++)
        PyList_SetItem(bundles, i, PyUnicode_FromString(info.bundles[i]));
    return Py_BuildValue("{s:s,s:s,s:N,s:N}", "name", info.name, "strategy", info.how_name, "removed",
                         PyBool_FromLong(info.removed), "bundles", bundles);
}
