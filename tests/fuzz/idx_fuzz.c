/* idx_fuzz.c - IDX files, plain and gzip. */
#include "format/array/idx.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    input in = {.path = mem_strdup("fuzz"), .data = mem_try_raw(size ? size : 1), .size = size};
    idx_file f = {0};

    if (size) memcpy(in.data, data, size);
    (void)idx_is(data, size);
    manta_status st = idx_begin(&in, &f);
    if (!st) st = idx_finish(&f);
    fuzz_expect(st);
    if (!st) { /* every byte that is promised is there */
        size_t n = manta_array_bytes(&f.array);
        volatile uint8_t sink = 0;
        for (size_t i = 0; i < n; i++) sink = ((const uint8_t *)f.array.data)[i];
        (void)sink;
    }
    idx_release(&f);
    fuzz_balance(live);
    return 0;
}
