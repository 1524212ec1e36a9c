/* How many workers a trainer has: what may be asked for, and who is given up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/trainer/trainer_scaling.h"

static void what_may_be_asked_for(void **state)
{
    static const struct {
        manta_scaling_config c;
        manta_status expected;
        int least, most;
        double cpus;
    } cases[] = {
        {{0}, MANTA_OK, 1, 1, 0},
        {{.num_workers = 4}, MANTA_OK, 4, 4, 0},
        {{.num_workers = 256}, MANTA_OK, 256, 256, 0},
        {{.num_workers = 257}, MANTA_EINVAL, 0, 0, 0},
        {{.num_workers = -1}, MANTA_EINVAL, 0, 0, 0},
        {{.num_workers = 4, .cpus_per_worker = 1.5}, MANTA_OK, 4, 4, 1.5},
        {{.num_workers = 4, .min_workers = 2}, MANTA_OK, 2, 4, 1},
        {{.num_workers = 4, .min_workers = 2, .threads_per_worker = 3}, MANTA_OK, 2, 4, 3},
        {{.num_workers = 4, .min_workers = 2, .cpus_per_worker = MANTA_NONE}, MANTA_OK, 2, 4, 0},
        {{.num_workers = 4, .cpus_per_worker = -3}, MANTA_EINVAL, 0, 0, 0},
        {{.num_workers = 4, .min_workers = 5}, MANTA_EINVAL, 0, 0, 0},
        {{.num_workers = 4, .min_workers = -2}, MANTA_EINVAL, 0, 0, 0},
        {{.num_workers = 65, .min_workers = 1}, MANTA_EINVAL, 0, 0, 0},
        {{.num_workers = 65, .resources_per_worker = "disk=1"}, MANTA_EINVAL, 0, 0, 0},
        {{.use_gpu = true}, MANTA_EUNSUPPORTED, 0, 0, 0},
        {{.num_workers = 2, .placement = MANTA_PLACEMENT_STRICT_SPREAD}, MANTA_EUNSUPPORTED, 0, 0, 0},
        {{.num_workers = 1, .placement = MANTA_PLACEMENT_STRICT_SPREAD}, MANTA_OK, 1, 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trainer_scaling p;
        assert_int_equal(scaling_init(&p, &cases[i].c), cases[i].expected);
        if (cases[i].expected) continue;
        assert_int_equal(p.least, cases[i].least);
        assert_int_equal(p.most, cases[i].most);
        assert_true(p.need.num_cpus == cases[i].cpus);
    }
}

/* An attempt: whether the loop ran, the process died, a checkpoint was left; and
 * how many workers the next attempt may have. */
typedef struct attempt {
    trainer_loss l;
    int next;
} attempt;

static void assert_course(int least, int most, int n, const attempt *a)
{
    trainer_scaling p;

    assert_int_equal(scaling_init(&p, &(manta_scaling_config){.num_workers = most,
                                                              .min_workers = least,
                                                              .cpus_per_worker = MANTA_NONE}),
                     MANTA_OK);
    for (int i = 0; i < n; i++) {
        int before = p.limit;
        bool taken;
        assert_int_equal(scaling_take(&p, &taken), MANTA_OK);
        assert_true(taken);
        assert_int_equal(p.n, before);
        assert_int_equal(scaling_lost(&p, a[i].l), a[i].next < before);
        assert_int_equal(p.limit, a[i].next);
        if (a[i].next == before) p.n = 0; /* asked for nothing: taken anew */
    }
}

static void who_is_given_up(void **state)
{
    const trainer_loss error = {.began = true}, killed = {.began = true, .died = true},
                       late = {.began = true, .died = true, .progressed = true}, unborn = {.died = true};

    (void)state;
    assert_course(1, 3, 3,
                  (attempt[]){{error, 3}, {error, 3}, {error, 3}}); /* its loop is wrong: fewer won't help */
    assert_course(1, 3, 3, (attempt[]){{late, 3}, {late, 3}, {late, 3}}); /* it gets on */
    assert_course(1, 3, 2, (attempt[]){{killed, 3}, {killed, 2}});
    assert_course(1, 3, 2, (attempt[]){{late, 3}, {killed, 2}});
    assert_course(1, 3, 3, (attempt[]){{killed, 3}, {error, 3}, {killed, 3}});
    assert_course(1, 3, 5, (attempt[]){{killed, 3}, {killed, 2}, {killed, 2}, {killed, 1}, {killed, 1}});
    assert_course(2, 3, 2, (attempt[]){{unborn, 2}, {unborn, 2}});
    assert_course(3, 3, 3, (attempt[]){{unborn, 3}, {killed, 3}, {killed, 3}}); /* no range */
}

/* Ranks sit in the first group, then in those that were taken when there was room. */
static void who_sits_where(void **state)
{
    static const struct {
        uint64_t group;
        int bundle;
    } bundles[] = {{7, 1}, {7, 2}, {8, 1}, {9, 1}, {9, 2}, {9, 3}};
    trainer_scaling p = {.n = 6, .group = {7}, .n_more = 2, .more = {{{8}, 2}, {{9}, 3}}};
    int bundle;

    (void)state;
    for (int rank = 0; rank < p.n; rank++) {
        assert_int_equal(scaling_of(&p, rank, &bundle).id, bundles[rank].group);
        assert_int_equal(bundle, bundles[rank].bundle);
    }
    p = (trainer_scaling){.n = 6}; /* who asks for nothing sits anywhere */
    assert_int_equal(scaling_of(&p, 5, &bundle).id, 0);
    assert_int_equal(bundle, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_may_be_asked_for),
                                       cmocka_unit_test(who_is_given_up), cmocka_unit_test(who_sits_where)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
