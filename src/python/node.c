/* node.c - start and end of the runtime, code by key, and where one is.
 *
 *     init()       life = a number that no runtime of this process had before
 *     shutdown()   life = 0; whoever comes now is refused; then it is waited until nobody is in the
 *                  runtime any more (py_empty_runtime()), without the interpreter; then it ends
 *     a fork by the program: life = 0 in the child, which has no part in the node
 *
 * Every reference, handle and stream knows in which life it was made, and is inert in another one:
 * it names nothing, and gives nothing back. What views still show of objects survives shutdown():
 * its bytes move to memory of this process, at the same addresses (py_blocks_save()).
 *
 * Code by key is how functions and classes travel: their bytes are put once under a sum of
 * themselves, and a worker asks for a key that it has not met. */
#include "py.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/context.h>

/* ---- options of a node ---- */

typedef struct node_field {
    const char *name;
    char kind; /* i int, u u64, s text, b bool */
    size_t at;
} node_field;

#define NODE_FIELD(name, kind)                                                                               \
    {                                                                                                        \
#name, kind, offsetof(manta_node_options, name)                                                      \
    }

static const node_field node_fields[] = {
    NODE_FIELD(num_cpus, 'i'),       NODE_FIELD(num_gpus, 'i'),       NODE_FIELD(memory, 'u'),
    NODE_FIELD(worker_memory, 'u'),  NODE_FIELD(memory_floor, 'u'),   NODE_FIELD(resources, 's'),
    NODE_FIELD(name_space, 's'),     NODE_FIELD(store_memory, 'u'),   NODE_FIELD(spill_folder, 's'),
    NODE_FIELD(spill_limit, 'u'),    NODE_FIELD(lineage_memory, 'u'), NODE_FIELD(log_level, 's'),
    NODE_FIELD(in_process, 'b'),     NODE_FIELD(address, 's'),        NODE_FIELD(plain_output, 'b'),
    NODE_FIELD(memory_is_free, 'b'),
};

static bool set_node_field(const char *name, PyObject *value, manta_node_options *o)
{
    for (size_t i = 0; i < sizeof node_fields / sizeof node_fields[0]; i++) {
        const node_field *f = &node_fields[i];
        void *at = (char *)o + f->at;
        if (strcmp(f->name, name) != 0) continue;
        if (f->kind == 'i') *(int *)at = (int)PyLong_AsLong(value);
        if (f->kind == 'u') *(uint64_t *)at = PyLong_AsUnsignedLongLong(value);
        if (f->kind == 'b') *(bool *)at = PyObject_IsTrue(value) == 1;
        if (f->kind == 's') *(const char **)at = py_text_of(name, value);
        return !PyErr_Occurred();
    }
    PyErr_Format(PyExc_ValueError, "init() has no option %s", name);
    return false;
}

const char **py_argv_of(PyObject *list)
{
    Py_ssize_t n = PyList_Size(list);
    const char **argv = n < 0 ? NULL : calloc((size_t)n + 1, sizeof *argv);

    for (Py_ssize_t i = 0; argv && i < n; i++) {
        argv[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        if (argv[i]) continue;
        free(argv);
        return NULL;
    }
    return argv;
}

static bool node_options_of(PyObject *mapping, manta_node_options *o, const char ***argv)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(mapping, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        if (!name) return false;
        if (strcmp(name, "nursery") == 0) {
            if (!(*argv = py_argv_of(value))) return false;
            o->nursery = *argv;
        } else if (!set_node_field(name, value, o)) {
            return false;
        }
    }
    return true;
}

/* ---- start and end ---- */

/* Nothing of the parent's is ours: all references are inert, and whoever held a lock is not here. */
static void forked_by_program(void)
{
    py->life = 0;
    py_drops_forget();
}

void py_mind_forks(void)
{
    static bool minded;

    if (!minded) (void)pthread_atfork(NULL, NULL, forked_by_program);
    minded = true;
}

PyObject *py_init(PyObject *self, PyObject *mapping)
{
    manta_node_options o = {0};
    const char **argv = NULL;
    manta_status st;
    (void)self;

    if (!PyDict_Check(mapping)) return PyErr_Format(PyExc_TypeError, "init() takes a dict");
    if (!node_options_of(mapping, &o, &argv)) {
        free(argv);
        return NULL;
    }
    py->pid = getpid();
    py_set_runtime_hooks();
    py_mind_forks();
    PyThreadState *left = PyEval_SaveThread();
    st = manta_init(NULL, NULL, &o);
    PyEval_RestoreThread(left);
    free(argv);
    if (st) return py_raise(st, (manta_ref){0});
    py_drops_stop();
    py->life = ++py->lives;
    py->in_process = o.in_process;
    py_drops_go_on();
    Py_RETURN_NONE;
}

/* Without the interpreter: nobody is in the runtime any more, and nobody comes. */
static void empty_runtime(bool at_exit)
{
    PyThreadState *left = PyEval_SaveThread();

    py_empty_runtime(at_exit);
    py_drops_stop();
    PyEval_RestoreThread(left);
}

/* shutdown(at_exit) */
PyObject *py_shutdown(PyObject *self, PyObject *at_exit)
{
    bool exits = PyObject_IsTrue(at_exit) == 1;
    (void)self;

    if (!py->life || py->is_worker) Py_RETURN_NONE;
    py->life = 0; /* whoever comes now is refused */
    empty_runtime(exits);
    void *saved = py_blocks_save();
    PyThreadState *left = PyEval_SaveThread();
    manta_shutdown();
    PyEval_RestoreThread(left);
    py_blocks_restore(saved);
    py_drops_go_on();
    PyDict_Clear(py->functions);
    Py_RETURN_NONE;
}

