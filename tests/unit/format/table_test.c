/* table_test.c - tables: records, types, choices, categories, missing values, and mappings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "alloc_fail.h"
#include "base/buf.h"
#include "base/mem.h"
#include "format/csv/csv_table.h"
#include "format/table/table.h"
#include "format/table/table_json.h"
#include "ok.h"
#include "scratch.h"
#include <manta/data_file.h>

/* ---- helpers ---- */

/* A table as its numbers. */
typedef struct numbers {
    int64_t rows, width;
    float x[64];
    double y[16];
    bool has_y;
    manta_dtype y_dtype;
} numbers;

static table_source source_of(const char *text, size_t n, const manta_table_options *o, size_t block)
{
    table_source s = {0};

    assert_ok(csv_table_open(seek_over("f.csv", text, n), o, block, &s));
    return s;
}

static void read_numbers(manta_dataset *d, numbers *out)
{
    const manta_column_spec *c;
    manta_loader *l = NULL;
    manta_batch b;

    *out = (numbers){.rows = manta_dataset_count(d), .has_y = manta_dataset_columns(d, &c) == 2};
    out->width = c[0].shape[0];
    if (out->has_y) out->y_dtype = c[1].dtype;
    if (!out->rows) return;
    assert_true(out->rows * out->width <= 64 && out->rows <= 16);
    assert_ok(
        manta_loader_open(d, &(manta_loader_options){.batch_size = out->rows, .readers = MANTA_NONE}, &l));
    assert_true(manta_loader_next(l, &b));
    memcpy(out->x, manta_batch_find(&b, "x")->data, (size_t)(out->rows * out->width) * sizeof(float));
    for (int64_t i = 0; out->has_y && i < out->rows; i++) {
        const void *y = manta_batch_find(&b, "y")->data;
        out->y[i] =
            out->y_dtype == MANTA_DTYPE_I64 ? (double)((const int64_t *)y)[i] : (double)((const float *)y)[i];
    }
    manta_loader_close(l);
}

/* Learns from a text and reads the same text by what was learnt. *t (may be NULL): the mapping. */
static manta_status try_numbers(const char *text, const manta_table_options *o, size_t block, numbers *out,
                                manta_table **t)
{
    table_source s = {0};
    manta_table *m = NULL;
    manta_dataset *d = NULL;
    manta_status st = csv_table_open(seek_over("f.csv", text, strlen(text)), o, block, &s);

    if (!st) st = table_learn(&s, o, &m);
    if (!st) st = table_dataset(m, &s, o, &d);
    table_source_release(&s);
    if (!st) read_numbers(d, out);
    manta_dataset_unref(d);
    if (t && !st) {
        *t = m;
    } else {
        manta_table_free(m);
    }
    return st;
}

static void expect(const char *text, manta_table_options o, int64_t rows, int64_t width, const float *x,
                   const double *y)
{
    static const size_t blocks[] = {0, 4, 5, 7, 16, 64};

    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
        numbers n;
        assert_ok(try_numbers(text, &o, blocks[k], &n, NULL));
        assert_int_equal(n.rows, rows);
        assert_int_equal(n.width, width);
        for (int64_t i = 0; i < rows * width; i++) {
            if (!(n.x[i] == x[i] || (isnan(n.x[i]) && isnan(x[i]))))
                fail_msg("block %zu: value %lld is %g, expected %g", blocks[k], (long long)i, (double)n.x[i],
                         (double)x[i]);
        }
        for (int64_t i = 0; y && i < rows; i++) assert_true(n.y[i] == y[i]);
    }
}

#define X(...) ((const float[]){__VA_ARGS__})
#define Y(...) ((const double[]){__VA_ARGS__})

static void refuse(const char *text, manta_table_options o, manta_status code, const char *part)
{
    static const size_t blocks[] = {0, 4, 9};

    for (size_t k = 0; k < 3; k++) {
        int64_t live = mem_live();
        numbers n;
        assert_fails_with(try_numbers(text, &o, blocks[k], &n, NULL), code, part);
        assert_error_says("f.csv");
        assert_int_equal(mem_live(), live);
    }
}

/* ---- records ---- */

