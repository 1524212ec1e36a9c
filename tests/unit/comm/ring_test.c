/* Collectives over loopback TCP, with and without encryption of the data,
 * against plain loops; meeting; what goes wrong. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "comm/cases.h"
#include "comm/network.h"
#include "comm/trouble.h"
#include "ok.h"

static const int64_t few[] = {0, 1, 7, 1000, -1};
static const int64_t chunked[] = {4099, 200003, -1};

static void every_call(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size += 2)
        network_as_threads(size, NULL, case_all, &(case_sizes){.n = few});
}

static void every_call_chunked(void **state)
{
    (void)state;
    network n = network_of(2, NULL);
    ranks_as_processes(join_network, &n, 2, case_all, &(case_sizes){.n = chunked, .some = true});
    close(n.o.listener);
    n = network_of(3, &(manta_group_options){.insecure_bulk = true});
    ranks_as_processes(join_network, &n, 3, case_all, &(case_sizes){.n = chunked, .some = true});
    close(n.o.listener);
}

/* The same bytes as in shared memory, whatever is added. */
static int sums(manta_group *g, void *ctx)
{
    enum { N = 100003 };
    float *x = malloc(N * sizeof *x), *all = ctx;

    for (int i = 0; i < N; i++) x[i] = (float)case_value(manta_group_rank(g), i) * 1.1f;
    OK(!manta_group_all_reduce(g, x, x, N, MANTA_DTYPE_F32, MANTA_REDUCE_MEAN));
    memcpy(all + manta_group_rank(g) * N, x, N * sizeof *x);
    free(x);
    return 0;
}

static void same_bytes_as_shared_memory(void **state)
{
    enum { N = 100003 };
    (void)state;

    for (int size = 2; size <= 4; size++) {
        float *a = malloc(sizeof *a * N * (size_t)size), *b = malloc(sizeof *b * N * (size_t)size);
        manta_group_plan *p;
        assert_int_equal(manta_group_plan_new(size, NULL, &p), MANTA_OK);
        ranks_as_threads(join_plan, p, size, sums, a);
        manta_group_plan_free(p);
        network_as_threads(size, NULL, sums, b);
        assert_memory_equal(a, b, sizeof *a * N * (size_t)size);
        for (int r = 1; r < size; r++) assert_memory_equal(a, a + r * N, sizeof *a * N);
        free(a);
        free(b);
    }
}

static int overlap(manta_group *g, void *ctx)
{
    enum { N = 40001, CALLS = 4 };
    float *x[CALLS];
    manta_work *w[CALLS], *m;
    int size = manta_group_size(g), me = manta_group_rank(g);
    (void)ctx;

    OK(!strcmp(manta_group_implementation(g), "ring"));
    float *out = malloc(N * sizeof(float));
    for (int c = 0; c < CALLS; c++) {
        x[c] = malloc(N * sizeof(float));
        for (int i = 0; i < N; i++) x[c][i] = (float)(c + me);
        OK(!rank_start_sum(g, x[c], N, &w[c]));
    }
    /* messages pass the collectives by */
    float *message = malloc(N * sizeof(float));
    for (int i = 0; i < N; i++) message[i] = (float)(i + me);
    OK(!manta_group_start(g,
                          &(manta_collective){.kind = MANTA_COLLECTIVE_SEND,
                                              .in = message,
                                              .n = N,
                                              .dtype = MANTA_DTYPE_F32,
                                              .peer = (me + 1) % size},
                          &m));
    OK(!manta_group_receive(g, out, N, MANTA_DTYPE_F32, (me + size - 1) % size));
    for (int i = 0; i < N; i++) OK(out[i] == (float)(i + (me + size - 1) % size));
    OK(!manta_work_wait(m));
    for (int c = CALLS - 1; c >= 0; c--) {
        OK(!manta_work_wait(w[c]));
        for (int i = 0; i < N; i++) OK(x[c][i] == (float)(c * size + size * (size - 1) / 2));
        free(x[c]);
    }
    free(message);
    free(out);
    return 0;
}

