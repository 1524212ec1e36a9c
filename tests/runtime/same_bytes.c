/* same_bytes.c - one training in six ways, and the same bytes from all of them: one
 * process with V shards, V workers, a trainer's loop of V ranks, a TF_CONFIG cluster of
 * V processes, a strategy's loop of V replicas (forked, and as TF_CONFIG says), and
 * parameter servers without staleness. The model has convolutions, batch norm and
 * dropout; once with momentum, once with Adam, clipping by global norm, a regulariser
 * and a moving average. From four shards on a tree is not a row; with batches of 29 the
 * last one of an epoch has 3 samples, and some of four or five shards have none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sys/mman.h>

#include <manta/cluster.h>
#include <manta/strategy.h>
#include <manta/task.h>
#include <manta/trainer.h>

#include "format/scratch.h"
#include "train/group_fixture.h"
#include "train/members.h"
#include "train/rank_steps.h"

enum { EPOCHS = 2, MOST = 5 };

/* One training: the optimizer, V, and the samples of a step. */
typedef struct way {
    bool hard;
    int n;
    int64_t batch;
    manta_statistics statistics;
} way;

static training training_of(const way *y)
{
    return (training){.hard = y->hard,
                      .no_shuffle = true,
                      .epochs = EPOCHS,
                      .global_batch = y->batch,
                      .statistics = y->statistics};
}

static outcome alone(const way *y)
{
    training t = training_of(y);
    outcome o;

    t.shards = y->n;
    o = train(&t);
    if (o.st) fail_msg("alone: %s", o.error.text);
    return o;
}

static void compare(const outcome *golden, const void *state, const way *y, const char *who)
{
    if (!memcmp(golden->state, state, golden->size)) return;
    fail_msg("%s of %d, %s, batches of %d: other bytes than one process", who, y->n,
             y->hard ? "Adam" : "momentum", (int)y->batch);
}

/* ---- workers, and parameter servers ---- */

static void by_workers(const outcome *golden, const way *y)
{
    training t = training_of(y);
    outcome o;

    t.workers = y->n;
    o = train(&t);
    assert_same_outcome(golden, &o);
    mem_try_free(o.state);
}

/* The last number of the run section: the regulariser's share of the loss. */
static double *share_of(const outcome *o)
{
    return (double *)((uintptr_t)o->state + o->share);
}

static void by_servers(const outcome *golden, const way *y)
{
    training t = training_of(y);
    outcome o;

    t.workers = y->n;
    t.shards = y->n;
    t.servers = y->hard ? 1 : 2; /* norms need all parameters in one place */
    t.staleness = MANTA_ZERO;
    o = train(&t);
    if (o.st) fail_msg("parameter servers: %s", o.error.text);
    /* What the regulariser adds to the loss is a metric. A worker of theirs adds it up weight by
     * weight, an update block by block: the last bit may differ, and no other. */
    assert_true(fabs(*share_of(golden) - *share_of(&o)) <= 1e-12 * fabs(*share_of(golden)));
    *share_of(&o) = *share_of(golden);
    compare(golden, o.state, y, "parameter servers");
    mem_try_free(o.state);
}

/* ---- processes that TF_CONFIG names ---- */

/* The processes of one comparison, and where their states go, by rank. */
typedef struct crowd {
    const way *y;
    char *out;
    size_t size; /* of a state */
} crowd;

/* Runs `be` in n processes and compares what they leave. */
static void by_processes(const outcome *golden, const way *y, member_fn *be, const char *who)
{
    size_t size = (size_t)y->n * golden->size;
    char *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    crowd c = {.y = y, .out = all, .size = golden->size};

    assert_true(all != MAP_FAILED);
    assert_int_equal(members_run(&(members){.n = y->n, .be = be, .user = &c, .alarm_s = 240}), 0);
    for (int i = 0; i < y->n; i++) compare(golden, all + (size_t)i * golden->size, y, who);
    munmap(all, size);
}

