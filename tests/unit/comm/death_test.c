/* A rank is killed at each point of the shared-memory code, each rank, the
 * first and the third time it comes by; the others end at once, without a
 * deadline, with its number in the sentence, and what they had been given
 * before is right. And memory that says nonsense. */
#include <sys/mman.h>

#include "comm/crash.h"
#include "comm/ranks.h"
#include "comm/shm.h"
#include "os/shm.h"

typedef struct murder {
    comm_point at;
    int victim, count;
} murder;

static manta_group_plan *plan;

static manta_group *join_victim(void *how, int rank)
{
    const murder *m = how;

    if (rank == m->victim) crash_plan_set(&(crash_plan){.point = &comm_crash_points[m->at], .nth = m->count});
    return join_plan(plan, rank);
}

/* A mixture of calls, each checked. */
static manta_status calls(manta_group *g, int *wrong)
{
    enum { N = 70000 };
    static float x[N], y[3 * N];
    int me = manta_group_rank(g), size = manta_group_size(g), next = (me + 1) % size;
    float sum = (float)(size * (size + 1) / 2);
    manta_work *w;
    manta_status st;

    for (int i = 0; i < N; i++) x[i] = (float)(me + 1);
    if ((st = manta_group_all_reduce(g, x, y, N, MANTA_DTYPE_F32, MANTA_REDUCE_SUM))) return st;
    for (int i = 0; i < N; i++) *wrong |= y[i] != sum;
    if ((st = manta_group_all_gather(g, x, y, N, MANTA_DTYPE_F32))) return st;
    for (int i = 0; i < size * N; i++) *wrong |= y[i] != (float)(i / N + 1);
    if ((st = manta_group_start(
             g, &(manta_collective){.kind = MANTA_COLLECTIVE_SEND, .in = x, .n = N, .peer = next}, &w)))
        return st;
    if ((st = manta_group_receive(g, y, N, MANTA_DTYPE_F32, (me + size - 1) % size))) {
        (void)!manta_work_wait(w);
        return st;
    }
    for (int i = 0; i < N; i++) *wrong |= y[i] != (float)((me + size - 1) % size + 1);
    if ((st = manta_work_wait(w))) return st;
    if ((st = manta_group_broadcast(g, x, N, MANTA_DTYPE_F32, 2))) return st;
    for (int i = 0; i < N; i++) *wrong |= x[i] != 3;
    return manta_group_barrier(g);
}

static int survive(manta_group *g, void *ctx)
{
    const murder *m = ctx;
    int wrong = 0;
    char text[64];
    manta_status st = calls(g, &wrong);

    if (!st) st = manta_group_barrier(g); /* the victim may have done all it had to */
    OK(!wrong);
    OK(st == MANTA_EDIED);
    snprintf(text, sizeof text, "rank %d is dead", m->victim);
    OK(strstr(manta_error_text(), text));
    return 0;
}

static void every_point(void **state)
{
    (void)state;
    for (int at = COMM_CRASH_BEGUN; at < comm_points; at++)
        for (int victim = 0; victim < 3; victim++)
            for (int count = 1; count <= 3; count += 2) {
                murder m = {(comm_point)at, victim, count};
                assert_int_equal(
                    manta_group_plan_new(3, &(manta_group_options){.timeout_ms = MANTA_NONE}, &plan),
                    MANTA_OK);
                ranks_as_processes(join_victim, &m, 3, survive, &m);
                manta_group_plan_free(plan);
            }
}

/* A rank that dies before all have joined. */
static int never(manta_group *g, void *ctx)
{
    (void)ctx;
    OK(manta_group_barrier(g) == MANTA_EDIED);
    OK(strstr(manta_error_text(), "rank 1 is dead"));
    return 0;
}

static void before_the_group_is_whole(void **state)
{
    (void)state;
    murder m = {COMM_CRASH_JOINED, 1, 1};
    assert_int_equal(manta_group_plan_new(3, &(manta_group_options){.timeout_ms = MANTA_NONE}, &plan),
                     MANTA_OK);
    ranks_as_processes(join_victim, &m, 3, never, &m);
    manta_group_plan_free(plan);
}

