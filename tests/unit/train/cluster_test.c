/* cluster_test.c - real processes of a cluster on loopback: the bytes of one
 * process, whoever dies where, and over a network that misbehaves. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/chaos.h"
#include "train/cluster/cluster.h"
#include "train/group_fixture.h"
#include "train/members.h"

enum { RANKS = 3, MAX_STATE = 1 << 20, PATIENCE_MS = 120000 };

/* What a process leaves behind, in memory that all share. */
typedef struct legacy {
    manta_status st;
    char error[440];
    char causes[1000]; /* of recoveries */
    size_t size;
    int ahead, behind; /* looks that found the next rows read, or not in time */
    manta_metrics metrics;
    unsigned char state[MAX_STATE];
} legacy;

/* Where a process dies, and at which time it comes there; 0: never. */
typedef struct death {
    cluster_point point;
    int nth;
} death;

typedef struct cluster_run {
    int n;
    training t;
    legacy *left; /* by rank */
    int deaths;
    /* of the first process of a rank */
    int victim; /* -1: nobody */
    death plan;
    cluster_echo echo;
    int twice; /* so many more processes of it have the plan */
    chaos_plan chaos; /* of everybody */
    bool chaotic, plain;
    bool several; /* calls, instead of one training */
    bool ahead; /* samples are slow to read, so a thread reads them */
} cluster_run;

/* Two calls of fit and one of evaluate, one after the other. */
static outcome several_calls(manta_cluster *c, int shards)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_model *m = residual_model((manta_regularizer){0});
    manta_fit_options o = {.epochs = 1, .global_batch = 32};
    manta_dataset *d = dataset();
    manta_session *s = NULL;
    outcome out = {0};

    assert_ok(manta_session_open(
        m, &(manta_compile){.n_losses = 1, .losses = &cross_entropy},
        &(manta_session_options){.seed = 3, .threads = 1, .shards = shards, .cluster = c}, &s));
    out.st = manta_fit(s, d, &o, NULL);
    if (!out.st) out.st = manta_fit(s, d, &o, NULL);
    if (!out.st) out.st = manta_evaluate(s, d, &o, &out.metrics);
    manta_error_get(&out.error);
    out.size = s->l.state_size;
    out.state = mem_try(out.size);
    memcpy(out.state, s->state, out.size);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_model_free(m);
    return out;
}

static bool note_causes(void *user, manta_session *s, const manta_event *e)
{
    legacy *left = user;
    size_t n = strlen(left->causes);

    (void)s;
    if (e->kind == MANTA_EVENT_RECOVERED)
        snprintf(left->causes + n, sizeof left->causes - n, "%s; ", e->cause);
    return true;
}

/* ---- reading ahead ---- */

enum { AHEAD_BATCH = 6, AHEAD_STEPS = N / AHEAD_BATCH };

/* Times that this process has read a sample; before the epoch came near it. */
static _Atomic int readings[N];
static int before[N];

static manta_status note_reading(manta_sample *s, void *user)
{
    (void)user;
    for (int c = 0; c < 2; c++)
        memcpy(s->out[c].array.data, s->in[c].array.data, manta_array_bytes(&s->in[c].array));
    atomic_fetch_add(&readings[s->index], 1);
    return MANTA_OK;
}

/* The thread that computes is here, so whoever reads another row now reads ahead. Every
 * rank has a row of each step's six at least. */
static bool look_ahead(void *user, manta_session *s, const manta_event *e)
{
    legacy *left = user;
    int64_t deadline = clock_deadline(PATIENCE_MS / 2);
    int next = (int)e->step * AHEAD_BATCH, seen = 0; /* so many steps are done */

    note_causes(user, s, e);
    if (e->kind != MANTA_EVENT_STEP || e->epoch != 1) return true;
    for (int i = 5 * AHEAD_BATCH; i < N && e->step == 1; i++) before[i] = atomic_load(&readings[i]);
    if (e->step < 5 || e->step >= AHEAD_STEPS) return true;
    while (!seen && clock_now_ns() < deadline) {
        for (int i = next; i < next + AHEAD_BATCH; i++) seen += atomic_load(&readings[i]) != before[i];
    }
    if (seen) {
        left->ahead++;
    } else {
        left->behind++;
    }
    return true;
}

