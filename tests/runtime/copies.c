/* copies.c - what happens while a large argument is copied, when the lock is not held. The bytes of the argument
 * cannot be read until they are let go, so that what is to happen meanwhile has happened. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <manta/context.h>
#include <manta/stream.h>

#include "scenario.h"

enum { BYTES = 1 << 20, ITEMS = 3 };

static char *held_bytes;
static atomic_bool is_copied, is_let_go;

/* The first byte is read: stays there until the bytes are let go. */
static void on_fault(int signal)
{
    const struct timespec turn = {.tv_nsec = 100000};
    (void)signal;

    atomic_store(&is_copied, true);
    while (!atomic_load(&is_let_go)) (void)nanosleep(&turn, NULL);
    if (mprotect(held_bytes, BYTES, PROT_READ | PROT_WRITE)) _exit(1);
}

static void hold_bytes(void)
{
    held_bytes = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(held_bytes != MAP_FAILED &&
          sigaction(SIGSEGV, &(struct sigaction){.sa_handler = on_fault}, NULL) == 0);
}

static void release_bytes(void)
{
    CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR && munmap(held_bytes, BYTES) == 0);
}

static void until_copied(void)
{
    double begin = now();

    while (!atomic_load(&is_copied) && now() - begin < LONG / 1000) usleep(200);
    CHECK(atomic_load(&is_copied));
}

static manta_status copies_count(manta_task *t)
{
    for (int64_t i = 0; i < ITEMS; i++) MANTA_TRY(manta_yield(t, manta_i64(i)));
    return MANTA_OK;
}
MANTA_REMOTE(copies_count)

/* ---- another thread calls ---- */

static void *call_meanwhile(void *arg)
{
    int64_t v;
    (void)arg;

    until_copied();
    manta_ref r = manta_remote(pid);
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v > 0 && v != getpid());
    manta_release(r);
    atomic_store(&is_let_go, true);
    return NULL;
}

/* A stream has a large argument: it is this call that is the stream, and not one of another thread. */
void scenario_copied_while_called(void)
{
    pthread_t id;
    manta_ref item;
    int64_t v;

    hold_bytes();
    CHECK(pthread_create(&id, NULL, call_meanwhile, NULL) == 0);
    manta_stream s = manta_remote_stream(NULL, copies_count, manta_bytes(held_bytes, BYTES));
    CHECK(pthread_join(id, NULL) == 0);
    for (int64_t i = 0; i < ITEMS; i++) {
        OK(manta_stream_next(s, &item, LONG));
        OK(manta_get_i64(item, &v, LONG));
        CHECK(v == i);
        manta_release(item);
    }
    CHECK(manta_stream_next(s, &item, LONG) == MANTA_ENOENT);
    manta_stream_close(s);
    release_bytes();
}

/* ---- the node ends ---- */

static void *end_node_meanwhile(void *arg)
{
    manta_node_info info;
    (void)arg;

    until_copied();
    manta_ref r = manta_remote(linger);
    OK(manta_node_get(&info));
    CHECK(kill(info.daemon_pid, SIGKILL) == 0);
    CHECK(manta_get(r, LONG) == MANTA_EDIED); /* this process knows */
    manta_release(r);
    atomic_store(&is_let_go, true);
    return NULL;
}

/* A call whose argument was copied when the node ended fails as those that had been made before, and is not waited
 * for. */
void scenario_copied_while_ended(void)
{
    pthread_t id;

    hold_bytes();
    CHECK(pthread_create(&id, NULL, end_node_meanwhile, NULL) == 0);
    manta_ref r = manta_remote(nop, manta_bytes(held_bytes, BYTES));
    CHECK(pthread_join(id, NULL) == 0);
    CHECK(manta_get(r, LONG) == MANTA_EDIED && failure_of(r).kind == MANTA_FAILURE_NODE);
    SAYS("the node is gone");
    manta_release(r);
    release_bytes();
}
