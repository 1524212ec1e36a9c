/* random_test.c - a generator of trainings: small models, data, optimizers and faults by a seed, each trained by one
 * process and then again in other ways (random_ways.h), to the same bytes.
 *
 * Every training is done with more threads, by workers and in two parts where it has shards and epochs for that, and in
 * one of the other ways, which the seed chooses. What is left out, and why:
 *
 *   workers, cluster, ranks   of a training of one shard: there is nothing to divide
 *   parts                     of a moving average: it takes the weights' place at the end of each fit
 *   several servers           where an update needs all parameters in one place (clipping by norms, regularisers)
 *   ranks                     of batch norm with statistics of all shards, which ranks do not have (docs/from-pytorch.md)
 *
 * Two things are not compared to the last bit: by parameter servers what regularisers add to the loss, which a worker
 * adds up weight by weight and an update block by block; and after a checkpoint in the middle of an epoch the sums of its
 * metrics, which a checkpoint does not keep.
 *
 * A failure prints the seed (MANTA_SEED replays it) and the training in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <manta/log.h>

#include "sim.h"
#include "train/random_cluster.h"
#include "train/random_ranks.h"
#include "train/random_servers.h"

/* ---- ways that a training allows ---- */

static way alone_with(int threads)
{
    way w = {.kind = WAY_ALONE, .threads = threads};

    buf_printf(&w.words, "one process, %d threads", threads);
    return w;
}

static way draw_workers(dice *d, const training *t)
{
    way w = {.kind = WAY_WORKERS};

    w.workers = between(d, 2, t->shards < MOST_WORKERS ? t->shards : MOST_WORKERS);
    w.threads = between(d, 1, 2);
    for (int i = 0; i < 2; i++) w.kill_at[i] = roll(d, 3) ? between(d, 1, 8) : 0;
    w.resize_at = roll(d, 3) ? 0 : between(d, 1, 6);
    buf_printf(&w.words, "%d workers with %d threads, kills after %d and %d steps, one worker after %d",
               w.workers, w.threads, w.kill_at[0], w.kill_at[1], w.resize_at);
    return w;
}

static way draw_parts(dice *d, const training *t)
{
    way w = {.kind = WAY_PARTS, .cut_at = between(d, 1, t->epochs - 1)};

    buf_printf(&w.words, "cut after %d epochs", w.cut_at);
    return w;
}

static void say_death(way *w)
{
    if (w->point) buf_printf(&w->words, ", %s the %dth time", w->point->name, w->nth);
}

static way draw_cluster(dice *d, const training *t)
{
    way w = {.kind = WAY_CLUSTER};

    w.workers = between(d, 2, t->shards < MOST_WORKERS ? t->shards : MOST_WORKERS);
    w.victim = roll(d, w.workers);
    w.deaths = roll(d, 4) ? 1 : 2;
    w.nth = flip(d) ? 1 : between(d, 2, 6);
    if (roll(d, 3)) w.point = &cluster_crash_points[roll(d, CLUSTER_CRASH_END_BEGIN + 1)];
    buf_printf(&w.words, "a cluster of %d, rank %d dies %d times", w.workers, w.victim,
               w.point ? w.deaths : 0);
    say_death(&w);
    return w;
}

static way draw_servers(dice *d, const outcome *golden)
{
    way w = {.kind = WAY_SERVERS};

    w.workers = between(d, 1, MOST_WORKERS);
    w.servers = between(d, 1, golden->needs_norms ? 1 : 3);
    w.nth = flip(d) ? 1 : between(d, 2, 6);
    if (roll(d, 3)) w.point = &ps_crash_points[roll(d, ps_points)];
    buf_printf(&w.words, "%d parameter servers and %d workers", w.servers, w.workers);
    say_death(&w);
    return w;
}

static way draw_ranks(dice *d, const training *t)
{
    way w = {.kind = WAY_RANKS, .workers = t->shards};

    w.save_every = roll(d, 3) ? between(d, 1, 5) : 0;
    w.victim = roll(d, t->shards);
    w.kill_at[0] = roll(d, 3) ? between(d, 1, 9) : 0;
    buf_printf(&w.words, "%d ranks, a checkpoint every %d steps, rank %d is killed after %d", w.workers,
               w.save_every, w.victim, w.kill_at[0]);
    return w;
}