static void calls_overlap(void **state)
{
    (void)state;
    for (int thread = 0; thread < 2; thread++)
        network_as_threads(3, &(manta_group_options){.progress_thread = thread}, overlap, NULL);
}

static void different_calls_are_told(void **state)
{
    (void)state;
    network_as_threads(2, NULL, trouble_mismatch, NULL);
    network_as_threads(3, &(manta_group_options){.insecure_bulk = true}, trouble_mismatch, NULL);
}

static void who_is_late_is_named(void **state)
{
    (void)state;
    lateness late = {0};
    network_as_threads(3, &(manta_group_options){.timeout_ms = LATE_MS}, trouble_late, &late);
}

static void who_leaves_is_named(void **state)
{
    (void)state;
    network_as_threads(3, NULL, trouble_leave, NULL);
}

static void who_leaves_after_the_barrier_breaks_none(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) network_as_threads(2 + i % 2, NULL, trouble_unsent, NULL);
}

static void who_leaves_ends_those_that_wait_for_each_other(void **state)
{
    const manta_group_options o = {.timeout_ms = MANTA_NONE};
    (void)state;

    for (int i = 0; i < 5; i++) {
        manta_work *left = NULL;
        network_as_threads(3, &o, trouble_tangled, &left);
        assert_int_equal(manta_work_wait(left), MANTA_ECANCELLED);
    }
}

static void giving_up_ends_all(void **state)
{
    (void)state;
    network_as_threads(3, NULL, trouble_abort, NULL);
}

/* Killed in the middle of a large call, or before it. */
static int death(manta_group *g, void *ctx)
{
    enum { N = 3000000 };
    int victim = *(int *)ctx % 3, late = *(int *)ctx / 3;
    float *x = malloc(N * sizeof *x);
    char text[64];
    manta_status st = MANTA_OK;

    for (int i = 0; i < N; i++) x[i] = 1;
    OK(!manta_group_barrier(g));
    if (manta_group_rank(g) == victim) {
        manta_work *w;
        if (late)
            OK(!manta_group_start(
                g,
                &(manta_collective){
                    .kind = MANTA_COLLECTIVE_ALL_REDUCE, .in = x, .out = x, .n = N, .dtype = MANTA_DTYPE_F32},
                &w));
        for (int i = 0; late && i < late; i++) (void)manta_work_test(w);
        kill(getpid(), SIGKILL);
    }
    st = manta_group_all_reduce(g, x, x, N, MANTA_DTYPE_F32, MANTA_REDUCE_SUM);
    snprintf(text, sizeof text, "rank %d is dead or cut off", victim);
    OK(st == MANTA_EDIED);
    /* A survivor that was gone before we had read its reason is named instead. */
    OK(strstr(manta_error_text(), text) || strstr(manta_error_text(), "the connection was"));
    free(x);
    return 0;
}

static void a_death_ends_all_and_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        network n = network_of(3, &(manta_group_options){.timeout_ms = MANTA_NONE, .insecure_bulk = i % 2});
        ranks_as_processes(join_network, &n, 3, death, &i);
        close(n.o.listener);
    }
}

static int once(manta_group *g, void *ctx)
{
    const char *how = ctx;

    OK(!strcmp(manta_group_implementation(g), how));
    OK(!manta_group_barrier(g));
    return 0;
}

/* Who can reach a loopback address is on this host: shared memory. */
static void auto_takes_shared_memory(void **state)
{
    (void)state;
    network n = network_of(3, NULL);
    n.o.implementation = MANTA_COMM_AUTO;
    ranks_as_threads(join_network, &n, 3, once, (void *)(uintptr_t) "shm");
    close(n.o.listener);
    snprintf(n.address, sizeof n.address, "unix:%s/meet", network_folder);
    ranks_as_processes(join_network, &n, 3, once, (void *)(uintptr_t) "shm");
    assert_int_not_equal(access(n.address + 5, F_OK), 0);
    /* a file that a killed run left is no obstacle */
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/meet", network_folder);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    ranks_as_processes(join_network, &n, 3, once, (void *)(uintptr_t) "shm");
}

