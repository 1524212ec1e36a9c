/* A picture of the node as a dictionary of lists, for whoever looks at what there is. */
#include "py.h"

#include <stdio.h>

#include <manta/context.h>
#include <manta/node.h>

enum { MOST_OBJECTS = 10000 };

static const char *state_name(manta_view_state s)
{
    switch (s) {
    case MANTA_VIEW_STATE_WAITING: return "waiting";
    case MANTA_VIEW_STATE_STARTING: return "starting";
    case MANTA_VIEW_STATE_ALIVE: return "alive";
    case MANTA_VIEW_STATE_DEAD: return "dead";
    }
    return "unknown";
}

static PyObject *job_dict(const manta_view *v, size_t i)
{
    const manta_view_job *j = &v->jobs[i];

    return Py_BuildValue("{s:I,s:i,s:s}", "id", j->id, "driver_pid", j->driver_pid, "name_space",
                         j->name_space);
}

static PyObject *worker_dict(const manta_view *v, size_t i)
{
    const manta_view_worker *w = &v->worker[i];

    return Py_BuildValue("{s:I,s:I,s:i,s:i,s:N,s:K,s:K,s:K,s:L,s:s}", "id", w->id, "job", w->job, "pid",
                         w->pid, "caller_pid", w->caller_pid, "is_dead", PyBool_FromLong(w->is_dead), "actor",
                         (unsigned long long)w->actor, "calls", (unsigned long long)w->calls, "task",
                         (unsigned long long)w->task, "since_ns", (long long)w->since_ns, "function",
                         w->function);
}

static PyObject *actor_dict(const manta_view *v, size_t i)
{
    const manta_view_actor *a = &v->actors[i];

    return Py_BuildValue("{s:K,s:I,s:i,s:s,s:N,s:i,s:s,s:s,s:s}", "id", (unsigned long long)a->id, "job",
                         a->job, "pid", a->pid, "state", state_name(a->state), "detached",
                         PyBool_FromLong(a->detached), "restarts", a->restarts, "name", a->name, "name_space",
                         a->name_space, "constructor", a->constructor);
}

static PyObject *object_dict(const manta_view *v, size_t i)
{
    const manta_view_object *o = &v->objects[i];

    return Py_BuildValue("{s:K,s:K,s:i,s:L,s:s,s:N}", "id", (unsigned long long)o->id, "size",
                         (unsigned long long)o->size, "owner_pid", o->owner_pid, "holders",
                         (long long)o->holders, "state", state_name(o->state), "in_memory",
                         PyBool_FromLong(o->in_memory));
}

static PyObject *call_dict(const manta_view *v, size_t i)
{
    const manta_view_call *c = &v->calls[i];

    return Py_BuildValue("{s:i,s:I,s:K,s:L,s:L,s:N,s:s}", "pid", c->pid, "job", c->job, "task",
                         (unsigned long long)c->task, "begin_ns", (long long)c->begin_ns, "end_ns",
                         (long long)c->end_ns, "failed", PyBool_FromLong(c->failed), "function", c->function);
}

/* Puts the list of n rows under `name`; false with an exception. */
static bool add_rows(PyObject *out, const char *name, const manta_view *v, size_t n,
                     PyObject *row(const manta_view *v, size_t i))
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    bool ok = list != NULL;

    for (size_t i = 0; ok && i < n; i++) {
        PyObject *o = row(v, i);
        ok = o && PyList_SetItem(list, (Py_ssize_t)i, o) == 0;
    }
    ok = ok && PyDict_SetItemString(out, name, list) == 0;
    Py_XDECREF(list);
    return ok;
}

static PyObject *view_dict(const manta_view *v)
{
    PyObject *out = Py_BuildValue("{s:L,s:L,s:K}", "started_ns", (long long)v->started_ns, "now_ns",
                                  (long long)v->now_ns, "waiting", (unsigned long long)v->waiting);

    if (out && add_rows(out, "jobs", v, v->n_jobs, job_dict) &&
        add_rows(out, "workers", v, v->n_workers, worker_dict) &&
        add_rows(out, "actors", v, v->n_actors, actor_dict) &&
        add_rows(out, "objects", v, v->n_objects, object_dict) &&
        add_rows(out, "calls", v, v->n_calls, call_dict))
        return out;
    Py_XDECREF(out);
    return NULL;
}

/* *out stays NULL where the node is in this process: nothing is beside the program then. */
static manta_status take_view(manta_view **out)
{
    manta_node_info info;
    manta_status st = manta_node_get(&info);

    if (st || !info.daemon_pid) return st;
    if (!info.path[0]) snprintf(info.path, sizeof info.path, "%d", info.daemon_pid); /* its socket failed */
    return manta_view_take(info.path,
                           MANTA_VIEW_WORKERS | MANTA_VIEW_ACTORS | MANTA_VIEW_OBJECTS | MANTA_VIEW_CALLS,
                           MOST_OBJECTS, out);
}

PyObject *py_view(PyObject *self, PyObject *unused)
{
    static const manta_view nothing;
    manta_view *v = NULL;
    manta_status st;
    PyObject *out;
    (void)self;
    (void)unused;

    if (!py_ready()) return NULL;
    PyThreadState *left = py_leave();
    st = take_view(&v);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    out = view_dict(v ? v : &nothing);
    manta_view_free(v);
    return out;
}