static void be_rank(void *user, const member *me)
{
    const cluster_run *r = user;
    manta_cluster_options o = {.insecure_bulk = r->plain, .timeout_ms = PATIENCE_MS};
    bool doomed = me->rank == r->victim && me->deaths <= r->twice;
    legacy *left = &r->left[me->rank];
    training t = r->t;
    outcome out;

    cluster_piece = 1; /* of the three blocks there are */
    if (doomed && r->plan.nth)
        crash_plan_set(&(crash_plan){.point = &cluster_crash_points[r->plan.point], .nth = r->plan.nth});
    if (doomed) cluster_echo_plan = r->echo;
    t.event = r->ahead ? look_ahead : note_causes;
    t.user = left;
    if (r->ahead) {
        feed_slow_ns = 0;
        t.data = manta_dataset_map(dataset(), note_reading, NULL, 0, 0, NULL);
    }
    if (r->chaotic) chaos_begin(r->chaos);
    left->st = member_open_cluster(me, o, &t.cluster);
    if (!left->st) {
        out = r->several ? several_calls(t.cluster, t.shards) : train(&t);
        left->st = out.st;
        left->size = out.size;
        left->metrics = out.metrics;
        memcpy(left->state, out.state, out.size);
    }
    if (left->st) snprintf(left->error, sizeof left->error, "%s", manta_error_text());
    _exit(0);
}

/* Starts all, starts again who is killed, and waits for the end of all. */
static void run_cluster(cluster_run *r)
{
    r->left =
        mmap(NULL, (size_t)r->n * sizeof *r->left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r->left != MAP_FAILED);
    r->deaths = members_run(&(members){.n = r->n, .be = be_rank, .user = r, .alarm_s = PATIENCE_MS / 1000});
}

static void assert_result(cluster_run *r, const outcome *expected, const char *what)
{
    for (int i = 0; i < r->n; i++) {
        const legacy *left = &r->left[i];
        if (left->st) fail_msg("%s: rank %d: %s", what, i, left->error);
        assert_int_equal(left->size, expected->size);
        if (memcmp(left->state, expected->state, expected->size))
            fail_msg("%s: rank %d has other bytes", what, i);
        assert_int_equal(left->metrics.n, expected->metrics.n);
        for (int k = 0; k < left->metrics.n; k++)
            assert_memory_equal(&left->metrics.value[k], &expected->metrics.value[k], sizeof(double));
    }
    munmap(r->left, (size_t)r->n * sizeof *r->left);
}

static void one_process(const training *t, outcome *out)
{
    training alone = *t;

    alone.cluster = NULL;
    *out = train(&alone);
    if (out->st) fail_msg("alone: %s", out->error.text);
}

static void negative_timeouts_are_refused(void **state)
{
    manta_cluster_options o = {.tf_config = "{\"cluster\":{\"worker\":[\"localhost:1\"]},"
                                            "\"task\":{\"type\":\"worker\",\"index\":0}}"};
    manta_cluster *c = NULL;

    (void)state;
    o.timeout_ms = -2;
    assert_fails_with(manta_cluster_open(&o, &c), MANTA_EINVAL,
                      "timeout_ms of a cluster is -2, expected 0 or more, or MANTA_NONE");
    assert_null(c);
    o.timeout_ms = MANTA_NONE;
    assert_ok(manta_cluster_open(&o, &c));
    manta_cluster_close(c);
}

