/* parquet_fuzz.c - Parquet files; the first byte chooses the columns. Every file is read as a table too. */
#include "format/parquet/parquet.h"
#include "format/parquet/parquet_meta.h"
#include "format/parquet/parquet_table.h"
#include "fuzz_dataset.h"

/* A few bytes of runs may truly hold millions of values; those take time only. */
#define MAX_ROWS 100000

static int small(const uint8_t *data, size_t size)
{
    seek_file f = seek_over("fuzz", data, size);
    parquet_meta m = {0};
    manta_status st = parquet_meta_read(&f, &m);
    int ok = 1;

    fuzz_expect(st);
    for (int g = 0; g < m.n_groups; g++) {
        for (int i = 0; i < m.n_leaves; i++) ok &= m.groups[g].chunks[i].values <= MAX_ROWS;
    }
    parquet_meta_release(&m);
    seek_close(&f);
    return ok;
}

/* What is described can be learnt, when nothing is odd and a rule is there for what is missing. */
static void read_as_table(const uint8_t *data, size_t size)
{
    manta_table_options o = {.missing = MANTA_TABLE_MISSING_ZERO};
    table_source s = {0};
    manta_table_facts facts = {0};
    manta_table *t = NULL;
    manta_dataset *d = NULL;
    manta_status st = parquet_table_open(seek_over("fuzz", data, size), &s);

    fuzz_expect(st);
    if (st) return;
    st = table_describe(&s, &facts);
    fuzz_expect(st);
    manta_table_facts_release(&facts);
    if (!table_learn(&s, &o, &t) && table_dataset(t, &s, &o, &d)) abort();
    manta_dataset_unref(d);
    manta_table_free(t);
    table_source_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const x[] = {NULL, "img", "x+label", "s", "v", "image.bytes", "v", NULL};
    static const char *const label[] = {NULL, "label", NULL, NULL, NULL, "label", "y", "y"};
    int64_t live = mem_live();
    manta_dataset *d = NULL;

    if (size == 0) return 0;
    const manta_open_options o = {.allow_nan = data[0] & 8, .raw = data[0] & 16};
    if (!small(data + 1, size - 1)) return 0;
    manta_status st =
        parquet_open_file(seek_over("fuzz", data + 1, size - 1), x[data[0] % 8], label[data[0] % 8], &o, &d);
    fuzz_dataset(st, d, 64);
    read_as_table(data + 1, size - 1);
    fuzz_balance(live);
    return 0;
}
