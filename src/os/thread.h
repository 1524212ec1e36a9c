/* thread.h - threads, locks and waits with a deadline.
 *
 * A lock or a condition fails only by our own mistake, so these return nothing
 * and assert. Deadlines are points of clock_now_ns(); CLOCK_NEVER waits without
 * end. */
#ifndef OS_THREAD_H
#define OS_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mutex {
    pthread_mutex_t m;
} mutex;

void mutex_init(mutex *m);
void mutex_release(mutex *m);
void mutex_lock(mutex *m);
void mutex_unlock(mutex *m);

/* A condition, always used under one mutex. */
typedef struct cond {
    pthread_cond_t c;
} cond;

void cond_init(cond *c);
void cond_release(cond *c);
void cond_signal(cond *c);
void cond_broadcast(cond *c);

/* Waits for a signal; may also return without one, so look at what was waited
 * for again. False when the deadline has passed. */
bool cond_wait(cond *c, mutex *m, int64_t deadline);

typedef struct thread_id {
    pthread_t id;
} thread_id;

/* Starts fn(arg) on a thread of its own, under a name that debuggers and top
 * show (cut to 15 bytes), with all signals blocked: signals are the program's
 * business, and its own threads take them; it logs as its starter does
 * (log_use_level()). MANTA_EBUSY the system has no room
 * for another thread; *out is then untouched. */
manta_status thread_start(thread_id *out, const char *name, void (*fn)(void *arg), void *arg) MANTA_MUST_USE;

/* The calling thread leaves more of the processor to others the greater n is, 0 to 19:
 * at 10 they get ten times as much as it does, at 19 seventy times. A system that does
 * not allow it is no failure. */
void thread_nice(int n);

/* Waits until the thread's function has returned. */
void thread_join(thread_id *t);

#endif
