/* csv_test.c - comma-separated numbers and what is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/data_file.h>
#include <locale.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "format/csv/csv.h"
#include "format/csv/csv_fast.h"
#include "ok.h"
#include "scratch.h"

static manta_status parse(const char *text, const char *label, csv_table *t)
{
    return csv_parse("f.csv", (const uint8_t *)text, strlen(text), label, false, t);
}

static void values_and_labels_are_parsed(void **state)
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

    assert_fails_with(st, code, word);
    assert_error_says("f.csv");
    assert_int_equal(mem_live(), live);
}

static void bad_files_are_refused(void **state)
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
    refuse("a,b\n1,2\"\n", NULL, MANTA_ECORRUPT, "line 2, field 2: a quote stands inside");
    refuse("\"a\nb\",c\n1,y\n", NULL, MANTA_ECORRUPT, "line 3, field 2");
    refuse("a,b\n1,2\n", "price", MANTA_ENOENT, "no column 'price' in the header");
    refuse("1,2\n", "price", MANTA_ENOENT, "no header line");
    refuse("1,2\n", "2", MANTA_ENOENT, "no column '2'");
    refuse("a\n1\n", "a", MANTA_EINVAL, "nothing is left");
    refuse("1,1234567890123456789012345678901234567890123456789012345678901234567890\n2,x\n", NULL,
           MANTA_ECORRUPT, "field 2");
}

/* A decimal comma in the program's locale changes nothing. */
static void the_locale_changes_no_number(void **state)
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

static void a_file_opens_as_a_dataset(void **state)
{
    (void)state;
    char spec[600];
    manta_dataset *d = NULL;
    const manta_column_spec *c;
    const char *path = scratch_file("t.csv", "a,b,c\n1,2,0\n3,4,1\n5,6,0\n", 24);

    snprintf(spec, sizeof spec, "%s:label=c", path);
    assert_ok(manta_dataset_open(spec, NULL, &d));
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
    assert_error_says(":label=COLUMN");
}

/* ---- the fast reader against the slow one ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A number as someone may write it. */
static int write_number(char *to, uint64_t *state)
{
    double v = ((double)next_random(state) / 0x1p31 - 0.5) * (next_random(state) % 5 ? 4 : 1e6);

    switch (next_random(state) % 12) {
    case 0: return sprintf(to, "%d", (int)(next_random(state) % 300));
    case 1: return sprintf(to, "%d", (int)(next_random(state) % 10) - 5);
    case 2: return sprintf(to, "%.17g", v);
    case 3: return sprintf(to, "%.16f", v);
    case 4: return sprintf(to, "%.20f", v * 1e-4);
    case 5: return sprintf(to, "%.6f", v);
    case 6: return sprintf(to, "%e", v);
    case 7:
        return sprintf(to, "%.9g", (double)(float)v + 0.5 * (double)(float)v * 0x1p-23); /* between floats */
    case 8: return sprintf(to, "%d", 16777217 + (int)(next_random(state) % 64));
    case 9: return sprintf(to, " %.3f\t", v);
    case 10: return sprintf(to, "-0.0");
    default: return sprintf(to, "%s", next_random(state) % 2 ? ".5" : "7.");
    }
}

static void compare(const char *text, size_t n, const char *label)
{
    csv_table fast = {0}, slow = {0};

    assert_ok(csv_parse("f.csv", (const uint8_t *)text, n, label, true, &fast));
    assert_ok(csv_parse_slowly("f.csv", (const uint8_t *)text, n, label, true, &slow));
    assert_int_equal(fast.rows, slow.rows);
    assert_int_equal(fast.columns, slow.columns);
    assert_memory_equal(fast.x, slow.x, (size_t)(slow.rows * slow.columns) * sizeof(float));
    assert_int_equal(fast.y_dtype, slow.y_dtype);
    if (slow.y)
        assert_memory_equal(fast.y, slow.y, (size_t)slow.rows * (slow.y_dtype == MANTA_DTYPE_I64 ? 8 : 4));
    csv_release(&fast);
    csv_release(&slow);
}

/* A number of the plain form, of any length. */
static int write_plain(char *to, uint64_t *state)
{
    double v = ((double)next_random(state) / 0x1p31 - 0.5) * (next_random(state) % 5 ? 4 : 1e6);

    switch (next_random(state) % 10) {
    case 0: return sprintf(to, "%d", (int)(next_random(state) % 300));
    case 1: return sprintf(to, "%.*f", (int)(next_random(state) % 4), v);
    case 2: return sprintf(to, "%.*f", (int)(next_random(state) % 25), v * 1e-3);
    case 3: return sprintf(to, "%.17f", v);
    case 4:
        return sprintf(to, "%.20f", (double)(float)v + 0.5 * (double)(float)v * 0x1p-23); /* between floats */
    case 5: return sprintf(to, "%.*f", (int)(next_random(state) % 3), v * 1e15);
    case 6: return sprintf(to, "%d.", 16777217 + (int)(next_random(state) % 64));
    case 7: return sprintf(to, "-0.0000000000000000000000000%d", (int)(next_random(state) % 9));
    default: return sprintf(to, "%.6f", v);
    }
}

