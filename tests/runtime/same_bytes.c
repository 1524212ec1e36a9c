/* same_bytes.c - one training in six ways, and the same bytes from all of them: one
 * process with V shards, V workers, a trainer's loop of V ranks, a TF_CONFIG cluster of
 * V processes, a strategy's loop of V replicas, and parameter servers without
 * staleness. The model has convolutions, batch norm and dropout; once with momentum,
 * once with Adam, clipping by global norm, a regulariser and a moving average. */
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
#include "net/tcp.h"
#include "train/group_fixture.h"
#include "train/session/feed.h"

enum { EPOCHS = 2, BATCH = 32, MOST = 4 };

static training training_of(bool hard)
{
    return (training){.hard = hard, .no_shuffle = true, .epochs = EPOCHS, .global_batch = BATCH};
}

static outcome alone(bool hard, int shards)
{
    training t = training_of(hard);
    outcome o;

    t.shards = shards;
    o = train(&t);
    if (o.st) fail_msg("alone: %s", o.error.text);
    return o;
}

static void compare(const outcome *golden, const void *state, const char *who)
{
    if (memcmp(golden->state, state, golden->size)) fail_msg("%s: other bytes than one process", who);
}

/* ---- workers, and parameter servers ---- */

static void by_workers(const outcome *golden, bool hard, int n)
{
    training t = training_of(hard);
    outcome o;

    t.workers = n;
    o = train(&t);
    assert_same_outcome(golden, &o);
    mem_try_free(o.state);
}

/* The last number of the run section: the regulariser's share of the loss. */
static double *share_of(const outcome *o)
{
    return (double *)((uintptr_t)o->state + o->share);
}

static void by_servers(const outcome *golden, bool hard, int n)
{
    training t = training_of(hard);
    outcome o;

    t.workers = n;
    t.shards = n;
    t.servers = hard ? 1 : 2; /* norms need all parameters in one place */
    t.staleness = MANTA_ZERO;
    o = train(&t);
    if (o.st) fail_msg("parameter servers: %s", o.error.text);
    /* What the regulariser adds to the loss is a metric. A worker of theirs adds it up weight by
     * weight, an update block by block: the last bit may differ, and no other. */
    assert_true(fabs(*share_of(golden) - *share_of(&o)) <= 1e-12 * fabs(*share_of(golden)));
    *share_of(&o) = *share_of(golden);
    compare(golden, o.state, "parameter servers");
    mem_try_free(o.state);
}

/* ---- a cluster ---- */

static void be_rank(const char *config, int door, bool hard, char *out)
{
    training t = training_of(hard);
    char fd[16];
    outcome o;

    alarm(100);
    snprintf(fd, sizeof fd, "%d", door);
    setenv("MANTA_LISTEN_FD", fd, 1);
    if (manta_cluster_open(&(manta_cluster_options){.tf_config = config, .timeout_ms = 60000}, &t.cluster))
        _exit(2);
    o = train(&t);
    if (o.st) _exit(3);
    memcpy(out, o.state, o.size);
    _exit(0);
}