static void fields_are_quoted_as_people_do(void **state)
{
    (void)state;
    manta_table_options y = {.y = "c"};
    /* a newline, a delimiter and doubled quotes inside quotes, a byte order mark, \r\n, blank lines */
    expect("\xef\xbb\xbf"
           "a,\"c\"\r\n1,\"x \"\"y\"\", z\r\nw\"\r\n\r\n2,p\r\n3,\"x \"\"y\"\", z\r\nw\"",
           y, 3, 1, X(1, 2, 3), Y(1, 0, 1));
    expect("a,c\n1,\"\"\"\"\n2,\"\"\"\"\"\"\n\n\n", y, 2, 1, X(1, 2), Y(0, 1)); /* " and "" */
    expect("a,c\r1,u\r2,v\r", y, 2, 1, X(1, 2), Y(0, 1));
    expect("a,c\n1, u \n2,u\n3,\"u \"\n", y, 3, 1, X(1, 2, 3), Y(0, 0, 1)); /* blanks count in quotes only */
    expect("\"a\n,\",c\n1,2\n", (manta_table_options){.x = "a\n,", .y = "c"}, 1, 1, X(1), Y(2));
    refuse("a,c\n1,\"x\n", y, MANTA_ECORRUPT, "line 2, field 2: the quote is not closed");
    refuse("a,c\n1,\"x\"y\n", y, MANTA_ECORRUPT, "line 2, field 2: bytes follow the closing quote");
    refuse("a,c\n1,x\"y\n", y, MANTA_ECORRUPT, "line 2, field 2: a quote stands inside an unquoted field");
    refuse("a,c\n1,x\n\n2\n", y, MANTA_ECORRUPT, "line 4 has 1 fields, expected 2");
    refuse("a,c\n1,\"x\ny\"\n2,3,4\n", y, MANTA_ECORRUPT, "line 4 has 3 fields, expected 2");
    refuse("", y, MANTA_ECORRUPT, "the file is empty");
    refuse("\xef\xbb\xbf\n\r\n", y, MANTA_ECORRUPT, "the file is empty");
}

