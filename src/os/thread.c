/* thread.c - see thread.h. */
#include "os/thread.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/sys.h"

/* A result other than 0 is our own mistake. */
static void must_succeed(int err)
{
    assert(err == 0);
    (void)err;
}

void mutex_init(mutex *m)
{
    must_succeed(pthread_mutex_init(&m->m, NULL));
}

void mutex_release(mutex *m)
{
    must_succeed(pthread_mutex_destroy(&m->m));
}

void mutex_lock(mutex *m)
{
    must_succeed(pthread_mutex_lock(&m->m));
}

void mutex_unlock(mutex *m)
{
    must_succeed(pthread_mutex_unlock(&m->m));
}

void cond_init(cond *c)
{
    pthread_condattr_t attr;

    must_succeed(pthread_condattr_init(&attr));
    must_succeed(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must_succeed(pthread_cond_init(&c->c, &attr));
    must_succeed(pthread_condattr_destroy(&attr));
}

void cond_release(cond *c)
{
    must_succeed(pthread_cond_destroy(&c->c));
}

void cond_signal(cond *c)
{
    must_succeed(pthread_cond_signal(&c->c));
}

void cond_broadcast(cond *c)
{
    must_succeed(pthread_cond_broadcast(&c->c));
}

static struct timespec timespec_of(int64_t ns)
{
    if (ns < 0) ns = 0;
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

bool cond_wait(cond *c, mutex *m, int64_t deadline)
{
    if (deadline == CLOCK_NEVER) {
        must_succeed(pthread_cond_wait(&c->c, &m->m));
        return true;
    }
    struct timespec at = timespec_of(deadline);
    int err = pthread_cond_timedwait(&c->c, &m->m, &at);
    assert(err == 0 || err == ETIMEDOUT);
    return err != ETIMEDOUT;
}

/* What a new thread is to do; it owns and frees this. */
typedef struct start {
    void (*fn)(void *);
    void *arg;
    int log_level; /* of who starts it: log_use_level() */
    char name[16];
} start;

static void *thread_main(void *p)
{
    start s = *(start *)p;

    mem_free(p);
    pthread_setname_np(pthread_self(), s.name);
    (void)log_use_level(s.log_level);
    s.fn(s.arg);
    return NULL;
}

manta_status thread_start(thread_id *out, const char *name, void (*fn)(void *arg), void *arg)
{
    start *s = mem_new(sizeof *s);
    sigset_t all, old;
    pthread_t id;

    *s = (start){.fn = fn, .arg = arg, .log_level = log_own_level()};
    memcpy(s->name, name, strnlen(name, sizeof s->name - 1));
    sigfillset(&all);
    must_succeed(pthread_sigmask(SIG_SETMASK, &all, &old));
    int err = os->pthread_create(&id, NULL, thread_main, s);
    must_succeed(pthread_sigmask(SIG_SETMASK, &old, NULL));
    if (err) {
        mem_free(s);
        return manta_fail(MANTA_EBUSY, "thread %s could not be started: %s", name, strerror(err));
    }
    out->id = id;
    return MANTA_OK;
}

void thread_nice(int n)
{
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), n);
}

void thread_join(thread_id *t)
{
    must_succeed(pthread_join(t->id, NULL));
}