/* Shards spread evenly, unevenly, and with some that have no samples. */
static void same_bytes(void **state)
{
    static const struct {
        int ranks, shards;
        bool hard, plain;
        int64_t global_batch;
        manta_statistics statistics;
    } cases[] = {
        {2, 2, true, false, 0, MANTA_STATISTICS_MEAN}, {2, 3, false, true, 0, MANTA_STATISTICS_MEAN},
        {3, 6, true, false, 0, MANTA_STATISTICS_MEAN}, {3, 4, false, false, 3, MANTA_STATISTICS_MEAN},
        {2, 5, true, true, 0, MANTA_STATISTICS_MEAN},  {2, 2, true, false, 0, MANTA_STATISTICS_SYNC},
        {2, 3, false, true, 0, MANTA_STATISTICS_SYNC}, {3, 6, true, false, 0, MANTA_STATISTICS_SYNC},
        {3, 4, true, false, 2, MANTA_STATISTICS_SYNC}}; /* a rank without samples */

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cluster_run r = {.n = cases[i].ranks, .victim = -1, .plain = cases[i].plain};
        outcome expected;
        r.t = (training){.shards = cases[i].shards,
                         .hard = cases[i].hard,
                         .validate = true,
                         .statistics = cases[i].statistics,
                         .global_batch = cases[i].global_batch,
                         .steps_per_epoch = cases[i].global_batch ? 4 : 0};
        one_process(&r.t, &expected);
        run_cluster(&r);
        assert_result(&r, &expected, "undisturbed");
        mem_try_free(expected.state);
    }
}

/* Calls follow each other; a process that dies in the second takes up there. */
static void several(void **state)
{
    outcome expected = several_calls(NULL, 3);

    (void)state;
    assert_ok(expected.st);
    for (int nth = 0; nth < 9;
         nth += nth ? 3 : 2) { /* undisturbed, in the first, the second, the evaluation */
        cluster_run r = {.n = 2,
                         .t = {.shards = 3},
                         .victim = nth ? 1 : -1,
                         .plan = {CLUSTER_CRASH_STEP_BEGIN, nth},
                         .several = true};
        run_cluster(&r);
        assert_int_equal(r.deaths, nth > 0);
        assert_result(&r, &expected, "several calls");
    }
    mem_try_free(expected.state);
}

/* Every point, every rank, early and late. */
static void killed_anywhere(void **state)
{
    static const int nth[] = {1, 4};
    training t = {.shards = 4, .hard = true, .validate = true};
    outcome expected;
    int deaths = 0;

    (void)state;
    one_process(&t, &expected);
    for (int p = 0; p <= CLUSTER_CRASH_END_BEGIN; p++) {
        for (int rank = 0; rank < RANKS; rank++) {
            /* Who is sent the state, and who sends it, follows from a death of rank 1. */
            for (size_t k = 0; k < 2; k++) {
                cluster_run r = {.n = RANKS, .t = t, .victim = rank, .plan = {(cluster_point)p, nth[k]}};
                char what[80];
                if (k && (p == CLUSTER_CRASH_MEET_BEGIN || p == CLUSTER_CRASH_MEET_GATHERED ||
                          p == CLUSTER_CRASH_SYNC_POSTED || p == CLUSTER_CRASH_SYNC_HEARD ||
                          p == CLUSTER_CRASH_END_BEGIN || p == CLUSTER_CRASH_DECIDE_BEGIN ||
                          p == CLUSTER_CRASH_DECIDED))
                    continue;
                snprintf(what, sizeof what, "%s, rank %d, time %d", cluster_crash_points[p].name, rank,
                         nth[k]);
                run_cluster(&r);
                assert_result(&r, &expected, what);
                deaths += r.deaths;
            }
        }
    }
    assert_true(deaths > 50);
    mem_try_free(expected.state);
}

/* The successor dies too, while it is given the state. */
static void killed_again(void **state)
{
    training t = {.shards = 3, .validate = true};
    outcome expected;

    (void)state;
    one_process(&t, &expected);
    for (int p = CLUSTER_CRASH_STEP_BEGIN; p <= CLUSTER_CRASH_SHARD_SENT; p++) {
        cluster_run r = {.n = 2, .t = t, .victim = (p + 1) % 2, .plan = {(cluster_point)p, 2}, .twice = 2};
        run_cluster(&r);
        assert_int_equal(r.deaths, 3);
        assert_result(&r, &expected, "three times");
    }
    mem_try_free(expected.state);
}

/* Statistics of all shards: killed before, at and between the batch norms, both
 * ways; four numbers of a shard are sent in a step. */
