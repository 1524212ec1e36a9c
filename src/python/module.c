/* module.c - the module: its state, its types and its functions. Everything is made in the second
 * phase and hangs on the module's state, which lasts as long as the process: references and threads of
 * the runtime may be there until its very end. */
#include "model.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

py_state *py;

static const char *const hook_names[PY_HOOK_COUNT] = {
    "dump",   "load",      "function", "failed", "error",  "prepare", "await_ref", "future",
    "start",  "coroutine", "reduce",   "end",    "method", "items",   "limit",     "cancel",
    "looped", "leave",     "stream",   "how",    "loose",  "printed", "grant",     "apart"};

static PyObject *set_hooks(PyObject *self, PyObject *mapping)
{
    (void)self;
    if (!PyDict_Check(mapping)) return PyErr_Format(PyExc_TypeError, "set_hooks() takes a dict");
    for (int i = 0; i < PY_HOOK_COUNT; i++) {
        PyObject *f = PyDict_GetItemString(mapping, hook_names[i]);
        if (!f) continue;
        Py_INCREF(f);
        py_replace(&py->hooks[i], f);
    }
    Py_RETURN_NONE;
}

static PyObject *is_worker(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(py->is_worker);
}

static PyObject *current_life(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromUnsignedLong(py->life);
}

#define FAST(f) (PyCFunction)(void (*)(void))(f)

static PyMethodDef functions[] = {{"init", py_init, METH_O, NULL},
                                  {"shutdown", py_shutdown, METH_O, NULL},
                                  {"is_initialized", py_is_initialized, METH_NOARGS, NULL},
                                  {"life", current_life, METH_NOARGS, NULL},
                                  {"is_worker", is_worker, METH_NOARGS, NULL},
                                  {"set_hooks", set_hooks, METH_O, NULL},
                                  {"put", py_put, METH_O, NULL},
                                  {"get", FAST(py_get), METH_FASTCALL, NULL},
                                  {"wait", FAST(py_wait_for), METH_FASTCALL, NULL},
                                  {"cancel", FAST(py_cancel), METH_FASTCALL, NULL},
                                  {"failure", py_failure, METH_O, NULL},
                                  {"own", py_block_own, METH_O, NULL},
                                  {"ref_index", py_ref_index, METH_O, NULL},
                                  {"actor_index", py_actor_index, METH_O, NULL},
                                  {"ref_at", py_ref_at, METH_O, NULL},
                                  {"actor_at", FAST(py_actor_at), METH_FASTCALL, NULL},
                                  {"actor_start", py_actor_start, METH_VARARGS, NULL},
                                  {"actor_find", py_actor_find, METH_VARARGS, NULL},
                                  {"is_actor", py_is_actor, METH_NOARGS, NULL},
                                  {"actor_here", py_actor_here, METH_O, NULL},
                                  {"exit_actor", py_exit_actor, METH_O, NULL},
                                  {"context", py_context, METH_VARARGS, NULL},
                                  {"node_info", py_node_info, METH_NOARGS, NULL},
                                  {"view", py_view, METH_NOARGS, NULL},
                                  {"set_title_prefix", py_set_title_prefix, METH_O, NULL},
                                  {"set_calm_methods", py_set_calm_methods, METH_O, NULL},
                                  {"set_cancel_keeps", py_set_cancel_keeps, METH_O, NULL},
                                  {"stack_prepare", py_stack_prepare, METH_NOARGS, NULL},
                                  {"stack_begin", py_stack_begin, METH_NOARGS, NULL},
                                  {"show_prints", py_show_prints, METH_O, NULL},
                                  {"is_cancelled", py_is_cancelled, METH_NOARGS, NULL},
                                  {"run_apart", py_run_apart, METH_O, NULL},
                                  {"promise", py_promise, METH_NOARGS, NULL},
                                  {"promise_settle", py_promise_settle, METH_VARARGS, NULL},
                                  {"promise_break", py_promise_break, METH_VARARGS, NULL},
                                  {"finish", py_finish, METH_VARARGS, NULL},
                                  {"yield_item", py_yield_item, METH_VARARGS, NULL},
                                  {"yield_room", py_yield_room, METH_VARARGS, NULL},
                                  {"yield_taken", py_yield_taken, METH_O, NULL},
                                  {"ring_bell", py_ring_bell, METH_O, NULL},
                                  {"nursery_run", py_nursery_run, METH_NOARGS, NULL},
                                  {"nursery_warm", py_nursery_warm, METH_O, NULL},
                                  {"code_put", py_code_put, METH_VARARGS, NULL},
                                  {"code_get", py_code_get, METH_O, NULL},
                                  {"group_new", py_group_new, METH_VARARGS, NULL},
                                  {"group_most", py_group_most, METH_NOARGS, NULL},
                                  {"group_ready", py_group_ready, METH_O, NULL},
                                  {"group_wait", py_group_wait, METH_VARARGS, NULL},
                                  {"group_remove", py_group_remove, METH_O, NULL},
                                  {"group_find", py_group_find, METH_O, NULL},
                                  {"group_get", py_group_get, METH_O, NULL},
                                  {"run_storage", py_run_storage, METH_NOARGS, NULL},
                                  {"run_config", py_run_config, METH_O, NULL},
                                  {"layer_classes", py_layer_classes, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static bool add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out && PyModule_AddType(module, *out) == 0;
}

static PyObject *type_named(const char *name)
{
    PyObject *types = PyImport_ImportModule("types"), *out = NULL;

    if (types) out = PyObject_GetAttrString(types, name);
    Py_XDECREF(types);
    return out;
}

static int module_exec(PyObject *module)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "manta is imported once in a process, by its main interpreter: this is another one");
        return -1;
    }
    if (py) {
        PyErr_SetString(PyExc_ImportError,
                        "manta is imported once in a process: another interpreter of it has the runtime");
        return -1;
    }
    py_state *s = PyModule_GetState(module);
    memset(s, 0, sizeof *s);
    py = s;
    s->module = module;
    Py_INCREF(module); /* the state outlives the module's dictionary: references may go after it */
    s->pid = getpid();
    s->main_thread = (unsigned long)pthread_self();
    s->main_tid = gettid();
    bool ok = (s->functions = PyDict_New()) && (s->coroutine = type_named("CoroutineType")) &&
              (s->async_generator = type_named("AsyncGeneratorType")) &&
              (s->generator = type_named("GeneratorType")) &&
              (s->flush = PyUnicode_InternFromString("flush")) && (s->no_how = PyDict_New()) &&
              add_type(module, &py_ref_spec, &s->ref) && add_type(module, &py_block_spec, &s->block) &&
              add_type(module, &py_function_spec, &s->function) &&
              add_type(module, &py_actor_spec, &s->actor) && add_type(module, &py_method_spec, &s->method) &&
              add_type(module, &py_stream_spec, &s->stream) && add_type(module, &py_watch_spec, &s->watch) &&
              add_type(module, &py_run_spec, &s->run) && add_type(module, &py_ranks_spec, &s->ranks) &&
              add_type(module, &py_dataset_spec, &s->dataset) &&
              add_type(module, &py_model_spec, &s->model) && add_type(module, &py_session_spec, &s->session);
    return ok ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "manta._manta",
                                        .m_doc = "The runtime, for the package manta.",
                                        .m_size = sizeof(py_state),
                                        .m_methods = functions,
                                        .m_slots = slots};

PyMODINIT_FUNC PyInit__manta(void);

PyMODINIT_FUNC PyInit__manta(void)
{
    return PyModuleDef_Init(&definition);
}
