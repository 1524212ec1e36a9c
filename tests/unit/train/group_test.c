/* Several workers: the same bytes as one process, whatever their number. */
#include "train/group_fixture.h"

static void same_bytes_for_any_number_of_workers(void **state)
{
    (void)state;
    for (int hard = 0; hard < 2; hard++) {
        training t = {.shards = 4, .hard = hard, .validate = true};
        outcome golden = train(&t);
        assert_ok(golden.st);
        for (t.workers = 2; t.workers <= 4; t.workers++) {
            outcome o = train(&t);
            assert_same_outcome(&golden, &o);
            mem_try_free(o.state);
        }
        mem_try_free(golden.state);
    }
}

static void threads_of_a_worker_do_not_matter(void **state)
{
    training t = {.shards = 3, .hard = true};
    outcome golden = train(&t), o;

    (void)state;
    t.workers = 2;
    t.threads = 2;
    o = train(&t);
    assert_same_outcome(&golden, &o);
    mem_try_free(o.state);
    mem_try_free(golden.state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_for_any_number_of_workers),
        cmocka_unit_test(threads_of_a_worker_do_not_matter),
    };

    make_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