static void be_member(void *user, const member *me)
{
    const crowd *c = user;
    training t = training_of(c->y);
    outcome o;

    if (member_open_cluster(me, (manta_cluster_options){.timeout_ms = 60000}, &t.cluster)) _exit(2);
    o = train(&t);
    if (o.st) _exit(3);
    memcpy(c->out + (size_t)me->rank * c->size, o.state, o.size);
    _exit(0);
}

/* ---- loops ---- */

/* What manta_fit() does, with this rank's rows of every batch. */
static manta_status drive(manta_session *s, int64_t batch, rank_steps r)
{
    manta_dataset *d = dataset();

    TRY(manta_loader_open(d, &(manta_loader_options){.batch_size = batch}, &r.l));
    r.s = s;
    TRY(rank_steps_run(&r, (train_position){0}, EPOCHS));
    manta_loader_close(r.l);
    manta_dataset_unref(d);
    return MANTA_OK;
}

static manta_status step_of_replica(void *who, manta_session *s, const manta_feed *f)
{
    return manta_replica_train_step(who, s, f);
}

static manta_status step_of_worker(void *who, manta_session *s, const manta_feed *f)
{
    return manta_worker_train_step(who, s, f);
}

/* The compile of train(): the model is the caller's. */
static manta_compile compile_of(bool hard, manta_optimizer *opt)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    static const manta_metric accuracy = {.name = "accuracy"};

    assert_ok(manta_optimizer_named(hard ? "adam" : "sgd", opt));
    opt->learning_rate = 0.01;
    if (hard) {
        opt->global_clipnorm = 0.5;
        opt->use_ema = true;
        opt->ema_momentum = 0.9;
    } else {
        opt->momentum = 0.9;
    }
    return (manta_compile){
        .optimizer = opt, .n_losses = 1, .losses = &cross_entropy, .n_metrics = 1, .metrics = &accuracy};
}

static manta_model *model_of(bool hard)
{
    return residual_model(hard ? (manta_regularizer){.l2 = 0.01f} : (manta_regularizer){0});
}

/* ---- a strategy ---- */

typedef struct mirrored {
    const way *y;
    manta_session *s;
} mirrored;

static manta_status replica_loop(manta_replica *r, void *user)
{
    const mirrored *m = user;

    TRY(drive(m->s, m->y->batch,
              (rank_steps){.rank = manta_replica_rank(r),
                           .ranks = manta_replica_count(r),
                           .who = r,
                           .step = step_of_replica}));
    return manta_replica_commit(r, 1);
}

/* The state at the end goes to `out`. */
static manta_status run_strategy(const way *y, const manta_strategy_options *o, void *out)
{
    manta_model *m = model_of(y->hard);
    manta_optimizer opt;
    manta_compile c = compile_of(y->hard, &opt);
    manta_session_options so = {.seed = 42, .threads = 1, .statistics = y->statistics};
    manta_strategy *strategy;
    manta_session *s;

    TRY(manta_session_open(m, &c, &so, &s));
    TRY(manta_strategy_open(o, &strategy));
    TRY(manta_strategy_mirror(strategy, s));
    TRY(manta_strategy_run(strategy, replica_loop, &(mirrored){y, s}));
    memcpy(out, s->state, s->l.state_size);
    manta_strategy_close(strategy);
    manta_session_close(s);
    manta_model_free(m);
    return MANTA_OK;
}

static void by_strategy(const outcome *golden, const way *y)
{
    void *got = malloc(golden->size);

    assert_ok(run_strategy(y, &(manta_strategy_options){.kind = MANTA_REPLICATION_MIRRORED, .replicas = y->n},
                           got));
    compare(golden, got, y, "a strategy");
    free(got);
}

/* Replicas that meet over the network. */
static void be_replica(void *user, const member *me)
{
    const crowd *c = user;

    setenv("TF_CONFIG", me->config, 1);
    if (run_strategy(c->y, &(manta_strategy_options){.group.listener = me->listener},
                     c->out + (size_t)me->rank * c->size)) {
        fprintf(stderr, "%s\n", manta_error_text());
        _exit(3);
    }
    _exit(0);
}

/* ---- a trainer ---- */