static void delimiters_are_found(void **state)
{
    (void)state;
    manta_table_options y = {.y = "c"};
    static const struct {
        const char *text;
        char is;
    } cases[] = {{"a,b\n1,2\n", ','},
                 {"a;b\n1,5;2,5\n", ';'}, /* decimal commas */
                 {"a\tb\n1,5\t2;2\n", '\t'},
                 {"a|b\n1|2\n", '|'},
                 {"a\n1\n2\n", ','},
                 {"a,\"x;y;z\"\n1,\"u\"\n", ','}, /* inside quotes it is none */
                 {"a;b,c\n1;2,3\n4;5,6\n7,8\n", ','}, /* a semicolon in some lines only */
                 {"a;b", ';'},
                 {"", ','}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(csv_find_delimiter((const uint8_t *)cases[i].text, strlen(cases[i].text)),
                         cases[i].is);
    expect("a;c\n1.5;u\n2;v\n", y, 2, 1, X(1.5f, 2), Y(0, 1));
    expect("a\tc\n1\tu\n2\tv v\n", y, 2, 1, X(1, 2), Y(0, 1));
    expect("a|c\n1|u\n2|v\n", y, 2, 1, X(1, 2), Y(0, 1));
    expect("a,b;c\n1,2;u\n3,4;v\n", (manta_table_options){.delimiter = ',', .x = "a", .y = "b;c"}, 2, 1,
           X(1, 3), Y(0, 1));
}

static void headers_are_found_or_said(void **state)
{
    (void)state;
    expect("1,2\n3,4\n", (manta_table_options){.y = "1"}, 2, 1, X(1, 3), Y(2, 4));
    expect("u,2\nv,4\n", (manta_table_options){.y = "1", .header = MANTA_TABLE_HEADER_NO}, 2, 2,
           X(1, 0, 0, 1), Y(2, 4));
    expect("1,2\n3,4\n", (manta_table_options){.y = "2", .header = MANTA_TABLE_HEADER_YES}, 1, 1, X(3), Y(4));
    expect("a, b ,c\n1,2,3\n", (manta_table_options){.x = "b+a", .y = "c"}, 1, 2, X(2, 1), Y(3));
    expect("a,b\n", (manta_table_options){.y = "b"}, 0, 1, X(0), NULL);
    /* names that come twice, or not at all */
    expect("a,a,,y,a.1\n1,2,3,0,4\n", (manta_table_options){.y = "y"}, 1, 4, X(1, 2, 3, 4), Y(0));
    expect("a,a,,y\n1,2,3,0\n", (manta_table_options){.x = "2+a.1", .y = "y"}, 1, 2, X(3, 2), Y(0));
    expect("y,a,y\n1,2,x\n", (manta_table_options){.x = "a+y.1", .y = "y"}, 1, 2, X(2, 1), Y(1));
    refuse("a,b\n1,2\n", (manta_table_options){.y = "price"}, MANTA_ENOENT,
           "no column 'price'; there are: a, b");
    refuse("income,b\n1,2\n", (manta_table_options){.y = "incom"}, MANTA_ENOENT, "did you mean");
    refuse("a,b\n1,2\n", (manta_table_options){.y = "2"}, MANTA_ENOENT, "no column '2'");
    refuse("a,\xff\n1,2\n", (manta_table_options){.y = "a"}, MANTA_ECORRUPT, "column 1 in the header");
    refuse("a\n1\n", (manta_table_options){.y = "a"}, MANTA_EINVAL, "nothing is left");
}

/* Such files there are; naming them apart, and finding them, must not take longer the more there are. */
static void thousands_of_columns_may_have_one_name(void **state)
{
    enum { MANY = 60000 };
    buf b = {0};
    table_source s;
    int at;

    (void)state;
    for (int i = 0; i < MANY; i++) buf_printf(&b, "%sgene", i ? "," : "");
    for (int row = 0; row < 2; row++) {
        for (int i = 0; i < MANY; i++) buf_printf(&b, "%s%d", i ? "," : "\n", i + row);
    }
    const char *path = scratch_file("wide.csv", b.at, b.n);
    assert_ok(csv_table_open_path(path, &(manta_table_options){0}, &s));
    assert_int_equal(s.n, MANY);
    assert_string_equal(s.names[0], "gene");
    assert_string_equal(s.names[MANY - 1], "gene.59999");
    assert_ok(table_find_column(&s, "gene.7", 3, &at));
    assert_int_equal(at, 7);
    assert_ok(table_find_column(&s, "gene.7", MANY, &at));
    assert_int_equal(at, 7);
    table_source_release(&s);
    manta_dataset *d;
    assert_ok(manta_dataset_open(path, NULL, &d));
    manta_dataset_unref(d);
    buf_release(&b);
}

static void choices_are_read(void **state)
{
    (void)state;
    expect("a,b,c\n1,u,7\n2,v,8\n", (manta_table_options){.x = "b@integer+a", .y = "c@category"}, 2, 2,
           X(0, 1, 1, 2), Y(0, 1));
    expect("a+b,c@d,e\n1,2,3\n", (manta_table_options){.x = "a\\+b+c\\@d", .y = "e"}, 1, 2, X(1, 2), Y(3));
    expect("a,b+c\n1,2\n", (manta_table_options){.y = "b+c"}, 1, 1, X(1), Y(2)); /* y is one column */
    refuse("a,b\n1,2\n", (manta_table_options){.x = "a@float"}, MANTA_EINVAL, "followed by @float");
    refuse("a,b\n1,2\n", (manta_table_options){.x = "a++b"}, MANTA_EINVAL, "a column without a name");
    refuse("a,b\n1,2\n", (manta_table_options){.x = "a+a"}, MANTA_EINVAL, "names column 'a' twice");
    refuse("a,b\n1,2\n", (manta_table_options){.x = "a+b", .y = "b"}, MANTA_EINVAL, "is in x and is y");
    refuse("a,b\n1,2\n", (manta_table_options){.x = "", .y = "b"}, MANTA_EINVAL, "without a name");
}

/* ---- types ---- */

/* A header, then `n` lines that `line` writes. Owned by the caller. */
static char *make_table(const char *header, int n, void (*line)(int i, char *to, size_t size))
{
    size_t at = strlen(header), cap = at + (size_t)n * 64 + 1;
    char *text = mem_new(cap);

    memcpy(text, header, at);
    for (int i = 0; i < n; i++) {
        line(i, text + at, 64);
        at += strlen(text + at);
    }
    return text;
}

static void line_turning(int i, char *to, size_t size)
{
    if (i < 10000) {
        snprintf(to, size, "%d,%d\n", i, i % 2);
    } else {
        snprintf(to, size, "abc,%d\n", i % 2);
    }
}

/* Numbers up to row 10,000 and then text: the sentence says where, and categories must be asked for. */
static void a_column_that_turns_is_refused_by_its_line(void **state)
{
    (void)state;
    char *text = make_table("a,y\n", 10001, line_turning);
    manta_table_options o = {.y = "y"};
    manta_table *t = NULL;
    table_source s = source_of(text, strlen(text), &o, 0);

    assert_fails_with(table_learn(&s, &o, &t), MANTA_ECORRUPT,
                      "line 10002, column 'a' is 'abc', expected a number");
    table_source_release(&s);
    o.x = "a@category"; /* 10,001 different values are too many */
    s = source_of(text, strlen(text), &o, 0);
    assert_fails_with(table_learn(&s, &o, &t), MANTA_EUNSUPPORTED, "more than 1024 different values");
    table_source_release(&s);
    mem_free(text);
}

static void types_are_found_by_the_majority(void **state)
{
    (void)state;
    manta_table_options y = {.y = "y"};
    refuse("a,y\n1,0\n2,0\nx,1\n", y, MANTA_ECORRUPT, "line 4, column 'a' is 'x', expected a number");
    /* half of them are texts: categories, the numbers among them too */
    expect("a,y\n1,0\nx,0\n2,1\nz,1\n", (manta_table_options){.x = "a@integer", .y = "y"}, 4, 1,
           X(0, 2, 1, 3), Y(0, 0, 1, 1));
    expect("a,y\n1,0\nx,0\n", y, 2, 2, X(1, 0, 0, 1), Y(0, 0));
    /* categories that are numbers stand in the order of numbers */
    expect("a,y\n10,0\n9,0\n10,1\n-1,1\n", (manta_table_options){.x = "a@integer", .y = "y"}, 4, 1,
           X(2, 1, 2, 0), Y(0, 0, 1, 1));
    refuse("a,y\n2024-01-01,0\n2024-01-02,0\n7,1\n", y, MANTA_ECORRUPT,
           "line 4, column 'a' is a number, expected a date");
    refuse("a,y\n1,0\n2,0\n2024-01-01,1\n", y, MANTA_ECORRUPT,
           "line 4, column 'a' is a date, expected a number");
    refuse("a,y\n\xff,0\nb,1\n", y, MANTA_ECORRUPT, "line 2, column 'a' has bytes that are not UTF-8");
    expect("a,y\n,0\n,1\n", (manta_table_options){.y = "y", .missing = MANTA_TABLE_MISSING_MEAN}, 2, 1,
           X(0, 0), Y(0, 1));
    refuse("a,y\n,0\n,1\n",
           (manta_table_options){.x = "a@category", .y = "y", .missing = MANTA_TABLE_MISSING_MEAN},
           MANTA_EINVAL, "has no values");
}

static void line_names(int i, char *to, size_t size)
{
    snprintf(to, size, "name %d,%d\n", i, i % 2);
}

static void texts_are_told_from_categories(void **state)
{
    (void)state;
    static const struct {
        int rows;
        manta_table_type type;
    } cases[] = {{32, MANTA_TABLE_TYPE_CATEGORY}, {33, MANTA_TABLE_TYPE_TEXT}, {2000, MANTA_TABLE_TYPE_TEXT}};

    for (size_t i = 0; i < 3; i++) {
        char *text = make_table("a,y\n", cases[i].rows, line_names);
        manta_table_options o = {0};
        manta_table_facts f = {0};
        table_source s = source_of(text, strlen(text), &o, 0);
        assert_ok(table_describe(&s, &f));
        assert_int_equal(f.rows, cases[i].rows);
        assert_int_equal(f.columns[0].type, cases[i].type);
        assert_int_equal(f.columns[1].type, MANTA_TABLE_TYPE_NUMBER);
        manta_table_facts_release(&f);
        table_source_release(&s);
        if (cases[i].type == MANTA_TABLE_TYPE_TEXT) {
            manta_table *t = NULL;
            o.y = "y";
            s = source_of(text, strlen(text), &o, 0);
            assert_fails_with(table_learn(&s, &o, &t), MANTA_EUNSUPPORTED,
                              "column 'a' is text, such as 'name 0'");
            table_source_release(&s);
        }
        mem_free(text);
    }
}

static void dates_become_days(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double days; /* NAN: it is no date */
    } cases[] = {
        {"1970-01-01", 0},
        {"1970-01-02", 1},
        {"1969-12-31", -1},
        {"2000-02-29", 11016},
        {"2000-03-01", 11017},
        {"1900-02-29", NAN},
        {"2024/05/31", 19874},
        {"31.05.2024", 19874},
        {"0001-01-01", -719162},
        {"9999-12-31", 2932896},
        {"2024-05-31T12:00", 19874.5},
        {"2024-05-31 18:00:00", 19874.75},
        {"2024-05-31T12:00:00Z", 19874.5},
        {"2024-05-31T12:00:00+12:00", 19874},
        {"2024-05-31T00:00:00-0600", 19874.25},
        {"2024-05-31T00:00:43.2", 19874.0005},
        {"2024-13-01", NAN},
        {"2024-00-01", NAN},
        {"2024-04-31", NAN},
        {"2024-05-31T24:00", NAN},
        {"2024-05-31T12:60", NAN},
        {"2024-05-31T12", NAN},
        {"2024-05-31x", NAN},
        {"2024-05/31", NAN},
        {"05/31/2024", NAN}, /* which of the two is the month? */
        {"2024-05-31T12:00+15:00", NAN},
        {"0000-01-01", NAN},
        {"31.05.24", NAN},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double days = NAN;
        bool is = table_date_read((const uint8_t *)cases[i].text, strlen(cases[i].text), &days);
        if (is != !isnan(cases[i].days) || (is && fabs(days - cases[i].days) > 1e-9))
            fail_msg("%s: %d %.9f", cases[i].text, is, days);
    }
    expect("d,y\n1970-01-03,1\n,0\n01.01.1970 12:00,1\n",
           (manta_table_options){.y = "y", .missing = MANTA_TABLE_MISSING_MEAN}, 3, 1, X(2, 1.25f, 0.5f),
           Y(1, 0, 1));
}