/* A cluster, parameter servers, or a trainer's ranks; false: none of them this time. */
static bool draw_other(dice *d, const training *t, const outcome *golden, way *out)
{
    int which = roll(d, 3);

    if (which == 0 && t->shards == 1) return false;
    if (which == 1 && (t->shards == 1 || golden->meets)) which = 2;
    *out = which == 0 ? draw_cluster(d, t) : which == 1 ? draw_ranks(d, t) : draw_servers(d, golden);
    return true;
}

/* ---- a seed ---- */

static const char *const way_names[WAYS] = {
    [WAY_ALONE] = "one process", [WAY_WORKERS] = "workers",           [WAY_PARTS] = "in two parts",
    [WAY_CLUSTER] = "clusters",  [WAY_SERVERS] = "parameter servers", [WAY_RANKS] = "ranks of a trainer"};

/* How often each way was gone, and how many processes were lost on it. */
static struct tally {
    int done, lost;
} tally[WAYS];

static outcome train_by(const training *t, const way *w, const outcome *golden)
{
    switch (w->kind) {
    case WAY_PARTS: return by_parts(t, w);
    case WAY_CLUSTER: return by_cluster(t, w, golden);
    case WAY_SERVERS: return by_servers(t, w);
    case WAY_RANKS: return by_ranks(t, w, golden);
    case WAY_ALONE:
    case WAY_WORKERS:
    case WAYS: break;
    }
    return by_workers(t, w);
}

static void compare(const training *t, const outcome *golden, way w)
{
    outcome o = train_by(t, &w, golden);

    tally[w.kind].done++;
    tally[w.kind].lost += o.lost;
    if (!is_same(golden, &o)) FAIL_WAY(t, &w, "other bytes than one process");
    mem_free(o.state);
    buf_release(&w.words);
}

/* The training's words: its data, its model. */
static void say_training(training *t)
{
    manta_dataset *d = dataset_of(t, &t->words);
    manta_model *m;

    buf_printf(&t->words, "; layers:");
    m = model_of(t, x_of(d), &t->words);
    manta_model_free(m);
    manta_dataset_unref(d);
}

static void run(uint64_t seed)
{
    training t = draw_training(seed, scratch_path("data"));
    dice d = {.key = rng_make(seed, 6)};
    way alone = alone_with(1), other;
    outcome golden;

    assert_int_equal(mkdir(t.folder, 0700), 0);
    write_data(&t);
    say_training(&t);
    golden = train_by(&t, &alone, NULL);
    compare(&t, &golden, alone_with(2));
    if (t.shards > 1) compare(&t, &golden, draw_workers(&d, &t));
    if (t.epochs > 1 && !t.optimizer.use_ema) compare(&t, &golden, draw_parts(&d, &t));
    if (draw_other(&d, &t, &golden, &other)) compare(&t, &golden, other);
    mem_free(golden.state);
    buf_release(&alone.words);
    buf_release(&t.words);
    scratch_remove(t.folder);
}

static void simulated(void **state)
{
    (void)state;
    sim_run(25, run);
    for (int i = WAY_WORKERS; i < WAYS; i++)
        print_message("%s: %d trainings, %d processes lost\n", way_names[i], tally[i].done, tally[i].lost);
}

static int teardown(void **state)
{
    manta_shutdown();
    return scratch_teardown(state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(simulated)};

    manta_log_set_level(MANTA_LOG_LEVEL_OFF);
    if (scratch_setup_quick(NULL)) return 1;
    setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
    setenv("XDG_CONFIG_HOME", scratch_path("config"), 1);
    /* The ranks of a trainer are forks of this program as it is now. */
    if (manta_init(&argc, &argv, &(manta_node_options){.num_cpus = 4, .address = "local"})) {
        fprintf(stderr, "%s\n", manta_error_text());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, teardown);
}