typedef struct settings {
    way y;
    char out[300]; /* with the rank behind it */
} settings;

static manta_status trainer_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    manta_model *m = model_of(c->y.hard);
    manta_optimizer opt;
    manta_compile compile = compile_of(c->y.hard, &opt);
    manta_session_options so = {.seed = 42, .threads = 1, .statistics = c->y.statistics};
    manta_session *s;
    char path[320];
    FILE *f;

    TRY(manta_prepare_model(w, m, &compile, &so, &s));
    TRY(drive(s, c->y.batch,
              (rank_steps){.rank = manta_worker_rank(w),
                           .ranks = manta_worker_world_size(w),
                           .who = w,
                           .step = step_of_worker}));
    snprintf(path, sizeof path, "%s.%d", c->out, manta_worker_rank(w));
    f = fopen(path, "wb");
    if (!f || fwrite(s->state, 1, s->l.state_size, f) != s->l.state_size || fclose(f))
        return manta_fail(MANTA_EIO, "%s", path);
    manta_session_close(s);
    manta_model_free(m);
    return MANTA_OK;
}

static void by_trainer(const outcome *golden, const way *y)
{
    settings c = {.y = *y};
    manta_trainer_options o = {.loop = trainer_loop,
                               .config = &c,
                               .config_size = sizeof c,
                               .scaling = {.num_workers = y->n, .threads_per_worker = 1},
                               .run = {.storage = scratch_path("runs")}};
    manta_result *r = NULL;
    char *got = malloc(golden->size), path[320];

    snprintf(c.out, sizeof c.out, "%s", scratch_path("state"));
    assert_ok(manta_trainer_fit(&o, &r));
    manta_result_free(r);
    for (int i = 0; i < y->n; i++) {
        FILE *f;
        snprintf(path, sizeof path, "%s.%d", c.out, i);
        assert_non_null(f = fopen(path, "rb"));
        assert_int_equal(fread(got, 1, golden->size, f), golden->size);
        fclose(f);
        compare(golden, got, y, "a trainer");
    }
    free(got);
}

/* ---- */

static void six_ways(const way *y)
{
    outcome golden = alone(y);

    by_workers(&golden, y);
    by_processes(&golden, y, be_member, "a cluster");
    by_servers(&golden, y);
    by_strategy(&golden, y);
    by_processes(&golden, y, be_replica, "a strategy over the network");
    by_trainer(&golden, y);
    mem_try_free(golden.state);
}

static void full_batches(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST; n++) {
        six_ways(&(way){.n = n, .batch = 32});
        six_ways(&(way){.n = n, .batch = 32, .hard = true});
    }
}

static void shards_without_samples(void **state)
{
    (void)state;
    for (int n = 4; n <= MOST; n++) {
        six_ways(&(way){.n = n, .batch = 29});
        six_ways(&(way){.n = n, .batch = 29, .hard = true});
    }
}

/* The first shard that has samples gives the statistics. */
static void statistics_of_the_first(void **state)
{
    (void)state;
    six_ways(&(way){.n = 5, .batch = 29, .statistics = MANTA_STATISTICS_FIRST});
}

static int teardown(void **state)
{
    manta_shutdown();
    return scratch_teardown(state);
}

/* Workers are this program as it was at manta_init(): what they need is said in the
 * environment, and only by the first of them. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(full_batches),
                                       cmocka_unit_test(shards_without_samples),
                                       cmocka_unit_test(statistics_of_the_first)};
    const char *told = getenv("TEST_SCRATCH");

    make_data();
    if (!told) {
        if (scratch_setup_quick(NULL)) return 1;
        setenv("TEST_SCRATCH", scratch_dir, 1);
        setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
        setenv("XDG_CONFIG_HOME", scratch_path("config"), 1);
        setenv("MANTA_LOG", "off", 1);
    } else {
        snprintf(scratch_dir, sizeof scratch_dir, "%s", told);
    }
    if (manta_init(&argc, &argv, &(manta_node_options){.num_cpus = 4})) {
        fprintf(stderr, "%s\n", manta_error_text());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, teardown);
}
