/* ranks.h - runs a function on every rank of a group, as threads or as
 * processes; for tests of comm/. A rank's function says what went wrong by the
 * line it returns, because cmocka's own assertions belong to one thread. */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include <setjmp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <manta/comm.h>

#include "os/thread.h"

#define OK(expr)                                                                                             \
    do {                                                                                                     \
        if (!(expr)) {                                                                                       \
            fprintf(stderr, "rank %d: line %d: %s (%s)\n", manta_group_rank(g), __LINE__, #expr,             \
                    manta_error_text());                                                                     \
            return __LINE__;                                                                                 \
        }                                                                                                    \
    } while (0)

/* Starts the sum of the ranks' n floats at x, in place. */
static inline manta_status rank_start_sum(manta_group *g, float *x, int64_t n, manta_work **out)
{
    return manta_group_start(
        g,
        &(manta_collective){
            .kind = MANTA_COLLECTIVE_ALL_REDUCE, .in = x, .out = x, .n = n, .dtype = MANTA_DTYPE_F32},
        out);
}

typedef int rank_fn(manta_group *g, void *ctx);

/* How a rank gets its group; NULL and a sentence when it does not. */
typedef manta_group *rank_join(void *how, int rank);

typedef struct rank_thread {
    rank_join *join;
    void *how;
    rank_fn *fn;
    void *ctx;
    int rank, result;
    thread_id thread;
} rank_thread;

static inline void rank_main(void *p)
{
    rank_thread *r = p;
    manta_group *g = r->join(r->how, r->rank);

    if (!g) fprintf(stderr, "rank %d: %s\n", r->rank, manta_error_text());
    r->result = g ? r->fn(g, r->ctx) : -1;
    manta_group_close(g);
}

/* All ranks as threads of this process. */
static inline void ranks_as_threads(rank_join *join, void *how, int size, rank_fn *fn, void *ctx)
{
    rank_thread r[16];

    for (int i = 0; i < size; i++) {
        r[i] = (rank_thread){.join = join, .how = how, .fn = fn, .ctx = ctx, .rank = i};
        assert_int_equal(thread_start(&r[i].thread, "rank", rank_main, &r[i]), MANTA_OK);
    }
    for (int i = 0; i < size; i++) thread_join(&r[i].thread);
    for (int i = 0; i < size; i++) assert_int_equal(r[i].result, 0);
}

/* All ranks as children. A rank that returns a negative number must have ended
 * by that signal. */
static inline void ranks_as_processes(rank_join *join, void *how, int size, rank_fn *fn, void *ctx)
{
    pid_t pids[16];
    int bad = 0;

    fflush(NULL);
    for (int i = 0; i < size; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            rank_thread r = {.join = join, .how = how, .fn = fn, .ctx = ctx, .rank = i};
            rank_main(&r);
            if (r.result) fprintf(stderr, "rank %d failed at line %d\n", i, r.result);
            fflush(NULL);
            _exit(r.result ? 1 : 0);
        }
    }
    for (int i = 0; i < size; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue; /* it was meant to be */
        bad |= status;
    }
    assert_int_equal(bad, 0);
}

static inline manta_group *join_plan(void *plan, int rank)
{
    manta_group *g;

    return manta_group_join(plan, rank, &g) ? NULL : g;
}

#endif