/* Every kernel that this machine has: where one does not call the text odd, the
 * slow reader takes it and gives the same. How often they were sure is added up. */
static int compare_kernels(const char *text, size_t n, int64_t fields, int64_t label)
{
    csv_table slow = {0};
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char name[24];
    int sure = 0;

    snprintf(name, sizeof name, "%d", (int)label);
    manta_status st =
        csv_parse_slowly("f.csv", (const uint8_t *)text, n, label < 0 ? NULL : name, true, &slow);
    for (int i = 0; csv_kernel_at(i); i++) {
        csv_plan plan = {.fields = fields,
                         .label = label,
                         .allow_nan = true,
                         .c_locale = c_locale,
                         .kernel = csv_kernel_at(i)};
        seek_file f = seek_over("f.csv", (const uint8_t *)text, n);
        csv_table fast = {0};
        bool whole, odd;
        assert_int_equal(csv_fast_read(&f, &plan, &fast, &whole, &odd), MANTA_OK);
        seek_close(&f);
        if (odd) continue;
        sure++;
        assert_int_equal(st, MANTA_OK);
        assert_int_equal(fast.rows, slow.rows);
        assert_int_equal(fast.columns, slow.columns);
        assert_memory_equal(fast.x, slow.x, (size_t)(slow.rows * slow.columns) * sizeof(float));
        assert_int_equal(slow.y && slow.y_dtype == MANTA_DTYPE_I64, slow.y && whole);
        for (int64_t k = 0; slow.y && k < slow.rows; k++) { /* whose labels are doubles still */
            double y = ((const double *)fast.y)[k];
            if (whole) assert_int_equal((int64_t)y, ((const int64_t *)slow.y)[k]);
            if (!whole) assert_true((float)y == ((const float *)slow.y)[k]);
        }
        csv_release(&fast);
    }
    csv_release(&slow);
    freelocale(c_locale);
    return sure;
}

static size_t write_table(char *text, size_t size, int columns, int odd, uint64_t *seed)
{
    size_t n = 0;

    while (n < size - 4096) {
        for (int k = 0; k < columns; k++) {
            if (k) text[n++] = ',';
            bool plain = next_random(seed) % 1000 >= (unsigned)odd;
            n += (size_t)(plain ? write_plain(text + n, seed) : write_number(text + n, seed));
        }
        n += (size_t)sprintf(text + n, "%s", columns % 2 ? "\n" : "\r\n");
    }
    return n;
}

static void all_kernels_agree_on_plain_tables(void **state)
{
    (void)state;
    size_t size = 300 << 10; /* more than a block */
    char *text = malloc(size);
    uint64_t seed = 7;
    int kernels = 0;

    while (csv_kernel_at(kernels)) kernels++;
    for (int columns = 1; columns < 22; columns += columns < 6 ? 1 : 5) {
        size_t n = write_table(text, size, columns, columns == 5 ? 100 : 1, &seed);
        assert_int_equal(compare_kernels(text, n, columns, -1), kernels);
        if (columns > 1) assert_int_equal(compare_kernels(text, n, columns, columns / 2), kernels);
    }
    free(text);
}

/* One byte of a plain table changed: another number, or no number any more. */
static void all_kernels_agree_on_a_changed_byte(void **state)
{
    (void)state;
    static const char bytes[] = ",.-+eE \n\r0123456789x\t\"";
    char text[6144], kept;
    uint64_t seed = 3;
    int sure = 0;

    for (int round = 0; round < 25; round++) {
        int columns = 1 + round % 11;
        size_t n = write_table(text, 4096 + 700, columns, 0, &seed);
        for (int i = 0; i < 60; i++) {
            size_t at = next_random(&seed) % n;
            kept = text[at];
            text[at] = bytes[next_random(&seed) % (sizeof bytes - 1)];
            sure += compare_kernels(text, n, columns, -1);
            text[at] = kept;
        }
    }
    assert_true(sure > 100); /* it was not in vain */
}

/* A record of nine fields, one of which is `field`; eight go into a kernel's hands at once. */
static int compare_field(const char *field, size_t n, int at)
{
    char text[512];
    size_t size = 0;

    for (int k = 0; k < 9; k++) {
        if (k) text[size++] = ',';
        memcpy(text + size, k == at ? field : "-12.345678", k == at ? n : 10);
        size += k == at ? n : 10;
    }
    text[size++] = '\n';
    return compare_kernels(text, size, 9, -1);
}