static void by_cluster(const outcome *golden, bool hard, int n)
{
    char addresses[256] = "", config[400], *all;
    int door[MOST], port, status;
    pid_t pid[MOST];

    all = mmap(NULL, (size_t)n * golden->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    for (int i = 0; i < n; i++) {
        tcp_place at;
        assert_ok(tcp_resolve("127.0.0.1:0", &at));
        assert_ok(tcp_listen(&at, &door[i]));
        assert_ok(tcp_port(door[i], &port));
        snprintf(addresses + strlen(addresses), sizeof addresses - strlen(addresses), "%s\"127.0.0.1:%d\"",
                 i ? "," : "", port);
    }
    for (int i = 0; i < n; i++) {
        snprintf(config, sizeof config,
                 "{\"cluster\":{\"worker\":[%s]},\"task\":{\"type\":\"worker\",\"index\":%d}}", addresses, i);
        assert_true((pid[i] = fork()) >= 0);
        if (!pid[i]) be_rank(config, door[i], hard, all + (size_t)i * golden->size);
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
        compare(golden, all + (size_t)i * golden->size, "a cluster");
        close(door[i]);
    }
    munmap(all, (size_t)n * golden->size);
}

/* ---- loops ---- */

typedef manta_status step_fn(void *who, manta_session *s, const manta_feed *f);

/* What manta_fit() does, with this rank's rows of every batch. */
static manta_status drive(manta_session *s, int rank, int ranks, step_fn *step, void *who)
{
    const manta_column_spec *columns;
    manta_dataset *d = dataset();
    manta_loader *l;
    manta_batch b;
    feed_map map;
    int n_columns;

    TRY(manta_loader_open(d, &(manta_loader_options){.batch_size = BATCH}, &l));
    n_columns = manta_loader_columns(l, &columns);
    TRY(feed_map_init(&map, s->m, true, n_columns, columns));
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        layout_run(&s->l, s->state)->epoch = epoch;
        layout_run(&s->l, s->state)->step = 0;
        manta_session_reset_metrics(s);
        TRY(manta_loader_seek(l, epoch, 0));
        while (manta_loader_next(l, &b)) {
            manta_feed f = feed_of(&map, &b);
            int64_t lo = f.count * rank / ranks, hi = f.count * (rank + 1) / ranks;
            f = session_feed_rows(&f, lo, hi);
            f.first = lo;
            TRY(step(who, s, &f));
        }
        TRY(manta_loader_status(l));
    }
    apply_average(&s->l, &s->opt, s->state);
    manta_loader_close(l);
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

static manta_status replica_loop(manta_replica *r, void *user)
{
    TRY(drive(user, manta_replica_rank(r), manta_replica_count(r), step_of_replica, r));
    return manta_replica_commit(r, 1);
}

static void by_strategy(const outcome *golden, bool hard, int n)
{
    manta_model *m = model_of(hard);
    manta_optimizer opt;
    manta_compile c = compile_of(hard, &opt);
    manta_strategy *strategy;
    manta_session *s;

    assert_ok(manta_session_open(m, &c, &(manta_session_options){.seed = 42, .threads = 1}, &s));
    assert_ok(manta_strategy_open(
        &(manta_strategy_options){.kind = MANTA_REPLICATION_MIRRORED, .replicas = n}, &strategy));
    assert_ok(manta_strategy_mirror(strategy, s));
    assert_ok(manta_strategy_run(strategy, replica_loop, s));
    compare(golden, s->state, "a strategy");
    manta_strategy_close(strategy);
    manta_session_close(s);
    manta_model_free(m);
}

/* ---- a trainer ---- */

typedef struct settings {
    bool hard;
    char out[300]; /* with the rank behind it */
} settings;

static manta_status trainer_loop(manta_worker *w)
{
    const settings *c = manta_worker_config(w, NULL);
    manta_model *m = model_of(c->hard);
    manta_optimizer opt;
    manta_compile compile = compile_of(c->hard, &opt);
    manta_session *s;
    char path[320];
    FILE *f;

    TRY(manta_prepare_model(w, m, &compile, &(manta_session_options){.seed = 42, .threads = 1}, &s));
    TRY(drive(s, manta_worker_rank(w), manta_worker_world_size(w), step_of_worker, w));
    snprintf(path, sizeof path, "%s.%d", c->out, manta_worker_rank(w));
    f = fopen(path, "wb");
    if (!f || fwrite(s->state, 1, s->l.state_size, f) != s->l.state_size || fclose(f))
        return manta_fail(MANTA_EIO, "%s", path);
    manta_session_close(s);
    manta_model_free(m);
    return MANTA_OK;
}

static void by_trainer(const outcome *golden, bool hard, int n)
{
    settings c = {.hard = hard};
    manta_trainer_options o = {.loop = trainer_loop,
                               .config = &c,
                               .config_size = sizeof c,
                               .scaling = {.num_workers = n, .threads_per_worker = 1},
                               .run = {.storage = scratch_path("runs")}};
    manta_result *r = NULL;
    char *got = malloc(golden->size), path[320];

    snprintf(c.out, sizeof c.out, "%s", scratch_path("state"));
    assert_ok(manta_trainer_fit(&o, &r));
    manta_result_free(r);
    for (int i = 0; i < n; i++) {
        FILE *f;
        snprintf(path, sizeof path, "%s.%d", c.out, i);
        assert_non_null(f = fopen(path, "rb"));
        assert_int_equal(fread(got, 1, golden->size, f), golden->size);
        fclose(f);
        compare(golden, got, "a trainer");
    }
    free(got);
}

/* ---- */

static void six_ways(void **state)
{
    (void)state;
    for (int hard = 0; hard < 2; hard++) {
        for (int n = 2; n <= 3; n++) {
            outcome golden = alone(hard, n);
            by_workers(&golden, hard, n);
            by_cluster(&golden, hard, n);
            by_servers(&golden, hard, n);
            by_strategy(&golden, hard, n);
            by_trainer(&golden, hard, n);
            mem_try_free(golden.state);
        }
    }
}

/* A tree of four is not a row of four: those that add slots by the tree. */
static void four_shards(void **state)
{
    (void)state;
    for (int hard = 0; hard < 2; hard++) {
        outcome golden = alone(hard, 4);
        by_workers(&golden, hard, 4);
        by_cluster(&golden, hard, 4);
        by_servers(&golden, hard, 4);
        by_trainer(&golden, hard, 4);
        mem_try_free(golden.state);
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(six_ways), cmocka_unit_test(four_shards)};
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