/* ---- missing values ---- */

static void missing_values_follow_a_rule(void **state)
{
    (void)state;
    static const char text[] = "a,b,y\n1,u,0\nNA,v,1\n3,?,1\n5,v,0\n";
    manta_table_options o = {.y = "y"};

    refuse(text, o, MANTA_ENAN,
           "line 3, column 'a' is missing, expected a value or a rule: missing=drop, mean");
    o.missing = MANTA_TABLE_MISSING_DROP;
    expect(text, o, 2, 3, X(1, 1, 0, 5, 0, 1), Y(0, 0));
    o.missing = MANTA_TABLE_MISSING_MEAN;
    expect(text, o, 4, 3, X(1, 1, 0, 3, 0, 1, 3, 0, 1, 5, 0, 1), Y(0, 1, 1, 0));
    o.missing = MANTA_TABLE_MISSING_ZERO;
    expect(text, o, 4, 4, X(1, 1, 0, 0, 0, 0, 1, 0, 3, 0, 0, 1, 5, 0, 1, 0), Y(0, 1, 1, 0));
    o.missing = MANTA_TABLE_MISSING_NAN;
    o.categories = MANTA_TABLE_ENCODING_INTEGER;
    expect(text, o, 4, 2, X(1, 0, NAN, 1, 3, 2, 5, 1), Y(0, 1, 1, 0));
    o = (manta_table_options){.x = "a@mean+b@drop", .y = "y"};
    expect(text, o, 3, 3, X(1, 1, 0, 3, 0, 1, 5, 0, 1), Y(0, 1, 0));
}

