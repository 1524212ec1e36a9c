/* hostlist_test.c - lists of hosts, row by row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "launch/hostlist.h"

typedef struct row {
    const char *text, *means; /* the names, or what the refusal says */
} row;

static void read_ones(void **state)
{
    static const row rows[] = {
        {"", ""},
        {"a", "a"},
        {"a,b", "a b"},
        {"a,a", "a a"},
        {"node[01-03,7]", "node01 node02 node03 node7"},
        {"n[8-11]", "n8 n9 n10 n11"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[099-101],login", "n099 n100 n101 login"},
        {"n[5]", "n5"},
        {"n[1-2]-ib.cluster", "n1-ib.cluster n2-ib.cluster"},
        {"r[1-2]c[1,3]", "r1c1 r1c3 r2c1 r2c3"},
        {"10.0.0.[1-2]", "10.0.0.1 10.0.0.2"},
        {"[1-2]", "1 2"},
        {"a_b[0-0]", "a_b0"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char **names;
        int n;
        buf all = {0};
        assert_int_equal(hostlist_parse(rows[i].text, &names, &n), MANTA_OK);
        for (int k = 0; k < n; k++) buf_printf(&all, "%s%s", k ? " " : "", names[k]);
        assert_string_equal(buf_text(&all), rows[i].means);
        buf_release(&all);
        hostlist_free(names, n);
    }
}

static void refused_ones(void **state)
{
    static const row rows[] = {
        {",", "character 1"},
        {"a,", "character 3"},
        {"a,,b", "character 3"},
        {"n[", "character 2"},
        {"n[1-3", "not closed"},
        {"n[]", "expected a number"},
        {"n[1-]", "expected a number"},
        {"n[-1]", "expected a number"},
        {"n[1,]", "expected a number"},
        {"n[3-1]", "upwards"},
        {"n[1-2x]", "character 6"},
        {"n[[1]]", "expected a number"},
        {"n1]", "character 3"},
        {"a b", "character 2"},
        {"a;rm", "character 2"},
        {"a\n", "character 2"},
        {"-[0-9999999999]", "9 digits"},
        {"n[0-65536]", "65536 hosts"},
        {"n[0-9999][0-9999]", "65536 hosts"},
        {"n[1][1][1][1][1][1][1][1][1]", "8 brackets"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char **names = NULL;
        int n;
        int64_t live = mem_live();
        assert_int_equal(hostlist_parse(rows[i].text, &names, &n), MANTA_EINVAL);
        if (!strstr(manta_error_text(), rows[i].means)) fail_msg("%s: %s", rows[i].text, manta_error_text());
        assert_null(names);
        assert_int_equal(mem_live(), live);
    }
}

static void edges(void **state)
{
    char text[300], **names;
    int n;
    (void)state;

    assert_int_equal(hostlist_parse("n[0-65535]", &names, &n), MANTA_OK);
    assert_int_equal(n, HOSTLIST_MOST);
    hostlist_free(names, n);
    memset(text, 'a', sizeof text);
    text[HOSTLIST_NAME] = '\0';
    assert_int_equal(hostlist_parse(text, &names, &n), MANTA_OK);
    hostlist_free(names, n);
    text[HOSTLIST_NAME] = 'a';
    text[HOSTLIST_NAME + 1] = '\0';
    assert_int_equal(hostlist_parse(text, &names, &n), MANTA_EINVAL);
    memcpy(text + HOSTLIST_NAME - 1, "[10]", 5);
    assert_int_equal(hostlist_parse(text, &names, &n), MANTA_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_ones),
        cmocka_unit_test(refused_ones),
        cmocka_unit_test(edges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
