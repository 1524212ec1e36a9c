/* trouble.h - what must not hang and must be said, for any implementation. */
#ifndef TESTS_COMM_TROUBLE_H
#define TESTS_COMM_TROUBLE_H

#include "comm/group.h"
#include "comm/ranks.h"

/* Ranks that call different things are all told the same, and go on. */
static inline int trouble_mismatch(manta_group *g, void *ctx)
{
    enum { N = 50000 };
    int me = manta_group_rank(g), last = manta_group_size(g) - 1;
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    char text[500];
    (void)ctx;

    for (int i = 0; i < N; i++) x[i] = y[i] = 1;
    /* number of elements, small and large */
    for (int64_t n = 10; n <= N; n *= 5000) {
        OK(manta_group_all_reduce(g, x, y, me == last ? n - 1 : n, MANTA_DTYPE_F32, MANTA_REDUCE_SUM) ==
           MANTA_EINVAL);
        snprintf(text, sizeof text, "rank 0 all-reduce (sum) of %d float32, rank %d all-reduce (sum) of %d",
                 (int)n, last, (int)n - 1);
        OK(strstr(manta_error_text(), text));
        for (int i = 0; i < N; i++) OK(y[i] == 1);
    }
    /* type, reduction, root, kind */
    OK(manta_group_all_reduce(g, x, y, 10, me ? MANTA_DTYPE_F32 : MANTA_DTYPE_I32, MANTA_REDUCE_SUM) ==
       MANTA_EINVAL);
    OK(strstr(manta_error_text(),
              "rank 0 all-reduce (sum) of 10 int32, rank 1 all-reduce (sum) of 10 float32"));
    OK(manta_group_all_reduce(g, x, y, 10, MANTA_DTYPE_F32, me ? MANTA_REDUCE_MIN : MANTA_REDUCE_SUM) ==
       MANTA_EINVAL);
    OK(manta_group_broadcast(g, y, 10, MANTA_DTYPE_F32, me ? 1 : 0) == MANTA_EINVAL);
    OK(strstr(manta_error_text(), "with root 0, rank 1 broadcast of 10 float32 with root 1"));
    manta_collective c = {
        .kind = me ? MANTA_COLLECTIVE_BARRIER : MANTA_COLLECTIVE_ALL_GATHER, .in = x, .out = y, .n = 1};
    OK(manta_group_run(g, &c) == MANTA_EINVAL);
    OK(strstr(manta_error_text(), "rank 0 all-gather of 1 float32, rank 1 barrier"));
    /* a message: the receiver is told, and the next one is found */
    if (me == 0) {
        OK(manta_group_send(g, x, 30000, MANTA_DTYPE_F32, 1) != MANTA_EDIED);
        OK(!manta_group_send(g, x, 3, MANTA_DTYPE_F32, 1));
    } else if (me == 1) {
        OK(manta_group_receive(g, y, 4, MANTA_DTYPE_F32, 0) == MANTA_EINVAL);
        OK(strstr(manta_error_text(), "rank 0 a message of 30000 float32, rank 1 a message of 4 float32"));
        OK(!manta_group_receive(g, y, 3, MANTA_DTYPE_F32, 0));
    }
    OK(!manta_group_all_reduce(g, x, y, N, MANTA_DTYPE_F32, MANTA_REDUCE_SUM));
    for (int i = 0; i < N; i++) OK(y[i] == (float)manta_group_size(g));
    free(x);
    free(y);
    return 0;
}

/* For trouble_late(): zeroed. */
typedef struct lateness {
    _Atomic int come, told; /* of the ranks that are not late: who is about to call, who was told */
} lateness;

/* How long they wait for the late one: far longer than a rank that is about to call is
 * ever held up by the system, so that it alone is missing. */
enum { LATE_MS = 3000 };

/* Rank 1 does not come; the others say so, and it learns that it is too late. */
static inline int trouble_late(manta_group *g, void *ctx)
{
    lateness *l = ctx;
    const int others = manta_group_size(g) - 1;
    float x = 1;

    if (manta_group_rank(g) == 1) {
        while (atomic_load(&l->told) < others) sched_yield();
        OK(manta_group_all_reduce(g, &x, &x, 1, MANTA_DTYPE_F32, MANTA_REDUCE_SUM) == MANTA_ETIMEDOUT);
        return 0;
    }
    atomic_fetch_add(&l->come, 1);
    while (atomic_load(&l->come) < others) sched_yield();
    OK(manta_group_all_reduce(g, &x, &x, 1, MANTA_DTYPE_F32, MANTA_REDUCE_SUM) == MANTA_ETIMEDOUT);
    OK(strstr(manta_error_text(), "in all-reduce (sum) of 1 float32; missing: rank 1"));
    OK(x == 1);
    OK(manta_group_barrier(g) == MANTA_ETIMEDOUT); /* it stays broken */
    OK(strstr(manta_error_text(), "missing: rank 1"));
    atomic_fetch_add(&l->told, 1);
    return 0;
}

