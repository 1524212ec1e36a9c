/* tf_config_test.c - what TF_CONFIG may say, row by row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "train/cluster/tf_config.h"

#define WORKERS "\"cluster\":{\"worker\":[\"a:1\",\"b:2\"]}"
#define TASK0   "\"task\":{\"type\":\"worker\",\"index\":0}"

static void local_ones(void **state)
{
    static const char *const texts[] = {
        NULL, "{}", "[]", "\"x\"", "{\"cluster\":{}}", "{" TASK0 "}", "{\"environment\":\"cloud\"}"};
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tf_config c = {0};
        assert_int_equal(tf_config_parse(texts[i], &c), MANTA_OK);
        assert_true(c.local);
        assert_int_equal(tf_config_rank(&c), 0);
        assert_true(tf_config_is_chief(&c));
        tf_config_release(&c);
    }
}

typedef struct rejected {
    const char *text, *says;
} rejected;

static void rejected_ones(void **state)
{
    static const rejected rows[] = {
        {"", "empty"},
        {" \n", "empty"},
        {"{", "not JSON: line 1"},
        {"{\"cluster\"", "not JSON"},
        {"{} x", "not JSON"},
        {"null", "must be an object, but is null"},
        {"3", "must be an object, but is a number"},
        {"true", "must be an object"},
        {"{\"cluster\":[]," TASK0 "}", "cluster must be an object from job names to lists"},
        {"{\"cluster\":null," TASK0 "}", "but is null"},
        {"{\"cluster\":\"a:1\"," TASK0 "}", "but is a text"},
        {"{\"cluster\":{\"worker\":\"a:1\"}," TASK0 "}", "cluster.worker must be a list of addresses"},
        {"{\"cluster\":{\"worker\":3}," TASK0 "}", "but is a number"},
        {"{\"cluster\":{\"worker\":[\"a:1\",2]}," TASK0 "}", "cluster.worker[1] must be a text"},
        {"{\"cluster\":{\"worker\":[\"a\"]}," TASK0 "}", "cluster.worker[0] is \"a\""},
        {"{\"cluster\":{\"worker\":[\"a:\"]}," TASK0 "}", "expected \"host:port\""},
        {"{\"cluster\":{\"worker\":[\"a:0\"]}," TASK0 "}", "port from 1"},
        {"{\"cluster\":{\"worker\":[\"a:70000\"]}," TASK0 "}", "port from 1"},
        {"{\"cluster\":{\"worker\":[\":1\"]}," TASK0 "}", "expected \"host:port\""},
        {"{\"cluster\":{\"worker\":[\"a:1\",\"a:1\"]}," TASK0 "}",
         "cluster.worker[0] and cluster.worker[1] are both \"a:1\""},
        {"{\"cluster\":{\"worker\":[\"a:1\"],\"ps\":[\"a:1\"]}," TASK0 "}", "are both"},
        {"{\"cluster\":{\"worker\":[]}," TASK0 "}", "cluster.worker names no task"},
        {"{\"cluster\":{\"worker\":{}}," TASK0 "}", "names no task"},
        {"{\"cluster\":{\"worker\":{\"x\":\"a:1\"}}," TASK0 "}", "task \"x\""},
        {"{\"cluster\":{\"worker\":{\"-1\":\"a:1\"}}," TASK0 "}", "task \"-1\""},
        {"{\"cluster\":{\"worker\":{\"1\":\"a:1\",\"01\":\"b:1\"}}," TASK0 "}", "twice"},
        {"{\"cluster\":{\"worker\":{\"99999999999999999999\":\"a:1\"}}," TASK0 "}",
         "expected a number from 0"},
        {"{\"cluster\":{\"master\":[\"a:1\"]}," TASK0 "}", "job \"master\""},
        {"{\"cluster\":{\"worker\":[\"a:1\"],\"gpu\":[\"b:1\"]}," TASK0 "}",
         "jobs are chief, worker, ps and"},
        {"{\"cluster\":{\"chief\":[\"a:1\",\"b:1\"]}," TASK0 "}", "one chief"},
        {"{\"cluster\":{\"worker\":[\"a:1\"],\"evaluator\":[\"b:1\",\"c:1\"]}," TASK0 "}", "one evaluator"},
        {"{" WORKERS "}", "no task"},
        {"{" WORKERS ",\"task\":[]}", "task must be an object"},
        {"{" WORKERS ",\"task\":{}}", "task.type is missing"},
        {"{" WORKERS ",\"task\":{\"type\":null,\"index\":0}}", "task.type is missing"},
        {"{" WORKERS ",\"task\":{\"type\":1,\"index\":0}}", "task.type is a number"},
        {"{" WORKERS ",\"task\":{\"type\":\"foo\",\"index\":0}}", "task.type is \"foo\""},
        {"{" WORKERS ",\"task\":{\"type\":\"ps\",\"index\":0}}", "no such job"},
        {"{" WORKERS ",\"task\":{\"type\":\"chief\",\"index\":0}}", "no such job"},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\"}}", "task.index is missing"},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\",\"index\":null}}", "task.index is null"},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\",\"index\":\"x\"}}", "task.index is \"x\""},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\",\"index\":\"\"}}", "task.index is \"\""},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\",\"index\":2}}", "has no such task (it has 2, from 0)"},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\",\"index\":1e300}}", "has no such task"},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\",\"index\":-1}}", "task.index is -1"},
        {"{" WORKERS ",\"task\":{\"type\":\"evaluator\",\"index\":1}}", "has no such task"},
        {"{\"cluster\":{\"worker\":{\"0\":\"a:1\",\"2\":\"b:1\"}},\"task\":{\"type\":\"worker\",\"index\":1}"
         "}",
         "has no such task"},
        {"{\"cluster\":{\"ps\":[\"a:1\"]},\"task\":{\"type\":\"ps\",\"index\":0}}", "nobody would train"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tf_config c = {0};
        int64_t live = mem_live();
        if (tf_config_parse(rows[i].text, &c) != MANTA_EINVAL) fail_msg("accepted: %s", rows[i].text);
        if (!strstr(manta_error_text(), rows[i].says))
            fail_msg("%s: '%s' does not say '%s'", rows[i].text, manta_error_text(), rows[i].says);
        assert_int_equal(mem_live(), live);
    }
}

typedef struct accepted {
    const char *text;
    int ranks, rank, index;
    bool chief;
} accepted;

static void accepted_ones(void **state)
{
    static const accepted rows[] = {
        {"{" WORKERS "," TASK0 "}", 2, 0, 0, true},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\",\"index\":\"1\"}}", 2, 1, 1, false},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\",\"index\":1.9}}", 2, 1, 1, false},
        {"{" WORKERS ",\"task\":{\"type\":\"worker\",\"index\":1},\"rpc_layer\":\"grpc\",\"environment\":"
         "\"cloud\",\"session_master\":\"x\",\"service\":{},\"model_dir\":\"/m\"}",
         2, 1, 1, false},
        {"{\"cluster\":{\"chief\":[\"c:1\"],\"worker\":[\"a:1\",\"b:2\"]}," TASK0 "}", 3, 1, 0, false},
        {"{\"cluster\":{\"chief\":[\"c:1\"],\"worker\":[\"a:1\"]},\"task\":{\"type\":\"chief\",\"index\":0}}",
         2, 0, 0, true},
        {"{\"cluster\":{\"chief\":[\"c:1\"]},\"task\":{\"type\":\"chief\",\"index\":0}}", 1, 0, 0, true},
        {"{\"cluster\":{\"worker\":{\"0\":\"a:1\",\"2\":\"b:1\"}},\"task\":{\"type\":\"worker\",\"index\":2}"
         "}",
         2, 1, 2, false},
        {"{\"cluster\":{\"worker\":[\"a:1\"],\"ps\":[\"p:1\"]},\"task\":{\"type\":\"ps\",\"index\":0}}", 1,
         -1, 0, false},
        {"{" WORKERS ",\"task\":{\"type\":\"evaluator\",\"index\":0}}", 2, -1, 0, true},
        {"{\"cluster\":{\"worker\":[\"a:1\"],\"evaluator\":[\"e:1\"]},\"task\":{\"type\":\"evaluator\","
         "\"index\":0}}",
         1, -1, 0, true},
        {"{\"cluster\":{\"worker\":[\"[::1]:1\",\"[::1]:2\"]}," TASK0 "}", 2, 0, 0, true},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tf_config c = {0};
        if (tf_config_parse(rows[i].text, &c)) fail_msg("%s: %s", rows[i].text, manta_error_text());
        assert_false(c.local);
        assert_int_equal(tf_config_ranks(&c), rows[i].ranks);
        assert_int_equal(tf_config_rank(&c), rows[i].rank);
        assert_int_equal(c.index, rows[i].index);
        assert_int_equal(tf_config_is_chief(&c), rows[i].chief);
        for (int r = 0; r < rows[i].ranks; r++) {
            tf_job j;
            int k;
            tf_config_task(&c, r, &j, &k);
            assert_non_null(c.address[j][k]);
            if (r == rows[i].rank) {
                assert_int_equal(j, c.type);
                assert_int_equal(k, c.index);
            }
        }
        tf_config_release(&c);
    }
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_ones),
        cmocka_unit_test(rejected_ones),
        cmocka_unit_test(accepted_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