static void a_label_is_never_made_up(void **state)
{
    (void)state;
    static const char text[] = "a,y\n1,u\n2,\n3,v\n";

    refuse(text, (manta_table_options){.y = "y"}, MANTA_ENAN,
           "line 3, column 'y' is missing, and it is the label");
    refuse(text, (manta_table_options){.y = "y", .missing = MANTA_TABLE_MISSING_MEAN}, MANTA_ENAN,
           "it is the label");
    expect(text, (manta_table_options){.y = "y@drop"}, 2, 1, X(1, 3), Y(0, 1));
}

static void words_for_missing_count_without_quotes(void **state)
{
    (void)state;
    static const char *const words[] = {"",     "NA",   "N/A",  "n/a",  "NaN", "nan", "NULL",
                                        "null", "None", "<NA>", "#N/A", "?",   "-nan"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char text[64];
        snprintf(text, sizeof text, "a,y\n1,0\n%s,0\n3,0\n", words[i]);
        expect(text, (manta_table_options){.y = "y@number", .missing = MANTA_TABLE_MISSING_DROP}, 2, 1,
               X(1, 3), Y(0, 0));
    }
    expect("a,y\n\"NA\",0\nna,1\n\"None\",1\n", (manta_table_options){.x = "a@integer", .y = "y"}, 3, 1,
           X(0, 2, 1), Y(0, 1, 1));
    refuse("a,y\n\"\",0\nu,1\n", (manta_table_options){.y = "y"}, MANTA_ENAN,
           "line 2, column 'a' is missing");
}