static void who_does_not_come_is_named(void **state)
{
    manta_group *g;
    char address[160];
    (void)state;
    network n = network_of(3, &(manta_group_options){.join_timeout_ms = 30});

    assert_int_equal(manta_group_open(n.address, 0, 3, &n.o, &g), MANTA_ETIMEDOUT);
    assert_error_says("missing: rank 1, rank 2");
    close(n.o.listener);
    n.o.listener = 0;
    assert_int_equal(manta_group_open(n.address, 2, 3, &n.o, &g), MANTA_ETIMEDOUT);
    assert_error_says("missing: rank 0");
    n.o.implementation = MANTA_COMM_SHM;
    snprintf(address, sizeof address, "unix:%s/nobody", network_folder);
    assert_int_equal(manta_group_open(address, 1, 3, &n.o, &g), MANTA_ETIMEDOUT);
    assert_error_says("missing: rank 0");
    assert_int_equal(manta_group_open(address, 0, 3, &n.o, &g), MANTA_ETIMEDOUT);
    assert_error_says("missing: rank 1, rank 2");
    n.o.implementation = MANTA_COMM_RING;
    assert_int_equal(manta_group_open(address, 0, 3, &n.o, &g), MANTA_EINVAL);
    assert_int_equal(manta_group_open("nonsense", 0, 3, &n.o, &g), MANTA_EINVAL);
    n.o.implementation = MANTA_COMM_SHM;
    assert_int_equal(manta_group_open("192.0.2.1:4000", 0, 3, &n.o, &g), MANTA_EINVAL);
}

/* A rank that means another group is refused with a sentence, and the group
 * that was meant still forms. */
typedef struct odd_one {
    network n;
    rank_thread right[2];
} odd_one;

static void wrong_size_is_refused(void **state)
{
    (void)state;
    for (int ring = 0; ring < 2; ring++) {
        odd_one o = {.n = network_of(2, NULL)};
        manta_group *g;
        if (!ring) {
            o.n.o.implementation = MANTA_COMM_SHM;
            snprintf(o.n.address, sizeof o.n.address, "unix:%s/odd", network_folder);
        }
        for (int i = 0; i < 2; i++) {
            o.right[i] = (rank_thread){.join = join_network,
                                       .how = &o.n,
                                       .fn = once,
                                       .ctx = (void *)(uintptr_t)(ring ? "ring" : "shm"),
                                       .rank = i};
            if (i) {
                assert_int_not_equal(manta_group_open(o.n.address, 1, 3, &o.n.o, &g), MANTA_OK);
                /* by whoever sees it first */
                assert_true(strstr(manta_error_text(), "in a group of 3, and rank 0 in one of 2") ||
                            strstr(manta_error_text(), "in a group of 2, and rank 1 in one of 3"));
            }
            assert_int_equal(thread_start(&o.right[i].thread, "rank", rank_main, &o.right[i]), MANTA_OK);
        }
        for (int i = 0; i < 2; i++) thread_join(&o.right[i].thread);
        for (int i = 0; i < 2; i++) assert_int_equal(o.right[i].result, 0);
        close(o.n.o.listener);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call),
        cmocka_unit_test(every_call_chunked),
        cmocka_unit_test(same_bytes_as_shared_memory),
        cmocka_unit_test(calls_overlap),
        cmocka_unit_test(different_calls_are_told),
        cmocka_unit_test(who_is_late_is_named),
        cmocka_unit_test(who_leaves_is_named),
        cmocka_unit_test_setup_teardown(who_leaves_after_the_barrier_breaks_none, trouble_be_patient,
                                        trouble_be_usual),
        cmocka_unit_test(who_leaves_ends_those_that_wait_for_each_other),
        cmocka_unit_test(giving_up_ends_all),
        cmocka_unit_test(a_death_ends_all_and_is_named),
        cmocka_unit_test(auto_takes_shared_memory),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(wrong_size_is_refused),
    };

    return cmocka_run_group_tests(tests, network_setup, network_teardown);
}
