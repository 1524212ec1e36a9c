/* csv_fuzz.c - CSV; the first byte chooses the label column. */
#include "format/csv.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const labels[] = {NULL, "0", "y", "1"};
    int64_t live = mem_live();
    csv_table t = {0};

    if (size == 0) return 0;
    fuzz_expect(csv_parse("fuzz", data + 1, size - 1, labels[data[0] % 4], data[0] & 4, &t));
    volatile float sum = 0;
    for (int64_t i = 0; i < t.rows * t.columns; i++) sum = t.x[i];
    csv_release(&t);
    fuzz_balance(live);
    return 0;
}
