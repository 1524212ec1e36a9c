/* drops.c - references that Python let go.
 *
 *     destructor ──▶ list ──▶ manta_release(), by the next call with much to give back
 *                        └──▶ or by a thread of ours, a few milliseconds later
 *
 * A destructor runs on any thread, in the middle of anything, also of the garbage collection:
 * it must not wait for the runtime's lock. It appends a number to a list, under a lock that is only
 * ever held for that and for taking the whole list away. Numbers carry the life of the runtime
 * that they belong to; those of an earlier one name nothing any more and are not even put there.
 *
 * Two locks, never both: `list_lock` guards the list; `drain_lock` is held while numbers are
 * given back, and from py_drops_stop() to py_drops_go_on(), so that nobody is in the runtime while it ends. */
#include "py.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include <manta/actor.h>
#include <manta/stream.h>

#define MUCH     64 /* numbers that a call gives back on its way */
#define DELAY_NS 5000000 /* for others to come along, before the thread gives back what there is */

typedef struct dropped {
    uint64_t id;
    py_drop what;
    uint32_t life;
} dropped;

typedef struct drop_list {
    dropped *at;
    size_t n, room;
} drop_list;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t drain_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static drop_list drops;
static bool has_thread, is_asleep;
static uint32_t life_now; /* as the list knows it */

static void drop_list_give_back(const drop_list *l)
{
    manta_ref refs[MUCH];
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        const dropped *d = &l->at[i];
        if (d->life != life_now) continue;
        if (d->what == PY_DROP_ACTOR) manta_actor_release((manta_actor){d->id});
        if (d->what == PY_DROP_STREAM) manta_stream_close((manta_stream){d->id});
        if (d->what == PY_DROP_STREAM_LEFT) manta_stream_leave((manta_stream){d->id});
        if (d->what == PY_DROP_VIEW) manta_unpin((manta_ref){d->id});
        if (d->what == PY_DROP_REF || d->what == PY_DROP_VIEW) refs[n++].id = d->id;
        if (n < MUCH) continue;
        manta_release_all(refs, n);
        n = 0;
    }
    if (n > 0) manta_release_all(refs, n);
}

/* Takes the list away and gives back what is on it; drain_lock is held. */
static void drops_drain(void)
{
    static drop_list spare; /* the memory of the last time */

    pthread_mutex_lock(&list_lock);
    drop_list taken = drops;
    drops = spare;
    pthread_mutex_unlock(&list_lock);
    spare = (drop_list){0};
    drop_list_give_back(&taken);
    taken.n = 0;
    spare = taken;
}

static void *drain_always(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&list_lock);
        is_asleep = true;
        while (drops.n == 0) pthread_cond_wait(&some, &list_lock);
        is_asleep = false;
        pthread_mutex_unlock(&list_lock);
        nanosleep(&(struct timespec){.tv_nsec = DELAY_NS}, NULL);
        pthread_mutex_lock(&drain_lock);
        drops_drain();
        pthread_mutex_unlock(&drain_lock);
    }
    return NULL;
}

/* list_lock is held. Without a thread, calls give back what there is. */
static void start_thread(void)
{
    pthread_t t;
    pthread_attr_t a;
    sigset_t all, before;

    has_thread = true;
    sigfillset(&all);
    if (pthread_attr_init(&a)) return;
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&a, (size_t)256 << 10);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for threads of Python */
    (void)!pthread_create(&t, &a, drain_always, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&a);
}

void py_drop_later(py_drop what, uint64_t id, uint32_t life)
{
    if (!id) return;
    pthread_mutex_lock(&list_lock);
    if (life == life_now && life) {
        if (drops.n == drops.room) {
            size_t room = drops.room ? drops.room * 2 : (size_t)MUCH * 4;
            dropped *at = realloc(drops.at, room * sizeof *at);
            if (at) drops = (drop_list){at, drops.n, room};
        }
        if (drops.n < drops.room)
            drops.at[drops.n++] = (dropped){id, what, life}; /* else it stays until the end */
        if (!has_thread) start_thread();
        if (is_asleep && drops.n == 1) pthread_cond_signal(&some);
    }
    pthread_mutex_unlock(&list_lock);
}

void py_drops_flush(bool all)
{
    /* Read without the lock: whoever misses one gives it back the next time. */
    size_t n = __atomic_load_n(&drops.n, __ATOMIC_RELAXED);

    if (n == 0 || (!all && n < MUCH)) return;
    if (pthread_mutex_trylock(&drain_lock)) return; /* somebody is at it */
    drops_drain();
    pthread_mutex_unlock(&drain_lock);
}

void py_drops_stop(void)
{
    pthread_mutex_lock(&drain_lock);
    drops_drain();
    pthread_mutex_lock(&list_lock);
    life_now = 0;
    pthread_mutex_unlock(&list_lock);
}

void py_drops_go_on(void)
{
    pthread_mutex_lock(&list_lock);
    life_now = py->life;
    drops.n = 0;
    pthread_mutex_unlock(&list_lock);
    pthread_mutex_unlock(&drain_lock);
}

void py_drops_forget(void)
{
    pthread_mutex_init(&list_lock, NULL); /* whoever held them is not in this process */
    pthread_mutex_init(&drain_lock, NULL);
    pthread_cond_init(&some, NULL);
    drops = (drop_list){0};
    has_thread = is_asleep = false;
    life_now = py->life;
}
