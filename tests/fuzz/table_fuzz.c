/* table_fuzz.c - tables: the first byte chooses a mapping's JSON or a CSV file, and how it is read. The same
 * file in blocks of a few bytes must be what it is in one; what was learnt must read what it was learnt from. */
#include <math.h>

#include "format/csv/csv_table.h"
#include "format/table/table.h"
#include "format/table/table_json.h"
#include "fuzz.h"

static bool is_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void compare_facts(const manta_table_facts *a, const manta_table_facts *b)
{
    if (a->rows != b->rows || a->n != b->n) abort();
    for (int i = 0; i < a->n; i++) {
        const manta_table_column *c = &a->columns[i], *d = &b->columns[i];
        if (strcmp(c->name, d->name) != 0 || c->type != d->type || c->missing != d->missing) abort();
        if (c->distinct != d->distinct || c->odd != d->odd || c->odd_row != d->odd_row) abort();
        if (!is_same(c->least, d->least) || !is_same(c->most, d->most)) abort();
    }
}

/* The file in blocks of two sizes. */
static void describe_twice(const uint8_t *data, size_t size, const manta_table_options *o, size_t block)
{
    table_source s = {0}, t = {0};
    manta_table_facts a = {0}, b = {0};
    manta_status st = csv_table_open(seek_over("fuzz", data, size), o, 0, &s);
    manta_status other = csv_table_open(seek_over("fuzz", data, size), o, block, &t);

    fuzz_expect(st);
    if (st != other) abort();
    if (!st) {
        st = table_describe(&s, &a);
        fuzz_expect(st);
        if (table_describe(&t, &b) != st) abort();
        if (!st) compare_facts(&a, &b);
    }
    manta_table_facts_release(&a);
    manta_table_facts_release(&b);
    table_source_release(&s);
    table_source_release(&t);
}

static void learn_and_read(const uint8_t *data, size_t size, const manta_table_options *o, size_t block)
{
    table_source s = {0};
    manta_table *t = NULL;
    manta_dataset *d = NULL;

    if (csv_table_open(seek_over("fuzz", data, size), o, block, &s)) return;
    manta_status st = table_learn(&s, o, &t);
    fuzz_expect(st);
    if (!st && table_dataset(t, &s, o, &d)) abort();
    manta_dataset_unref(d);
    manta_table_free(t);
    table_source_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const labels[] = {NULL, "0", "y", "1@category"};
    static const char delimiters[] = {0, ',', ';', '\t'};
    int64_t live = mem_live();

    if (size < 2) return 0;
    if (data[0] & 0x80) {
        manta_table *t = NULL;
        fuzz_expect(table_parse("fuzz", (const char *)data + 1, size - 1, &t));
        manta_table_free(t);
    } else {
        manta_table_options o = {.y = labels[data[0] & 3],
                                 .missing = (manta_table_missing)((data[0] >> 2 & 7) % 5),
                                 .delimiter = delimiters[data[0] >> 5 & 3],
                                 .header = (manta_table_header)(data[1] % 3),
                                 .categories = (manta_table_encoding)(data[1] >> 2 & 1)};
        size_t block = 4 + (data[1] >> 3);
        describe_twice(data + 2, size - 2, &o, block);
        learn_and_read(data + 2, size - 2, &o, block);
    }
    fuzz_balance(live);
    return 0;
}