/* ---- the mapping ---- */

static manta_status read_by(const manta_table *t, const char *text, const manta_table_options *o,
                            numbers *out)
{
    table_source s = {0};
    manta_dataset *d = NULL;
    manta_status st = csv_table_open(seek_over("g.csv", text, strlen(text)), o, 0, &s);

    if (!st) st = table_dataset(t, &s, o, &d);
    table_source_release(&s);
    if (!st) read_numbers(d, out);
    manta_dataset_unref(d);
    return st;
}

static manta_table *learn_from(const char *text, manta_table_options o)
{
    manta_table *t = NULL;
    numbers n;

    assert_ok(try_numbers(text, &o, 0, &n, &t));
    return t;
}

static void a_mapping_reads_other_files(void **state)
{
    (void)state;
    manta_table *t = learn_from("a,city,y\n1,Kiel,no\n3,Bonn,yes\n,Bonn,no\n",
                                (manta_table_options){.y = "y", .missing = MANTA_TABLE_MISSING_MEAN});
    manta_table_options none = {0}, inputs = {.keep_rows = true, .without_y = true},
                        same = {.x = "a+city", .y = "y"};
    numbers n;

    assert_int_equal(manta_table_width(t), 3);
    assert_int_equal(manta_table_classes(t), 2);
    assert_string_equal(manta_table_class(t, 0), "no");
    assert_string_equal(manta_table_class(t, 1), "yes");
    assert_null(manta_table_class(t, 2));
    assert_null(manta_table_class(t, -1));
    /* other order, more columns, fewer categories, another delimiter */
    assert_ok(read_by(t, "y;z;city;a\nyes;u;Kiel;\nyes;v;Kiel;9\n", &none, &n));
    assert_true(n.rows == 2 && n.width == 3 && n.x[0] == 2 && n.x[2] == 1 && n.x[3] == 9 && n.y[0] == 1);
    assert_ok(read_by(t, "a,city,y\n1,Bonn,no\n", &same, &n));
    assert_ok(read_by(t, "a,city\n1,Bonn\n", &inputs, &n)); /* no y in a prediction */
    assert_false(n.has_y);
    assert_fails_with(read_by(t, "a,city\n1,Bonn\n", &none, &n), MANTA_ENOENT, "no column 'y'");
    assert_fails_with(read_by(t, "a,y\n1,no\n", &none, &n), MANTA_ENOENT, "g.csv: there is no column 'city'");
    assert_fails_with(read_by(t, "a,city,y\n1,Rom,no\n", &none, &n), MANTA_EINVAL,
                      "g.csv: line 2, column 'city' is 'Rom', expected one of the 2 categories that were "
                      "learnt (Bonn, Kiel)");
    assert_fails_with(read_by(t, "a,city,y\n1,Bonn,maybe\n", &none, &n), MANTA_EINVAL,
                      "column 'y' is 'maybe'");
    assert_fails_with(read_by(t, "a,city,y\nx,Bonn,no\n", &none, &n), MANTA_ECORRUPT,
                      "line 2, column 'a' is 'x', expected a number");
    same.x = "city+a";
    assert_fails_with(read_by(t, "a,city,y\n1,Bonn,no\n", &same, &n), MANTA_EINVAL, "x is 'city+a'");
    manta_table_free(t);
}

static void a_prediction_leaves_no_row_out(void **state)
{
    (void)state;
    manta_table *t =
        learn_from("a,y\n1,0\n,1\n", (manta_table_options){.y = "y", .missing = MANTA_TABLE_MISSING_DROP});
    manta_table_options o = {.keep_rows = true, .without_y = true};
    numbers n;

    assert_fails_with(read_by(t, "a\n1\nNA\n", &o, &n), MANTA_ENAN,
                      "line 3, column 'a' is missing, and a prediction");
    manta_table_free(t);
}

static void whole_labels_stay_whole(void **state)
{
    (void)state;
    manta_table *t = learn_from("a,y\n1,0\n2,1\n", (manta_table_options){.y = "y"});
    manta_table_options o = {0};
    numbers n;

    assert_ok(read_by(t, "a,y\n1,7\n", &o, &n));
    assert_int_equal(n.y_dtype, MANTA_DTYPE_I64);
    assert_fails_with(read_by(t, "a,y\n1,0.5\n", &o, &n), MANTA_EINVAL,
                      "column 'y' is '0.5', expected a whole number");
    manta_table_free(t);
}