/* Killed by another process while it sleeps, the others asleep as well. */
static int sleepers(manta_group *g, void *ctx)
{
    int me = manta_group_rank(g), *pid = ctx;
    float x = 0;

    if (me == 2) *pid = getpid();
    OK(!manta_group_barrier(g));
    if (me == 2) {
        pause();
        return __LINE__;
    }
    if (me == 0) kill(*pid, SIGKILL);
    OK(manta_group_receive(g, &x, 1, MANTA_DTYPE_F32, 2) == MANTA_EDIED);
    OK(strstr(manta_error_text(), "rank 2 is dead"));
    return 0;
}

static void a_death_wakes_those_who_sleep(void **state)
{
    int *pid = mmap(NULL, sizeof *pid, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;

    assert_int_equal(manta_group_plan_new(3, &(manta_group_options){.timeout_ms = MANTA_NONE}, &plan),
                     MANTA_OK);
    ranks_as_processes(join_plan, plan, 3, sleepers, pid);
    manta_group_plan_free(plan);
    munmap(pid, sizeof *pid);
}

/* ---- memory that says nonsense ---- */

static void memory_is_not_believed(void **state)
{
    (void)state;
    shm_head good = shm_head_of(2, &(manta_group_options){.join_timeout_ms = 1});
    shm *t;
    int fd;
    for (size_t word = 0; word < 5; word++)
        for (int k = 0; k < 4; k++) {
            static const uint64_t odd[] = {0, 1, UINT64_MAX, (uint64_t)1 << 40};
            shm_head h = good;
            void *at;
            size_t size;
            assert_int_equal(shm_group_new(&good, &fd), MANTA_OK);
            memcpy((char *)&h + word * 8, &odd[k], 8);
            assert_int_equal(shm_size(fd, &size), MANTA_OK);
            assert_int_equal(shm_map(fd, size, true, &at), MANTA_OK);
            bool same = !memcmp(&h, &good, sizeof h);
            memcpy(at, &h, sizeof h);
            shm_unmap(at, size);
            manta_status st = shm_group_join(fd, 0, &t);
            assert_int_equal(st, same ? MANTA_ETIMEDOUT : MANTA_ECORRUPT);
            close(fd);
        }
    assert_int_equal(shm_new("other", shm_page(), &fd), MANTA_OK);
    assert_int_equal(shm_group_join(fd, 0, &t), MANTA_ECORRUPT);
    close(fd);
    fd = memfd_create("unsealed", 0);
    assert_int_equal(shm_group_join(fd, 0, &t), MANTA_ECORRUPT);
    close(fd);
}

/* A rank's words are anything at all. */
static int nonsense(manta_group *g, void *ctx)
{
    (void)ctx;
    manta_status st = manta_group_barrier(g);
    OK(st == MANTA_ECORRUPT || st == MANTA_EINVAL);
    return 0;
}

static manta_group *join_liar(void *how, int rank)
{
    if (rank == 0) return join_plan(plan, rank);
    /* The other rank is this test: it has joined, and posts a step with its words. */
    shm *t;
    const call_words *words = how;
    manta_group *none = NULL;
    if (shm_group_join(*(int *)plan, 1, &t)) return NULL;
    shm_rank_at(t, 1)->words[1 % SHM_SLOTS] = *words;
    atomic_store(&shm_rank_at(t, 1)->posted, 1);
    shm_ring_all(t);
    for (;;) pause();
    return none;
}

static void words_are_not_believed(void **state)
{
    (void)state;
    call_words odd[] = {{.kind = 99},
                        {.kind = 1, .dtype = 77},
                        {.kind = 1, .reduce = 1u << 31},
                        {.kind = 2, .peer = 4000},
                        {.kind = 1, .n = UINT64_MAX},
                        {.number = 5}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(manta_group_plan_new(2, &(manta_group_options){.timeout_ms = MANTA_NONE}, &plan),
                         MANTA_OK);
        pid_t liar = fork();
        if (!liar) {
            join_liar(&odd[i], 1);
            _exit(1);
        }
        manta_group *g = join_plan(plan, 0);
        assert_non_null(g);
        assert_int_equal(nonsense(g, NULL), 0);
        manta_group_close(g);
        kill(liar, SIGKILL);
        waitpid(liar, NULL, 0);
        manta_group_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_point),
        cmocka_unit_test(before_the_group_is_whole),
        cmocka_unit_test(a_death_wakes_those_who_sleep),
        cmocka_unit_test(memory_is_not_believed),
        cmocka_unit_test(words_are_not_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
