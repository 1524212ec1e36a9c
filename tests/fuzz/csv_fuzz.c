/* csv_fuzz.c - CSV; the first byte chooses the label column. The fast reader
 * must give what the slow one does, to the bit. */
#include "format/csv/csv.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const labels[] = {NULL, "0", "y", "1"};
    int64_t live = mem_live();
    csv_table t = {0}, slow = {0};

    if (size == 0) return 0;
    const char *label = labels[data[0] % 4];
    bool nan = data[0] & 4;
    manta_status st = csv_parse("fuzz", data + 1, size - 1, label, nan, &t);
    fuzz_expect(st);
    if (csv_parse_slowly("fuzz", data + 1, size - 1, label, nan, &slow) != st) abort();
    if (!st) {
        size_t y = t.y_dtype == MANTA_DTYPE_I64 ? 8 : 4;
        if (t.rows != slow.rows || t.columns != slow.columns || !t.y != !slow.y) abort();
        if (memcmp(t.x, slow.x, (size_t)(t.rows * t.columns) * sizeof(float)) != 0) abort();
        if (t.y && (t.y_dtype != slow.y_dtype || memcmp(t.y, slow.y, (size_t)t.rows * y) != 0)) abort();
    }
    csv_release(&t);
    csv_release(&slow);
    fuzz_balance(live);
    return 0;
}