static void a_mapping_is_saved_and_loaded(void **state)
{
    (void)state;
    const char *path = scratch_path("m.table.json");
    manta_table_options o = {.y = "y", .missing = MANTA_TABLE_MISSING_MEAN};
    static const char text[] = "a,c,d,y\n0.1,\"\"\"x\",2024-01-01,no\n,\xc3\xa9,,yes\n0.7,,2024-01-05,no\n";
    manta_table *t = learn_from(text, o), *u = NULL;
    numbers a, b;

    assert_ok(manta_table_save(t, path));
    assert_ok(manta_table_load(path, &u));
    assert_int_equal(manta_table_width(u), 4);
    assert_string_equal(manta_table_class(u, 1), "yes");
    assert_ok(read_by(t, text, &o, &a));
    assert_ok(read_by(u, text, &o, &b));
    assert_memory_equal(&a, &b, sizeof a);
    manta_table_free(t);
    manta_table_free(u);
    assert_fails_with(manta_table_load(scratch_path("none"), &u), MANTA_ENOENT, "none");
}

static void bad_mappings_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "expected the JSON of a mapping"},
        {"[]", "no mapping of a table"},
        {"{\"manta_table\": 2, \"x\": []}", "no mapping of a table"},
        {"{\"manta_table\": 1}", "x is missing or wrong"},
        {"{\"manta_table\": 1, \"x\": []}", "x is missing or wrong"},
        {"{\"manta_table\": 1, \"x\": [3]}", "x[0]: name"},
        {"{\"manta_table\": 1, \"x\": [{\"name\": \"a\"}]}", "x[0]: type"},
        {"{\"manta_table\": 1, \"x\": [{\"name\": \"a\", \"type\": \"text\"}]}", "x[0]: type"},
        {"{\"manta_table\": 1, \"x\": [{\"name\": \"a\", \"type\": \"number\"}]}", "x[0]: missing"},
        {"{\"manta_table\": 1, \"x\": [{\"name\": \"a\", \"type\": \"number\", \"missing\": \"drop\"}]}",
         "x[0]: mean"},
        {"{\"manta_table\": 1, \"x\": [{\"name\": \"a\", \"type\": \"number\", \"missing\": \"drop\", "
         "\"mean\": 0}], "
         "\"y\": 3}",
         "y: name"},
        {"{\"manta_table\": 1, \"x\": [{\"name\": \"a\", \"type\": \"category\", \"missing\": \"drop\"}]}",
         "x[0]: encoding"},
        {"{\"manta_table\": 1, \"x\": [{\"name\": \"a\", \"type\": \"category\", \"missing\": \"drop\", "
         "\"encoding\": \"onehot\", \"categories\": []}]}",
         "x[0]: categories"},
        {"{\"manta_table\": 1, \"x\": [{\"name\": \"a\", \"type\": \"category\", \"missing\": \"drop\", "
         "\"encoding\": \"onehot\", \"categories\": [\"u\", \"u\"], \"frequent\": 0}]}",
         "different texts"},
        {"{\"manta_table\": 1, \"x\": [{\"name\": \"a\", \"type\": \"category\", \"missing\": \"drop\", "
         "\"encoding\": \"onehot\", \"categories\": [\"u\"], \"frequent\": 1}]}",
         "x[0]: frequent"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manta_table *t = NULL;
        int64_t live = mem_live();
        assert_fails_with(table_parse("m.json", cases[i].text, strlen(cases[i].text), &t), MANTA_ECORRUPT,
                          cases[i].part);
        assert_error_says("m.json");
        assert_int_equal(mem_live(), live);
    }
}

/* ---- the whole ---- */