static void killed_in_lockstep(void **state)
{
    static const death plans[] = {{CLUSTER_CRASH_STEP_BEGIN, 2},   {CLUSTER_CRASH_NUMBERS_SENT, 1},
                                  {CLUSTER_CRASH_NUMBERS_SENT, 2}, {CLUSTER_CRASH_NUMBERS_SENT, 7},
                                  {CLUSTER_CRASH_NUMBERS_SENT, 8}, {CLUSTER_CRASH_SHARD_COMPUTED, 2},
                                  {CLUSTER_CRASH_SHARD_SENT, 1},   {CLUSTER_CRASH_SUM_POSTED, 2}};
    training t = {.shards = 3, .hard = true, .validate = true, .statistics = MANTA_STATISTICS_SYNC};
    outcome expected;

    (void)state;
    one_process(&t, &expected);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        for (int rank = 0; rank < 2; rank++) {
            cluster_run r = {.n = 2, .t = t, .victim = rank, .plan = plans[i]};
            char what[80];
            snprintf(what, sizeof what, "in lockstep: %s, rank %d, time %d",
                     cluster_crash_points[plans[i].point].name, rank, plans[i].nth);
            run_cluster(&r);
            assert_int_equal(r.deaths, 1);
            assert_result(&r, &expected, what);
        }
    }
    mem_try_free(expected.state);
}

/* A rank sends something twice: the other says so and treats it as lost, nothing
 * is counted twice, and the bytes are the same. */
static void sent_twice(void **state)
{
    static const struct {
        int rank;
        cluster_echo echo;
        const char *says;
    } cases[] = {{1, {CLUSTER_GRADIENTS, 1}, "worker/1 sent message 18, item 1, of step 0 twice"},
                 {1, {CLUSTER_GRADIENTS, 3}, "worker/1 sent message 18, item 1, of step 1 twice"},
                 {1, {CLUSTER_REST, 1}, "worker/1 sent message 19, item 1, of step 0 twice"},
                 {1, {CLUSTER_SUM, 3}, "worker/1 sent message 21, item 1, of step 1 twice"},
                 {0, {CLUSTER_RATE, 2}, "worker/0 sent message 22, item 0, of step 1 twice"},
                 {1, {CLUSTER_NUMBERS, 1}, "worker/1: message 20, item 1, of"}};

    (void)state;
    for (int k = 0; k < 2; k++) {
        training t = {.shards = 3,
                      .hard = true,
                      .validate = true,
                      .statistics = k ? MANTA_STATISTICS_SYNC : MANTA_STATISTICS_MEAN};
        outcome expected;
        one_process(&t, &expected);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            cluster_run r = {.n = 2, .t = t, .victim = cases[i].rank, .echo = cases[i].echo};
            if (!k && cases[i].echo.kind == CLUSTER_NUMBERS) continue;
            run_cluster(&r);
            assert_int_equal(r.deaths, 0);
            if (!strstr(r.left[1 - cases[i].rank].causes, cases[i].says))
                fail_msg("%s: \"%s\"", cases[i].says, r.left[1 - cases[i].rank].causes);
            assert_result(&r, &expected, cases[i].says);
        }
        mem_try_free(expected.state);
    }
}

/* The rows of the next step are there before it begins, in every rank and in the process
 * that follows a lost one; and the bytes are those of one process. */
static void ranks_read_ahead(void **state)
{
    static const death plans[] = {{0}, {CLUSTER_CRASH_STEP_BEGIN, 8}};

    (void)state;
    for (int k = 0; k < 4; k++) {
        cluster_run r = {.n = 2, .victim = k % 2 ? 1 : -1, .plan = plans[k % 2], .ahead = true};
        outcome expected;
        r.t = (training){.shards = 3,
                         .global_batch = AHEAD_BATCH,
                         .no_shuffle = true,
                         .epochs = 2,
                         .statistics = k < 2 ? MANTA_STATISTICS_MEAN : MANTA_STATISTICS_SYNC};
        one_process(&r.t, &expected);
        run_cluster(&r);
        assert_int_equal(r.deaths, k % 2);
        for (int i = 0; i < r.n; i++) {
            assert_int_equal(r.left[i].behind, 0);
            assert_true(r.left[i].ahead > 0);
        }
        assert_result(&r, &expected, "read ahead");
        mem_try_free(expected.state);
    }
}

