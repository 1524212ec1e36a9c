/* ends.c - how the actor that a process is ends: by a call of its own, or by SIGTERM.
 *
 * An actor that runs several calls at once answers those that run before a SIGTERM ends it. A
 * handler of a signal may do next to nothing, and handlers of Python run on its first thread alone, which is
 * in a call, or waits without the interpreter. So the handler counts a semaphore up, and a thread
 * that does nothing else asks the runtime for the end. A process that the actor forks has the handler,
 * but not the thread: there the signal does what it does by default. */
#include "py.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <manta/actor.h>
#include <manta/status.h>

static sem_t terms; /* SIGTERMs that came */
static pid_t minder; /* the process whose thread waits for them */

static void die_of_term(void)
{
    (void)signal(SIGTERM, SIG_DFL);
    (void)raise(SIGTERM);
}

static void on_term(int signal_number)
{
    int before = errno;
    (void)signal_number;

    if (getpid() == minder)
        (void)sem_post(&terms);
    else
        die_of_term();
    errno = before;
}

static void *mind_terms(void *unused)
{
    while (sem_wait(&terms))
        ; /* interrupted */
    if (manta_exit_actor(NULL)) die_of_term();
    return unused;
}

void py_mind_term(void)
{
    struct sigaction act = {.sa_handler = on_term, .sa_flags = SA_RESTART};
    pthread_attr_t small;
    pthread_t thread;
    sigset_t all, before;

    if (sem_init(&terms, 0, 0) || pthread_attr_init(&small)) return;
    (void)pthread_attr_setstacksize(&small, 128 << 10);
    (void)pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the other threads */
    if (!pthread_create(&thread, &small, mind_terms, NULL)) {
        minder = getpid();
        (void)sigaction(SIGTERM, &act, NULL);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&small);
}

/* Whether this runs in an actor: in its process, or without other processes in a call of one. */
static bool is_in_actor(void)
{
    manta_actor actor;

    if (py->is_worker) return py->actor_here.id != 0;
    if (!py->life || !py_task() || manta_actor_here(py_task(), &actor)) return false;
    manta_actor_release(actor);
    return true;
}

/* is_actor(): whether this runs in an actor. */
PyObject *py_is_actor(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(is_in_actor());
}

/* actor_here(cls): (a handle of class cls, the instance or None) of the actor that this runs in; None: in
 * none. */
PyObject *py_actor_here(PyObject *self, PyObject *cls)
{
    const manta_task *t = py_task();
    manta_actor actor = {0};
    manta_status st;
    (void)self;

    if (!py->life || !is_in_actor()) Py_RETURN_NONE;
    if (!PyType_Check(cls)) return PyErr_Format(PyExc_TypeError, "actor_here() takes a class");
    PyThreadState *left = py_leave();
    st = manta_actor_here(py->is_worker ? NULL : t, &actor);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    PyObject *handle = py_actor_take((PyTypeObject *)cls, actor);
    return handle ? Py_BuildValue("(NO)", handle, py->actor_self ? py->actor_self : Py_None) : NULL;
}

/* exit_actor(deferred): the actor that this process is ends, by the call that runs on this thread, the
 * one that was deferred, or (None) none. */
PyObject *py_exit_actor(PyObject *self, PyObject *deferred)
{
    manta_task *t = py_task();
    const char *name;
    manta_status st;
    (void)self;

    if (deferred != Py_None && !py_deferred_of(deferred, &t, &name)) return NULL;
    PyThreadState *left = py_leave();
    st = manta_exit_actor(t);
    py_come_back(left);
    if (st) return py_raise(st, (manta_ref){0});
    Py_RETURN_NONE;
}