PyObject *py_is_initialized(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(py->life != 0);
}

/* ---- code by key ---- */

PyObject *py_code_put(PyObject *self, PyObject *args)
{
    const char *key, *bytes;
    Py_ssize_t n_key, n;
    manta_status st;
    (void)self;

    if (!PyArg_ParseTuple(args, "y#y#:code_put", &key, &n_key, &bytes, &n)) return NULL;
    if (n_key != MANTA_CODE_KEY) return PyErr_Format(PyExc_ValueError, "a key has %d bytes", MANTA_CODE_KEY);
    if (!py_still_runs()) return NULL;
    PyThreadState *left = py_leave();
    st = manta_code_put(key, bytes, (size_t)n);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_NONE;
}

PyObject *py_code_get(PyObject *self, PyObject *o)
{
    const void *at;
    char *key;
    Py_ssize_t n_key;
    size_t n;
    manta_status st;
    (void)self;

    if (PyBytes_AsStringAndSize(o, &key, &n_key) < 0) return NULL;
    if (n_key != MANTA_CODE_KEY) return PyErr_Format(PyExc_ValueError, "a key has %d bytes", MANTA_CODE_KEY);
    if (!py_still_runs()) return NULL;
    PyThreadState *left = py_leave();
    st = manta_code_get(key, &at, &n);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    return PyBytes_FromStringAndSize(at, (Py_ssize_t)n);
}

/* ---- where one is ---- */

static PyObject *resource_dict(const manta_node_info *i, bool available)
{
    PyObject *out = PyDict_New();

    for (int k = 0; out && k < i->n_resources; k++) {
        const manta_resource *r = &i->resources[k];
        PyObject *x = PyFloat_FromDouble(available ? r->available : r->total);
        if (!x || PyDict_SetItemString(out, r->name, x) < 0) Py_CLEAR(out);
        Py_XDECREF(x);
    }
    return out;
}

static PyObject *pid_list(const int *pids, int n)
{
    PyObject *out = PyList_New(n);

    for (int i = 0; out && i < n; i++) PyList_SetItem(out, i, PyLong_FromLong(pids[i]));
    return out;
}

PyObject *py_node_info(PyObject *self, PyObject *unused)
{
    manta_node_info i;
    manta_status st;
    (void)self;
    (void)unused;

    if (!py_ready()) return NULL;
    PyThreadState *left = py_leave();
    st = manta_node_get(&i);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    return Py_BuildValue(
        "{s:K,s:N,s:N,s:i,s:i,s:i,s:d,s:d,s:d,s:d,s:i,s:i,s:i,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N}", "node",
        (unsigned long long)i.node, "total", resource_dict(&i, false), "available", resource_dict(&i, true),
        "daemon_pid", i.daemon_pid, "keeper_pid", i.keeper_pid, "zygote_pid", i.zygote_pid, "cpus", i.cpus,
        "free_cpus", i.free_cpus, "gpus", i.gpus, "free_gpus", i.free_gpus, "workers", i.workers, "actors",
        i.actors, "leases", i.leases, "objects", (unsigned long long)i.objects, "store_limit",
        (unsigned long long)i.store_limit, "store_used", (unsigned long long)i.store_used, "spill_used",
        (unsigned long long)i.spill_used, "spill_written", (unsigned long long)i.spill_written, "spill_read",
        (unsigned long long)i.spill_read, "tasks_done", (unsigned long long)i.tasks_done, "worker_pids",
        pid_list(i.worker_pids, i.n_worker_pids < 64 ? i.n_worker_pids : 64));
}

/* context([deferred]): of the call that runs on this thread, or of one that was deferred. */
PyObject *py_context(PyObject *self, PyObject *args)
{
    PyObject *deferred = Py_None;
    manta_task *t = py_task();
    const char *name;
    manta_context c;
    manta_status st;
    (void)self;

    if (!PyArg_ParseTuple(args, "|O:context", &deferred) || !py_ready()) return NULL;
    if (deferred != Py_None && !py_deferred_of(deferred, &t, &name)) return NULL;
    PyThreadState *left = py_leave();
    st = manta_context_get(t, &c);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    return Py_BuildValue("{s:K,s:I,s:i,s:N,s:N,s:K,s:s,s:s,s:i,s:N,s:d,s:d,s:K,s:s,s:N,s:K,s:i,s:K,s:s,s:N}",
                         "node", (unsigned long long)c.node, "worker", c.worker, "pid", c.pid, "is_worker",
                         PyBool_FromLong(c.is_worker), "in_process", PyBool_FromLong(c.in_process), "task",
                         (unsigned long long)c.task, "function", c.function, "name", c.name, "attempt",
                         c.attempt, "is_cancelled", PyBool_FromLong(c.is_cancelled), "cpus", c.cpus, "gpus",
                         c.gpus, "memory", (unsigned long long)c.memory, "resources", c.resources, "gpu_ids",
                         pid_list(c.gpu_ids, c.n_gpu_ids), "placement_group",
                         (unsigned long long)c.placement_group.id, "bundle", c.bundle, "actor",
                         (unsigned long long)c.actor.id, "actor_name", c.actor_name, "was_restarted",
                         PyBool_FromLong(c.was_restarted));
}
