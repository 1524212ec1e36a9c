/* decode.c - work that goes on behind an opened dataset. */
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "format/array/decode.h"
#include "os/thread.h"

struct decode {
    manta_status (*fn)(void *ctx);
    void *ctx;
    pid_t pid; /* that the thread lives in */
    bool threaded;
    thread_id thread;
    mutex lock;
    cond finished;
    mutex orphan; /* taken only in a process forked meanwhile, see below */
    atomic_bool done; /* code and error are final once it is seen */
    manta_status code;
    manta_error error;
};

static void run_decode(decode *d)
{
    d->code = d->fn(d->ctx);
    if (d->code) manta_error_get(&d->error);
}

static void decode_main(void *arg)
{
    decode *d = arg;

    run_decode(d);
    mutex_lock(&d->lock);
    atomic_store_explicit(&d->done, true, memory_order_release);
    cond_broadcast(&d->finished);
    mutex_unlock(&d->lock);
}

decode *decode_start(manta_status (*fn)(void *ctx), void *ctx)
{
    decode *d = mem_new(sizeof *d);

    d->fn = fn;
    d->ctx = ctx;
    d->pid = getpid();
    mutex_init(&d->lock);
    mutex_init(&d->orphan);
    cond_init(&d->finished);
    d->threaded = thread_start(&d->thread, "manta-decode", decode_main, d) == MANTA_OK;
    if (!d->threaded) {
        run_decode(d);
        atomic_store(&d->done, true);
    }
    return d;
}

/* A fork took the thread away in mid-work. The half-written memory is a copy
 * that belongs to this process, so the work is done again, by whichever of its
 * threads comes first. `lock` may be held for ever by the thread that is not
 * here; `orphan` is never taken before a fork. */
static void decode_after_fork(decode *d)
{
    mutex_lock(&d->orphan);
    if (!atomic_load(&d->done)) {
        run_decode(d);
        atomic_store_explicit(&d->done, true, memory_order_release);
    }
    mutex_unlock(&d->orphan);
}

manta_status decode_wait(decode *d)
{
    if (!atomic_load_explicit(&d->done, memory_order_acquire)) {
        if (d->pid != getpid()) {
            decode_after_fork(d);
        } else {
            mutex_lock(&d->lock);
            while (!atomic_load(&d->done)) cond_wait(&d->finished, &d->lock, CLOCK_NEVER);
            mutex_unlock(&d->lock);
        }
    }
    return d->code ? manta_error_raise(&d->error) : MANTA_OK;
}

void decode_free(decode *d)
{
    if (!d) return;
    if (d->pid == getpid()) { /* elsewhere neither the thread nor the state of its lock can be trusted */
        if (d->threaded) thread_join(&d->thread);
        cond_release(&d->finished);
        mutex_release(&d->lock);
        mutex_release(&d->orphan);
    }
    mem_free(d);
}