static void a_table_is_described(void **state)
{
    (void)state;
    static const char text[] =
        "id,age,city,born,note\n"
        "1,20,Kiel,2004-01-01,x\n2,,Bonn,2003-02-01,\n3,40,Kiel,,x\n4,forty,Kiel,1984-01-01,y\n";
    manta_table_facts f = {0};
    const char *path = scratch_file("t.csv", text, sizeof text - 1);

    assert_ok(manta_table_describe(path, NULL, &f));
    assert_string_equal(f.format, "csv");
    assert_true(f.delimiter == ',' && f.has_header && f.rows == 4 && f.n == 5);
    assert_int_equal(f.columns[0].type, MANTA_TABLE_TYPE_NUMBER);
    assert_true(f.columns[0].least == 1 && f.columns[0].most == 4 && f.columns[0].missing == 0);
    assert_int_equal(f.columns[1].type, MANTA_TABLE_TYPE_NUMBER);
    assert_true(f.columns[1].missing == 1 && f.columns[1].odd == 1 && f.columns[1].odd_row == 5);
    assert_int_equal(f.columns[2].type, MANTA_TABLE_TYPE_CATEGORY);
    assert_int_equal(f.columns[2].distinct, 2);
    assert_string_equal(f.columns[2].example[0], "Kiel");
    assert_string_equal(f.columns[2].example[1], "Bonn");
    assert_null(f.columns[2].example[2]);
    assert_int_equal(f.columns[3].type, MANTA_TABLE_TYPE_DATE);
    assert_non_null(strstr(f.suggestion, "t.csv:x=id+age@category+city+born,y=note,missing=drop"));
    /* what is suggested can be opened */
    manta_dataset *d = NULL;
    manta_table *learnt = NULL;
    assert_ok(manta_dataset_open(f.suggestion, &(manta_open_options){.learnt = &learnt}, &d));
    assert_non_null(learnt);
    assert_int_equal(manta_dataset_count(d), 2);
    manta_dataset_unref(d);
    manta_table_free(learnt);
    manta_table_facts_release(&f);
    assert_fails_with(manta_table_describe(scratch_path("t.txt"), NULL, &f), MANTA_EUNSUPPORTED, "no table");
}

static void long_fields_are_read_and_shown_short(void **state)
{
    (void)state;
    size_t n = 3 << 20;
    char *text = mem_new(n + 64);
    manta_table_options o = {.x = "a", .y = "y"};
    manta_table *t = NULL;

    strcpy(text, "a,b,y\n1,\"");
    memset(text + 9, 'z', n);
    strcpy(text + 9 + n, "\",0\n");
    table_source s = source_of(text, strlen(text), &o, 0);
    assert_ok(table_learn(&s, &o, &t));
    manta_table_free(t);
    t = NULL;
    table_source_release(&s);
    o.x = "b@category";
    s = source_of(text, strlen(text), &o, 0);
    assert_fails_with(table_learn(&s, &o, &t), MANTA_EUNSUPPORTED, "more than 256 bytes");
    table_source_release(&s);
    o.x = "b@number";
    s = source_of(text, strlen(text), &o, 0);
    assert_fails_with(table_learn(&s, &o, &t), MANTA_ECORRUPT, "zzz...', expected a number");
    table_source_release(&s);
    mem_free(text);
}

static manta_status learn_and_read(void *ctx)
{
    manta_table_options o = {.y = "y", .missing = MANTA_TABLE_MISSING_MEAN};
    table_source s = {0};
    manta_table *t = NULL;
    manta_dataset *d = NULL;
    manta_status st = csv_table_open(seek_over("f.csv", ctx, strlen(ctx)), &o, 4, &s);

    if (!st) st = table_learn(&s, &o, &t);
    if (!st) st = table_dataset(t, &s, &o, &d);
    table_source_release(&s);
    manta_table_free(t);
    manta_dataset_unref(d);
    return st;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static char text[] = "a,b,y\n1,u,0\n,v,1\n3,\"long \"\" enough for the block to grow\",1\n";

    assert_true(alloc_fail_each(learn_and_read, text) > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_quoted_as_people_do),
        cmocka_unit_test(delimiters_are_found),
        cmocka_unit_test(headers_are_found_or_said),
        cmocka_unit_test(thousands_of_columns_may_have_one_name),
        cmocka_unit_test(choices_are_read),
        cmocka_unit_test(a_column_that_turns_is_refused_by_its_line),
        cmocka_unit_test(types_are_found_by_the_majority),
        cmocka_unit_test(texts_are_told_from_categories),
        cmocka_unit_test(dates_become_days),
        cmocka_unit_test(missing_values_follow_a_rule),
        cmocka_unit_test(a_label_is_never_made_up),
        cmocka_unit_test(words_for_missing_count_without_quotes),
        cmocka_unit_test(a_mapping_reads_other_files),
        cmocka_unit_test(a_prediction_leaves_no_row_out),
        cmocka_unit_test(whole_labels_stay_whole),
        cmocka_unit_test(a_mapping_is_saved_and_loaded),
        cmocka_unit_test(bad_mappings_are_refused),
        cmocka_unit_test(a_table_is_described),
        cmocka_unit_test(long_fields_are_read_and_shown_short),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