/* Every field of up to four of these bytes: numbers, and what looks like one. */
static void all_kernels_agree_on_every_short_field(void **state)
{
    (void)state;
    static const char bytes[] = "-.07e";
    int sure = 0, all = 0;

    for (size_t n = 0, many = 1; n <= 4; n++, many *= 5) {
        for (size_t i = 0; i < many; i++, all++) {
            char field[8] = "";
            for (size_t k = 0, rest = i; k < n; k++, rest /= 5) field[k] = bytes[rest % 5];
            sure += compare_field(field, n, (int)(i % 9));
        }
    }
    assert_in_range(sure, all / 10, 3 * all); /* some are numbers */
}

/* Digits, up to more than are looked at, with another byte or a second point in each place. */
static void all_kernels_agree_on_long_fields(void **state)
{
    (void)state;
    static const char bytes[] = ".-5 x,";

    for (size_t n = 14; n < 40; n += n < 18 || n > 29 ? 1 : 4) {
        for (size_t at = 0; at < n; at++) {
            for (size_t i = 0; i < sizeof bytes - 1; i++) {
                char field[48];
                for (size_t k = 0; k < n; k++) field[k] = (char)('0' + (k * 7 + n) % 10);
                if (n % 3) field[n % 5 + 1] = '.';
                if (n % 2) field[0] = '-';
                field[at] = bytes[i];
                compare_field(field, n, (int)(at % 9));
            }
        }
    }
}

/* Wider than eight numbers, longer than a block, line ends of all kinds. */
static void fast_kernels_agree_on_wide_and_long_tables(void **state)
{
    (void)state;
    static const char *const ends[] = {"\n", "\r\n", "\n\n", "\r", "\r\n\r\n"};
    size_t size = 2 << 20, n = 0;
    char *text = malloc(size);
    uint64_t seed = 1;

    for (int columns = 1; columns <= 33; columns += 8) {
        int small = columns == 33; /* pixels: mostly numbers of few digits */
        n = 0;
        while (n < size - 4096) {
            for (int k = 0; k < columns; k++) {
                if (k) text[n++] = ',';
                n += (size_t)(small && next_random(&seed) % 40
                                  ? sprintf(text + n, "%d", (int)(next_random(&seed) % 256))
                                  : write_number(text + n, &seed));
            }
            n += (size_t)sprintf(text + n, "%s", ends[columns == 9 ? next_random(&seed) % 5 : 0]);
        }
        compare(text, n, NULL);
        compare(text, n - 1, NULL);
        if (columns > 1) compare(text, n, "1");
        if (columns > 1) compare(text, n, "0");
    }
    free(text);
}

/* The file is read in blocks; a record larger than the look at its head is too. */
static void a_large_file_is_read_in_blocks(void **state)
{
    (void)state;
    size_t size = 3 << 20, n = 0;
    char *text = malloc(size + 64), spec[600];
    manta_dataset *d = NULL;
    const manta_column_spec *c;

    for (int header = 0; header < 2; header++) {
        n = 0;
        if (header) n += (size_t)sprintf(text, "\"a\",b\n");
        while (n < size) n += (size_t)sprintf(text + n, "%zu,1\n", n % 1000);
        snprintf(spec, sizeof spec, "%s:label=1", scratch_file("large.csv", text, n));
        assert_ok(manta_dataset_open(spec, NULL, &d));
        assert_true(manta_dataset_count(d) > 300000);
        manta_dataset_unref(d);
    }
    for (n = 0; n < size;) n += (size_t)sprintf(text + n, "%s1", n ? "," : "");
    const char *path = scratch_file("wide.csv", text, n);
    assert_ok(manta_dataset_open(path, NULL, &d));
    assert_int_equal(manta_dataset_count(d), 1);
    manta_dataset_columns(d, &c);
    assert_int_equal(c[0].shape[0], (int64_t)(n + 1) / 2);
    manta_dataset_unref(d);
    free(text);
}

static manta_status parse_two_lines(void *ctx)
{
    csv_table t = {0};

    (void)ctx;
    manta_status st = parse("1,2\n3,4\n", "1", &t);
    csv_release(&t);
    return st;
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    int64_t n = alloc_fail_each(parse_two_lines, NULL);
    assert_true(n > 3 && n < 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_labels_are_parsed),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(the_locale_changes_no_number),
        cmocka_unit_test(a_file_opens_as_a_dataset),
        cmocka_unit_test(fast_kernels_agree_on_wide_and_long_tables),
        cmocka_unit_test(a_large_file_is_read_in_blocks),
        cmocka_unit_test(failed_allocations_are_reported),
        cmocka_unit_test(all_kernels_agree_on_plain_tables),
        cmocka_unit_test(all_kernels_agree_on_a_changed_byte),
        cmocka_unit_test(all_kernels_agree_on_every_short_field),
        cmocka_unit_test(all_kernels_agree_on_long_fields),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