/* The last rank leaves after one call; who needs it afterwards is told. */
static inline int trouble_leave(manta_group *g, void *ctx)
{
    int last = manta_group_size(g) - 1;
    char text[64];
    (void)ctx;

    OK(!manta_group_barrier(g));
    if (manta_group_rank(g) == last) return 0; /* the runner closes the group */
    snprintf(text, sizeof text, "rank %d has left the group", last);
    OK(manta_group_barrier(g) == MANTA_EDIED);
    OK(strstr(manta_error_text(), text));
    return 0;
}

/* Setup and teardown of tests in which collectives under way are to end, however busy the machine is, though a
 * message is lost. */
static inline int trouble_be_patient(void **state)
{
    static int64_t usual;

    *state = &usual;
    usual = group_late_ms;
    group_late_ms = 240000;
    return 0;
}

static inline int trouble_be_usual(void **state)
{
    group_late_ms = *(const int64_t *)*state;
    return 0;
}

/* All end the barrier, though rank 0 has a message under way that the last rank does not send
 * before it leaves; then rank 0 is told. */
static inline int trouble_unsent(manta_group *g, void *ctx)
{
    int last = manta_group_size(g) - 1;
    float x = 0;
    manta_work *w = NULL;
    (void)ctx;

    if (manta_group_rank(g) == 0) {
        manta_collective c = {.kind = MANTA_COLLECTIVE_RECEIVE, .out = &x, .n = 1, .peer = last};
        OK(!manta_group_start(g, &c, &w));
    }
    OK(!manta_group_barrier(g));
    if (manta_group_rank(g) != 0) return 0;
    OK(manta_work_wait(w) == MANTA_EDIED);
    OK(strstr(manta_error_text(), "has left the group, and is needed for a message of 1 float32"));
    return 0;
}

/* Rank 2 leaves when it has done its part of a barrier. Rank 0 is in that barrier, too, and waits for a message of
 * rank 2; rank 1 waits for one of rank 0 and is not in the barrier, which therefore neither ends nor fails. ctx: a
 * manta_work *, that of rank 2, which has to be waited for when the group is closed. */
static inline int trouble_tangled(manta_group *g, void *ctx)
{
    manta_collective barrier = {.kind = MANTA_COLLECTIVE_BARRIER};
    manta_collective receive = {.kind = MANTA_COLLECTIVE_RECEIVE, .n = 1, .peer = 2};
    manta_work *message, *meeting, **left = ctx;
    float x = 0;

    receive.out = &x;
    if (manta_group_rank(g) == 2) {
        OK(!manta_group_start(g, &barrier, left));
        OK(!manta_work_test(*left));
        return 0;
    }
    if (manta_group_rank(g) == 1) {
        OK(manta_group_receive(g, &x, 1, MANTA_DTYPE_F32, 0) == MANTA_EDIED);
    } else {
        OK(!manta_group_start(g, &barrier, &meeting)); /* first: alone the message would fail at once */
        OK(!manta_group_start(g, &receive, &message));
        OK(manta_work_wait(message) == MANTA_EDIED);
        OK(strstr(manta_error_text(), "rank 2 has left the group, and is needed for"));
        OK(manta_work_wait(meeting) == MANTA_EDIED);
    }
    OK(strstr(manta_error_text(), "rank 2 has left the group, and is needed for"));
    return 0;
}

/* Rank 0 gives up while the others wait, collectively and for messages. */
static inline int trouble_abort(manta_group *g, void *ctx)
{
    float x = 0;
    int me = manta_group_rank(g);
    (void)ctx;

    if (me == 0) {
        manta_group_abort(g, "no more of this");
        OK(manta_group_barrier(g) == MANTA_ECANCELLED);
        return 0;
    }
    manta_status st = me == 1 ? manta_group_barrier(g) : manta_group_receive(g, &x, 1, MANTA_DTYPE_F32, 1);
    OK(st == MANTA_ECANCELLED);
    OK(strstr(manta_error_text(), "rank 0 gave up: no more of this"));
    return 0;
}

#endif
