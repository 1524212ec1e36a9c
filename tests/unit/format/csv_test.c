/* csv_test.c - comma-separated numbers and what is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/data.h>
#include <locale.h>

#include "base/mem.h"
#include "format/csv.h"
#include "scratch.h"

static manta_status parse(const char *text, const char *label, csv_table *t)
{
    return csv_parse("f.csv", (const uint8_t *)text, strlen(text), label, false, t);
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *text, *label;
        int64_t rows, columns;
        float x[4];
        double y[2];
        manta_dtype y_dtype;
    } cases[] = {
        {"1,2\n3,4\n", NULL, 2, 2, {1, 2, 3, 4}, {0}, 0},
        {"a,b,price\n1,2,7\n3,4,8", "price", 2, 2, {1, 2, 3, 4}, {7, 8}, MANTA_DTYPE_I64},
        {"price,a,b\r\n7,1,2\r\n8,3,4\r\n", "price", 2, 2, {1, 2, 3, 4}, {7, 8}, MANTA_DTYPE_I64},
        {"7.5,1,2\n8,3,4\n", "0", 2, 2, {1, 2, 3, 4}, {7.5, 8}, MANTA_DTYPE_F32},
        {"\"a\",\"b\"\"c\"\n\"1\", 2 \n\n\n3,\"4\"\n", "b\"c", 2, 1, {1, 3}, {2, 4}, MANTA_DTYPE_I64},
        {"\xef\xbb\xbf"
         "a,b\n1e1,-.5\n+3,4.\n",
         "1",
         2,
         1,
         {10, 3},
         {-.5, 4},
         MANTA_DTYPE_F32},
        {"\"a\nb\",c\n1,2\n", NULL, 1, 2, {1, 2}, {0}, 0},
        {"a,b\n", NULL, 0, 2, {0}, {0}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        csv_table t = {0};
        if (parse(cases[i].text, cases[i].label, &t)) fail_msg("case %zu: %s", i, manta_error_text());
        assert_int_equal(t.rows, cases[i].rows);
        assert_int_equal(t.columns, cases[i].columns);
        for (int64_t k = 0; k < t.rows * t.columns; k++) assert_true(t.x[k] == cases[i].x[k]);
        assert_int_equal(t.y != NULL, cases[i].label != NULL);
        for (int64_t k = 0; t.y && k < t.rows; k++) {
            assert_int_equal(t.y_dtype, cases[i].y_dtype);
            double y = t.y_dtype == MANTA_DTYPE_I64 ? (double)((int64_t *)t.y)[k] : (double)((float *)t.y)[k];
            assert_true(y == cases[i].y[k]);
        }
        csv_release(&t);
    }
}

static void refuse(const char *text, const char *label, manta_status code, const char *word)
{
    csv_table t = {0};
    int64_t live = mem_live();
    manta_status st = parse(text, label, &t);
    if (st != code || !strstr(manta_error_text(), word) || !strstr(manta_error_text(), "f.csv")) {
        fail_msg("'%s': status %d, '%s', expected '%s'", text, st, manta_error_text(), word);
    }
    assert_int_equal(mem_live(), live);
}

static void test_bad_files(void **state)
{
    (void)state;
    refuse("", NULL, MANTA_ECORRUPT, "empty");
    refuse("\n\r\n\n", NULL, MANTA_ECORRUPT, "empty");
    refuse("1,2\n3\n", NULL, MANTA_ECORRUPT, "line 2 has 1 fields, expected 2");
    refuse("1,2\n\n3,4,\n", NULL, MANTA_ECORRUPT, "line 3 has 3 fields");
    refuse("a,b\n1,2\n3,x\n", NULL, MANTA_ECORRUPT, "line 3, field 2 is 'x'");
    refuse("a,b\n1,\n", NULL, MANTA_ECORRUPT, "line 2, field 2 is ''");
    refuse("1,2\n3,nan\n", NULL, MANTA_ENAN, "line 2, field 2 is 'nan'");
    refuse("1,2\n3,4 5\n", NULL, MANTA_ECORRUPT, "line 2, field 2 is '4 5'");
    refuse("a,b\n1,\"2\n", NULL, MANTA_ECORRUPT, "line 2, field 2: the quote is not closed");
    refuse("a,b\n1,\"2\"x\n", NULL, MANTA_ECORRUPT, "line 2, field 2: bytes follow");
    refuse("a,b\n1,2\"\n", NULL, MANTA_ECORRUPT, "line 2, field 2: a quote inside");
    refuse("\"a\nb\",c\n1,y\n", NULL, MANTA_ECORRUPT, "line 3, field 2");
    refuse("a,b\n1,2\n", "price", MANTA_ENOENT, "no column 'price' in the header");
    refuse("1,2\n", "price", MANTA_ENOENT, "no header line");
    refuse("1,2\n", "2", MANTA_ENOENT, "no column '2'");
    refuse("a\n1\n", "a", MANTA_EINVAL, "nothing is left");
    refuse("1,1234567890123456789012345678901234567890123456789012345678901234567890\n2,x\n", NULL,
           MANTA_ECORRUPT, "field 2");
}

/* A decimal comma in the program's locale changes nothing. */
static void test_locale(void **state)
{
    (void)state;
    csv_table t = {0};
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8")) skip();
    manta_status st = parse("1.5,2\n", NULL, &t);
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(st, MANTA_OK);
    assert_true(t.x[0] == 1.5f);
    csv_release(&t);
}

static void test_dataset(void **state)
{
    (void)state;
    char spec[600];
    manta_dataset *d = NULL;
    const manta_column_spec *c;
    const char *path = scratch_file("t.csv", "a,b,c\n1,2,0\n3,4,1\n5,6,0\n", 24);

    snprintf(spec, sizeof spec, "%s:label=c", path);
    if (manta_dataset_open(spec, NULL, &d)) fail_msg("%s", manta_error_text());
    assert_int_equal(manta_dataset_count(d), 3);
    assert_int_equal(manta_dataset_columns(d, &c), 2);
    assert_int_equal(c[0].shape[0], 2);
    assert_int_equal(c[1].dtype, MANTA_DTYPE_I64);
    assert_int_equal(c[1].ndim, 0);
    manta_loader *l = NULL;
    manta_batch b;
    assert_int_equal(manta_loader_open(d, &(manta_loader_options){.batch_size = 3}, &l), MANTA_OK);
    assert_true(manta_loader_next(l, &b));
    assert_true(((float *)manta_batch_find(&b, "x")->data)[3] == 4);
    assert_int_equal(((int64_t *)manta_batch_find(&b, "y")->data)[1], 1);
    manta_loader_close(l);
    manta_dataset_unref(d);
    snprintf(spec, sizeof spec, "%s:column=c", path);
    assert_int_equal(manta_dataset_open(spec, NULL, &d), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), ":label=COLUMN"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_dataset),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