/* In pieces, late, and with connections that break: the work is done. */
static void bad_network(void **state)
{
    static const chaos_plan plans[] = {{.piece = 999},
                                       {.late = 2},
                                       {.reset_at = 30000, .once = true},
                                       {.reset_at = 70000, .once = true, .piece = 5000}};
    static const manta_statistics statistics[] = {MANTA_STATISTICS_MEAN, MANTA_STATISTICS_SYNC};

    (void)state;
    for (int k = 0; k < 2; k++) {
        training t = {.shards = 2, .validate = true, .epochs = 1, .statistics = statistics[k]};
        outcome expected;
        one_process(&t, &expected);
        for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
            cluster_run r = {.n = 2, .t = t, .victim = -1, .chaos = plans[i], .chaotic = true};
            run_cluster(&r);
            assert_result(&r, &expected, k ? "bad network, in lockstep" : "bad network");
        }
        mem_try_free(expected.state);
    }
}

/* ---- who is named ---- */

/* What all ranks say in a meeting, seen from one of them. */
static int culprit_of(const cluster_word *said, int n, int rank, char *cause)
{
    cluster_peer peers[4] = {
        {.node = "worker/0"}, {.node = "worker/1"}, {.node = "worker/2"}, {.node = "worker/3"}};
    manta_cluster c = {.n = n, .rank = rank, .peers = peers, .word = said[rank]};

    for (int r = 0; r < n; r++) {
        peers[r].address = "host:1";
        peers[r].word = said[r];
    }
    cluster_find_culprit(&c);
    snprintf(cause, sizeof c.culprit_cause, "%s", c.culprit_cause);
    return c.culprit;
}

static void all_blame_the_same_rank(void **state)
{
    /* Rank 0 was killed; 1 saw it, closed its connections, and was taken for the lost one by 2 and 3. */
    const cluster_word killed[] = {{.generation = 0, .lost = -1},
                                   {.generation = 5, .lost = 0, .cause = "worker/0: reset"},
                                   {.generation = 5, .lost = 1, .cause = "worker/1: closed"},
                                   {.generation = 5, .lost = 1, .cause = "worker/1: closed"}};
    /* Rank 3 was cut off and has lost somebody too. */
    const cluster_word cut[] = {{.generation = 5, .lost = 3, .cause = "worker/3: silent"},
                                {.generation = 5, .lost = 0, .cause = "worker/0: closed"},
                                {.generation = 5, .lost = 3, .cause = "worker/3: silent"},
                                {.generation = 5, .lost = 0, .cause = "worker/0: silent"}};
    const cluster_word unseen[] = {{.generation = 5, .lost = 1, .cause = "worker/1: closed"},
                                   {.generation = 5, .lost = -1},
                                   {.generation = 4, .lost = -1}};
    char cause[400];

    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(culprit_of(killed, 4, rank, cause), 0);
        assert_string_equal(cause, "worker/0: reset");
        assert_int_equal(culprit_of(cut, 4, rank, cause), 0); /* as many have lost 0: the lowest */
        assert_string_equal(cause, "worker/0: closed");
    }
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(culprit_of(unseen, 3, rank, cause), 2);
        assert_string_equal(cause, "worker/2 (host:1): it was started again");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_blame_the_same_rank),
        cmocka_unit_test(negative_timeouts_are_refused),
        cmocka_unit_test(same_bytes),
        cmocka_unit_test(several),
        cmocka_unit_test(killed_anywhere),
        cmocka_unit_test(killed_again),
        cmocka_unit_test(killed_in_lockstep),
        cmocka_unit_test(sent_twice),
        cmocka_unit_test(ranks_read_ahead),
        cmocka_unit_test(bad_network),
    };

    return cmocka_run_group_tests(tests, data_and_key, remove_key);
}
